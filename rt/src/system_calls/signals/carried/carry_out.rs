//! Carries out an access to shared memory that faulted because the segment has no rights at the program's addresses.
//!
//! Input: the context of the fault, and its address. What the instruction accesses is granted; then the context leads to a slot with the
//! instruction, whose operand has the prefix `%gs`: the base of that segment is the distance to an alias that has all rights. So the
//! processor executes the instruction, with the state that the kernel restores. Output: a changed context, or why not.
//! **Invariants**
//! * Between the grant and the instruction nothing handles messages: the handler returns at once.
//! * Nobody sees a context in a slot: each handler of a signal calls [`leave`] before anybody looks.
//! * One thread executes slots, and no instruction of a slot is executed while another one is begun.
//!
//! Source: design section 9.

use crate::kernel::owned::per_thread;
use crate::kernel::ucontext::{REG_RIP, REG_RSP, Ucontext};
use crate::kernel::xsave;
use crate::libraries::modules::MODULES;
use crate::libraries::places::CodePlace;
use crate::memory::access_control::program::{self, in_segment};
use crate::node::access::Lane;
use crate::process::accesses;
use crate::process::process;
use crate::system_calls::signals::carried::address;
use crate::system_calls::signals::carried::decode::{self, CarriedAccess, CarriedInsn, LONGEST, OperandAccess};
use crate::system_calls::signals::carried::lanes;
use crate::system_calls::signals::carried::refused::CarryRefused;
use crate::system_calls::signals::carried::slots::{self, CarrySlot, SlotCode, SlotStage};
use crate::system_calls::signals::carried::strings;
use core::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;

/// Shared memory, as an instruction without a test gets it.
pub struct UntestedMemory<'a> {
    /// From the program's addresses to those of the alias: the base of %gs.
    pub distance: u64,
    /// Makes all ranges accessible at once.
    pub grant: &'a mut dyn FnMut(&[Lane]),
}

/// What [`UntestedMemory::grant`] is in a node.
pub fn grant_by_node(ranges: &[Lane]) {
    match ranges {
        [Lane { addr, bytes, store, masked }] => accesses::require(*addr, *bytes, *store, *masked),
        _ => accesses::require_lanes(ranges),
    }
}

/// Makes the context one that carries the access out.
///
/// # Errors
/// Why it cannot. The context is as it was, if the reason is not [`CarryRefused::Memory`].
///
/// # Safety
/// The context is one that the kernel made for a fault, at `fault`, of the instruction that it is in front of, and no slot's.
pub unsafe fn carry_out(context: &mut Ucontext, fault: u64, shared: &mut UntestedMemory) -> Result<(), CarryRefused> {
    let at = context.gregs[REG_RIP];
    if in_segment(context.gregs[REG_RSP]) {
        return Err(CarryRefused::Stack);
    }
    if in_segment(at) {
        return Err(CarryRefused::Code);
    }
    let mut bytes = [0; LONGEST];
    let insn = insn_at(at, &mut bytes)?;
    // SAFETY: passed on from the caller.
    let slot = unsafe { slot(context, fault, &insn, &bytes[..insn.len], shared) }?;
    DISTANCE.store(shared.distance, Ordering::Relaxed);
    context.gregs[REG_RIP] = slot;
    Ok(())
}

/// Reads and decodes an instruction that the processor has executed.
fn insn_at(at: u64, bytes: &mut [u8; LONGEST]) -> Result<CarriedInsn, CarryRefused> {
    let known = (PAGE - at % PAGE).min(LONGEST as u64) as usize;
    // SAFETY: its first byte was executed, so that page is there.
    unsafe { core::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), known) };
    let state = xsave::state_bytes();
    match decode::decode(&bytes[..known], state) {
        Err(CarryRefused::Truncated) if known < LONGEST => {
            program::read(at, bytes).map_err(|_| CarryRefused::Truncated)?;
            decode::decode(bytes, state)
        }
        decoded => decoded,
    }
}

/// Grants, and makes the slot; its address.
///
/// # Safety
/// As [`carry_out`].
unsafe fn slot(
    context: &mut Ucontext,
    fault: u64,
    insn: &CarriedInsn,
    bytes: &[u8],
    shared: &mut UntestedMemory,
) -> Result<u64, CarryRefused> {
    let at = context.gregs[REG_RIP];
    let next = at + insn.len as u64;
    let mut grant = |addr: u64, plain: &OperandAccess| {
        if fault.wrapping_sub(addr) >= plain.bytes.max(1) {
            return Err(CarryRefused::OtherAddress);
        }
        // Neither: what has to do with caches alone.
        if plain.load || plain.store {
            (shared.grant)(&[Lane { addr, bytes: plain.bytes, store: plain.store, masked: plain.masked }]);
        }
        Ok(addr)
    };
    let (addr, plain) = match insn.access {
        CarriedAccess::Plain(plain) => (address::of(plain.operand, context), plain),
        CarriedAccess::BitString { word, offset } => (address::of_bit(&word, offset, context), word),
        CarriedAccess::Table(plain) => {
            (address::of(plain.operand, context).wrapping_add(address::register(context, 0) & 0xff), plain)
        }
        CarriedAccess::Call(plain) => {
            let addr = grant(address::of(plain.operand, context), &plain)?;
            // SAFETY: shared memory, which is there.
            let target = unsafe { (addr.wrapping_add(shared.distance) as *const u64).read_unaligned() };
            return CarrySlot::calling(at, target, next).place();
        }
        CarriedAccess::String(desc) => {
            strings::begin(context, desc, insn.len, shared.distance, shared.grant)?;
            return CarrySlot::ending(at, STRING, &SlotCode::plain(bytes)).place();
        }
        CarriedAccess::Lanes(desc) => {
            let code = SlotCode::prefixed(bytes, insn.prefixes)?;
            // SAFETY: passed on from the caller.
            let partly = unsafe { lanes::begin(context, &desc, shared.grant) }?;
            let slot = if partly { CarrySlot::ending(at, LANES, &code) } else { CarrySlot::going_on(at, next, &code) };
            return slot.place();
        }
    };
    let code = SlotCode::prefixed(bytes, insn.prefixes)?;
    grant(addr, &plain)?;
    CarrySlot::going_on(at, next, &code).place()
}

/// Where slots go on that end with a fault: what they hold.
const STRING: u64 = 1;
const LANES: u64 = 2;

/// Where a context was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotExit {
    /// Not in a slot.
    Elsewhere,
    /// In a slot. The context is the program's now, in front of an instruction.
    Slot,
    /// As [`SlotExit::Slot`], and the alias has faulted. There is no such memory: to carry the access out again would do the same.
    Denied,
    /// Behind the instruction in a slot that ends with a fault. That was this signal, if it is SIGSEGV, and there is nothing else to do.
    End,
}

per_thread! {
    /// [`UntestedMemory::distance`] of the last access.
    static DISTANCE: AtomicU64 = AtomicU64::new(0);
}

/// Makes the context and the information of a signal the program's, if it is in a slot: registers, and the address of a fault.
///
/// # Safety
/// They are ones that the kernel made.
pub unsafe fn leave(info: &mut libc::siginfo_t, context: &mut Ucontext) -> SlotExit {
    /// `si_addr` as a word of the information, and where the context has it.
    const ADDRESS: usize = 2;
    const CR2: usize = 22;
    let Some((slot, stage)) = slots::find(context.gregs[REG_RIP]) else { return SlotExit::Elsewhere };
    let mut denied = false;
    if matches!(info.si_signo, libc::SIGSEGV | libc::SIGBUS) && info.si_code > 0 {
        // SAFETY: the kernel has filled the address in for these signals.
        let address = unsafe { &mut *(&raw mut *info).cast::<u64>().add(ADDRESS) };
        for address in [address, &mut context.gregs[CR2]] {
            let of_program = address.wrapping_sub(DISTANCE.load(Ordering::Relaxed));
            if in_segment(of_program) {
                *address = of_program;
                denied = true;
            }
        }
    }
    match (slot.next, stage) {
        (STRING, _) => strings::leave(context, &slot, stage == SlotStage::End),
        // SAFETY: passed on from the caller.
        (LANES, _) => unsafe { lanes::leave(context, &slot) },
        (_, SlotStage::Before) => context.gregs[REG_RIP] = slot.origin,
        (next, _) => context.gregs[REG_RIP] = next,
    }
    match stage {
        SlotStage::End => SlotExit::End,
        _ if denied => SlotExit::Denied,
        _ => SlotExit::Slot,
    }
}

/// [`leave`], of a SIGSEGV that an instruction has raised, where that is the end of a slot or the context is in none. `None`: it is in one, and has not left it.
///
/// # Safety
/// As [`leave`].
pub unsafe fn leave_at_end(info: &mut libc::siginfo_t, context: &mut Ucontext) -> Option<SlotExit> {
    match slots::find(context.gregs[REG_RIP]) {
        Some((_, SlotStage::Before | SlotStage::Behind)) => None,
        // SAFETY: passed on from the caller.
        _ => Some(unsafe { leave(info, context) }),
    }
}

/// Ends the run: the access at `fault` is not carried out.
pub fn refuse(context: &Ucontext, fault: u64, why: CarryRefused) -> ! {
    let at = context.gregs[REG_RIP];
    let mut bytes = [0; LONGEST];
    let len = match insn_at(at, &mut bytes) {
        _ if in_segment(at) => 0,
        Ok(insn) => insn.len,
        Err(_) => LONGEST,
    };
    let way_around = match why {
        CarryRefused::Implicit64 if MODULES.in_new_code(at) => "; --access tests puts a test in front of it",
        CarryRefused::Implicit64 => "; let this code use other instructions, or store to private memory and copy",
        _ => "",
    };
    process::fail(format_args!(
        "code without checks accesses shared memory at {fault:#x} in {}, and the runtime cannot do it: {why} (bytes {:02x?}){way_around}",
        CodePlace(at),
        &bytes[..len]
    ))
}
