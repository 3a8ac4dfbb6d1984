//! Several nodes in one process, a thread each.

mod ahead;
mod blocks;
mod broadcast;
mod common;
mod failures;
mod home;
mod hosts;
mod migratory;
mod other_protocols;
mod prelude;
mod reduce;
mod replace;
mod sync;
mod transports;
