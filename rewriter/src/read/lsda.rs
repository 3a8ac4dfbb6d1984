//! Language-specific data areas: the call-site tables that personalities read.
//!
//! Input: the bytes of an LSDA and the start of its function. Output: [`Lsda`], with all code addresses resolved.
//!
//! The area is `lpstart encoding, [lpstart], type encoding, [uleb128 distance to the type table's base], call-site encoding,
//! uleb128 length, call sites`, then the action records, then the type table, which grows downwards from its base, then
//! the exception specifications, which grow upwards from it. Only the call-site table has a length.
//!
//! Where a function lies in several pieces with a frame each, LLVM gives each an area, one behind the other, whose table goes on
//! to the end of the *last* one's, because the actions begin there. A piece's own rows end where the next area begins: personalities
//! stop at the row that answers for an address, so they do not get there. Pieces that call nothing have an area that no frame names.
//!
//! Source: Itanium C++ ABI "Exception Handling Tables" section 7 (the tables as gcc's and LLVM's personalities read them).

use crate::base::addresses::Vaddr;
use crate::read::eh_frame::{FrameBytes, FrameInput};
use gimli::{DwEhPe, EndianSlice, LittleEndian, Reader};

/// One row of the call-site table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallSite {
    pub start: Vaddr,
    pub end: Vaddr,
    /// Where the personality resumes; `None`: the exception passes through.
    pub pad: Option<Vaddr>,
    /// 0: cleanup only; else 1 + the offset of the first action record.
    pub action: u64,
}

/// Call sites that a module may have. Far above any program's: it ends the work on files whose functions all share one
/// huge table.
pub(crate) const MAX_CALL_SITES: usize = 1 << 24;

/// A parsed LSDA.
#[derive(Debug)]
pub(crate) struct Lsda<'a> {
    pub call_sites: Vec<CallSite>,
    /// Everything behind the call-site table.
    pub actions: &'a [u8],
    /// Encoding of the type table and the offset of its base in `actions`.
    pub types: Option<(DwEhPe, u64)>,
    /// Address of `actions`.
    pub actions_at: Vaddr,
}

/// What an area begins with.
#[derive(PartialEq, Eq)]
struct Head {
    /// What landing pads are relative to, and whether that is said.
    pads_from: Vaddr,
    says_pads: bool,
    /// Encoding of the type table, and its base.
    types: Option<(DwEhPe, u64)>,
    /// Encoding of the call sites.
    sites: DwEhPe,
    /// Where the call-site table ends.
    end: Vaddr,
}

/// Reads encoded pointers of an area that lies at `at`.
struct Cursor<'a, 'i> {
    input: &'i FrameInput<'a>,
    at: Vaddr,
    all: FrameBytes<'a>,
    rest: FrameBytes<'a>,
}

impl Cursor<'_, '_> {
    fn here(&self) -> u64 {
        self.at.0.wrapping_add(self.rest.offset_from(self.all) as u64)
    }

    fn encoding(&mut self) -> Result<DwEhPe, String> {
        let e = DwEhPe(self.rest.read_u8().map_err(text)?);
        if !e.is_valid_encoding() {
            return Err(format!("pointer encoding {:#x}", e.0));
        }
        Ok(e)
    }

    /// The number without its base.
    fn value(&mut self, e: DwEhPe) -> Result<u64, String> {
        let r = &mut self.rest;
        match e.format() {
            gimli::DW_EH_PE_absptr | gimli::DW_EH_PE_udata8 | gimli::DW_EH_PE_sdata8 => r.read_u64(),
            gimli::DW_EH_PE_uleb128 => r.read_uleb128(),
            gimli::DW_EH_PE_sleb128 => r.read_sleb128().map(|v| v as u64),
            gimli::DW_EH_PE_udata2 => r.read_u16().map(u64::from),
            gimli::DW_EH_PE_sdata2 => r.read_i16().map(|v| v as u64),
            gimli::DW_EH_PE_udata4 => r.read_u32().map(u64::from),
            gimli::DW_EH_PE_sdata4 => r.read_i32().map(|v| v as u64),
            other => return Err(format!("pointer encoding {:#x}", other.0)),
        }
        .map_err(text)
    }

    /// A whole pointer to code.
    fn pointer(&mut self, e: DwEhPe, function: Vaddr) -> Result<Vaddr, String> {
        let base = match e.application() {
            gimli::DW_EH_PE_absptr => 0,
            gimli::DW_EH_PE_pcrel => self.here(),
            gimli::DW_EH_PE_textrel => self.input.text.ok_or("text-relative pointer, but there is no .text")?.0,
            gimli::DW_EH_PE_datarel => self.input.got.ok_or("data-relative pointer, but there is no .got")?.0,
            gimli::DW_EH_PE_funcrel => function.0,
            other => return Err(format!("pointer encoding {:#x}", other.0)),
        };
        if e.is_indirect() {
            return Err("indirect pointer to code".to_string());
        }
        Ok(Vaddr(base.wrapping_add(self.value(e)?)))
    }

    /// Reads up to the first call site.
    fn head(&mut self, function: Vaddr) -> Result<Head, String> {
        let (pads_from, says_pads) = match self.encoding()? {
            gimli::DW_EH_PE_omit => (function, false),
            e => (self.pointer(e, function)?, true),
        };
        let types = match self.encoding()? {
            gimli::DW_EH_PE_omit => None,
            e => {
                let distance = self.rest.read_uleb128().map_err(text)?;
                let base = self.here().checked_add(distance).ok_or("the type table lies behind the address space")?;
                Some((e, base))
            }
        };
        let sites = self.encoding()?;
        if sites.application() != gimli::DW_EH_PE_absptr || sites.is_indirect() {
            return Err(format!("call-site encoding {:#x}", sites.0));
        }
        let length = self.rest.read_uleb128().map_err(text)?;
        let end = self.here().checked_add(length).ok_or("the call-site table is longer than the file")?;
        Ok(Head { pads_from, says_pads, types, sites, end: Vaddr(end) })
    }

    /// Whether the area of the function's next piece begins here, or behind padding: it says the same of the same places.
    fn another_begins(&self, own: &Head, function: Vaddr) -> bool {
        if !own.says_pads {
            return false;
        }
        let from = |rest| Cursor { input: self.input, at: self.at, all: self.all, rest };
        let mut rest = self.rest;
        loop {
            if from(rest).head(function).is_ok_and(|head| head == *own) {
                return true;
            }
            if self.rest.len() - rest.len() == 3 || rest.read_u8() != Ok(0) {
                return false;
            }
        }
    }
}

pub(crate) fn text(e: gimli::Error) -> String {
    match e {
        gimli::Error::UnexpectedEof(_) => "it is cut off".to_string(),
        other => other.to_string(),
    }
}

impl<'a> Lsda<'a> {
    /// Reads the area at `at` that belongs to the code starting at `function`. `budget` is the number of call sites that
    /// the module may still have.
    pub fn parse(input: &FrameInput<'a>, at: Vaddr, function: Vaddr, budget: &mut usize) -> Result<Self, String> {
        let bytes = (input.tail)(at).ok_or("it lies outside the file's sections")?;
        let all = EndianSlice::new(bytes, LittleEndian);
        let mut c = Cursor { input, at, all, rest: all };
        let head = c.head(function)?;
        let actions_at = head.end;
        let length =
            usize::try_from(actions_at.0 - c.here()).map_err(|_| "the call-site table is longer than the file")?;
        let mut behind = c.rest;
        c.rest = behind.split(length).map_err(text)?;

        let mut call_sites = Vec::new();
        while !c.rest.is_empty() && !c.another_begins(&head, function) {
            *budget = budget.checked_sub(1).ok_or("the module has too many call sites")?;
            let start = c.value(head.sites)?;
            let bytes = c.value(head.sites)?;
            let pad = c.value(head.sites)?;
            let action = c.rest.read_uleb128().map_err(text)?;
            let start = function.0.checked_add(start);
            let end = start.and_then(|s| s.checked_add(bytes));
            let (Some(start), Some(end)) = (start, end) else {
                return Err("a call site wraps around the address space".to_string());
            };
            let pad = (pad != 0).then(|| Vaddr(head.pads_from.0.wrapping_add(pad)));
            call_sites.push(CallSite { start: Vaddr(start), end: Vaddr(end), pad, action });
        }
        let types = match head.types {
            None => None,
            Some((e, base)) => {
                let offset = base.checked_sub(actions_at.0).ok_or("the type table begins inside the call sites")?;
                Some((e, offset))
            }
        };
        Ok(Lsda { call_sites, actions: behind.slice(), types, actions_at })
    }
}
