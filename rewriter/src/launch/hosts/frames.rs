//! What launcher and agents say to each other.
//!
//! Input and output: frames, over pipes: four bytes for the length of what is said and four for that of the bytes that go with it, both little-endian; then JSON; then the
//! bytes. An agent begins with a line of text that says its version, so that builds that differ can say so.
//! **Invariant**: a frame that is longer than any that is sent is refused before memory is set aside for it.

use crate::launch::hosts::bundle::FileEntry;
use crate::launch::hosts::host_list::Host;
use crate::launch::region::Matched;
use crate::launch::watching::stuck::Sight;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};

/// Begins the first line of an agent.
pub const GREETING: &str = "blizzard-agent ";
/// Most bytes of either part of a frame.
pub const MOST_BYTES: usize = 4 << 20;
/// Most bytes of a file or of output in one frame.
pub const PIECE_BYTES: usize = 64 << 10;

/// What a run is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunPlan {
    pub hosts: Vec<Host>,
    /// Which of them the agent is for.
    pub me: usize,
    /// What shows other agents that they belong to the run.
    pub secret: Vec<u8>,
    /// The region's header, but for the processors.
    pub header: Vec<u8>,
    /// What the program sees as its own name, and its arguments.
    pub command: Vec<Vec<u8>>,
    /// The launcher's working folder.
    pub folder: Vec<u8>,
    /// Variables that the agent gets: names and values.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// The program first.
    pub files: Vec<FileEntry>,
    /// Nodes run guarded code.
    pub guard: bool,
    /// Nodes that die leave core files.
    pub cores: bool,
    /// A node that starts under gdbserver, and the port of its host for a debugger.
    pub debugged: Option<(u16, u16)>,
    /// Seconds without a word from the launcher after which the agent ends; 0: never.
    pub timeout_seconds: u32,
}

/// From the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToAgent {
    Plan(Box<RunPlan>),
    /// The next bytes of the rules of allocations, for which the plan's header has room.
    Rules,
    /// The next bytes of a file that the agent needs.
    File {
        index: usize,
        is_last: bool,
    },
    /// Where the agents of all hosts are reached.
    Connect {
        addresses: Vec<Vec<u8>>,
    },
    /// The nodes are to begin.
    Start,
    /// Standard input of node 0; nothing: its end.
    Input,
    /// So many bytes of that output have been written.
    Taken {
        node: u16,
        is_error: bool,
        bytes: usize,
    },
    /// Nobody reads that output any more.
    Closed {
        is_error: bool,
    },
    Signal(i32),
    /// What do the nodes do? `places`: where they wait is wanted, too.
    Look {
        places: bool,
    },
    /// The run has failed elsewhere.
    Abort,
    /// Everything is over.
    End,
    Beat,
}

/// How a node ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    pub node: u16,
    /// As the kernel has it.
    pub status: i32,
    pub phase: u32,
    pub message: Option<String>,
    pub counters: Vec<u64>,
    /// Where it hit trap bytes: name, new address, hits.
    pub traps: Vec<(u64, u32, u32)>,
    /// The run fails because of it.
    pub has_failed: bool,
    /// What was seen of it then.
    pub told: Vec<String>,
    /// Where its core file is, if the user wants one.
    pub core: Option<String>,
}

/// What an agent has carried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    pub batches_sent: u64,
    pub batches_received: u64,
    pub messages_sent: u64,
    pub messages_received: u64,
    /// What came from no host of the run, or was not what a host of the run may say: how many of each kind.
    pub refused: Vec<(String, u64)>,
}

/// What an agent sees of a run that may be stuck: the nodes first, and then what is under way.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct HostSeen {
    pub sight: Sight,
    /// All that nodes here have sent to other hosts has been taken by the carrier.
    pub is_quiet: bool,
    /// By host: messages sent to it, and messages of it that have come. Counts are modulo 2^32.
    pub sent: Vec<u32>,
    pub arrived: Vec<u32>,
}

/// From an agent.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToLauncher {
    /// Files that are not here yet, by their place in the plan.
    Needs {
        files: Vec<usize>,
    },
    /// Where this agent is reached.
    Ready {
        address: Vec<u8>,
    },
    /// All other agents have been heard.
    Connected,
    /// Output of a node; nothing: its end.
    Output {
        node: u16,
        is_error: bool,
    },
    /// The input has been passed on.
    InputTaken,
    Ended(Ended),
    Seen(HostSeen),
    /// Another host cannot be reached any more.
    Lost {
        host: usize,
        why: String,
    },
    /// A node of this host does not answer.
    Silent {
        node: u16,
        why: String,
    },
    /// The agent cannot go on.
    Failed {
        why: String,
        causes: Vec<String>,
        help: Option<String>,
    },
    /// Something that the user should know.
    Note(String),
    /// The agent has ended everything here.
    Bye {
        carried: Carried,
        matched: Matched,
        /// Accesses, and how often they have faulted here.
        learnt: Vec<(u64, u64)>,
    },
    Beat,
}

/// Writes a frame.
///
/// # Errors
/// The pipe's.
pub fn write(to: &mut impl Write, frame: &impl Serialize, bytes: &[u8]) -> io::Result<()> {
    let said = serde_json::to_vec(frame)?;
    let mut all = Vec::with_capacity(8 + said.len() + bytes.len());
    all.extend_from_slice(&(said.len() as u32).to_le_bytes());
    all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    all.extend_from_slice(&said);
    all.extend_from_slice(bytes);
    to.write_all(&all)?;
    to.flush()
}

/// Reads a frame.
///
/// # Errors
/// The pipe's, its end, and what is no frame.
pub fn read<F: DeserializeOwned>(from: &mut impl Read) -> io::Result<(F, Vec<u8>)> {
    let mut lengths = [0; 8];
    from.read_exact(&mut lengths)?;
    let length = |at: usize| u32::from_le_bytes(lengths[at..at + 4].try_into().expect("four bytes")) as usize;
    if length(0) > MOST_BYTES || length(4) > MOST_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidData, "a frame is longer than any that is sent"));
    }
    let mut said = vec![0; length(0)];
    from.read_exact(&mut said)?;
    let mut bytes = vec![0; length(4)];
    from.read_exact(&mut bytes)?;
    Ok((serde_json::from_slice(&said)?, bytes))
}

/// Tells builds apart, also those that carry the same version number.
pub fn version() -> String {
    let number = env!("CARGO_PKG_VERSION");
    match std::fs::read("/proc/self/exe") {
        Ok(bytes) => format!("{number} (build {:08x})", crc32fast::hash(&bytes)),
        Err(_) => number.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_with_their_bytes() {
        let mut pipe = Vec::new();
        write(&mut pipe, &ToAgent::File { index: 3, is_last: true }, b"abc").unwrap();
        write(&mut pipe, &ToAgent::Beat, b"").unwrap();
        let mut from = &pipe[..];
        assert!(matches!(read(&mut from).unwrap(), (ToAgent::File { index: 3, is_last: true }, b) if b == b"abc"));
        assert!(matches!(read(&mut from).unwrap(), (ToAgent::Beat, b) if b.is_empty()));
        assert_eq!(read::<ToAgent>(&mut from).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [&b"Last login: Mon"[..], b"\x02\0\0\0\0\0\0\0{}", b"\x01\0\0\0\0\0\0\x7f{"] {
            assert!(read::<ToAgent>(&mut &bytes[..]).is_err());
        }
    }
}
