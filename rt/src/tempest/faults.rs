//! Page faults and block access faults (Tempest 1.2.1, sections 3.1.4 and 3.2.7).
//!
//! Purpose: a miss on user-managed memory becomes a call of the program's handler; the computation thread stays here, handling
//! messages, until the program resumes it and its access is allowed. Input: the accesses of a miss, registrations. Output: accessible blocks.
//! **Invariants**
//! * The handler of the fault runs before anything else that waits (section 2).
//! * On return every block of every lane allows the access at once, and no handler has run since that was seen.
//! * User-managed blocks are acquired before blocks of `bz_alloc`, which are pinned while they are held, so that nobody waits for a
//!   pinned block while this node waits for a message of theirs.

use crate::kernel::owned::{PerNode, PerProcess};
use crate::node::access::{Lane, MAX_LANES};
use crate::node::user_handlers::{in_handler, running};
use crate::process::host::CallHost;
use crate::process::process;
use crate::process::tags;
use crate::tempest::events::{Awaited, wait};
use crate::tempest::invocation::{Invocation, invoke};
use crate::tempest::owner::{TURN, require_own_thread};
use crate::tempest::pages::blocks::{self, BlockSpec};
use crate::tempest::pages::table::{PAGES, is_user};
use blizzard_contract::tempest::{BlockFaultHandler, PAGE_MODES, PageFaultHandler};
use blizzard_contract::{BLOCK_BYTES, Counter, listed};
use blizzard_protocol::tag::Tag;
use core::sync::atomic::{AtomicU64, Ordering};

listed! {
    /// The five meaningful combinations of tag and access (table 1), as places in the table of handlers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Case: name {
        InvalidRead: "a load from an Invalid block",
        InvalidWrite: "a store to an Invalid block",
        BusyRead: "a load from a Busy block",
        BusyWrite: "a store to a Busy block",
        ReadOnlyWrite: "a store to a ReadOnly block",
    }
}

impl Case {
    /// `None` when the tag allows the access.
    pub const fn of(tag: Tag, is_write: bool) -> Option<Case> {
        match (tag, is_write) {
            (Tag::Invalid, false) => Some(Case::InvalidRead),
            (Tag::Invalid, true) => Some(Case::InvalidWrite),
            (Tag::Busy, false) => Some(Case::BusyRead),
            (Tag::Busy, true) => Some(Case::BusyWrite),
            (Tag::ReadOnly, true) => Some(Case::ReadOnlyWrite),
            (Tag::ReadOnly, false) | (Tag::Writable, _) => None,
        }
    }
}

/// The program's handlers, and the thread that waits.
pub struct Faults {
    page: Option<PageFaultHandler>,
    block: [[Option<BlockFaultHandler>; 5]; PAGE_MODES],
    /// The address that the suspended thread wants; `None` while it runs or is resumed.
    suspended: Option<u64>,
}

/// The node's.
pub static FAULTS: PerNode<Faults> = PerNode::new(&TURN);

pub fn start() {
    FAULTS.init(Faults::new());
}

/// Where the access of the last miss stands in rewritten code.
static PC: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));

/// Notes where a gate was entered from.
#[inline]
pub fn note_pc(pc: u64) {
    PC.store(pc, Ordering::Relaxed);
}

impl Faults {
    pub const fn new() -> Faults {
        Faults { page: None, block: [[None; 5]; PAGE_MODES], suspended: None }
    }

    pub fn set_page_handler(&mut self, handler: Option<PageFaultHandler>) {
        self.page = handler;
    }

    pub fn set_block_handler(&mut self, mode: usize, case: Case, handler: Option<BlockFaultHandler>) {
        self.block[mode][case as usize] = handler;
    }

    /// Resumes the thread if it waits for something in the block (section 3.6).
    pub fn resume(&mut self, block: BlockSpec) {
        if self.suspended.is_some_and(|va| block.contains(va)) {
            self.suspended = None;
        }
    }
}

/// Whether any lane touches the user-managed segment.
fn touches_user(lanes: &[Lane]) -> bool {
    lanes.iter().any(|l| is_user(l.addr) || is_user(l.addr.saturating_add(l.bytes.saturating_sub(1))))
}

/// The first address of user-managed memory that does not allow its lane's access, and that lane. `skip`: masked lanes do not count.
fn first_fault(lanes: &[Lane], skip: bool) -> Option<(u64, Lane)> {
    for &lane in lanes.iter().filter(|lane| !(skip && lane.masked)) {
        let end = lane.addr.saturating_add(lane.bytes);
        let mut at = lane.addr;
        while at < end {
            if is_user(at) && !tags::block_accessible(at, lane.store) {
                return Some((at, lane));
            }
            at = (at | (BLOCK_BYTES - 1)).saturating_add(1);
        }
    }
    None
}

fn is_accessible(lane: &Lane) -> bool {
    tags::accessible(lane.addr, lane.bytes, lane.store)
}

/// A miss; false, and nothing is done, if no lane is in the user-managed segment. A masked lane may leave bytes alone, so a page that is not mapped
/// matters only to a program that handles page faults.
pub fn miss(lanes: &[Lane]) -> bool {
    if !touches_user(lanes) {
        return false;
    }
    if lanes.iter().all(is_accessible) {
        tags::count(Counter::FalseMisses);
        return true;
    }
    if in_handler() {
        refuse_in_handler(lanes);
    }
    require_own_thread("a fault on user-managed memory");
    let mut skip = false;
    loop {
        while let Some((va, lane)) = first_fault(lanes, skip) {
            skip |= !fault(va, lane.store, lane.masked);
        }
        let is_other = |lane: &&Lane| !touches_user(core::slice::from_ref(lane));
        if !lanes.iter().filter(is_other).all(is_accessible) {
            let mut others = [lanes[0]; MAX_LANES];
            let mut count = 0;
            for &lane in lanes.iter().filter(is_other).take(others.len()) {
                others[count] = lane;
                count += 1;
            }
            process::miss_lanes(&others[..count]);
        }
        if first_fault(lanes, skip).is_none() && lanes.iter().filter(is_other).all(is_accessible) {
            return true;
        }
    }
}

#[cold]
fn refuse_in_handler(lanes: &[Lane]) -> ! {
    let (at, store) = lanes.iter().find(|lane| !is_accessible(lane)).map_or((0, false), |lane| (lane.addr, lane.store));
    process::fail(format_args!(
        "the {} {} {at:#x}, whose tag does not allow it: a handler must not wait (Tempest 1.2.1, section 2)",
        running(),
        if store { "stores to" } else { "loads from" }
    ));
}

/// Suspends the thread because of its access to `va` until the program resumes it. False: the access need not be possible.
fn fault(va: u64, store: bool, masked: bool) -> bool {
    let page = PAGES.with(|pages| pages.get(va));
    let call = FAULTS.with(|faults| {
        let call = match page {
            None => match faults.page {
                Some(run) => Invocation::PageFault(run, va, access_pc() as i32, store),
                None if masked => return None,
                None => refuse(va, format_args!("on a page that is not mapped, and there is no page fault handler")),
            },
            Some(page) => {
                let Some(tag) = blocks::tag(va) else {
                    refuse(va, format_args!("whose tag was overwritten"));
                };
                let Some(case) = Case::of(tag, store) else {
                    refuse(va, format_args!("without reason"));
                };
                match faults.block[usize::from(page.mode)][case as usize] {
                    Some(run) => Invocation::BlockFault(run, va, page.usr_ptr, page.home),
                    None => refuse(
                        va,
                        format_args!("on a page of mode {}, which has no handler for {}", page.mode, case.name()),
                    ),
                }
            }
        };
        faults.suspended = Some(va);
        Some(call)
    });
    let Some(call) = call else { return false };
    tags::count(Counter::UserFaults);
    process::with_host_at_gate("a fault", |mut host: CallHost<'_>| {
        invoke(&mut host, call);
        let resumed = || FAULTS.with(|faults| faults.suspended.is_none());
        wait(
            &mut host,
            Awaited::Resumption(va),
            resumed,
            format_args!("the access to {va:#x} is suspended and no handler resumed it"),
        );
    });
    true
}

#[cold]
fn refuse(va: u64, why: core::fmt::Arguments<'_>) -> ! {
    process::fail(format_args!("a fault at {va:#x}, {why}"))
}

/// Where the access of the last fault stands in rewritten code.
pub fn access_pc() -> u64 {
    PC.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 1: what faults, and that each case has a place of its own.
    #[test]
    fn five_cases_are_meaningful() {
        let mut seen = Vec::new();
        for tag in [Tag::Invalid, Tag::Busy, Tag::ReadOnly, Tag::Writable] {
            for is_write in [false, true] {
                let allowed = if is_write { tag.allows_store() } else { tag.allows_load() };
                let case = Case::of(tag, is_write);
                assert_eq!(case.is_none(), allowed, "{tag:?} {is_write}");
                seen.extend(case.map(|case| case as usize));
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_thread_is_resumed_by_a_block_that_holds_its_address() {
        let mut faults = Faults::new();
        faults.suspended = Some(0x1044);
        faults.resume(BlockSpec::new(0x1000, 64).unwrap());
        assert!(faults.suspended.is_some());
        faults.resume(BlockSpec::new(0x1000, 128).unwrap());
        assert!(faults.suspended.is_none());
    }
}
