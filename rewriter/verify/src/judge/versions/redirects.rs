//! Functions of plain code that may be entered in their full versions.
//!
//! Input: the table of redirections, plain code, later the pairs of versions. Output: [`Redirect`]s, which the rest of the audit takes for inserted code;
//! findings. **Invariants**: a function with a row begins with [`contract::REDIRECTABLE`], a `nop`; what the runtime may write there jumps to what stands in
//! front, a jump to where the same function begins in full code. Nothing else leads to that jump. Each such function has a row.
//! Source: `rewriter/SEQUENCES.md`, "Guarded code".

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::decode::effects::Flow;
use crate::decode::insn::Insn;
use crate::file::module::Module;
use crate::graph::returns::Returns;
use crate::judge::versions::pairs::{NONE, Version, Versions, bytes, leads_alike};
use crate::sites::site::{Sites, set};
use blizzard_contract as contract;
use std::collections::BTreeSet;

/// Bytes of the jump in front.
const JUMP_BYTES: u8 = 5;

/// A row with what stands at its function.
pub(crate) struct Redirect {
    /// Index of the jump; the `nop` is the next instruction.
    pub(crate) jump: usize,
    from: u64,
    to: u64,
}

/// The rows, ascending, at whose functions the right instructions stand.
pub(crate) fn admit(m: &Module, plain: &Code, audit: &mut Audit) -> Vec<Redirect> {
    let rows = m.redirects().unwrap_or_else(|| {
        let why = "the table of redirections is not in the file, or its parts contradict each other";
        audit.finding(m.info.redirect_codes_va, "table of redirections".into(), why);
        Vec::new()
    });
    let mut found: Vec<Redirect> = Vec::new();
    for (from, to) in rows {
        let mut open = |why: &str| audit.finding(from, m.place(from), format!("the redirection to {to:#x} {why}"));
        let Some(nop) = plain.at(from).filter(|&k| bytes(m, &plain.insns[k]) == contract::REDIRECTABLE) else {
            open("begins with no instruction that may be overwritten");
            continue;
        };
        let jump = nop.checked_sub(1).map(|k| &plain.insns[k]);
        let is_jump = jump.is_some_and(|j| (j.flow, j.len, j.end()) == (Flow::Jump, JUMP_BYTES, from));
        if !is_jump || jump.is_some_and(|j| j.target != to) {
            open("has no jump there in front");
        } else if found.last().is_some_and(|last| last.from >= from) {
            open("is out of order");
        } else {
            found.push(Redirect { jump: nop - 1, from, to });
        }
    }
    found
}

/// They are inserted, and nothing leads to the jumps.
pub(crate) fn mark(found: &[Redirect], sites: &mut Sites) {
    for r in found {
        set(&mut sites.inserted, r.jump);
        set(&mut sites.protected, r.jump);
        set(&mut sites.inserted, r.jump + 1);
    }
}

/// Proves that each leads to the same function, that nothing runs into its jump, and that none is missing.
pub(crate) fn judge(m: &Module, v: &Versions, found: &[Redirect], returns: &Returns, audit: &mut Audit) {
    let (plain, full) = (&v.plain, &v.full);
    let mut rows = BTreeSet::new();
    for r in found {
        rows.insert(r.from);
        let mut open =
            |why: &str| audit.finding(r.from, m.place(r.from), format!("the redirection to {:#x} {why}", r.to));
        if !begins(plain, r.from) || !begins(full, r.to) || !leads_alike(v, r.from, r.to) {
            open("does not lead to where the function begins in full code");
        }
        if goes_on(plain, r.jump, Insn::is_nop, |call| !returns.never(call)) {
            open("is reached by what stands in front of it");
        }
        if m.frames.index(plain.insn(r.jump).va, 0).is_some() {
            open("has a jump in front that a frame describes, of another function");
        }
        if m.functions.iter().any(|f| (f.0 + 1..f.1).contains(&r.from)) {
            open("is in the middle of a function");
        }
    }
    for &(from, _) in m.functions.iter().filter(|f| plain.code.contains(f.0) && !rows.contains(&f.0)) {
        let Some(k) = plain.code.at(from) else { continue };
        let is_twice = v.full_of.get(plain.own_from(k)).is_some_and(|b| *b != NONE);
        // Whether a call comes back, and something leads to a nop in front, the rewriter need not know.
        if is_twice && !goes_on(plain, k, |_| false, |_| true) {
            audit.finding(from, m.place(from), "the table of redirections has no row for this function");
        }
    }
}

/// Whether only padding, and what is inserted, stands between `va` and an instruction of the program.
fn begins(v: &Version, va: u64) -> bool {
    let Some(k) = v.code.at(va) else { return false };
    // A poll may stand in front of an `endbr64`, which is padding here.
    let idle = |k: usize| v.insn(k).is_nop() || v.sites.goes_on(v.code, k);
    let first = v.own.get(v.own_from(k)).map(|&own| v.begin(own as usize));
    first.is_some_and(|first| first == k || k < first && (k..first).all(idle))
}

/// Whether what stands in front of an instruction, traps and what is `idle` aside, goes on there.
fn goes_on(v: &Version, k: usize, idle: impl Fn(&Insn) -> bool, comes_back: impl Fn(usize) -> bool) -> bool {
    let Some(back) = (0..k).rev().find(|&k| !v.insn(k).is_int3() && !idle(v.insn(k))) else { return false };
    match v.insn(back).flow {
        Flow::Next | Flow::Cond => true,
        Flow::Call | Flow::CallInd => comes_back(back),
        Flow::Jump | Flow::JumpInd | Flow::Ret | Flow::Stop => false,
    }
}
