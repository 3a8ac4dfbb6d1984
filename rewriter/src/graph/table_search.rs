//! Recognises the jump tables of gcc and clang, so that their jumps lead straight to new code.
//!
//! Input: instructions. Output: [`JumpTable`]s. A table that is not recognised costs a springboard or a trap, never a wrong
//! jump; a table that is recognised wrongly would. So nothing about it is guessed:
//! * the address of the table and the value added to its entries are constants on *every* path that leads to the use
//!   (backward search over all predecessors, including those that enter through other unresolved jumps);
//! * a bound is believed where the code proves it ([`crate::graph::bounds`]); else the new table has as many entries as there are words, from the
//!   table's start, that lead to an instruction or to where no function is. A real table is a prefix of that, and a surplus entry is never read.
//!   (Compilers let the cases that cannot happen lead to the end of the function, behind its last instruction.)
//!
//! Forms: `jmp [table + i*8]` and `mov r, [table + i*8]; jmp r` (fixed-address files);
//! `lea b, [rip + table]; movsxd r, [b + i*4]; add r, b; jmp r` and its -O0 relatives (position-independent); `lea b, [rip + table]; add b, [b + i*8];
//! jmp b` (gcc's large model). A constant may be the sum of an address and a number (clang's).

use crate::base::addresses::Vaddr;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::{Insns, Sources};
use crate::graph::jump_table::{Entries, Goal, JumpTable, MAX_ENTRIES, own_entries, relative_starts};
use crate::graph::returns::Returns;
use crate::graph::trace::{Finder, MAX_COPIES, TracedModule};
use crate::read::frames::FrameInfo;
use crate::read::image::Image;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::collections::HashMap;

/// What one round found.
pub struct FoundTables {
    /// Sorted by jump.
    pub tables: Vec<JumpTable>,
    /// Entries that lead to code not decoded yet.
    pub new_targets: Vec<Vaddr>,
}

/// Looks at every indirect jump. First on the assumption that code to which neither branches nor the tables found so far lead is entered by the
/// jump at hand, until no more tables are found; then edges alone count, and every table must be recognised again with the edges of all.
/// What is not is dropped, until the rest confirms itself.
pub fn find(image: &Image, insns: &Insns, frames: &FrameInfo) -> FoundTables {
    let sources = Sources::new(insns);
    let returns = Returns::solve(image, insns, frames, &sources);
    let jumps: Vec<InsnId> = insns.ends().filter(|id| insns.flow(*id) == Flow::IndirectJmp).collect();
    let module = TracedModule { image, insns, frames, sources: &sources, jumps: &jumps, returns: &returns };
    let mut found = FoundTables { tables: Vec::new(), new_targets: Vec::new() };
    loop {
        let mut finder = Finder::new(&module, &found.tables);
        let mut more = Vec::new();
        for &jump in &jumps {
            if !finder.is_known(jump) {
                finder.assumed = Some(jump);
                more.extend(finder.recognise(jump, &mut found.new_targets));
            }
        }
        if more.is_empty() {
            break;
        }
        found.tables.extend(more);
        found.tables.sort_by_key(|t| t.jump);
    }
    loop {
        let finder = Finder::new(&module, &found.tables);
        let mut unused = Vec::new();
        let again = found.tables.iter().filter_map(|t| {
            // More edges may cost a bound, never give one back: so this ends.
            let new = finder.recognise(t.jump, &mut unused)?;
            Some(if new.targets.len() < t.targets.len() {
                JumpTable { targets: t.targets.clone(), ..new }
            } else {
                new
            })
        });
        let confirmed: Vec<JumpTable> = again.collect();
        let all = confirmed.iter().map(|t| t.targets.len()).eq(found.tables.iter().map(|t| t.targets.len()));
        found.tables = confirmed;
        if all {
            let starts = relative_starts(&found.tables);
            for t in &mut found.tables {
                t.own = own_entries(t, &starts);
                // What is none of the table's need not go on behind what is no instruction.
                let surplus = t.surplus_words().iter().take_while(|goal| goal.insn().is_some()).count();
                t.targets.truncate(t.own + surplus);
            }
            share(&mut found.tables);
            return found;
        }
    }
}

/// Jumps that share a load share its table: the one with most entries.
fn share(tables: &mut [JumpTable]) {
    let mut first: HashMap<InsnId, usize> = HashMap::with_capacity(tables.len());
    let shared: Vec<(usize, usize)> = (0..tables.len())
        .filter_map(|k| Some((k, *first.entry(tables[k].load).or_insert(k))).filter(|(k, of)| k != of))
        .collect();
    let mut copy = |from: usize, to: usize| {
        let (own, targets) = (tables[from].own, tables[from].targets.clone());
        if (own, targets.len()) > (tables[to].own, tables[to].targets.len()) {
            (tables[to].own, tables[to].targets) = (own, targets);
        }
    };
    shared.iter().for_each(|&(k, of)| copy(k, of));
    shared.iter().for_each(|&(k, of)| copy(of, k));
}

impl Finder<'_, '_> {
    fn recognise(&self, jump: InsnId, new_targets: &mut Vec<Vaddr>) -> Option<JumpTable> {
        let insn = self.decode(jump);
        let (load, at, entries) = match insn.op0_kind() {
            OpKind::Memory if insn.segment_prefix() == Register::None => {
                (jump, self.absolute_table(&insn)?, Entries::Address64)
            }
            OpKind::Register => self.through_register(jump, insn.op0_register())?,
            _ => return None,
        };
        if entries == Entries::Address64 && self.image.pie {
            return None;
        }
        let mut targets = Vec::new();
        let width = entries.width();
        let bytes = self.image.constant_bytes(at, MAX_ENTRIES * width)?;
        let framed = self.frame_of(self.insns.va(jump)).is_some();
        // Without a frame, entries lead to code that nothing else leads to: a mask or a width may say more than the table has. It is believed
        // where all that it allows is known to be code without it.
        let compared = if framed { None } else { self.bound(jump) };
        let proven = compared.or_else(|| self.proven_entries(load, width as u32));
        if !framed && proven.is_none() {
            return None;
        }
        let mut unknown = Vec::new();
        for entry in bytes.chunks_exact(width).take(proven.unwrap_or(usize::MAX)) {
            let va = entries.target(entry);
            match self.insns.at(va) {
                Some(id) => targets.push(Goal::Insn(id)),
                None if !framed && self.image.exec_at(va).is_some() => unknown.push(va),
                None if self.leads_nowhere(va, proven.is_some()) => targets.push(Goal::Old(va)),
                None => break,
            }
        }
        // What may go on where the program or the loader writes is none of ours.
        let ended = targets.len() * width + width <= bytes.len() || proven.is_some_and(|n| n <= targets.len());
        if !ended && self.image.bytes_at(at, bytes.len() + width).is_some_and(|all| all.len() > bytes.len()) {
            return None;
        }
        if !framed && compared.is_none() {
            let all = targets.len() == proven.unwrap_or(0) && targets.iter().all(|goal| goal.insn().is_some());
            return all.then_some(JumpTable { jump, load, at, entries, own: 0, targets });
        }
        new_targets.extend(&unknown);
        let any = targets.iter().any(|goal| goal.insn().is_some());
        (any && unknown.is_empty()).then_some(JumpTable { jump, load, at, entries, own: 0, targets })
    }

    /// Whether an entry that leads to no instruction may be one of its table all the same. A case that cannot happen leads behind the last
    /// instruction of the function or of a part of it, to padding or to the end of the section. Where the number of entries is `proven`, whatever they
    /// lead to is theirs.
    fn leads_nowhere(&self, va: Vaddr, proven: bool) -> bool {
        let inside = self.image.exec_at(va).is_some();
        let behind = || va.0.checked_sub(1).is_some_and(|last| self.image.exec_at(Vaddr(last)).is_some());
        (inside || behind()) && (proven || self.frame_of(va).is_none())
    }

    /// `[table + i*8]` with a constant table.
    fn absolute_table(&self, insn: &Instruction) -> Option<Vaddr> {
        let plain =
            insn.memory_base() == Register::None && insn.memory_index().is_gpr64() && insn.memory_index_scale() == 8;
        (plain && insn.memory_displ_size() >= 4).then(|| Vaddr(insn.memory_displacement64()))
    }

    fn through_register(&self, jump: InsnId, target: Register) -> Option<(InsnId, Vaddr, Entries)> {
        let mut def = self.only_def(jump, target)?;
        let mut insn = self.decode(def);
        for _ in 0..MAX_COPIES {
            let wide = insn.op0_register().is_gpr64() && insn.op1_kind() == OpKind::Register;
            if insn.mnemonic() != Mnemonic::Mov || !wide {
                break;
            }
            def = self.only_def(def, insn.op1_register())?;
            insn = self.decode(def);
        }
        match insn.mnemonic() {
            Mnemonic::Mov if insn.op1_kind() == OpKind::Memory => {
                Some((def, self.absolute_table(&insn)?, Entries::Address64))
            }
            Mnemonic::Add if insn.op1_kind() == OpKind::Register => {
                self.sum(def, insn.op0_register(), insn.op1_register())
            }
            // gcc's large model adds as it loads.
            Mnemonic::Add if insn.op1_kind() == OpKind::Memory && insn.op0_register().is_gpr64() => {
                let from = self.constant(def, insn.op0_register())?;
                Some((def, self.loaded_table(def)?, Entries::Offset64 { from }))
            }
            // glibc's string functions.
            Mnemonic::Lea
                if insn.memory_base().is_gpr64()
                    && insn.memory_index().is_gpr64()
                    && insn.memory_index_scale() == 1
                    && insn.memory_displacement64() == 0 =>
            {
                self.sum(def, insn.memory_base(), insn.memory_index())
            }
            _ => None,
        }
    }

    /// A jump to the sum of two registers: one constant, one loaded from the table.
    fn sum(&self, at: InsnId, a: Register, b: Register) -> Option<(InsnId, Vaddr, Entries)> {
        let (from, reg) = match (self.constant(at, a), self.constant(at, b)) {
            (None, Some(c)) => (c, a),
            (Some(c), None) => (c, b),
            _ => return None,
        };
        let (load, width) = self.offset_load(at, reg, MAX_COPIES)?;
        let table = self.loaded_table(load)?;
        Some((load, table, if width == 4 { Entries::Offset32 { from } } else { Entries::Offset64 { from } }))
    }

    /// The instruction that loads a table entry which, sign-extended, is in `reg` before `at`; its bytes.
    fn offset_load(&self, at: InsnId, reg: Register, copies: usize) -> Option<(InsnId, usize)> {
        let copies = copies.checked_sub(1)?;
        let def = self.only_def(at, reg)?;
        let insn = self.decode(def);
        let narrow = |load| Some((load, 4));
        match insn.mnemonic() {
            Mnemonic::Movsxd if insn.op1_kind() == OpKind::Memory && insn.op0_register().is_gpr64() => narrow(def),
            Mnemonic::Movsxd if insn.op1_kind() == OpKind::Register => {
                narrow(self.plain_load32(def, insn.op1_register())?)
            }
            Mnemonic::Cdqe => narrow(self.plain_load32(def, Register::EAX)?),
            Mnemonic::Mov if insn.op0_register().is_gpr64() && insn.op1_kind() == OpKind::Register => {
                self.offset_load(def, insn.op1_register(), copies)
            }
            Mnemonic::Mov if insn.op0_register().is_gpr64() && insn.op1_kind() == OpKind::Memory => Some((def, 8)),
            _ => None,
        }
    }

    fn plain_load32(&self, at: InsnId, reg: Register) -> Option<InsnId> {
        let def = self.only_def(at, reg.full_register())?;
        let insn = self.decode(def);
        (insn.mnemonic() == Mnemonic::Mov && insn.op0_register().is_gpr32() && insn.op1_kind() == OpKind::Memory)
            .then_some(def)
    }

    /// The address of the table that `load` reads: one of its address registers is constant, the other the scaled index.
    fn loaded_table(&self, load: InsnId) -> Option<Vaddr> {
        let insn = self.decode(load);
        if insn.segment_prefix() != Register::None || insn.is_ip_rel_memory_operand() {
            return None;
        }
        let (base, index) = (insn.memory_base(), insn.memory_index());
        let disp = insn.memory_displacement64();
        if !base.is_gpr64() || !(index.is_gpr64() || index == Register::None) {
            return None;
        }
        if let Some(c) = self.constant(load, base) {
            return Some(c + disp);
        }
        if index != Register::None && insn.memory_index_scale() == 1 {
            return self.constant(load, index).map(|c| c + disp);
        }
        None
    }

    /// Where there are no frames to tell what an instruction is: the bound that the code itself tests before the jump.
    fn bound(&self, jump: InsnId) -> Option<usize> {
        let mut id = jump;
        let mut above = false;
        for _ in 0..24 {
            if id.0 == 0 {
                return None;
            }
            id = InsnId(id.0 - 1);
            let insn = self.decode(id);
            match insn.mnemonic() {
                Mnemonic::Ja => above = true,
                Mnemonic::Cmp
                    if above
                        && matches!(
                            insn.op1_kind(),
                            OpKind::Immediate8to64
                                | OpKind::Immediate8to32
                                | OpKind::Immediate32
                                | OpKind::Immediate32to64
                                | OpKind::Immediate8
                        ) =>
                {
                    return usize::try_from(insn.immediate(1))
                        .ok()
                        .and_then(|n| n.checked_add(1))
                        .filter(|n| *n <= MAX_ENTRIES);
                }
                _ if matches!(self.insns.flow(id), Flow::Next | Flow::Cond) => {}
                _ => return None,
            }
        }
        None
    }
}
