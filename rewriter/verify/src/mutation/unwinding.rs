//! What unwinders and personality routines get to know from a rewritten file: the judge of changed bytes that [`crate::verify_against`] accepts.
//!
//! Input: a rewritten file, and one that differs from it in a byte. Output: why the change of a part of the frame tables cannot matter, or nothing. It
//! asks as libgcc does, for every place where a program can be stopped: the search table, the FDE, the rules, and the answer of the personality
//! routine, row by row. It compares two files with each other, and knows nothing of the input or of the rewriter. So it finds what the audit
//! overlooks: what the audit reads of a table it reads in another way (`file/lsda.rs`, `file/frames.rs`).
//!
//! Source: gcc `unwind-dw2.c`, `unwind-dw2-fde-dip.c`, `eh_personality.cc`.

use crate::decode::decoder::{self, Code};
use crate::decode::effects::Flow;
use crate::file::module::Module;
use blizzard_contract::ModuleInfo;
use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, EhFrame, EhFrameOffset, LittleEndian, Pointer, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection,
};
use object::elf;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Offsets in a program header (gABI, Elf64_Phdr) of what nobody reads of PT_GNU_EH_FRAME: flags, physical address, alignment.
const UNREAD: [std::ops::Range<usize>; 3] = [4..8, 24..32, 48..56];
const HEADER_BYTES: usize = 56;

/// What a rewritten file tells at each place.
pub struct Unwinding<'a> {
    file: &'a [u8],
    places: Vec<u64>,
    told: Vec<u64>,
    /// Parts of the file, with what may be said of a change there.
    parts: Vec<(std::ops::Range<usize>, &'static str)>,
}

impl<'a> Unwinding<'a> {
    /// Reads a rewritten file.
    ///
    /// # Errors
    /// It is none, or has no frames.
    pub fn of(file: &'a [u8]) -> crate::error::Result<Unwinding<'a>> {
        let m = Module::read(file, "the file")?;
        let text = decoder::decode(m.text.data, m.text.va, &[]);
        let cold = decoder::decode(m.cold.data, m.cold.va, &[]);
        let begins: Vec<u64> = m.functions.iter().map(|f| f.0).collect();
        let mut places = places(&text, &begins);
        // Copies of loops, and signal trampolines at their old addresses.
        for f in m.frames.list.iter().filter(|f| !text.contains(f.from)) {
            if cold.contains(f.from) {
                let insns = cold.insns.iter().filter(|i| f.from <= i.va && i.va < f.to && !i.is_nop());
                places.extend(insns.map(|i| i.va));
            } else {
                places.extend(f.from..f.to);
            }
        }
        // The runtime's functions: their beginnings, and their last bytes.
        let runtime = m.runtime_frames().unwrap_or_default();
        places.extend(runtime.list.iter().flat_map(|f| [f.from, f.to - 1]));
        places.sort_unstable();
        places.dedup();
        let parts = [
            (".eh_frame_hdr", "unwinders find the same frames everywhere"),
            (".eh_frame", "the frames say the same wherever a program can be stopped"),
            (".gcc_except_table", "personality routines answer the same wherever a program can be stopped"),
        ];
        let part = |(name, why): (&str, &'static str)| {
            let data = m.sections.iter().find(|s| s.name == name)?.data;
            let at = (data.as_ptr() as usize).checked_sub(file.as_ptr() as usize)?;
            Some((at..at + data.len(), why))
        };
        let parts = parts.into_iter().filter_map(part).collect();
        let told = told(&m, &places);
        Ok(Unwinding { file, places, told, parts })
    }

    /// Places of the file that hold frame tables, and the headers of program headers that lead there.
    pub fn parts(&self) -> Vec<std::ops::Range<usize>> {
        self.headers().into_iter().chain(self.parts.iter().map(|p| p.0.clone())).collect()
    }

    /// Both program headers that lead to the frames.
    fn headers(&self) -> Vec<std::ops::Range<usize>> {
        let file = self.file;
        let number = |at: usize, n: usize| {
            let bytes = file.get(at..at + n).unwrap_or(&[]);
            bytes.iter().rev().fold(0usize, |v, &b| v << 8 | usize::from(b))
        };
        let mut tables = vec![(number(32, 8), number(56, 2))];
        let Ok(m) = Module::read(file, "the file") else { return Vec::new() };
        let ModuleInfo { phdr_va, phdr_count, .. } = m.info;
        if let Some(shown) = m.bytes_at(phdr_va, HEADER_BYTES).filter(|_| phdr_va != 0) {
            tables.push((shown.as_ptr() as usize - file.as_ptr() as usize, phdr_count as usize));
        }
        let all = tables.into_iter().flat_map(|(at, count)| (0..count).map(move |k| at + HEADER_BYTES * k));
        all.filter(|&at| number(at, 4) == elf::PT_GNU_EH_FRAME.0 as usize).map(|at| at..at + HEADER_BYTES).collect()
    }

    /// Why it does not matter that `mutant` has another byte at `off`, where that is so and concerns frames.
    pub fn harmless(&self, mutant: &[u8], off: usize) -> Option<&'static str> {
        if let Some(h) = self.headers().iter().find(|h| h.contains(&off)) {
            let unread = UNREAD.iter().any(|u| u.contains(&(off - h.start)));
            return unread.then_some("nobody reads flags, physical address and alignment of PT_GNU_EH_FRAME");
        }
        let why = self.parts.iter().find(|p| p.0.contains(&off))?.1;
        let m = Module::read(mutant, "the file").ok()?;
        (told(&m, &self.places) == self.told).then_some(why)
    }
}

/// Where a program can be stopped: at every instruction, and within calls in front of the return address. Not in padding, which ends in front of `begins`,
/// where functions begin.
fn places(text: &Code, begins: &[u64]) -> Vec<u64> {
    let mut places = Vec::new();
    let mut padding = true;
    let mut code = 0;
    for i in &text.insns {
        if begins.binary_search(&i.va).is_ok() {
            // No-operations behind a call that never returns.
            places.truncate(code);
        }
        padding = i.is_int3() || padding && i.is_nop();
        if !padding {
            places.push(i.va);
        }
        if matches!(i.flow, Flow::Call | Flow::CallInd) {
            places.push(i.end() - 1);
        }
        if !i.is_nop() {
            code = places.len();
        }
        padding |= matches!(i.flow, Flow::Jump | Flow::JumpInd | Flow::Ret | Flow::Stop);
    }
    places
}

/// For each place a number that stands for all that it is told.
fn told(m: &Module, places: &[u64]) -> Vec<u64> {
    let mut asked = Asked::of(m);
    places.iter().map(|&va| asked.as_mut().and_then(|a| a.tell(va)).unwrap_or(0)).collect()
}

/// The tables, and the frame that was asked for last.
struct Asked<'x, 'a> {
    m: &'x Module<'a>,
    /// Address of the search table, and its rows.
    hdr: u64,
    rows: &'a [[u8; 8]],
    /// What stands from an address on: the program's frames, and the segment that holds the runtime's.
    sections: Vec<(u64, EhFrame<gimli::EndianSlice<'a, LittleEndian>>)>,
    last: Option<(u64, Frame)>,
}

struct Frame {
    from: u64,
    to: u64,
    /// What holds for all of it.
    common: u64,
    rows: Vec<(u64, u64)>,
    lsda: Option<u64>,
}

fn four(b: &[u8]) -> i64 {
    i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()
}

impl<'x, 'a> Asked<'x, 'a> {
    fn of(m: &'x Module<'a>) -> Option<Asked<'x, 'a>> {
        let hdr = m.index.as_ref()?.va;
        let bytes = m.tail(hdr)?;
        let count = usize::try_from(four(bytes.get(8..12)?) as u32).ok()?;
        let rows = bytes.get(12..)?.as_chunks::<8>().0.get(..count)?;
        let frames = hdr.wrapping_add(4).wrapping_add(four(&bytes[4..8]) as u64);
        let runtime = m.info.rt_base_va;
        let begins = [frames].into_iter().chain((runtime != 0).then_some(runtime));
        let sections = begins.map(|at| Some((at, EhFrame::new(m.tail(at)?, LittleEndian))));
        Some(Asked { m, hdr, rows, sections: sections.collect::<Option<_>>()?, last: None })
    }

    /// As `_Unwind_Find_FDE` searches.
    fn record(&self, va: u64) -> Option<u64> {
        let begins = |row: &[u8; 8]| self.hdr.wrapping_add(four(&row[..4]) as u64);
        let (mut low, mut high) = (0, self.rows.len());
        while low < high {
            let middle = (low + high) / 2;
            match begins(&self.rows[middle]) <= va {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Some(self.hdr.wrapping_add(four(&self.rows[low.checked_sub(1)?][4..]) as u64))
    }

    fn tell(&mut self, va: u64) -> Option<u64> {
        let record = self.record(va)?;
        if self.last.as_ref().is_none_or(|(last, _)| *last != record) {
            self.last = Some((record, self.frame(record)?));
        }
        let frame = &self.last.as_ref()?.1;
        if va < frame.from || va >= frame.to {
            return None;
        }
        let rules = frame.rows[..frame.rows.partition_point(|r| r.0 <= va)].last()?.1;
        let mut told = DefaultHasher::new();
        (frame.common, rules).hash(&mut told);
        if let Some(lsda) = frame.lsda {
            let bytes = self.m.tail(lsda)?;
            Area { bytes, at: 0, va: lsda }.answer(frame.from, va)?.hash(&mut told);
        }
        Some(told.finish())
    }

    fn frame(&self, record: u64) -> Option<Frame> {
        let (begin, eh) = self.sections.iter().rfind(|s| s.0 <= record)?;
        let bases = &BaseAddresses::default().set_eh_frame(*begin);
        let offset = EhFrameOffset(usize::try_from(record - begin).ok()?);
        let fde = eh.fde_from_offset(bases, offset, EhFrame::cie_from_offset).ok()?;
        let cie = fde.cie();
        let mut common = DefaultHasher::new();
        let personality = cie.personality().map(|p| match p {
            Pointer::Direct(at) => (at, false),
            Pointer::Indirect(at) => (at, true),
        });
        (personality, cie.return_address_register(), cie.is_signal_trampoline()).hash(&mut common);
        // A step tells how many bytes of arguments are given back when a landing pad is entered.
        let (mut at, mut given_back) = (fde.initial_address(), 0);
        for mut steps in [cie.instructions(eh, bases), fde.instructions(eh, bases)] {
            while let Some(step) = steps.next().ok()? {
                match step {
                    CallFrameInstruction::SetLoc { address } => at = address,
                    CallFrameInstruction::AdvanceLoc { delta } => at += u64::from(delta) * cie.code_alignment_factor(),
                    // None to begin with.
                    CallFrameInstruction::ArgsSize { size } if size != given_back => {
                        given_back = size;
                        (at, size).hash(&mut common);
                    }
                    _ => {}
                }
            }
        }
        let mut cx = UnwindContext::new();
        let mut table = fde.rows(eh, bases, &mut cx).ok()?;
        let mut rows = Vec::new();
        while let Ok(Some(row)) = table.next_row() {
            rows.push((row.start_address(), rules(eh, row)?));
        }
        let lsda = match fde.lsda() {
            Some(Pointer::Direct(at)) => Some(at),
            Some(Pointer::Indirect(_)) => return None,
            None => None,
        };
        let from = fde.initial_address();
        Some(Frame { from, to: from.checked_add(fde.len())?, common: common.finish(), rows, lsda })
    }
}

/// A number that stands for all that a row says.
fn rules(eh: &EhFrame<gimli::EndianSlice<LittleEndian>>, row: &gimli::UnwindTableRow<usize>) -> Option<u64> {
    let mut told = DefaultHasher::new();
    let bytes = |e: &UnwindExpression<usize>| Some(e.get(eh).ok()?.0.slice());
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => (register.0, *offset).hash(&mut told),
        CfaRule::Expression(e) => bytes(e)?.hash(&mut told),
    }
    let mut list: Vec<(u16, u8, i64, &[u8])> = Vec::new();
    for (register, rule) in row.registers() {
        let (kind, number, expression): (u8, i64, &[u8]) = match rule {
            RegisterRule::Undefined => (0, 0, &[]),
            RegisterRule::SameValue => (1, 0, &[]),
            RegisterRule::Offset(n) => (2, *n, &[]),
            RegisterRule::ValOffset(n) => (3, *n, &[]),
            RegisterRule::Register(r) => (4, r.0.into(), &[]),
            RegisterRule::Expression(e) => (5, 0, bytes(e)?),
            RegisterRule::ValExpression(e) => (6, 0, bytes(e)?),
            RegisterRule::Constant(n) => (7, *n as i64, &[]),
            _ => return None,
        };
        list.push((register.0, kind, number, expression));
    }
    list.sort_unstable();
    list.hash(&mut told);
    Some(told.finish())
}

/// A language-specific data area, read as `__gxx_personality_v0` does.
#[derive(Clone, Copy)]
struct Area<'a> {
    bytes: &'a [u8],
    at: usize,
    va: u64,
}

/// A landing pad, and for each action its filter and what the entries of its types lead to.
type Answer = (u64, Vec<(i64, Vec<u64>)>);

impl Area<'_> {
    fn number(&mut self, encoding: u8) -> Option<u64> {
        let n = match encoding & 0x0f {
            0x1 | 0x9 => return self.leb(encoding & 0x0f == 0x9),
            0x2 | 0xa => 2,
            0x3 | 0xb => 4,
            0x0 | 0x4 | 0xc => 8,
            _ => return None,
        };
        let b = self.bytes.get(self.at..self.at + n)?;
        self.at += n;
        let v = b.iter().rev().fold(0u64, |v, &x| v << 8 | u64::from(x));
        let unused = 64 - 8 * n as u32;
        Some(if encoding & 0x08 != 0 { ((v << unused) as i64 >> unused) as u64 } else { v })
    }

    fn byte(&mut self) -> Option<u8> {
        self.at += 1;
        self.bytes.get(self.at - 1).copied()
    }

    fn leb(&mut self, signed: bool) -> Option<u64> {
        let (mut v, mut shift) = (0u64, 0);
        loop {
            let b = *self.bytes.get(self.at)?;
            self.at += 1;
            v |= u64::from(b & 0x7f).checked_shl(shift).unwrap_or(0);
            shift += 7;
            if b & 0x80 == 0 {
                let negative = signed && b & 0x40 != 0 && shift < 64;
                return Some(if negative { v | u64::MAX << shift } else { v });
            }
        }
    }

    /// A pointer as `read_encoded_value` gives it, but for the last step through memory, which is told by the lowest bit of the second number.
    fn pointer(&mut self, encoding: u8) -> Option<(u64, u8)> {
        let here = self.va + self.at as u64;
        let v = self.number(encoding)?;
        let base = match encoding & 0x70 {
            _ if v == 0 => return Some((0, 0)),
            0x10 => here,
            _ => 0,
        };
        Some((base.wrapping_add(v), encoding & 0xe0))
    }

    fn answer(&mut self, function: u64, ip: u64) -> Option<Option<Answer>> {
        let e = self.byte()?;
        let pads = if e == 0xff { function } else { self.pointer(e)?.0 };
        let e = self.byte()?;
        let types = match e {
            0xff => None,
            e => Some((e, self.leb(false)?)).map(|(e, distance)| (e, self.at as u64 + distance)),
        };
        let e = self.byte()?;
        let length = self.leb(false)?;
        let actions = usize::try_from(self.at as u64 + length).ok()?;
        while self.at < actions {
            let (start, bytes, pad) = (self.pointer(e)?.0, self.pointer(e)?.0, self.pointer(e)?.0);
            let action = self.leb(false)?;
            let start = function.wrapping_add(start);
            if ip < start {
                return Some(None);
            }
            if ip < start.wrapping_add(bytes) {
                if pad == 0 {
                    return Some(Some((0, Vec::new())));
                }
                return Some(Some((pads.wrapping_add(pad), self.actions(types, actions, action)?)));
            }
        }
        Some(None)
    }

    fn actions(&self, types: Option<(u8, u64)>, table: usize, action: u64) -> Option<Vec<(i64, Vec<u64>)>> {
        let mut all = Vec::new();
        if action == 0 {
            return Some(all);
        }
        let mut next = table as u64 + action - 1;
        while all.len() < 1 << 12 {
            let mut c = Area { at: usize::try_from(next).ok()?, ..*self };
            let filter = c.leb(true)? as i64;
            let behind = c.at as u64;
            let distance = c.leb(true)?;
            let mut found = Vec::new();
            let mut entry = |index: u64| {
                let (e, base) = types?;
                let size = match e & 0x07 {
                    2 => 2,
                    3 => 4,
                    0 | 4 => 8,
                    _ => return None,
                };
                let at = usize::try_from(base.checked_sub(index.checked_mul(size)?)?).ok()?;
                let (value, how) = Area { at, ..*self }.pointer(e)?;
                found.extend([value, how.into()]);
                Some(())
            };
            if filter > 0 && types.is_some() {
                entry(filter.unsigned_abs())?;
            }
            if filter < 0 {
                let mut list = Area { at: usize::try_from(types?.1 + filter.unsigned_abs() - 1).ok()?, ..*self };
                loop {
                    match list.leb(false)? {
                        0 => break,
                        index => entry(index)?,
                    }
                }
            }
            all.push((filter, found));
            if distance == 0 {
                return Some(all);
            }
            next = behind.wrapping_add(distance);
        }
        None
    }
}
