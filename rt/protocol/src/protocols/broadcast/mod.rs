//! Broadcast: data that are written once, or seldom, and read by many.
//!
//! Purpose: with stache each reader misses after each store, and its miss is a round trip. Here a home remembers who had copies when somebody stored. As soon as
//! the data are shared again, because one of them, or the home, has read, the others get copies too, unasked. So a store and the reads of N readers cost one miss of a reader instead
//! of N. All else is stache, and so is what is promised: sequential consistency.
//!
//! | at the home | then |
//! |---|---|
//! | somebody stores to a shared block | the sharers but the writer are remembered |
//! | Idle or RecallRead becomes Shared | Copy to each that is remembered: it is a sharer from then on |
//! | Exclusive X, WriteBack X (it was checked in, or replaced) | the same, if anybody is remembered: the block becomes Shared |
//!
//! No Copy goes to who has a copy, has just given one back, or has a request waiting at the home.
//!
//! **Invariant**: a home's set of sharers is exact, but for what is under way. Who gives a copy up says so once: as an answer to Invalidate, when the copy is replaced or checked in, or
//! when a Copy found no use. So a Copy is invalidated like any other copy, however late it arrives, and a ReadRequest of a sharer is known to have crossed a Copy, which answers it.
//!
//! * [`steps`]: the steps, pure: what differs from stache's.
//! * [`driver`]: who is remembered, and the copies.

pub mod steps;

pub mod driver;
