//! The passes on small programs: what each does and does not, and that the audit accepts the result.

use crate::base::options::{Options, Poll};
use crate::pipeline;
use crate::plan::checks::PassCounts;
use crate::reports::audit::verify_with;
use std::process::Command;

/// A static program whose function `f` is `body`; both of its arguments may be shared memory.
pub(crate) fn program(body: &str) -> Vec<u8> {
    assembled(&format!(
        ".intel_syntax noprefix
.text
.globl _start
.type _start, @function
_start:
 .cfi_startproc
 lea rdi, [rip + memory]
 mov rsi, rdi
 call f
 call g
 mov eax, 60
 xor edi, edi
 syscall
 .cfi_endproc
 .size _start, . - _start
.type g, @function
g:
 .cfi_startproc
 ret
 .cfi_endproc
 .size g, . - g
.type f, @function
f:
 .cfi_startproc
{body}
 ret
 .cfi_endproc
 .size f, . - f
.data
 .balign 64
memory: .fill 4096, 1, 1
"
    ))
}

/// A static program in assembly.
pub(crate) fn assembled(text: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("p.s"), text).expect("write source");
    let out = Command::new("cc")
        .current_dir(dir.path())
        .args(["-nostdlib", "-static", "-o", "p", "p.s"])
        .output()
        .expect("a compiler is installed");
    assert!(out.status.success(), "{}\n{text}", String::from_utf8_lossy(&out.stderr));
    std::fs::read(path("p")).expect("read program")
}

/// Rewrites, audits, and returns what the passes did and how many ordinary checks are left.
fn with(body: &str, options: Options) -> (PassCounts, u64) {
    let input = program(body);
    let rewritten = pipeline::rewrite(&input, "p", &options).expect("rewrite");
    let audit = verify_with(&rewritten.bytes, "p", Some(&input)).expect("audit runs");
    assert!(audit.is_clean(), "{body}\n{audit}");
    let covered: u64 = audit.covered.values().sum();
    let counts = rewritten.report.optimiser;
    assert!(covered >= counts.merged + counts.dominated - counts.given_back, "{body}: {counts:?}\n{audit}");
    (counts, audit.checked.loads + audit.checked.stores)
}

fn counts(body: &str) -> PassCounts {
    with(body, Options::tests()).0
}

#[test]
fn neighbours_in_a_block_share_a_check() {
    for (body, merged) in [
        ("mov rax, [rdi]\n mov rcx, [rdi+8]", 1),
        ("mov rax, [rdi+8]\n mov [rdi], rax\n mov [rdi+56], eax", 2),
        ("mov al, [rdi]\n add rdi, 5\n mov cl, [rdi]\n lea rsi, [rdi+2]\n mov dl, [rsi+9]", 2),
        ("mov rax, [rdi+rsi*4]\n mov rcx, [rdi+rsi*4+8]\n mov rdx, [rdi+rsi*8]", 1),
        ("mov rax, [rdi]\n mov rcx, [rsi]\n mov rdx, [rdi+8]\n mov r8, [rsi+8]", 2),
        // Other registers that hold the same, plus a constant; and such that hold it in part, or not on every way.
        ("mov r9, rdi\n mov rax, [rdi]\n mov rcx, [r9+8]", 1),
        ("lea r9, [rdi+4]\n mov rax, [rdi]\n xor edi, edi\n mov [r9+8], rdi", 1),
        ("mov r9, rdi\n mov rax, [rdi+rsi]\n mov rcx, [r9+rsi+8]\n mov rdx, [r9+r8]", 1),
        ("mov r9, rdi\n add rdi, 8\n mov rax, [rdi]\n add r9, 4\n mov rcx, [r9]", 1),
        ("mov r9d, edi\n mov rax, [rdi]\n mov rcx, [r9+8]", 0),
        ("cmovz r9, rdi\n mov rax, [rdi]\n mov rcx, [r9+8]", 0),
        ("mov r9, rdi\n add rdi, rsi\n mov rax, [rdi]\n mov rcx, [r9+8]", 0),
        ("mov r9, rdi\n test rsi, rsi\n jz 1f\n mov r9, rsi\n1: mov rax, [rdi]\n mov rcx, [r9+8]", 0),
        // An access between 64 bytes and more belongs to no group of the first.
        ("mov rax, [rdi]\n mov rcx, [rdi+57]", 0),
        ("mov rax, [rdi]\n mov rcx, [rdi+56]", 1),
        ("mov rax, [rdi]\n mov rcx, [rdi+40]\n mov rdx, [rdi-20]", 1),
        // The address is another one.
        ("mov rax, [rdi]\n mov rdi, [rsi]\n mov rcx, [rdi+8]", 0),
        ("mov rax, [rdi]\n xchg rdi, rsi\n mov rcx, [rdi+8]", 0),
        ("mov rdi, [rdi]\n mov rcx, [rdi+8]", 0),
        ("mov rax, [rdi]\n mov edi, edi\n mov rcx, [rdi+8]", 0),
    ] {
        let done = counts(body);
        assert_eq!((done.merged, done.dominated, done.given_back), (merged, 0, 0), "{body}");
    }
}

#[test]
fn nothing_counts_where_the_runtime_may_be_entered() {
    for between in [
        "call g",
        "int3",
        "syscall",
        "rep movsb",
        "fxsave [rdi]",
        "bt [rsi], rax",
        // A loop's head polls.
        "1: dec eax\n jnz 1b",
        // The check in between saves flags: it has no chain.
        "cmp rax, rcx\n mov r8, [rsi]\n adc r9, 0",
    ] {
        let body = format!("mov rax, [rdi]\n {between}\n mov rcx, [rdi+8]");
        let done = counts(&body);
        assert_eq!((done.merged, done.dominated), (0, 0), "{body}");
    }
}

/// The kernel leaves its result in rax. The second access passed for one of the first's address, because the call's number had been there.
#[test]
fn a_system_call_writes_its_result() {
    let body = "mov eax, 39\n mov rdx, rax\n syscall\n mov r8, [rsi+rdx]\n mov r9, [rsi+rax]";
    let (done, checks) = with(body, Options::tests());
    assert_eq!((done.merged, checks), (0, 2));
}

/// A computed jump enters unrolled code anywhere, not only where blocks begin: what holds a stack address on the way from a block's beginning may
/// hold anything.
#[test]
fn code_that_a_computed_jump_enters_holds_no_stack_address() {
    let unrolled = "1: mov rbp, rsp\n .balign 8\n mov rax, [rbp-8]\n .balign 8\n mov rax, [rbp-16]";
    let body = format!("lea rax, [rip+1f]\n lea rax, [rax+rcx*8]\n jmp rax\n .balign 8\n{unrolled}");
    assert_eq!(with(&body, Options { merge: false, ..Options::tests() }).1, 2);
    assert_eq!(with(unrolled, Options { merge: false, ..Options::tests() }).1, 0);
    // Without frames, jump and target are not connected.
    let bare = format!(
        ".intel_syntax noprefix
.globl _start
_start: lea rbp, [rip+memory]
 mov edi, 8
 call f
1: jmp 1b
f: lea rax, [rip+l]
 add rax, rdi
 jmp rax
 .balign 16
l: {unrolled}
 ret
.data
memory: .fill 64, 1, 1
"
    );
    let input = assembled(&bare);
    let rewritten = pipeline::rewrite(&input, "p", &Options { merge: false, ..Options::tests() }).expect("rewrite");
    assert_eq!(rewritten.report.checks, 2);
}

/// It copies frame pointers of outer procedures from where rbp points to, which passed for the stack.
#[test]
fn frames_of_nested_procedures_are_refused() {
    let rewritten = |body| pipeline::rewrite(&program(body), "p", &Options::tests());
    assert!(rewritten("mov rbp, rdi\n enter 16, 1\n leave").is_ok());
    let refused = rewritten("mov rbp, rdi\n enter 16, 2\n leave").expect_err("refused");
    assert_eq!(refused.refusals.len(), 1, "{refused:?}");
}

/// A handler may turn a fault into an exception (-fnon-call-exceptions), which finds the landing pad by the loop's own address.
#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn loops_whose_faults_are_caught_run_in_no_copies() {
    let source = "
extern \"C\" long seed();
long seed() { return 3; }
__attribute__((noinline)) long sum(long *p, long n) {
    long s = 0, kept = seed();
    try {
        for (long i = 0; i < n; i++) s += p[i];
    } catch (int) {
        return kept;
    }
    return s;
}
int main(int n, char **v) { return sum((long *)v, n) == 0; }
";
    for (flag, copies) in [("-fnon-call-exceptions", 0), ("-fexceptions", 1)] {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::write(dir.path().join("p.cpp"), source).expect("write source");
        let arguments = ["-O2", "-fno-tree-vectorize", flag, "-o", "p", "p.cpp"];
        let made = Command::new("g++").current_dir(&dir).args(arguments).status();
        assert!(made.expect("a compiler is installed").success());
        let input = std::fs::read(dir.path().join("p")).expect("read program");
        let rewritten = pipeline::rewrite(&input, "p", &Options::tests()).expect("rewrite");
        let audit = verify_with(&rewritten.bytes, "p", Some(&input)).expect("audit runs");
        assert!(audit.is_clean(), "{flag}\n{audit}");
        assert_eq!(rewritten.report.optimiser.copies, copies, "{flag}");
    }
}

/// The stub formed the address in rax before it read the offset there, and asked for another block.
#[test]
fn a_bit_string_may_have_its_offset_in_rax() {
    for body in ["bt [rsi], rax", "bts dword ptr [rax+8], eax", "btr [rdi+rax*2], ax"] {
        assert_eq!(with(body, Options::tests()).1, 1, "{body}");
    }
}

#[test]
fn checks_on_every_way_are_not_repeated() {
    for (body, dominated) in [
        // Before a branch, in both arms, behind the join.
        (
            "mov rax, [rdi]\n test rax, rax\n jz 1f\n mov rcx, [rdi]\n jmp 2f\n1: mov ecx, [rdi+4]\n2: mov dx, [rdi+2]",
            3,
        ),
        // In both arms, behind the join.
        ("test rsi, rsi\n jz 1f\n mov rcx, [rdi]\n jmp 2f\n1: mov [rdi+4], rcx\n2: mov edx, [rdi+4]", 1),
        // In one arm only.
        ("test rsi, rsi\n jz 2f\n mov rcx, [rdi]\n2: mov edx, [rdi+4]", 0),
        // A load does not cover a store; more bytes are not covered by fewer.
        ("mov rax, [rdi]\n test rax, rax\n jz 1f\n mov [rdi], rcx\n1: nop", 0),
        ("mov eax, [rdi]\n test rax, rax\n jz 1f\n mov rcx, [rdi]\n1: nop", 0),
        ("mov [rdi], rax\n test rax, rax\n jz 1f\n mov rcx, [rdi]\n1: nop", 1),
        // Under another name, and moved.
        ("mov rax, [rdi]\n mov r8, rdi\n test rax, rax\n jz 1f\n mov rcx, [r8]\n1: nop", 1),
        ("mov rax, [rdi]\n add rdi, 16\n test rax, rax\n jz 1f\n mov rcx, [rdi-16]\n1: nop", 1),
        ("mov rax, [rdi]\n add rdi, 16\n test rax, rax\n jz 1f\n mov rcx, [rdi]\n1: nop", 0),
        // A call in one arm.
        ("mov rax, [rdi]\n test rax, rax\n jz 1f\n call g\n1: mov rcx, [rdi]", 0),
    ] {
        let done = counts(body);
        assert_eq!((done.merged, done.dominated, done.given_back), (0, dominated, 0), "{body}");
    }
}

#[test]
fn checks_are_widened_over_branches() {
    let branch = "mov rax, [rdi]\n test rax, rax\n jz 1f\n";
    for (rest, widened, dominated) in [
        // Behind the join, in both arms, in one arm only.
        ("nop\n1: mov rcx, [rdi+8]", 1, 1),
        ("mov rcx, [rdi+8]\n jmp 2f\n1: mov rdx, [rdi+8]\n2: nop", 1, 2),
        ("mov rcx, [rdi+8]\n jmp 2f\n1: mov ecx, [rdi+8]\n2: nop", 1, 1),
        ("mov rcx, [rdi+8]\n1: nop", 0, 0),
        // As far as both arms touch.
        ("mov rcx, [rdi+8]\n jmp 2f\n1: mov rcx, [rdi+16]\n2: nop", 1, 1),
        ("mov rcx, [rdi+8]\n jmp 2f\n1: mov rcx, [rdi-8]\n2: nop", 0, 0),
        // A store in both arms makes it a check for stores; one in one arm does not.
        ("mov [rdi], rcx\n jmp 2f\n1: mov [rdi], edx\n2: nop", 1, 2),
        ("mov [rdi], rcx\n jmp 2f\n1: mov rcx, [rdi]\n2: nop", 0, 1),
        // Further than one check looks.
        ("nop\n1: mov rcx, [rdi+57]", 0, 0),
        ("nop\n1: mov rcx, [rdi+56]", 1, 1),
        // Under another name, and moved; with another value in one arm.
        ("nop\n1: lea rsi, [rdi+8]\n mov rcx, [rsi+8]", 1, 1),
        ("mov rdi, rsi\n1: mov rcx, [rdi+8]", 0, 0),
        ("add rdi, 8\n1: mov rcx, [rdi+8]", 0, 0),
        // The runtime may be entered, or the function left.
        ("call g\n1: mov rcx, [rdi+8]", 0, 0),
        ("ret\n1: mov rcx, [rdi+8]", 0, 0),
        ("nop\n1: rep movsb\n mov rcx, [rdi+8]", 0, 0),
        // A loop in between polls, or may have no end.
        ("nop\n1: dec rax\n jnz 1b\n mov rcx, [rdi+8]", 0, 0),
    ] {
        let body = format!("{branch}{rest}");
        let done = counts(&body);
        assert_eq!((done.widened, done.dominated, done.given_back), (widened, dominated, 0), "{body}");
        let off = Options { ahead: false, ..Options::tests() };
        let done = with(&body, off).0;
        assert_eq!(done.widened, 0, "{body}");
        let unpolled = Options { poll: Poll::None, ..Options::tests() };
        assert_eq!(with(&body, unpolled).0.widened, widened, "{body}");
    }
}

#[test]
fn loops_without_polls_carry_checks_around() {
    let body = "mov rax, [rdi]\n1: mov rcx, [rdi]\n add rdx, rcx\n dec rsi\n jnz 1b";
    let options = Options { strips: false, ..Options::tests() };
    assert_eq!(with(body, Options { poll: Poll::None, ..options }).0.dominated, 1);
    assert_eq!(with(body, options).0.dominated, 0, "the poll may give the block away");
    let moving = "mov rax, [rdi]\n1: mov rcx, [rdi]\n add rdi, 8\n dec rsi\n jnz 1b";
    assert_eq!(with(moving, Options { poll: Poll::None, ..options }).0.dominated, 0);
}

#[test]
fn loops_test_for_several_iterations() {
    let tail = "cmp rdi, rdx\n jne 1b";
    for (body, strips, stripped) in [
        (format!("1: mov rax, [rdi]\n add rdi, 8\n {tail}"), 1, 1),
        (format!("1: mov rax, [rdi]\n inc rdi\n {tail}"), 1, 1),
        ("1: mov rax, [rdi+rcx*8]\n mov [rsi+rcx*4], eax\n add rcx, 1\n cmp rcx, rdx\n jb 1b".into(), 1, 2),
        ("1: mov eax, [rdi-4]\n sub rdi, 4\n cmp eax, edx\n jg 1b".into(), 1, 1),
        // An address that stays.
        (format!("1: add [rsi], rax\n add rdi, 1\n {tail}"), 1, 1),
        // Vectors; steps beyond what one test tells of; beyond what tests may look at.
        (format!("1: movups xmm0, [rdi]\n movups [rsi+rdi], xmm0\n add rdi, 16\n {tail}"), 1, 2),
        (format!("1: mov rax, [rdi]\n mov rcx, [rsi]\n add rdi, 768\n add rsi, 8\n {tail}"), 1, 2),
        (format!("1: mov rax, [rdi]\n add rdi, 4096\n {tail}"), 0, 0),
        // Another access has a check of its own.
        (format!("1: mov eax, [rdi]\n add dword ptr [rsi+rax*4], 1\n xor ecx, ecx\n add rdi, 4\n {tail}"), 1, 1),
        // That check saves flags.
        (
            format!(
                "1: mov eax, [rdi]\n cmp eax, ecx\n mov eax, [rsi+rax*4]\n adc r8, rax\n lea rdi, [rdi+4]\n {tail}"
            ),
            0,
            0,
        ),
        // No constant steps.
        ("1: mov rdi, [rdi]\n test rdi, rdi\n jnz 1b".into(), 0, 0),
        (format!("1: mov rax, [rdi]\n add rdi, rsi\n {tail}"), 0, 0),
        (format!("1: mov rax, [rdi]\n add edi, 8\n {tail}"), 0, 0),
        // Flags are live around the loop.
        ("1: adc rax, [rdi]\n lea rdi, [rdi+8]\n dec rcx\n jnz 1b".into(), 0, 0),
        // The runtime may be entered.
        (format!("1: mov rax, [rdi]\n call g\n add rdi, 8\n {tail}"), 0, 0),
        (format!("1: mov rax, [rdi]\n stosb\n add rdi, 8\n {tail}"), 0, 0),
        (format!("1: mov rax, [rdi]\n fxsave [rsi]\n add rdi, 8\n {tail}"), 0, 0),
        (format!("1: mov rax, [rdi]\n syscall\n add rdi, 8\n {tail}"), 0, 0),
        // More than one block.
        (format!("1: mov rax, [rdi]\n test rax, rax\n jz 2f\n add rdi, 8\n {tail}\n2: nop"), 0, 0),
        (format!("jmp 2f\n1: mov rax, [rdi]\n2: add rdi, 8\n {tail}"), 0, 0),
        // Its jump is no ordinary one.
        ("1: mov rax, [rdi]\n add rdi, 8\n loop 1b".into(), 0, 0),
    ] {
        for poll in [Poll::Backedge, Poll::None] {
            for count in [false, true] {
                let done = with(&body, Options { poll, count, ..Options::tests() }).0;
                assert_eq!((done.strips, done.stripped, done.given_back), (strips, stripped, 0), "{body}");
            }
        }
        let off = Options { strips: false, ..Options::tests() };
        assert_eq!(with(&body, off).0.strips, 0, "{body}");
    }
}

#[test]
fn loops_run_in_copies() {
    // A register is free in front of this.
    let tail = "xor r9d, r9d\n cmp rdi, rdx\n jne 1b";
    let index = "movzx ecx, byte ptr [rdi]";
    for (body, copies) in [
        (format!("1: mov rax, [rdi]\n add rdi, 8\n {tail}"), 1),
        (format!("1: mov rax, [rdi]\n mov rcx, [rsi]\n add rdi, 768\n add rsi, 8\n {tail}"), 1),
        ("1: mov eax, [rdi-4]\n sub rdi, 4\n cmp eax, edx\n jg 1b".into(), 1),
        // Elements of tables.
        (format!("1: {index}\n add dword ptr [rsi+rcx*4], 1\n add rdi, 1\n {tail}"), 1),
        (format!("1: {index}\n mov al, [rsi+rcx]\n mov [rdi], al\n add rdi, 1\n {tail}"), 1),
        (format!("1: {index}\n mov al, [rcx+rsi]\n mov r8, [rsi+rcx*8]\n add rdi, 1\n {tail}"), 1),
        (format!("1: mov ecx, [rdi]\n shr ecx, 24\n mov eax, [rsi+rcx*4]\n add rdi, 4\n {tail}"), 1),
        (format!("1: mov ecx, [rdi]\n and ecx, 63\n inc dword ptr [rsi+rcx*4-16]\n add rdi, 4\n {tail}"), 1),
        // An element and its neighbour, which share a check in the loop.
        (format!("1: {index}\n shl rcx, 4\n mov al, [rsi+rcx]\n mov ah, [rsi+rcx+1]\n add rdi, 1\n {tail}"), 1),
        // Other accesses keep their checks there.
        (format!("1: mov ecx, [rdi]\n mov rax, [rsi+rcx*8]\n mov r8, [rsi+rcx*8+8]\n add rdi, 4\n {tail}"), 1),
        // Through rsp; the operand of no access.
        (format!("1: mov rax, [rdi]\n mov [rsp-8], rax\n lea rcx, [rip+1b]\n add rdi, 8\n {tail}"), 0),
        (format!("1: mov rax, [rdi]\n mov [rsp-8], rax\n lea rcx, [rax+rdx]\n add rdi, 8\n {tail}"), 1),
        // What means something else elsewhere, or moves rsp.
        (format!("1: mov rax, [rdi]\n mov rcx, [rip+memory]\n add rdi, 8\n {tail}"), 0),
        (format!("1: mov rax, [rdi]\n push rax\n pop rcx\n add rdi, 8\n {tail}"), 0),
        // What other addresses hold is exempt for other reasons.
        (format!("lea r8, [rsp-64]\n1: mov rax, [rdi]\n mov [r8], rax\n add rdi, 8\n {tail}"), 0),
        // No condition.
        ("1: mov rax, [rdi]\n add rdi, 8\n jmp 1b".into(), 0),
        // Too long for two blocks.
        (format!("1: mov rax, [rdi]\n {} add rdi, 8\n {tail}", "add rcx, rax\n ".repeat(24)), 0),
    ] {
        for poll in [Poll::Backedge, Poll::None] {
            for count in [false, true] {
                let done = with(&body, Options { poll, count, ..Options::tests() }).0;
                assert_eq!((done.strips, done.copies, done.given_back), (1, copies, 0), "{body}");
            }
        }
        for off in [Options { strips: false, ..Options::tests() }, Options { copies: false, ..Options::tests() }] {
            assert_eq!(with(&body, off).0.copies, 0, "{body}");
        }
        // The first transformation is the strip.
        let first = with(&body, Options { fuel: Some(1), place_polls: false, ..Options::tests() }).0;
        assert_eq!((first.strips, first.copies), (1, 0), "{body}");
    }
}

/// Who leaves a copy has not come through the loop's checks, so they tell nothing of what is accessed behind it.
#[test]
fn nothing_behind_a_copy_counts_on_its_loop() {
    let body = "1: mov ecx, [rdi]\n mov rax, [rsi+rcx*8]\n add rdi, 4\n cmp rdi, rdx\n jne 1b\n mov r8, [rsi+rcx*8]";
    let poll = Poll::None;
    let done = with(body, Options { poll, ..Options::tests() }).0;
    assert_eq!((done.copies, done.dominated), (1, 0));
    let done = with(body, Options { poll, copies: false, ..Options::tests() }).0;
    assert_eq!((done.copies, done.dominated), (0, 1));
}

/// Every general register is in use in the loop: one is saved for the tests.
#[test]
fn loops_without_a_free_register_test_too() {
    let adds: String = ["rax", "rbx", "rcx", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"]
        .map(|r| format!(" add {r}, [rsi]\n add rdx, {r}\n"))
        .concat();
    let body = format!("1: mov [rdi], rdx\n{adds} add rdi, 8\n cmp rdi, rdx\n jne 1b");
    let done = counts(&body);
    assert_eq!((done.strips, done.stripped), (1, 13));
}

#[test]
fn a_check_in_between_acquires_what_still_counts() {
    let done = counts("mov rax, [rdi]\n mov rcx, [rsi]\n mov rdx, [rdi+8]");
    assert_eq!((done.merged, done.chained, done.regions), (1, 1, 1));
    let done = counts("mov rax, [rdi]\n mov rdx, [rdi+8]\n mov rcx, [rsi]");
    assert_eq!((done.merged, done.chained, done.regions), (1, 0, 1));
    // What moves in between is named as it is at each place.
    let done = counts("mov rax, [rdi]\n add rdi, 8\n mov rcx, [rsi]\n mov rdx, [rdi]");
    assert_eq!((done.merged, done.chained, done.regions), (1, 1, 2));
}

#[test]
fn switches_and_fuel_are_obeyed() {
    let body = "mov rax, [rdi]\n mov rcx, [rdi+8]\n mov rdx, [rdi+16]\n test rdx, rdx\n jz 1f\n mov [rsi], rax\n mov r8, [rdi]\n1: nop";
    let all = Options::tests();
    for (options, merged, dominated, left) in [
        (all, 2, 1, 2),
        (Options { merge: false, ahead: false, ..all }, 0, 1, 4),
        // What is certainly executed in the same block is certainly executed.
        (Options { merge: false, ..all }, 0, 3, 2),
        (Options { ahead: false, ..all }, 2, 1, 2),
        (Options { across: false, ..all }, 2, 0, 3),
        (Options { merge: false, across: false, ..all }, 0, 0, 5),
        (Options { fuel: Some(0), ..all }, 0, 0, 5),
        (Options { fuel: Some(1), ..all }, 1, 0, 4),
        (Options { fuel: Some(2), ..all }, 2, 0, 3),
        (Options { fuel: Some(3), ..all }, 2, 1, 2),
    ] {
        let (done, checks) = with(body, options);
        assert_eq!((done.merged, done.dominated, checks), (merged, dominated, left), "{options:?}");
    }
}

/// Every register is live at the access: one is kept in the red zone, or where the function may use that, further down.
#[test]
fn registers_are_kept_in_the_red_zone_where_nothing_else_is() {
    let adds: String = ["rbx", "rcx", "rdx", "rsi", "rdi", "rbp"].map(|r| format!(" add rax, {r}\n")).concat();
    let more: String = (8..16).map(|r| format!(" add rax, r{r}\n")).collect();
    let spills = |behind: &str, options: Options| {
        let input = program(&format!(" add rax, [rdi]\n{adds}{more} {behind}"));
        let rewritten = pipeline::rewrite(&input, "p", &options).expect("rewrite");
        let audit = verify_with(&rewritten.bytes, "p", Some(&input)).expect("audit runs");
        assert!(audit.is_clean(), "{behind}\n{audit}");
        (rewritten.report.spills, rewritten.report.red_zone)
    };
    for (behind, kept) in [
        ("nop", 1),
        ("push rax\n pop rcx", 1),
        ("sub rsp, 24\n mov [rsp+8], rax\n add rsp, 24", 1),
        // It may lie below, and does where it is named.
        ("mov [rsp-8], rax", 0),
        ("lea rcx, [rsp-64]\n call g", 0),
        ("push rsp\n pop rcx\n call g", 0),
        // An address on the stack, as long as no store through it may lie below.
        ("lea rcx, [rsp+8]", 1),
        ("lea rcx, [rsp+8]\n call g", 1),
        ("mov rcx, rsp\n call g", 1),
        ("lea rcx, [rsp+rax*8]", 1),
        ("lea rcx, [rsp+8]\n mov [rcx-8], rax", 1),
        ("lea rcx, [rsp+8]\n mov [rcx-16], rax", 0),
        ("lea rcx, [rsp+8]\n mov [rcx-16], rax\n call g", 0),
        ("lea rcx, [rsp+8]\n1: mov [rcx-8], rax\n add rcx, 8\n cmp rcx, rax\n jnz 1b", 1),
        ("lea rcx, [rsp+64]\n1: mov [rcx], rax\n sub rcx, 8\n cmp rcx, rax\n jnz 1b", 0),
        // An index that may be negative.
        ("mov [rsp+rax*8], rcx", 0),
        ("mov [rsp+rax*8], rcx\n call g", 0),
        ("mov ecx, eax\n mov [rsp+rcx*8], rax", 1),
        ("movsxd rcx, eax\n mov [rsp+rcx*8], rax", 0),
        ("lea rcx, [rsp+rax*8]\n mov [rcx], rax\n call g", 0),
        // What rsp was raised over.
        ("push rcx\n lea rsp, [rsp+8]\n mov rcx, [rsp+rax*8]", 0),
        ("mov rbx, rsp\n push rcx\n pop rdx\n lea rsp, [rbx-8]\n pop rcx", 0),
        ("mov rbx, rsp\n push rcx\n pop rdx\n cmp [rbx-8], rcx", 0),
        // It is followed to no memory and no vector.
        ("mov rcx, rsp\n push rcx\n pop rcx\n call g", 0),
        ("mov rcx, rsp\n movq xmm0, rcx\n call g", 0),
    ] {
        // A screen needs no register.
        let options = Options { screens: false, ..Options::tests() };
        assert_eq!(spills(behind, options), (1, kept), "{behind}");
        assert_eq!(spills(behind, Options { red_zone: false, ..options }), (1, 0), "{behind}");
        assert_eq!(spills(behind, Options::tests()), (0, 0), "{behind}");
    }
}
