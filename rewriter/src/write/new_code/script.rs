//! Facts, Cfg, Plan -> [`Script`]: what the emission must know of each instruction, in few bytes.
//!
//! Purpose: the new code is several times the old one's size, so what was found out about the old code is given back before it is made. Most
//! instructions are copied as they are, and of most others only a distance changes, which their own bytes tell: a bit for each says so. Of the rest, for
//! which something is inserted as a rule, the script keeps the decision, what is live before it, and where in its block it stands.

use crate::base::options::Options;
use crate::decode::classify::EmitForm;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::decode::regs::RegSet;
use crate::facts::held::DwordRegs;
use crate::facts::kinds::{Facts, KindId};
use crate::facts::liveness::Liveness;
use crate::facts::red_zone::RedZone;
use crate::graph::cfg::Cfg;
use crate::insert::code::FunctionAlignment;
use crate::plan::checks::{CheckPlan, Planned};
use crate::plan::decision::{Decision, Number};
use crate::read::image::Image;
use crate::write::new_code::linkage;
use iced_x86::{Instruction, Register};

/// How an instruction is emitted.
#[derive(Clone, Copy, Debug)]
pub enum EmitPart {
    /// As it is.
    Copied,
    /// Nothing is inserted, but a distance in it changes, or what runs behind it stands elsewhere.
    Moved,
    Cued(Cue),
}

/// What is known of an instruction that something is inserted for, or that is unusual.
#[derive(Clone, Copy, Debug)]
pub struct Cue {
    /// Live registers and flags, those live behind it too where rsp is tested there; and the bits below.
    bits: u32,
    pub decision: Number,
}

/// Its block begins with it.
const FIRST: u32 = 1 << 24;
/// Its block ends with it.
const LAST: u32 = 1 << 25;
/// A poll stands in front of it.
const POLL: u32 = 1 << 26;
/// The program keeps nothing below rsp.
const RED_ZONE: u32 = 1 << 27;
/// The index, or the base, of its operand holds a number of 32 bits.
const DWORD_INDEX: u32 = 1 << 28;
const DWORD_BASE: u32 = 1 << 29;
const _: () = assert!(RegSet::ALL.0 < FIRST);

impl Cue {
    #[inline]
    pub fn live(self) -> RegSet {
        RegSet(self.bits & RegSet::ALL.0)
    }

    #[inline]
    pub fn is_first(self) -> bool {
        self.bits & FIRST != 0
    }

    #[inline]
    pub fn is_last(self) -> bool {
        self.bits & LAST != 0
    }

    #[inline]
    pub fn polls(self) -> bool {
        self.bits & POLL != 0
    }

    /// The register that an operand of two is less than [`blizzard_contract::PRIVATE_REACH`] bytes away from, as the other one is a small number.
    #[inline]
    pub fn anchor(self, insn: &Instruction) -> Option<Register> {
        let (base, index) = (insn.memory_base(), insn.memory_index());
        if !base.is_gpr64() || !index.is_gpr64() {
            return None;
        }
        if self.bits & DWORD_INDEX != 0 {
            return Some(base);
        }
        (self.bits & DWORD_BASE != 0 && insn.memory_index_scale() == 1).then_some(index)
    }

    /// Whether inserted code may use the red zone.
    #[inline]
    pub fn has_red_zone(self) -> bool {
        self.bits & RED_ZONE != 0
    }
}

/// A list in pieces, so that what has been read can be given back.
pub type Pieces<T> = Vec<Vec<T>>;

/// Entries of a piece.
const PIECE: usize = 1 << 16;

#[inline]
fn add<T>(pieces: &mut Pieces<T>, entry: T) {
    match pieces.last_mut() {
        Some(piece) if piece.len() < PIECE => piece.push(entry),
        _ => {
            let mut piece = Vec::with_capacity(PIECE);
            piece.push(entry);
            pieces.push(piece);
        }
    }
}

/// The script of a module.
pub struct Script {
    /// One bit for each instruction that has a cue.
    pub cued: Vec<u64>,
    /// One bit for each [`EmitPart::Moved`].
    pub moved: Vec<u64>,
    pub cues: Pieces<Cue>,
    /// What the cues' numbers mean.
    pub decisions: Vec<Decision>,
    /// By instruction.
    pub checks: Vec<Planned>,
    /// Where each function goes, and each entry of a linkage table.
    pub places: Vec<(InsnId, FunctionAlignment)>,
    /// Loads of jump tables, with the tables' indices; sorted.
    pub loads: Vec<(InsnId, u32)>,
    /// Instructions of each block, where blocks are counted.
    pub lengths: Vec<u32>,
}

impl Script {
    /// Writes it.
    pub fn write(input: &ScriptInput, plan: &mut CheckPlan) -> Script {
        let ScriptInput { image, insns, cfg, facts, options, .. } = *input;
        let mut loads: Vec<(InsnId, u32)> = cfg.tables.iter().enumerate().map(|(i, t)| (t.load, i as u32)).collect();
        loads.sort();
        // Jumps that share a load share its table.
        loads.dedup_by_key(|l| l.0);
        let mut script = Script {
            cued: vec![0; insns.len().div_ceil(64)],
            moved: vec![0; insns.len().div_ceil(64)],
            cues: Vec::new(),
            decisions: plan.decisions.distinct.clone(),
            checks: std::mem::take(&mut plan.checks),
            places: places(image, insns, cfg),
            loads: Vec::new(),
            lengths: Vec::new(),
        };
        let forms: Vec<EmitForm> = facts.kinds().iter().map(|k| EmitForm::of(&k.sample)).collect();
        let quiet: Vec<bool> = script.decisions.iter().map(Decision::is_quiet).collect();
        let mut strips = plan.strips.iter().peekable();
        let mut load = loads.iter().map(|l| l.0);
        let mut next_load = load.next();
        // Numbers of 32 bits matter to what is inserted only.
        let inserts = options.inserts();
        let operand = |kind: KindId| {
            let sample = &facts.kinds()[kind.ix()].sample;
            (sample.memory_base(), sample.memory_index())
        };
        let mut live = Vec::new();
        for b in cfg.ids() {
            live.clear();
            let mut dwords = input.dwords.at_start(b);
            let block = &cfg.blocks[b.ix()];
            let strip = strips.next_if(|s| s.first == block.first).is_some();
            let poll = plan.polls.of(b);
            if options.blocks {
                script.lengths.push(block.stop.0 - block.first.0);
            }
            for (k, i) in (block.first.0..block.stop.0).enumerate() {
                let id = InsnId(i);
                let kind = facts.kind(id);
                let polls = poll == Some(id);
                let (first, last) = (k == 0, i + 1 == block.stop.0);
                let loads_table = next_load == Some(id);
                if loads_table {
                    next_load = load.next();
                }
                let decision = plan.decisions.number(id);
                let tests_stack = decision.tests_stack();
                let quiet = quiet[decision.ix()] && !polls && !loads_table && !tests_stack && !options.blocks;
                let form = forms[kind.ix()];
                let bit = 1 << (i % 64);
                let in_place = || !last || falls_on(insns, id);
                if quiet && form == EmitForm::Plain && in_place() && (!strip || !first && !last) {
                    // Copied as it is.
                } else if quiet && !strip && form != EmitForm::Other && leads_to_code(insns, id) {
                    script.moved[i as usize / 64] |= bit;
                } else {
                    if live.is_empty() {
                        input.live.before_each(cfg, facts, b, &mut live);
                    }
                    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
                    let behind = live.get(k + 1).copied().unwrap_or_else(|| input.live.live_out(b));
                    let bits = live[k].0
                        | flag(tests_stack, behind.0)
                        | flag(first, FIRST)
                        | flag(last, LAST)
                        | flag(polls, POLL)
                        | flag(input.red_zone.is_free(b), RED_ZONE)
                        | flag(dwords.meets(RegSet::of(operand(kind).1)), DWORD_INDEX)
                        | flag(dwords.meets(RegSet::of(operand(kind).0)), DWORD_BASE);
                    script.cued[i as usize / 64] |= bit;
                    add(&mut script.cues, Cue { bits, decision });
                }
                if inserts {
                    dwords = input.dwords.behind(b, facts.dwords(id), dwords);
                }
            }
        }
        script.loads = loads;
        script
    }
}

/// Whether what runs behind the last instruction of a block, if anything, is what follows it.
#[inline]
fn falls_on(insns: &Insns, id: InsnId) -> bool {
    match insns.flow(id) {
        Flow::Jmp | Flow::IndirectJmp | Flow::Ret | Flow::Stop => true,
        Flow::Next | Flow::Cond | Flow::Call | Flow::IndirectCall => insns.next(id) == Some(InsnId(id.0 + 1)),
    }
}

/// Whether an instruction that branches directly leads to decoded code, and is no call that only wants its own address.
#[inline]
fn leads_to_code(insns: &Insns, id: InsnId) -> bool {
    match insns.flow(id) {
        Flow::Cond | Flow::Jmp => insns.target(id).is_some(),
        Flow::Call => insns.target(id).is_some_and(|to| insns.va(to) != insns.end(id)),
        Flow::Next | Flow::IndirectJmp | Flow::IndirectCall | Flow::Ret | Flow::Stop => true,
    }
}

/// How each instruction is emitted, in order.
pub fn parts(cued: Vec<u64>, moved: Vec<u64>, cues: Pieces<Cue>) -> impl Iterator<Item = EmitPart> {
    let mut cues = cues.into_iter().flatten();
    (0..64 * cued.len()).map(move |i| {
        let has = |bits: &[u64]| bits[i / 64] >> (i % 64) & 1 != 0;
        if has(&cued) {
            EmitPart::Cued(cues.next().expect("one for each bit"))
        } else if has(&moved) {
            EmitPart::Moved
        } else {
            EmitPart::Copied
        }
    })
}

/// Everything the [`Script`] is written from.
#[derive(Clone, Copy)]
pub struct ScriptInput<'x> {
    pub image: &'x Image<'x>,
    pub insns: &'x Insns,
    pub cfg: &'x Cfg,
    pub facts: &'x Facts,
    pub dwords: &'x DwordRegs,
    pub live: &'x Liveness,
    pub red_zone: &'x RedZone,
    pub options: &'x Options,
}

/// Where each function goes, and each entry of a linkage table.
pub(super) fn places(image: &Image, insns: &Insns, cfg: &Cfg) -> Vec<(InsnId, FunctionAlignment)> {
    let mut heads = cfg.ids().filter(|b| cfg.loop_head[b.ix()]).map(|b| cfg.blocks[b.ix()].first).peekable();
    let ends = insns.starts.iter().skip(1).copied().chain([InsnId(insns.len() as u32)]);
    let place = |(&start, end): (&InsnId, InsnId)| {
        let mut has_loop = false;
        while let Some(head) = heads.next_if(|&head| head < end) {
            has_loop |= head >= start;
        }
        (start, if has_loop { FunctionAlignment::like(insns.va(start)) } else { FunctionAlignment::ALIGNED })
    };
    let mut places: Vec<_> = insns.starts.iter().zip(ends).map(place).collect();
    places.extend(linkage::entries(image, insns).into_iter().map(|entry| (entry, FunctionAlignment::ALIGNED)));
    places.sort_by_key(|place| place.0);
    places.dedup_by_key(|place| place.0);
    places
}
