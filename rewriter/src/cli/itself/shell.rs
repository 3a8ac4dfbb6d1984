//! `blizzard completions` and `blizzard man`: what shells and manuals know of the command line.
//!
//! Input: the definitions of all commands. Output: a shell's script on standard output; pages in a folder.

use crate::base::error::{Error, Result};
use crate::base::output_file::write_atomically;
use crate::cli::shared::print::print_bytes;
use clap::Args;
use clap_complete::Shell;
use std::fs;
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
    root.build();
    let mut all = Vec::new();
    let mut left = vec![root];
    while let Some(command) = left.pop() {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        left.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).expect("writing to memory cannot fail");
        all.push((format!("{name}.1"), page));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let cache = clap::Command::new("cache")
            .subcommand(clap::Command::new("clean"))
            .subcommand(clap::Command::new("add").hide(true));
        let pages = pages(clap::Command::new("blizzard").subcommand(clap::Command::new("run")).subcommand(cache));
        for name in ["blizzard.1", "blizzard-run.1", "blizzard-cache.1", "blizzard-cache-clean.1"] {
            let (_, page) = pages.iter().find(|(file, _)| file == name).unwrap_or_else(|| panic!("{name} is missing"));
            let text = String::from_utf8_lossy(page);
            assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{name}: {text}");
        }
        assert!(!pages.iter().any(|(file, _)| file.contains("cache-add")), "hidden commands have no page");
    }
}
