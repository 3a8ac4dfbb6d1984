//! Accesses that other checks cover: what is accepted, and each fault in what makes it so.

use crate::tests::fixtures::program::{Program, miss};

/// A wide check at `a1` covers `u1`, too; the check in between acquires what `u1` needs when it misses.
pub fn covered() -> Program {
    let mut p = Program::new(
        "c1: mov rax, rdi
 shr rax, 6
 test dword ptr [rax+T], 0x202
 jnz s1
a1: mov rcx, [rdi]
c2: mov rax, rcx
 shr rax, 6
 test dword ptr [rax+T], 0x202
 jnz s2
a2: mov rdx, [rcx]
m1: nop
u1: mov rax, [rdi+16]
u1_end: ret",
        &format!(
            "s1: mov rax, rdi
 and eax, 63
 cmp eax, 64 - 24
 ja r1
 mov rax, rdi
 shr rax, 6
 test byte ptr [rax+T], 2
 jz a1
r1: {}
s2: mov rax, rcx
 and eax, 63
 cmp eax, 56
 ja r2
 mov rax, rcx
 shr rax, 6
 test byte ptr [rax+T], 2
 jz a2
r2: lea rsp, [rsp-128]
 lea rax, [rip+chain]
 push rax
 call qword ptr [GATE_GROUP]
 lea rsp, [rsp+128]
 jmp a2",
            miss("mov rax, rdi", "24 + LOAD", "a1")
        ),
    );
    p.rodata = " .balign 16
chain: .long 0, 8 + LOAD
 .byte 1, 16, 1, 1
 .long 0
keep: .long 16, LOAD + 8
 .byte 7, 16, 1, 0
 .long 0"
        .into();
    // Chains lie in another section than the code: all addresses are absolute.
    p.base = "0";
    p.traps = ".long f_old - old_start, f".into();
    p.claims = ".long u1, a1, 1".into();
    p.regions = ".long c2, u1_end, keep".into();
    p
}

#[test]
fn a_covered_access_is_accepted_and_counted() {
    let audit = covered().accepted();
    assert_eq!(audit.covered.get("merged"), Some(&1));
    assert_eq!((audit.checked.loads, audit.polls), (2, 0));
    // Known by another reason, or from several checks.
    let audit = covered().with("a1, 1", "0xffffffff, 2").accepted();
    assert_eq!(audit.covered.get("dominated"), Some(&1));
}

#[test]
fn registers_that_change_by_constants_are_followed() {
    for (between, access) in [
        ("add rdi, 8", "mov rax, [rdi+8]"),
        ("sub rdi, 8", "mov rax, [rdi+24]"),
        ("lea rsi, [rdi+4]", "mov rax, [rsi+12]"),
        ("mov r9, rdi", "mov rax, [r9+16]"),
        ("lea rdi, [rdi-100]", "mov rax, [rdi+116]"),
    ] {
        let moved = covered()
            .with("m1: nop", &format!("m1: {between}"))
            .with("u1: mov rax, [rdi+16]", &format!("u1: {access}"));
        // Behind the move the region's chain must name the address as it is then.
        let (base, disp) = match access {
            "mov rax, [rdi+8]" => (7, 8),
            "mov rax, [rdi+24]" => (7, 24),
            "mov rax, [rsi+12]" => (6, 12),
            "mov rax, [r9+16]" => (9, 16),
            _ => (7, 116),
        };
        moved.found("whoever continues");
        let mut p = moved.with(
            " .balign 16\n",
            &format!(" .balign 16\nthen: .long {disp}, LOAD + 8\n .byte {base}, 16, 1, 0\n .long 0\n"),
        );
        p.regions = ".long c2, u1, keep
 .long u1, u1_end, then"
            .into();
        p.accepted();
    }
}

#[test]
fn finds_faults_in_claims() {
    covered().finds(&[
        (".long u1, a1, 1", "", "unchecked access"),
        ("a1, 1", "a1, 4", "unknown reason"),
        ("a1, 1", "a2, 1", "another check covers it"),
        ("a1, 1", "c2, 1", "another check covers it"),
        (".long u1", ".long m1", "no ordinary access"),
        (".long u1", ".long u1 + 1", "no instruction begins"),
        (".long u1", ".long c2", "inserted code"),
        ("a1, 1", "a1, 1\n .long u1, a1, 1", "claimed twice"),
    ]);
}

#[test]
fn finds_faults_in_what_covers() {
    covered().finds(&[
        // The covering check is gone, of another kind, of another address, or too narrow.
        ("c1: mov rax, rdi\n shr rax, 6\n test dword ptr [rax+T], 0x202\n jnz s1\n", "", "claimed to be covered"),
        ("c1: mov rax, rdi", "c1: mov rax, rsi", "another address"),
        ("push 24 + LOAD", "push 16 + LOAD", "without a gate call"),
        ("cmp eax, 64 - 24", "cmp eax, 64 - 16", "without a gate call"),
        ("cmp eax, 64 - 24", "cmp eax, 64 - 32", "without a gate call"),
        ("push 24 + LOAD", "push 24 + STORE", "kind"),
        ("push 24 + LOAD", "push 24 + LOAD + MASKED", "masking"),
        ("u1: mov rax, [rdi+16]", "u1: mov rax, [rdi+17]", "claimed to be covered"),
        ("u1: mov rax, [rdi+16]", "u1: mov rax, [rdi-1]", "claimed to be covered"),
        ("u1: mov rax, [rdi+16]", "u1: movups xmm0, [rdi+16]", "claimed to be covered"),
        ("u1: mov rax, [rdi+16]", "u1: mov rax, [rsi+16]", "claimed to be covered"),
        ("u1: mov rax, [rdi+16]", "u1: mov rax, [rdi+rcx+16]", "claimed to be covered"),
        ("u1: mov rax, [rdi+16]", "u1: mov [rdi+16], rax", "claimed to be covered"),
        ("u1: mov rax, [rdi+16]", "u1: mov eax, [edi+16]", "no ordinary access"),
        // Nothing needs what is acquired.
        ("u1: mov rax, [rdi+16]", "u1: mov rax, [rdi+8]", "certainly executed"),
        ("m1: nop", "m1: jz u1_end", "certainly executed"),
    ]);
}

/// What a stub asked the gate for on the way that was looked at last counted for all its ways.
#[test]
fn finds_a_way_of_a_stub_that_asks_for_less() {
    let less = format!(
        "r3: {}
s2: mov rax, rcx",
        miss("mov rax, rdi", "16 + LOAD", "a1")
    );
    let two = covered().with("s2: mov rax, rcx", &less).with("ja r1", "ja r3");
    two.found("descriptor says");
    two.with("push 16 + LOAD", "push 8 + LOAD").with("push 24 + LOAD", "push 16 + LOAD").found("descriptor says");
    two.with("push 16 + LOAD", "push 24 + LOAD").accepted();
}

#[test]
fn finds_what_may_take_blocks_away() {
    covered().finds(&[
        ("m1: nop", "m1: call f", "claimed to be covered"),
        ("m1: nop", "m1: call rcx", "claimed to be covered"),
        ("m1: nop", "m1: int3", "control leaves"),
        ("m1: nop", "m1: syscall", "control leaves"),
        ("m1: nop", "m1: mov rdi, rsi", "claimed to be covered"),
        ("m1: nop", "m1: mov edi, edi", "changes"),
        ("m1: nop", "m1: pop rdi", "changes"),
        ("m1: nop", "m1: cmovz rdi, rsi", "changes"),
        ("m1: nop", "m1: add rdi, rsi", "changes"),
        ("m1: nop", "m1: imul rdi, rdi, 3", "changes"),
        ("m1: nop", "m1: xchg rdi, rsi", "changes"),
        ("a2: mov rdx, [rcx]", "a2: mov rdi, [rcx]", "changes"),
        ("a1: mov rcx, [rdi]", "a1: mov rdi, [rdi]", "claimed to be covered"),
        // The check in between.
        ("call qword ptr [GATE_GROUP]", "call qword ptr [GATE_MISS]", "rsp changed"),
        ("lea rax, [rip+chain]", "lea rax, [rip+keep]", "another address"),
        ("lea rax, [rip+chain]", "lea rax, [rip+chain+8]", "chain"),
        ("lea rax, [rip+chain]", "lea rax, [rdi]", "no chain"),
        (" .byte 1, 16, 1, 1", " .byte 1, 16, 1, 0", "does not acquire"),
        (" .byte 1, 16, 1, 1", " .byte 2, 16, 1, 1", "another address"),
        (" .byte 1, 16, 1, 1", " .byte 4, 16, 1, 1", "damaged"),
        (" .byte 1, 16, 1, 1", " .byte 1, 16, 3, 1", "damaged"),
        ("chain: .long 0, 8 + LOAD", "chain: .long 0, 4 + LOAD", "descriptor says"),
        ("chain: .long 0, 8 + LOAD", "chain: .long 0, 8 + STORE", "kind"),
        ("chain: .long 0, 8 + LOAD", "chain: .long 8, 8 + LOAD", "another address"),
        ("keep: .long 16, LOAD + 8", "keep: .long 16, LOAD + 7", "does not acquire"),
        ("keep: .long 16, LOAD + 8", "keep: .long 17, LOAD + 8", "does not acquire"),
        ("keep: .long 16, LOAD + 8", "keep: .long 16, 8", "damaged"),
        (" .byte 7, 16, 1, 0", " .byte 6, 16, 1, 0", "does not acquire"),
        (" .byte 7, 16, 1, 0", " .byte 7, 1, 1, 0", "does not acquire"),
        (" .byte 7, 16, 1, 0", " .byte 7, 16, 1, 1", "chain"),
        // Whoever continues in between.
        (".long c2, u1_end", ".long a2, u1_end", "whoever continues"),
        ("u1_end, keep", "u1, keep", "whoever continues"),
        (".long c2, u1_end, keep", "", "whoever continues"),
        ("u1_end, keep", "c2, keep", "out of order"),
    ]);
    // Polls, and checks of other kinds.
    for sequence in
        ["p1: cmp dword ptr [POLL], 0\n jne zs\n", "p1: mov rax, rdi\n shr rax, 40\n cmp eax, 0x20\n je zs\n"]
    {
        let mut p = covered();
        let access = if sequence.contains("POLL") { "" } else { "sa: fxsave [rdi]\n" };
        p.text = p.text.replace("m1: nop\n", &format!("m1: nop\n{sequence}{access}"));
        p.cold += "\nzs: lea rsp, [rsp-128]\n call qword ptr [GATE_POLL]\n lea rsp, [rsp+128]\n jmp u1";
        if !access.is_empty() {
            let (head, _) = p.cold.split_once("\nzs:").expect("just added");
            p.cold = format!(
                "{head}\nzs: lea rsp, [rsp-128]\n push rax\n mov rax, rdi\n xchg [rsp], rax\n push 512 + STORE\n call qword ptr [GATE_MISS]\n lea rsp, [rsp+128]\n jmp sa"
            );
        }
        p.found("the runtime may be entered");
    }
}

/// The covered access names another register, which holds the same.
#[test]
fn finds_registers_that_do_not_hold_the_same() {
    let alike = covered()
        .with("c1: mov rax, rdi", "mov r9, rdi\nc1: mov rax, rdi")
        .with("u1: mov rax, [rdi+16]", "u1: mov rax, [r9+16]")
        .with(" .byte 1, 16, 1, 1", " .byte 1, 16, 1, 1 # own")
        .with(" .byte 7, 16, 1, 0", " .byte 9, 16, 1, 0");
    alike.accepted();
    let moved = |to: &str| alike.with("mov r9, rdi\n", &format!("{to}\n"));
    moved("add r9, 1\n mov r9, rdi").accepted();
    moved("lea r9, [rdi+8]\n sub r9, 8").accepted();
    moved("sub rdi, 8\n mov r9, rdi\n add rdi, 8\n add r9, 8").accepted();
    for to in [
        "mov r9, rsi",
        "mov r9d, edi",
        "cmovz r9, rdi",
        "lea r9, [rdi+1]",
        "lea r9, [rdi-1]",
        "lea r9, [rdi+rsi]",
        "mov r9, rdi\n imul r9, r9, 1",
        "mov r9, rdi\n add rdi, 8",
        "mov r9, rdi\n pop rdi",
        "mov r9, rdi\n jz 1f\n mov r9, rsi\n1: nop",
        "mov r9, rdi\nagain: nop",
    ] {
        let p = moved(to);
        let p = if to.contains("again") { p.with("u1_end: ret", "u1_end: jz again\nlast: ret") } else { p };
        p.found("");
    }
}

/// The check at `a1` is as wide as what both ways touch behind the branch.
#[test]
fn finds_what_is_not_touched_on_every_way() {
    let mut both = covered()
        .with("m1: nop", "m1: test esi, esi\n jz v1")
        .with("u1_end: ret", "u1_end: ret\nv1: mov rax, [rdi+16]\nv1_end: ret");
    both.claims += "\n .long v1, a1, 2";
    both.regions += "\n .long v1, v1_end, keep";
    both.accepted();
    for (from, to) in [
        ("v1: mov rax, [rdi+16]", "v1: mov rax, [rdi+15]"),
        ("v1: mov rax, [rdi+16]", "v1: mov rax, [rsi+16]"),
        ("v1: mov rax, [rdi+16]", "v1: lea rax, [rdi+16]"),
        ("v1: mov rax, [rdi+16]", "v1: jmp m1\n mov rax, [rdi+16]"),
        ("v1: mov rax, [rdi+16]", "v1: call f\n mov rax, [rdi+16]"),
        ("v1: mov rax, [rdi+16]", "v1: mov rax, [rdi+600]"),
        ("jz v1", "jz m2\n jmp u1\nm2: jp u1_end\n jmp v1"),
    ] {
        both.with(from, to).found("certainly executed");
    }
}

#[test]
fn finds_ways_into_the_middle() {
    // A jump from within the way is a way like any other; one from outside comes without a check.
    let around = covered().with("u1_end: ret", "u1_end: test esi, esi\n jz c2\nlast: ret");
    // The loop that it makes has no poll, which would be between check and access.
    let around = Program { flags: 3, ..around };
    around.found("whoever continues");
    around.with("u1_end, keep", "last, keep").accepted();
    covered().with("u1_end: ret", "u1_end: ret\n test esi, esi\n jz m1\n ret").found("claimed to be covered");
    // An old address leads into the middle.
    let mut p = covered();
    p.old += "\ng_old: jmp m1\n .fill 3, 1, 0xcc";
    p.traps += "\n.long g_old - old_start, m1";
    p.found("control may come from elsewhere");
    // Found by a trap only, the access is made possible by the region.
    let mut p = covered();
    p.old += "\ng_old: .fill 8, 1, 0xcc";
    p.traps += "\n.long g_old - old_start, m1";
    p.accepted();
    p.with("c2, u1_end", "u1, u1_end").found("whoever continues");
}
