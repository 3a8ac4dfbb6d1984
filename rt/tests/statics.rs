//! Whose each static is: its type says it, as `src/kernel/owned.rs` explains. What never changes is a constant.
//!
//! Input: the runtime, the contract and the protocols, of which the runtime is made.

use blizzard_test_harness::layers::Tree;

/// [`Turn`](blizzard_rt::kernel::owned::Turn) is the guard of the third type.
const TYPES: [&str; 4] = ["PerProcess<", "PerThread<", "PerNode<", "Turn "];
/// What stands around statics of a thread, which are written with the type of the value.
const OF_THREAD: [&str; 2] = ["per_thread! {", "thread_local! {"];
/// Whose statics say nothing, and why.
const EXCEPTION: (&str, &str) = (
    "protocol/src/planted",
    "planted bugs, in no runtime that is embedded; the crate knows no owners, its state is what it is given",
);
/// The crates, by their folders in that of the runtime.
const CRATES: [&str; 3] = ["", "contract/", "protocol/"];

/// The statics that do not say it: file, line and text.
fn problems(folder: &str, tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (file, code) in tree.codes().filter(|(file, _)| format!("{folder}src/{file}") != EXCEPTION.0) {
        // The line that ends the statics of a thread.
        let mut end: Option<String> = None;
        for (number, line) in (1..).zip(code.lines()) {
            let text = line.trim_start();
            if OF_THREAD.iter().any(|start| text.ends_with(start)) {
                end = Some(format!("{}}}", &line[..line.len() - text.len()]));
            } else if end.as_deref() == Some(line) {
                end = None;
            } else if end.is_none()
                && let Some(of) = type_of_static(text)
                && !TYPES.iter().any(|name| of.trim_start_matches("$crate::kernel::owned::").starts_with(name))
            {
                problems.push(format!("{folder}src/{file}.rs:{number}: {text}"));
            }
        }
    }
    problems
}

/// The type, and what follows on the line. `None`: there is no static, or an external one, which has no value.
fn type_of_static(line: &str) -> Option<&str> {
    let (before, behind) = line.split_once("static ")?;
    let is_static = before.is_empty() || before.ends_with(' ');
    let (name, of) = behind.split_once(": ")?;
    let is_name = name.trim_start_matches("mut ").chars().all(|c| c.is_alphanumeric() || "_$".contains(c));
    let is_external = of.ends_with(';') && !of.contains('=');
    (is_static && is_name && !is_external).then_some(of)
}

fn read(folder: &str) -> Tree {
    Tree::read(&format!("{}/{folder}", env!("CARGO_MANIFEST_DIR")))
}

#[test]
fn types_say_whose_statics_are() {
    let problems: Vec<String> = CRATES.iter().flat_map(|folder| problems(folder, &read(folder))).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The exception is none for nothing.
#[test]
fn the_exception_has_statics() {
    let planted = read("protocol/");
    let (_, code) = planted.codes().find(|(file, _)| format!("protocol/src/{file}") == EXCEPTION.0).expect("the file");
    assert!(code.lines().any(|line| type_of_static(line).is_some()), "{} has no statics: {}", EXCEPTION.0, EXCEPTION.1);
}

/// What is found of the real tree with a line more in one of its files: the test above can fail.
#[test]
fn a_static_of_nobody_is_found() {
    for line in [
        "static COUNT: AtomicU64 = AtomicU64::new(0);",
        "pub(crate) static mut COUNT: u64 = 0;",
        "    pub static NAMES: Unaliased<PerProcess<u64>> =",
        "fn f() { static TOLD: AtomicBool = AtomicBool::new(false); }",
    ] {
        let found = problems("", &read("").with("kernel/limits", line));
        let is_it =
            |problem: &String| problem.starts_with("src/kernel/limits.rs:") && problem.ends_with(line.trim_start());
        assert!(found.len() == 1 && is_it(&found[0]), "{line}: {found:?}");
        assert_eq!(problems("contract/", &read("contract/").with("limits", line)).len(), 1, "{line}");
    }
}
