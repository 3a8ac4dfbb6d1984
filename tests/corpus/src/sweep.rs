//! Rewrites every program and library of whole folders, and runs none: folders -> [`Summary`].
//!
//! Each file is rewritten in a process of its own. A refusal must have a reason; a panic, a signal or no end within the
//! limit is a defect of the rewriter.

use crate::one::{self, Fate, Variant};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit of one file.
const LIMIT: Duration = Duration::from_secs(300);
/// The same, with the audit.
const AUDIT_LIMIT: Duration = Duration::from_secs(1800);

/// What a sweep found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Summary {
    pub folders: Vec<String>,
    pub variant: String,
    pub files: usize,
    pub rewritten: usize,
    /// Reason -> files.
    pub refused: BTreeMap<String, Vec<String>>,
    /// File -> what happened.
    pub crashed: BTreeMap<String, String>,
    pub text_bytes: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub seconds: f64,
    /// The slowest file among those of 1 MB of text or more, in MB of text per second.
    pub slowest: Option<(f64, String)>,
    /// The largest peak memory over bytes of text, among the same.
    pub greediest: Option<(f64, String)>,
    /// The longest rewrite.
    pub longest: Option<(f64, String)>,
    /// Files whose rewrite was audited against the original.
    #[serde(default)]
    pub audited: usize,
    /// File -> how many claims the audit left open, and the first.
    #[serde(default)]
    pub open: BTreeMap<String, (usize, String)>,
}

/// Sweeps `folders`, not entering their subfolders unless `deep`. `audit`: each output is audited against its original.
pub fn sweep(folders: &[PathBuf], deep: bool, variant: Variant, audit: bool) -> Summary {
    let files = find(folders, deep);
    let mut summary = Summary {
        folders: folders.iter().map(|f| f.display().to_string()).collect(),
        variant: variant.name().to_owned(),
        files: files.len(),
        ..Summary::default()
    };
    let style = ProgressStyle::with_template("{pos}/{len} {bar:30} {elapsed} (left {eta}) {msg}");
    let bar = ProgressBar::new(files.len() as u64);
    if let Ok(style) = style {
        bar.set_style(style);
    }
    for file in &files {
        let name = file.display().to_string();
        bar.set_message(name.clone());
        match one::rewrite(file, variant, audit, if audit { AUDIT_LIMIT } else { LIMIT }) {
            Fate::Rewritten(figures) => {
                if let Some(one::Open { claims, first: Some(first) }) = &figures.open {
                    bar.suspend(|| eprintln!("{claims} claims open in {name}: {first}"));
                }
                summary.add(&name, &figures);
            }
            Fate::Refused { reasons, .. } => {
                bar.suspend(|| eprintln!("refused {name}: {}", reasons.join("; ")));
                summary.refused.entry(group(&reasons)).or_default().push(name);
            }
            Fate::Crashed(text) => {
                bar.suspend(|| eprintln!("CRASHED {name}: {text}"));
                summary.crashed.insert(name, text);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    summary
}

/// One text for all files that are refused for the same reason: without numbers and names in quotes.
fn group(reasons: &[String]) -> String {
    let mut out = BTreeSet::new();
    for reason in reasons {
        let mut text = String::new();
        for word in reason.split(' ') {
            let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
            let number = bare.starts_with("0x") || !bare.is_empty() && bare.chars().all(|c| c.is_ascii_digit());
            text.push_str(&if number { word.replacen(bare, "N", 1) } else { word.to_owned() });
            text.push(' ');
        }
        out.insert(text.trim_end().to_owned());
    }
    out.into_iter().collect::<Vec<_>>().join("; ")
}

/// Programs and libraries for x86-64 below `folders`, each file once, however many names it has; a file's own name counts before
/// those of links to it. Links are followed, also out of the folders.
fn find(folders: &[PathBuf], deep: bool) -> Vec<PathBuf> {
    let mut found = Found::default();
    for folder in folders {
        // Each file is rewritten by a process in a folder of its own.
        found.look(&std::path::absolute(folder).unwrap_or_else(|_| folder.clone()), deep);
    }
    let links = std::mem::take(&mut found.links);
    for path in links {
        found.add(path);
    }
    found.files.sort();
    found.files
}

/// What a search has come by so far.
#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    /// Links to files.
    links: Vec<PathBuf>,
    /// Device and inode of files, and of folders.
    seen: BTreeSet<(u64, u64)>,
}

impl Found {
    fn look(&mut self, folder: &Path, deep: bool) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        // Links may lead in a circle.
        if !fs::metadata(folder).is_ok_and(|meta| self.seen.insert((meta.dev(), meta.ino()))) {
            return;
        }
        for entry in entries.flatten() {
            let path = entry.path();
            // What a link leads to; nothing where that is missing.
            let Ok(meta) = fs::metadata(&path) else { continue };
            let link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if meta.is_dir() && deep {
                self.look(&path, deep);
            } else if meta.is_file() && link {
                self.links.push(path);
            } else if meta.is_file() {
                self.add(path);
            }
        }
    }

    /// Adds a file that is one for x86-64 and has not been found under another name.
    fn add(&mut self, path: PathBuf) {
        let Ok(meta) = fs::metadata(&path) else { return };
        if is_elf(&path) && self.seen.insert((meta.dev(), meta.ino())) {
            self.files.push(path);
        }
    }
}

/// Whether a file is a 64-bit x86 program or library, by the first 20 bytes: class, type, machine.
fn is_elf(path: &Path) -> bool {
    use std::io::Read;
    let mut head = [0; 20];
    let read = fs::File::open(path).and_then(|mut f| f.read_exact(&mut head));
    read.is_ok() && head.starts_with(b"\x7fELF\x02") && matches!(head[16], 2 | 3) && head[18] == 62
}

impl Summary {
    fn add(&mut self, name: &str, f: &one::Figures) {
        self.rewritten += 1;
        self.text_bytes += f.text_bytes;
        self.input_bytes += f.input_bytes;
        self.output_bytes += f.output_bytes;
        self.seconds += f.seconds;
        if let Some(open) = &f.open {
            self.audited += 1;
            self.open.extend(open.first.clone().map(|first| (name.to_owned(), (open.claims, first))));
        }
        fn keep(slot: &mut Option<(f64, String)>, value: f64, name: &str, larger: bool) {
            if slot.as_ref().is_none_or(|(v, _)| if larger { value > *v } else { value < *v }) {
                *slot = Some((value, name.to_owned()));
            }
        }
        keep(&mut self.longest, f.seconds, name, true);
        if f.text_bytes >= 1_000_000 {
            keep(&mut self.slowest, f.text_bytes as f64 / 1e6 / f.seconds, name, false);
        }
        if f.text_bytes >= 1_000_000 && f.open.is_none() {
            keep(&mut self.greediest, f.max_rss_kb as f64 * 1024.0 / f.text_bytes as f64, name, true);
        }
    }

    /// Files that were refused.
    pub fn refusals(&self) -> usize {
        self.refused.values().map(Vec::len).sum()
    }

    /// As a section of `RESULTS.md`.
    pub fn markdown(&self) -> String {
        let mut out =
            format!("### {} rewrite of every program and library in {}\n\n", self.variant, self.folders.join(", "));
        let mut line = |text: String| writeln!(out, "* {text}").expect("a string");
        line(format!(
            "{} files: {} rewritten, {} refused ({:.2} %), {} crashed",
            self.files,
            self.rewritten,
            self.refusals(),
            self.refusals() as f64 * 100.0 / self.files.max(1) as f64,
            self.crashed.len()
        ));
        line(format!(
            "{:.1} MB of text in {:.0} s: {:.1} MB/s; output {:.2} times the input",
            self.text_bytes as f64 / 1e6,
            self.seconds,
            self.text_bytes as f64 / 1e6 / self.seconds.max(1e-9),
            self.output_bytes as f64 / self.input_bytes.max(1) as f64
        ));
        if let Some((v, name)) = &self.longest {
            line(format!("longest: {v:.1} s ({name})"));
        }
        if let Some((v, name)) = &self.slowest {
            line(format!("slowest of 1 MB of text or more: {v:.1} MB/s ({name})"));
        }
        if let Some((v, name)) = &self.greediest {
            line(format!("most memory of the same: {v:.0} times the text ({name})"));
        }
        if self.audited > 0 {
            line(format!("{} audited against their originals: {} with open claims", self.audited, self.open.len()));
        }
        for (file, (claims, first)) in &self.open {
            line(format!("{claims} claims open in {file}, the first: {first}"));
        }
        for (reason, files) in &self.refused {
            let shown = files.iter().take(6).cloned().collect::<Vec<_>>().join(", ");
            let more = if files.len() > 6 { ", ..." } else { "" };
            line(format!("refused, {} files: {reason} ({shown}{more})", files.len()));
        }
        for (file, what) in &self.crashed {
            line(format!("CRASHED: {file}: {what}"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_libraries_are_found_once_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let head = |class: u8, kind: u8, machine: u8| {
            let mut bytes = vec![0; 64];
            bytes[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
            (bytes[16], bytes[18]) = (kind, machine);
            bytes
        };
        fs::write(at("program"), head(2, 3, 62)).unwrap();
        fs::write(at("object.o"), head(2, 1, 62)).unwrap();
        fs::write(at("small"), head(1, 3, 3)).unwrap();
        fs::write(at("arm"), head(2, 3, 183)).unwrap();
        fs::write(at("script"), "#!/bin/sh\nexit 0 # long enough\n").unwrap();
        fs::hard_link(at("program"), at("second name")).unwrap();
        std::os::unix::fs::symlink("program", at("link")).unwrap();
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("sub/library.so"), head(2, 3, 62)).unwrap();
        assert_eq!(find(&[folder.path().to_owned()], false).len(), 1);
        assert_eq!(find(&[folder.path().to_owned()], true).len(), 2);
    }

    /// Each file's process has a working folder of its own, where `corpus sweep libs` found none of the files.
    #[test]
    fn files_of_a_relative_folder_are_found_from_anywhere() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let mut program = vec![0; 64];
        program[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2]);
        (program[16], program[18]) = (3, 62);
        fs::write(folder.path().join("program"), program).unwrap();
        let found = find(&[Path::new(".").join(folder.path().file_name().unwrap())], false);
        assert!(found.len() == 1 && found[0].is_absolute(), "{found:?}");
    }

    /// Links were left out without a word, though `/usr/bin` has programs that stand elsewhere.
    #[test]
    fn links_are_followed_once() {
        use std::os::unix::fs::symlink;
        let (elsewhere, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut program = vec![0; 64];
        program[..5].copy_from_slice(b"\x7fELF\x02");
        (program[16], program[18]) = (3, 62);
        fs::write(elsewhere.path().join("program"), &program).unwrap();
        fs::create_dir(elsewhere.path().join("sub")).unwrap();
        fs::write(elsewhere.path().join("sub/library.so"), &program).unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("z"), &program).unwrap();
        symlink("z", at("a")).unwrap();
        symlink(elsewhere.path().join("program"), at("b")).unwrap();
        symlink(elsewhere.path().join("program"), at("c")).unwrap();
        symlink(elsewhere.path().join("missing"), at("d")).unwrap();
        symlink(elsewhere.path().join("sub"), at("e")).unwrap();
        symlink(folder.path(), at("e2")).unwrap();
        let found = find(&[folder.path().to_owned()], false);
        assert!(found == [at("b"), at("z")] || found == [at("c"), at("z")], "{found:?}");
        let deep = find(&[folder.path().to_owned()], true);
        assert_eq!(deep.len(), 3, "{deep:?}");
    }

    #[test]
    fn refusals_are_grouped_without_numbers() {
        let reason = |n: u32| vec![format!("no room for {n} bytes at {n:#x}")];
        assert_eq!(group(&reason(3)), group(&reason(17)));
        assert_eq!(group(&reason(3)), "no room for N bytes at N");
        assert_eq!(group(&["a call (int 0x80)".to_owned()]), "a call (int N)");
    }
}
