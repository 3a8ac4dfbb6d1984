//! Bundles: a folder with a rewritten program and its libraries runs where nothing else is, with libraries opened by name, too.

use crate::sources::said;
use blizzard_test_harness::{needs, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

blizzard_test_harness::module! {
    a_bundle_runs_where_nothing_else_is,
    a_library_that_is_not_in_the_bundle_is_refused_in_one_line,
    a_bundle_without_a_library_that_the_program_needs_does_not_begin,
    libraries_are_known_by_the_folder_that_is_searched,
}

/// Throws and catches, opens the libraries that its arguments name, and catches what they throw.
const PROGRAM: &str = r#"
#include <cstdio>
#include <dlfcn.h>
#include <stdexcept>
#include <string>
__attribute__((noinline)) static int checked(const std::string &word) {
    if (word.empty()) throw std::out_of_range("nothing");
    return (int)word.size();
}
int main(int argc, char **argv) {
    setvbuf(stdout, nullptr, _IONBF, 0);
    try { std::printf("%d\n", checked("word")); checked(""); }
    catch (const std::exception &e) { std::puts(e.what()); }
    for (int i = 1; i < argc; i++) {
        void *m = dlopen(argv[i], RTLD_NOW);
        if (!m) { std::printf("not opened: %s\n", dlerror()); return 4; }
        auto half = (int (*)(int))dlsym(m, "half");
        try { std::printf("%d\n", half(6)); half(7); return 5; }
        catch (const std::invalid_argument &e) { std::puts(e.what()); }
    }
    return 3;
}
"#;

/// Needs a library that the program does not.
const PLUGIN: &str = r#"
#include <cstdio>
#include <stdexcept>
#include <string>
extern "C" int divide(int n, int by);
__attribute__((constructor)) static void begin() { std::puts("plugin begins"); }
extern "C" int half(int n) {
    if (n % 2) throw std::invalid_argument(std::to_string(n) + " is odd");
    return divide(n, 2);
}
"#;

const HELPER: &str = "extern \"C\" int divide(int n, int by) { return n / by; }\n";

/// What the program prints about itself, and about each plugin.
const OWN: &str = "4\nnothing\n";
const OF_PLUGIN: &str = "plugin begins\n3\n7 is odd\n";

struct Bench {
    folder: TempDir,
}

impl Bench {
    /// `there/prog`, `there/libplugin.so` and `there/libhelper.so`.
    fn new() -> Self {
        let bench = Bench { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(bench.at("there")).unwrap();
        let shared = ["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN", "-L."];
        for (name, source, flags) in [
            ("libhelper.so", HELPER, &shared[..]),
            ("libplugin.so", PLUGIN, &[&shared[..], &["-lhelper"]].concat()),
            ("prog", PROGRAM, &[]),
        ] {
            fs::write(bench.at("source.cpp"), source).unwrap();
            let mut compiler = tool("g++");
            compiler.current_dir(bench.at("there")).args(["-O1", "../source.cpp", "-o", name]).args(flags);
            assert!(compiler.status().unwrap().success(), "{name}");
        }
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes the bundle `there/bundle`, and then a `here/bundle` of it, where nothing else is any more.
    fn moved_bundle(&self, more: &[&str]) -> PathBuf {
        self.bundle(more);
        fs::create_dir(self.at("here")).unwrap();
        fs::rename(self.at("there/bundle"), self.at("here/bundle")).unwrap();
        fs::remove_dir_all(self.at("there")).unwrap();
        assert!(!self.at("cache").exists(), "a bundle needs no cache");
        self.at("here/bundle")
    }

    fn bundle(&self, more: &[&str]) -> PathBuf {
        let mut rewrite = Command::new(env!("CARGO_BIN_EXE_blizzard"));
        rewrite.current_dir(self.at("there")).env("BLIZZARD_CACHE", self.at("cache")).stdin(Stdio::null());
        let output = rewrite.args(["rewrite", "prog", "--bundle", "bundle"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        self.at("there/bundle")
    }
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).env_clear().stdin(Stdio::null()).output().unwrap()
}

/// A root directory with the bundle and /proc in it, and nothing else: neither a C library nor a dynamic loader, as on a machine with others.
fn a_bundle_runs_where_nothing_else_is() {
    let bench = Bench::new();
    // By the name of a file that is no more, and by the bare name that a search would have to find.
    let plugin = bench.at("there/libplugin.so").display().to_string();
    let bundle = bench.moved_bundle(&["--add", "libplugin.so"]);
    let libraries: Vec<_> = fs::read_dir(bundle.join("lib")).unwrap().map(|e| e.unwrap().path()).collect();
    for name in ["ld-linux-x86-64.so.2", "libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libplugin.so", "libhelper.so"]
    {
        assert!(libraries.contains(&bundle.join("lib").join(name)), "{name}: {libraries:?}");
    }
    for file in libraries.iter().chain([&bundle.join("prog")]) {
        assert!(blizzard::read::rewritten::rewritten_with(&fs::read(file).unwrap()).is_some(), "{}", file.display());
    }

    // 127: there is no shell.
    let cell = bench.at("here");
    fs::create_dir(cell.join("proc")).unwrap();
    let enter = |command: &[&str]| {
        let mut enter = tool("unshare");
        enter.args(["--user", "--map-root-user", "--mount", "sh", "-c"]).stdin(Stdio::null());
        enter.arg("mount --rbind /proc \"$0/proc\" && exec env -i \"$(command -v chroot)\" \"$0\" \"$@\"");
        enter.arg(&cell).args(command).output()
    };
    if enter(&["/bin/sh"]).ok().and_then(|output| output.status.code()) != Some(127) {
        needs::skip("needs a system that lets users mount file systems and change their root directory");
    }
    for plugin in [plugin.as_str(), "libplugin.so"] {
        let output = enter(&["/bundle/prog", plugin]).unwrap();
        assert_eq!((said(&output), output.status.code()), (format!("{OWN}{OF_PLUGIN}"), Some(3)), "{plugin}");
    }
    // Another name of the folder.
    fs::rename(bundle, cell.join("another")).unwrap();
    let output = enter(&["/another/prog", "libplugin.so"]).unwrap();
    assert_eq!((said(&output), output.status.code()), (format!("{OWN}{OF_PLUGIN}"), Some(3)));
}

/// With the machine's own libraries around it, too: those of the bundle are taken.
fn a_library_that_is_not_in_the_bundle_is_refused_in_one_line() {
    let bench = Bench::new();
    let bundle = bench.bundle(&["--add", "libplugin.so", "--checks", "none", "--poll", "none"]);
    let plugin = bench.at("there/libplugin.so");
    let added = run(&bundle.join("prog"), &[plugin.to_str().unwrap()]);
    assert_eq!((said(&added), added.status.code()), (format!("{OWN}{OF_PLUGIN}"), Some(3)));

    // As if it had been made without --add: the original is there, and is not loaded unchecked; nor is what the plugin needs.
    for missing in ["libhelper.so", "libplugin.so"] {
        fs::remove_file(bundle.join("lib").join(missing)).unwrap();
        let output = run(&bundle.join("prog"), &[plugin.to_str().unwrap()]);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(out.starts_with(&format!("{OWN}not opened: ")), "{out}{err}");
        assert_eq!((out.lines().count(), err.lines().count(), output.status.code()), (3, 1, Some(4)), "{out}{err}");
        let line = format!(
            "blizzard: error: \"{}\" is not loaded: it is not in this program's bundle; make the bundle again with --add FILE\n",
            bench.at("there").join(missing).display()
        );
        assert_eq!(err, line);
    }
}

/// What the program is linked with ends it before it begins.
fn a_bundle_without_a_library_that_the_program_needs_does_not_begin() {
    let bench = Bench::new();
    let bundle = bench.bundle(&["--checks", "none", "--poll", "none"]);
    fs::remove_file(bundle.join("lib/libstdc++.so.6")).unwrap();
    let output = run(&bundle.join("prog"), &[]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b""[..], Some(127)), "{err}");
    assert_eq!(err.matches("it is not in this program's bundle").count(), 1, "{err}");
    assert!(err.contains("libstdc++.so.6"), "{err}");
}

/// The loader tries folders for kinds of processors first, and `dladdr` said one of those, which there never was.
fn libraries_are_known_by_the_folder_that_is_searched() {
    let bench = Bench::new();
    let source = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n\
         void where(void) { Dl_info found; dladdr((void *)where, &found); puts(found.dli_fname); }\n";
    fs::write(bench.at("where.c"), source).unwrap();
    fs::write(bench.at("main.c"), "void where(void);\nint main(void) { where(); return 0; }\n").unwrap();
    let there = bench.at("there");
    let gcc = |args: &[&str]| {
        let done = tool("gcc").current_dir(&there).args(args).status().unwrap();
        assert!(done.success(), "{args:?}");
    };
    gcc(&["-shared", "-fPIC", "../where.c", "-o", "libwhere.so"]);
    let searched = format!("-Wl,--disable-new-dtags,-rpath,{}", there.display());
    gcc(&["../main.c", "-o", "prog", "-L.", "-lwhere", &searched]);
    let expected = format!("{}\n", there.join("libwhere.so").display());
    let bundle = bench.bundle(&[]);
    assert_eq!(said(&run(&bundle.join("prog"), &[])), expected);
    // Nor where the original is no more.
    fs::remove_file(there.join("libwhere.so")).unwrap();
    assert_eq!(said(&run(&bundle.join("prog"), &[])), expected);
}
