//! The system's C compiler: finding it, and the flags that programs with shared memory need.

use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};

/// A C compiler command, possibly with arguments of its own (`CC="ccache gcc"`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    words: Vec<OsString>,
}

/// Tried in this order when CC is not set.
const USUAL: [&str; 3] = ["cc", "gcc", "clang"];

/// GCC: do not turn loops into calls of memset and memcpy.
const GCC_FLAGS: [&str; 1] = ["-fno-tree-loop-distribute-patterns"];
/// Clang has another option for the same: it does not make calls of functions it may not assume to be there.
const CLANG_FLAGS: [&str; 3] = ["-fno-builtin-memset", "-fno-builtin-memcpy", "-fno-builtin-memmove"];

impl Compiler {
    /// `$CC`, else the first usual compiler in PATH, if there is one.
    ///
    /// # Errors
    /// When CC names something that does not run.
    pub fn find() -> Result<Option<Self>> {
        let chosen = std::env::var("CC").unwrap_or_default();
        if chosen.trim().is_empty() {
            let usual = USUAL.map(|name| Compiler { words: vec![OsString::from(name)] });
            return Ok(usual.into_iter().find(Compiler::works));
        }
        let compiler = Compiler { words: chosen.split_whitespace().map(OsString::from).collect() };
        if compiler.works() {
            Ok(Some(compiler))
        } else {
            Err(Error::new(format!("the C compiler that CC names does not run: {}", chosen.trim())))
        }
    }

    /// The compiler's command, to be completed with arguments.
    pub fn command(&self) -> Command {
        let (program, args) = self.words.split_first().expect("a compiler has a name");
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null());
        command
    }

    /// What the user would type.
    pub fn name(&self) -> String {
        self.words.join(OsStr::new(" ")).to_string_lossy().into_owned()
    }

    fn works(&self) -> bool {
        quiet(self.command().arg("--version"))
    }

    /// Flags that keep the compiler from passing shared memory to libc behind the program's back.
    ///
    /// Libraries are not rewritten yet, so what they read or write is not checked. A program can see that it passes no shared memory
    /// to a library; but compilers also turn loops into calls of `memset` and `memcpy`, unless told not to.
    pub fn flags(&self) -> &'static [&'static str] {
        // Compilers differ in what they accept, whatever their name: ask this one.
        let accepts = |flags: &[&str]| {
            quiet(self.command().args(["-Werror", "-x", "c", "-fsyntax-only"]).args(flags).arg("/dev/null"))
        };
        match accepts(&GCC_FLAGS) {
            true => &GCC_FLAGS,
            false => &CLANG_FLAGS,
        }
    }
}

/// The flags for a system without a compiler in sight.
pub fn default_flags() -> &'static [&'static str] {
    &GCC_FLAGS
}

fn quiet(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(compiler: &Compiler, flags: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("loops.c");
        std::fs::write(
            &source,
            "void zero(double *a, long n) { for (long i = 0; i < n; i++) a[i] = 0; }\n\
             void copy(char *restrict a, const char *restrict b, long n) { for (long i = 0; i < n; i++) a[i] = b[i]; }\n",
        )
        .unwrap();
        let output = compiler.command().args(["-O3", "-S", "-o", "-"]).args(flags).arg(&source).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter(|l| l.contains("memset") || l.contains("memcpy")).map(str::to_owned).collect()
    }

    #[test]
    fn the_flags_keep_loops_from_becoming_library_calls() {
        let compilers: Vec<_> = ["gcc", "clang"]
            .map(|name| Compiler { words: vec![name.into()] })
            .into_iter()
            .filter(Compiler::works)
            .collect();
        assert!(!compilers.is_empty(), "no C compiler to test with");
        for compiler in compilers {
            assert_ne!(calls(&compiler, &[]).len(), 0, "{}: the flags have no purpose", compiler.name());
            assert_eq!(calls(&compiler, compiler.flags()), [""; 0], "{}", compiler.name());
        }
    }
}
