//! The harness itself: what is skipped, what fails, what is counted.
//!
//! This executable starts itself again with [`SAMPLE`] set: then it is a test program with tests of each kind, or the program that adds up.

use blizzard_test_harness::layers::{SIBLINGS, Tree};
use blizzard_test_harness::needs::{need, need_system, package, send_signal, shell_command};
use blizzard_test_harness::{REQUIRE_ALL, Test, list, passed, run, totals};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

const SAMPLE: &str = "HARNESS_SAMPLE";
const LINE: &str = "HARNESS_LINE";

fn main() {
    match std::env::var(SAMPLE).as_deref() {
        Ok("tests") => run("sample::tests", list![passes, each: ["sh", "no-such-program"], long: takes_minutes]),
        Ok("with") => {
            let test = Test::new("passes", || Ok(())).with(std::env::var(LINE).unwrap());
            run("sample::with", vec![test]);
        }
        Ok("failing") => run("sample::failing", list![passes, fails]),
        Ok("line") => run("sample::line", list![line]),
        Ok("totals") => return totals::main(),
        _ => {}
    }
    let tests = list![
        a_missing_program_skips_by_name,
        a_skip_is_a_failure_where_all_is_required,
        failures_are_failures,
        long_tests_wait_to_be_asked_for,
        what_has_passed_is_not_run_again,
        the_totals_count_all_programs_of_a_command,
        the_totals_are_in_the_last_package,
        each_command_of_a_shell_line_is_looked_for,
        gcc_may_have_the_name_cc_only,
        a_signal_is_sent_by_name_or_number,
        each_rule_of_layers_is_held,
        a_file_without_an_opening_is_found,
        a_folder_with_too_many_files_is_found,
    ];
    run("blizzard-test-harness::harness", tests);
}

fn passes() {}

fn each(program: &str) {
    need(program);
}

fn takes_minutes() {}

fn fails() {
    need_system(true, "what it has");
    assert_eq!(1, 2, "on purpose");
}

/// Needs what the line does; it is not run.
fn line() {
    shell_command(&std::env::var(LINE).unwrap());
}

/// What the sample says, and its status.
fn sample(which: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (String, Option<i32>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(arguments)
        .env(SAMPLE, which)
        .env_remove(REQUIRE_ALL)
        .env_remove(passed::FILE)
        .envs(variables.iter().copied());
    let output = command.output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

fn a_missing_program_skips_by_name() {
    let (said, status) = sample("tests", &[], &[]);
    assert!(said.contains("needs no-such-program (Debian package no-such-program)"), "{said}");
    assert!(said.contains("2 passed; 0 failed; 2 ignored"), "{said}");
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(["clang++", "setpriv", "nm", "tool"].map(package), ["clang", "util-linux", "binutils", "tool"]);
}

fn a_skip_is_a_failure_where_all_is_required() {
    let (said, status) = sample("tests", &[], &[(REQUIRE_ALL, "1")]);
    assert!(said.contains("2 passed; 1 failed; 1 ignored") && said.contains("needs no-such-program"), "{said}");
    assert_eq!(status, Some(101));
    assert_eq!(sample("tests", &[], &[(REQUIRE_ALL, "0")]).1, Some(0));
}

fn failures_are_failures() {
    let (said, status) = sample("failing", &[], &[]);
    assert!(said.contains("1 passed; 1 failed; 0 ignored") && said.contains("on purpose"), "{said}");
    assert_eq!(status, Some(101));
}

fn long_tests_wait_to_be_asked_for() {
    let (said, _) = sample("tests", &["--ignored"], &[]);
    assert!(
        said.contains("test [long] takes_minutes ... ok") && said.contains("1 passed; 0 failed; 0 ignored"),
        "{said}"
    );
}

fn what_has_passed_is_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("passed");
    let again = |which: &str, line: &str| sample(which, &[], &[(passed::FILE, file.to_str().unwrap()), (LINE, line)]).0;
    assert!(again("tests", "").contains("2 passed; 0 failed; 2 ignored"));
    let said = again("tests", "");
    assert!(said.contains("0 passed; 0 failed; 4 ignored") && said.contains("(has passed already)"), "{said}");
    assert!(said.contains("needs no-such-program"), "{said}");
    // What failed is run again, and so is what has more to run with.
    for _ in 0..2 {
        assert!(again("failing", "").contains("1 failed"));
    }
    for (line, expected) in [("gcc", "1 passed"), ("gcc", "0 passed"), ("gcc, clang", "1 passed")] {
        let said = again("with", line);
        assert!(said.contains(expected), "{line}: {said}");
    }
}

/// The parent of the programs stands for cargo: a shell for each of the two commands here.
fn the_totals_count_all_programs_of_a_command() {
    let own = std::env::current_exe().unwrap();
    let in_turn = |programs: &[&str]| {
        let line: Vec<String> = programs.iter().map(|which| format!("{SAMPLE}={which} \"$0\"")).collect();
        let mut sh = Command::new("sh");
        let output = sh
            .args(["-c", &(line.join("; ") + "; exit 0")])
            .arg(&own)
            .env_remove(REQUIRE_ALL)
            .env_remove(passed::FILE)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let without = "(without the programs on Rust's own harness: they were not started by `cargo test`)";
    let said = in_turn(&["tests", "failing", "totals"]);
    assert!(said.contains("\nskipped: sample::tests::each::no-such-program: needs no-such-program"), "{said}");
    assert!(said.contains("\nleft out: 1 tests that take long"), "{said}");
    assert!(said.ends_with(&format!("3 passed, 1 failed, 1 skipped {without}\n")), "{said}");
    // Nothing of another command.
    assert!(in_turn(&["failing", "totals"]).ends_with(&format!("1 passed, 1 failed, 0 skipped {without}\n")));
}

/// Why the sample is skipped whose only test runs `line` with nothing but a shell in PATH, and what else `fill` puts there.
fn skipped(line: &str, fill: impl Fn(&Path)) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    symlink("/bin/sh", folder.path().join("sh")).unwrap();
    fill(folder.path());
    let (said, status) = sample("line", &[], &[("PATH", folder.path().to_str().unwrap()), (LINE, line)]);
    assert_eq!(status, Some(0), "{said}");
    let (_, rest) = said.split_once("skipped: ")?;
    Some(rest.split_once(')').unwrap().0.to_owned() + ")")
}

/// The tests of a package behind that of the totals were counted as passed before they ran.
fn the_totals_are_in_the_last_package() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = manifest.split_once("\nmembers = [").unwrap().1.split_once(']').unwrap().0;
    let name = |folder: &str| {
        let text = std::fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap();
        text.split_once("\nname = \"").unwrap().1.split_once('"').unwrap().0.to_owned()
    };
    let last = members.split('"').skip(1).step_by(2).map(name).max();
    assert_eq!(last.as_deref(), Some("blizzard-whole-workspace"));
}

fn each_command_of_a_shell_line_is_looked_for() {
    let why = |line| skipped(line, |_| ());
    assert_eq!(why("echo sed"), None);
    assert_eq!(why("echo x | sed s/x/y/").as_deref(), Some("needs sed (Debian package sed)"));
    assert_eq!(why("true; gdb -batch").as_deref(), Some("needs gdb (Debian package gdb)"));
}

fn gcc_may_have_the_name_cc_only() {
    let without = Some("needs gcc (Debian package gcc)".to_owned());
    assert_eq!(skipped("gcc --version", |_| ()), without);
    for (says, expected) in [("Free Software Foundation", None), ("clang version 14", without)] {
        let cc = |folder: &Path| {
            // Written by another process: one of this process's children might hold it open when it is to be executed.
            let mut sh = Command::new("sh");
            sh.args(["-c", "printf '#!/bin/sh\necho %s\n' \"$1\" > \"$0\"; chmod +x \"$0\""])
                .arg(folder.join("cc"))
                .arg(says);
            assert!(sh.status().unwrap().success());
        };
        assert_eq!(skipped("gcc -v", cc), expected, "{says}");
    }
}

fn a_signal_is_sent_by_name_or_number() {
    for (signal, number) in [("TERM", 15), ("40", 40)] {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        assert!(send_signal(signal, child.id()));
        assert_eq!(child.wait().unwrap().signal(), Some(number));
    }
}

/// A crate of two layers, and what is wrong with it once `file` has one `line` more.
fn wrong_with(file: &str, line: &str) -> String {
    let files = [
        ("lib", "//! A crate.\n\nmod upper;\n\nmod lower;\n"),
        ("upper/mod", "//! Any order.\n\nmod a;\nmod b;\n"),
        ("upper/a", "//! Nothing: crate::lower.\n"),
        (
            "upper/b",
            "//! B.\nuse crate::upper::a::{self, A};\n\n#[cfg(test)]\nmod tests {\n    use crate::lower::first::first::First;\n}\n",
        ),
        ("lower/mod", "//! In order.\n\nmod first;\n\nmod second;\n"),
        ("lower/first/mod", "//! One.\nmod first;\n"),
        ("lower/first/first", "//! First.\nfn f() { crate::upper::b::g() }\n"),
        ("lower/second", "//! Second.\nuse crate::{lower::first::first::First, upper::a};\n"),
        ("lower/tests/second", "use super::second;\n"),
    ];
    let tree = Tree::of(files.map(|(path, text)| (path.to_owned(), text.to_owned())));
    assert_eq!(tree.problems(), [""; 0]);
    tree.with(file, line).problems().join("\n")
}

fn each_rule_of_layers_is_held() {
    for (file, line, wanted) in [
        (
            "upper/a",
            "use crate::lower::second::S;",
            "upper/a imports lower/second, which stands below it in the list\nthese import each other: lower/first/first, lower/second, upper/a, upper/b",
        ),
        (
            "upper/a",
            "use crate::{upper::b as u, lower};",
            "upper/a imports crate::lower, of no module's file\nthese import each other: upper/a, upper/b",
        ),
        (
            "lower/first/first",
            "fn g() { crate::lower::second::h() }",
            "lower/first/first imports lower/second, which stands below it in the list\nthese import each other: lower/first/first, lower/second",
        ),
        ("lower/second", "use super::first::first::First;", "lower/second names a module by `super`"),
        ("upper/b", "use crate::A;", "upper/b imports crate::A, of no module's file"),
        ("lower/mod", "fn f() {}", "lower/mod holds code: fn f() {}"),
        ("lower/third", "//! Third.", "lower/third is not in the list of its folder"),
        ("third/mod", "//! Nothing.", "third/mod is not in the list of its folder"),
    ] {
        assert_eq!(wrong_with(file, line), wanted, "{line}");
    }
    assert_eq!(wrong_with("upper/b", "pub(super) use crate::upper::a::B; // super::a"), "");
}

fn a_file_without_an_opening_is_found() {
    let tree =
        Tree::of([("lib", "//! A crate.\nmod a;\n"), ("a", "fn f() {}\n")].map(|(p, t)| (p.to_owned(), t.to_owned())));
    assert_eq!(tree.problems(), ["a does not open with what it is about"]);
}

fn a_folder_with_too_many_files_is_found() {
    let files = (0..=SIBLINGS).map(|k| (format!("folder/file{k}"), "//! A file.\n".to_owned()));
    let list = (0..=SIBLINGS).map(|k| format!("mod file{k};\n")).collect::<String>();
    let lists = [("lib", "//! A crate.\nmod folder;".to_owned()), ("folder/mod", format!("//! A folder.\n{list}"))];
    let tree = Tree::of(files.chain(lists.map(|(path, text)| (path.to_owned(), text))));
    assert_eq!(tree.problems(), [format!("src/folder has {} entries, more than {SIBLINGS}", SIBLINGS + 2)]);
}
