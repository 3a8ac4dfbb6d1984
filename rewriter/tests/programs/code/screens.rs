//! Checks that ask first whether an address can be shared memory: where they are used, and that nothing shared passes them.

use crate::sources;
use blizzard::base::options::Options;
use blizzard::pipeline;
use blizzard::read::rewritten;
use blizzard::reports::audit::verify_with;
use std::path::{Path, PathBuf};
use std::process::Command;

blizzard_test_harness::module! {
    programs_that_share_memory_or_lie_low_have_none,
    shared_memory_does_not_pass_a_screen,
    fuel_counts_screens,
    an_index_of_32_bits_is_left_out,
}

const BLIZZARD: &str = env!("CARGO_BIN_EXE_blizzard");

fn compile(folder: &Path, source: &str, flags: &[&str]) -> Vec<u8> {
    sources::compile(source, &folder.join("p"), &[&["-O2"], flags].concat())
}

/// What a program that shares memory is compiled with.
fn client_flags(folder: &Path) -> Vec<String> {
    let out = Command::new(BLIZZARD)
        .args(["config", "--cflags", "--libs"])
        .env("BLIZZARD_CACHE", folder.join("cache"))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

/// Rewrites, has the result audited, and puts it into a file.
fn rewrite(folder: &Path, input: &[u8], options: &Options) -> (PathBuf, u64) {
    let output = pipeline::rewrite(input, "p", options).unwrap();
    let audit = verify_with(&output.bytes, "p", Some(input)).unwrap();
    assert!(audit.is_clean(), "{audit}");
    let path = folder.join("p.rewritten");
    std::fs::write(&path, &output.bytes).unwrap();
    let status = Command::new("chmod").arg("+x").arg(&path).status().unwrap();
    assert!(status.success());
    (path, output.report.screens)
}

fn run(folder: &Path, program: &Path, nodes: &str) -> String {
    let mut command = Command::new("timeout");
    command.args(["300", BLIZZARD, "run", "-n", nodes, "--allow-incomplete", "--"]).arg(program);
    let out = command.env("BLIZZARD_CACHE", folder.join("cache")).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn programs_that_share_memory_or_lie_low_have_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let plain = "int main(void) { return 0; }";
    let shares = "#include <blizzard.h>\nint main(void) { return bz_alloc(64) == 0; }";
    let flags = client_flags(folder);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let screens =
        |source: &str, flags: &[&str]| rewritten::fitting(&compile(folder, source, flags), Options::tests()).screens;
    assert!(screens(plain, &["-pie"]));
    assert!(screens(plain, &["-static-pie"]));
    assert!(!screens(plain, &["-no-pie"]));
    assert!(!screens(plain, &["-static", "-no-pie"]));
    assert!(!screens(shares, &flags));
    // Nobody gets them who does not want them, and what is no program does not either.
    let without = Options { screens: false, ..Options::tests() };
    assert!(!rewritten::fitting(&compile(folder, plain, &["-pie"]), without).screens);
    assert!(!rewritten::fitting(b"no program", Options::tests()).screens);
}

/// Each node writes its own words of shared memory, whose blocks the nodes have in common, and reads those of the others.
const SHARING: &str = "
#include <blizzard.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    enum { WORDS = 1000, ROUNDS = 40 };
    uint32_t me = bz_node(), nodes = bz_nodes();
    struct { uint64_t words[WORDS]; unsigned char bytes[WORDS + 16]; } *s;
    if (me == 0) { s = bz_alloc(sizeof *s); memset(s, 0, sizeof *s); bz_publish(0, s); }
    bz_barrier();
    s = bz_lookup(0);
    uint64_t sum = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        for (uint32_t i = me; i < WORDS; i += nodes) {
            s->words[i] += (uint64_t)i * round;
            s->bytes[i] = (unsigned char)(i + round);
        }
        bz_barrier();
        for (uint32_t i = 0; i < WORDS; i++) {
            uint64_t straddling;
            memcpy(&straddling, s->bytes + i, 8);
            sum = sum * 31 + s->words[i] + straddling;
        }
        bz_barrier();
    }
    if (me == 0) printf(\"%llx\\n\", (unsigned long long)sum);
    return 0;
}
";

fn shared_memory_does_not_pass_a_screen() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let flags = client_flags(folder);
    // No libraries: they would stay as they are.
    for place in [&["-static", "-no-pie"][..], &["-static-pie"]] {
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(place.iter().copied()).collect();
        let input = compile(folder, SHARING, &flags);
        let (tags, none) = rewrite(folder, &input, &Options { screens: false, ..Options::tests() });
        assert_eq!(none, 0);
        let expected = run(folder, &tags, "1");
        assert!(expected.len() > 8, "{expected}");
        for options in [Options::tests(), Options { count: true, strips: false, ..Options::tests() }] {
            let (screened, some) = rewrite(folder, &input, &options);
            assert!(some > 100, "{some}");
            for nodes in ["1", "2", "3"] {
                assert_eq!(run(folder, &screened, nodes), expected, "{nodes} nodes");
            }
        }
    }
}

fn fuel_counts_screens() {
    let folder = tempfile::tempdir().unwrap();
    let source = "volatile long *p; int main(void) { return (int)(p[0] + p[64] + p[128]); }";
    let input = compile(folder.path(), source, &["-pie"]);
    let screens = |fuel| {
        let options =
            Options { fuel, merge: false, across: false, strips: false, place_polls: false, ..Options::tests() };
        pipeline::rewrite(&input, "p", &options).unwrap().report.screens
    };
    let all = screens(None);
    assert!(all >= 3, "{all}");
    assert_eq!([0, 1, 2, all, all + 1].map(|n| screens(Some(n))), [0, 1, 2, all, all]);
}

/// Where an index has 32 bits, the base is asked itself: nothing is added up for that, and no register is needed.
fn an_index_of_32_bits_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let body = |index: &str| {
        format!(
            "__asm__(\".globl element\\n.type element, @function\\nelement: .cfi_startproc\\n\"
            \" {index}\\n movzbl (%rdi,%rcx), %eax\\n ret\\n .cfi_endproc\\n.size element, . - element\");
            unsigned element(const unsigned char *, unsigned long);
            int main(int argc, char **argv) {{ return element((unsigned char *)argv[0], argc) == 1; }}"
        )
    };
    let asks_rdi = |index: &str| {
        let input = compile(folder.path(), &body(index), &["-pie"]);
        let output = pipeline::rewrite(&input, "p", &Options::tests()).unwrap();
        assert!(verify_with(&output.bytes, "p", Some(&input)).unwrap().is_clean());
        // bt rdi, 46; jae; movzbl (%rdi,%rcx), %eax
        let (asked, access) = ([0x48, 0x0f, 0xba, 0xe7, 46, 0x0f, 0x83], [0x0f, 0xb6, 0x04, 0x0f, 0xc3]);
        let sequence = |at: &[u8]| at.starts_with(&asked) && at[asked.len() + 4..].starts_with(&access);
        output.bytes.windows(asked.len() + 4 + access.len()).any(sequence)
    };
    assert!(asks_rdi("mov %esi, %ecx"));
    assert!(asks_rdi("movslq %esi, %rcx"));
    assert!(!asks_rdi("mov %rsi, %rcx"));
}
