//! Trap bytes that are hit again and again.
//!
//! Purpose: a trap costs as much as a thousand jumps. Input: the trap bytes that are hit. Output: how often each was, for the launcher; from [`OFTEN`] times on a
//! `jmp rel32` in place of the trap byte, to a few instructions of their own page that lead to the new code.
//! **Invariants**
//! * Of the jump's distance those bytes are chosen at which no instruction begins and nothing but a trap byte stands. All others stay: where an instruction
//!   begins its trap byte does, and who jumps there traps as before. The distance that comes out decides where the page must lie.
//!   Data that look like trap bytes do not follow there ([`contract::module_flags::JUMPS`]).
//! * The new code relies on nothing that [`crate::process::resume::reestablish`] would have to do, but for the limits of loops, which the page's code writes.
//! * The jump's first byte is written last, when every processor has seen the others.
//!
//! A refusal costs speed only. Source: the punned jumps of e9patch (Duck, Gao, Roychoudhury, PLDI 2020); SDM volume 3, 8.1.3 (cross-modifying code);
//! membarrier(2).

use crate::kernel::near;
use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use crate::libraries::modules::{Found, MODULES};
use crate::node::user_handlers;
use crate::process::{process, tags};
use blizzard_contract::{self as contract, SharedContext, TRAP_PLACES, TrapPlace};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// So many hits are taken before a jump is written.
const OFTEN: u32 = 100;
/// A place is looked for among so many.
const REACH: usize = 8;
/// Jumps of a process at most.
const JUMPS: usize = near::MOST;
/// Pages that are tried for one jump.
const TRIES: u64 = 64;
const PAGE: u64 = 4096;
const TRAP: u8 = 0xcc;
/// `jmp rel8`, whose distance may be what looks like a trap byte behind it.
const SHORT_JUMP: u8 = 0xeb;
const LONG_JUMP: u8 = 0xe9;
/// Its bytes.
const LONG: u64 = 5;

/// Where jumps have been written; 0: none yet.
static WRITTEN: PerProcess<[AtomicU64; JUMPS]> = PerProcess::new([const { AtomicU64::new(0) }; JUMPS]);
/// Somebody writes one.
static WRITING: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));

/// Counts a hit of the trap byte at `at`, whose instruction's new code is at `new`.
pub fn count(at: u64, new: u64) {
    let Some((name, new_offset)) = MODULES.trap_place(at, new).filter(|_| tags::counters_enabled()) else { return };
    let place = place_of(name, new_offset);
    if place.fetch_add(1, Ordering::Relaxed) + 1 != OFTEN || WRITING.swap(true, Ordering::Acquire) {
        return;
    }
    if write_jump(at, new).is_some() {
        place.fetch_or(TrapPlace::JUMP, Ordering::Relaxed);
    }
    WRITING.store(false, Ordering::Release);
}

/// The hits of the trap byte of that name. If there is no place left, it gets that of one which was hit least.
fn place_of(name: u64, new: u32) -> &'static AtomicU32 {
    // SAFETY: the page is mapped for the whole run, and everybody changes the words atomically.
    let word = |place: usize, offset: usize| unsafe {
        let places = contract::CONTEXT_SHARED + offset_of!(SharedContext, traps) as u64;
        AtomicU32::from_ptr((places as usize + place * size_of::<TrapPlace>() + offset) as *mut u32)
    };
    let hits = |place: usize| word(place, offset_of!(TrapPlace, hits));
    // SAFETY: as above; the word is aligned to eight bytes.
    let owner = |place| unsafe { AtomicU64::from_ptr(word(place, offset_of!(TrapPlace, name)).as_ptr().cast()) };
    let first = (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    let mut least = first % TRAP_PLACES;
    for place in (first..first + REACH).map(|k| k % TRAP_PLACES) {
        let found = owner(place).compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed);
        if found.is_ok() {
            word(place, offset_of!(TrapPlace, new)).store(new, Ordering::Relaxed);
        }
        if found.is_ok() || found == Err(name) {
            return hits(place);
        }
        if hits(place).load(Ordering::Relaxed) < hits(least).load(Ordering::Relaxed) {
            least = place;
        }
    }
    // Of two that do this at once one is told of under the other's name.
    owner(least).store(name, Ordering::Relaxed);
    word(least, offset_of!(TrapPlace, new)).store(new, Ordering::Relaxed);
    hits(least).store(0, Ordering::Relaxed);
    hits(least)
}

/// Writes a jump to `new` at the trap byte `at`, if it can.
fn write_jump(at: u64, new: u64) -> Option<()> {
    let relies =
        MODULES.moved_from(new).is_some() || MODULES.chain_at(new).is_some() || MODULES.check_of(new).is_some();
    if near::is_closed() || process::nodes() != 1 || user_handlers::is_active() || relies || !MODULES.takes_jumps(at) {
        return None;
    }
    // The byte in front belongs to the same page, too.
    if at.is_multiple_of(PAGE) || at % PAGE + LONG > PAGE {
        return None;
    }
    let free = WRITTEN.iter().find(|jump| jump.load(Ordering::Relaxed) == 0)?;
    if WRITTEN.iter().any(|jump| jump.load(Ordering::Relaxed).abs_diff(at) < LONG) {
        return None;
    }
    // SAFETY: code that has just been executed, of which the page is readable.
    let bytes = unsafe { ((at - 1) as *const [u8; 6]).read_unaligned() };
    let fixed = fixed_bytes(bytes, |k| matches!(MODULES.find(at + k), Found::Middle(_)))?;
    // Its processors are told, before anything is changed that only they could then see in parts.
    membarrier(MEMBARRIER_REGISTER)?;
    let way = way_to(at, new, fixed)?;
    let distance = (way.wrapping_sub(at + LONG) as u32).to_le_bytes();
    let page = at & !(PAGE - 1);
    let rx = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: code of a module, in the process's own copy; others may execute it meanwhile: they meet trap bytes, or the whole jump.
    unsafe {
        sys::mprotect(page, PAGE, rx | libc::PROT_WRITE).ok()?;
        for (k, byte) in distance.into_iter().enumerate().filter(|(k, _)| fixed[*k].is_none()) {
            ((at + 1) as *mut u8).add(k).write_volatile(byte);
        }
        let seen = membarrier(MEMBARRIER_SYNC);
        if seen.is_some() {
            (at as *mut u8).write_volatile(LONG_JUMP);
        }
        let _ = sys::mprotect(page, PAGE, rx);
        free.store(at, Ordering::Relaxed);
        seen
    }
}

/// Which bytes of the distance of a jump must stay what they are. `bytes`: those from the one in front of the jump on. `is_inside`: whether no instruction
/// begins so far behind the trap byte, where old code was.
fn fixed_bytes(bytes: [u8; 6], is_inside: impl Fn(u64) -> bool) -> Option<[Option<u8>; 4]> {
    if bytes[0] == SHORT_JUMP || bytes[1] != TRAP {
        return None;
    }
    // What follows something else than trap bytes may be the distance of another jump.
    let mut only_traps = true;
    Some(core::array::from_fn(|k| {
        let byte = bytes[k + 2];
        only_traps &= byte == TRAP;
        if only_traps && is_inside(k as u64 + 1) { None } else { Some(byte) }
    }))
}

/// Where a jump at `at` may lead whose distance has these bytes. What lies above may be the stack's to grow into, unless the program lies so low that nothing is below.
fn targets(at: u64, fixed: [Option<u8>; 4]) -> impl Iterator<Item = u64> {
    let is_low = at < 1 << 31;
    (0..TRIES).filter_map(move |k| {
        let chosen = (at ^ k).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let far = if is_low { 0x70 - (k as u8 & 31) } else { 0xf0 - (k as u8 & 63) };
        let byte = |n: usize| fixed[n].unwrap_or(if n == 3 { far } else { chosen[4 + n] });
        let distance = i32::from_le_bytes(core::array::from_fn(byte));
        let to = (at + LONG).checked_add_signed(distance.into())?;
        (is_low || distance < 0).then_some(to).filter(|to| *to >= PAGE)
    })
}

/// `mov qword [LIMIT_UP], 0; mov qword [LIMIT_DOWN], -1; jmp [rip]`, and the address.
fn way(new: u64) -> [u8; 38] {
    let mut code = [0; 38];
    for (k, (limit, none)) in
        [contract::LIMIT_UP, contract::LIMIT_DOWN].into_iter().zip(contract::NO_LIMITS).enumerate()
    {
        code[12 * k..][..4].copy_from_slice(&[0x48, 0xc7, 0x04, 0x25]);
        code[12 * k + 4..][..4].copy_from_slice(&(limit as u32).to_le_bytes());
        code[12 * k + 8..][..4].copy_from_slice(&(none as u32).to_le_bytes());
    }
    code[24..26].copy_from_slice(&[0xff, 0x25]);
    code[30..].copy_from_slice(&new.to_le_bytes());
    code
}

/// Makes the way to `new` where a jump with such a distance can lead; its address.
fn way_to(at: u64, new: u64, fixed: [Option<u8>; 4]) -> Option<u64> {
    let code = way(new);
    // A page that cannot be made executable stays as it is: nothing leads there.
    targets(at, fixed).find(|&to| {
        let page = to & !(PAGE - 1);
        let bytes = (to + code.len() as u64 - page).next_multiple_of(PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: pages that nobody else uses.
        unsafe {
            let made = match near::take(page, bytes) {
                true => sys::mprotect(page, bytes, rw).map(|()| page),
                false => sys::mmap(page, bytes, rw, flags, -1, 0),
            };
            if made != Ok(page) {
                return false;
            }
            (to as *mut [u8; 38]).write_unaligned(code);
            sys::mprotect(page, bytes, libc::PROT_READ | libc::PROT_EXEC).is_ok()
        }
    })
}

/// Lets all processors that run this process fetch its instructions anew.
const MEMBARRIER_SYNC: u64 = 1 << 5;
const MEMBARRIER_REGISTER: u64 = 1 << 6;

fn membarrier(command: u64) -> Option<()> {
    // SAFETY: no memory is touched.
    unsafe { sys::call(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) }.ok().map(drop)
}

const _: () = assert!(contract::LIMIT_DOWN < 1 << 31);

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const T: u8 = TRAP;

    #[test]
    fn where_instructions_begin_their_trap_bytes_stay() {
        // Instructions of one, two and two bytes.
        let begins = |k| k == 1 || k == 3;
        assert_eq!(fixed_bytes([0, T, T, T, T, T], |k| !begins(k)), Some([Some(T), None, Some(T), None]));
        // A springboard behind the second byte: its distance looks like trap bytes.
        assert_eq!(fixed_bytes([0, T, T, 0xe9, T, T], |_| true), Some([None, Some(0xe9), Some(T), Some(T)]));
        // The trap byte is the distance of a short jump in front of it.
        assert_eq!(fixed_bytes([SHORT_JUMP, T, T, T, T, T], |_| true), None);
        assert_eq!(fixed_bytes([0, 0x90, T, T, T, T], |_| true), None);
    }

    #[test]
    fn jumps_lead_where_their_bytes_say() {
        let at = 0x7fff_1234_5678u64;
        let fixed = [Some(T), None, None, Some(T)];
        let all: Vec<u64> = targets(at, fixed).collect();
        assert_eq!(all.len(), TRIES as usize);
        for to in &all {
            let bytes = (to.wrapping_sub(at + LONG) as u32).to_le_bytes();
            assert_eq!((bytes[0], bytes[3]), (T, T));
            assert!(at - to < 1 << 31);
        }
        // In front of a program that lies low nothing is; behind it there is.
        assert_eq!(targets(0x40_1000, fixed).count(), 0);
        assert!(
            targets(0x40_1000, [Some(T), None, Some(T), None])
                .all(|to| to > 0x40_1000 && to < contract::CONTEXT_SHARED)
        );
        assert!(targets(at, [Some(T), Some(T), Some(T), Some(1)]).next().is_none());
    }
}
