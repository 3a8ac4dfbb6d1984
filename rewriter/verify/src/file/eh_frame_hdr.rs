//! The way of unwinders to a frame description: program header, search table, record.
//!
//! Input: the file's bytes and load segments. Output: [`Index`]. Unwinders find PT_GNU_EH_FRAME in the table that the dynamic loader or
//! the start-up code shows them. That is the table at e_phoff, which the kernel reads, or the one that the module info names. The
//! header leads to the search table, the table to `.eh_frame` and to the FDEs.
//!
//! **Invariant**: the search table has the one form for which unwinders search by halves.
//!
//! Source: LSB core 10.6.2 (`.eh_frame_hdr`); glibc `dl-find_object.c`, gcc `unwind-dw2-fde-dip.c` (what is read).

use object::elf;

/// A program header: kind, and all that leads to what it describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    kind: u32,
    pub(crate) file_off: u64,
    pub(crate) va: u64,
    pub(crate) file_bytes: u64,
    pub(crate) mem_bytes: u64,
}

/// Bytes of a program header (gABI, Elf64_Phdr).
pub(crate) const HEADER_BYTES: usize = 56;
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

/// Reads a table of program headers.
pub(crate) fn headers(bytes: &[u8]) -> Vec<Header> {
    let number = |b: &[u8]| b.iter().rev().fold(0u64, |v, &x| v << 8 | u64::from(x));
    let read = |h: &[u8]| Header {
        kind: number(&h[..4]) as u32,
        file_off: number(&h[8..16]),
        va: number(&h[16..24]),
        file_bytes: number(&h[32..40]),
        mem_bytes: number(&h[40..48]),
    };
    bytes.chunks_exact(HEADER_BYTES).map(read).collect()
}

/// The table at e_phoff.
pub(crate) fn of_the_kernel(file: &[u8]) -> Option<Vec<Header>> {
    let off = u64::from_le_bytes(file.get(32..40)?.try_into().ok()?);
    let count = u16::from_le_bytes(file.get(56..58)?.try_into().ok()?);
    let off = usize::try_from(off).ok()?;
    Some(headers(file.get(off..off.checked_add(HEADER_BYTES * usize::from(count))?)?))
}

pub(crate) fn frame_headers(table: &[Header]) -> impl Iterator<Item = &Header> {
    table.iter().filter(|h| h.kind == elf::PT_GNU_EH_FRAME.0)
}

/// Where PT_GNU_EH_FRAME of a file leads. `tail`: the bytes from an address to the end of its segment's part of the file.
///
/// # Errors
/// It leads nowhere, or what stands there has another form.
pub fn read<'a>(file: &'a [u8], tail: &dyn Fn(u64) -> Option<&'a [u8]>) -> Result<Option<Index>, String> {
    let table = of_the_kernel(file).ok_or("the program headers lie outside the file")?;
    let Some(header) = frame_headers(&table).next() else { return Ok(None) };
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
