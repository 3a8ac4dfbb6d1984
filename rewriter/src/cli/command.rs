//! The command line: definitions of all subcommands, and how errors reach the user.
//!
//! Input: the process's arguments. Output: an exit status: 0, the launched program's, 1 after an error, 2 after a misuse of
//! the command line. Errors go to standard error as `blizzard: error: …` with indented `caused by:` and `help:` lines.

use crate::base::memory::give_back_large_blocks;
use crate::base::options::{Checks, Options, Poll};
use crate::cli::bench::command::BenchCommand;
use crate::cli::parmacs::command::ParmacsCommand;
use crate::cli::stress::command::StressCommand;
use crate::cli::{cache, config, demo, inspect, overhead, rewrite, run, verify};
use blizzard_contract::MAX_NODES;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
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
    Run(run::RunCommand),
    Verify(verify::VerifyCommand),
    Inspect(inspect::InspectCommand),
    Overhead(overhead::OverheadCommand),
    Config(config::ConfigCommand),
    Parmacs(ParmacsCommand),
    Cache(cache::CacheCommand),
    Demo(demo::DemoCommand),
    Stress(StressCommand),
    Bench(BenchCommand),
}

/// What a rewrite does; the same for every command that rewrites.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct RewriteOptions {
    /// Which accesses are checked; nodes that share memory need all [default: all]
    #[arg(long, value_name = "WHICH", value_enum, hide_default_value = true)]
    pub(super) checks: Option<Checks>,
    /// Where the program looks for messages of other nodes [default: backedge]
    #[arg(long, value_name = "WHERE", value_enum)]
    pub(super) poll: Option<Poll>,
    /// Count executed checks and polls, exactly; the program runs slower
    #[arg(long)]
    pub(super) count: bool,
    /// Count how often each basic block runs, for `blizzard overhead`; the program runs slower
    #[arg(long)]
    pub(super) count_blocks: bool,
    #[command(flatten)]
    pub(super) passes: PassOptions,
}

/// Which passes of the optimiser run; all do, unless told otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub(super) struct PassOptions {
    /// Let no two accesses of a basic block share a check
    #[arg(long, help_heading = "Passes")]
    pub(super) no_merge: bool,
    /// Leave no check out because it repeats what was tested on every way to it
    #[arg(long, help_heading = "Passes")]
    pub(super) no_across: bool,
    /// Widen no check to what is certainly accessed behind it, over branches
    #[arg(long, help_heading = "Passes")]
    pub(super) no_ahead: bool,
    /// Keep no register in the red zone; move the stack pointer instead
    #[arg(long, help_heading = "Passes")]
    pub(super) no_red_zone: bool,
    /// Let no loop test tags once for several iterations
    #[arg(long, help_heading = "Passes")]
    pub(super) no_strips: bool,
    /// Let such tests lead into no copies of loops without checks
    #[arg(long, help_heading = "Passes")]
    pub(super) no_copies: bool,
    /// Let every loop poll, also where another poll of each of its iterations does
    #[arg(long, help_heading = "Passes")]
    pub(super) no_poll_placement: bool,
    /// Let every check look at the tag, also of addresses that cannot be shared memory
    #[arg(long, help_heading = "Passes")]
    pub(super) no_screens: bool,
    /// Let exported functions keep their old addresses, and calls from other files pass by these
    #[arg(long, help_heading = "Passes")]
    pub(super) no_exports: bool,
    /// Let words of data name functions by their old addresses, and calls through them pass by these
    #[arg(long, help_heading = "Passes")]
    pub(super) no_words: bool,
    /// Let the passes make the first N transformations only, to find the one that matters
    #[arg(long, value_name = "N", help_heading = "Passes")]
    pub(super) fuel: Option<u64>,
}

impl RewriteOptions {
    pub(super) fn options(self) -> Options {
        let default = Options::default();
        Options {
            checks: self.checks.unwrap_or(default.checks),
            poll: self.poll.unwrap_or(default.poll),
            count: self.count,
            blocks: self.count_blocks,
            merge: !self.passes.no_merge,
            across: !self.passes.no_across,
            ahead: !self.passes.no_ahead,
            red_zone: !self.passes.no_red_zone,
            strips: !self.passes.no_strips,
            copies: !self.passes.no_copies,
            place_polls: !self.passes.no_poll_placement,
            screens: !self.passes.no_screens,
            exports: !self.passes.no_exports,
            words: !self.passes.no_words,
            fuel: self.passes.fuel,
        }
    }
}

/// The program to launch and its arguments.
#[derive(Debug, Args)]
pub struct ProgramAndArgs {
    /// Program, original or rewritten, and its arguments; a name without a slash is looked up in PATH
    #[arg(value_name = "PROG", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) command: Vec<OsString>,
}

/// Accepts a number of nodes that a run can have.
pub(super) fn node_count(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(n) if (1..=MAX_NODES as u32).contains(&n) => Ok(n),
        Ok(n) => Err(format!("a run has 1 to {MAX_NODES} nodes, not {n}")),
        Err(_) => Err(format!("not a number of nodes; a run has 1 to {MAX_NODES}")),
    }
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
        Command::Verify(command) => command.execute(),
        Command::Inspect(command) => command.execute(),
        Command::Overhead(command) => command.execute(),
        Command::Config(command) => command.execute(),
        Command::Cache(command) => command.execute(),
        Command::Demo(command) => command.execute(),
        Command::Stress(command) => command.execute(),
        Command::Bench(command) => command.execute(),
        Command::Parmacs(command) => command.execute(),
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

/// Writes to standard error, whoever reads there or not: the exit status says the same.
pub(super) fn tell(text: &str) {
    use std::io::Write;
    let _ = write!(std::io::stderr(), "blizzard: {text}");
}

/// Writes to standard output; a reader that has gone away (`| head`) is no error.
pub(crate) fn print(text: &str) -> crate::base::error::Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes to standard output; a reader that has gone away is no error.
pub(crate) fn print_bytes(bytes: &[u8]) -> crate::base::error::Result<()> {
    use std::io::Write;
    match std::io::stdout().lock().write_all(bytes) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(crate::base::error::Error::new("cannot write to standard output").because(e))
        }
        _ => Ok(()),
    }
}

/// Decimal digits in groups of three.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (k, digit) in digits.chars().enumerate() {
        if k != 0 && (digits.len() - k).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The argument that names a program file.
#[derive(Debug, Clone, Args)]
pub(super) struct ProgramFile {
    /// The program's file
    #[arg(value_name = "PROG")]
    pub(super) program: PathBuf,
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
        assert_eq!(commands, 11);
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
