//! The bugs that tests plant: what `blizzard stress` and the exploration of real nodes must find.
//!
//! Purpose: each bug of the list breaks one rule, so that a test can show that the random tester notices the first ten and those of `update` and `reduce`, the tests of
//! transports the last one, and the exploration all but the first ten and the last. Only unit tests, and a runtime that tests build with the feature `planted`, contain any. For the first ten, blocks have 64 bytes. Those from
//! [`Bug::TagOfFirstPart`] on are a condition each where they are (`has_bug`); those of system calls, created nodes, bulk transfers and barriers are in the runtime.

use blizzard_contract::listed;

listed! {
    /// A bug, by its number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Bug {
        /// An invalidation is acknowledged, but the copy stays.
        LostInvalidation = 1,
        /// The home answers a store before the other copies are gone: the answer goes out first, then the invalidations (with Stache later), and
        /// nobody waits for their acknowledgements.
        EarlyReply,
        /// The tag is raised and the program goes on; the data come only at the next entry into the runtime.
        TagBeforeData,
        /// The home takes a block back, but not its data.
        LostWriteBack,
        /// A recalled block is sent home, but its owner goes on writing it.
        RecallKeepsWritable,
        /// The home gives a block away, but goes on using its own copy.
        HomeKeepsTag,
        /// The last word of a block does not arrive.
        ShortCopy,
        /// The home answers a read with its own copy although another node owns the block.
        StaleReply,
        /// A node whose copy was invalidated while it asked to upgrade it goes on with what it has.
        UpgradeWithoutData,
        /// The home's own store sends the invalidations, but does not wait for their acknowledgements.
        HomeStoreDoesNotWait,

        // Of larger blocks.
        /// Only the first minimum block of a block gets the new tag.
        TagOfFirstPart,
        /// Only the last part of the data is copied in.
        LastPartOnly,
        /// Parts that come from different nodes are collected in one place.
        PartsInOnePlace,

        // Of replacement.
        /// A modified block is given up, but its data are not sent home.
        EvictsWithoutData,
        /// A page is replaced that the access in progress uses.
        ReplacesWhatIsUsed,
        /// Of a page that is replaced, only the first block is given back.
        EvictsFirstBlockOnly,

        // Of system calls.
        /// The memory of a call is acquired range by range, and nobody looks whether all of it is there at the end.
        OnePass,
        /// After messages were served in front of a call its memory is not acquired again.
        CallIsNotPreparedAgain,
        /// Pages are replaced while the memory of a call is acquired.
        HoldsNoPages,

        /// A call is made after a wait in front of it, in which messages were handled.
        CallIsMadeAfterWait,

        // Of requests ahead.
        /// An access that finds its block asked for takes it as it comes, though it may be for loads only.
        JoinsAnyRequest,
        /// The answer to a request ahead ends the wait for another block.
        AheadIsGranted,
        /// A home forgets that it has asked for a block of its own.
        OwnAheadIsForgotten,

        // Of first touch.
        /// The keeper of a page's entry makes each node that asks the page's home.
        TwoHomes,
        /// Who asks for a home takes the page itself.
        AskerIsHome,
        /// What reaches a home before it knows that it is one is dropped.
        EarlyMessageIsDropped,

        // Of created nodes.
        /// Node 0 does not hold the pages that it has not touched.
        HoldsNoUntouchedPage,
        /// The created nodes do not hear what node 0 has handed out before.
        LimitsAreLost,
        /// Node 0 goes on as if it were the home of all pages.
        NodeZeroKeepsHomes,

        // Of allocations with protocols of their own.
        /// A protocol that is not the run's own is not asked what it still has to do.
        OtherProtocolIsForgotten,

        // Of update.
        /// A reader that comes between flushes makes the home forget what the others have not got.
        ReaderHidesStores,
        /// What was flushed once is not looked at by later flushes.
        FlushForgetsReaders,

        // Of migratory.
        /// The home gives a block to a reader that may store, but goes on loading from its own copy.
        MovedCopyStays,

        // Of home.
        /// A home goes on using a block that it has lent.
        LentCopyStays,

        // Of broadcast.
        /// The home forgets to whom it has sent copies that nobody had asked for.
        CopyIsForgotten,
        /// A copy is sent to a node whose request waits at the home.
        CopyPassesRequest,
        /// A request that a copy has crossed, and answered, is answered once more.
        AnsweredReadIsServed,

        // Of reduce.
        /// A node that has left a barrier is answered by a home that still waits in it, without what the round has brought.
        AddsComeLate,
        /// What nodes have added is combined in another order than that of their numbers.
        NodesCombinedBackwards,
        /// What a node has added in a round is combined with what it has added before, in the barrier that ends the round before.
        RoundsAreMixed,

        // Of bulk transfers.
        /// The last piece of a transfer is not waited for.
        BulkEndsEarly,
        /// The source stages pieces that the destination has claimed.
        StagesWhatIsClaimed,

        // Of barriers.
        /// A node lets those below it go when they have all come, and does not wait for the others.
        BarrierEndsOnHost,

        // Of the order between pairs of nodes.
        /// A fence of remote writes takes what has been sent for what has arrived.
        FenceDoesNotWait,
    }
}

/// Whether that bug is planted. Never in a runtime that Blizzard embeds.
macro_rules! has_bug {
    ($port:expr, $bug:ident) => {
        cfg!(feature = "planted") && $port.bug() == Some($crate::bugs::Bug::$bug)
    };
}
pub(crate) use has_bug;
