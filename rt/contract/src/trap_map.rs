//! The trap map: where the new code of an old instruction begins.
//!
//! Purpose: one row for each old instruction that no springboard covers. There are millions in large programs, of which hardly any is ever looked up,
//! so a row is kept as its distance from the one before, in one byte as a rule; the first one of each [`GROUP`] is kept whole, for the search.
//! Input: the parts of the map as they stand in the file. Output: rows.
//! **Invariant**: nothing outside the parts is read, whatever they contain; of a map that contradicts itself, rows are wrong or missing.
//!
//! Codes of rows, in hexadecimal digits:
//!
//! | bytes | the row lies |
//! |---|---|
//! | `on` | *o* bytes further in the old code and *n* bytes further in the new, neither of them 0 |
//! | `o0 nn` | the same, with *nn* bytes of new code |
//! | `00`, eight bytes | at the offsets that follow, old and new (u32 each, little endian) |

use crate::module::{TrapEntry, TrapHead};

/// Rows of a group. The last group may have fewer.
pub const GROUP: usize = 64;
/// Bytes of the longest code.
pub const CODE_BYTES: usize = 9;

/// A trap map.
#[derive(Clone, Copy, Debug)]
pub struct TrapMap<'x> {
    /// One for each group, by rising old offset.
    pub heads: &'x [TrapHead],
    /// The codes of all rows but the first one of each group.
    pub codes: &'x [u8],
    /// How many rows it has.
    pub rows: usize,
}

/// What an old offset is to a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldPlace {
    /// A row; its new offset.
    Row(u32),
    /// Between two rows.
    Between,
    /// In front of all rows, or behind.
    Outside,
}

impl<'x> TrapMap<'x> {
    /// How many groups so many rows have.
    pub const fn groups(rows: usize) -> usize {
        rows.div_ceil(GROUP)
    }

    /// The rows of a group.
    pub fn group(&self, group: usize) -> TrapRows<'x> {
        let none = TrapRows { next: None, codes: &[], left: 0 };
        let Some(head) = self.heads.get(group) else { return none };
        let left = self.rows.saturating_sub(group * GROUP).min(GROUP);
        let next = Some(TrapEntry { old: head.old, new: head.new }).filter(|_| left > 0);
        TrapRows { next, codes: self.codes.get(head.at as usize..).unwrap_or(&[]), left }
    }

    /// All rows.
    pub fn all(self) -> impl Iterator<Item = TrapEntry> + use<'x> {
        (0..self.heads.len()).flat_map(move |group| self.group(group))
    }

    /// The last row whose old offset is not above `old`.
    pub fn before(&self, old: u32) -> Option<TrapEntry> {
        let group = self.heads.partition_point(|head| head.old <= old).checked_sub(1)?;
        self.group(group).take_while(|row| row.old <= old).last()
    }

    /// Of a map whose new offsets rise, too: the last row whose new offset is not above `new`.
    pub fn leads_before(&self, new: u32) -> Option<TrapEntry> {
        let group = self.heads.partition_point(|head| head.new <= new).checked_sub(1)?;
        self.group(group).take_while(|row| row.new <= new).last()
    }

    /// Looks up an old offset.
    pub fn find(&self, old: u32) -> OldPlace {
        let Some(group) = self.heads.partition_point(|head| head.old <= old).checked_sub(1) else {
            return OldPlace::Outside;
        };
        match self.group(group).find(|row| row.old >= old) {
            Some(row) if row.old == old => OldPlace::Row(row.new),
            Some(_) => OldPlace::Between,
            None if group + 1 < self.heads.len() => OldPlace::Between,
            None => OldPlace::Outside,
        }
    }
}

/// Rows of one group, in order.
#[derive(Clone, Debug)]
pub struct TrapRows<'x> {
    next: Option<TrapEntry>,
    codes: &'x [u8],
    /// Rows from `next` on.
    left: usize,
}

impl<'x> TrapRows<'x> {
    /// The codes that have not been read: behind the last row, those of the groups that follow.
    pub fn rest(&self) -> &'x [u8] {
        self.codes
    }

    /// The row behind `row`.
    fn decode(&mut self, row: TrapEntry) -> Option<TrapEntry> {
        let (&first, rest) = self.codes.split_first()?;
        let (old, new) = (row.old.wrapping_add(u32::from(first >> 4)), u32::from(first & 15));
        let (row, rest) = match first {
            0 => {
                let (offsets, rest) = rest.split_first_chunk::<8>()?;
                let [a, b, c, d, e, f, g, h] = *offsets;
                (TrapEntry { old: u32::from_le_bytes([a, b, c, d]), new: u32::from_le_bytes([e, f, g, h]) }, rest)
            }
            _ if new == 0 => {
                let (&new, rest) = rest.split_first()?;
                (TrapEntry { old, new: row.new.wrapping_add(new.into()) }, rest)
            }
            _ => (TrapEntry { old, new: row.new.wrapping_add(new) }, rest),
        };
        self.codes = rest;
        Some(row)
    }
}

impl Iterator for TrapRows<'_> {
    type Item = TrapEntry;

    fn next(&mut self) -> Option<TrapEntry> {
        let row = self.next?;
        self.left -= 1;
        self.next = if self.left == 0 { None } else { self.decode(row) };
        Some(row)
    }
}

/// The code of `row`, which comes behind `before`: bytes and how many they are.
pub fn encode(before: TrapEntry, row: TrapEntry) -> ([u8; CODE_BYTES], usize) {
    let mut code = [0; CODE_BYTES];
    let (old, new) = (row.old.wrapping_sub(before.old), row.new.wrapping_sub(before.new));
    let bytes = match (old, new) {
        (1..=15, 1..=15) => {
            code[0] = (old << 4 | new) as u8;
            1
        }
        (1..=15, 0..=255) => {
            code[..2].copy_from_slice(&[(old << 4) as u8, new as u8]);
            2
        }
        _ => {
            code[1..5].copy_from_slice(&row.old.to_le_bytes());
            code[5..].copy_from_slice(&row.new.to_le_bytes());
            CODE_BYTES
        }
    };
    (code, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(rows: &[TrapEntry]) -> (Vec<TrapHead>, Vec<u8>) {
        let (mut heads, mut codes) = (Vec::new(), Vec::new());
        for (k, &row) in rows.iter().enumerate() {
            if k % GROUP == 0 {
                heads.push(TrapHead { old: row.old, new: row.new, at: codes.len() as u32 });
            } else {
                let (code, bytes) = encode(rows[k - 1], row);
                codes.extend(&code[..bytes]);
            }
        }
        (heads, codes)
    }

    /// Rows with distances of all kinds: short, long, none in the new code, back in the new code.
    fn rows(count: usize) -> Vec<TrapEntry> {
        let mut row = TrapEntry { old: 0x40, new: 0x8000 };
        (0..count as u32)
            .map(|k| {
                row.old += [1, 15, 4, 16, 7, 300, 3, 0x12345][k as usize % 8];
                let new = [1, 15, 16, 0, 255, 256, 70_000][k as usize % 7];
                row.new = if k % 11 == 10 { row.new - 100 } else { row.new + new };
                row
            })
            .collect()
    }

    #[test]
    fn new_offsets_that_rise_lead_back() {
        let rows: Vec<TrapEntry> = (0..200).map(|k| TrapEntry { old: 3 * k, new: 0x1000 + 5 * k }).collect();
        let (heads, codes) = build(&rows);
        let map = TrapMap { heads: &heads, codes: &codes, rows: rows.len() };
        assert_eq!(map.leads_before(0xfff), None);
        for row in &rows {
            for within in 0..5 {
                assert_eq!(map.leads_before(row.new + within), Some(*row));
            }
        }
    }

    #[test]
    fn every_row_is_found_and_nothing_else() {
        for count in [0, 1, 2, 63, 64, 65, 128, 1000] {
            let rows = rows(count);
            let (heads, codes) = build(&rows);
            let map = TrapMap { heads: &heads, codes: &codes, rows: count };
            assert_eq!(heads.len(), TrapMap::groups(count));
            assert_eq!(map.all().collect::<Vec<_>>(), rows);
            for (k, row) in rows.iter().enumerate() {
                assert_eq!(map.find(row.old), OldPlace::Row(row.new));
                let behind = match rows.get(k + 1) {
                    Some(next) if next.old == row.old + 1 => OldPlace::Row(next.new),
                    Some(_) => OldPlace::Between,
                    None => OldPlace::Outside,
                };
                assert_eq!(map.find(row.old + 1), behind);
            }
            assert_eq!(map.find(0x40), OldPlace::Outside);
            assert_eq!(map.find(u32::MAX), OldPlace::Outside);
        }
    }

    #[test]
    fn a_row_takes_one_byte_as_a_rule() {
        let [plain, checked, far] = [(4, 4), (4, 30), (4, 300)].map(|(old, new)| {
            let (before, row) = (TrapEntry { old: 8, new: 9 }, TrapEntry { old: 8 + old, new: 9 + new });
            encode(before, row).1
        });
        assert_eq!((plain, checked, far), (1, 2, CODE_BYTES));
    }

    #[test]
    fn parts_that_contradict_each_other_are_not_read_beyond_their_ends() {
        let rows = rows(200);
        let (heads, codes) = build(&rows);
        for end in 0..codes.len() {
            let map = TrapMap { heads: &heads, codes: &codes[..end], rows: 200 };
            assert!(map.all().count() <= 200);
        }
        let map = TrapMap { heads: &heads, codes: &codes, rows: 1_000_000 };
        assert_eq!(map.find(u32::MAX), OldPlace::Outside);
        let wrong = [TrapHead { old: 0, new: 0, at: u32::MAX }];
        assert_eq!(TrapMap { heads: &wrong, codes: &codes, rows: 5 }.all().count(), 1);
    }
}
