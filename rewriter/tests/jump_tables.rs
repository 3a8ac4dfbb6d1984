//! How long recognised jump tables are. Tables stand behind one another; without a proof of its length each goes on through all that
//! follow, every jump leads to all their targets, and the new tables of a compiler with 3,447 switches took 224 MB.

use blizzard::pipeline;
use std::path::Path;
use std::process::Command;

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
    let status = Command::new("gcc").args(flags).arg("-o").arg(&program).arg(&source).status().unwrap();
    assert!(status.success());
    let input = std::fs::read(&program).unwrap();
    let analysed = pipeline::analyse(&input, "tables").unwrap();
    let mut lengths: Vec<usize> = analysed.cfg.tables.iter().map(|t| t.targets.len()).collect();
    lengths.sort();
    lengths
}

#[test]
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
