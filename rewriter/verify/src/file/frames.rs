//! Frame descriptions as unwinders read them.
//!
//! Input: the bytes of an `.eh_frame` from its address on, and how to find the LSDAs. Output: [`Frames`]: every FDE with its range, its rows, what its CIE
//! says of it, and its LSDA, sorted by address. Read with `gimli`. Where rows find the same registers in the same way, they share that list.
//!
//! **Invariant:** what is not understood is an error. Source: LSB core (`.eh_frame`), DWARF 5 section 6.4.

use crate::file::lsda::Lsda;
use foldhash::HashSet;
use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, CieOrFde, EhFrame, FrameDescriptionEntry, LittleEndian, Pointer,
    Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
};
use std::rc::Rc;

type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

/// Where the caller's frame begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cfa {
    Register(Register, i64),
    Expression(Vec<u8>),
}

/// How a register of the caller is found: the rule's kind, its number, its expression.
pub type Rule = (Register, u8, i64, Vec<u8>);

/// The rules from an address on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CfaRow {
    pub from: u64,
    pub cfa: Cfa,
    pub registers: Rc<[Rule]>,
}

/// What the CIE says: personality routine, return address register, signal frame.
pub type CieKind = (Option<Pointer>, Register, bool);

/// One function's frame description.
#[derive(Debug)]
pub struct Fde<'a> {
    /// Address of the record.
    pub record: u64,
    pub from: u64,
    pub to: u64,
    pub rows: Vec<CfaRow>,
    /// From an address on, the bytes of arguments on the stack, which unwinders give back where they enter a landing pad (DW_CFA_GNU_args_size).
    pub arguments: Vec<(u64, u64)>,
    /// From here on the rules are not defined: a step moves a frame address that is found by an expression (OpenSSL's assembly).
    pub defined_to: u64,
    pub kind: CieKind,
    pub lsda: Option<Lsda<'a>>,
}

impl Fde<'_> {
    /// The rules for a place, by what `execute_cfa_program` of libgcc does.
    pub fn row(&self, va: u64) -> Option<&CfaRow> {
        self.rows[..self.rows.partition_point(|r| r.from <= va)].last()
    }

    /// The bytes of arguments that the caller at `va` has pushed.
    pub fn argument_bytes(&self, va: u64) -> u64 {
        self.arguments.iter().rev().find(|a| a.0 <= va).map_or(0, |a| a.1)
    }
}

/// Where a table begins that no header leads to, in a segment with these bytes at `va`: a common record, and descriptions of code up to a terminator.
pub fn search(bytes: &[u8], va: u64, is_code: &dyn Fn(u64) -> bool) -> Option<u64> {
    const COMMON_OF_VERSION_1: [u8; 5] = [0, 0, 0, 0, 1];
    let is_table = |bytes: &[u8], va: u64| {
        let eh = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(va);
        let (mut entries, mut some) = (eh.entries(&bases), false);
        while let Some(entry) = entries.next()? {
            let CieOrFde::Fde(partial) = entry else { continue };
            let fde = partial.parse(EhFrame::cie_from_offset)?;
            if fde.len() != 0 && !is_code(fde.initial_address()) {
                return Ok(false);
            }
            some = true;
        }
        Ok::<_, gimli::Error>(some)
    };
    let mut places = (va.checked_next_multiple_of(8)?..va.saturating_add(bytes.len() as u64)).step_by(8);
    places.find(|&at| {
        let bytes = &bytes[(at - va) as usize..];
        bytes.get(4..9) == Some(&COMMON_OF_VERSION_1) && is_table(bytes, at).unwrap_or(false)
    })
}

/// All frame descriptions, sorted.
#[derive(Debug, Default)]
pub struct Frames<'a> {
    pub list: Vec<Fde<'a>>,
}

impl<'a> Frames<'a> {
    /// Index of the description of the code at `va`; `hint`: an index that was right for a place nearby.
    pub fn index(&self, va: u64, hint: usize) -> Option<usize> {
        let holds = |f: &Fde| f.from <= va && va < f.to;
        if self.list.get(hint).is_some_and(holds) {
            return Some(hint);
        }
        let k = self.list.partition_point(|f| f.from <= va).checked_sub(1)?;
        holds(&self.list[k]).then_some(k)
    }

    /// Reads what stands at `va`, up to the terminator or the end of `bytes`. `tail`: the bytes from an address to the end of its segment's
    /// part of the file. `bases`: of pointers that are relative to sections.
    pub fn read(
        bytes: &'a [u8],
        va: u64,
        bases: BaseAddresses,
        tail: &dyn Fn(u64) -> Option<&'a [u8]>,
    ) -> Result<Frames<'a>, String> {
        let eh = EhFrame::new(bytes, LittleEndian);
        let bases = bases.set_eh_frame(va);
        let mut entries = eh.entries(&bases);
        let mut cx = UnwindContext::new();
        let mut shared = Shared::default();
        let mut list = Vec::new();
        let bad = |e: gimli::Error| format!("the frame table at {va:#x}: {e}");
        while let Some(entry) = entries.next().map_err(bad)? {
            let CieOrFde::Fde(partial) = entry else { continue };
            let fde = partial.parse(EhFrame::cie_from_offset).map_err(bad)?;
            let from = fde.initial_address();
            let to = from.checked_add(fde.len()).ok_or("a frame wraps around the address space")?;
            let mut rows = Vec::new();
            let mut table = fde.rows(&eh, &bases, &mut cx).map_err(bad)?;
            let (mut defined_to, mut end) = (to, from);
            loop {
                match table.next_row() {
                    Ok(None) => break,
                    Ok(Some(row)) => {
                        rows.push(shared.row(&eh, row).map_err(bad)?);
                        end = row.end_address();
                    }
                    Err(gimli::Error::CfiInstructionInInvalidContext) => {
                        defined_to = end;
                        break;
                    }
                    Err(e) => return Err(bad(e)),
                }
            }
            let arguments = arguments(&eh, &bases, bytes, &fde).map_err(bad)?;
            // An encoded 0 is no pointer, whatever its base; gimli adds the base, and so finds a place in the record itself.
            let own =
                |offset: usize, len: usize, to: u64| to == 0 || to.wrapping_sub(va + offset as u64) < len as u64 + 4;
            let lsda = match fde.lsda() {
                Some(Pointer::Direct(at)) if own(fde.offset(), fde.entry_len(), at) => None,
                Some(Pointer::Direct(at)) => {
                    let bytes = tail(at).ok_or_else(|| format!("the LSDA at {at:#x} is not in the file"))?;
                    Some(Lsda::read(bytes, at, from).map_err(|why| format!("the LSDA at {at:#x}: {why}"))?)
                }
                Some(Pointer::Indirect(at)) => return Err(format!("an LSDA is named through {at:#x}")),
                None => None,
            };
            let cie = fde.cie();
            let personality = cie.personality().filter(|p| match *p {
                Pointer::Direct(at) | Pointer::Indirect(at) => !own(cie.offset(), cie.entry_len(), at),
            });
            let kind = (personality, cie.return_address_register(), cie.is_signal_trampoline());
            list.push(Fde { record: va + fde.offset() as u64, from, to, rows, arguments, defined_to, kind, lsda });
        }
        list.sort_by_key(|f| f.from);
        Ok(Frames { list })
    }
}

/// The steps that tell bytes of arguments, which are no part of gimli's rows.
fn arguments<'a>(
    eh: &EhFrame<Slice<'a>>,
    bases: &BaseAddresses,
    section: &[u8],
    fde: &FrameDescriptionEntry<Slice<'a>>,
) -> gimli::Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    let cie = fde.cie();
    // Most records do not hold the byte at all.
    let holds = |from: usize, bytes: usize| {
        let record = section.get(from..).and_then(|s| s.get(..bytes + 12).or(Some(s)));
        record.is_none_or(|r| r.contains(&gimli::DW_CFA_GNU_args_size.0))
    };
    let mut at = fde.initial_address();
    for (is_cie, has) in [(true, holds(cie.offset(), cie.entry_len())), (false, holds(fde.offset(), fde.entry_len()))] {
        if !has {
            continue;
        }
        let mut steps = if is_cie { cie.instructions(eh, bases) } else { fde.instructions(eh, bases) };
        while let Some(step) = steps.next()? {
            match step {
                CallFrameInstruction::SetLoc { address } => at = address,
                CallFrameInstruction::AdvanceLoc { delta } => {
                    at = at.wrapping_add(u64::from(delta).wrapping_mul(cie.code_alignment_factor()));
                }
                CallFrameInstruction::ArgsSize { size } => found.push((at, size)),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Lists of rules that rows share.
#[derive(Default)]
struct Shared {
    known: HashSet<Rc<[Rule]>>,
    /// The one that is being formed.
    list: Vec<Rule>,
}

impl Shared {
    fn row(&mut self, eh: &EhFrame<Slice<'_>>, row: &gimli::UnwindTableRow<usize>) -> gimli::Result<CfaRow> {
        let bytes = |e: &UnwindExpression<usize>| Ok::<_, gimli::Error>(e.get(eh)?.0.slice().to_vec());
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(*register, *offset),
            CfaRule::Expression(e) => Cfa::Expression(bytes(e)?),
        };
        self.list.clear();
        for (register, rule) in row.registers() {
            let (kind, number, expression) = match rule {
                RegisterRule::Undefined => (0, 0, Vec::new()),
                RegisterRule::SameValue => (1, 0, Vec::new()),
                RegisterRule::Offset(n) => (2, *n, Vec::new()),
                RegisterRule::ValOffset(n) => (3, *n, Vec::new()),
                RegisterRule::Register(r) => (4, r.0.into(), Vec::new()),
                RegisterRule::Expression(e) => (5, 0, bytes(e)?),
                RegisterRule::ValExpression(e) => (6, 0, bytes(e)?),
                RegisterRule::Constant(n) => (7, *n as i64, Vec::new()),
                _ => (8, 0, Vec::new()),
            };
            self.list.push((*register, kind, number, expression));
        }
        self.list.sort();
        let registers = match self.known.get(&self.list[..]) {
            Some(list) => list.clone(),
            None => {
                let list: Rc<[Rule]> = self.list.as_slice().into();
                self.known.insert(list.clone());
                list
            }
        };
        Ok(CfaRow { from: row.start_address(), cfa, registers })
    }
}
