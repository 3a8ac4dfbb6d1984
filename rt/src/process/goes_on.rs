//! Where the program goes on when a stub has called a gate.
//!
//! Purpose: no frame describes stubs, so unwinders would stop there. Where handlers may run, gates lead them past it. Input: a gate's frame.
//! Output: the program's instruction that comes next, and its rsp, in the frame. **Invariant**: what is not known is not skipped: unwinders stop there.
//!
//! Source: `rewriter/SEQUENCES.md` (what stands behind the call of a gate).

use crate::process::frame::Frame;
use blizzard_contract::{GATE_GROUP, GATE_MISS, GATE_STRING, GATE_VSIB};

/// More instructions than there are behind any gate.
const LONGEST: usize = 24;

/// Leads unwinders past the stub that has called a gate, which takes `popped` bytes of arguments.
pub fn lead(frame: &mut Frame, popped: u64) {
    // SAFETY: the stub's code follows its call, and its stack lies behind the arguments.
    let (at, rsp) = unsafe { goes_on(frame.return_address, frame.callers_stack() + popped) };
    frame.lead_to(at, rsp);
}

/// What comes next in the program for a stub that goes on at `at` with the stack at `rsp`.
///
/// # Safety
/// Code stands there, and the stack is the stub's.
unsafe fn goes_on(mut at: u64, mut rsp: u64) -> (u64, u64) {
    for _ in 0..LONGEST {
        // SAFETY: behind a stub stand more code and the module's tables.
        let code = unsafe { (at as *const [u8; 12]).read_unaligned() };
        let (bytes, moved) = match code {
            // jmp: behind the stub.
            [0xe9, a, b, c, d, ..] => return ((at + 5).wrapping_add_signed(number([a, b, c, d])), rsp),
            [0xeb, a, ..] => return ((at + 2).wrapping_add_signed((a as i8).into()), rsp),
            // ret
            [0xc2 | 0xc3, a, b, ..] => {
                let arguments = if code[0] == 0xc2 { u16::from_le_bytes([a, b]) } else { 0 };
                // SAFETY: what has called this code has pushed where it goes on.
                (at, rsp) = (unsafe { (rsp as *const u64).read_unaligned() }, rsp + 8 + u64::from(arguments));
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

    const JUMP: [u8; 5] = [0xe9, 0x10, 0, 0, 0];

    /// Where a stub of these bytes goes on: from its first byte, and from where rsp is at first. `stack`: what lies there.
    fn of(stub: &[u8], stack: &[u64]) -> (i64, i64) {
        let (code, stack) = ([stub, &[0xcc; 16]].concat(), [stack, &[0; 4]].concat());
        let (at, rsp) = (code.as_ptr() as u64, stack.as_ptr() as u64);
        // SAFETY: the test's own code and stack.
        let (to, top) = unsafe { goes_on(at, rsp) };
        (to.wrapping_sub(at) as i64, top.wrapping_sub(rsp) as i64)
    }

    #[test]
    fn stubs_lead_to_the_program() {
        const GIVE_BACK: [u8; 8] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0];
        const NO_LIMIT: [u8; 12] = [0x48, 0xc7, 0x04, 0x25, 0, 0, 0, 0x10, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(of(&JUMP, &[]), (21, 0));
        assert_eq!(of(&[0xeb, 0xfe], &[]), (0, 0));
        assert_eq!(of(&[&GIVE_BACK[..], &JUMP].concat(), &[]), (8 + 21, 128));
        assert_eq!(of(&[&GIVE_BACK[..], &NO_LIMIT, &JUMP].concat(), &[]), (20 + 21, 128));
        // What saves a register: pop rcx; pop r9.
        assert_eq!(of(&[&[0x59, 0x41, 0x59][..], &JUMP].concat(), &[]), (3 + 21, 16));
    }

    #[test]
    fn shared_code_leads_to_the_stub_that_has_called_it() {
        let stub = JUMP;
        let code = [0xc2, 0x80, 0];
        let (at, rsp) = (stub.as_ptr() as u64 + 21, 8 + 128);
        let stack = [stub.as_ptr() as u64, 0];
        let (to, top) = of(&code, &stack);
        assert_eq!(top, rsp);
        // The distance is from the shared code.
        assert_ne!(to, 0);
        let shared = [&code[..], &[0xcc; 16]].concat();
        // SAFETY: the test's own code and stack.
        assert_eq!(unsafe { goes_on(shared.as_ptr() as u64, stack.as_ptr() as u64) }.0, at);
    }

    #[test]
    fn a_stub_may_call_a_second_gate() {
        // lea rsp, [rsp - 128]; lea rdx, [rip]; push rdx; call [GATE_GROUP]; lea rsp, [rsp + 128].
        let slot = (GATE_GROUP as u32).to_le_bytes();
        let parts: [&[u8]; 6] = [
            &[0x48, 0x8d, 0x64, 0x24, 0x80, 0x48, 0x8d, 0x15, 0, 0, 0, 0, 0x52],
            &[0xff, 0x14, 0x25],
            &slot,
            &[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0],
            &JUMP,
            &[],
        ];
        assert_eq!(of(&parts.concat(), &[]), (28 + 21, 0));
    }

    #[test]
    fn what_is_not_known_is_not_skipped() {
        assert_eq!(of(&[0x0f, 0x05], &[]), (0, 0));
        assert_eq!(of(&[0xf8, 0xff, 0x14, 0x25, 0, 0, 0, 0], &[]), (1, 0));
    }
}
