//! Where callers' registers are, as the nodes read it: a row for each stretch of code whose frames are alike.
//!
//! Input: a rewritten file. Output: [`FrameRow`]s with addresses of the file. What has no simple rule is left out: a walk ends there.
//! Source: DWARF 5, 6.4; psABI 3.6.2 (numbers of registers).

use blizzard_contract::FrameRow;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, NativeEndian, Register, RegisterRule, UnwindContext, UnwindSection,
};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;
use std::ops::Range;

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);

/// The rows of code in `range`, by where they begin.
pub fn rows(file: &object::File<'_>, range: &Range<u64>) -> BTreeMap<u64, FrameRow> {
    let mut all = BTreeMap::new();
    let Some(section) = file.section_by_name(".eh_frame") else { return all };
    let Ok(data) = section.uncompressed_data() else { return all };
    let text = file.section_by_name(".text").map_or(0, |text| text.address());
    let bases = BaseAddresses::default().set_eh_frame(section.address()).set_text(text);
    let mut frames = EhFrame::new(&data, NativeEndian);
    frames.set_address_size(8);
    let mut context = UnwindContext::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
        if !range.contains(&fde.initial_address()) {
            continue;
        }
        let Ok(mut table) = fde.rows(&frames, &bases, &mut context) else { continue };
        let end = fde.initial_address() + fde.len();
        while let Ok(Some(row)) = table.next_row() {
            let (cfa, rbp) = simple(row).unwrap_or_default();
            all.insert(row.start_address(), FrameRow { start: row.start_address(), cfa, rbp });
        }
        all.entry(end).or_insert(FrameRow { start: end, cfa: 0, rbp: 0 });
    }
    all
}

/// [`FrameRow::cfa`] and [`FrameRow::rbp`], if they can say it.
fn simple(row: &gimli::UnwindTableRow<usize>) -> Option<(i32, i32)> {
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let base = match *register {
        RSP => FrameRow::FROM_RSP,
        RBP => FrameRow::FROM_RBP,
        _ => return None,
    };
    let offset = i32::try_from(*offset).ok().filter(|offset| offset & FrameRow::BASE == 0)?;
    if row.register(RETURN_ADDRESS) != Some(RegisterRule::Offset(-8)) {
        return None;
    }
    let rbp = match row.register(RBP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => 0,
        Some(RegisterRule::Offset(at)) => i32::try_from(at).ok()?,
        Some(_) => return None,
    };
    Some((offset | base, rbp))
}
