//! The tests of the other modules once more, with the other protocols.

use crate::tests::nodes::common::*;
use crate::tests::nodes::failures::*;

/// Those tests, in a module of their own for each protocol.
macro_rules! under {
    ($($protocol:ident in $module:ident),*: $names:tt) => {
        $(under! { @ $protocol $module $names })*
    };
    (@ $protocol:ident $module:ident { $($name:ident)* }) => {
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

under! { MCM in mcm, HOME in home: {
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
} }

// What has come from another home stays.
under! { MCM in with_copies: {
    a_read_miss_costs_two_messages
    who_allocates_and_frees_small_pieces_asks_nobody
} }
