//! The thread that carries.
//!
//! Purpose: stands in for the nodes of all other hosts. Input: the region of this host, the hosts of the run, where their carriers are. Output: messages in rings;
//! [`CarrierEvent`]s. The stand-in's end of a pair is the same [`Ends`] that a node has.
//!
//! It spins while something happens, then yields, then sleeps, as a node does ([`blizzard_rt::transport::settings`]). Where nodes want its processor, it yields at once to those
//! that it has told of a message; nodes that only wait get it back after [`LOOKS_ALONE`] looks. Nodes see that in the context pages of the nodes
//! it stands in for: spinning or sleeping, never running. They have no process number, so nobody waits for a sign of life of them: each carrier looks after the
//! nodes of its own host, and after the other carriers.
//!
//! **Invariants**: only this thread has the stand-ins' ends and the network; what is taken out of a ring is sent, and what has come is kept until its ring has room.

use crate::batch::{AreaRange, Batch, BatchRefusal, BatchWriter, Expected, Pair, Receipt, Secret};
use crate::bells::{self, Waker};
use crate::ucx::library::Library;
use crate::ucx::worker::{Delivery, Fetch, WithIt, Worker};
use crate::window::{Outgoing, ReceiveWindow, window};
use blizzard_contract::activity;
use blizzard_protocol::ids::NodeId;
use blizzard_rt::kernel::sys;
use blizzard_rt::memory::region::{ContextPage, Region};
use blizzard_rt::transport::interface::NO_PROCESSOR;
use blizzard_rt::transport::interface::{Urgency, Wire};
use blizzard_rt::transport::message::Message;
use blizzard_rt::transport::peers::watch::{Attention, PeerVerdict, PeerWatch, Silent};
use blizzard_rt::transport::rings::doorbell::Word;
use blizzard_rt::transport::rings::ends::Ends;
use blizzard_rt::transport::settings::{Attempts, LONG_YIELD_CYCLES, Spins, WaitSettings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most batches to a host that the network has not let go of: what follows waits in the rings.
const MOST_UNSENT: usize = 8;
/// Longest sleep, and longest time between two looks at the nodes of this host.
const LOOK_NS: u64 = 100_000_000;
/// A host that is sent nothing else gets an empty batch so often.
const BEAT_NS: u64 = 1_000_000_000;
/// Yields before a sleep where there are fewer processors than threads.
const CROWDED_YIELDS: u32 = 100;
/// Looks in vain, some 15 us, for which it keeps a processor that only waiting nodes want.
const LOOKS_ALONE: u32 = 16;
/// Looks in vain before nodes without polls are interrupted.
const INTERRUPT_LOOKS: u32 = 8;
/// How long the thread may take to say what is under way.
const TOLD: Duration = Duration::from_secs(1);
/// Looks at everything, between two looks at the clock.
const LOOKS_UNTIMED: u32 = 64;

/// What a carrier carries for.
#[derive(Clone, Debug)]
pub struct CarrierPlan {
    /// The region of this host.
    pub region: RawFd,
    /// The nodes of each host.
    pub hosts: Vec<Range<u16>>,
    /// Which of them this is.
    pub me: usize,
    pub secret: Secret,
    /// Processors of this host.
    pub processors: u32,
    /// The thread may use all of them, whichever its starter is bound to.
    pub unbound: bool,
    /// Nodes run code that has no polls: one that computes must be interrupted.
    pub interrupts: bool,
}

/// What whoever has started a carrier is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarrierEvent {
    /// Every other host has been heard.
    Connected,
    /// Nothing goes to or comes from that host any more.
    Lost { host: usize, why: String },
    /// A node of this host has not answered, or has damaged its rings.
    Node { node: u16, why: String },
    /// The carrier cannot go on.
    Failed(String),
    /// Whoever has started that host's carrier says this: the next part of a stream.
    Said { host: usize, bytes: Vec<u8> },
}

/// What a carrier has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierCounts {
    pub batches_sent: u64,
    pub batches_received: u64,
    pub messages_sent: u64,
    pub messages_received: u64,
    /// Refused batches by [`BatchRefusal`], and those whose receipts or windows do not fit.
    pub refused: [u64; BatchRefusal::KINDS + 1],
    /// What had no form that a carrier sends.
    pub strange: u64,
}

impl CarrierCounts {
    /// What was refused: why, and how many batches or parts of them. Only what was.
    pub fn refusals(&self) -> Vec<(&'static str, u64)> {
        let why = [
            "without the run's secret",
            "of another sender or out of turn",
            "of another form",
            "for nodes that they are not for",
            "more than a window holds",
        ];
        let all = why.into_iter().zip(self.refused).chain([("of no form that a carrier sends", self.strange)]);
        all.filter(|(_, count)| *count != 0).collect()
    }
}

/// What is between this host and the others at one moment. Counts are modulo 2^32.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CarriedTraffic {
    /// By host: messages sent to it, and messages of it that have come into rings here.
    pub sent: Vec<u32>,
    pub arrived: Vec<u32>,
    /// A node here has sent something to another host that the carrier has not taken yet.
    pub is_left: bool,
}

/// What the thread is told.
enum Order {
    /// Where the carriers of all hosts are.
    Connect(Vec<Vec<u8>>),
    Tell(Sender<CarriedTraffic>),
    Say {
        host: usize,
        bytes: Vec<u8>,
    },
}

/// A carrier that has been started.
pub struct Carrier {
    /// Where others reach it.
    pub address: Vec<u8>,
    orders: Sender<Order>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: JoinHandle<CarrierCounts>,
}

impl Carrier {
    /// Opens the network.
    ///
    /// # Errors
    /// UCX is not there, or finds no network; the region is not one.
    pub fn start(plan: CarrierPlan, tell: impl Fn(CarrierEvent) + Send + 'static) -> Result<Carrier, String> {
        let (orders, to_thread) = mpsc::channel();
        let (ready, opened) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let waker = Waker::new().map_err(|e| format!("the kernel gives no descriptor: {e}"))?;
        let (stop_it, wake_it) = (Arc::clone(&stop), waker.clone());
        let carry = move || {
            if plan.unbound {
                unbind();
            }
            let opened = Library::load().and_then(|library| {
                let worker = Worker::new(library, plan.hosts.len() - 1)?;
                Ok((worker.address()?, worker))
            });
            let worker = match opened {
                Ok((address, worker)) => {
                    let _ = ready.send(Ok(address));
                    worker
                }
                Err(why) => {
                    let _ = ready.send(Err(why));
                    return CarrierCounts::default();
                }
            };
            carry(&plan, worker, &to_thread, &stop_it, &wake_it, &tell)
        };
        let thread = std::thread::Builder::new().name("bz-carrier".into()).spawn(carry);
        let thread = thread.map_err(|e| format!("the kernel gives no thread: {e}"))?;
        let address = opened.recv().unwrap_or_else(|_| Err("the thread that carries messages has ended".into()))?;
        Ok(Carrier { address, orders, stop, waker, thread })
    }

    /// Says where the carriers of all hosts are; that of this host is not looked at.
    pub fn connect(&self, addresses: Vec<Vec<u8>>) {
        // A thread that has failed has said so.
        let _ = self.orders.send(Order::Connect(addresses));
    }

    /// What is under way now. None: the thread does not say.
    pub fn traffic(&self) -> Option<CarriedTraffic> {
        let (tell, told) = mpsc::channel();
        self.orders.send(Order::Tell(tell)).ok()?;
        self.waker.wake();
        told.recv_timeout(TOLD).ok()
    }

    /// Says something to whoever has started that host's carrier.
    pub fn say(&self, host: usize, bytes: Vec<u8>) {
        // As in `connect`.
        let _ = self.orders.send(Order::Say { host, bytes });
        self.waker.wake();
    }

    /// Ends it; what is under way is lost.
    pub fn stop(self) -> CarrierCounts {
        self.stop.store(true, Ordering::SeqCst);
        drop(self.orders);
        self.waker.wake();
        self.thread.join().unwrap_or_default()
    }
}

/// Lets this thread use all processors that the host gives its process.
fn unbind() {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|processor| all.set(processor));
    // A thread that stays where it was is slower.
    let _ = sched_setaffinity(None, &all);
}

/// How many processors this host gives a process, whichever its starter has bound it to.
pub fn processors_of_host() -> u32 {
    let count = || {
        unbind();
        sched_getaffinity(None).map_or(1, |set| set.count().max(1))
    };
    std::thread::spawn(count).join().unwrap_or(1)
}

/// Maps the region, connects and carries until `stop`.
fn carry(
    plan: &CarrierPlan,
    worker: Worker,
    orders: &Receiver<Order>,
    stop: &Arc<AtomicBool>,
    waker: &Waker,
    tell: &dyn Fn(CarrierEvent),
) -> CarrierCounts {
    let failed = |why: String| {
        tell(CarrierEvent::Failed(why));
        CarrierCounts::default()
    };
    let region = match Region::map(plan.region) {
        Ok(region) => region,
        Err(e) => return failed(e.to_string()),
    };
    let mut state = State::new(plan, &region, worker);
    if let Err(e) = state.stand_in(&region, waker, stop) {
        return failed(e);
    }
    let Ok(Order::Connect(addresses)) = orders.recv() else { return CarrierCounts::default() };
    for (host, address) in addresses.iter().enumerate().filter(|&(host, _)| host != plan.me) {
        match state.worker.connect(address) {
            Ok(peer) => {
                state.peers[host].peer = peer;
                state.host_of_peer.push(host);
            }
            Err(why) => {
                tell(CarrierEvent::Lost { host, why });
                return CarrierCounts::default();
            }
        }
    }
    state.run(orders, stop, waker, tell);
    state.counts.strange = state.worker.strange();
    state.counts
}

/// What is between a node of this host and one of another.
struct Lane {
    /// The stand-in's end.
    ends: Ends,
    /// What was taken out of it and has had no room in a batch.
    taken: Option<Message>,
    /// From the node here, and to the node here.
    going: Pair,
    outgoing: Outgoing,
    incoming: ReceiveWindow,
    /// What has come and is not in the ring.
    held: VecDeque<Message>,
}

impl Lane {
    /// Whether the node here has sent something.
    fn is_ready(&self) -> bool {
        self.taken.is_some() || self.ends.is_ready()
    }

    /// The next message of the node here.
    fn take(&mut self) -> Option<Message> {
        let mut message = Message::default();
        self.taken.take().or_else(|| self.ends.receive_into(&mut message).then_some(message))
    }
}

/// A batch that is what its sender may say, and what is being fetched for it.
struct Pending {
    bytes: Vec<u8>,
    fetch: Option<Fetch>,
}

/// Another host.
#[derive(Default)]
struct Host {
    /// Its number in the worker.
    peer: usize,
    /// Its lanes, and at which of them the next batch begins.
    lanes: Vec<usize>,
    turn: usize,
    /// When it was sent something, and when it was heard, in the carrier's attention.
    sent_ns: u64,
    heard_ns: u64,
    has_been_heard: bool,
    is_lost: bool,
    /// What has come and waits for what goes with it, or behind that.
    pending: VecDeque<Pending>,
    /// What is to be said to its starter.
    words: VecDeque<u8>,
}

struct State<'a> {
    plan: &'a CarrierPlan,
    region: Region,
    lanes: Vec<Lane>,
    hosts: Vec<Range<u16>>,
    peers: Vec<Host>,
    host_of_peer: Vec<usize>,
    /// By host: batches of it, and to it.
    received: Vec<u64>,
    sent: Vec<u64>,
    /// Lanes that hold messages back.
    holding: Vec<usize>,
    /// By node of this host: a lane of it that has got a message since it was told.
    told: Vec<Option<usize>>,
    /// A node was told, and has not had the processor since.
    has_told: bool,
    watches: Vec<PeerWatch>,
    attention: Attention,
    now_ns: u64,
    limit_ms: u64,
    window: u32,
    /// The context pages of the nodes of other hosts, and of this one.
    others: Vec<ContextPage>,
    nodes_here: Vec<ContextPage>,
    counts: CarrierCounts,
    /// Behind everything that holds offers.
    worker: Worker,
}

impl<'a> State<'a> {
    fn new(plan: &'a CarrierPlan, region: &Region, worker: Worker) -> State<'a> {
        let header = region.header();
        let mut peers: Vec<Host> = plan.hosts.iter().map(|_| Host::default()).collect();
        let mut lanes = Vec::new();
        let node = |number: u16| NodeId::new(number.into()).expect("the region has that many nodes");
        let here = plan.hosts[plan.me].clone();
        let others = || plan.hosts.iter().enumerate().filter(|&(host, _)| host != plan.me);
        for (host, theirs) in others() {
            for (from, to) in here.clone().flat_map(|from| theirs.clone().map(move |to| (from, to))) {
                // SAFETY: nodes of the region; the stand-in of `to` is this thread alone; the region is never unmapped.
                let ends = unsafe { Ends::open(region, node(to), node(from)) };
                peers[host].lanes.push(lanes.len());
                let (outgoing, incoming) = (Outgoing::default(), ReceiveWindow::default());
                let going = Pair { from, to };
                lanes.push(Lane { ends, taken: None, going, outgoing, incoming, held: VecDeque::new() });
            }
        }
        State {
            plan,
            region: *region,
            worker,
            lanes,
            hosts: plan.hosts.clone(),
            peers,
            host_of_peer: Vec::new(),
            received: vec![0; plan.hosts.len()],
            sent: vec![0; plan.hosts.len()],
            holding: Vec::new(),
            told: vec![None; here.len()],
            has_told: false,
            watches: vec![PeerWatch::default(); here.len()],
            attention: Attention::default(),
            now_ns: 0,
            limit_ms: header.peer_timeout_ms.into(),
            window: window(header.ring_slots),
            others: others().flat_map(|(_, theirs)| theirs.clone()).map(|n| region.context(node(n))).collect(),
            nodes_here: here.map(|n| region.context(node(n))).collect(),
            counts: CarrierCounts::default(),
        }
    }

    /// From here on nodes find somebody behind the rings.
    fn stand_in(&self, region: &Region, waker: &Waker, stop: &Arc<AtomicBool>) -> Result<(), String> {
        self.say(activity::SPINNING);
        let here = &self.hosts[self.plan.me];
        if self.waiting().is_crowded() {
            // Nodes give way when they have sent something.
            self.others.iter().for_each(|context| context.processor().store(NO_PROCESSOR, Ordering::Relaxed));
        }
        for number in (0..region.header().nodes).filter(|&n| !here.contains(&(n as u16))) {
            let context = region.context(NodeId::new(number).expect("a node of the region"));
            // SAFETY: a word of the region, which is never unmapped.
            let bell: &'static AtomicU32 = unsafe { AtomicU32::from_ptr(context.poll().as_ptr()) };
            bells::pass_on(bell, waker.clone(), Arc::clone(stop))
                .map_err(|e| format!("the kernel gives no thread for each node of another host: {e}"))?;
        }
        Ok(())
    }

    /// How this thread waits: the nodes of this host want processors, too.
    fn waiting(&self) -> WaitSettings {
        WaitSettings::new(self.hosts[self.plan.me].len() as u32 + 1, self.plan.processors)
    }

    /// Says for all stand-ins what this thread is doing.
    fn say(&self, doing: u32) {
        for context in &self.others {
            context.activity().store(doing, Ordering::Release);
        }
        AtomicU32::full_fence();
    }

    fn run(&mut self, orders: &Receiver<Order>, stop: &AtomicBool, waker: &Waker, tell: &dyn Fn(CarrierEvent)) {
        let waiting = self.waiting();
        // Where nodes want the processor that this thread spins on, it yields from the start, and for as long as an answer from another host takes.
        let most_yields = if waiting.is_crowded() { CROWDED_YIELDS } else { waiting.yields };
        let (mut spins, mut yields) = (Spins::new(&waiting), Attempts::FRESH);
        let (mut looks, mut yielded, mut alone, mut untimed) = (0, 0, 0, LOOKS_UNTIMED);
        let here = self.hosts[self.plan.me].len() as u32;
        let mut is_connected = false;
        while !stop.load(Ordering::Relaxed) {
            let mut longest_ns = LOOK_NS;
            untimed += 1;
            if untimed > LOOKS_UNTIMED {
                untimed = 0;
                longest_ns = self.look_around(tell);
                while let Ok(order) = orders.try_recv() {
                    match order {
                        // Whoever has asked may have gone.
                        Order::Tell(to) => drop(to.send(self.traffic())),
                        Order::Say { host, bytes } => self.peers[host].words.extend(bytes),
                        Order::Connect(_) => {}
                    }
                }
                if !is_connected && self.others().all(|host| self.peers[host].has_been_heard) {
                    is_connected = true;
                    tell(CarrierEvent::Connected);
                }
            }
            if self.step(tell) {
                if looks != 0 && looks < spins.now() {
                    spins.answered(&waiting);
                }
                (looks, yielded, alone) = (0, 0, 0);
                if std::mem::take(&mut self.has_told) && waiting.is_crowded() && yields.may() {
                    yielded = 1;
                    self.give_way(&mut yields, true);
                }
            } else if waiting.is_crowded() && yielded >= here && alone < LOOKS_ALONE && self.nodes_wait() {
                alone += 1;
            } else if looks < spins.now() && !waiting.is_crowded() {
                looks += 1;
                std::hint::spin_loop();
                if looks == INTERRUPT_LOOKS && self.plan.interrupts {
                    self.interrupt_nodes();
                }
                if looks == spins.now() {
                    spins.in_vain(&waiting);
                    looks = u32::MAX;
                }
            } else if yielded < most_yields && yields.may() {
                (yielded, alone) = (yielded + 1, 0);
                self.give_way(&mut yields, yielded == 1 && waiting.is_crowded());
            } else {
                yields.done_without();
                longest_ns = longest_ns.min(self.look_around(tell));
                self.sleep(waker, stop, longest_ns);
                // Woken by nothing but the time, it sleeps again soon.
                (looks, yielded, alone, untimed) = (0, most_yields, LOOKS_ALONE, LOOKS_UNTIMED);
            }
        }
    }

    /// Yields, and notes whether that is of use. `computes`: who has this thread's processor next may compute for a time slice.
    fn give_way(&self, yields: &mut Attempts, computes: bool) {
        if computes && self.plan.interrupts {
            self.interrupt_nodes();
        }
        let began = sys::cycles();
        sys::sched_yield();
        if sys::cycles().saturating_sub(began) < LONG_YIELD_CYCLES {
            yields.of_use();
        } else {
            yields.in_vain();
        }
    }

    /// All nodes of this host wait: they would look at their rings, and find nothing, since each has had a turn after what came last.
    fn nodes_wait(&self) -> bool {
        let doing = |context: &ContextPage| context.activity().load(Ordering::Relaxed);
        self.nodes_here.iter().map(doing).all(|d| [activity::SPINNING, activity::SLEEPING, activity::GONE].contains(&d))
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.plan.me;
        (0..self.hosts.len()).filter(move |&host| host != me)
    }

    /// What is under way. Between two steps nodes have been told of all that has come.
    fn traffic(&self) -> CarriedTraffic {
        let sum = |host: &Host, count: fn(&Lane) -> u32| {
            host.lanes.iter().fold(0, |sum: u32, &number| sum.wrapping_add(count(&self.lanes[number])))
        };
        CarriedTraffic {
            sent: self.peers.iter().map(|host| sum(host, |lane| lane.outgoing.count())).collect(),
            arrived: self.peers.iter().map(|host| sum(host, |lane| lane.incoming.count())).collect(),
            is_left: self.lanes.iter().any(Lane::is_ready),
        }
    }

    /// Moves what there is, in both directions; whether there was anything.
    fn step(&mut self, tell: &dyn Fn(CarrierEvent)) -> bool {
        let mut busy = false;
        for host in self.others() {
            while !self.peers[host].is_lost && self.worker.unsent(self.peers[host].peer) < MOST_UNSENT {
                match self.send_batch(host, false) {
                    Ok(false) => break,
                    Ok(true) => busy = true,
                    Err(why) => self.lose(host, why, tell),
                }
            }
        }
        while self.worker.progress() {
            busy = true;
        }
        while let Some((peer, status)) = self.worker.broken() {
            let why = format!("the connection is broken: {}", self.worker.text(status));
            self.lose(self.host_of_peer[peer], why, tell);
        }
        while let Some(arrived) = self.worker.receive() {
            busy = true;
            self.take_in(arrived, tell);
        }
        for host in self.others() {
            busy |= self.go_on_with(host, tell);
        }
        busy |= self.deliver_held();
        self.tell_nodes();
        busy
    }

    fn lose(&mut self, host: usize, why: String, tell: &dyn Fn(CarrierEvent)) {
        if !std::mem::replace(&mut self.peers[host].is_lost, true) {
            tell(CarrierEvent::Lost { host, why });
        }
    }

    /// Takes what has come, and fetches what goes with it. What comes behind that waits for it.
    fn take_in(&mut self, arrived: Delivery, tell: &dyn Fn(CarrierEvent)) {
        let State { plan, hosts, received, peers, counts, window, .. } = self;
        let expected = Expected { secret: &plan.secret, hosts, me: plan.me, received };
        let Delivery { bytes, with_it } = arrived;
        let (host, area) = match Batch::read(&bytes, with_it.bytes(), &expected) {
            Ok(batch) => (batch.host, batch.area),
            Err(refusal) => {
                counts.refused[refusal as usize] += 1;
                return;
            }
        };
        let from = &mut peers[host];
        if from.pending.len() > from.lanes.len() * *window as usize + MOST_UNSENT {
            // No carrier sends more than its windows while it does not hear what has arrived.
            counts.refused[BatchRefusal::KINDS] += 1;
            return;
        }
        received[host] += 1;
        counts.batches_received += 1;
        (from.heard_ns, from.has_been_heard) = (self.now_ns, true);
        let fetch = match (with_it, area) {
            (WithIt::Here(more), Some(area)) => {
                // SAFETY: a range of the area of a node of the host that has sent it, as long as what has come. Nodes are told of it later.
                unsafe { self.area(&area).copy_from_nonoverlapping(more.as_ptr(), more.len()) };
                None
            }
            (WithIt::Offered(offer), Some(area)) => {
                // SAFETY: as above; the region is never unmapped.
                match unsafe { self.worker.fetch(offer, self.area(&area)) } {
                    Ok(fetch) => Some(fetch),
                    Err(why) => return self.lose(host, why, tell),
                }
            }
            (_, None) => None,
        };
        if fetch.is_none() && self.peers[host].pending.is_empty() {
            self.take_apart(&bytes, tell);
        } else {
            self.peers[host].pending.push_back(Pending { bytes, fetch });
        }
    }

    /// Goes on with what waits until all is there that goes with it.
    fn go_on_with(&mut self, host: usize, tell: &dyn Fn(CarrierEvent)) -> bool {
        let mut busy = false;
        while !self.peers[host].is_lost
            && let Some(next) = self.peers[host].pending.front()
        {
            match next.fetch.as_ref().map_or(Ok(true), |fetch| self.worker.has_fetched(fetch)) {
                Ok(false) => break,
                Err(why) => self.lose(host, why, tell),
                Ok(true) => {
                    busy = true;
                    if let Some(Pending { bytes, .. }) = self.peers[host].pending.pop_front() {
                        self.take_apart(&bytes, tell);
                    }
                }
            }
        }
        busy
    }

    /// First byte of a range of a node's area.
    fn area(&self, area: &AreaRange) -> *mut u8 {
        let node = NodeId::new(area.node.into()).expect("a node of the region");
        self.region.stage(node).wrapping_add(area.range.start as usize)
    }

    /// Takes a batch apart that is what its sender may say.
    fn take_apart(&mut self, bytes: &[u8], tell: &dyn Fn(CarrierEvent)) {
        let State { plan, hosts, lanes, peers, counts, holding, told, .. } = self;
        let Some(batch) = Batch::admitted(bytes) else { return };
        let host = batch.host;
        let here = hosts[plan.me].clone();
        let theirs = hosts[host].clone();
        let lane_of = |node_here: u16, node_there: u16| {
            let place = usize::from(node_here - here.start) * theirs.len() + usize::from(node_there - theirs.start);
            peers[host].lanes[place]
        };
        if !batch.said().is_empty() {
            tell(CarrierEvent::Said { host, bytes: batch.said().to_vec() });
        }
        for Receipt { pair, arrived } in batch.receipts() {
            if !lanes[lane_of(pair.from, pair.to)].outgoing.arrived(arrived) {
                counts.refused[BatchRefusal::KINDS] += 1;
            }
        }
        for (pair, message) in batch.messages() {
            let number = lane_of(pair.to, pair.from);
            let lane = &mut lanes[number];
            counts.messages_received += 1;
            if lane.held.is_empty() && put(lane, &message) {
                told[usize::from(pair.to - here.start)] = Some(number);
            } else if (lane.held.len() as u32) < self.window {
                if lane.held.is_empty() {
                    holding.push(number);
                }
                lane.held.push_back(message);
            } else {
                // No carrier sends more than its window.
                counts.refused[BatchRefusal::KINDS] += 1;
            }
        }
    }

    /// Moves what is held back into the rings, as far as they have room.
    fn deliver_held(&mut self) -> bool {
        let mut busy = false;
        let first = self.hosts[self.plan.me].start;
        let State { lanes, holding, told, .. } = self;
        holding.retain(|&number| {
            let lane = &mut lanes[number];
            while let Some(message) = lane.held.front().copied()
                && put(lane, &message)
            {
                lane.held.pop_front();
                told[usize::from(lane.going.from - first)] = Some(number);
                busy = true;
            }
            !lane.held.is_empty()
        });
        busy
    }

    /// Tells the nodes of this host of what is in their rings.
    fn tell_nodes(&mut self) {
        if self.told.iter().any(Option::is_some) {
            self.has_told = true;
            AtomicU32::full_fence();
            for number in self.told.iter_mut().filter_map(Option::take) {
                self.lanes[number].ends.tell(Urgency::Call);
            }
        }
    }

    /// Interrupts the nodes of this host that compute and have not answered.
    fn interrupt_nodes(&self) {
        for node in self.hosts[self.plan.me].clone() {
            if let Some(lane) = self.lanes.iter().find(|lane| lane.going.from == node) {
                lane.ends.interrupt();
            }
        }
    }

    /// Sends a host what there is for it, as much as has room in a batch; false if there is nothing. `beat`: an empty one will do.
    fn send_batch(&mut self, host: usize, beat: bool) -> Result<bool, String> {
        let State { plan, worker, lanes, peers, counts, window, .. } = self;
        let to = &mut peers[host];
        let is_due = |lane: &Lane| lane.incoming.must_tell(*window);
        let is_ready = |lane: &Lane| lane.outgoing.may_send(*window) && lane.is_ready();
        let says_nothing = to.words.is_empty();
        if !beat && says_nothing && !to.lanes.iter().any(|&number| is_due(&lanes[number]) || is_ready(&lanes[number])) {
            return Ok(false);
        }
        let mut batch = BatchWriter::new(worker.buffer(to.peer), &plan.secret, plan.me as u16, self.sent[host]);
        for &number in &to.lanes {
            let lane = &mut lanes[number];
            // All that the other side does not know: the next batch may be long in coming.
            if batch.has_room()
                && let Some(arrived) = lane.incoming.tell()
            {
                let Pair { from, to } = lane.going;
                batch.receipt(Receipt { pair: Pair { from: to, to: from }, arrived });
            }
        }
        let (count, first) = (to.lanes.len(), to.turn);
        for step in 0..count {
            let lane = &mut lanes[to.lanes[(first + step) % count]];
            let mut is_full = false;
            while !is_full
                && batch.has_room()
                && lane.outgoing.may_send(*window)
                && let Some(message) = lane.take()
            {
                if batch.message(lane.going, &message) {
                    lane.outgoing.sent();
                    counts.messages_sent += 1;
                } else {
                    lane.taken = Some(message);
                    is_full = true;
                }
            }
            if is_full || !batch.has_room() {
                to.turn = (first + step + usize::from(!is_full)) % count;
                break;
            }
        }
        batch.say(&mut to.words);
        to.sent_ns = self.now_ns;
        self.sent[host] += 1;
        counts.batches_sent += 1;
        let peer = to.peer;
        let (bytes, area) = batch.finish();
        match area {
            None => self.worker.send(peer, bytes)?,
            Some(area) => {
                let start = self.area(&area).cast_const();
                // SAFETY: a range of an area of the region, which is never unmapped. Its node writes there again when the receiver has read it.
                unsafe { self.worker.send_with(peer, bytes, (start, area.bytes())) }?;
            }
        }
        Ok(true)
    }

    /// Looks after the nodes of this host and after the other hosts; how long the carrier may sleep.
    fn look_around(&mut self, tell: &dyn Fn(CarrierEvent)) -> u64 {
        self.now_ns = self.attention.look(sys::monotonic_ns());
        let mut longest_ns = LOOK_NS;
        let here = self.hosts[self.plan.me].clone();
        for (at, node) in here.enumerate() {
            // Any of its lanes: all show the same node.
            let Some(lane) = self.lanes.iter().find(|lane| lane.going.from == node) else { continue };
            let state = lane.ends.state();
            match self.watches[at].look(state, self.now_ns, self.limit_ms) {
                PeerVerdict::Nothing => {}
                PeerVerdict::Silent { for_ms } => {
                    let id = NodeId::new(node.into()).expect("a node of the region");
                    tell(CarrierEvent::Node { node, why: Silent { node: id, pid: state.pid, for_ms }.to_string() });
                }
                PeerVerdict::Unanswered { call, again_ns } => {
                    longest_ns = longest_ns.min(again_ns);
                    if call {
                        lane.ends.call();
                    }
                }
            }
        }
        if let Some(lane) = self.lanes.iter().find(|lane| !lane.ends.is_sound()) {
            let Pair { from, to } = lane.going;
            tell(CarrierEvent::Node {
                node: from,
                why: format!("the ring between nodes {from} and {to} was overwritten"),
            });
        }
        for host in self.others() {
            let Host { sent_ns, heard_ns, is_lost, has_been_heard, peer, .. } = self.peers[host];
            if is_lost {
                continue;
            }
            let silent_ms = self.now_ns.saturating_sub(heard_ns) / 1_000_000;
            if has_been_heard && self.limit_ms != 0 && silent_ms >= self.limit_ms {
                let why = format!("nothing has come from it for {}.{} s", silent_ms / 1000, silent_ms % 1000 / 100);
                self.lose(host, why, tell);
            } else if (self.now_ns.saturating_sub(sent_ns) >= BEAT_NS || self.sent[host] == 0)
                && self.worker.unsent(peer) < MOST_UNSENT
                && let Err(why) = self.send_batch(host, true)
            {
                self.lose(host, why, tell);
            }
        }
        longest_ns
    }

    /// Whether there is anything to do that no descriptor tells of.
    fn is_ready(&self) -> bool {
        let may_go = |host: &Host| !host.is_lost;
        let ready = |&number: &usize| {
            let lane = &self.lanes[number];
            lane.outgoing.may_send(self.window) && lane.is_ready()
        };
        self.peers.iter().filter(|host| may_go(host)).any(|host| host.lanes.iter().any(ready))
    }

    /// Sleeps until something happens, or for so long.
    fn sleep(&mut self, waker: &Waker, stop: &AtomicBool, longest_ns: u64) {
        waker.clear();
        self.say(activity::SLEEPING);
        // A ring that was full says nothing when it has room.
        let longest_ns = if self.holding.is_empty() { longest_ns } else { longest_ns.min(HOLDING_NS) };
        let is_blocked = self.others().any(|host| self.worker.unsent(self.peers[host].peer) >= MOST_UNSENT);
        if !stop.load(Ordering::SeqCst)
            && (is_blocked || !self.is_ready())
            && self.worker.arm()
            && let Ok(network) = self.worker.event_fd()
        {
            let mut fds =
                [PollFd::from_borrowed_fd(network, PollFlags::IN), PollFd::from_borrowed_fd(waker.fd(), PollFlags::IN)];
            let limit = Timespec { tv_sec: 0, tv_nsec: longest_ns.min(LOOK_NS) as i64 };
            // However it ends, everything is looked at.
            let _ = poll(&mut fds, Some(&limit));
        }
        self.say(activity::SPINNING);
    }
}

/// Longest sleep while messages wait for room in a ring.
const HOLDING_NS: u64 = 200_000;

/// Puts a message into the ring of the node here.
fn put(lane: &mut Lane, message: &Message) -> bool {
    let data = (message.length != 0).then_some(&message.data);
    let is_put = lane.ends.send(message.traffic(), message.incarnation, message.head(), data);
    if is_put {
        lane.incoming.arrived();
    }
    is_put
}
