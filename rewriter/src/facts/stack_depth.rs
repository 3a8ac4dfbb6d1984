//! Cfg, Facts -> returns that take a word which their function has put there.
//!
//! Input: a graph in which each return counts as one. Output: the returns that are indirect jumps in other words: `push x; ret`, `mov [rsp], x; ret`,
//! `sub rsp, 8; ret`. The returns of which it is not known that they are none: `mov rsp, x; ret`. The jumps to functions with something pushed, which are
//! calls in other words. The jumps with the return address taken off, which are returns. A forward analysis of heights: bytes by which rsp is higher than
//! where its function was entered, if all ways agree. The return address lies at height 0.
//! **Invariant**: an ordinary return happens at height 0, and nobody has written to the word there; that is proven on all ways from the entry of its
//! function. Where nothing is seen to lead, nothing is proven.
//! Source: SDM volume 2, RET; psABI section 3.2.2.

use crate::base::addresses::Vaddr;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::facts::kinds::Facts;
use crate::facts::rsp;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::read::image::Image;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::collections::{BTreeSet, HashSet};

/// What is known at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Frame {
    /// By how much rsp is higher than at the entry; `None`: ways differ, or nobody knows.
    height: Option<i32>,
    /// The height that rbp holds, if it was made from rsp.
    rbp: Option<i32>,
    /// The return address may have been written over.
    written: bool,
    /// Nobody knows how code comes here: heights are those over where it came to.
    lost: bool,
}

const ENTRY: Frame = Frame { height: Some(0), rbp: None, written: false, lost: false };
const LOST: Frame = Frame { lost: true, ..ENTRY };

/// No instruction writes more.
const MOST_BYTES: i64 = 16384;

impl Frame {
    /// What is known where two ways meet.
    fn meet(self, other: Frame) -> Frame {
        Frame {
            height: self.height.filter(|_| self.height == other.height),
            rbp: self.rbp.filter(|_| self.rbp == other.rbp),
            written: self.written || other.written,
            lost: self.lost || other.lost,
        }
    }

    /// Whether a return takes what the function has put there.
    fn is_pushed(self) -> bool {
        self.height.is_some_and(|height| height < 0 || (height == 0 && self.written))
    }

    /// Whether a return takes the function's own return address, and a jump to a function hands it on.
    fn is_at_entry(self) -> bool {
        self.height == Some(0) && !self.written && !self.lost
    }
}

/// What is found.
#[derive(Default)]
pub struct Pushed {
    /// Returns that are jumps.
    pub returns: BTreeSet<InsnId>,
    /// One of them leaves another word pushed where the return address of a function lies: it is a call in other words.
    pub leave_more: bool,
    /// Jumps to where a function begins, with something in front of the return address or without it.
    pub calls: BTreeSet<InsnId>,
    /// Returns of which it is not known: ways differ, rsp comes from elsewhere, a caller's frame is left, too, or no way is seen to lead there.
    pub doubtful: BTreeSet<InsnId>,
    /// Jumps through a register or memory with the return address taken off, returns in other words; through the GOT, with something pushed.
    pub jumps: BTreeSet<InsnId>,
}

/// Looks at all functions. `frame`: where the frame begins and ends that describes an address.
pub fn find(
    image: &Image,
    insns: &Insns,
    facts: &Facts,
    cfg: &Cfg,
    frame: impl Fn(Vaddr) -> Option<(Vaddr, Vaddr)>,
) -> Pushed {
    let code = Code::new(image, insns, facts);
    let entries = entries(insns, cfg, frame);
    let mut frames: Vec<Option<Frame>> = entries.iter().map(|entry| entry.then_some(ENTRY)).collect();
    let mut work: Vec<BlockId> = cfg.ids().filter(|b| entries[b.ix()]).collect();
    let mut found = Pushed::default();
    let is_padding = |b: &BlockId| {
        let block = &cfg.blocks[b.ix()];
        (block.first.0..block.stop.0).all(|i| facts.is_nop(InsnId(i)))
    };
    let mut unseen = cfg.ids().filter(|b| !is_padding(b));
    // Calls that something stands behind which is reached by other ways: from and to. Those of them that come back all the same.
    let (mut waiting, mut back) = (Vec::new(), HashSet::new());
    loop {
        let next = work.pop().or_else(|| {
            let (b, _) = waiting.extract_if(.., |(_, to): &mut (BlockId, BlockId)| frames[to.ix()].is_none()).next()?;
            back.insert(b);
            Some(b)
        });
        let Some(b) = next.or_else(|| unseen.find(|b| frames[b.ix()].is_none())) else { break };
        let before = *frames[b.ix()].get_or_insert(LOST);
        let block = &cfg.blocks[b.ix()];
        let last = InsnId(block.stop.0 - 1);
        let returns = matches!(insns.flow(last), Flow::Call | Flow::IndirectCall) && !calls_next(insns, last);
        let stop = if returns || block.end() == End::Ret { last } else { block.stop };
        let behind = code.walk(before, block.first, stop);
        match block.end() {
            End::Ret => {
                let _ = (found.returns.remove(&last), found.doubtful.remove(&last));
                if behind.is_at_entry() {
                    continue;
                }
                if behind.is_pushed() || code.shows_pushed(last) {
                    found.returns.insert(last);
                    found.leave_more |= behind.height.is_some_and(|h| h < -8 || h == -8 && behind.written);
                } else {
                    found.doubtful.insert(last);
                }
                continue;
            }
            // With a frame of its own it may lead to a place in the function, but not through the GOT.
            end @ (End::FramedJmp | End::GotJmp) => {
                found.jumps.remove(&last);
                if behind.height.is_some_and(|height| height > 0 || end == End::GotJmp && height < 0)
                    && !code.is_lazy_stub(b, cfg)
                {
                    found.jumps.insert(last);
                }
            }
            _ => {}
        }
        // What unwinds leaves rsp as it was at the call.
        let pads = cfg.pads_of(b).iter().map(|&pad| (pad, true));
        for (to, is_pad) in cfg.succ(b).iter().map(|&to| (to, false)).chain(pads) {
            // What calls never come back to is reached by other ways, and begins a function if there are none.
            let is_entry = entries[to.ix()];
            if returns && !is_pad {
                if is_entry || is_start(insns, cfg, to) {
                    continue;
                }
                if cfg.preds(to).len() > 1 && !back.contains(&b) {
                    waiting.push((b, to));
                    continue;
                }
            }
            if is_entry {
                // A tail call, or through the PLT.
                if behind.is_at_entry() || code.is_lazy_stub(b, cfg) {
                    continue;
                }
                found.calls.insert(last);
            }
            let met = frames[to.ix()].map_or(behind, |known| known.meet(behind));
            if frames[to.ix()] != Some(met) {
                frames[to.ix()] = Some(met);
                work.push(to);
            }
        }
    }
    found
}

/// By block: whether it is entered with its return address at rsp.
fn entries(insns: &Insns, cfg: &Cfg, frame: impl Fn(Vaddr) -> Option<(Vaddr, Vaddr)>) -> Vec<bool> {
    // What something names inside a function is where an unknown jump may lead.
    let is_inside = |b: BlockId| frame(insns.va(cfg.blocks[b.ix()].first)).is_some();
    let is_root = |b: BlockId| cfg.root[b.ix()] && cfg.preds(b).len() == 0 && !is_inside(b);
    let mut entries: Vec<bool> = cfg.ids().map(is_root).collect();
    for b in cfg.ids() {
        let block = &cfg.blocks[b.ix()];
        entries[b.ix()] |= is_start(insns, cfg, b) && insns.fragments.binary_search(&block.first).is_err();
        if let End::Call(callee) = block.end()
            && !calls_next(insns, InsnId(block.stop.0 - 1))
        {
            entries[callee.ix()] = true;
        }
    }
    entries
}

fn is_start(insns: &Insns, cfg: &Cfg, b: BlockId) -> bool {
    insns.starts.binary_search(&cfg.blocks[b.ix()].first).is_ok()
}

/// A call of what follows pushes its own address, no more.
fn calls_next(insns: &Insns, call: InsnId) -> bool {
    insns.flow(call) == Flow::Call && insns.target(call) == insns.next(call)
}

/// What an instruction of one kind does to rsp.
#[derive(Clone, Copy)]
enum Moves {
    /// It raises rsp by so much, and names it nowhere.
    By(i32),
    /// It must be looked at.
    Look,
}

struct Code<'x> {
    image: &'x Image<'x>,
    insns: &'x Insns,
    facts: &'x Facts,
    /// By kind.
    moves: Vec<Moves>,
}

impl<'x> Code<'x> {
    fn new(image: &'x Image, insns: &'x Insns, facts: &'x Facts) -> Code<'x> {
        let of = |insn: &Instruction| match insn.mnemonic() {
            Mnemonic::Leave => Moves::Look,
            _ if rsp::may_use(insn) || names_rbp(insn) => Moves::Look,
            _ => Moves::By(insn.stack_pointer_increment()),
        };
        Code { image, insns, facts, moves: facts.kinds().iter().map(|kind| of(&kind.sample)).collect() }
    }

    /// Whether the block only pushes and jumps, as PLTs do that are bound at the first call.
    fn is_lazy_stub(&self, b: BlockId, cfg: &Cfg) -> bool {
        let block = &cfg.blocks[b.ix()];
        let mut pushes = false;
        (block.first.0..block.stop.0 - 1).all(|i| {
            let insn = self.insns.decode(self.image, InsnId(i));
            let push = insn.mnemonic() == Mnemonic::Push && insn.op0_kind() != OpKind::Register;
            pushes |= push;
            push || matches!(insn.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Nop)
        }) && pushes
    }

    /// Whether the instructions in front of `ret` put there what it takes, back to a branch: that shows where ways differ, too.
    fn shows_pushed(&self, ret: InsnId) -> bool {
        let mut first = ret;
        while let Some(id) = first.0.checked_sub(1).map(InsnId) {
            let goes_on = self.insns.flow(id) == Flow::Next || calls_next(self.insns, id);
            if !goes_on || self.insns.next(id) != Some(first) {
                break;
            }
            first = id;
        }
        self.walk(LOST, first, ret).is_pushed()
    }

    /// What is known behind the instructions.
    fn walk(&self, mut frame: Frame, first: InsnId, stop: InsnId) -> Frame {
        for id in (first.0..stop.0).map(InsnId) {
            match self.moves[self.facts.kind(id).ix()] {
                Moves::By(0) => {}
                Moves::By(by) => frame.moved(by),
                Moves::Look => frame.step(&self.insns.decode(self.image, id)),
            }
        }
        frame
    }
}

/// A height and a number of bytes.
fn sum(height: Option<i32>, by: i64) -> Option<i32> {
    i32::try_from(i64::from(height?).checked_add(by)?).ok()
}

impl Frame {
    /// rsp is raised, or lowered by what is pushed.
    fn moved(&mut self, by: i32) {
        let before = self.height;
        self.height = sum(before, i64::from(by));
        // What is pushed may come to stand where the return address stood.
        self.written |= by < 0 && before.is_some_and(|h| h > 0) && self.height.is_none_or(|h| h <= 0);
    }

    /// Follows an instruction that names rsp or rbp.
    fn step(&mut self, insn: &Instruction) {
        let register = |n: u32| {
            (insn.op_count() > n && insn.op_kind(n) == OpKind::Register).then(|| insn.op_register(n).full_register())
        };
        let (to, from) = (register(0), register(1));
        let constant = matches!(insn.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
        let displacement = insn.memory_displacement64() as i64;
        let base = (insn.memory_index() == Register::None).then_some(insn.memory_base());
        if let Some((base, displacement, bytes)) = writes_to_stack(insn) {
            // What is popped into memory finds its place from rsp as it is then.
            let popped = i64::from(insn.stack_pointer_increment().max(0));
            let displacement = displacement + if base == Register::RSP { popped } else { 0 };
            let at = if base == Register::RSP { self.height } else { self.rbp };
            self.written |= sum(at, displacement).is_some_and(|from| from < 8 && i64::from(from) + bytes > 0);
        }
        let (lost_rsp, lost_rbp) = (is_later_result(insn, Register::RSP), is_later_result(insn, Register::RBP));
        match (insn.mnemonic(), to) {
            _ if lost_rsp => self.height = None,
            (Mnemonic::Leave, _) => (self.height, self.rbp) = (sum(self.rbp, 8), None),
            // Pushes rbp, and points it there.
            (Mnemonic::Enter, _) => (self.height, self.rbp) = (None, sum(self.height, -8)),
            (Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push, _) => self.moved(insn.stack_pointer_increment()),
            (Mnemonic::Add, Some(Register::RSP)) if constant => {
                self.height = sum(self.height, insn.immediate(1) as i64)
            }
            (Mnemonic::Sub, Some(Register::RSP)) if constant => {
                self.height = sum(self.height, (insn.immediate(1) as i64).wrapping_neg());
            }
            (Mnemonic::Inc, Some(Register::RSP)) => self.height = sum(self.height, 1),
            (Mnemonic::Dec, Some(Register::RSP)) => self.height = sum(self.height, -1),
            (Mnemonic::Lea, Some(Register::RSP)) if base == Some(Register::RSP) => {
                self.height = sum(self.height, displacement);
            }
            (Mnemonic::Lea, Some(Register::RSP)) if base == Some(Register::RBP) => {
                self.height = sum(self.rbp, displacement);
            }
            (Mnemonic::Mov, Some(Register::RSP)) if from == Some(Register::RBP) => self.height = self.rbp,
            (_, Some(Register::RSP)) => self.height = None,
            (Mnemonic::Mov, Some(Register::RBP)) if from == Some(Register::RSP) => self.rbp = self.height,
            (Mnemonic::Lea, Some(Register::RBP)) if base == Some(Register::RSP) => {
                self.rbp = sum(self.height, displacement);
            }
            (_, Some(Register::RBP)) => {
                self.rbp = None;
                self.moved(insn.stack_pointer_increment());
            }
            _ => self.moved(insn.stack_pointer_increment()),
        }
        if lost_rbp {
            self.rbp = None;
        }
    }
}

/// Whether the instruction writes to the register by another operand than its first: few do (xchg, xadd, mulx).
fn is_later_result(insn: &Instruction, register: Register) -> bool {
    let only_reads = matches!(
        insn.mnemonic(),
        Mnemonic::Mov | Mnemonic::Add | Mnemonic::Sub | Mnemonic::Cmp | Mnemonic::Test | Mnemonic::And
    );
    let mut later = 1..if only_reads { 1 } else { insn.op_count() };
    later.any(|n| {
        let is_it = insn.op_kind(n) == OpKind::Register && insn.op_register(n).full_register() == register;
        let access = || InstructionInfoFactory::new().info(insn).op_access(n);
        is_it && !matches!(access(), OpAccess::Read | OpAccess::CondRead)
    })
}

/// The place relative to rsp or rbp that the instruction writes to, and its bytes.
fn writes_to_stack(insn: &Instruction) -> Option<(Register, i64, i64)> {
    let reads = matches!(
        insn.mnemonic(),
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Call | Mnemonic::Jmp | Mnemonic::Nop
    );
    let to_memory = insn.op_count() > 0 && insn.op0_kind() == OpKind::Memory;
    let exchanged = insn.mnemonic() == Mnemonic::Xchg && insn.op1_kind() == OpKind::Memory;
    let on_stack = matches!(insn.memory_base(), Register::RSP | Register::RBP) && insn.memory_index() == Register::None;
    // What has no size of its own saves states.
    let bytes = Some(insn.memory_size().size() as i64).filter(|bytes| *bytes > 0).unwrap_or(MOST_BYTES);
    let place = || (insn.memory_base(), insn.memory_displacement64() as i64, bytes);
    (!reads && (to_memory || exchanged) && on_stack).then(place)
}

/// Whether an instruction that differs in its displacement only may write to a place relative to rbp, or to rbp itself.
fn names_rbp(insn: &Instruction) -> bool {
    let named = (0..insn.op_count())
        .any(|n| insn.op_kind(n) == OpKind::Register && insn.op_register(n).full_register() == Register::RBP);
    named || (insn.op_count() > 0 && insn.op0_kind() == OpKind::Memory && insn.memory_base() == Register::RBP)
}
