//! Every way into the original's code leads to the new code: symbols, relocations, frames, entry points.
//!
//! Input: the original file, the complete map from old to new addresses, what stands at old addresses. Output: findings. The audit finds in the original by
//! itself, and as the dynamic loader and the unwinder do, each address at which somebody may enter code. Such a place has a springboard or a row of the trap
//! map; only what a relocation alone names may be data, or lie inside an instruction. The frame of a function that signals return to begins a byte in front of it,
//! because unwinders look up the address in front of a return address. That rows and springboards lead to the right place,
//! and that no other row is missing, the comparison of all bytes proves ([`crate::judge::old_code::original`]); landing pads, [`crate::judge::unwinding::cfi`].
//!
//! Source: gABI chapter 5, LSB core (`.eh_frame_hdr`), `rewriter/DESIGN.md` ("Where things go in the output").

use crate::audit::Audit;
use crate::file::dynamic::Dynamic;
use crate::file::memory::{self, PT_DYNAMIC, PT_GNU_EH_FRAME, number};
use crate::file::module::Module;
use crate::judge::old_code::springboards::{At, Old};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, elf};

/// Who names an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Entry,
    Loader,
    DynamicSymbol,
    Frame,
    Symbol,
    Relocation,
}

impl Who {
    fn words(self) -> &'static str {
        match self {
            Who::Entry => "the entry point",
            Who::Loader => "a function that the dynamic loader calls",
            Who::DynamicSymbol => "a dynamic symbol",
            Who::Frame => "a frame",
            Who::Symbol => "a function's symbol",
            Who::Relocation => "a relocation",
        }
    }
}

/// Compares. `pairs`: old addresses of instructions and their new ones, ascending.
pub(crate) fn compare(m: &Module, old: &Old, original: &[u8], pairs: &[(u64, u64)], audit: &mut Audit) {
    let mut all = named(original);
    all.sort_unstable();
    all.dedup_by_key(|n| n.0);
    let is_moved = |va: u64| pairs.binary_search_by_key(&va, |p| p.0).is_ok();
    for (va, who) in all.into_iter().filter(|n| old.at(m, n.0) != At::Elsewhere) {
        let moved = is_moved(va);
        let leads = old.new_address(m, va).is_some();
        audit.entries += u64::from(leads);
        if moved && !leads {
            let why = format!("no springboard and no row of the trap map, although {} names it", who.words());
            audit.finding(va, m.old_place(va), why);
        } else if !moved && who != Who::Relocation && !(who == Who::Frame && is_moved(va + 1)) {
            audit.finding(va, m.old_place(va), format!("no new code, although {} names it", who.words()));
        }
    }
}

/// All of them.
fn named(file: &[u8]) -> Vec<(u64, Who)> {
    let mut all = Vec::new();
    let Ok(elf) = ElfFile64::<Endianness>::parse(file) else { return all };
    let table = memory::kernel_table(file).unwrap_or_default();
    let at = |va: u64, n: usize| memory::bytes_at(file, &table, va, n);
    let has_entry = elf.entry() != 0 && table.iter().any(|p| p.kind == memory::PT_INTERP);
    all.extend(has_entry.then(|| (elf.entry(), Who::Entry)));
    let symbols = elf.symbols().filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Text && s.size() > 0);
    all.extend(symbols.map(|s| (s.address(), Who::Symbol)));
    if let Some(d) = table.iter().find(|p| p.kind == PT_DYNAMIC).and_then(|p| Dynamic::read(p.va, p.mem, &at).ok()) {
        all.extend(d.symbols.iter().filter(|s| s.is_function()).map(|s| (s.value, Who::DynamicSymbol)));
        for r in &d.relocations {
            let value = d.symbol(r).filter(|s| s.defined).map_or(0, |s| s.value);
            all.push((value.wrapping_add(r.addend), Who::Relocation));
        }
        let word = |va: &u64| Some((number(at(*va, 8)?), Who::Relocation));
        all.extend(d.relr.iter().filter_map(word));
        let functions = [elf::DT_INIT, elf::DT_FINI].into_iter().filter_map(|tag| d.value(tag.0));
        all.extend(functions.map(|va| (va, Who::Loader)));
    }
    if let Some(p) = table.iter().find(|p| p.kind == PT_GNU_EH_FRAME) {
        all.extend(frames(p.va, &at).unwrap_or_default().into_iter().map(|va| (va, Who::Frame)));
    }
    all
}

/// Where frames begin, as the table says by which the unwinder finds them.
fn frames<'a>(header: u64, at: &dyn Fn(u64, usize) -> Option<&'a [u8]>) -> Option<Vec<u64>> {
    let head = at(header, 12)?;
    // Version 1; frames relative to the place, their number, entries relative to the header: what all linkers write.
    if head[..4] != [1, 0x1b, 0x03, 0x3b] {
        return None;
    }
    let rows = at(header.checked_add(12)?, (number(&head[8..12]) as usize).checked_mul(8)?)?;
    let begin = |row: &[u8]| header.wrapping_add(i64::from(number(&row[..4]) as i32) as u64);
    Some(rows.chunks_exact(8).map(begin).collect())
}
