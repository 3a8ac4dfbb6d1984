//! What the runtime has of the kernel: system calls, headers of ELF files, error lines, memory of its own, limits. Nothing here knows of nodes.

pub mod sys;

pub mod elf;

pub mod ucontext;

pub mod print;

pub mod entry;

#[cfg(test)]
pub mod explored;

pub mod owned;

pub mod later;

pub mod limits;

pub mod near;

pub mod own_memory;

pub mod unaliased;

pub mod xsave;

#[cfg(any(feature = "freestanding", test))]
pub mod mem;
