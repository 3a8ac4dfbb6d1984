//! The Rust half of `GATE_STRING`.
//!
//! Purpose: [`crate::gates::string_steps`] performs the instruction piece by piece. The program must not see that it was not executed where it stands: an operand that is
//! private, and not mapped, raises a signal in the middle of a piece, whose handler finds the registers as the instruction leaves them when it is
//! interrupted, and the instruction's own address; when it returns there, what the instruction still has to do is checked anew ([`crate::process::resume`]).
//! Input: the gate's frame; the context of a signal. Output: changed registers.
//! **Invariants**: where nothing can be lost, that is, with one node and without
//! `tempest.h`, the program executes its own instruction.
//! Source: SDM volume 2 (REP: what a repeated instruction leaves when it faults; the flags are those from before it).

use crate::gates::notes::note_for_handlers;
use crate::gates::string_steps::{self, Blocks, StringRegs};
use crate::memory::access_control::program::{self, UNTESTED_FAULTS};
use crate::node::access::Lane;
use crate::node::user_handlers;
use crate::process::accesses;
use crate::process::frame::{Frame, RAX, RCX, RDI, RSI};
use crate::process::process;
use crate::process::string_piece::{PIECE, instruction_of};
use crate::process::tags;
use crate::system_calls::execution::put_off;
use crate::tempest::owner;
use blizzard_contract::{Counter, string_desc};
use core::sync::atomic::{Ordering, compiler_fence};

/// Shared memory as the string gate uses it.
struct NodeBlocks<const WATCHED: bool> {
    frame: *mut Frame,
    vectors: u64,
    /// This thread is the one that may lose blocks.
    noted: bool,
}

impl<const WATCHED: bool> Blocks for NodeBlocks<WATCHED> {
    fn accessible(&self, addr: u64, store: bool) -> bool {
        if WATCHED { tags::block_accessible(addr, store) } else { tags::code_allows(addr, store) }
    }

    fn runtime_address(&self, addr: u64) -> u64 {
        program::runtime_address(addr) as u64
    }

    fn acquire(&mut self, addr: u64, bytes: u64, store: bool) {
        accesses::require(addr, bytes, store, false);
    }

    fn acquire_both(&mut self, addrs: [u64; 2], bytes: u64, store: bool) {
        let lanes = addrs.map(|addr| Lane { addr, bytes, store, masked: false });
        match addrs.map(program::in_segment) {
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

/// The Rust half. `WATCHED`: what the instruction has touched is looked at. `vectors`: where xmm0-15 are saved. True: the program executes its own instruction, which stands at the frame's return address.
pub extern "C" fn on_string<const WATCHED: bool>(frame: &mut Frame, vectors: u64) -> bool {
    tags::count(Counter::StringCalls);
    let mut desc = frame.args[0] as u32;
    if process::nodes() == 1 && !user_handlers::is_active() {
        if let Some(instruction) = instruction_of(frame.return_address) {
            frame.return_address = instruction;
            return true;
        }
        // Everything is accessible all the time: one real instruction does it.
        desc &= !(string_desc::CHECK_LOADS | string_desc::CHECK_STORES);
    } else if UNTESTED_FAULTS {
        // What is not tested would fault where the program stands; the gate does not.
        desc |= string_desc::CHECK_LOADS | string_desc::CHECK_STORES;
    }
    let mut regs = StringRegs {
        rax: frame.gpr[RAX],
        rcx: frame.gpr[RCX],
        rsi: frame.gpr[RSI],
        rdi: frame.gpr[RDI],
        rflags: frame.rflags,
    };
    note_for_handlers(frame, 8);
    let noted = process::nodes() > 1 || owner::is_own_thread();
    let before = regs;
    let mut blocks = NodeBlocks::<WATCHED> { frame: &raw mut *frame, vectors, noted };
    // SAFETY: the program executes this instruction with these registers; `NodeBlocks` grants what it touches.
    unsafe { string_steps::perform(desc, &mut regs, &mut blocks) };
    if WATCHED {
        // Behind the instruction's first byte: behind the gate is what follows it.
        let place = instruction_of(frame.return_address).map_or(frame.return_address, |at| at + 1);
        for lane in string_steps::touched(desc, &before, &regs) {
            process::watch(place, lane, false);
        }
    }
    frame.gpr[RAX] = regs.rax;
    frame.gpr[RCX] = regs.rcx;
    frame.gpr[RSI] = regs.rsi;
    frame.gpr[RDI] = regs.rdi;
    frame.rflags = regs.rflags;
    put_off::keep_ringing();
    false
}
