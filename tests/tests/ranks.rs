//! Runs whose nodes `mpirun` starts, on one host and on several; and what the README says of several machines.

use blizzard_test_harness::needs::{in_mount_namespace, need, need_file, need_system, send_signal};
use blizzard_test_harness::tests;
use blizzard_tests::compile::{Job, Language, compile};
use blizzard_tests::network::{MPIRUN, Network};
use blizzard_tests::run::{Ending, Outcome, run};
use blizzard_tests::tool;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

tests! {
    ranks_of_one_host_are_nodes,
    a_rank_that_fails_ends_the_run,
    ranks_that_wait_for_each_other_are_told,
    a_rank_leaves_a_core_file,
    a_rank_with_too_few_files_is_told,
    what_only_run_has_says_what_to_do,
    ranks_of_two_programs_are_told_with_both,
    nothing_is_left_when_mpirun_is_ended,
    ranks_of_two_hosts_are_nodes,
    ranks_of_several_hosts_that_wait_for_each_other_are_told,
    a_host_that_is_lost_for_ever_ends_the_run,
    what_is_missing_is_named,
    the_readme_is_followed_word_by_word,
}

/// What hangs is ended.
const LIMIT: Duration = Duration::from_secs(120);
const PMIX: &str = "/usr/lib/x86_64-linux-gnu/libpmix.so.2";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn build(folder: &Path, source: &str) -> PathBuf {
    let output = folder.join(Path::new(source).file_stem().unwrap());
    let flags = [tool::config("--cflags").unwrap(), vec!["-O2".to_owned()]].concat();
    let libraries = tool::config("--libs").unwrap();
    let sources = vec![root().join(source)];
    compile(&Job { sources, language: Language::C, compiler: "cc", flags, libraries, output: &output }).unwrap();
    output
}

/// `mpirun` with so many ranks of this host.
fn mpirun(ranks: u32, options: &[&str], program: &Path, how: &str) -> Command {
    need("mpirun");
    need_file(PMIX, "libpmix2");
    let mut command = Command::new("env");
    command.args(["--default-signal", "mpirun", "-n", &ranks.to_string()]).arg(tool::path()).arg("node");
    command.args(options).arg("--").arg(program).arg(how).envs(MPIRUN);
    command
}

fn sorted(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome.stdout_text().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// What Blizzard says: `mpirun` has warnings of its own.
fn ours(outcome: &Outcome) -> Vec<String> {
    let text = outcome.stderr_text();
    text.lines().filter(|line| line.starts_with("blizzard: ")).map(str::to_owned).collect()
}

/// Processes that have this in their command line.
fn processes(part: &Path) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has_it = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(part.to_str().unwrap())
    };
    all.filter(has_it).collect()
}

fn assert_nothing_is_left(program: &Path) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !processes(program).is_empty() {
        assert!(Instant::now() < deadline, "left: {:?}", processes(program));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ranks_of_one_host_are_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/hosts/ends.c");
    let stats = folder.path().join("stats.json");
    let input = "all of this\n".repeat(4000);
    let sum: u64 = input.bytes().map(u64::from).sum();
    let options = ["--stats", stats.to_str().unwrap()];
    let outcome = run(&mut mpirun(3, &options, &program, "input"), &input, LIMIT).unwrap().success().unwrap();
    let mut right = vec![format!("node 0: {} bytes, sum {sum}", input.len())];
    right.extend([1, 2].map(|node| format!("node {node}: 0 bytes, sum 0")));
    assert_eq!((sorted(&outcome), ours(&outcome)), (right, vec![]));
    let stats: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(stats).unwrap()).unwrap();
    assert_eq!((&stats["nodes"], &stats["exit_status"]), (&3.into(), &0.into()));
    for node in 0..3 {
        let counters = &stats["per_node"][node]["counters"];
        assert_eq!((&counters["barriers"], &counters["lock_acquires"]), (&3.into(), &50.into()), "{counters}");
    }
    assert_nothing_is_left(&program);
}

fn a_rank_that_fails_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/hosts/ends.c");
    for (how, status, line) in [
        ("status", 7, "blizzard: error: node 2 exited with status 7"),
        ("killed", 137, "blizzard: error: node 2 was killed by signal 9 (SIGKILL)"),
        ("crashed", 139, "blizzard: error: node 2 was killed by signal 11 (SIGSEGV)"),
    ] {
        let outcome = run(&mut mpirun(3, &[], &program, how), "", LIMIT).unwrap();
        assert_eq!(
            (outcome.ending, ours(&outcome)),
            (Ending::Exit(status), vec![line.to_owned()]),
            "{}",
            outcome.describe()
        );
        assert!(how != "crashed" || outcome.stderr_text().contains("  by main in ends\n"), "{}", outcome.describe());
        assert_nothing_is_left(&program);
    }
}

fn ranks_that_wait_for_each_other_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/hosts/ends.c");
    let options = ["--stuck-timeout", "1"];
    let outcome = run(&mut mpirun(3, &options, &program, "locks"), "", LIMIT).unwrap();
    let told = "blizzard: error: the run is stuck: all nodes wait for each other, and none can go on";
    assert_eq!((outcome.ending, ours(&outcome)), (Ending::Exit(1), vec![told.to_owned()]), "{}", outcome.describe());
    let (crosswise, all) = ("lock_crosswise", "a barrier or reduction of all nodes");
    for (row, place) in [
        ("0     lock 1 of node 0", crosswise),
        ("1     lock 0 of node 0", crosswise),
        (&format!("2     {all}"), "main"),
    ] {
        let line = outcome.stderr_text().lines().find(|line| line.trim_start().starts_with(row)).map(str::to_owned);
        assert!(line.is_some_and(|line| line.contains(place)), "{row}: {}", outcome.describe());
    }
    assert_nothing_is_left(&program);
    run(&mut mpirun(3, &options, &program, "computes"), "", LIMIT).unwrap().success().unwrap();
}

fn a_rank_leaves_a_core_file() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    need_system(!pattern.starts_with(['|', '/']) && !pattern.contains('%'), "core files in the current folder");
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/hosts/ends.c");
    let outcome = run(mpirun(2, &["--core"], &program, "crashed").current_dir(folder.path()), "", LIMIT).unwrap();
    let text = outcome.stderr_text();
    assert_eq!(outcome.ending, Ending::Exit(139), "{text}");
    let core = folder.path().join("core");
    let said = ["blizzard: note: node 1 has left a core file, ", core.to_str().unwrap(), "help: on host ", ": gdb -x "];
    assert!(said.iter().all(|part| text.contains(part)) && core.exists(), "{text}");
    assert!(folder.path().join("core.files/gdb").exists(), "{text}");
    assert_nothing_is_left(&program);
}

fn a_rank_with_too_few_files_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/hosts/ends.c");
    let blizzard = tool::path();
    for files in [8, 16] {
        let line = format!("ulimit -n {files}; exec {} node -- {} count", blizzard.display(), program.display());
        let mut command = mpirun(1, &[], &program, "count");
        let outcome = run(command.args([":", "-n", "1", "sh", "-c", &line]), "", LIMIT).unwrap();
        let said = ours(&outcome);
        let limit = format!(": the limit of open files is too low: {files} here, and a node needs ");
        assert!(
            said.len() == 1 && said[0].starts_with("blizzard: error: host ") && said[0].contains(&limit),
            "{said:?}"
        );
        assert_eq!(outcome.ending, Ending::Exit(2), "{}", outcome.describe());
        assert_nothing_is_left(&program);
    }
}

/// They were told as unknown.
fn what_only_run_has_says_what_to_do() {
    for (options, help) in [
        (&["--gdb", "1"][..], "blizzard run --hosts a:2,b:2 --gdb NODE --gdb-server PORT"),
        (&["--gdb-server", "4711"], "--gdb NODE --gdb-server PORT"),
        (&["--debug-protocols"], "blizzard run -n 4 --debug-protocols"),
    ] {
        let outcome = run(tool::blizzard(["node"]).args(options).args(["--", "/bin/true"]), "", LIMIT).unwrap();
        let text = outcome.stderr_text();
        assert!(outcome.ending == Ending::Exit(2) && text.contains(help), "{}", outcome.describe());
    }
}

fn ranks_of_two_programs_are_told_with_both() {
    let folder = tempfile::tempdir().unwrap();
    let (program, other) = (build(folder.path(), "tests/hosts/ends.c"), build(folder.path(), "tests/hosts/sites.c"));
    let mut command = mpirun(1, &[], &program, "count");
    command.args([":", "-n", "1"]).arg(tool::path()).args(["node", "--"]).arg(&other);
    let outcome = run(&mut command, "", LIMIT).unwrap();
    let host = String::from_utf8(Command::new("uname").arg("-n").output().unwrap().stdout).unwrap();
    let (host, program, other) = (host.trim_end(), program.display(), other.display());
    let told = format!("blizzard: error: rank 1 on host {host} runs {other}, and rank 0 on host {host} runs {program}");
    assert_eq!((outcome.ending, ours(&outcome)), (Ending::Exit(2), vec![told]), "{}", outcome.describe());
}

fn nothing_is_left_when_mpirun_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/hosts/ends.c");
    for signal in ["TERM", "KILL"] {
        let mut command = mpirun(2, &[], &program, "forever");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        for _ in 0..2 {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            assert!(line.starts_with("node ") && line.ends_with(" waits\n"), "{line}");
        }
        // `env`, which has become mpirun.
        assert!(send_signal(signal, child.id()));
        child.wait().unwrap();
        lines.read_to_string(&mut String::new()).unwrap();
        assert_nothing_is_left(&program);
    }
}

fn ranks_of_two_hosts_are_nodes() {
    need("mpirun");
    need_file(PMIX, "libpmix2");
    let network = Network::with_ucx(2);
    let program = build(network.folder(), "tests/hosts/ends.c");
    let go = |map: &str, how: &str| {
        let line = format!("mpirun --host a:2,b:2 {map} -x UCX_TLS -x UCX_NET_DEVICES blizzard node -- ./ends {how}");
        run(&mut network.shell(&line), "", LIMIT).unwrap()
    };
    // Nodes of a host follow each other, however its ranks are numbered.
    for map in ["", "--map-by node"] {
        let outcome = go(map, "count").success().unwrap();
        let lines = ["node 0 on a: 200", "node 1 on a: 200", "node 2 on b: 200", "node 3 on b: 200"];
        assert_eq!((sorted(&outcome), ours(&outcome)), (lines.map(str::to_owned).to_vec(), vec![]));
    }
    // What comes to each node in a barrier: at the first one of each host from its other node and from the other host.
    let received = |rounds: u64| -> Vec<u64> {
        let line = "mpirun --host a:2,b:2 -x UCX_TLS -x UCX_NET_DEVICES blizzard node --stats stats.json -- ./ends";
        run(&mut network.shell(&format!("{line} meet 0 {rounds}")), "", LIMIT).unwrap().success().unwrap();
        let text = std::fs::read_to_string(network.folder().join("stats.json")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
        (0..4).map(|node| stats["per_node"][node]["counters"]["messages_received"].as_u64().unwrap()).collect()
    };
    let more: Vec<u64> = received(300).iter().zip(received(100)).map(|(many, few)| many - few).collect();
    assert_eq!(more, [2, 1, 2, 1].map(|each| 200 * each));
    let outcome = go("", "status");
    let line = "blizzard: error: node 3 on host b exited with status 7".to_owned();
    assert_eq!((outcome.ending, ours(&outcome)), (Ending::Exit(7), vec![line]), "{}", outcome.describe());
    assert_nothing_is_left(&program);
}

fn ranks_of_several_hosts_that_wait_for_each_other_are_told() {
    need("mpirun");
    need_file(PMIX, "libpmix2");
    let network = Network::with_ucx(2);
    let program = build(network.folder(), "tests/hosts/ends.c");
    for (hosts, on) in [("a:1,b:2", ["a", "b", "b"]), ("a:2,b:1", ["a", "a", "b"])] {
        let mpirun = format!("mpirun --host {hosts} -x UCX_TLS -x UCX_NET_DEVICES blizzard node --stuck-timeout 1");
        let outcome = run(&mut network.shell(&format!("{mpirun} -- ./ends locks")), "", LIMIT).unwrap();
        let told = "blizzard: error: the run is stuck: all nodes wait for each other, and none can go on";
        assert_eq!(
            (outcome.ending, ours(&outcome)),
            (Ending::Exit(1), vec![told.to_owned()]),
            "{}",
            outcome.describe()
        );
        let text = outcome.stderr_text();
        for (node, waits, place) in [
            (0, "lock 1 of node 0 node 1", " lock_crosswise"),
            (1, "lock 0 of node 0 node 0", " lock_crosswise"),
            (2, "a barrier or reduction of all nodes not there: nodes 0, 1", " main"),
        ] {
            let row = text.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{node}  ")));
            let row = row.unwrap_or_else(|| panic!("{text}")).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(row.starts_with(&format!("{} {waits} ", on[node])) && row.contains(place), "{text}");
        }
        assert_nothing_is_left(&program);
        let outcome = run(&mut network.shell(&format!("{mpirun} -- ./ends computes")), "", LIMIT).unwrap();
        assert_eq!(ours(&outcome.success().unwrap()), Vec::<String>::new());
    }
}

/// `mpirun` itself waits for the daemon of such a host until TCP gives up.
fn a_host_that_is_lost_for_ever_ends_the_run() {
    need("mpirun");
    need_file(PMIX, "libpmix2");
    let network = Network::with_ucx(2);
    let program = build(network.folder(), "tests/hosts/ends.c");
    let mpirun = "timeout -s KILL 60 mpirun --host a:2,b:2 -x UCX_TLS -x UCX_NET_DEVICES";
    let mut command = network.shell(&format!("{mpirun} blizzard node --peer-timeout 4 -- ./ends forever"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.by_ref().filter(|line| line.ends_with(" waits")).take(4).count(), 4);
    network.cut(1);
    let began = Instant::now();
    let said = lines.find(|line| line.starts_with("blizzard: error: "));
    let (status, took) = (child.wait().unwrap(), began.elapsed());
    let said = said.unwrap_or_else(|| panic!("nothing was said; mpirun: {status}"));
    assert!(said.starts_with("blizzard: error: host b, as host a sees it: "), "{said}");
    // Five seconds after its time-out.
    assert!(took < Duration::from_secs(9), "{took:?}");
    assert_nothing_is_left(&program);
    while !network.all_processes().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(20), "left: {:?}", network.all_processes());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn what_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/hosts/ends.c");
    let mut alone = tool::blizzard(["node", "--"]);
    alone.arg(&program).env_remove("PMIX_NAMESPACE").env_remove("PMIX_RANK");
    let outcome = run(&mut alone, "", LIMIT).unwrap();
    let text = outcome.stderr_text();
    assert_eq!(outcome.ending, Ending::Exit(2), "{text}");
    assert!(text.contains("no mpirun, prterun or srun") && text.contains("blizzard run -n 4 -- PROG"), "{text}");
    need_file(PMIX, "libpmix2");
    let mut without = in_mount_namespace(&format!("mount --bind /dev/null {PMIX}"), {
        "mount --bind /dev/null \"$(realpath \"$0\")\"; exec \"$@\""
    });
    without.arg(PMIX).arg(tool::path()).args(["node", "--"]).arg(&program);
    without.envs([("PMIX_NAMESPACE", "1"), ("PMIX_RANK", "0")]);
    let outcome = run(&mut without, "", LIMIT).unwrap();
    let text = outcome.stderr_text();
    assert_eq!(outcome.ending, Ending::Exit(2), "{text}");
    assert!(text.contains("needs PMIx 4.2 or later (Debian package libpmix2)"), "{text}");
}

/// The commands of that section, without what they say of themselves.
fn commands(section: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let section = text.split(&format!("\n## {section}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).map(|line| line.split(" # ").next().unwrap().trim());
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn the_readme_is_followed_word_by_word() {
    need("mpirun");
    need_file(PMIX, "libpmix2");
    let network = Network::with_ucx(2);
    let program = build(network.folder(), "examples/heat.c");
    let right = run(tool::blizzard(["run", "-n", "4", "--"]).arg(&program), "", LIMIT).unwrap().success().unwrap();
    let commands = commands("On several machines");
    let runs = |line: &&String| line.ends_with("-- ./heat");
    assert_eq!(commands.iter().filter(runs).count(), 3, "{commands:?}");
    for line in &commands {
        let outcome = run(&mut network.shell(&line.replace('\'', "'\\''")), "", LIMIT).unwrap();
        let outcome = outcome.success().unwrap_or_else(|e| panic!("{line}: {e}"));
        if runs(&line) {
            assert_eq!((sorted(&outcome), ours(&outcome)), (sorted(&right), vec![]), "{line}");
        }
    }
}
