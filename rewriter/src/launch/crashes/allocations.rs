//! What an address in shared memory belongs to.
//!
//! Input: the memory of the nodes, where each keeps account of the arenas that it owns. Output: the allocation around the address, or the nearest in front
//! of it, with the place in the program that asked for it. The nodes may go on meanwhile: what is said was true a moment ago.

use crate::launch::crashes::process_memory::ProcessMemory;
use blizzard_contract::{self as contract, ArenaRecord, ArenaUnit, arena_unit};
use std::mem::{offset_of, size_of};
use std::path::PathBuf;

/// Units that are looked at, and so many at a time: an allocation's first unit alone tells of it.
const MOST_UNITS: u64 = 1 << 22;
const AT_A_TIME: u64 = 1 << 12;

/// A piece of shared memory that was handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    pub start: u64,
    /// In whole units.
    pub bytes: u64,
    /// It was given back.
    pub is_free: bool,
    /// Behind the call that asked for it: the file as it is mapped, and the place in it.
    pub by: Option<(PathBuf, u64)>,
}

/// What `address` lies in or behind, if this process owns the arena there. `records`: where it keeps its records.
pub fn around(memory: &ProcessMemory, records: u64, address: u64) -> Option<Allocation> {
    let words = memory.words(records, (contract::OWN_ARENAS * size_of::<ArenaRecord>()) as u64)?;
    let [base, units, table] =
        [offset_of!(ArenaRecord, base), offset_of!(ArenaRecord, units), offset_of!(ArenaRecord, table)]
            .map(|at| at / 8);
    let owns = |record: &&[u64]| {
        record[base] != 0 && address.wrapping_sub(record[base]) >> contract::BLOCK_SHIFT < record[units]
    };
    let record = words.chunks_exact(size_of::<ArenaRecord>() / 8).find(owns)?;
    let place = |unit: u64| record[base] + (unit << contract::BLOCK_SHIFT);
    let own = (address - record[base]) >> contract::BLOCK_SHIFT;
    let (mut end, least) = (own + 1, own.saturating_sub(MOST_UNITS));
    while end > least {
        let from = end.saturating_sub(AT_A_TIME).max(least);
        let unit_bytes = size_of::<ArenaUnit>() as u64;
        // Two words each: kind and size, then links or who asked for it.
        let words = memory.words(record[table] + from * unit_bytes, (end - from) * unit_bytes)?;
        let Some(found) = words.chunks_exact(2).rposition(|unit| unit[0] as u32 != arena_unit::INTERIOR) else {
            end = from;
            continue;
        };
        let (at, size, by) = (from + found as u64, words[2 * found] >> 32, words[2 * found + 1]);
        let kind = words[2 * found] as u32;
        let first = if kind == arena_unit::FREE_END { (at + 1).checked_sub(size)? } else { at };
        let is_free = ![arena_unit::USED, arena_unit::SLICED].contains(&kind);
        let by = Some(by).filter(|_| !is_free).and_then(|by| memory.file_at(by));
        return Some(Allocation { start: place(first), bytes: size << contract::BLOCK_SHIFT, is_free, by });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocation_in_front_is_found() {
        const BASE: u64 = contract::SEGMENT_BASE;
        let used = |size, by: u64| ArenaUnit { kind: arena_unit::USED, size, next: by as u32, prev: (by >> 32) as u32 };
        let mut table = vec![ArenaUnit::default(); 3 * AT_A_TIME as usize];
        let by = around as *const () as u64;
        table[0] = used(2, by);
        table[2] = ArenaUnit { kind: arena_unit::FREE, size: 3, ..ArenaUnit::default() };
        table[4] = ArenaUnit { kind: arena_unit::FREE_END, size: 3, ..ArenaUnit::default() };
        table[5] = used(10, 8);
        let mut records = [ArenaRecord::default(); contract::OWN_ARENAS];
        records[3] = ArenaRecord { base: BASE, units: table.len() as u64, table: table.as_ptr() as u64 };
        let memory = ProcessMemory::of(rustix::process::getpid()).unwrap();
        let seen = |address| around(&memory, records.as_ptr() as u64, address);
        let first = seen(BASE + 100).unwrap();
        assert_eq!((first.start, first.bytes, first.is_free), (BASE, 128, false));
        assert_eq!(first.by, memory.file_at(by), "{first:?}");
        assert!(first.by.is_some());
        let free = Some(Allocation { start: BASE + 128, bytes: 192, is_free: true, by: None });
        assert_eq!([seen(BASE + 128), seen(BASE + 192), seen(BASE + 256)], [free.clone(), free.clone(), free]);
        // Far behind the last one.
        let last = Allocation { start: BASE + 320, bytes: 640, is_free: false, by: None };
        assert_eq!(seen(BASE + 64 * (table.len() as u64 - 1)), Some(last));
        assert_eq!(seen(BASE + 64 * table.len() as u64), None);
        assert_eq!(seen(BASE - 64), None);
    }
}
