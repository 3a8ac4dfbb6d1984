//! Home: no copies. A block stays at its home, which lends it to one node at a time.
//!
//! Purpose: data that many nodes use by turns, a little each time: a counter, the head of a queue, a word that a lock protects. A home lends a block to whoever asks first, and
//! queues the others. A borrower gives back at its next entry into the runtime, of which its own doorbell reminds it, what others have wanted: unasked, so that the next one
//! need not wait until it has been called back, and so that the home finds it at home. It keeps what nobody else has wanted since it was lent eight times to the same
//! node, or ever, until there is a Recall. All accesses to a block happen one after the other, in the order in which its home lends it. Nothing is ever invalidated.
//!
//! Each visit costs three messages, two of them with data, whatever the access, and one more when somebody asks before the block is back. It is the simplest protocol that the engine
//! runs. The home does not see its own program's accesses to what is at home: each ninth visit of one node that shares a word with the home ends with a Recall.
//!
//! | at the home | event | then |
//! |---|---|---|
//! | here | Borrow X | lent to X: tag Invalid, Lend to X; or Leave, if nobody else has wanted it for 8 visits, or ever |
//! | here, pinned | Borrow X | queued until the next entry |
//! | here | the own program misses | granted |
//! | lent to X | Borrow Y, or the own program misses | queued; Recall to X, if it is the first |
//! | lent to X | Return X | here: copy in, tag Writable; then the first of the queue, and Recall if there are more |
//!
//! | elsewhere | event | then |
//! |---|---|---|
//! | nothing | the program misses | Borrow to the home |
//! | asked | Lend, Leave | copy in, tag Writable, granted |
//! | here, by a Lend | the next entry into the runtime | tag Invalid, Return to the home |
//! | here | Recall, replacement, `bz_check_in` | tag Invalid, Return to the home |
//! | here, for a system call | the next entry | stays until there is a Recall |
//! | nothing | Recall | nothing: the Return is on its way |
//!
//! Recall is for those who do not come back soon: a system call, or code that does not poll.

pub mod driver;
