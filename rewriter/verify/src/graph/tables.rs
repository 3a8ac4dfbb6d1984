//! The new jump tables and the jumps that use them, found in the output alone.
//!
//! Input: module, decoded text, sites, places that control may enter from outside. Output: [`JumpTables`]. A jump's target is traced back
//! through the instructions that form it; a table is known when its address, and what is added to its entries, are the same
//! constants on every way to the jump. Entries are absolute, or relative to a constant. Ways through tables count: all tables
//! are recognised anew with the edges of all until nothing changes. What no known way leads to has no say.
//!
//! **Invariant:** from a table's start to the next table's, every entry leads to an instruction, or to an old address that holds none; every byte of
//! `.blizzard.rodata` is part of a table, of a gather descriptor that a check uses, or zero in front of either.
//! So an entry that was changed is found even when nobody knows how many of them are read.

use crate::decode::decoder::Code;
use crate::decode::effects::{AccessKind, Flow, Touch};
use crate::decode::insn::{ADDR32, NONE, RIP, WIDE, through_constant};
use crate::file::module::Module;
use crate::graph::returns::Returns;
use crate::graph::trace::Finder;
use crate::sites::site::{Sites, get};
use foldhash::{HashMap, HashMapExt};
use std::collections::BTreeMap;
use std::ops::Range;

/// Most definitions that one value is traced through.
const DEPTH: u32 = 24;

/// One jump table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JumpTable {
    pub va: u64,
    pub form: EntryForm,
    pub targets: Vec<u64>,
}

/// All tables, and the jumps through them.
#[derive(Debug, Default)]
pub struct JumpTables {
    pub list: Vec<JumpTable>,
    /// Table by the index of the jump, sorted.
    pub by_jump: BTreeMap<usize, usize>,
    /// The instructions that read tables, and which.
    pub reads: Vec<(usize, usize)>,
    /// By such an instruction: a number that its index is proven to be below.
    pub bounds: HashMap<usize, u64>,
    /// What does not fit, with its address.
    pub problems: Vec<(u64, String)>,
}

/// How entries are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryForm {
    /// Four bytes, signed, relative to an address.
    Relative(u64),
    /// Eight bytes, relative to an address.
    Relative64(u64),
    /// Eight bytes.
    Absolute,
}

impl EntryForm {
    /// Bytes of an entry.
    pub fn width(self) -> usize {
        match self {
            EntryForm::Relative(_) => 4,
            EntryForm::Relative64(_) | EntryForm::Absolute => 8,
        }
    }

    /// What entries are relative to.
    pub fn base(self) -> Option<u64> {
        match self {
            EntryForm::Relative(base) | EntryForm::Relative64(base) => Some(base),
            EntryForm::Absolute => None,
        }
    }

    /// Where an entry leads.
    pub fn target(self, entry: &[u8]) -> u64 {
        let word = |c: &[u8]| u32::from_le_bytes([c[0], c[1], c[2], c[3]]);
        let long = |c: &[u8]| u64::from(word(c)) | u64::from(word(&c[4..])) << 32;
        match self {
            EntryForm::Relative(base) => base.wrapping_add(word(entry) as i32 as u64),
            EntryForm::Relative64(base) => base.wrapping_add(long(entry)),
            EntryForm::Absolute => long(entry),
        }
    }
}

/// Where tables of the original end at the latest. An entry is relative to its table's old address, and one word cannot be an offset from two
/// addresses: so what is read relative to a later one begins there.
#[derive(Debug)]
pub struct TableEnds(Vec<u64>);

impl TableEnds {
    pub fn new(tables: &[JumpTable]) -> TableEnds {
        let mut bases: Vec<u64> = tables.iter().filter_map(|t| t.form.base()).collect();
        bases.sort_unstable();
        bases.dedup();
        TableEnds(bases)
    }

    /// Most entries of a table of that form.
    pub fn of(&self, form: EntryForm) -> Option<u64> {
        let (base, width) = (form.base()?, form.width() as u64);
        let behind = self.0.partition_point(|b| *b <= base);
        self.0[behind..].iter().map(|b| b - base).find(|bytes| bytes % width == 0).map(|bytes| bytes / width)
    }
}

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Val {
    Const(u64),
    /// Four bytes of a table, zero-extended, or sign-extended.
    Entry32 {
        read: Read,
        signed: bool,
    },
    /// Eight bytes of a table.
    Entry64(Read),
    /// A sum of an entry and a constant.
    Target(Read, u64),
    /// The same of an entry of eight bytes.
    Target64(Read, u64),
}

/// A read of a table: the table's address and the instruction.
type Read = (u64, usize);

/// A table a jump may use: address, form, and the instruction that reads it.
type Found = (u64, EntryForm, usize);

/// Finds them. `entries` are addresses that control may enter from outside; `descriptors` the gather descriptors in use; `apart`: how far behind the table
/// that an instruction reads another one of the same size stands, which its full version reads.
pub fn find(
    m: &Module,
    text: &Code,
    sites: &Sites,
    returns: &Returns,
    entries: &[u64],
    descriptors: &[u64],
    table_distance: &dyn Fn(usize) -> Option<u64>,
) -> JumpTables {
    let mut tables = JumpTables::default();
    let Some(ro) = &m.rodata else { return tables };
    let trap_map = m.trap_map_range();
    let inside = |va: u64| va.wrapping_sub(ro.va) < ro.data.len() as u64 && !trap_map.contains(&va);
    let jumps: Vec<usize> = (0..text.insns.len())
        .filter(|&k| text.insns[k].flow == Flow::JumpInd && !get(&sites.inserted, k))
        .filter(|&k| !through_constant(&text.insns[k]))
        .collect();
    let mut finder = Finder::new(m, text, sites, returns, entries);
    let all = ro.va..ro.va + ro.data.len() as u64;
    let tables_of = |found: &BTreeMap<usize, Found>| {
        read(ro.data, ro.va, text, found, &extents(all.clone(), &trap_map, found, descriptors, table_distance))
    };
    // First what is a table as long as only the tables before it are known, then what still is when all are.
    let mut found: BTreeMap<usize, Found> = BTreeMap::new();
    loop {
        let before = found.len();
        for &j in &jumps {
            if !found.contains_key(&j)
                && let Some(f) = finder.jump(j).filter(|f| inside(f.0))
            {
                found.insert(j, f);
            }
        }
        if found.len() == before {
            break;
        }
        finder.set_edges(&tables_of(&found));
    }
    loop {
        let still = found.iter().filter_map(|(&j, _)| Some((j, finder.jump(j).filter(|f| inside(f.0))?)));
        let still: BTreeMap<usize, Found> = still.collect();
        tables = tables_of(&still);
        if still == found {
            break;
        }
        found = still;
        finder.set_edges(&tables);
    }
    let bound = |&(read, t): &(usize, usize)| Some((read, finder.bound(read, tables.list[t].form.width())?));
    tables.bounds = tables.reads.iter().filter_map(bound).collect();
    account(ro.data, ro.va, &trap_map, descriptors, table_distance, &mut tables);
    tables
}

/// From where to where each table may reach: up to what begins next.
fn extents(
    all: Range<u64>,
    trap_map: &Range<u64>,
    found: &BTreeMap<usize, Found>,
    descriptors: &[u64],
    table_distance: &dyn Fn(usize) -> Option<u64>,
) -> BTreeMap<u64, u64> {
    let mut starts: Vec<u64> = found.values().map(|f| f.0).chain(descriptors.iter().copied()).collect();
    starts.extend(found.values().filter_map(|f| Some(f.0.wrapping_add(table_distance(f.2)?))));
    starts.extend([trap_map.start, all.end]);
    starts.sort_unstable();
    starts.dedup();
    let end = |va: u64| starts.get(starts.partition_point(|&s| s <= va)).copied().unwrap_or(all.end);
    found.values().map(|f| (f.0, end(f.0))).collect()
}

/// Reads the tables found.
fn read(data: &[u8], va: u64, text: &Code, found: &BTreeMap<usize, Found>, extents: &BTreeMap<u64, u64>) -> JumpTables {
    let mut tables = JumpTables::default();
    let mut known: HashMap<(u64, EntryForm), usize> = HashMap::new();
    for (&jump, &f) in found {
        let t = *known.entry((f.0, f.1)).or_insert_with(|| {
            let (from, to) = (f.0 - va, extents[&f.0] - va);
            let words = &data[from as usize..to as usize];
            let mut targets: Vec<u64> = words.chunks_exact(f.1.width()).map(|e| f.1.target(e)).collect();
            // The next table is aligned.
            let padded = words.len().is_multiple_of(8) && words.len() >= 8 && words[words.len() - 4..] == [0; 4];
            if f.1.width() == 4 && padded && targets.last().is_some_and(|&t| text.at(t).is_none()) {
                targets.pop();
            }
            tables.list.push(JumpTable { va: f.0, form: f.1, targets });
            tables.list.len() - 1
        });
        tables.by_jump.insert(jump, t);
        tables.reads.push((f.2, t));
    }
    tables
}

/// Every byte is part of something known.
fn account(
    data: &[u8],
    va: u64,
    trap_map: &Range<u64>,
    descriptors: &[u64],
    table_distance: &dyn Fn(usize) -> Option<u64>,
    tables: &mut JumpTables,
) {
    let mut known: Vec<Range<u64>> = descriptors.iter().map(|&d| d..d + 16).collect();
    known.push(trap_map.clone());
    let range = |t: &JumpTable, va: u64| va..va.saturating_add((t.targets.len() * t.form.width()) as u64);
    known.extend(tables.list.iter().map(|t| range(t, t.va)));
    let twin = |&(read, t): &(usize, usize)| {
        Some(range(&tables.list[t], tables.list[t].va.wrapping_add(table_distance(read)?)))
    };
    known.extend(tables.reads.iter().filter_map(twin));
    known.sort_by_key(|r| r.start);
    let end = va + data.len() as u64;
    let mut at = va;
    known.push(Range { start: end, end });
    for r in known {
        let gap = at.min(end)..r.start.clamp(va, end);
        if !gap.is_empty() && data[(gap.start - va) as usize..(gap.end - va) as usize].iter().any(|&b| b != 0) {
            let bytes = gap.end - gap.start;
            tables.problems.push((gap.start, format!("{bytes} bytes that no known jump or gather uses")));
        }
        at = at.max(r.end);
    }
}

impl Finder<'_> {
    fn set_edges(&mut self, tables: &JumpTables) {
        self.targets.clear();
        for (&jump, &t) in &tables.by_jump {
            // As long as not all tables are known, one may seem to reach into the next.
            // And what is not known to end may go on with entries of the program's next table.
            let from = self.text.insns[jump].va;
            let own = tables.list[t].targets.iter().take_while(|&&va| !self.is_in_another_function(from, va));
            // Old addresses are those of cases that cannot happen.
            let own = own.take_while(|&&va| !self.text.contains(va) || self.text.at(va).is_some());
            let mut to: Vec<u32> = own.filter_map(|&va| self.text.at(va)).map(|k| k as u32).collect();
            to.sort_unstable();
            to.dedup();
            self.targets.insert(jump as u32, to);
        }
        self.edges = self.targets.iter().flat_map(|(&jump, to)| to.iter().map(move |&to| (to, jump))).collect();
        self.edges.sort_unstable();
    }

    /// No jump leads into the middle of a function that is neither its own nor a part of another.
    fn is_in_another_function(&self, jump: u64, to: u64) -> bool {
        let is_part = |f: (u64, u64)| self.m.parts.binary_search(&f.0).is_ok();
        match (self.m.function_at(jump), self.m.function_at(to)) {
            (Some(from), Some(there)) => from != there && !is_part(from) && !is_part(there),
            _ => false,
        }
    }

    /// The table that a jump uses.
    fn jump(&self, k: usize) -> Option<Found> {
        let i = &self.text.insns[k];
        let target = if i.mem.is_some() { self.load(k, DEPTH)? } else { self.value(k, i.r0, DEPTH)? };
        match target {
            Val::Target((table, read), base) => Some((table, EntryForm::Relative(base), read)),
            Val::Target64((table, read), base) => Some((table, EntryForm::Relative64(base), read)),
            Val::Entry64((table, read)) => Some((table, EntryForm::Absolute, read)),
            _ => None,
        }
    }

    /// What an instruction reads from memory, as an entry of a table at a constant address.
    fn load(&self, k: usize, depth: u32) -> Option<Val> {
        let i = &self.text.insns[k];
        let m = i.mem.as_ref()?;
        let reads = matches!(i.touch, Touch::Mem(AccessKind::Load)) && m.seg == 0 && !i.has(ADDR32) && m.base != RIP;
        if !reads || (m.base == NONE && m.index == NONE) {
            return None;
        }
        let constant = |r: u8| match self.value(k, r, depth) {
            Some(Val::Const(c)) => Some(c.wrapping_add(m.disp as u64)),
            _ => None,
        };
        let table = match (m.base, m.index) {
            (NONE, _) => m.disp as u64,
            (b, NONE) => constant(b)?,
            (b, x) => constant(b).or_else(|| if m.scale == 1 { constant(x) } else { None })?,
        };
        match (i.size, i.op, i.has(WIDE)) {
            (8, 0x8b | 0xff | 0x03, _) => Some(Val::Entry64((table, k))),
            (4, 0x63, true) => Some(Val::Entry32 { read: (table, k), signed: true }),
            (4, 0x8b, false) => Some(Val::Entry32 { read: (table, k), signed: false }),
            _ => None,
        }
    }

    /// The value of register `r` in front of instruction `at`, where it is the same on every way. A register that goes through others around a
    /// loop and comes back adds no value.
    fn value(&self, at: usize, r: u8, depth: u32) -> Option<Val> {
        let depth = depth.checked_sub(1).filter(|_| r < 16)?;
        let mut places = vec![(at, r)];
        let mut looked_at = 0;
        let mut value = None;
        while let Some(&(at, r)) = places.get(looked_at) {
            looked_at += 1;
            if looked_at > DEPTH as usize {
                return None;
            }
            for def in self.definitions(at, r)? {
                if let Some(from) = self.copied(def, r) {
                    if !places.contains(&(def, from)) {
                        places.push((def, from));
                    }
                    continue;
                }
                let v = self.result(def, r, depth)?;
                if value.is_some_and(|old| old != v) {
                    return None;
                }
                value = Some(v);
            }
        }
        value
    }

    /// The register that an instruction copies to `r`.
    fn copied(&self, k: usize, r: u8) -> Option<u8> {
        let i = &self.text.insns[k];
        let copies = matches!(i.op, 0x89 | 0x8b) && i.mem.is_none() && i.has(WIDE) && !i.has(ADDR32);
        (copies && i.r0 == r && i.r1 < 16).then_some(i.r1)
    }

    /// What an instruction leaves in register `r`.
    fn result(&self, k: usize, r: u8, depth: u32) -> Option<Val> {
        let i = &self.text.insns[k];
        let wide = i.has(WIDE);
        if (i.r0 != r && i.op != 0x98) || i.has(ADDR32) {
            return None;
        }
        let plus = |v: Val, d: i64| match v {
            Val::Const(c) => Some(Val::Const(c.wrapping_add(d as u64))),
            _ => None,
        };
        match (i.op, &i.mem) {
            (0x8d, Some(m)) if wide && m.seg == 0 => match (m.base, m.index) {
                (RIP, NONE) => Some(Val::Const(m.disp as u64)),
                (b, NONE) => plus(self.value(k, b, depth)?, m.disp),
                (b, x) if m.scale == 1 && m.disp == 0 => sum(self.value(k, b, depth)?, self.value(k, x, depth)?),
                _ => None,
            },
            (0x8b | 0x63, Some(_)) => self.load(k, depth),
            (0x03, Some(_)) if wide => sum(self.value(k, r, depth)?, self.load(k, depth)?),
            (0x63, None) if wide => extended(self.value(k, i.r1, depth)?),
            (0x98, None) if wide && r == 0 => extended(self.value(k, 0, depth)?),
            (0xb8..=0xbf | 0xc7, None) if wide || i.r0_bytes == 4 => {
                Some(Val::Const(if wide { i.imm as u64 } else { u64::from(i.imm as u32) }))
            }
            (0x01 | 0x03, None) if wide && i.r1 < 16 => sum(self.value(k, i.r0, depth)?, self.value(k, i.r1, depth)?),
            (0x81 | 0x83, None) if wide && i.ext == 0 => plus(self.value(k, r, depth)?, i.imm),
            _ => None,
        }
    }
}

/// A constant and an entry, or two constants.
fn sum(a: Val, b: Val) -> Option<Val> {
    match (a, b) {
        (Val::Const(c), Val::Entry32 { read, signed: true }) | (Val::Entry32 { read, signed: true }, Val::Const(c)) => {
            Some(Val::Target(read, c))
        }
        (Val::Const(c), Val::Entry64(read)) | (Val::Entry64(read), Val::Const(c)) => Some(Val::Target64(read, c)),
        (Val::Const(a), Val::Const(b)) => Some(Val::Const(a.wrapping_add(b))),
        _ => None,
    }
}

/// The low four bytes, sign-extended.
fn extended(v: Val) -> Option<Val> {
    match v {
        Val::Entry32 { read, .. } => Some(Val::Entry32 { read, signed: true }),
        Val::Const(c) => Some(Val::Const(c as i32 as u64)),
        _ => None,
    }
}
