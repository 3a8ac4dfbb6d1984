//! The planted bug of a node, in tests: see [`blizzard_protocol::bugs`].
//!
//! Input: a word of the context page. Output: a bug, or none; none at all in the runtime that programs get.

#[cfg(any(feature = "planted", test))]
use crate::memory::region::ContextPage;
#[cfg(any(feature = "planted", test))]
use blizzard_contract::instrument;
#[cfg(any(feature = "planted", test))]
use blizzard_protocol::bugs::Bug;
#[cfg(any(feature = "planted", test))]
use core::sync::atomic::Ordering;

#[cfg(any(feature = "planted", test))]
/// The bug that is planted in the node with that context page.
pub fn bug(context: &ContextPage) -> Option<Bug> {
    let number = context.instrument(instrument::PLANTED).load(Ordering::Relaxed);
    (number as usize).checked_sub(1).and_then(|index| Bug::ALL.get(index)).copied()
}

/// Whether that bug is planted. Never in a runtime that Blizzard embeds.
macro_rules! has_bug {
    ($node:expr, $bug:ident) => {{
        #[cfg(any(feature = "planted", test))]
        let has = $crate::links::bugs::bug(&$node.context) == Some(blizzard_protocol::bugs::Bug::$bug);
        #[cfg(not(any(feature = "planted", test)))]
        let has = {
            let _ = &$node;
            false
        };
        has
    }};
}
pub(crate) use has_bug;
