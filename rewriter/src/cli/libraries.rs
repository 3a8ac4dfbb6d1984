//! The libraries of the program that a command rewrites.

use crate::cache::Cache;
use crate::closure::{Cached, Source, libraries_of};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::pipeline;
use crate::sink::{AtomicFile, write_atomically};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Folder of a bundle's libraries, relative to its program.
pub const BUNDLE_FOLDER: &str = "lib";

/// What becomes of the libraries.
#[derive(Debug, Clone, Copy, Args)]
pub struct LibraryOptions {
    /// Leave the libraries as they are: their accesses are not checked
    #[arg(long)]
    pub no_libraries: bool,
}

impl LibraryOptions {
    /// Where a program rewritten with `options` will find its libraries.
    ///
    /// # Errors
    /// There is no place for a cache.
    pub fn source(self, options: &Options) -> Result<Source> {
        if self.no_libraries {
            return Ok(Source::None);
        }
        Ok(Source::Cache(Cached::new(Cache::of_user()?, *options)?))
    }
}

/// Rewrites all libraries of `program` into the cache that `source` names; shows progress on a terminal. Gives each library with its
/// rewritten form.
///
/// # Errors
/// A library cannot be rewritten.
pub fn prepare(program: &Path, source: &Source) -> Result<Vec<(PathBuf, PathBuf)>> {
    let Source::Cache(cached) = source else { return Ok(Vec::new()) };
    let mut made = Vec::new();
    each(&libraries_of(program)?, |path| {
        made.push((path.to_owned(), cached.add(path)?));
        Ok(())
    })?;
    Ok(made)
}

/// Rewrites the libraries of `program`, and `added` ones, into the bundle at `folder`.
///
/// # Errors
/// A library cannot be rewritten or written; two libraries have the same name.
pub fn bundle(program: &Path, added: &[PathBuf], folder: &Path, options: &Options) -> Result<()> {
    let folder = folder.join(BUNDLE_FOLDER);
    fs::create_dir_all(&folder)
        .map_err(|e| Error::new(format!("cannot make the folder {}", folder.display())).because(e))?;
    // The loader will ask for them by the names that programs use: all links to a file are names of it.
    let mut names: HashMap<PathBuf, PathBuf> = HashMap::new();
    let mut all = libraries_of(program)?;
    for path in added {
        all.extend(libraries_of(path)?);
        all.push(path.clone());
    }
    all.sort();
    all.dedup();
    each(&all, |path| {
        let shown = path.display().to_string();
        let bytes = fs::read(path).map_err(|e| Error::new(format!("{shown}: cannot be read")).because(e))?;
        let mut made: Option<PathBuf> = None;
        for name in names_of(path) {
            if let Some(other) = names.insert(name.clone(), path.to_owned()) {
                return Err(Error::new(format!("{shown} and {} have the same name", other.display())));
            }
            let to = folder.join(name);
            let failed = |e: std::io::Error| Error::new(format!("cannot write {}", to.display())).because(e);
            match &made {
                None => {
                    let mut file = AtomicFile::new(&to, 0o755);
                    let rewritten = pipeline::rewrite_library_to(&bytes, &shown, options, &mut file);
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
}

/// The names under which a library may be asked for: its file's and its soname.
fn names_of(path: &Path) -> Vec<PathBuf> {
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

/// Does `work` for each library, with progress on a terminal.
fn each(libraries: &[PathBuf], mut work: impl FnMut(&Path) -> Result<()>) -> Result<()> {
    let style = ProgressStyle::with_template("{spinner} rewriting {msg} ({pos} of {len} libraries)");
    // Draws on standard error, and only if that is a terminal.
    let bar = ProgressBar::new(libraries.len() as u64).with_style(style.expect("the template is well-formed"));
    bar.enable_steady_tick(Duration::from_millis(200));
    let done = libraries.iter().try_for_each(|path| {
        bar.set_message(path.file_name().unwrap_or(OsStr::new("?")).display().to_string());
        work(path)?;
        bar.inc(1);
        Ok(())
    });
    bar.finish_and_clear();
    done
}
