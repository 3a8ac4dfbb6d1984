//! Allocations that get other attributes than the program asks for (`blizzard run --attr`).
//!
//! Purpose: programs that nobody changes choose protocol, block size and homes for each allocation. Input: the table of the launcher
//! ([`blizzard_contract::RulesHead`]), and the stack of an allocation. Output: the rule that the allocation has, which is counted in the table. The callers are looked
//! at from the innermost on, [`RULE_CALLERS`] of them, those of the client library included, which no rule names; the first that one names decides.
//! **Invariants**: but for its counts and the places that have allocated, the table does not change. Where a frame is not known, the walk ends: a rule matches less then, never
//! something else.

use crate::kernel::owned::PerProcess;
use crate::libraries::modules::MODULES;
use crate::memory::access_control::program;
use crate::memory::partition::{Attributes, BlockSize, Placement};
use crate::process::process;
use blizzard_contract::{
    AllocRule, CLIENT_CODE, FrameRow, RULE_CALLERS, RulesHead, SEEN_SITES, SiteRange, alloc_homes, rules_bytes,
};
use blizzard_protocol::ids::NodeId;
use blizzard_protocol::port::ProtocolId;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

/// Address of the table; 0: there are no rules.
static TABLE: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));
/// Which node has allocated last, and how often: a node that is created counts anew.
static COUNT: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));
/// Where the node stands in [`COUNT`].
const COUNT_BITS: u32 = 56;

/// Uses the table at this address, which stays mapped; false: it is shorter than it says.
#[must_use]
pub fn start((at, bytes): (u64, u64)) -> bool {
    // SAFETY: the region has been checked: there is a head.
    if rules_bytes(unsafe { &*(at as *const RulesHead) }) > bytes {
        return false;
    }
    TABLE.store(at, Ordering::Relaxed);
    true
}

/// The parts of the table.
struct Table {
    seen: u64,
    rules: u64,
    head: RulesHead,
    ranges: &'static [SiteRange],
    frames: &'static [FrameRow],
}

impl Table {
    fn of_process() -> Option<Table> {
        let at = TABLE.load(Ordering::Relaxed);
        if at == 0 {
            return None;
        }
        // SAFETY: `start` has looked at its length, and nobody changes the head.
        let head = unsafe { *(at as *const RulesHead) };
        let seen = at + size_of::<RulesHead>() as u64;
        let rules = seen + 8 * SEEN_SITES as u64;
        let ranges = rules + u64::from(head.rules) * size_of::<AllocRule>() as u64;
        let frames = ranges + u64::from(head.ranges) * size_of::<SiteRange>() as u64;
        // SAFETY: as above, of these parts.
        let (ranges, frames) = unsafe {
            (
                core::slice::from_raw_parts(ranges as *const SiteRange, head.ranges as usize),
                core::slice::from_raw_parts(frames as *const FrameRow, head.frames as usize),
            )
        };
        Some(Table { seen, rules, head, ranges, frames })
    }

    fn rule(&self, number: u32) -> Option<Rule> {
        let inside = number < self.head.rules;
        inside.then(|| Rule { at: self.rules + u64::from(number) * size_of::<AllocRule>() as u64 })
    }

    /// The number that stands for the call that ends there.
    fn range_of(&self, name: u64) -> Option<u32> {
        let range = self.ranges.get(self.ranges.partition_point(|range| range.end < name))?;
        (range.start < name).then_some(range.rule)
    }

    /// The rule that some caller has.
    fn of_callers(&self, frame: u64) -> Option<Rule> {
        let mut caller = Caller::of_entry(frame);
        let mut is_seen = false;
        for _ in 0..RULE_CALLERS {
            // Behind a call that does not come back, another function may begin: the call is what counts.
            let name = MODULES.access_at(caller.at - 1)? + 1;
            match self.range_of(name) {
                Some(CLIENT_CODE) => {}
                other => {
                    if !is_seen {
                        self.see(name);
                        is_seen = true;
                    }
                    if let Some(rule) = other.and_then(|number| self.rule(number)) {
                        return Some(rule);
                    }
                }
            }
            caller = caller.of_caller(self.row_of(name - 1)?)?;
        }
        None
    }

    fn row_of(&self, name: u64) -> Option<&FrameRow> {
        self.frames.get(self.frames.partition_point(|row| row.start <= name).checked_sub(1)?)
    }

    /// Remembers a place that allocates.
    fn see(&self, name: u64) {
        for k in 0..SEEN_SITES as u64 {
            // SAFETY: one of the table's words, which everybody changes atomically.
            let word = unsafe { AtomicU64::from_ptr((self.seen + 8 * k) as *mut u64) };
            let there =
                word.compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|there| there);
            if there == 0 || there == name {
                break;
            }
        }
    }
}

/// A frame of the program.
#[derive(Clone, Copy)]
struct Caller {
    /// Where the call returns to.
    at: u64,
    rsp: u64,
    rbp: u64,
}

impl Caller {
    /// Who has called the entry whose `rbp` that is.
    fn of_entry(frame: u64) -> Caller {
        // SAFETY: the entry has pushed the one word; behind it is where it returns to.
        let [rbp, at] = unsafe { *(frame as *const [u64; 2]) };
        Caller { at, rsp: frame + 16, rbp }
    }

    /// Who has called that one.
    fn of_caller(self, row: &FrameRow) -> Option<Caller> {
        let base = match row.cfa & FrameRow::BASE {
            FrameRow::FROM_RSP => self.rsp,
            FrameRow::FROM_RBP => self.rbp,
            _ => return None,
        };
        let cfa = base.wrapping_add_signed(i64::from(row.cfa & !FrameRow::BASE));
        if cfa <= self.rsp {
            return None;
        }
        let rbp = if row.rbp == 0 { self.rbp } else { word(cfa.wrapping_add_signed(row.rbp.into()))? };
        Some(Caller { at: word(cfa - 8)?, rsp: cfa, rbp })
    }
}

/// A word of the stack, whatever a frame says of where it is.
fn word(at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    program::read(at, &mut bytes).ok().map(|()| u64::from_ne_bytes(bytes))
}

/// A rule of the table.
#[derive(Clone, Copy)]
struct Rule {
    at: u64,
}

impl Rule {
    /// A word of it that does not change.
    fn fixed<T: Copy>(self, offset: usize) -> T {
        // SAFETY: integers of a rule, which nobody changes.
        unsafe { *((self.at + offset as u64) as *const T) }
    }

    fn nth(self) -> u64 {
        self.fixed(offset_of!(AllocRule, nth))
    }

    fn changed(self, asked: Attributes) -> Attributes {
        let of = |offset| self.fixed::<u32>(offset);
        let node = NodeId::new(of(offset_of!(AllocRule, node))).filter(|node| (node.index() as u32) < process::nodes());
        let chosen = ProtocolId::chosen(of(offset_of!(AllocRule, protocol)));
        let (protocol, operation) = chosen.unwrap_or((asked.protocol, asked.operation));
        Attributes {
            block: BlockSize::new(of(offset_of!(AllocRule, block_bytes)).into()).unwrap_or(asked.block),
            homes: match of(offset_of!(AllocRule, homes)) {
                alloc_homes::ROUND_ROBIN => Placement::RoundRobin,
                alloc_homes::FIRST_TOUCH => Placement::FirstTouch,
                alloc_homes::SLICES => Placement::Slices,
                alloc_homes::NODE => node.map_or(asked.homes, Placement::Node),
                _ => asked.homes,
            },
            protocol,
            operation,
        }
    }

    fn count(self, bytes: u64) {
        for (offset, amount) in [(offset_of!(AllocRule, allocations), 1), (offset_of!(AllocRule, bytes), bytes)] {
            // SAFETY: a word that everybody changes atomically.
            unsafe { AtomicU64::from_ptr((self.at + offset as u64) as *mut u64) }.fetch_add(amount, Ordering::Relaxed);
        }
    }
}

/// An allocation that is asked for.
pub struct AskedAllocation {
    /// The place in the program that asks.
    pub by: u64,
    rule: Option<Rule>,
}

impl AskedAllocation {
    /// What the entry was called with whose `rbp` that is.
    pub fn at(frame: u64) -> AskedAllocation {
        let rule = Table::of_process().and_then(|table| {
            let node = u64::from(process::number()) << COUNT_BITS;
            let next = |last: u64| if last >> COUNT_BITS == node >> COUNT_BITS { last + 1 } else { node + 1 };
            let last = COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
            let number = next(last.unwrap_or(node)) - node;
            let of_callers = table.of_callers(frame);
            let of_number = || (0..table.head.rules).find_map(|k| table.rule(k).filter(|rule| rule.nth() == number));
            of_number().or(of_callers)
        });
        AskedAllocation { by: Caller::of_entry(frame).at, rule }
    }

    /// Whether it has a rule.
    pub fn is_changed(&self) -> bool {
        self.rule.is_some()
    }

    /// What it gets where the program asks for this.
    pub fn changed(&self, asked: Attributes) -> Attributes {
        self.rule.map_or(asked, |rule| rule.changed(asked))
    }

    /// It has got so many bytes.
    pub fn count(&self, bytes: u64) {
        if let Some(rule) = self.rule {
            rule.count(bytes);
        }
    }
}
