//! The cache of libraries: an entry stands for the very bytes and options it was made with, and may be removed at any time.

use crate::sources::blizzard;
use blizzard::read::rewritten;
use blizzard::store::cache::Cache;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

blizzard_test_harness::module! {
    another_library_of_the_same_name_is_rewritten_again,
    a_library_that_has_been_written_over_is_rewritten_again,
    a_library_of_the_same_size_and_time_is_rewritten_again,
    other_options_make_other_libraries,
    the_cache_can_be_cleaned_while_a_rewriter_writes,
    a_program_is_run_whenever_the_cache_is_cleaned,
    a_program_runs_whenever_the_cache_is_cleaned,
}

/// Is linked with one library, and opens the one that its argument names.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int linked(void);
int main(int argc, char **argv) {
    printf("linked %d\n", linked());
    if (argc < 2) return 0;
    void *m = dlopen(argv[1], RTLD_NOW);
    int (*f)(void) = m ? (int (*)(void))dlsym(m, "opened") : 0;
    printf("opened %d\n", f ? f() : -1);
    return 0;
}
"#;

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Bench { folder: tempfile::tempdir().unwrap() };
        bench.library("linked", 1);
        bench.library("opened", 1);
        fs::write(bench.at("prog.c"), PROGRAM).unwrap();
        let mut compiler = Command::new("cc");
        compiler.current_dir(&bench.folder).args(["-O1", "prog.c", "-o", "prog", "-L.", "-llinked"]);
        assert!(compiler.arg("-Wl,-rpath,$ORIGIN").status().unwrap().success());
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes lib`name`.so, whose one function gives `number`: as many bytes for each number.
    fn library(&self, name: &str, number: u32) -> PathBuf {
        let path = self.at(&format!("lib{name}.so"));
        let _ = fs::remove_file(&path);
        fs::write(self.at("lib.c"), format!("int {name}(void) {{ return {number}; }}\n")).unwrap();
        let mut compiler = Command::new("cc");
        compiler.current_dir(&self.folder).args(["-O1", "-shared", "-fPIC", "lib.c", "-o"]).arg(&path);
        assert!(compiler.status().unwrap().success());
        path
    }

    fn blizzard(&self, arguments: &[&str]) -> Command {
        let mut command = blizzard(self.folder.path());
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        said(&self.blizzard(arguments).output().unwrap())
    }

    /// The rewritten files of the cache with this name.
    fn cached(&self, name: &str) -> Vec<PathBuf> {
        let entries = Cache::at(self.at("cache")).entries().unwrap();
        entries.into_iter().map(|e| e.path).filter(|path| path.file_name().is_some_and(|n| n == name)).collect()
    }
}

fn said(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let status = if output.status.success() { String::new() } else { format!("{}\n", output.status) };
    text(&output.stdout) + &text(&output.stderr) + &status
}

fn numbers(linked: u32, opened: u32) -> String {
    format!("linked {linked}\nopened {opened}\n")
}

/// What a change of a library leaves as it was.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Same {
    /// Nothing but the name: what package managers do.
    Name,
    /// Written over.
    File,
    /// Written over, and its time of change put back.
    FileAndTime,
}

/// Gives both libraries other contents in that way; then they are asked for by the launcher, and by the runtime of a rewritten program.
fn changed(same: Same) {
    let bench = Bench::new();
    let names = ["linked", "opened"];
    assert_eq!(bench.run(&["rewrite", "prog", "-o", "prog.blz"]), "");
    let run = |bench: &Bench| {
        let mut alone = Command::new(bench.at("prog.blz"));
        let alone = alone.arg("./libopened.so").current_dir(&bench.folder).output().unwrap();
        (said(&alone), bench.run(&["run", "--access", "tests", "--", "./prog", "./libopened.so"]))
    };
    assert_eq!(run(&bench), (numbers(1, 1), numbers(1, 1)));
    for name in names {
        let path = bench.at(&format!("lib{name}.so"));
        let old = fs::metadata(&path).unwrap();
        match same {
            Same::Name => drop(bench.library(name, 2)),
            Same::File | Same::FileAndTime => {
                let aside = bench.at("aside.so");
                fs::rename(&path, &aside).unwrap();
                let bytes = fs::read(bench.library(name, 2)).unwrap();
                fs::rename(&aside, &path).unwrap();
                assert_eq!(bytes.len() as u64, old.len());
                fs::write(&path, bytes).unwrap();
            }
        }
        if same == Same::FileAndTime {
            File::options().write(true).open(&path).unwrap().set_modified(old.modified().unwrap()).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), old.modified().unwrap());
        }
    }
    assert_eq!(run(&bench), (numbers(2, 2), numbers(2, 2)), "{same:?}");
    for name in names {
        assert_eq!(bench.cached(&format!("lib{name}.so")).len(), 2, "{same:?}: {name}");
    }
}

fn another_library_of_the_same_name_is_rewritten_again() {
    changed(Same::Name);
}

fn a_library_that_has_been_written_over_is_rewritten_again() {
    changed(Same::File);
}

fn a_library_of_the_same_size_and_time_is_rewritten_again() {
    changed(Same::FileAndTime);
}

/// Libraries with fewer checks in a program with all of them would make it wrong on several nodes, and nobody would be told.
fn other_options_make_other_libraries() {
    let bench = Bench::new();
    let all = [&[][..], &["--checks", "stores"], &["--checks", "none", "--poll", "none"]];
    // In each order: what is there is not taken, and not made again.
    for (k, options) in all.iter().chain(&all).enumerate() {
        let said = bench.run(&[&["run"], *options, &["--", "./prog", "./libopened.so"]].concat());
        assert_eq!(said, numbers(1, 1), "{options:?}");
        for name in ["liblinked.so", "libopened.so", "prog"] {
            assert_eq!(bench.cached(name).len(), (k + 1).min(all.len()), "{options:?}: {name}");
        }
    }
    for name in ["liblinked.so", "libopened.so"] {
        let files = bench.cached(name).into_iter().map(|path| fs::read(path).unwrap());
        let flags = files.map(|bytes| rewritten::rewritten_with(&bytes).unwrap());
        let mut checks: Vec<_> = flags.map(|f| (f.check_loads, f.check_stores, f.polls)).collect();
        checks.sort_unstable();
        assert_eq!(checks, [(false, false, false), (false, true, true), (true, true, true)], "{name}");
    }
}

/// Waits until the process has begun to write into the cache, or ended.
fn until_writing(child: &mut Child, bench: &Bench) {
    let open = format!("/proc/{}/fd", child.id());
    while child.try_wait().unwrap().is_none() {
        let links = fs::read_dir(&open).into_iter().flatten().flatten().filter_map(|e| fs::read_link(e.path()).ok());
        if links.into_iter().any(|link| link.starts_with(bench.at("cache").canonicalize().unwrap_or_default())) {
            return;
        }
        std::thread::yield_now();
    }
}

fn the_cache_can_be_cleaned_while_a_rewriter_writes() {
    let bench = Bench::new();
    for _ in 0..3 {
        let _ = fs::remove_dir_all(bench.at("cache"));
        let mut rewriter = bench.blizzard(&["run", "--", "./prog", "./libopened.so"]).spawn().unwrap();
        until_writing(&mut rewriter, &bench);
        let cleaned = bench.run(&["cache", "clean"]);
        assert!(cleaned.starts_with("removed "), "{cleaned}");
        assert_eq!(said(&rewriter.wait_with_output().unwrap()), numbers(1, 1));
        // What the first has left, or not, serves the next.
        assert_eq!(bench.run(&["run", "--", "./prog", "./libopened.so"]), numbers(1, 1));
    }
}

/// Cleans the cache so often, whenever there is something in it; not without end, as no program would begin that loses a file each time.
fn clean_while_it_runs(cache: &Cache, program: &mut Child, mut times: usize) {
    while times > 0 && program.try_wait().unwrap().is_none() {
        times -= usize::from(!cache.clean(Duration::ZERO).unwrap().is_empty());
    }
}

/// As below, of the program itself, between its rewriting and its start.
fn a_program_is_run_whenever_the_cache_is_cleaned() {
    let bench = Bench::new();
    let cache = Cache::at(bench.at("cache"));
    for times in 1..=6 {
        for nodes in ["1", "3"] {
            let mut run = bench.blizzard(&["-q", "run", "-n", nodes, "--", "./prog", "./libopened.so"]);
            let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            clean_while_it_runs(&cache, &mut run, times);
            let output = run.wait_with_output().unwrap();
            let expected = numbers(1, 1).repeat(nodes.parse().unwrap());
            assert_eq!(said(&output), expected, "cleaned {times} times, {nodes} nodes");
        }
    }
}

/// What has been removed since it was looked at is made again.
fn a_program_runs_whenever_the_cache_is_cleaned() {
    let bench = Bench::new();
    let cache = Cache::at(bench.at("cache"));
    assert_eq!(bench.run(&["rewrite", "prog", "-o", "prog.blz"]), "");
    for times in 1..=6 {
        let mut program = Command::new(bench.at("prog.blz"));
        program.arg("./libopened.so").current_dir(&bench.folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = program.spawn().unwrap();
        clean_while_it_runs(&cache, &mut program, times);
        assert_eq!(said(&program.wait_with_output().unwrap()), numbers(1, 1), "cleaned {times} times");
    }
}
