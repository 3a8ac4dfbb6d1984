//! A run whose nodes something else has started: `mpirun -n 8 blizzard node -- PROG`.
//!
//! Purpose: each rank of the job runs one node. The ranks find each other over PMIx or PMI-2 ([`Job`]); the first of each host makes its region and carries its messages. Input:
//! [`RankSetup`], the same in all ranks. Output: this rank's exit status; how all nodes ended, at rank 0.
//!
//! ```text
//! mpirun --- rank 0 (node 0, region and carrier of host a)     all ranks: what I run; rank 0: secret and header    then they meet
//!        |-- rank 1 (node 1)                                   first of a host: where region and carrier are       then they meet
//!        `- rank 2 (node 2, region and carrier of host b)      carriers have heard each other                      then they meet
//! ```
//!
//! Nodes are numbered by host, in the order of each host's first rank; where ranks are placed host by host, a node has its rank's number. A rank whose node has ended
//! waits for all others, because they may still need its carrier, and then leaves the job. One that has lost a host for ever says so, and ends its starter if
//! that could not end by itself ([`Starter`]).
//! **Invariants**: a rank that fails says so and ends, and the starter ends the others; what fails everywhere rank 0 alone says; what waits for other ranks is a thread, so
//! signals are always heard.

use crate::base::error::{Error, Result};
use crate::base::limits;
use crate::base::messages;
use crate::launch::crashes::crash::{self, Crash, OwnNodes};
use crate::launch::guard::{self, LauncherGuard};
use crate::launch::hosts::agent::start_carrier;
use crate::launch::hosts::frames::{Ended, version};
use crate::launch::hosts::host_list::{Host, named};
use crate::launch::hosts::launcher::secret;
use crate::launch::hosts::mailbox::{Mailbox, Slot};
use crate::launch::hosts::peers_watch::{HostPeers, PeersNews, PeersWatch};
use crate::launch::launcher::{self, NodeEnd, WrittenOutput, verdict, verdict_on};
use crate::launch::options::LaunchOptions;
use crate::launch::region::{Matched, NodeReport, RegionFile};
use crate::launch::signals::LaunchEvent;
use crate::launch::spawn::{self, Reaper, SpawnedNode};
use crate::launch::watching::stuck::{Callers, StuckNode};
use crate::launch::watching::supervise::{GRACE, RECHECK, RunStop, has_failed};
use crate::launch::{leftovers, sys};
use blizzard_carrier::carrier::{self, Carrier};
use blizzard_carrier::job::client::Job;
use blizzard_carrier::job::join;
use blizzard_contract::{FEW_NODES, MAX_NODES, RegionHeader, node_phase};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Signal, getrlimit};
use serde::{Deserialize, Serialize};
use signal_hook::consts::signal::{SIGCHLD, SIGUSR1, SIGUSR2};
use std::ffi::{CStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// What a rank runs; at rank 0 also what all have in common.
const CARD: &CStr = c"blizzard.card";
/// Where a host's region and carrier are.
const PLACE: &CStr = c"blizzard.place";
/// How a node ended.
const END: &CStr = c"blizzard.end";

/// How long carriers may take to hear each other.
const ANSWER: Duration = Duration::from_secs(8);
/// How long a host may be lost before that is a failure: its nodes may have ended, and the starter may be about to say so.
const LOST: Duration = Duration::from_secs(2);
/// How long a starter may take to end.
const RESPITE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Exit status of a rank whose node cannot begin.
const CANNOT_BEGIN: i32 = 2;
/// How long a rank that has nothing to say waits for the one that has.
const OTHERS_SPEAK: Duration = Duration::from_secs(2);

/// What this rank is to run.
#[derive(Debug)]
pub struct RankSetup {
    /// Rewritten.
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// For any number of nodes.
    pub options: LaunchOptions,
    /// It is guarded code.
    pub guard: bool,
    /// Its runtime is the one for more than [`FEW_NODES`].
    pub many_nodes: bool,
    /// Tells programs apart that are rewritten differently, or with other libraries.
    pub identity: String,
    /// Why it runs on one node only, or on one host only.
    pub alone: Option<Error>,
    pub one_host: Option<Error>,
    /// Names the places where nodes wait, of this program.
    pub locate: fn(&[Callers], &RankSetup) -> Vec<Option<String>>,
    /// The farthest home that a rule of allocations names, and what to say if there is no such node.
    pub farthest: Option<(u32, Error)>,
}

/// How a run ended, as far as a rank knows.
#[derive(Debug)]
pub struct RankOutcome {
    pub exit_status: i32,
    pub failure: Option<Error>,
    /// What was seen of the node that failed.
    pub crash: Option<Crash>,
    /// This rank's node, as it is called, with how it ended, if that has ended the run.
    pub culprit: Option<(String, ExitStatus)>,
    /// What each node waited for, if they waited for each other.
    pub stuck: Vec<StuckNode>,
    /// At rank 0 of a run that ended well: all nodes.
    pub nodes: Vec<NodeEnd>,
    /// There: what the rules of allocations have matched, if all nodes were on its host.
    pub matched: Matched,
    /// To be ended when the failure has been told.
    pub starter: Option<Starter>,
}

/// What has started this rank, for this run alone: Open MPI's `mpirun`, or its daemon. When a host is lost for ever, it waits for the daemon of that host until
/// TCP gives up, which takes a quarter of an hour. A starter that may serve other runs as well is left alone.
#[derive(Debug)]
pub struct Starter(OwnedFd);

impl Starter {
    fn find() -> Option<Starter> {
        let pid = rustix::process::getppid()?;
        let program = std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).ok()?;
        let serves_one_run = ["orterun", "orted"].iter().any(|name| program.ends_with(name));
        let open = || rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        serves_one_run.then(open)?.ok().map(Starter)
    }

    /// Ends it; the daemons that it reaches end with it, and so does what they have started.
    pub fn end(&self) {
        for signal in [Signal::TERM, Signal::KILL] {
            // One that has ended gets none, and is not waited for.
            let _ = rustix::process::pidfd_send_signal(&self.0, signal);
            let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&RESPITE));
        }
    }
}

/// What a rank tells all others first.
#[derive(Serialize, Deserialize)]
struct Card {
    /// The first rank of its host.
    first: u32,
    host: String,
    version: String,
    /// The program's name, as the user has given it.
    program: String,
    identity: String,
    /// Of rank 0: the run's secret and header.
    common: Option<(Vec<u8>, Vec<u8>)>,
}

/// Where the ranks of a host find what they share: a descriptor of a process, and the carrier's address.
#[derive(Serialize, Deserialize)]
struct Place {
    process: u32,
    descriptor: i32,
    address: Vec<u8>,
}

/// What the node needs.
struct Begin {
    node: u16,
    hosts: Vec<Host>,
    region: RegionFile,
    carrier: Option<Carrier>,
}

impl Begin {
    fn total(&self) -> u32 {
        self.hosts.last().map_or(0, |host| host.nodes.end.into())
    }
}

/// What threads tell.
enum News {
    Begin(Box<Begin>),
    /// Nobody needs this rank any more; at rank 0: how all nodes ended.
    Over(Vec<Ended>),
    Failed(Error),
    /// All ranks see it; whether this one is to say it.
    FailedEverywhere(Error, bool),
    Carrier(carrier::CarrierEvent),
}

impl From<Error> for News {
    fn from(error: Error) -> News {
        News::Failed(error)
    }
}

impl From<String> for News {
    fn from(why: String) -> News {
        News::Failed(Error::new(why))
    }
}

/// Runs this rank's node. **Returns in a child of the calling process**, as [`launcher::run`] does.
///
/// # Errors
/// Nothing has started this process that speaks PMIx or PMI-2; the kernel gives no process.
pub fn run(setup: RankSetup) -> Result<RankOutcome> {
    // 0: the starter is outside of this namespace of processes.
    let starter = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let own_starter = Starter::find();
    let launcher = std::process::id() as i32;
    let mut guard = guard::split()?;
    let starter_lives = move || leftovers::parent_of(launcher) == Some(starter);
    let (slot, mailbox) = Mailbox::new().map_err(|e| Error::new("the kernel gives no pipe").because(e))?;
    let (has_ended, ended) = mpsc::channel();
    let setup = Arc::new(setup);
    let theirs = Arc::clone(&setup);
    let speak = move || {
        if let Err(news) = take_part(&theirs, &slot, &ended) {
            slot.put(news);
        }
    };
    std::thread::Builder::new()
        .spawn(speak)
        .map_err(|e| Error::new("the kernel gives this rank no thread").because(e).help("see `ulimit -u`"))?;
    let rank = Rank {
        setup: &setup,
        mailbox,
        has_ended,
        begun: None,
        nodes: Vec::new(),
        crashes: Vec::new(),
        leaving: None,
        lost: None,
        stuck: None,
        starter: own_starter,
    };
    let outcome = rank.watch(&mut guard, &starter_lives);
    leftovers::end_all(leftovers::LIMIT);
    Ok(outcome)
}

/// Says why this process is no rank of a job, if it is none.
///
/// # Errors
/// That is why.
pub fn expect_job() -> Result<()> {
    if join::is_offered() {
        return Ok(());
    }
    let what = "blizzard node: no mpirun, prterun or srun that speaks PMIx or PMI-2 has started this process";
    Err(Error::new(what).help(if std::env::var_os("SLURM_PROCID").is_some() {
        "srun --mpi=pmix or srun --mpi=pmi2, whichever this cluster's Slurm has (`srun --mpi=list`)"
    } else {
        "mpirun -n 4 blizzard node -- PROG; without mpirun: blizzard run -n 4 -- PROG"
    }))
}

/// Looks whether this rank may open the files that it needs, and to carry messages to so many hosts.
///
/// # Errors
/// It may not, with the name of the host.
pub fn expect_files(hosts: usize) -> Result<()> {
    limits::expect_open_files(1, hosts).map_err(of_this_host)
}

fn of_this_host(error: Error) -> Error {
    Error { what: format!("host {}: {}", host_name(), error.what), ..error }
}

/// How many ranks there are, where the starter's environment says so.
pub fn announced_size() -> Option<u32> {
    join::announced_size()
}

/// Whether this is rank 0.
pub fn is_first() -> bool {
    join::rank() == Some(0)
}

/// The name of this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What speaks with other ranks, from the beginning to the end.
fn take_part(setup: &RankSetup, slot: &Slot<News>, ended: &Receiver<Ended>) -> std::result::Result<(), News> {
    let job = join::join()?;
    let first = job.here[0];
    let common = if job.rank == 0 {
        let options = LaunchOptions { nodes: job.size.min(MAX_NODES as u32), ..setup.options.clone() };
        let hosts = if job.here.len() < job.size as usize { 2 } else { 1 };
        Some((secret()?, RegionFile::header_for(&options, 1, hosts).bytes().to_vec()))
    } else {
        None
    };
    let (version, identity) = (version(), setup.identity.clone());
    let program = setup.options.arg0.as_ref().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    put(&job, CARD, &Card { first, host: host_name(), version, program, identity, common })?;
    job.meet()?;
    let cards: Vec<Card> = (0..job.size).map(|rank| read(&job, rank, CARD)).collect::<Result<_>>()?;
    let (hosts, order) = number(setup, &cards).map_err(|error| News::FailedEverywhere(error, job.rank == 0))?;
    let node = order.iter().position(|&rank| rank == job.rank).unwrap_or_default() as u16;
    let me = hosts.iter().position(|host| host.nodes.contains(&node)).unwrap_or_default();

    let (secret, header) = cards[0].common.as_ref().ok_or_else(|| Error::new("rank 0 does not say what all share"))?;
    let (connected, is_connected) = mpsc::channel();
    let (region, carrier) = if job.rank == first {
        launcher::expect_address_space(getrlimit(Resource::As).maximum).map_err(of_this_host)?;
        expect_files(hosts.len() - 1)?;
        let region = RegionFile::with_header(header_here(header, &hosts, me)?)?;
        region.put_rules(&setup.options.rules)?;
        region.put_hosts(hosts.iter().map(|host| host.nodes.clone()))?;
        let carrier = if hosts.len() == 1 {
            None
        } else {
            let slot = slot.clone();
            let tell = move |event| match event {
                carrier::CarrierEvent::Connected => drop(connected.send(())),
                event => drop(slot.put(News::Carrier(event))),
            };
            Some(start_carrier(&hosts, me, secret, &region, (setup.guard, true), tell)?)
        };
        let address = carrier.as_ref().map(|carrier| carrier.address.clone()).unwrap_or_default();
        put(&job, PLACE, &Place { process: std::process::id(), descriptor: region.fd(), address })?;
        (Some(region), carrier)
    } else {
        (None, None)
    };
    job.meet()?;
    let region = match region {
        Some(region) => region,
        None => {
            let Place { process, descriptor, .. } = read(&job, first, PLACE)?;
            RegionFile::of_process(process, descriptor)?
        }
    };
    if let Some(carrier) = &carrier {
        let place = |host: &Host| read::<Place>(&job, order[usize::from(host.nodes.start)], PLACE);
        carrier.connect(hosts.iter().map(|host| Ok(place(host)?.address)).collect::<Result<_>>()?);
        let late = |_| {
            let (name, seconds) = (&hosts[me].name, ANSWER.as_secs());
            Error::new(format!("host {name}: has not heard all other hosts over UCX within {seconds} s"))
                .help("UCX_NET_DEVICES and UCX_TLS choose the network; `ucx_info -d` shows what there is")
        };
        is_connected.recv_timeout(ANSWER).map_err(late)?;
    }
    job.meet()?;
    slot.put(News::Begin(Box::new(Begin { node, hosts, region, carrier })));

    // Whoever has failed does not come back.
    let Ok(ended) = ended.recv() else { return Ok(()) };
    put(&job, END, &ended)?;
    job.meet()?;
    let is_root = job.rank == 0;
    let all = order.iter().filter(|_| is_root).map(|&rank| read(&job, rank, END)).collect::<Result<_>>()?;
    job.leave()?;
    slot.put(News::Over(all));
    Ok(())
}

fn put(job: &Job, key: &CStr, value: &impl Serialize) -> Result<()> {
    let bytes = serde_json::to_vec(value).map_err(|e| Error::new("cannot say what this rank has").because(e))?;
    job.put(key, &bytes).map_err(Error::new)
}

fn read<T: serde::de::DeserializeOwned>(job: &Job, rank: u32, key: &CStr) -> Result<T> {
    let bytes = job.get(rank, key).map_err(Error::new)?;
    serde_json::from_slice(&bytes).map_err(|e| Error::new(format!("rank {rank} says what no rank says")).because(e))
}

/// Looks whether all ranks run the same.
///
/// # Errors
/// They do not.
fn expect_same(cards: &[Card]) -> Result<()> {
    let first = &cards[0];
    let who = |rank: usize| format!("rank {rank} on host {}", cards[rank].host);
    let other = |of: &dyn Fn(&Card) -> &str| cards.iter().position(|card| of(card) != of(first));
    if let Some(rank) = other(&|card| &card.version) {
        let (theirs, ours) = (&cards[rank].version, &first.version);
        let what = format!("{} has Blizzard {theirs}, and {} has {ours}", who(rank), who(0));
        return Err(Error::new(what).help("the same build of Blizzard is needed at the same path on all hosts"));
    }
    let Some(rank) = other(&|card| &card.identity) else { return Ok(()) };
    let (theirs, ours) = (&cards[rank].program, &first.program);
    Err(if theirs == ours {
        Error::new(format!("{} has another {theirs} than {}", who(rank), who(0)))
            .help("the same file, libraries, options, and path of Blizzard and of its cache are needed on all hosts")
    } else {
        Error::new(format!("{} runs {theirs}, and {} runs {ours}", who(rank), who(0)))
            .help("the ranks of a job are the nodes of one program: give all of them the same, with the same options")
    })
}

/// The hosts with their nodes, and the rank of each node.
///
/// # Errors
/// The ranks do not run the same program, or it cannot run on so many.
fn number(setup: &RankSetup, cards: &[Card]) -> Result<(Vec<Host>, Vec<u32>)> {
    expect_same(cards)?;
    if cards.len() > MAX_NODES {
        return Err(Error::new(format!("{} ranks are more than the {MAX_NODES} nodes that a run has", cards.len())));
    }
    if cards.len() > FEW_NODES && !setup.many_nodes {
        let what = format!("{} ranks, and the program is rewritten for at most {FEW_NODES}", cards.len());
        let help = format!(
            "what has started this run does not tell how many there are: blizzard node --nodes {}",
            cards.len()
        );
        return Err(Error::new(what).help(help));
    }
    let mut order: Vec<u32> = (0..cards.len() as u32).collect();
    order.sort_by_key(|&rank| (cards[rank as usize].first, rank));
    let mut hosts: Vec<Host> = Vec::new();
    let mut last = None;
    for (node, &rank) in (0..).zip(&order) {
        let card = &cards[rank as usize];
        if last.replace(card.first) == Some(card.first) {
            hosts.last_mut().expect("the last one").nodes.end = node + 1;
        } else {
            hosts.push(Host { name: card.host.clone(), nodes: node..node + 1 });
        }
    }
    let again =
        |error: &Error| Error { causes: error.causes.clone(), help: error.help.clone(), ..Error::new(&error.what) };
    match (&setup.alone, &setup.one_host, &setup.farthest) {
        (Some(error), ..) if cards.len() > 1 => Err(again(error)),
        (_, Some(error), _) if hosts.len() > 1 => Err(again(error)),
        (.., Some((node, error))) if *node as usize >= cards.len() => Err(again(error)),
        _ => Ok((hosts, order)),
    }
}

/// The header of this host's region.
fn header_here(common: &[u8], hosts: &[Host], me: usize) -> Result<RegionHeader> {
    let bytes = common.try_into().map_err(|_| Error::new("rank 0 has another header than this rank"))?;
    let mut header = RegionHeader::from_bytes(bytes);
    let carriers = u32::from(hosts.len() > 1);
    if carriers != 0 {
        // No process copies out of one of another host.
        header.tempest_flags |= blizzard_contract::tempest_flags::NO_DIRECT_BULK;
    }
    let here = hosts[me].nodes.len() as u32 + carriers;
    header.cpus = if here <= carrier::processors_of_host() { header.nodes } else { 1 };
    Ok(header)
}

/// This rank, while its node runs.
struct Rank<'a> {
    setup: &'a RankSetup,
    mailbox: Mailbox<News>,
    has_ended: mpsc::Sender<Ended>,
    begun: Option<Begin>,
    /// Its node, from its start on.
    nodes: Vec<SpawnedNode>,
    crashes: Vec<Crash>,
    /// It ends with this status and without a word, then at the latest.
    leaving: Option<(i32, Instant)>,
    /// A host that was lost: what to say then.
    lost: Option<(Instant, Error)>,
    /// At the first rank of a host: whether the run is stuck.
    stuck: Option<PeersWatch>,
    starter: Option<Starter>,
}

impl Rank<'_> {
    /// Starts the node when all are there, and waits until nobody needs this rank any more.
    fn watch(mut self, guard: &mut LauncherGuard, starter_lives: &dyn Fn() -> bool) -> RankOutcome {
        let mut reaper = Reaper::default();
        loop {
            // One that was killed cannot end its ranks.
            if !starter_lives() {
                return quiet(128 + libc::SIGKILL);
            }
            while let Some(news) = self.mailbox.take() {
                if let Some(outcome) = self.hear(news) {
                    return outcome;
                }
            }
            if let Some(begun) = &self.begun {
                crash::look(
                    OwnNodes { nodes: &self.nodes, first: begun.node.into() },
                    &begun.region,
                    &mut self.crashes,
                    false,
                );
            }
            if let Some(begun) = &self.begun
                && !reaper.reap(&mut self.nodes, &begun.region).is_empty()
            {
                if let Some((status, _)) = self.leaving {
                    return quiet(status);
                }
                if let Some(outcome) = self.has_ended() {
                    return outcome;
                }
            }
            if let Some(outcome) = self.look_or_hear(None) {
                return outcome;
            }
            let is_due = |at: Instant| at <= Instant::now();
            if let Some((status, _)) = self.leaving.filter(|(_, at)| is_due(*at)) {
                return quiet(status);
            }
            if let Some((_, error)) = self.lost.take_if(|(at, _)| is_due(*at)) {
                return RankOutcome { starter: self.starter, ..failed(libc::EXIT_FAILURE, error) };
            }
            let look = self.stuck.as_ref().and_then(PeersWatch::next);
            let next = [self.leaving.map(|(_, at)| at), self.lost.as_ref().map(|(at, _)| *at), look];
            let next = next.into_iter().flatten().min();
            let timeout = next.map_or(RECHECK, |at| at.saturating_duration_since(Instant::now()).min(RECHECK));
            for event in guard.wait_also(Some(&self.mailbox.wake), timeout) {
                match event {
                    LaunchEvent::Signal { signal: SIGCHLD, .. } => {}
                    LaunchEvent::Signal { signal, .. } => {
                        self.nodes.iter().for_each(|node| node.signal(signal));
                        let goes_on =
                            [SIGUSR1, SIGUSR2].contains(&signal) || (self.is_alone() && !self.nodes.is_empty());
                        if !goes_on {
                            let grace = if self.nodes.is_empty() { Duration::ZERO } else { GRACE };
                            self.leaving = Some((128 + signal, Instant::now() + grace));
                        }
                    }
                    LaunchEvent::LauncherGone => return quiet(128 + libc::SIGKILL),
                }
            }
        }
    }

    fn hear(&mut self, news: News) -> Option<RankOutcome> {
        let status = if self.begun.is_some() { libc::EXIT_FAILURE } else { CANNOT_BEGIN };
        match news {
            News::Begin(begin) => {
                let node = self.start(&begin);
                self.stuck = PeersWatch::begin(&begin.hosts, begin.node, self.setup.options.stuck_timeout);
                self.begun = Some(*begin);
                match node {
                    Ok(node) => self.nodes = vec![node],
                    Err(error) => return Some(failed(CANNOT_BEGIN, error)),
                }
            }
            News::Over(all) => {
                let begun = self.begun.take();
                let one_host = begun.as_ref().filter(|begun| begun.hosts.len() == 1);
                let matched = one_host.map(|begun| begun.region.matched()).unwrap_or_default();
                if let Some(carrier) = begun.and_then(|begun| begun.carrier) {
                    carrier.stop();
                }
                return Some(RankOutcome { nodes: all.iter().map(NodeEnd::from).collect(), matched, ..quiet(0) });
            }
            News::Failed(error) => return Some(failed(status, error)),
            News::FailedEverywhere(error, true) => return Some(failed(status, error)),
            News::FailedEverywhere(_, false) => self.let_others_speak(status),
            News::Carrier(carrier::CarrierEvent::Lost { host, why }) => {
                let name = self.begun.as_ref().map_or_else(|| host.to_string(), |begun| begun.hosts[host].name.clone());
                let error = Error::new(format!("host {name}, as host {} sees it: {why}", host_name()));
                self.lost.get_or_insert((Instant::now() + LOST, error));
            }
            News::Carrier(carrier::CarrierEvent::Node { why, .. } | carrier::CarrierEvent::Failed(why)) => {
                return Some(failed(status, Error::new(format!("host {}: {why}", host_name()))));
            }
            News::Carrier(carrier::CarrierEvent::Said { host, bytes }) => {
                return self.look_or_hear(Some((host, bytes)));
            }
            News::Carrier(carrier::CarrierEvent::Connected) => {}
        }
        None
    }

    /// Looks whether the run is stuck, or hears what another host says of that; how it ends if it is.
    fn look_or_hear(&mut self, said: Option<(usize, Vec<u8>)>) -> Option<RankOutcome> {
        let (begun, peers, setup) = (self.begun.as_ref()?, self.stuck.as_mut()?, self.setup);
        let locate = |callers: &[Callers]| (setup.locate)(callers, setup);
        let here = HostPeers { region: &begun.region, carrier: begun.carrier.as_ref(), locate: &locate };
        let news = match said {
            None => peers.look(&here),
            Some((host, bytes)) => peers.hear(host, &bytes, &here),
        }?;
        match news {
            PeersNews::Stuck(stuck) => {
                let (exit_status, failure) = verdict(Some(RunStop::Stuck), &[], WrittenOutput::default());
                Some(RankOutcome { failure, stuck, ..quiet(exit_status) })
            }
            PeersNews::IsTold => {
                self.let_others_speak(libc::EXIT_FAILURE);
                None
            }
        }
    }

    fn is_alone(&self) -> bool {
        self.begun.as_ref().is_some_and(|begun| begun.total() == 1)
    }

    /// Another rank has something to say, and must end before this one.
    fn let_others_speak(&mut self, status: i32) {
        self.nodes.clear();
        self.leaving = Some((status, Instant::now() + OTHERS_SPEAK));
    }

    fn start(&self, begun: &Begin) -> Result<SpawnedNode> {
        let total = begun.total();
        if let Err(e) = sys::disable_randomisation()
            && total > 1
        {
            let name = host_name();
            messages::warning(&format!("host {name}: address-space randomisation stays on ({e})"));
        }
        let options = LaunchOptions { nodes: total, own_streams: true, ..self.setup.options.clone() };
        let RankSetup { program, args, .. } = self.setup;
        let node = u32::from(begun.node);
        begun.region.await_crashes(node..node + 1);
        // Signals come to this process, which passes them on: not to its group.
        let group = rustix::process::getpgrp();
        let nodes = spawn::start_some(program, args, &begun.region, group, &options, node..node + 1)?;
        nodes.into_iter().next().ok_or_else(|| Error::new(format!("node {node} was not started")))
    }

    /// The node has ended.
    fn has_ended(&mut self) -> Option<RankOutcome> {
        let (begun, ended) = (self.begun.as_ref()?, self.nodes.first()?);
        let node = u32::from(begun.node);
        let report = |node: u32| begun.region.report(node);
        if !has_failed(ended, &begun.region, node, self.is_alone()) {
            let status = ended.ended.map_or(0, ExitStatusExt::into_raw);
            let NodeReport { phase, message, counters, traps } = report(node);
            let (counters, traps) = (counters.to_vec(), traps.iter().map(|t| (t.name, t.new, t.hits)).collect());
            let (has_failed, told, core) = (false, Vec::new(), None);
            let ended = Ended { node: begun.node, status, phase, message, counters, traps, has_failed, told, core };
            // Whoever does not listen has said why.
            let _ = self.has_ended.send(ended);
            return None;
        }
        // A node that stops the run says so before it wakes the others.
        let says_so = |node: &u32| report(*node).phase == node_phase::FAILED;
        if !says_so(&node) && (0..begun.total()).any(|other| says_so(&other)) {
            self.let_others_speak(libc::EXIT_FAILURE);
            return None;
        }
        let status = |of: u32| if of == node { ended.ended.unwrap_or_default() } else { ExitStatus::default() };
        let ends: Vec<NodeEnd> =
            (0..begun.total()).map(|of| NodeEnd { status: status(of), report: report(of) }).collect();
        let hosts = if begun.hosts.len() == 1 { &[][..] } else { &begun.hosts };
        let (exit_status, failure) =
            verdict_on(Some(RunStop::Node(node)), &ends, |node| named(hosts, node), WrittenOutput::default());
        let has_said = ends[begun.node as usize].report.message.is_some();
        let crash = self.crashes.iter().find(|crash| crash.is_of(node, status(node), has_said)).cloned();
        let culprit = Some((named(hosts, node), status(node)));
        Some(RankOutcome { failure, crash, culprit, ..quiet(exit_status) })
    }
}

fn quiet(exit_status: i32) -> RankOutcome {
    RankOutcome {
        exit_status,
        failure: None,
        crash: None,
        culprit: None,
        stuck: Vec::new(),
        nodes: Vec::new(),
        matched: Matched::default(),
        starter: None,
    }
}

fn failed(exit_status: i32, error: Error) -> RankOutcome {
    RankOutcome { failure: Some(error), ..quiet(exit_status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_run_something_else_are_named_with_what_they_run() {
        let card = |host: &str, version: &str, program: &str, identity: &str| Card {
            first: 0,
            host: host.into(),
            version: version.into(),
            program: program.into(),
            identity: identity.into(),
            common: None,
        };
        let said = |other: Card| {
            let error = expect_same(&[card("a", "1", "./x", "11"), card("a", "1", "./x", "11"), other]).unwrap_err();
            (error.what, error.help.unwrap_or_default())
        };
        assert!(expect_same(&[card("a", "1", "./x", "11"), card("b", "1", "./x", "11")]).is_ok());
        let (what, help) = said(card("a", "1", "./y", "22"));
        assert_eq!(what, "rank 2 on host a runs ./y, and rank 0 on host a runs ./x");
        assert!(help.contains("one program"), "{help}");
        let (what, help) = said(card("b", "1", "./x", "22"));
        assert_eq!(what, "rank 2 on host b has another ./x than rank 0 on host a");
        assert!(help.contains("libraries"), "{help}");
        let (what, _) = said(card("b", "2", "./x", "11"));
        assert_eq!(what, "rank 2 on host b has Blizzard 2, and rank 0 on host a has 1");
    }
}
