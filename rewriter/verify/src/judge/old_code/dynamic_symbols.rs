//! The longer copies of the dynamic symbol table and its hash tables, by which `dladdr` names return addresses in relocated code.
//!
//! Input: the dynamic sections of both files. Output: where the values of tags stand in the original's file that may differ, or what is wrong.
//! **Invariant**: the copies begin with the output's tables at the old places; each symbol more is a function's, in the same order: with its new code if its
//! own symbol keeps the old address, or, behind that, with its full version; no name leads to one.
//! Source: gABI chapter 5 ("Hash Table"), DT_GNU_HASH as in glibc's `do_lookup_x`.

use crate::file::dynamic::{Dynamic, gnu_hash};
use crate::file::memory::{self, PT_DYNAMIC, number};
use object::elf;

const SYMBOL_BYTES: usize = 24;

/// Both files.
pub struct Files<'x, 'a> {
    pub was: &'x [u8],
    /// Of the output.
    pub bytes_at: &'x dyn Fn(u64, usize) -> Option<&'a [u8]>,
    /// Whether code at (address, bytes) of the original is that at (address, bytes) of the output.
    pub is_moved: &'x dyn Fn((u64, u64), (u64, u64)) -> bool,
    /// Whether the latter is a full version of the former.
    pub is_full: &'x dyn Fn((u64, u64), (u64, u64)) -> bool,
}

/// The bytes of DT_GNU_HASH's table in front of its chains, and the number of its first symbol.
fn front<'a>(va: u64, at: &dyn Fn(u64, usize) -> Option<&'a [u8]>) -> Option<(usize, usize)> {
    let words = at(va, 12)?;
    let [buckets, first, filter] = [0, 4, 8].map(|k| number(&words[k..k + 4]) as usize);
    Some((buckets.checked_mul(4)?.checked_add(filter.checked_mul(8)?)?.checked_add(16)?, first))
}

/// Judges them.
pub fn judge(files: &Files) -> Result<Vec<u64>, String> {
    let table = memory::kernel_table(files.was).unwrap_or_default();
    let was_at = |va: u64, n: usize| memory::bytes_at(files.was, &table, va, n);
    let Some(section) = table.iter().find(|p| p.kind == PT_DYNAMIC) else { return Ok(Vec::new()) };
    let is_at = files.bytes_at;
    let (Ok(was), Ok(is)) =
        (Dynamic::read(section.va, section.mem, &was_at), Dynamic::read(section.va, section.mem, is_at))
    else {
        return Ok(Vec::new());
    };
    let [symtab, gnu, sysv] = [elf::DT_SYMTAB, elf::DT_GNU_HASH, elf::DT_HASH].map(|tag| {
        let k = was.tags.iter().rposition(|t| t.0 == tag.0 as u64);
        k.and_then(|k| Some((section.off + 16 * k as u64 + 8, was.tags[k].1, is.tags.get(k)?.1)))
    });
    let Some((_, old, new)) = symtab.filter(|t| t.1 != t.2) else { return Ok(Vec::new()) };
    let (count, all) = (was.symbols.len(), is.symbols.len());
    let outside = "the longer table of dynamic symbols is not in the file";
    let front_rows = is_at(old, count * SYMBOL_BYTES).ok_or(outside)?;
    let rows = is_at(new, all * SYMBOL_BYTES).ok_or(outside)?;
    if !rows.starts_with(front_rows) {
        return Err("the longer table of dynamic symbols does not begin with the symbols that there were".into());
    }
    let before = was_at(old, count * SYMBOL_BYTES).ok_or(outside)?;
    let candidates = before.chunks_exact(SYMBOL_BYTES).zip(front_rows.chunks_exact(SYMBOL_BYTES)).zip(&was.symbols);
    // Each has a place for its new code and one for its full version, in this order.
    let mut candidates = candidates.flat_map(|candidate| [(candidate, false), (candidate, true)]);
    let range = |row: &[u8]| (number(&row[8..16]), number(&row[16..24]));
    for row in rows[count * SYMBOL_BYTES..].chunks_exact(SYMBOL_BYTES) {
        let is_known = candidates.any(|(((was, is), symbol), full)| {
            let is_same = symbol.defined && symbol.kind == 2 && was[..8] == row[..8];
            let is_there = if full { files.is_full } else { files.is_moved };
            is_same && (full || was == is) && is_there(range(was), range(row))
        });
        if !is_known {
            let why = "an added dynamic symbol is neither the new code of a function whose symbol keeps its address, \
                       nor a full version";
            return Err(why.into());
        }
    }
    if let Some((_, old, new)) = gnu {
        let (bytes, first) = front(old, &was_at).ok_or(outside)?;
        let words = bytes + 4 * count.saturating_sub(first);
        let mut wanted = was_at(old, words).ok_or(outside)?.to_vec();
        wanted[words - 4] &= !1;
        let added = is.symbols[count..].iter().map(|s| !gnu_hash(s.name) & !1);
        wanted.extend(added.flat_map(u32::to_le_bytes));
        let last = wanted.len() - 4;
        wanted[last] |= 1;
        if is_at(new, wanted.len()) != Some(&wanted) {
            return Err("DT_GNU_HASH is not the original's with the added symbols behind its last chain".into());
        }
    }
    if let Some((_, old, new)) = sysv {
        let buckets = was_at(old, 4).map_or(0, |b| number(b) as usize);
        let mut wanted = was_at(old, 4 * (2 + buckets + count)).ok_or(outside)?.to_vec();
        wanted[4..8].copy_from_slice(&(all as u32).to_le_bytes());
        wanted.resize(4 * (2 + buckets + all), 0);
        if is_at(new, wanted.len()) != Some(&wanted) {
            return Err("DT_HASH is not the original's with the added symbols in no chain".into());
        }
    }
    Ok([symtab, gnu, sysv].into_iter().flatten().map(|t| t.0).collect())
}
