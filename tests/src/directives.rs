//! The `//#` lines at the top of a case's source file.
//!
//! Input: the source text. Output: [`Directives`]. Unknown keys are errors, so that a misspelt directive cannot silently
//! test less than it says.
//!
//! | directive | meaning |
//! |---|---|
//! | `compilers: gcc clang` | compilers to use (`gcc` means `g++` for C++); default both, `rustc` for Rust |
//! | `flags: -O0 \| -O2 -g` | alternatives of compiler flags |
//! | `link: -no-pie \| -pie -s` | alternatives of further flags, by custom those that matter to the linker |
//! | `matrix: pairs` or `full` | each pair of alternatives at least once (default), or all combinations |
//! | `with: helper.S` | more source files of the same folder |
//! | `library: helper.c` | a source file of the same folder that becomes a shared library, linked to |
//! | `args: a b` | arguments; several lines mean several runs |
//! | `stdin: text` | standard input (`\n` is a line end) |
//! | `env: NAME=VALUE` | environment variable |
//! | `exit: 3`, `signal: SIGABRT` | how the program ends; default exit status 0 |
//! | `stderr: same`, `ignore`, `mentions A B` | compared (default), not compared, or both runs must contain the words |
//! | `needs-cpu: avx2 fma` | skipped, visibly, on a processor without these flags |
//! | `uses: blizzard` | compiled against `blizzard.h` |
//! | `nodes: 2 4` | also run on so many nodes, in three configurations; standard output must stay that of the plain program |
//! | `guarded-nodes: 2` | also run rewritten as guarded code on so many nodes; default the smallest number of `nodes` from two on |
//! | `shared: 2` | also built with `-DSHARED` against `blizzard.h`, and this program run on so many nodes, likewise |
//! | `checks: all` | run rewritten with all checks only: what it tests is done by checks |
//! | `refuse: text` | the rewrite with all checks must be refused with this text |
//! | `access: tests` | guarded code is not tried |
//! | `refuse-guard: text` | the rewrite with `--access guard` must be refused with this text |
//! | `timeout: 60` | seconds for one run; default [`LIMIT`] |

use crate::run::{Ending, LIMIT};
use std::path::PathBuf;

/// How standard error is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StderrRule {
    Same,
    Ignore,
    /// Both texts contain every one of the words.
    Mentions(Vec<String>),
}

/// What the directives of one source file say.
#[derive(Clone, Debug)]
pub struct Directives {
    pub compilers: Vec<String>,
    pub flags: Vec<Vec<String>>,
    pub link: Vec<Vec<String>>,
    pub full_matrix: bool,
    pub with: Vec<PathBuf>,
    pub library: Option<PathBuf>,
    /// One entry per run.
    pub args: Vec<Vec<String>>,
    pub stdin: String,
    pub env: Vec<(String, String)>,
    pub ending: Ending,
    pub stderr: StderrRule,
    pub needs_cpu: Vec<String>,
    pub uses_blizzard: bool,
    pub nodes: Vec<u32>,
    pub guarded_nodes: Vec<u32>,
    pub shared: Vec<u32>,
    pub all_checks_only: bool,
    pub refuse: Option<String>,
    pub refuse_guard: Option<String>,
    pub tests_only: bool,
    pub timeout_s: u64,
}

impl Directives {
    /// Reads the directives of `source`; `None` when there are none, that is, when the file is not a case by itself.
    ///
    /// # Errors
    /// The line that is not understood.
    pub fn parse(source: &str, is_rust: bool) -> Result<Option<Directives>, String> {
        let lines: Vec<&str> = source.lines().filter_map(|l| l.strip_prefix("//#")).collect();
        if lines.is_empty() {
            return Ok(None);
        }
        let compilers = if is_rust { vec!["rustc".into()] } else { vec!["gcc".into(), "clang".into()] };
        let mut d = Directives {
            compilers,
            flags: Vec::new(),
            link: Vec::new(),
            full_matrix: false,
            with: Vec::new(),
            library: None,
            args: Vec::new(),
            stdin: String::new(),
            env: Vec::new(),
            ending: Ending::Exit(0),
            stderr: StderrRule::Same,
            needs_cpu: Vec::new(),
            uses_blizzard: false,
            nodes: Vec::new(),
            guarded_nodes: Vec::new(),
            shared: Vec::new(),
            all_checks_only: false,
            refuse: None,
            refuse_guard: None,
            tests_only: false,
            timeout_s: LIMIT.as_secs(),
        };
        for line in lines {
            let (key, value) = line.split_once(':').ok_or_else(|| format!("directive without a colon: {line}"))?;
            d.set(key.trim(), value.trim()).map_err(|e| format!("//#{line}: {e}"))?;
        }
        if d.flags.is_empty() {
            d.flags.push(Vec::new());
        }
        if d.link.is_empty() {
            d.link.push(Vec::new());
        }
        if d.args.is_empty() {
            d.args.push(Vec::new());
        }
        Ok(Some(d))
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let numbers = || {
            words(value).iter().map(|w| w.parse::<u32>().map_err(|e| e.to_string())).collect::<Result<Vec<u32>, _>>()
        };
        match key {
            "compilers" => self.compilers = words(value),
            "flags" => self.flags.extend(value.split('|').map(words)),
            "link" => self.link.extend(value.split('|').map(words)),
            "matrix" => {
                self.full_matrix = match value {
                    "full" => true,
                    "pairs" => false,
                    _ => return Err("neither `full` nor `pairs`".into()),
                }
            }
            "with" => self.with = words(value).into_iter().map(PathBuf::from).collect(),
            "library" => self.library = Some(PathBuf::from(value)),
            "args" => self.args.push(words(value)),
            "stdin" => self.stdin = value.replace("\\n", "\n"),
            "env" => {
                let (name, value) = value.split_once('=').ok_or("no `=`")?;
                self.env.push((name.into(), value.into()));
            }
            "exit" => self.ending = Ending::Exit(value.parse().map_err(|_| "not a number")?),
            "signal" => self.ending = Ending::Signal(signal_number(value)?),
            "stderr" => {
                self.stderr = match words(value).split_first() {
                    Some((rule, [])) if rule == "same" => StderrRule::Same,
                    Some((rule, [])) if rule == "ignore" => StderrRule::Ignore,
                    Some((rule, rest)) if rule == "mentions" && !rest.is_empty() => StderrRule::Mentions(rest.to_vec()),
                    _ => return Err("neither `same`, `ignore` nor `mentions WORDS`".into()),
                }
            }
            "needs-cpu" => self.needs_cpu = words(value),
            "uses" if value == "blizzard" => self.uses_blizzard = true,
            "nodes" => {
                self.nodes = numbers()?;
                self.uses_blizzard = true;
            }
            "guarded-nodes" => self.guarded_nodes = numbers()?,
            "shared" => self.shared = numbers()?,
            "checks" if value == "all" => self.all_checks_only = true,
            "refuse" => self.refuse = Some(value.into()),
            "access" if value == "tests" => self.tests_only = true,
            "refuse-guard" => self.refuse_guard = Some(value.into()),
            "timeout" => self.timeout_s = value.parse().map_err(|_| "not a number")?,
            _ => return Err("unknown directive".into()),
        }
        Ok(())
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

fn signal_number(name: &str) -> Result<i32, String> {
    use rustix::process::Signal;
    let signal = match name {
        "SIGABRT" => Signal::ABORT,
        "SIGSEGV" => Signal::SEGV,
        "SIGFPE" => Signal::FPE,
        "SIGILL" => Signal::ILL,
        "SIGTRAP" => Signal::TRAP,
        "SIGTERM" => Signal::TERM,
        "SIGKILL" => Signal::KILL,
        _ => return Err(format!("unknown signal {name}")),
    };
    Ok(signal.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_and_runs() {
        let text = "//# flags: -O0 | -O2 -g\n//# args: 1 2\n//# args:\n//# signal: SIGABRT\nint main;\n";
        let d = Directives::parse(text, false).unwrap().unwrap();
        assert_eq!(d.flags, [vec!["-O0".to_string()], vec!["-O2".into(), "-g".into()]]);
        assert_eq!(d.args, [vec!["1".to_string(), "2".into()], vec![]]);
        assert_eq!(d.ending, Ending::Signal(6));
        assert_eq!(d.compilers, ["gcc", "clang"]);
    }

    #[test]
    fn misspelt_directives_are_errors() {
        assert!(Directives::parse("//# flag: -O0\n", false).is_err());
        assert!(Directives::parse("//# stderr: some\n", false).is_err());
        assert!(Directives::parse("int main;\n", false).unwrap().is_none());
    }
}
