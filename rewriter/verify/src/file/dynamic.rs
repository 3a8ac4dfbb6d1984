//! What the dynamic loader reads: the dynamic section, symbols and relocations, found as it finds them.
//!
//! Input: where PT_DYNAMIC leads, and the bytes that PT_LOAD maps. Output: [`Dynamic`]. Section headers have no say, so a file without them reads the same.
//! **Invariant**: each table that a tag names is read whole, or the reading fails.
//! Source: gABI chapter 5 ("Dynamic Section", "Hash Table"), DT_GNU_HASH as in glibc's `setup_hash`.

use crate::file::memory::number;
use object::elf;

const SYMBOL_BYTES: usize = 24;
const RELA_BYTES: usize = 24;

/// A relocation with addend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    pub place: u64,
    pub kind: u32,
    /// 0: none.
    pub symbol: u32,
    pub addend: u64,
}

/// A dynamic symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicSymbol<'a> {
    pub name: &'a str,
    pub value: u64,
    pub bytes: u64,
    /// STT_*.
    pub kind: u8,
    pub defined: bool,
    /// Others can ask for it: a hash table leads from its name to it, or a relocation names it.
    pub is_asked_for: bool,
}

impl DynamicSymbol<'_> {
    /// Names code, by which others may know it.
    pub fn is_export(&self) -> bool {
        self.is_function() && self.is_asked_for
    }

    /// Names code.
    pub fn is_function(&self) -> bool {
        self.defined && matches!(self.kind, 2 | 10)
    }

    /// Names data.
    pub fn is_object(&self) -> bool {
        self.defined && self.kind == 1
    }
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Dynamic<'a> {
    /// Tags and their values, as far as the loader reads: up to DT_NULL.
    pub tags: Vec<(u64, u64)>,
    pub symbols: Vec<DynamicSymbol<'a>>,
    pub relocations: Vec<Relocation>,
    /// Places of relative relocations in the compact form.
    pub relr: Vec<u64>,
}

impl<'a> Dynamic<'a> {
    /// Reads the dynamic section at `va`, `bytes` long. `at` finds mapped bytes.
    ///
    /// # Errors
    /// What does not lie in the file.
    pub fn read(va: u64, bytes: u64, at: &dyn Fn(u64, usize) -> Option<&'a [u8]>) -> Result<Dynamic<'a>, String> {
        let part = |va: u64, bytes: u64, what: &str| {
            let n = usize::try_from(bytes).ok();
            n.and_then(|n| if n == 0 { Some(&[][..]) } else { at(va, n) })
                .ok_or_else(|| format!("{what} at {va:#x} is not in the file"))
        };
        let mut d = Dynamic::default();
        let section = part(va, bytes, "the dynamic section")?;
        let tags = section.chunks_exact(16).map(|c| (number(&c[..8]), number(&c[8..])));
        d.tags = tags.take_while(|tag| tag.0 != 0).collect();
        let rela = d.value(elf::DT_RELA.0).map(|va| (va, d.value(elf::DT_RELASZ.0).unwrap_or(0)));
        let plt = d.value(elf::DT_JMPREL.0).map(|va| (va, d.value(elf::DT_PLTRELSZ.0).unwrap_or(0)));
        for (va, bytes) in [rela, plt].into_iter().flatten() {
            for c in part(va, bytes, "a table of relocations")?.chunks_exact(RELA_BYTES) {
                let (info, addend) = (number(&c[8..16]), number(&c[16..]));
                let (kind, symbol) = (info as u32, (info >> 32) as u32);
                d.relocations.push(Relocation { place: number(&c[..8]), kind, symbol, addend });
            }
        }
        if let Some(va) = d.value(elf::DT_RELR.0) {
            d.relr = relr_places(part(va, d.value(elf::DT_RELRSZ.0).unwrap_or(0), "a table of relocations")?);
        }
        d.symbols = d.read_symbols(at)?;
        Ok(d)
    }

    /// The value of the last tag of this kind, which is the one that loaders take.
    pub fn value(&self, tag: i64) -> Option<u64> {
        self.tags.iter().rev().find(|t| t.0 == tag as u64).map(|t| t.1)
    }

    /// The symbol that a relocation names.
    pub fn symbol(&self, r: &Relocation) -> Option<&DynamicSymbol<'a>> {
        self.symbols.get(r.symbol as usize).filter(|_| r.symbol != 0)
    }

    fn read_symbols(&self, at: &dyn Fn(u64, usize) -> Option<&'a [u8]>) -> Result<Vec<DynamicSymbol<'a>>, String> {
        let (Some(table), Some(strings)) = (self.value(elf::DT_SYMTAB.0), self.value(elf::DT_STRTAB.0)) else {
            return Ok(Vec::new());
        };
        let names = at(strings, self.value(elf::DT_STRSZ.0).unwrap_or(0) as usize).unwrap_or(&[]);
        let named = self.relocations.iter().map(|r| r.symbol as usize + 1).max().unwrap_or(0);
        let count = named.max(self.hashed(at).ok_or("a hash table of symbols is not in the file")?);
        let bytes = count.checked_mul(SYMBOL_BYTES).ok_or("too many symbols")?;
        let Some(rows) = at(table, bytes).or_else(|| (bytes == 0).then_some(&[])) else {
            return Err(format!("the table of symbols at {table:#x} is not in the file"));
        };
        let symbol = |c: &[u8]| {
            let name = names.get(number(&c[..4]) as usize..).unwrap_or(&[]);
            let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
            DynamicSymbol {
                name: std::str::from_utf8(&name[..end]).unwrap_or("?"),
                value: number(&c[8..16]),
                bytes: number(&c[16..24]),
                kind: c[4] & 15,
                defined: number(&c[6..8]) != 0,
                is_asked_for: false,
            }
        };
        let mut symbols: Vec<DynamicSymbol> = rows.chunks_exact(SYMBOL_BYTES).map(symbol).collect();
        for k in self.relocations.iter().map(|r| r.symbol as usize).chain(self.found_by_name(&symbols, at)) {
            if let Some(symbol) = symbols.get_mut(k) {
                symbol.is_asked_for = true;
            }
        }
        Ok(symbols)
    }

    /// The numbers of those to which a hash table leads from their names.
    fn found_by_name(&self, symbols: &[DynamicSymbol], at: &dyn Fn(u64, usize) -> Option<&'a [u8]>) -> Vec<usize> {
        let word = |va: u64| at(va, 4).map(|b| number(b) as u32);
        let mut found = Vec::new();
        if let Some(va) = self.value(elf::DT_HASH.0) {
            let buckets = u64::from(word(va).unwrap_or(0));
            let entry = |k: u64| word(va.saturating_add(8 + 4 * k));
            for head in 0..buckets {
                let next = |k: u64| entry(k).unwrap_or(0) as usize;
                // The table ends with the file.
                let Some(mut k) = entry(head).map(|k| k as usize) else { break };
                // A chain has no more symbols than there are.
                for _ in 0..symbols.len() {
                    if k == 0 {
                        break;
                    }
                    found.push(k);
                    k = next(buckets + k as u64);
                }
            }
        }
        if let Some(va) = self.value(elf::DT_GNU_HASH.0) {
            let [buckets, first, filter] =
                [0, 4, 8].map(|k| va.checked_add(k).and_then(word).map_or(0, |n| n as usize));
            let chains = va.saturating_add((16 + 8 * filter + 4 * buckets) as u64);
            let own = |k: &usize| {
                let word = word(chains.saturating_add(4 * (*k - first) as u64));
                word.is_some_and(|word| word >> 1 == gnu_hash(symbols[*k].name) >> 1)
            };
            found.extend((first..symbols.len()).filter(own));
        }
        found
    }

    /// How many symbols the hash tables speak of.
    fn hashed(&self, at: &dyn Fn(u64, usize) -> Option<&'a [u8]>) -> Option<usize> {
        let word = |va: u64| at(va, 4).map(|b| number(b) as u32);
        let mut count = 0;
        if let Some(va) = self.value(elf::DT_HASH.0) {
            count = word(va.checked_add(4)?)? as usize;
        }
        if let Some(va) = self.value(elf::DT_GNU_HASH.0) {
            let [buckets, first, filter] = [0, 4, 8].map(|k| va.checked_add(k).and_then(word));
            let (buckets, first, filter) = (buckets?, first?, filter?);
            let heads = va.checked_add(16 + 8 * u64::from(filter))?;
            let last = at(heads, (buckets as usize).checked_mul(4)?)
                .or_else(|| (buckets == 0).then_some(&[]))?
                .chunks_exact(4)
                .map(|b| number(b) as u32)
                .max();
            count = count.max(first as usize);
            if let Some(mut last) = last.filter(|last| *last >= first && *last != 0) {
                let chains = heads + 4 * u64::from(buckets);
                // The lowest bit ends a chain.
                while word(chains.checked_add(4 * u64::from(last - first))?)? & 1 == 0 {
                    last = last.checked_add(1)?;
                }
                count = count.max(last as usize + 1);
            }
        }
        Some(count)
    }
}

/// The hash of a name in DT_GNU_HASH.
pub fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |h: u32, b| h.wrapping_mul(33).wrapping_add(u32::from(b)))
}

/// The places that a table of relative relocations names (gABI, "Relative Relocation Table").
pub fn relr_places(table: &[u8]) -> Vec<u64> {
    let mut places = Vec::new();
    let mut next = 0u64;
    for word in table.chunks_exact(8).map(number) {
        if word & 1 == 0 {
            places.push(word);
            next = word.wrapping_add(8);
        } else {
            places.extend((0..63).filter(|bit| word >> (bit + 1) & 1 == 1).map(|bit| next.wrapping_add(8 * bit)));
            next = next.wrapping_add(63 * 8);
        }
    }
    places
}
