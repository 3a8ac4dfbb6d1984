//! Shared memory as addresses: the region that the nodes of a run have in common, each node's copy of the segment, and who is the home of what.

pub mod arena;

pub mod partition;

pub mod homes;

pub mod tags;

pub mod segment;

pub mod region;
