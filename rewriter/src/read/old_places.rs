//! From places in new code back to the original's instructions.
//!
//! Input: the bytes of a rewritten file. Output: [`OldPlaces`]. Places in full versions of guarded code and in inserted code that stands apart have none.
//! **Invariant**: an address is that of the instruction whose new code holds the place. The trap map has all instructions but those whose old addresses hold
//! springboards; these lead to the new code themselves.

use crate::read::rewritten::{self, module_info};
use blizzard_contract::{ModuleInfo, TrapEntry, module_flags};

/// Jumps that lead from one springboard to the next, at most.
const CHAIN: usize = 8;
/// Bytes of old code in which springboards are looked for behind a row.
const REACH: u32 = 4096;

/// Of one file.
#[derive(Debug)]
pub struct OldPlaces {
    file: Vec<u8>,
    info: ModuleInfo,
    /// By where the new code begins.
    rows: Vec<TrapEntry>,
}

impl OldPlaces {
    /// Of a rewritten file.
    pub fn of(file: Vec<u8>) -> Option<OldPlaces> {
        let info = module_info(&file)?;
        let (codes, heads) = ((info.trap_codes_va, info.trap_code_bytes), (info.trap_heads_va, info.trap_count));
        let mut rows = rewritten::map_rows(&file, codes, heads)?;
        rows.sort_unstable_by_key(|row| (row.new, row.old));
        Some(OldPlaces { file, info, rows })
    }

    /// The address in the original of what runs at an address in new code.
    pub fn find(&self, at: u64) -> Option<u64> {
        let offset = u32::try_from(at.checked_sub(self.info.new_base_va)?).ok()?;
        if self.info.flags & module_flags::GUARD != 0 && u64::from(offset) >= self.info.full_at {
            return None;
        }
        let k = self.rows.partition_point(|row| row.new <= offset);
        let row = self.rows[k.checked_sub(1)?];
        let end = self.rows.get(k).map_or(u32::MAX, |next| next.old).min(row.old.saturating_add(REACH));
        let boarded = (row.old + 1..end).filter_map(|old| Some((self.leads_to(old)?, old)));
        let boarded = boarded.filter(|(to, _)| (row.new + 1..=offset).contains(to)).max();
        Some(self.info.old_base_va + u64::from(boarded.map_or(row.old, |(_, old)| old)))
    }

    /// Where in the new code the springboard leads that stands there in the old code, if one does.
    fn leads_to(&self, old: u32) -> Option<u32> {
        let mut at = self.info.old_base_va + u64::from(old);
        for _ in 0..CHAIN {
            match *rewritten::loaded(&self.file, at, 2)? {
                [0xeb, distance] => at = (at + 2).wrapping_add_signed(i64::from(distance as i8)),
                [0xe9, _] => {
                    let distance = rewritten::loaded(&self.file, at + 1, 4)?.first_chunk()?;
                    let to = (at + 5).wrapping_add_signed(i64::from(i32::from_le_bytes(*distance)));
                    return u32::try_from(to.checked_sub(self.info.new_base_va)?).ok();
                }
                _ => return None,
            }
        }
        None
    }
}
