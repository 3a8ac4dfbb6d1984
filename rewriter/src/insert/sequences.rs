//! The only place that knows check bytes: sequences, cold stubs and polls, as DESIGN.md lists them.
//!
//! Input: one instruction, what is live before it, and the planned [`Action`]. Output: bytes in the hot and the cold
//! buffer. Invariants: outside a sequence no register, flag or byte of the red zone that is live is changed; a cold stub restores the
//! program's state, enters the gate, and goes on to the access.

use crate::base::ids::Vaddr;
use crate::decode::insn::InsnId;
use crate::decode::regs::{RegSet, operand_regs};
use crate::facts::access::{Place, Plain, XSAVE_BYTES};
use crate::insert::asm::{self, Mem, RAX, RSP};
use crate::insert::{screen, strip};
use crate::plan::checks::State;
use crate::plan::decide::{Action, is_big};
use crate::plan::loop_tests::Limit;
use crate::write::new_code::emit::{Buffer, Code, StackPlace, Target};
use blizzard_contract::{self as contract, Counter, VsibDesc, miss_desc};
use iced_x86::{Instruction, Register};

/// Where something is inserted.
pub struct Site<'x> {
    pub id: InsnId,
    pub insn: &'x Instruction,
    /// Live before the instruction.
    pub live: RegSet,
    /// Hot position where the instruction's new code begins.
    pub begin: u32,
    /// Sequences count themselves.
    pub count: bool,
    /// The jump table that the instruction reads.
    pub table: Option<u32>,
    /// What the check of its memory operand tests, where a pass has decided that.
    pub wide: Option<Wide>,
    /// The program keeps nothing in the red zone.
    pub red_zone: bool,
    /// Checks ask first whether the address can be shared memory.
    pub screens: bool,
    /// The register that alone says whether an operand of two can be shared memory.
    pub anchor: Option<Register>,
}

/// An ordinary check that may cover other accesses than its own.
#[derive(Clone, Copy, Debug)]
pub struct Wide {
    /// From the access's first byte to the first tested one.
    shift: i32,
    bytes: u16,
    load: bool,
    store: bool,
    /// First range of what a miss acquires, its own included; `None`: its own alone.
    pub(super) chain: Option<u32>,
    /// A miss takes this limit back.
    pub(super) limit: Option<Limit>,
}

impl Wide {
    /// As the passes decided for `insn`.
    pub fn of(state: State, limit: Option<Limit>, insn: &Instruction) -> Option<Wide> {
        let State::Own { lo, bytes, load, store, chain } = state else { return None };
        let shift = lo.wrapping_sub(insn.memory_displacement64() as i32);
        Some(Wide { shift, bytes: bytes.into(), load, store, chain, limit })
    }
}

impl Site<'_> {
    /// A move of rsp that has happened at position `pos` of the hot buffer.
    fn stack_place(&self, pos: usize, lower_by: i32) -> StackPlace {
        StackPlace { id: self.id, delta: pos as u32 - self.begin, lower_by: lower_by as u32 }
    }
}

/// How many sequences of each kind were emitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub checks: u64,
    /// Of these, the ones that ask first whether the address can be shared memory.
    pub screens: u64,
    pub polls: u64,
    /// Tests of a stack pointer that was taken from something else.
    pub stack_tests: u64,
    /// Loops that test tags once for several iterations.
    pub strips: u64,
    pub strings: u64,
    pub vsib: u64,
    /// Sequences that had to save the status flags.
    pub flag_saves: u64,
    /// Sequences that had to spill a register; of these, those that keep it in the red zone.
    pub spills: u64,
    pub red_zone: u64,
}

pub(super) const RED_ZONE: i32 = 128;

type Done = Result<(), &'static str>;

/// What a sequence saved and must restore.
#[derive(Clone, Debug, Default)]
pub(super) struct Saved {
    pub(super) spilled: Vec<u8>,
    /// They lie in the red zone: rsp is the program's.
    pub(super) red_zone: bool,
    /// Status flags are in ax; rax itself in this register, unless it was dead.
    pub(super) flags: Option<Option<u8>>,
}

impl Saved {
    fn is_empty(&self) -> bool {
        self.spilled.is_empty() && self.flags.is_none()
    }

    /// Bytes by which rsp is lower than the program's.
    pub(super) fn rsp_moved(&self) -> i32 {
        let slots = if self.red_zone { 0 } else { self.spilled.len() as i32 };
        if slots == 0 { 0 } else { RED_ZONE + 8 * slots }
    }

    /// In a cold stub, which no unwind row describes.
    pub(super) fn undo_cold(&self, code: &mut Code) {
        self.undo(&mut code.cold.bytes, |_, _| {});
    }

    pub(super) fn undo_hot(&self, code: &mut Code, site: &Site) {
        let Code { hot, stack, .. } = code;
        self.undo(&mut hot.bytes, |pos, lower_by| stack.push(site.stack_place(pos, lower_by)));
    }

    /// `moved` is told of each move of rsp: where it has happened, and by how much rsp is lower then.
    fn undo(&self, out: &mut Vec<u8>, mut moved: impl FnMut(usize, i32)) {
        let mut lower_by = self.rsp_moved();
        if let Some(rax) = self.flags {
            asm::restore_flags(out);
            if let Some(r) = rax {
                asm::mov(out, RAX, r);
            }
        }
        if self.red_zone {
            self.spilled.iter().enumerate().for_each(|(k, &r)| asm::load64(out, r, in_red_zone(k)));
            return;
        }
        for &r in self.spilled.iter().rev() {
            asm::pop(out, r);
            lower_by -= 8;
            moved(out.len(), lower_by);
        }
        if self.rsp_moved() != 0 {
            asm::lea(out, RSP, Mem::base(RSP, RED_ZONE));
            moved(out.len(), 0);
        }
    }
}

/// Registers a sequence may use.
pub(super) struct Scratch {
    pub(super) saved: Saved,
    /// For the address.
    s: u8,
    /// A second one, where the address cannot do without.
    t: u8,
}

/// Registers to choose from, in that order.
#[derive(Default)]
struct Pool {
    registers: [u8; 16],
    count: usize,
}

impl Pool {
    fn push(&mut self, register: u8) {
        self.registers[self.count] = register;
        self.count += 1;
    }
}

/// Opens a sequence: chooses `wanted` scratch registers, at most two, and spills if there are too few. `avoid`: registers of the operand.
/// The flags are saved later, by [`save_flags`], because the operand may use rax.
pub(super) fn open(code: &mut Code, site: &Site, avoid: RegSet, wanted: usize) -> Scratch {
    let out = &mut code.hot.bytes;
    let flags_live = site.live.meets(RegSet::FLAGS);
    let free = RegSet::GPRS.without(site.live).without(RegSet::RSP);
    let mut saved = Saved::default();
    // Registers that need no REX prefix in the test come first.
    let mut pool = Pool::default();
    // Flags go through rax: when it is free, it is not the address register.
    let rax_free = free.contains(RegSet::RAX);
    free.gprs().filter(|r| !flags_live || *r != RAX).for_each(|r| pool.push(r));
    let need = wanted + usize::from(flags_live && !rax_free);
    let mut spill = (0..16u8)
        .filter(|r| *r != RSP && *r != RAX && !avoid.contains(RegSet(1 << r)) && !free.contains(RegSet(1 << r)));
    while pool.count < need {
        let r = spill.next().expect("an operand names at most three of fourteen registers");
        saved.spilled.push(r);
        pool.push(r);
    }
    if !saved.spilled.is_empty() && site.red_zone {
        code.sites.spills += 1;
        code.sites.red_zone += 1;
        saved.red_zone = true;
        saved.spilled.iter().enumerate().for_each(|(k, &r)| asm::store64(out, in_red_zone(k), r));
    } else if !saved.spilled.is_empty() {
        code.sites.spills += 1;
        asm::lea(out, RSP, Mem::base(RSP, -RED_ZONE));
        code.stack.push(site.stack_place(out.len(), RED_ZONE));
        for (k, &r) in (1..).zip(&saved.spilled) {
            asm::push(out, r);
            code.stack.push(site.stack_place(out.len(), RED_ZONE + 8 * k));
        }
    }
    let [s, t] = std::array::from_fn(|k| if k < wanted { pool.registers[k] } else { RAX });
    if flags_live {
        saved.flags = Some((!rax_free).then(|| pool.registers[wanted]));
    }
    Scratch { saved, s, t }
}

/// Where the `k`th register is kept in the red zone.
pub(super) fn in_red_zone(k: usize) -> Mem {
    Mem::base(RSP, -8 * (k as i32 + 1))
}

/// Saves the status flags if [`open`] found them live.
pub(super) fn save_flags(code: &mut Code, saved: &Saved) {
    if let Some(rax) = saved.flags {
        code.sites.flag_saves += 1;
        if let Some(r) = rax {
            asm::mov(&mut code.hot.bytes, r, RAX);
        }
        asm::save_flags(&mut code.hot.bytes);
    }
}

/// The explicit memory operand, or what is tested in its place, with rsp lower by `moved` than the program's.
fn operand(site: &Site, moved: i32) -> Result<Mem, &'static str> {
    let insn = site.insn;
    let number = |r: Register| r.number() as u8;
    let base = (insn.memory_base() != Register::None).then(|| number(insn.memory_base()));
    let index =
        (insn.memory_index() != Register::None).then(|| (number(insn.memory_index()), insn.memory_index_scale() as u8));
    let disp = insn.memory_displacement64() as i64;
    // pop [rsp + d] adds to rsp before it forms the address.
    let popped = if base == Some(RSP) && insn.mnemonic() == iced_x86::Mnemonic::Pop {
        insn.memory_size().size() as i64
    } else {
        0
    };
    let shift = i64::from(site.wide.map_or(0, |w| w.shift));
    let disp = disp + shift + popped + if base == Some(RSP) { i64::from(moved) } else { 0 };
    // A displacement has 32 bits; only what was added can take it out of them.
    let disp = i32::try_from(disp)
        .map_err(|_| "displacement from rsp too near 2 GiB: the check lowers rsp and cannot make up for it")?;
    Ok(Mem { base, index, disp })
}

/// Emits the address of `place` into `dst`, with rsp lower by `moved`; changes no flag. Of a bit string, it is its first byte's.
pub(super) fn address(out: &mut Buffer, site: &Site, place: Place, dst: u8, moved: i32) -> Done {
    let insn = site.insn;
    match place {
        Place::Register(r) => asm::mov(&mut out.bytes, dst, r.number() as u8),
        Place::Xlat => {
            asm::movzx_al(&mut out.bytes, dst);
            asm::lea(&mut out.bytes, dst, Mem { base: Some(3), index: Some((dst, 1)), disp: 0 });
        }
        Place::Operand | Place::BitString { .. } => {
            if let Some(table) = site.table {
                // The instruction will read the new table, so that is what the check must look at.
                let m = operand(site, moved)?;
                asm::lea(&mut out.bytes, dst, Mem { disp: i32::MAX, ..m });
                let at = out.bytes.len() - 4;
                out.fix(at, Target::TableDelta { table, disp: m.disp });
            } else if insn.is_ip_rel_memory_operand() {
                let at = asm::lea_rip(&mut out.bytes, dst);
                out.fix(at, Target::Old(Vaddr(insn.ip_rel_memory_address())));
            } else {
                match operand(site, moved)? {
                    Mem { base: Some(b), index: None, disp: 0 } => asm::mov(&mut out.bytes, dst, b),
                    m => asm::lea(&mut out.bytes, dst, m),
                }
            }
        }
    }
    Ok(())
}

/// `mov temp, offset`, sign-extended; changes no flag.
fn bit_offset(out: &mut Vec<u8>, offset: Register, word: u8, temp: u8) {
    let from = offset.full_register().number() as u8;
    match word {
        8 => asm::mov(out, temp, from),
        4 => asm::movsxd(out, temp, from),
        _ => asm::movsx16(out, temp, from),
    }
}

/// From the address of a bit string in `dst` to that of the word with the bit `temp`; changes `temp` and the flags.
fn bit_word(out: &mut Vec<u8>, word: u8, dst: u8, temp: u8) {
    asm::sar(out, temp, 3 + word.trailing_zeros() as u8);
    asm::lea(out, dst, Mem { base: Some(dst), index: Some((temp, word)), disp: 0 });
}

pub(super) fn place_regs(insn: &Instruction, place: Place) -> RegSet {
    match place {
        Place::Operand => operand_regs(insn),
        Place::BitString { offset, .. } => operand_regs(insn) | RegSet::of(offset),
        Place::Register(r) => RegSet::of(r),
        Place::Xlat => RegSet(1 << 3 | 1),
    }
}

/// Emits what `action` asks for before the instruction.
pub fn insert(code: &mut Code, site: &Site, action: &Action) -> Done {
    match action {
        Action::Nothing | Action::Exempt(_) | Action::Covered => Ok(()),
        Action::Check(p) => match site.wide {
            Some(Wide { bytes, load, store, .. }) => access(code, site, &Plain { bytes, load, store, ..*p }, None),
            None => access(code, site, p, None),
        },
        Action::CheckTwo(a, b) => {
            let start = code.hot.pos();
            access(code, site, a, Some(start))?;
            // A miss of the second may give the first block away: it starts the group again. The second is a store to an
            // aligned line (SDM, MOVDIR64B: #GP otherwise), so the tag of its first byte decides.
            access(code, site, &Plain { bytes: 1, ..*b }, Some(start))
        }
        Action::String { desc, rsi, rdi } => string(code, site, *desc, *rsi, *rdi),
        Action::Vsib(d) => vsib(code, site, d),
    }
}

/// `restart`: where a miss leads; None: to the access, which the gate has made possible.
fn access(code: &mut Code, site: &Site, p: &Plain, restart: Option<u32>) -> Done {
    if is_big(p) {
        return big(code, site, p);
    }
    code.sites.checks += 1;
    if site.screens && restart.is_none() && screen::access(code, site, p)? {
        return Ok(());
    }
    let bits = bit_string(p);
    let Scratch { saved, s, t } = open(code, site, place_regs(site.insn, p.at), if bits.is_some() { 2 } else { 1 });
    if let Some((offset, word)) = bits {
        bit_offset(&mut code.hot.bytes, offset, word, t);
    }
    address(&mut code.hot, site, p.at, s, saved.rsp_moved())?;
    save_flags(code, &saved);
    let out = &mut code.hot.bytes;
    if let Some((_, word)) = bits {
        bit_word(out, word, s, t);
    }
    asm::shr(out, s, contract::BLOCK_SHIFT as u8);
    if site.count {
        asm::inc64(out, counter(if p.store { Counter::StoreChecks } else { Counter::LoadChecks }));
    }
    test_tag(out, s, p);
    let miss = asm::jcc32(out, asm::CC_NE);
    let chain = site.wide.and_then(|w| w.chain);
    // The short ways form the address in one register.
    let short = saved.is_empty() && bits.is_none();
    let tail = (short && restart.is_none() && chain.is_none()).then(|| shared_tail(code, s, p));
    let cold = code.cold.pos();
    code.hot.fix(miss, Target::Cold(cold));
    saved.undo_hot(code, site);
    let behind = code.hot.pos() - site.begin;
    if let Some(chain) = chain {
        debug_assert!(saved.is_empty(), "checks that spill end what others cover");
        let limit = site.wide.and_then(|w| w.limit);
        return chained_stub(code, site, p, s, (chain, limit), behind);
    }
    if let Some(tail) = tail {
        return short_stub(code, site, p, s, tail, behind);
    }
    if short && p.bytes > 1 {
        straddle_test(code, site, p, s, behind)?;
    }
    saved.undo_cold(code);
    miss_call(code, site, p)?;
    let back = asm::jmp32(&mut code.cold.bytes);
    // A check of two blocks would fail again where only the block behind the access is missing.
    let delta = restart.map_or(behind, |group| group - site.begin);
    code.cold.fix(back, Target::Insn { id: site.id, delta });
    Ok(())
}

/// The cold stub where a register and the flags are free: it puts the address into the register, and a tail that all such stubs
/// of a module share does the rest.
pub(super) fn short_stub(code: &mut Code, site: &Site, p: &Plain, s: u8, tail: u32, access: u32) -> Done {
    asm::add_rsp(&mut code.cold.bytes, -RED_ZONE as i8);
    address(&mut code.cold, site, p.at, s, RED_ZONE)?;
    let call = asm::call32(&mut code.cold.bytes);
    code.cold.fix(call, Target::Cold(tail));
    let back = asm::jmp32(&mut code.cold.bytes);
    code.cold.fix(back, Target::Insn { id: site.id, delta: access });
    Ok(())
}

/// The cold stub of a check in front of which others still count: what they cover is acquired together with its own range.
pub(super) fn chained_stub(
    code: &mut Code,
    site: &Site,
    p: &Plain,
    s: u8,
    (chain, limit): (u32, Option<Limit>),
    access: u32,
) -> Done {
    if p.bytes > 1 {
        straddle_test(code, site, p, s, access)?;
    }
    group_call(code, Some(s), chain);
    if let Some(limit) = limit {
        strip::take_back(&mut code.cold.bytes, limit);
    }
    let cold = &mut code.cold;
    let back = asm::jmp32(&mut cold.bytes);
    cold.fix(back, Target::Insn { id: site.id, delta: access });
    Ok(())
}

/// In a cold stub: acquires a chain of ranges; `s` is changed. Without one, no register is.
pub(super) fn group_call(code: &mut Code, s: Option<u8>, chain: u32) {
    let cold = &mut code.cold;
    asm::lea(&mut cold.bytes, RSP, Mem::base(RSP, -RED_ZONE));
    match s {
        Some(s) => {
            let at = asm::lea_rip(&mut cold.bytes, s);
            cold.fix(at, Target::Range(chain));
            asm::push(&mut cold.bytes, s);
        }
        None => {
            asm::push(&mut cold.bytes, RAX);
            let at = asm::lea_rip(&mut cold.bytes, RAX);
            cold.fix(at, Target::Range(chain));
            asm::xchg_rsp_rax(&mut cold.bytes);
        }
    }
    asm::call_abs(&mut cold.bytes, contract::GATE_GROUP);
    asm::lea(&mut cold.bytes, RSP, Mem::base(RSP, RED_ZONE));
}

/// The shared tail for accesses like `p` whose address is in `s`, emitted where it is first needed. It is called with rsp below the red
/// zone, may change `s` and the flags, and gives the red zone back. Then the access is possible.
pub(super) fn shared_tail(code: &mut Code, s: u8, p: &Plain) -> u32 {
    let desc = miss_descriptor(p);
    let known = &code.tails[usize::from(s)];
    if let Some(t) = known.iter().find(|t| t.0 == desc) {
        return t.1;
    }
    let at = code.cold.pos();
    code.tails[usize::from(s)].push((desc, at));
    let out = &mut code.cold.bytes;
    asm::push(out, s);
    if p.bytes > 1 {
        asm::and32(out, s, 63);
        asm::cmp32(out, s, (contract::BLOCK_BYTES - u64::from(p.bytes)) as i8);
        let straddles = asm::jcc8(out, asm::CC_A);
        asm::pop(out, s);
        asm::push(out, s);
        asm::shr(out, s, contract::BLOCK_SHIFT as u8);
        asm::test8(out, Mem::base(s, contract::TAG_TABLE_BASE as i32), tag_bit(p));
        let denied = asm::jcc8(out, asm::CC_NE);
        asm::pop(out, s);
        asm::ret_pop(out, RED_ZONE as u16);
        asm::land8(out, straddles);
        asm::land8(out, denied);
    }
    asm::push_imm(out, desc);
    asm::call_abs(out, contract::GATE_MISS);
    asm::ret_pop(out, RED_ZONE as u16);
    at
}

pub(super) fn counter(c: Counter) -> Mem {
    Mem::absolute(contract::COUNTERS + 8 * c as u64)
}

fn tag_bit(p: &Plain) -> u8 {
    if p.store { contract::TAG_NO_STORE } else { contract::TAG_NO_LOAD }
}

/// Tests the tag of one block, or of the two that an access of several bytes may touch.
pub(super) fn test_tag(out: &mut Vec<u8>, s: u8, p: &Plain) {
    let table = Mem::base(s, contract::TAG_TABLE_BASE as i32);
    let bit = tag_bit(p);
    if p.bytes == 1 {
        asm::test8(out, table, bit);
    } else {
        asm::test32(out, table, u32::from(bit) * 0x0101);
    }
}

/// The second block's tag may be why the test failed though the access does not reach it.
fn straddle_test(code: &mut Code, site: &Site, p: &Plain, s: u8, access: u32) -> Done {
    let cold = &mut code.cold;
    address(cold, site, p.at, s, 0)?;
    asm::and32(&mut cold.bytes, s, 63);
    asm::cmp32(&mut cold.bytes, s, (contract::BLOCK_BYTES - u64::from(p.bytes)) as i8);
    let real = asm::jcc8(&mut cold.bytes, asm::CC_A);
    address(cold, site, p.at, s, 0)?;
    asm::shr(&mut cold.bytes, s, contract::BLOCK_SHIFT as u8);
    asm::test8(&mut cold.bytes, Mem::base(s, contract::TAG_TABLE_BASE as i32), tag_bit(p));
    let back = asm::jcc32(&mut cold.bytes, asm::CC_E);
    cold.fix(back, Target::Insn { id: site.id, delta: access });
    asm::land8(&mut cold.bytes, real);
    Ok(())
}

fn miss_descriptor(p: &Plain) -> u32 {
    let size = if p.bytes == XSAVE_BYTES { miss_desc::SIZE_XSAVE } else { u32::from(p.bytes) };
    size | if p.load { miss_desc::LOAD } else { 0 }
        | if p.store { miss_desc::STORE } else { 0 }
        | if p.masked { miss_desc::MASKED } else { 0 }
}

/// In a cold stub, with the program's state restored: calls the miss gate; rsp is the program's again behind it.
pub(super) fn miss_call(code: &mut Code, site: &Site, p: &Plain) -> Done {
    let cold = &mut code.cold;
    asm::lea(&mut cold.bytes, RSP, Mem::base(RSP, -RED_ZONE));
    asm::push(&mut cold.bytes, RAX);
    match bit_string(p) {
        Some(bits) => bit_string_address(cold, site, p.at, bits)?,
        None => address(cold, site, p.at, RAX, RED_ZONE + 8)?,
    }
    asm::xchg_rsp_rax(&mut cold.bytes);
    asm::push_imm(&mut cold.bytes, miss_descriptor(p));
    asm::call_abs(&mut cold.bytes, contract::GATE_MISS);
    asm::lea(&mut cold.bytes, RSP, Mem::base(RSP, RED_ZONE));
    Ok(())
}

/// In [`miss_call`], with rax pushed: the address of the word that holds the bit into rax; flags that are live are kept.
fn bit_string_address(cold: &mut Buffer, site: &Site, place: Place, (offset, word): (Register, u8)) -> Done {
    let avoid = place_regs(site.insn, place) | RegSet::RAX | RegSet::RSP;
    let mut spare = RegSet::GPRS.without(avoid).gprs();
    let [s, t] = std::array::from_fn(|_| spare.next().expect("sixteen registers"));
    asm::push(&mut cold.bytes, s);
    asm::push(&mut cold.bytes, t);
    bit_offset(&mut cold.bytes, offset, word, t);
    address(cold, site, place, s, RED_ZONE + 24)?;
    let out = &mut cold.bytes;
    let flags_live = site.live.meets(RegSet::FLAGS);
    if flags_live {
        asm::save_flags(out);
    }
    bit_word(out, word, s, t);
    if flags_live {
        asm::restore_flags(out);
    }
    asm::mov(out, RAX, s);
    asm::pop(out, t);
    asm::pop(out, s);
    Ok(())
}

/// The register with the bit's number, and the bytes of a word.
fn bit_string(p: &Plain) -> Option<(Register, u8)> {
    match p.at {
        Place::BitString { offset, word } => Some((offset, word)),
        _ => None,
    }
}

/// `mov/lea s, address; shr s, 40; cmp s32, 0x20; je cold`
fn in_segment(code: &mut Code, s: u8) -> usize {
    let out = &mut code.hot.bytes;
    asm::shr(out, s, contract::SEGMENT_SHIFT as u8);
    asm::cmp32(out, s, (contract::SEGMENT_BASE >> contract::SEGMENT_SHIFT) as i8);
    asm::jcc32(out, asm::CC_E)
}

/// More than 64 bytes: the gate makes all blocks accessible at once if the area is in the segment.
fn big(code: &mut Code, site: &Site, p: &Plain) -> Done {
    code.sites.checks += 1;
    let Scratch { saved, s, .. } = open(code, site, place_regs(site.insn, p.at), 1);
    address(&mut code.hot, site, p.at, s, saved.rsp_moved())?;
    save_flags(code, &saved);
    count(code, site, p.store);
    let found = in_segment(code, s);
    let cold = code.cold.pos();
    code.hot.fix(found, Target::Cold(cold));
    saved.undo_hot(code, site);
    let access = code.hot.pos() - site.begin;
    saved.undo_cold(code);
    miss_call(code, site, p)?;
    let back = asm::jmp32(&mut code.cold.bytes);
    code.cold.fix(back, Target::Insn { id: site.id, delta: access });
    Ok(())
}

pub(super) fn count(code: &mut Code, site: &Site, store: bool) {
    if site.count {
        asm::inc64(&mut code.hot.bytes, counter(if store { Counter::StoreChecks } else { Counter::LoadChecks }));
    }
}

fn string(code: &mut Code, site: &Site, desc: u32, rsi: bool, rdi: bool) -> Done {
    code.sites.strings += 1;
    const RSI: u8 = 6;
    const RDI: u8 = 7;
    // The gate performs the instruction, so its registers must hold the program's values in the stub, even those it only writes.
    let own = RegSet(1 << RSI | 1 << RDI | 1 << 1 | 1);
    let guarded = Site { live: site.live | own, ..*site };
    let Scratch { saved, s, .. } = open(code, &guarded, own, 1);
    // rdi and rsi are not rax, so the flags may be saved first, once.
    save_flags(code, &saved);
    let mut found = Vec::new();
    for (reg, wanted) in [(RDI, rdi), (RSI, rsi)] {
        if wanted {
            asm::mov(&mut code.hot.bytes, s, reg);
            count(code, site, reg == RDI && !rsi);
            found.push(in_segment(code, s));
        }
    }
    let cold = code.cold.pos();
    for at in found {
        code.hot.fix(at, Target::Cold(cold));
    }
    saved.undo_hot(code, site);
    saved.undo_cold(code);
    let cold = &mut code.cold;
    asm::lea(&mut cold.bytes, RSP, Mem::base(RSP, -RED_ZONE));
    asm::push_imm(&mut cold.bytes, desc);
    asm::call_abs(&mut cold.bytes, contract::GATE_STRING);
    let tail = cold.pos() as usize;
    asm::lea(&mut cold.bytes, RSP, Mem::base(RSP, RED_ZONE));
    let back = asm::jmp32(&mut cold.bytes);
    debug_assert_eq!(cold.bytes[tail..back], contract::STRING_TAIL);
    cold.fix(back, Target::Insn { id: site.id, delta: 0 });
    code.behind.push(code.cold.fixups.len() - 1);
    Ok(())
}

fn vsib(code: &mut Code, site: &Site, d: &VsibDesc) -> Done {
    code.sites.vsib += 1;
    let Scratch { saved, .. } = open(code, site, operand_regs(site.insn), 0);
    save_flags(code, &saved);
    count(code, site, d.access == 2);
    asm::cmp_mem32(&mut code.hot.bytes, Mem::absolute(contract::CTX_NODES), 1);
    let found = asm::jcc32(&mut code.hot.bytes, asm::CC_NE);
    let cold = code.cold.pos();
    code.hot.fix(found, Target::Cold(cold));
    saved.undo_hot(code, site);
    let access = code.hot.pos() - site.begin;
    saved.undo_cold(code);
    let cold = &mut code.cold;
    asm::lea(&mut cold.bytes, RSP, Mem::base(RSP, -RED_ZONE));
    asm::push(&mut cold.bytes, RAX);
    let at = asm::lea_rip(&mut cold.bytes, RAX);
    cold.fix(at, Target::Vsib(code.vsib.len() as u32));
    asm::xchg_rsp_rax(&mut cold.bytes);
    asm::call_abs(&mut cold.bytes, contract::GATE_VSIB);
    asm::lea(&mut cold.bytes, RSP, Mem::base(RSP, RED_ZONE));
    let back = asm::jmp32(&mut cold.bytes);
    cold.fix(back, Target::Insn { id: site.id, delta: access });
    code.vsib.push(VsibDesc { rsp_moved: RED_ZONE as u8, ..*d });
    Ok(())
}

/// Emits a poll before the instruction.
pub fn poll(code: &mut Code, site: &Site) {
    code.sites.polls += 1;
    let Scratch { saved, .. } = open(code, site, RegSet::NONE, 0);
    save_flags(code, &saved);
    if site.count {
        asm::inc64(&mut code.hot.bytes, counter(Counter::Polls));
    }
    asm::cmp_mem32(&mut code.hot.bytes, Mem::absolute(contract::POLL_WORD), 0);
    let rung = asm::jcc32(&mut code.hot.bytes, asm::CC_NE);
    let tail = (saved.is_empty()).then(|| poll_tail(code));
    let cold = code.cold.pos();
    code.hot.fix(rung, Target::Cold(cold));
    saved.undo_hot(code, site);
    let behind = code.hot.pos() - site.begin;
    saved.undo_cold(code);
    let cold = &mut code.cold;
    match tail {
        Some(tail) => {
            asm::add_rsp(&mut cold.bytes, -RED_ZONE as i8);
            let call = asm::call32(&mut cold.bytes);
            cold.fix(call, Target::Cold(tail));
        }
        None => {
            asm::lea(&mut cold.bytes, RSP, Mem::base(RSP, -RED_ZONE));
            asm::call_abs(&mut cold.bytes, contract::GATE_POLL);
            asm::lea(&mut cold.bytes, RSP, Mem::base(RSP, RED_ZONE));
        }
    }
    let back = asm::jmp32(&mut cold.bytes);
    cold.fix(back, Target::Insn { id: site.id, delta: behind });
}

/// Counts the block that begins with the instruction; what is live, flags too, stays as it is.
pub fn count_block(code: &mut Code, site: &Site, counter: u32) {
    let flags_live = site.live.meets(RegSet::FLAGS);
    let Code { hot, stack, .. } = code;
    let mut moved = |out: &[u8], lower_by| stack.push(site.stack_place(out.len(), lower_by));
    if flags_live {
        asm::lea(&mut hot.bytes, RSP, Mem::base(RSP, -RED_ZONE));
        moved(&hot.bytes, RED_ZONE);
        asm::push(&mut hot.bytes, RAX);
        moved(&hot.bytes, RED_ZONE + 8);
        asm::save_flags(&mut hot.bytes);
    }
    // Threads and forked children count in the same place.
    let at = asm::lock_inc64_rip(&mut hot.bytes);
    hot.fix(at, Target::Counter(counter));
    if flags_live {
        asm::restore_flags(&mut hot.bytes);
        asm::pop(&mut hot.bytes, RAX);
        moved(&hot.bytes, RED_ZONE);
        asm::lea(&mut hot.bytes, RSP, Mem::base(RSP, RED_ZONE));
        moved(&hot.bytes, 0);
    }
}

/// The shared tail of polls, as [`shared_tail`].
fn poll_tail(code: &mut Code) -> u32 {
    let cold = &mut code.cold;
    *code.poll_tail.get_or_insert_with(|| {
        let at = cold.pos();
        asm::call_abs(&mut cold.bytes, contract::GATE_POLL);
        asm::ret_pop(&mut cold.bytes, RED_ZONE as u16);
        at
    })
}

/// From the field of [`syscall`] that must lead behind the sequence to the sequence's end: field, jump and `syscall`.
pub const SYSCALL_TO_FIELD: usize = contract::SYSCALL_SEQUENCE_BYTES as usize - 3;

/// `lea rcx, [behind]; jmp [GATE_SYSCALL]; syscall`: rcx and r11 are what `syscall` clobbers anyway, so nothing is saved. The gate
/// may send the program to the instruction itself.
pub fn syscall(out: &mut Vec<u8>) {
    const RCX: u8 = 1;
    let begin = out.len();
    asm::lea_rip(out, RCX);
    asm::jmp_abs(out, contract::GATE_SYSCALL);
    out.extend([0x0f, 0x05]);
    debug_assert_eq!(out.len() - begin, contract::SYSCALL_SEQUENCE_BYTES as usize);
}

/// Makes the stubs that skip the instruction lead to where the buffer is now.
pub fn land_behind(code: &mut Code, site: &Site) {
    let delta = code.hot.pos() - site.begin;
    for i in code.behind.drain(..) {
        code.cold.retarget(i, Target::Insn { id: site.id, delta });
    }
}
