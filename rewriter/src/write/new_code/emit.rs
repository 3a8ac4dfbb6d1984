//! Plan -> [`EmittedCode`]: the new code, before addresses are known.
//!
//! Input: the image, its instructions, for each version its [`Script`] and planned loops. Output: [`EmittedCode`]. **Invariant**: the bytes of an instruction that is not PC-relative
//! are copied as they are, redundant prefixes included.

use crate::base::addresses::Vaddr;
use crate::base::collections::compact_offsets::CompactOffsets;
use crate::base::error::Refusal;
use crate::base::options::{self, Options};
use crate::decode::classify::{direct_target, is_constant_store, is_padlock};
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::decode::reader::Reader;
use crate::decode::skeleton::{Skeleton, skeleton};
use crate::insert::block_recorder::Recorder;
use crate::insert::code::{EmittedCode, FixupTarget, FunctionAlignment, HotItem, ItemKind};
use crate::insert::instruments::{self, Instrument};
use crate::insert::site::Site;
use crate::insert::{asm, guard, sequences, strip};
use crate::plan::checks::Fuel;
use crate::plan::loop_tests::Strip;
use crate::read::image::Image;
use crate::write::new_code::script::{EmitPart, Script, parts};
use crate::write::new_code::versions::Versions;
use blizzard_contract::{self as contract};
use iced_x86::{ConstantOffsets, Instruction, Mnemonic, Register};

/// What is emitted in one pass over the instructions.
pub struct Pass<'x> {
    pub script: Script,
    pub strips: &'x [Strip],
    /// Of guarded code: the full version.
    pub full: bool,
}

/// `jmp rel32`, in front of a function of plain code: to its full version.
const REDIRECTION_BYTES: u8 = 5;

/// What all passes share.
struct Emission<'x> {
    image: &'x Image<'x>,
    insns: &'x Insns,
    versions: &'x Versions,
    options: &'x Options,
    /// How many jump tables there are: those of the full version are numbered behind them.
    tables: u32,
}

/// Emits all code: the plain version, or the only one, and the full one.
pub fn emit(
    (image, insns): (&Image, &Insns),
    versions: &Versions,
    passes: Vec<Pass>,
    tables: usize,
    options: &Options,
    (fuel, recorder): (Fuel, Recorder),
) -> EmittedCode {
    let mut code = EmittedCode {
        begin: CompactOffsets::with_capacity(versions.labels() + 1),
        fuel,
        recorder,
        ..EmittedCode::default()
    };
    let old_bytes: usize = image.exec.iter().map(|s| s.bytes as usize).sum();
    code.hot.bytes.reserve(old_bytes * if options.checks == options::Checks::None { 1 } else { 2 });
    let emission = Emission { image, insns, versions, options, tables: tables as u32 };
    for pass in passes {
        emission.pass(&mut code, pass);
    }
    code.begin.push(code.hot.pos());
    code
}

impl Emission<'_> {
    fn pass(&self, code: &mut EmittedCode, Pass { script, strips, full }: Pass) {
        let Emission { image, insns, versions, options, tables } = *self;
        let Script { cued, moved, cues, decisions, checks, places, loads, lengths } = script;
        let mut reader = Reader::new(image, insns);
        let mut run = Run::default();
        let mut insn = Instruction::default();
        let mut planned = checks.into_iter().peekable();
        let mut strips = strips.iter().peekable();
        let mut starts = places.iter().peekable();
        let mut loads = loads.iter().peekable();
        let mut lengths = lengths.iter();
        // The loop whose block is being emitted.
        let mut strip: Option<&Strip> = None;
        let mut open = None;
        // The function that begins may be entered in its full version.
        let mut redirects = false;
        // The instruction in front is part of what this pass emits.
        let mut emitting = false;
        for (i, part) in parts(cued, moved, cues).take(insns.len()).enumerate() {
            let id = InsnId(i as u32);
            let label = if full { versions.full_label(id) } else { id };
            let start = starts.next_if(|s| s.0 == id);
            let table = loads.next_if(|l| l.0 == id).map(|l| l.1 + if full { tables } else { 0 });
            let was_emitting = std::mem::replace(&mut emitting, !full || versions.has_full(id));
            if !emitting {
                if matches!(&part, EmitPart::Cued(cue) if cue.is_first()) {
                    lengths.next();
                }
                run.copy(code, image);
                if was_emitting && falls_into(insns, id) {
                    branch(code, None, id, 0);
                }
                code.begin.push(code.hot.pos());
                continue;
            }
            if let Some(&(_, place)) = start {
                run.copy(code, image);
                let reached = was_emitting && falls_into(insns, id);
                redirects = !full && !reached && versions.has_full(id);
                let place = match (full, redirects) {
                    (true, _) => FunctionAlignment::ANYWHERE,
                    // What stands behind the `nop` has the place that it had: loops, above all.
                    (false, true) if place.is_line() => {
                        place.behind(REDIRECTION_BYTES + contract::REDIRECTABLE.len() as u8)
                    }
                    (false, true) => place.behind(REDIRECTION_BYTES),
                    (false, false) => place,
                };
                code.items.push(HotItem::new(code.hot.pos(), ItemKind::Align { reached, place }));
                code.cold_starts.push((label, code.cold.pos()));
                if redirects {
                    let at = asm::jmp32(&mut code.hot.bytes);
                    code.hot.fix(at, FixupTarget::Insn { id: versions.full(id), delta: 0 });
                }
            }
            let begin = code.hot.pos() + run.bytes();
            code.begin.push(begin);
            if std::mem::take(&mut redirects) {
                code.hot.bytes.extend(contract::REDIRECTABLE);
                code.accesses.redirects(id, !matches!(part, EmitPart::Cued(_)));
            }
            let cue = match part {
                EmitPart::Copied => {
                    // Nothing is inserted, and nothing in it depends on where it stands.
                    run.add(code, image, reader.place(id), insns.length(id));
                    continue;
                }
                EmitPart::Moved => {
                    run.copy(code, image);
                    self.shift(code, &mut reader, (id, label), &mut insn);
                    continue;
                }
                EmitPart::Cued(cue) => cue,
            };
            run.copy(code, image);
            let cold = code.cold.pos();
            let bytes = reader.decode(id, &mut insn);
            let planned = planned.next_if(|c| c.id == id);
            let decision = cue.decision.decision(&decisions);
            let (live, red_zone) = (cue.live(), cue.has_red_zone());
            let site = Site {
                id: label,
                insn: &insn,
                bytes,
                plain: versions.are_two().then_some(id),
                live,
                begin,
                count: options.count,
                table,
                planned: planned.as_ref(),
                red_zone,
                compact: full && !versions.in_short_loop(id),
                screens: options.screens,
                anchor: cue.anchor(&insn),
            };
            let insert = |code: &mut EmittedCode, instrument| {
                if let Err(reason) = instruments::insert(code, &site, instrument) {
                    let at = insns.va(id);
                    code.refusals.push(Refusal { at, place: image.place(at), reason: reason.to_owned() });
                }
            };
            if cue.is_first() {
                strip = strips.next_if(|s| s.first == id);
                open = strip.map(|strip| strip::head(code, &site, strip));
                if let Some(&insns) = lengths.next() {
                    insert(code, Instrument::Counter { insns });
                }
                if let Some(open) = &mut open {
                    open.begins(code, &site);
                }
            }
            if strip.is_none() && cue.polls() {
                insert(code, Instrument::Poll);
            }
            let from = code.hot.pos();
            insert(code, Instrument::Check(decision));
            let access = code.hot.pos();
            if cue.decision.cover().is_some() || planned.as_ref().is_some_and(|p| p.named) {
                code.guarded.push((label, access - begin));
            }
            if access > from {
                code.restarts.push(label, from - begin, access - from);
            }
            if versions.has_full(id) {
                code.accesses.note(id, full, decision, access - begin);
            }
            let alias = versions.are_two() && guard::is_aliased(&insn, &decision, table, bytes);
            let original = Original { id, label, insn: &insn, bytes, reader: &reader, strip, alias };
            self.relocate(code, &original, table);
            sequences::land_behind(code, &site);
            if cue.decision.tests_stack() {
                insert(code, Instrument::StackTest);
            }
            self.fall_through(code, (id, label));
            if cue.is_last() {
                strip = None;
                if let Some(open) = open.take() {
                    strip::tests(code, &open, &mut reader, options);
                }
            }
            if code.cold.pos() > cold {
                code.cold_parts.push((label, cold));
            }
        }
        run.copy(code, image);
    }
}

/// Bytes of the input that follow each other there and in the output.
#[derive(Default)]
struct Run {
    section: usize,
    from: usize,
    to: usize,
}

impl Run {
    #[inline]
    fn bytes(&self) -> u32 {
        (self.to - self.from) as u32
    }

    /// Adds `len` bytes at an offset of a section.
    #[inline]
    fn add(&mut self, code: &mut EmittedCode, image: &Image, (section, at): (usize, usize), len: u8) {
        if self.section != section || self.to != at {
            self.copy(code, image);
            (self.section, self.from) = (section, at);
        }
        self.to = at + usize::from(len);
    }

    /// Puts them into the hot buffer.
    #[inline]
    fn copy(&mut self, code: &mut EmittedCode, image: &Image) {
        if self.from < self.to {
            code.hot.bytes.extend_from_slice(&image.exec_bytes(self.section)[self.from..self.to]);
            self.from = self.to;
        }
    }
}

impl Emission<'_> {
    /// Where a jump leads: it stays in its version, where there is one.
    #[inline]
    fn jump(&self, from: InsnId, to: InsnId) -> InsnId {
        if from.ix() < self.insns.len() { to } else { self.versions.full(to) }
    }

    /// Emits an instruction that nothing is inserted for. What changes of it stands in its bytes; it is decoded only where they are unusual.
    fn shift(
        &self,
        code: &mut EmittedCode,
        reader: &mut Reader,
        (id, label): (InsnId, InsnId),
        insn: &mut Instruction,
    ) {
        let insns = self.insns;
        let bytes = reader.tail(id);
        let condition = match bytes {
            [op @ 0x70..=0x7f, ..] | [0x0f, op @ 0x80..=0x8f, ..] => Some(op & 15),
            _ => None,
        };
        let (flow, target) = (insns.flow(id), insns.target(id));
        match (flow, target, condition) {
            (Flow::Jmp, Some(to), _) => return branch(code, None, self.jump(label, to), 0),
            (Flow::Cond, Some(to), Some(_)) => branch(code, condition, self.jump(label, to), 0),
            (Flow::Call, Some(to), _) => call(code, FixupTarget::Insn { id: to, delta: 0 }),
            _ => match skeleton(bytes).filter(|s| s.ip_relative && target.is_none()) {
                Some(Skeleton { len, disp32, .. }) => {
                    let at = usize::from(disp32);
                    let distance = i32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
                    let start = code.hot.bytes.len();
                    code.hot.bytes.extend_from_slice(&bytes[..usize::from(len)]);
                    let to = insns.end(id) + i64::from(distance) as u64;
                    code.hot.fix_before(start + at, len - disp32 - 4, FixupTarget::Old(to));
                }
                None => {
                    let bytes = reader.decode(id, insn);
                    self.relocate(code, &Original { id, label, insn, bytes, reader, strip: None, alias: false }, None);
                }
            },
        }
        self.fall_through(code, (id, label));
    }

    /// Emits the instruction itself.
    fn relocate(&self, code: &mut EmittedCode, original: &Original, table: Option<u32>) {
        let insns = self.insns;
        let Original { id, label, insn, bytes, strip, .. } = *original;
        // The loop's own jump passes by what runs when it is entered.
        let delta = |to: InsnId| if strip.is_some_and(|s| s.first == to) { strip::ENTRY_BYTES } else { 0 };
        let (flow, target) = (insns.flow(id), insns.target(id));
        let jump = |to: InsnId| self.jump(label, to);
        let hot = &mut code.hot;
        match (flow, direct_target(insn)) {
            (Flow::Jmp, Some(to)) => match target {
                Some(to) => branch(code, None, jump(to), delta(to)),
                None => {
                    let at = asm::jmp32(&mut hot.bytes);
                    hot.fix(at, FixupTarget::Old(to));
                }
            },
            (Flow::Call, Some(to)) if to == insns.end(id) => {
                // call of the next instruction: the code wants its own old address.
                asm::push(&mut hot.bytes, asm::RAX);
                let at = asm::lea_rip(&mut hot.bytes, asm::RAX);
                hot.fix(at, FixupTarget::Old(to));
                asm::xchg_rsp_rax(&mut hot.bytes);
            }
            (Flow::Call, Some(to)) => {
                call(code, target.map_or(FixupTarget::Old(to), |id| FixupTarget::Insn { id, delta: 0 }))
            }
            (Flow::Cond, Some(to)) if insn.mnemonic() == Mnemonic::Xbegin => {
                hot.bytes.extend([0xc7, 0xf8, 0, 0, 0, 0]);
                let at = hot.bytes.len() - 4;
                hot.fix(at, target.map_or(FixupTarget::Old(to), |id| FixupTarget::Insn { id: jump(id), delta: 0 }));
            }
            (Flow::Cond, Some(to)) if insn.is_jcc_short_or_near() => {
                // iced numbers the conditions from 1 in the order of their encodings.
                let cc = insn.condition_code() as u8 - 1;
                match target {
                    Some(to) => branch(code, Some(cc), jump(to), delta(to)),
                    None => {
                        let at = asm::jcc32(&mut hot.bytes, cc);
                        hot.fix(at, FixupTarget::Old(to));
                    }
                }
            }
            (Flow::Cond, Some(to)) => {
                // loop and jrcxz reach 127 bytes: they jump over a jump over a long jump.
                hot.bytes.extend(&bytes[..bytes.len() - 1]);
                hot.bytes.extend([2, 0xeb, 5]);
                let at = asm::jmp32(&mut hot.bytes);
                hot.fix(at, target.map_or(FixupTarget::Old(to), |id| FixupTarget::Insn { id: jump(id), delta: 0 }));
            }
            // What it would access could not be checked; where it exists, it fails as it does elsewhere.
            _ if is_padlock(insn) => hot.bytes.extend(asm::UD2),
            // Compilers leave it where a program would write through a null pointer. What it fails on in the original holds tags here.
            _ if is_constant_store(insn) && names_memory_of_runtime(insn) => hot.bytes.push(asm::HLT),
            _ if insn.mnemonic() == Mnemonic::Syscall => {
                sequences::syscall(&mut hot.bytes);
                let at = hot.bytes.len() - sequences::SYSCALL_TO_FIELD;
                let delta = code.hot.pos() - code.begin.get(label.ix());
                code.hot.fix(at, FixupTarget::Insn { id: label, delta });
            }
            _ if original.alias => hot.bytes.extend(guard::prefixed(bytes)),
            _ => copy(code, original, table),
        }
    }

    /// Where the next instruction in the buffer is not the one that runs next: a jump, or a trap where nothing was decoded.
    #[inline]
    fn fall_through(&self, code: &mut EmittedCode, (id, label): (InsnId, InsnId)) {
        let flow = self.insns.flow(id);
        if matches!(flow, Flow::Jmp | Flow::IndirectJmp | Flow::Ret | Flow::Stop) {
            return;
        }
        match self.insns.next(id) {
            Some(n) if n.0 == id.0 + 1 => {}
            Some(n) => branch(code, None, self.jump(label, n), 0),
            None => code.hot.bytes.extend(asm::UD2),
        }
    }
}

/// An instruction of the input.
struct Original<'x, 'a> {
    id: InsnId,
    label: InsnId,
    insn: &'x Instruction,
    bytes: &'x [u8],
    /// Has just decoded it.
    reader: &'x Reader<'x, 'a>,
    /// The loop that it is in tests tags once for several iterations.
    strip: Option<&'x Strip>,
    /// It goes to the alias of shared memory.
    alias: bool,
}

#[inline]
fn branch(code: &mut EmittedCode, cc: Option<u8>, to: InsnId, delta: u32) {
    code.items.push(HotItem::new(code.hot.pos(), ItemKind::Branch { cc, to, delta }));
    code.hot.bytes.extend([cc.unwrap_or(HotItem::NO_CC), delta as u8]);
}

fn call(code: &mut EmittedCode, to: FixupTarget) {
    let at = asm::call32(&mut code.hot.bytes);
    code.hot.fix(at, to);
}

#[inline]
fn copy(code: &mut EmittedCode, original: &Original, table: Option<u32>) {
    let Original { insn, bytes, reader, .. } = *original;
    let start = code.hot.bytes.len();
    if let Some(t) = table {
        let offsets = reader.constant_offsets(insn);
        let (pos, disp) = with_disp32(&mut code.hot.bytes, insn, bytes, &offsets);
        let tail = (code.hot.bytes.len() - pos - 4) as u8;
        code.hot.fix_before(pos, tail, FixupTarget::TableDelta { table: t, disp });
        return;
    }
    code.hot.bytes.extend(bytes);
    if insn.is_ip_rel_memory_operand() {
        // With a 32-bit address size the processor cuts the sum: so it is right wherever the distance leads to the same place.
        let distance = insn.ip_rel_memory_address().wrapping_sub(insn.next_ip());
        let distance = if insn.memory_base() == Register::EIP { distance as i32 as u64 } else { distance };
        let at = reader.constant_offsets(insn).displacement_offset();
        let tail = (bytes.len() - at - 4) as u8;
        code.hot.fix_before(start + at, tail, FixupTarget::Old(Vaddr(insn.next_ip().wrapping_add(distance))));
    }
}

/// Appends `bytes` with a 32-bit displacement instead of a short or no one; returns where it stands and its old value.
fn with_disp32(out: &mut Vec<u8>, insn: &Instruction, bytes: &[u8], offsets: &ConstantOffsets) -> (usize, i32) {
    let sib = insn.memory_index() != Register::None || insn.memory_base().number() & 7 == 4;
    let disp_at = if offsets.has_displacement() { offsets.displacement_offset() } else { bytes.len() };
    let disp_len = if offsets.has_displacement() { offsets.displacement_size() } else { 0 };
    let modrm_at = disp_at - 1 - usize::from(sib);
    let start = out.len();
    out.extend(&bytes[..disp_at]);
    if disp_len != 4 {
        out[start + modrm_at] = out[start + modrm_at] & 0x3f | 0x80;
    }
    let pos = out.len();
    out.extend([0; 4]);
    out.extend(&bytes[disp_at + disp_len..]);
    (pos, insn.memory_displacement64() as i64 as i32)
}

/// The instruction in front of `id` in the buffer may go on at `id`.
fn falls_into(insns: &Insns, id: InsnId) -> bool {
    id.0.checked_sub(1).map(InsnId).is_some_and(|p| {
        let ends = matches!(insns.flow(p), Flow::Jmp | Flow::IndirectJmp | Flow::Ret | Flow::Stop);
        !ends && insns.next(p) == Some(id)
    })
}

/// Whether the operand, a constant address, lies where the runtime has its pages and the tags, and a program nothing.
fn names_memory_of_runtime(insn: &Instruction) -> bool {
    let runtime = contract::CONTEXT_SHARED..contract::TAG_TABLE_BASE + contract::TAG_TABLE_BYTES;
    let relocated = matches!(insn.segment_prefix(), Register::FS | Register::GS);
    !relocated && runtime.contains(&insn.memory_displacement64())
}
