//! A run on several hosts.
//!
//! Input: a rewritten program with its libraries, hosts, [`LaunchOptions`](crate::launch::options::LaunchOptions). Output: an [`Outcome`](crate::launch::launcher::RunOutcome).
//!
//! ```text
//! launcher --- ssh a blizzard agent --- agent of a --- nodes of a
//!    |                                     | UCX: messages of nodes
//!    +-------- ssh b blizzard agent --- agent of b --- nodes of b
//! ```
//!
//! Launcher and agents speak [`frames`] over the standard input and output of what starts the agent. So a secret or a program never stands on a command line, and whoever
//! goes away is noticed by the end of a pipe. Messages of nodes go from agent to agent (`blizzard_carrier`).
//! Nodes that `mpirun` starts have no launcher and no agent: see [`ranks`].
//! **Invariants**: an agent ends all that it has started when the launcher has gone; a host that fails ends the run, and is named.

pub mod host_list;

pub mod bundle;

pub mod frames;

pub(crate) mod mailbox;

pub(crate) mod credit;

pub(crate) mod rounds;

pub(crate) mod peers_watch;

pub mod agent;

pub(crate) mod streams;

pub mod launcher;

pub mod ranks;
