//! Nodes that node 0 creates, as `fork` creates processes.
//!
//! Purpose: programs in the style of the PARMACS macros run `main` on node 0 alone, set everything up, and then create the other nodes,
//! which begin with a copy of all private data. Here each of them is a child of a real `fork`: globals, heap, stack, thread control
//! block, descriptors, signal handlers are the kernel's copy, at the same addresses. Input: the launcher starts node 0 only
//! ([`RegionHeader::forks`](blizzard_contract::RegionHeader::forks)); the client library calls [`Node::create_begin`](crate::node::node::Node::create_begin) and then `fork`, whose system
//! call the gate lets [`created_call`] change. Output: a new node in [`become_node`].
//!
//! Why a real fork and not a copy into processes that wait: the kernel copies what a copy would have to imitate (mappings of files, `brk`,
//! protections, descriptors with their shared positions, the C library's view of its own thread) and cannot forget a part.
//!
//! [`crate::node::calls::creation`] says what becomes of the shared memory that node 0 uses before the others exist.
//!
//! **Invariants**: a created node drops its copy of the segment and of all tags before it
//! looks at anything; nothing of the parent's transport is used by the child.
//! Source: Lusk et al., Portable Programs for Parallel Processors, 1987 (the macros); `clone(2)`, `mremap(2)`.

use crate::kernel::sys;
use crate::memory::access_control::program;
use crate::memory::segment;
use crate::memory::tags::Space;
use crate::node::calls::creation::{HOLDING, NEXT, PARENT};
use crate::process::own_stack;
use crate::process::process;
use blizzard_contract::{self as contract, CONTEXT_BYTES};
use blizzard_protocol::ids::NodeId;
use core::sync::atomic::Ordering;

/// Longest sleep of a created node between two looks at the region's abort word.
const SLEEP_NS: u64 = 50_000_000;

/// The arguments of `clone` for a `fork` of the program that creates a node; `None` for any other. `args` are those of `clone`, all zero
/// for the call `fork`.
pub fn created_call(args: [u64; 6]) -> Option<[u64; 6]> {
    if NEXT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    // The launcher's process is the parent, which waits for nodes; a wait of the program does not find them.
    let kept = libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID | libc::CLONE_PARENT_SETTID;
    let flags = args[0] & kept as u32 as u64 | (libc::CLONE_PARENT | libc::SIGCHLD) as u32 as u64;
    Some([flags, 0, args[2], args[3], 0, 0])
}

/// Makes the process, just forked from node 0, the node that was announced. Returns when node 0 has released it.
pub fn become_node() {
    let number = NEXT.swap(0, Ordering::Relaxed);
    HOLDING.store(false, Ordering::Relaxed);
    let Some((me, region)) = NodeId::new(number).zip(process::region()) else {
        process::fail(format_args!("a process was created that is no node"));
    };
    // SAFETY: the region's page is the runtime's own, and the context pages are used through fixed addresses only; one thread.
    let mapped = unsafe {
        sys::remap_shared(region.context_address(me), CONTEXT_BYTES, contract::CONTEXT_SHARED)
            .and_then(|()| segment::change_node(number))
    };
    process::set_created(me);
    if let Err(e) = mapped {
        process::fail(format_args!("cannot map the context pages of a created node: {e}"));
    }
    let context = region.context(me);
    context.pid().store(sys::getpid() as u32, Ordering::Relaxed);
    context.set_stack_top(own_stack::top());
    // SAFETY: asks for a signal at the end of the parent; no memory.
    let tied = unsafe { sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0, 0) };
    if tied.is_ok() && sys::getppid() != PARENT.load(Ordering::Relaxed) {
        // The launcher ended in between.
        sys::exit_group(libc::EXIT_FAILURE);
    }
    // SAFETY: the child's own copies, which nobody has looked at.
    if let Err(e) = unsafe { program::forget_segment(region.header().segment_bytes) } {
        process::fail(format_args!("cannot drop a created node's copy of the shared memory: {e}"));
    }
    while region.fork_homes().load(Ordering::Acquire) == 0 {
        if region.abort().load(Ordering::Relaxed) != 0 {
            sys::exit_group(libc::EXIT_FAILURE);
        }
        let _ = sys::futex_wait(region.fork_homes(), 0, Some(SLEEP_NS));
    }
    // SAFETY: this process is that node from here on; the segment is as fresh as at a start.
    unsafe { process::restart(region, me, Space::program(region.header().segment_bytes)) };
}
