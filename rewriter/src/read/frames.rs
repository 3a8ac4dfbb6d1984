//! The frames of a module: which code each describes, and where exceptions may continue.
//!
//! Input: the original `.eh_frame` and the file image behind it ([`FrameInput`]). Output: [`FrameInfo`]. **Invariant**: nothing of the input is
//! believed: every malformed record is an error with its address, never a panic.
//! Source: Linux Standard Base 5.0 section 10.6 (`.eh_frame`), Itanium C++ ABI "Exception Handling Tables" (LSDA).

use crate::base::addresses::Vaddr;
use crate::base::error::Result;
use crate::read::eh_frame::{FrameInput, Personality, RefusedFrames, Section};
use crate::read::image::Image;
use crate::read::{fde, lsda};

/// The frames of a module as roots for disassembly.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FrameInfo {
    /// In the order of `.eh_frame`. Those without file-backed code behind them are left out.
    pub fdes: Vec<FdeInfo>,
}

/// One FDE of the input: usually one function, or one part of a function that was split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdeInfo {
    /// Address of the record in `.eh_frame`.
    pub record: Vaddr,
    /// The code described is `[start, end)`.
    pub start: Vaddr,
    pub end: Vaddr,
    /// The frame of a signal trampoline (`S`): its return addresses are those of interrupted instructions.
    pub signal: bool,
    /// It begins in the middle of a function: the stack there is not that of a function just called. Compilers describe the rare parts of
    /// functions so, which they put elsewhere.
    pub fragment: bool,
    pub personality: Option<Personality>,
    pub lsda: Option<Vaddr>,
    /// Addresses that the personality may resume at, ascending, each once. They may lie outside `[start, end)`.
    pub landing_pads: Vec<Vaddr>,
    /// The code from which it may do so, ascending: calls, and, where a signal's handler may throw (-fnon-call-exceptions), what may fault.
    pub caught: Vec<(Vaddr, Vaddr)>,
    /// The code in which its frame is found by a register other than rsp, ascending, with the register's number in DWARF.
    pub found_by: Vec<(Vaddr, Vaddr, u16)>,
}

impl FrameInfo {
    /// All landing pads of the module, ascending, each once.
    pub fn landing_pads(&self) -> Vec<Vaddr> {
        let mut all: Vec<Vaddr> = self.fdes.iter().flat_map(|f| f.landing_pads.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Lists the FDEs of a module with their landing pads.
///
/// # Errors
/// Every record that cannot be understood, as refusals of one error.
pub fn parse(input: &FrameInput) -> Result<FrameInfo> {
    let mut refused = RefusedFrames::default();
    let mut info = FrameInfo::default();
    let mut budget = lsda::MAX_CALL_SITES;
    fde::each(input, &mut refused, |fde, refused| {
        if !fde.has_code(input) {
            // Left by a linker that threw the function away.
            return;
        }
        let (mut landing_pads, mut caught) = (Vec::new(), Vec::new());
        if let Some(at) = fde.lsda {
            match lsda::Lsda::parse(input, at, fde.start, &mut budget) {
                Ok(lsda) => {
                    landing_pads.extend(lsda.call_sites.iter().filter_map(|c| c.pad));
                    caught.extend(lsda.call_sites.iter().filter(|c| c.pad.is_some()).map(|c| (c.start, c.end)));
                    landing_pads.sort_unstable();
                    landing_pads.dedup();
                }
                Err(reason) => refused.add(at, format!("LSDA of the code at {}", fde.start), reason),
            }
        }
        info.fdes.push(FdeInfo {
            record: fde.record,
            start: fde.start,
            end: fde.end,
            signal: fde.signal,
            fragment: fde.is_fragment(input),
            personality: fde.personality,
            lsda: fde.lsda,
            landing_pads,
            caught,
            found_by: fde.found_by(input),
        });
    });
    refused.into_result("unwind tables that cannot be read")?;
    Ok(info)
}

/// What the frames of `image` are read from; `tail` gives the bytes behind an address. None: it has no frames.
pub fn frame_input<'x>(image: &'x Image, tail: &'x dyn Fn(Vaddr) -> Option<&'x [u8]>) -> Option<FrameInput<'x>> {
    let (at, bytes) = image.eh_frame?;
    let bytes = image.bytes_at(at, usize::try_from(bytes).ok()?)?;
    let text = image.exec.iter().find(|s| s.name == ".text").map(|s| s.va);
    Some(FrameInput { eh_frame: Section { at, bytes }, tail, text, got: image.got })
}
