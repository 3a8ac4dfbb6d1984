//! Changes of tables and headers that change nothing: each rule looks at the bytes alone and says why nobody reads them, or why they mean the same.
//!
//! Input: the part, the output, the same with one byte changed, and where. Output: a reason, if there is one. Source: gABI chapters 4 and 5.

use crate::decode::decoder;
use crate::mutation::parts::{self, Part};
use crate::mutation::subject::Subject;
use crate::sites::gates::{self, Ranged};
use crate::sites::symbolic::Lin;
use blizzard_contract::{self as contract, claim_reason};
use std::mem::offset_of;
use std::ops::Range;

const JUMPS: u8 = contract::module_flags::JUMPS as u8;

/// The chain of ranges at `at` of the file.
fn chain_of(file: &[u8], at: usize) -> Option<Vec<Ranged>> {
    let range = |at: u64| file.get(at as usize..at as usize + 16)?.try_into().ok();
    gates::chain(&range, at as u64).ok()
}

/// Whether each chain acquires the blocks of the other. A range of at most a block's bytes lies in the blocks of its first and its last byte. The gate looks at
/// the right to store, which includes that to load.
fn acquire_the_same(one: &[Ranged], other: &[Ranged]) -> bool {
    let key = |r: &Ranged| (Lin { disp: 0, ..r.proven.lin }, r.desc & contract::miss_desc::MASKED);
    let bytes = |r: &Ranged| r.proven.lin.disp..r.proven.lin.disp + i64::from(r.proven.bytes);
    let within = |one: &[Ranged], other: &[Ranged]| {
        one.iter().all(|r| {
            let serves = |o: &&Ranged| key(r) == key(o) && (o.proven.store || !r.proven.store);
            let ends = [bytes(r).start, bytes(r).end - 1];
            ends.iter().all(|byte| other.iter().filter(serves).any(|o| bytes(o).contains(byte)))
        })
    };
    within(one, other) && within(other, one)
}

/// Whether the change at `at` is to chains that acquire the same as before.
fn same_chains(s: &Subject, mutant: &[u8], at: usize) -> bool {
    let changed = s.places.chains.iter().filter_map(|&chain| {
        let was = chain_of(s.output, chain)?;
        (chain..chain + 16 * was.len())
            .contains(&at)
            .then(|| chain_of(mutant, chain).is_some_and(|is| acquire_the_same(&was, &is)))
    });
    changed.reduce(|all, same| all && same).unwrap_or(false)
}

/// Why the change at `at` is none.
pub fn harmless(s: &Subject, part: &Part, mutant: &[u8], at: usize) -> Option<&'static str> {
    match part.name {
        parts::SYMBOLS | parts::NAMES | parts::DEBUG | parts::NOT_LOADED | parts::SECTIONS
            if !s.places.is_mapped(at) =>
        {
            Some("no segment maps it: debuggers and profilers read it, neither kernel, loader, runtime nor program")
        }
        // gABI, Elf64_Ehdr: e_shoff, and e_shentsize, e_shnum, e_shstrndx.
        parts::ELF_HEADER if (40..48).contains(&at) || (58..64).contains(&at) => Some(
            "where section headers stand: debuggers and profilers read them, neither kernel, loader, runtime nor program",
        ),
        parts::BETWEEN if !s.places.is_mapped(at) => {
            Some("between the tables of the file and in no segment: no header names it")
        }
        parts::BETWEEN if s.output[at] == 0 => Some(
            "zeros between the tables of a segment: nothing that names a table names them, and no code leads there",
        ),
        parts::BETWEEN if s.places.spare_headers.contains(&at) => {
            Some("a library's second table of program headers: its ELF header and its module info name the first")
        }
        parts::INFO if at == s.places.flags && s.output[at] ^ mutant[at] == JUMPS && mutant[at] & JUMPS == 0 => {
            Some("the runtime writes no jumps in place of trap bytes: they cost more, and lead to the same places")
        }
        parts::INFO if s.places.no_rows.contains(&at) => Some("where a table begins that has no rows"),
        parts::RODATA if same_chains(s, mutant, at) => Some("the chain acquires the same blocks with the same rights"),
        parts::TRAPS | parts::RESTARTS if !s.places.rows.iter().any(|r| r.contains(&at)) => {
            Some("filler between codes and heads of a table, to align the heads: in neither")
        }
        parts::COPY if !s.places.is_mapped(at) && s.original.debug.iter().any(|d| d.contains(&(at as u64))) => Some(
            "debug information of the input that was written anew elsewhere: no section header leads here any more",
        ),
        parts::CLAIMS if s.places.claims.contains(&at) && same_claim(s, mutant, at) => Some(
            "a claim names the same access and the same check, and another of the known reasons: audits alone read it, and count it under that",
        ),
        parts::CLAIMS if s.places.regions.contains(&at) && same_regions(s, mutant, at) => Some(
            "the region holds the same instructions of the program, and perhaps no-operations beside them; what the runtime makes accessible besides, nothing needs, and no result depends on it",
        ),
        parts::DYNSYM if same_end(s, mutant, at) => Some(
            "the size of a function's dynamic symbol ends elsewhere in the padding behind the function's last instruction",
        ),
        parts::FILLING => is_filling(s, mutant, at)
            .then_some("padding between functions, which no way leads into, became other no-operations or traps"),
        _ => None,
    }
}

/// Whether the run of padding around `at` consists of what may stand between functions, to its end.
fn is_filling(s: &Subject, mutant: &[u8], at: usize) -> bool {
    let k = s.instructions.partition_point(|i| i.0.start <= at);
    let fills = |bytes: &Range<usize>| is_padding(&s.output[bytes.clone()]);
    let adjoin = |pair: &[(Range<usize>, u64)]| pair[0].0.end == pair[1].0.start;
    let before = s.instructions[..k].iter().rev().take_while(|i| fills(&i.0)).count();
    let behind = s.instructions[k..].iter().take_while(|i| fills(&i.0)).count();
    let run = &s.instructions[k - before..k + behind];
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return false };
    // A gap between the instructions of two sections is no part of it.
    run.windows(2).all(adjoin) && is_padding(&mutant[first.0.start..last.0.end])
}

/// Whether bytes decode as no-operations and traps, whole ones.
fn is_padding(bytes: &[u8]) -> bool {
    let code = decoder::decode(bytes, 0, &[]);
    let whole = code.insns.last().is_some_and(|i| i.end() == bytes.len() as u64);
    whole && code.undecoded.is_empty() && code.insns.iter().all(|i| i.is_nop() || i.is_int3())
}

/// Whether the change at `at` leaves the claim its access and what covers it, and gives it a reason that there is.
fn same_claim(s: &Subject, mutant: &[u8], at: usize) -> bool {
    const REASON: usize = offset_of!(contract::Claim, reason);
    let begin = at - (at - s.places.claims.start) % size_of::<contract::Claim>();
    let read = |file: &[u8]| Some(*file.get(begin..)?.first_chunk::<{ size_of::<contract::Claim>() }>()?);
    let (Some(was), Some(is)) = (read(s.output), read(mutant)) else { return false };
    let reason = u32::from_le_bytes([0, 1, 2, 3].map(|k| is[REASON + k]));
    let is_known = matches!(reason, claim_reason::MERGED | claim_reason::DOMINATED | claim_reason::STRIP);
    was[..REASON] == is[..REASON] && is_known
}

/// Whether the change at `at` leaves the region the program's instructions that it had, and a chain that acquires the same. No-operations may come in.
fn same_regions(s: &Subject, mutant: &[u8], at: usize) -> bool {
    let row = (at - s.places.regions.start) / 12;
    let read = |file: &[u8]| {
        let bytes = file.get(s.places.regions.start + 12 * row..)?.first_chunk::<12>()?;
        let word = |k: usize| u32::from_le_bytes([bytes[k], bytes[k + 1], bytes[k + 2], bytes[k + 3]]);
        Some([word(0), word(4), word(8)])
    };
    let (Some(was), Some(is)) = (read(s.output), read(mutant)) else { return false };
    let count = |list: &[u64], offset: u32| {
        let va = s.new_base + u64::from(offset);
        list.partition_point(|a| *a < va)
    };
    let (own, solid) = (|offset| count(&s.own, offset), |offset| count(&s.solid, offset));
    let chain = |offset: u32| {
        let va = s.new_base + u64::from(offset);
        let m = s.places.chains_va;
        chain_of(s.output, (va.wrapping_sub(m.0) as usize).wrapping_add(m.1))
    };
    let same_chain = was[2] == is[2]
        || matches!((chain(was[2]), chain(is[2])), (Some(was), Some(is)) if acquire_the_same(&was, &is));
    let none_less = own(is[0]) <= own(was[0]) && own(was[1]) <= own(is[1]);
    same_chain && none_less && solid(was[0]) == solid(is[0]) && solid(was[1]) == solid(is[1])
}

/// Whether the change at `at` is to the size of a dynamic symbol, and between its two ends stands nothing but padding and inserted code.
fn same_end(s: &Subject, mutant: &[u8], at: usize) -> bool {
    const ENTRY: usize = 24;
    const SIZE: usize = 16;
    let [old, longer] = s.places.dynsym;
    let begin = at - at.wrapping_sub(if longer == 0 || at < longer { old } else { longer }) % ENTRY;
    let end = |file: &[u8]| {
        let word = |from: usize| Some(u64::from_le_bytes(*file.get(from..)?.first_chunk()?));
        word(begin + 8)?.checked_add(word(begin + SIZE)?)
    };
    let (Some(was), Some(is)) = (end(s.output), end(mutant)) else { return false };
    let next = |va: u64| s.solid.partition_point(|a| *a < va);
    at >= begin + SIZE && next(was) == next(is)
}
