//! `.eh_frame`: where it is, and what its pointers are relative to.
//!
//! Input: the section and the file image behind it. Output: what [`crate::read::fde`] and [`crate::read::lsda`] read from, and the list of what they refuse.
//! Source: System V psABI for x86-64 section 4.2.4, Linux Standard Base 5.0 section 10.6.

use crate::base::addresses::Vaddr;
use crate::base::error::{Error, Refusal, Result};
use crate::read::image::Image;
use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};

/// A section of the input: its link-time address and its bytes.
#[derive(Clone, Copy)]
pub struct Section<'a> {
    pub at: Vaddr,
    pub bytes: &'a [u8],
}

/// What the frames of a module are read from.
#[derive(Clone, Copy)]
pub struct FrameInput<'a> {
    pub eh_frame: Section<'a>,
    /// The file-backed bytes from an address to the end of its load segment (or section); `None` where nothing is
    /// mapped from the file. LSDAs have no length of their own and may lie in any section.
    pub tail: &'a dyn Fn(Vaddr) -> Option<&'a [u8]>,
    /// Base of `DW_EH_PE_textrel`: address of `.text`.
    pub text: Option<Vaddr>,
    /// Base of `DW_EH_PE_datarel`: address of `.got`.
    pub got: Option<Vaddr>,
}

/// Where the personality function's address is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Personality {
    /// The function itself.
    Direct(Vaddr),
    /// Eight bytes of data that hold the function's address at run time.
    Indirect(Vaddr),
}

pub(crate) type FrameBytes<'a> = EndianSlice<'a, LittleEndian>;

impl<'a> FrameInput<'a> {
    pub(crate) fn section(&self) -> EhFrame<FrameBytes<'a>> {
        let mut section = EhFrame::new(self.eh_frame.bytes, LittleEndian);
        section.set_address_size(8);
        section
    }

    pub(crate) fn bases(&self) -> BaseAddresses {
        let mut bases = BaseAddresses::default().set_eh_frame(self.eh_frame.at.0);
        bases.eh_frame.text = self.text.map(|a| a.0);
        bases.eh_frame.data = self.got.map(|a| a.0);
        bases
    }
}

/// `.eh_frame` of a file without a header that leads there, by its form, up to the end of its segment: only start-up code of such a program tells unwinders
/// where it is. The first place from which a common record and descriptions of code follow, up to a terminator.
pub(crate) fn search(image: &Image) -> Option<(Vaddr, u64)> {
    let constant = image.segments.iter().filter(|s| !s.writable && s.file_bytes != 0);
    constant.filter_map(|s| Some((s.va, image.bytes_at(s.va, usize::MAX)?))).find_map(|(va, bytes)| {
        let first = (va.0.next_multiple_of(8) - va.0) as usize;
        let places = (first..bytes.len()).step_by(8);
        let mut tables = places.map(|at| Section { at: va + at as u64, bytes: &bytes[at..] });
        tables.find(|table| is_table(image, *table)).map(|table| (table.at, table.bytes.len() as u64))
    })
}

fn is_table(image: &Image, eh_frame: Section) -> bool {
    // Behind the length: a common record, of version 1.
    if eh_frame.bytes.get(4..9) != Some(&[0, 0, 0, 0, 1]) {
        return false;
    }
    let input = FrameInput { eh_frame, tail: &|_| None, text: None, got: None };
    let (section, bases) = (input.section(), input.bases());
    let mut entries = section.entries(&bases);
    let mut described = 0;
    loop {
        match entries.next() {
            Ok(Some(CieOrFde::Cie(_))) => {}
            Ok(Some(CieOrFde::Fde(record))) => match record.parse(EhFrame::cie_from_offset) {
                Ok(fde) if fde.len() == 0 || image.exec_at(Vaddr(fde.initial_address())).is_some() => described += 1,
                _ => return false,
            },
            Ok(None) => return described > 0,
            Err(_) => return false,
        }
    }
}

/// Collects what is refused, so that one run reports all of it.
#[derive(Default)]
pub(crate) struct RefusedFrames {
    list: Vec<Refusal>,
}

impl RefusedFrames {
    pub(crate) fn add(&mut self, at: Vaddr, place: String, reason: impl std::fmt::Display) {
        self.list.push(Refusal { at, place, reason: reason.to_string() });
    }

    pub(crate) fn into_result(self, what: &str) -> Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        let mut error = Error::new(what);
        error.refusals = self.list;
        Err(error)
    }
}
