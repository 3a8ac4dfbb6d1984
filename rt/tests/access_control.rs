//! Who may know where the bytes and tags of shared memory lie: `memory`, and the files that are listed here with their reason. All others ask
//! `memory/access_control` or their node's `Space`.

use std::path::Path;

/// What only they may name.
const NAMES: [&str; 4] = ["SEGMENT_BASE", "USER_BASE", "TAG_TABLE_BASE", "read_own_memory("];
/// How a number becomes a pointer. The context pages ([`CONTEXT`]) are everybody's.
const CASTS: [&str; 2] = [" as *const ", " as *mut "];
const CONTEXT: &str = "contract::POLL_WORD as *mut ";

/// Files that may use names: path below `src`, reason.
const MAY_NAME: [(&str, &str); 6] = [
    ("kernel/", "the calls themselves; below `memory`, whose callers translate"),
    ("libraries/modules", "looks at code"),
    ("sync/remote", "tells private memory from all that is not"),
    ("system_calls/signals/memory_faults", "finds a tag test's address in its instruction"),
    ("tempest/pages/segment", "where the user-managed segment begins"),
    ("tempest/pages/table", "numbers of user-managed pages"),
];

/// Files that may make pointers: path below `src`, or a folder; what they point to. None of it is shared memory.
const MAY_POINT: [(&str, &str); 25] = [
    ("kernel/", "the runtime's own memory, and what the kernel has filled"),
    ("memory/", "behind the seam"),
    ("transport/", "the run's region"),
    ("libraries/", "rewritten files, mapped"),
    ("start/", "the program's file and first stack"),
    ("node/single", "the table of objects"),
    ("node/calls/remote", "private memory of the caller"),
    ("node/calls/collectives", "private memory of the caller"),
    ("sync/collective", "private memory of the waiting caller"),
    ("process/", "counters, frames, code, the chain of a group, the state of vectors"),
    ("gates/alloc_rules", "the run's region, and the entry's frame"),
    ("gates/blizzard_h", "results and private memory of the caller"),
    ("gates/entries", "the frame, and chains that the rewriter wrote"),
    ("gates/gathers", "descriptors that the rewriter wrote"),
    ("process/trap_bytes/hot_traps", "pages of code, the context page"),
    ("gates/trap", "a page of code"),
    ("system_calls/execution/stubs", "labels"),
    ("system_calls/execution/put_off", "the information of a signal"),
    ("system_calls/gate/dispatch", "headers of the program's file"),
    ("system_calls/gate/one_node", "the frame of a signal"),
    ("system_calls/gate/own_file", "a fresh mapping"),
    ("system_calls/gate/processes", "a private stack"),
    ("system_calls/gate/returns", "the frame of a signal"),
    ("system_calls/signals/", "frames of signals, code, own memory"),
    ("tempest/bulk/staging", "the staging area, and what its caller has translated"),
];

/// The lines of the tree, without tests, that `words` stand in: file, line.
fn lines_with(words: &[&str], with: Option<(&str, &str)>) -> Vec<(String, String)> {
    fn walk(folder: &Path, name: &str, files: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let file = entry.file_name().into_string().unwrap();
            let path = entry.path();
            if path.is_dir() {
                walk(&path, &format!("{name}{file}/"), files);
            } else if let Some(stem) = file.strip_suffix(".rs") {
                files.push((format!("{name}{stem}"), std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    let mut files = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut files);
    let mut found = Vec::new();
    for (file, text) in files.into_iter().filter(|(file, _)| !file.split('/').any(|part| part == "tests")) {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let added = with.filter(|(changed, _)| *changed == file).map(|(_, line)| line);
        let code = |line: &&str| !line.trim_start().starts_with("//") && !line.trim_start().starts_with("use ");
        for line in text.lines().filter(code).chain(added) {
            let line = line.replace(CONTEXT, "");
            if words.iter().any(|word| line.contains(word)) {
                found.push((file.clone(), line.trim().to_string()));
            }
        }
    }
    found
}

fn is_in(file: &str, place: &str) -> bool {
    if place.ends_with('/') { file.starts_with(place) } else { file == place }
}

fn problems(with: Option<(&str, &str)>) -> Vec<String> {
    let memory = ("memory/", "behind the seam");
    let may_name: Vec<_> = MAY_NAME.into_iter().chain([memory]).collect();
    let mut problems = Vec::new();
    for (words, places) in [(&NAMES[..], &may_name[..]), (&CASTS[..], &MAY_POINT[..])] {
        let found = lines_with(words, with);
        for (file, line) in &found {
            if !places.iter().any(|(place, _)| is_in(file, place)) {
                problems.push(format!("{file} knows where memory lies: {line}"));
            }
        }
        for (place, _) in places {
            if !found.iter().any(|(file, _)| is_in(file, place)) {
                problems.push(format!("{place} is listed and need not be"));
            }
        }
    }
    problems
}

#[test]
fn only_access_control_knows_where_shared_memory_lies() {
    let problems = problems(None);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is found with a line more in one of the files: the test above can fail.
#[test]
fn what_breaks_the_rule_is_found() {
    for (file, line) in [
        ("tempest/api", "let word = unsafe { (va as *const u64).read() };"),
        ("node/access", "let offset = addr - SEGMENT_BASE;"),
        ("system_calls/signals/actions", "sys::read_own_memory(at, &mut bytes)?;"),
    ] {
        assert_eq!(problems(Some((file, line))), [format!("{file} knows where memory lies: {line}")]);
    }
}
