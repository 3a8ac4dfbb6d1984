//! Messages of Blizzard's nodes between hosts.
//!
//! Each host of a run has a region of its own, with the layout of the whole run, and an agent. The agent starts the host's own nodes in the region, and stands in
//! for all others there: it takes what a node sends to one of them out of the ring, sends it to the agent of that node's host, and that one puts it into the ring
//! of the same pair in its region, as if the sender were there. So nodes notice nothing but time.
//!
//! ```text
//! node 0 --ring 0,1--> [stand-in of 1]  host a          host b  [stand-in of 0] --ring 0,1--> node 1
//!                            |                                        |
//!                         carrier ------- batches over UCX -------> carrier
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`batch`] | what travels between two hosts, and what of it is believed |
//! | [`window`] | how many messages of a pair may be under way |
//! | [`ucx`] | the network |
//! | [`job`] | how ranks that something else has started find each other |
//! | [`bells`] | being woken by nodes and by the agent |
//! | [`carrier`] | the thread that carries |
//!
//! Some messages tell of bytes in their sender's staging area. These go with them, from the area in one host's region to the same place in the other's.
//!
//! **Invariants**: messages of a pair keep their order; a full ring holds back its pair only; what another host sends is compared with what it may send.
#![deny(unsafe_code)]

pub mod batch;

pub mod window;

#[allow(unsafe_code)]
pub mod ucx;

#[allow(unsafe_code)]
pub mod job;

pub mod bells;

#[allow(unsafe_code)]
pub mod carrier;
