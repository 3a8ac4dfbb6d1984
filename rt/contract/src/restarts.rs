//! The restart table: where the check of an access begins.
//!
//! Purpose: who continues at an access, behind its check, without having come from the check (a handler of the program returns to the instruction that
//! raised its signal) must go back to the check: messages may have been handled since. Input: the parts of the table as they stand in the file. Output: rows.
//! **Invariant**: nothing outside the parts is read, whatever they contain; of a table that contradicts itself, rows are wrong or missing.
//!
//! There is a row for each access with a check of its own, ascending. The codes of the first row of each [`GROUP`] are one number, how many bytes of check
//! stand in front of the access; those of the others two, with the distance of the check from the access of the row before in front. Numbers are in
//! unsigned LEB128 (DWARF 5, section 7.6).

use crate::module::RestartHead;

/// Rows of a group. The last group may have fewer.
pub const GROUP: usize = 64;
/// Bytes of the longest code.
pub const CODE_BYTES: usize = 10;

/// One row: offsets in the new code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Restart {
    /// Where the check begins.
    pub check: u32,
    /// The access, which ends it.
    pub access: u32,
}

/// A restart table.
#[derive(Clone, Copy, Debug)]
pub struct Restarts<'x> {
    /// One for each group.
    pub heads: &'x [RestartHead],
    pub codes: &'x [u8],
    /// How many rows it has.
    pub rows: usize,
}

impl<'x> Restarts<'x> {
    /// How many groups so many rows have.
    pub const fn groups(rows: usize) -> usize {
        rows.div_ceil(GROUP)
    }

    /// The rows of a group.
    pub fn group(&self, group: usize) -> RestartRows<'x> {
        let Some(head) = self.heads.get(group) else {
            return RestartRows { check: 0, access: None, codes: &[], left: 0 };
        };
        let left = self.rows.saturating_sub(group * GROUP).min(GROUP);
        RestartRows { check: head.check, access: None, codes: self.codes.get(head.at as usize..).unwrap_or(&[]), left }
    }

    /// The last row whose access lies before an offset of the new code.
    pub fn before(&self, at: u32) -> Option<Restart> {
        let group = self.heads.partition_point(|head| head.check < at).checked_sub(1)?;
        let in_group = |group| self.group(group).take_while(|row: &Restart| row.access < at).last();
        // The first access of the group may lie behind.
        in_group(group).or_else(|| in_group(group.checked_sub(1)?))
    }

    /// The access between whose check and itself an offset of the new code lies, or at which.
    pub fn around(&self, at: u32) -> Option<Restart> {
        let group = self.heads.partition_point(|head| head.check < at).checked_sub(1)?;
        self.group(group).find(|row| row.access >= at).filter(|row| row.check < at)
    }

    /// Where the check of the access at an offset of the new code begins.
    pub fn check_of(&self, access: u32) -> Option<u32> {
        self.before(access.checked_add(1)?).filter(|row| row.access == access).map(|row| row.check)
    }
}

/// Rows of one group, in order.
#[derive(Clone, Debug)]
pub struct RestartRows<'x> {
    /// Of the first row.
    check: u32,
    /// Of the row before.
    access: Option<u32>,
    codes: &'x [u8],
    left: usize,
}

impl<'x> RestartRows<'x> {
    /// The codes that have not been read: behind the last row, those of the groups that follow.
    pub fn rest(&self) -> &'x [u8] {
        self.codes
    }

    fn number(&mut self) -> Option<u32> {
        let mut number = 0u32;
        for shift in (0..32).step_by(7) {
            let (&byte, rest) = self.codes.split_first()?;
            self.codes = rest;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

impl Iterator for RestartRows<'_> {
    type Item = Restart;

    fn next(&mut self) -> Option<Restart> {
        self.left = self.left.checked_sub(1)?;
        let check = match self.access {
            None => self.check,
            Some(before) => before.wrapping_add(self.number()?),
        };
        let row = Restart { check, access: check.wrapping_add(self.number()?) };
        self.access = Some(row.access);
        Some(row)
    }
}

/// The code of `row`, which comes behind `before` in its group, or first: bytes and how many they are.
pub fn encode(before: Option<Restart>, row: Restart) -> ([u8; CODE_BYTES], usize) {
    let mut code = [0; CODE_BYTES];
    let mut bytes = 0;
    let from = before.map(|before| row.check.wrapping_sub(before.access));
    for mut number in from.into_iter().chain([row.access.wrapping_sub(row.check)]) {
        loop {
            let more = number >= 0x80;
            code[bytes] = (number & 0x7f) as u8 | if more { 0x80 } else { 0 };
            bytes += 1;
            if !more {
                break;
            }
            number >>= 7;
        }
    }
    (code, bytes)
}

/// Whether a test of plain code that has come so far may begin again: it has changed registers and flags alone that nobody needs. It begins with what keeps others:
/// by `push`, below a `lea rsp`, or in the red zone; and it keeps flags by `lahf` (`rewriter/SEQUENCES.md`). `done`: its instructions up to there.
pub fn can_begin_again(done: &[u8]) -> bool {
    const LAHF: u8 = 0x9f;
    let moves_stack = matches!(done, [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..] | [0x48, 0x8d, 0x64 | 0xa4, 0x24, ..]);
    // mov [rsp - 8 k], register
    let spills = matches!(done, [0x48 | 0x4c, 0x89, operand, 0x24, 0x80..=0xff, ..] if operand & 0xc7 == 0x44);
    // The byte may be another instruction's: then the test is not begun again, though it could be.
    !moves_stack && !spills && !done.contains(&LAHF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(rows: &[Restart]) -> (Vec<RestartHead>, Vec<u8>) {
        let (mut heads, mut codes) = (Vec::new(), Vec::new());
        for (k, &row) in rows.iter().enumerate() {
            let first = k % GROUP == 0;
            if first {
                heads.push(RestartHead { check: row.check, at: codes.len() as u32 });
            }
            let (code, bytes) = encode((!first).then(|| rows[k - 1]), row);
            codes.extend(&code[..bytes]);
        }
        (heads, codes)
    }

    fn rows(count: u32) -> Vec<Restart> {
        let mut at = 0;
        (0..count)
            .map(|k| {
                let check = at + [3, 0, 200, 100_000][k as usize % 4];
                let access = check + [12, 30, 127, 128, 300][k as usize % 5];
                at = access + 2 + k % 3;
                Restart { check, access }
            })
            .collect()
    }

    /// What tests in plain code begin with, and whether one that has come so far may begin again.
    #[test]
    fn what_keeps_a_register_or_flags_is_not_begun_again() {
        /// Behind each beginning: `mov eax, ecx`.
        const MORE: [u8; 2] = [0x89, 0xc8];
        let all_registers = |prefix: &'static [u8]| (0..8u8).map(move |n| [prefix, &[0x50 + n]].concat());
        let below = [vec![0x48, 0x8d, 0x64, 0x24, 0x80], vec![0x48, 0x8d, 0xa4, 0x24, 0, 0xff, 0xff, 0xff]];
        let in_red_zone = (0..16u8)
            .map(|n| vec![0x48 | n >> 3 << 2, 0x89, 0x44 | (n & 7) << 3, 0x24, [0xf8, 0xf0, 0x80][usize::from(n) % 3]]);
        let keeping =
            all_registers(&[]).chain(all_registers(&[0x41])).chain(below).chain(in_red_zone).chain([vec![0x9f]]);
        for begun in keeping {
            for done in [begun.clone(), [&begun[..], &MORE].concat()] {
                assert!(!can_begin_again(&done), "{done:02x?}");
            }
        }
        // `lahf` is not always the first.
        assert!(!can_begin_again(&[&MORE[..], &[0x9f]].concat()));
        // Nothing; a copy and a shift; `lea`s of other registers, or from other ones; a comparison with the doorbell.
        let others: [&[u8]; 6] = [
            &[],
            &[0x48, 0x89, 0xc2, 0x48, 0xc1, 0xea, 6],
            &[0x48, 0x8d, 0x54, 0x24, 0x80],
            &[0x48, 0x8d, 0x60, 0x80],
            &[0x41, 0x89, 0xc8],
            &[0x83, 0x3c, 0x25, 0, 0, 0, 0x70, 0],
        ];
        for done in others {
            assert!(can_begin_again(done), "{done:02x?}");
        }
    }

    #[test]
    fn every_row_is_found_and_nothing_else() {
        for count in [0, 1, 2, 63, 64, 65, 128, 1000] {
            let rows = rows(count);
            let (heads, codes) = build(&rows);
            let table = Restarts { heads: &heads, codes: &codes, rows: rows.len() };
            assert_eq!(heads.len(), Restarts::groups(rows.len()));
            let all: Vec<Restart> = (0..heads.len()).flat_map(|group| table.group(group)).collect();
            assert_eq!(all, rows);
            for (k, row) in rows.iter().enumerate() {
                assert_eq!(table.check_of(row.access), Some(row.check));
                assert_eq!((table.check_of(row.access - 1), table.check_of(row.access + 1)), (None, None));
                assert_eq!(table.before(row.access), k.checked_sub(1).map(|k| rows[k]), "row {k} of {count}");
                for at in row.check..=row.access + 1 {
                    let around = rows.iter().find(|row| row.check < at && at <= row.access);
                    assert_eq!(table.around(at), around.copied(), "row {k} of {count}, {at}");
                }
                assert_eq!(table.before(row.access + 1), Some(*row));
            }
            let end = rows.last().map_or(9, |row| row.access + 9);
            for at in (0..end)
                .filter(|at| {
                    at % 7 == 0 || rows.iter().any(|row| row.check.abs_diff(*at) < 2 || row.access.abs_diff(*at) < 2)
                })
                .take(2000)
            {
                assert_eq!(
                    table.around(at).is_some(),
                    rows.iter().any(|row| row.check < at && at <= row.access),
                    "{at}"
                );
            }
            assert_eq!(table.before(0), None);
            assert_eq!(table.before(u32::MAX), rows.last().copied());
        }
    }

    #[test]
    fn a_row_takes_two_bytes_as_a_rule() {
        let before = Restart { check: 100, access: 120 };
        assert_eq!(encode(Some(before), Restart { check: 130, access: 155 }).1, 2);
        assert_eq!(encode(None, Restart { check: 130, access: 155 }).1, 1);
    }

    #[test]
    fn parts_that_contradict_each_other_are_not_read_beyond_their_ends() {
        let rows = rows(200);
        let (heads, codes) = build(&rows);
        for end in 0..codes.len() {
            let table = Restarts { heads: &heads, codes: &codes[..end], rows: 200 };
            assert!((0..heads.len()).flat_map(|group| table.group(group)).count() <= 200);
            table.before(u32::MAX);
        }
        let table = Restarts { heads: &heads, codes: &[0xff; 40], rows: 1_000_000 };
        assert_eq!(table.check_of(rows[0].access), None);
        let wrong = [RestartHead { check: 0, at: u32::MAX }];
        assert_eq!(Restarts { heads: &wrong, codes: &codes, rows: 5 }.before(9), None);
    }
}
