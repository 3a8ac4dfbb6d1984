//! The shared region: what all nodes of a run and the launcher see.
//!
//! Purpose: map the memfd that the launcher created and give typed access to its parts. Input: the file descriptor and the node
//! number of `crate::node::Boot`. Output: [`Region`], and a [`ContextPage`] for each node. Layout: [`RegionHeader`].
//! **Invariants**: the header is checked against the file's size once and never changes except for `abort` and the two words about
//! created nodes; every offset handed
//! out lies inside the mapping; shared words are only touched atomically, because other processes write them at any time.

use crate::kernel::limits;
use crate::kernel::sys;
use crate::memory::partition::{Attributes, BlockSize, Placement};
use blizzard_contract::{
    self as contract, BrokenPromise, CONTEXT_BYTES, Counter, CrashRecord, LOWER_ARENAS, RegionHeader, SLOT_BYTES,
    SharedContext, WaitRecord,
};
use blizzard_protocol::ids::{NAMED_NODES, NodeId};
use blizzard_protocol::port::ProtocolId;
use core::fmt;
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Why a region was refused.
#[derive(Debug, PartialEq, Eq)]
pub enum RegionRefusal {
    Kernel(&'static str, sys::Errno),
    /// Not written by a launcher of this version.
    Header(&'static str),
}

impl fmt::Display for RegionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionRefusal::Kernel(what, e) => write!(f, "cannot {what} the launcher's shared region: {e}"),
            RegionRefusal::Header(what) => write!(f, "the launcher's shared region is not usable: {what}"),
        }
    }
}

/// A mapping of the whole region.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    base: u64,
    header: RegionHeader,
}

/// What a header must satisfy before anything else of the region is believed.
fn check(header: &RegionHeader, file_bytes: u64) -> Result<(), &'static str> {
    let nodes = u64::from(header.nodes);
    let rings = || {
        let slots = u64::from(header.ring_slots);
        let ring = contract::RING_HEADER_BYTES + slots * SLOT_BYTES;
        (slots.is_power_of_two() && header.ring_bytes == ring).then_some(nodes * nodes * ring)
    };
    let inside = |off: u64, bytes: u64| off.checked_add(bytes).is_some_and(|end| end <= header.total_bytes);
    if header.magic != contract::REGION_MAGIC {
        return Err("it does not begin with the magic number");
    }
    if nodes == 0 || nodes > NAMED_NODES as u64 {
        return Err("the number of nodes is out of range");
    }
    if header.total_bytes > file_bytes {
        return Err("the file is shorter than its header says");
    }
    let Some(ring_bytes) = rings() else { return Err("the size of a ring is wrong") };
    if !header.contexts_off.is_multiple_of(CONTEXT_BYTES) || !inside(header.contexts_off, nodes * CONTEXT_BYTES) {
        return Err("the context pages are misplaced");
    }
    if !header.rings_off.is_multiple_of(64) || !inside(header.rings_off, ring_bytes) {
        return Err("the rings are misplaced");
    }
    if !header.fill_off.is_multiple_of(CONTEXT_BYTES)
        || header.fill_bytes == 0
        || !header.fill_bytes.is_multiple_of(CONTEXT_BYTES)
        || !inside(header.fill_off, header.fill_bytes)
    {
        return Err("the fill area is misplaced");
    }
    if !header.stage_off.is_multiple_of(CONTEXT_BYTES) || !inside(header.stage_off, nodes * contract::STAGE_BYTES) {
        return Err("the staging areas are misplaced");
    }
    let learnt_bytes = contract::LEARNT_PLACES * size_of::<contract::LearntPlace>() as u64;
    if header.learnt_off != 0 && (!header.learnt_off.is_multiple_of(8) || !inside(header.learnt_off, learnt_bytes)) {
        return Err("the places for what is learnt are misplaced");
    }
    let hosts_bytes = nodes * contract::HOST_WORD_BYTES;
    if !header.hosts_off.is_multiple_of(contract::HOST_WORD_BYTES) || !inside(header.hosts_off, hosts_bytes) {
        return Err("the table of hosts is misplaced");
    }
    let least_rules = contract::rules_bytes(&contract::RulesHead::default());
    if header.rules_off != 0 && (!header.rules_off.is_multiple_of(8) || !inside(header.rules_off, least_rules)) {
        return Err("the rules of allocations are misplaced");
    }
    let promises_bytes = contract::promises_bytes(header.nodes, header.segment_bytes);
    if header.promises_off != 0
        && (!header.promises_off.is_multiple_of(CONTEXT_BYTES) || !inside(header.promises_off, promises_bytes))
    {
        return Err("the records of stores are misplaced");
    }
    if !ProtocolId::new(header.protocol).is_some_and(ProtocolId::is_sequentially_consistent) {
        return Err("it names a coherence protocol that this runtime does not have, or not for whole runs");
    }
    if BlockSize::new(header.block_bytes.into()).is_none() {
        return Err("the block size is no power of two from 64 to 4096");
    }
    if header.homes > contract::home_policy::FIRST_TOUCH {
        return Err("it names a home policy that this runtime does not have");
    }
    if header.look_ahead > contract::LOOK_AHEAD {
        return Err("more blocks are to be asked for at a time than can be");
    }
    // One page of tags covers 256 KiB: the fill area is mapped page-wise over the segment's tags.
    let tag_page_covers = CONTEXT_BYTES << contract::BLOCK_SHIFT;
    if header.segment_bytes == 0
        || header.segment_bytes > contract::SEGMENT_MAX_BYTES
        || !header.segment_bytes.is_multiple_of(tag_page_covers)
    {
        return Err("the segment's size is zero, too large or no multiple of 256 KiB");
    }
    Ok(())
}

impl Region {
    /// Maps the region behind `fd` and checks it. The descriptor stays open.
    pub fn map(fd: i32) -> Result<Region, RegionRefusal> {
        let stat = sys::fstat(fd).map_err(|e| RegionRefusal::Kernel("find the size of", e))?;
        let mut bytes = [0u8; size_of::<RegionHeader>()];
        let got = sys::pread(fd, &mut bytes, 0).map_err(|e| RegionRefusal::Kernel("read", e))?;
        if got < bytes.len() {
            return Err(RegionRefusal::Header("it is shorter than its header"));
        }
        // SAFETY: plain integers; any bytes are a value, and the buffer is as long as the structure.
        let header = unsafe { bytes.as_ptr().cast::<RegionHeader>().read_unaligned() };
        check(&header, stat.st_size as u64).map_err(RegionRefusal::Header)?;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        limits::make_room(header.total_bytes, false);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { sys::mmap(0, header.total_bytes, rw, libc::MAP_SHARED, fd, 0) }
            .map_err(|e| RegionRefusal::Kernel("map", e))?;
        if header.promises_off != 0 {
            let bytes = contract::promises_bytes(header.nodes, header.segment_bytes);
            // SAFETY: advice, about a part of the mapping. A core dump would make a page of each hole.
            let _ = unsafe { sys::madvise(base + header.promises_off, bytes, libc::MADV_DONTDUMP) };
        }
        let region = Region { base, header };
        region.check_hosts().map_err(|reason| {
            // SAFETY: mapped above; nobody knows of it.
            let _ = unsafe { sys::munmap(base, header.total_bytes) };
            RegionRefusal::Header(reason)
        })?;
        Ok(region)
    }

    /// Each node is the first one of its host, or is on that of the node before it.
    fn check_hosts(&self) -> Result<(), &'static str> {
        let mut last = 0;
        for node in (0..self.header.nodes).filter_map(NodeId::new) {
            let first = self.host_first(node);
            if first != last && usize::from(first) != node.index() {
                return Err("its table of hosts is none");
            }
            last = first;
        }
        if last != 0 && self.header.forks != 0 { Err("nodes are to be created on several hosts") } else { Ok(()) }
    }

    /// Changes this mapping's copy of the header, before anybody has used it.
    #[cfg(test)]
    pub fn change_header(&mut self, change: impl FnOnce(&mut RegionHeader)) {
        change(&mut self.header);
    }

    pub fn header(&self) -> &RegionHeader {
        &self.header
    }

    /// What allocations have that do not choose.
    pub fn defaults(&self) -> Attributes {
        Attributes {
            protocol: self.protocol(),
            operation: None,
            block: BlockSize::new(self.header.block_bytes.into()).expect("checked when the region was mapped"),
            homes: if self.header.homes == contract::home_policy::FIRST_TOUCH {
                Placement::FirstTouch
            } else {
                Placement::RoundRobin
            },
        }
    }

    /// The coherence protocol of the run.
    pub fn protocol(&self) -> ProtocolId {
        ProtocolId::new(self.header.protocol).expect("checked when the region was mapped")
    }

    /// Address of the places for what is learnt; 0 if nobody asks.
    pub fn learnt(&self) -> u64 {
        if self.header.learnt_off == 0 { 0 } else { self.base + self.header.learnt_off }
    }

    /// Address and bytes of the rules of allocations, if there are any.
    pub fn rules(&self) -> Option<(u64, u64)> {
        let RegionHeader { rules_off, total_bytes, .. } = self.header;
        (rules_off != 0).then(|| (self.base + rules_off, total_bytes - rules_off))
    }

    /// Whether somebody looks at the promises of protocols.
    #[inline]
    pub fn has_promises(&self) -> bool {
        self.header.promises_off != 0
    }

    /// Leaves which promise is broken; false if somebody has done so.
    pub fn break_promise(&self, by: NodeId, storer: NodeId, place: u64) -> bool {
        assert!(self.has_promises());
        let word = |offset: usize| {
            let at = self.base + self.header.promises_off + offset as u64;
            // SAFETY: a field of what lies there, inside the mapping, aligned, and used atomically by everyone.
            unsafe { AtomicU64::from_ptr(at as *mut u64) }
        };
        let is_claimed = word(offset_of!(BrokenPromise, is_claimed));
        if is_claimed.swap(1, Ordering::Relaxed) != 0 {
            return false;
        }
        word(offset_of!(BrokenPromise, by)).store(by.index() as u64, Ordering::Relaxed);
        word(offset_of!(BrokenPromise, storer)).store(storer.index() as u64, Ordering::Relaxed);
        word(offset_of!(BrokenPromise, place)).store(place, Ordering::Relaxed);
        true
    }

    /// What a node has stored last to the word at that distance from the segment's start: stamp and place of a [`contract::StoreRecord`].
    pub fn store_record(&self, node: NodeId, distance: u64) -> [&AtomicU64; 2] {
        let RegionHeader { nodes, segment_bytes, promises_off, .. } = self.header;
        assert!(self.has_promises() && (node.index() as u32) < nodes && distance < segment_bytes);
        let records = node.index() as u64 * contract::promise_records_bytes(segment_bytes);
        let own = distance / contract::PROMISE_WORD_BYTES * size_of::<contract::StoreRecord>() as u64;
        let at = self.base + promises_off + CONTEXT_BYTES + records + own;
        let words = [offset_of!(contract::StoreRecord, stamp), offset_of!(contract::StoreRecord, place)];
        // SAFETY: inside the mapping, aligned, and used atomically by everyone.
        words.map(|word| unsafe { AtomicU64::from_ptr((at + word as u64) as *mut u64) })
    }

    /// Nonzero: the run ends, stop waiting.
    pub fn abort(&self) -> &AtomicU32 {
        self.header_u32(offset_of!(RegionHeader, abort))
    }

    fn header_u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside the mapping, aligned, and used atomically by everyone.
        unsafe { AtomicU32::from_ptr((self.base + offset as u64) as *mut u32) }
    }

    /// How many nodes are homes, in a run whose nodes node 0 creates; 0 until it has said so.
    pub fn fork_homes(&self) -> &AtomicU32 {
        self.header_u32(offset_of!(RegionHeader, fork_homes))
    }

    /// See [`RegionHeader::fork_limits`]; `arena` is below [`LOWER_ARENAS`].
    pub fn fork_limit(&self, arena: usize) -> &AtomicU64 {
        assert!(arena < LOWER_ARENAS);
        let at = self.base + (offset_of!(RegionHeader, fork_limits) + 8 * arena) as u64;
        // SAFETY: as in `header_u32`.
        unsafe { AtomicU64::from_ptr(at as *mut u64) }
    }

    /// Address of the context page of a node of this run.
    pub fn context_address(&self, node: NodeId) -> u64 {
        self.context(node).base
    }

    /// The context page of a node of this run.
    pub fn context(&self, node: NodeId) -> ContextPage {
        assert!((node.index() as u32) < self.header.nodes);
        ContextPage { base: self.base + self.header.contexts_off + node.index() as u64 * CONTEXT_BYTES }
    }

    /// The first node of a node's host.
    pub fn host_first(&self, node: NodeId) -> u16 {
        assert!((node.index() as u32) < self.header.nodes);
        let at = self.base + self.header.hosts_off + node.index() as u64 * contract::HOST_WORD_BYTES;
        // SAFETY: inside the mapping, aligned, and never written once nodes run.
        unsafe { AtomicU16::from_ptr(at as *mut u16) }.load(Ordering::Relaxed)
    }

    /// First byte of the ring from `src` to `dst`.
    pub fn ring(&self, src: NodeId, dst: NodeId) -> *mut u8 {
        let nodes = u64::from(self.header.nodes);
        assert!((src.index() as u64) < nodes && (dst.index() as u64) < nodes);
        let index = src.index() as u64 * nodes + dst.index() as u64;
        (self.base + self.header.rings_off + index * self.header.ring_bytes) as *mut u8
    }
}

impl Region {
    /// First byte of a node's staging area.
    pub fn stage(&self, node: NodeId) -> *mut u8 {
        assert!((node.index() as u32) < self.header.nodes);
        (self.base + self.header.stage_off + node.index() as u64 * contract::STAGE_BYTES) as *mut u8
    }
}

/// One node's shared context page.
#[derive(Clone, Copy, Debug)]
pub struct ContextPage {
    base: u64,
}

impl ContextPage {
    /// The page at `base`.
    ///
    /// # Safety
    /// A page-aligned, readable and writable page lies there as long as the context is used.
    pub const unsafe fn at(base: u64) -> ContextPage {
        ContextPage { base }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the page is mapped (`Region` or the caller of `at`); all offsets are 4-byte aligned fields of it.
        unsafe { AtomicU32::from_ptr((self.base + offset as u64) as *mut u32) }
    }

    /// The doorbell.
    pub fn poll(&self) -> &AtomicU32 {
        self.word(offset_of!(SharedContext, poll))
    }

    /// See [`contract::activity`].
    pub fn activity(&self) -> &AtomicU32 {
        self.word(offset_of!(SharedContext, activity))
    }

    /// The owner's process number; 0 before it runs.
    pub fn pid(&self) -> &AtomicU32 {
        self.word(offset_of!(SharedContext, pid))
    }

    /// See [`SharedContext::beat`].
    pub fn beat(&self) -> &AtomicU32 {
        self.word(offset_of!(SharedContext, beat))
    }

    /// See [`SharedContext::processor`].
    pub fn processor(&self) -> &AtomicU32 {
        self.word(offset_of!(SharedContext, processor))
    }

    /// See [`contract::node_phase`].
    pub fn phase(&self) -> &AtomicU32 {
        self.word(offset_of!(SharedContext, phase))
    }

    pub fn exit_status(&self) -> &AtomicU32 {
        self.word(offset_of!(SharedContext, exit_status))
    }

    /// An instrument's word: see [`contract::instrument`].
    pub fn instrument(&self, word: usize) -> &AtomicU64 {
        assert!(word < contract::INSTRUMENT_WORDS);
        let at = self.base + (offset_of!(SharedContext, instruments) + 8 * word) as u64;
        // SAFETY: the index was checked, so the word lies inside the page.
        unsafe { AtomicU64::from_ptr(at as *mut u64) }
    }

    /// Leaves the reason of a failure for the launcher: NUL-terminated, cut to the field.
    pub fn set_message(&self, text: &[u8]) {
        let field = size_of_message();
        let base = self.base + offset_of!(SharedContext, message) as u64;
        for (index, byte) in text.iter().take(field - 1).chain(&[0]).enumerate() {
            // SAFETY: `take` and the final zero keep the index inside the field.
            unsafe { AtomicU8::from_ptr((base + index as u64) as *mut u8) }.store(*byte, Ordering::Relaxed);
        }
    }

    /// A word of what this node waits for, at an offset within [`WaitRecord`].
    fn wait_word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset < size_of::<WaitRecord>() && offset.is_multiple_of(8));
        let at = self.base + (offset_of!(SharedContext, wait) + offset) as u64;
        // SAFETY: the offset was checked, so the word lies inside the page.
        unsafe { AtomicU64::from_ptr(at as *mut u64) }
    }

    /// Says what this node waits for: one of [`contract::waits`], with the object's number and home.
    pub fn set_wait(&self, what: u64, object: u64, home: u64) {
        self.wait_word(offset_of!(WaitRecord, what)).store(what, Ordering::Relaxed);
        self.wait_word(offset_of!(WaitRecord, object)).store(object, Ordering::Relaxed);
        self.wait_word(offset_of!(WaitRecord, home)).store(home, Ordering::Relaxed);
        let number = self.wait_word(offset_of!(WaitRecord, number));
        number.store(number.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// So many timers of the program are scheduled.
    pub fn set_timers(&self, scheduled: u64) {
        self.wait_word(offset_of!(WaitRecord, timers)).store(scheduled, Ordering::Relaxed);
    }

    /// The end of the stack that this node works on.
    pub fn set_stack_top(&self, top: u64) {
        self.wait_word(offset_of!(WaitRecord, stack_top)).store(top, Ordering::Relaxed);
    }

    /// This node holds a lock from now on, or does not any more.
    pub fn note_lock(&self, home: NodeId, number: u64, holds: bool) {
        let name = ((home.index() as u64) << 32 | number) + 1;
        let (from, to) = if holds { (0, name) } else { (name, 0) };
        let places = (0..contract::HELD_LOCKS).map(|k| self.wait_word(offset_of!(WaitRecord, held) + 8 * k));
        if let Some(place) = places.into_iter().find(|place| place.load(Ordering::Relaxed) == from) {
            place.store(to, Ordering::Relaxed);
        }
    }

    /// See [`contract::crash_state`].
    pub fn crash_state(&self) -> &AtomicU32 {
        self.word(offset_of!(SharedContext, crash) + offset_of!(CrashRecord, state))
    }

    /// Leaves how the node dies, but for the state.
    ///
    /// # Safety
    /// The caller has made the state [`contract::crash_state::WRITING`].
    pub unsafe fn set_crash(&self, crash: &CrashRecord) {
        let from = offset_of!(CrashRecord, signal);
        let to = self.base + (offset_of!(SharedContext, crash) + from) as u64;
        let bytes = size_of::<CrashRecord>() - from;
        // SAFETY: inside the page; nobody else writes there in that state, nor reads.
        unsafe { core::ptr::from_ref(crash).cast::<u8>().add(from).copy_to_nonoverlapping(to as *mut u8, bytes) };
    }

    /// See [`SharedContext::flushes`].
    pub fn flushes(&self) -> &AtomicU64 {
        // SAFETY: inside the page.
        unsafe { AtomicU64::from_ptr((self.base + offset_of!(SharedContext, flushes) as u64) as *mut u64) }
    }

    /// Says where the records of this node's arenas are, before its program runs.
    pub fn set_arenas(&self, records: u64) {
        let at = self.base + offset_of!(SharedContext, arenas) as u64;
        // SAFETY: inside the page.
        unsafe { AtomicU64::from_ptr(at as *mut u64) }.store(records, Ordering::Relaxed);
    }

    /// Adds to a counter. Threads of a one-node run may count at once.
    pub fn add(&self, counter: Counter, amount: u64) {
        let at = self.base + (offset_of!(SharedContext, counters) + 8 * counter as usize) as u64;
        // SAFETY: the index is below COUNTER_COUNT, so the word lies inside the page.
        unsafe { AtomicU64::from_ptr(at as *mut u64) }.fetch_add(amount, Ordering::Relaxed);
    }

    /// [`ContextPage::add`] without a locked instruction, for nodes whose one thread is the only one that counts.
    #[inline]
    pub fn add_unlocked(&self, counter: Counter, amount: u64) {
        let at = self.base + (offset_of!(SharedContext, counters) + 8 * counter as usize) as u64;
        // SAFETY: as in `add`.
        let cell = unsafe { AtomicU64::from_ptr(at as *mut u64) };
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// A counter's value.
    pub fn counter(&self, counter: Counter) -> u64 {
        let at = self.base + (offset_of!(SharedContext, counters) + 8 * counter as usize) as u64;
        // SAFETY: as in `add`.
        unsafe { AtomicU64::from_ptr(at as *mut u64) }.load(Ordering::Relaxed)
    }
}

const fn size_of_message() -> usize {
    offset_of!(SharedContext, instruments) - offset_of!(SharedContext, message)
}

#[cfg(test)]
pub(crate) mod testing {
    //! Regions for tests, made as the launcher makes them.

    use super::*;

    /// A region in a memfd, unmapped and closed when dropped.
    pub struct TestRegion {
        pub region: Region,
        pub fd: i32,
    }

    impl TestRegion {
        pub fn new(nodes: u32, cpus: u32, segment_bytes: u64, ring_slots: u32) -> TestRegion {
            let protocol = 1;
            TestRegion::with_protocol(nodes, cpus, segment_bytes, ring_slots, protocol)
        }

        pub fn with_protocol(nodes: u32, cpus: u32, segment_bytes: u64, ring_slots: u32, protocol: u32) -> TestRegion {
            let mut header = RegionHeader::new(nodes, cpus, segment_bytes, 0x1234_5678);
            header.protocol = protocol;
            // A smaller ring leaves the offsets as they are: the rings only get shorter.
            header.ring_slots = ring_slots;
            header.ring_bytes = contract::RING_HEADER_BYTES + u64::from(ring_slots) * SLOT_BYTES;
            let fd = memfd(&header);
            let fill = vec![contract::TAG_INVALID; header.fill_bytes as usize];
            // SAFETY: the kernel reads the vector only.
            let wrote = unsafe { libc::pwrite(fd, fill.as_ptr().cast(), fill.len(), header.fill_off as i64) };
            assert_eq!(wrote as usize, fill.len());
            TestRegion { region: Region::map(fd).unwrap(), fd }
        }

        /// The nodes are on hosts that begin with node 0 and with these ones.
        pub fn set_hosts(&self, firsts: &[u16]) {
            for node in 0..self.region.header.nodes as u16 {
                let first = firsts.iter().copied().filter(|&first| first <= node).max().unwrap_or(0);
                let at = self.region.header.hosts_off + u64::from(node) * contract::HOST_WORD_BYTES;
                // SAFETY: inside the mapping; no node runs yet.
                unsafe { ((self.region.base + at) as *mut u16).write(first) };
            }
        }

        /// Makes context pages and rings as they were at the beginning, and forgets what is in the staging areas.
        pub fn renew(&self) {
            let Region { base, header } = self.region;
            let rings = u64::from(header.nodes * header.nodes) * header.ring_bytes;
            let mut ranges = std::vec![(header.contexts_off, header.rings_off + rings - header.contexts_off)];
            ranges.extend(
                (0..u64::from(header.nodes)).map(|n| (header.stage_off + n * contract::STAGE_BYTES, CONTEXT_BYTES)),
            );
            ranges.push((offset_of!(RegionHeader, fork_homes) as u64, size_of::<u32>() as u64));
            ranges.push((offset_of!(RegionHeader, fork_limits) as u64, size_of_val(&header.fork_limits) as u64));
            for (at, bytes) in ranges {
                // SAFETY: inside the mapping; the caller has dropped all nodes.
                unsafe { ((base + at) as *mut u8).write_bytes(0, bytes as usize) };
            }
        }
    }

    impl Drop for TestRegion {
        fn drop(&mut self) {
            // SAFETY: the test has joined its node threads before it drops the region.
            let _ = unsafe { sys::munmap(self.region.base, self.region.header.total_bytes) };
            let _ = sys::close(self.fd);
        }
    }

    /// A memfd of the header's size that begins with the header.
    pub fn memfd(header: &RegionHeader) -> i32 {
        let bytes = size_of::<RegionHeader>();
        // SAFETY: plain calls; the header is read as bytes of its own size.
        unsafe {
            let fd = libc::memfd_create(c"region-test".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            assert_eq!(libc::ftruncate(fd, header.total_bytes.min(1 << 30) as i64), 0);
            assert_eq!(libc::pwrite(fd, (header as *const RegionHeader).cast(), bytes, 0), bytes as isize);
            fd
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launchers_region_is_accepted() {
        let test = testing::TestRegion::new(3, 2, 64 << 20, 128);
        let node = |n| NodeId::new(n).unwrap();
        assert_eq!(test.region.header().nodes, 3);
        assert_eq!(
            test.region.ring(node(1), node(2)) as u64 - test.region.ring(node(0), node(0)) as u64,
            5 * test.region.header().ring_bytes
        );
        let context = test.region.context(node(2));
        context.add(Counter::Barriers, 3);
        assert_eq!(context.counter(Counter::Barriers), 3);
        assert_eq!(test.region.context(node(1)).counter(Counter::Barriers), 0);
        context.set_message(&[b'x'; 5000]);
        // The text ends inside its field: the counters behind it are untouched.
        assert_eq!(context.counter(Counter::LoadChecks), 0);
    }

    #[test]
    fn damaged_headers_are_refused_with_the_reason() {
        type Damage = fn(&mut RegionHeader);
        let cases: [(&str, Damage); 16] = [
            ("staging areas", |h| h.stage_off = h.total_bytes),
            ("magic", |h| h.magic ^= 1),
            ("number of nodes", |h| h.nodes = 0),
            ("number of nodes", |h| h.nodes = NAMED_NODES as u32 + 1),
            ("shorter", |h| h.total_bytes = 1 << 40),
            ("ring is wrong", |h| h.ring_slots = 100),
            ("ring is wrong", |h| h.ring_bytes += 64),
            ("context pages", |h| h.contexts_off = u64::MAX - 4095),
            ("rings are misplaced", |h| h.rings_off = h.total_bytes - 64),
            ("fill area", |h| h.fill_bytes = 0),
            ("table of hosts", |h| h.hosts_off = h.total_bytes),
            ("home policy", |h| h.homes = 2),
            ("block size", |h| h.block_bytes = 96),
            ("block size", |h| h.block_bytes = 8192),
            ("coherence protocol", |h| h.protocol = 99),
            ("segment's size", |h| h.segment_bytes = 2 << 40),
        ];
        for (reason, damage) in cases {
            let mut header = RegionHeader::new(2, 2, 64 << 20, 1);
            damage(&mut header);
            let fd = testing::memfd(&header);
            let refusal = Region::map(fd).unwrap_err();
            sys::close(fd).unwrap();
            assert!(matches!(refusal, RegionRefusal::Header(text) if text.contains(reason)), "{refusal} / {reason}");
        }
        assert!(matches!(Region::map(-1), Err(RegionRefusal::Kernel(..))));
    }

    #[test]
    fn tables_of_hosts_that_are_none_are_refused() {
        for (table, forks, reason) in [
            ([1u16, 1, 1], 0, "table of hosts is none"),
            ([0, 2, 2], 0, "table of hosts is none"),
            ([0, 1, 0], 0, "table of hosts is none"),
            ([0, 0, 9], 0, "table of hosts is none"),
            ([0, 0, 2], 1, "created on several hosts"),
            ([0, 1, 1], 0, ""),
            ([0, 0, 0], 1, ""),
        ] {
            let header = RegionHeader { forks, ..RegionHeader::new(3, 2, 64 << 20, 1) };
            let fd = testing::memfd(&header);
            // SAFETY: the kernel reads the table only.
            let wrote = unsafe { libc::pwrite(fd, table.as_ptr().cast(), 6, header.hosts_off as i64) };
            assert_eq!(wrote, 6);
            let mapped = Region::map(fd);
            sys::close(fd).unwrap();
            match mapped {
                Ok(_) => assert_eq!(reason, "", "{table:?}"),
                Err(refusal) => {
                    assert!(!reason.is_empty() && refusal.to_string().contains(reason), "{table:?}: {refusal}");
                }
            }
        }
    }
}
