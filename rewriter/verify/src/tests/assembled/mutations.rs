//! Faults planted one at a time; each must be found, for the right reason.

use crate::tests::fixtures::samples::{exempt, flags_rax_live, lanes, large, load, poll, shared_tail, spilled, string};

#[test]
fn finds_faults_in_the_hot_sequence() {
    let c = load();
    c.finds(&[
        ("test dword ptr [rax+T], 0x202", "test dword ptr [rax+T], 0x101", "mask|without a gate call"),
        ("test dword ptr [rax+T], 0x202", "test dword ptr [rax+T], 0x2", "mask"),
        ("test dword ptr [rax+T], 0x202", "test dword ptr [rax+T], 0x20202", "mask"),
        ("test dword ptr [rax+T], 0x202", "test byte ptr [rax+T], 2", "one tag"),
        ("test dword ptr [rax+T], 0x202", "test dword ptr [rax+T+1], 0x202", "unchecked access"),
        ("test dword ptr [rax+T], 0x202", "test dword ptr [rcx+T], 0x202", "no check sequence"),
        ("test dword ptr [rax+T], 0x202", "test dword ptr [rax+rcx+T], 0x202", "unchecked access"),
        ("test dword ptr [rax+T], 0x202", "test dword ptr gs:[rax+T], 0x202", "no check sequence"),
        ("test dword ptr [rax+T], 0x202", "nop", "unchecked access"),
        ("c1: lea rax, [rdi+8]", "c1: lea rax, [rdi]", "another address|without a gate call"),
        ("c1: lea rax, [rdi+8]", "c1: lea rax, [rsi+8]", "another address"),
        ("c1: lea rax, [rdi+8]", "c1: lea rax, [rdi+rdi+8]", "another address"),
        ("c1: lea rax, [rdi+8]", "c1: lea eax, [rdi+8]", "no check sequence"),
        ("c1: lea rax, [rdi+8]\n shr rax, 6", "c1: lea rax, [rdi+8]\n shr rax, 7", "no check sequence"),
        ("c1: lea rax, [rdi+8]\n shr rax, 6", "c1: lea rax, [rdi+8]\n shr eax, 6", "no check sequence"),
        ("c1: lea rax, [rdi+8]\n shr rax, 6", "c1: lea rax, [rdi+8]\n sar rax, 6", "no check sequence"),
        ("jnz s1", "jz s1", "no check sequence"),
        ("jnz s1", "jc s1", "no check sequence"),
        ("jnz s1", "nop", ""),
        ("jnz s1", "jnz a1", "does not lead to a cold stub"),
        ("jnz s1", "jnz s1+1", ""),
        ("a1: mov rax, [rdi+8]", "a1: mov rax, [rdi+16]", "another address|without a gate call"),
        ("a1: mov rax, [rdi+8]", "a1: mov rax, [rdi+8]\n mov rdx, [rdi+8]", "unchecked access"),
        ("a1: mov rax, [rdi+8]", "a1: mov [rdi+8], rcx", "mask"),
        ("a1: mov rax, [rdi+8]", "a1: add [rdi+8], rcx", "mask"),
        ("a1: mov rax, [rdi+8]", "a1: movups xmm0, [rdi+8]", "without a gate call"),
        ("jnz s1\n", "jnz s1\n mov rdi, rsi\n", "another address"),
        ("jnz s1\n", "jnz s1\n add rdi, 8\n", ""),
        ("a1: mov rax, [rdi+8]", "a1: mov rcx, [rdi+8]\n add rax, rcx", "live here"),
        ("a1: mov rax, [rdi+8]", "a1: mov rcx, [rdi+8]", "live here"),
        ("a1: mov rax, [rdi+8]", "a1: mov rax, [rdi+8]\n jc c1", "live here"),
        ("a1: mov rax, [rdi+8]", "a1: mov rax, [rdi+8]\n adc rax, 0", "live here"),
        ("a1: mov rax, [rdi+8]", "a1: mov al, [rdi+8]", "certainly executed"),
        (" ret", " jz a1\n ret", "lands between"),
        (" ret", " jz c1+4\n ret", "lands between"),
        (" ret", " jz c1+1\n ret", "no instruction begins"),
    ]);
}

#[test]
fn finds_faults_in_the_cold_stub() {
    let c = load();
    c.finds(&[
        // The gate has made the access possible: to repeat the check is not necessary.
        ("jmp c1", "jmp a1", "accept"),
        ("jmp c1", "jmp c1+4", "wrong place"),
        ("jmp c1", "jmp f+0x100", ""),
        ("jmp c1", "ret", ""),
        ("jz a1", "jnz a1", "without a gate call"),
        ("jz a1", "jz a1+4", ""),
        ("cmp eax, 56", "cmp eax, 57", "without a gate call"),
        ("cmp eax, 56", "cmp eax, 55", "straddles"),
        ("and eax, 63", "and eax, 31", "unexpected instruction"),
        ("ja r1", "jb r1", "unexpected branch"),
        ("test byte ptr [rax+T], 2", "test byte ptr gs:[rax+T], 2", "unexpected instruction"),
        ("test byte ptr [rax+T], 2", "test byte ptr [rax+T], 1", "without a gate call"),
        ("test byte ptr [rax+T], 2", "test byte ptr [rax+T+1], 2", "without a gate call"),
        ("test byte ptr [rax+T], 2", "test byte ptr [rax+T+61], 2", "unexpected"),
        ("push 8 + LOAD", "push 4 + LOAD", "descriptor says"),
        ("push 8 + LOAD", "push 16 + LOAD", "descriptor says|straddles"),
        ("push 8 + LOAD", "push 8 + STORE", "kind"),
        ("push 8 + LOAD", "push 8 + LOAD + STORE", "kind"),
        ("push 8 + LOAD", "push 8 + LOAD + MASKED", "masking"),
        ("push 8 + LOAD", "push rcx", "no descriptor"),
        ("call qword ptr [GATE_MISS]", "call qword ptr [GATE_POLL]", ""),
        ("call qword ptr [GATE_MISS]", "call qword ptr [GATE_MISS+4]", "unknown gate"),
        ("call qword ptr [GATE_MISS]", "nop", "rsp changed"),
        ("lea rsp, [rsp+128]", "lea rsp, [rsp+120]", "rsp changed"),
        ("lea rsp, [rsp+128]", "nop", "rsp changed"),
        ("r1: lea rsp, [rsp-128]", "r1: lea rsp, [rsp-64]", "red zone"),
        ("r1: lea rsp, [rsp-128]", "r1: nop", "red zone"),
        (" xchg [rsp], rax", " nop", "another address"),
        (" push rax\n lea rax, [rdi+8]", " push rax\n lea rax, [rdi]", "another address"),
        (" push rax\n lea rax, [rdi+8]", " push rax\n lea rcx, [rdi+8]", "another address"),
        ("r1: lea rsp, [rsp-128]", "r1: mov rbx, rax\n lea rsp, [rsp-128]", "rbx, live"),
        ("r1: lea rsp, [rsp-128]", "r1: xor ebx, ebx\n lea rsp, [rsp-128]", "unexpected instruction"),
        // Without the straddle test the stub would repeat a check that cannot pass.
        (
            "s1: lea rax, [rdi+8]
 and eax, 63
 cmp eax, 56
 ja r1
 lea rax, [rdi+8]
 shr rax, 6
 test byte ptr [rax+T], 2
 jz a1
",
            "s1:\n",
            "straddles",
        ),
    ]);
}

#[test]
fn finds_faults_in_a_shared_tail() {
    let c = shared_tail();
    c.accepted();
    c.finds(&[
        ("s1: add rsp, -128", "s1: add rsp, -64", "red zone"),
        ("s1: add rsp, -128", "s1: nop", "red zone"),
        ("s1: add rsp, -128", "s1: add rsp, -136", ""),
        ("lea rax, [rdi+8]\n call t1\n jmp a1", "lea rax, [rdi+16]\n call t1\n jmp a1", ""),
        ("lea rax, [rdi+8]\n call t1\n jmp a1", "lea rcx, [rdi+8]\n call t1\n jmp a1", ""),
        ("call t1\n jmp a1", "call t1+1\n jmp a1", ""),
        ("call t1\n jmp a1", "call s2\n jmp a1", ""),
        ("call t1\n jmp a1", "call f\n jmp a1", "no cold instruction"),
        ("call t1\n jmp a1", "jmp t1\n jmp a1", ""),
        ("call t1\n jmp a1", "call t1\n jmp a2", ""),
        ("call t1\n jmp a1", "nop\n jmp a1", ""),
        ("t1: push rax", "t1: push rcx", ""),
        ("cmp eax, 56", "cmp eax, 57", "without a gate call"),
        ("ja r1", "jb r1", "unexpected branch"),
        ("jnz r1", "jz r1", ""),
        ("test byte ptr [rax+T], 2", "test byte ptr [rax+T], 1", "without a gate call"),
        ("jnz r1\n pop rax\n ret 128", "jnz r1\n pop rax\n ret 120", "rsp changed"),
        ("jnz r1\n pop rax\n ret 128", "jnz r1\n ret 128", ""),
        ("jnz r1\n pop rax\n ret 128", "jnz r1\n pop rbx\n ret 128", "rbx"),
        ("push 8 + LOAD", "push 8 + STORE", "kind"),
        ("push 8 + LOAD", "push 4 + LOAD", "descriptor says"),
        ("call qword ptr [GATE_MISS]\n ret 128", "nop\n ret 128", ""),
        ("call qword ptr [GATE_MISS]\n ret 128", "call qword ptr [GATE_MISS]\n ret", "rsp changed"),
        ("call qword ptr [GATE_MISS]\n ret 128", "call qword ptr [GATE_MISS]\n ret 136", "rsp changed"),
    ]);
}

#[test]
fn finds_flags_and_registers_not_put_back() {
    let c = flags_rax_live();
    c.finds(&[
        ("jnz s1\n add al, 0x7f\n", "jnz s1\n", "live here"),
        ("jnz s1\n add al, 0x7f\n sahf\n mov rax, r8\n", "jnz s1\n", "live here"),
        ("jnz s1\n add al, 0x7f\n sahf\n mov rax, r8\n", "jnz s1\n add al, 0x7f\n sahf\n", "live here"),
        ("jnz s1\n add al, 0x7f\n sahf\n mov rax, r8\n", "jnz s1\n add al, 0x7f\n mov rax, r8\n", "live here"),
        ("jnz s1\n add al, 0x7f\n sahf\n mov rax, r8\n", "jnz s1\n sahf\n add al, 0x7f\n mov rax, r8\n", "live here"),
        ("s1: add al, 0x7f\n", "s1:\n", "live here"),
        ("s1: add al, 0x7f\n sahf\n", "s1:\n", "live here"),
        ("s1: add al, 0x7f\n sahf\n mov rax, r8\n", "s1: add al, 0x7f\n sahf\n", "live here"),
        (" seto al\n", "", ""),
        (" lahf\n", "", ""),
        (" lahf\n seto al\n shr r9, 6\n", " shr r9, 6\n lahf\n seto al\n", "live here"),
        (" mov r8, rax\n", " mov r8, rcx\n", ""),
        ("jg out", "jo out", "accept"),
        (" seto al\n", " setb al\n", ""),
    ]);
    let c = spilled();
    c.finds(&[
        ("jnz s1\n pop rcx\n", "jnz s1\n", ""),
        ("jnz s1\n pop rcx\n", "jnz s1\n pop rdx\n", "live here"),
        ("c1: lea rsp, [rsp-128]\n", "c1: lea rsp, [rsp-120]\n", ""),
        ("c1: lea rsp, [rsp-128]\n push rcx\n", "c1: push rcx\n lea rsp, [rsp-128]\n", ""),
        ("push rcx\n lea rcx, [rsp+rdi+136]", "push rcx\n lea rcx, [rsp+rdi+128]", "another address"),
        ("push rcx\n lea rcx, [rsp+rdi+136]", "push rcx\n lea rcx, [rsp+rdi]", "another address"),
        ("s1: pop rcx\n", "s1:\n", ""),
        ("lea rax, [rsp+rdi+136]\n", "lea rax, [rsp+rdi]\n", "another address"),
    ]);
}

#[test]
fn finds_faults_in_other_forms() {
    for (c, from, to, words) in [
        (string(), "c1: mov rax, rdi", "c1: mov rax, rdx", "not range-tested"),
        (string(), " mov rax, rsi", " mov rax, rdi", "not range-tested"),
        (string(), "push 0x1b8", "push 0x198", "string descriptor"),
        (string(), "push 0x1b8", "push 0x1d8", "string descriptor"),
        (string(), "push 0x1b8", "push 0x1b0", "string descriptor"),
        (string(), "push 0x1b8", "push 0x138", "string descriptor"),
        (string(), "jmp b1", "jmp a1", "wrong place"),
        (string(), "lea rsp, [rsp+128]", "lea rsp, [rsp+120]\n lea rsp, [rsp+8]", "find the string instruction"),
        (string(), "b1: mov eax, 0", "b1: add eax, 1", "live here"),
        (string(), "mov eax, 0", "mov eax, 0\n setc al", "live here"),
        (
            string(),
            "c1: mov rax, rdi\n shr rax, 40\n cmp rax, 0x20",
            "c1: mov rax, rdi\n shr rax, 40\n cmp rax, 0x21",
            "",
        ),
        (large(), "push 512 + STORE", "push 512 + LOAD", "kind"),
        (large(), "push 512 + STORE", "push 64 + STORE", "descriptor says"),
        (large(), "c1: lea rcx, [rdi+64]", "c1: lea rcx, [rdi]", "not range-tested"),
        (large(), "jmp a1", "jmp c1", "wrong place"),
        (lanes(), "[NODES], 1", "[NODES], 2", "do not fit"),
        (lanes(), "[NODES], 1", "[NODES+4], 1", ""),
        (lanes(), ".long 16", ".long 12", "displacement"),
        (lanes(), ".byte 7, 2, 4", ".byte 6, 2, 4", "base"),
        (lanes(), "4, 8, 4, 0", "4, 8, 8, 0", "element layout"),
        (lanes(), "0, 3, 1, 128", "0, 3, 2, 128", "kind"),
        (lanes(), "0, 3, 1, 128", "0, 3, 1, 120", "stack adjustment"),
        (poll(), "c1: lahf\n seto al", "c1: lahf", "live here"),
        (poll(), "[POLL], 0", "[POLL+4], 0", ""),
        (poll(), "call qword ptr [GATE_POLL]", "call qword ptr [GATE_VSIB]", ""),
        (exempt(), "mov rbp, rsp", "mov rbp, rdi", "unchecked"),
        (exempt(), "mov rcx, [rbp-8]", "mov rcx, [rbx]", "accept"),
        (exempt(), " mov rcx, [rbp-8]", " mov rcx, [rdx]", "unchecked"),
        (exempt(), "add rbx, 8", "add rbx, rdi", "unchecked"),
        (exempt(), "mov rax, [rbx+16]", "mov rax, [rbx+rdi]", "unchecked"),
        (exempt(), "f2: mov rax, [rsp+8]", "f2: mov rax, [rbp+8]", "unchecked"),
        (exempt(), "mov rdx, [word]", "mov rdx, [word+rdi]", "unchecked"),
        (exempt(), "mov rdx, [word]", "movabs rax, [0x200000000000]", "unchecked"),
        (exempt(), "lea rdx, [rcx+rcx]", "xlat", "unchecked xlat"),
        (exempt(), "lea rdx, [rcx+rcx]", "bts [rsp], rax", "bit-string"),
        (exempt(), "lea rdx, [rcx+rcx]", "maskmovdqu xmm0, xmm1", "masked store"),
        (exempt(), "lea rdx, [rcx+rcx]", "movdir64b rdx, [rsp]", "64-byte move"),
        (exempt(), "lea rdx, [rcx+rcx]", "stosb", "unchecked string"),
        (exempt(), "lea rdx, [rcx+rcx]", "push [rcx]", "unchecked"),
        (exempt(), "lea rdx, [rcx+rcx]", "call [rcx]", "unchecked"),
        (exempt(), "lea rdx, [rcx+rcx]", "fnsave [rcx]", "108 bytes"),
        (exempt(), "lea rdx, [rcx+rcx]", "cmpxchg16b [rcx]", "read-modify-write"),
        (exempt(), "lea rdx, [rcx+rcx]", "xsave [rcx]", "unchecked"),
        (exempt(), "lea rdx, [rcx+rcx]", "inc dword ptr [POLL]", "context pages"),
        (exempt(), "lea rdx, [rcx+rcx]", ".byte 0x06", "do not decode"),
        (exempt(), "lea rdx, [rcx+rcx]", "jmp f_old", "old code"),
    ] {
        c.finds(&[(from, to, words)]);
    }
}

#[test]
fn finds_faults_outside_the_new_code() {
    let c = load();
    c.finds(&[
        ("f_old: jmp f", "f_old: jmp c1+4", "springboard"),
        ("f_old: jmp f", "f_old: jmp a1", "springboard"),
        ("f_old: jmp f\n", "f_old: ret\n", "still there"),
        ("f - text_start", "a1 - text_start", "trap-map entry"),
        ("f - text_start", "f + 1 - text_start", "trap-map entry"),
        (".long f_old - old_start, f - text_start", ".long 1, f - text_start\n.long 0, f - text_start", "not sorted"),
        (".long f_old - old_start", ".long f_old + 0x10000 - old_start", "outside old code"),
    ]);
    let mut p = load();
    p.cold += "\nx: mov rax, [rbx]\n ret";
    p.found("no recognised check");
    let mut p = load();
    p.text += "\n jmp r1";
    p.found("cold code that is no part");
}
