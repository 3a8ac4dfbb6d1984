//! Dynamic symbols of code that has moved, so that `dladdr` and `backtrace_symbols` name return addresses in it.
//!
//! Purpose: a function that keeps its old address for pointers ([`crate::write::new_addresses`]) has a dynamic symbol with that address, but runs elsewhere.
//! A function with a full version runs in two places.
//! Input: the dynamic symbol table and its hash tables. Output: longer copies of them, in the new read-only segment, and new values of DT_SYMTAB, DT_GNU_HASH
//! and DT_HASH. At the table's end each function has a symbol more of the same name for each place that its own does not cover, with the address and size
//! of the code there: first the new code, then the full version. In a DT_GNU_HASH they belong to the last chain that there is.
//!
//! **Invariants**: who asks for a name gets what the input's tables gave: DT_HASH has no chain with the new symbols, and in DT_GNU_HASH their words are the
//! complements of their names' hashes, so that none is its own name's. Symbols keep their numbers. The section `.dynsym` is the input's.
//! Source: gABI chapter 5 ("Hash Table"), glibc's `determine_info` (all of DT_GNU_HASH's chains, else as many as DT_HASH says) and musl's `dladdr`.

use crate::base::addresses::{FileOff, Vaddr};
use crate::decode::insns::Insns;
use crate::read::exports::{SIZE_AT, SYM_BYTES, VALUE_AT};
use crate::read::image::Image;
use crate::write::new_addresses::NewAddresses;
use crate::write::new_code::layout::PlacedCode;
use crate::write::output::Output;
use crate::write::symbols::{full_version, moved};
use crate::write::tables::ReadOnly;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, STT_FUNC, Sym64};
use object::pod;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

/// Name of the output section that holds the longer table.
pub(super) const SECTION: &str = ".blizzard.dynsym";
/// Bytes of a tag in the dynamic section; the value is the second half.
const TAG_BYTES: usize = 16;
/// Bytes of an `Elf64_Rela`; the number of its symbol is the fourth word.
const RELA_BYTES: usize = 24;

/// The longer tables.
pub(super) struct Longer {
    symbols: Vec<u8>,
    gnu: Option<Vec<u8>>,
    sysv: Option<Vec<u8>>,
    /// Where in the file the values of DT_SYMTAB, DT_GNU_HASH and DT_HASH stand.
    tags: [Option<FileOff>; 3],
}

fn half(table: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*table.get(at..)?.first_chunk()?))
}

/// The hash of a name in DT_GNU_HASH.
fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |h: u32, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)))
}

/// The hash table at the beginning of `bytes`, and how many symbols it speaks of. None: it has no chain.
fn gnu_table(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let [buckets, first, filter] = [0, 4, 8].map(|at| half(bytes, at).map(|n| n as usize));
    let (buckets, first) = (buckets?, first?);
    let heads = filter?.checked_mul(8)?.checked_add(16)?;
    let chains = buckets.checked_mul(4)?.checked_add(heads)?;
    let head = bytes.get(heads..chains)?.chunks_exact(4).filter_map(|word| half(word, 0)).max()? as usize;
    // The lowest bit ends a chain.
    let mut at = chains + 4 * head.checked_sub(first)?;
    while half(bytes, at)? & 1 == 0 {
        at += 4;
    }
    Some((&bytes[..at + 4], first + (at + 4 - chains) / 4))
}

impl Longer {
    /// The tables, with a symbol more for each function that has moved and whose symbol has not, and for each full version. None: there are none, or a table is damaged.
    pub(super) fn new(image: &Image, insns: &Insns, placed: &PlacedCode, direct: &NewAddresses) -> Option<Longer> {
        let data = image.data;
        let header = FileHeader64::<LE>::parse(data).ok()?;
        let segments = header.program_headers(LE, data).ok()?;
        let dynamic = segments.iter().find(|p| p.p_type(LE) == elf::PT_DYNAMIC)?;
        let from = dynamic.p_offset(LE);
        let all = dynamic.dynamic(LE, data).ok()??;
        let all = &all[..all.iter().position(|d| d.d_tag(LE) == elf::DT_NULL)?];
        // The last one of a kind is the one that loaders take.
        let tag = |wanted| {
            let k = all.iter().rposition(|d| d.d_tag(LE) == wanted)?;
            Some((FileOff(from + (k * TAG_BYTES + 8) as u64), Vaddr(all[k].d_val(LE))))
        };
        let bytes = |va: Vaddr| image.bytes_at(va, usize::MAX);
        let [symtab, gnu, sysv] = [elf::DT_SYMTAB, elf::DT_GNU_HASH, elf::DT_HASH].map(tag);
        let gnu_table = gnu.map(|(_, va)| gnu_table(bytes(va)?));
        let sysv_table = sysv.map(|(_, va)| {
            let table = bytes(va)?;
            let [buckets, count] = [half(table, 0)?, half(table, 4)?].map(|n| n as usize);
            Some((table.get(..buckets.checked_add(count)?.checked_add(2)?.checked_mul(4)?)?, count))
        });
        // A relocation may name a symbol that no hash table speaks of.
        let relocations = [(elf::DT_RELA, elf::DT_RELASZ), (elf::DT_JMPREL, elf::DT_PLTRELSZ)];
        let relocations = relocations.iter().filter_map(|(at, size)| {
            let bytes = tag(*size)?.1.0;
            image.bytes_at(tag(*at)?.1, usize::try_from(bytes).ok()?)
        });
        let named = relocations.flat_map(|table| table.chunks_exact(RELA_BYTES)).filter_map(|r| half(r, 12)).max();
        let counts = [&gnu_table, &sysv_table].map(|t| t.map(|t| t.map_or(0, |t| t.1)));
        let count = counts[0].or(counts[1])?;
        if counts.iter().flatten().any(|other| *other != count) || named.is_some_and(|named| named as usize >= count) {
            return None;
        }
        let old = bytes(symtab?.1)?.get(..count.checked_mul(SYM_BYTES)?)?;
        let old_at = image.offset_of(symtab?.1)?;
        let names = bytes(tag(elf::DT_STRTAB)?.1)?;

        let mut symbols = old.to_vec();
        direct.write_into(&mut symbols, old_at, image, insns, placed);
        let mut words = Vec::new();
        for k in 0..count {
            let at = k * SYM_BYTES;
            let (s, _) = pod::from_bytes::<Sym64<LE>>(&old[at..at + SYM_BYTES]).ok()?;
            let (va, bytes) = (Vaddr(s.st_value.get(LE)), s.st_size.get(LE));
            let is_function = s.st_type() == STT_FUNC && s.st_shndx.get(LE) != elf::SHN_UNDEF;
            if !is_function || bytes == 0 {
                continue;
            }
            let name = names.get(s.st_name.get(LE) as usize..).and_then(|name| name.split(|b| *b == 0).next());
            let Some(name) = name else { continue };
            let keeps = symbols[at + VALUE_AT..at + SYM_BYTES] == old[at + VALUE_AT..at + SYM_BYTES];
            let plain = if keeps { moved(insns, placed, va, bytes) } else { None };
            let full = full_version(insns, placed, va, bytes);
            for (new, new_bytes) in plain.into_iter().chain(full).filter(|m| m.1 > 0) {
                let mut entry = old[at..at + SYM_BYTES].to_vec();
                entry[VALUE_AT..SIZE_AT].copy_from_slice(&new.0.to_le_bytes());
                entry[SIZE_AT..].copy_from_slice(&new_bytes.to_le_bytes());
                symbols.extend(entry);
                words.push(!gnu_hash(name) & !1);
            }
        }
        *words.last_mut()? |= 1;
        let longer_gnu = |(table, _): (&[u8], usize)| {
            let mut table = table.to_vec();
            let last = table.len() - 4;
            table[last] &= !1;
            table.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            table
        };
        let longer_sysv = |(table, _): (&[u8], usize)| {
            let mut table = table.to_vec();
            table[4..8].copy_from_slice(&((count + words.len()) as u32).to_le_bytes());
            table.resize(table.len() + 4 * words.len(), 0);
            table
        };
        Some(Longer {
            symbols,
            gnu: gnu_table.flatten().map(longer_gnu),
            sysv: sysv_table.flatten().map(longer_sysv),
            tags: [symtab, gnu, sysv].map(|t| t.map(|t| t.0)),
        })
    }

    /// Puts them into the read-only segment; where the symbols are, and the new values of tags and where these stand.
    pub(super) fn place(&self, ro: &mut ReadOnly) -> ((Vaddr, u64), Vec<(FileOff, Vaddr)>) {
        let tables = [Some(&self.symbols), self.gnu.as_ref(), self.sysv.as_ref()];
        let placed = self.tags.iter().zip(tables).filter_map(|(at, table)| Some(((*at)?, ro.push(8, table?))));
        let tags: Vec<(FileOff, Vaddr)> = placed.collect();
        ((tags[0].1, self.symbols.len() as u64), tags)
    }
}

/// Lets the dynamic section lead to the longer tables.
pub(super) fn lead_to(file: &mut Output, tags: &[(FileOff, Vaddr)]) {
    for (at, va) in tags {
        file.patch(at.0, &va.0.to_le_bytes());
    }
}
