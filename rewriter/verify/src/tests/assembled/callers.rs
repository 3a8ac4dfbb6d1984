//! What callers keep over calls: of functions that they know by name through a register, and of functions that return elsewhere.

use crate::tests::fixtures::program::{Program, miss};

/// `f` keeps rcx over a call of `g` through r10, which comes from `target`; the check in `g` uses `scratch`.
fn named(target: &str, scratch: &str) -> Program {
    calling(target, "add rax, rcx", scratch)
}

/// `f` calls `g` through r10, and then does `behind`.
fn calling(target: &str, behind: &str, scratch: &str) -> Program {
    let text = format!(
        "mov rcx, rax
 {target}
 call r10
 {behind}
 ret
.cfi_endproc
.cfi_startproc
g: lea {scratch}, [rdi+8]
 shr {scratch}, 6
 test dword ptr [{scratch}+T], 0x202
 jnz s1
a1: mov rax, [rdi+8]
 ret"
    );
    // Nobody waits for these programs, so their calls need no polls.
    let mut program = Program { flags: 3, ..Program::new(&text, &stub(scratch, "rdi+8")) };
    program.old += "\ng_old: jmp g\n .fill 3, 1, 0xcc";
    program.traps += "\n.long g_old - old_start, g - text_start";
    program
}

/// The cold stub of a load of eight bytes at `at`.
fn stub(scratch: &str, at: &str) -> String {
    format!(
        "s1: lea {scratch}, [{at}]
 and {scratch}, 63
 cmp {scratch}, 56
 ja r1
 lea {scratch}, [{at}]
 shr {scratch}, 6
 test byte ptr [{scratch}+T], 2
 jz a1
r1: {}",
        miss(&format!("lea rax, [{at}]"), "8 + LOAD", "a1")
    )
    .replace(&format!("and {scratch}"), &format!("and {}", low(scratch)))
    .replace(&format!("cmp {scratch}"), &format!("cmp {}", low(scratch)))
}

/// The low half of a register.
fn low(register: &str) -> String {
    match register.strip_prefix("r1").or(register.strip_prefix("r8")) {
        Some(_) => format!("{register}d"),
        None => register.replacen('r', "e", 1),
    }
}

/// gcc's large code model: whoever calls a function of its own file through a register knows which registers it leaves alone.
#[test]
fn finds_a_register_that_a_caller_keeps_who_knows_the_function_by_a_number() {
    let number = "movabs r10, offset g_old";
    named(number, "rsi").accepted();
    named(number, "rcx").found("live");
    let sum = "lea r11, [rip+text_start]\n movabs r10, offset g_old - text_start\n add r10, r11";
    named(sum, "rsi").accepted();
    named(sum, "rcx").found("live");
    let copied = "movabs r9, offset g_old\n mov r10, r9";
    named(copied, "rcx").found("live");
    // gcc's -mforce-indirect-call.
    let distance = "lea r10, [rip+g_old]";
    named(distance, "rsi").accepted();
    named(distance, "rcx").found("live");
    let on_all_ways = "lea r10, [rip+g_old]\n test edi, edi\n jz 1f\n lea r10, [rip+g_old]\n1:";
    named(on_all_ways, "rcx").found("live");
}

/// QEMU: one function alone jumps to another with a pointer to `g`, which that one calls. What it knows of it, it knows from its callers, so `called`
/// and `h` know only the ABI; where nothing else leads to it, it is a part of the function that knows `g`.
#[test]
fn what_a_jump_brings_to_a_function_is_not_known_there() {
    let target = |entered: &str| {
        format!(
            "call {entered}
 add rax, rcx
 ret
.cfi_endproc
.cfi_startproc
knows: lea r10, [rip+g_old]
 jmp called
.cfi_endproc
.cfi_startproc
called: call r10
 ret
.cfi_endproc
.cfi_startproc
 mov r10, [rip+text_start]"
        )
    };
    calling(&target("called"), "", "rcx").accepted();
    calling(&target("knows"), "", "rcx").found("live");
}

/// A pointer's type may name a convention in which the callee leaves more registers alone; that callers keep something there shows it.
#[test]
fn finds_a_register_that_a_caller_keeps_over_a_call_through_a_pointer() {
    let ours = "test edi, edi";
    let one_of_two = "lea r10, [rip+g_old]\n test edi, edi\n jz 1f\n mov r10, [rip+text_start]\n1:";
    for target in [ours, one_of_two] {
        named(target, "rsi").accepted();
        named(target, "rcx").found("live");
        for kept in
            ["mov [rsp-8], rcx", "cmp eax, ecx", "test eax, eax\n jz 1f\n1: imul eax, ecx", "mov rax, [rcx*8+8]"]
        {
            calling(target, kept, "rcx").found("live");
        }
        // Nothing is kept: rcx is not read, or not before it is written, or a number is made of it.
        for not in [
            "",
            "mov cl, 5\n movzx eax, cl",
            "xor ecx, ecx\n add rax, rcx",
            "or ecx, -1",
            "sbb ecx, ecx",
            "nop dword ptr [rax+rcx]",
        ] {
            calling(target, not, "rcx").accepted();
        }
    }
    // Undefined on the way on which its value does not matter, for one call of many.
    let some = "test eax, eax\n jz 1f\n add rax, rcx\n1:";
    calling(ours, some, "rcx").found("live");
    calling(ours, &format!("{some}\n{}", "call r11\n".repeat(40)), "rcx").accepted();
}

/// `f` returns 5 through a thunk whose callee takes its return address off the stack.
fn thunk(scratch: &str, off: &str) -> Program {
    let text = format!(
        "mov eax, 5
 lea {scratch}, [rdi+8]
 shr {scratch}, 6
 test dword ptr [{scratch}+T], 0x202
 jnz s1
a1: mov rcx, [rdi+8]
 jmp thunk
thunk: call inner
 ud2
inner: {off}
 ret"
    );
    Program { flags: 3, ..Program::new(&text, &stub(scratch, "rdi+8")) }
}

/// gcc's `-mfunction-return=thunk`.
#[test]
fn finds_a_result_that_is_lost_on_the_way_to_a_return_thunk() {
    for off in ["lea rsp, [rsp+8]", "add rsp, 8", "pop rcx", "test eax, eax\n jz 1f\n1: pop rcx"] {
        thunk("r8", &format!("xor r8d, r8d\n {off}")).accepted();
        for lost in ["r8", "rax"] {
            thunk(lost, off).found("live");
        }
    }
}
