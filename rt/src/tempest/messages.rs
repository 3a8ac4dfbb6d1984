//! Fine-grain messaging (Tempest 1.2.1, section 3.3).
//!
//! Purpose: build a message from items, cut it into ring slots, put it together again, and let its handler read it. Input: items of the
//! program, slots of other nodes. Output: slots, calls of handlers.
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

use super::blocks::{self, BlockSpec};
use super::inbox::Inbox;
use super::{Host, Invocation, Kind, invoke, require_node_of, running, timers, with};
use crate::gates::access;
use crate::kernel::own_memory::Table;
use crate::messages::{Rejection, id};
use crate::node::instruments::{self, Step};
use crate::node::{self, Node};
use crate::transport::interface::Urgency;
use crate::transport::message::Message;
use blizzard_contract::tempest::{MAX_MESSAGE_BYTES, SendItem, WORD_BYTES, item_kind};
use blizzard_contract::{BLOCK_BYTES, Counter, MAX_NODES, SLOT_BYTES};
use blizzard_protocol::ids::NodeId;
use core::mem::MaybeUninit;

/// Bytes of the body in the header line and in the whole of a message's first slot.
const FIRST_LINE: usize = 24;
const FIRST_SLOT: usize = FIRST_LINE + 64;
const LINE_WORDS: usize = FIRST_LINE / WORD_BYTES;
/// The same of a later slot.
const MORE_LINE: usize = 40;
const MORE_SLOT: usize = MORE_LINE + 64;
/// Words in front of each body in the inbox: source, bytes, and the handler's name in two.
const RECORD_WORDS: u64 = 4;

/// A message of several slots that is not complete yet.
#[derive(Clone, Copy, Default)]
struct Part {
    name: u64,
    bytes: usize,
    got: usize,
}

/// The message whose handler runs.
#[derive(Clone, Copy, Default)]
struct Current {
    words: u64,
    read: u64,
    src: u32,
    /// It never was in the inbox, and this is its body.
    is_in_line: bool,
    line: [u32; LINE_WORDS],
}

/// What has arrived.
pub struct Messages {
    inbox: Inbox,
    current: Current,
    parts: [Part; MAX_NODES],
    /// By source: the bytes of its part.
    bytes: Table<[u64; MAX_MESSAGE_BYTES / 8]>,
}

/// A message at the front of the inbox.
#[derive(Clone, Copy)]
pub struct Arrived {
    src: u32,
    bytes: u32,
    name: u64,
}

impl Messages {
    pub fn new() -> crate::kernel::sys::Result<Messages> {
        Ok(Messages {
            inbox: Inbox::new(),
            current: Current::default(),
            parts: [Part::default(); MAX_NODES],
            bytes: Table::new(MAX_NODES as u64)?,
        })
    }

    /// Whether a message waits for its handler.
    pub fn is_waiting(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Takes a slot from `from`.
    fn accept(&mut self, from: NodeId, slot: &Message) -> Result<(), Rejection> {
        let part = &mut self.parts[from.index()];
        let [a, b, c] = slot.args;
        let mut body = [0u8; MORE_SLOT];
        let (line, room) = if slot.handler == id::USER {
            put_words(&mut body, 0, &[b, c, slot.key]);
            *part = Part { name: slot.addr, bytes: a as usize, got: 0 };
            (FIRST_LINE, FIRST_SLOT)
        } else {
            put_words(&mut body, 0, &[slot.addr, a, b, c, slot.key]);
            (MORE_LINE, MORE_SLOT)
        };
        let fresh = part.got == 0 && slot.handler == id::USER;
        let bytes = part.bytes.saturating_sub(part.got).min(room);
        let fits = part.bytes <= MAX_MESSAGE_BYTES
            && part.bytes.is_multiple_of(WORD_BYTES)
            && (fresh || bytes > 0)
            && usize::from(slot.length) == if bytes > line { 64 } else { 0 };
        if !fits {
            *part = Part::default();
            return Err(Rejection::Length);
        }
        put_words(&mut body, line, &slot.data);
        if fresh && part.bytes <= FIRST_SLOT {
            let whole = core::mem::take(part);
            return self.queue(from, whole.name, &body[..whole.bytes]);
        }
        let mut bytes_so_far = self.bytes.get(from.index() as u64);
        let at = part.got;
        // SAFETY: an array of words seen as its bytes.
        let all = unsafe { bytes_of(&mut bytes_so_far) };
        all[at..at + bytes].copy_from_slice(&body[..bytes]);
        part.got += bytes;
        if part.got < part.bytes {
            self.bytes.set(from.index() as u64, bytes_so_far);
            return Ok(());
        }
        let whole = core::mem::take(part);
        self.queue(from, whole.name, &all[..whole.bytes])
    }

    /// Appends a whole message.
    fn queue(&mut self, from: NodeId, name: u64, body: &[u8]) -> Result<(), Rejection> {
        let header: [u32; RECORD_WORDS as usize] =
            [from.index() as u32, body.len() as u32, name as u32, (name >> 32) as u32];
        let words = body.chunks_exact(WORD_BYTES).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        if self.inbox.push(&header, words).is_err() {
            node::fail(format_args!("no memory for a message of {} bytes from node {}", body.len(), from.index()));
        }
        Ok(())
    }

    /// Makes the front message the current one.
    pub fn begin(&mut self) -> Option<Arrived> {
        if self.inbox.is_empty() {
            return None;
        }
        let word = |at| self.inbox.get(at);
        let arrived = Arrived { src: word(0), bytes: word(1), name: u64::from(word(2)) | u64::from(word(3)) << 32 };
        let words = u64::from(arrived.bytes) / WORD_BYTES as u64;
        self.current = Current { words, read: 0, src: arrived.src, ..Current::default() };
        Some(arrived)
    }

    /// Makes a message the current one that is one cache line and not behind any other; `None` when it is something else.
    #[inline]
    fn begin_in_line(&mut self, from: NodeId, slot: &Message) -> Option<Arrived> {
        let [bytes, b, c] = slot.args;
        let whole = slot.handler == id::USER && slot.length == 0 && bytes <= FIRST_LINE as u64;
        if !whole || !bytes.is_multiple_of(WORD_BYTES as u64) || !self.inbox.is_empty() {
            return None;
        }
        self.parts[from.index()] = Part::default();
        let src = from.index() as u32;
        let halves = |word: u64| [word as u32, (word >> 32) as u32];
        let ([a, b], [c, d], [e, f]) = (halves(b), halves(c), halves(slot.key));
        let line = [a, b, c, d, e, f];
        self.current = Current { words: bytes / WORD_BYTES as u64, read: 0, src, is_in_line: true, line };
        Some(Arrived { src, bytes: bytes as u32, name: slot.addr })
    }

    /// Takes the current message off; returns the bytes that its handler has left.
    #[inline]
    fn end(&mut self) -> u64 {
        let left = self.left_bytes();
        if !self.current.is_in_line {
            self.inbox.drop_front(RECORD_WORDS + self.current.words);
        }
        (self.current.words, self.current.read) = (0, 0);
        left
    }

    /// The next word of the current message.
    #[inline]
    fn next_word(&mut self) -> Option<u32> {
        let Current { words, read, is_in_line, ref line, .. } = self.current;
        if read >= words {
            return None;
        }
        let word = if is_in_line { *line.get(read as usize)? } else { self.inbox.get(RECORD_WORDS + read) };
        self.current.read = read + 1;
        Some(word)
    }

    #[inline]
    fn left_bytes(&self) -> u64 {
        (self.current.words - self.current.read) * WORD_BYTES as u64
    }
}

/// # Safety
/// None beyond the type: every byte of a word is a byte.
unsafe fn bytes_of(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: the same memory, exclusively borrowed; u8 has no alignment and no invalid values.
    unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), words.len() * 8) }
}

fn put_words(to: &mut [u8], at: usize, words: &[u64]) {
    for (bytes, word) in to[at..].chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

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
fn slots(name: u64, body: &[u8], mut send: impl FnMut(Message)) {
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

/// Handler of USER and USER_MORE.
#[inline]
pub fn on_message(node: &mut Node, from: NodeId, slot: &Message) {
    // Most messages are short and find nothing in front of them: no queue then.
    if super::is_active()
        && !super::in_handler()
        && !timers::is_due()
        && let Some(message) = with(|t| t.messages.begin_in_line(from, slot))
    {
        run(&mut Host::Node(node), message);
        if super::has_events() {
            super::run_events(&mut Host::Node(node), || false);
        }
    } else {
        queue_slot(node, from, slot);
    }
}

#[inline(never)]
fn queue_slot(node: &mut Node, from: NodeId, slot: &Message) {
    if !super::is_active() {
        // The program has not got as far as the interface.
        if node.early.push(*slot).is_err() {
            node.fail(format_args!("no memory to keep a message from node {}", from.index()));
        }
    } else if with(|t| t.messages.accept(from, slot)).is_err() {
        node.count(Counter::MessagesRejected);
    } else {
        super::run_events(&mut Host::Node(node), || false);
    }
}

/// Takes the slots that came before the interface was started.
pub fn accept_early(host: &mut Host<'_>) {
    let Some(node) = host.node() else { return };
    while let Some(slot) = node.early.pop() {
        if let Some(from) = NodeId::new(slot.source.into()) {
            on_message(node, from, &slot);
        }
    }
}

/// Runs the handler of the current message.
#[inline]
pub fn run(host: &mut Host<'_>, message: Arrived) {
    let Arrived { src, bytes, name } = message;
    host.count(Counter::UserMessages);
    let Some(entry) = with(|t| t.names.resolve(name)) else { refuse_name(src, name) };
    // SAFETY: the address of an instruction of rewritten code, which the sender named as a handler of messages.
    let handler = unsafe { core::mem::transmute::<u64, blizzard_contract::tempest::MessageHandler>(entry) };
    invoke(host, Invocation::Message(handler, src, bytes as i32));
    let left = with(|t| t.messages.end());
    if left != 0 {
        refuse_rest(message, left);
    }
}

#[cold]
fn refuse_name(src: u32, name: u64) -> ! {
    node::fail(format_args!(
        "node {src} sent a message for the function at offset {:#x} of module {}, which this node has not loaded",
        name as u32,
        name >> 32
    ));
}

#[cold]
fn refuse_rest(Arrived { src, bytes, name }: Arrived, left: u64) -> ! {
    node::fail(format_args!(
        "a message handler left {left} of the {bytes} bytes that node {src} sent (Tempest 1.2.1, section 3.3.3); the \
         handler is at offset {:#x} of module {}",
        name as u32,
        name >> 32
    ));
}

fn is_word_multiple(function: &str, what: &str, len: i32) -> usize {
    if len < 0 || !(len as usize).is_multiple_of(WORD_BYTES) {
        node::fail(format_args!("{function}: {what} of {len} bytes: the length must be a multiple of {WORD_BYTES}"));
    }
    len as usize
}

fn require_region(function: &str, addr: u64, len: i32) -> usize {
    let bytes = is_word_multiple(function, "a region", len);
    if bytes != 0 && !addr.is_multiple_of(WORD_BYTES as u64) {
        node::fail(format_args!("{function}: the region at {addr:#x} does not start on a word boundary"));
    }
    super::pages::require_mapped(function, addr, bytes as u64);
    bytes
}

/// Bytes that an item adds to the body; ends the run when the item is wrong.
fn check_item(function: &str, item: &SendItem) -> usize {
    match item.kind {
        item_kind::WORD => WORD_BYTES,
        item_kind::BLOCK => {
            blocks::require_change(function, item.change);
            with(|t| BlockSpec::require(function, &t.pages, item.addr, item.len)).bytes as usize
        }
        item_kind::REGION => require_region(function, item.addr, item.len),
        item_kind::FORWARD => {
            let bytes = is_word_multiple(function, "forwarded data", item.len);
            require_message_handler(function);
            bytes
        }
        kind => node::fail(format_args!("{function}: {kind} is not a kind of item")),
    }
}

fn require_message_handler(function: &str) {
    if running() != Kind::Message {
        node::fail(format_args!(
            "{function}: only a message handler has a message to read (the caller is the {})",
            running()
        ));
    }
}

/// `TPPI_send_*`: sends a message of those items.
#[inline]
pub fn send(host: &mut Host<'_>, dest: u32, function: u64, items: &[SendItem]) {
    const NAME: &str = "TPPI_send";
    let dest = require_node_of(host, NAME, dest);
    let Some(name) = with(|t| t.names.of(function)) else { refuse_function(function) };
    if let Some([b, c, key]) = words_of(items)
        && send_in_line(host, dest, name, [(items.len() * WORD_BYTES) as u64, b, c, key])
    {
        return;
    }
    send_body(host, dest, name, items);
}

#[cold]
fn refuse_function(function: u64) -> ! {
    node::fail(format_args!("TPPI_send: {function:#x} is not a function of rewritten code"));
}

/// Puts a body together and sends it.
#[inline(never)]
fn send_body(host: &mut Host<'_>, dest: NodeId, name: u64, items: &[SendItem]) {
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
        node::fail(format_args!("{NAME}: a body of {bytes} bytes; TPPI_MAX_AM_BYTES is {MAX_MESSAGE_BYTES}"));
    }
    if forwarded > 0 {
        let left = with(|t| t.messages.left_bytes());
        if forwarded > left {
            node::fail(format_args!("{NAME}: {forwarded} bytes to forward, but {left} are left of the message"));
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
fn send_in_line(host: &mut Host<'_>, dest: NodeId, name: u64, words: [u64; 4]) -> bool {
    let Some(node) = host.node().filter(|node| node.me != dest) else { return false };
    instruments::boundary(&node.context);
    let sent = node.transport.send_line(dest, id::USER, name, words, urgency(dest));
    instruments::stamp(&node.context, Step::Sent);
    sent
}

/// How soon the receiver of a message is to hear of it.
#[inline]
fn urgency(dest: NodeId) -> Urgency {
    let answers = super::in_message() && with(|t| t.messages.current.src) as usize == dest.index();
    if answers { Urgency::Reply } else { Urgency::Call }
}

/// Writes an item's bytes; returns how many.
///
/// # Safety
/// The item was checked, and there is room at `to`.
unsafe fn append(host: &mut Host<'_>, item: &SendItem, to: *mut u8) -> usize {
    // SAFETY: the lengths are those that `check_item` returned; sources are the program's mapped memory.
    unsafe {
        match item.kind {
            item_kind::WORD => {
                to.cast::<[u8; 4]>().write(item.len.to_le_bytes());
                WORD_BYTES
            }
            item_kind::BLOCK => {
                let (spec, debug) =
                    with(|t| (BlockSpec::require("TPPI_send", &t.pages, item.addr, item.len), t.settings.debug));
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
                take_words(to, bytes);
                bytes
            }
        }
    }
}

/// Copies a region of the program's memory. What lies in memory of `bz_alloc` is made readable first.
///
/// # Safety
/// The program's memory at `from`; room at `to`.
unsafe fn read_region(host: &mut Host<'_>, from: u64, to: *mut u8, bytes: usize) {
    let mut at = from;
    let end = from + bytes as u64;
    while at < end {
        let next = if is_coherent(at) { ((at | (BLOCK_BYTES - 1)) + 1).min(end) } else { end };
        if is_coherent(at) && !access::block_accessible(at, false) {
            match host {
                Host::Node(node) if !super::in_handler() => {
                    node.end_last_access();
                    node.access(at, next - at, false, false);
                }
                _ => refuse_coherent("TPPI_send", at),
            }
        }
        // SAFETY: passed on from the caller.
        unsafe { blocks::copy(at, to as u64 + (at - from), next - at) };
        at = next;
    }
}

/// Whether the built-in protocol keeps the memory at `addr`.
pub fn is_coherent(addr: u64) -> bool {
    access::in_segment(addr) && !super::pages::is_user(addr)
}

#[cold]
fn refuse_coherent(function: &str, at: u64) -> ! {
    node::fail(format_args!(
        "{function}: {at:#x} is memory of bz_alloc that is not valid on this node, and a handler must not wait for it"
    ));
}

/// Takes `bytes` bytes off the current message.
///
/// # Safety
/// Room at `to`; the message has as many.
unsafe fn take_words(to: *mut u8, bytes: usize) {
    with(|t| {
        for at in (0..bytes).step_by(WORD_BYTES) {
            let word = t.messages.next_word().unwrap_or(0);
            // SAFETY: passed on from the caller.
            unsafe { to.add(at).cast::<[u8; 4]>().write(word.to_le_bytes()) };
        }
    });
}

/// Sends a body, or queues it when it is for this node itself.
fn deliver(host: &mut Host<'_>, dest: NodeId, name: u64, body: &[u8]) {
    let limit = with(|t| t.settings.buffer_bytes);
    if dest == host.me() {
        let waiting = with(|t| t.messages.inbox.len()) * WORD_BYTES as u64;
        if waiting + body.len() as u64 > limit {
            overflow(waiting, dest, limit);
        }
        let _ = with(|t| t.messages.queue(dest, name, body));
        return super::remind();
    }
    let Some(node) = host.node() else { return };
    let waiting = node.transport.buffered() * SLOT_BYTES;
    if waiting != 0 && waiting + body.len() as u64 > limit {
        overflow(waiting, dest, limit);
    }
    let kind = urgency(dest);
    slots(name, body, |slot| node.send_as(dest, slot, kind));
    instruments::stamp(&node.context, Step::Sent);
}

#[cold]
fn overflow(waiting: u64, dest: NodeId, limit: u64) -> ! {
    node::fail(format_args!(
        "TPPI_send: {waiting} bytes of messages wait because their receivers, node {} among them, do not take them; the limit \
         is {limit} (blizzard run --tempest-buffer)",
        dest.index()
    ));
}

/// Ends the run unless the current message has `bytes` bytes left.
fn require_left(function: &str, bytes: u64) {
    require_message_handler(function);
    let left = with(|t| t.messages.left_bytes());
    if bytes > left {
        node::fail(format_args!("{function}: {bytes} bytes to read, but {left} are left of the message"));
    }
}

/// `TPPI_recv_W`.
#[inline]
pub fn recv_w() -> i32 {
    let word = if super::in_message() { with(|t| t.messages.next_word()) } else { None };
    if word.is_none() {
        require_left("TPPI_recv_W", WORD_BYTES as u64);
    }
    word.unwrap_or(0) as i32
}

/// `TPPI_recv_Ba`.
pub fn recv_ba(va: u64, len: i32, change: u32) {
    const NAME: &str = "TPPI_recv_Ba";
    let change = blocks::require_change(NAME, change);
    let (spec, debug) = with(|t| (BlockSpec::require(NAME, &t.pages, va, len), t.settings.debug));
    require_left(NAME, spec.bytes);
    for at in (spec.addr..spec.addr + spec.bytes).step_by(BLOCK_BYTES as usize) {
        // SAFETY: a block of a mapped page; the message has the bytes.
        unsafe { take_words(at as *mut u8, BLOCK_BYTES as usize) };
        blocks::change(NAME, BlockSpec { addr: at, bytes: BLOCK_BYTES }, change, debug);
    }
}

/// `TPPI_recv_R`.
pub fn recv_r(va: u64, len: i32) {
    const NAME: &str = "TPPI_recv_R";
    let bytes = require_region(NAME, va, len);
    require_left(NAME, bytes as u64);
    let mut at = va;
    while at < va + bytes as u64 {
        if is_coherent(at) && !access::block_accessible(at, true) {
            refuse_coherent(NAME, at);
        }
        at = (at | (BLOCK_BYTES - 1)) + 1;
    }
    // SAFETY: the program's memory; the message has the bytes.
    unsafe { take_words(va as *mut u8, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: u32) -> NodeId {
        NodeId::new(n).unwrap()
    }

    fn body(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|n| (n * 7 + bytes) as u8).collect()
    }

    fn cut(name: u64, body: &[u8]) -> Vec<Message> {
        let mut all = Vec::new();
        slots(name, body, |slot| all.push(slot));
        all
    }

    /// Section 3.3.2 and 3.3.4: every length up to the limit arrives whole; two sources do not mix.
    #[test]
    fn bodies_of_every_length_are_cut_and_put_together() {
        let mut messages = Messages::new().unwrap();
        for bytes in (0..=MAX_MESSAGE_BYTES).step_by(WORD_BYTES) {
            let (mine, other) = (body(bytes), body((bytes * 3) % (MAX_MESSAGE_BYTES + 4)));
            let (a, b) = (cut(5 << 32 | 77, &mine), cut(6 << 32, &other));
            assert_eq!(a.len(), 1 + bytes.saturating_sub(FIRST_SLOT).div_ceil(MORE_SLOT));
            assert_eq!(a[0].length == 0, bytes <= FIRST_LINE, "a short message is one cache line");
            for n in 0..a.len().max(b.len()) {
                for (from, slots) in [(1, &a), (2, &b)] {
                    if let Some(slot) = slots.get(n) {
                        messages.accept(node(from), slot).unwrap();
                    }
                }
            }
            for _ in 0..2 {
                let arrived = messages.begin().unwrap();
                let expected = if arrived.src == 1 { &mine } else { &other };
                assert_eq!(arrived.name, if arrived.src == 1 { 5 << 32 | 77 } else { 6 << 32 });
                assert_eq!(arrived.bytes as usize, expected.len());
                let mut got = Vec::new();
                while let Some(word) = messages.next_word() {
                    got.extend(word.to_le_bytes());
                }
                assert_eq!(&got, expected);
                assert_eq!(messages.end(), 0);
            }
            assert!(!messages.is_waiting());
        }
    }

    #[test]
    fn what_a_handler_leaves_is_counted_and_dropped() {
        let mut messages = Messages::new().unwrap();
        messages.accept(node(1), &cut(1, &body(100))[0]).unwrap();
        assert!(messages.begin().is_none(), "the rest is missing");
        messages.accept(node(1), &cut(1, &body(100))[1]).unwrap();
        messages.accept(node(3), &cut(2, &body(8))[0]).unwrap();
        assert_eq!(messages.begin().unwrap().bytes, 100);
        messages.next_word();
        assert_eq!((messages.left_bytes(), messages.end()), (96, 96));
        let next = messages.begin().unwrap();
        assert_eq!((next.src, next.bytes, next.name), (3, 8, 2));
    }

    #[test]
    fn slots_that_do_not_fit_together_are_rejected() {
        let mut messages = Messages::new().unwrap();
        let good = cut(1, &body(200));
        let damaged: [&dyn Fn(&mut Message); 4] =
            [&|m| m.args[0] = MAX_MESSAGE_BYTES as u64 + 4, &|m| m.args[0] = 6, &|m| m.args[0] = u64::MAX, &|m| {
                m.length = 0
            }];
        for damage in damaged {
            let mut slot = good[0];
            damage(&mut slot);
            assert_eq!(messages.accept(node(1), &slot), Err(Rejection::Length));
            assert_eq!(messages.accept(node(1), &good[1]), Err(Rejection::Length), "its rest belongs to nothing");
        }
        assert!(!messages.is_waiting());
        // A short message with a line of data that it does not need.
        let short = Message { length: 64, ..cut(1, &body(8))[0] };
        assert_eq!(messages.accept(node(1), &short), Err(Rejection::Length));
    }
}
