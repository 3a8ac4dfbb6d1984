//! What an access needs, and what the checks and tests around it are known to make accessible.
//!
//! Input: a need in terms of registers at some place, a site. Output: whether the site's check, its chain, or the tests of a loop make it accessible; the need
//! in front of an instruction. **Invariant**: registers by which a need is named change only by constants, or there is no answer.
//! Source: `rewriter/SEQUENCES.md`, "Checks that cover other accesses".

use crate::decode::effects::{AccessKind, Flow, RSP, Touch, bit};
use crate::decode::insn::{ADDR32, Insn, MASKED, NONE, WIDE};
use crate::file::module::Module;
use crate::graph::blocks::Graph;
use crate::sites::gates::{Ranged, chain};
use crate::sites::site::{Context, Proven, Site, Sites, Test, get};
use crate::sites::symbolic::Lin;
use blizzard_contract::{self as contract, guard_tags as tags};
use foldhash::{HashMap, HashMapExt};

/// What a range of a chain is needed for: from, to, whether something stores.
type Use = Option<(i64, i64, bool)>;

/// Instructions on all ways back of one claim.
pub(crate) const STEPS: usize = 20_000;
/// Set in the address of a region, where a stub may be, too.
pub(crate) const REGION: u64 = 1 << 63;
/// Iterations that one strip may have: a peer waits so long.
pub(crate) const STRIP: i64 = 128;

/// What an access needs, in terms of registers at some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) lin: Lin,
    pub(crate) bytes: u32,
    pub(crate) store: bool,
}

impl Need {
    pub(crate) fn is_covered(&self, by: &Proven) -> bool {
        let from = self.lin.disp.wrapping_sub(by.lin.disp);
        (Lin { disp: self.lin.disp, ..by.lin }) == self.lin
            && from >= 0
            && from + i64::from(self.bytes) <= i64::from(by.bytes)
            && (by.store || !self.store)
    }

    pub(crate) fn registers(&self) -> u16 {
        [self.lin.base, self.lin.index].iter().filter(|&&r| r < 16).fold(0, |m, &r| m | bit(r))
    }
}

/// What the proofs of all claims share.
pub(crate) struct Prover<'x, 'a> {
    pub(crate) m: &'x Module<'a>,
    pub(crate) cx: &'x Context<'x>,
    pub(crate) sites: &'x Sites,
    pub(crate) g: &'x Graph,
    /// Predecessors of block `b`: `preds[from[b]..from[b + 1]]`.
    pub(crate) from: Vec<u32>,
    pub(crate) preds: Vec<u32>,
    /// Bitmaps: blocks that control may enter from elsewhere; instructions that the trap map leads to.
    pub(crate) entry: Vec<u64>,
    pub(crate) trapped: Vec<u64>,
    chains: HashMap<u64, Vec<Ranged>>,
    /// By chain and the place where it is used, for each of its ranges.
    pub(crate) uses: HashMap<(u64, u64), Vec<Use>>,
    /// Bitmap of instructions of regions at which something was needed.
    pub(crate) needed: Vec<u64>,
    /// Regions that lead elsewhere, of instructions that have been proven to be copies.
    pub(crate) moved: usize,
}

impl<'x, 'a> Prover<'x, 'a> {
    pub(crate) fn new(
        m: &'x Module<'a>,
        cx: &'x Context<'x>,
        sites: &'x Sites,
        g: &'x Graph,
        pairs: &[(u64, u64)],
    ) -> Self {
        let n = g.starts.len();
        let mut from = vec![0u32; n + 1];
        let edges = || (0..n).flat_map(|b| g.succ(b).iter().map(move |&s| (s as usize, b as u32)));
        edges().for_each(|(to, _)| from[to + 1] += 1);
        (0..n).for_each(|b| from[b + 1] += from[b]);
        let mut next = from.clone();
        let mut preds = vec![0; from[n] as usize];
        for (to, b) in edges() {
            preds[next[to] as usize] = b;
            next[to] += 1;
        }
        let mut entry = vec![0u64; n / 64 + 1];
        let wild = (0..n as u32).filter(|&b| g.wild[g.component[b as usize] as usize]);
        // Who comes from a copy of a loop has not come through the loop.
        let exits = sites.list.iter().filter_map(|s| s.strip.as_ref()?.copy.as_ref());
        let exits = exits.filter_map(|c| cx.text.at(c.exit)).map(|k| g.block_of(k) as u32);
        for b in g.entries.iter().copied().chain(g.pad_blocks()).chain(wild).chain(exits) {
            entry[b as usize / 64] |= 1 << (b % 64);
        }
        let mut trapped = vec![0u64; cx.text.insns.len() / 64 + 1];
        for k in pairs.iter().filter_map(|p| cx.text.at(p.1)) {
            trapped[k / 64] |= 1 << (k % 64);
        }
        Prover {
            m,
            cx,
            sites,
            g,
            from,
            preds,
            entry,
            trapped,
            chains: HashMap::new(),
            uses: HashMap::new(),
            needed: vec![0; cx.text.insns.len() / 64 + 1],
            moved: 0,
        }
    }

    /// The site that ends right in front of an instruction.
    pub(crate) fn site_before(&self, k: usize) -> Option<&'x Site> {
        let last = k.checked_sub(1).filter(|&last| get(&self.sites.inserted, last))?;
        let at = self.sites.list.partition_point(|s| s.start <= last).checked_sub(1)?;
        Some(&self.sites.list[at]).filter(|s| s.access == k)
    }

    /// The site's check makes the need accessible.
    pub(crate) fn proves(&self, site: &Site, need: &Need) -> bool {
        let masked = self.cx.text.insns[site.access].has(MASKED);
        site.problem.is_none() && !masked && site.proves.is_some_and(|p| self.is_covered(site, need, &p))
    }

    /// Whether the site's check covers the need, in the same registers or in others that hold the same.
    pub(crate) fn is_covered(&self, site: &Site, need: &Need, proven: &Proven) -> bool {
        let Some(by) = distance(self.cx, self.sites, self.g, site, &need.lin, &proven.lin) else { return false };
        Need { lin: Lin { disp: proven.lin.disp.wrapping_add(by), ..proven.lin }, ..*need }.is_covered(proven)
    }

    /// By how much an address moves in one iteration of a loop.
    pub(crate) fn around(&self, site: &Site, need: &Need) -> Result<i64, String> {
        let text = self.cx.text;
        let jump = site.strip.as_ref().map_or(site.access, |s| s.jump);
        let mut now = *need;
        let mut k = jump + 1;
        while k > site.access {
            k -= 1;
            if get(&self.sites.inserted, k) {
                let inside = self.site_before(k + 1).filter(|s| s.start >= site.access).ok_or("a gate in a loop")?;
                // In guarded code only copies ask, which have no test that keeps a register elsewhere.
                let changed = if self.cx.guard { inside.dirty } else { inside.touched };
                if changed & now.registers() != 0 {
                    return Err("a check in the loop changes a register that the need is named by".into());
                }
                k = inside.start;
                continue;
            }
            now = undo(&text.insns[k], now)?;
        }
        if (Lin { disp: need.lin.disp, ..now.lin }) != need.lin {
            return Err("an address in the loop does not move by a constant".into());
        }
        Ok(now.lin.disp.wrapping_sub(need.lin.disp))
    }

    /// Whether the chain at `at`, used at `place`, acquires the need.
    pub(crate) fn in_chain(&mut self, at: u64, place: u64, need: &Need) -> bool {
        let rodata = self.cx.rodata;
        let list = self.chains.entry(at).or_insert_with(|| chain(rodata, at).unwrap_or_default());
        let uses = self.uses.entry((at, place)).or_insert_with(|| vec![None; list.len()]);
        let mut found = false;
        for (_, used) in list.iter().zip(uses).filter(|(r, _)| need.is_covered(&r.proven)) {
            let (lo, hi) = (need.lin.disp, need.lin.disp + i64::from(need.bytes));
            let (from, to, store) = used.unwrap_or((lo, hi, need.store));
            *used = Some((from.min(lo), to.max(hi), store || need.store));
            found = true;
        }
        found
    }
}

/// Stretches of bytes, first and last, that tests tell to be accessible, of addresses that are formed as the need's is.
///
/// A test of *n* tags tells of the bytes up to the first one of its last block, wherever in its block the first one lies. In guarded code one tag does of two. What lies
/// between two bytes at most a block apart is in the block of one of them. A private address tells of what is near on both sides.
pub(crate) fn tested(tests: &[Test], need: &Need) -> Vec<(i64, i64)> {
    const BLOCK: i64 = contract::BLOCK_BYTES as i64;
    const NEAR: i64 = (contract::PRIVATE_REACH / 2) as i64;
    let same = |lin: &Lin| (Lin { disp: need.lin.disp, ..*lin }) == need.lin;
    let stretch = |t: &Test| match t {
        Test::Tags { lin, tags, mask } => {
            let for_stores = *mask == repeated(contract::TAG_NO_STORE.into(), *tags);
            let for_loads = *mask == repeated(contract::TAG_NO_LOAD.into(), *tags) && !need.store;
            let right = same(lin) && matches!(tags, 1 | 4) && (for_stores || for_loads);
            right.then_some((lin.disp, lin.disp + BLOCK * (i64::from(*tags) - 1)))
        }
        Test::Level { lin, level } => {
            let right = *level == tags::BOTH_WRITABLE || *level == tags::BOTH_READABLE && !need.store;
            (same(lin) && right).then_some((lin.disp, lin.disp + BLOCK))
        }
        Test::Private(lin) => same(lin).then_some((lin.disp.saturating_sub(NEAR), lin.disp.saturating_add(NEAR))),
    };
    let mut known: Vec<(i64, i64)> = tests.iter().filter_map(stretch).collect();
    known.sort_unstable();
    let mut out: Vec<(i64, i64)> = Vec::new();
    for (first, last) in known {
        match out.last_mut() {
            Some(before) if first.saturating_sub(before.1) <= BLOCK => before.1 = before.1.max(last),
            _ => out.push((first, last)),
        }
    }
    out
}

/// The same bit of so many tags.
fn repeated(bit: u32, tags: u8) -> u32 {
    (0..u32::from(tags)).fold(0, |mask, k| mask | bit << (8 * k))
}

/// By how much an address is above another one in front of a site, if by a constant: both are followed back in the site's block until they
/// are formed from the same registers.
pub(crate) fn distance(cx: &Context, sites: &Sites, g: &Graph, site: &Site, one: &Lin, other: &Lin) -> Option<i64> {
    let need = |lin: &Lin| Need { lin: *lin, bytes: 1, store: false };
    let (mut one, mut other) = (need(one), need(other));
    let first = g.range(g.block_of(site.access), cx.text).start;
    let mut k = site.start;
    let mut steps = 0;
    while (Lin { disp: 0, ..one.lin }) != (Lin { disp: 0, ..other.lin }) {
        // No more than names can be followed by whoever claims it.
        if k <= first || steps > STEPS {
            return None;
        }
        k -= 1;
        steps += 1;
        if get(&sites.inserted, k) {
            let at = sites.list.partition_point(|s| s.start <= k).checked_sub(1)?;
            let before = &sites.list[at];
            if before.access != k + 1 || before.dirty & (one.registers() | other.registers()) != 0 {
                return None;
            }
            k = before.start;
            continue;
        }
        one = undo(&cx.text.insns[k], one).ok()?;
        other = undo(&cx.text.insns[k], other).ok()?;
    }
    Some(one.lin.disp.wrapping_sub(other.lin.disp))
}

/// Address and kind of an ordinary access.
pub(crate) fn ordinary(i: &Insn) -> Option<(Lin, AccessKind)> {
    let (Touch::Mem(access), Some(m)) = (i.touch, &i.mem) else { return None };
    // pop forms its address after it has moved rsp.
    if i.op == 0x8f && m.base == RSP {
        return None;
    }
    Some((Lin { base: m.base, index: m.index, scale: m.scale, disp: m.disp, word: None }.canonical(), access))
}

/// The need in front of an instruction, from the one behind it.
pub(crate) fn undo(i: &Insn, mut need: Need) -> Result<Need, String> {
    // syscall, sysenter, int1, int3, int n, into, xbegin: handlers or the kernel may run.
    let ends = matches!(i.op, 0x105 | 0x134 | 0xcc | 0xcd | 0xce | 0xf1) || (i.op == 0xc7 && i.flow == Flow::Cond);
    if ends || !matches!(i.flow, Flow::Next | Flow::Cond | Flow::Jump) {
        return Err(format!("control leaves at {:#x}", i.va));
    }
    if i.fx.writes & need.registers() == 0 {
        return Ok(need);
    }
    let lost = || Err(format!("the register that the address is formed from changes at {:#x}", i.va));
    let Some((to, from, plus)) = moved(i) else { return lost() };
    if i.fx.writes & need.registers() & !bit(to) != 0 || from == RSP {
        return lost();
    }
    let mut lin = need.lin;
    for (reg, scale) in [(&mut lin.base, 1), (&mut lin.index, i64::from(need.lin.scale))] {
        if *reg == to {
            *reg = from;
            lin.disp += scale * plus;
        }
    }
    need.lin = lin.canonical();
    Ok(need)
}

/// An instruction that makes one register another one plus a constant: to, from, constant.
pub(crate) fn moved(i: &Insn) -> Option<(u8, u8, i64)> {
    if !i.has(WIDE) {
        return None;
    }
    let found = match (i.op, &i.mem) {
        (0x89 | 0x8b, None) => (i.r0, i.r1, 0),
        // An address-size prefix means something only where an address is formed.
        (0x8d, Some(m)) if m.seg == 0 && m.index == NONE && !i.has(ADDR32) => (i.r0, m.base, m.disp),
        (0x81 | 0x83, None) if i.ext == 0 => (i.r0, i.r0, i.imm),
        (0x81 | 0x83, None) if i.ext == 5 => (i.r0, i.r0, -i.imm),
        (0xff, None) if i.ext == 0 => (i.r0, i.r0, 1),
        (0xff, None) if i.ext == 1 => (i.r0, i.r0, -1),
        (0x05, None) => (0, 0, i.imm),
        (0x2d, None) => (0, 0, -i.imm),
        _ => return None,
    };
    (found.0 < 16 && found.1 < 16).then_some(found)
}
