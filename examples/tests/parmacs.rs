//! Programs for the PARMACS macros, from the macros to the run: the same answer on any number of nodes.

use blizzard_test_harness::needs;
use blizzard_tests::tool;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

blizzard_test_harness::tests! {
    cholesky,
    nbody,
    sort,
    tree,
    more_processes_than_nodes_are_an_error_that_says_so,
    a_full_segment_gives_null_and_a_line,
    one_allocation_may_have_all_of_the_machines_memory,
    every_macro_is_c: ["macros", "header"],
    the_header_has_the_names_of_the_macros,
    condition_variables_hand_a_buffer_over,
    m4_expands_to_the_same_text,
    compilers_and_debuggers_name_the_source,
    a_mistake_is_named_with_its_line,
}

/// Standard output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {err}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The C text of a source with macros.
fn expand(source: &Path) -> String {
    output(tool::blizzard(["parmacs"]).arg(source))
}

/// The same as m4 would write it.
fn expand_without_lines(source: &Path) -> String {
    output(tool::blizzard(["parmacs", "--no-lines"]).arg(source))
}

/// Expands and compiles, as the example's first comment says.
fn build(files: &[&str], header: Option<&str>) -> (TempDir, PathBuf) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("parmacs");
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, end: &str| {
        let text = expand(&sources.join(name));
        let file = folder.path().join(name).with_extension(end);
        std::fs::write(&file, text).unwrap();
        file
    };
    if let Some(header) = header {
        put(header, "h");
    }
    let program = folder.path().join("program");
    let mut cc = Command::new("cc");
    // The style is that of the 1990s: declarations without parameters.
    cc.args(["-std=gnu89", "-O2", "-I"]).arg(folder.path()).args(tool::config("--cflags").unwrap());
    cc.args(files.iter().map(|name| put(name, "c"))).args(tool::config("--libs").unwrap()).arg("-lm");
    output(cc.arg("-o").arg(&program));
    (folder, program)
}

/// One process by itself, then as many as there are nodes, and fewer.
fn compare(program: &Path, args: &[&str]) -> String {
    let expected = output(Command::new(program).args(args));
    assert!(!expected.is_empty());
    for (nodes, processes) in [(1, 1), (2, 2), (4, 4), (4, 3), (8, 8)] {
        let mut launch = tool::blizzard(["run", "-n", &nodes.to_string(), "--"]);
        launch.arg(program).arg(format!("-p{processes}")).args(args);
        assert_eq!(output(&mut launch), expected, "{processes} processes on {nodes} nodes");
    }
    expected
}

fn cholesky() {
    let (_folder, program) = build(&["cholesky.C"], None);
    let out = compare(&program, &["-n70"]);
    assert!(out.starts_with("70 columns\nlast pivot ") && out.contains("e-1"), "{out}");
}

fn nbody() {
    let (_folder, program) = build(&["nbody.C", "forces.C"], Some("nbody.H"));
    compare(&program, &["-n40", "-t3"]);
}

/// Flags that processes wait for and clear again, arrays of locks.
fn sort() {
    let (_folder, program) = build(&["sort.C"], None);
    let out = compare(&program, &["-n", "3000", "-r", "32"]);
    assert!(out.starts_with("3000 keys in 4 passes: ") && out.ends_with(" 0 wrong\n"), "{out}");
}

/// One tree, built by all under locks of its cells; a self-scheduled loop; private variables of the processes.
fn tree() {
    let (_folder, program) = build(&["tree.C"], None);
    let out = compare(&program, &["-n", "150", "-t", "2"]);
    assert!(out.starts_with("150 bodies, 2 steps: "), "{out}");
}

fn more_processes_than_nodes_are_an_error_that_says_so() {
    let (_folder, program) = build(&["cholesky.C"], None);
    let mut launch = tool::blizzard(["run", "-n", "2", "--"]);
    let output = launch.arg(&program).arg("-p3").stdin(Stdio::null()).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains("this run has 2 nodes, and the program creates one more: run it with `-n 3` or more"),
        "{err}"
    );
}

/// Allocates until there is no room, gives one piece back and gets it again.
const FULL: &str = r#"
#include <stdio.h>
MAIN_ENV
void slave() {}
int main(int argc, char **argv) {
    void *piece, *last = 0, *much;
    long pieces = 0;
    MAIN_INITENV(,1000)
    if (argc > 1) CREATE(slave)
    much = G_MALLOC((size_t) 1 << 50)
    while ((piece = G_MALLOC_F((size_t) 1 << 24))) {
        last = piece;
        pieces++;
    }
    G_FREE(last)
    printf("%s, %s pieces, %s\n", much ? "much" : "NULL", pieces >= 16 && pieces <= 64 ? "right" : "wrong", G_MALLOC_F((size_t) 1 << 24) == last ? "again" : "lost");
    if (argc > 1) WAIT_FOR_END(1)
    MAIN_END
}
"#;

/// Expands and compiles a text.
fn build_text(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let [source, expanded, program] = ["text.C", "text.c", "program"].map(|name| folder.path().join(name));
    std::fs::write(&source, text).unwrap();
    std::fs::write(&expanded, expand(&source)).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Werror", "-O1"]).args(tool::config("--cflags").unwrap()).arg(&expanded);
    output(cc.args(tool::config("--libs").unwrap()).arg("-o").arg(&program));
    (folder, program)
}

/// Asks for as much as the machine has, and uses both ends.
const ALL: &str = r#"
MAIN_ENV
#include <stdio.h>
#include <unistd.h>
char *all;
void slave() { all[0] = 1; }
int main(int argc, char **argv) {
    size_t bytes = (size_t) sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    MAIN_INITENV(,)
    all = (char *) G_MALLOC_F(bytes);
    if (!all) return 1;
    all[bytes - 1] = 2;
    if (argc > 1) CREATE(slave) else slave();
    if (argc > 1) WAIT_FOR_END(1)
    printf("%d\n", all[0] + all[bytes - 1]);
    MAIN_END
}
"#;

fn one_allocation_may_have_all_of_the_machines_memory() {
    let (_folder, program) = build_text(ALL);
    for (nodes, creates) in [("1", &[][..]), ("2", &["create"])] {
        let said = output(tool::blizzard(["run", "-n", nodes, "--"]).arg(&program).args(creates));
        assert_eq!(said, "3\n", "{nodes}");
    }
}

/// The line names the call behind the macro, the bytes, those that are free, and the option.
fn a_full_segment_gives_null_and_a_line() {
    let (_folder, program) = build_text(FULL);
    for (nodes, creates) in [("1", &[][..]), ("2", &["create"])] {
        let mut launch = tool::blizzard(["run", "-n", nodes, "--segment-gib", "1", "--"]);
        let output = launch.arg(&program).args(creates).stdin(Stdio::null()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "NULL, right pieces, again\n", "{nodes}: {err}");
        let lines: Vec<&str> = err.lines().filter(|line| line.contains("no room")).collect();
        assert_eq!(lines.len(), 2, "{nodes}: {err}");
        let remedies = ["no `blizzard run --segment-gib`", "`blizzard run --segment-gib 2`"];
        for ((line, bytes), remedy) in lines.iter().zip([1u64 << 50, 1 << 24]).zip(remedies) {
            assert!(line.contains(&format!("bz_alloc: no room for {bytes} bytes (")), "{nodes}: {err}");
            assert!(line.ends_with(&format!("; {remedy} has room for it")), "{nodes}: {err}");
        }
        let free = |line: &str| -> u64 {
            let before = line
                .split(" are free")
                .next()
                .and_then(|text| text.rsplit_once(" bytes"))
                .map(|(text, _)| text)
                .and_then(|text| text.rsplit(' ').next());
            before.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{nodes}: {err}"))
        };
        // All of the part at first, and then less than a piece.
        assert!(free(lines[0]) >= 16 << 24 && free(lines[1]) < 1 << 24, "{nodes}: {err}");
    }
}

/// Each macro of the file.
const EVERY_MACRO: &str = r#"
MAIN_ENV
struct all {
    LOCKDEC(lock) NLOCKDEC(other) ALOCKDEC(many, 5) BARDEC(bar) PAUSEDEC(one) PAUSEDEC(some, 3) GSDEC(loop)
    NU_GSDEC(second) CONDVARDEC(changed)
} *G;
long index(long a, long b) { return a + b; }
long len(long a) { return a; }
long eval(long a) { return a; }
long shift(long a, long b) { return a - b; }
void slave() {}
int main() {
    long i = index(1, 2) + len(3) + eval(4) + shift(9, 4), j;
    unsigned long t;
    void *p;
    MAIN_INITENV(,1000)
    G = (struct all *) G_MALLOC(sizeof *G);
    p = NU_MALLOC(10);
    G_FREE(p)
    p = G_MALLOC_F(10);
    G_FREE(p)
    p = NU_MALLOC_F(10);
    NU_FREE(p)
    LOCKINIT(G->lock) NLOCKINIT(G->other) ALOCKINIT(G->many, 5) BARINIT(G->bar) PAUSEINIT(G->one) PAUSEINIT(G->some, 3)
    GSINIT(G->loop) NU_GSINIT(G->second)
    LOCK(G->lock) UNLOCK(G->lock) NLOCK(G->other) NUNLOCK(G->other)
    ALOCK(G->many, index(1, 2)) AULOCK(G->many, 3)
    BARRIER(G->bar, 1)
    SETPAUSE(G->one) WAITPAUSE(G->one) CLEARPAUSE(G->one) EVENT(G->some[2]) PAUSE(G->some[2])
    CLOCK(t)
    if (t == 0) return 1;
    for (;;) {
        GETSUB(G->loop, j, 9, 1)
        if (j < 0) break;
        i += j;
    }
    NU_GETSUB(G->second, j, 0, 1)
    if (j != 0) return 1;
    SPLASH3_ROI_BEGIN(); RELEASE_FENCE() ACQUIRE_FENCE() FULL_FENCE() SPLASH3_ROI_END();
    CONDVARINIT(G->changed) CONDVARSIGNAL(G->changed) CONDVARBCAST(G->changed)
    LOCK(AGETL(G->many, 2)) AULOCK(G->many, 2)
    if (PAGE_SIZE != 4096) return 1;
    if (i == -1) { CREATE(slave) CREATE(slave, 4) WAIT_FOR_END(4) }
    printf("%ld\n", i);
    MAIN_END
}
"#;

/// Of the macros alone: these say nothing that a program computes, and need no parentheses.
const OF_THE_MACROS: &str = "AUG_ON TRACE_OFF DYN_SIM_ON RELEASE_FENCE ACQUIRE_FENCE\n    MAIN_END";

/// Every macro of the file, and of the header, expands to C, wherever the program uses it; names of m4's functions are the program's own.
fn every_macro_is_c(of: &str) {
    let folder = tempfile::tempdir().unwrap();
    let expanded = folder.path().join("all.c");
    let text = if of == "macros" {
        let source = folder.path().join("all.C");
        std::fs::write(&source, EVERY_MACRO.replace("MAIN_END", OF_THE_MACROS)).unwrap();
        expand(&source)
    } else {
        format!("#define BLIZZARD_PARMACS_NAMES\n#include <blizzard_parmacs.h>\n{EVERY_MACRO}")
    };
    std::fs::write(&expanded, text).unwrap();
    let program = folder.path().join("all");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Werror", "-Wno-builtin-declaration-mismatch", "-O1"])
        .args(tool::config("--cflags").unwrap())
        .arg(&expanded);
    output(cc.args(tool::config("--libs").unwrap()).arg("-o").arg(&program));
    assert_eq!(output(&mut Command::new(&program)), "60\n");
    assert_eq!(output(tool::blizzard(["run", "-n", "2", "--"]).arg(&program)), "60\n");
}

/// The names that one file defines and the other does not.
fn the_header_has_the_names_of_the_macros() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rt/include");
    let read = |name: &str| std::fs::read_to_string(include.join(name)).unwrap();
    let is_hint = |name: &&str| name.starts_with("AUG_") || name.starts_with("DYN_") || name.contains("TRACE_");
    let macros = read("parmacs.m4");
    let macros = macros.lines().filter_map(|line| line.strip_prefix("define(`")?.split('\'').next());
    let header = read("blizzard_parmacs.h");
    let header: Vec<&str> = header
        .lines()
        .filter_map(|line| {
            line.strip_prefix("#define ")?.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
        })
        .collect();
    let missing: Vec<&str> = macros.filter(|name| !is_hint(name) && !header.contains(name)).collect();
    assert_eq!(missing, [""; 0]);
    // Each is used by the program above.
    let unused = |name: &&&str| !name.starts_with("BZ_") && !name.contains("PARMACS") && !EVERY_MACRO.contains(**name);
    let unused: Vec<&&str> =
        header.iter().filter(unused).filter(|name| !["ENV", "EXTERN_ENV", "CONDVARWAIT"].contains(*name)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

/// A mistake in the C text is named by the line of the source, and so is a place in the program.
fn compilers_and_debuggers_name_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let compile = |name: &str| {
        let mut expand = tool::blizzard(["parmacs", name, "-o", "all.c"]);
        output(expand.current_dir(&folder));
        let mut cc = Command::new("cc");
        cc.args(["-g", "-O0", "-c", "all.c", "-o", "all.o"]).args(tool::config("--cflags").unwrap());
        cc.current_dir(&folder).stdin(Stdio::null()).output().unwrap()
    };
    let program = "MAIN_ENV\nstruct { LOCKDEC(a) } *G;\nint main() {\n    BARRIER(\n        G->a,\n        2)\n    return oops;\n}\n";
    put("wrong.C", program);
    let wrong = compile("wrong.C");
    let err = String::from_utf8(wrong.stderr).unwrap();
    assert!(!wrong.status.success() && err.contains("wrong.C:7:"), "{err}");
    put(
        "right.C",
        &program.replace("BARRIER(\n        G->a,\n        2)", "LOCK(\n\n        G->a)").replace("oops", "0"),
    );
    let right = compile("right.C");
    assert!(right.status.success(), "{right:?}");
    let lines = output(needs::tool("readelf").args(["--debug-dump=decodedline", "all.o"]).current_dir(&folder));
    let rows: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.iter().any(|row| row.starts_with(&["right.C", "7"])), "{lines}");
    assert!(!rows.iter().any(|row| row.len() > 1 && row[0] == "all.c"), "{lines}");
}

/// Two nodes hand numbers to two others through one place, with the names of SPLASH-3, once from the macros and once from the header alone.
const HAND_OVER: &str = r#"
struct all {
    LOCKDEC(lock)
    CONDVARDEC(filled)
    CONDVARDEC(emptied)
    long place, taken, sum;
} *G;
void slave(void) {
    long k;
    int gives = bz_node() % 2;
    for (k = 1; k <= 100; k++) {
        LOCK(G->lock)
        if (gives) {
            while (G->place != 0) CONDVARWAIT(G->emptied, G->lock);
            G->place = k;
            CONDVARSIGNAL(G->filled);
        } else {
            while (G->place == 0) CONDVARWAIT(G->filled, G->lock);
            G->sum += G->place;
            G->place = 0;
            if (++G->taken == 200) CONDVARBCAST(G->filled);
            CONDVARSIGNAL(G->emptied);
        }
        UNLOCK(G->lock)
    }
}
int main(void) {
    long sum;
    G = (struct all *)bz_alloc(sizeof *G);
    LOCKINIT(G->lock)
    CONDVARINIT(G->filled);
    CONDVARINIT(G->emptied);
    SPLASH3_ROI_BEGIN();
    CREATE(slave, 4)
    WAIT_FOR_END(4)
    SPLASH3_ROI_END();
    sum = G->sum;
    printf("%ld\n", sum);
    return 0;
}
"#;

fn condition_variables_hand_a_buffer_over() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("macros.C");
    std::fs::write(&source, format!("MAIN_ENV{HAND_OVER}")).unwrap();
    let texts =
        [expand(&source), format!("#define BLIZZARD_PARMACS_NAMES\n#include <blizzard_parmacs.h>\n{HAND_OVER}")];
    for (k, text) in texts.iter().enumerate() {
        let (file, program) = (folder.path().join(format!("{k}.c")), folder.path().join(k.to_string()));
        std::fs::write(&file, text).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Werror", "-O1"]).args(tool::config("--cflags").unwrap()).arg(&file);
        output(cc.args(tool::config("--libs").unwrap()).arg("-o").arg(&program));
        assert_eq!(output(tool::blizzard(["run", "-n", "4", "--"]).arg(&program)), "10100\n");
    }
}

/// Byte for byte: what is in comments, in quotes, in the arguments of other macros, at the ends of lines.
const CORNERS: &str = "#include <stdio.h> /* LOCK(a) */
# define MINE LOCK(a, b)
dnl gone LOCK(a)
define(`LIST', ``$1', $#, $*, $@, $10')dnl
define(`NOTHING', `')define(PLAIN, LOCK(x))
LIST(  a , `LOCK(b)', (c, d), NOTHING e,f )
PLAIN LOCK(NOTHING()	a) LOCK( /* with, (a) comma */ b) LOCK(# to the end, of) the line
) UNLOCKED xLOCK LOCK LOCK() ``quoted' LOCK(c)' 2LOCK(d) LOCK (e)
ifelse(a, b, 1, c, c, 2, 3) ifelse(`only') ifelse(x, y, z) ifdef(`LOCK', `yes') ifdef(`LICK', `yes', no)
it is LOCK(it) isn't
`define'd define undefine ( x) defn ifelse index(1, 2) shift(a, b) __file__
undefine(`LOCK')LOCK(a) NLOCK(a) divert(-1)gone LIST(1)
divert(0)stays
MAIN_ENV
EXTERN_ENV
";

fn m4_expands_to_the_same_text() {
    let folder = tempfile::tempdir().unwrap();
    let mut sources: Vec<PathBuf> = ["cholesky.C", "forces.C", "nbody.C", "nbody.H", "sort.C", "tree.C"]
        .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("parmacs").join(name))
        .into();
    for (name, text) in [("every.C", EVERY_MACRO), ("corners.C", CORNERS)] {
        let source = folder.path().join(name);
        std::fs::write(&source, text).unwrap();
        sources.push(source);
    }
    for source in sources {
        let by_m4 = output(needs::tool("m4").args(tool::config("--m4").unwrap()).arg(&source));
        assert_eq!(expand_without_lines(&source), by_m4, "{}", source.display());
        let lined = expand(&source);
        let own = lined.split_inclusive('\n').filter(|line| !line.starts_with("#line "));
        assert_eq!(own.collect::<String>(), by_m4, "{}", source.display());
    }
}

fn a_mistake_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("wrong.C");
    std::fs::write(&source, "MAIN_ENV\nint main() {\n    LOCK((a)\n}\n").unwrap();
    let output = tool::blizzard(["parmacs"]).arg(&source).stdin(Stdio::null()).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    let expected = format!("blizzard: error: {}:3: the arguments of LOCK do not end\n", source.display());
    assert_eq!((err.as_str(), output.status.code()), (expected.as_str(), Some(1)));
}
