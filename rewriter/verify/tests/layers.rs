//! The layers of the crate: which module may import which, as `src/lib.rs` and `src/judge/mod.rs` list them.

use blizzard_test_harness::layers::check;

#[test]
fn imports_point_up_the_list() {
    let wrong = [
        (
            "decode/raw",
            "use crate::facts::live::Live;",
            "decode/raw imports facts/live, which stands below it in the list",
        ),
        (
            "judge/file/notes",
            "use crate::judge::code::polls;",
            "judge/file/notes imports judge/code/polls, which stands below it in the list",
        ),
        (
            "graph/trace",
            "fn f() { crate::stages::audit_against() }",
            "graph/trace imports stages, which stands below it in the list",
        ),
        ("sites/symbolic", "use crate::sites::strips;", "these import each other: sites/"),
    ];
    check(env!("CARGO_MANIFEST_DIR"), &wrong);
}
