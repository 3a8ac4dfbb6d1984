//! Bulk data in messages.
//!
//! Purpose: transfers where the kernel lets no process copy from another. The destination asks for a window of the source's buffer (BULK_ASK), which
//! comes in pieces of a block (BULK_PIECE), and then for the next one. Input: those messages. Output: data in the destination's buffer.
//! **Invariant**: a piece is believed only if it is the next one of the window that was asked for.

use crate::memory::access_control::program::runtime_address;
use crate::messages::kinds::id;
use crate::process::host::CallHost;
use crate::tempest::bulk::channels::{self, BULK, Destination, complete, destination, reject, source};
use crate::transport::message::Message;
use blizzard_contract::BLOCK_BYTES;
use blizzard_protocol::ids::NodeId;

/// Bytes that one BULK_ASK asks for.
const WINDOW_BYTES: u64 = 32 << 10;

/// From here on the data comes in messages.
pub fn ask(host: &mut CallHost<'_>, at: u64, mut d: Destination) -> bool {
    d.asking = true;
    BULK.with(|bulk| {
        bulk.destinations.set(at, d);
        bulk.filling -= 1;
    });
    ask_for_window(host, at, d);
    true
}

fn ask_for_window(host: &mut CallHost<'_>, at: u64, mut d: Destination) {
    if d.done == d.bytes {
        if d.has_all_pieces() {
            complete(host, at, d);
        }
        return;
    }
    d.asked = (d.done + WINDOW_BYTES).min(d.bytes);
    BULK.with(|bulk| bulk.destinations.set(at, d));
    let Some(src) = NodeId::new(d.src.into()) else { return };
    let args = [d.channel.into(), d.done, d.asked - d.done];
    channels::post(host, src, Message { handler: id::BULK_ASK, args, ..Message::default() });
}

/// The destination asks for a window of the buffer.
pub fn asked(host: &mut CallHost<'_>, from: NodeId, channel: u64, offset: u64, bytes: u64) {
    let source = BULK.with(|bulk| bulk.sources.get(channel));
    let source = source.filter(|s| s.state == source::SENDING && usize::from(s.dest) == from.index());
    let Some(source) = source.filter(|s| bytes <= WINDOW_BYTES && offset <= s.bytes && bytes <= s.bytes - offset)
    else {
        return reject(host);
    };
    let mut at = offset;
    while at < offset + bytes {
        let now = BLOCK_BYTES.min(offset + bytes - at);
        let mut data = [0u64; 8];
        // SAFETY: inside the buffer that the program offered and must leave alone until the callback.
        unsafe {
            core::ptr::copy_nonoverlapping(runtime_address(source.buffer + at), data.as_mut_ptr().cast(), now as usize);
        }
        let args = [channel, at, now];
        channels::post(host, from, Message { handler: id::BULK_PIECE, length: 64, args, data, ..Message::default() });
        at += now;
    }
}

/// A piece of what was asked for.
pub fn piece(host: &mut CallHost<'_>, from: NodeId, channel: u64, offset: u64, bytes: u64, message: &Message) {
    let found = BULK.with(|bulk| bulk.find(from, channel));
    let expected = |d: &Destination| {
        d.state == destination::FILLING
            && d.asking
            && offset == d.done
            && bytes <= BLOCK_BYTES
            && bytes <= d.asked - d.done
    };
    let Some((at, mut d)) = found.filter(|(_, d)| expected(d)) else { return reject(host) };
    let to = runtime_address(d.buffer + offset);
    // SAFETY: inside the program's own buffer, checked when it was given.
    unsafe { core::ptr::copy_nonoverlapping(message.data.as_ptr().cast::<u8>(), to, bytes as usize) };
    d.done += bytes;
    BULK.with(|bulk| bulk.destinations.set(at, d));
    if d.done == d.asked {
        ask_for_window(host, at, d);
    }
}
