//! Shared memory as addresses: the region that the nodes of a run have in common, each node's copy of the segment, and who is the home of what.

pub mod partition;

pub mod arena;

pub mod homes;

pub mod segment;

pub mod access_control;

pub mod tags;

pub mod region;

pub mod hosts;
