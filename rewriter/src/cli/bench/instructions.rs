//! `blizzard bench miss --instructions`: how many instructions a miss takes with `--access tests`, at each node that has to do with it.
//!
//! Input: none. Output: a [`InstructionsReport`]: for each protocol and block size a table, and the same as JSON. [`super::lockstep`] counts.
//! **Invariant**: the same runtime and the same rewriter give the same numbers, on any machine and in any run.

use crate::base::error::{Error, Result};
use crate::base::options::Options;
use crate::cli::bench::lockstep::{self, Miss};
use crate::cli::shared::workload::Workload;
use crate::launch::options::{LaunchOptions, PROTOCOLS, RunProtocol};
use crate::write::runtime_blob::Blob;
use blizzard_contract as contract;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// The home, the node that misses, and a third one.
const NODES: usize = 3;
const HOME: usize = 0;
const REQUESTER: usize = 1;
const THIRD: usize = 2;

/// Kinds of misses, in the order of `bench-apps/workload/marked.c`.
const KINDS: [&str; 6] = [
    "read miss",
    "write miss",
    "upgrade",
    "read miss, third node owns the block",
    "write miss, third node owns the block",
    "upgrade, third node has a copy",
];
/// What the program adds to a kind if the access does not miss. Those with which the nodes get going have other numbers.
const HIT: u64 = 64;

/// A larger block, for the first protocol.
const LARGER: u32 = 256;

/// The `--json` object.
#[derive(Debug, Serialize)]
pub struct InstructionsReport {
    /// The subcommand's name.
    bench: &'static str,
    tables: Vec<Table>,
}

/// One protocol with one block size.
#[derive(Debug, Serialize)]
struct Table {
    protocol: &'static str,
    block_bytes: u32,
    misses: Vec<Counts>,
}

/// Instructions of one kind of miss.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Counts {
    name: &'static str,
    requester: u64,
    home: u64,
    third: u64,
    all: u64,
}

/// Runs the program with each protocol and block size.
///
/// # Errors
/// The system does not permit single steps; the program fails.
pub fn count(folder: &Path) -> Result<InstructionsReport> {
    let blob = lockstep::with_traps(Blob::embedded()?)?;
    let program = Workload::Marked.rewrite(folder, "marked", Options::tests(), &blob, false)?;
    let mut least_hits = [u64::MAX; KINDS.len()];
    let table = |(protocol, block_bytes): (RunProtocol, u32)| {
        let name = protocol.0.name();
        let options = LaunchOptions {
            nodes: NODES as u32,
            protocol,
            block_bytes: Some(block_bytes),
            // A node that is stepped answers late.
            peer_timeout_ms: 0,
            stuck_timeout: std::time::Duration::ZERO,
            // Each miss is one of a block that has not been asked for.
            look_ahead: 0,
            ..LaunchOptions::default()
        };
        let stride = OsString::from(format!("stride={block_bytes}"));
        let misses = lockstep::run(&program, &[stride], &options)?;
        Ok(Table { protocol: name, block_bytes, misses: summarise(&misses, &mut least_hits)? })
    };
    let small = PROTOCOLS.into_iter().map(|protocol| (protocol, contract::BLOCK_BYTES as u32));
    let tables = small.chain([(RunProtocol::DEFAULT, LARGER)]);
    Ok(InstructionsReport { bench: "miss", tables: tables.map(table).collect::<Result<_>>()? })
}

/// The number that comes most often. One wait in sixteen is timed, which takes more instructions.
fn usual(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    values.for_each(|value| *times.entry(value).or_default() += 1);
    times.into_iter().max_by_key(|&(value, times)| (times, Reverse(value))).map(|(value, _)| value)
}

/// The usual number of each node for each kind that occurs. `least_hits`: what accesses without a miss have taken at least, with other protocols: with some
/// the next access misses again.
fn summarise(misses: &[Miss], least_hits: &mut [u64; KINDS.len()]) -> Result<Vec<Counts>> {
    let of = |kind: u64, node: usize| {
        let of_kind = misses.iter().filter(|miss| miss.kind == kind);
        usual(of_kind.map(|miss| miss.executed[node]))
    };
    let counted = |(kind, name): (u64, &'static str)| {
        // The same access without a miss: what is left is from behind the test that failed up to the access.
        let hit = &mut least_hits[kind as usize];
        *hit = (*hit).min(of(kind + HIT, REQUESTER)?);
        let requester = of(kind, REQUESTER)?.checked_sub(*hit).filter(|&more| more != 0)?;
        let (home, third) = (of(kind, HOME)?, of(kind, THIRD)?);
        Some(Counts { name, requester, home, third, all: requester + home + third })
    };
    // A protocol need not have all of them: where a reader may store there is no upgrade.
    let all: Vec<Counts> = (0u64..).zip(KINDS).filter_map(counted).collect();
    if all.is_empty() { Err(Error::new("no miss was counted")) } else { Ok(all) }
}

impl InstructionsReport {
    /// As tables.
    pub fn in_words(&self) -> String {
        let mut text =
            String::from("miss: instructions that the nodes execute for one miss, counted by single steps\n");
        for Table { protocol, block_bytes, misses } in &self.tables {
            let title = format!("{protocol}, blocks of {block_bytes} bytes");
            text += &format!("\n{title:<40} {:>10} {:>8} {:>8} {:>8}\n", "requester", "home", "third", "all");
            for Counts { name, requester, home, third, all } in misses {
                text += &format!("{name:<40} {requester:>10} {home:>8} {third:>8} {all:>8}\n");
            }
        }
        text += "\nrequester: from behind the test that failed up to the access. home, third: from the look that finds a message up\n\
                 to the next pause. Waiting is not counted.\n";
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_HITS: [u64; KINDS.len()] = [u64::MAX; KINDS.len()];

    fn miss(kind: u64, executed: [u64; NODES]) -> Miss {
        Miss { kind, executed: executed.to_vec() }
    }

    fn all_kinds() -> Vec<Miss> {
        let one = |kind| [miss(kind, [200, 110, 30]), miss(kind + HIT, [0, 10, 0])];
        (0..KINDS.len() as u64).flat_map(one).collect()
    }

    #[test]
    fn the_usual_number_counts_and_a_hit_is_taken_off() {
        let mut misses = all_kinds();
        misses.extend([miss(0, [200, 110, 30]), miss(0, [200, 190, 30]), miss(128, [9000, 9000, 0])]);
        let counts = summarise(&misses, &mut NO_HITS.clone()).unwrap();
        assert_eq!(counts.len(), KINDS.len());
        assert_eq!(counts[0], Counts { name: "read miss", requester: 100, home: 200, third: 30, all: 330 });
        // An access that misses again is no hit.
        let again = [miss(0, [200, 110, 30]), miss(HIT, [200, 110, 30])];
        assert_eq!(summarise(&again, &mut [70; KINDS.len()]).unwrap()[0].requester, 40);
    }

    /// The guard of the numbers (`tests/guard-misses.txt`) misses a row that ought to be there.
    #[test]
    fn a_kind_that_does_not_occur_is_left_out() {
        let mut misses = all_kinds();
        misses.retain(|miss| miss.kind != 3);
        let names: Vec<_> =
            summarise(&misses, &mut NO_HITS.clone()).unwrap().iter().map(|counts| counts.name).collect();
        assert!(names.len() == KINDS.len() - 1 && !names.contains(&KINDS[3]), "{names:?}");
        assert_eq!(summarise(&[], &mut NO_HITS.clone()).unwrap_err().what, "no miss was counted");
    }
}
