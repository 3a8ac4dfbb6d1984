//! Tests that say what they need. Where it is not there they are skipped: by name, with the Debian package that brings it, and counted.
//!
//! Rust's own harness cannot skip a test that has begun, so test programs that need more than a C compiler have `harness = false` and run
//! on `libtest-mimic`. A test is an ordinary function, named in [`tests!`] or [`list!`]; what it needs it asks for when it needs it:
//! [`tool`] instead of `Command::new`, or [`need`].
//!
//! Input: functions. Output: the lines and the exit status of a Rust test program, and a record of the results for [`totals`].
//!
//! Environment: with `BLIZZARD_TEST_REQUIRE_ALL=1` a skip is a failure, but for what the processor lacks. `BLIZZARD_TEST_TIMES=FILE` adds a line for each test to FILE: seconds and name.
//! With `BLIZZARD_TEST_PASSED=FILE` a test that [`passed`] is not run again.

pub mod built;
pub mod executable;
pub mod folders;
pub mod layers;
pub mod needs;
pub mod passed;
mod records;
pub mod totals;

pub use libtest_mimic::Failed;
use libtest_mimic::{Arguments, Completion, Trial};
use needs::Skipped;
pub use needs::{need, need_cpu, shell_command, skip, tool};
use records::Record;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The environment variable under which a skip is a failure, but for what the processor lacks.
pub const REQUIRE_ALL: &str = "BLIZZARD_TEST_REQUIRE_ALL";
/// The environment variable that names the file of times.
const TIMES: &str = "BLIZZARD_TEST_TIMES";

/// One test: its name and what it does.
pub struct Test {
    name: String,
    /// Takes minutes: runs with `-- --ignored` or `--include-ignored` only.
    long: bool,
    /// What it runs with, where that depends on what is installed.
    with: String,
    run: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
}

impl Test {
    /// A test that fails by its result, or by a panic.
    pub fn new(name: impl Into<String>, run: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Test {
        Test { name: name.into(), long: false, with: String::new(), run: Box::new(run) }
    }

    /// The same test, which runs with what `with` names: where that changes it has not passed.
    #[must_use]
    pub fn with(mut self, with: String) -> Test {
        self.with = with;
        self
    }

    /// The same test, named as one of a module.
    #[must_use]
    pub fn of(self, module: &str) -> Test {
        Test { name: format!("{module}::{}", self.name), ..self }
    }

    /// The same test, among those that take minutes.
    #[must_use]
    pub fn long(self) -> Test {
        Test { long: true, ..self }
    }
}

/// Tests from functions without arguments: `list![one, two]`.
///
/// `name: ["gcc", "clang"]` calls the function once for each word, as a test of its own: what one of them lacks skips that one only.
/// `long: name` is a test that takes minutes.
#[macro_export]
macro_rules! list {
    (@add $tests:ident;) => {};
    (@add $tests:ident; long: $name:ident $(, $($rest:tt)*)?) => {
        $tests.push($crate::Test::new(stringify!($name), || { $name(); Ok(()) }).long());
        $crate::list!(@add $tests; $($($rest)*)?);
    };
    (@add $tests:ident; $name:ident: [$($part:expr),+ $(,)?] $(, $($rest:tt)*)?) => {
        for part in [$($part),+] {
            $tests.push($crate::Test::new(format!("{}::{part}", stringify!($name)), move || { $name(part); Ok(()) }));
        }
        $crate::list!(@add $tests; $($($rest)*)?);
    };
    (@add $tests:ident; $name:ident $(, $($rest:tt)*)?) => {
        $tests.push($crate::Test::new(stringify!($name), || { $name(); Ok(()) }));
        $crate::list!(@add $tests; $($($rest)*)?);
    };
    ($($entries:tt)+) => {{
        let mut tests = Vec::new();
        $crate::list!(@add tests; $($entries)+);
        tests
    }};
}

/// The function `tests` of a module of a test program: a [`list!`], in which each test is named as one of the module.
#[macro_export]
macro_rules! module {
    ($($entries:tt)+) => {
        pub fn tests() -> Vec<$crate::Test> {
            let module = module_path!().rsplit("::").next().unwrap_or_default();
            $crate::list![$($entries)+].into_iter().map(|test| test.of(module)).collect()
        }
    };
}

/// The `main` of a test program that runs a [`list!`].
#[macro_export]
macro_rules! tests {
    ($($entries:tt)+) => {
        fn main() {
            $crate::run(concat!(env!("CARGO_PKG_NAME"), "::", env!("CARGO_CRATE_NAME")), $crate::list![$($entries)+]);
        }
    };
}

/// Runs `tests` with the usual command line of a Rust test program, two at a time unless the user says otherwise, and exits.
/// `program` is the test program's name in the record: package and target.
pub fn run(program: &str, tests: Vec<Test>) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let required = std::env::var_os(REQUIRE_ALL).is_some_and(|v| v != "0" && !v.is_empty());
    let skipped = Arc::new(Mutex::new(Vec::new()));
    let known = Arc::new(AtomicU64::new(0));
    let trial = |test: Test| {
        let key = format!("{program} {} {}", test.name, test.with);
        if passed::is_known(&key) {
            known_trial(test, known.clone())
        } else {
            trial((key, test), required, skipped.clone())
        }
    };
    let trials: Vec<Trial> = tests.into_iter().map(trial).collect();
    let long = trials.iter().filter(|t| arguments.is_ignored(t) && !arguments.is_filtered_out(t)).count() as u64;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        let skipped = std::mem::take(&mut *skipped.lock().unwrap_or_else(|e| e.into_inner()));
        let (passed, failed) = (conclusion.num_passed, conclusion.num_failed);
        let known = known.load(Ordering::Relaxed);
        Record { program: program.to_owned(), passed, failed, long, known, skipped }.keep();
    }
    conclusion.exit()
}

/// A test that has passed, which counts itself instead.
fn known_trial(test: Test, known: Arc<AtomicU64>) -> Trial {
    let count = move || {
        known.fetch_add(1, Ordering::Relaxed);
        Ok(Completion::ignored_with("has passed already"))
    };
    Trial::ignorable_test(test.name, count).with_kind(if test.long { "long" } else { "" }).with_ignored_flag(test.long)
}

/// `key`: what the test is known by in the file of those that have passed.
fn trial((key, test): (String, Test), required: bool, all: Arc<Mutex<Vec<String>>>) -> Trial {
    let Test { name, long, run, .. } = test;
    let of_record = name.clone();
    let body = move || match timed(&of_record, || catch_unwind(AssertUnwindSafe(run))) {
        Ok(result) => result.map(|()| {
            passed::add(&key);
            Completion::Completed
        }),
        Err(payload) => match payload.downcast::<Skipped>() {
            Ok(skipped) if required && skipped.can_be_mended => {
                Err(Failed::from(format!("{REQUIRE_ALL} is set, and this test {skipped}")))
            }
            Ok(skipped) => {
                all.lock().unwrap_or_else(|e| e.into_inner()).push(format!("{of_record}: {skipped}"));
                Ok(Completion::ignored_with(format!("skipped: {skipped}")))
            }
            Err(other) => resume_unwind(other),
        },
    };
    Trial::ignorable_test(name, body).with_kind(if long { "long" } else { "" }).with_ignored_flag(long)
}

/// Calls the function, and adds a line to the file of times if there is one.
fn timed<R>(name: &str, run: impl FnOnce() -> R) -> R {
    let begun = Instant::now();
    let result = run();
    if let Some(path) = std::env::var_os(TIMES) {
        let line = format!("{:8.2} {name}\n", begun.elapsed().as_secs_f64());
        let written =
            OpenOptions::new().create(true).append(true).open(&path).and_then(|mut f| f.write_all(line.as_bytes()));
        if let Err(e) = written {
            eprintln!("{TIMES}: {}: {e}", Path::new(&path).display());
        }
    }
    result
}
