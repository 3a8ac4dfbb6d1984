//! Registers that checks keep in the red zone: what is accepted, and each way in which something of the program's would be lost.

use crate::tests::fixtures::program::{Program, miss};

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
        &format!(
            "s1: mov rcx, [rsp-8]
r1: {}",
            miss("mov rax, rdi", "8 + LOAD", "a1")
        ),
    )
}

#[test]
fn accepts_a_register_in_the_red_zone() {
    assert_eq!(kept().accepted().checked.loads, 1);
    // What is above rsp does not matter, nor do addresses there, nor loads from a place that is not known.
    for more in [
        "sub rsp, 24\n mov [rsp], rax\n add rsp, 24",
        "lea rsp, [rsp-24]\n lea rsp, [rsp+24]",
        "lea rdx, [rsp+8]\n call g",
        "mov rbp, rsp\n call g",
        "lea rdx, [rsp+rax]\n call g",
        "lea rdx, [rsp+8]",
        "mov rbp, rsp",
        "lea rdx, [rsp+rax]",
        // Stores at or above rsp, by whatever leaves a number of 32 bits, too.
        "movmskps edx, xmm0\n lea rdx, [rsp+rdx*4]\n mov rdx, rcx",
        "and rdx, 63\n lea rdx, [rsp+rdx*8]\n mov rdx, rcx",
        "mov rdx, rsp\n add rdx, 0x1000\n mov rax, rsp\n add rax, 0x1000\n sub rax, 0x800\n and rax, -16",
        "mov edx, eax\n lea rdx, [rsp+rdx*8]\n push rdi\n pop rdi",
        "lea rdx, [rsp+8]\n mov [rdx-8], rax",
        "lea rdx, [rsp+16]\n test eax, eax\n jz 1f\n add rdx, 1\n1: mov [rdx-1], al",
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
        "mov [rsp+rax*8], rax",
        "lea rdx, [rsp-16]",
        // An address is followed to no memory and no vector.
        "mov rdx, rsp\n push rdx\n pop rdx",
        "mov rdx, rsp\n movq xmm0, rdx",
        "lea rdx, [rsp+8]\n xchg rdx, [rsp]",
        "push rsp",
        "add rax, rsp",
        "enter 16, 0",
        "mov [rdi], rsp",
        "mov eax, esp",
        "mov [rsp-24], rax\n call f",
    ] {
        kept().with("out: ret", &format!("{more}\nout: ret")).found("below rsp");
    }
    // Below rsp through an address on the stack. A call tells nothing: the compiler may not know of it.
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
        "lea rdx, [rsp+8]\n mov [rdx-16], rax",
        "lea rdx, [rsp+64]\n1: mov [rdx], rax\n sub rdx, 8\n cmp rdx, rax\n jnz 1b",
        "lea rdx, [rsp+64]\n sub rdx, rax\n mov [rdx], al",
        "lea rdx, [rsp+64]\n mov [rdx+rax], al",
        "movsxd rdx, eax\n mov [rsp+rdx*8], rax",
        "lea rdx, [rsp+8]\n lea r8, [rsp+64]\n cmp eax, 1\n cmovz rdx, r8\n mov [rdx-16], rax",
        "push rax\n add rsp, 8\n mov rdx, [rsp+rax*8]",
        "mov rbp, rsp\n push rax\n pop rdx\n lea rsp, [rbp-8]\n pop rdx",
        "mov rbp, rsp\n bts [rbp], rdx",
        "mov rdx, rsp\n mov rcx, rdi\n sub rcx, rdx\n sub rdi, rcx\n mov [rdi-8], rax",
        "mov rbp, rsp\n push rax\n push rax\n sub rsp, rcx\n mov [rbp-8], rax\n leave",
        "mov rbp, rsp\n push rax\n pop rdx\n cmp [rbp-8], rax",
        "mov rbp, rsp\n push rax\n pop rdx\n call [rbp-8]",
        "lea rsi, [rsp+rcx]\n syscall",
        "mov rdx, rsp\n movq mm0, rdx",
        "mov rdx, rsp\n kmovq k1, rdx",
        "mov rdx, rsp\n bsf rdx, rax\n mov [rdx], al",
        "mov rbp, rsp\n push rax\n mov rsp, rbp\n lea rdx, [rbp+rax*8]\n mov rdx, [rdx]",
        "lea rdi, [rsp+64]\n std\n stosq\n cld",
        "lea rdi, [rsp+64]\n lea rdi, [rdi+rax]\n stosq",
        "lea rdx, [rsp+8]\n push rdi\n mov rdi, [rdx-8]\n pop rdi\n mov rdx, rsp\n and rdx, -16\n mov [rdx], al",
        "push rbp\n mov rbp, rsp\n sub rsp, rax\n lea rdx, [rsp+8]\n add rsp, 16\n mov [rdx], al\n leave",
    ] {
        kept().with("out: ret", &format!("{more}\n{steps_over}\nout: ret\ng: ret")).found("below rsp");
    }
    // A caller that knows how little its callee needs keeps something there.
    let called = kept().with("c1:", "mov [rsp-24], rax\n call g\n mov rax, [rsp-24]\n ret\ng: nop\nc1:");
    called.found("below rsp");
    called.with("call g", "call h").with("g: nop", "h: call g\n ret\ng: nop").found("below rsp");
}

/// A store at rsp and an index, which is not negative where its upper half is clear. bsf and bsr leave a register as it is if nothing is set;
/// tzcnt and lzcnt write always.
#[test]
fn knows_what_clears_the_upper_half_of_an_index() {
    let indexed = Program::new(
        "mov edx, eax
c1: mov [rsp-8], rcx
 lea rcx, [rsp+rdx*8]
 shr rcx, 6
 test dword ptr [rcx+T], 0x101
 jnz s1
 mov rcx, [rsp-8]
a1: mov [rsp+rdx*8], rax
 add rax, rcx
out: ret",
        &format!(
            "s1: mov rcx, [rsp-8]
r1: {}",
            miss("lea rax, [rsp+rdx*8+136]", "8 + STORE", "a1")
        ),
    );
    assert_eq!(indexed.accepted().checked.stores, 1);
    for clears in ["tzcnt edx, eax", "lzcnt edx, eax", "tzcnt edx, [rip+word]"] {
        indexed.with("mov edx, eax", clears).accepted();
    }
    for may_leave in ["bsf edx, eax", "bsr edx, eax", "tzcnt dx, ax", "lzcnt dx, ax", "shl edx, cl"] {
        indexed.with("mov edx, eax", may_leave).found("below rsp");
    }
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
