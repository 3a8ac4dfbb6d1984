//! Calls that wait: the node answers its peers meanwhile.
//!
//! Purpose: before a call that may wait, the gate says in the node's context page that the node is in the kernel. A peer that has a message for
//! it then sends [`CALL_SIGNAL`](blizzard_contract::CALL_SIGNAL). Its handler then calls [`called`], which runs no protocol: it takes the context back to the program's own
//! `syscall`, so that the gate serves the messages, makes the call's memory accessible again, and makes the call again. Input: calls
//! and the signal. Output: prepared calls.
//!
//! **Invariants**
//! * *The kernel never uses memory that a peer may have.* A signal handler runs only when the thread is on its way back to user mode; the kernel has
//!   then finished or given up the call and copies nothing any more. Handlers of the protocol run only after that, in the gate, and
//!   before the call is made again its memory is acquired again. (Calls that use memory after they have returned do not get shared memory: see
//!   [`crate::system_calls::table::memory`].)
//! * *The program sees no interruption that the kernel would not have shown it.* A call that the signal alone has interrupted (EINTR, or a restart by the
//!   kernel) is made again with the arguments that it had; a relative timeout that the kernel does not count on by itself is shortened by
//!   the time that has passed. EINTR that a handler of the program has been told of is final ([`stubs::finish`]). A call that has
//!   transferred a part is made again for the rest ([`transfers`]).
//! * *No interruption is lost.* A handler of the program that runs between the moment when the call was taken back and the moment when it is made again
//!   interrupts it as it would have in the kernel ([`handler_runs`]).
//! * *No message is left lying.* The order is: say "in the kernel", look at the rings, call; a peer publishes first and then looks at the word. The signal may
//!   arrive anywhere. In the stub before the call it leads back to the gate, in the gate or in checked code it counts as a signal that was put
//!   off (`put_off`), which the stub looks at, and the next poll. In code without checks it is served on the spot.
//! * Calls for which an interruption cannot be undone ([`MayWait::No`]) are not announced; none of them waits for another process.
//!
//! Source: Linux `kernel/signal.c`, `arch/x86/kernel/signal.c` (restarts), `signal(7)` (which calls restart); design section 5.

use crate::kernel::owned::per_thread;
use crate::kernel::sys;
use crate::kernel::ucontext::{REG_RAX, REG_RIP, REG_RSP, Ucontext};
use crate::memory::access_control::program;
use crate::memory::region::ContextPage;
use crate::node::nudge;
use crate::process::accesses;
use crate::process::process;
use crate::system_calls::execution::call::{Call, CallOutcome, arguments};
use crate::system_calls::execution::given;
use crate::system_calls::execution::masks;
use crate::system_calls::execution::signal_sets::UNBLOCKED;
use crate::system_calls::execution::stubs::{self, CallStage, SYSCALL_BYTES, Stub};
use crate::system_calls::execution::transfers;
use crate::system_calls::table::calls::row;
use crate::system_calls::table::row::{Mask, MayWait, Timeout};
use blizzard_contract::{CONTEXT_SHARED, activity};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

per_thread! {
    /// The call that is being made, for the handler.
    static CALL: AtomicI64 = AtomicI64::new(0);
}

/// Nanoseconds of a second.
const NS: i64 = 1_000_000_000;

/// A call with a relative timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timed {
    place: Place,
    clock: i64,
    end_ns: i64,
    /// The handler has taken the call back to its beginning: it goes on with what is left.
    interrupted: bool,
}

/// A call, and where it is made: the address behind its `syscall`, and the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    nr: i64,
    rip: u64,
    rsp: u64,
}

impl Place {
    fn of(call: &Call) -> Place {
        Place { nr: call.nr, rip: call.rip, rsp: call.rsp }
    }

    /// Of the call that is being made, by a context that stands in front of it.
    fn in_front(context: &Ucontext) -> Place {
        let g = &context.gregs;
        Place { nr: CALL.load(Ordering::Relaxed), rip: g[REG_RIP] + SYSCALL_BYTES, rsp: g[REG_RSP] }
    }
}

/// Nested calls, each interrupted by a handler, that are remembered.
const DEPTH: usize = 8;

/// A call that has to return EINTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interrupted {
    place: Place,
    /// If it has a relative timeout.
    timed: Option<Timed>,
    /// Bytes that it has transferred: then it returns those.
    done: u64,
}

/// A transfer that a peer has interrupted in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Partial {
    place: Place,
    args: [u64; 6],
    done: u64,
}

/// The call that is being made, and those that have to return EINTR when the handler that interrupted them is over.
struct Calls {
    place: Place,
    /// The signal has taken it back out of the kernel, so the kernel may interrupt such calls.
    again: bool,
    interrupted: [Option<Interrupted>; DEPTH],
}

impl Calls {
    const NONE: Calls = Calls { place: Place { nr: -1, rip: 0, rsp: 0 }, again: false, interrupted: [None; DEPTH] };

    /// A call comes to the gate; what is known of it when it has to return EINTR.
    fn begin(&mut self, place: Place) -> Option<Interrupted> {
        let told = self.interrupted.into_iter().flatten().find(|old| old.place == place);
        for slot in &mut self.interrupted {
            // A caller that has left the call by a jump: its stack is used for something else.
            if slot.is_some_and(|old| old.place.rsp <= place.rsp) {
                *slot = None;
            }
        }
        self.again &= self.place == place;
        self.place = place;
        told
    }

    /// A handler of the program runs in front of the call at `place`. One that has transferred something is not restarted.
    fn handler_runs(&mut self, place: Place, timed: Option<Timed>, partial: Option<Partial>, restarts: bool) {
        let done = partial.filter(|p| p.place == place).map_or(0, |p| p.done);
        if !self.again || self.place != place || restarts && done == 0 {
            return;
        }
        self.again = false;
        if let Some(slot) = self.interrupted.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(Interrupted { place, timed: timed.filter(|t| t.place == place), done });
        }
    }
}

/// What the kernel reads when a changed call begins. Filled in the gate; whoever interrupts the stub before the call comes back to the gate.
struct Scratch {
    mask: u64,
    pair: [u64; 2],
    left: [i64; 2],
    timed: Option<Timed>,
    partial: Option<Partial>,
    calls: Calls,
}

impl Scratch {
    const EMPTY: Scratch =
        Scratch { mask: 0, pair: [0; 2], left: [0; 2], timed: None, partial: None, calls: Calls::NONE };

    /// The transfer that this call goes on with. `pending`: what [`stubs::DONE_BEFORE`] says, 0 when the last one is over: a program may make the same call again.
    fn going_on(&self, place: Place, args: &[u64; 6], pending: u64) -> Option<Partial> {
        let same = self.partial.filter(|p| p.place == place && p.args == *args && p.done == pending);
        same.filter(|_| self.calls.again && self.calls.place == place)
    }
}

per_thread! {
    /// Used in the gate and in the handler, which touches nothing but `timed`'s flag while the gate is not inside.
    static SCRATCH: UnsafeCell<Scratch> = UnsafeCell::new(Scratch::EMPTY);
}

/// Connects the stubs with the node's context page, which must be mapped.
pub fn connect() {
    // SAFETY: the page is mapped for the whole run.
    stubs::set_activity(unsafe { ContextPage::at(CONTEXT_SHARED) }.activity().as_ptr());
    stubs::look_at_the_processor();
}

/// The node is out of the kernel, whatever stub it went in by. Its doorbell is set if anything has come meanwhile.
pub fn left_kernel() {
    nudge::left_kernel();
    // SAFETY: the page is mapped for the whole run.
    let doing = unsafe { ContextPage::at(CONTEXT_SHARED) };
    if matches!(doing.activity().load(Ordering::Relaxed), activity::KERNEL | activity::CALLED) {
        set_activity(activity::RUNNING);
    }
}

fn set_activity(doing: u32) {
    // SAFETY: the page is mapped for the whole run.
    unsafe { ContextPage::at(CONTEXT_SHARED) }.activity().store(doing, Ordering::SeqCst);
}

/// A call comes to the gate. Its result, if a handler has interrupted it when it had been taken out of the kernel.
pub fn begin(call: &Call) -> Option<i64> {
    // SAFETY: see `SCRATCH`: the gate is inside.
    let scratch = unsafe { &mut *SCRATCH.get() };
    let told = scratch.calls.begin(Place::of(call))?;
    scratch.timed = None;
    tell_time_left(call, told.timed);
    Some(if told.done == 0 { -i64::from(libc::EINTR) } else { told.done as i64 })
}

/// A call has been prepared. Whether it may wait.
pub fn prepared(call: &Call, outcome: &CallOutcome) -> bool {
    CALL.store(call.nr, Ordering::Relaxed);
    matches!(outcome, CallOutcome::Run(Stub::Plain | Stub::Changed, ..)) && call.row.waits != MayWait::No
}

/// A call that has been prepared goes back to the gate before it is made, because a signal waits: its timeout goes on.
pub fn goes_back() {
    // SAFETY: see `SCRATCH`: the gate has prepared the call and looks at it no more.
    if let Some(timed) = unsafe { &mut (*SCRATCH.get()).timed } {
        timed.interrupted = true;
    }
}

/// [`goes_back`] for a handler that has put a peer's call off: if a call has been prepared, and not been made.
pub fn goes_back_if_prepared() {
    // SAFETY: the page is mapped for the whole run.
    let doing = unsafe { ContextPage::at(CONTEXT_SHARED) }.activity().load(Ordering::Relaxed);
    if matches!(doing, activity::KERNEL | activity::CALLED) {
        goes_back();
    }
}

/// Another program is about to be executed, which knows nothing of the run: a signal of a peer would end it. If it cannot be executed, the stub says that
/// the node runs.
pub fn leave_run() {
    set_activity(activity::GONE);
}

/// Lets the node handle messages while a call is being prepared: handlers of the program may make calls of their own. A timeout goes on.
pub fn without_forgetting(handle: impl FnOnce()) {
    // SAFETY: see `SCRATCH`: the gate is inside, and no reference is kept while others use it.
    let (timed, partial, place, again) = unsafe {
        let scratch = &*SCRATCH.get();
        (scratch.timed, scratch.partial, scratch.calls.place, scratch.calls.again)
    };
    handle();
    // SAFETY: as above.
    let scratch = unsafe { &mut *SCRATCH.get() };
    scratch.partial = partial;
    scratch.timed = timed.map(|t| Timed { interrupted: true, ..t });
    (scratch.calls.place, scratch.calls.again) = (place, again);
}

/// Writes what is left of an interrupted sleep where the program wants to be told of it.
fn tell_time_left(call: &Call, timed: Option<Timed>) {
    let to = match call.row.timeout {
        Timeout::Sleep(_, rest) => call.args[usize::from(rest)],
        Timeout::ClockSleep => call.args[3],
        _ => 0,
    };
    let Some(timed) = timed.filter(|_| to != 0) else { return };
    let left_ns = (timed.end_ns - sys::clock_ns(timed.clock)).max(0);
    let words = [left_ns / NS, left_ns % NS].map(i64::to_ne_bytes);
    let bytes = words.as_flattened();
    if program::in_segment(to) {
        accesses::require(to, bytes.len() as u64, true, false);
    }
    // SAFETY: the program passes room for it; the kernel would refuse what is not mapped, and so does this.
    let _ = unsafe { program::write(to, bytes) };
}

/// A call whose mask or timeout has to be replaced, which leads to memory that the kernel has elsewhere, or of which a part is done; `None` for all others.
///
/// # Safety
/// The program's call, its memory accessible.
pub unsafe fn changed(call: &Call) -> Option<CallOutcome> {
    // SAFETY: see `SCRATCH`: the gate is inside.
    let scratch = unsafe { &mut *SCRATCH.get() };
    let args = &call.args;
    // SAFETY: passed on from the caller.
    let mut new = unsafe { call.kernel_arguments() };
    // SAFETY: passed on from the caller.
    unsafe { replace_mask(call, scratch, &mut new, UNBLOCKED) };
    replace_timeout(call, scratch, &mut new);
    let pending = stubs::DONE_BEFORE.load(Ordering::Relaxed);
    scratch.partial = scratch.going_on(Place::of(call), args, pending);
    let Some(Partial { done, .. }) = scratch.partial else { return run_changed(Stub::Changed, args, &new, 0) };
    // SAFETY: passed on from the caller.
    let rest = unsafe { given::kernel_arguments(call.row, call.nr, &transfers::rest(call.row, args, done)) };
    run_changed(Stub::Changed, args, &rest, done)
}

/// Makes a call with other arguments than the program's, if they are. `done`: bytes that have been transferred.
fn run_changed(stub: Stub, args: &[u64; 6], new: &[u64; 6], done: u64) -> Option<CallOutcome> {
    if new == args {
        return None;
    }
    stubs::DONE_BEFORE.store(done, Ordering::Relaxed);
    stubs::give_back_behind(given::comes_back());
    for (word, value) in stubs::NEW_ARGUMENTS.iter().zip(*new) {
        word.store(value, Ordering::Relaxed);
    }
    Some(CallOutcome::Run(stub, *args, 0))
}

/// [`changed`] for a child of `vfork`: nothing is replaced but addresses that the kernel has elsewhere.
///
/// # Safety
/// As [`changed`].
pub unsafe fn changed_in_child(call: &Call) -> Option<CallOutcome> {
    // SAFETY: passed on from the caller.
    let new = unsafe { call.kernel_arguments() };
    run_changed(Stub::Child, &call.args, &new, 0)
}

/// [`changed`] for a run of one node: no call is taken back.
///
/// # Safety
/// As [`changed`].
pub unsafe fn changed_alone(call: &Call, reserved: u64) -> Option<CallOutcome> {
    // SAFETY: passed on from the caller.
    let mut new = unsafe { call.kernel_arguments() };
    // SAFETY: see `SCRATCH`: the gate is inside; the rest is passed on from the caller.
    unsafe { replace_mask(call, &mut *SCRATCH.get(), &mut new, reserved) };
    run_changed(Stub::Changed, &call.args, &new, 0)
}

/// Calls that replace the signal mask while they wait get a copy of the program's without the reserved signals.
///
/// # Safety
/// As [`changed`].
unsafe fn replace_mask(call: &Call, scratch: &mut Scratch, new: &mut [u64; 6], reserved: u64) {
    // SAFETY: passed on from the caller.
    let Some((index, mask)) = (unsafe { masks::mask_of(call) }) else { return };
    scratch.mask = mask & !reserved;
    scratch.pair = [&raw const scratch.mask as u64, 8];
    let is_pair = matches!(call.row.mask, Mask::Pair(_));
    new[index] = if is_pair { &raw const scratch.pair as u64 } else { &raw const scratch.mask as u64 };
}

/// Where a call has its relative timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relative {
    /// In this argument, as milliseconds.
    Milliseconds(usize),
    /// This argument points to a `struct timespec`; measured by this clock.
    Timespec(usize, i64),
}

/// The relative timeout of a call, if it has one.
fn timeout_of(timeout: Timeout, args: &[u64; 6]) -> Option<Relative> {
    const MONOTONIC: i64 = libc::CLOCK_MONOTONIC as i64;
    Some(match timeout {
        Timeout::None => return None,
        Timeout::Milliseconds(i) => Relative::Milliseconds(i.into()),
        Timeout::Timespec(i) | Timeout::Sleep(i, _) => Relative::Timespec(i.into(), MONOTONIC),
        Timeout::ClockSleep => {
            if args[1] as i32 & libc::TIMER_ABSTIME != 0 {
                return None;
            }
            let clock = i64::from(args[0] as i32);
            Relative::Timespec(2, if clock == i64::from(libc::CLOCK_REALTIME) { MONOTONIC } else { clock })
        }
        Timeout::FutexWait => {
            let command = args[1] as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
            if command != libc::FUTEX_WAIT {
                return None;
            }
            Relative::Timespec(3, MONOTONIC)
        }
    })
}

/// Notes when a call with a timeout has to end; one that was interrupted gets what is left.
fn replace_timeout(call: &Call, scratch: &mut Scratch, new: &mut [u64; 6]) {
    let (args, place) = (&call.args, Place::of(call));
    let before = scratch.timed.take();
    let Some(timeout) = timeout_of(call.row.timeout, args) else { return };
    let again = before.filter(|t| t.interrupted && t.place == place);
    let (clock, given_ns) = match timeout {
        // Negative: for ever.
        Relative::Milliseconds(i) => (libc::CLOCK_MONOTONIC as i64, i64::from(args[i] as i32) * 1_000_000),
        Relative::Timespec(i, clock) => {
            let mut words = [[0u8; 8]; 2];
            // A pointer that leads nowhere is the kernel's to refuse.
            if args[i] == 0 || program::read(args[i], words.as_flattened_mut()).is_err() {
                return;
            }
            let [seconds, nanoseconds] = words.map(i64::from_ne_bytes);
            (clock, seconds.saturating_mul(NS).saturating_add(nanoseconds))
        }
    };
    if given_ns <= 0 {
        return;
    }
    let now = sys::clock_ns(clock);
    let timed = again.unwrap_or(Timed { place, clock, end_ns: now.saturating_add(given_ns), interrupted: false });
    scratch.timed = Some(Timed { interrupted: false, ..timed });
    if again.is_none() {
        return;
    }
    let left_ns = (timed.end_ns - now).max(0);
    match timeout {
        // Rounded up, as the kernel does: a timeout never ends early.
        Relative::Milliseconds(i) => new[i] = (left_ns as u64).div_ceil(1_000_000),
        Relative::Timespec(i, _) => {
            scratch.left = [left_ns / NS, left_ns % NS];
            new[i] = &raw const scratch.left as u64;
        }
    }
}

/// A peer has called in a system call, at this stage of its stub: back to the gate, unless the call is over. Whether it goes back.
///
/// # Safety
/// The context stands there.
pub unsafe fn called(context: &mut Ucontext, stage: CallStage) -> bool {
    if stage == CallStage::After && !stubs::is_interrupted(context) {
        // SAFETY: the kernel has just made the call.
        return unsafe { go_on_with_the_rest(context) };
    }
    take_back(context);
    true
}

/// Takes a transfer of which a part is done back to its beginning, to go on with the rest. Else the call is done: the doorbell is set. Whether there is a rest.
///
/// # Safety
/// The context stands right behind a call.
unsafe fn go_on_with_the_rest(context: &mut Ucontext) -> bool {
    let (nr, result) = (CALL.load(Ordering::Relaxed), context.gregs[REG_RAX] as i64);
    // The arguments are those for the rest, if it is one.
    // SAFETY: passed on from the caller.
    if unsafe { !transfers::goes_on(row(nr), &arguments(context), result) } {
        return false;
    }
    // SAFETY: the call has just returned, and nothing of the program has run since then.
    unsafe { given::give_back(result) };
    take_back(context);
    let (place, args) = (Place::in_front(context), arguments(context));
    // SAFETY: see `SCRATCH`: the gate is not inside, because the context was in a stub.
    let scratch = unsafe { &mut *SCRATCH.get() };
    let pending = stubs::DONE_BEFORE.load(Ordering::Relaxed);
    let done = scratch.going_on(place, &args, pending).map_or(0, |p| p.done) + result as u64;
    scratch.partial = Some(Partial { place, args, done });
    stubs::DONE_BEFORE.store(done, Ordering::Relaxed);
    true
}

/// A handler of the program runs behind a call, whose stub has all that the result takes: it may jump away.
pub fn call_is_over() {
    // SAFETY: see `SCRATCH`: the gate is not inside.
    unsafe { (*SCRATCH.get()).partial = None };
}

per_thread! {
    /// How many handlers of the program have run, and how many of them had no SA_RESTART.
    static HANDLERS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
}

fn handlers() -> [u64; 2] {
    [0, 1].map(|k: usize| HANDLERS[k].load(Ordering::Relaxed))
}

/// Lets signals in where a call comes to the gate: what their handlers are to a call that has been taken back they would have been in the kernel.
pub fn let_in_before(call: &Call, let_in: impl FnOnce()) {
    let place = Place::of(call);
    let before = handlers();
    // SAFETY: see `SCRATCH`: one thread, and no reference is kept while handlers run.
    let (timed, partial, again) = unsafe {
        let scratch = &*SCRATCH.get();
        (scratch.timed, scratch.partial, scratch.calls.again && scratch.calls.place == place)
    };
    let_in();
    let now = handlers();
    let interrupted = if call.row.waits == MayWait::Interrupted { now[0] != before[0] } else { now[1] != before[1] };
    if again && now != before {
        // SAFETY: as above.
        let scratch = unsafe { &mut *SCRATCH.get() };
        (scratch.timed, scratch.partial) = (timed, partial);
        (scratch.calls.place, scratch.calls.again) = (place, true);
        scratch.calls.handler_runs(place, timed, partial, !interrupted);
    }
}

/// A handler of the program with these flags is about to run on a context that may stand in front of its call.
pub fn handler_runs(context: &Ucontext, flags: u64) {
    let place = Place::in_front(context);
    let flagged = flags & libc::SA_RESTART as u64 != 0;
    HANDLERS[0].fetch_add(1, Ordering::Relaxed);
    HANDLERS[1].fetch_add(u64::from(!flagged), Ordering::Relaxed);
    let restarts = flagged && row(place.nr).waits != MayWait::Interrupted;
    // SAFETY: see `SCRATCH`: a context in front of its call is not inside the gate.
    let scratch = unsafe { &mut *SCRATCH.get() };
    scratch.calls.handler_runs(place, scratch.timed, scratch.partial, restarts);
}

/// What has interrupted `context` is not for the program yet: a call that was given up because of it is made again.
pub fn goes_on(context: &mut Ucontext) {
    let interrupted = stubs::stage(context.gregs[REG_RIP]) == Some(CallStage::After) && stubs::is_interrupted(context);
    // With one node the kernel alone knows which call it was.
    if interrupted && process::nodes() > 1 {
        take_back(context);
    }
}

/// Back to the program's `syscall`.
fn take_back(context: &mut Ucontext) {
    left_kernel();
    let interrupted = stubs::has_been_in_kernel(context);
    context.gregs[REG_RAX] = CALL.load(Ordering::Relaxed) as u64;
    // SAFETY: the context of the interrupted stub.
    unsafe { stubs::rewind(context) };
    // SAFETY: see `SCRATCH`: the gate is not inside, because the context was in a stub.
    let scratch = unsafe { &mut *SCRATCH.get() };
    scratch.calls.again |= interrupted;
    if let Some(timed) = &mut scratch.timed {
        timed.interrupted = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_found_where_the_kernel_reads_them() {
        let of = |nr, args| timeout_of(row(nr).timeout, &args);
        assert_eq!(of(libc::SYS_poll, [0; 6]), Some(Relative::Milliseconds(2)));
        let absolute = libc::TIMER_ABSTIME as u64;
        assert!(of(libc::SYS_clock_nanosleep, [1, absolute, 8, 0, 0, 0]).is_none());
        assert_eq!(of(libc::SYS_clock_nanosleep, [7, 0, 8, 0, 0, 0]), Some(Relative::Timespec(2, 7)));
        let private_wait = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
        assert_eq!(of(libc::SYS_futex, [8, private_wait, 0, 8, 0, 0]), Some(Relative::Timespec(3, 1)));
        assert!(of(libc::SYS_futex, [8, libc::FUTEX_WAIT_BITSET as u64, 0, 8, 0, 0]).is_none());
        assert!(of(libc::SYS_ppoll, [0; 6]).is_none() && of(libc::SYS_read, [0; 6]).is_none());
    }

    /// A handler that runs while a call is being made again interrupts it; the timer of `alarm` would otherwise have rung in vain.
    #[test]
    fn a_call_that_is_made_again_can_be_interrupted() {
        let place = Place { nr: libc::SYS_pause, rip: 0x5002, rsp: 0x9000 };
        let mut calls = Calls::NONE;
        assert!(calls.begin(place).is_none());
        calls.handler_runs(place, None, None, false);
        assert!(calls.begin(place).is_none(), "the handler ran before the call was made");
        calls.again = true;
        calls.handler_runs(place, None, None, true);
        assert!(calls.begin(place).is_none(), "restarted");
        calls.handler_runs(Place { rsp: 0x8000, ..place }, None, None, false);
        assert!(calls.begin(place).is_none(), "another one");
        calls.handler_runs(place, None, None, false);
        assert!(calls.begin(Place { rip: 0x6002, rsp: 0x8000, ..place }).is_none(), "the handler's own call");
        assert!(calls.begin(place).is_some());
        assert!(calls.begin(place).is_none(), "once");
        calls.again = true;
        calls.handler_runs(place, None, None, false);
        assert!(calls.begin(Place { rip: 0x6002, rsp: 0x9010, ..place }).is_none(), "the caller has jumped away");
        assert!(calls.begin(place).is_none());
    }

    /// A handler ends a transfer that has begun, whatever its flags say; who calls anew at the same place begins anew.
    #[test]
    fn a_handler_ends_a_transfer_that_has_begun() {
        let place = Place { nr: libc::SYS_write, rip: 0x5002, rsp: 0x9000 };
        let args = [1, 0x1000, 500, 0, 0, 0];
        let partial = Some(Partial { place, args, done: 200 });
        let mut scratch = Scratch { partial, ..Scratch::EMPTY };
        assert_eq!(scratch.going_on(place, &args, 200), None, "not taken back");
        (scratch.calls.place, scratch.calls.again) = (place, true);
        assert_eq!(scratch.going_on(place, &args, 200), partial);
        assert_eq!(scratch.going_on(place, &args, 0), None, "that one is over");
        assert_eq!(scratch.going_on(place, &[1, 0x1000, 400, 0, 0, 0], 200), None, "another call");
        scratch.calls.handler_runs(place, None, partial, true);
        assert_eq!(scratch.going_on(place, &args, 200), None);
        assert_eq!(scratch.calls.begin(place).map(|call| call.done), Some(200));
        assert_eq!(scratch.calls.begin(place), None, "once");
    }

    /// A sleep is prepared, interrupted and prepared again: it gets what is left, and a later one of the same place its full time.
    #[test]
    fn an_interrupted_sleep_goes_on_with_what_is_left() {
        let mut scratch = Scratch::EMPTY;
        let asked: [i64; 2] = [3, 500_000_000];
        let begun = sys::monotonic_ns();
        let args = [&raw const asked as u64, 0, 0, 0, 0, 0];
        let prepare = |scratch: &mut Scratch, rsp| {
            let mut new = args;
            replace_timeout(&Call::new(libc::SYS_nanosleep as u64, args, 0x5002, rsp), scratch, &mut new);
            new != args
        };
        assert!(!prepare(&mut scratch, 0x9000));
        assert!(!prepare(&mut scratch, 0x9000), "not interrupted: another call");
        scratch.timed.as_mut().unwrap().interrupted = true;
        assert!(!prepare(&mut scratch, 0x8000), "a call of a handler");
        assert!(!prepare(&mut scratch, 0x9000));
        scratch.timed.as_mut().unwrap().interrupted = true;
        scratch.timed.as_mut().unwrap().end_ns -= 1_000_000_000;
        assert!(prepare(&mut scratch, 0x9000));
        // A second of the three and a half has passed, and what this test has taken.
        let taken = (sys::monotonic_ns() - begun) as i64;
        let left = scratch.left[0] * 1_000_000_000 + scratch.left[1];
        assert!((2_500_000_000 - taken..=2_500_000_000).contains(&left), "{left} {taken}");
        scratch.timed.as_mut().unwrap().interrupted = true;
        scratch.timed.as_mut().unwrap().end_ns = 0;
        assert!(prepare(&mut scratch, 0x9000));
        assert_eq!(scratch.left, [0, 0], "the time is up");
    }
}
