//! The files that changes are made to: small programs built here, and some of the system's.
//!
//! Input: the compilers that are there. Output: [`File`]s, each an original and an output of it; what is absent is named.

use crate::one::Variant;
use blizzard::pipeline;
use blizzard::read::elf::identify;
use blizzard::read::image::ProgramKind;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An original and its output.
pub struct File {
    pub name: String,
    pub original: Vec<u8>,
    pub output: Vec<u8>,
    /// How to run the output, if it is a program.
    pub runs: bool,
}

/// Where a file comes from.
enum From {
    /// A compiler, its source's name and text, its options.
    Built(&'static str, &'static str, &'static str, &'static [&'static str]),
    System(&'static str),
    /// What the C compiler finds by this name.
    Library(&'static str),
}

const NUMBERS: &str = include_str!("programs/numbers.c");
const ALONE: &str = include_str!("programs/alone.c");
const THROWS: &str = include_str!("programs/throws.cpp");
const WORDS: &str = include_str!("programs/words.rs");

/// Small ones: an audit of them takes milliseconds.
const FILES: &[(&str, From)] = &[
    ("c", From::Built("cc", "numbers.c", NUMBERS, &["-O2"])),
    ("c-debug", From::Built("cc", "numbers.c", NUMBERS, &["-O1", "-g"])),
    ("c-O0-fixed", From::Built("cc", "numbers.c", NUMBERS, &["-O0", "-no-pie", "-fcf-protection=full"])),
    ("c-library", From::Built("cc", "numbers.c", NUMBERS, &["-O2", "-fPIC", "-shared"])),
    ("c-static", From::Built("cc", "alone.c", ALONE, &["-O2", "-static", "-ffreestanding", "-nostdlib"])),
    ("c-static-pie", From::Built("cc", "alone.c", ALONE, &["-O3", "-static-pie", "-ffreestanding", "-nostdlib"])),
    ("c++", From::Built("c++", "throws.cpp", THROWS, &["-O2"])),
    ("c++-fixed", From::Built("c++", "throws.cpp", THROWS, &["-O1", "-no-pie"])),
    ("c++-library", From::Built("c++", "throws.cpp", THROWS, &["-O1", "-fPIC", "-shared"])),
    ("rust", From::Built("rustc", "words.rs", WORDS, &["-O", "-C", "prefer-dynamic", "-C", "rpath"])),
    ("cat", From::System("/bin/cat")),
    ("libgcc_s", From::Library("libgcc_s.so.1")),
    ("ld.so", From::System("/lib64/ld-linux-x86-64.so.2")),
];

/// What follows the name of a file whose code is in two versions.
const GUARDED: &str = "-guarded";

/// The names, in order: each file with every access tested, then in two versions.
pub fn names() -> impl Iterator<Item = String> {
    FILES.iter().flat_map(|f| ["", GUARDED].map(|access| format!("{}{access}", f.0)))
}

/// Builds or reads the one of this name, and rewrites it.
///
/// # Errors
/// Why it is absent: a compiler or a file that is not there.
pub fn make(name: &str, folder: &Path) -> Result<File, String> {
    let (variant, plain) =
        name.strip_suffix(GUARDED).map_or((Variant::Checked, name), |plain| (Variant::Guarded, plain));
    let (_, from) = FILES.iter().find(|f| f.0 == plain).ok_or_else(|| format!("no file is called {name}"))?;
    let path = match from {
        From::Built(compiler, source, text, options) => build(compiler, source, text, options, &folder.join(name))?,
        From::System(path) => PathBuf::from(path),
        From::Library(library) => {
            let found = Command::new("cc").arg(format!("-print-file-name={library}")).output();
            let found = found.map_err(|e| format!("cc: {e}"))?;
            PathBuf::from(String::from_utf8_lossy(&found.stdout).trim())
        }
    };
    let original = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let options = variant.options();
    let text = |e: blizzard::base::error::Error| e.to_string();
    let runs = identify(&original, name).map_err(text)? != ProgramKind::Library;
    let rewritten = if runs {
        pipeline::rewrite(&original, name, &options)
    } else {
        pipeline::rewrite_library(&original, name, &options)
    };
    Ok(File { name: name.to_owned(), output: rewritten.map_err(text)?.bytes, original, runs })
}

fn build(compiler: &str, source: &str, text: &str, options: &[&str], folder: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(folder).and_then(|()| fs::write(folder.join(source), text)).map_err(|e| e.to_string())?;
    let said = Command::new(compiler).current_dir(folder).args(options).args(["-o", "p", source]).output();
    let said = said.map_err(|e| format!("{compiler}: {e}"))?;
    if !said.status.success() {
        let last = String::from_utf8_lossy(&said.stderr).lines().last().unwrap_or_default().to_owned();
        return Err(format!("{compiler} {}: {last}", options.join(" ")));
    }
    Ok(folder.join("p"))
}
