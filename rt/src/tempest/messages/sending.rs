//! Messages of the program that are sent (Tempest 1.2.1, section 3.3).
//!
//! Purpose: build a message from items, and cut it into slots. Input: items of the program. Output: slots.
//!
//! ```text
//! USER       addr: handler's name   args[0]: bytes of the body   args[1], args[2], key: words 0..6   data: words 6..22
//! USER_MORE  addr, args, key: the next 10 words   data: 16 more
//! ```
//!
//! A slot without data holds up to 24 bytes of body (40 of a later one), so short messages move one cache line. The slots of a message
//! follow each other, since nothing else is sent while they are.
//! **Invariants**: a handler is named by module and offset ([`crate::libraries::modules`]) and resolved where it runs; a message is believed only when its
//! slots fit together; handlers run in the order of arrival, each on a whole message, of which it must take every word.

use crate::links::instruments::{self, MissStep};
use crate::messages::kinds::id;
use crate::node::user_handlers::in_handler;
use crate::process::host::CallHost;
use crate::process::process;
use crate::process::tags;
use crate::tempest::invocation::remind;
use crate::tempest::messages::arrived::{self, FIRST_LINE, FIRST_SLOT, MORE_LINE, MORE_SLOT};
use crate::tempest::messages::names;
use crate::tempest::owner::{require_node_of, settings};
use crate::tempest::pages::blocks::{self, BlockSpec};
use crate::tempest::pages::table;
use crate::transport::interface::Urgency;
use crate::transport::message::Message;
use blizzard_contract::tempest::{MAX_MESSAGE_BYTES, SendItem, WORD_BYTES, item_kind};
use blizzard_contract::{BLOCK_BYTES, SLOT_BYTES};
use blizzard_protocol::ids::NodeId;
use core::mem::MaybeUninit;

fn words_at<const N: usize>(from: &[u8], at: usize) -> [u64; N] {
    let mut words = [0u64; N];
    for (word, bytes) in words.iter_mut().zip(from.get(at..).unwrap_or_default().chunks(8)) {
        let mut all = [0u8; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(all);
    }
    words
}

/// Cuts a body into slots.
pub fn slots(name: u64, body: &[u8], mut send: impl FnMut(Message)) {
    let mut rest = body;
    let mut first = true;
    while first || !rest.is_empty() {
        let (line, room) = if first { (FIRST_LINE, FIRST_SLOT) } else { (MORE_LINE, MORE_SLOT) };
        let (now, later) = rest.split_at(rest.len().min(room));
        let mut slot = Message::default();
        if now.len() > line {
            slot.length = 64;
            slot.data = words_at(now, line);
        }
        let in_line = &now[..now.len().min(line)];
        if first {
            let [b, c, key] = words_at(in_line, 0);
            slot = Message { handler: id::USER, addr: name, args: [body.len() as u64, b, c], key, ..slot };
        } else {
            let [addr, a, b, c, key] = words_at(in_line, 0);
            slot = Message { handler: id::USER_MORE, addr, args: [a, b, c], key, ..slot };
        }
        send(slot);
        (rest, first) = (later, false);
    }
}

/// Bytes that an item adds to the body; ends the run when the item is wrong.
fn check_item(function: &str, item: &SendItem) -> usize {
    match item.kind {
        item_kind::WORD => WORD_BYTES,
        item_kind::BLOCK => {
            blocks::require_change(function, item.change);
            table::require_block(function, item.addr, item.len).bytes as usize
        }
        item_kind::REGION => arrived::require_region(function, item.addr, item.len),
        item_kind::FORWARD => {
            let bytes = arrived::require_word_multiple(function, "forwarded data", item.len);
            arrived::require_message_handler(function);
            bytes
        }
        kind => process::fail(format_args!("{function}: {kind} is not a kind of item")),
    }
}

/// `TPPI_send_*`: sends a message of those items.
#[inline]
pub fn send(host: &mut CallHost<'_>, dest: u32, function: u64, items: &[SendItem]) {
    const NAME: &str = "TPPI_send";
    let dest = require_node_of(host, NAME, dest);
    let Some(name) = names::of(function) else { refuse_function(function) };
    if let Some([b, c, key]) = words_of(items)
        && send_in_line(host, dest, name, [(items.len() * WORD_BYTES) as u64, b, c, key])
    {
        return;
    }
    send_body(host, dest, name, items);
}

#[cold]
fn refuse_function(function: u64) -> ! {
    process::fail(format_args!("TPPI_send: {function:#x} is not a function of rewritten code"));
}

/// Puts a body together and sends it.
#[inline(never)]
fn send_body(host: &mut CallHost<'_>, dest: NodeId, name: u64, items: &[SendItem]) {
    const NAME: &str = "TPPI_send";
    let mut bytes = 0;
    let mut forwarded = 0;
    for item in items {
        let more = check_item(NAME, item);
        bytes += more;
        if item.kind == item_kind::FORWARD {
            forwarded += more as u64;
        }
    }
    if bytes > MAX_MESSAGE_BYTES {
        process::fail(format_args!("{NAME}: a body of {bytes} bytes; TPPI_MAX_AM_BYTES is {MAX_MESSAGE_BYTES}"));
    }
    if forwarded > 0 {
        let left = arrived::left_bytes();
        if forwarded > left {
            process::fail(format_args!("{NAME}: {forwarded} bytes to forward, but {left} are left of the message"));
        }
    }
    // The pieces are written in order and cover `bytes` bytes.
    let mut body = [MaybeUninit::<u8>::uninit(); MAX_MESSAGE_BYTES];
    let base = body.as_mut_ptr().cast::<u8>();
    let mut at = 0;
    for item in items {
        // SAFETY: the sum of all lengths is `bytes`, which fits; `check_item` has seen each.
        at += unsafe { append(host, item, base.add(at)) };
    }
    debug_assert_eq!(at, bytes);
    // SAFETY: written just now.
    let body = unsafe { core::slice::from_raw_parts(base, bytes) };
    deliver(host, dest, name, body);
}

/// The body of a message of so few words that they fit into one cache line.
#[inline]
fn words_of(items: &[SendItem]) -> Option<[u64; FIRST_LINE / 8]> {
    if items.len() > FIRST_LINE / WORD_BYTES {
        return None;
    }
    let mut body = [0; FIRST_LINE / 8];
    for (at, item) in items.iter().enumerate() {
        if item.kind != item_kind::WORD {
            return None;
        }
        body[at / 2] |= u64::from(item.len as u32) << (at % 2 * 32);
    }
    Some(body)
}

/// Sends a message of one cache line. False, and nothing is sent, when it is for this node itself or there is no room in the ring.
#[inline]
fn send_in_line(host: &mut CallHost<'_>, dest: NodeId, name: u64, words: [u64; 4]) -> bool {
    let Some(node) = host.node().filter(|node| node.me != dest) else { return false };
    instruments::boundary(&node.context);
    let sent = node.transport.send_line(dest, id::USER, name, words, urgency(dest));
    instruments::stamp(&node.context, MissStep::Sent);
    sent
}

/// How soon the receiver of a message is to hear of it.
#[inline]
fn urgency(dest: NodeId) -> Urgency {
    let answers = arrived::answers(dest);
    if answers { Urgency::Reply } else { Urgency::Call }
}

/// Writes an item's bytes; returns how many.
///
/// # Safety
/// The item was checked, and there is room at `to`.
unsafe fn append(host: &mut CallHost<'_>, item: &SendItem, to: *mut u8) -> usize {
    // SAFETY: the lengths are those that `check_item` returned; sources are the program's mapped memory.
    unsafe {
        match item.kind {
            item_kind::WORD => {
                to.cast::<[u8; 4]>().write(item.len.to_le_bytes());
                WORD_BYTES
            }
            item_kind::BLOCK => {
                let (spec, debug) = (table::require_block("TPPI_send", item.addr, item.len), settings().debug);
                let change = blocks::require_change("TPPI_send", item.change);
                // Block by block: the data is what the tag protected (3.2.6).
                for minimal in (spec.addr..spec.addr + spec.bytes).step_by(BLOCK_BYTES as usize) {
                    blocks::copy(minimal, to.add((minimal - spec.addr) as usize) as u64, BLOCK_BYTES);
                    blocks::change("TPPI_send", BlockSpec { addr: minimal, bytes: BLOCK_BYTES }, change, debug);
                }
                spec.bytes as usize
            }
            item_kind::REGION => {
                let bytes = item.len as usize;
                read_region(host, item.addr, to, bytes);
                bytes
            }
            _ => {
                let bytes = item.len as usize;
                arrived::take_words(to, bytes);
                bytes
            }
        }
    }
}

/// Copies a region of the program's memory. What lies in memory of `bz_alloc` is made readable first.
///
/// # Safety
/// The program's memory at `from`; room at `to`.
unsafe fn read_region(host: &mut CallHost<'_>, from: u64, to: *mut u8, bytes: usize) {
    let mut at = from;
    let end = from + bytes as u64;
    while at < end {
        let next = if table::is_coherent(at) { ((at | (BLOCK_BYTES - 1)) + 1).min(end) } else { end };
        if table::is_coherent(at) && !tags::block_accessible(at, false) {
            match host {
                CallHost::Node(node) if !in_handler() => {
                    node.end_last_access();
                    node.access(at, next - at, false, false);
                }
                _ => arrived::refuse_coherent("TPPI_send", at),
            }
        }
        // SAFETY: passed on from the caller.
        unsafe { blocks::copy(at, to as u64 + (at - from), next - at) };
        at = next;
    }
}

/// Sends a body, or queues it when it is for this node itself.
fn deliver(host: &mut CallHost<'_>, dest: NodeId, name: u64, body: &[u8]) {
    let limit = settings().buffer_bytes;
    if dest == host.me() {
        let waiting = arrived::waiting_bytes();
        if waiting + body.len() as u64 > limit {
            overflow(waiting, dest, limit);
        }
        arrived::queue_own(dest, name, body);
        return remind();
    }
    let Some(node) = host.node() else { return };
    let waiting = node.transport.buffered() * SLOT_BYTES;
    if waiting != 0 && waiting + body.len() as u64 > limit {
        overflow(waiting, dest, limit);
    }
    let kind = urgency(dest);
    slots(name, body, |slot| node.send_as(dest, slot, kind));
    instruments::stamp(&node.context, MissStep::Sent);
}

#[cold]
fn overflow(waiting: u64, dest: NodeId, limit: u64) -> ! {
    process::fail(format_args!(
        "TPPI_send: {waiting} bytes of messages wait because their receivers, node {} among them, do not take them; the limit \
         is {limit} (blizzard run --tempest-buffer)",
        dest.index()
    ));
}
