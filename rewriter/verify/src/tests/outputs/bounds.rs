//! Where jump tables end: a copy that ends while the original could go on needs a proof from the jump's own code.

use crate::Audit;
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::compiled;
use blizzard::base::options::Options;
use blizzard::pipeline;

/// Behind the table of three entries; leads out of the program.
const BEHIND: [u8; 4] = 0x7f65_4321u32.to_le_bytes();

/// A function whose table of three entries is reached through `index`, which leaves the index in rdi.
fn program(index: &str) -> Vec<u8> {
    let source = format!(
        ".intel_syntax noprefix
 .globl _start, f
 .text
_start: mov edi, 1
 call f
 mov eax, 60
 syscall
 .balign 16
f: .cfi_startproc
 sub rsp, 24
 .cfi_adjust_cfa_offset 24
 mov [rsp], edi
{index}
 lea rdx, [rip+1f]
 movsxd rax, dword ptr [rdx+rdi*4]
 add rax, rdx
 jmp rax
2: mov edi, 5
3: add rsp, 24
 .cfi_adjust_cfa_offset -24
 ret
 .cfi_adjust_cfa_offset 24
4: ud2
5:
 .cfi_endproc
 .balign 16
g: .cfi_startproc
 ret
 .cfi_endproc
 .section .rodata
 .balign 4
1: .long 2b - 1b, 5b - 1b, 3b - 1b, 0x{:x}
",
        u32::from_le_bytes(BEHIND)
    );
    compiled("cc", "p.s", &source, &["-nostdlib", "-static-pie", "-Wl,--eh-frame-hdr"])
}

/// The audit of the rewritten program, once against the original, and once against one in which the word behind the table leads to code like the first entry.
fn audits(index: &str) -> [Audit; 2] {
    let original = program(index);
    let output = pipeline::rewrite(&original, "p", &Options::tests()).expect("rewrite").bytes;
    let at = original.windows(4).position(|w| w == BEHIND).expect("the word behind the table");
    let mut longer = original.clone();
    longer.copy_within(at - 12..at - 8, at);
    [original, longer].map(|input| verify_with(&output, "p", Some(&input)).expect("verify"))
}

fn unproven(audit: &Audit) -> usize {
    audit.open.iter().filter(|f| f.reason.contains("nothing proves that its jump table ends")).count()
}

#[test]
fn an_end_that_nothing_proves_is_found() {
    for index in
        ["", "mov edi, edi", "cmp edi, 2\n ja 3f\n mov edi, [rsp+8]", "movzx edi, byte ptr [rsp]", "cmp edi, 3\n ja 3f"]
    {
        let [same, longer] = audits(index);
        assert!(same.is_clean(), "{index}: {same}");
        assert_eq!(same.jump_tables, 1, "{index}");
        assert_eq!(unproven(&longer), 1, "{index}: {longer}");
    }
}

#[test]
fn an_end_that_the_code_proves_is_accepted() {
    for index in [
        "mov edi, edi\n cmp edi, 2\n ja 3f",
        "mov edi, edi\n cmp rdi, 2\n ja 3f",
        "mov edi, edi\n cmp edi, 3\n jae 3f",
        "mov eax, [rsp]\n cmp eax, 2\n jbe 6f\n jmp 3f\n6: mov edi, eax",
        "cmp dword ptr [rsp], 2\n ja 3f\n mov edi, [rsp]",
        "movzx eax, byte ptr [rsp]\n cmp al, 2\n ja 3f\n movzx edi, al",
    ] {
        let [same, longer] = audits(index);
        assert!(same.is_clean(), "{index}: {same}");
        assert_eq!((unproven(&longer), longer.proven_tables), (0, 1), "{index}: {longer}");
    }
}
