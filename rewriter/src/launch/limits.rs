//! Limits of this process that a run would meet, looked at before nodes are started.
//!
//! Input: limits, the number of nodes. Output: an error that names the limit, what is needed, and what helps; or nothing. Source: getrlimit(2).

use crate::base::error::{Error, Result};
use blizzard_contract as contract;
use rustix::process::{Resource, getrlimit};

/// Files that a launcher has open besides those of its nodes, at most.
const OWN_FILES: u64 = 64;
/// Of these, what comes while nodes are started.
const STARTING_FILES: u64 = 16;
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

/// Looks whether nodes can map what they need; else each of them would say the same. `most`: the hard limit, in bytes. Soft ones are raised.
pub fn expect_address_space(most: Option<u64>) -> Result<()> {
    match most {
        Some(most) if most < contract::TAG_TABLE_BYTES => Err(Error::new(format!(
            "no node can start: the limit of address space is {} MiB here, and each node maps more than {} TiB, hardly any of it used",
            most >> 20,
            contract::TAG_TABLE_BYTES >> 40
        ))
        .help("`ulimit -v unlimited`; a shell that refuses it was started with that limit")),
        _ => Ok(()),
    }
}

/// Looks whether this process may open what it needs for so many nodes, whose output it passes on.
pub fn expect_open_files(nodes: u32) -> Result<()> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < files_now() + STARTING_FILES + FILES_PER_NODE * u64::from(nodes) => {
            Err(too_few_files(limit, nodes))
        }
        _ => Ok(()),
    }
}

fn too_few_files(limit: u64, nodes: u32) -> Error {
    let needed = open_files(nodes);
    Error::new(format!("the limit of open files is too low: {limit} here, and {nodes} nodes need {needed}"))
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
        let error = too_few_files(256, 200);
        assert_eq!(error.what, "the limit of open files is too low: 256 here, and 200 nodes need 464");
        assert!(error.help.unwrap().starts_with("`ulimit -n 464`"));
    }
}
