//! The audit against code assembled by hand: each form of `DESIGN.md` is accepted, each planted fault is found.
//!
//! A test writes the program text, assembles and links it with the system's binutils into a file with the sections of a
//! rewritten module, and audits that. A mutation is a textual change of a program that is accepted as it stands.

mod bounds;
mod callers;
mod complete;
mod copies;
mod covered;
mod decoding;
mod file;
mod guarded;
mod mutations;
mod planted;
mod polls;
mod red_zone;
mod restarts;
mod screens;
mod single_bytes;
mod stack_tests;
mod strips;
mod systematic;
mod unwinding;

use super::{Audit, Inputs, Result, Runtime, verify_against};
use blizzard::base::options::AccessMode;
use std::path::Path;
use std::process::Command;

/// The runtimes of the rewriter under test.
fn runtimes() -> Vec<Runtime<'static>> {
    let known = |&(access, file): &(AccessMode, _)| Runtime::File { file, guard: Some(access == AccessMode::Guard) };
    blizzard::write::runtime_blob::FILES.iter().map(known).collect()
}

fn verify(file: &[u8], name: &str) -> Result<Audit> {
    verify_with(file, name, None)
}

fn verify_with(file: &[u8], name: &str, original: Option<&[u8]>) -> Result<Audit> {
    verify_against(file, name, &Inputs { original, original_name: None, runtimes: runtimes() })
}

/// Assembler symbols for the contract's constants, from the crate that defines them.
fn constants() -> String {
    use blizzard_contract as contract;
    let mut s = String::new();
    for (name, value) in [
        ("T", contract::TAG_TABLE_BASE),
        ("GATE_MISS", contract::GATE_MISS),
        ("GATE_POLL", contract::GATE_POLL),
        ("GATE_STRING", contract::GATE_STRING),
        ("GATE_VSIB", contract::GATE_VSIB),
        ("GATE_GROUP", contract::GATE_GROUP),
        ("GATE_STACK", contract::GATE_STACK),
        ("POLL", contract::POLL_WORD),
        ("NODES", contract::CTX_NODES),
        ("UP", contract::LIMIT_UP),
        ("DOWN", contract::LIMIT_DOWN),
        ("COUNTERS", contract::COUNTERS),
        ("LOAD", contract::miss_desc::LOAD.into()),
        ("STORE", contract::miss_desc::STORE.into()),
        ("MASKED", contract::miss_desc::MASKED.into()),
        ("XSAVE", contract::miss_desc::SIZE_XSAVE.into()),
        ("MOVED", contract::CodeRegion::MOVED.into()),
        ("MAGIC", contract::MODULE_MAGIC),
    ] {
        s += &format!(".set {name}, {value:#x}\n");
    }
    s
}

const SCRIPT: &str = "
ENTRY(start)
PHDRS {
  old PT_LOAD FILEHDR PHDRS FLAGS(5);
  data PT_LOAD FLAGS(6);
  code PT_LOAD FLAGS(5);
  ro PT_LOAD FLAGS(4);
  info 0x6b7a6c62 FLAGS(4);
  hdr PT_GNU_EH_FRAME FLAGS(4);
}
SECTIONS {
  . = 0x400000 + SIZEOF_HEADERS;
  .old.text : { *(.old.text) } :old
  . = ALIGN(0x1000);
  .data : { *(.data) } :data
  . = ALIGN(0x1000);
  .blizzard.text : { *(.blizzard.text) } :code
  .blizzard.cold : { *(.blizzard.cold) } :code
  . = ALIGN(0x1000);
  .blizzard.info : { *(.blizzard.info) } :ro :info
  .blizzard.rodata : { *(.blizzard.rodata) } :ro
  .blizzard.claims : { *(.blizzard.claims) } :ro
  .blizzard.restarts : { *(.blizzard.restarts) } :ro
  .eh_frame_hdr : { *(.eh_frame_hdr) } :ro :hdr
  .eh_frame : { *(.eh_frame) } :ro
  code_bytes = ADDR(.blizzard.cold) + SIZEOF(.blizzard.cold) - ADDR(.blizzard.text);
}";

/// A module under test: code, cold stubs, old code, trap map, data.
#[derive(Clone)]
pub struct Program {
    pub text: String,
    pub cold: String,
    pub old: String,
    /// Rows of the trap map, a line each; all are in its first group.
    pub traps: String,
    pub rodata: String,
    /// Rows of covered accesses, and of regions.
    pub claims: String,
    pub regions: String,
    /// What becomes of the rows of the restart table.
    pub restarts: restarts::Change,
    /// What new addresses in tables are relative to.
    pub base: &'static str,
    /// Expression for the module flags.
    pub flags: u64,
}

impl Program {
    pub fn new(text: &str, cold: &str) -> Program {
        Program {
            text: text.into(),
            cold: cold.into(),
            old: "f_old: jmp f\n .fill 3, 1, 0xcc".into(),
            traps: ".long f_old - old_start, f - text_start".into(),
            rodata: String::new(),
            claims: String::new(),
            regions: String::new(),
            restarts: |_| {},
            base: "text_start",
            flags: 7,
        }
    }

    /// Replaces one piece of the program, which must be there exactly once.
    pub fn with(&self, from: &str, to: &str) -> Program {
        let mut p = self.clone();
        let mut n = 0;
        for part in [&mut p.text, &mut p.cold, &mut p.old, &mut p.traps, &mut p.rodata, &mut p.claims, &mut p.regions] {
            n += part.matches(from).count();
            *part = part.replacen(from, to, 1);
        }
        assert_eq!(n, 1, "{from:?} must stand exactly once in the program");
        p
    }

    fn source(&self) -> String {
        let rows: Vec<&str> = self.traps.lines().collect();
        let (head, rows) = rows.split_first().expect("a row");
        format!(
            ".intel_syntax noprefix
{}
.section .old.text,\"ax\",@progbits
old_start:
{}
.section .data,\"aw\",@progbits
word: .quad 0
.section .blizzard.info,\"a\",@progbits
.balign 8
.quad MAGIC, {}, 0, start, 0x400040, 6, 0, trap_codes, trap_codes_end - trap_codes, trap_heads, {}, old_start, {}
.quad text_start, code_bytes, 0, 0, 0, 0
.quad claims, (regions - claims) / 12, regions, (regions_end - regions) / 12
.quad 0, 0, 0, 0
.quad 0, 0, 0, 0, 0
.quad 0, 0, 0, 0
.section .blizzard.rodata,\"a\",@progbits
trap_codes:
{}
trap_codes_end:
.balign 4
trap_heads:
{}, 0
{}
.section .blizzard.claims,\"a\",@progbits
.balign 4
claims:
{}
regions:
{}
regions_end:
.section .blizzard.restarts,\"a\",@progbits
.balign 8
.fill 256, 1, 0
.section .blizzard.text,\"ax\",@progbits
text_start:
.globl start
start: jmp f
f:
.cfi_startproc
{}
.cfi_endproc
.section .blizzard.cold,\"ax\",@progbits
{}
",
            constants(),
            self.old,
            self.flags | self.more_flags(),
            1 + rows.len(),
            self.base,
            rows.iter().map(|row| format!(".byte 0\n{row}\n")).collect::<String>(),
            head,
            self.rodata,
            self.claims,
            self.regions,
            self.text,
            self.cold
        )
    }

    /// The flags that follow from the code.
    fn more_flags(&self) -> u64 {
        use blizzard_contract::module_flags::{COUNTING, STRIPS};
        let has = |word: &str| self.text.contains(word) || self.cold.contains(word);
        let flag = |on: bool, flag: u64| if on { flag } else { 0 };
        flag(has("COUNTERS"), COUNTING) | flag(has("[UP]") || has("[DOWN]"), STRIPS)
    }

    /// Assembles and links.
    pub fn build(&self) -> Vec<u8> {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = |n: &str| dir.path().join(n);
        std::fs::write(path("m.s"), self.source()).expect("write source");
        std::fs::write(path("m.ld"), SCRIPT).expect("write script");
        run(dir.path(), "as", &["--64", "-o", "m.o", "m.s"], &self.text);
        run(dir.path(), "ld", &["-static", "-nostdlib", "--eh-frame-hdr", "-T", "m.ld", "-o", "m", "m.o"], &self.text);
        restarts::fill(std::fs::read(path("m")).expect("read module"), self.restarts)
    }

    pub fn audit(&self) -> Audit {
        verify(&self.build(), "module").expect("audit runs")
    }

    /// Asserts that the program is accepted.
    pub fn accepted(&self) -> Audit {
        let audit = self.audit();
        assert!(audit.is_clean(), "{audit}\n{}\n{}", self.text, self.cold);
        audit
    }

    /// Asserts that a fault is found, with these words in the reason, or others: `one|another`.
    pub fn found(&self, words: &str) {
        let audit = self.audit();
        let hit = audit.open.iter().any(|o| words.split('|').any(|w| o.reason.contains(w)));
        assert!(hit, "not found: {words}\n{audit}\n{}\n{}", self.text, self.cold);
    }

    /// Asserts of each change (what, into what) that it is found, with the words of its row; or accepted, if they are `accept`.
    pub fn finds(&self, changes: &[(&str, &str, &str)]) {
        for (from, to, words) in changes {
            match *words {
                "accept" => _ = self.with(from, to).accepted(),
                words => self.with(from, to).found(words),
            }
        }
    }
}

fn run(dir: &Path, tool: &str, args: &[&str], text: &str) {
    let out = Command::new(tool).current_dir(dir).args(args).output().expect("binutils are installed");
    assert!(out.status.success(), "{tool}: {}\n{text}", String::from_utf8_lossy(&out.stderr));
}

/// A call of the gate of misses: what puts the address into rax, bytes and kind, and where it goes on.
fn miss(address: &str, what: &str, to: &str) -> String {
    format!(
        "lea rsp, [rsp-128]
 push rax
 {address}
 xchg [rsp], rax
 push {what}
 call qword ptr [GATE_MISS]
 lea rsp, [rsp+128]
 jmp {to}"
    )
}

/// `mov rax, [rdi+8]`, rax dead in front of it, flags dead behind it.
pub fn load() -> Program {
    Program::new(
        "c1: lea rax, [rdi+8]
 shr rax, 6
 test dword ptr [rax+T], 0x202
 jnz s1
a1: mov rax, [rdi+8]
 ret",
        &format!(
            "s1: lea rax, [rdi+8]
 and eax, 63
 cmp eax, 56
 ja r1
 lea rax, [rdi+8]
 shr rax, 6
 test byte ptr [rax+T], 2
 jz a1
r1: {}",
            miss("lea rax, [rdi+8]", "8 + LOAD", "c1")
        ),
    )
}

/// A tail that stubs share.
const TAIL: &str = "t1: push rax
 and eax, 63
 cmp eax, 56
 ja r1
 pop rax
 push rax
 shr rax, 6
 test byte ptr [rax+T], 2
 jnz r1
 pop rax
 ret 128
r1: push 8 + LOAD
 call qword ptr [GATE_MISS]
 ret 128
";

/// The same with a stub that shares its tail with another.
pub fn shared_tail() -> Program {
    let stub = |k: u32| format!("s{k}: add rsp, -128\n lea rax, [rdi+8]\n call t1\n jmp a{k}\n");
    let check = |k: u32| {
        format!(
            "c{k}: lea rax, [rdi+8]
 shr rax, 6
 test dword ptr [rax+T], 0x202
 jnz s{k}
a{k}: mov rax, [rdi+8]
"
        )
    };
    Program::new(&(check(1) + &check(2) + " ret"), &(TAIL.to_owned() + &stub(1) + &stub(2)))
}

/// A byte store with a scratch register that is the copy of the base.
pub fn byte_store() -> Program {
    Program::new(
        "c1: mov rcx, rdi
 shr rcx, 6
 test byte ptr [rcx+T], 1
 jnz s1
a1: mov [rdi], al
 ret",
        &format!("s1: {}", miss("lea rax, [rdi]", "1 + STORE", "c1")),
    )
}

/// A read-modify-write, counted, with flags live across it in a dead rax.
pub fn flags_rax_dead() -> Program {
    Program::new(
        "cmp rdi, rsi
c1: lea r9, [rdi+rcx*4-12]
 lahf
 seto al
 shr r9, 6
 inc qword ptr [COUNTERS+8]
 test byte ptr [r9+T], 1
 jnz s1
 add al, 0x7f
 sahf
a1: mov byte ptr [rdi+rcx*4-12], 5
 jg out
 mov eax, 1
 ret
out: mov eax, 2
 ret",
        &format!(
            "s1: add al, 0x7f
 sahf
 {}",
            miss("lea rax, [rdi+rcx*4-12]", "1 + STORE", "c1")
        ),
    )
}

/// Flags live and rax live: rax is kept in a second dead register. Nothing in the stub resolves a straddle, so
/// the access is of one byte.
pub fn flags_rax_live() -> Program {
    Program::new(
        "cmp rdi, rsi
c1: lea r9, [rdi+3]
 mov r8, rax
 lahf
 seto al
 shr r9, 6
 test byte ptr [r9+T], 1
 jnz s1
 add al, 0x7f
 sahf
 mov rax, r8
a1: mov [rdi+3], al
 jg out
 ret
out: mov eax, 2
 ret",
        &format!(
            "s1: add al, 0x7f
 sahf
 mov rax, r8
 {}",
            miss("lea rax, [rdi+3]", "1 + STORE", "c1")
        ),
    )
}

/// No dead register: one is pushed below the red zone; the address is relative to rsp.
pub fn spilled() -> Program {
    Program::new(
        "c1: lea rsp, [rsp-128]
 push rcx
 lea rcx, [rsp+rdi+136]
 shr rcx, 6
 test byte ptr [rcx+T], 2
 jnz s1
 pop rcx
 lea rsp, [rsp+128]
a1: cmp byte ptr [rsp+rdi], 7
 mov [rsp-8], rcx
 je out
 mov rax, rcx
out: ret",
        &format!(
            "s1: pop rcx
 lea rsp, [rsp+128]
 {}",
            miss("lea rax, [rsp+rdi+136]", "1 + LOAD", "c1")
        ),
    )
}

/// `rep movsq` with both pointers tested.
pub fn string() -> Program {
    Program::new(
        "c1: mov rax, rdi
 shr rax, 40
 cmp rax, 0x20
 je s1
 mov rax, rsi
 shr rax, 40
 cmp rax, 0x20
 je s1
a1: rep movsq
b1: mov eax, 0
 ret",
        "s1: lea rsp, [rsp-128]
 push 0x1b8
 call qword ptr [GATE_STRING]
 lea rsp, [rsp+128]
 jmp b1",
    )
}

/// An area of 512 bytes.
pub fn large() -> Program {
    Program::new(
        "c1: lea rcx, [rdi+64]
 shr rcx, 40
 cmp rcx, 0x20
 je s1
a1: fxsave [rdi+64]
 ret",
        &format!("s1: {}", miss("lea rax, [rdi+64]", "512 + STORE", "a1")),
    )
}

/// An AVX2 gather.
pub fn lanes() -> Program {
    let mut p = Program::new(
        "c1: cmp dword ptr [NODES], 1
 jne s1
a1: vpgatherdd ymm1, [rdi+ymm2*4+16], ymm3
 ret",
        "s1: lea rsp, [rsp-128]
 push rax
 lea rax, [rip+desc]
 xchg [rsp], rax
 call qword ptr [GATE_VSIB]
 lea rsp, [rsp+128]
 jmp a1",
    );
    p.rodata = ".balign 4
desc: .long 16
 .byte 7, 2, 4, 4, 8, 4, 0, 3, 1, 128, 0, 0"
        .into();
    p
}

/// A loop with a poll at its head whose flags are live.
pub fn poll() -> Program {
    Program::new(
        "mov eax, 0
 cmp rdi, rsi
c1: lahf
 seto al
 cmp dword ptr [POLL], 0
 jne s1
 add al, 0x7f
 sahf
a1: jg out
 dec rdi
 jmp c1
out: mov eax, 1
 ret",
        "s1: add al, 0x7f
 sahf
 lea rsp, [rsp-128]
 call qword ptr [GATE_POLL]
 lea rsp, [rsp+128]
 jmp a1",
    )
}

/// Every exempt class.
pub fn exempt() -> Program {
    Program::new(
        "push rbp
 mov rbp, rsp
 mov [rbp-8], rdi
 lea rbx, [rbp-40]
 add rbx, 8
 mov rax, [rbx+16]
 call f2
 mov rcx, [rbp-8]
 mov rdx, [rip+word]
 mov rdx, [word]
 mov rdx, fs:[40]
 mov rdx, fs:[rcx]
 mov edx, [ecx]
 lea rdx, [rcx+rcx]
 prefetcht0 [rcx]
 nop dword ptr [rax]
 leave
 ret
f2: mov rax, [rsp+8]
 ret",
        "",
    )
}

#[test]
fn accepts_a_load_of_two_blocks() {
    let audit = load().accepted();
    assert_eq!((audit.checked.loads, audit.checked.two_tags, audit.checked.stores), (1, 1, 0));
}

#[test]
fn accepts_a_byte_store() {
    let audit = byte_store().accepted();
    assert_eq!((audit.checked.stores, audit.checked.one_tag), (1, 1));
}

#[test]
fn accepts_flags_kept_in_a_dead_rax() {
    flags_rax_dead().accepted();
}

#[test]
fn accepts_flags_kept_with_rax_saved() {
    flags_rax_live().accepted();
}

#[test]
fn accepts_a_spilled_scratch_register() {
    let audit = spilled().accepted();
    assert_eq!((audit.checked.loads, audit.exempt["stack"]), (1, 1));
}

#[test]
fn accepts_string_large_and_lane_tests() {
    assert_eq!(string().accepted().checked.strings, 1);
    assert_eq!(large().accepted().checked.large, 1);
    assert_eq!(lanes().accepted().checked.lanes, 1);
}

#[test]
fn accepts_a_poll() {
    assert_eq!(poll().accepted().polls, 1);
    poll().with("jmp a1", "jmp c1").accepted();
    let counted = "c1: inc qword ptr [COUNTERS+16]\n cmp dword ptr [POLL], 0\n jne s1\na1: dec rdi\n jnz c1\n ret";
    let stub = "s1: lea rsp, [rsp-128]\n call qword ptr [GATE_POLL]\n lea rsp, [rsp+128]\n jmp a1";
    assert_eq!(Program::new(counted, stub).accepted().polls, 1);
}

#[test]
fn accepts_each_exempt_class() {
    let audit = exempt().accepted();
    let n = |k: &str| audit.exempt.get(k).copied().unwrap_or(0);
    assert_eq!((n("stack"), n("global"), n("tls"), n("addr32"), n("no-access")), (4, 2, 2, 1, 4), "{audit}");
    assert_eq!(n("implicit-stack"), 5);
}

/// In front of the first instruction: exceptions from `from` to before `to` lead to `pad`. All of them are labels of the text.
pub fn caught(from: &str, to: &str, pad: &str) -> String {
    format!(
        ".cfi_lsda 0x1b, lsda
.pushsection .data
lsda: .byte 0xff, 0xff, 1
 .uleb128 lsda_end - lsda_sites
lsda_sites: .uleb128 {from} - f
 .uleb128 {to} - {from}
 .uleb128 {pad} - f
 .byte 0
lsda_end:
.popsection
"
    )
}

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
fn counts_what_was_not_asked_for() {
    let mut p = byte_store().with(
        "c1: mov rcx, rdi
 shr rcx, 6
 test byte ptr [rcx+T], 1
 jnz s1
",
        "",
    );
    p.cold.clear();
    p.found("unchecked access");
    p.flags = 1;
    assert_eq!(p.accepted().not_requested, 1);
}

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
