//! Loops that test tags once for several iterations: what is accepted, and each fault in what makes it so.

use crate::tests::fixtures::program::Program;

/// Eight bytes at rdi, which steps by eight; tests for 24 iterations.
fn strip() -> Program {
    let mut p = Program::new(
        "e1: mov qword ptr [UP], 0
h1: cmp rdi, qword ptr [UP]
 jae s1
b1: mov rcx, [rdi]
m1: nop
 add rdi, 8
 cmp rdi, rsi
u1: jne h1
u1_end: ret",
        "s1: cmp dword ptr [POLL], 0
 jne p1
 mov r8, rdi
 shr r8, 6
 test dword ptr [r8+T], 0x2020202
 jne n1
 lea r8, [rdi+192]
 mov qword ptr [UP], r8
 jmp b1
n1: mov r8, rdi
 shr r8, 6
 test byte ptr [r8+T], 2
 jne g1
 lea r8, [rdi+7]
 shr r8, 6
 test byte ptr [r8+T], 2
 jne g1
k1: mov qword ptr [UP], 0
 jmp b1
p1: lea rsp, [rsp-128]
 call qword ptr [GATE_POLL]
 lea rsp, [rsp+128]
g1: lea rsp, [rsp-128]
 lea r8, [rip+keep]
 push r8
 call qword ptr [GATE_GROUP]
 lea rsp, [rsp+128]
r1: mov qword ptr [UP], 0
 jmp b1",
    );
    p.rodata = " .balign 16
keep: .long 0, LOAD + 8
 .byte 7, 16, 1, 0
 .long 0"
        .into();
    p.base = "0";
    p.traps = ".long f_old - old_start, f".into();
    p.claims = ".long b1, 0xffffffff, 3".into();
    p.regions = ".long f, m1, keep".into();
    p
}

/// The same with another access in the loop, whose check makes the loop test again when it misses.
fn with_a_check() -> Program {
    let mut p = strip().with(
        "m1: nop\n",
        "m1: mov r9, rcx
 shr r9, 6
 test dword ptr [r9+T], 0x202
 jnz s2
a2: mov rdx, [rcx]
u2: mov r8, [rdi]
u2_end:
",
    );
    p.cold += "
s2: mov r9, rcx
 and r9d, 63
 cmp r9d, 56
 ja r2
 mov r9, rcx
 shr r9, 6
 test byte ptr [r9+T], 2
 jz a2
r2: lea rsp, [rsp-128]
 lea r9, [rip+chain]
 push r9
 call qword ptr [GATE_GROUP]
 lea rsp, [rsp+128]
t2: mov qword ptr [UP], 0
 jmp a2";
    p.rodata += "
chain: .long 0, 8 + LOAD
 .byte 1, 16, 1, 1
 .long 0
 .long 0, 8 + LOAD
 .byte 7, 16, 1, 0
 .long 0";
    p.claims = ".long b1, 0xffffffff, 3\n.long u2, 0xffffffff, 3".into();
    p.regions = ".long f, u2_end, keep".into();
    p
}

#[test]
fn loops_that_test_for_several_iterations_are_accepted() {
    let audit = strip().accepted();
    assert_eq!((audit.covered.get("strip"), audit.strips, audit.checked.loads), (Some(&1), 1, 0));
    let audit = with_a_check().accepted();
    assert_eq!((audit.covered.get("strip"), audit.strips, audit.checked.loads), (Some(&2), 1, 1));
    for (from, to) in [
        // Fewer iterations; wider steps; the other way to step.
        ("[rdi+192]", "[rdi+8]"),
        ("add rdi, 8", "add rdi, 16"),
        ("add rdi, 8", "lea rdi, [rdi+8]"),
        ("b1: mov rcx, [rdi]", "b1: mov ecx, [rdi+4]"),
        // More than what is needed.
        ("0x2020202", "0x1010101"),
    ] {
        let p = strip().with(from, to);
        if to.contains("ecx") {
            p.with("keep: .long 0, LOAD + 8", "keep: .long 4, LOAD + 4").accepted();
        } else {
            p.accepted();
        }
    }
    strip().with("add rdi, 8", "add rdi, 2").with("[rdi+192]", "[rdi+186]").accepted();
    strip().with("add rdi, 8", "add rdi, 2").with("[rdi+192]", "[rdi+188]").found("do not make accessible");
    // Without polls there need be none.
    let mut p = strip()
        .with("s1: cmp dword ptr [POLL], 0\n jne p1\n", "s1: ")
        .with("p1: lea rsp, [rsp-128]\n call qword ptr [GATE_POLL]\n lea rsp, [rsp+128]\n", "");
    p.found("do not poll");
    p.flags = 3;
    p.accepted();
}

/// The same loop; where rdi points to private memory, 128 iterations are let go without a look at tags.
fn screened() -> Program {
    strip().with(
        " mov r8, rdi\n shr r8, 6\n test dword",
        " bt rdi, 46
 jae w1
 lea r8, [rdi+1024]
 mov qword ptr [UP], r8
z1: jmp b1
w1: mov r8, rdi\n shr r8, 6\n test dword",
    )
}

#[test]
fn a_private_address_tells_of_all_that_is_near() {
    screened().accepted();
    for (from, to) in [
        ("[rdi+1024]", "[rdi+8]"),
        ("bt rdi, 46", "lea r8, [rdi+16]\n bt r8, 46"),
        // Stores, too.
        ("bt rdi, 46", "mov r8, rdi\n bt r8, 46"),
    ] {
        screened().with(from, to).accepted();
    }
    // However wide the steps.
    let wide = screened().with("add rdi, 8", "add rdi, 3840").with("[rdi+1024]", "[rdi+491520]");
    wide.with("[rdi+192]", "[rdi+3840]").accepted();
    screened().finds(&[
        ("bt rdi, 46", "bt rdi, 45", "unexpected"),
        ("bt rdi, 46", "bt edi, 14", "unexpected"),
        ("bt rdi, 46", "bt rsi, 46", "do not make accessible"),
        ("bt rdi, 46", "lea r8, [rdi+rsi]\n bt r8, 46", "do not make accessible"),
        ("bt rdi, 46\n jae w1\n", "", "do not make accessible"),
        ("jae w1", "jb w1", "unexpected"),
        ("jae w1", "jae b1", ""),
        ("jae w1", "jae z1", "set no limit"),
        ("[rdi+1024]", "[rdi+1020]", "does not step onto"),
        ("[rdi+1024]", "[rdi+1032]", "does not step onto"),
        ("[rdi+1024]", "[rsi+1024]", "not a place"),
        ("z1: jmp b1", "z1: jmp m1", "not the loop's body"),
    ]);
}

#[test]
fn loops_that_count_down_are_accepted() {
    let mut p = strip();
    p.text = p
        .text
        .replace("[UP], 0", "[DOWN], -1")
        .replace("[UP]", "[DOWN]")
        .replace("jae", "jbe")
        .replace("add rdi", "sub rdi");
    p.cold = p.cold.replace("[UP], 0", "[DOWN], -1").replace("[UP]", "[DOWN]").replace("rdi+192", "rdi-192");
    p.found("do not make accessible");
    let p = p.with(" mov r8, rdi\n shr r8, 6\n test dword", " lea r8, [rdi-184]\n shr r8, 6\n test dword");
    p.accepted();
    p.with("jbe s1", "jae s1").found("no branch");
    p.with("k1: mov qword ptr [DOWN], -1", "k1: mov qword ptr [DOWN], 0").found("not a place");
}

#[test]
fn registers_may_be_saved_and_tags_tested_further_on() {
    let mut p = strip().with(
        " mov r8, rdi\n shr r8, 6\n test dword",
        " lea rsp, [rsp-128]\n push r8\n mov r8, rdi\n shr r8, 6\n test dword",
    );
    p.found("to be undone");
    p.cold = p.cold.replace("\n jmp b1\nn1", "\n pop r8\n lea rsp, [rsp+128]\n jmp b1\nn1");
    p.cold = p.cold.replace("k1: mov qword ptr [UP], 0\n", "k1: mov qword ptr [UP], 0\n pop r8\n lea rsp, [rsp+128]\n");
    p.cold = p.cold.replace(" jne g1\nk1", " jne v1\nk1").replace(" jne g1\n", " jne v1\n");
    p.cold = p.cold.replace("p1: ", "v1: pop r8\n lea rsp, [rsp+128]\n jmp g1\np1: ");
    p.accepted();
    p.with("v1: pop r8\n lea rsp, [rsp+128]\n", "v1: pop rdx\n lea rsp, [rsp+128]\n").found("live here");
    // Steps of 768 bytes: twelve tags.
    let wide = strip().with("add rdi, 8", "add rdi, 768").with("[rdi+192]", "[rdi+1536]");
    wide.found("do not make accessible");
    let two = wide.with(" jne n1\n", " jne n1\n test dword ptr [r8+T+12], 0x2020202\n jne n1\n");
    two.accepted();
    two.with("T+12", "T+9").found("do not make accessible");
    two.with("T+12", "T+13").found("do not make accessible");
    two.with("T+12", "T+61").found("unexpected instruction");
}

#[test]
fn finds_faults_in_the_tests_of_loops() {
    strip().finds(&[
        // The audit was content with the comparison of the doorbell alone.
        ("call qword ptr [GATE_POLL]", "nop", "doorbell"),
        ("call qword ptr [GATE_POLL]", "call qword ptr [GATE_GROUP]", ""),
        // Where the loop is entered, and its head.
        ("e1: mov qword ptr [UP], 0\n", "e1: ", "not taken back"),
        ("e1: mov qword ptr [UP], 0", "e1: mov qword ptr [UP], 8", "not taken back"),
        ("e1: mov qword ptr [UP], 0", "e1: mov qword ptr [DOWN], 0", "not taken back"),
        ("e1: mov qword ptr [UP], 0", "e1: mov dword ptr [UP], 0", "not taken back"),
        ("jae s1", "ja s1", "no branch"),
        ("jae s1", "jbe s1", "no branch"),
        ("cmp rdi, qword ptr [UP]", "cmp rsi, qword ptr [UP]", "not a place"),
        ("u1: jne h1", "u1: jne b1", "does not lead back"),
        ("u1: jne h1", "u1: jne e1", "does not lead back"),
        ("u1_end: ret", "u1_end: test esi, esi\n jz h1\n ret", "lands between"),
        ("u1_end: ret", "u1_end: test esi, esi\n jz b1\n ret", "claimed to be covered"),
        ("u1_end: ret", "u1_end: test esi, esi\n jz m1\n ret", "claimed to be covered"),
        // What is tested.
        ("[rdi+192]", "[rdi+200]", "do not make accessible"),
        ("[rdi+192]", "[rdi+190]", "does not step onto"),
        ("[rdi+192]", "[rdi]", "does not step onto"),
        ("[rdi+192]", "[rdi-8]", "does not step onto"),
        ("[rdi+192]", "[rsi+192]", "not a place"),
        ("[rdi+192]", "[rdi+rcx+192]", "not a place"),
        ("0x2020202", "0x202", "do not make accessible"),
        ("0x2020202", "0x2020200", "do not make accessible"),
        (
            " mov r8, rdi\n shr r8, 6\n test dword",
            " lea r8, [rdi+1]\n shr r8, 6\n test dword",
            "do not make accessible",
        ),
        (" mov r8, rdi\n shr r8, 6\n test dword", " mov r8, rsi\n shr r8, 6\n test dword", "do not make accessible"),
        ("jne n1", "je n1", "unexpected"),
        ("[rdi+7]", "[rdi+6]", "do not make accessible"),
        ("n1: mov r8, rdi", "n1: mov r8, rsi", "do not make accessible"),
        ("n1: mov r8, rdi\n shr r8, 6\n test byte ptr [r8+T], 2\n jne g1\n", "n1: ", "do not make accessible"),
        ("k1: mov qword ptr [UP], 0\n", "k1: ", "set no limit"),
        ("k1: mov qword ptr [UP], 0", "k1: mov qword ptr [DOWN], -1", "another limit"),
        ("k1: mov qword ptr [UP], 0", "k1: mov qword ptr [UP], -1", "not a place"),
        ("k1: mov qword ptr [UP], 0", "k1: lea r8, [rdi+16]\n mov qword ptr [UP], r8", "do not make accessible"),
        // The runtime.
        ("r1: mov qword ptr [UP], 0\n", "r1: ", "set no limit"),
        ("r1: mov qword ptr [UP], 0", "r1: lea r8, [rdi+16]\n mov qword ptr [UP], r8", "do not make accessible"),
        (" push r8\n call qword ptr [GATE_GROUP]", " push r8\n call qword ptr [GATE_VSIB]", "call the gate"),
        ("g1: lea rsp, [rsp-128]", "g1: lea rsp, [rsp-64]", "red zone"),
        (" .byte 7, 16, 1, 0", " .byte 6, 16, 1, 0", "whoever continues"),
        (" .byte 7, 16, 1, 0", " .byte 8, 16, 1, 0", "changed at the gate"),
        ("keep: .long 0, LOAD + 8", "keep: .long 0, LOAD + 4", "whoever continues"),
        ("keep: .long 0, LOAD + 8", "keep: .long 0, LOAD + 16", "what nothing needs"),
        ("r1: mov qword ptr [UP], 0\n jmp b1", "r1: mov qword ptr [UP], 0\n jmp m1", "not the loop's body"),
        // The access.
        ("b1: mov rcx, [rdi]", "b1: mov [rdi], rcx", "whoever continues"),
        ("b1: mov rcx, [rdi]", "b1: movups xmm0, [rdi]", "claimed to be covered"),
        ("b1: mov rcx, [rdi]", "b1: mov rcx, [rsi]", "claimed to be covered"),
        ("b1: mov rcx, [rdi]", "b1: mov rcx, [rdi+8]", "claimed to be covered"),
        (".long b1, 0xffffffff, 3", "", "unchecked access"),
        (".long b1, 0xffffffff", ".long b1, s1", "another check covers it"),
        (".long f, m1, keep", "", "whoever continues"),
        // What is live.
        ("lea r8, [rip+keep]\n push r8", "lea rdx, [rip+keep]\n push rdx", "live here"),
    ]);
}

#[test]
fn finds_what_changes_in_loops() {
    for (from, to, words) in [
        ("add rdi, 8", "add rdi, rsi", "changes"),
        ("add rdi, 8", "add edi, 8", "changes"),
        ("add rdi, 8", "add rdi, 7", "does not step onto"),
        ("add rdi, 8", "sub rdi, 8", "does not step onto"),
        ("add rdi, 8", "mov rdi, rsi", "does not move by a constant"),
        ("add rdi, 8", "nop", "does not step onto"),
        ("m1: nop", "m1: mov rdi, rcx", "changes"),
        ("m1: nop", "m1: call f", "does not lead back"),
        ("m1: nop", "m1: jz u1_end", "does not lead back"),
        ("m1: nop", "m1: syscall", "control leaves"),
        ("m1: nop", "m1: int3", "control leaves"),
        // Another poll.
        ("m1: nop", "m1: cmp dword ptr [POLL], 0\n jne zs", "the limit stays"),
    ] {
        let mut p = strip().with(from, to);
        if to.contains("zs") {
            p.cold += "\nzs: lea rsp, [rsp-128]\n call qword ptr [GATE_POLL]\n lea rsp, [rsp+128]\n jmp zb";
            p = p.with(" add rdi, 8", "zb: add rdi, 8");
        }
        p.found(words);
    }
    for (from, to, words) in [
        ("t2: mov qword ptr [UP], 0\n", "t2: ", "the limit stays"),
        ("t2: mov qword ptr [UP], 0", "t2: mov qword ptr [DOWN], -1", "the limit stays"),
        ("t2: mov qword ptr [UP], 0", "t2: mov qword ptr [UP], 1", "sets the limit"),
        ("t2: mov qword ptr [UP], 0", "t2: mov qword ptr [UP], rdi", "sets the limit"),
        ("r2: lea rsp, [rsp-128]", "r2: mov qword ptr [UP], 0\n lea rsp, [rsp-128]", ""),
        ("m1: mov r9, rcx\n", "m1: mov rdi, rcx\n", "claimed to be covered"),
        (" .byte 1, 16, 1, 1", " .byte 1, 16, 1, 0", "does not acquire"),
    ] {
        let p = with_a_check().with(from, to);
        if words.is_empty() {
            p.accepted();
            p.with("t2: mov qword ptr [UP], 0\n", "t2: ").found("the limit stays");
        } else {
            p.found(words);
        }
    }
}
