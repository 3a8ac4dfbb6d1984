//! The files, and where they are put.
//!
//! ```text
//! include/                    blizzard.h, tempest.h and what they need
//! lib/libblizzard.a           and pkgconfig/blizzard.pc, cmake/Blizzard/BlizzardConfig.cmake
//! share/blizzard/             parmacs.m4 (for m4), libraries.gdb (for gdb), rust (the crate blizzard-shm)
//! ```

use crate::base::error::{Error, Result};
use crate::base::output_file::{AtomicFile, OutputSink};
use crate::store::cache::Cache;
use std::fs;
use std::path::{Path, PathBuf};

const LIBRARY: (&str, &[u8]) = ("lib/libblizzard.a", include_bytes!(env!("BLIZZARD_CLIENT_LIB")));
const PARMACS: (&str, &[u8]) = ("share/blizzard/parmacs.m4", include_bytes!("../../../../rt/include/parmacs.m4"));
const GDB: (&str, &[u8]) = (
    "share/blizzard/libraries.gdb",
    concat!(include_str!("libraries.gdb"), include_str!("old_addresses.gdb")).as_bytes(),
);
/// Files that stand as they are, by their place.
const PLAIN: [(&str, &[u8]); 7] = [
    ("include/blizzard.h", include_bytes!("../../../../rt/include/blizzard.h")),
    ("include/blizzard_parmacs.h", include_bytes!("../../../../rt/include/blizzard_parmacs.h")),
    ("include/tempest.h", include_bytes!("../../../../rt/include/tempest.h")),
    ("include/tempest_send.h", include_bytes!("../../../../rt/include/tempest_send.h")),
    LIBRARY,
    PARMACS,
    GDB,
];
/// Files that say which version this is.
const VERSIONED: [(&str, &str); 3] = [
    ("lib/pkgconfig/blizzard.pc", include_str!("templates/blizzard.pc")),
    ("lib/cmake/Blizzard/BlizzardConfig.cmake", include_str!("templates/BlizzardConfig.cmake")),
    ("lib/cmake/Blizzard/BlizzardConfigVersion.cmake", include_str!("templates/BlizzardConfigVersion.cmake")),
];
/// The crate `blizzard-shm`, with all that it is made from.
const RUST: [(&str, &str); 13] = [
    ("Cargo.toml", include_str!("templates/Cargo.toml")),
    ("build.rs", include_str!("templates/build.rs")),
    ("src/lib.rs", include_str!("../../../../rt/rust/src/lib.rs")),
    ("src/tempest.rs", include_str!("../../../../rt/rust/src/tempest.rs")),
    ("examples/sum.rs", include_str!("../../../../rt/rust/examples/sum.rs")),
    ("client/blizzard.c", include_str!("../../../../rt/client/blizzard.c")),
    ("client/client.h", include_str!("../../../../rt/client/client.h")),
    ("client/fork.c", include_str!("../../../../rt/client/fork.c")),
    ("client/tempest.c", include_str!("../../../../rt/client/tempest.c")),
    ("include/blizzard.h", include_str!("../../../../rt/include/blizzard.h")),
    ("include/blizzard_parmacs.h", include_str!("../../../../rt/include/blizzard_parmacs.h")),
    ("include/tempest.h", include_str!("../../../../rt/include/tempest.h")),
    ("include/tempest_send.h", include_str!("../../../../rt/include/tempest_send.h")),
];
/// Where the crate is put.
const RUST_FOLDER: &str = "share/blizzard/rust";
/// The folder of the cache that has the files for whoever has not installed them.
const IN_CACHE: &str = "client";

/// The client's files on disk.
#[derive(Debug)]
pub struct Client {
    prefix: PathBuf,
}

impl Client {
    /// The files that are installed with this executable, if they are its own; else those in the user's cache, which are put there.
    ///
    /// # Errors
    /// When the cache cannot be written to.
    pub fn install() -> Result<Self> {
        let executable = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
        let prefix = executable.as_deref().and_then(Path::parent).and_then(Path::parent);
        match prefix.filter(|prefix| all().all(|(place, bytes)| holds(&prefix.join(place), &bytes))) {
            Some(prefix) => Ok(Client { prefix: prefix.to_owned() }),
            None => Client::install_to(&Cache::of_user()?.root().join(IN_CACHE), 0o700),
        }
    }

    /// Puts the files into the folder `prefix`; folders that are made have the permission bits `mode`.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub fn install_to(prefix: &Path, mode: u32) -> Result<Self> {
        let prefix = std::path::absolute(prefix)
            .map_err(|e| Error::new(format!("{}: is no folder's name", prefix.display())).because(e))?;
        for (place, bytes) in all() {
            put(&prefix.join(place), &bytes, mode)?;
        }
        Ok(Client { prefix })
    }

    /// For compiling.
    pub fn cflags(&self) -> String {
        format!("-I{}", self.prefix.join("include").display())
    }

    /// For linking.
    pub fn libs(&self) -> Vec<String> {
        vec![self.prefix.join(LIBRARY.0).display().to_string(), "-pthread".to_owned()]
    }

    /// The macros, for m4.
    pub fn parmacs(&self) -> PathBuf {
        self.prefix.join(PARMACS.0)
    }

    /// Commands for gdb.
    pub fn gdb(&self) -> PathBuf {
        self.prefix.join(GDB.0)
    }
}

fn all() -> impl Iterator<Item = (String, Vec<u8>)> {
    let plain = PLAIN.iter().map(|(place, bytes)| ((*place).to_owned(), bytes.to_vec()));
    let versioned = VERSIONED.iter().map(|(place, text)| ((*place).to_owned(), versioned(text)));
    let rust = crate_files().map(|(place, bytes)| (format!("{RUST_FOLDER}/{place}"), bytes));
    plain.chain(versioned).chain(rust)
}

/// The files of the crate `blizzard-shm`: it needs Rust and a C compiler, and no other crate.
pub(crate) fn crate_files() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    RUST.iter().map(|(place, text)| (*place, versioned(text)))
}

fn versioned(text: &str) -> Vec<u8> {
    text.replace("@VERSION@", env!("CARGO_PKG_VERSION")).into_bytes()
}

fn holds(path: &Path, bytes: &[u8]) -> bool {
    fs::read(path).is_ok_and(|found| found == bytes)
}

/// Writes a file, whole or not at all, unless it is there already.
///
/// # Errors
/// The file system's.
pub(crate) fn put(path: &Path, bytes: &[u8], folder_mode: u32) -> Result<()> {
    if holds(path, bytes) {
        return Ok(());
    }
    let failed = |e: std::io::Error| Error::new(format!("cannot write {}", path.display())).because(e);
    let mut file = AtomicFile::new(path, 0o644).in_new_folder(folder_mode);
    file.write_at(0, bytes).map_err(failed)?;
    file.finish().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_build_are_replaced_and_others_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let header = folder.path().join("include/blizzard.h");
        let client = Client::install_to(folder.path(), 0o755).unwrap();
        let own = fs::read(&header).unwrap();
        fs::write(&header, "old").unwrap();
        let library = fs::metadata(folder.path().join(LIBRARY.0)).unwrap().modified().unwrap();
        Client::install_to(folder.path(), 0o755).unwrap();
        assert_eq!(fs::read(&header).unwrap(), own);
        assert_eq!(fs::metadata(folder.path().join(LIBRARY.0)).unwrap().modified().unwrap(), library);
        assert!(client.parmacs().is_file() && client.gdb().is_file());
        let text = fs::read_to_string(folder.path().join("lib/pkgconfig/blizzard.pc")).unwrap();
        assert!(text.contains(env!("CARGO_PKG_VERSION")) && !text.contains('@'), "{text}");
    }
}
