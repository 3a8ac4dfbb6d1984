//! What is waited for, for how long, and what is known of such waits.
//!
//! Input: what is waited for; messages sent and received. Output: [`Patience`], how far one wait has got; [`Looking`], which says when its first look comes.

use crate::kernel::sys;
use crate::transport::first_look::{FirstLook, Timed};
use blizzard_protocol::ids::NodeId;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Miss,
    Barrier,
    Lock,
    /// Allocation, lookup, the end of the other nodes: not counted.
    Other,
}

impl Wait {
    /// How many kinds there are.
    pub const KINDS: usize = Wait::Other as usize + 1;

    /// Whether anybody wants to know how long it takes.
    #[inline]
    pub fn is_counted(self) -> bool {
        self != Wait::Other
    }
}

/// How long a wait has been going on; [`crate::transport::endpoint::Transport::idle`] advances it.
#[derive(Clone, Copy, Default)]
pub struct Patience {
    /// Looks with a pause in between.
    pub(super) looks: u32,
    /// Their number is used up.
    pub(super) is_spun_out: bool,
    /// Looks with a yield, since the last sleep.
    pub(super) yields: u32,
    /// Peers see that this node looks by itself.
    pub(super) is_announced: bool,
    /// Peers that compute have been interrupted.
    #[cfg(feature = "guard")]
    pub(super) has_interrupted: bool,
}

/// What waits of that kind are for, and whether messages of programs come and go: each has a first look of its own.
const KINDS: usize = 2 * Wait::KINDS;

/// When the first look of a wait comes that follows a message of this node.
#[derive(Default)]
pub struct Looking {
    kinds: [FirstLook; KINDS],
    /// The receiver of the last message, if it was sent after the last one came.
    sent: Option<NodeId>,
    /// The wait that is timed: its kind, its pause, and the cycle when it began.
    timed: Option<(usize, Timed, u64)>,
}

impl Looking {
    /// A message was sent.
    #[inline]
    pub fn sent(&mut self, to: NodeId) {
        self.sent = Some(to);
    }

    /// A message came.
    #[inline]
    pub fn received(&mut self) {
        self.sent = None;
        if let Some((kind, timed, since)) = self.timed.take() {
            self.kinds[kind].end(timed, sys::cycles().saturating_sub(since));
        }
    }

    /// The receiver of the message that was sent last, unless one has come since; once.
    #[inline]
    pub fn take_sent(&mut self) -> Option<NodeId> {
        self.sent.take()
    }

    /// A wait begins: how many pauses come first.
    pub fn begin(&mut self, what: Wait, is_talking: bool) -> u8 {
        let kind = 2 * what as usize + usize::from(is_talking);
        let (pauses, timed) = self.kinds[kind].begin();
        self.timed = None;
        if pauses != 0 || timed.is_some() {
            // Whether or not it is wanted: reading the clock is a pause, too, and those that are timed must not be longer than the others.
            let now = sys::cycles();
            self.timed = timed.map(|timed| (kind, timed, now));
        }
        pauses
    }

    /// The wait is not one to learn from.
    #[inline]
    pub fn forget(&mut self) {
        self.timed = None;
    }
}
