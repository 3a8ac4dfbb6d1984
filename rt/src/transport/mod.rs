//! Messages between the nodes of a run, and waiting for them.
//!
//! Purpose: [`endpoint::Transport`] is one node's end of everything between it and the others. It sends without ever blocking, receives, and waits for the
//! next message without wasting a processor that somebody else needs. What it needs of a way to send is the [`interface`]; each way is a folder of its own and a line in
//! [`wires`]. Source: design section 6; Reinhardt 1996, 2.2.1 (a handler must be able to send); the interface `uct` of UCX.
//!
//! | module | what |
//! |---|---|
//! | [`message`] | what travels |
//! | [`interface`] | what the runtime needs of a transport |
//! | [`control`] | who takes part in the run, how it ends: apart from the messages |
//! | [`stage`] | in tests: who decides which node goes on |
//! | [`rings`] | the transport of a run on one machine: rings in shared memory |
//! | `delaying` | the transport of tests: from a seed it delays, reorders between pairs, and drops to order |
//! | [`wires`] | the list of transports |
//! | [`settings`], [`first_look`], [`patience`] | how long a node spins, yields and sleeps; when it looks first |
//! | [`peers`] | what a node that waits knows of its peers: whether they live, whether they run, and where |
//! | [`endpoint`] | sending and receiving; queues for what a transport does not take now |
//! | [`waiting`] | waiting |

pub mod message;

pub mod interface;

pub mod control;

pub mod stage;

pub mod rings;

#[cfg(test)]
pub mod delaying;

pub mod wires;

pub mod settings;

pub mod first_look;

pub mod patience;

pub mod peers;

pub mod endpoint;

pub mod waiting;
