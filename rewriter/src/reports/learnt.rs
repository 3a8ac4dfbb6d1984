//! What runs have learnt, for people: which accesses touch shared memory, in which functions and lines.
//!
//! Input: knowledge, a program and its libraries. Output: text, or data for JSON. **Invariant**: the accesses of an object are in the order of their faults, then of their
//! addresses.

use crate::base::error::Result;
use crate::base::learnt::{Knowledge, Object};
use crate::base::memory::MappedFile;
use crate::reports::overhead::symbols::FileSymbols;
use crate::store::library_search::libraries_of;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};

/// One access.
#[derive(Debug, Serialize)]
pub struct LearntAccess {
    pub address: u64,
    pub faults: u64,
    /// Function and distance, or section; none where the object's file is not known.
    pub place: Option<String>,
    pub line: Option<String>,
}

/// A program, or one of its libraries.
#[derive(Debug, Serialize)]
pub struct Learnt {
    pub object: String,
    pub name: String,
    pub functions: usize,
    pub faults: u64,
    pub accesses: Vec<LearntAccess>,
}

/// The files of a program and its libraries, by what they hold.
///
/// # Errors
/// The program cannot be read.
pub fn files(program: &Path) -> Result<BTreeMap<Object, PathBuf>> {
    let all = [program.to_owned()].into_iter().chain(libraries_of(program)?.all());
    let of = |path: PathBuf| {
        let file = File::open(&path).and_then(|file| MappedFile::of(&file, &path.display().to_string())).ok()?;
        Some((Object::of(&file), path))
    };
    Ok(all.filter_map(of).collect())
}

/// What is known of each object.
pub fn report(knowledge: &Knowledge, files: &BTreeMap<Object, PathBuf>) -> Vec<Learnt> {
    let known = knowledge.all().filter(|(_, sites)| !sites.is_empty());
    let mut all: Vec<Learnt> = known
        .map(|(object, sites)| {
            let symbols = files.get(&object).map(|path| FileSymbols::of(path));
            let access = |(at, faults): (crate::base::addresses::Vaddr, u64)| LearntAccess {
                address: at.0,
                faults,
                place: symbols.as_ref().map(|symbols| symbols.name(at.0)),
                line: symbols.as_ref().and_then(|symbols| symbols.line(at.0)),
            };
            let mut accesses: Vec<LearntAccess> = sites.all().map(access).collect();
            accesses.sort_by_key(|access| (Reverse(access.faults), access.address));
            let function =
                |access: &LearntAccess| access.place.as_ref().map(|p| p.split('+').next().unwrap_or(p).to_owned());
            let functions: BTreeSet<String> = accesses.iter().filter_map(function).collect();
            Learnt {
                object: object.to_string(),
                name: sites.name.clone(),
                functions: functions.len(),
                faults: accesses.iter().fold(0, |sum, access| access.faults.saturating_add(sum)),
                accesses,
            }
        })
        .collect();
    all.sort_by(|a, b| (Reverse(a.faults), &a.name).cmp(&(Reverse(b.faults), &b.name)));
    all
}

/// One line: how much has been learnt.
pub fn summary(all: &[Learnt]) -> String {
    let count = |number: u64, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
    let accesses: u64 = all.iter().map(|l| l.accesses.len() as u64).sum();
    let plural = if accesses == 1 { "" } else { "es" };
    let functions = count(all.iter().map(|l| l.functions as u64).sum(), "function");
    let verb = if accesses == 1 { "touches" } else { "touch" };
    let faults = count(all.iter().fold(0, |sum, l| l.faults.saturating_add(sum)), "fault");
    format!("{accesses} access{plural} in {functions} {verb} shared memory ({faults})")
}

/// All of it.
pub fn render(program: &str, all: &[Learnt]) -> String {
    if all.is_empty() {
        return format!("{program}: nothing has been learnt\n");
    }
    let mut out = format!("{program}: {}\n", summary(all));
    for learnt in all {
        writeln!(out, "\n{} ({})", learnt.name, learnt.object).expect("writing to a string cannot fail");
        writeln!(out, "{:>10} {:>12}  place", "faults", "address").expect("writing to a string cannot fail");
        for a in &learnt.accesses {
            let place = [a.place.as_deref(), a.line.as_deref()].into_iter().flatten().collect::<Vec<_>>().join("  ");
            let line = format!("{:>10} {:>#12x}  {place}", a.faults, a.address);
            out += line.trim_end();
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::addresses::Vaddr;

    #[test]
    fn accesses_are_sorted_by_their_faults() {
        let mut knowledge = Knowledge::default();
        for (at, faults) in [(0x30, 2), (0x10, 1), (0x20, 2)] {
            knowledge.add(Object([1; 8]), "p", Vaddr(at), faults);
        }
        let all = report(&knowledge, &BTreeMap::new());
        let expected = "\
p: 3 accesses in 0 functions touch shared memory (5 faults)

p (0101010101010101)
    faults      address  place
         2         0x20
         2         0x30
         1         0x10
";
        assert_eq!(render("p", &all), expected);
        assert_eq!(render("q", &[]), "q: nothing has been learnt\n");
    }
}
