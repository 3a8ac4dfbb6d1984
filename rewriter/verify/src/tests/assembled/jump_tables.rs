//! Jump tables of both forms, and entries that lead where they must not.

use crate::tests::fixtures::program::Program;

#[test]
fn resolves_jump_tables_of_both_forms() {
    let mut p = Program::new(
        "push rbp
 mov rbp, rsp
 lea rdx, [rip+table]
 movsxd rax, dword ptr [rdx+rdi*4]
 add rax, rdx
 jmp rax
L0: mov eax, [rbp-8]
 leave
 ret
L1: jmp [table2+rdi*8]
L2: mov [rbp-16], rax
 leave
 ret",
        "",
    );
    p.rodata = "table: .long L0 - table, L1 - table\ntable2: .quad L0, L2".into();
    // The load from the table is an access like any other: its base is no constant.
    p.flags = 6;
    let audit = p.accepted();
    assert_eq!((audit.jump_tables, audit.exempt["stack"]), (2, 2));
    assert_eq!(audit.not_requested, 2);
}

#[test]
fn a_table_entry_that_leads_nowhere_is_found_whatever_the_bound() {
    let mut p = Program::new(
        "lea rdx, [rip+table]
 movsxd rax, dword ptr [rdx+rdi*4]
 add rax, rdx
 jmp rax
L0: mov eax, 1
 ret
L1: mov eax, 2
 ret",
        "",
    );
    p.flags = 6;
    p.rodata = "table: .long L0 - table, L1 - table".into();
    assert_eq!(p.accepted().jump_tables, 1);
    p.with("L1 - table", "L1 + 1 - table").found("no instruction begins");
    p.with("L1 - table", "f_old - table").found("no new code");
    // Bytes that nothing explains may be a table that was not recognised.
    p.with("L1 - table", "L1 - table\n.quad 0, 5").found("leads to");
    let mut q = p.with("movsxd rax, dword ptr [rdx+rdi*4]", "mov eax, dword ptr [rdx+rdi*4]");
    q.rodata += "\n";
    q.found("no known jump");
}

#[test]
fn a_table_entry_leads_to_an_old_address_only_behind_the_next_table() {
    // The tables' old addresses are `old0` and, one entry further, `old1`.
    let mut p = Program::new(
        "lea rdx, [rip+old0]
 movsxd rax, dword ptr [rdx+rdi*4+8]
 add rax, rdx
 jmp rax
L0: mov eax, 1
 ud2
L1: lea rdx, [rip+old1]
 movsxd rax, dword ptr [rdx+rdi*4+12]
 add rax, rdx
 jmp rax
L2: mov eax, 2
 ud2",
        "",
    );
    p.flags = 6;
    p.rodata = "old0: .long 0
old1: .long 0
table0: .long L0 - old0, L1 - old0
table1: .long L2 - old1, L0 - old1"
        .into();
    assert_eq!(p.accepted().jump_tables, 2);
    p.with("L1 - old0", "f_old - old0").accepted();
    p.with("L0 - old0", "f_old - old0").found("no new code");
    p.with("L0 - old1", "f_old - old1").found("no new code");
}
