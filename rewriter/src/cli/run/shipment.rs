//! What a run on several hosts sends to each of them.
//!
//! Input: an original program, or one that is a bundle with its libraries. Output: the files of the bundle, rewritten into the cache or as they are, and their hashes.

use crate::base::error::{Error, Result};
use crate::base::learnt::{Knowledge, LearntSites, Object};
use crate::base::options::Options;
use crate::cli::shared::input::InputFile;
use crate::cli::shared::libraries::{self, BUNDLE_FOLDER, LibraryOptions};
use crate::launch::hosts::bundle::{FileEntry, program_name};
use crate::pipeline::{self, Request};
use crate::read::rewritten;
use crate::store::cache::{Cache, CacheKey};
use crate::store::closure::ClosureSource;
use std::path::PathBuf;

/// Rewrites the program as a bundle, into the cache, with tests where runs have `learnt` that they pay; each file with its place here, the program first.
///
/// # Errors
/// One of them cannot be rewritten, or the cache cannot be written to.
pub(crate) fn make(input: &InputFile, asked: &Options, learnt: &Knowledge) -> Result<Vec<(FileEntry, PathBuf)>> {
    let options = rewritten::fitting(&input.bytes, *asked);
    pipeline::expect_program(&input.bytes, &input.name)?;
    let (_, cached) = LibraryOptions::default().fitted_to(&input.bytes, *asked, learnt)?;
    let made = libraries::prepare(&input.path, &cached)?;
    let source = ClosureSource::Bundle(BUNDLE_FOLDER.to_owned());
    let learnt = if learnt.is_empty() { LearntSites::NONE } else { learnt.of(Object::of(&input.bytes)) };
    let request = Request { options: &options, learnt };
    let key = CacheKey::of_rewrite(&input.bytes, request, &source.record());
    let name = program_name(&input.path);
    let program = Cache::of_user()?.get_or_make(&key, name.as_ref(), 0o700, |sink| {
        let rewritten = pipeline::rewrite_program(&input.bytes, &input.name, request, &source.record(), sink);
        input.bytes.expect_unchanged(&input.name)?;
        rewritten.map(drop)
    })?;
    entries(&name, program, libraries::by_name(made)?)
}

/// The files of a bundle, or of a rewritten program that needs no libraries: the program first.
///
/// # Errors
/// It is no bundle, or a file cannot be read.
pub(crate) fn of_bundle(input: &InputFile) -> Result<Vec<(FileEntry, PathBuf)>> {
    let name = program_name(&input.path);
    let is_whole = rewritten::rewritten_with(&input.bytes).is_some_and(|flags| flags.libraries);
    let folder = rewritten::libraries_folder(&input.path);
    let own_folder = input.path.parent().map(|parent| parent.join(BUNDLE_FOLDER));
    if !is_whole || folder.is_some() && folder != own_folder {
        return Err(Error::new(format!("{}: has been rewritten already, for this host", input.name)).help(
            "give the original program, which is rewritten and sent, or what `blizzard rewrite --bundle` has made",
        ));
    }
    let failed = |e: std::io::Error| Error::new(format!("{}: the bundle cannot be read", input.name)).because(e);
    let mut libraries = Vec::new();
    for entry in
        folder.iter().map(std::fs::read_dir).collect::<std::io::Result<Vec<_>>>().map_err(failed)?.into_iter().flatten()
    {
        let path = entry.map_err(failed)?.path();
        if path.is_file() {
            libraries.push((path.file_name().unwrap_or_default().into(), path));
        }
    }
    libraries.sort();
    entries(&name, input.path.clone(), libraries)
}

/// The program, and libraries with their names, where they stand on each host.
fn entries(name: &str, program: PathBuf, libraries: Vec<(PathBuf, PathBuf)>) -> Result<Vec<(FileEntry, PathBuf)>> {
    let mut files = vec![(FileEntry::of(name.to_owned(), &program)?, program)];
    for (name, path) in libraries {
        let at = format!("{BUNDLE_FOLDER}/{}", name.display());
        let entry = match files.last() {
            // Another name of the same file.
            Some((last, before)) if *before == path => FileEntry { path: at, ..last.clone() },
            _ => FileEntry::of(at, &path)?,
        };
        files.push((entry, path));
    }
    Ok(files)
}
