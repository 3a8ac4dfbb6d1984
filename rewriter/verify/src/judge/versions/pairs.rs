//! Which instruction of full code is which of plain code.
//!
//! Input: both versions, decoded, with their sites; the rows of the version table. Output: [`Versions`]; findings for what of full code is none of plain code.
//! Full code has the instructions of whole functions, in the order of plain code, and each such function has an access with a row. So between two rows plain
//! code has more than full code in one place at most. **Invariant**: a pair's instructions are the same, but for distances and the prefix; where distances
//! lead is proven behind ([`crate::judge::versions::flow`]).
//! Source: `rewriter/SEQUENCES.md`, "Guarded code".

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::decode::effects::Flow;
use crate::decode::insn::{Insn, RIP};
use crate::decode::raw::{Raw, without_segments};
use crate::file::module::Module;
use crate::sites::site::{Site, SiteKind, Sites, get};
use std::cmp::Reverse;
use std::ops::Range;

/// No instruction.
pub(crate) const NONE: u32 = u32::MAX;

/// One version: its code, and the inserted code in it.
pub(crate) struct Version<'x> {
    pub(crate) code: &'x Code,
    pub(crate) sites: &'x Sites,
    /// Indices of the program's instructions, padding left out.
    pub(crate) own: Vec<u32>,
}

impl<'x> Version<'x> {
    pub(crate) fn new(code: &'x Code, sites: &'x Sites) -> Version<'x> {
        let is_own = |&k: &usize| !get(&sites.inserted, k) && !code.insns[k].is_nop() && !code.insns[k].is_int3();
        Version { code, sites, own: (0..code.insns.len()).filter(is_own).map(|k| k as u32).collect() }
    }

    pub(crate) fn insn(&self, k: usize) -> &'x Insn {
        &self.code.insns[k]
    }

    /// Position in [`Version::own`] of the first of the program's instructions from `k` on.
    pub(crate) fn own_from(&self, k: usize) -> usize {
        self.own.partition_point(|&o| (o as usize) < k)
    }

    /// Where the instruction begins, inserted code included, but for a redirection's jump in front of a function.
    pub(crate) fn begin(&self, k: usize) -> usize {
        let mut from = k;
        while from > 0 && self.sites.goes_on(self.code, from - 1) && self.insn(from - 1).end() == self.insn(from).va {
            from -= 1;
        }
        from
    }

    /// Where somebody lands. `None` where no instruction begins, or a sequence has begun before.
    pub(crate) fn landing(&self, va: u64) -> Option<Landing> {
        let k = self.code.at(va)?;
        let k = if get(&self.sites.protected, k) { self.loop_at(k)? } else { k };
        let at = self.own_from(k);
        let on = k..*self.own.get(at)? as usize;
        Some(Landing { at, from: k, polls: self.polls(on.clone()), breaks: self.breaks(on) })
    }

    /// Where the loop is entered whose own jump leads to this instruction, a comparison with the limit of what has been tested.
    fn loop_at(&self, inner: usize) -> Option<usize> {
        let at = self.sites.list.partition_point(|s| s.start < inner).checked_sub(1)?;
        let site = &self.sites.list[at];
        (site.strip.as_ref()?.inner == inner).then_some(site.start)
    }

    /// Whether there is a breakpoint among these instructions.
    pub(crate) fn breaks(&self, mut range: Range<usize>) -> bool {
        range.any(|k| self.insn(k).is_int3())
    }

    /// The polls that begin among these instructions.
    fn polls_within(&self, range: Range<usize>) -> impl Iterator<Item = &'x Site> {
        let first = self.sites.list.partition_point(|s| s.start < range.start);
        let within = self.sites.list[first..].iter().take_while(move |s| s.start < range.end);
        within.filter(|s| s.kind == SiteKind::Poll && s.problem.is_none())
    }

    /// How many polls begin among these instructions.
    pub(crate) fn polls(&self, range: Range<usize>) -> usize {
        self.polls_within(range).count()
    }

    /// Which of these instructions are padding.
    fn idle(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        range.filter(|&k| !get(&self.sites.inserted, k))
    }

    /// From behind the program's instruction before this position of [`Version::own`] to the one there.
    fn gap(&self, at: usize) -> Range<usize> {
        at.checked_sub(1).map_or(0, |before| self.own[before] as usize + 1)..self.own[at] as usize
    }

    /// The site of an access.
    pub(crate) fn test_of(&self, k: usize) -> Option<&'x Site> {
        self.sites.test_of(k)
    }
}

/// What runs where somebody lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Landing {
    /// Position in [`Version::own`] of the first instruction of the program but for padding.
    pub(crate) at: usize,
    /// The instruction that is led to: that one, inserted code or padding in front of it.
    from: usize,
    /// So many polls run in front of it; or a breakpoint.
    polls: usize,
    pub(crate) breaks: bool,
}

/// Both versions, and their pairs.
pub(crate) struct Versions<'x> {
    pub(crate) plain: Version<'x>,
    pub(crate) full: Version<'x>,
    /// By position in the other version's [`Version::own`], or [`NONE`].
    pub(crate) full_of: Vec<u32>,
    pub(crate) plain_of: Vec<u32>,
    /// The version table: an access in plain code, where it begins in full code.
    pub(crate) rows: Vec<(u64, u64)>,
}

impl<'x> Versions<'x> {
    /// Index in full code of an instruction of plain code.
    pub(crate) fn full(&self, plain: usize) -> Option<usize> {
        let at = self.plain.own.binary_search(&(plain as u32)).ok()?;
        let to = *self.full_of.get(at)?;
        (to != NONE).then(|| self.full.own[to as usize] as usize)
    }

    /// Whether instructions of plain code have no full version. Where none is the program's, the next one that is counts.
    pub(crate) fn are_once(&self, plain: Range<usize>) -> bool {
        let from = self.plain.own_from(plain.start);
        let to = self.plain.own_from(plain.end).max(from + 1).min(self.full_of.len());
        self.full_of.get(from..to).is_none_or(|full| full.iter().all(|b| *b == NONE))
    }

    /// How many instructions have two versions.
    pub(crate) fn count(&self) -> u64 {
        self.plain_of.iter().filter(|a| **a != NONE).count() as u64
    }

    /// What is inserted in either version, as if it stood in plain code: what it changes must be dead there.
    pub(crate) fn in_plain_code(&self) -> Sites {
        let moved = |s: &Site| {
            let on = self.full.own_from(s.access);
            // One without a pair is a finding.
            let at = self.plain_of.get(on).filter(|at| **at != NONE)?;
            let access = self.stands_at(*at as usize, on, s);
            // Where plain code tests the access, too, what both change must be dead there.
            let start = self.plain.test_of(access).map_or(access, |own| own.start);
            Some(Site { start, access, ..s.clone() })
        };
        let plain = self.plain.sites;
        let mut list: Vec<Site> = self.full.sites.list.iter().filter_map(moved).collect();
        list.extend(plain.list.iter().cloned());
        list.sort_by_key(|s| s.start);
        Sites {
            list,
            inserted: plain.inserted.clone(),
            protected: plain.protected.clone(),
            claimed: plain.claimed.clone(),
        }
    }

    /// The padding in front of a pair, by pairs, the last first. Plain code has that of full code, and more where that aligns what stands behind.
    fn padding_of(&self, plain: usize, full: usize) -> Vec<(usize, usize)> {
        let mut left: Vec<usize> = self.full.idle(self.full.gap(full)).collect();
        let all: Vec<usize> = self.plain.idle(self.plain.gap(plain)).collect();
        let alike = |p: &Insn, f: &Insn| p.len == f.len && p.is_int3() == f.is_int3();
        let pair = |a: usize| left.pop_if(|b| alike(self.plain.insn(a), self.full.insn(*b))).map(|b| (a, b));
        all.into_iter().rev().filter_map(pair).collect()
    }

    /// The instruction of plain code in front of which stands what is inserted in full code, in front of a pair.
    fn stands_at(&self, plain: usize, full: usize, s: &Site) -> usize {
        let behind = self.padding_of(plain, full).into_iter().take_while(|&(_, b)| b >= s.access);
        behind.last().map_or(self.plain.own[plain] as usize, |(a, _)| a)
    }

    /// The polls that whoever leads to `was` in plain code has to meet in full code.
    fn polls_met(&self, was: Landing, full: usize) -> usize {
        self.full.polls_within(self.full.gap(full)).filter(|s| self.stands_at(was.at, full, s) >= was.from).count()
    }

    /// For the frame tables: each instruction of plain code with a full version, padding included, and where that begins; ascending.
    pub(crate) fn places(&self) -> Vec<(u64, u64)> {
        self.extents().into_iter().map(|(plain, full)| (plain, full.start)).collect()
    }

    /// Each instruction of plain code with a full version, padding included, and that, what is inserted in front of it included; ascending.
    pub(crate) fn extents(&self) -> Vec<(u64, Range<u64>)> {
        let extent = |b: usize| self.full.insn(self.full.begin(b)).va..self.full.insn(b).end();
        let mut all = Vec::new();
        for (at, &to) in self.full_of.iter().enumerate().filter(|(_, to)| **to != NONE) {
            let (p, f) = (self.plain.own[at] as usize, self.full.own[to as usize] as usize);
            // What is padding between two pairs is the same in both.
            if at > 0 && to > 0 && self.full_of[at - 1] == to - 1 {
                let place = |(a, b)| (self.plain.insn(a).va, extent(b));
                all.extend(self.padding_of(at, to as usize).into_iter().rev().map(place));
            }
            all.push((self.plain.insn(p).va, extent(f)));
        }
        all
    }

    /// Pairs the instructions.
    pub(crate) fn pair(m: &Module, plain: Version<'x>, full: Version<'x>, audit: &mut Audit) -> Versions<'x> {
        let rows = m.versions().unwrap_or_else(|| {
            let why = "the version table is not in the file, or its parts contradict each other";
            audit.finding(m.info.version_codes_va, "version table".into(), why);
            Vec::new()
        });
        let (full_of, plain_of) = (vec![NONE; plain.own.len()], vec![NONE; full.own.len()]);
        let mut v = Versions { plain, full, full_of, plain_of, rows };
        let mut before: Option<(usize, usize)> = None;
        for (a, b) in v.anchors(m, audit) {
            v.between(m, before, Some((a, b)));
            v.join(a, b);
            before = Some((a, b));
        }
        v.between(m, before, None);
        v
    }

    fn join(&mut self, a: usize, b: usize) {
        self.full_of[a] = b as u32;
        self.plain_of[b] = a as u32;
    }

    /// The rows of the table, as positions; findings for those that lead from or to no beginning of an instruction, and for the table's order.
    fn anchors(&self, m: &Module, audit: &mut Audit) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        for &(from, to) in &self.rows {
            let (plain, full) = (&self.plain, &self.full);
            let a = plain.code.at(from).and_then(|k| plain.own.binary_search(&(k as u32)).ok());
            let begins = |k: usize| full.own.get(full.own_from(k)).filter(|&&o| full.begin(o as usize) == k);
            let b = full.code.at(to).filter(|&k| begins(k).is_some()).map(|k| full.own_from(k));
            let mut open =
                |why: &str| audit.finding(from, m.place(from), format!("the version table: its row to {to:#x} {why}"));
            match (a, b) {
                (None, _) => open("begins at no instruction of plain code"),
                (_, None) => open("leads to no beginning of an instruction in full code"),
                (Some(a), Some(b)) if found.last().is_some_and(|l| l.0 >= a || l.1 >= b) => open("is out of order"),
                (Some(a), Some(b)) if !self.same(m, a, b) => open("leads to another instruction"),
                (Some(a), Some(b)) => found.push((a, b)),
            }
        }
        found
    }

    /// Pairs what lies between two pairs.
    fn between(&mut self, m: &Module, before: Option<(usize, usize)>, behind: Option<(usize, usize)>) {
        let first = before.map_or((0, 0), |b| (b.0 + 1, b.1 + 1));
        let end = behind.unwrap_or((self.plain.own.len(), self.full.own.len()));
        let (plain, full) = (end.0 - first.0, end.1 - first.1);
        let most = plain.min(full);
        let down = |n: &usize| self.same(m, first.0 + n, first.1 + n);
        let up = |n: &usize| self.same(m, end.0 - 1 - n, end.1 - 1 - n);
        let ahead = if before.is_some() { (0..most).take_while(down).count() } else { 0 };
        let leaves = |n: usize| self.leaves(first.0 + n, first.1 + n);
        if ahead == full && plain == full && !(0..full).any(leaves) {
            (0..full).for_each(|n| self.join(first.0 + n, first.1 + n));
            return;
        }
        let back = if behind.is_some() { (0..most).take_while(up).count() } else { 0 };
        let (front, skipped) = self.cut(m, first, end.0, full, (ahead, back));
        (0..front).for_each(|n| self.join(first.0 + n, first.1 + n));
        let rest = (full - front).saturating_sub(skipped).min(back);
        (0..rest).for_each(|n| self.join(end.0 - 1 - n, end.1 - 1 - n));
    }

    /// How many of so many instructions of full code from `first` on belong to what is in front, and how many behind those to nothing: a jump out of full code.
    fn cut(
        &self,
        m: &Module,
        first: (usize, usize),
        end: usize,
        full: usize,
        (ahead, back): (usize, usize),
    ) -> (usize, usize) {
        let leaves = |n: &usize| *n < full && full - n - 1 <= back && self.leaves(first.0 + n, first.1 + n);
        if let Some(front) = (0..=ahead).find(leaves) {
            return (front, 1);
        }
        // Where one function ends and another begins: as frames say in both versions, or what is in front does not go on.
        let begins = |v: &Version, at: usize| {
            let va = |at: usize| v.own.get(at).map(|&k| v.insn(k as usize).va);
            let before = at.checked_sub(1).and_then(va);
            let next = m.functions.partition_point(|f| before.is_some_and(|before| f.0 <= before));
            va(at).is_none_or(|va| m.functions.get(next).is_some_and(|f| f.0 <= va))
        };
        let ends = |v: &Version, at: usize| {
            let last = at.checked_sub(1).map(|at| v.insn(v.own[at] as usize).flow);
            last.is_none_or(|flow| !matches!(flow, Flow::Next | Flow::Cond))
        };
        let signs = |n: usize| {
            let (front, rest) = (first.0 + n, (end + n).saturating_sub(full));
            let frames = [begins(&self.full, first.1 + n), begins(&self.plain, rest), begins(&self.plain, front)];
            let flow = [ends(&self.full, first.1 + n), ends(&self.plain, rest)];
            let count = |signs: &[bool]| Reverse(signs.iter().filter(|s| **s).count());
            (count(&frames), count(&flow))
        };
        // An instruction that may belong to either says by its frame, and by what it names, to which.
        let possible = full.saturating_sub(back)..=ahead;
        let (mut best, mut differs) = (None, 0i64);
        for n in possible {
            let (frames, flow) = signs(n);
            let rank = (frames, differs, flow);
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, n));
            }
            if n < ahead {
                let b = first.1 + n;
                let alike = |a: usize| i64::from(self.alike(m, a, b));
                differs += alike(end + n - full) - alike(first.0 + n);
            }
        }
        let best = best.map(|b| b.1);
        (best.unwrap_or(ahead), 0)
    }

    /// Whether an instruction of full code is none of plain code, but a jump to one, which what is in front goes on with.
    fn leaves(&self, a: usize, b: usize) -> bool {
        let jump = self.full.insn(self.full.own[b] as usize);
        let landing = || self.plain.landing(jump.target);
        jump.flow == Flow::Jump
            && self.plain.code.contains(jump.target)
            && landing().is_some_and(|l| l.at == a && !l.breaks)
    }

    /// Whether two instructions that are the same also lead alike, as far as that is seen before all are paired, and stand alike in their frames.
    fn alike(&self, m: &Module, a: usize, b: usize) -> bool {
        let (p, f) = (self.plain.insn(self.plain.own[a] as usize), self.full.insn(self.full.own[b] as usize));
        let distance = |v: &Version, at: usize, to: u64| {
            let k = v.code.at(to)?;
            Some(v.own_from(k) as i64 - at as i64)
        };
        let leads = match p.flow {
            Flow::Jump | Flow::Cond => {
                let near = distance(&self.plain, a, p.target);
                p.target == f.target || near.is_some() && near == distance(&self.full, b, f.target)
            }
            Flow::Call => p.target == f.target,
            _ => true,
        };
        let rules = |va: u64| {
            let frame = m.frames.index(va, 0).map(|k| &m.frames.list[k])?;
            Some(frame.row(va).map(|row| &row.cfa))
        };
        leads && rules(p.va) == rules(f.va)
    }

    /// Whether two instructions are the same, but for distances and the prefix of a tested access. The displacement may be another one: where it is, the
    /// instruction must be found to read a jump table.
    fn same(&self, m: &Module, a: usize, b: usize) -> bool {
        let (p, f) = (self.plain.insn(self.plain.own[a] as usize), self.full.insn(self.full.own[b] as usize));
        let record = |i: &Insn| {
            let mem = i.mem.map(|m| (m.base, m.index, m.scale, m.seg));
            (i.op, i.ext, i.bits, i.size, i.r0, i.r1, i.imm, mem)
        };
        let reads = p.mem.is_some_and(|m| m.base != RIP) && record(p) == record(f) && p.flow == f.flow;
        reads || self.is_exact(m, a, b)
    }

    /// The same with the same displacement.
    pub(crate) fn is_exact(&self, m: &Module, a: usize, b: usize) -> bool {
        let (p, k) = (self.plain.insn(self.plain.own[a] as usize), self.full.own[b] as usize);
        let f = self.full.insn(k);
        match p.flow {
            _ if p.flow != f.flow => false,
            Flow::Jump | Flow::Call => true,
            Flow::Cond if matches!(p.op, 0x70..=0x7f | 0x180..=0x18f) => {
                matches!(f.op, 0x70..=0x7f | 0x180..=0x18f) && p.op & 15 == f.op & 15
            }
            Flow::Cond => p.op == f.op && p.bits == f.bits,
            _ => {
                let (was, is) = (bytes(m, p), bytes(m, f));
                if p.mem.is_none_or(|m| m.base != RIP) {
                    let tested = || self.full.test_of(k).is_some_and(|s| matches!(s.kind, SiteKind::Check { .. }));
                    return was == is || without_segments(was) == without_segments(is) && tested();
                }
                // The distance leads to the same place.
                let at = Raw::parse(was).map_or(0, |r| usize::from(r.after_op) + 1);
                p.mem == f.mem
                    && was.len() == is.len()
                    && was.len() >= at + 4
                    && was[..at] == is[..at]
                    && was[at + 4..] == is[at + 4..]
            }
        }
    }
}

/// Whether `to` in full code is where `from` in plain code leads, or its full version. Nobody leads there behind a poll.
pub(crate) fn leads_alike(v: &Versions, from: u64, to: u64) -> bool {
    let Some(was) = v.plain.landing(from) else { return false };
    match v.full_of[was.at] {
        NONE => v.plain.landing(to) == Some(was) || runs_out(v, to, was),
        b => v
            .full
            .landing(to)
            .is_some_and(|is| is.at == b as usize && is.polls >= v.polls_met(was, is.at) && is.breaks == was.breaks),
    }
}

/// Whether only padding stands at `to` in full code, behind which it jumps to `was` in plain code: a jump behind a call that does not come back
/// leads to the padding behind its function.
fn runs_out(v: &Versions, to: u64, was: Landing) -> bool {
    let Some(is) = v.full.landing(to) else { return false };
    let jump = v.full.insn(v.full.own[is.at] as usize);
    v.plain_of[is.at] == NONE
        && jump.flow == Flow::Jump
        && is.breaks == was.breaks
        && v.plain.landing(jump.target).is_some_and(|l| l.at == was.at && !l.breaks)
}

/// The bytes of an instruction of the text.
pub(crate) fn bytes<'a>(m: &Module<'a>, i: &Insn) -> &'a [u8] {
    let at = i.va.wrapping_sub(m.text.va) as usize;
    m.text.data.get(at..at + usize::from(i.len)).unwrap_or(&[])
}
