//! Runs on several hosts, which are network namespaces: the same answers as on one host, how such runs fail, and that nothing is left.

use blizzard_test_harness::needs::{need_system, tool as need_tool};
use blizzard_test_harness::tests;
use blizzard_tests::compile::{Job, Language, compile};
use blizzard_tests::network::Network;
use blizzard_tests::run::{Ending, Outcome, run};
use blizzard_tests::tool;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

tests! {
    programs_give_the_same_answers_on_two_and_three_hosts,
    nodes_know_their_host_and_lines_are_whole,
    input_goes_to_node_0_and_statistics_come_from_all,
    a_barrier_costs_a_message_to_each_host_and_one_back,
    bundles_are_sent_as_they_are,
    what_each_host_learns_comes_back,
    a_debugger_meets_a_node_of_another_host,
    stress_finds_all_in_order_on_two_three_and_four_hosts,
    bench_measures_two_hosts_next_to_tcp,
    litmus_programs_are_in_order_on_two_three_and_four_hosts,
    bulk_data_arrives_on_another_host,
    rules_of_allocations_hold_on_all_hosts,
    agents_end_by_themselves,
    a_node_that_fails_ends_the_run_on_all_hosts,
    a_core_file_is_named_with_its_host,
    a_barrier_without_a_node_that_has_ended_ends_the_run,
    an_agent_that_is_killed_is_named,
    a_host_that_is_cut_off_is_named,
    a_network_that_loses_and_delays_or_is_away_for_a_while_is_endured,
    a_node_that_is_stopped_is_named,
    a_deadlock_is_told_with_each_nodes_host,
    a_run_that_computes_is_not_stuck,
    a_launcher_that_is_killed_leaves_nothing,
    hosts_that_cannot_take_part_are_named,
    a_host_with_too_few_files_is_named,
    builds_that_differ_are_named,
    without_ucx_the_package_is_named,
    bad_lists_of_hosts_are_refused,
    long: eight_hosts_have_128_nodes,
    long: litmus_programs_are_sequentially_consistent_on_two_three_and_four_hosts,
}

/// What hangs is ended.
const LIMIT: Duration = Duration::from_secs(120);

fn build(network: &Network, source: &str, more: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(source);
    let output = network.folder().join(source.file_stem().unwrap());
    let mut flags = tool::config("--cflags").unwrap();
    flags.extend(["-O2".to_owned()].into_iter().chain(more.iter().map(|flag| (*flag).to_owned())));
    let libraries = tool::config("--libs").unwrap();
    compile(&Job { sources: vec![source], language: Language::C, compiler: "cc", flags, libraries, output: &output })
        .unwrap();
    output
}

/// A command of Blizzard's on hosts, over TCP, from a folder that all of them have.
fn on_hosts(network: &Network, words: &[&str], hosts: &str, options: &[&str]) -> Command {
    let mut command = tool::blizzard([words, &["--hosts", hosts, "--launcher"]].concat());
    command.arg(network.starter()).args(options);
    command.current_dir("/").env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", "eth0");
    command
}

/// `blizzard run` of a program there.
fn command(network: &Network, hosts: &str, options: &[&str], program: &Path, args: &[&str]) -> Command {
    let mut command = on_hosts(network, &["run"], hosts, options);
    command.arg("--").arg(program).args(args);
    command
}

fn launch(network: &Network, nodes: u32, options: &[&str], program: &Path, args: &[&str]) -> Outcome {
    run(&mut command(network, &network.list(nodes), options, program, args), "", LIMIT).unwrap()
}

fn sorted(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome.stdout_text().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Nothing runs on any host.
fn assert_nothing_is_left(network: &Network) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !network.all_processes().is_empty() {
        assert!(Instant::now() < deadline, "left: {:?}", network.all_processes());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn programs_give_the_same_answers_on_two_and_three_hosts() {
    let network = Network::with_ucx(3);
    let two = format!("{}:1,{}:1", network.host(0), network.host(1));
    let one_each = network.list(1);
    for (source, args, hosts) in [
        ("examples/heat.c", &[][..], [&*two, &*one_each]),
        ("tests/cases/shared/counters.c", &[], [&*two, &*one_each]),
        ("tests/cases/shared/utilities.c", &[], [&*two, &*one_each]),
        ("tests/cases/shared/update-random.c", &[], [&*two, &*one_each]),
    ] {
        let program = build(&network, source, &[]);
        for hosts in hosts {
            let nodes = hosts.split(',').count().to_string();
            let mut here = tool::blizzard(["run", "-n", &nodes, "--"]);
            let right = run(here.arg(&program).args(args), "", LIMIT).unwrap().success().unwrap();
            let there = run(&mut command(&network, hosts, &[], &program, args), "", LIMIT).unwrap();
            let there = there.success().unwrap_or_else(|e| panic!("{source} on {hosts}: {e}"));
            assert_eq!(sorted(&there), sorted(&right), "{source} on {hosts}");
            assert_eq!(there.stderr_text(), "", "{source} on {hosts}");
        }
    }
    assert_nothing_is_left(&network);
}

fn nodes_know_their_host_and_lines_are_whole() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    let outcome = launch(&network, 2, &["--tag-output"], &program, &["count"]).success().unwrap();
    let line = |node: usize| format!("[node {node}] node {node} on {}: 200", network.host(node / 2));
    assert_eq!(sorted(&outcome), (0..4).map(line).collect::<Vec<_>>());
    let outcome = launch(&network, 1, &[], &program, &["output"]).success().unwrap();
    let text = outcome.stdout_text();
    for node in 0..2 {
        let prefix = format!("node {node} line ");
        let numbers =
            text.lines().filter_map(|line| line.strip_prefix(&prefix)?.split(' ').next()?.parse::<u32>().ok());
        assert!(numbers.eq(0..20_000), "node {node}");
    }
    assert_eq!(text.lines().count(), 40_000);
    // Whoever reads it goes away.
    let mut child =
        command(&network, &network.list(1), &[], &program, &["output"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("node "), "{first}");
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
    assert_nothing_is_left(&network);
}

fn input_goes_to_node_0_and_statistics_come_from_all() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    let stats = network.folder().join("stats.json");
    let options = ["--stats", stats.to_str().unwrap()];
    let input = "all of this\n".repeat(40_000);
    let sum: u64 = input.bytes().map(u64::from).sum();
    let mut command = command(&network, &network.list(1), &options, &program, &["input"]);
    let outcome = run(&mut command, &input, LIMIT).unwrap().success().unwrap();
    let right = [format!("node 0: {} bytes, sum {sum}", input.len()), "node 1: 0 bytes, sum 0".to_owned()];
    assert_eq!(sorted(&outcome), right);
    let stats: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(stats).unwrap()).unwrap();
    assert_eq!((&stats["nodes"], &stats["exit_status"]), (&2.into(), &0.into()));
    for node in 0..2 {
        let counters = &stats["per_node"][node]["counters"];
        assert_eq!(counters["barriers"], 3, "{counters}");
        let count = |name: &str| counters[name].as_u64().unwrap();
        assert!(count("lock_acquires") == 50 && count("messages_received") > 50, "{counters}");
        assert_eq!(count("messages_rejected"), 0);
    }
}

fn bundles_are_sent_as_they_are() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    let (bundle, plain) = (network.folder().join("bundle"), network.folder().join("ends.blz"));
    let folder = ["--bundle", bundle.to_str().unwrap()];
    run(tool::blizzard(["rewrite"]).arg(&program).args(folder), "", LIMIT).unwrap().success().unwrap();
    let outcome = launch(&network, 1, &[], &bundle.join("ends"), &["count"]).success().unwrap();
    let right = [0, 1].map(|node| format!("node {node} on {}: 100", network.host(node)));
    assert_eq!((sorted(&outcome), outcome.stderr_text()), (right.to_vec(), String::new()));
    refused(&network, &launch(&network, 1, &["--access", "guard"], &bundle.join("ends"), &[]), &["another --access"]);
    run(tool::blizzard(["rewrite"]).arg(&program).arg("-o").arg(&plain), "", LIMIT).unwrap().success().unwrap();
    refused(&network, &launch(&network, 1, &[], &plain, &[]), &["rewritten already, for this host"]);
}

/// Each node faults where it reads another one's array, at a place of its own; later neither does.
fn what_each_host_learns_comes_back() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/sites.c", &["-g"]);
    let (file, stats) = (network.folder().join("known"), network.folder().join("stats.json"));
    let go = |words: &[&str], options: &[&str]| {
        let options = [options, &["--look-ahead", "0", "--stats", stats.to_str().unwrap(), "--"]].concat();
        let mut command = on_hosts(&network, words, &network.list(1), &options);
        command.arg(&program).arg("last").env("BLIZZARD_CACHE", network.folder().join("cache"));
        let outcome = run(&mut command, "", LIMIT).unwrap().success().unwrap();
        assert_eq!(sorted(&outcome), ["node 0: 1", "node 1: 0"]);
        let stats: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&stats).unwrap()).unwrap();
        let faults = |node: usize| stats["per_node"][node]["counters"]["untested_accesses"].as_u64().unwrap();
        ([faults(0), faults(1)], outcome.stderr_text())
    };
    let (unlearnt, _) = go(&["run", "--access", "guard", "--no-learn"], &[]);
    let (first, told) = go(&["learn"], &["-o", file.to_str().unwrap()]);
    assert!(
        first.iter().all(|faults| *faults > 0) && told.contains("learnt: ") && told.contains("new"),
        "{first:?} {told}"
    );
    let known = std::fs::read_to_string(&file).unwrap();
    assert!(known.lines().any(|line| line.starts_with("object ") && line.ends_with(" sites")), "{known}");
    let (third, _) = (go(&["run", "--access", "guard"], &[]), go(&["run", "--access", "guard"], &[])).1;
    assert!(
        (0..2).all(|node| third[node] < unlearnt[node] && third[node] <= first[node]),
        "{unlearnt:?} {first:?} {third:?}"
    );
    let (lonely, told) = {
        let mut command = on_hosts(&network, &["learn"], network.host(0), &["--"]);
        let outcome = run(command.arg(&program), "", LIMIT).unwrap().success().unwrap();
        (sorted(&outcome), outcome.stderr_text())
    };
    assert!(lonely == ["node 0: 0"] && told.contains("on one node no access faults"), "{lonely:?} {told}");
    assert_nothing_is_left(&network);
}

/// It reaches the port on that host alone, and reads the files there through it.
fn a_debugger_meets_a_node_of_another_host() {
    let (mut gdb, _) = (need_tool("gdb"), need_tool("gdbserver"));
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/sites.c", &["-g"]);
    refused(
        &network,
        &launch(&network, 1, &["--gdb", "1"], &program, &[]),
        &["--gdb: on several hosts", "--gdb-server"],
    );
    let options = ["--gdb", "1", "--gdb-server", "4711"];
    let mut command = command(&network, &network.list(1), &options, &program, &["last"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let note = said.next().unwrap();
    assert!(note.contains(&format!("node 1 waits for a debugger on host {}", network.host(1))), "{note}");
    let help = said.next().unwrap();
    said.find(|line| line.starts_with("Process ")).unwrap();
    let config = run(&mut tool::blizzard(["config", "--gdb"]), "", LIMIT).unwrap().stdout_text();
    gdb.args(["-nx", "-batch", "-x", config.trim_end(), "-ex", "target remote localhost:4711"]);
    gdb.args(["-ex", "break read_at_last", "-ex", "continue", "-ex", "backtrace", "-ex", "delete", "-ex", "continue"]);
    let mut there = Command::new("ip");
    there.args(["netns", "exec", network.host(1)]).arg(gdb.get_program()).args(gdb.get_args());
    let seen = run(there.arg(help.split(' ').next_back().unwrap()), "", LIMIT).unwrap().stdout_text();
    assert!(seen.contains(" in main (argc=") && seen.contains("exited normally"), "{help}\n{seen}");
    let outcome = child.wait_with_output().unwrap();
    let mut lines: Vec<_> = outcome.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    assert_eq!((lines, outcome.status.code()), (vec![&b"node 0: 1"[..], b"node 1: 0"], Some(0)), "{seen}");
    assert_nothing_is_left(&network);
}

fn stress_finds_all_in_order_on_two_three_and_four_hosts() {
    for (hosts, rounds, access) in [(2, 2, "tests"), (3, 1, "guard"), (4, 1, "tests")] {
        let network = Network::with_ucx(hosts);
        let options = ["--json", "--seed", "6", "--rounds", &rounds.to_string(), "--access", access];
        let outcome = run(&mut on_hosts(&network, &["stress"], &network.list(1), &options), "", LIMIT).unwrap();
        let totals: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap_or_else(|e| {
            panic!("{e}: {}", outcome.describe());
        });
        assert!(outcome.success().is_ok() && totals["finding"].is_null(), "{totals:#}");
        assert_eq!((&totals["nodes"], &totals["hosts"]), (&hosts.into(), &network.list(1).into()));
        assert_eq!(totals["accesses"], rounds * 20_000 * hosts, "{totals:#}");
        for counter in ["loads", "stores", "exchanges", "read_misses", "upgrades", "invalidations_received"] {
            assert!(totals[counter].as_u64().unwrap() > 100, "{counter}: {totals:#}");
        }
        assert_nothing_is_left(&network);
    }
}

fn bench_measures_two_hosts_next_to_tcp() {
    let network = Network::with_ucx(2);
    for (what, figures, floor) in [
        ("miss", 8, "floor: 64 bytes to and fro, TCP"),
        ("am", 3, "floor: 64 bytes to and fro, TCP"),
        ("bulk", 6, "floor: 4 KiB over TCP"),
        ("false-sharing", 2, "floor: on different pages"),
    ] {
        let options = ["--json", "--runs", "1", "--batches", "9"];
        let outcome = run(&mut on_hosts(&network, &["bench", what], &network.list(1), &options), "", LIMIT).unwrap();
        let outcome = outcome.success().unwrap_or_else(|e| panic!("{what}: {e}"));
        let report: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
        assert_eq!(report["hosts"], serde_json::json!([network.host(0), network.host(1)]), "{report:#}");
        assert!(report["steps"].is_null() && report["processors"].is_null(), "{report:#}");
        let all = report["comparisons"].as_array().unwrap();
        assert_eq!(all[0]["floor"]["name"], floor);
        let measured: Vec<_> = all.iter().flat_map(|all| all["figures"].as_array().unwrap()).collect();
        assert_eq!(measured.len(), figures, "{report:#}");
        for figure in measured.into_iter().chain(all.iter().map(|all| &all["floor"])) {
            // No network is as fast as a cache.
            let least = if what == "am" || what == "false-sharing" { 0.0 } else { 1000.0 };
            assert!(figure["median_ns"].as_f64().unwrap() > least && figure["ratio_at_most"].is_null(), "{figure:#}");
        }
    }
    assert_nothing_is_left(&network);
}

/// What more barriers add to what hosts send and get, to the message.
fn a_barrier_costs_a_message_to_each_host_and_one_back() {
    let network = Network::with_ucx(3);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    let stats = network.folder().join("stats.json");
    let host = |number| network.host(number);
    let lists: [Vec<(&str, u64)>; 3] =
        [vec![(host(0), 2), (host(1), 2)], vec![(host(0), 1), (host(1), 2), (host(2), 3)], vec![(host(0), 3)]];
    for hosts in lists {
        let list = hosts.iter().map(|(name, nodes)| format!("{name}:{nodes}")).collect::<Vec<_>>().join(",");
        let counts = |rounds: u64| -> Vec<[u64; 2]> {
            let options = ["--stats", stats.to_str().unwrap()];
            let args = ["meet", "0", &rounds.to_string()];
            run(&mut command(&network, &list, &options, &program, &args), "", LIMIT).unwrap().success().unwrap();
            let stats: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&stats).unwrap()).unwrap();
            for node in stats["per_node"].as_array().unwrap() {
                assert_eq!(node["counters"]["barriers"], 3 + rounds);
                assert_eq!(node["counters"]["messages_rejected"], 0);
            }
            let traffic = stats["hosts"].as_array().unwrap();
            let names = traffic.iter().map(|host| (host["host"].as_str().unwrap(), host["nodes"].as_u64().unwrap()));
            // A host that is alone carries nothing.
            assert!(names.eq(hosts.iter().copied().filter(|_| hosts.len() > 1)), "{traffic:?}");
            let count = |host: &serde_json::Value, what: &str| host[what].as_u64().unwrap();
            traffic.iter().map(|host| ["messages_sent", "messages_received"].map(|what| count(host, what))).collect()
        };
        let (few, many) = (counts(100), counts(300));
        let more: Vec<_> = few.iter().zip(&many).map(|(few, many)| [0, 1].map(|at| many[at] - few[at])).collect();
        let others = hosts.len() as u64 - 1;
        let right: Vec<_> = (0..more.len()).map(|host| [200 * if host == 0 { others } else { 1 }; 2]).collect();
        assert_eq!(more, right, "{list}");
    }
    assert_nothing_is_left(&network);
}

fn bulk_data_arrives_on_another_host() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/tempest/bulk.c", &["-Itests/tempest"]);
    launch(&network, 1, &[], &program, &[]).success().unwrap();
}

/// Misses, what each rule has matched, and what is said of them: as on one host.
fn rules_of_allocations_hold_on_all_hosts() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/sites.c", &["-g"]);
    let (rules, stats) = (network.folder().join("rules"), network.folder().join("stats.json"));
    let (rules_file, stats_file) = (rules.to_str().unwrap(), stats.to_str().unwrap());
    let options = ["--attr", rules_file, "--stats", stats_file, "--look-ahead", "0", "--block-size", "64"];
    let seen = |text: &str, is_on_hosts: bool| {
        std::fs::write(&rules, text).unwrap();
        let mut command = match is_on_hosts {
            true => command(&network, &network.list(2), &options, &program, &[]),
            false => tool::blizzard(["run", "-n", "4"].iter().chain(&options).copied().chain(["--"])),
        };
        if !is_on_hosts {
            command.arg(&program);
        }
        let outcome = run(&mut command, "", LIMIT).unwrap().success().unwrap();
        assert_eq!(sorted(&outcome), (0..4).map(|me| format!("node {me}: {}", (me + 1) % 4)).collect::<Vec<_>>());
        let stats: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&stats).unwrap()).unwrap();
        let misses = |node: usize| stats["per_node"][node]["counters"]["read_misses"].as_u64().unwrap();
        ((0..4).map(misses).sum::<u64>(), stats["allocation_rules"].clone(), outcome.stderr_text())
    };
    let (blocks, bytes) = (4 * 65536 / 64, 4 * 65536);
    let (plain, none, said) = seen("# nothing\n", true);
    assert!(plain >= blocks && none == serde_json::json!([]) && said.is_empty(), "{plain} {none} {said}");
    let text = "own block=4096\nnever block=128\nalloc 2 block=64\n";
    let (few, matched, said) = seen(text, true);
    assert_eq!(plain - few, blocks - bytes / 4096);
    let of_rule = |rule: usize| (matched[rule]["allocations"].as_u64(), matched[rule]["bytes"].as_u64());
    assert_eq!([0, 1, 2].map(of_rule), [(Some(4), Some(bytes)), (Some(0), Some(0)), (Some(0), Some(0))]);
    assert!(said.contains(":2: never: no allocation was made there") && said.contains("is own (sites.c:"), "{said}");
    assert!(said.contains(":3: alloc 2: no node has allocated so often"), "{said}");
    let (here, matched_here, said_here) = seen(text, false);
    assert_eq!((few, matched, said), (here, matched_here, said_here));
    for (text, part) in [
        ("own homes=node:4\n", ":1: homes=node:4: the run has 4 node(s)"),
        ("nowhere block=64\n", ":1: nowhere: the program has no such function"),
    ] {
        std::fs::write(&rules, text).unwrap();
        let outcome = launch(&network, 2, &options, &program, &[]);
        refused(&network, &outcome, &[part]);
    }
}

/// What starts an agent may have to clean up behind it.
fn agents_end_by_themselves() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    let starter = network.folder().join("start-and-clean-up");
    let text = format!("#!/bin/sh\n{} \"$@\"\nsleep 0.1\n>\"$0-$1\"\n", network.starter().display());
    std::fs::write(&starter, text).unwrap();
    std::fs::set_permissions(&starter, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = tool::blizzard(["run", "--hosts", &network.list(1), "--launcher"]);
    command.arg(&starter).arg("--").arg(&program).args(["count", "1"]);
    command.current_dir("/").env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", "eth0");
    let outcome = run(&mut command, "", LIMIT).unwrap().success().unwrap();
    assert_eq!(outcome.stderr_text(), "");
    for host in [0, 1] {
        let mark = format!("start-and-clean-up-{}", network.host(host));
        assert!(network.folder().join(&mark).exists(), "{mark}");
    }
}

fn a_node_that_fails_ends_the_run_on_all_hosts() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    for (how, status, line) in [
        ("status", 7, "exited with status 7"),
        ("killed", 137, "was killed by signal 9 (SIGKILL)"),
        ("crashed", 139, "was killed by signal 11 (SIGSEGV)"),
    ] {
        let outcome = launch(&network, 1, &[], &program, &[how]);
        let text = outcome.stderr_text();
        let line = format!("blizzard: error: node 1 on host {} {line}\n", network.host(1));
        let calls = text.strip_prefix(&line).unwrap_or_else(|| panic!("{}", outcome.describe()));
        assert_eq!(outcome.ending, Ending::Exit(status), "{}", outcome.describe());
        let are_right = if how == "crashed" { calls.ends_with("  by main in ends\n") } else { calls.is_empty() };
        assert!(are_right, "{}", outcome.describe());
        assert_nothing_is_left(&network);
    }
}

/// The host's cache is gone then.
fn a_core_file_is_named_with_its_host() {
    let mut gdb = need_tool("gdb");
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    need_system(!pattern.starts_with(['|', '/']) && !pattern.contains('%'), "core files in the current folder");
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &["-g"]);
    let mut command = command(&network, &network.list(1), &["--core"], &program, &["crashed"]);
    let outcome = run(command.current_dir(network.folder()), "", LIMIT).unwrap();
    let (text, host) = (outcome.stderr_text(), network.host(1));
    assert_eq!(outcome.ending, Ending::Exit(139), "{text}");
    assert!(text.contains(&format!("blizzard: note: node 1 on host {host} has left a core file, ")), "{text}");
    let (_, line) = text.split_once(&format!("\n  help: on host {host}: gdb -x ")).unwrap_or_else(|| panic!("{text}"));
    let seen = run(gdb.args(["-nx", "-batch", "-x", line.trim_end(), "-ex", "backtrace"]), "", LIMIT).unwrap();
    assert!(seen.stdout_text().contains(" in main ("), "{}", seen.describe());
    assert_nothing_is_left(&network);
}

fn a_barrier_without_a_node_that_has_ended_ends_the_run() {
    let network = Network::with_ucx(3);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    for nodes in [1, 2] {
        let outcome = launch(&network, nodes, &[], &program, &["leaves"]);
        let expected = format!(" in bz_barrier, but node {} has exited: it can never complete", 3 * nodes - 1);
        let text = outcome.stderr_text();
        assert!(text.starts_with("blizzard: error: node ") && text.contains(&expected), "{text}");
        assert_eq!(outcome.ending, Ending::Exit(1), "{}", outcome.describe());
        assert_nothing_is_left(&network);
    }
}

/// A run that does not end, when all nodes have begun. `how`: its last node is away for good, or all need each other.
fn endless(network: &Network, options: &[&str], how: &str) -> (Child, BufReader<std::process::ChildStderr>) {
    let program = build(network, "tests/hosts/ends.c", &[]);
    let mut command = command(network, &network.list(1), options, &program, &[how]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    for _ in 0..2 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.starts_with("node ") && line.ends_with(" waits\n"), "{line}");
    }
    (child, lines)
}

/// How it ended, and what it said.
fn ended(mut child: Child, mut lines: BufReader<std::process::ChildStderr>) -> (Option<i32>, String) {
    let mut text = String::new();
    lines.read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code(), text)
}

fn send(signal: &str, pid: i32) {
    assert!(blizzard_test_harness::needs::send_signal(signal, pid as u32));
}

/// The processes of a host that are an agent's.
fn agents(network: &Network, number: usize) -> Vec<i32> {
    let is_agent = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("blizzard\0agent")
    };
    network.processes(number).into_iter().filter(is_agent).collect()
}

fn an_agent_that_is_killed_is_named() {
    let network = Network::with_ucx(2);
    // Each of its two processes, on either host.
    for (number, which) in [(0, 0), (1, 1)] {
        let (child, lines) = endless(&network, &[], "forever");
        let mut agents = agents(&network, number);
        agents.sort_unstable();
        assert_eq!(agents.len(), 2, "{agents:?}");
        let began = Instant::now();
        send("KILL", agents[which]);
        let (status, text) = ended(child, lines);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains(&format!("host {}", network.host(number))), "{text}");
        assert!(began.elapsed() < Duration::from_secs(30));
        assert_nothing_is_left(&network);
    }
}

fn a_host_that_is_cut_off_is_named() {
    let network = Network::with_ucx(2);
    let (child, lines) = endless(&network, &["--peer-timeout", "2"], "forever");
    network.cut(1);
    let (status, text) = ended(child, lines);
    assert_eq!(status, Some(1), "{text}");
    let said = |number: usize| text.contains(&format!("error: host {}", network.host(number)));
    assert!(said(0) || said(1), "{text}");
    assert!(text.contains("nothing has come from it for") || text.contains("the connection is broken"), "{text}");
    assert_nothing_is_left(&network);
}

fn a_network_that_loses_and_delays_or_is_away_for_a_while_is_endured() {
    for (loss, delay, rounds) in [(5, 0, 25), (0, 50, 3)] {
        let network = Network::bad(2, loss, delay);
        let program = build(&network, "tests/hosts/ends.c", &[]);
        let args = ["count", &rounds.to_string()];
        let outcome = launch(&network, 1, &["--stuck-timeout", "1"], &program, &args).success().unwrap();
        let right = [0, 1].map(|node| format!("node {node} on {}: {}", network.host(node), 2 * rounds));
        assert_eq!((sorted(&outcome), &*outcome.stderr_text()), (right.to_vec(), ""), "{loss} %, {delay} ms");
    }
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    // Both nodes sleep for longer than a run may be stuck, but what one has sent is under way.
    let options = ["--peer-timeout", "20", "--stuck-timeout", "1"];
    let mut command = command(&network, &network.list(1), &options, &program, &["input"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Node 0 reads until the input ends; by then the cable is out, and the barrier has to wait for it.
    let mut input = child.stdin.take().unwrap();
    input.write_all(&[b'x'; 4 << 20]).unwrap();
    network.cut(1);
    drop(input);
    std::thread::sleep(Duration::from_secs(3));
    network.mend(1);
    let outcome = child.wait_with_output().unwrap();
    let (said, complaints) = (String::from_utf8(outcome.stdout).unwrap(), String::from_utf8(outcome.stderr).unwrap());
    assert!(outcome.status.success() && complaints.is_empty(), "{said}{complaints}");
    assert!(said.contains("node 0: 4194304 bytes") && said.contains("node 1: 0 bytes"), "{said}");
    assert_nothing_is_left(&network);
}

fn a_node_that_is_stopped_is_named() {
    let network = Network::with_ucx(2);
    let (child, lines) = endless(&network, &["--peer-timeout", "4"], "busy");
    let is_node = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"busy\0"));
    let nodes: Vec<i32> = network.processes(1).into_iter().filter(is_node).collect();
    assert_eq!(nodes.len(), 1);
    let began = Instant::now();
    send("STOP", nodes[0]);
    let (status, text) = ended(child, lines);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains(&format!("host {}: node 1", network.host(1))), "{text}");
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_nothing_is_left(&network);
}

fn a_deadlock_is_told_with_each_nodes_host() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &["-g"]);
    let (one, two) = (network.host(0), network.host(1));
    for hosts in [format!("{one}:1,{two}:2"), format!("{one}:3")] {
        let mut command = command(&network, &hosts, &["--stuck-timeout", "1"], &program, &["locks"]);
        let outcome = run(&mut command, "", LIMIT).unwrap();
        let text = outcome.stderr_text();
        assert_eq!(outcome.ending, Ending::Exit(1), "{}", outcome.describe());
        assert!(text.starts_with("blizzard: error: the run is stuck: all nodes wait for each other"), "{text}");
        let is_on = |node: usize| if hosts.ends_with('2') && node > 0 { two } else { one };
        for (node, waits) in [
            (0, "lock 1 of node 0 node 1"),
            (1, "lock 0 of node 0 node 0"),
            (2, "a barrier or reduction of all nodes not there: nodes 0, 1"),
        ] {
            let row = text.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{node}  "))).unwrap();
            let words: Vec<&str> = row.split_whitespace().collect();
            let row = words.join(" ");
            assert!(row.starts_with(&format!("{} {waits} ", is_on(node))), "{text}");
            // Node 2's call is the last thing that its function does.
            let place = if node < 2 { " s lock_crosswise (ends.c:" } else { " s main (ends.c:" };
            assert!(row.contains(place), "{text}");
        }
        assert_nothing_is_left(&network);
    }
}

fn a_run_that_computes_is_not_stuck() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    let outcome = launch(&network, 2, &["--stuck-timeout", "1"], &program, &["computes"]).success().unwrap();
    assert_eq!(outcome.stderr_text(), "");
}

fn a_launcher_that_is_killed_leaves_nothing() {
    let network = Network::with_ucx(2);
    let (mut child, lines) = endless(&network, &[], "forever");
    // `env`, which has become the launcher.
    send("KILL", child.id() as i32);
    child.wait().unwrap();
    drop(lines);
    assert_nothing_is_left(&network);
}

/// One line, status 2, soon.
fn refused(network: &Network, outcome: &Outcome, parts: &[&str]) {
    let text = outcome.stderr_text();
    assert_eq!(outcome.ending, Ending::Exit(2), "{}", outcome.describe());
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("blizzard: error: ")).collect();
    assert!(errors.len() == 1 && parts.iter().all(|part| text.contains(part)), "{parts:?} in {text}");
    assert!(outcome.took < Duration::from_secs(60), "{:?}", outcome.took);
    assert_nothing_is_left(network);
}

fn hosts_that_cannot_take_part_are_named() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    let (good, other) = (network.host(0), network.host(1));
    let go =
        |hosts: &str, options: &[&str]| run(&mut command(&network, hosts, options, &program, &[]), "", LIMIT).unwrap();
    refused(&network, &go(&format!("{good},nowhere"), &[]), &["host nowhere: no agent was started there"]);
    let absent = ["--agent", "/absent/blizzard"];
    refused(&network, &go(good, &absent), &["no agent was started there", "/absent/blizzard"]);
    let silent = network.folder().join("silent");
    std::fs::write(&silent, "#!/bin/sh\nsleep 1000\n").unwrap();
    std::fs::set_permissions(&silent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let silent = ["--agent", silent.to_str().unwrap()];
    refused(&network, &go(other, &silent), &["no agent has answered within 8 s"]);
    for words in [&["stress"][..], &["bench", "am"]] {
        let outcome = run(&mut on_hosts(&network, words, &format!("{good},nowhere"), &[]), "", LIMIT).unwrap();
        assert!(outcome.stdout.is_empty(), "{}", outcome.describe());
        refused(&network, &outcome, &["host nowhere: no agent was started there"]);
    }
    network.cut(1);
    let apart = go(&format!("{good},{other}"), &[]);
    refused(&network, &apart, &["host "]);
}

/// With the fewest an agent cannot even say which build it is; with the most of these it lacked them when its nodes began, and UCX may end a process that lacks them.
fn a_host_with_too_few_files_is_named() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    let starter = network.folder().join("start-with-few");
    let text = std::fs::read_to_string(network.starter()).unwrap();
    for files in [5, 7, 16, 32] {
        let few = format!("if [ \"$0\" = {} ]; then ulimit -n {files}; fi\nexport BLIZZARD", network.host(1));
        std::fs::write(&starter, text.replacen("export BLIZZARD", &few, 1)).unwrap();
        std::fs::set_permissions(&starter, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = tool::blizzard(["run", "--hosts", &network.list(1), "--launcher"]);
        command.arg(&starter).arg("--").arg(&program).args(["count", "1"]);
        command.current_dir("/").env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", "eth0");
        let outcome = run(&mut command, "", LIMIT).unwrap();
        let name = network.host(1);
        let limit = format!("error: host {name}: the limit of open files is too low: {files} here, and a node needs ");
        refused(&network, &outcome, &[&limit, "\n  help: `ulimit -n "]);
    }
}

fn builds_that_differ_are_named() {
    let network = Network::with_ucx(1);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    let other = network.folder().join("other-blizzard");
    let mut bytes = std::fs::read(tool::path()).unwrap();
    bytes.push(0);
    std::fs::write(&other, bytes).unwrap();
    std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let outcome = launch(&network, 1, &["--agent", other.to_str().unwrap()], &program, &[]);
    let text = outcome.stderr_text();
    refused(&network, &outcome, &["has Blizzard 0.", "and this one is 0.", "--agent PATH"]);
    let builds: Vec<&str> = text.split("(build ").skip(1).map(|rest| &rest[..8]).collect();
    assert!(builds.len() == 2 && builds[0] != builds[1], "{text}");
}

fn without_ucx_the_package_is_named() {
    let network = Network::with_ucx(2);
    let program = build(&network, "tests/hosts/ends.c", &[]);
    // In the host's own mounts an empty file stands where the library is.
    let starter = network.folder().join("start-without");
    let text = std::fs::read_to_string(network.starter()).unwrap();
    let library = "/usr/lib/x86_64-linux-gnu/libucp.so.0";
    let hide = format!("touch /var/tmp/empty\nmount --bind /var/tmp/empty \"$(realpath {library})\"\nexport BLIZZARD");
    std::fs::write(&starter, text.replacen("export BLIZZARD", &hide, 1)).unwrap();
    std::fs::set_permissions(&starter, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = tool::blizzard(["run", "--hosts", &network.list(1), "--launcher"]);
    command.arg(&starter).arg("--").arg(&program).current_dir("/");
    let outcome = run(&mut command, "", LIMIT).unwrap();
    refused(&network, &outcome, &["needs UCX 1.13 or later (Debian package libucx0)"]);
    // A host that is alone needs none.
    let mut alone = tool::blizzard(["run", "--hosts", &format!("{}:2", network.host(0)), "--launcher"]);
    alone.arg(&starter).arg("--").arg(&program).arg("count").current_dir("/");
    let outcome = run(&mut alone, "", LIMIT).unwrap().success().unwrap();
    assert_eq!(sorted(&outcome), [0, 1].map(|node| format!("node {node} on {}: 100", network.host(0))));
}

fn bad_lists_of_hosts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts");
    std::fs::write(&file, "a\nb:x\n").unwrap();
    let file = file.to_str().unwrap();
    for (options, part) in [
        (&["--hosts", "a:2,a"][..], "--hosts: a is named twice"),
        (&["--hosts", "a:1000,b:40"], "more nodes than the 1024"),
        (&["--hosts", ""], "a host without a name"),
        (&["--hostfile", file], ":2: \"x\" is not a number of nodes"),
        (&["--hostfile", "/absent"], "/absent: the host file cannot be read"),
        (&["--hosts", "a", "--launcher", " "], "--launcher: no command"),
        (&["--hosts", "a", "--agent", "a;b"], "characters that a shell"),
        (&["--hosts", "a", "-n", "2"], "cannot be used with"),
        (&["--hosts", "a", "--no-libraries"], "--no-libraries"),
        (&["--hosts", "a", "--fork"], "creates its nodes itself"),
        (&["--hosts", "a:2,b", "--debug-protocols"], "-n 3 in place of the hosts"),
    ] {
        let outcome = run(tool::blizzard(["run"]).args(options).args(["--", "/bin/true"]), "", LIMIT).unwrap();
        let text = outcome.stderr_text();
        assert!(outcome.ending == Ending::Exit(2) && text.contains(part), "{options:?}: {}", outcome.describe());
    }
    for (words, part) in [
        (&["stress", "--hosts", "a"][..], "--hosts: one node alone cannot race"),
        (&["stress", "--hosts", "a:60,b:5"], "65 nodes are more than the 64"),
        (&["stress", "--hosts", "a,b", "-n", "2"], "cannot be used with"),
        (&["stress", "--hostfile", file], ":2: \"x\" is not a number of nodes"),
        (&["bench", "miss", "--hosts", "a:2"], "--hosts a:2: two nodes measure each other, one on each of two hosts"),
        (&["bench", "am", "--hosts", "a,a"], "--hosts: a is named twice"),
        (&["bench", "miss", "--instructions", "--hosts", "a,b"], "cannot be used with"),
        (&["learn", "--hosts", "a,b", "--launcher", " ", "--", "/bin/true"], "--launcher: no command"),
    ] {
        let outcome = run(&mut tool::blizzard(words), "", LIMIT).unwrap();
        let text = outcome.stderr_text();
        assert!(outcome.ending == Ending::Exit(2) && text.contains(part), "{words:?}: {}", outcome.describe());
    }
}

/// EM3D, and barriers, locks, reductions and blocks that all have.
fn eight_hosts_have_128_nodes() {
    let network = Network::with_ucx(8);
    for (source, args, more) in [
        ("tests/cases/shared/many.c", &[][..], &[][..]),
        ("bench-apps/em3d/em3d.c", &["--nodes", "12800", "--iters", "5"], &["-lm"]),
    ] {
        let program = build(&network, source, more);
        let right = run(Command::new(&program).args(args), "", LIMIT).unwrap().success().unwrap();
        let mut command = command(&network, &network.list(16), &[], &program, args);
        let there = run(&mut command, "", Duration::from_secs(600)).unwrap().success().unwrap();
        assert_eq!(there.stdout_text(), right.stdout_text(), "{source}");
    }
    assert_nothing_is_left(&network);
}

/// Programs of `litmus` with the fewest nodes that they take.
const LITMUS: [(&str, u32); 6] = [("sb", 2), ("mp", 2), ("lb", 2), ("corr", 2), ("2+2w", 2), ("iriw", 4)];

/// So many batches of each program on these hosts, some with two nodes; how often what came out is forbidden, by program.
fn litmus(network: &Network, options: &[&str], batches: &str) -> Vec<(&'static str, u64)> {
    let hosts = network.list(1).split(',').count() as u32;
    let outcomes = LITMUS.into_iter().map(|(name, roles)| {
        let program = build(network, &format!("tests/litmus/{name}.c"), &[]);
        let list = network.list(roles.div_ceil(hosts));
        let mut command = command(network, &list, options, &program, &[batches]);
        let outcome = run(&mut command, "", Duration::from_secs(900)).unwrap().success().unwrap();
        let text = outcome.stdout_text();
        let number = |word: &str| text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse::<u64>().ok());
        let (rounds, forbidden) = (number("rounds ").unwrap(), number("forbidden ").unwrap());
        assert!(rounds >= 500 * batches.parse::<u64>().unwrap(), "{name}: {text}");
        (name, forbidden)
    });
    outcomes.collect()
}

fn litmus_programs_are_in_order_on_two_three_and_four_hosts() {
    for hosts in 2..=4 {
        let network = Network::with_ucx(hosts);
        let seen = litmus(&network, &[], "2");
        assert!(seen.iter().all(|(_, forbidden)| *forbidden == 0), "{hosts} hosts: {seen:?}");
        // Without checks each host has its own memory, which shows.
        if hosts == 2 {
            let seen = litmus(&network, &["--checks", "none", "--allow-incomplete"], "2");
            assert!(seen.iter().any(|(_, forbidden)| *forbidden > 0), "without checks: {seen:?}");
        }
        assert_nothing_is_left(&network);
    }
}

fn litmus_programs_are_sequentially_consistent_on_two_three_and_four_hosts() {
    for hosts in 2..=4 {
        let network = Network::with_ucx(hosts);
        for (protocol, access) in [("stache", "tests"), ("mcm", "tests"), ("home", "tests"), ("stache", "guard")] {
            let seen = litmus(&network, &["--protocol", protocol, "--access", access], "10");
            assert!(seen.iter().all(|(_, forbidden)| *forbidden == 0), "{hosts} hosts, {protocol}, {access}: {seen:?}");
        }
    }
}
