//! Bulk data piece by piece through the source's staging area.
//!
//! Purpose: a transfer at the speed of memory while both ends are in the runtime. The source copies pieces into its [`Area`] (BULK_STAGED), the
//! destination copies them out (BULK_TAKEN). A source that computes does not get on with that; then the destination claims what is left and copies it
//! itself ([`crate::tempest::bulk::transfer`]). A source stages one transfer at a time.
//! Input: offers, messages of the other end. Output: data in the destination's buffer.
//! **Invariant**: each piece is either staged by the source or claimed by the destination, never both ([`Area`] says which).

use crate::kernel::sys::{self, Errno};
use crate::links::bugs::has_bug;
use crate::memory::access_control::program::{kernel_address, runtime_address};
use crate::messages::kinds::id;
use crate::process::host::CallHost;
use crate::tempest::bulk::channels::{self, BULK, Bulk, Destination, Staging, complete, destination, reject};
use crate::tempest::bulk::staging::Area;
use crate::transport::message::Message;
use crate::transport::stage;
use blizzard_contract::{STAGE_PIECE_BYTES, STAGE_PLACES};
use blizzard_protocol::ids::NodeId;

/// Pieces that a source stages with its offer, and after each that is taken.
const FIRST_PIECES: u32 = 4;
const NEXT_PIECES: u32 = 2;

impl Bulk {
    /// Begins to stage a transfer, if no other one is under way; its number, or 0.
    fn begin_staging(&mut self, channel: u64) -> u32 {
        if self.staging.is_some() {
            return 0;
        }
        self.number = self.number.checked_add(1).unwrap_or(1);
        self.staging = Some(Staging { channel, number: self.number, put: 0, taken: 0 });
        self.number
    }
}

/// Begins to stage the transfer of this node's channel, if no other one is under way; its number, or 0.
pub fn begin(host: &mut CallHost<'_>, channel: u64) -> u32 {
    let me = host.me();
    let Some(area) = host.node().map(|node| Area::of(&node.region, me)) else { return 0 };
    let number = BULK.with(|bulk| bulk.begin_staging(channel));
    if number != 0 {
        area.begin(number);
    }
    number
}

/// Stages the first pieces. A destination that can only wait for them, perhaps on another host, gets as many as have room.
pub fn stage_first(host: &mut CallHost<'_>) {
    let most = if BULK.with(|bulk| bulk.refused) { STAGE_PLACES as u32 } else { FIRST_PIECES };
    stage(host, most);
}

/// Stages the next pieces of the transfer that is staged here, as far as there is room.
fn stage(host: &mut CallHost<'_>, most: u32) {
    let me = host.me();
    let Some(area) = host.node().map(|node| Area::of(&node.region, me)) else { return };
    let claims_nothing = host.node().is_some_and(|node| has_bug!(node, StagesWhatIsClaimed));
    for _ in 0..most {
        let next = BULK.with(|bulk| {
            let staging = bulk.staging.as_mut()?;
            let source = bulk.sources.get(staging.channel)?;
            let (piece, at) = (staging.put, staging.put * STAGE_PIECE_BYTES);
            if at >= source.bytes || piece - staging.taken >= area.places() {
                return None;
            }
            let claimed = area.claim_next(staging.number, piece);
            stage::note(me, claimed.into());
            if !claimed && !claims_nothing {
                return None;
            }
            staging.put += 1;
            let bytes = STAGE_PIECE_BYTES.min(source.bytes - at);
            // SAFETY: inside the buffer that the program offered and must leave alone until the callback.
            unsafe { area.put(piece, runtime_address(source.buffer + at) as u64, bytes) };
            Some((NodeId::new(source.dest.into())?, bytes, [staging.channel, piece, staging.number.into()]))
        });
        let Some((to, bytes, args)) = next else { return };
        channels::post(host, to, Message { handler: id::BULK_STAGED, addr: bytes, args, ..Message::default() });
    }
}

/// The destination has taken so many pieces.
pub fn taken(host: &mut CallHost<'_>, from: NodeId, channel: u64, pieces: u64, number: u64) {
    let known = BULK.with(|bulk| {
        let of_sender = bulk.sources.get(channel).is_some_and(|s| usize::from(s.dest) == from.index());
        let staging = bulk.staging.as_mut();
        let Some(staging) = staging.filter(|s| of_sender && s.channel == channel && u64::from(s.number) == number)
        else {
            return false;
        };
        let fits = (staging.taken..=staging.put).contains(&pieces);
        if fits {
            staging.taken = pieces;
        }
        fits
    });
    if known { stage(host, NEXT_PIECES) } else { reject(host) }
}

/// A piece is in the source's area.
pub fn staged(host: &mut CallHost<'_>, from: NodeId, channel: u64, piece: u64, number: u64) {
    let area = host.node().map(|node| Area::of(&node.region, from));
    let found = BULK.with(|bulk| bulk.find(from, channel));
    let expected = |d: &Destination| {
        d.state == destination::FILLING
            && d.number != 0
            && u64::from(d.number) == number
            && piece == d.got
            && piece < d.limit.min(d.pieces())
    };
    let (Some(area), Some((at, mut d))) = (area, found.filter(|(_, d)| expected(d))) else { return reject(host) };
    let offset = piece * STAGE_PIECE_BYTES;
    // SAFETY: inside the program's own buffer, checked when it was given.
    unsafe { area.take(piece, runtime_address(d.buffer + offset) as u64, STAGE_PIECE_BYTES.min(d.bytes - offset)) };
    d.got += 1;
    BULK.with(|bulk| {
        bulk.destinations.set(at, d);
        bulk.since = sys::cycles();
    });
    let ends_early = host.node().is_some_and(|node| has_bug!(node, BulkEndsEarly)) && d.got + 1 == d.pieces();
    if d.is_staged() && (d.has_all_pieces() || ends_early) {
        BULK.with(|bulk| bulk.awaiting -= 1);
        return complete(host, at, d);
    }
    channels::post(
        host,
        from,
        Message { handler: id::BULK_TAKEN, args: [channel, d.got, number], ..Message::default() },
    );
    if d.has_all_pieces() && d.done == d.bytes {
        complete(host, at, d);
    }
}

/// Whether the kernel lets this node copy out of the memory of another one, where it has offered a buffer.
fn may_copy(host: &mut CallHost<'_>, src: NodeId, from: u64) -> bool {
    let process = host.node().map_or(0, |node| node.process_of(src)) as i32;
    let mut word = 0u32;
    // SAFETY: room for the four bytes that each buffer begins with.
    let copied = unsafe { sys::read_process(process, kernel_address(from), &raw mut word as u64, 4) };
    !matches!(copied, Err(Errno(libc::EPERM | libc::ENOSYS)))
}

/// Takes over what the sources that keep this node waiting have not staged.
pub fn take_over(host: &mut CallHost<'_>) {
    let Some(region) = host.node().map(|node| node.region) else { return };
    let me = host.me();
    BULK.with(|bulk| {
        bulk.since = sys::cycles();
        for at in 0..bulk.destinations.len() {
            let Some(mut d) = bulk.destinations.get(at).filter(Destination::is_staged) else { continue };
            let Some(src) = NodeId::new(d.src.into()) else { continue };
            if !may_copy(host, src, d.from) {
                // What was claimed could not be copied.
                bulk.refused = true;
                return;
            }
            let claimed = Area::of(&region, src).claim_rest(d.number, d.pieces());
            stage::note(me, claimed.unwrap_or(u64::MAX - 1));
            if let Some(limit) = claimed.filter(|&limit| limit >= d.got) {
                (d.limit, d.done) = (limit, limit * STAGE_PIECE_BYTES);
                bulk.destinations.set(at, d);
                bulk.awaiting -= 1;
                bulk.filling += 1;
            }
        }
    });
}
