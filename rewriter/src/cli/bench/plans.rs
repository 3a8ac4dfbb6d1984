//! What each subcommand of `blizzard bench` measures: which figures, and the floor that each is compared with.
//!
//! Input: none. Output: [`BenchPlan`]s; their keys are the names in the results of the measuring programs (`bench-apps/workload`).

use crate::cli::shared::workload::Workload;

/// A figure of a plan.
pub struct Wanted {
    /// In the program's results.
    pub key: String,
    pub name: String,
    pub aim: Aim,
    /// What one of them moves, where that is what matters.
    pub bytes: Option<u64>,
}

/// Between the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// Two processors of this host.
    Near,
    /// Two hosts: floors go over TCP, and nothing is aimed at, for the network decides.
    Far,
}

/// What a figure should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    None,
    /// At most so many times the floor.
    Ratio(f64),
    /// At most so many nanoseconds.
    Ns(f64),
}

/// A floor and the figures that are compared with it.
pub struct Comparison {
    /// Of several ways to do the same, the fastest is the floor.
    pub floor_keys: Vec<String>,
    pub floor_name: String,
    pub figures: Vec<Wanted>,
    /// Of the floor and of each figure.
    pub bytes: Option<u64>,
}

/// The steps of what is measured, in order.
pub struct StepPlan {
    /// What they are steps of.
    pub title: &'static str,
    /// Key in the results, what happens, on which node.
    pub steps: &'static [(&'static str, &'static str, &'static str)],
}

/// A subcommand.
pub struct BenchPlan {
    /// As the program's argument `what` and in the output.
    pub name: &'static str,
    pub program: Workload,
    pub comparisons: Vec<Comparison>,
    /// Measured in a run of its own.
    pub steps: Option<StepPlan>,
    /// Whether a node that computes polls, and how often is of interest.
    pub polls: bool,
}

fn wanted(key: &str, name: &str, aim: Aim) -> Wanted {
    Wanted { key: key.into(), name: name.into(), aim, bytes: None }
}

/// Nothing is aimed at; clocks of different hosts do not show steps.
fn far(plan: BenchPlan) -> BenchPlan {
    let without = |wanted: Wanted| Wanted { aim: Aim::None, ..wanted };
    let without = |c: Comparison| Comparison { figures: c.figures.into_iter().map(without).collect(), ..c };
    BenchPlan { comparisons: plan.comparisons.into_iter().map(without).collect(), steps: None, ..plan }
}

fn compared(floor_key: &str, floor_name: &str, figures: Vec<Wanted>) -> Comparison {
    Comparison { floor_keys: vec![floor_key.into()], floor_name: floor_name.into(), figures, bytes: None }
}

/// Key and name of the floor of what goes to and fro.
fn ping_pong(distance: Distance) -> (&'static str, &'static str) {
    match distance {
        Distance::Near => ("ping_pong", "floor: a cache line to and fro"),
        Distance::Far => ("ping_pong", "floor: 64 bytes to and fro, TCP"),
    }
}

fn at(distance: Distance, near: BenchPlan) -> BenchPlan {
    if distance == Distance::Near { near } else { far(near) }
}

/// `bench miss`.
pub fn miss(distance: Distance) -> BenchPlan {
    let figures = vec![
        wanted("read_miss", "read miss, home spins", Aim::Ratio(2.5)),
        wanted("write_miss", "write miss, home spins", Aim::None),
        wanted("upgrade", "upgrade, home spins", Aim::None),
        wanted("read_miss_computing", "read miss, home computes", Aim::None),
        wanted("write_miss_computing", "write miss, home computes", Aim::None),
        wanted("upgrade_computing", "upgrade, home computes", Aim::None),
        wanted("read_miss_sleeping", "read miss, home sleeps", Aim::Ns(1e6)),
        wanted("read_miss_in_kernel", "read miss, home in a system call", Aim::Ns(1e6)),
    ];
    let (key, name) = ping_pong(distance);
    let near = BenchPlan {
        name: "miss",
        program: Workload::Bench,
        comparisons: vec![compared(key, name, figures)],
        steps: Some(StepPlan { title: "a read miss, home spins", steps: &MISS_STEPS }),
        polls: true,
    };
    at(distance, near)
}

const MISS_STEPS: [(&str, &str, &str); 10] = [
    ("step_gate", "check, gate: save the registers", "node"),
    ("step_look_up", "look up tag and home, step the protocol", "node"),
    ("step_send", "write the request into the ring", "node"),
    ("step_request", "request travels; home takes it out of the ring", "both"),
    ("step_handler", "home's handler: directory, protocol, read the block", "home"),
    ("step_reply", "home writes the answer; it travels; node takes it out", "both"),
    ("step_copy", "check the answer, copy the block in", "node"),
    ("step_tag", "raise the tag", "node"),
    ("step_end", "end of the miss: pins, doorbell", "node"),
    ("step_return", "gate: restore the registers; check again, load", "node"),
];

/// `bench false-sharing`.
pub fn false_sharing() -> BenchPlan {
    let figures = vec![
        wanted("neighbouring_blocks", "neighbouring blocks of one page", Aim::None),
        wanted("same_block", "the same block", Aim::None),
    ];
    BenchPlan {
        name: "false-sharing",
        program: Workload::Bench,
        comparisons: vec![compared("different_pages", "floor: on different pages", figures)],
        steps: None,
        polls: false,
    }
}

/// `bench am`.
pub fn messages(distance: Distance) -> BenchPlan {
    let round_trips = vec![
        wanted("request_reply", "request and reply, peer spins", Aim::Ratio(1.3)),
        wanted("request_reply_computing", "request and reply, peer computes", Aim::None),
    ];
    // Twenty million a second.
    let stream = vec![wanted("stream", "messages without reply, each", Aim::Ns(50.0))];
    let (key, name) = ping_pong(distance);
    let one_way = match distance {
        Distance::Near => "floor: cache lines one way, each",
        Distance::Far => "floor: 64 bytes in a stream of TCP",
    };
    let near = BenchPlan {
        name: "am",
        program: Workload::Messages,
        comparisons: vec![compared(key, name, round_trips), compared("raw_stream", one_way, stream)],
        steps: Some(StepPlan { title: "a request and its reply, peer spins", steps: &MESSAGE_STEPS }),
        polls: true,
    };
    at(distance, near)
}

const MESSAGE_STEPS: [(&str, &str, &str); 7] = [
    ("step_call", "call: check, build the message, write it into the ring", "node"),
    ("step_request", "request travels; peer takes it out of the ring", "both"),
    ("step_start", "queue it, resolve the handler, start it", "peer"),
    ("step_handle", "handler: read the word, send the reply", "peer"),
    ("step_reply", "reply travels; node takes it out of the ring", "both"),
    ("step_start_reply", "queue it, resolve the handler, start it", "node"),
    ("step_return", "handler: read the word, wake; the wait ends", "node"),
];

/// `bench bulk`. The sizes are those of `messages.c`.
pub fn bulk(distance: Distance) -> BenchPlan {
    let comparison = |power: u32| {
        let bytes = 4096u64 << (2 * power);
        let text = if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
        // 70 per cent of the bandwidth.
        let aim = if bytes == 1 << 20 { Aim::Ratio(1.0 / 0.7) } else { Aim::None };
        let channel =
            Wanted { key: format!("bulk_{bytes}"), name: format!("{text} through a channel"), aim, bytes: Some(bytes) };
        let (floor_keys, floor_name) = match distance {
            Distance::Near => (
                vec![format!("copy_string_{bytes}"), format!("copy_pieces_{bytes}")],
                format!("floor: copy of the other's {text}"),
            ),
            Distance::Far => (vec![format!("stream_{bytes}")], format!("floor: {text} over TCP")),
        };
        Comparison { floor_keys, floor_name, figures: vec![channel], bytes: Some(bytes) }
    };
    let near = BenchPlan {
        name: "bulk",
        program: Workload::Messages,
        comparisons: (0..6).map(comparison).collect(),
        steps: None,
        polls: false,
    };
    at(distance, near)
}
