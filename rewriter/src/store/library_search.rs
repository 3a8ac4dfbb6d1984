//! Which libraries a program will load.
//!
//! Input: a path. Output: paths of libraries.
//!
//! The dynamic loader's search (gABI chapter 5, ld.so(8)) over files on disk; nothing is executed. What it does not find,
//! the runtime meets when the program runs: a library rewritten at that moment, or the loader's own message.

use crate::base::error::{Error, Result};
use blizzard_rt::libraries::closure::opened_by_libc::{LIBC, LIBGCC};
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
    let tree = analyzer().analyze(program).map_err(|e| {
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
    let opened_by_libc = match (of_name(LIBC), of_name(LIBGCC)) {
        (Some(libc), None) => {
            let beside = libc.path.with_file_name(OsStr::from_bytes(LIBGCC.to_bytes()));
            std::fs::canonicalize(beside).ok()
        }
        _ => None,
    };
    Ok(Libraries { named: found.into_iter().collect(), opened_by_libc })
}

/// `lddtree` takes relative folders of the environment for folders of `/`.
fn analyzer() -> DependencyAnalyzer {
    DependencyAnalyzer::default().library_paths(folders_of_environment())
}

/// The folders that `LD_LIBRARY_PATH` names; an empty name is the current folder.
fn folders_of_environment() -> Vec<PathBuf> {
    let list = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_default();
    let folder = |name: &str| if name.is_empty() { here.clone() } else { here.join(name) };
    if list.is_empty() { Vec::new() } else { list.split([':', ';']).map(folder).collect() }
}

/// Where the dynamic loader looks besides what a program and the environment say: its own list depends on how it was built, so here are those of all.
const USUAL: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
];
/// The loader's list of libraries (ldconfig(8)).
const CACHE: &str = "/etc/ld.so.cache";

/// Refuses a program that the dynamic loader could not start, because a library is nowhere. What can be a library of that name counts as found: it is the
/// loader's part to say more.
///
/// # Errors
/// A library is missing.
pub fn expect_libraries(program: &Path) -> Result<()> {
    // What is no program, others say better.
    let Ok(tree) = analyzer().analyze(program) else { return Ok(()) };
    // musl's loader is its C library, under whatever name.
    if tree.interpreter.as_deref().is_none_or(|loader| loader.contains("musl")) {
        return Ok(());
    }
    let mut paths = named_folders(program);
    paths.extend(tree.rpath.iter().cloned());
    paths.extend(tree.libraries.values().flat_map(|library| library.rpath.clone()));
    // Names that only the loader can complete.
    if paths.iter().any(|path| path.contains("$LIB") || path.contains("$PLATFORM") || path.contains("${")) {
        return Ok(());
    }
    paths.extend(folders_of_environment().iter().map(|folder| folder.display().to_string()));
    paths.extend(USUAL.map(str::to_owned));
    let cache = std::fs::read(CACHE).unwrap_or_default();
    let is_there = |name: &str| match name.contains('/') {
        true => Path::new(name).exists(),
        false => {
            let listed = [b"\0", name.as_bytes(), b"\0"].concat();
            memchr::memmem::find(&cache, &listed).is_some()
                || paths.iter().any(|path| Path::new(path).join(name).exists())
        }
    };
    // One that is loaded under another name, too.
    let is_known = |name: &str| {
        tree.libraries
            .values()
            .filter_map(|library| library.realpath.as_deref())
            .any(|path| soname(path).as_deref() == Some(name))
    };
    let missing = tree.libraries.values().filter(|library| !library.found()).map(|library| library.name.as_str());
    let mut missing: Vec<&str> = missing.filter(|name| !is_there(name) && !is_known(name)).collect();
    missing.sort_unstable();
    let Some(first) = missing.first() else { return Ok(()) };
    let who = tree.libraries.values().find(|library| library.needed.iter().any(|name| name == first));
    let by = who.map_or(String::new(), |library| format!(", which {} needs", library.name));
    let mut seen = BTreeSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    let mut error = Error::new(format!(
        "{}: {first}{by}: cannot open shared object file: No such file or directory",
        program.display()
    ));
    for more in &missing[1..] {
        error = error.because(format!("{more} is missing, too"));
    }
    Err(error
        .because(format!("looked for in {}, and {CACHE}", paths.join(", ")))
        .help("install it, or name its folder in LD_LIBRARY_PATH; --no-libraries rewrites the program alone"))
}

/// The folders that a program names itself, also those that are not there.
fn named_folders(program: &Path) -> Vec<String> {
    let Ok(bytes) = std::fs::read(program) else { return Vec::new() };
    let Ok(elf) = goblin::elf::Elf::parse(&bytes) else { return Vec::new() };
    let place = std::fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
    let origin = place.parent().unwrap_or(Path::new("/")).display().to_string();
    let named = elf.runpaths.iter().chain(&elf.rpaths).flat_map(|list| list.split(':')).filter(|path| !path.is_empty());
    named.map(|path| path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin)).collect()
}

/// The name that a library gives itself.
fn soname(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    goblin::elf::Elf::parse(&bytes).ok()?.soname.map(str::to_owned)
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
