//! Where trap bytes were hit, for people.
//!
//! Input: what nodes have counted, and the files that they ran. Output: files, addresses and functions, the most hit first. A place whose file is gone is left out.

use crate::base::memory::MappedFile;
use crate::launch::region::NodeReport;
use crate::launch::stats::TrapAt;
use crate::read::rewritten;
use crate::reports::overhead::symbols::FileSymbols;
use blizzard_contract::{TrapKept, TrapPlace};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

/// One place of all nodes: new address, hits, whether there is a jump, and why not.
#[derive(Default)]
struct Sum {
    new: u32,
    hits: u64,
    jump: bool,
    kept: Option<&'static str>,
}

/// All places of these nodes, which have run these files.
pub fn places<'a>(nodes: impl Iterator<Item = &'a NodeReport>, files: &[PathBuf]) -> Vec<TrapAt> {
    // By the file's number, then by name.
    let mut all: BTreeMap<u32, BTreeMap<u32, Sum>> = BTreeMap::new();
    for place in nodes.flat_map(|node| &node.traps) {
        let of_file = all.entry((place.name >> 32) as u32).or_default();
        let sum = of_file.entry(place.name as u32).or_default();
        sum.new = place.new;
        sum.hits += u64::from(place.hits & TrapPlace::HITS);
        sum.jump |= place.hits & TrapPlace::JUMP != 0;
        sum.kept = sum.kept.or(TrapKept::name(place.hits));
    }
    let mut found = Vec::new();
    for path in files {
        if all.is_empty() {
            break;
        }
        let Ok(file) = File::open(path).and_then(|file| MappedFile::of(&file, &path.display().to_string())) else {
            continue;
        };
        let Some(info) = rewritten::module_info(&file) else { continue };
        let Some(of_file) = all.remove(&info.number()) else { continue };
        let symbols = FileSymbols::of(path);
        // A link of the cache leads to a file with the library's name.
        let name = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let name = name.file_name().unwrap_or_default().to_string_lossy();
        found.extend(of_file.into_iter().map(|(old, Sum { new, hits, jump, kept })| TrapAt {
            file: name.clone().into_owned(),
            address: info.old_base_va + u64::from(old),
            function: symbols.name(info.new_base_va + u64::from(new)),
            hits,
            jump,
            kept,
        }));
    }
    found.sort_by(|a, b| (Reverse(a.hits), &a.file, a.address).cmp(&(Reverse(b.hits), &b.file, b.address)));
    found
}
