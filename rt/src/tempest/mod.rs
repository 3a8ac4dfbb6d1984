//! The Tempest interface (`tempest.h`): mechanisms from which programs build their own protocols.
//!
//! Purpose: user-managed pages with access tags, the program's handlers for faults, messages and timers, bulk channels. Input: calls of
//! the program, misses on its pages, messages of its other nodes. Output: calls of its handlers.
//! Source: Tempest 1.2.1; Reinhardt 1996, section 2.2 and appendix A.
//!
//! * [`segment`], [`pages`]: section 3.1. * [`blocks`], [`faults`]: 3.2. * [`messages`], [`inbox`], [`names`]: 3.3. * [`bulk`], [`staging`]: 3.4.
//! * [`timers`]: 3.5. * [`threads`]: 3.6. * [`state`]: running a handler inside a gate. * [`api`]: the functions by name.
//!
//! # Where handlers run
//!
//! The specification's protocol thread is the computation thread itself, inside the runtime: in a miss, a poll, a call that waits, or a call of
//! this interface. [`invoke`] runs one handler at a time; [`run_events`] chooses the next: timers before messages (section 2), while
//! the handler of a fault runs at the fault, before anything that waits. While a handler runs
//! * nothing is received, and its polls do nothing;
//! * it may call the functions of this interface: the node is [lent](crate::node::Node::lend) to it;
//! * what must wait (a miss, a lock, a barrier) is an error that names the handler's kind.
//!
//! **Invariants**: [`with`] is never inside itself, and no reference into the state lives while a handler runs; one thread of a node
//! uses this module.

pub mod api;
pub mod blocks;
pub mod bulk;
pub mod faults;
pub mod inbox;
pub mod messages;
pub mod names;
pub mod pages;
pub mod segment;
pub mod staging;
pub mod state;
pub mod threads;
pub mod timers;

use crate::gates::access;
use crate::kernel::sys;
use crate::libraries::modules::MODULES;
use crate::node::{self, Node};
use crate::system_calls::{guarded, signals};
use crate::transport::message::Message;
use crate::transport::stage;
use blizzard_contract::tempest::{BlockFaultHandler, ChannelHandler, MessageHandler, PageFaultHandler, TimerHandler};
use blizzard_contract::{self as contract, Counter};
use blizzard_protocol::ids::NodeId;
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering, compiler_fence};

/// What a run says about this interface; see [`contract::RegionHeader`].
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub debug: bool,
    pub direct_bulk: bool,
    pub buffer_bytes: u64,
    pub pages: u64,
}

impl Settings {
    /// Those of a run that nobody launched.
    pub const DEFAULT: Settings = Settings {
        debug: false,
        direct_bulk: true,
        buffer_bytes: contract::TEMPEST_BUFFER_DEFAULT_BYTES,
        pages: contract::USER_BYTES >> contract::tempest::PAGE_SHIFT,
    };

    pub const fn of(header: &contract::RegionHeader) -> Settings {
        Settings {
            debug: header.tempest_flags & contract::tempest_flags::DEBUG != 0,
            direct_bulk: header.tempest_flags & contract::tempest_flags::NO_DIRECT_BULK == 0,
            buffer_bytes: header.tempest_buffer_bytes,
            pages: header.tempest_pages,
        }
    }
}

/// Everything that the interface keeps on one node.
pub struct State {
    pub settings: Settings,
    pub pages: pages::Pages,
    pub faults: faults::Faults,
    pub messages: messages::Messages,
    pub names: names::Names,
    pub bulk: bulk::Bulk,
    pub timers: timers::Timers,
}

impl State {
    /// # Errors
    /// The kernel's, when it gives no address space.
    pub fn new(settings: Settings) -> sys::Result<State> {
        Ok(State {
            settings,
            pages: pages::Pages::new(settings.pages)?,
            faults: faults::Faults::new(),
            messages: messages::Messages::new()?,
            names: names::Names::new(),
            bulk: bulk::Bulk::new(settings.direct_bulk),
            timers: timers::Timers::new(),
        })
    }
}

/// The one state. At a page of its own: see [`crate::kernel::unaliased`].
#[repr(align(4096))]
struct Global {
    /// `state` is there.
    active: AtomicBool,
    /// Somebody is inside [`with`].
    borrowed: AtomicBool,
    /// The process may have several threads: in a run of one node.
    threaded: AtomicBool,
    /// The runtime was entered by a gate: the program's registers are live.
    by_gate: AtomicBool,
    /// The kind of handler that runs, or [`Kind::None`].
    running: AtomicU8,
    /// Thread that uses the interface.
    thread: AtomicI32,
    /// The program has started another one.
    has_threads: AtomicBool,
    state: UnsafeCell<MaybeUninit<State>>,
}

// SAFETY: `state` is written by `start` before `active`, then used under `borrowed`.
unsafe impl core::marker::Sync for Global {}

#[cfg(not(test))]
static GLOBAL: Global = Global::new();

/// In a test each thread has its own: it may run several nodes, other tests run beside it.
#[cfg(test)]
static GLOBAL: OfThread = OfThread;

#[cfg(test)]
struct OfThread;

#[cfg(test)]
impl core::ops::Deref for OfThread {
    type Target = Global;

    fn deref(&self) -> &Global {
        std::thread_local! {
            static OF_THREAD: &'static Global = std::boxed::Box::leak(std::boxed::Box::new(Global::new()));
        }
        OF_THREAD.with(|global| *global)
    }
}

impl Global {
    const fn new() -> Global {
        Global {
            active: AtomicBool::new(false),
            borrowed: AtomicBool::new(false),
            threaded: AtomicBool::new(false),
            by_gate: AtomicBool::new(false),
            running: AtomicU8::new(Kind::None as u8),
            thread: AtomicI32::new(0),
            has_threads: AtomicBool::new(false),
            state: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}

/// Kinds of handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    None,
    PageFault,
    BlockFault,
    Timer,
    Message,
    Channel,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::None, "program"),
    (Kind::PageFault, "handler of a page fault"),
    (Kind::BlockFault, "handler of a block access fault"),
    (Kind::Timer, "handler of a timer"),
    (Kind::Message, "handler of a message"),
    (Kind::Channel, "callback of a channel"),
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KINDS[*self as usize].1)
    }
}

#[cfg(test)]
std::thread_local! {
    /// The state of the node that this thread runs, in a test that runs several.
    static OF_TEST: core::cell::Cell<*mut State> = const { core::cell::Cell::new(core::ptr::null_mut()) };
}

#[cfg(test)]
fn of_test<'a>() -> Option<&'a mut State> {
    // SAFETY: `set_of_test`'s caller keeps it; `with` does not nest.
    unsafe { OF_TEST.get().as_mut() }
}

/// From here on this thread runs a node with that state, or none.
///
/// # Safety
/// The state stays where it is, and nobody else uses it, until this is called again.
#[cfg(test)]
pub unsafe fn set_of_test(state: *mut State) {
    OF_TEST.set(state);
}

/// Whether the program uses the interface.
#[inline]
pub fn is_active() -> bool {
    #[cfg(test)]
    if of_test().is_some() {
        return true;
    }
    GLOBAL.active.load(Ordering::Relaxed)
}

/// The kind of the program's handler that runs now; [`Kind::None`] when none does.
pub fn running() -> Kind {
    KINDS.get(usize::from(GLOBAL.running.load(Ordering::Relaxed))).map_or(Kind::None, |&(kind, _)| kind)
}

/// Whether the handler of a message runs.
#[inline]
fn in_message() -> bool {
    GLOBAL.running.load(Ordering::Relaxed) == Kind::Message as u8
}

/// Whether a handler of the program runs.
#[inline]
pub fn in_handler() -> bool {
    GLOBAL.running.load(Ordering::Relaxed) != Kind::None as u8
}

/// Notes how the runtime was entered: by a gate, where the program's vector registers are live, or by a C call.
pub fn entered(by_gate: bool) {
    if !in_handler() {
        GLOBAL.by_gate.store(by_gate, Ordering::Relaxed);
    }
}

/// Makes the segment and the state; once, before every other call.
fn start() {
    if is_active() {
        return;
    }
    let settings = node::tempest_settings();
    // SAFETY: once (`active`), after the start of the runtime.
    let mapped = unsafe { segment::map() };
    if let Err(e) = mapped {
        node::fail(format_args!("{e}"));
    }
    match State::new(settings) {
        Ok(state) => {
            // SAFETY: not active yet, so nobody looks.
            unsafe { (*GLOBAL.state.get()).write(state) };
        }
        Err(e) => node::fail(format_args!("cannot reserve the memory of tempest.h: {e}")),
    }
    GLOBAL.thread.store(sys::gettid(), Ordering::Relaxed);
    GLOBAL.threaded.store(node::nodes() == 1, Ordering::Relaxed);
    if node::nodes() == 1 {
        // SAFETY: the runtime has started.
        if let Err(e) = unsafe { crate::memory::segment::let_gathers_look() } {
            node::fail(format_args!("cannot change the runtime's page of constants: {e}"));
        }
    }
    GLOBAL.active.store(true, Ordering::Release);
    require_own_limits();
    if node::nodes() == 1 {
        guarded::activate();
    }
}

/// The program is about to start a thread, in a run of one node.
pub fn note_thread() {
    GLOBAL.has_threads.store(true, Ordering::Relaxed);
    require_own_limits();
}

/// Ends the run if loops of several threads would take each other's limits for their own (`contract::LIMIT_UP`), and so use blocks that they have not
/// tested. Where nothing is ever inaccessible, that is, without this interface, the limits do not matter. When the interface is started, a thread, or a
/// module is loaded.
pub fn require_own_limits() {
    if is_active() && GLOBAL.has_threads.load(Ordering::Relaxed) && MODULES.share_limits() {
        refuse_threads();
    }
}

#[cold]
fn refuse_threads() -> ! {
    node::fail(format_args!(
        "the program uses tempest.h and starts a thread: its loops test tags for several iterations, and keep the limit of what they have \
         tested in one word of the process; rewrite it with --no-strips"
    ))
}

/// Uses the state.
#[inline]
fn with<R>(run: impl FnOnce(&mut State) -> R) -> R {
    #[cfg(test)]
    if let Some(state) = of_test() {
        return run(state);
    }
    if !is_active() {
        refuse_unstarted();
    }
    let inside = if GLOBAL.threaded.load(Ordering::Relaxed) {
        GLOBAL.borrowed.swap(true, Ordering::Acquire)
    } else {
        // No exchange: what could come between the two is a signal handler on this very thread, which leaves the word as it found it.
        let inside = GLOBAL.borrowed.load(Ordering::Relaxed);
        GLOBAL.borrowed.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        inside
    };
    if inside {
        refuse_nested();
    }
    // SAFETY: active, and `borrowed` was clear, so nobody else has a reference.
    let result = run(unsafe { (*GLOBAL.state.get()).assume_init_mut() });
    GLOBAL.borrowed.store(false, Ordering::Release);
    result
}

#[cold]
fn refuse_unstarted() -> ! {
    node::fail(format_args!("a function of tempest.h was called before the interface was started"))
}

#[cold]
fn refuse_nested() -> ! {
    node::fail(format_args!(
        "tempest.h inside itself: a signal handler or another thread uses it; only the node's main thread may"
    ))
}

/// Whether this is the thread that the interface belongs to, of the process that has started it. Asks the kernel.
pub fn is_own_thread() -> bool {
    sys::gettid() == GLOBAL.thread.load(Ordering::Relaxed)
}

/// Whether this thread handles what waits for the interface, if the program uses it.
pub fn may_run_here() -> bool {
    !guarded::is_active() || is_own_thread()
}

/// Ends the run unless this is the thread that the interface belongs to. In runs of several nodes there is no other.
fn require_own_thread(what: &str) {
    if node::nodes() == 1 && !is_own_thread() {
        node::fail(format_args!("{what} by another thread: user-managed memory belongs to the node's main thread"));
    }
}

/// How a function of the interface reaches the nodes.
pub enum Host<'a> {
    /// The only node.
    Alone,
    Node(&'a mut Node),
}

impl Host<'_> {
    pub fn me(&self) -> NodeId {
        match self {
            Host::Alone => NodeId::new(0).unwrap_or_else(|| unreachable!("0 is a node")),
            Host::Node(node) => node.me,
        }
    }

    fn node(&mut self) -> Option<&mut Node> {
        match self {
            Host::Alone => None,
            Host::Node(node) => Some(node),
        }
    }

    /// Counts one event.
    fn count(&self, counter: Counter) {
        match self {
            Host::Alone => access::count(counter),
            Host::Node(node) => node.count(counter),
        }
    }

    /// Sends a message of the runtime's own about a channel.
    fn send(&mut self, to: NodeId, message: Message) {
        match self {
            Host::Node(node) => node.send(to, message),
            Host::Alone => bulk::deliver(self, to, &message),
        }
    }
}

/// The node with that number, or the end of the run.
fn require_node(function: &str, number: u32) -> NodeId {
    require_node_among(node::nodes(), function, number)
}

/// The same for who has the host.
#[inline]
fn require_node_of(host: &mut Host<'_>, function: &str, number: u32) -> NodeId {
    require_node_among(host.node().map_or(1, |node| node.region().header().nodes), function, number)
}

#[inline]
fn require_node_among(nodes: u32, function: &str, number: u32) -> NodeId {
    match NodeId::new(number).filter(|_| number < nodes) {
        Some(node) => node,
        None => node::fail(format_args!("{function}: there is no node {number}, the run has {nodes}")),
    }
}

/// A call of the program's code.
#[derive(Clone, Copy)]
pub enum Invocation {
    PageFault(PageFaultHandler, u64, i32, bool),
    BlockFault(BlockFaultHandler, u64, u64, u32),
    Timer(TimerHandler, u64),
    Message(MessageHandler, u32, i32),
    Channel(ChannelHandler, u32, i32),
}

impl Invocation {
    fn kind(&self) -> Kind {
        match self {
            Invocation::PageFault(..) => Kind::PageFault,
            Invocation::BlockFault(..) => Kind::BlockFault,
            Invocation::Timer(..) => Kind::Timer,
            Invocation::Message(..) => Kind::Message,
            Invocation::Channel(..) => Kind::Channel,
        }
    }

    /// # Safety
    /// The function is the program's handler of that type.
    unsafe fn run(&self) {
        // SAFETY: passed on from the caller.
        unsafe {
            match *self {
                Invocation::PageFault(run, va, pc, is_write) => run(va, pc, is_write.into()),
                Invocation::BlockFault(run, va, usr_ptr, home) => run(va, usr_ptr, home),
                Invocation::Timer(run, user_ptr) => run(user_ptr),
                Invocation::Message(run, src, size) => run(src, size),
                Invocation::Channel(run, node, channel) => run(node, channel),
            }
        }
    }
}

/// # Safety
/// `call` points to an [`Invocation`] whose function is the program's.
unsafe extern "C" fn trampoline(call: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe { (*call.cast::<Invocation>()).run() }
}

/// Runs a handler of the program to its end.
#[inline]
fn invoke(host: &mut Host<'_>, mut call: Invocation) {
    debug_assert!(!in_handler());
    GLOBAL.running.store(call.kind() as u8, Ordering::Relaxed);
    let by_gate = GLOBAL.by_gate.load(Ordering::Relaxed);
    let mut run = || {
        let call = (&raw mut call).cast::<u8>();
        // SAFETY: the program gave the function for this purpose; at a gate its registers are kept.
        unsafe { if by_gate { state::with_saved_state(trampoline, call) } else { trampoline(call) } }
    };
    match host {
        Host::Alone => run(),
        Host::Node(node) => node.lend(run),
    }
    GLOBAL.running.store(Kind::None as u8, Ordering::Relaxed);
}

/// Handlers that one [`run_events`] runs at most.
const BUDGET: u32 = 256;

/// Whether [`run_events`] has something to do.
#[inline]
pub fn has_events() -> bool {
    is_active() && !in_handler() && (timers::is_due() || with(|t| t.messages.is_waiting() || t.bulk.has_work()))
}

/// Runs handlers of timers, messages and channels until there is nothing to do, `enough` says so, or the budget is used up; then the
/// doorbell stays set.
pub fn run_events(host: &mut Host<'_>, enough: impl Fn() -> bool) {
    if !is_active() || in_handler() {
        return;
    }
    for _ in 0..BUDGET {
        if enough() {
            break;
        }
        if let Some((run, user_ptr)) = timers::take_due() {
            host.count(Counter::UserTimers);
            invoke(host, Invocation::Timer(run, user_ptr));
        } else if let Some(message) = with(|t| t.messages.begin()) {
            messages::run(host, message);
        } else if let Some(callback) = with(|t| t.bulk.next_callback()) {
            invoke(host, callback);
        } else if !bulk::step(host) {
            break;
        }
    }
    if wants_poll() {
        remind();
    }
}

/// Whether the next poll is to come here, though perhaps there will be nothing to do yet.
pub fn wants_poll() -> bool {
    has_events() || is_active() && !in_handler() && with(|t| t.bulk.awaits_pieces())
}

/// Makes the next poll enter the runtime.
fn remind() {
    if stage::is_directed() {
        return;
    }
    // SAFETY: the context page is mapped for the whole run.
    unsafe { core::sync::atomic::AtomicU32::from_ptr(contract::POLL_WORD as *mut u32) }.store(1, Ordering::Relaxed);
}

/// Waits, running handlers, until `done`; in a run of one node, where nothing but a timer can come from outside, a wait without end is
/// an error that `what` describes.
fn wait(host: &mut Host<'_>, what: crate::node::stats::Wait, done: impl Fn() -> bool, describe: fmt::Arguments<'_>) {
    match host {
        Host::Node(node) => node.wait_running_handlers(what, done),
        Host::Alone => loop {
            run_events(host, &done);
            if done() {
                return;
            }
            if !matches!(what, crate::node::stats::Wait::Miss) {
                // A call of the program, with nothing that relies on tags behind it.
                signals::safe_point();
            }
            if !has_events() && !timers::sleep_until_due() {
                node::fail(format_args!("{describe}: nothing can end that in a run of one node"));
            }
        },
    }
}

/// Entry code of a function of the program, as its handlers are called: the rewritten code of an original address. Ends the run when there is none.
fn require_function(function: &str, address: u64) -> u64 {
    match MODULES.entry(address) {
        Some(new) => new,
        None => node::fail(format_args!("{function}: {address:#x} is not a function of rewritten code")),
    }
}
