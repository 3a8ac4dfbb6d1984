//! Shapes of real code on which the audit and the rewriter did not agree: each is rewritten, and the audit finds nothing open.

use blizzard::options::Options;
use blizzard::pipeline;
use blizzard::verify::verify_with;
use std::process::Command;

/// What the audit finds in a rewritten library of assembly.
fn findings(source: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let (file, library) = (folder.path().join("a.s"), folder.path().join("a.so"));
    std::fs::write(&file, format!(".intel_syntax noprefix\n.text\n{source}\n")).unwrap();
    let status = Command::new("gcc").args(["-shared", "-nostdlib", "-o"]).arg(&library).arg(&file).status().unwrap();
    assert!(status.success(), "{source}");
    let input = std::fs::read(&library).unwrap();
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

#[test]
fn a_frame_that_an_expression_over_rsp_finds_is_found_while_registers_are_spilled() {
    // OpenSSL's assembly saves the caller's rsp in its frame: CFA = *(rsp + 160) + 8. Between the spills of a check and their undoing it was
    // looked for too low.
    for escape in ["0x0f,6,0x77,0xa0,1,6,0x23,8", "0x0f,5,0x77,40,6,0x23,8"] {
        let frame = format!(".cfi_escape {escape}");
        let none = use_all_but(&[]);
        assert_eq!(findings(&function(&format!("{frame}\nmov [rdi], rax\n{none}"))), [""; 0], "{escape}");
    }
}

#[test]
fn a_copy_of_rax_in_front_of_a_check_is_the_programs() {
    // cc1: the copy's register is dead, so the check uses it, and the audit took the copy for the check's beginning.
    let rest = use_all_but(&["rdi"]);
    assert_eq!(findings(&function(&format!("mov rdi, rax\nmovzx eax, word ptr [rax + rax + 16]\n{rest}"))), [""; 0]);
    // Flags are live, so the check saves them through rax.
    let body = format!("cmp rcx, rdx\nmov rdi, rax\nmov rsi, [rcx + 16]\nlahf\n{}", use_all_but(&["rdi"]));
    assert_eq!(findings(&function(&body)), [""; 0]);
}

#[test]
fn a_load_from_a_constant_address_of_the_runtime_is_the_programs() {
    // cc1, where gcc knew that what it compiled is never executed. A store there might open what no node may touch.
    assert_eq!(findings(&function("movabs rax, [0x800000000]")), [""; 0]);
    assert_eq!(findings(&function("movabs [0x800000000], rax")).len(), 1);
}

#[test]
fn instructions_newer_than_the_decoder_are_accesses_like_others() {
    // cargo's OpenSSL: vpmadd52luq ymm5, ymm1, [rsi + 32]; the address must be read right, too. The assembler may not know it.
    let bytes = ".byte 0xc4,0xe2,0xf5,0xb4,0x6e,0x20";
    assert_eq!(findings(&function(&format!("mov rax, [rdi]\n{bytes}\nmov [rsi + 64], rax"))), [""; 0]);
    // cmpnlexadd [r9 + r10*4 + 16], ecx, edx
    assert_eq!(findings(&function(".byte 0xc4,0x82,0x69,0xef,0x4c,0x91,0x10\nmov [rdi], ecx")), [""; 0]);
}

#[test]
fn nothing_is_known_behind_an_instruction_that_becomes_undefined() {
    // OpenSSL's PadLock: what stood in front of rep xcryptcbc counted for accesses behind it, where the audit sees no way.
    let body = "lea rax, [rdx - 16]\nmov [rdx], rcx\n.byte 0xf3,0x0f,0xa7,0xd0\nmovdqa xmm0, [rax]\nmovdqa [rdx - 16], xmm0\nmov [rdx], rcx";
    assert_eq!(findings(&function(body)), [""; 0]);
    // rep xsha512.
    assert_eq!(findings(&function("mov rax, [rdx]\n.byte 0xf3,0x0f,0xa6,0xe0\nmov rcx, [rdx]")), [""; 0]);
}

#[test]
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

#[test]
fn a_sum_of_two_registers_has_one_name() {
    // x264: [rdx + rcx] and [rcx + rdx + 4] had checks of their own, and the audit found the nearer one where the other was claimed.
    let body = "mov eax, [rdx + rcx]\nmov r8d, [rcx + rdx + 4]\nmov r9d, [rdx + rcx + 8]\nmov r10d, [rcx + rdx + 12]\nadd rax, r8\nadd rax, r9\nadd rax, r10";
    assert_eq!(findings(&function(body)), [""; 0]);
    let copied = "mov r11, rdx\nmov rsi, rcx\nmov eax, [r11 + rsi]\nmov r8d, [rcx + rdx + 4]\nmov r9d, [rsi + r11 + 8]";
    assert_eq!(findings(&function(copied)), [""; 0]);
}

#[test]
fn a_fence_reads_no_register() {
    // libavutil's random seed: lfence has the opcode of xrstor, which reads edx and eax, so rdx seemed live in front of it.
    let body = format!("mov rcx, [rdi]\nlfence\nrdtsc\n{}", use_all_but(&[]));
    assert_eq!(findings(&function(&body)), [""; 0]);
}

#[test]
fn a_frame_that_leaves_its_expression_by_a_register_alone_is_followed() {
    // libgcrypt's SHA-1: def_cfa_register behind def_cfa_expression, which the standard does not define; nothing of the table was compared.
    let none = use_all_but(&[]);
    let body = format!(
        "push rbx\n.cfi_def_cfa_offset 16\nmov rax, rsp\n.cfi_def_cfa_register rax\n\
        .cfi_escape 0x0f,5,0x77,40,6,0x23,8\nmov [rdi], rax\n.cfi_def_cfa_register rsp\nmov [rsi], rax\n{none}pop rbx\n.cfi_def_cfa_offset 8"
    );
    assert_eq!(findings(&function(&body)), [""; 0]);
}
