//! Which hosts run how many nodes.
//!
//! Input: what `--hosts` says, or a file. Output: a [`HostList`]: each host once, nodes numbered in the order of the hosts.
//!
//! ```text
//! # lines of a file, as Open MPI and MPICH have them
//! a
//! b:4
//! c slots=4
//! ```

use crate::base::error::{Error, Result};
use blizzard_contract::MAX_NODES;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;

/// One host of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// As its starter knows it.
    pub name: String,
    /// Its nodes.
    pub nodes: Range<u16>,
}

/// What a node is called in messages, by its host if that is one of these.
pub(super) fn named(hosts: &[Host], node: u32) -> String {
    match hosts.iter().find(|host| host.nodes.contains(&(node as u16))) {
        Some(host) => format!("node {node} on host {}", host.name),
        None => format!("node {node}"),
    }
}

/// The hosts of a run: one at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostList(Vec<Host>);

impl HostList {
    /// What `--hosts` says: `a:4,b`.
    ///
    /// # Errors
    /// What of it is no host, or more nodes than a run has.
    pub fn parse(text: &str) -> Result<HostList> {
        let named = |part: &str| {
            let (name, nodes) = host(part.trim()).map_err(|why| Error::new(format!("--hosts: {why}")))?;
            Ok((String::new(), name, nodes))
        };
        collect(text.split(',').map(named), "--hosts")
    }

    /// What a file says, a host a line.
    ///
    /// # Errors
    /// It cannot be read; a line that names no host, by its number.
    pub fn read(path: &Path) -> Result<HostList> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::new(format!("{shown}: the host file cannot be read")).because(e))?;
        let lines = (1..).zip(text.lines()).filter_map(|(number, line)| {
            let line = line.split('#').next().unwrap_or_default().trim();
            let at = format!("{shown}:{number}: ");
            (!line.is_empty()).then(|| {
                let (name, nodes) = host_line(line).map_err(|why| Error::new(format!("{at}{why}")))?;
                Ok((at, name, nodes))
            })
        });
        collect(lines, &shown)
    }

    /// The hosts, in the order of their nodes.
    pub fn hosts(&self) -> &[Host] {
        &self.0
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u32 {
        self.0.last().map_or(0, |host| host.nodes.end.into())
    }
}

/// Numbers the nodes.
fn collect(named: impl Iterator<Item = Result<(String, String, u16)>>, what: &str) -> Result<HostList> {
    let mut all: Vec<Host> = Vec::new();
    let mut first = 0u16;
    for host in named {
        let (at, name, nodes) = host?;
        if all.iter().any(|other| other.name == name) {
            let place = if at.is_empty() { format!("{what}: ") } else { at };
            return Err(Error::new(format!("{place}{name} is named twice")).help("give it all its nodes at once"));
        }
        let end = first.saturating_add(nodes);
        if usize::from(end) > MAX_NODES {
            let place = if at.is_empty() { format!("{what}: ") } else { at };
            return Err(Error::new(format!("{place}more nodes than the {MAX_NODES} that a run has")));
        }
        all.push(Host { name, nodes: first..end });
        first = end;
    }
    if all.is_empty() { Err(Error::new(format!("{what}: no host is named"))) } else { Ok(HostList(all)) }
}

/// A host as `--hosts` has it: `name` or `name:nodes`.
fn host(text: &str) -> std::result::Result<(String, u16), String> {
    match text.rsplit_once(':') {
        None => Ok((name(text)?, 1)),
        Some((host, nodes)) => Ok((name(host)?, count(nodes)?)),
    }
}

/// A line of a file: also `name slots=nodes`, and other words of Open MPI's.
fn host_line(line: &str) -> std::result::Result<(String, u16), String> {
    let mut words = line.split_whitespace();
    let (name, mut nodes) = host(words.next().unwrap_or_default())?;
    for word in words {
        match word.split_once('=') {
            Some(("slots", number)) => nodes = count(number)?,
            Some(("max_slots" | "max-slots", _)) => {}
            _ => return Err(format!("{word:?} is not understood: a line is NAME, NAME:NODES or NAME slots=NODES")),
        }
    }
    Ok((name, nodes))
}

fn count(text: &str) -> std::result::Result<u16, String> {
    let nodes = text.parse().ok().filter(|nodes| (1..=MAX_NODES).contains(&usize::from(*nodes)));
    nodes.ok_or_else(|| format!("{text:?} is not a number of nodes from 1 to {MAX_NODES}"))
}

/// A name that is an option, or has characters that a shell reads, is none.
fn name(text: &str) -> std::result::Result<String, String> {
    let fits = |c: char| c.is_alphanumeric() || "._-@".contains(c);
    if text.is_empty() {
        return Err("a host without a name".into());
    }
    if text.starts_with('-') || !text.chars().all(fits) {
        return Err(format!("{text:?} is not the name of a host"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(all: &[(&str, Range<u16>)]) -> HostList {
        HostList(all.iter().map(|(name, nodes)| Host { name: (*name).to_owned(), nodes: nodes.clone() }).collect())
    }

    #[test]
    fn nodes_are_numbered_in_the_order_of_the_hosts() {
        let hosts = HostList::parse("a:4, b,me@c.d-e:2").unwrap();
        assert_eq!(hosts, list(&[("a", 0..4), ("b", 4..5), ("me@c.d-e", 5..7)]));
        assert_eq!(hosts.nodes(), 7);
    }

    #[test]
    fn files_are_read_by_line_and_errors_have_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            HostList::read(&path).map_err(|e| e.to_string().replace(&path.display().to_string(), "F"))
        };
        let fine = read("# all\n\na\nb:3 # the big one\nc slots=2 max_slots=4\n").unwrap();
        assert_eq!(fine, list(&[("a", 0..1), ("b", 1..4), ("c", 4..6)]));
        for (text, error) in [
            ("a\nb:0\n", "F:2: \"0\" is not a number of nodes from 1 to 1024"),
            ("a\n\na\n", "F:3: a is named twice"),
            ("a slot=3\n", "F:1: \"slot=3\" is not understood"),
            ("a:1000\nb:25\n", "F:2: more nodes than the 1024"),
            ("# none\n", "F: no host is named"),
            ("a;rm\n", "F:1: \"a;rm\" is not the name of a host"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.starts_with(error), "{text:?}: {found}");
        }
        assert!(HostList::read(&folder.path().join("absent")).unwrap_err().what.contains("cannot be read"));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for (text, part) in [
            ("", "without a name"),
            ("a,,b", "without a name"),
            ("a:x", "\"x\" is not a number"),
            ("a:1025", "\"1025\" is not a number"),
            ("-o:2", "\"-o\" is not the name"),
            ("a:2,a:2", "a is named twice"),
            ("a:1000,b:25", "more nodes"),
        ] {
            let error = HostList::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("--hosts: ") && error.contains(part), "{text:?}: {error}");
        }
    }
}
