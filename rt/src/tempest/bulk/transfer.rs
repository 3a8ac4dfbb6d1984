//! Bulk data by copies out of the other process's memory.
//!
//! Purpose: transfers whose source computes, or stages another one; and those of a node to itself. Input: destinations that are filling. Output: data
//! in their buffers, a part per [`step`] so that other events do not wait for long. Where the kernel refuses (`process_vm_readv`), the source stages them: [`turns`].

use crate::kernel::sys::{self, Errno};
use crate::memory::access_control::program::{kernel_address, runtime_address};
use crate::messages::kinds::id;
use crate::process::host::CallHost;
use crate::process::process;
use crate::tempest::bulk::channels::{self, BULK, Destination, NO_LIMIT, complete, destination, reject, source};
use crate::tempest::bulk::{staged, turns};
use crate::tempest::invocation::remind;
use crate::tempest::pages::table;
use crate::transport::message::Message;
use blizzard_contract::tempest::MAX_CHANNEL_BYTES;
use blizzard_protocol::ids::NodeId;

/// Bytes that one step copies.
const PIECE_BYTES: u64 = 1 << 20;
/// Takes the next piece of the first transfer; false when there is none.
pub fn step(host: &mut CallHost<'_>) -> bool {
    let me = host.me();
    if BULK.with(|bulk| bulk.is_starving()) {
        staged::take_over(host);
    }
    let Some((at, mut d)) = BULK.with(|bulk| {
        let filling = bulk.filling != 0;
        let all = &bulk.destinations;
        let mut found = (0..all.len()).filter_map(|at| Some((at, all.get(at)?)));
        let is_due = |d: &Destination| d.is_direct() && (d.number == 0 || d.done < d.bytes);
        if filling { found.find(|(_, d)| is_due(d)) } else { None }
    }) else {
        return false;
    };
    let Some(src) = NodeId::new(d.src.into()) else { return false };
    let bytes = PIECE_BYTES.min(d.bytes - d.done);
    if src == me {
        // SAFETY: both buffers are the program's own, checked when they were given; they may overlap.
        unsafe {
            core::ptr::copy(runtime_address(d.from + d.done), runtime_address(d.buffer + d.done), bytes as usize)
        };
    } else if bytes != 0 && BULK.with(|bulk| bulk.refused) {
        turns::ask(host, at, d);
        return true;
    } else {
        let process = host.node().map_or(0, |node| node.process_of(src)) as i32;
        // SAFETY: the program's own buffer, checked when it was given.
        match unsafe {
            sys::read_process(process, kernel_address(d.from + d.done), kernel_address(d.buffer + d.done), bytes)
        } {
            Ok(()) => {}
            Err(Errno(libc::EPERM | libc::ENOSYS)) => {
                BULK.with(|bulk| bulk.refused = true);
                turns::ask(host, at, d);
                return true;
            }
            Err(e) => process::fail(format_args!(
                "cannot copy {bytes} bytes at {:#x} from the memory of node {} to {:#x}: {e}",
                d.from + d.done,
                d.src,
                d.buffer + d.done
            )),
        }
    }
    d.done += bytes;
    BULK.with(|bulk| bulk.destinations.set(at, d));
    if d.done == d.bytes {
        BULK.with(|bulk| bulk.filling -= 1);
        if d.has_all_pieces() {
            complete(host, at, d);
        }
    }
    settle(host);
    true
}

/// A buffer as section 3.4.1 wants it, or the end of the run.
fn require_buffer(function: &str, buffer: u64, bytes: i32) -> u64 {
    if bytes < 0 || bytes as u64 > MAX_CHANNEL_BYTES || bytes % 4 != 0 || !buffer.is_multiple_of(4) {
        process::fail(format_args!(
            "{function}: {bytes} bytes at {buffer:#x}: buffers start and end at a multiple of 4 and have at most \
             {MAX_CHANNEL_BYTES} bytes"
        ));
    }
    let end = buffer.saturating_add(bytes as u64);
    if table::is_coherent(buffer) || table::is_coherent(end.saturating_sub(1)) {
        process::fail(format_args!("{function}: {buffer:#x} is memory of bz_alloc, which the built-in protocol moves"));
    }
    table::require_mapped(function, buffer, bytes as u64);
    bytes as u64
}

/// `TPPI_set_channel_dst`, with or without notification.
pub fn set_destination(
    host: &mut CallHost<'_>,
    src: NodeId,
    channel: i32,
    buffer: (u64, i32),
    callback: u64,
    notify: bool,
) {
    const NAME: &str = "TPPI_set_channel_dst";
    let bytes = require_buffer(NAME, buffer.0, buffer.1);
    let Ok(number) = u32::try_from(channel) else {
        process::fail(format_args!("{NAME}: {channel} is not a channel's number"));
    };
    BULK.with(|bulk| {
        if bulk.find(src, number.into()).is_some() {
            process::fail(format_args!(
                "{NAME}: channel {channel} from node {} has a destination already",
                src.index()
            ));
        }
        let new = Destination {
            state: destination::EMPTY,
            src: src.index() as u16,
            asking: false,
            channel: number,
            callback,
            user_ptr: 0,
            buffer: buffer.0,
            bytes,
            from: 0,
            done: 0,
            number: 0,
            got: 0,
            limit: NO_LIMIT,
        };
        let all = &mut bulk.destinations;
        match (0..all.len()).find(|&at| all.get(at).is_some_and(|d| d.state == destination::FREE)) {
            Some(at) => all.set(at, new),
            None if all.push(new).is_err() => process::fail(format_args!("{NAME}: no memory")),
            None => {}
        }
    });
    if notify {
        channels::say(host, src, id::BULK_ESTABLISHED, number.into());
        settle(host);
    }
}

/// `TPPI_channel_send`.
pub fn send(host: &mut CallHost<'_>, dest: NodeId, channel: i32, buffer: u64, bytes: i32) {
    const NAME: &str = "TPPI_channel_send";
    let bytes = require_buffer(NAME, buffer, bytes);
    let index = BULK.with(|bulk| {
        let (index, mut source) = bulk.source(NAME, dest, channel);
        if source.state == source::SENDING {
            process::fail(format_args!("{NAME}: channel {channel} is still sending (Tempest 1.2.1, section 3.4.2)"));
        }
        (source.state, source.reset, source.buffer, source.bytes) = (source::SENDING, false, buffer, bytes);
        bulk.sources.set(index, source);
        index
    });
    let number = if dest != host.me() && bytes != 0 { staged::begin(host, index) } else { 0 };
    let must_wait = number == 0 && dest != host.me() && bytes != 0 && BULK.with(|bulk| bulk.refused);
    if must_wait {
        turns::wait(host, index);
    } else {
        turns::offer(host, dest, index, (buffer, bytes), number);
    }
    settle(host);
}

/// `TPPI_reset_channel`, with or without notification.
pub fn reset(host: &mut CallHost<'_>, src: NodeId, channel: i32, notify: bool) {
    const NAME: &str = "TPPI_reset_channel";
    BULK.with(|bulk| {
        let (at, mut d) = bulk.destination(NAME, src, channel);
        if d.state == destination::FILLING {
            process::fail(format_args!("{NAME}: data is arriving on channel {channel} from node {}", src.index()));
        }
        d.state = destination::EMPTY;
        bulk.destinations.set(at, d);
    });
    if notify {
        channels::say(host, src, id::BULK_RESET, channel as u64);
        settle(host);
    }
}

/// Acts on a message from the channel's other end.
pub fn deliver(host: &mut CallHost<'_>, from: NodeId, message: &Message) {
    let [channel, a, b] = message.args;
    match message.handler {
        id::BULK_SEND => offered(from, channel, a, message.addr, b),
        id::BULK_STAGED => staged::staged(host, from, channel, a, b),
        id::BULK_TAKEN => staged::taken(host, from, channel, a, b),
        id::BULK_ASK => turns::asked(host, from, channel),
        handler => {
            let known = BULK.with(|bulk| {
                let found = bulk.sources.get(channel).filter(|s| s.state != source::FREE);
                let Some(mut source) = found.filter(|s| usize::from(s.dest) == from.index()) else { return false };
                match handler {
                    id::BULK_ESTABLISHED => source.established = true,
                    id::BULK_RESET => source.reset = true,
                    _ if source.state == source::SENDING => {
                        source.state = source::IDLE;
                        bulk.staging = bulk.staging.filter(|staging| staging.channel != channel);
                        bulk.call_back(source.callback, from.index() as u32, channel);
                    }
                    _ => return false,
                }
                bulk.sources.set(channel, source);
                true
            });
            if !known {
                return reject(host);
            }
            turns::go_on(host);
        }
    }
    remind();
}

/// The source offers a buffer.
fn offered(from: NodeId, channel: u64, bytes: u64, buffer: u64, number: u64) {
    BULK.with(|bulk| {
        let what = format_args!("node {} sends {bytes} bytes on channel {channel}", from.index());
        let Some((at, mut d)) = bulk.find(from, channel) else {
            process::fail(format_args!("{what}, which has no destination here (Tempest 1.2.1, section 3.4.1)"));
        };
        let is_asked = d.state == destination::FILLING && d.asking && number != 0;
        if d.state != destination::EMPTY && !is_asked {
            process::fail(format_args!("{what} before it was reset (Tempest 1.2.1, section 3.4.2)"));
        }
        if bytes != d.bytes {
            process::fail(format_args!("{what}, whose destination expects {} (Tempest 1.2.1, section 3.4.2)", d.bytes));
        }
        (d.state, d.from, d.done) = (destination::FILLING, buffer, 0);
        (d.asking, d.number, d.got, d.limit) = (false, number as u32, 0, NO_LIMIT);
        bulk.destinations.set(at, d);
        if d.number == 0 {
            bulk.filling += 1;
        } else {
            bulk.awaiting += 1;
            bulk.since = sys::cycles();
        }
    });
}

/// Handles what the only node has sent to itself.
fn settle(host: &mut CallHost<'_>) {
    while let Some(message) = channels::take_own() {
        let me = host.me();
        deliver(host, me, &message);
    }
}
