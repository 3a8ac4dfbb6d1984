//! `blizzard completions` and `blizzard man`: what shells and manuals know of the command line.
//!
//! Input: the definitions of all commands. Output: a shell's script on standard output; pages in a folder.

use crate::base::error::{Error, Result};
use crate::base::output_file::write_atomically;
use crate::cli::shared::print::print_bytes;
use clap::Args;
use clap_complete::Shell;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print what makes a shell complete the commands and options of blizzard
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard completions bash > blizzard.bash    # then: . ./blizzard.bash\n  \
    blizzard completions zsh > _blizzard    # in a folder of $fpath\n  \
    blizzard completions fish > blizzard.fish    # in ~/.config/fish/completions")]
pub struct CompletionsCommand {
    /// The shell
    shell: Shell,
}

impl CompletionsCommand {
    /// Prints the script.
    pub fn execute(self, mut definitions: clap::Command) -> Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut definitions, "blizzard", &mut script);
        print_bytes(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Write manual pages, one for each command
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    blizzard man man1    # then: man ./man1/blizzard-run.1")]
pub struct ManCommand {
    /// The folder; it is made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl ManCommand {
    /// Writes the pages.
    pub fn execute(self, definitions: clap::Command) -> Result<ExitCode> {
        let folder = &self.folder;
        fs::create_dir_all(folder)
            .map_err(|e| Error::new(format!("cannot make the folder {}", folder.display())).because(e))?;
        for (name, page) in pages(definitions) {
            let path = folder.join(name);
            write_atomically(&path, &page, 0o644)
                .map_err(|e| Error::new(format!("cannot write {}", path.display())).because(e))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The pages by their files' names: `blizzard.1`, `blizzard-run.1`, and so on.
fn pages(definitions: clap::Command) -> Vec<(String, Vec<u8>)> {
    let mut root = definitions.disable_help_subcommand(true);
    let source = format!("blizzard {}", root.get_version().unwrap_or_default());
    root.build();
    let mut all = Vec::new();
    let mut left = vec![root];
    while let Some(command) = left.pop() {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        left.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
        let page = page(command, &source).expect("writing to memory cannot fail");
        all.push((format!("{name}.1"), page));
    }
    all
}

/// One page: what the crate makes of a command, but examples keep their lines. `source`: name and version, for the last line.
fn page(command: clap::Command, source: &str) -> std::io::Result<Vec<u8>> {
    let examples = command.get_after_help().map(|text| text.to_string());
    let man = clap_mangen::Man::new(command.clone()).source(source).manual("Blizzard");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = examples {
        let (title, lines) = text.split_once(":\n").unwrap_or(("Notes", &text));
        writeln!(page, ".SH {}\n.nf", title.to_uppercase())?;
        for line in lines.lines() {
            let line = line.trim_start().replace('\\', "\\\\").replace('-', "\\-");
            // A line that begins like this is one of commands of troff.
            let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
            writeln!(page, "{guard}{line}")?;
        }
        writeln!(page, ".fi")?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let cache = clap::Command::new("cache")
            .subcommand(clap::Command::new("clean").after_help("Examples:\n  blizzard cache clean\n  ./x a\\b"))
            .subcommand(clap::Command::new("add").hide(true));
        let pages = pages(clap::Command::new("blizzard").subcommand(clap::Command::new("run")).subcommand(cache));
        for name in ["blizzard.1", "blizzard-run.1", "blizzard-cache.1", "blizzard-cache-clean.1"] {
            let (_, page) = pages.iter().find(|(file, _)| file == name).unwrap_or_else(|| panic!("{name} is missing"));
            let text = String::from_utf8_lossy(page);
            assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{name}: {text}");
        }
        let (_, clean) = pages.iter().find(|(file, _)| file == "blizzard-cache-clean.1").unwrap();
        let clean = String::from_utf8_lossy(clean);
        assert!(clean.contains(".SH EXAMPLES\n.nf\nblizzard cache clean\n\\&./x a\\\\b\n.fi\n"), "{clean}");
        assert!(!pages.iter().any(|(file, _)| file.contains("cache-add")), "hidden commands have no page");
    }
}
