//! `blizzard agent`: what `blizzard run --hosts` starts on each host.

use crate::base::error::{Error, Result};
use crate::launch::hosts::agent::{self, Reports};
use crate::reports::{core_file, crash, stuck};
use crate::store::closure::Originals;
use clap::Args;
use std::io::IsTerminal;
use std::process::ExitCode;

/// Serve a run on several hosts: `blizzard run --hosts` starts this on each of them
#[derive(Debug, Args)]
#[command(after_help = "Example, as a run does it:\n  ssh HOST blizzard agent")]
pub struct AgentCommand {}

impl AgentCommand {
    /// Serves one run.
    pub fn execute(self) -> Result<ExitCode> {
        if std::io::stdin().is_terminal() {
            return Err(Error::new("an agent is started by a run").help("blizzard run --hosts a:2,b:2 -- PROG"));
        }
        // The files were sent: their originals are on the launcher's host.
        agent::serve(Reports {
            describe: |crash, guard| crash::lines(crash, guard, &Originals::new()),
            locate: |callers| stuck::places(callers, &Originals::new()),
            core: |name, host, status, crash, program| {
                let process = crash.and_then(|crash| crash.process.as_ref());
                core_file::text(name, &format!("on host {host}: "), status, process, program)
            },
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
