//! Cfg -> whether code that takes addresses on the stack may store below the stack pointer.
//!
//! Input: the blocks of a connected part of the graph in which a register gets an address on the stack. Output: whether a store through such a
//! register may lie below rsp as it is then. A forward may-analysis. Heights are bytes relative to rsp where the part is entered; of rsp itself it keeps
//! the highest value that it may have, of an address the lowest.
//! **Invariant**: where the answer is no, each store through an address that was made from rsp lies at or above rsp. What is not understood (rsp from
//! elsewhere, an unresolved jump, an entry in the middle, an address that is kept in memory or in a vector) counts as below.
//!
//! Loads count where their place is known, or after rsp was raised: what nobody stored or pushed there is nobody's.
//! **What is believed**: who is called with an address stores nothing lower, and returns none that is lower. What a call leaves below rsp is loaded by
//! nobody, other than by lowering rsp.
//! Source: psABI section 3.2.2 (red zone), 3.2.1 (registers across calls).

use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::decode::regs::{RegSet, is_written};
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::read::image::Image;
use iced_x86::{
    Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};
use std::collections::{HashMap, HashSet};

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    /// Nothing that was made from rsp.
    Other,
    /// A number from 0 to 2^32.
    Small,
    /// The address at this height.
    At(i64),
    /// If an address on the stack, then none below this height.
    From(i64),
    /// If an address on the stack, then none lower than so many bytes above rsp, whose height is not known.
    Over(i64),
    /// An address on the stack that may be anywhere.
    Wild,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    /// The highest value that rsp may have, and whether it has that.
    rsp: i64,
    exact: bool,
    /// It was lower before: what it was raised over may be loaded yet.
    raised: bool,
    held: [Held; 16],
}

const ENTRY: State = State { rsp: 0, exact: true, raised: false, held: [Held::Other; 16] };

/// Something may lie below rsp, or is not understood.
struct Below;

const RBP: usize = 5;

/// Whether code of `blocks` may store below rsp through an address that it makes. They are all blocks of one part, which has no unresolved jump.
///
/// `in_function`: whether a frame describes the block.
pub fn may_store_below(
    image: &Image,
    insns: &Insns,
    cfg: &Cfg,
    blocks: &[BlockId],
    in_function: impl Fn(BlockId) -> bool,
) -> bool {
    let mut at_start: HashMap<BlockId, State> = HashMap::new();
    let mut work: Vec<BlockId> = Vec::new();
    let pads: HashSet<BlockId> = blocks.iter().flat_map(|&b| cfg.pads_of(b).iter().copied()).collect();
    for &b in blocks {
        let first = cfg.blocks[b.ix()].first;
        // Of these two it is known who enters.
        let fragment = insns.fragments.binary_search(&first).is_ok();
        let entered = cfg.root[b.ix()] && !fragment && !pads.contains(&b);
        if cfg.preds(b).len() == 0 && !pads.contains(&b) || entered {
            // Whoever enters in the middle may have addresses in registers.
            let is_start = insns.starts.binary_search(&first).is_ok();
            if entered && !is_start && (in_function(b) || cfg.preds(b).len() > 0) {
                return true;
            }
            at_start.insert(b, ENTRY);
            work.push(b);
        }
    }
    let mut factory = InstructionInfoFactory::new();
    // Heights only rise to a bound where rsp falls in a loop by what is pushed, and rises for ever where it is popped.
    let mut steps = 64 * blocks.len();
    while let Some(b) = work.pop() {
        let Some(left) = steps.checked_sub(1) else { return true };
        steps = left;
        let mut state = at_start[&b].clone();
        let block = &cfg.blocks[b.ix()];
        for i in block.first.0..block.stop.0 {
            if state.step(&insns.decode(image, InsnId(i)), &mut factory).is_err() {
                return true;
            }
        }
        if matches!(block.end(), End::Call(_) | End::UnknownCall | End::DescriptorCall) {
            let kept = RegSet::CALLEE_SAVED.0;
            (0..16).filter(|r| kept >> r & 1 == 0).for_each(|r| state.held[r] = Held::Other);
        }
        for &to in cfg.succ(b).iter().chain(cfg.pads_of(b)) {
            let met = at_start.get(&to).map_or_else(|| state.clone(), |known| known.meet(&state));
            if at_start.get(&to) != Some(&met) {
                at_start.insert(to, met);
                work.push(to);
            }
        }
    }
    // What no entry leads to is a circle that something unknown enters.
    blocks.iter().any(|b| !at_start.contains_key(b))
}

impl Held {
    fn is_address(self) -> bool {
        !matches!(self, Held::Other | Held::Small)
    }

    /// It, or something higher.
    fn at_least(self) -> Held {
        if let Held::At(height) = self { Held::From(height) } else { self }
    }

    /// So many bytes further.
    fn plus(self, bytes: i64) -> Held {
        match self {
            Held::At(height) => Held::At(height.saturating_add(bytes)),
            Held::From(height) => Held::From(height.saturating_add(bytes)),
            Held::Over(height) => Held::Over(height.saturating_add(bytes)),
            Held::Small | Held::Other => Held::Other,
            Held::Wild => Held::Wild,
        }
    }

    /// One or the other. `rsp`: the highest that it may be.
    fn meet(self, other: Held, rsp: i64) -> Held {
        use Held::*;
        match (self, other) {
            (a, b) if a == b => a,
            (Wild, _) | (_, Wild) => Wild,
            (Over(a), Over(b)) => Over(a.min(b)),
            (Over(a), At(b) | From(b)) | (At(b) | From(b), Over(a)) => Over(a.min(b - rsp)),
            (At(a) | From(a), At(b) | From(b)) => From(a.min(b)),
            (At(a) | From(a), _) | (_, At(a) | From(a)) => From(a),
            (Over(a), _) | (_, Over(a)) => Over(a),
            (Other | Small, Other | Small) => Other,
        }
    }

    /// The sum of two registers; the second may be scaled.
    fn sum(self, other: Held, scale: u32) -> Held {
        match (self, other) {
            (Held::At(height) | Held::From(height), Held::Small) => Held::From(height),
            (Held::Small, Held::At(height) | Held::From(height)) if scale == 1 => Held::From(height),
            (Held::Over(height), Held::Small) => Held::Over(height),
            (Held::Small, Held::Over(height)) if scale == 1 => Held::Over(height),
            (a, b) if a.is_address() || b.is_address() => Held::Wild,
            _ => Held::Other,
        }
    }
}

impl State {
    fn meet(&self, other: &State) -> State {
        let rsp = self.rsp.max(other.rsp);
        let held = std::array::from_fn(|r| self.held[r].meet(other.held[r], rsp));
        let exact = self.exact && other.exact && self.rsp == other.rsp;
        State { rsp, exact, raised: self.raised || other.raised, held }
    }

    /// What a register holds; of rsp, where it is.
    fn of(&self, register: Register) -> Held {
        match register {
            Register::RSP if self.exact => Held::At(self.rsp),
            Register::RSP => Held::Over(0),
            r if r.is_gpr64() => self.held[r.number()],
            _ => Held::Other,
        }
    }

    /// The address of an operand.
    fn address(&self, base: Register, index: Register, scale: u32, displacement: i64) -> Held {
        let constant = self.of(base).plus(displacement);
        if index == Register::None { constant } else { constant.sum(self.of(index), scale) }
    }

    fn is_below(&self, place: Held) -> bool {
        match place {
            Held::Other | Held::Small => false,
            Held::At(height) | Held::From(height) => height < self.rsp,
            Held::Over(height) => height < 0,
            Held::Wild => true,
        }
    }

    /// The places that an instruction loads and stores.
    fn accesses(&self, insn: &Instruction, info: &InstructionInfo) -> Result<(), Below> {
        // By its number a bit is found on either side.
        let by_number = matches!(insn.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc)
            && insn.op0_kind() == OpKind::Memory
            && insn.op1_kind() == OpKind::Register;
        if by_number && (self.of(insn.memory_base()).is_address() || self.of(insn.memory_index()).is_address()) {
            return Err(Below);
        }
        info.used_memory().iter().try_for_each(|place| self.access(place))
    }

    fn access(&self, place: &UsedMemory) -> Result<(), Below> {
        let (base, index) = (place.base(), place.index());
        if matches!(place.segment(), Register::FS | Register::GS) || base == Register::RSP && index == Register::None {
            // A place that is named relative to rsp itself is told apart elsewhere.
            return Ok(());
        }
        let displacement = place.displacement() as i64;
        let constant = self.of(base).plus(displacement);
        let below = match place.access() {
            _ if self.raised => self.is_below(self.address(base, index, place.scale(), displacement)),
            OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None => {
                matches!(constant, Held::At(_)) && self.is_below(constant)
            }
            _ => self.is_below(self.address(base, index, place.scale(), displacement)),
        };
        if below { Err(Below) } else { Ok(()) }
    }

    fn lower(&mut self, bytes: i64) {
        self.rsp -= bytes;
        if bytes < 0 {
            self.raised = true;
            let raise = |held: &mut Held| {
                if let Held::Over(height) = held {
                    *height += bytes;
                }
            };
            self.held.iter_mut().for_each(raise);
        }
    }

    /// rsp gets the value of a register, plus a constant.
    fn restore(&mut self, from: Held, displacement: i64) -> Result<(), Below> {
        let Held::At(height) = from else { return Err(Below) };
        // It may uncover what it was raised over.
        if height + displacement < self.rsp && (self.exact || self.raised) {
            return Err(Below);
        }
        (self.rsp, self.exact, self.raised) = (height + displacement, true, true);
        let lose = |held: &mut Held| {
            if let Held::Over(_) = held {
                *held = Held::Wild;
            }
        };
        self.held.iter_mut().for_each(lose);
        Ok(())
    }

    fn step(&mut self, insn: &Instruction, factory: &mut InstructionInfoFactory) -> Result<(), Below> {
        use Mnemonic as M;
        let register =
            |n: u32| (insn.op_count() > n && insn.op_kind(n) == OpKind::Register).then(|| insn.op_register(n));
        let on_rsp = register(0) == Some(Register::RSP);
        let displacement = insn.memory_displacement64() as i64;
        let immediate = || match insn.op1_kind() {
            OpKind::Register | OpKind::Memory => None,
            _ => Some(insn.immediate(1) as i64),
        };
        match insn.mnemonic() {
            M::Nop | M::Ret => return Ok(()),
            // What a call writes is told apart at its block's end.
            M::Cmp | M::Test | M::Jmp | M::Call => return self.accesses(insn, factory.info(insn)),
            // The kernel's result, and where it keeps rip and the flags. It may store where its arguments lead.
            M::Syscall => {
                let arguments =
                    [Register::RDI, Register::RSI, Register::RDX, Register::R10, Register::R8, Register::R9];
                if arguments.iter().any(|r| self.is_below(self.of(*r))) {
                    return Err(Below);
                }
                [Register::RAX, Register::RCX, Register::R11].iter().for_each(|r| self.held[r.number()] = Held::Other);
                return Ok(());
            }
            // Strings downwards.
            M::Std => return Err(Below),
            _ => {}
        }
        let info = factory.info(insn);
        self.accesses(insn, info)?;
        match insn.mnemonic() {
            M::Leave => {
                self.restore(self.held[RBP], 8)?;
                self.held[RBP] = Held::Other;
                return Ok(());
            }
            M::Mov if on_rsp => return self.restore(self.of(register(1).ok_or(Below)?), 0),
            M::Lea if on_rsp && insn.memory_index() == Register::None && insn.memory_base().is_gpr64() => {
                if insn.memory_base() != Register::RSP {
                    return self.restore(self.of(insn.memory_base()), displacement);
                }
                self.lower(-displacement);
                return Ok(());
            }
            M::Sub if on_rsp && immediate().is_some() => {
                self.lower(immediate().unwrap_or(0));
                return Ok(());
            }
            M::Add if on_rsp && immediate().is_some() => {
                self.lower(-immediate().unwrap_or(0));
                return Ok(());
            }
            // It lowers rsp by what is not known. What is subtracted may be negative.
            M::And if on_rsp => {
                self.exact = false;
                return Ok(());
            }
            M::Sub if on_rsp && register(1).is_some_and(|by| self.of(by) == Held::Small) => {
                self.exact = false;
                return Ok(());
            }
            M::Sub if on_rsp => return Err(Below),
            _ => {}
        }
        let moved = i64::from(insn.stack_pointer_increment());
        let made = self.made(insn, info)?;
        let is_string = insn.is_string_instruction();
        let keeps = info.used_memory().iter().any(|place| is_written(place.access()));
        for used in info.used_registers().iter().filter(|used| is_written(used.access())) {
            let full = used.register().full_register();
            if !full.is_gpr64() {
                // An address in a register of another kind is followed no further.
                if self.reads_address(insn, info) {
                    return Err(Below);
                }
            } else if full == Register::RSP {
                if moved == 0 || on_rsp {
                    return Err(Below);
                }
            } else {
                let held = self.held[full.number()];
                // A result of 32 bits clears the upper half, and counts as a write of all.
                let written = register(0).filter(|r| r.full_register() == full).unwrap_or(used.register());
                self.held[full.number()] = match written {
                    // Strings upwards.
                    Register::RDI | Register::RSI if is_string => held.at_least(),
                    r if r.is_gpr64() => made,
                    // Not where a count or a source of zero leaves it as it is.
                    r if r.is_gpr32() && !may_leave(insn.mnemonic()) => Held::Small,
                    _ if held.is_address() => Held::Wild,
                    _ => Held::Other,
                };
            }
        }
        if keeps && self.reads_address(insn, info) {
            return Err(Below);
        }
        self.lower(-moved);
        Ok(())
    }

    /// What a register of 64 bits holds that `insn` writes. Addresses that are known to lie below rsp are not made.
    fn made(&self, insn: &Instruction, info: &InstructionInfo) -> Result<Held, Below> {
        use Mnemonic as M;
        let source = (insn.op1_kind() == OpKind::Register).then(|| insn.op1_register());
        let immediate = || match insn.op1_kind() {
            OpKind::Register | OpKind::Memory => None,
            _ => Some(insn.immediate(1) as i64),
        };
        let own = if insn.op0_kind() == OpKind::Register { self.of(insn.op0_register()) } else { Held::Other };
        let made = match insn.mnemonic() {
            M::Lea => {
                let (base, index) = (insn.memory_base(), insn.memory_index());
                self.address(base, index, insn.memory_index_scale(), insn.memory_displacement64() as i64)
            }
            M::Mov => source.map_or(Held::Other, |from| self.of(from)),
            M::Movzx => Held::Small,
            M::Inc => own.plus(1),
            M::Dec => own.plus(-1),
            M::Add => match (immediate(), source) {
                (Some(by), _) => own.plus(by),
                (None, Some(by)) => own.sum(self.of(by), 1),
                (None, None) => own.sum(Held::Other, 1),
            },
            M::Sub => match (immediate(), source.map(|by| self.of(by))) {
                (Some(by), _) => own.plus(by.saturating_neg()),
                // A distance.
                (None, Some(Held::At(_))) if own.is_address() => Held::Other,
                (None, Some(by)) if by.is_address() => Held::Wild,
                (None, _) => own.sum(Held::Other, 1),
            },
            M::And => match immediate() {
                Some(mask) if mask >= 0 => Held::Small,
                // It is aligned.
                Some(mask) if mask.unsigned_abs().is_power_of_two() => own.plus(mask + 1).at_least(),
                _ => own.sum(Held::Other, 1),
            },
            M::Cmova
            | M::Cmovae
            | M::Cmovb
            | M::Cmovbe
            | M::Cmove
            | M::Cmovg
            | M::Cmovge
            | M::Cmovl
            | M::Cmovle
            | M::Cmovne
            | M::Cmovno
            | M::Cmovnp
            | M::Cmovns
            | M::Cmovo
            | M::Cmovp
            | M::Cmovs => own.meet(source.map_or(Held::Other, |from| self.of(from)), self.rsp),
            // A source of zero, or a selector of nothing, leaves what is there.
            M::Bsf | M::Bsr | M::Lar | M::Lsl if own.is_address() => Held::Wild,
            _ if self.reads_address(insn, info) => Held::Wild,
            _ => Held::Other,
        };
        if matches!(made, Held::At(_)) && self.is_below(made) { Err(Below) } else { Ok(made) }
    }

    /// Whether `insn` reads an address on the stack from a register, other than to use the place.
    fn reads_address(&self, insn: &Instruction, info: &InstructionInfo) -> bool {
        let is_address = |r: Register| r.is_gpr() && self.of(r.full_register()).is_address();
        let explicit = (0..insn.op_count()).any(|n| {
            insn.op_kind(n) == OpKind::Register && is_read(info.op_access(n)) && is_address(insn.op_register(n))
        });
        let for_a_place = |r: Register| {
            info.used_memory()
                .iter()
                .any(|place| place.base().full_register() == r || place.index().full_register() == r)
        };
        explicit
            || info.used_registers().iter().any(|used| {
                let full = used.register().full_register();
                is_read(used.access()) && full != Register::RSP && is_address(full) && !for_a_place(full)
            })
    }
}

/// Whether the result may be the old value, upper half and all.
fn may_leave(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Bsf
            | M::Bsr
            | M::Lar
            | M::Lsl
            | M::Cmpxchg
            | M::Rcl
            | M::Rcr
            | M::Rol
            | M::Ror
            | M::Sal
            | M::Sar
            | M::Shl
            | M::Shld
            | M::Shr
            | M::Shrd
    )
}

fn is_read(access: OpAccess) -> bool {
    matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}
