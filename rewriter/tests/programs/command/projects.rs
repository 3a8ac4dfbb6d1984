//! Projects of users: what `blizzard new` makes, and what `blizzard config --install` puts where build tools look for it.

use crate::sources::{blizzard, finished};
use blizzard_test_harness::{executable, need, tool};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

blizzard_test_harness::module! {
    a_new_project_builds_and_passes_its_test: ["c", "cpp", "rust"],
    a_new_project_replaces_nothing,
    an_installed_copy_serves_pkg_config,
    an_installed_copy_serves_cmake,
    config_names_the_same_paths_for_ever,
    completions_and_pages_know_the_commands,
    the_version_names_the_runtimes,
}

/// A program of the system in a folder, with `blizzard` and its cache.
fn on_path(folder: &Path, mut command: Command) -> (String, String, i32) {
    let own = Path::new(env!("CARGO_BIN_EXE_blizzard")).parent().unwrap().to_owned();
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&usual))).unwrap();
    // Nothing of the build that this test is part of.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_") || name == "RUSTFLAGS" || name == "CC") {
            command.env_remove(name);
        }
    }
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        command.env("CARGO_HOME", home);
    }
    command.env("PATH", path).env("BLIZZARD_CACHE", folder.join("cache")).stdin(Stdio::null());
    finished(command.output().unwrap())
}

fn must(folder: &Path, command: Command) -> String {
    let shown = format!("{command:?}");
    let (out, err, status) = on_path(folder, command);
    assert_eq!(status, 0, "{shown}: {out}{err}");
    out
}

/// As its README says it.
fn a_new_project_builds_and_passes_its_test(language: &str) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (out, err, status) = finished(blizzard(at).args(["new", "primes", "--lang", language]).output().unwrap());
    assert_eq!((out.as_str(), status), ("", 0), "{err}");
    assert!(err.contains("note: primes/README.md"), "{err}");
    let project = at.join("primes");
    let readme = fs::read_to_string(project.join("README.md")).unwrap();
    let shell = |line: &str| {
        let mut sh = Command::new("sh");
        sh.args(["-c", line]).current_dir(&project);
        sh
    };
    if language == "cpp" {
        need("c++");
    }
    let test = match language {
        "rust" => {
            let mut build = shell("cargo test --release --offline");
            build.env_remove("CARGO_TARGET_DIR");
            must(at, build)
        }
        _ => {
            let build = readme.lines().find_map(|line| line.split_once("# or: ").map(|(_, line)| line)).unwrap();
            assert_eq!(must(at, shell(build)), "");
            must(at, shell("sh test.sh"))
        }
    };
    let (plain, wanted) = match language {
        "rust" => ("target/release/primes", "two_nodes_give_the_same_answer ... ok"),
        _ => ("./primes", "the same on two nodes: 78498 primes below 1000000"),
    };
    assert!(test.contains(wanted), "{test}");
    assert_eq!(must(at, shell(plain)), "78498 primes below 1000000\n");
}

fn a_new_project_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("mine")).unwrap();
    fs::write(folder.path().join("mine/main.c"), "mine").unwrap();
    for (args, said) in [
        (&["new", "mine"][..], "mine: is there already"),
        (&["new", "mine/main.c"], "cannot be a program's name"),
        (&["new", "a b"], "cannot be a program's name"),
    ] {
        let (_, err, status) = finished(blizzard(folder.path()).args(args).output().unwrap());
        assert!(status == 1 && err.contains(said) && err.contains("help: "), "{args:?}: {err}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("mine/main.c")).unwrap(), "mine");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

const PROGRAM: &str = "#include <blizzard.h>\n#include <stdio.h>\n\
    int main(void) { bz_barrier(); printf(\"%u\\n\", bz_nodes()); return 0; }\n";

/// A folder with an installed copy in `inst` and a program, and nothing else.
fn installed() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("prog.c"), PROGRAM).unwrap();
    let (out, err, status) = finished(blizzard(folder.path()).args(["config", "--install", "inst"]).output().unwrap());
    assert_eq!((out.as_str(), err.as_str(), status), ("", "", 0));
    assert!(!folder.path().join("cache").exists());
    folder
}

fn runs_on_two_nodes(folder: &Path, program: &str) {
    let output = blizzard(folder).args(["run", "-n", "2", "--", program]).output().unwrap();
    assert_eq!(finished(output), ("2\n2\n".into(), String::new(), 0));
}

fn an_installed_copy_serves_pkg_config() {
    let mut pkg_config = tool("pkg-config");
    let folder = installed();
    // Wherever it is moved to.
    fs::rename(folder.path().join("inst"), folder.path().join("moved")).unwrap();
    let search = folder.path().join("moved/lib/pkgconfig");
    let flags = pkg_config.args(["--cflags", "--libs", "blizzard"]).env("PKG_CONFIG_PATH", search).output().unwrap();
    let (flags, err, status) = finished(flags);
    assert_eq!((err.as_str(), status), ("", 0));
    let mut cc = Command::new("cc");
    cc.arg("prog.c").args(flags.split_whitespace()).args(["-o", "prog"]).current_dir(folder.path());
    assert_eq!(must(folder.path(), cc), "");
    runs_on_two_nodes(folder.path(), "./prog");
}

fn an_installed_copy_serves_cmake() {
    let mut cmake = tool("cmake");
    let folder = installed();
    let list = "cmake_minimum_required(VERSION 3.13)\nproject(prog C)\nfind_package(Blizzard 0.1 REQUIRED)\n\
        add_executable(prog prog.c)\ntarget_link_libraries(prog Blizzard::blizzard)\n";
    fs::write(folder.path().join("CMakeLists.txt"), list).unwrap();
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", folder.path().join("inst").display());
    cmake.args(["-S", ".", "-B", "build", &prefix]).current_dir(folder.path());
    must(folder.path(), cmake);
    let mut build = tool("cmake");
    build.args(["--build", "build"]).current_dir(folder.path());
    must(folder.path(), build);
    runs_on_two_nodes(folder.path(), "build/prog");
}

/// The paths had a hash in them that changed with each build of Blizzard.
fn config_names_the_same_paths_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let config = |what: &str| finished(blizzard(folder.path()).args(["config", what]).output().unwrap());
    let cache = folder.path().join("cache").display().to_string();
    assert_eq!(config("--cflags"), (format!("-I{cache}/client/include\n"), String::new(), 0));
    assert_eq!(config("--libs"), (format!("{cache}/client/lib/libblizzard.a -pthread\n"), String::new(), 0));
    assert_eq!(config("--m4"), (format!("{cache}/client/share/blizzard/parmacs.m4\n"), String::new(), 0));
    // One that is installed names its own.
    let prefix = folder.path().join("prefix");
    fs::create_dir_all(prefix.join("bin")).unwrap();
    executable::write(&prefix.join("bin/blizzard"), &fs::read(env!("CARGO_BIN_EXE_blizzard")).unwrap());
    let own = |args: &[&str]| {
        let mut command = Command::new(prefix.join("bin/blizzard"));
        command.arg("config").args(args).env("BLIZZARD_CACHE", &cache);
        must(folder.path(), command)
    };
    assert_eq!(own(&["--cflags"]), format!("-I{cache}/client/include\n"));
    assert_eq!(own(&["--install", prefix.to_str().unwrap()]), "");
    let real = prefix.canonicalize().unwrap();
    assert_eq!(own(&["--cflags"]), format!("-I{}/include\n", real.display()));
    let (_, err, status) =
        finished(blizzard(folder.path()).args(["config", "--install", "/proc/1/x"]).output().unwrap());
    assert!(status == 1 && err.starts_with("blizzard: error: cannot write /proc/1/x/include/blizzard.h"), "{err}");
}

fn completions_and_pages_know_the_commands() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let (out, err, status) = finished(blizzard(folder.path()).args(["completions", shell]).output().unwrap());
        assert_eq!((err.as_str(), status), ("", 0));
        for word in ["overhead", "tag-output", "learn"] {
            assert!(out.contains(word), "{shell}: {word}: {out}");
        }
    }
    let (out, err, status) = finished(blizzard(folder.path()).args(["man", "pages"]).output().unwrap());
    assert_eq!((out.as_str(), err.as_str(), status), ("", "", 0));
    let page = fs::read_to_string(folder.path().join("pages/blizzard-run.1")).unwrap();
    assert!(page.contains("tag\\-output") && page.contains("blizzard run"), "{page}");
}

/// Which build of Blizzard has made a program: the audit names the same runtime.
fn the_version_names_the_runtimes() {
    let folder = tempfile::tempdir().unwrap();
    let version = |option: &str| finished(blizzard(folder.path()).arg(option).output().unwrap()).0;
    let short = version("-V");
    assert!(
        short.starts_with(concat!("blizzard ", env!("CARGO_PKG_VERSION"))) && short.lines().count() == 1,
        "{short}"
    );
    let long = version("--version");
    assert!(long.starts_with(short.trim_end()), "{short}{long}");
    fs::write(folder.path().join("one.c"), "int main(void) { return 0; }\n").unwrap();
    let mut cc = Command::new("cc");
    must(folder.path(), {
        cc.args(["one.c", "-o", "one"]).current_dir(folder.path());
        cc
    });
    for access in ["tests", "guard"] {
        let line = format!("runtime of --access {access}: sha256 ");
        let hash = long.lines().find_map(|text| text.strip_prefix(&line)).unwrap_or_else(|| panic!("{long}"));
        let (_, err, status) =
            finished(blizzard(folder.path()).args(["rewrite", "one", "--access", access]).output().unwrap());
        assert_eq!((err.as_str(), status), ("blizzard: note: the rewritten program is one.blz\n", 0));
        let (audit, _, _) = finished(blizzard(folder.path()).args(["verify", "one.blz"]).output().unwrap());
        assert!(audit.contains(&format!("sha256 {hash}")), "{long}{audit}");
    }
}
