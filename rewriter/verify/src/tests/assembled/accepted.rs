//! Each form of check, poll and exempt access of `DESIGN.md` is accepted.

use crate::tests::fixtures::program::Program;
use crate::tests::fixtures::samples::{
    byte_store, exempt, flags_rax_dead, flags_rax_live, lanes, large, load, poll, spilled, string,
};

#[test]
fn accepts_a_load_of_two_blocks() {
    let audit = load().accepted();
    assert_eq!((audit.checked.loads, audit.checked.two_tags, audit.checked.stores), (1, 1, 0));
}

#[test]
fn accepts_a_byte_store() {
    let audit = byte_store().accepted();
    assert_eq!((audit.checked.stores, audit.checked.one_tag), (1, 1));
}

#[test]
fn accepts_flags_kept_in_a_dead_rax() {
    flags_rax_dead().accepted();
}

#[test]
fn accepts_flags_kept_with_rax_saved() {
    flags_rax_live().accepted();
}

#[test]
fn accepts_a_spilled_scratch_register() {
    let audit = spilled().accepted();
    assert_eq!((audit.checked.loads, audit.exempt["stack"]), (1, 1));
}

#[test]
fn accepts_string_large_and_lane_tests() {
    assert_eq!(string().accepted().checked.strings, 1);
    assert_eq!(large().accepted().checked.large, 1);
    assert_eq!(lanes().accepted().checked.lanes, 1);
}

#[test]
fn accepts_a_poll() {
    assert_eq!(poll().accepted().polls, 1);
    poll().with("jmp a1", "jmp c1").accepted();
    let counted = "c1: inc qword ptr [COUNTERS+16]\n cmp dword ptr [POLL], 0\n jne s1\na1: dec rdi\n jnz c1\n ret";
    let stub = "s1: lea rsp, [rsp-128]\n call qword ptr [GATE_POLL]\n lea rsp, [rsp+128]\n jmp a1";
    assert_eq!(Program::new(counted, stub).accepted().polls, 1);
}

#[test]
fn accepts_each_exempt_class() {
    let audit = exempt().accepted();
    let n = |k: &str| audit.exempt.get(k).copied().unwrap_or(0);
    assert_eq!((n("stack"), n("global"), n("tls"), n("addr32"), n("no-access")), (4, 2, 2, 1, 4), "{audit}");
    assert_eq!(n("implicit-stack"), 5);
}

#[test]
fn counts_what_was_not_asked_for() {
    let mut p = byte_store().with(
        "c1: mov rcx, rdi
 shr rcx, 6
 test byte ptr [rcx+T], 1
 jnz s1
",
        "",
    );
    p.cold.clear();
    p.found("unchecked access");
    p.flags = 1;
    assert_eq!(p.accepted().not_requested, 1);
}
