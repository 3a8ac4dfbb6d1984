//! Cfg, Facts -> returns that take a word which their function has put there, on whatever way.
//!
//! Input: a graph in which each return counts as what the instructions in front of it show ([`crate::cfg::computed::return_of`], which stops at a branch).
//! Output: the returns that are indirect jumps none the less: `push x; jmp 1f; ...; 1: ret`; and the jumps to functions with something pushed, which are
//! calls in other words. A forward analysis of heights: bytes by which rsp is higher than where its function was entered, if all ways agree. The return
//! address lies at height 0.
//! **Invariant**: an ordinary return happens at height 0, and nobody has written to the word there.
//! Source: SDM volume 2, RET; psABI section 3.2.2.

use super::facts::Facts;
use super::red_zone;
use crate::cfg::{BlockId, Cfg, End};
use crate::disasm::{Flow, InsnId, Insns};
use crate::image::Image;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::collections::BTreeSet;

/// What is known where a block begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No way has been followed to it.
    Unseen,
    Known(Frame),
    /// Ways differ, or one is not understood.
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Frame {
    height: i32,
    /// The return address may have been written over.
    written: bool,
}

/// What is found.
#[derive(Default)]
pub struct Pushed {
    /// Returns that are jumps, though the instructions in front of them do not show it.
    pub returns: BTreeSet<InsnId>,
    /// Jumps to where a function begins, with something in front of the return address.
    pub calls: BTreeSet<InsnId>,
}

/// Looks at all functions.
pub fn find(image: &Image, insns: &Insns, facts: &Facts, cfg: &Cfg) -> Pushed {
    let code = Code::new(image, insns, facts);
    let entries = entries(insns, cfg);
    let entry = State::Known(Frame { height: 0, written: false });
    let mut states: Vec<State> = entries.iter().map(|&e| if e { entry } else { State::Unseen }).collect();
    let mut work: Vec<BlockId> = cfg.ids().filter(|b| entries[b.ix()]).collect();
    let mut found = Pushed::default();
    while let Some(b) = work.pop() {
        let block = &cfg.blocks[b.ix()];
        let last = InsnId(block.stop.0 - 1);
        let returns = matches!(insns.flow(last), Flow::Call | Flow::IndirectCall) && !calls_next(insns, last);
        let stop = if returns || block.end() == End::Ret { last } else { block.stop };
        let behind = match states[b.ix()] {
            State::Known(frame) => code.walk(frame, block.first, stop),
            _ => None,
        };
        let is_pushed = behind.is_some_and(|f| f.height < 0 || (f.height == 0 && f.written));
        if block.end() == End::Ret {
            found.returns.remove(&last);
            if is_pushed {
                found.returns.insert(last);
            }
            continue;
        }
        found.calls.remove(&last);
        for &to in cfg.succ(b) {
            // What calls never come back to is reached by other ways.
            let is_other = cfg.preds(to).len() > 1 || entries[to.ix()] || is_start(insns, cfg, to);
            if returns && is_other {
                continue;
            }
            if entries[to.ix()] {
                let jumps = insns.flow(last) == Flow::Jmp && cfg.blocks[to.ix()].end() != End::GotJmp;
                if jumps && is_pushed {
                    found.calls.insert(last);
                }
                continue;
            }
            let met = match (states[to.ix()], behind) {
                (State::Unseen, Some(frame)) => State::Known(frame),
                (State::Known(known), Some(frame)) if known.height == frame.height => {
                    State::Known(Frame { written: known.written || frame.written, ..known })
                }
                _ => State::Unknown,
            };
            if states[to.ix()] != met {
                states[to.ix()] = met;
                work.push(to);
            }
        }
    }
    found
}

/// By block: whether it is entered with its return address at rsp.
fn entries(insns: &Insns, cfg: &Cfg) -> Vec<bool> {
    let mut entries: Vec<bool> = cfg.ids().map(|b| cfg.root[b.ix()] && cfg.preds(b).len() == 0).collect();
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
            _ if red_zone::may_use(insn) => Moves::Look,
            _ => Moves::By(insn.stack_pointer_increment()),
        };
        Code { image, insns, facts, moves: facts.kinds().iter().map(|kind| of(&kind.sample)).collect() }
    }

    /// What is known behind the instructions; `None`: nothing.
    fn walk(&self, mut frame: Frame, first: InsnId, stop: InsnId) -> Option<Frame> {
        for id in (first.0..stop.0).map(InsnId) {
            let by = match self.moves[self.facts.kind(id).ix()] {
                Moves::By(by) => by,
                Moves::Look => {
                    let insn = self.insns.decode(self.image, id);
                    let at = writes_at_rsp(&insn).map(|displacement| i64::from(frame.height) + displacement);
                    frame.written |= at == Some(0);
                    step(&insn)?
                }
            };
            frame.height = frame.height.checked_add(by)?;
        }
        Some(frame)
    }
}

/// By how much the instruction raises rsp; `None`: nobody knows.
fn step(insn: &Instruction) -> Option<i32> {
    let on_rsp = insn.op_count() > 0 && insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RSP;
    let constant = matches!(insn.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
    let by = match insn.mnemonic() {
        Mnemonic::Leave | Mnemonic::Enter => return None,
        Mnemonic::Xchg if insn.op1_register() == Register::RSP => return None,
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push if on_rsp => i64::from(insn.stack_pointer_increment()),
        Mnemonic::Add if on_rsp && constant => insn.immediate(1) as i64,
        Mnemonic::Sub if on_rsp && constant => (insn.immediate(1) as i64).checked_neg()?,
        Mnemonic::Inc if on_rsp => 1,
        Mnemonic::Dec if on_rsp => -1,
        Mnemonic::Lea if on_rsp && insn.memory_base() == Register::RSP && insn.memory_index() == Register::None => {
            insn.memory_displacement64() as i64
        }
        _ if on_rsp => return None,
        _ => i64::from(insn.stack_pointer_increment()),
    };
    i32::try_from(by).ok()
}

/// The displacement of the place relative to rsp that the instruction writes to.
fn writes_at_rsp(insn: &Instruction) -> Option<i64> {
    let writes = matches!(
        insn.mnemonic(),
        Mnemonic::Mov | Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Xchg | Mnemonic::Xor
    );
    let at_rsp =
        insn.op0_kind() == OpKind::Memory || insn.op1_kind() == OpKind::Memory && insn.mnemonic() == Mnemonic::Xchg;
    (writes && at_rsp && insn.memory_base() == Register::RSP && insn.memory_index() == Register::None)
        .then(|| insn.memory_displacement64() as i64)
}
