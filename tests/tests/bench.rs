//! `blizzard bench`: each subcommand measures everything that it says it measures. No test asserts times.

use blizzard_tests::run::run;
use blizzard_tests::tool;
use serde_json::Value;
use std::time::Duration;

blizzard_test_harness::tests! {
    misses_of_all_kinds_and_homes_are_measured,
    messages_are_measured_both_ways_and_in_a_stream,
    bulk_transfers_are_measured_next_to_copies,
    false_sharing_is_measured,
}

/// The object of a short `blizzard bench WHAT`. Where one processor is all there is, the command must refuse by name.
fn bench(what: &str) -> Value {
    let mut command = tool::blizzard(["bench", what, "--json", "--runs", "1", "--batches", "9"]);
    let outcome = run(&mut command, "", Duration::from_secs(400)).unwrap();
    if rustix::thread::sched_getaffinity(None).unwrap().count() < 2 {
        assert!(outcome.stderr_text().contains("two processors"), "{}", outcome.describe());
        blizzard_test_harness::skip("needs two processors");
    }
    serde_json::from_slice(&outcome.stdout).unwrap_or_else(|e| panic!("{what}: {e}: {}", outcome.describe()))
}

/// Each figure's name, after a look at its numbers.
fn figures(report: &Value) -> Vec<String> {
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{report:#}"));
    let mut names = Vec::new();
    for compared in report["comparisons"].as_array().unwrap() {
        let floor = &compared["floor"];
        assert_eq!(number(&floor["ratio_to_floor"]), 1.0, "{report:#}");
        for figure in compared["figures"].as_array().unwrap() {
            let parts = ["lower_quartile_ns", "median_ns", "upper_quartile_ns", "percentile_99_ns"];
            let [lower, median, upper, tail] = parts.map(|part| number(&figure[part]));
            assert!(0.0 < lower && lower <= median && median <= upper && upper <= tail, "{report:#}");
            let ratio = median / number(&floor["median_ns"]);
            assert!((number(&figure["ratio_to_floor"]) / ratio - 1.0).abs() < 1e-9, "{report:#}");
            names.push(figure["name"].as_str().unwrap().to_owned());
        }
    }
    names
}

/// Each step takes the time of its stamp at least.
fn require_steps(report: &Value, count: usize) {
    let steps = report["steps"]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), count);
    assert!(steps.iter().all(|step| step["ns"].as_f64().unwrap() > 0.0), "{report:#}");
    assert!(
        report["steps"]["total_ns"].as_f64().unwrap() > report["steps"]["stamp_ns"].as_f64().unwrap() * count as f64
    );
}

fn misses_of_all_kinds_and_homes_are_measured() {
    let report = bench("miss");
    let names = figures(&report);
    for what in ["read miss", "write miss", "upgrade"] {
        for home in ["spins", "computes"] {
            assert!(names.contains(&format!("{what}, home {home}")), "{names:?}");
        }
    }
    for home in ["sleeps", "in a system call"] {
        assert!(names.contains(&format!("read miss, home {home}")), "{names:?}");
    }
    require_steps(&report, 10);
}

fn messages_are_measured_both_ways_and_in_a_stream() {
    let report = bench("am");
    let names = figures(&report);
    assert_eq!(names.len(), 3, "{names:?}");
    require_steps(&report, 7);
}

/// The program itself compares what arrives with what was sent.
fn bulk_transfers_are_measured_next_to_copies() {
    let report = bench("bulk");
    assert_eq!(figures(&report).len(), 6);
    for compared in report["comparisons"].as_array().unwrap() {
        let figure = &compared["figures"][0];
        let rate = figure["bytes"].as_f64().unwrap() / figure["median_ns"].as_f64().unwrap();
        assert!((figure["gigabytes_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9, "{report:#}");
        assert_eq!(compared["floor"]["bytes"], figure["bytes"]);
    }
}

fn false_sharing_is_measured() {
    let report = bench("false-sharing");
    assert_eq!(figures(&report).len(), 2);
}
