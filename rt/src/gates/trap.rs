//! Traps at old code addresses.
//!
//! Purpose: an old code byte without a springboard is `int3` (0xcc). Executing it raises SIGTRAP; the handler looks the address up
//! in the trap map of its module and continues at the new code. Input: the table of [`crate::libraries::modules`]. Output: a changed instruction
//! pointer in the signal frame, the program's own handler, or the program's end.
//! **Invariants**: the handler takes no lock, so any number of threads may trap at once; it runs on the alternate
//! stack if the program has one, nests, and returns through the runtime's own restorer. A trap byte takes nothing of the program's stack, where coroutines may have no
//! room. Of the program's alternate stack, if it has one, it takes a frame.
//! Source: SDM volume 3, 6.3.1 (the saved RIP of #BP points behind the `int3`); Linux `arch/x86/include/uapi/asm/sigcontext.h`.

use crate::kernel::sys::{self, KernelSigaction};
use crate::kernel::ucontext::{REG_RIP, Ucontext, default_action};
use crate::libraries::modules::{MODULES, OldAddress};
use crate::process::own_stack;
use crate::process::process;
use crate::process::resume;
use crate::process::tags;
use crate::process::trap_bytes::hot_traps;
use crate::system_calls::execution::signal_sets::{self, bit};
use crate::system_calls::execution::situation;
use crate::system_calls::signals::alternate_stack::{self, Settled, handler_entry, may_go_apart};
use crate::system_calls::signals::dying;
use crate::system_calls::signals::own_sigtrap::{self, own_action, set_own_action};
use crate::system_calls::signals::{plain_again, sent, wrapper};
use blizzard_contract::Counter;

/// Installs the handler.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Called before the program runs.
pub unsafe fn install() -> sys::Result<()> {
    // SAFETY: passed on from the caller.
    unsafe { own_sigtrap::install(entry as *const () as u64) }
}

/// The SIGTRAP handler: continues with the program's own handler, on the frame that the kernel built, when [`on_trap`] says so.
///
/// # Safety
/// Entered by the kernel only.
#[unsafe(naked)]
unsafe extern "C" fn entry() {
    handler_entry!(settle, settle_apart, on_trap)
}

/// On the runtime's stack, where the program has none: what needs no code of the program and no block.
extern "C" fn settle(_signal: i32, info: &libc::siginfo_t, context: &mut Ucontext) -> Settled {
    if cfg!(feature = "guard") && plain_again::step(info.si_code, context) {
        return Settled::Yes;
    }
    match old_address(info, context) {
        OldAddress::Instruction(new) if !resume::relies_on_group(new) => {
            redirect(new, context);
            Settled::Yes
        }
        OldAddress::Instruction(_) if may_go_apart(context) => Settled::Apart,
        _ => Settled::No,
    }
}

/// The blocks that the code behind the trap byte relies on are made accessible.
extern "C" fn settle_apart(_signal: i32, info: &libc::siginfo_t, context: &mut Ucontext) {
    // Handlers of messages may meet trap bytes.
    sys::unblock_signals(bit(libc::SIGTRAP));
    if let OldAddress::Instruction(new) = old_address(info, context) {
        redirect(new, context);
    }
}

/// Where the trap byte has stood that has raised the signal.
fn old_address(info: &libc::siginfo_t, context: &Ucontext) -> OldAddress {
    // Only `int3` counts (SI_KERNEL); single steps and hardware breakpoints carry other codes, kill and sigqueue are <= 0.
    const SI_KERNEL: i32 = 0x80;
    if info.si_code == SI_KERNEL { MODULES.find(trap_byte(context)) } else { OldAddress::Elsewhere }
}

fn trap_byte(context: &Ucontext) -> u64 {
    context.gregs[REG_RIP].wrapping_sub(1)
}

/// The context goes on at the new address of what the trap byte stands for.
fn redirect(new: u64, context: &mut Ucontext) {
    tags::count(Counter::Traps);
    hot_traps::count(trap_byte(context), new, hot_traps::TRAP);
    context.gregs[REG_RIP] = new;
    resume::reestablish(context);
}

/// Redirects a trap byte. Returns the program's own handler where the signal is meant for it, else 0.
extern "C" fn on_trap(signal: i32, info: &libc::siginfo_t, context: &mut Ucontext) -> u64 {
    own_stack::note_alternate(context.stack);
    // Handlers of the program, and of messages, may meet trap bytes.
    sys::unblock_signals(bit(libc::SIGTRAP));
    if cfg!(feature = "guard") && plain_again::step(info.si_code, context) {
        return 0;
    }
    match old_address(info, context) {
        OldAddress::Instruction(new) => {
            redirect(new, context);
            0
        }
        OldAddress::Middle(old) => process::fail(format_args!(
            "jump into the middle of an instruction at {:#x} (old code address {old:#x} of its file)",
            trap_byte(context)
        )),
        OldAddress::Elsewhere => {
            let handler = own_handler(signal, info, context);
            alternate_stack::hide(handler, context)
        }
    }
}

/// What the program wants of a SIGTRAP that is its own. One that an instruction has raised is not ignored.
fn own_handler(signal: i32, info: &libc::siginfo_t, context: &mut Ucontext) -> u64 {
    const SIG_DFL: u64 = 0;
    const SIG_IGN: u64 = 1;
    let raised = info.si_code > 0;
    let mask = context.sigmask;
    if !raised && sent::put_off(signal, info, context) {
        return 0;
    }
    match own_action() {
        KernelSigaction { handler: SIG_IGN, .. } if !raised => 0,
        KernelSigaction { handler: SIG_DFL | SIG_IGN, .. } => {
            dying::by_handler(signal, info, context);
            default_action(signal);
            0
        }
        action => {
            if action.flags & libc::SA_RESETHAND as u32 as u64 != 0 {
                set_own_action(&KernelSigaction::default());
            }
            if situation::are_signals_put_off() {
                wrapper::leave_call(signal, context, &action);
            }
            sent::begins(signal, &action, context);
            sys::set_signal_mask(mask | action.mask & !signal_sets::UNBLOCKED);
            // SAFETY: the kernel's frame, for the handler that has not begun.
            unsafe { wrapper::let_return(context, &action) };
            alternate_stack::handler(&action)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blizzard_contract::{ModuleInfo, TrapEntry};
    use core::arch::naked_asm;
    use core::sync::atomic::{AtomicU64, Ordering};

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
        // Loops' limits are in it.
        crate::system_calls::tests::map_context_page();
        let row = TrapEntry { old: (old_at - low) as u32, new: (new_at - low) as u32 };
        let info = ModuleInfo {
            old_base_va: low,
            new_base_va: low,
            ..crate::libraries::modules::tests::with_traps(&[row], 0)
        };
        // SAFETY: the map is never given back; no other test uses SIGTRAP.
        unsafe {
            MODULES.add(&info, 0, low, low + 0x10_0000).unwrap();
            install().unwrap();
        }
        assert_eq!(old(), 2);
        // A breakpoint outside every module goes to the program's handler, and execution continues behind it.
        static SEEN: AtomicU64 = AtomicU64::new(0);
        extern "C" fn own(signal: i32) {
            SEEN.store(signal as u64, Ordering::Relaxed);
        }
        set_own_action(&KernelSigaction { handler: own as *const () as u64, ..KernelSigaction::default() });
        // SAFETY: `int3` and a return, in a page of its own.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = sys::mmap(0, 4096, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC, flags, -1, 0).unwrap();
            (page as *mut [u8; 2]).write([0xcc, 0xc3]);
            core::mem::transmute::<u64, extern "C" fn()>(page)();
            sys::munmap(page, 4096).unwrap();
        }
        assert_eq!(SEEN.load(Ordering::Relaxed), libc::SIGTRAP as u64);
    }
}
