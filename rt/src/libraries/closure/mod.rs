//! The program's rewritten libraries: where they are, and how missing ones are made.
//!
//! Purpose: the dynamic loader opens original files; the runtime gives it the rewritten ones instead. Input: what the rewriter left
//! at `ModuleInfo::closure_va` (see `closure_strings`) and a descriptor of an original. Output: a descriptor of the rewritten file.
//! An original is known by device, inode, size and time of change, so that nothing has to be read; the entry of that name in the
//! cache's folder is a link to the rewritten file. What has no entry is rewritten at that moment, by a process of its own. A process that
//! cannot write to the cache has a second one, of its user's own ([`own_cache`]); one that is about to give up its rights keeps what it will need
//! ([`redirect::keep`]).
//! **Invariant**: when the closure is active, a library that cannot be had rewritten is not opened at all, and one line says why.
//! Source: design sections 2 (closure) and 3.2; ELF gABI chapter 5.

// Paths and descriptors.
pub mod paths;

// Where rewritten libraries come from.
pub mod source;

// What a file is.
pub mod file_kind;

// The process that rewrites one.
pub mod rewriting;

// A user's own cache.
pub mod own_cache;

// What glibc opens by itself.
pub mod opened_by_libc;

// Entries of the caches.
pub mod entries;

// The rewritten form in place of the original.
pub mod redirect;
