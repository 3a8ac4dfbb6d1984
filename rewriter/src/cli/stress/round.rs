//! The random tester: what a round does, its logs, and the proof that they are sequentially consistent.
//!
//! Purpose: `blizzard stress` runs many short rounds of one program that does nothing but race ([`Round`]); the runtime in it is the one
//! that every program gets, or, in every other round, the one with random delays. The logs of a round ([`log`]) are checked when it is
//! over ([`crate::cli::stress::check`]). Source: gem5's Ruby tester (unique values, false sharing on purpose, random delays).

use crate::cli::stress::promise::{Reduced, WordPromise};
use crate::launch::options::{HomePolicy, PROTOCOLS, RunProtocol};
use blizzard_contract as contract;
use blizzard_protocol::list::{ALL, OPERATION_SHIFT};
use blizzard_protocol::operation::{Combine, Element, Operation};
use blizzard_protocol::port::ProtocolId;
use clap::ValueEnum;
use clap::builder::PossibleValue;
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

/// One of the allocations that hold a round's lines; 0 in a field: the run's own (`bz_alloc_with`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct LineAllocation {
    pub block_bytes: u32,
    /// Homes of its pages, as in [`PIECE_HOMES`].
    pub homes: u32,
    /// The node that all its pages are at home on, if they are on one, modulo the number of nodes.
    pub node: u32,
    /// Its protocol and its operation, as [`ProtocolId::chosen`] has them.
    pub protocol: u32,
}

/// The protocol that rounds are about: each that there is, those for allocations as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StressProtocol(pub ProtocolId);

impl ValueEnum for StressProtocol {
    fn value_variants<'a>() -> &'a [StressProtocol] {
        const LIST: [StressProtocol; ALL.len()] = {
            let mut list = [StressProtocol(ALL[0]); ALL.len()];
            let mut at = 0;
            while at < ALL.len() {
                list[at] = StressProtocol(ALL[at]);
                at += 1;
            }
            list
        };
        &LIST
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.what()))
    }
}

impl LineAllocation {
    /// As the program is told.
    fn word(self) -> u64 {
        u64::from(self.block_bytes)
            | u64::from(self.homes) << 16
            | u64::from(self.node) << 24
            | u64::from(self.protocol) << 32
    }
}

/// What one round does; all of it follows from the run's seed and the round's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Round {
    pub number: u64,
    pub seed: u64,
    /// Lines of 64 bytes that the nodes race for, how many of them are in one page, and how far apart they are there.
    pub lines: u32,
    pub lines_per_page: u32,
    pub distance_bytes: u32,
    /// Per cent of the accesses that write.
    pub writes: u32,
    /// Per cent of the accesses that stay at the line of the access before.
    pub stay: u32,
    /// Now and then the program itself waits, for so many turns of a loop at most.
    pub pause: u32,
    /// Each epoch has the same accesses in the same order, so that nodes ask ahead.
    pub again: bool,
    /// The allocations that the pages belong to by turn, at least one.
    pub pieces: [Option<LineAllocation>; MOST_PIECES],
    pub delays: Option<Delays>,
    #[serde(serialize_with = "as_option")]
    pub protocol: RunProtocol,
    pub block_bytes: u32,
    #[serde(serialize_with = "as_option")]
    pub homes: HomePolicy,
    /// Pages of other nodes that a node may have copies of; fewer than there are, so that copies are replaced all the time.
    pub stache_pages: Option<u32>,
    pub epochs: u32,
    /// Accesses of each node in each epoch.
    pub accesses: u32,
}

/// What all rounds of a run have in common; what is not given takes turns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fixed {
    /// Of the run; one that is for allocations only, of every other allocation.
    pub protocol: Option<StressProtocol>,
    pub block_bytes: Option<u32>,
    pub homes: Option<HomePolicy>,
}

/// The smallest `--stache-pages`.
const FEWEST_PAGES: u32 = contract::STACHE_PAGES_MIN;
/// Those that take turns, as the protocols do, after each two rounds. The lengths of these lists have no common factor: after 140 rounds each combination, with both kinds
/// of runtime, has been.
const HOMES: [HomePolicy; 2] = [HomePolicy::RoundRobin, HomePolicy::FirstTouch];
const BLOCK_BYTES: [u32; 7] = [64, 4096, 128, 2048, 256, 1024, 512];

/// Most allocations of a round.
pub const MOST_PIECES: usize = 4;
/// Homes of an allocation, in the order of `BZ_HOMES_...`.
pub const PIECE_HOMES: [&str; 5] = ["default", "round-robin", "first-touch", "node", "slices"];

/// What `reduce` adds by. Floats only where what a node has added travels at once.
const OPERATIONS: [(Combine, Element); 5] = [
    (Combine::Sum, Element::F64),
    (Combine::Sum, Element::U64),
    (Combine::Min, Element::I64),
    (Combine::Max, Element::U64),
    (Combine::Or, Element::U64),
];

/// A protocol or policy as it is named on the command line.
pub fn option_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

fn as_option<V: ValueEnum + Copy, S: serde::Serializer>(value: &V, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&option_of(*value))
}

const LINE_BYTES: u32 = 64;
/// Of a line.
const WORDS: u32 = 8;
const PAGE_BYTES: u32 = 4096;

/// A well-mixed function of its arguments (the finaliser of Steele's SplitMix64).
fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Round {
    /// Round `number` of the run with `seed` and what it fixes.
    pub fn new(seed: u64, number: u64, fixed: Fixed) -> Round {
        let mut draws = 0;
        let mut pick = |values: &[u32]| {
            draws += 1;
            values[(mix(seed ^ mix(number, draws), number) >> 32) as usize % values.len()]
        };
        let delays = [(2, 100), (10, 2_000), (100, 20_000), (1_000, 200_000)];
        let delays = delays[pick(&[0, 1, 2, 3]) as usize];
        let lines = pick(&[1, 3, 8, 32, 128, 512]);
        // Few lines have different homes, or no third node ever tells a node what the home has not told it yet.
        let lines_per_page = if lines <= 8 { pick(&[1, 1, 4]) } else { pick(&[1, 4, 64]) };
        let turn = |count: usize, every: u64| (number / every) as usize % count;
        let distance_bytes = pick(&[LINE_BYTES, PAGE_BYTES / lines_per_page]);
        let (writes, stay, pause) = (pick(&[5, 20, 50, 80]), pick(&[0, 50, 90]), pick(&[0, 50, 2_000]));
        // Half of the rounds have what every program has: one allocation as the run's options say.
        let count = if pick(&[0, 1]) == 0 { 1 } else { pick(&[1, 2, 3, 4]).min(lines.div_ceil(lines_per_page)) };
        let own = count > 1 || pick(&[0, 1]) == 1;
        let mut sizes = BLOCK_BYTES.to_vec();
        sizes.push(0);
        let protocols: Vec<u32> = std::iter::once(0).chain(ALL.map(ProtocolId::number)).collect();
        let stache_pages = (lines / lines_per_page > 2 * FEWEST_PAGES).then_some(FEWEST_PAGES);
        let own_protocol = fixed.protocol.filter(|p| !p.0.is_sequentially_consistent());
        let pieces = std::array::from_fn(|k| {
            let drawn = LineAllocation {
                block_bytes: pick(&sizes),
                homes: pick(&[0, 1, 2, 3, 4]),
                node: pick(&[0, 1, 2, 3]),
                protocol: pick(&protocols),
            };
            let first_operation = u32::from(stache_pages.is_some());
            let (combine, element) = OPERATIONS[pick(&[first_operation, 1, 2, 3, 4]) as usize];
            let block_bytes = if fixed.block_bytes.is_none() && own { drawn.block_bytes } else { 0 };
            let homes = if fixed.homes.is_none() && own { drawn.homes } else { 0 };
            let protocol = match own_protocol {
                // The others are how nodes tell each other of what they have done with these.
                Some(StressProtocol(protocol)) if k % 2 == 0 => protocol.number(),
                None if fixed.protocol.is_none() && own => drawn.protocol,
                _ => 0,
            };
            let protocol = match (ProtocolId::new(protocol), Operation::new(combine, element)) {
                (Some(id), Some(operation)) if id.has_operations() => protocol | operation.number() << OPERATION_SHIFT,
                _ => protocol,
            };
            let node = if homes == 3 { drawn.node } else { 0 };
            (k < count as usize).then_some(LineAllocation { block_bytes, homes, node, protocol })
        });
        let again = pick(&[0, 1]) == 1;
        Round {
            number,
            seed: mix(seed, number) | 1,
            lines,
            lines_per_page,
            // Side by side, so that one access can take two lines, or in all parts of the page.
            distance_bytes,
            writes,
            stay,
            pause,
            again,
            pieces,
            delays: (number % 2 == 1).then_some(Delays { one_in: delays.0, longest_pauses: delays.1 }),
            protocol: match fixed.protocol {
                Some(StressProtocol(protocol)) if own_protocol.is_none() => RunProtocol(protocol),
                _ => PROTOCOLS[turn(PROTOCOLS.len(), 2)],
            },
            block_bytes: fixed.block_bytes.unwrap_or(BLOCK_BYTES[turn(BLOCK_BYTES.len(), 2)]),
            homes: fixed.homes.unwrap_or(HOMES[turn(HOMES.len(), 2)]),
            stache_pages,
            epochs: 10,
            // Many different rounds first, then long ones.
            accesses: if number < 64 { 2_000 } else { 20_000 },
        }
    }

    /// What is promised of each word that the nodes race for.
    pub fn promises(&self) -> Vec<WordPromise> {
        (0..self.lines * WORDS).map(|word| self.promise(word / WORDS)).collect()
    }

    /// The same of a line.
    fn promise(&self, line: u32) -> WordPromise {
        let count = self.pieces.iter().flatten().count() as u32;
        let (page, in_page) = (line / self.lines_per_page, line % self.lines_per_page);
        let number = page % count;
        let piece = self.pieces[number as usize].unwrap_or_default();
        match ProtocolId::chosen(piece.protocol) {
            Some((_, Some(operation))) => {
                let block_bytes = if piece.block_bytes == 0 { self.block_bytes } else { piece.block_bytes };
                let offset = page / count * PAGE_BYTES + in_page * self.distance_bytes;
                let block = (number << 28) | (offset / block_bytes);
                WordPromise::AtBarriers(Reduced { operation, block, in_pieces: self.stache_pages.is_some() })
            }
            Some((protocol, None)) if protocol.is_for_one_writer() => WordPromise::AtFlushes,
            _ => WordPromise::Sequential,
        }
    }

    /// Whether an allocation has a block size or homes of its own.
    pub fn has_attributes(&self) -> bool {
        self.pieces.iter().flatten().any(|piece| *piece != LineAllocation::default())
    }

    /// Accesses of the whole round on so many nodes.
    pub fn total_accesses(&self, nodes: u32) -> u64 {
        u64::from(self.epochs) * u64::from(self.accesses) * u64::from(nodes)
    }

    /// The options of `blizzard run`, but for where it runs.
    pub fn run_options(&self) -> Vec<OsString> {
        let mut list = vec!["--protocol".to_owned(), option_of(self.protocol)];
        list.extend(["--block-size".to_owned(), self.block_bytes.to_string()]);
        list.extend(["--homes".to_owned(), option_of(self.homes)]);
        list.extend(self.stache_pages.into_iter().flat_map(|pages| ["--stache-pages".to_owned(), pages.to_string()]));
        list.into_iter().map(OsString::from).collect()
    }

    /// The arguments of the program; its logs go to `folder`, or to standard output. `planted` is the number of a bug in a runtime that has such.
    pub fn arguments(&self, folder: Option<&Path>, planted: u32) -> Vec<OsString> {
        let Delays { one_in, longest_pauses } = self.delays.unwrap_or(Delays { one_in: 0, longest_pauses: 0 });
        let numbers = [
            ("lines", u64::from(self.lines)),
            ("per_page", u64::from(self.lines_per_page)),
            ("distance", u64::from(self.distance_bytes)),
            ("epochs", u64::from(self.epochs)),
            ("accesses", u64::from(self.accesses)),
            ("seed", self.seed),
            ("writes", u64::from(self.writes)),
            ("stay", u64::from(self.stay)),
            ("pause", u64::from(self.pause)),
            ("again", u64::from(self.again)),
            ("instruments", contract::INSTRUMENTS),
            ("delays", u64::from(self.delays.is_some())),
            ("one_in", u64::from(one_in)),
            ("longest", u64::from(longest_pauses)),
            ("planted", u64::from(planted)),
        ];
        let mut list: Vec<OsString> = numbers.iter().map(|(name, value)| format!("{name}={value}").into()).collect();
        list.push(format!("pieces={}", self.pieces.iter().flatten().count()).into());
        list.extend((0..).zip(self.pieces.iter().flatten()).map(|(k, p)| format!("piece{k}={}", p.word()).into()));
        list.extend(folder.map(|folder| {
            let mut argument = OsString::from("folder=");
            argument.push(folder);
            argument
        }));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rounds_follow_from_the_seed_and_differ() {
        let round = |seed, number| Round::new(seed, number, Fixed::default());
        assert_eq!(round(7, 3), round(7, 3));
        let rounds: Vec<Round> = (0..200).map(|n| round(7, n)).collect();
        assert_eq!(rounds.iter().map(|r| r.seed).collect::<HashSet<_>>().len(), 200);
        for values in [
            rounds.iter().map(|r| r.lines).collect::<HashSet<_>>().len(),
            rounds.iter().filter_map(|r| r.delays).map(|d| d.one_in).collect::<HashSet<_>>().len() + 2,
        ] {
            assert_eq!(values, 6);
        }
        assert_ne!(round(8, 3).seed, round(7, 3).seed);
    }

    #[test]
    fn each_combination_of_runtime_protocol_block_size_and_homes_has_its_turn() {
        for first in [0, 17] {
            let kind = |n| {
                let r = Round::new(7, n, Fixed::default());
                (r.delays.is_some(), r.protocol.0.number(), r.block_bytes, r.homes.number())
            };
            assert_eq!((first..first + 140).map(kind).collect::<HashSet<_>>().len(), 2 * PROTOCOLS.len() * 7 * 2);
        }
        assert!((0..56).any(|n| Round::new(7, n, Fixed::default()).stache_pages.is_some()));
    }

    #[test]
    fn allocations_have_all_block_sizes_and_homes() {
        let rounds: Vec<Round> = (0..200).map(|n| Round::new(7, n, Fixed::default())).collect();
        let pieces: Vec<LineAllocation> = rounds.iter().flat_map(|r| r.pieces).flatten().collect();
        assert_eq!(pieces.iter().map(|p| p.block_bytes).collect::<HashSet<_>>().len(), BLOCK_BYTES.len() + 1);
        assert_eq!(pieces.iter().map(|p| p.homes).collect::<HashSet<_>>().len(), PIECE_HOMES.len());
        let operations = OPERATIONS.len();
        assert_eq!(pieces.iter().map(|p| p.protocol).collect::<HashSet<_>>().len(), ALL.len() + operations);
        assert_eq!(pieces.iter().filter(|p| p.homes == 3).map(|p| p.node).collect::<HashSet<_>>().len(), 4);
        for count in 1..=MOST_PIECES {
            assert!(rounds.iter().any(|r| r.pieces.iter().flatten().count() == count), "{count}");
        }
        let plain = rounds.iter().filter(|r| !r.has_attributes()).count();
        assert!((50..150).contains(&plain), "{plain}");
        let words =
            |r: &Round| r.arguments(None, 0).iter().filter(|a| a.to_string_lossy().starts_with("piece")).count();
        assert!(rounds.iter().all(|r| words(r) == 1 + r.pieces.iter().flatten().count()));
    }

    /// `update` and `reduce` are no protocols of a run: every other allocation has them, and the rest is how nodes tell each other.
    #[test]
    fn a_protocol_of_allocations_is_that_of_every_other_one() {
        for name in ["update", "reduce"] {
            let protocol = ProtocolId::named(name).map(StressProtocol);
            for number in 0..100 {
                let round = Round::new(7, number, Fixed { protocol, ..Fixed::default() });
                for (k, piece) in round.pieces.iter().flatten().enumerate() {
                    let chosen = ProtocolId::chosen(piece.protocol).map(|(id, _)| id.name());
                    assert_eq!(chosen, (k % 2 == 0).then_some(name), "{round:?}");
                }
                let promises = round.promises();
                assert_eq!(promises.len() as u32, round.lines * WORDS);
                assert_ne!(promises[0], WordPromise::Sequential);
                let floats = |p: &WordPromise| matches!(p, WordPromise::AtBarriers(Reduced { operation, in_pieces: true, .. }) if operation.of == Element::F64);
                assert!(!promises.iter().any(floats), "{round:?}");
            }
        }
    }

    #[test]
    fn what_is_fixed_stays_and_the_rest_is_as_without() {
        let fixed = Fixed {
            protocol: Some(StressProtocol(PROTOCOLS[1].0)),
            block_bytes: Some(512),
            homes: Some(HomePolicy::FirstTouch),
        };
        for number in 0..20 {
            let (free, round) = (Round::new(7, number, Fixed::default()), Round::new(7, number, fixed));
            assert_eq!((round.protocol, round.block_bytes, round.homes), (PROTOCOLS[1], 512, HomePolicy::FirstTouch));
            assert!(!round.has_attributes());
            let Round { protocol, block_bytes, homes, pieces, .. } = free;
            assert_eq!(pieces.iter().flatten().count(), round.pieces.iter().flatten().count());
            assert_eq!(Round { protocol, block_bytes, homes, pieces, ..round }, free);
            let options = round.run_options();
            let text: Vec<&str> = options.iter().filter_map(|o| o.to_str()).collect();
            let wanted = "--protocol mcm --block-size 512 --homes first-touch";
            assert!(text.join(" ").starts_with(wanted), "{text:?}");
        }
    }
}
