//! Every cycle of the code polls, or is found.

use crate::decode::decoder;
use crate::file::module::Module;
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::compiled;
use crate::tests::fixtures::program::Program;
use blizzard::base::options::Options;
use blizzard::pipeline;

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
        // Where nobody waits, nobody is kept waiting; but then there are no polls either.
        let quiet = Program { flags: 3, ..polling(body) }.audit();
        assert!(quiet.open.iter().all(|o| o.reason == "the code has polls, the flags do not say so"), "{quiet}");
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
    for jump in [
        "jmp rax",
        "notrack jmp rax",
        // Through tables whose ends nothing proves: of addresses, and of distances.
        "jmp qword ptr [rdi*8+word]",
        "notrack jmp qword ptr [rdi*8+word]",
        "lea rdx, [rip+word]\n movsxd rax, dword ptr [rdx+rdi*4]\n add rax, rdx\n notrack jmp rax",
    ] {
        Program { flags: 4, ..polling(&format!("<poll> {jump}")) }.accepted();
        Program { flags: 4, ..not_polling(&format!("c2: {jump}")) }.found("unknown place");
    }
}

/// A cycle may close through code that nobody sees: another module's, or whatever a pointer names. Tail calls through words and calls
/// counted as no edges, so two functions that went round through them kept their node's peers waiting for ever.
#[test]
fn what_leads_to_an_unknown_place_needs_one_on_every_way_from_an_entry() {
    for way_out in [
        // Through memory, a slot of the GOT, with the prefix that allows any target, and calls of each kind.
        "jmp qword ptr [rip+word]",
        "notrack jmp qword ptr [rip+word]",
        "jmp qword ptr [word]",
        "call qword ptr [rip+word]\n ret",
        "call rax\n ret",
        "call qword ptr [rsp+8]\n ret",
        // To where this module has no code.
        "call word\n ret",
        "jmp word",
        // Through an entry of the PLT.
        "call plt\n ret\nplt: endbr64\n jmp qword ptr [rip+word]",
        "jmp plt\nplt: endbr64\n jmp qword ptr [rip+word]",
        // A conditional jump to one.
        "test edi, edi\n jz plt\n ret\nplt: jmp qword ptr [rip+word]",
    ] {
        let at_once = format!("<poll> {way_out}");
        let in_front = format!("<poll> test esi, esi\n jz g\n ret\ng: {way_out}");
        let in_callee = format!("<poll> call g\n ret\ng: {way_out}");
        for body in [at_once, in_front, in_callee] {
            polling(&body).accepted();
            not_polling(&body.replace("<poll>", "<poll> nop\n")).found(crate::judge::code::polls::UNKNOWN_TARGET);
        }
        let beside = format!("test esi, esi\n jz g\n <poll> nop\ng: {way_out}");
        polling(&beside).found(crate::judge::code::polls::UNKNOWN_TARGET);
    }
    // What goes nowhere needs none.
    not_polling("c2: call g\n ret\ng: ret").accepted();
}

/// The edge that closes the cycle is the table's.
#[test]
fn a_cycle_through_a_jump_table_needs_one() {
    let body = "jmp t
L0: dec rdi
<poll> nop
t: lea rdx, [rip+table]
 movsxd rax, dword ptr [rdx+rdi*4]
 add rax, rdx
 jmp rax
L1: ret";
    let with_table = |p: Program| Program { flags: 4, rodata: "table: .long L0 - table, L1 - table".into(), ..p };
    assert_eq!(with_table(polling(body)).accepted().jump_tables, 1);
    with_table(not_polling(body)).found("without a poll on the way");
}

#[test]
fn a_return_used_as_a_jump_needs_one() {
    for jump in [
        "push rax\n ret",
        "push rax\n nop\n ret",
        "mov [rsp], rax\n ret",
        "sub rsp, 8\n ret",
        "lea rsp, [rsp-8]\n ret",
        "mov rsp, rax\n ret",
        "xchg rsp, rax\n ret",
        "pop rsp\n ret",
        "push rax\n ret 8",
        // A label in between: something else leads to the return, too.
        "test esi, esi\n jz e2\n sub rsp, 8\ne2: <poll> ret",
        "add rsp, -8\n <poll> test esi, esi\ne2: ret",
        // rbp and rsp are whatever they are.
        "leave\n ret",
        "mov rsp, rbp\n pop rbp\n ret",
        "sub rsp, rdi\n add rsp, rdi\n ret",
        "push rbp\n mov rbp, rsp\n mov [rbp+8], rax\n leave\n ret",
        "add rsp, 8\n push rax\n ret",
        // A store that begins below the return address, and reaches up to it.
        "movups [rsp-8], xmm0\n ret",
        "sub qword ptr [rsp-1], -512\n ret",
        "push rbp\n mov rbp, rsp\n xchg rcx, rbp\n leave\n ret",
        "mov rcx, rsp\n xadd rsp, rcx\n ret",
        // A branch in between.
        "push rax\n jmp out\n nop\nout: <poll> ret",
        "mov [rsp], rax\n jmp out\n nop\nout: <poll> ret",
        "push rbx\n test esi, esi\n jz e2\n nop\ne2: <poll> ret",
        "push rbx\n test esi, esi\n jz e2\n mov [rsp+8], rax\ne2: pop rbx\n <poll> ret",
    ] {
        let polls = if jump.contains("<poll>") { jump.to_string() } else { format!("<poll> {jump}") };
        Program { flags: 4, ..polling(&polls.replace("<poll>", "<poll> test edx, edx\n")) }.accepted();
        // Whoever comes next may look at the flags that the poll changes.
        if !["sub ", "add ", "test "].iter().any(|writes| polls.contains(writes)) {
            Program { flags: 4, ..polling(&polls) }.found("live here");
        }
        Program { flags: 4, ..not_polling(&format!("c2: {}", jump.replace("<poll>", "nop\n"))) }
            .found("a return to what was pushed");
    }
    // To a function that returns to what was pushed: there, too.
    for polls in ["call g\n push rax\n <poll> jmp g\n nop\ng: ret", "call g\n push rax\n jmp g\n nop\ng: <poll> ret"] {
        Program { flags: 4, ..polling(polls) }.found("a return to what was pushed");
    }
    for ordinary in [
        "push rbx\n pop rbx\n ret",
        "sub rsp, 8\n mov [rsp], rax\n add rsp, 8\n ret",
        "push rbp\n mov rbp, rsp\n sub rsp, rdi\n leave\n ret",
        "push rbp\n mov rbp, rsp\n and rsp, -32\n mov rsp, rbp\n pop rbp\n ret",
        "push rbp\n lea rbp, [rsp-64]\n sub rsp, 80\n lea rsp, [rbp+64]\n pop rbp\n ret",
        "enter 16, 0\n leave\n ret",
        "push fs\n add rsp, 8\n ret",
        "push bx\n push bx\n push bx\n push bx\n pop rcx\n ret",
        "movups [rsp-16], xmm0\n ret",
        "push rbx\n test esi, esi\n jz e2\n nop\ne2: pop rbx\n ret",
        "call g\n nop\n jmp g\n nop\ng: ret",
    ] {
        Program { flags: 4, ..not_polling(&format!("c2: {ordinary}")) }.accepted();
    }
}

/// `f`, with an instruction behind which nothing else leads, and the return behind it.
fn behind(instruction: &str) -> (Vec<u8>, Vec<u8>) {
    let source = format!(
        ".globl main, f\n .type main, @function\n .type f, @function\n main: xor %eax, %eax\n ret\n .size main, . - main\n\
         f: .cfi_startproc\n test %edi, %edi\n jz 1f\n lea 1(%rdi), %eax\n ret\n\
         1: {instruction}\n lea {BEHIND}(%rdi), %eax\n ret\n .cfi_endproc\n .size f, . - f\n\
         .section .note.GNU-stack, \"\", @progbits\n"
    );
    let original = compiled("cc", "p.s", &source, &[]);
    let output = pipeline::rewrite(&original, "p", &Options::tests()).expect("rewrite").bytes;
    let audit = verify_with(&output, "p", Some(&original)).expect("audit runs");
    assert!(audit.is_clean(), "{instruction}: {audit}");
    (original, output)
}

const BEHIND: i64 = 0x1234_5678;

/// Where in the file the poll stands that is around what lies behind the instruction, and its bytes, branch included.
fn poll_behind(output: &[u8]) -> Option<(usize, usize)> {
    let m = Module::read(output, "p").expect("read module");
    let text = decoder::decode(m.text.data, m.text.va, &[]);
    let at = text.insns.iter().position(|i| i.op == 0x8d && i.mem.is_some_and(|m| m.disp == BEHIND)).expect("the code");
    let is_poll = |k: &usize| text.insns[*k].mem.is_some_and(|m| m.disp as u64 == blizzard_contract::POLL_WORD);
    let poll = (at - 10..at + 10).find(is_poll)?;
    let (test, branch) = (&text.insns[poll], &text.insns[poll + 1]);
    let offset = m.text.data.as_ptr() as usize - output.as_ptr() as usize;
    Some((offset + (test.va - m.text.va) as usize, (branch.end() - test.va) as usize))
}

/// Code behind `ud2` was followed as if a handler stepped over it and kept all registers. Only what the original executes goes on: PadLock's instructions,
/// which become `ud2`.
#[test]
fn nothing_is_known_of_returns_behind_ud2() {
    for instruction in ["ud2", "hlt"] {
        let (original, output) = behind(instruction);
        let (at, bytes) = poll_behind(&output).expect("the return polls");
        let mut mutant = output.clone();
        mutant[at..at + bytes].fill(0x90);
        let audit = verify_with(&mutant, "p", Some(&original)).expect("audit runs");
        let words = "has no poll in front of it";
        assert!(audit.open.iter().any(|o| o.reason.contains(words)), "{instruction}: not found: {words}\n{audit}");
    }
    let (_, output) = behind("rep xcryptecb");
    assert_eq!(poll_behind(&output), None);
}
