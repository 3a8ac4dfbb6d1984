//! Nodes begin and end: the calls of the program.
//!
//! Purpose: node 0 may create the other nodes ([`crate::process::creation`] says how), and each says when it computes no more. What has to be right is the
//! shared memory that node 0 uses before the others exist:
//! * *Alone*: node 0 is the home of every page ([`Homes::among`](crate::memory::homes::Homes::among) one node), and sends nothing.
//! * *Created*: a child waits, so that the next ones can be created first.
//! * *Released*: as soon as node 0 waits for somebody, exits, blocks in the kernel, or some time has passed, it deals the homes out over the nodes that exist
//!   by then. It keeps all data: the other homes take every page below [`fork_limits`](blizzard_contract::RegionHeader::fork_limits) as
//!   Exclusive at node 0, whose tags are raised to match.
//! * *Late*: a node created after that is home of nothing, and otherwise a node like any other.
//!
//! **Invariant**: the homes never change once a second node runs.

use crate::kernel::later;
use crate::kernel::owned::{PerProcess, per_thread};
use crate::kernel::sys;
use crate::kernel::unaliased::Unaliased;
use crate::links::bugs::has_bug;
use crate::memory::homes::PAGE_BYTES;
use crate::memory::partition::LOWER;
use crate::messages::kinds::id;
use crate::node::node::Node;
use crate::transport::message::Message;
use crate::transport::patience::Wait;
use blizzard_contract::waits;
use blizzard_protocol::ids::{Block, NodeId};
use blizzard_protocol::tag::Tag;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// After so long without another creation the created nodes are released even if node 0 waits for nobody.
const HOLD_NS: u64 = 2_000_000;

per_thread! {
    /// The node that the process's next `fork` creates; 0: none.
    pub static NEXT: AtomicU32 = AtomicU32::new(0);
}
/// Parent of node 0, and so of every created node.
pub static PARENT: PerProcess<AtomicI32> = PerProcess::new(AtomicI32::new(0));
/// Created nodes wait for their release: for who does not have the node at hand.
pub static HOLDING: PerProcess<Unaliased<AtomicBool>> = PerProcess::new(Unaliased::new(AtomicBool::new(false)));

impl Node {
    /// Announces that the process's next `fork` creates a node; its number.
    pub fn create_begin(&mut self) -> u32 {
        let nodes = self.homes.nodes();
        if !self.members.are_created {
            self.fail(format_args!("bz_create: all nodes run main already; `blizzard run --fork` starts node 0 alone"));
        }
        if self.me != self.manager() {
            self.fail(format_args!("bz_create: only node 0 creates nodes"));
        }
        if self.members.created + 1 >= nodes {
            self.fail(format_args!("{}", NoNodeLeft(nodes)));
        }
        // The new node begins with what there is.
        self.end_promises();
        // It counts from here on: created after the release, it sends messages before its `fork` has returned in this process.
        self.members.created += 1;
        PARENT.store(sys::getppid(), Ordering::Relaxed);
        NEXT.store(self.members.created, Ordering::Relaxed);
        self.members.created
    }

    /// The `fork` has returned `pid` in node 0.
    pub fn create_end(&mut self, pid: i32) {
        NEXT.store(0, Ordering::Relaxed);
        let number = self.members.created;
        if pid <= 0 {
            self.fail(format_args!("bz_create: cannot create the process of node {number}"));
        }
        if let Some(created) = NodeId::new(number) {
            self.region.context(created).pid().store(pid as u32, Ordering::Relaxed);
        }
        if self.region.fork_homes().load(Ordering::Relaxed) == 0 {
            self.members.last_ns = sys::monotonic_ns();
            self.members.holding = true;
            HOLDING.store(true, Ordering::Relaxed);
            self.look_at_clock();
        }
    }

    /// Lets the created nodes go if node 0 has not created another one for a while; otherwise the next poll looks again.
    pub fn release_if_due(&mut self) {
        if self.members.holding {
            if sys::monotonic_ns() - self.members.last_ns >= HOLD_NS {
                self.release();
            } else {
                self.look_at_clock();
            }
        }
    }

    /// The next poll looks at the clock. Code without polls is interrupted for it.
    fn look_at_clock(&self) {
        self.transport.remind();
        if cfg!(feature = "guard") {
            later::call_after(HOLD_NS);
        }
    }

    /// Lets the created nodes go: deals the homes out, and wakes them. Nothing happens if none waits.
    #[inline]
    pub fn release(&mut self) {
        if self.members.holding {
            self.release_held();
        }
    }

    #[inline(never)]
    fn release_held(&mut self) {
        self.members.holding = false;
        HOLDING.store(false, Ordering::Relaxed);
        let present = self.participants();
        if !has_bug!(self, NodeZeroKeepsHomes) {
            self.homes = self.homes.among(present);
        }
        let region = self.region;
        let mut handed_out = [(0, 0); LOWER];
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
        self.members.awaited += count;
        let (awaited, created) = (self.members.awaited, self.participants() - 1);
        if awaited > created {
            self.fail(format_args!(
                "bz_wait_for_end: the program waits for {awaited} nodes to end, but has created {created}"
            ));
        }
        self.wait_for_all(Wait::Other, waits::END, |node| node.members.ended() >= awaited);
    }

    /// Tells all nodes that this one computes no more, and serves them until they say the same. Node 0 also tells how many nodes there are:
    /// once it has exited, no more are created.
    ///
    /// First it waits for the blocks that it has asked for ahead: whoever still had to send them when this node had gone could not, and would wait
    /// for ever for room in a ring that nobody reads.
    pub fn finish(&mut self) {
        self.flush();
        self.wait(Wait::Other, |node| !node.engine.has_outstanding());
        let participants = u64::from(self.participants());
        for to in (0..self.homes.nodes()).filter_map(NodeId::new) {
            self.send(to, Message { handler: id::EXITED, args: [participants, 0, 0], ..Message::default() });
        }
        self.wait_for_all(Wait::Other, waits::END, |node| node.members.all_exited() && node.transport.is_drained());
    }
}

/// There is no node left to create in a run of so many.
pub struct NoNodeLeft(pub u32);

impl fmt::Display for NoNodeLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, plural) = (self.0, if self.0 == 1 { "" } else { "s" });
        write!(
            f,
            "bz_create: this run has {nodes} node{plural}, and the program creates one more: run it with `-n {}` or more, or tell the program \
             to use fewer processes",
            nodes + 1
        )
    }
}

/// Whether created nodes wait for their release by this process.
pub fn is_holding() -> bool {
    HOLDING.load(Ordering::Relaxed)
}
