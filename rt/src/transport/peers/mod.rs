//! What a node that waits knows of its peers: whether they live, whether they run, and where.

// Who has not answered for too long.
pub mod watch;

// Whether those run whom it may be waiting for.
pub mod company;

// Nodes keep to processors of their own.
pub mod placement;
