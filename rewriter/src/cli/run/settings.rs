//! Options of every run, on one host or on several: how shared memory works.
//!
//! Input: words of the command line. Output: [`LaunchOptions`].

use crate::cli::shared::arguments::whole;
use crate::launch::options::{HomePolicy, LaunchOptions, RunProtocol, TempestOptions};
use blizzard_contract::{self as contract, BLOCK_BYTES, BLOCK_MAX_BYTES, STACHE_PAGES_MIN};
use clap::Args;

/// How shared memory works.
#[derive(Debug, Args)]
pub(crate) struct MemorySettings {
    /// Coherence protocol of shared memory. Programs choose `update` and `reduce`, which are not for a whole run, with `bz_alloc_with`
    #[arg(long, value_name = "PROTOCOL", default_value = "stache")]
    protocol: RunProtocol,
    /// End the run when a node does not answer for so many seconds (stopped, or computing without polls); 0: never
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = peer_timeout)]
    peer_timeout: u32,
    /// Keep copies of at most PAGES pages of other nodes, at least 16; old ones make room for new ones [default: no bound]
    #[arg(long, value_name = "PAGES", value_parser = stache_pages)]
    stache_pages: Option<u32>,
    /// GiB of shared memory that the program can allocate. Only what is used costs memory. One allocation may have a third of it: 19 GiB of 64. The rest is for
    /// allocations on a node of their choice (half of it), and for those with other attributes than the run's: 128 MiB for each kind [default: 64, or a power of two of at least four times the machine's memory, if that is more, up to 512]
    #[arg(long, value_name = "GIB", value_parser = whole::<u64>(1..=contract::SEGMENT_MAX_BYTES >> 30))]
    segment_gib: Option<u64>,
    /// Bytes of shared memory that change hands together: 64, 128, 256, 512, 1024, 2048 or 4096 [default: 64, on several hosts 1024]
    #[arg(long, value_name = "BYTES", value_parser = block_bytes)]
    block_size: Option<u32>,
    /// Which node keeps a page of shared memory that was allocated without a home
    #[arg(long, value_name = "POLICY", default_value = "round-robin")]
    homes: HomePolicy,
    /// Most blocks that a node asks for ahead, when its misses repeat an earlier order; 0: it asks only for what it misses
    #[arg(long, value_name = "BLOCKS", default_value_t = contract::LOOK_AHEAD,
        value_parser = whole::<u32>(0..=contract::LOOK_AHEAD.into()))]
    look_ahead: u32,
    /// tempest.h: compare each tag change with table 2 of the specification, and count those that it does not allow
    #[arg(long)]
    tempest_debug: bool,
    /// tempest.h: most bytes of messages that one node buffers for receivers that do not take them
    #[arg(long, value_name = "BYTES", value_parser = whole::<u64>(0..=u64::MAX), default_value_t = contract::TEMPEST_BUFFER_DEFAULT_BYTES)]
    tempest_buffer: u64,
    /// tempest.h: most user-managed pages of one node
    #[arg(long, value_name = "PAGES", value_parser = whole::<u64>(0..=u64::MAX), default_value_t = contract::USER_BYTES / contract::tempest::PAGE_BYTES)]
    tempest_pages: u64,
    /// tempest.h: bulk data is never copied by one process out of another, as where the kernel forbids it
    #[arg(long)]
    tempest_no_direct_bulk: bool,
}

impl MemorySettings {
    /// What a run of so many nodes is to be like.
    pub(crate) fn launch_options(&self, nodes: u32) -> LaunchOptions {
        LaunchOptions {
            nodes,
            segment_bytes: self.segment_gib.map_or_else(usual_segment_bytes, |gib| gib << 30),
            protocol: self.protocol,
            peer_timeout_ms: self.peer_timeout * 1000,
            stache_pages: self.stache_pages.unwrap_or(0),
            block_bytes: self.block_size,
            homes: self.homes,
            look_ahead: self.look_ahead,
            tempest: TempestOptions {
                debug: self.tempest_debug,
                buffer_bytes: self.tempest_buffer,
                pages: self.tempest_pages,
                direct_bulk: !self.tempest_no_direct_bulk,
            },
            ..LaunchOptions::default()
        }
    }
}

/// That of this machine.
fn usual_segment_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    contract::usual_segment_bytes((machine.totalram + machine.totalswap).saturating_mul(machine.mem_unit.into()))
}

/// Longest time that a node may be asked to wait for another one: ten days.
const PEER_TIMEOUT_MAX_SECONDS: u32 = 864_000;

fn peer_timeout(text: &str) -> std::result::Result<u32, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds <= PEER_TIMEOUT_MAX_SECONDS);
    seconds.ok_or_else(|| format!("a number of seconds from 0 (never) to {PEER_TIMEOUT_MAX_SECONDS} is needed"))
}

fn stache_pages(text: &str) -> std::result::Result<u32, String> {
    let pages = text.parse().ok().filter(|pages| *pages >= STACHE_PAGES_MIN);
    pages.ok_or_else(|| format!("a number of pages of 4 KiB, at least {STACHE_PAGES_MIN}, is needed"))
}

/// A block size as the options give it.
///
/// # Errors
/// It is none.
pub fn block_bytes(text: &str) -> std::result::Result<u32, String> {
    let fits = |bytes: &u32| bytes.is_power_of_two() && (BLOCK_BYTES..=BLOCK_MAX_BYTES).contains(&u64::from(*bytes));
    let bytes = text.parse().ok().filter(fits);
    bytes.ok_or_else(|| format!("a power of two from {BLOCK_BYTES} to {BLOCK_MAX_BYTES} is needed"))
}
