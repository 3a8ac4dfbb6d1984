//! Code that nothing proves to be code: no frame, no symbol, no branch. All of it must move, because what stays where it was runs unchecked.

use std::path::Path;
use std::process::Command;

blizzard_test_harness::module! {
    a_word_that_looks_like_a_pointer_to_padding_hides_no_function,
    zeros_between_functions_hide_none,
    the_cases_of_a_table_among_variables_move,
}

/// What the hidden code of each program begins with: `movabs $HIDDEN, %rax`.
const HIDDEN: u64 = 0x1122_3344_5566_7788;

/// A word of data looks like a pointer to the padding in front of `hidden`: it reads as `add %dl, 0x48(%rax)` (00 50 48), and covers the beginning
/// of the function. Only code that is found later names that (`known` stands lower).
const PADDING: &str = r#"
__asm__(".text\n.balign 16\n"
        "known: mov $hidden, %eax\n  jmp *%rax\n"
        "  .balign 16, 0\n"
        "hidden: push %rax\n  movabs $0x1122334455667788, %rax\n  pop %rcx\n  lea 3(%rdi,%rdi,4), %rax\n  ret\n"
        "  .balign 16, 0\n"
        ".data\n.balign 8\nwords: .quad known, hidden - 1\n.text\n");
extern long (*words[2])(long);
int main(void) { return words[0](7) == 38 ? 0 : 1; }
"#;

/// Nothing names the second operation but arithmetic, and between both are zeros that read as instructions, up to the operation's first bytes.
const GAP: &str = r#"
__asm__(".text\n.balign 16\n"
        "step: shl $5, %edi\n  lea first(%rip), %rax\n  add %rdi, %rax\n  jmp *%rax\n"
        "  .balign 32, 0\n"
        "first: mov $1, %eax\n  ret\n"
        "  .balign 32, 0\n"
        "  push %rax\n  movabs $0x1122334455667788, %rax\n  pop %rcx\n  mov $2, %eax\n  ret\n"
        "  .balign 32, 0\n"
        ".data\n.balign 8\nword: .quad step\n.text\n");
extern int (*word)(int);
int main(void) { return word(0) == 1 && word(1) == 2 ? 0 : 1; }
"#;

/// The table of a switch is among the variables, as Free Pascal's are; behind the jump stands what is no code.
const TABLE: &str = r#"
__asm__(".text\n.balign 16\n"
        "choose: and $1, %edi\n  lea table(%rip), %rdx\n  movslq (%rdx,%rdi,4), %rax\n  add %rdx, %rax\n  jmp *%rax\n"
        "  .quad -1, -1\n"
        "zero: movabs $0x1122334455667788, %rax\n  mov $5, %eax\n  ret\n"
        "  .quad -1, -1\n"
        "one: mov $6, %eax\n  ret\n"
        "  .quad -1, -1\n"
        ".data\n.balign 8\nword: .quad choose\ntable: .long zero - table, one - table, 0\n.text\n");
extern int (*word)(int);
int main(void) { return word(0) == 5 && word(1) == 6 ? 0 : 1; }
"#;

fn find(bytes: &[u8]) -> usize {
    bytes.windows(8).position(|w| w == HIDDEN.to_le_bytes()).expect("the program has the number")
}

/// The program does the same when it is rewritten, passes the audit, and none of its hidden code is left in place.
fn moves(folder: &Path, source: &str) {
    let (file, program, output) = (folder.join("p.c"), folder.join("p"), folder.join("rewritten"));
    std::fs::write(&file, source).unwrap();
    let flags = ["-O1", "-fno-asynchronous-unwind-tables", "-fno-pie", "-no-pie", "-s", "-o"];
    assert!(Command::new("cc").args(flags).arg(&program).arg(&file).status().unwrap().success());
    assert!(Command::new(&program).status().unwrap().success());
    for checks in ["all", "none"] {
        let rewrite = ["rewrite", "--no-libraries", "--checks", checks];
        let mut command = Command::new(env!("CARGO_BIN_EXE_blizzard"));
        assert!(command.args(rewrite).arg(&program).arg("-o").arg(&output).status().unwrap().success());
        let ended = Command::new(&output).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let at = find(&std::fs::read(&program).unwrap());
        assert_ne!(std::fs::read(&output).unwrap()[at..at + 8], HIDDEN.to_le_bytes(), "runs where it was");
    }
    let mut verify = Command::new(env!("CARGO_BIN_EXE_blizzard"));
    let audit = verify.args(["verify", "--original"]).arg(&program).arg(&output).output().unwrap();
    assert!(audit.status.success(), "{}", String::from_utf8_lossy(&audit.stdout));
}

fn a_word_that_looks_like_a_pointer_to_padding_hides_no_function() {
    moves(tempfile::tempdir().unwrap().path(), PADDING);
}

fn zeros_between_functions_hide_none() {
    moves(tempfile::tempdir().unwrap().path(), GAP);
}

fn the_cases_of_a_table_among_variables_move() {
    moves(tempfile::tempdir().unwrap().path(), TABLE);
}
