//! The agent of a host.
//!
//! Purpose: starts this host's nodes of a run, carries their messages, and passes on what the launcher says and they write. Input: frames on standard input. Output: frames
//! on standard output. Like a launcher it is two processes ([`guard`]), so that nothing is left when one of them is killed.
//!
//! **Invariants**: standard output has nothing but frames: what libraries print goes to standard error; the agent ends all that it has started when its input ends.

use crate::base::error::{Error, Result};
use crate::base::limits;
use crate::launch::crashes::core_files;
use crate::launch::crashes::crash::{self, Crash, Describe, OwnNodes};
use crate::launch::guard::{self, LauncherGuard};
use crate::launch::hosts::bundle::Store;
use crate::launch::hosts::credit::Credit;
use crate::launch::hosts::frames::{self, Carried, Ended, GREETING, PIECE_BYTES, RunPlan, ToAgent, ToLauncher};
use crate::launch::hosts::host_list::{Host, named};
use crate::launch::hosts::mailbox::{Mailbox, Slot};
use crate::launch::hosts::rounds;
use crate::launch::options::{Debugger, GDBSERVER, LaunchOptions};
use crate::launch::region::{self, NodeReport, RegionFile};
use crate::launch::signals::LaunchEvent;
use crate::launch::spawn::{self, Reaper, SpawnedNode};
use crate::launch::watching::plain_again;
use crate::launch::watching::stuck::{Locate, Locator};
use crate::launch::watching::supervise::{GRACE, RECHECK, has_failed};
use crate::launch::{launcher, leftovers, sys};
use crate::store::cache::Cache;
use blizzard_carrier::carrier::{self, Carrier, CarrierCounts};
use blizzard_contract::{RegionHeader, node_phase};
use rustix::process::{Resource, getrlimit};
use signal_hook::consts::signal::SIGCHLD;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the launcher hears from the agent at least.
const BEAT: Duration = Duration::from_secs(1);
/// How long nothing may come of the last output of nodes that have ended.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// How often it is looked at whether some has come.
const LOOK_AT_OUTPUT: Duration = Duration::from_millis(50);
/// Stack of a thread that passes bytes on.
const STACK_BYTES: usize = 256 << 10;

/// Where frames for the launcher go.
#[derive(Clone)]
struct Speaker(Arc<Mutex<File>>);

impl Speaker {
    /// Says it; false when nobody listens any more.
    fn say(&self, frame: &ToLauncher, bytes: &[u8]) -> bool {
        let mut to = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        frames::write(&mut *to, frame, bytes).is_ok()
    }

    fn fail(&self, error: Error) {
        let Error { what, causes, help, .. } = error;
        self.say(&ToLauncher::Failed { why: what, causes, help }, b"");
    }
}

/// What comes from the launcher.
enum Heard {
    Frame(ToAgent, Vec<u8>),
    /// It has gone, or speaks what is no frame.
    Gone,
}

/// What an agent says of its nodes, in the words of reports.
#[derive(Clone, Copy)]
pub struct Reports {
    /// How a node has died.
    pub describe: Describe,
    /// Where nodes wait.
    pub locate: Locate,
    /// Where the core file is of a node that goes by this name, on the host that is named next.
    pub core: fn(&str, &str, ExitStatus, Option<&Crash>, &Path) -> String,
}

/// Serves a run, and ends. Returns in a child of the calling process only, as [`guard::split`] does.
///
/// # Errors
/// Those that cannot be told to the launcher.
pub fn serve(reports: Reports) -> Result<()> {
    // Without them nothing could be said, not even which build this is.
    limits::expect_open_files(1, 0)?;
    let failed = |e: io::Error| Error::new("the agent cannot use its standard output").because(e);
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).map_err(|e| failed(e.into()))?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr()).map_err(|e| failed(e.into()))?;
    let mut guard = guard::split()?;
    let mut output = File::from(output);
    writeln!(output, "{GREETING}{}", frames::version()).map_err(failed)?;
    let speaker = Speaker(Arc::new(Mutex::new(output)));
    // A launcher that has gone before it has said anything has said why.
    let Ok((ToAgent::Plan(plan), _)) = frames::read(&mut io::stdin()) else { return Ok(()) };
    if let Err(error) = serve_plan(&plan, &speaker, &mut guard, reports) {
        speaker.fail(error);
    }
    leftovers::end_all(leftovers::LIMIT);
    Ok(())
}

/// Reads what the launcher says.
fn listen(slot: Slot<Heard>) {
    let mut from = BufReader::new(io::stdin());
    loop {
        let heard = match frames::read(&mut from) {
            Ok((frame, bytes)) => Heard::Frame(frame, bytes),
            Err(_) => Heard::Gone,
        };
        let is_last = matches!(heard, Heard::Gone);
        if !slot.put(heard) || is_last {
            return;
        }
    }
}

fn thread(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    started.map(drop).map_err(|e| Error::new("the kernel gives the agent no thread").because(e).help("see `ulimit -u`"))
}

fn header_of(plan: &RunPlan) -> Result<RegionHeader> {
    let bytes = plan.header.as_slice().try_into();
    let mut header = bytes.map(RegionHeader::from_bytes).map_err(|_| Error::new("the launcher's plan is not one"))?;
    let nodes = plan.hosts.last().map_or(0, |host| host.nodes.end);
    let mut at = 0;
    let follows = plan.hosts.iter().all(|host| {
        let fits = host.nodes.start == at && !host.nodes.is_empty();
        at = host.nodes.end;
        fits
    });
    let mut usual = RegionHeader::new(header.nodes, header.cpus, header.segment_bytes, header.incarnation);
    let rules_bytes = region::rules_bytes(&header);
    if rules_bytes != 0 {
        usual.add_rules(rules_bytes);
    }
    let is_usual = header.nodes == u32::from(nodes)
        && (1..=blizzard_contract::MAX_NODES as u32).contains(&header.nodes)
        && (header.contexts_off, header.rings_off, header.ring_bytes, header.fill_off, header.fill_bytes)
            == (usual.contexts_off, usual.rings_off, usual.ring_bytes, usual.fill_off, usual.fill_bytes)
        && (header.total_bytes, header.rules_off, header.hosts_off)
            == (usual.total_bytes, usual.rules_off, usual.hosts_off)
        && [0, usual.learnt_off].contains(&header.learnt_off);
    if !follows || plan.me >= plan.hosts.len() || !is_usual {
        return Err(Error::new("the launcher's plan is not one"));
    }
    // How long nodes spin depends on the processors for each of them, of which one is the agent's.
    let (processors, here) = (region::processors(), plan.hosts[plan.me].nodes.len() as u32 + 1);
    header.cpus = if here <= processors { header.nodes } else { 1 };
    Ok(header)
}

/// What an agent has.
struct Agent<'a> {
    plan: &'a RunPlan,
    speaker: &'a Speaker,
    mailbox: Mailbox<Heard>,
    guard: &'a mut LauncherGuard,
    reports: Reports,
    /// The program, if nodes that die leave core files.
    dumps: Option<PathBuf>,
    /// When the launcher was heard last.
    heard: Instant,
}

/// What happened while the agent waited.
enum News {
    Frame(ToAgent, Vec<u8>),
    /// A child has ended, or time has passed.
    Look,
    /// The launcher has gone, is silent, or a signal wants the agent to end: why.
    Over(String),
}

impl Agent<'_> {
    /// Waits for what happens next, at most so long.
    fn next(&mut self, timeout: Duration) -> News {
        if let Some(heard) = self.mailbox.take() {
            self.heard = Instant::now();
            return match heard {
                Heard::Frame(frame, bytes) => News::Frame(frame, bytes),
                Heard::Gone => News::Over("the launcher has gone".into()),
            };
        }
        let limit = Duration::from_secs(self.plan.timeout_seconds.into());
        if !limit.is_zero() && self.heard.elapsed() > limit {
            return News::Over(format!("the launcher has not been heard for {} s", limit.as_secs()));
        }
        for event in self.guard.wait_also(Some(&self.mailbox.wake), timeout.min(RECHECK)) {
            match event {
                LaunchEvent::Signal { signal: SIGCHLD, .. } => {}
                LaunchEvent::Signal { signal, .. } => {
                    return News::Over(format!("its agent was ended by {}", spawn::signal_name(signal)));
                }
                LaunchEvent::LauncherGone => return News::Over("its agent was killed".into()),
            }
        }
        News::Look
    }

    /// Waits for a frame that means something before the nodes run.
    fn frame(&mut self) -> Result<(ToAgent, Vec<u8>)> {
        loop {
            match self.next(RECHECK) {
                News::Frame(ToAgent::Beat, _) | News::Look => {}
                News::Frame(ToAgent::Abort | ToAgent::End, _) => return Err(Error::new("the run has ended elsewhere")),
                News::Frame(frame, bytes) => return Ok((frame, bytes)),
                News::Over(why) => return Err(Error::new(why)),
            }
        }
    }

    /// The rules of allocations, which are so many bytes.
    fn rules(&mut self, bytes: u64) -> Result<Vec<u8>> {
        let mut rules = Vec::new();
        while (rules.len() as u64) < bytes {
            let (ToAgent::Rules, piece) = self.frame()? else { return Err(out_of_turn()) };
            rules.extend(piece);
        }
        Ok(rules)
    }
}

fn serve_plan(plan: &RunPlan, speaker: &Speaker, guard: &mut LauncherGuard, reports: Reports) -> Result<()> {
    for (name, value) in &plan.environment {
        sys::set_variable(OsStr::from_bytes(name), OsStr::from_bytes(value));
    }
    enter_folder(plan, speaker);
    launcher::expect_address_space(getrlimit(Resource::As).maximum)?;
    let nodes = plan.hosts.get(plan.me).map_or(0, |host| host.nodes.len() as u32);
    limits::expect_open_files(nodes, plan.hosts.len().saturating_sub(1))?;
    let header = header_of(plan)?;
    let mailbox = Mailbox::new().map_err(|e| Error::new("the kernel gives the agent no pipe").because(e));
    let (slot, mailbox) = mailbox?;
    thread(move || listen(slot))?;
    let beats = speaker.clone();
    thread(move || {
        while beats.say(&ToLauncher::Beat, b"") {
            std::thread::sleep(BEAT);
        }
    })?;
    let mut agent = Agent { plan, speaker, mailbox, guard, reports, dumps: None, heard: Instant::now() };
    let rules = agent.rules(region::rules_bytes(&header))?;
    let mut store = Store::new(Cache::of_user()?, plan.files.clone())?;
    let mut missing = store.missing();
    speaker.say(&ToLauncher::Needs { files: missing.clone() }, b"");
    while !missing.is_empty() {
        let (ToAgent::File { index, is_last }, bytes) = agent.frame()? else { return Err(out_of_turn()) };
        store.put(index, &bytes, is_last)?;
        missing.retain(|at| !(is_last && *at == index));
    }
    let program = store.assemble()?;
    if plan.cores {
        core_files::allow()?;
        agent.dumps = Some(program.clone());
    }
    let region = RegionFile::with_header(header)?;
    region.put_rules(&rules)?;
    region.put_hosts(plan.hosts.iter().map(|host| host.nodes.clone()))?;
    // A host that is alone needs no network.
    let carrier = if plan.hosts.len() == 1 {
        None
    } else {
        let speaker = speaker.clone();
        let tell = move |event| {
            let frame = match event {
                carrier::CarrierEvent::Connected => ToLauncher::Connected,
                carrier::CarrierEvent::Lost { host, why } => ToLauncher::Lost { host, why },
                carrier::CarrierEvent::Node { node, why } => ToLauncher::Silent { node, why },
                carrier::CarrierEvent::Failed(why) => ToLauncher::Failed { why, causes: Vec::new(), help: None },
                // Agents say nothing to each other.
                carrier::CarrierEvent::Said { .. } => return,
            };
            speaker.say(&frame, b"");
        };
        Some(start_carrier(&plan.hosts, plan.me, &plan.secret, &region, (plan.guard, false), tell)?)
    };
    let address = carrier.as_ref().map(|carrier| carrier.address.clone()).unwrap_or_default();
    speaker.say(&ToLauncher::Ready { address }, b"");
    let (ToAgent::Connect { addresses }, _) = agent.frame()? else { return Err(out_of_turn()) };
    match &carrier {
        Some(carrier) if addresses.len() == plan.hosts.len() => carrier.connect(addresses),
        Some(_) => return Err(out_of_turn()),
        None => {
            speaker.say(&ToLauncher::Connected, b"");
        }
    }
    let (ToAgent::Start, _) = agent.frame()? else { return Err(out_of_turn()) };
    let counts = run(&mut agent, &program, &region, carrier)?;
    let refused = counts.refusals().into_iter().map(|(why, count)| (why.to_owned(), count)).collect();
    let CarrierCounts { batches_sent, batches_received, messages_sent, messages_received, .. } = counts;
    let carried = Carried { batches_sent, batches_received, messages_sent, messages_received, refused };
    let learnt = region.learnt().into_iter().map(|place| (place.access, place.faults)).collect();
    speaker.say(&ToLauncher::Bye { carried, matched: region.matched(), learnt }, b"");
    Ok(())
}

fn out_of_turn() -> Error {
    Error::new("the launcher says what an agent does not expect then")
}

/// Goes where the launcher is, if that is here, too; else home, as `mpirun` does.
fn enter_folder(plan: &RunPlan, speaker: &Speaker) {
    let folder = Path::new(OsStr::from_bytes(&plan.folder));
    if std::env::set_current_dir(folder).is_err() {
        let home = std::env::var_os("HOME").unwrap_or_else(|| "/".into());
        let name = &plan.hosts[plan.me.min(plan.hosts.len() - 1)].name;
        let (folder, home) = (folder.display(), Path::new(&home));
        let note = format!("host {name} has no folder {folder}: its nodes run in {}", home.display());
        if std::env::set_current_dir(home).is_ok() {
            speaker.say(&ToLauncher::Note(note), b"");
        }
    }
}

/// Starts what carries the messages of host `me`. `unbound`: on any processor, whichever this process is bound to.
pub(super) fn start_carrier(
    hosts: &[Host],
    me: usize,
    secret: &[u8],
    region: &RegionFile,
    (interrupts, unbound): (bool, bool),
    tell: impl Fn(carrier::CarrierEvent) + Send + 'static,
) -> Result<Carrier> {
    let carried = carrier::CarrierPlan {
        region: region.fd(),
        hosts: hosts.iter().map(|host| host.nodes.clone()).collect(),
        me,
        secret: secret.try_into().map_err(|_| Error::new("the run's secret is not one"))?,
        processors: if unbound { carrier::processors_of_host() } else { region::processors() },
        unbound,
        interrupts,
    };
    Carrier::start(carried, tell).map_err(Error::new)
}

/// Output of the nodes that is under way, by node and whether it is standard error.
type Credits = HashMap<(u16, bool), Arc<Credit>>;

/// Passes a node's output on, counts the pieces that were passed, and says when it has ended.
fn pass_on(
    pipe: impl Into<OwnedFd>,
    (node, is_error): (u16, bool),
    speaker: &Speaker,
    credits: &mut Credits,
    (ended, passed): (&mpsc::Sender<()>, &Arc<AtomicU64>),
) -> Result<()> {
    let credit = Arc::new(Credit::default());
    credits.insert((node, is_error), Arc::clone(&credit));
    let (mut pipe, speaker) = (File::from(pipe.into()), speaker.clone());
    let (ended, passed) = (ended.clone(), Arc::clone(passed));
    thread(move || {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match pipe.read(&mut piece) {
                Ok(0) => break,
                Ok(count) if !credit.spend(count) => break,
                Ok(count) if !speaker.say(&ToLauncher::Output { node, is_error }, &piece[..count]) => break,
                Err(e) if e.kind() != io::ErrorKind::Interrupted => break,
                _ => drop(passed.fetch_add(1, Ordering::Relaxed)),
            }
        }
        // Its writer gets SIGPIPE from here on.
        drop(pipe);
        speaker.say(&ToLauncher::Output { node, is_error }, b"");
        let _ = ended.send(());
    })
}

/// Passes standard input on to node 0.
fn feed(mut node: ChildStdin, speaker: &Speaker) -> Result<mpsc::Sender<Vec<u8>>> {
    let (sender, pieces) = mpsc::channel::<Vec<u8>>();
    let speaker = speaker.clone();
    thread(move || {
        for piece in pieces {
            if piece.is_empty() || node.write_all(&piece).is_err() {
                return;
            }
            speaker.say(&ToLauncher::InputTaken, b"");
        }
    })?;
    Ok(sender)
}

/// Runs this host's nodes until the launcher says that everything is over.
fn run(agent: &mut Agent<'_>, program: &Path, region: &RegionFile, carrier: Option<Carrier>) -> Result<CarrierCounts> {
    let plan = agent.plan;
    let numbers = plan.hosts[plan.me].nodes.clone();
    let total = plan.hosts.last().map_or(0, |host| host.nodes.end);
    let mut command = plan.command.iter().map(|word| OsString::from_vec(word.clone()));
    let here = plan.debugged.filter(|(node, _)| numbers.contains(node));
    let debugger = here.map(|(node, port)| Debugger::server(node.into(), port, GDBSERVER.into()));
    if debugger.is_some() && Command::new(GDBSERVER).arg("--version").stdout(Stdio::null()).status().is_err() {
        let error = Error::new(format!("{GDBSERVER} is not in PATH"));
        return Err(error.help(format!("install it there (Debian package {GDBSERVER})")));
    }
    let options = LaunchOptions {
        nodes: total.into(),
        arg0: command.next(),
        debugger,
        pipes_input: true,
        // Output goes through the agent, also of a node that is alone.
        tag_output: true,
        ..LaunchOptions::default()
    };
    // Where it stays on, addresses differ between nodes.
    if let Err(e) = sys::disable_randomisation() {
        let name = &plan.hosts[plan.me].name;
        agent.speaker.say(&ToLauncher::Note(format!("host {name}: address-space randomisation stays on ({e})")), b"");
    }
    let args: Vec<OsString> = command.collect();
    let range = u32::from(numbers.start)..u32::from(numbers.end);
    region.await_crashes(range.clone());
    let mut nodes = spawn::start_some(program, &args, region, agent.guard.group, &options, range)?;
    let (ended, streams) = mpsc::channel();
    let passed = Arc::<AtomicU64>::default();
    let (mut credits, mut running, mut input) = (Credits::new(), 0, None);
    for (node, child) in numbers.clone().zip(nodes.iter_mut().filter_map(|node| node.child.as_mut())) {
        if let Some(pipe) = child.stdin.take() {
            input = Some(feed(pipe, agent.speaker)?);
        }
        if let Some(pipe) = child.stdout.take() {
            pass_on(pipe, (node, false), agent.speaker, &mut credits, (&ended, &passed))?;
            running += 1;
        }
        if let Some(pipe) = child.stderr.take() {
            pass_on(pipe, (node, true), agent.speaker, &mut credits, (&ended, &passed))?;
            running += 1;
        }
    }
    let over = watch(agent, &mut nodes, (region, carrier.as_ref()), numbers.start, &credits, input);
    let counts = carrier.map(Carrier::stop).unwrap_or_default();
    leftovers::end_all(if over.is_ok() { leftovers::LIMIT } else { leftovers::LIMIT_ALONE });
    over?;
    credits.values().for_each(|credit| credit.lift());
    let (mut deadline, mut before) = (Instant::now() + LAST_OUTPUT, 0);
    while running > 0 && Instant::now() < deadline {
        running -= usize::from(streams.recv_timeout(LOOK_AT_OUTPUT).is_ok());
        let now = passed.load(Ordering::Relaxed);
        if std::mem::replace(&mut before, now) != now {
            deadline = Instant::now() + LAST_OUTPUT;
        }
    }
    if running > 0 {
        let (name, seconds) = (&plan.hosts[plan.me].name, LAST_OUTPUT.as_secs());
        let note = format!("host {name}: the last output of its nodes is cut: nothing took it for {seconds} s");
        agent.speaker.say(&ToLauncher::Note(note), b"");
    }
    Ok(counts)
}

/// Watches over the nodes until the launcher says that everything is over.
fn watch(
    agent: &mut Agent<'_>,
    nodes: &mut [SpawnedNode],
    (region, carrier): (&RegionFile, Option<&Carrier>),
    first: u16,
    credits: &Credits,
    mut input: Option<mpsc::Sender<Vec<u8>>>,
) -> Result<()> {
    let is_alone = agent.plan.hosts.last().is_some_and(|host| host.nodes.end == 1);
    let mut reaper = Reaper::default();
    let mut deadline: Option<Instant> = None;
    let mut crashes = Vec::new();
    loop {
        crash::look(OwnNodes { nodes, first: first.into() }, region, &mut crashes, deadline.is_some());
        for at in reaper.reap(nodes, region) {
            let node = first + at as u16;
            let report = region.report(node.into());
            // As on one host: nobody can do without a node whose debugger has given it up.
            let is_debugged = agent.plan.debugged.is_some_and(|(debugged, _)| debugged == node);
            let is_given_up = is_debugged && !is_alone && report.phase != node_phase::DONE;
            let has_failed = is_given_up || has_failed(&nodes[at], region, node.into(), is_alone);
            if has_failed && deadline.is_none() {
                region.abort();
                deadline = Some(Instant::now() + GRACE);
            }
            let ended = nodes[at].ended.unwrap_or_default();
            let NodeReport { phase, message, counters, traps } = report;
            let (counters, traps) = (counters.to_vec(), traps.iter().map(|t| (t.name, t.new, t.hits)).collect());
            let seen = crashes.iter().find(|crash| crash.is_of(node.into(), ended, message.is_some()));
            let told = seen.map(|crash| (agent.reports.describe)(crash, agent.plan.guard)).unwrap_or_default();
            let name = &agent.plan.hosts[agent.plan.me].name;
            let core = agent.dumps.as_ref().filter(|_| has_failed).map(|program| {
                (agent.reports.core)(&named(&agent.plan.hosts, node.into()), name, ended, seen, program)
            });
            let status = ended.into_raw();
            let ended = Ended { node, status, phase, message, counters, traps, has_failed, told, core };
            agent.speaker.say(&ToLauncher::Ended(ended), b"");
        }
        if deadline.is_some_and(|at| at <= Instant::now()) {
            nodes.iter().for_each(|node| node.signal(libc::SIGKILL));
            // Once more, should something have been in the way.
            deadline = Some(Instant::now() + RECHECK);
        }
        let own = OwnNodes { nodes, first: first.into() };
        let recheck = if region.learns() { plain_again::ring(own, region) } else { RECHECK };
        let timeout = deadline.map_or(recheck, |at| at.saturating_duration_since(Instant::now()));
        match agent.next(timeout) {
            News::Look => {}
            News::Over(why) => {
                region.abort();
                nodes.iter().for_each(|node| node.signal(libc::SIGKILL));
                return Err(Error::new(why));
            }
            News::Frame(frame, bytes) => match frame {
                ToAgent::Input => {
                    let is_end = bytes.is_empty();
                    // A node that reads no more has ended, or has closed it.
                    if let Some(feed) = &input {
                        let _ = feed.send(bytes);
                    }
                    if is_end {
                        input = None;
                    }
                }
                ToAgent::Taken { node, is_error, bytes } => {
                    if let Some(credit) = credits.get(&(node, is_error)) {
                        credit.give_back(bytes);
                    }
                }
                ToAgent::Closed { is_error } => {
                    credits.iter().filter(|((_, error), _)| *error == is_error).for_each(|(_, credit)| credit.close());
                }
                ToAgent::Look { places } => {
                    let locate = places.then_some(&agent.reports.locate as Locator<'_>);
                    let seen = rounds::see(OwnNodes { nodes, first: first.into() }, (region, carrier), locate);
                    agent.speaker.say(&ToLauncher::Seen(seen), b"");
                }
                ToAgent::Signal(signal) => nodes.iter().for_each(|node| node.signal(signal)),
                ToAgent::Abort => {
                    region.abort();
                    deadline = deadline.or(Some(Instant::now() + GRACE));
                }
                ToAgent::End => return Ok(()),
                ToAgent::Beat => {}
                _ => return Err(out_of_turn()),
            },
        }
    }
}
