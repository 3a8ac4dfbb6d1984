//! The list of transports.
//!
//! Purpose: [`Wires`] is the [`Wire`] of any transport, [`Stations`] the [`Station`]. Input: the region of a run. Output: ends. A transport is a folder whose `ends` has
//! `Ends`, `Own` and `is_wanted`, and a line in the list below. With one transport, as in the runtime that Blizzard embeds, nothing is left of the choice.

use crate::memory::region::Region;
#[cfg(test)]
use crate::transport::delaying::ends as delaying;
use crate::transport::interface::{Head, PeerState, Station, Urgency, Wire};
use crate::transport::message::{Message, Traffic};
use crate::transport::rings::ends as rings;
use blizzard_protocol::ids::{Data, NodeId};

macro_rules! transports {
    ($($(#[$only:meta])? $name:ident: $folder:ident;)*) => {
        /// One node's end of what is between it and one peer.
        pub enum Wires {
            $($(#[$only])? $name($folder::Ends),)*
        }

        /// What a node has once.
        pub enum Stations {
            $($(#[$only])? $name($folder::Own),)*
        }

        impl Wires {
            /// The end of node `me`, by the first transport of the list that wants it.
            ///
            /// # Safety
            /// Both are nodes of the region, nobody else has this end, and the region stays mapped.
            pub unsafe fn open(region: &Region, me: NodeId, other: NodeId) -> Wires {
                $($(#[$only])?
                if $folder::is_wanted() {
                    // SAFETY: passed on from the caller.
                    return Wires::$name(unsafe { $folder::Ends::open(region, me, other) });
                })*
                unreachable!("the last transport of the list wants every wire")
            }
        }

        impl Stations {
            /// That of node `me`.
            pub fn open(region: &Region, me: NodeId) -> Stations {
                $($(#[$only])?
                if $folder::is_wanted() {
                    return Stations::$name($folder::Own::open(region, me));
                })*
                unreachable!("the last transport of the list wants every node")
            }
        }

        transports! { @delegate Wire for Wires [$($(#[$only])? $name)*]
            mut send(traffic: Traffic, incarnation: u32, head: Head, data: Option<&Data>) -> bool;
            ref is_ready() -> bool;
            mut receive_into(message: &mut Message) -> bool;
            ref expect_to_send(taken: &Message) -> ();
            ref taken() -> u32;
            ref is_all_taken(taken: u32) -> bool;
            ref is_sound() -> bool;
            ref announce(kind: Urgency) -> bool;
            ref tell(kind: Urgency) -> ();
            ref state() -> PeerState;
            ref call() -> ();
            ref interrupt() -> ();
        }

        transports! { @delegate Station for Stations [$($(#[$only])? $name)*]
            ref fence() -> ();
            ref begin_wait() -> ();
            ref end_wait(any_ready: impl FnOnce() -> bool) -> ();
            ref silence(any_ready: impl FnOnce() -> bool) -> ();
            ref enter_kernel(any_ready: impl FnOnce() -> bool) -> bool;
            ref sleep(any_ready: impl FnOnce() -> bool, limit_ns: u64) -> ();
            ref is_rung() -> bool;
            ref remind() -> ();
            ref hush() -> ();
            ref answer() -> ();
            ref beat() -> ();
            ref show_processor(processor: u32) -> ();
        }
    };
    (@delegate $trait:ident for $all:ident $names:tt $($how:ident $function:ident($($arg:ident: $of:ty),*) -> $result:ty;)*) => {
        impl $trait for $all {
            $(transports! { @one $names $how $function($($arg: $of),*) -> $result })*
        }
    };
    (@one $names:tt mut $function:ident($($arg:ident: $of:ty),*) -> $result:ty) => {
        #[inline(always)]
        fn $function(&mut self, $($arg: $of),*) -> $result {
            transports! { @call $names self $function($($arg),*) }
        }
    };
    (@one $names:tt ref $function:ident($($arg:ident: $of:ty),*) -> $result:ty) => {
        #[inline(always)]
        fn $function(&self, $($arg: $of),*) -> $result {
            transports! { @call $names self $function($($arg),*) }
        }
    };
    (@call [$($(#[$only:meta])? $name:ident)*] $self:ident $function:ident $args:tt) => {
        match $self {
            $($(#[$only])? Self::$name(end) => end.$function $args,)*
        }
    };
}

transports! {
    #[cfg(test)]
    Delaying: delaying;
    Rings: rings;
}
