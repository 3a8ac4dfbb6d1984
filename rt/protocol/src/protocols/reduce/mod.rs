//! Reduce: many nodes add to it between two barriers, and read the result behind the second one.
//!
//! Purpose: sums, minima, maxima and bitwise ors that all nodes contribute to, without a lock and without a block that goes from node to node. A *round* is what
//! lies between two barriers of all nodes. In a round a node that has said so adds into copies of its own, which begin as what changes nothing
//! ([`Operation::neutral`](crate::operation::Operation::neutral)). At the barrier it sends them to their homes, which combine them.
//!
//! | at another node than the home | the block is | |
//! |---|---|---|
//! | load | Invalid | Fetch; the Copy is ReadOnly until the next barrier |
//! | begin to add (`bz_check_out` to store) | Invalid, ReadOnly | open for this round, Invalid. No message |
//! | load or store | open, Invalid | becomes neutral and Writable. No message |
//! | store | not open | against the rules: the run ends |
//! | barrier begins, page is replaced | Writable | Add with the data, unless nothing was added; Invalid |
//! | barrier begins, page is replaced | ReadOnly | Invalid |
//!
//! At the home the block is Writable for ever; what it stores is in place.
//!
//! | at the home | |
//! |---|---|
//! | Add X | is kept, with its round |
//! | its barrier is over | what the round has brought is combined with the own copy, in order of the nodes' numbers |
//! | Fetch X | if X has left the barrier in which this node still waits, the same first; then Copy |
//!
//! **What is promised.** Let v be the home's value of an element when it enters a barrier, and c(X) what node X has added to it in the round. Behind the barrier it
//! is v, then combined with each c(X) from the left, in order of the numbers X. So integers are exact, and floats are the same bits in each run with as many nodes and the same
//! homes. (Where pages are replaced, c(X) itself is combined of pieces, at places that depend on what else is used.) A load at the home gives its copy. A load elsewhere gives, once the node has begun to add, what it has added itself; else the value as of
//! the last barrier, or with what the home has stored since.
//!
//! **Why two kinds of Fetch and Add do for all rounds.** While a node is in round r (it has left r barriers), all others are in r - 1, waiting in the barrier that ends
//! it, in r, or wait in the barrier that ends r. So a home can have messages of two successive rounds, and the parity tells which.
//!
//! **Invariant**: a home's copy changes by what others add only while its own program waits in a barrier. So its program may load, compute and store.
//!
//! * [`driver`]: the state on one node, and its steps.

pub mod driver;
