//! Traps at old code addresses.
//!
//! Purpose: an old code byte without a springboard is `int3` (0xcc). Executing it raises SIGTRAP; the handler looks the address up
//! in the trap map and continues at the new code. Input: the [`ModuleInfo`]'s trap map, sorted by old address.
//! Output: a changed instruction pointer in the signal frame, or the program's end.
//! **Invariants**: the handler reads only what [`install`] set, so any number of threads may trap at once; it runs on the alternate
//! stack if the program has one, nests, and returns through the runtime's own restorer.
//! Source: SDM volume 3, 6.3.1 (the saved RIP of #BP points behind the `int3`); Linux `arch/x86/include/uapi/asm/sigcontext.h`.

use crate::abi::{Counter, ModuleInfo, TrapEntry};
use crate::entry::access;
use crate::node;
use crate::sys::{self, KernelSigaction};
use core::arch::naked_asm;
use core::cell::UnsafeCell;

/// Index of a register in [`Ucontext::gregs`].
pub const REG_RDI: usize = 8;
pub const REG_RSI: usize = 9;
pub const REG_RDX: usize = 12;
pub const REG_RAX: usize = 13;
pub const REG_RCX: usize = 14;
pub const REG_RSP: usize = 15;
pub const REG_RIP: usize = 16;
/// r8 to r11 are the first words.
pub const REG_R8: usize = 0;
pub const REG_R9: usize = 1;
pub const REG_R10: usize = 2;
pub const REG_R11: usize = 3;

/// The kernel's `struct ucontext` as far as the runtime uses it.
#[repr(C)]
#[derive(Debug)]
pub struct Ucontext {
    pub flags: u64,
    pub link: u64,
    pub stack: [u64; 3],
    /// r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags, segments, err, trapno, oldmask, cr2.
    pub gregs: [u64; 23],
    pub fpstate: u64,
    pub reserved: [u64; 8],
    pub sigmask: u64,
}

/// The trap map of the running program.
#[derive(Clone, Copy, Debug)]
pub struct TrapMap {
    entries: *const TrapEntry,
    count: usize,
    /// Run-time address that `TrapEntry::old` is relative to.
    old_base: u64,
    /// Run-time address that `TrapEntry::new` is relative to.
    new_base: u64,
}

/// What an address in old code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// An instruction; its new address.
    Instruction(u64),
    /// Inside rewritten old code, but no instruction begins there.
    Middle,
    /// Not rewritten old code.
    Elsewhere,
}

impl TrapMap {
    /// # Safety
    /// The module's trap map must be mapped at its link-time address plus `bias`, sorted, and stay so.
    pub unsafe fn new(info: &ModuleInfo, bias: u64) -> Self {
        TrapMap {
            entries: info.trap_map_va.wrapping_add(bias) as *const TrapEntry,
            count: info.trap_count as usize,
            old_base: info.old_base_va.wrapping_add(bias),
            new_base: info.new_base_va.wrapping_add(bias),
        }
    }

    const fn empty() -> Self {
        TrapMap { entries: core::ptr::null(), count: 0, old_base: 0, new_base: 0 }
    }

    fn entries(&self) -> &[TrapEntry] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: `new`'s caller vouches for the map.
        unsafe { core::slice::from_raw_parts(self.entries, self.count) }
    }

    /// Looks up the old run-time address `at`.
    pub fn find(&self, at: u64) -> Found {
        let entries = self.entries();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Found::Elsewhere;
        };
        let Ok(key) = u32::try_from(at.wrapping_sub(self.old_base)) else {
            return Found::Elsewhere;
        };
        match entries.binary_search_by_key(&key, |entry| entry.old) {
            Ok(i) => Found::Instruction(self.new_base.wrapping_add(entries[i].new.into())),
            Err(_) if key > first.old && key < last.old => Found::Middle,
            Err(_) => Found::Elsewhere,
        }
    }
}

/// Set once before the program starts, then only read.
struct MapCell(UnsafeCell<TrapMap>);

// SAFETY: written by `install` while the process has one thread and no handler, read by handlers afterwards.
unsafe impl Sync for MapCell {}

static MAP: MapCell = MapCell(UnsafeCell::new(TrapMap::empty()));

/// Installs the SIGTRAP handler.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Called once, before the program runs; `info` and `bias` describe the loaded program (see [`TrapMap::new`]).
pub unsafe fn install(info: &ModuleInfo, bias: u64) -> sys::Result<()> {
    // SAFETY: one thread, no handler yet; the caller vouches for the map.
    unsafe { *MAP.0.get() = TrapMap::new(info, bias) };
    // SAFETY: the handler is async-signal-safe: it reads `MAP` and edits its frame.
    unsafe { sys::rt_sigaction(libc::SIGTRAP, &action()) }.map(drop)
}

/// The action that [`install`] sets.
fn action() -> KernelSigaction {
    KernelSigaction {
        handler: on_trap as *const () as u64,
        flags: (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER) as u64 | sys::SA_RESTORER,
        restorer: restorer as *const () as u64,
        mask: 0,
    }
}

/// Where the runtime's signal handlers return to.
///
/// # Safety
/// Entered by `ret` from a handler only, with rsp at the signal frame.
#[unsafe(naked)]
pub unsafe extern "C" fn restorer() {
    naked_asm!(
        // mov rax, 15 (rt_sigreturn); syscall. In the very bytes of the C library's restorer, by which unwinders know a signal frame.
        ".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05",
        "ud2",
    )
}

/// The SIGTRAP handler.
extern "C" fn on_trap(signal: i32, info: &libc::siginfo_t, context: &mut Ucontext) {
    // SAFETY: written before the handler was installed.
    let map = unsafe { *MAP.0.get() };
    // Only `int3` counts (SI_KERNEL); single steps and hardware breakpoints carry other codes, kill and sigqueue are <= 0.
    const SI_KERNEL: i32 = 0x80;
    let at = context.gregs[REG_RIP].wrapping_sub(1);
    let found = if info.si_code == SI_KERNEL { map.find(at) } else { Found::Elsewhere };
    match found {
        Found::Instruction(new) => {
            access::count(Counter::Traps);
            context.gregs[REG_RIP] = new;
        }
        Found::Middle => node::fail(format_args!(
            "jump into the middle of an instruction at {at:#x} (old code address {:#x} of the program)",
            at.wrapping_sub(map.old_base)
        )),
        // The program's own breakpoint.
        Found::Elsewhere => default_action(signal),
    }
}

/// What a signal does without a handler, as soon as the calling handler returns.
pub fn default_action(signal: i32) {
    let default = KernelSigaction { flags: sys::SA_RESTORER, ..KernelSigaction::default() };
    // SAFETY: the default action runs no code.
    let _ = unsafe { sys::rt_sigaction(signal, &default) };
    let _ = sys::tgkill(sys::getpid(), sys::gettid(), signal);
}

const _: () = {
    assert!(core::mem::offset_of!(Ucontext, gregs) == 40);
    assert!(core::mem::offset_of!(Ucontext, sigmask) == 296);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[TrapEntry], bias: u64) -> TrapMap {
        let info = ModuleInfo {
            magic: 0,
            flags: 0,
            rt_base_va: 0,
            entry_va: 0,
            phdr_va: 0,
            phdr_count: 0,
            interp_va: 0,
            trap_map_va: (entries.as_ptr() as u64).wrapping_sub(bias),
            trap_count: entries.len() as u64,
            old_base_va: 0x1000,
            new_base_va: 0x9000,
            code_va: 0,
            code_bytes: 0,
        };
        // SAFETY: `entries` outlives every use in these tests.
        unsafe { TrapMap::new(&info, bias) }
    }

    #[test]
    fn addresses_are_looked_up_with_the_load_bias() {
        let entries =
            [TrapEntry { old: 0x10, new: 0x40 }, TrapEntry { old: 0x15, new: 0x60 }, TrapEntry { old: 0x20, new: 0x5 }];
        for bias in [0, 0x5555_0000_0000] {
            let map = map(&entries, bias);
            assert_eq!(map.find(bias + 0x1010), Found::Instruction(bias + 0x9040));
            assert_eq!(map.find(bias + 0x1015), Found::Instruction(bias + 0x9060));
            assert_eq!(map.find(bias + 0x1020), Found::Instruction(bias + 0x9005));
            assert_eq!(map.find(bias + 0x1011), Found::Middle);
            assert_eq!(map.find(bias + 0x100f), Found::Elsewhere);
            assert_eq!(map.find(bias + 0x1021), Found::Elsewhere);
            assert_eq!(map.find(bias + 0xfff), Found::Elsewhere, "below the base");
            assert_eq!(map.find(bias + 0x1_0000_1010), Found::Elsewhere, "beyond 32 bits");
        }
    }

    #[test]
    fn an_empty_map_finds_nothing() {
        assert_eq!(map(&[], 0).find(0x1010), Found::Elsewhere);
        assert_eq!(TrapMap::empty().find(0), Found::Elsewhere);
    }

    /// Executes a real `int3` under the real handler: the frame must come back at the address that the map names.
    #[test]
    fn a_trap_byte_continues_at_the_new_address() {
        #[unsafe(naked)]
        extern "C" fn old() -> u64 {
            naked_asm!("int3", "mov eax, 1", "ret")
        }
        #[unsafe(naked)]
        extern "C" fn new() -> u64 {
            naked_asm!("mov eax, 2", "ret")
        }
        let (old_at, new_at) = (old as *const () as u64, new as *const () as u64);
        let low = old_at.min(new_at) & !0xfff;
        let entries: &'static [TrapEntry] =
            Box::leak(Box::new([TrapEntry { old: (old_at - low) as u32, new: (new_at - low) as u32 }]));
        let mut info = crate::entry::module_info();
        info.trap_map_va = entries.as_ptr() as u64;
        info.trap_count = 1;
        info.old_base_va = low;
        info.new_base_va = low;
        // SAFETY: the map is leaked, hence alive; no other test uses SIGTRAP.
        unsafe { install(&info, 0) }.unwrap();
        assert_eq!(old(), 2);
    }
}
