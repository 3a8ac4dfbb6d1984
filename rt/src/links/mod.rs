//! What a node is connected with, and what it says of itself.
//!
//! Everything here may be used by a handler of messages: nothing waits.

// Random delays and times, for tests and measurements.
pub mod instruments;

// The bugs that tests plant.
pub mod bugs;

// The launcher looks at a node before it is gone.
pub mod last_words;

// How a node ends the run.
pub mod ending;

// Which nodes there are.
pub mod members;

// What is wrong with a node that does not answer.
pub mod silence;

// Many blocks in one message.
pub mod pushes;

// The segment, the homes and the peers.
pub mod links;

// Time spent waiting.
pub mod wait_clock;
