//! No instruction joins a miss unseen: what `blizzard bench miss --instructions` counts does not exceed the committed table.
//!
//! `guard-misses.txt` holds, for each kind of miss: instructions of the node that misses, of the home, of a third node.
//! After an improvement, or a change that is meant, `BLIZZARD_BLESS=1 cargo test -p blizzard-tests --release --test miss_instructions` writes it anew.
//! Another compiler makes another runtime: then a number may be a tenth higher.

use blizzard_test_harness::{skip, tool as program};
use blizzard_tests::run::{Ending, run};
use blizzard_tests::tool;
use blizzard_tests::workdir::WorkDir;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

blizzard_test_harness::tests! {
    misses_take_no_more_instructions_than_they_did,
    more_instructions_are_seen,
    where_processes_may_not_be_traced_the_command_says_what_to_do,
}

const FORBIDDEN: &str = "does not permit processes to be traced";
const LIMIT: Duration = Duration::from_secs(300);

/// Protocol, block size in bytes, instructions of the three nodes, kind of miss.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    protocol: String,
    block_bytes: u64,
    instructions: [u64; 3],
    miss: String,
}

const NODES: [&str; 3] = ["requester", "home", "third"];

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output().expect("cargo has run a compiler");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// What the command counts now.
fn count() -> Vec<Row> {
    let mut command = tool::blizzard(["bench", "miss", "--instructions", "--json"]);
    let outcome = run(&mut command, "", LIMIT).unwrap();
    if outcome.stderr_text().contains(FORBIDDEN) {
        skip("needs a system that permits single steps (ptrace)");
    }
    let report: Value =
        serde_json::from_slice(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {}", outcome.describe()));
    let mut rows = Vec::new();
    for table in report["tables"].as_array().unwrap() {
        for miss in table["misses"].as_array().unwrap() {
            let number = |key: &str| miss[key].as_u64().unwrap_or_else(|| panic!("{key}: {report:#}"));
            rows.push(Row {
                protocol: table["protocol"].as_str().unwrap().to_owned(),
                block_bytes: table["block_bytes"].as_u64().unwrap(),
                instructions: NODES.map(number),
                miss: miss["name"].as_str().unwrap().to_owned(),
            });
            assert_eq!(number("all"), NODES.map(number).iter().sum::<u64>(), "{report:#}");
            assert!(number("requester") > 100 && number("home") > 100, "nothing was counted: {report:#}");
        }
    }
    rows
}

fn write(rows: &[Row]) -> String {
    let mut text = format!("# {}\n# protocol, block bytes, requester, home, third, miss\n", compiler());
    for Row { protocol, block_bytes, instructions: [requester, home, third], miss } in rows {
        writeln!(text, "{protocol:<8} {block_bytes:>5} {requester:>6} {home:>6} {third:>6}  {miss}").unwrap();
    }
    text
}

/// The compiler, and the rows.
fn parse(table: &str) -> (&str, Vec<Row>) {
    let mut lines = table.lines();
    let compiler = lines.next().unwrap_or_default().trim_start_matches("# ");
    let rows = lines.filter(|line| !line.starts_with('#') && !line.is_empty()).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [protocol, block_bytes, requester, home, third, ref miss @ ..] = words[..] else { panic!("{line}") };
        let number = |word: &str| word.parse().unwrap_or_else(|_| panic!("{line}"));
        let instructions = [requester, home, third].map(number);
        Row { protocol: protocol.to_owned(), block_bytes: number(block_bytes), instructions, miss: miss.join(" ") }
    });
    (compiler, rows.collect())
}

/// What is more than in the table, and what is less; `same`: the same compiler made the runtime.
fn compare(now: &[Row], table: &[Row], same: bool) -> (Vec<String>, Vec<String>) {
    let (mut more, mut less) = (Vec::new(), Vec::new());
    for row in now {
        let Row { protocol, block_bytes, miss, .. } = row;
        let name = format!("{protocol}, blocks of {block_bytes} bytes, {miss}");
        let is_this =
            |other: &&Row| (&other.protocol, other.block_bytes, &other.miss) == (protocol, *block_bytes, miss);
        let Some(known) = table.iter().find(is_this) else {
            more.push(format!("{name}: not in the table"));
            continue;
        };
        for ((node, &now), &known) in NODES.iter().zip(&row.instructions).zip(&known.instructions) {
            let line = format!("{name}: {now} instructions of the {node}, {known} in the table");
            if now > if same { known } else { known + known / 10 } {
                more.push(line);
            } else if same && now < known {
                less.push(line);
            }
        }
    }
    (more, less)
}

fn misses_take_no_more_instructions_than_they_did() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("guard-misses.txt");
    let now = count();
    assert_eq!(now, count(), "the numbers of two runs differ");
    if std::env::var_os("BLIZZARD_BLESS").is_some() {
        std::fs::write(&path, write(&now)).unwrap();
        return;
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let (made_by, table) = parse(&text);
    let (more, less) = compare(&now, &table, made_by == compiler());
    for line in less {
        println!("{line}: BLIZZARD_BLESS=1 lowers it");
    }
    assert!(more.is_empty(), "{}\nif that is meant: BLIZZARD_BLESS=1\n", more.join("\n"));
}

fn more_instructions_are_seen() {
    let row =
        |miss: &str, instructions| Row { protocol: "stache".into(), block_bytes: 64, instructions, miss: miss.into() };
    let table = [row("read miss", [400, 300, 0]), row("read miss, third node owns the block", [500, 600, 200])];
    let text = write(&table);
    assert_eq!(parse(&text), (compiler().as_str(), table.to_vec()));
    assert_eq!(compare(&table, &table, true), (vec![], vec![]));
    let (more, less) = compare(&[row("read miss", [401, 299, 0])], &table, true);
    assert_eq!(more, ["stache, blocks of 64 bytes, read miss: 401 instructions of the requester, 400 in the table"]);
    assert_eq!(less, ["stache, blocks of 64 bytes, read miss: 299 instructions of the home, 300 in the table"]);
    // Another compiler: a little more is its doing, much more is not.
    assert_eq!(compare(&[row("read miss", [440, 100, 0])], &table, false), (vec![], vec![]));
    assert_eq!(compare(&[row("read miss", [441, 331, 1])], &table, false).0.len(), 3);
    assert_eq!(
        compare(&[row("upgrade", [1, 1, 1])], &table, true).0,
        ["stache, blocks of 64 bytes, upgrade: not in the table"]
    );
}

/// A filter of system calls refuses ptrace, as a container's does.
fn where_processes_may_not_be_traced_the_command_says_what_to_do() {
    let folder = WorkDir::new("untraced").unwrap();
    let (source, filtered) = (folder.path().join("filtered.c"), folder.path().join("filtered"));
    std::fs::write(&source, FILTERED).unwrap();
    let made = program("cc").arg(&source).arg("-o").arg(&filtered).status().unwrap();
    assert!(made.success());
    let mut command = Command::new(&filtered);
    command.arg(tool::path()).args(["bench", "miss", "--instructions"]);
    let outcome = run(&mut command, "", LIMIT).unwrap();
    assert_eq!(outcome.ending, Ending::Exit(1), "{}", outcome.describe());
    let errors = outcome.stderr_text();
    assert!(errors.contains(FORBIDDEN) && errors.contains("help: ") && errors.contains("SYS_PTRACE"), "{errors}");
    assert!(outcome.stdout.is_empty(), "{}", outcome.describe());
}

const FILTERED: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **list) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (count < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("filtered");
        return 9;
    }
    execv(list[1], list + 1);
    perror("filtered");
    return 9;
}
"#;
