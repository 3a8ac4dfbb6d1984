//! The Rust half of `GATE_STRING`.
//!
//! Purpose: [`crate::gates::string_steps`] performs the instruction piece by piece. The program must not see that it was not executed where it stands: an operand that is
//! private, and not mapped, raises a signal in the middle of a piece, whose handler finds the registers as the instruction leaves them when it is
//! interrupted, and the instruction's own address; when it returns there, what the instruction still has to do is checked anew ([`crate::gates::resume`]).
//! Input: the gate's frame; the context of a signal. Output: changed registers.
//! **Invariants**: [`PIECE`] describes a piece only while that is executed, on the thread that may lose blocks. Where nothing can be lost, that is, with one node and without
//! `tempest.h`, the program executes its own instruction.
//! Source: SDM volume 2 (REP: what a repeated instruction leaves when it faults; the flags are those from before it).

use super::entries::{Frame, RAX, RCX, RDI, RED_ZONE, RSI};
use crate::gates::resume::GREGS;
use crate::gates::string_steps::{self, Blocks, StringRegs};
use crate::gates::trap::{REG_EFL, REG_RAX, REG_RCX, REG_RDI, REG_RIP, REG_RSI, REG_RSP, Ucontext};
use crate::libraries::modules::MODULES;
use crate::node::access::Lane;
use crate::node::user_handlers;
use crate::process::accesses;
use crate::process::process;
use crate::process::tags;
use crate::system_calls::execution::put_off;
use crate::tempest::faults;
use crate::tempest::owner;
use blizzard_contract::{self as contract, Counter, string_desc};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering, compiler_fence};

/// The piece that is being executed.
struct Piece {
    /// The gate's frame; null: there is none.
    frame: AtomicPtr<Frame>,
    /// Where the gate has saved xmm0-15.
    vectors: AtomicU64,
    /// Elements that were left when it began, and those of the piece.
    left: AtomicU64,
    elements: AtomicU64,
}

static PIECE: Piece = Piece {
    frame: AtomicPtr::new(core::ptr::null_mut()),
    vectors: AtomicU64::new(0),
    left: AtomicU64::new(0),
    elements: AtomicU64::new(0),
};

/// Bytes of xmm0-15.
const VECTOR_BYTES: usize = 256;

/// Shared memory as the string gate uses it.
struct NodeBlocks {
    frame: *mut Frame,
    vectors: u64,
    /// This thread is the one that may lose blocks.
    noted: bool,
}

impl Blocks for NodeBlocks {
    fn accessible(&self, addr: u64, store: bool) -> bool {
        tags::block_accessible(addr, store)
    }

    fn acquire(&mut self, addr: u64, bytes: u64, store: bool) {
        accesses::require(addr, bytes, store, false);
    }

    fn acquire_both(&mut self, addrs: [u64; 2], bytes: u64, store: bool) {
        let lanes = addrs.map(|addr| Lane { addr, bytes, store, masked: false });
        match addrs.map(tags::in_segment) {
            [true, true] => accesses::require_lanes(&lanes),
            [true, false] => accesses::require_lanes(&lanes[..1]),
            [false, true] => accesses::require_lanes(&lanes[1..]),
            [false, false] => {}
        }
    }

    fn executes(&mut self, left: u64, chunk: u64) {
        if self.noted {
            PIECE.vectors.store(self.vectors, Ordering::Relaxed);
            PIECE.left.store(left, Ordering::Relaxed);
            PIECE.elements.store(chunk, Ordering::Relaxed);
            // Last: a signal on this very thread finds all or nothing.
            compiler_fence(Ordering::SeqCst);
            PIECE.frame.store(self.frame, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
        }
    }

    fn executed(&mut self) {
        if self.noted {
            compiler_fence(Ordering::SeqCst);
            PIECE.frame.store(core::ptr::null_mut(), Ordering::Relaxed);
        }
    }
}

/// The Rust half. `vectors`: where xmm0-15 are saved. True: the program executes its own instruction, which stands at the frame's return address.
pub(super) extern "C" fn on_string(frame: &mut Frame, vectors: u64) -> bool {
    tags::count(Counter::StringCalls);
    faults::note_pc(frame.return_address);
    let mut desc = frame.args[0] as u32;
    if process::nodes() == 1 && !user_handlers::is_active() {
        if let Some(instruction) = instruction_of(frame.return_address) {
            frame.return_address = instruction;
            return true;
        }
        // Everything is accessible all the time: one real instruction does it.
        desc &= !(string_desc::CHECK_LOADS | string_desc::CHECK_STORES);
    }
    let mut regs = StringRegs {
        rax: frame.gpr[RAX],
        rcx: frame.gpr[RCX],
        rsi: frame.gpr[RSI],
        rdi: frame.gpr[RDI],
        rflags: frame.rflags,
    };
    let noted = process::nodes() > 1 || owner::is_own_thread();
    let mut blocks = NodeBlocks { frame: &raw mut *frame, vectors, noted };
    // SAFETY: the program executes this instruction with these registers; `NodeBlocks` grants what it touches.
    unsafe { string_steps::perform(desc, &mut regs, &mut blocks) };
    frame.gpr[RAX] = regs.rax;
    frame.gpr[RCX] = regs.rcx;
    frame.gpr[RSI] = regs.rsi;
    frame.gpr[RDI] = regs.rdi;
    frame.rflags = regs.rflags;
    put_off::keep_ringing();
    false
}

/// The string instruction whose stub goes on at `at` when the gate has performed it.
fn instruction_of(at: u64) -> Option<u64> {
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
    (g[REG_RAX], g[REG_RSI], g[REG_RDI]) = (rax, rsi, rdi);
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
