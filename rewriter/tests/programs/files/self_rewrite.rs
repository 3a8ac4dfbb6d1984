//! The rewriter, rewritten by itself, writes the same bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

blizzard_test_harness::module! {
    the_rewritten_rewriter_writes_the_same_bytes,
}

const BLIZZARD: &str = env!("CARGO_BIN_EXE_blizzard");

fn rewrite(tool: &Path, cache: &Path, arguments: &[&str]) {
    let output = Command::new(tool).env("BLIZZARD_CACHE", cache).arg("rewrite").args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// All files below a folder.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut work = vec![folder.to_owned()];
    while let Some(at) = work.pop() {
        if at.is_dir() {
            work.extend(std::fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            found.insert(at.strip_prefix(folder).unwrap().to_owned(), std::fs::read(&at).unwrap());
        }
    }
    found
}

/// bash with the dynamic loader, the C library and others; the rewriter itself.
fn the_rewritten_rewriter_writes_the_same_bytes() {
    let bash = blizzard_test_harness::need("bash").display().to_string();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    rewrite(Path::new(BLIZZARD), &at("cache"), &[BLIZZARD, "-o", at("own").to_str().unwrap()]);
    let mut trees = Vec::new();
    for (name, tool) in [("by-original", PathBuf::from(BLIZZARD)), ("by-rewritten", at("own"))] {
        let out = at(name);
        std::fs::create_dir(&out).unwrap();
        let cache = at(&format!("{name}-cache"));
        let bundle = out.join("bash");
        rewrite(&tool, &cache, &[&bash, "--bundle", bundle.to_str().unwrap()]);
        rewrite(&tool, &cache, &["--no-libraries", BLIZZARD, "-o", out.join("self").to_str().unwrap()]);
        let null = ["--no-libraries", "--checks", "none", "--poll", "none", &bash, "-o"];
        rewrite(&tool, &cache, &[&null[..], &[out.join("null").to_str().unwrap()]].concat());
        trees.push(tree(&out));
    }
    let names: Vec<_> = trees[0].keys().collect();
    assert!(names.len() >= 5, "{names:?}");
    assert_eq!(names, trees[1].keys().collect::<Vec<_>>());
    for (name, bytes) in &trees[0] {
        assert!(*bytes == trees[1][name], "{} differs", name.display());
    }
}
