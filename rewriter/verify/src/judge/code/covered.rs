//! Accesses without a check of their own, because other checks cover them.
//!
//! Input: the claims and regions of the file, sites, graph. Output: [`Covered`]: the accesses for which the claim was proven; a claim that
//! cannot be proven is a finding, and leaves its access unchecked. A claim is proven anew by going back from the access on every way:
//! each way must come to a check that proves what the access needs, with nothing in between that could take it away.
//!
//! * A register by which the need is named may change only by a constant.
//! * A call, a system call, a poll, a gate of another kind, a breakpoint, an entry: the claim is wrong. So is the end of a known way.
//! * Another check on the way must acquire the need when it misses, by a chain of ranges.
//! * Whoever continues on the way without having come from its beginning finds the need in the region that the file names there.
//!
//! Checks wider than their access must be so for accesses that are certainly executed when they are.
//! Source: `rewriter/SEQUENCES.md`, "Checks that cover other accesses".

use crate::audit::Audit;
use crate::decode::effects::{Flow, RSP, Touch, bit};
use crate::decode::insn::{ADDR32, MASKED, NONE};
use crate::file::module::{Claimed, Module};
use crate::graph::blocks::{End, Graph};
use crate::judge::code::prover::{Need, Prover, REGION, STEPS, STRIP, distance, moved, ordinary, tested, undo};
use crate::sites::gates::chain;
use crate::sites::site::{Context, Limit, Proven, Site, SiteKind, Sites, get};
use crate::sites::symbolic::Lin;
use blizzard_contract::{self as contract, claim_reason};
use foldhash::{HashMap, HashMapExt};

/// By instruction: the reason, in a word.
pub type Covered = HashMap<usize, &'static str>;

/// Places of all ranges that chains of stubs and regions consist of.
pub(crate) fn chain_places(m: &Module, cx: &Context, sites: &Sites) -> Vec<u64> {
    let mut starts: Vec<u64> = sites.list.iter().filter_map(|s| s.chain).chain(m.regions.iter().map(|r| r.2)).collect();
    starts.sort_unstable();
    starts.dedup();
    let place = |&at: &u64| {
        let n = chain(cx.rodata, at).map_or(0, |list| list.len() as u64);
        (0..n).map(move |k| at + 16 * k)
    };
    starts.iter().flat_map(place).collect()
}

/// Proves the claims. `pairs`: (old, new) addresses of the trap map. `tested`: the sites, of guarded code those of both versions, as if they stood in plain code.
pub(crate) fn prove(
    m: &Module,
    cx: &Context,
    (sites, tested): (&Sites, &Sites),
    g: &Graph,
    pairs: &[(u64, u64)],
    audit: &mut Audit,
) -> Covered {
    let mut covered = Covered::new();
    tables_are_sound(m, cx, audit);
    let mut prover = Prover::new(m, cx, sites, g, pairs);
    for c in &m.claims {
        match prover.claim(c) {
            Ok(k) => {
                let word = match c.reason {
                    claim_reason::MERGED => "merged",
                    claim_reason::STRIP => "strip",
                    _ => "dominated",
                };
                if covered.insert(k, word).is_some() {
                    audit.finding(c.access, m.place(c.access), "claimed twice to be covered");
                }
            }
            Err(why) => audit.finding(c.access, m.place(c.access), format!("claimed to be covered: {why}")),
        }
    }
    for s in sites.list.iter().filter(|s| s.problem.is_none()) {
        if let Err(why) = prover.copy_is_sound(s) {
            let va = cx.text.insns[s.access].va;
            audit.finding(va, m.place(va), format!("the copy of a loop: {why}"));
        }
    }
    if !prover.moved_are_copies() {
        audit.finding(m.cold.va, m.place(m.cold.va), "a region leads elsewhere that is no instruction of a copy");
    }
    let unused = prover.unused();
    for (place, why) in unused {
        audit.finding(place, m.place(place), why);
    }
    for va in prover.idle() {
        audit.finding(va, m.place(va), "a region acquires here what nothing needs");
    }
    for s in tested.list.iter().filter(|s| s.problem.is_none()) {
        if let Err(why) = justified(cx, sites, g, s) {
            let va = cx.text.insns[s.access].va;
            audit.finding(va, m.place(va), why);
        }
    }
    covered
}

/// Regions are sorted, do not overlap, lie in the text, and have chains.
fn tables_are_sound(m: &Module, cx: &Context, audit: &mut Audit) {
    let mut end = m.text.va;
    for &(start, stop, at) in &m.regions {
        let inside = start >= end && start < stop && stop <= m.text.va + m.text.data.len() as u64;
        if !inside || !m.regions_ascend {
            audit.finding(start, m.place(start), "a region of covered accesses is out of order or outside the text");
        }
        end = end.max(stop);
        match chain(cx.rodata, at) {
            Err(why) => {
                audit.finding(start, m.place(start), format!("a region of covered accesses: {why}"));
            }
            Ok(list) if list[0].desc & contract::miss_desc::MASKED != 0 => {
                audit.finding(start, m.place(start), "a region of covered accesses acquires a masked range");
            }
            Ok(_) => {}
        }
    }
}

impl Prover<'_, '_> {
    /// Proves one claim; the index of its access.
    fn claim(&mut self, c: &Claimed) -> Result<usize, String> {
        let text = self.cx.text;
        if !matches!(c.reason, claim_reason::MERGED | claim_reason::DOMINATED | claim_reason::STRIP) {
            return Err(format!("for an unknown reason {}", c.reason));
        }
        let k = text.at(c.access).ok_or("no instruction begins there")?;
        let i = &text.insns[k];
        if get(&self.sites.inserted, k) {
            return Err("it is inserted code".into());
        }
        let (Touch::Mem(access), Some(mem)) = (i.touch, &i.mem) else { return Err("it is no ordinary access".into()) };
        let plain = |r: u8| r < 16 && r != RSP || r == NONE;
        if mem.seg != 0 || i.has(ADDR32) || !plain(mem.base) || !plain(mem.index) || !(1..=64).contains(&i.size) {
            return Err("it is no ordinary access".into());
        }
        let lin = Lin { base: mem.base, index: mem.index, scale: mem.scale, disp: mem.disp, word: None }.canonical();
        let store = access.writes() && self.cx.check_stores;
        let mut found = Vec::new();
        self.back(k, Need { lin, bytes: i.size.into(), store }, &mut found)?;
        found.sort_unstable();
        found.dedup();
        let named = c.cover.map(|va| text.at(va));
        match (named, found.as_slice()) {
            (None, _) => {}
            (Some(Some(cover)), [one]) if cover == *one => {}
            _ => return Err("another check covers it than is said".into()),
        }
        Ok(k)
    }

    /// From an instruction back to the checks that prove the need, which are put into `found`.
    fn back(&mut self, access: usize, need: Need, found: &mut Vec<usize>) -> Result<(), String> {
        let text = self.cx.text;
        self.in_region(access, &need)?;
        let mut work = vec![(self.g.block_of(access), access, need)];
        let mut seen: Vec<(u32, Need)> = Vec::new();
        let mut steps = 0;
        while let Some((block, behind, mut need)) = work.pop() {
            let first = self.g.range(block, text).start;
            let mut k = behind;
            let mut done = false;
            while k > first {
                k -= 1;
                steps += 1;
                if steps > STEPS {
                    return Err("the way back is too long".into());
                }
                if get(&self.sites.inserted, k) {
                    let Some(site) = self.site_before(k + 1) else {
                        return Err(format!("a gate at {:#x}", text.insns[k].va));
                    };
                    if site.strip.is_some() {
                        self.strip_proves(site, block, &need)?;
                        found.push(site.access);
                        done = true;
                        break;
                    }
                    self.passes(site, &need)?;
                    for inside in site.start..=k {
                        self.in_region(inside, &need)?;
                    }
                    k = site.start;
                    continue;
                }
                need = undo(&text.insns[k], need)?;
                if let Some(site) = self.site_before(k).filter(|site| self.proves(site, &need)) {
                    found.push(site.access);
                    done = true;
                    break;
                }
                self.in_region(k, &need)?;
            }
            if done {
                continue;
            }
            if get(&self.entry, block) {
                return Err(format!("control may come from elsewhere at {:#x}", text.insns[first].va));
            }
            let preds = &self.preds[self.from[block] as usize..self.from[block + 1] as usize];
            if preds.is_empty() {
                return Err(format!("nothing is known before {:#x}", text.insns[first].va));
            }
            for &p in preds {
                if !seen.contains(&(p, need)) {
                    seen.push((p, need));
                    work.push((p as usize, self.g.range(p as usize, text).end, need));
                }
            }
        }
        Ok(())
    }

    /// The tests at the head of a loop make the need of an iteration accessible, whichever way it began.
    fn strip_proves(&mut self, site: &Site, block: usize, need: &Need) -> Result<(), String> {
        let text = self.cx.text;
        let strip = site.strip.as_deref().ok_or("no tests of a loop")?;
        let va = text.insns[strip.inner].va;
        let bad = |what: &str| Err(format!("the tests of the loop at {va:#x}: {what}"));
        // The loop is one block, entered where nothing has been tested.
        if self.g.range(block, text) != (strip.inner..strip.jump + 1) || get(&self.entry, block) {
            return bad("control may come from elsewhere");
        }
        let preds = &self.preds[self.from[block] as usize..self.from[block + 1] as usize];
        let enters = |p: usize| self.g.range(p, text).end == strip.inner && get(&self.sites.inserted, strip.inner - 1);
        if preds.iter().any(|&p| p as usize != block && !enters(p as usize)) {
            return bad("control may come from elsewhere");
        }
        // Whoever enters the runtime makes the next iteration test.
        let list = &self.sites.list;
        let inside = list.partition_point(|s| s.start < site.access)..list.partition_point(|s| s.start <= strip.jump);
        for s in &list[inside] {
            let check = matches!(s.kind, SiteKind::Check { .. }) && s.problem.is_none();
            if !check || s.takes_back != Some(strip.word) {
                return bad("the runtime may be entered in the loop, and the limit stays");
            }
        }
        let step = self.around(site, &Need { lin: Lin::reg(strip.counter), bytes: 1, store: false })?;
        let stride = self.around(site, need)?;
        let place = text.insns[site.access].va;
        // Those that lead into a copy, too: a check there goes on here.
        let ways: Vec<_> = strip.ways.iter().map(|w| (w.limit, w.tests.as_slice(), w.chain)).collect();
        if ways.is_empty() {
            return bad("no way leads into the loop");
        }
        for (limit, tests, chain) in ways {
            let iterations = match limit {
                Limit::Here => 1,
                Limit::Plus(by) if step != 0 && by % step == 0 && (1..=STRIP).contains(&(by / step)) => by / step,
                Limit::Plus(_) => return bad("the compared register does not step onto the limit"),
            };
            let acquired = iterations == 1 && chain.is_some_and(|at| self.in_chain(at, place, need));
            let known = tested(tests, need);
            let is_known = |j: i64| {
                let first = need.lin.disp.wrapping_add(j.wrapping_mul(stride));
                let last = first.wrapping_add(i64::from(need.bytes) - 1);
                known.iter().any(|s| s.0 <= first && last <= s.1)
            };
            if !acquired && !(0..iterations).all(is_known) {
                return bad("they do not make accessible what is needed");
            }
        }
        Ok(())
    }

    /// A site on the way takes nothing away.
    fn passes(&mut self, site: &Site, need: &Need) -> Result<(), String> {
        let va = self.cx.text.insns[site.access].va;
        if site.problem.is_some() || !matches!(site.kind, SiteKind::Check { .. }) {
            return Err(format!("the runtime may be entered before {va:#x}"));
        }
        if site.touched & (need.registers() | bit(RSP)) != 0 || site.dirty_after != 0 {
            return Err(format!("the check before {va:#x} changes a register that the need is named by"));
        }
        let Some(at) = site.chain else { return Err(format!("a miss before {va:#x} may give the block away")) };
        if !self.in_chain(at, va, need) {
            return Err(format!("a miss before {va:#x} does not acquire what is needed"));
        }
        Ok(())
    }

    /// Chains that acquire what nothing needs, with the place where they are used. The first range of a stub's chain is its own.
    fn unused(&mut self) -> Vec<(u64, String)> {
        let own = |s: &Site| usize::from(s.strip.is_none());
        let stubs = self.sites.list.iter().filter_map(|s| Some((s.chain?, self.cx.text.insns[s.access].va, own(s))));
        let regions = self.m.regions.iter().map(|r| (r.2, r.0 | REGION, 0));
        let all: Vec<(u64, u64, usize)> = stubs.chain(regions).collect();
        let mut out = Vec::new();
        for (at, place, own) in all {
            let Ok(list) = chain(self.cx.rodata, at) else { continue };
            for (k, r) in list.iter().enumerate().skip(own) {
                let used = self.uses.get(&(at, place)).and_then(|u| *u.get(k)?);
                let (lo, store) = (r.proven.lin.disp, r.proven.store);
                let both = r.desc & (contract::miss_desc::LOAD | contract::miss_desc::STORE)
                    == contract::miss_desc::LOAD | contract::miss_desc::STORE;
                if both || used != Some((lo, lo + i64::from(r.proven.bytes), store)) {
                    out.push((
                        place & !REGION,
                        format!("the chain at {at:#x} acquires in range {k} what nothing needs"),
                    ));
                }
            }
        }
        out
    }

    /// The program's first instruction of each region that needs nothing of it. Inserted code may stand in front of one that does, and padding behind the last.
    fn idle(&self) -> Vec<u64> {
        let text = self.cx.text;
        let known = |k: usize| {
            let i = &text.insns[k];
            get(&self.needed, k) || get(&self.sites.inserted, k) || i.is_nop() || i.is_int3()
        };
        let idle = |&(from, to, _): &(u64, u64, u64)| {
            let within = text.lower_bound(from)..text.lower_bound(to);
            within.into_iter().find(|&k| !known(k)).map(|k| text.insns[k].va)
        };
        self.m.regions.iter().filter_map(idle).collect()
    }

    /// Whoever continues at an instruction acquires the need.
    fn in_region(&mut self, k: usize, need: &Need) -> Result<(), String> {
        let i = &self.cx.text.insns[k];
        let at = self.m.regions.partition_point(|r| r.0 <= i.va);
        let region = at.checked_sub(1).map(|r| self.m.regions[r]).filter(|r| i.va < r.1);
        match region {
            Some((from, _, at)) if self.in_chain(at, from | REGION, need) => {
                self.needed[k / 64] |= 1 << (k % 64);
                Ok(())
            }
            // Padding: nothing leads there.
            _ if i.is_nop() && !get(&self.trapped, k) => Ok(()),
            _ => Err(format!("whoever continues at {:#x} does not acquire what is needed", i.va)),
        }
    }
}

/// Instructions of the program on all ways forward from one check.
const AHEAD: usize = 8000;

/// What is touched on one way from a check, of addresses that are formed as the checked one is: from, to, whether it is stored to.
type Touched = Vec<(i64, i64, bool)>;

/// What a check tests beyond its own access is for accesses that are certainly executed when it is, whichever way the program goes.
fn justified(cx: &Context, sites: &Sites, g: &Graph, site: &Site) -> Result<(), String> {
    let (Some(proven), i) = (site.proves, &cx.text.insns[site.access]) else { return Ok(()) };
    let Some((own, access)) = ordinary(i).filter(|o| (Lin { disp: proven.lin.disp, ..o.0 }) == proven.lin) else {
        return Ok(());
    };
    let (lo, hi) = (proven.lin.disp, proven.lin.disp + i64::from(proven.bytes));
    let within = lo >= own.disp && hi <= own.disp + i64::from(i.size);
    if within && (access.writes() && cx.check_stores) >= proven.store {
        return Ok(());
    }
    // Registers as those they were at the check, plus a constant; the ones that the address is formed from, where they hold the same.
    let named = [proven.lin.base, proven.lin.index].into_iter().filter(|&r| r < 16);
    let values: [Option<(u8, i64)>; 16] = std::array::from_fn(|r| {
        let r = r as u8;
        let same = |to: u8| Some((to, distance(cx, sites, g, site, &Lin::reg(r), &Lin::reg(to))?));
        named.clone().find_map(same).or(Some((r, 0)))
    });
    let mut work = vec![(site.access, values, Touched::new())];
    let mut steps = 0;
    while let Some((from, mut values, mut touched)) = work.pop() {
        let block = g.block_of(from);
        let mut enough = false;
        for k in from..g.range(block, cx.text).end {
            let i = &cx.text.insns[k];
            if get(&sites.inserted, k) {
                continue;
            }
            steps += 1;
            if steps > AHEAD {
                return Err("the ways from a check to what it is as wide for are too long".into());
            }
            if let Some((lin, access)) = ordinary(i).filter(|_| !i.has(MASKED))
                && let Some(lin) = renamed(&lin, &values)
                && (Lin { disp: lin.disp, ..proven.lin }) == lin
            {
                touched.push((lin.disp, lin.disp + i64::from(i.size), access.writes() && cx.check_stores));
                enough = is_touched(lo, &touched) && is_touched(hi - 1, &touched);
                enough &= !proven.store || touched.iter().any(|t| t.2);
                if enough {
                    break;
                }
            }
            if !matches!(i.flow, Flow::Next | Flow::Cond | Flow::Jump) {
                break;
            }
            let new = moved(i).map(|(to, from, plus)| (to, values[usize::from(from)].map(|(r, off)| (r, off + plus))));
            (0..16u8).filter(|&r| i.fx.writes & bit(r) != 0).for_each(|r| values[usize::from(r)] = None);
            if let Some((to, value)) = new {
                values[usize::from(to)] = value;
            }
        }
        if enough {
            continue;
        }
        // Where control leads is known, and not back: what a loop does next is not certain.
        let ways = match g.ends[block] {
            End::Fall | End::Jump(_) | End::Cond(_) => g.succ(block),
            _ => &[],
        };
        if ways.is_empty() || ways.iter().any(|&s| s as usize <= block) {
            return Err(lacks(&proven, &touched));
        }
        work.extend(ways.iter().map(|&s| (g.starts[s as usize] as usize, values, touched.clone())));
    }
    Ok(())
}

/// Whether the block of the byte at `x` is touched: the byte is, or lies between two that are, at most a block apart, so that no whole
/// block lies between theirs.
fn is_touched(x: i64, touched: &Touched) -> bool {
    let below = touched.iter().filter(|t| t.0 <= x).map(|t| x.min(t.1 - 1)).max();
    let above = touched.iter().filter(|t| t.1 > x).map(|t| x.max(t.0)).min();
    matches!((below, above), (Some(y), Some(z)) if z - y <= contract::BLOCK_BYTES as i64)
}

/// What the accesses of one way lack.
fn lacks(proven: &Proven, touched: &Touched) -> String {
    let (lo, hi) = (proven.lin.disp, proven.lin.disp + i64::from(proven.bytes));
    if is_touched(lo, touched) && is_touched(hi - 1, touched) {
        return "the check asks for the right to store, and nothing that is certainly executed stores".into();
    }
    let has = touched.iter().map(|t| t.1).max().unwrap_or(lo) - touched.iter().map(|t| t.0).min().unwrap_or(lo);
    let says = proven.bytes;
    format!("the descriptor says {says} bytes, the accesses that are certainly executed have {has}")
}

/// An address in terms of other registers.
fn renamed(lin: &Lin, values: &[Option<(u8, i64)>; 16]) -> Option<Lin> {
    let mut out = *lin;
    for (reg, scale) in [(&mut out.base, 1), (&mut out.index, i64::from(lin.scale))] {
        if *reg < 16 {
            let (r, off) = values[usize::from(*reg)]?;
            *reg = r;
            out.disp += scale * off;
        }
    }
    Some(out.canonical())
}
