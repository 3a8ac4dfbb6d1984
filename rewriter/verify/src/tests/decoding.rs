//! What the audit derives about single instructions, against iced-x86 as a second opinion.
//!
//! Every opcode of the legacy, VEX and EVEX maps is tried with a memory and a register operand. Deviations are allowed
//! to one side only: the audit may see more reads and fewer kills than there are.

use crate::decode::decoder::decode;
use crate::decode::effects::{ALL_FLAGS, AccessKind, Touch};
use crate::decode::insn::Insn;
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, RflagsBits,
};
use std::collections::BTreeMap;

fn encodings() -> Vec<Vec<u8>> {
    let tail = [0x40u8, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
    let mut all = Vec::new();
    let mut push = |head: Vec<u8>| {
        for modrm in (0..8).flat_map(|reg| [0x41 | reg << 3, 0xc1 | reg << 3]) {
            let mut v = head.clone();
            v.push(modrm);
            v.extend(tail);
            v.truncate(15);
            all.push(v);
        }
    };
    for prefix in [&[][..], &[0x66], &[0xf2], &[0xf3], &[0xf0]] {
        for rex in [&[][..], &[0x48], &[0x4d]] {
            for map in [&[][..], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]] {
                for op in 0..=255u8 {
                    let prefix_byte = matches!(op, 0x0f | 0x26 | 0x2e | 0x36 | 0x3e | 0x62 | 0x64..=0x67 | 0xc4 | 0xc5 | 0xf0..=0xf3)
                        || op & 0xf0 == 0x40;
                    if (map.is_empty() && prefix_byte) || (map == [0x0f] && matches!(op, 0x38 | 0x3a)) {
                        continue;
                    }
                    push([prefix, rex, map, &[op]].concat());
                }
            }
        }
    }
    for (map, pp, l, w, op) in product(1..=3, 2) {
        for v in [0x78, 0x68] {
            push(vec![0xc4, 0xe0 | map, w << 7 | v | l << 2 | pp, op]);
        }
    }
    for (map, pp, l, w, op) in product(1..=6, 3) {
        for (mask, v) in [(0, 0x78), (1, 0x78), (0x10, 0x78), (0, 0x68)] {
            push(vec![0x62, 0xf0 | map, w << 7 | v | 4 | pp, l << 5 | 8 | mask, op]);
        }
    }
    all
}

/// Map, prefix, length, W, opcode.
fn product(maps: std::ops::RangeInclusive<u8>, lengths: u8) -> impl Iterator<Item = (u8, u8, u8, u8, u8)> {
    maps.flat_map(move |map| {
        (0..4).flat_map(move |pp| {
            (0..lengths).flat_map(move |l| (0..2).flat_map(move |w| (0..=255).map(move |op| (map, pp, l, w, op))))
        })
    })
}

/// Differences of the audit's view from iced's, empty when there are none.
fn differences(ours: &Insn, iced: &iced_x86::Instruction, factory: &mut InstructionInfoFactory) -> Vec<String> {
    let mut out = Vec::new();
    if usize::from(ours.len) != iced.len() {
        out.push(format!("length {} instead of {}", ours.len, iced.len()));
        return out;
    }
    let info = factory.info(iced);
    let (mut reads, mut full, mut writes) = (0u16, 0u16, 0u16);
    for r in info.used_registers() {
        let g = r.register().full_register();
        if !g.is_gpr() {
            continue;
        }
        let b = 1u16 << g.number();
        let a = r.access();
        if matches!(a, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite) {
            reads |= b;
        }
        if matches!(a, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite) {
            writes |= b;
        }
        if matches!(a, OpAccess::Write | OpAccess::ReadWrite) && r.register().size() >= 4 {
            full |= b;
        }
    }
    let missing = |what: &str, m: u32| if m == 0 { None } else { Some(format!("{what} {m:#x}")) };
    out.extend(missing("missing reads", (reads & !ours.fx.reads).into()));
    out.extend(missing("missing writes", (writes & !ours.fx.writes).into()));
    out.extend(missing("wrong kills", (ours.fx.kills & !full).into()));
    let flags = |bits: u32| {
        [
            (RflagsBits::CF, 1),
            (RflagsBits::PF, 2),
            (RflagsBits::AF, 4),
            (RflagsBits::ZF, 8),
            (RflagsBits::SF, 16),
            (RflagsBits::OF, 32),
        ]
        .iter()
        .filter(|f| bits & f.0 != 0)
        .fold(0u8, |m, f| m | f.1)
    };
    out.extend(missing("missing flag reads", (flags(iced.rflags_read()) & !ours.fx.flag_reads).into()));
    let modified = flags(iced.rflags_modified());
    out.extend(missing("wrong flag kills", (ours.fx.flag_kills & !modified & ALL_FLAGS).into()));
    // Memory besides the implicit stack.
    let memory: Vec<_> = info
        .used_memory()
        .iter()
        .filter(|m| !(m.base() == Register::RSP || (m.base() == Register::RBP && iced.mnemonic() == Mnemonic::Leave)))
        .collect();
    let touches = match ours.touch {
        Touch::None => 0,
        Touch::Mem(_) | Touch::BitString(_) | Touch::Xlat | Touch::MaskMov | Touch::ZeroLine | Touch::Xsave(_) => 1,
        Touch::Move64 => 2,
        Touch::String { reads_si, reads_di, writes_di } => usize::from(reads_si) + usize::from(reads_di || writes_di),
        Touch::Lanes(_) | Touch::Opaque => return out,
    };
    if touches != memory.len() {
        out.push(format!("{touches} accesses instead of {}", memory.len()));
    } else if let (Touch::Mem(a), [m]) = (ours.touch, memory.as_slice()) {
        let theirs = match m.access() {
            OpAccess::Read | OpAccess::CondRead => AccessKind::Load,
            OpAccess::Write | OpAccess::CondWrite => AccessKind::Store,
            _ => AccessKind::Rmw,
        };
        if a != theirs {
            out.push(format!("{a:?} instead of {theirs:?}"));
        }
        if usize::from(ours.size) != m.memory_size().size() {
            out.push(format!("{} bytes instead of {}", ours.size, m.memory_size().size()));
        }
        if let Some(mem) = &ours.mem
            && mem.disp as u64 != m.displacement()
        {
            out.push(format!("displacement {:#x} instead of {:#x}", mem.disp, m.displacement()));
        }
    }
    out
}

/// Where the audit is known to differ, by iced's mnemonic, and why that is harmless.
fn tolerated(i: &iced_x86::Instruction) -> bool {
    use Mnemonic as M;
    let same = i.op0_register() == i.op1_register();
    // The result of `sbb r,r` does not depend on r. The pushes of the stack are left out by their base register.
    if (i.mnemonic() == M::Sbb && same) || (i.mnemonic() == M::Movdir64b && i.op0_register() == Register::RSP) {
        return true;
    }
    matches!(
        i.mnemonic(),
        // Privileged or far control flow: faults in a user program, or unknown to the audit and so a finding.
        M::Call | M::Jmp | M::Retf | M::Ret | M::Iret | M::Iretd | M::Iretq | M::Lss | M::Lfs | M::Lgs
            | M::Sysret | M::Sysretq | M::Sysexit | M::Sysexitq | M::Sysenter | M::Rsm | M::Getsec | M::In | M::Out | M::Insb
            | M::Insw | M::Insd | M::Outsb | M::Outsw | M::Outsd | M::Enclv | M::Encls | M::Enclu
            | M::Vmread | M::Vmwrite | M::Incsspd | M::Incsspq | M::Rdsspd | M::Rdsspq | M::Setssbsy | M::Saveprevssp
            | M::Rstorssp | M::Clrssbsy | M::Xrstors | M::Xrstors64 | M::Invept | M::Invvpid | M::Invpcid
            // Flags are handed back in rflags as they were, and in r11 as an undefined value.
            | M::Syscall
            // Cache-line hints, which read nothing a program could see.
            | M::Clflush | M::Clflushopt | M::Clwb | M::Umonitor
            // Undefined opcodes stop the program.
            | M::Ud0 | M::Ud1 | M::Ud2
            // iced lists each word it pushes.
            | M::Enter
            // A no-operation forms no address.
            | M::Nop
            // A register form that no hardware defines.
            | M::Reservednop
    )
}

/// Calls `look` with each encoding that iced decodes: its bytes, what iced says, and what the audit does, if it decodes it.
fn each_encoding(mut look: impl FnMut(&[u8], Instruction, Option<&Insn>)) {
    // What follows an instruction is nops to the end of its 16 bytes, so that one call decodes many.
    for chunk in encodings().chunks(4096) {
        let mut bytes = vec![0x90u8; chunk.len() * 16];
        for (k, e) in chunk.iter().enumerate() {
            bytes[k * 16..k * 16 + e.len()].copy_from_slice(e);
        }
        let code = decode(&bytes, 0x10_0000, &[]);
        for (k, e) in chunk.iter().enumerate() {
            let va = 0x10_0000 + k as u64 * 16;
            let iced = Decoder::with_ip(64, &bytes[k * 16..k * 16 + 15], va, DecoderOptions::NONE).decode();
            if !iced.is_invalid() {
                look(e, iced, code.at(va).map(|i| &code.insns[i]));
            }
        }
    }
}

#[test]
fn agrees_with_iced_on_every_opcode() {
    let mut factory = InstructionInfoFactory::new();
    let (mut tried, mut undecoded) = (0, 0);
    let mut wrong: BTreeMap<String, (usize, String)> = BTreeMap::new();
    each_encoding(|e, iced, ours| {
        if tolerated(&iced) {
            return;
        }
        tried += 1;
        let Some(ours) = ours else {
            undecoded += 1;
            return;
        };
        for diff in differences(ours, &iced, &mut factory) {
            let entry = wrong.entry(format!("{:?}: {diff}", iced.code())).or_insert((0, format!("{e:02x?} {iced}")));
            entry.0 += 1;
        }
    });
    let listing: Vec<String> = wrong.iter().map(|(k, (n, e))| format!("{k}  ({n} times, as {e})")).collect();
    assert!(tried > 100_000, "only {tried} encodings tried");
    assert!(
        listing.is_empty(),
        "{} differences, {undecoded} of {tried} undecoded:\n{}",
        listing.len(),
        listing.join("\n")
    );
    assert!(undecoded * 50 < tried, "{undecoded} of {tried} encodings do not decode");
}

/// What the audit sees more of than the rewriter makes it take sound code for unsound: a register that it believes to be read, or not to be overwritten, is
/// live where the rewriter uses it. It read rbx and rcx at `xsavec`, which it took for `cmpxchg16b`.
#[test]
fn sees_no_more_than_the_rewriter() {
    use blizzard::facts::{access, effects};
    let mut factory = InstructionInfoFactory::new();
    let mut wrong: BTreeMap<String, String> = BTreeMap::new();
    each_encoding(|e, iced, ours| {
        let info = factory.info(&iced);
        let theirs = effects::effects(&iced, info);
        // What is refused is in no output.
        if matches!(access::access_of(&iced, info), access::InsnAccess::Unknown(_)) || ends(&iced) {
            return;
        }
        // What neither Capstone nor `newer` describes is unknown, and said to be.
        let Some(ours) = ours.filter(|i| i.fx.writes != 0xffff) else { return };
        if usize::from(ours.len) != iced.len() {
            return;
        }
        let mut note = |what: &str, m: u32| {
            if m != 0 {
                wrong.entry(format!("{:?}: {what} {m:#x}", iced.code())).or_insert(format!("{e:02x?} {iced}"));
            }
        };
        // rsp is always live.
        note("reads too much", u32::from(ours.fx.reads) & 0xffef & !theirs.reads.0);
        // What is read, too, is live in front of it anyway.
        let fresh = theirs.kills.0 & !theirs.reads.0;
        note("overwrites too little", fresh & 0xffef & !u32::from(ours.fx.kills));
        // Rotating by nothing is nothing.
        let nothing = matches!(iced.mnemonic(), Mnemonic::Rcl | Mnemonic::Rcr) && ours.imm & 31 == 0;
        let flag_reads = if nothing { 0 } else { u32::from(ours.fx.flag_reads) };
        note("reads too many flags", flag_reads & !(theirs.reads.0 >> 16));
        note("overwrites too few flags", fresh >> 16 & !u32::from(ours.fx.flag_kills));
    });
    let listing: Vec<String> = wrong.iter().map(|(k, e)| format!("{k}  (as {e})")).collect();
    assert!(listing.is_empty(), "{} differences:\n{}", listing.len(), listing.join("\n"));
}

/// Behind it nothing of the program goes on: it is undefined, privileged, or leaves for elsewhere. PadLock's instructions count as unknown, and `pause` with a REX prefix as an exchange.
fn ends(i: &iced_x86::Instruction) -> bool {
    use Mnemonic as M;
    let control = |n| i.op_kind(n) == OpKind::Register && (i.op_register(n).is_cr() || i.op_register(n).is_dr());
    matches!(
        i.mnemonic(),
        M::Pause
            | M::Ud0
            | M::Ud1
            | M::Ud2
            | M::Iret
            | M::Iretd
            | M::Iretq
            | M::Sysret
            | M::Sysretq
            | M::Sysexit
            | M::Sysexitq
            | M::Rsm
            | M::In
            | M::Out
            | M::Lmsw
            | M::Lss
            | M::Lfs
            | M::Lgs
            | M::Getsec
            | M::Xsetbv
            | M::Invept
            | M::Invvpid
            | M::Invpcid
            | M::Vmcall
            | M::Vmclear
            | M::Vmptrld
            | M::Vmptrst
            | M::Vmread
            | M::Vmwrite
            | M::Vmxon
            | M::Vmgexit
            | M::Vmmcall
            | M::Clrssbsy
            | M::Rstorssp
            | M::Reservednop
            | M::Rdsspd
            | M::Rdsspq
            | M::Ccs_hash
            | M::Ccs_encrypt
            | M::Xcryptcbc
            | M::Xcryptcfb
            | M::Xcryptctr
            | M::Xcryptecb
            | M::Xcryptofb
            | M::Xsha1
            | M::Xsha256
            | M::Xsha512
            | M::Xstore
    ) || control(0)
        || control(1)
}

#[test]
fn knows_extensions_that_capstone_does_not() {
    // OpenSSL's modular exponentiation for processors with AVX-IFMA (in cargo) left 4,000 claims open. clang writes VMOVW
    // for arrays of `short`.
    use Mnemonic as M;
    let newer = [
        M::Vpmadd52luq,
        M::Vpmadd52huq,
        M::Vpdpbusd,
        M::Vpdpwssds,
        M::Vpdpbssd,
        M::Vpdpwuud,
        M::Vbcstnebf162ps,
        M::Vcvtneoph2ps,
        M::Vcvtneps2bf16,
        M::Vcvtne2ps2bf16,
        M::Vdpbf16ps,
        M::Vsm3msg2,
        M::Vsm3rnds2,
        M::Vsm4rnds4,
        M::Cmpnlexadd,
        M::Vaddph,
        M::Vsqrtsh,
        M::Vmovsh,
        M::Vfmadd213ph,
        M::Vfnmsub231sh,
        M::Vfcmaddcph,
        M::Vcmpph,
        M::Vfpclasssh,
        M::Vmovw,
        M::Vcvtss2sh,
        M::Vcvtps2phx,
        M::Vcvtsh2ss,
        M::Vcvtph2psx,
        M::Vcvtph2pd,
        M::Vcvtpd2ph,
        M::Vcvtsh2sd,
        M::Vcvtsd2sh,
        M::Vcvtdq2ph,
        M::Vcvtqq2ph,
        M::Vcvtph2dq,
        M::Vcvttph2dq,
        M::Vcvttph2udq,
        M::Vcvtph2udq,
        M::Vcvttph2uqq,
        M::Vcvtph2uqq,
        M::Vcvttph2qq,
        M::Vcvtph2qq,
        M::Vcvtudq2ph,
        M::Vcvtuqq2ph,
        M::Vcvttph2uw,
        M::Vcvttph2w,
        M::Vcvtph2uw,
        M::Vcvtph2w,
        M::Vcvtw2ph,
        M::Vcvtuw2ph,
        M::Vcvtsi2sh,
        M::Vcvtusi2sh,
        M::Vcvttsh2si,
        M::Vcvtsh2si,
        M::Vcvttsh2usi,
        M::Vcvtsh2usi,
    ];
    let mut met: BTreeMap<String, usize> = BTreeMap::new();
    for e in encodings() {
        let va = 0x10_0000;
        let mut d = Decoder::with_ip(64, &e, va, DecoderOptions::NONE);
        let iced = d.decode();
        if iced.is_invalid() || !newer.contains(&iced.mnemonic()) {
            continue;
        }
        let code = decode(&e, va, &[]);
        let ours = &code.insns[code.at(va).expect("an instruction is found where one begins")];
        assert_ne!(ours.touch, Touch::Opaque, "{e:02x?} {iced}");
        *met.entry(format!("{:?}", iced.mnemonic())).or_default() += 1;
    }
    assert_eq!(met.len(), newer.len(), "{met:?}");
}

#[test]
fn a_padlock_instruction_may_touch_anything() {
    // rep xcryptecb; rep xsha512, which Capstone does not know.
    for bytes in [[0xf3, 0x0f, 0xa7, 0xc8], [0xf3, 0x0f, 0xa6, 0xe0]] {
        let code = decode(&bytes, 0x10_0000, &[]);
        assert_eq!((code.insns.len(), code.insns[0].len, code.insns[0].touch), (1, 4, Touch::Opaque));
    }
}
