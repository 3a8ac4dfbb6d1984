//! All that is between this node and another one: two rings and the shuttle.
//!
//! Purpose: choose between them, and keep the order. A message goes by the [`Shuttle`] when it is this end's turn, which it is when the
//! other end was the last to use it, as in a request and its answer; all others go by the ring. Each message says how many
//! messages of its sender went the other way before it: the receiver takes it when it has taken those.
//! **Invariant**: messages arrive in the order of sending. A message that is seen was sent after those that it counts, so they can be seen, too.

use crate::transport::interface::Head;
use crate::transport::message::{Message, ORDER, Traffic};
use crate::transport::rings::ring::{Consumer, MappedRing, Producer, RingMemory};
use crate::transport::rings::shuttle::Shuttle;
use blizzard_protocol::ids::Data;

/// One node's end of everything between it and another one.
pub struct Link<M = MappedRing> {
    out: Producer<M>,
    into: Consumer<M>,
    shuttle: Shuttle<M>,
    /// Messages that went and came by the shuttle, modulo 2^32.
    shuttled: u32,
    unshuttled: u32,
}

impl Link<MappedRing> {
    /// This node's end, of fresh (zeroed) rings; `is_first` at the node with the lower number.
    ///
    /// # Safety
    /// Both rings' memory stays mapped while the end is used, and this is the only end of its kind.
    pub unsafe fn new(out: *mut u8, into: *mut u8, slots: u32, is_first: bool) -> Link {
        // SAFETY: passed on from the caller.
        let (out, into) = unsafe { (MappedRing::new(out), MappedRing::new(into)) };
        Link::over(out, into, slots, is_first)
    }
}

impl<M: RingMemory + Clone> Link<M> {
    /// The end with those two rings.
    pub fn over(out: M, into: M, slots: u32, is_first: bool) -> Link<M> {
        let shuttle = Shuttle::over(if is_first { out.clone() } else { into.clone() }, is_first);
        Link { out: Producer::over(out, slots), into: Consumer::over(into, slots), shuttle, shuttled: 0, unshuttled: 0 }
    }

    /// Writes and publishes a message that is not about a block; false when there is no room.
    #[inline(always)]
    pub fn send(&mut self, incarnation: u32, mut head: Head, data: Option<&Data>) -> bool {
        if self.shuttle.may_send() {
            head[ORDER] |= u64::from(self.out.sent());
            self.shuttle.send(incarnation, head, data);
            self.shuttled = self.shuttled.wrapping_add(1);
            return true;
        }
        head[ORDER] |= u64::from(self.shuttled);
        self.out.send(incarnation, head, data, false)
    }

    /// [`Link::send`], by the ring: of a message about a block.
    #[inline(always)]
    pub fn send_by_ring(&mut self, incarnation: u32, mut head: Head, data: Option<&Data>) -> bool {
        head[ORDER] |= u64::from(self.shuttled);
        self.out.send(incarnation, head, data, true)
    }

    /// A message of that kind was taken out: gets the lines for what will be sent next in advance, as far as that helps.
    #[inline]
    pub fn expect_to_send(&self, taken: &Message) {
        if taken.traffic() == Traffic::Blocks {
            // A request is answered with data more often than not, and data is followed by the next request.
            self.out.expect_to_send(taken.length == 0);
        }
    }

    /// Whether a message is there.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.shuttle.is_ready() || self.into.is_ready()
    }

    /// Whether the other end can have written what is seen here.
    pub fn is_sound(&self) -> bool {
        // Each look at one of the two comes behind the look that makes it certain.
        let stuck = self.shuttle.is_ready() && !self.is_shuttles_turn() && !self.into.is_ready()
            || self.into.is_ready() && !self.is_rings_turn() && !self.shuttle.is_ready();
        self.out.is_sound() && self.into.is_sound() && self.shuttle.is_sound() && !stuck
    }

    /// Whether everything that was sent by the ring before the message in the shuttle has been taken.
    #[inline]
    fn is_shuttles_turn(&self) -> bool {
        self.shuttle.order() == self.into.taken()
    }

    /// Whether everything that was sent by the shuttle before the message in the ring has been taken.
    #[inline]
    fn is_rings_turn(&self) -> bool {
        self.into.order() == self.unshuttled
    }

    /// Copies the next message out; false when there is none. Data that does not travel stays what it was.
    #[inline]
    pub fn receive_into(&mut self, message: &mut Message) -> bool {
        if self.shuttle.is_ready() && self.is_shuttles_turn() {
            self.receive_from_shuttle(message);
            return true;
        }
        if !self.into.is_ready() {
            self.into.publish_all();
            return false;
        }
        if self.is_rings_turn() {
            self.into.receive_into(message);
            return true;
        }
        // The shuttle's message was sent before this one, but after the look at the shuttle.
        let found = self.shuttle.is_ready() && self.is_shuttles_turn();
        if found {
            self.receive_from_shuttle(message);
        }
        found
    }

    #[inline]
    fn receive_from_shuttle(&mut self, message: &mut Message) {
        self.shuttle.receive_into(message);
        self.unshuttled = self.unshuttled.wrapping_add(1);
    }

    /// Messages taken out so far, modulo 2^32.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.into.taken().wrapping_add(self.unshuttled)
    }

    /// Whether the other end has taken out everything, if it has said that it has taken so many messages (modulo 2^32).
    #[inline]
    pub fn is_all_taken(&self, taken: u32) -> bool {
        taken == self.out.sent().wrapping_add(self.shuttled)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Whole messages through a link.

    use super::*;

    impl<M: RingMemory + Clone> Link<M> {
        pub fn send_message(&mut self, message: &Message) -> bool {
            let data = (message.length != 0).then_some(&message.data);
            match message.traffic() {
                Traffic::Blocks => self.send_by_ring(message.incarnation, message.head(), data),
                Traffic::Other => self.send(message.incarnation, message.head(), data),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::message::FIRST_OTHER;

    /// Both ends of a link, and the memory of their rings.
    fn pair(slots: u32) -> (Link, Link, [Vec<[u64; 16]>; 2]) {
        let mut rings = [(); 2].map(|()| vec![[0u64; 16]; 2 + slots as usize]);
        let [forth, back] = [0, 1].map(|n| rings[n].as_mut_ptr().cast::<u8>());
        // SAFETY: the vectors are returned too, and their storage does not move.
        unsafe { (Link::new(forth, back, slots, true), Link::new(back, forth, slots, false), rings) }
    }

    fn message(n: u64) -> Message {
        let length = if n.is_multiple_of(3) { 64 } else { 0 };
        let data = if length == 64 { [n; 8] } else { [0; 8] };
        // Two of three are such as may go by the shuttle.
        let handler = if n % 3 == 2 { 1 } else { FIRST_OTHER };
        Message { handler, addr: n, args: [n + 1, n + 2, n + 3], key: n + 4, length, data, ..Message::default() }
    }

    fn receive(end: &mut Link) -> Option<Message> {
        let mut message = Message::default();
        end.receive_into(&mut message).then_some(message)
    }

    /// A request and its answer leave the rings alone.
    #[test]
    fn messages_in_turn_go_by_the_shuttle() {
        let (mut a, mut b, rings) = pair(2);
        for n in (0..100).filter(|n| n % 3 == 0) {
            assert!(a.send_message(&message(n)) && !a.is_all_taken(b.taken()));
            assert_eq!(receive(&mut b), Some(message(n)));
            assert!(a.is_all_taken(b.taken()));
            assert!(b.send_message(&message(n + 1)));
            assert_eq!(receive(&mut a), Some(message(n + 1)));
        }
        assert!(rings.iter().all(|ring| ring[2..].iter().all(|slot| *slot == [0; 16])));
        assert!(a.is_sound() && b.is_sound());
    }

    /// Random numbers of messages in both directions, taken in random parts.
    #[test]
    fn the_order_is_kept_whatever_way_they_go() {
        let (mut a, mut b, _rings) = pair(4);
        let (mut sent, mut taken) = ([0u64; 2], [0u64; 2]);
        let mut random = 7u64;
        for _ in 0..200_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (from, to, side) = if random & 1 == 0 { (&mut a, &mut b, 0) } else { (&mut b, &mut a, 1) };
            if random & 6 < 4 {
                sent[side] += u64::from(from.send_message(&message(sent[side])));
            } else {
                while let Some(got) = receive(to) {
                    assert_eq!(got, message(taken[side]));
                    taken[side] += 1;
                    if random & 24 != 0 {
                        break;
                    }
                }
            }
            assert!(sent[side] - taken[side] <= 5 && a.is_sound() && b.is_sound());
        }
        assert!(taken[0] > 20_000 && taken[1] > 20_000);
    }

    #[test]
    fn a_shuttle_that_was_overwritten_is_noticed_by_the_one_who_waits() {
        for (number, order) in [(77, 0), (1, 9)] {
            let (a, mut b, mut rings) = pair(2);
            assert!(a.is_sound() && b.is_sound());
            (rings[0][1][0], rings[0][1][7]) = (number, order);
            assert!(!b.is_sound() && receive(&mut b).is_none());
        }
    }

    #[test]
    fn messages_pass_between_threads_in_order_and_whole() {
        const COUNT: u64 = 100_000;
        let (mut a, mut b, rings) = pair(8);
        let echo = std::thread::spawn(move || {
            for n in 0..COUNT {
                let got = loop {
                    match receive(&mut b) {
                        Some(got) => break got,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(got, message(n));
                while n % 3 == 0 && !b.send_message(&message(n)) {
                    std::thread::yield_now();
                }
            }
        });
        let (mut next, mut answered) = (0, 0);
        while answered < COUNT.div_ceil(3) {
            if next < COUNT && next < 3 * answered + 11 && a.send_message(&message(next)) {
                next += 1;
            }
            match receive(&mut a) {
                Some(got) => {
                    assert_eq!(got, message(3 * answered));
                    answered += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        echo.join().unwrap();
        drop(rings);
    }
}
