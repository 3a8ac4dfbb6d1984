//! `blizzard cache`: what is in the cache of rewritten programs and libraries, and cleaning it.
//!
//! Input: a cache. Output: a list of its entries, or fewer entries; or one more, for the runtime (`add`).

use crate::base::error::Result;
use crate::cli::shared::arguments::whole;
use crate::cli::shared::print::print;
use crate::store::cache::{Cache, CacheEntry};
use crate::store::closure::Cached;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Look at the cache of rewritten programs and libraries, or clean it
///
/// The cache is $BLIZZARD_CACHE, else $XDG_CACHE_HOME/blizzard, else ~/.cache/blizzard. Files that nobody has used for 30 days are
/// removed. If you start another user's rewritten program, its libraries go into /tmp/blizzard-cache-UID.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard cache list\n  \
    blizzard cache clean --unused-days 7    # what nobody has used for a week\n  \
    blizzard cache clean                    # everything: it is made again")]
pub struct CacheCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the rewritten files: bytes, days since the last use, path
    #[command(after_help = "Example:\n  blizzard cache list")]
    List,
    /// Remove rewritten files; running programs keep what they have loaded
    #[command(after_help = "Example:\n  blizzard cache clean --unused-days 7")]
    Clean {
        /// Keep what has been used within this many days
        #[arg(long, value_name = "DAYS", value_parser = whole::<u32>(0..=u32::MAX.into()))]
        unused_days: Option<u32>,
    },
    /// Rewrite libraries into a cache: how rewritten programs get libraries that they open at run time
    #[command(hide = true)]
    Add {
        #[arg(long)]
        root: PathBuf,
        #[arg(long)]
        key: String,
        /// Where that cache cannot be written to, use one of the user's own
        #[arg(long)]
        or_own: bool,
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

impl CacheCommand {
    /// Does it.
    pub fn execute(self) -> Result<ExitCode> {
        match self.action {
            Action::List => list(&Cache::of_user()?)?,
            Action::Clean { unused_days } => {
                let older = Duration::from_secs(u64::from(unused_days.unwrap_or(0)) * 24 * 60 * 60);
                let removed = Cache::of_user()?.clean(older)?;
                print(&format!("removed {}\n", total(&removed)))?;
            }
            Action::Add { root, key, or_own, files } => {
                let cache = Cache::at(root);
                let cache = if or_own { cache.or_own()? } else { cache };
                let cached = Cached::of_key(cache, &key)?;
                for file in files {
                    cached.add(&file)?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn total(entries: &[CacheEntry]) -> String {
    let bytes: u64 = entries.iter().map(|e| e.bytes).sum();
    let files = entries.len();
    format!("{files} {} ({:.1} MB)", if files == 1 { "file" } else { "files" }, bytes as f64 / 1e6)
}

fn list(cache: &Cache) -> Result<()> {
    let mut entries = cache.entries()?;
    entries.sort_by(|a, b| (a.path.file_name(), &a.path).cmp(&(b.path.file_name(), &b.path)));
    let mut text = String::new();
    for e in &entries {
        let days = e.unused.as_secs() / (24 * 60 * 60);
        text += &format!("{:>12} {:>4}d  {}\n", e.bytes, days, e.path.display());
    }
    text += &format!("{} in {}\n", total(&entries), cache.root().display());
    print(&text)
}
