//! Cfg, Facts -> [`RedZone`]: functions that keep nothing below the stack pointer.
//!
//! The 128 bytes below rsp belong to the program (psABI 3.2.2, the red zone): no signal handler touches them. Where a function keeps
//! nothing there, inserted code may, from one instruction of the program to the next: cheaper than moving rsp out of the way. A
//! function is a connected part of the graph, landing pads included, together with all other code between the same function starts.
//!
//! Whether anything lies there follows from the accesses. A place that is named relative to rsp lies where its displacement says, and one below is in use.
//! Where addresses are made from rsp, [`crate::facts::stack_stores`] tells whether a store through one may lie below. What rsp has been raised over may be
//! in use where it is lowered again, other than by a push or call, which write what they uncover. Hand-written code that keeps something below while it
//! calls what it knows names the place: then its callees keep off, too. Where a way leads from the place to a call through a pointer, all keep off that
//! such a call may lead to in this file.

use crate::base::addresses::Vaddr;
use crate::base::collections::union_find::Components;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::facts::kinds::Facts;
use crate::facts::rsp::{RspStep, RspUse, step_of};
use crate::facts::stack_stores;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::read::image::Image;
use iced_x86::{Mnemonic, OpKind};
use std::collections::{BTreeMap, BTreeSet};

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
            unknown || step == Some(RspStep::Up) || matches!(insns.flow(i), Flow::Call | Flow::IndirectCall)
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
        // A landing pad goes on with the registers of whoever called.
        let mut joined = Components::new(n);
        for pads in &cfg.pads {
            let first = cfg.component[pads.from[0].ix()];
            for b in pads.from.iter().chain(&pads.to) {
                joined.join(first, cfg.component[b.ix()]);
                sets.join(first, cfg.component[b.ix()]);
            }
        }
        let of: Vec<u32> = cfg.ids().map(|b| sets.find(cfg.component[b.ix()])).collect();
        let part: Vec<u32> = cfg.ids().map(|b| joined.find(cfg.component[b.ix()])).collect();
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
                RspUse::Named => named[group(b)] = true,
                RspUse::Below => below[group(b)] = true,
                RspUse::Lowers => {
                    let below = &mut below[group(b)];
                    *below = *below || is_raised_before(image, insns, cfg, id);
                }
                RspUse::Address => takes[group(b)] = true,
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
            parts.entry(part[b.ix()]).or_default().push(b);
        }
        for blocks in parts.into_values() {
            if blocks.iter().any(|b| cfg.unresolved[cfg.component[b.ix()] as usize])
                || stack_stores::may_store_below(image, insns, cfg, &blocks, |b| function[b.ix()] != NOWHERE)
            {
                below[group(blocks[0])] = true;
            }
        }
        let is_near = |id| insns.decode(image, id).memory_displacement64() as i64 >= -DEEPEST;
        let uses = facts.rsp_uses.iter().filter(|u| u.1 == RspUse::Named && is_near(u.0)).map(|u| cfg.block_of(u.0));
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
    use crate::facts::rsp::use_of;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn uses_of_the_stack_pointer_are_told_apart() {
        let of = |code: &[u8]| use_of(&Decoder::new(64, code, DecoderOptions::NONE).decode());
        // mov rax, [rsp-8]; mov [rsp-128], rax; lea rax, [rsp-16]
        let named: [&[u8]; 3] =
            [&[0x48, 0x8b, 0x44, 0x24, 0xf8], &[0x48, 0x89, 0x44, 0x24, 0x80], &[0x48, 0x8d, 0x44, 0x24, 0xf0]];
        for code in named {
            assert_eq!(of(code), Some(RspUse::Named), "{code:x?}");
        }
        // mov rax, [rsp+rcx*8]; mov rax, [rsp+rcx*8-8]; lea rax, [rsp+rcx]; mov rbp, rsp; lea rdi, [rsp+16]
        assert_eq!(of(&[0x48, 0x8b, 0x44, 0xcc, 0xf8]), Some(RspUse::Below));
        let address: [&[u8]; 4] = [
            &[0x48, 0x89, 0xe5],
            &[0x48, 0x8b, 0x04, 0xcc],
            &[0x48, 0x8d, 0x04, 0x0c],
            &[0x48, 0x8d, 0x7c, 0x24, 0x10],
        ];
        for code in address {
            assert_eq!(of(code), Some(RspUse::Address), "{code:x?}");
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
            assert_eq!(of(code), Some(RspUse::Below), "{code:x?}");
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
            assert_eq!(of(code), Some(RspUse::Lowers), "{code:x?}");
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
