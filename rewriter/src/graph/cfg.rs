//! Insns -> [`Cfg`]: basic blocks, their successors, and the connected components between which only calls lead.
//!
//! A block is a contiguous index range of [`Insns`]; it ends at every control transfer, calls included, so that the
//! analyses see return sites as block starts. Invariant: every edge that the processor can take between decoded
//! instructions is here, except those of unresolved indirect jumps (listed in [`Cfg::unresolved`]), of returns, and of exceptions
//! ([`Cfg::pads_of`]).

use crate::base::addresses::Vaddr;
use crate::base::collections::compact_offsets::CompactOffsets;
use crate::base::collections::grouped::group;
use crate::base::collections::ranked_bits::{RankedBits, is_set, set};
use crate::base::collections::union_find::Components;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::decode::regs::RegSet;
use crate::graph::jump_table::JumpTable;
use crate::read::frames::FdeInfo;

/// Index into [`Cfg::blocks`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub u32);

impl BlockId {
    /// As a slice index.
    #[inline]
    pub fn ix(self) -> usize {
        self.0 as usize
    }
}

/// How a block ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Falls through or branches within its function: [`Cfg::succ`] is complete.
    Plain,
    /// Direct call of a decoded function; the successor is the return site.
    Call(BlockId),
    /// Call of something unknown; the successor is the return site.
    UnknownCall,
    /// `call [rax]`: may call a TLS descriptor, whose function preserves all registers but rax (psABI TLS descriptors).
    DescriptorCall,
    Ret,
    /// Jump through the GOT: a PLT entry or a tail call, with the callee known only by the ABI.
    GotJmp,
    /// Indirect jump whose targets are not known, in code that a frame describes: a tail call (ABI), or somewhere in its own component,
    /// to which all blocks of the frame belong.
    FramedJmp,
    /// Jump whose target is not known at all.
    UnknownJmp,
    /// Nothing follows.
    Stop,
}

/// A basic block.
#[derive(Clone, Copy, Debug)]
pub struct BasicBlock {
    pub first: InsnId,
    /// One behind the last instruction.
    pub stop: InsnId,
    end: PackedEnd,
}

impl BasicBlock {
    /// How it ends.
    #[inline]
    pub fn end(&self) -> End {
        self.end.into()
    }
}

/// An [`End`] in four bytes: every third instruction ends a block.
#[derive(Clone, Copy)]
struct PackedEnd(u32);

/// The ends that are only a word; behind their indices, callees.
const WORDS: [End; 8] = [
    End::Plain,
    End::UnknownCall,
    End::DescriptorCall,
    End::Ret,
    End::GotJmp,
    End::FramedJmp,
    End::UnknownJmp,
    End::Stop,
];

impl From<End> for PackedEnd {
    #[inline]
    fn from(end: End) -> PackedEnd {
        let words = WORDS.len() as u32;
        match end {
            // A module has at most 2^30 bytes.
            End::Call(b) => PackedEnd(words + b.0),
            _ => PackedEnd(WORDS.iter().position(|w| *w == end).expect("all are listed") as u32),
        }
    }
}

impl From<PackedEnd> for End {
    #[inline]
    fn from(PackedEnd(end): PackedEnd) -> End {
        WORDS.get(end as usize).copied().unwrap_or(End::Call(BlockId(end.wrapping_sub(WORDS.len() as u32))))
    }
}

impl std::fmt::Debug for PackedEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        End::from(*self).fmt(f)
    }
}

/// Calls of one frame, ascending, and where an exception that one of them lets through may continue.
#[derive(Clone, Debug)]
pub struct Pads {
    pub from: Vec<BlockId>,
    pub to: Vec<BlockId>,
}

/// The control-flow graph of a module.
#[derive(Debug)]
pub struct Cfg {
    pub blocks: Vec<BasicBlock>,
    pub tables: Vec<JumpTable>,
    /// Whether control may enter the block from outside known edges (roots).
    pub root: Vec<bool>,
    /// Whether the block is the target of an address-wise backward direct branch: every loop without indirect jumps has one.
    pub loop_head: Vec<bool>,
    /// Component of each block: blocks joined by everything but calls and returns.
    pub component: Vec<u32>,
    /// Components that contain an unresolved indirect jump other than a plain tail call through the GOT.
    pub unresolved: Vec<bool>,
    /// Blocks that return on a stack that they have just chosen, or of whose return it is not known that it leads to their caller, and blocks that jump to a
    /// function with another return address in front of their own: what comes next, no call of the graph need have led to. Ascending.
    pub switched: Vec<BlockId>,
    /// Some code calls by a return, so that nothing is known of what it needs behind the call.
    pub called_by_returns: bool,
    /// By frame with landing pads: any of these calls may end in any of these pads.
    pub pads: Vec<Pads>,
    /// A bit for each block that is in some `from` of `pads`; empty where there are none.
    padded: Vec<u64>,
    /// Instructions, from and to, from which an exception may lead to a landing pad; ascending.
    caught: Vec<(InsnId, InsnId)>,
    /// Instructions, from and to, at which unwinders find the frame by these registers; ascending.
    framed: Vec<(InsnId, InsnId, RegSet)>,
    pub(super) succ: Vec<BlockId>,
    /// By block: where its successors begin in `succ`; one more for the end.
    pub(super) succ_from: CompactOffsets,
    /// By block: where its predecessors begin in `preds`; one more for the end.
    pub(super) preds_from: CompactOffsets,
    pub(super) preds: Vec<u32>,
    /// The instructions that begin blocks.
    firsts: RankedBits,
}

impl Cfg {
    /// Builds the graph.
    /// `got_jump`: whether an indirect jump goes through the GOT. `descriptor_call`: whether an indirect call reads its target at rax.
    /// `is_jump`: whether a return is a jump in other words. `frame`: the code range of the frame that describes an address.
    pub fn build(
        insns: &Insns,
        tables: Vec<JumpTable>,
        got_jump: impl Fn(InsnId) -> bool,
        descriptor_call: impl Fn(InsnId) -> bool,
        is_jump: impl Fn(InsnId) -> bool,
        frame: impl Fn(Vaddr) -> Option<(Vaddr, Vaddr)>,
    ) -> Cfg {
        let count = insns.len();
        let words = count.div_ceil(64);
        let (mut leader, mut root_insn, mut backward) = (vec![0u64; words], vec![0u64; words], vec![0u64; words]);
        for r in &insns.roots {
            set(&mut leader, r.ix());
            set(&mut root_insn, r.ix());
        }
        for (id, to) in insns.branches() {
            set(&mut leader, to.ix());
            if insns.flow(id) != Flow::Call && insns.offset(to) <= insns.offset(id) {
                set(&mut backward, to.ix());
            }
        }
        for id in insns.ends() {
            let next = insns.next(id);
            if insns.flow(id) == Flow::Next && next == Some(InsnId(id.0 + 1)) {
                continue;
            }
            if id.ix() + 1 < count {
                set(&mut leader, id.ix() + 1);
            }
            if let Some(n) = next {
                set(&mut leader, n.ix());
            }
        }
        for t in &tables {
            for target in t.own_targets() {
                set(&mut leader, target.ix());
                if insns.offset(target) <= insns.offset(t.jump) {
                    set(&mut backward, target.ix());
                }
            }
        }
        if count > 0 {
            set(&mut leader, 0);
        }
        let begins = RankedBits::from_bits(leader);
        let mut firsts: Vec<InsnId> = Vec::with_capacity(begins.before(count) as usize);
        firsts.extend(begins.iter().map(|i| InsnId(i as u32)));
        let id_of = |i: InsnId| BlockId(begins.before(i.ix() + 1) - 1);
        let table_of = |jump: InsnId| tables.binary_search_by_key(&jump, |t| t.jump).ok().map(|i| &tables[i]);
        let mut blocks = Vec::with_capacity(firsts.len());
        let mut succ = Vec::new();
        let mut succ_from = CompactOffsets::with_capacity(firsts.len() + 1);
        succ_from.push(0);
        let mut sets = Components::new(firsts.len());
        let mut wild = Vec::new();
        let mut wild_jump = |b: usize, last: InsnId, sets: &mut Components| {
            wild.push(b);
            match frame(insns.va(last)) {
                Some((start, stop)) => {
                    // It may lead anywhere in its frame.
                    let inside = insns.main_range(start, stop);
                    if !inside.is_empty() {
                        let (first, last) = (InsnId(inside.start as u32), InsnId(inside.end as u32 - 1));
                        (id_of(first).0..=id_of(last).0).for_each(|of| sets.join(b as u32, of));
                    }
                    End::FramedJmp
                }
                None => End::UnknownJmp,
            }
        };
        for (b, &first) in firsts.iter().enumerate() {
            let stop = firsts.get(b + 1).copied().unwrap_or(InsnId(count as u32));
            let last = InsnId(stop.0 - 1);
            let (flow, target) = (insns.flow(last), insns.target(last));
            let from = succ.len() as u32;
            let next = insns.next(last).map(id_of);
            let end = match flow {
                Flow::Next => End::Plain,
                Flow::Cond | Flow::Jmp => {
                    succ.extend(target.map(id_of));
                    if target.is_none() { End::UnknownJmp } else { End::Plain }
                }
                Flow::Call => target.map_or(End::UnknownCall, |t| End::Call(id_of(t))),
                Flow::IndirectCall if descriptor_call(last) => End::DescriptorCall,
                Flow::IndirectCall => End::UnknownCall,
                Flow::IndirectJmp => match table_of(last) {
                    Some(t) => {
                        let mut targets: Vec<BlockId> = t.own_targets().map(id_of).collect();
                        targets.sort();
                        targets.dedup();
                        succ.extend(targets);
                        End::Plain
                    }
                    None if got_jump(last) => End::GotJmp,
                    None => wild_jump(b, last, &mut sets),
                },
                Flow::Ret if is_jump(last) => {
                    wild_jump(b, last, &mut sets);
                    End::UnknownJmp
                }
                Flow::Ret => End::Ret,
                Flow::Stop => End::Stop,
            };
            succ.extend(next);
            for s in &succ[from as usize..] {
                sets.join(b as u32, s.0);
            }
            blocks.push(BasicBlock { first, stop, end: end.into() });
            succ_from.push(succ.len() as u32);
        }
        succ.shrink_to_fit();
        let edges = || {
            let of = |b: usize| &succ[succ_from.get(b) as usize..succ_from.get(b + 1) as usize];
            (0..blocks.len()).flat_map(move |b| of(b).iter().map(move |s| (s.0, b as u32)))
        };
        let (preds_from, preds) = group(blocks.len(), edges);
        let preds_from = preds_from.into_iter().collect();
        let component: Vec<u32> = (0..blocks.len()).map(|b| sets.find(b as u32)).collect();
        let mut unresolved = vec![false; blocks.len()];
        for b in wild {
            unresolved[component[b] as usize] = true;
        }
        let root = firsts.iter().map(|f| is_set(&root_insn, f.ix())).collect();
        let loop_head = firsts.iter().map(|f| is_set(&backward, f.ix())).collect();
        let (firsts, pads) = (begins, Vec::new());
        Cfg {
            blocks,
            tables,
            root,
            loop_head,
            component,
            unresolved,
            switched: Vec::new(),
            called_by_returns: false,
            pads,
            padded: Vec::new(),
            caught: Vec::new(),
            framed: Vec::new(),
            succ,
            succ_from,
            preds_from,
            preds,
            firsts,
        }
    }

    /// The blocks that may follow `b` without a return in between (behind a call: the return site).
    #[inline]
    pub fn succ(&self, b: BlockId) -> &[BlockId] {
        &self.succ[self.succ_from.get(b.ix()) as usize..self.succ_from.get(b.ix() + 1) as usize]
    }

    /// The blocks that `b` is a successor of, ascending.
    #[inline]
    pub fn preds(&self, b: BlockId) -> impl DoubleEndedIterator<Item = BlockId> + ExactSizeIterator {
        let range = self.preds_from.get(b.ix()) as usize..self.preds_from.get(b.ix() + 1) as usize;
        self.preds[range].iter().map(|p| BlockId(*p))
    }

    /// Adds the blocks that these returns and jumps end to [`Cfg::switched`].
    pub fn add_switched(&mut self, ends: impl Iterator<Item = InsnId>) {
        let blocks: Vec<BlockId> = ends.map(|end| self.block_of(end)).collect();
        self.switched.extend(blocks);
        self.switched.sort_unstable();
        self.switched.dedup();
    }

    /// Nothing is known of where these jumps lead.
    pub fn set_unknown(&mut self, jumps: impl Iterator<Item = InsnId>) {
        for jump in jumps {
            let b = self.block_of(jump);
            self.blocks[b.ix()].end = End::UnknownJmp.into();
        }
    }

    /// Adds what the frames say: landing pads, and what frames are found by.
    pub fn add_frames(&mut self, insns: &Insns, frames: &[FdeInfo]) {
        let framed = frames.iter().flat_map(|f| &f.found_by).map(|&(from, to, register)| {
            let range = insns.main_range(from, to);
            (InsnId(range.start as u32), InsnId(range.end as u32), RegSet::of_dwarf(register))
        });
        self.framed.extend(framed.filter(|(from, to, _)| from < to));
        self.framed.sort_unstable_by_key(|f| (f.0, f.1));
        for frame in frames.iter().filter(|f| !f.landing_pads.is_empty()) {
            let ids = |&(from, to): &(Vaddr, Vaddr)| {
                let range = insns.main_range(from, to);
                (InsnId(range.start as u32), InsnId(range.end as u32))
            };
            self.caught.extend(frame.caught.iter().map(ids).filter(|(from, to)| from < to));
            let mut to: Vec<BlockId> =
                frame.landing_pads.iter().filter_map(|&va| Some(self.block_of(insns.at(va)?))).collect();
            to.sort_unstable();
            to.dedup();
            let calls = |b: &BlockId| {
                matches!(self.blocks[b.ix()].end(), End::Call(_) | End::UnknownCall | End::DescriptorCall)
            };
            let from: Vec<BlockId> = self.blocks_of(insns.main_range(frame.start, frame.end)).filter(calls).collect();
            if !from.is_empty() && !to.is_empty() {
                self.pads.push(Pads { from, to });
            }
        }
        self.caught.sort_unstable();
        self.pads.sort_by_key(|p| p.from[0]);
        if !self.pads.is_empty() {
            self.padded = vec![0; self.blocks.len().div_ceil(64)];
            self.pads.iter().flat_map(|p| &p.from).for_each(|b| set(&mut self.padded, b.ix()));
        }
    }

    /// Where an exception that the call at the end of `b` lets through may continue.
    #[inline]
    pub fn pads_of(&self, b: BlockId) -> &[BlockId] {
        if self.padded.is_empty() || !is_set(&self.padded, b.ix()) {
            return &[];
        }
        let at = self.pads.partition_point(|p| p.from[0] <= b);
        let pads = at.checked_sub(1).map(|k| &self.pads[k]).filter(|p| p.from.binary_search(&b).is_ok());
        pads.map_or(&[], |p| &p.to)
    }

    /// The instructions of `b`, from and to, from which an exception may lead to a landing pad: the call that ends it, and what may fault, if a
    /// handler may throw. Those of its neighbours may be among them.
    #[inline]
    pub fn caught_of(&self, b: BlockId) -> &[(InsnId, InsnId)] {
        if self.caught.is_empty() {
            return &[];
        }
        let BasicBlock { first, stop, .. } = self.blocks[b.ix()];
        let from = self.caught.partition_point(|c| c.1 <= first);
        let count = self.caught[from..].partition_point(|c| c.0 < stop);
        &self.caught[from..from + count]
    }

    /// The instructions of `b`, from and to, at which unwinders find the frame by these registers. Those of its neighbours may be among them.
    #[inline]
    pub fn framed_of(&self, b: BlockId) -> &[(InsnId, InsnId, RegSet)] {
        let BasicBlock { first, stop, .. } = self.blocks[b.ix()];
        let from = self.framed.partition_point(|f| f.1 <= first);
        let count = self.framed[from..].partition_point(|f| f.0 < stop);
        &self.framed[from..from + count]
    }

    /// The block that contains an instruction.
    #[inline]
    pub fn block_of(&self, i: InsnId) -> BlockId {
        BlockId(self.firsts.before(i.ix() + 1) - 1)
    }

    /// The blocks that contain instructions which follow each other.
    pub fn blocks_of(&self, insns: std::ops::Range<usize>) -> impl Iterator<Item = BlockId> + use<> {
        let ids = match insns.end.checked_sub(1).filter(|last| *last >= insns.start) {
            Some(last) => self.block_of(InsnId(insns.start as u32)).0..self.block_of(InsnId(last as u32)).0 + 1,
            None => 0..0,
        };
        ids.map(BlockId)
    }

    /// All block numbers.
    #[inline]
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = BlockId> + use<> {
        (0..self.blocks.len() as u32).map(BlockId)
    }
}
