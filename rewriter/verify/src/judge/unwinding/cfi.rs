//! The frame tables: what unwinders read about the old code must hold for the new code.
//!
//! Input: module, new code, sites, pairs of old and new addresses, the input if it is there. Output: [`FrameCounts`], findings. Old frames are read from the
//! input, else from what is left of them in the output under another name. For each old instruction that they cover, the new frames cover the new code, inserted
//! code included, with the same rules, where the canonical frame address is rsp plus what inserted code has moved rsp by. The personality routine,
//! the return address register, the signal flag and the bytes of arguments are the same, and so is what the personality routine answers: an exception
//! from there leads to the new code of the same landing pad, with the same filters and types.
//! Source: LSB core (`.eh_frame`), DWARF 5 section 6.4, Itanium C++ ABI (LSDA).

use crate::audit::{Audit, FrameCounts};
use crate::decode::decoder::Code;
use crate::decode::effects::{Flow, RSP};
use crate::decode::insn::{Insn, NONE};
use crate::file::frames::{Cfa, CfaRow, CieKind, Fde, Frames};
use crate::file::lsda::CallSite;
use crate::file::module::Module;
use crate::judge::old_code::original::Original;
use crate::judge::unwinding::frame_index;
use crate::sites::site::{Sites, get};
use foldhash::{HashMap, HashMapExt};
use gimli::{BaseAddresses, EvaluationResult, LittleEndian, Location, Operation, Pointer, Register, Value};

type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

/// rsp in DWARF's numbering.
const DWARF_RSP: Register = Register(7);
/// The return address, or rip in an expression.
const DWARF_RIP: Register = Register(16);

const ENCODING: gimli::Encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };

/// The frames of the old code: those of the input, or what is left of them in the output.
fn old_frames<'a>(m: &Module<'a>, original: Option<&'a Original>) -> Result<Frames<'a>, String> {
    let section = |name: &str| m.sections.iter().find(|s| s.name == name);
    let mut bases = BaseAddresses::default();
    if let Some(text) = section(".text") {
        bases = bases.set_text(text.va);
    }
    if let Some(got) = section(".got") {
        bases = bases.set_got(got.va);
    }
    if let Some(original) = original {
        return original.frames(bases);
    }
    let Some(s) = section(".blizzard.old.eh_frame") else { return Ok(Frames::default()) };
    Frames::read(s.data, s.va, bases, &|va| m.tail(va))
}

/// The rules of all frames, for tests that ask whether two tables say the same.
#[cfg(test)]
pub fn rules(m: &Module) -> Result<Vec<(u64, u64, String)>, String> {
    Ok(m.frames.list.iter().map(|f| (f.from, f.to, format!("{:?} {:?}", f.rows, f.kind))).collect())
}

/// Compares the two tables over all `pairs` of old and new addresses, sorted.
pub fn compare(
    m: &Module,
    (text, cold): (&Code, &Code),
    sites: &Sites,
    pairs: &[(u64, u64)],
    original: Option<&Original>,
    audit: &mut Audit,
) {
    let table = || (m.entry, "frame table".to_string());
    if let Some(why) = &m.frames_problem {
        audit.finding(table().0, table().1, why.clone());
        return;
    }
    let old = match old_frames(m, original) {
        Ok(old) => old,
        Err(why) => return audit.finding(table().0, table().1, why),
    };
    let new = &m.frames;
    frame_index::prove(m, m.index.as_ref(), new, audit);
    for pair in new.list.windows(2).filter(|pair| pair[0].to > pair[1].from) {
        audit.finding(pair[1].from, m.place(pair[1].from), "its frame begins before the one in front ends");
    }
    let counts = FrameCounts { old: old.list.len() as u64, new: new.list.len() as u64, ..FrameCounts::default() };
    let pad = |old: u64, is: u64| new_address(pairs, old) == Some(is);
    let mut c = Comparison {
        m,
        text,
        cold,
        sites,
        pairs,
        plain: None,
        pad: &pad,
        old: &old,
        new,
        counts,
        same: Same::default(),
    };
    c.copies(audit);
    if old.list.is_empty() && original.is_none() {
        audit.trust("frames of code whose old frames are not there to compare with", c.counts.new);
    } else {
        c.moved_code(audit);
        c.old_code(audit);
    }
    audit.frames = Some(c.counts);
}

/// Compares the frames of full code with those of plain code. `pairs`: instructions of plain code and where they begin in full code, ascending; `pad`: whether
/// a landing pad of full code is that of plain code.
pub fn compare_versions(
    m: &Module,
    (plain, full, cold): (&Code, &Code, &Code),
    sites: &Sites,
    pairs: &[(u64, u64)],
    pad: &dyn Fn(u64, u64) -> bool,
    audit: &mut Audit,
) {
    if m.frames_problem.is_none() {
        let (frames, counts) = (&m.frames, FrameCounts::default());
        let same = Same::default();
        let plain = Some(plain);
        let mut c =
            Comparison { m, text: full, cold, sites, pairs, plain, pad, old: frames, new: frames, counts, same };
        c.moved_code(audit);
    }
}

/// Which pairs are of instructions that overlap others: these stand behind everything else in the new code. `pairs`: old and new addresses, in the order
/// of the old ones.
pub(crate) fn overlapping(pairs: &[(u64, u64)]) -> Vec<bool> {
    let mut lowest = u64::MAX;
    let mut behind = vec![false; pairs.len()];
    for (k, p) in pairs.iter().enumerate().rev() {
        behind[k] = p.1 > lowest;
        lowest = lowest.min(p.1);
    }
    behind
}

fn new_address(pairs: &[(u64, u64)], old: u64) -> Option<u64> {
    pairs.binary_search_by_key(&old, |p| p.0).ok().map(|k| pairs[k].1)
}

struct Comparison<'x, 'a> {
    m: &'x Module<'a>,
    text: &'x Code,
    cold: &'x Code,
    sites: &'x Sites,
    pairs: &'x [(u64, u64)],
    /// Plain code, where its frames are compared with.
    plain: Option<&'x Code>,
    /// Whether the second is the new landing pad for the first.
    pad: &'x dyn Fn(u64, u64) -> bool,
    old: &'x Frames<'a>,
    new: &'x Frames<'a>,
    counts: FrameCounts,
    same: Same,
}

/// Actions that were compared: of which areas, and the pairs that say the same.
#[derive(Default)]
struct Same {
    areas: Option<(u64, u64)>,
    pairs: HashMap<(u64, u64), bool>,
}

impl Comparison<'_, '_> {
    /// All code that moved, and what was inserted there.
    fn moved_code(&mut self, audit: &mut Audit) {
        let mut undefined = 0;
        let behind = overlapping(self.pairs);
        let (mut was, mut is) = (0, 0);
        for (index, &(from, to)) in self.pairs.iter().enumerate() {
            let Some(first) = self.text.at(to) else { continue };
            let Some(k) = self.old.index(from, was) else {
                self.without(first, &mut is, audit);
                continue;
            };
            was = k;
            if from >= self.old.list[was].defined_to {
                undefined += 1;
                continue;
            }
            self.counts.instructions += 1;
            match self.instruction(from, first, was, &mut is) {
                Ok(()) => {}
                Err(None) if behind[index] => self.counts.overlapping += 1,
                Err(None) => {
                    let why = "no frame describes the new code; one described the old";
                    audit.finding(to, self.m.place(to), why);
                }
                Err(Some(why)) => audit.finding(to, self.m.place(to), why),
            }
        }
        if undefined > 0 {
            audit.trust(
                "frames of instructions whose rules DWARF does not define follow the original's steps",
                undefined,
            );
        }
    }

    /// One instruction that no frame described, whose new code begins with instruction `first`: none does now.
    fn without(&self, first: usize, is: &mut usize, audit: &mut Audit) {
        for (k, i) in self.text.insns.iter().enumerate().skip(first) {
            if let Some(frame) = self.new.index(i.va, *is) {
                *is = frame;
                let why = "a frame describes the new code; none described the old";
                return audit.finding(i.va, self.m.place(i.va), why);
            }
            if !get(&self.sites.inserted, k) {
                return;
            }
        }
    }

    /// One instruction, whose new code begins with instruction `first`. `was`: index of its old frame; `is`: of a new frame nearby. The error is `None`
    /// where no frame describes it.
    fn instruction(&mut self, from: u64, first: usize, was: usize, is: &mut usize) -> Result<(), Option<String>> {
        let (old, new, text) = (self.old, self.new, self.text);
        let before = &old.list[was];
        let Some(row) = before.row(from) else { return Ok(()) };
        let mut rsp = 0;
        for (k, i) in text.insns.iter().enumerate().skip(first) {
            *is = new.index(i.va, *is).ok_or(None)?;
            let now = &new.list[*is];
            if !self.same_kind(&before.kind, &now.kind) {
                return Err(Some(
                    "personality, return address or signal flag of the frame are not the original's".into(),
                ));
            }
            let own = !get(&self.sites.inserted, k);
            let call = own && matches!(i.flow, Flow::Call | Flow::CallInd);
            // A frame that is interrupted is looked up by the instruction, one that calls by the byte in front of the return address.
            let last = i.end() - 1;
            if call && last >= now.to {
                return Err(Some(format!("the frame ends within the call at {:#x}", i.va)));
            }
            for va in [i.va, last].into_iter().take(1 + usize::from(call)) {
                let there = now.row(va).filter(|_| va < now.defined_to);
                let there = there.ok_or_else(|| Some("no row of its frame describes the new code".into()))?;
                if !same_rules(row, there, rsp, from, &mut self.counts) {
                    return Err(Some(format!(
                        "the frame's rules at {va:#x} are {:?}, the original's {:?} with rsp moved by {rsp}",
                        there.cfa, row.cfa
                    )));
                }
                if before.argument_bytes(from) != now.argument_bytes(va) {
                    return Err(Some(format!("the frame's bytes of arguments at {va:#x} are not the original's")));
                }
                let old_va = if va == i.va { from } else { from + self.bytes_of_call(from, i) - 1 };
                self.exceptions(before, now, old_va, va)
                    .map_err(|why| Some(format!("the exception tables at {va:#x}: {why}")))?;
            }
            if own {
                self.counts.calls += u64::from(call);
                // What stops the program if a call returns after all, and stands there in place of the next function.
                let guard = text.insns.get(k + 1).filter(|next| call && next.flow == Flow::Stop && next.va == i.end());
                let is_copy = |next: &Insn| self.new_address(from + self.bytes_of_call(from, i)) == Some(next.va);
                if guard.is_some_and(|next| next.end() > now.to && !is_copy(next)) {
                    return Err(Some(format!(
                        "the frame ends behind the call at {:#x}, in front of what stops it",
                        i.va
                    )));
                }
                return Ok(());
            }
            // A test that is called puts rsp back where it was: what returns from it is proven so.
            rsp = if i.flow == Flow::Call { 0 } else { rsp + moves(i) };
        }
        Ok(())
    }

    /// Whether a frame names what the original's names. Its personality routine may be known by the address of its new code.
    fn same_kind(&self, before: &CieKind, now: &CieKind) -> bool {
        let moved = match (before.0, now.0) {
            (Some(Pointer::Direct(was)), Some(Pointer::Direct(is))) if self.plain.is_none() => {
                self.new_address(was) == Some(is)
            }
            _ => false,
        };
        (moved || before.0 == now.0) && (before.1, before.2) == (now.1, now.2)
    }

    /// What the personality routine does with an exception from `new_va` must be what it did with one from `old_va`.
    fn exceptions(&mut self, before: &Fde, now: &Fde, old_va: u64, new_va: u64) -> Result<(), String> {
        let (old, new) = match (&before.lsda, &now.lsda) {
            (None, None) => return Ok(()),
            (Some(old), Some(new)) => (old, new),
            (Some(_), None) => return Err("there are none; there were in the original".into()),
            (None, Some(_)) => return Err("there are some; there were none in the original".into()),
        };
        let (was, is) = (old.at(old_va), new.at(new_va));
        let (Some(a), Some(b)) = (was, is) else {
            let says = |c: Option<&CallSite>| if c.is_some() { "has a call site" } else { "ends the program" };
            let same = was.is_none() && is.is_none();
            return same.then_some(()).ok_or(format!("it {}, the original {}", says(is), says(was)));
        };
        if if a.pad == 0 { b.pad != 0 } else { !(self.pad)(a.pad, b.pad) } {
            let moved = self.new_address(a.pad);
            return Err(format!("the landing pad is {:#x}, the original's new code is at {moved:x?}", b.pad));
        }
        // Without a landing pad nobody reads the actions.
        if a.pad == 0 {
            return Ok(());
        }
        if self.same.areas != Some((before.from, now.from)) {
            self.same = Same { areas: Some((before.from, now.from)), pairs: HashMap::new() };
        }
        let same = match self.same.pairs.get(&(a.action, b.action)) {
            Some(&same) => same,
            None => {
                let (was, is) = (old.chain(a.action)?, new.chain(b.action)?);
                let same = was == is;
                self.same.pairs.insert((a.action, b.action), same);
                same
            }
        };
        same.then_some(()).ok_or_else(|| "its actions or types are not the original's".to_string())
    }

    /// The copy of a call is as long as the call, but that in full code may have a prefix.
    fn bytes_of_call(&self, from: u64, copy: &Insn) -> u64 {
        let plain = self.plain.and_then(|code| Some(&code.insns[code.at(from)?]));
        u64::from(plain.unwrap_or(copy).len)
    }

    fn new_address(&self, old: u64) -> Option<u64> {
        new_address(self.pairs, old)
    }

    /// In a copy of a loop the rules are those of the loop; nothing else of the cold code has any.
    fn copies(&mut self, audit: &mut Audit) {
        let at = |va: u64| self.new.index(va, 0).map(|k| &self.new.list[k]);
        for &(from, _, loops) in &self.m.moved {
            if at(loops).is_some() != at(from).is_some() {
                let why = "the copy of a loop has no frame, or the loop has none";
                audit.finding(from, self.m.place(from), why);
            }
        }
        for f in self.new.list.iter().filter(|f| self.cold.contains(f.from)) {
            let mut problem = |why: &str| audit.finding(f.from, self.m.place(f.from), why);
            let region = self.m.moved.partition_point(|r| r.0 < f.from);
            let region = self.m.moved.get(region).filter(|r| r.0 < f.to);
            let Some((frame, row)) = region.and_then(|r| at(r.2).and_then(|g| Some((g, g.row(r.2)?)))) else {
                problem("a frame of cold code that is no copy of a loop");
                continue;
            };
            // Nothing is called there, so it needs no personality; another one would be called all the same.
            let mut same = (f.kind.1, f.kind.2) == (frame.kind.1, frame.kind.2) && f.lsda.is_none();
            same &= f.kind.0.is_none() || f.kind.0 == frame.kind.0;
            // What moves rsp is inserted: the loop's own instructions in the copy do not.
            let mut rsp = 0;
            let first = self.cold.insns.partition_point(|i| i.va < f.from);
            let mut last = None;
            for i in self.cold.insns[first..].iter().take_while(|i| i.va < f.to).filter(|i| !i.is_nop()) {
                last = Some(i);
                let is = f.row(i.va).filter(|_| i.va < f.defined_to);
                same &= is.is_some_and(|is| same_rules(row, is, rsp, i.va, &mut FrameCounts::default()));
                rsp += moves(i);
            }
            if !same {
                problem("the frame's rules in the copy of a loop are not the loop's");
            }
            // What leads back to the loop is inserted; whoever is stopped there looks for a frame as well.
            if !last.is_some_and(|i| i.end() <= f.to && i.flow == Flow::Jump) {
                problem("the frame ends within the copy of a loop");
            }
        }
    }

    /// Frames at old addresses: those of signal trampolines, as the program knows them, and no others.
    fn old_code(&mut self, audit: &mut Audit) {
        let is_new = |va: u64| va.wrapping_sub(self.m.text.va) < self.m.text.data.len() as u64;
        let is_moved = |f: &Fde| is_new(f.from) || self.cold.contains(f.from);
        let is = |f: &Fde, g: &Fde| {
            (f.from, f.to, &f.rows, f.lsda.is_none()) == (g.from, g.to, &g.rows, g.lsda.is_none())
                && self.same_kind(&g.kind, &f.kind)
        };
        for f in self.new.list.iter().filter(|f| !is_moved(f)) {
            let known = self.old.index(f.from, 0).is_some_and(|k| f.kind.2 && is(f, &self.old.list[k]));
            if !known {
                audit.finding(f.from, self.m.old_place(f.from), "a frame that is none of the original's");
            }
        }
        for f in self.old.list.iter().filter(|f| f.kind.2) {
            let k = self.pairs.partition_point(|p| p.0 < f.from);
            let has_code = self.pairs.get(k).is_some_and(|p| p.0 < f.to);
            let found = self.new.index(f.from, 0).is_some_and(|k| is(f, &self.new.list[k]));
            if has_code && !found {
                let why = "the frame of a signal trampoline is not at its old address";
                audit.finding(f.from, self.m.old_place(f.from), why);
            }
        }
    }
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
            ) => *k == n.wrapping_sub(rsp),
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
    const STEPS: u32 = 1000;
    let mut run = gimli::Expression(Slice::new(expression, LittleEndian)).evaluation(ENCODING);
    run.set_max_iterations(STEPS);
    let mut step = run.evaluate().ok()?;
    while let EvaluationResult::RequiresRegister { register, .. } = step {
        let value = match register {
            DWARF_RSP => SOME_RSP,
            DWARF_RIP => rip,
            _ => return None,
        };
        step = run.resume_with_register(Value::Generic(value)).ok()?;
    }
    if step != EvaluationResult::Complete {
        return None;
    }
    match run.result().first()?.location {
        Location::Address { address } => Some(address.wrapping_sub(SOME_RSP) as i64),
        _ => None,
    }
}

fn same_rules(was: &CfaRow, is: &CfaRow, rsp: i64, old: u64, counts: &mut FrameCounts) -> bool {
    let cfa = match (&was.cfa, &is.cfa) {
        (Cfa::Register(r, n), Cfa::Register(s, k)) => {
            r == s && *k == n.wrapping_sub(if *r == DWARF_RSP { rsp } else { 0 })
        }
        (Cfa::Expression(a), Cfa::Expression(b)) => same_expression(a, b, rsp),
        // The PLT's expression, whose value depends on the address within an entry.
        (Cfa::Expression(e), Cfa::Register(r, n)) => {
            counts.computed += 1;
            *r == DWARF_RSP && frame_above_rsp(e, old) == Some(n.wrapping_add(rsp))
        }
        (Cfa::Register(..), Cfa::Expression(_)) => false,
    };
    cfa && was.registers.len() == is.registers.len()
        && was.registers.iter().zip(is.registers.iter()).all(|(a, b)| {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Expressions come from the file. One that asked for memory, or for a frame base, ended the audit with a panic.
    #[test]
    fn an_expression_that_cannot_be_evaluated_is_none() {
        // DW_OP_breg7 8: rsp + 8.
        assert_eq!(frame_above_rsp(&[0x77, 8], 0), Some(8));
        // Every operation without operands and with zeros behind it, alone and with values to work on.
        for op in 0..=u8::MAX {
            for before in [&[][..], &[0x30, 0x31], &[0x77, 0, 0x30]] {
                let expression = [before, &[op], &[0; 8]].concat();
                for end in 0..=expression.len() {
                    let _ = frame_above_rsp(&expression[..end], 0x1000);
                    let _ = same_expression(&expression[..end], &expression, 8);
                }
            }
        }
        // DW_OP_skip -3: for ever; DW_OP_call_frame_cfa; DW_OP_fbreg 0; DW_OP_deref of rsp.
        for endless in [&[0x2f, 0xfd, 0xff][..], &[0x9c], &[0x91, 0], &[0x77, 0, 0x06]] {
            assert_eq!(frame_above_rsp(endless, 0), None, "{endless:x?}");
        }
    }
}
