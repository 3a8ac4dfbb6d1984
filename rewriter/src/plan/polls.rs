//! Cfg -> [`Polls`]: in front of which blocks the program looks for messages of other nodes.
//!
//! A node that waits for another one waits until that one polls, misses, or calls the runtime. So no run between two polls may be endless,
//! or as long as the input makes it: every cycle of the code has a poll.
//!
//! *Loops.* To begin with, all targets of address-wise backward branches poll: every cycle within a function has one of them, because what is
//! not such a branch leads to a higher address. Then each of them is left out again, the most deeply nested first, from which no way leads
//! back to itself without another poll (`--no-poll-placement` keeps them all): what is jumped back to but is no loop, and the heads of outer loops
//! of which every iteration comes through an inner one.
//!
//! *Edges of unknown target.* A call or tail call through a pointer, the GOT or the PLT may lead to any place that something outside of the
//! graph may enter ([`Cfg::root`]), so it counts as closing a cycle. Every way from such a place to such an edge has a poll: in the block of the
//! edge, unless there is one on the way. A PLT entry has none of its own: whoever calls it or jumps to it counts as the edge.
//! An unresolved jump always has a poll in its block, because it may also lead to any block of its own function.
//!
//! *Recursion.* What remains are cycles of direct calls. Functions that can call each other in a circle without a poll have
//! one in front of a call in each circle: not at the entry, where debuggers look for the prologue.
//!
//! *Returns* close no cycle of their own. A return leads behind the call of its activation. An activation that goes on for ever loops, and an
//! endless chain of activations is a cycle of calls. A return to an address that was just pushed is an unresolved jump ([`End::UnknownJmp`]).
//! One that is not proven to take its function's own return address ([`crate::facts::stack_depth`]) polls ([`Cfg::switched`]): threaded code and
//! switches of stacks return to what nothing called.
//!
//! *Where in its block* a poll stands is open: whoever enters the block comes by. It stands in front of the first instruction where the status
//! flags are free, at the head of a loop; else in front of the last one, a call or an instruction before an unresolved jump, at which they count as live:
//! saving them costs five times what the poll does.
//!
//! **Invariant**: a block has one poll at most. The blocks without one have no cycle, with the edges of [`Cfg::succ`], from calls to landing pads
//! and to callees, and from edges of unknown target to all roots. `verify` looks for one in the output.
//! Source: design section 5 (polls).

use crate::base::collections::ranked_bits::{RankedBits, set};
use crate::decode::insn::InsnId;
use crate::decode::regs::RegSet;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::plan::checks::{Fuel, PassCounts, PassInput, PollReason, Polls};
use crate::plan::decision::Decisions;

/// While they are placed, and what was done.
#[derive(Default)]
struct Placing {
    /// By block: it has a poll.
    at: Vec<bool>,
    left_out: u64,
    /// Blocks that have one in front of what ends them: because of recursion, or of a target that is not known.
    at_end: Vec<(BlockId, PollReason)>,
}

/// Whether a block ends with a jump that may lead anywhere, or with a return that belongs to no call.
fn is_wild(cfg: &Cfg, b: BlockId) -> bool {
    matches!(cfg.blocks[b.ix()].end(), End::FramedJmp | End::UnknownJmp) || cfg.switched.binary_search(&b).is_ok()
}

/// Places the polls of a module; counts what was done.
pub fn place(input: &PassInput, fuel: &mut Fuel, counts: &mut PassCounts) -> Polls {
    let PassInput { insns, cfg, facts, live, options, .. } = *input;
    let mut placing = Placing { at: cfg.loop_head.clone(), ..Placing::default() };
    let polls = &mut placing;
    for pads in &cfg.pads {
        for &pad in &pads.to {
            let first = |b: BlockId| cfg.blocks[b.ix()].first;
            let backward = pads.from.last().is_some_and(|&call| insns.va(first(pad)) <= insns.va(first(call)));
            polls.at[pad.ix()] |= backward;
        }
    }
    if options.place_polls {
        leave_out(cfg, polls, fuel);
    }
    close_unknown(cfg, polls);
    break_recursion(cfg, polls);
    let because = |why| polls.at_end.iter().filter(|end| end.1 == why).count() as u64;
    counts.polls_left_out = polls.left_out;
    (counts.polls_recursive, counts.polls_unknown) =
        (because(PollReason::Recursion), because(PollReason::UnknownTarget));
    polls.at_end.sort_unstable_by_key(|end| end.0);
    let mut blocks = vec![0; cfg.blocks.len().div_ceil(64)];
    let mut at = Vec::new();
    let mut before = Vec::new();
    for b in cfg.ids() {
        // At the head of a loop, or in front of what ends the block.
        let why = match polls.at_end.binary_search_by_key(&b, |end| end.0) {
            Ok(k) => polls.at_end[k].1,
            Err(_) if polls.at[b.ix()] => PollReason::Loop,
            Err(_) if is_wild(cfg, b) => PollReason::UnknownTarget,
            Err(_) => continue,
        };
        let head = why == PollReason::Loop;
        let block = &cfg.blocks[b.ix()];
        before.clear();
        live.before_each(cfg, facts, b, &mut before);
        let free = |k: &usize| !before[*k].meets(RegSet::FLAGS);
        let count = block.stop.ix() - block.first.ix();
        let best = if head { (0..count).find(free) } else { (0..count).rev().find(free) };
        let simple = if head { 0 } else { count - 1 };
        // Without the choice they stand there, whatever is live.
        let k = best.filter(|_| options.place_polls).unwrap_or(simple);
        counts.polls_moved += u64::from(k != simple);
        set(&mut blocks, b.ix());
        at.push((InsnId(block.first.0 + k as u32), why));
    }
    Polls { blocks: RankedBits::from_bits(blocks), at }
}

/// Polls of plain code that has learnt: in each loop, where it tests an access. Who touches shared memory there is asked for some, too, and a signal costs both
/// sides more than all polls of many iterations. What tests nothing stays as it is.
pub fn of_learnt(input: &PassInput, decisions: &Decisions) -> Polls {
    let PassInput { cfg, facts, live, .. } = *input;
    let part = components(cfg);
    let mut members = vec![0u32; part.iter().max().map_or(0, |last| *last as usize + 1)];
    part.iter().for_each(|p| members[*p as usize] += 1);
    let mut blocks = vec![0; cfg.blocks.len().div_ceil(64)];
    let mut at = Vec::new();
    let mut before = Vec::new();
    for b in cfg.ids() {
        let block = &cfg.blocks[b.ix()];
        let loops = members[part[b.ix()] as usize] > 1 || Leads::within(cfg, b).any(|to| to == b);
        if !loops || !(block.first.0..block.stop.0).any(|i| decisions.get(InsnId(i)).is_tested()) {
            continue;
        }
        before.clear();
        live.before_each(cfg, facts, b, &mut before);
        // Nobody needs it, so it saves no flags.
        let free = |k: &usize| !before[*k].meets(RegSet::FLAGS);
        if let Some(k) = (0..block.stop.ix() - block.first.ix()).find(free) {
            set(&mut blocks, b.ix());
            at.push((InsnId(block.first.0 + k as u32), PollReason::Loop));
        }
    }
    Polls { blocks: RankedBits::from_bits(blocks), at }
}

/// Leaves out what no cycle needs.
fn leave_out(cfg: &Cfg, polls: &mut Placing, fuel: &mut Fuel) {
    let part = components(cfg);
    let depth = depths(cfg);
    let mut heads: Vec<BlockId> = cfg.ids().filter(|b| polls.at[b.ix()]).collect();
    heads.sort_by_key(|b| std::cmp::Reverse(depth[b.ix()]));
    let mut seen = vec![u32::MAX; cfg.blocks.len()];
    let mut work = Vec::new();
    for (round, &head) in heads.iter().enumerate() {
        let goes_on = |b: BlockId| part[b.ix()] == part[head.ix()] && (b == head || !polls.at[b.ix()]);
        if comes_back(cfg, head, goes_on, &mut seen, round as u32, &mut work) {
            continue;
        }
        if !fuel.take() {
            return;
        }
        polls.at[head.ix()] = false;
        polls.left_out += 1;
    }
}

/// Whether a way leads from a block to itself through such blocks.
/// `seen`: by block, the last round in which it was; `work` is anything.
fn comes_back(
    cfg: &Cfg,
    head: BlockId,
    goes_on: impl Fn(BlockId) -> bool,
    seen: &mut [u32],
    round: u32,
    work: &mut Vec<BlockId>,
) -> bool {
    work.clear();
    work.push(head);
    while let Some(b) = work.pop() {
        for to in Leads::within(cfg, b).filter(|to| goes_on(*to)) {
            if to == head {
                return true;
            }
            if std::mem::replace(&mut seen[to.ix()], round) != round {
                work.push(to);
            }
        }
    }
    false
}

/// By block: how many stretches between a backward branch and its target it lies in. (Blocks follow each other as their instructions do.)
fn depths(cfg: &Cfg) -> Vec<i32> {
    let mut depth = vec![0i32; cfg.blocks.len() + 1];
    for b in cfg.ids() {
        for to in cfg.succ(b).iter().filter(|to| **to <= b) {
            depth[to.ix()] += 1;
            depth[b.ix() + 1] -= 1;
        }
    }
    let mut sum = 0;
    for d in &mut depth {
        sum += *d;
        *d = sum;
    }
    depth
}

/// Whether a block is a PLT entry: nobody but those who call it or jump to it comes to its jump.
fn is_stub(cfg: &Cfg, b: BlockId) -> bool {
    let fallen_into = || b.0.checked_sub(1).is_some_and(|before| cfg.preds(b).any(|p| p.0 == before));
    cfg.blocks[b.ix()].end() == End::GotJmp && !cfg.root[b.ix()] && !fallen_into()
}

/// Whether an edge of unknown target leaves a block, directly or through a PLT entry.
fn leaves(cfg: &Cfg, b: BlockId) -> bool {
    match cfg.blocks[b.ix()].end() {
        End::GotJmp | End::UnknownCall | End::DescriptorCall | End::FramedJmp | End::UnknownJmp => true,
        End::Plain | End::Call(_) | End::Ret | End::Stop => Leads::everywhere(cfg, b).any(|to| is_stub(cfg, to)),
    }
}

/// Puts polls in front of edges of unknown target to which a way leads from a root without one.
fn close_unknown(cfg: &Cfg, polls: &mut Placing) {
    let mut seen: Vec<bool> = cfg.root.clone();
    let mut work: Vec<BlockId> = cfg.ids().filter(|b| seen[b.ix()]).collect();
    while let Some(b) = work.pop() {
        if polls.at[b.ix()] {
            continue;
        }
        if leaves(cfg, b) {
            polls.at[b.ix()] = true;
            polls.at_end.push((b, PollReason::UnknownTarget));
            continue;
        }
        for to in Leads::everywhere(cfg, b) {
            if !std::mem::replace(&mut seen[to.ix()], true) {
                work.push(to);
            }
        }
    }
}

/// Puts polls where functions call each other in a circle.
fn break_recursion(cfg: &Cfg, polls: &mut Placing) {
    // Retreating edges of a depth-first search: every cycle has one.
    let mut state = vec![State::New; cfg.blocks.len()];
    let mut work: Vec<Leads> = Vec::new();
    for start in cfg.ids() {
        if state[start.ix()] != State::New || polls.at[start.ix()] {
            continue;
        }
        state[start.ix()] = State::Open;
        work.push(Leads::everywhere(cfg, start));
        while let Some(next) = work.last_mut() {
            let b = next.from;
            let Some(to) = next.next() else {
                state[b.ix()] = State::Done;
                work.pop();
                continue;
            };
            match state[to.ix()] {
                _ if polls.at[to.ix()] || polls.at[b.ix()] => {}
                State::New => {
                    state[to.ix()] = State::Open;
                    work.push(Leads::everywhere(cfg, to));
                }
                // All circles over this edge go through both of its ends.
                State::Open => {
                    polls.at[b.ix()] = true;
                    polls.at_end.push((b, PollReason::Recursion));
                }
                State::Done => {}
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

/// Where a block leads, one after the other: callee, landing pads, successors, each list from its end.
struct Leads<'x> {
    from: BlockId,
    callee: Option<BlockId>,
    pads: &'x [BlockId],
    succ: &'x [BlockId],
}

impl<'x> Leads<'x> {
    /// Within its function, exceptions included.
    fn within(cfg: &'x Cfg, from: BlockId) -> Leads<'x> {
        let calls = matches!(cfg.blocks[from.ix()].end(), End::Call(_) | End::UnknownCall | End::DescriptorCall);
        Leads { from, callee: None, pads: if calls { cfg.pads_of(from) } else { &[] }, succ: cfg.succ(from) }
    }

    /// Calls included.
    fn everywhere(cfg: &'x Cfg, from: BlockId) -> Leads<'x> {
        let callee = match cfg.blocks[from.ix()].end() {
            End::Call(callee) => Some(callee),
            _ => None,
        };
        Leads { callee, ..Leads::within(cfg, from) }
    }
}

impl Iterator for Leads<'_> {
    type Item = BlockId;
    fn next(&mut self) -> Option<BlockId> {
        let last = |list: &mut &[BlockId]| {
            let (last, others) = list.split_last()?;
            *list = others;
            Some(*last)
        };
        self.callee.take().or_else(|| last(&mut self.pads)).or_else(|| last(&mut self.succ))
    }
}

/// Strongly connected components: a number for each block, the same for those that lead to each other (Tarjan, without recursion).
fn components(cfg: &Cfg) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let n = cfg.blocks.len();
    let (mut order, mut low, mut part) = (vec![NONE; n], vec![0u32; n], vec![NONE; n]);
    let (mut count, mut parts) = (0u32, 0u32);
    let mut open: Vec<BlockId> = Vec::new();
    let mut work: Vec<Leads> = Vec::new();
    let enter = |b: BlockId, order: &mut [u32], low: &mut [u32], count: &mut u32| {
        (order[b.ix()], low[b.ix()]) = (*count, *count);
        *count += 1;
        Leads::within(cfg, b)
    };
    for start in cfg.ids() {
        if order[start.ix()] != NONE {
            continue;
        }
        open.push(start);
        work.push(enter(start, &mut order, &mut low, &mut count));
        while let Some(next) = work.last_mut() {
            let b = next.from;
            if let Some(to) = next.next() {
                if order[to.ix()] == NONE {
                    open.push(to);
                    work.push(enter(to, &mut order, &mut low, &mut count));
                } else if part[to.ix()] == NONE {
                    low[b.ix()] = low[b.ix()].min(order[to.ix()]);
                }
                continue;
            }
            work.pop();
            if let Some(above) = work.last().map(|above| above.from.ix()) {
                low[above] = low[above].min(low[b.ix()]);
            }
            if low[b.ix()] == order[b.ix()] {
                while let Some(member) = open.pop() {
                    part[member.ix()] = parts;
                    if member == b {
                        break;
                    }
                }
                parts += 1;
            }
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use crate::base::options::{Options, Poll};
    use crate::pipeline;
    use crate::plan::checks::PassCounts;
    use crate::reports::audit::verify_with;
    use crate::tests::passes::program;

    /// Rewrites, audits, and returns how many polls there are, and what the pass did.
    fn with(body: &str, options: Options) -> (u64, PassCounts) {
        let input = program(body);
        let rewritten = pipeline::rewrite(&input, "p", &options).expect("rewrite");
        let audit = verify_with(&rewritten.bytes, "p", Some(&input)).expect("audit runs");
        assert!(audit.is_clean(), "{body}\n{audit}");
        assert_eq!(audit.polls, rewritten.report.polls, "{body}");
        (audit.polls, rewritten.report.optimiser)
    }

    #[test]
    fn each_cycle_has_one_poll() {
        for (body, polls, left_out) in [
            // A loop; two ways back to its head.
            ("1: dec rdi\n jnz 1b", 1, 0),
            ("1: dec rdi\n jz 2f\n dec rsi\n jz 1b\n jmp 1b\n2: nop", 1, 0),
            // A rare part that jumps back, and no loop: gcc puts them behind the function.
            ("test rdi, rdi\n jz 3f\n2: nop\n jmp 4f\n3: inc rsi\n jmp 2b\n4: nop", 0, 1),
            // Each iteration of the outer loop comes through the inner one.
            ("1: mov rcx, 5\n2: dec rcx\n jnz 2b\n dec rdi\n jnz 1b", 1, 1),
            // The inner one may be passed by.
            ("1: test rcx, rcx\n jz 3f\n2: dec rcx\n jnz 2b\n3: dec rdi\n jnz 1b", 2, 0),
            // Two heads of which every cycle has both.
            ("1: nop\n2: dec rdi\n jz 3f\n dec rsi\n jz 2b\n jmp 1b\n3: nop", 1, 1),
        ] {
            let (found, counts) = with(body, Options::tests());
            assert_eq!((found, counts.polls_left_out, counts.polls_recursive), (polls, left_out, 0), "{body}");
            let all = with(body, Options { place_polls: false, ..Options::tests() });
            assert_eq!((all.0, all.1.polls_left_out), (polls + left_out, 0), "{body}");
            assert_eq!(with(body, Options { fuel: Some(0), ..Options::tests() }).0, polls + left_out, "{body}");
            assert_eq!(with(body, Options { poll: Poll::None, ..Options::tests() }).0, 0, "{body}");
        }
    }

    /// A function that calls itself and has no loop never polled: whoever missed on a block of its node waited until the recursion was over.
    #[test]
    fn recursion_polls() {
        for (body, polls) in [
            ("dec rdi\n jz 1f\n call f\n call f\n1: nop", 1),
            ("dec rdi\n jz 1f\n call h\n1: ret\nh: call f", 1),
            ("dec rdi\n jz 1f\n call h\n1: ret\nh: dec rsi\n jz 2f\n jmp f\n2: nop", 1),
            // The loop around the call polls.
            ("dec rsi\n jz 2f\n1: dec rdi\n call f\n test rdi, rdi\n jnz 1b\n2: nop", 1),
            // No circle.
            ("call g\n call g\n call h\n ret\nh: call g", 0),
        ] {
            for place_polls in [true, false] {
                let (found, counts) = with(body, Options { place_polls, ..Options::tests() });
                let looping = u64::from(body.contains("jnz 1b") || !place_polls && body.contains("jmp f"));
                assert_eq!((found, counts.polls_recursive), (polls, polls - looping.min(polls)), "{body}");
            }
        }
    }

    #[test]
    fn polls_stand_where_no_flags_are_live() {
        for (body, saved) in [
            // Behind the instruction that reads them.
            ("cmp rdi, 5\n1: setc al\n mov rcx, 1\n sub rdi, rcx\n jnz 1b", 1),
            // In front of the last that writes all of them, before a jump that may lead anywhere.
            ("test rdi, rdi\n jz 1f\n mov rcx, rdi\n and rcx, rsi\n mov rdx, rcx\n jmp rcx\n1: setc al", 1),
            // At the head, where they are free.
            ("1: mov rcx, 1\n sub rdi, rcx\n jnz 1b", 0),
        ] {
            let input = program(body);
            for (place_polls, saves) in [(true, 0), (false, saved)] {
                let options = Options { place_polls, ..Options::tests() };
                let rewritten = pipeline::rewrite(&input, "p", &options).expect("rewrite");
                let audit = verify_with(&rewritten.bytes, "p", Some(&input)).expect("audit runs");
                assert!(audit.is_clean(), "{body}\n{audit}");
                let report = rewritten.report;
                assert_eq!((report.polls, report.flag_saves), (1, saves), "{body}");
                assert_eq!(report.optimiser.polls_moved, if place_polls { saved } else { 0 }, "{body}");
            }
        }
    }
}
