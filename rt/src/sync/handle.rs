//! Locks, barriers, events and counters as programs hold them: numbers that look like pointers and are none.
//!
//! Purpose: [`Handle::encode`] and [`Handle::decode`]; every object belongs to the node that made it, its home, which numbers it.
//! A handle has 16 bits of kind, 16 of home, 32 of number. **Invariant**: the upper 16 bits make a non-canonical address, so that using a handle as a pointer fails at once, and tell kinds apart.

use blizzard_contract::listed;
use blizzard_protocol::ids::NodeId;

listed! {
    /// What a handle stands for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum HandleKind: name {
        Lock = 0xb12c: "a lock",
        Barrier: "a barrier",
        Event: "an event",
        Counter: "a counter",
    }
}

/// One object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub kind: HandleKind,
    pub home: NodeId,
    /// Below 2^32.
    pub index: u64,
}

const KIND_SHIFT: u32 = 48;
const HOME_SHIFT: u32 = 32;
/// The last number of an object at its home.
pub const MAX_INDEX: u64 = (1 << HOME_SHIFT) - 1;

impl Handle {
    pub const fn encode(self) -> u64 {
        (self.kind as u64) << KIND_SHIFT | (self.home.index() as u64) << HOME_SHIFT | self.index
    }

    /// `None` when the value is no handle of that kind. The home may be a node that the run does not have.
    pub const fn decode(kind: HandleKind, value: u64) -> Option<Handle> {
        if value >> KIND_SHIFT != kind as u64 {
            return None;
        }
        match NodeId::new((value >> HOME_SHIFT) as u16 as u32) {
            Some(home) => Some(Handle { kind, home, index: value & MAX_INDEX }),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blizzard_protocol::ids::NAMED_NODES;

    #[test]
    fn handles_are_recognised() {
        let home = NodeId::new(NAMED_NODES as u32 - 1).unwrap();
        for kind in [HandleKind::Lock, HandleKind::Barrier, HandleKind::Event, HandleKind::Counter] {
            let handle = Handle { kind, home, index: MAX_INDEX };
            assert_eq!(Handle::decode(kind, handle.encode()), Some(handle));
            let first = Handle { kind, home: NodeId::new(0).unwrap(), index: 0 };
            assert_eq!(Handle::decode(kind, first.encode()), Some(first));
            let other = if kind == HandleKind::Lock { HandleKind::Barrier } else { HandleKind::Lock };
            let foreign = [
                0,
                1,
                0x2000_0000_0000,
                0x7fff_ffff_f000,
                u64::MAX,
                first.encode() | (NAMED_NODES as u64) << HOME_SHIFT,
                Handle { kind: other, ..first }.encode(),
            ];
            for value in foreign {
                assert_eq!(Handle::decode(kind, value), None, "{value:#x}");
            }
        }
    }
}
