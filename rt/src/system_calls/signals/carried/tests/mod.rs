//! Carrying out accesses: the decoder beside another one, and all forms on this processor.

/// All encodings that tell forms apart.
mod specimens;

/// The table and the decoder.
mod decoding;

/// One instruction, from a state.
mod machine;

/// All forms.
mod executing;

/// Strings.
mod strings;

/// Gathers and scatters.
mod lanes;

/// What has no form of its own: refusals, other forms of addresses, code that changes, faults of a slot.
mod special;
