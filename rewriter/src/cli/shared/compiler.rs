//! The system's C compiler: finding it, and the flags that programs with shared memory need where libraries are not rewritten.
//!
//! Input: the command that the user asks for, or `CC`. Output: a [`Compiler`], and its flags.

use crate::base::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};

/// A C compiler command, possibly with arguments of its own (`CC="ccache gcc"`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    words: Vec<OsString>,
}

/// Tried in this order when CC is not set.
const USUAL: [&str; 3] = ["cc", "gcc", "clang"];

/// GCC: do not turn loops into calls of memset and memcpy; copy and clear large structures in place.
const GCC_FLAGS: [&str; 2] = ["-fno-tree-loop-distribute-patterns", "-mstringop-strategy=rep_8byte"];
/// Clang: it makes no calls of functions it may not assume to be there. Structures it copies by a call all the same, unless the processor is
/// said to have a fast `rep movsb` (every processor has a correct one); at -O0, and to clear them, it always calls.
const CLANG_FLAGS: [&str; 9] = [
    "-fno-builtin-memset",
    "-fno-builtin-memcpy",
    "-fno-builtin-memmove",
    "-mllvm",
    "-x86-use-fsrm-for-memcpy",
    "-Xclang",
    "-target-feature",
    "-Xclang",
    "+fsrm",
];
/// Clang without that inner option.
const PLAIN_CLANG_FLAGS: [&str; 3] = ["-fno-builtin-memset", "-fno-builtin-memcpy", "-fno-builtin-memmove"];

impl Compiler {
    /// The compiler that is `asked` for, else `$CC`, else the first usual compiler in PATH, if there is one.
    ///
    /// # Errors
    /// When what is asked for, or named by CC, does not run.
    pub fn find(asked: Option<&str>) -> Result<Option<Self>> {
        let of_environment = std::env::var("CC").unwrap_or_default();
        let (chosen, source) = match asked {
            Some(asked) => (asked, "--compiler"),
            None => (of_environment.as_str(), "CC"),
        };
        if asked.is_none() && chosen.trim().is_empty() {
            let usual = USUAL.map(|name| Compiler { words: vec![OsString::from(name)] });
            return Ok(usual.into_iter().find(Compiler::works));
        }
        let compiler = Compiler { words: chosen.split_whitespace().map(OsString::from).collect() };
        if !compiler.words.is_empty() && compiler.works() {
            Ok(Some(compiler))
        } else {
            Err(Error::new(format!("the C compiler that {source} names does not run: {}", chosen.trim())))
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

    /// Flags that keep the compiler from passing shared memory to libc behind the program's back; none if this compiler has no
    /// such flags.
    ///
    /// Where libraries are not rewritten, what they read or write is not checked. A program can see that it passes no shared memory
    /// to a library; but compilers also turn loops and assignments of structures into calls of `memset` and `memcpy`, unless told not to.
    pub fn flags(&self) -> Option<&'static [&'static str]> {
        // Compilers differ in what they accept, whatever their name: ask this one.
        let accepts = |flags: &&[&str]| {
            quiet(self.command().args(["-Werror", "-x", "c", "-fsyntax-only"]).args(*flags).arg("/dev/null"))
        };
        [&GCC_FLAGS[..], &CLANG_FLAGS[..], &PLAIN_CLANG_FLAGS[..]].into_iter().find(accepts)
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

    /// One function for each thing that compilers make calls of.
    const SOURCE: &str = "
        struct middle { char bytes[400]; };
        struct large { char bytes[100000]; };
        void zero_loop(double *a, long n) { for (long i = 0; i < n; i++) a[i] = 0; }
        void copy_loop(char *restrict a, const char *restrict b, long n) { for (long i = 0; i < n; i++) a[i] = b[i]; }
        void shift_loop(int *a, long n) { for (long i = 0; i < n; i++) a[i] = a[i + 1]; }
        void copy_middle(struct middle *a, const struct middle *b) { *a = *b; }
        void copy_large(struct large *a, const struct large *b) { *a = *b; }
        struct middle copy_result(const struct middle *a) { return *a; }
        void clear_middle(struct middle *a) { *a = (struct middle){0}; }
        void clear_large(struct large *a) { *a = (struct large){0}; }
    ";

    /// The functions that call a library.
    fn callers(compiler: &Compiler, level: &str, flags: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source.c");
        std::fs::write(&source, SOURCE).unwrap();
        let output = compiler.command().args([level, "-S", "-o", "-"]).args(flags).arg(&source).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let (mut function, mut found) = (String::new(), Vec::new());
        for line in text.lines() {
            match line.split_once(':') {
                Some((label, _)) if !label.starts_with(['.', '\t', ' ', '#']) => function = label.to_owned(),
                _ => {}
            }
            if ["memset", "memcpy", "memmove"].iter().any(|name| line.contains(name)) {
                found.push(function.clone());
            }
        }
        found.dedup();
        found
    }

    #[test]
    fn the_flags_keep_the_compiler_from_making_library_calls() {
        make_no_library_calls("cc");
    }

    #[test]
    #[ignore = "needs clang: run by tests/of_the_library.rs"]
    fn the_flags_keep_clang_from_making_library_calls() {
        make_no_library_calls("clang");
    }

    fn make_no_library_calls(name: &str) {
        let compiler = Compiler { words: vec![name.into()] };
        let flags = compiler.flags().unwrap();
        let without = callers(&compiler, "-O3", &[]);
        assert!(without.len() > 3, "{name}: the flags have no purpose: {without:?}");
        for level in ["-O1", "-O2", "-O3", "-Os"] {
            let mut with = callers(&compiler, level, flags);
            if flags.contains(&"-fno-builtin-memset") {
                // What the help of `blizzard config` warns of.
                with.retain(|function| !function.starts_with("clear_"));
            }
            assert_eq!(with, [""; 0], "{name} {level}");
        }
    }

    #[test]
    fn a_compiler_that_does_not_run_is_an_error_that_names_it() {
        for name in ["no-such-compiler", "", "  "] {
            let error = Compiler::find(Some(name)).unwrap_err();
            assert!(error.what.contains("--compiler") && error.what.contains(name.trim()), "{error}");
        }
        let words = Compiler::find(Some("  env   cc ")).unwrap().unwrap().words;
        assert_eq!(words, ["env", "cc"]);
    }

    /// A compiler that takes none of the flags is not given any.
    #[test]
    fn flags_that_are_refused_are_left_out() {
        assert_eq!(Compiler { words: vec!["false".into()] }.flags(), None);
        assert_eq!(Compiler { words: vec!["true".into()] }.flags(), Some(&GCC_FLAGS[..]));
    }
}
