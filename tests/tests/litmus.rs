//! Litmus programs (`tests/litmus`) through rewritten binaries on two to four nodes: at least 10^5 rounds each, and only
//! outcomes that some interleaving of the nodes' accesses in program order explains, with each protocol; some of them in guarded code, too. One run without checks shows that
//! the harness does see a violation.

use blizzard_test_harness::{Failed, Test};
use blizzard_tests::compile::{Job, Language, compile};
use blizzard_tests::run::{Outcome, run};
use blizzard_tests::tool::{self, Mode, OWN_DRIVERS, PROTOCOLS};
use blizzard_tests::workdir::WorkDir;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Programs and how many nodes their smallest run takes.
const PROGRAMS: [(&str, u32); 6] = [("sb", 2), ("mp", 2), ("lb", 2), ("corr", 2), ("2+2w", 2), ("iriw", 4)];
const MOST_NODES: u32 = 4;
const LEAST_ROUNDS: u64 = 100_000;
/// Of the program that spins: each round takes several turns of all nodes on the processors.
const LEAST_SPIN_ROUNDS: u64 = 60;

fn main() {
    let mut tests = Vec::new();
    let mut forms = BTreeMap::new();
    let mut form = |program, mode: Mode| -> Arc<Form> {
        forms.entry((program, mode.access)).or_insert_with(|| Form::of(program, mode)).clone()
    };
    for (program, roles) in PROGRAMS {
        for nodes in roles..=MOST_NODES {
            for (protocol, mode) in ways(nodes) {
                let name = format!("{program}_on_{nodes}_nodes_with_{protocol}_{}", mode.access);
                let form = form(program, mode);
                tests.push(Test::new(name, move || {
                    sequentially_consistent(form.file()?, nodes, protocol, LEAST_ROUNDS).map_err(Failed::from)
                }));
            }
        }
    }
    // Barriers and locks of the program's own; more nodes than processors, so that some spin for others that do not run.
    for nodes in [2, 4, 8] {
        for (protocol, mode) in ways(nodes) {
            let name = format!("spin_on_{nodes}_nodes_with_{protocol}_{}", mode.access);
            let form = form("spin", mode);
            tests.push(Test::new(name, move || {
                let file = form.file()?;
                on_two_processors(|| sequentially_consistent(file, nodes, protocol, LEAST_SPIN_ROUNDS))
                    .map_err(Failed::from)
            }));
        }
    }
    drop(forms);
    for (program, roles) in [("sb", 2), ("lb", 2), ("iriw", 4)] {
        tests.push(Test::new(format!("{program}_without_checks_is_seen_to_be_wrong"), move || {
            violation_is_seen(program, roles).map_err(Failed::from)
        }));
    }
    blizzard_tests::run::forbid_core_files();
    blizzard_test_harness::run("blizzard-tests::litmus", tests);
}

/// Runs with this thread, and what it starts, on two processors at most.
fn on_two_processors<R>(run: impl FnOnce() -> R) -> R {
    let all = sched_getaffinity(None).unwrap();
    let mut two = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).take(2).for_each(|cpu| two.set(cpu));
    sched_setaffinity(None, &two).unwrap();
    let result = run();
    sched_setaffinity(None, &all).unwrap();
    result
}

/// A program in one form, made and audited once. Its folder goes with the last test that runs it.
struct Form {
    program: &'static str,
    mode: Mode,
    made: OnceLock<Result<(WorkDir, PathBuf), String>>,
}

impl Form {
    fn of(program: &'static str, mode: Mode) -> Arc<Form> {
        Arc::new(Form { program, mode, made: OnceLock::new() })
    }

    fn file(&self) -> Result<&Path, String> {
        let made = self.made.get_or_init(|| {
            let work = WorkDir::new(&format!("litmus-{}-{}", self.program, self.mode.access))?;
            let output = build(&work, self.program, self.mode)?;
            tool::verify(&output, None)?.success()?;
            Ok((work, output))
        });
        made.as_ref().map(|(_, output)| output.as_path()).map_err(Clone::clone)
    }
}

fn build(work: &WorkDir, program: &str, mode: Mode) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("litmus").join(format!("{program}.c"));
    let plain = work.path().join("plain");
    let mut flags = tool::config("--cflags")?;
    flags.push("-O2".into());
    compile(&Job {
        sources: vec![source],
        language: Language::C,
        compiler: "cc",
        flags,
        libraries: tool::config("--libs")?,
        output: &plain,
    })?;
    let output = work.path().join("rewritten");
    tool::rewrite(&plain, &output, mode)?.success()?;
    Ok(output)
}

fn play(program: &Path, nodes: u32, protocol: &str) -> Result<Outcome, String> {
    // What is shown without checks is run, too.
    let mut command =
        tool::blizzard(["run", "--allow-incomplete", "-n", &nodes.to_string(), "--protocol", protocol, "--"]);
    run(command.arg(program), "", Duration::from_secs(900))?.success()
}

/// The number behind `word` on a line of its own.
fn number(outcome: &Outcome, word: &str) -> Result<u64, String> {
    let text = outcome.stdout_text();
    let found = text.lines().find_map(|l| l.strip_prefix(word)?.trim().parse().ok());
    found.ok_or_else(|| format!("no line `{word} NUMBER` in: {}", outcome.describe()))
}

/// Each protocol with tests in front of accesses, and some with guarded code: those with drivers of their own on two nodes, all on four, which have all roles, and
/// one on three.
fn ways(nodes: u32) -> impl Iterator<Item = (&'static str, Mode)> {
    let (tests, guard) = match nodes {
        MOST_NODES => (PROTOCOLS.len(), OWN_DRIVERS),
        3 => (1, 1),
        _ => (OWN_DRIVERS, OWN_DRIVERS),
    };
    let protocols = &PROTOCOLS[..tests];
    let guarded = PROTOCOLS[..guard].iter().map(|protocol| (*protocol, Mode::GUARD));
    protocols.iter().map(|protocol| (*protocol, Mode::TESTS)).chain(guarded)
}

fn sequentially_consistent(program: &Path, nodes: u32, protocol: &str, least_rounds: u64) -> Result<(), String> {
    let outcome = play(program, nodes, protocol)?;
    if number(&outcome, "rounds")? < least_rounds {
        return Err(format!("too few rounds: {}", outcome.describe()));
    }
    match number(&outcome, "forbidden")? {
        0 => Ok(()),
        _ => Err(format!("outcomes that are not sequentially consistent: {}", outcome.describe())),
    }
}

fn violation_is_seen(program: &str, nodes: u32) -> Result<(), String> {
    let work = WorkDir::new(&format!("litmus-{program}-unchecked"))?;
    let output = build(&work, program, Mode { checks: "none", ..Mode::TESTS })?;
    let outcome = play(&output, nodes, PROTOCOLS[0])?;
    match number(&outcome, "forbidden")? {
        0 => Err(format!("no forbidden outcome without checks: {}", outcome.describe())),
        _ => Ok(()),
    }
}
