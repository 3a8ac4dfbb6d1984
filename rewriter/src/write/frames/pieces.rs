//! Where the code of one FDE went.
//!
//! Input: the old range of an FDE, its steps, and a [`CodeMap`]. Output: [`FdePart`]s (parts of the old range with their new
//! places, in old order) and the pieces they form: one FDE of the output each.
//!
//! Invariant: within a piece both old and new addresses ascend, and nothing but padding lies between two runs. Layouts keep
//! a function's order, so nearly every FDE has one piece; where not, each further piece repeats the steps before it.

use crate::base::addresses::Vaddr;
use crate::write::frames::cfi::CfiStep;
use std::ops::Range;

/// Largest padding between two runs of a piece, in bytes: code is never aligned to more than a cache line.
pub const MAX_PADDING: u64 = 64;

/// A place in new code from which on rsp is lower than the rows of the old code say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackMove {
    pub at: Vaddr,
    /// In bytes; 0: inserted code has given everything back.
    pub lower_by: u32,
}

/// A call in new code that stands apart from what it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApartCall {
    /// The old instruction in whose new code the program goes on.
    pub old: Vaddr,
    /// Where the call ends.
    pub end: Vaddr,
    /// By so many bytes rsp is lower than at that instruction when the callee has returned, arguments included.
    pub lower_by: u32,
    /// Between the call before it and this one stands what has a frame of its own: a tail's call, a copy of a loop.
    pub begins_anew: bool,
}

/// Where old code went.
pub trait CodeMap {
    /// New address where the code of the old instruction at `old` begins, its inserted checks included; `None`: no
    /// instruction of the old code begins there, or it was not relocated.
    fn begin(&self, old: Vaddr) -> Option<Vaddr>;

    /// New address just behind everything emitted for the last old instruction that begins before `old_end`.
    fn end(&self, old_end: Vaddr) -> Option<Vaddr>;

    /// New address of the first relocated instruction that begins in `[from, to)`.
    fn first(&self, from: Vaddr, to: Vaddr) -> Option<Vaddr> {
        (from.0..to.0).find_map(|a| self.begin(Vaddr(a)))
    }

    /// Whether the new code of the old instructions that begin in `[from, to)` is in their order, with at most
    /// [`MAX_PADDING`] bytes between two. A map that knows this of its layout need not look at each instruction.
    fn in_order(&self, from: Vaddr, to: Vaddr) -> bool {
        let mut previous: Option<Vaddr> = None;
        for old in (from.0..to.0).map(Vaddr) {
            let Some(begin) = self.begin(old) else { continue };
            if previous.is_some_and(|end| begin < end || begin - end > MAX_PADDING) {
                return false;
            }
            previous = self.end(old + 1);
        }
        true
    }

    /// Whether the code of a frame is in what the map leads to.
    fn has(&self, _old: Range<Vaddr>) -> bool {
        true
    }

    /// Further places of old code that begins in the range, in which nothing is called and rsp does not move: where it begins in the old
    /// code, and the new code.
    fn copies(&self, _old: Range<Vaddr>) -> Vec<(Vaddr, Range<Vaddr>)> {
        Vec::new()
    }

    /// The calls that belong to old code in the range and stand apart, by where they end.
    fn calls_apart(&self, _old: Range<Vaddr>) -> Vec<ApartCall> {
        Vec::new()
    }

    /// The moves of rsp by inserted code in the new code `new`, ascending. Each instruction's inserted code ends with a
    /// move to 0, if it has any.
    fn stack_moves(&self, _new: Range<Vaddr>) -> &[StackMove] {
        &[]
    }
}

/// A part of an FDE's old code that is one range of new code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FdePart {
    pub old: Range<Vaddr>,
    pub new: Range<Vaddr>,
    /// How many of the FDE's steps hold in it.
    pub steps: usize,
}

/// The runs of the old code `old`, in old order, those without new code left out: one for each row where the map is
/// in order, else one for each instruction.
pub(super) fn runs(old: Range<Vaddr>, steps: &[CfiStep], map: &dyn CodeMap) -> Result<Vec<FdePart>, String> {
    let in_order = map.in_order(old.start, old.end);
    let mut runs = Vec::new();
    let mut done = 0;
    let mut from = old.start;
    while from < old.end {
        done += steps[done..].iter().take_while(|s| s.at <= from).count();
        let row = from..steps.get(done).map_or(old.end, |s| s.at);
        from = row.end;
        if in_order {
            push(&mut runs, row.clone(), map.first(row.start, row.end), done, map)?;
            continue;
        }
        let mut starts = (row.start.0..row.end.0).map(Vaddr).filter(|&a| map.begin(a).is_some()).peekable();
        while let Some(start) = starts.next() {
            let end = *starts.peek().unwrap_or(&row.end);
            push(&mut runs, start..end, map.begin(start), done, map)?;
        }
    }
    Ok(runs)
}

/// Adds a run if there is new code for it.
fn push(
    runs: &mut Vec<FdePart>,
    old: Range<Vaddr>,
    begin: Option<Vaddr>,
    steps: usize,
    map: &dyn CodeMap,
) -> Result<(), String> {
    let Some(begin) = begin else { return Ok(()) };
    let end = map.end(old.end).filter(|&e| e >= begin);
    let end = end.ok_or_else(|| format!("the new code of {}..{} ends before it begins", old.start, old.end))?;
    if begin < end {
        runs.push(FdePart { old, new: begin..end, steps });
    }
    Ok(())
}

/// Groups runs into pieces: index ranges of `runs`.
pub(super) fn pieces(runs: &[FdePart]) -> Vec<Range<usize>> {
    let mut pieces: Vec<Range<usize>> = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        let follows = i > 0 && {
            let previous = &runs[i - 1].new;
            run.new.start >= previous.end && run.new.start - previous.end <= MAX_PADDING
        };
        match pieces.last_mut() {
            Some(piece) if follows => piece.end = i + 1,
            _ => pieces.push(i..i + 1),
        }
    }
    pieces
}
