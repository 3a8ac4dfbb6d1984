//! What stays of the old code: bytes that are as they were in executable sections.
//!
//! Input: module, old code, decoded new code, the map from old to new addresses. Output: [`Unmoved`]: how many of these bytes are padding, are read or named as
//! data, or are neither, and which of them read as code ([`crate::judge::old_code::evidence`]). Code that nothing found stands there; it would run
//! unchecked. Whether it is ever reached cannot be told from the file, so it is listed, and is no finding.
//! **Invariant**: each such byte is in exactly one class, and bytes that code certainly reads are never suspects; all others may be.

use crate::audit::{Audit, SuspectCode, Unmoved};
use crate::decode::decoder::Code;
use crate::decode::effects::Touch;
use crate::decode::insn::{NONE, RIP};
use crate::file::module::Module;
use crate::graph::tables::JumpTable;
use crate::judge::old_code::evidence::{self, Around, Run, is_filler};
use crate::judge::old_code::springboards::Old;
use crate::sites::site::{Sites, get};
use std::ops::Range;

const TRAP: u8 = 0xcc;

/// Suspects listed one by one; more are only counted.
const LISTED: usize = 1_000;

/// Classifies them. `pairs`: old addresses of instructions and their new ones, ascending.
pub fn classify(
    m: &Module,
    text: &Code,
    sites: &Sites,
    old: &Old,
    tables: &[JumpTable],
    pairs: &[(u64, u64)],
    audit: &mut Audit,
) {
    let begins = |va: u64| pairs.binary_search_by_key(&va, |p| p.0).is_ok() || old.in_springboard(va);
    let (read, named) = references(m, text, sites, tables);
    let mut runs = Vec::new();
    for (va, bytes) in stretches(m, old, &begins) {
        let end = va + bytes.len() as u64;
        let within = read.partition_point(|r| r.end <= va)..read.partition_point(|r| r.start < end);
        runs.push(Run { va, bytes, read: read[within].to_vec() });
    }
    let mapped = m.segments.iter().filter(|s| s.file_bytes > 0);
    let low = mapped.clone().map(|s| s.va).min().unwrap_or(0);
    let high = mapped.map(|s| s.va.saturating_add(s.file_bytes)).max().unwrap_or(0);
    let around = Around { mapped: low..high.max(low), begins: &begins, moved: pairs.len() as u64 };
    let mut counts = Unmoved::default();
    for run in &runs {
        count(run, &named, &mut counts);
    }
    for s in evidence::suspects(&runs, &around) {
        counts.suspect_bytes += s.bytes;
        counts.suspect_places += 1;
        if counts.suspects.len() < LISTED {
            let place = m.old_place(s.va);
            counts.suspects.push(SuspectCode { at: s.va, bytes: s.bytes, place, evidence_bits: s.bits });
        }
    }
    audit.unmoved = counts;
}

/// Stretches of old code that are neither springboards nor trap bytes for code that moved. A trap byte stands for an instruction if one begins there, or in
/// front of it without a byte of another kind between.
fn stretches<'a>(m: &Module<'a>, old: &Old, begins: &dyn Fn(u64) -> bool) -> Vec<(u64, &'a [u8])> {
    let mut all = Vec::new();
    for s in m.old_code() {
        let mut pieces = old.pieces[old.pieces.partition_point(|p| p.0 < s.va)..].iter().peekable();
        let (mut at, mut from) = (0, None);
        // Behind a springboard the rest of what it covers.
        let mut gone = false;
        let mut end = |from: &mut Option<usize>, at: usize| {
            all.extend(from.take().map(|from| (s.va + from as u64, &s.data[from..at])));
        };
        while at < s.data.len() {
            let va = s.va + at as u64;
            while pieces.next_if(|p| p.0 < va).is_some() {}
            if let Some(piece) = pieces.next_if(|p| p.0 == va) {
                end(&mut from, at);
                (at, gone) = (at + piece.1 as usize, true);
                continue;
            }
            gone = s.data[at] == TRAP && (gone || begins(va));
            if gone {
                end(&mut from, at);
            } else {
                from.get_or_insert(at);
            }
            at += 1;
        }
        end(&mut from, s.data.len());
    }
    all.sort_by_key(|r| r.0);
    all
}

/// What the new code certainly reads at constant addresses, ascending and merged; and all addresses that code, data or symbols name, ascending.
fn references(m: &Module, text: &Code, sites: &Sites, tables: &[JumpTable]) -> (Vec<Range<u64>>, Vec<u64>) {
    let old: Vec<Range<u64>> = m.old_code().map(|s| s.va..s.va + s.data.len() as u64).collect();
    let is_old = |va: u64| old.iter().any(|r| r.contains(&va));
    let bases = tables.iter().filter_map(|t| t.form.base());
    let others = m.pointers.iter().chain(&m.objects).copied().chain(bases);
    let (mut read, mut named) = (Vec::new(), others.filter(|&va| is_old(va)).collect::<Vec<u64>>());
    for (k, i) in text.insns.iter().enumerate() {
        let constant = i.mem.filter(|mem| mem.index == NONE && mem.seg == 0 && matches!(mem.base, RIP | NONE));
        let place = match (constant, i.mem) {
            (Some(mem), _) => mem.disp as u64,
            // Only a fixed-address file may hold such addresses in displacements and immediates.
            (None, Some(mem)) if m.fixed => mem.disp as u64,
            (None, None) if m.fixed => i.imm as u64,
            _ => continue,
        };
        if !is_old(place) || get(&sites.inserted, k) {
            continue;
        }
        named.push(place);
        if constant.is_some() && matches!(i.touch, Touch::Mem(_)) {
            read.push(place..place.saturating_add(u64::from(i.size)));
        }
    }
    named.sort_unstable();
    named.dedup();
    read.sort_unstable_by_key(|r| r.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for r in read {
        match merged.last_mut() {
            Some(last) if r.start <= last.end => last.end = last.end.max(r.end),
            _ => merged.push(r),
        }
    }
    (merged, named)
}

/// Adds the bytes of a stretch to their classes.
fn count(run: &Run, named: &[u64], counts: &mut Unmoved) {
    let end = run.va + run.bytes.len() as u64;
    let first = named.get(named.partition_point(|&n| n < run.va)).copied().unwrap_or(end);
    let mut read = run.read.iter().peekable();
    for (va, &byte) in (run.va..).zip(run.bytes) {
        while read.next_if(|r| r.end <= va).is_some() {}
        let class = if read.peek().is_some_and(|r| r.contains(&va)) {
            &mut counts.read
        } else if is_filler(byte) {
            &mut counts.filler
        } else if va >= first {
            &mut counts.named
        } else {
            &mut counts.unexplained
        };
        *class += 1;
    }
}
