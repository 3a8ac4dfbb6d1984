//! Update: the home stores, and pushes what it has stored to those that have copies, at its next flush.
//!
//! Purpose: data that one node writes and others read, again and again. The writer is the home: its copy stays Writable while others have ReadOnly ones, so a
//! store costs nothing. A flush ([`crate::protocol::seam::Protocol::flush`]: barriers, unlocks and the like of the program) compares each block that has readers
//! with what they have, and pushes the 64-byte parts that differ. So readers do not miss again, and nothing is invalidated. All else is stache: another
//! node that stores takes the block away from everybody, its home included, and gets the home's data, as does whoever stores at the home afterwards.
//!
//! **What is promised.** A load at a node that is not the home gives a value that the home had at its last flush that was over before, or a later one. Loads of
//! one word go forward only. No store is lost, whoever stores: at one time either the home may store, or one other node that has the only copy. Between
//! flushes a store of the home is seen by itself alone, or by others as well (a first load fetches what the home has).
//!
//! **Invariant**: the copies of a block that is shared have, with what is under way to them, the bytes that `pushed` has of it. So a part that differs from these
//! is all there is to push, and a reader that comes later makes the home push what is new to the others first.
//!
//! * [`steps`]: the steps, pure: stache's, but for the home's tag.
//! * [`driver`]: what the copies have, and the flush.

pub mod steps;

pub mod driver;
