//! Every cycle of the code polls, or is found.

use super::Program;

const POLL: &str = "c1: cmp dword ptr [POLL], 0\n jne s1\na1:";
const STUB: &str = "s1: lea rsp, [rsp-128]\n call qword ptr [GATE_POLL]\n lea rsp, [rsp+128]\n jmp a1";

/// `body` with a poll where it says so.
fn polling(body: &str) -> Program {
    Program::new(&body.replace("<poll>", POLL), STUB)
}

fn not_polling(body: &str) -> Program {
    Program::new(&body.replace("<poll>", "c1:"), "")
}

#[test]
fn a_cycle_needs_a_poll_anywhere_on_it() {
    for body in [
        // At the head, and in front of the jump back.
        "<poll> dec rdi\n jnz c1\n ret",
        "b: dec rdi\n jz out\n <poll> jmp b\nout: ret",
        // Two loops with a part in common.
        "b: dec rdi\n<poll> dec rsi\n jz b\n dec rdx\n jnz c1\n ret",
        // Recursion: at the entry, before the call.
        "<poll> dec rdi\n jz out\n call f\nout: ret",
        "dec rdi\n jz out\n <poll> call f\nout: ret",
        // In a circle of functions.
        "dec rdi\n jz out\n call g\nout: ret\ng: <poll> jmp f",
    ] {
        assert_eq!(polling(body).accepted().polls, 1, "{body}");
        not_polling(body).found("without a poll on the way");
    }
}

#[test]
fn a_poll_beside_a_cycle_does_not_count() {
    for body in [
        // In front of the loop, in one arm, in an inner loop that may not be entered.
        "<poll> nop\nb: dec rdi\n jnz b\n ret",
        "b: test rsi, rsi\n jz m\n <poll> nop\nm: dec rdi\n jnz b\n ret",
        "b: test rsi, rsi\n jz m\n <poll> dec rsi\n jnz c1\nm: dec rdi\n jnz b\n ret",
        // Behind the call that recurs.
        "dec rdi\n jz out\n call f\n <poll> nop\nout: ret",
    ] {
        polling(body).found("without a poll on the way");
        // Where nobody waits, nobody is kept waiting.
        Program { flags: 3, ..polling(body) }.accepted();
    }
}

#[test]
fn what_leads_back_and_is_no_cycle_needs_none() {
    for body in ["jmp g\nb: ret\ng: nop\n jmp b", "jmp g\nb: ret\ng: dec rdi\n jz b\n ret", "call g\n ret\ng: ret"] {
        not_polling(body).accepted();
    }
}

#[test]
fn a_jump_to_an_unknown_place_needs_one() {
    polling("<poll> jmp rax").accepted();
    not_polling("c2: jmp rax").found("a jump to an unknown place has no poll");
}
