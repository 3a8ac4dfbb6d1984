//! The endpoints of channels, and what the program says of them and hears.
//!
//! Input: calls of the program. Output: changed endpoints, callbacks, messages.

use crate::kernel::own_memory::{KernelQueue, Zeroed};
use crate::kernel::owned::PerNode;
use crate::kernel::sys;
use crate::memory::region::ContextPage;
use crate::messages::kinds::id;
use crate::process::host::CallHost;
use crate::process::process;
use crate::tempest::invocation::Invocation;
use crate::tempest::owner::TURN;
use crate::transport::message::Message;
use crate::transport::stage;
use blizzard_contract::tempest::ChannelHandler;
use blizzard_contract::{Counter, STAGE_PIECE_BYTES};
use blizzard_protocol::ids::NodeId;

/// Cycles of the time-stamp counter, about 10 us, after which a destination no longer waits for a source's next piece. A source that is in the runtime
/// needs 2 us for one.
pub const PATIENCE_CYCLES: u64 = 26_000;

/// States of a source's endpoint.
pub mod source {
    pub const FREE: u8 = 0;
    pub const IDLE: u8 = 1;
    /// The buffer is offered and not yet taken.
    pub const SENDING: u8 = 2;
}

/// States of a destination's endpoint.
pub mod destination {
    pub const FREE: u8 = 0;
    /// Waits for data.
    pub const EMPTY: u8 = 1;
    /// Data is being taken.
    pub const FILLING: u8 = 2;
    /// All data is there.
    pub const READY: u8 = 3;
}

#[derive(Clone, Copy)]
pub struct BulkSource {
    pub state: u8,
    pub dest: u16,
    /// The destination has said so, since the last look or send.
    pub established: bool,
    pub reset: bool,
    pub callback: u64,
    pub user_ptr: u64,
    pub buffer: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy)]
pub struct Destination {
    pub state: u8,
    pub src: u16,
    /// It cannot be copied, and the source has been asked to stage it.
    pub asking: bool,
    pub channel: u32,
    pub callback: u64,
    pub user_ptr: u64,
    pub buffer: u64,
    pub bytes: u64,
    /// The source's buffer, and how much has been taken.
    pub from: u64,
    pub done: u64,
    /// The source's number of the transfer, if it is staged, or 0; pieces taken; pieces that the source stages: all until the rest was claimed.
    pub number: u32,
    pub got: u64,
    pub limit: u64,
}

impl Destination {
    /// Whether (more of) the data is to be copied out of the source's memory.
    pub fn is_direct(&self) -> bool {
        self.state == destination::FILLING && !self.asking && (self.number == 0 || self.limit != NO_LIMIT)
    }

    pub fn is_staged(&self) -> bool {
        self.state == destination::FILLING && self.number != 0 && self.limit == NO_LIMIT
    }

    pub fn pieces(&self) -> u64 {
        self.bytes.div_ceil(STAGE_PIECE_BYTES)
    }

    /// Whether all pieces that the source stages are here.
    pub fn has_all_pieces(&self) -> bool {
        self.number == 0 || self.got == self.limit.min(self.pieces())
    }
}

pub const NO_LIMIT: u64 = u64::MAX;

/// The transfer that this node stages.
#[derive(Clone, Copy)]
pub struct Staging {
    pub channel: u64,
    pub number: u32,
    /// Pieces that are in the area or have been, and those that the destination has taken.
    pub put: u64,
    pub taken: u64,
}

#[derive(Clone, Copy)]
pub struct Callback {
    pub run: u64,
    pub node: u32,
    pub channel: i32,
}

// SAFETY: integers and flags; zero is a free endpoint.
unsafe impl Zeroed for BulkSource {}
// SAFETY: as above.
unsafe impl Zeroed for Destination {}
// SAFETY: integers.
unsafe impl Zeroed for Callback {}

/// The endpoints of one node.
pub struct Bulk {
    /// By channel number.
    pub sources: KernelQueue<BulkSource>,
    pub destinations: KernelQueue<Destination>,
    pub callbacks: KernelQueue<Callback>,
    /// Destinations that are filling by direct copies, and those that wait for pieces; when the last of these came.
    pub filling: u64,
    pub awaiting: u64,
    pub since: u64,
    pub staging: Option<Staging>,
    /// Channels whose transfers wait until no other one is staged: [`crate::tempest::bulk::turns`].
    pub waiting: KernelQueue<u64>,
    /// Number of the last transfer that was staged here.
    pub number: u32,
    /// Messages of the only node to itself.
    own: KernelQueue<Message>,
    /// The run forbids direct copies, or the kernel has refused them.
    pub refused: bool,
}

/// Which end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelEnd {
    Source,
    Destination,
}

impl Bulk {
    /// Nothing yet. `direct`: data may be copied out of another process's memory.
    pub const fn new(direct: bool) -> Bulk {
        Bulk {
            sources: KernelQueue::new(),
            destinations: KernelQueue::new(),
            callbacks: KernelQueue::new(),
            filling: 0,
            awaiting: 0,
            since: 0,
            staging: None,
            waiting: KernelQueue::new(),
            number: 0,
            own: KernelQueue::new(),
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

    pub fn is_starving(&self) -> bool {
        if let Some(has_passed) = stage::has_time_passed() {
            return self.awaits_pieces() && has_passed;
        }
        self.awaits_pieces() && sys::cycles().saturating_sub(self.since) > PATIENCE_CYCLES
    }

    /// The next callback to run.
    pub fn next_callback(&mut self) -> Option<Invocation> {
        let Callback { run, node, channel } = self.callbacks.pop()?;
        // SAFETY: entry of the rewritten code of a function that the program gave as a callback.
        let run = unsafe { core::mem::transmute::<u64, ChannelHandler>(run) };
        Some(Invocation::Channel(run, node, channel))
    }

    pub fn call_back(&mut self, run: u64, node: u32, channel: u64) {
        if run != 0 && self.callbacks.push(Callback { run, node, channel: channel as i32 }).is_err() {
            process::fail(format_args!("no memory for the callback of channel {channel}"));
        }
    }

    pub fn source(&self, function: &str, dest: NodeId, channel: i32) -> (u64, BulkSource) {
        let index = u64::try_from(channel).unwrap_or(u64::MAX);
        match self.sources.get(index).filter(|s| s.state != source::FREE && usize::from(s.dest) == dest.index()) {
            Some(source) => (index, source),
            None => process::fail(format_args!("{function}: there is no channel {channel} to node {}", dest.index())),
        }
    }

    pub fn find(&self, src: NodeId, channel: u64) -> Option<(u64, Destination)> {
        (0..self.destinations.len()).find_map(|at| {
            let d = self.destinations.get(at)?;
            let same = d.state != destination::FREE && usize::from(d.src) == src.index();
            (same && u64::from(d.channel) == channel).then_some((at, d))
        })
    }

    pub fn destination(&self, function: &str, src: NodeId, channel: i32) -> (u64, Destination) {
        match u64::try_from(channel).ok().and_then(|channel| self.find(src, channel)) {
            Some(found) => found,
            None => process::fail(format_args!("{function}: there is no channel {channel} from node {}", src.index())),
        }
    }
}

/// `TPPI_set_channel_src`; `callback`: entry of rewritten code, or 0. Returns the channel's number.
pub fn set_source(dest: NodeId, callback: u64) -> i32 {
    BULK.with(|bulk| {
        let new = BulkSource {
            state: source::IDLE,
            dest: dest.index() as u16,
            established: false,
            reset: false,
            callback,
            user_ptr: 0,
            buffer: 0,
            bytes: 0,
        };
        let sources = &mut bulk.sources;
        let free = (0..sources.len()).find(|&at| sources.get(at).is_some_and(|s| s.state == source::FREE));
        if let Some(at) = free {
            sources.set(at, new);
            return at as i32;
        }
        if sources.push(new).is_err() {
            process::fail(format_args!("TPPI_set_channel_src: no memory"));
        }
        sources.len() as i32 - 1
    })
}

/// The node's.
pub static BULK: PerNode<Bulk> = PerNode::new(&TURN);

pub fn start(bulk: Bulk) {
    BULK.init(bulk);
}

/// Whether a callback or a copy waits.
pub fn has_work() -> bool {
    BULK.with(|bulk| bulk.has_work())
}

/// Whether the rest of a transfer is to be taken over if no piece comes soon.
pub fn awaits_pieces() -> bool {
    BULK.with(|bulk| bulk.awaits_pieces())
}

/// The next callback to run.
pub fn next_callback() -> Option<Invocation> {
    BULK.with(Bulk::next_callback)
}

/// Sends a message about a channel. The only node's to itself wait for [`take_own`].
pub fn post(host: &mut CallHost<'_>, to: NodeId, message: Message) {
    match host {
        CallHost::Node(node) => node.send(to, message),
        CallHost::Alone if BULK.with(|bulk| bulk.own.push(message)).is_ok() => {}
        CallHost::Alone => process::fail(format_args!("no memory for a message about a channel")),
    }
}

/// The next message of the only node to itself.
pub fn take_own() -> Option<Message> {
    BULK.with(|bulk| bulk.own.pop())
}

/// Sends a message about a channel that carries nothing else.
pub fn say(host: &mut CallHost<'_>, to: NodeId, handler: u16, channel: u64) {
    post(host, to, Message { handler, args: [channel, 0, 0], ..Message::default() });
}

/// `TPPI_is_channel_estd` and `TPPI_is_channel_reset`.
pub fn is_notified(function: &str, dest: NodeId, channel: i32, reset: bool) -> bool {
    let (_, source) = BULK.with(|bulk| bulk.source(function, dest, channel));
    if reset { source.reset } else { source.established }
}

/// `TPPI_is_channel_ready`.
pub fn is_ready(src: NodeId, channel: i32) -> bool {
    BULK.with(|bulk| bulk.destination("TPPI_is_channel_ready", src, channel)).1.state == destination::READY
}

/// Whether data of this source is on its way, as far as its destination has told.
pub fn is_sending(function: &str, dest: NodeId, channel: i32) -> bool {
    BULK.with(|bulk| bulk.source(function, dest, channel)).1.state == source::SENDING
}

/// `TPPI_destroy_channel_src` and `_dst`.
pub fn destroy(end: ChannelEnd, other: NodeId, channel: i32) {
    BULK.with(|bulk| match end {
        ChannelEnd::Source => {
            const NAME: &str = "TPPI_destroy_channel_src";
            let (at, source) = bulk.source(NAME, other, channel);
            if source.state == source::SENDING {
                process::fail(format_args!(
                    "{NAME}: channel {channel} is still sending (Tempest 1.2.1, section 3.4.3)"
                ));
            }
            bulk.sources.set(at, BulkSource { state: source::FREE, ..source });
        }
        ChannelEnd::Destination => {
            const NAME: &str = "TPPI_destroy_channel_dst";
            let (at, d) = bulk.destination(NAME, other, channel);
            if d.state == destination::FILLING {
                process::fail(format_args!(
                    "{NAME}: data is arriving on channel {channel} (Tempest 1.2.1, section 3.4.3)"
                ));
            }
            bulk.destinations.set(at, Destination { state: destination::FREE, ..d });
        }
    });
}

/// The word that belongs to the program at an endpoint (section 3.4.4); `set` replaces it.
pub fn user_ptr(function: &str, end: ChannelEnd, other: NodeId, channel: i32, set: Option<u64>) -> u64 {
    BULK.with(|bulk| match end {
        ChannelEnd::Source => {
            let (at, source) = bulk.source(function, other, channel);
            let user_ptr = set.unwrap_or(source.user_ptr);
            bulk.sources.set(at, BulkSource { user_ptr, ..source });
            user_ptr
        }
        ChannelEnd::Destination => {
            let (at, d) = bulk.destination(function, other, channel);
            let user_ptr = set.unwrap_or(d.user_ptr);
            bulk.destinations.set(at, Destination { user_ptr, ..d });
            user_ptr
        }
    })
}

pub fn reject(host: &mut CallHost<'_>) {
    if let Some(node) = host.node() {
        node.count(Counter::MessagesRejected);
    }
}

/// All data is there.
pub fn complete(host: &mut CallHost<'_>, at: u64, mut d: Destination) {
    count_bytes(d.bytes);
    d.state = destination::READY;
    BULK.with(|bulk| {
        bulk.destinations.set(at, d);
        bulk.call_back(d.callback, d.src.into(), d.channel.into());
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
    unsafe { ContextPage::at(blizzard_contract::CONTEXT_SHARED) }.add(Counter::BulkBytes, bytes);
}
