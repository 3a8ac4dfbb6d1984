//! The layers of the crate: which module may import which, as `src/lib.rs` lists them.

use blizzard_test_harness::layers::check;

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

/// The words of the glossary in `DESIGN.md`: those in front of a comma or a parenthesis.
fn glossary(design: &str) -> Vec<String> {
    let table = design.split_once("\n## Glossary\n").map_or("", |(_, behind)| behind);
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let words = cells.flat_map(|cells| [cells.get(1).copied(), cells.get(3).copied()]);
    let word = |cell: &str| cell.split([',', '(']).next().unwrap_or_default().trim().to_lowercase();
    words.flatten().filter(|cell| !cell.is_empty()).map(word).collect()
}

/// All source text of rewriter and runtime.
fn sources(folder: &std::path::Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, all);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&std::fs::read_to_string(&entry).unwrap().to_lowercase());
        }
    }
}

#[test]
fn the_glossary_is_short_and_has_the_words_of_the_code() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let words = glossary(&std::fs::read_to_string(root.join("DESIGN.md")).unwrap());
    assert!((20..=40).contains(&words.len()), "{} entries: {words:?}", words.len());
    let mut all = String::new();
    for folder in ["src", "verify/src", "../rt/src", "../rt/protocol/src", "../rt/contract/src"] {
        sources(&root.join(folder), &mut all);
    }
    let unknown = |word: &&String| !all.contains(word.as_str()) && !all.contains(&word.replace(' ', "_"));
    let unknown: Vec<_> = words.iter().filter(unknown).collect();
    assert!(unknown.is_empty(), "words that the code does not use: {unknown:?}");
    assert!(
        glossary(
            "\n## Glossary\n| word | meaning | word | meaning |\n|---|---|---|---|\n| gate | x | ring, shuttle | y |\n"
        ) == ["gate", "ring"]
    );
}
