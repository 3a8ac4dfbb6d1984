//! Shapes of real code on which the audit and the rewriter did not agree: each is rewritten, and the audit finds nothing open.

use crate::sources;
use blizzard::base::options::{Checks, Options, Poll};
use blizzard::pipeline;
use blizzard::reports::audit::verify_with;
use std::process::Command;

blizzard_test_harness::module! {
    a_frame_that_an_expression_over_rsp_finds_is_found_while_registers_are_spilled,
    a_copy_of_rax_in_front_of_a_check_is_the_programs,
    a_load_from_a_constant_address_of_the_runtime_is_the_programs,
    a_store_to_a_constant_address_of_the_runtime_fails_as_in_the_original,
    instructions_newer_than_the_decoder_are_accesses_like_others,
    nothing_is_known_behind_an_instruction_that_becomes_undefined,
    what_lies_between_two_bytes_a_block_apart_lies_in_the_block_of_one_of_them,
    a_sum_of_two_registers_has_one_name,
    a_test_whether_an_address_is_shared_is_the_programs,
    a_fence_reads_no_register,
    a_frame_that_leaves_its_expression_by_a_register_alone_is_followed,
    overlapping_code_that_goes_on_under_a_springboard_is_followed,
    a_jump_to_the_copy_of_a_jump_is_not_its_copy,
    jumps_that_share_a_read_share_its_table,
    a_move_that_extends_nothing_is_checked,
    a_segment_without_contents_is_compared_with_nothing,
    what_has_an_unknown_extent_is_refused_only_where_it_would_be_checked,
}

/// What the audit finds in a rewritten library of assembly.
fn findings(source: &str) -> Vec<String> {
    let input = sources::assemble(source, &[]);
    let output = pipeline::rewrite_library(&input, "shape", &Options::default()).unwrap();
    let audit = verify_with(&output.bytes, "shape", Some(&input)).unwrap();
    audit.open.iter().map(|f| f.reason.clone()).collect()
}

/// A function; `body` between its frame's begin and end.
fn function(body: &str) -> String {
    format!(".globl f\n.type f, @function\nf: .cfi_startproc\n{body}\nret\n.cfi_endproc")
}

/// Uses all registers but those named, so that they are live in front of it.
fn use_all_but(dead: &[&str]) -> String {
    let all = ["rcx", "rdx", "rbx", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
    all.iter().filter(|r| !dead.contains(r)).map(|r| format!("add rax, {r}\n")).collect()
}

fn a_frame_that_an_expression_over_rsp_finds_is_found_while_registers_are_spilled() {
    // OpenSSL's assembly saves the caller's rsp in its frame: CFA = *(rsp + 160) + 8. Between the spills of a check and their undoing it was
    // looked for too low.
    for escape in ["0x0f,6,0x77,0xa0,1,6,0x23,8", "0x0f,5,0x77,40,6,0x23,8"] {
        let frame = format!(".cfi_escape {escape}");
        let none = use_all_but(&[]);
        assert_eq!(findings(&function(&format!("{frame}\nmov [rdi], rax\n{none}"))), [""; 0], "{escape}");
    }
}

fn a_copy_of_rax_in_front_of_a_check_is_the_programs() {
    // cc1: the copy's register is dead, so the check uses it, and the audit took the copy for the check's beginning.
    let rest = use_all_but(&["rdi"]);
    assert_eq!(findings(&function(&format!("mov rdi, rax\nmovzx eax, word ptr [rax + rax + 16]\n{rest}"))), [""; 0]);
    // Flags are live, so the check saves them through rax.
    let body = format!("cmp rcx, rdx\nmov rdi, rax\nmov rsi, [rcx + 16]\nlahf\n{}", use_all_but(&["rdi"]));
    assert_eq!(findings(&function(&body)), [""; 0]);
}

fn a_test_whether_an_address_is_shared_is_the_programs() {
    // The rewriter itself asks so; its jump leads into no stub.
    for test in ["cmp edx, 0x20\njne 1f", "cmp edx, 0x20\nje 1f"] {
        let body = format!("mov rdx, [rdi]\nshr rdx, 40\n{test}\nmov [rsi], rax\n1:");
        assert_eq!(findings(&function(&body)), [""; 0]);
    }
}

fn a_load_from_a_constant_address_of_the_runtime_is_the_programs() {
    // cc1, where gcc knew that what it compiled is never executed.
    assert_eq!(findings(&function("movabs rax, [0x800000000]")), [""; 0]);
}

fn a_store_to_a_constant_address_of_the_runtime_fails_as_in_the_original() {
    // z3: a null vector's last element. What was checked in front of it says nothing behind it.
    for store in ["movabs [0x7fffffff8], rax", "movabs [0x7fffffff8], al", "movabs [0x800000000], eax"] {
        assert_eq!(findings(&function(&format!("mov [rdi], rax\n{store}\nmov rcx, [rdi]"))), [""; 0]);
    }
}

fn instructions_newer_than_the_decoder_are_accesses_like_others() {
    // cargo's OpenSSL: vpmadd52luq ymm5, ymm1, [rsi + 32]; the address must be read right, too. The assembler may not know it.
    let bytes = ".byte 0xc4,0xe2,0xf5,0xb4,0x6e,0x20";
    assert_eq!(findings(&function(&format!("mov rax, [rdi]\n{bytes}\nmov [rsi + 64], rax"))), [""; 0]);
    // cmpnlexadd [r9 + r10*4 + 16], ecx, edx
    assert_eq!(findings(&function(".byte 0xc4,0x82,0x69,0xef,0x4c,0x91,0x10\nmov [rdi], ecx")), [""; 0]);
}

fn nothing_is_known_behind_an_instruction_that_becomes_undefined() {
    // OpenSSL's PadLock: what stood in front of rep xcryptcbc counted for accesses behind it, where the audit sees no way.
    let body = "lea rax, [rdx - 16]\nmov [rdx], rcx\n.byte 0xf3,0x0f,0xa7,0xd0\nmovdqa xmm0, [rax]\nmovdqa [rdx - 16], xmm0\nmov [rdx], rcx";
    assert_eq!(findings(&function(body)), [""; 0]);
    // rep xsha512.
    assert_eq!(findings(&function("mov rax, [rdx]\n.byte 0xf3,0x0f,0xa6,0xe0\nmov rcx, [rdx]")), [""; 0]);
}

fn what_lies_between_two_bytes_a_block_apart_lies_in_the_block_of_one_of_them() {
    // cargo: behind [r13 + 8] one way has [r13 + 16] and [r13 + 24], the other [r13 + 72]; the check of the first looks at 24 bytes, which the
    // audit took for too many. A byte further, and there may be a block between.
    for other in [72, 73] {
        let body = format!(
            "cmp byte ptr [r13 + 8], 0\nje 1f\ncmp qword ptr [r13 + 16], 0\nje 1f\nmov rdi, [r13 + 24]\ncall r12\n1: cmp byte ptr [r13 + {other}], 0"
        );
        assert_eq!(findings(&function(&body)), [""; 0], "{other}");
    }
}

fn a_sum_of_two_registers_has_one_name() {
    // x264: [rdx + rcx] and [rcx + rdx + 4] had checks of their own, and the audit found the nearer one where the other was claimed.
    let body = "mov eax, [rdx + rcx]\nmov r8d, [rcx + rdx + 4]\nmov r9d, [rdx + rcx + 8]\nmov r10d, [rcx + rdx + 12]\nadd rax, r8\nadd rax, r9\nadd rax, r10";
    assert_eq!(findings(&function(body)), [""; 0]);
    let copied = "mov r11, rdx\nmov rsi, rcx\nmov eax, [r11 + rsi]\nmov r8d, [rcx + rdx + 4]\nmov r9d, [rsi + r11 + 8]";
    assert_eq!(findings(&function(copied)), [""; 0]);
}

fn a_fence_reads_no_register() {
    // libavutil's random seed: lfence has the opcode of xrstor, which reads edx and eax, so rdx seemed live in front of it.
    let body = format!("mov rcx, [rdi]\nlfence\nrdtsc\n{}", use_all_but(&[]));
    assert_eq!(findings(&function(&body)), [""; 0]);
}

fn a_frame_that_leaves_its_expression_by_a_register_alone_is_followed() {
    // libgcrypt's SHA-1: def_cfa_register behind def_cfa_expression, which the standard does not define; nothing of the table was compared.
    let none = use_all_but(&[]);
    let body = format!(
        "push rbx\n.cfi_def_cfa_offset 16\nmov rax, rsp\n.cfi_def_cfa_register rax\n\
        .cfi_escape 0x0f,5,0x77,40,6,0x23,8\nmov [rdi], rax\n.cfi_def_cfa_register rsp\nmov [rsi], rax\n{none}pop rbx\n.cfi_def_cfa_offset 8"
    );
    assert_eq!(findings(&function(&body)), [""; 0]);
}

/// Free Pascal's compiler, where a word of data looks like a pointer between instructions. The way to `g + 2` was not seen: it begins under a springboard,
/// and the new code of what is in front of it ends with a jump, because that of `g + 1` stands between.
fn overlapping_code_that_goes_on_under_a_springboard_is_followed() {
    let first = function(
        "lea rcx, [rip + 2f]\nmov [rdi], rcx\ntest edi, edi\njs 1f + 2\njnp 2f + 1\n1: .byte 0xb8, 0x11, 0x05, 0x22, 0x33",
    );
    // What begins at 1b + 2 ends at g + 2: b8 11 [05 22 33 | 48 b8] 90 ...
    let first = first.replace("\nret\n", "\n");
    let second =
        ".globl g\n.type g, @function\ng: .cfi_startproc\n2: .byte 0x48, 0xb8\n.skip 8, 0x90\nret\n.cfi_endproc";
    assert_eq!(findings(&format!("{first}\n{second}")), [""; 0]);
}

/// fpdoc: what begins inside `mov r12, rax` ends where the jump behind it begins, which stands under a springboard. Its new code ends with a jump to the
/// jump's, and the audit took the one for the other where it came to this way first.
fn a_jump_to_the_copy_of_a_jump_is_not_its_copy() {
    let other = ".globl g\n.type g, @function\ng: .cfi_startproc\n2: .byte 0x49, 0x89, 0xc4\njmp 3f\n.skip 64, 0x90\n3: ret\n.cfi_endproc";
    let body = function("lea rcx, [rip + 2f]\nmov [rdi], rcx\ntest edi, edi\njs 2f + 1");
    for _ in 0..16 {
        assert_eq!(findings(&format!("{body}\n{other}")), [""; 0]);
    }
}

/// fdfind and llvm-exegesis: two jumps through what one instruction read of a table. Each had a new table, of which nobody read the second, so the audit
/// did not know where the first ended.
fn jumps_that_share_a_read_share_its_table() {
    let cases: String = (0..5).map(|k| format!("1{k}: add rax, {k}\nsub rsi, 1\njz 3f\njmp r13\n")).collect();
    let dispatch = "push r13\n.cfi_def_cfa_offset 16\n.cfi_offset r13, -16\nlea rax, [rip + 2f]\nmovsxd rdi, dword ptr [rax + rdi*4]\n\
        add rdi, rax\nmov r13, rdi\njmp rdi";
    let words = |tables: &[&str]| -> String {
        let of = |t: &&str| (0..5).map(|k| format!(".long 1{k}b - {t}b\n")).collect::<String>();
        tables.iter().map(|t| format!("{t}:\n{}", of(t))).collect()
    };
    // Another one follows.
    let other = "lea rcx, [rip + 4f]\nmovsxd rdx, dword ptr [rcx + r8*4]\nadd rdx, rcx\njmp rdx";
    let text =
        function(&format!("{dispatch}\n{cases}3: test rax, rax\njz 5f\n{other}\n5: pop r13\n.cfi_def_cfa_offset 8"));
    assert_eq!(findings(&format!("{text}\n.section .rodata\n{}", words(&["2", "4"]))), [""; 0]);
}

/// The same compiler: `movsxd` without REX.W, which Capstone does not know.
fn a_move_that_extends_nothing_is_checked() {
    assert_eq!(
        findings(&function(
            ".byte 0x63, 0x0f\n.byte 0x44, 0x63, 0x4c, 0xb7, 0x10\n.byte 0x63, 0xd0\n.byte 0x66, 0x63, 0x0f"
        )),
        [""; 0]
    );
}

fn a_segment_without_contents_is_compared_with_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, library) = (folder.path().join("a.s"), folder.path().join("a.so"));
    std::fs::write(&file, ".globl f\n.type f, @function\nf: ret\n.data\n.quad 1\n").unwrap();
    let status = Command::new("cc").args(["-shared", "-nostdlib", "-o"]).arg(&library).arg(&file).status().unwrap();
    assert!(status.success());
    let mut input = std::fs::read(&library).unwrap();
    // The last header, which only tells how large the stack may be or where notes are, becomes an empty PT_LOAD behind all others.
    let count = usize::from(input[56]);
    let at = 64 + (0..count).rfind(|k| matches!(input[64 + 56 * k], 0x51 | 0x04)).unwrap() * 56;
    let header = [1u64 | 4 << 32, 0, 0x10_0000, 0x10_0000, 0, 0, 0x1000];
    for (k, word) in header.iter().enumerate() {
        input[at + 8 * k..at + 8 * k + 8].copy_from_slice(&word.to_le_bytes());
    }
    let output = pipeline::rewrite_library(&input, "shape", &Options::default()).unwrap();
    let audit = verify_with(&output.bytes, "shape", Some(&input)).unwrap();
    assert_eq!(audit.open, []);
}

fn what_has_an_unknown_extent_is_refused_only_where_it_would_be_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (file, library) = (folder.path().join("a.s"), folder.path().join("a.so"));
    let tiles = function("tileloadd tmm0, [rdi + rsi]\ntilestored [rdi + rsi], tmm0");
    std::fs::write(&file, format!(".intel_syntax noprefix\n.text\n{tiles}\n")).unwrap();
    let status = Command::new("cc").args(["-shared", "-nostdlib", "-o"]).arg(&library).arg(&file).status().unwrap();
    assert!(status.success());
    let input = std::fs::read(&library).unwrap();
    let refused = pipeline::rewrite_library(&input, "tiles", &Options::default()).unwrap_err();
    assert_eq!(refused.refusals.len(), 2, "{refused}");
    let none = Options { checks: Checks::None, poll: Poll::None, ..Options::default() };
    let output = pipeline::rewrite_library(&input, "tiles", &none).unwrap();
    let audit = verify_with(&output.bytes, "tiles", Some(&input)).unwrap();
    assert_eq!((&audit.open[..], audit.not_requested), (&[][..], 2));
}
