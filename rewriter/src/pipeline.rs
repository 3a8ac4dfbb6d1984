//! The stages, in order.
//!
//! Input: the bytes of a program or library, [`Options`], for a program its runtime and where its libraries are. Output: the rewritten file in a [`OutputSink`],
//! and a [`Report`]; or all refusals in one error. **Invariant**: each stage's data are given back when the last reader is done: a compiler has five
//! million instructions.

use crate::base::addresses::Vaddr;
use crate::base::error::{Error, Refusal, Result};
use crate::base::learnt::LearntSites;
use crate::base::memory::InputBytes;
use crate::base::options::{Options, Poll};
use crate::base::output_file::{self, OutputSink};
use crate::decode::explore::Explorer;
use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::decode::reader::Reader;
use crate::facts::held::{DwordRegs, StackRegs, is_got_jump};
use crate::facts::kinds::Facts;
use crate::facts::liveness::Liveness;
use crate::facts::red_zone::RedZone;
use crate::facts::{conventions, stack_depth};
use crate::graph::cfg::{Cfg, End};
use crate::graph::computed_targets::Computed;
use crate::graph::jump_table::JumpTable;
use crate::graph::table_search;
use crate::insert::block_recorder::{self, Recorder};
use crate::insert::code::EmittedCode;
use crate::insert::guard;
use crate::plan::checks::{self, CheckPlan, PassCounts, Polls};
use crate::plan::decision::{Decision, Decisions};
use crate::plan::loop_tests::Strip;
use crate::plan::{passes, polls, strips};
use crate::read::elf::{self, identify};
use crate::read::frames::{self, frame_input};
use crate::read::image::{Image, ProgramKind};
use crate::read::rewritten::is_rewritten;
use crate::write::file::{self, LibraryRecord, Program};
use crate::write::new_addresses;
use crate::write::new_code::emit::Pass;
use crate::write::new_code::script::{self, Script};
use crate::write::new_code::versions::Versions;
use crate::write::new_code::{emit, layout};
use crate::write::runtime_blob::Blob;
use iced_x86::{Instruction, Register};

/// What a rewrite produced in memory.
#[derive(Debug)]
pub struct Rewritten {
    /// The output file's bytes.
    pub bytes: Vec<u8>,
    pub report: Report,
}

/// What is asked of a rewrite: options, and what runs have learnt of the file.
#[derive(Clone, Copy, Debug)]
pub struct Request<'x> {
    pub options: &'x Options,
    pub learnt: &'x LearntSites,
}

impl<'x> From<&'x Options> for Request<'x> {
    fn from(options: &'x Options) -> Self {
        Request { options, learnt: LearntSites::NONE }
    }
}

/// Figures of one rewrite.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Report {
    pub text_bytes: u64,
    pub output_bytes: u64,
    pub new_code_bytes: u64,
    pub instructions: usize,
    pub checks: u64,
    pub polls: u64,
    /// Tests of a stack pointer that was taken from something else.
    pub stack_tests: u64,
    pub string_gates: u64,
    pub vsib_gates: u64,
    /// Sequences that save the status flags, and that spill a register; of these, those that keep it in the red zone.
    pub flag_saves: u64,
    pub spills: u64,
    pub red_zone: u64,
    /// Checks that ask first whether the address can be shared memory.
    pub screens: u64,
    /// Accesses that runs have learnt of and that plain code tests, and those that it does not: no instruction of a tested class begins there.
    pub learnt: u64,
    pub learnt_untested: u64,
    /// What the optimiser's passes did.
    pub optimiser: PassCounts,
    pub jump_tables: usize,
    pub unresolved_jumps: usize,
    pub springboards: usize,
    /// Exported functions that are known by their new addresses.
    pub direct_exports: usize,
    /// Functions, and labels of functions, that words of data name by their new addresses.
    pub direct_words: usize,
    /// Of these, those of two jumps, where five bytes would have covered a possible target.
    pub short_springboards: usize,
    /// Plausible indirect targets without room for a springboard: reached by a trap.
    pub crowded_targets: usize,
    /// Bytes of executable sections that were not decoded and stay as they are.
    pub undecoded_bytes: u64,
    /// Of these, what reads as code all the same, and in how many places: should anything lead there, it runs unchecked.
    pub suspect_bytes: u64,
    pub suspect_places: usize,
    /// Instructions that read code as data: what they read are trap bytes.
    pub code_read_as_data: usize,
    pub frames_dropped: usize,
    /// Bytes of addresses that the new segments take.
    pub new_span: u64,
}

/// Everything known of a module before code is emitted.
pub struct Analysed<'a> {
    pub image: Image<'a>,
    pub insns: Insns,
    pub cfg: Cfg,
    pub computed: Computed,
    pub facts: Facts,
    /// Where functions begin and end, as the frames say.
    pub frames: Vec<(Vaddr, Vaddr)>,
}

/// What is known of registers at each block, where something is inserted.
pub struct RegisterFacts {
    stack: StackRegs,
    live: Liveness,
    /// Solved where sequences may use it.
    red_zone: RedZone,
}

impl Analysed<'_> {
    /// Finds what registers hold; `asked`: whether anybody asks. Only inserted sequences and reports do. `red_zone`: whether sequences may keep theirs there.
    pub fn registers(&self, asked: bool, red_zone: bool) -> RegisterFacts {
        let Analysed { image, insns, cfg, computed, facts, frames } = self;
        if !asked {
            return RegisterFacts {
                stack: StackRegs::least(cfg),
                live: Liveness::unknown(cfg),
                red_zone: RedZone::default(),
            };
        }
        let conventions = conventions::find(image, insns, cfg, facts, frames);
        image.give_back();
        RegisterFacts {
            stack: StackRegs::solve(cfg, facts, computed),
            live: Liveness::solve(cfg, facts, &conventions),
            red_zone: if red_zone { RedZone::solve(image, cfg, insns, facts, frames) } else { RedZone::default() },
        }
    }

    /// Decides everything.
    pub fn plan(&self, registers: &RegisterFacts, options: &Options) -> CheckPlan {
        let Analysed { image, insns, cfg, computed, facts, .. } = self;
        let RegisterFacts { stack, live, .. } = registers;
        passes::run(&checks::PassInput { image, insns, cfg, computed, facts, stack, live, options })
    }

    /// Of guarded code: the loops of plain code that have copies without tests.
    fn copied_loops(&self, registers: &RegisterFacts, decisions: &Decisions, options: &Options) -> Vec<Strip> {
        let Analysed { image, insns, cfg, computed, facts, .. } = self;
        let RegisterFacts { stack, live, red_zone, .. } = registers;
        let options = &Options { screens: false, ..*options };
        let mut reader = Reader::new(image, insns);
        let mut insn = Instruction::default();
        // Loads of jump tables are no part of it.
        let reaches = |id| {
            let bytes = reader.decode(id, &mut insn);
            guard::is_aliased(&insn, &decisions.get(id), None, bytes)
        };
        let input = checks::PassInput { image, insns, cfg, computed, facts, stack, live, options };
        strips::of_guarded(&input, decisions, red_zone, reaches)
    }

    /// Of guarded code: the polls of plain code.
    fn polls_of_learnt(&self, registers: &RegisterFacts, decisions: &Decisions, options: &Options) -> Polls {
        let Analysed { image, insns, cfg, computed, facts, .. } = self;
        let RegisterFacts { stack, live, .. } = registers;
        polls::of_learnt(&checks::PassInput { image, insns, cfg, computed, facts, stack, live, options }, decisions)
    }

    /// What the emission must know; takes from the plan what it alone reads.
    pub fn script(&self, registers: &RegisterFacts, plan: &mut CheckPlan, options: &Options) -> Script {
        let Analysed { image, insns, cfg, computed, facts, .. } = self;
        let dwords = if options.inserts() && options.screens {
            DwordRegs::solve(cfg, facts, computed)
        } else {
            DwordRegs::least(cfg)
        };
        let (dwords, red_zone) = (&dwords, &registers.red_zone);
        let input = script::ScriptInput { image, insns, cfg, facts, dwords, live: &registers.live, red_zone, options };
        Script::write(&input, plan)
    }
}

/// Runs the stages up to the facts.
///
/// # Errors
/// What is wrong with the input.
pub fn analyse<'a>(input: impl Into<InputBytes<'a>>, name: &str) -> Result<Analysed<'a>> {
    let image = elf::read(input, name)?;
    refuse_rewritten(&image)?;
    let tail = |va: Vaddr| image.bytes_at(va, usize::MAX);
    let mut frame_info = match frame_input(&image, &tail) {
        Some(f) => frames::parse(&f)?,
        None => frames::FrameInfo::default(),
    };
    frame_info.fdes.sort_by_key(|f| f.start);
    let (insns, tables) = explore(&image, &frame_info);
    let frame = |va| {
        let i = frame_info.fdes.partition_point(|f| f.start <= va).checked_sub(1)?;
        let f = &frame_info.fdes[i];
        (va < f.end).then_some((f.start, f.end))
    };
    let descriptor_call = |id| {
        let insn = insns.decode(&image, id);
        insn.memory_base() == Register::RAX
            && insn.memory_index() == Register::None
            && insn.memory_displacement64() == 0
    };
    let got_jump = |id| is_got_jump(&image, &insns, id);
    let mut cfg = Cfg::build(&insns, tables, got_jump, descriptor_call, |_| false, frame);
    cfg.add_frames(&insns, &frame_info.fdes);
    image.give_back();
    let facts = Facts::gather(&image, &insns);
    let pushed = stack_depth::find(&image, &insns, &facts, &cfg, frame);
    if !pushed.returns.is_empty() {
        cfg = Cfg::build(&insns, cfg.tables, got_jump, descriptor_call, |id| pushed.returns.contains(&id), frame);
        cfg.add_frames(&insns, &frame_info.fdes);
    }
    cfg.add_switched(pushed.calls.iter().chain(&pushed.doubtful).copied());
    cfg.called_by_returns = pushed.leave_more;
    cfg.set_unknown(pushed.jumps.iter().copied());
    let ranges: Vec<(Vaddr, Vaddr)> = frame_info.fdes.iter().map(|f| (f.start, f.end)).collect();
    let computed = Computed::solve(&image, &insns, &cfg, &ranges);
    image.give_back();
    cfg.leave_padding_out(|id| facts.is_nop(id));
    Ok(Analysed { image, insns, cfg, computed, facts, frames: ranges })
}

/// All instructions and jump tables: tables lead to code, which may have more tables.
fn explore(image: &Image, frame_info: &frames::FrameInfo) -> (Insns, Vec<JumpTable>) {
    let mut explorer = Explorer::new(image, frame_info);
    loop {
        let insns = explorer.finish();
        image.give_back();
        let found = table_search::find(image, &insns, frame_info);
        image.give_back();
        if !explorer.add_targets(found.new_targets) {
            return (insns, found.tables);
        }
    }
}

/// Says what is wrong with a file that is no program that can be rewritten, as far as that is seen at once.
///
/// # Errors
/// What it is instead.
pub fn expect_program(input: &[u8], name: &str) -> Result<()> {
    if identify(input, name)? == ProgramKind::Library {
        return Err(
            Error::new(format!("{name}: is a shared library, not a program")).help("give the program that loads it")
        );
    }
    Ok(())
}

/// Rewrites the program in `input`, whose libraries stay as they are; `name` is used in messages.
///
/// # Errors
/// What is wrong with the input, or the list of refusals.
pub fn rewrite<'a>(input: impl Into<InputBytes<'a>>, name: &str, options: &Options) -> Result<Rewritten> {
    in_memory(|sink| rewrite_program(input, name, options, &LibraryRecord::none(), sink))
}

/// Rewrites a shared library or the dynamic loader, to be loaded into a rewritten program.
///
/// # Errors
/// As [`rewrite`].
pub fn rewrite_library<'a>(input: impl Into<InputBytes<'a>>, name: &str, options: &Options) -> Result<Rewritten> {
    in_memory(|sink| rewrite_library_to(input, name, options, sink))
}

/// Collects the output of one of the functions below in memory.
///
/// # Errors
/// Those of `rewrite`.
pub fn in_memory(rewrite: impl FnOnce(&mut dyn OutputSink) -> Result<Report>) -> Result<Rewritten> {
    let mut bytes = Vec::new();
    let report = rewrite(&mut bytes)?;
    Ok(Rewritten { bytes, report })
}

/// Rewrites the program in `input`; it will take its rewritten libraries from `libraries`.
///
/// # Errors
/// As [`rewrite`], or that nothing can be written to the sink.
pub fn rewrite_program<'a, 'r>(
    input: impl Into<InputBytes<'a>>,
    name: &str,
    request: impl Into<Request<'r>>,
    libraries: &LibraryRecord,
    sink: &mut dyn OutputSink,
) -> Result<Report> {
    let request = request.into();
    rewrite_with_runtime(input, name, request, libraries, &Blob::asked_for(request.options)?, sink)
}

/// As [`rewrite_program`]; the output gets the symbols and the debug information of the separate file `debug_file`.
///
/// # Errors
/// As [`rewrite_program`].
pub fn rewrite_with_debug_file<'a, 'r>(
    input: impl Into<InputBytes<'a>>,
    debug_file: &'a [u8],
    name: &str,
    request: impl Into<Request<'r>>,
    libraries: &LibraryRecord,
    sink: &mut dyn OutputSink,
) -> Result<Report> {
    let (input, request) = (input.into(), request.into());
    expect_program(input.all, name)?;
    let program = Program { blob: &Blob::asked_for(request.options)?, libraries };
    let analyse = || {
        let mut analysed = analyse(input, name)?;
        analysed.image.debug_file = Some(debug_file);
        Ok(analysed)
    };
    build_program(analyse, request, &program, sink)
}

/// As [`rewrite_program`], with a runtime of the caller's choice.
///
/// # Errors
/// As [`rewrite_program`].
pub fn rewrite_with_runtime<'a, 'r>(
    input: impl Into<InputBytes<'a>>,
    name: &str,
    request: impl Into<Request<'r>>,
    libraries: &LibraryRecord,
    blob: &Blob,
    sink: &mut dyn OutputSink,
) -> Result<Report> {
    let input = input.into();
    expect_program(input.all, name)?;
    build_program(|| analyse(input, name), request.into(), &Program { blob, libraries }, sink)
}

/// Builds a program. One with new segments in front is built twice: these end where it begins, so it must be known what they take.
fn build_program<'a>(
    analyse: impl Fn() -> Result<Analysed<'a>>,
    request: Request,
    program: &Program,
    sink: &mut dyn OutputSink,
) -> Result<Report> {
    let mut analysed = analyse()?;
    if analysed.image.in_front > 0 {
        let trial = build(analysed, request, Some(program), &mut output_file::MeasuredOnly)?;
        analysed = analyse()?;
        // A page between them keeps the last new address from being 2^64.
        analysed.image.in_front = trial.new_span + 4096;
    }
    build(analysed, request, Some(program), sink)
}

/// As [`rewrite_library`], to a sink.
///
/// # Errors
/// As [`rewrite_program`].
pub fn rewrite_library_to<'a, 'r>(
    input: impl Into<InputBytes<'a>>,
    name: &str,
    request: impl Into<Request<'r>>,
    sink: &mut dyn OutputSink,
) -> Result<Report> {
    build(analyse(input, name)?, request.into(), None, sink)
}

/// The accesses that plain code tests because it has learnt of them; `all`: as if it had learnt of each.
fn learnable(insns: &Insns, versions: &Versions, plan: &CheckPlan, learnt: &LearntSites, all: bool) -> Vec<InsnId> {
    let is_learnable =
        |&id: &InsnId| versions.has_full(id) && guard::is_learnable(&plan.decisions.get(id), insns.flow(id));
    if all {
        return (0..insns.main as u32).map(InsnId).filter(is_learnable).collect();
    }
    learnt.addresses().filter_map(|at| insns.at(at)).filter(is_learnable).collect()
}

/// The stages behind the analyses.
fn build(analysed: Analysed, request: Request, program: Option<&Program>, sink: &mut dyn OutputSink) -> Result<Report> {
    let Request { options, learnt } = request;
    let suspects = suspects(&analysed.image, &analysed.insns);
    let registers = analysed.registers(options.inserts(), options.red_zone);
    let mut plan = analysed.plan(&registers, options);
    let script = analysed.script(&registers, &mut plan, options);
    let mut learnt_count = 0;
    let (versions, plain) = match options.plain_version() {
        None => (Versions::one(&analysed.insns), None),
        Some(plain_options) => {
            let is_tested =
                |id| plan.decisions.get(id).is_tested() || matches!(plan.decisions.get(id), Decision::Refused(_));
            let versions = Versions::two(&analysed.insns, &analysed.frames, is_tested);
            let mut of_plain = analysed.plan(&registers, &plain_options);
            for id in learnable(&analysed.insns, &versions, &plan, learnt, options.as_shared) {
                of_plain.decisions.take(id, &plan.decisions);
                learnt_count += 1;
            }
            if learnt_count > 0 && options.strips && options.copies {
                of_plain.strips = analysed.copied_loops(&registers, &of_plain.decisions, &plain_options);
            }
            if learnt_count > 0 && options.poll == Poll::Backedge {
                of_plain.polls = analysed.polls_of_learnt(&registers, &of_plain.decisions, &plain_options);
            }
            let script = analysed.script(&registers, &mut of_plain, &plain_options);
            (versions, Some((script, of_plain.strips)))
        }
    };
    drop(registers);
    let Analysed { image, insns, cfg, computed, facts, .. } = analysed;
    drop(facts);
    let (image, insns) = (&image, &insns);
    let unresolved = cfg.ids().filter(|b| matches!(cfg.blocks[b.ix()].end(), End::FramedJmp | End::UnknownJmp)).count();
    let loops = if options.blocks { block_recorder::loops(insns, &cfg) } else { Vec::new() };
    let tables = take_tables(cfg);
    let CheckPlan { decisions, checks: _, strips, ranges, claims, regions, polls, counts, fuel } = plan;
    drop((decisions, polls));
    let recorder = Recorder::new(options.blocks, false);
    let full = plain.is_some();
    let (plain, plain_strips) = plain.unzip();
    let plain_strips = plain_strips.unwrap_or_default();
    let plain = plain.map(|script| Pass { script, strips: &plain_strips, full: false });
    let passes = plain.into_iter().chain([Pass { script, strips: &strips, full }]).collect();
    let code = emit::emit((image, insns), &versions, passes, tables.len(), options, (fuel, recorder));
    drop(strips);
    refuse(image, insns, &code)?;
    let blocks = code.recorder.encode(insns, || loops, &image.name);
    let proofs = layout::Proofs { ranges: &ranges, claims: &claims, regions: &regions };
    let sites = code.sites;
    let mut fuel = code.fuel;
    let direct = new_addresses::choose(image, insns, &computed, options, &mut fuel);
    let (mut placed, code) =
        layout::place(code, insns, versions, &tables, &proofs, (image.base, file::new_code_at(image)))?;
    placed.blocks = blocks;
    let tail = |va: Vaddr| image.bytes_at(va, usize::MAX);
    let frame_input = frame_input(image, &tail);
    let new_code_bytes = placed.code_bytes;
    drop((ranges, claims, regions));
    let frame_input = frame_input.as_ref();
    let written = file::write(image, frame_input, insns, &computed, &placed, code, program, &direct, options, sink)?;
    Ok(Report {
        text_bytes: image.exec.iter().map(|s| s.bytes).sum(),
        output_bytes: written.file_bytes,
        new_code_bytes,
        instructions: insns.len(),
        checks: sites.checks,
        polls: sites.polls,
        stack_tests: sites.stack_tests,
        string_gates: sites.strings,
        vsib_gates: sites.vsib,
        flag_saves: sites.flag_saves,
        spills: sites.spills,
        red_zone: sites.red_zone,
        screens: sites.screens,
        learnt: learnt_count,
        learnt_untested: (learnt.len() as u64).saturating_sub(learnt_count),
        optimiser: counts,
        jump_tables: tables.len(),
        unresolved_jumps: unresolved,
        springboards: written.springboards,
        direct_exports: direct.functions,
        direct_words: direct.words,
        short_springboards: written.short,
        crowded_targets: written.crowded,
        undecoded_bytes: insns.undecoded_bytes,
        suspect_bytes: suspects.iter().map(|s| s.bytes).sum(),
        suspect_places: suspects.len(),
        code_read_as_data: insns.read_code.len(),
        frames_dropped: written.frames_dropped.len(),
        new_span: written.new_span,
    })
}

/// What was not decoded and reads as code.
fn suspects(image: &Image, insns: &Insns) -> Vec<blizzard_verify::Suspect> {
    let mut overlapping: Vec<(Vaddr, Vaddr)> =
        (insns.main..insns.len()).map(|k| InsnId(k as u32)).map(|id| (insns.va(id), insns.end(id))).collect();
    overlapping.sort_unstable();
    let mut runs = Vec::new();
    for (s, section) in image.exec.iter().enumerate() {
        let (bytes, end) = (image.exec_bytes(s), section.va + section.bytes);
        let main = insns.main_range(section.va, end).map(|k| InsnId(k as u32));
        let mut others = overlapping[overlapping.partition_point(|o| o.0 < section.va)..].iter().copied().peekable();
        let mut free = section.va;
        let mut take = |from: Vaddr, to: Vaddr| {
            if free < from {
                let bytes = &bytes[(free - section.va) as usize..(from - section.va) as usize];
                runs.push(blizzard_verify::Run { va: free.0, bytes, read: Vec::new() });
            }
            free = free.max(to);
        };
        for id in main {
            let (from, to) = (insns.va(id), insns.end(id));
            while let Some((from, to)) = others.next_if(|o| o.0 < from) {
                take(from, to);
            }
            take(from, to);
        }
        for (from, to) in others.take_while(|o| o.0 < end) {
            take(from, to);
        }
        take(end, end);
    }
    let begins = |va: u64| insns.at(Vaddr(va)).is_some();
    let moved = insns.len() as u64;
    blizzard_verify::suspects(
        &runs,
        &blizzard_verify::Around { mapped: image.base.0..image.end.0, begins: &begins, moved },
    )
}

/// What is used of the graph once the script is written; the rest is given back here.
fn take_tables(cfg: Cfg) -> Vec<JumpTable> {
    cfg.tables
}

fn refuse_rewritten(image: &Image) -> Result<()> {
    if is_rewritten(image.data) {
        return Err(Error::new(format!("{}: is already rewritten", image.name))
            .help("give the original program; `blizzard run` runs a rewritten one as it is"));
    }
    Ok(())
}

/// All refusals of all stages, in one error.
fn refuse(image: &Image, insns: &Insns, code: &EmittedCode) -> Result<()> {
    let mut refusals = code.refusals.clone();
    let mut add = |at: Vaddr, reason: &str| {
        refusals.push(Refusal { at, place: image.place(at), reason: reason.to_owned() });
    };
    for &id in &insns.read_code {
        add(insns.va(id), "reads instructions as data");
    }
    for &at in &insns.contested {
        add(at, "what stands here may be both code and constants: it is read and jumped to, or only named");
    }
    if refusals.is_empty() {
        return Ok(());
    }
    refusals.sort_by_key(|r| r.at);
    let (many, these) = match refusals.len() {
        1 => ("1 instruction".to_owned(), "this instruction"),
        many => (format!("{many} instructions"), "these instructions"),
    };
    let mut error = Error::new(format!("{}: {many} cannot be rewritten", image.name))
        .help(format!("nothing was written; leave {these} out of the program's build"));
    error.refusals = refusals;
    Err(error)
}
