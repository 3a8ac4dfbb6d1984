//! The trap map as it stands in the output: the codes of its rows, then the heads of its groups.
//!
//! Input: rows by rising old address. Output: bytes in the read-only segment, and where they are. The form is that of
//! [`blizzard_contract::trap_map`].

use crate::base::ids::Vaddr;
use crate::write::file::ReadOnly;
use blizzard_contract::trap_map::{self, GROUP};
use blizzard_contract::{TrapEntry, TrapHead};

/// Where the map is.
pub struct Written {
    pub codes: Vaddr,
    pub code_bytes: u64,
    pub heads: Vaddr,
    pub end: Vaddr,
    pub rows: u64,
}

/// Writes it.
pub(super) fn write(ro: &mut ReadOnly<'_, '_>, rows: impl Iterator<Item = TrapEntry>) -> Written {
    let codes = ro.reserve(8, 0);
    let mut heads = Vec::new();
    let (mut count, mut code_bytes) = (0, 0);
    let mut before = TrapEntry { old: 0, new: 0 };
    for row in rows {
        if count % GROUP == 0 {
            heads.push(TrapHead { old: row.old, new: row.new, at: code_bytes });
        } else {
            let (code, bytes) = trap_map::encode(before, row);
            ro.file.extend(&code[..bytes]);
            code_bytes += bytes as u32;
        }
        before = row;
        count += 1;
    }
    let heads_va = ro.reserve(align_of::<TrapHead>() as u64, 0);
    for head in heads {
        [head.old, head.new, head.at].iter().for_each(|word| ro.file.extend(&word.to_le_bytes()));
    }
    Written { codes, code_bytes: code_bytes.into(), heads: heads_va, end: ro.next(1), rows: count as u64 }
}
