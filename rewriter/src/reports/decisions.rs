//! Analysed -> [`DecisionsReport`]: each decision of a rewrite, with its reason and with what it inserts, without writing anything.
//!
//! Input: a program, and which function is asked for. Output: data only; the command line renders it. **Invariants**: the decisions are those that the
//! emission follows ([`crate::plan::decision`]), and the sequences are those that it emits; nothing is decided here. Registers and flags are those that
//! the emitted bytes write.

use crate::base::addresses::Vaddr;
use crate::base::error::{Error, Result};
use crate::base::options::{Options, Poll};
use crate::decode::insn::InsnId;
use crate::decode::regs::{RegSet, written_by};
use crate::facts::access::InsnAccess;
use crate::insert::block_recorder::{InsertedMark, Recorder, SequencePlace};
use crate::insert::code::EmittedCode;
use crate::pipeline::{Analysed, analyse};
use crate::plan::checks::{CheckPlan, Planned, PollReason};
use crate::plan::decision::{Decision, DecisionClass, Reason};
use crate::reports::inspect::word;
use crate::write::new_code::emit::{self, Pass};
use crate::write::new_code::versions::Versions;
use iced_x86::{
    Decoder, DecoderOptions, Formatter, Instruction, InstructionInfoFactory, IntelFormatter, Mnemonic, Register,
};
use object::{Object, ObjectSymbol};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Of the JSON form: a field that goes or changes its meaning makes a next one.
pub const VERSION: u32 = 1;

/// What was decided.
#[derive(Debug, Clone, Serialize)]
pub struct DecisionsReport {
    pub version: u32,
    pub program: String,
    /// Of the functions below.
    pub totals: Totals,
    /// In the order of their addresses.
    pub functions: Vec<FunctionDecisions>,
}

/// How often each thing was decided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Accesses with a check.
    pub checked: u64,
    /// String instructions, gathers and scatters: by gates.
    pub gates: u64,
    /// By reason.
    pub unchecked: BTreeMap<String, u64>,
    pub refused: u64,
    /// Those that loops with tests for several iterations make at their tests are not among them.
    pub polls: u64,
    pub strips: u64,
    pub stack_tests: u64,
    pub counters: u64,
}

/// One function, or a stretch of code that no symbol names.
#[derive(Debug, Clone, Serialize)]
pub struct FunctionDecisions {
    pub name: String,
    /// Link-time address.
    pub address: u64,
    pub bytes: u64,
    pub points: Vec<Point>,
}

/// What is asked at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointKind {
    Load,
    Store,
    /// Both, by one instruction.
    Update,
    /// Both, with LOCK or by `xchg`.
    Atomic,
    String,
    Gather,
    Scatter,
    /// push, pop, call, ret and the like.
    ImplicitStack,
    /// What cannot be told.
    Unknown,
    /// A function begins.
    Entry,
    /// A branch leads back to it.
    BackEdge,
    /// It ends with what may lead anywhere, or closes a circle of calls.
    Edge,
    /// It makes rsp from something else.
    StackPointer,
    /// A counted block begins.
    Block,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Checked,
    /// The runtime performs or prepares it.
    Gate,
    Unchecked,
    Refused,
    Poll,
    NoPoll,
    /// Tags are tested for several iterations.
    Strip,
    StackTest,
    Counter,
}

/// A place where something was decided.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    pub address: u64,
    pub instruction: String,
    pub point: PointKind,
    pub decision: Answer,
    /// Why an access is unchecked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The same for people; or how it is checked, or why something else is inserted or not.
    pub why: String,
    /// The instruction whose check covers it, or the head of its loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covered_by: Option<u64>,
    /// What the check tests, where that is not its access alone: bytes, from a displacement on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<Tests>,
    /// What is inserted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
}

/// What a check tests.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Tests {
    pub displacement: i32,
    pub bytes: u8,
    /// Whether a miss acquires what other accesses rely on, too.
    pub acquires_more: bool,
}

/// An inserted sequence.
#[derive(Debug, Clone, Serialize)]
pub struct Sequence {
    /// In the hot code.
    pub instructions: u32,
    pub hot_bytes: u32,
    /// Of its stub; the first of those that share a tail has it.
    pub cold_bytes: u32,
    /// What it uses, and of these what is live, so that it saves it.
    pub registers: Vec<String>,
    pub saved: Vec<String>,
    pub flags: Flags,
}

/// What a sequence does with the status flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flags {
    Untouched,
    /// It changes them; they are dead.
    Dead,
    /// It changes them, and puts them back.
    Saved,
}

/// Decides as a rewrite does; of all functions, or of those that `function` names.
///
/// # Errors
/// What is wrong with the file as a whole, or no function has that name or address; refused instructions are part of the result.
pub fn decisions(input: &[u8], name: &str, options: &Options, function: Option<&str>) -> Result<DecisionsReport> {
    let analysed = analyse(input, name)?;
    let asked = function.map(|f| addresses(input, name, f)).transpose()?;
    let registers = analysed.registers(true, options.red_zone);
    let mut plan = analysed.plan(&registers, options);
    let planned: HashMap<InsnId, Planned> = plan.checks.iter().map(|p| (p.id, *p)).collect();
    let script = analysed.script(&registers, &mut plan, options);
    let recorder = Recorder::new(options.blocks, true);
    let Analysed { image, insns, .. } = &analysed;
    let pass = Pass { script, strips: &plan.strips, full: false };
    let (versions, tables) = (Versions::one(insns), analysed.cfg.tables.len());
    let code = emit::emit((image, insns), &versions, vec![pass], tables, options, (plan.fuel, recorder));
    let mut marks: HashMap<InsnId, Vec<&InsertedMark>> = HashMap::new();
    code.recorder.hot_marks().for_each(|m| marks.entry(m.insn).or_default().push(m));
    let refused = code.refusals.iter().map(|r| (r.at, r.reason.as_str())).collect();
    let source = Source { analysed: &analysed, options, plan: &plan, planned, code: &code, marks, refused };
    let mut formatter = IntelFormatter::new();
    let mut totals = Totals::default();
    let mut functions = Vec::new();
    let mut first = InsnId(0);
    while first.ix() < insns.len() {
        let next = insns.starts.partition_point(|start| *start <= first);
        let stop = insns.starts.get(next).copied().unwrap_or(InsnId(insns.len() as u32));
        let (from, to) = (insns.va(first), insns.end(InsnId(stop.0 - 1)));
        if asked.as_ref().is_none_or(|list| list.iter().any(|at| (from..to).contains(at))) {
            let (mut bytes, mut points) = (0, Vec::new());
            for id in (first.0..stop.0).map(InsnId) {
                let insn = insns.decode(image, id);
                for point in source.points(id, &insn, id == first) {
                    let mut instruction = String::new();
                    formatter.format(&insn, &mut instruction);
                    totals.add(&point);
                    points.push(Point { address: insns.va(id).0, instruction, ..point });
                }
                bytes += u64::from(insns.length(id));
            }
            let place = image.place(from);
            let name = demangled(place.strip_suffix("+0x0").unwrap_or(&place)).into_owned();
            functions.push(FunctionDecisions { name, address: from.0, bytes, points });
        }
        first = stop;
    }
    if functions.is_empty() && asked.is_some() {
        return Err(unknown(name, function.unwrap_or_default()));
    }
    Ok(DecisionsReport { version: VERSION, program: name.to_owned(), totals, functions })
}

/// The places that a name, plain or mangled, or an address stands for.
fn addresses(input: &[u8], program: &str, function: &str) -> Result<Vec<Vaddr>> {
    if let Some(digits) = function.strip_prefix("0x") {
        let at = u64::from_str_radix(digits, 16).map_err(|_| unknown(program, function))?;
        return Ok(vec![Vaddr(at)]);
    }
    let elf = object::File::parse(input).map_err(|e| Error::new(format!("{program}: cannot be read")).because(e))?;
    let named = |symbol: &str| {
        let plain = demangled(symbol);
        symbol == function || plain.strip_prefix(function).is_some_and(|rest| rest.is_empty() || rest.starts_with('('))
    };
    let symbols = elf.symbols().chain(elf.dynamic_symbols()).filter(|s| s.is_definition());
    let found: Vec<Vaddr> = symbols.filter(|s| s.name().is_ok_and(named)).map(|s| Vaddr(s.address())).collect();
    if found.is_empty() { Err(unknown(program, function)) } else { Ok(found) }
}

fn unknown(program: &str, function: &str) -> Error {
    Error::new(format!("{program}: has no function {function}"))
        .help("give a name as `blizzard inspect` lists it, or an address in the function, such as 0x1040")
}

/// A symbol's name as its source has it. (Names that are not mangled may read as types: `f` is `float`.)
pub fn demangled(symbol: &str) -> Cow<'_, str> {
    let mangled = symbol.starts_with("_Z") || symbol.starts_with("_R");
    if mangled { addr2line::demangle_auto(Cow::Borrowed(symbol), None) } else { Cow::Borrowed(symbol) }
}

/// A text with the symbols in it as sources have them.
pub fn with_demangled(text: &str) -> String {
    let is_of_symbol = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
    let mut told = String::new();
    for part in text.split_inclusive(|c| !is_of_symbol(c)) {
        let symbol = part.trim_end_matches(|c| !is_of_symbol(c));
        told += &demangled(symbol);
        told += &part[symbol.len()..];
    }
    told
}

/// What everything is told from.
struct Source<'x, 'a> {
    analysed: &'x Analysed<'a>,
    options: &'x Options,
    plan: &'x CheckPlan,
    planned: HashMap<InsnId, Planned>,
    code: &'x EmittedCode,
    marks: HashMap<InsnId, Vec<&'x InsertedMark>>,
    refused: HashMap<Vaddr, &'x str>,
}

impl Source<'_, '_> {
    /// All points of an instruction, but for address and text; `entry`: its function begins with it.
    fn points(&self, id: InsnId, insn: &Instruction, entry: bool) -> Vec<Point> {
        let (cfg, plan, counters) = (&self.analysed.cfg, self.plan, &self.code.recorder.counters);
        let b = cfg.block_of(id);
        let first = cfg.blocks[b.ix()].first;
        let strip = plan.strips.binary_search_by_key(&first, |s| s.first).ok().map(|k| &plan.strips[k]);
        let polls = plan.polls.get(b);
        let mut out = Vec::new();
        let mut tell = |point, decision, why: &str, place: Option<&SequencePlace>| {
            let sequence = place.map(|place| self.sequence(place));
            out.push(Point { why: why.to_owned(), sequence, ..Point::new(point, decision) });
        };
        if entry {
            tell(PointKind::Entry, Answer::NoPoll, "loops poll, and calls that close a circle", None);
        }
        if let Ok(k) = counters.binary_search_by_key(&id, |c| c.0) {
            tell(PointKind::Block, Answer::Counter, "blocks are counted", Some(&counters[k].1));
        }
        if let Some(strip) = strip.filter(|s| s.first == id) {
            let copy = if strip.copy.is_some() { "; its copy has no checks" } else { "" };
            let why = format!("tests for {} iterations, and polls{copy}", strip.iterations);
            tell(PointKind::BackEdge, Answer::Strip, &why, self.place(id, DecisionClass::Strip));
        } else if first == id && cfg.loop_head[b.ix()] && polls.is_none() {
            let asked = self.options.poll == Poll::Backedge;
            let why = if asked { "each cycle has another poll" } else { "not asked for" };
            tell(PointKind::BackEdge, Answer::NoPoll, why, None);
        }
        if let Some((_, why)) = polls.filter(|poll| poll.0 == id && strip.is_none()) {
            let (point, why) = match why {
                PollReason::Loop => (PointKind::BackEdge, "each cycle polls"),
                PollReason::UnknownTarget => (PointKind::Edge, "what follows may lead anywhere"),
                PollReason::Recursion => (PointKind::Edge, "functions call each other in a circle"),
            };
            tell(point, Answer::Poll, why, self.place(id, DecisionClass::Poll));
        }
        let tests_stack = plan.decisions.number(id).tests_stack();
        out.extend(self.access(id, insn));
        if tests_stack {
            let sequence = self.place(id, DecisionClass::StackTest).map(|place| self.sequence(place));
            let why = "it may come from anywhere".to_owned();
            out.push(Point { why, sequence, ..Point::new(PointKind::StackPointer, Answer::StackTest) });
        }
        out
    }

    /// Where a sequence of that class stands.
    fn place(&self, id: InsnId, class: DecisionClass) -> Option<&SequencePlace> {
        self.marks.get(&id)?.iter().find(|m| m.class == class).map(|m| &m.place)
    }

    /// What is decided for the instruction's access, or its two.
    fn access(&self, id: InsnId, insn: &Instruction) -> Vec<Point> {
        let Analysed { insns, facts, .. } = self.analysed;
        let plan = self.plan;
        let mut point = Point::new(asked(&facts.kinds()[facts.kind(id).ix()].access, insn), Answer::Checked);
        if let Some(why) = self.refused.get(&insns.va(id)) {
            return vec![Point { decision: Answer::Refused, why: (*why).to_owned(), ..point }];
        }
        let mark = self.marks.get(&id).and_then(|marks| marks.iter().find(|m| m.class.is_access()));
        point.sequence = mark.map(|m| self.sequence(&m.place));
        match plan.decisions.get(id) {
            Decision::Nothing | Decision::Refused(_) => return Vec::new(),
            Decision::Unchecked(reason) => {
                (point.decision, point.reason, point.why) = (Answer::Unchecked, Some(reason), reason.text().to_owned());
                let claim = plan.claims.binary_search_by_key(&id, |c| c.id).ok().map(|k| &plan.claims[k]);
                let head = || plan.strips[..plan.strips.partition_point(|s| s.first <= id)].last().map(|s| s.first);
                let cover = if reason == Reason::Strip { head() } else { claim.and_then(|c| c.cover) };
                point.covered_by = cover.map(|id| insns.va(id).0);
            }
            Decision::String { .. } | Decision::Vsib(_) => {
                (point.decision, point.why) = (Answer::Gate, "the runtime tests ranges".to_owned());
            }
            Decision::Check(_) => {
                let why = match mark {
                    Some(m) if m.place.screened => "screen, then tag",
                    Some(m) if m.class == DecisionClass::Range => "range",
                    _ => "tag",
                };
                point.why = why.to_owned();
                let tests =
                    |p: &Planned| Tests { displacement: p.lo, bytes: p.bytes, acquires_more: p.chain.is_some() };
                point.tests = self.planned.get(&id).map(tests);
            }
            Decision::CheckTwo(..) => {
                point.why = "tag".to_owned();
                let second = Point { point: PointKind::Store, sequence: None, ..point.clone() };
                return vec![Point { point: PointKind::Load, ..point }, second];
            }
        }
        vec![point]
    }

    /// What an inserted sequence is, as its bytes say.
    fn sequence(&self, place: &SequencePlace) -> Sequence {
        let bytes = &self.code.hot.bytes[place.hot.start as usize..place.hot.end as usize];
        let mut factory = InstructionInfoFactory::new();
        let (mut instructions, mut written, mut flags) = (0, RegSet::NONE, false);
        for insn in Decoder::new(64, bytes, DecoderOptions::NONE).iter() {
            instructions += 1;
            flags |= insn.rflags_modified() != 0;
            written |= written_by(factory.info(&insn));
        }
        let used = written.without(RegSet::RSP);
        let name = |r: u8| format!("{:?}", Register::RAX + u32::from(r)).to_lowercase();
        let names = |set: RegSet| set.gprs().map(name).collect();
        Sequence {
            instructions,
            hot_bytes: place.hot.end - place.hot.start,
            cold_bytes: place.cold.end - place.cold.start,
            registers: names(used),
            saved: names(used & place.live),
            flags: match (flags, place.live.meets(RegSet::FLAGS)) {
                (false, _) => Flags::Untouched,
                (true, false) => Flags::Dead,
                (true, true) => Flags::Saved,
            },
        }
    }
}

impl Totals {
    fn add(&mut self, point: &Point) {
        let count = match point.decision {
            Answer::Checked => &mut self.checked,
            Answer::Gate => &mut self.gates,
            Answer::Unchecked => self.unchecked.entry(word(&point.reason)).or_default(),
            Answer::Refused => &mut self.refused,
            Answer::Poll => &mut self.polls,
            Answer::Strip => &mut self.strips,
            Answer::StackTest => &mut self.stack_tests,
            Answer::Counter => &mut self.counters,
            Answer::NoPoll => return,
        };
        *count += 1;
    }
}

impl Point {
    fn new(point: PointKind, decision: Answer) -> Point {
        let (instruction, reason, why, covered_by, tests, sequence) = Default::default();
        Point { address: 0, instruction, point, decision, reason, why, covered_by, tests, sequence }
    }
}

/// What an instruction does to memory.
fn asked(access: &InsnAccess, insn: &Instruction) -> PointKind {
    match access {
        InsnAccess::One(p) if p.load && p.store => {
            let atomic = insn.has_lock_prefix() || insn.mnemonic() == Mnemonic::Xchg;
            if atomic { PointKind::Atomic } else { PointKind::Update }
        }
        InsnAccess::One(p) if p.store => PointKind::Store,
        InsnAccess::One(_) => PointKind::Load,
        InsnAccess::Two(..) => PointKind::Update,
        InsnAccess::String { .. } => PointKind::String,
        InsnAccess::Vsib(d) if d.access == 2 => PointKind::Scatter,
        InsnAccess::Vsib(_) => PointKind::Gather,
        InsnAccess::ImplicitStack => PointKind::ImplicitStack,
        InsnAccess::None | InsnAccess::Unknown(_) => PointKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_in_a_text_are_told_as_sources_have_them() {
        let told = with_demangled("a thread, started by _ZN2ns4workEi+0x8e: not _Z, nor main+0x1 (/tmp/_Zx/f)");
        assert_eq!(told, "a thread, started by ns::work(int)+0x8e: not _Z, nor main+0x1 (/tmp/_Zx/f)");
    }
}
