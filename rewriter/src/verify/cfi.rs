//! The frame tables: what unwinders read about the old code must hold for the new code.
//!
//! Input: module, new code, sites, pairs of old and new addresses. Output: [`FrameCounts`], findings. The input's table is still in the
//! output under another name. For each old instruction that it covers, the new table covers the new code, inserted code included,
//! with the same rules, where the canonical frame address is rsp plus what inserted code has moved rsp by; the personality routine,
//! the return address register and the signal flag are the same; a call that leads to a landing pad leads to that pad's new code.
//! Source: LSB core (`.eh_frame`), DWARF 5 section 6.4, Itanium C++ ABI (LSDA).

use super::audit::{Audit, FrameCounts};
use super::decode::{Code, Insn, NONE};
use super::effects::{Flow, RSP};
use super::module::{CallSite, Module};
use super::sites::{Sites, get};
use crate::ids::Vaddr;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EvaluationResult, LittleEndian, Location, Operation, Pointer, Register,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
};

type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

/// rsp in DWARF's numbering.
const DWARF_RSP: Register = Register(7);
/// The return address, or rip in an expression.
const DWARF_RIP: Register = Register(16);

const ENCODING: gimli::Encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };

/// Where the caller's frame begins.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cfa {
    Register(Register, i64),
    Expression(Vec<u8>),
}

/// How a register of the caller is found: the rule's kind, its number, its expression.
type Rule = (Register, u8, i64, Vec<u8>);

/// The rules from an address on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    from: u64,
    cfa: Cfa,
    registers: Vec<Rule>,
}

/// One function's frame description.
#[derive(Debug)]
struct Fde {
    from: u64,
    to: u64,
    rows: Vec<Row>,
    /// From here on the rules are not defined: a step moves a frame address that is found by an expression (OpenSSL's assembly).
    defined_to: u64,
    /// Personality, return address register, signal frame.
    kind: (Option<Pointer>, Register, bool),
    /// Call sites of the LSDA, when there is one.
    calls: Option<Vec<CallSite>>,
}

impl Fde {
    fn row(&self, va: u64) -> Option<&Row> {
        self.rows[..self.rows.partition_point(|r| r.from <= va)].last()
    }

    /// The landing pad and action for an exception from the call at `va`; `None`: the program is ended.
    fn pad(&self, va: u64) -> Option<(u64, u64)> {
        let calls = self.calls.as_ref()?;
        calls.iter().find(|c| c.from <= va && va < c.to).map(|c| (c.pad, c.action))
    }
}

/// All frame descriptions of a section, sorted.
fn read(m: &Module, section: &str) -> Result<Vec<Fde>, String> {
    let Some(s) = m.sections.iter().find(|s| s.name == section) else { return Ok(Vec::new()) };
    let eh = EhFrame::new(s.data, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(s.va).set_text(m.text.va);
    let mut entries = eh.entries(&bases);
    let mut cx = UnwindContext::new();
    let mut out = Vec::new();
    let bad = |e: gimli::Error| format!("{section}: {e}");
    while let Some(entry) = entries.next().map_err(bad)? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).map_err(bad)?;
        let (from, to) = (fde.initial_address(), fde.initial_address() + fde.len());
        let mut rows = Vec::new();
        let mut table = fde.rows(&eh, &bases, &mut cx).map_err(bad)?;
        let (mut defined_to, mut end) = (to, from);
        loop {
            match table.next_row() {
                Ok(None) => break,
                Ok(Some(row)) => {
                    rows.push(convert(&eh, row).map_err(bad)?);
                    end = row.end_address();
                }
                Err(gimli::Error::CfiInstructionInInvalidContext) => {
                    defined_to = end;
                    break;
                }
                Err(e) => return Err(bad(e)),
            }
        }
        let calls = match fde.lsda() {
            Some(Pointer::Direct(lsda)) => Some(m.call_sites(lsda, from).ok_or("an LSDA is damaged")?),
            _ => None,
        };
        let cie = fde.cie();
        let kind = (cie.personality(), cie.return_address_register(), cie.is_signal_trampoline());
        out.push(Fde { from, to, rows, defined_to, kind, calls });
    }
    out.sort_by_key(|f| f.from);
    Ok(out)
}

/// The rules of all frames, for tests that ask whether two tables say the same.
#[cfg(test)]
pub fn rules(m: &Module, section: &str) -> Result<Vec<(u64, u64, String)>, String> {
    Ok(read(m, section)?.iter().map(|f| (f.from, f.to, format!("{:?} {:?}", f.rows, f.kind))).collect())
}

fn convert(eh: &EhFrame<Slice<'_>>, row: &gimli::UnwindTableRow<usize>) -> gimli::Result<Row> {
    let bytes = |e: &UnwindExpression<usize>| Ok::<_, gimli::Error>(e.get(eh)?.0.slice().to_vec());
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(*register, *offset),
        CfaRule::Expression(e) => Cfa::Expression(bytes(e)?),
    };
    let mut registers = Vec::new();
    for (register, rule) in row.registers() {
        let (kind, number, expression) = match rule {
            RegisterRule::Undefined => (0, 0, Vec::new()),
            RegisterRule::SameValue => (1, 0, Vec::new()),
            RegisterRule::Offset(n) => (2, *n, Vec::new()),
            RegisterRule::ValOffset(n) => (3, *n, Vec::new()),
            RegisterRule::Register(r) => (4, r.0.into(), Vec::new()),
            RegisterRule::Expression(e) => (5, 0, bytes(e)?),
            RegisterRule::ValExpression(e) => (6, 0, bytes(e)?),
            RegisterRule::Constant(n) => (7, *n as i64, Vec::new()),
            _ => (8, 0, Vec::new()),
        };
        registers.push((*register, kind, number, expression));
    }
    registers.sort();
    Ok(Row { from: row.start_address(), cfa, registers })
}

/// Compares the two tables over all `pairs` of old and new addresses, sorted.
pub fn compare(m: &Module, text: &Code, sites: &Sites, pairs: &[(u64, u64)], audit: &mut Audit) {
    let (old, new) = match (read(m, ".blizzard.old.eh_frame"), read(m, ".eh_frame")) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(why), _) | (_, Err(why)) => {
            audit.finding(Vaddr(m.entry), "frame table".into(), why);
            return;
        }
    };
    let mut counts = FrameCounts { old: old.len() as u64, new: new.len() as u64, ..FrameCounts::default() };
    let at = |list: &[Fde], va: u64| {
        let k = list.partition_point(|f| f.from <= va).checked_sub(1)?;
        (va < list[k].to).then_some(k)
    };
    let new_address = |old: u64| pairs.binary_search_by_key(&old, |p| p.0).ok().map(|k| pairs[k].1);
    let mut undefined = 0;
    // Instructions that overlap others stand behind everything else in the new code.
    let mut lowest = u64::MAX;
    let mut behind = vec![false; pairs.len()];
    for (k, p) in pairs.iter().enumerate().rev() {
        behind[k] = p.1 > lowest;
        lowest = lowest.min(p.1);
    }
    for (index, &(from, to)) in pairs.iter().enumerate() {
        let (Some(before), Some(k)) = (at(&old, from).map(|k| &old[k]), text.at(to)) else { continue };
        if from >= before.defined_to {
            undefined += 1;
            continue;
        }
        counts.instructions += 1;
        let mut bad = |why: String| audit.finding(Vaddr(to), m.place(to), why);
        let Some(was) = before.row(from) else { continue };
        let mut rsp = 0;
        let mut k = k;
        loop {
            let i = &text.insns[k];
            let Some(now) = at(&new, i.va).map(|k| &new[k]) else {
                if behind[index] {
                    counts.overlapping += 1;
                    break;
                }
                bad("no frame describes the new code; one described the old".into());
                break;
            };
            if now.kind != before.kind {
                bad("personality, return address or signal flag of the frame are not the original's".into());
                break;
            }
            let Some(is) = now.row(i.va).filter(|_| i.va < now.defined_to) else {
                bad("no row of its frame describes the new code".into());
                break;
            };
            if !same_rules(was, is, rsp, from, &mut counts) {
                bad(format!(
                    "the frame's rules at {:#x} are {:?}, the original's {:?} with rsp moved by {rsp}",
                    i.va, is.cfa, was.cfa
                ));
                break;
            }
            if !get(&sites.inserted, k) {
                if matches!(i.flow, Flow::Call | Flow::CallInd) {
                    counts.calls += 1;
                    let moved = before
                        .pad(from)
                        .map(|(pad, action)| (if pad == 0 { Some(0) } else { new_address(pad) }, action));
                    let pad = now.pad(i.va).map(|(pad, action)| (Some(pad), action));
                    if before.calls.is_some() != now.calls.is_some() || moved != pad {
                        bad(format!(
                            "the landing pad of the call at {:#x} is {pad:x?}, the original's {moved:x?}",
                            i.va
                        ));
                    }
                }
                break;
            }
            rsp += moves(i);
            k += 1;
            if k >= text.insns.len() {
                break;
            }
        }
    }
    if undefined > 0 {
        audit.trust("frames of instructions whose rules DWARF does not define follow the original's steps", undefined);
    }
    // In a copy of a loop the rules are those of the loop.
    for &(from, _, loops) in &m.moved {
        let row = |va: u64| at(&new, va).and_then(|k| Some((new[k].kind, new[k].row(va)?)));
        let same = match (row(loops), row(from)) {
            (Some((kind, was)), Some((other, is))) => {
                // Nothing is called there, so it needs no personality.
                (kind.1, kind.2) == (other.1, other.2) && same_rules(was, is, 0, from, &mut FrameCounts::default())
            }
            (was, is) => was.is_none() && is.is_none(),
        };
        if !same {
            audit.finding(Vaddr(from), m.place(from), "the frame's rules in the copy of a loop are not the loop's");
        }
    }
    audit.frames = Some(counts);
}

/// Whether `is` says with rsp moved by `rsp` what `was` says without.
fn same_expression(was: &[u8], is: &[u8], rsp: i64) -> bool {
    let operations = |bytes| gimli::Expression(Slice::new(bytes, LittleEndian)).operations(ENCODING);
    let (mut a, mut b) = (operations(was), operations(is));
    let mut branches = false;
    loop {
        let (a, b) = match (a.next(), b.next()) {
            (Ok(Some(a)), Ok(Some(b))) => (a, b),
            (Ok(None), Ok(None)) => return !branches || was.len() == is.len(),
            _ => return false,
        };
        branches |= matches!(a, Operation::Bra { .. } | Operation::Skip { .. });
        let same = match (&a, &b) {
            (
                Operation::RegisterOffset { register: DWARF_RSP, offset: n, .. },
                Operation::RegisterOffset { register: DWARF_RSP, offset: k, .. },
            ) => *k == n - rsp,
            (Operation::Register { register: DWARF_RSP }, _) => rsp == 0 && a == b,
            _ => a == b,
        };
        if !same {
            return false;
        }
    }
}

/// What an expression over rsp and rip says of the frame's distance from rsp at the old address `rip`.
fn frame_above_rsp(expression: &[u8], rip: u64) -> Option<i64> {
    const SOME_RSP: u64 = 1 << 32;
    let mut run = gimli::Expression(Slice::new(expression, LittleEndian)).evaluation(ENCODING);
    let mut step = run.evaluate().ok()?;
    while let EvaluationResult::RequiresRegister { register, .. } = step {
        let value = match register {
            DWARF_RSP => SOME_RSP,
            DWARF_RIP => rip,
            _ => return None,
        };
        step = run.resume_with_register(Value::Generic(value)).ok()?;
    }
    match (step, run.result().first()?.location) {
        (EvaluationResult::Complete, Location::Address { address }) => Some(address.wrapping_sub(SOME_RSP) as i64),
        _ => None,
    }
}

fn same_rules(was: &Row, is: &Row, rsp: i64, old: u64, counts: &mut FrameCounts) -> bool {
    let cfa = match (&was.cfa, &is.cfa) {
        (Cfa::Register(r, n), Cfa::Register(s, k)) => r == s && *k == n - if *r == DWARF_RSP { rsp } else { 0 },
        (Cfa::Expression(a), Cfa::Expression(b)) => same_expression(a, b, rsp),
        // The PLT's expression, whose value depends on the address within an entry.
        (Cfa::Expression(e), Cfa::Register(r, n)) => {
            counts.computed += 1;
            *r == DWARF_RSP && frame_above_rsp(e, old) == Some(n + rsp)
        }
        (Cfa::Register(..), Cfa::Expression(_)) => false,
    };
    cfa && was.registers.len() == is.registers.len()
        && was.registers.iter().zip(&is.registers).all(|(a, b)| {
            (a.0, a.1, a.2) == (b.0, b.1, b.2) && (a.3.is_empty() && b.3.is_empty() || same_expression(&a.3, &b.3, rsp))
        })
}

/// By how many bytes an inserted instruction moves rsp.
fn moves(i: &Insn) -> i64 {
    match (i.op, &i.mem) {
        (0x50..=0x57 | 0x68 | 0x6a | 0x9c, None) => -8,
        (0x58..=0x5f | 0x9d, None) => 8,
        (0x8d, Some(m)) if i.r0 == RSP && m.base == RSP && m.index == NONE => m.disp,
        _ => 0,
    }
}
