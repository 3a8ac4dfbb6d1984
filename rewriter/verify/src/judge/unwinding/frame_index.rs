//! The search table of the frames is right, and both tables of program headers lead to it.
//!
//! Input: module, the search table, the frames that were read from where it says, the runtime's own. Output: findings.
//!
//! **Invariants**
//! * the kernel's and the loader's program headers say the same of it;
//! * its rows ascend; each leads to an FDE of `.eh_frame`, or to one of the runtime's own, and says where the code of that FDE begins;
//! * each FDE of either has one row. The runtime's stand in its bytes, which are those of a known one (`judge/file/runtime.rs`).
//!
//! Source: LSB core 10.6.2 (`.eh_frame_hdr`).

use crate::audit::Audit;
use crate::file::eh_frame_hdr::{HEAD_BYTES, Index, ROW_BYTES, frame_headers};
use crate::file::frames::Frames;
use crate::file::memory::Phdr;
use crate::file::module::Module;

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
    let tables = [("program headers", &m.kernel), ("program headers for the dynamic loader", &m.loader)];
    for (place, table) in tables {
        let all: Vec<&Phdr> = frame_headers(table).collect();
        let [h] = all[..] else {
            problem(place, format!("{} of PT_GNU_EH_FRAME", all.len()));
            continue;
        };
        if (h.va, h.file, h.mem) != (index.va, bytes, bytes) {
            problem(place, format!("PT_GNU_EH_FRAME is not the table of {bytes} bytes at {:#x}", index.va));
        }
        let loaded = m.segments.iter().find(|s| h.va.wrapping_sub(s.va) < s.file_bytes);
        if loaded.is_none_or(|s| h.off.wrapping_sub(s.file_off) != h.va.wrapping_sub(s.va)) {
            problem(place, "PT_GNU_EH_FRAME stands elsewhere in the file than in memory".into());
        }
    }
    if !index.va.is_multiple_of(4) {
        problem("search table of the frames", "it is not aligned: unwinders do not search it".into());
    }
    let runtime = match m.runtime_frames() {
        Ok(runtime) => runtime,
        Err(why) => return problem("search table of the frames", why),
    };
    let mut all: Vec<(u64, u64)> = frames.list.iter().chain(&runtime.list).map(|f| (f.from, f.record)).collect();
    all.sort_unstable();
    let mut rows = index.rows.iter();
    for (from, record) in all {
        match rows.next() {
            Some(&row) if row == (from, record) => {}
            row => {
                let row = row.map_or("nothing".into(), |r| format!("{:#x} for the code at {:#x}", r.1, r.0));
                let why = format!("it leads to {row}; the next frame is {record:#x} for the code at {from:#x}");
                // One row too many or too few changes all that follow.
                return problem("search table of the frames", why);
            }
        }
    }
    if rows.next().is_some() {
        problem("search table of the frames", format!("it has {} rows, more than there are frames", index.rows.len()));
    }
}
