//! What a protocol is: the seam between it and the engine.
//!
//! | file | what |
//! |---|---|
//! | [`pins`] | the blocks of the access in progress |
//! | [`parts`] | data of blocks larger than a message |
//! | [`messages`] | the rows of a protocol's messages, and one that has arrived |
//! | `env` | what the engine offers a protocol |
//! | [`seam`] | what the engine asks of a protocol |

pub mod pins;

pub mod parts;

pub mod messages;

pub mod env;

pub mod seam;
