//! What the audit says of an output.
//!
//! Input: a sequence, its program and the rewritten form. Output: whether the audit accepts it. It panics where it should and does not.
//!
//! Capstone does not know all instructions, or not in each encoding, and may take the bytes behind one that it does not know for others. Nothing else is excused: the sequence
//! without what the audit does not read by itself must be accepted as a whole.

use crate::sequence::Sequence;
use blizzard::verify::{Finding, verify_with};
use iced_x86::{Decoder, DecoderOptions, FlowControl};

/// What the audit says of instructions that it does not read.
const NOT_READ: [&str; 3] = ["do not decode", "no check form is known", "access that the audit does not know"];
const NOP: u8 = 0x90;

/// Whether the audit accepts the output; `false`: there are instructions in it that it does not read, and it accepts the rest.
pub fn accepts(sequence: &Sequence, original: &[u8], rewritten: &[u8]) -> bool {
    let open = findings(sequence, original, rewritten);
    if open.is_empty() {
        return true;
    }
    let mut rest = sequence.code.clone();
    for insn in Decoder::new(64, &sequence.code, DecoderOptions::NONE).iter() {
        let bytes = insn.ip() as usize..insn.next_ip() as usize;
        if insn.flow_control() == FlowControl::Next && !is_read(&sequence.with(&sequence.code[bytes.clone()])) {
            rest[bytes].fill(NOP);
        }
    }
    assert!(rest != sequence.code, "{open:#?}\n{sequence:?}");
    let rest = sequence.with(&rest);
    let open = rewritten_findings(&rest);
    assert!(open.is_empty(), "{open:#?}\n{rest:?}\nwithout the nops {sequence:?}");
    false
}

/// Whether the audit reads a sequence of one instruction.
fn is_read(sequence: &Sequence) -> bool {
    let open = rewritten_findings(sequence);
    let read = !open.iter().any(|f| NOT_READ.iter().any(|n| f.reason.contains(n)));
    assert!(!read || open.is_empty(), "{open:#?}\n{sequence:?}");
    read
}

fn rewritten_findings(sequence: &Sequence) -> Vec<Finding> {
    let original = sequence.program();
    let rewritten = sequence.rewrite(&original).expect("part of a sequence that was not refused");
    findings(sequence, &original, &rewritten)
}

fn findings(sequence: &Sequence, original: &[u8], rewritten: &[u8]) -> Vec<Finding> {
    match verify_with(rewritten, "sequence", Some(original)) {
        Ok(audit) => audit.open,
        Err(e) => panic!("{}\n{sequence:?}", e.what),
    }
}
