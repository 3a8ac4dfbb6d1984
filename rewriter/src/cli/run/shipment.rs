//! What a run on several hosts sends to each of them.
//!
//! Input: an original program. Output: the files of its bundle, rewritten into the cache, and their hashes.

use crate::base::error::{Error, Result};
use crate::base::learnt::{Knowledge, LearntSites};
use crate::base::options::Options;
use crate::cli::shared::input::InputFile;
use crate::cli::shared::libraries::{self, BUNDLE_FOLDER, LibraryOptions};
use crate::launch::hosts::bundle::{FileEntry, program_name};
use crate::pipeline::{self, Request};
use crate::read::rewritten;
use crate::store::cache::{Cache, CacheKey};
use crate::store::closure::ClosureSource;
use std::path::PathBuf;

/// Rewrites the program as a bundle, into the cache; each file with its place here, the program first.
///
/// # Errors
/// One of them cannot be rewritten, or the cache cannot be written to.
pub(crate) fn make(input: &InputFile, asked: &Options) -> Result<Vec<(FileEntry, PathBuf)>> {
    let options = rewritten::fitting(&input.bytes, *asked);
    pipeline::expect_program(&input.bytes, &input.name)?;
    let (_, cached) = LibraryOptions::default().fitted_to(&input.bytes, *asked, &Knowledge::default())?;
    let made = libraries::prepare(&input.path, &cached)?;
    let source = ClosureSource::Bundle(BUNDLE_FOLDER.to_owned());
    let request = Request { options: &options, learnt: LearntSites::NONE };
    let key = CacheKey::of_rewrite(&input.bytes, request, &source.record());
    let name = program_name(&input.path);
    let program = Cache::of_user()?.get_or_make(&key, name.as_ref(), 0o700, |sink| {
        let rewritten = pipeline::rewrite_program(&input.bytes, &input.name, request, &source.record(), sink);
        input.bytes.expect_unchanged(&input.name)?;
        rewritten.map(drop)
    })?;
    let mut files = vec![(FileEntry::of(name, &program)?, program)];
    for (original, rewritten) in made {
        let entry = FileEntry::of(String::new(), &rewritten)?;
        for name in libraries::names_of(&original) {
            let path = format!("{BUNDLE_FOLDER}/{}", name.display());
            if files.iter().any(|(other, _)| other.path == path && other.hash != entry.hash) {
                return Err(Error::new(format!("{}: has the name of another library", original.display())));
            }
            if files.iter().all(|(other, _)| other.path != path) {
                files.push((FileEntry { path, ..entry.clone() }, rewritten.clone()));
            }
        }
    }
    Ok(files)
}
