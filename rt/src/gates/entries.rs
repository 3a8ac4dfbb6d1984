//! The gates: where rewritten code enters the runtime.
//!
//! Purpose: save everything the caller may have live, run the Rust half, put everything back. Input: the stack arguments that
//! the contract describes. Output: none but the effect; [`string`] alone changes rax, rcx, rsi, rdi and the flags, as its
//! instruction does.
//! **Invariants**
//! * Everything lives on the caller's stack: so several threads of a one-node run can be inside.
//! * General registers and rflags (DF included) are saved and restored here; xmm0-15 with legacy SSE moves, which leave
//!   the upper halves of ymm and zmm alone; the blob contains no instruction that changes AVX, x87 or MMX state (a test of the rewriter decodes it),
//!   so k0-7, zmm16-31, the upper halves and the x87 stack stay as they are.
//! * The direction flag is clear and rsp is 16-byte aligned when Rust code runs; neither is assumed at entry.
//!
//! Source: psABI 3.2.1 (call-saved registers, stack alignment); SDM volume 2 (PUSHF).

use crate::gates::notes::{note, note_for_handlers};
use crate::gates::{gathers, shared_stack, strings};
use crate::kernel::xsave;
use crate::node::access::Lane;
use crate::process::accesses;
use crate::process::frame::{Frame, RAX, RED_ZONE, restore, save};
use crate::process::groups::require_group;
use crate::process::process::{self, RunKind};
use crate::process::tags;
use crate::system_calls::execution::given;
use crate::system_calls::execution::put_off;
use crate::system_calls::gate::{dispatch, one_node, several_nodes};
use crate::system_calls::signals::{learnt, memory_faults, plain_again, safe_points};
use crate::system_calls::table::copies::COPIED;
use crate::system_calls::table::taken;
use blizzard_contract::miss_desc;
use core::arch::naked_asm;

macro_rules! miss_gate {
    ($(#[$doc:meta])* $name:ident, $rust:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                save!(),
                "lea rdi, [rbp - 8]",
                "call {rust}",
                restore!(),
                "ret 16", // the descriptor and the address
                ".cfi_endproc",
                rust = sym $rust,
            )
        }
    };
}

miss_gate! {
    /// `GATE_MISS`: on return every block of the range allows the access. Clobbers nothing.
    ///
    /// # Safety
    /// Called from rewritten code with the two stack arguments of [`miss_desc`].
    miss, on_miss
}

miss_gate! {
    /// [`miss`] in a run with fewer processors than nodes.
    ///
    /// # Safety
    /// As [`miss`].
    miss_crowded, on_miss_crowded
}

miss_gate! {
    /// [`miss`] in a run whose accesses are looked at.
    ///
    /// # Safety
    /// As [`miss`].
    miss_watched, on_miss_watched
}

/// `GATE_POLL`: runs what waits behind the doorbell. Clobbers nothing.
///
/// # Safety
/// Called from rewritten code.
#[unsafe(naked)]
pub unsafe extern "C" fn poll() {
    naked_asm!(
        ".cfi_startproc",
        save!(),
        "lea rdi, [rbp - 8]",
        "mov rsi, rbx",
        "call {rust}",
        restore!(),
        "ret",
        ".cfi_endproc",
        rust = sym on_poll,
    )
}

macro_rules! string_gate {
    ($(#[$doc:meta])* $name:ident, $rust:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                save!(),
                "lea rdi, [rbp - 8]",
                "mov rsi, rbx",
                "call {rust}",
                "test al, al",
                "jnz 2f",
                ".cfi_remember_state", // of both ends
                restore!(),
                "ret 8", // the descriptor
                "2:",
                restore!(),
                "ret {GIVEN_BACK}", // the descriptor, and what the stub has moved rsp by
                ".cfi_endproc",
                GIVEN_BACK = const 8 + RED_ZONE,
                rust = sym $rust,
            )
        }
    };
}

string_gate! {
    /// `GATE_STRING`: performs a string instruction. Changes rax, rcx, rsi, rdi and the status flags as it does. Or goes to the instruction itself.
    ///
    /// # Safety
    /// Called from rewritten code with the stack argument of [`string_desc`](blizzard_contract::string_desc).
    string, strings::on_string::<false>
}

string_gate! {
    /// [`string`] in a run whose accesses are looked at.
    ///
    /// # Safety
    /// As [`string`].
    string_watched, strings::on_string::<true>
}

/// `GATE_GROUP`: on return all ranges of a chain are accessible at once. Clobbers nothing.
///
/// # Safety
/// Called from rewritten code with the address of a chain of `GroupRange`s as stack argument.
#[unsafe(naked)]
pub unsafe extern "C" fn group() {
    naked_asm!(
        ".cfi_startproc",
        save!(),
        "lea rdi, [rbp - 8]",
        "call {rust}",
        restore!(),
        "ret 8", // the chain's address
        ".cfi_endproc",
        rust = sym on_group,
    )
}

/// For unwinders: what has jumped here continues at the return address, with its stack above the red zone.
macro_rules! in_syscall {
    () => {
        concat!(
            ".cfi_def_cfa rbp, 272\n",
            ".cfi_offset rip, -136\n",
            ".cfi_offset rbx, -248\n",
            ".cfi_offset rbp, -232\n",
            ".cfi_offset r12, -176\n",
            ".cfi_offset r13, -168\n",
            ".cfi_offset r14, -160\n",
            ".cfi_offset r15, -152\n",
        )
    };
}

/// `GATE_SYSCALL` of a run of several nodes: prepares the call and continues at one of the stubs that execute it, or behind the
/// program's `syscall`. Clobbers rcx and r11, as `syscall` does.
///
/// # Safety
/// Jumped to from rewritten code with rcx = the address behind its `syscall`.
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        ".cfi_startproc",
        "lea rsp, [rsp - 128]", // the red zone
        "push rcx",             // the Frame's return address: where to continue
        save!(),
        in_syscall!(),
        "lea rdi, [rbp - 8]",
        "call {rust}",
        restore!(),
        "ret 128",
        ".cfi_endproc",
        rust = sym several_nodes::on_syscall,
    )
}

/// `GATE_SYSCALL` of a run of one node: the program executes its own `syscall` unless the runtime has a say in the call.
///
/// # Safety
/// As [`syscall`].
#[unsafe(naked)]
pub unsafe extern "C" fn syscall_alone() {
    naked_asm!(
        ".cfi_startproc",
        "lea rsp, [rsp - 128]",
        "pushfq",
        "cmp eax, {limit}",
        "jae 2f",
        "bt dword ptr [rip + {ours}], eax",
        "jc 3f",
        "2: popfq",
        "lea rsp, [rsp + 128]",
        "lea rcx, [rcx - 2]", // the `syscall` instruction itself
        "jmp rcx",
        "3: popfq",
        "push rcx",
        save!(),
        in_syscall!(),
        "lea rdi, [rbp - 8]",
        "call {rust}",
        restore!(),
        "ret 128",
        ".cfi_endproc",
        limit = const taken::LIMIT,
        ours = sym taken::TAKEN,
        rust = sym one_node::on_syscall,
    )
}

/// Not a gate of the program: a forked child comes here before it returns from its system call. Clobbers nothing.
///
/// # Safety
/// Called from the system-call stub only.
#[unsafe(naked)]
pub unsafe extern "C" fn fork_child() {
    naked_asm!(
        ".cfi_startproc",
        save!(),
        "call {rust}",
        restore!(),
        "ret",
        ".cfi_endproc",
        rust = sym on_fork_child,
    )
}

/// As [`fork_child`], in a child that is a node.
///
/// # Safety
/// Called from the system-call stub only.
#[unsafe(naked)]
pub unsafe extern "C" fn created_child() {
    naked_asm!(
        ".cfi_startproc",
        save!(),
        "call {rust}",
        restore!(),
        "ret",
        ".cfi_endproc",
        rust = sym on_created_child,
    )
}

/// Not a gate of the program: behind a call the stub comes here if the program gets something back. Changes rax alone.
///
/// # Safety
/// Called from the system-call stub only.
#[unsafe(naked)]
unsafe extern "C" fn behind_call() {
    naked_asm!(
        ".cfi_startproc",
        save!(),
        "lea rdi, [rbp - 8]",
        "call {rust}",
        restore!(),
        "ret",
        ".cfi_endproc",
        rust = sym on_behind_call,
    )
}

/// The Rust half of [`miss`].
extern "C" fn on_miss(frame: &mut Frame) {
    let Lane { addr, bytes, store, masked } = missed(frame);
    if cfg!(feature = "guard") && learnt::is_asked() {
        let place = behind_shared_code(frame);
        learnt::note_miss(place, || access_behind(place));
    }
    accesses::require_noting(addr, bytes, store, masked, || note(frame, 16));
    memory_faults::keep_away(addr, bytes);
    put_off::keep_ringing();
}

/// The range that [`miss`] was called for.
#[inline(always)]
fn missed(frame: &Frame) -> Lane {
    let desc = frame.args[0] as u32;
    let bytes = match desc & miss_desc::SIZE_MASK {
        miss_desc::SIZE_XSAVE => xsave::state_bytes(),
        bytes => u64::from(bytes),
    };
    let (store, masked) = (desc & miss_desc::STORE != 0, desc & miss_desc::MASKED != 0);
    Lane { addr: frame.args[1], bytes, store, masked }
}

/// The Rust half of [`miss_watched`].
extern "C" fn on_miss_watched(frame: &mut Frame) {
    on_miss(frame);
    let (place, lane) = (behind_shared_code(frame), missed(frame));
    process::watch(place, lane, lane.store && leads_to_atomic(place));
}

/// Where a stub of [`miss`] goes on that is the access's own: accesses share the code that has called the gate. Source: `SEQUENCES.md`, the cold stub and full code.
fn behind_shared_code(frame: &Frame) -> u64 {
    const RET_128: [u8; 3] = [0xc2, 0x80, 0];
    const CLC: u8 = 0xf8;
    let mut at = frame.return_address;
    let behind_args = frame.args.as_ptr_range().end;
    // SAFETY: each is code that has made the call whose return address was there, of which a sequence follows; the stack has what that sequence returns to.
    unsafe {
        if (at as *const [u8; 3]).read_unaligned() == RET_128 {
            at = behind_args.read();
            if (at as *const u8).read() == CLC {
                at = behind_args.byte_add(8 + RED_ZONE as usize).read();
            }
        }
    }
    at
}

/// Whether the access is atomic that a stub goes on to: it has LOCK, or is an XCHG. Source: SDM volume 2, 2.1.1.
fn leads_to_atomic(place: u64) -> bool {
    const LONGEST: u64 = 15;
    let Some(access) = access_behind(place) else { return false };
    for at in access..access + LONGEST {
        // SAFETY: the access's code.
        match unsafe { (at as *const u8).read() } {
            0xf0 => return true,
            0x64..=0x67 | 0xf2 | 0xf3 | 0x40..=0x4f => {}
            opcode => return matches!(opcode, 0x86 | 0x87),
        }
    }
    false
}

/// Where the access begins that a stub goes on to, if it is found. Source: the sequences of `SEQUENCES.md`.
fn access_behind(place: u64) -> Option<u64> {
    const LONGEST: usize = 15;
    let mut at = place;
    for _ in 0..LONGEST {
        // SAFETY: the stub's code, and then the access's, behind which more code follows.
        let code = unsafe { (at as *const [u8; 8]).read_unaligned() };
        let near = |n: usize, distance: i64| (at + n as u64).wrapping_add_signed(distance);
        at = match code {
            // The way out of the stub: `jmp`, `jc` (not taken, or to behind the prefix), `popfq`, `pop`, `lea rsp`.
            [0xe9, a, b, c, d, ..] => near(5, i32::from_le_bytes([a, b, c, d]).into()),
            [0xeb, a, ..] => near(2, i64::from(a as i8)),
            [0x72, ..] => near(2, 0),
            [0x9d | 0x58..=0x5f, ..] => near(1, 0),
            [0x41, 0x58..=0x5f, ..] => near(2, 0),
            [0x48, 0x8d, 0x64, 0x24, ..] => near(5, 0),
            [0x48, 0x8d, 0xa4, 0x24, ..] => near(8, 0),
            _ => return Some(at),
        };
    }
    None
}

/// The Rust half of [`miss_crowded`].
extern "C" fn on_miss_crowded(frame: &mut Frame) {
    on_miss(frame);
    process::expect_spin();
}

/// The Rust half of [`poll`]. `vectors`: xmm0-15.
extern "C" fn on_poll(frame: &mut Frame, vectors: &[u64; 32]) {
    if tags::detached() {
        process::silence_doorbell();
    } else {
        note_for_handlers(frame, 0);
        process::poll_in_loop(|| hash(frame, vectors));
    }
    // A poll is a safe point: nothing of the program waits between a check and its access.
    safe_points::safe_point();
    if cfg!(feature = "guard") {
        plain_again::poll(frame);
    }
}

/// Names what the program has in its registers, and where it polls: the stub's return address is on the stack.
fn hash(frame: &Frame, vectors: &[u64; 32]) -> u64 {
    let words = frame.gpr.iter().chain([&frame.return_address]).chain(&frame.args).chain(vectors);
    // FNV, by words.
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29))
}

/// The Rust half of [`fork_child`].
extern "C" fn on_fork_child() {
    dispatch::on_fork_child();
}

/// The Rust half of [`created_child`].
extern "C" fn on_created_child() {
    dispatch::on_created_child();
}

/// The Rust half of [`behind_call`].
extern "C" fn on_behind_call(frame: &mut Frame) {
    // SAFETY: the stub has just made the call, and no handler of the program has run.
    frame.gpr[RAX] = unsafe { given::give_back(frame.gpr[RAX] as i64) } as u64;
}

/// The Rust half of [`group`].
extern "C" fn on_group(frame: &mut Frame) {
    note_for_handlers(frame, 8);
    // SAFETY: the rewriter pushed the address of a chain in read-only data of the program.
    unsafe { require_group(frame.args[0], |r| frame.gpr.get(usize::from(r)).copied().unwrap_or(0)) };
}

/// Run-time addresses of the gates, in the order of their slots in the private context page:
/// `contract::GATE_MISS`, `contract::GATE_POLL`, `contract::GATE_STRING`, `contract::GATE_VSIB`, `contract::GATE_SYSCALL`, `contract::GATE_GROUP`,
/// `contract::GATE_STACK`. In a run of
/// one node nothing is inaccessible, so most system calls are the program's own.
pub fn addresses(run: RunKind) -> [u64; 7] {
    let syscall = if run == RunKind::Alone { syscall_alone as *const () } else { syscall as *const () };
    let (string, vsib) = match run {
        RunKind::Watched => (string_watched as *const (), gathers::vsib_watched as *const ()),
        _ => (string as *const (), gathers::vsib as *const ()),
    };
    let miss = match run {
        RunKind::Crowded => miss_crowded as *const (),
        RunKind::Watched => miss_watched as *const (),
        _ => miss as *const (),
    };
    [
        miss as u64,
        poll as *const () as u64,
        string as u64,
        vsib as u64,
        syscall as u64,
        group as *const () as u64,
        shared_stack::gate as *const () as u64,
    ]
}

/// Behind an access for which ranges were made accessible; the private ones of them, and whether there were others.
pub fn required(private: &[Lane], has_shared: bool) {
    for lane in private {
        memory_faults::keep_away(lane.addr, lane.bytes);
    }
    if has_shared {
        put_off::keep_ringing();
    }
}

/// The entries for children, which the stubs of system calls lead to.
pub fn child_entries() -> [u64; 2] {
    [fork_child as *const () as u64, created_child as *const () as u64]
}

/// The entry behind a call.
pub fn behind_entry() -> u64 {
    if COPIED { behind_call as *const () as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::frame::{RCX, RDI, RSI};
    use blizzard_contract::GroupRange;
    use blizzard_contract::{VsibDesc, string_desc};

    /// Every general register (rsp aside), the flags and some vector registers around a gate call.
    #[repr(C, align(64))]
    #[derive(Clone, PartialEq, Debug)]
    struct Machine {
        gpr: [u64; 16],
        rflags: u64,
        /// rsp before the arguments were pushed, and after the gate returned.
        rsp: [u64; 2],
        saved_rsp: u64,
        _pad: [u64; 4],
        xmm: [[u64; 2]; 4],
    }

    /// Loads `machine`, calls `gate` with two stack arguments on a stack moved by `skew` bytes, stores the registers back.
    /// xmm14 carries the machine's address across the call.
    #[unsafe(naked)]
    unsafe extern "C" fn call_gate(_machine: &mut Machine, _gate: u64, _arg0: u64, _arg1: u64, _skew: u64) {
        naked_asm!(
            "push rbx",
            "push rbp",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "mov [rdi + 152], rsp",
            "movq xmm14, rdi",
            "sub rsp, 256",
            "sub rsp, r8",
            "push rcx",
            "push rdx",
            "mov [rdi + 136], rsp",
            "push rsi",
            "mov r15, rdi",
            "movaps xmm0, [r15 + 192]",
            "movaps xmm1, [r15 + 208]",
            "movaps xmm7, [r15 + 224]",
            "movaps xmm15, [r15 + 240]",
            "push qword ptr [r15 + 128]",
            "popfq",
            "mov rax, [r15]",
            "mov rcx, [r15 + 8]",
            "mov rdx, [r15 + 16]",
            "mov rbx, [r15 + 24]",
            "mov rbp, [r15 + 40]",
            "mov rsi, [r15 + 48]",
            "mov rdi, [r15 + 56]",
            "mov r8, [r15 + 64]",
            "mov r9, [r15 + 72]",
            "mov r10, [r15 + 80]",
            "mov r11, [r15 + 88]",
            "mov r12, [r15 + 96]",
            "mov r13, [r15 + 104]",
            "mov r14, [r15 + 112]",
            "mov r15, [r15 + 120]",
            "lea rsp, [rsp + 8]",
            "call [rsp - 8]",
            "pushfq",
            "push r15",
            "movq r15, xmm14",
            "pop qword ptr [r15 + 120]",
            "pop qword ptr [r15 + 128]",
            "cld",
            "mov [r15 + 144], rsp",
            "mov [r15], rax",
            "mov [r15 + 8], rcx",
            "mov [r15 + 16], rdx",
            "mov [r15 + 24], rbx",
            "mov [r15 + 40], rbp",
            "mov [r15 + 48], rsi",
            "mov [r15 + 56], rdi",
            "mov [r15 + 64], r8",
            "mov [r15 + 72], r9",
            "mov [r15 + 80], r10",
            "mov [r15 + 88], r11",
            "mov [r15 + 96], r12",
            "mov [r15 + 104], r13",
            "mov [r15 + 112], r14",
            "movaps [r15 + 192], xmm0",
            "movaps [r15 + 208], xmm1",
            "movaps [r15 + 224], xmm7",
            "movaps [r15 + 240], xmm15",
            "mov rsp, [r15 + 152]",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbp",
            "pop rbx",
            "ret",
        )
    }

    fn machine(rflags: u64) -> Machine {
        let mut m = Machine { gpr: [0; 16], rflags, rsp: [0; 2], saved_rsp: 0, _pad: [0; 4], xmm: [[0; 2]; 4] };
        for (i, r) in m.gpr.iter_mut().enumerate() {
            *r = 0x1111_1111_1111_1111u64.wrapping_mul(i as u64 + 1);
        }
        for (i, x) in m.xmm.iter_mut().enumerate() {
            *x = [i as u64, !(i as u64)];
        }
        m
    }

    /// CF, PF, AF, ZF, SF, DF, OF.
    const FLAGS: u64 = 0xcd5;
    const DF: u64 = 0x400;

    fn assert_preserved(before: &Machine, after: &Machine, except: &[usize], popped: u64) {
        for i in (0..16).filter(|i| !except.contains(i)) {
            assert_eq!(after.gpr[i], before.gpr[i], "register {i}");
        }
        assert_eq!(after.xmm, before.xmm);
        assert_eq!(after.rsp[1] - after.rsp[0], popped, "bytes of arguments popped");
    }

    #[test]
    fn the_miss_gate_preserves_registers_flags_and_direction() {
        for skew in [0, 1, 8, 13] {
            for flags in [0x202, 0x202 | FLAGS, 0x202 | DF, 0x202 | 0x41] {
                let before = machine(flags);
                let mut m = before.clone();
                let desc = u64::from(miss_desc::LOAD | 8);
                // SAFETY: private memory in a process without peers: the gate returns at once.
                unsafe { call_gate(&mut m, miss as *const () as u64, desc, 0x1_0000, skew) };
                assert_preserved(&before, &m, &[], 16);
                assert_eq!(m.rflags & FLAGS, flags & FLAGS);
            }
        }
    }

    #[test]
    fn the_string_gate_changes_what_the_instruction_changes() {
        let src = *b"0123456789abcdef";
        let mut dst = [0u8; 16];
        let mut before = machine(0x202 | 0x41);
        before.gpr[RCX] = 16;
        before.gpr[RSI] = src.as_ptr() as u64;
        before.gpr[RDI] = dst.as_mut_ptr() as u64;
        let mut m = before.clone();
        let desc = string_desc::MOVS | 1 << string_desc::REP_SHIFT | string_desc::CHECK_LOADS;
        // SAFETY: the registers describe a copy between two live arrays.
        unsafe { call_gate(&mut m, string as *const () as u64, desc.into(), 0, 5) };
        assert_eq!(dst, src);
        assert_eq!((m.gpr[RCX], m.gpr[RSI], m.gpr[RDI]), (0, before.gpr[RSI] + 16, before.gpr[RDI] + 16));
        assert_eq!(m.rflags & FLAGS, 0x41);
        assert_preserved(&before, &m, &[RCX, RSI, RDI], 8);
    }

    #[test]
    fn the_string_gate_returns_flags_and_runs_downwards() {
        let text = *b"abcdefgh";
        let mut before = machine(0x202 | DF);
        before.gpr[RAX] = u64::from(b'c');
        before.gpr[RCX] = 8;
        before.gpr[RDI] = &raw const text[7] as u64;
        let mut m = before.clone();
        let desc = string_desc::SCAS | 2 << string_desc::REP_SHIFT | string_desc::CHECK_LOADS;
        // SAFETY: the registers describe a scan of a live array.
        unsafe { call_gate(&mut m, string as *const () as u64, desc.into(), 0, 0) };
        assert_eq!((m.gpr[RCX], m.gpr[RDI]), (2, &raw const text[1] as u64));
        assert_eq!(m.rflags & FLAGS, DF | 0x44, "equal: ZF and PF, DF still set");
        assert_preserved(&before, &m, &[RCX, RDI], 8);
    }

    #[test]
    fn the_group_gate_preserves_registers_and_reads_the_chain_to_its_end() {
        let chain = [
            GroupRange { base: 7, index: 1, scale: 8, desc: miss_desc::LOAD | 8, more: 1, ..GroupRange::default() },
            GroupRange { base: 0, index: 16, scale: 1, desc: miss_desc::STORE | 64, ..GroupRange::default() },
        ];
        for skew in [0, 3, 8] {
            let before = machine(0x202 | FLAGS);
            let mut m = before.clone();
            // SAFETY: the chain is alive; its ranges are private addresses.
            unsafe { call_gate(&mut m, super::group as *const () as u64, &raw const chain as u64, 0, skew) };
            assert_preserved(&before, &m, &[], 8);
            assert_eq!(m.rflags & FLAGS, FLAGS);
        }
        let asked = core::cell::Cell::new(0u32);
        // SAFETY: as above.
        unsafe {
            require_group(&raw const chain as u64, |r| {
                asked.set(asked.get() | 1 << r);
                0x1000
            });
        }
        assert_eq!(asked.get(), 1 << 7 | 1 << 1 | 1, "no register beyond the chain's end");
    }

    #[test]
    fn the_vsib_gate_preserves_registers() {
        xsave::init();
        if !std::is_x86_feature_detected!("avx") {
            eprintln!("no AVX on this processor: nothing to test");
            return;
        }
        let desc = VsibDesc {
            base: 7,
            index: 1,
            index_bytes: 4,
            elem_bytes: 4,
            lanes: 4,
            scale: 4,
            mask_kind: 2,
            access: 1,
            ..VsibDesc::default()
        };
        for skew in [0, 3, 8] {
            let before = machine(0x202 | FLAGS);
            let mut m = before.clone();
            // SAFETY: the descriptor is alive; all lanes are private addresses.
            unsafe { call_gate(&mut m, gathers::vsib as *const () as u64, &raw const desc as u64, 0, skew) };
            assert_preserved(&before, &m, &[], 8);
            assert_eq!(m.rflags & FLAGS, FLAGS);
        }
    }
}
