//! Runs whose nodes node 0 creates (`bz_create`, `bz_fork_nodes`): what a created node begins with, and how such runs end.

use blizzard_tests::compile::{Job, Language, compile};
use blizzard_tests::run::{Ending, LIMIT, Outcome, run};
use blizzard_tests::tool;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn build(name: &str, more: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join(name);
    let mut flags = tool::config("--cflags").unwrap();
    flags.push("-O2".into());
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("creating").join(name).with_extension("c");
    let libraries = tool::config("--libs").unwrap();
    compile(&Job { sources: vec![source], language: Language::C, compiler: "cc", flags, libraries, output: &output })
        .unwrap();
    (folder, output)
}

fn launch(nodes: u32, program: &Path, args: &[&str]) -> Outcome {
    launch_with(&[], nodes, program, args)
}

fn launch_with(options: &[&str], nodes: u32, program: &Path, args: &[&str]) -> Outcome {
    let mut command = tool::blizzard(["run", "-n", &nodes.to_string()]);
    command.args(options).arg("--");
    command.arg(program).args(args);
    run(&mut command, "", LIMIT).unwrap()
}

fn private_data(more: &[&str]) {
    let (_folder, program) = build("private", more);
    for nodes in [1, 2, 4, 8] {
        for args in [&[][..], &["late"]] {
            let outcome = launch(nodes, &program, args).success().unwrap();
            let others = nodes - 1;
            let right = format!(
                "written once: {others} right, {others} letters, position {others}, heap {}\n",
                if nodes > 1 { 6 } else { 0 }
            );
            assert_eq!(outcome.stdout_text(), right, "{nodes} nodes {args:?}");
        }
    }
}

#[test]
fn a_created_node_begins_with_node_0s_private_data() {
    private_data(&[]);
}

/// What node 0 wrote while it was alone, the others find by whatever protocol the run has, and also when node 0 may not keep all of it.
#[test]
fn what_node_0_wrote_alone_is_found_under_both_protocols_and_a_bound_on_copies() {
    let (_folder, program) = build("private", &[]);
    for (protocol, nodes, pages) in [("mcm", 2, "1000"), ("mcm", 5, "40"), ("stache", 2, "35"), ("stache", 5, "40")] {
        let outcome = launch_with(&["--protocol", protocol, "--stache-pages", pages], nodes, &program, &[]);
        let outcome = outcome.success().unwrap();
        let others = nodes - 1;
        let right = format!("written once: {others} right, {others} letters, position {others}, heap 6\n");
        assert_eq!(outcome.stdout_text(), right);
    }
}

/// Each arena has a limit of its own up to which node 0 had everything. An allocation with homes on a node that was not there yet never returned.
#[test]
fn allocations_of_node_0_alone_keep_their_data_whatever_their_attributes() {
    let (_folder, program) = build("attributes", &[]);
    let run_options = [&[][..], &["--stache-pages", "16", "--homes", "first-touch", "--block-size", "512"]];
    // With few pages node 0 gives back what it has written before the others existed.
    let few = &["--stache-pages", "16"][..];
    let runs = [("stache", run_options[0]), ("stache", run_options[1]), ("mcm", run_options[0]), ("home", few)];
    for (protocol, options) in runs {
        let options = [&["--protocol", protocol], options].concat();
        let outcome = launch_with(&options, 3, &program, &[]).success().unwrap();
        // 528 is the sum of the factors, 1200 what the nodes add to the words of each allocation.
        assert_eq!(outcome.stdout_text(), format!("0 0 0 {0} {0} {0}\n", 528 * 1200));
    }
}

/// The mark that makes `blizzard run` start node 0 alone is in a segment, which neither `strip` nor the linker's collection of unused
/// sections takes away; and the C library's `fork` is another one in a static program.
#[test]
fn a_static_stripped_program_creates_nodes_too() {
    private_data(&["-static", "-s", "-Wl,--gc-sections", "-ffunction-sections"]);
}

/// A program by itself is one node, before and after it was rewritten.
#[test]
fn a_program_by_itself_creates_nobody() {
    let (folder, program) = build("private", &[]);
    let rewritten = folder.path().join("rewritten");
    tool::rewrite(&program, &rewritten, tool::Mode::TESTS).unwrap().success().unwrap();
    for program in [&program, &rewritten] {
        let outcome = run(&mut Command::new(program), "", LIMIT).unwrap().success().unwrap();
        assert_eq!(outcome.stdout_text(), "written once: 0 right, 0 letters, position 0, heap 0\n");
    }
}

#[test]
fn ends() {
    let (_folder, program) = build("ends", &[]);
    let fails = |how: &str, text: &str| {
        let outcome = launch(3, &program, &[how]);
        assert!(!matches!(outcome.ending, Ending::Exit(0)), "{how}: {:?}", outcome.ending);
        let err = String::from_utf8_lossy(&outcome.stderr).into_owned();
        // One message; the calls that led there follow it, indented.
        let messages = err.lines().filter(|line| !line.starts_with("  ")).count();
        assert!(messages == 1 && err.contains(text), "{how}: {err}");
        outcome.ending
    };
    fails("aborts", "SIGABRT");
    assert_eq!(fails("exits", "exited with status 3"), Ending::Exit(3));
    fails("killed", "SIGKILL");
    fails("died: node 0 ends while the others compute", "node 0 was killed by signal 6 (SIGABRT)");
    fails("more nodes than the run has", "run it with `-n 4`");
    fails("waits for nodes that it has not created", "waits for 2 nodes to end, but has created 1");
    // Node 0 asked a node for its part of the segment, or told it to write, that was never created, and waited for ever.
    fails("invalid pointer into the part of a node that is not there", "is not the start of an allocation");
    fails("orders to a node that is not there", "bz_remote_write: node 1 has not been created");
    let prints = |how: &str, text: &str| {
        assert_eq!(launch(3, &program, &[how]).success().unwrap().stdout_text(), text, "{how}");
    };
    prints("no wait", "");
    prints("hints about the parts of nodes that are not there", "0 0 -1\n");
    prints("fewer", "1 0 -1\n");
    // Again and again: a node that was created after the release arrived at the barrier before its `fork` had returned in node 0, which
    // then did not know it, dropped its message and waited for ever.
    for _ in 0..20 {
        prints("barriers and reductions", "0 9 -1\n");
    }
    // The created nodes must begin where node 0's count of collectives is, or nobody would ever be let go.
    prints("goes through barriers alone, then with the others", "0 9 -1\n");
    prints("children of created nodes", "5 0 -1\n");
}

/// The launcher did not start the created nodes, but it ends them.
#[test]
fn a_signal_to_the_launcher_ends_created_nodes() {
    let (_folder, program) = build("ends", &[]);
    // Nodes 1 and 2 compute for ever.
    let mut command = Command::new("timeout");
    command.args(["-s", "TERM", "2"]).arg(tool::path()).args(["run", "-n", "3", "--"]).arg(&program).arg("spins");
    let outcome = run(&mut command, "", LIMIT).unwrap();
    assert_eq!(outcome.ending, Ending::Exit(124), "{}", String::from_utf8_lossy(&outcome.stderr));
}
