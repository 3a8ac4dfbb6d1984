//! Linear decoding of the new code with Capstone into compact records.
//!
//! Input: the bytes of `.blizzard.text` and `.blizzard.cold`, and addresses known to begin instructions (to decode in
//! parallel). Output: [`Code`]. Invariant: records are sorted, do not overlap, and every byte belongs to a record or to
//! an entry of [`Code::undecoded`].

use crate::decode::beyond_capstone;
use crate::decode::effects::{self, EffectOperand};
use crate::decode::insn::{HIGH, Insn, Mem, NONE, OTHER, RIP, VECTOR, record};
use crate::decode::raw::{Enc, PP_66, Raw};
use capstone::arch::x86::{X86OperandType, X86Reg};
use capstone::prelude::*;
use capstone::{Capstone, RegId};

/// A run of bytes that decode to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecoded {
    pub va: u64,
    pub bytes: u64,
}

/// All decoded instructions of one section.
#[derive(Debug, Default)]
pub struct Code {
    pub base: u64,
    pub bytes: u64,
    pub insns: Vec<Insn>,
    pub undecoded: Vec<Undecoded>,
    /// One bit per byte: an instruction begins here; with the count of set bits before each word.
    begins: Vec<(u64, u32)>,
}

impl Code {
    /// Index of the instruction that begins at `va`.
    pub fn at(&self, va: u64) -> Option<usize> {
        let off = va.checked_sub(self.base)?;
        let (word, before) = *self.begins.get((off / 64) as usize)?;
        let bit = off % 64;
        (word >> bit & 1 == 1).then(|| before as usize + (word & ((1 << bit) - 1)).count_ones() as usize)
    }

    /// Index of the first instruction at or after `va`.
    pub fn lower_bound(&self, va: u64) -> usize {
        self.insns.partition_point(|i| i.va < va)
    }

    pub fn contains(&self, va: u64) -> bool {
        va.wrapping_sub(self.base) < self.bytes
    }

    fn index(&mut self) {
        self.begins = vec![(0, 0); self.bytes as usize / 64 + 1];
        for i in &self.insns {
            let off = i.va - self.base;
            self.begins[(off / 64) as usize].0 |= 1 << (off % 64);
        }
        let mut n = 0;
        for (word, before) in &mut self.begins {
            *before = n;
            n += word.count_ones();
        }
    }
}

/// Decodes `bytes` at `base`. `hints`, sorted, are addresses where instructions are said to begin: they split the work
/// between threads, and a piece that does not begin where the one before it ends is decoded again.
pub fn decode(bytes: &[u8], base: u64, hints: &[u64]) -> Code {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let mut cuts = vec![0usize];
    if bytes.len() > 1 << 16 {
        for k in 1..threads {
            let want = base + (bytes.len() * k / threads) as u64;
            let at = hints.partition_point(|&h| h < want);
            if let Some(&h) = hints.get(at) {
                let off = (h - base) as usize;
                if off > cuts[cuts.len() - 1] && off < bytes.len() {
                    cuts.push(off);
                }
            }
        }
    }
    cuts.push(bytes.len());
    let mut pieces: Vec<(Vec<Insn>, Vec<Undecoded>)> = std::thread::scope(|s| {
        let jobs: Vec<_> = cuts
            .windows(2)
            .map(|w| {
                let (from, to) = (w[0], w[1]);
                // Where the system gives no more threads, the piece is decoded below, by this one.
                (std::thread::Builder::new().spawn_scoped(s, move || piece(bytes, base, from, to)).ok(), from, to)
            })
            .collect();
        let done = |(job, from, to): (Option<std::thread::ScopedJoinHandle<'_, _>>, _, _)| match job {
            Some(job) => job.join().unwrap_or_default(),
            None => piece(bytes, base, from, to),
        };
        jobs.into_iter().map(done).collect()
    });
    let mut code = Code { base, bytes: bytes.len() as u64, ..Code::default() };
    let mut at = 0;
    for (k, w) in cuts.windows(2).enumerate() {
        // A last instruction that runs over the cut means the hint was wrong.
        let (mut insns, mut bad) = std::mem::take(&mut pieces[k]);
        if at != w[0] {
            (insns, bad) = piece(bytes, base, at, w[1]);
        }
        at = insns.last().map_or(w[1], |i| (i.end() - base) as usize).max(w[1]);
        code.insns.append(&mut insns);
        for u in bad {
            match code.undecoded.last_mut() {
                Some(last) if last.va + last.bytes == u.va => last.bytes += u.bytes,
                _ => code.undecoded.push(u),
            }
        }
    }
    code.index();
    code
}

/// Decodes from `from` until the first instruction boundary at or after `to`.
fn piece(bytes: &[u8], base: u64, from: usize, to: usize) -> (Vec<Insn>, Vec<Undecoded>) {
    let mut insns = Vec::with_capacity((to - from) / 4);
    let mut bad: Vec<Undecoded> = Vec::new();
    let Some(d) = Decoder::new() else {
        return (insns, vec![Undecoded { va: base + from as u64, bytes: (to - from) as u64 }]);
    };
    let Ok(mut iter) = d.cs.disasm_iter(&bytes[from..], base + from as u64) else {
        return (insns, vec![Undecoded { va: base + from as u64, bytes: (to - from) as u64 }]);
    };
    let mut at = from;
    while at < to {
        let b = &bytes[at..bytes.len().min(at + 15)];
        let va = base + at as u64;
        let next = match iter.next() {
            Some(i) => d.insn(&i, b),
            None => None,
        };
        let (next, resync) = match next {
            Some(i) if usize::from(i.len) <= b.len() => {
                let resync = iter.addr() != i.end();
                (Some(i), resync)
            }
            _ => (beyond_capstone::decode(b, va), true),
        };
        match next {
            Some(i) => {
                at += usize::from(i.len);
                insns.push(i);
            }
            None => {
                match bad.last_mut() {
                    Some(u) if u.va + u.bytes == va => u.bytes += 1,
                    _ => bad.push(Undecoded { va, bytes: 1 }),
                }
                at += 1;
            }
        }
        if resync {
            iter.reset(&bytes[at..], base + at as u64);
        }
    }
    (insns, bad)
}

/// The instructions at `addresses`, ascending, in the bytes at `base`; those that do not decode are left out.
pub fn decode_at(bytes: &[u8], base: u64, addresses: &[u64]) -> Vec<Insn> {
    let mut out = Vec::with_capacity(addresses.len());
    let (Some(d), Some(&first)) = (Decoder::new(), addresses.first()) else { return out };
    let start = |va: u64| bytes.get(va.checked_sub(base)? as usize..);
    let Some(Ok(mut iter)) = start(first).map(|b| d.cs.disasm_iter(b, first)) else { return out };
    for &va in addresses {
        let Some(rest) = start(va) else { continue };
        if iter.addr() != va {
            iter.reset(rest, va);
        }
        let b = &rest[..rest.len().min(15)];
        let known = iter.next().and_then(|i| d.insn(&i, b)).filter(|i| usize::from(i.len) <= b.len());
        let found = known.or_else(|| beyond_capstone::decode(b, va));
        if found.is_none_or(|i| iter.addr() != i.end()) {
            let next = found.map_or(va + 1, |i| i.end());
            iter.reset(start(next).unwrap_or(&[]), next);
        }
        out.extend(found);
    }
    out
}

struct Decoder {
    cs: Capstone,
    /// General register number by Capstone register, and bytes; [`NONE`] for others.
    regs: Vec<(u8, u8)>,
}

impl Decoder {
    fn new() -> Option<Decoder> {
        let cs = Capstone::new().x86().mode(arch::x86::ArchMode::Mode64).detail(true).build().ok()?;
        let mut regs = vec![(NONE, 0); 512];
        for (n, quad, dword, word, byte, high) in GPR {
            for (id, bytes) in [(quad, 8), (dword, 4), (word, 2), (byte, 1), (high, HIGH)] {
                if id != X86Reg::X86_REG_INVALID {
                    regs[id as usize] = (n, bytes);
                }
            }
        }
        Some(Decoder { cs, regs })
    }

    fn gpr(&self, id: RegId) -> (u8, u8) {
        self.regs.get(usize::from(id.0)).copied().unwrap_or((NONE, 0))
    }

    fn address_reg(&self, id: RegId) -> u8 {
        match id.0 as X86Reg::Type {
            X86Reg::X86_REG_INVALID => NONE,
            X86Reg::X86_REG_RIP | X86Reg::X86_REG_EIP => RIP,
            X86Reg::X86_REG_RIZ | X86Reg::X86_REG_EIZ => NONE,
            n if (X86Reg::X86_REG_XMM0..=X86Reg::X86_REG_ZMM31).contains(&n) => VECTOR,
            _ => match self.gpr(id) {
                (NONE, _) => OTHER,
                (n, _) => n,
            },
        }
    }

    fn insn(&self, i: &capstone::Insn, bytes: &[u8]) -> Option<Insn> {
        let raw = Raw::parse(bytes)?;
        let detail = self.cs.insn_detail(i).ok()?;
        let arch = detail.arch_detail();
        let x86 = arch.x86()?;
        let mut ops = [EffectOperand::Other; 8];
        let mut n = 0;
        let mut mem = None;
        let mut size = 0;
        let mut address = 0u16;
        let mut explicit = 0u16;
        let va = i.address();
        let mut len = i.len();
        for op in x86.operands().take(8) {
            ops[n] = match op.op_type {
                X86OperandType::Reg(r) => match self.gpr(r) {
                    (NONE, _) => EffectOperand::Other,
                    (reg, bytes) => {
                        explicit |= effects::bit(reg);
                        EffectOperand::Gpr { reg, bytes }
                    }
                },
                X86OperandType::Imm(v) => EffectOperand::Imm(v),
                X86OperandType::Mem(m) => {
                    let (base, index) = (self.address_reg(m.base()), self.address_reg(m.index()));
                    for r in [base, index] {
                        if r < 16 {
                            address |= effects::bit(r);
                        }
                    }
                    if mem.is_none() {
                        size = u16::from(op.size);
                        let mut disp = m.disp();
                        if base == RIP {
                            disp = disp.wrapping_add(va as i64 + len as i64);
                            if m.base().0 as X86Reg::Type == X86Reg::X86_REG_EIP {
                                disp = i64::from(disp as u32);
                            }
                        }
                        mem = Some(Mem { base, index, scale: m.scale() as u8, seg: raw.seg, disp });
                    }
                    EffectOperand::Mem
                }
                X86OperandType::Invalid => EffectOperand::Other,
            };
            n += 1;
        }
        if let (Some(m), Enc::Evex, Some(0x40..0x80)) = (&mut mem, raw.enc, raw.modrm) {
            // 8-bit displacements that Capstone scales wrongly.
            match (raw.map, raw.op) {
                (1, 0x7e) if raw.w && raw.pp == PP_66 => m.disp /= 2,
                (3, 0xce | 0xcf) if raw.bcast => m.disp *= 8,
                _ => {}
            }
        }
        let mut implicit = 0;
        for r in detail.regs_read() {
            if let (reg @ 0..16, _) = self.gpr(*r) {
                implicit |= effects::bit(reg);
            }
        }
        implicit &= !(explicit | address);
        let string = raw.enc == Enc::Legacy && raw.map == 0 && matches!(raw.op, 0xa4..=0xa7 | 0xaa..=0xaf);
        if raw.enc != Enc::Legacy || string {
            // [`effects`] knows which registers these read without naming them; Capstone adds others to some (vphsubd, rcx to stosq).
            implicit = 0;
        }
        if raw.enc == Enc::Legacy && raw.map == 1 && matches!(raw.op, 0xb9 | 0xff) {
            // Capstone takes ud0 and ud1 to have no operands.
            len = raw.bytes_before_imm(bytes)?;
        }
        if raw.enc == Enc::Legacy && raw.map == 1 && raw.op & 0xf0 == 0x80 && raw.opsize {
            // Capstone reads a 16-bit distance, processors read 32 bits.
            let at = usize::from(raw.after_op);
            let d: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
            len = at + 4;
            ops[0] = EffectOperand::Imm((va as i64 + len as i64).wrapping_add(i32::from_le_bytes(d).into()));
        }
        Some(record(&raw, va, len as u8, &ops[..n], mem, size, address, implicit))
    }
}

type Names = (u8, X86Reg::Type, X86Reg::Type, X86Reg::Type, X86Reg::Type, X86Reg::Type);

/// General registers in encoding order with their names of 8, 4, 2, 1 byte and the high byte.
const GPR: [Names; 16] = {
    use X86Reg::*;
    [
        (0, X86_REG_RAX, X86_REG_EAX, X86_REG_AX, X86_REG_AL, X86_REG_AH),
        (1, X86_REG_RCX, X86_REG_ECX, X86_REG_CX, X86_REG_CL, X86_REG_CH),
        (2, X86_REG_RDX, X86_REG_EDX, X86_REG_DX, X86_REG_DL, X86_REG_DH),
        (3, X86_REG_RBX, X86_REG_EBX, X86_REG_BX, X86_REG_BL, X86_REG_BH),
        (4, X86_REG_RSP, X86_REG_ESP, X86_REG_SP, X86_REG_SPL, X86_REG_INVALID),
        (5, X86_REG_RBP, X86_REG_EBP, X86_REG_BP, X86_REG_BPL, X86_REG_INVALID),
        (6, X86_REG_RSI, X86_REG_ESI, X86_REG_SI, X86_REG_SIL, X86_REG_INVALID),
        (7, X86_REG_RDI, X86_REG_EDI, X86_REG_DI, X86_REG_DIL, X86_REG_INVALID),
        (8, X86_REG_R8, X86_REG_R8D, X86_REG_R8W, X86_REG_R8B, X86_REG_INVALID),
        (9, X86_REG_R9, X86_REG_R9D, X86_REG_R9W, X86_REG_R9B, X86_REG_INVALID),
        (10, X86_REG_R10, X86_REG_R10D, X86_REG_R10W, X86_REG_R10B, X86_REG_INVALID),
        (11, X86_REG_R11, X86_REG_R11D, X86_REG_R11W, X86_REG_R11B, X86_REG_INVALID),
        (12, X86_REG_R12, X86_REG_R12D, X86_REG_R12W, X86_REG_R12B, X86_REG_INVALID),
        (13, X86_REG_R13, X86_REG_R13D, X86_REG_R13W, X86_REG_R13B, X86_REG_INVALID),
        (14, X86_REG_R14, X86_REG_R14D, X86_REG_R14W, X86_REG_R14B, X86_REG_INVALID),
        (15, X86_REG_R15, X86_REG_R15D, X86_REG_R15W, X86_REG_R15B, X86_REG_INVALID),
    ]
};
