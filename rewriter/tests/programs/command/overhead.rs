//! `blizzard overhead` as users meet it: the table, the JSON, and each kind of program that is hard to measure.

use crate::sources::{blizzard, compile, finished};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

blizzard_test_harness::module! {
    all_forms_are_compared_with_the_original,
    counts_are_exact_and_repeatable,
    code_around_a_loop_is_no_round_of_it,
    the_page_is_whole_and_needs_nothing_else,
    threads_children_and_libraries_opened_later_count,
    a_failing_program_is_measured_with_its_status,
    a_program_that_a_signal_ends_is_refused,
    an_interrupted_measurement_has_the_signals_status,
    standard_input_is_given_to_each_run_from_its_start,
    a_program_that_needs_a_terminal_is_named,
    chance_is_not_taken_for_a_terminal,
    a_short_program_is_repeated_and_said_to_be_short,
    a_program_that_takes_too_long_is_ended_at_the_limit,
    one_run_is_one_run_of_each,
    changing_output_is_named_and_not_compared,
    a_changing_exit_status_is_refused,
    a_rewritten_program_that_prints_something_else_is_an_error,
    what_cannot_be_measured_is_refused_before_anything_runs,
}

/// A folder with a compiled program `prog`, and a cache of its own.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new(body: &str) -> Self {
        let bench = Bench { folder: tempfile::tempdir().unwrap() };
        let source = format!(
            "#include <fcntl.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <time.h>\n\
             #include <unistd.h>\n{body}\n"
        );
        compile(&source, &bench.at("prog"), &["-O1", "-g"]);
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = blizzard(self.folder.path());
        command.arg("overhead").args(args);
        command
    }

    /// What it prints, and its exit status.
    fn run(&self, args: &[&str]) -> (String, String, i32) {
        finished(self.command(args).output().unwrap())
    }

    /// As [`Bench::run`], for what must succeed: the JSON.
    fn json(&self, args: &[&str]) -> serde_json::Value {
        let (out, err, status) = self.run(&[&["--json"], args].concat());
        assert_eq!((err.as_str(), status), ("", 0), "{out}");
        serde_json::from_str(&out).unwrap()
    }
}

fn remarks(report: &serde_json::Value) -> String {
    report["remarks"].as_array().unwrap().iter().map(|r| r.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Works for a tenth of a second or so, in memory.
const WORK: &str = r#"
static unsigned *p;
static unsigned work(unsigned rounds) {
    p = malloc(1 << 16);
    memset(p, 1, 1 << 16);
    unsigned sum = 0;
    for (unsigned k = 0; k < rounds; k++)
        for (unsigned i = 0; i < 1 << 14; i++) sum += p[i] ^= sum;
    return sum;
}
"#;

fn all_forms_are_compared_with_the_original() {
    let bench = Bench::new(&format!("{WORK}\nint main(void) {{ printf(\"%u\\n\", work(1000)); return 0; }}"));
    let (out, err, status) = bench.run(&["-r", "2", "--", "./prog"]);
    assert_eq!((err.as_str(), status), ("", 0));
    let names = ["original", "relocated", "loads only", "stores only", "all", "all + polls", "guarded"];
    let rows: Vec<_> = out.lines().skip(4).take(names.len()).collect();
    for (row, name) in rows.iter().zip(names) {
        assert!(row.starts_with(&format!("{name} ")), "{out}");
    }
    assert!(out.starts_with("./prog: 2 runs of each, in turn"), "{out}");
    assert!(out.lines().nth(1).unwrap().starts_with("noise: the original itself takes "), "{out}");
    assert!(!out.contains("all shared"), "{out}");
    let (out, _, status) = bench.run(&["-r", "1", "--no-counts", "--variants", "guarded", "--shared", "--", "./prog"]);
    assert!(status == 0 && out.contains("guarded ") && out.contains("all shared "), "{out}");
    let report = bench.json(&["-r", "3", "--variants", "all", "--", "./prog"]);
    let variants = report["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 2);
    let middle = |variant: &serde_json::Value| {
        let mut seconds: Vec<_> =
            variant["cpu_seconds"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
        seconds.sort_by(f64::total_cmp);
        seconds[1]
    };
    for variant in variants {
        assert_eq!(variant["cpu_seconds"].as_array().unwrap().len(), 3);
        let ratio = &variant["ratio"];
        let value = |name: &str| ratio[name].as_f64().unwrap();
        assert!(0.0 < value("min") && value("min") <= value("median") && value("median") <= value("max"));
        // Seconds and ratios agree.
        assert!((value("median") * middle(&variants[0]) / middle(variant) - 1.0).abs() < 1e-9, "{report}");
    }
    assert!(
        report["code_bytes"][1]["program"].as_u64().unwrap() > report["code_bytes"][0]["program"].as_u64().unwrap()
    );
}

/// How often accesses of this class were executed in function `name`.
fn executed(report: &serde_json::Value, name: &str, class: &str) -> u64 {
    let functions = report["counts"]["functions"].as_array().unwrap();
    let found = functions.iter().find(|f| f["name"] == name).unwrap_or_else(|| panic!("no {name} in {functions:#?}"));
    found["classes"][class]["times"].as_u64().unwrap()
}

/// `touch(n)` executes n checked loads and n + 1 checked stores.
const TOUCH: &str = r#"
static unsigned *volatile shared;
__attribute__((noinline)) void touch(unsigned n) {
    unsigned *p = shared, sum = 0;
    for (unsigned i = 0; i != n; i++) { sum += *(volatile unsigned *)(p + (i & 63)); ((volatile unsigned *)p)[64] = sum; }
    ((volatile unsigned *)p)[65] = sum;
}
"#;

fn counts_are_exact_and_repeatable() {
    let bench = Bench::new(&format!(
        "{TOUCH}\nint main(void) {{ shared = malloc(999); memset(shared, 1, 999); touch(1000003); return 0; }}"
    ));
    let args = ["-r", "1", "--variants", "original", "--", "./prog"];
    let report = bench.json(&args);
    assert_eq!(executed(&report, "touch", "load"), 1_000_003);
    assert_eq!(executed(&report, "touch", "store"), 1_000_004);
    // A backward jump out of the loop is taken for another one.
    let heads = executed(&report, "touch", "poll");
    assert!([1_000_003, 1_000_004].contains(&heads), "{heads}");
    assert!(!remarks(&report).contains("changes its behaviour"), "{report}");
    let function = report["counts"]["functions"].as_array().unwrap().iter().find(|f| f["name"] == "touch").unwrap();
    assert!(function["source"].as_str().unwrap().starts_with("prog.c:"), "{function}");
    assert_eq!(function["entered"], 1);
    let hottest = &report["counts"]["loops"][0];
    assert!(hottest["name"].as_str().unwrap().starts_with("touch+"), "{hottest}");
    assert_eq!(hottest["entered"], 1_000_003);
    let again = bench.json(&args);
    for part in ["instructions", "inserted", "files", "classes", "runtime", "functions", "loops"] {
        assert_eq!(again["counts"][part], report["counts"][part], "{part}");
    }
}

/// Loops that are tested for several rounds at a time have inserted code of their own at the same address.
fn code_around_a_loop_is_no_round_of_it() {
    let bench = Bench::new(
        "__attribute__((noinline)) long total(long *p, long n) { long sum = 0; for (long i = 0; i < n; i++) sum += p[i]; return sum; }\n\
         int main(void) { long *p = calloc(100000, 8), sum = 0; for (int k = 0; k < 3; k++) sum += total(p, 100000 - k); return (int)sum; }",
    );
    let report = bench.json(&["-r", "1", "--variants", "original", "--html", "page.html", "--", "./prog"]);
    let loops = report["counts"]["loops"].as_array().unwrap();
    let of_total = loops.iter().find(|l| l["name"].as_str().unwrap().starts_with("total")).unwrap();
    assert_eq!(of_total["entered"], 299_997, "{of_total}");
    let page = fs::read_to_string(bench.at("page.html")).unwrap();
    assert!(page.contains(">299,997<"), "{page}");
}

fn the_page_is_whole_and_needs_nothing_else() {
    let bench = Bench::new(&format!(
        "{TOUCH}\nint main(void) {{ shared = malloc(999); memset(shared, 1, 999); touch(500000); return 0; }}"
    ));
    let report = bench.json(&["-r", "1", "--variants", "all", "--html", "page.html", "--", "./prog", "<script>"]);
    let page = fs::read_to_string(bench.at("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for outside in ["<script", "http:", "https:", "src=", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(
        page.contains("noise is unknown")
            && page.contains("&lt;script&gt;")
            && page.contains("load, checked inline (2 instructions)"),
        "{page}"
    );
    assert!(page.contains("-r 1 --variants all --html page.html -- ./prog"));
    for what in ["version", "date", "machine"] {
        assert!(page.contains(report["setting"][what].as_str().unwrap()), "{what}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    let (_, err, status) = bench.run(&["-r", "1", "--html", "no/such/folder.html", "--", "./prog"]);
    assert_eq!(status, 1);
    assert!(
        err.starts_with("blizzard: error: cannot write the page no/such/folder.html") && !err.contains("at path"),
        "{err}"
    );
    let (_, err, status) = bench.run(&["-r", "1", "--html", "-", "--", "./prog"]);
    assert!(status == 1 && err.starts_with("blizzard: error: --html -: ") && !bench.at("-").exists(), "{err}");
}

fn threads_children_and_libraries_opened_later_count() {
    let bench = Bench::new(&format!(
        r#"{TOUCH}
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
static void *thread(void *n) {{ touch((unsigned)(long)n); return 0; }}
int main(void) {{
    pthread_t threads[4];
    int status;
    shared = malloc(999);
    for (long t = 0; t < 4; t++) pthread_create(&threads[t], 0, thread, (void *)(100000 + t));
    for (int t = 0; t < 4; t++) pthread_join(threads[t], 0);
    // One child ends in the usual way, one is killed.
    for (int c = 0; c < 2; c++)
        if (fork() == 0) {{ touch(300000); if (c) raise(SIGKILL); exit(0); }}
    wait(&status); wait(&status);
    for (int k = 0; k < 2; k++) {{
        void *library = dlopen("./library.so", RTLD_NOW);
        ((void (*)(unsigned *, unsigned))dlsym(library, "fill"))(shared, 250000);
        dlclose(library);
    }}
    return 0;
}}"#
    ));
    let source = "void fill(unsigned *p, unsigned n) { for (unsigned i = 0; i != n; i++) ((volatile unsigned *)p)[i & 63] = i; }";
    fs::write(bench.at("library.c"), source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC"]).arg(bench.at("library.c")).arg("-o").arg(bench.at("library.so"));
    assert!(cc.status().unwrap().success());
    let report = bench.json(&["-r", "1", "--variants", "original", "--", "./prog"]);
    assert_eq!(executed(&report, "touch", "load"), 400_006 + 600_000);
    assert_eq!(executed(&report, "fill", "store"), 500_000);
    assert!(!remarks(&report).contains("not counted"), "{report}");
}

fn a_failing_program_is_measured_with_its_status() {
    let bench = Bench::new("int main(void) { fputs(\"no luck\\n\", stderr); return 3; }");
    let report = bench.json(&["-r", "2", "--", "./prog"]);
    assert_eq!(report["exit_status"], 3);
    assert!(remarks(&report).contains("exit status 3"), "{report}");
    assert!(remarks(&report).contains("8 bytes to standard error"), "{report}");
}

fn an_interrupted_measurement_has_the_signals_status() {
    let bench =
        Bench::new(r#"int main(void) { close(open("began", O_CREAT | O_WRONLY, 0600)); sleep(60); return 0; }"#);
    let mut command = bench.command(&["--", "./prog"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while !bench.at("began").exists() {
        assert!(Instant::now() < limit, "nothing is measured");
        std::thread::sleep(Duration::from_millis(10));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    let (_, err, status) = finished(child.wait_with_output().unwrap());
    assert_eq!((err.as_str(), status), ("blizzard: error: stopped by SIGTERM\n", 143));
}

fn a_program_that_a_signal_ends_is_refused() {
    let bench = Bench::new("int main(void) { fputs(\"last words\\n\", stderr); abort(); }");
    let (out, err, status) = bench.run(&["-r", "2", "--", "./prog"]);
    assert_eq!((out.as_str(), status), ("", 1));
    assert!(
        err.starts_with("blizzard: error: ./prog: was killed by signal 6 (SIGABRT) without being rewritten"),
        "{err}"
    );
    assert!(err.contains("standard error: last words"), "{err}");
}

fn standard_input_is_given_to_each_run_from_its_start() {
    let body = "int main(void) { int c, n = 0; while ((c = getchar()) != EOF) n++; printf(\"%d\\n\", n); return n != 700000; }";
    let bench = Bench::new(body);
    fs::write(bench.at("input"), vec![b'x'; 700_000]).unwrap();
    let mut command = bench.command(&["-r", "2", "--", "./prog"]);
    let output = command.stdin(fs::File::open(bench.at("input")).unwrap()).output().unwrap();
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), ("", Some(0)));
    // From a pipe, which cannot be read twice.
    let mut command = bench.command(&["-r", "2", "--json", "--", "./prog"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &[b'x'; 700_000]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["exit_status"], 0);
}

fn a_program_that_needs_a_terminal_is_named() {
    for body in [
        "int main(void) { return isatty(1) ? 0 : 4; }",
        // Its terminal, whatever the standard streams are.
        "int main(void) { return open(\"/dev/tty\", O_RDWR) < 0 ? 4 : 0; }",
        // Waits for somebody to type.
        "int main(void) { char c; int fd = open(\"/dev/tty\", O_RDWR); return fd < 0 ? 4 : read(fd, &c, 1) != 1; }",
    ] {
        let bench = Bench::new(body);
        let (out, err, status) = bench.run(&["-r", "2", "--", "./prog"]);
        assert_eq!((out.as_str(), status), ("", 1), "{body}");
        assert!(err.starts_with("blizzard: error: ./prog: needs a terminal: it ends with exit status 4"), "{err}");
    }
}

/// It ends in another way on the terminal that it is tried on, but only because it does so every second time.
fn chance_is_not_taken_for_a_terminal() {
    let body = "int main(void) { int fd = open(\"log\", O_RDWR | O_APPEND | O_CREAT, 0600); char x[99]; int n = read(fd, x, 99);\n\
                return write(fd, \"x\", 1) == 1 ? n % 2 ? 0 : 4 : 9; }";
    let (out, err, status) = Bench::new(body).run(&["-r", "2", "--", "./prog"]);
    assert_eq!((out.as_str(), status), ("", 1));
    assert!(err.contains("changes its behaviour between runs") && !err.contains("terminal"), "{err}");
}

fn a_short_program_is_repeated_and_said_to_be_short() {
    let bench = Bench::new("int main(void) { return 0; }");
    // The first run says how many there will be. One that a busy machine made long says too few: the most of several are taken.
    let reports = (0..5).map(|_| bench.json(&["--", "./prog"]));
    let enough = |report: &serde_json::Value| report["runs"].as_u64().unwrap() >= 20;
    let report = reports.into_iter().find(enough).expect("one of five reports has 20 runs");
    assert!(remarks(&report).contains("the resolution is poor"), "{report}");
}

fn a_program_that_takes_too_long_is_ended_at_the_limit() {
    let bench = Bench::new("int main(void) { if (fork() == 0) for (;;) pause(); for (;;) pause(); }");
    let begin = Instant::now();
    let (out, err, status) = bench.run(&["--time-limit", "1", "--", "./prog"]);
    assert_eq!((out.as_str(), status), ("", 1));
    assert!(err.contains("has not ended after 1 seconds") && err.contains("--time-limit"), "{err}");
    // Who is ended by nobody runs for ever.
    assert!(begin.elapsed() < Duration::from_secs(300));
    let own = bench.at("prog").canonicalize().unwrap();
    let left = fs::read_dir("/proc").unwrap().filter_map(|e| fs::read_link(e.ok()?.path().join("exe")).ok());
    assert_eq!(left.filter(|exe| *exe == own).count(), 0, "processes are left");
}

fn one_run_is_one_run_of_each() {
    // Each run leaves a letter: with one asked for, a warm-up and one round.
    let bench = Bench::new(
        "int main(void) { return write(open(\"log\", O_WRONLY | O_APPEND | O_CREAT, 0600), \"x\", 1) != 1; }",
    );
    bench.json(&["-r", "1", "--variants", "relocated", "--", "./prog"]);
    assert!(fs::read(bench.at("log")).unwrap().len() <= 6);
}

fn changing_output_is_named_and_not_compared() {
    let body = "int main(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); printf(\"%ld %ld\\n\", t.tv_sec, t.tv_nsec); return 0; }";
    let report = Bench::new(body).json(&["-r", "2", "--", "./prog"]);
    assert!(remarks(&report).contains("standard output changes between runs"), "{report}");
}

fn a_changing_exit_status_is_refused() {
    // Counts its runs in a file.
    let body = "int main(void) { int fd = open(\"log\", O_RDWR | O_APPEND | O_CREAT, 0600); char x[99]; int n = read(fd, x, 99);\n\
                return write(fd, \"x\", 1) == 1 ? n / 2 % 2 : 9; }";
    let (out, err, status) = Bench::new(body).run(&["-r", "4", "--variants", "relocated", "--", "./prog"]);
    assert_eq!((out.as_str(), status), ("", 1));
    assert!(err.contains("changes its behaviour between runs"), "{err}");
}

fn a_rewritten_program_that_prints_something_else_is_an_error() {
    // What a program can see of being rewritten: the file that it is run from.
    let body = "int main(void) { char b[999]; long n = readlink(\"/proc/self/exe\", b, 999); return fwrite(b, 1, n, stdout) != n; }";
    let (out, err, status) = Bench::new(body).run(&["-r", "2", "--", "./prog"]);
    assert_eq!((out.as_str(), status), ("", 1));
    assert!(err.contains("./prog (relocated): standard output is not the original's"), "{err}");
}

fn what_cannot_be_measured_is_refused_before_anything_runs() {
    let bench = Bench::new("int main(void) { return 0; }");
    let rewritten = Command::new(env!("CARGO_BIN_EXE_blizzard"))
        .args(["rewrite", "prog", "-o", "out"])
        .current_dir(bench.folder.path())
        .env("BLIZZARD_CACHE", bench.at("cache"))
        .status();
    assert!(rewritten.unwrap().success());
    fs::write(bench.at("script"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(bench.at("script"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(bench.at("plain"), "#!/bin/sh\n").unwrap();
    for (program, part) in [
        ("./out", "is already rewritten"),
        ("./plain", "no permission to execute it"),
        ("./script", "is a script"),
        ("./absent", "no such file"),
        ("no-such-program-anywhere", "no such program in PATH"),
    ] {
        let (out, err, status) = bench.run(&["--", program]);
        assert_eq!((out.as_str(), status), ("", 1));
        assert!(err.starts_with("blizzard: error: ") && err.contains(part), "{err}");
    }
    assert_eq!(bench.run(&["-r", "0", "--", "./prog"]).2, 2);
}
