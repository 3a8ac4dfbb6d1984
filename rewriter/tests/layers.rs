//! The layers of the crate: which module may import which, as `src/lib.rs` lists them.

use blizzard_test_harness::folders;
use blizzard_test_harness::layers::{Tree, check};
use std::collections::BTreeMap;

#[test]
fn imports_point_up_the_list() {
    let wrong = [
        (
            "decode/insns",
            "use crate::facts::liveness::Liveness;",
            "decode/insns imports facts/liveness, which stands below it in the list",
        ),
        ("plan/ranges", "use crate::plan::passes;", "these import each other: plan/"),
        ("read/fde", "use super::lsda::Lsda;", "read/fde names a module by `super`"),
    ];
    check(env!("CARGO_MANIFEST_DIR"), &wrong);
}

/// The entries of the glossary in `DESIGN.md`: the words in front of a parenthesis, those between commas by themselves.
fn glossary(design: &str) -> Vec<Vec<String>> {
    let table = design.split_once("\n## Glossary\n").map_or("", |(_, behind)| behind);
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let entries = cells.flat_map(|cells| [cells.get(1).copied(), cells.get(3).copied()]);
    let words = |cell: &str| {
        let words = cell.split('(').next().unwrap_or_default();
        words.split(',').map(|word| word.trim().to_lowercase()).collect()
    };
    entries.flatten().filter(|cell| !cell.is_empty()).map(words).collect()
}

/// How often a code uses an identifier, by the words that it is made of: `MissDesc` and `miss_desc` are ` miss desc `.
fn identifiers(code: &str, uses: &mut BTreeMap<String, usize>) {
    // Strings go first: an identifier in a message is none.
    let mut rest = code.replace("\\\\", "").replace("\\\"", "");
    if let Some(raw) = rest.find("r#\"") {
        let end = rest[raw..].find("\"#").map_or(rest.len(), |at| raw + at + 2);
        rest.replace_range(raw..end, "");
    }
    let outside = rest.replace("'\"'", "").split('"').step_by(2).map(str::to_owned).collect::<Vec<_>>().join(" ");
    for identifier in outside.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        let mut words = String::from(" ");
        let mut before = '_';
        for c in identifier.chars() {
            let begins = c == '_' || c.is_ascii_uppercase() && !before.is_ascii_uppercase();
            if begins && !words.ends_with(' ') {
                words.push(' ');
            }
            if c != '_' {
                words.push(c.to_ascii_lowercase());
            }
            before = c;
        }
        words.push(' ');
        *uses.entry(words).or_default() += 1;
    }
}

/// How often code uses this entry, in the singular or the plural.
fn uses_of(entry: &str, uses: &BTreeMap<String, usize>) -> usize {
    let has = |words: &str| ["", "s", "es"].iter().any(|end| words.contains(&format!(" {entry}{end} ")));
    uses.iter().filter(|(words, _)| has(words)).map(|(_, count)| count).sum()
}

#[test]
fn the_glossary_is_short_and_has_the_words_of_the_code() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = glossary(&std::fs::read_to_string(root.join("DESIGN.md")).unwrap());
    assert!((20..=40).contains(&entries.len()), "{} entries: {entries:?}", entries.len());
    let mut uses = BTreeMap::new();
    for folder in ["", "verify", "../rt", "../rt/carrier", "../rt/contract", "../rt/protocol"] {
        let tree = Tree::read(root.join(folder).to_str().expect("a path in UTF-8"));
        tree.codes().for_each(|(_, code)| identifiers(&code, &mut uses));
    }
    let rare: Vec<_> = entries.iter().flatten().filter(|word| uses_of(word, &uses) < 5).collect();
    assert!(rare.is_empty(), "words that the code hardly uses: {rare:?}");
    let mut said: Vec<_> = entries.iter().flatten().collect();
    said.sort();
    assert!(said.windows(2).all(|pair| pair[0] != pair[1]), "one name for two things: {said:?}");
}

/// What is no use of a word: a part of another one, a message. The test above can fail.
#[test]
fn uses_are_whole_words_of_code() {
    let table = "\n## Glossary\n| word | meaning | word | meaning |\n|---|---|---|---|\n| gate (run) | x | ring, shuttle | y |\n";
    assert_eq!(glossary(table), [vec!["gate"], vec!["ring", "shuttle"]]);
    let mut uses = BTreeMap::new();
    identifiers("fn ring_of(string: &str) { say(\"a \\\"wire\\\" is\"); LandingPads::new(RING) }", &mut uses);
    let counts = ["ring", "str", "wire", "landing pad", "landing", "string"].map(|word| uses_of(word, &uses));
    assert_eq!(counts, [2, 1, 0, 1, 1, 1]);
}

/// Folders that are data: programs that tests run, and packages that are measured.
const DATA: [&str; 2] = ["tests/cases", "bench-apps"];

#[test]
fn folders_of_the_workspace_are_small_and_their_lists_hold_no_code() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let problems = folders::problems(root, &DATA);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let with_data = folders::problems(root, &[]).join("\n");
    assert!(with_data.contains("tests/cases/shared/ has "), "{with_data}");
}
