//! The examples in the `--help` of every command, run as they are written.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

blizzard_test_harness::tests! {
    every_example_works_as_written,
}

/// A command in `folder`, with `blizzard` in PATH and a cache of its own.
fn shell(folder: &Path, line: &str) -> Output {
    let own = Path::new(env!("CARGO_BIN_EXE_blizzard")).parent().unwrap().to_owned();
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&usual))).unwrap();
    let mut sh = Command::new("sh");
    sh.args(["-c", line]).current_dir(folder).env("PATH", path).env("BLIZZARD_CACHE", folder.join("cache"));
    sh.env_remove("CC").stdin(Stdio::null()).output().unwrap()
}

fn must(folder: &Path, line: &str) -> String {
    let output = shell(folder, line);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{line}: {}\n{out}\n{err}", output.status);
    assert!(!err.contains("error") && !err.contains("warning"), "{line}: {err}");
    out.into_owned()
}

/// The lines of a help text's examples.
fn examples(help: &str) -> Vec<String> {
    let after = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
    after.take_while(|line| !line.is_empty()).map(|line| line.trim().to_owned()).collect()
}

fn every_example_works_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (source, name) in [("bench-apps/em3d/em3d.c", "em3d.c"), ("examples/heat.c", "heat.c")] {
        std::fs::copy(repository.join(source), folder.join(name)).unwrap();
        let program = name.trim_end_matches(".c");
        must(folder, &format!("cc -O2 {name} $(blizzard config --cflags --libs) -o {program}"));
    }
    std::fs::copy(repository.join("examples/parmacs/cholesky.C"), folder.join("cholesky.C")).unwrap();
    let overview = must(folder, "blizzard --help");
    let commands = overview.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Further lines of a description are indented more.
    let rows = commands.filter_map(|line| line.strip_prefix("  ")).filter(|row| !row.starts_with(' '));
    let names = rows.filter_map(|row| row.split(' ').next()).filter(|name| *name != "help");
    let mut helps = vec![overview.clone()];
    helps.extend(names.map(|name| must(folder, &format!("blizzard {name} --help"))));
    assert!(helps.len() >= 7, "{overview}");
    // The demonstration takes its time: what several texts show is run once.
    let mut ran = BTreeSet::new();
    for help in helps {
        let lines = examples(&help);
        assert!(!lines.is_empty(), "no example in: {help}");
        for line in lines {
            let command = line.split('#').next().unwrap().trim().to_owned();
            let program = line.split(' ').next().unwrap();
            if !ran.insert(command) {
                continue;
            }
            // Not everybody has every compiler.
            if !shell(folder, &format!("command -v {program}")).status.success() {
                eprintln!("left out, because there is no {program}: {line}");
                continue;
            }
            let out = must(folder, &line);
            let silent = ["blizzard rewrite", "cc", "clang"].iter().any(|start| line.starts_with(start));
            assert!(silent || line.contains(" > ") || !out.is_empty(), "{line}: prints nothing");
        }
    }
    assert!(ran.len() >= 10, "too few examples: {ran:?}");
    assert!(folder.join("stats.json").is_file() && folder.join("em3d.json").is_file());
}
