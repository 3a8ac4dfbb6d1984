//! No traps on hot paths: what a program does all the time goes through springboards and new tables, never through a trap byte.

use crate::sources;
use blizzard::base::addresses::Vaddr;
use blizzard::base::options::{Checks, Options, Poll};
use blizzard::decode::insn::Flow;
use blizzard::graph::cfg::End;
use blizzard::pipeline;
use blizzard_contract as contract;
use blizzard_test_harness::executable;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use object::{Object, ObjectSection, ObjectSymbol};
use std::path::Path;
use std::process::Command;

blizzard_test_harness::module! {
    a_function_with_tail_calls_through_objects_keeps_its_springboard,
    packed_functions_have_springboards_by_way_of_code_nearby,
    an_interpreters_switch_is_recognised_around_calls_that_never_return,
    a_switch_is_recognised_whose_rare_part_stands_elsewhere,
    a_part_that_something_names_may_be_entered_from_anywhere,
    a_call_at_the_end_of_its_function_comes_back_to_nothing,
    a_loop_that_only_a_table_leads_to_has_tables_of_its_own,
    a_table_without_a_known_end_says_nothing_about_the_next_function,
    the_cases_of_a_hand_written_table_are_code,
    cases_that_may_be_constants_are_refused,
    a_call_through_a_read_only_word_comes_back_if_what_it_calls_does,
    what_a_function_only_hands_on_is_no_computed_target,
    a_function_without_frame_and_alignment_keeps_its_springboard,
    what_a_function_computes_may_lead_into_it,
    a_function_with_a_loop_keeps_its_place_in_a_line,
    a_copy_of_a_loop_compares_with_a_register,
    hand_written_arithmetic_takes_no_traps,
    a_label_of_which_more_becomes_than_jumps_may_be_added_to,
    a_table_that_a_relocation_fills_is_none,
}

fn build(folder: &Path, source: &str, flags: &[&str]) -> Vec<u8> {
    sources::compile(source, &folder.join("hot"), flags)
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

/// Functions of three bytes, one behind the other: there is no room for the second jump of a springboard but in the code of the function between
/// them, which has no long instruction.
const PACKED: &str = r#"
__asm__(".text\n.balign 16\n"
        "row: .rept 12\n  mov %edi, %eax\n  ret\n  .endr\n"
        "long: push %rbx\n  mov %rdi, %rbx\n  .rept 100\n  add $1, %rbx\n  .endr\n  mov %rbx, %rax\n  pop %rbx\n  ret\n"
        "behind: .rept 12\n  mov %edi, %eax\n  ret\n  .endr\n"
        ".data\n.balign 8\n.globl table\ntable: .set k, 0\n  .rept 12\n  .quad row + 3 * k, behind + 3 * k\n  .set k, k + 1\n  .endr\n  .quad long\n.text\n");
extern long (*volatile table[25])(long);
int main(void) {
    long sum = 0;
    for (long i = 0; i < 2500; i++) sum += table[i % 25](i);
    return sum == 2499 * 1250 + 100 * 100 ? 0 : 1;
}
"#;

fn packed_functions_have_springboards_by_way_of_code_nearby() {
    // The operations of an interpreter in assembly: 128,000 traps.
    let folder = tempfile::tempdir().unwrap();
    for kind in ["-pie", "-no-pie"] {
        let input = build(folder.path(), PACKED, &["-O1", kind]);
        let output = pipeline::rewrite(&input, "hot", &Options::default()).unwrap();
        let (program, rewritten) = (folder.path().join("hot"), folder.path().join("rewritten"));
        executable::write(&rewritten, &output.bytes);
        assert!(Command::new(&rewritten).status().unwrap().success(), "{kind}");
        let verify = ["verify".as_ref(), "--original".as_ref(), program.as_os_str(), rewritten.as_os_str()];
        assert!(Command::new(env!("CARGO_BIN_EXE_blizzard")).args(verify).output().unwrap().status.success(), "{kind}");
        let old = object::File::parse(&*input).unwrap();
        let text = old.section_by_name(".text").unwrap();
        let (off, _) = text.file_range().unwrap();
        for first in ["row", "behind"] {
            let begin = off + old.symbol_by_name(first).unwrap().address() - text.address();
            let trapped = (0..12).filter(|k| output.bytes[(begin + 3 * k) as usize] == 0xcc).count();
            assert_eq!(trapped, 0, "{kind}: {first}");
        }
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
                let last = blizzard::decode::insn::InsnId(block.stop.0 - 1);
                let here = run.contains(&analysed.insns.va(last).0);
                if here && analysed.insns.flow(last) == Flow::IndirectJmp {
                    assert_eq!(block.end(), End::Plain, "{kind} {level} at {}", analysed.insns.va(last));
                }
            }
        }
    }
}

/// Analyses a library of hand-written functions, and asks about it by symbol. The symbols are not in what is analysed: labels would be
/// places that may be jumped to.
struct Assembled {
    named: Vec<u8>,
    stripped: Vec<u8>,
}

impl Assembled {
    fn new(source: &str) -> Assembled {
        Assembled { named: sources::assemble(source, &[]), stripped: sources::assemble(source, &["-s"]) }
    }

    fn analysed(&self) -> pipeline::Analysed<'_> {
        pipeline::analyse(&self.stripped, "a").unwrap()
    }

    fn address(&self, symbol: &str) -> Vaddr {
        Vaddr(object::File::parse(&*self.named).unwrap().symbol_by_name(symbol).unwrap().address())
    }

    /// How many entries lead from the jump that stands at a label, if its table is recognised.
    fn table(&self, label: &str) -> Option<usize> {
        let analysed = self.analysed();
        let jump = analysed.insns.at(self.address(label)).unwrap();
        let block = analysed.cfg.block_of(jump);
        let recognised = analysed.cfg.blocks[block.ix()].end() == End::Plain;
        recognised.then(|| analysed.cfg.succ(block).len())
    }

    /// Whether a computed jump is thought to lead to the instruction at a label.
    fn is_computed(&self, label: &str) -> bool {
        let analysed = self.analysed();
        analysed.computed.may_reach(analysed.insns.at(self.address(label)).unwrap())
    }
}

/// A loop around `jmp [table]` whose rare part stands elsewhere, under a frame of its own; one of the table's entries leads there.
/// `name`: what another function does with the part's address.
fn split(name: &str) -> Assembled {
    Assembled::new(&format!(
        ".globl run\n.type run, @function\nrun: .cfi_startproc
            push rbx\n.cfi_def_cfa_offset 16\n.cfi_offset rbx, -16
            lea r9, [rip + table]
        again: movzx ebx, byte ptr [rdi]\ninc rdi\ncmp ebx, 2\nja done
            movsxd rax, dword ptr [r9 + rbx*4]\nadd rax, r9
        jump: jmp rax
        one: inc rsi\njmp again
        two: dec rsi\njmp again
        done: mov rax, rsi\npop rbx\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc
        .globl other\n.type other, @function\nother: .cfi_startproc\n{name}\nret\n.cfi_endproc
        .p2align 4
        part: .cfi_startproc\n.cfi_def_cfa_offset 16\n.cfi_offset rbx, -16
            add rsi, 5\njmp again\n.cfi_endproc
        .section .rodata\n.p2align 2
        table: .long one - table, two - table, part - table"
    ))
}

fn a_switch_is_recognised_whose_rare_part_stands_elsewhere() {
    // gas's scanner lost its table to a path from nowhere into the part: a million traps, sixteen times slower.
    assert_eq!(split("").table("jump"), Some(3));
}

fn a_part_that_something_names_may_be_entered_from_anywhere() {
    assert_eq!(split("lea rax, [rip + part]").table("jump"), None);
    assert_eq!(split("call part").table("jump"), None);
}

fn a_call_at_the_end_of_its_function_comes_back_to_nothing() {
    // gas, ld and readelf end in functions of other libraries that their names do not tell of; r10 is lost behind that call.
    let source = |behind: &str| {
        format!(
            ".type fatal, @function\nfatal: .cfi_startproc\npush rax\n.cfi_def_cfa_offset 16\ncall xexit@PLT\n{behind}\n.cfi_endproc
            .globl run\n.type run, @function\nrun: .cfi_startproc
                lea r10, [rip + table]
            again: movzx eax, byte ptr [rdi]\ninc rdi\ncmp eax, 1\nja bad
                movsxd rax, dword ptr [r10 + rax*4]\nadd rax, r10
            jump: jmp rax
            one: inc rsi\njmp again
            two: cmp rsi, 5\nje goes_on\nret
            bad: call fatal
            goes_on: dec rsi\njmp again\n.cfi_endproc
            .section .rodata\n.p2align 2\ntable: .long one - table, two - table"
        )
    };
    assert_eq!(Assembled::new(&source("")).table("jump"), Some(2));
    assert_eq!(Assembled::new(&source("pop rax\nret")).table("jump"), None);
}

fn a_loop_that_only_a_table_leads_to_has_tables_of_its_own() {
    // bc's scanner: nothing seemed to define the inner table's address, since nothing seemed to lead there.
    let a = Assembled::new(
        ".globl run\n.type run, @function\nrun: .cfi_startproc
            cmp edi, 1\nja none\nmov edi, edi\nlea rdx, [rip + outer]
            movsxd rax, dword ptr [rdx + rdi*4]\nadd rax, rdx
        first: jmp rax
        begin: lea r8, [rip + inner]
        again: movzx eax, byte ptr [rsi]\ninc rsi\ncmp eax, 1\nja none
            movsxd rax, dword ptr [r8 + rax*4]\nadd rax, r8
        second: jmp rax
        one: inc r9\njmp again
        none: ret\n.cfi_endproc
        .section .rodata\n.p2align 2
        outer: .long begin - outer, none - outer
        inner: .long one - inner, none - inner",
    );
    assert_eq!(a.table("first"), Some(2));
    assert_eq!(a.table("second"), Some(2));
}

fn a_table_without_a_known_end_says_nothing_about_the_next_function() {
    // expat's tokenizers and Rust's regex engine: entries of the next table, read as entries of this one, led around the place where the other
    // function sets the address of its table.
    let a = Assembled::new(
        ".globl f\n.type f, @function\nf: .cfi_startproc
            lea rdx, [rip + endless]\nmov rdi, [rdi]\nmovsxd rax, dword ptr [rdx + rdi*4]\nadd rax, rdx
        first: jmp rax
        a: mov eax, 1\nret
        b: mov eax, 2\nret\n.cfi_endproc
        .globl g\n.type g, @function\ng: .cfi_startproc
            lea r8, [rip + known]\nlea r10, [rip + endless]
        again: movzx eax, byte ptr [rsi]\ninc rsi\ncmp eax, 1\nja none
            movsxd rax, dword ptr [r8 + rax*4]\nadd rax, r10
        second: jmp rax
        one: inc r9\njmp again
        none: ret\n.cfi_endproc
        .section .rodata\n.p2align 2
        endless: .long a - endless, b - endless
        known: .long one - endless, none - endless",
    );
    // The new table keeps whatever the old one may have had.
    assert!(a.table("first") > Some(2));
    assert_eq!(a.table("second"), Some(2));
}

/// dav1d's functions have no frames, and tables of two bytes for each entry.
const HAND_WRITTEN: &str =
    ".globl f\n.type f, @function\nf: base: lea r10, [rip + base]\nmovzx eax, word ptr [rip + table]\nadd rax, r10
    jump: jmp rax
    .p2align 4
    one: mov rax, [rdi]\nret
    two: mov rax, [rsi]\nmov rdx, [rsi + 8]\nret
    .section .rodata\ntable: .word one - base, two - base\n.text\n";

fn the_cases_of_a_hand_written_table_are_code() {
    // What only such tables lead to ran where it stood, unchecked.
    let a = Assembled::new(&format!(
        "{HAND_WRITTEN}.globl g\n.type g, @function\ng: .cfi_startproc\nlea r10, [rip + constants]\nmov rax, [r10]\nret\n.cfi_endproc
        three: mov rdx, [rsi]\nret
        constants: .quad 0x0606060606060606, 0"
    ));
    let analysed = a.analysed();
    let at = |label: &str| analysed.insns.at(a.address(label));
    assert!(at("one").is_some() && at("two").is_some());
    assert!(at("three").is_none(), "no jump of its stretch is computed: nothing leads there");
    assert!(at("constants").is_none(), "what is read is no code");
    assert!(analysed.insns.contested.is_empty());
    let output = pipeline::rewrite_library(&a.stripped, "cases", &Options::default()).unwrap();
    let audit = blizzard::reports::audit::verify_with(&output.bytes, "cases", Some(&a.stripped)).unwrap();
    assert!(audit.open.is_empty(), "{:#?}", audit.open);
}

fn cases_that_may_be_constants_are_refused() {
    // One part of what stands behind a computed jump is read; the other part decodes, and may be a case or another constant.
    let a = Assembled::new(&format!(
        "{HAND_WRITTEN}.globl g\n.type g, @function\ng: lea r10, [rip + constants]\nmov rax, [r10 + 8]\nret
        constants: .quad 0xc3d0ff, 0x0606060606060606"
    ));
    let analysed = a.analysed();
    assert_eq!(analysed.insns.contested, [a.address("constants")]);
    let error = pipeline::rewrite_library(&a.stripped, "constants", &Options::default()).unwrap_err();
    assert_eq!(error.what, "constants: 1 instruction cannot be rewritten");
}

fn a_call_through_a_read_only_word_comes_back_if_what_it_calls_does() {
    // Rust calls its panics through the GOT. What stands behind such a call in rustfmt's lexer led back to its table with another register:
    // 205,000 traps, 3.7 times slower.
    let source = |fatal: &str, section: &str| {
        format!(
            ".type fatal, @function\nfatal: .cfi_startproc\n{fatal}\n.cfi_endproc
            .globl run\n.type run, @function\nrun: .cfi_startproc
                lea r10, [rip + table]
            again: movzx eax, byte ptr [rdi]\ninc rdi\ncmp eax, 1\nja bad
                movsxd rax, dword ptr [r10 + rax*4]\nadd rax, r10
            jump: jmp rax
            one: inc rsi\njmp again
            two: cmp rsi, 5\nje goes_on\nret
            bad: xor r10d, r10d\ncall [rip + slot]
            goes_on: dec rsi\njmp again\n.cfi_endproc
            .section {section},\"aw\"\n.p2align 3\nslot: .quad fatal
            .section .rodata\n.p2align 2\ntable: .long one - table, two - table"
        )
    };
    assert_eq!(Assembled::new(&source("hlt", ".data.rel.ro")).table("jump"), Some(2));
    assert_eq!(Assembled::new(&source("ret", ".data.rel.ro")).table("jump"), None);
    // Here the program may put another address.
    assert_eq!(Assembled::new(&source("hlt", ".data")).table("jump"), None);
    let a = Assembled::new(&source("hlt", ".data.rel.ro"));
    let output = pipeline::rewrite_library(&a.stripped, "word", &Options::default()).unwrap();
    let audit = blizzard::reports::audit::verify_with(&output.bytes, "word", Some(&a.stripped)).unwrap();
    assert!(audit.open.is_empty(), "{:#?}", audit.open);
}

/// A function that begins with `start`, so that its first instructions leave no room for a jump, and ends by a jump to rax.
fn ending(body: &str) -> Assembled {
    Assembled::new(&format!(
        ".globl f\n.hidden f\n.type f, @function\nf: .cfi_startproc\npush rbx\n.cfi_def_cfa_offset 16\nmov rbx, rdi
        inside: {body}\njmp rax\n.cfi_endproc
        .globl g\n.hidden g\n.type g, @function\ng: .cfi_startproc\nret\n.cfi_endproc"
    ))
}

fn what_a_function_only_hands_on_is_no_computed_target() {
    // The function kept no springboard: the dynamic loader's resolver trapped at every first call, glibc's __uflow at every buffer, Rust's
    // memchr at every search.
    for body in [
        "call outside@PLT",
        "mov rax, r8",
        "mov rbp, [rdi]\nmov rax, [rbp + 0x28]",
        "lea rax, [rip + g]\nlea rcx, [rip + outside2]\ntest edi, edi\ncmove rax, rcx",
        "mov rax, [rdi]\nror rax, 0x11\nxor rax, fs:[0x30]",
        // Padding leads nowhere: qpdf's pipelines, 32,000 traps.
        "mov rax, [rdi]\ntest esi, esi\njne 1f\npop rbx\nret\nnop dword ptr [rax + rax]\n.p2align 4\n1: inc esi",
        // Ruby's interpreter calls setjmp in the compiler's own form: 1.6 million traps.
        "lea rax, [rip + 1f]\nmov [rbx], rbp\nmov [rbx + 8], rax\nmov [rbx + 16], rsp\n1: mov rax, [rdi]",
    ] {
        let source = body.replace("outside2", "f");
        assert!(!ending(&source).is_computed("inside"), "{body}");
    }
}

fn a_function_without_frame_and_alignment_keeps_its_springboard() {
    // busybox is compiled for size and has no frames: its shell trapped at every command.
    let source = |body: &str, start: &str| {
        Assembled::new(&format!(
            ".globl f\n.type f, @function\nf: {body}\nret\n.p2align 4\nret\ntwo: {start}
            inside: mov rdi, rsi\ncall outside@PLT\npop rbx\nret"
        ))
    };
    assert!(!source("lea rax, [rip + two]\nmov [rdi], rax", "push rbx").is_computed("inside"));
    assert!(!source("lea rdi, [rip + two]\ncall outside@PLT", "push rbx").is_computed("inside"));
    assert!(source("lea rax, [rip + two]\nadd rax, rsi\nmov [rdi], rax", "push rbx").is_computed("inside"));
    assert!(source("lea rax, [rip + two]\ncall outside@PLT", "push rbx").is_computed("inside"));
    assert!(source("lea rax, [rip + two]\nmov [rdi], rax", "inc rbx").is_computed("inside"));
}

fn what_a_function_computes_may_lead_into_it() {
    for body in [
        "call outside@PLT\nadd rax, 4",
        "mov rax, r10",
        "push rbp\nmov rbp, rsp\nmov rax, [rbp - 8]",
        "lea rax, [rip + g]\nlea rcx, [rip + f + 1]\nadd rcx, rdi\ntest edi, edi\ncmove rax, rcx",
        "mov rax, [rsp + 8]",
        "mov rax, [rdi]\nror rax, 1",
        "mov rax, [rdi]\ntest esi, esi\njne 1f\nret\nmov rax, [rsp + 8]\n1: inc esi",
        "lea rax, [rip + 1f]\nmov [rbx + 8], rax\n1: mov rax, [rdi]",
        "lea rax, [rip + 1f]\nmov [rbx + 8], rax\nmov [rbx + 24], rsp\n1: mov rax, [rdi]",
    ] {
        assert!(ending(body).is_computed("inside"), "{body}");
    }
}

/// Two loops, and functions around them that get other places.
const LOOPS: &str = "
#define ODD(n) __attribute__((noinline)) int odd##n(int x) { __asm__ volatile(\".skip \" #n \", 0x90\"); return x + n; }
ODD(3) ODD(17)
__attribute__((noinline)) long sum(const long *a, long n) { long s = 0; for (long i = 0; i < n; i++) s += a[i] ^ i; return s; }
ODD(29) ODD(41)
__attribute__((noinline)) long steps(unsigned long n) { long s = 0; while (n != 1) { n = n & 1 ? 3 * n + 1 : n / 2; s++; } return s; }
int main(int argc, char **argv) {
    (void)argv;
    long a[4] = { 1, 2, 3, argc };
    return (int)(sum(a, 4) + steps(27)) + odd3(1) + odd17(1) + odd29(1) + odd41(1) == 0;
}
";

fn a_function_with_a_loop_keeps_its_place_in_a_line() {
    // The inner loop of a sparse matrix product fitted into 64 bytes and then did not: it ran 1.22 times as long, with not one instruction more.
    let folder = tempfile::tempdir().unwrap();
    let input = build(folder.path(), LOOPS, &["-O2", "-falign-functions=1"]);
    let options = Options { checks: Checks::None, poll: Poll::None, ..Options::default() };
    let output = pipeline::rewrite(&input, "hot", &options).unwrap();
    let (old, new) = (object::File::parse(&*input).unwrap(), object::File::parse(&*output.bytes).unwrap());
    for name in ["sum", "steps"] {
        let at = |file: &object::File| file.symbol_by_name(name).unwrap().address();
        assert_ne!(at(&old), at(&new), "{name}");
        assert_eq!(at(&old) % 64, at(&new) % 64, "{name}");
    }
}

/// A store to a table for each byte: each cycle has as many accesses as the processor can make.
const COUNTING: &str = "
#include <stdlib.h>
int main(int argc, char **argv) {
    unsigned char *text = calloc(1, 1 << 16);
    unsigned *count = calloc(256, sizeof *count);
    for (int round = 0; round < argc; round++)
        for (unsigned char *p = text; p != text + (1 << 16); p++) count[*p]++;
    return (int)count[argc];
}
";

fn a_copy_of_a_loop_compares_with_a_register() {
    // A histogram took 1.4 times as long for one load of the limit in four iterations.
    let folder = tempfile::tempdir().unwrap();
    let input = build(folder.path(), COUNTING, &["-O2", "-fno-tree-vectorize"]);
    let output = pipeline::rewrite(&input, "hot", &Options::tests()).unwrap();
    assert!(output.report.optimiser.copies > 0);
    let new = object::File::parse(&*output.bytes).unwrap();
    let cold = new.section_by_name(".blizzard.cold").unwrap();
    let data = cold.data().unwrap();
    let limits = [contract::LIMIT_UP, contract::LIMIT_DOWN];
    let decoder = Decoder::new(64, data, DecoderOptions::NONE);
    let compared =
        decoder.into_iter().filter(|i| i.mnemonic() == Mnemonic::Cmp && limits.contains(&i.memory_displacement64()));
    assert_eq!(compared.count(), 0);
}

/// A hand-written function without a frame, as GMP's: `jump` goes by a table in what the dynamic loader makes read-only, with four cases or, for larger counts,
/// four more; its loop keeps the place of its next step in a register. `step`: what else becomes of that place.
fn multiprecision(section: &str, entries: usize, step: &str) -> Assembled {
    let table: Vec<String> = (0..entries).map(|k| format!(".long case{k} - table")).collect();
    let cases: Vec<String> = (0..8).map(|k| format!("case{k}: mov rax, [rsi + {k}]\nmov [rdi], rax\nret")).collect();
    Assembled::new(&format!(
        ".globl square\n.type square, @function\nsquare:
            mov ecx, edx\nand ecx, 3\ncmp edx, 4\nlea r8, [rcx + 4]\ncmovg rcx, r8
            lea rax, [rip + table]\nmovsxd r10, dword ptr [rax + rcx*4]\nadd rax, r10
        jump: jmp rax
            {}
            .globl multiply\n.type multiply, @function\nmultiply:
            push r14\nlea r14, [rip + one]\ntest edx, 1\njne start\nlea r14, [rip + two]
        start: mov rax, [rsi]\nmul rcx\nmov [rdi], rax
            add rdi, 8\ndec edx\nje done
            {step}\njmp r14
            nop
        one: mov rax, [rsi + 8]\nmov r9, rax\njmp start
        two: mov rax, [rsi + 16]\nmov r9, rax\nlea r14, [rip + one]\njmp start
        done: pop r14\nret
            .section {section}\n.p2align 2\nother: .long 0x7fffffff\ntable: {}\n.long 0
            .section .rodata\n.long 1",
        cases.join("\n"),
        table.join("\n")
    ))
}

fn hand_written_arithmetic_takes_no_traps() {
    // libgmp took a trap for each square of a small number and for each row of a product: pari-gp ran at a fifth of its speed.
    let protected = ".data.rel.ro, \"aw\"";
    let a = multiprecision(protected, 8, "");
    assert_eq!(a.table("jump"), Some(8));
    for label in ["one", "two"] {
        let old = a.address(label);
        assert!(!a.is_computed(label));
        let output = pipeline::rewrite_library(&a.stripped, "product", &Options::default()).unwrap();
        let file = object::File::parse(&*output.bytes).unwrap();
        let text = file.section_by_name(".text").unwrap();
        assert_eq!(text.data().unwrap()[(old.0 - text.address()) as usize], 0xe9, "{label}");
        let audit = blizzard::reports::audit::verify_with(&output.bytes, "product", Some(&a.stripped)).unwrap();
        assert!(audit.open.is_empty(), "{:#?}", audit.open);
    }
    // Fewer entries than the index allows, and a table that the program may write to.
    assert_eq!(multiprecision(protected, 7, "").table("jump"), None);
    assert_eq!(multiprecision(".data, \"aw\"", 8, "").table("jump"), None);
    assert_eq!(multiprecision(".rodata, \"a\"", 8, "").table("jump"), Some(8));
}

fn a_label_of_which_more_becomes_than_jumps_may_be_added_to() {
    for step in ["add r14, 4", "mov [rdi], r14", "push r14\ncall outside@PLT\npop r14", "lea r14, [r14 + rdx]"] {
        let a = multiprecision(".rodata, \"a\"", 8, step);
        assert!(a.is_computed("one") && a.is_computed("two"), "{step}");
    }
}

fn a_table_that_a_relocation_fills_is_none() {
    // The words behind the start of this table are an address, which the dynamic loader puts there.
    let source = |word: &str| {
        format!(
            ".globl run\n.type run, @function\nrun: .cfi_startproc
                cmp edi, 1\nja out\nlea rdx, [rip + table]\nmov edi, edi\nmovsxd rax, dword ptr [rdx + rdi*4]\nadd rax, rdx
            jump: jmp rax
            one: inc rsi\nret
            two: dec rsi\nret
            out: ret\n.cfi_endproc
            .section .data.rel.ro,\"aw\"\n.p2align 3\ntable: {word}"
        )
    };
    assert_eq!(Assembled::new(&source(".long one - table, two - table")).table("jump"), Some(2));
    assert_eq!(Assembled::new(&source(".quad one")).table("jump"), None);
}
