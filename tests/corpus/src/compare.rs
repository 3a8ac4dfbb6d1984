//! What a run did, and whether two runs did the same: [`Behaviour`], [`Behaviour::difference`].
//!
//! A behaviour is the exit status, both output streams after the entry's replacements, and every file below the working
//! folder with its type, permission bits and bytes. Times of files are not part of it.

use crate::inside::Status;
use regex::Regex;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Everything of a run that must not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    pub status: Status,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub files: BTreeMap<PathBuf, Node>,
}

/// One entry of the working folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: &'static str,
    pub mode: u32,
    /// A file's bytes, a link's target.
    pub bytes: Vec<u8>,
}

impl Behaviour {
    /// The first thing in which `other` differs from `self`.
    pub fn difference(&self, other: &Behaviour) -> Option<String> {
        if self.status != other.status {
            let said = String::from_utf8_lossy(&other.stderr);
            let last = said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("").to_owned();
            let last = if last.is_empty() { String::new() } else { format!(" ({})", shorten(&last)) };
            return Some(format!("{} instead of {}{last}", other.status, self.status));
        }
        for (what, mine, theirs) in
            [("standard output", &self.stdout, &other.stdout), ("standard error", &self.stderr, &other.stderr)]
        {
            if let Some(d) = bytes_difference(mine, theirs) {
                return Some(format!("{what}: {d}"));
            }
        }
        for path in self.files.keys().chain(other.files.keys()) {
            let text = match (self.files.get(path), other.files.get(path)) {
                (Some(_), None) => "not created".to_owned(),
                (None, Some(_)) => "created in addition".to_owned(),
                (Some(a), Some(b)) if a == b => continue,
                (Some(a), Some(b)) if (a.kind, a.mode) != (b.kind, b.mode) => {
                    format!("{} {:o} instead of {} {:o}", b.kind, b.mode, a.kind, a.mode)
                }
                (Some(a), Some(b)) => bytes_difference(&a.bytes, &b.bytes).unwrap_or_default(),
                (None, None) => continue,
            };
            return Some(format!("{}: {text}", path.display()));
        }
        None
    }
}

fn bytes_difference(a: &[u8], b: &[u8]) -> Option<String> {
    let at = a.iter().zip(b).position(|(x, y)| x != y).or((a.len() != b.len()).then(|| a.len().min(b.len())))?;
    let line = a[..at].iter().filter(|&&c| c == b'\n').count() + 1;
    let around = |s: &[u8]| {
        let start = s[..at].iter().rposition(|&c| c == b'\n').map_or(0, |k| k + 1).max(at.saturating_sub(40));
        let stop = s[at..].iter().position(|&c| c == b'\n').map_or(s.len(), |k| at + k).min(at + 40);
        shorten(&String::from_utf8_lossy(&s[start..stop.max(start)]))
    };
    let sizes = format!("{} and {} bytes", a.len(), b.len());
    Some(format!("differs at byte {at}, line {line}: `{}` became `{}` ({sizes})", around(a), around(b)))
}

fn shorten(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { '.' } else { c }).collect();
    clean.chars().take(160).collect()
}

/// Applies replacements to an output stream.
pub fn normalise(bytes: Vec<u8>, replacements: &[(Regex, String)]) -> Vec<u8> {
    if replacements.is_empty() {
        return bytes;
    }
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    for (regex, with) in replacements {
        text = regex.replace_all(&text, with.as_str()).into_owned();
    }
    text.into_bytes()
}

/// Everything below `root`, without what `ignore` names (a path, or a path that ends in `*`).
///
/// # Errors
/// Something cannot be read.
pub fn tree(root: &Path, ignore: &[String]) -> std::io::Result<BTreeMap<PathBuf, Node>> {
    let mut out = BTreeMap::new();
    walk(root, Path::new(""), ignore, &mut out)?;
    Ok(out)
}

fn walk(root: &Path, at: &Path, ignore: &[String], out: &mut BTreeMap<PathBuf, Node>) -> std::io::Result<()> {
    for entry in fs::read_dir(root.join(at))? {
        let entry = entry?;
        let path = at.join(entry.file_name());
        if ignore.iter().any(|pattern| matches(pattern, &path)) {
            continue;
        }
        let meta = fs::symlink_metadata(entry.path())?;
        let kind = meta.file_type();
        let mut node = Node { kind: "file", mode: meta.permissions().mode() & 0o7777, bytes: Vec::new() };
        if kind.is_dir() {
            node.kind = "folder";
            walk(root, &path, ignore, out)?;
        } else if kind.is_symlink() {
            node.kind = "link";
            node.bytes = fs::read_link(entry.path())?.as_os_str().as_bytes().to_vec();
        } else if kind.is_file() {
            node.bytes = fs::read(entry.path())?;
        } else if kind.is_fifo() {
            node.kind = "pipe";
        } else {
            node.kind = "special";
        }
        out.insert(path, node);
    }
    Ok(())
}

fn matches(pattern: &str, path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix.as_bytes()),
        None => path == pattern.as_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Behaviour {
        let node = Node { kind: "file", mode: 0o644, bytes: b"x".to_vec() };
        Behaviour {
            status: Status::Exit(0),
            stdout: text.into(),
            stderr: Vec::new(),
            files: BTreeMap::from([(PathBuf::from("f"), node)]),
        }
    }

    #[test]
    fn each_part_of_a_behaviour_counts() {
        let a = of("one\ntwo\n");
        assert_eq!(a.difference(&a), None);
        let text = a.difference(&of("one\ntwa\n")).unwrap();
        assert!(text.contains("line 2: `two` became `twa`"), "{text}");
        assert!(a.difference(&of("one\ntwo")).unwrap().contains("8 and 7 bytes"));
        let killed = Behaviour { status: Status::Signal(11), stderr: b"oops\n".to_vec(), ..a.clone() };
        assert_eq!(a.difference(&killed).unwrap(), "signal 11 instead of exit status 0 (oops)");
        let loud = Behaviour { stderr: b"!".to_vec(), ..a.clone() };
        assert!(a.difference(&loud).unwrap().starts_with("standard error"));
        let mut less = a.clone();
        less.files.clear();
        assert_eq!(a.difference(&less).unwrap(), "f: not created");
        assert_eq!(less.difference(&a).unwrap(), "f: created in addition");
        let mut changed = a.clone();
        changed.files.get_mut(Path::new("f")).unwrap().mode = 0o755;
        assert_eq!(a.difference(&changed).unwrap(), "f: file 755 instead of file 644");
    }

    #[test]
    fn trees_hold_links_folders_and_bytes_but_not_what_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("d/.git")).unwrap();
        fs::write(at("d/f"), b"bytes").unwrap();
        fs::write(at("d/.git/index"), b"time").unwrap();
        std::os::unix::fs::symlink("f", at("d/l")).unwrap();
        let found = tree(folder.path(), &["d/.git/*".to_owned()]).unwrap();
        let names: Vec<_> = found.iter().map(|(p, n)| (p.to_str().unwrap(), n.kind)).collect();
        assert_eq!(names, [("d", "folder"), ("d/.git", "folder"), ("d/f", "file"), ("d/l", "link")]);
        assert_eq!(found[Path::new("d/f")].bytes, b"bytes");
    }

    #[test]
    fn replacements_are_applied_line_by_line() {
        let rules = [(regex::Regex::new("(?m)^took .*$").unwrap(), "took T".to_owned())];
        assert_eq!(normalise(b"a\ntook 3 s\nb".to_vec(), &rules), b"a\ntook T\nb");
    }
}
