//! Control flow of the new code: basic blocks, jump tables, entries.
//!
//! Input: decoded text, sites, module. Output: [`Graph`]. Inserted instructions are transparent: a block that begins
//! with a check is the block of the guarded access, and branches to cold code do not end a block. Invariant: block
//! starts are sorted, every instruction belongs to one block.

use super::decode::{Code, Insn, NONE, RIP};
use super::effects::Flow;
use super::module::{Module, Pad};
use super::sites::{Sites, get};
use std::collections::BTreeMap;

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Into the next block.
    Fall,
    Jump(u32),
    /// Taken target, then the next block.
    Cond(u32),
    /// Callee's block, or `None` when it is not in the text; then the next block.
    Call(Option<u32>),
    /// `through_rax`: the form of a TLS descriptor call, which changes rax alone.
    CallInd {
        through_rax: bool,
    },
    /// Targets from jump tables: index into [`Graph::tables_of`].
    Table(u32),
    /// `got`: through a constant address, hence a tail call.
    Unresolved {
        got: bool,
    },
    Ret,
    Stop,
}

/// Blocks and their ends.
#[derive(Debug, Default)]
pub struct Graph {
    /// Index of each block's first instruction.
    pub starts: Vec<u32>,
    pub ends: Vec<End>,
    /// Blocks that control may enter from places the graph does not show.
    pub entries: Vec<u32>,
    /// Landing pads: the covered addresses, block of the pad, block of the first covered instruction.
    pub pads: Vec<(Pad, u32, u32)>,
    /// Bitmap of blocks that begin a function: a call in front of one does not return.
    pub function_starts: Vec<u64>,
    /// Targets (blocks) of the table jumps, one list for each function with tables.
    pub tables_of: Vec<Vec<u32>>,
    /// Jump tables: address, entries.
    pub tables: Vec<(u64, Vec<u64>)>,
    /// Branches to something that is no instruction of the text: (from, to).
    pub wild: Vec<(u64, u64)>,
}

impl Graph {
    /// The block of an instruction.
    pub fn block_of(&self, insn: usize) -> usize {
        self.starts.partition_point(|&s| s as usize <= insn).saturating_sub(1)
    }

    /// Instructions of a block.
    pub fn range(&self, block: usize, text: &Code) -> std::ops::Range<usize> {
        let end = self.starts.get(block + 1).map_or(text.insns.len(), |&s| s as usize);
        self.starts[block] as usize..end
    }
}

/// Builds the graph. `indirect` are addresses in the text that may be reached from outside: entries, springboards,
/// redirected pointers.
pub fn build(m: &Module, text: &Code, cold: &Code, sites: &Sites, indirect: &[u64]) -> Graph {
    let mut g = Graph { tables: find_tables(m, text, sites), ..Graph::default() };
    let n = text.insns.len();
    let mut leader = vec![0u64; n / 64 + 1];
    let mut mark = |va: u64| -> bool {
        match text.at(va) {
            Some(i) => {
                leader[i / 64] |= 1 << (i % 64);
                true
            }
            None => false,
        }
    };
    mark(text.base);
    let mut entry_vas: Vec<u64> = indirect.to_vec();
    entry_vas.extend(m.functions.iter().map(|f| f.0));
    entry_vas.extend(m.symbols.iter().filter(|s| s.function).map(|s| s.va));
    for (k, i) in text.insns.iter().enumerate() {
        if get(&sites.inserted, k) || i.flow == Flow::Next {
            continue;
        }
        match i.flow {
            Flow::Cond | Flow::Jump | Flow::Call => {
                if !mark(i.target) && (text.contains(i.target) || cold.contains(i.target) || i.flow == Flow::Cond) {
                    g.wild.push((i.va, i.target));
                }
                if i.flow == Flow::Call {
                    entry_vas.push(i.target);
                }
            }
            _ => {}
        }
        mark(i.end());
    }
    for &va in &entry_vas {
        mark(va);
    }
    for p in &m.pads {
        mark(p.pad);
    }
    for (_, targets) in &g.tables {
        for &t in targets {
            mark(t);
        }
    }
    // A gap in the decoding separates blocks, too.
    for k in 1..n {
        if text.insns[k].va != text.insns[k - 1].end() {
            leader[k / 64] |= 1 << (k % 64);
        }
    }
    g.starts = (0..n).filter(|&k| get(&leader, k)).map(|k| k as u32).collect();
    let block = |va: u64| text.at(va).map(|i| g.starts.partition_point(|&s| s as usize <= i) as u32 - 1);
    let mut entries: Vec<u32> = entry_vas.iter().filter_map(|&va| block(va)).collect();
    entries.sort_unstable();
    entries.dedup();
    let pads = m.pads.iter().filter_map(|&p| {
        let from = text.lower_bound(p.from);
        Some((p, block(p.pad)?, g.starts.partition_point(|&s| s as usize <= from).saturating_sub(1) as u32))
    });
    let pads = pads.collect();
    let (table_functions, tables_of) = tables_by_function(m, text, sites, &g.tables, &block);
    let mut function_starts = vec![0u64; g.starts.len() / 64 + 1];
    for b in m.functions.iter().filter_map(|f| block(f.0)) {
        function_starts[b as usize / 64] |= 1 << (b % 64);
    }
    let ends = (0..g.starts.len())
        .map(|b| {
            let range = g.range(b, text);
            let last = range.end - 1;
            let i = &text.insns[last];
            let flow = if get(&sites.inserted, last) { Flow::Next } else { i.flow };
            let gap = text.insns.get(range.end).is_none_or(|next| next.va != i.end());
            match flow {
                Flow::Next if gap => End::Stop,
                Flow::Next => End::Fall,
                Flow::Jump => block(i.target).map_or(End::Unresolved { got: true }, End::Jump),
                Flow::Cond => block(i.target).map_or(End::Fall, End::Cond),
                Flow::Call => End::Call(block(i.target)),
                Flow::CallInd => End::CallInd { through_rax: i.mem.is_some_and(|m| m.base == 0 && m.index == NONE) },
                Flow::Ret => End::Ret,
                Flow::Stop => End::Stop,
                Flow::JumpInd => indirect_jump(i, &table_functions),
            }
        })
        .collect();
    g.ends = ends;
    g.entries = entries;
    g.pads = pads;
    g.function_starts = function_starts;
    g.tables_of = tables_of;
    g
}

fn indirect_jump(i: &Insn, functions: &BTreeMap<u64, (u64, u32)>) -> End {
    if let Some(m) = &i.mem
        && m.index == NONE
        && matches!(m.base, NONE | RIP)
    {
        return End::Unresolved { got: true };
    }
    match functions.range(..=i.va).next_back() {
        Some((_, &(to, k))) if i.va < to => End::Table(k),
        _ => End::Unresolved { got: false },
    }
}

/// Jump tables: places in `.blizzard.rodata` that text instructions name and whose words lead to instructions.
fn find_tables(m: &Module, text: &Code, sites: &Sites) -> Vec<(u64, Vec<u64>)> {
    let Some(ro) = &m.rodata else { return Vec::new() };
    let end = ro.va + ro.data.len() as u64;
    let trap_map = m.info.trap_map_va..m.info.trap_map_va + m.info.trap_count * 8;
    let mut starts: Vec<u64> = Vec::new();
    for (k, i) in text.insns.iter().enumerate() {
        if get(&sites.inserted, k) {
            continue;
        }
        if let Some(va) = named_address(i)
            && ro.va <= va
            && va < end
            && !trap_map.contains(&va)
        {
            starts.push(va);
        }
    }
    starts.sort_unstable();
    starts.dedup();
    let mut tables = Vec::new();
    for (k, &va) in starts.iter().enumerate() {
        let mut limit = starts.get(k + 1).copied().unwrap_or(end);
        if va < trap_map.start {
            limit = limit.min(trap_map.start);
        }
        let data = &ro.data[(va - ro.va) as usize..(limit - ro.va) as usize];
        let relative: Vec<u64> = data
            .chunks_exact(4)
            .map(|c| va.wrapping_add(i32::from_le_bytes([c[0], c[1], c[2], c[3]]) as u64))
            .take_while(|&t| text.at(t).is_some())
            .collect();
        let absolute: Vec<u64> = data
            .chunks_exact(8)
            .map(|c| u64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]))
            .take_while(|&t| text.at(t).is_some())
            .collect();
        tables.push((va, if relative.len() >= absolute.len() { relative } else { absolute }));
    }
    tables
}

/// The constant address that an instruction forms or accesses.
fn named_address(i: &Insn) -> Option<u64> {
    match &i.mem {
        Some(m) if m.base == RIP => Some(m.disp as u64),
        Some(m) if m.disp > 0xffff => Some(m.disp as u64),
        None if i.imm > 0xffff && i.flow == Flow::Next => Some(i.imm as u64),
        _ => None,
    }
}

type Functions = BTreeMap<u64, (u64, u32)>;

/// Which function names which tables; its indirect jumps may go to any of their entries.
fn tables_by_function(
    m: &Module,
    text: &Code,
    sites: &Sites,
    tables: &[(u64, Vec<u64>)],
    block: &impl Fn(u64) -> Option<u32>,
) -> (Functions, Vec<Vec<u32>>) {
    let mut functions: Functions = BTreeMap::new();
    let mut lists: Vec<Vec<u32>> = Vec::new();
    if tables.is_empty() {
        return (functions, lists);
    }
    let ranges: Vec<(u64, u64)> = if m.functions.is_empty() {
        m.symbols.iter().map(|s| (s.va, s.va + s.bytes)).collect()
    } else {
        m.functions.clone()
    };
    for (k, i) in text.insns.iter().enumerate() {
        let Some(va) = named_address(i) else { continue };
        let Ok(t) = tables.binary_search_by_key(&va, |t| t.0) else { continue };
        if get(&sites.inserted, k) {
            continue;
        }
        let at = ranges.partition_point(|r| r.0 <= i.va);
        let Some(&(from, to)) = ranges[..at].last().filter(|r| i.va < r.1) else { continue };
        let list = functions.entry(from).or_insert_with(|| {
            lists.push(Vec::new());
            (to, lists.len() as u32 - 1)
        });
        let list = list.1 as usize;
        lists[list].extend(tables[t].1.iter().filter_map(|&va| block(va)));
    }
    for list in &mut lists {
        list.sort_unstable();
        list.dedup();
    }
    (functions, lists)
}
