//! Faults planted by kind into the outputs for several real programs; each is found, or harmless by a rule.
//!
//! A kind names the places where it can be planted; a seeded generator picks some of each program's. The table of kinds that
//! the test prints (`--nocapture`) says how many were planted, found in the output compared with the input, found in the output alone, and
//! harmless for which reason.

use crate::decode::decoder;
use crate::decode::effects::{ALL_FLAGS, Flow, OF};
use crate::decode::insn::Insn;
use crate::file::module::Module;
use crate::mutation::code::{dead, harmless};
use crate::sites::{find, site};
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::{Numbers, PLANTED_PROGRAM, compiled};
use blizzard::base::options::{Checks, Options, Poll};
use blizzard::pipeline;
use blizzard_contract::restarts;
use blizzard_contract::trap_map::encode;
use blizzard_contract::{self as contract, RestartHead, TrapEntry, TrapHead};
use std::collections::BTreeMap;
use std::process::Command;

/// Faults of one kind planted into one program; into some larger ones.
const EACH: usize = 4;
const EACH_OF_FEW: usize = 2;

/// A program, its output, and what is needed to find places in it.
struct Subject {
    name: &'static str,
    /// Faults of one kind.
    each: usize,
    original: Vec<u8>,
    output: Vec<u8>,
    /// Inserted instructions of the text, instructions of cold stubs, and the program's own.
    hot: Vec<Insn>,
    cold: Vec<Insn>,
    own: Vec<Insn>,
    /// Accesses that checks guard.
    guarded: Vec<Insn>,
}

impl Subject {
    fn new(name: &'static str, original: Vec<u8>, library: bool, options: Options) -> Subject {
        let rewritten = if library {
            pipeline::rewrite_library(&original, name, &options)
        } else {
            pipeline::rewrite(&original, name, &options)
        };
        let output = rewritten.expect("rewrite").bytes;
        let m = Module::read(&output, name).expect("read module");
        let text = decoder::decode(m.text.data, m.text.va, &[]);
        let stubs = decoder::decode(m.cold.data, m.cold.va, &[]);
        let rodata = |va| m.bytes_at(va, 16).and_then(|b| b.try_into().ok());
        let cx = site::Context {
            text: &text,
            cold: &stubs,
            check_loads: options.checks == Checks::All,
            check_stores: options.checks == Checks::All,
            polls: options.poll == Poll::Backedge,
            guard: false,
            rodata: &rodata,
        };
        let found = find::find(&cx);
        let (mut hot, mut own) = (Vec::new(), Vec::new());
        for (k, i) in text.insns.iter().enumerate() {
            let list = if site::get(&found.inserted, k) { &mut hot } else { &mut own };
            list.push(*i);
        }
        let guarded = found.list.iter().filter(|s| s.kind.is_about_access()).map(|s| text.insns[s.access]).collect();
        let cold = stubs.insns.clone();
        drop(m);
        Subject { name, each: EACH, original, output, hot, cold, own, guarded }
    }

    fn with_few(self) -> Subject {
        Subject { each: EACH_OF_FEW, ..self }
    }

    fn offset(&self, va: u64) -> usize {
        let m = Module::read(&self.output, self.name).expect("read module");
        let bytes = m.bytes_at(va, 1).expect("in the file");
        bytes.as_ptr() as usize - self.output.as_ptr() as usize
    }
}

/// A row of the table: kind, planted, found, found without the input, harmless by reason.
type Row<'a> = (&'a str, usize, usize, usize, BTreeMap<&'a str, usize>);

/// Where and what: file offset, new bytes, address.
type Fault = (usize, Vec<u8>, u64);

/// A kind of fault: its name and a planter.
type Kind = (&'static str, fn(&Subject, &mut Numbers) -> Option<Fault>);

/// An instruction of the list that fits, with its file offset.
fn pick(s: &Subject, list: &[Insn], n: &mut Numbers, fits: impl Fn(&Insn) -> bool) -> Option<(Insn, usize)> {
    let all: Vec<&Insn> = list.iter().filter(|i| fits(i)).collect();
    let i = **all.get(n.next(all.len().max(1)))?;
    Some((i, s.offset(i.va)))
}

/// Overwrites an instruction with no-operations.
fn removed(s: &Subject, list: &[Insn], n: &mut Numbers, fits: impl Fn(&Insn) -> bool) -> Option<Fault> {
    let (i, at) = pick(s, list, n, fits)?;
    Some((at, vec![0x90; i.len.into()], i.va))
}

/// Adds to the number in an instruction's last `bytes` bytes.
fn added(
    s: &Subject,
    list: &[Insn],
    n: &mut Numbers,
    bytes: usize,
    delta: i32,
    fits: impl Fn(&Insn) -> bool,
) -> Option<Fault> {
    let (i, at) = pick(s, list, n, fits)?;
    let from = at + usize::from(i.len) - bytes;
    let old = &s.output[from..from + bytes];
    let new = match bytes {
        1 => vec![old[0].wrapping_add(delta as u8)],
        _ => i32::from_le_bytes(old.try_into().ok()?).wrapping_add(delta).to_le_bytes().to_vec(),
    };
    Some((from, new, i.va))
}

fn tag_test(i: &Insn) -> bool {
    matches!(i.op, 0xf6 | 0xf7) && i.mem.is_some_and(|m| m.disp as u64 == contract::TAG_TABLE_BASE)
}

fn to_cold(s: &Subject, i: &Insn) -> bool {
    i.flow == Flow::Cond && s.cold.binary_search_by_key(&i.target, |c| c.va).is_ok()
}

fn poll_test(i: &Insn) -> bool {
    i.op == 0x83 && i.mem.is_some_and(|m| m.disp as u64 == contract::POLL_WORD)
}

/// Another instruction of the text than the one at `va`, to jump to.
fn elsewhere(s: &Subject, va: u64, n: &mut Numbers) -> u64 {
    let at = s.own.partition_point(|i| i.va <= va);
    s.own[(at + 1 + n.next(20)).min(s.own.len() - 1)].va
}

fn section_at(s: &Subject, name: &str) -> Option<(usize, usize, u64)> {
    let m = Module::read(&s.output, s.name).ok()?;
    let section = m.sections.iter().find(|x| x.name == name && !x.data.is_empty())?;
    Some((section.data.as_ptr() as usize - s.output.as_ptr() as usize, section.data.len(), section.va))
}

const KINDS: &[Kind] = &[
    ("branch of a check removed", |s, n| removed(s, &s.hot, n, |i| to_cold(s, i))),
    ("test of a check removed", |s, n| removed(s, &s.hot, n, tag_test)),
    ("poll removed", |s, n| removed(s, &s.hot, n, poll_test)),
    ("wrong mask", |s, n| {
        let (i, at) = pick(s, &s.hot, n, tag_test)?;
        let from = at + usize::from(i.len) - if i.size == 1 { 1 } else { 4 };
        let mask = [0x01, 0x02, 0x04, 0x00].into_iter().find(|&m| m != s.output[from])?;
        Some((from, vec![mask], i.va))
    }),
    ("wrong tag address", |s, n| {
        let (i, at) = pick(s, &s.hot, n, tag_test)?;
        let from = at + usize::from(i.len) - 4 - if i.size == 1 { 1 } else { 4 };
        Some((from, vec![s.output[from] ^ 1 << n.next(8)], i.va))
    }),
    ("wrong shift", |s, n| added(s, &s.hot, n, 1, if n.0 & 1 == 0 { 1 } else { -1 }, |i| i.op == 0xc1 && i.imm == 6)),
    ("register swapped in a check's address", |s, n| {
        let (i, at) = pick(s, &s.hot, n, |i| i.op == 0x89 && i.len == 3 && i.mem.is_none())?;
        Some((at + 2, vec![s.output[at + 2] ^ (8 << n.next(3))], i.va))
    }),
    ("distance changed in a check's address", |s, n| {
        added(s, &s.hot, n, 1, 8, |i| {
            i.op == 0x8d && i.mem.is_some_and(|m| m.disp != 0 && i8::try_from(m.disp).is_ok())
        })
    }),
    ("flags not saved", |s, n| removed(s, &s.hot, n, |i| i.op == 0x9f)),
    ("flags not put back", |s, n| removed(s, &s.hot, n, |i| i.op == 0x9e)),
    ("overflow flag not put back", |s, n| removed(s, &s.hot, n, |i| i.op == 0x04)),
    ("register not spilled", |s, n| removed(s, &s.hot, n, |i| matches!(i.op, 0x50..=0x57))),
    ("register not restored", |s, n| removed(s, &s.hot, n, |i| matches!(i.op, 0x58..=0x5f))),
    ("red zone not skipped", |s, n| removed(s, &s.hot, n, |i| i.op == 0x8d && i.r0 == 4)),
    ("check leads to another stub", |s, n| {
        let (i, at) = pick(s, &s.hot, n, |i| to_cold(s, i))?;
        let (other, _) = pick(s, &s.hot, n, |o| to_cold(s, o) && o.target != i.target)?;
        Some((at + 2, ((other.target - i.end()) as i32).to_le_bytes().to_vec(), i.va))
    }),
    ("branch to a stub moved by one", |s, n| added(s, &s.hot, n, 4, 1, |i| to_cold(s, i))),
    ("branch of the program moved by one", |s, n| {
        added(s, &s.own, n, 1, 1, |i| matches!(i.flow, Flow::Cond | Flow::Jump) && i.len == 2)
    }),
    ("long branch of the program moved by one", |s, n| {
        added(s, &s.own, n, 4, -1, |i| matches!(i.flow, Flow::Cond | Flow::Jump | Flow::Call) && i.len >= 5)
    }),
    ("call of the program leads elsewhere", |s, n| {
        let (i, at) = pick(s, &s.own, n, |i| i.flow == Flow::Call)?;
        let to = elsewhere(s, i.target, n);
        Some((at + 1, ((to.wrapping_sub(i.end())) as i32).to_le_bytes().to_vec(), i.va))
    }),
    ("access of another size", |s, n| {
        let (i, at) = pick(s, &s.guarded, n, |i| matches!(i.op, 0x88..=0x8b) && i.len >= 2)?;
        let op = (at..at + usize::from(i.len)).find(|&k| matches!(s.output[k], 0x88..=0x8b))?;
        Some((op, vec![s.output[op] ^ 1], i.va))
    }),
    ("access turned from load to store", |s, n| {
        let (i, at) = pick(s, &s.guarded, n, |i| i.op == 0x8b)?;
        let op = (at..at + usize::from(i.len)).find(|&k| s.output[k] == 0x8b)?;
        Some((op, vec![0x89], i.va))
    }),
    ("byte of the program's instruction changed", |s, n| {
        let (i, at) = pick(s, &s.own, n, |i| !i.is_int3() && !i.is_nop())?;
        let k = at + n.next(i.len.into());
        Some((k, vec![s.output[k].wrapping_add(1 + n.next(255) as u8)], i.va))
    }),
    ("instruction of the program removed", |s, n| removed(s, &s.own, n, |i| !i.is_int3() && !i.is_nop())),
    ("stub returns to another place", |s, n| {
        let (i, at) = pick(s, &s.cold, n, |i| i.op == 0xe9)?;
        let to = elsewhere(s, i.target, n);
        Some((at + 1, ((to.wrapping_sub(i.end())) as i32).to_le_bytes().to_vec(), i.va))
    }),
    ("stub returns one byte off", |s, n| added(s, &s.cold, n, 4, 1, |i| i.op == 0xe9)),
    ("gate told another size", |s, n| added(s, &s.cold, n, 4, 1, |i| i.op == 0x68)),
    ("gate told another kind", |s, n| {
        let (i, at) = pick(s, &s.cold, n, |i| i.op == 0x68)?;
        Some((at + 3, vec![s.output[at + 3] ^ 3], i.va))
    }),
    ("wrong gate", |s, n| added(s, &s.cold, n, 4, 8, |i| i.flow == Flow::CallInd)),
    ("gate call removed", |s, n| removed(s, &s.cold, n, |i| i.flow == Flow::CallInd)),
    ("gate given another address", |s, n| removed(s, &s.cold, n, |i| i.op == 0x87)),
    ("straddle limit off by one", |s, n| {
        added(s, &s.cold, n, 1, if n.0 & 2 == 0 { 1 } else { -1 }, |i| i.op == 0x83 && i.ext == 7)
    }),
    ("instruction of a stub removed", |s, n| removed(s, &s.cold, n, |i| !i.is_nop() && !i.is_int3())),
    ("springboard one byte off", |s, n| springboard(s, n, 1)),
    ("springboard to another instruction", |s, n| springboard(s, n, 0)),
    ("trap-map row one byte off", |s, n| trap_row(s, n, |row, _| row.new + 1)),
    ("trap-map row of another instruction", |s, n| trap_row(s, n, |_, next| next.new)),
    ("trap-map rows of a group one byte off", |s, n| trap_head(s, n, 4)),
    ("trap-map rows of a group at other instructions", |s, n| trap_head(s, n, 0)),
    ("trap-map group with other codes", |s, n| trap_head(s, n, 8)),
    ("restart of an access one byte off", |s, n| restart(s, n, 1)),
    ("restart in another place", |s, n| restart(s, n, 0)),
    ("restarts of a group one byte off", |s, n| restart_head(s, n, 0)),
    ("restarts of a group with other codes", |s, n| restart_head(s, n, 4)),
    ("old code put back", |s, n| {
        let m = Module::read(&s.output, s.name).ok()?;
        let rows = m.traps()?;
        let row = rows.get(n.next(rows.len()))?;
        let va = m.info.old_base_va + u64::from(row.old);
        let (at, bytes) = (s.offset(va), vec![s.original[s.offset(va)]]);
        // A `ret` may stay.
        (bytes[0] != s.output[at] && bytes[0] != 0xc3).then_some((at, bytes, va))
    }),
    ("old code made a return", |s, n| {
        let m = Module::read(&s.output, s.name).ok()?;
        let rows = m.traps()?;
        let row = rows.get(n.next(rows.len()))?;
        let va = m.info.old_base_va + u64::from(row.old);
        let at = s.offset(va);
        (s.original[at] != 0xc3).then_some((at, vec![0xc3], va))
    }),
    ("table entry one byte off", |s, n| table_entry(s, n, false)),
    ("table entry of another case", |s, n| table_entry(s, n, true)),
    ("claim of one byte further", |s, n| claim(s, n, 0, |_, old| old + 1)),
    ("claim of another access", |s, n| {
        let new = s.guarded.get(n.next(s.guarded.len().max(1)))?.va;
        claim(s, n, 0, |base, old| if old == (new - base) as u32 { old + 1 } else { (new - base) as u32 })
    }),
    ("claim of another cover", |s, n| {
        let new = s.guarded.get(n.next(s.guarded.len().max(1)))?.va;
        claim(s, n, 4, |base, old| if old == (new - base) as u32 { old + 1 } else { (new - base) as u32 })
    }),
    ("claim for no reason", |s, n| claim(s, n, 8, |_, old| old + 8)),
    ("region begins late", |s, n| region(s, n, 0, 1)),
    ("region ends early", |s, n| {
        // By more than the last instruction has bytes.
        region(s, n, 4, -16)
    }),
    ("region with another chain", |s, n| region(s, n, 8, 16)),
    ("copy of a loop with another bit", |s, n| {
        let m = Module::read(&s.output, s.name).ok()?;
        let &(from, to, _) = m.moved.get(n.next(m.moved.len().max(1)))?;
        let at = s.offset(from + n.next((to - from) as usize) as u64);
        Some((at, vec![s.output[at] ^ 1 << n.next(8)], from))
    }),
    ("region of a copy ends early", |s, n| region_of_copy(s, n, 4, -1)),
    ("region of a copy leads a byte further", |s, n| region_of_copy(s, n, 8, 1)),
    ("chain with another distance", |s, n| chain(s, n, 0, 64)),
    ("chain with another size or kind", |s, n| {
        let k = [4, 6][n.next(2)];
        chain(s, n, k, if k == 4 { -1 } else { 3 })
    }),
    ("chain with another register", |s, n| chain(s, n, 8, 3)),
    ("chain cut off", |s, n| {
        let m = Module::read(&s.output, s.name).ok()?;
        let all: Vec<u64> = m.regions.iter().map(|r| r.2).collect();
        let goes_on: Vec<u64> = all.into_iter().filter(|&va| s.output[s.offset(va) + 11] == 1).collect();
        let &va = goes_on.get(n.next(goes_on.len().max(1)))?;
        Some((s.offset(va) + 11, vec![0], va))
    }),
    ("frame changed", |s, n| {
        let (at, bytes, va) = section_at(s, ".eh_frame")?;
        // A rule that says how far the frame is: DW_CFA_def_cfa_offset.
        let places: Vec<usize> =
            (at..at + bytes - 1).filter(|&k| s.output[k] == 0x0e && s.output[k + 1] % 8 == 0).collect();
        let k = *places.get(n.next(places.len().max(1)))? + 1;
        Some((k, vec![s.output[k].wrapping_add(8) & 0x7f], va + (k - at) as u64))
    }),
    ("landing pad moved", |s, n| {
        let m = Module::read(&s.output, s.name).ok()?;
        let pad = m.pads.get(n.next(m.pads.len().max(1)))?;
        let (at, bytes, va) = section_at(s, ".gcc_except_table")?;
        // Its distance from the function's begin is a number of the call-site table.
        let f = m.function_at(pad.pad)?;
        let d = pad.pad - f.0;
        let leb = if d < 0x80 { vec![d as u8] } else { vec![d as u8 | 0x80, (d >> 7) as u8] };
        let places: Vec<usize> = (at..at + bytes - leb.len()).filter(|&k| s.output[k..].starts_with(&leb)).collect();
        let k = *places.get(n.next(places.len().max(1)))?;
        Some((k, vec![s.output[k] ^ 1], va + (k - at) as u64))
    }),
    ("data changed", |s, n| {
        let (at, bytes, va) = section_at(s, ".rodata")?;
        let k = n.next(bytes);
        Some((at + k, vec![s.output[at + k] ^ 0x10], va + k as u64))
    }),
];

/// Changes a word of a claim, given the address that places are relative to.
fn claim(s: &Subject, n: &mut Numbers, field: usize, new: impl Fn(u64, u32) -> u32) -> Option<Fault> {
    let m = Module::read(&s.output, s.name).ok()?;
    let c = m.claims.get(n.next(m.claims.len().max(1)))?;
    let k = m.claims.iter().position(|x| x == c)?;
    word(s, m.info.claims_va + 12 * k as u64 + field as u64, |old| new(m.info.new_base_va, old))
}

/// Adds to a word of a region.
fn region(s: &Subject, n: &mut Numbers, field: usize, delta: i32) -> Option<Fault> {
    let m = Module::read(&s.output, s.name).ok()?;
    let k = n.next(m.regions.len().max(1));
    m.regions.get(k)?;
    word(s, m.info.regions_va + 12 * k as u64 + field as u64, |old| old.wrapping_add(delta as u32))
}

/// The same of a region that leads elsewhere; these stand behind the others.
fn region_of_copy(s: &Subject, n: &mut Numbers, field: usize, delta: i32) -> Option<Fault> {
    let m = Module::read(&s.output, s.name).ok()?;
    let k = n.next(m.moved.len().max(1));
    let &(from, to, _) = m.moved.get(k)?;
    // Early enough that the instruction does not begin in it.
    let delta = if field == 4 { delta * (to - from) as i32 } else { delta };
    word(s, m.info.regions_va + 12 * (m.regions.len() + k) as u64 + field as u64, |old| old.wrapping_add(delta as u32))
}

/// Adds to a byte of the first range of a region's chain.
fn chain(s: &Subject, n: &mut Numbers, field: usize, delta: i8) -> Option<Fault> {
    let m = Module::read(&s.output, s.name).ok()?;
    let va = m.regions.get(n.next(m.regions.len().max(1)))?.2 + field as u64;
    let at = s.offset(va);
    Some((at, vec![s.output[at].wrapping_add(delta as u8)], va))
}

/// Changes a word of the file.
fn word(s: &Subject, va: u64, new: impl Fn(u32) -> u32) -> Option<Fault> {
    let at = s.offset(va);
    let old = u32::from_le_bytes(s.output[at..at + 4].try_into().ok()?);
    Some((at, new(old).to_le_bytes().to_vec(), va))
}

fn springboard(s: &Subject, n: &mut Numbers, delta: u64) -> Option<Fault> {
    let m = Module::read(&s.output, s.name).ok()?;
    let boards: Vec<(u64, u64)> = m
        .old_code()
        .flat_map(|o| {
            let at = |k: usize| {
                let d = i32::from_le_bytes(o.data.get(k + 1..k + 5)?.try_into().ok()?);
                let va = o.va + k as u64;
                Some((va, va.wrapping_add(5).wrapping_add(d as u64))).filter(|_| o.data[k] == 0xe9)
            };
            (0..o.data.len()).filter_map(at).collect::<Vec<_>>()
        })
        .filter(|b| b.1.wrapping_sub(m.text.va) < m.text.data.len() as u64)
        .collect();
    let &(from, to) = boards.get(n.next(boards.len().max(1)))?;
    let to = if delta == 0 { elsewhere(s, to, n) } else { to + delta };
    Some((s.offset(from) + 1, (to.wrapping_sub(from + 5) as i32).to_le_bytes().to_vec(), from))
}

/// Another new offset in the code of a row.
fn trap_row(s: &Subject, n: &mut Numbers, new: impl Fn(TrapEntry, TrapEntry) -> u32) -> Option<Fault> {
    let m = Module::read(&s.output, s.name).ok()?;
    let heads = m.trap_heads()?;
    let map = m.trap_map(&heads)?;
    let mut fitting = Vec::new();
    for group in 0..heads.len() {
        let rows: Vec<TrapEntry> = map.group(group).collect();
        let mut read = map.group(group);
        for three in rows.windows(3) {
            let at = map.codes.len() - read.rest().len();
            read.next();
            let bytes = map.codes.len() - read.rest().len() - at;
            let (code, needed) = encode(three[0], TrapEntry { new: new(three[1], three[2]), ..three[1] });
            if needed == bytes && code[..needed] != map.codes[at..at + bytes] {
                fitting.push((at, code[..needed].to_vec()));
            }
        }
    }
    let (at, code) = fitting.get(n.next(fitting.len().max(1)))?.clone();
    Some((s.offset(m.info.trap_codes_va) + at, code, m.info.trap_codes_va + at as u64))
}

/// Adds one to a word of a group's head.
fn trap_head(s: &Subject, n: &mut Numbers, word: usize) -> Option<Fault> {
    let m = Module::read(&s.output, s.name).ok()?;
    let group = n.next(m.trap_heads()?.len());
    let va = m.info.trap_heads_va + (size_of::<TrapHead>() * group + word) as u64;
    let at = s.offset(va);
    let old = u32::from_le_bytes(s.output[at..at + 4].try_into().ok()?);
    Some((at, (old + 1).to_le_bytes().to_vec(), va))
}

/// Adds one to a number of a row of the restart table: how far its check is from the access before (0), or how long the check is (1).
fn restart(s: &Subject, n: &mut Numbers, number: usize) -> Option<Fault> {
    let m = Module::read(&s.output, s.name).ok()?;
    let va = m.info.restart_codes_va;
    let at = s.offset(va);
    // Numbers of one byte, behind rows of two such.
    let bytes = s.output[at..at + m.info.restart_code_bytes as usize].iter().skip(1);
    let small: Vec<u8> = bytes.copied().take_while(|&byte| byte < 0x7f).take(2 * restarts::GROUP - 2).collect();
    let k = 1 + 2 * n.next((small.len() / 2).max(1)) + number;
    let &old = small.get(k - 1)?;
    Some((at + k, vec![old + 1], va + k as u64))
}

/// Adds one to a word of the head of a group of restarts.
fn restart_head(s: &Subject, n: &mut Numbers, word: usize) -> Option<Fault> {
    let m = Module::read(&s.output, s.name).ok()?;
    let groups = restarts::Restarts::groups(m.info.restart_count as usize);
    if groups == 0 {
        return None;
    }
    let va = m.info.restart_heads_va + (size_of::<RestartHead>() * n.next(groups) + word) as u64;
    self::word(s, va, |old| old + 1)
}

fn table_entry(s: &Subject, n: &mut Numbers, other: bool) -> Option<Fault> {
    let (at, bytes, va) = section_at(s, ".blizzard.rodata")?;
    let word = |k: usize| u32::from_le_bytes([0, 1, 2, 3].map(|b| s.output[at + 4 * k + b]));
    let words: Vec<usize> = (0..bytes / 4).filter(|&k| word(k) != 0).collect();
    let k = *words.get(n.next(words.len().max(1)))?;
    let new = match other {
        true => words.iter().map(|&j| word(j)).find(|&w| w != word(k) && w.abs_diff(word(k)) < 4096)?,
        false => word(k).wrapping_add(1),
    };
    Some((at + 4 * k, new.to_le_bytes().to_vec(), va + 4 * k as u64))
}

pub const EXCEPTIONS: &str = r#"
#include <stdexcept>
#include <string>
#include <cstdio>
struct Noisy { std::string s; ~Noisy() { if (s.size() > 100) std::puts("long"); } };
static int f(int i) {
    Noisy d{std::string(i, 'a')};
    if (i == 3) throw std::runtime_error("three");
    if (i == 4) throw i;
    switch (i) { case 0: return 7; case 1: return d.s.size(); case 2: return 9; case 5: return i * 3; case 6: return 1; }
    return 0;
}
int main() {
    int sum = 0;
    for (int i = 0; i < 9; i++)
        try { sum += f(i); }
        catch (std::exception &e) { std::puts(e.what()); }
        catch (int j) { std::printf("%d\n", j); }
    std::printf("%d\n", sum);
}
"#;

/// The library that the compiler finds by this name.
fn system_library(name: &str) -> Vec<u8> {
    let found = Command::new("cc").arg(format!("-print-file-name={name}")).output().expect("the compiler is installed");
    std::fs::read(String::from_utf8_lossy(&found.stdout).trim()).expect("the library is installed")
}

#[test]
#[ignore = "a minute; needs g++: run by tests/of_the_library.rs"]
fn finds_every_planted_fault() {
    let c = PLANTED_PROGRAM;
    let all = Options::tests();
    let none = Options { checks: Checks::None, poll: Poll::None, ..all };
    let cpp = |flags: &[&str]| compiled("c++", "p.cpp", EXCEPTIONS, flags);
    let cat = || std::fs::read("/bin/cat").expect("coreutils are installed");
    let subjects = [
        Subject::new("c -O0", compiled("cc", "p.c", c, &["-O0"]), false, all),
        Subject::new("c -O2 fixed", compiled("cc", "p.c", c, &["-O2", "-no-pie", "-fcf-protection=full"]), false, all),
        Subject::new("c++ -O2", cpp(&["-O2"]), false, all),
        Subject::new("cat", cat(), false, all),
        Subject::new("library, c", compiled("cc", "p.c", c, &["-O2", "-fPIC", "-shared"]), true, all),
        Subject::new("library, c++", cpp(&["-O1", "-fPIC", "-shared"]), true, all),
        Subject::new("libgcc_s", system_library("libgcc_s.so.1"), true, all).with_few(),
        Subject::new("cat unchecked", cat(), false, none).with_few(),
        Subject::new("library, c++ unchecked", cpp(&["-O2", "-fPIC", "-shared"]), true, none),
    ];
    for s in &subjects {
        let audit = verify_with(&s.output, s.name, Some(&s.original)).expect("audit runs");
        assert!(audit.is_clean(), "{audit}");
    }
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    // By kind: planted, found, found in the output alone, harmless by reason.
    let mut table: Vec<Row> = Vec::new();
    let mut missed = Vec::new();
    let mut of_subject = BTreeMap::new();
    for (kind, plant) in KINDS {
        let (mut planted, mut found, mut alone, mut equal) = (0, 0, 0, BTreeMap::new());
        for s in &subjects {
            for _ in 0..s.each {
                let Some((at, bytes, va)) = plant(s, &mut numbers) else { continue };
                let mut mutant = s.output.clone();
                mutant[at..at + bytes.len()].copy_from_slice(&bytes);
                if mutant == s.output {
                    continue;
                }
                planted += 1;
                *of_subject.entry(s.name).or_insert(0) += 1;
                let open = |original| verify_with(&mutant, s.name, original).map_or(true, |a| !a.is_clean());
                alone += usize::from(open(None));
                if open(Some(&s.original)) {
                    found += 1;
                } else if let Some(why) = explained(kind, s, &mutant, va) {
                    *equal.entry(why).or_insert(0) += 1;
                } else {
                    missed.push(format!("{kind}: {} at {va:#x}: {bytes:02x?}", s.name));
                }
            }
        }
        table.push((kind, planted, found, alone, equal));
    }
    println!("{:45} {:>7} {:>6} {:>6}  harmless", "kind", "planted", "found", "alone");
    for (kind, planted, found, alone, equal) in &table {
        println!("{kind:45} {planted:>7} {found:>6} {alone:>6}  {equal:?}");
    }
    let sum = |f: fn(&Row) -> usize| table.iter().map(f).sum::<usize>();
    let (planted, found) = (sum(|r| r.1), sum(|r| r.2));
    println!("{:45} {planted:>7} {found:>6} {:>6}  {}", "all", sum(|r| r.3), planted - found - missed.len());
    assert!(missed.is_empty(), "{} not found:\n{}", missed.len(), missed.join("\n"));
    assert!(planted >= 1000, "only {planted} planted");
    println!("{of_subject:?}");
    for s in &subjects {
        assert!(of_subject.get(s.name).is_some_and(|&count| count >= 30), "too few: {of_subject:?}");
    }
    assert!(found * 100 >= planted * 95, "only {found} of {planted} found: too much is taken for harmless");
    for (kind, planted, ..) in &table {
        assert!(*planted >= 3, "{kind}: only {planted} planted");
    }
}

/// The rule by which a fault that the audit accepts changes nothing.
fn explained(kind: &str, s: &Subject, mutant: &[u8], va: u64) -> Option<&'static str> {
    if kind == "frame changed" && same_frames(&s.output, mutant) {
        return Some("no frame says anything else at any instruction");
    }
    if kind == "landing pad moved" && same_pads(&s.output, mutant) {
        return Some("no call site has another pad");
    }
    // push rax, mov rax, rax, and the exchange: the address was in rax.
    if kind == "gate given another address" && s.output[..s.offset(va)].ends_with(&[0x50, 0x48, 0x89, 0xc0]) {
        return Some("the exchange was of two equal values");
    }
    if kind == "region with another chain" && same_chain(s, mutant, va) {
        return Some("the other chain acquires the same");
    }
    if kind == "region begins late" && begins_at_checked_access(s, va) {
        return Some("the region begins at an access whose context goes back to its check");
    }
    if kind == "gate told another size" && asks_for_more(s, mutant, va) {
        return Some("the gate is asked for a byte more, of those that the test tells of");
    }
    if ["claim", "region", "chain", "copy", "restart"].iter().any(|k| kind.starts_with(k)) {
        return None;
    }
    let flags = match kind {
        "flags not saved" | "flags not put back" => ALL_FLAGS & !OF,
        "overflow flag not put back" => OF,
        _ => return harmless(&s.output, mutant, va),
    };
    dead(&s.own, va, flags).then_some("flags that nothing reads before they are overwritten, or at a call")
}

fn same_frames(a: &[u8], b: &[u8]) -> bool {
    let rows = |file: &[u8]| {
        let m = Module::read(file, "p").ok()?;
        crate::judge::unwinding::cfi::rules(&m).ok()
    };
    rows(a).is_some() && rows(a) == rows(b)
}

/// Whether the region with a word at `va` begins at an access that has a check of its own.
fn begins_at_checked_access(s: &Subject, va: u64) -> bool {
    let Ok(m) = Module::read(&s.output, s.name) else { return false };
    let region = m.regions.get((va - m.info.regions_va) as usize / 12);
    let (Some(region), Some(restarts)) = (region, m.restarts()) else { return false };
    restarts.iter().any(|&(_, access)| access == region.0)
}

/// Whether the push of a descriptor at `va` names more bytes, and nothing else. The audit itself compares it with what the test tells of.
fn asks_for_more(s: &Subject, mutant: &[u8], va: u64) -> bool {
    // `push imm32`.
    let pushed = |file: &[u8]| u32::from_le_bytes([1, 2, 3, 4].map(|k| file[s.offset(va) + k]));
    let (right, other) = (pushed(&s.output), pushed(mutant));
    let size = contract::miss_desc::SIZE_MASK;
    right & !size == other & !size && right & size < other & size
}

/// Whether the region whose chain stands at `va` acquires the same in both files: memory that may be stored to may be loaded from.
fn same_chain(s: &Subject, mutant: &[u8], va: u64) -> bool {
    // Offsets in a range: its kind of access, and whether another one follows.
    const ACCESS: usize = 6;
    const MORE: usize = 11;
    let chain = |file: &[u8]| -> Option<Vec<[u8; 16]>> {
        let m = Module::read(file, s.name).ok()?;
        let at = s.offset(m.regions.get((va - m.info.regions_va) as usize / 12)?.2);
        let mut ranges: Vec<[u8; 16]> = Vec::new();
        for range in file.get(at..)?.as_chunks().0 {
            ranges.push(*range);
            if range[MORE] == 0 {
                break;
            }
        }
        ranges.iter_mut().for_each(|range| range[MORE] = 0);
        Some(ranges)
    };
    let (Some(right), Some(other)) = (chain(&s.output), chain(mutant)) else { return false };
    let stored = |mut range: [u8; 16]| {
        range[ACCESS] = (contract::miss_desc::STORE >> 16) as u8;
        range
    };
    let tells = |have: &[u8; 16], of: &[u8; 16]| have == of || *have == stored(*of);
    right.iter().all(|of| other.iter().any(|have| tells(have, of)))
        && other.iter().all(|have| right.iter().any(|of| tells(have, of)) && right.contains(have))
}

fn same_pads(a: &[u8], b: &[u8]) -> bool {
    let pads = |file: &[u8]| Module::read(file, "p").ok().map(|m| m.pads);
    pads(a).is_some() && pads(a) == pads(b)
}
