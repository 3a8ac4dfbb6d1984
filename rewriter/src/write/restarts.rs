//! The restart table as it stands in the output: the codes of its rows, then the heads of its groups.
//!
//! Input: rows, ascending. Output: bytes in the read-only segment, and where they are. The form is that of [`blizzard_contract::restarts`].

use crate::base::ids::Vaddr;
use crate::write::file::ReadOnly;
use blizzard_contract::RestartHead;
use blizzard_contract::restarts::{self, GROUP, Restart};

/// Name of the output section that holds the table.
pub(super) const SECTION: &str = ".blizzard.restarts";

/// Where the table is.
pub(super) struct Written {
    pub codes: Vaddr,
    pub code_bytes: u64,
    pub heads: Vaddr,
    pub end: Vaddr,
    pub rows: u64,
}

/// Writes it.
pub(super) fn write(ro: &mut ReadOnly<'_, '_>, rows: impl Iterator<Item = Restart>) -> Written {
    let codes = ro.reserve(4, 0);
    let mut heads = Vec::new();
    let (mut count, mut code_bytes) = (0, 0);
    let mut before = None;
    for row in rows {
        if count % GROUP == 0 {
            heads.push(RestartHead { check: row.check, at: code_bytes });
            before = None;
        }
        let (code, bytes) = restarts::encode(before, row);
        ro.file.extend(&code[..bytes]);
        code_bytes += bytes as u32;
        before = Some(row);
        count += 1;
    }
    let heads_va = ro.reserve(align_of::<RestartHead>() as u64, 0);
    for head in heads {
        [head.check, head.at].iter().for_each(|word| ro.file.extend(&word.to_le_bytes()));
    }
    Written { codes, code_bytes: code_bytes.into(), heads: heads_va, end: ro.next(1), rows: count as u64 }
}
