//! What the exploration of real nodes finds: nothing, but the bugs that are planted.

use crate::tests::explore::models::*;
use crate::tests::explore::search::{Found, explore};
use crate::tests::explore::world::Model;
use blizzard_protocol::bugs::Bug;
use std::vec;
use std::vec::Vec;

/// More than any of those take that are explored to the end.
const ALL: usize = 100_000_000;
/// So many steps of what is not.
const FIRST: usize = 25_000;
/// So many of what is explored when more is asked for.
const MORE: usize = 100_000;
/// So many of three nodes with barriers, which take longest.
const FEW: usize = 3_000;

/// Explores all orders, or those of the first so many steps; so many states there are.
fn explored(model: &Model, bytes: &str, most_steps: usize, states: usize) {
    let began = std::time::Instant::now();
    match explore(model, most_steps) {
        Ok(report) => {
            println!(
                "{} ({bytes} bytes): {} states, {} steps, {} ends, at most {} steps deep, {:.1} s",
                model.name,
                report.states,
                report.steps,
                report.ends,
                report.deepest,
                began.elapsed().as_secs_f64()
            );
            assert_eq!(report.is_complete, most_steps == ALL);
            assert_eq!(report.states, states, "{} ({bytes})", model.name);
        }
        Err((found, path)) => panic!("{} ({bytes} bytes): {found:?} after {} steps: {path:?}", model.name, path.len()),
    }
}

#[test]
fn blocks_in_parts_are_whole() {
    explored(&parts::<64>(), "64", ALL, 92);
    explored(&parts::<128>(), "128", ALL, 116);
    explored(&parts::<1024>(), "1024", ALL, 452);
    explored(&parts::<2048>(), "2048", ALL, 836);
    explored(&parts::<4096>(), "4096", ALL, 1_604);
    explored(&parts_of_two::<64>(), "64", ALL, 3_369);
    explored(&mixed::<64, 128>(), "64 and 128", ALL, 5_737);
    explored(&mixed::<2048, 4096>(), "2048 and 4096", FIRST, 25_050);
    explored(&across::<64, 256>(), "64 and 256", ALL, 279);
    explored(&across::<64, 4096>(), "64 and 4096", ALL, 1_959);
    explored(&across::<2048, 4096>(), "2048 and 4096", ALL, 2_982);
}

/// The run's protocol and another one.
#[test]
fn protocols_live_side_by_side() {
    explored(&side_by_side::<64, 1>(), "64", ALL, 11_223);
}

/// Whoever loads finds what the home had at its last flush, or what is newer.
#[test]
fn what_is_flushed_has_arrived() {
    explored(&push::<64>(), "64", ALL, 11_348);
    explored(&push_to_late::<64>(), "64", ALL, 3_931);
    explored(&push_of_two::<64>(), "64", ALL, 378);
    explored(&push_of_two::<256>(), "256", ALL, 687);
    explored(&push_of_three::<64>(), "64", ALL, 4_276);
    explored(&push_to_small::<64>(), "64", ALL, 1_619);
    explored(&push_beside_call::<64>(), "64", ALL, 11_091);
    explored(&push_beside_access::<64>(), "64", ALL, 408);
}

/// Sums of floats that depend on the order come out as the order of the nodes' numbers says.
#[test]
fn sums_are_those_of_the_nodes_in_order() {
    explored(&reduce::<64>(), "64", ALL, 625);
    explored(&reduce::<256>(), "256", ALL, 4_125);
    explored(&reduce_late::<64>(), "64", FEW, 1_657);
    explored(&reduce_ahead::<64>(), "64", FEW, 1_653);
    explored(&reduce_next_round::<64>(), "64", FEW, 1_648);
    explored(&reduce_in_small::<64>(), "64", ALL, 1_643);
    explored(&reduce_of_three::<64>(), "64", FEW, 1_647);
}

/// Nobody leaves a barrier early, whoever tells whom.
#[test]
fn barriers_of_two_hosts_are_those_of_all_nodes() {
    explored(&barriers_on_hosts::<64>(), "64", ALL, 2_401);
    explored(&barriers_on_hosts::<256>(), "256", ALL, 4_795);
    explored(&reduce_on_hosts::<64>(), "64", FEW, 1_703);
}

#[test]
fn replaced_pages_lose_nothing() {
    explored(&replacement::<64>(), "64", ALL, 587);
    explored(&replacement::<256>(), "256", ALL, 3_500);
    explored(&replacement::<2048>(), "2048", FIRST, 22_672);
    explored(&replacement::<4096>(), "4096", FIRST, 24_620);
    explored(&replacement_in_use::<64>(), "64", ALL, 267);
    explored(&replacement_in_use::<256>(), "256", ALL, 501);
    explored(&replacement_in_use::<2048>(), "2048", ALL, 4_421);
    explored(&replacement_in_use::<4096>(), "4096", ALL, 12_741);
    explored(&replacement_of_two::<64>(), "64", ALL, 628);
    explored(&replacement_of_two::<128>(), "128", ALL, 960);
}

#[test]
fn system_calls_have_their_memory() {
    explored(&call::<64>(), "64", ALL, 20_184);
    explored(&call_of_two_pages::<64>(), "64", ALL, 795);
    explored(&call_of_two_pages::<128>(), "128", ALL, 1_061);
    explored(&call_of_two_pages::<2048>(), "2048", ALL, 18_806);
    explored(&call_after_request::<64>(), "64", ALL, 14_952);
}

#[test]
fn requests_ahead_change_nothing() {
    explored(&joined::<64>(), "64", ALL, 356);
    explored(&joined::<128>(), "128", ALL, 603);
    explored(&beside::<64>(), "64", ALL, 749);
    explored(&own::<64>(), "64", ALL, 184);
    explored(&own::<256>(), "256", ALL, 538);
    explored(&own::<2048>(), "2048", ALL, 12_088);
    explored(&history::<64>(), "64", ALL, 5_953);
    explored(&history::<128>(), "128", FIRST, 19_044);
}

#[test]
fn first_touch_makes_one_home() {
    explored(&home_by_use_of_two::<64>(), "64", ALL, 153);
    explored(&home_by_use_of_two::<512>(), "512", ALL, 335);
    explored(&home_by_use_of_two::<2048>(), "2048", ALL, 959);
    explored(&home_by_use_of_two::<4096>(), "4096", ALL, 1_791);
    explored(&home_by_use::<64>(), "64", ALL, 4_162);
}

#[test]
fn created_nodes_find_what_node_0_has_left() {
    explored(&created::<64>(), "64", ALL, 149);
    explored(&created::<256>(), "256", ALL, 260);
    explored(&created::<2048>(), "2048", ALL, 1_296);
    explored(&created::<4096>(), "4096", ALL, 2_480);
    explored(&created_late::<64>(), "64", ALL, 2_316);
}

#[test]
fn bulk_data_arrive_beside_misses() {
    explored(&bulk::<256>(), "256", FIRST, 14_079);
    explored(&bulk::<2048>(), "2048", FIRST, 14_453);
    explored(&bulk::<4096>(), "4096", FIRST, 14_822);
}

/// The second protocol's driver, where it shares the mechanisms with Stache's.
#[test]
fn the_second_protocol_too() {
    for (model, bytes, states) in [
        (parts::<64>(), "64", 98),
        (parts::<128>(), "128", 124),
        (parts::<2048>(), "2048", 904),
        (parts::<4096>(), "4096", 1_736),
        (replacement::<64>(), "64", 534),
        (replacement_of_two::<128>(), "128", 918),
        (joined::<64>(), "64", 430),
        (home_by_use_of_two::<64>(), "64", 153),
        (created::<256>(), "256", 317),
        (call_of_two_pages::<64>(), "64", 787),
        (call_of_two_pages::<128>(), "128", 1_043),
    ] {
        explored(&Model { protocol: blizzard_protocol::list::ALL[1].number(), ..model }, bytes, ALL, states);
    }
}

/// What stache guarantees, though readers take blocks away.
#[test]
fn migratory_too() {
    for (model, bytes, states) in [
        (parts::<64>(), "64", 104),
        (parts::<256>(), "256", 188),
        (replacement_in_use::<64>(), "64", 240),
        (joined::<64>(), "64", 275),
        (own::<64>(), "64", 153),
        (across::<64, 256>(), "64 and 256", 279),
        (home_by_use_of_two::<64>(), "64", 132),
        (created::<64>(), "64", 149),
    ] {
        explored(&by("migratory", model), bytes, ALL, states);
    }
}

/// One copy of each block, which is given back unasked once others have wanted it.
#[test]
fn home_too() {
    for (model, bytes, states) in [
        (wanted_before(parts::<64>()), "64", 363),
        (wanted_before(parts::<256>()), "256", 2_874),
        (wanted_before(replacement::<64>()), "64", 970),
        (wanted_before(replacement_in_use::<64>()), "64", 1_712),
        (wanted_before(call::<64>()), "64", 23_081),
        (wanted_before(call_of_two_pages::<64>()), "64", 807),
        (wanted_before(across::<64, 256>()), "64 and 256", 1_127),
        (parts::<256>(), "256", 358),
        (replacement::<64>(), "64", 689),
        (replacement_in_use::<64>(), "64", 364),
        (across::<64, 256>(), "64 and 256", 279),
        (home_by_use_of_two::<64>(), "64", 148),
        (created::<64>(), "64", 229),
    ] {
        explored(&by("home", model), bytes, ALL, states);
    }
}

/// What stache guarantees, though readers get copies that they have not asked for.
#[test]
fn broadcast_too() {
    for (model, bytes, states) in [
        (read_again::<64>(), "64", 5_930),
        (read_at_home::<64>(), "64", 2_143),
        (read_without_room::<64>(), "64", 954),
        (parts::<256>(), "256", 164),
        (replacement_in_use::<64>(), "64", 267),
        (joined::<64>(), "64", 356),
        (own::<64>(), "64", 184),
        (across::<64, 256>(), "64 and 256", 279),
        (home_by_use_of_two::<64>(), "64", 153),
        (created::<64>(), "64", 149),
    ] {
        explored(&by("broadcast", model), bytes, ALL, states);
    }
}

#[test]
#[ignore = "takes three minutes"]
fn more_of_each() {
    explored(&parts_of_two::<128>(), "128", ALL, 5_579);
    explored(&parts_of_two::<4096>(), "4096", MORE, 48_499);
    explored(&mixed::<128, 256>(), "128 and 256", ALL, 39_263);
    explored(&mixed::<64, 4096>(), "64 and 4096", MORE, 58_635);
    explored(&replacement::<1024>(), "1024", ALL, 72_122);
    explored(&replacement_of_three::<64>(), "64", ALL, 19_279);
    explored(&replacement_of_three::<128>(), "128", ALL, 113_714);
    explored(&call::<4096>(), "4096", MORE, 72_805);
    explored(&call_and_load::<64>(), "64", ALL, 24_892);
    explored(&call_and_load::<256>(), "256", ALL, 35_653);
    explored(&two_calls::<64>(), "64", MORE, 77_503);
    explored(&home_by_use::<256>(), "256", ALL, 14_785);
    explored(&home_by_use::<4096>(), "4096", MORE, 67_878);
    explored(&created_late::<256>(), "256", ALL, 20_744);
    explored(&replacement_of_two::<2048>(), "2048", ALL, 43_470);
    explored(&call_of_two_pages::<4096>(), "4096", ALL, 58_566);
    explored(&call::<256>(), "256", ALL, 29_946);
}

/// The same of what comes beside misses of stache; two processors take both at once.
#[test]
#[ignore = "takes three minutes"]
fn more_of_each_other() {
    explored(&by("migratory", turns::<64>()), "64", ALL, 6938);
    explored(&by("migratory", turns::<128>()), "128", ALL, 16314);
    explored(&by("migratory", readers::<64>()), "64", ALL, 4986);
    explored(&by("migratory", replacement_of_two::<64>()), "64", ALL, 971);
    explored(&by("migratory", replacement::<64>()), "64", ALL, 593);
    explored(&by("migratory", parts_of_two::<64>()), "64", ALL, 4588);
    explored(&by("migratory", home_by_use::<64>()), "64", ALL, 4624);
    explored(&by("migratory", history::<64>()), "64", ALL, 4540);
    explored(&side_by_side::<64, 4>(), "64", ALL, 8436);
    explored(&by("home", parts_of_two::<64>()), "64", ALL, 7_176);
    explored(&by("broadcast", read_again_and_again::<64>()), "64", ALL, 26_105);
    explored(&joined::<4096>(), "4096", ALL, 129_191);
    explored(&history::<256>(), "256", ALL, 120_953);
    explored(&own::<4096>(), "4096", ALL, 43_528);
    explored(&joined::<2048>(), "2048", ALL, 34_983);
    explored(&push::<128>(), "128", ALL, 14_887);
    explored(&reduce_again::<64>(), "64", ALL, 44_605);
    explored(&bulk::<64>(), "64", ALL, 34_016);
    explored(&bulk::<1024>(), "1024", ALL, 131_006);
    explored(&side_by_side::<128, 1>(), "128", ALL, 17_393);
    explored(&by("home", call::<64>()), "64", ALL, 21_537);
    explored(&by("broadcast", read_again::<128>()), "128", ALL, 11_685);
}

/// A bug, the property by which it is found, and what finds it, at two sizes.
type Row = (Bug, &'static str, [(&'static str, Model); 2]);

macro_rules! at_two_sizes {
    ($model:ident, [$($small:literal),*], [$($large:literal),*]) => {
        [(stringify!($($small),*), $model::<$($small),*>()), (stringify!($($large),*), $model::<$($large),*>())]
    };
}

fn property(found: &Found) -> &'static str {
    match found {
        Found::Failure(_) => "failure",
        Found::Rejected => "rejected",
        Found::Writers => "writers",
        Found::Stale => "stale",
        Found::Early => "early",
        Found::Kernel => "kernel",
        Found::Standstill(_) => "standstill",
        Found::Endless => "endless",
    }
}

#[test]
fn each_planted_bug_is_found() {
    let rows: Vec<Row> = vec![
        (Bug::TagOfFirstPart, "failure", at_two_sizes!(parts, [128], [4096])),
        (Bug::LastPartOnly, "stale", at_two_sizes!(parts, [128], [1024])),
        (Bug::PartsInOnePlace, "rejected", at_two_sizes!(mixed, [128, 256], [256, 512])),
        (Bug::EvictsWithoutData, "failure", at_two_sizes!(replacement, [64], [256])),
        (Bug::ReplacesWhatIsUsed, "failure", at_two_sizes!(replacement_in_use, [64], [1024])),
        (Bug::EvictsFirstBlockOnly, "stale", at_two_sizes!(replacement_of_two, [64], [512])),
        (Bug::OnePass, "kernel", at_two_sizes!(call, [64], [256])),
        (Bug::CallIsNotPreparedAgain, "kernel", at_two_sizes!(call, [64], [256])),
        (Bug::CallIsMadeAfterWait, "kernel", at_two_sizes!(call_after_request, [64], [128])),
        (Bug::HoldsNoPages, "endless", at_two_sizes!(call_of_two_pages, [64], [128])),
        (Bug::JoinsAnyRequest, "failure", at_two_sizes!(joined, [64], [128])),
        (Bug::AheadIsGranted, "failure", at_two_sizes!(beside, [64], [256])),
        (Bug::OwnAheadIsForgotten, "failure", at_two_sizes!(own, [64], [256])),
        (Bug::TwoHomes, "writers", at_two_sizes!(home_by_use, [64], [512])),
        (Bug::AskerIsHome, "writers", at_two_sizes!(home_by_use, [64], [512])),
        (Bug::EarlyMessageIsDropped, "standstill", at_two_sizes!(home_by_use, [64], [128])),
        (Bug::HoldsNoUntouchedPage, "standstill", at_two_sizes!(created, [64], [256])),
        (Bug::LimitsAreLost, "stale", at_two_sizes!(created, [64], [256])),
        (Bug::NodeZeroKeepsHomes, "rejected", at_two_sizes!(created, [64], [256])),
        (Bug::OtherProtocolIsForgotten, "standstill", at_two_sizes!(side_by_side, [64, 1], [128, 1])),
        (Bug::ReaderHidesStores, "stale", at_two_sizes!(push, [64], [128])),
        (Bug::FlushForgetsReaders, "stale", at_two_sizes!(push, [64], [128])),
        (
            Bug::MovedCopyStays,
            "writers",
            [("64", by("migratory", turns::<64>())), ("128", by("migratory", turns::<128>()))],
        ),
        (
            Bug::LentCopyStays,
            "writers",
            [("64", by("home", wanted_before(parts::<64>()))), ("128", by("home", wanted_before(parts::<128>())))],
        ),
        (
            Bug::CopyIsForgotten,
            "writers",
            [
                ("64", by("broadcast", read_again_and_again::<64>())),
                ("128", by("broadcast", read_again_and_again::<128>())),
            ],
        ),
        (
            Bug::CopyPassesRequest,
            "failure",
            [("64", by("broadcast", read_at_home::<64>())), ("128", by("broadcast", read_at_home::<128>()))],
        ),
        (
            Bug::AnsweredReadIsServed,
            "failure",
            [("64", by("broadcast", read_again::<64>())), ("128", by("broadcast", read_again::<128>()))],
        ),
        (Bug::AddsComeLate, "stale", at_two_sizes!(reduce_late, [64], [128])),
        (Bug::NodesCombinedBackwards, "stale", at_two_sizes!(reduce_of_three, [64], [128])),
        (Bug::RoundsAreMixed, "stale", at_two_sizes!(reduce_next_round, [64], [128])),
        (Bug::BarrierEndsOnHost, "early", at_two_sizes!(barriers_on_hosts, [64], [256])),
        (Bug::BulkEndsEarly, "rejected", at_two_sizes!(bulk, [64], [256])),
        (Bug::StagesWhatIsClaimed, "rejected", at_two_sizes!(bulk, [64], [256])),
    ];
    let mut unfound = vec![];
    // The last one needs messages that are late: see `crate::tests::nodes::transports`.
    let all = &Bug::ALL[10..Bug::ALL.len() - 1];
    assert!(all.iter().all(|bug| rows.iter().filter(|row| row.0 == *bug).count() == 1), "each bug");
    let models = rows.into_iter().flat_map(|(bug, expected, models)| models.map(|sized| (bug, expected, sized)));
    for (bug, expected, (bytes, mut model)) in models {
        model.bug = bug as u64;
        match explore(&model, 30_000) {
            Ok(report) => {
                println!("{bug:?} ({bytes} bytes): NOT FOUND by {}: {report:?}", model.name);
                unfound.push((bug, bytes));
            }
            Err((found, path)) => {
                println!("{bug:?} ({bytes} bytes): {found:?} by {} after {} steps", model.name, path.len());
                if property(&found) != expected {
                    unfound.push((bug, bytes));
                }
            }
        }
    }
    assert!(unfound.is_empty(), "{unfound:?}");
}
