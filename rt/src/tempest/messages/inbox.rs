//! The queue of words in which arrived messages wait for their handlers.
//!
//! Purpose: messages of any length, one behind the other, without an allocation for each. Input and output: words.
//! **Invariants**: a message is taken off as a whole, so offsets counted from the front stay right while it is the front one, even when
//! others are appended; grows by doubling, out of the runtime's own memory.

use crate::kernel::own_memory::KernelTable;
use crate::kernel::sys;

/// A growing first-in first-out queue of words.
pub struct Inbox {
    words: Option<KernelTable<u32>>,
    capacity: u64,
    head: u64,
    len: u64,
}

impl Inbox {
    pub const fn new() -> Inbox {
        Inbox { words: None, capacity: 0, head: 0, len: 0 }
    }

    pub const fn len(&self) -> u64 {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends both; fails only when the kernel has no memory, and then nothing is changed.
    pub fn push(&mut self, header: &[u32], body: impl ExactSizeIterator<Item = u32>) -> sys::Result<()> {
        self.reserve((header.len() + body.len()) as u64)?;
        let mask = self.capacity.wrapping_sub(1);
        if let Some(table) = &mut self.words {
            for word in header.iter().copied().chain(body) {
                table.set((self.head + self.len) & mask, word);
                self.len += 1;
            }
        }
        Ok(())
    }

    fn reserve(&mut self, more: u64) -> sys::Result<()> {
        if self.len + more <= self.capacity {
            return Ok(());
        }
        let capacity = (self.len + more).next_power_of_two().max(4096);
        let mut bigger = KernelTable::new(capacity)?;
        for at in 0..self.len {
            bigger.set(at, self.get(at));
        }
        (self.words, self.capacity, self.head) = (Some(bigger), capacity, 0);
        Ok(())
    }

    /// The word `at` places behind the front; 0 behind the end.
    pub fn get(&self, at: u64) -> u32 {
        match &self.words {
            Some(table) if at < self.len => table.get((self.head + at) & (self.capacity - 1)),
            _ => 0,
        }
    }

    /// Takes words off the front.
    pub fn drop_front(&mut self, words: u64) {
        let words = words.min(self.len);
        self.len -= words;
        // An empty queue begins again where the processor's cache has it.
        self.head = if self.len == 0 { 0 } else { self.head + words };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_order_while_the_queue_wraps_and_grows() {
        let mut inbox = Inbox::new();
        let (mut next_in, mut next_out) = (0u32, 0u32);
        for round in 0..2000u32 {
            let some: Vec<u32> = (0..round % 97).map(|n| next_in + n).collect();
            next_in += some.len() as u32;
            let (header, body) = some.split_at(some.len() / 2);
            inbox.push(header, body.iter().copied()).unwrap();
            // More comes in than goes out, then the other way round.
            let out = if round < 1000 { round % 80 } else { (round % 150).min(inbox.len() as u32) };
            let out = out.min(inbox.len() as u32);
            for n in 0..out {
                assert_eq!(inbox.get(u64::from(n)), next_out + n);
            }
            inbox.drop_front(out.into());
            next_out += out;
            assert_eq!(inbox.len(), u64::from(next_in - next_out));
        }
        assert_eq!(inbox.get(inbox.len()), 0);
    }
}
