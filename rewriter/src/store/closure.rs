//! The program's libraries: found, rewritten, and put where the runtime looks for them.
//!
//! Input: a program's path. Output: rewritten forms of the dynamic loader and of all libraries that the program names, in the cache or in a
//! bundle, and the [`ClosureSource`] that tells the program's runtime which. Libraries that are opened later come through [`Cached::add`], too: the
//! runtime runs `blizzard cache add`.
//!
//! ```text
//! <root>/<sha-256>/<name>                the rewritten file, keyed by what its contents depend on (see `cache`)
//! <root>/libraries-<key>/<entry>         a link to it, named by the original's device, inode, size and time of change
//! ```
//!
//! **Invariant**: a link leads to a file that was rewritten from the very bytes its name stands for: the name is taken from the descriptor
//! that the bytes were read from, before and after.

use crate::base::error::{Error, Result};
use crate::base::learnt::{Knowledge, LearntSites, Object};
use crate::base::memory::MappedFile;
use crate::base::options::Options;
use crate::base::output_file::{again_if_gone, make_folder};
use crate::pipeline::{self, Request};
use crate::read::rewritten;
use crate::store::cache::{Cache, CacheKey, tool_identity};
use crate::store::library_search::libraries_of;
use crate::write::file::LibraryRecord;
use blizzard_contract::{EXE_ENV, closure_strings};
use blizzard_rt::libraries::closure::entries::entry_name;
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a program's runtime finds its rewritten libraries.
#[derive(Debug, Clone)]
pub enum ClosureSource {
    /// The libraries are not rewritten.
    None,
    /// In this folder, relative to the program's own.
    Bundle(String),
    Cache(Cached),
}

impl ClosureSource {
    /// The same, for the output of the program `path`.
    pub fn of_original(self, path: &Path) -> Self {
        match self {
            ClosureSource::Cache(cached) => {
                ClosureSource::Cache(Cached { original: fs::canonicalize(path).ok(), ..cached })
            }
            other => other,
        }
    }

    /// The record that goes into the program.
    pub fn record(&self) -> LibraryRecord {
        match self {
            ClosureSource::None => LibraryRecord::none(),
            ClosureSource::Bundle(folder) => {
                LibraryRecord::new(&[closure_strings::BUNDLE.as_bytes(), folder.as_bytes()])
            }
            ClosureSource::Cache(c) => LibraryRecord::new(&[
                closure_strings::CACHE.as_bytes(),
                c.folder().as_os_str().as_bytes(),
                c.cache.root().as_os_str().as_bytes(),
                c.key.as_bytes(),
                c.tool.as_os_str().as_bytes(),
                &c.original
                    .as_deref()
                    .map_or(Vec::new(), |path| [EXE_ENV.as_bytes(), b"=", path.as_os_str().as_bytes()].concat()),
            ]),
        }
    }
}

/// The libraries of the cache that were rewritten with one set of options, by one build of Blizzard.
#[derive(Debug, Clone)]
pub struct Cached {
    cache: Cache,
    options: Options,
    key: String,
    tool: PathBuf,
    /// The program's own file, for an output that may lie elsewhere.
    original: Option<PathBuf>,
    /// What runs of the program have learnt of its libraries.
    learnt: Arc<Knowledge>,
}

/// Stands in a key in front of where the knowledge is kept.
const LEARNT: char = '~';
/// Name of its file.
const LEARNT_FILE: &str = "learnt";

impl Cached {
    /// The libraries that go with programs rewritten with `options`.
    ///
    /// # Errors
    /// This executable's own path is unknown.
    pub fn new(cache: Cache, options: Options) -> Result<Self> {
        let tool = std::env::current_exe().map_err(|e| Error::new("cannot find my own executable").because(e))?;
        // Libraries have no runtime: one form serves all runs.
        let options = Options { many_nodes: false, ..options };
        Ok(Cached { key: key_of(&options), cache, options, tool, original: None, learnt: Arc::default() })
    }

    /// The same libraries, in which plain code tests what runs have learnt: of these, a program that knows the same has the same.
    ///
    /// # Errors
    /// The cache cannot be written to.
    pub fn with_learnt(self, learnt: Knowledge) -> Result<Self> {
        if learnt.is_empty() {
            return Ok(self);
        }
        let text = learnt.text();
        let key = CacheKey::new(&[b"learnt of libraries", text.as_bytes()]);
        // Who may use the cache may know it, too: the runtime asks for libraries that are opened later.
        self.cache.get_or_make(&key, LEARNT_FILE.as_ref(), 0o644, |sink| {
            // What fails is told by the sink.
            let _ = sink.write_at(0, text.as_bytes());
            Ok(())
        })?;
        Ok(Cached { key: format!("{}{LEARNT}{}", self.key, key.whole()), learnt: Arc::new(learnt), ..self })
    }

    /// The libraries that a program asks for with its `key`.
    ///
    /// # Errors
    /// The program was rewritten by another build.
    pub fn of_key(cache: Cache, key: &str) -> Result<Self> {
        let (base, learnt) = key.split_once(LEARNT).map_or((key, None), |(base, hash)| (base, Some(hash)));
        let word = base.split_once('-').and_then(|(_, word)| Options::from_word(word));
        let options = word.filter(|options| key_of(options) == base).ok_or_else(|| {
            Error::new("this program was rewritten by another build of Blizzard, whose libraries would not fit")
                .help("rewrite the program again")
        })?;
        let mut cached = Cached::new(cache, options)?;
        if let Some(hash) = learnt {
            // Where it is gone, the library is right without.
            let path = cached.cache.root().join(hash).join(LEARNT_FILE);
            let text = fs::read_to_string(&path).unwrap_or_default();
            cached.learnt = Arc::new(Knowledge::parse(&text, &path).unwrap_or_default());
            key.clone_into(&mut cached.key);
        }
        Ok(cached)
    }

    /// Where the runtime finds the libraries.
    pub fn folder(&self) -> PathBuf {
        self.cache.root().join(format!("libraries-{}", self.key))
    }

    /// Rewrites the library `path` into the cache, if it is not there yet; returns the rewritten file.
    ///
    /// # Errors
    /// What is wrong with the file, the rewriter's refusals, or the cache's.
    pub fn add(&self, path: &Path) -> Result<PathBuf> {
        let name = fs::read_link(path).unwrap_or_else(|_| path.to_owned());
        let shown = if path.starts_with("/proc") { &name } else { path };
        let shown = shown.display().to_string();
        let failed = |e: std::io::Error| Error::new(format!("{shown}: cannot be read")).because(e);
        let file = File::open(path).map_err(failed)?;
        let before = file.metadata().map_err(failed)?;
        let link = self.folder().join(entry_for(&before));
        if let Ok(found) = fs::canonicalize(&link) {
            return Ok(found);
        }
        let bytes = MappedFile::of(&file, &shown).map_err(failed)?;
        let learnt = if self.learnt.is_empty() { LearntSites::NONE } else { self.learnt.of(Object::of(&bytes)) };
        let request = Request { options: &self.options, learnt };
        let key = CacheKey::of_library(&bytes, request);
        let file_name = name.file_name().unwrap_or("library".as_ref());
        // Who may read the original may read what is made of it, if a program that gives up its rights keeps it open.
        let mode = 0o700 | before.mode() & 0o044;
        let made = self.cache.get_or_make(&key, file_name, mode, |sink| {
            let rewritten = pipeline::rewrite_library_to(&bytes, &shown, request, sink);
            bytes.expect_unchanged(&shown)?;
            if entry_for(&file.metadata().map_err(failed)?) != entry_for(&before) {
                return Err(Error::new(format!("{shown}: has changed while it was read")).help("try again"));
            }
            rewritten.map(drop)
        })?;
        self.link(&link, &made).map_err(|e| {
            Error::new(format!("cannot write to the cache folder {}", self.cache.root().display())).because(e)
        })?;
        Ok(made)
    }

    /// Makes `link` lead to `file`, whole or not at all.
    fn link(&self, link: &Path, file: &Path) -> std::io::Result<()> {
        let folder = self.folder();
        let target = Path::new("..").join(file.strip_prefix(self.cache.root()).unwrap_or(file));
        again_if_gone(|| {
            make_folder(&folder, 0o700)?;
            let link_to = |at: &Path| std::os::unix::fs::symlink(&target, at);
            let made = tempfile::Builder::new().prefix(".link.").make_in(&folder, link_to)?;
            made.into_temp_path().persist(link).map_err(|e| e.error)
        })
    }
}

/// Files that were rewritten, by what was made of them.
pub type Originals = BTreeMap<PathBuf, PathBuf>;

/// The original of the rewritten program `executable`, if there is another one, and those of its libraries in the cache.
pub fn originals(executable: &Path, original: Option<&Path>) -> Originals {
    let mut all: Originals = original.map(|path| (executable.to_owned(), path.to_owned())).into_iter().collect();
    let Some(folder) = rewritten::libraries_folder(executable) else { return all };
    let libraries = libraries_of(original.unwrap_or(executable)).map(|found| found.all()).unwrap_or_default();
    let made_of = |library: &Path| fs::canonicalize(folder.join(entry_for(&fs::metadata(library).ok()?))).ok();
    all.extend(libraries.into_iter().filter_map(|library| Some((made_of(&library)?, library))));
    all
}

/// Name of the link for the file with this metadata.
fn entry_for(m: &Metadata) -> String {
    let mut name = String::new();
    entry_name(&mut name, m.dev(), m.ino(), m.size(), m.ctime(), m.ctime_nsec())
        .expect("writing to a string cannot fail");
    name
}

/// Tells apart what must not be mixed in one process: builds and options.
fn key_of(options: &Options) -> String {
    let tool = CacheKey::new(&[b"libraries", tool_identity().as_bytes()]).short();
    format!("{tool}-{}", options.word())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::addresses::Vaddr;
    use crate::base::options::{AccessMode, Checks, Poll};

    fn cached(root: &Path) -> Cached {
        Cached::new(Cache::at(root), Options::default()).unwrap()
    }

    #[test]
    fn keys_lead_back_to_their_options() {
        let folder = tempfile::tempdir().unwrap();
        let other = Options {
            access: AccessMode::Guard,
            checks: Checks::Stores,
            poll: Poll::None,
            count: true,
            blocks: true,
            merge: false,
            across: false,
            ahead: false,
            red_zone: false,
            strips: false,
            copies: false,
            place_polls: false,
            screens: false,
            exports: false,
            words: false,
            as_shared: true,
            many_nodes: false,
            fuel: Some(7),
        };
        for options in [Options::default(), other, Options { across: false, ..Options::default() }] {
            let cached = Cached::new(Cache::at(folder.path()), options).unwrap();
            let back = Cached::of_key(Cache::at(folder.path()), &cached.key).unwrap();
            assert_eq!(back.options, options);
            let mut learnt = Knowledge::default();
            learnt.add(Object([3; 8]), "libc.so.6", Vaddr(0x40), 1);
            let knows = cached.clone().with_learnt(learnt).unwrap();
            let back = Cached::of_key(Cache::at(folder.path()), &knows.key).unwrap();
            assert_eq!((back.options, &back.learnt, &back.key), (options, &knows.learnt, &knows.key));
            assert!(knows.folder() != cached.folder());
        }
        // Runs of any number of nodes share their libraries.
        let many = Options { many_nodes: true, ..Options::default() };
        assert_eq!(Cached::new(Cache::at(folder.path()), many).unwrap().key, cached(folder.path()).key);
        let error = Cached::of_key(Cache::at(folder.path()), "0123").unwrap_err();
        assert!(error.help.unwrap().contains("again"));
    }

    #[test]
    fn the_record_is_what_the_runtime_reads() {
        assert_eq!(ClosureSource::None.record().bytes(), b"");
        assert_eq!(ClosureSource::Bundle("lib".into()).record().bytes(), b"bundle\0lib\0");
        let cached = Cached { tool: "/bin/tool".into(), key: "k".into(), ..cached(Path::new("/c")) };
        assert_eq!(ClosureSource::Cache(cached).record().bytes(), b"cache\0/c/libraries-k\0/c\0k\0/bin/tool\0\0");
    }

    #[test]
    fn a_library_is_rewritten_once_and_found_by_what_the_runtime_sees() {
        let folder = tempfile::tempdir().unwrap();
        let cached = cached(&folder.path().join("cache"));
        let library = libraries_of(Path::new("/proc/self/exe"))
            .unwrap()
            .all()
            .into_iter()
            .find(|path| path.to_string_lossy().contains("libgcc_s"))
            .expect("a Rust test program needs libgcc_s");
        let made = cached.add(&library).unwrap();
        let link = cached.folder().join(entry_for(&fs::metadata(&library).unwrap()));
        assert_eq!(fs::canonicalize(link).unwrap(), fs::canonicalize(&made).unwrap());
        assert!(rewritten::is_rewritten(&fs::read(&made).unwrap()));
        let time = fs::metadata(&made).unwrap().modified().unwrap();
        assert_eq!(fs::canonicalize(cached.add(&library).unwrap()).unwrap(), fs::canonicalize(&made).unwrap());
        assert_eq!(fs::metadata(&made).unwrap().modified().unwrap(), time);
    }

    #[test]
    fn what_is_no_library_leaves_no_entry() {
        let folder = tempfile::tempdir().unwrap();
        let cached = cached(&folder.path().join("cache"));
        let text = folder.path().join("text.so");
        fs::write(&text, "not a library").unwrap();
        assert!(cached.add(&text).is_err());
        assert!(cached.add(&folder.path().join("absent.so")).unwrap_err().what.contains("cannot be read"));
        assert!(!cached.folder().exists());
    }
}
