//! Messages of the program that have arrived (Tempest 1.2.1, section 3.3).
//!
//! Purpose: put messages together from their slots ([`crate::tempest::messages::sending`] has their layout), and let their handlers read them. Input: slots of other
//! nodes. Output: calls of handlers, words.
//! **Invariants**: a handler is named by module and offset ([`crate::libraries::modules`]) and resolved where it runs; a message is believed only when its
//! slots fit together; handlers run in the order of arrival, each on a whole message, of which it must take every word.

use crate::kernel::own_memory::{KernelTable, Slice};
use crate::kernel::owned::PerNode;
use crate::kernel::sys;
use crate::memory::access_control::program::runtime_address;
use crate::messages::judge::Rejection;
use crate::messages::kinds::id;
use crate::node::user_handlers::{HandlerKind, in_message, running};
use crate::process::host::CallHost;
use crate::process::process;
use crate::process::tags;
use crate::tempest::invocation::{Invocation, invoke};
use crate::tempest::messages::inbox::Inbox;
use crate::tempest::messages::names;
use crate::tempest::owner::{TURN, settings};
use crate::tempest::pages::blocks::{self, BlockSpec};
use crate::tempest::pages::table;
use crate::transport::message::Message;
use blizzard_contract::tempest::{MAX_MESSAGE_BYTES, WORD_BYTES};
use blizzard_contract::{BLOCK_BYTES, Counter};
use blizzard_protocol::ids::NodeId;

/// Bytes of the body in the header line and in the whole of a message's first slot.
pub const FIRST_LINE: usize = 24;
pub const FIRST_SLOT: usize = FIRST_LINE + 64;
const LINE_WORDS: usize = FIRST_LINE / WORD_BYTES;
/// The same of a later slot.
pub const MORE_LINE: usize = 40;
pub const MORE_SLOT: usize = MORE_LINE + 64;
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
    /// By source, and the bytes of each.
    parts: Slice<Part>,
    bytes: KernelTable<[u64; MAX_MESSAGE_BYTES / 8]>,
}

/// A message at the front of the inbox.
#[derive(Clone, Copy)]
pub struct Arrived {
    src: u32,
    bytes: u32,
    name: u64,
}

impl Messages {
    pub fn new(nodes: u32) -> sys::Result<Messages> {
        Ok(Messages {
            inbox: Inbox::new(),
            current: Current::default(),
            parts: Slice::new(nodes as usize, |_| Part::default())?,
            bytes: KernelTable::new(nodes.into())?,
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
            self.queue(from, whole.name, &body[..whole.bytes]);
            return Ok(());
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
        self.queue(from, whole.name, &all[..whole.bytes]);
        Ok(())
    }

    /// Appends a whole message.
    fn queue(&mut self, from: NodeId, name: u64, body: &[u8]) {
        let header: [u32; RECORD_WORDS as usize] =
            [from.index() as u32, body.len() as u32, name as u32, (name >> 32) as u32];
        let words = body.chunks_exact(WORD_BYTES).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        if self.inbox.push(&header, words).is_err() {
            process::fail(format_args!("no memory for a message of {} bytes from node {}", body.len(), from.index()));
        }
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

/// What has arrived at this node.
pub static MESSAGES: PerNode<Messages> = PerNode::new(&TURN);

/// Makes the tables.
///
/// # Errors
/// The kernel's, when it gives no address space.
pub fn start() -> sys::Result<()> {
    MESSAGES.init(Messages::new(process::nodes())?);
    names::start();
    Ok(())
}

/// Whether a message waits for its handler.
pub fn is_waiting() -> bool {
    MESSAGES.with(|messages| messages.is_waiting())
}

/// Makes the front message the current one.
pub fn begin() -> Option<Arrived> {
    MESSAGES.with(Messages::begin)
}

/// Makes a message the current one that is one cache line and not behind any other; `None` when it is something else.
#[inline]
pub fn begin_in_line(from: NodeId, slot: &Message) -> Option<Arrived> {
    MESSAGES.with(|messages| messages.begin_in_line(from, slot))
}

/// Takes a slot from `from`.
///
/// # Errors
/// It does not fit to those before it.
pub fn accept(from: NodeId, slot: &Message) -> Result<(), Rejection> {
    MESSAGES.with(|messages| messages.accept(from, slot))
}

/// Appends a message of this node to itself.
pub fn queue_own(me: NodeId, name: u64, body: &[u8]) {
    MESSAGES.with(|messages| messages.queue(me, name, body));
}

/// Bytes of the messages that wait for their handlers.
pub fn waiting_bytes() -> u64 {
    MESSAGES.with(|messages| messages.inbox.len()) * WORD_BYTES as u64
}

/// Bytes that are left of the current message.
pub fn left_bytes() -> u64 {
    MESSAGES.with(|messages| messages.left_bytes())
}

/// Whether a message to `dest` answers the one whose handler runs.
#[inline]
pub fn answers(dest: NodeId) -> bool {
    in_message() && MESSAGES.with(|messages| messages.current.src) as usize == dest.index()
}

/// Runs the handler of the current message.
#[inline]
pub fn run(host: &mut CallHost<'_>, message: Arrived) {
    let Arrived { src, bytes, name } = message;
    host.count(Counter::UserMessages);
    let Some(entry) = names::resolve(name) else { refuse_name(src, name) };
    // SAFETY: the address of an instruction of rewritten code, which the sender named as a handler of messages.
    let handler = unsafe { core::mem::transmute::<u64, blizzard_contract::tempest::MessageHandler>(entry) };
    invoke(host, Invocation::Message(handler, src, bytes as i32));
    let left = MESSAGES.with(Messages::end);
    if left != 0 {
        refuse_rest(message, left);
    }
}

#[cold]
fn refuse_name(src: u32, name: u64) -> ! {
    process::fail(format_args!(
        "node {src} sent a message for the function at offset {:#x} of module {}, which this node has not loaded",
        name as u32,
        name >> 32
    ));
}

#[cold]
fn refuse_rest(Arrived { src, bytes, name }: Arrived, left: u64) -> ! {
    process::fail(format_args!(
        "a message handler left {left} of the {bytes} bytes that node {src} sent (Tempest 1.2.1, section 3.3.3); the \
         handler is at offset {:#x} of module {}",
        name as u32,
        name >> 32
    ));
}

/// Takes `bytes` bytes off the current message.
///
/// # Safety
/// Room at `to`; the message has as many.
pub unsafe fn take_words(to: *mut u8, bytes: usize) {
    MESSAGES.with(|messages| {
        for at in (0..bytes).step_by(WORD_BYTES) {
            let word = messages.next_word().unwrap_or(0);
            // SAFETY: passed on from the caller.
            unsafe { to.add(at).cast::<[u8; 4]>().write(word.to_le_bytes()) };
        }
    });
}

/// Ends the run unless the current message has `bytes` bytes left.
fn require_left(function: &str, bytes: u64) {
    require_message_handler(function);
    let left = left_bytes();
    if bytes > left {
        process::fail(format_args!("{function}: {bytes} bytes to read, but {left} are left of the message"));
    }
}

/// `TPPI_recv_W`.
#[inline]
pub fn recv_w() -> i32 {
    let word = if in_message() { MESSAGES.with(Messages::next_word) } else { None };
    if word.is_none() {
        require_left("TPPI_recv_W", WORD_BYTES as u64);
    }
    word.unwrap_or(0) as i32
}

/// `TPPI_recv_Ba`.
pub fn recv_ba(va: u64, len: i32, change: u32) {
    const NAME: &str = "TPPI_recv_Ba";
    let change = blocks::require_change(NAME, change);
    let (spec, debug) = (table::require_block(NAME, va, len), settings().debug);
    require_left(NAME, spec.bytes);
    for at in (spec.addr..spec.addr + spec.bytes).step_by(BLOCK_BYTES as usize) {
        // SAFETY: a block of a mapped page; the message has the bytes.
        unsafe { take_words(runtime_address(at), BLOCK_BYTES as usize) };
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
        if table::is_coherent(at) && !tags::block_accessible(at, true) {
            refuse_coherent(NAME, at);
        }
        at = (at | (BLOCK_BYTES - 1)) + 1;
    }
    // SAFETY: the program's memory; the message has the bytes.
    unsafe { take_words(runtime_address(va), bytes) };
}

pub fn require_word_multiple(function: &str, what: &str, len: i32) -> usize {
    if len < 0 || !(len as usize).is_multiple_of(WORD_BYTES) {
        process::fail(format_args!("{function}: {what} of {len} bytes: the length must be a multiple of {WORD_BYTES}"));
    }
    len as usize
}

pub fn require_region(function: &str, addr: u64, len: i32) -> usize {
    let bytes = require_word_multiple(function, "a region", len);
    if bytes != 0 && !addr.is_multiple_of(WORD_BYTES as u64) {
        process::fail(format_args!("{function}: the region at {addr:#x} does not start on a word boundary"));
    }
    table::require_mapped(function, addr, bytes as u64);
    bytes
}

pub fn require_message_handler(function: &str) {
    if running() != HandlerKind::Message {
        process::fail(format_args!(
            "{function}: only a message handler has a message to read (the caller is the {})",
            running()
        ));
    }
}

#[cold]
pub fn refuse_coherent(function: &str, at: u64) -> ! {
    process::fail(format_args!(
        "{function}: {at:#x} is memory of bz_alloc that is not valid on this node, and a handler must not wait for it"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tempest::messages::sending::slots;

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
        let mut messages = Messages::new(8).unwrap();
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
        let mut messages = Messages::new(8).unwrap();
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
        let mut messages = Messages::new(8).unwrap();
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
