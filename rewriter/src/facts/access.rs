//! What memory an instruction accesses, in the classes that the checks distinguish.
//!
//! Input: a decoded instruction. Output: [`InsnAccess`]. Nothing here decides what is checked; an instruction whose access is not
//! understood yields [`InsnAccess::Unknown`] with the reason, which becomes a refusal. Source: SDM volume 2.

use crate::decode::classify::{is_nested, is_padlock};
use blizzard_contract::{VsibDesc, string_desc};
use iced_x86::{Code, CpuidFeature, Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register};

/// Bytes, direction and address of an ordinary access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainAccess {
    pub bytes: u16,
    pub load: bool,
    pub store: bool,
    /// Some of the bytes may stay untouched.
    pub masked: bool,
    /// The operand has a %gs override. Its base is zero where other nodes run, and nobody knows it elsewhere: a test may compare the address, but
    /// not look anything up by it.
    pub gs: bool,
    pub at: AddressForm,
}

/// How the address is formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressForm {
    /// The explicit memory operand.
    Operand,
    /// The explicit memory operand plus the word that a bit offset register selects (bt, bts, btr, btc): register, bytes of a word.
    BitString { offset: Register, word: u8 },
    /// A register alone: maskmovdqu (rdi), clzero (rax), movdir64b and enqcmd destinations.
    Register(Register),
    /// rbx plus zero-extended al: xlat.
    Xlat,
}

/// The memory accesses of one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InsnAccess {
    #[default]
    None,
    /// Pushes, pops, calls and returns: the stack only.
    ImplicitStack,
    One(PlainAccess),
    /// movdir64b, enqcmd: a 64-byte source operand and a 64-byte store.
    Two(PlainAccess, PlainAccess),
    /// movs, stos, lods, scas, cmps: descriptor bits without the check bits.
    String {
        desc: u32,
        reads_rsi: bool,
        uses_rdi: bool,
    },
    Vsib(VsibDesc),
    Unknown(&'static str),
}

/// Bytes of an access whose size the processor's state components decide.
pub const XSAVE_BYTES: u16 = 0xffff;

/// Whether the instruction's segment has a base.
fn has_base(insn: &Instruction) -> bool {
    matches!(insn.segment_prefix(), Register::FS | Register::GS)
}

/// Classifies the accesses of `insn`.
pub fn access_of(insn: &Instruction, info: &InstructionInfo) -> InsnAccess {
    use Mnemonic as M;
    let explicit = (0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Memory);
    if moves_segment_base(insn) {
        return InsnAccess::Unknown("moves the base of %fs or %gs, by which accesses are told apart: use arch_prctl");
    }
    match insn.mnemonic() {
        // It copies the frame pointers of the procedures around it from where rbp points to.
        M::Enter if is_nested(insn) => {
            return InsnAccess::Unknown("frame of a nested procedure (enter with a level above 1)");
        }
        M::Movsb | M::Movsw | M::Movsq if insn.is_string_instruction() => return string(insn, string_desc::MOVS),
        // The SSE2 move and the string move share a name.
        M::Movsd if insn.is_string_instruction() => return string(insn, string_desc::MOVS),
        M::Stosb | M::Stosw | M::Stosd | M::Stosq => return string(insn, string_desc::STOS),
        M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq => return string(insn, string_desc::LODS),
        M::Scasb | M::Scasw | M::Scasd | M::Scasq => return string(insn, string_desc::SCAS),
        M::Cmpsb | M::Cmpsw | M::Cmpsq => return string(insn, string_desc::CMPS),
        M::Cmpsd if insn.is_string_instruction() => return string(insn, string_desc::CMPS),
        M::Insb | M::Insw | M::Insd | M::Outsb | M::Outsw | M::Outsd => {
            return InsnAccess::Unknown("port input or output");
        }
        M::Xlatb | M::Maskmovdqu | M::Vmaskmovdqu | M::Maskmovq if has_base(insn) => {
            return InsnAccess::Unknown("implicit access through %fs or %gs");
        }
        M::Xlatb => {
            return InsnAccess::One(PlainAccess {
                bytes: 1,
                load: true,
                store: false,
                masked: false,
                gs: false,
                at: AddressForm::Xlat,
            });
        }
        M::Maskmovdqu | M::Vmaskmovdqu | M::Maskmovq => {
            let bytes = if insn.mnemonic() == M::Maskmovq { 8 } else { 16 };
            let rdi = if insn.op0_kind() == OpKind::MemorySegRDI { Register::RDI } else { Register::EDI };
            return InsnAccess::One(PlainAccess {
                bytes,
                load: false,
                store: true,
                masked: true,
                gs: false,
                at: AddressForm::Register(rdi),
            });
        }
        M::Clzero => {
            return InsnAccess::One(PlainAccess {
                bytes: 64,
                load: false,
                store: true,
                masked: false,
                gs: false,
                at: AddressForm::Register(insn_rax(insn)),
            });
        }
        M::Movdir64b | M::Enqcmd | M::Enqcmds if has_base(insn) => {
            return InsnAccess::Unknown("64-byte move through %fs or %gs");
        }
        M::Movdir64b | M::Enqcmd | M::Enqcmds => {
            let source =
                PlainAccess { bytes: 64, load: true, store: false, masked: false, gs: false, at: AddressForm::Operand };
            let dest = PlainAccess {
                bytes: 64,
                load: false,
                store: true,
                masked: false,
                gs: false,
                at: AddressForm::Register(insn.op0_register()),
            };
            return InsnAccess::Two(source, dest);
        }
        M::Monitor | M::Monitorx | M::Umonitor => return InsnAccess::None,
        M::Lea
        | M::Nop
        | M::Reservednop
        | M::Prefetchnta
        | M::Prefetcht0
        | M::Prefetcht1
        | M::Prefetcht2
        | M::Prefetchw
        | M::Prefetch
        | M::Prefetchwt1
        | M::Prefetchit0
        | M::Prefetchit1
        | M::Clflush
        | M::Clflushopt
        | M::Clwb
        | M::Cldemote
        | M::Bndmk => return InsnAccess::None,
        M::Bndldx | M::Bndstx => return InsnAccess::Unknown("bound-table access (MPX)"),
        M::Sgdt | M::Sidt => return one(insn, info, 10),
        _ => {}
    }
    if !explicit {
        let stack_only = insn.is_stack_instruction() || matches!(insn.mnemonic(), M::Leave | M::Enter);
        return match (info.used_memory().is_empty(), stack_only) {
            (true, _) => InsnAccess::None,
            (false, true) => InsnAccess::ImplicitStack,
            // Emitted as ud2.
            (false, false) if is_padlock(insn) => InsnAccess::None,
            (false, false) => InsnAccess::Unknown("implicit memory access"),
        };
    }
    if insn.is_vsib() {
        if has_base(insn) {
            return InsnAccess::Unknown("gather or scatter through %fs or %gs");
        }
        return vsib(insn);
    }
    let size = insn.memory_size().size();
    if let M::Bt | M::Bts | M::Btr | M::Btc = insn.mnemonic()
        && insn.op1_kind() == OpKind::Register
    {
        if insn.memory_base().is_gpr32() || insn.memory_index().is_gpr32() {
            // The SDM does not say whether the sum of operand and offset wraps at 4 GiB.
            return InsnAccess::Unknown("bit string at a 32-bit address");
        }
        if insn.op1_register().full_register() == Register::RSP {
            return InsnAccess::Unknown("bit string with an offset in rsp");
        }
        if insn.segment_prefix() == Register::GS {
            return InsnAccess::Unknown("bit string through %gs");
        }
        let mut plain = match one(insn, info, size) {
            InsnAccess::One(p) => p,
            other => return other,
        };
        plain.at = AddressForm::BitString { offset: insn.op1_register(), word: size as u8 };
        return InsnAccess::One(plain);
    }
    let xsave = matches!(
        insn.mnemonic(),
        M::Xsave
            | M::Xsave64
            | M::Xsavec
            | M::Xsavec64
            | M::Xsaveopt
            | M::Xsaveopt64
            | M::Xsaves
            | M::Xsaves64
            | M::Xrstor
            | M::Xrstor64
            | M::Xrstors
            | M::Xrstors64
    );
    if xsave {
        return one(insn, info, usize::from(XSAVE_BYTES));
    }
    if insn.cpuid_features().iter().any(|f| matches!(f, CpuidFeature::AMX_TILE))
        && insn.mnemonic() != M::Ldtilecfg
        && insn.mnemonic() != M::Sttilecfg
    {
        return InsnAccess::Unknown("tile load or store (AMX), whose extent depends on the tile configuration");
    }
    if size == 0 {
        return InsnAccess::Unknown("memory operand of unknown size");
    }
    one(insn, info, size)
}

/// Whether an instruction changes the base of %fs or %gs. Loading a selector changes it, too.
fn moves_segment_base(insn: &Instruction) -> bool {
    use Mnemonic as M;
    let selector =
        |op: u32| insn.op_kind(op) == OpKind::Register && matches!(insn.op_register(op), Register::FS | Register::GS);
    match insn.mnemonic() {
        M::Wrfsbase | M::Wrgsbase | M::Lfs | M::Lgs => true,
        M::Mov | M::Pop => selector(0),
        _ => false,
    }
}

fn insn_rax(insn: &Instruction) -> Register {
    match insn.code() {
        Code::Clzerow => Register::AX,
        Code::Clzerod => Register::EAX,
        _ => Register::RAX,
    }
}

/// The explicit operand, with the direction that iced's tables give it.
fn one(insn: &Instruction, info: &InstructionInfo, bytes: usize) -> InsnAccess {
    let Some(op) = (0..insn.op_count()).find(|&op| insn.op_kind(op) == OpKind::Memory) else { return InsnAccess::None };
    let (load, store, cond) = match info.op_access(op) {
        OpAccess::Read => (true, false, false),
        OpAccess::CondRead => (true, false, true),
        OpAccess::Write => (false, true, false),
        OpAccess::CondWrite => (false, true, true),
        // A failed cmpxchg writes the old value back: a store either way.
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true, false),
        OpAccess::None | OpAccess::NoMemAccess => return InsnAccess::None,
    };
    let masked = cond
        || insn.has_op_mask()
        || matches!(
            insn.mnemonic(),
            Mnemonic::Vmaskmovps | Mnemonic::Vmaskmovpd | Mnemonic::Vpmaskmovd | Mnemonic::Vpmaskmovq
        );
    match u16::try_from(bytes) {
        Ok(bytes) => {
            let gs = insn.segment_prefix() == Register::GS;
            InsnAccess::One(PlainAccess { bytes, load, store, masked, gs, at: AddressForm::Operand })
        }
        Err(_) => InsnAccess::Unknown("memory operand of unknown size"),
    }
}

fn string(insn: &Instruction, op: u32) -> InsnAccess {
    let reads_rsi = matches!(op, string_desc::MOVS | string_desc::LODS | string_desc::CMPS);
    let uses_rdi = op != string_desc::LODS;
    for k in 0..insn.op_count() {
        if matches!(
            insn.op_kind(k),
            OpKind::MemorySegSI
                | OpKind::MemorySegDI
                | OpKind::MemoryESDI
                | OpKind::MemorySegESI
                | OpKind::MemorySegEDI
                | OpKind::MemoryESEDI
        ) {
            return InsnAccess::None;
        }
    }
    if reads_rsi && matches!(insn.segment_prefix(), Register::FS | Register::GS) {
        return InsnAccess::Unknown("string instruction with a segment override");
    }
    let log2 = insn.memory_size().size().trailing_zeros();
    let rep = if insn.has_repne_prefix() {
        2
    } else if insn.has_rep_prefix() {
        1
    } else {
        0
    };
    InsnAccess::String {
        desc: op | log2 << string_desc::SIZE_SHIFT | rep << string_desc::REP_SHIFT,
        reads_rsi,
        uses_rdi,
    }
}

/// Gathers and scatters.
fn vsib(insn: &Instruction) -> InsnAccess {
    use Mnemonic as M;
    let prefetch = matches!(
        insn.mnemonic(),
        M::Vgatherpf0dpd
            | M::Vgatherpf0dps
            | M::Vgatherpf0qpd
            | M::Vgatherpf0qps
            | M::Vgatherpf1dpd
            | M::Vgatherpf1dps
            | M::Vgatherpf1qpd
            | M::Vgatherpf1qps
            | M::Vscatterpf0dpd
            | M::Vscatterpf0dps
            | M::Vscatterpf0qpd
            | M::Vscatterpf0qps
            | M::Vscatterpf1dpd
            | M::Vscatterpf1dps
            | M::Vscatterpf1qpd
            | M::Vscatterpf1qps
    );
    if prefetch {
        return InsnAccess::None;
    }
    let elem_bytes = insn.memory_size().size() as u8;
    let index_bytes = match insn.mnemonic() {
        M::Vpgatherdd
        | M::Vpgatherdq
        | M::Vgatherdps
        | M::Vgatherdpd
        | M::Vpscatterdd
        | M::Vpscatterdq
        | M::Vscatterdps
        | M::Vscatterdpd => 4,
        M::Vpgatherqd
        | M::Vpgatherqq
        | M::Vgatherqps
        | M::Vgatherqpd
        | M::Vpscatterqd
        | M::Vpscatterqq
        | M::Vscatterqps
        | M::Vscatterqpd => 8,
        _ => return InsnAccess::Unknown("unknown instruction with vector addresses"),
    };
    let scatter = matches!(
        insn.mnemonic(),
        M::Vpscatterdd
            | M::Vpscatterdq
            | M::Vscatterdps
            | M::Vscatterdpd
            | M::Vpscatterqd
            | M::Vpscatterqq
            | M::Vscatterqps
            | M::Vscatterqpd
    );
    let data = if scatter { insn.op1_register() } else { insn.op0_register() };
    let index = insn.memory_index();
    let lanes = (data.size() / usize::from(elem_bytes)).min(index.size() / index_bytes);
    let (mask_kind, mask) = if insn.has_op_mask() {
        (1, insn.op_mask().number() as u8)
    } else if insn.op_count() == 3 && insn.op_kind(2) == OpKind::Register {
        (0, insn.op2_register().number() as u8)
    } else {
        return InsnAccess::Unknown("gather without a mask");
    };
    let base = insn.memory_base();
    if base != Register::None && !base.is_gpr64() {
        return if base.is_gpr32() { InsnAccess::None } else { InsnAccess::Unknown("gather with an unusual base") };
    }
    InsnAccess::Vsib(VsibDesc {
        disp: insn.memory_displacement64() as i64 as i32,
        base: if base == Register::None { 16 } else { base.number() as u8 },
        index: index.number() as u8,
        index_bytes: index_bytes as u8,
        elem_bytes,
        lanes: lanes as u8,
        scale: insn.memory_index_scale() as u8,
        mask_kind,
        mask,
        access: if scatter { 2 } else { 1 },
        rsp_moved: 0,
        _pad: [0; 2],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    /// No test knows the base of %fs, so no check can tell where these lead.
    #[test]
    fn what_cannot_be_checked_through_a_segment_with_a_base_is_refused() {
        // xlat; maskmovdqu xmm0, xmm1; vpgatherqq ymm0, [rax+ymm1], ymm2; movdir64b rax, [rdi]
        let forms: [&[u8]; 4] = [
            &[0xd7],
            &[0x66, 0x0f, 0xf7, 0xc1],
            &[0xc4, 0xe2, 0xed, 0x91, 0x04, 0x08],
            &[0x66, 0x0f, 0x38, 0xf8, 0x07],
        ];
        for form in forms {
            let access = |prefix: &[u8]| {
                let code = [prefix, form].concat();
                let insn = Decoder::new(64, &code, DecoderOptions::NONE).decode();
                assert_eq!(insn.len(), code.len(), "{code:x?}");
                access_of(&insn, InstructionInfoFactory::new().info(&insn))
            };
            assert!(!matches!(access(&[]), InsnAccess::Unknown(_)), "{form:x?}");
            for prefix in [0x64, 0x65] {
                assert!(
                    matches!(access(&[prefix]), InsnAccess::Unknown(why) if why.contains("%fs or %gs")),
                    "{form:x?}"
                );
            }
        }
    }
}
