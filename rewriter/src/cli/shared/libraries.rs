//! The libraries of the program that a command rewrites.
//!
//! Input: a program, options. Output: its libraries, rewritten into the cache or into a bundle, several at once, with progress on a terminal.
//! **Invariant**: after a failure no more are begun; of several failures it is the first library's.

use crate::base::error::{Error, Result};
use crate::base::learnt::{Knowledge, LearntSites, Object};
use crate::base::memory::MappedFile;
use crate::base::options::Options;
use crate::base::output_file::{AtomicFile, write_atomically};
use crate::base::progress;
use crate::pipeline::{self, Request};
use crate::read::rewritten;
use crate::store::cache::Cache;
use crate::store::closure::{Cached, ClosureSource};
use crate::store::library_search::libraries_of;
use clap::Args;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Folder of a bundle's libraries, relative to its program.
pub const BUNDLE_FOLDER: &str = "lib";

/// What becomes of the libraries.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct LibraryOptions {
    /// Leave the libraries as they are: their accesses are not checked
    #[arg(long)]
    pub no_libraries: bool,
}

impl LibraryOptions {
    /// The options that fit the file `program`, and where it will find its libraries, which are rewritten with the same.
    ///
    /// # Errors
    /// There is no place for a cache.
    pub fn fitted(self, program: &[u8], asked: Options) -> Result<(Options, ClosureSource)> {
        self.fitted_to(program, asked, &Knowledge::default())
    }

    /// As [`LibraryOptions::fitted`], where something is known of the program and its libraries.
    ///
    /// # Errors
    /// As there, or it cannot be written to.
    pub fn fitted_to(self, program: &[u8], asked: Options, learnt: &Knowledge) -> Result<(Options, ClosureSource)> {
        let options = rewritten::fitting(program, asked);
        let source = match self.no_libraries {
            true => ClosureSource::None,
            false => {
                let cached = Cached::new(Cache::of_user()?, options)?;
                let known = !learnt.is_empty();
                let of_libraries =
                    if known { learnt.accesses_but_of(Object::of(program)) } else { Knowledge::default() };
                ClosureSource::Cache(cached.with_learnt(of_libraries)?)
            }
        };
        Ok((options, source))
    }
}

/// Rewrites all libraries of `program` into the cache that `source` names; shows progress on a terminal. Gives each library with its
/// rewritten form.
///
/// # Errors
/// A library cannot be rewritten.
pub fn prepare(program: &Path, source: &ClosureSource) -> Result<Vec<(PathBuf, PathBuf)>> {
    let ClosureSource::Cache(cached) = source else { return Ok(Vec::new()) };
    each(&libraries_of(program)?.all(), |path| Ok((path.to_owned(), cached.add(path)?)))
}

/// Rewritten libraries, given with their originals, under all names by which programs ask for them.
///
/// # Errors
/// Two of them have the same name.
pub fn by_name(made: Vec<(PathBuf, PathBuf)>) -> Result<Vec<(PathBuf, PathBuf)>> {
    let mut named: Vec<(PathBuf, PathBuf)> = Vec::new();
    for (original, rewritten) in made {
        for name in names_of(&original) {
            match named.iter().find(|(other, _)| *other == name) {
                None => named.push((name, rewritten.clone())),
                // The folder in the cache tells contents apart.
                Some((_, other)) if other.parent() == rewritten.parent() => {}
                Some(_) => return Err(Error::new(format!("{}: has the name of another library", original.display()))),
            }
        }
    }
    Ok(named)
}

/// Rewrites the libraries of `program`, and `added` ones, into the bundle at `folder`.
///
/// # Errors
/// A library cannot be rewritten or written; two libraries have the same name.
pub fn bundle(program: &Path, added: &[PathBuf], folder: &Path, options: &Options, learnt: &Knowledge) -> Result<()> {
    let folder = folder.join(BUNDLE_FOLDER);
    fs::create_dir_all(&folder)
        .map_err(|e| Error::new(format!("cannot make the folder {}", folder.display())).because(e))?;
    // The loader will ask for them by the names that programs use: all links to a file are names of it.
    let mut names: HashMap<PathBuf, PathBuf> = HashMap::new();
    let of_program = libraries_of(program)?;
    let mut all = of_program.named;
    for path in added {
        all.extend(libraries_of(path)?.named);
        all.push(path.clone());
    }
    let has = |path: &PathBuf| all.iter().any(|other| other.file_name() == path.file_name());
    all.extend(of_program.opened_by_libc.filter(|path| !has(path)));
    all.sort();
    all.dedup();
    for path in &all {
        for name in names_of(path) {
            if let Some(other) = names.insert(name, path.to_owned()) {
                return Err(Error::new(format!("{} and {} have the same name", path.display(), other.display())));
            }
        }
    }
    each(&all, |path| {
        let shown = path.display().to_string();
        let bytes = File::open(path).and_then(|file| MappedFile::of(&file, &shown));
        let bytes = bytes.map_err(|e| Error::new(format!("{shown}: cannot be read")).because(e))?;
        let mut made: Option<PathBuf> = None;
        for name in names_of(path) {
            let to = folder.join(name);
            let failed = |e: std::io::Error| Error::new(format!("cannot write {}", to.display())).because(e);
            match &made {
                None => {
                    let mut file = AtomicFile::new(&to, 0o755);
                    let rewritten = {
                        let learnt = if learnt.is_empty() { LearntSites::NONE } else { learnt.of(Object::of(&bytes)) };
                        pipeline::rewrite_library_to(&bytes, &shown, Request { options, learnt }, &mut file)
                    };
                    bytes.expect_unchanged(&shown)?;
                    file.failure().map_or(Ok(()), |e| Err(failed(e)))?;
                    rewritten?;
                    file.finish().map_err(failed)?;
                    made = Some(to);
                }
                Some(first) => {
                    let bytes = fs::read(first).map_err(failed)?;
                    write_atomically(&to, &bytes, 0o755).map_err(failed)?;
                }
            }
        }
        Ok(())
    })
    .map(drop)
}

/// The names under which a library may be asked for: its file's and its soname.
pub fn names_of(path: &Path) -> Vec<PathBuf> {
    let mut names = Vec::from_iter(path.file_name().map(PathBuf::from));
    let soname = fs::read(path).ok().and_then(|bytes| {
        let elf = goblin::elf::Elf::parse(&bytes).ok()?;
        elf.soname.map(PathBuf::from)
    });
    names.extend(soname);
    names.sort();
    names.dedup();
    names
}

/// Does `work` for each library, several at once, with progress on a terminal; the results in the order of the libraries. After a failure no
/// more are begun; of several failures it is the first library's.
fn each<T: Send>(libraries: &[PathBuf], work: impl Fn(&Path) -> Result<T> + Sync) -> Result<Vec<T>> {
    // The largest first, so that no processor is left with it at the end.
    let mut order: Vec<usize> = (0..libraries.len()).collect();
    order.sort_by_key(|&k| Reverse(fs::metadata(&libraries[k]).map_or(0, |m| m.len())));
    let name = |path: &PathBuf| path.file_name().unwrap_or(OsStr::new("?")).display().to_string();
    let template = "{spinner} rewriting {msg} ({pos} of {len} libraries)";
    let bar = progress::begin(
        libraries.len() as u64,
        template,
        order.first().map_or(String::new(), |&k| name(&libraries[k])),
    );
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let worker = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed)
            && let Some(&k) = order.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let path = &libraries[k];
            bar.set_message(name(path));
            let result = work(path);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((k, result));
            bar.inc(1);
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(libraries.len());
    let mut done: Vec<(usize, Result<T>)> = std::thread::scope(|scope| {
        // Where the system gives no more threads, those that there are do it all.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, worker).ok();
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let mut done = worker();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    drop(bar);
    done.sort_by_key(|(k, _)| *k);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(count: usize) -> Vec<PathBuf> {
        (0..count).map(|k| PathBuf::from(format!("/absent/{k}"))).collect()
    }

    #[test]
    fn results_come_in_the_order_of_the_libraries() {
        for count in [0, 1, 2, 40] {
            let libraries = paths(count);
            assert_eq!(each(&libraries, |path| Ok(path.to_owned())).unwrap(), libraries);
        }
    }

    #[test]
    fn a_failure_is_reported_and_ends_the_work() {
        let begun = AtomicUsize::new(0);
        let error = each(&paths(1000), |path| {
            begun.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(Error::new(path.display().to_string()))
        });
        assert!(error.unwrap_err().what.starts_with("/absent/"));
        assert!(begun.into_inner() < 1000);
    }
}
