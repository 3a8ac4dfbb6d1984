//! The look at a call's memory: reads what pointers lead to, and gives away the ranges that may be inaccessible.
//!
//! Input: addresses, from arguments or found behind them. Output: ranges, through a function that makes them accessible; or why the look ends. What looks
//! at an address says what the kernel is given for it ([`crate::system_calls::table::copies`]).
//! **Invariants**
//! * Structures in shared memory are read when they are accessible, all others in a way that cannot fault: a bad pointer of the program stays the kernel's
//!   business.
//! * Pages that the runtime needs are refused.

use crate::memory::access_control::program::{self, in_segment, runtime_address};
use crate::memory::segment::{CONTEXTS, TABLE, WINDOW};
use crate::process::private_stack;
use crate::system_calls::table::copies::{COPIED, Fields, Given, Structure};
use crate::system_calls::table::row::{CallRow, Len};
use crate::tempest::pages::table::is_user;
use blizzard_contract::{ALIAS_DISTANCE, BLOCK_BYTES};

/// Memory that a call touches in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRange {
    pub addr: u64,
    pub bytes: u64,
    pub store: bool,
}

/// Why the look at an argument ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookStop {
    /// The kernel will refuse the call: a pointer leads nowhere, a count is out of range.
    Refused,
    /// This pointer into the segment cannot be prepared.
    At(u64),
    /// The same of one that the kernel would take without a look at what is there: no error of the kernel's fits.
    Kept(u64),
    /// Structures that have to be copied have more bytes than copies can have.
    TooLarge,
}

pub type LookResult<T = ()> = Result<T, LookStop>;

/// What the kernel must not map anew at the program's wish: the context pages and the tag table, whose zeros would allow every access, and
/// the segments with their guards; in guarded code the tags and the segments at their alias, too.
const OURS: [(u64, u64); 5] = [
    (CONTEXTS.start, CONTEXTS.end),
    (TABLE.start, TABLE.end),
    (WINDOW.start, WINDOW.end),
    (TABLE.start + ALIAS, TABLE.end + ALIAS),
    (WINDOW.start + ALIAS, WINDOW.end + ALIAS),
];
const ALIAS: u64 = if cfg!(feature = "guard") { ALIAS_DISTANCE } else { 0 };

/// Refuses pages that the runtime needs.
pub fn keep_pages_out(addr: u64, bytes: u64) -> Result<(), u64> {
    let end = addr.saturating_add(bytes);
    OURS.iter()
        .find(|&&(first, behind)| addr < behind && first < end)
        .map_or(Ok(()), |&(first, _)| Err(addr.max(first)))
}

/// What the kernel transfers at most in one call (MAX_RW_COUNT).
pub const TRANSFER_MAX: u64 = 0x7fff_f000;
/// Longest string looked at: an argument of a new program (MAX_ARG_STRLEN); paths are shorter.
const STRING_MAX: u64 = 128 << 10;

/// The memory that can be inaccessible: what else there is, is the kernel's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// All of the segment: in runs of several nodes.
    Segment,
    /// That of `tempest.h`: with one node.
    UserManaged,
}

impl Shared {
    /// Whether the address may be in it.
    pub fn holds(self, addr: u64) -> bool {
        match self {
            Shared::Segment => in_segment(addr),
            Shared::UserManaged => is_user(addr),
        }
    }
}

/// Ends the run if `top`, where a stack begins, lies in `shared` memory. `at`: whose code uses it; `how` it got there.
pub fn keep_stack_out(top: u64, shared: Shared, at: u64, how: &str) {
    if shared.holds(top) {
        private_stack::refuse(top, at, how);
    }
}

/// Finds a call's memory and reads its structures.
pub struct Visitor<'a> {
    pub row: &'static CallRow,
    pub args: &'a [u64; 6],
    pub shared: Shared,
    pub found: &'a mut dyn FnMut(CallRange),
    /// Asks what the kernel is given; else all is the program's.
    pub given: Option<Given<'a>>,
}

impl Visitor<'_> {
    /// The call's command, if it has commands.
    pub fn command(&self) -> Option<u64> {
        self.row.command(self.args)
    }

    /// Whether any byte of the range may be shared.
    pub fn touches_segment(&self, addr: u64, bytes: u64) -> bool {
        bytes > 0 && (self.shared.holds(addr) || self.shared.holds(addr.saturating_add(bytes - 1)))
    }

    /// Refuses a pointer into the segment.
    pub fn keep_out(&self, addr: u64) -> LookResult<u64> {
        if self.shared.holds(addr) { Err(LookStop::At(addr)) } else { Ok(addr) }
    }

    /// Refuses a pointer into the segment that the kernel would keep, or that a program counts on.
    pub fn keep_out_for_good(&self, addr: u64) -> LookResult<u64> {
        if self.shared.holds(addr) { Err(LookStop::Kept(addr)) } else { Ok(addr) }
    }

    /// The kernel reads these bytes, or with `store` writes them. What it is given.
    pub fn put(&mut self, addr: u64, bytes: u64, store: bool) -> u64 {
        let bytes = bytes.min(TRANSFER_MAX);
        if addr != 0 && self.touches_segment(addr, bytes) {
            (self.found)(CallRange { addr, bytes, store });
        }
        self.kernel(addr)
    }

    /// Argument `i` as the kernel sees an `int`; negative counts, which it refuses, are none.
    pub fn int(&self, i: u8) -> u64 {
        (self.args[usize::from(i)] as i32).max(0) as u64
    }

    /// Fills `bytes` from the program's memory at `addr`.
    pub fn read(&mut self, addr: u64, bytes: &mut [u8]) -> LookResult {
        let n = bytes.len() as u64;
        if addr == 0 {
            return Err(LookStop::Refused);
        }
        if self.touches_segment(addr, n) {
            self.put(addr, n, false);
            // SAFETY: shared memory, readable since the line above, and as long as no handler runs.
            unsafe { core::ptr::copy_nonoverlapping(runtime_address(addr), bytes.as_mut_ptr(), bytes.len()) };
            return Ok(());
        }
        program::read(addr, bytes).map_err(|_| LookStop::Refused)
    }

    pub fn word32(&mut self, addr: u64) -> LookResult<u32> {
        let mut bytes = [0; 4];
        self.read(addr, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    pub fn words<const N: usize>(&mut self, addr: u64) -> LookResult<[u64; N]> {
        let mut words = [[0u8; 8]; N];
        self.read(addr, words.as_flattened_mut())?;
        Ok(words.map(u64::from_ne_bytes))
    }

    pub fn length(&mut self, len: Len) -> LookResult<u64> {
        Ok(match len {
            Len::Bytes(bytes) => bytes.into(),
            Len::Arg(i) => self.args[usize::from(i)],
            Len::Count(i) if (self.args[usize::from(i)] as i64) < 0 => return Err(LookStop::Refused),
            Len::Count(i) => self.args[usize::from(i)],
            Len::Int(i) => self.int(i),
            Len::Times(i, bytes) => self.int(i) * u64::from(bytes),
            Len::TimesLong(i, bytes) => self.args[usize::from(i)].saturating_mul(bytes.into()),
            Len::Plus(i, bytes) => self.args[usize::from(i)].saturating_add(bytes.into()),
            Len::Bits(i) => self.int(i).min(1 << 20).div_ceil(64) * 8,
            Len::Pages(i) => self.args[usize::from(i)].div_ceil(4096),
            Len::At(i) => match self.args[usize::from(i)] {
                0 => 0,
                at => (self.word32(at)? as i32).max(0) as u64,
            },
        })
    }

    pub fn string(&mut self, addr: u64) -> u64 {
        if COPIED && self.given.is_some() {
            return self.kernel(addr);
        }
        let mut at = addr;
        // Only the part inside the segment matters, and a string does not leave the segment once it is in.
        while self.shared.holds(at) && at - addr < STRING_MAX {
            let end = (at | (BLOCK_BYTES - 1)) + 1;
            self.put(at, end - at, false);
            while at < end {
                // SAFETY: the block is readable now.
                if unsafe { runtime_address(at).read() } == 0 {
                    return self.kernel(addr);
                }
                at += 1;
            }
        }
        self.kernel(addr)
    }

    /// What the kernel is given for a pointer.
    pub fn kernel(&self, addr: u64) -> u64 {
        match &self.given {
            Some(given) if COPIED => (given.address)(addr),
            _ => addr,
        }
    }

    /// The pointer `at` so many bytes of a structure leads to `addr`, for which the kernel is given `kernel`.
    pub fn pointer(&mut self, structure: &mut Structure, at: u64, addr: u64, kernel: u64) -> LookResult {
        if COPIED && kernel != addr {
            let word = structure.word.map_or_else(|| self.copy(structure), Ok)?;
            structure.word = Some(word);
            if let Some(given) = &mut self.given {
                given.copies.set(word + at as usize / 8, kernel);
            }
        }
        Ok(())
    }

    /// Copies a structure; the word at which the copy begins.
    fn copy(&mut self, structure: &Structure) -> LookResult<usize> {
        let Some(given) = self.given.take() else { return Err(LookStop::Refused) };
        let copy = given.copies.make(structure.bytes);
        let copied = copy.map(|(word, bytes)| self.read(structure.addr, bytes).map(|()| word));
        self.given = Some(given);
        copied.unwrap_or(Err(LookStop::TooLarge))
    }

    /// All pointers of a structure are known: the address that the kernel is given.
    pub fn end(&mut self, structure: &Structure) -> u64 {
        self.end_written(structure, &[], None)
    }

    /// The same, of one in which the kernel writes `fields`; `elements`: it is an array of so many.
    pub fn end_written(&mut self, structure: &Structure, fields: Fields, elements: Option<u64>) -> u64 {
        let kernel = self.kernel(structure.addr);
        let (true, Some(word), Some(given)) = (COPIED, structure.word, &mut self.given) else { return kernel };
        if !fields.is_empty() {
            given.copies.note_written(structure, word, fields, elements);
        }
        given.copies.address(word)
    }
}
