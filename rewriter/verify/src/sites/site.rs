//! What a recognised sequence is, and what all recognisers need.
//!
//! Input: the decoded text and cold code ([`Context`]). Output: [`Sites`]. A site runs from the first inserted instruction to the access
//! it guards (or, for a poll, to the instruction behind it). **Invariant**: sites do not overlap.
//! Source: `rewriter/SEQUENCES.md`, "The check sequences".

use crate::decode::decoder::Code;
use crate::decode::effects::Flow;
use crate::sites::symbolic::{Cond, Lin, SymbolicState};

/// What a site is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteKind {
    /// Tag test of one access; `straddle` when it tests two blocks.
    Check {
        straddle: bool,
    },
    String,
    Large,
    Lanes,
    Poll,
    /// The head of a loop that tests tags once for several iterations.
    Strip,
    /// Test of a stack pointer that was taken from something else.
    StackTest,
}

impl SiteKind {
    /// Whether it guards the instruction behind it.
    pub fn is_about_access(self) -> bool {
        !matches!(self, SiteKind::Poll | SiteKind::Strip | SiteKind::StackTest)
    }
}

/// A recognised sequence.
#[derive(Clone, Debug)]
pub struct Site {
    pub kind: SiteKind,
    /// Index of the first inserted instruction in the text.
    pub start: usize,
    /// Index of the guarded access, or of the instruction behind a poll.
    pub access: usize,
    /// Registers and flags changed when control reaches the access.
    pub dirty: u16,
    pub dirty_flags: u8,
    /// The same behind the access, when a cold stub performs the access itself.
    pub dirty_after: u16,
    pub dirty_after_flags: u8,
    /// Branches into the protected range that belong to the site: (from, to).
    pub own_edges: Vec<(u64, u64)>,
    /// The gather descriptor that the stub passes.
    pub descriptor: Option<u64>,
    /// What is accessible behind the test of one access, on every way through it.
    pub proves: Option<Proven>,
    /// The chain of ranges that the stub acquires: what counted before it still counts behind it as far as the chain says so.
    /// Without one, nothing does.
    pub chain: Option<u64>,
    /// Registers that do not hold their values somewhere between the test's beginning and its end.
    pub touched: u16,
    /// The limit that each of its ways through a gate takes back behind it.
    pub takes_back: Option<u64>,
    pub strip: Option<Box<Strip>>,
    /// The screen asks the base alone, because the index, this register, is a small number.
    pub leans: Option<u8>,
    /// Of guarded code: what stubs do in place of the access; the addresses of the instructions, or of the jump to the instruction in plain code.
    pub performed: Vec<u64>,
    /// Registers are kept in the red zone meanwhile.
    pub red_zone: bool,
    pub problem: Option<String>,
}

impl Site {
    /// A site of which nothing more is known: it changes nothing and proves nothing.
    pub(crate) fn of_kind(kind: SiteKind, start: usize, access: usize) -> Site {
        Site {
            kind,
            start,
            access,
            dirty: 0,
            dirty_flags: 0,
            dirty_after: 0,
            dirty_after_flags: 0,
            own_edges: Vec::new(),
            descriptor: None,
            proves: None,
            chain: None,
            touched: 0,
            takes_back: None,
            strip: None,
            leans: None,
            performed: Vec::new(),
            red_zone: false,
            problem: None,
        }
    }
}

/// What a test makes sure of, in terms of the registers in front of the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proven {
    pub lin: Lin,
    pub bytes: u32,
    pub store: bool,
}

/// What one branch tells of on the way that does not take it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    /// The tags of so many blocks from the address on have none of the bits.
    Tags { lin: Lin, tags: u8, mask: u32 },
    /// Of guarded code: the tag of the address's block is at least this number, which tells of that block and the next.
    Level { lin: Lin, level: u8 },
    /// The address has a bit that shared memory does not have, nor anything that is near the address ([`blizzard_contract::PRIVATE_REACH`]).
    Private(Lin),
}

/// Where the limit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The next iteration tests.
    Here,
    /// The register may step by so much.
    Plus(i64),
}

/// One way from the tests to the body.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub limit: Limit,
    pub tests: Vec<Test>,
    /// The chain that has been acquired.
    pub chain: Option<u64>,
    /// It leads into the copy.
    pub copied: bool,
}

/// What is special about the site of such a loop.
#[derive(Clone, Debug)]
pub struct Strip {
    /// The limit that is used.
    pub(crate) word: u64,
    /// The compared register.
    pub(crate) counter: u8,
    /// Index of the comparison, to which the loop's own jump leads.
    pub(crate) inner: usize,
    /// Index of that jump.
    pub(crate) jump: usize,
    pub(crate) ways: Vec<Way>,
    pub(crate) copy: Option<Copy>,
}

/// What holds the limit while a copy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The limit's word.
    Word,
    Register(u8),
    /// The first word below rsp, of guarded code.
    Below,
}

/// A copy of the loop in cold code, the block several times over. Of its instructions nothing is known yet but how control goes.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Index of its comparison with the limit, to which its own jump leads.
    pub(crate) head: usize,
    /// What it compares with, which holds the limit when the copy is entered.
    pub(crate) limit: Held,
    /// Where it goes when the loop ends.
    pub(crate) exit: u64,
    /// The first instruction of each block, and the jump behind its last.
    pub(crate) blocks: Vec<std::ops::Range<usize>>,
}

/// All sites of a module.
#[derive(Debug, Default)]
pub struct Sites {
    /// Sorted by `start`.
    pub list: Vec<Site>,
    /// Text instructions that belong to a site and are not its access.
    pub inserted: Vec<u64>,
    /// Text instructions no foreign branch may reach.
    pub protected: Vec<u64>,
    /// Cold instructions that belong to a stub.
    pub claimed: Vec<u64>,
}

impl Sites {
    /// Whether an instruction is inserted and goes on behind it, as all inserted code does but the jump of a redirection, to which nothing leads.
    pub fn goes_on(&self, text: &Code, k: usize) -> bool {
        get(&self.inserted, k) && text.insns[k].flow != Flow::Jump
    }

    /// The site of an access.
    pub fn test_of(&self, k: usize) -> Option<&Site> {
        let at = self.list.partition_point(|s| s.access <= k).checked_sub(1)?;
        Some(&self.list[at]).filter(|s| s.access == k && s.kind.is_about_access())
    }

    /// The instruction behind the test of rsp that begins with `k`.
    pub fn behind_stack_test(&self, k: usize) -> Option<usize> {
        let at = self.list.binary_search_by_key(&k, |s| s.start).ok()?;
        let site = &self.list[at];
        (site.kind == SiteKind::StackTest && site.problem.is_none()).then_some(site.access)
    }
}

/// Test of a bit in a bitmap over instruction indices.
pub fn get(map: &[u64], i: usize) -> bool {
    map.get(i / 64).is_some_and(|w| w >> (i % 64) & 1 == 1)
}

pub(crate) fn set(map: &mut [u64], i: usize) {
    map[i / 64] |= 1 << (i % 64);
}

/// What the recogniser needs of the module.
pub struct Context<'a> {
    pub text: &'a Code,
    pub cold: &'a Code,
    pub check_loads: bool,
    pub check_stores: bool,
    pub polls: bool,
    /// Full code of guarded code: tests have three answers.
    pub guard: bool,
    /// Reads a [`blizzard_contract::VsibDesc`]'s 16 bytes at a link-time address of `.blizzard.rodata`.
    pub rodata: &'a dyn Fn(u64) -> Option<[u8; 16]>,
}

/// Two tags tell of so many bytes from the tested address on, wherever in its block it lies.
pub(crate) const TWO_TAGS: u32 = 65;

/// What walking the hot way found.
pub(crate) struct Hot {
    pub(crate) access: usize,
    pub(crate) state: SymbolicState,
    pub(crate) passed: Vec<Cond>,
    /// Branches to cold code: state, target, condition, and where they stand.
    pub(crate) colds: Vec<(SymbolicState, u64, Cond, u64)>,
    /// Where a stub may rejoin: address, and how many tests lie before it.
    pub(crate) joins: Vec<(u64, usize)>,
    pub(crate) touched: u16,
}

impl Hot {
    /// Whether what follows the tests is no access that they are about; `alone`: it is known.
    pub(crate) fn ends_with_test(&self, alone: bool) -> bool {
        self.passed.first().is_some_and(|c| alone || *c == Cond::Poll)
    }
}
