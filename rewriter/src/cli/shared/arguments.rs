//! Arguments that several commands have.
//!
//! Input: words of the command line. Output: values, checked for what a rewrite or a run can do.

use crate::base::options::{AccessMode, Checks, Options, Poll};
use blizzard_contract::{FEW_NODES, MAX_NODES};
use clap::Args;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// What a rewrite does; the same for every command that rewrites.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct RewriteOptions {
    /// Which accesses are checked; nodes that share memory need all [default: all]
    #[arg(long, value_name = "WHICH", value_enum, hide_default_value = true)]
    pub(crate) checks: Option<Checks>,
    /// How an access to shared memory that must wait is stopped [default: tests; for `run` on one node: guard]
    #[arg(long, value_name = "HOW", value_enum, hide_default_value = true)]
    pub(crate) access: Option<AccessMode>,
    /// Where the program looks for messages of other nodes [default: backedge]
    #[arg(long, value_name = "WHERE", value_enum)]
    pub(crate) poll: Option<Poll>,
    /// Count executed checks and polls, exactly; the program runs slower
    #[arg(long)]
    pub(crate) count: bool,
    /// Count how often each basic block runs, for `blizzard overhead`; the program runs slower
    #[arg(long)]
    pub(crate) count_blocks: bool,
    #[command(flatten)]
    pub(crate) passes: PassOptions,
    /// The output has the runtime for more than [`FEW_NODES`] nodes: the number of nodes says so, which each command has its own way to know.
    #[arg(skip)]
    pub(crate) many_nodes: bool,
}

/// Which passes of the optimiser run; all do, unless told otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub(crate) struct PassOptions {
    /// Let no two accesses of a basic block share a check
    #[arg(long, help_heading = "Passes")]
    pub(crate) no_merge: bool,
    /// Keep checks that repeat what has been tested on every way to them
    #[arg(long, help_heading = "Passes")]
    pub(crate) no_across: bool,
    /// Do not widen a check to accesses that surely follow it behind branches
    #[arg(long, help_heading = "Passes")]
    pub(crate) no_ahead: bool,
    /// Keep no register in the red zone; move the stack pointer instead
    #[arg(long, help_heading = "Passes")]
    pub(crate) no_red_zone: bool,
    /// Let no loop test tags once for several iterations
    #[arg(long, help_heading = "Passes")]
    pub(crate) no_strips: bool,
    /// Make no copies without checks of the loops that test tags for several iterations
    #[arg(long, help_heading = "Passes")]
    pub(crate) no_copies: bool,
    /// Put a poll into every loop, even if each iteration already passes another poll
    #[arg(long, help_heading = "Passes")]
    pub(crate) no_poll_placement: bool,
    /// Let every check look at the tag, also of addresses that cannot be shared memory
    #[arg(long, help_heading = "Passes")]
    pub(crate) no_screens: bool,
    /// Let exported functions keep their old addresses; calls from other files then go through a jump there
    #[arg(long, help_heading = "Passes")]
    pub(crate) no_exports: bool,
    /// Let words of data keep the old addresses of functions; calls through them then go through a jump there
    #[arg(long, help_heading = "Passes")]
    pub(crate) no_words: bool,
    /// Let the passes make the first N transformations only, to find the one that matters
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX), help_heading = "Passes")]
    pub(crate) fuel: Option<u64>,
}

impl RewriteOptions {
    /// Whether the user has left to Blizzard what is inserted.
    pub(crate) fn are_default(&self) -> bool {
        let RewriteOptions { checks, access, poll, count, count_blocks, passes, many_nodes: _ } = self;
        let is_named = checks.is_some() || access.is_some() || poll.is_some();
        !is_named && !count && !count_blocks && *passes == PassOptions::default()
    }

    /// The same for so many nodes.
    pub(crate) fn for_nodes(self, nodes: u32) -> RewriteOptions {
        RewriteOptions { many_nodes: nodes as usize > FEW_NODES, ..self }
    }

    pub(crate) fn options(self) -> Options {
        let default = Options::default();
        Options {
            checks: self.checks.unwrap_or(default.checks),
            access: self.access.unwrap_or(default.access),
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
            as_shared: false,
            many_nodes: self.many_nodes,
            fuel: self.passes.fuel,
        }
    }
}

/// The program to launch and its arguments.
#[derive(Debug, Args)]
pub struct ProgramAndArgs {
    /// Program, original or rewritten, and its arguments; a name without a slash is looked up in PATH
    #[arg(value_name = "PROG", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// Accepts a number of nodes that a run can have.
pub(crate) fn node_count(text: &str) -> Result<u32, String> {
    node_count_to(MAX_NODES, text)
}

/// The same where programs have the usual runtime.
pub(crate) fn few_nodes(text: &str) -> Result<u32, String> {
    node_count_to(FEW_NODES, text)
}

fn node_count_to(most: usize, text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(n) if (1..=most as u32).contains(&n) => Ok(n),
        Ok(n) => Err(format!("a run has 1 to {most} nodes, not {n}")),
        Err(_) => Err(format!("not a number of nodes; a run has 1 to {most}")),
    }
}

/// Accepts a whole number of a range.
pub(crate) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match (range.start(), range.end()) {
            (least, &u64::MAX) => format!("a whole number, at least {least}, is needed"),
            (least, most) => format!("a whole number from {least} to {most} is needed"),
        })
    }
}

/// The argument that names a program file.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProgramFile {
    /// The program's file
    #[arg(value_name = "PROG")]
    pub(crate) program: PathBuf,
}
