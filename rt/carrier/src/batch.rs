//! What travels between two hosts: a batch of messages.
//!
//! Input and output: messages of nodes, and how many of each pair have arrived; what those who have started the carriers say to each other. All numbers are little-endian. Some messages tell of bytes in their sender's staging
//! area ([`area_bytes`]). These travel behind the batch, in their order: neither end copies them into the batch or out of it.
//!
//! ```text
//! byte   0  16 bytes  the run's secret
//!       16  u16  host that sends
//!       18  u16  messages
//!       20  u16  receipts
//!       22  u16  bytes of what the hosts' starters say
//!       24  u64  number of the batch: how many this host has sent to that one before
//!       32       receipts of 8 bytes: u16 sender, u16 receiver, u32 messages of that pair that are in the receiver's ring, modulo 2^32
//!        …       messages of 64 or 128 bytes: u16 sender, u16 receiver, u32 incarnation; the words of the slot's first line; the data, if there are any
//!        …       what the hosts' starters say: a part of a stream
//! ```
//!
//! **Invariants**: of a batch that is refused nothing is used; what travels with a batch is one range of the area of one node of the sending host.

use blizzard_protocol::ids::BLOCK_WORDS;
use blizzard_rt::messages::area::area_bytes;
use blizzard_rt::transport::message::{HEAD_WORDS, LINE_BYTES, Message};
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 16;
/// What shows that a peer belongs to the run.
pub type Secret = [u8; SECRET_BYTES];

const HEADER_BYTES: usize = 32;
const RECEIPT_BYTES: usize = 8;
/// Bytes of the longest message.
pub const MESSAGE_BYTES: usize = 2 * LINE_BYTES as usize;
/// Most bytes of a batch.
pub const BATCH_BYTES: usize = 16 << 10;
/// Most bytes of one that bytes of an area travel with: each network has room for so many in front of data.
pub const HEAD_BYTES: usize = 512;

/// Two nodes: who sends, and who receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub from: u16,
    pub to: u16,
}

/// So many messages of a pair are in the receiver's ring, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub pair: Pair,
    pub arrived: u32,
}

/// Bytes of the staging area of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AreaRange {
    pub node: u16,
    pub range: Range<u64>,
}

impl AreaRange {
    /// How many they are.
    pub const fn bytes(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// With those that a message of a node tells of. None: they do not follow at once.
    fn extended(area: Option<AreaRange>, node: u16, more: Range<u64>) -> Option<AreaRange> {
        match area {
            None => Some(AreaRange { node, range: more }),
            Some(area) if area.node == node && area.range.end == more.start => {
                Some(AreaRange { node, range: area.range.start..more.end })
            }
            Some(_) => None,
        }
    }
}

/// A batch while it is written.
#[derive(Debug)]
pub struct BatchWriter {
    bytes: Vec<u8>,
    area: Option<AreaRange>,
    receipts: u16,
    messages: u16,
    said: u16,
}

impl BatchWriter {
    /// An empty batch in that buffer. Receipts come first.
    pub fn new(mut bytes: Vec<u8>, secret: &Secret, host: u16, number: u64) -> BatchWriter {
        bytes.clear();
        bytes.extend_from_slice(secret);
        bytes.extend_from_slice(&host.to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(&number.to_le_bytes());
        BatchWriter { bytes, area: None, receipts: 0, messages: 0, said: 0 }
    }

    /// Whether another receipt or message, of any length, has room.
    pub fn has_room(&self) -> bool {
        self.bytes.len() + MESSAGE_BYTES <= if self.area.is_some() { HEAD_BYTES } else { BATCH_BYTES }
    }

    /// Whether it holds nothing.
    pub const fn is_empty(&self) -> bool {
        self.receipts == 0 && self.messages == 0 && self.said == 0
    }

    fn pair(&mut self, pair: Pair) {
        self.bytes.extend_from_slice(&pair.from.to_le_bytes());
        self.bytes.extend_from_slice(&pair.to.to_le_bytes());
    }

    /// Adds a receipt; in front of all messages.
    pub fn receipt(&mut self, receipt: Receipt) {
        debug_assert_eq!(self.messages, 0);
        self.pair(receipt.pair);
        self.bytes.extend_from_slice(&receipt.arrived.to_le_bytes());
        self.receipts += 1;
    }

    /// Adds a message; false, and nothing is added, if the bytes that it tells of must go with another batch.
    #[must_use]
    pub fn message(&mut self, pair: Pair, message: &Message) -> bool {
        if let Some(range) = area_bytes(message) {
            let all = AreaRange::extended(self.area.clone(), pair.from, range);
            if all.is_none() || self.bytes.len() + MESSAGE_BYTES > HEAD_BYTES {
                return false;
            }
            self.area = all;
        }
        self.pair(pair);
        self.bytes.extend_from_slice(&message.incarnation.to_le_bytes());
        let data = if message.length == 0 { &[][..] } else { &message.data[..] };
        for word in message.head().iter().chain(data) {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.messages += 1;
        true
    }

    /// Adds as much of what the starter says as has room, behind all messages, and takes it away there. With an area nothing has.
    pub fn say(&mut self, words: &mut VecDeque<u8>) {
        let room = if self.area.is_some() { 0 } else { BATCH_BYTES.saturating_sub(self.bytes.len()) };
        let count = words.len().min(room);
        self.bytes.extend(words.drain(..count));
        self.said = count as u16;
    }

    /// The bytes to send, and what travels with them.
    pub fn finish(mut self) -> (Vec<u8>, Option<AreaRange>) {
        self.bytes[18..20].copy_from_slice(&self.messages.to_le_bytes());
        self.bytes[20..22].copy_from_slice(&self.receipts.to_le_bytes());
        self.bytes[22..24].copy_from_slice(&self.said.to_le_bytes());
        (self.bytes, self.area)
    }
}

/// Why a batch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchRefusal {
    /// It does not show the run's secret.
    Stranger,
    /// It is of no host of the run but this one, or its number is not the next one.
    Sender,
    /// It is shorter or longer than it says, or has a length that no message has; or so is what travels with it.
    Form,
    /// It speaks for nodes of other hosts, or to nodes that are not here.
    Nodes,
}

impl BatchRefusal {
    /// How many kinds there are.
    pub const KINDS: usize = 4;
}

/// What a batch may say.
#[derive(Debug)]
pub struct Expected<'a> {
    pub secret: &'a Secret,
    /// The nodes of each host.
    pub hosts: &'a [Range<u16>],
    pub me: usize,
    /// By host: how many batches of it have come.
    pub received: &'a [u64],
}

/// A batch that has come.
#[derive(Debug)]
pub struct Batch<'a> {
    /// The host that has sent it.
    pub host: usize,
    /// What travels with it.
    pub area: Option<AreaRange>,
    receipts: &'a [u8],
    messages: &'a [u8],
    said: &'a [u8],
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn pair_at(bytes: &[u8]) -> Pair {
    Pair { from: u16_at(bytes, 0), to: u16_at(bytes, 2) }
}

/// Bytes of the message that begins there; none if no message has that length or it does not end inside.
fn message_bytes(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < LINE_BYTES as usize {
        return None;
    }
    let length = match u64_at(bytes, 8 * HEAD_WORDS) {
        0 => LINE_BYTES as usize,
        last if last == 64 << 32 => MESSAGE_BYTES,
        _ => return None,
    };
    (bytes.len() >= length).then_some(length)
}

impl<'a> Batch<'a> {
    /// One that [`Batch::read`] has admitted; none if it cannot have.
    pub fn admitted(bytes: &'a [u8]) -> Option<Batch<'a>> {
        let (head, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let (receipts, rest) = rest.split_at_checked(usize::from(u16_at(head, 20)) * RECEIPT_BYTES)?;
        let (messages, said) = rest.split_at(rest.len().checked_sub(u16_at(head, 22).into())?);
        Some(Batch { host: u16_at(head, 16).into(), area: None, receipts, messages, said })
    }

    /// Looks whether all of it is what its sender may say. So many bytes travel with it.
    ///
    /// # Errors
    /// It is not.
    pub fn read(bytes: &'a [u8], with_it: usize, expected: &Expected<'_>) -> Result<Batch<'a>, BatchRefusal> {
        let differs = |secret: &[u8]| secret.iter().zip(expected.secret).fold(0, |all, (a, b)| all | (a ^ b)) != 0;
        if bytes.len() < HEADER_BYTES || differs(&bytes[..SECRET_BYTES]) {
            return Err(BatchRefusal::Stranger);
        }
        let host = usize::from(u16_at(bytes, 16));
        if host == expected.me || host >= expected.hosts.len() {
            return Err(BatchRefusal::Sender);
        }
        if expected.received.get(host) != Some(&u64_at(bytes, 24)) {
            return Err(BatchRefusal::Sender);
        }
        let (theirs, ours) = (&expected.hosts[host], &expected.hosts[expected.me]);
        let mut batch = Batch::admitted(bytes).ok_or(BatchRefusal::Form)?;
        let (messages, mut rest) = (u16_at(bytes, 18), batch.messages);
        if batch.receipts().any(|r| !ours.contains(&r.pair.from) || !theirs.contains(&r.pair.to)) {
            return Err(BatchRefusal::Nodes);
        }
        for _ in 0..messages {
            let length = message_bytes(rest).ok_or(BatchRefusal::Form)?;
            let pair = pair_at(rest);
            if !theirs.contains(&pair.from) || !ours.contains(&pair.to) {
                return Err(BatchRefusal::Nodes);
            }
            rest = &rest[length..];
        }
        for (pair, message) in batch.messages() {
            if let Some(range) = area_bytes(&message) {
                batch.area = Some(AreaRange::extended(batch.area.take(), pair.from, range).ok_or(BatchRefusal::Form)?);
            }
        }
        let is_whole = rest.is_empty() && batch.area.as_ref().map_or(0, AreaRange::bytes) == with_it;
        if is_whole { Ok(batch) } else { Err(BatchRefusal::Form) }
    }

    /// What the host's starter says.
    pub fn said(&self) -> &'a [u8] {
        self.said
    }

    /// What has arrived there.
    pub fn receipts(&self) -> impl Iterator<Item = Receipt> + use<'a> {
        self.receipts.chunks_exact(RECEIPT_BYTES).map(|r| Receipt { pair: pair_at(r), arrived: u32_at(r, 4) })
    }

    /// The messages, in their order.
    pub fn messages(&self) -> impl Iterator<Item = (Pair, Message)> + use<'a> {
        let mut rest = self.messages;
        std::iter::from_fn(move || {
            let length = message_bytes(rest)?;
            let (now, behind) = rest.split_at(length);
            rest = behind;
            let head = std::array::from_fn(|word| u64_at(now, 8 + 8 * word));
            let mut message = Message::default();
            message.set_head(u32_at(now, 4), &head);
            if length == MESSAGE_BYTES {
                message.data = std::array::from_fn::<_, BLOCK_WORDS, _>(|word| u64_at(now, 64 + 8 * word));
            }
            Some((pair_at(now), message))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blizzard_contract::STAGE_PIECE_BYTES as PIECE;
    use blizzard_rt::messages::kinds::id::{BLOCK_PUSHES, BULK_STAGED};

    const SECRET: Secret = [7; SECRET_BYTES];

    fn message(n: u64) -> Message {
        let length = if n.is_multiple_of(2) { 64 } else { 0 };
        let data = if length == 64 { [n; 8] } else { [0; 8] };
        let (handler, source) = (n as u16, 3);
        Message { incarnation: 9, handler, source, length, taken: 5, addr: n, args: [n, 1, 2], key: 4, data }
    }

    fn written() -> Vec<u8> {
        let mut batch = BatchWriter::new(vec![1, 2, 3], &SECRET, 1, 6);
        batch.receipt(Receipt { pair: Pair { from: 0, to: 3 }, arrived: u32::MAX });
        for n in 0..5 {
            assert!(batch.message(Pair { from: 3, to: 1 }, &message(n)));
        }
        batch.say(&mut VecDeque::from(*b"hello"));
        batch.finish().0
    }

    fn read(bytes: &[u8]) -> Result<Batch<'_>, BatchRefusal> {
        Batch::read(bytes, 0, &Expected { secret: &SECRET, hosts: &[0..2, 2..4, 4..5], me: 0, received: &[0, 6, 0] })
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = written();
        let batch = read(&bytes).unwrap();
        assert_eq!(batch.host, 1);
        assert!(batch.receipts().eq([Receipt { pair: Pair { from: 0, to: 3 }, arrived: u32::MAX }]));
        assert!(batch.messages().eq((0..5).map(|n| (Pair { from: 3, to: 1 }, message(n)))));
        assert_eq!(batch.said(), b"hello");
    }

    #[test]
    fn what_has_no_room_waits_for_the_next_batch() {
        let mut words = VecDeque::from(vec![7; BATCH_BYTES]);
        let mut batch = BatchWriter::new(Vec::new(), &SECRET, 1, 6);
        assert!(batch.message(Pair { from: 3, to: 1 }, &message(1)));
        batch.say(&mut words);
        let (bytes, _) = batch.finish();
        let read = read(&bytes).unwrap();
        assert_eq!((bytes.len(), read.said().len() + words.len()), (BATCH_BYTES, BATCH_BYTES));
        assert_eq!(read.messages().count(), 1);
        let mut batch = BatchWriter::new(Vec::new(), &SECRET, 1, 6);
        assert!(batch.message(Pair { from: 3, to: 1 }, &with_bytes(BULK_STAGED, 4, PIECE)));
        batch.say(&mut words);
        assert!(!batch.is_empty() && batch.finish().1.is_some() && !words.is_empty());
    }

    #[test]
    fn what_a_host_may_not_say_is_refused() {
        type Damage = fn(&mut Vec<u8>);
        let cases: [(BatchRefusal, Damage); 15] = [
            (BatchRefusal::Stranger, |b| b.truncate(31)),
            (BatchRefusal::Stranger, |b| b[15] ^= 1),
            (BatchRefusal::Sender, |b| b[16] = 0),
            (BatchRefusal::Sender, |b| b[16] = 3),
            (BatchRefusal::Sender, |b| b[24] = 5),
            (BatchRefusal::Form, |b| b[18] += 1),
            (BatchRefusal::Form, |b| b[18] -= 1),
            (BatchRefusal::Form, |b| b[21] = 0xff),
            (BatchRefusal::Form, |b| b[22] = 0),
            (BatchRefusal::Form, |b| b[22] += 64),
            (BatchRefusal::Form, |b| b[23] = 0xff),
            (BatchRefusal::Form, |b| b.truncate(b.len() - 1)),
            (BatchRefusal::Nodes, |b| b[32] = 2),
            (BatchRefusal::Nodes, |b| b[40] = 4),
            (BatchRefusal::Nodes, |b| b[42] = 2),
        ];
        for (n, (refusal, damage)) in cases.into_iter().enumerate() {
            let mut bytes = written();
            damage(&mut bytes);
            assert_eq!(read(&bytes).err(), Some(refusal), "case {n}");
        }
    }

    /// Whatever bytes come: nothing but a refusal, or messages of nodes that the sender may speak for.
    #[test]
    fn random_bytes_are_refused_or_harmless() {
        let mut random = 88_172_645_463_325_252u64;
        let mut accepted = 0;
        for round in 0..200_000 {
            let mut bytes = written();
            for _ in 0..=round % 3 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = random as usize % bytes.len();
                bytes[at] = (random >> 32) as u8;
            }
            if let Ok(batch) = read(&bytes) {
                accepted += 1;
                assert!(
                    batch.messages().all(|(pair, m)| (2..4).contains(&pair.from) && pair.to < 2 && m.length & 63 == 0)
                );
                assert_eq!(batch.messages().count(), 5);
            }
        }
        assert!((10_000..190_000).contains(&accepted), "{accepted}");
    }

    #[test]
    fn a_batch_has_room_until_it_is_full() {
        let mut batch = BatchWriter::new(Vec::new(), &SECRET, 0, 0);
        assert!(batch.is_empty());
        while batch.has_room() {
            assert!(batch.message(Pair { from: 0, to: 2 }, &message(0)));
        }
        let (bytes, _) = batch.finish();
        assert!(bytes.len() <= BATCH_BYTES && bytes.len() + MESSAGE_BYTES > BATCH_BYTES);
    }

    /// A piece of a transfer, or of what a flush pushes.
    fn with_bytes(handler: u16, piece: u64, bytes: u64) -> Message {
        Message { handler, addr: bytes, args: [piece, piece, 1], ..Message::default() }
    }

    #[test]
    fn what_travels_with_a_batch_is_one_range_of_one_node() {
        let pair = |from| Pair { from, to: 1 };
        let mut batch = BatchWriter::new(Vec::new(), &SECRET, 1, 6);
        assert!(batch.message(pair(2), &message(1)) && batch.message(pair(3), &with_bytes(BULK_STAGED, 4, PIECE)));
        assert!(!batch.message(pair(2), &with_bytes(BULK_STAGED, 5, PIECE)), "of another node");
        assert!(!batch.message(pair(3), &with_bytes(BULK_STAGED, 6, PIECE)), "not the next place");
        assert!(batch.message(pair(3), &with_bytes(BULK_STAGED, 5, 12)));
        assert!(!batch.message(pair(3), &with_bytes(BULK_STAGED, 6, 12)), "behind a piece that is not full");
        let (bytes, area) = batch.finish();
        let area = area.unwrap();
        assert_eq!((area.node, area.bytes() as u64), (3, PIECE + 12));
        let expected = Expected { secret: &SECRET, hosts: &[0..2, 2..4, 4..5], me: 0, received: &[0, 6, 0] };
        let read = |with_it| Batch::read(&bytes, with_it, &expected).map(|batch| batch.area);
        assert_eq!(read(area.bytes()), Ok(Some(area.clone())));
        for other in [0, area.bytes() - 1, area.bytes() + 1] {
            assert_eq!(read(other), Err(BatchRefusal::Form));
        }
        // The same with its second piece elsewhere.
        let mut moved = bytes.clone();
        let second = moved.len() - 64 + 8 + 24;
        moved[second] = 9;
        assert_eq!(Batch::read(&moved, area.bytes(), &expected).err(), Some(BatchRefusal::Form));
    }

    #[test]
    fn a_batch_that_bytes_travel_with_is_short() {
        let mut batch = BatchWriter::new(Vec::new(), &SECRET, 0, 0);
        let pieces = (0..16).take_while(|&piece| {
            batch.has_room() && batch.message(Pair { from: 0, to: 2 }, &with_bytes(BULK_STAGED, piece, PIECE))
        });
        assert!(pieces.count() > 4);
        assert!(batch.finish().0.len() <= HEAD_BYTES);
        let mut full = BatchWriter::new(Vec::new(), &SECRET, 0, 0);
        while full.bytes.len() <= HEAD_BYTES {
            assert!(full.message(Pair { from: 0, to: 2 }, &message(0)));
        }
        assert!(!full.message(Pair { from: 0, to: 2 }, &with_bytes(BLOCK_PUSHES, 3, 0)));
    }
}
