//! Encodings of the few instructions that checks are made of. Registers are numbers in encoding order (rax = 0).
//!
//! Input: registers and [`MemOperand`]ory operands. Output: bytes behind those of a buffer.
//!
//! Source: SDM volume 2. A unit test decodes every form with an independent decoder.

/// An address: base, index with scale, displacement. No base and no index: absolute disp32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemOperand {
    pub base: Option<u8>,
    pub index: Option<(u8, u8)>,
    pub disp: i32,
}

pub const RAX: u8 = 0;
pub const RSP: u8 = 4;

/// `nop`.
pub const NOP: u8 = 0x90;
/// `ud2`.
pub const UD2: [u8; 2] = [0x0f, 0x0b];
/// `hlt`, which a program may not execute: SIGSEGV.
pub const HLT: u8 = 0xf4;

/// `clc`, `stc`
pub const CLC: u8 = 0xf8;
pub const STC: u8 = 0xf9;

/// `jc` over one byte.
pub const JC_OVER_A_BYTE: [u8; 2] = [0x72, 1];

impl MemOperand {
    /// `[base + disp]`.
    pub fn base(base: u8, disp: i32) -> MemOperand {
        MemOperand { base: Some(base), index: None, disp }
    }

    /// `[disp32]`.
    pub fn absolute(at: u64) -> MemOperand {
        MemOperand { base: None, index: None, disp: i32::try_from(at).expect("absolute operands lie below 2 GiB") }
    }
}

/// ModRM, SIB and displacement for `mem`, with `reg` in the reg field. Prefixes and opcode come before.
fn modrm(out: &mut Vec<u8>, reg: u8, mem: MemOperand) {
    let reg = (reg & 7) << 3;
    let (mode, small) = match (mem.base, i8::try_from(mem.disp)) {
        (None, _) => (0x00, false),
        // rbp and r13 have no form without displacement.
        (Some(b), Ok(0)) if b & 7 != 5 => (0x00, false),
        (Some(_), Ok(_)) => (0x40, true),
        (Some(_), Err(_)) => (0x80, false),
    };
    match (mem.base, mem.index) {
        (Some(b), None) if b & 7 != 4 => out.push(mode | reg | (b & 7)),
        (base, index) => {
            out.push(mode | reg | 4);
            let (i, scale) = index.map_or((4, 1), |(i, s)| (i & 7, s));
            out.push((scale.trailing_zeros() as u8) << 6 | i << 3 | base.map_or(5, |b| b & 7));
        }
    }
    if small {
        out.push(mem.disp as u8);
    } else if mode == 0x80 || mem.base.is_none() {
        out.extend(mem.disp.to_le_bytes());
    }
}

fn rex(w: bool, reg: u8, mem: MemOperand) -> u8 {
    let index = mem.index.map_or(0, |(i, _)| i);
    let base = mem.base.unwrap_or(0);
    0x40 | u8::from(w) << 3 | (reg >> 3) << 2 | (index >> 3) << 1 | base >> 3
}

/// One-byte-opcode instruction with a 64-bit operand size.
fn wide(out: &mut Vec<u8>, opcode: u8, reg: u8, mem: MemOperand) {
    out.push(rex(true, reg, mem));
    out.push(opcode);
    modrm(out, reg, mem);
}

/// The same without REX.W.
fn narrow(out: &mut Vec<u8>, opcode: u8, reg: u8, mem: MemOperand) {
    let r = rex(false, reg, mem);
    if r != 0x40 {
        out.push(r);
    }
    out.push(opcode);
    modrm(out, reg, mem);
}

fn reg_reg(out: &mut Vec<u8>, w: bool, opcode: u8, reg: u8, rm: u8) {
    let r = 0x40 | u8::from(w) << 3 | (reg >> 3) << 2 | rm >> 3;
    if w || r != 0x40 {
        out.push(r);
    }
    out.push(opcode);
    out.push(0xc0 | (reg & 7) << 3 | (rm & 7));
}

/// `lea dst, mem`
pub fn lea(out: &mut Vec<u8>, dst: u8, mem: MemOperand) {
    wide(out, 0x8d, dst, mem);
}

/// `lea dst, [rip + disp32]`; returns where the displacement stands.
pub fn lea_rip(out: &mut Vec<u8>, dst: u8) -> usize {
    out.extend([0x48 | (dst >> 3) << 2, 0x8d, (dst & 7) << 3 | 5]);
    out.extend([0; 4]);
    out.len() - 4
}

/// `mov dst, src`
pub fn mov(out: &mut Vec<u8>, dst: u8, src: u8) {
    reg_reg(out, true, 0x89, src, dst);
}

/// `movsxd dst, src32`
pub fn movsxd(out: &mut Vec<u8>, dst: u8, src: u8) {
    reg_reg(out, true, 0x63, dst, src);
}

/// `movsx dst, src16`
pub fn movsx16(out: &mut Vec<u8>, dst: u8, src: u8) {
    out.extend([0x48 | (dst >> 3) << 2 | src >> 3, 0x0f, 0xbf, 0xc0 | (dst & 7) << 3 | (src & 7)]);
}

/// `movzx dst32, al`
pub fn movzx_al(out: &mut Vec<u8>, dst: u8) {
    if dst >= 8 {
        out.push(0x44);
    }
    out.extend([0x0f, 0xb6, 0xc0 | (dst & 7) << 3]);
}

/// `shr reg, count`
pub fn shr(out: &mut Vec<u8>, reg: u8, count: u8) {
    reg_reg(out, true, 0xc1, 5, reg);
    out.push(count);
}

/// `bt reg, number`
pub fn bt(out: &mut Vec<u8>, reg: u8, number: u8) {
    out.extend([0x48 | reg >> 3, 0x0f, 0xba, 0xe0 | (reg & 7), number]);
}

/// `sar reg, count`
pub fn sar(out: &mut Vec<u8>, reg: u8, count: u8) {
    reg_reg(out, true, 0xc1, 7, reg);
    out.push(count);
}

/// `and reg32, imm8`
pub fn and32(out: &mut Vec<u8>, reg: u8, imm: i8) {
    reg_reg(out, false, 0x83, 4, reg);
    out.push(imm as u8);
}

/// `cmp reg32, imm8`
pub fn cmp32(out: &mut Vec<u8>, reg: u8, imm: i8) {
    reg_reg(out, false, 0x83, 7, reg);
    out.push(imm as u8);
}

/// `test byte ptr mem, imm8`
pub fn test8(out: &mut Vec<u8>, mem: MemOperand, imm: u8) {
    narrow(out, 0xf6, 0, mem);
    out.push(imm);
}

/// `cmp byte ptr mem, imm8`
pub fn cmp8(out: &mut Vec<u8>, mem: MemOperand, imm: u8) {
    narrow(out, 0x80, 7, mem);
    out.push(imm);
}

/// `test dword ptr mem, imm32`
pub fn test32(out: &mut Vec<u8>, mem: MemOperand, imm: u32) {
    narrow(out, 0xf7, 0, mem);
    out.extend(imm.to_le_bytes());
}

/// `cmp dword ptr mem, imm8`
pub fn cmp_mem32(out: &mut Vec<u8>, mem: MemOperand, imm: i8) {
    narrow(out, 0x83, 7, mem);
    out.push(imm as u8);
}

/// `cmp a, b`
pub fn cmp(out: &mut Vec<u8>, a: u8, b: u8) {
    reg_reg(out, true, 0x39, b, a);
}

/// `cmp reg, qword ptr mem`
pub fn cmp_reg_mem64(out: &mut Vec<u8>, reg: u8, mem: MemOperand) {
    wide(out, 0x3b, reg, mem);
}

/// `mov qword ptr mem, reg`
pub fn store64(out: &mut Vec<u8>, mem: MemOperand, reg: u8) {
    wide(out, 0x89, reg, mem);
}

/// `mov reg, qword ptr mem`
pub fn load64(out: &mut Vec<u8>, reg: u8, mem: MemOperand) {
    wide(out, 0x8b, reg, mem);
}

/// `mov qword ptr mem, imm32`, sign-extended
pub fn store64_imm(out: &mut Vec<u8>, mem: MemOperand, imm: i32) {
    wide(out, 0xc7, 0, mem);
    out.extend(imm.to_le_bytes());
}

/// `inc qword ptr mem`
pub fn inc64(out: &mut Vec<u8>, mem: MemOperand) {
    wide(out, 0xff, 0, mem);
}

/// `lock inc qword ptr [rip + ...]`; the position of the displacement.
pub fn lock_inc64_rip(out: &mut Vec<u8>) -> usize {
    out.extend([0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0]);
    out.len() - 4
}

/// `push reg`
pub fn push(out: &mut Vec<u8>, reg: u8) {
    if reg >= 8 {
        out.push(0x41);
    }
    out.push(0x50 | (reg & 7));
}

/// `pop reg`
pub fn pop(out: &mut Vec<u8>, reg: u8) {
    if reg >= 8 {
        out.push(0x41);
    }
    out.push(0x58 | (reg & 7));
}

/// `push imm32`, sign-extended
pub fn push_imm(out: &mut Vec<u8>, imm: u32) {
    out.push(0x68);
    out.extend(imm.to_le_bytes());
}

/// `xchg [rsp], rax`
pub fn xchg_rsp_rax(out: &mut Vec<u8>) {
    wide(out, 0x87, RAX, MemOperand::base(RSP, 0));
}

/// `call qword ptr [disp32]`
pub fn call_abs(out: &mut Vec<u8>, at: u64) {
    narrow(out, 0xff, 2, MemOperand::absolute(at));
}

/// `call rel32`; returns where the displacement stands.
pub fn call32(out: &mut Vec<u8>) -> usize {
    out.extend([0xe8, 0, 0, 0, 0]);
    out.len() - 4
}

/// `ret`
pub fn ret(out: &mut Vec<u8>) {
    out.push(0xc3);
}

/// `ret bytes`: pops the return address and that many bytes above it.
pub fn ret_pop(out: &mut Vec<u8>, bytes: u16) {
    out.push(0xc2);
    out.extend(bytes.to_le_bytes());
}

/// `add rsp, imm8`
pub fn add_rsp(out: &mut Vec<u8>, imm: i8) {
    reg_reg(out, true, 0x83, 0, RSP);
    out.push(imm as u8);
}

/// `jmp qword [at]`
pub fn jmp_abs(out: &mut Vec<u8>, at: u64) {
    narrow(out, 0xff, 4, MemOperand::absolute(at));
}

/// `lahf; seto al`: all six status flags into ax.
pub fn save_flags(out: &mut Vec<u8>) {
    out.extend([0x9f, 0x0f, 0x90, 0xc0]);
}

/// `add al, 0x7f; sahf`: OF overflows from al = 1, then the other five from ah.
pub fn restore_flags(out: &mut Vec<u8>) {
    out.extend([0x04, 0x7f, 0x9e]);
}

/// Condition codes used here, as the low nibble of the opcode.
pub const CC_B: u8 = 2;
pub const CC_AE: u8 = 3;
pub const CC_E: u8 = 4;
pub const CC_NE: u8 = 5;
pub const CC_BE: u8 = 6;
pub const CC_A: u8 = 7;

/// `jcc rel32`; returns where the displacement stands.
pub fn jcc32(out: &mut Vec<u8>, cc: u8) -> usize {
    out.extend([0x0f, 0x80 | cc, 0, 0, 0, 0]);
    out.len() - 4
}

/// `jmp rel32`; returns where the displacement stands.
pub fn jmp32(out: &mut Vec<u8>) -> usize {
    out.extend([0xe9, 0, 0, 0, 0]);
    out.len() - 4
}

/// `jcc rel8` over code still to come; returns where the displacement stands.
pub fn jcc8(out: &mut Vec<u8>, cc: u8) -> usize {
    out.extend([0x70 | cc, 0]);
    out.len() - 1
}

/// Makes the rel8 at `at` lead to the end of `out`.
pub fn land8(out: &mut [u8], at: usize) {
    out[at] = i8::try_from(out.len() - at - 1).expect("short branches stay short") as u8;
}

/// Makes the rel32 at `at` lead to the end of `out`.
pub fn land32(out: &mut [u8], at: usize) {
    let rel = (out.len() - at - 4) as i32;
    out[at..at + 4].copy_from_slice(&rel.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use blizzard_rt::system_calls::signals::memory_faults::TagTest;
    use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

    fn text(bytes: &[u8]) -> String {
        let mut d = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
        let mut f = IntelFormatter::new();
        let mut out = String::new();
        while d.can_decode() {
            let i = d.decode();
            if !out.is_empty() {
                out.push_str("; ");
            }
            f.format(&i, &mut out);
        }
        out
    }

    #[test]
    fn every_register_and_address_form_decodes_to_what_was_meant() {
        const R: [&str; 16] = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
            "r15",
        ];
        let disps = [0, 1, -1, 127, -128, 128, -129, i32::MAX, i32::MIN];
        for dst in 0..16u8 {
            for base in (0..16u8).map(Some).chain([None]) {
                for index in
                    (0..16u8).filter(|i| *i != 4).flat_map(|i| [1, 2, 4, 8].map(|s| Some((i, s)))).chain([None])
                {
                    for disp in disps {
                        let mem = MemOperand { base, index, disp };
                        let mut out = Vec::new();
                        lea(&mut out, dst, mem);
                        let i = Decoder::with_ip(64, &out, 0, DecoderOptions::NONE).decode();
                        assert_eq!(i.len(), out.len());
                        assert_eq!(i.op0_register().number(), usize::from(dst));
                        let reg = |r: iced_x86::Register| (r != iced_x86::Register::None).then(|| r.number() as u8);
                        assert_eq!(reg(i.memory_base()), base);
                        assert_eq!(reg(i.memory_index()), index.map(|x| x.0));
                        assert_eq!(i.memory_displacement64() as i32, disp);
                        if let Some((_, s)) = index {
                            assert_eq!(i.memory_index_scale(), u32::from(s));
                        }
                    }
                }
            }
            if dst == 4 {
                continue;
            }
            // The runtime passes over tag tests that fault, and knows them by their bytes.
            for (wide, mask) in
                [(false, 1), (false, 2), (true, 0x0101), (true, 0x0202), (true, 0x0101_0101), (true, 0x0202_0202)]
            {
                for tag in [0, 4, 252] {
                    let (mut out, mem) = (Vec::new(), MemOperand::base(dst, 0x7fff_8000 + tag));
                    if wide {
                        test32(&mut out, mem, mask)
                    } else {
                        test8(&mut out, mem, mask as u8)
                    }
                    let bytes = out.len();
                    let mut long = out.clone();
                    jcc32(&mut long, CC_NE);
                    jcc8(&mut out, CC_E);
                    for code in [long, out] {
                        assert_eq!(TagTest::decode(&code).map(|test| test.bytes), Some(bytes), "{code:x?}");
                    }
                }
            }
            let mut out = Vec::new();
            shr(&mut out, dst, 6);
            test8(&mut out, MemOperand::base(dst, 0x7fff_8000), 2);
            test32(&mut out, MemOperand::base(dst, 0x7fff_8000), 0x202);
            push(&mut out, dst);
            pop(&mut out, dst);
            mov(&mut out, dst, 8);
            sar(&mut out, dst, 5);
            bt(&mut out, dst, 46);
            let r = R[usize::from(dst)];
            assert_eq!(
                text(&out),
                format!(
                    "shr {r},6; test byte ptr [{r}+7FFF8000h],2; test dword ptr [{r}+7FFF8000h],202h; push {r}; pop {r}; mov {r},r8; sar {r},5; bt {r},2Eh"
                )
            );
        }
    }

    #[test]
    fn fixed_forms() {
        let mut out = Vec::new();
        xchg_rsp_rax(&mut out);
        call_abs(&mut out, 0x7fff_1000);
        cmp_mem32(&mut out, MemOperand::absolute(0x7fff_0000), 0);
        cmp_reg_mem64(&mut out, 9, MemOperand::absolute(0x7fff_00c0));
        store64(&mut out, MemOperand::absolute(0x7fff_00c0), 1);
        store64_imm(&mut out, MemOperand::absolute(0x7fff_00c8), -1);
        inc64(&mut out, MemOperand::absolute(0x7fff_0480));
        save_flags(&mut out);
        restore_flags(&mut out);
        push_imm(&mut out, 0x10008);
        movzx_al(&mut out, 9);
        movsxd(&mut out, 9, 3);
        movsx16(&mut out, 3, 9);
        and32(&mut out, 9, 63);
        cmp32(&mut out, 1, 56);
        cmp(&mut out, 9, 1);
        add_rsp(&mut out, -128);
        ret_pop(&mut out, 128);
        call32(&mut out);
        assert_eq!(
            text(&out),
            "xchg [rsp],rax; call qword ptr [7FFF1000h]; cmp dword ptr [7FFF0000h],0; cmp r9,[7FFF00C0h]; mov [7FFF00C0h],rcx; \
             mov qword ptr [7FFF00C8h],0FFFFFFFFFFFFFFFFh; inc qword ptr [7FFF0480h]; lahf; seto al; add al,7Fh; sahf; \
             push 10008h; movzx r9d,al; movsxd r9,ebx; movsx rbx,r9w; and r9d,3Fh; cmp ecx,38h; cmp r9,rcx; \
             add rsp,0FFFFFFFFFFFFFF80h; ret 80h; call 0000000000000064h"
        );
    }
}
