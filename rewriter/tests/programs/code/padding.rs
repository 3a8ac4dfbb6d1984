//! Padding that no way leads to, and circles that no known way leads into: what is known behind them.

use crate::sources;
use blizzard::base::options::Options;
use blizzard::pipeline;
use blizzard::reports::audit::verify_with;
use blizzard::reports::inspect::inspect;

blizzard_test_harness::module! {
    a_frame_is_known_behind_padding,
    what_may_be_entered_in_unknown_ways_has_its_say,
    a_circle_that_nothing_leads_into_knows_no_frame,
    a_check_in_front_of_a_branch_counts_behind_the_padding_of_its_target,
}

/// Accesses of `f`: checked ones, and those that another check covers. The audit has to agree.
fn checks(body: &str) -> (u64, u64) {
    let frame = format!(".globl f\n.type f, @function\nf: .cfi_startproc\n{body}\n.cfi_endproc\n.size f, .-f");
    let input = sources::assemble(&frame, &[]);
    let output = pipeline::rewrite_library(&input, "shape", &Options::tests()).unwrap();
    let audit = verify_with(&output.bytes, "shape", Some(&input)).unwrap();
    assert!(audit.open.is_empty(), "{body}: {:?}", audit.open);
    let found = inspect(&input, "shape", &Options::tests()).unwrap();
    (found.accesses.checked_loads + found.accesses.checked_stores, found.optimiser.merged + found.optimiser.dominated)
}

/// A loop that is entered at its condition, with something in front of its aligned head, where no control comes.
fn frame_loop(between: &str) -> String {
    format!(
        "push rbp\nmov rbp, rsp\nsub rsp, 32\nxor ecx, ecx\njmp 2f\n{between}\n1: mov rax, [rbp - 8]\nadd [rbp - 16], rax\ninc ecx\n\
         2: cmp ecx, edi\njl 1b\nleave\nret"
    )
}

fn a_frame_is_known_behind_padding() {
    for padding in [".p2align 4", ".p2align 5", "nop", "nopw [rax + rax]\nnop", ""] {
        assert_eq!(checks(&frame_loop(padding)).0, 0, "{padding}");
    }
}

fn what_may_be_entered_in_unknown_ways_has_its_say() {
    // Not padding: it may be what something leads to that is not seen.
    for code in ["xor edx, edx", "nop\nxor edx, edx\nnop", "endbr64\nnop", "ud2\nnop"] {
        assert_ne!(checks(&frame_loop(code)).0, 0, "{code}");
    }
}

fn a_circle_that_nothing_leads_into_knows_no_frame() {
    // Each of its blocks has one before it; all of them once passed for stack addresses, since nothing said otherwise.
    let circle = "push rbp\nmov rbp, rsp\nleave\nret\n1: mov rax, [rbx + 8]\nadd rcx, rax\ncmp rcx, rdi\nje 2f\ninc rcx\n2: jmp 1b";
    assert_eq!(checks(circle).0, 1);
}

fn a_check_in_front_of_a_branch_counts_behind_the_padding_of_its_target() {
    let body = |between: &str| {
        format!("mov rax, [rdi]\ntest esi, esi\njnz 1f\nret\n{between}\n1: sub rax, 5\nadd rax, [rdi]\nret")
    };
    for padding in [".p2align 4\nnop", ""] {
        assert_eq!(checks(&body(padding)).1, 1, "{padding}");
    }
}
