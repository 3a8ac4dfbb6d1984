//! The planted bug of a node, in tests: see [`blizzard_protocol::bugs`].

use crate::memory::region::Context;
use blizzard_contract::instrument;
use blizzard_protocol::bugs::{BUGS, Bug};
use core::sync::atomic::Ordering;

/// The bug that is planted in the node with that context page.
pub fn bug(context: &Context) -> Option<Bug> {
    let number = context.instrument(instrument::PLANTED).load(Ordering::Relaxed);
    (number as usize).checked_sub(1).and_then(|index| BUGS.get(index)).copied()
}
