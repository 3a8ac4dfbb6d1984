//! What other threads tell the one that also waits for signals.
//!
//! Input: values of other threads. Output: the values, and a pipe that is readable while there are some.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

/// Where values are put.
pub struct Slot<T> {
    values: Sender<T>,
    wake: Arc<PipeWriter>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Slot { values: self.values.clone(), wake: Arc::clone(&self.wake) }
    }
}

impl<T> Slot<T> {
    /// Puts a value in; false when nobody looks any more.
    pub fn put(&self, value: T) -> bool {
        // In this order: whoever is woken finds the value.
        self.values.send(value).is_ok() && (&*self.wake).write_all(&[0]).is_ok()
    }
}

/// Where they are taken out.
pub struct Mailbox<T> {
    values: Receiver<T>,
    /// Readable while there are values.
    pub wake: PipeReader,
}

impl<T> Mailbox<T> {
    /// An empty one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<(Slot<T>, Mailbox<T>)> {
        let (wake, waker) = io::pipe()?;
        let (sender, values) = mpsc::channel();
        Ok((Slot { values: sender, wake: Arc::new(waker) }, Mailbox { values, wake }))
    }

    /// The next value, if there is one.
    pub fn take(&mut self) -> Option<T> {
        let value = self.values.try_recv().ok()?;
        // A byte was written behind each value, or is about to be.
        let _ = self.wake.read_exact(&mut [0]);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::output::is_readable;

    #[test]
    fn the_pipe_is_readable_while_there_are_values() {
        let (slot, mut mailbox) = Mailbox::new().unwrap();
        assert!(mailbox.take().is_none() && !is_readable(&mailbox.wake));
        assert!(slot.put(1) && slot.clone().put(2));
        assert!(is_readable(&mailbox.wake));
        assert_eq!((mailbox.take(), mailbox.take(), mailbox.take()), (Some(1), Some(2), None));
        assert!(!is_readable(&mailbox.wake));
        drop(mailbox);
        assert!(!slot.put(3));
    }
}
