//! Data between code that read as a springboard.

use crate::Audit;
use crate::decode::decoder;
use crate::file::module::Module;
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::compiled;
use blizzard::base::options::Options;
use blizzard::pipeline;
use object::{Object, ObjectSymbol};

/// `DISTANCE` is that of a jump at `data`.
const SOURCE: &str = r#"
        .text
        .globl main
        .type main, @function
main:
        .cfi_startproc
        movzbl data(%rip), %eax
        xor %eax, %eax
        ret
        .cfi_endproc
        .size main, . - main
        .p2align 4
        .type data, @object
data:
        .byte 0xe9
        .long DISTANCE
        .byte 0x90, 0x00, 0x17
        .size data, . - data
        .section .note.GNU-stack, "", @progbits
"#;

fn program(distance: i32) -> Vec<u8> {
    compiled("cc", "p.s", &SOURCE.replace("DISTANCE", &distance.to_string()), &["-pie"])
}

fn rewritten(original: &[u8]) -> Vec<u8> {
    pipeline::rewrite(original, "p", &Options::tests()).expect("rewrite").bytes
}

/// Where the data stand, and a distance from them into the middle of an instruction of the new code.
fn place() -> (u64, i32) {
    let original = program(0);
    let elf = object::File::parse(&original[..]).expect("an ELF file");
    let va = elf.symbols().find(|s| s.name() == Ok("data")).expect("a symbol").address();
    let output = rewritten(&original);
    let m = Module::read(&output, "p").expect("read module");
    let text = decoder::decode(m.text.data, m.text.va, &[]);
    let long = text.insns.iter().find(|i| i.len > 1).expect("an instruction of several bytes");
    (va, (long.va + 1).wrapping_sub(va + 5) as i32)
}

fn finds_jump(audit: &Audit, va: u64) -> bool {
    audit.open.iter().any(|o| o.at == va && o.reason.contains("leads to no instruction of the new code"))
}

#[test]
fn data_that_read_as_a_springboard_are_none_if_the_original_has_them() {
    let (va, distance) = place();
    let original = program(distance);
    let output = rewritten(&original);
    let audit = verify_with(&output, "p", Some(&original)).expect("audit runs");
    assert!(audit.is_clean(), "{audit}");
    // Nothing but the original tells.
    let audit = verify_with(&output, "p", None).expect("audit runs");
    assert!(finds_jump(&audit, va), "{audit}");
}

/// One other byte of the five makes a jump that somebody wrote.
#[test]
fn finds_a_springboard_over_data() {
    let (va, distance) = place();
    let output = rewritten(&program(distance));
    for original in [program(0), program(distance ^ 0x100)] {
        let audit = verify_with(&output, "p", Some(&original)).expect("audit runs");
        assert!(finds_jump(&audit, va), "{audit}");
    }
}
