//! What `blizzard --help` and `blizzard --version` print.
//!
//! Input: the definitions of the subcommands. Output: the same with an overview in groups, each with an example, and with the versions.

use crate::base::options::AccessMode;
use crate::reports::audit::Runtime;
use crate::write::runtime_blob;
use clap::Command;

/// What users want to do: the commands for it, and an example that works as it stands, anywhere.
pub(crate) const GROUPS: [(&str, &[&str], &str); 6] = [
    ("Make", &["new", "config", "parmacs", "rewrite", "learn"], "blizzard new first --lang c"),
    ("Run", &["run", "node", "agent"], "blizzard run -- ls"),
    ("Look", &["verify", "inspect", "doctor", "cache"], "blizzard doctor"),
    ("Measure", &["overhead", "bench", "demo"], "blizzard demo"),
    ("Test", &["stress"], "blizzard stress -n 4 --seconds 60"),
    ("Shell", &["completions", "man", "help"], "blizzard completions bash > blizzard.bash"),
];

/// Columns of the overview.
const WIDTH: usize = 96;
/// Columns in front of what a command does.
const INDENT: usize = 14;

/// `root` with overview and versions.
pub(crate) fn complete(root: Command, commit: &str) -> Command {
    let overview = overview(&root);
    root.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{overview}\nOptions:\n{{options}}\n\nEach command has its own --help.{{after-help}}"
    ))
    .mut_subcommands(|command| command.disable_version_flag(true))
    .version(version(commit))
}

/// The groups.
fn overview(root: &Command) -> String {
    let mut text = String::new();
    for (title, names, example) in GROUPS {
        text += &format!("\n{title}:\n");
        for name in names {
            let about =
                root.find_subcommand(name).and_then(|command| command.get_about()).map(|about| about.to_string());
            let about = about.unwrap_or_else(|| "Print this, or the help of a command".to_owned());
            let mut row = format!("  {name:<width$}", width = INDENT - 2);
            for word in about.split(' ') {
                if row.len() + word.len() >= WIDTH {
                    text += &format!("{}\n", row.trim_end());
                    row = " ".repeat(INDENT);
                }
                row += &format!("{word} ");
            }
            text += &format!("{}\n", row.trim_end());
        }
        text += &format!("  Example: {example}\n");
    }
    text
}

/// One line.
pub(crate) fn version(commit: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if commit.is_empty() { version.to_owned() } else { format!("{version} (commit {commit})") }
}

/// What tells one build from another: the commit, and the runtimes that it puts into programs, as audits name them.
pub(crate) fn versions(commit: &str) -> String {
    let mut text = version(commit);
    for (access, what) in [(AccessMode::Tests, "tests"), (AccessMode::Guard, "guard")] {
        let file = runtime_blob::FILES.iter().find(|file| file.access == access);
        let name = file.and_then(|file| Runtime::File { file: file.bytes, serves: None }.name());
        if let Some(name) = name {
            let digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("\nruntime of --access {what}: sha256 {digits}");
        }
    }
    text
}
