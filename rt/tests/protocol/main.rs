//! Exploration of the Stache protocol (`blizzard_rt::protocol`): the step functions that the runtime runs, on a model of the rest.
//!
//! * [`model`]: nodes, channels and memory; performs the functions' actions as the runtime must.
//! * [`explore`]: all states of few nodes and blocks with unboundedly many operations: one writer or many readers, no stale
//!   copy, no impossible event, every miss is served.
//! * [`consistency`]: all interleavings of short programs: only sequentially consistent results, and all of them.
//! * [`mutants`]: planted errors, each of which the explorations must find.
//! * [`straddle`]: accesses that need two blocks at once.
//! * [`random`]: long runs of more nodes and blocks, false sharing and straddling accesses included.

mod consistency;
mod explore;
mod graph;
mod model;
mod mutants;
mod random;
mod straddle;
