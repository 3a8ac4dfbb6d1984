//! Slots: places where an instruction is executed in place of where it stands.
//!
//! A slot holds the instruction and, behind it, a jump to where the program goes on, or a `hlt`, which faults. Input: the instruction's bytes and
//! address. Output: the slot's address; for an address, what is executed there. **Invariants**
//! * The memory is never writable and executable at once. It is private: a process that is forked has slots of its own.
//! * Each use compares the whole slot with what it has to hold. So code that a program changes is executed as it is.
//! * Only the thread that owns the slots executes them. No context that anybody sees is in a slot ([`carry_out::leave`]), so a slot may be changed whenever
//!   no instruction of it is executed. The return from the signal that leads into it serialises (`iret`).
//!
//! Source: SDM volume 3, 8.1.3 (cross-modifying code).
//!
//! [`carry_out::leave`]: crate::system_calls::signals::carried::carry_out::leave

use crate::kernel::limits;
use crate::kernel::owned::per_thread;
use crate::kernel::sys;
use crate::system_calls::signals::carried::decode::LONGEST;
use crate::system_calls::signals::carried::refused::CarryRefused;
use core::sync::atomic::{AtomicU64, Ordering};

/// As many instructions are in slots at a time; one that needs the slot of another replaces it.
const SLOTS: u64 = 256;
const SLOT_BYTES: u64 = 64;
const BYTES: u64 = SLOTS * SLOT_BYTES;
const PAGE: u64 = 4096;

/// `%gs:`
const GS: u8 = 0x65;
const HLT: u8 = 0xf4;
/// `jmp [rip+d]` and `push [rip+d]`, with places in [`CarrySlot`].
const JMP: [u8; 2] = [0xff, 0x25];
const PUSH: [u8; 2] = [0xff, 0x35];
const WORD_BYTES: usize = 6;

per_thread! {
    /// Where the slots are; 0: nowhere yet.
    static BASE: AtomicU64 = AtomicU64::new(0);
}

/// What a slot holds.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrySlot {
    code: [u8; 32],
    /// Where the program goes on.
    pub next: u64,
    /// Address of the instruction.
    pub origin: u64,
    /// What is pushed.
    pushed: u64,
    /// Where the jump, or the `hlt`, begins: the instruction has been executed.
    end: u64,
}

const _: () = assert!(size_of::<CarrySlot>() as u64 == SLOT_BYTES);

/// An instruction's bytes, as they are executed.
#[derive(Clone, Copy)]
pub struct SlotCode {
    bytes: [u8; LONGEST],
    len: usize,
}

impl SlotCode {
    /// As it stands.
    pub fn plain(insn: &[u8]) -> SlotCode {
        let mut bytes = [0; LONGEST];
        bytes[..insn.len()].copy_from_slice(insn);
        SlotCode { bytes, len: insn.len() }
    }

    /// With the prefix `%gs` in place of those of other segments. `prefixes`: so many bytes of legacy prefixes begin it.
    ///
    /// # Errors
    /// There is no room.
    pub fn prefixed(insn: &[u8], prefixes: usize) -> Result<SlotCode, CarryRefused> {
        let mut code = SlotCode { bytes: [GS; LONGEST], len: 1 };
        for (n, byte) in insn.iter().enumerate() {
            if n < prefixes && matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65) {
                continue;
            }
            *code.bytes.get_mut(code.len).ok_or(CarryRefused::NoRoom)? = *byte;
            code.len += 1;
        }
        Ok(code)
    }
}

impl CarrySlot {
    fn begin(origin: u64, next: u64, code: &[u8]) -> CarrySlot {
        // What is not reached faults.
        let mut slot = CarrySlot { code: [HLT; 32], next, origin, pushed: 0, end: code.len() as u64 };
        slot.code[..code.len()].copy_from_slice(code);
        slot
    }

    /// Puts `push` or `jmp` of the word at `place` of the slot at `at`.
    fn put(&mut self, at: usize, insn: [u8; 2], place: usize) {
        let distance = (place - at - WORD_BYTES) as u32;
        self.code[at..at + 2].copy_from_slice(&insn);
        self.code[at + 2..at + WORD_BYTES].copy_from_slice(&distance.to_le_bytes());
    }

    /// The instruction; behind it the program goes on at `next`.
    pub fn going_on(origin: u64, next: u64, code: &SlotCode) -> CarrySlot {
        let mut slot = CarrySlot::ending(origin, next, code);
        slot.put(code.len, JMP, core::mem::offset_of!(CarrySlot, next));
        slot
    }

    /// The instruction; behind it a fault, for the runtime.
    pub fn ending(origin: u64, next: u64, code: &SlotCode) -> CarrySlot {
        CarrySlot::begin(origin, next, &code.bytes[..code.len])
    }

    /// A call of `target`, which returns to `back`.
    pub fn calling(origin: u64, target: u64, back: u64) -> CarrySlot {
        let mut slot = CarrySlot { pushed: back, ..CarrySlot::begin(origin, target, &[HLT; WORD_BYTES]) };
        slot.put(0, PUSH, core::mem::offset_of!(CarrySlot, pushed));
        slot.put(WORD_BYTES, JMP, core::mem::offset_of!(CarrySlot, next));
        slot
    }

    /// Whether a fault follows the instruction.
    fn ends(&self) -> bool {
        self.code.get(self.end as usize) == Some(&HLT)
    }

    /// Puts it where it is executed; its address.
    ///
    /// # Errors
    /// The kernel refuses memory.
    pub fn place(&self) -> Result<u64, CarryRefused> {
        let mut base = BASE.load(Ordering::Relaxed);
        if base == 0 {
            limits::make_room_at_start(BYTES);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping, where the kernel has room.
            base = unsafe { sys::mmap(0, BYTES, libc::PROT_READ | libc::PROT_EXEC, flags, -1, 0) }
                .map_err(|_| CarryRefused::Memory)?;
            BASE.store(base, Ordering::Relaxed);
        }
        let at = base + (self.origin ^ self.origin >> 8 ^ self.origin >> 16) % SLOTS * SLOT_BYTES;
        // SAFETY: a slot, which nobody changes meanwhile; zeros are one, too.
        if unsafe { (at as *const CarrySlot).read() } != *self {
            let page = at & !(PAGE - 1);
            // SAFETY: a page of slots, none of which is being executed; its rights are as before at the end.
            unsafe {
                sys::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE).map_err(|_| CarryRefused::Memory)?;
                (at as *mut CarrySlot).write(*self);
                sys::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC).map_err(|_| CarryRefused::Memory)?;
            }
        }
        Ok(at)
    }
}

/// How far the execution of a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotStage {
    /// The instruction has not been executed, or not all of it.
    Before,
    /// It has been, and a jump goes on.
    Behind,
    /// It has been, and the fault of the `hlt` was raised, or will be.
    End,
}

/// What is executed at `at`, if that is in a slot.
pub fn find(at: u64) -> Option<(CarrySlot, SlotStage)> {
    let base = BASE.load(Ordering::Relaxed);
    let offset = at.wrapping_sub(base);
    if base == 0 || offset >= BYTES {
        return None;
    }
    // SAFETY: a slot, which nobody changes meanwhile.
    let slot = unsafe { ((at - offset % SLOT_BYTES) as *const CarrySlot).read() };
    let stage = match offset % SLOT_BYTES < slot.end {
        true => SlotStage::Before,
        false if slot.ends() => SlotStage::End,
        false => SlotStage::Behind,
    };
    Some((slot, stage))
}
