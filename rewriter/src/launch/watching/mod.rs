//! Watching the nodes until all have ended: what they wait for, what code they are in, how they end.

pub(crate) mod plain_again;

pub mod stuck;

pub(crate) mod supervise;
