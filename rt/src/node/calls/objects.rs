//! The objects that programs hold: from what the program gives to what a node knows.

use crate::node::node::Node;
use crate::sync::handle::{Handle, HandleKind, MAX_INDEX};

impl Node {
    /// What the program is to hold of a new object of this node, which `function` has made; without a number there was no memory.
    pub fn new_handle(&self, function: &str, kind: HandleKind, index: Option<u64>) -> u64 {
        match index.filter(|&index| index <= MAX_INDEX) {
            Some(index) => Handle { kind, home: self.me, index }.encode(),
            None => self.fail(format_args!("{function}: no memory")),
        }
    }

    /// The object that the program means, or the end of the run.
    pub fn object_handle(&self, function: &str, kind: HandleKind, value: u64) -> Handle {
        let known = |handle: &Handle| (handle.home.index() as u32) < self.homes.nodes();
        match Handle::decode(kind, value).filter(known) {
            Some(handle) => handle,
            None => self.fail(format_args!("{function}: {value:#x} is not {}", kind.name())),
        }
    }
}
