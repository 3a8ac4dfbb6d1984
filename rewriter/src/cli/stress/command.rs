//! `blizzard stress`: random races on the real runtime, checked for sequential consistency.
//!
//! Input: how long, and what is fixed of the rounds. Output: how many rounds were in order, or the first that was not.
//!
//! Each round is a run of its own: a folder for the logs, `blizzard run` on the embedded program, the checker, and the folder is gone. When a
//! round contradicts itself, fails or stands still, its folder is kept and the command ends with what was found.

use crate::base::error::{Error, Result};
use crate::base::options::{AccessMode, Options};
use crate::base::progress::{self, Progress};
use crate::cli::run::settings::block_bytes;
use crate::cli::shared::arguments::{few_nodes, whole};
use crate::cli::shared::hosts::HostsOptions;
use crate::cli::shared::print::{misuse, print};
use crate::cli::shared::scratch;
use crate::cli::shared::workload::{Ending, Finished, Workload, WorkloadRun};
use crate::cli::stress::check::Checker;
use crate::cli::stress::log::{self, LoggedKind, Logs};
use crate::cli::stress::round::{Fixed, PIECE_HOMES, Round, StressProtocol, option_of};
use crate::cli::stress::violation::OrderViolation;
use crate::launch::options::HomePolicy;
use crate::reports::overhead::render::{command_line, grouped};
use crate::write::runtime_blob::Blob;
use blizzard_contract::FEW_NODES;
use blizzard_protocol::port::ProtocolId;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Seek;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Without any limit.
const DEFAULT_SECONDS: u64 = 10;
const PROGRESS_STEPS: u64 = 1000;
/// A round that takes longer stands still. Generous: on a machine with other work, nodes get their turn late.
const ROUND_LIMIT: Duration = Duration::from_secs(600);
/// The same where a bug was planted, which may make nodes wait for ever.
const PLANTED_LIMIT: Duration = Duration::from_secs(20);

/// Test the runtime: random races on shared words, checked for sequential consistency
///
/// Every node loads, stores and exchanges a few shared words at random, most of them in blocks that several nodes write, and logs what it gets.
/// The rounds go through all block sizes, home policies and protocols, of the run and of single allocations, some with more pages than the nodes may have
/// copies of. A checker then proves that one order of all accesses explains every log, or shows accesses that no order explains. Of memory with the protocols
/// `update` and `reduce` it proves that each load got what blizzard.h promises. Every other round runs with random delays wherever the runtime handles a message. The exit status is 1 if anything was found.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard stress -n 4 --seconds 60\n  \
    blizzard stress --hosts a:2,b:2 --seconds 60\n  \
    blizzard stress -n 3 --seed 17 --round 4     # once more what was found there")]
pub struct StressCommand {
    /// Number of node processes
    #[arg(short, long, value_name = "NODES", default_value = "2", value_parser = stress_nodes, conflicts_with_all = ["hosts", "hostfile"])]
    nodes: u32,
    #[command(flatten)]
    hosts: HostsOptions,
    /// Begin no new round after so many seconds [default: 10, if no other limit is given]
    #[arg(long, value_name = "S", value_parser = whole::<u64>(0..=u64::MAX))]
    seconds: Option<u64>,
    /// Stop after the round in which COUNT accesses have been checked
    #[arg(long, value_name = "COUNT", value_parser = whole::<u64>(0..=u64::MAX))]
    accesses: Option<u64>,
    /// Stop after COUNT rounds
    #[arg(long, value_name = "COUNT", value_parser = whole::<u64>(0..=u64::MAX))]
    rounds: Option<u64>,
    /// What the rounds are drawn from
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Coherence protocol of the run. `update` and `reduce`, which are for allocations, are that of every other allocation [default: each in turn]
    #[arg(long, value_name = "NAME", value_enum)]
    protocol: Option<StressProtocol>,
    /// Bytes that change hands together, 64 to 4096 [default: each power of two in turn]
    #[arg(long, value_name = "BYTES", value_parser = block_bytes)]
    block_size: Option<u32>,
    /// Which node keeps a page [default: each policy in turn]
    #[arg(long, value_name = "POLICY", value_enum)]
    homes: Option<HomePolicy>,
    /// How an access to shared memory that must wait is stopped
    #[arg(long, value_name = "HOW", value_enum, default_value = "tests")]
    access: AccessMode,
    /// Only this round of the seed, again and again
    #[arg(long, value_name = "NUMBER", value_parser = whole::<u64>(0..=u64::MAX))]
    round: Option<u64>,
    /// Where the logs of a violation are kept [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// A runtime to test in place of those of this executable
    #[arg(long, value_name = "FILE", hide = true)]
    runtime: Option<PathBuf>,
    /// Number of a bug in that runtime
    #[arg(long, value_name = "NUMBER", hide = true, default_value_t = 0)]
    planted: u32,
}

/// Two nodes at least: one alone cannot race.
fn stress_nodes(text: &str) -> std::result::Result<u32, String> {
    match few_nodes(text)? {
        1 => Err(ALONE.into()),
        nodes => Ok(nodes),
    }
}

const ALONE: &str = "one node alone cannot race; give 2 or more";

/// What all rounds together have done. Serialised as the `--json` object, with the field names given here.
#[derive(Debug, Default, Serialize)]
struct Totals {
    nodes: u32,
    /// As `--hosts` has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<String>,
    /// The options of `blizzard run` that say where.
    #[serde(skip)]
    place: Vec<String>,
    seed: u64,
    rounds: u64,
    rounds_with_delays: u64,
    rounds_with_replacement: u64,
    /// Rounds with an allocation that has a block size or homes of its own.
    rounds_with_attributes: u64,
    /// Rounds whose epochs are alike.
    rounds_again: u64,
    /// Allocations by what they have; 0 and `default`: as the run's options say.
    allocation_block_sizes: BTreeMap<u32, u64>,
    allocation_homes: BTreeMap<&'static str, u64>,
    allocation_protocols: BTreeMap<&'static str, u64>,
    /// What the user fixed; a round is repeated with the same.
    #[serde(skip)]
    fixed: Fixed,
    /// Rounds and accesses by what the rounds ran with. All end with the same sums.
    protocols: BTreeMap<String, Share>,
    block_sizes: BTreeMap<u32, Share>,
    homes: BTreeMap<String, Share>,
    /// Accesses that were logged and checked.
    accesses: u64,
    loads: u64,
    stores: u64,
    exchanges: u64,
    /// Of memory with `update`, and of memory with `reduce`.
    flushes: u64,
    check_outs: u64,
    adds: u64,
    /// The runtime's counters, summed over nodes and rounds.
    read_misses: u64,
    write_misses: u64,
    upgrades: u64,
    invalidations_received: u64,
    messages_sent: u64,
    sends_buffered: u64,
    pages_replaced: u64,
    blocks_evicted: u64,
    pages_homed: u64,
    asked_ahead: u64,
    run_seconds: f64,
    check_seconds: f64,
    /// Null if nothing was found.
    finding: Option<Finding>,
}

/// The rounds with one protocol, block size or home policy.
#[derive(Debug, Default, Clone, Copy, Serialize)]
struct Share {
    rounds: u64,
    accesses: u64,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Finding {
    round: Round,
    /// `violation`: the accesses contradict each other; `failure`: the run ended with an error; `standstill`: it did not end.
    kind: &'static str,
    what: String,
    details: Vec<String>,
    /// Where the round's logs are.
    logs: PathBuf,
}

/// How a round is over.
enum Played {
    Checked,
    /// The hosts could not begin: what the run has said.
    NotBegun(String),
}

/// The programs to run.
struct Programs {
    plain: PathBuf,
    delaying: PathBuf,
}

impl StressCommand {
    /// Runs rounds until the time is over or something is found.
    pub fn execute(self) -> Result<ExitCode> {
        let mut totals = match self.begin() {
            Ok(totals) => totals,
            Err(error) => return Ok(misuse(&error)),
        };
        let folder = scratch::folder("stress")?;
        let programs = self.programs(folder.path())?;
        let progress = self.progress();
        let fixed = totals.fixed;
        let begin = Instant::now();
        for number in self.round.map_or(0, |only| only).. {
            let done = self.share_done(&totals, begin.elapsed());
            if totals.rounds > 0 && done >= 1.0 {
                break;
            }
            let round = Round::new(self.seed, self.round.unwrap_or(number), fixed);
            progress.set_position((done * PROGRESS_STEPS as f64) as u64);
            progress.set_message(format!("round {}, {} accesses checked", round.number, grouped(totals.accesses)));
            if let Played::NotBegun(why) = self.play(&round, &programs, folder.path(), &mut totals)? {
                drop(progress);
                eprintln!("{}", why.trim_end());
                return Ok(ExitCode::from(2));
            }
            if totals.finding.is_some() {
                break;
            }
        }
        drop(progress);
        if self.json {
            let text = serde_json::to_string_pretty(&totals).expect("numbers and texts can be written as JSON");
            print(&(text + "\n"))?;
        } else {
            print(&report(&totals))?;
        }
        Ok(if totals.finding.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Where the rounds run, and nothing done yet.
    fn begin(&self) -> Result<Totals> {
        let fixed = Fixed { protocol: self.protocol, block_bytes: self.block_size, homes: self.homes };
        let (nodes, hosts, place) = match self.hosts.place()? {
            None => (self.nodes, None, vec!["-n".to_owned(), self.nodes.to_string()]),
            Some(place) => (place.hosts.nodes(), Some(place.list()), place.words()),
        };
        match nodes {
            1 => Err(Error::new(format!("--hosts: {ALONE}"))),
            _ if nodes as usize > FEW_NODES => {
                Err(Error::new(format!("--hosts: {nodes} nodes are more than the {FEW_NODES} that `stress` runs on")))
            }
            _ => Ok(Totals { nodes, hosts, place, seed: self.seed, fixed, ..Totals::default() }),
        }
    }

    fn programs(&self, folder: &Path) -> Result<Programs> {
        let (plain, delaying) = match &self.runtime {
            None => (Blob::of(self.access)?, Blob::with_instruments(self.access)?),
            Some(path) => {
                let bytes =
                    fs::read(path).map_err(|e| Error::new(format!("cannot read {}", path.display())).because(e))?;
                let blob = Blob::parse(&bytes)?;
                (blob.clone(), blob)
            }
        };
        let options = Options { access: self.access, ..Options::default() };
        Ok(Programs {
            plain: Workload::Stress.rewrite(folder, "stress", options, &plain, self.hosts.are_given())?,
            delaying: Workload::Stress.rewrite(
                folder,
                "stress-delaying",
                options,
                &delaying,
                self.hosts.are_given(),
            )?,
        })
    }

    /// How near the next limit is; 1: it is reached.
    fn share_done(&self, totals: &Totals, elapsed: Duration) -> f64 {
        let counted = [(totals.accesses, self.accesses), (totals.rounds, self.rounds)];
        let seconds = self.seconds.or(counted.iter().all(|(_, limit)| limit.is_none()).then_some(DEFAULT_SECONDS));
        let counted = counted.into_iter().filter_map(|(count, limit)| limit.map(|limit| (count as f64, limit as f64)));
        let timed = seconds.map(|limit| (elapsed.as_secs_f64(), limit as f64));
        let shares = counted.chain(timed).map(|(done, limit)| if done >= limit { 1.0 } else { done / limit });
        shares.fold(0.0, f64::max)
    }

    fn progress(&self) -> Progress {
        progress::begin(PROGRESS_STEPS, "[{bar:24}] {elapsed} {wide_msg}", "begins")
    }

    /// Runs and checks one round.
    fn play(&self, round: &Round, programs: &Programs, folder: &Path, totals: &mut Totals) -> Result<Played> {
        let failed = |e: std::io::Error| Error::new("cannot make a folder for the logs").because(e);
        let logs = folder.join(format!("round-{}", round.number));
        fs::create_dir_all(&logs).map_err(failed)?;
        let stats = logs.join("stats.json");
        let program = if round.delays.is_some() { &programs.delaying } else { &programs.plain };
        let mut options: Vec<OsString> = totals.place.iter().map(OsString::from).collect();
        options.extend(round.run_options());
        options.extend(["--stats".into(), stats.clone().into()]);
        let mut printed = None;
        // The folder is one of this host: others print what they log.
        if self.hosts.are_given() {
            options.push("--tag-output".into());
            printed = Some(tempfile::tempfile_in(folder).map_err(failed)?);
        }
        let log_folder = printed.is_none().then_some(&*logs);
        let began = Instant::now();
        let limit = if self.planted == 0 { ROUND_LIMIT } else { PLANTED_LIMIT };
        let output = printed.as_ref().map(File::try_clone).transpose().map_err(failed)?;
        let arguments = round.arguments(log_folder, self.planted);
        let finished = WorkloadRun { program, options: &options, arguments: &arguments, limit, output }.run()?;
        if self.hosts.are_given() && finished.has_not_begun() {
            return Ok(Played::NotBegun(finished.errors));
        }
        if let Some(mut printed) = printed {
            printed.rewind().map_err(failed)?;
            let gathered = log::gather(printed, &logs, totals.nodes);
            // What a run has printed that failed need not be whole.
            gathered.or_else(|error| if finished.succeeded() { Err(error) } else { Ok(()) })?;
        }
        totals.run_seconds += began.elapsed().as_secs_f64();
        let problem = if finished.succeeded() {
            let began = Instant::now();
            let checked = self.check(round, &logs, totals)?;
            totals.check_seconds += began.elapsed().as_secs_f64();
            add_counters(&stats, totals)?;
            checked.map(|violation| ("violation", violation.what, violation.details))
        } else {
            Some(failure(&finished, limit))
        };
        totals.rounds += 1;
        totals.rounds_with_delays += u64::from(round.delays.is_some());
        totals.rounds_with_replacement += u64::from(round.stache_pages.is_some());
        totals.rounds_with_attributes += u64::from(round.has_attributes());
        totals.rounds_again += u64::from(round.again);
        for piece in round.pieces.iter().flatten() {
            *totals.allocation_block_sizes.entry(piece.block_bytes).or_default() += 1;
            *totals.allocation_homes.entry(PIECE_HOMES[piece.homes as usize]).or_default() += 1;
            let protocol = ProtocolId::chosen(piece.protocol).map_or(PIECE_HOMES[0], |(id, _)| id.name());
            *totals.allocation_protocols.entry(protocol).or_default() += 1;
        }
        match problem {
            None => {
                fs::remove_dir_all(&logs).map_err(|e| Error::new("cannot remove the logs of a round").because(e))?
            }
            Some((kind, what, details)) => {
                let logs = self.keep_logs(&logs, round)?;
                totals.finding = Some(Finding { round: *round, kind, what, details, logs });
            }
        }
        Ok(Played::Checked)
    }

    fn check(&self, round: &Round, folder: &Path, totals: &mut Totals) -> Result<Option<OrderViolation>> {
        let promises = round.promises();
        let mut logs = Logs::open(folder, totals.nodes, promises.len() as u32)?;
        let mut checker = Checker::new(promises, totals.nodes);
        while let Some(epoch) = logs.next_epoch()? {
            for access in epoch.nodes.iter().flatten() {
                *match access.kind {
                    LoggedKind::Load => &mut totals.loads,
                    LoggedKind::Store => &mut totals.stores,
                    LoggedKind::Swap => &mut totals.exchanges,
                    LoggedKind::Flush => &mut totals.flushes,
                    LoggedKind::Open => &mut totals.check_outs,
                    LoggedKind::Add => &mut totals.adds,
                } += 1;
            }
            if let Err(mut violation) = checker.check(&epoch) {
                violation.what = format!("epoch {}: {}", violation.epoch, violation.what);
                return Ok(Some(violation));
            }
        }
        if checker.accesses() != round.total_accesses(totals.nodes) {
            return Err(Error::new("the logs of a round are incomplete").because(format!(
                "{} accesses, and not {}",
                checker.accesses(),
                round.total_accesses(totals.nodes)
            )));
        }
        totals.accesses += checker.accesses();
        for share in [
            totals.protocols.entry(totals.fixed.protocol.map_or(option_of(round.protocol), option_of)).or_default(),
            totals.block_sizes.entry(round.block_bytes).or_default(),
            totals.homes.entry(option_of(round.homes)).or_default(),
        ] {
            share.rounds += 1;
            share.accesses += checker.accesses();
        }
        Ok(None)
    }

    /// Moves the logs out of the folder that will be removed.
    fn keep_logs(&self, logs: &Path, round: &Round) -> Result<PathBuf> {
        let parent = self.keep.clone().unwrap_or_else(std::env::temp_dir);
        let failed = |e: std::io::Error| Error::new("cannot keep the logs of the violation").because(e);
        let name = format!("blizzard-stress-seed-{}-round-{}-", self.seed, round.number);
        let kept = tempfile::Builder::new().prefix(&name).tempdir_in(&parent).map_err(failed)?.keep();
        for entry in fs::read_dir(logs).map_err(failed)? {
            let from = entry.map_err(failed)?.path();
            // Another file system, perhaps: copied, and the original goes with its folder.
            fs::copy(&from, kept.join(from.file_name().expect("an entry has a name"))).map_err(failed)?;
        }
        Ok(kept)
    }
}

fn failure(finished: &Finished, limit: Duration) -> (&'static str, String, Vec<String>) {
    let details = finished.errors.lines().map(str::to_owned).collect();
    match finished.ending {
        Ending::Ended(status) => ("failure", format!("the run failed ({status})"), details),
        Ending::StillRunning => ("standstill", format!("the run did not end within {} s", limit.as_secs()), details),
    }
}

fn add_counters(stats: &Path, totals: &mut Totals) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| Error::new("cannot read the statistics of a round").because(e);
    let bytes = fs::read(stats).map_err(|e| failed(&e))?;
    let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| failed(&e))?;
    let counter = |name: &str| json["totals"][name].as_u64().ok_or_else(|| failed(&format!("no counter {name}")));
    totals.read_misses += counter("read_misses")?;
    totals.write_misses += counter("write_misses")?;
    totals.upgrades += counter("upgrades")?;
    totals.invalidations_received += counter("invalidations_received")?;
    totals.messages_sent += counter("messages_sent")?;
    totals.sends_buffered += counter("sends_buffered")?;
    totals.pages_replaced += counter("pages_replaced")?;
    totals.blocks_evicted += counter("blocks_evicted")?;
    totals.pages_homed += counter("pages_homed")?;
    totals.asked_ahead += counter("asked_ahead")?;
    Ok(())
}

fn report(totals: &Totals) -> String {
    let rate = |seconds: f64| grouped((totals.accesses as f64 / seconds.max(1e-9)) as u64);
    let mut text = format!(
        "{} nodes{}, seed {}: {} rounds in {:.1} s, {} of them with random delays, {} with replacement, {} with attributes of allocations\n\n",
        totals.nodes,
        totals.hosts.as_ref().map_or(String::new(), |hosts| format!(" on {hosts}")),
        totals.seed,
        totals.rounds,
        totals.run_seconds + totals.check_seconds,
        totals.rounds_with_delays,
        totals.rounds_with_replacement,
        totals.rounds_with_attributes
    );
    text += &format!("{:<26} {:>15} {:>15}\n", "", "rounds", "accesses");
    let named = |name: &str| name.to_owned();
    let shares = (totals.protocols.iter().map(|(name, share)| (named(name), share)))
        .chain(totals.homes.iter().map(|(name, share)| (format!("{name} homes"), share)))
        .chain(totals.block_sizes.iter().map(|(bytes, share)| (format!("blocks of {bytes} bytes"), share)));
    for (name, share) in shares {
        text += &format!("{name:<26} {:>15} {:>15}\n", grouped(share.rounds), grouped(share.accesses));
    }
    text += "\n";
    let rows = [
        ("accesses checked", totals.accesses),
        ("  loads", totals.loads),
        ("  stores", totals.stores),
        ("  exchanges", totals.exchanges),
        ("  flushes", totals.flushes),
        ("  check-outs, to add", totals.check_outs),
        ("  adds", totals.adds),
        ("misses", totals.read_misses + totals.write_misses + totals.upgrades),
        ("invalidations", totals.invalidations_received),
        ("messages", totals.messages_sent),
        ("  buffered by the sender", totals.sends_buffered),
        ("pages replaced", totals.pages_replaced),
        ("blocks given back", totals.blocks_evicted),
        ("pages homed by first touch", totals.pages_homed),
    ];
    for (name, value) in rows {
        text += &format!("{name:<26} {:>15}\n", grouped(value));
    }
    text += &format!(
        "\n{} accesses per second of running, {} per second of checking\n",
        rate(totals.run_seconds),
        rate(totals.check_seconds)
    );
    match &totals.finding {
        None => {
            text += "one order explains all accesses of each round: sequentially consistent\n";
            if totals.flushes + totals.adds > 0 {
                text += "but for memory with update or reduce, where each load got what blizzard.h promises\n";
            }
        }
        Some(finding) => {
            text += &format!("\nround {}: {}: {}\n", finding.round.number, finding.kind, finding.what);
            for line in &finding.details {
                text += &format!("  {line}\n");
            }
            text += &format!("\nwhat the round did: {:?}\n", finding.round);
            text += &format!("its logs: {}\n", finding.logs.display());
            let Fixed { protocol, block_bytes, homes } = totals.fixed;
            let options = [
                protocol.map(|p| format!(" --protocol {}", option_of(p))),
                block_bytes.map(|bytes| format!(" --block-size {bytes}")),
                homes.map(|h| format!(" --homes {}", option_of(h))),
            ];
            let options: String = options.into_iter().flatten().collect();
            text += &format!(
                "once more: blizzard stress {} --seed {} --round {}{options}\n",
                command_line(&totals.place),
                totals.seed,
                finding.round.number
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        stress: StressCommand,
    }

    /// How near its end a run with these options is after a time and so many accesses and rounds.
    fn share(options: &str, seconds: u64, accesses: u64, rounds: u64) -> f64 {
        let words = std::iter::once("stress").chain(options.split_whitespace());
        let command = Line::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).stress;
        let totals = Totals { accesses, rounds, ..Totals::default() };
        command.share_done(&totals, Duration::from_secs(seconds))
    }

    /// A run of a hundred million accesses ended after the usual ten seconds.
    #[test]
    fn a_limit_that_is_given_replaces_the_usual_one() {
        assert_eq!((share("", 5, 1000, 10), share("", 10, 0, 0)), (0.5, 1.0));
        assert_eq!((share("--accesses 400", 5000, 100, 10), share("--accesses 400", 0, 401, 1)), (0.25, 1.0));
        assert_eq!((share("--rounds 4", 5000, 100, 2), share("--rounds 0", 0, 0, 0)), (0.5, 1.0));
        let several = "--seconds 20 --rounds 4 --accesses 100";
        assert_eq!((share(several, 15, 10, 1), share(several, 1, 90, 2), share(several, 30, 0, 0)), (0.75, 0.9, 1.0));
    }
}
