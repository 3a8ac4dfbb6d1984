//! What the audit says of an output, and what of it is known.
//!
//! Input: the audit's findings and the rewritten file. Output: the first finding that does not follow from an instruction that Capstone does not know, or not in this encoding:
//! each finding is excused by itself, none by another of the same output.

use blizzard::verify::Finding;
use iced_x86::{Decoder, DecoderOptions, EncodingKind, Instruction};
use object::{Object, ObjectSection};

/// What the audit says of instructions that it does not read.
const NOT_READ: [&str; 3] = ["do not decode", "no check form is known", "access that the audit does not know"];

/// The first finding that is not known to be the audit's own.
pub fn unexpected<'a>(open: &'a [Finding], rewritten: &[u8]) -> Option<&'a Finding> {
    if open.is_empty() {
        return None;
    }
    let code = instructions(rewritten);
    let at = |va: u64| code.iter().find(|i| i.ip() <= va && va < i.next_ip()).map(Instruction::ip);
    let is_unread = |f: &Finding| NOT_READ.iter().any(|n| f.reason.contains(n));
    let unread: Vec<u64> = open.iter().filter(|f| is_unread(f)).filter_map(|f| at(f.at)).collect();
    let vectors = code.iter().any(|i| matches!(i.encoding(), EncodingKind::VEX | EncodingKind::EVEX));
    open.iter().find(|f| {
        // The bytes of an instruction that is not read may look like others.
        let inside = at(f.at).is_some_and(|i| unread.contains(&i));
        // Of a general register that Capstone has a vector instruction read (vrndscalesd).
        let read = vectors && f.reason.starts_with("inserted code changes r") && f.reason.ends_with(", live here");
        !is_unread(f) && !inside && !read
    })
}

/// The instructions of the new code.
fn instructions(rewritten: &[u8]) -> Vec<Instruction> {
    let file = object::File::parse(rewritten).expect("the output is an ELF file");
    let sections = file.sections().filter(|s| matches!(s.name(), Ok(".blizzard.text" | ".blizzard.cold")));
    sections
        .flat_map(|s| {
            let bytes = s.data().unwrap_or(&[]);
            Decoder::with_ip(64, bytes, s.address(), DecoderOptions::NONE).iter().collect::<Vec<_>>()
        })
        .collect()
}
