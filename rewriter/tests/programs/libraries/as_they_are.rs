//! Libraries that a program loads by itself, which the runtime cannot replace by rewritten ones.

use crate::sources::{blizzard, finished};
use std::path::Path;
use std::process::Command;

blizzard_test_harness::module! {
    a_library_of_a_static_program_is_named_where_it_is_not_checked_and_refused_on_several_nodes,
}

/// A statically linked program has a dynamic loader of its own.
const SOURCE: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    void *m = dlopen("libm.so.6", RTLD_NOW);
    double (*f)(double) = m ? (double (*)(double))dlsym(m, "cbrt") : 0;
    printf("%g\n", f ? f(27.0) : -1.0);
    return 0;
}
"#;

fn run(folder: &Path, options: &[&str]) -> (String, String, i32) {
    finished(blizzard(folder).arg("run").args(options).arg("./loads").output().unwrap())
}

fn a_library_of_a_static_program_is_named_where_it_is_not_checked_and_refused_on_several_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("loads.c"), folder.path().join("loads"));
    std::fs::write(&file, SOURCE).unwrap();
    // The linker warns that the program needs the same C library when it runs.
    let built = Command::new("cc").args(["-O1", "-static", "-o"]).arg(&program).arg(&file).output().unwrap();
    assert!(built.status.success(), "{built:?}");

    let (said, warned, status) = run(folder.path(), &[]);
    assert_eq!((said.as_str(), status), ("3\n", 0), "{warned}");
    assert_eq!(warned.lines().count(), 1, "{warned}");
    assert!(warned.starts_with("blizzard: warning: ") && warned.contains("libm.so.6 is not rewritten"), "{warned}");

    // Nothing is checked in this program, so there is nothing to warn of; and libraries that were to be left alone are no surprise.
    for options in [&["--checks", "none", "--poll", "none"][..], &["--no-libraries"]] {
        let (said, warned, _) = run(folder.path(), options);
        assert_eq!((said.as_str(), warned.as_str()), ("3\n", ""), "{options:?}");
    }

    let (said, refused, status) = run(folder.path(), &["-n", "2"]);
    assert_eq!((said.as_str(), status), ("", 1), "{refused}");
    let (refused, calls) = refused.split_once('\n').unwrap();
    assert!(calls.lines().all(|call| call.starts_with("  at ") || call.starts_with("  by ")), "{calls}");
    assert!(refused.contains("libm.so.6") && refused.contains("one node only"), "{refused}");
}
