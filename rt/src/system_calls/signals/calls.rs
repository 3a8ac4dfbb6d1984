//! `rt_sigaction` and `rt_sigprocmask` of the program.
//!
//! Input: their arguments. Output: their results; actions that are recorded and installed, masks without the runtime's signals.
//! **Invariants**
//! * With several nodes the record holds what the program sees, and the kernel has the wrapper. With one node what the kernel says of an action counts: the
//!   record holds what the program sees in place of the wrapper, and nothing else.
//! * The reserved signals are recorded and never installed, and no mask blocks them.
//!
//! Source: Linux `kernel/signal.c` (`do_sigaction`, `sigprocmask`); sigaction(2), sigprocmask(2).

use crate::kernel::sys::{self, Errno, KernelSigaction};
use crate::memory::access_control::program::{self, runtime_address};
use crate::system_calls::execution::signal_sets::{RESERVED, RESERVED_ALONE, UNBLOCKED, UNBLOCKED_ALONE, bit};
use crate::system_calls::execution::situation;
use crate::system_calls::signals::actions::{self, ACTIONS, DEFAULT, SIG_IGN, SIGNAL_MAX, is_function};
use crate::system_calls::signals::alternate_stack;
use crate::system_calls::signals::memory_faults;
use crate::system_calls::signals::own_sigtrap;
use crate::system_calls::signals::sent;
use crate::system_calls::signals::wrapper::{installed, is_apart, is_wrapper};

/// What nobody can handle.
const FIXED: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);

/// `rt_sigaction` with several nodes. A pointer that leads nowhere is told of as the kernel does.
///
/// # Safety
/// The arguments are the program's.
pub unsafe fn sigaction([signal, act, old, mask_bytes, ..]: [u64; 6]) -> i64 {
    let is_fixed = (1..=SIGNAL_MAX as u64).contains(&signal) && bit(signal as i32) & FIXED != 0;
    if mask_bytes != 8 || signal == 0 || signal > SIGNAL_MAX as u64 || is_fixed && act != 0 {
        return -i64::from(libc::EINVAL);
    }
    let before = ACTIONS.get(signal);
    if act != 0 {
        let wanted = match actions::read(act) {
            Ok(wanted) => wanted,
            Err(result) => return result,
        };
        if bit(signal as i32) & RESERVED == 0 {
            let action = installed(signal as i32, &wanted, UNBLOCKED);
            // SAFETY: the wrapper may run anywhere; SIG_DFL and SIG_IGN run no code.
            if let Err(Errno(e)) = unsafe { sys::rt_sigaction(signal as i32, &action) } {
                return -i64::from(e);
            }
        }
        ACTIONS.set(signal, &wanted);
        if signal == libc::SIGTRAP as u64 {
            own_sigtrap::set_own_action(&wanted);
        }
    }
    // SAFETY: passed on from the caller.
    unsafe { actions::write(old, &before) }
}

/// The program's own call.
///
/// # Safety
/// `args` are the program's.
unsafe fn kernel_sigaction(mut args: [u64; 6]) -> i64 {
    (args[1], args[2]) = (program::kernel_address(args[1]), program::kernel_address(args[2]));
    // SAFETY: passed on from the caller.
    unsafe { sys::raw(libc::SYS_rt_sigaction, args) }
}

/// `rt_sigaction` of a child that borrows this memory: the kernel has actions of the child's own, those that it has inherited from the wrapper apart.
///
/// # Safety
/// The program's own call, its memory accessible.
pub unsafe fn sigaction_in_child(args: [u64; 6]) -> i64 {
    // No wrapper stands in front of the child's own handlers.
    alternate_stack::leave();
    // SAFETY: passed on from the caller.
    let result = unsafe { kernel_sigaction(args) };
    let [signal, _, old, ..] = args;
    if result == 0 && old != 0 {
        // SAFETY: the kernel has just written there.
        unsafe {
            let old = runtime_address(old).cast::<KernelSigaction>();
            if is_wrapper(&old.read_unaligned()) {
                old.write_unaligned(ACTIONS.get(signal));
            }
        }
    }
    result
}

/// `rt_sigaction` with one node: the handler of SIGTRAP is kept for the program, and no handler runs with SIGTRAP blocked.
///
/// # Safety
/// `args` are the program's.
pub unsafe fn sigaction_alone(args: [u64; 6]) -> i64 {
    let [signal, act, old, mask_bytes, ..] = args;
    if (situation::uses_tempest_alone() || memory_faults::keeps(signal)) && signal != libc::SIGTRAP as u64 {
        // SAFETY: passed on from the caller.
        return unsafe { sigaction_wrapped(args) };
    }
    if act == 0 && signal != libc::SIGTRAP as u64 || mask_bytes != 8 {
        // SAFETY: the program's own call.
        return unsafe { kernel_sigaction(args) };
    }
    let mut wanted = KernelSigaction::default();
    if act != 0 {
        // SAFETY: the program passes an action's address.
        wanted = unsafe { runtime_address(act).cast::<KernelSigaction>().read_unaligned() };
        wanted.mask &= !RESERVED_ALONE;
    }
    if signal != libc::SIGTRAP as u64 {
        // It would begin on the runtime's stack, or see it in its context.
        if wanted.flags & (libc::SA_ONSTACK | libc::SA_SIGINFO) as u64 != 0 && is_function(&wanted) {
            alternate_stack::yield_alone();
        }
        // SAFETY: the program's action, but for its mask.
        return unsafe {
            sys::raw(libc::SYS_rt_sigaction, [signal, &raw const wanted as u64, program::kernel_address(old), 8, 0, 0])
        };
    }
    let before = own_sigtrap::own_action();
    if act != 0 {
        own_sigtrap::set_own_action(&wanted);
    }
    if old != 0 {
        // SAFETY: the program passes room for an action.
        unsafe { runtime_address(old).cast::<KernelSigaction>().write_unaligned(before) };
    }
    0
}

/// `rt_sigaction` of any thread, but for SIGTRAP, where the wrapper stands in for handlers.
///
/// # Safety
/// `args` are the program's.
#[inline(never)]
unsafe fn sigaction_wrapped(args: [u64; 6]) -> i64 {
    let [signal, act, old, mask_bytes, ..] = args;
    let known = (1..=SIGNAL_MAX as u64).contains(&signal);
    if !known || act != 0 && bit(signal as i32) & FIXED != 0 || mask_bytes != 8 {
        // SAFETY: the program's own call, which the kernel refuses.
        return unsafe { kernel_sigaction(args) };
    }
    let number = signal as i32;
    let mut wanted = None;
    if act != 0 {
        match actions::read(act) {
            Ok(action) => wanted = Some(KernelSigaction { mask: action.mask & !(FIXED | RESERVED_ALONE), ..action }),
            Err(result) => return result,
        }
    }
    let exchanged = match &wanted {
        None => current(number).map(|kernel| (kernel, ACTIONS.get(signal))),
        // Made from this process, perhaps with its memory: what it sets is its own.
        Some(wanted) if is_apart(number) => {
            // SAFETY: the program's action.
            unsafe { sys::rt_sigaction(number, wanted) }.map(|kernel| (kernel, ACTIONS.get(signal)))
        }
        Some(wanted) => ACTIONS.locked(|| exchange(number, wanted)),
    };
    let (kernel, recorded) = match exchanged {
        Ok(before) => before,
        Err(Errno(e)) => return -i64::from(e),
    };
    let before = if is_wrapper(&kernel) { recorded } else { kernel };
    // SAFETY: passed on from the caller.
    unsafe { actions::write(old, &before) }
}

/// The kernel's action.
fn current(signal: i32) -> sys::Result<KernelSigaction> {
    let mut action = KernelSigaction::default();
    let args = [signal as u64, 0, &raw mut action as u64, 8, 0, 0];
    // SAFETY: the kernel fills the structure.
    unsafe { sys::call(libc::SYS_rt_sigaction, args) }.map(|_| action)
}

/// Installs an action; what the kernel had, and what was recorded. The record comes first: the wrapper may run at once, on another thread.
fn exchange(signal: i32, wanted: &KernelSigaction) -> sys::Result<(KernelSigaction, KernelSigaction)> {
    let recorded = ACTIONS.get(signal as u64);
    let installed = installed(signal, wanted, UNBLOCKED_ALONE);
    if is_wrapper(&installed) {
        ACTIONS.set(signal as u64, wanted);
    }
    // SAFETY: the wrapper may run anywhere; SIG_DFL and SIG_IGN run no code.
    let done = unsafe { sys::rt_sigaction(signal, &installed) };
    if done.is_err() {
        ACTIONS.set(signal as u64, &recorded);
    }
    done.map(|kernel| (kernel, recorded))
}

/// Wraps the handlers that the program has, on the thread that starts `tempest.h` in a run of one node. `then` runs before another thread changes one.
pub fn wrap_all(then: impl FnOnce(&mut u64)) {
    ACTIONS.locked_with_mask(|mask| {
        for signal in (1..=SIGNAL_MAX as i32).filter(|&s| bit(s) & (FIXED | RESERVED_ALONE) == 0) {
            let Ok(action) = current(signal) else { continue };
            if is_function(&action) && !is_wrapper(&action) {
                ACTIONS.set(signal as u64, &action);
                // SAFETY: the wrapper may run anywhere.
                let _ = unsafe { sys::rt_sigaction(signal, &installed(signal, &action, UNBLOCKED_ALONE)) };
            }
        }
        then(mask);
    });
}

/// Stands in front of a SIGSEGV that the program ignores, once untested accesses may fault.
pub fn wrap_ignored() {
    if let Ok(action) = current(libc::SIGSEGV)
        && action.handler == SIG_IGN
    {
        let _ = exchange(libc::SIGSEGV, &action);
    }
}

/// In a child, where nothing untested faults any more, or in front of another program: a SIGSEGV that the program ignores is the kernel's to ignore.
pub fn leave_ignored() {
    if cfg!(feature = "guard")
        && ACTIONS.get(libc::SIGSEGV as u64).handler == SIG_IGN
        && current(libc::SIGSEGV).is_ok_and(|action| is_wrapper(&action))
    {
        let ignored = KernelSigaction { handler: SIG_IGN, flags: sys::SA_RESTORER, ..DEFAULT };
        // SAFETY: ignoring runs no code.
        let _ = unsafe { sys::rt_sigaction(libc::SIGSEGV, &ignored) };
    }
}

/// `rt_sigprocmask` as the program calls it, on the mask that it continues with. A pointer that leads nowhere is told of as the kernel does.
///
/// # Safety
/// The arguments are the program's.
pub unsafe fn sigprocmask(current: &mut u64, [how, set, old, mask_bytes, ..]: [u64; 6], reserved: u64) -> i64 {
    if mask_bytes != 8 {
        return -i64::from(libc::EINVAL);
    }
    let mut wanted = [0; 8];
    if set != 0 && program::read(set, &mut wanted).is_err() {
        return -i64::from(libc::EFAULT);
    }
    let wanted = u64::from_ne_bytes(wanted);
    let unblockable = reserved | FIXED;
    let replaced = sent::with_mask(current, |mask| {
        let before = *mask;
        if set != 0 {
            *mask = !unblockable
                & match how as i32 {
                    libc::SIG_BLOCK => before | wanted,
                    libc::SIG_UNBLOCK => before & !wanted,
                    libc::SIG_SETMASK => wanted,
                    _ => return None,
                };
        }
        Some(before)
    });
    let Some(before) = replaced else { return -i64::from(libc::EINVAL) };
    // SAFETY: the program says that it may be written there.
    if old != 0 && unsafe { program::write(old, &before.to_ne_bytes()) }.is_err() {
        return -i64::from(libc::EFAULT);
    }
    0
}

/// `rt_sigprocmask` with one node, where the kernel keeps the mask; `None`: the program makes the call.
///
/// # Safety
/// The arguments are the program's.
pub unsafe fn sigprocmask_alone([how, set, old, mask_bytes, ..]: [u64; 6]) -> Option<i64> {
    // Unblocking takes nothing away; a mask of another size is the kernel's to refuse, and so is one that is not mapped.
    if set == 0 || mask_bytes != 8 || how == libc::SIG_UNBLOCK as u64 {
        return None;
    }
    let mut wanted = [0; 8];
    program::read(set, &mut wanted).ok()?;
    let wanted = u64::from_ne_bytes(wanted) & !RESERVED_ALONE;
    // SAFETY: a copy of the program's mask; the kernel writes the old one where the program says.
    Some(unsafe {
        sys::raw(libc::SYS_rt_sigprocmask, [how, &raw const wanted as u64, program::kernel_address(old), 8, 0, 0])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_calls::signals::actions::SIG_DFL;

    #[test]
    fn masks_never_block_the_runtimes_signals() {
        let mut mask = 0x10;
        let (set, mut old) = (u64::MAX, 0u64);
        let (set_at, old_at) = (&raw const set as u64, &raw mut old as u64);
        // SAFETY: live words, and addresses where nothing is.
        let call = |mask: &mut u64, how: i32, set: u64, old: u64, bytes: u64| unsafe {
            sigprocmask(mask, [how as u64, set, old, bytes, 0, 0], RESERVED)
        };
        assert_eq!(call(&mut mask, libc::SIG_SETMASK, set_at, old_at, 8), 0);
        assert_eq!(old, 0x10);
        assert_eq!(mask & (RESERVED | bit(libc::SIGKILL)), 0);
        assert_ne!(mask & bit(libc::SIGINT), 0);
        assert_eq!(call(&mut mask, libc::SIG_UNBLOCK, set_at, 0, 8), 0);
        assert_eq!(mask, 0);
        assert_eq!(call(&mut mask, 77, set_at, 0, 8), -i64::from(libc::EINVAL));
        assert_eq!(call(&mut mask, 0, 0, old_at, 16), -i64::from(libc::EINVAL));
        assert_eq!(call(&mut mask, 77, 0, old_at, 8), 0, "only asked: the operation does not matter");
        // As the kernel: nothing is changed where the new mask cannot be read, and all of it where the old one cannot be written.
        assert_eq!(call(&mut mask, libc::SIG_SETMASK, 8, old_at, 8), -i64::from(libc::EFAULT));
        assert_eq!(mask, 0);
        assert_eq!(call(&mut mask, libc::SIG_SETMASK, set_at, 8, 8), -i64::from(libc::EFAULT));
        assert_ne!(mask & bit(libc::SIGINT), 0);
    }

    #[test]
    fn reserved_signals_are_recorded_but_not_installed() {
        let ours = KernelSigaction::default();
        // SAFETY: queries only, then an action that only the table sees.
        unsafe {
            let mut before = ours;
            let wanted = KernelSigaction { handler: 0x1234, flags: 4, restorer: 0, mask: RESERVED | 1 };
            let sigsys = libc::SIGSYS as u64;
            let set = |signal, act, old| sigaction([signal, act, old, 8, 0, 0]);
            assert_eq!(set(sigsys, &raw const wanted as u64, &raw mut before as u64), 0);
            assert_eq!(before.handler, SIG_DFL);
            assert_eq!(set(sigsys, 0, &raw mut before as u64), 0);
            assert_eq!(before, wanted, "the program reads back what it set");
            assert_eq!(set(65, 0, 0), -i64::from(libc::EINVAL));
            assert_eq!(set(libc::SIGKILL as u64, &raw const wanted as u64, 0), -i64::from(libc::EINVAL));
        }
    }

    #[test]
    fn sigtrap_is_kept_for_the_program_but_not_installed() {
        let before = own_sigtrap::own_action();
        let wanted = KernelSigaction { handler: 0x1234, flags: 4, restorer: 0, mask: RESERVED_ALONE | 1 };
        let mut old = KernelSigaction::default();
        // SAFETY: live structures; SIGTRAP's handler stays what it is.
        unsafe {
            let set = |act: u64, old: u64| sigaction_alone([libc::SIGTRAP as u64, act, old, 8, 0, 0]);
            assert_eq!(set(&raw const wanted as u64, 0), 0);
            assert_eq!(set(0, &raw mut old as u64), 0);
        }
        assert_eq!(old, KernelSigaction { mask: 1, ..wanted });
        own_sigtrap::set_own_action(&before);
    }

    #[test]
    fn no_mask_of_the_program_blocks_sigtrap() {
        let (set, mut old) = (bit(libc::SIGTRAP) | bit(libc::SIGUSR2), 0u64);
        let call = |how: i32, set: u64, old: u64| {
            // SAFETY: live words.
            unsafe { sigprocmask_alone([how as u64, set, old, 8, 0, 0]) }
        };
        assert_eq!(call(libc::SIG_BLOCK, &raw const set as u64, 0), Some(0));
        let mask = sys::signal_mask();
        assert_eq!(mask & set, bit(libc::SIGUSR2));
        let empty = 0u64;
        assert_eq!(call(libc::SIG_SETMASK, &raw const empty as u64, &raw mut old as u64), Some(0));
        assert_eq!(old, mask);
        assert_eq!(call(libc::SIG_UNBLOCK, &raw const set as u64, 0), None);
        assert_eq!(call(libc::SIG_BLOCK, 8, 0), None, "the kernel refuses what is not mapped");
    }
}
