//! Changes of code that change nothing: the rules by which a changed instruction that the audit accepts does what it did.
//!
//! Input: the output, the same with one instruction changed, and that instruction's address. Output: a reason, if there is one. Each rule is a
//! sentence about the two instructions and what follows them. Source: SDM volume 2; psABI 3.2.1 for what calls hand over.

use crate::decode::decoder;
use crate::decode::effects::{ALL_FLAGS, Flow, OF};
use crate::decode::insn::{self, Insn, NONE};
use crate::file::module::Module;
use crate::sites::{find, site, symbolic};
use blizzard_contract as contract;
use std::collections::HashSet;

/// A rewritten file, as the audit sees it.
pub struct Decoded<'f> {
    pub m: Module<'f>,
    pub text: decoder::Code,
    pub cold: decoder::Code,
    pub sites: site::Sites,
}

pub fn decoded(file: &[u8]) -> Decoded<'_> {
    let m = Module::read(file, "p").expect("read module");
    let text = decoder::decode(m.text.data, m.text.va, &[]);
    let cold = decoder::decode(m.cold.data, m.cold.va, &[]);
    let rodata = |va| m.bytes_at(va, 16).and_then(|b| b.try_into().ok());
    let cx = site::Context {
        text: &text,
        cold: &cold,
        check_loads: true,
        check_stores: true,
        polls: true,
        guard: m.info.flags & contract::module_flags::GUARD != 0,
        rodata: &rodata,
    };
    let sites = find::find(&cx);
    Decoded { m, text, cold, sites }
}

/// The program's own instructions in the new code.
fn own_code(file: &[u8]) -> Vec<Insn> {
    let Decoded { text, sites: found, .. } = decoded(file);
    text.insns.iter().enumerate().filter(|(k, _)| !site::get(&found.inserted, *k)).map(|(_, i)| *i).collect()
}

/// Whether the instruction behind one of the cold code makes a register the limit of a loop.
fn sets_limit(file: &[u8], va: u64, reg: u8) -> bool {
    let Decoded { cold, .. } = decoded(file);
    let next = cold.at(va).and_then(|k| cold.insns.get(k + 1));
    next.is_some_and(|i| {
        let at = i.mem.filter(|m| m.base == NONE && m.index == NONE);
        i.op == 0x89 && i.r1 == reg && at.is_some_and(|m| symbolic::none_of(m.disp as u64).is_some())
    })
}

/// Why a change that the audit accepts changes nothing that matters.
pub fn harmless(file: &[u8], mutant: &[u8], va: u64) -> Option<&'static str> {
    let insn = |file: &[u8]| {
        let m = Module::read(file, "p").ok()?;
        let s = if va >= m.cold.va { &m.cold } else { &m.text };
        let at = (va - s.va) as usize;
        decoder::decode(s.data.get(at..(at + 15).min(s.data.len()))?, va, &[]).insns.first().copied()
    };
    let (a, b) = (insn(file)?, insn(mutant)?);
    if a.op == 0x190 && b.is_nop() && dead(&own_code(file), va, OF) {
        return Some("the overflow flag was saved where nothing reads it before it is overwritten, or at a call");
    }
    // Its target is the guarded access.
    if a.op == 0x184 && b.is_nop() && in_cold(file, va) && !in_cold(file, a.target) {
        return Some("a stub asks the gate, too, where it knows that nothing need be done");
    }
    // SDM volume 2, SETcc: the reg field of ModR/M is not used.
    if a.op == 0x190 && b.op == a.op && a.r0 == b.r0 && a.len == b.len {
        return Some("another encoding of the same instruction");
    }
    if a.op == 0x9f && dead(&own_code(file), va, ALL_FLAGS & !OF) {
        return Some(
            "flags were saved where nothing reads them before they are overwritten, or at a call or jump through a register",
        );
    }
    let pops = |i: &Insn| matches!(i.op, 0x58..=0x5f) && i.r0 < 16;
    if pops(&a) && pops(&b) && dead_behind_stub(file, va, a.r0, b.r0) {
        return Some("a stub puts back another register; neither is read before it is overwritten");
    }
    let pushes = |i: &Insn| matches!(i.op, 0x50..=0x57) && i.r0 < 16;
    if pushes(&a) && pushes(&b) && a.r0 == 0 && dead_behind_exchange(file, va) {
        return Some("a stub puts back another value into rax; it is not read before it is overwritten");
    }
    if pushes(&a) && pushes(&b) && is_copy_at_calls(file, va, a.r0, b.r0) {
        return Some("the register pushed by a tail is a copy of the other wherever it is called");
    }
    if a.op == 0x04 && b.is_nop() && stub_leads(file, va).is_some_and(|to| dead(&own_code(file), to, OF)) {
        return Some("the overflow flag was put back where nothing reads it before it is overwritten, or at a call");
    }
    if let (0x8d, 0x8d, Some(m), Some(n)) = (a.op, b.op, a.mem, b.mem)
        && sets_limit(file, va, a.r0)
        && (a.r0, m.base, m.index, m.scale) == (b.r0, n.base, n.index, n.scale)
        && (m.disp > 0) == (n.disp > 0)
        && n.disp.abs() < m.disp.abs()
    {
        return Some("the tests of a loop tell of fewer iterations than they might");
    }
    // What lies between two bytes less than a block apart lies in the block of one of them.
    if let (0x8d, 0x8d, Some(m), Some(n)) = (a.op, b.op, a.mem, b.mem)
        && in_cold(file, va)
        && (a.r0, m.base, m.index, m.scale) == (b.r0, n.base, n.index, n.scale)
        && (1..64).contains(&(n.disp - m.disp))
    {
        return Some(
            "the tests of a loop look at a byte further on than the last one, less than a block behind the first",
        );
    }
    let goes_on = if in_cold(file, va) { stub_leads(file, va) } else { Some(va) };
    if a.op == 0x9e && goes_on.is_some_and(|to| dead(&own_code(file), to, ALL_FLAGS & !OF)) {
        // What became of it is a prefix that means nothing to the next instruction, or changes the carry only, or ah, which is put back.
        let byte = mutant.iter().zip(file).find(|(m, f)| m != f).map(|(m, _)| *m);
        if matches!(byte, Some(0x26 | 0x2e | 0x36 | 0x3e | 0x67 | 0x90 | 0x9f | 0xf5 | 0xf8 | 0xf9)) {
            return Some("flags were put back that nothing reads before they are overwritten, or at a call");
        }
    }
    if a.len != b.len {
        return None;
    }
    if a.op == 0xff && a.ext == 0 {
        return Some("the count in front of a poll: what it became is an access of its own, to no shared memory");
    }
    // Without an index its scale means nothing.
    let mem = |i: &Insn| i.mem.map(|m| if m.index == NONE { insn::Mem { scale: 1, ..m } } else { m });
    let same = a.op == b.op && a.ext == b.ext && mem(&a) == mem(&b) && (a.r0, a.r1, a.imm) == (b.r0, b.r1, b.imm);
    if same && a.target == b.target {
        return Some("the same instruction in another encoding");
    }
    // `mov s, base` and `lea s, [base]`, `mov` in both directions, and hints on branches are the same, too.
    if a.flow == b.flow && matches!((a.op, b.op), (0x89 | 0x8b, 0x89 | 0x8b)) && a.r0 == b.r0 && a.r1 == b.r1 {
        return Some("the same move");
    }
    // Two jumps to the same gate-checked place: to repeat the check or to go on to the access is both right.
    if a.op == 0xe9 && b.op == 0xe9 {
        return Some("back to the access instead of to its check");
    }
    None
}

/// Whether, at every place that stubs which share the tail at `va` return to, `lost` and `set` are overwritten before they are read. What
/// is popped is the access's address: where that is the value of `set` itself, `set` does not change.
fn dead_behind_stub(file: &[u8], va: u64, lost: u8, set: u8) -> bool {
    let m = Module::read(file, "p").expect("read module");
    let cold = decoder::decode(m.cold.data, m.cold.va, &[]);
    let Some(at) = cold.at(va) else { return false };
    // The tail begins at the nearest call target in front.
    let called = |va: u64| cold.insns.iter().filter(move |i| i.flow == Flow::Call && i.target == va);
    let Some(tail) = cold.insns[..=at].iter().rev().find(|i| called(i.va).next().is_some()) else { return false };
    let own = own_code(file);
    called(tail.va).all(|call| {
        let behind = cold.at(call.end()).map(|k| &cold.insns[k]);
        behind.is_some_and(|j| {
            let access = own.get(own.partition_point(|i| i.va < j.target));
            let address = |m: &insn::Mem| m.base == set && m.index == NONE && m.disp == 0;
            let same = access.and_then(|i| i.mem.as_ref()).is_some_and(address);
            let registers = 1 << lost | if same { 0 } else { 1 << set };
            j.flow == Flow::Jump && dead_registers(&own, j.target, registers)
        })
    })
}

/// Where the stub around a cold address leads.
fn stub_leads(file: &[u8], va: u64) -> Option<u64> {
    let m = Module::read(file, "p").expect("read module");
    let cold = decoder::decode(m.cold.data, m.cold.va, &[]);
    let at = cold.at(va)?;
    cold.insns[at..].iter().take(16).find(|i| i.flow == Flow::Jump).map(|i| i.target)
}

/// Whether every stub that calls the tail at `va` has just copied register `from` into `to`.
fn is_copy_at_calls(file: &[u8], va: u64, to: u8, from: u8) -> bool {
    let m = Module::read(file, "p").expect("read module");
    let cold = decoder::decode(m.cold.data, m.cold.va, &[]);
    let calls: Vec<usize> =
        (1..cold.insns.len()).filter(|&k| cold.insns[k].flow == Flow::Call && cold.insns[k].target == va).collect();
    let copies = |k: &usize| {
        let i = &cold.insns[k - 1];
        i.op == 0x89 && i.mem.is_none() && (i.r0, i.r1) == (to, from)
    };
    !calls.is_empty() && calls.iter().all(copies)
}

/// Whether the push of rax at `va` in a stub is for an exchange, and rax is dead where the stub leads.
fn dead_behind_exchange(file: &[u8], va: u64) -> bool {
    let m = Module::read(file, "p").expect("read module");
    let cold = decoder::decode(m.cold.data, m.cold.va, &[]);
    let Some(at) = cold.at(va) else { return false };
    let stub = &cold.insns[at..(at + 8).min(cold.insns.len())];
    let exchanged = stub.iter().any(|i| i.op == 0x87);
    let leads = stub.iter().find(|i| i.flow == Flow::Jump);
    exchanged && leads.is_some_and(|j| dead_registers(&own_code(file), j.target, 1))
}

/// As [`dead`], for registers; calls, returns and jumps through registers may read all of them.
fn dead_registers(own: &[Insn], va: u64, registers: u16) -> bool {
    let at = |va: u64| own.partition_point(|i| i.va < va);
    let mut work = vec![(at(va), registers)];
    let mut seen = HashSet::new();
    while let Some((k, registers)) = work.pop() {
        let Some(i) = own.get(k).filter(|_| registers != 0) else { continue };
        if !seen.insert((k, registers)) {
            continue;
        }
        let left = registers & !i.fx.kills;
        let leaves = !matches!(i.flow, Flow::Next | Flow::Cond | Flow::Jump | Flow::Stop) && left != 0;
        if i.fx.reads & registers != 0 || leaves || seen.len() > 500 {
            return false;
        }
        if matches!(i.flow, Flow::Jump | Flow::Cond) {
            work.push((at(i.target), left));
        }
        if matches!(i.flow, Flow::Next | Flow::Cond) {
            work.push((k + 1, left));
        }
    }
    true
}

fn in_cold(file: &[u8], va: u64) -> bool {
    Module::read(file, "p").is_ok_and(|m| va.wrapping_sub(m.cold.va) < m.cold.data.len() as u64)
}

/// Whether status flags are overwritten on every way from `va` before they are read. Nothing hands them over calls, returns and jumps
/// through registers (psABI 3.2.1). `own` are the program's own instructions.
pub fn dead(own: &[Insn], va: u64, flags: u8) -> bool {
    let at = |va: u64| own.partition_point(|i| i.va < va);
    let mut work = vec![(at(va), flags)];
    let mut seen = HashSet::new();
    while let Some((k, flags)) = work.pop() {
        let Some(i) = own.get(k).filter(|_| flags != 0) else { continue };
        if !seen.insert((k, flags)) {
            continue;
        }
        if i.fx.flag_reads & flags != 0 || seen.len() > 500 {
            return false;
        }
        let left = flags & !i.fx.flag_kills;
        if matches!(i.flow, Flow::Jump | Flow::Cond) {
            work.push((at(i.target), left));
        }
        if matches!(i.flow, Flow::Next | Flow::Cond) {
            work.push((k + 1, left));
        }
    }
    true
}
