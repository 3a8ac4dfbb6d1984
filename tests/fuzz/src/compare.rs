//! Where the original and the rewritten form of a sequence end, compared.
//!
//! Input: two [`End`]s. Output: the first difference, in words.
//!
//! At the end of a sequence all registers and flags are compared but what instructions leave undefined ([`Compared::undefined`]) and what tells where
//! code stands, and all memory but what is free below the stack.
//!
//! At a fault, what a program may rely on there: which fault, the address of its data, memory, vector, mask and x87 registers, rsp, the direction flag,
//! and the general registers that are live. Not the status flags and the other general registers: checks use those that nothing reads behind them. Nor the
//! instruction's address, which is that of the new code.

use crate::machine::{End, VECTORS};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, RflagsBits};

const DIRECTION: u64 = 0x400;
const STATUS: u64 = 0x8d5;
const RSP: u16 = 1 << 4;

/// What is known of a sequence when its ends are compared.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'a> {
    pub code: &'a [u8],
    /// Status flags that are undefined at the end, as iced's bits.
    pub undefined: u32,
    /// The red zone belongs to the sequence.
    pub red_zone: bool,
    /// It was executed as it is: nobody needs registers that are dead.
    pub as_it_is: bool,
}

/// The first difference between two ends, or at the fault that both had.
pub fn difference(expected: &End, found: &End, compared: &Compared) -> Option<String> {
    if expected.fault() != found.fault() {
        return Some(format!("the fault is {:x?} instead of {:x?}", found.fault(), expected.fault()));
    }
    match expected.fault() {
        Some(_) => difference_at_signal(expected, found, compared),
        None => difference_of(expected, found, u16::MAX, !undefined_flags(compared.undefined), compared),
    }
}

/// The first difference of what a handler finds, whatever signal it is.
pub fn difference_at_signal(expected: &End, found: &End, compared: &Compared) -> Option<String> {
    let (registers, flags) = match compared.as_it_is {
        true => (u16::MAX, DIRECTION | STATUS),
        false => (kept(compared.code), DIRECTION),
    };
    difference_of(expected, found, registers, flags, compared)
}

fn difference_of(expected: &End, found: &End, registers: u16, flags: u64, compared: &Compared) -> Option<String> {
    const NAMES: [&str; 16] =
        ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
    for (n, name) in NAMES.iter().enumerate().filter(|(n, _)| registers >> n & 1 == 1) {
        if expected.gpr(n) != found.gpr(n) {
            return Some(format!("{name} is {:#x} instead of {:#x}", found.gpr(n), expected.gpr(n)));
        }
    }
    if (expected.flags() ^ found.flags()) & flags != 0 {
        return Some(format!("flags are {:#x} instead of {:#x}", found.flags(), expected.flags()));
    }
    if let Some(at) = first_difference(&expected.vectors(), &found.vectors()) {
        return Some(match at.checked_sub(VECTORS) {
            Some(at) => format!("mask register {} differs in byte {}", at / 8, at % 8),
            None => format!("vector register {} differs in byte {}", at / 64, at % 64),
        });
    }
    if let Some(what) = differing_floats(expected.floats(), found.floats()) {
        return Some(what);
    }
    let below = if compared.red_zone { 128 } else { 0 };
    first_differing(expected.memory(below), found.memory(below))
}

/// The first difference of the program's memory, where a handler finds the runtime's registers.
pub fn memory_difference(expected: &End, found: &End) -> Option<String> {
    first_differing(expected.memory(0), found.memory_from(expected.gpr(4)))
}

fn first_differing(expected: [&[u8]; 3], found: [&[u8]; 3]) -> Option<String> {
    for (name, (a, b)) in ["private", "shared", "stack"].iter().zip(expected.into_iter().zip(found)) {
        if let Some(at) = first_difference(a, b) {
            return Some(format!("{name} memory differs at {at:#x}: {:#x} instead of {:#x}", b[at], a[at]));
        }
    }
    None
}

/// Compares what FXSAVE wrote (SDM volume 1, 10.5.1). The vector registers in it are compared in full elsewhere. Left out are opcode, instruction pointer and data pointer of
/// the last x87 instruction: the instruction stands elsewhere in rewritten code, and whether a processor keeps the three where no exception waits, and over a change of the
/// process, is its own affair (AMD's do not). The mask of MXCSR's bits is the processor's, and not the process'.
fn differing_floats(expected: &[u8], found: &[u8]) -> Option<String> {
    let value = |bytes: &[u8]| {
        let digits: String = bytes.iter().rev().map(|b| format!("{b:02x}")).collect();
        format!("0x{digits}")
    };
    let stack = (0..8).map(|n| (format!("st({n})"), 32 + 16 * n, 10));
    let words =
        [("the x87 control word", 0, 2), ("the x87 status word", 2, 2), ("the x87 tag word", 4, 1), ("MXCSR", 24, 4)];
    let words = words.map(|(name, at, bytes)| (name.to_string(), at, bytes));
    words.into_iter().chain(stack).find_map(|(name, at, bytes)| {
        let (a, b) = (&expected[at..at + bytes], &found[at..at + bytes]);
        (a != b).then(|| format!("{name} is {} instead of {}", value(b), value(a)))
    })
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}

/// General registers that are live at every instruction of a sequence: behind it all are read, and no instruction overwrites these without reading them.
fn kept(code: &[u8]) -> u16 {
    let mut factory = InstructionInfoFactory::new();
    let mut kept = u16::MAX;
    for insn in Decoder::new(64, code, DecoderOptions::NONE).iter() {
        for used in factory.info(&insn).used_registers() {
            if used.access() == OpAccess::Write && used.register().is_gpr() {
                kept &= !(1 << used.register().full_register().number());
            }
        }
    }
    // Frames are found from it.
    kept | RSP
}

/// iced's flag bits as those of the flags register.
fn undefined_flags(bits: u32) -> u64 {
    const MAP: [(u32, u64); 6] = [
        (RflagsBits::CF, 1),
        (RflagsBits::PF, 4),
        (RflagsBits::AF, 0x10),
        (RflagsBits::ZF, 0x40),
        (RflagsBits::SF, 0x80),
        (RflagsBits::OF, 0x800),
    ];
    MAP.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, flag)| flag).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{has_512, run};
    use crate::sequence::Sequence;

    const FNINIT: [u8; 2] = [0xdb, 0xe3];
    const UD2: [u8; 2] = [0x0f, 0x0b];

    /// Runs two sequences as if the second were the first one's rewritten form.
    fn compared(a: &[u8], b: &[u8]) -> Option<String> {
        let end = |code: &[u8]| run(&Sequence::known(code).program(), false).expect("processes can be started");
        let (expected, found) = (end(a), end(b));
        assert!(expected.is_complete() && found.is_complete(), "{}, {}", expected.status, found.status);
        difference(&expected, &found, &Compared { code: a, undefined: 0, red_zone: false, as_it_is: false })
    }

    /// Both agree with themselves, and differ from each other, behind them as where the next instruction faults.
    fn planted(a: &[u8], b: &[u8], what: &str) {
        for tail in [&[][..], &UD2] {
            let (a, b) = ([a, tail].concat(), [b, tail].concat());
            assert_eq!(compared(&a, &a), None, "{what}");
            let said = compared(&a, &b).unwrap_or_default();
            assert!(said.starts_with(what), "{said:?} instead of {what}");
        }
    }

    /// push value; (load) [rsp]; lea rsp, [rsp+8]
    fn loaded(value: u32, load: &[u8]) -> Vec<u8> {
        [&[0x68][..], &value.to_le_bytes(), load, &[0x48, 0x8d, 0x64, 0x24, 8]].concat()
    }

    #[test]
    fn a_difference_in_any_register_is_found() {
        const FLDCW: [u8; 3] = [0xd9, 0x2c, 0x24];
        const LDMXCSR: [u8; 4] = [0x0f, 0xae, 0x14, 0x24];
        planted(&loaded(0x37f, &FLDCW), &loaded(0xb7f, &FLDCW), "the x87 control word");
        planted(&loaded(0x1f80, &LDMXCSR), &loaded(0x1f81, &LDMXCSR), "MXCSR");
        planted(&loaded(0x1f80, &LDMXCSR), &loaded(0x7f80, &LDMXCSR), "MXCSR");
        // fincstp
        planted(&FNINIT, &[0xdb, 0xe3, 0xd9, 0xf7], "the x87 status word");
        // fld1; ffree st
        planted(&[0xdb, 0xe3, 0xd9, 0xe8], &[0xdb, 0xe3, 0xd9, 0xe8, 0xdd, 0xc0], "the x87 tag word");
        // fld1; fldz
        planted(&[0xdb, 0xe3, 0xd9, 0xe8], &[0xdb, 0xe3, 0xd9, 0xee], "st(0)");
        // pxor mm3, mm3; pcmpeqd mm3, mm3
        planted(&[0x0f, 0xef, 0xdb], &[0x0f, 0x76, 0xdb], "st(3)");
        // The same of xmm3.
        planted(&[0x66, 0x0f, 0xef, 0xdb], &[0x66, 0x0f, 0x76, 0xdb], "vector register 3 ");
        if has_512() {
            // vpxorq zmm19, zmm19, zmm19
            planted(&[0x90], &[0x62, 0xa1, 0xe5, 0x40, 0xef, 0xdb], "vector register 19 ");
            // kxorw k1, k1, k1; kxnorw k1, k1, k1
            planted(&[0xc5, 0xf4, 0x47, 0xc9], &[0xc5, 0xf4, 0x46, 0xc9], "mask register 1 ");
        }
        // inc r12
        planted(&[0x90], &[0x49, 0xff, 0xc4], "r12");
        // push rax
        planted(&[0x90], &[0x50], "rsp");
        // cld; std
        planted(&[0xfc], &[0xfd], "flags");
    }

    #[test]
    fn a_difference_in_memory_is_found() {
        // not byte [r8]; not byte [r9]; not byte [rsp]
        planted(&[0x90], &[0x41, 0xf6, 0x10], "private memory");
        planted(&[0x90], &[0x41, 0xf6, 0x11], "shared memory");
        planted(&[0x90], &[0xf6, 0x14, 0x24], "stack memory");
    }

    /// mov al, [at], or to there.
    fn moves(opcode: u8, at: u32) -> Vec<u8> {
        [&[opcode, 0x04, 0x25][..], &at.to_le_bytes()].concat()
    }

    #[test]
    fn another_fault_is_found() {
        // xor ecx, ecx; div ecx
        let division = [0x31, 0xc9, 0xf7, 0xf1];
        for (a, b) in [
            (&UD2[..], &division[..]),
            (&[0x90], &UD2),
            (&moves(0x8a, 0x1234), &moves(0x8a, 0x1238)),
            (&moves(0x8a, 0x1234), &moves(0x88, 0x1234)),
            // movaps xmm0, [rsp+1], which faults without an address
            (&moves(0x8a, 0), &[0x0f, 0x28, 0x44, 0x24, 1]),
        ] {
            assert_eq!(compared(a, a), None);
            let said = compared(a, b).unwrap_or_default();
            assert!(said.starts_with("the fault is"), "{said:?}");
        }
    }

    /// A register that the sequence overwrites may have been dead where it faults, and belongs to whoever needs one there.
    #[test]
    fn what_may_be_dead_at_a_fault_is_not_compared() {
        // mov ebx, 1; mov ebx, 2
        let (one, two) = ([0xbb, 1, 0, 0, 0], [0xbb, 2, 0, 0, 0]);
        assert!(compared(&one, &two).is_some_and(|said| said.starts_with("rbx")));
        assert_eq!(compared(&[&one[..], &UD2].concat(), &[&two[..], &UD2].concat()), None);
    }
}
