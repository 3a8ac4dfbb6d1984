//! Plan -> the output file.
//!
//! Input: image, graph, plan, and for a program the runtime. Output: a file: the input's bytes with old code overwritten, and behind them new code, tables, the
//! runtime and headers. **Invariant**: the input's bytes keep their places in the file. What changes of them, changes where it stands: old code, notes, and
//! symbols and words that name functions by new addresses, and where the dynamic section finds its symbols.

pub(crate) mod output;

pub(crate) mod frames;

pub mod runtime_blob;

pub(crate) mod new_code;

pub(crate) mod tables;

pub(crate) mod old_code;

pub(crate) mod symbols;

pub(crate) mod new_addresses;

pub(crate) mod dynamic_symbols;

pub(crate) mod debug;

pub(crate) mod notes;

pub(crate) mod probes;

pub(crate) mod headers;

pub mod file;
