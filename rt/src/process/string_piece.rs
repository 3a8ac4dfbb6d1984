//! The piece of a string instruction that the runtime executes in the program's place.
//!
//! Purpose: the program must not see that the instruction was not executed where it stands: an operand that is private, and not mapped, raises a signal in
//! the middle of a piece, whose handler finds the registers as the instruction leaves them when it is interrupted, and the instruction's own address.
//! Input: the gate's frame; the context of a signal. Output: a changed context.
//! **Invariant**: [`PIECE`] describes a piece only while that is executed, on the thread that may lose blocks.

use crate::kernel::owned::per_thread;
use crate::kernel::ucontext::{GREGS, REG_EFL, REG_RAX, REG_RCX, REG_RDI, REG_RIP, REG_RSI, REG_RSP, Ucontext};
use crate::libraries::modules::MODULES;
use crate::memory::access_control::program::program_address;
use crate::process::frame::{Frame, RED_ZONE};
use blizzard_contract::{self as contract, string_desc};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The piece that is being executed.
pub struct StringPiece {
    /// The gate's frame; null: there is none.
    pub frame: AtomicPtr<Frame>,
    /// Where the gate has saved xmm0-15.
    pub vectors: AtomicU64,
    /// Elements that were left when it began, and those of the piece.
    pub left: AtomicU64,
    pub elements: AtomicU64,
}

per_thread! {
    pub static PIECE: StringPiece = StringPiece {
        frame: AtomicPtr::new(core::ptr::null_mut()),
        vectors: AtomicU64::new(0),
        left: AtomicU64::new(0),
        elements: AtomicU64::new(0),
    };
}

/// Bytes of xmm0-15.
const VECTOR_BYTES: usize = 256;

/// The string instruction whose stub goes on at `at` when the gate has performed it.
pub fn instruction_of(at: u64) -> Option<u64> {
    /// Longest instruction.
    const LONGEST: u64 = 15;
    const TAIL: usize = contract::STRING_TAIL.len();
    // SAFETY: the gate was called from a stub, in which the rewriter puts so much behind the call.
    let tail = unsafe { (at as *const [u8; TAIL + 4]).read_unaligned() };
    let distance = tail.strip_prefix(&contract::STRING_TAIL)?.first_chunk::<4>()?;
    let behind = (at + TAIL as u64 + 4).wrapping_add_signed(i32::from_le_bytes(*distance).into());
    MODULES.access_before(behind).filter(|access| behind - access <= LONGEST)
}

/// Makes the context of a signal that a piece of a string instruction has raised that of the instruction itself.
pub fn leave(context: &mut Ucontext) {
    let frame = PIECE.frame.swap(core::ptr::null_mut(), Ordering::Relaxed);
    if frame.is_null() {
        return;
    }
    // SAFETY: the gate's frame is on the stack as long as the piece is executed.
    let frame = unsafe { &*frame };
    let Some(instruction) = instruction_of(frame.return_address) else { return };
    const RSP: usize = 4;
    let g = &mut context.gregs;
    let (rax, rcx, rsi, rdi) = (g[REG_RAX], g[REG_RCX], g[REG_RSI], g[REG_RDI]);
    for (place, value) in GREGS.iter().zip(frame.gpr).enumerate().filter(|(r, _)| *r != RSP).map(|(_, pair)| pair) {
        g[*place] = value;
    }
    (g[REG_RAX], g[REG_RSI], g[REG_RDI]) = (rax, program_address(rsi), program_address(rdi));
    if frame.args[0] as u32 >> string_desc::REP_SHIFT & 3 != 0 {
        g[REG_RCX] = PIECE.left.load(Ordering::Relaxed) - (PIECE.elements.load(Ordering::Relaxed) - rcx);
    }
    g[REG_EFL] = g[REG_EFL] & !PROGRAM_FLAGS | frame.rflags & PROGRAM_FLAGS;
    g[REG_RSP] = &raw const frame.args[1] as u64 + RED_ZONE;
    g[REG_RIP] = instruction;
    // SAFETY: the kernel's frame holds the state of the vector registers; the gate has saved the program's.
    unsafe { set_vectors(context.fpstate, PIECE.vectors.load(Ordering::Relaxed)) };
}

/// CF, PF, AF, ZF, SF, DF, OF.
const PROGRAM_FLAGS: u64 = 0xcd5;

/// Puts xmm0-15 into the state that a signal's context has of the vector registers. Source: SDM volume 1, 10.5.1 and 13.4; Linux
/// `arch/x86/include/uapi/asm/sigcontext.h`.
///
/// # Safety
/// `state` is null or such a state; 256 bytes can be read from `vectors`.
unsafe fn set_vectors(state: u64, vectors: u64) {
    const XMM: u64 = 160;
    const MAGIC_AT: u64 = 464;
    const MAGIC: u32 = 0x4650_5853;
    const XSTATE_BV: u64 = 512;
    const SSE: u64 = 2;
    if state == 0 {
        return;
    }
    // SAFETY: the legacy area has 512 bytes; the header follows it where the magic number says so.
    unsafe {
        core::ptr::copy_nonoverlapping(vectors as *const u8, (state + XMM) as *mut u8, VECTOR_BYTES);
        if ((state + MAGIC_AT) as *const u32).read() == MAGIC {
            *((state + XSTATE_BV) as *mut u64) |= SSE;
        }
    }
}
