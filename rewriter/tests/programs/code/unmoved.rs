//! Code that the rewriter cannot find stays where it is and runs without checks: the audit must name it, and `blizzard rewrite` must say so. Data among
//! code must not be taken for such code.

use blizzard_test_harness::tool;
use std::path::Path;
use std::process::Command;

blizzard_test_harness::module! {
    code_that_nothing_leads_to_is_named_and_warned_of, tables_among_code_are_data,
}

/// Only a distance that the program halves leads to `hidden`, which stands between two frames without a jump to a computed address.
const HIDDEN: &str = r#"
__asm__(".text\n.balign 16\n"
        "anchor: .cfi_startproc\n  mov $1, %eax\n  ret\n  .cfi_endproc\n"
        "  .balign 16, 0\n"
        "hidden: push %rbx\n  mov %rdi, %rbx\n  movabs $0x1122334455667788, %rax\n  mov (%rbx), %rax\n  lea 3(%rax,%rax,4), %rax\n"
        "  mov %rax, (%rbx)\n  pop %rbx\n  ret\n"
        "  .balign 16, 0\n"
        "last: .cfi_startproc\n  mov $2, %eax\n  ret\n  .cfi_endproc\n"
        ".data\n.balign 8\n.globl twice\ntwice: .quad (hidden - anchor) * 2\n.globl known\nknown: .quad anchor, last\n.text\n");
extern volatile long twice;
extern char *known[2];
int main(void) {
    long value = 7;
    long (*f)(long *) = (long (*)(long *))(known[0] + twice / 2);
    return f(&value) == 38 && value == 38 ? 0 : 1;
}
"#;

/// Tables among code, as assembly has them: constants of a hash, a permutation of bytes, distances, a message.
const TABLES: &str = r#"
.text
.globl f
.type f, @function
f:  .cfi_startproc
    lea words(%rip), %rax
    mov (%rax,%rdi,4), %eax
    lea bytes(%rip), %rdx
    movzbl (%rdx,%rsi), %edx
    add %edx, %eax
    movdqu single(%rip), %xmm0
    movd %xmm0, %ecx
    add %ecx, %eax
    ret
    .cfi_endproc
    .balign 64
words:
    .long 0x428a2f98,0x71374491,0xb5c0fbcf,0xe9b5dba5,0x3956c25b,0x59f111f1,0x923f82a4,0xab1c5ed5
    .long 0xd807aa98,0x12835b01,0x243185be,0x550c7dc3,0x72be5d74,0x80deb1fe,0x9bdc06a7,0xc19bf174
    .long 0xe49b69c1,0xefbe4786,0x0fc19dc6,0x240ca1cc,0x2de92c6f,0x4a7484aa,0x5cb0a9dc,0x76f988da
single:
    .quad 0x0001020304050607, 0x08090a0b0c0d0e0f
bytes:
    .byte 0x63,0x7c,0x77,0x7b,0xf2,0x6b,0x6f,0xc5,0x30,0x01,0x67,0x2b,0xfe,0xd7,0xab,0x76
    .byte 0xca,0x82,0xc9,0x7d,0xfa,0x59,0x47,0xf0,0xad,0xd4,0xa2,0xaf,0x9c,0xa4,0x72,0xc0
    .byte 0xb7,0xfd,0x93,0x26,0x36,0x3f,0xf7,0xcc,0x34,0xa5,0xe5,0xf1,0x71,0xd8,0x31,0x15
    .asciz "Constants among code, for the tests of the audit"
    .balign 64
"#;

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(
        out.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

fn blizzard() -> Command {
    Command::new(env!("CARGO_BIN_EXE_blizzard"))
}

/// The audit's figures of what did not move, without and with the original.
fn audits(program: &Path, output: &Path) -> [serde_json::Value; 2] {
    let audit = |more: &[&Path]| {
        let printed = run(blizzard().args(["verify", "--json"]).arg(output).args(more));
        serde_json::from_str::<serde_json::Value>(&printed).unwrap()["unmoved"].clone()
    };
    [audit(&[]), audit(&["--original".as_ref(), program])]
}

fn code_that_nothing_leads_to_is_named_and_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let (file, program, output) = (folder.path().join("p.c"), folder.path().join("p"), folder.path().join("rewritten"));
    std::fs::write(&file, HIDDEN).unwrap();
    for kind in [["-fno-pie", "-no-pie"], ["-fPIE", "-pie"]] {
        run(tool("gcc").arg("-O1").args(kind).arg("-o").arg(&program).arg(&file));
        let symbols = run(tool("nm").arg(&program));
        let line = symbols.lines().find(|l| l.ends_with(" hidden")).expect("it has a symbol");
        let hidden = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        run(tool("strip").arg(&program));
        run(&mut Command::new(&program));
        // With its old address `anchor` leads there in the output, too.
        let rewrite = ["rewrite", "--no-libraries", "--no-words"];
        let said = run(blizzard().args(rewrite).arg(&program).arg("-o").arg(&output));
        assert!(said.contains("1 place ") && said.contains("would run unchecked"), "{said}");
        // It does run where it was.
        run(&mut Command::new(&output));
        for unmoved in audits(&program, &output) {
            let suspects = unmoved["suspects"].as_array().unwrap();
            assert_eq!(suspects.len(), 1, "{unmoved}");
            assert_eq!(
                (suspects[0]["at"].as_u64(), suspects[0]["bytes"].as_u64()),
                (Some(hidden), Some(27)),
                "{unmoved}"
            );
        }
        let text = run(blizzard().arg("verify").arg(&output));
        assert!(text.contains(&format!("suspect     {hidden:#x}")) && text.contains("1 suspect"), "{text}");
    }
}

fn tables_among_code_are_data() {
    let folder = tempfile::tempdir().unwrap();
    let [file, object, main, program, output] =
        ["t.s", "t.o", "m.c", "p", "rewritten"].map(|name| folder.path().join(name));
    std::fs::write(&file, TABLES).unwrap();
    std::fs::write(&main, "int f(long, long); int main(int n, char **a) { return (f(0, 0) + f(1, 1)) * (n - 1); }")
        .unwrap();
    run(tool("gcc").args(["-c", "-o"]).arg(&object).arg(&file));
    run(tool("gcc").arg("-o").arg(&program).args([&main, &object]));
    let said = run(blizzard().args(["rewrite", "--no-libraries"]).arg(&program).arg("-o").arg(&output));
    assert_eq!(said, "");
    run(&mut Command::new(&output));
    for unmoved in audits(&program, &output) {
        assert_eq!(unmoved["suspect_places"], 0, "{unmoved}");
        assert_eq!(unmoved["read"], 16, "{unmoved}");
        assert!(unmoved["named"].as_u64() > Some(150), "{unmoved}");
    }
}
