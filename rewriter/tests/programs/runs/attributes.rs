//! `--attr`: allocations of programs that nobody changes get other attributes.

use crate::sources::{SharedProgram, blizzard, finished};
use blizzard_test_harness::tool;
use std::fs;
use std::path::Path;

blizzard_test_harness::module! {
    rules_are_for_lines_functions_and_numbers,
    callers_of_wrappers_are_found,
    cpp_and_rust_functions_are_named_as_users_write_them,
    created_nodes_have_the_rules,
    what_is_wrong_is_said_before_anything_starts,
    rules_that_match_nothing_are_told_with_the_nearest_site,
}

/// Each array has 64 KiB, which node 1 reads.
const PROGRAM: &str = r#"
#include <blizzard.h>
#include <stdio.h>
#include <stdlib.h>
#define BYTES 65536
__attribute__((noinline)) static void *xalloc(size_t bytes) {
    void *p = bz_alloc(bytes);
    if (!p) abort();
    return p;
}
static inline __attribute__((always_inline)) void *inlined(size_t bytes) {
    return bz_alloc(bytes);
}
__attribute__((noinline)) static void *rows(volatile int depth) {
    char room[100 + depth];
    room[depth] = 0;
    void *p = xalloc(BYTES + room[depth]);
    return p;
}
int main(void) {
    bz_attr_t plain = { .block_bytes = 128 };
    if (bz_node() == 0) {
        bz_publish(0, rows(7));
        bz_publish(1, inlined(BYTES));
        bz_publish(2, bz_alloc_on(0, BYTES));
        bz_publish(3, bz_alloc_with(&plain, BYTES));
    }
    long sum = 0;
    for (int slot = 0; slot < 4; slot++) {
        volatile long *p = bz_lookup(slot);
        if (bz_node() == 1)
            for (int k = 0; k < BYTES / 8; k++) sum += p[k];
    }
    bz_barrier();
    if (bz_node() == 1) printf("sum %ld\n", sum);
    return 0;
}
"#;

/// The line of a text that has these words.
fn line_of(source: &str, words: &str) -> usize {
    source.lines().position(|line| line.contains(words)).unwrap() + 1
}

/// The number behind a name in JSON, of all nodes: the first of them.
fn number(json: &str, name: &str) -> u64 {
    let at = json.find(&format!("\"{name}\": ")).unwrap_or_else(|| panic!("{name}: {json}"));
    let digits: String = json[at + name.len() + 4..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Runs `./prog` with these rules; its statistics and what it said.
fn run(folder: &Path, rules: &str, more: &[&str]) -> (String, String) {
    fs::write(folder.join("rules"), rules).unwrap();
    let command = ["run", "-n", "2", "--look-ahead", "0", "--attr", "rules", "--stats", "stats"];
    let run = blizzard(folder).args(command).args(more).args(["--", "./prog"]).output().unwrap();
    let (out, err, status) = finished(run);
    assert_eq!(status, 0, "{rules}: {err}");
    assert!(out.is_empty() || out == "sum 0\n", "{out}");
    (fs::read_to_string(folder.join("stats")).unwrap(), err)
}

/// What each rule has matched: allocations and bytes.
fn matched(json: &str) -> Vec<(u64, u64)> {
    let rules = json.split_once("\"allocation_rules\": [").unwrap().1.split_once(']').unwrap().0;
    rules
        .split('}')
        .filter(|rule| rule.contains("site"))
        .map(|r| (number(r, "allocations"), number(r, "bytes")))
        .collect()
}

fn rules_are_for_lines_functions_and_numbers() {
    for flags in [&["-O0", "-no-pie"][..], &["-O2"], &["-O2", "-fno-omit-frame-pointer"]] {
        let program = SharedProgram::new(PROGRAM, flags);
        let folder = program.folder.path();
        let misses = |rules: &str| {
            let (stats, err) = run(folder, rules, &[]);
            assert_eq!(err, "", "{rules}");
            (number(&stats, "read_misses"), matched(&stats))
        };
        // Node 1 has half of the pages where homes are dealt out by turn: a miss for each of those, and for each block of the others.
        let by_turn = |block: u64| 8 * (4096 / block) + 8;
        let (plain, none) = misses("# nothing\n");
        assert_eq!((plain, none), (2 * by_turn(64) + 16 * 64 + by_turn(128), vec![]));
        let on = line_of(PROGRAM, "bz_alloc_on");
        let one = |rule: &str, saved: u64| {
            assert_eq!(misses(rule), (plain - saved, vec![(1, 65536)]), "{rule} {flags:?}");
        };
        one("xalloc block=4096", by_turn(64) - 16);
        one("  inlined \t block=1024 homes=node:0 # far\n", by_turn(64) - 64);
        one(&format!("prog.c:{on} block=1024 protocol=mcm"), 1024 - 64);
        one(&format!("prog.c:{on} block=1024 protocol=update"), 1024 - 64);
        one("alloc 4 block=4096", by_turn(128) - 16);
        // The innermost decides, and of the same function the line.
        let both = format!("main block=4096\nprog.c:{on} block=2048\ninlined block=256\nalloc 1 block=128\n");
        let ways = [(by_turn(128), 16), (1024, 32), (by_turn(64), by_turn(256)), (by_turn(64), by_turn(128))];
        let saved: u64 = ways.iter().map(|(before, after)| before - after).sum();
        assert_eq!(misses(&both), (plain - saved, vec![(1, 65536); 4]), "{flags:?}");
    }
}

fn callers_of_wrappers_are_found() {
    let program = SharedProgram::new(PROGRAM, &["-O2"]);
    let folder = program.folder.path();
    let wrapped = line_of(PROGRAM, "xalloc(BYTES");
    let of_inlined = line_of(PROGRAM, "inlined(BYTES)");
    for options in [&[][..], &["--access", "guard"]] {
        let rules = format!("prog.c:{wrapped} block=4096\nprog.c:{of_inlined} block=512\n");
        let (stats, err) = run(folder, &rules, options);
        assert_eq!((matched(&stats), err.as_str()), (vec![(1, 65536); 2], ""));
        let (stats, _) = run(folder, "rows block=4096", options);
        assert_eq!(matched(&stats), [(1, 65536)]);
    }
    // A rewritten program, one node, and no symbols: allocations have numbers.
    let one = ["run", "--attr", "rules", "--stats", "-", "--", "./prog.blz"];
    let (_, err, status) = finished(blizzard(folder).args(["rewrite", "./prog"]).output().unwrap());
    assert_eq!(status, 0, "{err}");
    let (out, err, _) = finished(blizzard(folder).args(one).output().unwrap());
    assert_eq!((matched(&out), err.as_str()), (vec![(1, 65536)], ""));
    program.compile("prog", &["-O2", "-s"]);
    let (stats, err) = run(folder, "alloc 2 block=4096", &[]);
    assert_eq!((matched(&stats), err.as_str()), (vec![(1, 65536)], ""));
    fs::write(folder.join("rules"), "rows block=64").unwrap();
    let (_, err, status) =
        finished(blizzard(folder).args(["run", "--attr", "rules", "--", "./prog"]).output().unwrap());
    assert_eq!(status, 2);
    assert!(err.starts_with("blizzard: error: rules:1: rows: ") && err.lines().count() == 1, "{err}");
}

fn cpp_and_rust_functions_are_named_as_users_write_them() {
    const CPP: &str = r#"
#include <blizzard.h>
#include <cstddef>
namespace app {
template <class T> __attribute__((noinline)) T *shared_array(size_t n) { return static_cast<T *>(bz_alloc(n * sizeof(T))); }
struct Grid {
    double *cells;
    __attribute__((noinline)) void make(size_t n) { cells = shared_array<double>(n); }
};
}
int main() {
    app::Grid grid;
    grid.make(100);
    long *other = app::shared_array<long>(50);
    return grid.cells == nullptr || other == nullptr;
}
"#;
    const RUST: &str = "
use blizzard_shm::{Shared, alloc};
use std::sync::atomic::AtomicU64;
mod grid {
    pub struct Grid(pub super::Shared<super::AtomicU64>);
    impl Grid {
        #[inline(never)]
        pub fn make(n: usize) -> Grid { Grid(super::alloc(n).unwrap()) }
    }
}
fn main() {
    let grid = grid::Grid::make(100);
    let other: Shared<AtomicU64> = alloc(50).unwrap();
    assert_eq!(grid.0.len() + other.len(), 150);
}
";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = |what: &str| finished(blizzard(folder).args(["config", what]).output().unwrap()).0;
    fs::write(folder.join("prog.cpp"), CPP).unwrap();
    let mut compiler = tool("g++");
    compiler.args(["-g", "-O1", "prog.cpp", "-o", "prog"]).args(config("--cflags").split_whitespace());
    assert!(compiler.args(config("--libs").split_whitespace()).current_dir(folder).status().unwrap().success());
    for (rules, expected) in [
        ("app::Grid::make block=4096", vec![(2, 1600)]),
        ("Grid::make(unsigned long) block=4096", vec![(2, 1600)]),
        ("shared_array block=4096", vec![(4, 2400)]),
        ("double* app::shared_array<double>(unsigned long) block=64", vec![(2, 1600)]),
        ("prog.cpp:14 homes=node:1\nmake protocol=mcm", vec![(2, 800), (2, 1600)]),
    ] {
        let (stats, err) = run(folder, rules, &[]);
        assert_eq!((matched(&stats), err.as_str()), (expected, ""), "{rules}");
    }
    fs::write(folder.join("prog.rs"), RUST).unwrap();
    let crate_of = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rt/rust/src/lib.rs");
    let mut library = tool("rustc");
    library.args(["--edition", "2024", "--crate-type", "rlib", "--crate-name", "blizzard_shm", "-g"]).arg(crate_of);
    assert!(library.current_dir(folder).status().unwrap().success());
    for level in ["0", "2"] {
        let mut compiler = tool("rustc");
        compiler
            .args(["--edition", "2024", "-g", "-C", &format!("opt-level={level}"), "prog.rs"])
            .args(["--extern", "blizzard_shm=libblizzard_shm.rlib"]);
        let libraries = config("--libs");
        for flag in libraries.split_whitespace() {
            compiler.arg("-C").arg(format!("link-arg={flag}"));
        }
        assert!(compiler.current_dir(folder).status().unwrap().success());
        for (rules, expected) in [
            ("Grid::make block=4096", vec![(2, 1600)]),
            ("prog::main block=4096\nprog.rs:8 block=128", vec![(2, 800), (2, 1600)]),
        ] {
            let (stats, err) = run(folder, rules, &[]);
            assert_eq!((matched(&stats), err.as_str()), (expected, ""), "{rules} {level}");
        }
    }
}

fn created_nodes_have_the_rules() {
    const PARMACS: &str = r#"
#include <blizzard.h>
#include <stdlib.h>
static long *all;
static void work(void) {
    long *own = bz_alloc(4096);
    own[0] = all[0];
}
int main(void) {
    all = bz_alloc(8192);
    bz_create(work);
    work();
    bz_wait_for_end(1);
    return 0;
}
"#;
    let program = SharedProgram::new(PARMACS, &[]);
    let rules = "work block=4096\nalloc 1 block=128\n";
    let (stats, err) = run(program.folder.path(), rules, &[]);
    // Node 0's first is in `main`, and node 1's is its own.
    assert_eq!((matched(&stats), err.as_str()), (vec![(1, 4096), (2, 12288)], ""));
}

fn what_is_wrong_is_said_before_anything_starts() {
    let program = SharedProgram::new(PROGRAM, &["-O2"]);
    let folder = program.folder.path();
    let said = |rules: &str| {
        fs::write(folder.join("rules"), rules).unwrap();
        let (out, err, status) =
            finished(blizzard(folder).args(["run", "-n", "2", "--attr", "rules", "--", "./prog"]).output().unwrap());
        assert_eq!((out.as_str(), status, err.lines().count()), ("", 2, 1), "{rules}: {err}");
        err.trim_end().strip_prefix("blizzard: error: rules:").unwrap().to_owned()
    };
    let blank = line_of(PROGRAM, "for (int slot") - 2;
    for (rules, expected) in [
        ("row block=64", "1: row: the program has no such function; the nearest name is rows"),
        ("prg.c:9 block=64", "1: prg.c:9: the program has no such file; the nearest name is prog.c:9"),
        ("\nrows blok=64", "2: blok is no attribute: there are block, homes, protocol (is block meant?)"),
        (
            "rows protocol=mmc",
            "1: protocol=mmc: there are stache, mcm, home, update, migratory, broadcast, reduce:OPERATION:TYPE (is mcm meant?)",
        ),
        ("rows block=100", "1: block=100: 64, 128, 256, 512, 1024, 2048 or 4096 is needed"),
        ("rows homes=node:2", "1: homes=node:2: the run has 2 node(s), numbered from 0"),
        ("rows block=64\nrows block=128", "2: rows has a rule already, in line 1"),
    ] {
        let told = said(rules);
        // There may be more protocols, and homes.
        assert!(told == expected || rules.contains("protocol") && told.contains("(is mcm meant?)"), "{told}");
    }
    let far = said(&format!("prog.c:{} block=64", blank + 1000));
    assert!(far.contains("no code is in that line; the nearest is prog.c:"), "{far}");
    let missing = ["run", "--attr", "none", "--", "./prog"];
    let (_, err, status) = finished(blizzard(folder).args(missing).output().unwrap());
    assert_eq!((err.as_str(), status), ("blizzard: error: --attr: cannot read none: No such file or directory\n", 2));
}

fn rules_that_match_nothing_are_told_with_the_nearest_site() {
    let program = SharedProgram::new(PROGRAM, &["-O2"]);
    let (barrier, on) = (line_of(PROGRAM, "bz_barrier"), line_of(PROGRAM, "bz_alloc_with("));
    let rules = format!("prog.c:{barrier} block=64\nalloc 9 block=64\n");
    let (stats, err) = run(program.folder.path(), &rules, &[]);
    assert_eq!(matched(&stats), [(0, 0); 2]);
    let expected = format!(
        "blizzard: warning: rules:1: prog.c:{barrier}: no allocation was made there, or other rules decided; the nearest site that has \
         allocated is main (prog.c:{on})\nblizzard: warning: rules:2: alloc 9: no node has allocated so often\n"
    );
    assert_eq!(err, expected);
}
