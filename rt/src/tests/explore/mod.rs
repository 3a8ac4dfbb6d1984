//! All orders in which a few real nodes can receive messages.
//!
//! Purpose: the models of `rt/protocol/tests/steps` run the protocols' step functions; here the [`Node`](crate::node::node::Node) itself runs, with its drivers, rings, tables and
//! allocators, and only the order is chosen: who runs next, and whose message it takes. So it covers what lives in the drivers: replacement, requests
//! ahead, homes by first touch, blocks in parts, bulk transfers, nodes that are created, memory of system calls.
//! Input: a [`Model`]: how many nodes, what they have allocated, and a script of few [`Op`]s each. Output: a [`Report`], or what was [`Found`].
//!
//! # How it works
//!
//! Each node runs on a [fiber](crate::transport::delaying::fiber). Wherever it looks for a message ([`at_receive`](crate::kernel::explored::at_receive)) it pauses, and the search chooses: one of the peers whose message is there, or,
//! where the node does not wait, none. A node's state cannot be copied, so the search goes back by starting again and repeating the choices (stateless
//! search). A state is named by the choices that each node has made (a node does the same when it gets the same messages, and channels keep the order), and by the
//! values of the variables. Choices of different nodes that do not influence each other thus lead to the same state, which is explored once.
//!
//! # What is looked for
//!
//! After each step: no node has failed or rejected a message; who may load from a variable finds the latest value; nobody may do so beside one who may
//! store; the kernel uses no memory that its node has not got. At each end: nobody waits, and nothing is left to do.
//! Source: Godefroid, Model Checking for Programming Languages using VeriSoft, 1997.
//!
//! **Invariants**: nothing that an explored node does depends on time or on addresses of this process: where time counts, the search chooses
//! ([`has_time_passed`](crate::transport::stage::has_time_passed)). What a node reads of memory that others write, besides its rings, is added to its history ([`note`](crate::transport::stage::note)).

mod models;
mod search;
mod tests;
mod world;
