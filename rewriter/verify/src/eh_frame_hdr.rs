//! The way of unwinders to a frame description: program header, search table, record.
//!
//! Input: the file's bytes and load segments. Output: [`Index`], and findings. Unwinders find PT_GNU_EH_FRAME in the table that the dynamic loader or
//! the start-up code shows them. That is the table at e_phoff, which the kernel reads, or the one that the module info names. Both must say the same. The
//! header leads to the search table, the table to `.eh_frame` and to the FDEs.
//!
//! **Invariants**
//! * the search table has the one form for which unwinders search by halves;
//! * its rows ascend; each leads to an FDE of `.eh_frame` and says where the code of that FDE begins; each FDE has one row.
//!
//! Source: LSB core 10.6.2 (`.eh_frame_hdr`); glibc `dl-find_object.c`, gcc `unwind-dw2-fde-dip.c` (what is read).

use super::audit::Audit;
use super::frames::Frames;
use super::module::Module;
use object::elf;

/// A program header: kind, and all that leads to what it describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    kind: u32,
    file_off: u64,
    va: u64,
    file_bytes: u64,
    mem_bytes: u64,
}

/// Bytes of a program header (gABI, Elf64_Phdr).
const HEADER_BYTES: usize = 56;
/// Bytes of the search table's head and of each of its rows.
const HEAD_BYTES: usize = 12;
const ROW_BYTES: usize = 8;
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
fn headers(bytes: &[u8]) -> Vec<Header> {
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
fn of_the_kernel(file: &[u8]) -> Option<Vec<Header>> {
    let off = u64::from_le_bytes(file.get(32..40)?.try_into().ok()?);
    let count = u16::from_le_bytes(file.get(56..58)?.try_into().ok()?);
    let off = usize::try_from(off).ok()?;
    Some(headers(file.get(off..off.checked_add(HEADER_BYTES * usize::from(count))?)?))
}

fn frame_headers(table: &[Header]) -> impl Iterator<Item = &Header> {
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

/// Proves headers and table against the frames, which were read from where the table says.
pub fn prove(m: &Module, index: Option<&Index>, frames: &Frames, audit: &mut Audit) {
    let Some(index) = index else {
        if !frames.list.is_empty() {
            audit.finding(frames.list[0].record, "program headers".into(), "no PT_GNU_EH_FRAME leads to the frames");
        }
        return;
    };
    let mut problem = |place: &str, why: String| audit.finding(index.va, place.into(), why);
    let bytes = (HEAD_BYTES + ROW_BYTES * index.rows.len()) as u64;
    let mut tables = vec![("program headers", of_the_kernel(m.file).unwrap_or_default())];
    if m.info.phdr_va != 0 {
        let count = usize::try_from(m.info.phdr_count).unwrap_or(0).min(1 << 16);
        let shown = m.bytes_at(m.info.phdr_va, count * HEADER_BYTES).unwrap_or(&[]);
        tables.push(("program headers for the dynamic loader", headers(shown)));
    }
    for (place, table) in tables {
        let all: Vec<&Header> = frame_headers(&table).collect();
        let [h] = all[..] else {
            problem(place, format!("{} of PT_GNU_EH_FRAME", all.len()));
            continue;
        };
        if (h.va, h.file_bytes, h.mem_bytes) != (index.va, bytes, bytes) {
            problem(place, format!("PT_GNU_EH_FRAME is not the table of {bytes} bytes at {:#x}", index.va));
        }
        let loaded = m.segments.iter().find(|s| h.va.wrapping_sub(s.va) < s.file_bytes);
        if loaded.is_none_or(|s| h.file_off.wrapping_sub(s.file_off) != h.va.wrapping_sub(s.va)) {
            problem(place, "PT_GNU_EH_FRAME stands elsewhere in the file than in memory".into());
        }
    }
    if !index.va.is_multiple_of(4) {
        problem("search table of the frames", "it is not aligned: unwinders do not search it".into());
    }
    let mut rows = index.rows.iter();
    for f in &frames.list {
        match rows.next() {
            Some(&row) if row == (f.from, f.record) => {}
            row => {
                let row = row.map_or("nothing".into(), |r| format!("{:#x} for the code at {:#x}", r.1, r.0));
                let why = format!("it leads to {row}; the next frame is {:#x} for the code at {:#x}", f.record, f.from);
                // One row too many or too few changes all that follow.
                return problem("search table of the frames", why);
            }
        }
    }
    if rows.next().is_some() {
        problem("search table of the frames", format!("it has {} rows, more than there are frames", index.rows.len()));
    }
}
