//! Exploration of the coherence protocols (`blizzard_protocol`): the step functions that the runtime runs, on a model of the rest.
//!
//! * [`model`]: what a model of nodes, channels and memory must offer; [`stache_model`] and [`mcm_model`] perform the functions' actions as the
//!   runtime must, the second with messages that overtake each other.
//! * [`explore`]: the states of few nodes and blocks with unboundedly many operations: one writer or many readers, no stale
//!   copy, no impossible event, every miss is served. So every load returns what was stored last, and each program's results are sequentially consistent.
//! * [`stache_mutants`], [`mcm_mutants`]: planted errors, each of which the explorations must find.
//! * [`graph`]: questions about the whole graph of states, which stateright's properties of single states and paths cannot ask.

mod explore;
mod graph;
mod mcm_model;
mod mcm_mutants;
mod model;
mod stache_model;
mod stache_mutants;
