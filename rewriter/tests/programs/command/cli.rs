//! The executable `blizzard` as users meet it: exit statuses, messages, what is written and what is not.

use crate::sources::{blizzard, compile, finished};
use blizzard_test_harness::needs;
use object::{Object, ObjectSection};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

blizzard_test_harness::module! {
    misuse_is_status_2_and_names_the_option,
    the_output_runs_and_keeps_the_permissions,
    rewriting_replaces_an_older_output_even_while_it_runs,
    verify_and_inspect_report,
    decisions_are_told_of_each_access_with_the_sums_of_the_rewrite,
    verify_knows_the_runtimes_that_are_named,
    a_program_is_rewritten_into_the_cache_once_by_many_runs_at_once,
    a_rewritten_program_is_run_as_it_is_and_names_are_looked_up_in_path,
    statistics_take_the_place_of_no_pipe_or_link,
    statistics_go_to_standard_output,
    statistics_count_exactly_in_a_counting_rewrite,
    a_rewritten_program_does_not_go_to_standard_output,
    several_nodes_that_share_nothing_are_told,
    messages_are_quiet_verbose_or_coloured_as_asked,
    config_compiles_a_program_that_runs_plain_and_on_nodes,
    several_nodes_of_a_program_that_is_not_fully_checked_are_refused_in_one_line,
    output_that_cannot_be_written_fails_the_run,
    limits_that_a_run_meets_are_named,
    a_program_with_a_small_stack_starts,
    help_that_cannot_be_written_is_an_error,
    the_demonstration_shows_equal_checksums_and_misses,
    without_a_compiler_the_demonstration_says_so_in_one_line,
}

/// A folder with a compiled program, and a cache of its own.
struct Bench {
    folder: TempDir,
}

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static unsigned table[97];
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        for (char *c = argv[i]; *c; c++) table[(unsigned char)*c % 97] += (unsigned)i;
    unsigned sum = 0;
    for (int i = 0; i < 97; i++) sum = sum * 31 + table[i];
    printf("%s %u\n", strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0], sum);
    return argc > 1 ? atoi(argv[1]) : 0;
}
"#;

impl Bench {
    fn new() -> Self {
        let bench = Bench { folder: tempfile::tempdir().unwrap() };
        compile(PROGRAM, &bench.at("prog"), &["-O2"]);
        bench
    }

    /// Compiles `<name>.c` against blizzard.h.
    fn compile_shared(&self, name: &str) {
        let flags = |what| self.run(&["config", what]).0.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let mut cc = Command::new("cc");
        cc.arg("-O2").args(flags("--cflags")).arg(self.at(&format!("{name}.c"))).args(flags("--libs"));
        assert!(cc.arg("-o").arg(self.at(name)).status().unwrap().success());
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn blizzard(&self) -> Command {
        blizzard(self.folder.path())
    }

    /// How many files of the cache have a name that begins so.
    fn cached(&self, name: &str) -> usize {
        let entries = fs::read_dir(self.at("cache")).unwrap().map(|e| e.unwrap());
        let entries = entries.filter(|e| e.file_name().len() == 64);
        let files = entries.flat_map(|e| fs::read_dir(e.path()).unwrap().map(|f| f.unwrap().file_name()));
        files.filter(|file| file.to_str().unwrap().starts_with(name)).count()
    }

    fn run(&self, args: &[&str]) -> (String, String, i32) {
        finished(self.blizzard().args(args).output().unwrap())
    }
}

fn plain(program: &Path, args: &[&str]) -> (String, String, i32) {
    finished(Command::new(program).args(args).output().unwrap())
}

fn misuse_is_status_2_and_names_the_option() {
    let bench = Bench::new();
    for args in [&["run", "-n", "0", "--", "./prog"][..], &["run", "--nods", "2", "./prog"], &["frobnicate"], &[]] {
        let (out, err, status) = bench.run(args);
        assert_eq!((out.as_str(), status), ("", 2), "{args:?}: {err}");
        assert!(err.starts_with("blizzard: "), "{args:?}: {err}");
    }
    let (_, err, _) = bench.run(&["run", "-n", "1025", "--", "./prog"]);
    assert!(err.contains("1 to 1024"), "{err}");
}

fn the_output_runs_and_keeps_the_permissions() {
    let bench = Bench::new();
    for (mode, expected) in [(0o755, 0o755), (0o700, 0o700), (0o644, 0o755), (0o4755, 0o755)] {
        fs::set_permissions(bench.at("prog"), fs::Permissions::from_mode(mode)).unwrap();
        let (out, err, status) = bench.run(&["rewrite", "prog", "-o", "out"]);
        assert_eq!((out.as_str(), err.as_str(), status), ("", "", 0));
        assert_eq!(fs::metadata(bench.at("out")).unwrap().permissions().mode() & 0o7777, expected, "{mode:o}");
    }
    let (out, err, status) = plain(&bench.at("out"), &["5", "abc"]);
    let (expected, _, _) = plain(&bench.at("prog"), &["5", "abc"]);
    assert_eq!((out, err.as_str(), status), (expected.replace("prog ", "out "), "", 5));
}

fn rewriting_replaces_an_older_output_even_while_it_runs() {
    let bench = Bench::new();
    // By another process: a descriptor of this one could be held by a child of another test when the copy is to be executed.
    assert!(Command::new("cp").arg("/bin/sleep").arg(bench.at("out")).status().unwrap().success());
    let mut running = Command::new(bench.at("out")).arg("1000").spawn().unwrap();
    let (_, err, status) = bench.run(&["rewrite", "prog", "-o", "out"]);
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!((err.as_str(), status), ("", 0));
    assert_eq!(plain(&bench.at("out"), &[]).2, 0);
}

fn verify_and_inspect_report() {
    let bench = Bench::new();
    let (_, err, status) = bench.run(&["verify", "prog"]);
    assert_eq!(status, 1);
    assert!(err.starts_with("blizzard: error: "), "{err}");
    let (out, _, status) = bench.run(&["inspect", "prog", "--json"]);
    assert_eq!(status, 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let main = json["functions"].as_array().unwrap().iter().find(|f| f["name"] == "main").expect("main is a function");
    assert!(main["accesses"]["checked_loads"].as_u64().unwrap() > 0, "{main}");
    assert!(bench.run(&["inspect", "prog"]).0.contains("  main\n"));

    assert_eq!(bench.run(&["rewrite", "prog", "-o", "out"]).2, 0);
    let (out, _, _) = bench.run(&["verify", "out", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(json["checked"]["loads"].as_u64().unwrap() > 0, "{out}");
    fs::write(bench.at("x.c"), "int x;\n").unwrap();
    let (_, err, status) = bench.run(&["verify", "out", "--original", "x.c"]);
    assert_eq!(err, "blizzard: error: x.c: is not an ELF file\n  help: name the file that was rewritten\n");
    assert_eq!(status, 1);
    let (_, err, status) = bench.run(&["verify", "x.c"]);
    let expected =
        "blizzard: error: x.c: is not an ELF file\n  help: `blizzard verify` audits the output of `blizzard rewrite`\n";
    assert_eq!((err.as_str(), status), (expected, 1));
}

fn decisions_are_told_of_each_access_with_the_sums_of_the_rewrite() {
    let bench = Bench::new();
    // As C++ names `long n::f(long *)`, from the C compiler that every machine has.
    let source = "long f(long *p) __asm__(\"_ZN1n1fEPl\");\nlong f(long *p) { return p[0] + p[1]; }\nint main(void) { return 0; }\n";
    compile(source, &bench.at("two"), &["-O1"]);
    let json = |args: &[&str]| -> serde_json::Value {
        let (out, err, status) = bench.run(&[&["inspect", args[0], "--json"], &args[1..]].concat());
        assert_eq!((err.as_str(), status), ("", 0), "{args:?}");
        serde_json::from_str(&out).unwrap()
    };
    for options in [&[][..], &["--no-merge", "--no-strips"], &["--checks", "stores", "--count-blocks"]] {
        let told = json(&[&["prog", "--decisions"], options].concat());
        assert_eq!(told["version"], 1);
        assert_eq!(bench.run(&[&["rewrite", "prog", "-o", "out"], options].concat()).2, 0);
        let audit: serde_json::Value = serde_json::from_str(&bench.run(&["verify", "out", "--json"]).0).unwrap();
        let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
        let checked = number(&audit["checked"]["loads"]) + number(&audit["checked"]["stores"]);
        assert_eq!(number(&told["totals"]["checked"]), checked, "{options:?}: {audit}");
        let accesses = &json(&[&["prog"], options].concat())["accesses"];
        let unchecked = |reason: &str| number(&told["totals"]["unchecked"][reason]);
        let left: u64 = ["merged", "dominated", "strip"].iter().map(|r| unchecked(r)).sum();
        assert_eq!(number(&accesses["checked_loads"]) + number(&accesses["checked_stores"]), checked + left);
        for reason in ["stack", "global", "implicit-stack", "not-requested"] {
            assert_eq!(unchecked(reason), number(&accesses["exempt"][reason]), "{options:?}: {reason}");
        }
    }
    let (out, _, status) = bench.run(&["inspect", "prog", "--decisions", "--function", "main"]);
    assert_eq!(status, 0);
    assert!(out.contains("\nmain, ") && out.contains("back-edge") && out.contains("checked"), "{out}");
    let mangled = json(&["two", "--decisions", "--function", "_ZN1n1fEPl"]);
    assert_eq!(mangled["functions"][0]["points"][1]["decision"], "checked", "{mangled}");
    let address = format!("{:#x}", mangled["functions"][0]["address"].as_u64().unwrap() + 1);
    for name in ["n::f", "n::f(long*)", &address] {
        assert_eq!(json(&["two", "--decisions", "--function", name]), mangled, "{name}");
    }
    for (args, status, said) in [
        (
            &["inspect", "prog", "--decisions", "--function", "nothing"][..],
            1,
            "blizzard: error: prog: has no function nothing\n",
        ),
        (&["inspect", "prog", "--function", "main"], 2, "--decisions"),
    ] {
        let (out, err, found) = bench.run(args);
        assert_eq!((out.as_str(), found), ("", status), "{err}");
        assert!(err.contains(said), "{err}");
    }
}

/// `--runtime` takes the place of the runtimes that this `blizzard` knows by itself: what it names is believed, nothing else is.
fn verify_knows_the_runtimes_that_are_named() {
    let bench = Bench::new();
    assert_eq!(bench.run(&["rewrite", "prog", "-o", "out"]).2, 0);
    let verify = |options: &[&str]| {
        let (out, err, status) = bench.run(&[&["verify", "out"], options].concat());
        assert_eq!(err, "", "{options:?}");
        (out, status)
    };
    let (audit, status) = verify(&[]);
    assert_eq!(status, 0, "{audit}");
    let hash =
        audit.lines().find_map(|l| l.trim().strip_prefix("runtime     sha256 ")).expect("the audit names the runtime");

    // By its file, and by its name.
    let [right, other, ..] = &blizzard::write::runtime_blob::FILES;
    let (right, other) = (right.bytes, other.bytes);
    fs::write(bench.at("right"), right).unwrap();
    fs::write(bench.at("other"), other).unwrap();
    fs::write(bench.at("hash"), format!("{hash}\n")).unwrap();
    for options in [&["--runtime", "right"][..], &["--runtime", "hash"], &["--runtime", "other", "--runtime", "right"]]
    {
        let (audit, status) = verify(options);
        assert_eq!(status, 0, "{options:?}: {audit}");
        assert!(audit.contains(hash), "{audit}");
    }

    // One byte differs, in the named file or in the program: the finding says where.
    let text = object::File::parse(right).unwrap();
    let text = text.section_by_name(".text").expect("code of the runtime").file_range().unwrap();
    let at = (text.0 + text.1 / 2) as usize;
    let mut changed = right.to_vec();
    changed[at] ^= 1;
    fs::write(bench.at("changed"), &changed).unwrap();
    let (audit, status) = verify(&["--runtime", "changed"]);
    assert_eq!(status, 1, "{audit}");
    assert_eq!(audit.matches("the runtime has other bytes here than the known one").count(), 1, "{audit}");
    let mut program = fs::read(bench.at("out")).unwrap();
    // Of fewer bytes there may be two.
    const AROUND: usize = 512;
    let code = &right[at - AROUND..at + AROUND];
    let mut places = program.windows(2 * AROUND).enumerate().filter(|(_, w)| *w == code).map(|(k, _)| k + AROUND);
    let (place, more) = (places.next().expect("the runtime is in the program"), places.next());
    assert_eq!(more, None);
    drop(places);
    program[place] ^= 1;
    fs::write(bench.at("damaged"), &program).unwrap();
    for options in [&[][..], &["--runtime", "right"]] {
        let (out, _, status) = bench.run(&[&["verify", "damaged"], options].concat());
        assert_eq!(status, 1, "{options:?}: {out}");
        assert!(out.contains("the runtime has other bytes here than the known one"), "{options:?}: {out}");
    }
    let (out, _, status) = bench.run(&["verify", "damaged", "--runtime", "changed"]);
    assert_eq!(status, 0, "what is named is believed: {out}");

    // Another runtime, another name.
    let (audit, status) = verify(&["--runtime", "other"]);
    assert!(status == 1 && audit.contains("the runtime has"), "{audit}");
    let wrong = format!("{}{}", if hash.starts_with('0') { '1' } else { '0' }, &hash[1..]);
    fs::write(bench.at("wrong"), wrong).unwrap();
    let (audit, status) = verify(&["--runtime", "wrong"]);
    assert!(status == 1 && audit.contains("the runtime is none of those that are known by name"), "{audit}");

    // What is no runtime is a misuse of the option: one error, no audit.
    fs::write(bench.at("empty"), b"").unwrap();
    fs::write(bench.at("short"), &hash[1..]).unwrap();
    for (name, why) in [
        ("absent", "no such file"),
        ("empty", "is empty"),
        ("prog", "no runtime"),
        ("out", "no runtime"),
        ("prog.c", "neither a runtime's ELF file nor the SHA-256 of one"),
        ("short", "neither a runtime's ELF file nor the SHA-256 of one"),
        (".", "is a directory"),
    ] {
        let (out, err, status) = bench.run(&["verify", "out", "--runtime", "right", "--runtime", name]);
        assert_eq!((out.as_str(), status), ("", 2), "{name}: {err}");
        assert!(err.starts_with("blizzard: error: ") && err.contains("--runtime"), "{name}: {err}");
        assert!(err.contains(name) && err.contains(why), "{name}: {err}");
        assert_eq!(err.matches("error:").count(), 1, "{name}: {err}");
    }
}

fn a_program_is_rewritten_into_the_cache_once_by_many_runs_at_once() {
    let bench = Bench::new();
    let expected = plain(&bench.at("prog"), &["3", "xyz"]);
    let start = || {
        let mut command = bench.blizzard();
        command.args(["run", "--", "./prog", "3", "xyz"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let runs: Vec<_> = (0..8).map(|_| start()).collect();
    for run in runs {
        assert_eq!(finished(run.wait_with_output().unwrap()), expected);
    }
    assert_eq!(bench.cached("prog"), 1);
    assert_eq!(bench.cached("libc"), 1);
    // Nothing but whole entries and links: no temporary file is left. With the program its loader, libc, and libgcc_s, which libc opens.
    let (out, _, status) = bench.run(&["cache", "list"]);
    assert_eq!(status, 0);
    assert!(out.lines().last().unwrap().starts_with("4 files"), "{out}");
    assert_eq!(bench.run(&["cache", "clean", "--unused-days", "1"]).0, "removed 0 files (0.0 MB)\n");
    assert!(bench.run(&["cache", "clean"]).0.starts_with("removed 4 files"));
    assert_eq!(fs::read_dir(bench.at("cache")).unwrap().count(), 0);
}

fn a_rewritten_program_is_run_as_it_is_and_names_are_looked_up_in_path() {
    let bench = Bench::new();
    assert_eq!(bench.run(&["rewrite", "prog", "-o", "out"]).2, 0);
    let (out, _, status) = bench.run(&["run", "--", "./out", "2"]);
    assert!(out.starts_with("out "), "{out}");
    assert_eq!(status, 2);
    assert_eq!(bench.cached("out") + bench.cached("prog"), 0, "only libraries are kept in the cache");
    let output = bench.blizzard().args(["run", "--", "out", "4"]).env("PATH", bench.folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let (_, err, status) = bench.run(&["run", "--", "no-such-program"]);
    assert_eq!(status, 1);
    assert!(err.contains("no-such-program: no such program in PATH"), "{err}");
}

/// As root, `--stats /dev/null` put a file in the place of the device, and `--stats /dev/stdout` one in the place of the link.
fn statistics_take_the_place_of_no_pipe_or_link() {
    use std::os::unix::fs::FileTypeExt;
    let bench = Bench::new();
    let pipe = bench.at("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    let (_, err, status) = bench.run(&["run", "--stats", "pipe", "--", "./prog"]);
    assert_eq!((err.as_str(), status), ("", 0));
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(reader.join().unwrap().contains("wall_seconds"));

    fs::write(bench.at("old.json"), "old").unwrap();
    std::os::unix::fs::symlink("old.json", bench.at("link")).unwrap();
    let (_, err, status) = bench.run(&["run", "--stats", "link", "--", "./prog"]);
    assert_eq!((err.as_str(), status), ("", 0));
    assert!(bench.at("link").is_symlink());
    assert!(fs::read_to_string(bench.at("old.json")).unwrap().contains("wall_seconds"));
}

fn statistics_go_to_standard_output() {
    let bench = Bench::new();
    let (out, err, status) = bench.run(&["run", "--stats", "-", "--", "./prog", "0"]);
    assert_eq!((err.as_str(), status), ("", 0));
    let (line, stats) = out.split_once('\n').unwrap();
    assert!(line.starts_with("prog "), "{out}");
    let stats: serde_json::Value = serde_json::from_str(stats).unwrap();
    assert_eq!(stats["nodes"], 1);
    assert!(!bench.at("-").exists());
}

fn a_rewritten_program_does_not_go_to_standard_output() {
    let bench = Bench::new();
    for option in [&["-o", "-"][..], &["-o-"], &["--output=-"]] {
        let (out, err, status) = bench.run(&[&["rewrite", "./prog"], option].concat());
        assert_eq!((out.as_str(), status), ("", 1), "{err}");
        assert!(err.starts_with("blizzard: error: -o -: a rewritten program is a file"), "{err}");
        assert!(!bench.at("-").exists());
    }
    assert_eq!(bench.run(&["rewrite", "./prog", "-o", "./-"]).2, 0);
    assert!(bench.at("-").exists());
}

fn several_nodes_that_share_nothing_are_told() {
    let bench = Bench::new();
    let (out, err, status) = bench.run(&["run", "-np", "2", "./prog"]);
    assert_eq!((out.lines().count(), status), (2, 0), "{err}");
    let told =
        "blizzard: note: ./prog: ran 2 times, once on each node, and the nodes shared nothing\n  help: did you mean";
    assert!(err.starts_with(told), "{err}");
    let (out, err, status) = bench.run(&["run", "--fork", "-n", "2", "./prog"]);
    assert_eq!((out.lines().count(), status), (1, 0), "{err}");
    assert!(err.starts_with("blizzard: note: ./prog: ran once, on node 0: it has created none of the"), "{err}");
    // A failure has a message of its own, and one node has nobody to share with.
    assert_eq!(bench.run(&["run", "--fork", "./prog"]).1, "");
    assert!(!bench.run(&["run", "--fork", "-n", "2", "./prog", "3"]).1.contains("ran once"));
    assert!(!bench.run(&["run", "-n", "2", "./prog", "3"]).1.contains("shared nothing"));
    assert_eq!(bench.run(&["run", "./prog"]).1, "");
}

fn messages_are_quiet_verbose_or_coloured_as_asked() {
    let bench = Bench::new();
    let err = |args: &[&str], no_color: &str| {
        let output = bench.blizzard().args(args).env("NO_COLOR", no_color).output().unwrap();
        finished(output).1
    };
    assert_eq!(err(&["-q", "run", "-n", "2", "./prog"], ""), "");
    assert_eq!(err(&["rewrite", "prog", "-q"], ""), "");
    let verbose = err(&["run", "-v", "./prog"], "");
    for part in ["blizzard: ./prog runs as /", "/prog\n", "libc.so.6 runs as /", "blizzard: the run took "] {
        assert!(verbose.contains(part), "{part}: {verbose}");
    }
    for (args, no_color, start) in [
        (&["run", "absent"][..], "", "blizzard: error: "),
        (&["run", "absent", "--color", "always"], "", "blizzard: error: "),
        (&["run", "--color", "always", "absent"], "1", "blizzard: \x1b[1;31merror:\x1b[0m "),
        (&["--color=always", "run", "--nods"], "", "blizzard: \x1b[1m\x1b[31merror:\x1b[0m "),
        (&["--color=never", "run", "--nods"], "", "blizzard: error: "),
    ] {
        let text = err(args, no_color);
        assert!(text.starts_with(start), "{args:?}: {text:?}");
    }
    // A program that fails is an error for whoever wants to hear of errors only.
    assert!(err(&["-q", "run", "-n", "2", "./prog", "3"], "").contains("exited with status 3"));
}

fn statistics_count_exactly_in_a_counting_rewrite() {
    let bench = Bench::new();
    let counters = |args: &[&str]| {
        let mut all = vec!["run", "--stats", "stats.json"];
        all.extend(args);
        let (_, err, status) = bench.run(&all);
        assert_eq!((err.as_str(), status), ("", 0));
        let text = fs::read_to_string(bench.at("stats.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let stats = counters(&["--", "./prog"]);
    assert_eq!(stats["totals"]["load_checks"], 0);
    assert_eq!(stats["options"]["counting"], false);
    assert_eq!(stats["per_node"][0]["exit_status"], 0);
    // Of the program alone: what libraries do with an argument need not grow evenly, nor do tests for several iterations.
    let stats =
        counters(&["--access", "tests", "--count", "--no-strips", "--no-libraries", "--", "./prog", "0", "aaaa"]);
    let more =
        counters(&["--access", "tests", "--count", "--no-strips", "--no-libraries", "--", "./prog", "0", "aaaaaaaa"]);
    let loads = |stats: &serde_json::Value| stats["totals"]["load_checks"].as_u64().unwrap();
    assert!(loads(&stats) > 0);
    // Each further character costs the program the same checks.
    let (short, long) = (loads(&stats), loads(&more));
    assert_eq!((long - short) % 4, 0, "{short} {long}");
    assert!(long > short);
    let (_, err, status) = bench.run(&["run", "--stats", "absent/stats.json", "--", "./prog"]);
    assert_eq!(status, 1);
    assert!(err.contains("absent/stats.json"), "{err}");
}

fn config_compiles_a_program_that_runs_plain_and_on_nodes() {
    let bench = Bench::new();
    fs::write(
        bench.at("sum.c"),
        "#include <blizzard.h>\n#include <stdio.h>\nint main(void) {\n\
         if (bz_node() == 0) bz_publish(0, bz_alloc(8));\n uint64_t *p = bz_lookup(0);\n\
         bz_fetch_add_u64(p, bz_node() + 1);\n bz_barrier();\n\
         uint64_t sum = *p;\n printf(\"%u of %u: %u\\n\", bz_node(), bz_nodes(), (unsigned)sum);\n return 0; }\n",
    )
    .unwrap();
    bench.compile_shared("sum");
    assert_eq!(plain(&bench.at("sum"), &[]), ("0 of 1: 1\n".into(), String::new(), 0));
    let (out, err, status) = bench.run(&["run", "-n", "3", "--", "./sum"]);
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines, err.as_str(), status), (vec!["0 of 3: 6", "1 of 3: 6", "2 of 3: 6"], "", 0));
}

fn several_nodes_of_a_program_that_is_not_fully_checked_are_refused_in_one_line() {
    let bench = Bench::new();
    for (options, part) in [(["--checks", "stores"], "loads are not checked"), (["--poll", "none"], "does not poll")] {
        let [option, value] = options;
        assert_eq!(bench.run(&["rewrite", "prog", "-o", "out", option, value]).2, 0);
        for args in [&["./out", "0"][..], &[option, value, "--", "./prog", "0"]] {
            let run = |nodes: &str| bench.run(&[&["run", "-n", nodes], args].concat());
            let (out, err, status) = run("2");
            assert_eq!((out.as_str(), status), ("", 1), "{err}");
            let (line, help) = err.split_once('\n').unwrap();
            assert!(line.starts_with("blizzard: error: ./") && line.contains(part), "{err}");
            assert!(help.contains("--allow-incomplete"), "{err}");
            let (out, err, status) = bench.run(&[&["run", "-q", "--allow-incomplete", "-n", "2"], args].concat());
            assert_eq!((out.lines().count(), err.as_str(), status), (2, "", 0));
            let (_, err, status) = run("1");
            assert_eq!((err.as_str(), status), ("", 0), "one node needs neither");
        }
    }
}

/// Runs `blizzard run` on the program under limits that a shell sets.
fn run_limited(bench: &Bench, limits: &str, args: &[&str]) -> (String, String, i32) {
    let blizzard = bench.blizzard();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{limits} && {}", needs::without_raising_limits()), "sh"])
        .arg(blizzard.get_program())
        .arg("run")
        .args(args);
    shell.current_dir(bench.folder.path()).env("BLIZZARD_CACHE", bench.at("cache")).stdin(Stdio::null());
    finished(shell.output().unwrap())
}

/// What a node printed was lost without a word when the disk was full: only a reader that has gone away was thought of.
fn output_that_cannot_be_written_fails_the_run() {
    let bench = Bench::new();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let run = |stdout: Stdio, args: &[&str]| {
        let output = bench.blizzard().args(["run", "-q", "-n", "2", "--", "./prog"]).args(args).stdout(stdout).output();
        finished(output.unwrap())
    };
    let (_, err, status) = run(full().into(), &[]);
    assert_eq!(status, 1, "{err}");
    assert!(
        err.starts_with("blizzard: error: cannot write the nodes' standard output\n  caused by: No space"),
        "{err}"
    );
    // A node that fails gives the status all the same.
    let (_, err, status) = run(full().into(), &["5"]);
    assert_eq!(status, 5, "{err}");
    assert!(err.contains("standard output") && err.contains("exited with status 5"), "{err}");
    // Whoever wants no more output has lost nothing.
    let (gone, writer) = std::io::pipe().unwrap();
    drop(gone);
    let (_, err, status) = run(writer.into(), &[]);
    assert!(err.is_empty() && matches!(status, 0 | 141), "{status}: {err}");
}

/// Threads that could not be started were a panic of the launcher, which could hang; a limit of file sizes ended it by SIGXFSZ.
fn limits_that_a_run_meets_are_named() {
    let bench = Bench::new();
    assert_eq!(bench.run(&["run", "-n", "2", "--", "./prog"]).2, 0);
    for (limits, nodes, words) in [
        // Less than what the nodes share takes.
        ("ulimit -f 1000", "2", &["ulimit -f", "the memory that the nodes share"][..]),
        (
            "ulimit -n 64",
            "200",
            &["the limit of open files is too low: 64 here, and 200 nodes need 464\n  help: `ulimit -n 464`"],
        ),
        // Too little for a node; each of 64 said so.
        ("ulimit -v 250000", "64", &["no node can start", "ulimit -v"]),
        ("ulimit -d 60000", "16", &["shared segment", "-d unlimited"]),
    ] {
        let (_, err, status) = run_limited(&bench, limits, &["-n", nodes, "--", "./prog"]);
        assert!(matches!(status, 1 | 127), "{limits}: {status}: {err}");
        assert!(words.iter().all(|word| err.contains(word)), "{limits}: {err}");
        assert!(!err.contains("panicked"), "{limits}: {err}");
        assert!(!limits.contains("-v") || err.lines().count() == 2, "{limits}: {err}");
    }
}

/// The runtime started on the program's stack, and took 220 KiB of it.
fn a_program_with_a_small_stack_starts() {
    let bench = Bench::new();
    assert_eq!(bench.run(&["rewrite", "./prog", "-o", "small"]).2, 0);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -s 128 && exec ./small 7"]).current_dir(bench.folder.path()).stdin(Stdio::null());
    let (out, err, status) = finished(shell.output().unwrap());
    assert_eq!((out.starts_with("small "), status), (true, 7), "{err}");
}

fn help_that_cannot_be_written_is_an_error() {
    for args in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Bench::new().blizzard().args(args).stdout(full).output().unwrap();
        let (_, err, status) = finished(output);
        assert!(status == 1 && err.contains("cannot write to standard output"), "{args:?}: {status}: {err}");
    }
}

fn the_demonstration_shows_equal_checksums_and_misses() {
    let bench = Bench::new();
    let (out, err, status) = bench.run(&["demo", "--nodes", "1,2,3", "--side", "12", "--iters", "3", "--runs", "1"]);
    assert_eq!((err.as_str(), status), ("", 0), "{out}");
    let row = |name: &str| {
        let line = out.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {out}"));
        line.replace(',', "").split_whitespace().skip(3).map(|n| n.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    // Checks executed, misses, messages, bytes.
    for form in ["transparent", "large blocks", "own protocol"] {
        let (one, two) = (row(&format!("{form}, 1 node ")), row(&format!("{form}, 2 nodes ")));
        assert!(one[0] > 0 && one[1] == 0, "{out}");
        assert!(two[0] > 0 && two[2] > 0 && two[3] > 0, "{out}");
        // Its own protocol brings everything before it is used.
        assert_eq!(two[1] == 0, form == "own protocol", "{out}");
    }
    assert!(out.contains("\nall checksums are equal\n"), "{out}");
    let bars = out.lines().filter(|line| line.contains(|c| ('\u{2588}'..='\u{258f}').contains(&c)));
    assert_eq!(bars.count(), 1 + 3 * 3, "{out}");
}

fn without_a_compiler_the_demonstration_says_so_in_one_line() {
    let bench = Bench::new();
    let output = bench.blizzard().arg("demo").env("PATH", bench.at("nowhere")).env_remove("CC").output().unwrap();
    let (out, err, status) = finished(output);
    assert_eq!((out.as_str(), status, err.lines().count()), ("", 1, 1), "{err}");
    assert!(err.contains("C compiler"), "{err}");
}
