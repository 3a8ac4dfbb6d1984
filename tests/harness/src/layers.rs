//! The layers of a crate: which module may import which.
//!
//! Input: the files below a crate's `src`, without its unit tests (folders and files named `tests`, and what stands behind `#[cfg(test)] mod` in a file).
//! Output: what is wrong, one line each. A list of modules, in `lib.rs` or in a `mod.rs`, is in order if empty lines stand between all of its modules.
//! (`rustfmt` would sort them otherwise.) The list of the crate is in order. **Invariants** of a tree without problems
//! * a module imports from folders and files above its own in each list that is in order, and from its siblings;
//! * no modules import each other, not even over others;
//! * a path names its module from the crate on, so that the reader sees it;
//! * a module is named in the list of its folder;
//! * a file opens with what it is about;
//! * a `mod.rs` holds no code;
//! * a folder has at most [`SIBLINGS`] entries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Most entries of a folder.
pub const SIBLINGS: usize = 15;

/// Source text by path below `src`, without `.rs`: `graph/blocks`, `judge/mod`.
#[derive(Clone, Debug)]
pub struct Tree {
    files: BTreeMap<String, String>,
    /// The file that lists the folders: `lib` or `main`.
    root: &'static str,
}

/// Asserts that nothing is wrong with that crate, and that this is found with a line more in one of its files: file, line, and what is wrong.
///
/// # Panics
/// Otherwise.
pub fn check(manifest_dir: &str, wrong: &[(&str, &str, &str)]) {
    let tree = Tree::read(manifest_dir);
    let problems = tree.problems();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    for (file, line, found) in wrong {
        let problems = tree.clone().with(file, line).problems().join("\n");
        assert!(problems.contains(found), "{line}: {problems}");
    }
}

impl Tree {
    /// The files of the crate in the folder `manifest_dir`.
    ///
    /// # Panics
    /// Its `src` cannot be read.
    pub fn read(manifest_dir: &str) -> Tree {
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
        walk(&Path::new(manifest_dir).join("src"), "", &mut files);
        Tree::of(files)
    }

    /// A crate of these files: paths below `src` without `.rs`, and texts.
    ///
    /// # Panics
    /// There is neither `lib` nor `main`.
    pub fn of(files: impl IntoIterator<Item = (String, String)>) -> Tree {
        let files = files.into_iter().filter(|(path, _)| !path.split('/').any(|part| part == "tests"));
        let files: BTreeMap<String, String> = files.collect();
        let root = ["lib", "main"].into_iter().find(|root| files.contains_key(*root)).expect("lib.rs or main.rs");
        Tree { files, root }
    }

    /// The same with a line more behind what a file opens with. The file may be a new one.
    #[must_use]
    pub fn with(mut self, file: &str, line: &str) -> Tree {
        let text = self.files.entry(file.to_owned()).or_default();
        let opening = text.split_inclusive('\n').take_while(|line| line.starts_with("//!")).map(str::len).sum();
        text.insert_str(opening, &format!("{line}\n"));
        self
    }

    /// All files that are no lists.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        let is_list = |m: &str| matches!(m, "lib" | "main") || m.rsplit('/').next() == Some("mod");
        self.files.keys().map(String::as_str).filter(move |m| !is_list(m))
    }

    /// The texts by path, without comments and unit tests; lines keep their numbers.
    pub fn codes(&self) -> impl Iterator<Item = (&str, String)> {
        self.files.iter().map(|(file, text)| (file.as_str(), code(text)))
    }

    /// What is wrong.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let imports = self.imports(&mut problems);
        for (module, list) in &imports {
            for import in list.iter().filter(|import| self.is_below(import, module)) {
                problems.push(format!("{module} imports {import}, which stands below it in the list"));
            }
        }
        let cycle = in_cycles(self.modules().collect(), &imports);
        if !cycle.is_empty() {
            problems.push(format!("these import each other: {}", cycle.join(", ")));
        }
        self.check_lists(&mut problems);
        self.check_openings(&mut problems);
        self.check_folders(&mut problems);
        problems
    }

    /// By module: the modules that it names.
    fn imports(&self, problems: &mut Vec<String>) -> BTreeMap<&str, BTreeSet<String>> {
        let mut imports: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for module in self.modules() {
            let code = code(&self.files[module]);
            if code.replace("pub(super)", "").contains("super::") {
                problems.push(format!("{module} names a module by `super`"));
            }
            for path in paths(&code) {
                let prefix = (1..=path.len()).rev().map(|n| path[..n].join("/"));
                match prefix.into_iter().find(|p| self.modules().any(|m| m == p)) {
                    Some(found) if found == module => {}
                    Some(found) => _ = imports.entry(module).or_default().insert(found),
                    None => {
                        problems.push(format!("{module} imports crate::{}, of no module's file", path.join("::")));
                    }
                }
            }
        }
        imports
    }

    /// The list of a folder: its modules, and whether they are in order.
    fn list(&self, folder: &str) -> (Vec<String>, bool) {
        let (file, is_root) =
            if folder.is_empty() { (self.root.to_owned(), true) } else { (format!("{folder}/mod"), false) };
        let text = self.files.get(&file).map_or("", String::as_str);
        let name = |line: &str| Some(line.split_once("mod ")?.1.strip_suffix(';')?.to_owned());
        let lines: Vec<Option<String>> = code(text).lines().map(name).collect();
        let is_spaced = lines.windows(2).all(|pair| pair[0].is_none() || pair[1].is_none());
        (lines.into_iter().flatten().collect(), is_spaced || is_root)
    }

    /// Whether `import` stands below `module` in the list of the innermost folder that holds both, if that is in order.
    fn is_below(&self, import: &str, module: &str) -> bool {
        let same = import.split('/').zip(module.split('/')).take_while(|(a, b)| a == b).count();
        let part = |path: &str| path.split('/').nth(same).unwrap_or_default().to_owned();
        let folder: Vec<&str> = module.split('/').take(same).collect();
        let (list, in_order) = self.list(&folder.join("/"));
        let place = |path: &str| list.iter().position(|m| *m == part(path));
        in_order && place(import) > place(module)
    }

    fn check_lists(&self, problems: &mut Vec<String>) {
        for file in self.files.keys().filter(|file| *file != "lib" && *file != "main") {
            // A folder's list stands in the list of the folder around it.
            let path = file.strip_suffix("/mod").unwrap_or(file);
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            // Without a list it holds files that are data.
            let has_list = folder.is_empty() || self.files.contains_key(&format!("{folder}/mod"));
            if has_list && !self.list(folder).0.iter().any(|listed| listed == name) {
                problems.push(format!("{file} is not in the list of its folder"));
            }
        }
        for (file, text) in self.files.iter().filter(|(file, _)| file.ends_with("/mod")) {
            if let Some(line) = code_of_list(text) {
                problems.push(format!("{file} holds code: {line}"));
            }
        }
    }

    fn check_openings(&self, problems: &mut Vec<String>) {
        for (file, _) in self.files.iter().filter(|(_, text)| !text.starts_with("//!")) {
            problems.push(format!("{file} does not open with what it is about"));
        }
    }

    fn check_folders(&self, problems: &mut Vec<String>) {
        let mut folders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for file in self.files.keys() {
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
    }
}

/// The modules that import themselves, over others.
fn in_cycles<'m>(mut left: BTreeSet<&'m str>, imports: &'m BTreeMap<&'m str, BTreeSet<String>>) -> Vec<&'m str> {
    // Modules that nobody imports any more are left out until none is left, or those of cycles and what they import.
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
    left.into_iter().filter(|m| leads_back(m)).collect()
}

/// The first line of a `mod.rs` that is code.
pub(crate) fn code_of_list(text: &str) -> Option<String> {
    let no_code = |line: &str| {
        let line = line.trim();
        let declares = line.ends_with(';') && [" mod ", " use "].iter().any(|word| format!(" {line}").contains(word));
        line.is_empty() || line.starts_with("#[") || declares
    };
    code(text).lines().find(|line| !no_code(line)).map(str::to_owned)
}

/// The text without comments and without the unit tests at its end.
fn code(text: &str) -> String {
    let unit_tests = ["#[cfg(test)]\nmod ", "#[cfg(test)]\npub(crate) mod "];
    let end = unit_tests.iter().filter_map(|tests| text.find(tests)).min().unwrap_or(text.len());
    text[..end].lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
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
