//! The files of a run, on each host.
//!
//! Purpose: a rewritten program and its libraries are sent to a host once, by their contents. Input: [`FileEntry`]s, the bytes of those that are not there yet. Output: a
//! folder that holds the program as [`blizzard rewrite --bundle`](crate::store::closure::ClosureSource::Bundle) would make it.
//!
//! ```text
//! <cache>/<sha-256 of a file>/file       what was sent
//! <cache>/<sha-256 of the list>/bundle/NAME, …/bundle/lib/NAME     links to these
//! ```
//!
//! **Invariants**: what was sent has the hash that the list says; a folder gets its name when all of it is there.

use crate::base::error::{Error, Result};
use crate::base::output_file::{again_if_gone, make_folder};
use crate::store::cache::{Cache, CacheKey, KEEP};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use tempfile::NamedTempFile;

/// Name of a file that was sent, in the folder of its hash.
const FILE: &str = "file";
/// Folder of a bundle, in that of its list.
const BUNDLE: &str = "bundle";

/// A file of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Where it stands in the bundle: `heat`, `lib/libc.so.6`.
    pub path: String,
    /// SHA-256 of its bytes.
    pub hash: String,
    pub bytes: u64,
}

fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl FileEntry {
    /// The file `from`, to stand at `path`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(path: String, from: &Path) -> Result<FileEntry> {
        let failed = |e: std::io::Error| Error::new(format!("{}: cannot be read", from.display())).because(e);
        let mut file = File::open(from).map_err(failed)?;
        let (mut hash, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; 1 << 20]);
        loop {
            match file.read(&mut piece).map_err(failed)? {
                0 => break,
                count => {
                    hash.update(&piece[..count]);
                    bytes += count as u64;
                }
            }
        }
        Ok(FileEntry { path, hash: hex(&hash.finalize()), bytes })
    }

    /// A name, or `lib/` and a name: nothing that leads elsewhere.
    fn is_inside(&self) -> bool {
        let parts: Vec<_> = Path::new(&self.path).components().collect();
        (1..=2).contains(&parts.len()) && parts.iter().all(|part| matches!(part, Component::Normal(_)))
    }

    fn is_a_hash(&self) -> bool {
        self.hash.len() == 64 && self.hash.bytes().all(|b| b.is_ascii_hexdigit())
    }
}

/// The files of a run, on this host.
#[derive(Debug)]
pub struct Store {
    cache: Cache,
    files: Vec<FileEntry>,
    /// The file that is being received: its place in the list.
    receiving: Option<(usize, NamedTempFile, Sha256, u64)>,
}

impl Store {
    /// For these files, of which the first is the program.
    ///
    /// # Errors
    /// The list names a file outside of the bundle, or none at all.
    pub fn new(cache: Cache, files: Vec<FileEntry>) -> Result<Store> {
        if files.is_empty() || !files.iter().all(|file| file.is_inside() && file.is_a_hash()) {
            return Err(Error::new("the launcher's list of files is not one that a launcher makes"));
        }
        Ok(Store { cache, files, receiving: None })
    }

    fn place(&self, file: &FileEntry) -> PathBuf {
        self.cache.root().join(&file.hash).join(FILE)
    }

    /// Where the bundle is to be.
    fn folder(&self) -> PathBuf {
        let lines: Vec<String> = self.files.iter().map(|file| format!("{} {}", file.hash, file.path)).collect();
        self.cache.root().join(CacheKey::new(&[b"bundle", lines.join("\n").as_bytes()]).whole())
    }

    /// The program, if the bundle is there.
    pub fn program(&self) -> Option<PathBuf> {
        let folder = self.folder();
        let is_there = |file: &FileEntry| {
            fs::metadata(folder.join(BUNDLE).join(&file.path)).is_ok_and(|m| m.is_file() && m.len() == file.bytes)
        };
        self.files.iter().all(is_there).then(|| {
            // Marks the entry as used.
            let _ = File::open(&folder).and_then(|dir| dir.set_modified(std::time::SystemTime::now()));
            folder.join(BUNDLE).join(&self.files[0].path)
        })
    }

    /// Files that must be sent, each once.
    pub fn missing(&self) -> Vec<usize> {
        if self.program().is_some() {
            return Vec::new();
        }
        let is_there = |file: &FileEntry| fs::metadata(self.place(file)).is_ok_and(|m| m.len() == file.bytes);
        let first = |at: &usize| self.files.iter().position(|file| file.hash == self.files[*at].hash) == Some(*at);
        (0..self.files.len()).filter(|at| first(at) && !is_there(&self.files[*at])).collect()
    }

    /// The next bytes of a file.
    ///
    /// # Errors
    /// The cache cannot be written to; what has come is not what the list says.
    pub fn put(&mut self, index: usize, bytes: &[u8], is_last: bool) -> Result<()> {
        let root = self.cache.root().to_owned();
        let failed = |e: std::io::Error| {
            Error::new(format!("cannot write to the cache folder {}", root.display()))
                .because(e)
                .help("set BLIZZARD_CACHE to a folder that can be written to")
        };
        let entry = self.files.get(index).cloned();
        let entry = entry.ok_or_else(|| Error::new("the launcher sends a file that is not in its list"))?;
        if self.receiving.as_ref().is_none_or(|(at, ..)| *at != index) {
            make_folder(&root, 0o700).map_err(failed)?;
            let file = tempfile::Builder::new().prefix(".file.").tempfile_in(&root).map_err(failed)?;
            self.receiving = Some((index, file, Sha256::new(), 0));
        }
        let (_, file, hash, length) = self.receiving.as_mut().expect("it was just made");
        std::io::Write::write_all(file, bytes).map_err(failed)?;
        hash.update(bytes);
        *length += bytes.len() as u64;
        if !is_last {
            return Ok(());
        }
        let (_, file, hash, length) = self.receiving.take().expect("it is there");
        if length != entry.bytes || hex(&hash.finalize()) != entry.hash {
            return Err(Error::new(format!("{}: what has come is not what was to be sent", entry.path)));
        }
        let place = self.place(&entry);
        let folder = place.parent().unwrap_or(&root);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        file.as_file().set_permissions(mode).map_err(failed)?;
        let mut file = Some(file.into_temp_path());
        again_if_gone(|| {
            make_folder(folder, 0o700)?;
            let unnamed = file.take().expect("it is put back where it got no name");
            unnamed.persist(&place).map_err(|e| {
                file = Some(e.path);
                e.error
            })
        })
        .map_err(failed)
    }

    /// Makes the bundle, if it is not there yet; its program.
    ///
    /// # Errors
    /// A file has not come; the cache cannot be written to.
    pub fn assemble(&self) -> Result<PathBuf> {
        if let Some(program) = self.program() {
            return Ok(program);
        }
        let failed = |e: std::io::Error| {
            Error::new(format!("cannot write to the cache folder {}", self.cache.root().display())).because(e)
        };
        let folder = self.folder();
        let made = again_if_gone(|| {
            make_folder(&folder, 0o700)?;
            tempfile::Builder::new().prefix(".bundle.").tempdir_in(&folder)
        })
        .map_err(failed)?;
        for file in &self.files {
            let to = made.path().join(&file.path);
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).map_err(failed)?;
            }
            let from = self.place(file);
            // The program finds its libraries beside its own file, so a symbolic link would not do.
            fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop)).map_err(failed)?;
        }
        let place = folder.join(BUNDLE);
        // What was there is not whole, or somebody was faster.
        if fs::rename(made.path(), &place).is_err() && self.program().is_none() {
            let _ = fs::remove_dir_all(&place);
            fs::rename(made.path(), &place).map_err(failed)?;
        }
        let _ = self.cache.clean(KEEP);
        self.program().ok_or_else(|| Error::new("the files of the run are not what the launcher has sent"))
    }
}

/// The name of a program's file in a bundle.
pub fn program_name(path: &Path) -> String {
    path.file_name().unwrap_or(OsStr::new("program")).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, bytes: &[u8]) -> FileEntry {
        FileEntry { path: path.into(), hash: hex(&Sha256::digest(bytes)), bytes: bytes.len() as u64 }
    }

    #[test]
    fn files_are_sent_once_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let cache = || Cache::at(folder.path().join("cache"));
        let files = vec![entry("prog", b"abc"), entry("lib/x.so", b"defg"), entry("lib/x.so.1", b"defg")];
        let mut store = Store::new(cache(), files.clone()).unwrap();
        assert_eq!(store.missing(), [0, 1]);
        store.put(0, b"a", false).unwrap();
        store.put(0, b"bc", true).unwrap();
        assert!(store.put(1, b"defh", true).unwrap_err().what.contains("not what was to be sent"));
        assert_eq!(store.missing(), [1]);
        assert!(store.assemble().is_err());
        store.put(1, b"defg", true).unwrap();
        let program = store.assemble().unwrap();
        assert_eq!(fs::read(&program).unwrap(), b"abc");
        assert_eq!(fs::read(program.with_file_name("lib").join("x.so.1")).unwrap(), b"defg");
        assert!(Store::new(cache(), files).unwrap().missing().is_empty());
        // Another program with the same library.
        let other = Store::new(cache(), vec![entry("other", b"hi"), entry("lib/x.so", b"defg")]).unwrap();
        assert_eq!(other.missing(), [0]);
    }

    #[test]
    fn a_list_that_leads_out_of_the_bundle_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["../x", "/x", "lib/../../x", "a/b/c", ""] {
            assert!(Store::new(Cache::at(folder.path()), vec![entry(path, b"")]).is_err(), "{path}");
        }
        let odd = FileEntry { hash: "../x".into(), ..entry("x", b"") };
        assert!(Store::new(Cache::at(folder.path()), vec![odd]).is_err());
        assert!(Store::new(Cache::at(folder.path()), Vec::new()).is_err());
    }

    #[test]
    fn a_file_is_described_by_its_contents() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x"), b"abc").unwrap();
        assert_eq!(FileEntry::of("prog".into(), &folder.path().join("x")).unwrap(), entry("prog", b"abc"));
    }
}
