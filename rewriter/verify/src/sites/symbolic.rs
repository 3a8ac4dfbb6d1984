//! Symbolic execution of inserted code: straight lines of the few instructions that checks, polls and cold stubs consist of.
//!
//! Input: a [`SymbolicState`] and one instruction. Output: the next state, or what the instruction asks of the caller ([`WalkStep`]).
//! A register holds its initial value, an address expression over initial values, or something derived from one;
//! everything else is [`Val::Junk`]. So what a sequence changes is what the state says at its end, however the
//! sequence is ordered. Source: `rewriter/SEQUENCES.md`, "The check sequences".

use crate::decode::effects::{ALL_FLAGS, CF, Flow, OF, RAX, RSP};
use crate::decode::insn::{GS, Insn, MASKED, Mem, NONE, PREFIXED, RIP, WIDE};
use blizzard_contract as contract;

/// Bytes below rsp that belong to the program.
const RED_ZONE: i64 = 128;
/// Furthest tags from that of an address which inserted code looks at, four from there on: the table ends a page behind the last address of a program.
const FURTHEST: u64 = 60;

/// `base + index * scale + disp` over initial register values, plus the word that a bit offset selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lin {
    pub base: u8,
    pub index: u8,
    pub scale: u8,
    pub disp: i64,
    /// (register, bytes of a word): `bytes * (register >> log2(8 * bytes))`, the register sign-extended from that
    /// many bytes; with 1 byte: the register's low byte, zero-extended.
    pub word: Option<(u8, u8)>,
}

impl Lin {
    pub const fn reg(r: u8) -> Lin {
        Lin { base: r, index: NONE, scale: 1, disp: 0, word: None }
    }

    pub fn canonical(mut self) -> Lin {
        if self.index == NONE {
            self.scale = 1;
        } else if self.scale == 1 && (self.base == NONE || self.index < self.base) {
            std::mem::swap(&mut self.base, &mut self.index);
        }
        self
    }
}

/// What a register or stack slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Val {
    Lin(Lin),
    /// `lin >> BLOCK_SHIFT`.
    Block(Lin),
    /// `lin >> SEGMENT_SHIFT`.
    Range(Lin),
    /// `lin & 63`.
    Offset(Lin),
    /// A register sign-extended from its low 4 or 2 bytes.
    Sext(u8, u8),
    /// See [`Lin::word`], not yet scaled.
    Word(u8, u8),
    /// rax after lahf and seto: which initial flags ah and al hold.
    Flags {
        ah: u8,
        al: u8,
    },
    Const(i64),
    /// The return address of a direct call.
    Return(u64),
    Junk,
}

/// What the last compare or test decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cond {
    /// Tags of the blocks from the one of `lin` on, `bytes` of them, tested under `mask`; taken on nonzero.
    Tag {
        lin: Lin,
        bytes: u8,
        mask: u32,
    },
    /// The tag of the block of `lin` compared with a number.
    Level {
        lin: Lin,
        level: u8,
    },
    /// `lin & 63` compared with a limit.
    Straddle {
        lin: Lin,
        limit: i64,
    },
    /// `lin >> 40` compared with a number.
    Range {
        lin: Lin,
        with: i64,
    },
    /// The bit of `lin` that shared memory does not have ([`contract::PRIVATE_BIT`]); taken when it is clear.
    Private {
        lin: Lin,
    },
    Poll,
    /// What a test in cold code found, which has been called: the carry flag is set where the memory is private.
    Called,
    /// Number of nodes compared with a number.
    Nodes {
        with: i64,
    },
}

/// Registers, flags and stack relative to the start of a sequence.
#[derive(Clone, Debug)]
pub struct SymbolicState {
    pub regs: [Val; 16],
    /// Status flags that hold their initial values.
    pub clean: u8,
    pub slots: Vec<(i64, Val)>,
    pub cond: Option<Cond>,
    /// The carry flag, where it is known.
    pub carry: Option<bool>,
    /// The limit of a loop that was written last, and what was written ([`contract::LIMIT_UP`]).
    pub limit: Option<(u64, Val)>,
    /// Something no inserted code may do.
    pub fault: Option<&'static str>,
    /// Tags are read at their alias, and nowhere else: guarded code.
    guard: bool,
}

/// What an instruction does to the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// Interpreted.
    Next,
    /// A conditional branch on [`SymbolicState::cond`]; the opcode's low nibble is the condition.
    Branch {
        cc: u8,
        target: u64,
    },
    Jump(u64),
    /// A direct call; its return address has been pushed.
    Call(u64),
    /// A return to this address; rsp has moved.
    Return(u64),
    /// `call [address]`.
    Gate(u64),
    /// Not inserted code.
    Stop,
}

impl SymbolicState {
    pub fn new(guard: bool) -> SymbolicState {
        let mut regs = [Val::Junk; 16];
        for (r, v) in regs.iter_mut().enumerate() {
            *v = Val::Lin(Lin::reg(r as u8));
        }
        SymbolicState {
            regs,
            clean: ALL_FLAGS,
            slots: Vec::new(),
            cond: None,
            carry: None,
            limit: None,
            fault: None,
            guard,
        }
    }

    /// Bytes by which rsp differs from its initial value.
    pub fn rsp(&self) -> Option<i64> {
        match self.regs[RSP as usize] {
            Val::Lin(Lin { base: RSP, index: NONE, disp, .. }) => Some(disp),
            _ => None,
        }
    }

    /// The register holds its initial value.
    pub fn intact(&self, r: u8) -> bool {
        self.regs[r as usize] == Val::Lin(Lin::reg(r))
    }

    /// Registers that do not hold their initial value.
    pub fn dirty(&self) -> u16 {
        (0..16).filter(|&r| !self.intact(r)).fold(0, |m, r| m | 1 << r)
    }

    /// Registers are, or were, kept in the red zone: below rsp as it was, and not below 128 bytes more.
    pub fn uses_red_zone(&self) -> bool {
        self.in_red_zone().next().is_some()
    }

    /// What is kept in the red zone: where, counted from rsp, and what.
    pub fn in_red_zone(&self) -> impl Iterator<Item = (i64, Val)> {
        self.slots.iter().copied().filter(|s| s.0 >= -RED_ZONE)
    }

    /// Something saved has not been put back yet.
    pub fn undo_pending(&self) -> bool {
        let in_red_zone =
            |s: &(i64, Val)| s.0 >= -RED_ZONE && (0..16).any(|r| s.1 == Val::Lin(Lin::reg(r)) && !self.intact(r));
        if self.slots.iter().any(in_red_zone) {
            return true;
        }
        let rax_elsewhere = || (0..16).any(|r| r != RAX && self.regs[r as usize] == Val::Lin(Lin::reg(RAX)));
        self.rsp() != Some(0)
            || matches!(self.regs[RAX as usize], Val::Flags { .. })
            || (!self.intact(RAX) && rax_elsewhere())
    }

    /// A place below rsp that no signal handler touches.
    fn below_rsp(&self, disp: i64) -> Option<i64> {
        (-RED_ZONE..=-8).contains(&disp).then_some(self.rsp()? + disp)
    }

    pub fn slot(&self, at: i64) -> Val {
        self.slots.iter().rev().find(|s| s.0 == at).map_or(Val::Junk, |s| s.1)
    }

    fn set_slot(&mut self, at: i64, v: Val) {
        self.slots.retain(|s| s.0 != at);
        self.slots.push((at, v));
    }

    fn lin(&self, r: u8) -> Option<Lin> {
        match self.regs.get(r as usize)? {
            Val::Lin(l) => Some(*l),
            _ => None,
        }
    }

    /// The address of a memory operand.
    pub fn address(&self, m: &Mem) -> Option<Lin> {
        if m.seg != 0 {
            return None;
        }
        let mut sum = match m.base {
            NONE | RIP => Lin::reg(NONE),
            b => self.lin(b)?,
        };
        sum.disp = sum.disp.wrapping_add(m.disp);
        if let Some(Val::Word(r, bytes)) = self.regs.get(m.index as usize) {
            if *bytes != m.scale || sum.word.is_some() {
                return None;
            }
            sum.word = Some((*r, *bytes));
        } else if m.index != NONE {
            let i = self.lin(m.index)?;
            if i.word.is_some() {
                return None;
            }
            if i.index != NONE || sum.index != NONE {
                return None;
            }
            sum.disp = sum.disp.wrapping_add(i.disp.wrapping_mul(i64::from(m.scale)));
            if i.base != NONE {
                (sum.index, sum.scale) = (i.base, m.scale);
            }
        }
        Some(sum.canonical())
    }

    /// An absolute address below 4 GiB, as inserted code names the context pages.
    fn absolute(m: &Mem) -> Option<u64> {
        (m.base == NONE && m.index == NONE && m.seg == 0).then_some(m.disp as u64)
    }

    fn push(&mut self, v: Val) {
        let Some(d) = self.rsp() else { return };
        // A test that is called leaves where it returns to right below rsp, and the address below that.
        let returns = d == 0 && matches!(v, Val::Return(_));
        if d > -RED_ZONE && !returns {
            self.fault = Some("pushes into the red zone");
        }
        self.set_slot(d - 8, v);
        self.regs[RSP as usize] = Val::Lin(Lin { disp: d - 8, ..Lin::reg(RSP) });
    }

    /// Moves rsp up after a gate has popped its arguments.
    pub fn popped(&mut self, bytes: i64) {
        if let Some(d) = self.rsp() {
            self.regs[RSP as usize] = Val::Lin(Lin { disp: d + bytes, ..Lin::reg(RSP) });
        }
    }

    /// Interprets one instruction.
    pub fn step(&mut self, i: &Insn) -> WalkStep {
        if i.is_nop() {
            return WalkStep::Next;
        }
        match i.flow {
            Flow::Cond if matches!(i.op, 0x70..=0x7f | 0x180..=0x18f) => {
                return if self.cond.is_some() {
                    WalkStep::Branch { cc: i.op as u8 & 15, target: i.target }
                } else {
                    WalkStep::Stop
                };
            }
            Flow::Jump => return WalkStep::Jump(i.target),
            Flow::CallInd => {
                return match i.mem.as_ref().and_then(SymbolicState::absolute) {
                    Some(a) if i.ext == 2 && !i.has(PREFIXED) => WalkStep::Gate(a),
                    _ => WalkStep::Stop,
                };
            }
            Flow::Call if !i.has(PREFIXED) => {
                self.push(Val::Return(i.end()));
                return WalkStep::Call(i.target);
            }
            Flow::Ret if matches!(i.op, 0xc2 | 0xc3) && !i.has(PREFIXED) => {
                let Some(Val::Return(to)) = self.rsp().map(|d| self.slot(d)) else { return WalkStep::Stop };
                self.popped(8 + if i.op == 0xc2 { i.imm & 0xffff } else { 0 });
                return WalkStep::Return(to);
            }
            Flow::Next => {}
            _ => return WalkStep::Stop,
        }
        if i.has(PREFIXED | MASKED) && !(self.guard && is_tag_test_at_alias(i)) {
            return WalkStep::Stop;
        }
        match self.straight(i) {
            Some(()) => WalkStep::Next,
            None => WalkStep::Stop,
        }
    }

    fn straight(&mut self, i: &Insn) -> Option<()> {
        let wide = i.has(WIDE);
        match (i.op, &i.mem) {
            (0x8d, Some(m)) if wide && i.r0 < 16 => {
                if i.has(crate::decode::insn::ADDR32) {
                    return None;
                }
                let l = self.address(m)?;
                if i.r0 == RSP && (l.base != RSP || l.index != NONE) {
                    return None;
                }
                self.regs[i.r0 as usize] = Val::Lin(l);
            }
            (0x89 | 0x8b, None) if wide && i.r0 < 16 && i.r1 < 16 && i.r0 != RSP => {
                self.regs[i.r0 as usize] = self.regs[i.r1 as usize];
            }
            (0x89, Some(m)) if wide && m.base == RSP && m.index == NONE && m.seg == 0 && i.explicit_register() < 16 => {
                // Below rsp, or in the program's red zone where rsp is lower than the program's.
                let lower = self.rsp()?;
                let above = Some(lower + m.disp).filter(|at| m.disp >= 0 && (-RED_ZONE..=-8).contains(at));
                let at = self.below_rsp(m.disp).or(above)?;
                self.set_slot(at, self.regs[i.explicit_register() as usize]);
            }
            (0x8b, Some(m)) if wide && m.base == RSP && m.index == NONE && m.seg == 0 && i.r0 < 16 && i.r0 != RSP => {
                let at = if m.disp < 0 { self.below_rsp(m.disp)? } else { self.rsp()? + m.disp };
                if !self.slots.iter().any(|s| s.0 == at) {
                    return None;
                }
                self.regs[i.r0 as usize] = self.slot(at);
            }
            (0x89, Some(m)) if wide && i.explicit_register() < 16 => {
                let word = SymbolicState::absolute(m).filter(|&at| none_of(at).is_some())?;
                self.limit = Some((word, self.regs[i.explicit_register() as usize]));
            }
            (0xc7, Some(m)) if wide && i.ext == 0 => {
                let word = SymbolicState::absolute(m).filter(|&at| none_of(at).is_some())?;
                self.limit = Some((word, Val::Const(i.imm)));
            }
            (0x1ba, None) if wide && i.ext == 4 && i.imm == i64::from(contract::PRIVATE_BIT) && i.r0 < 16 => {
                let lin = self.lin(i.r0)?;
                self.clobber_flags(0);
                self.cond = Some(Cond::Private { lin });
            }
            (0xc1, None) if wide && i.ext == 5 && i.r0 < 16 && i.r0 != RSP => {
                let l = self.lin(i.r0)?;
                self.regs[i.r0 as usize] = match i.imm as u32 {
                    contract::BLOCK_SHIFT => Val::Block(l),
                    contract::SEGMENT_SHIFT => Val::Range(l),
                    _ => return None,
                };
                self.clobber_flags(0);
            }
            (0xc1, None) if wide && i.ext == 7 && i.r0 < 16 && i.r0 != RSP => {
                let (r, bytes) = match self.regs[i.r0 as usize] {
                    Val::Sext(r, bytes) => (r, bytes),
                    Val::Lin(l) if l == Lin::reg(l.base) && l.base < 16 => (l.base, 8),
                    _ => return None,
                };
                if i.imm != 3 + i64::from(bytes.trailing_zeros()) {
                    return None;
                }
                self.regs[i.r0 as usize] = Val::Word(r, bytes);
                self.clobber_flags(0);
            }
            (0x63 | 0x1bf, None) if wide && i.r0 < 16 && i.r1 < 16 && i.r0 != RSP && self.intact(i.r1) => {
                self.regs[i.r0 as usize] = Val::Sext(i.r1, if i.op == 0x63 { 4 } else { 2 });
            }
            (0x1b6, None) if i.r0 < 16 && i.r0_bytes >= 4 && i.r1 == RAX && i.r0 != RSP && self.intact(RAX) => {
                self.regs[i.r0 as usize] = Val::Word(RAX, 1);
            }
            (0x83, None) if wide && i.ext == 0 && i.r0 == RSP => {
                let d = self.rsp()?;
                self.regs[RSP as usize] = Val::Lin(Lin { disp: d + i.imm, ..Lin::reg(RSP) });
                self.clobber_flags(0);
            }
            (0x83, None) if i.ext == 4 && i.imm == 63 && i.r0 < 16 && i.r0 != RSP && i.r0_bytes >= 4 => {
                let l = self.lin(i.r0)?;
                self.regs[i.r0 as usize] = Val::Offset(l);
                self.clobber_flags(0);
            }
            (0x83 | 0x81 | 0x3d, None) if (i.ext == 7 || i.op == 0x3d) && i.r0 < 16 && i.r0_bytes >= 4 => {
                let cond = match self.regs[i.r0 as usize] {
                    Val::Offset(lin) => Cond::Straddle { lin, limit: i.imm },
                    Val::Range(lin) => Cond::Range { lin, with: i.imm },
                    _ => return None,
                };
                self.clobber_flags(0);
                self.cond = Some(cond);
            }
            (0xf6 | 0xf7, Some(m)) if i.ext == 0 && !wide => {
                // A tag so many blocks further on.
                let further = (m.disp as u64).wrapping_sub(contract::TAG_TABLE_BASE);
                if m.base >= 16 || m.index != NONE || self.guard != is_tag_test_at_alias(i) || further > FURTHEST {
                    return None;
                }
                let Val::Block(mut lin) = self.regs[m.base as usize] else { return None };
                lin.disp = lin.disp.wrapping_add((further * contract::BLOCK_BYTES) as i64);
                let mask = if i.size == 1 { i.imm as u32 & 0xff } else { i.imm as u32 };
                self.clobber_flags(0);
                self.cond = Some(Cond::Tag { lin, bytes: i.size as u8, mask });
                self.carry = Some(false);
            }
            (0x80, Some(m)) if i.ext == 7 && i.size == 1 => {
                // A tag so many blocks further on.
                let further = (m.disp as u64).wrapping_sub(contract::TAG_TABLE_BASE);
                (self.guard && is_tag_test_at_alias(i)).then_some(())?;
                let Val::Block(mut lin) = self.regs[usize::from(m.base)] else { return None };
                lin.disp = lin.disp.wrapping_add((further * contract::BLOCK_BYTES) as i64);
                self.clobber_flags(0);
                self.cond = Some(Cond::Level { lin, level: i.imm as u8 });
            }
            (0x83, Some(m)) if i.ext == 7 && i.size == 4 => {
                let cond = match SymbolicState::absolute(m)? {
                    contract::POLL_WORD if i.imm == 0 => Cond::Poll,
                    contract::CTX_NODES => Cond::Nodes { with: i.imm },
                    _ => return None,
                };
                self.clobber_flags(0);
                self.cond = Some(cond);
            }
            (0xff, Some(m)) if i.ext == 0 && wide => {
                let k = SymbolicState::absolute(m)?.checked_sub(contract::COUNTERS)?;
                if k % 8 != 0 || k / 8 >= contract::COUNTER_COUNT as u64 {
                    return None;
                }
                self.clobber_flags(CF);
            }
            (0xf8 | 0xf9, None) => {
                self.clobber_flags(0);
                self.carry = Some(i.op == 0xf9);
            }
            (0x9f, _) => {
                let al = if let Val::Flags { al, .. } = self.regs[RAX as usize] { al } else { 0 };
                self.regs[RAX as usize] = Val::Flags { ah: self.clean & !OF, al };
            }
            (0x190, None) if i.r0 == RAX && i.r0_bytes == 1 => {
                let ah = if let Val::Flags { ah, .. } = self.regs[RAX as usize] { ah } else { 0 };
                self.regs[RAX as usize] = Val::Flags { ah, al: self.clean & OF };
            }
            (0x04, None) if i.imm == 0x7f => {
                let Val::Flags { ah, al } = self.regs[RAX as usize] else { return None };
                self.regs[RAX as usize] = Val::Flags { ah, al: 0 };
                self.clobber_flags(0);
                self.clean = al;
            }
            (0x9e, _) => {
                let Val::Flags { ah, al } = self.regs[RAX as usize] else { return None };
                self.clean = (self.clean & OF) | ah;
                (self.cond, self.carry) = (None, None);
                self.regs[RAX as usize] = if al == 0 { Val::Junk } else { Val::Flags { ah: 0, al } };
            }
            (0x50..=0x57, None) if i.r0 < 16 => self.push(self.regs[i.r0 as usize]),
            (0x68 | 0x6a, None) => self.push(Val::Const(i.imm)),
            (0x58..=0x5f, None) if i.r0 < 16 && i.r0 != RSP => {
                let d = self.rsp()?;
                if !self.slots.iter().any(|s| s.0 == d) {
                    return None;
                }
                self.regs[i.r0 as usize] = self.slot(d);
                self.popped(8);
            }
            (0x87, Some(m))
                if wide && m.base == RSP && m.index == NONE && m.disp == 0 && i.explicit_register() < 16 =>
            {
                let (r, d) = (i.explicit_register() as usize, self.rsp()?);
                if r == RSP as usize {
                    return None;
                }
                let old = self.slot(d);
                self.set_slot(d, self.regs[r]);
                self.regs[r] = old;
            }
            _ => return None,
        }
        Some(())
    }

    pub(crate) fn clobber_flags(&mut self, keep: u8) {
        self.clean &= keep;
        (self.cond, self.carry) = (None, None);
    }
}

/// `test byte gs:[s+T], bits` or `cmp byte gs:[s+T], number`, without another prefix.
pub(crate) fn is_tag_test_at_alias(i: &Insn) -> bool {
    let Some(m) = i.mem.filter(|m| m.base < 16) else { return false };
    let further = (m.disp as u64).wrapping_sub(contract::TAG_TABLE_BASE);
    let tag = m.index == NONE && m.seg == GS && further < FURTHEST + 4 && i.size == 1;
    // Prefix, opcode, ModR/M, displacement, number; REX; SIB.
    let bytes = 1 + 1 + 1 + 4 + 1 + u8::from(m.base >= 8) + u8::from(m.base & 7 == 4);
    tag && i.len == bytes && matches!((i.op, i.ext), (0xf6, 0) | (0x80, 7))
}

impl Insn {
    /// The register operand of an instruction whose other operand is memory.
    fn explicit_register(&self) -> u8 {
        if self.r0 < 16 { self.r0 } else { self.r1 }
    }
}

/// What a limit is when nothing has been tested; `None`: the address is no limit's.
pub(crate) fn none_of(word: u64) -> Option<i64> {
    let k = [contract::LIMIT_UP, contract::LIMIT_DOWN].iter().position(|&at| at == word)?;
    Some(contract::NO_LIMITS[k] as i64)
}

/// Whether a word's value says that nothing has been tested.
pub(crate) fn is_taken_back((word, value): (u64, Val)) -> bool {
    matches!(value, Val::Const(c) if none_of(word) == Some(c))
}
