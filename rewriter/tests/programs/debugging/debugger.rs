//! A debugger that steps through accesses to shared memory, one that is ended, and one that ends.

use crate::sources::{SharedProgram, finished, said};
use blizzard_test_harness::needs::send_signal;
use blizzard_test_harness::tool;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

blizzard_test_harness::module! {
    steps_lead_over_accesses_that_miss: ["gcc", "clang"],
    steps_of_optimised_code_lead_over_accesses_that_miss: ["gcc", "clang"],
    a_debugger_that_is_ended_leaves_no_folder: ["TERM", "HUP", "KILL"],
    a_debugger_that_ends_without_its_program_ends_the_run,
    a_port_for_a_debugger_is_of_this_host_alone,
    a_debugger_that_connects_meets_breakpoints_in_libraries: ["as printed", "bare"],
    a_debugger_survives_libraries_of_cplusplus,
    steps_lead_into_functions_of_libraries: ["lazy", "now", "ibt", "fixed"],
    exceptions_are_caught: ["tests", "guard"],
    a_debugger_that_is_told_nothing_knows_the_libraries: ["run", "attached"],
    an_old_address_leads_to_new_code,
    a_debugger_sees_nothing_of_what_a_run_learns,
}

/// Runs `./prog` under gdb with the first words of a session; gdb says the second ones, in this order.
fn follow(program: &SharedProgram, access: &str, session: &[(&str, &str)]) {
    let mut command = program.blizzard();
    command.args(["run", "--access", access, "--gdb", "0", "--gdb-arg=-nx", "--gdb-arg=-batch"]);
    command.args(session.iter().flat_map(|(line, _)| ["--gdb-arg=-ex".to_owned(), format!("--gdb-arg={line}")]));
    let (out, err, _) = finished(command.args(["--", "./prog"]).output().unwrap());
    let mut rest = out.as_str();
    for (line, says) in session {
        let at = rest.find(says);
        rest = &rest[at.unwrap_or_else(|| panic!("{access}, {line}: no {says:?}: {out}{err}"))..];
    }
}

/// Node 1 misses in each line that it steps through. What the misses of the module share is first needed by `first`, in another file.
const PROGRAM: &str = r#"
#include <blizzard.h>
#include <stdio.h>
#ifdef FIRST
int first(int *cells) { return *cells; }
#else
int first(int *cells);
#endif
__attribute__((noinline)) static int more(int *cells, int k) {
    cells[k] += 2;
    int sum = cells[k + 64];
    return sum + k;
}
int main(void) {
    int *cells = 0;
    if (bz_node() == 0) {
        cells = bz_alloc(4096 * 64);
        for (int i = 0; i < 512; i++)
            cells[i * 64] = i;
        bz_publish(1, cells);
    }
    bz_barrier();
    cells = bz_lookup(1);
    int sum = 0;
    if (bz_node() == 1) {
        sum += first(cells); // begin
        sum += cells[64];
        cells[128] = sum;
        sum += more(cells, 256);
        cells[640]++;
        sum += cells[704];
        printf("sum %d\n", sum);
    }
    bz_barrier();
    return 0;
}
"#;
const FIRST: &str = "int first(int *cells) {\n    return cells[6400] + 1;\n}\n";

/// They stopped where the check had failed, in code without lines, and then in the runtime.
fn steps_lead_over_accesses_that_miss(compiler: &str) {
    tool("gdb");
    let program = SharedProgram::new(PROGRAM.trim_start(), &["-DFIRST"]);
    fs::write(program.folder.path().join("first.c"), FIRST).unwrap();
    let config = |what: &str| finished(program.blizzard().args(["config", what]).output().unwrap()).0;
    // The file is first, so its code is.
    let mut compile = tool(compiler);
    compile.current_dir(&program.folder).args(["-g", "-O0", "first.c", "prog.c", "-o", "prog"]);
    compile.args(config("--cflags").split_whitespace()).args(config("--libs").split_whitespace());
    assert!(compile.status().unwrap().success(), "{compiler}");
    let session = [
        ("break prog.c:25", "Breakpoint 1 at"),
        ("run", "Breakpoint 1, main () at prog.c:25"),
        ("step", "first (cells="),
        ("finish", "Value returned is $1 = 101"),
        ("next", "26\t        sum += cells[64];"),
        ("next", "27\t        cells[128] = sum;"),
        ("step", "28\t        sum += more(cells, 256);"),
        ("step", "more (cells="),
        ("next", "10\t    int sum = cells[k + 64];"),
        ("finish", "Value returned is $2 = 261"),
        ("next", "29\t        cells[640]++;"),
        ("next", "30\t        sum += cells[704];"),
        ("step", "31\t        printf("),
        ("info locals", "sum = 374"),
        ("info breakpoints", "breakpoint already hit 1 time"),
        ("continue", "exited normally"),
    ];
    let commands = session.iter().flat_map(|(line, _)| ["-ex", line]);
    let gdb_args = ["-nx", "-batch"].into_iter().chain(commands).map(|arg| format!("--gdb-arg={arg}"));
    let mut run = program.blizzard();
    run.args(["run", "-n", "2", "--gdb", "1"]).args(gdb_args).args(["--", "./prog"]);
    let (out, err, status) = finished(run.output().unwrap());
    let mut rest = out.as_str();
    for (line, says) in session {
        let at = rest.find(says);
        rest = &rest[at.unwrap_or_else(|| panic!("{line}: no {says:?}: {out}{err}"))..];
    }
    assert!(status == 0 && !out.contains("blizzard_") && !err.contains("warning"), "{status} {out}{err}");
}

/// Node 1 misses in each iteration. Its unit has one range, and lists of places of variables: where these begin clang says in an attribute with a long name.
const LOOP: &str = r#"
#include <blizzard.h>
#include <stdio.h>
int main(void) {
    if (bz_node() == 0) {
        int *cells = bz_alloc(4096 * 64);
        for (int i = 0; i < 512; i++)
            cells[i * 64] = i;
        bz_publish(1, cells);
    }
    bz_barrier();
    int *cells = bz_lookup(1), sum = 0;
    if (bz_node() == 1) {
        for (int k = 0; k < 200; k++) {
            sum += cells[k * 64];
            cells[k * 64] = sum;
        }
        printf("sum %d\n", sum);
    }
    bz_barrier();
    return 0;
}
"#;

/// With clang they stopped in code without lines in each iteration: its unit said nothing of stubs.
fn steps_of_optimised_code_lead_over_accesses_that_miss(compiler: &str) {
    tool("gdb");
    let program = SharedProgram::new(LOOP.trim_start(), &[]);
    let config = |what: &str| finished(program.blizzard().args(["config", what]).output().unwrap()).0;
    let mut compile = tool(compiler);
    compile.current_dir(&program.folder).args(["-g", "-gdwarf-5", "-O1", "prog.c", "-o", "prog"]);
    compile.args(config("--cflags").split_whitespace()).args(config("--libs").split_whitespace());
    assert!(compile.status().unwrap().success(), "{compiler}");
    let mut run = program.blizzard();
    run.args(["run", "-n", "2", "--access", "tests", "--gdb", "1", "--gdb-arg=-nx", "--gdb-arg=-batch"]);
    for line in ["break prog.c:14", "run"].into_iter().chain(["next"; 20]).chain(["delete", "continue"]) {
        run.args(["--gdb-arg=-ex".to_owned(), format!("--gdb-arg={line}")]);
    }
    let (out, err, status) = finished(run.args(["--", "./prog"]).output().unwrap());
    let steps = out.matches("cells[k * 64]").count();
    assert!(
        status == 0 && steps >= 10 && !out.contains("blizzard_") && out.contains("sum 19900"),
        "{status} {out}{err}"
    );
}

/// gdb removes a folder of its own at its end only, not when it is killed. (SIGINT is gdb's own affair at its prompt.)
fn a_debugger_that_is_ended_leaves_no_folder(signal: &str) {
    tool("gdb");
    let program = SharedProgram::new(PROGRAM.trim_start(), &["-DFIRST"]);
    let temporary = program.folder.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut command = program.blizzard();
    command.env("TMPDIR", &temporary).args(["run", "-n", "2", "--gdb", "1"]);
    for line in ["break prog.c:25", "run", "shell ls $TMPDIR", "echo here\\n"] {
        command.args(["--gdb-arg=-ex".to_owned(), format!("--gdb-arg={line}")]);
    }
    command.args(["--gdb-arg=-nx", "--", "./prog"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = command.stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines().map(Result::unwrap);
    let shown: Vec<String> = lines.by_ref().take_while(|line| line != "here").collect();
    // There was something to remove.
    assert!(shown.iter().any(|line| line.starts_with("blizzard-gdb-")), "{shown:?}");
    assert!(send_signal(signal, run.id()));
    lines.for_each(drop);
    assert!(!run.wait().unwrap().success());
    // Whoever is killed is survived by who cleans up.
    let left = || fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let until = Instant::now() + Duration::from_secs(20);
    while !left().is_empty() {
        assert!(Instant::now() < until, "{signal}: {:?}", left());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The other node waited for it for ever, and Ctrl-C did not end the run: that is the debugger's.
fn a_debugger_that_ends_without_its_program_ends_the_run() {
    tool("gdb");
    let program = SharedProgram::new(PROGRAM.trim_start(), &["-DFIRST"]);
    let never = "node 0 has ended, and its program has never run";
    for (commands, nodes, says) in [
        (&["quit"][..], "2", never),
        (&["quit"], "1", ""),
        (&["starti", "kill", "quit"], "2", never),
        (&["break main", "run", "kill", "quit"], "2", "node 0 has ended, and the node with it"),
        (&["run", "quit"], "2", ""),
    ] {
        let mut command = program.blizzard();
        command.args(["run", "-n", nodes, "--gdb", "0", "--gdb-arg=-nx", "--gdb-arg=-batch"]);
        command.args(commands.iter().flat_map(|line| ["--gdb-arg=-ex".to_owned(), format!("--gdb-arg={line}")]));
        let mut run = command.args(["--", "./prog"]).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while run.try_wait().unwrap().is_none() {
            if Instant::now() > until {
                assert!(send_signal("TERM", run.id()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let (_, err, status) = finished(run.wait_with_output().unwrap());
        assert_eq!(status, i32::from(!says.is_empty()), "{commands:?} {nodes}: {err}");
        assert_eq!(err.contains("blizzard: error:"), !says.is_empty(), "{commands:?} {nodes}: {err}");
        assert!(err.contains(says), "{commands:?} {nodes}: {err}");
    }
}

/// gdbserver listens on all addresses, whatever host it is told.
fn a_port_for_a_debugger_is_of_this_host_alone() {
    tool("gdb");
    tool("gdbserver");
    let program = SharedProgram::new(PROGRAM.trim_start(), &["-DFIRST"]);
    // Free, unless somebody takes it in this moment.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = program.blizzard();
    command.args(["run", "-n", "2", "--access", "tests", "--gdb", "1", "--gdb-server", &port.to_string()]);
    let mut run = command.args(["--", "./prog"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Sockets that listen, by their addresses.
    let listening = || {
        let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default());
        let all = tables.concat();
        let rows = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let of_port = rows.filter(|row| row.len() > 3 && row[3] == "0A" && row[1].ends_with(&format!(":{port:04X}")));
        of_port.map(|row| row[1].to_owned()).collect::<Vec<_>>()
    };
    let until = Instant::now() + Duration::from_secs(60);
    while listening().is_empty() && Instant::now() < until && run.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(listening(), [format!("0100007F:{port:04X}")]);
    let commands = finished(program.blizzard().args(["config", "--gdb"]).output().unwrap()).0;
    let mut gdb = tool("gdb");
    gdb.current_dir(&program.folder).args(["-nx", "-batch", "-x", commands.trim_end()]);
    gdb.args(["-ex", &format!("target remote localhost:{port}")]);
    let seen = gdb.args(["-ex", "break prog.c:25", "-ex", "continue", "-ex", "next", "-ex", "info locals"]);
    let seen = said(&seen.args(["-ex", "delete", "-ex", "continue"]).output().unwrap());
    let (out, err, status) = finished(run.wait_with_output().unwrap());
    assert!(seen.contains("\nsum = 1\n") && seen.contains("exited normally"), "{seen}{err}");
    assert_eq!((out.as_str(), status), ("sum 273\n", 0), "{seen}{err}");
    let line =
        format!("help: gdb -x \"$(blizzard config --gdb)\" -ex 'set sysroot /' -ex 'target remote localhost:{port}' /");
    assert!(err.contains(&line), "{err}");
}

/// Node 0 is called by its peer while it sleeps in its library.
const LIBRARY: &str = r#"
#include <stdio.h>
#include <unistd.h>
int twice(int x) {
    int y = 2 * x;
    sleep(1);
    puts("twice");
    return y;
}
"#;
const CALLS_LIBRARY: &str = r#"
#include <blizzard.h>
int twice(int x);
int main(void) {
    long *cells = bz_node() == 0 ? bz_alloc(1 << 16) : 0;
    if (bz_node() == 0) bz_publish(1, cells);
    cells = bz_lookup(1);
    bz_barrier();
    int sum = 0;
    if (bz_node() == 0) sum = twice(21) - 42;
    else for (int i = 0; i < 8192; i++) sum += cells[i];
    bz_barrier();
    return sum;
}
"#;

/// Plain gdb took rewritten libraries for the originals, and stopped at the runtime's signals. What was printed made it complain.
fn a_debugger_that_connects_meets_breakpoints_in_libraries(how: &str) {
    tool("gdb");
    tool("gdbserver");
    let program = SharedProgram { folder: tempfile::tempdir().unwrap() };
    fs::write(program.folder.path().join("prog.c"), CALLS_LIBRARY.trim_start()).unwrap();
    fs::write(program.folder.path().join("own.c"), LIBRARY.trim_start()).unwrap();
    let mut cc = tool("cc");
    cc.args(["-g", "-O1", "-shared", "-fPIC", "own.c", "-o", "libown.so"]);
    assert!(cc.current_dir(&program.folder).status().unwrap().success());
    program.compile("prog", &["-L.", "-lown", "-Wl,-rpath,$ORIGIN"]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut command = program.blizzard();
    command.args(["run", "-n", "2", "--gdb-server", &port, "--", "./prog"]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = err.find_map(|line| line.strip_prefix("  help: ").map(str::to_owned)).unwrap();
    // gdbserver is there.
    err.find(|line| line.starts_with("Process ")).unwrap();
    let printed = line.replace("blizzard config", &format!("{} config", env!("CARGO_BIN_EXE_blizzard")));
    // Those that come while it steps over a breakpoint it must be told of.
    let signals = "handle SIG33 SIGSYS SIGILL nostop noprint pass";
    let bare = format!("gdb -ex '{signals}' -ex 'set breakpoint pending on' ./prog -ex 'target remote :{port}'");
    let gdb = if how == "bare" { bare } else { printed };
    let commands = ["break twice", "break own.c:5", "break puts", "continue", "continue", "continue", "backtrace"];
    let commands = commands.into_iter().chain(["delete", "continue"]).map(|line| format!(" -ex '{line}'"));
    let mut shell = tool("sh");
    shell.arg("-c").arg(format!("{gdb} -nx -batch{}", commands.collect::<String>()));
    shell.current_dir(&program.folder).env("BLIZZARD_CACHE", program.folder.path().join("cache"));
    let seen = said(&shell.stdin(Stdio::null()).output().unwrap());
    let err: String = err.map(|line| line + "\n").collect();
    let (out, _, status) = finished(run.wait_with_output().unwrap());
    assert_eq!((out.as_str(), status), ("twice\n", 0), "{seen}{err}");
    let mut rest = seen.as_str();
    for says in ["twice (x=", "own.c:5\n", " in puts () from ", "at own.c:6\n", "in main () at prog.c:"] {
        let at = rest.find(says);
        rest = &rest[at.unwrap_or_else(|| panic!("{how}: no {says:?}: {seen}{err}"))..];
    }
    assert!(rest.contains("exited normally") && !seen.contains("received signal"), "{how}: {seen}{err}");
    let complaints = ["warning", "No symbol table", "Traceback", "_dl_debug_state"];
    assert!(how == "bare" || !complaints.iter().any(|complaint| seen.contains(complaint)), "{seen}");
}

/// gdb died where libraries were read anew while it was at a breakpoint that went away with them.
fn a_debugger_survives_libraries_of_cplusplus() {
    tool("gdb");
    let program = SharedProgram { folder: tempfile::tempdir().unwrap() };
    let source = "#include <iostream>\n#include <stdexcept>\nint main() {\n    try {\n        throw std::runtime_error(\"thrown\");\n    \
                  } catch (const std::exception &e) {\n        std::cout << e.what() << std::endl;\n    }\n}\n";
    fs::write(program.folder.path().join("prog.cc"), source).unwrap();
    let built = tool("g++").current_dir(&program.folder).args(["-g", "-O0", "prog.cc", "-o", "prog"]).status().unwrap();
    assert!(built.success());
    for _ in 0..3 {
        let mut command = program.blizzard();
        command.args(["run", "--gdb", "0", "--gdb-arg=-nx", "--gdb-arg=-batch"]);
        for line in [
            "break main",
            "break __cxa_throw",
            "run",
            "catch throw",
            "continue",
            "backtrace",
            "run",
            "delete",
            "continue",
        ] {
            command.args(["--gdb-arg=-ex".to_owned(), format!("--gdb-arg={line}")]);
        }
        let (out, err, status) = finished(command.args(["--", "./prog"]).output().unwrap());
        for says in ["main () at prog.cc:5", "__cxa_throw", "thrown\n", "exited normally"] {
            assert!(out.contains(says) && status == 0, "no {says:?}: {out}{err}");
        }
    }
}

/// `step` went over the call: gdb knows linkage tables by their sections, and by the symbols that it makes of these.
fn steps_lead_into_functions_of_libraries(how: &str) {
    tool("gdb");
    let program = SharedProgram { folder: tempfile::tempdir().unwrap() };
    fs::write(program.folder.path().join("own.c"), LIBRARY.trim_start().replace("sleep(1);", "")).unwrap();
    let main = "#include <stdio.h>\nint twice(int x);\nint main(void) {\n    int sum = twice(20);\n    sum += twice(1);\n    \
                printf(\"%d\\n\", sum);\n    return 0;\n}\n";
    fs::write(program.folder.path().join("prog.c"), main).unwrap();
    let mut cc = tool("cc");
    cc.args(["-g", "-O0", "-shared", "-fPIC", "own.c", "-o", "libown.so"]);
    assert!(cc.current_dir(&program.folder).status().unwrap().success());
    let options: &[&str] = match how {
        "lazy" => &["-Wl,-z,lazy"],
        "now" => &["-Wl,-z,now"],
        "ibt" => &["-fcf-protection", "-Wl,-z,lazy,-z,ibtplt"],
        _ => &["-no-pie", "-Wl,-z,lazy"],
    };
    program.compile("prog", &[&["-O0", "-L.", "-lown", "-Wl,-rpath,$ORIGIN"], options].concat());
    let session = [
        ("break main", "Breakpoint 1 at"),
        ("run", "main () at prog.c:4"),
        ("step", "twice (x=20) at own.c:"),
        ("finish", "Value returned is $1 = 40"),
        ("next", "5\t    sum += twice(1);"),
        ("step", "twice (x=1) at own.c:"),
        ("backtrace", "in main () at prog.c:5"),
        ("finish", "Value returned is $2 = 2"),
        ("next", "6\t    printf("),
        ("step", "7\t    return 0;"),
        ("continue", "exited normally"),
    ];
    let mut command = program.blizzard();
    command.args(["run", "--gdb", "0", "--gdb-arg=-nx", "--gdb-arg=-batch"]);
    command.args(session.iter().flat_map(|(line, _)| ["--gdb-arg=-ex".to_owned(), format!("--gdb-arg={line}")]));
    let (out, err, _) = finished(command.args(["--", "./prog"]).output().unwrap());
    let mut rest = out.as_str();
    for (line, says) in session {
        let at = rest.find(says);
        rest = &rest[at.unwrap_or_else(|| panic!("{how}, {line}: no {says:?}: {out}{err}"))..];
    }
    let rewritten = program.blizzard().args(["rewrite", "./prog"]).output().unwrap();
    assert!(rewritten.status.success(), "{rewritten:?}");
    let shown = tool("objdump").current_dir(&program.folder).args(["-d", "prog.blz"]).output().unwrap();
    let shown = said(&shown);
    // What follows the padding of another table has a poll, and no name.
    assert!(shown.contains("<twice@plt>:\n") || how == "ibt", "{how}: {shown}");
    assert!(shown.contains("<printf@plt>:\n"), "{how}: {shown}");
}

/// A probe of the C++ library was at its old address.
fn exceptions_are_caught(access: &str) {
    tool("gdb");
    let program = SharedProgram { folder: tempfile::tempdir().unwrap() };
    let source = "#include <stdexcept>\nstatic int failing(int n) {\n    if (n > 1) throw std::runtime_error(\"thrown\");\n    return n;\n\
                  }\nint main() {\n    int sum = failing(1);\n    try {\n        sum += failing(2);\n    } catch (const std::exception &) {\n        \
                  sum += 5;\n    }\n    return sum != 6;\n}\n";
    fs::write(program.folder.path().join("prog.cc"), source).unwrap();
    let built = tool("g++").current_dir(&program.folder).args(["-g", "-O0", "prog.cc", "-o", "prog"]).status().unwrap();
    assert!(built.success());
    let session = [
        ("catch throw", "Catchpoint 1 (throw)"),
        ("catch catch", "Catchpoint 2 (catch)"),
        ("run", " (exception thrown)"),
        ("backtrace", "failing (n=2) at prog.cc:3"),
        ("info probes stap libstdcxx throw", "libstdc++.so.6"),
        ("continue", " (exception caught)"),
        ("backtrace", "main () at prog.cc:10"),
        ("continue", "exited normally"),
    ];
    follow(&program, access, &session);
}

/// Rewritten libraries were the originals to it: no function of them had a name, and no calls were found behind them.
fn a_debugger_that_is_told_nothing_knows_the_libraries(how: &str) {
    tool("gdb");
    let program = SharedProgram { folder: tempfile::tempdir().unwrap() };
    let own = "#include <stdlib.h>\nstatic int order(const void *a, const void *b) {\n    return *(const int *)a - *(const int *)b;\n}\nint \
               sorted(int n) {\n    int list[] = {3, n, 1};\n    qsort(list, 3, sizeof *list, order);\n    return list[0];\n}\n";
    fs::write(program.folder.path().join("own.c"), own).unwrap();
    let main = "#include <unistd.h>\nint sorted(int n);\nint main(int argc, char **argv) {\n    if (argc > 1) {\n        write(1, \"up\\n\", 3);\n        \
                char c;\n        read(0, &c, 1);\n    }\n    return sorted(2) != 1;\n}\n";
    fs::write(program.folder.path().join("prog.c"), main).unwrap();
    let mut cc = tool("cc");
    cc.args(["-g", "-O0", "-shared", "-fPIC", "own.c", "-o", "libown.so"]);
    assert!(cc.current_dir(&program.folder).status().unwrap().success());
    program.compile("prog", &["-w", "-O0", "-L.", "-lown", "-Wl,-rpath,$ORIGIN"]);
    assert!(program.blizzard().args(["rewrite", "./prog"]).status().unwrap().success());
    let mut gdb = tool("gdb");
    gdb.current_dir(&program.folder).args(["-nx", "-batch"]);
    let lines = |gdb: &mut Command, lines: &[&str]| {
        gdb.args(lines.iter().flat_map(|line| ["-ex", line]));
    };
    // The runtime's own signals, as any debugger must be told.
    lines(&mut gdb, &["handle SIGILL SIG33 SIGSYS nostop noprint pass"]);
    let seen = if how == "run" {
        lines(&mut gdb, &["break main", "run", "break order", "continue", "backtrace", "delete", "continue"]);
        said(&gdb.arg("./prog.blz").output().unwrap())
    } else {
        let mut node = Command::new(program.folder.path().join("prog.blz"));
        let mut node = node.arg("waits").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(node.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        // Whether it reads already, nobody says; it is in the library soon.
        let waits = || fs::read_to_string(format!("/proc/{}/syscall", node.id())).unwrap_or_default().starts_with("0 ");
        while !waits() {
            std::thread::sleep(Duration::from_millis(5));
        }
        lines(&mut gdb, &["backtrace", "break order", "detach"]);
        let seen = said(&gdb.args(["-p", &node.id().to_string()]).output().unwrap());
        drop(node.stdin.take());
        assert!(node.wait().unwrap().success());
        assert!(seen.contains(" read () from "), "{seen}");
        seen
    };
    let frames: &[&str] = match how {
        "run" => {
            &["order (a=", " in qsort_r () from ", " in sorted (n=2) at own.c:7", "main (argc=1", "exited normally"]
        }
        _ => &[" main (argc=2", "own.c, line 3"],
    };
    let mut rest = seen.as_str();
    for says in frames {
        let at = rest.find(says);
        rest = &rest[at.unwrap_or_else(|| panic!("{how}: no {says:?}: {seen}"))..];
    }
    assert!(!seen.contains("warning"), "{seen}");
}

/// Where a label is computed leads nowhere that Blizzard knows: its old address has a trap byte.
const COMPUTED: &str = r#"
#include <stdio.h>
__attribute__((noinline)) static int pick(int n) {
    static const int far[] = {&&a - &&a, &&b - &&a};
    volatile long way = far[n];
    goto *((char *)&&a + way);
a:
    way += 10;
    return way;
b:
    way += 20;
    return way;
}
int main(int argc, char **argv) {
    printf("%d\n", pick(argc) > 20);
    return 0;
}
"#;

/// `next` ended there, where gdb knows no function, and the steps that followed did nothing.
fn an_old_address_leads_to_new_code() {
    tool("gdb");
    let program = SharedProgram::new(COMPUTED.trim_start(), &[]);
    let session = [
        ("break 5", "Breakpoint 1 at"),
        ("run", "5\t    goto"),
        ("next", "This is an old address of the program: `go-on` leads to where its code is now."),
        ("go-on", "pick (n="),
        ("next", "return way;"),
        ("continue", "exited normally"),
        ("python print(old_addresses.here())", "None"),
    ];
    for access in ["tests", "guard"] {
        follow(&program, access, &session);
    }
}

/// A node that a fault has taken into full code tries plain code again, by single steps: not where a debugger would stop at each.
const SWEEPS: &str = r#"
#include <blizzard.h>
__attribute__((noinline)) static long sweep(volatile long *words) {
    long sum = 0;
    for (int i = 0; i < 100000000; i++) {
        sum += words[i & 63];
        words[(i + 1) & 63] = sum;
    }
    return sum;
}
int main(void) {
    if (bz_node() == 0) bz_publish(0, bz_alloc(4096));
    long *words = bz_lookup(0);
    bz_barrier();
    long sum = bz_node() == 0 ? sweep(words) : 0;
    bz_barrier();
    return sum != 0;
}
"#;

fn a_debugger_sees_nothing_of_what_a_run_learns() {
    tool("gdb");
    let program = SharedProgram::new(SWEEPS, &[]);
    let mut command = program.blizzard();
    command.args([
        "run",
        "-n",
        "2",
        "--access",
        "guard",
        "--gdb",
        "0",
        "--gdb-arg=-batch",
        "--gdb-arg=-ex",
        "--gdb-arg=run",
    ]);
    let (out, err, status) = finished(command.args(["--", "./prog"]).output().unwrap());
    assert!(out.contains("exited normally") && !out.contains("SIGTRAP") && status == 0, "{status}: {out}{err}");
}
