//! Runs one instruction from a given state, in this process, by the contexts of signals.
//!
//! Input: bytes, a [`State`]. Output: an [`End`], and what was granted. A trap leads into a handler, which puts the state into its context; the signal at the
//! end leads back. In between, faults of the segment are carried out. **Invariants**: a thread has regions, code and an alternative stack of its own; %gs has
//! the base [`DISTANCE`] as long as a [`Machine`] lives. Signals of other threads have their default action.

use crate::kernel::sys;
use crate::kernel::ucontext::{GREGS, REG_EFL, REG_RIP, Ucontext};
use crate::kernel::xsave::{self, Vectors};
use crate::memory::access_control::program::in_segment;
use crate::node::access::Lane;
use crate::system_calls::signals::carried::carry_out::{SlotExit, UntestedMemory, carry_out, leave};
use crate::system_calls::signals::carried::refused::CarryRefused;
use blizzard_contract::{SEGMENT_BASE, SEGMENT_WINDOW_BYTES};
use core::arch::x86_64::__cpuid_count;
use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// From the program's addresses to the alias.
pub const DISTANCE: u64 = 1 << 44;
/// Bytes of a region: the largest access is an `xsave` with the state of AMX, from the second page on.
pub const REGION: usize = 5 << 12;
/// Where a trap stands in the code, besides the one behind the instruction.
pub const LANDING: u64 = 0x800;
const STACK: usize = 4096;
const AREA: usize = 16384;
const ALTERNATIVE: usize = 256 << 10;
const SIGNALS: [i32; 5] = [libc::SIGTRAP, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGBUS];
const ARCH_SET_GS: u64 = 0x1001;
/// Status flags and DF. (RF is the processor's own.)
const FLAGS: u64 = 0xcd5;
const TF: u64 = 1 << 8;
const TRAP_TRACE: i32 = 2;

/// What registers hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// In encoding order.
    pub gprs: [u64; 16],
    pub flags: u64,
    pub vectors: [[u8; 64]; 32],
    pub masks: [u64; 8],
    /// The x87 registers with control, status and tags, and MXCSR.
    pub floats: [u8; 160],
}

/// Where it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub signal: i32,
    pub code: i32,
    /// Of a fault of shared memory.
    pub fault: Option<u64>,
    /// Address of the next instruction, from the first one on.
    pub at: u64,
    pub state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Idle,
    Starting,
    Running,
}

#[repr(C, align(64))]
struct Area([u8; AREA]);

struct Run {
    step: Step,
    start: State,
    end: End,
    /// The test's own context.
    gregs: [u64; 23],
    area: Box<Area>,
    area_bytes: usize,
    /// Places of the components in an area.
    offsets: [usize; 8],
    granted: Vec<Lane>,
    refused: Option<CarryRefused>,
    faults: u32,
    /// After each instruction, and each element of a string, the context is made the program's.
    steps: bool,
}

pub struct Machine {
    /// Memory: the same bytes for the program, and for the test.
    pub private: u64,
    pub shared: u64,
    /// The instruction.
    pub code: u64,
    /// Lowest byte; rsp may be anywhere above.
    pub stack: u64,
    run: Box<Run>,
}

thread_local! {
    static RUN: Cell<*mut Run> = const { Cell::new(core::ptr::null_mut()) };
}

const ZERO: State = State { gprs: [0; 16], flags: 0, vectors: [[0; 64]; 32], masks: [0; 8], floats: [0; 160] };

impl State {
    pub const fn zero() -> State {
        ZERO
    }

    /// # Safety
    /// The context is one that the kernel made.
    unsafe fn of(context: &Ucontext) -> State {
        // SAFETY: the caller's promise.
        let vectors = unsafe { Vectors::new(context.fpstate as *const u8) };
        let mut floats = [0; 160];
        // SAFETY: the legacy region has so many bytes.
        unsafe { core::ptr::copy_nonoverlapping(context.fpstate as *const u8, floats.as_mut_ptr(), 160) };
        // The last x87 instruction and its operand have other addresses.
        floats[6..24].fill(0);
        State {
            gprs: GREGS.map(|place| context.gregs[place]),
            flags: context.gregs[REG_EFL] & FLAGS,
            vectors: core::array::from_fn(|n| vectors.vector(n as u8)),
            masks: core::array::from_fn(|n| vectors.mask(n as u8)),
            floats,
        }
    }

    /// # Safety
    /// As [`State::of`].
    unsafe fn put(&self, context: &mut Ucontext, offsets: &[usize; 8]) {
        for (place, value) in GREGS.iter().zip(self.gprs) {
            context.gregs[*place] = value;
        }
        context.gregs[REG_EFL] = context.gregs[REG_EFL] & !FLAGS | self.flags;
        let area = context.fpstate as *mut u8;
        // SAFETY: the caller's promise; each component has its place.
        unsafe {
            let mut features = 3;
            core::ptr::copy_nonoverlapping(self.floats.as_ptr(), area, 6);
            area.add(24).cast::<u32>().write(0x1f80);
            let mut put = |component: u32, at: usize, bytes: &[u8]| {
                let offset = offsets[component as usize];
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), area.add(offset + at), bytes.len());
                features |= 1u64 << component;
            };
            for n in 0..16 {
                put(1, 16 * n, &self.vectors[n][..16]);
                if has("avx") {
                    put(2, 16 * n, &self.vectors[n][16..32]);
                }
                if has("avx512") {
                    put(6, 32 * n, &self.vectors[n][32..]);
                    put(7, 64 * n, &self.vectors[16 + n]);
                }
            }
            if has("avx512") {
                for (n, mask) in self.masks.iter().enumerate() {
                    put(5, 8 * n, &mask.to_le_bytes());
                }
            }
            *area.add(512).cast::<u64>() |= features;
        }
    }
}

pub fn has(what: &str) -> bool {
    match what {
        "avx" => std::is_x86_feature_detected!("avx2"),
        _ => std::is_x86_feature_detected!("avx512bw"),
    }
}

extern "C" fn handler(signal: i32, info: &mut libc::siginfo_t, context: &mut Ucontext) {
    let run = RUN.get();
    // SAFETY: a machine of this thread, which waits.
    let Some(run) = (unsafe { run.as_mut() }) else {
        // SAFETY: the default action runs no code.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    // SAFETY: the context is the kernel's; the area is large enough.
    unsafe {
        match run.step {
            Step::Idle => {
                libc::signal(signal, libc::SIG_DFL);
            }
            Step::Starting => {
                // Linux arch/x86/include/uapi/asm/sigcontext.h: xstate_size.
                run.area_bytes = (context.fpstate as *const u8).add(464 + 16).cast::<u32>().read() as usize;
                assert!(run.area_bytes <= AREA);
                core::ptr::copy_nonoverlapping(context.fpstate as *const u8, run.area.0.as_mut_ptr(), run.area_bytes);
                run.gregs = context.gregs;
                run.start.put(context, &run.offsets);
                context.gregs[REG_RIP] = run.end.at;
                context.gregs[REG_EFL] |= if run.steps { TF } else { 0 };
                run.step = Step::Running;
            }
            Step::Running => {
                let left = leave(info, context);
                if left == SlotExit::End && signal == libc::SIGSEGV
                    || signal == libc::SIGTRAP && info.si_code == TRAP_TRACE
                {
                    return;
                }
                let fault = info.si_addr() as u64;
                if signal == libc::SIGSEGV && info.si_code == 2 && in_segment(fault) && left != SlotExit::Denied {
                    run.faults += 1;
                    assert!(run.faults < 10_000);
                    let granted = &mut run.granted;
                    let mut grant = |lanes: &[Lane]| granted.extend(lanes);
                    let result =
                        carry_out(context, fault, &mut UntestedMemory { distance: DISTANCE, grant: &mut grant });
                    match result {
                        Ok(()) => return,
                        Err(why) => run.refused = Some(why),
                    }
                }
                run.end = End {
                    signal,
                    code: info.si_code,
                    fault: (in_segment(fault) && fault == context.gregs[22]).then_some(fault),
                    at: context.gregs[REG_RIP].wrapping_sub(run.end.at),
                    state: State::of(context),
                };
                run.step = Step::Idle;
                context.gregs = run.gregs;
                core::ptr::copy_nonoverlapping(run.area.0.as_ptr(), context.fpstate as *mut u8, run.area_bytes);
            }
        }
    }
}

/// The next place for the regions of a machine.
static NEXT: crate::kernel::owned::PerProcess<AtomicU64> = crate::kernel::owned::PerProcess::new(AtomicU64::new(0));

impl Machine {
    pub fn new() -> Machine {
        static ONCE: crate::kernel::owned::PerProcess<Once> = crate::kernel::owned::PerProcess::new(Once::new());
        ONCE.call_once(|| {
            xsave::init();
            for signal in SIGNALS {
                // SAFETY: the handler does what the default action does, but for threads with a machine.
                unsafe {
                    let mut action: libc::sigaction = core::mem::zeroed();
                    action.sa_sigaction = handler as *const () as usize;
                    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                    assert_eq!(libc::sigaction(signal, &action, core::ptr::null_mut()), 0);
                }
            }
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let end = SEGMENT_BASE + SEGMENT_WINDOW_BYTES;
        // Around the end of the window: an index of 32 bits leads from one to the other.
        let (shared, private) = (end - (2 + number) * 0x10_0000, end + (64 + number) * 0x10_0000);
        let fixed = libc::MAP_FIXED_NOREPLACE;
        let own = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let fd = sys::memfd(c"blizzard-carried").unwrap();
        // SAFETY: memory of the test's own, at addresses that nothing else uses; the base of %gs belongs to this thread, and nothing uses it.
        let (code, stack) = unsafe {
            assert_eq!(libc::ftruncate(fd, REGION as i64), 0);
            sys::mmap(shared, REGION as u64, libc::PROT_NONE, libc::MAP_SHARED | fixed, fd, 0).unwrap();
            sys::mmap(shared + DISTANCE, REGION as u64, rw, libc::MAP_SHARED | fixed, fd, 0).unwrap();
            sys::mmap(private, REGION as u64, rw, own | fixed, -1, 0).unwrap();
            let alternative = sys::mmap(0, ALTERNATIVE as u64, rw, own, -1, 0).unwrap();
            let stack = libc::stack_t { ss_sp: alternative as *mut libc::c_void, ss_flags: 0, ss_size: ALTERNATIVE };
            assert_eq!(libc::sigaltstack(&stack, core::ptr::null_mut()), 0);
            sys::call(libc::SYS_arch_prctl, [ARCH_SET_GS, DISTANCE, 0, 0, 0, 0]).unwrap();
            (
                sys::mmap(0, 8192, rw | libc::PROT_EXEC, own, -1, 0).unwrap(),
                sys::mmap(0, STACK as u64, rw, own, -1, 0).unwrap(),
            )
        };
        sys::close(fd).unwrap();
        let run = Box::new(Run {
            step: Step::Idle,
            start: ZERO,
            end: End { signal: 0, code: 0, fault: None, at: 0, state: ZERO },
            gregs: [0; 23],
            area: Box::new(Area([0; AREA])),
            area_bytes: 0,
            offsets: core::array::from_fn(|n| if n == 1 { 160 } else { __cpuid_count(0xd, n as u32).ebx as usize }),
            granted: Vec::with_capacity(4096),
            refused: None,
            faults: 0,
            steps: false,
        });
        Machine { private, shared, code, stack, run }
    }

    /// The bytes of a region, or of the stack: at the private address, or by the alias.
    pub fn memory(&mut self, at: u64) -> &mut [u8] {
        let (at, bytes) = if at == self.shared {
            (at + DISTANCE, REGION)
        } else if at == self.stack {
            (at, STACK)
        } else {
            (at, REGION)
        };
        // SAFETY: mapped by `new`; the machine is borrowed.
        unsafe { core::slice::from_raw_parts_mut(at as *mut u8, bytes) }
    }

    /// Executes an instruction; `at`: so far from the beginning of the code.
    pub fn run_at(&mut self, at: u64, insn: &[u8], state: &State) -> End {
        // SAFETY: the test's own code.
        unsafe {
            let code = core::slice::from_raw_parts_mut(self.code as *mut u8, 8192);
            code.fill(0xcc);
            code[at as usize..at as usize + insn.len()].copy_from_slice(insn);
        }
        self.run.granted.clear();
        (self.run.refused, self.run.faults) = (None, 0);
        self.run.start = state.clone();
        self.run.end.at = self.code + at;
        self.run.step = Step::Starting;
        RUN.set(&raw mut *self.run);
        // SAFETY: the handler comes back behind this, with the registers as they were.
        unsafe { core::arch::asm!("int3") };
        RUN.set(core::ptr::null_mut());
        assert!(self.run.step == Step::Idle);
        self.run.end.clone()
    }

    pub fn run(&mut self, insn: &[u8], state: &State) -> End {
        self.run_at(0, insn, state)
    }

    /// Whether everything that is carried out is interrupted wherever it can be.
    pub fn interrupt(&mut self, steps: bool) {
        self.run.steps = steps;
    }

    /// What the last run was granted.
    pub fn granted(&self) -> &[Lane] {
        &self.run.granted
    }

    pub fn refused(&self) -> Option<CarryRefused> {
        self.run.refused
    }

    /// Faults of shared memory in the last run.
    pub fn faults(&self) -> u32 {
        self.run.faults
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: nothing uses %gs.
        unsafe { sys::call(libc::SYS_arch_prctl, [ARCH_SET_GS, 0, 0, 0, 0, 0]).unwrap() };
    }
}

/// xorshift64: enough to vary states, the same on every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}
