//! Guarded code: real outputs are accepted, and faults planted into them are found, each for the right reason.

mod accepted;
mod faults_in_tests;
mod loops;
mod subject;
mod versions;
