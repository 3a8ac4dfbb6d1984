//! Gathers and scatters.
//!
//! A prefix leads all lanes to the alias. So the lanes in private memory are taken out of the mask, the slot ends with a fault, and there they become
//! the mask: the instruction goes on with them where it stands, as one that was interrupted. Input: the context in front of the instruction; the
//! context that has left the slot. Output: changed masks. **Invariant**: [`PRIVATE`] describes what was taken out as long as the slot is executed.
//! Source: SDM volume 2, 2.3.12, VPGATHERDD (what is left of a gather that is interrupted).

use crate::kernel::owned::per_thread;
use crate::kernel::ucontext::{GREGS, REG_RIP, Ucontext};
use crate::kernel::xsave::{self, Vectors};
use crate::memory::access_control::program::in_segment;
use crate::node::access::{Lane, MAX_LANES};
use crate::process::vsib;
use crate::system_calls::signals::carried::refused::CarryRefused;
use crate::system_calls::signals::carried::slots::CarrySlot;
use blizzard_contract::VsibDesc;
use core::sync::atomic::{AtomicU64, Ordering};

/// What was taken out of the mask.
struct Private {
    /// One bit per lane.
    lanes: AtomicU64,
    /// 0: a vector register, 1: a mask register; its number; bytes of an element.
    kind: AtomicU64,
    register: AtomicU64,
    elem_bytes: AtomicU64,
}

per_thread! {
    static PRIVATE: Private = Private {
        lanes: AtomicU64::new(0),
        kind: AtomicU64::new(0),
        register: AtomicU64::new(0),
        elem_bytes: AtomicU64::new(0),
    };
}

/// Changes the bits of `lanes` in the mask: of a vector register, the elements' highest.
///
/// # Safety
/// The context is one that the kernel made, with the state of the vector registers.
unsafe fn set_lanes(context: &mut Ucontext, desc: &VsibDesc, lanes: u64, active: bool) {
    let area = context.fpstate as *mut u8;
    // SAFETY: the caller's promise.
    let vectors = unsafe { Vectors::new(area) };
    if desc.mask_kind == 1 {
        let mask = vectors.mask(desc.mask);
        // SAFETY: as above.
        unsafe { xsave::set_mask(area, desc.mask, if active { mask | lanes } else { mask & !lanes }) };
        return;
    }
    let mut mask = vectors.vector(desc.mask);
    let elements = mask.chunks_exact_mut(usize::from(desc.elem_bytes).max(1));
    for (_, element) in elements.enumerate().filter(|(lane, _)| lanes >> lane & 1 != 0) {
        // A mask that a comparison made.
        element.fill(if active { 0xff } else { 0 });
    }
    let mut low = [0; 32];
    low.copy_from_slice(&mask[..32]);
    // SAFETY: as above.
    unsafe { xsave::set_vector(area, desc.mask, &low) };
}

/// Takes the lanes out that are in private memory. True: there are some.
///
/// # Errors
/// No lane is in shared memory.
///
/// # Safety
/// The context is one that the kernel made, with the state of the vector registers.
pub unsafe fn begin(
    context: &mut Ucontext,
    desc: &VsibDesc,
    grant: &mut dyn FnMut(&[Lane]),
) -> Result<bool, CarryRefused> {
    // SAFETY: the caller's promise.
    let vectors = unsafe { Vectors::new(context.fpstate as *const u8) };
    let active = vsib::active(desc, &vectors);
    let all = vsib::lanes(&VsibDesc { mask_kind: 2, ..*desc }, &GREGS.map(|place| context.gregs[place]), &vectors);
    let (store, none) = (desc.access & 2 != 0, Lane { addr: 0, bytes: 0, store: false, masked: false });
    let (mut granted, mut len, mut private) = ([none; MAX_LANES], 0, 0u64);
    for (lane, &(addr, bytes)) in all.as_slice().iter().enumerate().filter(|(lane, _)| active >> lane & 1 != 0) {
        if in_segment(addr) {
            granted[len] = Lane { addr, bytes, store, masked: false };
            len += 1;
        } else {
            private |= 1 << lane;
        }
    }
    if len == 0 {
        return Err(CarryRefused::OtherAddress);
    }
    grant(&granted[..len]);
    if private != 0 {
        PRIVATE.lanes.store(private, Ordering::Relaxed);
        PRIVATE.kind.store(desc.mask_kind.into(), Ordering::Relaxed);
        PRIVATE.register.store(desc.mask.into(), Ordering::Relaxed);
        PRIVATE.elem_bytes.store(desc.elem_bytes.into(), Ordering::Relaxed);
        // SAFETY: passed on from the caller.
        unsafe { set_lanes(context, desc, private, false) };
    }
    Ok(private != 0)
}

/// Puts the lanes back.
///
/// # Safety
/// As [`begin`].
pub unsafe fn leave(context: &mut Ucontext, slot: &CarrySlot) {
    let desc = VsibDesc {
        mask_kind: PRIVATE.kind.load(Ordering::Relaxed) as u8,
        mask: PRIVATE.register.load(Ordering::Relaxed) as u8,
        elem_bytes: PRIVATE.elem_bytes.load(Ordering::Relaxed) as u8,
        ..VsibDesc::default()
    };
    // SAFETY: passed on from the caller.
    unsafe { set_lanes(context, &desc, PRIVATE.lanes.load(Ordering::Relaxed), true) };
    context.gregs[REG_RIP] = slot.origin;
}
