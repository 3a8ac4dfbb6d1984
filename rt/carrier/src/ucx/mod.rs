//! UCX: the network.
//!
//! Input: bytes for a host. Output: bytes from a host, whole and in the order of sending. The library is loaded when a run has several hosts; nothing is linked to it.

pub mod bindings;

pub mod library;

pub mod worker;
