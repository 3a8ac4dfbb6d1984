//! Publish and lookup: the calls of the program, which wait. [`crate::sync::slots`] has node 0's part.
//!
//! Input: a slot number. Output: the address that was published last; `lookup` waits for the first.

use crate::messages::kinds::{id, is_publish_slot};
use crate::node::node::Node;
use crate::transport::message::Message;
use crate::transport::patience::Wait;
use blizzard_contract::PUBLISH_SLOTS;

impl Node {
    /// Stores a pointer in a slot, for those who wait for it too. Returns when node 0 has done it: a node that hears of it from this one, by
    /// whatever way, finds this pointer and none from before.
    pub fn publish(&mut self, slot: u64, value: u64) {
        self.check_slot("bz_publish", slot);
        self.flush();
        let manager = self.manager();
        let put = Message { handler: id::PUBLISH, args: [slot, value, 0], key: slot, ..Message::default() };
        self.ask(manager, put, id::PUBLISHED, Wait::Other);
    }

    /// Waits until the slot has been published; returns its pointer.
    pub fn lookup(&mut self, slot: u64) -> u64 {
        self.check_slot("bz_lookup", slot);
        let manager = self.manager();
        let ask = Message { handler: id::LOOKUP, args: [slot, 0, 0], key: slot, ..Message::default() };
        self.ask(manager, ask, id::LOOKED_UP, Wait::Other).args[0]
    }

    fn check_slot(&self, function: &str, slot: u64) {
        if !is_publish_slot(slot) {
            self.fail(format_args!("{function}: slot {slot} is not below {PUBLISH_SLOTS}"));
        }
    }
}
