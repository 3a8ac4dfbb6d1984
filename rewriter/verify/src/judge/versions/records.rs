//! Where the accesses of the version table stand in the original, as the file records for learning.
//!
//! Input: pairs of versions, old and new addresses, the original file. Output: findings. **Invariant**: the record names the original, and for each row of the version
//! table the instruction there that the access was. A stripped file has no record. Source: `rewriter/SEQUENCES.md`, "Guarded code".

use crate::audit::Audit;
use crate::file::module::Module;
use crate::judge::versions::pairs::Versions;
use gimli::{EndianSlice, LittleEndian};
use sha2::{Digest, Sha256};

const SECTION: &str = ".blizzard.accesses";
/// So much of the original's SHA-256 names it.
const NAME_BYTES: usize = 8;

/// `pairs`: old and new addresses, in the order of the old ones.
pub(crate) fn judge(m: &Module, v: &Versions, pairs: &[(u64, u64)], original: &[u8], audit: &mut Audit) {
    let Some(section) = m.sections.iter().find(|s| s.name == SECTION) else { return };
    let mut open = |va: u64, why: &str| audit.finding(va, m.place(va), format!("the record of accesses {why}"));
    let Some((name, codes)) = section.data.split_at_checked(NAME_BYTES) else {
        return open(section.va, "ends early");
    };
    if *name != Sha256::digest(original)[..NAME_BYTES] {
        open(section.va, "names another original");
    }
    let mut codes = EndianSlice::new(codes, LittleEndian);
    let mut at = m.info.old_base_va;
    for &(access, _) in &v.rows {
        let Ok(step) = gimli::leb128::read::unsigned(&mut codes) else { return open(access, "ends early") };
        at = at.wrapping_add(step);
        let own = |va: u64| v.plain.code.at(va).map(|k| v.plain.own_from(k));
        let new = pairs.binary_search_by_key(&at, |p| p.0).ok().map(|k| pairs[k].1);
        if new.and_then(own) != own(access) {
            open(access, &format!("has {at:#x} for it, which became something else"));
        }
    }
    if !codes.is_empty() {
        open(section.va, "goes on behind the last row");
    }
}
