//! Options that name the hosts of a run, for all commands that start runs.
//!
//! Input: words of the command line. Output: [`RunPlace`]: hosts, and what starts an agent there; or the same words for a `blizzard run` that a command starts.

use crate::base::error::{Error, Result};
use crate::launch::hosts::host_list::{Host, HostList};
use clap::Args;
use std::path::PathBuf;

/// The options. Commands with `--nodes` have it conflict with `hosts` and `hostfile`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HostsOptions {
    /// Run on these hosts, each with so many nodes: a:4,b:4
    #[arg(long, value_name = "HOSTS", conflicts_with = "hostfile", help_heading = "Several hosts")]
    hosts: Option<String>,
    /// The same from a file: a host a line, as NAME, NAME:NODES or NAME slots=NODES
    #[arg(long, value_name = "FILE", help_heading = "Several hosts")]
    hostfile: Option<PathBuf>,
    /// What starts a program on a host: words in front of its name
    #[arg(long, value_name = "COMMAND", default_value = "ssh", help_heading = "Several hosts")]
    launcher: String,
    /// Where the hosts have Blizzard [default: where this one is]
    #[arg(long, value_name = "PATH", help_heading = "Several hosts")]
    agent: Option<String>,
}

/// The hosts of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunPlace {
    pub(crate) hosts: HostList,
    /// Words in front of a host's name: what starts a program there.
    pub(crate) starter: Vec<String>,
    /// The agent's program on each host.
    pub(crate) agent: String,
}

impl HostsOptions {
    /// Whether the run is one on several hosts, or on another one.
    pub(crate) fn are_given(&self) -> bool {
        self.hosts.is_some() || self.hostfile.is_some()
    }

    /// What they say; none if they are not given.
    ///
    /// # Errors
    /// What of them cannot be a run's.
    pub(crate) fn place(&self) -> Result<Option<RunPlace>> {
        let hosts = match (&self.hosts, &self.hostfile) {
            (Some(text), _) => HostList::parse(text)?,
            (None, Some(path)) => HostList::read(path)?,
            (None, None) => return Ok(None),
        };
        let starter: Vec<String> = self.launcher.split_whitespace().map(str::to_owned).collect();
        if starter.is_empty() {
            return Err(Error::new("--launcher: no command is named").help("leave it out for ssh"));
        }
        let agent = match &self.agent {
            Some(path) => path.clone(),
            None => std::env::current_exe()
                .map_err(|e| Error::new("cannot find my own executable").because(e).help("give --agent PATH"))?
                .display()
                .to_string(),
        };
        // What starts it there may be a shell.
        if agent.is_empty() || !agent.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+~".contains(c)) {
            return Err(Error::new(format!("{agent:?} has characters that a shell on a host would read"))
                .help("give a plain path: --agent PATH"));
        }
        Ok(Some(RunPlace { hosts, starter, agent }))
    }
}

impl RunPlace {
    /// The options of `blizzard run` that say the same.
    pub(crate) fn words(&self) -> Vec<String> {
        let RunPlace { starter, agent, .. } = self;
        ["--hosts", &self.list(), "--launcher", &starter.join(" "), "--agent", agent].map(str::to_owned).to_vec()
    }

    /// As `--hosts` has them.
    pub(crate) fn list(&self) -> String {
        let of = |host: &Host| format!("{}:{}", host.name, host.nodes.len());
        self.hosts.hosts().iter().map(of).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        hosts: HostsOptions,
    }

    fn place(words: &[&str]) -> Result<Option<RunPlace>> {
        Line::try_parse_from([&["run"], words].concat()).unwrap_or_else(|e| panic!("{e}")).hosts.place()
    }

    #[test]
    fn a_run_that_is_started_gets_the_same_hosts() {
        assert!(place(&[]).unwrap().is_none());
        let first =
            place(&["--hosts", "a:2, b", "--launcher", "ssh  -q", "--agent", "/opt/blizzard"]).unwrap().unwrap();
        let words = first.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(words, ["--hosts", "a:2,b:1", "--launcher", "ssh -q", "--agent", "/opt/blizzard"]);
        let second = place(&words).unwrap().unwrap();
        assert_eq!((second.hosts, second.starter, second.agent), (first.hosts, first.starter, first.agent));
    }
}
