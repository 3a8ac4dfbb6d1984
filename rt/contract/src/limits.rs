//! How many there may be at most of what is counted: nodes, protocols, block sizes, arenas.
//!
//! Purpose: layouts whose size depends on such a number name it from here. **Invariant**: what a run really has, its header says
//! ([`RegionHeader`](crate::RegionHeader)).

use crate::addresses::{BLOCK_BYTES, BLOCK_MAX_BYTES};

/// Most nodes of one run.
pub const MAX_NODES: usize = 1024;
/// Most nodes of a run whose programs have the usual runtime: their sets are one word. With more it takes the runtime for [`MAX_NODES`].
pub const FEW_NODES: usize = 64;
/// Block sizes that there are.
pub const BLOCK_SIZES: usize = (BLOCK_MAX_BYTES / BLOCK_BYTES).ilog2() as usize + 1;
/// Most arenas of the lower half of the segment: for each protocol round-robin homes, then first touch, by block size.
pub const LOWER_ARENAS: usize = 2 * BLOCK_SIZES * MAX_PROTOCOLS;
/// Most coherence protocols of a runtime.
pub const MAX_PROTOCOLS: usize = 8;
