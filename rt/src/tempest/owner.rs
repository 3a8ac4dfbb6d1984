//! Who may use the interface, and what the run says about it.
//!
//! Purpose: the statics of [`crate::tempest`] belong to one thread of the node, the one that has started the interface. Input: the run's header, threads of the
//! program. Output: settings, or one line that ends the run.
//! **Invariant**: no reference into the statics lives while a handler of the program runs.

use crate::kernel::owned::{Misuse, PerNode, PerProcess, Turn};
use crate::kernel::sys;
use crate::libraries::modules::MODULES;
use crate::node::user_handlers::is_active;
use crate::process::host::CallHost;
use crate::process::process;
use blizzard_contract as contract;
use blizzard_protocol::ids::NodeId;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Thread that uses the interface.
static THREAD: PerProcess<AtomicI32> = PerProcess::new(AtomicI32::new(0));
/// The program has started another one.
static HAS_THREADS: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));
/// Of all statics of the interface.
pub static TURN: Turn = Turn::new(refuse);
/// What the run says.
pub static SETTINGS: PerNode<TempestSettings> = PerNode::new(&TURN);

/// What a run says about this interface; see [`contract::RegionHeader`].
#[derive(Clone, Copy, Debug)]
pub struct TempestSettings {
    pub debug: bool,
    pub direct_bulk: bool,
    pub buffer_bytes: u64,
    pub pages: u64,
}

impl TempestSettings {
    /// Those of a run that nobody launched.
    pub const DEFAULT: TempestSettings = TempestSettings {
        debug: false,
        direct_bulk: true,
        buffer_bytes: contract::TEMPEST_BUFFER_DEFAULT_BYTES,
        pages: contract::USER_BYTES >> contract::tempest::PAGE_SHIFT,
    };

    pub const fn of(header: &contract::RegionHeader) -> TempestSettings {
        TempestSettings {
            debug: header.tempest_flags & contract::tempest_flags::DEBUG != 0,
            direct_bulk: header.tempest_flags & contract::tempest_flags::NO_DIRECT_BULK == 0,
            buffer_bytes: header.tempest_buffer_bytes,
            pages: header.tempest_pages,
        }
    }
}

/// The run's settings.
pub fn settings() -> TempestSettings {
    SETTINGS.with(|settings| *settings)
}

/// This thread uses the interface from here on.
pub fn own(settings: TempestSettings) {
    SETTINGS.init(settings);
    THREAD.store(sys::gettid(), Ordering::Relaxed);
    // With several nodes the process has one thread.
    TURN.set_threaded(process::nodes() == 1);
}

#[cold]
fn refuse(misuse: Misuse) -> ! {
    match misuse {
        Misuse::Unstarted => {
            process::fail(format_args!("a function of tempest.h was called before the interface was started"))
        }
        Misuse::Nested => process::fail(format_args!(
            "tempest.h inside itself: a signal handler or another thread uses it; only the node's main thread may"
        )),
    }
}

/// The program is about to start a thread, in a run of one node.
pub fn note_thread() {
    HAS_THREADS.store(true, Ordering::Relaxed);
    require_own_limits();
}

/// Ends the run if loops of several threads would take each other's limits for their own (`contract::LIMIT_UP`), and so use blocks that they have not
/// tested. Where nothing is ever inaccessible, that is, without this interface, the limits do not matter. When the interface is started, a thread, or a
/// module is loaded.
pub fn require_own_limits() {
    if is_active() && HAS_THREADS.load(Ordering::Relaxed) && MODULES.share_limits() {
        refuse_threads();
    }
}

#[cold]
fn refuse_threads() -> ! {
    process::fail(format_args!(
        "the program uses tempest.h and starts a thread: its loops test tags for several iterations, and keep the limit of what they have \
         tested in one word of the process; rewrite it with --no-strips"
    ))
}

/// Whether this is the thread that the interface belongs to, of the process that has started it. Asks the kernel.
pub fn is_own_thread() -> bool {
    sys::gettid() == THREAD.load(Ordering::Relaxed)
}

/// Whether this thread handles what waits for the interface, if the program uses it.
pub fn may_run_here() -> bool {
    process::nodes() != 1 || !is_active() || is_own_thread()
}

/// Ends the run unless this is the thread that the interface belongs to. In runs of several nodes there is no other.
pub fn require_own_thread(what: &str) {
    if process::nodes() == 1 && !is_own_thread() {
        process::fail(format_args!("{what} by another thread: user-managed memory belongs to the node's main thread"));
    }
}

/// The node with that number, or the end of the run.
pub fn require_node(function: &str, number: u32) -> NodeId {
    require_node_among(process::nodes(), function, number)
}

/// The same for who has the host.
#[inline]
pub fn require_node_of(host: &mut CallHost<'_>, function: &str, number: u32) -> NodeId {
    require_node_among(host.node().map_or(1, |node| node.region.header().nodes), function, number)
}

#[inline]
fn require_node_among(nodes: u32, function: &str, number: u32) -> NodeId {
    match NodeId::new(number).filter(|_| number < nodes) {
        Some(node) => node,
        None => process::fail(format_args!("{function}: there is no node {number}, the run has {nodes}")),
    }
}

/// Entry code of a function of the program, as its handlers are called: the rewritten code of an original address. Ends the run when there is none.
pub fn require_function(function: &str, address: u64) -> u64 {
    match MODULES.entry(address) {
        Some(new) => new,
        None => process::fail(format_args!("{function}: {address:#x} is not a function of rewritten code")),
    }
}
