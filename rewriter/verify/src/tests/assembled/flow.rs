//! Where control may go: unresolved jumps, landing pads, calls that do not come back; and what is known and live there.

use crate::tests::fixtures::program::{Program, caught, miss};
use crate::tests::fixtures::samples::byte_store;

#[test]
fn an_unresolved_jump_may_lead_into_the_middle_of_a_block() {
    let text = "test rdi, rdi\n jz 1f\n ret\n1: push rbp\n mov rbp, rsp\n mov rax, [rbp-8]\n leave\n ret";
    let p = Program { flags: 3, ..Program::new(text, "") };
    assert_eq!(p.accepted().exempt["stack"], 1);
    p.with("jz 1f\n ret", "jz 1f\n jmp rax").found("unchecked access");
}

#[test]
fn frames_of_nested_procedures_are_found() {
    Program::new("enter 16, 1\n leave\n ret", "").accepted();
    Program::new("enter 16, 2\n leave\n ret", "").found("does not know");
}

#[test]
fn what_a_landing_pad_reads_is_live_where_a_handler_may_throw() {
    let mut p = byte_store();
    p.text = "push rbx
 mov ebx, 5
c1: mov rbx, rdi
 shr rbx, 6
 test byte ptr [rbx+T], 1
 jnz s1
a1: mov [rdi], al
b1: pop rbx
d1: ret
l1: mov eax, ebx
 ud2"
    .into();
    p.accepted();
    p.with("push rbx", &(caught("d1", "l1", "l1") + "push rbx")).accepted();
    p.with("push rbx", &(caught("c1", "b1", "l1") + "push rbx")).found("rbx, live");
}

/// At the call rbx holds a stack address, at the load not.
#[test]
fn nothing_is_known_at_a_landing_pad() {
    let text = "push rbx
 lea rbx, [rsp-40]
c1: call g
 mov rbx, rdi
a1: mov rax, [rsp-8]
b1: pop rbx
 ret
l1: mov rax, [rbx]
 pop rbx
 ret
g: ret";
    let p = Program { flags: 3, ..Program::new(&(caught("c1", "b1", "l1") + text), "") };
    p.found("unchecked access");
    p.with("mov rax, [rbx]", "mov rax, [rsp]").accepted();
}

#[test]
fn a_way_into_the_padding_between_functions_is_found() {
    let p = Program::new("call g\n mov eax, 1\n ret\n .balign 16, 0xcc\ng: mov eax, 2\n ret", "");
    p.accepted();
    p.with("mov eax, 1\n ret", "mov eax, 1\n nop").found("padding");
    p.with("mov eax, 1\n ret", "mov eax, 1\n call g").found("padding");
}

#[test]
fn a_value_is_not_live_over_a_call_that_does_not_come_back() {
    // rsi is the scratch register; `fatal` ends in a loop, so nothing behind the call is reached by it.
    let text = "c1: lea rsi, [rdi]
 shr rsi, 6
 test byte ptr [rsi+T], 2
 jnz s1
a1: movzx eax, byte ptr [rdi]
 test eax, eax
 jz out
 call fatal
 mov rax, rsi
out: ret
fatal: mov edi, 1
l: inc edi
 jmp l";
    let cold = format!("s1: {}", miss("lea rax, [rdi]", "1 + LOAD", "c1"));
    // Of checks alone; the loop would need a poll.
    let p = Program { flags: 3, ..Program::new(text, &cold) };
    p.accepted();
    p.with("jmp l", "jnz l\n ret").found("rsi, live");
}

#[test]
fn follows_values_that_callers_keep_across_local_calls() {
    // The caller keeps a value in r11 over the call, which the callee may then not use as scratch.
    let text = "mov r11, rsi
 call g
 mov rax, r11
 ret
g: lea r11, [rdi]
 shr r11, 6
 test byte ptr [r11+T], 2
 jnz s1
a1: movzx eax, byte ptr [rdi]
 ret";
    let cold = format!("s1: {}", miss("lea rax, [rdi]", "1 + LOAD", "g"));
    Program::new(text, &cold).found("live in a caller");
    Program::new(&text.replace("mov rax, r11", "mov rax, rdi"), &cold).accepted();
}
