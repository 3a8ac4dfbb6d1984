//! Registers that checks keep in the red zone: what is accepted, and each way in which something of the program's would be lost.

use super::Program;

/// Every register is live: one is kept below rsp, where the function keeps nothing.
fn kept() -> Program {
    Program::new(
        "c1: mov [rsp-8], rcx
 mov rcx, rdi
 shr rcx, 6
 test dword ptr [rcx+T], 0x202
 jnz s1
 mov rcx, [rsp-8]
a1: add rax, [rdi]
 add rax, rcx
out: ret",
        "s1: mov rcx, [rsp-8]
r1: lea rsp, [rsp-128]
 push rax
 mov rax, rdi
 xchg [rsp], rax
 push 8 + LOAD
 call qword ptr [GATE_MISS]
 lea rsp, [rsp+128]
 jmp a1",
    )
}

#[test]
fn accepts_a_register_in_the_red_zone() {
    assert_eq!(kept().accepted().checked.loads, 1);
    // What is above rsp does not matter, and addresses on the stack do not where the function calls.
    for more in [
        "sub rsp, 24\n mov [rsp], rax\n add rsp, 24",
        "lea rsp, [rsp-24]\n lea rsp, [rsp+24]",
        "lea rdx, [rsp+8]\n call g",
        "mov rbp, rsp\n call g",
        "lea rdx, [rsp+rax]\n call g",
        "push rbp\n mov rbp, rsp\n sub rsp, 48\n mov [rbp-48], rax\n lea rdx, [rbp-16]\n call g\n leave",
        "push rbp\n mov rbp, rsp\n and rsp, -32\n sub rsp, 64\n mov [rsp+8], rax\n mov [rbp-8], rax\n call g\n mov rsp, rbp\n pop rbp",
        "push rbp\n mov rbp, rsp\n push rbx\n sub rsp, 24\n call g\n lea rsp, [rbp-8]\n pop rbx\n pop rbp",
    ] {
        let callee = if more.contains("call g") { "g: ret" } else { "" };
        kept().with("out: ret", &format!("{more}\nout: ret\n{callee}")).accepted();
    }
}

#[test]
fn finds_values_of_the_program_in_the_red_zone() {
    for more in [
        // What rsp was raised over, and is lowered to again.
        "lea rsp, [rsp+24]\n nop\n lea rsp, [rsp-24]",
        "pop rdx\n pop rdx\n sub rsp, 16",
        "add rsp, 16\n test rdx, rdx\n jz q\n nop\nq: add rsp, -16",
        "add rsp, 16\n nop\n and rsp, -32",
        "mov [rsp-24], rax",
        "mov rax, [rsp-8]",
        "mov rax, [rsp+rax*8]",
        "lea rdx, [rsp-16]",
        "lea rdx, [rsp+rax]",
        "lea rdx, [rsp+8]",
        "mov rbp, rsp",
        "push rsp",
        "add rax, rsp",
        "enter 16, 0",
        "mov [rdi], rsp",
        "mov eax, esp",
        "mov [rsp-24], rax\n call f",
    ] {
        kept().with("out: ret", &format!("{more}\nout: ret")).found("below rsp");
    }
    // Below rsp through a copy of it. A call tells nothing: the compiler may not know of it.
    let steps_over = "lea rsp, [rsp-128]\n call g\n lea rsp, [rsp+128]";
    for more in [
        "mov rbp, rsp\n mov [rbp-24], rax",
        "push rbp\n mov rbp, rsp\n mov rax, [rbp-48]\n pop rbp",
        "mov rbp, rsp\n lea rdx, [rbp-48]",
        "mov rbp, rsp\n mov rax, [rbp+rcx*8-48]",
        "mov rdx, rsp\n sub rdx, 48",
        "mov rdx, rsp\n mov r8, rdx\n add rdx, -8",
        "mov rax, [rsp+rcx*8-48]",
        "mov rbp, rsp\n sub rsp, 24\n mov rax, [rbp-32]\n leave",
        "mov rbp, rsp\n sub rsp, 24\n test eax, eax\n jz 1f\n add rsp, 24\n1: mov rax, [rbp-24]\n mov rsp, rbp",
        "mov rbp, rsp\n mov rsp, rdx\n mov rsp, rbp",
    ] {
        kept().with("out: ret", &format!("{more}\n{steps_over}\nout: ret\ng: ret")).found("below rsp");
    }
    // A caller that knows how little its callee needs keeps something there.
    let called = kept().with("c1:", "mov [rsp-24], rax\n call g\n mov rax, [rsp-24]\n ret\ng: nop\nc1:");
    called.found("below rsp");
    called.with("call g", "call h").with("g: nop", "h: call g\n ret\ng: nop").found("below rsp");
}

#[test]
fn finds_faults_in_keeping_a_register() {
    for (from, to) in [
        ("mov rcx, [rsp-8]\na1:", "mov rcx, [rsp-16]\na1:"),
        ("mov rcx, [rsp-8]\na1:", "mov rdx, [rsp-8]\na1:"),
        ("mov rcx, [rsp-8]\na1:", "a1:"),
        ("s1: mov rcx, [rsp-8]", "s1: nop"),
        ("s1: mov rcx, [rsp-8]", "s1: mov rcx, [rsp-16]"),
        ("c1: mov [rsp-8], rcx", "c1: mov [rsp-8], rdx"),
        ("c1: mov [rsp-8], rcx", "c1: nop"),
        ("r1: lea rsp, [rsp-128]", "r1: lea rsp, [rsp-120]"),
    ] {
        kept().with(from, to).found("");
    }
    // Beyond what signal handlers leave alone, and above rsp.
    for slot in ["[rsp-136]", "[rsp]", "[rsp+8]"] {
        let mut p = kept();
        (p.text, p.cold) = (p.text.replace("[rsp-8]", slot), p.cold.replace("[rsp-8]", slot));
        p.found("");
    }
}
