//! `blizzard run`: a program on N nodes.
//!
//! Input: a program with its arguments, options of the run. Output: the program's output and exit status.
//!
//! An original program is rewritten into the cache first; a rewritten one is used as it is.

use crate::base::error::{Error, Refusal, Result};
use crate::base::learnt::{Knowledge, LearntSites, Object};
use crate::base::messages;
use crate::base::options::{AccessMode, Options, Poll};
use crate::base::output_file::write_report;
use crate::cli::run::attributes::file::AttributeRules;
use crate::cli::run::attributes::matched;
use crate::cli::run::attributes::sites::{CallSites, libraries_of};
use crate::cli::run::debugger::DebuggerOptions;
use crate::cli::run::settings::MemorySettings;
use crate::cli::run::shipment;
use crate::cli::shared::arguments::{PassOptions, ProgramAndArgs, RewriteOptions, node_count, whole};
use crate::cli::shared::hosts::{HostsOptions, RunPlace};
use crate::cli::shared::input;
use crate::cli::shared::libraries::{self, LibraryOptions};
use crate::cli::shared::print::misuse;
use crate::launch::hosts::launcher::{self as hosts_launcher, Setup};
use crate::launch::launcher::{self, NodeEnd, RunOutcome};
use crate::launch::options::{LaunchOptions, STUCK_TIMEOUT};
use crate::launch::spawn::describe;
use crate::launch::stats::{Stats, StatsFile};
use crate::pipeline::{self, Request};
use crate::read::accesses;
use crate::read::rewritten::{self, ModuleFlags};
use crate::reports::decisions::with_demangled;
use crate::reports::{core_file, crash, learnt, stuck, traps};
use crate::store::cache::{Cache, CacheKey};
use crate::store::closure::{Originals, originals};
use crate::store::knowledge;
use blizzard_contract::{Counter, FEW_NODES, node_phase};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Run a program, original or rewritten, on one or more nodes
///
/// Standard input goes to node 0. The exit status is 0 if all nodes end well. Else it is that of the first node that fails,
/// or 128 plus the number of the signal that killed it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard run -n 4 -- ./em3d --iters 20\n  \
    blizzard run -n 2 --tag-output --stats stats.json -- ./heat\n  \
    blizzard run --hosts a:4,b:4 -- ./heat    # on two hosts, over ssh and UCX")]
pub struct RunCommand {
    /// Number of node processes
    #[arg(short, long, alias = "np", value_name = "NODES", default_value = "1", allow_negative_numbers = true, value_parser = node_count,
        conflicts_with_all = ["hosts", "hostfile"])]
    pub nodes: u32,
    #[command(flatten)]
    hosts: HostsOptions,
    /// Write counters of every node to FILE, as JSON; -: to standard output, behind the program's
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Give allocations of the program other attributes: a text file with one rule per line, for example `grid.c:120 block=4096 homes=first-touch`. Sites: FILE:LINE,
    /// FUNCTION, `alloc N` (each node's N-th). Attributes: block, homes (round-robin, first-touch, slices, node:N), protocol
    #[arg(long, value_name = "FILE")]
    attr: Option<PathBuf>,
    /// Run several nodes even of a program whose accesses are not all checked, or that does not poll
    #[arg(long)]
    allow_incomplete: bool,
    /// Start each line of output with the node it comes from
    #[arg(long)]
    tag_output: bool,
    /// Start node 0 only: the program creates the other nodes (bz_create, the PARMACS macros). Programs that are linked with these calls
    /// need no option; give it if only a library of the program makes them
    #[arg(long)]
    fork: bool,
    /// End the run when all nodes have waited for each other for so many seconds, and say what each waits for; 0: never
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u32>(0..=u32::MAX.into()), default_value_t = STUCK_TIMEOUT.as_secs() as u32)]
    stuck_timeout: u32,
    #[command(flatten)]
    settings: MemorySettings,
    /// With --access guard: neither use nor keep what runs learn of accesses that touch shared memory
    #[arg(long)]
    pub no_learn: bool,
    /// Let the kernel write a core file of a node that dies, and say where it is
    #[arg(long, help_heading = "Debugging")]
    core: bool,
    /// End the run at the first access against what the protocol of its memory promises (`update`: two writers, a load before the flush), and name both lines.
    /// Each access to shared memory enters the runtime: much slower
    #[arg(long, help_heading = "Debugging")]
    pub(super) debug_protocols: bool,
    #[command(flatten)]
    debugger: DebuggerOptions,
    #[command(flatten)]
    pub(crate) options: RewriteOptions,
    #[command(flatten)]
    libraries: LibraryOptions,
    #[command(flatten)]
    pub program: ProgramAndArgs,
}

impl RunCommand {
    /// Runs the program; the exit status is the run's.
    pub fn execute(self) -> Result<ExitCode> {
        self.run(None)
    }

    /// The same. `learn`: the user wants to know what it has learnt, and perhaps to have it in a file.
    pub fn run(mut self, learn: Option<Option<&Path>>) -> Result<ExitCode> {
        if self.debug_protocols {
            // Each access has a test of its own, which says exactly what it touches.
            let passes = &mut self.options.passes;
            (passes.no_merge, passes.no_across, passes.no_strips, self.no_learn) = (true, true, true, true);
        }
        self.options = self.options.for_nodes(self.nodes);
        match self.hosts.place() {
            Ok(None) => {}
            Ok(Some(place)) => return self.run_on_hosts(place, learn),
            Err(error) => return Ok(misuse(&error)),
        }
        let rules = match self.attr.as_deref().map(|file| AttributeRules::read(file, Some(self.nodes))).transpose() {
            Ok(rules) => rules,
            Err(error) => return Ok(misuse(&error)),
        };
        let (name, args) = self.program.command.split_first().expect("clap requires the program");
        let guards = self.guards_by_default();
        let ready = prepare(name, self.options, guards, self.libraries, !self.no_learn)?;
        let Ready { original, flags, creates, manages, object, .. } = ready;
        if learn.is_some() {
            expect_to_learn(name, object, self.nodes > 1 || manages)?;
        }
        let mut executable = ready.executable;
        if let Some(why) = incomplete(flags).filter(|_| self.nodes > 1 && !self.allow_incomplete) {
            return Err(Error::new(format!("{}: cannot run on several nodes: {why}", name.display()))
                .help("rewrite it with --checks all --poll backedge; --allow-incomplete runs it all the same"));
        }
        if self.nodes > 1 && (self.libraries.no_libraries || !flags.libraries) {
            let unseen =
                if flags.guard { "system calls are not seen" } else { "accesses to shared memory are not checked" };
            messages::warning(&format!("{}: its libraries' {unseen}", name.display()));
        }
        let (rules, table) =
            match rules.map(|rules| find_sites(rules, &executable, &libraries_of(&executable))).transpose() {
                Ok(found) => found.unzip(),
                Err(error) => return Ok(misuse(&error)),
            };
        let stats = self.stats.as_deref().map(StatsFile::create).transpose()?;
        let forks = self.fork || creates;
        let options = LaunchOptions {
            debugger: self.debugger.debugger(&executable, self.nodes, flags.guard, forks && self.nodes > 1)?,
            forks,
            original,
            learns: object.is_some() && !self.no_learn,
            rules: table.map(Arc::new).unwrap_or_default(),
            ..self.launch_options(self.nodes)
        };
        if let (Some(debugger), true) = (&options.debugger, flags.guard && self.nodes > 1) {
            messages::note(&format!(
                "node {}: in guarded code gdb's step, next and finish lose the program where an access faults\n  \
                 help: --access tests has code that they follow; breakpoints and continue work in both",
                debugger.node
            ));
        }
        let mut attempts = 1;
        let outcome = loop {
            match launcher::run(&executable, args, &options) {
                // Somebody has cleaned the cache since it was made; nothing has been started.
                Err(_) if options.original.is_some() && attempts < ATTEMPTS && !executable.exists() => {
                    executable = prepare(name, self.options, guards, self.libraries, !self.no_learn)?.executable;
                    attempts += 1;
                }
                ended => break ended?,
            }
        };
        let made_of = || originals(&executable, options.original.as_deref());
        tell_of_failure(&outcome, |outcome| match &outcome.crash {
            _ if !outcome.stuck.is_empty() => stuck::table(&outcome.stuck, &made_of()),
            Some(crash) => crash::lines(crash, flags.guard, &made_of()),
            // It was perhaps the debugger.
            None if options.debugger.is_some() => Vec::new(),
            None => crash::unseen(outcome).map(str::to_owned).into_iter().collect(),
        });
        if self.core {
            tell_of_core(&executable, &outcome);
        }
        tell_of_unchecked(Path::new(name), self.nodes, flags, &outcome);
        tell_of_nothing_shared(Path::new(name), &options, &outcome);
        tell_of_number_behind(Path::new(name), args, &outcome);
        if let Some((rules, sites)) = &rules {
            matched::unmatched(rules, sites, &outcome.matched).iter().for_each(|line| messages::warning(line));
        }
        let all: Vec<String> = outcome.nodes.iter().map(|node| describe(node.status)).collect();
        messages::detail(&format!("the run took {:.3} s; the nodes: {}", outcome.wall.as_secs_f64(), all.join(", ")));
        if let Some(program) = object.filter(|_| options.learns) {
            let path = options.original.clone().or_else(|| input::find_program(name).ok());
            keep_learnt(&outcome, &rewritten::files_of(&executable), program, learn.map(|file| (path, file)))?;
        }
        if let Some(file) = stats {
            let mut stats = Stats::new(name.as_ref(), args, Some(flags), &outcome);
            let reports = outcome.nodes.iter().map(|node| &node.report);
            stats.trap_places = traps::places(reports, &rewritten::files_of(&executable));
            stats.allocation_rules =
                rules.iter().flat_map(|(rules, _)| matched::stats(rules, &outcome.matched)).collect();
            file.write(&stats)?;
        }
        Ok(ExitCode::from(u8::try_from(outcome.exit_status).unwrap_or(u8::MAX)))
    }
}

impl RunCommand {
    /// Whether guarded code is made of an original program, though nobody has asked for it. Nobody else takes memory away from a node that runs alone,
    /// so guarded code never faults there, and costs what relocation costs. Several nodes are served best by tests (`MEASUREMENTS.md`, "Which
    /// is the default").
    fn guards_by_default(&self) -> bool {
        let is_alone = self.nodes == 1 && !self.fork;
        is_alone && !self.debug_protocols && self.options.are_default()
    }

    /// What of the options is about all runs.
    fn launch_options(&self, nodes: u32) -> LaunchOptions {
        let is_debugged = self.debugger.are_given();
        let common = self.settings.launch_options(nodes);
        LaunchOptions {
            // Who stands at a breakpoint answers nobody.
            peer_timeout_ms: if is_debugged { 0 } else { common.peer_timeout_ms },
            stuck_timeout: Duration::from_secs(if is_debugged { 0 } else { self.stuck_timeout.into() }),
            cores: self.core,
            tag_output: self.tag_output,
            arg0: self.program.command.first().cloned(),
            watches_promises: self.debug_protocols,
            ..common
        }
    }

    /// Runs the program on several hosts. What keeps it from beginning is a misuse.
    fn run_on_hosts(&self, place: RunPlace, learn: Option<Option<&Path>>) -> Result<ExitCode> {
        match self.prepare_for_hosts(place, learn.is_some()) {
            Ok(shipped) => self.start_on_hosts(shipped, learn),
            Err(error) => Ok(misuse(&error)),
        }
    }

    /// Looks whether the program can run on several hosts, and rewrites it for them, unless it is a bundle.
    fn prepare_for_hosts(&self, place: RunPlace, is_to_learn: bool) -> Result<Shipped> {
        let RunPlace { hosts, starter, agent } = place;
        let nodes = hosts.nodes();
        let name = &self.program.command[0];
        let shown = name.display();
        let input = input::read(&input::find_program(name)?)?;
        if self.debug_protocols {
            let what = "--debug-protocols: the nodes write down what they store in memory of one host";
            return Err(
                Error::new(what).help(format!("run so many nodes on one host: -n {nodes} in place of the hosts"))
            );
        }
        if self.libraries.no_libraries {
            return Err(Error::new("--no-libraries: the libraries of a run on several hosts are rewritten and sent"));
        }
        if self.fork || rewritten::creates_nodes(&input.bytes) {
            return Err(Error::new(format!("{shown}: creates its nodes itself (bz_create, the PARMACS macros)"))
                .help("such programs run on one host: leave out --hosts and --hostfile"));
        }
        let asked = self.options.for_nodes(nodes);
        let bundle = rewritten::rewritten_with(&input.bytes);
        let flags = match bundle {
            Some(flags) => {
                refuse_other_options(&input.name, flags, asked)?;
                flags
            }
            None => flags_of(&asked.options()),
        };
        if let Some(why) = incomplete(flags).filter(|_| nodes > 1 && !self.allow_incomplete) {
            return Err(Error::new(format!("{shown}: cannot run on several nodes: {why}")));
        }
        let rules = self.attr.as_deref().map(|file| AttributeRules::read(file, Some(nodes))).transpose()?;
        let (files, object) = match bundle {
            Some(_) => (shipment::of_bundle(&input)?, accesses::object_of(&input.bytes)),
            None => {
                let options = asked.options();
                let (object, learnt) = known(&input, &options, !self.no_learn)?;
                (shipment::make(&input, &options, &learnt)?, object)
            }
        };
        if is_to_learn {
            expect_to_learn(name, object, nodes > 1 || rewritten::manages_memory(&input.bytes))?;
        }
        let mut sent: Vec<PathBuf> = files.iter().map(|(_, path)| path.clone()).collect();
        sent.dedup();
        let found = rules.map(|rules| find_sites(rules, &sent[0], &sent[1..]));
        let (rules, table) = found.transpose()?.unzip();
        let stats = self.stats.as_deref().map(StatsFile::create).transpose()?;
        let mut options = LaunchOptions {
            debugger: self.debugger.on_hosts(&hosts, &sent[0], flags.guard)?,
            rules: table.map(Arc::new).unwrap_or_default(),
            learns: object.is_some() && !self.no_learn,
            ..self.launch_options(nodes)
        };
        options.tempest.direct_bulk = false;
        let (command, guard) = (self.program.command.clone(), flags.guard);
        let setup = Setup { hosts, starter, agent, files, command, options, guard };
        Ok(Shipped { setup, flags, stats, rules, object, sent })
    }

    /// Starts it.
    fn start_on_hosts(&self, shipped: Shipped, learn: Option<Option<&Path>>) -> Result<ExitCode> {
        let Shipped { setup, flags, stats, rules, object, sent } = shipped;
        let outcome = match hosts_launcher::run(&setup) {
            Ok(outcome) => outcome,
            Err(error) => return Ok(misuse(&error)),
        };
        tell_of_failure(&outcome, |outcome| match &outcome.told.lines[..] {
            _ if !outcome.stuck.is_empty() => stuck::table(&outcome.stuck, &Originals::new()),
            [] => crash::unseen(outcome).map(str::to_owned).into_iter().collect(),
            told => told.to_vec(),
        });
        outcome.told.core.iter().for_each(|core| messages::note(core));
        let (name, args) = self.program.command.split_first().expect("clap requires the program");
        tell_of_unchecked(Path::new(name), setup.options.nodes, flags, &outcome);
        tell_of_nothing_shared(Path::new(name), &setup.options, &outcome);
        tell_of_number_behind(Path::new(name), args, &outcome);
        if let Some((rules, sites)) = &rules {
            matched::unmatched(rules, sites, &outcome.matched).iter().for_each(|line| messages::warning(line));
        }
        if let Some(program) = object.filter(|_| setup.options.learns) {
            let original = input::find_program(name).ok();
            keep_learnt(&outcome, &sent, program, learn.map(|file| (original, file)))?;
        }
        if let Some(file) = stats {
            let mut stats = Stats::new(name.as_ref(), args, Some(flags), &outcome);
            stats.trap_places = traps::places(outcome.nodes.iter().map(|node| &node.report), &sent);
            stats.allocation_rules =
                rules.iter().flat_map(|(rules, _)| matched::stats(rules, &outcome.matched)).collect();
            file.write(&stats)?;
        }
        Ok(ExitCode::from(u8::try_from(outcome.exit_status).unwrap_or(u8::MAX)))
    }
}

/// What a run on several hosts needs.
struct Shipped {
    setup: Setup,
    flags: ModuleFlags,
    stats: Option<StatsFile>,
    rules: Option<(AttributeRules, CallSites)>,
    /// Of guarded code: what it was made from.
    object: Option<Object>,
    /// The files that are sent, here: the program first.
    sent: Vec<PathBuf>,
}

/// The sites of rules in a rewritten program and its libraries; and the table that its nodes read.
///
/// # Errors
/// There is no such site.
pub(super) fn find_sites(
    rules: AttributeRules,
    program: &Path,
    libraries: &[PathBuf],
) -> Result<((AttributeRules, CallSites), Vec<u8>)> {
    let sites = CallSites::of(&rules, program, libraries)?;
    let table = sites.table(&rules)?;
    Ok(((rules, sites), table))
}

/// Says why a run has failed, and below that what was seen of it.
fn tell_of_failure(outcome: &RunOutcome, seen: impl FnOnce(&RunOutcome) -> Vec<String>) {
    if let Some(failure) = &outcome.failure {
        let seen: String = seen(outcome).iter().map(|line| format!("\n  {line}")).collect();
        // The runtime names functions by their symbols.
        let what = with_demangled(&failure.what);
        messages::error(&format!("{what}{seen}{}", &failure.to_string()[failure.what.len()..]));
    }
}

/// Who wants to know what a program learns is told if it learns nothing. `faults`: memory is taken away from a node of this run.
///
/// # Errors
/// It is no guarded code.
fn expect_to_learn(name: &OsStr, object: Option<Object>, faults: bool) -> Result<()> {
    if object.is_none() {
        let what = format!("{}: was rewritten without --access guard: it learns nothing", name.display());
        return Err(Error::new(what).help("give the original program"));
    }
    if !faults {
        messages::note("on one node no access faults, so nothing is learnt\n  help: use -n 2, or leave out -n");
    }
    Ok(())
}

/// Keeps what a run of these files, the program first, has learnt in the cache. `learn`: its original, for whoever wants to know, and perhaps a file that gets it, too.
fn keep_learnt(
    outcome: &RunOutcome,
    files: &[PathBuf],
    program: Object,
    learn: Option<(Option<PathBuf>, Option<&Path>)>,
) -> Result<()> {
    if outcome.learnt.is_empty() && learn.is_none() {
        return Ok(());
    }
    let learnt = knowledge::of_run(&outcome.learnt, files);
    let cache = Cache::of_user()?;
    let before = knowledge::of_program(&cache, program);
    let kept = if learnt.is_empty() { Ok(before.clone()) } else { knowledge::add(&cache, program, &learnt) };
    let Some((original, file)) = learn else {
        // A run is not worse because its cache cannot be written to.
        return Ok(());
    };
    let known = kept?;
    if let Some(file) = file {
        let failed = |e: std::io::Error| Error::new(format!("cannot write {}", file.display())).because(e);
        let mut all = match fs::read(file) {
            Ok(text) => Knowledge::parse(&String::from_utf8_lossy(&text), file)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Knowledge::default(),
            Err(e) => return Err(failed(e)),
        };
        all.merge(&learnt);
        // What earlier runs have learnt has tests already: this one could not learn it.
        all.include(&known);
        write_report(file, all.text().as_bytes()).map_err(failed)?;
    }
    let files = original.map(|path| learnt::files(&path)).transpose()?.unwrap_or_default();
    let count = |k: &Knowledge| k.all().map(|(_, sites)| sites.len()).sum::<usize>();
    let summary = learnt::summary(&learnt::report(&learnt, &files));
    let more = count(&known) - count(&before);
    if !messages::is_quiet() {
        messages::tell(&format!("learnt: {summary}; {more} of them are new, {} are known in all", count(&known)));
    }
    Ok(())
}

/// Says where the core file of the node is that has ended the run.
fn tell_of_core(executable: &Path, outcome: &RunOutcome) {
    let dumped = outcome.nodes.iter().position(|node| node.status.core_dumped());
    let crash = outcome.crash.as_ref();
    let Some(node) = crash.map(|crash| crash.node as usize).or(dumped) else { return };
    let process = crash.and_then(|crash| crash.process.as_ref());
    messages::note(&core_file::text(&format!("node {node}"), "", outcome.nodes[node].status, process, executable));
}

/// How often a program is rewritten that somebody removes from the cache before it is started.
const ATTEMPTS: u32 = 8;

/// Says at the end of a run what of it has not been checked.
fn tell_of_unchecked(name: &Path, nodes: u32, flags: ModuleFlags, outcome: &RunOutcome) {
    let name = name.display();
    let with = |counter: Counter| outcome.nodes.iter().filter(|n| n.report.counters[counter as usize] > 0).count();
    let unchecked = with(Counter::UncheckedCode);
    if nodes > 1 && unchecked > 0 {
        let what = if flags.guard {
            "(of a library that was left as it is): its system calls were not seen"
        } else {
            "(generated, or of a library that was left as it is): its accesses were not checked"
        };
        messages::note(&format!("{name}: {unchecked} nodes ran code that is not rewritten {what}"));
    } else if nodes == 1
        && !flags.guard
        && with(Counter::GeneratedCode) > 0
        && (flags.check_loads || flags.check_stores)
    {
        messages::note(&format!(
            "{name}: generates code, or maps some that is no library, whose accesses are not checked: on several nodes it runs with `--access guard` alone"
        ));
    }
}

/// Says that several nodes have done the same without a word to each other, which is seldom what was meant.
fn tell_of_nothing_shared(name: &Path, options: &LaunchOptions, outcome: &RunOutcome) {
    // At its end each node sends one message to each other node.
    let farewell = u64::from(options.nodes) - 1;
    let signs = [(Counter::Allocations, 0), (Counter::Barriers, 0), (Counter::MessagesSent, farewell)];
    let has_shared = |counters: &[u64]| signs.iter().any(|&(sign, usual)| counters[sign as usize] > usual);
    let is_alone = !outcome.nodes.iter().any(|node| has_shared(&node.report.counters));
    if options.nodes == 1 || outcome.failure.is_some() || outcome.exit_status != 0 || !is_alone {
        return;
    }
    let (name, nodes) = (name.display(), options.nodes);
    let is_created = |node: &NodeEnd| node.report.phase != node_phase::STARTING;
    if options.forks {
        if !outcome.nodes.iter().skip(1).any(is_created) {
            messages::note(&format!(
                "{name}: ran once, on node 0: it has created none of the other nodes\n  \
                 help: the nodes of such a run come into being by `bz_create` of blizzard.h"
            ));
        }
    } else {
        messages::note(&format!(
            "{name}: ran {nodes} times, once on each node, and the nodes shared nothing\n  \
             help: did you mean `blizzard run -- {name}`? Programs share memory by the calls of blizzard.h (`blizzard new` makes one)"
        ));
    }
}

/// Says that a number of nodes stood behind the program, which has got it: one that shares memory has run on one node.
fn tell_of_number_behind(name: &Path, args: &[OsString], outcome: &RunOutcome) {
    let counted = |node: &NodeEnd, counter: Counter| node.report.counters[counter as usize] > 0;
    let shares = |node: &NodeEnd| counted(node, Counter::Allocations) || counted(node, Counter::Barriers);
    let [option, number, ..] = args else { return };
    let is_number = number.to_str().is_some_and(|number| number.parse::<u16>().is_ok_and(|number| number > 1));
    if outcome.nodes.len() == 1 && shares(&outcome.nodes[0]) && (option == "-n" || option == "--nodes") && is_number {
        let (name, number) = (name.display(), number.display());
        messages::note(&format!(
            "{name}: ran on one node, and was given '{} {number}'\n  \
             help: options stand in front of the program: blizzard run -n {number} -- {name}",
            option.display()
        ));
    }
}

/// A program ready to run.
pub(super) struct Ready {
    pub(super) executable: PathBuf,
    /// The original, where what runs is a file of the cache.
    pub(super) original: Option<PathBuf>,
    /// How it was rewritten.
    pub(super) flags: ModuleFlags,
    /// It creates its nodes by itself.
    pub(super) creates: bool,
    /// It uses `tempest.h`.
    pub(super) manages: bool,
    /// Of guarded code that learns: what it was made from.
    pub(super) object: Option<Object>,
    /// Its libraries with their rewritten forms; none if the program was rewritten before.
    pub(super) libraries: Vec<(PathBuf, PathBuf)>,
}

/// The rewritten form of program `name`: as it is `asked` for, or if `guards` as guarded code, where the program can be, creates no nodes and takes no memory away
/// from itself.
pub(super) fn prepare(
    name: &OsStr,
    asked: RewriteOptions,
    guards: bool,
    libraries: LibraryOptions,
    learns: bool,
) -> Result<Ready> {
    let input = input::read(&input::find_program(name)?)?;
    let (creates, manages) = (rewritten::creates_nodes(&input.bytes), rewritten::manages_memory(&input.bytes));
    if let Some(flags) = rewritten::rewritten_with(&input.bytes) {
        refuse_other_options(&input.name, flags, asked)?;
        let object = accesses::object_of(&input.bytes);
        return Ok(Ready {
            executable: input.path,
            original: None,
            flags,
            creates,
            manages,
            object,
            libraries: Vec::new(),
        });
    }
    let options = asked.options();
    if !guards || creates || manages {
        return of_original(&input, &options, libraries, learns);
    }
    // It runs alone: no access of it faults, so there is nothing to learn.
    of_original(&input, &Options { access: AccessMode::Guard, ..options }, libraries, false).or_else(|refused| {
        // What is refused in either form is the program's own fault.
        let ready = of_original(&input, &options, libraries, learns)?;
        let why = match refused.refusals.first() {
            Some(Refusal { at, place, reason }) => format!("{at} ({place}): {reason}"),
            None => refused.what,
        };
        messages::note(&format!("{}: every access is tested, for it cannot be guarded: {why}", input.name));
        Ok(ready)
    })
}

/// The form of an original program that `options` ask for, and of its libraries.
fn of_original(input: &input::InputFile, options: &Options, libraries: LibraryOptions, learns: bool) -> Result<Ready> {
    let (creates, manages) = (rewritten::creates_nodes(&input.bytes), rewritten::manages_memory(&input.bytes));
    let (object, learnt) = known(input, options, learns)?;
    let Prepared { program: executable, libraries } = closure(input, options, libraries, &learnt)?;
    // As the kernel names a program that is executed.
    let original = input.path.canonicalize().ok();
    Ok(Ready { executable, original, flags: flags_of(options), creates, manages, object, libraries })
}

/// Of an original program that becomes guarded code and learns: what it is, and what is known of it.
fn known(input: &input::InputFile, options: &Options, learns: bool) -> Result<(Option<Object>, Knowledge)> {
    let object = (options.access == AccessMode::Guard && learns).then(|| Object::of(&input.bytes));
    let learnt = match object {
        Some(object) => knowledge::of_program(&Cache::of_user()?, object),
        None => Knowledge::default(),
    };
    Ok((object, learnt))
}

/// A program's rewritten form and those of its libraries, in the cache.
#[derive(Debug)]
pub struct Prepared {
    pub program: PathBuf,
    /// Each library with its rewritten form; empty if they are left as they are.
    pub libraries: Vec<(PathBuf, PathBuf)>,
}

/// Rewrites an original program and its libraries into the cache, with tests where runs have `learnt` that they pay.
///
/// # Errors
/// One of them cannot be rewritten, or the cache cannot be written to.
pub fn closure(
    input: &input::InputFile,
    options: &Options,
    libraries: LibraryOptions,
    learnt: &Knowledge,
) -> Result<Prepared> {
    let (options, source) = libraries.fitted_to(&input.bytes, *options, learnt)?;
    // What is no program is said so before its libraries are rewritten.
    pipeline::expect_program(&input.bytes, &input.name)?;
    let libraries = libraries::prepare(&input.path, &source)?;
    for (library, rewritten) in &libraries {
        messages::detail(&format!("{} runs as {}", library.display(), rewritten.display()));
    }
    let learnt = if learnt.is_empty() { LearntSites::NONE } else { learnt.of(Object::of(&input.bytes)) };
    let request = Request { options: &options, learnt };
    let key = CacheKey::of_rewrite(&input.bytes, request, &source.record());
    let file_name = input.path.file_name().unwrap_or(OsStr::new("program"));
    let program = Cache::of_user()?.get_or_make(&key, file_name, 0o700, |sink| {
        let rewritten = pipeline::rewrite_program(&input.bytes, &input.name, request, &source.record(), sink);
        input.bytes.expect_unchanged(&input.name)?;
        rewritten.map(drop)
    })?;
    messages::detail(&format!("{} runs as {}", input.name, program.display()));
    Ok(Prepared { program, libraries })
}

/// What to expect of a program rewritten like this when several nodes run it; none if all is well.
pub(super) fn incomplete(flags: ModuleFlags) -> Option<String> {
    let accesses = match (flags.check_loads, flags.check_stores) {
        (true, true) => None,
        (true, false) => Some("its stores are"),
        (false, true) => Some("its loads are"),
        (false, false) => Some("its loads and stores are"),
    };
    let accesses = accesses.map(|which| format!("{which} not checked, so what nodes share can be out of date or lost"));
    let polls = (!flags.polls).then(|| "it does not poll, so nodes can wait for ever for one that computes".to_owned());
    let all: Vec<String> = [accesses, polls].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The options as the output file records them.
fn flags_of(options: &Options) -> ModuleFlags {
    ModuleFlags {
        guard: options.access == AccessMode::Guard,
        check_loads: options.checks.loads(),
        check_stores: options.checks.stores(),
        polls: options.poll == Poll::Backedge,
        counting: options.count,
        blocks: options.blocks,
        many_nodes: options.many_nodes,
        libraries: true,
    }
}

/// An option given for a program that was rewritten with another one must not be ignored silently.
fn refuse_other_options(name: &str, found: ModuleFlags, asked: RewriteOptions) -> Result<()> {
    let wanted = flags_of(&asked.options());
    if wanted.many_nodes && !found.many_nodes {
        return Err(Error::new(format!("{name}: was rewritten for at most {FEW_NODES} nodes"))
            .help("give --nodes NODES to blizzard rewrite, or run the original program"));
    }
    let checks_differ =
        asked.checks.is_some() && (found.check_loads, found.check_stores) != (wanted.check_loads, wanted.check_stores);
    let differs = [
        (checks_differ, "--checks"),
        (asked.access.is_some() && found.guard != wanted.guard, "--access"),
        (asked.poll.is_some() && found.polls != wanted.polls, "--poll"),
        (asked.count && !found.counting, "--count"),
        (asked.count_blocks && !found.blocks, "--count-blocks"),
        // The file does not say which passes it went through.
        (asked.passes != PassOptions::default(), "choice of passes"),
    ];
    match differs.iter().find(|(differs, _)| *differs) {
        None => Ok(()),
        Some((_, option)) => Err(Error::new(format!("{name}: has been rewritten already, with another {option}"))
            .help(format!("give {option} to blizzard rewrite, or run the original program"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::{Checks, Poll};

    #[test]
    fn what_is_missing_for_several_nodes_is_said_in_one_line() {
        let of = |checks, poll| incomplete(flags_of(&Options { checks, poll, ..Options::default() }));
        assert_eq!(of(Checks::All, Poll::Backedge), None);
        let says = |checks, poll, parts: &[&str], not: &[&str]| {
            let text = of(checks, poll).unwrap();
            assert!(parts.iter().all(|p| text.contains(p)) && !not.iter().any(|p| text.contains(p)), "{text}");
            assert!(!text.contains('\n'));
        };
        says(Checks::Loads, Poll::Backedge, &["stores are not checked"], &["loads", "poll"]);
        says(Checks::Stores, Poll::Backedge, &["loads are not checked"], &["stores", "poll"]);
        says(Checks::All, Poll::None, &["does not poll"], &["checked"]);
        says(Checks::None, Poll::None, &["loads and stores are not checked", "does not poll"], &[]);
    }

    #[test]
    fn options_that_a_rewritten_program_does_not_have_are_refused() {
        let plain = flags_of(&Options::default());
        let none = RewriteOptions::default();
        assert!(refuse_other_options("p", plain, none).is_ok());
        assert!(refuse_other_options("p", plain, RewriteOptions { checks: Some(Checks::All), ..none }).is_ok());
        for (asked, option) in [
            (RewriteOptions { checks: Some(Checks::Stores), ..none }, "--checks"),
            (RewriteOptions { access: Some(AccessMode::Guard), ..none }, "--access"),
            (RewriteOptions { poll: Some(Poll::None), ..none }, "--poll"),
            (RewriteOptions { count: true, ..none }, "--count"),
            (RewriteOptions { passes: PassOptions { no_merge: true, ..none.passes }, ..none }, "passes"),
        ] {
            assert!(refuse_other_options("p", plain, asked).unwrap_err().what.ends_with(option));
        }
        let many = none.for_nodes(65);
        let error = refuse_other_options("p", plain, many).unwrap_err();
        assert_eq!(error.what, "p: was rewritten for at most 64 nodes");
        assert!(refuse_other_options("p", flags_of(&many.options()), none.for_nodes(2)).is_ok());
        let counting = ModuleFlags { counting: true, ..plain };
        assert!(refuse_other_options("p", counting, RewriteOptions { count: true, ..none }).is_ok());
        assert!(refuse_other_options("p", counting, none).is_ok());
    }
}
