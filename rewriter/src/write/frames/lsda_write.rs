//! Writing LSDAs for new code.
//!
//! Input: a parsed [`Lsda`], and its call sites at new addresses. Output: the bytes of one new LSDA.
//!
//! Invariants: action records and exception specifications are copied byte for byte (they hold only offsets within
//! themselves and type indices); a type entry keeps its target, so only PC-relative ones change; call sites are sorted, as
//! personalities stop at the first that begins behind the address they look for.
//!
//! Source: Itanium C++ ABI "Exception Handling Tables" section 7; gcc `unwind-c.c`, `eh_personality.cc`.

use crate::base::addresses::Vaddr;
use crate::read::lsda::{CallSite, Lsda, text};
use crate::write::frames::cfi::{INDIRECT_PCREL4, PCREL4};
use gimli::{DwEhPe, EndianSlice, LittleEndian, Reader};
use std::collections::HashSet;

/// Longest exception specifications of one function, in bytes: far above any program's, so that damaged lists end.
const MAX_SPECIFICATION_BYTES: usize = 1 << 20;

/// What an LSDA holds besides call sites, cut to what the call sites can reach.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LsdaTables<'a> {
    pub actions: &'a [u8],
    pub types: Option<Types<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Types<'a> {
    pub encoding: DwEhPe,
    /// Entry 1 first.
    pub entries: Vec<TypeEntry>,
    /// What lies behind the table's base.
    pub specifications: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeEntry {
    /// Address of the type's object, or of the pointer to it.
    Target(Vaddr),
    /// A number that does not depend on where it stands; 0 catches everything.
    Number(u64),
}

impl<'a> Lsda<'a> {
    /// Follows the actions of all call sites to find how far each table reaches.
    pub(crate) fn tables(&self) -> Result<LsdaTables<'a>, String> {
        let mut reach = Reach { lsda: self, seen: HashSet::new(), actions: 0, types: 0, specifications: 0, read: 0 };
        for site in &self.call_sites {
            reach.chain(site.action)?;
        }
        let types = match self.types {
            None => None,
            Some((encoding, base)) => {
                let behind = usize::try_from(base).ok().and_then(|b| self.actions.get(b..));
                let specifications = behind.and_then(|b| b.get(..reach.specifications));
                Some(Types {
                    encoding,
                    entries: self.entries(encoding, base, reach.types)?,
                    // A table without entries may have its base anywhere.
                    specifications: specifications.unwrap_or(&[]),
                })
            }
        };
        Ok(LsdaTables { actions: &self.actions[..reach.actions], types })
    }

    fn entries(&self, encoding: DwEhPe, base: u64, count: u64) -> Result<Vec<TypeEntry>, String> {
        let mut entries = Vec::new();
        let bytes = entry_bytes(encoding)?;
        for i in 1..=count {
            let at = i.checked_mul(bytes).and_then(|b| base.checked_sub(b)).ok_or("a type index lies outside it")?;
            let raw = self.actions.get(at as usize..(at + bytes) as usize).ok_or("the type table is cut off")?;
            let mut r = EndianSlice::new(raw, LittleEndian);
            let value = match bytes {
                2 if encoding.format() == gimli::DW_EH_PE_sdata2 => r.read_i16().map(|v| v as u64),
                2 => r.read_u16().map(u64::from),
                4 if encoding.format() == gimli::DW_EH_PE_sdata4 => r.read_i32().map(|v| v as u64),
                4 => r.read_u32().map(u64::from),
                _ => r.read_u64(),
            }
            .map_err(text)?;
            let here = self.actions_at + at;
            entries.push(match encoding.application() {
                // An absolute entry of eight bytes may have a run-time relocation, which its copy would not get:
                // point at the old one.
                gimli::DW_EH_PE_absptr if bytes == 8 && !encoding.is_indirect() => TypeEntry::Target(here),
                gimli::DW_EH_PE_pcrel if value != 0 => TypeEntry::Target(here + value),
                gimli::DW_EH_PE_absptr | gimli::DW_EH_PE_pcrel | gimli::DW_EH_PE_textrel | gimli::DW_EH_PE_datarel => {
                    TypeEntry::Number(value)
                }
                _ => return Err(format!("type encoding {:#x}", encoding.0)),
            });
        }
        Ok(entries)
    }
}

/// Bytes of one type entry.
fn entry_bytes(encoding: DwEhPe) -> Result<u64, String> {
    match encoding.format() {
        gimli::DW_EH_PE_udata2 | gimli::DW_EH_PE_sdata2 => Ok(2),
        gimli::DW_EH_PE_udata4 | gimli::DW_EH_PE_sdata4 => Ok(4),
        gimli::DW_EH_PE_absptr | gimli::DW_EH_PE_udata8 | gimli::DW_EH_PE_sdata8 => Ok(8),
        _ => Err(format!("type encoding {:#x}", encoding.0)),
    }
}

struct Reach<'l, 'a> {
    lsda: &'l Lsda<'a>,
    /// Offsets of action records already followed.
    seen: HashSet<usize>,
    actions: usize,
    types: u64,
    specifications: usize,
    read: usize,
}

impl Reach<'_, '_> {
    /// Follows a chain of action records.
    fn chain(&mut self, action: u64) -> Result<(), String> {
        let Some(first) = action.checked_sub(1) else { return Ok(()) };
        let all = self.lsda.actions;
        let mut at = usize::try_from(first).map_err(|_| "an action lies outside its table")?;
        while self.seen.insert(at) {
            let mut r = EndianSlice::new(all.get(at..).ok_or("an action lies outside its table")?, LittleEndian);
            let whole = r;
            let filter = r.read_sleb128().map_err(text)?;
            let next_from = at + r.offset_from(whole);
            let next = r.read_sleb128().map_err(text)?;
            self.actions = self.actions.max(at + r.offset_from(whole));
            if filter > 0 {
                self.types = self.types.max(filter.unsigned_abs());
            } else if filter < 0 {
                self.specification(filter.unsigned_abs() - 1)?;
            }
            if next == 0 {
                break;
            }
            let target = i64::try_from(next_from).ok().and_then(|f| f.checked_add(next));
            at = target.and_then(|t| usize::try_from(t).ok()).ok_or("an action lies outside its table")?;
        }
        Ok(())
    }

    /// Reads the list of types at `offset` behind the base.
    fn specification(&mut self, offset: u64) -> Result<(), String> {
        let (_, base) = self.lsda.types.ok_or("an exception specification without a type table")?;
        let at = base.checked_add(offset).and_then(|a| usize::try_from(a).ok());
        let list = at.and_then(|a| self.lsda.actions.get(a..)).ok_or("an exception specification is cut off")?;
        let mut r = EndianSlice::new(list, LittleEndian);
        let whole = r;
        loop {
            let index = r.read_uleb128().map_err(text)?;
            if index == 0 {
                break;
            }
            self.types = self.types.max(index);
        }
        let bytes = r.offset_from(whole);
        self.read += bytes;
        if self.read > MAX_SPECIFICATION_BYTES {
            return Err("its exception specifications have no end".to_string());
        }
        self.specifications = self.specifications.max(offset as usize + bytes);
        Ok(())
    }
}

/// Appends an LSDA to `out`, which begins at address `base`, and returns its address. `function` is the first address of
/// the new code; `sites` are sorted.
pub(super) fn write(
    out: &mut Vec<u8>,
    base: Vaddr,
    function: Vaddr,
    sites: &[CallSite],
    tables: &LsdaTables,
) -> Result<Vaddr, String> {
    pad(out, base, 4);
    let at = base + out.len() as u64;
    // An offset of 0 means "no landing pad", so one at or before the function's start needs a base of its own.
    let lowest = sites.iter().filter_map(|s| s.pad).min();
    let pads_from = match lowest {
        Some(pad) if pad <= function => {
            let from = Vaddr(pad.0 - 1);
            out.push(PCREL4.0);
            put_relative(out, base, from, 4)?;
            from
        }
        _ => {
            out.push(gimli::DW_EH_PE_omit.0);
            function
        }
    };
    let mut table = Vec::new();
    for site in sites {
        put_uleb(&mut table, site.start - function);
        put_uleb(&mut table, site.end - site.start);
        put_uleb(&mut table, site.pad.map_or(0, |p| p - pads_from));
        put_uleb(&mut table, site.action);
    }
    let mut rest = vec![gimli::DW_EH_PE_uleb128.0];
    put_uleb(&mut rest, table.len() as u64);
    rest.extend(table);
    rest.extend(tables.actions);
    let Some(types) = &tables.types else {
        out.push(gimli::DW_EH_PE_omit.0);
        out.extend(rest);
        return Ok(at);
    };
    let by_slot = types.encoding == gimli::DW_EH_PE_absptr
        || [gimli::DW_EH_PE_udata8, gimli::DW_EH_PE_sdata8].contains(&types.encoding);
    let encoding = if by_slot { INDIRECT_PCREL4 } else { types.encoding };
    let bytes = entry_bytes(encoding)? as usize;
    out.push(encoding.0);
    // The distance counts from behind itself to the base, with the padding that aligns the table: its own length matters.
    let unpadded = rest.len() + types.entries.len() * bytes;
    let distance = |length: usize| {
        let table_at = base.0 as usize + out.len() + length + rest.len();
        unpadded + table_at.next_multiple_of(bytes) - table_at
    };
    let length =
        (1..10).find(|&n| uleb_bytes(distance(n) as u64) <= n).expect("a uleb128 of a usize has at most ten bytes");
    put_uleb_padded(out, distance(length) as u64, length);
    out.extend(rest);
    pad(out, base, bytes);
    for entry in types.entries.iter().rev() {
        match entry {
            TypeEntry::Target(to) => put_relative(out, base, *to, bytes)?,
            TypeEntry::Number(n) => out.extend(&n.to_le_bytes()[..bytes]),
        }
    }
    out.extend(types.specifications);
    Ok(at)
}

fn pad(out: &mut Vec<u8>, base: Vaddr, to: usize) {
    while !(base.0 + out.len() as u64).is_multiple_of(to as u64) {
        out.push(0);
    }
}

/// Appends the distance from here to `to`.
fn put_relative(out: &mut Vec<u8>, base: Vaddr, to: Vaddr, bytes: usize) -> Result<(), String> {
    let distance = (to - (base + out.len() as u64)) as i64;
    let shift = 64 - 8 * bytes as u32;
    if (distance << shift) >> shift != distance {
        return Err(format!("{to} is out of reach of an entry of {bytes} bytes"));
    }
    out.extend(&distance.to_le_bytes()[..bytes]);
    Ok(())
}

fn uleb_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

fn put_uleb(out: &mut Vec<u8>, value: u64) {
    put_uleb_padded(out, value, uleb_bytes(value));
}

/// A uleb128 of exactly `bytes` bytes.
fn put_uleb_padded(out: &mut Vec<u8>, mut value: u64, bytes: usize) {
    for _ in 1..bytes {
        out.push(value as u8 & 0x7f | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
