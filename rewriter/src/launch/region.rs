//! The shared region of one run: a memfd that every node maps, laid out by [`RegionHeader`].
//!
//! Input: [`LaunchOptions`]. Output: a [`RegionFile`], and what each node has reported in it.
//!
//! Purpose: create and fill the region before the nodes start, read what they leave in their shared context pages, and
//! wake all of them when the run is to stop. The memory has no name anywhere: it is gone when the last process
//! that holds it is gone, however they end.
//!
//! **Invariant:** apart from `abort`, the doorbells and the states of crashes the launcher writes nothing after the first node has started.

use crate::base::error::{Error, Result};
use crate::launch::options::{LaunchOptions, usual_block_bytes};
use crate::launch::sys::SharedWords;
use blizzard_contract::{
    self as contract, AllocRule, BrokenPromise, COUNTER_COUNT, Counter, CrashRecord, LearntPlace, RegionHeader,
    RulesHead, SEEN_SITES, SharedContext, TAG_INVALID, TrapPlace, WaitRecord, activity, crash_state, full_code,
    node_phase, waits,
};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Resource, getrlimit};
use rustix::thread::futex;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

/// The region of one run.
#[derive(Debug)]
pub struct RegionFile {
    file: File,
    words: SharedWords,
    header: RegionHeader,
}

/// What a node has written into its shared context page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    /// See [`node_phase`].
    pub phase: u32,
    /// The runtime's reason, when `phase` is FAILED.
    pub message: Option<String>,
    /// Indexed by [`blizzard_contract::Counter`].
    pub counters: [u64; COUNTER_COUNT],
    /// Where it hit trap bytes, in no order.
    pub traps: Vec<TrapPlace>,
}

/// What the rules of allocations have matched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matched {
    /// By rule: allocations and bytes. Empty if there are no rules, or if it is not known.
    pub rules: Vec<[u64; 2]>,
    /// Places that have allocated, as the nodes name them; no more than the nodes remember.
    pub sites: Vec<u64>,
}

impl Matched {
    /// Of the nodes of this region and of another one, with the same rules.
    pub fn and(mut self, other: Matched) -> Matched {
        for (sum, rule) in self.rules.iter_mut().zip(other.rules) {
            (sum[0], sum[1]) = (sum[0].wrapping_add(rule[0]), sum[1].wrapping_add(rule[1]));
        }
        self.sites.extend(other.sites);
        self
    }
}

/// What a node waits for, as its context page says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeWait {
    /// See [`blizzard_contract::activity`].
    pub activity: u32,
    /// Somebody has told it something that it has not seen.
    pub is_rung: bool,
    /// See [`blizzard_contract::waits`]; with the object's number and home.
    pub what: u64,
    pub object: u64,
    pub home: u64,
    /// The end of the stack that the runtime works on.
    pub stack_top: u64,
    /// See [`blizzard_contract::WaitRecord`].
    pub number: u64,
    /// Timers of the program that are scheduled.
    pub timers: u64,
    /// The locks that it holds, as [`blizzard_contract::WaitRecord`] names them.
    pub held: Vec<u64>,
    /// Messages sent and received.
    pub messages: [u64; 2],
}

impl NodeWait {
    /// Whether this is the wait that was seen before: a node that waits may serve others meanwhile.
    pub fn goes_on_since(&self, before: &NodeWait) -> bool {
        (self.what, self.number) == (before.what, before.number)
            && (self.what != waits::MEMORY || self.messages == before.messages)
    }
}

impl RegionFile {
    /// Creates the region for a run with these options.
    ///
    /// # Errors
    /// When the kernel gives no memory.
    pub fn create(options: &LaunchOptions) -> Result<Self> {
        Self::create_for(options, processors())
    }

    /// As [`RegionFile::create`], for nodes that are told of this number of processors.
    ///
    /// # Errors
    /// As there.
    pub fn create_for(options: &LaunchOptions, processors: u32) -> Result<Self> {
        let region = Self::with_header(Self::header_for(options, processors, 1))?;
        region.put_rules(&options.rules)?;
        Ok(region)
    }

    /// Writes the rules of allocations, if there are any, into the region of a header that has room for them.
    ///
    /// # Errors
    /// When the kernel gives no memory, or the header is for other rules.
    pub fn put_rules(&self, rules: &[u8]) -> Result<()> {
        let failed = |e| Error::new("cannot tell the nodes the rules of allocations").because(e);
        if rules.len() as u64 != rules_bytes(&self.header) {
            return Err(Error::new(
                "--attr: the libraries of this host lead to other sites of allocations than those of rank 0's",
            )
            .help("`blizzard cache clean` on all hosts, or a program with the libraries linked in"));
        }
        self.file.write_all_at(rules, self.header.rules_off).map_err(failed)
    }

    /// Tells the nodes which of them are on which host. Untold they are on one.
    ///
    /// # Errors
    /// When the kernel gives no memory.
    pub fn put_hosts(&self, hosts: impl IntoIterator<Item = Range<u16>>) -> Result<()> {
        let table: Vec<u8> =
            hosts.into_iter().flat_map(|nodes| nodes.clone().flat_map(move |_| nodes.start.to_ne_bytes())).collect();
        let failed = |e| Error::new("cannot tell the nodes which of them are on which host").because(e);
        self.file.write_all_at(&table, self.header.hosts_off).map_err(failed)
    }

    /// What the rules of allocations have matched, if there are any.
    pub fn matched(&self) -> Matched {
        const RULES_AT: usize = size_of::<RulesHead>() + 8 * SEEN_SITES;
        let mut table = vec![0; rules_bytes(&self.header) as usize];
        // As in `report`.
        let _ = self.file.read_exact_at(&mut table, self.header.rules_off);
        if table.len() < RULES_AT {
            return Matched::default();
        }
        let word = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let count = &table[offset_of!(RulesHead, rules)..][..4];
        let count = u32::from_ne_bytes(count.try_into().expect("four bytes")) as usize;
        let rules = table[RULES_AT..].chunks_exact(size_of::<AllocRule>()).take(count);
        let of_rule =
            |row: &[u8]| [word(row, offset_of!(AllocRule, allocations)), word(row, offset_of!(AllocRule, bytes))];
        let sites = (0..SEEN_SITES).map(|k| word(&table, size_of::<RulesHead>() + 8 * k));
        Matched { rules: rules.map(of_rule).collect(), sites: sites.filter(|site| *site != 0).collect() }
    }

    /// The header of a run with these options on one host or (2 and more) on several, which differs from run to run.
    pub fn header_for(options: &LaunchOptions, processors: u32, hosts: usize) -> RegionHeader {
        let mut header = RegionHeader::new(options.nodes, processors, options.segment_bytes, random_incarnation());
        header.protocol = options.protocol.0.number();
        header.forks = options.creates_nodes().into();
        header.peer_timeout_ms = options.peer_timeout_ms;
        header.stache_pages = options.stache_pages;
        header.block_bytes = options.block_bytes.unwrap_or(usual_block_bytes(hosts));
        header.homes = options.homes.number();
        header.look_ahead = options.look_ahead;
        if !options.learns {
            header.learnt_off = 0;
        }
        options.tempest.write_to(&mut header);
        if options.watches_promises && options.nodes > 1 {
            header.add_promises();
        }
        if !options.rules.is_empty() {
            header.add_rules(options.rules.len() as u64);
        }
        header
    }

    /// Creates the region with this header.
    ///
    /// # Errors
    /// As [`RegionFile::create`].
    pub fn with_header(header: RegionHeader) -> Result<Self> {
        let failed = |e: &dyn std::fmt::Display| {
            Error::new("cannot create the memory that the nodes share")
                .because(e)
                .help("the run needs about 5 MB of shared memory plus 150 kB for each node")
        };
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < header.total_bytes) {
            return Err(failed(&"files may not become that large: see `ulimit -f`"));
        }
        let file = File::from(rustix::fs::memfd_create("blizzard", MemfdFlags::CLOEXEC).map_err(|e| failed(&e))?);
        let fill = vec![TAG_INVALID; header.fill_bytes as usize];
        file.set_len(header.total_bytes)
            .and_then(|()| file.write_all_at(&fill, header.fill_off))
            .and_then(|()| file.write_all_at(&header.bytes(), 0))
            .map_err(|e| failed(&e))?;
        let words = SharedWords::map(&file).map_err(|e| failed(&e))?;
        Ok(RegionFile { file, words, header })
    }

    /// The region that another process of this host has made, and holds under that number.
    ///
    /// # Errors
    /// It cannot be opened: the processes are of different users, or the process has gone.
    pub fn of_process(process: u32, descriptor: RawFd) -> Result<Self> {
        let place = format!("/proc/{process}/fd/{descriptor}");
        let failed =
            |e: &dyn std::fmt::Display| Error::new(format!("cannot open what the nodes share, {place}")).because(e);
        let file = File::options().read(true).write(true).open(&place).map_err(|e| failed(&e))?;
        let mut bytes = RegionHeader::new(1, 1, 0, 0).bytes();
        file.read_exact_at(&mut bytes, 0).map_err(|e| failed(&e))?;
        let header = RegionHeader::from_bytes(bytes);
        let words = SharedWords::map(&file).map_err(|e| failed(&e))?;
        Ok(RegionFile { file, words, header })
    }

    /// The descriptor that the nodes inherit.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// As [`RegionFile::fd`], borrowed.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// What node `node` has left in its context page.
    pub fn report(&self, node: u32) -> NodeReport {
        let mut page = [0u8; size_of::<SharedContext>()];
        // A read inside a memfd of ours cannot fail; were it to, the page reads as "not started".
        let _ = self.file.read_exact_at(&mut page, self.context_off(node));
        let u32_at = |at: usize| u32::from_ne_bytes(page[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_ne_bytes(page[at..at + 8].try_into().expect("eight bytes"));
        let text = &page[offset_of!(SharedContext, message)..offset_of!(SharedContext, counters)];
        let text = String::from_utf8_lossy(text.split(|&b| b == 0).next().unwrap_or_default());
        let phase = u32_at(offset_of!(SharedContext, phase));
        NodeReport {
            phase,
            message: (phase == node_phase::FAILED && !text.trim().is_empty()).then(|| text.trim().to_owned()),
            counters: std::array::from_fn(|k| u64_at(offset_of!(SharedContext, counters) + 8 * k)),
            traps: (0..contract::TRAP_PLACES)
                .map(|k| offset_of!(SharedContext, traps) + k * size_of::<TrapPlace>())
                .map(|at| TrapPlace { name: u64_at(at), new: u32_at(at + 8), hits: u32_at(at + 12) })
                .filter(|place| place.name != 0)
                .collect(),
        }
    }

    /// What node `node` waits for.
    pub fn waiting(&self, node: u32) -> NodeWait {
        let mut page = [0u8; size_of::<SharedContext>()];
        // As in `report`: a page of zeros is one of a node that runs.
        let _ = self.file.read_exact_at(&mut page, self.context_off(node));
        let u32_at = |at: usize| u32::from_ne_bytes(page[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_ne_bytes(page[at..at + 8].try_into().expect("eight bytes"));
        let of_wait = |at: usize| u64_at(offset_of!(SharedContext, wait) + at);
        let counter = |counter: Counter| u64_at(offset_of!(SharedContext, counters) + 8 * counter as usize);
        NodeWait {
            activity: u32_at(offset_of!(SharedContext, activity)),
            is_rung: u32_at(offset_of!(SharedContext, poll)) != 0,
            what: of_wait(offset_of!(WaitRecord, what)),
            object: of_wait(offset_of!(WaitRecord, object)),
            home: of_wait(offset_of!(WaitRecord, home)),
            stack_top: of_wait(offset_of!(WaitRecord, stack_top)),
            number: of_wait(offset_of!(WaitRecord, number)),
            timers: of_wait(offset_of!(WaitRecord, timers)),
            held: (0..contract::HELD_LOCKS).map(|k| of_wait(offset_of!(WaitRecord, held) + 8 * k)).collect(),
            messages: [counter(Counter::MessagesSent), counter(Counter::MessagesReceived)],
        }
    }

    /// These nodes wait before they die by a signal, until [`RegionFile::let_go`].
    pub fn await_crashes(&self, nodes: Range<u32>) {
        nodes.for_each(|node| self.crash_state(node).store(crash_state::AWAITED, Ordering::Relaxed));
    }

    /// How node `node` dies, if it waits with that.
    pub fn crash(&self, node: u32) -> Option<CrashRecord> {
        if self.crash_state(node).load(Ordering::Acquire) != crash_state::TOLD {
            return None;
        }
        let mut page = [0u8; size_of::<SharedContext>()];
        self.file.read_exact_at(&mut page, self.context_off(node)).ok()?;
        let u32_at = |at: usize| u32::from_ne_bytes(page[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_ne_bytes(page[at..at + 8].try_into().expect("eight bytes"));
        let of_crash = |at: usize| offset_of!(SharedContext, crash) + at;
        Some(CrashRecord {
            state: crash_state::TOLD,
            signal: u32_at(of_crash(offset_of!(CrashRecord, signal))) as i32,
            code: u32_at(of_crash(offset_of!(CrashRecord, code))) as i32,
            thread: u32_at(of_crash(offset_of!(CrashRecord, thread))),
            address: u64_at(of_crash(offset_of!(CrashRecord, address))),
            registers: std::array::from_fn(|k| u64_at(of_crash(offset_of!(CrashRecord, registers)) + 8 * k)),
        })
    }

    /// The store that node `by` should not have met, if it has ended the run for that.
    pub fn broken_promise(&self, by: u32) -> Option<BrokenPromise> {
        let mut bytes = [0; size_of::<BrokenPromise>()];
        if self.header.promises_off == 0 || self.file.read_exact_at(&mut bytes, self.header.promises_off).is_err() {
            return None;
        }
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let broken = BrokenPromise {
            is_claimed: word(offset_of!(BrokenPromise, is_claimed)),
            by: word(offset_of!(BrokenPromise, by)),
            storer: word(offset_of!(BrokenPromise, storer)),
            place: word(offset_of!(BrokenPromise, place)),
        };
        Some(broken).filter(|broken| broken.is_claimed != 0 && broken.by == u64::from(by))
    }

    /// Where node `node` keeps the records of its arenas, in its own memory.
    pub fn arenas(&self, node: u32) -> Option<u64> {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, self.context_off(node) + offset_of!(SharedContext, arenas) as u64).ok()?;
        Some(u64::from_ne_bytes(word)).filter(|at| *at != 0)
    }

    /// The launcher has seen enough of node `node`.
    pub fn let_go(&self, node: u32) {
        let state = self.crash_state(node);
        state.store(crash_state::READ, Ordering::Release);
        let _ = futex::wake(state, futex::Flags::empty(), i32::MAX as u32);
    }

    fn crash_state(&self, node: u32) -> &AtomicU32 {
        let at = offset_of!(SharedContext, crash) + offset_of!(CrashRecord, state);
        self.words.word(self.context_off(node) + at as u64)
    }

    /// Whether nodes count what they learn.
    pub fn learns(&self) -> bool {
        self.header.learnt_off != 0
    }

    /// What all nodes have learnt, in no order.
    pub fn learnt(&self) -> Vec<LearntPlace> {
        let mut bytes = vec![0; contract::LEARNT_PLACES as usize * size_of::<LearntPlace>()];
        // Nobody asked, or nobody counted; and a read inside a memfd of ours cannot fail.
        if self.header.learnt_off == 0 || self.file.read_exact_at(&mut bytes, self.header.learnt_off).is_err() {
            return Vec::new();
        }
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        let places = bytes.chunks_exact(16).map(|b| LearntPlace { access: word(&b[..8]), faults: word(&b[8..]) });
        places.filter(|place| place.access != 0 && place.faults != 0).collect()
    }

    /// The number of the process that says that it is node `node`.
    pub fn created_pid(&self, node: u32) -> Option<Pid> {
        let word = self.words.word(self.context_off(node) + offset_of!(SharedContext, pid) as u64);
        Pid::from_raw(word.load(Ordering::Relaxed) as i32)
    }

    /// Whether a fault has taken the node into full code, where it computes now.
    pub(crate) fn is_in_full_code(&self, node: u32) -> bool {
        let word = |offset: usize| self.words.word(self.context_off(node) + offset as u64).load(Ordering::Relaxed);
        word(offset_of!(SharedContext, full_code)) != full_code::NOT
            && word(offset_of!(SharedContext, activity)) == activity::RUNNING
    }

    /// Lets the node try plain code again.
    pub(crate) fn ring_for_plain_code(&self, node: u32) {
        let word = |offset: usize| self.words.word(self.context_off(node) + offset as u64);
        word(offset_of!(SharedContext, full_code)).store(full_code::LEAVE, Ordering::Relaxed);
        word(offset_of!(SharedContext, poll)).store(1, Ordering::SeqCst);
    }

    /// Ends the run: sets `abort`, rings every doorbell and wakes whoever sleeps on one.
    pub fn abort(&self) {
        self.words.word(offset_of!(RegionHeader, abort) as u64).store(1, Ordering::SeqCst);
        for node in 0..self.header.nodes {
            let doorbell = self.words.word(self.context_off(node) + offset_of!(SharedContext, poll) as u64);
            doorbell.store(1, Ordering::SeqCst);
            // Nobody may be asleep there; the wake is then without effect.
            let _ = futex::wake(doorbell, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    fn context_off(&self, node: u32) -> u64 {
        assert!(node < self.header.nodes, "no such node");
        self.header.contexts_off + u64::from(node) * size_of::<SharedContext>() as u64
    }
}

/// Bytes of the table of rules in such a region.
pub(super) const fn rules_bytes(header: &RegionHeader) -> u64 {
    if header.rules_off == 0 { 0 } else { header.total_bytes.saturating_sub(header.rules_off) }
}

/// How many processors this process may run on.
pub(super) fn processors() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1))
}

/// A number that differs from run to run, so that a message of another run is recognised.
fn random_incarnation() -> u32 {
    let mut bytes = [0u8; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => u32::from_ne_bytes(bytes),
        // No entropy device in sight: the process number and the clock still tell runs apart.
        _ => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            std::process::id().rotate_left(16) ^ now.subsec_nanos()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(nodes: u32) -> RegionFile {
        RegionFile::create(&LaunchOptions { nodes, segment_bytes: 1 << 30, ..LaunchOptions::default() }).unwrap()
    }

    #[test]
    fn header_fill_and_contexts_are_where_the_contract_says() {
        let region = create(3);
        let h = region.header;
        assert_eq!(region.file.metadata().unwrap().len(), h.total_bytes);
        let mut first = [0u8; 8];
        region.file.read_exact_at(&mut first, 0).unwrap();
        assert_eq!(&first, b"BLZREGNB");
        let mut field = [0u8; 4];
        region.file.read_exact_at(&mut field, offset_of!(RegionHeader, nodes) as u64).unwrap();
        assert_eq!(u32::from_ne_bytes(field), 3);
        let mut edge = [0u8; 1];
        region.file.read_exact_at(&mut edge, h.fill_off).unwrap();
        assert_eq!(edge, [TAG_INVALID]);
        region.file.read_exact_at(&mut edge, h.fill_off + h.fill_bytes - 1).unwrap();
        assert_eq!(edge, [TAG_INVALID]);
        region.file.read_exact_at(&mut edge, h.fill_off - 1).unwrap();
        assert_eq!(edge, [0]);
    }

    #[test]
    fn a_failed_node_is_read_back_with_its_message_and_counters() {
        let region = create(2);
        assert_eq!(region.report(1).phase, node_phase::STARTING);
        let at = region.context_off(1);
        let put = |off: usize, bytes: &[u8]| region.file.write_all_at(bytes, at + off as u64).unwrap();
        put(offset_of!(SharedContext, phase), &node_phase::FAILED.to_ne_bytes());
        put(offset_of!(SharedContext, message), b"out of shared memory\0");
        put(offset_of!(SharedContext, counters) + 8 * 3, &17u64.to_ne_bytes());
        let report = region.report(1);
        assert_eq!(report.message.as_deref(), Some("out of shared memory"));
        assert_eq!(report.counters[3], 17);
        assert_eq!(region.report(0).message, None);
    }

    #[test]
    fn nodes_are_told_the_first_of_their_host() {
        let region = create(5);
        let table = |region: &RegionFile| {
            let mut bytes = [0; 10];
            region.file.read_exact_at(&mut bytes, region.header.hosts_off).unwrap();
            [0, 2, 4, 6, 8].map(|at| u16::from_ne_bytes([bytes[at], bytes[at + 1]]))
        };
        assert_eq!(table(&region), [0; 5]);
        region.put_hosts([0..2, 2..3, 3..5]).unwrap();
        assert_eq!(table(&region), [0, 0, 2, 3, 3]);
    }

    #[test]
    fn abort_rings_every_doorbell() {
        let region = create(2);
        region.abort();
        let mut word = [0u8; 4];
        region.file.read_exact_at(&mut word, offset_of!(RegionHeader, abort) as u64).unwrap();
        assert_eq!(u32::from_ne_bytes(word), 1);
        for node in 0..2 {
            region.file.read_exact_at(&mut word, region.context_off(node)).unwrap();
            assert_eq!(u32::from_ne_bytes(word), 1, "doorbell of node {node}");
        }
    }

    #[test]
    fn incarnations_differ() {
        let all: std::collections::HashSet<u32> = (0..8).map(|_| random_incarnation()).collect();
        assert!(all.len() > 4);
    }
}
