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
use crate::decode::regs::writes;
use crate::graph::returns::Returns;
use crate::read::frames::{FdeInfo, FrameInfo};
use crate::read::image::Image;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use std::collections::HashMap;

/// What the entries of a table hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// 32-bit signed offsets from an address.
    Offset32 { from: Vaddr },
    /// The same of 64 bits.
    Offset64 { from: Vaddr },
    /// 64-bit addresses.
    Address64,
}

impl Entries {
    /// Bytes of an entry.
    pub fn width(self) -> usize {
        if matches!(self, Entries::Offset32 { .. }) { 4 } else { 8 }
    }

    /// The address where an entry leads.
    fn target(self, entry: &[u8]) -> Vaddr {
        let long = || u64::from_le_bytes(entry.try_into().expect("eight bytes"));
        match self {
            Entries::Offset32 { from } => {
                from + i64::from(i32::from_le_bytes(entry.try_into().expect("four bytes"))) as u64
            }
            Entries::Offset64 { from } => from + long(),
            Entries::Address64 => Vaddr(long()),
        }
    }

    /// The bytes of an entry that leads to `to`.
    pub fn write(self, to: Vaddr, out: &mut Vec<u8>) {
        match self {
            Entries::Offset32 { from } => out.extend(((to - from) as i64 as i32).to_le_bytes()),
            Entries::Offset64 { from } => out.extend((to - from).to_le_bytes()),
            Entries::Address64 => out.extend(to.0.to_le_bytes()),
        }
    }

    /// Whether entries are offsets from `va`.
    fn are_from(self, va: Vaddr) -> bool {
        matches!(self, Entries::Offset32 { from } | Entries::Offset64 { from } if from == va)
    }
}

/// Where an entry leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Insn(InsnId),
    /// An address in a section with code, where no instruction is known to begin: the new entry leads there, too.
    Old(Vaddr),
}

impl Goal {
    fn insn(&self) -> Option<InsnId> {
        match self {
            Goal::Insn(id) => Some(*id),
            Goal::Old(_) => None,
        }
    }
}

/// A recognised jump table.
#[derive(Clone, Debug)]
pub struct JumpTable {
    pub jump: InsnId,
    /// The instruction that reads the table: its displacement is changed so that it reads the new one.
    pub load: InsnId,
    pub at: Vaddr,
    pub entries: Entries,
    pub targets: Vec<Goal>,
    /// How many of them are this table's: behind them begins another table, which is read relative to another address. No jump reads further; the new
    /// table sends one that did to the old address.
    pub own: usize,
}

impl JumpTable {
    /// The instructions that the jump leads to.
    pub fn own_targets(&self) -> impl Iterator<Item = InsnId> {
        self.targets[..self.own].iter().filter_map(Goal::insn)
    }

    /// The instructions that what stands behind the table's end would lead to.
    pub fn surplus(&self) -> impl Iterator<Item = InsnId> {
        self.surplus_words().iter().filter_map(Goal::insn)
    }

    fn surplus_words(&self) -> &[Goal] {
        &self.targets[self.own..]
    }

    /// What the entries of the new table lead to: `new` says where an instruction has got to, `old` where it was.
    pub fn words(&self, new: impl Fn(InsnId) -> Vaddr, old: impl Fn(InsnId) -> Vaddr) -> Vec<Vaddr> {
        let word = |(i, goal): (usize, &Goal)| match *goal {
            Goal::Insn(id) if i < self.own => new(id),
            Goal::Insn(id) => old(id),
            Goal::Old(va) => va,
        };
        self.targets.iter().enumerate().map(word).collect()
    }
}

/// Most entries of a table.
pub(super) const MAX_ENTRIES: usize = 1 << 16;
/// Most instructions that one backward search visits.
const MAX_STEPS: usize = 20_000;

/// Most register copies that one search follows.
const MAX_COPIES: usize = 16;
/// Most numbers that are added to an address.
const MAX_SUMS: usize = 3;

/// What one round found.
pub struct Found {
    /// Sorted by jump.
    pub tables: Vec<JumpTable>,
    /// Entries that lead to code not decoded yet.
    pub new_targets: Vec<Vaddr>,
}

/// Looks at every indirect jump. First on the assumption that code to which neither branches nor the tables found so far lead is entered by the
/// jump at hand, until no more tables are found; then edges alone count, and every table must be recognised again with the edges of all.
/// What is not is dropped, until the rest confirms itself.
pub fn find(image: &Image, insns: &Insns, frames: &FrameInfo) -> Found {
    let sources = Sources::new(insns);
    let returns = Returns::solve(image, insns, frames, &sources);
    let jumps: Vec<InsnId> = insns.ends().filter(|id| insns.flow(*id) == Flow::IndirectJmp).collect();
    let module = Module { image, insns, frames, sources: &sources, jumps: &jumps, returns: &returns };
    let mut found = Found { tables: Vec::new(), new_targets: Vec::new() };
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

/// The starts of tables whose entries are relative to them; sorted.
fn relative_starts(tables: &[JumpTable]) -> Vec<Vaddr> {
    let start = |t: &JumpTable| t.entries.are_from(t.at).then_some(t.at);
    let mut starts: Vec<_> = tables.iter().filter_map(start).collect();
    starts.sort();
    starts.dedup();
    starts
}

/// How many entries stand in front of the next table. One word cannot be an offset from two addresses and mean code both times.
fn own_entries(t: &JumpTable, starts: &[Vaddr]) -> usize {
    if !t.entries.are_from(t.at) {
        return t.targets.len();
    }
    let width = t.entries.width() as u64;
    let behind = starts.partition_point(|s| *s <= t.at);
    let next = starts[behind..].iter().find(|s| (**s - t.at).is_multiple_of(width));
    next.map_or(t.targets.len(), |s| t.targets.len().min(((*s - t.at) / width) as usize))
}

/// What does not change while tables are found.
#[derive(Clone, Copy)]
struct Module<'x, 'a> {
    image: &'x Image<'a>,
    insns: &'x Insns,
    frames: &'x FrameInfo,
    sources: &'x Sources,
    /// The indirect ones.
    jumps: &'x [InsnId],
    returns: &'x Returns,
}

pub(super) struct Finder<'x, 'a> {
    image: &'x Image<'a>,
    pub(super) insns: &'x Insns,
    frames: &'x FrameInfo,
    sources: &'x Sources,
    /// (target, source) of the tables found before, sorted.
    entries: Vec<(InsnId, InsnId)>,
    jumps: &'x [InsnId],
    returns: &'x Returns,
    known: &'x [JumpTable],
    /// The only jump that is assumed to enter code which nothing else leads to.
    assumed: Option<InsnId>,
}

/// A value that reaches a use.
pub(super) enum Reach {
    /// The instructions that define it.
    Defs(Vec<InsnId>),
    Unknown,
}

impl<'x, 'a> Finder<'x, 'a> {
    fn new(module: &Module<'x, 'a>, known: &'x [JumpTable]) -> Self {
        let Module { image, insns, frames, sources, jumps, returns } = *module;
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

    fn is_known(&self, jump: InsnId) -> bool {
        self.known.binary_search_by_key(&jump, |t| t.jump).is_ok()
    }

    pub(super) fn decode(&self, id: InsnId) -> Instruction {
        self.insns.decode(self.image, id)
    }

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
    /// instruction of the function or of a part of it, to padding or to the end of the section. Where the number of entries is `proven`, whatever they lead to is theirs.
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

    /// The value of `reg` before `at`, if it is the same address on every path. Copies are followed, also around a loop: a register that goes
    /// through others and comes back adds no value of its own.
    fn constant(&self, at: InsnId, reg: Register) -> Option<Vaddr> {
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

    fn only_def(&self, at: InsnId, reg: Register) -> Option<InsnId> {
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

    fn frame_of(&self, va: Vaddr) -> Option<(Vaddr, Vaddr)> {
        frame_of(self.frames, va).map(|f| (f.start, f.end))
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

fn frame_of(frames: &FrameInfo, va: Vaddr) -> Option<&FdeInfo> {
    let i = frames.fdes.partition_point(|f| f.start <= va).checked_sub(1)?;
    Some(&frames.fdes[i]).filter(|f| va < f.end)
}

/// Whether `to` is in the middle of a function other than the one with the frame `from`. A table whose end is not known may go on with entries of the next table,
/// which lead there; no jump does. The new table has those entries, but they say nothing about what runs before what.
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
