//! Which libraries a program will load.
//!
//! Input: a path. Output: paths of libraries.
//!
//! The dynamic loader's search (gABI chapter 5, ld.so(8)) over files on disk; nothing is executed. What it does not find,
//! the runtime meets when the program runs: a library rewritten at that moment, or the loader's own message.

use crate::base::error::{Error, Result};
use blizzard_rt::libraries::closure::kept::{LIBC, OPENED_BY_LIBC};
use lddtree::DependencyAnalyzer;
use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The libraries of a program.
#[derive(Debug, Default)]
pub struct Libraries {
    /// The dynamic loader and all libraries that the program and its libraries name, in a fixed order; none for a static program.
    pub named: Vec<PathBuf>,
    /// What the C library opens by itself, if no library names it.
    pub opened_by_libc: Option<PathBuf>,
}

impl Libraries {
    /// All of them.
    pub fn all(&self) -> Vec<PathBuf> {
        self.named.iter().chain(&self.opened_by_libc).cloned().collect()
    }
}

/// The libraries that `program` will load.
///
/// # Errors
/// The program cannot be read.
pub fn libraries_of(program: &Path) -> Result<Libraries> {
    let tree = DependencyAnalyzer::default().analyze(program).map_err(|e| {
        Error::new(format!("{}: cannot find out which libraries it needs", program.display())).because(e)
    })?;
    let mut found = BTreeSet::new();
    found.extend(tree.interpreter.as_deref().and_then(|path| std::fs::canonicalize(path).ok()));
    for library in tree.libraries.values() {
        if let Some(path) = &library.realpath {
            found.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone()));
        }
    }
    let of_name =
        |name: &CStr| name.to_str().ok().and_then(|name| tree.libraries.get(name)).filter(|found| found.found());
    let opened_by_libc = match (of_name(LIBC), of_name(OPENED_BY_LIBC)) {
        (Some(libc), None) => {
            let beside = libc.path.with_file_name(OsStr::from_bytes(OPENED_BY_LIBC.to_bytes()));
            std::fs::canonicalize(beside).ok()
        }
        _ => None,
    };
    Ok(Libraries { named: found.into_iter().collect(), opened_by_libc })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_a_loader_and_a_c_library() {
        let found = libraries_of(Path::new("/proc/self/exe")).unwrap().all();
        let has = |part: &str| found.iter().filter(|path| path.to_string_lossy().contains(part)).count();
        assert_eq!((has("/ld-"), has("libc.")), (1, 1), "{found:?}");
        assert!(libraries_of(Path::new("/proc/self/maps")).is_err());
    }
}
