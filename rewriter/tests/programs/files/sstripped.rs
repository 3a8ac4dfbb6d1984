//! Files without section headers that end with their last segment, as `sstrip` of ELFkickers leaves them.

use crate::sources::{blizzard, finished};
use blizzard_test_harness::tool;
use object::elf::{FileHeader64, PT_LOAD, ProgramHeader64, SHN_UNDEF};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, U16, U64, pod};
use std::path::Path;

blizzard_test_harness::module! {
    stripped_programs_are_rewritten_audited_and_run,
}

/// Each has a jump table, a table of functions, calls through pointers, and calls back from a library.
const C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int add(int a, int b) { return a + b; }
static int sub(int a, int b) { return a - b; }
static int mul(int a, int b) { return a * b; }
static int (*const functions[])(int, int) = {add, sub, mul};
int cases(int x, int y) {
    switch (x) {
    case 0: return 5;
    case 1: return y * 99;
    case 2: return rand() % 1 + 3;
    case 3: return y ^ 17;
    case 4: return y / 8;
    case 5: return y - 2;
    case 6: return (int)strlen("abc");
    default: return -1;
    }
}
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) {
    int values[100];
    for (int i = 0; i < 100; i++) values[i] = i * 7919 % 101;
    qsort(values, 100, sizeof *values, compare);
    long sum = 0;
    for (int i = 0; i < 100; i++) sum += functions[i % 3](values[i], i) + cases(i % 9, i);
    char *text = malloc(100);
    snprintf(text, 100, "%ld %f", sum, sum / 3.0);
    puts(text);
    free(text);
    return 0;
}
"#;

/// Frames and landing pads, too. Of a static program at a fixed address no header leads to the frames.
const CPP: &str = r#"
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
struct Function { virtual int of(int) = 0; virtual ~Function() {} };
struct Throws : Function { int of(int x) override { if (x % 7 == 3) throw std::runtime_error("seven"); return x * 2; } };
struct Adds : Function { int of(int x) override { return x + 1; } };
int main() {
    std::map<std::string, int> sums;
    Function *functions[2] = {new Throws, new Adds};
    int caught = 0;
    for (int i = 0; i < 100; i++) {
        try { sums[std::to_string(i % 10)] += functions[i % 2]->of(i); } catch (const std::exception &) { caught++; }
    }
    for (auto &sum : sums) std::cout << sum.first << " " << sum.second << "\n";
    std::cout << caught << "\n";
    for (Function *function : functions) delete function;
}
"#;

const RUST: &str = r#"
trait Function { fn of(&self, x: i64) -> i64; }
struct Panics;
struct Adds(i64);
impl Function for Panics { fn of(&self, x: i64) -> i64 { if x % 7 == 3 { panic!("seven") } x * 2 } }
impl Function for Adds { fn of(&self, x: i64) -> i64 { x + self.0 } }
fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let functions: Vec<Box<dyn Function>> = vec![Box::new(Panics), Box::new(Adds(3))];
    let (mut sums, mut caught) = (std::collections::BTreeMap::new(), 0);
    for i in 0..100i64 {
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| functions[i as usize % 2].of(i))) {
            Ok(value) => *sums.entry(format!("{}", i % 10)).or_insert(0) += value,
            Err(_) => caught += 1,
        }
    }
    println!("{sums:?} {caught}");
}
"#;

/// Takes the section headers away, and what stands behind the last byte of a segment that is not zero.
fn sstrip(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    let endian = Endianness::Little;
    let header = FileHeader64::<Endianness>::parse(&*bytes).unwrap();
    let mut programs = header.program_headers(endian, &*bytes).unwrap().to_vec();
    let table = header.e_phoff(endian) as usize;
    let of_segment = |p: &ProgramHeader64<Endianness>| (p.p_offset(endian) + p.p_filesz(endian)) as usize;
    bytes.truncate(programs.iter().filter(|p| p.p_type(endian) == PT_LOAD).map(of_segment).max().unwrap());
    bytes.truncate(bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1);
    for program in &mut programs {
        let left = (bytes.len() as u64).saturating_sub(program.p_offset(endian)).min(program.p_filesz(endian));
        program.p_filesz = U64::new(endian, left);
    }
    let programs = pod::bytes_of_slice(&programs);
    bytes[table..table + programs.len()].copy_from_slice(programs);
    let (header, _) = pod::from_bytes_mut::<FileHeader64<Endianness>>(&mut bytes).unwrap();
    header.e_shoff = U64::new(endian, 0);
    header.e_shnum = U16::new(endian, 0);
    header.e_shstrndx = U16::new(endian, SHN_UNDEF);
    std::fs::write(file, bytes).unwrap();
}

fn stripped_programs_are_rewritten_audited_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let gcc: &[&[&str]] = &[&["-O2", "-pie", "-fpie"], &["-O2", "-no-pie"], &["-O2", "-static"]];
    let rustc: &[&[&str]] = &[&["-O"], &["-O", "-Crelocation-model=static"], &["-O", "-Ctarget-feature=+crt-static"]];
    for (source, text, compiler, flags) in
        [("p.c", C, "gcc", gcc), ("p.cpp", CPP, "g++", gcc), ("p.rs", RUST, "rustc", rustc)]
    {
        std::fs::write(folder.join(source), text).unwrap();
        for flags in flags {
            let mut compiler = if compiler == "rustc" { std::process::Command::new(compiler) } else { tool(compiler) };
            let built = compiler.args(*flags).args([source, "-o", "p"]).current_dir(folder).status();
            assert!(built.unwrap().success());
            let original = || finished(std::process::Command::new(folder.join("p")).output().unwrap());
            let expected = original();
            sstrip(&folder.join("p"));
            assert_eq!(original(), expected, "{source} {flags:?}: stripped");
            for access in ["tests", "guard"] {
                let command = |arguments: &[&str]| finished(blizzard(folder).args(arguments).output().unwrap());
                let (_, said, status) = command(&["rewrite", "--access", access, "p", "-o", "p.blz"]);
                assert_eq!(status, 0, "{source} {flags:?}: {said}");
                let (said, _, status) = command(&["verify", "p.blz", "--original", "p"]);
                assert_eq!(status, 0, "{source} {flags:?}: {said}");
                let rewritten = finished(std::process::Command::new(folder.join("p.blz")).output().unwrap());
                assert_eq!(rewritten, expected, "{source} {flags:?}");
                let (said, _, status) = command(&["run", "-n", "2", "--access", access, "./p"]);
                assert_eq!((said.len(), status), (2 * expected.0.len(), 0), "{source} {flags:?}");
                std::fs::remove_file(folder.join("p.blz")).unwrap();
            }
        }
    }
}
