//! The section's format: written by the rewriter, read by `blizzard overhead`.
//!
//! Input: blocks in the order of their counters. Output: the section; and back again.
//!
//! ```text
//! magic "BLZBLKT1" | path: length, bytes | functions: count, then each: start (difference) | loops: count, then each: head (difference), length
//!   | blocks: count, then each: start (difference), bytes, instructions, sites: count, then each: offset, class, inserted
//! ```
//!
//! Numbers are LEB128, differences signed. Invariant: reading what was written gives it back; anything else is an error, never a panic.

use crate::base::error::{Error, Result};
use crate::plan::decision::DecisionClass;
use gimli::LittleEndian;
use gimli::{EndianSlice, Reader as _, leb128::write};

const MAGIC: &[u8; 8] = b"BLZBLKT1";

/// An access or a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedSite {
    /// Address of the instruction in the input.
    pub at: u64,
    pub class: DecisionClass,
    /// Instructions inserted in front of it.
    pub inserted: u32,
}

/// A block with a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedBlock {
    pub start: u64,
    /// Behind its last instruction.
    pub end: u64,
    /// Instructions of the program.
    pub insns: u32,
    sites: (u32, u32),
}

/// The whole section.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// The file that was rewritten.
    pub path: String,
    /// Where functions begin, ascending.
    pub functions: Vec<u64>,
    /// Start and end of each loop, by start.
    pub loops: Vec<(u64, u64)>,
    pub blocks: Vec<CountedBlock>,
    sites: Vec<CountedSite>,
}

impl BlockTable {
    /// What a block contains, in order.
    pub fn sites(&self, block: &CountedBlock) -> &[CountedSite] {
        &self.sites[block.sites.0 as usize..block.sites.1 as usize]
    }

    /// Reads a section.
    ///
    /// # Errors
    /// It is damaged.
    pub fn parse(bytes: &[u8]) -> Result<BlockTable> {
        read(bytes)
            .ok_or_else(|| Error::new("the table of counted blocks is damaged").help("rewrite the program again"))
    }
}

fn read(bytes: &[u8]) -> Option<BlockTable> {
    let mut at = EndianSlice::new(bytes.strip_prefix(MAGIC)?, LittleEndian);
    let mut table = BlockTable::default();
    let bytes = number(&mut at)? as usize;
    table.path = at.split(bytes).ok()?.to_string().ok()?.to_owned();
    let mut function = 0u64;
    for _ in 0..number(&mut at)? {
        function = function.wrapping_add_signed(at.read_sleb128().ok()?);
        table.functions.push(function);
    }
    let mut head = 0u64;
    for _ in 0..number(&mut at)? {
        head = head.wrapping_add_signed(at.read_sleb128().ok()?);
        table.loops.push((head, head.wrapping_add(number(&mut at)?)));
    }
    let mut start = 0u64;
    for _ in 0..number(&mut at)? {
        start = start.wrapping_add_signed(at.read_sleb128().ok()?);
        let end = start.wrapping_add(number(&mut at)?);
        let insns = u32::try_from(number(&mut at)?).ok()?;
        let from = table.sites.len() as u32;
        for _ in 0..number(&mut at)? {
            let offset = at.read_sleb128().ok()?;
            let class = *DecisionClass::ALL.get(usize::from(at.read_u8().ok()?))?;
            let inserted = u32::try_from(number(&mut at)?).ok()?;
            table.sites.push(CountedSite { at: start.wrapping_add_signed(offset), class, inserted });
        }
        table.blocks.push(CountedBlock { start, end, insns, sites: (from, table.sites.len() as u32) });
    }
    at.is_empty().then_some(table)
}

fn number(at: &mut EndianSlice<LittleEndian>) -> Option<u64> {
    at.read_uleb128().ok()
}

/// Writes a section.
pub struct BlockTableWriter {
    out: Vec<u8>,
    blocks: Vec<u8>,
    count: u64,
    last: u64,
}

impl BlockTableWriter {
    /// Begins one.
    pub fn new(
        path: &str,
        functions: impl ExactSizeIterator<Item = u64>,
        loops: impl ExactSizeIterator<Item = (u64, u64)>,
    ) -> Self {
        let mut out = MAGIC.to_vec();
        unsigned(&mut out, path.len() as u64);
        out.extend(path.as_bytes());
        unsigned(&mut out, functions.len() as u64);
        let mut last = 0;
        for start in functions {
            signed(&mut out, start.wrapping_sub(last) as i64);
            last = start;
        }
        unsigned(&mut out, loops.len() as u64);
        let mut last = 0;
        for (head, end) in loops {
            signed(&mut out, head.wrapping_sub(last) as i64);
            unsigned(&mut out, end.wrapping_sub(head));
            last = head;
        }
        BlockTableWriter { out, blocks: Vec::new(), count: 0, last: 0 }
    }

    /// Adds a block with its sites: address, class, inserted instructions.
    pub fn block(
        &mut self,
        start: u64,
        end: u64,
        insns: u32,
        sites: impl ExactSizeIterator<Item = (u64, DecisionClass, u32)>,
    ) {
        let out = &mut self.blocks;
        signed(out, start.wrapping_sub(self.last) as i64);
        unsigned(out, end.wrapping_sub(start));
        unsigned(out, insns.into());
        unsigned(out, sites.len() as u64);
        for (at, class, inserted) in sites {
            signed(out, at.wrapping_sub(start) as i64);
            out.push(class as u8);
            unsigned(out, inserted.into());
        }
        self.last = start;
        self.count += 1;
    }

    /// The section's bytes.
    pub fn finish(mut self) -> Vec<u8> {
        unsigned(&mut self.out, self.count);
        self.out.extend(self.blocks);
        self.out
    }
}

fn unsigned(out: &mut Vec<u8>, value: u64) {
    write::unsigned(out, value).expect("writing to memory cannot fail");
}

fn signed(out: &mut Vec<u8>, value: i64) {
    write::signed(out, value).expect("writing to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut w =
            BlockTableWriter::new("/bin/x", [0x1010].into_iter(), [(0x1010, 0x1040), (0x1020, 0x1030)].into_iter());
        w.block(0x1010, 0x1020, 3, [(0x1010, DecisionClass::Poll, 2), (0x1014, DecisionClass::Load, 4)].into_iter());
        // Behind everything else, but lower: an instruction that overlaps others.
        w.block(0x1001, 0x1010, 200, [].into_iter());
        w.block(0x1020, 0x1040, 1, [(0x1000, DecisionClass::Apart, 300)].into_iter());
        w.finish()
    }

    #[test]
    fn what_was_written_is_read_back() {
        let table = BlockTable::parse(&sample()).unwrap();
        assert_eq!((table.path.as_str(), table.functions.as_slice()), ("/bin/x", &[0x1010][..]));
        assert_eq!(table.loops, [(0x1010, 0x1040), (0x1020, 0x1030)]);
        let shape: Vec<_> = table.blocks.iter().map(|b| (b.start, b.end, b.insns, table.sites(b).len())).collect();
        assert_eq!(shape, [(0x1010, 0x1020, 3, 2), (0x1001, 0x1010, 200, 0), (0x1020, 0x1040, 1, 1)]);
        assert_eq!(
            table.sites(&table.blocks[0])[1],
            CountedSite { at: 0x1014, class: DecisionClass::Load, inserted: 4 }
        );
        assert_eq!(
            table.sites(&table.blocks[2])[0],
            CountedSite { at: 0x1000, class: DecisionClass::Apart, inserted: 300 }
        );
    }

    #[test]
    fn each_class_has_its_own_number() {
        for (k, class) in DecisionClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, k);
        }
    }

    #[test]
    fn damage_is_an_error() {
        let whole = sample();
        for n in 0..whole.len() {
            assert!(BlockTable::parse(&whole[..n]).is_err(), "cut at {n}");
        }
        let mut other = whole.clone();
        other.push(0);
        assert!(BlockTable::parse(&other).is_err());
        let class = whole.iter().rposition(|&b| b == DecisionClass::Apart as u8).unwrap();
        other = whole;
        other[class] = 99;
        assert!(BlockTable::parse(&other).is_err());
    }
}
