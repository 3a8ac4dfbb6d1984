//! Tables of steps, as tests write them and compare them with those in the documentation.
//!
//! Nodes X, Y and Z are three that are not the home.

use crate::ids::NodeId;

pub fn node(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

pub fn x() -> NodeId {
    node(1)
}

pub fn y() -> NodeId {
    node(2)
}

pub fn z() -> NodeId {
    node(3)
}

pub fn name(node: NodeId) -> &'static str {
    ["home", "X", "Y", "Z"][node.index()]
}

pub fn names(nodes: impl Iterator<Item = NodeId>) -> String {
    nodes.map(name).collect::<Vec<_>>().join(" ")
}

/// Rows with the same state, next state and actions become one, with all their events.
pub fn table(rows: Vec<[String; 4]>) -> String {
    let mut merged: Vec<[String; 4]> = Vec::new();
    for row in rows {
        match merged.iter_mut().find(|other| other[0] == row[0] && other[2..] == row[2..]) {
            Some(other) => other[1] += &format!(", {}", row[1]),
            None => merged.push(row),
        }
    }
    let mut text = String::from("//! | state | event | next state | actions |\n//! |---|---|---|---|\n");
    for [state, event, next, actions] in merged {
        let next = if next == state { "same".into() } else { next };
        text += &format!("//! | {state} | {event} | {next} | {actions} |\n");
    }
    text
}

/// The lines between the markers of a table.
pub fn documented<'a>(text: &'a str, which: &str) -> &'a str {
    let (begin, end) = (format!("//! <!-- {which} table: begin -->\n"), format!("//! <!-- {which} table: end -->\n"));
    let from = text.find(&begin).unwrap() + begin.len();
    let to = text.find(&end).unwrap();
    &text[from..to]
}
