//! No traps on hot paths: what a program does all the time goes through springboards and new tables, never through a trap byte.

use blizzard::cfg::End;
use blizzard::disasm::Flow;
use blizzard::options::Options;
use blizzard::pipeline;
use object::{Object, ObjectSection, ObjectSymbol};
use std::path::Path;
use std::process::Command;

fn build(folder: &Path, source: &str, flags: &[&str]) -> Vec<u8> {
    let (file, program) = (folder.join("hot.c"), folder.join("hot"));
    std::fs::write(&file, source).unwrap();
    let status = Command::new("gcc").args(flags).arg("-o").arg(&program).arg(&file).status().unwrap();
    assert!(status.success());
    std::fs::read(&program).unwrap()
}

/// The jump at the end compares the function pointer first, so that its load and the jump are in different blocks.
const TAIL_CALL: &str = "
struct type { void (*release)(void *); };
struct object { struct type *type; long count; struct object *next; };
extern void plain(void *);
__attribute__((noinline)) void drop(struct object *o) {
    for (struct object *n = o->next; n; n = n->next) n->count++;
    void (*release)(void *) = o->type->release;
    if (release == plain) { o->count = 0; __asm__ volatile(\"\"); return; }
    release(o);
}
void plain(void *o) { __asm__ volatile(\"\" : : \"r\"(o)); }
struct type t = { plain };
void (*volatile through)(struct object *) = drop;
int main(void) { struct object o = { &t, 1, 0 }; through(&o); return (int)o.count; }
";

#[test]
fn a_function_with_tail_calls_through_objects_keeps_its_springboard() {
    // Every call of such functions through pointers was a trap: python3.11 ran at half its speed.
    let folder = tempfile::tempdir().unwrap();
    for kind in ["-pie", "-no-pie"] {
        let input = build(folder.path(), TAIL_CALL, &["-O2", "-fcf-protection=none", kind]);
        let output = pipeline::rewrite(&input, "hot", &Options::default()).unwrap();
        let old = object::File::parse(&*input).unwrap();
        let text = old.section_by_name(".text").unwrap();
        let (off, _) = text.file_range().unwrap();
        let drop = old.symbol_by_name("drop").unwrap().address();
        let at = (off + drop - text.address()) as usize;
        assert_eq!(output.bytes[at], 0xe9, "{kind}");
    }
}

/// The table's address stays in a register around the loop, and one case calls a function that never returns, which the compiler is
/// not told.
const INTERPRETER: &str = "
#include <stdlib.h>
__attribute__((noinline, noclone)) void stop(int status) { exit(status); }
__attribute__((noinline)) long run(const unsigned char *code) {
    long a = 1;
    for (;;) switch (*code++) {
        case 0: return a;
        case 1: a += 3; break;
        case 2: a *= 5; break;
        case 3: a ^= a >> 3; break;
        case 4: if (a == 77) stop(3); a--; break;
        case 5: a = -a; break;
        case 6: stop((int)a); a += 9; break;
        case 7: a <<= 1; break;
    }
}
int main(int argc, char **argv) {
    const unsigned char code[] = { 1, 2, 3, 4, 5, 7, 0 };
    (void)argv;
    return run(code + argc - 1) == 0;
}
";

#[test]
fn an_interpreters_switch_is_recognised_around_calls_that_never_return() {
    // mawk's loop was not, and ran eleven times slower.
    let folder = tempfile::tempdir().unwrap();
    for kind in ["-pie", "-no-pie"] {
        for level in ["-O1", "-O2", "-O3"] {
            let input = build(folder.path(), INTERPRETER, &[level, kind, "-fno-ipa-pure-const"]);
            let analysed = pipeline::analyse(&input, "hot").unwrap();
            let run = {
                let file = object::File::parse(&*input).unwrap();
                let symbol = file.symbol_by_name("run").unwrap();
                symbol.address()..symbol.address() + symbol.size()
            };
            for b in analysed.cfg.ids() {
                let block = &analysed.cfg.blocks[b.ix()];
                let last = blizzard::disasm::InsnId(block.stop.0 - 1);
                let here = run.contains(&analysed.insns.va(last).0);
                if here && analysed.insns.list[last.ix()].flow == Flow::IndirectJmp {
                    assert_eq!(block.end, End::Plain, "{kind} {level} at {}", analysed.insns.va(last));
                }
            }
        }
    }
}
