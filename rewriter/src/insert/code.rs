//! The new code while it is made, before addresses are known: bytes, and fields that are filled in later.
//!
//! Two buffers, hot (the relocated instructions with their checks) and cold (stubs). Positions in the hot buffer are
//! provisional: direct branches stand in it in their short form and may grow, and function starts may be padded;
//! [`crate::write::new_code::layout`] decides. Everything that depends on an address is a [`Fixup`].
//!
//! Input: what the sequences and [`crate::write::new_code::emit`] append. Output: [`EmittedCode`]. **Invariant**: fixups and items stand by rising position.

use crate::base::addresses::Vaddr;
use crate::base::collections::compact_offsets::CompactOffsets;
use crate::base::error::Refusal;
use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::insert::asm;
use crate::insert::block_recorder::Recorder;
use crate::plan::checks::Fuel;
use crate::plan::decision::Decision;
use blizzard_contract::VsibDesc;
use gimli::{EndianSlice, LittleEndian, leb128};

/// How many sequences of each kind were emitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct SequenceCounts {
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

/// What a fixup's 32-bit field will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixupTarget {
    /// Relative to an address of the input: data, or code that was not decoded.
    Old(Vaddr),
    /// Relative to the place `delta` bytes behind the beginning of an instruction's new code.
    Insn { id: InsnId, delta: u32 },
    /// Relative to a place in the cold buffer.
    Cold(u32),
    /// Relative to a [`VsibDesc`] of [`EmittedCode::vsib`].
    Vsib(u32),
    /// Relative to the counter of a block.
    Counter(u32),
    /// Relative to a range of [`crate::plan::checks::Checks::ranges`].
    Range(u32),
    /// Not relative: `disp` plus the distance from a jump table's old to its new place.
    TableDelta { table: u32, disp: i32 },
}

/// A 32-bit field to fill in. There are three for each check, so they are small: what a target has of numbers stands in the field itself
/// until then.
#[derive(Clone, Copy, Debug)]
pub struct Fixup {
    pub pos: u32,
    /// Of [`FixupTarget::Insn`].
    delta: u16,
    /// Bytes of the instruction that follow the field.
    pub tail: u8,
    kind: FixupKind,
}

/// Which [`FixupTarget`], and what the field holds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FixupKind {
    /// The address modulo 2^32: displacements are computed modulo 2^32.
    Old,
    Insn,
    Cold,
    Vsib,
    Counter,
    Range,
    /// Index into [`Buffer::tables`].
    TableDelta,
}

/// What may change size in the hot buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// jmp (cc = None) or jcc, two bytes in the buffer. `delta`: as in [`FixupTarget::Insn`].
    Branch { cc: Option<u8>, to: InsnId, delta: u32 },
    /// Padding; the next instruction begins behind it.
    Align {
        /// The instruction in front may go on into the padding.
        reached: bool,
        place: FunctionAlignment,
    },
}

/// Where a function may begin: at a remainder modulo a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionAlignment {
    modulus: u8,
    remainder: u8,
}

impl FunctionAlignment {
    /// Bytes that a processor fetches, decodes and keeps together. (A loop that lay in one of them and lies in two can take a quarter longer.)
    const LINE: u64 = 64;

    /// For a function that has a loop: so that what did not change size keeps its place in its line.
    pub(crate) fn like(old: Vaddr) -> FunctionAlignment {
        FunctionAlignment { modulus: FunctionAlignment::LINE as u8, remainder: (old.0 % FunctionAlignment::LINE) as u8 }
    }

    /// Whether it is [`FunctionAlignment::like`] an old place.
    pub(crate) fn is_line(self) -> bool {
        u64::from(self.modulus) == FunctionAlignment::LINE
    }

    /// For something of so many bytes in front of a function that goes there.
    pub(crate) fn behind(self, bytes: u8) -> FunctionAlignment {
        FunctionAlignment { remainder: (self.remainder + self.modulus - bytes) % self.modulus, ..self }
    }

    pub(crate) const ALIGNED: FunctionAlignment = FunctionAlignment { modulus: 16, remainder: 0 };
    pub(crate) const ANYWHERE: FunctionAlignment = FunctionAlignment { modulus: 1, remainder: 0 };

    /// Bytes of padding at offset `at` of the new code, which begins at a page.
    #[inline]
    pub fn gap(self, at: u32) -> u32 {
        u32::from(self.remainder).wrapping_sub(at) % u32::from(self.modulus)
    }
}

/// An item of variable size at a position of the hot buffer. Every fourth instruction has one, so it is small: a branch's two bytes in the
/// buffer hold its condition and its delta.
#[derive(Clone, Copy, Debug)]
pub struct HotItem {
    pub pos: u32,
    /// Target, which is less than 2^30 as all numbers of instructions are; or [`HotItem::ALIGN`] with the fields of [`ItemKind::Align`].
    packed: u32,
}

impl HotItem {
    pub(crate) const NO_CC: u8 = 0xff;
    const ALIGN: u32 = 1 << 31;
    const REACHED: u32 = 1 << 16;

    pub(crate) fn new(pos: u32, kind: ItemKind) -> HotItem {
        let packed = match kind {
            ItemKind::Branch { to, delta, .. } => {
                debug_assert!(to.0 < HotItem::ALIGN && delta < 256);
                to.0
            }
            ItemKind::Align { reached, place: FunctionAlignment { modulus, remainder } } => {
                let reached = if reached { HotItem::REACHED } else { 0 };
                HotItem::ALIGN | reached | u32::from(modulus) << 8 | u32::from(remainder)
            }
        };
        HotItem { pos, packed }
    }

    /// Whether it is padding.
    #[inline]
    pub fn is_align(&self) -> bool {
        self.packed & HotItem::ALIGN != 0
    }

    /// What it is; `hot`: the buffer it stands in.
    #[inline]
    pub fn kind(&self, hot: &[u8]) -> ItemKind {
        if self.is_align() {
            let place = FunctionAlignment { modulus: (self.packed >> 8) as u8, remainder: self.packed as u8 };
            return ItemKind::Align { reached: self.packed & HotItem::REACHED != 0, place };
        }
        let (cc, delta) = (hot[self.pos as usize], hot[self.pos as usize + 1]);
        let cc = (cc != HotItem::NO_CC).then_some(cc);
        ItemKind::Branch { cc, to: InsnId(self.packed), delta: u32::from(delta) }
    }
}

/// A place in an instruction's new code from which on rsp is lower than the program's.
#[derive(Clone, Copy, Debug)]
pub struct StackPlace {
    pub id: InsnId,
    /// Bytes behind the beginning of the instruction's new code; nothing that may grow stands between.
    pub delta: u32,
    /// In bytes; 0: the program's again.
    pub lower_by: u32,
}

/// A call in a cold stub, which may be on the stack while a debugger looks.
#[derive(Clone, Copy, Debug)]
pub struct StubCall {
    /// Where the stub goes on: in the new code of this instruction.
    pub id: InsnId,
    /// Where the call ends in the cold buffer.
    pub end: u32,
    /// Bytes by which rsp is lower than the program's, with the arguments that the callee takes away.
    pub lower_by: u32,
    /// The same when it has.
    pub behind: u32,
}

/// A call in what several stubs share and call.
#[derive(Clone, Copy, Debug)]
pub struct TailCall {
    /// Where it ends in the cold buffer.
    pub end: u32,
    /// Bytes between rsp, as in [`StubCall`], and the address to return to.
    pub below: u32,
}

/// Bytes with fields to fill in.
#[derive(Debug, Default)]
pub struct Buffer {
    pub bytes: Vec<u8>,
    /// By rising position.
    pub fixups: Vec<Fixup>,
    /// Table and displacement of each [`FixupTarget::TableDelta`].
    tables: Vec<(u32, i32)>,
}

impl Buffer {
    /// The next position.
    #[inline]
    pub fn pos(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Notes that the four bytes at `pos`, the end of their instruction, refer to `target`.
    #[inline]
    pub fn fix(&mut self, pos: usize, target: FixupTarget) {
        self.fix_before(pos, 0, target);
    }

    /// As [`Buffer::fix`], where `tail` bytes of the instruction follow.
    #[inline]
    pub fn fix_before(&mut self, pos: usize, tail: u8, target: FixupTarget) {
        let mut delta = 0;
        let (kind, number) = match target {
            FixupTarget::Old(va) => (FixupKind::Old, va.0 as u32),
            FixupTarget::Insn { id, delta: behind } => {
                delta = u16::try_from(behind).expect("what is emitted for one instruction is short");
                (FixupKind::Insn, id.0)
            }
            FixupTarget::Cold(at) => (FixupKind::Cold, at),
            FixupTarget::Vsib(k) => (FixupKind::Vsib, k),
            FixupTarget::Counter(k) => (FixupKind::Counter, k),
            FixupTarget::Range(k) => (FixupKind::Range, k),
            FixupTarget::TableDelta { table, disp } => {
                self.tables.push((table, disp));
                (FixupKind::TableDelta, self.tables.len() as u32 - 1)
            }
        };
        self.bytes[pos..pos + 4].copy_from_slice(&number.to_le_bytes());
        self.fixups.push(Fixup { pos: pos as u32, delta, tail, kind });
    }

    /// Gives the fixup with this index another target.
    pub fn retarget(&mut self, index: usize, target: FixupTarget) {
        let Fixup { pos, tail, .. } = self.fixups[index];
        self.fix_before(pos as usize, tail, target);
        self.fixups.swap_remove(index);
    }

    /// Where a field leads that has not been filled in.
    #[inline]
    pub fn target(&self, f: &Fixup) -> FixupTarget {
        let at = f.pos as usize;
        let number = u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"));
        match f.kind {
            FixupKind::Old => FixupTarget::Old(Vaddr(u64::from(number))),
            FixupKind::Insn => FixupTarget::Insn { id: InsnId(number), delta: u32::from(f.delta) },
            FixupKind::Cold => FixupTarget::Cold(number),
            FixupKind::Vsib => FixupTarget::Vsib(number),
            FixupKind::Counter => FixupTarget::Counter(number),
            FixupKind::Range => FixupTarget::Range(number),
            FixupKind::TableDelta => {
                let (table, disp) = self.tables[number as usize];
                FixupTarget::TableDelta { table, disp }
            }
        }
    }
}

/// The result.
#[derive(Debug, Default)]
pub struct EmittedCode {
    pub hot: Buffer,
    pub cold: Buffer,
    /// Where the cold code of each function begins; a function's is in one piece.
    pub cold_starts: Vec<(InsnId, u32)>,
    pub items: Vec<HotItem>,
    /// Where in the cold code that of each instruction begins which has some; it ends where the next begins. Ascending.
    pub cold_parts: Vec<(InsnId, u32)>,
    /// What others of it call: from where to where in the cold code. Ascending.
    pub shared: Vec<(u32, u32)>,
    /// Hot position of each instruction, checks included; one more for the end.
    pub begin: CompactOffsets,
    pub vsib: Vec<VsibDesc>,
    /// Moves of rsp by the sequences, ascending, for the unwind tables.
    pub stack: Vec<StackPlace>,
    /// Inserted checks and polls, for reports.
    pub sites: SequenceCounts,
    pub refusals: Vec<Refusal>,
    /// Fixups of cold stubs that lead behind the instruction being emitted.
    pub behind: Vec<usize>,
    /// Tails that cold stubs share: by address register, descriptor and cold position.
    pub tails: [Vec<(u32, u32)>; 16],
    /// Tests that full code calls: by address register, descriptor, by how much rsp is lower, and cold position.
    pub tests: [Vec<(u32, i32, u32)>; 16],
    pub poll_tail: Option<u32>,
    /// For debuggers, each by rising position.
    pub stub_calls: Vec<StubCall>,
    pub tail_calls: Vec<TailCall>,
    /// Instructions of copies: from where to where in the cold buffer, and of which instruction. Ascending.
    pub moved: Vec<(u32, u32, InsnId)>,
    /// Where the guarded access of each check that claims name stands: bytes behind the beginning of its instruction's new code. Sorted.
    pub guarded: Vec<(InsnId, u32)>,
    /// Of guarded code: the accesses that its full version tests.
    pub accesses: TestedAccesses,
    /// The accesses with checks of their own, and where those begin.
    pub restarts: EmittedRestarts,
    /// What the blocks contain, where they are counted.
    pub recorder: Recorder,
    /// What the passes have left of it; each screen takes some.
    pub fuel: Fuel,
}

impl EmittedCode {
    /// How many instructions have been put into the hot buffer from `from` on.
    pub(crate) fn inserted(&self, from: u32) -> u32 {
        let bytes = &self.hot.bytes[from as usize..];
        iced_x86::Decoder::new(64, bytes, iced_x86::DecoderOptions::NONE).iter().count() as u32
    }

    /// In a stub that goes on in the new code of `id`: calls a gate, with rsp lower than the program's by `lower_by` and so many bytes of arguments, which the gate
    /// takes away.
    pub(super) fn stub_gate(&mut self, gate: u64, id: InsnId, (lower_by, arguments): (i32, i32)) {
        asm::call_abs(&mut self.cold.bytes, gate);
        let [behind, lower_by] = [lower_by, lower_by + arguments].map(|bytes| bytes as u32);
        self.stub_calls.push(StubCall { id, end: self.cold.pos(), lower_by, behind });
    }

    /// The same of what several stubs share and call: a tail.
    pub(super) fn stub_tail(&mut self, tail: u32, id: InsnId, lower_by: i32) {
        let call = asm::call32(&mut self.cold.bytes);
        self.cold.fix(call, FixupTarget::Cold(tail));
        // It gives the red zone back.
        self.stub_calls.push(StubCall { id, end: self.cold.pos(), lower_by: lower_by as u32, behind: 0 });
    }

    /// In a tail: calls a gate, with rsp lower than the address to return to by `below`.
    pub(super) fn tail_gate(&mut self, gate: u64, below: i32) {
        asm::call_abs(&mut self.cold.bytes, gate);
        self.tail_calls.push(TailCall { end: self.cold.pos(), below: below as u32 });
    }

    /// Appends a part of the hot buffer in which nothing may grow to the cold one; its fields lead where they do there.
    pub fn copy_hot(&mut self, part: std::ops::Range<u32>) {
        let to = self.cold.pos();
        self.cold.bytes.extend_from_slice(&self.hot.bytes[part.start as usize..part.end as usize]);
        let inside = self.hot.fixups.iter().rev().take_while(|f| f.pos >= part.start);
        let fields: Vec<Fixup> = inside.filter(|f| f.pos < part.end).copied().collect();
        for f in fields.iter().rev() {
            let target = self.hot.target(f);
            self.cold.fix_before((to + f.pos - part.start) as usize, f.tail, target);
        }
    }
}

/// The accesses that full code tests, and where they stand in plain code.
#[derive(Debug, Default)]
pub struct TestedAccesses {
    /// In the order of the instructions.
    tested: Vec<InsnId>,
    /// Those of plain code in front of which something is inserted: how many bytes. Sorted.
    behind: Vec<(InsnId, u32)>,
    /// Functions of plain code that may be entered in their full versions.
    pub redirected: Vec<InsnId>,
}

impl TestedAccesses {
    /// Notes what was emitted for an instruction that has two versions; `bytes`: what stands in front of it.
    pub(crate) fn note(&mut self, id: InsnId, full: bool, decision: Decision, bytes: u32) {
        if full && decision.is_tested() {
            self.tested.push(id);
        } else if !full && bytes > 0 {
            self.behind.push((id, bytes));
        }
    }

    /// Notes that the function may be entered in its full version; `alone`: nothing else is inserted in front of its first instruction.
    pub(crate) fn redirects(&mut self, id: InsnId, alone: bool) {
        self.redirected.push(id);
        if alone {
            self.behind.push((id, blizzard_contract::REDIRECTABLE.len() as u32));
        }
    }

    /// Where they stand in the program: distances from the one before, in unsigned LEB128.
    pub fn old_addresses(&self, insns: &Insns) -> Vec<u8> {
        let (mut codes, mut last) = (Vec::new(), insns.base);
        for &id in &self.tested {
            let at = insns.va(id);
            leb128::write::unsigned(&mut codes, at - last).expect("a vector takes all");
            last = at;
        }
        codes
    }

    /// Each with the bytes that stand in front of it in plain code.
    pub fn all(&self) -> impl Iterator<Item = (InsnId, u32)> {
        self.tested.iter().map(|&id| (id, self.in_front(id)))
    }

    /// How many bytes stand in front of an instruction in plain code.
    pub(crate) fn in_front(&self, id: InsnId) -> u32 {
        self.behind.binary_search_by_key(&id, |b| b.0).map_or(0, |k| self.behind[k].1)
    }
}

/// Checks of accesses in the order of their instructions, in a few bytes each: there are hundreds of thousands in a large module.
#[derive(Debug, Default)]
pub struct EmittedRestarts {
    /// How many instructions lie between, where the check begins in the instruction's new code, and how many bytes it has.
    codes: Vec<u8>,
    last: u32,
}

impl EmittedRestarts {
    pub(crate) fn push(&mut self, id: InsnId, from: u32, bytes: u32) {
        for number in [id.0 - self.last, from, bytes] {
            leb128::write::unsigned(&mut self.codes, number.into()).expect("a vector takes all");
        }
        self.last = id.0;
    }

    /// Instruction, where its check begins in its new code, and how many bytes the check has.
    pub fn all(&self) -> impl Iterator<Item = (InsnId, u32, u32)> {
        let mut codes = EndianSlice::new(&self.codes, LittleEndian);
        let mut last = 0;
        std::iter::from_fn(move || {
            let mut number = || leb128::read::unsigned(&mut codes).ok().map(|n| n as u32);
            let [ids, from, bytes] = [number()?, number()?, number()?];
            last += ids;
            Some((InsnId(last), from, bytes))
        })
    }
}

/// Cold code begins at a multiple of this: copies of loops, which are not cold, begin at lines.
pub const COLD_ALIGN: u32 = 64;
