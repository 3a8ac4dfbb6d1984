//! What the fuzzer has found, by name.

use blizzard_fuzz::sequence::{Sequence, Verdict, check};

fn becomes(code: &[u8], verdict: Verdict) {
    assert_eq!(check(&Sequence::known(code)), verdict);
}

/// Capstone has vphsubd read a general register.
#[test]
fn vector_instructions_read_no_general_register_that_they_do_not_name() {
    // mov r11, [r8]; vphsubd ymm9, ymm12, ymm1; movzx r10d, byte [rsi-8]
    becomes(
        &[0x4d, 0x8b, 0x18, 0xc4, 0x62, 0x9d, 0x06, 0xc9, 0x44, 0x0f, 0xb6, 0x96, 0xf8, 0xff, 0xff, 0xff],
        Verdict::SameNotAudited,
    );
}

/// The rewriter took OF, SF and AF for dead in front of fucomip, the audit did not.
#[test]
fn float_comparisons_are_not_relied_on_to_clear_flags() {
    // and edx, edi; movups xmm6, [rsi]; fucomip st, st(4)
    becomes(&[0x23, 0xd7, 0x0f, 0x10, 0x36, 0xdf, 0xec], Verdict::Same);
}

/// It was exempt, as any access by a 32-bit address; but the offset comes on top.
#[test]
fn bit_strings_at_32_bit_addresses_are_refused() {
    // bts [r8d+16], rcx
    becomes(&[0x67, 0x49, 0x0f, 0xab, 0x48, 0x10], Verdict::Refused);
}

/// The cold stub overwrote an offset in rax before it used it: the gate was told of another address.
#[test]
fn bit_strings_may_have_their_offset_in_rax() {
    // bts [rsi+16], rcx; lock bts [rsi+16], eax
    becomes(&[0x48, 0x0f, 0xab, 0x4e, 0x10, 0xf0, 0x0f, 0xab, 0x46, 0x10], Verdict::Same);
}

/// The audit took the register that a nop names for read.
#[test]
fn nops_read_nothing() {
    // mov rdx, [r8]; nop r14; movzx r14d, byte [rsi]
    becomes(&[0x49, 0x8b, 0x10, 0x4d, 0x0f, 0x1f, 0xc6, 0x44, 0x0f, 0xb6, 0x36], Verdict::Same);
}

/// The audit took rax for live in front of a lods, which overwrites it, and rcx in front of a stos that is not repeated.
#[test]
fn string_instructions_read_what_they_use() {
    // mov rdx, [r8]; lodsq; mov edx, [r9]; lodsd; mov rdx, [r8]; stosq; mov rcx, [r8]
    becomes(
        &[0x49, 0x8b, 0x10, 0x48, 0xad, 0x41, 0x8b, 0x11, 0xad, 0x49, 0x8b, 0x10, 0x48, 0xab, 0x49, 0x8b, 0x08],
        Verdict::Same,
    );
}
