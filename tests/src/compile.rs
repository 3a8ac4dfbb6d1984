//! Compiles a case in one configuration with the system's compilers.

use crate::run::{LIMIT, run};
use blizzard_test_harness::tool;
use std::path::{Path, PathBuf};

/// The language of a case's main source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Cpp,
    Rust,
    Assembly,
}

impl Language {
    /// By the file's extension; `None` for files that are no source.
    pub fn of(path: &Path) -> Option<Language> {
        Some(match path.extension()?.to_str()? {
            "c" => Language::C,
            "cpp" => Language::Cpp,
            "rs" => Language::Rust,
            "S" | "s" => Language::Assembly,
            _ => return None,
        })
    }
}

/// The program that a directive's `compiler` means for `language`.
pub fn program(compiler: &str, language: Language) -> String {
    match (compiler, language) {
        ("gcc", Language::Cpp) => "g++".into(),
        ("clang", Language::Cpp) => "clang++".into(),
        _ => compiler.into(),
    }
}

/// What to compile and how.
pub struct Job<'a> {
    pub sources: Vec<PathBuf>,
    pub language: Language,
    pub compiler: &'a str,
    pub flags: Vec<String>,
    /// Further flags after the sources: libraries.
    pub libraries: Vec<String>,
    pub output: &'a Path,
}

/// Compiles `job`; skips the running test if its compiler is not there.
///
/// # Errors
/// What the compiler said.
pub fn compile(job: &Job) -> Result<(), String> {
    let mut command = tool(&program(job.compiler, job.language));
    if job.language == Language::Rust {
        command.args(["--edition", "2024", "--crate-name", "prog"]);
    } else {
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/include");
        command.arg("-I").arg(include).arg("-pthread").arg("-w");
        if job.language == Language::Cpp {
            command.arg("-std=c++17");
        }
    }
    command.args(&job.flags).args(&job.sources).arg("-o").arg(job.output).args(&job.libraries);
    if job.language != Language::Rust {
        command.args(["-lm", "-ldl"]);
    }
    let outcome = run(&mut command, "", LIMIT)?;
    outcome.success().map(|_| ()).map_err(|e| format!("{command:?}: {e}"))
}
