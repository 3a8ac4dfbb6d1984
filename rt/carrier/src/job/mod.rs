//! What a cluster's starter of programs knows, and a way to tell all ranks of a job something.
//!
//! Purpose: ranks that `mpirun`, `prterun` or `srun` has started find each other. Input: the environment that the starter gives, values of other ranks. Output:
//! [`Job`]. **Invariant**: what is read was put before a [`Job::meet`] that has ended.
//!
//! | file | what the starter speaks |
//! |---|---|
//! | [`pmix`] | PMIx: Open MPI, PRRTE, Slurm with that plugin |
//! | [`pmi2`] | PMI-2: Slurm without it |

use std::ffi::CStr;

pub mod pmi2;
pub mod pmix;

/// What a starter is asked for.
trait StarterClient {
    /// Puts a value where all ranks find it after they have met.
    fn put(&self, key: &CStr, bytes: &[u8]) -> Result<(), String>;
    /// Waits until all ranks are there.
    fn meet(&self) -> Result<(), String>;
    /// What that rank has put.
    fn get(&self, rank: u32, key: &CStr) -> Result<Vec<u8>, String>;
    /// Leaves the job.
    fn leave(&self) -> Result<(), String>;
}

/// This process's place in the job that a starter has made.
pub struct Job {
    client: Box<dyn StarterClient>,
    /// This process's number.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// The ranks of this host, ascending; this one is among them.
    pub here: Vec<u32>,
}

/// Whether a starter that speaks PMIx or PMI-2 has started this process.
pub fn is_offered() -> bool {
    pmix::is_offered() || pmi2::is_offered()
}

/// This process's rank, as the starter says in the environment.
pub fn rank() -> Option<u32> {
    let name = if pmix::is_offered() { pmix::RANK } else { pmi2::RANK };
    std::env::var(name).ok()?.parse().ok()
}

impl Job {
    /// Joins the job.
    ///
    /// # Errors
    /// The library is not there or too old; the starter does not answer.
    pub fn join() -> Result<Job, String> {
        let job = if pmix::is_offered() { pmix::join() } else { pmi2::join() }?;
        if job.size <= job.rank || job.here.binary_search(&job.rank).is_err() {
            return Err("the starter does not say how many ranks there are, or which of them are on this host".into());
        }
        Ok(job)
    }

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
