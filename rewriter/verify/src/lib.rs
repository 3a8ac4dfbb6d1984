//! The independent audit of a rewritten file.
//!
//! Input: the file's bytes, and if wanted the file that was rewritten; no plan. Output: an [`Audit`]. It shares no code with the stages that
//! plan and emit checks; what both use (the runtime's contract, names of functions that never return, error messages) and what a mistake there would do,
//! `rewriter/DESIGN.md` lists under "What it shares". It decodes with Capstone and derives
//! anew what each instruction accesses, which accesses need no check, what is live, and what each inserted sequence does.
//!
//! **Invariant:** whatever the audit does not understand is a finding. An instruction of the new code is accepted only as
//! inserted code whose effect is known, as an instruction without data access, as an access of an exempt class proven
//! here, or as an access that a complete check guards on every way to it.
//!
//! Source: `rewriter/DESIGN.md` ("The check sequences", "Exempt accesses"); design section 7.

mod audit;
mod bounds;
mod cfi;
mod complete;
mod copies;
mod covered;
mod decode;
mod dynamic;
mod effects;
mod eh_frame_hdr;
mod error;
mod evidence;
mod frames;
mod gates;
mod graph;
mod guarded;
mod headers;
mod info;
mod kept;
mod live;
mod lsda;
mod memory;
mod module;
pub mod mutation;
mod named;
mod narrow;
mod newer;
mod notes;
mod oldcode;
mod original;
mod polls;
mod pushed;
mod raw;
mod red_zone;
mod restarts;
mod returns;
mod runtime;
mod sites;
mod stack;
mod stack_stores;
mod stack_tests;
mod strips;
mod symbolic;
mod syscalls;
mod tables;
#[cfg(test)]
mod tests;
mod unmoved;
mod unwinding;

pub use audit::{Audit, ByteCounts, Checked, Finding, FrameCounts, OldCode, SuspectCode, Targets, Unmoved};
pub use error::{Error, Result};
pub use evidence::{Around, Run, Suspect, suspects};
pub use runtime::Runtime;
pub use unwinding::Unwinding;

use blizzard_rt::abi::{self, module_flags};
use decode::{ADDR32, Code, Insn, NONE, RIP, STACK};
use effects::{Access, Flow, RSP, Touch, bit};
use foldhash::{HashMap, HashMapExt, HashSet};
use graph::Graph;
use live::{Assumptions, Live, Set};
use module::Module;
use oldcode::{At, Old};
use original::Original;
use pushed::Depths;
use returns::Returns;
use sites::{Kind, Site, Sites, get};
use stack::Stack;

/// What an audit may be given besides the file.
#[derive(Clone, Debug, Default)]
pub struct Inputs<'a> {
    /// The file that was rewritten: then the output is compared with it.
    pub original: Option<&'a [u8]>,
    /// The runtimes that a program may have.
    pub runtimes: Vec<Runtime<'a>>,
}

/// Audits the rewritten file `file`; `name` is used in messages.
///
/// # Errors
/// The file is no ELF file for x86-64, or not the output of a rewrite; the original is no ELF file.
pub fn verify_against(file: &[u8], name: &str, inputs: &Inputs) -> Result<Audit> {
    let original = inputs.original.map(|o| Original::read(o, "the original")).transpose()?;
    audit_against(file, name, original.as_ref(), &inputs.runtimes, false)
}

/// The audit itself. `first`: whoever asks wants to know only whether anything is open, so the first stage that finds something ends it.
fn audit_against(
    file: &[u8],
    name: &str,
    original: Option<&Original>,
    runtimes: &[Runtime],
    first: bool,
) -> Result<Audit> {
    let m = Module::read(file, name)?;
    let mut audit = Audit { file: name.to_string(), ..Audit::default() };
    macro_rules! unless_settled {
        () => {
            if first && !audit.is_clean() {
                return Ok(audit);
            }
        };
    }
    for (bit, word) in [
        (module_flags::CHECK_LOADS, "loads"),
        (module_flags::CHECK_STORES, "stores"),
        (module_flags::POLLS, "polls"),
        (module_flags::COUNTING, "counting"),
    ] {
        if m.info.flags & bit != 0 {
            audit.requested.push(word.to_string());
        }
    }
    headers::judge(&m, original.map(Original::file), &mut audit);
    notes::judge(&m, &mut audit);
    runtime::judge(&m, runtimes, &mut audit);
    unless_settled!();
    let hints: Vec<u64> = m.functions.iter().map(|f| f.0).collect();
    let mut text = decode::decode(m.text.data, m.text.va, &hints);
    let in_cold = |va: &u64| va.wrapping_sub(m.cold.va) < m.cold.data.len() as u64;
    let mut stubs: Vec<u64> = text.insns.iter().map(|i| i.target).filter(in_cold).collect();
    stubs.sort_unstable();
    let cold = decode::decode(m.cold.data, m.cold.va, &stubs);
    audit.text_bytes = text.bytes;
    audit.cold_bytes = cold.bytes;
    audit.instructions = text.insns.len() as u64;
    audit.functions = m.functions.len() as u64;
    for (code, what) in [(&text, "text"), (&cold, "cold code")] {
        for u in &code.undecoded {
            audit.finding(u.va, m.place(u.va), format!("{} bytes of {what} do not decode", u.bytes));
        }
    }
    let gated = syscalls::admit(&m, &mut text, &mut audit);
    audit.system_calls = gated.len() as u64;
    let cx = sites::Context {
        text: &text,
        cold: &cold,
        check_loads: m.info.flags & module_flags::CHECK_LOADS != 0,
        check_stores: m.info.flags & module_flags::CHECK_STORES != 0,
        polls: m.info.flags & module_flags::POLLS != 0,
        rodata: &|va| m.bytes_at(va, 16).and_then(|b| b.try_into().ok()),
    };
    let mut sites = sites::find(&cx);
    syscalls::mark(&gated, &mut sites);
    for s in &sites.list {
        if let Some(problem) = &s.problem {
            let va = text.insns[s.access.min(text.insns.len() - 1)].va;
            audit.finding(va, m.place(va), problem.clone());
        }
    }
    cold_is_stubs(&m, &cold, &sites, &mut audit);
    restarts::compare(&m, &cx, &sites, &mut audit);
    unless_settled!();
    let old = oldcode::scan(&m, &text, &mut audit);
    oldcode::judge(&m, &text, &sites, &old, &mut audit);
    unless_settled!();
    let (indirect, named) = indirect_targets(&m, &text, &sites, &old, &mut audit);
    let mut descriptors: Vec<u64> = sites.list.iter().filter_map(|s| s.descriptor).collect();
    descriptors.extend(covered::chain_places(&m, &cx, &sites));
    let mut entries = graph::entries(&m, &indirect);
    // Only jumps of its own function lead to a function's part, unless something names it: its springboard is of no use.
    entries.retain(|va| m.parts.binary_search(va).is_err() || named.binary_search(va).is_ok());
    entries.extend(m.pads.iter().map(|p| p.pad));
    let returns = Returns::solve(&m, &text, &sites, |va| text.at(va).map(|_| va).or_else(|| old.new_address(&m, va)));
    let tables = tables::find(&m, &text, &sites, &returns, &entries, &descriptors);
    for (va, problem) in &tables.problems {
        audit.finding(*va, m.place(*va), problem.clone());
    }
    let (pairs, undefined) = match original {
        Some(original) => {
            let compared = original::compare(&m, &text, &sites, &tables, &old, original, &mut audit);
            (compared.pairs, Some(compared.undefined))
        }
        None => (old.all(&m).collect::<std::collections::BTreeMap<_, _>>().into_iter().collect(), None),
    };
    unless_settled!();
    // Where the original is entered; a library need not have a place.
    let entry = original.map(|o| memory::number(&o.file()[24..32]));
    let entry = entry.map(|va| pairs.binary_search_by_key(&va, |p| p.0).map_or(va, |k| pairs[k].1));
    info::judge(&m, &text, &sites, entry, &mut audit);
    if let Some(original) = original {
        complete::compare(&m, &old, original.file(), &pairs, &mut audit);
    }
    unmoved::classify(&m, &text, &sites, &old, &tables.list, &pairs, &mut audit);
    padding(&m, &text, &sites, &returns, &pairs, &mut audit);
    cfi::compare(&m, (&text, &cold), &sites, &pairs, original, &mut audit);
    unless_settled!();
    let g = graph::build(&m, &text, &sites, &returns, &indirect, tables);
    audit.jump_tables = g.tables.len() as u64;
    landings(&m, &text, &cold, &sites, &g, &old, &indirect, &mut audit);
    unless_settled!();
    let covered = covered::prove(&m, &cx, &sites, &g, &pairs, &mut audit);
    narrow::check(&m, &g, cx.text, &sites, &mut audit);
    accesses(&m, &cx, &sites, &g, &covered, &mut audit);
    unless_settled!();
    red_zone::judge(&m, &text, &sites, &g, &mut audit);
    let depths = Depths::new(&m, &text, &sites, &g, undefined.as_deref());
    liveness(&m, &text, &sites, &old, &g, &depths, &mut audit);
    if cx.polls {
        polls::prove(&m, &text, &sites, &g, &depths, &mut audit);
    }
    Ok(audit)
}

/// Every cold instruction belongs to a stub that was walked.
fn cold_is_stubs(m: &Module, cold: &Code, sites: &Sites, audit: &mut Audit) {
    let mut run = false;
    for (k, i) in cold.insns.iter().enumerate() {
        let stray = !get(&sites.claimed, k) && !i.is_nop() && !i.is_int3();
        if stray && !run {
            audit.finding(i.va, m.place(i.va), "cold code that belongs to no recognised check");
        }
        run = stray;
    }
}

/// New addresses that may be reached from outside the graph, and those of them that something names.
fn indirect_targets(m: &Module, text: &Code, sites: &Sites, old: &Old, audit: &mut Audit) -> (Vec<u64>, Vec<u64>) {
    let mut named_code = Vec::new();
    let mut v = vec![m.info.entry_va];
    v.extend(m.pointers.iter().chain(m.exported.iter().map(|s| &s.va)).filter_map(|&p| old.new_address(m, p)));
    let ranges: Vec<(u64, u64)> = m.old_code().map(|s| (s.va, s.va + s.data.len() as u64)).collect();
    let is_old = |va: u64| ranges.iter().any(|r| r.0 <= va && va < r.1);
    for (k, i) in text.insns.iter().enumerate() {
        if get(&sites.inserted, k) || i.flow != Flow::Next {
            continue;
        }
        // Only a fixed-address file may hold code addresses in immediates and displacements.
        let named = match &i.mem {
            Some(mem) if mem.base == RIP => mem.disp as u64,
            Some(mem) if m.fixed && mem.base == NONE => mem.disp as u64,
            _ if m.fixed => i.imm as u64,
            _ => continue,
        };
        if is_old(named) {
            named_code.push(named);
            v.extend(old.new_address(m, named));
        }
    }
    // What is known by its new address.
    v.extend(m.exported.iter().map(|s| s.va).filter(|&va| text.contains(va)));
    v.extend(&m.renewed);
    named_code.sort_unstable();
    oldcode::renewed(m, text, old, &named_code, audit);
    oldcode::targets(m, old, named_code.into_iter(), audit);
    v.sort_unstable();
    let named = v.clone();
    v.extend(old.springboards.iter().map(|s| s.1));
    v.sort_unstable();
    v.dedup();
    (v, named)
}

/// No control falls into the trap bytes between functions.
fn padding(m: &Module, text: &Code, sites: &Sites, returns: &Returns, pairs: &[(u64, u64)], audit: &mut Audit) {
    let begins: HashSet<u64> = pairs.iter().map(|p| p.1).collect();
    for (k, w) in text.insns.windows(2).enumerate() {
        let [i, trap] = w else { continue };
        if !trap.is_int3() || i.is_int3() || i.end() != trap.va || begins.contains(&trap.va) {
            continue;
        }
        // It ends where an aligned function begins; elsewhere it is a breakpoint of the program, under a springboard.
        let end = text.insns[k + 1..].iter().find(|i| !i.is_int3()).map_or(m.cold.va, |i| i.va);
        if !end.is_multiple_of(16) {
            continue;
        }
        // The padding of the input in front of it is not reached either, unless something leads there.
        let back = (0..=k).rev().find(|&b| !text.insns[b].is_nop()).unwrap_or(k);
        let i = &text.insns[back];
        let goes_on = match i.flow {
            Flow::Next | Flow::Cond => true,
            Flow::Call | Flow::CallInd => !returns.never(back),
            Flow::Jump | Flow::JumpInd | Flow::Ret | Flow::Stop => false,
        };
        if goes_on || get(&sites.inserted, back) {
            audit.finding(i.va, m.place(i.va), "goes on into the padding between functions");
        }
    }
}

/// No branch lands between a check and its access, or where no instruction begins.
#[allow(clippy::too_many_arguments)]
fn landings(
    m: &Module,
    text: &Code,
    cold: &Code,
    sites: &Sites,
    g: &Graph,
    old: &Old,
    indirect: &[u64],
    audit: &mut Audit,
) {
    let mut own: HashMap<(u64, u64), ()> = HashMap::new();
    for s in &sites.list {
        own.extend(s.own_edges.iter().map(|&e| (e, ())));
    }
    let mut land = |from: u64, to: u64, how: &str| match text.at(to) {
        Some(i) if get(&sites.protected, i) && !own.contains_key(&(from, to)) => {
            audit.finding(from, m.place(from), format!("{how} lands between a check and its access at {to:#x}"));
        }
        None if text.contains(to) => {
            audit.finding(from, m.place(from), format!("{how} lands at {to:#x}, where no instruction begins"));
        }
        _ => {}
    };
    // Cold code that belongs to no check is a finding of its own.
    let claimed = cold.insns.iter().enumerate().filter(|(k, _)| get(&sites.claimed, *k)).map(|(_, i)| i);
    for i in text.insns.iter().chain(claimed) {
        if matches!(i.flow, Flow::Cond | Flow::Jump | Flow::Call) {
            land(i.va, i.target, "branch");
        }
    }
    for &va in indirect {
        land(va, va, "indirect entry");
    }
    for &(from, _) in &m.functions {
        land(from, from, "function entry");
    }
    for p in &m.pads {
        land(p.pad, p.pad, "landing pad");
    }
    let (mut outside, mut behind, mut nowhere) = (Vec::new(), 0, 0);
    let ends = tables::Ends::new(&g.tables);
    for table in &g.tables {
        let end = ends.of(table.form);
        for (k, &t) in table.targets.iter().enumerate() {
            if text.contains(t) {
                land(table.va, t, "jump-table entry");
            } else if end.is_some_and(|end| k as u64 >= end) && old.new_address(m, t).is_some() {
                behind += 1;
            } else if old.is_no_instruction(m, t) {
                nowhere += 1;
            } else {
                let why = format!("jump-table entry leads to {t:#x}, which is no new code");
                outside.push((table.va, why));
            }
        }
    }
    audit.trust("jump-table entries that lead to old addresses: the program's next table begins there", behind);
    audit.trust(
        "jump-table entries that lead to old addresses where no instruction is, as those of the original",
        nowhere,
    );
    for (at, why) in outside {
        audit.finding(at, m.place(at), why);
    }
    // A branch of the program itself into cold code would run a stub on foreign state.
    for (k, i) in text.insns.iter().enumerate() {
        let direct = matches!(i.flow, Flow::Cond | Flow::Jump | Flow::Call);
        if direct && !get(&sites.inserted, k) && cold.contains(i.target) {
            audit.finding(i.va, m.place(i.va), "branch to cold code that is no part of a check");
        }
        if !direct || text.contains(i.target) {
            continue;
        }
        match old.at(m, i.target) {
            // Data that was taken for code branches into instructions; the runtime ends a run that gets there.
            At::Trap if old.new_address(m, i.target).is_none() => audit.dead_ends += 1,
            At::Elsewhere => {}
            _ => audit.finding(i.va, m.place(i.va), format!("branch back to old code at {:#x}", i.target)),
        }
    }
}

/// Every access of the text is checked, exempt, not requested, or a finding.
fn accesses(m: &Module, cx: &sites::Context, sites: &Sites, g: &Graph, covered: &covered::Covered, audit: &mut Audit) {
    let text = cx.text;
    let stack = Stack::new(g, text, sites);
    if cx.check_loads || cx.check_stores {
        stack_tests::demand(m, text, sites, g, &stack, audit);
    }
    let about_one = |s: &&Site| s.kind.is_about_access();
    let guarded: HashMap<usize, &Site> =
        sites.list.iter().filter(|s| s.problem.is_none()).filter(about_one).map(|s| (s.access, s)).collect();
    let refused: HashMap<usize, ()> =
        sites.list.iter().filter(|s| s.problem.is_some()).map(|s| (s.access, ())).collect();
    audit.strips = sites.list.iter().filter(|s| s.problem.is_none() && s.kind == Kind::Strip).count() as u64;
    audit.polls = sites.list.iter().filter(|s| s.problem.is_none() && s.kind == Kind::Poll).count() as u64;
    audit.stack_tests = sites.list.iter().filter(|s| s.problem.is_none() && s.kind == Kind::StackTest).count() as u64;
    for b in 0..g.starts.len() {
        stack.each(g, text, sites, b, |k, derived| {
            let i = &text.insns[k];
            if i.has(STACK) {
                audit.exempt("implicit-stack");
            }
            if i.touch == Touch::None {
                if i.mem.is_some() {
                    audit.exempt("no-access");
                }
                return;
            }
            if let Some(site) = guarded.get(&k) {
                checked(audit, site, i);
                return;
            }
            if refused.contains_key(&k) {
                return;
            }
            match classify(cx, i, derived) {
                Class::Open(_) if covered.contains_key(&k) => audit.covered(covered[&k]),
                Class::Exempt(why) => audit.exempt(why),
                Class::NotRequested => audit.not_requested += 1,
                Class::Open(why) => audit.finding(i.va, m.place(i.va), why),
            }
        });
    }
}

fn checked(audit: &mut Audit, site: &Site, i: &Insn) {
    let c = &mut audit.checked;
    match site.kind {
        Kind::String => c.strings += 1,
        Kind::Large => c.large += 1,
        Kind::Lanes => c.lanes += 1,
        Kind::Poll | Kind::Strip | Kind::StackTest => {}
        Kind::Check { straddle } => {
            let writes = match i.touch {
                Touch::Mem(a) => a.writes(),
                _ => true,
            };
            *(if writes { &mut c.stores } else { &mut c.loads }) += 1;
            *(if straddle { &mut c.two_tags } else { &mut c.one_tag }) += 1;
        }
    }
}

/// The override whose base is the thread's (psABI section 3.4.2). That of %gs is zero where other nodes run, so it tells nothing.
const FS: u8 = 0x64;

enum Class {
    Exempt(&'static str),
    NotRequested,
    Open(String),
}

/// Classifies an unchecked access. `derived` are the registers that hold stack addresses.
fn classify(cx: &sites::Context, i: &Insn, derived: u16) -> Class {
    let wanted = |a: Access| (a.writes() && cx.check_stores) || (a.reads() && cx.check_loads);
    let (access, what) = match i.touch {
        Touch::Mem(a) | Touch::Xsave(a) => (a, "unchecked access"),
        Touch::BitString(a) => (a, "unchecked bit-string access (reaches outside its operand)"),
        Touch::Lanes(a) => (a, "unchecked gather or scatter"),
        Touch::String { writes_di, reads_si, reads_di } => {
            let a = match (writes_di, reads_si || reads_di) {
                (true, true) => Access::Rmw,
                (true, false) => Access::Store,
                _ => Access::Load,
            };
            let wanted = (writes_di && cx.check_stores) || ((reads_si || reads_di) && cx.check_loads);
            if i.has(ADDR32) {
                return Class::Exempt("addr32");
            }
            return if wanted { Class::Open(format!("unchecked string {}", word(a))) } else { Class::NotRequested };
        }
        Touch::Xlat => (Access::Load, "unchecked xlat"),
        Touch::MaskMov => (Access::Store, "unchecked masked store"),
        Touch::ZeroLine => (Access::Store, "unchecked store of a line"),
        Touch::Move64 => (Access::Rmw, "unchecked 64-byte move"),
        Touch::Opaque => (Access::Rmw, "access that the audit does not know"),
        Touch::None => return Class::Exempt("no-access"),
    };
    if let (Touch::Mem(_) | Touch::Xsave(_), Some(mem)) = (i.touch, &i.mem) {
        if mem.seg == FS {
            return Class::Exempt("tls");
        }
        if i.has(ADDR32) {
            return Class::Exempt("addr32");
        }
        let constant = mem.index == NONE && matches!(mem.base, NONE | RIP);
        // Compilers leave such loads where a program dereferences a constant that it never has. Checks have no loads of this form.
        let own_load = matches!(i.op, 0xa0 | 0xa1);
        if names_memory_of_runtime(i) && !own_load {
            return Class::Open("access to the context pages or the tag table outside a check".into());
        }
        let span = abi::SEGMENT_BASE.wrapping_sub(1 << 16)..abi::SEGMENT_BASE + abi::SEGMENT_WINDOW_BYTES;
        if constant && !span.contains(&(mem.disp as u64)) {
            return Class::Exempt("global");
        }
        if mem.index == NONE && (mem.base == RSP || (mem.base < 16 && derived & bit(mem.base) != 0)) {
            return Class::Exempt("stack");
        }
    }
    if !wanted(access) {
        return Class::NotRequested;
    }
    Class::Open(format!("{what}: {}, {} bytes", word(access), i.size))
}

/// Whether an operand is a constant address where the runtime has its pages and the tags.
fn names_memory_of_runtime(i: &Insn) -> bool {
    let runtime = abi::CONTEXT_SHARED..abi::TAG_TABLE_BASE + abi::TAG_TABLE_BYTES;
    i.mem.is_some_and(|m| m.base == NONE && m.index == NONE && m.seg == 0 && runtime.contains(&(m.disp as u64)))
}

fn word(a: Access) -> &'static str {
    match a {
        Access::Load => "load",
        Access::Store => "store",
        Access::Rmw => "read-modify-write",
    }
}

/// What inserted code changes is dead where the program goes on.
fn liveness(m: &Module, text: &Code, sites: &Sites, old: &Old, g: &Graph, depths: &Depths, audit: &mut Audit) {
    let code = |va: u64| {
        let section = m.sections.iter().any(|s| s.exec && va.wrapping_sub(s.va) < s.data.len() as u64);
        let new = if text.at(va).is_some() { Some(va) } else { old.new_address(m, va) };
        let begin =
            new.and_then(|va| text.at(va)).map(|i| (i, g.block_of(i))).filter(|&(i, b)| g.starts[b] == i as u32);
        section.then(|| begin.map_or(named::NO_BLOCK, |(_, b)| b as u32))
    };
    let live = |assume| Live::new(g, text, sites, depths, &code, assume);
    let strict = live(Assumptions { jumps_are_tail_calls: false, follow_returns: true });
    let mut doubtful: Vec<(usize, usize, Set)> = Vec::new();
    for s in sites.list.iter().filter(|s| s.problem.is_none()) {
        for (at, dirty) in clobbers(s) {
            if dirty == 0 || at >= text.insns.len() {
                continue;
            }
            let hit = strict.before(g, text, sites, g.block_of(at), at) & dirty;
            if hit != 0 {
                doubtful.push((s.access, at, dirty));
            }
        }
    }
    if doubtful.is_empty() {
        return;
    }
    let tail = live(Assumptions { jumps_are_tail_calls: true, follow_returns: true });
    let local = live(Assumptions { jumps_are_tail_calls: true, follow_returns: false });
    for (access, at, dirty) in doubtful {
        let b = g.block_of(at);
        let va = text.insns[access].va;
        let hit = |l: &Live| l.before(g, text, sites, b, at) & dirty;
        if hit(&local) != 0 {
            audit.finding(va, m.place(va), format!("inserted code changes {}, live here", names(hit(&local))));
        } else if hit(&tail) != 0 {
            audit.finding(
                va,
                m.place(va),
                format!(
                    "inserted code changes {}, live in a caller of a function that returns here",
                    names(hit(&tail))
                ),
            );
        } else {
            audit.trust("scratch registers dead if indirect jumps without a table are tail calls", 1);
        }
    }
}

/// Where a site's changes must be dead, and what they are.
fn clobbers(s: &Site) -> [(usize, Set); 2] {
    let set = |r: u16, f: u8| Set::from(r) | Set::from(f) << 16;
    [(s.access, set(s.dirty, s.dirty_flags)), (s.access + 1, set(s.dirty_after, s.dirty_after_flags))]
}

fn names(s: Set) -> String {
    const NAMES: [&str; 22] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
        "CF", "PF", "AF", "ZF", "SF", "OF",
    ];
    NAMES.iter().enumerate().filter(|(k, _)| s >> k & 1 == 1).map(|(_, n)| *n).collect::<Vec<_>>().join(" ")
}
