//! From sites as people name them to stretches of rewritten code.
//!
//! Input: [`AttributeRules`], a rewritten program with its libraries. Output: the table that the nodes read, or which site is none. Looked into are the program, and those of its
//! libraries that have functions of `blizzard.h` or use some. In each stretch of code the innermost function counts first, inlined ones included; of a function its
//! lines count before its name.

use crate::base::error::{Error, Result};
use crate::base::memory::MappedFile;
use crate::cli::run::attributes::file::{AllocSite, AttributeRule, AttributeRules, nearest};
use crate::cli::run::attributes::frames;
use crate::read::rewritten;
use crate::reports::overhead::symbols::{FileSymbols, short};
use crate::reports::places::{function_at, is_client};
use blizzard_contract::{CLIENT_CODE, FrameRow, RulesHead, SEEN_SITES, SiteRange};
use object::{Object, ObjectSymbol};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What compilers append to the names of a function's parts and copies.
const COPIES: [&str; 7] = [" [clone ", ".constprop.", ".part.", ".isra.", ".cold", ".lto_priv.", ".llvm."];

/// A rewritten file that may allocate.
struct Module {
    number: u32,
    /// What names of places are relative to.
    base: u64,
    code: Range<u64>,
    symbols: FileSymbols,
    rows: BTreeMap<u64, FrameRow>,
}

/// A function at a place in code, with the line there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceCall {
    pub function: String,
    pub line: Option<(String, u32)>,
}

impl std::fmt::Display for SourceCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.line {
            Some((path, line)) => write!(f, "{} ({}:{line})", self.function, file_name(path)),
            None => f.write_str(&self.function),
        }
    }
}

/// Where a run's program and libraries have which sites.
pub struct CallSites {
    modules: Vec<Module>,
    ranges: Vec<SiteRange>,
}

/// What there is, for whoever has named something else.
#[derive(Default)]
struct Seen {
    matched: BTreeSet<usize>,
    functions: BTreeSet<String>,
    lines: BTreeMap<String, BTreeSet<u32>>,
}

impl Module {
    fn of(path: &Path, is_program: bool) -> Option<Module> {
        let bytes = File::open(path).and_then(|file| MappedFile::of(&file, &path.display().to_string())).ok()?;
        let info = rewritten::module_info(&bytes)?;
        let elf = object::File::parse(&*bytes).ok()?;
        let allocates = || {
            let mut names = elf.symbols().chain(elf.dynamic_symbols()).filter_map(|symbol| symbol.name().ok());
            names.any(|name| name.starts_with("bz_alloc"))
        };
        if !is_program && !allocates() {
            return None;
        }
        let code = info.code_va..info.code_va + info.code_bytes;
        let rows = frames::rows(&elf, &code);
        Some(Module { number: info.number(), base: info.new_base_va, code, symbols: FileSymbols::of(path), rows })
    }

    /// The name of a place, as the nodes have it.
    fn name(&self, at: u64) -> u64 {
        u64::from(self.number) << 32 | (at - self.base)
    }

    /// What is executed at a place, the innermost first.
    fn calls(&self, at: u64) -> Vec<SourceCall> {
        let (function, is_function) = function_at(&self.symbols, at);
        let mut calls: Vec<SourceCall> =
            self.symbols.inlined_paths(at).into_iter().map(|(function, line)| SourceCall { function, line }).collect();
        let line = calls.pop().and_then(|call| call.line);
        if is_function || line.is_some() {
            calls.push(SourceCall { function, line });
        }
        calls
    }

    /// Adds the stretches of code that have rules.
    fn add_ranges(&self, rules: &[AttributeRule], seen: &mut Seen, ranges: &mut Vec<SiteRange>) {
        let borders = self.symbols.borders(self.code.start, self.code.end);
        for (at, &start) in borders.iter().enumerate() {
            let end = borders.get(at + 1).copied().unwrap_or(self.code.end);
            let calls = self.calls(start);
            seen.add(&calls);
            let mut rule = None;
            for call in calls.iter().filter(|call| !is_client(&call.function)) {
                let matching = rules.iter().enumerate().filter(|(_, rule)| matches(&rule.site, call));
                // All of them have been found, though one decides.
                let matching: Vec<_> = matching.inspect(|(number, _)| _ = seen.matched.insert(*number)).collect();
                let decides =
                    |(_, rule): &&(usize, &AttributeRule)| (matches!(rule.site, AllocSite::Line(..)), rule.text.len());
                rule = rule.or(matching.iter().max_by_key(decides).map(|(number, _)| *number as u32));
            }
            let is_clients = !calls.is_empty() && calls.iter().all(|call| is_client(&call.function));
            let Some(rule) = rule.or(is_clients.then_some(CLIENT_CODE)) else { continue };
            let (start, end) = (self.name(start), self.name(end));
            match ranges.last_mut() {
                Some(last) if last.rule == rule && last.end == start => last.end = end,
                _ => ranges.push(SiteRange { start, end, rule, _pad: 0 }),
            }
        }
    }
}

impl Seen {
    fn add(&mut self, calls: &[SourceCall]) {
        for call in calls.iter().filter(|call| !is_client(&call.function)) {
            if !self.functions.contains(plain(&call.function)) {
                self.functions.insert(plain(&call.function).to_owned());
            }
            if let Some((path, line)) = &call.line {
                let lines = match self.lines.get_mut(path) {
                    Some(lines) => lines,
                    None => self.lines.entry(path.clone()).or_default(),
                };
                lines.insert(*line);
            }
        }
    }

    /// Why a site is none.
    fn unknown(&self, rule: &AttributeRule) -> String {
        let near = match &rule.site {
            AllocSite::Order(_) => None,
            AllocSite::Line(..) if self.lines.is_empty() => {
                return format!("{}: the program has no lines: compile it with -g", rule.text);
            }
            AllocSite::Line(file, line) => {
                let of_file = self.lines.iter().filter(|(path, _)| is_end_of(file, path));
                let lines = of_file.flat_map(|(_, lines)| lines).min_by_key(|there| there.abs_diff(*line));
                if let Some(near) = lines {
                    return format!("{}: no code is in that line; the nearest is {file}:{near}", rule.text);
                }
                nearest(file, self.lines.keys().map(|path| file_name(path))).map(|file| format!("{file}:{line}"))
            }
            AllocSite::Function(name) if self.functions.is_empty() => {
                return format!(
                    "{name}: the program has no names of functions: `alloc N` names allocations by their order"
                );
            }
            AllocSite::Function(name) => {
                let all: BTreeSet<String> = self.functions.iter().map(|name| short(name)).collect();
                let last = |name: &str| name.rsplit("::").next().unwrap_or(name).to_owned();
                // Whoever writes a name alone means a function's last name.
                let alone: Vec<String> = all.iter().map(|name| last(name)).collect();
                let by_last = nearest(name, alone.iter().map(String::as_str)).map(str::to_owned);
                by_last.or_else(|| nearest(name, all.iter().map(String::as_str)).map(str::to_owned))
            }
        };
        let what = if matches!(rule.site, AllocSite::Line(..)) { "file" } else { "function" };
        let near = near.map_or(String::new(), |near| format!("; the nearest name is {near}"));
        format!("{}: the program has no such {what}{near}", rule.text)
    }
}

impl CallSites {
    /// Finds the sites of all rules in a program and its libraries; of two libraries that look alike to nodes, in the first.
    ///
    /// # Errors
    /// There is no such site.
    pub fn of(rules: &AttributeRules, program: &Path, libraries: &[PathBuf]) -> Result<CallSites> {
        let mut modules: Vec<Module> = Module::of(program, true).into_iter().collect();
        modules.extend(libraries.iter().filter_map(|path| Module::of(path, false)));
        modules.sort_by_key(|module| module.number);
        modules.dedup_by_key(|module| module.number);
        let (mut seen, mut ranges) = (Seen::default(), Vec::new());
        modules.iter().for_each(|module| module.add_ranges(&rules.rules, &mut seen, &mut ranges));
        let mut rules_of_code =
            rules.rules.iter().enumerate().filter(|(_, rule)| !matches!(rule.site, AllocSite::Order(_)));
        match rules_of_code.find(|(number, _)| !seen.matched.contains(number)) {
            Some((_, rule)) => Err(rules.error(rule.line, seen.unknown(rule))),
            None => Ok(CallSites { modules, ranges }),
        }
    }

    /// The table that the nodes read.
    ///
    /// # Errors
    /// It would be too large.
    pub fn table(&self, rules: &AttributeRules) -> Result<Vec<u8>> {
        let rows = self.modules.iter().map(|module| module.rows.len()).sum::<usize>();
        let [rules_count, ranges, frames] = [rules.rules.len(), self.ranges.len(), rows].map(u32::try_from);
        let (Ok(rules_count), Ok(ranges), Ok(frames)) = (rules_count, ranges, frames) else {
            return Err(Error::new("--attr: the program is too large"));
        };
        let mut table = Vec::new();
        let head = RulesHead { rules: rules_count, ranges, frames, _pad: 0 };
        [head.rules, head.ranges, head.frames, head._pad].iter().for_each(|word| table.extend(word.to_ne_bytes()));
        table.resize(table.len() + 8 * SEEN_SITES, 0);
        for row in rules.rules.iter().map(|rule| &rule.row) {
            table.extend(row.nth.to_ne_bytes());
            [row.block_bytes, row.homes, row.node, row.protocol]
                .iter()
                .for_each(|word| table.extend(word.to_ne_bytes()));
            [row.allocations, row.bytes].iter().for_each(|word| table.extend(word.to_ne_bytes()));
        }
        for range in &self.ranges {
            [range.start, range.end].iter().for_each(|word| table.extend(word.to_ne_bytes()));
            [range.rule, range._pad].iter().for_each(|word| table.extend(word.to_ne_bytes()));
        }
        for (module, row) in self.modules.iter().flat_map(|module| module.rows.values().map(move |row| (module, row))) {
            table.extend(module.name(row.start).to_ne_bytes());
            [row.cfa, row.rbp].iter().for_each(|word| table.extend(word.to_ne_bytes()));
        }
        assert_eq!(table.len() as u64, blizzard_contract::rules_bytes(&head), "the table is as the contract has it");
        Ok(table)
    }

    /// The function that has called at a place, as the nodes name places: the innermost that is not the client library's.
    pub fn call_at(&self, name: u64) -> Option<SourceCall> {
        let module = self.modules.iter().find(|module| u64::from(module.number) == name >> 32)?;
        let calls = module.calls(module.base + (name & u64::from(u32::MAX)) - 1);
        calls.into_iter().find(|call| !is_client(&call.function))
    }
}

/// The rewritten libraries that a rewritten program finds on this host.
pub fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let mut libraries = rewritten::files_of(program).split_off(1);
    // Of a library that was built again, with code as long as before, the last one.
    libraries.sort_by_key(|path| Reverse(fs::metadata(path).and_then(|file| file.modified()).ok()));
    libraries
}

/// Whether a call is one that the site names.
fn matches(site: &AllocSite, call: &SourceCall) -> bool {
    match site {
        AllocSite::Order(_) => false,
        AllocSite::Line(file, line) => {
            call.line.as_ref().is_some_and(|(path, there)| there == line && is_end_of(file, path))
        }
        AllocSite::Function(name) => {
            let full = plain(&call.function);
            // Cheap for most: the last name must be in there.
            full.contains(name.as_str()) && (is_last_of(name, full) || is_last_of(name, &short(full)))
                || is_last_of(name, short(full).trim_end_matches("::"))
        }
    }
}

/// Whether `name` is all of `full`, or what stands behind a `::`.
fn is_last_of(name: &str, full: &str) -> bool {
    full.strip_suffix(name).is_some_and(|front| front.is_empty() || front.ends_with("::"))
}

/// Whether `file` is all of `path`, or what stands behind a `/`.
pub fn is_end_of(file: &str, path: &str) -> bool {
    path.strip_suffix(file).is_some_and(|front| front.is_empty() || front.ends_with('/'))
}

pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A function's name without what tells its copies apart.
fn plain(name: &str) -> &str {
    COPIES.iter().fold(name, |name, copy| name.split_once(copy).map_or(name, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_as_users_write_them() {
        let names = |name: &str, full: &str| {
            let call = SourceCall { function: full.into(), line: None };
            matches(&AllocSite::Function(name.into()), &call)
        };
        for (name, full) in [
            ("make", "make"),
            ("make", "make.constprop.0"),
            ("make", "Grid::make(unsigned long)"),
            ("Grid::make", "ns::Grid::make(unsigned long) [clone .part.0]"),
            ("Grid::make(unsigned long)", "Grid::make(unsigned long)"),
            ("Grid::make", "Grid<int>::make(int)"),
            ("prog::make", "prog::make::<u64>"),
            ("main", "prog::main"),
        ] {
            assert!(names(name, full), "{name} {full}");
        }
        for (name, full) in [("make", "remake"), ("ake", "make"), ("make", "make::other"), ("Grid", "Grid::make(int)")]
        {
            assert!(!names(name, full), "{name} {full}");
        }
        assert!(is_end_of("a.c", "/x/a.c") && is_end_of("x/a.c", "/x/a.c") && !is_end_of("a.c", "/x/ba.c"));
    }
}
