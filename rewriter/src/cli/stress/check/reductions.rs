//! The check of `reduce`: is each value what the promise makes of what was added?
//!
//! Input: the epochs of a run in order. Output: nothing, or the first load that no home explains.
//!
//! The logs do not say which node is the home of a word. So a word has one *account* for each node that may be it: the value that it would have at the beginning of the
//! epoch. A load strikes out the accounts that do not explain it; when none is left, the promise is broken. With `v` the account's value, a load gives
//! * at the home: `v` and what the home has added so far;
//! * at a node that has begun to add to the block: what it has added itself so far;
//! * at any other: `v`, and some of what the home has added, the first of it.
//!
//! At the barrier the home's value is combined with what each other node has added, in order of their numbers.

use crate::cli::stress::log::{Epoch, Location, LoggedKind};
use crate::cli::stress::promise::{Reduced, WordPromise};
use crate::cli::stress::violation::{AccessAt, OrderViolation};
use std::collections::HashSet;

/// A node that may be the home of a word, and the word's value at the beginning of the epoch if it is.
#[derive(Debug, Clone, Copy)]
struct Account {
    home: usize,
    value: u64,
}

/// A word that nodes add to.
#[derive(Debug, Clone)]
struct Sum {
    as_promised: Reduced,
    accounts: Vec<Account>,
    /// By node: what it has added in this epoch.
    added: Vec<Vec<u64>>,
}

/// All words that nodes add to.
#[derive(Debug, Clone)]
pub struct Reductions {
    /// By location.
    sums: Vec<Option<Sum>>,
}

impl Reductions {
    /// For memory that was just allocated.
    pub fn new(promises: &[WordPromise], nodes: u32) -> Reductions {
        let sum = |promise: &WordPromise| match *promise {
            WordPromise::AtBarriers(as_promised) => Some(Sum {
                accounts: (0..nodes as usize)
                    .map(|home| Account { home, value: as_promised.operation.initial() })
                    .collect(),
                added: vec![Vec::new(); nodes as usize],
                as_promised,
            }),
            _ => None,
        };
        Reductions { sums: promises.iter().map(sum).collect() }
    }

    /// Checks the next epoch.
    ///
    /// # Errors
    /// A load that nothing explains.
    pub fn check(&mut self, epoch: &Epoch) -> Result<(), OrderViolation> {
        for (node, accesses) in epoch.nodes.iter().enumerate() {
            for access in accesses.iter().filter(|access| access.kind == LoggedKind::Add) {
                self.sum(access.location).added[node].push(access.read);
            }
        }
        for node in 0..epoch.nodes.len() {
            self.check_node(epoch, node)?;
        }
        self.sums.iter_mut().flatten().for_each(Sum::end_epoch);
        Ok(())
    }

    fn sum(&mut self, location: Location) -> &mut Sum {
        self.sums[location.0 as usize].as_mut().expect("the workload adds only to words that have an operation")
    }

    fn check_node(&mut self, epoch: &Epoch, node: usize) -> Result<(), OrderViolation> {
        let mut open = HashSet::new();
        // By location: how often the node has added so far.
        let mut so_far = vec![0; self.sums.len()];
        for (index, access) in epoch.nodes[node].iter().enumerate() {
            let word = access.location.0 as usize;
            let Some(sum) = self.sums[word].as_mut() else { continue };
            match access.kind {
                LoggedKind::Open => _ = open.insert(sum.as_promised.block),
                LoggedKind::Add => so_far[word] += 1,
                LoggedKind::Load => {
                    let is_open = open.contains(&sum.as_promised.block);
                    let before = sum.accounts.clone();
                    let kept = |account: &Account| sum.explains(*account, node, is_open, so_far[word], access.read);
                    let left: Vec<Account> = before.iter().copied().filter(kept).collect();
                    if left.is_empty() {
                        return Err(sum.violation(epoch, (node, index), is_open, so_far[word]));
                    }
                    sum.accounts = left;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Sum {
    /// `value` and these, from the left.
    fn with(&self, value: u64, added: &[u64]) -> u64 {
        added.iter().fold(value, |value, &more| self.as_promised.operation.apply(value, more))
    }

    /// What a node has added, as it travels.
    fn alone(&self, added: &[u64]) -> u64 {
        self.with(self.as_promised.operation.neutral(), added)
    }

    /// Whether `node`, which has added so often, may read `read` if the account is right.
    fn explains(&self, account: Account, node: usize, is_open: bool, so_far: usize, read: u64) -> bool {
        let own = &self.added[node][..so_far];
        if node == account.home {
            return read == self.with(account.value, own);
        }
        if is_open {
            // A page that was replaced has taken what was added before: the last of it are left, and the order does not count.
            let last = || self.any(self.as_promised.operation.neutral(), own.iter().rev(), read);
            return read == self.alone(own) || self.as_promised.in_pieces && last();
        }
        self.any(account.value, self.added[account.home].iter(), read)
    }

    /// Whether `value` becomes `wanted` by some of these, the first of them.
    fn any<'a>(&self, mut value: u64, added: impl Iterator<Item = &'a u64>, wanted: u64) -> bool {
        for &more in added {
            if value == wanted {
                return true;
            }
            value = self.as_promised.operation.apply(value, more);
        }
        value == wanted
    }

    /// The barrier: each account has what the promise says.
    fn end_epoch(&mut self) {
        let next = |account: &Account| {
            let others = (0..self.added.len()).filter(|&node| node != account.home && !self.added[node].is_empty());
            let value = self.with(account.value, &self.added[account.home]);
            let apply = |value, node: usize| self.as_promised.operation.apply(value, self.alone(&self.added[node]));
            Account { value: others.fold(value, apply), ..*account }
        };
        self.accounts = self.accounts.iter().map(next).collect();
        self.added.iter_mut().for_each(Vec::clear);
    }

    fn violation(&self, epoch: &Epoch, at: AccessAt, is_open: bool, so_far: usize) -> OrderViolation {
        let location = epoch.nodes[at.0][at.1].location;
        let read = epoch.nodes[at.0][at.1].read;
        let begun = if is_open { "has begun to add to its block" } else { "has not begun to add to its block" };
        let (node, index) = at;
        let mut details = vec![
            format!("node {node}, access {index} loads {location}, gets {read:#x}"),
            format!("  the node {begun}, and has added {so_far} times"),
        ];
        let account = |a: &Account| format!("  if node {} is its home, the epoch found {:#x}", a.home, a.value);
        details.extend(self.accounts.iter().map(account));
        OrderViolation {
            epoch: epoch.number,
            what: format!("{location} has the protocol reduce, and a load gets what was not added up so"),
            details,
        }
    }
}
