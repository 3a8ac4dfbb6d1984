//! How long recognised jump tables are. Tables stand behind one another; without a proof of its length each goes on through all that
//! follow, every jump leads to all their targets, and the new tables of a compiler with 3,447 switches took 224 MB.

use crate::sources;
use blizzard::pipeline;
use std::path::{Path, PathBuf};
use std::process::Command;

blizzard_test_harness::module! {
    tables_are_as_long_as_the_code_says,
    a_table_without_a_bound_ends_where_the_next_one_begins,
    a_tables_address_may_move_between_registers_around_a_loop,
    the_search_for_code_ends_where_a_table_leads_to_none,
}

/// Indices: tested argument; tested difference; masked, which no comparison bounds; a byte in memory; behind another test.
const SOURCE: &str = r#"
#include <stdint.h>
#define CASE(n) case n: return f##n(x);
#define F(n) __attribute__((noinline)) int f##n(long x) { __asm__ volatile("" ::: "memory"); return (int)x * n + 7; }
F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9)
__attribute__((noinline)) int five(unsigned i, long x) { switch (i) { CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) } return 1; }
__attribute__((noinline)) int six(int i, long x) { switch (i - 100) { CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) } return 2; }
__attribute__((noinline)) int masked(unsigned i, long x) {
    switch (i & 7) { CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) }
    return 3;
}
struct s { uint64_t a; uint8_t kind; };
__attribute__((noinline)) int seven(const struct s *s, long x) {
    switch (s->kind) { CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) }
    return 4;
}
__attribute__((noinline)) int ten(long i, long x) {
    if (x == 3) return 9;
    switch (i) { CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) }
    return 5;
}
int main(int argc, char **argv) {
    struct s s = { 0, (uint8_t)argc };
    return five(argc, 1) + six(argc, 2) + masked(argc, 3) + seven(&s, 4) + ten(argc, 5);
}
"#;

/// Entries of each table of a program built with `flags`, by size. Tables of the start files do not exist.
fn table_lengths(folder: &Path, flags: &[&str]) -> Vec<usize> {
    let (source, program) = (folder.join("tables.c"), folder.join("tables"));
    std::fs::write(&source, SOURCE).unwrap();
    let status = Command::new("cc").args(flags).arg("-o").arg(&program).arg(&source).status().unwrap();
    assert!(status.success());
    let input = std::fs::read(&program).unwrap();
    let analysed = pipeline::analyse(&input, "tables").unwrap();
    let mut lengths: Vec<usize> = analysed.cfg.tables.iter().map(|t| t.targets.len()).collect();
    lengths.sort();
    lengths
}

fn tables_are_as_long_as_the_code_says() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [["-no-pie", "-fno-pie"], ["-pie", "-fpie"]] {
        for level in ["-O1", "-O2", "-O3"] {
            let flags = [&kind[..], &[level, "-fno-jump-tables"]].concat();
            assert_eq!(table_lengths(folder.path(), &flags), Vec::<usize>::new(), "{flags:?}");
            let flags = [&kind[..], &[level]].concat();
            assert_eq!(table_lengths(folder.path(), &flags), [5, 6, 7, 8, 10], "{flags:?}");
        }
    }
}

/// Two tables, one behind the other: nothing bounds the index of the first, and its next word would lead to the padding in front of
/// the second's first case. The second table's address stays in a register around the loop, in which the first dispatch has something else.
const NEIGHBOURS: &str = r#"
__asm__(".text\n.globl walk\n.type walk, @function\nwalk:\n.cfi_startproc\n"
        "  xor %eax, %eax\n  mov %rsi, %r10\n"
        "  movzbl (%rdi), %ecx\n  lea .Lfirst(%rip), %rdx\n  movslq (%rdx,%rcx,4), %rcx\n  add %rdx, %rcx\n  jmp *%rcx\n"
        ".Lf0: add $100, %eax\n  jmp .Lbegin\n"
        ".Lf1: add $200, %eax\n"
        ".Lbegin: lea .Lsecond(%rip), %r10\n"
        ".Linner: inc %rdi\n  cmpb $1, (%rdi)\n  ja .Ldone\n  movzbl (%rdi), %ecx\n"
        "  movslq (%r10,%rcx,4), %rcx\n  add %r10, %rcx\n  jmp *%rcx\n"
        "  .byte 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n"
        ".Ls0: add $1, %eax\n  jmp .Linner\n"
        "  .byte 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n"
        ".Ls1: add $10, %eax\n  jmp .Linner\n"
        ".Ldone: ret\n.cfi_endproc\n.size walk, . - walk\n"
        ".section .rodata\n.balign 4\n.Lfirst: .long .Lf0 - .Lfirst, .Lf1 - .Lfirst\n.Lsecond: .long .Ls0 - .Lsecond, .Ls1 - .Lsecond\n.text\n");
extern int walk(const unsigned char *bytes, long);
int main(void) {
    static const unsigned char bytes[] = { 1, 0, 1, 1, 0, 9 };
    return walk(bytes, 7) == 222 ? 0 : 1;
}
"#;

/// One dispatch in a loop. A case puts the table's address into another register while it uses the first for something else, and
/// puts it back.
const MOVED: &str = r#"
__asm__(".text\n.globl walk\n.type walk, @function\nwalk:\n.cfi_startproc\n"
        "  xor %eax, %eax\n  lea .Ltable(%rip), %r10\n  jmp .Lhead\n"
        ".Lback: mov %r9, %r10\n"
        ".Lnext: inc %rdi\n  cmpb $2, (%rdi)\n  ja .Ldone\n"
        ".Lhead: movzbl (%rdi), %ecx\n  movslq (%r10,%rcx,4), %rcx\n  add %r10, %rcx\n  jmp *%rcx\n"
        ".Lc0: add $1, %eax\n  jmp .Lnext\n"
        ".Lc1: mov %r10, %r9\n  lea (%rax,%rax), %r10\n  lea 7(%r10), %eax\n  test %esi, %esi\n  jnz .Lback\n  add $5, %eax\n  jmp .Lback\n"
        ".Lc2: add $100, %eax\n  jmp .Lnext\n"
        ".Ldone: ret\n.cfi_endproc\n.size walk, . - walk\n"
        ".section .rodata\n.balign 4\n.Ltable: .long .Lc0 - .Ltable, .Lc1 - .Ltable, .Lc2 - .Ltable\n.text\n");
extern int walk(const unsigned char *bytes, int);
int main(void) {
    static const unsigned char bytes[] = { 0, 1, 0, 2, 1, 9 };
    return walk(bytes, 1) == 227 ? 0 : 1;
}
"#;

/// Builds a program from `source`; its path.
fn build(folder: &Path, source: &str) -> PathBuf {
    let program = folder.join("tables");
    sources::compile(source, &program, &["-O1"]);
    assert!(Command::new(&program).status().unwrap().success());
    program
}

/// The rewritten program does what the original does, and passes the audit.
fn rewrites(folder: &Path, program: &Path) {
    let output = folder.join("rewritten");
    let blizzard = env!("CARGO_BIN_EXE_blizzard");
    let run = |args: &[&std::ffi::OsStr]| Command::new(blizzard).args(args).output().unwrap();
    let rewritten =
        run(&["rewrite".as_ref(), program.as_ref(), "--no-libraries".as_ref(), "-o".as_ref(), output.as_ref()]);
    assert!(rewritten.status.success(), "{}", String::from_utf8_lossy(&rewritten.stderr));
    assert!(Command::new(&output).status().unwrap().success());
    let verified = run(&["verify".as_ref(), output.as_ref(), "--original".as_ref(), program.as_ref()]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

fn a_table_without_a_bound_ends_where_the_next_one_begins() {
    // std::visit on a variant that cannot be empty tests no bound. Each dispatch of the table behind was a trap: a parser of JSON ran
    // seventeen times slower.
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), NEIGHBOURS);
    let input = std::fs::read(&program).unwrap();
    let analysed = pipeline::analyse(&input, "two").unwrap();
    let own: Vec<usize> = analysed.cfg.tables.iter().map(|t| t.own_targets().count()).collect();
    assert_eq!(own, [2, 2]);
    // An index that goes further still does what it did: the words behind lead to the old addresses.
    assert_eq!(analysed.cfg.tables.iter().filter(|t| t.surplus().next().is_some()).count(), 1);
    for t in &analysed.cfg.tables {
        assert!(t.surplus().all(|id| analysed.computed.may_reach(id)));
    }
    rewrites(folder.path(), &program);
}

fn a_tables_address_may_move_between_registers_around_a_loop() {
    // Copies that lead back to each other had no end, so the table was not recognised: each call of a formatter of cargo's was a trap.
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), MOVED);
    let input = std::fs::read(&program).unwrap();
    let analysed = pipeline::analyse(&input, "moved").unwrap();
    let own: Vec<usize> = analysed.cfg.tables.iter().map(|t| t.own_targets().count()).collect();
    assert_eq!(own, [3]);
    rewrites(folder.path(), &program);
}

/// A table of a function without a frame, with an entry that leads to bytes which are no code. Nothing becomes known there, so the search for more code
/// had no end (a file that the fuzzer had damaged).
const NO_CODE: &str = r#"
__asm__(".text\n.globl pick\n.type pick, @function\npick:\n"
        "  cmp $3, %edi\n  ja .Lelse\n  lea .Lcases(%rip), %rdx\n  movslq (%rdx,%rdi,4), %rcx\n  add %rdx, %rcx\n  jmp *%rcx\n"
        ".Lc0: mov $5, %eax\n  ret\n"
        ".Lc1: mov $6, %eax\n  ret\n"
        ".Lelse: xor %eax, %eax\n  ret\n.size pick, . - pick\n"
        ".balign 16\n.Lnone: .byte 0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27\n"
        ".section .rodata\n.balign 4\n.Lcases: .long .Lc0 - .Lcases, .Lc1 - .Lcases, .Lnone - .Lcases, .Lc0 - .Lcases\n.text\n");
extern int pick(long);
int main(void) { return pick(0) == 5 && pick(1) == 6 && pick(3) == 5 && pick(4) == 0 ? 0 : 1; }
"#;

fn the_search_for_code_ends_where_a_table_leads_to_none() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), NO_CODE);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn({
        let input = std::fs::read(&program).unwrap();
        move || sender.send(pipeline::analyse(&input, "none").is_ok())
    });
    receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("the analysis has no end");
    rewrites(folder.path(), &program);
}
