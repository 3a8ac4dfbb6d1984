//! One execution: nodes, what they have to do, and what is right.

use crate::kernel::sys;
use crate::links::bugs::has_bug;
use crate::memory::homes::{Attributes, BlockSize, PAGE_BYTES, Placement};
use crate::memory::region::Region;
use crate::memory::region::testing::TestRegion;
use crate::memory::tags::Space;
use crate::node::access::Lane;
use crate::node::node::Node;
use crate::node::waiting::Entered;
use crate::process::host::CallHost;
use crate::sync::collective::Collective;
use crate::system_calls::call_memory;
use crate::system_calls::table::visitor::CallRange;
use crate::tempest::bulk::channels;
use crate::tempest::bulk::transfer;
use crate::tempest::owner::TempestSettings;
use crate::tests::explore::search::Found;
use crate::tests::statics::Statics;
use crate::transport::delaying::fiber::{self, Fiber};
use crate::transport::patience::Wait;
use crate::transport::stage::{self, Director, Look};
use blizzard_contract::STAGE_PIECE_BYTES;
use blizzard_contract::{self as contract, Counter, RegionHeader, waits};
use blizzard_protocol::ids::Block;
use blizzard_protocol::ids::NodeId;
use blizzard_protocol::port::Port;
use core::cell::{Cell, RefCell, UnsafeCell};
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::{String, ToString};
use std::vec::Vec;

/// Small, since it is made again for each execution: 131,072 blocks, and room for each kind of allocation.
const SEGMENT_BYTES: u64 = 16 << 20;
/// How often time passes while a node waits, at most.
const NAPS: u32 = 1;
/// How often a peer's signal takes a node out of its system calls, at most. Then the kernel is done first: two nodes whose calls have a block in common
/// would take each other out for ever.
const TAKEN_BACK: u32 = 2;

/// Words of one block that are stored to and loaded from together.
pub type Variable = Vec<u64>;

/// One step of a node's program. Numbers are those of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Load(usize),
    Store(usize),
    /// Both at once, as an instruction with two operands: loads the first, stores to the second.
    Move(usize, usize),
    /// [`Node::prefetch`]; `true`: to store to it.
    Prefetch(usize, bool),
    /// [`Node::flush`].
    Flush,
    /// A barrier of all nodes.
    Barrier,
    /// Adds to a variable whose nodes have said so, or at its home.
    Add(usize),
    /// Loads what has been combined.
    LoadSum(usize),
    /// [`Node::check_in`].
    CheckIn(usize),
    /// [`Node::check_out`].
    CheckOut(usize, bool),
    /// A system call: what it loads from, or (`true`) stores to.
    Call(&'static [(usize, bool)]),
    /// Node 0 creates the next node.
    Create,
    /// Node 0 lets the created nodes go, as it does in front of a system call.
    Release,
    /// The source of [`Model::bulk`] sends its buffer.
    BulkSend,
    /// The destination waits for it.
    BulkWait,
}

/// Bytes of a bulk transfer: some pieces more than a source stages with its offer.
const BULK_BYTES: usize = 4 * STAGE_PIECE_BYTES as usize + 100;
/// From this node, through its channel 0, to that one.
const BULK: [u32; 2] = [0, 1];

/// What is explored.
#[derive(Clone)]
pub struct Model {
    pub name: &'static str,
    pub nodes: u32,
    /// Of each ring: more than messages are ever under way.
    pub ring_slots: u32,
    pub protocol: u32,
    pub shape: fn(&mut RegionHeader),
    /// The nodes are on hosts that begin with node 0 and with these ones.
    pub hosts: &'static [u16],
    /// Allocates, before anything is explored; nothing may wait.
    pub prepare: fn(&mut [Copy]) -> Vec<Variable>,
    /// What happens first, one after the other, in one order only.
    pub before: Vec<(usize, Op)>,
    /// There is a channel for bulk data.
    pub bulk: bool,
    /// By node.
    pub scripts: Vec<Vec<Op>>,
    /// Number of a planted bug, or 0.
    pub bug: u64,
}

/// What a node does when it pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It needs a message.
    Waits,
    /// It takes what is there, or goes on.
    Looks,
    /// In a system call.
    Kernel,
    /// Not created, or not released.
    Unborn,
}

/// What can happen next to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It takes a message of that node.
    Take(NodeId),
    /// It finds none, or time passes.
    GoOn,
    /// The signal of a peer takes it out of a system call.
    TakenBack,
}

impl Choice {
    fn number(self) -> u64 {
        match self {
            Choice::Take(from) => from.index() as u64,
            Choice::GoOn => 100,
            Choice::TakenBack => 101,
        }
    }
}

/// A node, and its copy of the segment.
pub struct Copy {
    pub node: Box<Node>,
}

impl Copy {
    fn new(region: Region, me: NodeId, bug: u64) -> Copy {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let tag_bytes = SEGMENT_BYTES >> contract::BLOCK_SHIFT;
        // SAFETY: new memory of this node alone, unmapped when the copy is dropped.
        let node = unsafe {
            let rw = libc::PROT_READ | libc::PROT_WRITE;
            let memory = sys::mmap(0, SEGMENT_BYTES + tag_bytes, rw, flags, -1, 0).unwrap();
            let tags = memory + SEGMENT_BYTES;
            (tags as *mut u8).write_bytes(contract::TAG_INVALID, tag_bytes as usize);
            Box::new(Node::new(region, me, Space::new(memory, tags, SEGMENT_BYTES)).unwrap())
        };
        node.context.instrument(contract::instrument::PLANTED).store(bug, Ordering::Relaxed);
        Copy { node }
    }
}

/// Memory with those attributes and the run's protocol, of which all nodes know. It comes from the node that has it to give.
pub fn share(copies: &mut [Copy], block_bytes: u64, homes: Placement, bytes: u64) -> u64 {
    let protocol = copies[0].node.alloc_defaults().protocol;
    share_by(
        copies,
        Attributes { block: BlockSize::new(block_bytes).unwrap(), homes, protocol, operation: None },
        bytes,
    )
}

/// As [`share`], with any protocol.
pub fn share_by(copies: &mut [Copy], attributes: Attributes, bytes: u64) -> u64 {
    let owner = if let Placement::Node(node) = attributes.homes { node.index() } else { 0 };
    let at = copies[owner].node.alloc(attributes, bytes, 0).unwrap();
    for copy in copies {
        let arena = copy.node.homes.arena_of(at).unwrap();
        copy.node.learn_limit(arena, at + bytes);
    }
    at
}

impl Drop for Copy {
    fn drop(&mut self) {
        let at = self.node.space.runtime_address(contract::SEGMENT_BASE) as u64;
        // SAFETY: mapped in `new`; nobody uses it any more.
        let _ = unsafe { sys::munmap(at, SEGMENT_BYTES + (SEGMENT_BYTES >> contract::BLOCK_SHIFT)) };
    }
}

struct Actor {
    /// `None`: not created.
    copy: UnsafeCell<Option<Copy>>,
    /// Its statics of `tempest.h`, if it uses that interface.
    statics: Option<Statics>,
    status: Cell<Status>,
    choice: Cell<Choice>,
    /// A hash of all choices, and of what else the node has read.
    history: Cell<u64>,
    /// The node waits for its turn: that many steps must have been made.
    turn: Cell<usize>,
    has_ended: Cell<bool>,
    /// How often time may still pass while it waits.
    naps: Cell<u32>,
    /// It passes.
    naps_now: Cell<bool>,
    /// How often it may still be taken out of a system call.
    calls_back: Cell<u32>,
}

/// One execution.
pub struct World {
    model: *const Model,
    actors: Vec<Actor>,
    variables: Vec<Variable>,
    /// By variable: the latest value.
    values: RefCell<Vec<u64>>,
    /// By variable: what may be found, in order; the latest value alone, unless its home pushes.
    allowed: RefCell<Vec<Vec<u64>>>,
    /// By variable that is combined, by round, by node: what was added.
    added: RefCell<Vec<Vec<Vec<f64>>>>,
    /// By node: barriers that it has entered, and those that it has left.
    entered: RefCell<Vec<usize>>,
    rounds: RefCell<Vec<usize>>,
    /// Steps that were made of [`Model::before`].
    turn: Cell<usize>,
    found: RefCell<Option<Found>>,
    region: Region,
    /// The node that runs.
    running: Cell<usize>,
    created: Cell<u32>,
    /// What is sent, and where it is to arrive.
    buffers: UnsafeCell<[Vec<u8>; 2]>,
}

fn mix(hash: u64, what: u64) -> u64 {
    let mixed = (hash ^ what.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ mixed >> 32).rotate_left(17).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// The region of all executions of a model.
pub fn region(model: &Model) -> TestRegion {
    let mut region = TestRegion::new(model.nodes, 1, SEGMENT_BYTES, model.ring_slots);
    region.region.change_header(|header| {
        header.look_ahead = 0;
        header.protocol = model.protocol;
        (model.shape)(header);
    });
    region.set_hosts(model.hosts);
    region
}

thread_local! {
    /// The nodes that this thread explores.
    static WORLD: Cell<*const World> = const { Cell::new(core::ptr::null()) };
}

impl Director for World {
    fn look(&self, me: NodeId, optional: bool) -> Look {
        match self.pause(me, if optional { Status::Looks } else { Status::Waits }) {
            Choice::Take(from) => Look::At(from),
            _ => Look::Nowhere,
        }
    }

    fn note(&self, me: NodeId, what: u64) {
        World::note(self, me, what);
    }

    fn has_time_passed(&self) -> bool {
        self.actors[self.running.get()].naps_now.get()
    }
}

impl World {
    /// The nodes at their beginning.
    pub fn new(model: &Model, region: &TestRegion) -> Box<World> {
        region.renew();
        let shared = region.region;
        let created = shared.header().forks != 0;
        let first = if created { 1 } else { model.nodes };
        let mut copies: Vec<Copy> = (0..first).map(|n| Copy::new(shared, NodeId::new(n).unwrap(), model.bug)).collect();
        let variables = (model.prepare)(&mut copies);
        let mut copies = copies.into_iter();
        let actors = (0..model.nodes).map(|_| Actor {
            copy: UnsafeCell::new(copies.next()),
            statics: model
                .bulk
                .then(|| Statics::new(TempestSettings { pages: 1, ..TempestSettings::DEFAULT }, model.nodes)),
            status: Cell::new(Status::Looks),
            choice: Cell::new(Choice::GoOn),
            history: Cell::new(0),
            turn: Cell::new(0),
            has_ended: Cell::new(false),
            naps: Cell::new(NAPS),
            naps_now: Cell::new(false),
            calls_back: Cell::new(TAKEN_BACK),
        });
        let bulk_bytes = if model.bulk { BULK_BYTES } else { 0 };
        let buffer = |with: fn(usize) -> u8| (0..bulk_bytes).map(with).collect();
        if model.bulk {
            // Nobody is called: no node is in the kernel.
            let process = std::process::id();
            let source = NodeId::new(BULK[0]).expect("a node's number");
            shared.context(source).pid().store(process, Ordering::Relaxed);
        }
        Box::new(World {
            model,
            actors: actors.collect(),
            values: RefCell::new(std::vec![0; variables.len()]),
            allowed: RefCell::new(std::vec![std::vec![0]; variables.len()]),
            added: RefCell::new(std::vec![std::vec![]; variables.len()]),
            entered: RefCell::new(std::vec![0; model.nodes as usize]),
            rounds: RefCell::new(std::vec![0; model.nodes as usize]),
            variables,
            turn: Cell::new(0),
            found: RefCell::new(None),
            region: shared,
            running: Cell::new(0),
            created: Cell::new(0),
            buffers: UnsafeCell::new([buffer(|at| (at * 7 + 1) as u8), buffer(|_| 0)]),
        })
    }

    /// From here on this thread explores this world; each node goes to its first pause.
    pub fn enter(&self, fibers: &mut [Fiber]) {
        WORLD.set(self);
        // SAFETY: the world stays where it is until `leave`.
        unsafe { stage::set_director(Some(core::ptr::from_ref::<dyn Director>(self))) };
        for (number, fiber) in fibers.iter_mut().enumerate() {
            self.set_running(number);
            fiber.begin(run, number);
            fiber.resume();
        }
    }

    pub fn leave() {
        WORLD.set(core::ptr::null());
        // SAFETY: nobody explores.
        unsafe {
            stage::set_director(None);
            Statics::set(None);
        }
    }

    fn model(&self) -> &Model {
        // SAFETY: the search keeps the model while it uses the world.
        unsafe { &*self.model }
    }

    /// Node `number`, while its fiber pauses; `None` if it does not exist yet.
    fn node(&self, number: usize) -> Option<&Node> {
        // SAFETY: the fiber that uses the node by a unique reference is not running.
        unsafe { (*self.actors[number].copy.get()).as_ref().map(|copy| &*copy.node) }
    }

    /// Node `number` runs from here on.
    fn set_running(&self, number: usize) {
        self.running.set(number);
        // SAFETY: the statics are the node's own, and stay as long as the world.
        unsafe { Statics::set(self.actors[number].statics.as_ref()) };
    }

    /// Node `me` pauses here; how it is to go on.
    pub fn pause(&self, me: NodeId, status: Status) -> Choice {
        let actor = &self.actors[me.index()];
        actor.status.set(status);
        fiber::pause();
        let choice = actor.choice.get();
        let naps = status == Status::Waits && choice == Choice::GoOn;
        actor.naps_now.set(naps);
        actor.naps.set(actor.naps.get() - u32::from(naps));
        actor.calls_back.set(actor.calls_back.get() - u32::from(choice == Choice::TakenBack));
        choice
    }

    pub fn note(&self, me: NodeId, what: u64) {
        let history = &self.actors[me.index()].history;
        history.set(mix(history.get(), what + 1));
    }

    /// Whether everything before the exploration has happened.
    pub fn is_prepared(&self) -> bool {
        self.turn.get() == self.model().before.len()
    }

    /// All that can happen next: a node, and what it does.
    pub fn choices(&self) -> Vec<(usize, Choice)> {
        let mut all = Vec::new();
        for (number, actor) in self.actors.iter().enumerate() {
            let has_turn = self.turn.get() >= actor.turn.get();
            let goes_on = match actor.status.get() {
                Status::Looks => has_turn,
                Status::Waits => self.may_nap(number) && actor.naps.get() != 0,
                Status::Kernel => {
                    let is_called = self.node(number).is_some_and(|node| {
                        node.context.activity().load(Ordering::Relaxed) == contract::activity::CALLED
                    });
                    let taken_back = is_called && actor.calls_back.get() != 0;
                    all.extend(taken_back.then_some((number, Choice::TakenBack)));
                    true
                }
                Status::Unborn => {
                    self.region.fork_homes().load(Ordering::Relaxed) != 0 && self.created.get() as usize >= number
                }
            };
            if matches!(actor.status.get(), Status::Looks | Status::Waits)
                && let Some(node) = self.node(number)
            {
                let senders = (0..self.model().nodes).filter_map(NodeId::new);
                let ready = senders.filter(|&from| node.transport.is_ready_from(from));
                all.extend(ready.map(|from| (number, Choice::Take(from))));
            }
            all.extend(goes_on.then_some((number, Choice::GoOn)));
        }
        if !self.is_prepared() {
            all.truncate(1);
        }
        all
    }

    /// Whether there is something that a node does when time passes.
    fn may_nap(&self, number: usize) -> bool {
        let Some(node) = self.node(number) else { return false };
        let bulk = self.actors[number].statics.as_ref().map(Statics::bulk);
        node.engine.patience() != u32::MAX || bulk.is_some_and(|bulk| bulk.has_work() || bulk.awaits_pieces())
    }

    /// Makes one step.
    pub fn step(&self, fibers: &mut [Fiber], (number, choice): (usize, Choice)) {
        self.note(NodeId::new(number as u32).unwrap(), choice.number());
        self.actors[number].choice.set(choice);
        self.set_running(number);
        fibers[number].resume();
    }

    /// What is wrong now.
    pub fn check(&self) -> Option<Found> {
        if let Some(found) = self.found.borrow_mut().take() {
            return Some(found);
        }
        let nodes = || (0..self.actors.len()).filter_map(|number| self.node(number));
        if nodes().any(|node| node.context.counter(Counter::MessagesRejected) != 0) {
            return Some(Found::Rejected);
        }
        for (words, allowed) in self.variables.iter().zip(&*self.allowed.borrow()) {
            for &addr in words {
                if is_combined(nodes(), addr) {
                    continue;
                }
                let block = Block::of(addr);
                let may = |store| nodes().filter(move |node| node.space.allows(block, store));
                let pushes = may(true).any(|node| is_pushed_by(node, addr));
                if may(true).count() > 1 || may(true).count() == 1 && may(false).count() > 1 && !pushes {
                    return Some(Found::Writers);
                }
                if may(false).any(|node| !allowed.contains(&word(node, addr))) {
                    return Some(Found::Stale);
                }
            }
        }
        None
    }

    /// What is wrong at an end. Where time could pass once more nothing is known.
    pub fn check_end(&self) -> Option<Found> {
        let numbers = || 0..self.actors.len();
        if numbers().any(|number| self.may_nap(number)) {
            return None;
        }
        let at_rest = |number: usize| {
            self.actors[number].has_ended.get()
                && self.node(number).is_some_and(|node| !node.holds_work() && !node.engine.has_outstanding())
        };
        let still: Vec<String> = numbers().filter(|&n| !at_rest(n)).map(|n| n.to_string()).collect();
        (!still.is_empty()).then(|| Found::Standstill(still.join(", ")))
    }

    /// The state's name.
    pub fn name(&self) -> u64 {
        let values = self.values.borrow();
        let words = self.actors.iter().map(|actor| actor.history.get()).chain(values.iter().copied());
        words.fold(self.turn.get() as u64, mix)
    }

    fn find(&self, found: Found) {
        self.found.borrow_mut().get_or_insert(found);
    }
}

/// Whether nodes add to it.
fn is_combined<'a>(mut nodes: impl Iterator<Item = &'a Node>, addr: u64) -> bool {
    nodes.any(|node| node.links.site(addr).is_some_and(|site| site.protocol.has_operations()))
}

/// Whether the node may store beside those that load, which see it after a flush.
fn is_pushed_by(node: &Node, addr: u64) -> bool {
    node.links.site(addr).is_some_and(|site| site.home == node.me && !site.protocol.is_sequentially_consistent())
}

/// What a step adds: sums of a few of them depend on their order.
fn addend(step: u64) -> f64 {
    [1e16, 1.0, -1e16, 0.5][(step / 100 + step) as usize % 4]
}

fn word(node: &Node, addr: u64) -> u64 {
    // SAFETY: an aligned word of the node's own copy; one thread.
    unsafe { node.space.runtime_address(addr).cast::<u64>().read_volatile() }
}

/// A node from its beginning to its end, on its fiber.
fn run(number: usize) {
    // SAFETY: `World::enter` sets it to a world that stays where it is until it is set again.
    let Some(world) = (unsafe { WORLD.get().as_ref() }) else { return };
    let result = catch_unwind(AssertUnwindSafe(|| {
        let me = Program { world, number };
        let model = world.model();
        me.be_born();
        if model.bulk {
            me.make_channel();
        }
        for (turn, &(_, op)) in model.before.iter().enumerate().filter(|(_, (who, _))| *who == number) {
            world.actors[number].turn.set(turn);
            me.poll();
            me.perform(op, 1000 + turn as u64);
            world.turn.set(turn + 1);
        }
        world.actors[number].turn.set(model.before.len());
        for (step, &op) in model.scripts[number].iter().enumerate() {
            me.poll();
            me.perform(op, (number as u64 + 1) * 100 + step as u64);
        }
        me.poll();
        me.end();
    }));
    if let Err(panic) = result {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        world.find(Found::Failure(text.unwrap_or_default()));
    }
}

/// A node's program.
struct Program<'a> {
    world: &'a World,
    number: usize,
}

impl Program<'_> {
    #[expect(clippy::mut_from_ref, reason = "the search looks at a node only while its fiber pauses")]
    fn node(&self) -> &mut Node {
        // SAFETY: each call uses the reference before the next one; see `World::node`.
        let copy = unsafe { (*self.world.actors[self.number].copy.get()).as_mut() };
        &mut copy.expect("the node exists").node
    }

    fn me(&self) -> NodeId {
        NodeId::new(self.number as u32).expect("a node's number")
    }

    /// A node that is created begins when it has been released, as in [`crate::process::creation::become_node`].
    fn be_born(&self) {
        let World { region, actors, variables, .. } = self.world;
        if self.world.node(self.number).is_none() {
            self.world.pause(self.me(), Status::Unborn);
            let mut copy = Copy::new(*region, self.me(), self.world.model().bug);
            for &addr in variables.iter().flatten() {
                let arena = copy.node.homes.arena_of(addr).expect("allocated");
                copy.node.learn_limit(arena, (addr + 1).next_multiple_of(PAGE_BYTES));
            }
            // SAFETY: nobody has a reference to what is not there.
            unsafe { *actors[self.number].copy.get() = Some(copy) };
        }
    }

    fn make_channel(&self) {
        let [from, to] = BULK.map(|n| NodeId::new(n).expect("a node's number"));
        if self.me() == from {
            assert_eq!(channels::set_source(to, 0), 0);
        } else if self.me() == to {
            let buffer = (self.buffer(1).as_ptr() as u64, BULK_BYTES as i32);
            transfer::set_destination(&mut CallHost::Node(self.node()), from, 0, buffer, 0, false);
        }
    }

    /// The buffer that is sent (0), or that in which it arrives.
    fn buffer(&self, which: usize) -> &[u8] {
        // SAFETY: written by the node's calls only, while nobody looks.
        unsafe { &(*self.world.buffers.get())[which] }
    }

    fn poll(&self) {
        self.node().poll();
    }

    fn call(&self, run: impl FnOnce(&mut Node)) {
        self.node().begin();
        run(self.node());
        self.node().leave();
    }

    /// Makes a word accessible as a check does.
    fn check(&self, addr: u64, store: bool) {
        if !self.node().is_accessible(addr, 8, store) {
            self.node().miss(addr, 8, store, false);
            assert!(self.node().is_accessible(addr, 8, store), "the access must be possible right after the miss");
        }
    }

    fn load(&self, variable: usize) {
        for &addr in &self.world.variables[variable] {
            self.check(addr, false);
            self.loaded(variable, addr);
        }
    }

    fn loaded(&self, variable: usize, addr: u64) {
        let (found, latest) = (word(self.node(), addr), self.world.values.borrow()[variable]);
        let pushes = self.node().links.site(addr).is_some_and(|site| !site.protocol.is_sequentially_consistent());
        let is_fine = if pushes && !is_pushed_by(self.node(), addr) {
            self.world.allowed.borrow()[variable].contains(&found)
        } else {
            found == latest
        };
        if !is_fine {
            self.world.find(Found::Stale);
        }
    }

    fn store(&self, variable: usize, value: u64) {
        for &addr in &self.world.variables[variable] {
            self.check(addr, true);
            self.stored(addr, value);
        }
        self.has_stored(variable, value);
    }

    /// All words of a variable have that value here.
    fn has_stored(&self, variable: usize, value: u64) {
        self.world.values.borrow_mut()[variable] = value;
        let allowed = &mut self.world.allowed.borrow_mut()[variable];
        if !is_pushed_by(self.node(), self.world.variables[variable][0]) {
            allowed.clear();
        }
        allowed.push(value);
    }

    /// A barrier of all nodes, to which all must have come when one leaves it; behind it, this node is in another round.
    fn barrier(&self) {
        self.world.entered.borrow_mut()[self.number] += 1;
        self.call(|node| node.collective(Collective::Barrier, &mut []));
        self.world.rounds.borrow_mut()[self.number] += 1;
        let entered = self.world.entered.borrow();
        if entered.iter().any(|&other| other < entered[self.number]) {
            self.world.find(Found::Early);
        }
    }

    /// Adds to all words of a variable, with a load and a store each, and entries between them.
    fn add(&self, variable: usize, step: u64) {
        let value = addend(step);
        for &addr in &self.world.variables[variable] {
            self.check(addr, false);
            let before = f64::from_bits(word(self.node(), addr));
            self.poll();
            self.check(addr, true);
            self.stored(addr, (before + value).to_bits());
        }
        let round = self.world.rounds.borrow()[self.number];
        let added = &mut self.world.added.borrow_mut()[variable];
        let nodes = self.world.actors.len();
        added.resize(added.len().max(round + 1), std::vec![-0.0; nodes]);
        added[round][self.number] += value;
    }

    /// What the barriers that this node has left must have come to: the home's own part first, then the others by their numbers. What the home has added since
    /// may be there, too.
    fn load_sum(&self, variable: usize) {
        let round = self.world.rounds.borrow()[self.number];
        for &addr in &self.world.variables[variable] {
            self.check(addr, false);
            let found = word(self.node(), addr);
            let home = self.node().links.site(addr).map_or(0, |site| site.home.index());
            let added = self.world.added.borrow();
            let mut sum = 0f64;
            for of_round in added[variable].iter().take(round) {
                sum += of_round[home];
                let others = of_round.iter().enumerate().filter(|(node, _)| *node != home);
                sum = others.fold(sum, |sum, (_, more)| sum + more);
            }
            let later = added[variable].get(round).map_or(sum, |since| sum + since[home]);
            if ![sum.to_bits(), later.to_bits()].contains(&found) {
                self.world.find(Found::Stale);
            }
        }
    }

    /// What this node has stored before may not be missing behind the flush.
    fn flush(&self) {
        let before = |(variable, values): (usize, &Vec<u64>)| match self.world.variables[variable].first() {
            Some(&addr) if is_pushed_by(self.node(), addr) => values[..values.len() - 1].to_vec(),
            _ => std::vec![],
        };
        let old: Vec<Vec<u64>> = self.world.allowed.borrow().iter().enumerate().map(before).collect();
        self.call(Node::flush);
        let mut allowed = self.world.allowed.borrow_mut();
        allowed.iter_mut().zip(old).for_each(|(values, old)| values.retain(|value| !old.contains(value)));
    }

    fn stored(&self, addr: u64, value: u64) {
        // SAFETY: an aligned word of the node's own copy; one thread.
        unsafe { self.node().space.runtime_address(addr).cast::<u64>().write_volatile(value) }
    }

    fn perform(&self, op: Op, value: u64) {
        let first = |variable: usize| self.world.variables[variable][0];
        match op {
            Op::Load(variable) => self.load(variable),
            Op::Store(variable) => self.store(variable, value),
            Op::Move(from, to) => {
                let lane = |variable, store| Lane { addr: first(variable), bytes: 8, store, masked: false };
                let lanes = [lane(from, false), lane(to, true)];
                let are_accessible = || lanes.iter().all(|l| self.node().is_accessible(l.addr, l.bytes, l.store));
                if !are_accessible() {
                    self.call(|node| node.access_lanes(&lanes));
                    assert!(are_accessible(), "both accesses must be possible right after the miss");
                }
                self.loaded(from, first(from));
                self.store(to, value);
            }
            Op::Prefetch(variable, store) => self.call(|node| node.prefetch(first(variable), 8, store)),
            Op::Flush => self.flush(),
            Op::Barrier => self.barrier(),
            Op::Add(variable) => self.add(variable, value),
            Op::LoadSum(variable) => self.load_sum(variable),
            Op::CheckIn(variable) => self.call(|node| node.check_in(first(variable), 8)),
            Op::Call(ranges) => self.system_call(ranges, value),
            Op::Create => {
                let number = self.node().create_begin();
                self.node().create_end(1);
                // There is no process that could be called.
                self.world
                    .region
                    .context(NodeId::new(number).expect("a node's number"))
                    .pid()
                    .store(0, Ordering::Relaxed);
                self.world.created.set(number);
            }
            Op::Release => self.node().release(),
            Op::BulkSend => self.call(|node| {
                let to = NodeId::new(BULK[1]).expect("a node's number");
                transfer::send(&mut CallHost::Node(node), to, 0, self.buffer(0).as_ptr() as u64, BULK_BYTES as i32);
            }),
            Op::BulkWait => self.call(|node| {
                let from = NodeId::new(BULK[0]).expect("a node's number");
                node.wait_running_handlers(Wait::Other, (waits::WAKEUP, 0), || channels::is_ready(from, 0));
                if self.buffer(0) != self.buffer(1) {
                    self.world.find(Found::Stale);
                }
            }),
            Op::CheckOut(variable, store) => self.call(|node| node.check_out(first(variable), 8, store)),
        }
    }

    /// A call that waits for something until the search lets it go on.
    fn system_call(&self, ranges: &[(usize, bool)], value: u64) {
        let all = || {
            let words = |&(variable, store): &(usize, bool)| {
                self.world.variables[variable].iter().map(move |&addr| (variable, CallRange { addr, bytes: 8, store }))
            };
            ranges.iter().flat_map(words)
        };
        loop {
            call_memory::until_made(&mut Gate(self), |gate| {
                call_memory::make_accessible(gate, |acquire| all().for_each(|(_, range)| acquire(range)));
                ((), true)
            });
            let choice = self.world.pause(self.me(), Status::Kernel);
            self.node().context.activity().store(contract::activity::RUNNING, Ordering::SeqCst);
            if choice == Choice::GoOn {
                break;
            }
            self.poll();
        }
        for (variable, range) in all() {
            if !self.node().is_accessible(range.addr, range.bytes, range.store) {
                return self.world.find(Found::Kernel);
            }
            if range.store {
                self.stored(range.addr, value);
                self.has_stored(variable, value);
            } else {
                self.loaded(variable, range.addr);
            }
        }
    }

    /// Serves the others for ever.
    fn end(&self) {
        self.node().begin();
        self.world.actors[self.number].has_ended.set(true);
        self.node().wait(Wait::Other, |_| false);
    }
}

/// The memory of a call, as `system_calls/gate/own_memory.rs` has that of the process's node.
struct Gate<'a>(&'a Program<'a>);

impl call_memory::CallMemory for Gate<'_> {
    fn is_accessible(&mut self, range: &CallRange) -> bool {
        self.0.node().is_accessible(range.addr, range.bytes, range.store)
    }

    fn require(&mut self, range: &CallRange) {
        self.0.node().miss(range.addr, range.bytes, range.store, false);
    }

    fn hold_pages(&mut self, hold: bool) {
        self.0.node().hold_pages(hold);
    }

    fn enter_kernel(&mut self) -> Entered {
        let entered = self.0.node().enter_kernel();
        // It depends on what is in the rings.
        self.0.world.note(self.0.me(), 200 + entered as u64);
        entered
    }

    fn serve(&mut self) {
        self.0.poll();
    }

    fn bugs(&mut self) -> (bool, bool) {
        let node = self.0.node();
        (has_bug!(node, OnePass), has_bug!(node, CallIsNotPreparedAgain))
    }
}
