//! Whether code stores below rsp through addresses that it makes on the stack.
//!
//! Input: the blocks of a connected part of the graph, without inserted instructions. Output: whether a store through a register with an address on
//! the stack may lie below rsp as it is there. Depths are bytes under rsp where the part is entered. Of rsp the least depth is kept that it may have,
//! which a place must not exceed; of an address the greatest.
//! **Invariant**: `false` only if each address that is made from rsp is followed to each store through it. rsp from elsewhere, a jump to an unknown
//! place, a part that nothing is known to enter, and an address that goes to memory or to a vector count as reaching below.
//! A load counts if its place is known, or after rsp was raised: what nobody stored or pushed is nobody's. Believed: what is
//! called with an address stores nothing deeper and returns none that is deeper; nobody loads what a call has left below rsp.
//! Source: psABI sections 3.2.1 and 3.2.2.

use crate::decode::decoder::Code;
use crate::decode::effects::{CALLEE_SAVED, Flow, RAX, RCX, RDI, RDX, RSI, RSP, Touch, bit};
use crate::decode::insn::{ADDR32, Insn, NONE, VECTOR, WIDE};
use crate::graph::blocks::{End, Graph};
use crate::sites::site::{Sites, get};
use std::collections::BTreeMap;

const RBP: u8 = 5;

/// What is known of a register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// No address on the stack.
    Number,
    /// A number that is not negative.
    Natural,
    /// rsp as it was at this depth.
    Depth(i64),
    /// If on the stack, then not deeper.
    UpFrom(i64),
    /// If on the stack, then so many bytes above rsp or higher.
    Above(i64),
    /// On the stack, anywhere.
    Anywhere,
}

#[derive(Clone, PartialEq, Eq)]
struct Frame {
    /// The least depth of rsp; `known`: it is that.
    depth: i64,
    known: bool,
    /// It was deeper before, and what it left may be loaded.
    raised: bool,
    values: [Value; 16],
}

/// Whether the blocks, all of one part, may store below rsp through an address that they make. `entered`: unknown code may enter the block; `kept`: as [`Graph::kept`]; `is_inside`: it lies inside a
/// function.
pub(crate) fn may_store_below(
    g: &Graph,
    text: &Code,
    sites: &Sites,
    blocks: &[usize],
    entered: &[bool],
    kept: &[bool],
    is_inside: impl Fn(usize) -> bool,
) -> bool {
    let fresh = Frame { depth: 0, known: true, raised: false, values: [Value::Number; 16] };
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
    // Whoever enters in the middle may have addresses in registers.
    if blocks.iter().any(|&b| entered[b] && is_inside(b)) {
        return true;
    }
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

impl Value {
    fn on_stack(self) -> bool {
        !matches!(self, Value::Number | Value::Natural)
    }

    /// The value and a constant.
    fn offset(self, by: i64) -> Value {
        match self {
            Value::Depth(d) => Value::Depth(d.saturating_sub(by)),
            Value::UpFrom(d) => Value::UpFrom(d.saturating_sub(by)),
            Value::Above(n) => Value::Above(n.saturating_add(by)),
            Value::Natural => Value::Number,
            Value::Number | Value::Anywhere => self,
        }
    }

    /// The value and something that is not negative.
    fn or_higher(self) -> Value {
        match self {
            Value::Depth(d) => Value::UpFrom(d),
            Value::Natural => Value::Number,
            v => v,
        }
    }

    /// The value and that of another register, `scale` times.
    fn indexed(self, index: Value, scale: u8) -> Value {
        match (self.on_stack(), index.on_stack()) {
            (false, false) => Value::Number,
            (true, false) if index == Value::Natural => self.or_higher(),
            (false, true) if self == Value::Natural && scale == 1 => index.or_higher(),
            _ => Value::Anywhere,
        }
    }

    /// What holds for both, where rsp has at least this depth.
    fn or(self, other: Value, depth: i64) -> Value {
        if self == other {
            return self;
        }
        let (a, b) = if self.on_stack() { (self, other) } else { (other, self) };
        match (a, b) {
            (Value::Anywhere, _) | (_, Value::Anywhere) => Value::Anywhere,
            (Value::Depth(a) | Value::UpFrom(a), Value::Depth(b) | Value::UpFrom(b)) => Value::UpFrom(a.max(b)),
            (Value::Above(a), Value::Above(b)) => Value::Above(a.min(b)),
            (Value::Above(n), Value::Depth(d) | Value::UpFrom(d))
            | (Value::Depth(d) | Value::UpFrom(d), Value::Above(n)) => Value::Above(n.min(depth - d)),
            (on_stack, _) => on_stack.or_higher(),
        }
    }
}

impl Frame {
    fn join(&self, other: &Frame) -> Frame {
        let depth = self.depth.min(other.depth);
        Frame {
            depth,
            known: self.known && other.known && self.depth == other.depth,
            raised: self.raised || other.raised,
            values: std::array::from_fn(|r| self.values[r].or(other.values[r], depth)),
        }
    }

    fn value(&self, r: u8) -> Value {
        match r {
            RSP if self.known => Value::Depth(self.depth),
            RSP => Value::Above(0),
            0..16 => self.values[usize::from(r)],
            _ => Value::Number,
        }
    }

    fn is_below(&self, v: Value) -> bool {
        match v {
            Value::Number | Value::Natural => false,
            Value::Depth(d) | Value::UpFrom(d) => d > self.depth,
            Value::Above(n) => n < 0,
            Value::Anywhere => true,
        }
    }

    /// rsp goes up by so many bytes, or down.
    fn raise(&mut self, bytes: i64) {
        self.depth -= bytes;
        if bytes > 0 {
            self.raised = true;
            for v in &mut self.values {
                if let Value::Above(n) = v {
                    *n -= bytes;
                }
            }
        }
    }

    /// rsp becomes what a register holds, and a constant.
    fn back_to(&mut self, r: u8, disp: i64) -> bool {
        let Value::Depth(d) = self.value(r) else { return false };
        // It may uncover what it was raised over.
        if d - disp > self.depth && (self.known || self.raised) {
            return false;
        }
        (self.depth, self.known, self.raised) = (d - disp, true, true);
        for v in &mut self.values {
            if matches!(v, Value::Above(_)) {
                *v = Value::Anywhere;
            }
        }
        true
    }

    /// Whether an instruction stores below rsp, or loads from a place that is known to lie there.
    fn reaches(&self, i: &Insn) -> bool {
        let through = |r: u8| self.is_below(self.value(r));
        let operand = i.mem.filter(|m| m.seg == 0 && (m.base != RSP || m.index != NONE));
        let stores = match i.touch {
            // By its number a bit is found on either side.
            Touch::BitString(_) => {
                return operand.is_some_and(|m| self.value(m.base).on_stack() || self.value(m.index).on_stack());
            }
            Touch::Mem(a) | Touch::Lanes(a) | Touch::Xsave(a) => a.writes(),
            Touch::String { writes_di: true, .. } | Touch::MaskMov => return through(RDI),
            Touch::ZeroLine => return through(RAX),
            Touch::Move64 => return through(i.r0),
            Touch::Opaque => return (0..16).any(|r| i.fx.reads & bit(r) != 0 && self.value(r).on_stack()),
            Touch::String { .. } => return self.raised && (through(RDI) || through(RSI)),
            Touch::Xlat => return self.raised && through(crate::decode::effects::RBX),
            Touch::None => false,
        };
        operand.is_some_and(|m| {
            let constant = self.value(m.base).offset(m.disp);
            let known = matches!(constant, Value::Depth(_)) && i.touch != Touch::None;
            let counts = stores || self.raised && i.touch != Touch::None;
            known && self.is_below(constant) || counts && self.is_below(self.address(m.base, m.index, m.scale, m.disp))
        })
    }

    fn address(&self, base: u8, index: u8, scale: u8, disp: i64) -> Value {
        let constant = self.value(base).offset(disp);
        match index {
            NONE => constant,
            VECTOR if constant.on_stack() => Value::Anywhere,
            _ => constant.indexed(self.value(index), scale),
        }
    }

    /// Whether an instruction reads an address on the stack from a register, but to name a place.
    fn takes(&self, i: &Insn) -> bool {
        let mut names =
            i.mem.map_or(0, |m| [m.base, m.index].iter().filter(|r| **r < 16).fold(0, |set, r| set | bit(*r)));
        if matches!(i.touch, Touch::String { .. }) {
            names |= bit(RDI) | bit(RSI) | bit(RCX);
        }
        let mut read = i.fx.reads & !names;
        // An operand may name a place, too.
        let only_written = matches!(i.op, 0x63 | 0x8b | 0x8d | 0x1b6 | 0x1b7 | 0x1be | 0x1bf);
        if i.r0 < 16 && !only_written {
            read |= i.fx.reads & bit(i.r0);
        }
        if i.r1 < 16 {
            read |= i.fx.reads & bit(i.r1);
        }
        (0..16).any(|r| r != RSP && read & bit(r) != 0 && self.value(r).on_stack())
    }

    /// Follows one instruction; `false`: it reaches below, or is not understood.
    fn pass(&mut self, i: &Insn) -> bool {
        if i.is_nop() || i.flow == Flow::Ret {
            return true;
        }
        if matches!(i.flow, Flow::Call | Flow::CallInd) {
            return !self.reaches(i);
        }
        // syscall: the kernel may store where its arguments lead.
        if i.op == 0x105 {
            if [RDI, RSI, RDX, 10, 8, 9].iter().any(|r| self.is_below(self.value(*r))) {
                return false;
            }
            [RAX, RCX, 11].iter().for_each(|r| self.values[usize::from(*r)] = Value::Number);
            return true;
        }
        // std: strings downwards.
        if i.op == 0xfd || self.reaches(i) {
            return false;
        }
        let to_rsp = i.r0 == RSP && i.r0_bytes == 8 && (i.mem.is_none() || matches!(i.op, 0x8b | 0x8d));
        match (i.op, &i.mem) {
            (0xc9, _) => {
                let known = self.back_to(RBP, 8);
                self.values[usize::from(RBP)] = Value::Number;
                return known;
            }
            (0x81 | 0x83, None) if to_rsp && i.ext == 0 => self.raise(i.imm),
            (0x81 | 0x83, None) if to_rsp && i.ext == 5 => self.raise(-i.imm),
            // Lower by something.
            (0x81 | 0x83, None) if to_rsp && i.ext == 4 => self.known = false,
            (0x29 | 0x2b, None) if to_rsp && self.value(i.r1) == Value::Natural => self.known = false,
            // It may be negative.
            (0x29 | 0x2b, _) if i.r0 == RSP => return false,
            (0x89 | 0x8b, None) if to_rsp => return self.back_to(i.r1, 0),
            (0x8d, Some(m)) if to_rsp && m.index == NONE => {
                if m.base != RSP {
                    return self.back_to(m.base, m.disp);
                }
                self.raise(m.disp);
            }
            _ => return self.writes(i),
        }
        true
    }

    /// Follows what is no arithmetic of rsp.
    fn writes(&mut self, i: &Insn) -> bool {
        let takes = self.takes(i);
        let stores = i.fx.writes & !bit(RSP) == 0 || i.mem.is_some() && i.touch != Touch::None;
        let compares = matches!((i.op, i.ext), (0x38..=0x3d | 0x84 | 0x85 | 0xa8 | 0xa9 | 0x1a3 | 0xe3, _))
            || matches!((i.op, i.ext), (0x80..=0x83, 7) | (0xf6 | 0xf7, 0 | 1) | (0x1ba, 4))
            || i.flow != Flow::Next;
        // It goes to memory, or to a register of another kind.
        if takes && stores && !compares && !self.loads_only(i) {
            return false;
        }
        let moved = match (i.op, i.ext) {
            (0x50..=0x57 | 0x68 | 0x6a | 0x9c, _) | (0xff, 6) if i.r0 != RSP => 8,
            (0x58..=0x5f, _) | (0x8f, 0) | (0x9d, _) if i.r0 != RSP => -8,
            _ if i.fx.writes & bit(RSP) != 0 => return false,
            _ => 0,
        };
        let made = self.made(i, takes);
        if matches!(made, Value::Depth(_)) && self.is_below(made) {
            return false;
        }
        // A result of 32 bits clears the upper half, but where a count or a source of zero leaves all as it is.
        let may_leave = match i.op {
            0xc0..=0xc1 | 0xd0..=0xd3 | 0x102 | 0x103 | 0x1a4 | 0x1a5 | 0x1ac | 0x1ad | 0x1b0 | 0x1b1 => true,
            // bsf and bsr, but not tzcnt and lzcnt: a prefix makes those of them, which write always.
            0x1bc | 0x1bd => i.fx.kills & bit(i.r0) == 0,
            _ => false,
        };
        let natural = i.r0_bytes == 4 && !may_leave || matches!(i.op, 0x1b6 | 0x1b7);
        let strings = if matches!(i.touch, Touch::String { .. }) { bit(RDI) | bit(RSI) } else { 0 };
        for r in (0..16u8).filter(|r| i.fx.writes & bit(*r) != 0 && *r != RSP) {
            let old = self.value(r);
            self.values[usize::from(r)] = match () {
                () if strings & bit(r) != 0 => old.or_higher(),
                () if natural && r == i.r0 => Value::Natural,
                () if r == i.r0 && i.r0_bytes == 8 => made,
                () if takes || old.on_stack() && i.fx.kills & bit(r) == 0 => Value::Anywhere,
                () => Value::Number,
            };
        }
        self.raise(-moved);
        true
    }

    /// Whether its memory operand is loaded into a general register, no more.
    fn loads_only(&self, i: &Insn) -> bool {
        matches!(i.touch, Touch::Mem(a) if !a.writes()) && i.fx.writes & !bit(RSP) != 0
    }

    /// What the first operand becomes, 64 bits of it.
    fn made(&self, i: &Insn, takes: bool) -> Value {
        let own = self.value(i.r0);
        let wide = i.has(WIDE) && !i.has(ADDR32);
        match (i.op, &i.mem) {
            (0x8d, Some(m)) if wide => self.address(m.base, m.index, m.scale, m.disp),
            (0x89 | 0x8b, None) if wide => self.value(i.r1),
            (0x81 | 0x83, None) if wide && i.ext == 0 => own.offset(i.imm),
            (0x81 | 0x83, None) if wide && i.ext == 5 => own.offset(i.imm.saturating_neg()),
            (0xff, None) if wide && i.ext < 2 => own.offset(if i.ext == 0 { 1 } else { -1 }),
            // Aligned.
            (0x81 | 0x83, None) if wide && i.ext == 4 && i.imm < 0 && i.imm.unsigned_abs().is_power_of_two() => {
                own.offset(i.imm + 1).or_higher()
            }
            (0x01 | 0x03, None) if wide => own.indexed(self.value(i.r1), 1),
            // A distance between two places.
            (0x29 | 0x2b, None) if wide && own.on_stack() && matches!(self.value(i.r1), Value::Depth(_)) => {
                Value::Number
            }
            (0x29 | 0x2b, None) if wide && self.value(i.r1).on_stack() => Value::Anywhere,
            (0x29 | 0x2b, None) if wide => own.indexed(Value::Number, 1),
            (0x25, None) if wide && i.imm >= 0 => Value::Natural,
            (0x81 | 0x83, None) if wide && i.ext == 4 && i.imm >= 0 => Value::Natural,
            (0x05, None) if wide => own.offset(i.imm),
            (0x2d, None) if wide => own.offset(i.imm.saturating_neg()),
            (0x25, None) if wide && i.imm.unsigned_abs().is_power_of_two() => own.offset(i.imm + 1).or_higher(),
            (0x140..=0x14f, None) if wide => own.or(self.value(i.r1), self.depth),
            (0x140..=0x14f, Some(_)) if wide => own.or(Value::Number, self.depth),
            _ if takes => Value::Anywhere,
            _ => Value::Number,
        }
    }
}
