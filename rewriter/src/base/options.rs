//! What the user asks of a rewrite.
//!
//! Input: the command line, or a word that names options. Output: [`Options`]. **Invariant**: equal options have equal words, and a word leads back to its
//! options: both are parts of names in the cache.

use clap::ValueEnum;

/// Which accesses are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Checks {
    /// Loads and stores.
    All,
    Loads,
    Stores,
    /// Relocate only.
    None,
}

/// How an access to shared memory that must wait is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum AccessMode {
    /// A test in front of each access.
    Tests,
    /// Memory that faults: code has no tests until it touches shared memory.
    Guard,
}

/// Where polls go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Poll {
    /// In each cycle of the code: in loops, and in front of some calls and jumps.
    Backedge,
    None,
}

/// Options of one rewrite; part of the cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    pub checks: Checks,
    pub access: AccessMode,
    pub poll: Poll,
    /// Inserted checks and polls count themselves (exact, slower).
    pub count: bool,
    /// Basic blocks count how often they run; checks and polls stay as they are.
    pub blocks: bool,
    /// Accesses near the same address in a basic block share a check.
    pub merge: bool,
    /// Checks of what has been tested on every way are left out.
    pub across: bool,
    /// Checks are widened for that to what is certainly accessed behind them.
    pub ahead: bool,
    /// Sequences that need a register keep its value in the red zone, where the function keeps nothing there.
    pub red_zone: bool,
    /// Loops test tags once for several iterations.
    pub strips: bool,
    /// Such tests lead into copies of the loops without checks.
    pub copies: bool,
    /// Polls stand only where a cycle of the code needs them.
    pub place_polls: bool,
    /// Checks ask first, by one bit of the address, whether it can be shared memory at all.
    pub screens: bool,
    /// Exported functions that nothing else names are known by their new addresses.
    pub exports: bool,
    /// The same of functions, and labels, that words of data name.
    pub words: bool,
    /// Plain code of guarded code tests each access, as if all were known to touch shared memory.
    pub as_shared: bool,
    /// The output has the runtime for more than 64 nodes.
    pub many_nodes: bool,
    /// Only the first so many transformations of the passes.
    pub fuel: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            checks: Checks::All,
            access: AccessMode::Tests,
            poll: Poll::Backedge,
            count: false,
            blocks: false,
            merge: true,
            across: true,
            ahead: true,
            red_zone: true,
            strips: true,
            copies: true,
            place_polls: true,
            screens: true,
            exports: true,
            words: true,
            as_shared: false,
            many_nodes: false,
            fuel: None,
        }
    }
}

impl Options {
    /// The default ones, with a test in front of each access.
    pub fn tests() -> Options {
        Options { access: AccessMode::Tests, ..Options::default() }
    }

    /// Whether anything is inserted into the code.
    pub fn inserts(&self) -> bool {
        self.checks != Checks::None || self.poll != Poll::None || self.blocks
    }

    /// Those of the plain version of guarded code, and of its code that exists once. A signal may be answered at each of its instructions: it needs no polls.
    pub fn plain_version(&self) -> Option<Options> {
        let plain = Options { checks: Checks::None, poll: Poll::None, ..*self };
        (self.access == AccessMode::Guard).then_some(plain)
    }

    /// The flags, in the order in which they stand in words. Each option that can only be on or off is one.
    fn flags(&mut self) -> [&mut bool; 14] {
        // Without `..`: what is added to the options is added here.
        let Options {
            checks: _,
            access: _,
            poll: _,
            count,
            blocks,
            merge,
            across,
            ahead,
            red_zone,
            strips,
            copies,
            place_polls,
            screens,
            exports,
            words,
            as_shared,
            many_nodes,
            fuel: _,
        } = self;
        [
            count,
            blocks,
            merge,
            across,
            ahead,
            red_zone,
            strips,
            copies,
            place_polls,
            screens,
            exports,
            words,
            as_shared,
            many_nodes,
        ]
    }

    /// The options as one word, for names of files.
    pub fn word(&self) -> String {
        let Options { checks, access, poll, fuel, .. } = *self;
        let fuel = fuel.map_or(String::new(), |n| n.to_string());
        let mut options = *self;
        let flags = options.flags().map(|flag| u8::from(*flag).to_string()).join("-");
        format!("{}-{}-{}-{flags}-{fuel}", name(checks), name(access), name(poll))
    }

    /// The inverse of [`Options::word`].
    pub fn from_word(word: &str) -> Option<Options> {
        let parts: Vec<&str> = word.split('-').collect();
        let [checks, access, poll, flags @ .., fuel] = &parts[..] else { return None };
        let mut options = Options {
            checks: Checks::from_str(checks, false).ok()?,
            access: AccessMode::from_str(access, false).ok()?,
            poll: Poll::from_str(poll, false).ok()?,
            fuel: if fuel.is_empty() { None } else { Some(fuel.parse().ok()?) },
            ..Options::default()
        };
        let of_options = options.flags();
        if flags.len() != of_options.len() {
            return None;
        }
        for (flag, text) in of_options.into_iter().zip(flags) {
            *flag = match *text {
                "0" => false,
                "1" => true,
                _ => return None,
            };
        }
        Some(options)
    }
}

/// A value as the command line names it.
fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned())
}

impl Checks {
    /// Whether loads are checked.
    pub fn loads(self) -> bool {
        matches!(self, Checks::All | Checks::Loads)
    }

    /// Whether stores are checked.
    pub fn stores(self) -> bool {
        matches!(self, Checks::All | Checks::Stores)
    }
}
