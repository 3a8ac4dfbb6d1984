//! The logs of a round: one file for each node, read one epoch at a time.
//!
//! Input: the files that `bench-apps/workload/stress.c` writes; their form is drawn there. Output: an [`Epoch`] after the other. What nodes of several hosts have printed
//! becomes such files ([`gather`]).
//! **Invariant**: what is read is checked for form before the checker sees it; memory is that of one epoch, however long the files are.

use crate::base::error::{Error, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"BLZSTLOG";
/// Bits of a value that number the access, and the node.
const INDEX_BITS: u32 = 20;
const NODE_BITS: u32 = 6;
/// Most accesses of one node in one epoch.
pub const MAX_ACCESSES: u32 = 1 << INDEX_BITS;

/// A shared word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location(pub u32);

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "word {} of line {}", self.0 % 8, self.0 / 8)
    }
}

/// What an access did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedKind {
    Load,
    Store,
    /// An atomic exchange.
    Swap,
    /// `bz_flush`; of no word.
    Flush,
    /// `bz_check_out` of the word's line, to add to it.
    Open,
    /// A store that adds to what was loaded just before.
    Add,
}

impl LoggedKind {
    /// Whether it gives the word a value of its own.
    pub fn is_write(self) -> bool {
        matches!(self, LoggedKind::Store | LoggedKind::Swap)
    }

    /// Whether values tell what came before it.
    pub fn is_ordered(self) -> bool {
        matches!(self, LoggedKind::Load | LoggedKind::Store | LoggedKind::Swap)
    }
}

/// Which access of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedId {
    pub epoch: u64,
    pub node: u32,
    /// Number of the access within its node's epoch.
    pub index: u32,
}

impl LoggedId {
    /// The write that stored `value`; none for the initial 0.
    pub fn of_value(value: u64) -> Option<LoggedId> {
        (value != 0).then_some(LoggedId {
            epoch: value >> (INDEX_BITS + NODE_BITS),
            node: (value >> INDEX_BITS) as u32 & ((1 << NODE_BITS) - 1),
            index: value as u32 & (MAX_ACCESSES - 1),
        })
    }

    /// The value that this write stores.
    pub fn value(self) -> u64 {
        self.epoch << (INDEX_BITS + NODE_BITS) | u64::from(self.node) << INDEX_BITS | u64::from(self.index)
    }
}

/// One access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedAccess {
    pub location: Location,
    pub kind: LoggedKind,
    /// What a load or an exchange has returned, what is added; else 0.
    pub read: u64,
}

/// All nodes' accesses between two barriers, each node's in program order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    pub number: u64,
    pub nodes: Vec<Vec<LoggedAccess>>,
}

fn file_of(folder: &Path, node: u32) -> PathBuf {
    folder.join(format!("node-{node}.log"))
}

/// Makes the logs of `nodes` nodes in `folder` out of what they have printed, in lines that begin with the node's number.
///
/// # Errors
/// A line is none of a log; a file cannot be read or written.
pub fn gather(printed: impl Read, folder: &Path, nodes: u32) -> Result<()> {
    let failed = |e: std::io::Error| Error::new("cannot gather the logs of a round").because(e);
    let files = (0..nodes).map(|node| Ok(BufWriter::new(File::create(file_of(folder, node))?)));
    let mut files = files.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    for line in BufReader::new(printed).split(b'\n') {
        let line = line.map_err(failed)?;
        let (node, bytes) = printed_line(&line).ok_or_else(|| Error::new("what a node has printed is no log"))?;
        let file = files.get_mut(node).ok_or_else(|| Error::new("a node that is not there has printed a log"))?;
        file.write_all(&bytes).map_err(failed)?;
    }
    files.iter_mut().try_for_each(Write::flush).map_err(failed)
}

/// The node and the bytes of a line like `[node 3] 0a1b`.
fn printed_line(line: &[u8]) -> Option<(usize, Vec<u8>)> {
    let (node, digits) = std::str::from_utf8(line).ok()?.strip_prefix("[node ")?.split_once("] ")?;
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(value(*high)? << 4 | value(*low)?).ok();
    Some((node.parse().ok()?, pairs.iter().map(byte).collect::<Option<_>>()?))
}

/// Reads a round's logs.
#[derive(Debug)]
pub struct Logs {
    files: Vec<(PathBuf, BufReader<File>)>,
    locations: u32,
}

impl Logs {
    /// The logs of `nodes` nodes in `folder`, about `locations` words.
    ///
    /// # Errors
    /// A file is missing.
    pub fn open(folder: &Path, nodes: u32, locations: u32) -> Result<Self> {
        let files = (0..nodes).map(|node| {
            let path = file_of(folder, node);
            match File::open(&path) {
                Ok(file) => Ok((path, BufReader::with_capacity(1 << 18, file))),
                Err(e) => Err(Error::new(format!("cannot read the log {}", path.display())).because(e)),
            }
        });
        Ok(Logs { files: files.collect::<Result<_>>()?, locations })
    }

    /// The next epoch; none at the end of all files.
    ///
    /// # Errors
    /// A log is incomplete or damaged.
    pub fn next_epoch(&mut self) -> Result<Option<Epoch>> {
        let mut epoch: Option<Epoch> = None;
        let mut ended = 0;
        for (path, file) in &mut self.files {
            let damaged = |what: &str| Error::new(format!("the log {} is damaged: {what}", path.display()));
            let Some([magic, number_and_count]) = pair(file).map_err(|e| damaged(&e))? else {
                ended += 1;
                continue;
            };
            let (number, count) = (number_and_count & 0xffff_ffff, (number_and_count >> 32) as u32);
            if magic.to_le_bytes() != *MAGIC || count > MAX_ACCESSES {
                return Err(damaged("no epoch begins where one should"));
            }
            let epoch = epoch.get_or_insert_with(|| Epoch { number, nodes: Vec::new() });
            if epoch.number != number {
                return Err(damaged("its epochs are not those of the other nodes"));
            }
            let mut accesses = Vec::with_capacity(count as usize);
            for _ in 0..count {
                let [what, read] =
                    pair(file).map_err(|e| damaged(&e))?.ok_or_else(|| damaged("an epoch is incomplete"))?;
                let kind = match what >> 32 {
                    0 => LoggedKind::Load,
                    1 => LoggedKind::Store,
                    2 => LoggedKind::Swap,
                    3 => LoggedKind::Flush,
                    4 => LoggedKind::Open,
                    5 => LoggedKind::Add,
                    _ => return Err(damaged("an access of an unknown kind")),
                };
                let location = Location(what as u32);
                if location.0 >= self.locations {
                    return Err(damaged("an access to a word that is not there"));
                }
                accesses.push(LoggedAccess { location, kind, read });
            }
            epoch.nodes.push(accesses);
        }
        match epoch {
            Some(_) if ended != 0 => Err(Error::new("the logs are incomplete: not all nodes have the last epoch")),
            epoch => Ok(epoch),
        }
    }
}

/// Two words, or nothing at the end of the file.
fn pair(file: &mut impl Read) -> std::result::Result<Option<[u64; 2]>, String> {
    let mut bytes = [0u8; 16];
    let mut have = 0;
    while have < bytes.len() {
        match file.read(&mut bytes[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err("it ends in the middle of an access".into()),
            Ok(n) => have += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    Ok(Some([word(0), word(8)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_their_writes() {
        let id = LoggedId { epoch: 3, node: 63, index: MAX_ACCESSES - 1 };
        assert_eq!(LoggedId::of_value(id.value()), Some(id));
        assert_eq!(LoggedId::of_value(0), None);
    }

    fn logs(contents: &[&[u64]]) -> Result<Vec<Epoch>> {
        let folder = tempfile::tempdir().unwrap();
        for (node, words) in contents.iter().enumerate() {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            std::fs::write(folder.path().join(format!("node-{node}.log")), bytes).unwrap();
        }
        let mut logs = Logs::open(folder.path(), contents.len() as u32, 16)?;
        std::iter::from_fn(|| logs.next_epoch().transpose()).collect()
    }

    #[test]
    fn what_nodes_have_printed_becomes_their_logs() {
        let folder = tempfile::tempdir().unwrap();
        gather(&b"[node 1] 00ff\n[node 0] 41\n[node 1] 0a\n"[..], folder.path(), 2).unwrap();
        let log = |node| std::fs::read(file_of(folder.path(), node)).unwrap();
        assert_eq!((log(0), log(1)), (vec![0x41], vec![0, 0xff, 10]));
        for bad in ["00ff", "[node 0] 0", "[node 0] 0x", "[node 2] 00", "[node x] 00"] {
            assert!(gather(bad.as_bytes(), folder.path(), 2).is_err(), "{bad}");
        }
    }

    #[test]
    fn logs_are_read_by_epoch_and_damage_is_an_error() {
        let magic = u64::from_le_bytes(*MAGIC);
        let epoch = |number: u64, count: u64| [magic, number | count << 32];
        let load = [3, 77];
        let store = [5 | 1 << 32, 0];
        let node0 = [epoch(1, 2), load, store, epoch(2, 0)].concat();
        let node1 = [epoch(1, 1), [15 | 2 << 32, 78], epoch(2, 1), load].concat();
        let read = logs(&[&node0, &node1]).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].nodes[0][0], LoggedAccess { location: Location(3), kind: LoggedKind::Load, read: 77 });
        assert_eq!(read[0].nodes[0][1].kind, LoggedKind::Store);
        assert_eq!(read[0].nodes[1], [LoggedAccess { location: Location(15), kind: LoggedKind::Swap, read: 78 }]);
        assert_eq!((read[1].number, read[1].nodes[0].len(), read[1].nodes[1].len()), (2, 0, 1));
        for (damaged, why) in [
            (node0[..7].to_vec(), "middle of an access"),
            (node0[..4].to_vec(), "incomplete"),
            (node0[..6].to_vec(), "not all nodes"),
            ([[1, 1], load].concat(), "no epoch"),
            ([epoch(1, 1), [16, 0]].concat(), "not there"),
            ([epoch(1, 1), [6 << 32, 0]].concat(), "unknown kind"),
            (epoch(9, 0).to_vec(), "not those"),
        ] {
            let error = logs(&[&node1, &damaged]).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
