//! Several nodes in one process, a thread each.

mod ahead;
mod blocks;
mod common;
mod failures;
mod migratory;
mod other_protocols;
mod prelude;
mod replace;
mod sync;
mod transports;
