//! The examples in the `--help` of every command, run as they are written.

use blizzard_test_harness::need;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

blizzard_test_harness::module! {
    long: every_example_works_as_written,
    examples_of_other_programs_work_as_written: ["clang", "gdb"],
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

/// The lines of a help text's examples. The overview has one in each group.
fn examples(help: &str) -> Vec<String> {
    let of_groups: Vec<_> =
        help.lines().filter_map(|line| line.strip_prefix("  Example: ").map(str::to_owned)).collect();
    if !of_groups.is_empty() {
        return of_groups;
    }
    let after = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
    after.take_while(|line| !line.is_empty()).map(|line| line.trim().to_owned()).collect()
}

/// Programs of examples that not every machine has.
const OTHERS: [&str; 2] = ["clang", "gdb"];

/// A folder with what the examples name, and their lines, each command once: the demonstration takes its time.
fn prepared() -> (tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let copy = |source: &str, name: &str| {
        let text = std::fs::read_to_string(repository.join(source)).unwrap();
        std::fs::write(folder.path().join(name), text.replace("\"../common", "\"common")).unwrap();
    };
    copy("bench-apps/em3d/em3d.h", "em3d.h");
    for name in ["common.h", "common_shared.h"] {
        copy(&format!("bench-apps/{name}"), name);
    }
    for (source, name) in [("bench-apps/em3d/em3d.c", "em3d.c"), ("examples/heat.c", "heat.c")] {
        copy(source, name);
        let program = name.trim_end_matches(".c");
        must(folder.path(), &format!("cc -O2 {name} $(blizzard config --cflags --libs) -o {program}"));
    }
    std::fs::copy(repository.join("examples/parmacs/cholesky.C"), folder.path().join("cholesky.C")).unwrap();
    let overview = must(folder.path(), "blizzard --help");
    let groups = overview.lines().skip_while(|line| *line != "Make:").take_while(|line| *line != "Options:");
    let commands = groups.filter(|line| !line.starts_with("  Example: "));
    // Further lines of a description are indented more.
    let rows = commands.filter_map(|line| line.strip_prefix("  ")).filter(|row| !row.starts_with(' '));
    let names = rows.filter_map(|row| row.split(' ').next()).filter(|name| *name != "help");
    let mut helps = vec![overview.clone()];
    helps.extend(names.map(|name| must(folder.path(), &format!("blizzard {name} --help"))));
    assert!(helps.len() >= 7, "{overview}");
    let (mut seen, mut all) = (BTreeSet::new(), Vec::new());
    for help in helps {
        let lines = examples(&help);
        assert!(!lines.is_empty(), "no example in: {help}");
        all.extend(lines.into_iter().filter(|line| seen.insert(line.split('#').next().unwrap().trim().to_owned())));
    }
    (folder, all)
}

/// Whether it takes other hosts, or ranks: `tests/tests/hosts.rs` and `ranks.rs` have such runs.
fn is_for_several_hosts(line: &str) -> bool {
    line.contains(" --hosts ") || ["mpirun", "ssh"].contains(&program(line))
}

fn program(line: &str) -> &str {
    line.split(' ').next().unwrap()
}

fn every_example_works_as_written() {
    let (folder, lines) = prepared();
    assert!(lines.len() >= 10, "too few examples: {lines:?}");
    for line in lines.iter().filter(|line| !OTHERS.contains(&program(line)) && !is_for_several_hosts(line)) {
        let out = must(folder.path(), line);
        let silent =
            ["blizzard config --install", "blizzard man", "blizzard new", "blizzard rewrite", "blizzard parmacs", "cc"];
        let silent = silent.iter().any(|start| line.starts_with(start));
        assert!(silent || line.contains(" > ") || !out.is_empty(), "{line}: prints nothing");
    }
    assert!(folder.path().join("stats.json").is_file() && folder.path().join("em3d.json").is_file());
}

fn examples_of_other_programs_work_as_written(other: &str) {
    need(other);
    let (folder, lines) = prepared();
    // What one of them may name.
    for line in lines.iter().filter(|line| ["blizzard rewrite", "blizzard learn"].iter().any(|s| line.starts_with(s))) {
        must(folder.path(), line);
    }
    let of_other: Vec<_> = lines.iter().filter(|line| program(line) == other).collect();
    assert!(!of_other.is_empty(), "no example with {other}: {lines:?}");
    for line in of_other {
        must(folder.path(), line);
    }
}
