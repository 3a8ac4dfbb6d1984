//! How rewritten code enters the runtime: gate pointers, and the descriptors that it hands over.
//!
//! Rewritten code reaches the runtime through 8-byte pointers in the *private context page*, with
//! `call qword ptr [disp32]`, so that no register is needed and any module at any load address can do it. A gate
//! * runs on the caller's stack, which the caller has first moved below the red zone (`lea rsp,[rsp-128]`);
//! * preserves every general register, the direction flag, all status flags, x87 and all vector and mask registers
//!   (the runtime is compiled for baseline SSE2, so saving xmm0-15 with legacy moves keeps upper halves intact);
//! * pops its own stack arguments (`ret 8*n`);
//! * assumes nothing about stack alignment or the direction flag.
//!
//! [`GATE_STRING`] is the exception: it *performs* the string instruction, so rsi, rdi, rcx, rax and the status flags
//! change exactly as that instruction changes them; or it sends the program to the instruction itself, when all of it may be executed there.
//!
//! Source: design section 5 (checks).

use crate::addresses::CONTEXT_PRIVATE;

/// Gate pointers in the private context page.
pub const GATE_MISS: u64 = CONTEXT_PRIVATE;
/// See [`GATE_MISS`]. No arguments.
pub const GATE_POLL: u64 = CONTEXT_PRIVATE + 8;
/// Performs a string instruction. One stack argument: [`string_desc`] bits. Behind the call stand the bytes of [`STRING_TAIL`] and a rel32, which lead behind the instruction.
pub const GATE_STRING: u64 = CONTEXT_PRIVATE + 16;
/// Makes the blocks of all active lanes of a gather or scatter accessible. One stack argument: address of a [`VsibDesc`].
pub const GATE_VSIB: u64 = CONTEXT_PRIVATE + 24;
/// Executes the program's system call. Entered by a jump, not a call, with rcx = the address behind the `syscall` instruction that
/// the program shall continue at, and everything else as that instruction expects it. As `syscall` does, it clobbers rcx and
/// r11 and returns its result in rax; no flag and nothing on the stack changes. The bytes before the continuation address are the
/// `syscall` instruction itself, which the runtime may send the program to.
pub const GATE_SYSCALL: u64 = CONTEXT_PRIVATE + 32;
/// Makes several ranges accessible at once: the miss of a check behind which others still count. One stack argument: address of the
/// first [`GroupRange`] of a chain.
pub const GATE_GROUP: u64 = CONTEXT_PRIVATE + 40;
/// Ends the run because rsp leads into the window of the segment. Entered by a jump, with rax = an address in the new code of the function
/// that has set it so. Nothing lies on that stack.
pub const GATE_STACK: u64 = CONTEXT_PRIVATE + 48;
/// u32: 1 where nothing is ever inaccessible, so that gathers and scatters need no look: in a run of one node (or not launched) whose program has not started
/// `tempest.h`; else 2 or more.
pub const CTX_NODES: u64 = CONTEXT_PRIVATE + 64;
/// u32: this node's number.
pub const CTX_NODE: u64 = CONTEXT_PRIVATE + 68;

/// The descriptor of [`GATE_MISS`], pushed as a sign-extended imm32 *after* the address:
/// at gate entry `[rsp]` = return address, `[rsp+8]` = descriptor, `[rsp+16]` = address of the first byte accessed.
/// On return every block of `[addr, addr+size)` has a tag that allows the access. `ret 16`.
pub mod miss_desc {
    /// Bits 0..16: bytes accessed. 0xffff: the XSAVE area that XCR0 describes.
    pub const SIZE_MASK: u32 = 0xffff;
    pub const SIZE_XSAVE: u32 = 0xffff;
    pub const LOAD: u32 = 1 << 16;
    pub const STORE: u32 = 1 << 17;
    /// The instruction may leave some of the bytes alone (vmaskmov, masked AVX-512, maskmovdqu): a block outside
    /// allocated shared memory is then not an error.
    pub const MASKED: u32 = 1 << 18;
}

/// Bits of the descriptor of [`GATE_STRING`].
pub mod string_desc {
    pub const OP_MASK: u32 = 7;
    pub const MOVS: u32 = 0;
    pub const STOS: u32 = 1;
    pub const LODS: u32 = 2;
    pub const SCAS: u32 = 3;
    pub const CMPS: u32 = 4;
    /// Bits 3..5: log2 of the element's bytes.
    pub const SIZE_SHIFT: u32 = 3;
    /// Bits 5..7: 0 no prefix, 1 rep/repe, 2 repne.
    pub const REP_SHIFT: u32 = 5;
    /// Check the tags of what is read / written (cleared by `--checks stores` / `loads`).
    pub const CHECK_LOADS: u32 = 1 << 7;
    pub const CHECK_STORES: u32 = 1 << 8;
}

/// What [`GATE_VSIB`] needs to compute the lanes' addresses: `base + sext(index[lane]) * scale + disp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VsibDesc {
    pub disp: i32,
    /// General register number 0..15 in encoding order (rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8..); 16: none.
    /// When it is rsp, its value is the one before the stub moved rsp, that is, [`VsibDesc::rsp_moved`] bytes higher than at the push.
    pub base: u8,
    /// Vector register number 0..31.
    pub index: u8,
    /// Bytes of one index element: 4 or 8.
    pub index_bytes: u8,
    /// Bytes moved for one lane: 4 or 8.
    pub elem_bytes: u8,
    pub lanes: u8,
    /// 1, 2, 4, 8.
    pub scale: u8,
    /// 0: sign bits of the elements (of `elem_bytes`) of vector register `mask`; 1: bits of mask register `mask`; 2: all lanes.
    pub mask_kind: u8,
    pub mask: u8,
    /// 1 load, 2 store.
    pub access: u8,
    /// Bytes by which the stub lowered rsp before the gate was called, arguments and return address not counted.
    pub rsp_moved: u8,
    pub _pad: [u8; 2],
}

/// One range of a chain that [`GATE_GROUP`] makes accessible: `base + index * scale + disp` with the program's register values.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupRange {
    pub disp: i32,
    /// As [`miss_desc`]; the size is at most 64 bytes.
    pub desc: u32,
    /// General register numbers in encoding order, never rsp; `index` 16: none.
    pub base: u8,
    pub index: u8,
    /// 1, 2, 4, 8.
    pub scale: u8,
    /// 1: another range follows.
    pub more: u8,
    pub _pad: u32,
}

/// What stands behind the call of [`GATE_STRING`]: `lea rsp, [rsp + 128]`, and a `jmp` but for its rel32.
pub const STRING_TAIL: [u8; 9] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0, 0xe9];
/// Most ranges of one chain.
pub const GROUP_RANGES: usize = 16;
/// Bytes of the sequence that enters [`GATE_SYSCALL`]: `lea rcx, [behind]`, `jmp [GATE_SYSCALL]`, `syscall`. The program goes back to its
/// beginning where a call is prepared again.
pub const SYSCALL_SEQUENCE_BYTES: u64 = 7 + 7 + 2;

const _: () = assert!(size_of::<VsibDesc>() == 16 && size_of::<GroupRange>() == 16);

/// More instructions than there are behind any gate.
const LONGEST: usize = 24;

/// What comes next in the program for a stub that goes on at `at`, behind the call of a gate, with the stack at `rsp`: where, and with which rsp. `code`: the
/// bytes at an address, `word`: what lies on the stack. What is not known is not skipped.
///
/// Source: `rewriter/SEQUENCES.md` (what stands behind the call of a gate).
pub fn goes_on(mut at: u64, mut rsp: u64, code: impl Fn(u64) -> [u8; 12], word: impl Fn(u64) -> u64) -> (u64, u64) {
    for _ in 0..LONGEST {
        let instruction = code(at);
        let (bytes, moved) = match instruction {
            // jmp: behind the stub.
            [0xe9, a, b, c, d, ..] => return ((at + 5).wrapping_add_signed(number([a, b, c, d])), rsp),
            [0xeb, a, ..] => return ((at + 2).wrapping_add_signed((a as i8).into()), rsp),
            // ret
            [0xc2 | 0xc3, a, b, ..] => {
                let arguments = if instruction[0] == 0xc2 { u16::from_le_bytes([a, b]) } else { 0 };
                (at, rsp) = (word(rsp), rsp + 8 + u64::from(arguments));
                continue;
            }
            // lea rsp, [rsp + n]; add rsp, n
            [0x48, 0x8d, 0x64, 0x24, n, ..] => (5, (n as i8).into()),
            [0x48, 0x8d, 0xa4, 0x24, a, b, c, d, ..] => (8, number([a, b, c, d])),
            [0x48, 0x83, 0xc4, n, ..] => (4, (n as i8).into()),
            // push, pop
            [0x50..=0x57, ..] => (1, -8),
            [0x41, 0x50..=0x57, ..] => (2, -8),
            [0x58..=0x5f, ..] => (1, 8),
            [0x41, 0x58..=0x5f, ..] => (2, 8),
            // xchg [rsp], rax; lea s, [rip + n]; mov s, [rsp + n]
            [0x48, 0x87, 0x04, 0x24, ..] => (4, 0),
            [0x48 | 0x4c, 0x8d, m, ..] if m & 0xc7 == 0x05 => (7, 0),
            [0x48 | 0x4c, 0x8b, m, 0x24, ..] if m & 0xc7 == 0x44 => (5, 0),
            // clc; mov qword [n], none
            [0xf8, ..] => (1, 0),
            [0x48, 0xc7, 0x04, 0x25, ..] => (12, 0),
            // Another gate.
            [0xff, 0x14, 0x25, a, b, c, d, ..] => match popped(u32::from_le_bytes([a, b, c, d]).into()) {
                Some(popped) => (7, popped),
                None => break,
            },
            _ => break,
        };
        (at, rsp) = (at + bytes, rsp.wrapping_add_signed(moved));
    }
    (at, rsp)
}

fn number(bytes: [u8; 4]) -> i64 {
    i32::from_le_bytes(bytes).into()
}

/// The bytes of arguments that the gate takes whose address stands at `slot`.
fn popped(slot: u64) -> Option<i64> {
    match slot {
        GATE_MISS => Some(16),
        GATE_STRING | GATE_VSIB | GATE_GROUP => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUB: u64 = 0x1000;
    const SHARED: u64 = 0x2000;
    const STACK: u64 = 0x9000;
    const JUMP: [u8; 5] = [0xe9, 0x10, 0, 0, 0];

    /// Where a stub of these bytes goes on: from its first byte, and from where rsp is at first. `shared`: other code, `from`: which of both is first.
    fn walked(stub: &[u8], shared: &[u8], from: u64) -> (i64, i64) {
        let code = |at: u64| {
            let (begin, bytes) = if at < SHARED { (STUB, stub) } else { (SHARED, shared) };
            std::array::from_fn(|k| bytes.get((at - begin) as usize + k).copied().unwrap_or(0xcc))
        };
        // What has called the shared code.
        let word = |at: u64| if at == STACK { STUB } else { 0 };
        let (to, top) = goes_on(from, STACK, code, word);
        (to.wrapping_sub(STUB) as i64, top.wrapping_sub(STACK) as i64)
    }

    fn of(stub: &[u8]) -> (i64, i64) {
        walked(stub, &[], STUB)
    }

    const GIVE_BACK: [u8; 8] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0];

    #[test]
    fn stubs_lead_to_the_program() {
        const NO_LIMIT: [u8; 12] = [0x48, 0xc7, 0x04, 0x25, 0, 0, 0, 0x10, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(of(&JUMP), (21, 0));
        assert_eq!(of(&[0xeb, 0xfe]), (0, 0));
        assert_eq!(of(&[&GIVE_BACK[..], &JUMP].concat()), (8 + 21, 128));
        assert_eq!(of(&[&GIVE_BACK[..], &NO_LIMIT, &JUMP].concat()), (20 + 21, 128));
        // What saves a register: pop rcx; pop r9.
        assert_eq!(of(&[&[0x59, 0x41, 0x59][..], &JUMP].concat()), (3 + 21, 16));
    }

    #[test]
    fn shared_code_leads_to_the_stub_that_has_called_it() {
        assert_eq!(walked(&JUMP, &[0xc2, 0x80, 0], SHARED), (21, 8 + 128));
        assert_eq!(walked(&JUMP, &[0x59, 0xc3], SHARED), (-(STUB as i64), 8 + 8), "the word behind");
    }

    #[test]
    fn a_stub_may_call_a_second_gate() {
        // lea rsp, [rsp - 128]; lea rdx, [rip]; push rdx; call [GATE_GROUP]; lea rsp, [rsp + 128].
        let slot = (GATE_GROUP as u32).to_le_bytes();
        let parts: [&[u8]; 5] = [
            &[0x48, 0x8d, 0x64, 0x24, 0x80, 0x48, 0x8d, 0x15, 0, 0, 0, 0, 0x52],
            &[0xff, 0x14, 0x25],
            &slot,
            &GIVE_BACK,
            &JUMP,
        ];
        assert_eq!(of(&parts.concat()), (28 + 21, 0));
    }

    #[test]
    fn what_is_not_known_is_not_skipped() {
        assert_eq!(of(&[0x0f, 0x05]), (0, 0));
        assert_eq!(of(&[0xf8, 0xff, 0x14, 0x25, 0, 0, 0, 0]), (1, 0));
    }
}
