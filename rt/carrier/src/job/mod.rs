//! What a cluster's starter of programs knows: ranks that `mpirun`, `prterun` or `srun` has started find each other.
//!
//! | file | what is in it |
//! |---|---|
//! | [`client`] | what a starter is asked for, whatever it speaks |
//! | [`pmix`] | PMIx: Open MPI, PRRTE, Slurm with that plugin |
//! | [`pmi2`] | PMI-2: Slurm without it |
//! | [`join`] | which of them it is |

pub mod client;

pub mod pmix;

pub mod pmi2;

pub mod join;
