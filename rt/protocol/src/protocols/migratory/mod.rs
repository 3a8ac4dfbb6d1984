//! Migratory: data that one node after the other reads and then writes, as under a lock.
//!
//! Purpose: with stache such a turn takes two misses: one fetches a copy, and one takes it from the node before. Here the read miss of a migratory block is
//! answered as a write miss: the block moves, and the store finds it writable. All else is stache, and so is what is promised: sequential consistency.
//! Source: Cox and Fowler, Adaptive Cache Coherency for Detecting Migratory Shared Data, 1993; Stenström, Brorsson and Sandberg, the same year.
//!
//! | at the home | migratory block | other block |
//! |---|---|---|
//! | Read X, the block being Idle or Exclusive | as Write X | as with stache |
//! | LocalLoad, the block being Exclusive | as LocalStore | as with stache |
//! | data come home, and are what they were: the owner has only read | becomes an other block | stays |
//! | a sharer stores to a block whose only other copy is that of the last writer | | becomes migratory |
//!
//! At a node, DataWritable answers a Read as it answers a Write. Each block begins as migratory.
//!
//! **Invariant**: what the home has noted only chooses between two events that stache allows in that state. So a wrong guess costs messages, never a value.

pub mod driver;
