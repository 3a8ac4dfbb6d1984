//! One instruction for each form with a memory operand that iced's decoder knows.
//!
//! Output: [`Specimen`]s of all opcodes of all maps, with the widths that they may have. **Invariant**: no form is left out: [`every_form_is_found`] compares
//! with iced's list.

use crate::system_calls::signals::carried::forms::{EVEX, FormKey, LEGACY, VEX, Widths};
use iced_x86::{
    Code, Decoder, DecoderOptions, EncodingKind, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpCodeOperandKind, OpKind,
};
use std::collections::BTreeSet;

/// How the operand is written.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// General registers; `None` for the base: an address alone.
    pub base: Option<u8>,
    pub index: Option<u8>,
    /// log2.
    pub scale: u8,
    /// Its bytes: 0, 1 or 4. With a byte it is a number of units.
    pub disp_bytes: u8,
    pub disp: i32,
}

/// `[rax]`
pub const PLAIN: Shape = Shape { base: Some(0), index: None, scale: 0, disp_bytes: 0, disp: 0 };

/// What an instruction is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specimen {
    pub key: FormKey,
    pub widths: Widths,
    /// EVEX.aaa.
    pub mask: u8,
}

impl Specimen {
    /// Its bytes with this operand; behind it 8 of an immediate that there may be. Where the mode without displacement means something else, one is added.
    pub fn bytes(&self, shape: Shape, immediate: u8) -> Vec<u8> {
        let Specimen { key, widths, mask } = *self;
        let (x, b) = (shape.index.unwrap_or(0) >> 3, shape.base.unwrap_or(0) >> 3);
        let mut out = Vec::new();
        match key.encoding {
            LEGACY => {
                if widths.short {
                    out.push(0x66);
                }
                match key.prefix {
                    2 => out.push(0xf3),
                    3 => out.push(0xf2),
                    _ => {}
                }
                let rex = u8::from(widths.w) << 3 | x << 1 | b;
                if rex != 0 {
                    out.push(0x40 | rex);
                }
                out.extend([&[][..], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]][usize::from(key.map)]);
            }
            VEX => {
                let source = 0x78;
                out.extend([0xc4, 0x80 | (x ^ 1) << 6 | (b ^ 1) << 5 | key.map]);
                out.push(u8::from(widths.w) << 7 | source | widths.l << 2 | key.prefix);
            }
            _ => {
                out.extend([0x62, 0x90 | (x ^ 1) << 6 | (b ^ 1) << 5 | key.map]);
                out.push(u8::from(widths.w) << 7 | 0x7c | key.prefix);
                out.push(widths.l << 5 | u8::from(widths.broadcast) << 4 | 8 | mask);
            }
        }
        out.push(key.opcode);
        let disp_bytes = match (shape.base, shape.disp_bytes) {
            (Some(base), 0) if base & 7 == 5 => 1,
            (None, _) => 4,
            (_, n) => n,
        };
        let mode = [0, 1, 2, 2, 2][usize::from(disp_bytes)];
        let simple = shape.index.is_none() && shape.base.is_some_and(|base| base & 7 != 4) && !self.is_vector_index();
        match (simple, shape.base) {
            (true, Some(base)) => out.push(mode << 6 | key.reg << 3 | base & 7),
            (_, base) => {
                out.push(if base.is_some() { mode << 6 } else { 0 } | key.reg << 3 | 4);
                out.push(shape.scale << 6 | (shape.index.unwrap_or(4) & 7) << 3 | base.unwrap_or(5) & 7);
            }
        }
        out.extend(&shape.disp.to_le_bytes()[..disp_bytes.into()]);
        out.extend([immediate; 8]);
        out
    }

    fn is_vector_index(&self) -> bool {
        self.key.encoding != LEGACY && self.key.map == 2 && matches!(self.key.opcode, 0x90..=0x93 | 0xa0..=0xa3)
    }
}

/// What iced makes of bytes.
pub fn decode(bytes: &[u8]) -> Instruction {
    Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode()
}

/// Which operand is the memory of ModRM.
pub fn memory_operand(insn: &Instruction) -> Option<u32> {
    (0..insn.op_count()).find(|n| insn.op_kind(*n) == OpKind::Memory)
}

/// Loads, stores, and some bytes may stay untouched, as the rewriter takes it (`rewriter/src/facts/access.rs`).
pub fn directions(insn: &Instruction) -> (bool, bool, bool) {
    use iced_x86::Mnemonic as M;
    let Some(operand) = memory_operand(insn) else { return (false, false, false) };
    let (load, store, conditional) = match InstructionInfoFactory::new().info(insn).op_access(operand) {
        OpAccess::Read => (true, false, false),
        OpAccess::CondRead => (true, false, true),
        OpAccess::Write => (false, true, false),
        OpAccess::CondWrite => (false, true, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true, false),
        OpAccess::None | OpAccess::NoMemAccess => (false, false, false),
    };
    let masked = conditional
        || insn.has_op_mask()
        || matches!(insn.mnemonic(), M::Vmaskmovps | M::Vmaskmovpd | M::Vpmaskmovd | M::Vpmaskmovq);
    (load, store, masked)
}

/// All of them, and what iced makes of each with [`PLAIN`]: of each encoding that it takes for an instruction with a memory operand.
pub fn all() -> Vec<(Specimen, Instruction)> {
    let mut out = Vec::new();
    let mut add = |specimen: Specimen| {
        let insn = decode(&specimen.bytes(PLAIN, 0));
        if !insn.is_invalid() && memory_operand(&insn).is_some() && !insn.op_code().is_privileged() {
            out.push((specimen, insn));
        }
    };
    let bools = [false, true];
    for opcode in 0..=255u8 {
        for reg in 0..8 {
            for map in 0..4 {
                let is_prefix = matches!(opcode, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x62 | 0x64..=0x67 | 0xc4 | 0xc5 | 0xf0 | 0xf2 | 0xf3);
                let is_escape =
                    map == 0 && (opcode == 0x0f || is_prefix) || map == 1 && matches!(opcode, 0x0f | 0x38 | 0x3a);
                // Absolute addresses and xlat have no ModRM.
                if is_escape || map == 0 && matches!(opcode, 0xa0..=0xa3 | 0xd7) {
                    continue;
                }
                for (prefix, short) in [(0, false), (1, true), (2, false), (2, true), (3, false), (3, true)] {
                    for w in bools {
                        let widths = Widths { short, w, l: 0, broadcast: false };
                        let key = FormKey { encoding: LEGACY, map, opcode, prefix, reg };
                        add(Specimen { key, widths, mask: 0 });
                    }
                }
            }
            for (map, prefix, w) in (0..8).flat_map(|m| (0..4).flat_map(move |p| bools.map(|w| (m, p, w)))) {
                for l in 0..2 {
                    let widths = Widths { short: prefix == 1, w, l, broadcast: false };
                    let key = FormKey { encoding: VEX, map, opcode, prefix, reg };
                    add(Specimen { key, widths, mask: 0 });
                }
                for (l, broadcast, mask) in
                    (0..3).flat_map(|l| bools.map(|b| (l, b))).flat_map(|(l, b)| [0, 1].map(|m| (l, b, m)))
                {
                    let widths = Widths { short: prefix == 1, w, l, broadcast };
                    let key = FormKey { encoding: EVEX, map, opcode, prefix, reg };
                    add(Specimen { key, widths, mask });
                }
            }
        }
    }
    out
}

/// Of the forms that iced lists for 64-bit mode, all with a memory operand of ModRM are among the specimens, but those of processors of other times.
#[test]
fn every_form_is_found() {
    let found: BTreeSet<Code> = all().into_iter().map(|(_, insn)| insn.code()).collect();
    let listed = Code::values().filter(|code| {
        let form = code.op_code();
        let is_memory = |kind: &OpCodeOperandKind| {
            use OpCodeOperandKind as K;
            format!("{kind:?}").contains("mem") && !matches!(kind, K::mem_offs)
        };
        form.is_instruction() && form.mode64() && !form.is_privileged() && form.op_kinds().iter().any(is_memory)
    });
    let missing = listed.filter(|code| !found.contains(code));
    let unexplained: Vec<Code> = missing.filter(|code| !is_explained(*code)).collect();
    assert!(unexplained.is_empty(), "{unexplained:?}");
}

/// Why a form is not among the specimens.
fn is_explained(code: Code) -> bool {
    use Mnemonic as M;
    // Processors that do not exist any more, or never did outside of laboratories.
    matches!(code.op_code().encoding(), EncodingKind::XOP | EncodingKind::D3NOW | EncodingKind::MVEX)
        || format!("{code:?}").contains("KNC")
        // A `wait` in front of another form.
        || matches!(code.mnemonic(), M::Fstenv | M::Fstcw | M::Fsave | M::Fstsw)
        // Processors disagree; executed by those without MPX as what does nothing.
        || matches!(code, Code::Call_rm16 | Code::Jmp_rm16)
        || matches!(code.mnemonic(), M::Reservednop | M::Bndldx | M::Bndmov | M::Bndcl | M::Bndcu | M::Bndstx | M::Bndmk | M::Bndcn)
        // Prefetches of lanes never fault.
        || matches!(code.op_code().op_code(), 0xc6 | 0xc7) && code.op_code().encoding() == EncodingKind::EVEX
        // A prefix for short addresses.
        || matches!(code, Code::Movdir64b_r32_m512 | Code::Enqcmd_r32_m512)
        // Tiles need an index: `what_is_refused`.
        || matches!(code.mnemonic(), M::Tileloaddt1 | M::Tilestored | M::Tileloadd)
}
