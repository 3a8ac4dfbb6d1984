//! How many files this process may open, against what a run of many nodes needs.
//!
//! Input: the limit, the number of nodes. Output: an error that says what is needed and what helps, before any node is started. Source: getrlimit(2).

use crate::base::error::{Error, Result};
use rustix::process::{Resource, getrlimit};

/// Files that a launcher has open besides those of its nodes, at most.
const OWN_FILES: u64 = 64;
/// Of these, what comes while nodes are started.
const STARTING_FILES: u64 = 16;
/// Files that what carries messages between hosts has open; UCX has one for each of its ways.
const CARRIER_FILES: u64 = 24;
/// The same for each other host.
const FILES_PER_HOST: u64 = 2;
/// For each node: its standard output and its standard error.
const FILES_PER_NODE: u64 = 2;

/// Open files that a launcher of so many nodes may need.
pub fn open_files(nodes: u32) -> u64 {
    OWN_FILES + FILES_PER_NODE * u64::from(nodes)
}

/// Nodes that a launcher may have which may open so many files.
pub fn nodes_with(open_files: u64) -> u64 {
    open_files.saturating_sub(OWN_FILES) / FILES_PER_NODE
}

/// Looks whether this process may open what it needs for so many nodes, whose output it passes on, and to carry their messages to so many hosts.
pub fn expect_open_files(nodes: u32, hosts: usize) -> Result<()> {
    let of_carrier = if hosts == 0 { 0 } else { CARRIER_FILES + FILES_PER_HOST * hosts as u64 };
    let least = files_now() + STARTING_FILES + of_carrier + FILES_PER_NODE * u64::from(nodes);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < least => Err(too_few_files(limit, nodes, (open_files(nodes) + of_carrier).max(least))),
        _ => Ok(()),
    }
}

fn too_few_files(limit: u64, nodes: u32, needed: u64) -> Error {
    let who = if nodes == 1 { "a node needs".to_owned() } else { format!("{nodes} nodes need") };
    Error::new(format!("the limit of open files is too low: {limit} here, and {who} {needed}"))
        .help(format!("`ulimit -n {needed}`; a shell that refuses it was started with a lower hard limit"))
}

/// The files that are open in this process.
fn files_now() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(OWN_FILES, |files| files.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_what_is_enough() {
        for nodes in [1, 2, 64, 200, 1024] {
            assert_eq!(nodes_with(open_files(nodes)), u64::from(nodes));
            assert_eq!(nodes_with(open_files(nodes) - 1), u64::from(nodes) - 1);
        }
        assert_eq!(nodes_with(10), 0);
        let error = too_few_files(256, 200, open_files(200));
        assert_eq!(error.what, "the limit of open files is too low: 256 here, and 200 nodes need 464");
        assert!(error.help.unwrap().starts_with("`ulimit -n 464`"));
    }
}
