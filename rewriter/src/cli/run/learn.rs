//! `blizzard learn`: a run that is made to learn which accesses touch shared memory.
//!
//! Input: what `blizzard run` takes; on two nodes if nobody says how many, because nothing faults on one. Output: the run's; what it has learnt, in the cache,
//! and with all that was known before in a file.

use crate::base::error::{Error, Result};
use crate::base::options::AccessMode;
use crate::cli::run::command::RunCommand;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a program to learn which of its accesses touch shared memory: they are tested from the next start on
#[derive(Debug, Args)]
#[command(mut_arg("nodes", |arg| arg.default_value("2")), after_help = "Examples:\n  \
    blizzard learn -- ./em3d --iters 20\n  \
    blizzard learn -n 4 -o em3d.learnt -- ./em3d\n  \
    blizzard rewrite ./em3d -o em3d.blz --access guard --learnt em3d.learnt")]
pub struct LearnCommand {
    /// Also add what is known then, of this run and of earlier ones, to FILE, for `blizzard rewrite --learnt`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    run: RunCommand,
}

impl LearnCommand {
    /// Runs the program; the exit status is the run's.
    pub fn execute(self) -> Result<ExitCode> {
        if self.run.options.access == Some(AccessMode::Tests) || self.run.no_learn {
            return Err(Error::new("only guarded code learns").help("leave out --access tests and --no-learn"));
        }
        if self.run.debug_protocols {
            return Err(Error::new("--debug-protocols: such a run learns nothing").help("use it with `blizzard run`"));
        }
        let mut run = self.run;
        run.options.access = Some(AccessMode::Guard);
        run.run(Some(self.output.as_deref()))
    }
}
