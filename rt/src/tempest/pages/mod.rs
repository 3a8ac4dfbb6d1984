//! User-managed pages (Tempest 1.2.1, sections 3.1 and 3.2).

// The mappings of the segment.
pub mod segment;

// Blocks and their tags.
pub mod blocks;

// Which pages are mapped.
pub mod table;
