//! The command line: definitions of all subcommands, and how errors reach the user.
//!
//! Input: the process's arguments. Output: an exit status: 0, the launched program's, 1 after an error, 2 after a misuse of
//! the command line. Errors go to standard error as `blizzard: error: …` with indented `caused by:` and `help:` lines.

use crate::base::memory::give_back_large_blocks;
use crate::base::messages::{self, Colour, Level};
use crate::cli::bench::command::BenchCommand;
use crate::cli::itself::overview;
use crate::cli::itself::shell::{CompletionsCommand, ManCommand};
use crate::cli::itself::{cache, doctor};
use crate::cli::make::{config, new};
use crate::cli::parmacs::command::ParmacsCommand;
use crate::cli::run::agent::AgentCommand;
use crate::cli::run::command::RunCommand;
use crate::cli::run::learn::LearnCommand;
use crate::cli::run::node::NodeCommand;
use crate::cli::shared::input;
use crate::cli::stress::command::StressCommand;
use crate::cli::{demo, inspect, overhead, rewrite, verify};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;

/// Runs unmodified x86-64 Linux programs on many node processes with shared memory.
#[derive(Debug, Parser)]
#[command(name = "blizzard", max_term_width = 100)]
pub struct Cli {
    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    quiet: bool,
    /// Say what is done, too
    #[arg(short, long, global = true, help_heading = "Messages")]
    verbose: bool,
    /// Whether messages have colours
    #[arg(long, value_name = "WHEN", global = true, default_value = "auto", help_heading = "Messages", action = ArgAction::Set)]
    color: Colour,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    New(new::NewCommand),
    Config(config::ConfigCommand),
    Parmacs(ParmacsCommand),
    Rewrite(rewrite::RewriteCommand),
    Learn(LearnCommand),
    Run(RunCommand),
    Verify(verify::VerifyCommand),
    Inspect(inspect::InspectCommand),
    Doctor(doctor::DoctorCommand),
    Cache(cache::CacheCommand),
    Overhead(overhead::OverheadCommand),
    Bench(BenchCommand),
    Demo(demo::DemoCommand),
    Stress(StressCommand),
    Node(NodeCommand),
    Agent(AgentCommand),
    Completions(CompletionsCommand),
    Man(ManCommand),
}

/// All definitions, with the overview that `blizzard --help` prints.
pub fn definitions(commit: &str) -> clap::Command {
    overview::complete(Cli::command(), commit)
}

/// Runs the command that the process's arguments ask for. `commit`: what `blizzard` was built from; empty if nobody knows.
pub fn main(commit: &'static str) -> ExitCode {
    give_back_large_blocks();
    let mut definitions = definitions(commit);
    let args = usual_spelling(std::env::args_os().collect(), &definitions);
    // Naming the runtimes takes a moment: only whoever asks waits for it.
    if own_options(&args, &definitions).iter().any(|&k| args[k] == "--version") {
        definitions = definitions.long_version(overview::versions(commit));
    }
    // Also of errors in the command line itself.
    messages::set_up(Level::Usual, colour_of(&args));
    let words = args.clone();
    let parsed = definitions.try_get_matches_from_mut(args).and_then(|found| Cli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(mut e) if e.use_stderr() => {
            // An unknown option is none of the program's: the advice to hide it behind `--` would name a program.
            e.remove(ContextKind::Suggested);
            suggest(&mut e, &words, &definitions);
            let text = e.render();
            messages::tell(&if messages::in_colour() { text.ansi().to_string() } else { text.to_string() });
            return ExitCode::from(2);
        }
        Err(help) => return help_is_shown(&help),
    };
    let level = match (cli.quiet, cli.verbose) {
        (true, _) => Level::Quiet,
        (false, true) => Level::Verbose,
        (false, false) => Level::Usual,
    };
    messages::set_up(level, cli.color);
    let done = match cli.command {
        Command::New(command) => command.execute(),
        Command::Config(command) => command.execute(),
        Command::Parmacs(command) => command.execute(),
        Command::Rewrite(command) => command.execute(),
        Command::Learn(command) => command.execute(),
        Command::Run(command) => command.execute(),
        Command::Verify(command) => command.execute(),
        Command::Inspect(command) => command.execute(),
        Command::Doctor(command) => command.execute(),
        Command::Cache(command) => command.execute(),
        Command::Overhead(command) => command.execute(commit),
        Command::Bench(command) => command.execute(),
        Command::Demo(command) => command.execute(),
        Command::Stress(command) => command.execute(),
        Command::Node(command) => command.execute(),
        Command::Agent(command) => command.execute(),
        Command::Completions(command) => command.execute(self::definitions(commit)),
        Command::Man(command) => command.execute(self::definitions(commit)),
    };
    done.unwrap_or_else(|error| {
        messages::error(&error.to_string());
        // As a shell has it.
        error.signal.and_then(|signal| u8::try_from(128 + signal).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
    })
}

/// Prints what `--help` or `--version` asks for.
fn help_is_shown(help: &clap::Error) -> ExitCode {
    match help.print() {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            messages::error(&format!("cannot write to standard output\n  caused by: {e}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// The words in front of the program that is to be run, or in front of `--`: those that are Blizzard's. Gives the index of each option.
fn own_options(args: &[OsString], root: &clap::Command) -> Vec<usize> {
    let takes_value = |command: &clap::Command, word: &[u8]| {
        let is_named = |arg: &&clap::Arg| match word {
            [b'-', b'-', name @ ..] => arg.get_long().is_some_and(|long| long.as_bytes() == name),
            [b'-', name] => arg.get_short() == Some(char::from(*name)),
            _ => false,
        };
        let find =
            |command: &clap::Command| command.get_arguments().find(is_named).map(|arg| arg.get_action().takes_values());
        find(command).or_else(|| find(root)).unwrap_or(false)
    };
    let (mut command, mut all, mut k) = (root, Vec::new(), 1);
    while let Some(word) = args.get(k).map(|word| word.as_bytes()) {
        match word {
            b"--" => break,
            [b'-', _, ..] => {
                all.push(k);
                k += usize::from(takes_value(command, word));
            }
            _ if std::ptr::eq(command, root) => match root.find_subcommand(OsStr::from_bytes(word)) {
                Some(found) => command = found,
                None => break,
            },
            _ if command.get_positionals().any(|arg| arg.is_trailing_var_arg_set()) => break,
            _ => {}
        }
        k += 1;
    }
    all
}

/// `-np 4`, as other launchers have it, is `-n 4`.
fn usual_spelling(mut args: Vec<OsString>, root: &clap::Command) -> Vec<OsString> {
    for k in own_options(&args, root) {
        if let Some(value) = args[k].as_bytes().strip_prefix(b"-np") {
            args[k] = OsString::from_vec([b"-n", value].concat());
        }
    }
    args
}

/// Names what comes nearest to a word that nobody knows. The likeness that clap goes by does not count swapped letters, and it has none for options of one
/// letter; its word stays where nothing is near. A program, or an option of runs, in the place of a command gets the command that it belongs to.
fn suggest(error: &mut clap::Error, args: &[OsString], root: &clap::Command) {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    };
    // What the letters of such a word are as options of one letter each, and their values, was not meant.
    let unexpected = |word: String, tip: &str| {
        let mut told = clap::Error::new(ErrorKind::UnknownArgument).with_cmd(root);
        told.insert(ContextKind::InvalidArg, ContextValue::String(word));
        advise(&mut told, tip);
        told
    };
    if let Some((wrong, long)) = one_dash(args, root) {
        *error = unexpected(wrong, &format!("did you mean '--{long}', with two dashes?"));
        return;
    }
    if let (ErrorKind::ValueValidation, Some(option), Some(value)) =
        (error.kind(), word(ContextKind::InvalidArg), word(ContextKind::InvalidValue))
        && option.starts_with("--nodes ")
        && value.contains(|c: char| c.is_alphabetic())
    {
        let joined = format!("-n{value}");
        if args.iter().any(|word| *word == *value) {
            advise(error, &format!("the number of nodes comes first, as in: -n 2 -- {value}"));
        } else if args.iter().any(|word| *word == *joined) {
            *error = unexpected(joined, "did you mean '-n', as in: -n 2 -- PROG?");
        }
        return;
    }
    // The command that the words in front of the wrong one have come to.
    let command_before = |wrong: &str| {
        let before = args.iter().skip(1).take_while(|word| *word != wrong);
        before.fold(root, |command, word| command.find_subcommand(word).unwrap_or(command))
    };
    if let Some(wrong) = word(ContextKind::InvalidSubcommand) {
        let command = command_before(&wrong);
        let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
        let near = nearest(&wrong, commands.map(|command| command.get_name())).filter(|_| !wrong.contains('/'));
        let is_program = || std::ptr::eq(command, root) && input::find_program(OsStr::new(&wrong)).is_ok();
        if let Some(name) = near {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![name.to_owned()]));
        } else if wrong.contains('/') || is_program() {
            advise(error, &format!("to run a program: blizzard run -- {wrong}"));
        }
    } else if let Some(wrong) = word(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
    {
        let command = command_before(&wrong);
        let is_roots = |arg: &clap::Arg| {
            let long = arg.get_long().map(|long| format!("--{long}"));
            [long, arg.get_short().map(|short| format!("-{short}"))].contains(&Some(wrong.clone()))
        };
        if root.get_arguments().any(is_roots) {
            error.remove(ContextKind::SuggestedArg);
            advise(error, &format!("'{wrong}' stands in front of the command: blizzard {wrong}"));
        } else if let Some(found) = nearest_option(&wrong, command.get_arguments().chain(root.get_arguments())) {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(found));
        } else if error.get(ContextKind::SuggestedArg).is_none()
            && std::ptr::eq(command, root)
            && let Some(found) = root.find_subcommand("run").and_then(|run| nearest_option(&wrong, run.get_arguments()))
        {
            advise(error, &format!("'run {found}' exists: options of a command stand behind it"));
        }
    }
}

/// A word of several letters behind one dash, and the option that it would be with two: `-nodes`.
fn one_dash(args: &[OsString], root: &clap::Command) -> Option<(String, String)> {
    own_options(args, root).into_iter().find_map(|k| {
        let word = args[k].to_str()?.strip_prefix('-')?.split('=').next()?;
        if word.len() < 3 || !word.chars().all(|c| c.is_ascii_alphabetic()) {
            return None;
        }
        let before = args[1..k].iter();
        let command = before.fold(root, |command, word| command.find_subcommand(word).unwrap_or(command));
        let run = root.find_subcommand("run").filter(|_| std::ptr::eq(command, root));
        let all = command.get_arguments().chain(root.get_arguments());
        let all = all.chain(run.into_iter().flat_map(|run| run.get_arguments())).filter(|arg| !arg.is_hide_set());
        let long = nearest(word, all.filter_map(|arg| arg.get_long()))?;
        Some((format!("-{word}"), long.to_owned()))
    })
}

fn advise(error: &mut clap::Error, text: &str) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![text.to_owned().into()]));
}

/// The option that comes nearest to `wrong`, with its dashes.
fn nearest_option<'a>(wrong: &str, all: impl Iterator<Item = &'a clap::Arg>) -> Option<String> {
    let mut all = all.filter(|arg| !arg.is_hide_set());
    match wrong.strip_prefix("--") {
        Some(wrong) => nearest(wrong, all.filter_map(|arg| arg.get_long())).map(|long| format!("--{long}")),
        None => all.find_map(|arg| {
            let short = format!("-{}", arg.get_short()?);
            short.eq_ignore_ascii_case(wrong).then_some(short)
        }),
    }
}

/// The name with the fewest letters to change, add, leave out or swap: a third of the word at most, but one always.
fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = (word.chars().count() / 3).max(1);
    names
        .map(|name| (strsim::osa_distance(word, name), name))
        .filter(|(letters, _)| *letters <= most)
        .min()
        .map(|(_, name)| name)
}

/// What `--color` says. Looked for by hand: messages about the command line have colours, too.
fn colour_of(args: &[OsString]) -> Colour {
    let words = || args.iter().map(|arg| arg.to_string_lossy()).take_while(|word| word != "--");
    let named = |word: &str| <Colour as clap::ValueEnum>::from_str(word, false).ok();
    let joined = words().find_map(|word| named(word.strip_prefix("--color=")?));
    let apart = words().zip(words().skip(1)).find_map(|(word, value)| (word == "--color").then(|| named(&value))?);
    joined.or(apart).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let mut root = definitions("");
        let args = usual_spelling(line.split_whitespace().map(OsString::from).collect(), &root);
        let words = args.clone();
        let parsed = root.try_get_matches_from_mut(args).and_then(|found| Cli::from_arg_matches(&found));
        parsed.map_err(|mut e| {
            suggest(&mut e, &words, &root);
            e
        })
    }

    #[test]
    fn the_definitions_are_consistent() {
        definitions("").debug_assert();
    }

    #[test]
    fn every_help_has_an_example_of_its_command() {
        let mut root = definitions("");
        root.build();
        let render = |command: &mut clap::Command| command.render_long_help().to_string();
        let overview = render(&mut root);
        let mut commands = 0;
        for command in root.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            let row = format!("\n  {} ", command.get_name());
            assert!(overview.contains(&row), "{}: not in the overview: {overview}", command.get_name());
            let example = format!("blizzard {}", command.get_name());
            let help = render(command);
            let after = help.split("Example").nth(1).unwrap_or_else(|| panic!("{example}: no example"));
            assert!(after.contains(&example), "{example}: {after}");
            // A narrow terminal would break a longer line, and what is copied from there would be two commands.
            assert!(after.lines().all(|line| line.len() < 80), "{after}");
            commands += 1;
        }
        assert_eq!(commands, 18);
        assert_eq!(overview.matches("  Example: blizzard ").count(), overview::GROUPS.len(), "{overview}");
        assert!(overview.lines().all(|line| line.len() <= 100), "{overview}");
    }

    #[test]
    fn a_program_keeps_its_own_options() {
        for line in [
            "blizzard run -n 4 --stats f -- prog --stats x -np 9 -q",
            "blizzard run -n 4 --stats f prog --stats x -np 9 -q",
            "blizzard -v run -np 4 --stats f prog --stats x -np 9 -q",
        ] {
            let cli = parse(line).unwrap();
            assert!(!cli.quiet);
            let Command::Run(run) = cli.command else { panic!("{line}: not a run") };
            assert_eq!(run.nodes, 4);
            assert_eq!(run.program.command, ["prog", "--stats", "x", "-np", "9", "-q"]);
        }
    }

    #[test]
    fn the_number_of_nodes_has_the_usual_spellings() {
        for option in ["-n4", "-n=4", "-n 4", "-np 4", "-np4", "-np=4", "--np 4", "--np=4", "--nodes=4", "--nodes 4"] {
            for line in [format!("blizzard run {option} -- prog"), format!("blizzard run --stats s {option} prog")] {
                let Command::Run(run) = parse(&line).unwrap().command else { panic!("{line}: not a run") };
                assert_eq!(run.nodes, 4, "{line}");
            }
        }
    }

    #[test]
    fn an_option_that_nobody_knows_is_no_program() {
        for (line, part) in [
            ("blizzard run --nods 4 -- ./prog", "'--nodes'"),
            ("blizzard run --tagoutput ./prog", "'--tag-output'"),
            ("blizzard run -x ./prog", "'-x'"),
            ("blizzard overhead --jsn -- ./prog", "'--json'"),
            ("blizzard learn --stat f ./prog", "'--stats'"),
            ("blizzard run --nodse 4 ./prog", "'--nodes'"),
            ("blizzard run --gbd 0 ./prog", "'--gdb'"),
            ("blizzard run -N 4 ./prog", "'-n'"),
        ] {
            let text = parse(line).expect_err(line).to_string();
            assert!(text.contains("unexpected argument") && text.contains(part), "{line}: {text}");
        }
    }

    #[test]
    fn a_wrong_number_of_nodes_gets_the_right_form() {
        for (line, parts) in [
            ("run -nodes 2 -- ./prog", ["'--nodes', with two dashes", "unexpected argument '-nodes' found"]),
            ("run -nodes 2 ./prog", ["'--nodes', with two dashes", "unexpected argument '-nodes' found"]),
            ("run -nodse=2 ./prog", ["'--nodes', with two dashes", "unexpected argument '-nodse' found"]),
            ("run -stats f ./prog", ["'--stats', with two dashes", "unexpected argument '-stats' found"]),
            ("-nodes 2 ./prog", ["'--nodes', with two dashes", "unexpected argument '-nodes' found"]),
            ("run -nn 2 ./prog", ["did you mean '-n', as in: -n 2 -- PROG", "unexpected argument '-nn' found"]),
            ("run -nx -- ./prog", ["did you mean '-n', as in: -n 2 -- PROG", "unexpected argument '-nx' found"]),
            ("run --version", ["'--version' stands in front of the command", "tip"]),
            ("run -V", ["'-V' stands in front of the command", "tip"]),
            ("run -n ./prog", ["comes first, as in: -n 2 -- ./prog", "'./prog'"]),
            ("run --nodes prog", ["comes first, as in: -n 2 -- prog", "'prog'"]),
            ("run -n -1 -- ./prog", ["'-1' for '--nodes", "1 to 1024"]),
            ("run -n=-1 -- ./prog", ["'-1' for '--nodes", "1 to 1024"]),
        ] {
            let text = parse(&format!("blizzard {line}")).expect_err(line).to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{line}: {text}");
            // One thing is wrong, and it is said once.
            let is_misspelt = text.contains("did you mean");
            assert!(!is_misspelt || !text.contains("invalid value"), "{line}: {text}");
        }
        // What stands behind the program is its own.
        let text = parse("blizzard run -n 0 ./prog -nodes").unwrap_err().to_string();
        assert!(!text.contains("tip"), "{text}");
    }

    #[test]
    fn a_command_that_nobody_knows_has_a_neighbour() {
        for (line, part) in [
            ("rnu", "'run'"),
            ("nwe", "'new'"),
            ("mna", "'man'"),
            ("verfy", "'verify'"),
            ("doctro -q", "'doctor'"),
            ("cache lean", "'clean'"),
        ] {
            let text = parse(&format!("blizzard {line}")).expect_err(line).to_string();
            assert!(text.contains("similar") && text.contains(part), "{line}: {text}");
        }
        for (line, part) in
            [("./em3d", "blizzard run -- ./em3d"), ("ls", "blizzard run -- ls"), ("-n 2 ./em3d", "'run -n' exists")]
        {
            let text = parse(&format!("blizzard {line}")).expect_err(line).to_string();
            assert!(text.contains(part), "{line}: {text}");
        }
        let text = parse("blizzard em3d").unwrap_err().to_string();
        assert!(!text.contains("tip"), "{text}");
    }

    #[test]
    fn colours_are_known_before_the_rest() {
        let of = |line: &str| colour_of(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of("blizzard --color=never run"), Colour::Never);
        assert_eq!(of("blizzard run --color always --nods"), Colour::Always);
        assert_eq!(of("blizzard run -- prog --color always"), Colour::Auto);
    }

    #[test]
    fn misuse_is_refused_with_the_limits() {
        for (line, part) in [
            ("blizzard", "Usage"),
            ("blizzard run", "PROG"),
            ("blizzard run -n 0 -- true", "1 to 1024"),
            ("blizzard run -n 1025 -- true", "1 to 1024"),
            ("blizzard run -n four -- true", "1 to 1024"),
            ("blizzard run -q -v -- true", "cannot be used with"),
            ("blizzard rewrite a -o b --checks some", "all, loads, stores, none"),
            ("blizzard rewrite a -o b --poll never", "backedge, none"),
            ("blizzard config", "--cflags"),
            ("blizzard new", "DIR"),
            ("blizzard frobnicate", "frobnicate"),
        ] {
            let text = parse(line).expect_err(line).to_string();
            assert!(text.contains(part), "{line}: {text}");
        }
    }
}
