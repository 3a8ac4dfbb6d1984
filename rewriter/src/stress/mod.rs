//! The random tester: what a round does, its logs, and the proof that they are sequentially consistent.
//!
//! Purpose: `blizzard stress` runs many short rounds of one program that does nothing but race ([`Round`]); the runtime in it is the one
//! that every program gets, or, in every other round, the one with random delays. The logs of a round ([`log`]) are checked when it is
//! over ([`check`]). Source: gem5's Ruby tester (unique values, false sharing on purpose, random delays).

pub mod check;
pub mod log;

use crate::launch::Protocol;
use blizzard_rt::abi;
use clap::ValueEnum;
use std::ffi::OsString;
use std::path::Path;

/// Random delays at the runtime's message boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Delays {
    /// At one in so many boundaries.
    pub one_in: u32,
    /// In `pause` instructions.
    pub longest_pauses: u32,
}

/// What one round does; all of it follows from the run's seed and the round's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Round {
    pub number: u64,
    pub seed: u64,
    /// Blocks that the nodes race for, and how many of them are in one page.
    pub blocks: u32,
    pub blocks_per_page: u32,
    /// Per cent of the accesses that write.
    pub writes: u32,
    /// Per cent of the accesses that stay at the block of the access before.
    pub stay: u32,
    /// Now and then the program itself waits, for so many turns of a loop at most.
    pub pause: u32,
    pub delays: Option<Delays>,
    #[serde(serialize_with = "as_option")]
    pub protocol: Protocol,
    /// Pages of other nodes that a node may have copies of; fewer than there are, so that copies are replaced all the time.
    pub stache_pages: Option<u32>,
    pub epochs: u32,
    /// Accesses of each node in each epoch.
    pub accesses: u32,
}

/// The smallest `--stache-pages`.
const FEWEST_PAGES: u32 = 16;
/// Those that take turns.
const PROTOCOLS: [Protocol; 2] = [Protocol::Stache, Protocol::Mcm];

/// The protocol as it is named on the command line.
pub fn option_of(protocol: Protocol) -> String {
    protocol.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

fn as_option<S: serde::Serializer>(protocol: &Protocol, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&option_of(*protocol))
}

/// A well-mixed function of its arguments (the finaliser of Steele's SplitMix64).
fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Round {
    /// Round `number` of the run with `seed`; with `protocol`, or with each in turn.
    pub fn new(seed: u64, number: u64, protocol: Option<Protocol>) -> Round {
        let mut draws = 0;
        let mut pick = |values: &[u32]| {
            draws += 1;
            values[(mix(seed ^ mix(number, draws), number) >> 32) as usize % values.len()]
        };
        let delays = [(2, 100), (10, 2_000), (100, 20_000), (1_000, 200_000)];
        let delays = delays[pick(&[0, 1, 2, 3]) as usize];
        let blocks = pick(&[1, 3, 8, 32, 128, 512]);
        // Few blocks have different homes, or no third node ever tells a node what the home has not told it yet.
        let blocks_per_page = if blocks <= 8 { pick(&[1, 1, 4]) } else { pick(&[1, 4, 64]) };
        Round {
            number,
            seed: mix(seed, number) | 1,
            blocks,
            blocks_per_page,
            writes: pick(&[5, 20, 50, 80]),
            stay: pick(&[0, 50, 90]),
            pause: pick(&[0, 50, 2_000]),
            delays: (number % 2 == 1).then_some(Delays { one_in: delays.0, longest_pauses: delays.1 }),
            protocol: protocol.unwrap_or(PROTOCOLS[number as usize / 2 % PROTOCOLS.len()]),
            stache_pages: (blocks / blocks_per_page > 2 * FEWEST_PAGES).then_some(FEWEST_PAGES),
            epochs: 10,
            // Many different rounds first, then long ones.
            accesses: if number < 64 { 2_000 } else { 20_000 },
        }
    }

    /// Words that the nodes race for.
    pub fn locations(&self) -> u32 {
        self.blocks * 8
    }

    /// Accesses of the whole round on so many nodes.
    pub fn total_accesses(&self, nodes: u32) -> u64 {
        u64::from(self.epochs) * u64::from(self.accesses) * u64::from(nodes)
    }

    /// The arguments of the program; its logs go to `folder`. `planted` is the number of a bug in a runtime that has such.
    pub fn arguments(&self, folder: &Path, planted: u32) -> Vec<OsString> {
        let Delays { one_in, longest_pauses } = self.delays.unwrap_or(Delays { one_in: 0, longest_pauses: 0 });
        let numbers = [
            ("blocks", u64::from(self.blocks)),
            ("per_page", u64::from(self.blocks_per_page)),
            ("epochs", u64::from(self.epochs)),
            ("accesses", u64::from(self.accesses)),
            ("seed", self.seed),
            ("writes", u64::from(self.writes)),
            ("stay", u64::from(self.stay)),
            ("pause", u64::from(self.pause)),
            ("instruments", abi::INSTRUMENTS),
            ("delays", u64::from(self.delays.is_some())),
            ("one_in", u64::from(one_in)),
            ("longest", u64::from(longest_pauses)),
            ("planted", u64::from(planted)),
        ];
        let mut list: Vec<OsString> = numbers.iter().map(|(name, value)| format!("{name}={value}").into()).collect();
        let mut folder_argument = OsString::from("folder=");
        folder_argument.push(folder);
        list.push(folder_argument);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rounds_follow_from_the_seed_and_differ() {
        assert_eq!(Round::new(7, 3, None), Round::new(7, 3, None));
        let rounds: Vec<Round> = (0..200).map(|n| Round::new(7, n, None)).collect();
        assert_eq!(rounds.iter().map(|r| r.seed).collect::<HashSet<_>>().len(), 200);
        for values in [
            rounds.iter().map(|r| r.blocks).collect::<HashSet<_>>().len(),
            rounds.iter().filter_map(|r| r.delays).map(|d| d.one_in).collect::<HashSet<_>>().len() + 2,
        ] {
            assert_eq!(values, 6);
        }
        assert_eq!(rounds.iter().filter(|r| r.delays.is_some()).count(), 100);
        assert_eq!(rounds.iter().filter(|r| r.protocol == Protocol::Mcm && r.delays.is_some()).count(), 50);
        assert_ne!(Round::new(8, 3, None).seed, Round::new(7, 3, None).seed);
    }
}
