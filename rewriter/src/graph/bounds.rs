//! How many entries a jump table has, where the code itself proves it.
//!
//! Input: the instruction that reads the table. Output: a number that the index is always below. The proof is the comparison
//! that compilers put before the jump (`cmp i, n; ja default`), a mask, or the width of what the index is loaded from, looked for backwards along
//! the only path to the load; also of both of two values that a conditional move chooses from, and of what a constant is added to. Without a
//! proof a table goes on for as long as its words lead to instructions, often through the tables behind it: sound, but then every jump leads to
//! all their targets, too.

use crate::decode::classify::is_conditional_move;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::regs::writes;
use crate::graph::jump_table::MAX_ENTRIES;
use crate::graph::trace::{Finder, Reach};
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

/// Most instructions between the load and the comparison.
const MAX_DISTANCE: usize = 40;

/// Most conditional moves and sums on the way.
const MAX_SPLITS: u32 = 4;

/// What holds the index at a place before the load.
#[derive(Clone, Copy)]
enum Holder {
    Register(Register),
    /// The memory operand of an instruction.
    Memory(Instruction),
}

impl Finder<'_, '_> {
    /// A bound of the index register of `load`, which reads entries of `width` bytes.
    pub(super) fn proven_entries(&self, load: InsnId, width: u32) -> Option<usize> {
        let insn = self.decode(load);
        let index = insn.memory_index();
        if !index.is_gpr64() || insn.memory_index_scale() != width {
            return None;
        }
        let n = self.bound_before(load, index, MAX_SPLITS)?;
        usize::try_from(n).ok().filter(|n| (1..=MAX_ENTRIES).contains(n))
    }

    fn bound_before(&self, load: InsnId, index: Register, splits: u32) -> Option<u64> {
        let mut factory = InstructionInfoFactory::new();
        let mut holder = Holder::Register(index);
        // The index is this many low bits of the holder.
        let mut bits = 64;
        let mut limit = None;
        // A branch that is only passed when the value compared is below the immediate (plus this).
        let mut passed: Option<u64> = None;
        let mut here = load;
        for _ in 0..MAX_DISTANCE {
            let preds = self.preds(here)?;
            let &[at] = preds.as_slice() else { return limit };
            let insn = self.decode(at);
            match self.insns.flow(at) {
                Flow::Cond if insn.is_jcc_short_or_near() => {
                    let taken = self.insns.target(at) == Some(here);
                    if taken && self.insns.next(at) == Some(here) {
                        return limit;
                    }
                    passed = match (insn.mnemonic(), taken) {
                        (Mnemonic::Ja, false) | (Mnemonic::Jbe, true) => Some(1),
                        (Mnemonic::Jae, false) | (Mnemonic::Jb, true) => Some(0),
                        _ => passed,
                    };
                    here = at;
                    continue;
                }
                Flow::Jmp | Flow::Next => {}
                _ => return limit,
            }
            if let Some(more) = passed
                && insn.rflags_modified() != 0
            {
                if insn.mnemonic() == Mnemonic::Cmp
                    && let Some(n) = self.compared(at, &insn, holder, bits)
                {
                    let n = n.checked_add(more)?;
                    return Some(limit.map_or(n, |l: u64| l.min(n)));
                }
                passed = None;
            }
            match holder {
                Holder::Register(reg) if writes(&mut factory, &insn, reg) => {
                    let narrow;
                    (holder, narrow) = match moved(&insn, reg) {
                        Some(Moved::From(h, b)) => (h, b),
                        Some(Moved::Below(n)) => return Some(limit.map_or(n, |l| l.min(n))),
                        Some(Moved::Either(other)) => {
                            let of = |r| self.bound_before(at, r, splits.checked_sub(1)?);
                            let both = of(reg).and_then(|n| Some(n.max(of(other)?)));
                            return both.map_or(limit, |n| Some(limit.map_or(n, |l| l.min(n))));
                        }
                        Some(Moved::Sum(base, more)) => {
                            let n = splits.checked_sub(1).and_then(|left| self.bound_before(at, base, left));
                            let n = n.and_then(|n| n.checked_add(more));
                            return n.map_or(limit, |n| Some(limit.map_or(n, |l| l.min(n))));
                        }
                        None => return limit,
                    };
                    bits = narrow.min(bits);
                    if bits < 32 {
                        limit = Some(limit.map_or(1 << bits, |l: u64| l.min(1 << bits)));
                    }
                }
                Holder::Memory(m) if changes(&mut factory, &insn, &m) => return limit,
                _ => {}
            }
            here = at;
        }
        limit
    }

    /// The immediate that `bits` low bits of the holder are compared with.
    fn compared(&self, at: InsnId, insn: &Instruction, holder: Holder, bits: u32) -> Option<u64> {
        let immediate = matches!(
            insn.op1_kind(),
            OpKind::Immediate8
                | OpKind::Immediate8to16
                | OpKind::Immediate8to32
                | OpKind::Immediate8to64
                | OpKind::Immediate16
                | OpKind::Immediate32
                | OpKind::Immediate32to64
        );
        let width = match holder {
            Holder::Register(reg) if insn.op0_kind() == OpKind::Register => {
                let own = insn.op0_register();
                let high = matches!(own, Register::AH | Register::BH | Register::CH | Register::DH);
                (own.full_register() == reg && !high).then(|| 8 * own.size() as u32)?
            }
            Holder::Memory(m) if insn.op0_kind() == OpKind::Memory && same_place(insn, &m) => {
                8 * insn.memory_size().size() as u32
            }
            _ => return None,
        };
        if !immediate || !matches!(width, 8 | 16 | 32 | 64) {
            return None;
        }
        let fits = bits <= width
            || match holder {
                Holder::Register(reg) => self.is_zero_extended(at, reg, width),
                Holder::Memory(_) => false,
            };
        fits.then(|| insn.immediate(1) & (u64::MAX >> (64 - width)))
    }

    /// Whether all but the low `width` bits of `reg` are zero before `at`: whatever writes it writes zeros there.
    fn is_zero_extended(&self, at: InsnId, reg: Register, width: u32) -> bool {
        let Reach::Defs(defs) = self.reach(at, reg) else { return false };
        let extends = |insn: &Instruction| {
            let own = insn.op0_kind() == OpKind::Register
                && insn.op0_register().is_gpr32()
                && insn.op0_register().full_register() == reg;
            let source = match insn.op1_kind() {
                OpKind::Register => insn.op1_register().size(),
                OpKind::Memory => insn.memory_size().size(),
                _ => usize::MAX,
            };
            own && match insn.mnemonic() {
                Mnemonic::Xchg | Mnemonic::Xadd | Mnemonic::Cmpxchg => false,
                Mnemonic::Movzx => width >= 32 || source <= width as usize / 8,
                _ => width >= 32,
            }
        };
        !defs.is_empty() && defs.iter().all(|&d| extends(&self.decode(d)))
    }
}

enum Moved {
    /// The register is the low bits of this, zero- or sign-extended: a value below 2^31 is the same either way.
    From(Holder, u32),
    Below(u64),
    /// Itself or this.
    Either(Register),
    /// This and a number below 2^31.
    Sum(Register, u64),
}

/// What an instruction that writes `reg` puts into it.
fn moved(insn: &Instruction, reg: Register) -> Option<Moved> {
    let to = insn.op0_register();
    if insn.mnemonic() == Mnemonic::Cdqe {
        return Some(Moved::From(Holder::Register(Register::RAX), 32));
    }
    if insn.op0_kind() != OpKind::Register || to.full_register() != reg || !(to.is_gpr32() || to.is_gpr64()) {
        return None;
    }
    let source = insn.op1_register();
    match (insn.mnemonic(), insn.op1_kind()) {
        (Mnemonic::Mov | Mnemonic::Movsxd | Mnemonic::Movzx, OpKind::Register) => {
            let high = matches!(source, Register::AH | Register::BH | Register::CH | Register::DH);
            (source.is_gpr() && !high)
                .then(|| Moved::From(Holder::Register(source.full_register()), 8 * source.size() as u32))
        }
        (Mnemonic::Mov | Mnemonic::Movsxd | Mnemonic::Movzx, OpKind::Memory) => {
            Some(Moved::From(Holder::Memory(*insn), 8 * insn.memory_size().size() as u32))
        }
        (
            Mnemonic::And,
            OpKind::Immediate8to32 | OpKind::Immediate8to64 | OpKind::Immediate32 | OpKind::Immediate32to64,
        ) if insn.immediate(1) < 1 << 31 => Some(Moved::Below(insn.immediate(1) + 1)),
        (mnemonic, OpKind::Register) if is_conditional_move(mnemonic) => Some(Moved::Either(source.full_register())),
        (Mnemonic::Lea, OpKind::Memory)
            if insn.memory_base().is_gpr64()
                && insn.memory_index() == Register::None
                && insn.memory_displacement64() < 1 << 31 =>
        {
            Some(Moved::Sum(insn.memory_base(), insn.memory_displacement64()))
        }
        _ => None,
    }
}

/// Whether an instruction may change the memory that the operand of `m` names, or its address.
fn changes(factory: &mut InstructionInfoFactory, insn: &Instruction, m: &Instruction) -> bool {
    let stores =
        factory.info(insn).used_memory().iter().any(|u| !matches!(u.access(), OpAccess::Read | OpAccess::CondRead));
    let mut moves = |r: Register| r.is_gpr() && writes(factory, insn, r.full_register());
    stores || moves(m.memory_base()) || moves(m.memory_index())
}

fn same_place(a: &Instruction, b: &Instruction) -> bool {
    a.memory_size().size() == b.memory_size().size()
        && a.memory_base() == b.memory_base()
        && a.memory_index() == b.memory_index()
        && a.memory_index_scale() == b.memory_index_scale()
        && a.memory_displacement64() == b.memory_displacement64()
        && a.segment_prefix() == b.segment_prefix()
}
