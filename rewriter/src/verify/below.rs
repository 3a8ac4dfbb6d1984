//! Whether code reaches below rsp through copies of it.
//!
//! Input: the blocks of a connected part of the graph, without inserted instructions. Output: whether a place that is named relative to a copy of rsp,
//! or an address that is made so, may lie below rsp as it is there. Depths are bytes under rsp where the part is entered; kept is the least
//! depth that rsp may have, which is what a place must not exceed.
//! **Invariant**: `false` only if each copy, and each place that its constant part names, is understood. rsp from elsewhere, a jump to an unknown place and
//! a part that nothing is known to enter count as reaching below.
//! Source: psABI sections 3.2.1 and 3.2.2.

use super::decode::{ADDR32, Code, Insn, NONE, WIDE};
use super::effects::{RSP, bit};
use super::graph::{End, Graph};
use super::live::CALLEE_SAVED;
use super::sites::{Sites, get};
use std::collections::BTreeMap;

const RBP: u8 = 5;

/// What is known of a register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// No copy of rsp.
    Number,
    /// rsp as it was at this depth.
    Depth(i64),
    /// On the stack, not below rsp when it was made.
    OnStack,
}

#[derive(Clone, PartialEq, Eq)]
struct Frame {
    /// The least depth of rsp; `known`: it is that.
    depth: i64,
    known: bool,
    values: [Value; 16],
}

/// Whether the blocks, all of one part, may reach below rsp through a copy of it. `entered`: unknown code may enter the block; `kept`: as [`Graph::kept`].
pub(super) fn may_reach(
    g: &Graph,
    text: &Code,
    sites: &Sites,
    blocks: &[usize],
    entered: &[bool],
    kept: &[bool],
) -> bool {
    let fresh = Frame { depth: 0, known: true, values: [Value::Number; 16] };
    let mut preds = vec![0u32; blocks.len()];
    let place = |b: usize| blocks.binary_search(&b).ok();
    let next = |b: usize| -> Vec<usize> {
        let behind = kept[b].then_some(b + 1);
        g.succ(b).iter().copied().chain(g.pad(b)).map(|t| t as usize).chain(behind).collect()
    };
    for &b in blocks {
        for t in next(b) {
            if let Some(k) = place(t) {
                preds[k] += 1;
            }
        }
    }
    // It fills the room in front of what is aligned.
    let is_padding =
        |b: usize| !entered[b] && g.range(b, text).all(|k| text.insns[k].is_int3() || text.insns[k].is_nop());
    let mut frames: BTreeMap<usize, Frame> = BTreeMap::new();
    let mut work = Vec::new();
    for (k, &b) in blocks.iter().enumerate() {
        if (preds[k] == 0 && !is_padding(b)) || entered[b] {
            frames.insert(b, fresh.clone());
            work.push(b);
        }
    }
    let mut rounds = 64 * blocks.len();
    while let Some(b) = work.pop() {
        if rounds == 0 || matches!(g.ends[b], End::Unresolved { .. }) {
            return true;
        }
        rounds -= 1;
        let mut frame = frames[&b].clone();
        for k in g.range(b, text).filter(|&k| !get(&sites.inserted, k)) {
            if !frame.pass(&text.insns[k]) {
                return true;
            }
        }
        if matches!(g.ends[b], End::Call(_) | End::CallInd { .. }) {
            for r in (0..16).filter(|r| CALLEE_SAVED & 1 << r == 0) {
                frame.values[r] = Value::Number;
            }
        }
        for t in next(b) {
            let joined = match frames.get(&t) {
                Some(known) => known.join(&frame),
                None => frame.clone(),
            };
            if frames.get(&t) != Some(&joined) {
                frames.insert(t, joined);
                work.push(t);
            }
        }
    }
    // What no entry leads to is a circle that something unknown enters.
    blocks.iter().any(|&b| !frames.contains_key(&b) && !is_padding(b))
}

impl Frame {
    fn join(&self, other: &Frame) -> Frame {
        let mut joined = self.clone();
        joined.depth = self.depth.min(other.depth);
        joined.known = self.known && other.known && self.depth == other.depth;
        for (v, o) in joined.values.iter_mut().zip(other.values) {
            if *v != o {
                *v = Value::OnStack;
            }
        }
        joined
    }

    /// The value of a register plus a constant, or of the constant part of an operand; `None`: it may lie below rsp.
    fn named(&self, r: u8, disp: i64) -> Option<Value> {
        if r >= 16 {
            return Some(Value::Number);
        }
        let of = match self.values[usize::from(r)] {
            _ if r == RSP && self.known => Value::Depth(self.depth),
            _ if r == RSP => Value::OnStack,
            v => v,
        };
        match of {
            Value::Number => Some(of),
            Value::OnStack => (disp >= 0).then_some(of),
            Value::Depth(d) => (d - disp <= self.depth).then_some(Value::Depth(d - disp)),
        }
    }

    /// rsp becomes a copy of it again.
    fn back_to(&mut self, r: u8, disp: i64) -> bool {
        let Some(Value::Depth(d)) = self.values.get(usize::from(r)).copied() else { return false };
        (self.depth, self.known) = (d - disp, true);
        true
    }

    /// Follows one instruction; `false`: it reaches below, or is not understood.
    fn pass(&mut self, i: &Insn) -> bool {
        let wide = i.has(WIDE) && !i.has(ADDR32);
        let lea = i.op == 0x8d;
        let to_rsp = i.r0 == RSP && i.r0_bytes == 8 && (i.mem.is_none() || matches!(i.op, 0x8b | 0x8d));
        if let Some(m) = i.mem.filter(|m| m.base != RSP && m.seg == 0)
            && !i.is_nop()
            && !(lea && to_rsp)
            && self.named(m.base, m.disp).is_none()
        {
            return false;
        }
        let set = |frame: &mut Frame, v: Value| frame.values[usize::from(i.r0)] = v;
        match (i.op, &i.mem) {
            (0x50..=0x57 | 0x68 | 0x6a | 0x9c, _) if i.r0 != RSP => self.depth += 8,
            (0xff, _) if i.ext == 6 && i.r0 != RSP => self.depth += 8,
            (0x58..=0x5f, None) if i.r0 < 16 && i.r0 != RSP => {
                self.depth -= 8;
                set(self, Value::Number);
            }
            (0x9d, _) | (0x8f, Some(_)) => self.depth -= 8,
            (0xc9, _) => {
                if !self.back_to(RBP, 8) {
                    return false;
                }
                self.values[usize::from(RBP)] = Value::Number;
            }
            (0x81 | 0x83, None) if to_rsp && i.ext == 0 => self.depth -= i.imm,
            (0x81 | 0x83, None) if to_rsp && i.ext == 5 => self.depth += i.imm,
            // Lower by something.
            (0x81 | 0x83, None) if to_rsp && i.ext == 4 => self.known = false,
            (0x29 | 0x2b, None) if to_rsp && i.r1 < 16 && i.r1 != RSP => self.known = false,
            (0x2b, Some(_)) if i.r0 == RSP => self.known = false,
            (0x89 | 0x8b, None) if to_rsp => return self.back_to(i.r1, 0),
            (0x8d, Some(m)) if to_rsp => {
                if m.index != NONE {
                    return false;
                }
                if m.base == RSP {
                    self.depth -= m.disp;
                } else {
                    return self.back_to(m.base, m.disp);
                }
            }
            (0x8d, Some(m)) if wide && i.r0 < 16 => match self.named(m.base, m.disp) {
                Some(Value::Depth(_)) if m.index != NONE => set(self, Value::OnStack),
                Some(v) => set(self, v),
                None => return false,
            },
            (0x89 | 0x8b, None) if wide && i.r0 < 16 => match self.named(i.r1, 0) {
                Some(v) => set(self, v),
                None => return false,
            },
            (0x81 | 0x83, None) if wide && i.r0 < 16 && matches!(i.ext, 0 | 5) => {
                match self.named(i.r0, if i.ext == 0 { i.imm } else { -i.imm }) {
                    Some(v) => set(self, v),
                    None => return false,
                }
            }
            (0x01 | 0x03 | 0x29 | 0x2b, None) if wide && i.r0 < 16 && i.r0 != RSP => {
                let (to, by) = (self.values[usize::from(i.r0)], self.named(i.r1, 0));
                match (to, by) {
                    (_, None) => return false,
                    (Value::Number, Some(Value::Number)) => {}
                    // A distance between two places.
                    (Value::Number, Some(_)) if matches!(i.op, 0x29 | 0x2b) => {}
                    _ => set(self, Value::OnStack),
                }
            }
            _ => {
                let calls = matches!(
                    i.flow,
                    super::effects::Flow::Call | super::effects::Flow::CallInd | super::effects::Flow::Ret
                );
                if i.fx.writes & bit(RSP) != 0 && !calls {
                    return false;
                }
                for r in (0..16).filter(|r| i.fx.writes & 1 << r != 0 && *r != usize::from(RSP)) {
                    self.values[r] = Value::Number;
                }
            }
        }
        true
    }
}
