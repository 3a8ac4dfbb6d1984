//! Copies of loops in cold code, to which the tests at the loops' heads lead.
//!
//! Input: a [`crate::sites::site::Strip`] with a copy, whose branches are known to lead where the loop's do. Proven here: each block of the copy is
//! the loop's block, byte for byte, with or without the checks of its accesses; an access whose check is left out is known by the tests, for
//! all iterations that they tell of, wherever an element of a table lies; and whoever continues in the copy goes on in the loop.
//! A check that is there does what it does in the loop: its miss leads there, so nothing of the copy runs behind it.
//! Source: `rewriter/SEQUENCES.md`, "Copies of loops".

use crate::decode::effects::{Flow, RSP, Touch, bit};
use crate::decode::insn::{ADDR32, GS, Insn, MASKED, NONE, PREFIXED, RIP, WIDE};
use crate::facts::dwords::leaves_32_bits;
use crate::facts::exempt::{ExemptClass, classify};
use crate::file::module::Section;
use crate::judge::code::prover::{Need, Prover, STRIP, ordinary, tested, undo};
use crate::sites::site::{Copy, Held, Limit, Site, SiteKind, Strip, Test, Way, get};
use crate::sites::symbolic::Lin;
use crate::sites::tested_address::{has_prefix, required_mask};
use blizzard_contract::{self as contract, guard_tags as tags};

const STORE: u32 = contract::TAG_NO_STORE as u32;
/// Most bytes of a table.
const TABLE: i64 = 1 << 16;
/// No index of 32 bits, times eight, leads farther, access included. No tests of tags tell of so many bytes.
const FARTHEST: i64 = 1 << 36;
const _: () = assert!(STRIP * (1 << 15) < FARTHEST && (FARTHEST as u64) < contract::PRIVATE_REACH / 4);

/// An instruction of the program in a block of a copy.
struct Copied<'x> {
    /// Its index in the text, and in the cold code.
    hot: usize,
    cold: usize,
    /// The check in front of it, if the copy has it.
    check: Option<&'x Site>,
}

impl<'x> Prover<'x, '_> {
    /// Proves that a loop's copy may stand for the loop.
    pub(crate) fn copy_is_sound(&mut self, site: &Site) -> Result<(), String> {
        let Some(strip) = site.strip.as_deref() else { return Ok(()) };
        let Some(copy) = &strip.copy else { return Ok(()) };
        if (site.access..=strip.jump).any(|k| self.g.is_caught(k)) {
            return Err("an exception would not find the landing pad of the loop".into());
        }
        let times = copy.blocks.len() as i64;
        let step = self.around(site, &Need { lin: Lin::reg(strip.counter), bytes: 1, store: false })?;
        let mut ways: Vec<(i64, &[Test])> = Vec::new();
        for way in strip.ways.iter().filter(|w| w.copied) {
            match way.limit {
                Limit::Plus(by) if step != 0 && by % (step * times) == 0 && (1..=STRIP).contains(&(by / step)) => {
                    ways.push((by / step, &way.tests));
                }
                _ => return Err("the compared register does not step onto the limit".into()),
            }
        }
        // How long the loop runs by itself says no more than when to ask again.
        let alike = |way: &Way| way.limit == Limit::Here || ways.iter().any(|w| way.limit == Limit::Plus(w.0 * step));
        if self.cx.guard && !strip.ways.iter().all(alike) {
            return Err("the loop runs by itself longer than its copy".into());
        }
        self.leaves_as_the_loop(strip, copy)?;
        self.keeps_limit(copy)?;
        for block in &copy.blocks {
            let list = self.block(strip, site, block.clone())?;
            for n in 0..list.len() {
                self.goes_on_in_the_loop(site, &list[n])?;
                self.is_known(site, &list, n, &ways)?;
            }
            self.are_needed(&list, &ways)?;
        }
        Ok(())
    }

    /// Whether all regions that lead elsewhere belong to copies.
    pub(crate) fn moved_are_copies(&self) -> bool {
        self.moved == self.m.moved.len()
    }

    /// The branches behind the blocks are taken when the loop's own jump is not, that behind the last when it is.
    fn leaves_as_the_loop(&self, strip: &Strip, copy: &Copy) -> Result<(), String> {
        let own = &self.cx.text.insns[strip.jump];
        let own = condition(own).ok_or("the loop has no condition")?;
        for (k, block) in copy.blocks.iter().enumerate() {
            let last = k + 1 == copy.blocks.len();
            if condition(&self.cx.cold.insns[block.end]) != Some(own ^ u16::from(!last)) {
                return Err("its condition is not the loop's".into());
            }
        }
        Ok(())
    }

    /// Nothing in the copy changes the register that holds the limit. (Below rsp the program has nothing: `red_zone`. No check of a copy keeps anything there:
    /// [`Prover::block`].)
    fn keeps_limit(&self, copy: &Copy) -> Result<(), String> {
        let Held::Register(limit) = copy.limit else { return Ok(()) };
        let code = &self.cx.cold.insns;
        match copy.blocks.iter().flat_map(|b| &code[b.start..=b.end]).find(|i| i.fx.writes & bit(limit) != 0) {
            Some(i) => Err(format!("the limit's register changes at {:#x}", i.va)),
            None => Ok(()),
        }
    }

    /// The instructions of the program in a block, which must be those of the loop.
    fn block(&self, strip: &Strip, site: &Site, cold: std::ops::Range<usize>) -> Result<Vec<Copied<'x>>, String> {
        let (text, code) = (self.cx.text, self.cx.cold);
        let differs = |k: usize| format!("{:#x} is not an instruction of the loop", code.insns[k].va);
        let mut list = Vec::new();
        let (mut hot, mut k) = (site.access, cold.start);
        while hot < strip.jump {
            let mut check = None;
            if get(&self.sites.inserted, hot) {
                let at = self.sites.list.partition_point(|s| s.start < hot);
                let inside = self.sites.list.get(at).filter(|s| s.start == hot && s.problem.is_none());
                let inside = inside.filter(|s| matches!(s.kind, SiteKind::Check { .. }) && s.access < strip.jump);
                let inside = inside.ok_or("the loop holds something else than checks")?;
                let count = inside.access - inside.start;
                if k < cold.end && self.is_same(hot, k) {
                    if k + count > cold.end || !(0..count).all(|n| self.is_same(hot + n, k + n)) {
                        return Err(format!("the check at {:#x} is not that of the loop", code.insns[k].va));
                    }
                    if inside.red_zone {
                        return Err(format!("the check at {:#x} keeps something below rsp", code.insns[k].va));
                    }
                    check = Some(inside);
                    k += count;
                }
                hot = inside.access;
            }
            if k >= cold.end || !self.is_same(hot, k) || text.insns[hot].flow != Flow::Next {
                return Err(differs(k.min(cold.end)));
            }
            list.push(Copied { hot, cold: k, check });
            hot += 1;
            k += 1;
        }
        if k != cold.end {
            return Err(differs(k));
        }
        Ok(list)
    }

    /// An instruction of the text and one of the cold code are the same; branches, when they lead to the same place.
    fn is_same(&self, hot: usize, cold: usize) -> bool {
        let (a, b) = (&self.cx.text.insns[hot], &self.cx.cold.insns[cold]);
        let relative = |i: &Insn| i.mem.as_ref().is_some_and(|m| m.base == RIP);
        if a.flow != Flow::Next || b.flow != Flow::Next {
            return condition(a).is_some() && condition(a) == condition(b) && a.target == b.target;
        }
        let bytes = |s: &Section<'x>, i: &Insn| {
            let at = (i.va - s.va) as usize;
            s.data.get(at..at + usize::from(i.len))
        };
        let (of_a, of_b) = (bytes(&self.m.text, a), bytes(&self.m.cold, b));
        !relative(a) && of_a.is_some() && of_a == of_b
    }

    /// A context that continues at the instruction is sent to the loop.
    fn goes_on_in_the_loop(&mut self, site: &Site, one: &Copied) -> Result<(), String> {
        let (text, va) = (&self.cx.text.insns, self.cx.cold.insns[one.cold].va);
        let at = self.m.moved.partition_point(|r| r.0 <= va);
        let row = at.checked_sub(1).map(|r| self.m.moved[r]).filter(|r| va < r.1);
        // The loop's first instruction begins where the loop is entered.
        let begin = if one.hot == first(self, site) {
            text[site.start].va
        } else {
            text[self.site_before(one.hot).map_or(one.hot, |s| s.start)].va
        };
        if row.is_none_or(|r| r.2 != begin) {
            return Err(format!("whoever continues at {va:#x} does not go on in the loop"));
        }
        self.moved += 1;
        Ok(())
    }

    /// The `n`th instruction accesses nothing but what may be accessed.
    fn is_known(&self, site: &Site, list: &[Copied], n: usize, ways: &[(i64, &[Test])]) -> Result<(), String> {
        let text = &self.cx.text.insns;
        let i = &text[list[n].hot];
        // Where no program has operands with %gs, that is the alias.
        let at_alias = self.cx.guard && has_prefix(self.cx, i, GS);
        undo(i, Need { lin: Lin::reg(NONE), bytes: 1, store: false })?;
        if i.fx.writes & bit(RSP) != 0 {
            return Err(format!("rsp moves at {:#x}", i.va));
        }
        if i.touch == Touch::None || list[n].check.is_some() {
            return Ok(());
        }
        let unknown = || Err(format!("the access of {:#x} is neither checked nor tested", i.va));
        if at_alias && i.mem.is_none_or(|mem| mem.seg != GS) {
            return unknown();
        }
        let (Some((lin, access)), Some(mem)) = (ordinary(i), &i.mem) else {
            // A string instruction that only loads, where loads are not checked. In guarded code it might fault, and messages would be handled here.
            let is_open = self.cx.guard || matches!(classify(self.cx, i, 0), ExemptClass::Open(_));
            return if is_open { unknown() } else { Ok(()) };
        };
        let wanted = access.writes() && self.cx.check_stores || access.reads() && self.cx.check_loads;
        if !at_alias
            && (!wanted && !self.cx.guard || mem.seg != 0 || i.has(ADDR32) || mem.index == NONE && mem.base == RSP)
        {
            return Ok(());
        }
        let private = self.cx.guard && !at_alias;
        if private || i.has(MASKED | ADDR32) || !(1..=64).contains(&i.size) || mem.base == RSP {
            return unknown();
        }
        let store = required_mask(self.cx, access) == STORE;
        let need = Need { lin, bytes: i.size.into(), store };
        if self.is_checked_before(list, n, need) || self.is_tested(site, list, n, need, ways) {
            return Ok(());
        }
        let pairs = [(mem.base, mem.index, mem.scale), (mem.index, mem.base, 1)];
        for (base, index, scale) in pairs.into_iter().filter(|p| p.0 < 16 && p.1 < 16 && p.2 == mem.scale) {
            let writer = list[..n].iter().rev().map(|c| &text[c.hot]).find(|w| w.fx.writes & bit(index) != 0);
            let Some(writer) = writer else { continue };
            let lin = Lin { disp: mem.disp, ..Lin::reg(base) };
            if is_narrow(writer, index) && self.is_private(site, list, n, Need { lin, bytes: 1, ..need }, ways) {
                return Ok(());
            }
            let Some(largest) = bound(writer, index) else { continue };
            let bytes = i64::from(scale) * largest + i64::from(i.size);
            if bytes <= TABLE && self.is_tested(site, list, n, Need { lin, bytes: bytes as u32, ..need }, ways) {
                return Ok(());
            }
        }
        unknown()
    }

    /// Where tests ask for the right to store, something is stored.
    fn are_needed(&self, list: &[Copied], ways: &[(i64, &[Test])]) -> Result<(), String> {
        let text = &self.cx.text.insns;
        let stored = |n: usize| {
            let (lin, access) = ordinary(&text[list[n].hot]).filter(|o| required_mask(self.cx, o.1) == STORE)?;
            let at_head = move |lin| {
                let need = Need { lin, bytes: 1, store: access.writes() };
                list[..n].iter().rev().try_fold(need, |need, one| undo(&text[one.hot], need)).ok()
            };
            let parts = [lin, Lin { disp: 0, ..Lin::reg(lin.base) }, Lin { disp: 0, ..Lin::reg(lin.index) }];
            Some(parts.into_iter().filter_map(at_head).map(|need| Lin { disp: 0, ..need.lin }))
        };
        let stored: Vec<Lin> = (0..list.len()).filter_map(stored).flatten().collect();
        for test in ways.iter().flat_map(|way| way.1) {
            if let Test::Level { lin, level: tags::BOTH_WRITABLE } = test
                && !stored.contains(&Lin { disp: 0, ..*lin })
            {
                return Err("the tests ask for the right to store, and nothing stores".into());
            }
        }
        Ok(())
    }

    /// The base is known to be private on all ways, as far as an index of 32 bits may lead to both sides.
    fn is_private(&self, site: &Site, list: &[Copied], n: usize, need: Need, ways: &[(i64, &[Test])]) -> bool {
        [-FARTHEST, FARTHEST].iter().all(|by| {
            let lin = Lin { disp: need.lin.disp.wrapping_add(*by), ..need.lin };
            self.is_tested(site, list, n, Need { lin, ..need }, ways)
        })
    }

    /// A check in front of it in the same block proves the need.
    fn is_checked_before(&self, list: &[Copied], n: usize, mut need: Need) -> bool {
        for one in list[..n].iter().rev() {
            let Ok(before) = undo(&self.cx.text.insns[one.hot], need) else { return false };
            need = before;
            if one.check.is_some_and(|check| self.proves(check, &need)) {
                return true;
            }
        }
        false
    }

    /// The tests on all ways tell of the need, in all iterations.
    fn is_tested(&self, site: &Site, list: &[Copied], n: usize, need: Need, ways: &[(i64, &[Test])]) -> bool {
        let text = &self.cx.text.insns;
        let at_head = list[..n].iter().rev().try_fold(need, |need, one| undo(&text[one.hot], need));
        let Ok(need) = at_head else { return false };
        let Ok(stride) = self.around(site, &need) else { return false };
        !ways.is_empty()
            && ways.iter().all(|&(iterations, tests)| {
                let known = tested(tests, &need);
                (0..iterations).all(|j| {
                    let first = need.lin.disp.wrapping_add(j.wrapping_mul(stride));
                    let last = first.wrapping_add(i64::from(need.bytes) - 1);
                    known.iter().any(|s| s.0 <= first && last <= s.1)
                })
            })
    }
}

/// The loop's first instruction of the program.
fn first(prover: &Prover, site: &Site) -> usize {
    (site.access..).find(|&k| !get(&prover.sites.inserted, k)).unwrap_or(site.access)
}

/// The condition of a branch.
fn condition(i: &Insn) -> Option<u16> {
    (i.flow == Flow::Cond && matches!(i.op, 0x70..=0x7f | 0x180..=0x18f)).then_some(i.op & 15)
}

/// Whether an instruction leaves a number of 32 bits in a register, with or without a sign.
fn is_narrow(i: &Insn, reg: u8) -> bool {
    leaves_32_bits(i) & bit(reg) != 0 || bound(i, reg).is_some_and(|most| most <= i64::from(u32::MAX))
}

/// The largest value that an instruction leaves in a register.
fn bound(i: &Insn, reg: u8) -> Option<i64> {
    let whole = i.r0 == reg && i.r0_bytes >= 4;
    let mask = |wide: bool| if wide { i.imm } else { i.imm & 0xffff_ffff };
    match i.op {
        0x1b6 if whole => Some(255),
        0x81 | 0x83 if whole && i.mem.is_none() && i.ext == 4 => Some(mask(i.r0_bytes == 8)).filter(|&m| m >= 0),
        0x25 if reg == 0 && (i.r0_bytes >= 4 || i.r0 >= 16) && !i.has(PREFIXED) => {
            Some(mask(i.has(WIDE))).filter(|&m| m >= 0)
        }
        0xc1 if whole && i.mem.is_none() && i.ext == 5 => {
            let bits = if i.r0_bytes == 8 { 64 } else { 32 };
            let left = bits - (i.imm & (bits - 1));
            (left < 32).then(|| (1 << left) - 1)
        }
        _ => None,
    }
}
