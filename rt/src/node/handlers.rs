//! What a node does with each kind of message that belongs to no protocol.
//!
//! Input: a message that [`crate::messages::judge`] believes. Output: a changed state, answers.
//! **Invariant**: a handler never waits: it changes state and sends, and returns.

use crate::messages::kinds::id;
use crate::node::access;
use crate::node::arenas;
use crate::node::node::Node;
use crate::node::user_handlers;
use crate::sync::{collective, group, lock, remote, slots, state};
use crate::transport::message::Message;
use blizzard_protocol::ids::NodeId;

/// Runs the handler of a message.
pub fn run(node: &mut Node, from: NodeId, message: &Message) {
    let (links, sync, arenas) = (&mut node.links, &mut node.sync, &mut node.arenas);
    match message.handler {
        id::COLLECTIVE_ARRIVE | id::VECTOR_ARRIVE => collective::on_arrive(&mut sync.collectives, links, from, message),
        id::COLLECTIVE_DONE | id::VECTOR_DONE => collective::on_done(&mut sync.collectives, links, from, message),
        id::LOCK_ACQUIRE => lock::on_acquire(&mut sync.locks, links, from, message),
        id::LOCK_RELEASE => lock::on_release(&mut sync.locks, links, from, message),
        id::LOCK_TRY => lock::on_try(&mut sync.locks, links, from, message),
        id::PUBLISH => slots::on_publish(&mut sync.slots, links, from, message),
        id::LOOKUP => slots::on_lookup(&mut sync.slots, links, from, message),
        id::ALLOC => arenas::on_alloc(arenas, links, from, message),
        id::FREE => arenas::on_free(arenas, links, from, message),
        id::LIMIT_QUERY => arenas::on_limit_query(arenas, links, from, message),
        id::EXITED => state::on_exited(sync, links, from, message),
        id::BROADCAST_DATA => collective::on_broadcast_data(&mut sync.collectives, links, from, message),
        id::BARRIER_ARRIVE => group::on_barrier_arrive(&mut sync.groups, links, from, message),
        id::EVENT_SET => group::on_event_set(&mut sync.groups, links, from, message),
        id::EVENT_WAIT => group::on_event_wait(&mut sync.groups, links, from, message),
        id::COUNTER_OP => remote::on_counter_op(&mut sync.counters, links, from, message),
        id::REMOTE_WRITE => remote::on_remote_write(links, from, message),
        id::REMOTE_FENCE => remote::on_remote_fence(links, from, message),
        id::SLICES => access::on_slices(node, from, message),
        id::OPERATION => access::on_operation(node, from, message),
        id::BLOCK_PUSHES => access::on_pushes(node, from, message),
        id::HOME_QUERY => access::on_home_query(node, from, message),
        id::LOCK_GRANTED
        | id::LOCK_TRIED
        | id::LOOKED_UP
        | id::ALLOCATED
        | id::FREED
        | id::LIMIT
        | id::BARRIER_DONE
        | id::EVENT_DONE
        | id::COUNTED
        | id::REMOTE_FENCED
        | id::PUBLISHED
        | id::SLICES_KNOWN
        | id::OPERATION_KNOWN
        | id::HOME_IS => node.on_reply(from, message),
        id::USER
        | id::USER_MORE
        | id::BULK_ESTABLISHED
        | id::BULK_RESET
        | id::BULK_SEND
        | id::BULK_DONE
        | id::BULK_ASK
        | id::BULK_STAGED
        | id::BULK_TAKEN => user_handlers::on_message(node, from, message),
        // Nothing that the judge believes, and nothing that this node sends to itself.
        number => node.fail(format_args!("a message of kind {number} has no handler")),
    }
}
