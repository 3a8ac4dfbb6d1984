//! Runs whose nodes Slurm starts, on two hosts, with each of the interfaces that it has for its ranks.

use blizzard_test_harness::tests;
use blizzard_tests::compile::{Job, Language, compile};
use blizzard_tests::network::Network;
use blizzard_tests::run::{Ending, run};
use blizzard_tests::slurm::Slurm;
use blizzard_tests::tool;
use std::path::Path;
use std::time::{Duration, Instant};

tests! { long: ranks_of_slurm_are_nodes }

/// What hangs is ended.
const LIMIT: Duration = Duration::from_secs(120);

fn ranks_of_slurm_are_nodes() {
    let network = Network::with_ucx(2);
    let program = network.folder().join("ends");
    let flags = [tool::config("--cflags").unwrap(), vec!["-O2".to_owned()]].concat();
    let sources = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("hosts/ends.c")];
    let libraries = tool::config("--libs").unwrap();
    compile(&Job { sources, language: Language::C, compiler: "cc", flags, libraries, output: &program }).unwrap();
    let slurm = Slurm::start(&network);
    let blizzard = tool::path();
    let go = |options: &[&str], how: &str| {
        let ours = [blizzard.to_str().unwrap(), "node", "--", program.to_str().unwrap(), how];
        run(&mut slurm.srun(&[options, &ours].concat()), "", LIMIT).unwrap()
    };
    for interface in ["--mpi=pmix", "--mpi=pmi2"] {
        // Nodes of a host follow each other, however its ranks are numbered.
        for placed in ["--distribution=block", "--distribution=cyclic"] {
            let what = [interface, placed, "--nodes=2", "--ntasks-per-node=2"];
            let outcome = go(&what, "count").success().unwrap_or_else(|e| panic!("{what:?}: {e}"));
            let text = outcome.stdout_text();
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort_unstable();
            let right = ["node 0 on a: 200", "node 1 on a: 200", "node 2 on b: 200", "node 3 on b: 200"];
            assert_eq!(lines, right, "{what:?}: {}", outcome.describe());
            assert!(!outcome.stderr_text().contains("blizzard: "), "{what:?}: {}", outcome.describe());
        }
        let outcome = go(&[interface, "--nodes=1", "--ntasks=3"], "count").success().unwrap();
        assert_eq!(outcome.stdout_text().matches(" on a: 150\n").count(), 3, "{}", outcome.describe());
        for (how, line) in [
            ("status", "blizzard: error: node 3 on host b exited with status 7\n"),
            ("killed", "blizzard: error: node 3 on host b was killed by signal 9 (SIGKILL)\n"),
        ] {
            let outcome = go(&[interface, "--nodes=2", "--ntasks-per-node=2", "--kill-on-bad-exit"], how);
            let said = outcome.stderr_text();
            // The greatest status of all ranks: Slurm ends the others by SIGTERM.
            assert!(!matches!(outcome.ending, Ending::Exit(0)), "{interface}: {said}");
            assert_eq!(said.matches(line).count(), 1, "{interface}: {said}");
        }
    }
    let text = go(&["--mpi=none", "--ntasks=1"], "count").stderr_text();
    assert!(
        text.contains("no mpirun, prterun or srun that speaks PMIx or PMI-2") && text.contains("--mpi=list"),
        "{text}"
    );
    let deadline = Instant::now() + Duration::from_secs(10);
    let is_left = || {
        network.all_processes().into_iter().any(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(program.to_str().unwrap())
        })
    };
    while is_left() {
        assert!(Instant::now() < deadline, "a rank is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}
