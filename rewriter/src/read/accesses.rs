//! The accesses of a rewritten file that may fault, by the names that the runtime has for them.
//!
//! Input: the bytes of any file. Output: [`Accesses`], of a file with guarded code. Damaged files have none. **Invariant**: an access leads to the place in the original
//! that its row names, or to none.

use crate::base::addresses::Vaddr;
use crate::base::learnt::Object;
use crate::read::rewritten::{self, module_info};
use blizzard_contract::module_flags;
use gimli::{EndianSlice, LittleEndian};
use object::{Object as _, ObjectSection};

/// Name of the output section that says where the accesses of the version table stand in the original: that file's [`Object`], then for each row how far its
/// access is from the one before, in unsigned LEB128; the first from [`blizzard_contract::ModuleInfo::old_base_va`]. The runtime does not read it.
pub const SECTION: &str = ".blizzard.accesses";

/// Those of one file.
#[derive(Debug)]
pub struct Accesses {
    /// What the file was made from.
    pub object: Object,
    /// As [`blizzard_contract::LearntPlace`] names them, and where they stand in the original; ascending.
    rows: Vec<(u64, Vaddr)>,
}

/// What a rewritten file with guarded code was made from; none if it is no such file.
pub fn object_of(file: &[u8]) -> Option<Object> {
    let elf = object::File::parse(file).ok()?;
    let record = elf.section_by_name(SECTION)?.data().ok()?;
    Some(Object(record.first_chunk().copied()?))
}

impl Accesses {
    /// Those of `file`, if `wanted` wants the number that the runtime has for it.
    pub fn of(file: &[u8], wanted: impl FnOnce(u32) -> bool) -> Option<Accesses> {
        let elf = object::File::parse(file).ok()?;
        let info = module_info(file)?;
        if info.flags & module_flags::GUARD == 0 || !wanted(info.number()) {
            return None;
        }
        let record = elf.section_by_name(SECTION)?.data().ok()?;
        let (&object, codes) = record.split_first_chunk()?;
        let table = (info.version_codes_va, info.version_code_bytes);
        let table = rewritten::map_rows(file, table, (info.version_heads_va, info.version_count))?;
        let mut codes = EndianSlice::new(codes, LittleEndian);
        let mut at = info.old_base_va;
        let mut rows = Vec::with_capacity(table.len());
        for row in table {
            at = at.wrapping_add(gimli::leb128::read::unsigned(&mut codes).ok()?);
            rows.push((u64::from(info.number()) << 32 | u64::from(row.old), Vaddr(at)));
        }
        Some(Accesses { object: Object(object), rows })
    }

    /// Where an access stands in the original.
    pub fn find(&self, access: u64) -> Option<Vaddr> {
        let k = self.rows.binary_search_by_key(&access, |row| row.0).ok()?;
        Some(self.rows[k].1)
    }
}
