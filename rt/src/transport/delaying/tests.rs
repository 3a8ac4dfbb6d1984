//! What the network of tests does to messages.

use crate::transport::delaying::network::{NetworkSettings, Random, SharedNetwork};
use crate::transport::message::{Message, Traffic};
use crate::transport::stage::{self, Director, Look};
use blizzard_protocol::ids::NodeId;
use std::cell::Cell;
use std::vec::Vec;

/// A clock.
struct Clock(Cell<u64>);

impl Director for Clock {
    fn look(&self, _me: NodeId, _is_optional: bool) -> Look {
        Look::Anywhere
    }

    fn now_ns(&self) -> Option<u64> {
        Some(self.0.get())
    }

    fn has_time_passed(&self) -> bool {
        false
    }
}

/// What node 0 receives of 200 messages that nodes 1 and 2 send by turns, in this order: sender and number.
fn received(settings: NetworkSettings) -> Vec<(u32, u64)> {
    let clock = Clock(Cell::new(1));
    // SAFETY: taken back below.
    unsafe { stage::set_director(Some(&raw const clock as *const dyn Director)) };
    let network = SharedNetwork::new(3, settings);
    let node = |number| NodeId::new(number).unwrap();
    let mut all = Vec::new();
    for number in 0..100 {
        for from in [1, 2] {
            let message = Message { addr: number, ..Message::default() };
            assert!(network.lock().send(node(from), node(0), Traffic::Blocks, message));
        }
    }
    loop {
        let Some(due) = network.lock().next_due_ns() else { break };
        clock.0.set(due);
        for from in [1, 2] {
            let next = || network.lock().receive(node(from), node(0));
            all.extend(core::iter::from_fn(next).map(|message| (from, message.addr)));
        }
    }
    // SAFETY: nobody directs.
    unsafe { stage::set_director(None) };
    all
}

#[test]
fn pairs_keep_their_order_and_overtake_each_other() {
    for seed in 0..50 {
        let settings = NetworkSettings { room: 100, ..NetworkSettings::new(seed) };
        let all = received(settings);
        assert_eq!(all, received(settings), "the same seed, the same order");
        for from in [1, 2] {
            let numbers: Vec<u64> =
                all.iter().filter(|(sender, _)| *sender == from).map(|(_, number)| *number).collect();
            assert!(numbers.iter().copied().eq(0..100), "seed {seed}");
        }
        let sent = (0..100).flat_map(|number| [(1, number), (2, number)]);
        assert!(!all.iter().copied().eq(sent), "seed {seed}: nothing overtakes");
        let mut overtaking = received(NetworkSettings { overtaking: true, ..settings });
        assert_ne!(overtaking, all, "seed {seed}");
        overtaking.sort_unstable();
        assert_eq!(overtaking.len(), 200);
        overtaking.dedup();
        assert_eq!(overtaking.len(), 200, "each arrives once");
    }
}

#[test]
fn a_silent_node_is_not_heard() {
    let silent = Some((NodeId::new(2).unwrap(), 10));
    let all = received(NetworkSettings { room: 100, silent, ..NetworkSettings::new(1) });
    assert_eq!([1, 2].map(|from| all.iter().filter(|(sender, _)| *sender == from).count()), [100, 10]);
}

#[test]
fn there_is_room_for_so_many() {
    let network = SharedNetwork::new(2, NetworkSettings { room: 3, ..NetworkSettings::new(0) });
    let [from, to] = [0, 1].map(|number| NodeId::new(number).unwrap());
    let sent: Vec<bool> = (0..5).map(|_| network.lock().send(from, to, Traffic::Other, Message::default())).collect();
    assert_eq!(sent, [true, true, true, false, false]);
}

#[test]
fn neighbouring_seeds_differ() {
    let first = |seed| Random::new(seed).below(1 << 20);
    assert!((0..100).all(|seed| first(seed) != first(seed + 1)));
}
