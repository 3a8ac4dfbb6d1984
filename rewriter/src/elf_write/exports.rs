//! Exported functions that are known by their new addresses, so that calls from other files pass no springboard.
//!
//! Input: what the file exports and its data name in no other way ([`crate::image::exports`]), the instructions. Output: new values for entries of
//! the dynamic symbol table. **Invariant**: a function has one address for everybody who asks for it: its new one where each way to
//! ask is its symbol, else its old one. Sizes stay as they are. Source: `DESIGN.md`, "Where things go in the output".

use super::output::Output;
use crate::disasm::skeleton::skeleton;
use crate::disasm::{InsnId, Insns, Reader};
use crate::ids::Vaddr;
use crate::image::Image;
use crate::image::exports::{SYM_BYTES, VALUE_AT};
use crate::layout::Placed;
use crate::optimise::Fuel;
use iced_x86::Instruction;

/// Entries of the dynamic symbol table, and the instructions that their values will lead to.
#[derive(Debug, Default)]
pub struct Direct {
    list: Vec<(u32, InsnId)>,
    /// Functions, of which one may have several names.
    pub functions: usize,
}

/// Chooses them. Each function takes some fuel.
pub fn choose(image: &Image, insns: &Insns, fuel: &mut Fuel) -> Direct {
    let exports = &image.exports.list;
    if exports.is_empty() {
        return Direct::default();
    }
    // By place in the list; of several names of a function, the first stands for all.
    let mut named = vec![false; exports.len()];
    let mut name = |va: Vaddr| {
        let first = exports.partition_point(|e| e.0 < va);
        if exports.get(first).is_some_and(|e| e.0 == va) {
            named[first] = true;
        }
    };
    let mut reader = Reader::new(image, insns);
    let mut insn = Instruction::default();
    for id in (0..insns.len() as u32).map(InsnId) {
        match skeleton(reader.tail(id)) {
            Some(s) if s.ip_relative => {
                let at = usize::from(s.disp32);
                let field = &reader.tail(id)[at..at + 4];
                let distance = i32::from_le_bytes(field.try_into().expect("four bytes"));
                // Direct branches lead to the new code, whatever the function is known by; but a call of what stands behind it
                // pushes that address as if the code wanted to know it.
                let to = insns.end(id) + i64::from(distance) as u64;
                if insns.target(id).is_none() || distance == 0 {
                    name(to);
                }
            }
            Some(_) => {}
            None => {
                reader.decode(id, &mut insn);
                if insn.is_ip_rel_memory_operand() {
                    name(Vaddr(insn.ip_rel_memory_address()));
                }
            }
        }
    }
    image.give_back();
    let mut out = Direct::default();
    for names in exports.chunk_by(|a, b| a.0 == b.0) {
        let first = exports.partition_point(|e| e.0 < names[0].0);
        let id = insns.at(names[0].0).filter(|id| id.ix() < insns.main);
        let Some(id) = id.filter(|_| !named[first] && fuel.take()) else { continue };
        out.functions += 1;
        out.list.extend(names.iter().map(|n| (n.1, id)));
    }
    out
}

/// Writes the new values into the output's copy of the table.
pub(super) fn write(file: &mut Output, image: &Image, placed: &Placed, direct: &Direct) {
    let (at, bytes) = (image.exports.at.0, image.exports.count * SYM_BYTES);
    let Some(table) = image.data.get(at as usize..at as usize + bytes).filter(|_| !direct.list.is_empty()) else {
        return;
    };
    let mut table = table.to_vec();
    for &(k, id) in &direct.list {
        let value = k as usize * SYM_BYTES + VALUE_AT;
        if let Some(field) = table.get_mut(value..value + 8) {
            field.copy_from_slice(&placed.begin(id).0.to_le_bytes());
        }
    }
    file.patch(at, &table);
}
