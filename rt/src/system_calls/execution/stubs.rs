//! The instructions that execute the program's system calls.
//!
//! Purpose: a gated call does not run inside the signal handler: the handler prepares the registers and lets the program's context continue
//! at one of these stubs, which lie in the runtime's text, where Syscall User Dispatch lets calls through. So blocking calls
//! are interrupted and restarted by signals exactly as in the original program.
//! Contract: rax = number, rdi rsi rdx r10 r8 r9 = arguments, rcx = where the program continues, r11 = a signal mask
//! (mask stubs only). The changed stub executes the call with the arguments of [`NEW_ARGUMENTS`] and gives the program its own back. Where the kernel has
//! other addresses than the program, it enters the runtime behind the call if something is to be given back ([`give_back_behind`]). Plain and
//! changed stub say afterwards that the node is out of the kernel. A `syscall` instruction clobbers rcx and r11, so the program expects nothing in them.
//! Clobbers: rcx, r11 (`create` also sets rax, the number); no flag changes (`lea`, `push`, `mov`, `jrcxz` write none). Each works below the red zone and gives
//! the stack back with its `ret`. The own stub leads to the program's own `syscall`.
//! Source: Linux `kernel/entry/syscall_user_dispatch.c`; psABI 3.2.2 (red zone) and A.2.1.

use crate::kernel::owned::{PerProcess, PerThread};
use crate::kernel::ucontext::{
    REG_R8, REG_R9, REG_R10, REG_R11, REG_RAX, REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP, Ucontext,
};
use crate::libraries::modules::MODULES;
use crate::memory::access_control::program;
use crate::system_calls::execution::put_off::PUT_OFF;
use crate::system_calls::execution::situation;
use crate::system_calls::table::copies::COPIED;
use blizzard_contract as contract;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Bytes of the `syscall` instruction.
pub const SYSCALL_BYTES: u64 = 2;
/// Bytes of the red zone.
pub const RED_ZONE: u64 = 128;

/// Where the program continues after `vfork`: the child runs on the parent's stack and overwrites what lies below it, so the
/// return address cannot stay there. One thread per process whenever this gate is active.
pub static VFORK_RETURN: PerThread<AtomicU64> = PerThread::new(AtomicU64::new(0));

/// How far in front of where the program continues a stub goes back to, negative: its own `syscall`, which is dispatched, or the sequence that enters the gate.
static BACK: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(SYSCALL_BYTES.wrapping_neg()));

/// Nothing is dispatched: who goes back goes back to the sequence that enters the gate.
pub fn lead_to_the_gate() {
    BACK.store(contract::SYSCALL_SEQUENCE_BYTES.wrapping_neg(), Ordering::Relaxed);
}

/// What the changed stub adds to the call's result: bytes that calls before it have transferred. An error then counts for nothing. The stub makes it 0 when
/// the call is over.
pub static DONE_BEFORE: PerThread<AtomicU64> = PerThread::new(AtomicU64::new(0));

/// The arguments of the changed stub.
pub static NEW_ARGUMENTS: PerThread<[AtomicU64; 6]> = PerThread::new([const { AtomicU64::new(0) }; 6]);

/// Address of the word that says what this node does, where the stubs write that it is out of the kernel. Elsewhere before a node runs.
static ACTIVITY: PerProcess<AtomicPtr<u32>> = PerProcess::new(AtomicPtr::new((&raw const IDLE_WORD).cast_mut().cast()));
static IDLE_WORD: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new(0));

/// Tells where the node's word is.
pub fn set_activity(word: *mut u32) {
    ACTIVITY.store(word, Ordering::Relaxed);
}

/// A label that the code names.
macro_rules! named {
    ($name:literal) => {
        concat!(".hidden blizzard_", $name, "\n.globl blizzard_", $name, "\nblizzard_", $name, ":")
    };
}

/// A signal that was put off since the gate let the last ones in must not wait behind a call that blocks: then the program goes back to where the gate is
/// entered, which lets it in. Else on at label 2. This is where the address is on the stack.
macro_rules! look_behind_push {
    () => {
        "mov rcx, [rip + {put_off} + {apart}]
         jrcxz 2f
         mov r11, [rip + {back}]
         pop rcx
         lea rsp, [rsp + 128]
         lea rcx, [rcx + r11]
         jmp rcx"
    };
}

/// The same where it is in r11.
macro_rules! look {
    () => {
        "mov rcx, [rip + {put_off} + {apart}]
         jrcxz 2f
         mov rcx, [rip + {back}]
         lea rcx, [r11 + rcx]
         jmp rcx"
    };
}

/// Behind a call in the changed stub: the runtime is entered if something comes back. It may change rax.
#[cfg(any(test, feature = "guard"))]
macro_rules! look_behind_call {
    () => {
        "mov rcx, [rip + {behind}]
         jrcxz 5f
         call rcx
         5:"
    };
}

/// The kernel has the program's addresses: nothing comes back.
#[cfg(not(any(test, feature = "guard")))]
macro_rules! look_behind_call {
    () => {
        "/* {behind} */"
    };
}

core::arch::global_asm!(
    ".pushsection .text.blizzard_stubs, \"ax\", @progbits",
    ".balign 16",
    named!("stubs_start"),
    // Any call.
    named!("stub_plain"),
    // For debuggers: the caller is the program, behind its `syscall`.
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    ".cfi_register rip, rcx",
    "lea rsp, [rsp - 128]",
    ".cfi_def_cfa rsp, 128",
    named!("stub_plain_push"),
    "push rcx",
    ".cfi_def_cfa rsp, 136",
    ".cfi_offset rip, -136",
    named!("stub_plain_look"),
    look_behind_push!(),
    named!("stub_plain_syscall"),
    "2: syscall",
    named!("stub_plain_after"),
    "mov rcx, [rip + {activity}]",
    named!("stub_plain_final"),
    "mov dword ptr [rcx], 0",
    "ret 128",
    ".cfi_endproc",
    // A call with other arguments than the program's, which come back afterwards. Interrupted before the call it is prepared again, so
    // nobody else uses the new arguments meanwhile.
    named!("stub_changed"),
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    ".cfi_register rip, rcx",
    "lea rsp, [rsp - 128]",
    ".cfi_def_cfa rsp, 128",
    named!("stub_changed_push"),
    "push rcx",
    ".cfi_def_cfa rsp, 136",
    ".cfi_offset rip, -136",
    named!("stub_changed_look"),
    look_behind_push!(),
    named!("stub_changed_save"),
    "2: lea rsp, [rsp - 56]",
    ".cfi_def_cfa rsp, 192",
    named!("stub_changed_stores"),
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], r10",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    "mov r11, [rip + {done_before}]",
    "mov [rsp + 48], r11",
    named!("stub_changed_loads"),
    "mov rdi, [rip + {arguments}]",
    "mov rsi, [rip + {arguments} + 8]",
    "mov rdx, [rip + {arguments} + 16]",
    "mov r10, [rip + {arguments} + 24]",
    "mov r8, [rip + {arguments} + 32]",
    "mov r9, [rip + {arguments} + 40]",
    named!("stub_changed_syscall"),
    "syscall",
    named!("stub_changed_after"),
    "mov rcx, [rip + {activity}]",
    named!("stub_changed_final"),
    "mov dword ptr [rcx], 0",
    look_behind_call!(),
    named!("stub_changed_given"),
    "mov qword ptr [rip + {done_before}], 0",
    "mov rcx, [rsp + 48]",
    "jrcxz 3f",
    "pushfq",
    "test rax, rax",
    "js 4f",
    "lea rcx, [rcx + rax]",
    "4: mov rax, rcx",
    "popfq",
    "3: mov rdi, [rsp]",
    "mov rsi, [rsp + 8]",
    "mov rdx, [rsp + 16]",
    "mov r10, [rsp + 24]",
    "mov r8, [rsp + 32]",
    "mov r9, [rsp + 40]",
    "lea rsp, [rsp + 56]",
    ".cfi_def_cfa rsp, 136",
    "ret 128",
    ".cfi_endproc",
    // The same in a child of vfork. It goes back to nothing: what is put off waits for the next call.
    named!("stub_child"),
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    ".cfi_register rip, rcx",
    "lea rsp, [rsp - 128]",
    ".cfi_def_cfa rsp, 128",
    named!("stub_child_push"),
    "push rcx",
    ".cfi_def_cfa rsp, 136",
    ".cfi_offset rip, -136",
    named!("stub_child_go"),
    "jmp blizzard_stub_changed_save",
    ".cfi_endproc",
    // The program's own `syscall`, in a run that dispatches nothing: for calls whose child continues on another stack.
    named!("stub_own"),
    "mov r11, rcx",
    named!("stub_own_look"),
    look!(),
    named!("stub_own_go"),
    "2: lea r11, [r11 - 2]",
    named!("stub_own_jump"),
    "jmp r11",
    // Calls with a signal mask, where threads exist: r11 lands at (program's rsp) - 136, where the handler made the argument point.
    named!("stub_mask"),
    "lea rsp, [rsp - 128]",
    "push r11",
    "push rcx",
    "syscall",
    "ret 136",
    // pselect6: the mask at rsp - 136, and at rsp - 152 the pair of its address and its size.
    named!("stub_pselect"),
    "lea rsp, [rsp - 128]",
    "push r11",
    "push 8",
    "lea r11, [rsp + 8]",
    "push r11",
    "push rcx",
    "syscall",
    "ret 152",
    // fork, and clone without CLONE_VM: the child leaves the run before it returns to the program.
    named!("stub_fork"),
    "lea rsp, [rsp - 128]",
    "push rcx",
    "syscall",
    "mov rcx, rax",
    "jrcxz 2f",
    "ret 128",
    "2: call qword ptr [rip + {children}]",
    "ret 128",
    // fork or clone that creates a node: always clone, since its flags are the runtime's. The child becomes the node.
    named!("stub_create"),
    "lea rsp, [rsp - 128]",
    "push rcx",
    "mov eax, {clone}",
    "syscall",
    "mov rcx, rax",
    "jrcxz 2f",
    "ret 128",
    "2: call qword ptr [rip + {children} + 8]",
    "ret 128",
    // vfork: nothing below the program's stack pointer survives the child, which must not find blocked what was put off.
    named!("stub_vfork"),
    "mov r11, rcx",
    named!("stub_vfork_look"),
    look!(),
    named!("stub_vfork_syscall"),
    "2: syscall",
    "jmp qword ptr [rip + {vfork_return}]",
    // rt_sigreturn: rsp is at the signal frame.
    named!("stub_sigreturn"),
    "syscall",
    "ud2",
    named!("stubs_end"),
    ".popsection",
    children = sym CHILD_ENTRIES,
    clone = const libc::SYS_clone,
    vfork_return = sym VFORK_RETURN,
    put_off = sym PUT_OFF,
    apart = const crate::kernel::unaliased::OFFSET_BYTES,
    back = sym BACK,
    activity = sym ACTIVITY,
    arguments = sym NEW_ARGUMENTS,
    done_before = sym DONE_BEFORE,
    behind = sym BEHIND,
);

/// Where the changed stub enters the runtime behind the call that is being made; 0: not at all.
static BEHIND: PerThread<AtomicU64> = PerThread::new(AtomicU64::new(0));
/// Where it does if something comes back.
static BEHIND_ENTRY: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));

/// Says where; before the program runs.
pub fn set_behind_entry(entry: u64) {
    BEHIND_ENTRY.store(entry, Ordering::Relaxed);
}

/// Whether something comes back behind the next call of the changed stub.
pub fn give_back_behind(something: bool) {
    if COPIED {
        BEHIND.store(if something { BEHIND_ENTRY.load(Ordering::Relaxed) } else { 0 }, Ordering::Relaxed);
    }
}

/// Where a child of `fork` enters the runtime before it returns from its call, and where one that is a node does.
static CHILD_ENTRIES: PerProcess<[AtomicU64; 2]> = PerProcess::new([const { AtomicU64::new(0) }; 2]);

/// Says where; before the program runs.
pub fn set_child_entries(entries: [u64; 2]) {
    for (word, entry) in CHILD_ENTRIES.iter().zip(entries) {
        word.store(entry, Ordering::Relaxed);
    }
}

unsafe extern "C" {
    static blizzard_stubs_start: u8;
    static blizzard_stub_plain: u8;
    static blizzard_stub_plain_push: u8;
    static blizzard_stub_plain_look: u8;
    static blizzard_stub_plain_syscall: u8;
    static blizzard_stub_plain_after: u8;
    static blizzard_stub_plain_final: u8;
    static blizzard_stub_changed: u8;
    static blizzard_stub_changed_push: u8;
    static blizzard_stub_changed_look: u8;
    static blizzard_stub_changed_save: u8;
    static blizzard_stub_changed_stores: u8;
    static blizzard_stub_changed_loads: u8;
    static blizzard_stub_changed_syscall: u8;
    static blizzard_stub_changed_after: u8;
    static blizzard_stub_changed_final: u8;
    static blizzard_stub_changed_given: u8;
    static blizzard_stub_child: u8;
    static blizzard_stub_child_push: u8;
    static blizzard_stub_child_go: u8;
    static blizzard_stub_own: u8;
    static blizzard_stub_own_look: u8;
    static blizzard_stub_own_go: u8;
    static blizzard_stub_own_jump: u8;
    static blizzard_stub_mask: u8;
    static blizzard_stub_pselect: u8;
    static blizzard_stub_fork: u8;
    static blizzard_stub_create: u8;
    static blizzard_stub_vfork: u8;
    static blizzard_stub_vfork_look: u8;
    static blizzard_stub_vfork_syscall: u8;
    static blizzard_stub_sigreturn: u8;
    static blizzard_stubs_end: u8;
}

/// How a call is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stub {
    Plain,
    Changed,
    /// The changed stub in a child of `vfork`.
    Child,
    Own,
    Mask,
    Pselect,
    Fork,
    /// A fork whose child is a node; the number in rax does not matter.
    Create,
    Vfork,
    Sigreturn,
}

impl Stub {
    /// Address of its first instruction.
    pub fn address(self) -> u64 {
        let at = match self {
            Stub::Plain => &raw const blizzard_stub_plain,
            Stub::Changed => &raw const blizzard_stub_changed,
            Stub::Child => &raw const blizzard_stub_child,
            Stub::Own => &raw const blizzard_stub_own,
            Stub::Mask => &raw const blizzard_stub_mask,
            Stub::Pselect => &raw const blizzard_stub_pselect,
            Stub::Fork => &raw const blizzard_stub_fork,
            Stub::Create => &raw const blizzard_stub_create,
            Stub::Vfork => &raw const blizzard_stub_vfork,
            Stub::Sigreturn => &raw const blizzard_stub_sigreturn,
        };
        at as u64
    }
}

/// Whether `at` lies in a stub.
pub fn contains(at: u64) -> bool {
    (&raw const blizzard_stubs_start as u64..&raw const blizzard_stubs_end as u64).contains(&at)
}

/// How far a call has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStage {
    /// The kernel has not seen it, or will be asked again because it wants to restart it.
    Before,
    /// It has just returned; the result is in rax.
    After,
}

/// Where a context stopped in the plain, the changed, the child's, the own or the vfork stub; `None` anywhere else, and where the result is on its way to the program.
pub fn stage(rip: u64) -> Option<CallStage> {
    let at = |label: &u8| label as *const u8 as u64;
    // SAFETY: labels of the stubs; only their addresses are used.
    let (starts, calls, afters) = unsafe {
        (
            [
                &blizzard_stub_plain,
                &blizzard_stub_changed,
                &blizzard_stub_child,
                &blizzard_stub_own,
                &blizzard_stub_vfork,
            ]
            .map(at),
            [
                &blizzard_stub_plain_syscall,
                &blizzard_stub_changed_syscall,
                &blizzard_stub_child_go,
                &blizzard_stub_own_jump,
                &blizzard_stub_vfork_syscall,
            ]
            .map(at),
            [&blizzard_stub_plain_after, &blizzard_stub_changed_after].map(at),
        )
    };
    if afters.contains(&rip) {
        return Some(CallStage::After);
    }
    let before = (0..starts.len()).any(|stub| (starts[stub]..=calls[stub]).contains(&rip));
    // Between the look and the call a stub may be on its way back to the program's own `syscall`: nothing has to be done then.
    (before && !is_going_back(rip)).then_some(CallStage::Before)
}

/// Whether `rip` is between `jrcxz` and the end of the way back, where the stack is being given back.
fn is_going_back(rip: u64) -> bool {
    // `mov rcx, [rip + disp32]` has 7 bytes, `jrcxz` 2.
    const LOOK_BYTES: u64 = 9;
    let ways = [
        &raw const blizzard_stub_plain_look as u64 + LOOK_BYTES..&raw const blizzard_stub_plain_syscall as u64,
        &raw const blizzard_stub_changed_look as u64 + LOOK_BYTES..&raw const blizzard_stub_changed_save as u64,
        &raw const blizzard_stub_own_look as u64 + LOOK_BYTES..&raw const blizzard_stub_own_go as u64,
        &raw const blizzard_stub_vfork_look as u64 + LOOK_BYTES..&raw const blizzard_stub_vfork_syscall as u64,
    ];
    ways.iter().any(|way| way.contains(&rip))
}

/// Takes a context with a [`CallStage`] back to where the program makes its call, with the registers that the program made the call with. rax
/// is left alone.
///
/// # Safety
/// The context is a real one: its stack pointer belongs to its instruction.
pub unsafe fn rewind(context: &mut Ucontext) {
    let g = &mut context.gregs;
    let (rip, rsp) = (g[REG_RIP], g[REG_RSP]);
    let is = |label: *const u8| rip == label as u64;
    let own = (&raw const blizzard_stub_own_look as u64..=&raw const blizzard_stub_own_jump as u64).contains(&rip);
    let vfork = (&raw const blizzard_stub_vfork as u64..=&raw const blizzard_stub_vfork_syscall as u64).contains(&rip);
    let starts = [
        &raw const blizzard_stub_plain,
        &raw const blizzard_stub_changed,
        &raw const blizzard_stub_child,
        &raw const blizzard_stub_own,
    ];
    let pushes = [
        &raw const blizzard_stub_plain_push,
        &raw const blizzard_stub_changed_push,
        &raw const blizzard_stub_child_push,
    ];
    let frame = if vfork {
        // Whether the kernel wants to restart the call does not matter: then r11 is lost.
        g[REG_RCX] = VFORK_RETURN.load(Ordering::Relaxed);
        None
    } else if starts.into_iter().any(is) {
        None
    } else if own {
        g[REG_RCX] = g[REG_R11] + if is(&raw const blizzard_stub_own_jump) { SYSCALL_BYTES } else { 0 };
        None
    } else if pushes.into_iter().any(is) {
        g[REG_RSP] = rsp + RED_ZONE;
        None
    } else if (&raw const blizzard_stub_changed_stores as u64..).contains(&rip)
        && rip <= &raw const blizzard_stub_changed_after as u64
    {
        if rip >= &raw const blizzard_stub_changed_loads as u64 {
            for (word, register) in (0..).zip([REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9]) {
                // SAFETY: the stub has stored the program's registers there.
                g[register] = unsafe { (rsp as *const u64).add(word).read() };
            }
        }
        Some(rsp + 56)
    } else {
        Some(rsp)
    };
    let after = match frame {
        None => g[REG_RCX],
        Some(at) => {
            g[REG_RSP] = at + 8 + RED_ZONE;
            // SAFETY: the stub has pushed where the program continues.
            unsafe { (at as *const u64).read() }
        }
    };
    // Calls of a child are not dispatched: it goes back to the sequence that enters the gate.
    let in_child = situation::is_in_vfork_child();
    let back = if in_child { contract::SYSCALL_SEQUENCE_BYTES.wrapping_neg() } else { BACK.load(Ordering::Relaxed) };
    g[REG_RIP] = after.wrapping_add(back);
    if COPIED {
        // Of a call that starts a process the registers hold what the kernel was to be given.
        for register in [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9] {
            g[register] = program::program_address(g[register]);
        }
    }
}

/// Whether a context stands in the changed stub behind the call, where what comes back may not have come yet: the result is in rax.
pub fn is_giving_back(rip: u64) -> bool {
    let (after, given) = (&raw const blizzard_stub_changed_after as u64, &raw const blizzard_stub_changed_given as u64);
    COPIED && (after..given).contains(&rip)
}

/// Whether the context stands at a `syscall` of the program's own, behind the gate: then it goes back to the gate.
///
/// # Safety
/// The context stopped in code.
pub unsafe fn rewind_own_call(context: &mut Ucontext) -> bool {
    let begin = context.gregs[REG_RIP].wrapping_sub(contract::SYSCALL_SEQUENCE_BYTES - SYSCALL_BYTES);
    // SAFETY: passed on from the caller.
    let found = situation::uses_tempest_alone() && unsafe { is_own_call(begin, context.gregs[REG_RIP]) };
    if found {
        context.gregs[REG_RIP] = begin;
    }
    found
}

/// Whether the context stands right behind a `syscall` of the program's own, where no access relies on a tag.
///
/// # Safety
/// The context stopped in code.
pub unsafe fn is_behind_own_call(context: &Ucontext) -> bool {
    let at = context.gregs[REG_RIP];
    // SAFETY: passed on from the caller.
    unsafe { is_own_call(at.wrapping_sub(contract::SYSCALL_SEQUENCE_BYTES), at) }
}

/// Whether the sequence that enters the gate begins at `begin`; `at` is an address in it or right behind it.
///
/// # Safety
/// Where `at` is in new code, it can be read.
unsafe fn is_own_call(begin: u64, at: u64) -> bool {
    if !MODULES.in_new_code(begin) || !MODULES.in_new_code(at) {
        return false;
    }
    // SAFETY: new code of one module, from the one to the other.
    let bytes = unsafe { (begin as *const [u8; contract::SYSCALL_SEQUENCE_BYTES as usize]).read_unaligned() };
    let gate = (contract::GATE_SYSCALL as u32).to_le_bytes();
    let enters = bytes[..3] == [0x48, 0x8d, 0x0d] && bytes[7..10] == [0xff, 0x24, 0x25] && bytes[10..14] == gate;
    enters && bytes[14..] == [0x0f, 0x05]
}

/// Lets a context at [`CallStage::After`] go on so that nobody restarts its call any more.
pub fn finish(context: &mut Ucontext) {
    let g = &mut context.gregs;
    g[REG_RCX] = ACTIVITY.load(Ordering::Relaxed) as u64;
    g[REG_RIP] = if g[REG_RIP] == &raw const blizzard_stub_plain_after as u64 {
        &raw const blizzard_stub_plain_final as u64
    } else {
        &raw const blizzard_stub_changed_final as u64
    };
}

/// Whether `syscall` leaves rcx as it is, as processors with FRED do.
static KEEPS_RCX: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));

/// Finds that out.
pub fn look_at_the_processor() {
    let rcx: u64;
    // SAFETY: a call without arguments or effects.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") libc::SYS_getpid => _, inlateout("rcx") 0u64 => rcx, out("r11") _);
    }
    KEEPS_RCX.store(rcx == 0, Ordering::Relaxed);
}

/// Whether the kernel has begun the call of a context with a [`CallStage`]: it has returned, or is to be restarted. The look leaves 0 in rcx,
/// `syscall` the address behind it; where it leaves none, who stands at the very instruction counts.
pub fn has_been_in_kernel(context: &Ucontext) -> bool {
    let g = &context.gregs;
    let calls = [
        (&raw const blizzard_stub_plain_syscall, &raw const blizzard_stub_plain_after),
        (&raw const blizzard_stub_changed_syscall, &raw const blizzard_stub_changed_after),
    ];
    calls.into_iter().any(|(call, after)| {
        let restarts = g[REG_RCX] == after as u64 || KEEPS_RCX.load(Ordering::Relaxed);
        g[REG_RIP] == after as u64 || g[REG_RIP] == call as u64 && restarts
    })
}

/// Whether the call of a context at [`CallStage::After`] was interrupted.
pub fn is_interrupted(context: &Ucontext) -> bool {
    context.gregs[REG_RAX] as i64 == -i64::from(libc::EINTR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(rip: *const u8, rsp: u64, rcx: u64) -> Ucontext {
        let mut context =
            Ucontext { flags: 0, link: 0, stack: [0; 3], gregs: [0; 23], fpstate: 0, reserved: [0; 8], sigmask: 0 };
        context.gregs[REG_RIP] = rip as u64;
        context.gregs[REG_RSP] = rsp;
        context.gregs[REG_RCX] = rcx;
        context
    }

    /// The stub's statics are one call's.
    static CHANGED_STUB: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn contexts_in_the_stubs_rewind_to_the_programs_syscall() {
        // The changed stub's saved registers, what is done, and where the program continues.
        let stack = [1u64, 2, 3, 4, 5, 6, 0, 0x5002, 7];
        let low = stack.as_ptr() as u64;
        let pushed = low + 56;
        let rewound = |label: *const u8, rsp, rcx| {
            let mut context = context(label, rsp, rcx);
            // SAFETY: `stack` plays the stub's frame.
            unsafe { rewind(&mut context) };
            let g = &context.gregs;
            assert_eq!(g[REG_RIP], 0x5000);
            (g[REG_RSP], [g[REG_RDI], g[REG_RSI], g[REG_RDX], g[REG_R10], g[REG_R8], g[REG_R9]])
        };
        for (start, push, look) in [
            (&raw const blizzard_stub_plain, &raw const blizzard_stub_plain_push, &raw const blizzard_stub_plain_look),
            (
                &raw const blizzard_stub_changed,
                &raw const blizzard_stub_changed_push,
                &raw const blizzard_stub_changed_look,
            ),
        ] {
            assert_eq!(rewound(start, 0x9000, 0x5002).0, 0x9000);
            assert_eq!(rewound(push, 0x9000 - 128, 0x5002).0, 0x9000);
            // A signal between the look and the jump that depends on it comes before the call, too.
            for at in [look, look.wrapping_add(7)] {
                assert_eq!(rewound(at, pushed, 0).0, pushed + 136);
                assert_eq!(stage(at as u64), Some(CallStage::Before));
            }
            assert_eq!(stage(look as u64 + 9), None, "on its way back by itself");
        }
        for label in [&raw const blizzard_stub_plain_syscall, &raw const blizzard_stub_plain_after] {
            assert_eq!(rewound(label, pushed, 0), (pushed + 136, [0; 6]));
        }
        assert_eq!(rewound(&raw const blizzard_stub_changed_save, pushed, 0).0, pushed + 136);
        for (label, rsp) in [
            (&raw const blizzard_stub_child, 0x9000),
            (&raw const blizzard_stub_child_push, 0x9000 - 128),
            (&raw const blizzard_stub_child_go, pushed),
        ] {
            assert_eq!(stage(label as u64), Some(CallStage::Before));
            let program = if rsp == pushed { pushed + 136 } else { 0x9000 };
            assert_eq!(rewound(label, rsp, 0x5002).0, program);
        }
        assert_eq!(rewound(&raw const blizzard_stub_changed_stores, low, 0), (pushed + 136, [0; 6]));
        for label in [
            &raw const blizzard_stub_changed_loads,
            &raw const blizzard_stub_changed_syscall,
            &raw const blizzard_stub_changed_after,
        ] {
            assert_eq!(rewound(label, low, 0), (pushed + 136, [1, 2, 3, 4, 5, 6]));
        }
        // The own stub has the address behind the program's `syscall` in rcx, then in r11, at last that of the `syscall` there.
        for (label, rcx, r11) in [
            (&raw const blizzard_stub_own, 0x5002, 0),
            (&raw const blizzard_stub_own_look, 0x5002, 0x5002),
            (&raw const blizzard_stub_own_go, 0, 0x5002),
            (&raw const blizzard_stub_own_jump, 0, 0x5000),
        ] {
            let mut context = context(label, 0x9000, rcx);
            context.gregs[REG_R11] = r11;
            assert_eq!(stage(label as u64), Some(CallStage::Before));
            // SAFETY: nothing is on the stack.
            unsafe { rewind(&mut context) };
            assert_eq!((context.gregs[REG_RIP], context.gregs[REG_RSP]), (0x5000, 0x9000));
        }
        assert_eq!(stage(&raw const blizzard_stub_own_look as u64 + 9), None, "on its way back by itself");
        // The vfork stub has left it with the runtime; a call that the kernel wants to restart has lost r11.
        VFORK_RETURN.store(0x5002, Ordering::Relaxed);
        for label in [
            &raw const blizzard_stub_vfork,
            &raw const blizzard_stub_vfork_look,
            &raw const blizzard_stub_vfork_syscall,
        ] {
            assert_eq!(stage(label as u64), Some(CallStage::Before));
            assert_eq!(rewound(label, 0x9000, 7).0, 0x9000);
        }
        assert_eq!(stage(&raw const blizzard_stub_vfork_look as u64 + 9), None, "on its way back by itself");
        let (call, after) = (&raw const blizzard_stub_plain_syscall, &raw const blizzard_stub_plain_after);
        assert!(!has_been_in_kernel(&context(call, pushed, 0)));
        assert!(has_been_in_kernel(&context(call, pushed, after as u64)), "to be restarted");
        assert!(has_been_in_kernel(&context(after, pushed, 0)));
        let stages = [
            (&raw const blizzard_stub_plain_syscall, Some(CallStage::Before)),
            (&raw const blizzard_stub_plain_after, Some(CallStage::After)),
            (&raw const blizzard_stub_changed_after, Some(CallStage::After)),
            (&raw const blizzard_stub_plain_final, None),
            (&raw const blizzard_stub_changed_final, None),
            (&raw const blizzard_stub_mask, None),
        ];
        for (label, expected) in stages {
            assert_eq!(stage(label as u64), expected);
        }
        for (label, expected) in [
            (&raw const blizzard_stub_changed_syscall, false),
            (&raw const blizzard_stub_changed_after, true),
            (&raw const blizzard_stub_changed_final, true),
            (&raw const blizzard_stub_changed_given, false),
            (&raw const blizzard_stub_plain_final, false),
        ] {
            assert_eq!(is_giving_back(label as u64), expected);
        }
        assert!(contains(Stub::Plain.address()) && contains(Stub::Sigreturn.address()) && !contains(0x1000));
    }

    /// A call whose first argument is replaced: the program finds its own registers afterwards, and the node is out of the kernel.
    #[test]
    fn changed_arguments_come_back() {
        let _one_at_a_time = CHANGED_STUB.lock();
        let mut name = [0u8; 16];
        for (word, value) in NEW_ARGUMENTS.iter().zip([libc::PR_GET_NAME as u64, name.as_mut_ptr() as u64, 0, 0, 0, 0])
        {
            word.store(value, Ordering::Relaxed);
        }
        let mut doing = 3u32;
        set_activity(&mut doing);
        let (result, moved, a, b, c): (i64, u64, u64, u64, u64);
        // SAFETY: as in the test below; the call writes 16 bytes of `name`.
        unsafe {
            core::arch::asm!(
                "mov {rsp}, rsp",
                "lea rcx, [rip + 2f]",
                "jmp {stub}",
                "2: sub {rsp}, rsp",
                rsp = out(reg) moved,
                stub = in(reg) Stub::Changed.address(),
                inlateout("rax") libc::SYS_prctl => result,
                inlateout("rdi") 11u64 => a,
                inlateout("rsi") 12u64 => b,
                inlateout("r9") 13u64 => c,
                out("rcx") _,
                out("r11") _,
            );
        }
        set_activity(IDLE_WORD.as_ptr());
        assert_eq!((result, moved, a, b, c, doing), (0, 0, 11, 12, 13, 0));
        assert_ne!(name[0], 0);
    }

    /// Stands for the runtime behind a call: changes the result and nothing else.
    #[unsafe(naked)]
    unsafe extern "C" fn give_back() {
        core::arch::naked_asm!("lea rax, [rax + 7]", "ret")
    }

    /// The runtime is entered behind a call if something comes back, and changes the result.
    #[test]
    fn the_runtime_is_entered_behind_a_call() {
        let _one_at_a_time = CHANGED_STUB.lock();
        set_behind_entry(give_back as *const () as u64);
        for (something, more) in [(true, 7), (false, 0), (true, 7)] {
            give_back_behind(something);
            for (word, value) in NEW_ARGUMENTS.iter().zip([u64::MAX, 0, 0, 0, 0, 0]) {
                word.store(value, Ordering::Relaxed);
            }
            let mut doing = 3u32;
            set_activity(&mut doing);
            let (result, moved, fd, carry): (i64, u64, u64, u64);
            // SAFETY: as in the test above; the call closes nothing.
            unsafe {
                core::arch::asm!(
                    "mov {rsp}, rsp",
                    "lea rcx, [rip + 2f]",
                    "stc",
                    "jmp {stub}",
                    "2: sbb {carry}, {carry}",
                    "sub {rsp}, rsp",
                    rsp = out(reg) moved,
                    carry = out(reg) carry,
                    stub = in(reg) Stub::Changed.address(),
                    inlateout("rax") libc::SYS_close => result,
                    inlateout("rdi") 11u64 => fd,
                    out("rcx") _,
                    out("r11") _,
                );
            }
            set_activity(IDLE_WORD.as_ptr());
            assert_eq!((result, moved, fd, carry, doing), (more - i64::from(libc::EBADF), 0, 11, u64::MAX, 0));
        }
        give_back_behind(false);
    }

    /// The rest of a transfer: the program gets the sum, or, if the rest fails, what was done before; flags are the program's.
    #[test]
    fn what_was_done_before_is_added() {
        let call = |fd: i64, bytes: u64| {
            let words = [fd as u64, c"text".as_ptr() as u64, bytes, 0, 0, 0];
            for (word, value) in NEW_ARGUMENTS.iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
            DONE_BEFORE.store(1000, Ordering::Relaxed);
            let mut doing = 3u32;
            set_activity(&mut doing);
            let (result, carry): (i64, u64);
            // SAFETY: as in the test above; the call reads the text.
            unsafe {
                core::arch::asm!(
                    "lea rcx, [rip + 2f]",
                    "stc",
                    "jmp {stub}",
                    "2: sbb {carry}, {carry}",
                    stub = in(reg) Stub::Changed.address(),
                    carry = out(reg) carry,
                    inlateout("rax") libc::SYS_write => result,
                    out("rcx") _,
                    out("r11") _,
                );
            }
            set_activity(IDLE_WORD.as_ptr());
            assert_eq!((carry, DONE_BEFORE.load(Ordering::Relaxed)), (u64::MAX, 0));
            result
        };
        let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
        let _one_at_a_time = CHANGED_STUB.lock();
        assert_eq!(call(std::os::fd::AsRawFd::as_raw_fd(&null).into(), 4), 1004);
        assert_eq!(call(-1, 4), 1000);
    }

    /// Calls a stub as the handler's sigreturn would enter it: getpid through `stub`, and the stack pointer must come back.
    #[test]
    fn the_stubs_call_the_kernel_and_give_the_stack_back() {
        for stub in [Stub::Plain, Stub::Mask, Stub::Pselect] {
            let (pid, moved): (u64, u64);
            // SAFETY: the stub works below the red zone, returns to label 2 with the stack pointer unchanged, and clobbers
            // what `syscall` clobbers.
            unsafe {
                core::arch::asm!(
                    "mov {rsp}, rsp",
                    "lea rcx, [rip + 2f]",
                    "jmp {stub}",
                    "2: sub {rsp}, rsp",
                    rsp = out(reg) moved,
                    stub = in(reg) stub.address(),
                    inlateout("rax") libc::SYS_getpid as u64 => pid,
                    out("rcx") _,
                    out("r11") _,
                );
            }
            assert_eq!((pid as u32, moved), (std::process::id(), 0), "{stub:?}");
        }
    }
}
