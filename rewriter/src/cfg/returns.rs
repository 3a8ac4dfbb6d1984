//! Which calls may return.
//!
//! Compilers put unrelated code behind a call of a function that never returns. Following the edge to it would make values
//! that are constant look as if they were not. Only the search for jump tables uses this: the code behind every call is emitted, and
//! liveness assumes that every call returns. Which imported functions never return is known by name (C11, POSIX, Itanium C++ ABI).
//!
//! A call behind which its frame ends does not return either: its compiler knew, of whatever module the callee is.
//!
//! An instruction *returns* if a return, or a jump to something unknown, can be reached from it; a call returns if its callee and
//! the instruction behind it do. Solved backwards from the returns, so that mutual recursion comes out right.

use super::Sources;
use crate::disasm::{Flow, InsnId, Insns};
use crate::elf_write::frames::FrameInfo;
use crate::ids::Vaddr;
use crate::image::Image;
use iced_x86::OpKind;

/// The instructions from which a return can be reached.
pub struct Returns {
    reached: Vec<bool>,
    /// Ends of frames, sorted.
    ends: Vec<Vaddr>,
}

impl Returns {
    /// Solves for a whole module.
    pub fn solve(image: &Image, insns: &Insns, frames: &FrameInfo, sources: &Sources) -> Returns {
        let n = insns.len();
        let mut ends: Vec<Vaddr> = frames.fdes.iter().map(|f| f.end).collect();
        ends.sort();
        let at_end = |call: InsnId| ends.binary_search(&insns.end(call)).is_ok();
        // (next, overlapping instruction)
        let overlapping = (insns.main..n).map(|i| InsnId(i as u32));
        let mut overlapping: Vec<(InsnId, InsnId)> = overlapping.filter_map(|id| Some((insns.next(id)?, id))).collect();
        overlapping.sort_unstable();
        let mut set = vec![false; n];
        let mut work = Vec::new();
        for (i, insn) in insns.iter().enumerate() {
            let id = InsnId(i as u32);
            let unknown_jump = insn.flow == Flow::IndirectJmp && !never_returns(image, insns, id);
            let leaves = matches!(insn.flow, Flow::Jmp | Flow::Cond) && insn.target().is_none();
            if insn.flow == Flow::Ret || unknown_jump || leaves {
                work.push(id);
            }
        }
        while let Some(id) = work.pop() {
            if std::mem::replace(&mut set[id.ix()], true) {
                continue;
            }
            let mut enter = |p: InsnId| {
                let next_returns = || !at_end(p) && insns.next(p).is_some_and(|n| n == id || set[n.ix()]);
                let ready = match insns.flow(p) {
                    Flow::Call => insns.target(p).is_none_or(|t| t == id || set[t.ix()]) && next_returns(),
                    Flow::IndirectCall => next_returns() && !never_returns(image, insns, p),
                    _ => true,
                };
                if ready && !set[p.ix()] {
                    work.push(p);
                }
            };
            if id.0 > 0 && insns.next(InsnId(id.0 - 1)) == Some(id) {
                enter(InsnId(id.0 - 1));
            }
            sources.of(id).for_each(&mut enter);
            let first = overlapping.partition_point(|o| o.0 < id);
            overlapping[first..].iter().take_while(|o| o.0 == id).for_each(|o| enter(o.1));
        }
        Returns { reached: set, ends }
    }

    /// Whether control may pass behind `call`; true for anything but a call.
    pub fn call_returns(&self, image: &Image, insns: &Insns, call: InsnId) -> bool {
        let goes_on = || self.ends.binary_search(&insns.end(call)).is_err();
        match insns.flow(call) {
            Flow::Call => insns.target(call).is_none_or(|t| self.reached[t.ix()]) && goes_on(),
            Flow::IndirectCall => !never_returns(image, insns, call) && goes_on(),
            _ => true,
        }
    }
}

/// Whether an indirect jump or call goes through the GOT slot of a function that never returns.
fn never_returns(image: &Image, insns: &Insns, id: InsnId) -> bool {
    let insn = insns.decode(image, id);
    insn.op0_kind() == OpKind::Memory
        && insn.is_ip_rel_memory_operand()
        && image.noreturn_slots.contains(&Vaddr(insn.ip_rel_memory_address()))
}
