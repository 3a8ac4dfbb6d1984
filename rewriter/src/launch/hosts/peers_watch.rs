//! Whether a run is stuck whose nodes `mpirun` has started.
//!
//! Purpose: node 0's rank asks the first rank of each host in rounds ([`StuckRounds`]); these look at all nodes of their host. Input: what carriers of other hosts bring.
//! Output: what is to be brought there; [`StuckNode`]s.
//!
//! **Invariant**: whatever other hosts say, at most one word of each is kept, and none that is longer than any that is said.

use crate::launch::crashes::crash::OwnNodes;
use crate::launch::hosts::frames::{self, HostSeen};
use crate::launch::hosts::host_list::Host;
use crate::launch::hosts::rounds::{self, StuckRounds};
use crate::launch::region::RegionFile;
use crate::launch::spawn::SpawnedNode;
use crate::launch::watching::stuck::{Locator, Sight, StuckNode};
use blizzard_carrier::carrier::Carrier;
use blizzard_contract::node_phase;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// What the first ranks of hosts say to each other.
#[derive(Debug, Serialize, Deserialize)]
enum PeerWord {
    /// What do the nodes do? `places`: where they wait is wanted, too.
    Look {
        places: bool,
    },
    Seen(HostSeen),
    /// The run is stuck: node 0's rank tells that, and ends.
    Stuck,
}

/// What a rank finds, or is told.
pub(super) enum PeersNews {
    /// The run is stuck; what its nodes wait for.
    Stuck(Vec<StuckNode>),
    /// It is stuck, and another rank says so.
    IsTold,
}

/// The nodes of this host, whoever has started them.
pub(super) struct HostPeers<'a> {
    pub(super) region: &'a RegionFile,
    pub(super) carrier: Option<&'a Carrier>,
    /// Names the places where nodes wait.
    pub(super) locate: Locator<'a>,
}

/// What the first rank of a host keeps.
pub(super) struct PeersWatch {
    hosts: Vec<Host>,
    me: usize,
    /// Of node 0.
    rounds: Option<StuckRounds>,
    /// By host: what has come and is no whole word yet.
    heard: Vec<Vec<u8>>,
}

impl PeersWatch {
    /// Of the rank that runs this node. None: it is not the first of its host, or nobody wants to know.
    pub(super) fn begin(hosts: &[Host], node: u16, limit: Duration) -> Option<PeersWatch> {
        let me = hosts.iter().position(|host| host.nodes.start == node)?;
        let rounds = (node == 0).then(|| StuckRounds::new(hosts, limit));
        let heard = vec![Vec::new(); hosts.len()];
        (!limit.is_zero()).then(|| PeersWatch { hosts: hosts.to_vec(), me, rounds, heard })
    }

    /// When it is time to look.
    pub(super) fn next(&self) -> Option<Instant> {
        self.rounds.as_ref()?.next()
    }

    /// Begins a round if it is time. Only a run on one host has an answer at once.
    pub(super) fn look(&mut self, here: &HostPeers<'_>) -> Option<PeersNews> {
        let places = self.rounds.as_mut()?.ask()?;
        self.say_to_others(here, &PeerWord::Look { places });
        let seen = self.see(here, places);
        self.answered(self.me, seen, here)
    }

    fn say_to_others(&self, here: &HostPeers<'_>, word: &PeerWord) {
        (0..self.hosts.len()).filter(|host| *host != self.me).for_each(|host| here.say(host, word));
    }

    /// Another host has said something.
    pub(super) fn hear(&mut self, host: usize, bytes: &[u8], here: &HostPeers<'_>) -> Option<PeersNews> {
        self.heard.get_mut(host)?.extend_from_slice(bytes);
        loop {
            let mut rest = &self.heard[host][..];
            match frames::read::<PeerWord>(&mut rest) {
                Ok((word, _)) => {
                    let left = rest.len();
                    let said = self.heard[host].len() - left;
                    self.heard[host].drain(..said);
                    match word {
                        PeerWord::Look { places } => here.say(host, &PeerWord::Seen(self.see(here, places))),
                        PeerWord::Seen(seen) => {
                            let news = self.answered(host, seen, here);
                            if news.is_some() {
                                return news;
                            }
                        }
                        PeerWord::Stuck => return Some(PeersNews::IsTold),
                    }
                }
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return None,
                // No rank says that.
                Err(_) => {
                    self.heard[host].clear();
                    return None;
                }
            }
        }
    }

    fn answered(&mut self, host: usize, seen: HostSeen, here: &HostPeers<'_>) -> Option<PeersNews> {
        let mut stuck = self.rounds.as_mut()?.answered(host, seen)?;
        if self.hosts.len() == 1 {
            stuck.iter_mut().for_each(|node| node.host = None);
        } else {
            // Else they would say that they have lost this host, should the starter be slow to end them.
            self.say_to_others(here, &PeerWord::Stuck);
            here.has_said();
        }
        Some(PeersNews::Stuck(stuck))
    }

    fn see(&self, here: &HostPeers<'_>, places: bool) -> HostSeen {
        let nodes = &self.hosts[self.me].nodes;
        let first = u32::from(nodes.start);
        let Some(peers) = (first..nodes.end.into()).map(|node| here.peer(node)).collect::<Option<Vec<_>>>() else {
            // One that has not begun is not waiting.
            return HostSeen { sight: Sight { awake: Some(first), ..Sight::default() }, ..HostSeen::default() };
        };
        rounds::see(OwnNodes { nodes: &peers, first }, (here.region, here.carrier), places.then_some(here.locate))
    }
}

impl HostPeers<'_> {
    fn say(&self, host: usize, word: &PeerWord) {
        let mut bytes = Vec::new();
        // Nothing fails that goes into memory.
        if let (Some(carrier), Ok(())) = (self.carrier, frames::write(&mut bytes, word, b"")) {
            carrier.say(host, bytes);
        }
    }

    /// Waits until what was said has gone: between two answers the carrier sends.
    fn has_said(&self) {
        for _ in 0..2 {
            let _ = self.carrier.map(Carrier::traffic);
        }
    }

    /// A node of this host as its context page shows it; none if it has not begun.
    fn peer(&self, node: u32) -> Option<SpawnedNode> {
        let pid = Some(self.region.created_pid(node)?);
        let is_over = [node_phase::DONE, node_phase::FAILED].contains(&self.region.report(node).phase);
        Some(SpawnedNode { child: None, pid, ended: is_over.then(ExitStatus::default) })
    }
}
