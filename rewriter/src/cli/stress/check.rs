//! The checker: is there one order of all accesses that explains what every node has read?
//!
//! Purpose: decides whether a log is sequentially consistent. Input: the epochs of a run in order. Output: nothing, or a [`OrderViolation`] that
//! tells what contradicts what.
//!
//! An execution is sequentially consistent exactly if the union of these relations has no cycle:
//! * *program order* of each node;
//! * *read-from*: a write comes before whoever has read its value;
//! * *coherence*: the writes to one word, in their order;
//! * *from-read*: whoever has read a value comes before the word's next write.
//!
//! All four are known here. A value names its write. A word has either one writer, whose program order is the word's order, or is written by
//! exchanges alone, and then each exchange has returned the value before. So nothing is searched for: instead of building the graph, the
//! checker *executes* the log. A word has a current version; a load may go when its version is current, a write when the version before
//! is current and all loads of that have gone. What may go goes, in any order, since what went never stands in the way of another. If
//! in the end something is left, every node's first access left waits for one that is left, and following these waits
//! leads around a cycle. Time is linear in the number of accesses; memory is some 50 bytes for each access of
//! one epoch.
//!
//! An epoch ends at a barrier, which is an order of everything before and everything behind it: so each is checked by itself, and the
//! last value of each word is the first of the next epoch.
//!
//! Words of allocations that promise something else are outside of that order. What `update` promises is checked by [`flushes`] while the log is executed, what
//! `reduce` promises by [`reductions`].
//!
//! Source: Gibbons and Korach 1997 (with a read mapping and the order of the writes given, the question is no longer hard).

mod flushes;

mod reductions;

use crate::cli::stress::check::flushes::Flushes;
use crate::cli::stress::check::reductions::Reductions;
use crate::cli::stress::log::{Epoch, LoggedAccess, LoggedId, LoggedKind};
use crate::cli::stress::promise::WordPromise;
use crate::cli::stress::violation::{AccessAt, OrderViolation, WordVersion, describe, value_text};
use std::fmt::Write as _;

/// A word at the beginning of an epoch.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    /// What the epoch found there.
    value: u64,
    /// The node that writes it with plain stores; then nobody else may.
    writer: Option<u32>,
}

/// Checks a run, one epoch after the other.
#[derive(Debug, Clone)]
pub struct Checker {
    words: Vec<Word>,
    promises: Vec<WordPromise>,
    reductions: Reductions,
    accesses: u64,
}

const UNKNOWN: WordVersion = WordVersion::MAX;

/// What is known of a word while an epoch is being executed.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    version: WordVersion,
    /// Loads of this version that have not gone yet.
    readers: u32,
    /// Nodes whose next access waits for this word.
    waiting: u64,
}

impl Checker {
    /// For a run with these words, as they are allocated, and so many nodes.
    pub fn new(promises: Vec<WordPromise>, nodes: u32) -> Self {
        let reductions = Reductions::new(&promises, nodes);
        Checker { words: vec![Word::default(); promises.len()], promises, reductions, accesses: 0 }
    }

    /// Accesses that were checked.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Checks the next epoch.
    ///
    /// # Errors
    /// It contradicts itself or what came before.
    pub fn check(&mut self, epoch: &Epoch) -> Result<(), OrderViolation> {
        self.reductions.check(epoch)?;
        let versions = self.order_writes(epoch)?;
        let mut run = Run {
            epoch,
            words: &self.words,
            promises: &self.promises,
            flushes: Flushes::new(epoch, &self.promises, &versions),
            readers: epoch.nodes.iter().map(|node| vec![0; node.len()]).collect(),
            progress: vec![Progress::default(); self.words.len()],
            versions,
        };
        run.find_sources()?;
        let last = run.execute()?;
        for (word, value) in self.words.iter_mut().zip(last) {
            if let Some(value) = value {
                word.value = value;
            }
        }
        self.accesses += epoch.nodes.iter().map(|node| node.len() as u64).sum::<u64>();
        Ok(())
    }

    /// The version of each write of the epoch.
    fn order_writes(&mut self, epoch: &Epoch) -> Result<Vec<Vec<WordVersion>>, OrderViolation> {
        let mut versions: Vec<Vec<WordVersion>> = epoch.nodes.iter().map(|node| vec![UNKNOWN; node.len()]).collect();
        // By word: the node of its plain stores, and how many writes it has had.
        let mut counts = vec![0 as WordVersion; self.words.len()];
        // By word, and by write: the exchange that has returned its value.
        let mut first: Vec<Option<AccessAt>> = vec![None; self.words.len()];
        let mut next: Vec<Vec<Option<AccessAt>>> = epoch.nodes.iter().map(|node| vec![None; node.len()]).collect();
        for (node, accesses) in epoch.nodes.iter().enumerate() {
            for (index, access) in accesses.iter().enumerate() {
                let word = access.location.0 as usize;
                match access.kind {
                    LoggedKind::Load | LoggedKind::Flush | LoggedKind::Open | LoggedKind::Add => {}
                    LoggedKind::Store => {
                        let writer = *self.words[word].writer.get_or_insert(node as u32);
                        assert!(writer == node as u32, "the workload lets one node store to {}", access.location);
                        counts[word] += 1;
                        versions[node][index] = counts[word];
                    }
                    LoggedKind::Swap => {
                        let slot = if access.read == self.words[word].value {
                            &mut first[word]
                        } else {
                            let (n, i) = self.source(epoch, (node, index), access)?;
                            &mut next[n][i]
                        };
                        if let Some((n, i)) = *slot {
                            let both = [(n, i), (node, index)].map(|at| describe(epoch, at));
                            return Err(OrderViolation {
                                epoch: epoch.number,
                                what: format!("two exchanges have returned the same value of {}", access.location),
                                details: both.to_vec(),
                            });
                        }
                        *slot = Some((node, index));
                    }
                }
            }
        }
        for chain in first.into_iter().flatten() {
            let (mut at, mut version) = (Some(chain), 0);
            while let Some((node, index)) = at {
                version += 1;
                versions[node][index] = version;
                at = next[node][index];
            }
        }
        // Exchanges that the chain does not reach have returned values from each other, in a circle.
        for (node, accesses) in epoch.nodes.iter().enumerate() {
            if let Some(index) =
                (0..accesses.len()).find(|&i| accesses[i].kind == LoggedKind::Swap && versions[node][i] == UNKNOWN)
            {
                let mut details = Vec::new();
                let mut at = (node, index);
                loop {
                    details.push(describe(epoch, at));
                    at = self.source(epoch, at, &epoch.nodes[at.0][at.1])?;
                    if at == (node, index) || details.len() > 64 {
                        break;
                    }
                }
                return Err(OrderViolation {
                    epoch: epoch.number,
                    what: "exchanges have returned each other's values, in a circle".into(),
                    details,
                });
            }
        }
        Ok(versions)
    }

    fn source(&self, epoch: &Epoch, at: AccessAt, access: &LoggedAccess) -> Result<AccessAt, OrderViolation> {
        source(epoch, &self.words, at, access)
    }
}

/// The write of this epoch whose value `access` has returned.
fn source(epoch: &Epoch, words: &[Word], at: AccessAt, access: &LoggedAccess) -> Result<AccessAt, OrderViolation> {
    let wrong = |what: String| OrderViolation {
        epoch: epoch.number,
        what,
        details: vec![
            describe(epoch, at),
            format!("the epoch found {} there", value_text(words[access.location.0 as usize].value)),
        ],
    };
    let id = match LoggedId::of_value(access.read) {
        Some(id) if id.epoch <= epoch.number => id,
        Some(_) => return Err(wrong(format!("{} has returned a value that nobody has written", access.location))),
        None => return Err(wrong(format!("{} has returned the initial 0 after it was overwritten", access.location))),
    };
    if id.epoch < epoch.number {
        return Err(wrong(format!("{} has returned a value that was overwritten before a barrier", access.location)));
    }
    let found = (id.node as usize, id.index as usize);
    match epoch.nodes.get(found.0).and_then(|node| node.get(found.1)) {
        Some(write) if write.kind.is_write() && write.location == access.location => Ok(found),
        Some(write) if write.kind.is_write() => {
            let mut violation = wrong(format!("{} has returned a value of {}", access.location, write.location));
            violation.details.push(describe(epoch, found));
            Err(violation)
        }
        _ => Err(wrong(format!("{} has returned a value that nobody has written", access.location))),
    }
}

/// The execution of one epoch.
struct Run<'a> {
    epoch: &'a Epoch,
    words: &'a [Word],
    promises: &'a [WordPromise],
    flushes: Flushes,
    /// Of each access: the version it writes, or has read.
    versions: Vec<Vec<WordVersion>>,
    /// Of each write: how many loads have read its value.
    readers: Vec<Vec<u32>>,
    progress: Vec<Progress>,
}

impl Run<'_> {
    /// Finds the version of each load, and counts the loads of each version.
    fn find_sources(&mut self) -> Result<(), OrderViolation> {
        for node in 0..self.epoch.nodes.len() {
            for index in 0..self.epoch.nodes[node].len() {
                let access = &self.epoch.nodes[node][index];
                let word = access.location.0 as usize;
                if access.kind != LoggedKind::Load || matches!(self.promises[word], WordPromise::AtBarriers(_)) {
                    continue;
                }
                if access.read == self.words[word].value {
                    self.versions[node][index] = 0;
                    self.progress[word].readers += 1;
                } else {
                    let (n, i) = source(self.epoch, self.words, (node, index), access)?;
                    self.versions[node][index] = self.versions[n][i];
                    self.readers[n][i] += 1;
                }
            }
        }
        Ok(())
    }

    /// Executes all accesses; the last value of each word that was written.
    fn execute(&mut self) -> Result<Vec<Option<u64>>, OrderViolation> {
        let nodes = self.epoch.nodes.len();
        let mut last = vec![None; self.words.len()];
        let mut next = vec![0usize; nodes];
        let mut runnable: Vec<usize> = (0..nodes).rev().collect();
        while let Some(node) = runnable.pop() {
            while let Some(access) = self.epoch.nodes[node].get(next[node]) {
                let at = (node, next[node]);
                let word = access.location.0 as usize;
                let version = self.versions[at.0][at.1];
                let value = LoggedId { epoch: self.epoch.number, node: node as u32, index: at.1 as u32 }.value();
                if access.kind == LoggedKind::Flush {
                    self.flushes.flush(at);
                }
                if !access.kind.is_ordered() || self.promises[word] != WordPromise::Sequential {
                    next[node] += 1;
                    if self.promises[word] == WordPromise::AtFlushes && access.kind.is_ordered() {
                        self.flushes.access(self.epoch, at, version)?;
                        if access.kind.is_write() && version > self.progress[word].version {
                            self.progress[word].version = version;
                            last[word] = Some(value);
                        }
                    }
                    continue;
                }
                if !self.may_go(at, access) {
                    self.progress[word].waiting |= 1 << node;
                    break;
                }
                self.flushes.sequential(at, access);
                let progress = &mut self.progress[word];
                if access.kind == LoggedKind::Load {
                    progress.readers -= 1;
                } else {
                    progress.version = version;
                    progress.readers = self.readers[at.0][at.1];
                    last[word] = Some(value);
                }
                let waiting = std::mem::take(&mut progress.waiting);
                runnable.extend((0..nodes).filter(|n| waiting >> n & 1 != 0));
                next[node] += 1;
            }
        }
        match (0..nodes).find(|&n| next[n] < self.epoch.nodes[n].len()) {
            None => Ok(last),
            Some(node) => Err(self.cycle(&next, node)),
        }
    }

    fn may_go(&self, at: AccessAt, access: &LoggedAccess) -> bool {
        let progress = &self.progress[access.location.0 as usize];
        let version = self.versions[at.0][at.1];
        match access.kind {
            LoggedKind::Load => progress.version == version,
            _ => progress.version + 1 == version && progress.readers == 0,
        }
    }

    /// The cycle that a node's first access left is in, or leads to.
    fn cycle(&self, next: &[usize], start: usize) -> OrderViolation {
        // By node: the access that its first one left waits for, and why.
        let mut seen: Vec<usize> = Vec::new();
        let mut steps: Vec<(AccessAt, AccessAt, &'static str)> = Vec::new();
        let mut node = start;
        while !seen.contains(&node) {
            seen.push(node);
            let blocked = (node, next[node]);
            let (before, why) = self.waits_for(next, blocked);
            steps.push((before, blocked, why));
            node = before.0;
        }
        let first = seen.iter().position(|&n| n == node).unwrap_or(0);
        // The walk was from later to earlier: print from earlier to later.
        let mut details = Vec::new();
        for &(before, blocked, why) in steps[first..].iter().rev() {
            details.push(describe(self.epoch, before));
            let mut line = format!("  {why}: ");
            let _ = write!(line, "{}", describe(self.epoch, blocked));
            details.push(line);
            if let Some(&(later, _, _)) = steps[first..].iter().find(|(later, _, _)| later.0 == blocked.0)
                && later.1 != blocked.1
            {
                details.push("  which comes, in its node's program order, before:".into());
            }
        }
        let nodes = steps.len() - first;
        OrderViolation {
            epoch: self.epoch.number,
            what: match nodes {
                1 => "a node's accesses contradict its own program order".into(),
                _ => format!("accesses of {nodes} nodes contradict each other: no order explains what they have read"),
            },
            details,
        }
    }

    /// An access that has not gone and must go before `blocked`, and why.
    fn waits_for(&self, next: &[usize], blocked: AccessAt) -> (AccessAt, &'static str) {
        let access = &self.epoch.nodes[blocked.0][blocked.1];
        let version = self.versions[blocked.0][blocked.1];
        let left = |node: usize| {
            (next[node]..self.epoch.nodes[node].len()).map(move |index| (node, index)).filter(move |&(n, i)| {
                let other = &self.epoch.nodes[n][i];
                other.location == access.location && (n, i) != blocked
            })
        };
        let find = |wanted: &dyn Fn(AccessAt) -> bool| {
            (0..self.epoch.nodes.len()).flat_map(left).find(|&at| wanted(at)).expect("what is waited for has not gone")
        };
        let kind = |at: AccessAt| self.epoch.nodes[at.0][at.1].kind;
        let version_of = |at: AccessAt| self.versions[at.0][at.1];
        let current = self.progress[access.location.0 as usize].version;
        if access.kind == LoggedKind::Load {
            (find(&|at| kind(at) != LoggedKind::Load && version_of(at) == version), "whose value is read by")
        } else if current + 1 != version {
            (find(&|at| kind(at) != LoggedKind::Load && version_of(at) + 1 == version), "which is overwritten by")
        } else {
            let read = |at: AccessAt| kind(at) == LoggedKind::Load && version_of(at) + 1 == version;
            (find(&read), "which does not see")
        }
    }
}

#[cfg(test)]
mod tests;
