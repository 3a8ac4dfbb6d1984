//! Which libraries a program will load.
//!
//! The dynamic loader's search (gABI chapter 5, ld.so(8)) over files on disk; nothing is executed. What it does not find,
//! the runtime meets when the program runs: a library rewritten at that moment, or the loader's own message.

use crate::error::{Error, Result};
use blizzard_rt::closure::{LIBC, OPENED_BY_LIBC};
use lddtree::DependencyAnalyzer;
use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The dynamic loader and all libraries that `program` and its libraries name, and what the C library opens by itself, in a fixed order; none for
/// a static program.
///
/// # Errors
/// The program cannot be read.
pub fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
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
    let beside =
        found.iter().find(|path| path.ends_with(name(LIBC))).map(|libc| libc.with_file_name(name(OPENED_BY_LIBC)));
    found.extend(beside.and_then(|path| std::fs::canonicalize(path).ok()));
    Ok(found.into_iter().collect())
}

fn name(of: &CStr) -> &OsStr {
    OsStr::from_bytes(of.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_a_loader_and_a_c_library() {
        let found = libraries_of(Path::new("/proc/self/exe")).unwrap();
        let has = |part: &str| found.iter().filter(|path| path.to_string_lossy().contains(part)).count();
        assert_eq!((has("/ld-"), has("libc.")), (1, 1), "{found:?}");
        assert!(libraries_of(Path::new("/proc/self/maps")).is_err());
    }
}
