//! `.eh_frame_hdr`: the binary search table that unwinders find an FDE with.
//!
//! Input: the FDEs' code addresses and record addresses, in any order. Output: the section's bytes.
//!
//! Invariant: exactly the form that libgcc's fast path wants (version 1, four-byte fields relative to the section), sorted.
//!
//! Source: Linux Standard Base 5.0 section 10.6.2.

use crate::base::addresses::Vaddr;
use crate::base::error::{Error, Result};
use crate::write::frames::cfi::PCREL4;
use gimli::{DW_EH_PE_datarel, DW_EH_PE_sdata4, DW_EH_PE_udata4};

/// Bytes before the table.
const HEADER_BYTES: usize = 12;
const ENTRY_BYTES: usize = 8;

/// Bytes of the section for `fdes` entries.
pub(super) fn bytes(fdes: usize) -> usize {
    HEADER_BYTES + fdes * ENTRY_BYTES
}

/// Writes the section for address `at`; `entries` holds (first address of the code, address of the FDE).
pub(super) fn write(at: Vaddr, eh_frame: Vaddr, mut entries: Vec<(Vaddr, Vaddr)>) -> Result<Vec<u8>> {
    entries.sort_unstable();
    let relative = |to: Vaddr, from: Vaddr| {
        let distance = i32::try_from((to - from) as i64);
        distance.map_err(|_| Error::new(format!("{to} is out of reach of .eh_frame_hdr at {from}")))
    };
    let count = u32::try_from(entries.len()).map_err(|_| Error::new("more than 2^32 frames"))?;
    let mut out = Vec::with_capacity(bytes(entries.len()));
    out.extend([1, PCREL4.0, DW_EH_PE_udata4.0, DW_EH_PE_datarel.0 | DW_EH_PE_sdata4.0]);
    out.extend(relative(eh_frame, at + out.len() as u64)?.to_le_bytes());
    out.extend(count.to_le_bytes());
    for (code, fde) in entries {
        out.extend(relative(code, at)?.to_le_bytes());
        out.extend(relative(fde, at)?.to_le_bytes());
    }
    Ok(out)
}
