//! Words of data that name functions by their new addresses: which ones do, that each function and label keeps one address, and that the audit finds
//! what would give it two.

use crate::sources;
use blizzard::base::options::{Checks, Options, Poll};
use blizzard::pipeline;
use blizzard::reports::audit::verify_with;
use object::{Object, ObjectSection, ObjectSymbol};
use std::path::Path;
use std::process::Command;

blizzard_test_harness::module! {
    what_only_words_and_symbols_name_is_named_by_its_new_address,
    words_can_be_switched_off_and_counted_off,
    a_fixed_program_keeps_its_words,
    programs_find_one_address_for_each_function,
    the_audit_finds_what_has_two_addresses_and_words_that_lead_elsewhere,
}

const BLIZZARD: &str = env!("CARGO_BIN_EXE_blizzard");

/// `both`, `out` and the labels of `run` are named by words alone, `out` by its symbol as well; `taken` and a label of `held` by an instruction, too. In
/// front of `prefixed` stands a number that is found by the function's address. `soon` begins a section, and so has a second name.
const LIBRARY: &str = "
typedef int function(int);
static int both(int x) { return x + 1; }
static int taken(int x) { return x + 2; }
int out(int x) { return x + 3; }
extern int out_alias(int) __attribute__((alias(\"out\"), visibility(\"hidden\")));
static int __attribute__((section(\"early\"))) soon(int x) { return x + 4; }
extern int prefixed(int) __attribute__((visibility(\"hidden\")));
__asm__(\".text\\n.p2align 4\\n.quad 0x1122334455667788\\n.globl prefixed\\n.type prefixed, @function\\n\"
        \"prefixed: lea 5(%rdi), %eax\\n ret\\n.size prefixed, . - prefixed\\n\");
function *const first[] = { both, out_alias };
function *second[] = { both };
function *const takens[] = { taken };
function *const earlies[] = { soon };
function *const prefixeds[] = { prefixed };
extern char __start_early[];
const void *const bounds[] = { __start_early };
static int started;
__attribute__((constructor)) static void start(void) { started = 1; }
function *read_word(function *const volatile *at) { return *at; }
function *get_taken(void) { return taken; }
long number_before(void) { return ((const volatile long *)read_word(prefixeds))[-1]; }
int has_started(void) { return started; }
int run(const unsigned char *code, int x) {
    static const void *const labels_of_run[] = { &&add, &&twice, &&end };
    goto *labels_of_run[*code++];
add: x += 1; goto *labels_of_run[*code++];
twice: x *= 2; goto *labels_of_run[*code++];
end: return x;
}
int held(const unsigned char *code, int x) {
    static const void *const labels_of_held[] = { &&add, &&twice, &&end };
    const void *volatile own = &&add;
    goto *labels_of_held[*code++];
add: x += 3; goto *labels_of_held[*code++];
twice: x *= 5; if (x < 100) goto *own; goto *labels_of_held[*code++];
end: return x;
}
";

const PROGRAM: &str = "
#include <stdio.h>
typedef int function(int);
extern function *const first[], *second[], *const takens[], *const earlies[], *const prefixeds[];
extern const void *const bounds[];
int out(int);
function *read_word(function *const volatile *), *get_taken(void);
long number_before(void);
int has_started(void), run(const unsigned char *, int), held(const unsigned char *, int);
static int own(int x) { return x * 3; }
static function *const owns[] = { own };
static int mixed(int x) { return x * 7; }
static function *const mixeds[] = { mixed };
int main(void) {
    printf(\"%d %d %d\\n\", read_word(first)(1), read_word(first + 1)(1), read_word(second)(1));
    printf(\"%d %d %d\\n\", read_word(takens)(1), read_word(earlies)(1), read_word(prefixeds)(1));
    printf(\"%d %d\\n\", read_word(owns)(1), read_word(mixeds)(1));
    printf(\"%d %d\\n\", read_word(first) == read_word(second), read_word(first + 1) == out);
    printf(\"%d %d\\n\", read_word(takens) == get_taken(), read_word(mixeds) == mixed);
    printf(\"%d\\n\", (const void *)read_word(earlies) == bounds[0]);
    printf(\"%lx %d\\n\", number_before(), has_started());
    printf(\"%d %d\\n\", run((const unsigned char *)\"\\0\\1\\0\\2\", 1), held((const unsigned char *)\"\\0\\1\\0\\1\\2\", 1));
    return 0;
}
";

const EXPECTED: &str = "2 4 2\n3 5 6\n3 7\n1 1\n1 1\n1\n1122334455667788 1\n5 ";

/// How the numbers are kept: in a table of relocations, or where the words will be.
const TABLES: [&str; 2] = ["-Wl,-z,nopack-relative-relocs", "-Wl,-z,pack-relative-relocs"];

fn compile(source: &str, to: &Path, flags: &[&str]) -> Vec<u8> {
    sources::compile(source, to, &[&["-O2", "-fcf-protection=none"], flags].concat())
}

fn library(folder: &Path, table: &str) -> Vec<u8> {
    compile(LIBRARY, &folder.join("libwords.so"), &["-shared", "-fPIC", table])
}

fn rewrite(input: &[u8], options: &Options) -> pipeline::Rewritten {
    pipeline::rewrite_library(input, "libwords.so", options).unwrap()
}

/// Where in the file the number of the `k`th word of an object stands that the dynamic loader adds the file's address to.
fn number_at(file: &[u8], object: &str, k: u64) -> usize {
    let elf = object::File::parse(file).unwrap();
    let named = |s: &object::Symbol| s.name().is_ok_and(|name| name.split('.').next() == Some(object));
    let place = elf.symbols().find(named).unwrap_or_else(|| panic!("{object}")).address() + 8 * k;
    let table = elf.section_by_name(".rela.dyn").unwrap();
    let rows = table.data().unwrap().chunks_exact(24);
    let row = rows.into_iter().position(|row| row[..16] == [place.to_le_bytes(), 8u64.to_le_bytes()].concat());
    let in_place = || {
        let holds = |s: &object::Section| place.wrapping_sub(s.address()) < s.size();
        let section = elf.sections().find(holds).unwrap();
        (section.file_range().unwrap().0 + (place - section.address())) as usize
    };
    row.map_or_else(in_place, |row| table.file_range().unwrap().0 as usize + 24 * row + 16)
}

fn word(file: &[u8], object: &str, k: u64) -> u64 {
    let at = number_at(file, object, k);
    u64::from_le_bytes(file[at..at + 8].try_into().unwrap())
}

fn is_new(file: &[u8], va: u64) -> bool {
    let elf = object::File::parse(file).unwrap();
    let text = elf.section_by_name(".blizzard.text").unwrap();
    va.wrapping_sub(text.address()) < text.size()
}

/// Of the words of the library: object, and how many; those of which the new addresses are named, and the others.
const CHANGED: [(&str, u64); 3] = [("first", 2), ("second", 1), ("labels_of_run", 3)];
const KEPT: [(&str, u64); 5] = [("takens", 1), ("earlies", 1), ("bounds", 1), ("prefixeds", 1), ("labels_of_held", 3)];

fn what_only_words_and_symbols_name_is_named_by_its_new_address() {
    let folder = tempfile::tempdir().unwrap();
    let relocated = Options { checks: Checks::None, poll: Poll::None, ..Options::default() };
    for table in TABLES {
        let input = library(folder.path(), table);
        for options in [Options::default(), relocated] {
            let output = rewrite(&input, &options);
            let audit = verify_with(&output.bytes, "libwords.so", Some(&input)).unwrap();
            assert!(audit.is_clean(), "{audit}");
            for (object, count) in CHANGED {
                for k in 0..count {
                    assert!(is_new(&output.bytes, word(&output.bytes, object, k)), "{table} {object}[{k}]");
                }
            }
            for (object, count) in KEPT {
                for k in 0..count {
                    assert_eq!(word(&output.bytes, object, k), word(&input, object, k), "{table} {object}[{k}]");
                }
            }
            assert_eq!(word(&output.bytes, "first", 0), word(&output.bytes, "second", 0));
            // `both`, `out`, three labels.
            assert_eq!((output.report.direct_words, audit.targets.words), (5, 5));
        }
    }
}

fn words_can_be_switched_off_and_counted_off() {
    let folder = tempfile::tempdir().unwrap();
    let input = library(folder.path(), TABLES[0]);
    let relocated = Options { checks: Checks::None, poll: Poll::None, ..Options::default() };
    let off = rewrite(&input, &Options { words: false, ..relocated });
    assert_eq!((off.report.direct_words, word(&off.bytes, "first", 0)), (0, word(&input, "first", 0)));
    // A function with a symbol has one address by either.
    assert_eq!(word(&off.bytes, "first", 1), word(&input, "first", 1));
    let alone = rewrite(&input, &Options { exports: false, ..relocated });
    assert_eq!((alone.report.direct_exports, alone.report.direct_words), (0, 4));
    assert_eq!(word(&alone.bytes, "first", 1), word(&input, "first", 1));
    let all = rewrite(&input, &relocated).report;
    // The labels of a function are changed together.
    let counts = (0..20).map(|n| rewrite(&input, &Options { fuel: Some(n), ..relocated }).report.direct_words);
    let counts: Vec<usize> = counts.collect();
    assert_eq!((counts[0], *counts.last().unwrap()), (0, all.direct_words), "{counts:?}");
    let mut steps: Vec<usize> = counts.windows(2).map(|w| w[1] - w[0]).filter(|step| *step > 0).collect();
    steps.sort_unstable();
    assert_eq!(steps, [1, 1, 3]);
}

fn a_fixed_program_keeps_its_words() {
    // Any of its words may be an address or a number.
    let folder = tempfile::tempdir().unwrap();
    let source = format!("{LIBRARY}int main(void) {{ return first[0](-1); }}");
    let input = compile(&source, &folder.path().join("fixed"), &["-no-pie"]);
    let output = pipeline::rewrite(&*input, "fixed", &Options::default()).unwrap();
    assert_eq!(output.report.direct_words, 0);
    assert_eq!(word(&output.bytes, "first", 0), word(&input, "first", 0));
}

fn programs_find_one_address_for_each_function() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let rpath = format!("-Wl,-rpath,{}", folder.path().display());
    let run = |command: &mut Command| {
        let out = command.env("BLIZZARD_CACHE", at("cache")).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    for table in TABLES {
        library(folder.path(), table);
        let so = at("libwords.so");
        for (name, flags) in [
            ("pie", vec!["-pie", table, so.to_str().unwrap(), &rpath]),
            ("fixed", { vec!["-no-pie", so.to_str().unwrap(), &rpath] }),
        ] {
            compile(PROGRAM, &at(name), &flags);
            let expected = run(&mut Command::new(at(name)));
            assert!(expected.starts_with(EXPECTED), "{expected}");
            assert_eq!(run(Command::new(BLIZZARD).arg("run").arg(at(name))), expected, "{name} {table}");
        }
        // A program that relocates itself.
        std::fs::write(at("l.c"), LIBRARY).unwrap();
        let library = at("l.c");
        compile(PROGRAM, &at("static"), &["-static-pie", table, library.to_str().unwrap()]);
        let expected = run(&mut Command::new(at("static")));
        assert!(expected.starts_with(EXPECTED), "{expected}");
        assert_eq!(run(Command::new(BLIZZARD).arg("run").arg(at("static"))), expected, "static {table}");
    }
}

fn the_audit_finds_what_has_two_addresses_and_words_that_lead_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    for table in TABLES {
        let input = library(folder.path(), table);
        let output = rewrite(&input, &Options::default()).bytes;
        let elf = object::File::parse(&*output).unwrap();
        let new_of = |name: &str| elf.symbols().find(|s| s.name() == Ok(name)).unwrap().address();
        let (old, new) = (word(&input, "first", 0), word(&output, "first", 0));
        for (object, k, value, words) in [
            ("first", 0, old, "known by its new address"),
            ("second", 0, old, "known by its new address"),
            ("first", 0, new + 1, "none of the old code leads"),
            ("first", 0, new_of("out"), "data of the original was changed"),
            ("first", 1, word(&input, "first", 1), "known by its new address"),
            ("takens", 0, new_of("taken"), "known by its new address"),
            ("earlies", 0, new_of("soon"), "known by its new address"),
            ("labels_of_run", 1, word(&output, "labels_of_run", 1) + 1, "none of the old code leads"),
        ] {
            let at = number_at(&output, object, k);
            let mut changed = output.clone();
            changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let audit = verify_with(&changed, "libwords.so", Some(&input)).unwrap();
            let found = audit.open.iter().any(|f| f.reason.contains(words));
            assert!(found, "{table} {object}[{k}] = {value:#x}: {audit}");
        }
        assert!(verify_with(&output, "libwords.so", Some(&input)).unwrap().is_clean());
    }
}
