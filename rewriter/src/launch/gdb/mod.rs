//! A debugger that is connected to gdbserver: a line that no other host reaches, and what is changed of what the debugger says on it.
//!
//! Input: a port, a debugger's packets. Output: gdbserver's.

pub(crate) mod packets;

pub(crate) mod line;
