//! Cfg -> whether code that copies the stack pointer reaches below it.
//!
//! Input: the blocks of a connected part of the graph in which some register gets a copy of rsp. Output: whether an access through such a register, or
//! an address that is made from it, may lie below rsp as it is then. A forward may-analysis: heights are bytes relative to rsp where the part is
//! entered; of rsp itself it keeps the highest value that it may have.
//! **Invariant**: where the answer is no, each access through a register that holds rsp plus a constant lies at or above rsp. What is not understood
//! (rsp from elsewhere, an unresolved jump, an entry in the middle) counts as reaching below.
//! Source: psABI section 3.2.2 (red zone), 3.2.1 (registers across calls).

use super::regs::RegSet;
use crate::cfg::{BlockId, Cfg, End};
use crate::disasm::{InsnId, Insns};
use crate::image::Image;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::collections::HashMap;

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    /// Nothing that was made from rsp.
    Other,
    /// This height.
    At(i64),
    /// Some address on the stack, at or above rsp where it was made.
    Somewhere,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    /// The highest value that rsp may have, and whether it has that.
    rsp: i64,
    exact: bool,
    held: [Held; 16],
}

const ENTRY: State = State { rsp: 0, exact: true, held: [Held::Other; 16] };

/// Something may lie below rsp, or is not understood.
struct Below;

const RSP: usize = 4;
const RBP: usize = 5;

/// Whether code of `blocks` may reach below rsp through a copy of it. They are all blocks of one part, which has no unresolved jump.
pub fn reaches_below(image: &Image, insns: &Insns, cfg: &Cfg, blocks: &[BlockId]) -> bool {
    let mut at_start: HashMap<BlockId, State> = HashMap::new();
    let mut work: Vec<BlockId> = Vec::new();
    for &b in blocks {
        let first = cfg.blocks[b.ix()].first;
        let fragment = insns.fragments.binary_search(&first).is_ok();
        if cfg.preds(b).len() == 0 || cfg.root[b.ix()] && !fragment {
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
    false
}

impl State {
    fn meet(&self, other: &State) -> State {
        let held = std::array::from_fn(|r| match (self.held[r], other.held[r]) {
            (a, b) if a == b => a,
            _ => Held::Somewhere,
        });
        State { rsp: self.rsp.max(other.rsp), exact: self.exact && other.exact && self.rsp == other.rsp, held }
    }

    /// An address at this height, or the constant part of one, is made or used.
    fn look(&self, base: Register, displacement: i64) -> Result<Held, Below> {
        if !base.is_gpr64() {
            return Ok(Held::Other);
        }
        let made = match (base.number() == RSP, self.held[base.number()]) {
            (true, _) if self.exact => Held::At(self.rsp + displacement),
            (true, _) if displacement >= 0 => Held::Somewhere,
            (true, _) => return Err(Below),
            (false, Held::At(height)) => Held::At(height + displacement),
            (false, Held::Somewhere) if displacement < 0 => return Err(Below),
            (false, held) => held,
        };
        match made {
            Held::At(height) if height < self.rsp => Err(Below),
            made => Ok(made),
        }
    }

    fn lower(&mut self, bytes: i64) {
        self.rsp -= bytes;
    }

    /// rsp gets the value of a register, plus a constant.
    fn restore(&mut self, from: Held, displacement: i64) -> Result<(), Below> {
        let Held::At(height) = from else { return Err(Below) };
        (self.rsp, self.exact) = (height + displacement, true);
        Ok(())
    }

    fn step(&mut self, insn: &Instruction, factory: &mut InstructionInfoFactory) -> Result<(), Below> {
        use Mnemonic as M;
        let register =
            |n: u32| (insn.op_count() > n && insn.op_kind(n) == OpKind::Register).then(|| insn.op_register(n));
        let on_rsp = register(0) == Some(Register::RSP);
        let displacement = insn.memory_displacement64() as i64;
        let number = |r: Register| r.number();
        let immediate = || match insn.op1_kind() {
            OpKind::Register | OpKind::Memory => None,
            _ => Some(insn.immediate(1) as i64),
        };
        let accesses = (0..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Memory);
        // What pops counts from where rsp is then; a place that is named relative to rsp itself is told apart elsewhere.
        let mut made = Held::Other;
        if accesses && insn.memory_base() != Register::RSP {
            made = match insn.mnemonic() {
                // It restores rsp: no address of anything.
                M::Lea if on_rsp => Held::Other,
                M::Nop => Held::Other,
                _ => self.look(insn.memory_base(), displacement)?,
            };
        } else if accesses && insn.mnemonic() == M::Lea && !on_rsp {
            made = self.look(Register::RSP, displacement)?;
        }
        if insn.mnemonic() == M::Lea && insn.memory_index() != Register::None && made != Held::Other {
            made = Held::Somewhere;
        }
        match insn.mnemonic() {
            M::Leave => {
                self.restore(self.held[RBP], 8)?;
                self.held[RBP] = Held::Other;
                return Ok(());
            }
            M::Mov if on_rsp => {
                let from = register(1).filter(|r| r.is_gpr64()).map(number).ok_or(Below)?;
                return self.restore(self.held[from], 0);
            }
            M::Lea if on_rsp && insn.memory_index() == Register::None && insn.memory_base().is_gpr64() => {
                let base = number(insn.memory_base());
                if base != RSP {
                    return self.restore(self.held[base], displacement);
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
            // They lower it by what is not known.
            M::Sub | M::And if on_rsp => {
                self.exact = false;
                return Ok(());
            }
            M::Mov | M::Lea | M::Add | M::Sub if register(0).is_some_and(|r| r.is_gpr64()) && !on_rsp => {
                let to = number(insn.op0_register());
                let source = register(1).filter(|r| r.is_gpr64());
                self.held[to] = match (insn.mnemonic(), source) {
                    (M::Lea, _) => made,
                    (M::Mov, Some(from)) => self.look(from, 0)?,
                    (M::Mov, None) => Held::Other,
                    (operation, _) => match (self.held[to], immediate()) {
                        (Held::Other, _) => match source.map(|r| self.look(r, 0)).transpose()? {
                            Some(Held::At(_) | Held::Somewhere) if operation == M::Add => Held::Somewhere,
                            _ => Held::Other,
                        },
                        (_, Some(by)) => self.look(insn.op0_register(), if operation == M::Add { by } else { -by })?,
                        (_, None) => Held::Somewhere,
                    },
                };
                return Ok(());
            }
            M::Cmp | M::Test | M::Nop => return Ok(()),
            _ => {}
        }
        let moved = i64::from(insn.stack_pointer_increment());
        let calls = matches!(insn.mnemonic(), M::Call | M::Ret | M::Syscall);
        for used in factory.info(insn).used_registers() {
            let written =
                !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess);
            let full = used.register().full_register();
            if !written || !full.is_gpr64() {
                continue;
            }
            if number(full) != RSP {
                self.held[number(full)] = Held::Other;
            } else if moved == 0 && !calls || on_rsp {
                return Err(Below);
            }
        }
        if !calls {
            self.lower(-moved);
        }
        Ok(())
    }
}
