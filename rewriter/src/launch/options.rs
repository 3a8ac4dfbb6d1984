//! How to run a program.
//!
//! Input: what the user asks for. Output: [`LaunchOptions`], and what of them stands in the region's header.

use blizzard_contract as contract;
use blizzard_protocol::list as protocols;
use blizzard_protocol::port::ProtocolId;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// The coherence protocols that a run can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunProtocol(pub ProtocolId);

impl RunProtocol {
    /// The one that a run uses if nobody chooses.
    pub const DEFAULT: RunProtocol = PROTOCOLS[0];
}

/// All of them.
pub const PROTOCOLS: [RunProtocol; protocols::OF_RUNS] = {
    let mut all = [RunProtocol(protocols::RUNS[0]); protocols::OF_RUNS];
    let mut at = 0;
    while at < protocols::OF_RUNS {
        all[at] = RunProtocol(protocols::RUNS[at]);
        at += 1;
    }
    all
};

impl clap::ValueEnum for RunProtocol {
    fn value_variants<'a>() -> &'a [RunProtocol] {
        &PROTOCOLS
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.0.name()).help(self.0.what()))
    }
}

/// Where the pages of `bz_alloc` have their homes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum HomePolicy {
    /// Page by page over all nodes
    RoundRobin,
    /// At the node that uses the page first (not for programs that create their nodes: round-robin)
    FirstTouch,
}

impl HomePolicy {
    /// As it stands in the region's header.
    pub const fn number(self) -> u32 {
        match self {
            HomePolicy::RoundRobin => contract::home_policy::ROUND_ROBIN,
            HomePolicy::FirstTouch => contract::home_policy::FIRST_TOUCH,
        }
    }
}

/// [`LaunchOptions::stuck_timeout`] unless the user says otherwise.
pub const STUCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that change hands together in a run on so many hosts, unless the user says otherwise. On one host a miss costs little, and small blocks keep data apart that
/// different nodes write. Between hosts a message costs as much as copying kilobytes.
pub const fn usual_block_bytes(hosts: usize) -> u32 {
    if hosts > 1 { 1024 } else { contract::BLOCK_BYTES as u32 }
}

/// How to run.
#[derive(Debug, Clone)]
pub struct LaunchOptions {
    /// 1 to [`contract::MAX_NODES`].
    pub nodes: u32,
    /// Bytes of shared memory that can be allocated at most; address space only, nothing is set aside.
    pub segment_bytes: u64,
    /// How the nodes' copies are kept coherent.
    pub protocol: RunProtocol,
    /// Milliseconds after which a node that does not answer ends the run; 0: never.
    pub peer_timeout_ms: u32,
    /// How long all nodes must have waited for each other before the run is ended as stuck; zero: for ever.
    pub stuck_timeout: Duration,
    /// Most pages of other nodes that a node has copies of; 0: any number.
    pub stache_pages: u32,
    /// Bytes that change hands together: a power of two from [`contract::BLOCK_BYTES`] to [`contract::BLOCK_MAX_BYTES`]; none: [`usual_block_bytes`].
    pub block_bytes: Option<u32>,
    /// Where the pages of `bz_alloc` have their homes.
    pub homes: HomePolicy,
    /// Most blocks that a node asks for at a time before they are missed; 0: none.
    pub look_ahead: u32,
    /// The starter is an agent. Node 0 reads what it writes into a pipe, and gdbserver has no terminal either.
    pub pipes_input: bool,
    /// A node has the streams of its starter, which starts no other.
    pub own_streams: bool,
    /// Start each line of output with `[node N] `.
    pub tag_output: bool,
    /// Start node 0 only: the program creates the others. Their output is node 0's.
    pub forks: bool,
    /// What the program sees as its own name; its path if not given.
    pub arg0: Option<OsString>,
    /// The file that the program is told it is; the one that runs if not given.
    pub original: Option<PathBuf>,
    /// Guarded code tells which of its accesses fault.
    pub learns: bool,
    /// What starts one of the nodes.
    pub debugger: Option<Debugger>,
    /// The kernel may write core files.
    pub cores: bool,
    /// Accesses against the promise of their memory's protocol end the run.
    pub watches_promises: bool,
    /// For programs that use `tempest.h`.
    pub tempest: TempestOptions,
    /// Which allocations get other attributes than the program asks for: a table as [`contract::RulesHead`] begins it; nothing if none do.
    pub rules: Arc<Vec<u8>>,
}

/// A program that starts a node: gdb, which has the terminal, or gdbserver.
#[derive(Debug, Clone)]
pub struct Debugger {
    pub node: u32,
    /// Words in front of the program's path.
    pub command: Vec<OsString>,
    /// gdbserver: the program is behind a line, on this port.
    pub port: Option<u16>,
    /// A folder for gdb. It is removed behind the run, however that ends: who debugs may be killed.
    pub folder: Option<Arc<TempDir>>,
}

/// The program that serves a debugger.
pub const GDBSERVER: &str = "gdbserver";

impl Debugger {
    /// gdbserver, which is that `program`, for a debugger at this port.
    pub fn server(node: u32, port: u16, program: OsString) -> Debugger {
        let command = vec![program, "--no-startup-with-shell".into(), "--once".into()];
        Debugger { node, command, port: Some(port), folder: None }
    }
}

/// Settings of `tempest.h`; see [`contract::RegionHeader`].
#[derive(Debug, Clone)]
pub struct TempestOptions {
    /// Compare tag changes with table 2 of the specification.
    pub debug: bool,
    /// Most bytes of the program's messages that one node buffers for receivers that do not take them.
    pub buffer_bytes: u64,
    /// Most user-managed pages of one node.
    pub pages: u64,
    /// Bulk data may be copied from one process to another directly.
    pub direct_bulk: bool,
}

impl Default for TempestOptions {
    fn default() -> Self {
        TempestOptions {
            debug: false,
            buffer_bytes: contract::TEMPEST_BUFFER_DEFAULT_BYTES,
            pages: contract::USER_BYTES / contract::tempest::PAGE_BYTES,
            direct_bulk: true,
        }
    }
}

impl TempestOptions {
    pub(super) fn write_to(&self, header: &mut contract::RegionHeader) {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        header.tempest_flags = flag(self.debug, contract::tempest_flags::DEBUG)
            | flag(!self.direct_bulk, contract::tempest_flags::NO_DIRECT_BULK);
        header.tempest_buffer_bytes = self.buffer_bytes;
        header.tempest_pages = self.pages;
    }
}

impl Default for LaunchOptions {
    fn default() -> Self {
        LaunchOptions {
            nodes: 1,
            segment_bytes: contract::SEGMENT_DEFAULT_BYTES,
            protocol: RunProtocol::DEFAULT,
            peer_timeout_ms: contract::PEER_TIMEOUT_MS,
            stuck_timeout: STUCK_TIMEOUT,
            stache_pages: 0,
            block_bytes: None,
            homes: HomePolicy::RoundRobin,
            look_ahead: contract::LOOK_AHEAD,
            pipes_input: false,
            own_streams: false,
            tag_output: false,
            forks: false,
            arg0: None,
            watches_promises: false,
            tempest: TempestOptions::default(),
            original: None,
            learns: false,
            debugger: None,
            cores: false,
            rules: Arc::default(),
        }
    }
}

impl LaunchOptions {
    /// Whether only node 0 is started. Where there is no other node, nothing is special.
    pub(super) fn creates_nodes(&self) -> bool {
        self.forks && self.nodes > 1
    }

    /// Whether output goes through the launcher; a single untagged node writes to the launcher's own streams.
    pub(super) fn pipes_output(&self) -> bool {
        !self.own_streams && (self.nodes > 1 || self.tag_output)
    }
}
