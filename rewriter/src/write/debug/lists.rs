//! Range and location lists of DWARF 5, whose encodings hold offsets of varying size: each list in use is written anew, with absolute
//! addresses, into one unit behind the old contents. The old index tables stay where they are and lead to the new lists.
//!
//! Input: the lists that units use. Output: new contents of the section.

use crate::write::debug::address_map::{AddressMap, DebugSlice, elsewhere, limit, range};
use crate::write::debug::line::uleb;
use gimli::{Dwarf, LocationListsOffset, RangeListsOffset, Unit, constants as c};
use std::collections::HashMap;

/// Bytes of a unit header without index table: length, version, address size, segment size, count.
const HEADER: usize = 12;

/// A section while lists are added to it.
pub struct NewLists {
    bytes: Vec<u8>,
    /// Where the new unit begins.
    unit: usize,
    /// New offsets by old ones.
    done: HashMap<usize, usize>,
    /// A list has been added.
    is_used: bool,
}

impl NewLists {
    /// `old`: the section's contents.
    pub fn new(old: &[u8]) -> NewLists {
        let mut bytes = old.to_vec();
        let unit = bytes.len();
        bytes.extend([0; HEADER]);
        NewLists { bytes, unit, done: HashMap::new(), is_used: false }
    }

    /// Sets an entry of an index table, whose entries have `width` bytes.
    pub fn index(&mut self, slot: usize, width: usize, offset: usize) {
        if let Some(field) = self.bytes.get_mut(slot..slot.saturating_add(width)) {
            field.copy_from_slice(&(offset as u64).to_le_bytes()[..width]);
        }
    }

    /// The new offset of a range list.
    pub fn ranges(
        &mut self,
        dwarf: &Dwarf<DebugSlice>,
        unit: &Unit<DebugSlice>,
        old: RangeListsOffset,
        map: &dyn AddressMap,
    ) -> gimli::Result<usize> {
        if let Some(new) = self.done.get(&old.0) {
            return Ok(*new);
        }
        if self.bytes.len() > limit(self.unit) {
            return Err(gimli::Error::UnexpectedEof(gimli::ReaderOffsetId(0)));
        }
        let mut list = Vec::new();
        let mut ranges = dwarf.ranges(unit, old)?;
        while let Some(r) = ranges.next()? {
            let more = elsewhere(map, r.begin, r.end).into_iter().map(|at| (at.start.0, at.end.0));
            for (begin, end) in [range(map, r.begin, r.end)].into_iter().chain(more) {
                list.push(c::DW_RLE_start_end.0);
                list.extend(begin.to_le_bytes());
                list.extend(end.to_le_bytes());
            }
        }
        list.push(c::DW_RLE_end_of_list.0);
        Ok(self.add(old.0, &list))
    }

    /// The offset of a new range list, for a unit of one range.
    pub fn of_unit(&mut self, from: u64, to: u64, map: &dyn AddressMap) -> usize {
        // Units of a compiler's file do not overlap.
        let more = if self.bytes.len() > limit(self.unit) { Vec::new() } else { elsewhere(map, from, to) };
        let more = more.into_iter().map(|at| (at.start.0, at.end.0));
        let at = self.bytes.len();
        for (begin, end) in [range(map, from, to)].into_iter().chain(more) {
            self.bytes.push(c::DW_RLE_start_end.0);
            self.bytes.extend(begin.to_le_bytes());
            self.bytes.extend(end.to_le_bytes());
        }
        self.bytes.push(c::DW_RLE_end_of_list.0);
        self.is_used = true;
        at
    }

    /// The new offset of a location list.
    pub fn locations(
        &mut self,
        dwarf: &Dwarf<DebugSlice>,
        unit: &Unit<DebugSlice>,
        old: LocationListsOffset,
        map: &dyn AddressMap,
    ) -> gimli::Result<usize> {
        if let Some(new) = self.done.get(&old.0) {
            return Ok(*new);
        }
        if self.bytes.len() > limit(self.unit) {
            return Err(gimli::Error::UnexpectedEof(gimli::ReaderOffsetId(0)));
        }
        let mut list = Vec::new();
        let mut entries = dwarf.locations(unit, old)?;
        while let Some(entry) = entries.next()? {
            if (entry.range.begin, entry.range.end) == (0, u64::MAX) {
                list.push(c::DW_LLE_default_location.0);
            } else {
                let (begin, end) = range(map, entry.range.begin, entry.range.end);
                list.push(c::DW_LLE_start_end.0);
                list.extend(begin.to_le_bytes());
                list.extend(end.to_le_bytes());
            }
            uleb(&mut list, entry.data.0.len() as u64);
            list.extend(entry.data.0.slice());
        }
        list.push(c::DW_LLE_end_of_list.0);
        Ok(self.add(old.0, &list))
    }

    fn add(&mut self, old: usize, list: &[u8]) -> usize {
        let at = self.bytes.len();
        self.bytes.extend(list);
        self.done.insert(old, at);
        self.is_used = true;
        at
    }

    /// The section's new contents; None: no list was written.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        if !self.is_used {
            return None;
        }
        let length = (self.bytes.len() - self.unit - 4) as u32;
        let header = &mut self.bytes[self.unit..self.unit + HEADER];
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4] = 5;
        header[6] = 8;
        Some(self.bytes)
    }
}
