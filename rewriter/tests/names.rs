//! One name, one thing: a public type of the command or of the runtime shares its name with no other one. A module's name says what it holds.

use blizzard_test_harness::layers::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The crates that are looked at. Not the library for programs in Rust (`rt/rust`): its names are those of the interface, of the same things.
const CRATES: [&str; 7] =
    ["rewriter", "rewriter/never_return", "rewriter/verify", "rt", "rt/carrier", "rt/contract", "rt/protocol"];

/// Names of modules that say nothing of what the module holds.
const EMPTY_NAMES: [&str; 21] = [
    "alone",
    "apart",
    "ascending",
    "bare",
    "common",
    "direct",
    "dropped",
    "guarded",
    "helpers",
    "kept",
    "marker",
    "misc",
    "named",
    "newer",
    "numbers",
    "ranks",
    "shuffle",
    "sink",
    "trail",
    "utils",
    "words",
];
/// Such a name that is the field's own word for what the module holds.
const OWN_WORD: [&str; 1] = ["rewriter/src/launch/hosts/ranks"];

/// What stands in front of the name of a type.
const KEYWORDS: [&str; 5] = ["struct", "enum", "union", "type", "trait"];

/// Names of the same thing in several files.
struct Same {
    reason: &'static str,
    /// The files begin so.
    places: &'static [&'static str],
    names: &'static [&'static str],
}

const SAME: [Same; 5] = [
    Same {
        reason: "each crate fails in its own way",
        places: &["rewriter/src/base/error", "rewriter/verify/src/error", "rt/src/kernel/sys"],
        names: &["Error", "Result"],
    },
    Same {
        reason: "the audit finds by itself what the rewriter has found",
        places: &["rewriter/src/", "rewriter/verify/src/"],
        names: &[
            "CallSite",
            "Callees",
            "Copy",
            "Effects",
            "End",
            "Fde",
            "Finder",
            "Flow",
            "Insn",
            "JumpTable",
            "Limit",
            "Lsda",
            "Returns",
            "Section",
            "Segment",
            "Site",
            "Strip",
            "Versions",
        ],
    },
    Same {
        reason: "the ELF specification's name",
        places: &["rewriter/verify/src/file/memory", "rt/src/kernel/elf"],
        names: &["Phdr"],
    },
    Same {
        reason: "each source of a protocol has its own vocabulary",
        places: &["rt/protocol/src/protocols/mcm/", "rt/protocol/src/protocols/stache/"],
        names: &["Action", "Actions", "HomeEvent", "Msg", "Requester", "Violation"],
    },
    Same {
        reason: "each transport has them",
        places: &["rt/src/transport/delaying/", "rt/src/transport/rings/"],
        names: &["Ends", "Own"],
    },
];

/// The name of the public type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let behind = line.trim_start().strip_prefix("pub")?;
    let behind = match behind.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => behind,
    };
    let words = behind.strip_prefix(' ')?.trim_start_matches("unsafe ");
    let (keyword, behind) = words.split_once(' ')?;
    let end = behind.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(behind.len());
    KEYWORDS.contains(&keyword).then_some(&behind[..end]).filter(|name| !name.is_empty())
}

/// The files that declare a public type, by its name. Alternatives in one file count once. `with`: a line more in one of the files.
fn types(with: Option<(&str, &str)>) -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in CRATES {
        let tree = Tree::read(root.join(folder).to_str().expect("a path in UTF-8"));
        for (file, code) in tree.codes() {
            let file = format!("{folder}/src/{file}");
            let more = with.filter(|(changed, _)| *changed == file).map(|(_, line)| line);
            for name in code.lines().chain(more).filter_map(declared) {
                types.entry(name.to_owned()).or_default().insert(file.clone());
            }
        }
    }
    types
}

fn is_same(name: &str, files: &BTreeSet<String>) -> bool {
    let is_in = |same: &Same, file: &String| same.places.iter().any(|place| file.starts_with(place));
    // One file of each place at most.
    let is_once = |same: &Same| same.places.iter().all(|p| files.iter().filter(|f| f.starts_with(p)).count() <= 1);
    SAME.iter().any(|same| same.names.contains(&name) && files.iter().all(|file| is_in(same, file)) && is_once(same))
}

fn problems(types: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let shared: BTreeMap<_, _> = types.iter().filter(|(_, files)| files.len() > 1).collect();
    let mut problems: Vec<String> = shared
        .iter()
        .filter(|(name, files)| !is_same(name, files))
        .map(|(name, files)| format!("{name} is the name of several types: {files:?}"))
        .collect();
    for Same { reason, names, .. } in &SAME {
        for name in names.iter().filter(|name| !shared.contains_key(&name.to_string())) {
            problems.push(format!("{name} is listed ({reason}) and need not be"));
        }
    }
    problems
}

#[test]
fn a_public_type_has_a_name_of_its_own() {
    let types = types(None);
    assert!(types.len() > 500, "only {} types were found", types.len());
    let problems = problems(&types);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The modules and folders whose names are empty. `with`: one more.
fn empty_names(with: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut empty = BTreeSet::new();
    for folder in CRATES {
        let tree = Tree::read(root.join(folder).to_str().expect("a path in UTF-8"));
        for file in tree.modules().chain(with.iter().copied()) {
            let path = format!("{folder}/src/{file}");
            let is_empty = file.split('/').any(|part| EMPTY_NAMES.contains(&part));
            if is_empty && !OWN_WORD.contains(&path.as_str()) {
                empty.insert(path);
            }
        }
    }
    empty.into_iter().collect()
}

#[test]
fn names_of_modules_say_what_they_hold() {
    assert_eq!(empty_names(&[]), Vec::<String>::new());
    assert_eq!(empty_names(&["node/kept", "words/list", "node/kept_file"]).len(), 2 * CRATES.len());
}

/// What is found with a line more in one of the files: the test above can fail.
#[test]
fn a_name_of_two_types_is_found() {
    for (file, line, name) in [
        ("rt/src/node/hints", "pub struct Homes;", "Homes"),
        ("rewriter/src/plan/polls", "    pub(super) enum Tag {", "Tag"),
        ("rt/contract/src/limits", "pub unsafe trait Site {}", "Site"),
        ("rewriter/verify/src/error", "pub(in crate::judge) type Fde<'a> = ();", "Fde"),
    ] {
        let problems = problems(&types(Some((file, line))));
        assert!(
            problems.len() == 1 && problems[0].starts_with(&format!("{name} is the name of several types")),
            "{line}: {problems:?}"
        );
    }
    for line in ["pub fn f() -> Homes {", "    pub homes: Homes,", "struct Homes;", "pub use homes::Homes;"] {
        assert_eq!(declared(line), None, "{line}");
    }
}
