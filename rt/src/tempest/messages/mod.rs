//! Fine-grain messages of the program (Tempest 1.2.1, section 3.3).

// Words that wait.
pub mod inbox;

// Names of handlers.
pub mod names;

// Messages that have arrived.
pub mod arrived;

// Messages that are sent.
pub mod sending;
