//! Reads unwind tables as an unwinder and a personality do, apart from the code under test: a row by address through
//! gimli, a call site by address and its actions as gcc's `eh_personality.cc` walks them.

use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Pointer, Reader, RegisterRule, UnwindContext,
    UnwindSection,
};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// An unwind row, its expressions as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub cfa: String,
    pub registers: Vec<(u16, String)>,
    pub args: u64,
}

/// What the unwinder tells a personality about an address, besides its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    pub personality: Option<Pointer>,
    pub signal: bool,
    pub lsda: Option<u64>,
    pub function: u64,
}

pub struct Table {
    /// (first, behind the last, row, index in contexts), ascending.
    pub rows: Vec<(u64, u64, Row, usize)>,
    pub contexts: Vec<Context>,
}

impl Table {
    /// All rows of a section. Ranges that `keep` refuses are left out.
    pub fn read(bytes: &[u8], bases: &BaseAddresses, keep: impl Fn(u64, u64) -> bool) -> Table {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let mut table = Table { rows: Vec::new(), contexts: Vec::new() };
        let mut ctx = UnwindContext::new();
        let mut entries = section.entries(bases);
        let start = bases.eh_frame.section.expect("a section address");
        while let Some(entry) = entries.next().expect("a readable section") {
            let gimli::CieOrFde::Fde(partial) = entry else { continue };
            let fde = partial.parse(|s, b, o| s.cie_from_offset(b, o)).expect("a readable FDE");
            if fde.len() == 0 || !keep(fde.initial_address(), fde.end_address()) {
                continue;
            }
            let record = start + fde.offset() as u64..start + (fde.offset() + fde.entry_len() + 4) as u64;
            let lsda = fde.lsda().map(|p| p.direct().expect("direct")).filter(|a| *a != 0 && !record.contains(a));
            table.contexts.push(Context {
                personality: fde.cie().personality(),
                signal: fde.cie().is_signal_trampoline(),
                lsda,
                function: fde.initial_address(),
            });
            let mut rows = fde.rows(&section, bases, &mut ctx).expect("rows");
            // gimli stops at an instruction that means nothing in its context: libgcrypt has two such functions, which set
            // the register of a CFA that is an expression.
            while let Ok(Some(row)) = rows.next_row() {
                let bytes =
                    |e: &gimli::UnwindExpression<usize>| format!("{:x?}", e.get(&section).expect("bytes").0.slice());
                let cfa = match row.cfa() {
                    gimli::CfaRule::Expression(e) => bytes(e),
                    other => format!("{other:?}"),
                };
                let mut registers: Vec<_> = row
                    .registers()
                    .map(|(r, rule)| match rule {
                        RegisterRule::Expression(e) => (r.0, format!("at {}", bytes(e))),
                        RegisterRule::ValExpression(e) => (r.0, format!("is {}", bytes(e))),
                        other => (r.0, format!("{other:?}")),
                    })
                    .collect();
                registers.sort();
                let row_out = Row { cfa, registers, args: row.saved_args_size() };
                let end = row.end_address().min(fde.end_address());
                table.rows.push((row.start_address(), end, row_out, table.contexts.len() - 1));
            }
        }
        table.rows.sort_by_key(|r| (r.0, r.1));
        table
    }

    pub fn at(&self, address: u64) -> Option<(&Row, &Context)> {
        let i = self.rows.partition_point(|r| r.0 <= address).checked_sub(1)?;
        let (_, end, row, context) = &self.rows[i];
        (address < *end).then(|| (row, &self.contexts[*context]))
    }
}

/// The binary search table as (code, FDE's code): every entry must name an FDE that begins where the entry says.
pub fn check_header(hdr: (u64, &[u8]), eh_frame: (u64, &[u8])) -> usize {
    let bases = BaseAddresses::default().set_eh_frame_hdr(hdr.0).set_eh_frame(eh_frame.0);
    let parsed = EhFrameHdr::new(hdr.1, LittleEndian).parse(&bases, 8).expect("a header");
    assert_eq!(parsed.eh_frame_ptr(), Pointer::Direct(eh_frame.0));
    let mut section = EhFrame::new(eh_frame.1, LittleEndian);
    section.set_address_size(8);
    let table = parsed.table().expect("a table");
    let mut iter = table.iter(&bases);
    let (mut count, mut last) = (0, 0);
    while let Some((code, fde)) = iter.next().expect("an entry") {
        let offset = table.pointer_to_offset(fde).expect("an offset");
        let fde = section.fde_from_offset(&bases, offset, |s, b, o| s.cie_from_offset(b, o)).expect("an FDE");
        assert_eq!(code, Pointer::Direct(fde.initial_address()));
        assert!(fde.initial_address() >= last, "the table is not sorted at {:#x}", fde.initial_address());
        last = fde.end_address();
        count += 1;
    }
    count
}

/// What a personality does with an exception that passes an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No call site: C++ terminates.
    Uncovered,
    PassesThrough,
    /// Resumes at the pad; the actions in order.
    Lands {
        pad: u64,
        actions: Vec<Action>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Cleanup,
    Catch(Type),
    /// Passes the listed types only.
    Specification(Vec<Type>),
}

/// The address of a type's object, or (`true`) of eight bytes that hold it at run time; `None` catches everything.
pub type Type = Option<(u64, bool)>;

/// An LSDA with its call sites in table order.
pub struct Lsda<'a> {
    function: u64,
    pads: u64,
    types: Option<(u8, u64)>,
    actions: u64,
    sites: Vec<(u64, u64, u64, u64)>,
    memory: &'a dyn Fn(u64) -> &'a [u8],
}

impl<'a> Lsda<'a> {
    pub fn read(at: u64, function: u64, memory: &'a dyn Fn(u64) -> &'a [u8]) -> Lsda<'a> {
        let all = EndianSlice::new(memory(at), LittleEndian);
        let mut r = all;
        let here = |r: &Bytes| at + r.offset_from(all) as u64;
        let pads = match r.read_u8().expect("a byte") {
            0xff => function,
            0x1b => {
                let base = here(&r);
                base.wrapping_add(r.read_i32().expect("lpstart") as u64)
            }
            other => panic!("landing pad base {other:#x}"),
        };
        let types = match r.read_u8().expect("a byte") {
            0xff => None,
            e => {
                let distance = r.read_uleb128().expect("types");
                Some((e, here(&r) + distance))
            }
        };
        let encoding = r.read_u8().expect("a byte");
        let length = r.read_uleb128().expect("length");
        let actions = here(&r) + length;
        let mut sites = Vec::new();
        while here(&r) < actions {
            let mut value = || match encoding {
                1 => r.read_uleb128().expect("uleb128"),
                3 => r.read_u32().expect("udata4").into(),
                other => panic!("call sites {other:#x}"),
            };
            let (start, bytes, pad) = (value(), value(), value());
            sites.push((start, bytes, pad, r.read_uleb128().expect("action")));
        }
        Lsda { function, pads, types, actions, sites, memory }
    }

    pub fn verdict(&self, address: u64) -> Verdict {
        for &(start, bytes, pad, action) in &self.sites {
            let start = self.function + start;
            if address < start {
                return Verdict::Uncovered;
            }
            if address < start + bytes {
                return match pad {
                    0 => Verdict::PassesThrough,
                    pad => Verdict::Lands { pad: self.pads.wrapping_add(pad), actions: self.chain(action) },
                };
            }
        }
        Verdict::Uncovered
    }

    fn chain(&self, action: u64) -> Vec<Action> {
        let mut out = Vec::new();
        if action == 0 {
            return out;
        }
        let mut at = self.actions + action - 1;
        loop {
            let all = EndianSlice::new((self.memory)(at), LittleEndian);
            let mut r = all;
            let filter = r.read_sleb128().expect("filter");
            let from = at + r.offset_from(all) as u64;
            let next = r.read_sleb128().expect("next");
            out.push(match filter {
                0 => Action::Cleanup,
                f if f > 0 => Action::Catch(self.type_entry(f as u64)),
                f => {
                    let base = self.types.expect("types").1;
                    let mut r = EndianSlice::new((self.memory)(base + (-f - 1) as u64), LittleEndian);
                    let mut list = Vec::new();
                    while let index @ 1.. = r.read_uleb128().expect("index") {
                        list.push(self.type_entry(index));
                    }
                    Action::Specification(list)
                }
            });
            if next == 0 {
                return out;
            }
            at = from.wrapping_add(next as u64);
        }
    }

    /// Absolute entries of eight bytes may be relocated at run time: what they mean is then only known as "what is here".
    fn types_by_slot(&self, encoding: u8) -> bool {
        [0, 4, 12].contains(&encoding)
    }

    fn type_entry(&self, index: u64) -> Type {
        let (encoding, base) = self.types.expect("types");
        let bytes = if encoding & 7 == 3 { 4 } else { 8 };
        let at = base - index * bytes;
        let mut r = EndianSlice::new((self.memory)(at), LittleEndian);
        let value = match encoding & 15 {
            0 | 4 | 12 => r.read_u64().expect("entry"),
            3 => r.read_u32().expect("entry").into(),
            11 => r.read_i32().expect("entry") as u64,
            other => panic!("type encoding {other:#x}"),
        };
        if self.types_by_slot(encoding) {
            return Some((at, true));
        }
        if value == 0 {
            return None;
        }
        let base = if encoding & 0x70 == 0x10 { at } else { 0 };
        Some((base.wrapping_add(value), encoding & 0x80 != 0))
    }
}
