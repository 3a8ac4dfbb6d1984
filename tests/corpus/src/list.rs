//! The list of programs: `programs.toml` -> [`Program`].
//!
//! Invariants, checked on reading: names are unique, every program has a kind, a package and a workload, regular expressions
//! compile.

use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The list as it stands in the repository.
pub const LIST: &str = include_str!("../programs.toml");

/// One entry of the list.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub name: String,
    /// What sort of program it is: `--kind` selects by it.
    pub kind: String,
    /// Debian packages that the entry needs; the first one's version is reported. Empty: not from Debian.
    #[serde(default)]
    pub packages: Vec<String>,
    /// The files that are replaced by rewritten ones; without it, the program `name` of PATH.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// A shell command that prints such files, one per line.
    pub locate: Option<String>,
    /// A shell command that prints the version of what is not from Debian.
    pub version: Option<String>,
    /// Run with the original program, in the folder that the workload then starts in; not measured.
    #[serde(default)]
    pub setup: String,
    /// The workload, for `sh -eu`.
    pub run: String,
    /// Replacements in standard output and standard error before they are compared: pairs of expression and text.
    #[serde(default)]
    pub normalise: Vec<(String, String)>,
    /// Created files that are not compared: they differ between two runs of the original, for a stated reason.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// The program looks at its own path, or is started by another one: it must stand at its own place.
    #[serde(default)]
    pub in_place: bool,
    /// Belongs to the small selection.
    #[serde(default)]
    pub quick: bool,
    /// Time limit of one run in seconds.
    #[serde(default = "default_limit")]
    pub limit: u64,
}

fn default_limit() -> u64 {
    300
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    program: Vec<Program>,
}

/// Reads a list.
///
/// # Errors
/// The line and what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Program>, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
    let mut seen = BTreeSet::new();
    for p in &file.program {
        if !seen.insert(&p.name) {
            return Err(format!("{}: listed twice", p.name));
        }
        if p.kind.is_empty() || p.run.trim().is_empty() {
            return Err(format!("{}: needs a kind and a workload", p.name));
        }
        if p.packages.is_empty() && p.version.is_none() {
            return Err(format!("{}: needs a package, or a command that prints its version", p.name));
        }
        p.expressions().map_err(|e| format!("{}: {e}", p.name))?;
    }
    Ok(file.program)
}

impl Program {
    /// The files to be rewritten.
    ///
    /// # Errors
    /// What is not installed.
    pub fn locate(&self) -> Result<Vec<PathBuf>, String> {
        let named = match (&self.locate, self.files.is_empty()) {
            (Some(command), _) => {
                let printed = shell(command).ok_or_else(|| format!("`{command}` fails"))?;
                printed.lines().map(PathBuf::from).collect()
            }
            (None, false) => self.files.clone(),
            (None, true) => vec![find(&self.name).ok_or_else(|| format!("{} is not in PATH", self.name))?],
        };
        if let Some(absent) = self.packages.iter().find(|package| version_of(package).is_none()) {
            return Err(format!("package {absent} is not installed"));
        }
        if named.is_empty() {
            return Err("no file found".to_owned());
        }
        // Links are followed: the file behind them is what runs.
        named.iter().map(|f| f.canonicalize().map_err(|e| format!("{}: {e}", f.display()))).collect()
    }

    /// The version that is installed.
    pub fn installed_version(&self) -> String {
        let own = self.version.as_deref().and_then(shell);
        own.or_else(|| version_of(self.packages.first()?)).unwrap_or_default().trim().to_owned()
    }

    /// The replacements, compiled.
    ///
    /// # Errors
    /// An expression that is none.
    pub fn expressions(&self) -> Result<Vec<(Regex, String)>, String> {
        let compile = |(from, to): &(String, String)| {
            let regex = regex::RegexBuilder::new(from).multi_line(true).build();
            regex.map(|r| (r, to.clone())).map_err(|e| e.to_string())
        };
        self.normalise.iter().map(compile).collect()
    }
}

fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn shell(command: &str) -> Option<String> {
    let output = Command::new("sh").args(["-c", command]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The installed version of a Debian package.
pub fn version_of(package: &str) -> Option<String> {
    let output = Command::new("dpkg-query").args(["-W", "-f", "${Status}\t${Version}", package]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (status, version) = text.split_once('\t')?;
    status.ends_with(" installed").then(|| version.to_owned())
}

/// Whether the folder of `file` is one that programs are looked up in by name.
pub fn is_in_path(file: &Path) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    let Some(name) = file.file_name() else { return false };
    std::env::split_paths(&path).any(|dir| dir.join(name).canonicalize().is_ok_and(|found| found == file))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The demands on the corpus: at least 60 programs of 12 kinds, and those that other rewriters fail on.
    #[test]
    fn the_list_is_as_large_as_demanded() {
        let list = parse(LIST).unwrap();
        let kinds: BTreeSet<_> = list.iter().map(|p| &p.kind).collect();
        assert!(list.len() >= 60, "{} programs", list.len());
        assert!(kinds.len() >= 12, "{} kinds", kinds.len());
        for name in ["cc1", "sqlite3", "python3", "rg", "cargo", "redis-server", "cmake", "perl", "git"] {
            assert!(list.iter().any(|p| p.name == name), "{name}");
        }
        assert!(list.iter().filter(|p| p.quick).count() >= 8);
    }

    #[test]
    fn bad_lists_are_refused() {
        let entry = "[[program]]\nname = 'a'\nkind = 'k'\npackages = ['p']\nrun = 'x'\n";
        assert_eq!(parse(entry).unwrap().len(), 1);
        for (text, part) in [
            (format!("{entry}{entry}"), "twice"),
            (entry.replace("kind = 'k'", "kind = ''"), "needs a kind"),
            (entry.replace("packages = ['p']", ""), "needs a package"),
            (format!("{entry}normalise = [['(', '']]\n"), "unclosed"),
            (format!("{entry}colour = 1\n"), "colour"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
