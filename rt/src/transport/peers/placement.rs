//! Nodes keep to processors of their own.
//!
//! Purpose: two nodes that answer each other in turn are never both busy, so the kernel is content to have both on one processor, and brings the woken one to its waker.
//! Each miss is a switch of processes then. So a node whose spin was in vain shows where it runs, and goes elsewhere if a peer was seen there. Input: the processors of
//! the peers. Output: a move. Afterwards the kernel may put the node where it likes, as before.
//!
//! **Invariant**: the set of processors that the program may use is what it was.

use crate::kernel::sys::{self, PROCESSOR_WORDS};

/// Those of `allowed` on which no peer was seen; `None` if there is none. The peers' processors are counted from 1, and 0 is unknown.
fn free_of(allowed: [u64; PROCESSOR_WORDS], peers: impl Iterator<Item = u32>) -> Option<[u64; PROCESSOR_WORDS]> {
    let mut free = allowed;
    for processor in peers.filter_map(|processor| processor.checked_sub(1)) {
        if let Some(word) = free.get_mut(processor as usize / 64) {
            *word &= !(1 << (processor % 64));
        }
    }
    free.iter().any(|&word| word != 0).then_some(free)
}

/// Moves the calling thread to a processor on which no peer was seen; false if it may use none.
pub fn leave(peers: impl Iterator<Item = u32>) -> bool {
    let Some(allowed) = sys::allowed_processors() else { return false };
    let Some(free) = free_of(allowed, peers) else { return false };
    sys::allow_processors(&free);
    sys::allow_processors(&allowed);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_peers_are_no_node_goes() {
        let mut allowed = [0; PROCESSOR_WORDS];
        (allowed[0], allowed[1]) = (0b1111, 0b1);
        let mut expected = allowed;
        (expected[0], expected[1]) = (0b1001, 0);
        assert_eq!(free_of(allowed, [2, 3, 0, 65, 5000].into_iter()), Some(expected));
        assert_eq!(free_of(allowed, [1, 2, 3, 4, 65].into_iter()), None);
    }

    #[test]
    fn a_move_leaves_the_set_as_it_was() {
        let allowed = sys::allowed_processors().unwrap();
        if allowed.iter().map(|word| word.count_ones()).sum::<u32>() > 1 {
            let here = sys::processor().unwrap();
            assert!(leave([here + 1].into_iter()));
        }
        assert_eq!(sys::allowed_processors(), Some(allowed));
        assert!(!leave((0..=1024).map(|processor| processor + 1)));
    }
}
