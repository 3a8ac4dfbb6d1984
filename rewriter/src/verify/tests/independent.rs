//! What the audit shares with the rewriter: nothing but what this list names.

use std::path::Path;

/// Modules of the crate that the audit may use, and why a mistake in them does not hide one in a rewrite; see `rewriter/DESIGN.md`.
const ALLOWED: [&str; 4] = [
    // How errors and addresses are printed: no result depends on it.
    "error",
    "ids",
    // The runtimes' bytes, which the caller of the audit will pass.
    "rt_blob",
    // Names of functions of other libraries that never return: facts from their documentation.
    "never_return",
];

/// The first name of each path in `text` that begins with `crate::`, also in braces.
fn names(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let group = rest.strip_prefix('{').and_then(|r| r.split_once('}')).map(|r| r.0);
        for path in group.unwrap_or(rest).split(',').take(if group.is_some() { usize::MAX } else { 1 }) {
            found.push(path.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_audit_uses_nothing_of_the_rewriter() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/verify"), &mut files);
    assert!(files.len() > 30, "the audit's sources were not found");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("read source");
        for name in names(&text) {
            assert!(ALLOWED.contains(&&*name), "{}: the audit must not use crate::{name}", file.display());
        }
        // Up to the crate's root by another name.
        assert!(!text.contains("super::super::super") && !text.contains("blizzard::"), "{}", file.display());
    }
}

#[test]
fn names_are_found_wherever_a_path_stands() {
    assert_eq!(names("use crate::{check, emit::Asm};\nlet x = crate::layout::y();"), ["check", "emit", "layout"]);
    assert_eq!(names("pub(in crate::verify) fn f() {}"), ["verify"]);
}
