//! Long random runs: 8 nodes, 4 blocks of 8 words, deterministic seeds.
//!
//! The nodes do what the runtime does: one outstanding miss each, the access at once when the miss is served, and an access that straddles two
//! blocks acquires the lower one first and holds it. Words of one block are used by all nodes (false sharing). Channels are slowed
//! and hurried at random, afresh in each phase; at the end of a phase everything outstanding is served and compared.
//!
//! The oracle is one array of the last value stored to each word. Every load must return exactly that: since a store waits
//! until no other copy is readable, the order of the stores in time is the coherence order.

use blizzard_protocol::stache::directory::{DirState, POINTERS};
use blizzard_protocol::stache::vocabulary::{CacheState, Msg};

use crate::model::{Access, Config, Machine};
use crate::stache_model::World;
use crate::stache_mutants::{Mutation, Rules};

const NODES: usize = 8;
const BLOCKS: usize = 4;
const WORDS: usize = 8;

type Block = [u64; WORDS];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// An access to one word, or to the last word of `block` and the first word of the next block.
#[derive(Clone, Copy, Debug)]
struct Op {
    access: Access,
    block: usize,
    word: usize,
    straddles: bool,
}

impl Op {
    fn last_block(&self) -> usize {
        self.block + usize::from(self.straddles)
    }
}

/// How often the interesting things happened.
#[derive(Debug, Default)]
struct Counts {
    loads: u64,
    stores: u64,
    misses: u64,
    straddles_held: u64,
    evictions: u64,
    deferred: u64,
    recalls_crossed: u64,
    upgrades_crossed: u64,
    invalidates_of_dropped: u64,
    vectors: u64,
}

struct Simulation {
    config: Config<Rules, BLOCKS>,
    world: World<Block, NODES, BLOCKS>,
    random: Random,
    current: [Option<Op>; NODES],
    /// The lower block of a straddling access whose higher one is being waited for.
    held: [Option<usize>; NODES],
    latest: [Block; BLOCKS],
    stored: u64,
    counts: Counts,
    /// One chance in so many that a message on this channel is delivered when chosen.
    slowness: [[[usize; BLOCKS]; NODES]; NODES],
}

impl Simulation {
    fn new(seed: u64, rules: Rules) -> Self {
        let mut random = Random(seed);
        let config = Config { homes: std::array::from_fn(|_| random.below(NODES)), rules };
        Simulation {
            config,
            world: World::new(&config, [0; WORDS], [u64::MAX; WORDS]),
            random,
            current: [None; NODES],
            held: [None; NODES],
            latest: [[0; WORDS]; BLOCKS],
            stored: 0,
            counts: Counts::default(),
            slowness: [[[1; BLOCKS]; NODES]; NODES],
        }
    }

    /// `steps` steps of programs and messages, then messages alone until all is quiet.
    fn phase(&mut self, steps: usize) {
        let storing = 1 + self.random.below(9);
        let evicting = 2 + self.random.below(40);
        let starting = 1 + self.random.below(20);
        let blocks = 1 + self.random.below(BLOCKS);
        for slowness in self.slowness.iter_mut().flatten().flatten() {
            *slowness = if self.random.one_in(8) { 40 } else { 1 };
        }
        for _ in 0..steps {
            let idle = !self.serve();
            let at = self.random.below(NODES);
            if self.current[at].is_none() && (idle || self.random.one_in(starting)) {
                self.start(at, blocks, storing, evicting);
            }
        }
        self.drain();
        self.compare();
    }

    /// The program of node `at` performs its next operation.
    fn start(&mut self, at: usize, blocks: usize, storing: usize, evicting: usize) {
        let block = self.random.below(blocks);
        if self.random.one_in(evicting) {
            if self.world.can_evict(&self.config, at, block) {
                self.world.evict(&self.config, at, block).expect("eviction");
                self.counts.evictions += 1;
            }
            return;
        }
        let access = if self.random.below(10) < storing { Access::Store } else { Access::Load };
        let straddles = block + 1 < blocks && self.random.one_in(10);
        let word = if straddles { WORDS - 1 } else { self.random.below(WORDS) };
        self.advance(at, Op { access, block, word, straddles });
    }

    /// Performs the access if all its tags allow it, else misses on the first block whose tag does not.
    fn advance(&mut self, at: usize, op: Op) {
        for block in op.block..=op.last_block() {
            if !self.world.allows(at, block, op.access) {
                self.current[at] = Some(op);
                self.held[at] = (block > op.block).then_some(op.block);
                self.counts.straddles_held += u64::from(block > op.block);
                self.counts.misses += 1;
                if self.world.miss(&self.config, at, block, op.access).expect("miss") {
                    panic!("served at once although the tag forbids the access");
                }
                return;
            }
        }
        self.current[at] = None;
        self.held[at] = None;
        for block in op.block..=op.last_block() {
            let word = if block == op.block { op.word } else { 0 };
            let copy = &mut self.world.copies[at][block].data[word];
            match op.access {
                Access::Load => {
                    self.counts.loads += 1;
                    assert_eq!(*copy, self.latest[block][word], "node {at}, block {block}, word {word}");
                }
                Access::Store => {
                    self.counts.stores += 1;
                    self.stored += 1;
                    *copy = self.stored;
                    self.latest[block][word] = self.stored;
                }
            }
        }
    }

    /// Handles a message or replays a deferred event, chosen at random from those that may be handled now. Returns whether
    /// there was any.
    fn serve(&mut self) -> bool {
        let (config, world, held) = (&self.config, &self.world, &self.held);
        let ready = (0..BLOCKS).flat_map(|block| {
            let home = config.homes[block];
            // The home's channel to itself stands for its deferred events.
            let channels = (0..NODES).flat_map(move |peer| [[home, peer, block], [peer, home, block]]);
            channels.filter(move |&[from, to, block]| {
                let waits = if from == to { world.replay[block] } else { !world.channels[from][to][block].is_empty() };
                waits && held[to] != Some(block)
            })
        });
        let count = ready.clone().count();
        if count == 0 {
            return false;
        }
        let Some(channel @ [from, to, block]) = ready.clone().nth(self.random.below(count)) else { return false };
        let waiting = self.waiting_at(to);
        let resumed = if from == to {
            self.world.replay(&self.config, block).expect("replay")
        } else {
            let slowness = self.slowness[from][to][block];
            if !self.random.one_in(slowness) {
                return true;
            }
            self.observe(channel);
            self.world.deliver(&self.config, channel, 0).expect("delivery")
        };
        self.after(to, resumed, waiting);
        true
    }

    fn waiting_at(&self, home: usize) -> usize {
        self.world.deferred[home].blocks().count()
    }

    fn after(&mut self, at: usize, resumed: bool, waiting: usize) {
        self.counts.deferred += u64::from(self.waiting_at(at) > waiting);
        let full = |state: &DirState| matches!(state, DirState::Shared(set) if set.len() > POINTERS);
        self.counts.vectors += self.world.dir.iter().filter(|&entry| full(entry)).count() as u64;
        assert!(self.world.has_one_writer_or_many_readers());
        if resumed {
            let op = self.current[at].take().expect("a miss has an access");
            self.advance(at, op);
        }
    }

    fn observe(&mut self, [from, to, block]: [usize; 3]) {
        let Some(msg) = self.world.channels[from][to][block].oldest() else { return };
        let state = self.world.states[to][block];
        match msg {
            Msg::RecallRead | Msg::RecallWrite if state != CacheState::Writable => self.counts.recalls_crossed += 1,
            Msg::Invalidate if state == CacheState::UpgradePending => self.counts.upgrades_crossed += 1,
            Msg::Invalidate if state != CacheState::ReadOnly => self.counts.invalidates_of_dropped += 1,
            _ => {}
        }
    }

    /// Serves until nothing is outstanding.
    fn drain(&mut self) {
        for slowness in self.slowness.iter_mut().flatten().flatten() {
            *slowness = 1;
        }
        let mut steps = 0;
        while self.serve() {
            steps += 1;
            assert!(steps < 10_000, "does not come to rest: {:?} {:?}", self.current, self.world.dir);
        }
        assert!(self.world.is_quiet() && self.current.iter().all(Option::is_none), "stuck: {:#?}", self.world);
    }

    /// All readable copies, and the owner's or the home's, hold the latest values.
    fn compare(&self) {
        for (block, latest) in self.latest.iter().enumerate() {
            let state = self.world.dir[block];
            let keeper = match state {
                DirState::Exclusive(owner) => owner.index(),
                _ => self.config.homes[block],
            };
            assert!(self.world.allows(keeper, block, Access::Load), "{state:?}");
            for at in (0..NODES).filter(|&at| self.world.allows(at, block, Access::Load)) {
                assert_eq!(&self.world.copies[at][block].data, latest, "node {at}, block {block}");
            }
        }
    }
}

#[test]
fn long_random_runs_return_the_latest_values() {
    for seed in 1..=10 {
        let mut simulation = Simulation::new(seed, Rules::REAL);
        for _ in 0..50 {
            simulation.phase(10_000);
        }
        println!("seed {seed}: {:?}", simulation.counts);
        let Counts {
            loads,
            stores,
            misses,
            straddles_held,
            evictions,
            deferred,
            recalls_crossed,
            upgrades_crossed,
            invalidates_of_dropped,
            vectors,
        } = simulation.counts;
        assert!(loads.min(stores).min(misses) > 10_000);
        assert!(straddles_held.min(evictions).min(deferred).min(vectors) > 500);
        assert!(recalls_crossed.min(upgrades_crossed).min(invalidates_of_dropped) > 20);
    }
}

fn run_with(mutation: Mutation) {
    let mut simulation = Simulation::new(1, Rules::with(mutation));
    for _ in 0..50 {
        simulation.phase(10_000);
    }
}

#[test]
#[should_panic(expected = "assertion `left == right` failed: node")]
fn a_lost_write_back_is_seen() {
    run_with(Mutation::LoseWriteBack);
}

#[test]
#[should_panic(expected = "has_one_writer_or_many_readers")]
fn a_forgotten_sharer_is_seen() {
    run_with(Mutation::ForgetSharer);
}

#[test]
#[should_panic(expected = "stuck")]
fn a_forgotten_replay_is_seen() {
    run_with(Mutation::ForgetReplay);
}
