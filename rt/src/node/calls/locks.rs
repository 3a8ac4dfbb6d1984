//! Locks: the calls of the program, which wait. [`crate::sync::lock`] has the home's part.
//!
//! Input: a handle. Output: when the lock is held; `unlock` flushes before it lets go.

use crate::messages::kinds::id;
use crate::node::node::Node;
use crate::sync::handle::HandleKind;
use crate::transport::message::Message;
use crate::transport::patience::Wait;
use blizzard_contract::Counter;

impl Node {
    /// A new, free lock that this node manages.
    pub fn lock_new(&mut self) -> u64 {
        let index = self.sync.locks.make();
        self.new_handle("bz_lock_new", HandleKind::Lock, index)
    }

    /// Waits until this node holds the lock.
    pub fn lock(&mut self, value: u64) {
        let handle = self.object_handle("bz_lock", HandleKind::Lock, value);
        self.count(Counter::LockAcquires);
        let key = handle.index;
        let acquire = Message { handler: id::LOCK_ACQUIRE, args: [handle.index, 0, 0], key, ..Message::default() };
        self.ask(handle.home, acquire, id::LOCK_GRANTED, Wait::Lock);
        self.context.note_lock(handle.home, handle.index, true);
    }

    /// Takes the lock if it is free.
    pub fn trylock(&mut self, value: u64) -> bool {
        let handle = self.object_handle("bz_trylock", HandleKind::Lock, value);
        let key = self.fresh_key();
        let attempt = Message { handler: id::LOCK_TRY, args: [handle.index, 0, 0], key, ..Message::default() };
        let got = self.ask(handle.home, attempt, id::LOCK_TRIED, Wait::Lock).args[0] != 0;
        if got {
            self.context.note_lock(handle.home, handle.index, true);
            self.count(Counter::LockAcquires);
        }
        got
    }

    /// Releases the lock; waits for a flush at most.
    pub fn unlock(&mut self, value: u64) {
        let handle = self.object_handle("bz_unlock", HandleKind::Lock, value);
        self.flush();
        self.context.note_lock(handle.home, handle.index, false);
        let release = Message { handler: id::LOCK_RELEASE, args: [handle.index, 0, 0], ..Message::default() };
        self.send(handle.home, release);
    }
}
