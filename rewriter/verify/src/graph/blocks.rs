//! Control flow of the new code: basic blocks, jump tables, entries.
//!
//! Input: decoded text, sites, module. Output: [`Graph`]. Inserted instructions are transparent: a block that begins
//! with a check is the block of the guarded access, and branches to cold code do not end a block. Invariant: block
//! starts are sorted, every instruction belongs to one block.

use crate::decode::decoder::Code;
use crate::decode::effects::Flow;
use crate::decode::insn::{NONE, through_constant};
use crate::file::module::{Module, Pad};
use crate::graph::returns::Returns;
use crate::graph::tables::{JumpTable, JumpTables};
use crate::sites::site::{Sites, get};
use foldhash::HashMap;

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
    /// Through a constant address (PLT, GOT): a tail call.
    GotJump,
    /// To an unknown place. `framed`: in a function whose extent is known: a tail call, or to any block of the function.
    Unresolved {
        framed: bool,
    },
    Ret,
    Stop,
}

/// The opcode of endbr64, which marks a place that something may lead to.
const ENDBR: u16 = 0x11e;

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
    /// Bitmap of blocks that end with a call that does not come back.
    pub no_return: Vec<u64>,
    /// Successors within a function, behind calls the return site: of block `b` those in
    /// `succ[succ_from[b]..succ_from[b + 1]]`.
    succ: Vec<u32>,
    /// Landing pads by the block of the call.
    pads: HashMap<u32, u32>,
    /// Blocks that are landing pads, of calls or of what else may raise an exception (a load, where a signal's handler throws).
    all_pads: Vec<u32>,
    /// Bitmap of instructions from which an exception may lead to a landing pad.
    caught: Vec<u64>,
    succ_from: Vec<u32>,
    /// Connected part of each block, call and return edges left out.
    pub component: Vec<u32>,
    /// By component: contains an unresolved jump.
    pub wild: Vec<bool>,
    /// Targets (blocks) of the table jumps, one list for each.
    pub table_targets: Vec<Vec<u32>>,
    pub tables: Vec<JumpTable>,
}

impl Graph {
    /// The landing pad of the call that ends a block.
    pub fn pad(&self, b: usize) -> Option<u32> {
        self.pads.get(&(b as u32)).copied()
    }

    /// Blocks that are landing pads.
    pub fn pad_blocks(&self) -> impl Iterator<Item = u32> {
        self.all_pads.iter().copied()
    }

    /// Whether an exception that an instruction raises may lead to a landing pad.
    pub fn is_caught(&self, insn: usize) -> bool {
        get(&self.caught, insn)
    }

    /// Successors within the function, behind a call the return site.
    pub fn succ(&self, b: usize) -> &[u32] {
        &self.succ[self.succ_from[b] as usize..self.succ_from[b + 1] as usize]
    }

    /// Blocks that a way leads to from those in `from`.
    pub fn reached(&self, from: &[bool]) -> Vec<bool> {
        let mut reached = from.to_vec();
        let mut work: Vec<usize> = (0..from.len()).filter(|&b| from[b]).collect();
        while let Some(b) = work.pop() {
            for &t in self.succ(b) {
                if !std::mem::replace(&mut reached[t as usize], true) {
                    work.push(t as usize);
                }
            }
        }
        reached
    }

    /// Whether a block does nothing, as what lies between functions.
    pub fn is_padding(&self, text: &Code, b: usize) -> bool {
        self.range(b, text).map(|k| &text.insns[k]).all(|i| i.is_int3() || i.is_nop())
    }

    /// Whether a block ends with a trap, or a call that does not come back, right in front of the next one.
    pub fn stops_in_front(&self, text: &Code, b: usize) -> bool {
        let end = self.range(b, text).end;
        let adjacent = end < text.insns.len() && text.insns[end - 1].end() == text.insns[end].va;
        adjacent && (get(&self.no_return, b) || self.ends[b] == End::Stop)
    }

    /// Whether control may come to a block in ways that the graph does not show.
    pub fn open(&self) -> Vec<bool> {
        let mut open: Vec<bool> = self.component.iter().map(|&c| self.wild[c as usize]).collect();
        self.entries.iter().copied().chain(self.pad_blocks()).for_each(|b| open[b as usize] = true);
        open
    }

    /// By block that ends in a call which does not come back, or in a trap: what stands behind it is the same function's, and nothing else leads there. If it
    /// came back after all, what the convention keeps would be kept; a signal's handler that steps over a trap keeps all. So say the successors that
    /// must-analyses follow besides [`Graph::succ`].
    pub fn continues(&self, text: &Code, open: &[bool]) -> Vec<bool> {
        let reached = self.reached(open);
        let behind = |b: usize| !reached[b + 1] && !self.is_padding(text, b + 1);
        (0..reached.len()).map(|b| self.stops_in_front(text, b) && behind(b)).collect()
    }

    /// Fills in successors and components.
    fn link(&mut self, m: &Module, text: &Code) {
        let n = self.starts.len();
        let mut pads: Vec<(Pad, u32)> =
            m.pads.iter().filter_map(|&p| Some((p, self.block_of(text.at(p.pad)?) as u32))).collect();
        pads.sort_by_key(|p| p.0.from);
        self.all_pads = pads.iter().map(|p| p.1).collect();
        self.caught = vec![0; text.insns.len() / 64 + 1];
        for k in pads.iter().flat_map(|p| text.lower_bound(p.0.from)..text.lower_bound(p.0.to)) {
            self.caught[k / 64] |= 1 << (k % 64);
        }
        let mut sets = Sets::new(n);
        self.succ_from.push(0);
        for b in 0..n {
            let next = (b + 1 < n).then_some(b as u32 + 1);
            match self.ends[b] {
                End::Fall => self.succ.extend(next),
                End::Jump(t) => self.succ.push(t),
                End::Cond(t) => {
                    self.succ.push(t);
                    self.succ.extend(next);
                }
                End::Call(_) | End::CallInd { .. } => {
                    if !get(&self.no_return, b) {
                        self.succ.extend(next);
                    }
                    let va = text.insns[self.range(b, text).end - 1].va;
                    let at = pads.partition_point(|p| p.0.from <= va);
                    if let Some(p) = pads[..at].last().filter(|p| va < p.0.to) {
                        self.pads.insert(b as u32, p.1);
                        sets.join(b, p.1 as usize);
                    }
                }
                End::Table(k) => self.succ.extend(&self.table_targets[k as usize]),
                End::Unresolved { framed: true } => {
                    let va = text.insns[self.range(b, text).end - 1].va;
                    if let Some((from, to)) = m.function_at(va) {
                        let first = self.block_of(text.lower_bound(from));
                        (first..n)
                            .take_while(|&k| text.insns[self.starts[k] as usize].va < to)
                            .for_each(|k| sets.join(b, k));
                    }
                }
                End::Unresolved { .. } | End::GotJump | End::Ret | End::Stop => {}
            }
            for k in self.succ_from[b] as usize..self.succ.len() {
                sets.join(b, self.succ[k] as usize);
            }
            self.succ_from.push(self.succ.len() as u32);
        }
        self.component = (0..n).map(|b| sets.root(b) as u32).collect();
        self.wild = vec![false; n];
        for b in 0..n {
            if matches!(self.ends[b], End::Unresolved { .. }) {
                self.wild[self.component[b] as usize] = true;
            }
        }
    }

    /// Padding in front of aligned code, behind a jump or a return, leads nowhere: nothing but `nop`s of the input, with no known way to
    /// them. What it would run into is entered in other ways only. Not behind `ud2` and `hlt`, which a signal's handler may step over.
    fn unlink_padding(&mut self, text: &Code, sites: &Sites) {
        let n = self.starts.len();
        let mut led_to = vec![false; n];
        self.entries.iter().copied().chain(self.pad_blocks()).for_each(|b| led_to[b as usize] = true);
        (0..n).for_each(|b| led_to[b] |= self.wild[self.component[b] as usize]);
        let mut ways = vec![0u32; n];
        self.succ.iter().for_each(|&t| ways[t as usize] += 1);
        let mut succ = Vec::with_capacity(self.succ.len());
        for b in 0..n {
            let from = succ.len() as u32;
            let next = self.succ_from[b] as usize..self.succ_from[b + 1] as usize;
            let idle = |k: usize| !get(&sites.inserted, k) && text.insns[k].is_nop() && text.insns[k].op != ENDBR;
            let trapped = b > 0 && self.ends[b - 1] == End::Stop;
            if !led_to[b] && !trapped && ways[b] == 0 && self.range(b, text).all(idle) {
                self.succ[next].iter().for_each(|&t| ways[t as usize] -= 1);
            } else {
                succ.extend(&self.succ[next]);
            }
            self.succ_from[b] = from;
        }
        self.succ_from[n] = succ.len() as u32;
        self.succ = succ;
    }

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

/// Addresses in the text that control may enter from places which direct branches and tables do not show.
pub fn entries(m: &Module, indirect: &[u64]) -> Vec<u64> {
    let mut list = indirect.to_vec();
    list.extend(m.functions.iter().map(|f| f.0));
    list.extend(m.symbols.iter().filter(|s| s.function).map(|s| s.va));
    list
}

/// Builds the graph. `indirect` are addresses in the text that may be reached from outside: entries, springboards,
/// redirected pointers.
pub fn build(m: &Module, text: &Code, sites: &Sites, returns: &Returns, indirect: &[u64], tables: JumpTables) -> Graph {
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
    let mut entry_vas = entries(m, indirect);
    let flow_of = |k: usize| match text.insns[k].flow {
        flow if !get(&sites.inserted, k) => flow,
        _ if sites.goes_on(text, k) => Flow::Next,
        _ => Flow::Stop,
    };
    for (k, i) in text.insns.iter().enumerate() {
        if flow_of(k) == Flow::Next {
            continue;
        }
        match flow_of(k) {
            Flow::Cond | Flow::Jump | Flow::Call => {
                mark(i.target);
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
    let mut table_targets: Vec<Vec<u32>> = Vec::new();
    let mut no_return = vec![0u64; g.starts.len() / 64 + 1];
    for b in 0..g.starts.len() {
        if returns.never(g.range(b, text).end - 1) {
            no_return[b / 64] |= 1 << (b % 64);
        }
    }
    let ends = (0..g.starts.len())
        .map(|b| {
            let range = g.range(b, text);
            let last = range.end - 1;
            let i = &text.insns[last];
            let flow = flow_of(last);
            let gap = text.insns.get(range.end).is_none_or(|next| next.va != i.end());
            match flow {
                Flow::Next if gap => End::Stop,
                Flow::Next => End::Fall,
                Flow::Jump => block(i.target).map_or(End::GotJump, End::Jump),
                Flow::Cond => block(i.target).map_or(End::Fall, End::Cond),
                Flow::Call => End::Call(block(i.target)),
                Flow::CallInd => {
                    End::CallInd { through_rax: i.mem.is_some_and(|m| m.base == 0 && m.index == NONE && m.disp == 0) }
                }
                Flow::Ret => End::Ret,
                Flow::Stop => End::Stop,
                Flow::JumpInd if through_constant(i) => End::GotJump,
                Flow::JumpInd => match tables.by_jump.get(&last) {
                    Some(&t) => {
                        let mut list: Vec<u32> = g.tables[t].targets.iter().filter_map(|&va| block(va)).collect();
                        list.sort_unstable();
                        list.dedup();
                        table_targets.push(list);
                        End::Table(table_targets.len() as u32 - 1)
                    }
                    None => End::Unresolved { framed: m.function_at(i.va).is_some() },
                },
            }
        })
        .collect();
    g.ends = ends;
    g.entries = entries;
    g.roots = indirect.iter().filter_map(|&va| text.at(va)).map(|i| g.block_of(i) as u32).collect();
    g.no_return = no_return;
    g.table_targets = table_targets;
    g.link(m, text);
    g.unlink_padding(text, sites);
    g
}

/// Disjoint sets of blocks.
struct Sets(Vec<u32>);

impl Sets {
    fn new(n: usize) -> Sets {
        Sets((0..n as u32).collect())
    }

    fn root(&mut self, mut x: usize) -> usize {
        while self.0[x] as usize != x {
            self.0[x] = self.0[self.0[x] as usize];
            x = self.0[x] as usize;
        }
        x
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a] = b as u32;
    }
}
