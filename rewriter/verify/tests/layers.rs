//! The layers of the crate: which module may import which.
//!
//! Input: the files below `src`, without the unit tests. `src/lib.rs` lists the folders, and `src/judge/mod.rs` those of the judges. A module imports from
//! folders above its own in these lists, and from its siblings. **Invariants**
//! * no import goes down a list;
//! * no modules import each other, not even over others;
//! * a path names its module from the crate on, so that this test sees it;
//! * a folder has at most fifteen entries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Most entries of a folder.
const SIBLINGS: usize = 15;

/// Source text by path below `src`, without `.rs`: `graph/blocks`, `judge/mod`.
type Tree = BTreeMap<String, String>;

fn read() -> Tree {
    fn walk(folder: &Path, name: &str, tree: &mut Tree) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let file = entry.file_name().into_string().unwrap();
            let path = entry.path();
            if path.is_dir() {
                if (name, &file[..]) != ("", "tests") {
                    walk(&path, &format!("{name}{file}/"), tree);
                }
            } else if let Some(stem) = file.strip_suffix(".rs") {
                tree.insert(format!("{name}{stem}"), std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut tree = Tree::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut tree);
    tree
}

/// The text without comments and without the unit tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// All paths in the text that begin with `crate`, trees of imports expanded.
fn paths(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, word) in text.match_indices("crate::") {
        if !text[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$')) {
            tree(&mut text[at + word.len()..].trim_start(), &[], &mut found);
        }
    }
    found
}

fn tree(rest: &mut &str, prefix: &[String], found: &mut Vec<Vec<String>>) {
    let mut path = prefix.to_vec();
    loop {
        *rest = rest.trim_start();
        if let Some(inner) = rest.strip_prefix('{') {
            *rest = inner.trim_start();
            while !rest.starts_with('}') {
                tree(rest, &path, found);
                *rest = rest.trim_start_matches(|c: char| c != ',' && c != '}');
                *rest = rest.trim_start_matches(',').trim_start();
            }
            *rest = &rest[1..];
            return;
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end > 0 && &rest[..end] != "self" {
            path.push(rest[..end].to_string());
        }
        *rest = rest[end..].trim_start();
        match rest.strip_prefix("::") {
            Some(behind) if end > 0 => *rest = behind,
            _ => break,
        }
    }
    found.push(path);
}

/// The modules that a file declares, in order.
fn declared(text: &str) -> Vec<String> {
    let name = |line: &str| Some(line.split_once("mod ")?.1.strip_suffix(';')?.to_string());
    code(text).lines().filter_map(name).collect()
}

/// Where a module stands in the lists: its place in `lib.rs`, and in its folder where that has a list. Siblings stand at the same place.
fn rank(tree: &Tree, module: &str) -> Vec<usize> {
    let place = |list: &str, name: &str| declared(&tree[list]).iter().position(|m| m == name);
    let mut parts = module.split('/');
    let (first, second) = (parts.next().unwrap(), parts.next());
    let mut rank = vec![place("lib", first).unwrap_or_else(|| panic!("lib.rs does not list {first}"))];
    if first == "judge" {
        let second = second.unwrap();
        rank.push(place("judge/mod", second).unwrap_or_else(|| panic!("judge/mod.rs does not list {second}")));
    }
    rank
}

/// What is wrong with the tree.
fn problems(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    let mut imports: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let modules = || tree.keys().map(String::as_str).filter(|m| *m != "lib" && m.rsplit('/').next() != Some("mod"));
    for module in modules() {
        let code = code(&tree[module]);
        if code.replace("pub(super)", "").contains("super::") {
            problems.push(format!("{module} names a module by `super`"));
        }
        for path in paths(&code) {
            let prefix = (1..=path.len()).rev().map(|n| path[..n].join("/"));
            match prefix.into_iter().find(|p| modules().any(|m| m == p)) {
                Some(found) if found == module => {}
                Some(found) => _ = imports.entry(module).or_default().insert(found),
                None => problems.push(format!("{module} imports crate::{}, of no module's file", path.join("::"))),
            }
        }
    }
    for (module, list) in &imports {
        for import in list.iter().filter(|import| rank(tree, import) > rank(tree, module)) {
            problems.push(format!("{module} imports {import}, which stands below it in the list"));
        }
    }
    // Modules that nobody imports any more are left out until none is left, or those of cycles.
    let mut left: BTreeSet<&str> = modules().collect();
    loop {
        let used: BTreeSet<&str> = left.iter().filter_map(|m| imports.get(m)).flatten().map(String::as_str).collect();
        let still: BTreeSet<&str> = left.intersection(&used).copied().collect();
        if still.len() == left.len() {
            break;
        }
        left = still;
    }
    let leads_back = |start: &str| {
        let (mut seen, mut work) = (BTreeSet::new(), vec![start]);
        while let Some(m) = work.pop() {
            work.extend(imports.get(m).into_iter().flatten().map(String::as_str).filter(|m| seen.insert(*m)));
        }
        seen.contains(start)
    };
    let cycle: Vec<&str> = left.into_iter().filter(|m| leads_back(m)).collect();
    if !cycle.is_empty() {
        problems.push(format!("these import each other: {}", cycle.join(", ")));
    }
    let mut folders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in tree.keys() {
        let mut path = file.as_str();
        loop {
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            folders.entry(folder).or_default().insert(name);
            if folder.is_empty() {
                break;
            }
            path = folder;
        }
    }
    for (folder, entries) in folders.iter().filter(|(_, entries)| entries.len() > SIBLINGS) {
        problems.push(format!("src/{folder} has {} entries, more than {SIBLINGS}", entries.len()));
    }
    problems
}

#[test]
fn imports_point_up_the_list() {
    let tree = read();
    assert!(tree.len() > 50, "{} files were read", tree.len());
    let problems = problems(&tree);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The one problem of the tree with a line more in a file.
fn with(module: &str, line: &str) -> String {
    let mut tree = read();
    tree.get_mut(module).unwrap_or_else(|| panic!("no {module}")).insert_str(0, line);
    let problems = problems(&tree);
    assert!(!problems.is_empty(), "nothing is wrong with {line:?} in {module}");
    problems.join("\n")
}

#[test]
fn an_import_down_the_list_is_found() {
    let found = with("decode/raw", "use crate::facts::live::Live;\n");
    assert!(found.contains("decode/raw imports facts/live, which stands below it"), "{found}");
    let found = with("judge/file/notes", "use crate::{error::Result, judge::{code::{polls as p}, file}};\n");
    assert!(found.contains("judge/file/notes imports judge/code/polls, which stands below it"), "{found}");
    let found = with("graph/trace", "fn f() { crate::stages::audit_against() }\n");
    assert!(found.contains("graph/trace imports stages, which stands below it"), "{found}");
}

#[test]
fn modules_that_import_each_other_are_found() {
    let found = with("sites/symbolic", "use crate::sites::strips;\n");
    assert!(found.contains("these import each other: sites/"), "{found}");
    assert!(found.contains("sites/strips, sites/symbolic"), "{found}");
}

#[test]
fn what_hides_an_import_is_found() {
    let found = with("file/lsda", "use super::frames::Frames;\n");
    assert_eq!(found, "file/lsda names a module by `super`");
    let found = with("file/lsda", "use crate::Audit;\n");
    assert_eq!(found, "file/lsda imports crate::Audit, of no module's file");
    let found = with("graph/blocks", "use crate::decode;\n");
    assert_eq!(found, "graph/blocks imports crate::decode, of no module's file");
}

#[test]
fn a_folder_with_too_many_files_is_found() {
    let mut tree = read();
    (0..SIBLINGS).for_each(|k| _ = tree.insert(format!("facts/file{k}"), String::new()));
    let found = problems(&tree);
    assert!(found.len() == 1 && found[0].starts_with("src/facts has "), "{found:?}");
}
