//! Lists the accesses that are checked with one tag test, and what each instruction does to registers and to checks before it.
//!
//! Input: instructions, graph, liveness. Output: [`PassCode`]. A check counts beyond its instruction only where its sequence needs neither a
//! spill nor saved flags: then no register that holds a covered address changes between two instructions, wherever a signal arrives.

use crate::base::collections::compact_ids::CompactIds;
use crate::decode::classify::{is_constant_store, is_padlock};
use crate::decode::insn::{Flow, InsnId};
use crate::decode::reader::Reader;
use crate::decode::regs::RegSet;
use crate::facts::access::{AddressForm, PlainAccess};
use crate::facts::kinds::{InsnKind, KindId};
use crate::graph::cfg::BlockId;
use crate::plan::checks::{Check, CheckState, PassInput, Polls};
use crate::plan::decision::{Decision, Decisions, is_big};
use crate::plan::ranges::{AddressKey, NO_REG, RangeStep};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::collections::HashMap;

/// What the passes work on.
#[derive(Debug, Default)]
pub struct PassCode {
    /// Sorted by instruction.
    pub checks: Vec<Check>,
    pub steps: Steps,
    /// By block: control may come from places that the graph does not show.
    pub entry: Vec<bool>,
    /// By component: to any block of it.
    pub wild: Vec<bool>,
    /// Blocks that end with a jump to their own beginning, and what is live there.
    pub loops: Vec<(BlockId, RegSet)>,
    /// By block: its first check; one more for the end.
    first: Vec<u32>,
}

impl PassCode {
    /// Indices of the checks of a block.
    pub fn checks_of(&self, b: BlockId) -> std::ops::Range<usize> {
        self.first[b.ix()] as usize..self.first[b.ix() + 1] as usize
    }

    /// Those of its instructions from `from` to before `to`.
    pub fn checks_between(&self, b: BlockId, from: usize, to: usize) -> std::ops::Range<usize> {
        let all = self.checks_of(b);
        let of_block = &self.checks[all.clone()];
        let until = |id: usize| all.start + of_block.partition_point(|c| c.id.ix() < id);
        until(from)..until(to)
    }
}

/// What each instruction does. Few do something that no other does.
#[derive(Debug, Default)]
pub struct Steps {
    /// By instruction: index into `distinct`.
    of: CompactIds,
    distinct: Vec<RangeStep>,
    known: HashMap<RangeStep, u32>,
    /// By kind of instruction and flags of the step: the last number, which is found without the map; [`UNNUMBERED`].
    last: Vec<u32>,
}

/// There was none.
const UNNUMBERED: u32 = u32::MAX;

impl Steps {
    fn with_capacity(count: usize) -> Steps {
        Steps { of: CompactIds::with_capacity(count), ..Steps::default() }
    }

    fn number(&mut self, step: RangeStep) -> u32 {
        let fresh = self.distinct.len() as u32;
        let number = *self.known.entry(step).or_insert(fresh);
        if number == fresh {
            self.distinct.push(step);
        }
        number
    }

    /// `exact`: all instructions of the kind with these flags do the same.
    fn push(&mut self, kind: KindId, exact: bool, step: RangeStep) {
        let flags = usize::from(step.kills) | usize::from(step.only_polls) << 1 | usize::from(step.ends) << 2;
        let slot = 8 * kind.ix() + flags;
        if self.last.len() <= slot {
            self.last.resize(slot + 1, UNNUMBERED);
        }
        let mut number = self.last[slot];
        if number == UNNUMBERED || !exact && self.distinct[number as usize] != step {
            number = self.number(step);
            self.last[slot] = number;
        }
        self.of.push(number);
    }

    /// One for each instruction.
    pub fn count(&self) -> usize {
        self.of.len()
    }

    /// Those of instructions that follow each other.
    pub fn range(&self, range: std::ops::Range<usize>) -> impl DoubleEndedIterator<Item = &RangeStep> {
        range.map(|i| &self[i])
    }

    /// Lets checks in front of an instruction not count for it.
    pub fn kill(&mut self, i: usize) {
        let step = RangeStep { kills: true, ..self[i] };
        let number = self.number(step);
        self.of.set(i, number);
    }
}

impl std::ops::Index<usize> for Steps {
    type Output = RangeStep;
    fn index(&self, i: usize) -> &RangeStep {
        &self.distinct[self.of.get(i) as usize]
    }
}

/// Collects.
pub fn collect(input: &PassInput, decisions: &Decisions, polls: &Polls) -> PassCode {
    let PassInput { image, insns, cfg, computed, facts, live, .. } = *input;
    let wild = cfg.wild();
    let entry = cfg.entries(&wild);
    let mut code = PassCode { steps: Steps::with_capacity(insns.len()), entry, wild, ..PassCode::default() };
    let steps: Vec<KindStep> = facts
        .kinds()
        .iter()
        .zip(facts.kind_stacks())
        .map(|(kind, stack)| KindStep::of(kind, stack.written()))
        .collect();
    code.first.reserve_exact(cfg.blocks.len() + 1);
    let mut reader = Reader::new(image, insns);
    let mut insn = Instruction::default();
    let mut live_before = Vec::new();
    let mut tables: Vec<InsnId> = cfg.tables.iter().map(|t| t.load).collect();
    tables.sort();
    for b in cfg.ids() {
        let block = &cfg.blocks[b.ix()];
        code.first.push(code.checks.len() as u32);
        live_before.clear();
        let poll = polls.of(b);
        let mut in_block = 0;
        for (k, i) in (block.first.0..block.stop.0).enumerate() {
            let id = InsnId(i);
            let kind = facts.kind(id);
            let number = decisions.number(id);
            let decision = &decisions.distinct[number.ix()];
            let closes = i + 1 == block.stop.0 && insns.target(id) == Some(block.first);
            // Most instructions need not be decoded again: their kind says all.
            let KindStep { mut step, exact } = steps[kind.ix()];
            if !exact || closes || matches!(decision, Decision::Check(_)) {
                reader.decode(id, &mut insn);
            }
            if !exact {
                step = self::step(&insn, facts.stack(id).written());
            }
            step.kills |= computed.may_reach(id);
            match insns.flow(id) {
                Flow::Next | Flow::Cond | Flow::Jmp => {}
                Flow::Call | Flow::IndirectCall => step.ends = true,
                // A poll may stand in front of it.
                Flow::IndirectJmp | Flow::Ret | Flow::Stop => step.kills = true,
            }
            match ordinary(&insn, decision, tables.binary_search(&id).is_ok()) {
                Some(mut check) => {
                    check.id = id;
                    if live_before.is_empty() {
                        live.before_each(cfg, facts, b, &mut live_before);
                    }
                    check.unclean = !is_clean(live_before[k]);
                    code.checks.push(check);
                    in_block += 1;
                    step.kills |= in_block % STRETCH == 0;
                }
                // A gate of another kind, or a refusal.
                None => step.kills |= !decision.is_quiet(),
            }
            if number.tests_stack() {
                // The test behind it is no check.
                (step.kills, step.ends) = (true, true);
            }
            step.only_polls = poll == Some(id) && !step.kills;
            step.kills |= poll == Some(id);
            if closes && is_jump(&insn) {
                if live_before.is_empty() {
                    live.before_each(cfg, facts, b, &mut live_before);
                }
                code.loops.push((b, live_before[0]));
            }
            code.steps.push(kind, exact, step);
        }
    }
    code.first.push(code.checks.len() as u32);
    code
}

/// A jump that is emitted as one.
fn is_jump(insn: &Instruction) -> bool {
    insn.is_jcc_short_or_near() || insn.is_jmp_short_or_near()
}

/// Whether a check here needs neither a spill nor saved flags; the same rule as the check's.
pub fn is_clean(live: RegSet) -> bool {
    let free = RegSet::GPRS.without(live).without(RegSet::RSP);
    !live.meets(RegSet::FLAGS) && free != RegSet::NONE
}

/// The access of an ordinary check whose address a chain of ranges can name.
fn ordinary(insn: &Instruction, decision: &Decision, table: bool) -> Option<Check> {
    let Decision::Check(p) = decision else { return None };
    let PlainAccess { bytes, load, store, masked, gs: _, at: AddressForm::Operand } = *p else { return None };
    let number = |r: Register| match r {
        Register::None => Some(NO_REG),
        r if r.is_gpr64() && r != Register::RSP => Some(r.number() as u8),
        _ => None,
    };
    if is_big(p) || table || insn.is_ip_rel_memory_operand() {
        return None;
    }
    let key =
        AddressKey::new(number(insn.memory_base())?, number(insn.memory_index())?, insn.memory_index_scale() as u8);
    let disp = i32::try_from(insn.memory_displacement64() as i64).ok()?;
    disp.checked_add(i32::from(bytes))?;
    let bytes = bytes as u8;
    let state = CheckState::Own { lo: disp, bytes, load, store, chain: None };
    let limit = None;
    Some(Check { id: InsnId(0), key, disp, bytes, load, store, masked, unclean: false, state, limit })
}

/// So many accesses of a block are looked at together: nothing counts from one stretch to the next, so that a block with millions of them (zeros that
/// are called a function) does not take the square of its size.
const STRETCH: usize = 512;

/// What the instructions of a kind do, the gates around them aside.
#[derive(Clone, Copy)]
struct KindStep {
    step: RangeStep,
    /// Not exact: they add a number, which each has of its own.
    exact: bool,
}

impl KindStep {
    fn of(kind: &InsnKind, written: RegSet) -> KindStep {
        let insn = &kind.sample;
        let adds = matches!(insn.mnemonic(), Mnemonic::Lea | Mnemonic::Add | Mnemonic::Sub)
            && insn.op0_kind() == OpKind::Register
            && insn.op1_kind() != OpKind::Register;
        KindStep { step: step(insn, written), exact: !adds }
    }
}

/// What an instruction does, the gates around it aside.
fn step(insn: &Instruction, written: RegSet) -> RangeStep {
    let mut step = RangeStep {
        written: written.0 as u16,
        dst: NO_REG,
        src: 0,
        off: 0,
        kills: false,
        only_polls: false,
        ends: false,
    };
    step.kills = matches!(
        insn.mnemonic(),
        Mnemonic::Xbegin
            | Mnemonic::Syscall
            | Mnemonic::Sysenter
            | Mnemonic::Int
            | Mnemonic::Int1
            | Mnemonic::Int3
            | Mnemonic::Into
    );
    if is_padlock(insn) || is_constant_store(insn) {
        // It becomes, or may become, an instruction that fails, behind which nothing runs: no fact is carried across.
        step.kills = true;
        step.written = u16::MAX;
    }
    step.ends = step.kills;
    let counts = matches!(insn.mnemonic(), Mnemonic::Inc | Mnemonic::Dec);
    if insn.op_count() != 2 && !counts || insn.op0_kind() != OpKind::Register || !insn.op0_register().is_gpr64() {
        return step;
    }
    let gpr = |r: Register| (r.is_gpr64() && r != Register::RSP).then(|| r.number() as u8);
    let dst = insn.op0_register();
    let immediate = || match insn.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => i32::try_from(insn.immediate(1) as i64).ok(),
        _ => None,
    };
    let found = match insn.mnemonic() {
        Mnemonic::Mov if insn.op1_kind() == OpKind::Register => gpr(insn.op1_register()).map(|src| (src, 0)),
        Mnemonic::Lea if insn.memory_index() == Register::None && insn.segment_prefix() == Register::None => {
            gpr(insn.memory_base()).zip(i32::try_from(insn.memory_displacement64() as i64).ok())
        }
        Mnemonic::Add => gpr(dst).zip(immediate()),
        Mnemonic::Inc => gpr(dst).zip(Some(1)),
        Mnemonic::Dec => gpr(dst).zip(Some(-1)),
        Mnemonic::Sub => gpr(dst).zip(immediate().and_then(i32::checked_neg)),
        _ => None,
    };
    if let (Some(to), Some((src, off))) = (gpr(dst), found) {
        (step.dst, step.src, step.off) = (to, src, off);
    }
    step
}
