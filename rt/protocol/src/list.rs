//! The protocols that there are.
//!
//! A protocol is a folder with a type that implements [`Protocol`], and one line in `protocols` below. The line gives its name, what it promises, and, by its
//! place, its number ([`ProtocolId`]) and the numbers of its messages. Programs have these numbers: new lines come last.

use crate::bugs::has_bug;
use crate::ids::{Block, Data};
use crate::operation::Operation;
use crate::port::{BlockSite, MESSAGES, Port, ProtocolId};
use crate::protocol::env::Env;
use crate::protocol::messages::{Incoming, MessageRow};
use crate::protocol::pins::Pins;
use crate::protocol::seam::{Idled, Protocol};
use crate::storage::Storage;
use blizzard_contract::MAX_PROTOCOLS;

/// Makes [`Protocols`], which hands each call to the protocol of the block, and what is without a block to the run's.
macro_rules! protocols {
    ($($name:ident: $State:ty, $rows:path, $promise:ident, $what:literal;)*) => {
        /// By number.
        const LIST: &[Line] = &[$(Line { name: stringify!($name), promise: Promise::$promise, what: $what }),*];

        #[allow(non_camel_case_types)]
        enum Place {
            $($name),*
        }

        /// Their numbers, as patterns.
        #[allow(non_upper_case_globals)]
        mod number {
            $(pub const $name: u8 = $crate::list::Place::$name as u8;)*
        }

        /// The states of all protocols on one node. Those that serve nothing cost next to nothing.
        pub struct Protocols<M: Storage> {
            /// The number of the only one that has served anything, to which questions go that are about no block; [`COUNT`] when there are several.
            only: u8,
            /// Those that have memory for their blocks, a bit each; and for how many minimum blocks and nodes.
            ready: u32,
            blocks: u64,
            nodes: u32,
            $($name: $State,)*
        }

        /// The rows of their messages, by number.
        pub const ROWS: &[&[MessageRow]] = &[$($rows),*];

        impl<M: Storage> Protocols<M> {
            /// For so many minimum blocks, most of them served by that one, and so many nodes.
            pub(crate) fn new(first: ProtocolId, blocks: u64, nodes: u32) -> Result<Self, M::Error> {
                let ready = 1 << first.0;
                Ok(Protocols {
                    only: first.0,
                    ready,
                    blocks,
                    nodes,
                    $($name: <$State>::new(if first.0 == number::$name { blocks } else { 0 }, nodes)?,)*
                })
            }

            /// Blocks of that protocol may be served from here on.
            #[inline(always)]
            pub(crate) fn serve(&mut self, port: &impl Port, protocol: ProtocolId) {
                if protocol.0 != self.only {
                    self.serve_other(port, protocol);
                }
            }

            #[cold]
            fn serve_other(&mut self, port: &impl Port, protocol: ProtocolId) {
                if !has_bug!(port, OtherProtocolIsForgotten) {
                    self.only = COUNT as u8;
                }
                if self.ready & 1 << protocol.0 == 0 {
                    self.ready |= 1 << protocol.0;
                    let made = match protocol.0 {
                        $(number::$name => <$State>::new(self.blocks, self.nodes).map(|state| self.$name = state),)*
                        _ => Ok(()),
                    };
                    if made.is_err() {
                        port.fail(format_args!("no memory for blocks with the protocol {}", protocol.name()));
                    }
                }
            }

            #[inline(always)]
            pub(crate) fn miss<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, store: bool) {
                match site.protocol.0 {
                    $(number::$name if number::$name < INLINE => self.$name.miss(env, site, store),)*
                    _ => self.miss_by_call(env, site, store),
                }
            }

            /// By a call, so that the others do not pay for it.
            #[inline(never)]
            fn miss_by_call<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, store: bool) {
                match site.protocol.0 {
                    $(number::$name if number::$name >= INLINE => self.$name.miss(env, site, store),)*
                    _ => {}
                }
            }

            /// `keeps_page`: see [`Incoming`].
            #[inline(always)]
            pub(crate) fn message<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, message: &Incoming<'_>, keeps_page: impl FnOnce() -> bool) {
                // The first that this node hears of a block whose home it is may be a message.
                self.serve(env.port, site.protocol);
                match site.protocol.0 {
                    $(number::$name if number::$name < INLINE => self.$name.message(env, site, message),)*
                    _ => self.message_by_call(env, site, &Incoming { keeps_page: keeps_page(), ..*message }),
                }
            }

            /// As [`Protocols::miss_by_call`].
            #[inline(never)]
            fn message_by_call<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, message: &Incoming<'_>) {
                match site.protocol.0 {
                    $(number::$name if number::$name >= INLINE => self.$name.message(env, site, message),)*
                    _ => {}
                }
            }

            pub(crate) fn evict<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite) {
                match site.protocol.0 {
                    $(number::$name => self.$name.evict(env, site),)*
                    _ => {}
                }
            }

            pub(crate) fn ask<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, store: bool) {
                match site.protocol.0 {
                    $(number::$name => self.$name.ask(env, site, store),)*
                    _ => {}
                }
            }

            #[inline]
            pub(crate) fn is_worth_asking(&self, port: &impl Port, site: &BlockSite) -> bool {
                match site.protocol.0 {
                    $(number::$name => self.$name.is_worth_asking(port, site),)*
                    _ => false,
                }
            }

            pub(crate) fn may_ask(&self, site: &BlockSite) -> bool {
                match site.protocol.0 {
                    $(number::$name => self.$name.may_ask(),)*
                    _ => false,
                }
            }

            #[inline]
            pub(crate) fn joins(&self, site: &BlockSite) -> bool {
                match site.protocol.0 {
                    $(number::$name if number::$name < INLINE => self.$name.joins(site.block),)*
                    _ => $(number::$name >= INLINE && site.protocol.0 == number::$name && self.$name.joins(site.block))||*,
                }
            }

            pub(crate) fn is_outstanding(&self, site: &BlockSite) -> bool {
                match site.protocol.0 {
                    $(number::$name if number::$name < INLINE => self.$name.is_outstanding(site.block),)*
                    _ => $(number::$name >= INLINE && site.protocol.0 == number::$name && self.$name.is_outstanding(site.block))||*,
                }
            }

            #[inline]
            pub(crate) fn is_at_rest(&self) -> bool {
                match self.only {
                    $(number::$name if number::$name < INLINE => self.$name.is_at_rest(),)*
                    _ => true $(&& self.$name.is_at_rest())*,
                }
            }

            pub(crate) fn resume<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
                match self.only {
                    $(number::$name if number::$name < INLINE => self.$name.resume(env),)*
                    _ => {
                        $(self.$name.resume(env);)*
                    }
                }
            }

            #[cold]
            pub(crate) fn keep(&mut self) {
                $(self.$name.keep();)*
            }

            /// Whether one that is not sequentially consistent serves blocks.
            #[inline]
            pub(crate) fn flushes(&self) -> bool {
                self.ready & FLUSHING != 0
            }

            #[inline]
            pub(crate) fn flush<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
                match self.only {
                    $(number::$name if number::$name < INLINE => self.$name.flush(env),)*
                    _ => {
                        $(self.$name.flush(env);)*
                    }
                }
            }

            /// [`Protocol::begin_to_store`]; whether there are such protocols.
            pub(crate) fn begin_to_store<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite) -> bool {
                match site.protocol.0 {
                    $(number::$name => self.$name.begin_to_store(env, site),)*
                    _ => false,
                }
            }

            /// The node is about to enter a barrier of all nodes.
            #[inline]
            pub(crate) fn round_ends<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
                if self.ready & COMBINING != 0 {
                    $(self.$name.round_ends(env);)*
                }
            }

            /// The barrier is over.
            #[inline]
            pub(crate) fn round_begins<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
                if self.ready & COMBINING != 0 {
                    $(self.$name.round_begins(env);)*
                }
            }

            pub(crate) fn forget<P: Port>(&mut self, env: &mut Env<'_, M, P>, protocol: ProtocolId, addr: u64, bytes: u64) {
                match protocol.0 {
                    $(number::$name => self.$name.forget(env, addr, bytes),)*
                    _ => {}
                }
            }

            pub(crate) fn is_leaving(&self, k: u64) -> Option<bool> {
                None$(.or_else(|| self.$name.is_leaving(k)))*
            }

            pub(crate) fn pushed<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, part: Block, data: &Data) {
                match site.protocol.0 {
                    $(number::$name => self.$name.pushed(env, site, part, data),)*
                    _ => {}
                }
            }

            #[inline]
            pub(crate) fn has_put_off_work(&self, pins: &Pins) -> bool {
                match self.only {
                    $(number::$name if number::$name < INLINE => self.$name.has_put_off_work(pins),)*
                    _ => false $(|| self.$name.has_put_off_work(pins))*,
                }
            }

            #[inline]
            pub(crate) fn has_outstanding(&self) -> bool {
                match self.only {
                    $(number::$name if number::$name < INLINE => self.$name.has_outstanding(),)*
                    _ => false $(|| self.$name.has_outstanding())*,
                }
            }

            #[inline]
            pub(crate) fn owes_answer(&self) -> bool {
                match self.only {
                    $(number::$name if number::$name < INLINE => self.$name.owes_answer(),)*
                    _ => false $(|| self.$name.owes_answer())*,
                }
            }

            #[inline]
            pub(crate) fn patience(&self) -> u32 {
                match self.only {
                    $(number::$name if number::$name < INLINE => self.$name.patience(),)*
                    _ => u32::MAX $(.min(self.$name.patience()))*,
                }
            }

            pub(crate) fn idle<P: Port>(&mut self, env: &mut Env<'_, M, P>, idled: Idled) {
                match self.only {
                    $(number::$name if number::$name < INLINE => self.$name.idle(env, idled),)*
                    _ => {
                        $(self.$name.idle(env, idled);)*
                    }
                }
            }

            #[inline]
            pub(crate) fn longest_sleep(&self) -> u64 {
                match self.only {
                    $(number::$name if number::$name < INLINE => self.$name.longest_sleep(),)*
                    _ => u64::MAX $(.min(self.$name.longest_sleep()))*,
                }
            }
        }
    };
}

protocols! {
    stache: crate::protocols::stache::driver::Stache<M>, crate::protocols::stache::vocabulary::MESSAGES, Sequential, "Invalidations through a directory at the home; busy blocks queue requests";
    mcm: crate::protocols::mcm::driver::Mcm<M>, crate::protocols::mcm::vocabulary::MESSAGES, Sequential, "After the M-Machine: busy blocks refuse requests, which are sent again";
    home: crate::protocols::home::driver::Home<M>, crate::protocols::home::driver::MESSAGES, Sequential, "For data that many use by turns, a little each time: no copies, the home lends a block for an access";
    update: crate::protocols::update::driver::Update<M>, crate::protocols::update::steps::MESSAGES, AtFlushes, "For allocations: the home stores, and pushes to its readers at barriers";
    migratory: crate::protocols::migratory::driver::Migratory<M>, crate::protocols::stache::vocabulary::MESSAGES, Sequential, "For data that nodes read and then write by turns: a read miss fetches the right to store";
    broadcast: crate::protocols::broadcast::driver::Broadcast<M>, crate::protocols::broadcast::steps::MESSAGES, Sequential, "For data that one node writes at times and many read: the first reader's miss serves the others";
    reduce: crate::protocols::reduce::driver::Reduce<M>, crate::protocols::reduce::driver::MESSAGES, AtBarriers, "For allocations: nodes add to copies of their own, which homes combine at barriers";
}

/// A line of the list.
struct Line {
    name: &'static str,
    promise: Promise,
    what: &'static str,
}

/// What a load finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// The latest value: the protocol is sequentially consistent.
    Sequential,
    /// What was flushed, or something later.
    AtFlushes,
    /// What was combined at the last barrier of all nodes, or something later. Allocations choose an [`Operation`].
    AtBarriers,
}

/// See [`ProtocolId::chosen`].
pub const OPERATION_SHIFT: u32 = 8;

/// How many there are.
pub const COUNT: usize = LIST.len();

/// Misses and messages of the first so many are dispatched in line, of the others by a call.
const INLINE: u8 = 3;

/// A bit for each that has something to flush.
const FLUSHING: u32 = {
    let (mut set, mut number) = (0, 0);
    while number < COUNT {
        set |= (!ProtocolId(number as u8).is_sequentially_consistent() as u32) << number;
        number += 1;
    }
    set
};

/// A bit for each that combines at barriers.
const COMBINING: u32 = {
    let (mut set, mut number) = (0, 0);
    while number < COUNT {
        set |= (ProtocolId(number as u8).has_operations() as u32) << number;
        number += 1;
    }
    set
};

/// How many of them runs may have.
pub const OF_RUNS: usize = COUNT - FLUSHING.count_ones() as usize;

/// Those.
pub const RUNS: [ProtocolId; OF_RUNS] = {
    let mut all = [ProtocolId(0); OF_RUNS];
    let (mut at, mut number) = (0, 0);
    while number < COUNT {
        if ProtocolId(number as u8).is_sequentially_consistent() {
            all[at] = ProtocolId(number as u8);
            at += 1;
        }
        number += 1;
    }
    all
};

/// All of them.
pub const ALL: [ProtocolId; COUNT] = {
    let mut all = [ProtocolId(0); COUNT];
    let mut number = 0;
    while number < COUNT {
        all[number] = ProtocolId(number as u8);
        number += 1;
    }
    all
};

impl ProtocolId {
    /// The protocol with that number in a region's header, which begins at 1; `None` when there is none.
    pub const fn new(number: u32) -> Option<ProtocolId> {
        if number >= 1 && number <= COUNT as u32 { Some(ProtocolId(number as u8 - 1)) } else { None }
    }

    /// The protocol with that name.
    pub fn named(name: &str) -> Option<ProtocolId> {
        LIST.iter().position(|line| line.name == name).map(|number| ProtocolId(number as u8))
    }

    pub const fn name(self) -> &'static str {
        LIST[self.0 as usize].name
    }

    /// Whether runs may have it: each access then finds the latest value. Otherwise it is for allocations that ask for it.
    pub const fn is_sequentially_consistent(self) -> bool {
        matches!(LIST[self.0 as usize].promise, Promise::Sequential)
    }

    /// Whether it is for one writer at a time, whose stores others see when it has flushed.
    pub const fn is_for_one_writer(self) -> bool {
        matches!(LIST[self.0 as usize].promise, Promise::AtFlushes)
    }

    /// Whether an allocation chooses an [`Operation`] together with it.
    pub const fn has_operations(self) -> bool {
        matches!(LIST[self.0 as usize].promise, Promise::AtBarriers)
    }

    /// What `blizzard.h` and rules call by that number: a protocol by [`ProtocolId::number`], and above these [`OPERATION_SHIFT`] bits the number of an operation, if
    /// it has some. `None`: nothing.
    pub const fn chosen(number: u32) -> Option<(ProtocolId, Option<Operation>)> {
        let operation = number >> OPERATION_SHIFT;
        match (ProtocolId::new(number & ((1 << OPERATION_SHIFT) - 1)), Operation::from_number(operation)) {
            (Some(protocol), found @ Some(_)) if protocol.has_operations() => Some((protocol, found)),
            (Some(protocol), None) if operation == 0 && !protocol.has_operations() => Some((protocol, None)),
            _ => None,
        }
    }

    /// One line for users.
    pub fn what(self) -> &'static str {
        LIST[usize::from(self.0)].what
    }

    /// Its place in the list.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The protocol at that place of the list, which exists.
    #[inline(always)]
    pub const fn at(index: usize) -> ProtocolId {
        assert!(index < COUNT);
        ProtocolId(index as u8)
    }

    /// The protocol whose message has that number.
    #[inline(always)]
    pub const fn has_message(self, number: u16) -> bool {
        number / MESSAGES == self.0 as u16
    }

    /// Its number in a region's header.
    pub const fn number(self) -> u32 {
        self.0 as u32 + 1
    }
}

/// The protocol that has a message of that number, and its row.
pub const fn row_of(number: u16) -> Option<(ProtocolId, &'static MessageRow)> {
    let (protocol, kind) = ((number / MESSAGES) as usize, (number % MESSAGES) as usize);
    if protocol >= COUNT || kind == 0 || kind > ROWS[protocol].len() {
        return None;
    }
    Some((ProtocolId(protocol as u8), &ROWS[protocol][kind - 1]))
}

// Each protocol has its sixteen numbers, of which the first is none. The last numbers of all are those of pushes and parts.
const _: () = {
    assert!(COUNT <= MAX_PROTOCOLS && MAX_PROTOCOLS <= u32::BITS as usize);
    let mut protocol = 0;
    while protocol < COUNT {
        assert!(ROWS[protocol].len() < MESSAGES as usize - 2 * (protocol == MAX_PROTOCOLS - 1) as usize);
        protocol += 1;
    }
};
