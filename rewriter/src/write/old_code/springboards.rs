//! What remains at the old addresses: springboards at plausible indirect targets, trap bytes everywhere else that was decoded.
//!
//! A springboard is `jmp rel32`, or, where its five bytes would cover another possible target, a chain of `jmp rel8` to a `jmp rel32` in
//! bytes nearby where no possible target begins ([`crate::write::old_code::chains`]). A function that is a `ret` of one byte may stay as it is. Where
//! nothing fits there is a trap byte, counted.
//!
//! Output: the patched bytes (in the output file's copy of the input) and the trap map. Invariants: bytes that were not
//! decoded as code are untouched; no byte of an old instruction can run, but for such a `ret`; every old instruction's address has a springboard or
//! a row in the trap map, unless a springboard covers it; no springboard covers a root or a [`Computed`] target.
//! Source: SDM volume 2, JMP; the second tactic is e9patch's (Duck, Gao, Roychoudhury, PLDI 2020).

use crate::base::addresses::Vaddr;
use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::graph::computed_targets::Computed;
use crate::read::image::Image;
use crate::write::new_code::layout::PlacedCode;
use crate::write::output::Output;
use blizzard_contract::TrapEntry;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use std::ops::Range;

/// `jmp rel32`, and its bytes.
pub(super) const LONG_JUMP: u8 = 0xe9;
pub(super) const LONG: usize = 5;
/// `ret`.
const RET: u8 = 0xc3;
pub(super) const TRAP: u8 = 0xcc;
/// Least alignment of constants between functions.
const ALIGNMENT: u64 = 8;

/// What was left behind.
#[derive(Debug)]
pub struct LeftBehind {
    /// Instructions that need no row in the trap map, because a springboard covers their first bytes; sorted.
    boarded: Vec<InsnId>,
    /// Of both kinds.
    pub springboards: usize,
    /// Of these, those of several jumps.
    pub short: usize,
    /// Roots that had no room for one.
    pub crowded: usize,
    /// Somewhere data that look like trap bytes stand right behind an instruction.
    pub mixed: bool,
}

/// The byte belongs to a decoded instruction or to padding.
pub(super) const COVERED: u8 = 1;
/// A possible target begins here.
pub(super) const TARGET: u8 = 2;
/// The byte belongs to a springboard and is none of its instruction's bytes any more.
pub(super) const USED: u8 = 4;
/// The byte of a possible target, which is another one's displacement at the same time or must stay for another reason.
pub(super) const SHARED: u8 = 8;
/// The second byte of a root that has no springboard yet, and no other place for one.
const RESERVED: u8 = 64;
/// A decoded instruction begins here.
pub(super) const BEGIN: u8 = 16;
/// It does not run behind the one in front of it.
pub(super) const ENTERED: u8 = 32;

/// One executable section while it is patched.
pub(super) struct OldSection {
    pub(super) va: Vaddr,
    pub(super) bytes: Vec<u8>,
    pub(super) state: Vec<u8>,
}

/// Patches `out`, which begins with a copy of the input file.
pub fn patch(out: &mut Output, image: &Image, insns: &Insns, computed: &Computed, placed: &PlacedCode) -> LeftBehind {
    let mut left = LeftBehind { boarded: Vec::new(), springboards: 0, short: 0, crowded: 0, mixed: false };
    let mut roots: Vec<(Vaddr, InsnId)> = insns.roots.iter().map(|&r| (insns.va(r), r)).collect();
    roots.sort();
    let mut main = 0;
    for (s, section) in image.exec.iter().enumerate() {
        let size = section.bytes as usize;
        let mut old = OldSection { va: section.va, bytes: image.exec_bytes(s).to_vec(), state: vec![0; size] };
        let end = section.va + section.bytes;
        let stop = insns.main_range(section.va, end).end;
        let overlapping = (insns.main..insns.len()).filter(|&i| {
            let va = insns.va(InsnId(i as u32));
            va >= section.va && va < end
        });
        let ids = (main..stop).chain(overlapping).map(|i| InsnId(i as u32));
        main = stop;
        old.cover(insns, ids.clone(), computed);
        old.cover_padding(image.exec_bytes(s), &insns.data);
        left.mixed |= old.has_traps_behind_code();
        let here = roots.partition_point(|r| r.0 < section.va)..roots.partition_point(|r| r.0 < end);
        old.place_boards(&roots[here], image.exec_bytes(s), placed, &mut left);
        for id in ids {
            let at = (insns.va(id) - old.va) as usize;
            if old.state[at] & USED != 0 {
                left.boarded.push(id);
            }
        }
        out.patch(section.off.0, &old.bytes);
        image.give_back();
    }
    left.boarded.sort_unstable();
    left
}

impl LeftBehind {
    /// How many rows the trap map has.
    pub fn trap_count(&self, insns: &Insns) -> usize {
        insns.len() - self.boarded.len()
    }

    /// The trap map, by rising old address.
    pub fn traps(&self, insns: &Insns, placed: &PlacedCode) -> impl Iterator<Item = TrapEntry> {
        let split = self.boarded.partition_point(|id| id.ix() < insns.main);
        let (main, overlapping) = self.boarded.split_at(split);
        let mut overlapping = rows(insns, placed, insns.main..insns.len(), overlapping).peekable();
        let mut main = rows(insns, placed, 0..insns.main, main).peekable();
        std::iter::from_fn(move || match (main.peek(), overlapping.peek()) {
            (Some(m), Some(o)) if o.old < m.old => overlapping.next(),
            (None, _) => overlapping.next(),
            _ => main.next(),
        })
    }
}

/// Those of instructions that follow each other, `boarded` ones left out.
fn rows(insns: &Insns, placed: &PlacedCode, ids: Range<usize>, boarded: &[InsnId]) -> impl Iterator<Item = TrapEntry> {
    let mut boarded = boarded.iter().peekable();
    ids.map(|i| InsnId(i as u32))
        .filter(move |id| boarded.next_if(|b| *b == id).is_none())
        .map(|id| TrapEntry { old: insns.offset(id), new: (placed.begin(id) - placed.code_va) as u32 })
}

impl OldSection {
    /// Replaces every decoded instruction by trap bytes.
    fn cover(&mut self, insns: &Insns, ids: impl Iterator<Item = InsnId>, computed: &Computed) {
        // Instructions that follow each other.
        let mut run = 0..0;
        let mut follows = None;
        for id in ids {
            let at = (insns.va(id) - self.va) as usize;
            if at != run.end {
                self.cover_bytes(std::mem::replace(&mut run, at..at));
            }
            run.end = at + usize::from(insns.length(id));
            let target = if computed.may_reach(id) { TARGET } else { 0 };
            let entered = if follows == Some(id) { 0 } else { ENTERED };
            self.state[at] |= BEGIN | target | entered;
            follows = insns.next(id);
        }
        self.cover_bytes(run);
    }

    fn cover_bytes(&mut self, range: Range<usize>) {
        self.bytes[range.clone()].fill(TRAP);
        self.state[range].iter_mut().for_each(|state| *state |= COVERED);
    }

    /// Alignment padding behind code (nops, int3) never runs: springboards may use it. Where it does not end at code, constants
    /// that look the same may begin at any multiple of eight.
    fn cover_padding(&mut self, original: &[u8], data: &[Vaddr]) {
        let mut decoder = Decoder::new(64, original, DecoderOptions::NONE);
        let mut at = 0;
        while let Some(gap) = self.state[at..].windows(2).position(|w| w[0] & COVERED != 0 && w[1] & COVERED == 0) {
            at += gap + 1;
            let here = self.va + at as u64;
            let first_data = data.partition_point(|d| *d < here);
            let limit = data.get(first_data).map_or(original.len(), |d| original.len().min((*d - self.va) as usize));
            let aligned = (here.0.next_multiple_of(ALIGNMENT) - self.va.0) as usize;
            // Ends of the padding's instructions.
            let (mut end, mut certain) = (at, at);
            while end < limit && self.state[end] & COVERED == 0 {
                decoder.set_position(end).expect("the offset lies in the section");
                let insn = decoder.decode();
                let next = end + insn.len();
                let padding = !insn.is_invalid() && matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
                if !padding || next > limit || self.state[end..next].iter().any(|s| s & COVERED != 0) {
                    break;
                }
                end = next;
                if end <= aligned {
                    certain = end;
                }
            }
            let at_code = self.state.get(end).is_none_or(|s| s & COVERED != 0);
            let end = if at_code { end } else { certain };
            self.state[at..end].fill(COVERED);
            self.bytes[at..end].fill(TRAP);
            at = at.max(end);
        }
    }

    /// Whether a byte that stays looks like a trap byte, where a long jump over the beginning of an instruction in front would have it.
    fn has_traps_behind_code(&self) -> bool {
        let stays = |k: usize| self.state[k] & COVERED == 0 && self.bytes[k] == TRAP;
        let follows = |k: usize| self.state[k - 1] & COVERED != 0;
        let reaches = |k: usize| self.state[k.saturating_sub(LONG - 1)..k].iter().any(|state| state & BEGIN != 0);
        (1..self.state.len()).any(|k| stays(k) && follows(k) && reaches(k))
    }

    fn place_boards(&mut self, roots: &[(Vaddr, InsnId)], original: &[u8], placed: &PlacedCode, left: &mut LeftBehind) {
        for (va, _) in roots {
            self.state[(*va - self.va) as usize] |= TARGET;
        }
        // Long ones first: they decide where the jumps of the short ones can stand.
        let mut tight = Vec::new();
        for &(va, id) in roots {
            let at = (va - self.va) as usize;
            if self.free(at + 1..at + LONG) && self.state[at] & USED == 0 {
                self.long(at, placed.begin(id));
                left.springboards += 1;
            } else {
                tight.push((at, id));
            }
        }
        // Last what leaves another target no byte but its trap byte: what stands there may have a springboard of its own.
        // Of these the last first, because its first byte is the one in front's displacement.
        tight.sort_by_key(|&(at, _)| {
            let shares = self.state.get(at + 1).is_some_and(|second| second & TARGET != 0);
            (shares, if shares { usize::MAX - at } else { at })
        });
        // No chain of one shall take what the first jump of another needs.
        for &(at, _) in &tight {
            if let Some(second) = self.state.get_mut(at + 1).filter(|second| **second & TARGET == 0) {
                *second |= RESERVED;
            }
        }
        for (at, id) in tight {
            if let Some(second) = self.state.get_mut(at + 1) {
                *second &= !RESERVED;
            }
            if self.chain(at, placed.begin(id)) {
                left.springboards += 1;
                left.short += 1;
            } else if original[at] == RET && self.state[at] & SHARED == 0 && placed.end(id) - placed.begin(id) == 1 {
                // Nothing is inserted in front of it, so it does what its new code does.
                self.bytes[at] = RET;
                self.state[at] |= SHARED;
                left.springboards += 1;
            } else {
                left.crowded += 1;
            }
        }
    }

    /// Whether all bytes of `range` may become part of a springboard.
    pub(super) fn free(&self, range: Range<usize>) -> bool {
        self.state.get(range).is_some_and(|s| s.iter().all(|s| *s & !(BEGIN | ENTERED) == COVERED))
    }

    /// Puts `jmp rel32` there.
    pub(super) fn long(&mut self, at: usize, to: Vaddr) {
        let rel = (to - (self.va + (at + LONG) as u64)) as i64 as i32;
        self.bytes[at] = LONG_JUMP;
        self.bytes[at + 1..at + LONG].copy_from_slice(&rel.to_le_bytes());
        for state in &mut self.state[at..at + LONG] {
            *state |= USED;
        }
    }
}
