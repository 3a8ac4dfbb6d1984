//! Exported functions that are known by their new addresses: which ones are, that pointers to a function are equal wherever they come from, and that
//! the audit finds what would let them differ.

use crate::sources::{self, SharedProgram};
use blizzard::base::options::{AccessMode, Checks, Options, Poll};
use blizzard::pipeline;
use blizzard::reports::audit::verify_with;
use object::{Object, ObjectSection, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;

blizzard_test_harness::module! {
    functions_that_only_their_symbols_name_are_known_by_their_new_addresses,
    exports_can_be_switched_off_and_counted_off,
    a_fixed_program_keeps_its_functions_addresses,
    pointers_to_a_function_are_equal_wherever_they_come_from,
    the_audit_finds_functions_of_two_addresses_and_symbols_that_lead_elsewhere,
    full_versions_have_their_functions_names,
    the_audit_finds_symbols_that_are_no_full_versions,
}

const BLIZZARD: &str = env!("CARGO_BIN_EXE_blizzard");

/// `hidden` and `listed` have a second name for the library's own use, by which an instruction and a word of data name them: the word can be changed.
/// `last` ends with a call of the function right behind it: what such a call pushes is that function's address.
const LIBRARY: &str = "
int plain(int x) { return x + 1; }
extern int same(int) __attribute__((alias(\"plain\")));
int twice(int x) { return plain(x) * 2; }
__attribute__((visibility(\"hidden\"))) int hidden_(int x) { return x + 5; }
extern int hidden(int) __attribute__((alias(\"hidden_\")));
int (*get_hidden(void))(int) { return hidden_; }
__attribute__((visibility(\"hidden\"))) int listed_(int x) { return x + 7; }
extern int listed(int) __attribute__((alias(\"listed_\")));
int (*list[])(int) = { listed_ };
int (*get_listed(void))(int) { return *(int (*volatile *)(int))list; }
int (*const symbols[])(int) = { plain };
int (*get_plain(void))(int) { return *(int (*const volatile *)(int))symbols; }
__asm__(\".globl last, behind\\n.type last, @function\\n.type behind, @function\\n\"
        \"last: mov $3, %eax\\n call 1f\\n\"
        \"behind:\\n1: pop %rax\\n ret\\n.size behind, . - behind\\n.size last, behind - last\\n\");
";

const PROGRAM: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int plain(int), same(int), twice(int), hidden(int), listed(int);
int (*get_hidden(void))(int), (*get_listed(void))(int), (*get_plain(void))(int);
int main(void) {
    Dl_info info;
    int (*found)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, \"plain\");
    printf(\"%d %d %d %d %d\\n\", plain(1), same(1), twice(1), hidden(1), listed(1));
    printf(\"%d %d %d\\n\", found == plain, same == plain, get_plain() == plain);
    printf(\"%d %d\\n\", get_hidden() == hidden, get_listed() == listed);
    printf(\"%d\\n\", get_hidden()(1) + get_listed()(1) + get_plain()(1) + found(1));
    printf(\"%d %s\\n\", dladdr((void *)twice, &info), info.dli_sname);
    printf(\"%d\\n\", info.dli_saddr == (void *)twice);
    return 0;
}
";

fn compile(source: &str, to: &Path, flags: &[&str]) -> Vec<u8> {
    sources::compile(source, to, &[&["-O2"], flags].concat())
}

fn library(folder: &Path) -> (PathBuf, Vec<u8>) {
    let path = folder.join("libexports.so");
    let bytes = compile(LIBRARY, &path, &["-shared", "-fPIC", "-fcf-protection=none"]);
    (path, bytes)
}

/// The sizes of the function in the two symbol tables.
fn sizes(file: &[u8], name: &str) -> [u64; 2] {
    let elf = object::File::parse(file).unwrap();
    [elf.dynamic_symbols().find(|s| s.name() == Ok(name)), elf.symbols().find(|s| s.name() == Ok(name))]
        .map(|s| s.unwrap().size())
}

/// Value and place in the file of a dynamic symbol.
fn export(file: &[u8], name: &str) -> (u64, usize) {
    let elf = object::File::parse(file).unwrap();
    let table = elf.section_by_name(".dynsym").unwrap().file_range().unwrap().0 as usize;
    let symbol = elf.dynamic_symbols().find(|s| s.name() == Ok(name)).unwrap();
    (symbol.address(), table + 24 * symbol.index().0 + 8)
}

fn is_new(file: &[u8], name: &str) -> bool {
    let elf = object::File::parse(file).unwrap();
    let text = elf.section_by_name(".blizzard.text").unwrap();
    export(file, name).0.wrapping_sub(text.address()) < text.size()
}

fn functions_that_only_their_symbols_name_are_known_by_their_new_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let (_, input) = library(folder.path());
    let relocated = Options { checks: Checks::None, poll: Poll::None, ..Options::default() };
    for options in [Options::default(), relocated] {
        let output = pipeline::rewrite_library(&*input, "libexports.so", &options).unwrap();
        let audit = verify_with(&output.bytes, "libexports.so", Some(&input)).unwrap();
        assert!(audit.is_clean(), "{audit}");
        for name in ["plain", "same", "twice", "listed", "get_hidden", "get_listed", "get_plain", "last"] {
            assert!(is_new(&output.bytes, name), "{name}");
            let [dynamic, other] = sizes(&output.bytes, name);
            assert_eq!(dynamic, other, "{name}");
        }
        assert!(sizes(&output.bytes, "twice")[0] >= sizes(&input, "twice")[0]);
        for name in ["hidden", "behind"] {
            assert_eq!(export(&output.bytes, name), export(&input, name), "{name}");
        }
        assert_eq!(export(&output.bytes, "plain").0, export(&output.bytes, "same").0);
        assert_eq!(output.report.direct_exports as u64, audit.targets.direct);
    }
}

fn exports_can_be_switched_off_and_counted_off() {
    let folder = tempfile::tempdir().unwrap();
    let (_, input) = library(folder.path());
    let relocated = Options { checks: Checks::None, poll: Poll::None, ..Options::default() };
    let rewrite = |options: &Options| pipeline::rewrite_library(&*input, "libexports.so", options).unwrap();
    let off = rewrite(&Options { exports: false, ..relocated });
    assert_eq!(off.report.direct_exports, 0);
    assert_eq!(export(&off.bytes, "plain"), export(&input, "plain"));
    assert_eq!(rewrite(&Options { fuel: Some(2), ..relocated }).report.direct_exports, 2);
    assert!(rewrite(&relocated).report.direct_exports > 2);
}

fn a_fixed_program_keeps_its_functions_addresses() {
    // What it exports has been put into its instructions as numbers.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fixed");
    compile(
        "int f(int x) { return x; }\nint main(void) { return f(0); }",
        &path,
        &["-no-pie", "-rdynamic", "-fcf-protection=none"],
    );
    let input = std::fs::read(&path).unwrap();
    let output = pipeline::rewrite(&*input, "fixed", &Options::default()).unwrap();
    assert_eq!(export(&output.bytes, "f"), export(&input, "f"));
}

fn pointers_to_a_function_are_equal_wherever_they_come_from() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = library(folder.path());
    let program = folder.path().join("p");
    let rpath = format!("-Wl,-rpath,{}", folder.path().display());
    for kind in ["-pie", "-no-pie"] {
        compile(PROGRAM, &program, &[path.to_str().unwrap(), &rpath, kind, "-ldl"]);
        let run = |command: &mut Command| {
            let out = command.env("BLIZZARD_CACHE", folder.path().join("cache")).output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8(out.stdout).unwrap()
        };
        let expected = run(&mut Command::new(&program));
        assert!(expected.starts_with("2 2 4 6 8\n1 1 1\n1 1\n"), "{expected}");
        assert_eq!(run(Command::new(BLIZZARD).arg("run").arg(&program)), expected, "{kind}");
    }
}

fn the_audit_finds_functions_of_two_addresses_and_symbols_that_lead_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let (_, input) = library(folder.path());
    let output = pipeline::rewrite_library(&*input, "libexports.so", &Options::default()).unwrap().bytes;
    let all = Options { exports: false, ..Options::default() };
    let old = pipeline::rewrite_library(&*input, "libexports.so", &all).unwrap().bytes;
    let elf = object::File::parse(&*output).unwrap();
    // Without the names of functions in `.symtab`: what is named by a word or an instruction.
    let new_of = |name: &str| elf.symbols().find(|s| s.name() == Ok(name)).unwrap().address();
    let with = |file: &[u8], name: &str, value: u64| {
        let at = export(file, name).1;
        let elf = object::File::parse(file).unwrap();
        let begin = |name: &str| Some(elf.section_by_name(name)?.file_range()?.0 as usize);
        // In the longer copy of the table as well, which is the one that the loader reads.
        let longer = begin(".blizzard.dynsym").map(|longer| longer + at - begin(".dynsym").unwrap());
        let mut changed = file.to_vec();
        for at in [Some(at), longer].into_iter().flatten() {
            changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        changed
    };
    let plain = export(&output, "plain").0;
    let twice = export(&output, "twice").0;
    for (name, value, words) in [
        ("plain", plain + 1, "where none of the old code leads"),
        ("plain", export(&input, "plain").0, "known by its new address"),
        ("hidden", new_of("hidden"), "known by its new address"),
        ("listed", export(&input, "listed").0, "known by its new address"),
        ("behind", new_of("behind"), "known by its new address"),
        ("plain", twice, "data of the original was changed"),
        ("twice", twice - 16, ""),
    ] {
        let changed = with(&output, name, value);
        let audit = verify_with(&changed, "libexports.so", Some(&input)).unwrap();
        assert!(!audit.is_clean(), "{name} at {value:#x}");
        let found = audit.open.iter().any(|f| f.reason.contains(words));
        assert!(found, "{name} at {value:#x}: {audit}");
    }
    // Each alone is what it should be.
    assert!(verify_with(&old, "libexports.so", Some(&input)).unwrap().is_clean());
}

/// Node 1 misses, and goes on in full versions.
const GUARDED: &str = r#"
#define _GNU_SOURCE
#include <blizzard.h>
#include <dlfcn.h>
#include <stdio.h>
static long *cells;
__attribute__((noinline)) void name(const void *at) {
    Dl_info info;
    printf("%s\n", dladdr(at, &info) && info.dli_sname ? info.dli_sname : "none");
}
__attribute__((noinline)) long inner(long k) {
    long sum = cells[k];
    name(__builtin_return_address(0));
    return sum + cells[k + 64];
}
__attribute__((noinline)) long outer(long k) {
    long sum = cells[k + 128];
    sum += inner(k);
    return sum + cells[k + 192];
}
int main(void) {
    if (bz_node() == 0) {
        cells = bz_alloc(4096 * 8);
        bz_publish(1, cells);
    }
    bz_barrier();
    cells = bz_lookup(1);
    for (long k = 0; bz_node() == 1 && k < 3; k++)
        outer(k);
    bz_barrier();
    printf("%d\n", dlsym(RTLD_DEFAULT, "outer") == (void *)outer && dlsym(RTLD_DEFAULT, "inner") == (void *)inner);
    return 0;
}
"#;

/// `dladdr` found nothing there.
fn full_versions_have_their_functions_names() {
    for kind in ["-pie", "-no-pie"] {
        for flags in ["-O2", "-Wl,--hash-style=sysv"] {
            let program = SharedProgram::new(GUARDED, &["-rdynamic", kind, flags]);
            let (out, err, status) = program.run(&["-n", "2", "--access", "guard"], "");
            assert_eq!(status, 0, "{err}");
            let named = out.lines().filter(|line| *line == "outer").count();
            assert_eq!((named, out.lines().filter(|line| *line == "1").count()), (3, 2), "{kind} {flags}: {out}{err}");
        }
    }
}

/// Where the rows of the longer table stand in the file that were added, by name.
fn added(file: &[u8], name: &str) -> Vec<usize> {
    let elf = object::File::parse(file).unwrap();
    let old = elf.section_by_name(".dynsym").unwrap().file_range().unwrap();
    let (from, bytes) = elf.section_by_name(".blizzard.dynsym").unwrap().file_range().unwrap();
    let (_, symbol) = export(file, name);
    let rows = (from + old.1..from + bytes).step_by(24).map(|at| at as usize);
    rows.filter(|&at| file[at..at + 4] == file[symbol - 8..symbol - 4]).collect()
}

fn the_audit_finds_symbols_that_are_no_full_versions() {
    let folder = tempfile::tempdir().unwrap();
    // Padding stands behind functions.
    let source = "int one(int *p) { return p[3] + 1; }\nint two(int *p, int k) { int sum = 0; while (k--) sum += p[k]; return sum; }\n\
                  int three(int *p) { return p[5] + one(p); }\nint four(int *p) { return two(p, 3) + 1; }\n";
    let input = compile(source, &folder.path().join("lib.so"), &["-shared", "-fPIC"]);
    let options = Options { access: AccessMode::Guard, ..Options::default() };
    let output = pipeline::rewrite_library(&*input, "lib.so", &options).unwrap().bytes;
    let open = |file: &[u8]| verify_with(file, "lib.so", Some(&input)).unwrap().open;
    assert!(open(&output).is_empty(), "{:?}", open(&output));
    let found = |file: &[u8]| open(file).iter().any(|finding| finding.reason.contains("an added dynamic symbol"));
    for name in ["one", "two", "three"] {
        // Its own symbol leads to the new code.
        let rows = added(&output, name);
        let [at] = rows[..] else { panic!("{name}: {rows:?}") };
        let word = |at: usize| u64::from_le_bytes(output[at..at + 8].try_into().unwrap());
        for (field, value) in [
            (at + 8, word(at + 8) + 1),
            (at + 8, word(at + 8) - 16),
            (at + 8, export(&output, name).0),
            (at + 16, word(at + 16) / 2),
            (at + 16, word(at + 16) + 64),
            (at + 16, u64::MAX),
        ] {
            let mut changed = output.clone();
            changed[field..field + 8].copy_from_slice(&value.to_le_bytes());
            assert!(found(&changed), "{name}: {value:#x}");
        }
    }
}
