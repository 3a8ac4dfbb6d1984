//! A stack pointer from elsewhere is tested, or found.

use crate::judge::code::stack_tests::UNTESTED;
use crate::tests::fixtures::program::Program;

const TEST: &str = "t1: bt rsp, 46\n jae s1\nb1:";
const STUB: &str = "s1: bt rsp, 45
 jae b1
 bt rsp, 44
 jb b1
 bt rsp, 43
 jb b1
 bt rsp, 42
 jb b1
 bt rsp, 41
 jb b1
 bt rsp, 40
 jb b1
 cmp dword ptr [NODES], 1
 je b1
 lea rax, [rip+b1]
 jmp qword ptr [GATE_STACK]";

/// What makes rsp from something that is no stack address. (The values come from registers: each access would need a check.)
const ELSEWHERE: [&str; 17] = [
    "mov rsp, rax",
    "xchg rsp, rax",
    "xchg rcx, rsp",
    "pop rsp",
    "leave",
    "mov rsp, rbp",
    "lea rsp, [rbp-8]",
    "lea rsp, [rsp+rax]",
    "lea rsp, [rax+8]",
    "lea rsp, [rip+f]",
    "cmovz rsp, rax",
    "add rsp, rax",
    "sub rsp, rax",
    "and rsp, rax",
    "xadd rsp, rax",
    "movq rsp, xmm0",
    "mov rsp, 0x1000",
];

fn tested(set: &str) -> Program {
    Program { flags: 3, ..Program::new(&format!("{set}\n {TEST} test eax, eax\n ret"), STUB) }
}

/// Accesses through rsp are exempt. A program that put its stack into shared memory worked on a copy of its own, and nothing was said.
#[test]
fn a_stack_pointer_from_elsewhere_is_tested() {
    for set in ELSEWHERE {
        assert_eq!(tested(set).accepted().stack_tests, 1, "{set}");
        Program { flags: 3, ..Program::new(&format!("{set}\n ret"), "") }.found(UNTESTED);
        // Behind another instruction it is too late.
        Program { flags: 3, ..Program::new(&format!("{set}\n mov [rsp+8], rax\n {TEST} test eax, eax\n ret"), STUB) }
            .found(UNTESTED);
        // Who asks for no checks gets none.
        Program { flags: 0, ..Program::new(&format!("{set}\n ret"), "") }.accepted();
    }
    Program { flags: 3, ..Program::new("iretq", "") }.found(UNTESTED);
}

#[test]
fn what_keeps_rsp_on_its_stack_needs_no_test() {
    for kept in [
        "push rbp\n mov rbp, rsp\n sub rsp, 64\n and rsp, -32\n leave",
        "push rbp\n mov rbp, rsp\n sub rsp, 64\n mov rsp, rbp\n pop rbp",
        "push rbp\n mov rbp, rsp\n push rbx\n lea rsp, [rbp-8]\n pop rbx\n pop rbp",
        "lea rsp, [rsp-128]\n add rsp, 128",
        "mov r12, rsp\n call g\n mov rsp, r12",
        "dec rsp\n inc rsp\n push rsp\n pop rax\n pushfq\n popfq",
    ] {
        Program { flags: 3, ..Program::new(&format!("{kept}\n ret\ng: ret"), "") }.accepted();
    }
    // A copy that is gone, or that is no copy on one of the ways.
    for lost in ["mov rbp, rsp\n mov rbp, rax\n leave", "test eax, eax\n jz g\n mov rbp, rsp\ng: leave"] {
        Program { flags: 3, ..Program::new(&format!("{lost}\n ret"), "") }.found(UNTESTED);
    }
}

#[test]
fn flags_that_are_live_are_kept() {
    let body = "cmp edi, esi\n mov rsp, rax\n t1: mov rcx, rax\n lahf\n seto al\n bt rsp, 46\n jae s1\nb1: add al, 0x7f\n sahf\n mov rax, rcx\n jz g\ng: mov ecx, 1\n ret";
    Program { flags: 3, ..Program::new(body, STUB) }.accepted();
    let lost = format!("cmp edi, esi\n mov rsp, rax\n {TEST} jb g\ng: ret");
    Program { flags: 3, ..Program::new(&lost, STUB) }.found("inserted code changes CF");
}

#[test]
fn a_test_that_lets_a_shared_stack_pass_is_found() {
    for (from, to) in [
        // Another bit, another register, the wrong outcome, the wrong place.
        ("bt rsp, 45", "bt rsp, 44"),
        ("bt rsp, 40", "bt rsp, 39"),
        ("bt rsp, 42", "bt rcx, 42"),
        ("bt rsp, 42", "bt esp, 10"),
        ("jae b1", "jb b1"),
        (" bt rsp, 41\n jb b1\n", " bt rsp, 41\n jae b1\n"),
        (" bt rsp, 41\n jb b1\n", ""),
        (" bt rsp, 41\n jb b1\n", " bt rsp, 41\n jmp b1\n"),
        ("[NODES], 1", "[NODES], 2"),
        ("je b1", "jne b1"),
        ("[GATE_STACK]", "[GATE_POLL]"),
        ("jmp qword ptr", "call qword ptr"),
        ("lea rax, [rip+b1]", "lea rax, [rip+f]"),
        ("lea rax, [rip+b1]", "lea rcx, [rip+b1]"),
    ] {
        assert!(STUB.contains(from), "{from}");
        let stub = STUB.replace(from, to);
        Program { flags: 3, ..Program::new(&format!("mov rsp, rax\n {TEST} test eax, eax\n ret"), &stub) }
            .found(UNTESTED);
    }
    for test in ["t1: bt rsp, 46\n jb s1\nb1:", "t1: bt rsp, 45\n jae s1\nb1:", "t1: bt rcx, 46\n jae s1\nb1:"] {
        Program { flags: 3, ..Program::new(&format!("mov rsp, rax\n {test} test eax, eax\n ret"), STUB) }
            .found(UNTESTED);
    }
}
