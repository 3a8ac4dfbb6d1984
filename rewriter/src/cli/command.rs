//! The command line: definitions of all subcommands, and how errors reach the user.
//!
//! Input: the process's arguments. Output: an exit status: 0, the launched program's, 1 after an error, 2 after a misuse of
//! the command line. Errors go to standard error as `blizzard: error: …` with indented `caused by:` and `help:` lines.

use crate::base::memory::give_back_large_blocks;
use crate::cli::bench::command::BenchCommand;
use crate::cli::parmacs::command::ParmacsCommand;
use crate::cli::run::agent::AgentCommand;
use crate::cli::run::command::RunCommand;
use crate::cli::run::learn::LearnCommand;
use crate::cli::shared::print::tell;
use crate::cli::stress::command::StressCommand;
use crate::cli::{cache, config, demo, inspect, overhead, rewrite, verify};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Runs unmodified x86-64 Linux programs on many node processes with shared memory.
#[derive(Debug, Parser)]
#[command(
    name = "blizzard",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  \
        blizzard demo                          # see all of it at work\n  \
        blizzard run -n 4 -- ./em3d            # run a program on four nodes\n  \
        blizzard rewrite ./em3d -o em3d.blz    # keep the rewritten program\n\n\
        Each command has its own --help."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Rewrite(rewrite::RewriteCommand),
    Run(RunCommand),
    Learn(LearnCommand),
    Verify(verify::VerifyCommand),
    Inspect(inspect::InspectCommand),
    Overhead(overhead::OverheadCommand),
    Config(config::ConfigCommand),
    Parmacs(ParmacsCommand),
    Cache(cache::CacheCommand),
    Demo(demo::DemoCommand),
    Stress(StressCommand),
    Bench(BenchCommand),
    Agent(AgentCommand),
}

/// Runs the command that the process's arguments ask for.
pub fn main() -> ExitCode {
    give_back_large_blocks();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) if e.use_stderr() => {
            let text = e.render();
            let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            tell(&if is_terminal { text.ansi().to_string() } else { text.to_string() });
            return ExitCode::from(2);
        }
        Err(help) => return help_is_shown(&help),
    };
    let done = match cli.command {
        Command::Rewrite(command) => command.execute(),
        Command::Run(command) => command.execute(),
        Command::Learn(command) => command.execute(),
        Command::Verify(command) => command.execute(),
        Command::Inspect(command) => command.execute(),
        Command::Overhead(command) => command.execute(),
        Command::Config(command) => command.execute(),
        Command::Cache(command) => command.execute(),
        Command::Demo(command) => command.execute(),
        Command::Stress(command) => command.execute(),
        Command::Bench(command) => command.execute(),
        Command::Parmacs(command) => command.execute(),
        Command::Agent(command) => command.execute(),
    };
    done.unwrap_or_else(|error| {
        tell(&format!("error: {error}\n"));
        ExitCode::FAILURE
    })
}

/// Prints what `--help` or `--version` asks for.
fn help_is_shown(help: &clap::Error) -> ExitCode {
    match help.print() {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            tell(&format!("error: cannot write to standard output\n  caused by: {e}\n"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_has_an_example_of_its_command() {
        let mut root = Cli::command();
        root.build();
        let render = |command: &mut clap::Command| command.render_long_help().to_string();
        assert!(render(&mut root).contains("Example"));
        let mut commands = 0;
        for command in root.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            let example = format!("blizzard {}", command.get_name());
            let help = render(command);
            let after = help.split("Example").nth(1).unwrap_or_else(|| panic!("{example}: no example"));
            assert!(after.contains(&example), "{example}: {after}");
            // A narrow terminal would break a longer line, and what is copied from there would be two commands.
            assert!(after.lines().all(|line| line.len() < 80), "{after}");
            commands += 1;
        }
        assert_eq!(commands, 13);
    }

    #[test]
    fn a_program_keeps_its_own_options() {
        for line in
            ["blizzard run -n 4 --stats f -- prog --stats x -n 9", "blizzard run -n 4 --stats f prog --stats x -n 9"]
        {
            let Command::Run(run) = parse(line).unwrap().command else { panic!("{line}: not a run") };
            assert_eq!(run.nodes, 4);
            assert_eq!(run.program.command, ["prog", "--stats", "x", "-n", "9"]);
        }
    }

    #[test]
    fn misuse_is_refused_with_the_limits() {
        for (line, part) in [
            ("blizzard", "Usage"),
            ("blizzard run", "PROG"),
            ("blizzard run -n 0 -- true", "1 to 64"),
            ("blizzard run -n 65 -- true", "1 to 64"),
            ("blizzard run -n four -- true", "1 to 64"),
            ("blizzard rewrite a", "--output"),
            ("blizzard rewrite a -o b --checks some", "all, loads, stores, none"),
            ("blizzard rewrite a -o b --poll never", "backedge, none"),
            ("blizzard config", "--cflags"),
            ("blizzard frobnicate", "frobnicate"),
        ] {
            let text = parse(line).expect_err(line).to_string();
            assert!(text.contains(part), "{line}: {text}");
        }
    }
}
