//! Image -> [`Insns`]: every instruction that may run, in the order in which it will be emitted.
//!
//! Purpose: what the stages behind ask about decoded code. [`crate::decode::explore::Explorer`] finds it; overlapping instructions are both kept: glibc jumps
//! over `lock` prefixes.
//!
//! Invariants: [`Insns`] first has non-overlapping instructions by rising address (the main run), then the overlapping
//! ones; an address appears once; every direct branch into decoded code names its target by index.
//! Source: design section 3.1.

use crate::base::addresses::Vaddr;
use crate::base::collections::grouped::Grouped;
use crate::base::collections::ranked_bits::members_of;
use crate::decode::address_index::AddressIndex;
use crate::decode::insn::{Flow, InsnId, Label};
use crate::decode::insn_list::{Insn, List};
use crate::decode::marks::Mark;
use crate::read::image::Image;
use iced_x86::{Decoder, DecoderOptions, Instruction};

/// All instructions, and where control may come in from outside.
#[derive(Debug)]
pub struct Insns {
    pub base: Vaddr,
    pub(super) list: List,
    /// How many are the main run.
    pub main: usize,
    /// Plausible indirect targets, sorted: their old addresses get springboards.
    pub roots: Vec<InsnId>,
    /// Starts of functions (frames, symbols): aligned in the output.
    pub starts: Vec<InsnId>,
    /// Those of `starts` where a part of a function begins that its compiler put elsewhere: frames say so, and nothing names or calls
    /// them. Only jumps of their own functions lead there. Sorted.
    pub fragments: Vec<InsnId>,
    /// Instructions whose addresses code puts into registers, and that are no starts. Sorted.
    pub labels: Vec<Label>,
    /// Addresses that code both reads from and jumps to, and short pieces among constants that code only names: nothing tells
    /// whether they are code.
    pub contested: Vec<Vaddr>,
    /// Addresses in executable sections that code reads as data, or that something names though no code begins there; sorted.
    pub data: Vec<Vaddr>,
    /// Instructions that read one constant address, inside decoded code.
    pub read_code: Vec<InsnId>,
    /// Bytes of executable sections that are not decoded as code.
    pub undecoded_bytes: u64,
    pub(super) index: AddressIndex,
    /// One bit for each instruction: it is of the main run, and what runs after it when it does not branch is the next one of that.
    pub(super) falls: Vec<u64>,
}

impl Insns {
    /// The instruction that starts at `va`.
    #[inline]
    pub fn at(&self, va: Vaddr) -> Option<InsnId> {
        self.index.at(va)
    }

    /// Whether a function begins here, and not a part of one that stands elsewhere.
    pub fn starts_function(&self, id: InsnId) -> bool {
        self.starts.binary_search(&id).is_ok() && self.fragments.binary_search(&id).is_err()
    }

    /// How many instructions of the main run start before `va`.
    #[inline]
    pub fn main_before(&self, va: Vaddr) -> usize {
        self.index.main_before(va)
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// All, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Insn> {
        self.list.iter()
    }

    /// Offset of an instruction from [`Image::base`].
    #[inline]
    pub fn offset(&self, id: InsnId) -> u32 {
        self.list.at(id)
    }

    /// Its bytes.
    #[inline]
    pub fn length(&self, id: InsnId) -> u8 {
        self.list.length(id)
    }

    /// How control leaves it.
    #[inline]
    pub fn flow(&self, id: InsnId) -> Flow {
        self.list.flow(id)
    }

    /// Target of a direct branch, where it is decoded code.
    #[inline]
    pub fn target(&self, id: InsnId) -> Option<InsnId> {
        self.list.target(id)
    }

    /// Where an instruction stands in the input.
    #[inline]
    pub fn va(&self, id: InsnId) -> Vaddr {
        self.base + u64::from(self.list.at(id))
    }

    /// The address behind an instruction.
    #[inline]
    pub fn end(&self, id: InsnId) -> Vaddr {
        self.va(id) + u64::from(self.list.length(id))
    }

    /// The instruction that runs after `id` when it does not branch. None: it never falls through, or into nothing decoded.
    #[inline]
    pub fn next(&self, id: InsnId) -> Option<InsnId> {
        if self.falls_on(id) { Some(InsnId(id.0 + 1)) } else { self.next_elsewhere(id) }
    }

    #[inline]
    fn falls_on(&self, id: InsnId) -> bool {
        self.falls[id.ix() / 64] >> (id.ix() % 64) & 1 != 0
    }

    fn next_elsewhere(&self, id: InsnId) -> Option<InsnId> {
        if self.list.marks()[id.ix()].may_go_on() { self.at(self.end(id)) } else { None }
    }

    /// Direct branches to decoded code, in order, and where they lead.
    #[inline]
    pub fn branches(&self) -> impl Iterator<Item = (InsnId, InsnId)> {
        self.list.branches()
    }

    /// Those behind which control may do something else than go on to the next one in the list, ascending; some of those that overlap
    /// others are named though it may not.
    #[inline]
    pub fn ends(&self) -> impl Iterator<Item = InsnId> {
        let marks = self.list.marks().chunks(64).zip(&self.falls).enumerate();
        marks.flat_map(|(k, (marks, falls))| {
            let other = |bits, (i, mark): (usize, &Mark)| bits | u64::from(!mark.only_goes_on()) << i;
            let valid = u64::MAX >> (64 - marks.len());
            let ends = marks.iter().enumerate().fold(!falls & valid, other);
            members_of(ends).map(move |i| InsnId((64 * k + i) as u32))
        })
    }

    /// Indices of the main run's instructions that start in `[start, stop)`.
    #[inline]
    pub fn main_range(&self, start: Vaddr, stop: Vaddr) -> std::ops::Range<usize> {
        self.main_before(start)..self.main_before(stop)
    }

    /// Decodes an instruction again.
    pub fn decode(&self, image: &Image, id: InsnId) -> Instruction {
        let va = self.va(id);
        let bytes = image.bytes_at(va, usize::from(self.list.length(id))).expect("decoded code lies in the file");
        Decoder::with_ip(64, bytes, va.0, DecoderOptions::NONE).decode()
    }
}

/// Direct branches and calls by target: every fifth instruction or so is one.
pub struct Sources(Grouped);

impl Sources {
    /// Those of a whole module.
    pub fn new(insns: &Insns) -> Sources {
        Sources(Grouped::new(insns.len(), || insns.branches().map(|(from, to)| (to.0, from.0))))
    }

    /// What branches to `id`, ascending.
    #[inline]
    pub fn of(&self, id: InsnId) -> impl Iterator<Item = InsnId> {
        self.0.of(id.ix()).iter().map(|i| InsnId(*i))
    }
}
