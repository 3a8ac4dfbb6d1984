//! Programs that keep data in their own files, behind all that an ELF header names: self-extracting archives, and interpreters with their
//! scripts. unzipsfx did not find its archive, because the output ended with section headers.

use crate::sources;
use blizzard::base::options::Options;
use blizzard::pipeline;
use blizzard::reports::audit::verify_with;
use blizzard_test_harness::executable;
use std::path::Path;
use std::process::Command;

blizzard_test_harness::module! {
    what_is_attached_to_a_program_is_found_in_all_ways, the_audit_misses_what_was_attached,
}

/// Prints what it finds in its own file: from the end (the last 16 bytes: where a text began, and its length), behind the
/// section headers, and where the text began.
const SOURCE: &str = r#"
#include <elf.h>
#include <stdio.h>
static void show(FILE *f, long at, long n) {
    char text[64] = {0};
    fseek(f, at, SEEK_SET);
    if (n < 64 && fread(text, 1, n, f) == (size_t)n) puts(text);
}
int main(void) {
    FILE *f = fopen("/proc/self/exe", "r");
    Elf64_Ehdr h;
    long foot[2];
    if (!f || fread(&h, sizeof h, 1, f) != 1 || fseek(f, -16, SEEK_END) || fread(foot, 16, 1, f) != 1) return 1;
    fseek(f, 0, SEEK_END);
    show(f, ftell(f) - 16 - foot[1], foot[1]);
    show(f, h.e_shoff + h.e_shnum * h.e_shentsize, foot[1]);
    show(f, foot[0], foot[1]);
    return 0;
}
"#;

const TEXT: &str = "an archive";

fn build(folder: &Path) -> Vec<u8> {
    let mut file = sources::compile(SOURCE, &folder.join("a"), &["-O1", "-static"]);
    let start = file.len() as u64;
    file.extend(TEXT.bytes());
    file.extend(start.to_le_bytes());
    file.extend((TEXT.len() as u64).to_le_bytes());
    file
}

fn run(file: &Path, bytes: &[u8]) -> String {
    executable::write(file, bytes);
    let output = Command::new(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn what_is_attached_to_a_program_is_found_in_all_ways() {
    let folder = tempfile::tempdir().unwrap();
    let input = build(folder.path());
    let all = format!("{TEXT}\n{TEXT}\n{TEXT}\n");
    assert_eq!(run(&folder.path().join("original"), &input), all);
    let output = pipeline::rewrite(&input, "a", &Options::default()).unwrap();
    assert_eq!(run(&folder.path().join("rewritten"), &output.bytes), all);
}

fn the_audit_misses_what_was_attached() {
    let folder = tempfile::tempdir().unwrap();
    let input = build(folder.path());
    let output = pipeline::rewrite(&input, "a", &Options::default()).unwrap();
    let open = |bytes: &[u8]| {
        let audit = verify_with(bytes, "a", Some(&input)).unwrap();
        audit.open.iter().map(|f| f.reason.clone()).collect::<Vec<_>>()
    };
    assert_eq!(open(&output.bytes), [""; 0]);
    let cut = output.bytes.len() - TEXT.len() - 16;
    assert_eq!(open(&output.bytes[..cut]), ["what is attached to the original is not at the end of the output"]);
}
