//! What to say of a run that is stuck: a row for each node.
//!
//! Input: what each node waits for. Output: lines: the node, its host if there are several, what it waits for, who has it, since when, and the program's line.

use crate::launch::watching::stuck::{Callers, StuckNode};
use crate::reports::places::OpenedFiles;
use crate::store::closure::Originals;
use blizzard_contract::waits;

/// The table, one line a row, the first one the heading.
pub fn table(nodes: &[StuckNode], originals: &Originals) -> Vec<String> {
    let has_hosts = nodes.iter().any(|node| node.host.is_some());
    let callers: Vec<Callers> = nodes.iter().map(|node| node.callers.clone()).collect();
    let mut rows = vec![["node", "host", "waits for", "held by", "since", "where"].map(str::to_owned)];
    for (node, found) in nodes.iter().zip(places(&callers, originals)) {
        let (what, by) = waits_for(node, nodes);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let (host, place) = (or_none(node.host.clone()), or_none(node.place.clone().or(found)));
        rows.push([node.node.to_string(), host, what, by, format!("{:.1} s", node.since.as_secs_f64()), place]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let columns: Vec<(usize, usize)> =
        (0..rows[0].len()).filter(|&column| has_hosts || column != 1).map(|column| (column, width(column))).collect();
    let line = |row: &[String; 6]| {
        let cells: Vec<_> = columns.iter().map(|&(column, width)| format!("{:<width$}", row[column])).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// What a node waits for, and who has it or has not come.
fn waits_for(node: &StuckNode, all: &[StuckNode]) -> (String, String) {
    let waiting = &node.waiting;
    let (number, home) = (waiting.object, waiting.home);
    let listed = |wanted: &dyn Fn(&StuckNode) -> bool| {
        let names: Vec<_> = all.iter().filter(|other| wanted(other)).map(|other| other.node.to_string()).collect();
        match names.len() {
            0 => None,
            1 => Some(format!("node {}", names[0])),
            _ => Some(format!("nodes {}", names.join(", "))),
        }
    };
    let same = |other: &StuckNode| {
        (other.waiting.what, other.waiting.object, other.waiting.home) == (waiting.what, number, home)
    };
    let missing = || listed(&|other| !same(other)).map_or("-".to_owned(), |names| format!("not there: {names}"));
    match waiting.what {
        waits::LOCK => {
            let name = (home << 32 | number) + 1;
            let holder = listed(&|other| other.waiting.held.contains(&name));
            (format!("lock {number} of node {home}"), holder.unwrap_or_else(|| "-".to_owned()))
        }
        waits::BARRIER => (format!("barrier {number} of node {home}"), missing()),
        waits::ALL => ("a barrier or reduction of all nodes".to_owned(), missing()),
        waits::EVENT => (format!("event {number} of node {home}"), "nobody has set it".to_owned()),
        waits::SLOT => (format!("slot {number} (bz_lookup)"), "nobody has published it".to_owned()),
        waits::END => ("the other nodes' end".to_owned(), missing()),
        waits::MEMORY => ("shared memory".to_owned(), "-".to_owned()),
        waits::WAKEUP => ("a handler (TPPI_sleep)".to_owned(), "no message is on its way".to_owned()),
        waits::RESUMPTION => (format!("TPPI_resume_va of {number:#x}"), "no message is on its way".to_owned()),
        _ => (format!("an answer of node {home}"), "-".to_owned()),
    }
}

/// Of each node the first caller that is neither the runtime nor the client library: function, file and line.
pub fn places(callers: &[Callers], originals: &Originals) -> Vec<Option<String>> {
    let mut files = OpenedFiles::with(originals);
    let mut place = |of: &Callers| of.iter().find_map(|(path, offset)| files.caller(path, *offset));
    callers.iter().map(&mut place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::region::NodeWait;
    use std::time::Duration;

    fn node(node: u32, what: u64, object: u64, held: &[u64]) -> StuckNode {
        let waiting = NodeWait { what, object, held: held.to_vec(), ..NodeWait::default() };
        let since = Duration::from_millis(10_250);
        StuckNode { node, host: None, waiting, since, callers: Vec::new(), place: None }
    }

    #[test]
    fn each_row_says_who_has_what_is_waited_for() {
        let nodes = [node(0, waits::LOCK, 1, &[1]), node(1, waits::LOCK, 0, &[2]), node(2, waits::ALL, 0, &[])];
        let table = table(&nodes, &Originals::new());
        let expected = [
            "node  waits for                            held by               since   where",
            "0     lock 1 of node 0                     node 1                10.2 s  -",
            "1     lock 0 of node 0                     node 0                10.2 s  -",
            "2     a barrier or reduction of all nodes  not there: nodes 0, 1  10.2 s  -",
        ];
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            table.iter().map(|line| squeezed(line)).collect::<Vec<_>>(),
            expected.iter().map(|line| squeezed(line)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn rows_of_several_hosts_name_them() {
        let on = |host: &str, node| StuckNode { host: Some(host.into()), place: Some("main (a.c:1)".into()), ..node };
        let nodes = [on("left", node(0, waits::EVENT, 0, &[])), on("r", node(1, waits::END, 0, &[]))];
        let expected = [
            "node  host  waits for             held by            since   where",
            "0     left  event 0 of node 0     nobody has set it  10.2 s  main (a.c:1)",
            "1     r     the other nodes' end  not there: node 0  10.2 s  main (a.c:1)",
        ];
        assert_eq!(table(&nodes, &Originals::new()), expected);
    }
}
