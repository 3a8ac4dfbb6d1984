//! What to say of a run that is stuck: a row for each node.
//!
//! Input: what each node waits for. Output: lines: the node, what it waits for, who has it, since when, and the program's line.

use crate::launch::stuck::StuckNode;
use crate::reports::places::Files;
use blizzard_contract::waits;
use std::path::PathBuf;

/// The table, one line a row, the first one the heading.
pub fn table(nodes: &[StuckNode]) -> Vec<String> {
    let mut files = Files::default();
    let mut rows = vec![["node", "waits for", "held by", "since", "where"].map(str::to_owned)];
    for node in nodes {
        let (what, by) = waits_for(node, nodes);
        let place = place(&mut files, &node.callers).unwrap_or_else(|| "-".to_owned());
        rows.push([node.node.to_string(), what, by, format!("{:.1} s", node.since.as_secs_f64()), place]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
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
        _ => (format!("an answer of node {home}"), "-".to_owned()),
    }
}

/// The first caller that is neither the runtime nor the client library: function, file and line.
fn place(files: &mut Files, callers: &[(PathBuf, u64)]) -> Option<String> {
    callers.iter().find_map(|(path, offset)| files.caller(path, *offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::region::Waiting;
    use std::time::Duration;

    fn node(node: u32, what: u64, object: u64, held: &[u64]) -> StuckNode {
        let waiting = Waiting { what, object, held: held.to_vec(), ..Waiting::default() };
        StuckNode { node, waiting, since: Duration::from_millis(10_250), callers: Vec::new() }
    }

    #[test]
    fn each_row_says_who_has_what_is_waited_for() {
        let nodes = [node(0, waits::LOCK, 1, &[1]), node(1, waits::LOCK, 0, &[2]), node(2, waits::ALL, 0, &[])];
        let table = table(&nodes);
        let expected = [
            "node  waits for                            held by               since   where",
            "0     lock 1 of node 0                     node 1                10.2 s  -",
            "1     lock 0 of node 0                     node 0                10.2 s  -",
            "2     a barrier or reduction of all nodes  not there: nodes 0, 1  10.2 s  -",
        ];
        let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            table.iter().map(|l| squeeze(l)).collect::<Vec<_>>(),
            expected.iter().map(|l| squeeze(l)).collect::<Vec<_>>()
        );
    }
}
