//! The output compared with the input: where each byte of old code went.
//!
//! Input: module, decoded new code, sites, the original file. Output: [`ByteCounts`], the complete map from old to new
//! addresses, findings. Each instruction of the input that the trap map or a springboard names is decoded at its old address; the
//! new code there must be inserted code, then the same instruction: the same bytes, but for distances, which must lead to the
//! same data, and to the new code of the same target. Behind it stands the new code of the next instruction, or a jump to it.
//!
//! **Invariant:** each new instruction is inserted code of a recognised site, the one copy of one old instruction, a jump to what follows
//! an old instruction, or padding; each old byte is part of an instruction (and now a springboard or a trap), padding, or as it
//! was. All else of the input's segments is as it was, headers and two bits of its property note apart. Source: `rewriter/DESIGN.md`.

use crate::audit::Audit;
use crate::decode::decoder::{self, Code};
use crate::decode::effects::{Flow, RAX, RSP};
use crate::decode::insn::{ADDR32, FS, GS, Insn, NO_TARGET, RIP, WIDE};
use crate::decode::raw::{Raw, prefixes, without_segments};
use crate::facts::exempt::names_memory_of_runtime;
use crate::file::module::Module;
use crate::graph::tables::{JumpTables, TableEnds};
use crate::judge::old_code::original::Original;
use crate::judge::old_code::springboards::Old;
use crate::sites::site::{SiteKind, Sites, get};
use blizzard_contract as contract;
use foldhash::{HashMap, HashMapExt};
use std::collections::BTreeSet;
use std::ops::Range;

const HLT: u16 = 0xf4;
pub(super) struct OriginalComparison<'x, 'a> {
    pub(super) m: &'x Module<'a>,
    pub(super) text: &'x Code,
    pub(super) sites: &'x Sites,
    pub(super) original: &'x Original<'a>,
    /// Instructions of plain code with a full version, and that; ascending.
    pub(super) twice: &'x [(u64, Range<u64>)],
    pub(super) tables: &'x JumpTables,
    /// Reads of tables: the table by the instruction's index.
    pub(super) reads: HashMap<usize, usize>,
    pub(super) map: HashMap<u64, u64>,
    /// Where the own jumps of loops lead that test for several iterations: the beginning of the loop's new code.
    pub(super) entered: HashMap<u64, u64>,
    /// Old instructions by address.
    pub(super) insns: HashMap<u64, Insn>,
    /// Bitmap of new instructions accounted for.
    pub(super) used: Vec<u64>,
    pub(super) undefined: Vec<u64>,
}

/// What the comparison knows of all instructions.
pub struct Compared {
    /// Old addresses, ascending, and where the new code begins, inserted code included.
    pub pairs: Vec<(u64, u64)>,
    /// New addresses, ascending, of what is undefined or privileged now and was not: instructions of other processors, stores into the runtime's memory.
    pub undefined: Vec<u64>,
}

/// Compares. `twice`: instructions of plain code with a full version, and that; ascending.
pub fn compare(
    m: &Module,
    text: &Code,
    sites: &Sites,
    tables: &JumpTables,
    old: &Old,
    (original, twice): (&Original, &[(u64, Range<u64>)]),
    audit: &mut Audit,
) -> Compared {
    let named: Vec<(u64, u64)> = old.all(m).collect();
    let mut c = OriginalComparison {
        m,
        text,
        sites,
        original,
        twice,
        tables,
        reads: tables.reads.iter().map(|&(load, table)| (load, table)).collect(),
        map: named.iter().copied().collect(),
        entered: sites
            .list
            .iter()
            .flat_map(|s| s.strip.iter().map(|strip| (text.insns[strip.inner].va, text.insns[s.start].va)))
            .collect(),
        insns: HashMap::with_capacity(named.len()),
        used: vec![0; text.insns.len() / 64 + 1],
        undefined: Vec::new(),
    };
    let mut addresses: Vec<u64> = named.iter().map(|p| p.0).collect();
    addresses.sort_unstable();
    addresses.dedup();
    for s in &original.exec {
        let from = addresses.partition_point(|&a| a < s.va);
        let to = addresses.partition_point(|&a| a < s.va + s.data.len() as u64);
        c.insns.extend(decoder::decode_at(s.data, s.va, &addresses[from..to]).into_iter().map(|i| (i.va, i)));
    }
    c.covered(old);
    let mut list: Vec<(u64, u64)> = c.map.iter().map(|(&a, &b)| (a, b)).collect();
    list.sort_unstable();
    for &(from, to) in &list {
        if let Err(why) = c.instruction(from, to) {
            audit.finding(from, m.place(to), why);
        }
    }
    c.surplus(audit);
    c.tables_match(audit);
    c.bytes(old, &list, audit);
    c.elsewhere(audit);
    c.undefined.sort_unstable();
    Compared { pairs: list, undefined: c.undefined }
}

impl OriginalComparison<'_, '_> {
    fn old_insn(&mut self, va: u64) -> Option<Insn> {
        if let Some(i) = self.insns.get(&va) {
            return Some(*i);
        }
        let s = self.original.section(va)?;
        let i = decoder::decode_at(s.data, s.va, &[va]).pop()?;
        self.insns.insert(va, i);
        Some(i)
    }

    /// Completes the map: the trap map leaves out instructions that begin under a springboard. In the new code they follow the
    /// instruction that was in front of them, or stand where a branch leads that led to them. A jump may be the copy of a jump or lead to it:
    /// where neither leads to the right place for sure, what else leads there has its say first.
    fn covered(&mut self, old: &Old) {
        let mut work: Vec<u64> = self.map.keys().copied().collect();
        let mut doubtful: BTreeSet<u64> = BTreeSet::new();
        loop {
            let (at, is_last) = match work.pop() {
                Some(at) => (at, false),
                None => match doubtful.pop_first() {
                    Some(at) => (at, true),
                    None => return,
                },
            };
            for (from, places) in self.leads_to(at, old) {
                if self.map.contains_key(&from) {
                    continue;
                }
                let Some(o) = self.old_insn(from) else { continue };
                let is_copy = |to: &u64, loose| self.text.at(*to).and_then(|k| self.copy_of(&o, k, loose)).is_some();
                let loose: Vec<u64> = places.into_iter().filter(|to| is_copy(to, true)).collect();
                let exact = loose.iter().copied().find(|to| is_copy(to, false));
                match exact.or_else(|| loose.first().copied().filter(|_| is_last || loose.len() == 1)) {
                    Some(to) => {
                        self.map.insert(from, to);
                        work.push(from);
                    }
                    None if !loose.is_empty() => _ = doubtful.insert(at),
                    None => {}
                }
            }
        }
    }

    /// The instructions under springboards that an old one leads to, each with where its new code may stand.
    fn leads_to(&mut self, at: u64, old: &Old) -> Vec<(u64, Vec<u64>)> {
        let Some(o) = self.old_insn(at) else { return Vec::new() };
        let is_missing = |va: u64| old.in_springboard(va) && !self.map.contains_key(&va);
        let (behind, target) = (is_missing(o.end()), o.target != NO_TARGET && is_missing(o.target));
        if !behind && !target {
            return Vec::new();
        }
        let new = self.map.get(&at).and_then(|&n| self.text.at(n));
        let Some((first, n)) = new.and_then(|k| self.copy_of(&o, k, true)) else { return Vec::new() };
        let mut found = Vec::new();
        let follows = self.sites.behind_stack_test(first + n).unwrap_or(first + n);
        if let Some(next) = self.text.insns.get(follows).filter(|_| behind) {
            let mut places = vec![next.va];
            // What overlaps other instructions may end with a jump to what follows.
            places.extend((next.flow == Flow::Jump).then_some(next.target));
            found.push((o.end(), places));
        }
        if target && n == 1 {
            let branch = &self.text.insns[first];
            let leads = self.entered.get(&branch.target).copied().unwrap_or(branch.target);
            found.push((o.target, vec![leads]));
        }
        found
    }

    /// One old instruction and its new code.
    fn instruction(&mut self, from: u64, to: u64) -> std::result::Result<(), String> {
        let o = self.old_insn(from).ok_or("the trap map names no instruction of the original")?;
        let k = self.text.at(to).ok_or("its new address begins no instruction")?;
        let (first, n) = self
            .copy_of(&o, k, false)
            .ok_or_else(|| format!("the new code at {to:#x} is not the instruction of the original"))?;
        let mut used = |k: usize| self.used[k / 64] |= 1 << (k % 64);
        (first..first + n).for_each(&mut used);
        // A breakpoint in front of padding need not go on.
        let ends = matches!(o.flow, Flow::Jump | Flow::JumpInd | Flow::Ret | Flow::Stop);
        let stops = self.text.insns[first].flow == Flow::Stop;
        if stops && o.flow == Flow::Next {
            self.undefined.push(self.text.insns[first].va);
        }
        if ends || stops || (o.is_int3() && !self.map.contains_key(&o.end())) {
            return Ok(());
        }
        // What runs next.
        let next = self.map.get(&o.end()).copied();
        let mut at = first + n;
        loop {
            if let Some(behind) = self.sites.behind_stack_test(at) {
                at = behind;
            }
            let Some(i) = self.text.insns.get(at) else { return Err("the new code ends behind it".into()) };
            match next {
                Some(n) if i.va == n => return Ok(()),
                Some(n) if i.flow == Flow::Jump && i.target == n => {
                    used(at);
                    return Ok(());
                }
                None if i.flow == Flow::Stop => {
                    used(at);
                    return Ok(());
                }
                // A redirection's jump leads to the full version of the function that follows.
                _ if o.is_int3() && i.flow == Flow::Jump && get(&self.sites.inserted, at) => at += 1,
                // Breakpoints between functions.
                _ if o.is_int3() && i.is_int3() => at += 1,
                _ if i.is_nop() && !get(&self.sites.inserted, at) => {
                    if next.is_some_and(|n| is_stray(self.m, i, n)) {
                        return Err(format!(
                            "behind it stands a nop at {:#x} that is neither the program's nor padding",
                            i.va
                        ));
                    }
                    at += 1;
                }
                _ => return Err(format!("what follows it in the new code at {:#x} is not what followed it", i.va)),
            }
        }
    }

    /// Finds the copy of `o` in the new code that begins at instruction `k`: index and number of instructions. `loose`: branch
    /// targets are not compared, because the map is not complete yet.
    pub(super) fn copy_of(&self, o: &Insn, k: usize, loose: bool) -> Option<(usize, usize)> {
        let inserted = (k..).take_while(|&i| get(&self.sites.inserted, i)).count();
        // Behind what is inserted; or earlier, where an instruction of the program was taken for inserted code.
        (k..=k + inserted).rev().find_map(|at| Some((at, self.same(o, at, loose)?)))
    }

    /// How many instructions from `k` on are the new form of `o`.
    fn same(&self, o: &Insn, k: usize, loose: bool) -> Option<usize> {
        let n = self.text.insns.get(k)?;
        let entered = |target: u64| self.entered.get(&target).copied().unwrap_or(target);
        let goes = |target: u64| loose || entered(target) == self.map.get(&o.target).copied().unwrap_or(o.target);
        match o.flow {
            Flow::Jump => (n.flow == Flow::Jump && goes(n.target)).then_some(1),
            Flow::Call if o.target == o.end() => {
                let i = self.text.insns.get(k..k + 3)?;
                let address = i[1].mem.is_some_and(|m| m.base == RIP && m.disp as u64 == o.end());
                let forms = i[0].op == 0x50
                    && i[0].r0 == RAX
                    && i[1].op == 0x8d
                    && i[1].r0 == RAX
                    && i[1].has(WIDE)
                    && !i[1].has(ADDR32);
                let top = i[2].mem.is_some_and(|m| m.base == RSP && m.disp == 0);
                (address && forms && top && i[2].op == 0x87 && i[2].has(WIDE)).then_some(3)
            }
            Flow::Call => (n.flow == Flow::Call && goes(n.target)).then_some(1),
            Flow::Cond if matches!(o.op, 0x70..=0x7f | 0x180..=0x18f) => {
                let condition = matches!(n.op, 0x70..=0x7f | 0x180..=0x18f) && n.op & 15 == o.op & 15;
                (n.flow == Flow::Cond && condition && goes(n.target)).then_some(1)
            }
            Flow::Cond if o.op == 0xc7 => (n.flow == Flow::Cond && n.op == o.op && goes(n.target)).then_some(1),
            Flow::Cond => {
                // loop and jrcxz: over a jump over a long jump.
                let i = self.text.insns.get(k..k + 3)?;
                let prefix = o.bits == n.bits && o.op == n.op;
                let over = i[0].target == i[2].va && i[1].flow == Flow::Jump && i[1].target == i[2].end();
                (prefix && over && i[2].flow == Flow::Jump && goes(i[2].target)).then_some(3)
            }
            // Instructions of other processors, which the processors that this is for do not have.
            Flow::Next if matches!(o.op, 0x1a6 | 0x1a7) && n.op == 0x10b => Some(1),
            // Stores into the runtime's memory, where a program has none, fail.
            Flow::Next if n.op == HLT && matches!(o.op, 0xa2 | 0xa3) && names_memory_of_runtime(o) => Some(1),
            _ => self.same_bytes(o, n, k).then_some(1),
        }
    }

    /// No branch: the bytes are the same, except a distance, which leads to the same place.
    fn same_bytes(&self, o: &Insn, n: &Insn, k: usize) -> bool {
        let old = self.original.section(o.va).map_or(&[][..], |s| &s.data[(o.va - s.va) as usize..]);
        let new = &self.m.text.data[(n.va - self.text.base) as usize..];
        let (Some(old), Some(new)) = (old.get(..o.len.into()), new.get(..n.len.into())) else { return false };
        if old == new {
            return o.mem.is_none_or(|m| m.base != RIP) || o.mem == n.mem;
        }
        if self.m.is_guarded() && without_segments(old) == without_segments(new) {
            // It has the prefix for the alias, behind a test, in place of one that does nothing.
            let tested = self.sites.test_of(k).is_some_and(|s| matches!(s.kind, SiteKind::Check { .. }));
            return tested && !prefixes(old).contains(&FS) && prefixes(new).contains(&GS);
        }
        if self.reads.contains_key(&k) {
            // Of a table's read the distance changes, and may grow.
            let but_for_distance = |i: &Insn| {
                let m = i.mem.map(|m| (m.base, m.index, m.scale, m.seg));
                (i.op, i.ext, i.bits, i.size, i.r0, i.r1, m, i.imm)
            };
            return but_for_distance(o) == but_for_distance(n) && o.flow == n.flow;
        }
        let rip = o.mem.is_some_and(|m| m.base == RIP) && o.mem == n.mem && o.len == n.len;
        let Some(at) = Raw::parse(old).filter(|_| rip).map(|r| usize::from(r.after_op) + 1) else { return false };
        old.len() >= at + 4 && old[..at] == new[..at] && old[at + 4..] == new[at + 4..]
    }

    /// New code that no old instruction became.
    fn surplus(&self, audit: &mut Audit) {
        let mut run = false;
        for (k, i) in self.text.insns.iter().enumerate() {
            let known = get(&self.used, k) || get(&self.sites.inserted, k) || i.is_nop() || i.is_int3();
            if !known && !run {
                let why = "new code that no instruction of the original became";
                audit.finding(i.va, self.m.place(i.va), why);
            }
            run = !known;
        }
    }

    /// New tables are the old ones, entry by entry.
    fn tables_match(&self, audit: &mut Audit) {
        let new_to_old: HashMap<u64, u64> = self.map.iter().map(|(&a, &b)| (b, a)).collect();
        let mut starts: Vec<u64> = self.insns.keys().copied().collect();
        starts.sort_unstable();
        let ends = TableEnds::new(&self.tables.list);
        for (&load, &t) in &self.reads {
            let table = &self.tables.list[t];
            let n = &self.text.insns[load];
            let begin = (0..=load).rev().find_map(|k| new_to_old.get(&self.text.insns[k].va));
            let o = begin.and_then(|old| self.insns.get(old));
            let (Some(o), Some(new_mem)) = (o, n.mem) else {
                audit.finding(n.va, self.m.place(n.va), "the read of a jump table has no original");
                continue;
            };
            let Some(old_mem) = o.mem else { continue };
            let at = table.va.wrapping_sub(new_mem.disp as u64).wrapping_add(old_mem.disp as u64);
            let width = table.form.width();
            if !self.original.is_constant(at, (table.targets.len() * width) as u64) {
                let why = format!("the jump table of the original at {at:#x} may change");
                audit.finding(n.va, self.m.place(n.va), why);
            }
            for (k, &target) in table.targets.iter().enumerate() {
                let entry = self.original.bytes_at(at.wrapping_add((k * width) as u64), width);
                let old_target = entry.map(|e| table.form.target(e));
                // What stands behind the table's own end keeps leading to the old address.
                let is_same = old_target == Some(target) || old_target.and_then(|t| self.map.get(&t)) == Some(&target);
                if !is_same {
                    let why = format!("entry {k} of the jump table leads to {target:#x}, in the original elsewhere");
                    audit.finding(table.va, self.m.place(table.va), why);
                }
            }
            // Where the next word could be an entry, too, the program's bound must say that it is none.
            let next = self.original.bytes_at(at.wrapping_add((table.targets.len() * width) as u64), width);
            let entries = table.targets.len() as u64;
            if !next.is_some_and(|e| self.may_be_a_case(table.form.target(e), &starts)) {
                continue;
            }
            match self.tables.bounds.get(&load) {
                Some(bound) if *bound <= entries => audit.proven_tables += 1,
                _ if ends.of(table.form).is_some_and(|end| end <= entries) => {
                    audit.trust("jump tables that end where the program's next table begins", 1);
                }
                // Without a frame description the rewriter believes the nearest comparison in front of the jump.
                _ if self.m.function_at(n.va).is_none() => {
                    audit.trust(
                        "jump tables of code without a frame, as long as a comparison in front of the jump says",
                        1,
                    );
                }
                bound => {
                    let known = bound.map_or(String::new(), |b| format!(" ({b} are possible)"));
                    let why = format!("nothing proves that its jump table ends behind {entries} entries{known}");
                    audit.finding(n.va, self.m.place(n.va), why);
                }
            }
        }
    }

    /// Whether an entry of a table may lead there: to an instruction, or to where none is, as cases do that cannot happen.
    fn may_be_a_case(&self, to: u64, starts: &[u64]) -> bool {
        let before = starts[..starts.partition_point(|s| *s < to)].last();
        let inside = before.and_then(|s| self.insns.get(s)).is_some_and(|i| to < i.end());
        let code = |va: u64| self.original.section(va).is_some();
        self.map.contains_key(&to) || (!inside && (code(to) || code(to.wrapping_sub(1))))
    }
}

/// Whether a nop in front of the next instruction's new code is that of a redirection, and no padding of a function that is run into.
fn is_stray(m: &Module, nop: &Insn, next: u64) -> bool {
    let bytes = m.bytes_at(nop.va, usize::from(nop.len));
    let begins = next.is_multiple_of(16) || m.functions.binary_search_by_key(&next, |f| f.0).is_ok();
    m.is_guarded() && bytes == Some(&contract::REDIRECTABLE) && !begins
}
