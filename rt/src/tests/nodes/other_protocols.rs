//! The tests of the other modules once more, with the other protocols.

use crate::tests::nodes::common::*;
use crate::tests::nodes::failures::*;

/// Those tests, in a module of their own, with that protocol.
macro_rules! under {
    ($protocol:ident in $module:ident: $($name:ident)*) => {
        mod $module {
            $(#[test]
            fn $name() {
                use crate::tests::nodes::other_protocols as all;
                all::PROTOCOL.set(all::$protocol);
                all::$name();
            })*
        }
    };
}

under! { MCM in mcm:
    a_store_on_one_node_is_loaded_on_the_others
    sixty_four_nodes_share_a_block
    fetch_add_loses_nothing_under_false_sharing
    straddling_accesses_get_both_blocks_at_once
    gathers_get_all_lanes_at_once
    store_buffering_and_message_passing_are_sequentially_consistent
    locks_exclude_and_queue
    reductions_give_every_node_the_same_bits
    memory_is_freed_elsewhere_and_comes_back_zeroed
    an_exhausted_segment_gives_null
    a_home_uses_its_own_memory_without_messages
    a_read_miss_costs_two_messages
    tiny_rings_overflow_without_blocking_anybody
    masked_accesses_may_reach_beyond_what_was_allocated
    random_traffic_with_unique_values_stays_coherent
    misuse_ends_the_run_with_one_clear_error
    waits_for_a_node_that_has_exited_are_found
    a_node_that_has_exited_still_serves_its_blocks
    hostile_messages_are_counted_and_dropped
}

under! { SEQUENTIAL in sequential:
    a_store_on_one_node_is_loaded_on_the_others
    sixty_four_nodes_share_a_block
    fetch_add_loses_nothing_under_false_sharing
    straddling_accesses_get_both_blocks_at_once
    gathers_get_all_lanes_at_once
    store_buffering_and_message_passing_are_sequentially_consistent
    locks_exclude_and_queue
    reductions_give_every_node_the_same_bits
    memory_is_freed_elsewhere_and_comes_back_zeroed
    an_exhausted_segment_gives_null
    a_home_uses_its_own_memory_without_messages
    tiny_rings_overflow_without_blocking_anybody
    masked_accesses_may_reach_beyond_what_was_allocated
    random_traffic_with_unique_values_stays_coherent
    misuse_ends_the_run_with_one_clear_error
    waits_for_a_node_that_has_exited_are_found
    a_node_that_has_exited_still_serves_its_blocks
    hostile_messages_are_counted_and_dropped
}

/// Again, with messages about blocks that overtake each other, as this protocol promises to bear.
mod overtaking {
    use crate::memory::homes::PAGE_BYTES;
    use crate::tests::nodes::common::*;
    use crate::tests::nodes::prelude::*;

    macro_rules! overtaking {
        ($($name:ident)*) => {
            $(#[test]
            fn $name() {
                PROTOCOL.set(MCM);
                SHUFFLE.set(true);
                crate::tests::nodes::other_protocols::$name();
            })*
        };
    }

    overtaking! {
        a_store_on_one_node_is_loaded_on_the_others
        fetch_add_loses_nothing_under_false_sharing
        straddling_accesses_get_both_blocks_at_once
        gathers_get_all_lanes_at_once
        store_buffering_and_message_passing_are_sequentially_consistent
        locks_exclude_and_queue
        memory_is_freed_elsewhere_and_comes_back_zeroed
        tiny_rings_overflow_without_blocking_anybody
        random_traffic_with_unique_values_stays_coherent
        a_node_that_has_exited_still_serves_its_blocks
    }

    /// The tests above test what they say.
    #[test]
    fn messages_do_overtake_each_other() {
        PROTOCOL.set(MCM);
        SHUFFLE.set(true);
        let (mut overtaken, mut rejected) = (0, 0);
        // On a busy machine the nodes run one after the other, and then there is little to overtake.
        for _ in 0..20 {
            if overtaken > 50 {
                break;
            }
            let endings = run_with(4, 2, 128, |program| {
                let words = program.shared(PAGE_BYTES);
                for round in 0..2000 {
                    program.call(|node| node.prefetch(words, 256, round % 3 == 0));
                    program.call(|node| node.fetch_add(words + 64 * (round % 4), 1));
                    program.back_edge();
                }
                program.barrier();
                assert_eq!((0..4).map(|at| program.load(words + 64 * at)).sum::<u64>(), 8000);
                let rejected = program.node.context.counter(Counter::MessagesRejected);
                (program.node.bag.as_ref().unwrap().overtaken(), rejected)
            });
            for ending in endings {
                let (more, dropped) = ending.result.unwrap();
                overtaken += more;
                rejected += dropped;
            }
        }
        assert!(overtaken > 50 && rejected == 0, "{overtaken} {rejected}");
    }
}
