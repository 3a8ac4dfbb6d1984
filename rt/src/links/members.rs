//! Which nodes there are: those that node 0 has created, and those that have exited.
//!
//! Input: the region's header, calls of the program, announcements of exits. Output: numbers and sets of nodes.

use crate::memory::homes::Homes;
use crate::memory::partition::LOWER;
use crate::memory::region::Region;
use blizzard_protocol::ids::{NodeId, NodeSet};
use core::sync::atomic::Ordering;

/// What one node knows of the others' beginnings and ends.
#[derive(Clone, Copy, Debug)]
pub struct Members {
    /// The run's nodes are created by node 0.
    pub are_created: bool,
    /// Node 0: nodes created so far, one that is being created included.
    pub created: u32,
    /// Node 0: created nodes wait for their release.
    pub holding: bool,
    /// Node 0: when the last one was created.
    pub last_ns: u64,
    /// Node 0: ends that the program has waited for.
    pub awaited: u32,
    /// By lower arena: pages below this address began at node 0.
    limits: [u64; LOWER],
    /// Nodes that have exited.
    pub exited: NodeSet,
    /// How many nodes will have exited in the end, once it is known.
    everyone: Option<u64>,
}

impl Members {
    pub fn new(region: &Region) -> Members {
        let are_created = region.header().forks != 0;
        let limits = core::array::from_fn(|arena| region.fork_limit(arena).load(Ordering::Relaxed));
        Members {
            are_created,
            created: 0,
            holding: false,
            last_ns: 0,
            awaited: 0,
            limits,
            exited: NodeSet::EMPTY,
            everyone: None,
        }
    }

    /// How many nodes there are, if node `me` knows better than the run's header.
    pub fn count(&self, me: NodeId) -> Option<u32> {
        (self.are_created && me == NodeId::FIRST).then_some(1 + self.created)
    }

    /// Whether node 0 had this page, of which this node is the home, before this node existed: it then has the only copy of every block that no
    /// protocol event has touched since.
    pub fn began_at_node_0(&self, homes: &Homes, me: NodeId, page: u64) -> bool {
        let limit = homes.arena_of(page).and_then(|arena| self.limits.get(arena.index()));
        me != NodeId::FIRST && limit.is_some_and(|&limit| page < limit)
    }

    /// A node has exited; node 0 says how many nodes there are.
    pub fn note_exit(&mut self, node: NodeId, participants: Option<u64>) {
        self.exited = self.exited.with(node);
        self.everyone = participants.or(self.everyone);
    }

    /// Whether every node of the run has exited.
    pub fn all_exited(&self) -> bool {
        self.everyone.is_some_and(|everyone| self.exited.len() as u64 >= everyone)
    }

    /// How many nodes other than node 0 have exited.
    pub fn ended(&self) -> u32 {
        self.exited.without(NodeId::FIRST).len() as u32
    }
}

/// How many nodes of the run can be homes now.
pub fn homes_present(region: &Region) -> u32 {
    if region.header().forks == 0 {
        region.header().nodes
    } else {
        // Acquire: `fork_limits` was written before.
        region.fork_homes().load(Ordering::Acquire).clamp(1, region.header().nodes)
    }
}
