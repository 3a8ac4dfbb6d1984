//! Whether callers keep values over calls through pointers, in registers that the ABI lets a callee change.
//!
//! Purpose: who calls through a pointer knows of the callee what its type says, and a type may name another convention than the ABI's (`ms_abi`, clang's
//! `preserve_most` and `preserve_all`, or `swiftcall`, which returns more than rax and rdx). A module that is compiled so shows it: behind a call through a
//! pointer it reads what the ABI gives up there. Input: the graph, and what instructions read and write. Output: whether code of the
//! module does.
//!
//! A read counts where its value decides something for sure ([`crate::facts::effects::uses`]), behind the call, in the same function and before the next
//! call: what is kept over several calls is kept over the last. Compilers let a register that nobody has set be read on a way on which its value does
//! not matter. So a register counts that is read on all ways, or one of many: in libraries and programs that follow the ABI, the first was never seen, and
//! the second behind one of 76 calls at most. Not seen is who keeps something over such calls only as are followed by a direct one, whose callee leaves it
//! alone (gcc's `-fipa-ra`), or only to pass it on. Source: psABI figure 3.4 (registers across calls).

use crate::base::collections::worklist::Worklist;
use crate::decode::insn::InsnId;
use crate::decode::regs::RegSet;
use crate::facts::kinds::Facts;
use crate::graph::cfg::{BlockId, Cfg, End};

/// What a callee may change and returns nothing in (psABI figure 3.4).
const GIVEN_UP: RegSet = RegSet(RegSet::GPRS.0 & !RegSet::RETURNED.0);
/// Of so many calls, one behind which a register is read on some ways is taken for one that keeps it.
const ONE_OF: usize = 32;

/// Whether callers through pointers keep more than the ABI says.
pub fn is_any(cfg: &Cfg, facts: &Facts) -> bool {
    let begins = beginnings(cfg);
    let calls: Vec<BlockId> = cfg.ids().filter(|b| is(cfg, *b, End::UnknownCall)).collect();
    let behind = Behind::new(cfg, &calls, &begins);
    let count = |ways| {
        let used = behind.solve(cfg, facts, ways);
        calls.iter().filter(|c| cfg.succ(**c).iter().any(|s| used[s.ix()] != RegSet::NONE)).count()
    };
    count(Ways::All) > 0 || count(Ways::Some) * ONE_OF > calls.len()
}

fn is(cfg: &Cfg, b: BlockId, end: End) -> bool {
    cfg.blocks[b.ix()].end() == end
}

/// By block: whether a function begins there. A jump there is a tail call.
fn beginnings(cfg: &Cfg) -> Vec<bool> {
    let mut begins = cfg.root.clone();
    for b in cfg.ids() {
        if let End::Call(callee) = cfg.blocks[b.ix()].end() {
            begins[callee.ix()] = true;
        }
    }
    begins
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ways {
    All,
    Some,
}

/// The blocks that can be reached from return sites of calls without a further call or the beginning of a function.
struct Behind {
    reached: Vec<bool>,
    first: Worklist,
}

impl Behind {
    fn new(cfg: &Cfg, calls: &[BlockId], begins: &[bool]) -> Behind {
        let mut behind = Behind { reached: vec![false; cfg.blocks.len()], first: Worklist::none(cfg.blocks.len()) };
        let mut work = calls.to_vec();
        while let Some(b) = work.pop() {
            for s in cfg.succ(b).iter().filter(|s| !begins[s.ix()]) {
                if !std::mem::replace(&mut behind.reached[s.ix()], true) {
                    behind.first.add(s.ix());
                    work.extend(is(cfg, *s, End::Plain).then_some(*s));
                }
            }
        }
        behind
    }

    /// What is used from the start of each block on: the least solution.
    fn solve(&self, cfg: &Cfg, facts: &Facts, ways: Ways) -> Vec<RegSet> {
        let count = cfg.blocks.len();
        let mut used = vec![RegSet::NONE; count];
        let mut waiting = self.first.clone();
        let mut from = count;
        while let Some(b) = waiting.take_before(from).or_else(|| waiting.take_before(count)) {
            from = b;
            let block = BlockId(b as u32);
            let before = used_from(cfg, facts, block, &used, ways);
            if before != used[b] {
                used[b] = before;
                let ways_in = cfg.preds(block).filter(|p| self.reached[p.ix()] && is(cfg, *p, End::Plain));
                ways_in.for_each(|p| waiting.add(p.ix()));
            }
        }
        used
    }
}

/// What is used from the start of `b` on.
fn used_from(cfg: &Cfg, facts: &Facts, b: BlockId, used: &[RegSet], ways: Ways) -> RegSet {
    let block = &cfg.blocks[b.ix()];
    let (mut found, mut written) = (RegSet::NONE, RegSet::NONE);
    for id in (block.first.0..block.stop.0).map(InsnId) {
        found |= facts.uses(id).without(written);
        written |= facts.stack(id).written();
        if written.contains(GIVEN_UP) {
            return found & GIVEN_UP;
        }
    }
    if block.end() == End::Plain {
        let next = cfg.succ(b).iter().map(|s| used[s.ix()]);
        let next = next.reduce(|x, y| if ways == Ways::All { x & y } else { x | y });
        found |= next.unwrap_or_default().without(written);
    }
    found & GIVEN_UP
}
