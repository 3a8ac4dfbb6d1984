//! Which of the interfaces the starter speaks.
//!
//! Input: the environment that it gives. Output: the [`Job`].

use crate::job::client::Job;
use crate::job::{pmi2, pmix};

/// Whether a starter that speaks PMIx or PMI-2 has started this process.
pub fn is_offered() -> bool {
    pmix::is_offered() || pmi2::is_offered()
}

/// This process's rank, as the starter says in the environment.
pub fn rank() -> Option<u32> {
    let name = if pmix::is_offered() { pmix::RANK } else { pmi2::RANK };
    std::env::var(name).ok()?.parse().ok()
}

/// How many ranks the job has, where the starter's environment says so: Open MPI's, PMI's or Slurm's.
pub fn announced_size() -> Option<u32> {
    let names = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

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
