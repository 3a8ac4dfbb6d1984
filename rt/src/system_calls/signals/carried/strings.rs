//! String instructions, a piece at a time.
//!
//! Their destination takes no prefix. So the registers are made those of the alias, and the slot ends with a fault, at which they are made the
//! program's again. Input: the context in front of the instruction; the context that has left the slot. Output: changed registers. **Invariant**: [`PIECE`]
//! describes a piece as long as its slot is executed. What is left of the instruction is executed where it stands, and faults again.
//! Source: SDM volume 2 (REP, MOVS, STOS, LODS, SCAS, CMPS).

use crate::kernel::owned::per_thread;
use crate::kernel::ucontext::{REG_EFL, REG_RCX, REG_RDI, REG_RIP, REG_RSI, Ucontext};
use crate::memory::access_control::program::in_segment;
use crate::node::access::{LANE_BLOCKS, Lane};
use crate::system_calls::signals::carried::refused::CarryRefused;
use crate::system_calls::signals::carried::slots::CarrySlot;
use blizzard_contract::{BLOCK_BYTES, string_desc};
use core::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of an operand that a piece has: the blocks of both are granted at once.
pub const PIECE_BYTES: u64 = 512;
const _: () = assert!(2 * (PIECE_BYTES / BLOCK_BYTES + 1) <= LANE_BLOCKS as u64);
const DF: u64 = 1 << 10;
const ZF: u64 = 1 << 6;

/// The piece that is executed.
struct Piece {
    desc: AtomicU64,
    /// By how much the registers are higher than the program's.
    rsi: AtomicU64,
    rdi: AtomicU64,
    /// Elements of the instruction, and of the piece.
    left: AtomicU64,
    count: AtomicU64,
    /// Bytes of the instruction.
    bytes: AtomicU64,
}

per_thread! {
    static PIECE: Piece = Piece {
        desc: AtomicU64::new(0),
        rsi: AtomicU64::new(0),
        rdi: AtomicU64::new(0),
        left: AtomicU64::new(0),
        count: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
}

fn repeat(desc: u32) -> u32 {
    desc >> string_desc::REP_SHIFT & 3
}

/// Makes the registers those of a piece. `bytes`: of the instruction.
///
/// # Errors
/// No operand is in shared memory.
pub fn begin(
    context: &mut Ucontext,
    desc: u32,
    bytes: usize,
    distance: u64,
    grant: &mut dyn FnMut(&[Lane]),
) -> Result<(), CarryRefused> {
    let op = desc & string_desc::OP_MASK;
    let size = 1 << (desc >> string_desc::SIZE_SHIFT & 3);
    let g = &mut context.gregs;
    let left = if repeat(desc) == 0 { 1 } else { g[REG_RCX] };
    let count = left.min(PIECE_BYTES / size);
    let compares = matches!(op, string_desc::SCAS | string_desc::CMPS);
    let none = Lane { addr: 0, bytes: 0, store: false, masked: false };
    let (mut lanes, mut len) = ([none; 4], 0);
    let mut operand = |addr: u64, used: bool, store: bool| {
        if !used || !in_segment(addr) || count == 0 {
            return 0;
        }
        let first = if g[REG_EFL] & DF == 0 { addr } else { addr.wrapping_sub((count - 1) * size) };
        // A comparison may end before the others: they need not be there.
        lanes[len] = Lane { addr: first, bytes: count * size, store, masked: compares && count > 1 };
        len += 1;
        if compares && count > 1 {
            lanes[len] = Lane { addr, bytes: size, store, masked: false };
            len += 1;
        }
        distance
    };
    let rsi = operand(g[REG_RSI], matches!(op, string_desc::MOVS | string_desc::LODS | string_desc::CMPS), false);
    let rdi = operand(g[REG_RDI], op != string_desc::LODS, matches!(op, string_desc::MOVS | string_desc::STOS));
    if len == 0 {
        return Err(CarryRefused::OtherAddress);
    }
    grant(&lanes[..len]);
    PIECE.desc.store(desc.into(), Ordering::Relaxed);
    PIECE.rsi.store(rsi, Ordering::Relaxed);
    PIECE.rdi.store(rdi, Ordering::Relaxed);
    PIECE.left.store(left, Ordering::Relaxed);
    PIECE.count.store(count, Ordering::Relaxed);
    PIECE.bytes.store(bytes as u64, Ordering::Relaxed);
    g[REG_RSI] = g[REG_RSI].wrapping_add(rsi);
    g[REG_RDI] = g[REG_RDI].wrapping_add(rdi);
    if repeat(desc) != 0 {
        g[REG_RCX] = count;
    }
    Ok(())
}

/// Makes the registers the program's again. `executed`: the piece is over; else it was interrupted.
pub fn leave(context: &mut Ucontext, slot: &CarrySlot, executed: bool) {
    let g = &mut context.gregs;
    g[REG_RSI] = g[REG_RSI].wrapping_sub(PIECE.rsi.load(Ordering::Relaxed));
    g[REG_RDI] = g[REG_RDI].wrapping_sub(PIECE.rdi.load(Ordering::Relaxed));
    let desc = PIECE.desc.load(Ordering::Relaxed) as u32;
    let mut is_over = executed;
    if repeat(desc) != 0 {
        let rest = g[REG_RCX];
        g[REG_RCX] = PIECE.left.load(Ordering::Relaxed) - (PIECE.count.load(Ordering::Relaxed) - rest);
        let equal = g[REG_EFL] & ZF != 0;
        // A comparison is over at the first difference, or at the first match.
        let found = match desc & string_desc::OP_MASK {
            string_desc::SCAS | string_desc::CMPS => equal == (repeat(desc) == 2),
            _ => false,
        };
        is_over &= g[REG_RCX] == 0 || found;
    }
    g[REG_RIP] = slot.origin + if is_over { PIECE.bytes.load(Ordering::Relaxed) } else { 0 };
}
