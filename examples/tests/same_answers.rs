//! The examples, EM3D and the kernels print the same on any number of nodes as by themselves.

use blizzard_test_harness::tool;
use blizzard_tests::tool;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

blizzard_test_harness::tests! {
    heat,
    fetch,
    histogram,
    em3d,
    em3d_forms,
    em3d_mpi,
    unstructured_forms,
    unstructured_mpi,
    moldyn_forms,
    moldyn_mpi,
    appbt_forms,
    appbt_mpi,
    dsmc_forms,
    dsmc_mpi,
    barnes_forms,
    barnes_mpi,
    kernels,
    update_protocol,
    migratory_protocol,
    home_pages,
    a_full_segment_is_an_error_and_a_line,
}

/// Standard output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {err}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn compile(source: &Path) -> (TempDir, PathBuf) {
    compile_with(&[], source)
}

fn compile_with(options: &[&str], source: &Path) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let flags = |option| tool::config(option).unwrap();
    let mut cc = tool("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror"])
        .args(options)
        .args(flags("--cflags"))
        .arg(source)
        .args(flags("--libs"));
    output(cc.arg("-lm").arg("-o").arg(&program));
    (folder, program)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs `program` by itself, rewritten by itself, and on each number of nodes.
fn compare(program: &Path, args: &[&str], nodes: &[u32]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let rewritten = folder.path().join("rewritten");
    let mode = tool::Mode::TESTS;
    tool::rewrite(program, &rewritten, mode).and_then(|outcome| outcome.success()).unwrap();
    let expected = output(Command::new(program).args(args));
    assert!(!expected.is_empty());
    assert_eq!(output(Command::new(&rewritten).args(args)), expected, "rewritten, not launched");
    for n in nodes {
        let mut launch = tool::blizzard(["run", "-n", &n.to_string(), "--"]);
        assert_eq!(output(launch.arg(&rewritten).args(args)), expected, "{n} nodes, {args:?}");
    }
    expected
}

fn heat() {
    let (_folder, program) = compile(&repository().join("examples/heat.c"));
    compare(&program, &[], &[1, 2, 3, 4]);
}

/// Every operation counts once, in memory and in a counter.
fn fetch() {
    let out = compare(Path::new(env!("CARGO_BIN_EXE_fetch")), &[], &[1, 2, 3]);
    assert_eq!(out, "100000 each\n");
}

fn histogram() {
    let file = repository().join("Cargo.lock");
    let program = Path::new(env!("CARGO_BIN_EXE_histogram"));
    let out = compare(program, &[file.to_str().unwrap()], &[1, 2, 4]);
    let bytes = std::fs::metadata(&file).unwrap().len();
    assert!(out.starts_with(&format!("{bytes} bytes, ")), "{out}");
}

fn em3d() {
    let (_folder, program) = compile(&repository().join("bench-apps/em3d/em3d.c"));
    let all = &[1, 2, 3, 4, 8];
    let usual = compare(&program, &["--nodes", "1920", "--iters", "5"], all);
    let seed = compare(&program, &["--nodes", "1920", "--iters", "5", "--seed", "2"], &[2]);
    assert_ne!(usual.lines().last(), seed.lines().last());
    compare(&program, &["--nodes", "130", "--iters", "3", "--degree", "1", "--remote-percent", "100"], all);
    compare(&program, &["--nodes", "128", "--iters", "0"], &[4]);
    compare(&program, &["--nodes", "1000", "--iters", "3", "--degree", "17", "--remote-percent", "0"], &[3, 32]);
}

type Sizes = [&'static [&'static str]; 3];

const EM3D: Sizes = [
    &["--nodes", "1920", "--iters", "5"],
    &["--nodes", "130", "--iters", "3", "--degree", "1", "--remote-percent", "100"],
    &["--nodes", "1000", "--iters", "2", "--degree", "17", "--remote-percent", "0"],
];
const UNSTRUCTURED: Sizes =
    [&["--side", "12", "--iters", "7"], &["--side", "3", "--iters", "9"], &["--side", "2", "--iters", "0"]];

const MOLDYN: Sizes =
    [&["--cells", "4", "--iters", "23"], &["--cells", "5", "--iters", "2"], &["--cells", "4", "--iters", "0"]];

const APPBT: Sizes =
    [&["--side", "12", "--iters", "2"], &["--side", "5", "--iters", "3"], &["--side", "8", "--iters", "0"]];

const DSMC: Sizes = [
    &["--particles", "2000", "--inflow", "30", "--iters", "9"],
    &["--particles", "10", "--inflow", "1", "--iters", "3"],
    &["--particles", "0", "--inflow", "0", "--iters", "1"],
];

const BARNES: Sizes =
    [&["--bodies", "700", "--steps", "3"], &["--bodies", "9", "--steps", "2"], &["--bodies", "100", "--steps", "0"]];

/// What the plain form prints for each size.
fn of_plain(application: &str, sizes: Sizes) -> [String; 3] {
    let source = repository().join("bench-apps").join(application).join(application).with_extension("c");
    let (_folder, program) = compile(&source);
    sizes.map(|args| output(Command::new(&program).args(args)))
}

/// The forms on shared memory print what the plain one does, on any number of nodes.
fn forms(application: &str, sizes: Sizes) {
    let (shared, expected) = (format!("{application}.c"), of_plain(application, sizes));
    for (options, source) in [(&[][..], &*shared), (&["-DTUNED"], &shared), (&[], "custom.c")] {
        let (folder, program) = compile_with(options, &repository().join("bench-apps").join(application).join(source));
        let rewritten = folder.path().join("rewritten");
        tool::rewrite(&program, &rewritten, tool::Mode::TESTS).and_then(|outcome| outcome.success()).unwrap();
        for (args, expected) in sizes.iter().zip(&expected) {
            for n in ["1", "2", "3", "4", "8"] {
                let mut launch = tool::blizzard(["run", "-n", n, "--"]);
                assert_eq!(output(launch.arg(&rewritten).args(*args)), *expected, "{source}, {n} nodes, {args:?}");
            }
        }
    }
}

fn mpi(application: &str, sizes: Sizes) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut mpicc = tool("mpicc");
    mpicc.args(["-O2", "-Wall", "-Wextra"]).arg(repository().join("bench-apps").join(application).join("mpi.c"));
    output(mpicc.args(["-lm", "-o"]).arg(&program));
    for (args, expected) in sizes.iter().zip(of_plain(application, sizes)) {
        for n in ["1", "2", "3", "8"] {
            let mut run = tool("mpirun");
            run.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            run.args(["--oversubscribe", "-n", n]).arg(&program).args(*args);
            assert_eq!(output(&mut run), expected, "{n} processes, {args:?}");
        }
    }
}

fn em3d_forms() {
    forms("em3d", EM3D);
}

fn em3d_mpi() {
    mpi("em3d", EM3D);
}

fn unstructured_forms() {
    forms("unstructured", UNSTRUCTURED);
}

fn unstructured_mpi() {
    mpi("unstructured", UNSTRUCTURED);
}

fn moldyn_forms() {
    forms("moldyn", MOLDYN);
}

fn moldyn_mpi() {
    mpi("moldyn", MOLDYN);
}

fn appbt_forms() {
    forms("appbt", APPBT);
}

fn appbt_mpi() {
    mpi("appbt", APPBT);
}

fn dsmc_forms() {
    forms("dsmc", DSMC);
}

fn dsmc_mpi() {
    mpi("dsmc", DSMC);
}

fn barnes_forms() {
    forms("barnes", BARNES);
}

fn barnes_mpi() {
    mpi("barnes", BARNES);
}

/// Each kernel, at a size that takes no time.
fn kernels() {
    let sizes = [
        ("fft", "5"),
        ("radix", "5000"),
        ("lu-contiguous", "96"),
        ("lu-rows", "96"),
        ("octree", "200"),
        ("tasks", "64"),
        ("spin", "50"),
        ("pool", "4096"),
    ];
    let folder = repository().join("bench-apps/kernels");
    for (name, size) in sizes {
        let (_folder, program) = compile(&folder.join(name).with_extension("c"));
        let out = compare(&program, &[size], &[1, 2, 3]);
        assert!(out.starts_with(&format!("{name}: checksum ")), "{out}");
    }
    let sources = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(sources.filter(|path| path.extension().is_some_and(|e| e == "c")).count(), sizes.len());
}

/// A protocol of the application's own: fewer messages than the built-in one needs, and the same values on any number of nodes. One node
/// has no remote values, so it is the reference.
fn update_protocol() {
    let (folder, program) = compile(&repository().join("examples/update.c"));
    let rewritten = folder.path().join("rewritten");
    tool::rewrite(&program, &rewritten, tool::Mode::TESTS).and_then(|outcome| outcome.success()).unwrap();
    for args in [&["4096", "8"][..], &["20000", "3"], &["1", "2"]] {
        let on = |n: &str| {
            let mut launch = tool::blizzard(["run", "-n", n, "--"]);
            output(launch.arg(&rewritten).args(args))
        };
        let expected = on("1");
        assert!(expected.contains("values of each kind"), "{expected}");
        for n in ["2", "3", "4", "7"] {
            assert_eq!(on(n), expected, "{n} nodes, {args:?}");
        }
    }
}

/// A protocol with homes, queues and migratory data, in C++: superblocks, all five faults, page modes, timers that give blocks back, channels. No tag
/// change of it is one that the specification does not allow.
fn migratory_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let flags = |option| tool::config(option).unwrap();
    let source = repository().join("examples/migratory.cpp");
    let mut cxx = tool("c++");
    cxx.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args(flags("--cflags"))
        .arg(source)
        .args(flags("--libs"));
    output(cxx.arg("-o").arg(&program));
    for n in ["1", "2", "3", "5"] {
        let mut launch = tool::blizzard(["run", "-n", n, "--tempest-debug", "--"]);
        let out = launch.arg(&program).arg("150").stdin(Stdio::null()).output().unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && err.is_empty(), "{n} nodes: {}: {err}", out.status);
        assert_eq!(String::from_utf8_lossy(&out.stdout), "150 counters\nright\n", "{n} nodes");
    }
}

/// The Rust bindings of tempest.h: pages, faults, messages, timers, channels.
fn home_pages() {
    let folder = tempfile::tempdir().unwrap();
    let rewritten = folder.path().join("rewritten");
    let program = Path::new(env!("CARGO_BIN_EXE_home_pages"));
    tool::rewrite(program, &rewritten, tool::Mode::TESTS).and_then(|outcome| outcome.success()).unwrap();
    let on = |n: &str| output(tool::blizzard(["run", "-n", n, "--"]).arg(&rewritten));
    let expected = on("1");
    assert!(expected.starts_with('['), "{expected}");
    for n in ["2", "3", "5"] {
        assert_eq!(on(n), expected, "{n} nodes");
    }
}

/// Each call of the crate that allocates: `AllocError`, and a line with the call, the bytes, those that are free, and the option.
fn a_full_segment_is_an_error_and_a_line() {
    let program = Path::new(env!("CARGO_BIN_EXE_full"));
    let expected = "no room for 1125899906842624 bytes of shared memory\n".repeat(3)
        + "no room for 16777216 bytes of shared memory after at least 16 pieces\nagain\n";
    for nodes in ["1", "3"] {
        let mut launch = tool::blizzard(["run", "-n", nodes, "--segment-gib", "1", "--"]);
        let output = launch.arg(program).stdin(Stdio::null()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{nodes}: {err}");
        let lines: Vec<&str> = err.lines().filter(|line| line.contains("no room")).collect();
        assert_eq!(lines.len(), 4, "{nodes}: {err}");
        let none = "no `blizzard run --segment-gib`";
        for (line, (call, bytes, remedy)) in lines.iter().zip([
            ("bz_alloc", 1u64 << 50, none),
            ("bz_alloc_on", 1 << 50, none),
            ("bz_alloc_with", 1 << 50, none),
            ("bz_alloc", 1 << 24, "`blizzard run --segment-gib 2`"),
        ]) {
            assert!(line.contains(&format!("{call}: no room for {bytes} bytes (")), "{nodes}: {err}");
            assert!(line.contains(" are free"), "{nodes}: {err}");
            assert!(line.ends_with(&format!("; {remedy} has room for it")), "{nodes}: {err}");
        }
    }
}
