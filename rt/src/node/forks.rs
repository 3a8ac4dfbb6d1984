//! Nodes that node 0 creates, as `fork` creates processes.
//!
//! Purpose: programs in the style of the PARMACS macros run `main` on node 0 alone, set everything up, and then create the other nodes,
//! which begin with a copy of all private data. Here each of them is a child of a real `fork`: globals, heap, stack, thread control
//! block, descriptors, signal handlers are the kernel's copy, at the same addresses. Input: the launcher starts node 0 only
//! ([`RegionHeader::forks`](blizzard_contract::RegionHeader::forks)); the client library calls [`Node::create_begin`] and then `fork`, whose system
//! call the gate lets [`created_call`] change. Output: a new node in [`become_node`].
//!
//! Why a real fork and not a copy into processes that wait: the kernel copies what a copy would have to imitate (mappings of files, `brk`,
//! protections, descriptors with their shared positions, the C library's view of its own thread) and cannot forget a part.
//!
//! What has to be right is the shared memory that node 0 uses before the others exist:
//! * *Alone*: node 0 is the home of every page ([`Homes::among`](crate::memory::homes::Homes::among) one node), and sends nothing.
//! * *Created*: a child waits, so that the next ones can be created first.
//! * *Released*: as soon as node 0 waits for somebody, exits, blocks in the kernel, or some time has passed, it deals the homes out over the nodes that exist
//!   by then. It keeps all data: the other homes take every page below [`fork_limits`](blizzard_contract::RegionHeader::fork_limits) as
//!   Exclusive at node 0, whose tags are raised to match.
//! * *Late*: a node created after that is home of nothing, and otherwise a node like any other.
//!
//! **Invariants**: the homes never change once a second node runs; a created node drops its copy of the segment and of all tags before it
//! looks at anything; nothing of the parent's transport is used by the child.
//! Source: Lusk et al., Portable Programs for Parallel Processors, 1987 (the macros); `clone(2)`, `mremap(2)`.

use crate::kernel::sys;
use crate::kernel::unaliased::Unaliased;
use crate::memory::homes::Homes;
use crate::memory::homes::PAGE_BYTES;
use crate::memory::region::Region;
use crate::memory::segment;
use crate::memory::tags::Space;

use crate::node::stats::Wait;
use crate::node::{self, Node};
use blizzard_contract::LOWER_ARENAS;
use blizzard_contract::{self as contract, CONTEXT_BYTES};
use blizzard_protocol::ids::Block;
use blizzard_protocol::ids::NodeId;
use blizzard_protocol::tag::Tag;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// After so long without another creation the created nodes are released even if node 0 waits for nobody.
const HOLD_NS: u64 = 2_000_000;
/// Longest sleep of a created node between two looks at the region's abort word.
const SLEEP_NS: u64 = 50_000_000;

/// The node that the process's next `fork` creates; 0: none.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// Parent of node 0, and so of every created node.
static PARENT: AtomicI32 = AtomicI32::new(0);
/// Created nodes wait for their release: for who does not have the node at hand.
static HOLDING: Unaliased<AtomicBool> = Unaliased::new(AtomicBool::new(false));

/// What a node knows about creation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forks {
    /// The run's nodes are created by node 0.
    enabled: bool,
    /// Node 0: nodes created so far, one that is being created included.
    created: u32,
    /// Node 0: created nodes wait for their release.
    holding: bool,
    /// Node 0: when the last one was created.
    last_ns: u64,
    /// Node 0: ends that the program has waited for.
    awaited: u32,
    /// Pages of the interleaved arena below this address began at node 0.
    limits: [u64; LOWER_ARENAS],
}

impl Forks {
    pub fn new(region: &Region) -> Forks {
        let enabled = region.header().forks != 0;
        let limits = core::array::from_fn(|arena| region.fork_limit(arena).load(Ordering::Relaxed));
        Forks { enabled, limits, ..Forks::default() }
    }

    /// Whether node 0 had this page, of which this node is the home, before this node existed: it then has the only copy of every block that no
    /// protocol event has touched since.
    pub fn began_at_node_0(&self, homes: &Homes, me: NodeId, page: u64) -> bool {
        let limit = homes.arena_of(page).and_then(|arena| self.limits.get(arena.index()));
        me != NodeId::FIRST && limit.is_some_and(|&limit| page < limit)
    }
}

/// How many nodes of the run can be homes now.
pub fn homes_present(region: &Region) -> u32 {
    if region.header().forks == 0 {
        region.header().nodes
    } else {
        // Acquire: `fork_limits` was written before.
        region.fork_homes().load(Ordering::Acquire).clamp(1, region.header().nodes)
    }
}

impl Node {
    /// How many nodes there are. In a run whose nodes are created node 0 alone knows; others say how many there can be.
    pub fn participants(&self) -> u32 {
        if self.forks.enabled && self.me == self.manager() { 1 + self.forks.created } else { self.homes.nodes() }
    }

    /// Announces that the process's next `fork` creates a node; its number.
    pub fn create_begin(&mut self) -> u32 {
        let nodes = self.homes.nodes();
        if !self.forks.enabled {
            self.fail(format_args!("bz_create: all nodes run main already; `blizzard run --fork` starts node 0 alone"));
        }
        if self.me != self.manager() {
            self.fail(format_args!("bz_create: only node 0 creates nodes"));
        }
        if self.forks.created + 1 >= nodes {
            refuse_creation(nodes);
        }
        // It counts from here on: created after the release, it sends messages before its `fork` has returned in this process.
        self.forks.created += 1;
        PARENT.store(sys::getppid(), Ordering::Relaxed);
        NEXT.store(self.forks.created, Ordering::Relaxed);
        self.forks.created
    }

    /// The `fork` has returned `pid` in node 0.
    pub fn create_end(&mut self, pid: i32) {
        NEXT.store(0, Ordering::Relaxed);
        let number = self.forks.created;
        if pid <= 0 {
            self.fail(format_args!("bz_create: cannot create the process of node {number}"));
        }
        if let Some(created) = NodeId::new(number) {
            self.region().context(created).pid().store(pid as u32, Ordering::Relaxed);
        }
        if self.region().fork_homes().load(Ordering::Relaxed) == 0 {
            self.forks.last_ns = sys::monotonic_ns();
            self.forks.holding = true;
            HOLDING.store(true, Ordering::Relaxed);
            // The next poll looks at the clock.
            self.transport.remind();
        }
    }

    /// Lets the created nodes go if node 0 has not created another one for a while; otherwise the next poll looks again.
    pub fn release_if_due(&mut self) {
        if self.forks.holding {
            if sys::monotonic_ns() - self.forks.last_ns >= HOLD_NS {
                self.release();
            } else {
                self.transport.remind();
            }
        }
    }

    /// Lets the created nodes go: deals the homes out, and wakes them. Nothing happens if none waits.
    #[inline]
    pub fn release(&mut self) {
        if self.forks.holding {
            self.release_held();
        }
    }

    #[inline(never)]
    fn release_held(&mut self) {
        self.forks.holding = false;
        HOLDING.store(false, Ordering::Relaxed);
        let present = self.participants();
        if !has_bug!(self, NodeZeroKeepsHomes) {
            self.homes = self.homes.among(present);
        }
        let region = self.region();
        let mut handed_out = [(0, 0); LOWER_ARENAS];
        for (number, range) in handed_out.iter_mut().enumerate() {
            let arena =
                self.homes.arena(number as u64).and_then(|arena| Some((arena, self.homes.arena_range(arena)?.0)));
            if let Some((arena, base)) = arena {
                *range = (base, self.arenas.limit(arena).unwrap_or(base));
            }
            let limit = if has_bug!(self, LimitsAreLost) { 0 } else { range.1 };
            region.fork_limit(number).store(limit, Ordering::Relaxed);
        }
        let (homes, me) = (self.homes, self.me);
        let pages = handed_out.into_iter().flat_map(|(base, limit)| (base..limit).step_by(PAGE_BYTES as usize));
        let held = || pages.clone().filter(|page| homes.home_of(*page) != Some(me));
        if !has_bug!(self, HoldsNoUntouchedPage) {
            held().for_each(|page| self.hold_page(page));
        }
        region.fork_homes().store(present, Ordering::Release);
        let _ = sys::futex_wake(region.fork_homes(), i32::MAX as u32);
        // With a bound on copies the oldest go to their homes now.
        held().for_each(|page| self.note_page(self.space.block_of(page)));
    }

    /// Makes every block of a page Writable here, as its home believes.
    fn hold_page(&mut self, page: u64) {
        for addr in (page..page + PAGE_BYTES).step_by(self.space.block_bytes(page) as usize) {
            let block = Block::of(addr);
            if self.space.tag(block) == Some(Tag::Invalid) {
                self.space.set_tag(block, Tag::Writable);
            }
        }
    }

    /// Waits until `count` more created nodes have ended.
    pub fn wait_for_end(&mut self, count: u32) {
        if self.me != self.manager() {
            self.fail(format_args!("bz_wait_for_end: only node 0 waits for the nodes it has created"));
        }
        self.forks.awaited += count;
        let (awaited, created) = (self.forks.awaited, self.participants() - 1);
        if awaited > created {
            self.fail(format_args!(
                "bz_wait_for_end: the program waits for {awaited} nodes to end, but has created {created}"
            ));
        }
        self.wait(Wait::Other, |node| node.sync.ended() >= awaited);
    }
}

/// Ends the run: there is no node left to create.
pub fn refuse_creation(nodes: u32) -> ! {
    node::fail(format_args!(
        "bz_create: this run has {nodes} node{}, and the program creates one more: run it with `-n {}` or more, or tell the program \
         to use fewer processes",
        if nodes == 1 { "" } else { "s" },
        nodes + 1
    ))
}

/// Whether created nodes wait for their release by this process.
pub fn is_holding() -> bool {
    HOLDING.load(Ordering::Relaxed)
}

/// The arguments of `clone` for a `fork` of the program that creates a node; `None` for any other. `args` are those of `clone`, all zero
/// for the call `fork`.
pub fn created_call(args: [u64; 6]) -> Option<[u64; 6]> {
    if NEXT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    // The launcher's process is the parent, which waits for nodes; a wait of the program does not find them.
    let kept = libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID | libc::CLONE_PARENT_SETTID;
    let flags = args[0] & kept as u32 as u64 | (libc::CLONE_PARENT | libc::SIGCHLD) as u32 as u64;
    Some([flags, 0, args[2], args[3], 0, 0])
}

/// Makes the process, just forked from node 0, the node that was announced. Returns when node 0 has released it.
pub fn become_node() {
    let number = NEXT.swap(0, Ordering::Relaxed);
    HOLDING.store(false, Ordering::Relaxed);
    let Some((me, region)) = NodeId::new(number).zip(node::region()) else {
        node::fail(format_args!("a process was created that is no node"));
    };
    // SAFETY: the region's page is the runtime's own, and the context pages are used through fixed addresses only; one thread.
    let mapped = unsafe {
        sys::remap_shared(region.context_address(me), CONTEXT_BYTES, contract::CONTEXT_SHARED)
            .and_then(|()| segment::change_node(number))
    };
    node::set_created(me);
    if let Err(e) = mapped {
        node::fail(format_args!("cannot map the context pages of a created node: {e}"));
    }
    let context = region.context(me);
    context.pid().store(sys::getpid() as u32, Ordering::Relaxed);
    // SAFETY: asks for a signal at the end of the parent; no memory.
    let tied = unsafe { sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0, 0) };
    if tied.is_ok() && sys::getppid() != PARENT.load(Ordering::Relaxed) {
        // The launcher ended in between.
        sys::exit_group(libc::EXIT_FAILURE);
    }
    // SAFETY: the child's own copies, which nobody has looked at.
    if let Err(e) = unsafe { segment::forget(region.header().segment_bytes) } {
        node::fail(format_args!("cannot drop a created node's copy of the shared memory: {e}"));
    }
    while region.fork_homes().load(Ordering::Acquire) == 0 {
        if region.abort().load(Ordering::Relaxed) != 0 {
            sys::exit_group(libc::EXIT_FAILURE);
        }
        let _ = sys::futex_wait(region.fork_homes(), 0, Some(SLEEP_NS));
    }
    // SAFETY: this process is that node from here on; the segment is as fresh as at a start.
    unsafe { node::restart(region, me, Space::program(region.header().segment_bytes)) };
}
