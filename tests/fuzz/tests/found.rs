//! What the fuzzer has found, by name.

use blizzard::base::options::Checks;
use blizzard_fuzz::machine::Entry;
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

/// Their checks need a second register and change flags, of which these instructions leave ZF as it was.
#[test]
fn bit_strings_keep_the_flags_and_registers_around_them() {
    for prefix in [&[][..], &[0x66], &[0x48]] {
        for opcode in [0xa3, 0xab, 0xb3, 0xbb] {
            // The offset in rax or rcx; at [rsi+60], so that words straddle blocks, too.
            for modrm in [0x46, 0x4e] {
                let bits = [prefix, &[0x0f, opcode, modrm, 60]].concat();
                // cmp rax, rcx; (bit string); sete dl
                becomes(&[&[0x48, 0x39, 0xc8], &bits[..], &[0x0f, 0x94, 0xc2]].concat(), Verdict::Same);
                // (bit string); setc dl; mov r11, [r8]; test r11, r11, which leaves no flag live before
                let dead = [0x0f, 0x92, 0xc2, 0x4d, 0x8b, 0x18, 0x4d, 0x85, 0xdb];
                becomes(&[&bits[..], &dead].concat(), Verdict::Same);
            }
        }
    }
}

/// The audit took the register that a nop names for read.
#[test]
fn nops_read_nothing() {
    // mov rdx, [r8]; nop r14; movzx r14d, byte [rsi]
    becomes(&[0x49, 0x8b, 0x10, 0x4d, 0x0f, 0x1f, 0xc6, 0x44, 0x0f, 0xb6, 0x36], Verdict::Same);
    // mov rdx, [r8]; the reserved nop r12d, ebp; mov rbp, rax
    becomes(&[0x49, 0x8b, 0x10, 0x41, 0x0f, 0x19, 0xec, 0x48, 0x8b, 0xe8], Verdict::Same);
}

/// The other operand is not mapped: the instruction faulted in the gate that performs it, and the handler saw the gate's registers.
#[test]
fn string_instructions_fault_where_they_stand() {
    // lea rsi, [0x20000000]; lea rdi, [rdi-6144]; mov ecx, 64; rep movsb
    let from = [0x48, 0x8d, 0x34, 0x25, 0x00, 0x00, 0x00, 0x20, 0x48, 0x8d, 0xbf, 0x00, 0xe8, 0xff, 0xff];
    becomes(&[&from[..], &[0xb9, 0x40, 0x00, 0x00, 0x00, 0xf3, 0xa4]].concat(), Verdict::SameSignal);
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

/// Capstone takes kxnorb for a cmov: the audit believed that rdx changes between two accesses that share a check.
#[test]
fn mask_instructions_change_no_general_register() {
    // test [rdx+48], r11; kxnorb k3, k1, k4; cmove r14, [rdx+40]
    let code = [0x4c, 0x85, 0x5a, 0x30, 0xc4, 0xe1, 0x75, 0x46, 0xdc, 0x4c, 0x0f, 0x44, 0x72, 0x28];
    let verdict = check(&Sequence::known(&code));
    // A processor without AVX-512 ends both with the same signal.
    assert!(matches!(verdict, Verdict::Same | Verdict::SameSignal), "{verdict:?}");
}

/// The audit took a register for lost where an instruction without memory had an address-size prefix, and a loop's step with it.
#[test]
fn an_address_size_prefix_means_nothing_without_an_address() {
    // again: movzx edx, byte [rsi+16]; addr32 add rsi, 8; sub rbp, 1; jg again
    let step = [0x67, 0x48, 0x83, 0xc6, 0x08];
    let code = [&[0x0f, 0xb6, 0x56, 0x10][..], &step, &[0x48, 0x83, 0xed, 0x01, 0x0f, 0x8f, 0xed, 0xff, 0xff, 0xff]];
    becomes(&code.concat(), Verdict::Same);
}

/// Capstone has these change or read a general register; what the audit says of the others in consequence is excused, with them alone.
#[test]
fn what_follows_from_a_vector_instruction_read_wrong_is_excused() {
    // mov r13, r8; mov [r13], rsp; vpsraw zmm20{k7}, zmm6, xmm0; sete [r13+8]; movsx rbx, r15b
    let shift = [
        &[0x4d, 0x89, 0xc5, 0x49, 0x89, 0xa5, 0, 0, 0, 0, 0x62, 0xe1, 0xcd, 0x4f, 0xe1, 0xe0][..],
        &[0xf2, 0x49, 0x0f, 0x94, 0xbd, 8, 0, 0, 0, 0x49, 0x0f, 0xbe, 0xdf],
    ];
    // mov r10d, [rsp+rcx*4]; vrcp14sd xmm4{k4}{z}, xmm15, xmm11; mov eax, esp
    let reciprocal = [&[0x44, 0x8b, 0x94, 0x8c, 0, 0, 0, 0][..], &[0x62, 0xd2, 0x85, 0xcc, 0x4d, 0xe3, 0x89, 0xe0]];
    for code in [shift.concat(), reciprocal.concat()] {
        let verdict = check(&Sequence::known(&code));
        // A processor without AVX-512 ends both with the same signal.
        assert!(matches!(verdict, Verdict::SameNotAudited | Verdict::SameSignal), "{verdict:?}");
    }
}

/// Capstone does not read these alike in both versions: an access of full code had no counterpart in plain code, and the audit panicked.
#[test]
fn the_audit_reads_on_where_it_finds_no_counterpart_in_plain_code() {
    // prefetchw [rsi]; shld [rdi+40], esp, 74, both with a prefix that means nothing; add [rdi+389], r14d
    let code = [
        &[0xf2, 0x44, 0x0f, 0x0d, 0x5e, 0x00][..],
        &[0xf2, 0x40, 0x0f, 0xa4, 0xa7, 0x28, 0, 0, 0, 0x4a],
        &[0x44, 0x01, 0xb7, 0x85, 0x01, 0, 0],
    ];
    for entry in [Entry::Plain, Entry::Full] {
        let sequence = Sequence::known(&code.concat()).guarded(entry, 0);
        assert_eq!(check(&sequence), Verdict::SameNotAudited);
    }
}

/// The string gate stores by the alias, whatever the tag says, and left out the look at those that `--checks loads` does not test.
#[test]
fn string_instructions_store_with_leave_where_stores_are_not_tested() {
    // mov rax, [r9]; mov ecx, 200; rep movsb; mov ecx, 200; std; rep stosb; cld
    let code = [&[0x49, 0x8b, 0x01, 0xb9, 200, 0, 0, 0, 0xf3, 0xa4][..], &[0xb9, 200, 0, 0, 0, 0xfd, 0xf3, 0xaa, 0xfc]];
    for checks in [Checks::Loads, Checks::Stores, Checks::None] {
        for entry in [Entry::Plain, Entry::Full] {
            let sequence = Sequence::known(&code.concat()).checking(checks).guarded(entry, 0);
            assert_eq!(check(&sequence), Verdict::Same);
        }
    }
}
