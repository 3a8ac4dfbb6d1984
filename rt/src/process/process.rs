//! The node of this process: what the gates, the entry and the launcher need of it.
//!
//! Purpose: [`start`] decides which kind of run this is and maps everything; the other functions are the ways into the runtime. In a
//! run of several nodes they all lead to the one [`Node`]. Input: the launcher's [`Boot`] word, misses, polls, calls. Output: tags, messages, the
//! end of the run.
//!
//! **Invariants**: nothing here runs before [`start`], which the entry calls before any rewritten instruction; the node is used by one
//! call at a time ([`GLOBAL`]'s `inside`), on a stack of its own ([`own_stack`]); what a signal handler of the program does inside an interrupted call is refused, a poll excepted.

use crate::kernel::limits;
use crate::kernel::near;
use crate::kernel::owned::{PerProcess, PerThread};
use crate::kernel::print;
use crate::kernel::sys;
use crate::links::ending::{self, EXIT_FAILED};
use crate::memory::access_control::interface::AccessControl;
use crate::memory::access_control::program::{self, PROGRAM, UNTESTED_FAULTS};
use crate::memory::region::{ContextPage, Region};
use crate::memory::segment;
use crate::memory::tags::Space;
use crate::node::access::Lane;
use crate::node::calls::creation;
use crate::node::node::Node;
use crate::node::single::Single;
use crate::node::user_handlers;
use crate::node::waiting::Entered;
use crate::process::host::CallHost;
use crate::process::own_stack;
use crate::transport::control;
use blizzard_contract::{self as contract, Counter, RegionHeader};
use blizzard_protocol::ids::{NodeId, RUN_NODES};
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, compiler_fence};

/// Who this node is, from [`contract::BOOT_ENV`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    pub fd: i32,
    pub node: u32,
    /// Where blocks are counted.
    pub blocks: Option<i32>,
}

/// Exit status of a node that could not be started, as shells use it.
const EXIT_CANNOT_START: i32 = 127;
/// What the gates give to this module.
#[derive(Clone, Copy)]
pub struct Gates {
    /// Addresses for the private context page.
    pub addresses: fn(RunKind) -> [u64; 7],
    /// Lets in the signals that were put off.
    pub safe_point: fn(),
    /// Behind an access that several ranges were made accessible for: those in private memory, and whether there were others.
    pub required: fn(&[Lane], bool),
    /// Treats the calling thread, in a run of one node, as the thread of a run of several nodes: it has started `tempest.h`.
    pub guard_thread: fn(),
}

/// What the gates depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// One node.
    Alone,
    /// A processor for each node.
    Several,
    /// Two nodes or more for each processor.
    Crowded,
    /// Several nodes, each of whose accesses is looked at.
    Watched,
}

/// Kinds of runs.
mod mode {
    /// Before [`super::start`].
    pub const NONE: u32 = 0;
    pub const SINGLE: u32 = 1;
    pub const SEVERAL: u32 = 2;
    /// A process forked from a node of a run of several.
    pub const DETACHED: u32 = 3;
}

/// What a failing process must know.
#[derive(Clone, Copy)]
struct Identity {
    node: u32,
    nodes: u32,
    /// Launched: the region and the own context page in it.
    launched: Option<(Region, ContextPage)>,
}

/// The process's node. At a page of its own: see [`crate::kernel::unaliased`].
#[repr(align(4096))]
struct Global {
    mode: AtomicU32,
    /// Some call is inside [`Node`].
    inside: PerThread<AtomicBool>,
    /// The node, while a handler of the program runs inside it.
    lent: PerThread<AtomicPtr<Node>>,
    /// The program runs: errors are its own.
    started: AtomicBool,
    identity: UnsafeCell<Identity>,
    gates: UnsafeCell<Gates>,
    node: PerThread<UnsafeCell<MaybeUninit<Node>>>,
    single: UnsafeCell<MaybeUninit<Single>>,
}

// SAFETY: `identity`, `gates` and `single` are written by `start` before any other use, then used by shared reference. The node's thread uses `node` under
// `inside`.
unsafe impl core::marker::Sync for Global {}

static GLOBAL: PerProcess<Global> = PerProcess::new(Global {
    mode: AtomicU32::new(mode::NONE),
    inside: PerThread::new(AtomicBool::new(false)),
    lent: PerThread::new(AtomicPtr::new(core::ptr::null_mut())),
    started: AtomicBool::new(false),
    identity: UnsafeCell::new(Identity { node: 0, nodes: 1, launched: None }),
    gates: UnsafeCell::new(Gates {
        addresses: |_| [0; 7],
        safe_point: || (),
        required: |_, _| (),
        guard_thread: || (),
    }),
    node: PerThread::new(UnsafeCell::new(MaybeUninit::uninit())),
    single: UnsafeCell::new(MaybeUninit::uninit()),
});

/// Gives the node to the program's handler that `run` calls: until it returns, the functions of `tempest.h` find the node here.
pub fn lend<R>(node: &mut Node, run: impl FnOnce() -> R) -> R {
    GLOBAL.lent.store(node, Ordering::Relaxed);
    let result = run();
    GLOBAL.lent.store(core::ptr::null_mut(), Ordering::Relaxed);
    result
}

/// Lets in the signals that were put off: nothing of the program waits between a check and its access.
pub fn safe_point() {
    // SAFETY: written by `start` only, before the program runs.
    unsafe { ((*GLOBAL.gates.get()).safe_point)() }
}

/// See [`Gates::guard_thread`].
pub fn guard_thread() {
    // SAFETY: as above.
    unsafe { ((*GLOBAL.gates.get()).guard_thread)() }
}

/// See [`Gates::required`].
pub fn required(private: &[Lane], has_shared: bool) {
    // SAFETY: as above.
    unsafe { ((*GLOBAL.gates.get()).required)(private, has_shared) }
}

fn identity() -> Identity {
    // SAFETY: written by `start` only, on the only thread there is then.
    unsafe { *GLOBAL.identity.get() }
}

/// What a call of the program leads to.
pub enum ProgramCall<'a> {
    Single(&'a Single),
    Several(&'a mut Node),
}

/// Runs a call of the program's interface; `name` is for error lines.
pub fn with_run<R>(name: &str, run: impl FnOnce(ProgramCall<'_>) -> R) -> R {
    if user_handlers::in_handler() {
        refuse_in_handler(name);
    }
    user_handlers::entered(false);
    with_call(name, run)
}

/// A function that may wait was called where nothing may.
#[cold]
fn refuse_in_handler(name: &str) -> ! {
    fail(format_args!("{name} in the {}: a handler must not wait (Tempest 1.2.1, section 2)", user_handlers::running()))
}

/// Runs a function of `tempest.h`, also inside a handler of the program; `name` is for error lines.
pub fn with_host<R>(name: &str, run: impl FnOnce(CallHost<'_>) -> R) -> R {
    let lent = GLOBAL.lent.load(Ordering::Relaxed);
    if !lent.is_null() {
        // SAFETY: `lend` holds the only reference and does not use it before the handler returns; the handler is this thread's, and
        // functions of the interface do not nest.
        return run(CallHost::Node(unsafe { &mut *lent }));
    }
    with_call(name, |call| match call {
        ProgramCall::Single(_) => run(CallHost::Alone),
        ProgramCall::Several(node) => {
            let result = run(CallHost::Node(node));
            node.transport.interrupt_told();
            result
        }
    })
}

/// [`with_host`] for a gate.
pub fn with_host_at_gate<R>(name: &str, run: impl FnOnce(CallHost<'_>) -> R) -> R {
    user_handlers::entered(true);
    match GLOBAL.mode.load(Ordering::Relaxed) {
        mode::SEVERAL => enter(name, |node| {
            node.begin();
            let result = run(CallHost::Node(node));
            node.leave();
            result
        }),
        _ => run(CallHost::Alone),
    }
}

/// What the launcher has set, in a launched run.
pub fn header() -> Option<RegionHeader> {
    identity().launched.map(|(region, _)| *region.header())
}

/// Address of the places for what guarded code learns; 0 if nobody asks.
pub fn learnt() -> u64 {
    identity().launched.map_or(0, |(region, _)| region.learnt())
}

/// Address and bytes of the rules of allocations, if the run has any.
pub fn rules() -> Option<(u64, u64)> {
    identity().launched.and_then(|(region, _)| region.rules())
}

fn with_call<R>(name: &str, run: impl FnOnce(ProgramCall<'_>) -> R) -> R {
    let result = make_call(name, run);
    // Code without polls does not ask: not for what is there for this node itself, which no peer interrupts, nor in a loop of calls, in which signals of peers
    // find the runtime.
    if UNTESTED_FAULTS && (user_handlers::wants_poll() || is_several() && is_rung()) {
        poll();
    }
    result
}

/// Whether there is something to do for the next poll.
fn is_rung() -> bool {
    // SAFETY: a node of several has the page mapped.
    unsafe { ContextPage::at(contract::CONTEXT_SHARED) }.poll().load(Ordering::Relaxed) != 0
}

fn make_call<R>(name: &str, run: impl FnOnce(ProgramCall<'_>) -> R) -> R {
    match GLOBAL.mode.load(Ordering::Relaxed) {
        mode::SINGLE => {
            // SAFETY: initialised by `start` before it set the mode.
            let result = run(ProgramCall::Single(unsafe { (*GLOBAL.single.get()).assume_init_ref() }));
            safe_point();
            result
        }
        mode::SEVERAL => {
            let result = enter(name, |node| {
                node.begin();
                let result = run(ProgramCall::Several(node));
                node.leave();
                result
            });
            // A call of the program is a safe point, as a poll is.
            safe_point();
            result
        }
        mode::DETACHED => fail(format_args!(
            "{name} was called in a process forked from a node: only the node itself takes part in the run"
        )),
        _ => fail(format_args!("{name} was called before the runtime was started")),
    }
}

/// Uses the node; ends the run if a call is inside already.
fn enter<R>(name: &str, run: impl FnOnce(&mut Node) -> R) -> R {
    // No exchange: what could come between the two is a signal handler on this very thread, which leaves the word as it found it.
    if GLOBAL.inside.load(Ordering::Relaxed) {
        fail(format_args!(
            "{name} inside the runtime: a signal handler that interrupted it used shared memory; block the signal or let the \
             handler only set a flag"
        ));
    }
    own_stack::on_it(|| {
        // Not before: the call above may be more than the program's stack holds.
        GLOBAL.inside.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the mode says that `start` has initialised it; `inside` was clear, so nobody else has a reference.
        let result = run(unsafe { (*GLOBAL.node.get()).assume_init_mut() });
        compiler_fence(Ordering::SeqCst);
        GLOBAL.inside.store(false, Ordering::Relaxed);
        result
    })
}

/// Maps tag table, context pages and segment, and makes the node. Ends the process with an error line when that fails.
///
/// # Safety
/// Called once, by the entry, before the program runs.
pub unsafe fn start(boot: Option<Boot>, gates: Gates) {
    // SAFETY: once, before anything else; the descriptor is the launcher's.
    unsafe {
        *GLOBAL.gates.get() = gates;
        limits::make_room_for_code();
        near::reserve();
        or_fail(PROGRAM.start());
        match boot {
            None => start_single(None),
            Some(boot) => start_launched(boot),
        }
        let Identity { nodes, node, launched } = identity();
        let run = match launched {
            _ if nodes == 1 => RunKind::Alone,
            Some((region, _)) if region.has_promises() => RunKind::Watched,
            // Code without polls would leave the doorbell unanswered.
            Some((region, _)) if 2 * region.header().cpus <= nodes && !cfg!(feature = "guard") => RunKind::Crowded,
            _ => RunKind::Several,
        };
        or_fail(segment::fill_private_context((gates.addresses)(run), nodes, node));
        if let Some((_, context)) = launched {
            if nodes > 1 {
                // From here on peers may call this node by a signal, which ends a process that has no handler yet; it waits until
                // `dispatch::enable` has installed one.
                sys::set_signal_mask(sys::signal_mask() | 1 << (contract::CALL_SIGNAL - 1));
            }
            control::join(&context, sys::getpid() as u32);
        }
    }
    near::open_gap();
    GLOBAL.started.store(true, Ordering::Relaxed);
}

fn or_fail<T, E: fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => fail(format_args!("{e}")),
    }
}

fn require_memory<T>(result: sys::Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => fail(format_args!("cannot reserve the runtime's own memory: {e}")),
    }
}

/// # Safety
/// As [`start`].
unsafe fn start_single(region: Option<(i32, &Region)>) {
    let zero = const { NodeId::new(0).expect("0 is a node") };
    let usual = || contract::usual_segment_bytes(sys::memory_bytes());
    let bytes = region.map_or_else(usual, |(_, region)| region.header().segment_bytes);
    // SAFETY: once, before the program runs; the statics are not in use yet.
    unsafe {
        or_fail(segment::map_contexts(region.map(|(fd, region)| (fd, region.header(), zero))));
        or_fail(program::map_segment(bytes));
        let single = (*GLOBAL.single.get()).write(require_memory(Single::new(bytes, zero)));
        ContextPage::at(contract::CONTEXT_SHARED).set_arenas(single.arena_records());
    }
    GLOBAL.mode.store(mode::SINGLE, Ordering::Release);
}

/// # Safety
/// As [`start`].
unsafe fn start_launched(boot: Boot) {
    let region = or_fail(Region::map(boot.fd));
    let header = *region.header();
    if header.nodes as usize > RUN_NODES {
        fail(format_args!("the program was rewritten for at most {RUN_NODES} nodes, and the run has {}", header.nodes));
    }
    let me = match NodeId::new(boot.node).filter(|_| boot.node < header.nodes) {
        Some(me) => me,
        None => fail(format_args!("the launcher calls this node {} of {}", boot.node, header.nodes)),
    };
    // SAFETY: once, before the program runs; the statics are not in use yet.
    unsafe {
        *GLOBAL.identity.get() =
            Identity { node: boot.node, nodes: header.nodes, launched: Some((region, region.context(me))) };
        if header.nodes == 1 {
            start_single(Some((boot.fd, &region)));
        } else {
            or_fail(segment::map_contexts(Some((boot.fd, &header, me))));
            or_fail(program::map_segment(header.segment_bytes));
            or_fail(program::invalidate_segment(boot.fd, &header));
            if region.has_promises() {
                or_fail(program::separate_tags(boot.fd, &header));
            }
            region.context(me).set_stack_top(require_memory(own_stack::prepare()));
            let space = Space::program(header.segment_bytes);
            (*GLOBAL.node.get()).write(require_memory(Node::new(region, me, space)));
            GLOBAL.mode.store(mode::SEVERAL, Ordering::Release);
        }
    }
    // The mappings stay; the program must not see the descriptor.
    let _ = sys::close(boot.fd);
}

/// The launcher is told how many timers of the program are scheduled: it does not judge a node that one of them may wake.
pub fn note_timers(scheduled: u64) {
    if let Some((_, context)) = identity().launched {
        context.set_timers(scheduled);
    }
}

/// The region of a launched run.
pub fn region() -> Option<Region> {
    identity().launched.map(|(region, _)| region)
}

/// In a process that was just forked from node 0: it is node `me` from here on, for error messages too.
pub fn set_created(me: NodeId) {
    let Identity { nodes, launched, .. } = identity();
    let launched = launched.map(|(region, _)| (region, region.context(me)));
    // SAFETY: the child has one thread, and nobody holds a reference: `identity` copies.
    unsafe { *GLOBAL.identity.get() = Identity { node: me.index() as u32, nodes, launched } };
}

/// In a process that was just forked from node 0: puts a fresh node in place of the parent's.
///
/// # Safety
/// As [`Node::new`]; no call is inside the node.
pub unsafe fn restart(region: Region, me: NodeId, space: Space) {
    // SAFETY: the parent's node is in place; its memory is this process's own copy, which the drop gives back. One thread.
    unsafe {
        let entered = (*GLOBAL.node.get()).assume_init_ref().sync.collectives.entered();
        (*GLOBAL.node.get()).assume_init_drop();
        let node = (*GLOBAL.node.get()).write(require_memory(Node::new(region, me, space)));
        node.sync.collectives.continue_from(entered);
    }
    control::run(&region.context(me));
}

/// Releases created nodes before a system call that may block, or when they have waited for a while.
pub fn before_call(may_block: bool) {
    if creation::is_holding() && is_several() && !GLOBAL.inside.load(Ordering::Relaxed) {
        enter("a system call", |node| if may_block { node.release() } else { node.release_if_due() });
    }
}

/// This node's number.
pub fn number() -> u32 {
    identity().node
}

/// Number of nodes of this run.
#[inline]
pub fn nodes() -> u32 {
    // SAFETY: as in `identity`.
    unsafe { (*GLOBAL.identity.get()).nodes }
}

fn is_several() -> bool {
    GLOBAL.mode.load(Ordering::Relaxed) == mode::SEVERAL
}

/// Returns when every block of the range allows the access. `masked`: blocks of memory that was never allocated do not matter.
pub fn miss(addr: u64, bytes: u64, store: bool, masked: bool) {
    miss_noting(addr, bytes, store, masked, || ());
}

/// [`miss`]. `note` comes first, where the program has handlers that may run here.
pub fn miss_noting(addr: u64, bytes: u64, store: bool, masked: bool, note: impl FnOnce()) {
    if let Some(user) = user_handlers::active() {
        note();
        if (user.miss)(&[Lane { addr, bytes, store, masked }]) {
            return;
        }
    }
    if !is_several() {
        return;
    }
    let is_accessible = || {
        // SAFETY: only reads tags, which no call changes while this thread is here.
        let node = unsafe { (*GLOBAL.node.get()).assume_init_ref() };
        let is_accessible = node.is_accessible(addr, bytes, store);
        if is_accessible {
            node.count(Counter::FalseMisses);
        }
        is_accessible
    };
    if is_accessible() {
        if !is_rung() {
            return;
        }
        // That is why the access has come here: plain code may have no poll for a while.
        poll();
        if is_accessible() {
            return;
        }
    }
    at_gate("a miss", |node| node.miss(addr, bytes, store, masked));
}

/// As [`miss`], for several ranges; on return all allow their access at once.
pub fn miss_lanes(lanes: &[Lane]) {
    if user_handlers::active().is_some_and(|user| (user.miss)(lanes)) {
        return;
    }
    if !is_several() {
        return;
    }
    // SAFETY: as in `miss`.
    let node = unsafe { (*GLOBAL.node.get()).assume_init_ref() };
    if lanes.iter().all(|l| node.is_accessible(l.addr, l.bytes, l.store)) {
        return node.count(Counter::FalseMisses);
    }
    at_gate("a miss", |node| {
        node.begin();
        node.access_lanes(lanes);
        node.leave();
    });
}

/// Looks whether an access keeps the promise of its memory's protocol; `place`: the return address of the gate that the program has entered for it.
/// `is_atomic`: as in [`Node::watch`].
pub fn watch(place: u64, lane: Lane, is_atomic: bool) {
    if is_several() {
        // SAFETY: as in `miss`.
        unsafe { (*GLOBAL.node.get()).assume_init_ref() }.watch(place, lane, is_atomic);
    }
}

/// [`enter`] for what the program's own code does between two of its instructions.
fn at_gate<R>(name: &str, run: impl FnOnce(&mut Node) -> R) -> R {
    if user_handlers::in_handler() {
        refuse_in_handler(name);
    }
    user_handlers::entered(true);
    enter(name, run)
}

/// Behind a miss in a run with two nodes or more for each processor.
pub fn expect_spin() {
    if is_several() && !user_handlers::in_handler() && !GLOBAL.inside.load(Ordering::Relaxed) {
        enter("a miss", Node::expect_spin);
    }
}

/// Runs what is pending after the doorbell was set.
pub fn poll() {
    poll_by(Node::poll);
}

/// [`poll`] in a loop of the program, with the registers that it has there.
pub fn poll_in_loop(registers: impl FnOnce() -> u64) {
    poll_by(|node| node.poll_in_loop(registers));
}

#[inline]
fn poll_by(poll: impl FnOnce(&mut Node)) {
    if user_handlers::in_handler() {
        return;
    }
    user_handlers::entered(true);
    // A signal handler that interrupted the runtime polls too; the interrupted call does the work.
    if is_several() && !GLOBAL.inside.load(Ordering::Relaxed) {
        enter("a poll", poll);
    } else if let Some((region, context)) = identity().launched.filter(|_| !is_several()) {
        // A run of one node: the launcher rings, and who uses `tempest.h`, whose thread must hear of it.
        let user = user_handlers::active().filter(|user| (user.may_run_here)());
        if user.is_some() || !user_handlers::is_active() {
            context.poll().store(0, Ordering::Relaxed);
        }
        if control::is_aborted(&region) {
            sys::exit_group(EXIT_FAILED);
        }
        if let Some(user) = user {
            (user.run_alone)();
        }
    } else if GLOBAL.mode.load(Ordering::Relaxed) == mode::SINGLE
        && let Some(user) = user_handlers::active().filter(|user| (user.may_run_here)())
    {
        silence_doorbell();
        (user.run_alone)();
    }
}

/// [`poll`] where a peer has interrupted code without polls.
pub fn answer() {
    if cfg!(feature = "guard") && is_several() && !user_handlers::in_handler() && !is_inside() {
        user_handlers::entered(true);
        enter("a poll", Node::answer);
    } else {
        poll();
    }
}

/// Silences the doorbell of this process.
pub fn silence_doorbell() {
    // SAFETY: the context page is mapped for the process's life.
    unsafe { AtomicU32::from_ptr(contract::POLL_WORD as *mut u32) }.store(0, Ordering::Relaxed);
}

/// Before a system call that may wait, its memory accessible: tells the peers to call this node by a signal. Otherwise the caller polls and prepares the
/// call again.
pub fn enter_kernel() -> Entered {
    if !is_several() || GLOBAL.inside.load(Ordering::Relaxed) {
        return Entered::Yes;
    }
    user_handlers::entered(true);
    enter("a system call", Node::enter_kernel)
}

/// Stops replacement while the memory of a system call is acquired, range by range.
pub fn hold_pages(hold: bool) {
    if is_several() && !GLOBAL.inside.load(Ordering::Relaxed) {
        enter("a system call", |node| node.hold_pages(hold));
    }
}

/// Whether a call is inside the runtime; a signal handler that interrupted it must not enter.
pub fn is_inside() -> bool {
    GLOBAL.inside.load(Ordering::Relaxed)
}

/// The program exits; returns when the process may really end. With status 0 in a run of several nodes: when all have got so far. With
/// another status the run ends.
pub fn exiting(status: i32) {
    let Some((region, context)) = identity().launched else { return };
    if user_handlers::in_handler() && status == 0 {
        refuse_in_handler("exit");
    }
    user_handlers::entered(true);
    let several = is_several();
    if several && !GLOBAL.inside.load(Ordering::Relaxed) {
        enter("exit", Node::fold_times);
    }
    if status != 0 {
        return control::fail(&region, &context, status);
    }
    control::finish(&context);
    if several {
        enter("exit", |node| {
            node.begin();
            node.finish();
            node.fold_times();
            node.transport.make_sure();
            control::leave(&node.context);
        });
    }
}

/// In a process that was just forked from this one, on its only thread: takes no part in the run any more. The caller gives it
/// a context page of its own.
pub fn detach_child() {
    if is_several() {
        GLOBAL.mode.store(mode::DETACHED, Ordering::Relaxed);
    }
    // SAFETY: the child has one thread, and nobody holds a reference: `identity` copies.
    unsafe { (*GLOBAL.identity.get()).launched = None };
}

/// Reports an error and ends the run. In a launched run the launcher prints the message, else it goes to standard error.
pub fn fail(message: fmt::Arguments<'_>) -> ! {
    fail_at(0, message)
}

/// [`fail`], because of what is at an address.
pub fn fail_at(addr: u64, message: fmt::Arguments<'_>) -> ! {
    let status = if GLOBAL.started.load(Ordering::Relaxed) { EXIT_FAILED } else { EXIT_CANNOT_START };
    if let Some((region, context)) = identity().launched {
        ending::fail_run(&region, context, status, addr, message);
    }
    if cfg!(test) {
        panic!("{message}");
    }
    print::error(message);
    sys::exit_group(status)
}
