//! Files that Blizzard makes once and uses often: rewritten programs, the client library.
//!
//! Input: a [`CacheKey`], and how its file is made. Output: the file.
//!
//! An entry is a folder named by a hash of everything its contents depend on, so an entry is never out of date and never
//! changed; a writer makes the file under a temporary name in that folder and renames it, so a reader sees a whole file or
//! none, and any number of writers may race: all write the same bytes.
//!
//! ```text
//! <root>/<sha-256>/<name>      rewritten program: the name is the program's, so that ps and top show it
//! ```
//!
//! The root is `$BLIZZARD_CACHE`, else `$XDG_CACHE_HOME/blizzard`, else `$HOME/.cache/blizzard`. It is created readable by its
//! owner only. Somebody else who starts a program, and so cannot write there, uses a cache of their own ([`Cache::or_own`]). Entries that nobody has used
//! for [`KEEP`] are removed when a new one is made.

use crate::base::error::{Error, Result};
use crate::base::output_file::{AtomicFile, OutputSink};
use crate::pipeline::Request;
use crate::write::file::LibraryRecord;
use blizzard_rt::libraries::closure::own_cache;
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, accessat, statvfs};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long an unused entry is kept.
pub const KEEP: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The cache folder.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// A rewritten file.
#[derive(Debug, Clone)]
pub struct CacheEntry {
    pub path: PathBuf,
    pub bytes: u64,
    /// Time since its last use.
    pub unused: Duration,
}

/// The name of an entry: a hash of what its contents depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheKey(String);

impl CacheKey {
    /// Hashes `parts`; each is preceded by its length, so that no two lists of parts run into each other.
    pub fn new(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let mut name = String::with_capacity(64);
        for byte in hash.finalize() {
            write!(name, "{byte:02x}").expect("writing to a string cannot fail");
        }
        CacheKey(name)
    }

    /// The key of the library `input` rewritten by this executable as asked.
    pub fn of_library<'r>(input: &[u8], request: impl Into<Request<'r>>) -> Self {
        let Request { options, learnt } = request.into();
        let options = format!("{options:?}");
        CacheKey::new(&[b"library", tool_identity().as_bytes(), options.as_bytes(), &learnt.word(), input])
    }

    /// All of it.
    pub fn whole(&self) -> &str {
        &self.0
    }

    /// Its first characters, enough to tell a few apart.
    pub fn short(&self) -> String {
        self.0[..16].to_owned()
    }

    /// The key of `input` rewritten by this executable as asked, to be run with `libraries`.
    pub fn of_rewrite<'r>(input: &[u8], request: impl Into<Request<'r>>, libraries: &LibraryRecord) -> Self {
        let Request { options, learnt } = request.into();
        let options = format!("{options:?}");
        let word = learnt.word();
        CacheKey::new(&[b"rewrite", tool_identity().as_bytes(), options.as_bytes(), &word, libraries.bytes(), input])
    }
}

/// Tells two builds of Blizzard apart even where they carry the same version number.
pub fn tool_identity() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match std::env::current_exe().and_then(fs::metadata) {
        Ok(exe) => format!("{version} {} {} {}.{}", exe.ino(), exe.len(), exe.mtime(), exe.mtime_nsec()),
        Err(_) => version.to_owned(),
    }
}

impl Cache {
    /// The user's cache, as the environment says.
    ///
    /// # Errors
    /// When the environment names no place for it.
    pub fn of_user() -> Result<Self> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let root = match std::env::var_os("BLIZZARD_CACHE").filter(|value| !value.is_empty()) {
            // A relative folder is meant as seen from here.
            Some(own) => std::path::absolute(own).ok(),
            None => absolute("XDG_CACHE_HOME")
                .map(|base| base.join("blizzard"))
                .or_else(|| absolute("HOME").map(|home| home.join(".cache/blizzard"))),
        };
        root.map(Cache::at).ok_or_else(|| {
            Error::new("there is no place for rewritten programs: HOME is not set")
                .help("set BLIZZARD_CACHE to a folder, or rewrite the program yourself: blizzard rewrite PROG -o OUT")
        })
    }

    /// A cache in the folder `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Cache { root: root.into() }
    }

    /// This cache, if this process may write to it; else one of the user that it runs as, where the program's runtime looks, too.
    ///
    /// # Errors
    /// There is no such cache, and something else in its place.
    pub fn or_own(self) -> Result<Self> {
        let place = self.root.ancestors().find_map(|place| fs::metadata(place).ok().map(|m| (place, m)));
        let Some((place, m)) = place else { return Ok(self) };
        match accessat(CWD, place, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if m.is_dir() => Cache::own(),
            _ => Ok(self),
        }
    }

    /// The cache of the user that this process runs as, in the folder that the runtime expects.
    fn own() -> Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        let mut root = String::new();
        own_cache::root(&mut root, user).expect("writing to a string cannot fail");
        let failed = |e: std::io::Error| Error::new(format!("cannot make the cache folder {root}")).because(e);
        match DirBuilder::new().mode(0o700).create(&root) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(failed(e)),
            _ => {}
        }
        let m = fs::symlink_metadata(&root).map_err(failed)?;
        let system = statvfs(root.as_str()).map_err(|e| failed(e.into()))?;
        if system.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            let what = format!("rewritten libraries cannot be put into {root}: its file system executes nothing");
            return Err(Error::new(what).help("put them into a bundle: blizzard rewrite PROG --bundle DIR --add FILE"));
        }
        if !m.is_dir() || m.uid() != user || m.mode() & 0o077 != 0 {
            let what = format!(
                "{root} is not a folder that belongs to user {user} alone: rewritten libraries cannot be put there"
            );
            return Err(Error::new(what).help("remove it"));
        }
        Ok(Cache::at(root))
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the file `name` of entry `key` is, if it is there.
    pub fn file(&self, key: &CacheKey, name: &OsStr) -> PathBuf {
        self.root.join(&key.0).join(name)
    }

    /// The file `name` of entry `key`, written by `make` if it is not there yet; `mode` are its permission bits.
    ///
    /// # Errors
    /// Those of `make`, or that the cache folder cannot be written to.
    pub fn get_or_make(
        &self,
        key: &CacheKey,
        name: &OsStr,
        mode: u32,
        make: impl FnOnce(&mut dyn OutputSink) -> Result<()>,
    ) -> Result<PathBuf> {
        let path = self.file(key, name);
        let folder = self.root.join(&key.0);
        // An empty file is what a crash of the machine can leave of a rename.
        if fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() > 0) {
            // Marks the entry as used. Not allowed in a read-only cache: then nothing is removed from it either.
            let _ = File::open(&folder).and_then(|dir| dir.set_modified(SystemTime::now()));
            return Ok(path);
        }
        let failed = |e: std::io::Error| {
            Error::new(format!("cannot write to the cache folder {}", self.root.display()))
                .because(e)
                .help("set BLIZZARD_CACHE to a folder that can be written to")
        };
        let mut file = AtomicFile::new(&path, mode).in_new_folder(0o700);
        let made = make(&mut file);
        if let Some(e) = file.failure() {
            return Err(failed(e));
        }
        made?;
        file.finish().map_err(failed)?;
        let _ = self.clean(KEEP);
        Ok(path)
    }

    /// All rewritten files.
    ///
    /// # Errors
    /// The folder cannot be read; that there is none yet is no error.
    pub fn entries(&self) -> Result<Vec<CacheEntry>> {
        let failed =
            |e: std::io::Error| Error::new(format!("cannot read the cache folder {}", self.root.display())).because(e);
        let folders = match fs::read_dir(&self.root) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            folders => folders.map_err(failed)?,
        };
        let mut all = Vec::new();
        for folder in folders {
            let folder = folder.map_err(failed)?;
            let name = folder.file_name();
            if !name.to_str().is_some_and(|n| n.len() == 64 && n.bytes().all(|b| b.is_ascii_hexdigit())) {
                continue;
            }
            // What disappears meanwhile has been removed by another process.
            let unused = |m: &fs::Metadata| m.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
            let Ok(of_folder) = folder.metadata() else { continue };
            for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                if let Ok(m) = file.metadata() {
                    // A use marks the folder (programs) or the file (libraries, by the runtime).
                    let unused = unused(&m).min(unused(&of_folder));
                    all.push(CacheEntry { path: file.path(), bytes: m.len(), unused });
                }
            }
        }
        Ok(all)
    }

    /// Removes the entries that have not been used for `older`, and returns them.
    ///
    /// # Errors
    /// As [`Cache::entries`]; failing to remove something is no error: another process may be faster.
    pub fn clean(&self, older: Duration) -> Result<Vec<CacheEntry>> {
        let mut removed = self.entries()?;
        removed.retain(|entry| entry.unused >= older);
        for entry in &removed {
            if let Some(folder) = entry.path.parent() {
                let _ = fs::remove_dir_all(folder);
            }
        }
        self.remove_dangling_links();
        Ok(removed)
    }

    /// Links of libraries that have been removed.
    fn remove_dangling_links(&self) {
        for folder in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if folder.file_name().to_str().is_some_and(|name| name.starts_with("libraries-")) {
                for link in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                    if fs::metadata(link.path()).is_err() {
                        let _ = fs::remove_file(link.path());
                    }
                }
                // Only if nothing is left in it.
                let _ = fs::remove_dir(folder.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::Options;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn names(folder: &Path) -> Vec<String> {
        let mut all: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    fn put(bytes: &[u8]) -> impl FnOnce(&mut dyn OutputSink) -> Result<()> {
        |sink| {
            sink.write_at(0, bytes).unwrap();
            Ok(())
        }
    }

    #[test]
    fn the_key_depends_on_every_part_and_on_their_borders() {
        let options = Options::default();
        let counting = Options { count: true, ..options };
        assert_eq!(
            CacheKey::of_rewrite(b"a", &options, &LibraryRecord::none()),
            CacheKey::of_rewrite(b"a", &options, &LibraryRecord::none())
        );
        assert_ne!(
            CacheKey::of_rewrite(b"a", &options, &LibraryRecord::none()),
            CacheKey::of_rewrite(b"b", &options, &LibraryRecord::none())
        );
        let bundle = LibraryRecord::new(&[b"bundle", b"lib"]);
        assert_ne!(
            CacheKey::of_rewrite(b"a", &options, &LibraryRecord::none()),
            CacheKey::of_rewrite(b"a", &options, &bundle)
        );
        assert_ne!(
            CacheKey::of_rewrite(b"a", &options, &LibraryRecord::none()),
            CacheKey::of_rewrite(b"a", &counting, &LibraryRecord::none())
        );
        assert_ne!(CacheKey::new(&[b"ab", b"c"]), CacheKey::new(&[b"a", b"bc"]));
    }

    #[test]
    fn an_entry_is_made_once_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("new/cache"));
        let key = CacheKey::new(&[b"x"]);
        let made = cache.get_or_make(&key, "prog".as_ref(), 0o755, put(b"bytes")).unwrap();
        let found = cache.get_or_make(&key, "prog".as_ref(), 0o755, |_| panic!("made twice")).unwrap();
        assert_eq!(made, found);
        assert_eq!(fs::read(&found).unwrap(), b"bytes");
        assert_eq!(fs::metadata(&found).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(folder.path().join("new/cache")).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_failed_making_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache"));
        let error =
            cache.get_or_make(&CacheKey::new(&[b"x"]), "p".as_ref(), 0o755, |_| Err(Error::new("no"))).unwrap_err();
        assert_eq!(error.what, "no");
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn an_empty_file_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let key = CacheKey::new(&[b"x"]);
        let path = cache.get_or_make(&key, "p".as_ref(), 0o755, put(b"1")).unwrap();
        File::create(&path).unwrap();
        cache.get_or_make(&key, "p".as_ref(), 0o755, put(b"1")).unwrap();
        assert_eq!(fs::read(path).unwrap(), b"1");
    }

    #[test]
    fn many_at_once_all_get_the_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let key = CacheKey::new(&[b"x"]);
        let bytes: Vec<u8> = (0..300_000u32).map(|k| k as u8).collect();
        let makers = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let make = |sink: &mut dyn OutputSink| {
                        makers.fetch_add(1, Ordering::Relaxed);
                        put(&bytes)(sink)
                    };
                    let path = cache.get_or_make(&key, "p".as_ref(), 0o755, make).unwrap();
                    assert_eq!(fs::read(path).unwrap(), bytes);
                });
            }
        });
        assert!(makers.into_inner() >= 1);
        assert_eq!(names(&folder.path().join(&key.0)), ["p"]);
    }

    #[test]
    fn only_entries_long_unused_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let old = CacheKey::new(&[b"old"]);
        let fresh = CacheKey::new(&[b"fresh"]);
        for key in [&old, &fresh] {
            cache.get_or_make(key, "p".as_ref(), 0o755, put(b"1")).unwrap();
        }
        fs::create_dir(folder.path().join("not ours")).unwrap();
        for name in [old.0.as_str(), "not ours"] {
            let dir = File::open(folder.path().join(name)).unwrap();
            dir.set_modified(SystemTime::now() - KEEP - Duration::from_secs(60)).unwrap();
        }
        let file = File::open(folder.path().join(&old.0).join("p")).unwrap();
        file.set_modified(SystemTime::now() - KEEP - Duration::from_secs(60)).unwrap();
        cache.clean(KEEP).unwrap();
        let mut expected = vec![fresh.0.clone(), "not ours".to_owned()];
        expected.sort();
        assert_eq!(names(folder.path()), expected);
    }
}
