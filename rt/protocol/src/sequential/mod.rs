//! Sequential: no copies. A block visits one node at a time, for one access, and is at its home otherwise.
//!
//! A home lends a block to whoever asks first, and queues the others. The borrower's access is executed on the block's only copy, which no other node can use
//! meanwhile. So all accesses to a block happen one after the other, in the order in which its home lends it. The block goes back at the borrower's next entry
//! into the runtime; if somebody waits, the home recalls it, which is such an entry. Nothing is ever invalidated.
//!
//! Two messages with data for each visit, whatever others did. It is the simplest protocol that the engine runs.
//!
//! | at the home | event | then |
//! |---|---|---|
//! | here | Borrow X | lent to X: tag Invalid, Lend to X |
//! | here | the own program misses | granted |
//! | lent to X | Borrow Y, or the own program misses | queued; Recall to X, if it is the first |
//! | lent to X | Return X | here: copy in, tag Writable; then the first of the queue, and Recall if there are more |
//!
//! | elsewhere | event | then |
//! |---|---|---|
//! | nothing | the program misses | Borrow to the home |
//! | asked | Lend | copy in, tag Writable, granted |
//! | borrowed | Recall, or the next entry into the runtime | tag Invalid, Return to the home |
//! | nothing | Recall | nothing: the Return is on its way |
//!
//! While the memory of a system call is acquired, range by range, entries do not give blocks back.

pub mod driver;
