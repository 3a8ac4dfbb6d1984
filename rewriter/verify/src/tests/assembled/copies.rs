//! Copies of loops without checks: what is accepted, and each fault in what makes it so.

use crate::tests::fixtures::program::{Program, caught};

/// A byte at rdi, which steps by one, counts in a table of 32-bit words at rsi; twice in the copy.
fn copied() -> Program {
    let loop_body = |k: u32| {
        format!(
            "c{k}: movzx ecx, byte ptr [rdi]\nd{k}: add rdi, 1\no{k}: nop\ne{k}: add dword ptr [rsi+rcx*4], 1\nf{k}: cmp rdi, rdx\n"
        )
    };
    let stream = |k: u32| {
        format!(
            " mov r8, rdi\n shr r8, 6\n test dword ptr [r8+T], 0x2020202\n jne n1\n lea r8, [rdi+{k}]\n mov qword ptr [UP], r8\n"
        )
    };
    let table: String = [0, 4, 8, 12, 13].map(|t| format!(" test dword ptr [r8+T+{t}], 0x1010101\n jne t1\n")).concat();
    let mut p = Program::new(
        "l1: mov qword ptr [UP], 0
h1: cmp rdi, qword ptr [UP]
 jae s1
b1: movzx ecx, byte ptr [rdi]
m1: add rdi, 1
o0: nop
q1: lea r8, [rsi+rcx*4]
 shr r8, 6
 test dword ptr [r8+T], 0x101
 jne s2
a2: add dword ptr [rsi+rcx*4], 1
m2: cmp rdi, rdx
u1: jne h1
u1_end: ret",
        &format!(
            "s1: cmp dword ptr [POLL], 0
 jne p1
 mov r8, rsi
 shr r8, 6
{table}{} jmp c1
t1:{} jmp b1
n1: mov r8, rdi
 shr r8, 6
 test byte ptr [r8+T], 2
 jne g1
 mov qword ptr [UP], 0
 jmp b1
p1: lea rsp, [rsp-128]
 call qword ptr [GATE_POLL]
 lea rsp, [rsp+128]
g1: lea rsp, [rsp-128]
 lea r8, [rip+keep]
 push r8
 call qword ptr [GATE_GROUP]
 lea rsp, [rsp+128]
 mov qword ptr [UP], 0
 jmp b1
 .balign 64, 0x90
 .cfi_startproc
j1: cmp rdi, qword ptr [UP]
 jae s1
{}i1: je u1_end
{}i2: jne j1
x1: jmp u1_end
 .cfi_endproc
s2: lea r8, [rsi+rcx*4]
 and r8d, 63
 cmp r8d, 60
 ja r2
 lea r8, [rsi+rcx*4]
 shr r8, 6
 test byte ptr [r8+T], 1
 jz a2
r2: lea rsp, [rsp-128]
 lea r8, [rip+chain]
 push r8
 call qword ptr [GATE_GROUP]
 lea rsp, [rsp+128]
 mov qword ptr [UP], 0
 jmp a2",
            stream(128),
            stream(128),
            loop_body(1),
            loop_body(2),
        ),
    );
    p.rodata = " .balign 16
keep: .long 0, LOAD + 1
 .byte 7, 16, 1, 0
 .long 0
chain: .long 0, STORE + 4
 .byte 6, 1, 4, 0
 .long 0"
        .into();
    p.base = "0";
    p.traps = ".long f_old - old_start, f".into();
    p.claims = ".long b1, 0xffffffff, 3".into();
    p.regions = ".long f, m1, keep
 .long c1, d1, MOVED + f
 .long d1, o1, MOVED + m1
 .long o1, e1, MOVED + o0
 .long e1, f1, MOVED + q1
 .long f1, i1, MOVED + m2
 .long c2, d2, MOVED + f
 .long d2, o2, MOVED + m1
 .long o2, e2, MOVED + o0
 .long e2, f2, MOVED + q1
 .long f2, i2, MOVED + m2"
        .into();
    p
}

/// The same, but that the copy checks the table's elements as the loop does.
fn with_checks() -> Program {
    let mut p = copied();
    for k in [1, 2] {
        p.cold = p.cold.replace(
            &format!("e{k}: add"),
            &format!("e{k}: lea r8, [rsi+rcx*4]\n shr r8, 6\n test dword ptr [r8+T], 0x101\n jne s2\nv{k}: add"),
        );
    }
    let from = p.cold.find(" mov r8, rsi\n").expect("tests of the table");
    let to = p.cold.find(" mov r8, rdi\n").expect("tests of the stream");
    p.cold.replace_range(from..to, "");
    let from = p.cold.find("t1:").expect("the way without the table");
    let to = p.cold.find("n1:").expect("the way for one iteration");
    p.cold.replace_range(from..to, "");
    p
}

/// An index of 32 bits, and a copy that runs where screens find both pointers private.
fn anchored() -> Program {
    let mut p = everywhere(&copied(), ": nop\n", ": mov ecx, ecx\n");
    let from = p.cold.find(" mov r8, rsi\n").expect("tests of the table");
    let to = p.cold.find("t1:").expect("the way without the table");
    let screens = " bt rdi, 46
 jae t1
 bt rsi, 46
 jae t1
 lea r8, [rdi+128]
 mov qword ptr [UP], r8
 jmp c1
";
    p.cold.replace_range(from..to, screens);
    p
}

#[test]
fn an_index_of_32_bits_leads_nowhere_from_private_memory() {
    anchored().accepted();
    for to in [
        ": movsxd rcx, ecx\n",
        ": movsx rcx, cx\n",
        ": movzx ecx, cx\n",
        ": lea ecx, [rcx+rdx]\n",
        ": shr rcx, 33\n",
        ": shr ecx, 1\n",
        ": add ecx, 7\n",
    ] {
        everywhere(&anchored(), ": mov ecx, ecx\n", to).accepted();
    }
    for to in [
        ": mov rcx, rdx\n",
        ": shr rcx, 1\n",
        ": mov cx, dx\n",
        ": mov cl, dl\n",
        ": nop\n mov rcx, [rdi]\n",
        ": lea rcx, [rcx+rdx]\n",
        ": add rcx, rdx\n",
        ": mov ecx, ecx\n add rcx, 1\n",
        ": movzx cx, cl\n",
        ": mov rsi, rdx\n",
    ] {
        let to = everywhere(&anchored(), ": mov ecx, ecx\n", to);
        assert!(!to.audit().is_clean(), "{}", to.text);
    }
    for (from, to) in [
        ("bt rsi, 46", "bt rdx, 46"),
        ("bt rsi, 46", "lea r8, [rsi+rdx]\n bt r8, 46"),
        ("bt rsi, 46\n jae t1\n", ""),
        ("bt rdi, 46\n jae t1\n", ""),
        ("bt rsi, 46\n jae t1\n", "bt rsi, 46\n jae c1\n"),
        (" jmp b1\nn1:", " jmp c1\nn1:"),
    ] {
        let p = anchored().with(from, to);
        assert!(!p.audit().is_clean(), "{from} -> {to}");
    }
}

#[test]
fn copies_of_loops_are_accepted() {
    let audit = copied().accepted();
    assert_eq!((audit.covered.get("strip"), audit.strips, audit.checked.stores), (Some(&1), 1, 1));
    with_checks().accepted();
    for (from, to) in [
        // Other ways to make the index small.
        ("movzx ecx, byte ptr [rdi]", "movzx rcx, byte ptr [rdi]"),
        (": nop\n", ": and ecx, 255\n"),
        (": nop\n", ": and rcx, 127\n"),
        (": nop\n", ": shr ecx, 24\n"),
        (": nop\n", ": shr rcx, 57\n"),
        (": nop\n", ": movzx ecx, cl\n"),
        ("add rdi, 1\n", "inc rdi\n"),
    ] {
        everywhere(&copied(), from, to).accepted();
    }
}

/// The copy's frame names no landing pad.
#[test]
fn loops_whose_faults_are_caught_have_no_copies() {
    let with = |from, to| copied().with("l1: mov", &(caught(from, to, "u1_end") + "l1: mov"));
    with("u1_end", "text_end").with("u1_end: ret", "u1_end: ret\ntext_end:").accepted();
    for (from, to) in [("l1", "u1_end"), ("b1", "m1"), ("a2", "m2")] {
        with(from, to).found("landing pad of the loop");
    }
}

/// Replaces something in the loop and in its copy.
fn everywhere(p: &Program, from: &str, to: &str) -> Program {
    let mut p = p.clone();
    assert_eq!((p.text.matches(from).count(), p.cold.matches(from).count()), (1, 2), "{from}");
    p.text = p.text.replace(from, to);
    p.cold = p.cold.replace(from, to);
    p
}

#[test]
fn finds_what_tests_do_not_tell_of() {
    for (from, to) in [
        ("movzx ecx, byte ptr [rdi]", "movzx ecx, word ptr [rdi]"),
        ("movzx ecx, byte ptr [rdi]", "mov cl, byte ptr [rdi]"),
        ("movzx ecx, byte ptr [rdi]", "mov ecx, dword ptr [rdi]"),
        (": nop\n", ": add ecx, 1\n"),
        (": nop\n", ": and cx, 255\n"),
        (": nop\n", ": and ecx, -1\n"),
        (": nop\n", ": and rcx, -1\n"),
        (": nop\n", ": and ecx, 511\n"),
        (": nop\n", ": shr ecx, 23\n"),
        (": nop\n", ": shr ecx, 32\n"),
        (": nop\n", ": shr rcx, 24\n"),
        (": nop\n", ": add rsi, 4\n"),
        (": nop\n", ": mov rsi, rdx\n"),
        (": nop\n", ": add qword ptr [rsi+2048], 1\n"),
        (": nop\n", ": add qword ptr [rdx], 1\n"),
        (": nop\n", ": mov rax, [rsi+rcx*8]\n"),
        (": nop\n", ": push rax\n"),
        (": nop\n", ": syscall\n"),
        (": nop\n", ": stosb\n"),
        (": nop\n", ": mov eax, [rip+word]\n"),
    ] {
        everywhere(&copied(), from, to).found("the copy of a loop");
    }
}

#[test]
fn finds_faults_in_copies() {
    copied().finds(&[
        // The blocks.
        ("d1: add rdi, 1\n", "d1: ", "not an instruction of the loop"),
        ("d1: add rdi, 1\n", "d1: add rdi, 2\n", "not an instruction of the loop"),
        ("d2: add rdi, 1\n", "d2: add rdi, 1\n add rdi, 1\n", "not an instruction of the loop"),
        ("e2: add dword ptr [rsi+rcx*4], 1\n", "e2: add dword ptr [rsi+rcx*8], 1\n", "not an instruction of the loop"),
        ("f2: cmp rdi, rdx\n", "f2: cmp rdi, rsi\n", "not an instruction of the loop"),
        ("f2: cmp rdi, rdx\n", "f2: ", "not an instruction of the loop"),
        ("f2: cmp rdi, rdx\n", "f2: cmp rdi, rdx\n nop\n", "not an instruction of the loop"),
        ("d1: add rdi, 1\n", "d1: add rdi, 1\n jne s1\n", "not an instruction of the loop"),
        ("d1: add rdi, 1\n", "d1: add rdi, 1\n jmp b1\n", "left by another way"),
        ("d1: add rdi, 1\n", "d1: add rdi, 1\n call f\n", "left by another way"),
        // How control goes.
        ("i1: je u1_end\n", "i1: jne u1_end\n", "its condition"),
        ("i1: je u1_end\n", "i1: jbe u1_end\n", "its condition"),
        ("i1: je u1_end\n", "i1: je b1\n", "leads elsewhere"),
        ("i1: je u1_end\n", "i1: je s1\n", "not an instruction of the loop"),
        ("i1: je u1_end\n", "i1: ", "not an instruction of the loop"),
        ("i2: jne j1\n", "i2: je j1\n", "its condition"),
        ("i2: jne j1\n", "i2: jne c1\n", ""),
        ("x1: jmp u1_end", "x1: jmp b1", "leads elsewhere"),
        ("x1: jmp u1_end", "x1: ret", "leads elsewhere"),
        // Its comparison with the limit.
        ("j1: cmp rdi, qword ptr [UP]\n", "j1: cmp rsi, qword ptr [UP]\n", "does not compare"),
        ("j1: cmp rdi, qword ptr [UP]\n", "j1: cmp rdi, qword ptr [DOWN]\n", ""),
        ("j1: cmp rdi, qword ptr [UP]\n jae s1", "j1: cmp rdi, qword ptr [UP]\n ja s1", "does not compare"),
        ("j1: cmp rdi, qword ptr [UP]\n jae s1", "j1: cmp rdi, qword ptr [UP]\n jae t1", "does not compare"),
        // What is tested.
        ("test dword ptr [r8+T+8], 0x1010101", "test dword ptr [r8+T+8], 0x2020202", "neither checked nor tested"),
        ("test dword ptr [r8+T+8], 0x1010101", "test dword ptr [r8+T+9], 0x1010101", "neither checked nor tested"),
        ("test dword ptr [r8+T+13], 0x1010101", "test dword ptr [r8+T+12], 0x1010101", ""),
        ("test dword ptr [r8+T+13], 0x1010101\n jne t1", "test dword ptr [r8+T+13], 0x1010101\n jne c1", ""),
        ("p1: lea rsp, [rsp-128]", "p1: jmp c1\n lea rsp, [rsp-128]", "set no limit"),
        // Its frame.
        ("j1: cmp", ".cfi_def_cfa_offset 16\nj1: cmp", "the frame's rules"),
        // Whoever continues in it.
        (".long c1, d1, MOVED + f\n", "", "does not go on in the loop"),
        (".long d2, o2, MOVED + m1\n", "", "does not go on in the loop"),
        (".long d2, o2, MOVED + m1\n", ".long d2, o2, MOVED + q1\n", "does not go on in the loop"),
        (".long e1, f1, MOVED + q1\n", ".long e1, f1, MOVED + a2\n", "does not go on in the loop"),
        (".long e1, f1, MOVED + q1\n", ".long e1, f1, keep\n", "does not go on in the loop"),
        (
            ".long c1, d1, MOVED + f\n",
            ".long j1, c1, MOVED + f\n .long c1, d1, MOVED + f\n",
            "no instruction of a copy",
        ),
        (".long f, m1, keep\n", ".long f, m1, keep\n .long m2, u1, MOVED + m2\n", "no instruction of a copy"),
    ]);
    // Steps that the copy does not step onto.
    let mut p = copied();
    p.cold = p.cold.replacen("[rdi+128]", "[rdi+127]", 1);
    p.found("does not step onto");
    p = copied();
    p.cold = p.cold.replacen("[rdi+128]", "[rdi+130]", 1);
    p.found("does not step onto");
}

/// The copy compares with the register that the tests made the limit in.
fn kept(p: &Program) -> Program {
    p.with("j1: cmp rdi, qword ptr [UP]\n", "j1: cmp rdi, r8\n")
}

#[test]
fn finds_registers_that_do_not_hold_the_limit() {
    let p = kept(&copied());
    p.accepted();
    p.finds(&[
        ("j1: cmp rdi, r8\n", "j1: cmp rdi, r9\n", "does not hold the limit"),
        ("j1: cmp rdi, r8\n", "j1: cmp rdi, rdx\n", "does not hold the limit"),
        ("j1: cmp rdi, r8\n", "j1: cmp r8, rdi\n", "does not compare"),
        ("j1: cmp rdi, r8\n", "j1: cmp edi, r8d\n", ""),
        ("j1: cmp rdi, r8\n jae s1", "j1: cmp rdi, r8\n ja s1", "does not compare"),
        ("j1: cmp rdi, r8\n jae s1", "j1: cmp rdi, r8\n jae t1", ""),
        ("[UP], r8\n jmp c1", "[UP], r8\n lea r8, [rdi+256]\n jmp c1", "does not hold the limit"),
        ("[UP], r8\n jmp c1", "[UP], r8\n mov r8, rsi\n jmp c1", "does not hold the limit"),
    ]);
    // Something in the copy changes it: an instruction of the loop, or a check.
    everywhere(&p, ": nop\n", ": mov r8, rdx\n").found("the limit's register changes");
    kept(&with_checks()).found("the limit's register changes");
}

#[test]
fn finds_faults_in_the_checks_of_copies() {
    with_checks().finds(&[
        ("e1: lea r8, [rsi+rcx*4]\n", "e1: lea r8, [rsi+rcx*4+4]\n", "not an instruction of the loop"),
        ("v1: add", "v1: nop\n add", "not an instruction of the loop"),
        ("e2: lea r8, [rsi+rcx*4]\n shr r8, 6\n", "e2: lea r8, [rsi+rcx*4]\n shr r8, 5\n", "is not that of the loop"),
        ("jne s2\nv2", "jne s1\nv2", "is not that of the loop"),
        ("jne s2\nv2", "je s2\nv2", "is not that of the loop"),
    ]);
    // Without the check.
    let mut p = with_checks();
    let check = " lea r8, [rsi+rcx*4]\n shr r8, 6\n test dword ptr [r8+T], 0x101\n jne s2\nv2:";
    assert_eq!(p.cold.matches(check).count(), 1);
    p.cold = p.cold.replace(check, "");
    p.found("neither checked nor tested");
    // Who leaves the copy has not come through the loop's checks.
    let behind = copied().with("u1_end: ret", "u1_end: mov eax, [rdi-1]\n ret");
    behind.found("unchecked access");
}
