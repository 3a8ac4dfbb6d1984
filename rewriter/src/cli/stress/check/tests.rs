//! The checker against a search through all interleavings, and against logs with known contradictions.

use crate::cli::stress::check::*;
use crate::cli::stress::log::Location;
use crate::cli::stress::promise::Reduced;
use blizzard_protocol::operation::{Combine, Element, Operation};

const NODES: usize = 3;
/// Word `w < 3` belongs to node `w`; words 3 and 4 are exchanged.
const WORDS: u32 = 5;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn id(epoch: u64, node: usize, index: usize) -> u64 {
    LoggedId { epoch, node: node as u32, index: index as u32 }.value()
}

/// What nodes do, without what they read.
fn program(state: &mut u64, length: usize) -> Vec<Vec<LoggedAccess>> {
    let access = |node: usize, state: &mut u64| {
        let r = random(state) >> 20;
        let (kind, word) = match r % 4 {
            0 => (LoggedKind::Store, node as u64),
            1 => (LoggedKind::Swap, 3 + (r >> 8) % 2),
            _ => (LoggedKind::Load, (r >> 8) % u64::from(WORDS)),
        };
        LoggedAccess { location: Location(word as u32), kind, read: 0 }
    };
    (0..NODES).map(|node| (0..length).map(|_| access(node, state)).collect()).collect()
}

/// Executes the program in a random order; fills in what is read.
fn interleave(state: &mut u64, number: u64, mut nodes: Vec<Vec<LoggedAccess>>, memory: &mut [u64]) -> Epoch {
    let mut next = [0; NODES];
    while (0..NODES).any(|n| next[n] < nodes[n].len()) {
        let n = (random(state) >> 20) as usize % NODES;
        let Some(access) = nodes[n].get_mut(next[n]) else { continue };
        let word = &mut memory[access.location.0 as usize];
        if access.kind != LoggedKind::Store {
            access.read = *word;
        }
        if access.kind != LoggedKind::Load {
            *word = id(number, n, next[n]);
        }
        next[n] += 1;
    }
    Epoch { number, nodes }
}

/// Whether some interleaving explains the epoch.
fn explained(epoch: &Epoch, memory: &mut Vec<u64>, next: &mut [usize; NODES]) -> bool {
    let mut all = true;
    for n in 0..NODES {
        let Some(&access) = epoch.nodes[n].get(next[n]) else { continue };
        all = false;
        let word = access.location.0 as usize;
        if access.kind != LoggedKind::Store && memory[word] != access.read {
            continue;
        }
        let before = memory[word];
        if access.kind != LoggedKind::Load {
            memory[word] = id(epoch.number, n, next[n]);
        }
        next[n] += 1;
        let found = explained(epoch, memory, next);
        next[n] -= 1;
        memory[word] = before;
        if found {
            return true;
        }
    }
    all
}

#[test]
fn the_checker_agrees_with_a_search_through_all_interleavings() {
    let mut state = 0x1234_5678_9abc_def1;
    let (mut consistent, mut wrong) = (0, 0);
    for _ in 0..30_000 {
        let nodes = program(&mut state, 4);
        let mut epoch = interleave(&mut state, 1, nodes, &mut vec![0; WORDS as usize]);
        // Change what some reads have returned to other values of the same word.
        for _ in 0..random(&mut state) >> 20 & 3 {
            let (n, i) = ((random(&mut state) >> 20) as usize % NODES, (random(&mut state) >> 20) as usize % 4);
            let location = epoch.nodes[n][i].location;
            let mut values = vec![0];
            for (m, accesses) in epoch.nodes.iter().enumerate() {
                let writes = |(_, a): &(usize, &LoggedAccess)| a.kind != LoggedKind::Load && a.location == location;
                values.extend(accesses.iter().enumerate().filter(writes).map(|(k, _)| id(1, m, k)));
            }
            if epoch.nodes[n][i].kind != LoggedKind::Store {
                epoch.nodes[n][i].read = values[(random(&mut state) >> 20) as usize % values.len()];
            }
        }
        let expected = explained(&epoch, &mut vec![0; WORDS as usize], &mut [0; NODES]);
        let found = Checker::new(vec![WordPromise::Sequential; WORDS as usize], NODES as u32).check(&epoch);
        assert_eq!(found.is_ok(), expected, "{epoch:#?}\n{found:?}");
        if expected { consistent += 1 } else { wrong += 1 }
    }
    assert!(consistent > 5_000 && wrong > 5_000, "{consistent} {wrong}");
}

#[test]
fn long_interleavings_pass_epoch_after_epoch() {
    let mut state = 99;
    let mut memory = vec![0; WORDS as usize];
    let mut checker = Checker::new(vec![WordPromise::Sequential; WORDS as usize], NODES as u32);
    for number in 1..=20 {
        let nodes = program(&mut state, 5_000);
        let epoch = interleave(&mut state, number, nodes, &mut memory);
        checker.check(&epoch).unwrap();
    }
    assert_eq!(checker.accesses(), 20 * 5_000 * NODES as u64);
}

fn load(word: u32, read: u64) -> LoggedAccess {
    LoggedAccess { location: Location(word), kind: LoggedKind::Load, read }
}

fn store(word: u32) -> LoggedAccess {
    LoggedAccess { location: Location(word), kind: LoggedKind::Store, read: 0 }
}

fn swap(word: u32, read: u64) -> LoggedAccess {
    LoggedAccess { location: Location(word), kind: LoggedKind::Swap, read }
}

fn violation(epochs: &[[Vec<LoggedAccess>; 3]]) -> OrderViolation {
    let mut checker = Checker::new(vec![WordPromise::Sequential; WORDS as usize], NODES as u32);
    for (number, nodes) in (1..).zip(epochs) {
        if let Err(violation) = checker.check(&Epoch { number, nodes: nodes.to_vec() }) {
            return violation;
        }
    }
    panic!("no violation found");
}

#[test]
fn store_buffering_is_told_as_a_cycle_in_words() {
    let found = violation(&[[vec![store(0), load(1, 0)], vec![store(1), load(0, 0)], vec![]]]);
    assert!(found.what.contains("2 nodes"), "{found:?}");
    let text = found.details.join("\n");
    for part in ["node 0, access 0 stores to word 0", "node 1, access 1 loads word 0", "the initial 0", "does not see"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn contradictions_that_are_no_cycle_of_several_nodes_are_named() {
    let (a, b) = (id(1, 0, 0), id(1, 1, 0));
    for (epochs, part) in [
        (vec![[vec![swap(3, 0)], vec![swap(3, 0)], vec![]]], "same value"),
        (vec![[vec![swap(3, b)], vec![swap(3, a)], vec![]]], "in a circle"),
        (vec![[vec![store(0)], vec![load(4, a)], vec![]]], "a value of word 0"),
        (vec![[vec![], vec![load(0, id(1, 0, 7))], vec![]]], "nobody has written"),
        (vec![[vec![], vec![load(0, id(5, 0, 0))], vec![]]], "nobody has written"),
        (vec![[vec![store(0)], vec![], vec![]], [vec![], vec![load(0, 0)], vec![]]], "initial 0 after"),
        (
            vec![
                [vec![store(0)], vec![], vec![]],
                [vec![store(0)], vec![], vec![]],
                [vec![], vec![load(0, a)], vec![]],
            ],
            "before a barrier",
        ),
        (vec![[vec![load(0, id(1, 0, 1)), store(0)], vec![], vec![]]], "own program order"),
    ] {
        let found = violation(&epochs);
        assert!(found.what.contains(part), "{part}: {found:?}");
        assert!(!found.details.is_empty());
    }
}

/// Node 0 writes words 0 and 1, of which 0 has `update`; node 1 writes word 2, and word 3, which has it as well.
fn check_update(nodes: [Vec<LoggedAccess>; 3]) -> Result<(), OrderViolation> {
    use WordPromise::{AtFlushes, Sequential};
    let promises = vec![AtFlushes, Sequential, Sequential, AtFlushes, Sequential];
    Checker::new(promises, NODES as u32).check(&Epoch { number: 1, nodes: nodes.to_vec() })
}

#[test]
fn update_keeps_its_promise_or_breaks_it() {
    let flush = LoggedAccess { location: Location(0), kind: LoggedKind::Flush, read: 0 };
    let (first, second, third) = (id(1, 0, 0), id(1, 0, 1), id(1, 0, 2));
    let told = id(1, 1, 1);
    for nodes in [
        // Nobody has flushed.
        [vec![store(0), store(1)], vec![load(1, second), load(0, 0), load(0, first)], vec![]],
        // Two `update` words are in no order.
        [vec![store(0), load(3, 0)], vec![store(3), load(0, 0)], vec![]],
        // Whoever has not been told may still have the old value.
        [vec![store(0), flush, store(1)], vec![load(1, third), load(0, first)], vec![load(0, 0), load(0, first)]],
        // What came behind the flush may be seen as well.
        [vec![store(0), flush, store(1), store(0)], vec![load(1, third), load(0, id(1, 0, 3))], vec![]],
    ] {
        check_update(nodes).unwrap();
    }
    for (nodes, part) in [
        ([vec![store(0), flush, store(1)], vec![load(1, third), load(0, 0)], vec![]], "has been told of a flush"),
        (
            [vec![store(0), flush, store(1)], vec![load(1, third), store(2)], vec![load(2, told), load(0, 0)]],
            "has been told of a flush",
        ),
        ([vec![store(0)], vec![load(0, first), load(0, 0)], vec![]], "goes back"),
        ([vec![store(0), load(0, 0)], vec![], vec![]], "goes back"),
        ([vec![load(0, second), store(0)], vec![], vec![]], "only later"),
        ([vec![store(0)], vec![swap(0, 0), swap(0, 0)], vec![]], "same value"),
    ] {
        let found = check_update(nodes).unwrap_err();
        assert!(found.what.contains(part) && !found.details.is_empty(), "{part}: {found:?}");
    }
}

/// Nodes that add to two blocks with node 1 as their home, as `reduce` promises; `values` are those at the home.
fn reduced(state: &mut u64, number: u64, operation: Operation, values: &mut [u64; 3], backwards: bool) -> Epoch {
    const HOME: usize = 1;
    let block = |word: usize| usize::from(word == 2);
    let before = *values;
    // What the home has stored by now, each of which others may see.
    let mut seen = before.map(|value| vec![value]);
    let mut added = [[operation.neutral(); 3]; NODES];
    let mut nodes = vec![Vec::new(); NODES];
    for node in [HOME, 0, 2] {
        let mut open = [false; 2];
        for _ in 0..20 {
            let word = (random(state) >> 20) as usize % 3;
            let more = f64::to_bits((random(state) >> 11) as f64 * 2f64.powi((random(state) >> 30) as i32 % 40));
            let adds = random(state) >> 20 & 1 == 0;
            open[block(word)] |= adds;
            let current = match node {
                HOME => values[word],
                _ if open[block(word)] => added[node][word],
                _ => seen[word][(random(state) >> 20) as usize % seen[word].len()],
            };
            let access = |kind, read| LoggedAccess { location: Location(word as u32), kind, read };
            let steps = [access(LoggedKind::Open, 0), access(LoggedKind::Load, current), access(LoggedKind::Add, more)];
            nodes[node].extend(if adds { &steps[..] } else { &steps[1..2] });
            if adds && node == HOME {
                values[word] = operation.apply(current, more);
                seen[word].push(values[word]);
            } else if adds {
                added[node][word] = operation.apply(current, more);
            }
        }
    }
    for word in 0..3 {
        let others = if backwards { [2, 0] } else { [0, 2] };
        values[word] = others.into_iter().fold(values[word], |v, node| operation.apply(v, added[node][word]));
    }
    Epoch { number, nodes }
}

#[test]
fn reduce_keeps_its_promise_or_breaks_it() {
    let mut state = 7;
    let mut found = [0; 3];
    for run in 0..200 {
        let (combine, of) =
            [(Combine::Sum, Element::F64), (Combine::Sum, Element::U64), (Combine::Max, Element::U64)][run % 3];
        let operation = Operation::new(combine, of).unwrap();
        let word = |block| WordPromise::AtBarriers(Reduced { operation, block, in_pieces: false });
        let checker = || Checker::new(vec![word(0), word(0), word(1)], NODES as u32);
        let mut values = [operation.initial(); 3];
        let mut right = checker();
        for number in 1..=6 {
            let epoch = reduced(&mut state, number, operation, &mut values, false);
            let mut other = right.clone();
            right.check(&epoch).unwrap_or_else(|e| panic!("{e:#?}"));
            let mut wrong = epoch.clone();
            let node = &mut wrong.nodes[random(&mut state) as usize % NODES];
            let access = node.iter_mut().rev().find(|access| access.kind == LoggedKind::Load).unwrap();
            access.read ^= 1 << 52;
            found[0] += usize::from(other.check(&wrong).is_err());
        }
        // The order of the nodes counts for floats alone.
        let mut values = [operation.initial(); 3];
        let mut backwards = checker();
        let epochs = (1..=6).map(|number| reduced(&mut state, number, operation, &mut values, true));
        let is_wrong = epochs.collect::<Vec<_>>().iter().any(|epoch| backwards.check(epoch).is_err());
        found[1 + usize::from(of == Element::F64)] += usize::from(is_wrong);
    }
    assert_eq!(found[1], 0);
    assert!(found[0] > 1000 && found[2] > 40, "{found:?}");
}
