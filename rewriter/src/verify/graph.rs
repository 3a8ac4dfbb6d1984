//! Control flow of the new code: basic blocks, jump tables, entries.
//!
//! Input: decoded text, sites, module. Output: [`Graph`]. Inserted instructions are transparent: a block that begins
//! with a check is the block of the guarded access, and branches to cold code do not end a block. Invariant: block
//! starts are sorted, every instruction belongs to one block.

use super::decode::{Code, NONE};
use super::effects::Flow;
use super::module::{Module, Pad};
use super::sites::{Sites, get};
use super::tables::{self, Table, through_constant};

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
    /// Targets from jump tables: index into [`Graph::table_targets`].
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
    /// Those of them that unknown code may call.
    pub roots: Vec<u32>,
    /// Landing pads: the covered addresses, block of the pad, block of the first covered instruction.
    pub pads: Vec<(Pad, u32, u32)>,
    /// Bitmap of blocks that end with a call behind which the function ends: such a call does not return.
    pub no_return: Vec<u64>,
    /// Targets (blocks) of the table jumps, one list for each.
    pub table_targets: Vec<Vec<u32>>,
    pub tables: Vec<Table>,
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
    let tables = tables::find(m, text, sites);
    let mut g = Graph { tables: tables.list, ..Graph::default() };
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
    for &t in g.tables.iter().flat_map(|t| &t.targets) {
        mark(t);
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
    let mut table_targets: Vec<Vec<u32>> = Vec::new();
    let mut no_return = vec![0u64; g.starts.len() / 64 + 1];
    for b in 0..g.starts.len() {
        let i = &text.insns[g.range(b, text).end - 1];
        let f = m.functions.partition_point(|f| f.0 <= i.va);
        if matches!(i.flow, Flow::Call | Flow::CallInd) && m.functions[..f].last().is_some_and(|f| i.end() == f.1) {
            no_return[b / 64] |= 1 << (b % 64);
        }
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
                Flow::CallInd => {
                    End::CallInd { through_rax: i.mem.is_some_and(|m| m.base == 0 && m.index == NONE && m.disp == 0) }
                }
                Flow::Ret => End::Ret,
                Flow::Stop => End::Stop,
                Flow::JumpInd if through_constant(i) => End::Unresolved { got: true },
                Flow::JumpInd => match tables.by_jump.get(&last) {
                    Some(used) => {
                        let mut list: Vec<u32> =
                            used.iter().flat_map(|&t| &g.tables[t].targets).filter_map(|&va| block(va)).collect();
                        list.sort_unstable();
                        list.dedup();
                        table_targets.push(list);
                        End::Table(table_targets.len() as u32 - 1)
                    }
                    None => End::Unresolved { got: false },
                },
            }
        })
        .collect();
    g.ends = ends;
    g.entries = entries;
    g.roots = indirect.iter().filter_map(|&va| text.at(va)).map(|i| g.block_of(i) as u32).collect();
    g.pads = pads;
    g.no_return = no_return;
    g.table_targets = table_targets;
    g
}
