//! `blizzard node`: one node of a run whose processes `mpirun` starts.
//!
//! Input: a program with its arguments, options of the run; the environment that the starter gives. Output: the node's output and exit status.

use crate::base::error::{Error, Result};
use crate::base::messages;
use crate::cli::run::attributes::file::AttributeRules;
use crate::cli::run::attributes::matched;
use crate::cli::run::attributes::sites::{CallSites, libraries_of};
use crate::cli::run::command::{Ready, find_sites, incomplete, prepare};
use crate::cli::run::settings::MemorySettings;
use crate::cli::shared::arguments::{ProgramAndArgs, RewriteOptions, node_count, whole};
use crate::cli::shared::libraries::LibraryOptions;
use crate::cli::shared::print::misuse;
use crate::launch::crashes::core_files;
use crate::launch::hosts::bundle::FileEntry;
use crate::launch::hosts::ranks::{self, RankSetup};
use crate::launch::launcher::{RunOutcome, Told};
use crate::launch::options::{LaunchOptions, STUCK_TIMEOUT};
use crate::launch::stats::{Stats, StatsFile};
use crate::launch::watching::stuck::Callers;
use crate::reports::{core_file, crash, stuck};
use crate::store::closure::originals;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Be a node of a run that mpirun, prterun or srun starts: each rank is one
///
/// Input, output and signals are those that the starter gives each rank. The program must be on each host at the same path, and so must
/// Blizzard; each host rewrites it into its own cache.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mpirun -n 8 blizzard node -- ./heat\n  \
    mpirun --host a:4,b:4 blizzard node --stats stats.json -- ./em3d --iters 20")]
pub struct NodeCommand {
    /// Let rank 0 write counters of every node to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Give allocations other attributes, as `blizzard run` does. FILE must be the same on all hosts
    #[arg(long, value_name = "FILE")]
    attr: Option<PathBuf>,
    /// How many ranks there are. It matters for more than 64, under a starter that does not tell (prterun)
    #[arg(short, long, alias = "np", value_name = "NODES", value_parser = node_count)]
    nodes: Option<u32>,
    /// End the run when all nodes have waited for each other for so many seconds, and say what each waits for; 0: never
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u32>(0..=u32::MAX.into()), default_value_t = STUCK_TIMEOUT.as_secs() as u32)]
    stuck_timeout: u32,
    /// Run several nodes even of a program whose accesses are not all checked, or that does not poll
    #[arg(long)]
    allow_incomplete: bool,
    /// Let the kernel write a core file of a node that dies, and say where it is
    #[arg(long, help_heading = "Debugging")]
    core: bool,
    /// What `blizzard run` has, and this has not.
    #[command(flatten)]
    debugging: DebuggingElsewhere,
    #[command(flatten)]
    settings: MemorySettings,
    #[command(flatten)]
    options: RewriteOptions,
    #[command(flatten)]
    program: ProgramAndArgs,
}

/// Options of `blizzard run` that are refused here, with what to do.
#[derive(Debug, Args)]
struct DebuggingElsewhere {
    #[arg(long, hide = true, value_name = "NODE")]
    gdb: Option<String>,
    #[arg(long, hide = true, value_name = "PORT")]
    gdb_server: Option<String>,
    #[arg(long, hide = true)]
    debug_protocols: bool,
}

impl DebuggingElsewhere {
    /// # Errors
    /// One of them is given.
    fn refuse(&self) -> Result<()> {
        let of_gdb = "blizzard run --hosts a:2,b:2 --gdb NODE --gdb-server PORT -- PROG; on one host: blizzard run -n 4 --gdb NODE -- PROG";
        let of_run = "blizzard run -n 4 --debug-protocols -- PROG, on one host";
        let (option, help) = match self {
            DebuggingElsewhere { gdb: Some(_), .. } => ("--gdb", of_gdb),
            DebuggingElsewhere { gdb_server: Some(_), .. } => ("--gdb-server", of_gdb),
            DebuggingElsewhere { debug_protocols: true, .. } => ("--debug-protocols", of_run),
            _ => return Ok(()),
        };
        Err(Error::new(format!("{option}: `blizzard node` does not have it, `blizzard run` has")).help(help))
    }
}

impl NodeCommand {
    /// Runs the node; the exit status is its own. What keeps it from beginning is a misuse.
    pub fn execute(self) -> Result<ExitCode> {
        let began = Instant::now();
        let may_begin =
            self.debugging.refuse().and_then(|()| ranks::expect_job()).and_then(|()| ranks::expect_files(0));
        let prepared = may_begin.and_then(|()| self.prepare());
        let Prepared { setup, ready, stats, rules } = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Ok(misuse(&error)),
        };
        let ranks::RankOutcome { exit_status, failure, crash, culprit, stuck, nodes, matched, starter } =
            ranks::run(setup)?;
        let (learnt, told, traffic, wall) = (Vec::new(), Told::default(), Vec::new(), began.elapsed());
        let outcome = RunOutcome { exit_status, failure, nodes, learnt, stuck, matched, crash, told, traffic, wall };
        if let Some(failure) = &outcome.failure {
            messages::error(&failure.to_string());
        }
        // Names are looked up then: when another rank has ended, this one may be killed.
        let made_of = outcome
            .failure
            .as_ref()
            .map(|_| originals(&ready.executable, ready.original.as_deref()))
            .unwrap_or_default();
        let calls = outcome.crash.iter().flat_map(|crash| crash::lines(crash, ready.flags.guard, &made_of));
        let waits = if outcome.stuck.is_empty() { Vec::new() } else { stuck::table(&outcome.stuck, &made_of) };
        for line in calls.chain(waits) {
            eprintln!("  {line}");
        }
        if let Some((name, status)) = culprit.filter(|_| self.core) {
            let process = outcome.crash.as_ref().and_then(|crash| crash.process.as_ref());
            let there = format!("on host {}: ", ranks::host_name());
            messages::note(&core_file::text(&name, &there, status, process, &ready.executable));
        }
        if let Some(starter) = starter {
            starter.end();
        }
        let is_known = !outcome.nodes.is_empty();
        if let Some((rules, sites)) = rules.as_ref().filter(|_| is_known) {
            matched::unmatched(rules, sites, &outcome.matched).iter().for_each(|line| messages::warning(line));
        }
        if let Some(file) = stats.filter(|_| is_known) {
            let (name, args) = self.program.command.split_first().expect("clap requires the program");
            let mut stats = Stats::new(name.as_ref(), args, Some(ready.flags), &outcome);
            stats.allocation_rules =
                rules.iter().flat_map(|(rules, _)| matched::stats(rules, &outcome.matched)).collect();
            file.write(&stats)?;
        }
        Ok(ExitCode::from(u8::try_from(outcome.exit_status).unwrap_or(u8::MAX)))
    }

    /// Rewrites the program, if somebody else has not; what this rank is to run.
    fn prepare(&self) -> Result<Prepared> {
        let rules = self.attr.as_deref().map(|file| AttributeRules::read(file, None)).transpose()?;
        let (name, args) = self.program.command.split_first().expect("clap requires the program");
        let shown = name.display();
        if self.core {
            core_files::allow()?;
        }
        let nodes = self.nodes.or_else(ranks::announced_size).unwrap_or(1);
        let ready = prepare(name, self.options.for_nodes(nodes), false, LibraryOptions::default(), false)?;
        let alone = match incomplete(ready.flags).filter(|_| !self.allow_incomplete) {
            Some(why) => Some(Error::new(format!("{shown}: cannot run on several nodes: {why}"))),
            None if ready.creates => Some(
                Error::new(format!("{shown}: creates its nodes itself (bz_create, the PARMACS macros)"))
                    .help("such programs run on one host: blizzard run -n 4 -- PROG"),
            ),
            None => None,
        };
        // What its libraries are here, this process has not seen.
        let one_host = ready.original.is_none().then(|| {
            Error::new(format!("{shown}: has been rewritten already, so its libraries may differ between hosts"))
                .help("give the original program")
        });
        let program = ready.executable.clone();
        let mut identity = FileEntry::of(String::new(), &program)?.hash;
        // Their places in the cache have the hashes of what they were made from.
        ready.libraries.iter().for_each(|(_, rewritten)| identity += &format!(" {}", rewritten.display()));
        let farthest = rules.as_ref().and_then(AttributeRules::farthest);
        let (rules, table) =
            rules.map(|rules| find_sites(rules, &program, &libraries_of(&program))).transpose()?.unzip();
        if let Some(file) = &self.attr {
            identity += &format!(" {}", FileEntry::of(String::new(), file)?.hash);
        }
        let stats = match &self.stats {
            Some(path) if ranks::is_first() => Some(StatsFile::create(Path::new(path))?),
            _ => None,
        };
        let options = LaunchOptions {
            arg0: Some(name.clone()),
            original: ready.original.clone(),
            rules: table.map(Arc::new).unwrap_or_default(),
            stuck_timeout: Duration::from_secs(self.stuck_timeout.into()),
            ..self.settings.launch_options(1)
        };
        let (args, guard, many_nodes) = (args.to_vec(), ready.flags.guard, ready.flags.many_nodes);
        let locate = |callers: &[Callers], of: &RankSetup| {
            stuck::places(callers, &originals(&of.program, of.options.original.as_deref()))
        };
        let setup =
            RankSetup { program, args, options, guard, many_nodes, identity, alone, one_host, locate, farthest };
        Ok(Prepared { setup, ready, stats, rules })
    }
}

/// What a rank needs.
struct Prepared {
    setup: RankSetup,
    ready: Ready,
    stats: Option<StatsFile>,
    rules: Option<(AttributeRules, CallSites)>,
}
