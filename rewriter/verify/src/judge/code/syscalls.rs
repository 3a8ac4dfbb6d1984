//! System calls pass the gate.
//!
//! Input: the decoded new code. Output: it, with each gated call marked as what it is: the address of what follows goes to rcx, the gate
//! executes the call and continues there. What calls the kernel otherwise is a finding, since the kernel looks at no tags.
//! Source: `rt/contract/src/gates.rs` (GATE_SYSCALL), `rewriter/SEQUENCES.md`, "The check sequences"; SDM volume 2, SYSCALL (rcx, r11).

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::decode::effects::{Effects, Flow, RCX, Touch};
use crate::decode::insn::{ADDR32, Insn, NONE, RIP, WIDE};
use crate::file::module::Module;
use crate::sites::site::{Sites, set};
use blizzard_contract as contract;

/// Opcodes of `syscall`, `sysenter` and `int`.
const SYSCALL: u16 = 0x105;
const SYSENTER: u16 = 0x134;

/// Positions of the first instructions of all gated calls; the jumps into the gate no longer count as jumps.
pub(crate) fn admit(m: &Module, text: &mut Code, audit: &mut Audit) -> Vec<usize> {
    let mut gated = Vec::new();
    for k in 0..text.insns.len() {
        let call = &text.insns[k];
        if !matches!(call.op, SYSCALL | SYSENTER) {
            continue;
        }
        let passes = call.op == SYSCALL && k >= 2 && leads(&text.insns[k - 2], &text.insns[k - 1], call);
        if passes {
            let jump = &mut text.insns[k - 1];
            (jump.flow, jump.touch, jump.mem, jump.fx) = (Flow::Next, Touch::None, None, Effects::default());
            gated.push(k - 2);
        } else {
            audit.finding(call.va, m.place(call.va), "system call that does not pass the gate");
        }
    }
    gated
}

/// `lea rcx, [behind the call]; jmp [GATE_SYSCALL]`, without a gap.
fn leads(lea: &Insn, jump: &Insn, call: &Insn) -> bool {
    let behind = lea.mem.is_some_and(|m| m.base == RIP && m.index == NONE && m.disp as u64 == call.end());
    let address = lea.op == 0x8d && lea.r0 == RCX && lea.has(WIDE) && !lea.has(ADDR32) && behind;
    let gate = jump
        .mem
        .is_some_and(|m| m.base == NONE && m.index == NONE && m.seg == 0 && m.disp as u64 == contract::GATE_SYSCALL);
    address && lea.end() == jump.va && jump.flow == Flow::JumpInd && gate && jump.end() == call.va
}

/// What leads to the gate is inserted, and nothing but itself leads to the jump and to the call.
pub(crate) fn mark(gated: &[usize], sites: &mut Sites) {
    for &k in gated {
        set(&mut sites.inserted, k);
        set(&mut sites.inserted, k + 1);
        set(&mut sites.protected, k + 1);
        set(&mut sites.protected, k + 2);
    }
}
