//! Which accesses need no check.
//!
//! Input: an instruction, the registers that hold stack addresses. Output: [`ExemptClass`]. Source: `rewriter/DESIGN.md`, "Exempt accesses".

use crate::decode::effects::{AccessKind, RSP, Touch, bit};
use crate::decode::insn::{ADDR32, FS, Insn, NONE, RIP};
use crate::sites::site::Context;
use blizzard_contract as contract;

/// What an unchecked access is.
pub(crate) enum ExemptClass {
    Exempt(&'static str),
    NotRequested,
    Open(String),
}

/// Classifies an unchecked access. `derived` are the registers that hold stack addresses.
pub(crate) fn classify(cx: &Context, i: &Insn, derived: u16) -> ExemptClass {
    let wanted = |a: AccessKind| (a.writes() && cx.check_stores) || (a.reads() && cx.check_loads);
    let (access, what) = match i.touch {
        Touch::Mem(a) | Touch::Xsave(a) => (a, "unchecked access"),
        Touch::BitString(a) => (a, "unchecked bit-string access (reaches outside its operand)"),
        Touch::Lanes(a) => (a, "unchecked gather or scatter"),
        Touch::String { writes_di, reads_si, reads_di } => {
            let a = match (writes_di, reads_si || reads_di) {
                (true, true) => AccessKind::Rmw,
                (true, false) => AccessKind::Store,
                _ => AccessKind::Load,
            };
            let wanted = (writes_di && cx.check_stores) || ((reads_si || reads_di) && cx.check_loads);
            if i.has(ADDR32) {
                return ExemptClass::Exempt("addr32");
            }
            return if wanted {
                ExemptClass::Open(format!("unchecked string {}", word(a)))
            } else {
                ExemptClass::NotRequested
            };
        }
        Touch::Xlat => (AccessKind::Load, "unchecked xlat"),
        Touch::MaskMov => (AccessKind::Store, "unchecked masked store"),
        Touch::ZeroLine => (AccessKind::Store, "unchecked store of a line"),
        Touch::Move64 => (AccessKind::Rmw, "unchecked 64-byte move"),
        Touch::Opaque => (AccessKind::Rmw, "access that the audit does not know"),
        Touch::None => return ExemptClass::Exempt("no-access"),
    };
    if let (Touch::Mem(_) | Touch::Xsave(_), Some(mem)) = (i.touch, &i.mem) {
        if mem.seg == FS {
            return ExemptClass::Exempt("tls");
        }
        if i.has(ADDR32) {
            return ExemptClass::Exempt("addr32");
        }
        let constant = mem.index == NONE && matches!(mem.base, NONE | RIP);
        // Compilers leave such loads where a program dereferences a constant that it never has. Checks have no loads of this form.
        let own_load = matches!(i.op, 0xa0 | 0xa1);
        if names_memory_of_runtime(i) && !own_load {
            return ExemptClass::Open("access to the context pages or the tag table outside a check".into());
        }
        let span =
            contract::SEGMENT_BASE.wrapping_sub(1 << 16)..contract::SEGMENT_BASE + contract::SEGMENT_WINDOW_BYTES;
        if constant && !span.contains(&(mem.disp as u64)) {
            return ExemptClass::Exempt("global");
        }
        if mem.index == NONE && (mem.base == RSP || (mem.base < 16 && derived & bit(mem.base) != 0)) {
            return ExemptClass::Exempt("stack");
        }
    }
    if !wanted(access) {
        return ExemptClass::NotRequested;
    }
    ExemptClass::Open(format!("{what}: {}, {} bytes", word(access), i.size))
}

/// Whether an operand is a constant address where the runtime has its pages and the tags.
pub(crate) fn names_memory_of_runtime(i: &Insn) -> bool {
    let runtime = contract::CONTEXT_SHARED..contract::TAG_TABLE_BASE + contract::TAG_TABLE_BYTES;
    i.mem.is_some_and(|m| m.base == NONE && m.index == NONE && m.seg == 0 && runtime.contains(&(m.disp as u64)))
}

fn word(a: AccessKind) -> &'static str {
    match a {
        AccessKind::Load => "load",
        AccessKind::Store => "store",
        AccessKind::Rmw => "read-modify-write",
    }
}
