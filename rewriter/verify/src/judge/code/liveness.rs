//! What inserted code changes is dead where the program goes on.
//!
//! Input: sites, graph, [`crate::facts::live`]. Output: findings. **Invariant**: a change that is dead only if jumps without a table are tail calls is counted as trusted.

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::facts::callees;
use crate::facts::live::{Assumptions, Live, Set};
use crate::facts::stack_depth::Depths;
use crate::file::module::Module;
use crate::graph::blocks::Graph;
use crate::judge::old_code::springboards::Old;
use crate::sites::site::{Site, Sites};

/// What inserted code changes is dead where the program goes on.
pub(crate) fn liveness(
    m: &Module,
    text: &Code,
    sites: &Sites,
    old: &Old,
    g: &Graph,
    depths: &Depths,
    audit: &mut Audit,
) {
    let code = |va: u64| {
        let section = m.sections.iter().any(|s| s.exec && va.wrapping_sub(s.va) < s.data.len() as u64);
        let new = if text.at(va).is_some() { Some(va) } else { old.new_address(m, va) };
        let begin =
            new.and_then(|va| text.at(va)).map(|i| (i, g.block_of(i))).filter(|&(i, b)| g.starts[b] == i as u32);
        section.then(|| begin.map_or(callees::NO_BLOCK, |(_, b)| b as u32))
    };
    let live = |assume| Live::new(g, text, sites, depths, &code, assume);
    let strict = live(Assumptions { jumps_are_tail_calls: false, follow_returns: true });
    let mut doubtful: Vec<(usize, usize, Set)> = Vec::new();
    for s in sites.list.iter().filter(|s| s.problem.is_none()) {
        for (at, dirty) in clobbers(s) {
            if dirty == 0 || at >= text.insns.len() {
                continue;
            }
            let hit = strict.before(g, text, sites, g.block_of(at), at) & dirty;
            if hit != 0 {
                doubtful.push((s.access, at, dirty));
            }
        }
    }
    if doubtful.is_empty() {
        return;
    }
    let tail = live(Assumptions { jumps_are_tail_calls: true, follow_returns: true });
    let local = live(Assumptions { jumps_are_tail_calls: true, follow_returns: false });
    for (access, at, dirty) in doubtful {
        let b = g.block_of(at);
        let va = text.insns[access].va;
        let hit = |l: &Live| l.before(g, text, sites, b, at) & dirty;
        if hit(&local) != 0 {
            audit.finding(va, m.place(va), format!("inserted code changes {}, live here", names(hit(&local))));
        } else if hit(&tail) != 0 {
            audit.finding(
                va,
                m.place(va),
                format!(
                    "inserted code changes {}, live in a caller of a function that returns here",
                    names(hit(&tail))
                ),
            );
        } else {
            audit.trust("scratch registers dead if indirect jumps without a table are tail calls", 1);
        }
    }
}

/// Where a site's changes must be dead, and what they are.
fn clobbers(s: &Site) -> [(usize, Set); 2] {
    let set = |r: u16, f: u8| Set::from(r) | Set::from(f) << 16;
    [(s.access, set(s.dirty, s.dirty_flags)), (s.access + 1, set(s.dirty_after, s.dirty_after_flags))]
}

fn names(s: Set) -> String {
    const NAMES: [&str; 22] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
        "CF", "PF", "AF", "ZF", "SF", "OF",
    ];
    NAMES.iter().enumerate().filter(|(k, _)| s >> k & 1 == 1).map(|(_, n)| *n).collect::<Vec<_>>().join(" ")
}
