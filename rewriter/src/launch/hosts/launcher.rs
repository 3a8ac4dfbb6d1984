//! The launcher of a run on several hosts.
//!
//! Purpose: starts an agent on each host, gives it the program, says when to begin, passes output and signals on, and says how the run ended. Input: [`Setup`]. Output: an
//! [`RunOutcome`].
//!
//! **Invariants**: nodes begin when all hosts have heard each other; the first failure ends the run on all hosts; a host that does not answer ends it, too, with its name.

use crate::base::error::{Error, Result};
use crate::base::messages;
use crate::launch::guard::{self, LauncherGuard};
use crate::launch::hosts::bundle::FileEntry;
use crate::launch::hosts::frames::{self, Carried, Ended, PIECE_BYTES, RunPlan, ToAgent, ToLauncher};
use crate::launch::hosts::host_list::{Host, HostList, named};
use crate::launch::hosts::mailbox::Mailbox;
use crate::launch::hosts::rounds::StuckRounds;
use crate::launch::hosts::streams::{self, Complaints, News, Piece, locked, thread};
use crate::launch::launcher::{HostTraffic, NodeEnd, RunOutcome, Told, WrittenOutput, verdict_on};
use crate::launch::leftovers;
use crate::launch::options::LaunchOptions;
use crate::launch::region::{Matched, NodeReport, RegionFile};
use crate::launch::signals::LaunchEvent;
use crate::launch::spawn::{describe, signal_name};
use crate::launch::watching::stuck::StuckNode;
use crate::launch::watching::supervise::{RECHECK, RunStop};
use blizzard_contract::{COUNTER_COUNT, LearntPlace, TrapPlace, node_phase};
use signal_hook::consts::signal::{SIGCHLD, SIGUSR1, SIGUSR2};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long an agent may take to greet, and all of them to hear each other.
const ANSWER: Duration = Duration::from_secs(8);
/// How long a host may take to store the program.
const STORED: Duration = Duration::from_secs(120);
/// How long agents may take to end their nodes, once they are told, and then themselves.
const ENDING: Duration = Duration::from_secs(2);
/// How long those that have said their last word may take to end.
const PARTING: Duration = Duration::from_millis(500);
/// A host that others have lost may have more to say of it: that its agent has gone.
const LOST: Duration = Duration::from_millis(500);
/// Exit status when a run cannot begin.
const CANNOT_BEGIN: i32 = 2;

/// A run on several hosts.
#[derive(Debug)]
pub struct Setup {
    pub hosts: HostList,
    /// Words in front of a host's name: what starts a program there.
    pub starter: Vec<String>,
    /// The agent's program on each host.
    pub agent: String,
    /// The program first, and where each file is here.
    pub files: Vec<(FileEntry, PathBuf)>,
    /// The program's own name, and its arguments.
    pub command: Vec<OsString>,
    pub options: LaunchOptions,
    /// The program is guarded code.
    pub guard: bool,
}

/// A host of the run.
struct Remote {
    host: Host,
    child: Child,
    /// What is to be said to its agent.
    say: Sender<(ToAgent, Vec<u8>)>,
    /// What it has written to standard error.
    complaints: Arc<Mutex<Complaints>>,
    /// When its agent was heard last.
    heard: Arc<Mutex<Instant>>,
    stage: Stage,
    address: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Starting,
    Greeted,
    Ready,
    Connected,
    /// Has ended everything.
    Done,
}

/// Runs the program on all hosts.
///
/// **Returns in a child of the calling process**, as [`launcher::run`](crate::launch::launcher::run) does.
///
/// # Errors
/// When nothing was started. What fails later is an [`RunOutcome`].
pub fn run(setup: &Setup) -> Result<RunOutcome> {
    let mut guard = guard::split()?;
    let begin = Instant::now();
    let mut run = Run::start(setup)?;
    let over = match run.begin(setup, &mut guard) {
        Ok(()) => run.watch(&mut guard),
        Err(error) => Over::NotBegun(error),
    };
    let wall = begin.elapsed();
    let outcome = run.finish(over, wall);
    leftovers::end_all(leftovers::LIMIT);
    Ok(outcome)
}

/// Why a run is over.
enum Over {
    NotBegun(Error),
    /// A host has failed.
    Host(Error),
    /// All nodes have ended, for this reason if they had to.
    Nodes(Option<RunStop>),
}

struct Run {
    remotes: Vec<Remote>,
    mailbox: Mailbox<(usize, News)>,
    ended: Vec<Option<Ended>>,
    timeout: Duration,
    /// What a host says of another one that it has lost: when that is believed, which one, and what is said then.
    hearsay: Option<(Instant, usize, Error)>,
    /// Looks whether the run is stuck; what nodes waited for if it was.
    rounds: StuckRounds,
    stuck: Vec<StuckNode>,
    /// How many pieces of output have come.
    come: Arc<AtomicU64>,
    /// Pieces of output go there; the thread that writes says what became of them.
    pieces: Option<Sender<Piece>>,
    written: Receiver<WrittenOutput>,
    /// Whoever reads standard input is told that a piece has been passed on.
    taken: Sender<()>,
    input_taken: Option<Receiver<()>>,
}

/// How the process has ended, if it has by then.
fn wait_for(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            status => return status.ok().flatten(),
        }
    }
}

impl Run {
    /// Starts what starts the agents.
    fn start(setup: &Setup) -> Result<Run> {
        let (slot, mailbox) = Mailbox::new().map_err(|e| Error::new("the kernel gives no pipe").because(e))?;
        let (pieces, to_write) = mpsc::channel();
        let come = Arc::<AtomicU64>::default();
        let mut remotes = Vec::new();
        for (number, host) in setup.hosts.hosts().iter().enumerate() {
            let shown = || format!("{} {} {} agent", setup.starter.join(" "), host.name, setup.agent);
            let mut command = Command::new(&setup.starter[0]);
            command.args(&setup.starter[1..]).arg(&host.name).args([&setup.agent, "agent"]);
            // Out of the terminal's foreground: its Ctrl-C reaches the launcher alone, which ends the run.
            command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = command.spawn().map_err(|e| Error::new(format!("cannot execute `{}`", shown())).because(e));
            let mut child = match child {
                Ok(child) => child,
                Err(error) => {
                    leftovers::end_all(leftovers::LIMIT);
                    return Err(error);
                }
            };
            let (say, to_say) = mpsc::channel();
            let complaints = Arc::<Mutex<Complaints>>::default();
            let heard = Arc::new(Mutex::new(Instant::now()));
            if let Some(mut input) = child.stdin.take() {
                thread(move || streams::speak(&mut input, &to_say))?;
            }
            if let Some(output) = child.stdout.take() {
                let (slot, heard) = (slot.clone(), Arc::clone(&heard));
                let pieces = (pieces.clone(), Arc::clone(&come));
                thread(move || streams::listen(number, output, &slot, &pieces, &heard))?;
            }
            if let Some(error) = child.stderr.take() {
                let complaints = Arc::clone(&complaints);
                thread(move || {
                    for line in BufReader::new(error).split(b'\n').map_while(io::Result::ok) {
                        locked(&complaints).add(String::from_utf8_lossy(&line).trim_end().to_owned());
                    }
                })?;
            }
            let (host, address) = (host.clone(), Vec::new());
            remotes.push(Remote { host, child, say, complaints, heard, stage: Stage::Starting, address });
        }
        let (taken, input_taken) = mpsc::channel();
        let says: Vec<_> = remotes.iter().map(|remote| remote.say.clone()).collect();
        let (tell, written) = mpsc::channel();
        let tag = setup.options.tag_output;
        thread(move || drop(tell.send(streams::write_output(&to_write, &says, tag))))?;
        let ended = vec![None; setup.hosts.nodes() as usize];
        let timeout = Duration::from_millis(setup.options.peer_timeout_ms.into());
        Ok(Run {
            remotes,
            mailbox,
            ended,
            timeout,
            hearsay: None,
            rounds: StuckRounds::new(setup.hosts.hosts(), setup.options.stuck_timeout),
            stuck: Vec::new(),
            come,
            pieces: Some(pieces),
            written,
            taken,
            input_taken: Some(input_taken),
        })
    }

    fn say_to_all(&self, frame: impl Fn() -> ToAgent) {
        for remote in &self.remotes {
            // One that has gone is noticed when it is listened to.
            let _ = remote.say.send((frame(), Vec::new()));
        }
    }

    /// Why a host does not answer any more.
    fn gone(&mut self, host: usize) -> Error {
        let remote = &mut self.remotes[host];
        let status = wait_for(&mut remote.child, Instant::now() + Duration::from_millis(500));
        let how = status.map_or("has closed its output".to_owned(), describe);
        let name = &remote.host.name;
        let reason = locked(&remote.complaints).reason();
        if let Some(Error { what, causes, help, .. }) = reason.filter(|_| remote.stage == Stage::Starting) {
            return Error { causes, help, ..Error::new(format!("host {name}: {what}")) };
        }
        let complaint = locked(&remote.complaints).lines.last().cloned();
        let error = match remote.stage {
            Stage::Starting => Error::new(format!("host {name}: no agent was started there: what starts it {how}")),
            _ => Error::new(format!("host {name}: its agent has gone: what started it {how}")),
        };
        match complaint.filter(|_| remote.stage < Stage::Connected) {
            Some(complaint) => error.because(complaint),
            None => error,
        }
    }

    /// What an agent says cannot go on.
    fn refused(&self, host: usize, (why, causes, help): (String, Vec<String>, Option<String>)) -> Error {
        let error = Error::new(format!("host {}: {why}", self.remotes[host].host.name));
        Error { causes, help, ..error }
    }

    /// Brings all hosts to where the nodes begin.
    fn begin(&mut self, setup: &Setup, guard: &mut LauncherGuard) -> Result<()> {
        let header = RegionFile::header_for(&setup.options, 1, setup.hosts.hosts().len());
        let secret = secret()?;
        let version = frames::version();
        let mut deadline = Instant::now() + ANSWER;
        let mut all = Stage::Starting;
        loop {
            while let Some((host, news)) = self.mailbox.take() {
                match news {
                    News::Greeting(theirs) if theirs == version => {
                        self.remotes[host].stage = Stage::Greeted;
                        let plan = plan(setup, host, &secret, &header.bytes());
                        let say = &self.remotes[host].say;
                        let _ = say.send((ToAgent::Plan(Box::new(plan)), Vec::new()));
                        for piece in setup.options.rules.chunks(PIECE_BYTES) {
                            let _ = say.send((ToAgent::Rules, piece.to_vec()));
                        }
                    }
                    News::Greeting(theirs) => {
                        let name = &self.remotes[host].host.name;
                        let what = format!("host {name} has Blizzard {theirs}, and this one is {version}");
                        return Err(Error::new(what).help("give the path of the same build there: --agent PATH"));
                    }
                    News::Frame(ToLauncher::Needs { files }) => self.send_files(host, &files, setup)?,
                    News::Frame(ToLauncher::Ready { address }) => {
                        (self.remotes[host].stage, self.remotes[host].address) = (Stage::Ready, address);
                    }
                    News::Frame(ToLauncher::Connected) => self.remotes[host].stage = Stage::Connected,
                    News::Frame(ToLauncher::Note(note)) => messages::warning(&note),
                    News::Frame(ToLauncher::Beat) => {}
                    News::Frame(ToLauncher::Failed { why, causes, help }) => {
                        return Err(self.refused(host, (why, causes, help)));
                    }
                    News::Frame(ToLauncher::Lost { host: other, why }) => return Err(self.lost(host, other, &why)),
                    News::Frame(_) => return Err(self.refused(host, out_of_turn())),
                    News::Gone => return Err(self.gone(host)),
                }
            }
            let now = self.remotes.iter().map(|remote| remote.stage).min().unwrap_or(Stage::Done);
            if now > all {
                deadline = Instant::now() + if now == Stage::Greeted { STORED } else { ANSWER };
                all = now;
                if now == Stage::Ready {
                    let addresses: Vec<_> = self.remotes.iter().map(|remote| remote.address.clone()).collect();
                    self.say_to_all(|| ToAgent::Connect { addresses: addresses.clone() });
                } else if now == Stage::Connected {
                    self.remotes.iter().for_each(|remote| locked(&remote.complaints).begin());
                    self.say_to_all(|| ToAgent::Start);
                    if let Some(taken) = self.input_taken.take() {
                        streams::pass_input(guard, self.remotes[0].say.clone(), taken)?;
                    }
                    return Ok(());
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.too_late(all));
            }
            for event in guard.wait_also(Some(&self.mailbox.wake), left.min(RECHECK)) {
                match event {
                    LaunchEvent::Signal { signal, .. } if [SIGCHLD, SIGUSR1, SIGUSR2].contains(&signal) => {}
                    LaunchEvent::Signal { signal, .. } => {
                        let ended = Error::new(format!("ended by {} before the nodes began", signal_name(signal)));
                        return Err(Error { signal: Some(signal), ..ended });
                    }
                    LaunchEvent::LauncherGone => return Err(Error::new("the launcher was killed")),
                }
            }
        }
    }

    /// The hosts that hold the others up.
    fn too_late(&self, all: Stage) -> Error {
        let late: Vec<&str> =
            self.remotes.iter().filter(|remote| remote.stage <= all).map(|remote| remote.host.name.as_str()).collect();
        let late = late.join(", ");
        let seconds = ANSWER.as_secs();
        match all {
            Stage::Starting => Error::new(format!("host {late}: no agent has answered within {seconds} s")),
            Stage::Greeted => {
                Error::new(format!("host {late}: has not stored the program within {} s", STORED.as_secs()))
            }
            _ => Error::new(format!("host {late}: has not heard all other hosts over UCX within {seconds} s"))
                .help("UCX_NET_DEVICES and UCX_TLS choose the network; `ucx_info -d` shows what there is"),
        }
    }

    fn lost(&self, host: usize, other: usize, why: &str) -> Error {
        let name = |host: usize| self.remotes.get(host).map_or("?", |remote| remote.host.name.as_str());
        Error::new(format!("host {}, as host {} sees it: {why}", name(other), name(host)))
    }

    /// Sends a host the files that it does not have.
    fn send_files(&self, host: usize, files: &[usize], setup: &Setup) -> Result<()> {
        for &index in files {
            let Some((_, path)) = setup.files.get(index) else { return Err(self.refused(host, out_of_turn())) };
            let failed = |e: io::Error| Error::new(format!("{}: cannot be read", path.display())).because(e);
            let mut file = File::open(path).map_err(failed)?;
            loop {
                let mut piece = Vec::with_capacity(PIECE_BYTES);
                let count = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece).map_err(failed)?;
                let is_last = count < PIECE_BYTES;
                let _ = self.remotes[host].say.send((ToAgent::File { index, is_last }, piece));
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Watches over the run until all nodes have ended.
    fn watch(&mut self, guard: &mut LauncherGuard) -> Over {
        // Why the run has to end, and when it must have.
        let mut over: Option<(Over, Instant)> = None;
        loop {
            while let Some((host, news)) = self.mailbox.take() {
                if let Some(why) = self.hear(host, news) {
                    self.end(&mut over, why);
                }
            }
            let is_over = (0..).zip(&self.ended).all(|(node, ended): (u16, _)| {
                let is_there = |remote: &Remote| remote.host.nodes.contains(&node) && remote.stage != Stage::Done;
                ended.is_some() || !self.remotes.iter().any(is_there)
            });
            if is_over || over.as_ref().is_some_and(|(_, at)| *at <= Instant::now()) {
                return over.map_or(Over::Nodes(None), |(why, _)| why);
            }
            if over.is_none() {
                let told = self.hearsay.take_if(|(at, ..)| *at <= Instant::now());
                if let Some((host, error)) = told.map(|(_, host, error)| (host, error)).or_else(|| self.silent()) {
                    self.end(&mut over, Over::Host(error));
                    // Nobody waits for what it says.
                    if let Some(remote) = self.remotes.get_mut(host) {
                        remote.stage = Stage::Done;
                    }
                } else if let Some(places) = self.rounds.ask() {
                    self.say_to_all(|| ToAgent::Look { places });
                }
            }
            let next = match &over {
                Some((_, at)) => Some(*at),
                None => [self.hearsay.as_ref().map(|(at, ..)| *at), self.rounds.next()].into_iter().flatten().min(),
            };
            let timeout = next.map_or(RECHECK, |at| at.saturating_duration_since(Instant::now()).min(RECHECK));
            for event in guard.wait_also(Some(&self.mailbox.wake), timeout) {
                match event {
                    LaunchEvent::Signal { signal: SIGCHLD, .. } => {}
                    LaunchEvent::Signal { signal, .. } => {
                        self.say_to_all(|| ToAgent::Signal(signal));
                        if signal != SIGUSR1 && signal != SIGUSR2 {
                            self.end(&mut over, Over::Nodes(Some(RunStop::Signal(signal))));
                        }
                    }
                    LaunchEvent::LauncherGone => return Over::Nodes(Some(RunStop::LauncherGone)),
                }
            }
        }
    }

    /// Ends the run on all hosts, if it has not to end already: what follows from a failure is no other one.
    fn end(&self, over: &mut Option<(Over, Instant)>, why: Over) {
        if over.is_none() {
            self.say_to_all(|| ToAgent::Abort);
            *over = Some((why, Instant::now() + ENDING));
        }
    }

    /// What a host tells while nodes run; why the run has to end, if it has.
    fn hear(&mut self, host: usize, news: News) -> Option<Over> {
        let failed = match news {
            News::Frame(ToLauncher::Ended(ended)) => {
                let (node, has_failed) = (ended.node, ended.has_failed);
                if self.remotes[host].host.nodes.contains(&node) && ended.counters.len() == COUNTER_COUNT {
                    self.ended[usize::from(node)] = Some(ended);
                    return has_failed.then_some(Over::Nodes(Some(RunStop::Node(node.into()))));
                }
                self.refused(host, out_of_turn())
            }
            News::Frame(ToLauncher::Seen(seen)) => {
                let stuck = self.rounds.answered(host, seen)?;
                self.stuck = stuck;
                return Some(Over::Nodes(Some(RunStop::Stuck)));
            }
            News::Frame(ToLauncher::InputTaken) => {
                let _ = self.taken.send(());
                return None;
            }
            News::Frame(ToLauncher::Note(note)) => {
                messages::warning(&note);
                return None;
            }
            News::Frame(ToLauncher::Lost { host: other, why }) => {
                let error = self.lost(host, other, &why);
                self.hearsay.get_or_insert_with(|| (Instant::now() + LOST, other, error));
                return None;
            }
            News::Frame(ToLauncher::Silent { why, .. }) => {
                Error::new(format!("host {}: {why}", self.remotes[host].host.name))
            }
            News::Frame(ToLauncher::Failed { why, causes, help }) => {
                // It ends by itself.
                self.remotes[host].stage = Stage::Done;
                self.refused(host, (why, causes, help))
            }
            News::Frame(ToLauncher::Beat | ToLauncher::Connected) => return None,
            News::Gone if self.remotes[host].stage == Stage::Done => return None,
            News::Gone => {
                let error = self.gone(host);
                self.remotes[host].stage = Stage::Done;
                error
            }
            News::Greeting(_) | News::Frame(_) => self.refused(host, out_of_turn()),
        };
        Some(Over::Host(failed))
    }

    /// A host that has not been heard for too long.
    fn silent(&self) -> Option<(usize, Error)> {
        let silent = |(_, remote): &(usize, &Remote)| {
            let heard = *locked(&remote.heard);
            remote.stage != Stage::Done && heard.elapsed() > self.timeout
        };
        let found = if self.timeout.is_zero() { None } else { self.remotes.iter().enumerate().find(silent) };
        found.map(|(host, remote)| {
            let (name, seconds) = (&remote.host.name, self.timeout.as_secs());
            (host, Error::new(format!("host {name}: its agent has not been heard for {seconds} s")))
        })
    }

    /// The node to blame: one that has said that it stops the run, or else the first that ended badly.
    fn culprit(&self, first: u32) -> u32 {
        let says_so = |ended: &Option<Ended>| ended.as_ref().is_some_and(|ended| ended.phase == node_phase::FAILED);
        if says_so(&self.ended[first as usize]) {
            return first;
        }
        self.ended.iter().position(says_so).map_or(first, |node| node as u32)
    }

    /// How each node ended, as far as its host has said.
    fn ends(&self) -> Vec<NodeEnd> {
        let unknown = || NodeEnd {
            status: ExitStatus::from_raw(libc::SIGKILL),
            report: NodeReport {
                phase: node_phase::STARTING,
                message: None,
                counters: [0; COUNTER_COUNT],
                traps: Vec::new(),
            },
        };
        self.ended.iter().map(|ended| ended.as_ref().map_or_else(unknown, NodeEnd::from)).collect()
    }

    /// Ends the agents, waits for the last output, and says how it was.
    fn finish(mut self, over: Over, wall: Duration) -> RunOutcome {
        let nodes = self.ends();
        if let Over::NotBegun(error) = over {
            return RunOutcome {
                exit_status: error.signal.map_or(CANNOT_BEGIN, |signal| 128 + signal),
                failure: Some(error),
                nodes,
                learnt: Vec::new(),
                matched: Matched::default(),
                traffic: Vec::new(),
                stuck: Vec::new(),
                crash: None,
                told: Told::default(),
                wall,
            };
        }
        self.say_to_all(|| ToAgent::End);
        let (mut deadline, mut come) = (Instant::now() + ENDING, 0);
        let (mut matched, mut learnt, mut traffic) = (Vec::new(), Vec::new(), Vec::new());
        while self.remotes.iter().any(|remote| remote.stage != Stage::Done) && Instant::now() < deadline {
            let now = self.come.load(Ordering::Relaxed);
            if std::mem::replace(&mut come, now) != now {
                deadline = Instant::now() + ENDING;
            }
            match self.mailbox.take() {
                Some((_, News::Frame(ToLauncher::Note(note)))) => messages::warning(&note),
                Some((host, News::Gone)) => self.remotes[host].stage = Stage::Done,
                Some((host, News::Frame(ToLauncher::Bye { carried, matched: here, learnt: learnt_here }))) => {
                    let Remote { host, stage, .. } = &mut self.remotes[host];
                    *stage = Stage::Done;
                    matched.push(here);
                    learnt.extend(learnt_here.into_iter().map(|(access, faults)| LearntPlace { access, faults }));
                    traffic.push(traffic_of(host, &carried));
                    if !carried.refused.is_empty() {
                        let all: Vec<String> =
                            carried.refused.iter().map(|(why, count)| format!("{count} {why}")).collect();
                        let (name, all) = (&host.name, all.join(", "));
                        messages::warning(&format!("host {name}: messages were refused: {all}"));
                    }
                }
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        for remote in self.remotes.iter().filter(|remote| remote.stage != Stage::Done) {
            let (name, seconds) = (&remote.host.name, ENDING.as_secs());
            messages::warning(&format!(
                "host {name}: the last output of its nodes may be cut: nothing came for {seconds} s"
            ));
        }
        // Without a host's word it is not known what all have matched and sent.
        let are_all = matched.len() == self.remotes.len();
        traffic.sort_by_key(|host: &HostTraffic| host.first_node);
        traffic.truncate(if are_all && traffic.len() > 1 { traffic.len() } else { 0 });
        let matched = matched.into_iter().reduce(Matched::and).filter(|_| are_all).unwrap_or_default();
        let culprit = |first| self.culprit(first);
        let stop = match &over {
            Over::Nodes(Some(RunStop::Node(first))) => Some(RunStop::Node(culprit(*first))),
            Over::Nodes(stop) => *stop,
            _ => None,
        };
        // Agents end by themselves now. What an agent says that is killed is no news.
        let deadline = Instant::now() + PARTING;
        for remote in &mut self.remotes {
            wait_for(&mut remote.child, deadline);
            locked(&remote.complaints).run_is_over = true;
        }
        let hosts: Vec<Host> = self.remotes.drain(..).map(|remote| remote.host).collect();
        leftovers::end_all(leftovers::LIMIT);
        self.pieces = None;
        // Whoever reads the output slowly is waited for.
        let written = self.written.recv().unwrap_or_default();
        let (exit_status, failure) = match over {
            Over::Host(error) => (libc::EXIT_FAILURE, Some(error)),
            _ => verdict_on(stop, &nodes, |node| named(&hosts, node), written),
        };
        let told = match stop {
            Some(RunStop::Node(node)) => self.ended[node as usize].take(),
            _ => None,
        };
        let told = told.map(|ended| Told { lines: ended.told, core: ended.core }).unwrap_or_default();
        RunOutcome { exit_status, failure, nodes, learnt, matched, traffic, stuck: self.stuck, crash: None, told, wall }
    }
}

impl From<&Ended> for NodeEnd {
    fn from(ended: &Ended) -> NodeEnd {
        NodeEnd {
            status: ExitStatus::from_raw(ended.status),
            report: NodeReport {
                phase: ended.phase,
                message: ended.message.clone(),
                counters: std::array::from_fn(|at| ended.counters.get(at).copied().unwrap_or(0)),
                traps: ended.traps.iter().map(|&(name, new, hits)| TrapPlace { name, new, hits }).collect(),
            },
        }
    }
}

fn traffic_of(host: &Host, carried: &Carried) -> HostTraffic {
    let &Carried { batches_sent, batches_received, messages_sent, messages_received, .. } = carried;
    HostTraffic {
        host: host.name.clone(),
        first_node: host.nodes.start,
        nodes: host.nodes.len() as u16,
        messages_sent,
        messages_received,
        batches_sent,
        batches_received,
    }
}

fn out_of_turn() -> (String, Vec<String>, Option<String>) {
    ("its agent says what is not expected then".to_owned(), Vec::new(), None)
}

/// What shows agents that they belong to one run.
pub(super) fn secret() -> Result<Vec<u8>> {
    let mut bytes = vec![0u8; blizzard_carrier::batch::SECRET_BYTES];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(count) if count == bytes.len() => Ok(bytes),
        Ok(_) => Err(Error::new("the kernel gives no random numbers")),
        Err(e) => Err(Error::new("the kernel gives no random numbers").because(e)),
    }
}

fn plan(setup: &Setup, me: usize, secret: &[u8], header: &[u8]) -> RunPlan {
    let bytes = |text: &std::ffi::OsStr| text.as_bytes().to_vec();
    let is_of_network = |name: &OsString| name.as_bytes().starts_with(b"UCX_");
    RunPlan {
        hosts: setup.hosts.hosts().to_vec(),
        me,
        secret: secret.to_vec(),
        header: header.to_vec(),
        command: setup.command.iter().map(|word| bytes(word)).collect(),
        folder: std::env::current_dir().map_or_else(|_| b"/".to_vec(), |folder| bytes(folder.as_os_str())),
        environment: std::env::vars_os()
            .filter(|(name, _)| is_of_network(name))
            .map(|(name, value)| (bytes(&name), bytes(&value)))
            .collect(),
        files: setup.files.iter().map(|(entry, _)| entry.clone()).collect(),
        guard: setup.guard,
        cores: setup.options.cores,
        debugged: setup.options.debugger.as_ref().and_then(|d| Some((d.node as u16, d.port?))),
        timeout_seconds: setup.options.peer_timeout_ms.div_ceil(1000),
    }
}
