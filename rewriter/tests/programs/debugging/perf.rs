//! `perf report` on a rewritten program and a rewritten library, as on the originals; both with more debug information than memory.

use blizzard_test_harness::{needs, tool};
use std::path::Path;
use std::process::Command;

blizzard_test_harness::module! {
    perf_knows_functions_and_lines_of_rewritten_programs_and_libraries,
}

const LIBRARY: &str = r#"
unsigned long in_the_library(unsigned long n) {
    unsigned long x = n;
    for (unsigned long i = 0; i < n; i++) x = x * 6364136223846793005ul + (x >> 29); /* line 4 */
    return x;
}
"#;

const PROGRAM: &str = r#"
#include <stdio.h>
unsigned long in_the_library(unsigned long n);
static volatile unsigned long sink[64];

__attribute__((noinline)) static void in_the_program(unsigned long n) {
    for (unsigned long i = 0; i < n; i++) sink[i & 63] += i * i; /* line 7 */
}

int main(void) {
    in_the_program(120000000);
    printf("%lu\n", in_the_library(150000000));
    return 0;
}
"#;

/// What `perf report` prints of the samples in `folder`, with these columns.
fn report(folder: &Path, columns: &str) -> String {
    let mut command = tool("perf");
    command.current_dir(folder).args(["report", "--stdio", "--no-children", "-q", "-F", columns, "-i", "samples"]);
    let output = command.env("DEBUGINFOD_URLS", "").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The percentage that the first line with `name` begins with.
fn share(report: &str, name: &str) -> f64 {
    let line = report.lines().find(|l| l.contains(name)).unwrap_or_else(|| panic!("{name} is not in:\n{report}"));
    line.trim().split('%').next().unwrap().trim().parse().unwrap_or_else(|_| panic!("no share: {line}"))
}

fn perf_knows_functions_and_lines_of_rewritten_programs_and_libraries() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let probe =
        tool("perf").args(["record", "-q", "-N", "-e", "cpu-clock", "-o"]).arg(at("probe")).arg("true").output();
    needs::need_system(probe.is_ok_and(|o| o.status.success()), "rights to record with perf");
    std::fs::write(at("library.c"), LIBRARY).unwrap();
    std::fs::write(at("program.c"), PROGRAM).unwrap();
    let gcc = |arguments: &[&str]| {
        let output = tool("gcc").current_dir(folder.path()).args(["-O1", "-g3"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    gcc(&["-fPIC", "-shared", "-o", "libsum.so", "library.c"]);
    gcc(&["-o", "program", "program.c", "-L.", "-lsum", "-Wl,-rpath,$ORIGIN"]);
    let rewritten = Command::new(env!("CARGO_BIN_EXE_blizzard"))
        .current_dir(folder.path())
        .env("BLIZZARD_CACHE", at("cache"))
        .args(["rewrite", "-o", "rewritten", "program"])
        .output()
        .unwrap();
    assert!(rewritten.status.success(), "{rewritten:?}");
    let recorded = tool("perf")
        .current_dir(folder.path())
        .env("BLIZZARD_CACHE", at("cache"))
        // perf keeps copies of what it has seen, by build id, in the user's home folder.
        .env("HOME", folder.path())
        .args(["record", "-q", "-N", "-e", "cpu-clock", "-F", "999", "-o", "samples", "./rewritten"])
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{recorded:?}");

    let functions = report(folder.path(), "overhead,sym");
    let (program, library) = (share(&functions, "in_the_program"), share(&functions, "in_the_library"));
    assert!(program > 10.0 && library > 10.0 && program + library > 80.0, "{functions}");
    let lines = report(folder.path(), "overhead,srcline");
    let (program, library) = (share(&lines, "program.c:7"), share(&lines, "library.c:4"));
    assert!(program > 10.0 && library > 10.0, "{lines}");
}
