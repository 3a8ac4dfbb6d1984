//! Helpers of the end-to-end tests: programs are compiled, run as they are, rewritten, run again and compared.
//!
//! The tests use the command line that users use. They differ from unit tests in one more way: the expected behaviour
//! of a rewritten program is always that of the program it was made from, which is run first and must be right by itself.
//!
//! Environment variables for working on the tests:
//! * `BLIZZARD_TESTS_ORIGINALS=1`: compile and run the original programs only, to try a new case.
//! * `BLIZZARD_TESTS_KEEP=DIR`: work in `DIR` and leave compiled and rewritten programs there.

pub mod case;
pub mod compile;
pub mod directives;
pub mod failing;
pub mod matrix;
pub mod network;
pub mod normalise;
pub mod run;
pub mod slurm;
pub mod tool;
pub mod workdir;
