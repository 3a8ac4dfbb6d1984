//! The layers of the crate: which module may import which, as `src/lib.rs` lists them.

use blizzard_test_harness::layers::{Tree, check};

#[test]
fn imports_point_up_the_list() {
    let wrong = [
        ("sync/lock", "use crate::node::node::Node;", "sync/lock imports node/node, which stands below it in the list"),
        ("links/members", "use crate::links::links::Links;", "these import each other: links/links, links/members"),
    ];
    check(env!("CARGO_MANIFEST_DIR"), &wrong);
}

/// Who may know a greatest number of nodes: everything else has as many places as the run has nodes.
const MAY_KNOW_MAX_NODES: [(&str, &str); 3] = [
    ("contract/src/limits", "declares it"),
    ("protocol/src/ids", "the words of a set"),
    ("src/process/process", "looks at the number of nodes of the run"),
];

/// The files of runtime, contract and protocols that know it: path below the crate's folder. `with`: a line more in one of them.
fn know_max_nodes(with: Option<(&str, &str)>) -> Vec<String> {
    let mut known = Vec::new();
    for folder in ["", "contract/", "protocol/"] {
        let tree = Tree::read(&format!("{}/{folder}", env!("CARGO_MANIFEST_DIR")));
        for (file, code) in tree.codes() {
            let file = format!("{folder}src/{file}");
            let more = with.filter(|(changed, _)| *changed == file).map_or("", |(_, line)| line);
            if ["MAX_NODES", "FEW_NODES", "RUN_NODES"].iter().any(|name| code.contains(name) || more.contains(name)) {
                known.push(file);
            }
        }
    }
    known.sort();
    known
}

#[test]
fn no_layout_contains_the_greatest_number_of_nodes() {
    let may = MAY_KNOW_MAX_NODES.map(|(file, _)| file.to_owned()).to_vec();
    assert_eq!(know_max_nodes(None), may);
    let line = "    added: [Queue<Added>; MAX_NODES],";
    assert!(know_max_nodes(Some(("src/links/links", line))).contains(&"src/links/links".to_owned()));
}
