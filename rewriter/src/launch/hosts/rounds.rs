//! Whether a run on several hosts is stuck.
//!
//! Purpose: finds that all nodes wait for each other and no message is under way, though nobody sees all hosts at one moment. Input: what is seen on each host
//! ([`HostSeen`]). Output: when to ask there; [`StuckNode`]s.
//!
//! A round asks all hosts, and ends when all have answered; the next one begins later. The launcher asks agents; under `mpirun` node 0's rank asks the first ranks of
//! the hosts.
//!
//! **Invariant**: a run that could go on is never taken for stuck. In two rounds that follow each other
//! * all nodes sleep, with the same counts of messages, so that none has done anything between;
//! * no node has sent a message that its carrier has not taken;
//! * for each two hosts as many messages have come as were sent, and none more in the second round than in the first.
//!
//! So there is a moment between these rounds at which all nodes slept and nothing was under way. Source: the four counters of Mattern, Algorithms for
//! distributed termination detection (1987).

use crate::launch::crashes::crash::OwnNodes;
use crate::launch::hosts::frames::HostSeen;
use crate::launch::hosts::host_list::Host;
use crate::launch::region::RegionFile;
use crate::launch::watching::stuck::{self, Locator, Sight, StuckNode, StuckWatch};
use blizzard_carrier::carrier::{CarriedTraffic, Carrier};
use std::time::{Duration, Instant};

/// Looks whether the nodes of this host, which are all that it has, could go on. `locate` names the places where they wait, if these are wanted.
pub(super) fn see(
    own: OwnNodes,
    (region, carrier): (&RegionFile, Option<&Carrier>),
    locate: Option<Locator<'_>>,
) -> HostSeen {
    let mut sight = Sight::of(own, region);
    if sight.awake.is_some() {
        return HostSeen { sight, ..HostSeen::default() };
    }
    if let Some(locate) = locate {
        let callers: Vec<_> = sight.sleepers.iter().map(|node| stuck::callers(own, node.node, &node.waiting)).collect();
        sight.sleepers.iter_mut().zip(locate(&callers)).for_each(|(node, place)| node.place = place);
    }
    // A host that is alone has nothing under way.
    match carrier.map_or(Some(CarriedTraffic::default()), Carrier::traffic) {
        Some(CarriedTraffic { sent, arrived, is_left }) => HostSeen { sight, is_quiet: !is_left, sent, arrived },
        None => HostSeen { sight, ..HostSeen::default() },
    }
}

/// Counts of a host: what it has sent to each host, and what has come from there.
type Counts = (Vec<u32>, Vec<u32>);

/// Watches a run on several hosts.
#[derive(Debug)]
pub struct StuckRounds {
    hosts: Vec<Host>,
    watch: StuckWatch,
    /// When the next round begins; none while one is under way, or if nobody wants to know.
    next: Option<Instant>,
    /// What has been answered in this round, by host.
    answers: Vec<Option<HostSeen>>,
    /// The counts of the last round, if nothing was under way by them.
    before: Option<Vec<Counts>>,
    /// In the last round the run was stuck: the next one asks where nodes wait.
    asks_places: bool,
}

impl StuckRounds {
    /// For a run that has been stuck for so long.
    pub fn new(hosts: &[Host], limit: Duration) -> StuckRounds {
        let nodes = hosts.last().map_or(0, |host| host.nodes.end.into());
        let watch = StuckWatch::new(nodes, limit);
        let next = watch.look_again().map(|again| Instant::now() + again);
        let answers = hosts.iter().map(|_| None).collect();
        StuckRounds { hosts: hosts.to_vec(), watch, next, answers, before: None, asks_places: false }
    }

    /// When a round begins, if none is under way.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Begins a round if it is time: all hosts are to be asked. Whether they are also asked where nodes wait.
    pub fn ask(&mut self) -> Option<bool> {
        self.next.take_if(|at| *at <= Instant::now()).map(|_| self.asks_places)
    }

    /// What a host has answered. What all nodes wait for, if the run is stuck.
    pub fn answered(&mut self, host: usize, seen: HostSeen) -> Option<Vec<StuckNode>> {
        self.answers[host] = Some(seen);
        if self.next.is_some() || self.answers.iter().any(Option::is_none) {
            return None;
        }
        let seen: Vec<HostSeen> = self.answers.iter_mut().filter_map(Option::take).collect();
        self.next = self.watch.look_again().map(|again| Instant::now() + again);
        let stuck = self.watch.judge(seen.iter().map(|seen| &seen.sight));
        let is_settled = self.is_settled(seen);
        let had_places = std::mem::replace(&mut self.asks_places, is_settled && stuck.is_some());
        let mut stuck = stuck.filter(|_| is_settled)?;
        if !had_places {
            self.next = Some(Instant::now());
            return None;
        }
        for node in &mut stuck {
            let has_it = |host: &&Host| host.nodes.contains(&(node.node as u16));
            node.host = self.hosts.iter().find(has_it).map(|host| host.name.clone());
        }
        Some(stuck)
    }

    /// Whether nothing was under way in this round, and nothing has been since the last one.
    fn is_settled(&mut self, seen: Vec<HostSeen>) -> bool {
        let nothing_is_left = seen.iter().all(|seen| seen.is_quiet);
        let counts: Vec<Counts> = seen.into_iter().map(|seen| (seen.sent, seen.arrived)).collect();
        let has_come = |from: usize, to: usize| counts[from].0.get(to) == counts[to].1.get(from);
        let hosts = 0..counts.len();
        let all_has_come = hosts.clone().all(|from| hosts.clone().all(|to| has_come(from, to)));
        let now = Some(counts).filter(|_| nothing_is_left && all_has_come);
        let before = std::mem::replace(&mut self.before, now);
        before.is_some() && self.before == before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::region::NodeWait;
    use crate::launch::watching::stuck::Sleeper;

    fn rounds() -> StuckRounds {
        let host = |name: &str, nodes| Host { name: name.into(), nodes };
        StuckRounds::new(&[host("a", 0..1), host("b", 1..2)], Duration::from_nanos(1))
    }

    /// Node `node` sleeps on its host, which has sent and got so many messages.
    fn sleeps(node: u32, sent: u32, arrived: u32) -> HostSeen {
        let waiting = NodeWait { messages: [sent.into(), arrived.into()], ..NodeWait::default() };
        let sight = Sight { sleepers: vec![Sleeper { node, waiting, place: None }], awake: None };
        let other = |count| if node == 0 { vec![0, count] } else { vec![count, 0] };
        HostSeen { sight, is_quiet: true, sent: other(sent), arrived: other(arrived) }
    }

    /// One round; whether the run is stuck, and whether places are asked for.
    fn round(rounds: &mut StuckRounds, a: HostSeen, b: HostSeen) -> (bool, bool) {
        let asked = loop {
            match rounds.ask() {
                Some(places) => break places,
                None => std::thread::yield_now(),
            }
        };
        assert!(rounds.ask().is_none() && rounds.answered(1, b).is_none());
        (rounds.answered(0, a).is_some(), asked)
    }

    #[test]
    fn three_equal_rounds_without_messages_are_a_run_that_is_stuck() {
        let mut run = rounds();
        let (a, b) = (sleeps(0, 3, 2), sleeps(1, 2, 3));
        for expected in [(false, false), (false, false), (true, true)] {
            assert_eq!(round(&mut run, a.clone(), b.clone()), expected);
        }
    }

    /// Each kind of what can still move a node, in the first, the second, or the last of the rounds: three good ones must follow.
    #[test]
    fn what_is_under_way_or_awake_is_never_stuck() {
        let good = || (sleeps(0, 3, 2), sleeps(1, 2, 3));
        let awake = || HostSeen { sight: Sight { sleepers: Vec::new(), awake: Some(1) }, ..sleeps(1, 2, 3) };
        let carried = |sent: &[u32], arrived: &[u32], node| {
            let seen = if node == 0 { sleeps(0, 3, 2) } else { sleeps(1, 2, 3) };
            HostSeen { sent: sent.to_vec(), arrived: arrived.to_vec(), ..seen }
        };
        let left = || HostSeen { is_quiet: false, ..sleeps(0, 3, 2) };
        let silent = || HostSeen { sent: Vec::new(), arrived: Vec::new(), ..sleeps(1, 2, 3) };
        let bad = [
            ("awake", (sleeps(0, 3, 2), awake())),
            ("not taken by the carrier", (left(), sleeps(1, 2, 3))),
            ("on its way", (sleeps(0, 4, 2), sleeps(1, 2, 3))),
            ("carried meanwhile", (carried(&[0, 4], &[0, 2], 0), carried(&[2, 0], &[4, 0], 1))),
            ("counts that are not there", (sleeps(0, 3, 2), silent())),
        ];
        for (what, (a, b)) in &bad {
            for at in 0..3 {
                let mut run = rounds();
                let told = (0..10).find(|&number| {
                    let (a, b) = if number == at { (a.clone(), b.clone()) } else { good() };
                    round(&mut run, a, b).0
                });
                // Who was awake may wait for the same thing as before.
                let is_late_enough = told == Some(at + 3) || *what == "awake" && told == Some(at + 2);
                assert!(is_late_enough, "{what} in round {at}: {told:?}");
            }
        }
    }

    #[test]
    fn nobody_is_asked_who_does_not_want_to_know() {
        let host = |name: &str, nodes| Host { name: name.into(), nodes };
        assert!(StuckRounds::new(&[host("a", 0..2)], Duration::ZERO).next().is_none());
        assert!(StuckRounds::new(&[host("a", 0..1)], Duration::from_secs(1)).next().is_none());
    }
}
