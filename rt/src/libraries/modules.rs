//! The rewritten files in this process's address space.
//!
//! Purpose: the trap handler and the signal gate must know for any address which rewritten file it belongs to. Input: a [`ModuleInfo`] and a
//! load bias, from the program itself at start, from the dynamic loader when the runtime loads it, and from each
//! library when it is mapped. Output: lookups by address that take no lock, because signal handlers make them.
//! **Invariants**: a slot is published by its last store, `end`, and withdrawn by its first, so that a reader sees a whole
//! entry or none; entries whose code a new one covers are withdrawn, since their memory has been mapped over. The span of a module
//! may have holes between segments, where the kernel puts others: of those that cover an address, the innermost counts.
//! Source: design sections 3.1 (traps) and 5 (signals between a check and its access).

use crate::kernel::owned::PerProcess;
use blizzard_contract::restarts::{Restart, Restarts, can_begin_again};
use blizzard_contract::trap_map::{OldPlace, TrapMap};
use blizzard_contract::{CodeRegion, ModuleInfo, RestartHead, SPRINGBOARD_JUMPS, TrapEntry, TrapHead, module_flags};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Rewritten files in one process at most.
pub const MAX_MODULES: usize = 2048;
/// A springboard is looked for so many bytes behind the old instruction that comes before it in the new code: padding, and data among the code.
const SPRINGBOARD_WITHIN: u64 = 4096;

/// The trap map of one module.
#[derive(Clone, Copy, Debug)]
struct Traps<'x> {
    map: TrapMap<'x>,
    /// Run-time address that `TrapEntry::old` is relative to.
    old_base: u64,
    /// Run-time address that `TrapEntry::new` is relative to.
    new_base: u64,
}

/// What an address in old code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldAddress {
    /// An instruction; its new address.
    Instruction(u64),
    /// Inside rewritten old code, but no instruction begins there; its link-time address.
    Middle(u64),
    /// Not rewritten old code.
    Elsewhere,
}

impl Traps<'_> {
    /// Looks up the old run-time address `at`.
    fn find(&self, at: u64, bias: u64) -> OldAddress {
        let Ok(offset) = u32::try_from(at.wrapping_sub(self.old_base)) else {
            return OldAddress::Elsewhere;
        };
        match self.map.find(offset) {
            OldPlace::Row(new) => OldAddress::Instruction(self.new_base.wrapping_add(new.into())),
            OldPlace::Between => OldAddress::Middle(at.wrapping_sub(bias)),
            OldPlace::Outside => OldAddress::Elsewhere,
        }
    }
}

/// One module. All words are run-time addresses unless they say otherwise.
struct Slot {
    /// The module's span; `end` is 0 while the slot is empty.
    start: AtomicU64,
    end: AtomicU64,
    /// Run-time minus link-time addresses.
    bias: AtomicU64,
    code: AtomicU64,
    code_end: AtomicU64,
    /// Where code begins that tests tags or polls always; in front of it, of guarded code, tests are those that the restart table has.
    tested: AtomicU64,
    /// [`ModuleInfo::number`].
    number: AtomicU64,
    /// [`module_flags::JUMPS`].
    jumps: AtomicBool,
    trap_codes: AtomicU64,
    trap_code_bytes: AtomicU64,
    trap_heads: AtomicU64,
    trap_count: AtomicU64,
    old_base: AtomicU64,
    new_base: AtomicU64,
    regions: AtomicU64,
    region_count: AtomicU64,
    restart_codes: AtomicU64,
    restart_code_bytes: AtomicU64,
    restart_heads: AtomicU64,
    restart_count: AtomicU64,
    version_codes: AtomicU64,
    version_code_bytes: AtomicU64,
    version_heads: AtomicU64,
    version_count: AtomicU64,
    redirect_codes: AtomicU64,
    redirect_code_bytes: AtomicU64,
    redirect_heads: AtomicU64,
    redirect_count: AtomicU64,
    /// Its traps have been told of.
    told: AtomicBool,
}

impl Slot {
    const fn empty() -> Slot {
        Slot {
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            bias: AtomicU64::new(0),
            code: AtomicU64::new(0),
            code_end: AtomicU64::new(0),
            tested: AtomicU64::new(0),
            number: AtomicU64::new(0),
            jumps: AtomicBool::new(false),
            trap_codes: AtomicU64::new(0),
            trap_code_bytes: AtomicU64::new(0),
            trap_heads: AtomicU64::new(0),
            trap_count: AtomicU64::new(0),
            old_base: AtomicU64::new(0),
            new_base: AtomicU64::new(0),
            regions: AtomicU64::new(0),
            region_count: AtomicU64::new(0),
            restart_codes: AtomicU64::new(0),
            restart_code_bytes: AtomicU64::new(0),
            restart_heads: AtomicU64::new(0),
            restart_count: AtomicU64::new(0),
            version_codes: AtomicU64::new(0),
            version_code_bytes: AtomicU64::new(0),
            version_heads: AtomicU64::new(0),
            version_count: AtomicU64::new(0),
            redirect_codes: AtomicU64::new(0),
            redirect_code_bytes: AtomicU64::new(0),
            redirect_heads: AtomicU64::new(0),
            redirect_count: AtomicU64::new(0),
            told: AtomicBool::new(false),
        }
    }

    /// The access that `at` belongs to, or to whose test behind its first instruction.
    fn tests_around(&self, at: u64) -> Option<Restart> {
        let place = at.wrapping_sub(self.new_base.load(Ordering::Relaxed));
        self.restarts().around(u32::try_from(place).ok()?)
    }

    fn covers(&self, at: u64) -> bool {
        let end = self.end.load(Ordering::Acquire);
        at < end && at >= self.start.load(Ordering::Relaxed)
    }

    /// Whether something at `[start, end)` lies where this module's new code is.
    fn is_displaced_by(&self, start: u64, end: u64) -> bool {
        let code = self.code.load(Ordering::Relaxed)..self.code_end.load(Ordering::Relaxed);
        !self.is_empty() && code.start < end && start < code.end
    }

    fn is_empty(&self) -> bool {
        self.end.load(Ordering::Acquire) == 0
    }

    fn regions(&self) -> &[CodeRegion] {
        let count = self.region_count.load(Ordering::Relaxed) as usize;
        if count == 0 {
            return &[];
        }
        // SAFETY: whoever registered the module vouches for the table.
        unsafe { core::slice::from_raw_parts(self.regions.load(Ordering::Relaxed) as *const CodeRegion, count) }
    }

    /// The new address of the function or instruction at the old address `at`: the trap map has it, or a springboard jumps there.
    fn entry(&self, at: u64) -> Option<u64> {
        if let OldAddress::Instruction(new) = self.traps().find(at, 0) {
            return Some(new);
        }
        let code = self.code.load(Ordering::Relaxed)..self.code_end.load(Ordering::Relaxed);
        let mut jump = at;
        for _ in 0..SPRINGBOARD_JUMPS {
            let mut bytes = [0u8; 5];
            // The span may have holes, and a wrong name leads anywhere in it.
            if !self.covers(jump) || crate::kernel::sys::read_own_memory(jump, &mut bytes).is_err() {
                return None;
            }
            match bytes {
                [0xe9, a, b, c, d] => {
                    let new = jump.wrapping_add(5).wrapping_add(i32::from_le_bytes([a, b, c, d]) as u64);
                    return code.contains(&new).then_some(new);
                }
                [0xeb, distance, ..] => jump = jump.wrapping_add(2).wrapping_add(distance as i8 as u64),
                _ => return None,
            }
        }
        None
    }

    /// The old address of the function or instruction at `at`, which may be in old or in new code.
    fn old_address(&self, at: u64) -> Option<u64> {
        if self.is_new(at) { self.old_of(at) } else { self.entry(at).map(|_| at) }
    }

    /// Whether `at` lies in its new code.
    fn is_new(&self, at: u64) -> bool {
        (self.code.load(Ordering::Relaxed)..self.code_end.load(Ordering::Relaxed)).contains(&at)
    }

    /// The old address of the function or instruction at `new` in this module's new code, by which functions may be known: in the trap
    /// map, or that of a springboard behind the instruction that comes before it in the new code. Looks at the whole map.
    fn old_of(&self, new: u64) -> Option<u64> {
        let traps = self.traps();
        let at = u32::try_from(new.wrapping_sub(traps.new_base)).ok()?;
        let mut before: Option<TrapEntry> = None;
        for row in traps.map.all() {
            if row.new == at {
                return Some(traps.old_base.wrapping_add(row.old.into()));
            }
            if row.new < at && before.is_none_or(|b| b.new < row.new) {
                before = Some(row);
            }
        }
        let from = traps.old_base.wrapping_add(before.map_or(0, |b| b.old.into()));
        (from..from.saturating_add(SPRINGBOARD_WITHIN)).find(|old| self.entry(*old) == Some(new))
    }

    fn restarts(&self) -> Restarts<'_> {
        let rows = self.restart_count.load(Ordering::Relaxed) as usize;
        if rows == 0 {
            return Restarts { heads: &[], codes: &[], rows };
        }
        let code_bytes = self.restart_code_bytes.load(Ordering::Relaxed) as usize;
        // SAFETY: whoever registered the module vouches for the table.
        unsafe {
            let at = self.restart_heads.load(Ordering::Relaxed) as *const RestartHead;
            let heads = core::slice::from_raw_parts(at, Restarts::groups(rows));
            let codes =
                core::slice::from_raw_parts(self.restart_codes.load(Ordering::Relaxed) as *const u8, code_bytes);
            Restarts { heads, codes, rows }
        }
    }

    fn traps(&self) -> Traps<'_> {
        Traps {
            map: table([&self.trap_count, &self.trap_heads, &self.trap_codes, &self.trap_code_bytes]),
            old_base: self.old_base.load(Ordering::Relaxed),
            new_base: self.new_base.load(Ordering::Relaxed),
        }
    }

    /// From accesses of plain code to full code.
    fn versions(&self) -> TrapMap<'_> {
        table([&self.version_count, &self.version_heads, &self.version_codes, &self.version_code_bytes])
    }

    /// From functions of plain code to their full versions.
    fn redirects(&self) -> TrapMap<'_> {
        table([&self.redirect_count, &self.redirect_heads, &self.redirect_codes, &self.redirect_code_bytes])
    }
}

/// A table of the form of the trap map: how many rows it has, where its heads and codes are, and how many bytes of codes.
fn table<'x>(parts: [&AtomicU64; 4]) -> TrapMap<'x> {
    let [rows, heads, codes, code_bytes] = parts.map(|part| part.load(Ordering::Relaxed));
    let rows = rows as usize;
    if rows == 0 {
        return TrapMap { heads: &[], codes: &[], rows };
    }
    // SAFETY: whoever registered the module vouches for the table.
    unsafe {
        let heads = core::slice::from_raw_parts(heads as *const TrapHead, TrapMap::groups(rows));
        TrapMap { heads, codes: core::slice::from_raw_parts(codes as *const u8, code_bytes as usize), rows }
    }
}

/// A table of modules. The process has one, [`MODULES`]; tests have their own.
pub struct Modules {
    slots: [Slot; MAX_MODULES],
    /// Slots behind this one have never been used.
    used: AtomicUsize,
    writing: AtomicBool,
    /// Grows with each change.
    version: AtomicU64,
    /// Some module's loops share the limits.
    strips: AtomicBool,
    /// Whether a module has been added whose accesses are checked.
    checks: AtomicBool,
}

/// The process's modules.
pub static MODULES: PerProcess<Modules> = PerProcess::new(Modules::new());

/// There is no room for another module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModulesFull;

impl Modules {
    pub const fn new() -> Self {
        Modules {
            slots: [const { Slot::empty() }; MAX_MODULES],
            used: AtomicUsize::new(0),
            writing: AtomicBool::new(false),
            version: AtomicU64::new(0),
            strips: AtomicBool::new(false),
            checks: AtomicBool::new(false),
        }
    }

    /// Adds a module that occupies `[start, end)`.
    ///
    /// # Errors
    /// The table is full.
    ///
    /// # Safety
    /// What `info` describes, trap map, table of regions and restart table, is, or will be before any of the module's code runs, mapped at its link-time address
    /// plus `bias`; it is sorted, and stays so until something else is mapped there.
    pub unsafe fn add(&self, info: &ModuleInfo, bias: u64, start: u64, end: u64) -> Result<(), ModulesFull> {
        while self.writing.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        if info.flags & module_flags::STRIPS != 0 {
            self.strips.store(true, Ordering::Relaxed);
        }
        if info.flags & (module_flags::CHECK_LOADS | module_flags::CHECK_STORES) != 0 {
            self.checks.store(true, Ordering::Relaxed);
        }
        let used = self.used.load(Ordering::Relaxed);
        for slot in &self.slots[..used] {
            if slot.is_displaced_by(start, end) {
                slot.end.store(0, Ordering::Release);
            }
        }
        let free = self.slots[..used].iter().position(Slot::is_empty).unwrap_or(used);
        let done = match self.slots.get(free) {
            None => Err(ModulesFull),
            Some(slot) => {
                let at = |va: u64| va.wrapping_add(bias);
                slot.start.store(start, Ordering::Relaxed);
                slot.bias.store(bias, Ordering::Relaxed);
                slot.code.store(at(info.code_va), Ordering::Relaxed);
                slot.code_end.store(at(info.code_va).wrapping_add(info.code_bytes), Ordering::Relaxed);
                slot.tested.store(at(info.code_va).wrapping_add(info.full_at), Ordering::Relaxed);
                slot.number.store(info.number().into(), Ordering::Relaxed);
                slot.jumps.store(info.flags & module_flags::JUMPS != 0, Ordering::Relaxed);
                slot.trap_codes.store(at(info.trap_codes_va), Ordering::Relaxed);
                slot.trap_code_bytes.store(info.trap_code_bytes, Ordering::Relaxed);
                slot.trap_heads.store(at(info.trap_heads_va), Ordering::Relaxed);
                slot.trap_count.store(info.trap_count, Ordering::Relaxed);
                slot.old_base.store(at(info.old_base_va), Ordering::Relaxed);
                slot.new_base.store(at(info.new_base_va), Ordering::Relaxed);
                slot.regions.store(at(info.regions_va), Ordering::Relaxed);
                slot.region_count.store(info.region_count, Ordering::Relaxed);
                slot.restart_codes.store(at(info.restart_codes_va), Ordering::Relaxed);
                slot.restart_code_bytes.store(info.restart_code_bytes, Ordering::Relaxed);
                slot.restart_heads.store(at(info.restart_heads_va), Ordering::Relaxed);
                slot.restart_count.store(info.restart_count, Ordering::Relaxed);
                slot.version_codes.store(at(info.version_codes_va), Ordering::Relaxed);
                slot.version_code_bytes.store(info.version_code_bytes, Ordering::Relaxed);
                slot.version_heads.store(at(info.version_heads_va), Ordering::Relaxed);
                slot.version_count.store(info.version_count, Ordering::Relaxed);
                slot.redirect_codes.store(at(info.redirect_codes_va), Ordering::Relaxed);
                slot.redirect_code_bytes.store(info.redirect_code_bytes, Ordering::Relaxed);
                slot.redirect_heads.store(at(info.redirect_heads_va), Ordering::Relaxed);
                slot.redirect_count.store(info.redirect_count, Ordering::Relaxed);
                slot.told.store(false, Ordering::Relaxed);
                slot.end.store(end, Ordering::Release);
                self.used.store(used.max(free + 1), Ordering::Release);
                Ok(())
            }
        };
        self.version.fetch_add(1, Ordering::Release);
        self.writing.store(false, Ordering::Release);
        done
    }

    fn at(&self, at: u64) -> Option<&Slot> {
        let used = &self.slots[..self.used.load(Ordering::Acquire)];
        used.iter().filter(|slot| slot.covers(at)).max_by_key(|slot| slot.start.load(Ordering::Relaxed))
    }

    /// Tells of the trap maps' old addresses, in order, of the modules that have been added since the last time. All of them must be mapped.
    pub fn each_new_trap(&self, mut tell: impl FnMut(u64)) {
        let used = &self.slots[..self.used.load(Ordering::Acquire)];
        for slot in used.iter().filter(|slot| !slot.is_empty() && !slot.told.swap(true, Ordering::Relaxed)) {
            let traps = slot.traps();
            traps.map.all().for_each(|row| tell(traps.old_base.wrapping_add(row.old.into())));
        }
    }

    /// A number that stays the same as long as the table does.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether a module has been added whose accesses are checked.
    pub fn check(&self) -> bool {
        self.checks.load(Ordering::Relaxed)
    }

    /// Whether loops of some module keep the limits of what they have tested in the words of the process.
    pub fn share_limits(&self) -> bool {
        self.strips.load(Ordering::Relaxed)
    }

    /// Where an access at `at` in plain code begins in full code.
    pub fn full_of(&self, at: u64) -> Option<u64> {
        let slot = self.at(at)?;
        let base = slot.new_base.load(Ordering::Relaxed);
        match slot.versions().find(u32::try_from(at.wrapping_sub(base)).ok()?) {
            OldPlace::Row(full) => Some(base.wrapping_add(full.into())),
            OldPlace::Between | OldPlace::Outside => None,
        }
    }

    /// The access of plain code whose access in full code begins at `at`, behind its test.
    pub fn plain_of(&self, at: u64) -> Option<u64> {
        /// A test is shorter.
        const REACH: u32 = 128;
        let (slot, base, place) = self.place(at)?;
        let row = slot.versions().leads_before(place).filter(|row| place - row.new < REACH)?;
        Some(base.wrapping_add(row.old.into()))
    }

    /// Where plain code goes on with the access that begins at `at` in full code: in front of its test, if it has one.
    pub fn plain_from(&self, at: u64) -> Option<u64> {
        let (slot, base, place) = self.place(at)?;
        let row = slot.versions().leads_before(place).filter(|row| row.new == place)?;
        let access = base.wrapping_add(row.old.into());
        match slot.tests_around(access) {
            None => Some(access),
            Some(test) => (test.access == row.old).then(|| base.wrapping_add(test.check.into())),
        }
    }

    /// Where the function of plain code begins that `at` lies in, if it may be entered in its full version.
    pub fn redirectable(&self, at: u64) -> Option<u64> {
        let (slot, base, place) = self.place(at)?;
        slot.redirects().before(place).map(|row| base.wrapping_add(row.old.into()))
    }

    /// Whether `at` lies in some module.
    pub fn covers(&self, at: u64) -> bool {
        self.at(at).is_some()
    }

    /// Looks up the old code address `at`.
    pub fn find(&self, at: u64) -> OldAddress {
        self.at(at).map_or(OldAddress::Elsewhere, |slot| slot.traps().find(at, slot.bias.load(Ordering::Relaxed)))
    }

    /// A row of the trap map by its run-time addresses, as [`TrapPlace`](blizzard_contract::TrapPlace) has it: name and new address.
    pub fn trap_place(&self, at: u64, new: u64) -> Option<(u64, u32)> {
        let slot = self.at(at)?;
        let old = u32::try_from(at.wrapping_sub(slot.old_base.load(Ordering::Relaxed))).ok()?;
        let new = new.wrapping_sub(slot.new_base.load(Ordering::Relaxed)) as u32;
        Some((slot.number.load(Ordering::Relaxed) << 32 | u64::from(old), new))
    }

    /// Whether a jump may be written at the trap byte `at`, as far as this depends on what stands behind it.
    pub fn takes_jumps(&self, at: u64) -> bool {
        self.at(at).is_some_and(|slot| slot.jumps.load(Ordering::Relaxed))
    }

    /// The chain of [`blizzard_contract::GroupRange`]s that new code at `at` relies on, if it does.
    pub fn chain_at(&self, at: u64) -> Option<u64> {
        let (base, group) = self.group_at(at)?;
        (group & CodeRegion::MOVED == 0).then(|| base.wrapping_add(group.into()))
    }

    /// Where a context that stands at `at` goes on instead, if it must: see [`CodeRegion::MOVED`].
    pub fn moved_from(&self, at: u64) -> Option<u64> {
        let (base, group) = self.group_at(at)?;
        (group & CodeRegion::MOVED != 0).then(|| base.wrapping_add((group & !CodeRegion::MOVED).into()))
    }

    /// Where the check of the access at `at` begins, if it has one of its own.
    pub fn check_of(&self, at: u64) -> Option<u64> {
        let (slot, base, place) = self.place(at)?;
        slot.restarts().check_of(place).map(|check| base.wrapping_add(check.into()))
    }

    /// The last access with a check of its own before `at` in new code.
    pub fn access_before(&self, at: u64) -> Option<u64> {
        let (slot, base, place) = self.place(at)?;
        slot.restarts().before(place).map(|Restart { access, .. }| base.wrapping_add(access.into()))
    }

    /// The module that `at` lies in, what its new code is relative to, and where `at` is relative to that.
    fn place(&self, at: u64) -> Option<(&Slot, u64, u32)> {
        let slot = self.at(at)?;
        let base = slot.new_base.load(Ordering::Relaxed);
        Some((slot, base, u32::try_from(at.wrapping_sub(base)).ok()?))
    }

    /// What the region of new code at `at` says, and what it is relative to.
    fn group_at(&self, at: u64) -> Option<(u64, u32)> {
        let (slot, base, place) = self.place(at)?;
        let regions = slot.regions();
        let region = &regions[regions.partition_point(|r| r.start <= place).checked_sub(1)?];
        (place < region.end).then_some((base, region.group))
    }

    /// A name for the function or instruction at `at`, an old address or its new one, the same in all processes that have loaded the same files in the same order: the
    /// module's number in the upper half, the distance from its old code's base in the lower.
    pub fn name_of(&self, at: u64) -> Option<u64> {
        let slot = self.at(at)?;
        let at = slot.old_address(at)?;
        let number = self.slots.iter().position(|other| core::ptr::eq(other, slot))?;
        Some((number as u64) << 32 | at.wrapping_sub(slot.old_base.load(Ordering::Relaxed)))
    }

    /// The new address of the function or instruction at `at`, an old address or this new one.
    pub fn entry(&self, at: u64) -> Option<u64> {
        let slot = self.at(at)?;
        slot.entry(slot.old_address(at)?)
    }

    /// The new address of what has that name; `None` when there is no such thing here.
    pub fn resolve(&self, name: u64) -> Option<u64> {
        let slot = self.slots.get((name >> 32) as usize).filter(|slot| !slot.is_empty())?;
        let old = slot.old_base.load(Ordering::Relaxed).wrapping_add(name & u64::from(u32::MAX));
        if slot.covers(old) { slot.entry(old) } else { None }
    }

    /// Whether code at `at` may rely on a tag that has been tested. In plain code only what stands between a test and its access does, and the access.
    pub fn in_tested_code(&self, at: u64) -> bool {
        let tested = |slot: &Slot| at >= slot.tested.load(Ordering::Relaxed) || slot.tests_around(at).is_some();
        self.at(at).is_some_and(|slot| slot.is_new(at) && tested(slot))
    }

    /// Whether `at` lies in plain code of guarded code.
    pub fn in_plain_code(&self, at: u64) -> bool {
        self.at(at).is_some_and(|slot| slot.is_new(at) && at < slot.tested.load(Ordering::Relaxed))
    }

    /// Where the test begins that `at`, in plain code, lies in or behind, if it can begin again: from its access, or where it has changed nothing yet that lives.
    pub fn plain_test_of(&self, at: u64) -> Option<u64> {
        let slot = self.at(at).filter(|slot| slot.is_new(at) && at < slot.tested.load(Ordering::Relaxed))?;
        let row = slot.tests_around(at)?;
        let base = slot.new_base.load(Ordering::Relaxed);
        let (begin, access) = (base.wrapping_add(row.check.into()), base.wrapping_add(row.access.into()));
        // SAFETY: new code of a module that is loaded.
        let done = || unsafe { core::slice::from_raw_parts(begin as *const u8, (at - begin) as usize) };
        let can_begin = at == access || at < access && can_begin_again(done());
        can_begin.then_some(begin)
    }

    /// The access at `at`, as [`LearntPlace`](blizzard_contract::LearntPlace) names it.
    pub fn access_at(&self, at: u64) -> Option<u64> {
        let (slot, _, place) = self.place(at)?;
        Some(slot.number.load(Ordering::Relaxed) << 32 | u64::from(place))
    }

    /// Whether `at` lies in the new code of the program itself, which is the first module.
    pub fn in_program(&self, at: u64) -> bool {
        let first = &self.slots[0];
        !first.is_empty() && first.covers(at) && first.is_new(at)
    }

    /// The old address of the program's instruction or function whose new code begins at `at`.
    pub fn old_of_program(&self, at: u64) -> Option<u64> {
        if self.in_program(at) { self.slots[0].old_of(at) } else { None }
    }

    /// Whether `at` lies in some module's new code.
    pub fn in_new_code(&self, at: u64) -> bool {
        self.at(at).is_some_and(|slot| slot.is_new(at))
    }
}

impl Default for Modules {
    fn default() -> Self {
        Modules::new()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn info(entries: &[TrapEntry], bias: u64) -> ModuleInfo {
        ModuleInfo {
            old_base_va: 0x1000,
            new_base_va: 0x9000,
            code_va: 0x9000,
            code_bytes: 0x100,
            ..with_traps(entries, bias)
        }
    }

    /// A module with a trap map of one group, which is never given back.
    pub(crate) fn with_traps(entries: &[TrapEntry], bias: u64) -> ModuleInfo {
        let Some(first) = entries.first() else { return ModuleInfo::ZERO };
        let head = TrapHead { old: first.old, new: first.new, at: 0 };
        let code = |pair: &[TrapEntry]| {
            let (code, bytes) = blizzard_contract::trap_map::encode(pair[0], pair[1]);
            code.into_iter().take(bytes)
        };
        let codes: &'static [u8] = entries.windows(2).flat_map(code).collect::<Vec<u8>>().leak();
        ModuleInfo {
            trap_codes_va: (codes.as_ptr() as u64).wrapping_sub(bias),
            trap_code_bytes: codes.len() as u64,
            trap_heads_va: (core::ptr::from_ref(Box::leak(Box::new(head))) as u64).wrapping_sub(bias),
            trap_count: entries.len() as u64,
            ..ModuleInfo::ZERO
        }
    }

    fn table() -> Box<Modules> {
        Box::new(Modules::new())
    }

    #[test]
    fn addresses_are_looked_up_with_the_load_bias() {
        let entries =
            [TrapEntry { old: 0x10, new: 0x40 }, TrapEntry { old: 0x15, new: 0x60 }, TrapEntry { old: 0x20, new: 0x5 }];
        for bias in [0, 0x5555_0000_0000] {
            let modules = table();
            // SAFETY: the map is never given back.
            unsafe { modules.add(&info(&entries, bias), bias, bias + 0x1000, bias + 0x2_0000_2000) }.unwrap();
            assert_eq!(modules.find(bias + 0x1010), OldAddress::Instruction(bias + 0x9040));
            assert_eq!(modules.find(bias + 0x1015), OldAddress::Instruction(bias + 0x9060));
            assert_eq!(modules.find(bias + 0x1020), OldAddress::Instruction(bias + 0x9005));
            assert_eq!(modules.find(bias + 0x1011), OldAddress::Middle(0x1011));
            assert_eq!(modules.find(bias + 0x100f), OldAddress::Elsewhere);
            assert_eq!(modules.find(bias + 0x1021), OldAddress::Elsewhere);
            assert_eq!(modules.find(bias + 0xfff), OldAddress::Elsewhere, "below the module");
            assert_eq!(modules.find(bias + 0x1_0000_1010), OldAddress::Elsewhere, "beyond 32 bits");
            assert!(modules.in_new_code(bias + 0x9000) && modules.in_new_code(bias + 0x90ff));
            assert!(!modules.in_new_code(bias + 0x9100) && !modules.in_new_code(bias + 0x8fff));
        }
    }

    #[test]
    fn regions_are_found_from_their_first_to_their_last_byte() {
        let regions = [
            CodeRegion { start: 0x10, end: 0x20, group: 0x400 },
            CodeRegion { start: 0x20, end: 0x21, group: 0x500 },
            CodeRegion { start: 0x21, end: 0x24, group: CodeRegion::MOVED | 0x10 },
        ];
        let modules = table();
        let (bias, count) = (0x5555_0000_0000, regions.len() as u64);
        let regions_va = (regions.as_ptr() as u64).wrapping_sub(bias);
        let with = ModuleInfo { regions_va, region_count: count, ..info(&[], bias) };
        // SAFETY: `regions` outlives the table.
        unsafe { modules.add(&with, bias, bias + 0x1000, bias + 0xa000) }.unwrap();
        for (at, chain, moved) in [
            (0xf, None, None),
            (0x10, Some(0x9400), None),
            (0x1f, Some(0x9400), None),
            (0x20, Some(0x9500), None),
            (0x21, None, Some(0x9010)),
            (0x23, None, Some(0x9010)),
            (0x24, None, None),
        ] {
            assert_eq!(modules.chain_at(bias + 0x9000 + at), chain.map(|c: u64| bias + c), "{at:#x}");
            assert_eq!(modules.moved_from(bias + 0x9000 + at), moved.map(|c: u64| bias + c), "{at:#x}");
        }
        assert_eq!(modules.chain_at(bias + 0x8fff), None);
        assert_eq!(modules.chain_at(0x9010), None);
    }

    #[test]
    fn accesses_lead_back_to_their_checks() {
        let rows = [Restart { check: 0x10, access: 0x20 }, Restart { check: 0x28, access: 0x30 }];
        let heads = [RestartHead { check: rows[0].check, at: 0 }];
        let mut codes: Vec<u8> = Vec::new();
        for before in [None, Some(rows[0])] {
            let (code, bytes) = blizzard_contract::restarts::encode(before, rows[usize::from(before.is_some())]);
            codes.extend(&code[..bytes]);
        }
        let (modules, bias) = (table(), 0x5555_0000_0000);
        let with = ModuleInfo {
            restart_codes_va: (codes.as_ptr() as u64).wrapping_sub(bias),
            restart_code_bytes: codes.len() as u64,
            restart_heads_va: (heads.as_ptr() as u64).wrapping_sub(bias),
            restart_count: 2,
            ..info(&[], bias)
        };
        // SAFETY: the table outlives the modules.
        unsafe { modules.add(&with, bias, bias + 0x1000, bias + 0xa000) }.unwrap();
        let code = bias + 0x9000;
        assert_eq!(
            (modules.check_of(code + 0x20), modules.check_of(code + 0x30)),
            (Some(code + 0x10), Some(code + 0x28))
        );
        assert_eq!((modules.check_of(code + 0x10), modules.check_of(code + 0x21)), (None, None));
        assert_eq!(modules.access_before(code + 0x30), Some(code + 0x20));
        assert_eq!(modules.access_before(code + 0x33), Some(code + 0x30));
        assert_eq!((modules.access_before(code + 0x20), modules.check_of(code - 1)), (None, None));
    }

    #[test]
    fn names_are_resolved_only_where_a_function_or_an_instruction_begins() {
        // Old code at +0: an instruction with a trap, a springboard, one that leads to it over a further jump, one that leads astray.
        let mut memory = vec![0xccu8; 0x2000];
        let base = memory.as_ptr() as u64;
        let entries = [TrapEntry { old: 0x10, new: 0x40 }, TrapEntry { old: 0x80, new: 0x60 }];
        let jump = |from: u64, to: u64| (to as u32).wrapping_sub(from as u32 + 5).to_le_bytes();
        memory[0x20] = 0xe9;
        memory[0x21..0x25].copy_from_slice(&jump(0x20, 0x1070));
        memory[0x30..0x32].copy_from_slice(&[0xeb, (0x38u8).wrapping_sub(0x32)]);
        memory[0x38..0x3a].copy_from_slice(&[0xeb, (0x20u8).wrapping_sub(0x3a)]);
        // A circle.
        memory[0x3c..0x3e].copy_from_slice(&[0xeb, 0xfe]);
        memory[0x90] = 0xe9;
        memory[0x91..0x95].copy_from_slice(&jump(0x90, 0x1068));
        memory[0x50] = 0xe9;
        memory[0x51..0x55].copy_from_slice(&jump(0x50, 0x60));
        let module = ModuleInfo {
            old_base_va: base,
            new_base_va: base + 0x1000,
            code_va: base + 0x1000,
            code_bytes: 0x1000,
            ..with_traps(&entries, 0)
        };
        let modules = table();
        // SAFETY: the map is never given back.
        unsafe {
            modules.add(&info(&[], 0), 0, 0x10_0000, 0x10_1000).unwrap();
            modules.add(&module, 0, base, base + 0x2000).unwrap();
        }
        for (at, new) in [(0x10, 0x1040), (0x80, 0x1060), (0x20, 0x1070), (0x30, 0x1070)] {
            assert_eq!(modules.entry(base + at), Some(base + new));
            assert_eq!(modules.name_of(base + at), Some(1 << 32 | at));
            assert_eq!(modules.resolve(1 << 32 | at), Some(base + new));
        }
        // Exported functions are known by their new addresses: of an instruction in the map, of a springboard.
        for (new, at) in [(0x1040, 0x10), (0x1060, 0x80), (0x1068, 0x90)] {
            assert_eq!(modules.name_of(base + new), Some(1 << 32 | at));
            assert_eq!(modules.entry(base + new), Some(base + new));
        }
        for new in [0x1041, 0x1067, 0x1069, 0x1fff] {
            assert_eq!((modules.name_of(base + new), modules.entry(base + new)), (None, None), "{new:#x}");
        }
        for at in [0x11, 0x21, 0x3c, 0x50, 0x60, 0x1fff, 0x2000, 0x1_0000, u64::from(u32::MAX)] {
            assert_eq!(modules.resolve(1 << 32 | at), None, "{at:#x}");
        }
        assert_eq!(
            (modules.resolve(0x20), modules.resolve(2 << 32 | 0x20), modules.resolve(u64::MAX)),
            (None, None, None)
        );
    }

    #[test]
    fn a_module_without_traps_finds_nothing() {
        let modules = table();
        assert_eq!(modules.find(0x1010), OldAddress::Elsewhere);
        // SAFETY: an empty map is not read.
        unsafe { modules.add(&info(&[], 0), 0, 0x1000, 0x2000) }.unwrap();
        assert_eq!(modules.find(0x1010), OldAddress::Elsewhere);
    }

    #[test]
    fn a_module_mapped_over_another_one_replaces_it() {
        let old = [TrapEntry { old: 0x10, new: 0x40 }];
        let new = [TrapEntry { old: 0x20, new: 0x60 }];
        let modules = table();
        // SAFETY: the maps are never given back.
        unsafe {
            modules.add(&info(&old, 0), 0, 0x1000, 0xa000).unwrap();
            modules.add(&info(&new, 0), 0, 0x1000, 0x9800).unwrap();
        }
        assert_eq!(modules.find(0x1010), OldAddress::Elsewhere);
        assert_eq!(modules.find(0x1020), OldAddress::Instruction(0x9060));
        assert!(!modules.in_new_code(0x9810));
    }

    #[test]
    fn a_module_in_a_hole_of_another_one_displaces_nothing() {
        let outer = [TrapEntry { old: 0x10, new: 0x40 }, TrapEntry { old: 0x7000, new: 0x80 }];
        let inner = [TrapEntry { old: 0x20, new: 0x60 }];
        let modules = table();
        let in_hole = ModuleInfo { code_va: 0x4800, old_base_va: 0x4000, ..info(&inner, 0) };
        // SAFETY: the maps are never given back.
        unsafe {
            modules.add(&info(&outer, 0), 0, 0x1000, 0xa000).unwrap();
            modules.add(&in_hole, 0, 0x4000, 0x6000).unwrap();
        }
        assert_eq!(modules.find(0x1010), OldAddress::Instruction(0x9040));
        assert_eq!(modules.find(0x8000), OldAddress::Instruction(0x9080));
        assert_eq!(modules.find(0x4020), OldAddress::Instruction(0x9060));
        assert_eq!(modules.find(0x4021), OldAddress::Elsewhere, "not in the middle of the outer one's code");
        assert!(modules.in_new_code(0x9010) && modules.in_new_code(0x4810));
    }

    #[test]
    fn the_table_says_when_it_is_full() {
        let modules = table();
        let code_at = |code_va| ModuleInfo { code_va, code_bytes: 0x1000, ..ModuleInfo::ZERO };
        for i in 0..MAX_MODULES as u64 {
            // SAFETY: an empty map is not read.
            unsafe { modules.add(&code_at(i << 12), 0, i << 12, (i + 1) << 12) }.unwrap();
        }
        let last = (MAX_MODULES as u64) << 12;
        // SAFETY: as above.
        let add = |start| unsafe { modules.add(&code_at(start), 0, start, start + 0x1000) };
        assert_eq!(add(last), Err(ModulesFull));
        assert_eq!(add(0x1000), Ok(()), "in place of the one that was there");
    }
}
