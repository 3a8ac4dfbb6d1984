//! Stache: invalidation with a directory at each block's home.
//!
//! Source: Reinhardt 1996, section 2.3 (Stache); Tempest 1.2.1, sections 2 and 3.2 (tags, order of data and tag changes).
//!
//! * [`steps`]: the two step functions, and their full state/event tables. They are pure.
//! * [`vocabulary`]: their messages, events, states and actions.
//! * [`directory`]: what a home knows about each block, eight bytes of it at first.
//! * [`defer`]: the queue of requests that found their block busy.
//! * `driver`: the protocol's state on a node. It performs the actions of the steps.
//!
//! # Rules for who calls the steps
//!
//! *State.* The home of a block keeps a [`DirState`](directory::DirState) for it ([`DirState::Idle`](directory::DirState::Idle) is the right start: no remote copies) and its own
//! copy, whose tag starts Writable. Every other node keeps a tag, which starts Invalid, and while a miss is outstanding the
//! [`CacheState`](vocabulary::CacheState) it is in; without an outstanding miss [`from_tag`](vocabulary::CacheState::from_tag) gives the state. A node never calls
//! `cache_step` for a block it is the home of.
//!
//! *Misses.* The runtime looks at the tag first, because a check may fail spuriously (straddles). If the access is not allowed,
//! it steps [`Load`](vocabulary::CacheEvent::Load) or [`Store`](vocabulary::CacheEvent::Store) (an upgrade is a store to a ReadOnly copy: the function sees it by
//! the state), at the home [`LocalLoad`](vocabulary::HomeEvent::LocalLoad) or [`LocalStore`](vocabulary::HomeEvent::LocalStore). It then handles messages until
//! `Resume` for that block has been performed. One miss per node and block at a time. No eviction
//! of a block with an outstanding miss.
//!
//! *Actions* are performed in list order:
//! * `CopyIn`: write the 64 bytes of the message being handled into the own copy.
//! * `SetTag`: data is always copied in before a tag is raised, and a tag is always lowered before data is sent.
//! * `Send`, `SendHome`, `Invalidate`: send; when [`carries_data`](vocabulary::Msg::carries_data), with the bytes of
//!   the own copy as they are now.
//! * `Defer`: put the event at the end of the [`defer::Deferred`] queue. Nothing else was done.
//! * `Resume`: the outstanding miss of this node is served.
//! * `Replay`: the block is no longer busy; step its deferred events, oldest first, until it is busy again.
//!
//! *Resume comes before everything else.* After `Resume` the access must be performed before another event of that block is
//! stepped, `Replay` included: return from the miss gate at once, and replay at the next gate entry. Otherwise an answered
//! node can lose the block again before it has used it, without end. At the home this leaves a moment in which a block is
//! not busy while events wait in the queue; so a request for a block that has waiting events goes behind them, unstepped.
//!
//! *Accesses to several blocks* (straddles, gathers, save areas) need all of them at once: acquire them in ascending order, and
//! hold those acquired while waiting for the next: set messages about them aside, in order, and at their home replay nothing of
//! them. All nodes acquire in the same order, so they cannot wait in a circle; without holding, two nodes could take the
//! blocks from each other without end.
//!
//! *Channels* are reliable, and deliver the messages about one block from one node to another in the order of sending;
//! every argument in [`steps`] about crossing messages rests on that. A send buffer must keep the order.
//!
//! *Handlers* run only inside misses, polls and runtime calls of the computation thread, so that nothing changes a tag between a
//! check and its access; with that, program order on each node gives sequential consistency.
//!
//! *Freeing a block:* an ordinary store miss at the home ([`LocalStore`](vocabulary::HomeEvent::LocalStore)) brings it back with no other copy left.
//!
//! A [`Violation`](vocabulary::Violation) means that memory of the protocol or a message is corrupt: report it and end the run.

pub mod directory;

pub mod vocabulary;

pub mod defer;

pub mod steps;

pub mod driver;

#[cfg(feature = "planted")]
mod planted;

#[cfg(test)]
mod tests;
