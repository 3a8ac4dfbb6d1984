//! What remains at the old addresses: springboards at plausible indirect targets, trap bytes everywhere else that was decoded.
//!
//! Output: the patched bytes (in the output file's copy of the input) and the trap map. Invariants: bytes that were not
//! decoded as code are untouched; no byte of an old instruction can run; every old instruction's address has a springboard or
//! a row in the trap map, unless a springboard covers it.

use crate::disasm::{InsnId, Insns};
use crate::ids::Vaddr;
use crate::image::Image;
use crate::layout::Placed;
use blizzard_rt::abi::TrapEntry;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use std::ops::Range;

/// Bytes of `jmp rel32`.
const SPRINGBOARD: u64 = 5;
const TRAP: u8 = 0xcc;

/// What was left behind.
#[derive(Debug)]
pub struct Left {
    /// Sorted by old address.
    pub traps: Vec<TrapEntry>,
    pub springboards: usize,
    /// Roots that had no room for one.
    pub crowded: usize,
}

/// Patches `out`, a copy of the input file.
pub fn patch(out: &mut [u8], image: &Image, insns: &Insns, placed: &Placed) -> Left {
    let mut covered: Vec<Vec<bool>> = image.exec.iter().map(|s| vec![false; s.bytes as usize]).collect();
    let mut s = 0;
    for insn in &insns.list {
        let va = insns.base + u64::from(insn.at);
        if va < image.exec[s].va || va - image.exec[s].va >= image.exec[s].bytes {
            s = image.exec_at(va).expect("decoded code lies in a section");
        }
        let at = (va - image.exec[s].va) as usize;
        let len = usize::from(insn.len);
        covered[s][at..at + len].fill(true);
        let off = (image.exec[s].off.0 as usize) + at;
        out[off..off + len].fill(TRAP);
    }
    for (s, covered) in covered.iter_mut().enumerate() {
        cover_padding(out, image, s, covered);
    }
    let mut roots: Vec<(Vaddr, InsnId)> = insns.roots.iter().map(|&r| (insns.va(r), r)).collect();
    roots.sort();
    let mut boards = Vec::with_capacity(roots.len());
    let mut crowded = 0;
    let mut free_from = Vaddr(0);
    for (k, &(va, id)) in roots.iter().enumerate() {
        let s = image.exec_at(va).expect("roots lie in a section");
        let at = (va - image.exec[s].va) as usize;
        let room = covered[s].get(at..at + SPRINGBOARD as usize).is_some_and(|c| c.iter().all(|b| *b));
        let next = roots.get(k + 1).map_or(u64::MAX, |n| n.0.0);
        if va < free_from || next < va.0 + SPRINGBOARD || !room {
            crowded += 1;
            continue;
        }
        free_from = va + SPRINGBOARD;
        let off = image.exec[s].off.0 as usize + at;
        let rel = (placed.begin(id) - (va + SPRINGBOARD)) as i64 as i32;
        out[off] = 0xe9;
        out[off + 1..off + 5].copy_from_slice(&rel.to_le_bytes());
        boards.push(va);
    }
    let mut traps = Vec::with_capacity(insns.list.len());
    let mut add = |range: Range<usize>| {
        let mut next = 0;
        for i in range {
            let id = InsnId(i as u32);
            let va = insns.va(id);
            // The main run ascends; of the others there are few.
            if i >= insns.main {
                next = 0;
            }
            next += boards[next..].iter().take_while(|b| **b + SPRINGBOARD <= va).count();
            if boards.get(next).is_none_or(|b| *b > va) {
                traps.push(TrapEntry { old: insns.list[i].at, new: (placed.begin(id) - placed.code_va) as u32 });
            }
        }
    };
    add(0..insns.main);
    add(insns.main..insns.list.len());
    if insns.main < insns.list.len() {
        traps.sort();
    }
    Left { traps, springboards: boards.len(), crowded }
}

/// Alignment padding behind code (nops, int3) never runs and holds no data: springboards may use it.
fn cover_padding(out: &mut [u8], image: &Image, s: usize, covered: &mut [bool]) {
    let bytes = image.exec_bytes(s);
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut at = 0;
    while let Some(gap) = covered[at..].windows(2).position(|w| w[0] && !w[1]) {
        at += gap + 1;
        while at < bytes.len() && !covered[at] {
            decoder.set_position(at).expect("the offset lies in the section");
            let insn = decoder.decode();
            let end = at + insn.len();
            let padding = !insn.is_invalid()
                && matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
                && !covered[at..end].contains(&true);
            if !padding {
                break;
            }
            covered[at..end].fill(true);
            let off = image.exec[s].off.0 as usize + at;
            out[off..off + insn.len()].fill(TRAP);
            at = end;
        }
    }
}
