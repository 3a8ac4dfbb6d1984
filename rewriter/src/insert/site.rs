//! Where a sequence stands, which registers it may use, and the address that it forms.
//!
//! Input: one instruction and what is live before it ([`Site`]). Output: bytes that save and restore registers and flags, and that form addresses.
//! **Invariant**: what [`open`] saves, [`Saved`] restores on each way out; each move of rsp in the hot buffer is noted for the unwind tables.

use crate::base::addresses::Vaddr;
use crate::decode::insn::InsnId;
use crate::decode::regs::{RegSet, operand_regs};
use crate::facts::access::AddressForm;
use crate::insert::asm::{self, MemOperand, RAX, RSP};
use crate::insert::code::{Buffer, EmittedCode, FixupTarget, StackPlace};
use crate::plan::checks::Planned;
use blizzard_contract as contract;
use blizzard_contract::Counter;
use iced_x86::{Instruction, Register};

/// Where something is inserted.
pub struct Site<'x> {
    pub id: InsnId,
    pub insn: &'x Instruction,
    /// Its bytes.
    pub bytes: &'x [u8],
    /// Of guarded code: the instruction in the plain version.
    pub plain: Option<InsnId>,
    /// Live before the instruction.
    pub live: RegSet,
    /// Hot position where the instruction's new code begins.
    pub begin: u32,
    /// Checks and polls count themselves.
    pub count: bool,
    /// The jump table that the instruction reads.
    pub table: Option<u32>,
    /// What the check of its memory operand tests and acquires, where that is not its access alone.
    pub planned: Option<&'x Planned>,
    /// The program keeps nothing in the red zone.
    pub red_zone: bool,
    /// Of guarded code: size matters more than time, so the test is called where it can be.
    pub compact: bool,
    /// Checks ask first whether the address can be shared memory.
    pub screens: bool,
    /// The register that alone says whether an operand of two can be shared memory.
    pub anchor: Option<Register>,
}

impl Site<'_> {
    /// The instruction of the program, whichever version of it this is.
    pub(super) fn program(&self) -> InsnId {
        self.plain.unwrap_or(self.id)
    }

    /// A move of rsp that has happened at position `pos` of the hot buffer.
    pub(super) fn stack_place(&self, pos: usize, lower_by: i32) -> StackPlace {
        StackPlace { id: self.id, delta: pos as u32 - self.begin, lower_by: lower_by as u32 }
    }
}

pub(super) const RED_ZONE: i32 = 128;

pub(super) type Done = Result<(), &'static str>;

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
    pub(super) fn is_empty(&self) -> bool {
        self.spilled.is_empty() && self.flags.is_none()
    }

    /// Bytes by which rsp is lower than the program's.
    pub(super) fn rsp_moved(&self) -> i32 {
        let slots = if self.red_zone { 0 } else { self.spilled.len() as i32 };
        if slots == 0 { 0 } else { RED_ZONE + 8 * slots }
    }

    /// In a cold stub, which no unwind row describes.
    pub(super) fn undo_cold(&self, code: &mut EmittedCode) {
        self.undo(&mut code.cold.bytes, |_, _| {});
    }

    pub(super) fn undo_hot(&self, code: &mut EmittedCode, site: &Site) {
        let EmittedCode { hot, stack, .. } = code;
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
            asm::lea(out, RSP, MemOperand::base(RSP, RED_ZONE));
            moved(out.len(), 0);
        }
    }
}

/// Registers a sequence may use.
pub(super) struct ScratchRegisters {
    pub(super) saved: Saved,
    /// For the address.
    pub(super) s: u8,
    /// A second one, where the address cannot do without.
    pub(super) t: u8,
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
pub(super) fn open(code: &mut EmittedCode, site: &Site, avoid: RegSet, wanted: usize) -> ScratchRegisters {
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
    let mut spill = to_spill(site).filter(|r| !avoid.contains(RegSet(1 << r)) && !free.contains(RegSet(1 << r)));
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
        asm::lea(out, RSP, MemOperand::base(RSP, -RED_ZONE));
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
    ScratchRegisters { saved, s, t }
}

/// The registers but rax and rsp, in the order in which they are spilled. Where time matters, first those that functions keep over calls, which loops seldom change,
/// and each site begins with another one: who reloads what the site in front has just stored waits for it.
fn to_spill(site: &Site) -> impl Iterator<Item = u8> {
    const KEPT: [u8; 6] = [15, 14, 13, 12, 3, 5];
    const OTHERS: [u8; 8] = [11, 10, 9, 8, 7, 6, 2, 1];
    let first = site.program().ix() % KEPT.len();
    let in_time = KEPT.iter().cycle().skip(first).take(KEPT.len()).chain(&OTHERS);
    // Shorter encodings first.
    let in_size = OTHERS.iter().rev().chain(KEPT.iter().rev());
    let (in_time, in_size) = if site.compact { (None, Some(in_size)) } else { (Some(in_time), None) };
    in_time.into_iter().flatten().chain(in_size.into_iter().flatten()).copied()
}

/// Where the `k`th register is kept in the red zone.
pub(super) fn in_red_zone(k: usize) -> MemOperand {
    MemOperand::base(RSP, -8 * (k as i32 + 1))
}

/// Saves the status flags if [`open`] found them live.
pub(super) fn save_flags(code: &mut EmittedCode, saved: &Saved) {
    if let Some(rax) = saved.flags {
        code.sites.flag_saves += 1;
        if let Some(r) = rax {
            asm::mov(&mut code.hot.bytes, r, RAX);
        }
        asm::save_flags(&mut code.hot.bytes);
    }
}

/// The explicit memory operand, or what is tested in its place, with rsp lower by `moved` than the program's.
fn operand(site: &Site, moved: i32) -> Result<MemOperand, &'static str> {
    let insn = site.insn;
    let number = |r: Register| r.number() as u8;
    let base = (insn.memory_base() != Register::None).then(|| number(insn.memory_base()));
    let index =
        (insn.memory_index() != Register::None).then(|| (number(insn.memory_index()), insn.memory_index_scale() as u8));
    let disp = site.planned.map_or(insn.memory_displacement64() as i64, |p| p.lo.into());
    // pop [rsp + d] adds to rsp before it forms the address.
    let popped = if base == Some(RSP) && insn.mnemonic() == iced_x86::Mnemonic::Pop {
        insn.memory_size().size() as i64
    } else {
        0
    };
    let disp = disp + popped + if base == Some(RSP) { i64::from(moved) } else { 0 };
    // A displacement has 32 bits; only what was added can take it out of them.
    let disp = i32::try_from(disp)
        .map_err(|_| "displacement from rsp too near 2 GiB: the check lowers rsp and cannot make up for it")?;
    Ok(MemOperand { base, index, disp })
}

/// Emits the address of `place` into `dst`, with rsp lower by `moved`; changes no flag. Of a bit string, it is its first byte's.
pub(super) fn address(out: &mut Buffer, site: &Site, place: AddressForm, dst: u8, moved: i32) -> Done {
    let insn = site.insn;
    match place {
        AddressForm::Register(r) => asm::mov(&mut out.bytes, dst, r.number() as u8),
        AddressForm::Xlat => {
            asm::movzx_al(&mut out.bytes, dst);
            asm::lea(&mut out.bytes, dst, MemOperand { base: Some(3), index: Some((dst, 1)), disp: 0 });
        }
        AddressForm::Operand | AddressForm::BitString { .. } => {
            if let Some(table) = site.table {
                // The instruction will read the new table, so that is what the check must look at.
                let m = operand(site, moved)?;
                asm::lea(&mut out.bytes, dst, MemOperand { disp: i32::MAX, ..m });
                let at = out.bytes.len() - 4;
                out.fix(at, FixupTarget::TableDelta { table, disp: m.disp });
            } else if insn.is_ip_rel_memory_operand() {
                let at = asm::lea_rip(&mut out.bytes, dst);
                out.fix(at, FixupTarget::Old(Vaddr(insn.ip_rel_memory_address())));
            } else {
                match operand(site, moved)? {
                    MemOperand { base: Some(b), index: None, disp: 0 } => asm::mov(&mut out.bytes, dst, b),
                    m => asm::lea(&mut out.bytes, dst, m),
                }
            }
        }
    }
    Ok(())
}

/// `mov temp, offset`, sign-extended; changes no flag.
pub(super) fn bit_offset(out: &mut Vec<u8>, offset: Register, word: u8, temp: u8) {
    let from = offset.full_register().number() as u8;
    match word {
        8 => asm::mov(out, temp, from),
        4 => asm::movsxd(out, temp, from),
        _ => asm::movsx16(out, temp, from),
    }
}

/// From the address of a bit string in `dst` to that of the word with the bit `temp`; changes `temp` and the flags.
pub(super) fn bit_word(out: &mut Vec<u8>, word: u8, dst: u8, temp: u8) {
    asm::sar(out, temp, 3 + word.trailing_zeros() as u8);
    asm::lea(out, dst, MemOperand { base: Some(dst), index: Some((temp, word)), disp: 0 });
}

pub(super) fn place_regs(insn: &Instruction, place: AddressForm) -> RegSet {
    match place {
        AddressForm::Operand => operand_regs(insn),
        AddressForm::BitString { offset, .. } => operand_regs(insn) | RegSet::of(offset),
        AddressForm::Register(r) => RegSet::of(r),
        AddressForm::Xlat => RegSet(1 << 3 | 1),
    }
}

/// Counts an executed check or poll, where they are counted; changes the flags.
pub(super) fn count(out: &mut Vec<u8>, counted: bool, what: Counter) {
    if counted {
        asm::inc64(out, MemOperand::absolute(contract::COUNTERS + 8 * what as u64));
    }
}

/// What counts a check.
pub(super) fn check_counter(store: bool) -> Counter {
    if store { Counter::StoreChecks } else { Counter::LoadChecks }
}
