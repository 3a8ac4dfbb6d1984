//! What debuggers, profilers and the launcher find in rewritten programs and in nodes that died.

pub mod crash;
pub mod debug_info;
pub mod debug_lines;
pub mod debugger;
pub mod perf;
