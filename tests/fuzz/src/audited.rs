//! What the audit says of an output.
//!
//! Input: a sequence, its program and the rewritten form. Output: whether the audit accepts it. It panics where it should and does not.
//!
//! Capstone does not know all instructions, or not in each encoding, and may take the bytes behind one that it does not know for others; and it has some vector instructions read or change a
//! general register that they do not name (vphsubd, vrndscalesd, vpsraw). Nothing else is excused: the sequence without these must be accepted as a whole.

use crate::sequence::Sequence;
use blizzard::reports::audit::{Finding, verify_with};
use iced_x86::{EncodingKind, FlowControl, InstructionInfoFactory};

/// What the audit says of instructions that it does not read.
const NOT_READ: [&str; 4] =
    ["do not decode", "no check form is known", "access that the audit does not know", "none that the audit knows"];

/// Whether the audit accepts the output; `false`: there are instructions in it that it does not read right, and it accepts the rest.
pub fn accepts(sequence: &Sequence, original: &[u8], rewritten: &[u8]) -> bool {
    let mut open = findings(sequence, original, rewritten);
    if open.is_empty() {
        return true;
    }
    let mut rest =
        sequence.without(|insn, bytes| insn.flow_control() == FlowControl::Next && !is_read(&sequence.with(bytes)));
    if rest.code != sequence.code {
        open = rewritten_findings(&rest);
    }
    if !open.is_empty() {
        let mut factory = InstructionInfoFactory::new();
        rest = rest.without(|insn, _| {
            let vector = matches!(insn.encoding(), EncodingKind::VEX | EncodingKind::EVEX);
            vector && !factory.info(insn).used_registers().iter().any(|used| used.register().is_gpr())
        });
        open = rewritten_findings(&rest);
    }
    assert!(open.is_empty(), "{open:#?}\n{rest:?}\nof {sequence:?}");
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
