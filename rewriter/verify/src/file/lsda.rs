//! Language-specific data areas as personality routines read them.
//!
//! Input: the bytes from an area to the end of their segment, the start of the code that it belongs to. Output: [`Lsda`]: for an address the row of the
//! call-site table that the routine would stop at, and what its actions say: filters, and for each the types by what their entries
//! lead to. Nothing is read that the routine does not read.
//!
//! **Invariant:** what is not understood is an error, never a guess. Shares no code with the rewriter's reader (`read/lsda`).
//! Source: Itanium C++ ABI "Exception Handling Tables" section 7; gcc `eh_personality.cc`, `unwind-pe.h`.

/// A row of the call-site table, all addresses resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    pub from: u64,
    pub to: u64,
    /// 0: none.
    pub pad: u64,
    /// 0: none; else one more than the offset of the first record.
    pub action: u64,
}

/// What an entry of the type table leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LsdaType {
    /// A null pointer: every exception.
    All,
    /// The type's object.
    Object(u64),
    /// A word of memory that holds the address of the type's object.
    Slot(u64),
    /// A number relative to a base that the file does not tell, with its encoding.
    Number(u8, u64),
}

/// One record of a chain of actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LsdaAction {
    /// What the landing pad gets to see. 0: cleanup.
    pub filter: i64,
    /// Of a positive filter one type, of a negative one those of its exception specification.
    pub types: Vec<LsdaType>,
}

/// A parsed area.
#[derive(Clone, Debug)]
pub struct Lsda<'a> {
    pub calls: Vec<CallSite>,
    /// The rows ascend and do not overlap.
    ordered: bool,
    /// Encoding of the type table, and the offset of its base in `bytes`.
    types: Option<(u8, u64)>,
    /// Offset of the action table in `bytes`.
    actions: usize,
    bytes: &'a [u8],
    va: u64,
}

const OMIT: u8 = 0xff;
const INDIRECT: u8 = 0x80;
/// Bits of an encoding that tell the base, and those that tell the number's form.
const BASE: u8 = 0x70;
const FORM: u8 = 0x0f;
const PCREL: u8 = 0x10;

/// Longest chain of actions, and longest exception specification: far above any program's, so that damaged ones end.
const LONGEST: usize = 1 << 16;

type Read<T> = Result<T, &'static str>;

const CUT: &str = "it is cut off";

/// Reads numbers at rising offsets.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    va: u64,
}

/// What an area begins with.
#[derive(PartialEq, Eq)]
struct Head {
    /// What landing pads are relative to, when the area says so.
    pads: Option<u64>,
    types: Option<(u8, u64)>,
    encoding: u8,
    /// Offset of the end of the call-site table.
    end: u64,
}

impl Cursor<'_> {
    fn take(&mut self, n: usize) -> Read<u64> {
        let b = self.bytes.get(self.at..self.at + n).ok_or(CUT)?;
        self.at += n;
        Ok(b.iter().rev().fold(0, |v, &x| v << 8 | u64::from(x)))
    }

    fn u8(&mut self) -> Read<u8> {
        self.take(1).map(|v| v as u8)
    }

    /// The bits of a number of seven bits a byte, how many there are, and the last byte.
    fn groups(&mut self) -> Read<(u64, u32, u8)> {
        let mut v = 0;
        for shift in (0..63).step_by(7) {
            let b = self.u8()?;
            v |= u64::from(b & 0x7f) << shift;
            if b & 0x80 == 0 {
                return Ok((v, shift + 7, b));
            }
        }
        Err("a number has more than 63 bits")
    }

    fn uleb(&mut self) -> Read<u64> {
        Ok(self.groups()?.0)
    }

    fn sleb(&mut self) -> Read<i64> {
        let (v, bits, last) = self.groups()?;
        Ok(if last & 0x40 != 0 { (v | u64::MAX << bits) as i64 } else { v as i64 })
    }

    /// A number in the form that an encoding tells, without its base.
    fn value(&mut self, encoding: u8) -> Read<u64> {
        Ok(match encoding & FORM {
            0x0 | 0x4 | 0xc => self.take(8)?,
            0x1 => self.uleb()?,
            0x9 => self.sleb()? as u64,
            0x2 => self.take(2)?,
            0x3 => self.take(4)?,
            0xa => self.take(2)? as i16 as u64,
            0xb => self.take(4)? as i32 as u64,
            _ => return Err("the form of its numbers is not known"),
        })
    }

    fn head(&mut self) -> Read<Head> {
        let pads = match self.u8()? {
            OMIT => None,
            e => {
                let at = self.va.wrapping_add(self.at as u64);
                let value = self.value(e)?;
                match e & !FORM {
                    0 => Some(value),
                    PCREL if value != 0 => Some(at.wrapping_add(value)),
                    _ => return Err("the base of its landing pads is not known"),
                }
            }
        };
        let types = match self.u8()? {
            OMIT => None,
            e => {
                let distance = self.uleb()?;
                Some((e, (self.at as u64).checked_add(distance).ok_or(CUT)?))
            }
        };
        let encoding = self.u8()?;
        if encoding & !FORM != 0 {
            return Err("its call sites are not relative to the function");
        }
        let bytes = self.uleb()?;
        let end = (self.at as u64).checked_add(bytes).filter(|&end| end <= self.bytes.len() as u64).ok_or(CUT)?;
        Ok(Head { pads, types, encoding, end })
    }

    /// Whether the area of the function's next piece begins here, or behind up to three zeros. LLVM gives the pieces of a function one behind the
    /// other, whose tables all claim to reach to the end of the last one's.
    fn next_piece_begins(&self, head: &Head) -> bool {
        let zeros = self.bytes[self.at..].iter().take(3).take_while(|b| **b == 0).count();
        let begins = |skip: usize| {
            let mut c = Cursor { at: self.at + skip, ..*self };
            c.head().is_ok_and(|h| h == *head)
        };
        head.pads.is_some() && (0..=zeros).any(begins)
    }
}

impl<'a> Lsda<'a> {
    /// Reads the area that `bytes` begin with, which stand at `va`; it belongs to the code from `function` on.
    pub fn read(bytes: &'a [u8], va: u64, function: u64) -> Read<Lsda<'a>> {
        let mut c = Cursor { bytes, at: 0, va };
        let head = c.head()?;
        let base = head.pads.unwrap_or(function);
        let end = head.end as usize;
        let mut calls: Vec<CallSite> = Vec::new();
        while c.at < end && !c.next_piece_begins(&head) {
            let (start, len, pad) = (c.value(head.encoding)?, c.value(head.encoding)?, c.value(head.encoding)?);
            let action = c.uleb()?;
            let from = function.checked_add(start).ok_or("a call site wraps around")?;
            let to = from.checked_add(len).ok_or("a call site wraps around")?;
            let pad = if pad == 0 { 0 } else { base.wrapping_add(pad) };
            calls.push(CallSite { from, to, pad, action });
            if c.at > end {
                return Err("its last call site goes on behind the table");
            }
        }
        let ordered = calls.windows(2).all(|w| w[0].to <= w[1].from);
        Ok(Lsda { calls, ordered, types: head.types, actions: end, bytes, va })
    }

    /// The row for an exception from `va`: the first that holds it, if none in front begins behind it. `None`: the routine ends the program.
    pub fn at(&self, va: u64) -> Option<&CallSite> {
        if self.ordered {
            let k = self.calls.partition_point(|c| c.to <= va);
            return self.calls.get(k).filter(|c| c.from <= va);
        }
        self.calls.iter().take_while(|c| c.from <= va).find(|c| va < c.to)
    }

    /// What the actions of a call site say, in order.
    pub fn chain(&self, action: u64) -> Read<Vec<LsdaAction>> {
        let mut chain = Vec::new();
        let Some(first) = action.checked_sub(1) else { return Ok(chain) };
        let mut at = usize::try_from(first).ok().and_then(|n| self.actions.checked_add(n)).ok_or(CUT)?;
        loop {
            let mut c = Cursor { bytes: self.bytes, at, va: self.va };
            let filter = c.sleb()?;
            let next_from = c.at as i64;
            let next = c.sleb()?;
            let types = match filter {
                0 => Vec::new(),
                1.. => self.entry(filter.unsigned_abs())?.into_iter().collect(),
                _ => self.specification(filter.unsigned_abs() - 1)?,
            };
            chain.push(LsdaAction { filter, types });
            if next == 0 {
                return Ok(chain);
            }
            if chain.len() > LONGEST {
                return Err("its actions have no end");
            }
            at = next_from.checked_add(next).and_then(|n| usize::try_from(n).ok()).ok_or(CUT)?;
        }
    }

    /// An entry of the type table; none where the area has no table.
    fn entry(&self, index: u64) -> Read<Option<LsdaType>> {
        let Some((encoding, base)) = self.types else { return Ok(None) };
        let bytes = match encoding & FORM {
            0x0 | 0x4 | 0xc => 8,
            0x2 | 0xa => 2,
            0x3 | 0xb => 4,
            _ => return Err("the encoding of its types is not known"),
        };
        let at = index.checked_mul(bytes).and_then(|n| base.checked_sub(n)).ok_or("a type lies outside its table")?;
        let mut c = Cursor { bytes: self.bytes, at: usize::try_from(at).map_err(|_| CUT)?, va: self.va };
        let value = c.value(encoding)?;
        let here = self.va.wrapping_add(at);
        let found = match (encoding & BASE, value) {
            // The dynamic loader may fill a whole pointer in.
            (0, _) if bytes == 8 && encoding & INDIRECT == 0 => return Ok(Some(LsdaType::Slot(here))),
            (_, 0) => return Ok(Some(LsdaType::All)),
            (0, address) => address,
            (PCREL, distance) => here.wrapping_add(distance),
            (0x20 | 0x30, number) => return Ok(Some(LsdaType::Number(encoding, number))),
            _ => return Err("the encoding of its types is not known"),
        };
        Ok(Some(if encoding & INDIRECT == 0 { LsdaType::Object(found) } else { LsdaType::Slot(found) }))
    }

    /// The types that an exception specification allows.
    fn specification(&self, offset: u64) -> Read<Vec<LsdaType>> {
        let (_, base) = self.types.ok_or("an exception specification without a type table")?;
        let at = base.checked_add(offset).and_then(|n| usize::try_from(n).ok()).ok_or(CUT)?;
        let mut c = Cursor { bytes: self.bytes, at, va: self.va };
        let mut types = Vec::new();
        loop {
            match c.uleb()? {
                0 => return Ok(types),
                index => types.extend(self.entry(index)?),
            }
            if types.len() > LONGEST {
                return Err("an exception specification has no end");
            }
        }
    }
}
