//! Checks that ask first, by one bit of the address, whether it can be shared memory: what is accepted, and each way in which shared memory
//! would pass unchecked.

use crate::tests::assembled::covered::covered;
use crate::tests::fixtures::program::{Program, miss};
use crate::tests::fixtures::samples::{TAIL, load};

/// A load whose base has no index, and a store with a formed address.
fn screened() -> Program {
    Program::new(
        "c1: bt rdi, 46
 jnc s1
a1: mov rax, [rdi+8]
c2: lea rcx, [rdi+rsi*8+16]
 bt rcx, 46
 jnc s2
a2: mov [rdi+rsi*8+16], al
out: ret",
        &(format!(
            "s1: lea rax, [rdi+8]
 shr rax, 6
 test dword ptr [rax+T], 0x202
 jz a1
 add rsp, -128
 lea rax, [rdi+8]
 call t1
 jmp a1
s2: shr rcx, 6
 test byte ptr [rcx+T], 1
 jz a2
 {}
",
            miss("lea rax, [rdi+rsi*8+16]", "1 + STORE", "a2")
        ) + TAIL),
    )
}

/// The index has 32 bits, so the base alone is asked.
fn leaning() -> Program {
    leaning_at("[rdi+rcx*8+16]")
}

fn leaning_at(operand: &str) -> Program {
    let stub = format!(
        "s1: lea rax, {operand}
 shr rax, 6
 test dword ptr [rax+T], 0x202
 jz a1
 add rsp, -128
 lea rax, {operand}
 call t1
 jmp a1"
    );
    let hot = format!("mov ecx, esi\nc1: bt rdi, 46\n jnc s1\na1: mov rax, {operand}\nout: ret");
    Program::new(&hot, &format!("{stub}\n{TAIL}"))
}

/// No register is free: the cold code keeps one below rsp.
fn spilled() -> Program {
    Program::new(
        "c1: bt rdi, 46
 jnc s1
a1: add rax, [rdi]
 add rax, rcx
out: ret",
        &format!(
            "s1: mov [rsp-8], rcx
 mov rcx, rdi
 shr rcx, 6
 test dword ptr [rcx+T], 0x202
 mov rcx, [rsp-8]
 jz a1
r1: {}",
            miss("mov rax, rdi", "8 + LOAD", "a1")
        ),
    )
}

/// Both checks of the program have screens.
fn covering() -> Program {
    let test =
        |r: &str, k: u32| format!("c{k}: mov rax, {r}\n shr rax, 6\n test dword ptr [rax+T], 0x202\n jnz s{k}\n");
    let behind = |r: &str, k: u32| {
        let tag = format!("shr rax, 6\n test dword ptr [rax+T], 0x202\n jz a{k}");
        format!("s{k}: mov rax, {r}\n {tag}\n mov rax, {r}\n and")
    };
    [("rdi", 1), ("rcx", 2)].into_iter().fold(covered(), |p, (r, k)| {
        p.with(&test(r, k), &format!("c{k}: bt {r}, 46\n jnc s{k}\n"))
            .with(&format!("s{k}: mov rax, {r}\n and"), &behind(r, k))
    })
}

#[test]
fn accepts_screens() {
    let audit = screened().accepted();
    assert_eq!((audit.checked.loads, audit.checked.stores), (1, 1));
    spilled().accepted();
    // What pushes below the red zone needs nothing of the function.
    spilled()
        .with("s1: mov [rsp-8], rcx", "s1: lea rsp, [rsp-128]\n push rcx")
        .with("mov rcx, [rsp-8]", "pop rcx\n lea rsp, [rsp+128]")
        .with("out: ret", "mov [rsp-24], rax\nout: ret")
        .accepted();
    covering().accepted();
}

#[test]
fn the_program_may_test_that_bit() {
    load().with(" ret", " bt rdi, 46\n jnc out\n nop\nout: ret").accepted();
}

#[test]
fn finds_what_passes_a_screen() {
    screened().finds(&[
        ("bt rdi, 46", "bt rdi, 45", ""),
        ("bt rdi, 46", "bt rdi, 47", ""),
        ("bt rdi, 46", "bt edi, 46", ""),
        ("bt rdi, 46", "bt di, 46", ""),
        ("bt rdi, 46", "bt rdi, rsi", ""),
        ("bt rdi, 46", "btc rdi, 46", ""),
        ("bt rdi, 46", "bt qword ptr [rdi], 46", ""),
        ("bt rdi, 46", "bt rsi, 46", "another address"),
        ("bt rdi, 46", "nop", "unchecked access"),
        ("jnc s1", "jc s1", ""),
        ("jnc s1", "jz s1", ""),
        ("jnc s1", "jbe s1", ""),
        ("jnc s1", "nop", "unchecked access"),
        ("jnc s1", "jnc a1", "unchecked access"),
        ("jnc s1", "jnc s1\n mov rdi, rsi", "another address"),
        ("a1: mov rax, [rdi+8]", "a1: mov rax, [rsi+8]", "another address"),
        ("a1: mov rax, [rdi+8]", "a1: mov rax, [rdi+rsi+8]", "another address"),
        ("a1: mov rax, [rdi+8]", "a1: mov rax, [rdi+16]", "another address|without a gate call"),
        ("a1: mov rax, [rdi+8]", "a1: mov [rdi+8], rcx", "mask"),
        ("a1: mov rax, [rdi+8]", "a1: mov rax, [rdi+8]\n mov rdx, [rdi+8]", "unchecked access"),
        ("a1: mov rax, [rdi+8]", "a1: mov rax, [rdi+8]\n adc rax, 0", "live here"),
        ("a1: mov rax, [rdi+8]", "a1: mov rdx, [rdi+8]", "live here"),
        ("lea rcx, [rdi+rsi*8+16]", "lea rcx, [rdi+rsi*4+16]", "another address"),
        ("lea rcx, [rdi+rsi*8+16]", "lea rcx, [rdi+rsi*8+24]", ""),
        ("lea rcx, [rdi+rsi*8+16]", "lea ecx, [rdi+rsi*8+16]", ""),
        ("bt rcx, 46", "bt rdi, 46", "more than 32 bits"),
        ("bt rcx, 46", "bt rsi, 46", "another address"),
        ("out: ret", "add rax, rcx\nout: ret", "live here"),
        ("out: ret", "jz a1\nout: ret", "lands between"),
        ("out: ret", "jz a2-6\nout: ret", "lands between"),
    ]);
}

#[test]
fn an_index_of_32_bits_may_be_left_out() {
    leaning().accepted();
    for made in [
        "movsxd rcx, esi",
        "movzx ecx, sil",
        "movsx rcx, si",
        "lea ecx, [rsi+4]",
        "mov rcx, -5",
        "mov ecx, [rsp-8]",
        "mov rcx, rsi\n and ecx, esi",
        "sub ecx, esi",
        "mov rcx, rsi\n shr ecx, 3",
        "mov rcx, rsi\n shl ecx",
        "imul ecx, esi, 12",
        "mov rcx, rsi\n neg ecx",
        "mov rcx, rsi\n inc ecx",
        "mov rcx, rsi\n test esi, esi\n cmovs ecx, edx",
        "mov eax, esi\n mov rcx, rax",
        "mov eax, esi\n cdqe\n mov rcx, rax",
        "mov rax, rsi\n add eax, 1000\n mov rcx, rax",
        // On both ways.
        "mov ecx, esi\n test edx, edx\n jz c1\n mov ecx, edx",
        "test edx, edx\n jz 1f\n mov ecx, esi\n jmp c1\n1: mov ecx, edx",
    ] {
        leaning().with("mov ecx, esi", made).accepted();
    }
    // Nothing is scaled, so either may be the base.
    let swapped = leaning_at("[rcx+rdi+16]");
    swapped.with("mov ecx, esi", "mov edi, edi").with("bt rdi, 46", "bt rcx, 46").accepted();
}

#[test]
fn finds_an_index_that_may_lead_anywhere() {
    let far = "more than 32 bits";
    for made in [
        "nop",
        "mov rcx, rsi",
        "mov cl, sil",
        "mov cx, si",
        "mov ecx, esi\n mov rcx, rsi",
        "mov ecx, esi\n add rcx, 1",
        "mov ecx, esi\n not rcx",
        "mov ecx, esi\n shl rcx, 8",
        "mov ecx, esi\n lea rcx, [rcx+rsi]",
        "mov ecx, esi\n xchg rcx, rsi",
        "mov rcx, rsi\n bsf ecx, esi",
        "mov rcx, rsi\n shr ecx, cl",
        "mov rcx, 0x100000000",
        "mov rcx, [rsp-8]",
        "imul rcx, rsi, 12",
        "mov eax, esi\n mov rcx, rdx",
        "mov eax, esi\n add rax, 1000\n mov rcx, rax",
        "mov eax, esi\n cwde\n mov rcx, rdx",
        // On one way only.
        "test edx, edx\n jz c1\n mov ecx, esi",
        "mov ecx, esi\n1: test edx, edx\n jz c1\n mov rcx, rdx",
    ] {
        leaning().with("mov ecx, esi", made).found(far);
    }
    // An unresolved jump may lead to the screen itself.
    let jump = "test edx, edx\n jz 1f\n JUMP\n1: mov ecx, esi";
    let framed = Program { flags: 3, ..leaning() };
    framed.with("mov ecx, esi", &jump.replace("JUMP", "ret")).accepted();
    framed.with("mov ecx, esi", &jump.replace("JUMP", "jmp rdx")).found(far);
    leaning().finds(&[
        ("bt rdi, 46", "bt rcx, 46", "another address"),
        ("bt rdi, 46", "bt rsi, 46", "another address"),
        ("a1: mov rax, [rdi+rcx*8+16]", "a1: mov rax, [rdi+rdx*8+16]", ""),
        ("a1: mov rax, [rdi+rcx*8+16]", "a1: mov rax, [rsi+rcx*8+16]", "another address"),
        ("a1: mov rax, [rdi+rcx*8+16]", "a1: mov rax, [rdi+rcx*4+16]", ""),
        ("s1: lea rax, [rdi+rcx*8+16]", "s1: mov rax, rdi", ""),
    ]);
}

#[test]
fn finds_what_is_wrong_behind_a_screen() {
    screened().finds(&[
        ("s1: lea rax, [rdi+8]", "s1: lea rax, [rdi+16]", "another address"),
        ("s1: lea rax, [rdi+8]", "s1: jmp a1\n lea rax, [rdi+8]", "without a test of its tag"),
        ("s1: lea rax, [rdi+8]", "s1: lea rdx, [rdi+8]", ""),
        ("test dword ptr [rax+T], 0x202", "test dword ptr [rax+T], 0x101", "mask|kind|without a gate call"),
        ("test dword ptr [rax+T], 0x202", "test dword ptr [rax+T], 0x2", "mask"),
        ("test dword ptr [rax+T], 0x202", "test dword ptr [rax+T+1], 0x202", ""),
        ("test dword ptr [rax+T], 0x202", "test byte ptr [rax+T], 2", "one tag"),
        ("test dword ptr [rax+T], 0x202", "bt rdi, 46", ""),
        ("jz a1", "jnz a1", "without a gate call"),
        ("jz a1", "jz a2", ""),
        ("jz a1", "nop", ""),
        ("jz a1", "jmp a1", ""),
        ("call t1\n jmp a1", "nop\n jmp a1", ""),
        ("s2: shr rcx, 6", "s2: shr rsi, 6", ""),
        ("test byte ptr [rcx+T], 1", "test byte ptr [rcx+T], 2", "another address"),
        ("push 1 + STORE", "push 1 + LOAD", ""),
    ]);
    spilled().finds(&[
        (" mov rcx, [rsp-8]\n", "", "rcx"),
        (" mov rcx, [rsp-8]\n jz a1\n", " jz a1\n mov rcx, [rsp-8]\n", "rcx"),
        ("out: ret", "mov [rsp-24], rax\nout: ret", "below rsp"),
    ]);
    covering().finds(&[
        ("push 24 + LOAD", "push 16 + LOAD", ""),
        // A miss of the second check may give away what the first one tested.
        ("keep: .long 16", "keep: .long 24", ""),
        ("c2: bt rcx, 46", "c2: bt rdi, 46", "another address"),
    ]);
}
