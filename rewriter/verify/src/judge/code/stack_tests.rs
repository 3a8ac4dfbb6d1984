//! Whether rsp is tested wherever it is made from something that may be no stack address.
//!
//! Input: decoded text, sites, registers that hold stack addresses. Output: findings. Accesses through rsp are exempt because stacks are
//! private: a stack pointer from elsewhere must be found to lie outside the segment's window before anything else runs, or the run ends.
//! **Invariant**: what an instruction makes rsp from is told from its effects: whatever writes rsp and is not known here to keep it on its stack is tested.
//! Source: `rewriter/DESIGN.md`, "What the private stack rests on"; SDM volume 2, BT.

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::decode::effects::bit;
use crate::facts::stack::Stack;
use crate::file::module::Module;
use crate::graph::blocks::Graph;
use crate::sites::site::Sites;
use crate::sites::stack_test::{From, from};

/// The finding for a stack pointer that nothing tests.
pub(crate) const UNTESTED: &str = "rsp may lead into shared memory from here on, and is not tested";

/// The same behind an instruction of unknown effects.
const UNKNOWN: &str = "may change rsp, which is not tested: its effects are none that the audit knows";

/// Looks at every instruction that changes rsp.
pub(crate) fn demand(m: &Module, text: &Code, sites: &Sites, g: &Graph, stack: &Stack, audit: &mut Audit) {
    for b in 0..g.starts.len() {
        stack.each(g, text, sites, b, |k, derived| {
            let i = &text.insns[k];
            let known = match from(i) {
                From::Stack => true,
                From::Register(r) => r < 16 && derived & bit(r) != 0,
                From::Elsewhere => false,
            };
            let follows = text.insns.get(k + 1).is_some_and(|next| next.va == i.end());
            let tested = follows && sites.behind_stack_test(k + 1).is_some();
            if !known && !tested {
                let unknown = i.fx.writes == u16::MAX;
                audit.finding(i.va, m.place(i.va), if unknown { UNKNOWN } else { UNTESTED });
            }
        });
    }
}
