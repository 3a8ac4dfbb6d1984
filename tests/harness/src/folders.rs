//! The folders of the whole workspace, tests included.
//!
//! Input: the workspace's root, and the folders that are data. Output: what is wrong, one line each. **Invariants** of a workspace without problems
//! * a folder has at most [`SIBLINGS`] entries that are source text or lead to it; a module's `tests` do not count;
//! * a `mod.rs` holds no code.

use crate::layers::{SIBLINGS, code_of_list};
use std::path::Path;

/// How the names of files of source text end.
const SOURCES: [&str; 7] = [".rs", ".c", ".cc", ".cpp", ".h", ".s", ".S"];

/// What is wrong below `root`. `data`: folders that are not looked at, as paths from `root`; each must be there.
///
/// # Panics
/// A folder or file cannot be read, or one of `data` is not there.
pub fn problems(root: &Path, data: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    for folder in data {
        assert!(root.join(folder).is_dir(), "no folder {folder}");
    }
    look(root, "", data, &mut problems);
    problems
}

/// Whether the folder has source text in it, at any depth.
fn look(root: &Path, folder: &str, data: &[&str], problems: &mut Vec<String>) -> bool {
    let mut count = 0;
    let mut entries: Vec<_> = std::fs::read_dir(root.join(folder)).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{folder}{name}");
        if entry.file_type().unwrap().is_dir() {
            // What tools make, and what git and they keep for themselves.
            let is_made = name.starts_with('.') || name == "target";
            let has_source =
                !is_made && !data.contains(&path.as_str()) && look(root, &format!("{path}/"), data, problems);
            count += usize::from(has_source && name != "tests");
        } else if SOURCES.iter().any(|end| name.ends_with(end)) {
            count += usize::from(name != "tests.rs");
            if name == "mod.rs"
                && let Some(line) = code_of_list(&std::fs::read_to_string(entry.path()).unwrap())
            {
                problems.push(format!("{path} holds code: {line}"));
            }
        }
    }
    if count > SIBLINGS {
        problems.push(format!("{folder} has {count} entries, more than {SIBLINGS}"));
    }
    count > 0
}
