//! The way back from an instruction: what may run before it, and what last wrote a register.
//!
//! Input: decoded instructions, frames, calls that return, the tables known so far. Output: definitions that reach a place, and the constant that a
//! register holds there. **Invariant**: where something unknown may come in between, there is no answer.

use crate::base::addresses::Vaddr;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::{Insns, Sources};
use crate::decode::regs::writes;
use crate::graph::jump_table::{Goal, JumpTable, own_entries, relative_starts};
use crate::graph::returns::Returns;
use crate::read::frames::{FdeInfo, FrameInfo};
use crate::read::image::Image;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

/// Most instructions that one backward search visits.
const MAX_STEPS: usize = 20_000;

/// Most register copies that one search follows.
pub(super) const MAX_COPIES: usize = 16;

/// Most numbers that are added to an address.
const MAX_SUMS: usize = 3;

/// What does not change while tables are found.
#[derive(Clone, Copy)]
pub(super) struct TracedModule<'x, 'a> {
    pub(super) image: &'x Image<'a>,
    pub(super) insns: &'x Insns,
    pub(super) frames: &'x FrameInfo,
    pub(super) sources: &'x Sources,
    /// The indirect ones.
    pub(super) jumps: &'x [InsnId],
    pub(super) returns: &'x Returns,
}

pub(super) struct Finder<'x, 'a> {
    pub(super) image: &'x Image<'a>,
    pub(super) insns: &'x Insns,
    frames: &'x FrameInfo,
    sources: &'x Sources,
    /// (target, source) of the tables found before, sorted.
    entries: Vec<(InsnId, InsnId)>,
    jumps: &'x [InsnId],
    returns: &'x Returns,
    known: &'x [JumpTable],
    /// The only jump that is assumed to enter code which nothing else leads to.
    pub(super) assumed: Option<InsnId>,
}

/// A value that reaches a use.
pub(super) enum Reach {
    /// The instructions that define it.
    Defs(Vec<InsnId>),
    Unknown,
}

impl<'x, 'a> Finder<'x, 'a> {
    pub(super) fn new(module: &TracedModule<'x, 'a>, known: &'x [JumpTable]) -> Self {
        let TracedModule { image, insns, frames, sources, jumps, returns } = *module;
        let mut entries = Vec::new();
        let starts = relative_starts(known);
        for t in known {
            let own = t.targets[..own_entries(t, &starts)].iter().filter_map(Goal::insn);
            let from = frame_of(frames, insns.va(t.jump));
            let own = own.take_while(|to| !is_in_another_function(insns, frames, from, *to));
            entries.extend(own.map(|to| (to, t.jump)));
        }
        entries.sort_unstable();
        entries.dedup();
        Finder { image, insns, frames, sources, entries, jumps, returns, known, assumed: None }
    }

    pub(super) fn is_known(&self, jump: InsnId) -> bool {
        self.known.binary_search_by_key(&jump, |t| t.jump).is_ok()
    }

    pub(super) fn decode(&self, id: InsnId) -> Instruction {
        self.insns.decode(self.image, id)
    }

    /// The value of `reg` before `at`, if it is the same address on every path. Copies are followed, also around a loop: a register that goes
    /// through others and comes back adds no value of its own.
    pub(super) fn constant(&self, at: InsnId, reg: Register) -> Option<Vaddr> {
        self.constant_sum(at, reg, MAX_SUMS)
    }

    /// As [`Finder::constant`]; with so many numbers added on the way.
    fn constant_sum(&self, at: InsnId, reg: Register, sums: usize) -> Option<Vaddr> {
        let mut seen = vec![(at, reg.full_register())];
        let mut followed = 0;
        let mut value = None;
        while let Some(&(at, reg)) = seen.get(followed) {
            followed += 1;
            if followed > MAX_COPIES {
                return None;
            }
            let Reach::Defs(defs) = self.reach(at, reg) else { return None };
            for def in defs {
                let insn = self.decode(def);
                let v = match insn.mnemonic() {
                    Mnemonic::Lea if insn.is_ip_rel_memory_operand() && insn.op0_register().is_gpr64() => {
                        Vaddr(insn.ip_rel_memory_address())
                    }
                    Mnemonic::Mov if insn.op0_register().is_gpr64() && insn.op1_kind() == OpKind::Register => {
                        let copied = (def, insn.op1_register());
                        if !seen.contains(&copied) {
                            seen.push(copied);
                        }
                        continue;
                    }
                    Mnemonic::Mov
                        if insn.op0_register().is_gpr()
                            && matches!(
                                insn.op1_kind(),
                                OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
                            )
                            && !self.image.pie =>
                    {
                        Vaddr(insn.immediate(1))
                    }
                    Mnemonic::Add if insn.op0_register().is_gpr64() && insn.op1_kind() == OpKind::Register => {
                        let sums = sums.checked_sub(1)?;
                        let (a, b) = (insn.op0_register(), insn.op1_register());
                        match (self.number(def, a), self.number(def, b)) {
                            (Some(n), None) => self.constant_sum(def, b, sums)? + n,
                            (None, Some(n)) => self.constant_sum(def, a, sums)? + n,
                            _ => return None,
                        }
                    }
                    _ => return None,
                };
                if value.is_some_and(|old| old != v) {
                    return None;
                }
                value = Some(v);
            }
        }
        value
    }

    /// The 64-bit number in `reg` before `at`.
    fn number(&self, at: InsnId, reg: Register) -> Option<u64> {
        let insn = self.decode(self.only_def(at, reg)?);
        (insn.mnemonic() == Mnemonic::Mov && insn.op1_kind() == OpKind::Immediate64).then(|| insn.immediate64())
    }

    pub(super) fn only_def(&self, at: InsnId, reg: Register) -> Option<InsnId> {
        match self.reach(at, reg.full_register()) {
            Reach::Defs(defs) if defs.len() == 1 => Some(defs[0]),
            _ => None,
        }
    }

    /// All definitions of a 64-bit register that reach the point before `at`.
    pub(super) fn reach(&self, at: InsnId, reg: Register) -> Reach {
        let mut factory = InstructionInfoFactory::new();
        let mut seen = std::collections::HashSet::new();
        let mut work = vec![at];
        let mut defs = Vec::new();
        while let Some(here) = work.pop() {
            if !seen.insert(here) {
                continue;
            }
            if seen.len() > MAX_STEPS {
                return Reach::Unknown;
            }
            let Some(preds) = self.preds(here) else { return Reach::Unknown };
            for p in preds {
                let insn = self.decode(p);
                let writes = writes(&mut factory, &insn, reg);
                let flow = self.insns.flow(p);
                if writes {
                    defs.push(p);
                } else if matches!(flow, Flow::Call | Flow::IndirectCall)
                    && !callee_saved(reg)
                    && !self.spared_by_callee(p, reg)
                {
                    return Reach::Unknown;
                } else {
                    work.push(p);
                }
            }
        }
        defs.sort();
        defs.dedup();
        Reach::Defs(defs)
    }

    /// Whether the callee of a direct call provably leaves a caller-saved register alone, as callers compiled with
    /// `-fipa-ra` rely on.
    fn spared_by_callee(&self, call: InsnId, reg: Register) -> bool {
        const MAX_CALLEE: usize = 4000;
        let Some(entry) = self.insns.target(call) else { return false };
        let mut factory = InstructionInfoFactory::new();
        let mut seen = std::collections::HashSet::new();
        let mut work = vec![entry];
        while let Some(id) = work.pop() {
            if !seen.insert(id) {
                continue;
            }
            let insn = self.decode(id);
            let (flow, target) = (self.insns.flow(id), self.insns.target(id));
            let unknown = matches!(flow, Flow::IndirectCall)
                || flow == Flow::IndirectJmp && !self.is_known(id)
                || matches!(flow, Flow::Call | Flow::Jmp | Flow::Cond) && target.is_none();
            if unknown || seen.len() > MAX_CALLEE || writes(&mut factory, &insn, reg) {
                return false;
            }
            work.extend(target);
            work.extend(self.insns.next(id));
            if let Ok(t) = self.known.binary_search_by_key(&id, |t| t.jump) {
                work.extend(self.known[t].targets.iter().filter_map(Goal::insn));
            }
        }
        true
    }

    /// What may run right before `id`. None: control may come from outside.
    pub(super) fn preds(&self, id: InsnId) -> Option<Vec<InsnId>> {
        let fragment = self.insns.fragments.binary_search(&id).is_ok();
        let held = |list: &[InsnId]| list.binary_search(&id).is_ok();
        if !fragment && (held(&self.insns.starts) || held(&self.insns.roots)) {
            return None;
        }
        let mut out = Vec::new();
        if id.0 > 0 && id.ix() < self.insns.main {
            let p = InsnId(id.0 - 1);
            if self.insns.next(p) == Some(id) && self.returns.call_returns(self.insns, p) {
                out.push(p);
            }
        }
        out.extend(self.sources.of(id).filter(|s| self.insns.flow(*s) != Flow::Call));
        let from = self.entries.partition_point(|(t, _)| *t < id);
        out.extend(self.entries[from..].iter().take_while(|(t, _)| *t == id).map(|(_, s)| *s));
        // Any instruction of a frame may be the target of the frame's unresolved jumps; what nothing else leads to is,
        // unless it is padding.
        if out.is_empty() {
            if self.decode(id).mnemonic() == Mnemonic::Nop {
                return Some(out);
            }
            if let Some(jump) = self.assumed {
                return Some(vec![jump]);
            }
            let frame = self.frame_of(self.insns.va(id))?;
            let (start, end) = (frame.0, frame.1);
            if fragment {
                // The jump that leads here is in another frame.
                return None;
            }
            let from = self.jumps.partition_point(|j| self.insns.va(*j) < start);
            out.extend(
                self.jumps[from..].iter().take_while(|j| self.insns.va(**j) < end).filter(|j| !self.is_known(**j)),
            );
            // The compiler may not have known that a call never returns: then what stands behind it is the code for its return.
            if let Some(call) = id.0.checked_sub(1).map(InsnId)
                && id.ix() < self.insns.main
                && self.insns.next(call) == Some(id)
            {
                out.push(call);
            }
            if out.is_empty() {
                return None;
            }
        }
        Some(out)
    }

    pub(super) fn frame_of(&self, va: Vaddr) -> Option<(Vaddr, Vaddr)> {
        frame_of(self.frames, va).map(|f| (f.start, f.end))
    }
}

fn frame_of(frames: &FrameInfo, va: Vaddr) -> Option<&FdeInfo> {
    let i = frames.fdes.partition_point(|f| f.start <= va).checked_sub(1)?;
    Some(&frames.fdes[i]).filter(|f| va < f.end)
}

/// Whether `to` is in the middle of a function other than the one with the frame `from`. A table whose end is not known may go on with entries of the next
/// table, which lead there; no jump does. The new table has those entries, but they say nothing about what runs before what.
fn is_in_another_function(insns: &Insns, frames: &FrameInfo, from: Option<&FdeInfo>, to: InsnId) -> bool {
    let (Some(from), Some(there)) = (from, frame_of(frames, insns.va(to))) else { return false };
    from.start != there.start && !from.fragment && !there.fragment
}

/// psABI figure 3.4: registers that a call preserves.
fn callee_saved(reg: Register) -> bool {
    matches!(
        reg,
        Register::RBX | Register::RBP | Register::R12 | Register::R13 | Register::R14 | Register::R15 | Register::RSP
    )
}
