//! Ways into the old code that are missing or lead elsewhere: of what symbols, relocations and frames of the original name.
//!
//! A program has an entry of each kind that a springboard serves and one that a row of the trap map serves. Each way is removed and changed in its output.

use crate::Audit;
use crate::decode::decoder;
use crate::file::module::Module;
use crate::judge::old_code::springboards;
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::compiled;
use blizzard::base::options::Options;
use blizzard::pipeline;
use blizzard_contract::trap_map::{GROUP, encode};
use blizzard_contract::{ModuleInfo, TrapEntry, TrapHead};
use object::{Object, ObjectSymbol};
use std::mem::offset_of;

/// Behind `KIND_front` by [`NEAR`] is an entry of one byte behind many others, so a row serves it: there is no room for a jump to another jump. By [`FAR`] is one with
/// room for a springboard. By [`UNDER`] is one in front of which stand two bytes of another function, [`OVER`]: a springboard of five bytes there would
/// cover it. A symbol, a relocation or a frame names them, and nothing else does.
const SOURCE: &str = r#"
        .macro begin kind, name
        .ifc \kind, symbol
        .type symbol_\name, @function
symbol_\name:
        .endif
        .ifc \kind, frame
        .cfi_startproc
        .endif
.L\kind\()_\name:
        .endm

        .macro end kind, name
        .ifc \kind, symbol
        .size symbol_\name, . - symbol_\name
        .endif
        .ifc \kind, frame
        .cfi_endproc
        .endif
        .endm

        .macro function name
        .type \name, @function
\name:
        .endm

        .macro tiny
        function tiny_\@
        cmc
        .size tiny_\@, . - tiny_\@
        .endm

        .macro entries kind
        .p2align 4
        function \kind\()_front
        mov $6, %eax
        jmp .L\kind\()_under
        .size \kind\()_front, . - \kind\()_front
        .rept 64
        tiny
        .endr
        begin \kind, near
        cmc
        end \kind, near
        function \kind\()_middle
        mov $1, %ecx
        add %ecx, %eax
        ret
        .size \kind\()_middle, . - \kind\()_middle
        .p2align 4
        begin \kind, far
        mov $2, %ecx
        add %ecx, %eax
        ret
        end \kind, far
        .p2align 4
        function \kind\()_over
        mov %edi, %edx
        .size \kind\()_over, . - \kind\()_over
        begin \kind, under
        mov $3, %ecx
        add %ecx, %edx
        ret
        end \kind, under
        .p2align 4
        .endm

        .text
        entries symbol
        entries relocation
        entries frame

        .globl main
        function main
        .cfi_startproc
        xor %eax, %eax
        ret
        .cfi_endproc
        .size main, . - main

        .section .data.rel.ro, "aw"
        .quad .Lrelocation_near, .Lrelocation_far, .Lrelocation_under
        .section .note.GNU-stack, "", @progbits
"#;
const NEAR: u64 = 71;
const FAR: u64 = 80;
const OVER: u64 = 96;
const UNDER: u64 = 98;

const KINDS: [(&str, &str); 3] =
    [("symbol", "a function's symbol"), ("relocation", "a relocation"), ("frame", "a frame")];

struct Pair {
    original: Vec<u8>,
    output: Vec<u8>,
}

impl Pair {
    fn new() -> Pair {
        let original = compiled("cc", "p.s", SOURCE, &["-pie"]);
        // Words of data keep leading to old addresses.
        let options = Options { words: false, ..Options::tests() };
        let output = pipeline::rewrite(&original, "p", &options).expect("rewrite").bytes;
        let p = Pair { original, output };
        let audit = p.audit(&p.output);
        assert!(audit.is_clean(), "{audit}");
        p
    }

    fn audit(&self, file: &[u8]) -> Audit {
        verify_with(file, "p", Some(&self.original)).expect("audit runs")
    }

    /// An old address.
    fn place(&self, kind: &str, from_front: u64) -> u64 {
        let elf = object::File::parse(&self.original[..]).expect("an ELF file");
        elf.symbols().find(|s| s.name() == Ok(&format!("{kind}_front"))).expect("a function").address() + from_front
    }

    /// Where an address stands in the output.
    fn offset(&self, va: u64) -> usize {
        let m = Module::read(&self.output, "p").expect("read module");
        m.bytes_at(va, 1).expect("in the file").as_ptr() as usize - self.output.as_ptr() as usize
    }

    /// Rows and springboards: old and new address.
    fn rows(&self) -> Vec<(u64, u64)> {
        let m = Module::read(&self.output, "p").expect("read module");
        let all = m.traps().expect("a trap map");
        all.iter().map(|t| (m.info.old_base_va + u64::from(t.old), m.info.new_base_va + u64::from(t.new))).collect()
    }

    fn row(&self, va: u64) -> Option<u64> {
        self.rows().into_iter().find(|row| row.0 == va).map(|row| row.1)
    }

    /// Where an old address leads, by a springboard or a row.
    fn leads_to(&self, va: u64) -> u64 {
        let m = Module::read(&self.output, "p").expect("read module");
        let text = decoder::decode(m.text.data, m.text.va, &[]);
        springboards::scan(&m, &text, None, &mut Audit::default()).new_address(&m, va).expect("it leads somewhere")
    }

    /// The output with other rows in its trap map.
    fn with_rows(&self, rows: &[(u64, u64)]) -> Vec<u8> {
        let m = Module::read(&self.output, "p").expect("read module");
        let (mut codes, mut heads, mut before) = (Vec::new(), Vec::new(), TrapEntry { old: 0, new: 0 });
        for (k, row) in rows.iter().enumerate() {
            let row = TrapEntry { old: (row.0 - m.info.old_base_va) as u32, new: (row.1 - m.info.new_base_va) as u32 };
            if k % GROUP == 0 {
                let head = TrapHead { old: row.old, new: row.new, at: codes.len() as u32 };
                heads.extend([head.old, head.new, head.at].iter().flat_map(|word| word.to_le_bytes()));
            } else {
                let (code, bytes) = encode(before, row);
                codes.extend(&code[..bytes]);
            }
            before = row;
        }
        assert!(codes.len() as u64 <= m.info.trap_code_bytes && rows.len() as u64 <= m.info.trap_count);
        let mut file = self.output.clone();
        let (codes_at, heads_at) = (self.offset(m.info.trap_codes_va), self.offset(m.info.trap_heads_va));
        file[codes_at..codes_at + codes.len()].copy_from_slice(&codes);
        file[heads_at..heads_at + heads.len()].copy_from_slice(&heads);
        // In the tables, and in the runtime.
        let words: Vec<u8> = m.info.words().iter().flat_map(|w| w.to_le_bytes()).collect();
        let infos = self.output.windows(words.len()).enumerate().filter(|(_, w)| *w == words).map(|(at, _)| at);
        for at in infos {
            for (field, value) in [
                (offset_of!(ModuleInfo, trap_code_bytes), codes.len()),
                (offset_of!(ModuleInfo, trap_count), rows.len()),
            ] {
                file[at + field..at + field + 8].copy_from_slice(&(value as u64).to_le_bytes());
            }
        }
        file
    }

    fn without_row(&self, va: u64) -> Vec<u8> {
        let rows: Vec<(u64, u64)> = self.rows().into_iter().filter(|row| row.0 != va).collect();
        self.with_rows(&rows)
    }

    /// Writes a springboard at an old address.
    fn put_springboard(&self, file: &mut [u8], va: u64, to: u64) {
        let at = self.offset(va);
        file[at] = 0xe9;
        file[at + 1..at + 5].copy_from_slice(&(to.wrapping_sub(va + 5) as i32).to_le_bytes());
    }

    /// Asserts that the file has a finding at the address with these words.
    fn found(&self, what: &str, file: &[u8], va: u64, words: &str) {
        let audit = self.audit(file);
        let has = audit.open.iter().any(|o| o.at == va && o.reason.contains(words));
        assert!(has, "{what}: not found at {va:#x}: {words}\n{audit}");
    }

    /// Asserts that the audit misses the new code of what `who` names at the address, or sees by its bytes that it was code.
    fn is_lost(&self, what: &str, file: &[u8], va: u64, who: Option<&str>) {
        if let Some(who) = who {
            return self.found(what, file, va, &format!("no new code, although {who} names it"));
        }
        let audit = self.audit(file);
        let words = "that belong to no relocated instruction were overwritten";
        assert!(audit.open.iter().any(|o| o.reason.contains(words)), "{what}: not found: {words}\n{audit}");
    }

    /// Asserts that who brings the old code back at the address is found out.
    fn is_no_way_back(&self, kind: &str, mut file: Vec<u8>, va: u64, bytes: usize) {
        let at = self.offset(va);
        file[at..at + bytes].copy_from_slice(&self.original[at..at + bytes]);
        let audit = self.audit(&file);
        let words = "new code that no instruction of the original became";
        assert!(audit.open.iter().any(|o| o.reason.contains(words)), "{kind}: not found: {words}\n{audit}");
    }
}

const OTHER: &str = "is not the instruction of the original";
const NONE: &str = "leads to no instruction";

#[test]
fn the_trap_map_of_an_unchanged_output_can_be_written_anew() {
    let p = Pair::new();
    let rows = p.rows();
    assert!(rows.len() > 3);
    assert!(p.with_rows(&rows) == p.output);
}

#[test]
fn finds_a_required_row_that_is_missing_or_leads_elsewhere() {
    let p = Pair::new();
    for (kind, who) in KINDS {
        let near = p.place(kind, NEAR);
        let to = p.row(near).expect("a row serves it");
        // What a relocation names might be data, and a frame may begin a byte in front of its code.
        p.is_lost(&format!("{kind}: no row"), &p.without_row(near), near, (kind == "symbol").then_some(who));
        p.is_no_way_back(kind, p.without_row(near), near, 1);
        // The next instruction, and the middle of it.
        for (to, words) in [(to + 1, OTHER), (to + 2, NONE)] {
            let rows: Vec<_> = p.rows().into_iter().map(|row| if row.0 == near { (near, to) } else { row }).collect();
            p.found(&format!("{kind}: row to {to:#x}"), &p.with_rows(&rows), near, words);
        }
    }
}

#[test]
fn finds_a_required_springboard_that_is_missing_or_leads_elsewhere() {
    let p = Pair::new();
    for (kind, who) in KINDS {
        let far = p.place(kind, FAR);
        let at = p.offset(far);
        assert_eq!((p.output[at], p.row(far)), (0xe9, None), "{kind}: a springboard serves it");
        let to = p.leads_to(far);
        let mut file = p.output.clone();
        file[at..at + 5].fill(0xcc);
        p.is_lost(&format!("{kind}: no springboard"), &file, far, (kind != "relocation").then_some(who));
        p.is_no_way_back(kind, p.output.clone(), far, 5);
        // The next instruction, and the middle of its own.
        for (to, words) in [(to + 5, OTHER), (to + 1, NONE)] {
            let mut file = p.output.clone();
            p.put_springboard(&mut file, far, to);
            p.found(&format!("{kind}: springboard to {to:#x}"), &file, far, words);
        }
    }
}

/// Each instruction has its new code and each byte its place: only who asks what the original names sees that nothing leads there.
#[test]
fn finds_a_springboard_over_an_entry() {
    let p = Pair::new();
    for (kind, who) in KINDS {
        let (over, under) = (p.place(kind, OVER), p.place(kind, UNDER));
        let to = p.leads_to(over);
        let mut file = p.without_row(under);
        // The jumps that lead from there over others.
        let mut at = p.offset(over);
        while file[at] == 0xeb {
            let next = (at + 2).checked_add_signed((file[at + 1] as i8).into()).expect("in the file");
            file[at..at + 2].fill(0xcc);
            at = next;
        }
        file[at..at + 5].fill(0xcc);
        let at = p.offset(under);
        file[at..at + 5].fill(0xcc);
        p.put_springboard(&mut file, over, to);
        let reasons: Vec<_> = p.audit(&file).open.into_iter().map(|o| (o.at, o.reason)).collect();
        let why = format!("no springboard and no row of the trap map, although {who} names it");
        assert_eq!(reasons, [(under, why)], "{kind}");
    }
}
