//! What is explored: a few nodes with a few steps each, for each mechanism that lives in the drivers, at any block size.

use crate::memory::homes::{Attributes, BlockSize, PAGE_BYTES, Placement};
use crate::tests::explore::world::{Copy, Model, Op, Variable, share, share_by};
use Op::{
    Add, Barrier, BulkSend, BulkWait, Call, CheckIn, CheckOut, Create, Flush, Load, LoadSum, Move, Prefetch, Release,
    Store,
};
use blizzard_contract::{RegionHeader, home_policy};
use blizzard_protocol::ids::Block;
use blizzard_protocol::ids::NodeId;
use blizzard_protocol::operation::{Combine, Element, Operation};
use blizzard_protocol::port::ProtocolId;
use std::vec;
use std::vec::Vec;

fn on(node: u32) -> Placement {
    Placement::Node(NodeId::new(node).unwrap())
}

/// A variable that fills a block: its first and its last word, and one between them.
fn block(at: u64, bytes: u64) -> Variable {
    vec![at, at + bytes / 2, at + bytes - 8]
}

/// The first blocks of so many pages of a node.
fn pages<const BYTES: u64, const PAGES: u64>(copies: &mut [Copy]) -> Vec<Variable> {
    let at = share(copies, BYTES, on(0), PAGES * PAGE_BYTES);
    (0..PAGES).map(|page| block(at + page * PAGE_BYTES, BYTES)).collect()
}

/// Two blocks of node 0 that lie side by side.
fn neighbours<const BYTES: u64>(copies: &mut [Copy]) -> Vec<Variable> {
    let at = share(copies, BYTES, on(0), 2 * BYTES);
    vec![block(at, BYTES), block(at + BYTES, BYTES)]
}

/// Two blocks in one page of node 0, and one in another page.
fn page_and_page<const BYTES: u64>(copies: &mut [Copy]) -> Vec<Variable> {
    let at = share(copies, BYTES, on(0), 2 * PAGE_BYTES);
    vec![block(at, BYTES), block(at + BYTES, BYTES), block(at + PAGE_BYTES, BYTES)]
}

/// A block of node 0 and a larger one of node 1.
fn two_sizes<const SMALL: u64, const LARGE: u64>(copies: &mut [Copy]) -> Vec<Variable> {
    let small = share(copies, SMALL, on(0), SMALL);
    let large = share(copies, LARGE, on(1), LARGE);
    vec![block(small, SMALL), block(large, LARGE)]
}

/// Two blocks of node 0: one with the run's protocol, which is the first of the list, and one with that of this number.
fn two_protocols<const BYTES: u64, const OTHER: usize>(copies: &mut [Copy]) -> Vec<Variable> {
    let own = share(copies, BYTES, on(0), BYTES);
    let attributes = Attributes {
        block: BlockSize::new(BYTES).unwrap(),
        homes: on(0),
        protocol: ProtocolId::at(OTHER),
        operation: None,
    };
    let other = share_by(copies, attributes, BYTES);
    vec![block(own, BYTES), block(other, BYTES)]
}

/// Two blocks of node 0 that it pushes, in two pages.
fn pushed<const BYTES: u64>(copies: &mut [Copy]) -> Vec<Variable> {
    let protocol = ProtocolId::named("update").unwrap();
    let attributes = Attributes { block: BlockSize::new(BYTES).unwrap(), homes: on(0), protocol, operation: None };
    let at = share_by(copies, attributes, 2 * PAGE_BYTES);
    vec![block(at, BYTES), block(at + PAGE_BYTES, BYTES)]
}

/// Two blocks of a node in two pages, to whose elements nodes add.
fn summed<const BYTES: u64, const HOME: usize>(copies: &mut [Copy]) -> Vec<Variable> {
    let protocol = ProtocolId::named("reduce").unwrap();
    let operation = Operation::new(Combine::Sum, Element::F64);
    let attributes = Attributes { block: BlockSize::new(BYTES).unwrap(), homes: on(HOME as u32), protocol, operation };
    let first = &mut copies[HOME].node;
    let arena = first.homes.arena_for(attributes).unwrap();
    let at = first.arenas.alloc(arena, 2 * PAGE_BYTES, 0, true).unwrap().0.unwrap().addr;
    for copy in copies {
        copy.node.begin_operation((at, 2 * PAGE_BYTES), operation.unwrap(), false);
    }
    vec![vec![at], vec![at + PAGE_BYTES]]
}

/// A page without a home, whose entry node 0 keeps: who has to ask the keeper depends on that.
fn first_touch<const BYTES: u64>(copies: &mut [Copy]) -> Vec<Variable> {
    let homes = copies[0].node.homes;
    let at = share(copies, BYTES, Placement::FirstTouch, u64::from(homes.nodes()) * PAGE_BYTES);
    let page = (at..).step_by(PAGE_BYTES as usize).find(|page| homes.home_of(*page) == NodeId::new(0));
    vec![block(page.unwrap(), BYTES)]
}

/// Two pages whose home is node 1 once it exists, and one of node 0.
fn to_be_dealt_out<const BYTES: u64>(copies: &mut [Copy]) -> Vec<Variable> {
    let at = share(copies, BYTES, Placement::RoundRobin, 6 * PAGE_BYTES);
    let homes = copies[0].node.homes;
    let all = homes.among(homes.nodes());
    let page_of = |node, nth: usize| {
        let mut pages = (at..).step_by(PAGE_BYTES as usize).filter(|page| all.home_of(*page) == NodeId::new(node));
        block(pages.nth(nth).unwrap(), BYTES)
    };
    vec![page_of(1, 0), page_of(1, 1), page_of(0, 0)]
}

fn ahead<const BYTES: u64>(copies: &mut [Copy]) -> Vec<Variable> {
    let variables = pages::<BYTES, 3>(copies);
    let steps: Vec<_> = variables.iter().map(|words| (Block::of(words[0]), false)).collect();
    copies[1].node.engine.history.follow(&steps);
    variables
}

fn plain(_: &mut RegionHeader) {}

fn one_page(header: &mut RegionHeader) {
    header.stache_pages = 1;
}

fn looking_ahead(header: &mut RegionHeader) {
    header.look_ahead = 4;
}

fn forks(header: &mut RegionHeader) {
    header.forks = 1;
}

fn touched(header: &mut RegionHeader) {
    header.homes = home_policy::FIRST_TOUCH;
}

type Scripts = Vec<Vec<Op>>;

fn model(
    name: &'static str,
    shape: fn(&mut RegionHeader),
    prepare: fn(&mut [Copy]) -> Vec<Variable>,
    scripts: Scripts,
) -> Model {
    let nodes = scripts.len() as u32;
    Model {
        name,
        nodes,
        ring_slots: 256,
        protocol: blizzard_protocol::list::ALL[0].number(),
        shape,
        hosts: &[],
        prepare,
        before: vec![],
        bulk: false,
        scripts,
        bug: 0,
    }
}

/// Stores and loads of one block in parts.
pub fn parts<const BYTES: u64>() -> Model {
    let each = || vec![Store(0), Load(0)];
    model("parts", plain, neighbours::<BYTES>, vec![each(), each()])
}

/// As [`parts`], with another block beside it, and a third node.
pub fn parts_of_two<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Load(1)], vec![Store(1), Load(0)], vec![Load(0)]];
    model("parts of two blocks", plain, neighbours::<BYTES>, scripts)
}

/// Blocks with different protocols, used together and one after the other.
pub fn side_by_side<const BYTES: u64, const OTHER: usize>() -> Model {
    let scripts = vec![vec![Store(1), Load(0)], vec![Move(0, 1)], vec![Store(1), Load(1)]];
    model("two protocols", plain, two_protocols::<BYTES, OTHER>, scripts)
}

/// A home pushes to a reader, which was there before, and to one that comes between.
pub fn push<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Flush, Store(0), Flush], vec![Load(0), Load(0)], vec![Load(0)]];
    let before = vec![(0, Store(0)), (1, Load(0))];
    Model { before, ..model("push", plain, pushed::<BYTES>, scripts) }
}

/// A reader that comes between a store and its flush; then the home has again what it had at first.
pub fn push_to_late<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Load(1), Flush], vec![Load(0)], vec![Load(0), Store(1)]];
    let before = vec![(0, Store(0)), (1, Load(0)), (0, Store(1))];
    Model { before, ..model("push to a late reader", plain, pushed::<BYTES>, scripts) }
}

/// Another node stores, the home as well.
pub fn push_of_two<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Flush, Load(0)], vec![Load(0), Store(0), Load(0)]];
    model("push of two writers", plain, pushed::<BYTES>, scripts)
}

/// A third node stores while the home flushes.
pub fn push_of_three<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Flush], vec![Load(0), Load(0)], vec![Store(0)]];
    let before = vec![(0, Store(0)), (1, Load(0))];
    Model { before, ..model("push beside another writer", plain, pushed::<BYTES>, scripts) }
}

/// A reader has room for one page.
pub fn push_to_small<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Flush, Store(0), Flush], vec![Load(0), Load(1), Load(0)]];
    model("push and replacement", one_page, pushed::<BYTES>, scripts)
}

/// A reader in a system call.
pub fn push_beside_call<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Flush], vec![Call(&[(0, false), (1, true)]), Load(0)]];
    Model { before: vec![(1, Load(0))], ..model("push beside a system call", plain, pushed::<BYTES>, scripts) }
}

/// A reader holds the block for an access to two.
pub fn push_beside_access<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Store(1), Flush], vec![Load(0), Move(0, 1), Load(0)]];
    model("push beside an access to two blocks", plain, pushed::<BYTES>, scripts)
}

/// Two nodes add and load what has come of it.
pub fn reduce<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Add(0), Barrier, LoadSum(0)], vec![CheckOut(0, true), Add(0), Barrier, LoadSum(0)]];
    model("reduction", plain, summed::<BYTES, 0>, scripts)
}

/// The same, twice.
pub fn reduce_again<const BYTES: u64>() -> Model {
    let twice = |once: &[Op]| [once, once].concat();
    let scripts = vec![twice(&[Add(0), Barrier, LoadSum(0)]), twice(&[CheckOut(0, true), Add(0), Barrier, LoadSum(0)])];
    model("reductions", plain, summed::<BYTES, 0>, scripts)
}

/// Two nodes and their home add, and one loads.
pub fn reduce_of_three<const BYTES: u64>() -> Model {
    let adds = || vec![CheckOut(0, true), Add(0), Barrier];
    let scripts = vec![vec![Add(0), Barrier], vec![CheckOut(0, true), Add(0), Barrier, LoadSum(0)], adds()];
    model("reduction of three", plain, summed::<BYTES, 0>, scripts)
}

/// The home is neither the first that leaves the barrier nor the one from whom the others hear that it is over: a node that has left it asks, ...
pub fn reduce_late<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Barrier], vec![Add(0), Barrier], vec![CheckOut(0, true), Add(0), Barrier, LoadSum(0)]];
    model("reduction that is asked for early", plain, summed::<BYTES, 1>, scripts)
}

/// ... or has come to the end of the next round.
pub fn reduce_ahead<const BYTES: u64>() -> Model {
    let adds = [CheckOut(0, true), Add(0), Barrier];
    let scripts = vec![vec![Barrier, Barrier], vec![Barrier, LoadSum(0), Barrier], [adds, adds].concat()];
    model("reduction ahead", plain, summed::<BYTES, 1>, scripts)
}

/// What a node has added comes to a home that has not left the barrier in front of that round.
pub fn reduce_next_round<const BYTES: u64>() -> Model {
    let adds = vec![Barrier, CheckOut(0, true), Add(0), Barrier];
    let scripts = vec![vec![Barrier, Barrier], vec![Barrier, LoadSum(0), Barrier], adds];
    model("reduction of the next round", plain, summed::<BYTES, 1>, scripts)
}

/// A node with room for one page adds to two, and loads from two.
pub fn reduce_in_small<const BYTES: u64>() -> Model {
    let adds = vec![CheckOut(0, true), Add(0), CheckOut(1, true), Add(1), Barrier, LoadSum(0), LoadSum(1), LoadSum(0)];
    let scripts = vec![vec![Add(0), Barrier], adds];
    model("reduction and replacement", one_page, summed::<BYTES, 0>, scripts)
}

/// One node on a host, and two on another one, meet.
pub fn barriers_on_hosts<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Barrier, Load(0), Barrier], vec![Barrier, Barrier], vec![Store(0), Barrier, Barrier]];
    Model { hosts: &[1], ..model("barriers on two hosts", plain, neighbours::<BYTES>, scripts) }
}

/// Sums of nodes of two hosts.
pub fn reduce_on_hosts<const BYTES: u64>() -> Model {
    Model { hosts: &[1], name: "reduction on two hosts", ..reduce_of_three::<BYTES>() }
}

/// The same with that protocol for the run.
pub fn by(protocol: &str, model: Model) -> Model {
    Model { protocol: ProtocolId::named(protocol).unwrap().number(), ..model }
}

/// Node 1 has used both blocks, and their home has wanted them back.
pub fn wanted_before(model: Model) -> Model {
    let before = vec![(1, Load(0)), (0, Load(0)), (1, Load(1)), (0, Load(1))];
    Model { before, ..model }
}

/// Two nodes read and then store; their home reads.
pub fn turns<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Load(0)], vec![Load(0), Store(0)], vec![Load(0), Store(0)]];
    model("read and then stored", plain, neighbours::<BYTES>, scripts)
}

/// Two nodes have read without a store, then one has stored: the block is shared as with stache when the home stores, and becomes migratory again.
pub fn readers<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0)], vec![Load(0), Store(0)], vec![Load(0), CheckIn(0)]];
    let before = vec![(1, Load(0)), (2, Load(0)), (1, Store(0))];
    Model { before, ..model("read by two", plain, neighbours::<BYTES>, scripts) }
}

/// Two nodes have read before their home has stored: the first that reads again brings the other one a copy.
pub fn read_again<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0)], vec![Load(0)], vec![Load(0), Store(0)]];
    let before = vec![(1, Load(0)), (2, Load(0)), (0, Store(0))];
    Model { before, ..model("read again", plain, neighbours::<BYTES>, scripts) }
}

/// The same, and the first goes on.
pub fn read_again_and_again<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0)], vec![Load(0), Store(0)], vec![Load(0), Load(0)]];
    Model { scripts, ..read_again::<BYTES>() }
}

/// The home reads what one of two readers has stored, and the other one wants it, too.
pub fn read_at_home<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Load(0)], vec![CheckIn(0)], vec![Load(0), Store(0)]];
    let before = vec![(1, Load(0)), (2, Load(0)), (1, Store(0))];
    Model { before, ..model("read at home", plain, neighbours::<BYTES>, scripts) }
}

/// A reader that is sent a copy has no room for its page.
pub fn read_without_room<const BYTES: u64>() -> Model {
    let scripts = vec![vec![], vec![Load(1), Load(0)], vec![Load(0)]];
    let before = vec![(1, Load(0)), (2, Load(0)), (0, Store(0))];
    Model { before, ..model("read without room", one_page, pages::<BYTES, 2>, scripts) }
}

/// Data of two sizes from two nodes at once.
pub fn mixed<const SMALL: u64, const LARGE: u64>() -> Model {
    let scripts = vec![vec![Store(0)], vec![Store(1)], vec![Prefetch(0, false), Load(1), Load(0)]];
    model("two sizes", plain, two_sizes::<SMALL, LARGE>, scripts)
}

/// An access to blocks of two sizes.
pub fn across<const SMALL: u64, const LARGE: u64>() -> Model {
    let scripts = vec![vec![Move(0, 1), Load(0)], vec![Move(1, 0), Load(1)]];
    model("access to two sizes", plain, two_sizes::<SMALL, LARGE>, scripts)
}

/// A node with room for one page uses two.
pub fn replacement<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Load(0), Store(1)], vec![Store(0), Store(1), Load(0)]];
    model("replacement", one_page, pages::<BYTES, 2>, scripts)
}

/// The same, both pages in one access.
pub fn replacement_in_use<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Load(1)], vec![Move(0, 1), Move(1, 0)]];
    model("replacement beside an access to both pages", one_page, pages::<BYTES, 2>, scripts)
}

/// A page goes of which two blocks are here.
pub fn replacement_of_two<const BYTES: u64>() -> Model {
    let before = vec![(0, Store(0)), (0, Store(1)), (1, Load(0)), (1, Store(1))];
    let scripts = vec![vec![Load(1), Store(0)], vec![Load(2), Load(1), Load(0)]];
    Model { before, ..model("replacement of two blocks", one_page, page_and_page::<BYTES>, scripts) }
}

/// Three nodes, two of which have room for one page.
pub fn replacement_of_three<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0)], vec![Store(0), Load(1)], vec![Store(1), Load(0)]];
    model("replacement on two nodes", one_page, pages::<BYTES, 2>, scripts)
}

/// A system call with two operands, both of which its home wants.
pub fn call<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Store(1)], vec![Call(&[(0, true), (1, false)])]];
    model("system call", plain, neighbours::<BYTES>, scripts)
}

/// The same, and the program goes on.
pub fn call_and_load<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Store(1)], vec![Call(&[(0, true), (1, false)]), Load(1)]];
    model("system call and load", plain, neighbours::<BYTES>, scripts)
}

/// The same, with room for one page.
pub fn call_of_two_pages<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0)], vec![Call(&[(0, true), (1, false)])]];
    model("system call with two pages", one_page, pages::<BYTES, 2>, scripts)
}

/// A call with a block that may be loaded from, while a request to store to it is outstanding, and the home stores to it. With the second protocol it waits
/// for this node then.
pub fn call_after_request<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0)], vec![Prefetch(0, true), Call(&[(0, false)])]];
    let protocol = blizzard_protocol::list::ALL[1].number();
    Model {
        protocol,
        before: vec![(1, Load(0))],
        ..model("system call after a request", plain, neighbours::<BYTES>, scripts)
    }
}

/// Two nodes in system calls, and their home.
pub fn two_calls<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0)], vec![Call(&[(0, true), (1, false)])], vec![Call(&[(1, true)])]];
    model("two system calls", plain, neighbours::<BYTES>, scripts)
}

/// A request ahead that the access joins, though it needs more.
pub fn joined<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Load(0)], vec![Prefetch(0, false), Store(0), Load(0)]];
    model("request that an access joins", plain, neighbours::<BYTES>, scripts)
}

/// Requests ahead of another block than the one that is missed; given back.
pub fn beside<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Load(1)], vec![Prefetch(0, true), Load(1), CheckIn(0), CheckOut(0, false)]];
    model("request beside a miss", plain, neighbours::<BYTES>, scripts)
}

/// A home asks for its own block.
pub fn own<const BYTES: u64>() -> Model {
    let before = vec![(1, Store(0))];
    let scripts = vec![vec![Prefetch(0, true), Store(0)], vec![Load(0), Store(0)]];
    Model { before, ..model("request of a home for its own block", plain, neighbours::<BYTES>, scripts) }
}

/// A history of three misses is followed.
pub fn history<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(1), Store(2)], vec![Load(0), Load(1), Store(2)]];
    model("history", looking_ahead, ahead::<BYTES>, scripts)
}

/// Three nodes use a page that has no home yet.
pub fn home_by_use<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0)], vec![Store(0), Load(0)], vec![Load(0)]];
    model("home by first touch", touched, first_touch::<BYTES>, scripts)
}

/// Two nodes do, again and again.
pub fn home_by_use_of_two<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Load(0)], vec![Load(0), Store(0)]];
    model("home by first touch of two", touched, first_touch::<BYTES>, scripts)
}

/// Node 0 uses pages, creates a node, and goes on.
pub fn created<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Create, Load(2), Release, Store(0)], vec![Load(0), Store(1), Store(2)]];
    model("created node", forks, to_be_dealt_out::<BYTES>, scripts)
}

/// One node before the release, one behind it.
pub fn created_late<const BYTES: u64>() -> Model {
    let scripts = vec![vec![Store(0), Create, Release, Create], vec![Store(0)], vec![Load(0), Load(1)]];
    model("created late", forks, to_be_dealt_out::<BYTES>, scripts)
}

/// A bulk transfer while both ends miss.
pub fn bulk<const BYTES: u64>() -> Model {
    let scripts = vec![vec![BulkSend, Store(0)], vec![Load(0), BulkWait]];
    Model { bulk: true, ..model("bulk transfer beside misses", plain, neighbours::<BYTES>, scripts) }
}
