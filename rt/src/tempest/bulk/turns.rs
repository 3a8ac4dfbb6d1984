//! Transfers that wait for the staging area.
//!
//! Purpose: a source stages one transfer at a time. Where copies out of its memory are forbidden, those behind it take turns: the source offers the next one when
//! the last one is done. A destination that finds out by itself that it may not copy asks for such a turn (BULK_ASK). Input: channels. Output: offers (BULK_SEND),
//! and their first pieces.
//! **Invariant**: a channel that waits here is sending, and has no number yet; its destination has not been offered it, or has asked.

use crate::messages::kinds::id;
use crate::process::host::CallHost;
use crate::process::process;
use crate::tempest::bulk::channels::{self, BULK, Destination, reject, source};
use crate::tempest::bulk::staged;
use crate::transport::message::Message;
use blizzard_protocol::ids::NodeId;

/// The transfer of this channel waits for its turn.
pub fn wait(host: &mut CallHost<'_>, channel: u64) {
    if BULK.with(|bulk| bulk.waiting.push(channel)).is_err() {
        process::fail(format_args!("no memory for channel {channel}, which waits for another one"));
    }
    go_on(host);
}

/// Offers the next transfer, if none is staged now.
pub fn go_on(host: &mut CallHost<'_>) {
    let next = BULK.with(|bulk| {
        if bulk.staging.is_some() {
            return None;
        }
        let channel = bulk.waiting.pop()?;
        let source = bulk.sources.get(channel)?;
        Some((channel, source, NodeId::new(source.dest.into())?))
    });
    let Some((channel, source, dest)) = next else { return };
    let number = staged::begin(host, channel);
    offer(host, dest, channel, (source.buffer, source.bytes), number);
}

/// Offers a transfer; `number`: that of one that is staged, or 0.
pub fn offer(host: &mut CallHost<'_>, dest: NodeId, channel: u64, buffer: (u64, u64), number: u32) {
    let args = [channel, buffer.1, number.into()];
    channels::post(host, dest, Message { handler: id::BULK_SEND, addr: buffer.0, args, ..Message::default() });
    if number != 0 {
        staged::stage_first(host);
    }
}

/// This node may not copy what it was offered.
pub fn ask(host: &mut CallHost<'_>, at: u64, mut d: Destination) {
    d.asking = true;
    BULK.with(|bulk| {
        bulk.destinations.set(at, d);
        bulk.filling -= 1;
    });
    if let Some(src) = NodeId::new(d.src.into()) {
        channels::say(host, src, id::BULK_ASK, d.channel.into());
    }
}

/// The destination may not copy.
pub fn asked(host: &mut CallHost<'_>, from: NodeId, channel: u64) {
    let may_ask = BULK.with(|bulk| {
        let source = bulk.sources.get(channel);
        let is_its = source.is_some_and(|s| s.state == source::SENDING && usize::from(s.dest) == from.index());
        let is_staged = bulk.staging.is_some_and(|staging| staging.channel == channel);
        let waits = (0..bulk.waiting.len()).any(|at| bulk.waiting.get(at) == Some(channel));
        is_its && !is_staged && !waits
    });
    if may_ask { wait(host, channel) } else { reject(host) }
}
