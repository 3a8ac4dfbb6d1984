//! Bulk data transfer through channels (Tempest 1.2.1, section 3.4; Reinhardt 1996, A.2.4 for the functions that the former's text lacks).
//!
//! Purpose: move large buffers from memory to memory. Input: calls of both ends, messages of the other end. Output: data in the
//! destination's buffer, callbacks.
//!
//! Here: the endpoints of channels, and what the program says and hears. The source offers its buffer (BULK_SEND), and the destination says when it has all of it
//! (BULK_DONE). In between the data goes one of three ways:
//! * `staged`: piece by piece through the source's [staging area](super::staging), while the source is in the runtime;
//! * `direct`: copied out of the other process's memory, where the source computes, or stages another transfer;
//! * `asked`: in messages, where the kernel forbids such copies.
//!
//! Data goes where the buffer says, whatever the tags are; tags do not change.
//!
//! **Invariants**: a channel is named by its source's node and number; only the destination writes the buffer, between an offer and its
//! end, so an endpoint that was reset is never written to. What the other end does against the rules of section 3.4 ends the run with
//! the rule's name.

mod asked;
mod direct;
mod staged;

use super::{Host, Invocation, with};
use crate::kernel::own_memory::{Queue, Zeroed};
use crate::memory::region::Context;
use crate::messages::id;
use crate::node::stats;
use crate::node::{self, Node};
use crate::transport::message::Message;
use crate::transport::stage;
use blizzard_contract::tempest::{ChannelHandler, MAX_CHANNEL_BYTES};
use blizzard_contract::{Counter, STAGE_PIECE_BYTES};
use blizzard_protocol::ids::NodeId;
pub use direct::step;

/// States of a source's endpoint.
mod source {
    pub const FREE: u8 = 0;
    pub const IDLE: u8 = 1;
    /// The buffer is offered and not yet taken.
    pub const SENDING: u8 = 2;
}

/// States of a destination's endpoint.
mod destination {
    pub const FREE: u8 = 0;
    /// Waits for data.
    pub const EMPTY: u8 = 1;
    /// Data is being taken.
    pub const FILLING: u8 = 2;
    /// All data is there.
    pub const READY: u8 = 3;
}

#[derive(Clone, Copy)]
struct Source {
    state: u8,
    dest: u16,
    /// The destination has said so, since the last look or send.
    established: bool,
    reset: bool,
    callback: u64,
    user_ptr: u64,
    buffer: u64,
    bytes: u64,
}

#[derive(Clone, Copy)]
struct Destination {
    state: u8,
    src: u16,
    /// The data comes in messages.
    asking: bool,
    channel: u32,
    callback: u64,
    user_ptr: u64,
    buffer: u64,
    bytes: u64,
    /// The source's buffer, and how much has been taken.
    from: u64,
    done: u64,
    /// End of the window that was asked for.
    asked: u64,
    /// The source's number of the transfer, if it is staged, or 0; pieces taken; pieces that the source stages: all until the rest was claimed.
    number: u32,
    got: u64,
    limit: u64,
}

impl Destination {
    /// Whether (more of) the data is to be copied out of the source's memory.
    fn is_direct(&self) -> bool {
        self.state == destination::FILLING && !self.asking && (self.number == 0 || self.limit != NO_LIMIT)
    }

    fn is_staged(&self) -> bool {
        self.state == destination::FILLING && self.number != 0 && self.limit == NO_LIMIT
    }

    fn pieces(&self) -> u64 {
        self.bytes.div_ceil(STAGE_PIECE_BYTES)
    }

    /// Whether all pieces that the source stages are here, of a transfer that is not asked for.
    fn has_all_pieces(&self) -> bool {
        self.number == 0 || self.got == self.limit.min(self.pieces())
    }
}

const NO_LIMIT: u64 = u64::MAX;

/// The transfer that this node stages.
#[derive(Clone, Copy)]
struct Staging {
    channel: u64,
    number: u32,
    /// Pieces that are in the area or have been, and those that the destination has taken.
    put: u64,
    taken: u64,
}

#[derive(Clone, Copy)]
struct Callback {
    run: u64,
    node: u32,
    channel: i32,
}

// SAFETY: integers and flags; zero is a free endpoint.
unsafe impl Zeroed for Source {}
// SAFETY: as above.
unsafe impl Zeroed for Destination {}
// SAFETY: integers.
unsafe impl Zeroed for Callback {}

/// The endpoints of one node.
pub struct Bulk {
    /// By channel number.
    sources: Queue<Source>,
    destinations: Queue<Destination>,
    callbacks: Queue<Callback>,
    /// Destinations that are filling by direct copies, and those that wait for pieces; when the last of these came.
    filling: u64,
    awaiting: u64,
    since: u64,
    staging: Option<Staging>,
    /// Number of the last transfer that was staged here.
    number: u32,
    /// The run forbids direct copies, or the kernel has refused them.
    refused: bool,
}

/// Which end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Source,
    Destination,
}

impl Bulk {
    /// Nothing yet; `direct`: data may be copied out of another process's memory.
    pub(super) const fn new(direct: bool) -> Bulk {
        Bulk {
            sources: Queue::new(),
            destinations: Queue::new(),
            callbacks: Queue::new(),
            filling: 0,
            awaiting: 0,
            since: 0,
            staging: None,
            number: 0,
            refused: !direct,
        }
    }

    /// Whether a callback or a copy waits.
    pub fn has_work(&self) -> bool {
        self.filling != 0 || !self.callbacks.is_empty() || self.is_starving()
    }

    /// Whether the rest of a transfer is to be taken over if no piece comes soon.
    pub fn awaits_pieces(&self) -> bool {
        self.awaiting != 0 && !self.refused
    }

    fn is_starving(&self) -> bool {
        if let Some(has_passed) = stage::has_time_passed() {
            return self.awaits_pieces() && has_passed;
        }
        self.awaits_pieces() && stats::cycles().saturating_sub(self.since) > staged::PATIENCE_CYCLES
    }

    /// The next callback to run.
    pub fn next_callback(&mut self) -> Option<Invocation> {
        let Callback { run, node, channel } = self.callbacks.pop()?;
        // SAFETY: entry of the rewritten code of a function that the program gave as a callback.
        let run = unsafe { core::mem::transmute::<u64, ChannelHandler>(run) };
        Some(Invocation::Channel(run, node, channel))
    }

    fn call_back(&mut self, run: u64, node: u32, channel: u64) {
        if run != 0 && self.callbacks.push(Callback { run, node, channel: channel as i32 }).is_err() {
            node::fail(format_args!("no memory for the callback of channel {channel}"));
        }
    }

    fn source(&self, function: &str, dest: NodeId, channel: i32) -> (u64, Source) {
        let index = u64::try_from(channel).unwrap_or(u64::MAX);
        match self.sources.get(index).filter(|s| s.state != source::FREE && usize::from(s.dest) == dest.index()) {
            Some(source) => (index, source),
            None => node::fail(format_args!("{function}: there is no channel {channel} to node {}", dest.index())),
        }
    }

    fn find(&self, src: NodeId, channel: u64) -> Option<(u64, Destination)> {
        (0..self.destinations.len()).find_map(|at| {
            let d = self.destinations.get(at)?;
            let same = d.state != destination::FREE && usize::from(d.src) == src.index();
            (same && u64::from(d.channel) == channel).then_some((at, d))
        })
    }

    fn destination(&self, function: &str, src: NodeId, channel: i32) -> (u64, Destination) {
        match u64::try_from(channel).ok().and_then(|channel| self.find(src, channel)) {
            Some(found) => found,
            None => node::fail(format_args!("{function}: there is no channel {channel} from node {}", src.index())),
        }
    }
}

/// A buffer as section 3.4.1 wants it, or the end of the run.
fn require_buffer(function: &str, buffer: u64, bytes: i32) -> u64 {
    if bytes < 0 || bytes as u64 > MAX_CHANNEL_BYTES || bytes % 4 != 0 || !buffer.is_multiple_of(4) {
        node::fail(format_args!(
            "{function}: {bytes} bytes at {buffer:#x}: buffers start and end at a multiple of 4 and have at most \
             {MAX_CHANNEL_BYTES} bytes"
        ));
    }
    let end = buffer.saturating_add(bytes as u64);
    if super::messages::is_coherent(buffer) || super::messages::is_coherent(end.saturating_sub(1)) {
        node::fail(format_args!("{function}: {buffer:#x} is memory of bz_alloc, which the built-in protocol moves"));
    }
    super::pages::require_mapped(function, buffer, bytes as u64);
    bytes as u64
}

/// `TPPI_set_channel_src`; `callback`: entry of rewritten code, or 0. Returns the channel's number.
pub fn set_source(dest: NodeId, callback: u64) -> i32 {
    with(|t| {
        let new = Source {
            state: source::IDLE,
            dest: dest.index() as u16,
            established: false,
            reset: false,
            callback,
            user_ptr: 0,
            buffer: 0,
            bytes: 0,
        };
        let sources = &mut t.bulk.sources;
        let free = (0..sources.len()).find(|&at| sources.get(at).is_some_and(|s| s.state == source::FREE));
        if let Some(at) = free {
            sources.set(at, new);
            return at as i32;
        }
        if sources.push(new).is_err() {
            node::fail(format_args!("TPPI_set_channel_src: no memory"));
        }
        sources.len() as i32 - 1
    })
}

/// `TPPI_set_channel_dst`, with or without notification.
pub fn set_destination(
    host: &mut Host<'_>,
    src: NodeId,
    channel: i32,
    buffer: (u64, i32),
    callback: u64,
    notify: bool,
) {
    const NAME: &str = "TPPI_set_channel_dst";
    let bytes = require_buffer(NAME, buffer.0, buffer.1);
    let Ok(number) = u32::try_from(channel) else {
        node::fail(format_args!("{NAME}: {channel} is not a channel's number"));
    };
    with(|t| {
        if t.bulk.find(src, number.into()).is_some() {
            node::fail(format_args!("{NAME}: channel {channel} from node {} has a destination already", src.index()));
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
            asked: 0,
            number: 0,
            got: 0,
            limit: NO_LIMIT,
        };
        let all = &mut t.bulk.destinations;
        match (0..all.len()).find(|&at| all.get(at).is_some_and(|d| d.state == destination::FREE)) {
            Some(at) => all.set(at, new),
            None if all.push(new).is_err() => node::fail(format_args!("{NAME}: no memory")),
            None => {}
        }
    });
    if notify {
        say(host, src, id::BULK_ESTABLISHED, number.into());
    }
}

/// Sends a message about a channel that carries nothing else.
fn say(host: &mut Host<'_>, to: NodeId, handler: u16, channel: u64) {
    host.send(to, Message { handler, args: [channel, 0, 0], ..Message::default() });
}

/// `TPPI_is_channel_estd` and `TPPI_is_channel_reset`.
pub fn is_notified(function: &str, dest: NodeId, channel: i32, reset: bool) -> bool {
    let (_, source) = with(|t| t.bulk.source(function, dest, channel));
    if reset { source.reset } else { source.established }
}

/// `TPPI_channel_send`.
pub fn send(host: &mut Host<'_>, dest: NodeId, channel: i32, buffer: u64, bytes: i32) {
    const NAME: &str = "TPPI_channel_send";
    let bytes = require_buffer(NAME, buffer, bytes);
    let index = with(|t| {
        let (index, mut source) = t.bulk.source(NAME, dest, channel);
        if source.state == source::SENDING {
            node::fail(format_args!("{NAME}: channel {channel} is still sending (Tempest 1.2.1, section 3.4.2)"));
        }
        (source.state, source.reset, source.buffer, source.bytes) = (source::SENDING, false, buffer, bytes);
        t.bulk.sources.set(index, source);
        index
    });
    let number = if dest != host.me() && bytes != 0 { staged::begin(host, index) } else { 0 };
    let args = [index, bytes, number.into()];
    host.send(dest, Message { handler: id::BULK_SEND, addr: buffer, args, ..Message::default() });
    if number != 0 {
        staged::stage(host, staged::FIRST_PIECES);
    }
}

/// `TPPI_is_channel_ready`.
pub fn is_ready(src: NodeId, channel: i32) -> bool {
    with(|t| t.bulk.destination("TPPI_is_channel_ready", src, channel)).1.state == destination::READY
}

/// `TPPI_reset_channel`, with or without notification.
pub fn reset(host: &mut Host<'_>, src: NodeId, channel: i32, notify: bool) {
    const NAME: &str = "TPPI_reset_channel";
    with(|t| {
        let (at, mut d) = t.bulk.destination(NAME, src, channel);
        if d.state == destination::FILLING {
            node::fail(format_args!("{NAME}: data is arriving on channel {channel} from node {}", src.index()));
        }
        d.state = destination::EMPTY;
        t.bulk.destinations.set(at, d);
    });
    if notify {
        say(host, src, id::BULK_RESET, channel as u64);
    }
}

/// `TPPI_destroy_channel_src` and `_dst`.
pub fn destroy(end: End, other: NodeId, channel: i32) {
    with(|t| match end {
        End::Source => {
            const NAME: &str = "TPPI_destroy_channel_src";
            let (at, source) = t.bulk.source(NAME, other, channel);
            if source.state == source::SENDING {
                node::fail(format_args!("{NAME}: channel {channel} is still sending (Tempest 1.2.1, section 3.4.3)"));
            }
            t.bulk.sources.set(at, Source { state: source::FREE, ..source });
        }
        End::Destination => {
            const NAME: &str = "TPPI_destroy_channel_dst";
            let (at, d) = t.bulk.destination(NAME, other, channel);
            if d.state == destination::FILLING {
                node::fail(format_args!(
                    "{NAME}: data is arriving on channel {channel} (Tempest 1.2.1, section 3.4.3)"
                ));
            }
            t.bulk.destinations.set(at, Destination { state: destination::FREE, ..d });
        }
    });
}

/// The word that belongs to the program at an endpoint (section 3.4.4); `set` replaces it.
pub fn user_ptr(function: &str, end: End, other: NodeId, channel: i32, set: Option<u64>) -> u64 {
    with(|t| match end {
        End::Source => {
            let (at, source) = t.bulk.source(function, other, channel);
            let user_ptr = set.unwrap_or(source.user_ptr);
            t.bulk.sources.set(at, Source { user_ptr, ..source });
            user_ptr
        }
        End::Destination => {
            let (at, d) = t.bulk.destination(function, other, channel);
            let user_ptr = set.unwrap_or(d.user_ptr);
            t.bulk.destinations.set(at, Destination { user_ptr, ..d });
            user_ptr
        }
    })
}

/// Handler of all messages about channels.
pub fn on_message(node: &mut Node, from: NodeId, message: &Message) {
    deliver(&mut Host::Node(node), from, message);
}

/// Acts on a message from the channel's other end.
pub fn deliver(host: &mut Host<'_>, from: NodeId, message: &Message) {
    if !super::is_active() {
        return reject(host);
    }
    let [channel, a, b] = message.args;
    match message.handler {
        id::BULK_SEND => offered(from, channel, a, message.addr, b),
        id::BULK_STAGED => staged::staged(host, from, channel, a, b),
        id::BULK_TAKEN => staged::taken(host, from, channel, a, b),
        id::BULK_ASK => asked::asked(host, from, channel, a, b),
        id::BULK_PIECE => asked::piece(host, from, channel, a, b, message),
        handler => {
            let known = with(|t| {
                let found = t.bulk.sources.get(channel).filter(|s| s.state != source::FREE);
                let Some(mut source) = found.filter(|s| usize::from(s.dest) == from.index()) else { return false };
                match handler {
                    id::BULK_ESTABLISHED => source.established = true,
                    id::BULK_RESET => source.reset = true,
                    _ if source.state == source::SENDING => {
                        source.state = source::IDLE;
                        t.bulk.staging = t.bulk.staging.filter(|staging| staging.channel != channel);
                        t.bulk.call_back(source.callback, from.index() as u32, channel);
                    }
                    _ => return false,
                }
                t.bulk.sources.set(channel, source);
                true
            });
            if !known {
                reject(host);
            }
        }
    }
    super::remind();
}

fn reject(host: &mut Host<'_>) {
    if let Some(node) = host.node() {
        node.count(Counter::MessagesRejected);
    }
}

/// The source offers a buffer.
fn offered(from: NodeId, channel: u64, bytes: u64, buffer: u64, number: u64) {
    with(|t| {
        let what = format_args!("node {} sends {bytes} bytes on channel {channel}", from.index());
        let Some((at, mut d)) = t.bulk.find(from, channel) else {
            node::fail(format_args!("{what}, which has no destination here (Tempest 1.2.1, section 3.4.1)"));
        };
        if d.state != destination::EMPTY {
            node::fail(format_args!("{what} before it was reset (Tempest 1.2.1, section 3.4.2)"));
        }
        if bytes != d.bytes {
            node::fail(format_args!("{what}, whose destination expects {} (Tempest 1.2.1, section 3.4.2)", d.bytes));
        }
        (d.state, d.from, d.done, d.asked) = (destination::FILLING, buffer, 0, 0);
        (d.asking, d.number, d.got, d.limit) = (false, number as u32, 0, NO_LIMIT);
        t.bulk.destinations.set(at, d);
        if d.number == 0 {
            t.bulk.filling += 1;
        } else {
            t.bulk.awaiting += 1;
            t.bulk.since = stats::cycles();
        }
    });
}

/// All data is there.
fn complete(host: &mut Host<'_>, at: u64, mut d: Destination) {
    count_bytes(d.bytes);
    d.state = destination::READY;
    with(|t| {
        t.bulk.destinations.set(at, d);
        t.bulk.call_back(d.callback, d.src.into(), d.channel.into());
    });
    if let Some(src) = NodeId::new(d.src.into()) {
        say(host, src, id::BULK_DONE, d.channel.into());
    }
}

fn count_bytes(bytes: u64) {
    if stage::is_directed() {
        return;
    }
    // SAFETY: the context page is mapped for the whole run.
    unsafe { Context::at(blizzard_contract::CONTEXT_SHARED) }.add(Counter::BulkBytes, bytes);
}
