//! What the user asks of a rewrite.

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

/// Where polls go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Poll {
    /// At the head of every loop.
    Backedge,
    None,
}

/// Options of one rewrite; part of the cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    pub checks: Checks,
    pub poll: Poll,
    /// Inserted checks and polls count themselves (exact, slower).
    pub count: bool,
    /// Basic blocks count how often they run; checks and polls stay as they are.
    pub blocks: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { checks: Checks::All, poll: Poll::Backedge, count: false, blocks: false }
    }
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
