//! Cfg, Facts -> [`RedZone`]: functions that keep nothing below the stack pointer.
//!
//! The 128 bytes below rsp belong to the program (psABI 3.2.2, the red zone): no signal handler touches them. Where a function keeps
//! nothing there, inserted code may, from one instruction of the program to the next: cheaper than moving rsp out of the way. A
//! function is a connected part of the graph together with all other code between the same function starts.
//!
//! Whether anything lies there follows from the accesses. A place that is named relative to rsp lies where its displacement says, and one below is in use.
//! Where addresses are made from rsp, [`crate::facts::stack_stores`] tells whether a store through one may lie below. What rsp has been raised over may be in use
//! where it is lowered again, other than by a push or call, which write what they uncover.
//! Hand-written code that keeps something below while it calls what it knows names the place: then its callees keep off, too. Where a way leads from the
//! place to a call through a pointer, all keep off that such a call may lead to in this file.

use crate::base::collections::union_find::Components;
use crate::base::ids::Vaddr;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::facts::kinds::Facts;
use crate::facts::stack_stores;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::read::image::Image;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::collections::{BTreeMap, BTreeSet};

/// How an instruction uses rsp, apart from what pushes, calls and returns do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It names a place below.
    Named,
    /// What it reads, writes or makes may lie below.
    Below,
    /// It makes an address on the stack at or above rsp, copies rsp to a register, or stores at an address with an index.
    Address,
    /// It lowers rsp, and writes nothing to what lies above it then.
    Lowers,
}

/// Whether an instruction that differs from `insn` in its displacement only may use rsp.
pub fn may_use(insn: &Instruction) -> bool {
    let stack = |r: Register| r.full_register() == Register::RSP;
    let named = (0..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Register && stack(insn.op_register(n)));
    named || stack(insn.memory_base()) || insn.mnemonic() == Mnemonic::Enter
}

/// The use that `insn` makes of rsp.
pub fn use_of(insn: &Instruction) -> Option<Use> {
    let stack = |r: Register| r.full_register() == Register::RSP;
    let named = (0..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Register && stack(insn.op_register(n)));
    let based = stack(insn.memory_base());
    if !named && !based {
        return (insn.mnemonic() == Mnemonic::Enter).then_some(Use::Below);
    }
    let lea = insn.mnemonic() == Mnemonic::Lea;
    let copies =
        insn.mnemonic() == Mnemonic::Mov && insn.op1_kind() == OpKind::Register && insn.op1_register() == Register::RSP;
    if copies && insn.op0_kind() == OpKind::Register {
        return Some(Use::Address);
    }
    let moves = insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RSP;
    let below = based && insn.memory_index() == Register::None && (insn.memory_displacement64() as i64) < 0;
    let far = based && (insn.memory_index() != Register::None || (insn.memory_displacement64() as i64) < 0);
    // `lock or [rsp-64], 0`: a fence, whatever lies there.
    if below
        && insn.has_lock_prefix()
        && insn.mnemonic() == Mnemonic::Or
        && insn.op1_kind() != OpKind::Register
        && insn.immediate(1) == 0
    {
        return None;
    }
    if named {
        let source = (1..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Register && stack(insn.op_register(n)));
        let by_itself =
            matches!(insn.mnemonic(), Mnemonic::Mov | Mnemonic::Add | Mnemonic::Sub | Mnemonic::And) && !far;
        let steps = lea && insn.memory_index() == Register::None;
        if !moves || source || !by_itself && !steps {
            return Some(Use::Below);
        }
        // By a register: it may be negative.
        let by_register = matches!(insn.mnemonic(), Mnemonic::Add) && insn.op1_kind() == OpKind::Register;
        return (by_register || step_of(insn) == Some(Step::Down)).then_some(Use::Lowers);
    }
    match (far, lea) {
        _ if below => Some(Use::Named),
        // A bit number in a register reaches to both sides.
        _ if based && insn.op1_kind() == OpKind::Register && is_bit_test(insn) => Some(Use::Below),
        // The constant part is below, whatever the index is.
        (true, _) if (insn.memory_displacement64() as i64) < 0 => Some(Use::Below),
        (false, false) => None,
        _ => Some(Use::Address),
    }
}

fn is_bit_test(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc)
}

/// Where an explicit change of rsp leads it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Up,
    Down,
}

/// What an instruction that is no push, call or return does to rsp. From the frame pointer or another register it is taken to come from below.
fn step_of(insn: &Instruction) -> Option<Step> {
    let signed = |n: i64, up: bool| if (n > 0) == up { Step::Up } else { Step::Down };
    let immediate = matches!(insn.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
    match insn.mnemonic() {
        Mnemonic::Pop | Mnemonic::Popf | Mnemonic::Popfq | Mnemonic::Leave => Some(Step::Up),
        _ if insn.op0_kind() != OpKind::Register || insn.op0_register() != Register::RSP => None,
        Mnemonic::Lea if insn.memory_base() == Register::RSP => Some(signed(insn.memory_displacement64() as i64, true)),
        Mnemonic::Add if immediate => Some(signed(insn.immediate(1) as i64, true)),
        Mnemonic::Sub if immediate => Some(signed(insn.immediate(1) as i64, false)),
        Mnemonic::Sub | Mnemonic::And => Some(Step::Down),
        Mnemonic::Add | Mnemonic::Mov | Mnemonic::Lea => Some(Step::Up),
        _ => None,
    }
}

/// Whether a way within the function leads to the instruction `lowers` from one that raises rsp, or from a call, which leaves its own address below rsp.
/// What was in use in between, below rsp, is so still.
fn is_raised_before(image: &Image, insns: &Insns, cfg: &Cfg, lowers: InsnId) -> bool {
    let raises = |block: BlockId, stop: InsnId| {
        let first = cfg.blocks[block.ix()].first;
        (first.0..stop.0).map(InsnId).any(|i| {
            let insn = insns.decode(image, i);
            let step = step_of(&insn);
            // What is subtracted by a register may be negative.
            let unknown = step.is_some()
                && insn.mnemonic() == Mnemonic::Sub
                && matches!(insn.op1_kind(), OpKind::Register | OpKind::Memory);
            unknown || step == Some(Step::Up) || matches!(insns.flow(i), Flow::Call | Flow::IndirectCall)
        })
    };
    let here = cfg.block_of(lowers);
    if raises(here, lowers) {
        return true;
    }
    let mut seen = BTreeSet::new();
    let mut work: Vec<BlockId> = cfg.preds(here).collect();
    while let Some(b) = work.pop() {
        if seen.insert(b) {
            if raises(b, cfg.blocks[b.ix()].stop) {
                return true;
            }
            work.extend(cfg.preds(b));
        }
    }
    false
}

/// Whether a way leads from one of the blocks to a call through a pointer, also from what they call. A jump out of a function ends it: nothing of its own is
/// in use then. `function`: by block.
fn calls_unknown(cfg: &Cfg, function: &[u32], from: impl Iterator<Item = BlockId>) -> bool {
    // Blocks, and whether they are run for a call: then what their function jumps to is so, too.
    let mut work: Vec<(BlockId, bool)> = from.map(|b| (b, false)).collect();
    let mut seen: BTreeSet<(BlockId, bool)> = work.iter().copied().collect();
    while let Some((b, called)) = work.pop() {
        let callee = match cfg.blocks[b.ix()].end() {
            End::UnknownCall | End::DescriptorCall | End::UnknownJmp => return true,
            End::GotJmp | End::FramedJmp if called => return true,
            End::Call(callee) => Some((callee, true)),
            _ => None,
        };
        let goes_on = |to: &BlockId| called || function[to.ix()] == function[b.ix()];
        let next = cfg.succ(b).iter().copied().filter(goes_on).map(|to| (to, called));
        work.extend(next.chain(callee).filter(|&to| seen.insert(to)));
    }
    false
}

/// The result.
#[derive(Debug, Default)]
pub struct RedZone {
    /// By block.
    free: Vec<bool>,
}

const NOWHERE: u32 = u32::MAX;

/// No object that reaches into the red zone begins so many bytes below rsp.
const DEEPEST: i64 = 4096;

impl RedZone {
    /// Looks at all functions. `functions`: where they begin and end, as the frames say.
    pub fn solve(image: &Image, cfg: &Cfg, insns: &Insns, facts: &Facts, functions: &[(Vaddr, Vaddr)]) -> RedZone {
        let n = cfg.blocks.len();
        // Connected parts, and what lies between the same starts.
        let mut sets = Components::new(n + insns.starts.len());
        for b in cfg.ids() {
            let stretch = insns.starts.partition_point(|s| *s <= cfg.blocks[b.ix()].first);
            if let Some(stretch) = stretch.checked_sub(1) {
                sets.join(cfg.component[b.ix()], (n + stretch) as u32);
            }
        }
        let of: Vec<u32> = cfg.ids().map(|b| sets.find(cfg.component[b.ix()])).collect();
        drop(sets);
        let group = |b: BlockId| of[b.ix()] as usize;
        let mut function = vec![NOWHERE; n];
        for (f, &(start, stop)) in functions.iter().enumerate() {
            for b in cfg.blocks_of(insns.main_range(start, stop)) {
                function[b.ix()] = f as u32;
            }
        }
        let mut below = vec![false; n + insns.starts.len()];
        let (mut named, mut takes) = (below.clone(), below.clone());
        for &(id, how) in &facts.rsp_uses {
            let b = cfg.block_of(id);
            match how {
                Use::Named => named[group(b)] = true,
                Use::Below => below[group(b)] = true,
                Use::Lowers => {
                    let below = &mut below[group(b)];
                    *below = *below || is_raised_before(image, insns, cfg, id);
                }
                Use::Address => takes[group(b)] = true,
            }
        }
        // From whom to whom direct calls lead.
        let mut callees: Vec<(u32, u32)> = Vec::new();
        for b in cfg.ids() {
            match cfg.blocks[b.ix()].end() {
                End::Call(callee) => callees.push((of[b.ix()], of[callee.ix()])),
                End::UnknownJmp => below[group(b)] = true,
                _ => {}
            }
        }
        let mut parts: BTreeMap<u32, Vec<BlockId>> = BTreeMap::new();
        for b in cfg.ids().filter(|b| takes[group(*b)] && !below[group(*b)] && !named[group(*b)]) {
            parts.entry(cfg.component[b.ix()]).or_default().push(b);
        }
        for (component, blocks) in parts {
            if cfg.unresolved[component as usize]
                || stack_stores::may_store_below(image, insns, cfg, &blocks, |b| function[b.ix()] != NOWHERE)
            {
                below[group(blocks[0])] = true;
            }
        }
        let is_near = |id| insns.decode(image, id).memory_displacement64() as i64 >= -DEEPEST;
        let uses = facts.rsp_uses.iter().filter(|u| u.1 == Use::Named && is_near(u.0)).map(|u| cfg.block_of(u.0));
        if calls_unknown(cfg, &function, uses) {
            cfg.ids().filter(|b| cfg.root[b.ix()]).for_each(|b| named[group(b)] = true);
        }
        while callees.iter().any(|&(from, to)| named[from as usize] && !named[to as usize]) {
            callees.iter().for_each(|&(from, to)| named[to as usize] |= named[from as usize]);
        }
        RedZone { free: cfg.ids().map(|b| !below[group(b)] && !named[group(b)]).collect() }
    }

    /// Whether nothing of the program lies below rsp in `b`.
    pub fn is_free(&self, b: BlockId) -> bool {
        self.free.get(b.ix()).is_some_and(|free| *free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn uses_of_the_stack_pointer_are_told_apart() {
        let of = |code: &[u8]| use_of(&Decoder::new(64, code, DecoderOptions::NONE).decode());
        // mov rax, [rsp-8]; mov [rsp-128], rax; lea rax, [rsp-16]
        let named: [&[u8]; 3] =
            [&[0x48, 0x8b, 0x44, 0x24, 0xf8], &[0x48, 0x89, 0x44, 0x24, 0x80], &[0x48, 0x8d, 0x44, 0x24, 0xf0]];
        for code in named {
            assert_eq!(of(code), Some(Use::Named), "{code:x?}");
        }
        // mov rax, [rsp+rcx*8]; mov rax, [rsp+rcx*8-8]; lea rax, [rsp+rcx]; mov rbp, rsp; lea rdi, [rsp+16]
        assert_eq!(of(&[0x48, 0x8b, 0x44, 0xcc, 0xf8]), Some(Use::Below));
        let address: [&[u8]; 4] = [
            &[0x48, 0x89, 0xe5],
            &[0x48, 0x8b, 0x04, 0xcc],
            &[0x48, 0x8d, 0x04, 0x0c],
            &[0x48, 0x8d, 0x7c, 0x24, 0x10],
        ];
        for code in address {
            assert_eq!(of(code), Some(Use::Address), "{code:x?}");
        }
        let below: [&[u8]; 6] = [
            // add rax, rsp; push rsp; xchg rax, rsp; mov [rsp+8], rsp; mov eax, esp; enter 16, 0
            &[0x48, 0x01, 0xe0],
            &[0x54],
            &[0x48, 0x94],
            &[0x48, 0x89, 0x64, 0x24, 0x08],
            &[0x89, 0xe0],
            &[0xc8, 0x10, 0, 0],
        ];
        for code in below {
            assert_eq!(of(code), Some(Use::Below), "{code:x?}");
        }
        // sub rsp, 40; add rsp, -40; sub rsp, rax; and rsp, -16; lea rsp, [rsp-128]
        let lowers: [&[u8]; 5] = [
            &[0x48, 0x83, 0xec, 0x28],
            &[0x48, 0x83, 0xc4, 0xd8],
            &[0x48, 0x29, 0xc4],
            &[0x48, 0x83, 0xe4, 0xf0],
            &[0x48, 0x8d, 0x64, 0x24, 0x80],
        ];
        for code in lowers {
            assert_eq!(of(code), Some(Use::Lowers), "{code:x?}");
        }
        let none: [&[u8]; 10] = [
            // lock or dword [rsp-64], 0
            &[0xf0, 0x83, 0x4c, 0x24, 0xc0, 0],
            // add rsp, 40; mov rsp, rbp; lea rsp, [rsp+16]; mov rax, [rsp+8]; mov [rsp], rax
            &[0x48, 0x83, 0xc4, 0x28],
            &[0x48, 0x89, 0xec],
            &[0x48, 0x8d, 0x64, 0x24, 0x10],
            &[0x48, 0x8b, 0x44, 0x24, 0x08],
            &[0x48, 0x89, 0x04, 0x24],
            // push rax; pop rcx; ret; leave
            &[0x50],
            &[0x59],
            &[0xc3],
            &[0xc9],
        ];
        for code in none {
            assert_eq!(of(code), None, "{code:x?}");
        }
    }
}
