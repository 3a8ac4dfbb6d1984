//! Whose each field is that changes behind a shared reference: of whoever keeps the value that it is in, or its type says it, as `src/kernel/owned.rs` explains.
//!
//! The test begins at the statics, whose types name their owners (`statics.rs`), and follows the types of fields. A field that only `&mut` changes belongs to
//! whoever has that reference.

use blizzard_test_harness::layers::Tree;
use std::collections::{BTreeMap, BTreeSet};

const OWNERS: [&str; 3] = ["PerProcess", "PerThread", "PerNode"];
/// What changes behind a shared reference, by the beginning of its name.
const CELLS: [&str; 5] = ["Atomic", "Cell", "OnceCell", "RefCell", "UnsafeCell"];

/// A type of the crate: its file and its name. Names of public types are unique, others within their file.
type Name = (String, String);

/// The types that the crate declares, with the types of their fields.
type Types = BTreeMap<Name, Vec<String>>;

/// The words of a type.
fn words(of: &str) -> impl Iterator<Item = &str> {
    of.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// A reference's target is somebody else's, and a function has none.
fn is_cell(of: &str) -> bool {
    if of.starts_with('&') || of.starts_with("fn(") {
        return false;
    }
    words(of).any(|word| CELLS.iter().any(|cell| word == *cell || *cell == "Atomic" && word.starts_with(cell)))
}

/// The parts of a text that top-level commas separate.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0i32, 0);
    for (at, c) in text.char_indices() {
        depth += i32::from("([{<".contains(c)) - i32::from(")]}>".contains(c) && !text[..at].ends_with('-'));
        if c == ',' && depth == 0 {
            parts.push(&text[begin..at]);
            begin = at + 1;
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// The types of the fields in the body of a structure, or of a variant.
fn fields(body: &str) -> Vec<String> {
    let types = parts(body).into_iter().map(|field| field.split_once(": ").map_or(field, |(_, of)| of).trim());
    types.filter(|of| !of.is_empty()).map(str::to_owned).collect()
}

/// The types of the fields of all variants in the body of an enumeration.
fn fields_of_variants(body: &str) -> Vec<String> {
    let payloads = parts(body).into_iter().filter_map(|variant| variant.find(['(', '{']).map(|from| &variant[from..]));
    payloads.flat_map(|payload| fields(within(payload))).collect()
}

/// The text between a bracket, which `text` begins with, and the one that closes it.
fn within(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        depth += i32::from("({".contains(c)) - i32::from(")}".contains(c));
        if depth == 0 {
            return &text[1..at];
        }
    }
    panic!("a bracket is open: {text}")
}

fn types(file: &str, code: &str, types: &mut Types) {
    for keyword in ["struct ", "enum "] {
        for (at, _) in code.match_indices(keyword).filter(|(at, _)| *at == 0 || code[..*at].ends_with([' ', '\n'])) {
            let behind = &code[at + keyword.len()..];
            let name = words(behind).next().unwrap_or_default();
            let Some(body) = behind.find(['{', '(', ';']).map(|from| &behind[from..]) else { continue };
            let fields = match keyword {
                _ if body.starts_with(';') => Vec::new(),
                "enum " => fields_of_variants(within(body)),
                _ => fields(within(body)),
            };
            types.insert((file.to_owned(), name.to_owned()), fields);
        }
    }
}

/// The types of the statics, with owners. Those in `per_thread!` are written with the type of the value.
fn statics(code: &str) -> Vec<String> {
    let mut statics = Vec::new();
    let mut in_threads: Option<&str> = None;
    for line in code.lines() {
        let text = line.trim_start();
        if text == "per_thread! {" {
            in_threads = Some(&line[..line.len() - text.len()]);
        } else if in_threads.is_some_and(|indent| line.strip_prefix(indent) == Some("}")) {
            in_threads = None;
        } else if let Some((_, of)) = text.split_once("static ").and_then(|(_, behind)| behind.split_once(": ")) {
            let of = of.split(" =").next().unwrap_or_default();
            statics.push(if in_threads.is_some() { format!("PerThread<{of}>") } else { of.to_owned() });
        }
    }
    statics
}

/// Whose a value of a type is, by the type, or else by where it is.
fn owner(of: &str, around: Option<&'static str>) -> Option<&'static str> {
    OWNERS.into_iter().find(|owner| of.starts_with(&format!("{owner}<"))).or(around)
}

/// The owners of each type's values, from a value of the type `of` in `file` on.
fn follow(types: &Types, file: &str, of: &str, around: Option<&'static str>, found: &mut Owners) {
    let Some(owner) = owner(of, around) else { return };
    for word in words(of) {
        let here = (file.to_owned(), word.to_owned());
        let name = if types.contains_key(&here) { Some(&here) } else { types.keys().find(|name| name.1 == word) };
        if let Some(name) = name
            && found.entry(name.clone()).or_default().insert(owner)
        {
            for field in &types[name] {
                follow(types, &name.0, field, Some(owner), found);
            }
        }
    }
}

type Owners = BTreeMap<Name, BTreeSet<&'static str>>;

fn problems(tree: &Tree) -> Vec<String> {
    let (mut declared, mut found) = (Types::new(), Owners::new());
    // What is made for tests, and the owners' own types.
    let is_looked_at = |file: &str| !file.starts_with("transport/delaying/") && file != "kernel/owned";
    let codes: Vec<_> = tree.codes().filter(|(file, _)| is_looked_at(file)).collect();
    for (file, code) in &codes {
        types(file, code, &mut declared);
    }
    for (file, code) in &codes {
        for of in statics(code) {
            follow(&declared, file, &of, None, &mut found);
        }
    }
    let mut problems = Vec::new();
    for ((file, name), fields) in &declared {
        let cells: Vec<_> = fields.iter().filter(|of| is_cell(of) && owner(of, None).is_none()).collect();
        let owners = found.get(&(file.clone(), name.clone())).cloned().unwrap_or_default();
        match owners.len() {
            _ if cells.is_empty() => {}
            0 => problems.push(format!("src/{file}.rs: {name} has {cells:?}, and no static says whose")),
            1 => {}
            _ => problems.push(format!("src/{file}.rs: {name} has {cells:?}, of several owners: {owners:?}")),
        }
    }
    problems
}

#[test]
fn a_field_that_changes_behind_a_shared_reference_has_one_owner() {
    let problems = problems(&Tree::read(env!("CARGO_MANIFEST_DIR")));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is found of the real tree with a line more in one of its files: the test above can fail.
#[test]
fn a_field_of_nobody_or_of_two_is_found() {
    for (file, line, found) in [
        ("node/hints", "pub struct Tally { count: AtomicU64 }", "Tally has [\"AtomicU64\"], and no static says whose"),
        (
            "sync/lock",
            "enum Turn { Free, Taken(u32, Cell<u32>) }",
            "Turn has [\"Cell<u32>\"], and no static says whose",
        ),
        ("memory/homes", "static HOMES: PerProcess<Option<HomeTable>> = PerProcess::new(None);", "HomeTable has "),
        ("tempest/pages/table", "static LINKS: PerNode<Links> = PerNode::new(&TURN);", "HomeTable has "),
    ] {
        let problems = problems(&Tree::read(env!("CARGO_MANIFEST_DIR")).with(file, line));
        assert!(problems.len() == 1 && problems[0].contains(found), "{line}: {problems:?}");
    }
    for (file, line) in [
        ("node/hints", "pub struct Tally { count: PerThread<AtomicU64> }"),
        ("node/hints", "pub struct Tally { count: u64, of: fn(&AtomicU64) }"),
    ] {
        let problems = problems(&Tree::read(env!("CARGO_MANIFEST_DIR")).with(file, line));
        assert!(problems.is_empty(), "{line}: {problems:?}");
    }
}
