//! What is not code: it is as it was, but for words and symbols that lead to new code now.
//!
//! Input: the original and the output ([`OriginalComparison`]), with the new addresses of old instructions. Output: findings. **Invariant**: a byte of the
//! original that differs in the output is accepted by one rule alone: old code and headers, which others judge; the build id; a value or a size that leads to
//! new code; marks of features taken back.

use crate::audit::Audit;
use crate::decode::insn::Insn;
use crate::file::memory::HEADER_BYTES;
use crate::file::module::Section;
use crate::judge::file::notes;
use crate::judge::old_code::comparison::OriginalComparison;
use crate::judge::old_code::dynamic_symbols;
use std::ops::RangeInclusive;
impl OriginalComparison<'_, '_> {
    /// Whether at `off` in the file stands the value of a function's dynamic symbol or a word's, which leads to the new code of what stood at its old
    /// one; where the value begins.
    fn leads_to_new_code(&self, off: u64) -> Option<u64> {
        let values = &self.original.values;
        let k = values.partition_point(|e| e.0 <= off).checked_sub(1)?;
        let (at, was) = values[k];
        let segment = self.original.segments.iter().find(|s| at.wrapping_sub(s.file_off) < s.file_bytes)?;
        let now = self.m.bytes_at(segment.va + (at - segment.file_off), 8)?;
        let now = u64::from_le_bytes(now.try_into().ok()?);
        (off < at + 8 && self.map.get(&was) == Some(&now)).then_some(at)
    }

    /// Whether at `off` in the file stands the size of a function's dynamic symbol which leads to new code now, and ends behind the function's last
    /// instruction, before anything else of the program; where the size begins. `begins` are the new addresses, ascending.
    fn is_size_of_new_code(&self, off: u64, begins: &[u64]) -> Option<u64> {
        let functions = &self.original.functions;
        let at = functions[functions.partition_point(|at| at + 8 <= off).checked_sub(1)?];
        let value = self.leads_to_new_code(at).filter(|value| *value == at && off < at + 16)?;
        let segment = self.original.segments.iter().find(|s| value.wrapping_sub(s.file_off) < s.file_bytes)?;
        let both = |bytes: &[u8]| [0, 8].map(|k| u64::from_le_bytes(bytes[k..k + 8].try_into().expect("eight bytes")));
        let at_value = segment.va + (value - segment.file_off);
        let [start, bytes] = both(self.m.bytes_at(at_value, 16)?);
        let [was, was_bytes] = both(self.original.bytes_at(at_value, 16)?);
        let end = start.checked_add(bytes)?;
        self.ends_of(was, was_bytes, begins)?.iter().any(|ends| ends.contains(&end)).then_some(at + 8)
    }

    /// Where the new code may end of the function of `was_bytes` bytes at `was`: behind its last instruction, before anything else of the program. There are
    /// several ranges where instructions overlap. `begins` are the new addresses, ascending.
    fn ends_of(&self, was: u64, was_bytes: u64, begins: &[u64]) -> Option<Vec<RangeInclusive<u64>>> {
        let was_end = was.checked_add(was_bytes)?;
        // Behind the last instruction there may be data. Instructions that overlap others may begin between; the longest has 15 bytes. A size may say
        // anything, so only what the file holds is looked at.
        let last_of = |s: &Section| {
            let range = was.max(s.va)..was_end.min(s.va.saturating_add(s.data.len() as u64));
            range.rev().find(|va| self.insns.contains_key(va) && self.map.contains_key(va))
        };
        let last = self.original.exec.iter().filter_map(last_of).max()?;
        let near = was.max(last.saturating_sub(15))..was_end.min(last + 15);
        let is_last = |va: u64, o: &Insn| va == last || va + u64::from(o.len) >= was_end;
        let ends = near.filter_map(|va| {
            let copy = |(o, new): (&Insn, &u64)| self.copy_of(o, self.text.at(*new)?, true);
            let o = self.insns.get(&va).filter(|o| is_last(va, o));
            let found = o.zip(self.map.get(&va)).and_then(copy);
            let behind = found.map(|(first, n)| self.text.insns[first + n - 1].end());
            // Behind the last one of all the other versions follow, or the cold code.
            let stop = self.m.text.va + self.m.plain_bytes() as u64;
            let next = |from: u64| begins.get(begins.partition_point(|b| *b < from)).copied().unwrap_or(stop);
            behind.map(|from| from..=next(from))
        });
        Some(ends.collect())
    }

    /// Whether code at `is` is the full version of the function at `was`, both (address, bytes): of all its instructions that have one, and of nothing else.
    fn is_full_version(&self, was: (u64, u64), is: (u64, u64), begins: &[u64]) -> Option<bool> {
        let from = *self.map.get(&was.0)?;
        let end = is.0.checked_add(is.1)?;
        let text_end = self.m.text.va + self.m.text.data.len() as u64;
        let full_from = self.m.text.va + self.m.plain_bytes() as u64;
        let place = |plain: u64| self.twice.partition_point(|(va, _)| *va < plain);
        Some(self.ends_of(was.0, was.1, begins)?.iter().any(|ends| {
            let (first, stop) = (place(from), place(*ends.start()));
            let own = self.twice.get(first..stop).unwrap_or(&[]);
            let (Some((_, begin)), Some((_, last))) = (own.first(), own.last()) else { return false };
            let before = first.checked_sub(1).map_or(full_from, |k| self.twice[k].1.end);
            // Between them there is padding at most.
            let next = self.twice.get(place(*ends.end())).map_or(text_end, |(_, next)| next.start);
            (before..=begin.start).contains(&is.0) && (last.end..=next).contains(&end)
        }))
    }

    /// Where the values of tags stand in the file that lead to longer tables of symbols; these are judged.
    fn longer_symbols(&self, begins: &[u64], audit: &mut Audit) -> Vec<u64> {
        let is_moved = |was: (u64, u64), is: (u64, u64)| {
            let end = is.0.saturating_add(is.1);
            let ends =
                || self.ends_of(was.0, was.1, begins).is_some_and(|all| all.iter().any(|ends| ends.contains(&end)));
            self.map.get(&was.0) == Some(&is.0) && is.1 > 0 && ends()
        };
        let is_full = |was: (u64, u64), is: (u64, u64)| self.is_full_version(was, is, begins) == Some(true);
        let bytes_at = |va, n| self.m.bytes_at(va, n);
        let files = dynamic_symbols::Files {
            was: self.original.file,
            bytes_at: &bytes_at,
            is_moved: &is_moved,
            is_full: &is_full,
        };
        dynamic_symbols::judge(&files).unwrap_or_else(|why| {
            audit.finding(0, "dynamic symbols".into(), why);
            Vec::new()
        })
    }

    /// What no segment maps stands where it stood: programs that read their own file find it.
    fn outside_segments(&self, audit: &mut Audit) {
        let was = self.original.file;
        let mut ranges: Vec<(u64, u64)> = self.original.segments.iter().map(|s| (s.file_off, s.file_bytes)).collect();
        let elf_header = 0..HEADER_BYTES as u64;
        let others = self.original.debug.iter().chain([&elf_header, &self.original.id]);
        ranges.extend(others.map(|h| (h.start, h.end.saturating_sub(h.start))));
        ranges.push((was.len() as u64, 0));
        ranges.sort_unstable();
        let mut at = 0;
        for (off, bytes) in ranges {
            let off = off.min(was.len() as u64);
            if at < off {
                let range = at as usize..off as usize;
                let is = self.m.file.get(range.clone());
                let same = |is: &[u8]| was[range.clone()].iter().zip(is).position(|(a, b)| a != b);
                if let Some(k) = is.map_or(Some(0), same) {
                    let why = format!("byte {:#x} of the original's file was changed", range.start + k);
                    audit.finding(0, "outside the segments".into(), why);
                }
            }
            at = at.max(off.saturating_add(bytes));
        }
    }

    /// The build id is the one that follows from the original's.
    fn build_id(&self, audit: &mut Audit) {
        let (from, to) = (self.original.id.start as usize, self.original.id.end as usize);
        let Some(was) = self.original.file.get(from..to).filter(|id| !id.is_empty()) else { return };
        let is = self.m.file.get(from..to);
        if is.is_none() || is != notes::build_id(self.m, was).as_deref() {
            audit.finding(0, "notes".into(), "the build id does not follow from the new code and the original's");
        }
    }

    /// Outside of old code and the ELF header ([`crate::judge::file::headers`]) nothing has changed.
    pub(super) fn elsewhere(&self, audit: &mut Audit) {
        self.build_id(audit);
        if !self.m.file.ends_with(self.original.attached) {
            audit.finding(
                0,
                "end of the file".into(),
                "what is attached to the original is not at the end of the output",
            );
        }
        self.outside_segments(audit);
        let mut begins: Vec<u64> = self.map.values().copied().collect();
        begins.sort_unstable();
        let tags = self.longer_symbols(&begins, audit);
        // A segment without a part in the file has nothing to compare.
        for s in self.original.segments.iter().filter(|s| s.file_bytes > 0) {
            let (Some(was), Some(is)) =
                (self.original.bytes_at(s.va, s.file_bytes as usize), self.m.bytes_at(s.va, s.file_bytes as usize))
            else {
                audit.finding(s.va, "segment".into(), "the segment of the original is not in the output");
                continue;
            };
            let mut k = 0;
            while let Some(d) = was[k..].iter().zip(&is[k..]).position(|(a, b)| a != b) {
                let (va, off) = (s.va + (k + d) as u64, s.file_off + (k + d) as u64);
                k += d + 1;
                if let Some(exec) = self.original.section(va) {
                    k = (exec.va + exec.data.len() as u64 - s.va) as usize;
                    k = k.min(was.len());
                } else if off < HEADER_BYTES as u64 || self.original.id.contains(&off) {
                    // Judged elsewhere.
                } else if let Some(at) = tags.iter().find(|at| (**at..**at + 8).contains(&off)) {
                    k = ((at + 8 - s.file_off) as usize).min(was.len());
                } else if let Some(at) = self.leads_to_new_code(off).or_else(|| self.is_size_of_new_code(off, &begins))
                {
                    k = ((at + 8 - s.file_off) as usize).min(was.len());
                } else if !self.original.takes_back_features(off, was[k - 1], is[k - 1]) {
                    audit.finding(va, self.m.place(va), "data of the original was changed");
                    break;
                }
            }
        }
    }
}
