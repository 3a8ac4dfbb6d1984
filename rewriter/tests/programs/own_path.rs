//! What a program that runs out of the cache is told of its own file.

use blizzard_contract as contract;
use blizzard_test_harness::{needs, tool};
use std::path::Path;
use std::process::{Command, Output};

blizzard_test_harness::module! {
    a_program_from_the_cache_finds_its_original_and_starts_itself_again_rewritten,
    every_node_finds_the_original,
    libraries_left_as_they_are_are_warned_of_on_several_nodes,
    a_bundle_that_cannot_find_itself_says_so_in_one_line,
}

/// Prints what it is told; starts itself again by the link, by the path that it was told, and as a child.
const SOURCE: &str = r#"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char path[PATH_MAX] = {0};
    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) return 2;
    printf("%s: %s %s %s %s\n", argv[1], path, (char *)getauxval(AT_EXECFN), getauxval(AT_BLIZZARD) ? "rewritten" : "original",
           getenv("BLIZZARD_EXE") ? "told" : "not told");
    fflush(stdout);
    if (!strcmp(argv[1], "first")) execl("/proc/self/exe", "x", "second", (char *)0);
    if (!strcmp(argv[1], "second")) execl(path, "x", "third", (char *)0);
    if (!strcmp(argv[1], "third")) {
        pid_t child = vfork();
        if (child == 0) { execl(path, "x", "fourth", (char *)0); _exit(3); }
        int status;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    }
    return 0;
}
"#;

fn build(folder: &Path, flags: &[&str]) -> std::path::PathBuf {
    let (file, program) = (folder.join("self.c"), folder.join("self"));
    std::fs::write(&file, SOURCE).unwrap();
    let define = format!("-DAT_BLIZZARD={}", contract::AT_BLIZZARD);
    let status = tool("gcc").args(flags).arg(define).arg("-o").arg(&program).arg(&file).status().unwrap();
    assert!(status.success());
    program.canonicalize().unwrap()
}

fn run(folder: &Path, more: &[&str], program: &Path, word: &str) -> (String, Output) {
    let output = Command::new(env!("CARGO_BIN_EXE_blizzard"))
        .env("BLIZZARD_CACHE", folder.join("cache"))
        .arg("run")
        .args(more)
        .arg("--")
        .arg(program)
        .arg(word)
        .output()
        .unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output)
}

fn a_program_from_the_cache_finds_its_original_and_starts_itself_again_rewritten() {
    // rustup's proxies, busybox, and everything that looks for its files beside itself.
    let folder = tempfile::tempdir().unwrap();
    for flags in [&["-O1"][..], &["-O1", "-static"]] {
        let program = build(folder.path(), flags);
        let (said, output) = run(folder.path(), &[], &program, "first");
        assert!(output.status.success(), "{output:?}");
        let path = program.display();
        let expected: String = ["first", "second", "third", "fourth"]
            .iter()
            .map(|word| {
                // Who executes the link is told so by the kernel, and by the runtime the path.
                format!("{word}: {path} {path} rewritten not told\n")
            })
            .collect();
        assert_eq!(said, expected);
    }
}

fn every_node_finds_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), &["-O1"]);
    let (said, output) = run(folder.path(), &["-n", "2"], &program, "last");
    assert!(output.status.success(), "{output:?}");
    let path = program.display();
    assert_eq!(said, format!("last: {path} {path} rewritten not told\n").repeat(2));
}

fn libraries_left_as_they_are_are_warned_of_on_several_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), &["-O1"]);
    let rewritten = folder.path().join("self.blz");
    let status = Command::new(env!("CARGO_BIN_EXE_blizzard"))
        .args(["rewrite", "--no-libraries"])
        .arg(&program)
        .arg("-o")
        .arg(&rewritten)
        .status()
        .unwrap();
    assert!(status.success());
    for (more, warned) in [(&["-n", "2"][..], true), (&[], false)] {
        let (_, output) = run(folder.path(), more, &rewritten, "last");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.contains("its libraries' accesses to shared memory are not checked"), warned, "{said}");
    }
}

/// The libraries were said not to be in the bundle.
fn a_bundle_that_cannot_find_itself_says_so_in_one_line() {
    let hide = "mount -t tmpfs none /proc";
    needs::in_mount_namespace(hide, ":");
    let folder = tempfile::tempdir().unwrap();
    let (program, bundle) = (build(folder.path(), &["-O1"]), folder.path().join("bundle"));
    let status = Command::new(env!("CARGO_BIN_EXE_blizzard"))
        .env("BLIZZARD_CACHE", folder.path().join("cache"))
        .args(["rewrite", "--checks", "none"])
        .arg(&program)
        .arg("--bundle")
        .arg(&bundle)
        .status()
        .unwrap();
    assert!(status.success());
    let run = |before: &str| {
        let script = format!("{before} && exec \"$0\" fifth");
        needs::in_mount_namespace(":", &script).arg(bundle.join("self")).output().unwrap()
    };
    assert!(run(":").status.success());
    let output = run(hide);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((said.lines().count(), output.status.code()), (1, Some(1)), "{said}");
    assert!(said.contains("/proc/self/exe") && said.contains("mounted"), "{said}");
}
