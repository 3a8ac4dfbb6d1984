//! A node under a debugger: `blizzard run --gdb NODE`, `--gdb-server PORT`.
//!
//! Input: the user's options. Output: what starts the node in place of its program, with what gdb must know of rewritten programs.

use crate::base::error::{Error, Result};
use crate::base::messages;
use crate::cli::make::client::Client;
use crate::cli::shared::arguments::whole;
use crate::cli::shared::input;
use crate::launch::hosts::host_list::{Host, HostList};
use crate::launch::options::{Debugger, GDBSERVER};
use blizzard_contract::MAX_NODES;
use clap::Args;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// In guarded code each first access to a block faults.
const FAULTS: &str = "handle SIGSEGV nostop noprint pass";

/// The options.
#[derive(Debug, Args)]
pub struct DebuggerOptions {
    /// Start this node under gdb, which has the terminal; the others run as ever
    #[arg(long, value_name = "NODE", value_parser = whole::<u32>(0..=MAX_NODES as u64 - 1), help_heading = "Debugging")]
    pub(super) gdb: Option<u32>,
    /// Start a node under gdbserver, and let a debugger on this host in at this port; with --gdb, that node, else node 0
    ///
    /// No other host reaches the port. Whoever on this host connects first controls the node.
    #[arg(long, value_name = "PORT", value_parser = whole::<u16>(1..=65_535), help_heading = "Debugging")]
    gdb_server: Option<u16>,
    /// More arguments for gdb, one each time; as --gdb-arg=-batch
    #[arg(long, value_name = "ARG", requires = "gdb", allow_hyphen_values = true, help_heading = "Debugging")]
    gdb_arg: Vec<OsString>,
}

impl DebuggerOptions {
    /// Whether a node shall be debugged.
    pub(super) fn are_given(&self) -> bool {
        self.gdb.is_some() || self.gdb_server.is_some()
    }

    /// The node of a run of so many.
    ///
    /// # Errors
    /// There is no such node.
    fn node(&self, nodes: u32) -> Result<u32> {
        match self.gdb.unwrap_or(0) {
            node if node < nodes => Ok(node),
            node => Err(Error::new(format!("--gdb {node}: the run has {nodes} node(s), numbered from 0"))
                .help(format!("-n {} for so many nodes", u64::from(node) + 1))),
        }
    }

    /// What starts the node where its host's agent does. `program`: this host's copy. `guard`: it is guarded code.
    ///
    /// # Errors
    /// There is no such node, or it would need a terminal.
    pub(super) fn on_hosts(&self, hosts: &HostList, program: &Path, guard: bool) -> Result<Option<Debugger>> {
        let node = match self.gdb_server {
            _ if !self.are_given() => return Ok(None),
            Some(_) => self.node(hosts.nodes())?,
            None => {
                return Err(Error::new("--gdb: on several hosts gdb has no terminal")
                    .help("--gdb-server PORT with it: gdbserver on the host of that node"));
            }
        };
        let is_on = |host: &&Host| host.nodes.contains(&(node as u16));
        let host = hosts.hosts().iter().find(is_on).map_or("", |host| &host.name);
        let port = self.gdb_server.unwrap_or_default();
        let faults = if guard { format!(" -ex '{FAULTS}'") } else { String::new() };
        messages::note(&format!(
            "node {node} waits for a debugger on host {host}, or behind ssh -L {port}:localhost:{port} {host}\n  help: \
             gdb -x \"$(blizzard config --gdb)\"{faults} -ex 'target remote localhost:{port}' {}",
            program.display()
        ));
        Ok(Some(Debugger::server(node, port, GDBSERVER.into())))
    }

    /// What starts the node of `executable`. `guard`: the program is guarded code. `creates`: node 0 creates the others.
    ///
    /// # Errors
    /// There is no such node, or no debugger.
    pub(super) fn debugger(
        &self,
        executable: &Path,
        nodes: u32,
        guard: bool,
        creates: bool,
    ) -> Result<Option<Debugger>> {
        if !self.are_given() {
            return Ok(None);
        }
        let node = self.node(nodes)?;
        if creates && node > 0 {
            return Err(Error::new(format!("--gdb {node}: node 0 of this program creates the others"))
                .help("--gdb 0; gdb's `set follow-fork-mode child` goes on with the next node that is created"));
        }
        let name = if self.gdb_server.is_some() { GDBSERVER } else { "gdb" };
        let program = input::find_program(name.as_ref()).map_err(|_| {
            Error::new(format!("{name} is not in PATH")).help(format!("install it (Debian package {name})"))
        })?;
        match self.gdb_server {
            Some(port) => {
                let faults = if guard { format!(" -ex '{FAULTS}'") } else { String::new() };
                messages::note(&format!(
                    "node {node} waits for a debugger on this host\n  help: gdb -x \"$(blizzard config --gdb)\"{faults} \
                     -ex 'set sysroot /' -ex 'target remote localhost:{port}' {}",
                    executable.display()
                ));
                Ok(Some(Debugger::server(node, port, program.into_os_string())))
            }
            None => {
                let mut command = vec![program.into_os_string(), "-q".into()];
                let libraries = Client::install()?.gdb();
                let made = tempfile::Builder::new().prefix("blizzard-gdb-").tempdir();
                let folder = made.map_err(|e| Error::new("cannot make a temporary folder").because(e))?;
                command.extend(["-x".into(), libraries.into_os_string()]);
                // A shell would have the launcher's descriptors, and may do as it likes with them.
                let commands = ["set startup-with-shell off", "set breakpoint pending on"];
                for line in commands.into_iter().chain(guard.then_some(FAULTS)) {
                    command.extend(["-ex".into(), line.into()]);
                }
                command.extend(self.gdb_arg.iter().cloned());
                command.push("--args".into());
                Ok(Some(Debugger { node, command, port: None, folder: Some(Arc::new(folder)) }))
            }
        }
    }
}
