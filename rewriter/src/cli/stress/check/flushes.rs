//! The check of `update`: does each load find what was flushed before, and never something older than before?
//!
//! Input: the accesses of an epoch, in an order that keeps each node's own and gives each sequential word its writer before its readers. Output: nothing, or the first
//! load, store or exchange of an `update` word that breaks the promise.
//!
//! A node *has been told* of a flush when it has read a sequential word that the flushing node wrote behind it, or one that somebody wrote who had been told. Then:
//! * it finds what the flushing node had written before the flush, or something later;
//! * on one node the versions of a word go forward only, its own writes among them;
//! * nobody reads what they write themselves only later.
//!
//! An epoch begins at a barrier, which flushes: all find at least the epoch's first value.

use crate::cli::stress::log::{Epoch, LoggedAccess, LoggedKind};
use crate::cli::stress::promise::WordPromise;
use crate::cli::stress::violation::{AccessAt, OrderViolation, WordVersion, describe};
use std::collections::HashMap;

/// By node: so many of its accesses came before a flush.
type Flushed = Vec<usize>;

/// What the nodes of an epoch must find in `update` words. Does nothing where there are none.
#[derive(Debug, Default)]
pub struct Flushes {
    /// By node: what it has been told. Empty without such words.
    told: Vec<Flushed>,
    /// By sequential word: what its last writer had been told.
    carried: HashMap<u32, Flushed>,
    /// By word and node: its writes, in program order.
    writes: HashMap<(u32, usize), Vec<(usize, WordVersion)>>,
    /// By word and node: the version it has had last, and by which access.
    had: HashMap<(u32, usize), (WordVersion, AccessAt)>,
}

impl Flushes {
    /// Before the epoch, whose writes have these versions.
    pub fn new(epoch: &Epoch, promises: &[WordPromise], versions: &[Vec<WordVersion>]) -> Flushes {
        let mut flushes = Flushes::default();
        if !promises.contains(&WordPromise::AtFlushes) {
            return flushes;
        }
        let nodes = epoch.nodes.len();
        flushes.told = vec![vec![0; nodes]; nodes];
        for (node, accesses) in epoch.nodes.iter().enumerate() {
            for (index, access) in accesses.iter().enumerate() {
                let word = access.location.0;
                if access.kind.is_write() && promises[word as usize] == WordPromise::AtFlushes {
                    flushes.writes.entry((word, node)).or_default().push((index, versions[node][index]));
                }
            }
        }
        flushes
    }

    /// A node flushes.
    pub fn flush(&mut self, (node, index): AccessAt) {
        if let Some(told) = self.told.get_mut(node) {
            told[node] = index;
        }
    }

    /// A node uses a sequential word.
    pub fn sequential(&mut self, (node, _): AccessAt, access: &LoggedAccess) {
        let Some(told) = self.told.get_mut(node) else { return };
        if access.kind != LoggedKind::Store
            && let Some(carried) = self.carried.get(&access.location.0)
        {
            for (mine, theirs) in told.iter_mut().zip(carried) {
                *mine = (*mine).max(*theirs);
            }
        }
        if access.kind.is_write() {
            self.carried.insert(access.location.0, told.clone());
        }
    }

    /// A node uses an `update` word: loads this version or, with an exchange or a store, makes it.
    ///
    /// # Errors
    /// It breaks the promise.
    pub fn access(&mut self, epoch: &Epoch, at: AccessAt, version: WordVersion) -> Result<(), OrderViolation> {
        let (node, index) = at;
        let access = &epoch.nodes[node][index];
        let word = access.location.0;
        // What a write replaces is what it must have found.
        let found = version - WordVersion::from(access.kind.is_write());
        let wrong = |what: &str, other: AccessAt| {
            Err(OrderViolation {
                epoch: epoch.number,
                what: format!("{} has the protocol update, and {what}", access.location),
                details: vec![describe(epoch, other), format!("  which is missed by: {}", describe(epoch, at))],
            })
        };
        let own = self.writes.get(&(word, node)).and_then(|own| own.iter().find(|own| own.1 == found));
        if let Some(&(later, _)) = own.filter(|own| own.0 > index) {
            return wrong("a node reads what it writes only later", (node, later));
        }
        if let Some(&(had, before)) = self.had.get(&(word, node))
            && found < had
        {
            return wrong("a node goes back to an older value", before);
        }
        for (writer, &flushed) in self.told[node].iter().enumerate() {
            let writes = self.writes.get(&(word, writer)).map_or(&[][..], Vec::as_slice);
            if let Some(&(index, flushed)) = writes[..writes.partition_point(|write| write.0 < flushed)].last()
                && found < flushed
            {
                return wrong("a node that has been told of a flush finds what was before it", (writer, index));
            }
        }
        self.had.insert((word, node), (version, at));
        Ok(())
    }
}
