//! From addresses to instructions: a bit for each byte of code, set where an instruction of the main run starts, with running
//! counts. A sixth of the memory of a table of indices, and small enough for the cache.
//!
//! Input: sections with their bits, and what overlaps the main run. Output: the instruction that starts at an address, and how many start in front of one.

use crate::base::addresses::Vaddr;
use crate::decode::insn::InsnId;

/// Where the instructions of a module start.
#[derive(Debug, Default)]
pub struct AddressIndex {
    /// By rising address.
    sections: Vec<Section>,
    /// Instructions that overlap the main run, sorted.
    overlapping: Vec<(Vaddr, InsnId)>,
}

#[derive(Debug)]
struct Section {
    va: Vaddr,
    bytes: u64,
    bits: Vec<u64>,
    /// Main-run instructions before each word of `bits`, those of earlier sections included; one more for the end.
    before: Vec<u32>,
}

impl AddressIndex {
    /// Adds a section behind those added before; `bits`: which of its bytes begin instructions of the main run.
    pub fn add_section(&mut self, va: Vaddr, bytes: usize, bits: Vec<u64>) {
        let mut count = self.main();
        let mut before = Vec::with_capacity(bits.len() + 1);
        for word in &bits {
            before.push(count);
            count += word.count_ones();
        }
        before.push(count);
        self.sections.push(Section { va, bytes: bytes as u64, bits, before });
    }

    /// Adds the overlapping instructions.
    pub fn set_overlapping(&mut self, mut list: Vec<(Vaddr, InsnId)>) {
        list.sort();
        self.overlapping = list;
    }

    fn main(&self) -> u32 {
        self.sections.last().map_or(0, |s| *s.before.last().expect("one more than words"))
    }

    /// The instruction that starts at `va`.
    #[inline]
    pub fn at(&self, va: Vaddr) -> Option<InsnId> {
        let s = &self.sections[self.sections.partition_point(|s| s.va <= va).checked_sub(1)?];
        let at = va - s.va;
        if at >= s.bytes {
            return None;
        }
        let (word, bit) = ((at / 64) as usize, at % 64);
        if s.bits[word] >> bit & 1 != 0 {
            let below = s.bits[word] & ((1 << bit) - 1);
            return Some(InsnId(s.before[word] + below.count_ones()));
        }
        let i = self.overlapping.binary_search_by_key(&va, |o| o.0).ok()?;
        Some(self.overlapping[i].1)
    }

    /// How many instructions of the main run start before `va`.
    #[inline]
    pub fn main_before(&self, va: Vaddr) -> usize {
        let Some(i) = self.sections.partition_point(|s| s.va < va).checked_sub(1) else { return 0 };
        let s = &self.sections[i];
        let at = va - s.va;
        if at >= s.bytes {
            return *s.before.last().expect("one more than words") as usize;
        }
        let (word, bit) = ((at / 64) as usize, at % 64);
        (s.before[word] + (s.bits[word] & ((1 << bit) - 1)).count_ones()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_found_and_counted_across_sections() {
        let mut starts = AddressIndex::default();
        let first = [0usize, 3, 63, 64, 100];
        let second = [1usize, 2, 127];
        let bits = |starts: &[usize]| {
            let mut bits = vec![0u64; 2];
            starts.iter().for_each(|at| bits[at / 64] |= 1 << (at % 64));
            bits
        };
        starts.add_section(Vaddr(0x1000), 101, bits(&first));
        starts.add_section(Vaddr(0x2000), 128, bits(&second));
        starts.set_overlapping(vec![(Vaddr(0x2003), InsnId(9)), (Vaddr(0x1001), InsnId(8))]);
        let all: Vec<u64> =
            first.iter().map(|o| 0x1000 + *o as u64).chain(second.iter().map(|o| 0x2000 + *o as u64)).collect();
        for va in 0xff0..0x2100u64 {
            let expected = match all.iter().position(|a| *a == va) {
                Some(i) => Some(InsnId(i as u32)),
                None if va == 0x1001 => Some(InsnId(8)),
                None if va == 0x2003 => Some(InsnId(9)),
                None => None,
            };
            assert_eq!(starts.at(Vaddr(va)), expected, "{va:#x}");
            assert_eq!(starts.main_before(Vaddr(va)), all.iter().filter(|a| **a < va).count(), "{va:#x}");
        }
    }
}
