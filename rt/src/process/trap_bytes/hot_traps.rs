//! Trap bytes that are hit again and again.
//!
//! Purpose: a trap costs as much as a thousand jumps. Input: the trap bytes that are hit. Output: how often each was, for the launcher; from [`OFTEN`] times on a
//! jump in place of the trap byte, to a few instructions of their own page that lead to the new code.
//!
//! | jump | when |
//! |---|---|
//! | `jmp rel32` in place of the trap byte | its distance reaches a page that can be had |
//! | `jmp rel8` there, to a `jmp rel32` within 128 bytes | else |
//!
//! **Invariants**
//! * Of a jump those bytes are chosen at which no instruction begins and nothing but a trap byte stands. All others stay: where an instruction
//!   begins its trap byte does, and who jumps there traps as before. The distance that comes out decides where the page must lie.
//!   Data that look like trap bytes do not follow there ([`contract::module_flags::JUMPS`]).
//! * All bytes of a jump lie on pages of old code, which are executable and not writable.
//! * What the program maps over a page that a jump leads to ends the jump first ([`leave`]). The heap has 256 MiB to grow into without one.
//! * The new code relies on nothing that [`crate::process::resume::reestablish`] would have to do, but for the limits of loops, which the page's code writes, and
//!   for another place to go on at, where it leads.
//! * A jump's first byte is written last, when every processor has seen the others; that of the trap byte's last of all.
//! * A process writes its own memory only. A forked child has a copy; a child of `vfork` writes for its parent, too, which waits.
//!
//! A refusal costs speed only, and is told of ([`TrapKept`]). Source: the punned jumps of e9patch (Duck, Gao, Roychoudhury, PLDI 2020); SDM volume 3, 8.1.3 (cross-modifying code);
//! membarrier(2).

use crate::kernel::near;
use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use crate::libraries::modules::{MODULES, OldAddress};
use crate::process::tags;
use crate::process::trap_bytes::filters;
use blizzard_contract::{self as contract, SharedContext, TRAP_PLACES, TrapKept, TrapPlace};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// So many hits are taken before a jump is written; of processes that count together each tries at a multiple.
const OFTEN: u32 = 100;
/// A place is looked for among so many.
const REACH: usize = 8;
/// Jumps of a process at most.
const JUMPS: usize = 2 * near::MOST;
/// Pages that are tried for one jump.
const TRIES: u64 = 64;
/// Short jumps that are tried.
const HOPS: usize = 16;
const PAGE: u64 = 4096;
/// `int3`.
pub const TRAP: u8 = 0xcc;
/// `jmp rel8`, whose distance may be what looks like a trap byte behind it.
const SHORT_JUMP: u8 = 0xeb;
const SHORT: usize = 2;
const LONG_JUMP: u8 = 0xe9;
const LONG: usize = 5;

/// The heap may grow so far. (It begins up to a gigabyte behind a fixed-address program.)
const HEAP: u64 = 256 << 20;

/// A jump that stands there; 0: none yet.
struct Written {
    at: AtomicU64,
    /// Where it leads, by way of another one or not; 0: nobody comes there.
    way: AtomicU64,
    /// What was in place of its first byte.
    begin: AtomicU8,
}

static WRITTEN: PerProcess<[Written; JUMPS]> = PerProcess::new(
    [const { Written { at: AtomicU64::new(0), way: AtomicU64::new(0), begin: AtomicU8::new(TRAP) } }; JUMPS],
);
/// Somebody writes one.
static WRITING: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));

/// Counts a hit of the trap byte at `at`, whose instruction's new code is at `new`. `begin`: what stands in place of trap bytes where instructions begin.
pub fn count(at: u64, new: u64, begin: u8) {
    let Some((name, new_offset)) = MODULES.trap_place(at, new).filter(|_| tags::counters_enabled()) else { return };
    let place = place_of(name, new_offset);
    let before = place.load(Ordering::Relaxed);
    if before & TrapPlace::HITS == TrapPlace::HITS {
        return;
    }
    let hits = place.fetch_add(1, Ordering::Relaxed) + 1;
    // Another process may be free of a filter.
    let is_refused = ![0, TrapKept::Filter.bits()].contains(&(hits & TrapPlace::KEPT));
    if is_refused || !(hits & TrapPlace::HITS).is_multiple_of(OFTEN) || WRITING.swap(true, Ordering::Acquire) {
        return;
    }
    let outcome = match write_jump(at, new, begin) {
        Ok(()) => TrapPlace::JUMP,
        // Another process has a jump.
        Err(_) if hits & TrapPlace::JUMP != 0 => 0,
        Err(why) => why.bits(),
    };
    place.fetch_and(!TrapPlace::KEPT, Ordering::Relaxed);
    place.fetch_or(outcome, Ordering::Relaxed);
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
        if hits(place).load(Ordering::Relaxed) & TrapPlace::HITS < hits(least).load(Ordering::Relaxed) & TrapPlace::HITS
        {
            least = place;
        }
    }
    // Of two that do this at once one is told of under the other's name.
    owner(least).store(name, Ordering::Relaxed);
    word(least, offset_of!(TrapPlace, new)).store(new, Ordering::Relaxed);
    hits(least).store(0, Ordering::Relaxed);
    hits(least)
}

/// Writes a jump at the trap byte `at`, if it can, to `new` or to where a context goes on that continues there.
#[inline(never)]
fn write_jump(at: u64, new: u64, begin: u8) -> Result<(), TrapKept> {
    if !filters::allow_membarrier() {
        return Err(TrapKept::Filter);
    }
    if !MODULES.takes_jumps(at) {
        return Err(TrapKept::Data);
    }
    let new = MODULES.moved_from(new).unwrap_or(new);
    let new = MODULES.check_of(new).unwrap_or(new);
    if MODULES.chain_at(new).is_some() {
        return Err(TrapKept::Check);
    }
    if WRITTEN.iter().filter(|jump| jump.at.load(Ordering::Relaxed) == 0).count() < 2 {
        return Err(TrapKept::Many);
    }
    let window = Window::around(at, begin);
    let is_apart = |at: u64| WRITTEN.iter().all(|jump| jump.at.load(Ordering::Relaxed).abs_diff(at) >= LONG as u64);
    if !is_apart(at) {
        return Err(TrapKept::Room);
    }
    // Its processors are told, before anything is changed that only they could then see in parts.
    membarrier(MEMBARRIER_REGISTER).ok_or(TrapKept::Filter)?;
    // SAFETY: the program's heap stays as it is.
    let heap = unsafe { sys::call(libc::SYS_brk, [0; 6]) }.map_err(|_| TrapKept::Memory)? as u64;
    let reaches = |jump: &Jump| targets(window.address(jump.at), jump.distance, heap).next().is_some();
    let is_possible = |jump: &Jump| is_apart(window.address(jump.at)) && reaches(jump);
    let mut possible = window.jumps().filter(is_possible).peekable();
    if possible.peek().is_none() {
        return Err(TrapKept::Room);
    }
    let (jump, way) = possible
        .take(HOPS)
        .find_map(|jump| way_to(window.address(jump.at), new, jump.distance, heap).map(|way| (jump, way)))
        .ok_or(TrapKept::Memory)?;
    let long = window.address(jump.at);
    let distance = (way.wrapping_sub(long + LONG as u64) as u32).to_le_bytes();
    let low = at.min(long) & !(PAGE - 1);
    let bytes = (at.max(long) + LONG as u64 - low).next_multiple_of(PAGE);
    let rx = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: code of a module, in the process's own copy; others may execute it meanwhile: they meet trap bytes, or whole jumps.
    let done = unsafe {
        let writable = sys::mprotect(low, bytes, rx | libc::PROT_WRITE);
        let mut done = writable.ok().and_then(|()| {
            for (k, byte) in distance.into_iter().enumerate().filter(|(k, _)| jump.distance[*k].is_none()) {
                ((long + 1) as *mut u8).add(k).write_volatile(byte);
            }
            put_first(long, LONG_JUMP)
        });
        if let Some(hop) = jump.hop.filter(|_| done.is_some()) {
            if window.is_free(HERE + 1) {
                ((at + 1) as *mut u8).write_volatile(hop);
            }
            done = put_first(at, SHORT_JUMP);
        }
        let _ = sys::mprotect(low, bytes, rx);
        writable.map_err(|_| TrapKept::Memory)?;
        done
    };
    if jump.hop.is_some() {
        note(long, 0, TRAP);
    }
    note(at, way, begin);
    done.ok_or(TrapKept::Filter)
}

/// A jump stands at `at`, by which the program comes to `way`, in place of `begin`.
fn note(at: u64, way: u64, begin: u8) {
    if let Some(free) = WRITTEN.iter().find(|jump| jump.at.load(Ordering::Relaxed) == 0) {
        free.begin.store(begin, Ordering::Relaxed);
        free.way.store(way, Ordering::Relaxed);
        free.at.store(at, Ordering::Release);
    }
}

/// The program maps what it likes over these bytes: jumps that lead there become trap bytes again, and stay so.
pub fn leave(first: u64, bytes: u64) {
    let end = first.saturating_add(bytes);
    let leads_there = |way: u64| way != 0 && way < end && way + WAY as u64 > first;
    for jump in WRITTEN.iter().take_while(|jump| jump.at.load(Ordering::Acquire) != 0) {
        let way = jump.way.load(Ordering::Relaxed);
        if leads_there(way) && jump.way.compare_exchange(way, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let at = jump.at.load(Ordering::Relaxed);
            let rx = libc::PROT_READ | libc::PROT_EXEC;
            // SAFETY: as when it was written; the byte is of one page.
            unsafe {
                let page = at & !(PAGE - 1);
                if sys::mprotect(page, PAGE, rx | libc::PROT_WRITE).is_ok() {
                    (at as *mut u8).write_volatile(jump.begin.load(Ordering::Relaxed));
                }
                let _ = sys::mprotect(page, PAGE, rx);
            }
            let _ = membarrier(MEMBARRIER_SYNC);
        }
    }
}

/// Writes the first byte of a jump of which the others stand.
///
/// # Safety
/// The byte is writable, and whoever executes what stands there may find a jump.
unsafe fn put_first(at: u64, byte: u8) -> Option<()> {
    membarrier(MEMBARRIER_SYNC)?;
    // SAFETY: passed on from the caller.
    unsafe { (at as *mut u8).write_volatile(byte) };
    Some(())
}

/// Bytes in front of and behind the trap byte that are looked at: a short jump reaches them, and a long one there.
const HERE: usize = 128;
const BYTES: usize = HERE + SHORT + 127 + LONG;

/// Old code around a trap byte, which is at [`HERE`].
struct Window {
    at: u64,
    bytes: [u8; BYTES],
    /// They lie on pages of old code. All others count as 0.
    is_code: [bool; BYTES],
    /// Instructions begin there, according to the trap map.
    begins: [bool; BYTES],
    /// What stands there in place of trap bytes.
    begin: u8,
}

/// What may be written: a jump `rel32` at `at` in the window, with these bytes of its distance given, and a jump `rel8` to it at the trap byte.
#[derive(Debug, PartialEq, Eq)]
struct Jump {
    at: usize,
    distance: [Option<u8>; 4],
    hop: Option<u8>,
}

impl Window {
    fn around(at: u64, begin: u8) -> Window {
        let address = |k: usize| at.wrapping_sub(HERE as u64).wrapping_add(k as u64);
        let begins = core::array::from_fn(|k| matches!(MODULES.find(address(k)), OldAddress::Instruction(_)));
        let page_of = |k: usize| address(k) & !(PAGE - 1);
        // Where no instruction begins a page need not be mapped, and has rights of its own.
        let is_code = core::array::from_fn(|k| (0..BYTES).any(|other| begins[other] && page_of(other) == page_of(k)));
        let mut bytes = [0; BYTES];
        for (k, byte) in bytes.iter_mut().enumerate().filter(|(k, _)| is_code[*k]) {
            // SAFETY: a page of mapped code.
            *byte = unsafe { (address(k) as *const u8).read_volatile() };
        }
        Window { at, bytes, is_code, begins, begin }
    }

    fn address(&self, k: usize) -> u64 {
        self.at.wrapping_sub(HERE as u64).wrapping_add(k as u64)
    }

    fn is_trap(&self, k: usize) -> bool {
        self.bytes[k] == if self.begins[k] { self.begin } else { TRAP }
    }

    /// The byte belongs to old code, of which no instruction begins there, and is a trap byte.
    fn is_free(&self, k: usize) -> bool {
        // That far behind an instruction's beginning no data look like trap bytes.
        !self.begins[k] && (1..LONG).any(|n| k >= n && self.begins[k - n] && (k - n..=k).all(|k| self.is_trap(k)))
    }

    /// A jump of so many bytes would lie in old code.
    fn has_room(&self, at: usize, bytes: usize) -> bool {
        self.is_code[at..at + bytes].iter().all(|is_code| *is_code)
    }

    /// What may be written, the best first.
    fn jumps(&self) -> impl Iterator<Item = Jump> {
        let distance = |at: usize| {
            core::array::from_fn(|k| if self.is_free(at + 1 + k) { None } else { Some(self.bytes[at + 1 + k]) })
        };
        // Another short jump's distance must stay.
        let is_own = self.is_trap(HERE) && self.bytes[HERE - 1] != SHORT_JUMP;
        let direct = Jump { at: HERE, distance: distance(HERE), hop: None };
        let direct = self.has_room(HERE, LONG).then_some(direct);
        let chosen = self.is_free(HERE + 1).then_some(0..=u8::MAX);
        let hops = chosen.unwrap_or(self.bytes[HERE + 1]..=self.bytes[HERE + 1]);
        let hops = hops.filter_map(move |hop| {
            let at = (HERE + SHORT).checked_add_signed((hop as i8).into())?;
            let is_apart = at.abs_diff(HERE) >= LONG && at + LONG <= BYTES;
            (is_apart && self.is_free(at) && self.has_room(at, LONG)).then(|| Jump {
                at,
                distance: distance(at),
                hop: Some(hop),
            })
        });
        let hops = self.has_room(HERE, SHORT).then_some(hops).into_iter().flatten();
        is_own.then(|| direct.into_iter().chain(hops)).into_iter().flatten()
    }
}

/// Where a jump at `at` may lead whose distance has these bytes. What lies above may be the stack's to grow into, unless the program lies so low that nothing is below.
/// `heap`: where it ends by now.
fn targets(at: u64, fixed: [Option<u8>; 4], heap: u64) -> impl Iterator<Item = u64> {
    let is_low = at < 1 << 31;
    let is_heap = move |to: u64| to >= at && to < heap.saturating_add(HEAP) && heap.abs_diff(at) < 1 << 32;
    (0..TRIES).filter_map(move |k| {
        let chosen = (at ^ k).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let far = if is_low { 0x70 - (k as u8 & 31) } else { 0xf0 - (k as u8 & 63) };
        let byte = |n: usize| fixed[n].unwrap_or(if n == 3 { far } else { chosen[4 + n] });
        let distance = i32::from_le_bytes(core::array::from_fn(byte));
        let to = (at + LONG as u64).checked_add_signed(distance.into())?;
        (is_low || distance < 0).then_some(to).filter(|to| *to >= PAGE && !is_heap(*to))
    })
}

const WAY: usize = 38;

/// `mov qword [LIMIT_UP], 0; mov qword [LIMIT_DOWN], -1; jmp [rip]`, and the address.
fn way(new: u64) -> [u8; WAY] {
    let mut code = [0; WAY];
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
fn way_to(at: u64, new: u64, fixed: [Option<u8>; 4], heap: u64) -> Option<u64> {
    let code = way(new);
    // A page that cannot be made executable stays as it is: nothing leads there.
    targets(at, fixed, heap).find(|&to| {
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
            (to as *mut [u8; WAY]).write_unaligned(code);
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

    /// A window with such bytes from the trap byte on, and one in front of it; instructions begin at `begins`, counted from the trap byte.
    fn window(before: u8, bytes: &[u8], begins: &[usize]) -> Window {
        let mut window =
            Window { at: 0x40_1000, bytes: [0; BYTES], is_code: [true; BYTES], begins: [false; BYTES], begin: T };
        window.bytes[HERE - 1] = before;
        window.bytes[HERE..][..bytes.len()].copy_from_slice(bytes);
        begins.iter().for_each(|k| window.begins[HERE + k] = true);
        window
    }

    fn direct(window: &Window) -> Option<[Option<u8>; 4]> {
        window.jumps().next().map(|jump| jump.distance)
    }

    #[test]
    fn where_instructions_begin_their_trap_bytes_stay() {
        // Instructions of one, two and two bytes.
        let begins = [0, 1, 3];
        assert_eq!(direct(&window(0, &[T; 5], &begins)), Some([Some(T), None, Some(T), None]));
        // A springboard behind the second byte: its distance looks like trap bytes.
        let springboard = [T, T, 0xe9, T, T];
        assert_eq!(direct(&window(0, &springboard, &[0])), Some([None, Some(0xe9), Some(T), Some(T)]));
        // The trap byte is the distance of a short jump in front of it.
        assert_eq!(direct(&window(SHORT_JUMP, &[T; 5], &begins)), None);
        assert_eq!(direct(&window(0, &[0x90, T, T, T, T], &[0])), None);
        // Its last byte lies on a page of data.
        let mut last = window(0, &[T; 4], &[0]);
        assert!(last.jumps().next().is_some());
        last.is_code[HERE + 4..].fill(false);
        assert_eq!(last.jumps().next(), None);
    }

    #[test]
    fn a_short_jump_leads_into_an_instruction_only() {
        // Of two bytes, of six, and of five, behind which data stand that look the same.
        let mut window = window(0, &[T; 40], &[0, 2, 8]);
        let hops = |window: &Window| -> Vec<(u8, usize)> {
            window.jumps().filter_map(|jump| Some((jump.hop?, jump.at.wrapping_sub(HERE)))).collect()
        };
        // Behind four bytes of an instruction nobody knows whether it goes on.
        assert_eq!(hops(&window), [(3, 5), (4, 6), (7, 9), (8, 10), (9, 11), (10, 12)]);
        // The next instruction begins at once: the distance is its trap byte, 52 bytes back from the jump's end.
        window.begins[HERE + 1] = true;
        assert!(hops(&window).is_empty());
        window.begins[HERE - 52] = true;
        window.bytes[HERE - 52..HERE - 45].fill(T);
        assert_eq!(hops(&window), [(T, 50usize.wrapping_neg())]);
        let jump = window.jumps().last().unwrap();
        assert_eq!(jump.distance, [None, None, Some(T), Some(T)]);
    }

    #[test]
    fn jumps_lead_where_their_bytes_say() {
        let at = 0x7fff_1234_5678u64;
        let fixed = [Some(T), None, None, Some(T)];
        let all: Vec<u64> = targets(at, fixed, 0).collect();
        assert_eq!(all.len(), TRIES as usize);
        for to in &all {
            let bytes = (to.wrapping_sub(at + LONG as u64) as u32).to_le_bytes();
            assert_eq!((bytes[0], bytes[3]), (T, T));
            assert!(at - to < 1 << 31);
        }
        // In front of a program that lies low nothing is; behind it there is.
        assert_eq!(targets(0x40_1000, fixed, 0).count(), 0);
        assert!(
            targets(0x40_1000, [Some(T), None, Some(T), None], 0)
                .all(|to| to > 0x40_1000 && to < contract::CONTEXT_SHARED)
        );
        assert!(targets(at, [Some(T), Some(T), Some(T), Some(1)], 0).next().is_none());
        // The heap's pages are its own.
        let heap = 0x48_0000;
        assert_eq!(targets(0x40_1000, [None, None, None, Some(0)], heap).count(), 0);
        assert!(targets(0x40_1000, [None; 4], heap).all(|to| to > heap + HEAP));
    }
}
