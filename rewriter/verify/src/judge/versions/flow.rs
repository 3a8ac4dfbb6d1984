//! Control goes the same ways in both versions.
//!
//! Input: pairs, calls that do not come back, the jump tables of plain code. Output: findings. Jumps and tables of full code lead to full code where it exists,
//! else to plain code; calls lead to plain code; nothing of plain code leads to full code. What shares a frame shares its versions.
//! **Invariant**: nothing lands behind the beginning of a sequence, a poll included: so each way of plain code has in full code the polls that stand on it there.
//! Source: `rewriter/SEQUENCES.md`, "Guarded code".

use crate::audit::Audit;
use crate::decode::effects::Flow;
use crate::decode::insn::{Insn, NO_TARGET, RIP};
use crate::file::module::Module;
use crate::graph::returns::Returns;
use crate::graph::tables::JumpTables;
use crate::judge::versions::pairs::{NONE, Versions, leads_alike};
use crate::judge::versions::redirects::Redirect;
use foldhash::HashSet;

/// Judges every instruction of full code.
pub(crate) fn judge(m: &Module, v: &Versions, redirects: &[Redirect], returns: &Returns, audit: &mut Audit) {
    let mut jumps_out = vec![false; v.full.own.len()];
    for b in 0..v.full.own.len() {
        let Some(a) = v.plain_of[b].try_into().ok().filter(|&a: &usize| a < v.plain.own.len()) else { continue };
        let i = v.full.insn(v.full.own[b] as usize);
        if let Err(why) = targets(v, a, b).and_then(|()| goes_on(v, a, b, returns, &mut jumps_out)) {
            audit.finding(i.va, m.place(i.va), why);
        }
    }
    let mut run = false;
    for (b, jumps_out) in jumps_out.into_iter().enumerate() {
        let stray = v.plain_of[b] == NONE && !jumps_out;
        if stray && !run {
            let va = v.full.insn(v.full.own[b] as usize).va;
            audit.finding(va, m.place(va), "full code that is no instruction of plain code");
        }
        run = stray;
    }
    plain_stays(m, v, redirects, audit);
    frames_are_whole(m, v, audit);
}

/// What an instruction names: jumps, calls, distances.
fn targets(v: &Versions, a: usize, b: usize) -> Result<(), String> {
    let (p, f) = (v.plain.insn(v.plain.own[a] as usize), v.full.insn(v.full.own[b] as usize));
    let right = match p.flow {
        Flow::Jump | Flow::Cond if v.plain.code.contains(p.target) => leads_alike(v, p.target, f.target),
        Flow::Jump | Flow::Cond | Flow::Call => p.target == f.target,
        _ => p.mem.is_none_or(|m| m.base != RIP) || p.mem == f.mem,
    };
    if right { Ok(()) } else { Err(format!("leads elsewhere than the instruction of plain code at {:#x}", p.va)) }
}

/// What runs behind an instruction.
fn goes_on(v: &Versions, a: usize, b: usize, returns: &Returns, jumps_out: &mut [bool]) -> Result<(), String> {
    let (p, f) = (v.plain.own[a] as usize, v.full.own[b] as usize);
    let is_call = match v.plain.insn(p).flow {
        Flow::Next | Flow::Cond => false,
        Flow::Call | Flow::CallInd => true,
        Flow::Jump | Flow::JumpInd | Flow::Ret | Flow::Stop => return Ok(()),
    };
    let next = |own: &[u32], at: usize| own.get(at + 1).map(|&k| k as usize);
    let right = match (next(&v.plain.own, a), next(&v.full.own, b)) {
        (Some(to), Some(on)) => {
            let i = v.full.insn(on);
            if v.full_of[a + 1] == b as u32 + 1 {
                v.plain.breaks(p..to) == v.full.breaks(f..on)
            } else {
                let out = v.full_of[a + 1] == NONE && v.plain_of[b + 1] == NONE && i.flow == Flow::Jump;
                let out = out && v.plain.landing(i.target).is_some_and(|l| l.at == a + 1 && !l.breaks);
                jumps_out[b + 1] |= out;
                out
            }
        }
        _ => false,
    };
    if right || is_call && returns.never(p) {
        Ok(())
    } else {
        Err(format!("what follows it is not what follows it in plain code at {:#x}", v.plain.insn(p).va))
    }
}

/// Nothing of plain code but redirections, and nothing of the file's symbols, leads to full code.
fn plain_stays(m: &Module, v: &Versions, redirects: &[Redirect], audit: &mut Audit) {
    let leads = |i: &Insn| i.target != NO_TARGET && v.full.code.contains(i.target);
    for (k, i) in v.plain.code.insns.iter().enumerate().filter(|(_, i)| leads(i)) {
        if redirects.binary_search_by_key(&k, |r| r.jump).is_ok() {
            continue;
        }
        audit.finding(i.va, m.place(i.va), "plain code leads to full code");
    }
    for s in m.exported.iter().filter(|s| v.full.code.contains(s.va)) {
        audit.finding(s.va, s.name.clone(), "an exported function leads to full code");
    }
}

/// All instructions of a frame have full versions, or none has.
fn frames_are_whole(m: &Module, v: &Versions, audit: &mut Audit) {
    for &(from, to) in m.functions.iter().filter(|f| v.plain.code.contains(f.0)) {
        let own = v.plain.own_from(v.plain.code.lower_bound(from))..v.plain.own_from(v.plain.code.lower_bound(to));
        let full = v.full_of[own.clone()].iter().filter(|b| **b != NONE).count();
        if full != 0 && full != own.len() {
            audit.finding(from, m.place(from), "only a part of the function has a full version");
        }
    }
}

/// How far from the jump table that an instruction of plain code reads that of its full version is: by so much they read apart.
pub(crate) fn table_distance(v: &Versions, read: usize) -> Option<u64> {
    let f = v.full(read)?;
    let (is, was) = (v.full.insn(f).mem?, v.plain.insn(read).mem?);
    Some((is.disp as u64).wrapping_sub(was.disp as u64))
}

/// The jump tables of full code lead where those of plain code do, and nothing else is read elsewhere than there.
pub(crate) fn tables(m: &Module, v: &Versions, tables: &JumpTables, audit: &mut Audit) {
    for &(read, t) in &tables.reads {
        let (Some(by), table) = (table_distance(v, read), &tables.list[t]) else { continue };
        let va = table.va.wrapping_add(by);
        let width = table.form.width();
        let at = |k: usize| m.bytes_at(va.wrapping_add((k * width) as u64), width);
        for (k, &target) in table.targets.iter().enumerate() {
            let is = at(k).map(|entry| table.form.target(entry));
            let right =
                is.is_some_and(
                    |is| if v.plain.code.contains(target) { leads_alike(v, target, is) } else { is == target },
                );
            if !right {
                let why =
                    format!("entry {k} of the jump table in full code does not lead where that in plain code leads");
                audit.finding(va, m.place(v.plain.insn(read).va), why);
            }
        }
    }
    let reads: HashSet<usize> = tables.reads.iter().map(|r| r.0).collect();
    for (a, &b) in v.full_of.iter().enumerate().filter(|(_, b)| **b != NONE) {
        if !v.is_exact(m, a, b as usize) && !reads.contains(&(v.plain.own[a] as usize)) {
            let va = v.full.insn(v.full.own[b as usize] as usize).va;
            audit.finding(va, m.place(va), "is not the instruction of plain code, nor does it read a jump table");
        }
    }
}
