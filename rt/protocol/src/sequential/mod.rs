//! Sequential: no copies. A block is at one node at a time.
//!
//! A home lends a block to whoever asks first, and queues the others. The borrower keeps it until the home calls it back, which it does when somebody else wants it.
//! So all accesses to a block happen one after the other, in the order in which its home lends it. Nothing is ever invalidated, and a reader takes the block
//! from other readers.
//!
//! Each visit costs two messages with data, whatever the access. It is the simplest protocol that the engine runs.
//!
//! | at the home | event | then |
//! |---|---|---|
//! | here | Borrow X | lent to X: tag Invalid, Lend to X |
//! | here, pinned | Borrow X | queued until the next entry |
//! | here | the own program misses | granted |
//! | lent to X | Borrow Y, or the own program misses | queued; Recall to X, if it is the first |
//! | lent to X | Return X | here: copy in, tag Writable; then the first of the queue, and Recall if there are more |
//!
//! | elsewhere | event | then |
//! |---|---|---|
//! | nothing | the program misses | Borrow to the home |
//! | asked | Lend | copy in, tag Writable, granted |
//! | here | Recall, or it is given back unasked (replacement, `bz_check_in`) | tag Invalid, Return to the home |
//! | nothing | Recall | nothing: the Return is on its way |

pub mod driver;
