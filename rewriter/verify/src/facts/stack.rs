//! Which registers certainly hold a stack address.
//!
//! Input: [`Graph`], decoded text. Output: [`Stack`], the result of a forward must-analysis. Inserted instructions are skipped.
//! Source: psABI section 3.2 (registers across calls).
//!
//! A register holds a stack address when on every path it was computed from rsp by moves and constant offsets. Nothing
//! is known at function entries, indirect targets and landing pads, nor at any instruction of a part with an unresolved jump: it may lead into the
//! middle of a block.

use crate::decode::decoder::Code;
use crate::decode::effects::{CALLEE_SAVED, RSP, bit};
use crate::decode::insn::{ADDR32, Insn, NONE, WIDE};
use crate::graph::blocks::{End, Graph};
use crate::sites::site::{Sites, get};

/// Registers that hold stack addresses at each block's start.
pub struct Stack {
    at_start: Vec<u16>,
    /// By block: control may enter it in its middle.
    loose: Vec<bool>,
}

impl Stack {
    /// Runs the analysis.
    pub fn new(g: &Graph, text: &Code, sites: &Sites) -> Stack {
        let n = g.starts.len();
        let mut state = vec![0xffffu16; n];
        let mut reached = vec![false; n];
        let mut work: Vec<u32> = Vec::new();
        // An unresolved jump may lead to any block of its part.
        let loose: Vec<bool> = (0..n).map(|b| g.wild[g.component[b] as usize]).collect();
        let open = g.open();
        let continues = g.continues(text, &open);
        for e in (0..n).filter(|&b| open[b]) {
            state[e] = bit(RSP);
            reached[e] = true;
            work.push(e as u32);
        }
        let mut queued = vec![false; n];
        for &e in &work {
            queued[e as usize] = true;
        }
        let mut cursor = 0;
        loop {
            while let Some(b) = work.pop() {
                let b = b as usize;
                queued[b] = false;
                let mut s = state[b];
                for k in g.range(b, text) {
                    if !get(&sites.inserted, k) && !loose[b] {
                        s = stack_step(s, &text.insns[k]);
                    }
                }
                let mut to = |t: usize, s: u16| {
                    let new = state[t] & s;
                    if new != state[t] || !reached[t] {
                        state[t] = new;
                        reached[t] = true;
                        if !queued[t] {
                            queued[t] = true;
                            work.push(t as u32);
                        }
                    }
                };
                if matches!(g.ends[b], End::Call(_) | End::CallInd { .. }) {
                    s &= CALLEE_SAVED;
                }
                let behind_call = continues[b].then_some(b + 1);
                g.succ(b).iter().map(|&t| t as usize).chain(behind_call).for_each(|t| to(t, s));
            }
            // Code that no known way reaches may be entered from outside.
            while cursor < n && reached[cursor] {
                cursor += 1;
            }
            if cursor == n {
                break;
            }
            reached[cursor] = true;
            state[cursor] = bit(RSP);
            queued[cursor] = true;
            work.push(cursor as u32);
        }
        Stack { at_start: state, loose }
    }

    /// Calls `f` for each instruction of a block that is not inserted, with the registers that hold stack addresses in
    /// front of it.
    pub fn each(&self, g: &Graph, text: &Code, sites: &Sites, block: usize, mut f: impl FnMut(usize, u16)) {
        let mut s = self.at_start[block];
        for k in g.range(block, text) {
            if !get(&sites.inserted, k) {
                f(k, s);
                if !self.loose[block] {
                    s = stack_step(s, &text.insns[k]);
                }
            }
        }
    }
}

fn stack_step(s: u16, i: &Insn) -> u16 {
    let wide = i.has(WIDE) && !i.has(ADDR32);
    let derived = |r: u8| r < 16 && s & bit(r) != 0;
    let set = |r: u8, on: bool| (if on { s | bit(r) } else { s & !bit(r) }) | bit(RSP);
    match (i.op, &i.mem) {
        (0x89 | 0x8b, None) if wide && i.r0 < 16 => set(i.r0, derived(i.r1)),
        (0x8d, Some(m)) if wide && i.r0 < 16 => set(i.r0, m.index == NONE && m.seg == 0 && derived(m.base)),
        (0x81 | 0x83, None) if wide && matches!(i.ext, 0 | 5) => s,
        // Realignment clears low bits.
        (0x83, None) if wide && i.ext == 4 && (-128..0).contains(&i.imm) => s,
        (0xc8, _) => set(crate::decode::effects::RBP, true),
        (0x05 | 0x2d, None) if wide => s,
        (0xff, None) if wide && i.ext < 2 => s,
        _ => (s & !i.fx.writes) | bit(RSP),
    }
}
