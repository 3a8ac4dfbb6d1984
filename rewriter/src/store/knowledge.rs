//! What runs have learnt, kept in the cache: one text for each program, about it and its libraries.
//!
//! Input: a run's [`LearntPlace`]s, and the files that it ran. Output: [`Knowledge`], which grows. **Invariants**: a reader finds a whole text or none; whoever adds to it
//! holds a lock on its folder, so nothing is lost where runs end together. What cannot be read is as if nothing had been learnt.

use crate::base::error::{Error, Result};
use crate::base::learnt::{Knowledge, Object};
use crate::base::memory::MappedFile;
use crate::base::output_file::{again_if_gone, make_folder, write_atomically};
use crate::read::accesses::Accesses;
use crate::store::cache::{Cache, CacheKey};
use blizzard_contract::LearntPlace;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Where a program's text is.
pub fn place(cache: &Cache, program: Object) -> PathBuf {
    cache.file(&CacheKey::new(&[b"learnt", &program.0]), "learnt".as_ref())
}

/// What is known of a program and its libraries.
pub fn of_program(cache: &Cache, program: Object) -> Knowledge {
    let path = place(cache, program);
    let text = fs::read_to_string(&path).ok();
    let known = text.and_then(|text| Knowledge::parse(&text, &path).ok());
    if known.is_some() {
        // It is in use.
        let _ =
            File::open(path.parent().unwrap_or(&path)).and_then(|dir| dir.set_modified(std::time::SystemTime::now()));
    }
    known.unwrap_or_default()
}

/// Adds to what is known of a program; what is known then.
///
/// # Errors
/// The cache folder cannot be written to.
pub fn add(cache: &Cache, program: Object, learnt: &Knowledge) -> Result<Knowledge> {
    let path = place(cache, program);
    let folder = path.parent().unwrap_or(&path);
    again_if_gone(|| {
        make_folder(folder, 0o700)?;
        // Given back when the descriptor is closed.
        let lock = File::open(folder)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        merge_into(&path, learnt)
    })
    .map_err(|e| Error::new(format!("cannot keep what the run has learnt in {}", path.display())).because(e))
}

/// Adds to a text, or makes it; whoever calls this keeps others away.
fn merge_into(path: &Path, learnt: &Knowledge) -> io::Result<Knowledge> {
    let before = fs::read_to_string(path).ok().and_then(|text| Knowledge::parse(&text, path).ok());
    let mut known = before.unwrap_or_default();
    known.merge(learnt);
    write_atomically(path, known.text().as_bytes(), 0o600)?;
    Ok(known)
}

/// What a run of these files has learnt.
pub fn of_run(places: &[LearntPlace], files: &[PathBuf]) -> Knowledge {
    let mut knowledge = Knowledge::default();
    let mut numbers: BTreeSet<u32> = places.iter().map(|place| (place.access >> 32) as u32).collect();
    for path in files {
        if numbers.is_empty() {
            break;
        }
        let Ok(file) = File::open(path).and_then(|file| MappedFile::of(&file, &path.display().to_string())) else {
            continue;
        };
        let Some(accesses) = Accesses::of(&file, |number| numbers.remove(&number)) else { continue };
        // A link of the cache leads to a file with the library's name.
        let name = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let name = name.file_name().unwrap_or_default().to_string_lossy();
        for place in places {
            if let Some(at) = accesses.find(place.access) {
                knowledge.add(accesses.object, &name, at, place.faults);
            }
        }
    }
    knowledge
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::addresses::Vaddr;

    #[test]
    fn runs_that_end_together_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache"));
        let program = Object([7; 8]);
        assert!(of_program(&cache, program).is_empty());
        std::thread::scope(|scope| {
            for k in 0..8 {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..20 {
                        let mut learnt = Knowledge::default();
                        learnt.add(program, "p", Vaddr(k), 1);
                        learnt.add(program, "p", Vaddr(100 + round), 1);
                        add(cache, program, &learnt).unwrap();
                    }
                });
            }
        });
        let known = of_program(&cache, program);
        let faults: Vec<u64> = known.of(program).all().map(|site| site.1).collect();
        assert_eq!(faults, [[20; 8].as_slice(), &[8; 20]].concat());
        fs::write(place(&cache, program), "damaged").unwrap();
        assert!(of_program(&cache, program).is_empty());
        let mut learnt = Knowledge::default();
        learnt.add(program, "p", Vaddr(1), 1);
        assert_eq!(add(&cache, program, &learnt).unwrap(), learnt);
    }
}
