//! The way of unwinders to a frame description: program header, search table, record.
//!
//! Input: program headers, and bytes by address. Output: [`Index`]. Unwinders find PT_GNU_EH_FRAME in the table that the dynamic loader or
//! the start-up code shows them. That is the table at e_phoff, which the kernel reads, or the one that the module info names. The
//! header leads to the search table, the table to `.eh_frame` and to the FDEs.
//!
//! **Invariant**: the search table has the one form for which unwinders search by halves.
//!
//! Source: LSB core 10.6.2 (`.eh_frame_hdr`); glibc `dl-find_object.c`, gcc `unwind-dw2-fde-dip.c` (what is read).

use crate::file::memory::{PT_GNU_EH_FRAME, Phdr};

/// Bytes of the search table's head and of each of its rows.
pub(crate) const HEAD_BYTES: usize = 12;
pub(crate) const ROW_BYTES: usize = 8;
/// Version; a distance of four bytes to `.eh_frame`; a count of four bytes; rows of two distances of four bytes from the table's beginning.
const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// The search table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    pub va: u64,
    /// Address of `.eh_frame`.
    pub frames: u64,
    /// Address of the code, address of the FDE.
    pub rows: Vec<(u64, u64)>,
}

pub(crate) fn frame_headers(table: &[Phdr]) -> impl Iterator<Item = &Phdr> {
    table.iter().filter(|h| h.kind == PT_GNU_EH_FRAME)
}

/// Where PT_GNU_EH_FRAME of a table of program headers leads. `tail`: the bytes from an address to the end of its segment's part of the file.
///
/// # Errors
/// It leads nowhere, or what stands there has another form.
pub fn read<'a>(table: &[Phdr], tail: &dyn Fn(u64) -> Option<&'a [u8]>) -> Result<Option<Index>, String> {
    let Some(header) = frame_headers(table).next() else { return Ok(None) };
    let va = header.va;
    let bytes = tail(va).ok_or_else(|| format!("PT_GNU_EH_FRAME leads to {va:#x}, where the file has nothing"))?;
    let head = bytes.get(..HEAD_BYTES).ok_or("the search table of the frames is cut off")?;
    if head[..4] != FORM {
        return Err(format!("the search table of the frames begins with {:02x?}", &head[..4]));
    }
    let word = |b: &[u8], at: usize| [0, 1, 2, 3].map(|k| b[at + k]);
    let distance = |b: &[u8], at: usize| i32::from_le_bytes(word(b, at)) as i64 as u64;
    let frames = va.wrapping_add(4).wrapping_add(distance(head, 4));
    let count = u32::from_le_bytes(word(head, 8)) as usize;
    let rows = bytes[HEAD_BYTES..].get(..count.saturating_mul(ROW_BYTES));
    let rows = rows.ok_or_else(|| format!("the search table of the frames has {count} rows, more than the file"))?;
    let row = |r: &[u8]| (va.wrapping_add(distance(r, 0)), va.wrapping_add(distance(r, 4)));
    Ok(Some(Index { va, frames, rows: rows.chunks_exact(ROW_BYTES).map(row).collect() }))
}
