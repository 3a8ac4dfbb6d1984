//! `blizzard new`: a small project that shares memory, to start from.
//!
//! Input: a folder's name and a language. Output: the folder, with program, build file, test and README. **Invariant**: nothing is overwritten.

use crate::base::error::{Error, Result};
use crate::base::messages;
use crate::cli::make::client::{crate_files, put};
use clap::{Args, ValueEnum};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    C,
    #[value(aliases = ["c++", "cxx", "cc"])]
    Cpp,
    #[value(alias = "rs")]
    Rust,
}

const C: [(&str, &str); 4] = [
    ("main.c", include_str!("c/main.c")),
    ("Makefile", include_str!("c/Makefile")),
    ("test.sh", include_str!("c/test.sh")),
    ("README.md", include_str!("c/README.md")),
];
const CPP: [(&str, &str); 4] = [
    ("main.cpp", include_str!("cpp/main.cpp")),
    ("Makefile", include_str!("cpp/Makefile")),
    ("test.sh", include_str!("c/test.sh")),
    ("README.md", include_str!("cpp/README.md")),
];
const RUST: [(&str, &str); 4] = [
    ("src/main.rs", include_str!("rust/main.rs")),
    ("tests/same.rs", include_str!("rust/same.rs")),
    ("Cargo.toml", include_str!("rust/Cargo.toml")),
    ("README.md", include_str!("rust/README.md")),
];

/// Make a small project that shares memory, to start from
///
/// It has a program, what builds it, a test that compares one plain process with two nodes, and a README with the commands.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard new hello && cat hello/README.md\n  \
    blizzard new primes --lang rust")]
pub struct NewCommand {
    /// The folder to make; the program gets its name
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The program's language
    #[arg(long, value_name = "LANGUAGE", default_value = "c", ignore_case = true)]
    lang: Language,
}

impl NewCommand {
    /// Writes the project.
    pub fn execute(self) -> Result<ExitCode> {
        let name = project_name(&self.folder)?;
        let shown = self.folder.display();
        match fs::read_dir(&self.folder).map(|mut there| there.next().is_none()) {
            Ok(true) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) if e.kind() != std::io::ErrorKind::NotADirectory => {
                return Err(Error::new(format!("{shown}: cannot be read")).because(e));
            }
            _ => {
                return Err(
                    Error::new(format!("{shown}: is there already")).help("name a folder that is not there yet")
                );
            }
        }
        let files = match self.lang {
            Language::C => &C,
            Language::Cpp => &CPP,
            Language::Rust => &RUST,
        };
        for (place, text) in files {
            put(&self.folder.join(place), text.replace("@NAME@", name).as_bytes(), 0o777)?;
        }
        if self.lang == Language::Rust {
            for (place, bytes) in crate_files() {
                put(&self.folder.join("blizzard-shm").join(place), &bytes, 0o777)?;
            }
        }
        messages::note(&format!("{shown}/README.md says how to build it, to run it and to test it"));
        Ok(ExitCode::SUCCESS)
    }
}

/// The program's name: what Cargo and make can take.
fn project_name(folder: &Path) -> Result<&str> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    // Names of make's own rules and files, of folders that Cargo builds in, and of what Rust has already.
    const TAKEN: [&str; 15] = [
        "run",
        "test",
        "clean",
        "Makefile",
        "makefile",
        "GNUmakefile",
        "build",
        "deps",
        "examples",
        "incremental",
        "core",
        "std",
        "alloc",
        "main",
        "blizzard-shm",
    ];
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_plain) && !TAKEN.contains(&name) {
        true => Ok(name),
        false => Err(Error::new(format!("{}: cannot be a program's name", folder.display()))
            .help("begin with a letter, go on with letters, digits, - and _, and take no name of a build tool's own")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_programs() {
        for good in ["hello", "/tmp/a/b_2", "x-y"] {
            assert!(project_name(Path::new(good)).is_ok(), "{good}");
        }
        for bad in ["", "/", "..", "2nd", "a b", "test", "a.b", "\u{e4}", "Makefile", "deps", "build"] {
            assert!(project_name(Path::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn languages_have_the_names_that_people_give_them() {
        for (name, language) in
            [("c++", Language::Cpp), ("C++", Language::Cpp), ("cpp", Language::Cpp), ("rs", Language::Rust)]
        {
            assert_eq!(<Language as ValueEnum>::from_str(name, true), Ok(language), "{name}");
        }
    }

    #[test]
    fn each_readme_is_short() {
        for files in [&C, &CPP, &RUST] {
            let (_, text) = files.iter().find(|(place, _)| *place == "README.md").unwrap();
            assert!(text.lines().count() <= 12, "{text}");
        }
    }
}
