//! The Tempest interface: the programs of `tests/tempest`, rewritten and run on several nodes. They name the section of the specification
//! that each expectation comes from, and print `ok` when all hold.
//!
//! The first lines of a program say how it is run: `//# nodes: 1 2 3` and `//# run: OPTIONS` of `blizzard run`.

use blizzard_tests::compile::{Job, Language, compile};
use blizzard_tests::run::{Ending, LIMIT, Outcome, run};
use blizzard_tests::tool::{self, Mode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

blizzard_test_harness::tests! {
    pages: ["gcc -O0", "gcc -O2", "clang -O2"],
    tags: ["gcc -O0", "gcc -O2", "clang -O2"],
    disallowed_tag_changes_are_counted_in_debug_runs,
    faults: ["gcc -O0", "gcc -O2", "clang -O2"],
    messages: ["gcc -O0", "gcc -O2", "clang -O2"],
    each_list_of_items_has_a_function,
    early: ["gcc -O0", "gcc -O2", "clang -O2"],
    handlers_of_libraries_have_names,
    bulk: ["gcc -O0", "gcc -O2", "clang -O2"],
    timers: ["gcc -O0", "gcc -O2", "clang -O2"],
    unwinding: ["gcc -O0", "gcc -O2", "gcc -O3 -fno-omit-frame-pointer", "gcc -O2 -no-pie", "gcc -O2 -static", "clang -O2"],
    signals: ["gcc -O0", "gcc -O2", "clang -O2"],
    misuse_ends_the_run_with_the_rules_name,
    threads_are_allowed_where_loops_test_in_each_iteration,
    signals_of_threads,
    a_program_that_was_not_rewritten_is_told_so,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tempest")
}

/// The rewritten program `name`, compiled by `compiler` with `flag`; built once.
fn program(name: &str, compiler: &str, flag: &str) -> PathBuf {
    // Plain code has no polls: a channel was still sending for whoever knew from a barrier that its data had arrived, and a loop that waited for a timer on one
    // node did not end.
    let mode = if flag == "-O0" || compiler == "clang" { Mode::GUARD } else { Mode::TESTS };
    let key = format!("tempest-{name}-{compiler}{flag}");
    build(key, &format!("{name}.c"), compiler, flag, mode)
}

/// A rewritten program, built once; `key` is its name. The one that was rewritten has `-plain` behind it.
fn build(key: String, source: &str, compiler: &str, flags_of_way: &str, mode: Mode) -> PathBuf {
    static BUILT: OnceLock<Mutex<BTreeMap<String, PathBuf>>> = OnceLock::new();
    let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(path) = built.get(&key) {
        return path.clone();
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (plain, output) = (dir.join(format!("{key}-plain")), dir.join(&key));
    let mut flags = tool::config("--cflags").unwrap();
    flags.extend(flags_of_way.split(' ').chain(["-Wall", "-Wextra", "-Werror"]).map(String::from));
    let source = folder().join(source);
    compile(&Job {
        language: Language::of(&source).unwrap(),
        sources: vec![source],
        compiler,
        flags,
        libraries: tool::config("--libs").unwrap(),
        output: &plain,
    })
    .unwrap();
    tool::rewrite(&plain, &output, mode).unwrap().success().unwrap();
    built.insert(key, output.clone());
    output
}

fn launch(program: &Path, nodes: &str, options: &[&str], args: &[&str]) -> Outcome {
    let mut command = tool::blizzard(["run", "-n", nodes]);
    command.args(options).arg("--").arg(program).args(args);
    run(&mut command, "", LIMIT).unwrap()
}

fn expect_ok(what: &str, outcome: &Outcome) {
    assert!(outcome.ending == Ending::Exit(0) && outcome.stdout_text() == "ok\n", "{what}: {}", outcome.describe());
}

/// Runs a program, compiled in this way, as its first lines say.
fn passes(name: &str, way: &str) {
    let source = std::fs::read_to_string(folder().join(format!("{name}.c"))).unwrap();
    let directive = |key: &str| {
        let line = source.lines().find_map(|l| l.strip_prefix("//# ")?.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (nodes, options) = (directive("nodes"), directive("run"));
    assert!(!nodes.is_empty());
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (compiler, flag) = way.split_once(' ').unwrap();
    let program = program(name, compiler, flag);
    for n in &nodes {
        expect_ok(&format!("{name} {way}, {n} nodes"), &launch(&program, n, &options, &[]));
    }
}

fn pages(way: &str) {
    passes("pages", way);
    if way != "gcc -O2" {
        return;
    }
    let few = launch(&program("pages", "gcc", "-O2"), "2", &["--tempest-pages", "10"], &["limit"]);
    expect_ok("section 3.1.3: no memory", &few);
    // The answer alone is 0 whatever is wrong.
    let line = "TPPI_alloc_and_map: no room for a page of 4096 bytes: 0 bytes are free of the 10 pages that a node may map; `blizzard run --tempest-pages`";
    assert_eq!(few.stderr_text().matches(line).count(), 2, "once on each node: {}", few.describe());
}

fn tags(way: &str) {
    passes("tags", way);
}

/// Section 3.2.5: what table 2 does not allow is counted and reported in a debug run, and in no other.
fn disallowed_tag_changes_are_counted_in_debug_runs() {
    let program = program("tags", "gcc", "-O2");
    let stats = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tempest-tags.json");
    for (options, count) in [(&["--tempest-debug"][..], 7), (&[], 0)] {
        let all = [options, &["--stats", stats.to_str().unwrap()]].concat();
        let outcome = launch(&program, "2", &all, &["bad"]);
        expect_ok("bad tag changes", &outcome);
        let text = std::fs::read_to_string(&stats).unwrap();
        assert_eq!(
            text.matches(&format!("\"bad_tag_changes\": {count}")).count(),
            2 + usize::from(count == 0),
            "{text}"
        );
        assert_eq!(outcome.stderr_text().contains("table 2"), count > 0, "{}", outcome.describe());
    }
}

fn faults(way: &str) {
    passes("faults", way);
}

fn messages(way: &str) {
    passes("messages", way);
}

/// Section 3.3.2: of up to four items, and of up to sixteen words, with a block or a region behind them or not. A program's own macros change nothing.
fn each_list_of_items_has_a_function() {
    let (mut lists, mut longest) = (BTreeSet::new(), vec![String::new()]);
    for _ in 0..4 {
        longest = longest.iter().flat_map(|list| ["W", "Ba", "R", "F"].map(|item| format!("{list}{item}"))).collect();
        lists.extend(longest.iter().cloned());
    }
    lists.extend((1..=16).flat_map(|words| ["", "Ba", "R"].map(|end| "W".repeat(words) + end)));
    let mut command = Command::new("gcc");
    command.args(tool::config("--cflags").unwrap());
    let out =
        command.args(["-E", "-P", "-DW=1", "-DBa=", "-xc", "-include", "tempest.h", "/dev/null"]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let functions = text.split("static inline void TPPI_send_").skip(1);
    let names: Vec<&str> = functions.filter_map(|function| function.split('(').next()).collect();
    assert_eq!(names.len(), lists.len());
    assert_eq!(names.iter().map(ToString::to_string).collect::<BTreeSet<_>>(), lists);
}

fn early(way: &str) {
    passes("early", way);
}

/// A library's exported functions are known by the addresses of their new code, which were taken for no functions.
fn handlers_of_libraries_have_names() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tempest-handlers");
    std::fs::create_dir_all(&dir).unwrap();
    let (library, program) = (dir.join("libhandlers.so"), dir.join("program"));
    let compiled = |source: &str, more: &[&str], libraries: Vec<String>, output: &Path| {
        let mut flags = tool::config("--cflags").unwrap();
        flags.extend(more.iter().copied().map(String::from));
        let sources = vec![folder().join(source)];
        compile(&Job { sources, language: Language::C, compiler: "gcc", flags, libraries, output }).unwrap();
    };
    compiled("library/handlers.c", &["-O2", "-fPIC", "-shared"], Vec::new(), &library);
    let mut libraries = vec![library.display().to_string(), format!("-Wl,-rpath,{}", dir.display())];
    libraries.extend(tool::config("--libs").unwrap());
    // The library uses the interface of the program.
    compiled("library/program.c", &["-O2", "-rdynamic"], libraries, &program);
    for nodes in ["1", "3"] {
        expect_ok(nodes, &launch(&program, nodes, &[], &[]));
    }
}

/// Section 3.4, with copies between processes, and where there are none: transfers take turns.
fn bulk(way: &str) {
    passes("bulk", way);
    if way != "gcc -O2" {
        return;
    }
    let program = program("bulk", "gcc", "-O2");
    let no_copies = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no_copies");
    let built =
        blizzard_test_harness::tool("cc").arg("-o").arg(&no_copies).arg(folder().join("no_copies.c")).status().unwrap();
    assert!(built.success());
    for nodes in ["2", "3"] {
        expect_ok("no copies wanted", &launch(&program, nodes, &["--tempest-no-direct-bulk"], &[]));
        let usual = tool::blizzard(["run", "-n", nodes, "--"]);
        let mut refused = Command::new(&no_copies);
        refused.arg(usual.get_program()).args(usual.get_args()).arg(&program);
        for (name, value) in usual.get_envs() {
            match value {
                Some(value) => refused.env(name, value),
                None => refused.env_remove(name),
            };
        }
        expect_ok("copies refused", &run(&mut refused, "", LIMIT).unwrap());
    }
}

fn timers(way: &str) {
    passes("timers", way);
}

/// What a handler sees of the program's calls, in each mode.
fn unwinding(way: &str) {
    let (compiler, flags) = way.split_once(' ').unwrap();
    for mode in [Mode::TESTS, Mode::GUARD] {
        let key = format!("tempest-unwinding-{}-{}", way.replace(' ', ""), mode.access);
        let plain = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{key}-plain"));
        let program = build(key, "unwinding.cpp", compiler, &format!("{flags} -rdynamic"), mode);
        tool::verify(&program, Some(&plain)).unwrap().success().unwrap();
        for nodes in ["1", "2"] {
            let what = format!("unwinding {way}, {}, {nodes} nodes", mode.access);
            expect_ok(&what, &launch(&program, nodes, &[], &[]));
        }
        // An exception that left a handler would leave the runtime in the middle of its work.
        for nodes in ["1", "2"] {
            let outcome = launch(&program, nodes, &[], &["uncaught"]);
            let told = outcome.stdout_text();
            assert!(told.starts_with("ended\n") && !told.contains("WRONG"), "{way}: {}", outcome.describe());
        }
    }
}

/// Signals and system calls beside handlers that take blocks away. A handler of an asynchronous signal that polled between a check and its access let
/// a run of one node use a block that had been taken away, and the kernel used such blocks unasked.
fn signals(way: &str) {
    passes("signals", way);
}

/// What must not be done: how, on how many nodes, and what the message says. Each ends the run.
const MISUSE: [(&str, &str, &str); 60] = [
    (
        "register-readonly-read",
        "2",
        "TPPI_register_blk_acc_fault_handler: a load on a block that is TPPI_Blk_ReadOnly never faults",
    ),
    ("register-writable-read", "1", "a load on a block that is TPPI_Blk_Writable never faults"),
    ("register-writable-write", "1", "a store on a block that is TPPI_Blk_Writable never faults"),
    ("register-nonsense", "1", "TPPI_register_blk_acc_fault_handler: mode 0, tag 1, access 2"),
    ("register-mode", "1", "TPPI_register_blk_acc_fault_handler: mode 64"),
    ("register-data", "1", "TPPI_register_page_fault_handler: 0x"),
    ("map-mode", "1", "TPPI_alloc_and_map: page mode 64"),
    ("block-length", "1", "TPPI_change_blk_acc: a block of 96 bytes"),
    ("block-small", "2", "TPPI_change_blk_acc: a block of 32 bytes"),
    ("block-unmapped", "1", "TPPI_change_blk_acc: the block 0x"),
    ("block-private", "1", "TPPI_change_blk_acc: the block 0x"),
    ("change-nonsense", "1", "TPPI_change_blk_acc: 9 is not a TPPI_BlkTagChange"),
    ("page-fault", "2", "there is no page fault handler"),
    ("page-fault", "1", "there is no page fault handler"),
    ("block-fault", "2", "on a page of mode 1, which has no handler for a load from an Invalid block"),
    ("block-fault", "1", "on a page of mode 1, which has no handler for a load from an Invalid block"),
    ("send-nowhere", "2", "TPPI_send: there is no node 2"),
    ("send-data", "2", "is not a function of rewritten code"),
    ("send-null", "1", "TPPI_send: 0x0 is not a function"),
    ("send-long", "2", "TPPI_send: a body of 4356 bytes; TPPI_MAX_AM_BYTES is 4352"),
    ("send-odd", "2", "TPPI_send: a region of 6 bytes"),
    ("send-skew", "1", "does not start on a word boundary"),
    ("send-negative", "1", "TPPI_send: a region of -4 bytes"),
    ("send-null-region", "2", "TPPI_send: a null pointer to 8 bytes"),
    ("send-null-items", "1", "TPPI_send: a null pointer to 3 items"),
    ("copy-null", "1", "TPPI_change_blk_acc_and_copy: a null pointer to 64 bytes"),
    ("send-forward", "1", "only a message handler has a message to read"),
    ("recv-outside", "1", "TPPI_recv_W: only a message handler has a message to read"),
    ("recv-left", "2", "a message handler left 4 of the 8 bytes"),
    ("recv-left", "1", "a message handler left 4 of the 8 bytes"),
    ("recv-too-much", "1", "TPPI_recv_W: 4 bytes to read, but 0 are left"),
    ("forward-too-much", "1", "TPPI_send: 12 bytes to forward, but 8 are left"),
    ("handler-sleeps", "1", "TPPI_sleep in the handler of a message"),
    ("handler-waits", "2", "bz_barrier in the handler of a message: a handler must not wait"),
    ("handler-waits", "1", "bz_barrier in the handler of a message: a handler must not wait"),
    ("handler-exits", "2", "exit in the handler of a message"),
    ("handler-faults", "2", "the handler of a message loads from 0x"),
    ("handler-faults", "1", "the handler of a message loads from 0x"),
    ("flood", "2", "--tempest-buffer"),
    ("flood-self", "1", "--tempest-buffer"),
    ("never-resumed", "1", "is suspended and no handler resumed it: nothing can end that"),
    ("sleep-forever", "1", "TPPI_sleep waits for TPPI_wakeup: nothing can end that"),
    ("resume-length", "1", "TPPI_resume_va: 3 bytes"),
    ("channel-unknown", "2", "TPPI_channel_send: there is no channel 5 to node 0"),
    ("channel-length", "1", "TPPI_set_channel_dst: 6 bytes"),
    ("channel-null", "1", "TPPI_set_channel_dst: a null pointer to 8 bytes"),
    ("channel-send-null", "2", "TPPI_channel_send: a null pointer to 8 bytes"),
    ("channel-src-pointer", "1", "TPPI_get_src_channel_user_ptr: there is no channel 5 to node 0"),
    ("channel-dst-pointer", "1", "TPPI_set_dst_channel_user_ptr: there is no channel 5 from node 0"),
    ("channel-coherent", "2", "is memory of bz_alloc"),
    ("channel-coherent", "1", "is memory of bz_alloc"),
    ("channel-twice", "2", "has a destination already"),
    ("channel-busy", "1", "TPPI_channel_send: channel 0 is still sending"),
    ("channel-no-destination", "2", "which has no destination here"),
    ("channel-no-destination", "1", "which has no destination here"),
    ("channel-wrong-size", "2", "sends 12 bytes on channel 0, whose destination expects 8"),
    ("channel-not-reset", "1", "before it was reset (Tempest 1.2.1, section 3.4.2)"),
    ("channel-not-reset", "2", "before it was reset (Tempest 1.2.1, section 3.4.2)"),
    ("thread", "1", "uses tempest.h and starts a thread"),
    ("timer-null", "1", "TPPI_schedule_timer: 0x0 is not a function"),
];

fn misuse_ends_the_run_with_the_rules_name() {
    let program = program("misuse", "gcc", "-O2");
    for (how, nodes, words) in MISUSE {
        let outcome = launch(&program, nodes, &["--tempest-buffer", "1000000"], &[how]);
        let told = outcome.stderr_text();
        let ended = matches!(outcome.ending, Ending::Exit(status) if status != 0);
        assert!(
            ended && told.contains(words) && !told.contains("panic"),
            "{how}, {nodes} nodes: {}",
            outcome.describe()
        );
        assert!(!outcome.stdout_text().contains("not reached"), "{how}: {}", outcome.describe());
    }
}

/// Loops of two threads took each other's limits for their own, and used blocks that nobody had tested. Loops that test in each iteration have none.
fn threads_are_allowed_where_loops_test_in_each_iteration() {
    program("misuse", "gcc", "-O2");
    let plain = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tempest-misuse-gcc-O2-plain");
    let outcome = launch(&plain, "1", &["--no-strips"], &["thread"]);
    let went_on = outcome.ending == Ending::Exit(0) && outcome.stdout_text() == "not reached\n";
    assert!(went_on, "{}", outcome.describe());
}

/// Signals of a second thread come at once, and nothing of the interface happens there.
fn signals_of_threads() {
    program("threads", "gcc", "-O2");
    let plain = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tempest-threads-gcc-O2-plain");
    expect_ok("two threads", &launch(&plain, "1", &["--no-strips"], &[]));
}

/// Without access checks there is no Tempest: the original program says so.
fn a_program_that_was_not_rewritten_is_told_so() {
    program("pages", "gcc", "-O2");
    let plain = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tempest-pages-gcc-O2-plain");
    let outcome = run(&mut std::process::Command::new(plain), "", LIMIT).unwrap();
    assert!(outcome.stderr_text().contains("has not been rewritten"), "{}", outcome.describe());
    // One rewritten program, not launched, is a run of one node.
    let alone = run(&mut std::process::Command::new(program("faults", "gcc", "-O2")), "", LIMIT).unwrap();
    expect_ok("not launched", &alone);
}
