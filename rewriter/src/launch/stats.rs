//! The statistics file of a run (`--stats`): JSON, one object.
//!
//! Input: an [`RunOutcome`]. Output: the file.
//!
//! ```json
//! { "program": "./em3d", "args": ["--iters", "20"], "nodes": 2, "wall_seconds": 1.25, "exit_status": 0,
//!   "options": { "guard": true, "check_loads": true, "check_stores": true, "polls": true, "counting": false },
//!   "totals": { "read_misses": 7, … },
//!   "trap_places": [ { "file": "em3d", "address": 4660, "function": "f", "hits": 100, "jump": true, "kept": null }, … ],
//!   "allocation_rules": [ { "line": 3, "site": "grid.c:120", "attributes": "block=4096", "allocations": 1, "bytes": 1048576 }, … ],
//!   "hosts": [ { "host": "a", "first_node": 0, "nodes": 1, "messages_sent": 9, "messages_received": 8, "batches_sent": 5, "batches_received": 5 }, … ],
//!   "per_node": [ { "node": 0, "exit_status": 0, "counters": { "read_misses": 3, … } }, … ] }
//! ```
//!
//! `load_checks`, `store_checks` and `polls` are counted by the inserted code itself, exactly, and only in a rewrite with
//! `--count`. `trap_places`: old addresses that lead nowhere but to a trap byte, in the original file's numbers; `jump`: the runtime has written a jump there, and
//! hits are not counted from then on; `kept`: why it has not, though there were a hundred hits (`rt/PROCESS.md`, "Traps"). `hosts`: what has travelled between the
//! hosts of `run --hosts`; messages within a host are not among it. Everything else is counted by the runtime always. Times are in nanoseconds where the name ends in `_ns`.

use crate::base::error::{Error, Result};
use crate::launch::launcher::{HostTraffic, RunOutcome};
use crate::launch::spawn::shell_status;
use crate::read::rewritten::ModuleFlags;
use blizzard_contract::{COUNTER_COUNT, COUNTER_NAMES};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The counters of one node or of all, by name and in the order of [`COUNTER_NAMES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCounters(pub [u64; COUNTER_COUNT]);

impl Serialize for NodeCounters {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_map(COUNTER_NAMES.iter().zip(&self.0))
    }
}

/// What one node did.
#[derive(Debug, Serialize)]
pub struct NodeStats {
    pub node: u32,
    pub exit_status: i32,
    pub counters: NodeCounters,
}

/// Where trap bytes were hit.
#[derive(Debug, Serialize)]
pub struct TrapAt {
    pub file: String,
    /// In the original.
    pub address: u64,
    /// With the distance from its start, if it is not that.
    pub function: String,
    pub hits: u64,
    /// A jump has taken its place in some node.
    pub jump: bool,
    /// Why none has in some node, though it was hit often.
    pub kept: Option<&'static str>,
}

/// What a rule of `--attr` has matched.
#[derive(Debug, Serialize)]
pub struct RuleStats {
    pub line: usize,
    pub site: String,
    pub attributes: String,
    pub allocations: u64,
    /// That the program has asked for.
    pub bytes: u64,
}

/// The whole file.
#[derive(Debug, Serialize)]
pub struct Stats {
    pub program: String,
    pub args: Vec<String>,
    pub nodes: u32,
    pub wall_seconds: f64,
    pub exit_status: i32,
    /// How the program was rewritten; null for a program that was not.
    pub options: Option<ModuleFlags>,
    pub totals: NodeCounters,
    /// Of a run on one host.
    pub trap_places: Vec<TrapAt>,
    /// Of `--attr`.
    pub allocation_rules: Vec<RuleStats>,
    /// Of a run on several hosts.
    pub hosts: Vec<HostTraffic>,
    pub per_node: Vec<NodeStats>,
}

impl Stats {
    /// Collects what `outcome` knows.
    pub fn new(program: &Path, args: &[OsString], options: Option<ModuleFlags>, outcome: &RunOutcome) -> Self {
        let per_node: Vec<NodeStats> = (0u32..)
            .zip(&outcome.nodes)
            .map(|(node, end)| NodeStats {
                node,
                exit_status: shell_status(end.status),
                counters: NodeCounters(end.report.counters),
            })
            .collect();
        let total = |k: usize| per_node.iter().fold(0u64, |sum, node| sum.wrapping_add(node.counters.0[k]));
        Stats {
            program: program.display().to_string(),
            args: args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            nodes: per_node.len() as u32,
            wall_seconds: outcome.wall.as_secs_f64(),
            exit_status: outcome.exit_status,
            options,
            totals: NodeCounters(std::array::from_fn(total)),
            trap_places: Vec::new(),
            allocation_rules: Vec::new(),
            hosts: outcome.traffic.clone(),
            per_node,
        }
    }
}

/// A statistics file to be written after the run; opened before it, so that a bad path is reported at once.
#[derive(Debug)]
pub struct StatsFile {
    path: PathBuf,
    to: Destination,
}

#[derive(Debug)]
enum Destination {
    /// Gets the path when it is complete: what was there before is there until then.
    Temporary(NamedTempFile),
    /// A pipe, a terminal or a device, which no file may take the place of.
    Open(File),
    /// `-`.
    StandardOutput,
}

impl StatsFile {
    /// Prepares to write `path`; `-` is standard output.
    ///
    /// # Errors
    /// When its folder, or what is not a regular file, cannot be written to.
    pub fn create(path: &Path) -> Result<Self> {
        let failed = || Error::new(format!("cannot write the statistics to {}", path.display()));
        let to = |path: PathBuf, to| Ok(StatsFile { path, to });
        if path == Path::new("-") {
            return to("standard output".into(), Destination::StandardOutput);
        }
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(failed().because("it is a directory")),
            Ok(there) if !there.is_file() => {
                let file = OpenOptions::new().write(true).open(path).map_err(|e| failed().because(e))?;
                return to(path.to_owned(), Destination::Open(file));
            }
            _ => {}
        }
        // A link stays one.
        let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let temporary = tempfile::Builder::new()
            .prefix(".blizzard-stats-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(folder)
            .map_err(|e| failed().because(e))?;
        to(file, Destination::Temporary(temporary))
    }

    /// Writes the file and gives it its name.
    ///
    /// # Errors
    /// When the disk is full and the like.
    pub fn write(self, stats: &Stats) -> Result<()> {
        let StatsFile { path, to } = self;
        let failed = |e: &dyn std::fmt::Display| {
            Error::new(format!("cannot write the statistics to {}", path.display())).because(e)
        };
        let text = serde_json::to_string_pretty(stats).map_err(|e| failed(&e))? + "\n";
        match to {
            Destination::StandardOutput => match io::stdout().lock().write_all(text.as_bytes()) {
                Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(failed(&e)),
                _ => {}
            },
            Destination::Open(mut file) => file.write_all(text.as_bytes()).map_err(|e| failed(&e))?,
            Destination::Temporary(mut file) => {
                file.write_all(text.as_bytes()).map_err(|e| failed(&e))?;
                file.persist(&path).map_err(|e| failed(&e.error))?;
            }
        }
        Ok(())
    }
}
