//! [`Explorer`]: finds code and only code.
//!
//! Input: the image and its frames; targets that jump tables add between rounds. Output: what is known of each byte; [`crate::decode::listing`] makes
//! [`crate::decode::insns::Insns`] of it. Recursive descent from *hard* roots (entry point, frame descriptions, function symbols, landing pads, direct
//! branches), then, where what stands there decodes plausibly, the rest of each frame's range and *soft* roots (untyped labels, addresses that data or
//! `lea` name).
//!
//! Constants between the functions may decode, too. Bytes that code reads, by a constant address or through a register that
//! it has put the address into ([`evidence`]), are not taken for code unless hard roots lead there; where that is learnt
//! only after they have been, exploration begins again. What code both reads and jumps to is [`crate::decode::insns::Insns::contested`]. Hand-written code
//! has no frames that say what to sweep: [`crate::decode::gaps`].
//!
//! Source: design section 3.1; SDM volume 2 for lengths (through iced-x86).

use crate::base::addresses::Vaddr;
use crate::decode::classify::{direct_target, flow_of, odd_in_programs};
use crate::decode::insn::Flow;
use crate::decode::marks::{Mark, Marks};
use crate::decode::skeleton::{Memo, Skeleton, skeleton};
use crate::decode::{address_sums, evidence};
use crate::read::frames::{FdeInfo, FrameInfo};
use crate::read::image::Image;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use std::collections::{BTreeSet, HashSet};

/// Where a frame's code begins. The frame of a signal trampoline begins a byte early, in padding, because unwinders look
/// up the byte before a return address.
pub(super) fn code_start(f: &FdeInfo) -> Vaddr {
    if f.signal { f.start + 1 } else { f.start }
}

/// Finds code; kept between rounds, because jump tables lead to more.
pub struct Explorer<'i, 'a> {
    pub(super) image: &'i Image<'a>,
    pub(super) maps: Vec<Marks>,
    decoders: Vec<Decoder<'a>>,
    /// Marks of instructions by their skeletons.
    memo: Memo<Mark>,
    /// From the lowest to behind the highest address of an executable section.
    code: std::ops::Range<u64>,
    work: Vec<Vaddr>,
    pub(super) starts: Vec<Vaddr>,
    pub(super) roots: Vec<Vaddr>,
    soft: Vec<Vaddr>,
    /// What is descended from, if it is only likely to be code.
    softly_from: Option<Vaddr>,
    /// Soft roots that turned out to be code.
    pub(super) wanted: BTreeSet<Vaddr>,
    /// What code puts into registers.
    pub(super) named: Vec<HeldAddress>,
    /// How many of `named` have been followed.
    followed: usize,
    /// Instructions that load what may be added to an address.
    loads: Vec<Vaddr>,
    /// How many of `loads` have been looked at.
    added: usize,
    /// The numbers among them, and what they are added to: [`crate::decode::address_sums`].
    numbers: BTreeSet<u64>,
    bases: BTreeSet<Vaddr>,
    /// Addresses that something names, and that are no code.
    pub(super) refused: BTreeSet<Vaddr>,
    /// Addresses that code reads, as far as known.
    pub(super) data_refs: BTreeSet<Vaddr>,
    /// (instruction, address) of reads of one address that is constant.
    pub(super) fixed_reads: Vec<(Vaddr, Vaddr)>,
    /// Addresses that code jumps to through a register.
    pub(super) run_refs: BTreeSet<Vaddr>,
    /// Addresses that code names, and that may be short functions or constants.
    pub(super) doubtful: Vec<Vaddr>,
    /// Data references of an earlier exploration.
    pinned: BTreeSet<Vaddr>,
    /// Targets added after the exploration began.
    given: BTreeSet<Vaddr>,
    pub(super) frames: &'i FrameInfo,
    /// How many frames begin up to the call that was looked at last.
    begun: usize,
}

/// An address of an executable section in a register.
#[derive(Clone, Copy)]
pub(super) struct HeldAddress {
    /// The instruction that puts it there.
    pub(super) by: Vaddr,
    /// Behind it.
    next: Vaddr,
    register: Register,
    pub(super) at: Vaddr,
}

impl HeldAddress {
    /// `insn` puts `at` into its first operand.
    fn new(insn: &Instruction, at: Vaddr) -> HeldAddress {
        HeldAddress { by: Vaddr(insn.ip()), next: Vaddr(insn.next_ip()), register: insn.op0_register(), at }
    }
}

/// Times that exploration begins again.
const MAX_ROUNDS: usize = 8;
/// A soft root among constants must lead to so many instructions to be taken for code.
const CONVINCING: usize = 8;
/// Bytes behind a soft root that is none, after which decoding is in step with the code again: padding, and a few instructions.
const OUT_OF_STEP: u64 = 32;
/// Most instructions that a judgement of plausibility looks at.
const MAX_JUDGED: usize = 1000;

impl<'i, 'a> Explorer<'i, 'a> {
    /// Explores everything but what only jump tables lead to.
    pub fn new(image: &'i Image<'a>, frames: &'i FrameInfo) -> Self {
        let mut e = Explorer::with(image, frames, BTreeSet::new(), BTreeSet::new());
        e.settle();
        e
    }

    /// Descends from jump-table targets; true if there was anything new.
    pub fn add_targets(&mut self, targets: impl IntoIterator<Item = Vaddr>) -> bool {
        // What has been given and is unknown still does not decode.
        let is_fresh = |va: &Vaddr| self.is_unknown(*va) && !self.given.contains(va);
        let fresh: Vec<Vaddr> = targets.into_iter().filter(is_fresh).collect();
        let any = !fresh.is_empty();
        self.given.extend(&fresh);
        self.descend(fresh);
        self.take_soft_roots();
        if any {
            self.sweep_gaps();
        }
        self.settle();
        any
    }

    /// Begins again where bytes that code reads have been taken for code.
    fn settle(&mut self) {
        for _ in 0..MAX_ROUNDS {
            let misread = self.misread();
            if misread.is_empty() {
                return;
            }
            let pinned = self.pinned.union(&misread).copied().collect();
            *self = Explorer::with(self.image, self.frames, pinned, std::mem::take(&mut self.given));
        }
    }

    /// The data references into decoded bytes to which no hard root leads.
    fn misread(&self) -> BTreeSet<Vaddr> {
        let decoded = |va: &&Vaddr| !self.pinned.contains(*va) && self.mark(**va).is_some_and(|m| m != Mark::UNKNOWN);
        let suspects: Vec<Vaddr> = self.data_refs.iter().filter(decoded).copied().collect();
        if suspects.is_empty() {
            return BTreeSet::new();
        }
        let hard = Explorer::hard(self.image, self.frames, &self.given);
        suspects.into_iter().filter(|&va| hard.is_unknown(va)).collect()
    }

    fn with(image: &'i Image<'a>, frames: &'i FrameInfo, pinned: BTreeSet<Vaddr>, given: BTreeSet<Vaddr>) -> Self {
        let mut e = Explorer::hard(image, frames, &given);
        (e.pinned, e.given) = (pinned, given);
        e.data_refs.extend(&e.pinned);
        e.follow_names();
        e.sweep_frames();
        e.take_soft_roots();
        e.sweep_gaps();
        e
    }

    /// What hard roots lead to.
    fn hard(image: &'i Image<'a>, frames: &'i FrameInfo, given: &BTreeSet<Vaddr>) -> Self {
        let maps = image.exec.iter().map(|s| Marks::new(s.va, s.bytes as usize)).collect();
        let decoders = (0..image.exec.len())
            .map(|i| Decoder::with_ip(64, image.exec_bytes(i), image.exec[i].va.0, DecoderOptions::NONE))
            .collect();
        let mut e = Explorer {
            image,
            maps,
            decoders,
            memo: Memo::default(),
            code: image.exec[0].va.0..image.exec.last().map_or(0, |s| s.va.0 + s.bytes),
            work: Vec::new(),
            starts: Vec::new(),
            roots: Vec::new(),
            soft: image.code_pointers.clone(),
            softly_from: None,
            wanted: BTreeSet::new(),
            named: Vec::new(),
            followed: 0,
            loads: Vec::new(),
            added: 0,
            numbers: BTreeSet::new(),
            bases: BTreeSet::new(),
            refused: BTreeSet::new(),
            data_refs: BTreeSet::new(),
            fixed_reads: Vec::new(),
            run_refs: BTreeSet::new(),
            doubtful: Vec::new(),
            pinned: BTreeSet::new(),
            given: BTreeSet::new(),
            frames,
            begun: 0,
        };
        // A library's entry point may be 0 or its first byte; those outside code drop out below.
        let mut hard = vec![image.entry];
        hard.extend(frames.fdes.iter().map(code_start));
        hard.extend(image.functions.iter().filter(|f| f.typed).map(|f| f.va));
        e.soft.extend(image.functions.iter().filter(|f| !f.typed).map(|f| f.va));
        hard.retain(|&va| image.exec_at(va).is_some());
        e.starts.extend(&hard);
        e.starts.sort();
        hard.extend(frames.landing_pads());
        e.roots.extend(&hard);
        e.descend(hard);
        e.descend(given.iter().copied().collect());
        e
    }

    /// Looks what becomes of the addresses that code has put into registers.
    fn follow_names(&mut self) {
        while let Some(&HeldAddress { next, register, at, .. }) = self.named.get(self.followed) {
            self.followed += 1;
            if self.starts.binary_search(&at).is_ok() {
                continue;
            }
            let mut decode = |va: Vaddr| {
                let known = self.mark(va).is_some_and(|m| m.len().is_some());
                let mut insn = Instruction::default();
                (known && self.decode_at(va, &mut insn)).then_some(insn)
            };
            let uses = evidence::follow(&mut decode, next, register, at);
            let held = |va: &Vaddr| self.image.exec_at(*va).is_some();
            self.data_refs.extend(uses.reads.into_iter().filter(held));
            self.run_refs.extend(uses.runs.into_iter().filter(held));
        }
    }

    #[inline]
    pub(super) fn mark(&self, va: Vaddr) -> Option<Mark> {
        let s = self.image.exec_at(va)?;
        Some(self.maps[s].list[(va - self.maps[s].va) as usize])
    }

    /// Whether an instruction that soft roots lead to may begin at a byte: nothing is known of it, or it lies inside instructions that stand so near behind
    /// another soft root that they may be out of step with what is code. (A word of Free Pascal's compiler looks like a pointer to the padding in
    /// front of a function.)
    fn is_open(&self, va: Vaddr) -> bool {
        let Some(s) = self.image.exec_at(va) else { return false };
        let (map, at) = (&self.maps[s], (va - self.maps[s].va) as usize);
        map.list[at] == Mark::UNKNOWN || map.inside_soft(at)
    }

    /// Whether nothing is known of a byte of code.
    #[inline]
    pub(super) fn is_unknown(&self, va: Vaddr) -> bool {
        self.mark(va) == Some(Mark::UNKNOWN)
    }

    pub(super) fn decode_at(&mut self, va: Vaddr, insn: &mut Instruction) -> bool {
        let Some(s) = self.image.exec_at(va) else { return false };
        self.decode_in(s, va, insn)
    }

    /// As [`Explorer::decode_at`], for an address in section `s`.
    #[inline]
    fn decode_in(&mut self, s: usize, va: Vaddr, insn: &mut Instruction) -> bool {
        let d = &mut self.decoders[s];
        d.set_position((va - self.maps[s].va) as usize).expect("the address lies in the section");
        d.set_ip(va.0);
        d.decode_out(insn);
        !insn.is_invalid()
    }

    fn descend(&mut self, from: Vec<Vaddr>) {
        self.work.extend(from);
        let mut insn = Instruction::default();
        while let Some(mut va) = self.work.pop() {
            let Some(s) = self.image.exec_at(va) else { continue };
            let (base, bytes) = (self.maps[s].va, self.image.exec_bytes(s));
            let has = |va: Vaddr| va - base < bytes.len() as u64;
            while has(va) && self.maps[s].list[(va - base) as usize].len().is_none() {
                let at = (va - base) as usize;
                let Some(mark) = self.meet(s, va, &bytes[at..], &mut insn) else { break };
                self.maps[s].record(at, mark);
                if self.softly_from.is_some_and(|root| va >= root && va - root < OUT_OF_STEP) {
                    self.maps[s].set_soft(at);
                }
                let len = usize::from(mark.bytes());
                let (flow, next) = (mark.flow(), va + len as u64);
                if address_sums::loads(&bytes[at..(at + len).min(bytes.len())]) {
                    self.loads.push(va);
                }
                if let Some(t) = mark.target(next, &bytes[at..at + len]) {
                    // Most branches stay in their section.
                    let mark = if has(t) { Some(self.maps[s].list[(t - base) as usize]) } else { self.mark(t) };
                    if mark.is_some_and(|m| m.len().is_none()) {
                        self.work.push(t);
                    }
                }
                let ends = matches!(flow, Flow::Jmp | Flow::IndirectJmp | Flow::Ret | Flow::Stop)
                    // A call at a function's very end does not return: constants may follow.
                    || matches!(flow, Flow::Call | Flow::IndirectCall) && self.is_frame_end(va, next);
                if ends {
                    break;
                }
                va = next;
            }
            // Sections that follow each other without a gap are one stretch of code.
            if !has(va) && self.mark(va).is_some_and(|m| m.len().is_none()) {
                self.work.push(va);
            }
        }
    }

    /// Descends from what may be code, and nothing proves it.
    pub(super) fn descend_softly(&mut self, va: Vaddr) {
        self.softly_from = Some(va);
        self.descend(vec![va]);
        self.softly_from = None;
    }

    /// The mark of the instruction at `va`, in section `s`, where `bytes` begin; notes what it names. None: it is none.
    #[inline]
    fn meet(&mut self, s: usize, va: Vaddr, bytes: &[u8], insn: &mut Instruction) -> Option<Mark> {
        let quick = skeleton(bytes);
        if let Some(quick) = &quick
            && let Some(mark) = self.memo.get(quick.key)
            && (mark.branches() || !self.may_name_code(quick, va, bytes))
        {
            return Some(mark);
        }
        if !self.decode_in(s, va, insn) {
            return None;
        }
        self.note_references(insn);
        let mark = Mark::start(insn, &bytes[..insn.len()]);
        if let Some(quick) = quick {
            self.memo.keep(quick.key, mark);
        }
        Some(mark)
    }

    /// Whether the numbers of an instruction may be an address of code.
    #[inline]
    fn may_name_code(&self, quick: &Skeleton, va: Vaddr, bytes: &[u8]) -> bool {
        let word = |at: u8| i32::from_le_bytes(bytes[usize::from(at)..][..4].try_into().expect("four bytes"));
        if quick.ip_relative {
            let to = va + u64::from(quick.len) + i64::from(word(quick.disp32)) as u64;
            if self.code.contains(&to.0) {
                return true;
            }
        }
        // Extended with its sign or with zeros.
        let held = |at: u8| {
            let value = word(at);
            at != 0 && (self.code.contains(&(i64::from(value) as u64)) || self.code.contains(&u64::from(value as u32)))
        };
        !self.image.pie && (held(quick.imm32) || !quick.ip_relative && held(quick.disp32))
    }

    /// Whether the frame that describes `va` ends at `end`.
    #[inline]
    fn is_frame_end(&mut self, va: Vaddr, end: Vaddr) -> bool {
        let fdes = &self.frames.fdes;
        let i = self.begun;
        // Most calls are of the function that was looked at last.
        let same = (i == 0 || fdes[i - 1].start <= va) && fdes.get(i).is_none_or(|f| va < f.start);
        let i = if same { i } else { fdes.partition_point(|f| f.start <= va) };
        self.begun = i;
        i > 0 && fdes[i - 1].end == end
    }

    /// Addresses in executable sections that the instruction names: by `lea`, as an immediate, or as data it reads.
    fn note_references(&mut self, insn: &Instruction) {
        if insn.is_ip_rel_memory_operand() {
            let t = Vaddr(insn.ip_rel_memory_address());
            if self.image.exec_at(t).is_some() {
                if insn.mnemonic() == Mnemonic::Lea {
                    self.soft.push(t);
                    self.named.push(HeldAddress::new(insn, t));
                } else {
                    self.data_refs.insert(t);
                    self.fixed_reads.push((Vaddr(insn.ip()), t));
                }
            }
        }
        if !self.image.pie && insn.op_count() > 0 && direct_target(insn).is_none() {
            for op in 0..insn.op_count() {
                if matches!(insn.op_kind(op), OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64) {
                    let t = Vaddr(insn.immediate(op));
                    if self.image.exec_at(t).is_some() {
                        // Elsewhere it is more likely a number.
                        if insn.mnemonic() == Mnemonic::Mov && insn.op0_kind() == OpKind::Register {
                            self.named.push(HeldAddress::new(insn, t));
                        }
                        self.soft.push(t);
                    }
                }
            }
            if insn.memory_base() == Register::None && insn.memory_displ_size() >= 4 && !insn.is_ip_rel_memory_operand()
            {
                let t = Vaddr(insn.memory_displacement64());
                if self.image.exec_at(t).is_some() {
                    self.data_refs.insert(t);
                    self.fixed_reads.push((Vaddr(insn.ip()), t));
                }
            }
        }
    }

    /// Decodes what recursion did not reach of each frame's range: code behind jump tables, or data that the
    /// code reads (hand-written assembly), which stays as it is.
    fn sweep_frames(&mut self) {
        for f in &self.frames.fdes {
            let mut va = code_start(f);
            while va < f.end
                && let Some(s) = self.image.exec_at(va)
            {
                let base = self.maps[s].va;
                let end = ((f.end - base) as usize).min(self.maps[s].list.len());
                let mut at = (va - base) as usize;
                while at < end {
                    match self.maps[s].list[at] {
                        Mark::UNKNOWN => {
                            let run = self.maps[s].list[at..end].iter().position(|m| *m != Mark::UNKNOWN);
                            let run_end = run.map_or(end, |n| at + n);
                            let here = base + at as u64;
                            // Constants that the code finds by arithmetic are in nobody's list of references.
                            let read = self.reads_in(here, base + run_end as u64);
                            if read || self.plausible(here).is_none() {
                                at = run_end;
                            } else {
                                self.descend(vec![here]);
                            }
                        }
                        mark => at += mark.len().unwrap_or(1),
                    }
                }
                va = base + at as u64;
            }
        }
    }

    pub(super) fn take_soft_roots(&mut self) {
        self.follow_names();
        self.add_up();
        while let Some(va) = self.soft.pop() {
            match self.mark(va) {
                // Data happens to hold the address of the middle of an instruction: no compiler takes such an address.
                None => {}
                Some(Mark::INSIDE) if !self.is_open(va) => {}
                Some(Mark::UNKNOWN | Mark::INSIDE) => {
                    if self.is_code(va) {
                        self.roots.push(va);
                        self.wanted.insert(va);
                        self.descend_softly(va);
                        self.follow_names();
                    } else {
                        self.refused.insert(va);
                    }
                }
                Some(_) => {
                    self.roots.push(va);
                    self.wanted.insert(va);
                }
            }
            if self.soft.is_empty() {
                self.add_up();
            }
        }
    }

    /// Takes the sums of what new code loads for soft roots.
    fn add_up(&mut self) {
        let known = (self.numbers.len(), self.bases.len());
        let mut row = Vec::new();
        while let Some(&at) = self.loads.get(self.added) {
            self.added += 1;
            let Some((s, offset)) = self.image.exec_at(at).map(|s| (s, (at - self.maps[s].va) as usize)) else {
                continue;
            };
            row.clear();
            self.decode_row(s, offset, 1 + address_sums::AHEAD, &mut row);
            let Some((first, behind)) = row.split_first() else { continue };
            if first.op1_kind() == OpKind::Immediate64 {
                self.numbers.insert(first.immediate64());
            } else if !address_sums::is_added(first, behind) {
                continue;
            }
            let (from, count) = self.maps[s].back(offset, address_sums::BACK);
            row.clear();
            self.decode_row(s, from, count + 1 + address_sums::AHEAD, &mut row);
            for sum in address_sums::sums(&row, !self.image.pie) {
                match sum {
                    address_sums::Sum::Address(va) if self.image.exec_at(va).is_some() => self.soft.push(va),
                    address_sums::Sum::Address(va) if self.bases.len() < address_sums::MAX_BASES => {
                        _ = self.bases.insert(va)
                    }
                    address_sums::Sum::Address(_) => {}
                    address_sums::Sum::Entries(table) => self.take_entries(&table),
                }
            }
        }
        if known != (self.numbers.len(), self.bases.len()) {
            let sums = self.bases.iter().flat_map(|b| self.numbers.iter().map(|n| *b + *n));
            self.soft.extend(sums.filter(|va| self.image.exec_at(*va).is_some()));
        }
    }

    /// Decodes up to `count` known instructions that follow each other from `offset` of section `s` on.
    fn decode_row(&mut self, s: usize, mut offset: usize, count: usize, row: &mut Vec<Instruction>) {
        for _ in 0..count {
            let Some(len) = self.maps[s].list.get(offset).and_then(|m| m.len()) else { return };
            let mut insn = Instruction::default();
            if !self.decode_in(s, self.maps[s].va + offset as u64, &mut insn) {
                return;
            }
            row.push(insn);
            offset += len;
        }
    }

    /// Takes the entries of a table of distances from some code for soft roots, as far as they lead to what may be code. So those of a jump table
    /// that the program might change (Free Pascal's are among its variables), which is none for [`crate::graph::table_search`].
    fn take_entries(&mut self, table: &address_sums::DistanceTable) {
        let variable = table.from == table.at && self.image.is_writable(table.at);
        if self.image.exec_at(table.from).is_none() && !variable {
            return;
        }
        let Some(bytes) = self.image.bytes_at(table.at, address_sums::MAX_ENTRIES * table.width) else { return };
        for va in bytes.chunks_exact(table.width).map(|entry| table.target(entry)) {
            match self.mark(va) {
                None | Some(Mark::INSIDE) => return,
                Some(Mark::UNKNOWN) if self.plausible(va).is_none() => return,
                Some(_) => self.soft.push(va),
            }
        }
    }

    /// Whether a soft root is code.
    fn is_code(&mut self, va: Vaddr) -> bool {
        if self.data_refs.contains(&va) {
            return false;
        }
        let Some(n) = self.plausible(va) else { return false };
        // Pointers in data are to functions, as a rule, and functions without frames may be short.
        let known = n >= CONVINCING
            || self.run_refs.contains(&va)
            || self.image.code_pointers.binary_search(&va).is_ok()
            || !self.among_constants(va);
        if !known {
            self.doubtful.push(va);
        }
        known
    }

    fn reads_in(&self, from: Vaddr, to: Vaddr) -> bool {
        self.data_refs.range(from..to).next().is_some()
    }

    /// Whether code reads something of the bytes around `va` that are not known to be code.
    fn among_constants(&self, va: Vaddr) -> bool {
        let Some(s) = self.image.exec_at(va) else { return false };
        let Marks { va: base, list, .. } = &self.maps[s];
        let at = (va - *base) as usize;
        let known = |m: &Mark| *m != Mark::UNKNOWN;
        let from = list[..at].iter().rposition(known).map_or(0, |k| k + 1);
        let to = list[at..].iter().position(known).map_or(list.len(), |k| at + k);
        self.reads_in(*base + from as u64, *base + to as u64)
    }

    /// Whether what stands at `va` reads as code on all ways up to where they join known code or end; how many instructions.
    /// What stands behind a direct call need not: it may not return.
    pub(super) fn plausible(&mut self, va: Vaddr) -> Option<usize> {
        let mut insn = Instruction::default();
        let mut seen = HashSet::new();
        // (address, whether what stands there must be code)
        let mut work = vec![(va, true)];
        while let Some((va, must)) = work.pop() {
            match self.mark(va) {
                Some(Mark::UNKNOWN | Mark::INSIDE) if seen.contains(&va) => continue,
                Some(Mark::UNKNOWN | Mark::INSIDE) if self.is_open(va) => {}
                Some(Mark::INSIDE) | None if must => return None,
                _ => continue,
            }
            let next = |insn: &Instruction| Vaddr(insn.next_ip());
            let decodes = self.decode_at(va, &mut insn) && !insn.is_privileged() && !odd_in_programs(&insn);
            let target = direct_target(&insn).filter(|_| decodes);
            // Weak functions that are missing are called at 0, behind a test.
            let is_inside = |t: Vaddr| self.mark(t).is_none_or(|m| m == Mark::INSIDE) && !self.is_open(t);
            let leads_inside = target.is_some_and(|t| t.0 != 0 && is_inside(t));
            if !decodes || leads_inside || self.reads_in(va, next(&insn)) {
                if must {
                    return None;
                }
                continue;
            }
            seen.insert(va);
            if seen.len() >= MAX_JUDGED {
                break;
            }
            let flow = flow_of(&insn);
            if let (Some(t), Flow::Jmp | Flow::Cond) = (target.filter(|t| t.0 != 0), flow) {
                work.push((t, must));
            }
            if !matches!(flow, Flow::Jmp | Flow::IndirectJmp | Flow::Ret | Flow::Stop) {
                work.push((next(&insn), must && flow != Flow::Call));
            }
        }
        Some(seen.len())
    }
}
