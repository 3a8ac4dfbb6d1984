//!
//! # Where handlers run
//!
//! The specification's protocol thread is the computation thread itself, inside the runtime: in a miss, a poll, a call that waits, or a call of
//! this interface. [`invocation`] runs one handler at a time; [`events`] chooses the next: timers before messages (section 2), while
//! the handler of a fault runs at the fault, before anything that waits. While a handler runs
//! * nothing is received, and its polls do nothing;
//! * it may call the functions of this interface: the node is [lent](crate::process::process::lend) to it;
//! * what must wait (a miss, a lock, a barrier) is an error that names the handler's kind.

// Who may use the interface, and the run's settings.
pub mod owner;

// The program's registers, kept while its handlers run.
pub mod saved_state;

// Exceptions of handlers end there.
pub mod exceptions;

// Calls of handlers.
pub mod invocation;

// Sections 3.1 and 3.2.
pub mod pages;

// Section 3.3.
pub mod messages;

// Section 3.4.
pub mod bulk;

// Section 3.5.
pub mod timers;

// Which handler is next, and waiting for it.
pub mod events;

// Sections 3.1.4 and 3.2.7.
pub mod faults;

// Section 3.6.
pub mod threads;

// The start.
pub mod interface;

// The functions by name.
pub mod api;
