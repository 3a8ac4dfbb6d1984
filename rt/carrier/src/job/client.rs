//! A way to tell all ranks of a job something.
//!
//! Input: values of this rank. Output: those of the others. **Invariant**: what is read was put before a [`Job::meet`] that has ended. Source: the PMIx standard and
//! the PMI-2 API, of what both have.

use std::ffi::CStr;

/// What a starter is asked for.
pub trait StarterClient {
    /// Puts a value where all ranks find it after they have met.
    ///
    /// # Errors
    /// The library's.
    fn put(&self, key: &CStr, bytes: &[u8]) -> Result<(), String>;
    /// Waits until all ranks are there.
    ///
    /// # Errors
    /// The library's.
    fn meet(&self) -> Result<(), String>;
    /// What that rank has put.
    ///
    /// # Errors
    /// It has put nothing there.
    fn get(&self, rank: u32, key: &CStr) -> Result<Vec<u8>, String>;
    /// Leaves the job.
    ///
    /// # Errors
    /// The library's.
    fn leave(&self) -> Result<(), String>;
}

/// This process's place in the job that a starter has made.
pub struct Job {
    pub client: Box<dyn StarterClient>,
    /// This process's number.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// The ranks of this host, ascending; this one is among them.
    pub here: Vec<u32>,
}

impl Job {
    /// Puts a value where all ranks find it after they have met.
    ///
    /// # Errors
    /// The library's.
    pub fn put(&self, key: &CStr, bytes: &[u8]) -> Result<(), String> {
        self.client.put(key, bytes)
    }

    /// Waits until all ranks are there; then what they have put can be had.
    ///
    /// # Errors
    /// The library's: the starter has gone, say.
    pub fn meet(&self) -> Result<(), String> {
        self.client.meet()
    }

    /// What that rank has put.
    ///
    /// # Errors
    /// It has put nothing there.
    pub fn get(&self, rank: u32, key: &CStr) -> Result<Vec<u8>, String> {
        self.client.get(rank, key)
    }

    /// Leaves the job: the starter does not take the end of this process for a failure.
    ///
    /// # Errors
    /// The library's.
    pub fn leave(self) -> Result<(), String> {
        self.client.leave()
    }
}
