//! The tables in the new read-only segment that the runtime searches by address: the trap map and the restart table.
//!
//! Input: rows, ascending. Output: bytes in the read-only segment, and where they are: the codes of the rows, then the heads of their groups.

use crate::base::addresses::Vaddr;
use crate::write::output::Output;
use blizzard_contract::restarts::{self, Restart};
use blizzard_contract::{RestartHead, TrapEntry, TrapHead, trap_map};

/// Name of the output section that holds the restart table.
pub(super) const RESTARTS: &str = ".blizzard.restarts";

/// The new read-only segment while it is filled, at the end of the file.
pub(super) struct ReadOnly<'x, 'o> {
    pub(super) va: Vaddr,
    /// Where it begins in the file.
    pub(super) start: u64,
    pub(super) file: &'x mut Output<'o>,
}

impl ReadOnly<'_, '_> {
    pub(super) fn next(&self, align: u64) -> Vaddr {
        Vaddr((self.va.0 + (self.file.len() - self.start)).next_multiple_of(align))
    }

    pub(super) fn reserve(&mut self, align: u64, bytes: usize) -> Vaddr {
        let va = self.next(align);
        self.file.fill_to(self.start + (va - self.va) + bytes as u64);
        va
    }

    pub(super) fn push(&mut self, align: u64, bytes: &[u8]) -> Vaddr {
        let va = self.reserve(align, 0);
        self.file.extend(bytes);
        va
    }

    /// Puts `bytes` at `va`: wholly into what has been reserved, or behind all of it.
    pub(super) fn put(&mut self, va: Vaddr, bytes: &[u8]) {
        let at = self.start + (va - self.va);
        if at < self.file.len() {
            return self.file.patch(at, bytes);
        }
        self.file.fill_to(at);
        self.file.extend(bytes);
    }
}

/// Where a table is.
pub(super) struct WrittenTable {
    pub codes: Vaddr,
    pub code_bytes: u64,
    pub heads: Vaddr,
    pub end: Vaddr,
    pub rows: u64,
}

impl WrittenTable {
    /// There is no such table.
    pub(super) fn none() -> WrittenTable {
        WrittenTable { codes: Vaddr(0), code_bytes: 0, heads: Vaddr(0), end: Vaddr(0), rows: 0 }
    }
}

/// Writes the restart table: `rows` by rising address. Its form is that of [`blizzard_contract::restarts`].
pub(super) fn write_restarts(ro: &mut ReadOnly<'_, '_>, rows: impl Iterator<Item = Restart>) -> WrittenTable {
    let codes = ro.reserve(4, 0);
    let mut heads = Vec::new();
    let (mut count, mut code_bytes) = (0, 0);
    let mut before = None;
    for row in rows {
        if count % restarts::GROUP == 0 {
            heads.push(RestartHead { check: row.check, at: code_bytes });
            before = None;
        }
        let (code, bytes) = restarts::encode(before, row);
        ro.file.extend(&code[..bytes]);
        code_bytes += bytes as u32;
        before = Some(row);
        count += 1;
    }
    let heads_va = ro.reserve(align_of::<RestartHead>() as u64, 0);
    for head in heads {
        [head.check, head.at].iter().for_each(|word| ro.file.extend(&word.to_le_bytes()));
    }
    WrittenTable { codes, code_bytes: code_bytes.into(), heads: heads_va, end: ro.next(1), rows: count as u64 }
}

/// Writes the trap map: `rows` by rising old address. Its form is that of [`blizzard_contract::trap_map`].
pub(super) fn write_trap_map(ro: &mut ReadOnly<'_, '_>, rows: impl Iterator<Item = TrapEntry>) -> WrittenTable {
    let codes = ro.reserve(8, 0);
    let mut heads = Vec::new();
    let (mut count, mut code_bytes) = (0, 0);
    let mut before = TrapEntry { old: 0, new: 0 };
    for row in rows {
        if count % trap_map::GROUP == 0 {
            heads.push(TrapHead { old: row.old, new: row.new, at: code_bytes });
        } else {
            let (code, bytes) = trap_map::encode(before, row);
            ro.file.extend(&code[..bytes]);
            code_bytes += bytes as u32;
        }
        before = row;
        count += 1;
    }
    let heads_va = ro.reserve(align_of::<TrapHead>() as u64, 0);
    for head in heads {
        [head.old, head.new, head.at].iter().for_each(|word| ro.file.extend(&word.to_le_bytes()));
    }
    WrittenTable { codes, code_bytes: code_bytes.into(), heads: heads_va, end: ro.next(1), rows: count as u64 }
}
