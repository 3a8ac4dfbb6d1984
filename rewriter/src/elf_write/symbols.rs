//! Symbols at new addresses, so that debuggers, profilers and backtraces name the code that runs.
//!
//! A file with a symbol table gets a copy in which every symbol of relocated code has its new address; a stripped one gets a
//! new table with the names that its dynamic symbols still give. The dynamic symbol table itself is left alone: what
//! it exports are the old addresses, which are the program's function pointers.

use crate::disasm::Insns;
use crate::ids::Vaddr;
use crate::image::Image;
use crate::layout::Placed;

/// Bytes of an `Elf64_Sym`.
pub const SYM_BYTES: usize = 24;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STB_GLOBAL: u8 = 1;

/// New address and size of the code that stood at `[va, va + bytes)`.
fn moved(insns: &Insns, placed: &Placed, va: Vaddr, bytes: u64) -> Option<(Vaddr, u64)> {
    let id = insns.at(va)?;
    let start = placed.begin(id);
    if bytes == 0 {
        return Some((start, 0));
    }
    let last = crate::disasm::InsnId(insns.main_before(va + bytes).checked_sub(1)? as u32);
    let end = placed.end(last);
    Some((start, if end > start { end - start } else { 0 }))
}

/// The input's `.symtab` with moved code symbols. `new_text`: index of the section of new code.
pub fn rewrite(table: &[u8], image: &Image, insns: &Insns, placed: &Placed, new_text: u16) -> Vec<u8> {
    let mut out = table.to_vec();
    for sym in out.chunks_exact_mut(SYM_BYTES) {
        let kind = sym[4] & 15;
        let section = u16::from_le_bytes([sym[6], sym[7]]);
        let value = Vaddr(u64::from_le_bytes(sym[8..16].try_into().expect("eight bytes")));
        let bytes = u64::from_le_bytes(sym[16..24].try_into().expect("eight bytes"));
        if section == 0
            || section >= 0xff00
            || kind == STT_OBJECT
            || kind > 2 && kind != 10
            || image.exec_at(value).is_none()
        {
            continue;
        }
        if let Some((va, bytes)) = moved(insns, placed, value, bytes) {
            sym[6..8].copy_from_slice(&new_text.to_le_bytes());
            sym[8..16].copy_from_slice(&va.0.to_le_bytes());
            sym[16..24].copy_from_slice(&bytes.to_le_bytes());
        }
    }
    out
}

/// Adds the symbol at which gdb looks for shared libraries in a program without PT_INTERP (`solib_break_names` in its `solib-svr4.c`):
/// at `va`, where the dynamic loader enters the program, all initial libraries are there.
pub fn append_loaded(table: &mut Vec<u8>, names: &mut Vec<u8>, va: Vaddr, section: u16) {
    table.extend((names.len() as u32).to_le_bytes());
    table.extend([STB_GLOBAL << 4, 0]);
    table.extend(section.to_le_bytes());
    table.extend(va.0.to_le_bytes());
    table.extend([0; 8]);
    names.extend(b"_dl_debug_state\0");
}

/// A symbol table and its strings for a stripped file.
pub fn create(image: &Image, insns: &Insns, placed: &Placed, new_text: u16) -> (Vec<u8>, Vec<u8>) {
    let mut table = vec![0; SYM_BYTES];
    let mut names = vec![0];
    for f in &image.functions {
        let Some((va, bytes)) = moved(insns, placed, f.va, f.bytes) else { continue };
        table.extend((names.len() as u32).to_le_bytes());
        table.extend([STB_GLOBAL << 4 | STT_FUNC, 0]);
        table.extend(new_text.to_le_bytes());
        table.extend(va.0.to_le_bytes());
        table.extend(bytes.to_le_bytes());
        names.extend(f.name.as_bytes());
        names.push(0);
    }
    (table, names)
}
