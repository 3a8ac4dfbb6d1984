//! Copies of loops in which nothing is checked.
//!
//! The tests at the head of a loop ([`crate::plan::strips`]) lead into a copy of it that holds the block several times over, and compares with the
//! limit once for all of these. Besides accesses that advance by constants, the tests may tell of elements of *tables*: the address is an
//! invariant register plus an index that an instruction of the loop has made small (`movzx` of a byte, `and` with a constant, `shr`). All
//! blocks of a table are tested; if one of them may not be accessed, the loop itself runs, which checks each element. So nothing is acquired
//! that the program might not touch. Where the tests begin with screens, they may also tell of what is *anchored*: the address is an invariant register
//! plus an index of at most 32 bits. If the register points to private memory, so does the sum; if not, the loop itself runs.
//!
//! Input: a loop of one block and its accesses. Output: [`struct@Copy`]. **Invariant**: an access of a copied block is covered by the tests of its
//! strip, is an element of one of the tables, goes through rsp, or has the check that it has in the loop, whose miss leads into the loop. So
//! nothing in a copy runs after the runtime has been entered. A context that continues in one without having come from the tests goes on in the
//! loop instead ([`blizzard_contract::CodeRegion::MOVED`]).
//! Source: design section 5 (strip-mining, a fast copy of the loop).

use crate::decode::classify::is_plain;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::reader::Reader;
use crate::graph::cfg::BlockId;
use crate::plan::checks::PassInput;
use crate::plan::collect;
use crate::plan::loop_tests::{AccessStream, Copy};
use crate::plan::ranges::{AddressKey, NO_REG, Range};
use blizzard_contract as contract;
use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

/// Most instructions of a copy.
const LONGEST: u32 = 48;
/// How often a block may stand in it.
const TIMES: [u32; 2] = [4, 2];
/// Most bytes of a table.
const TABLE: i64 = 2048;

/// Whether a block may be copied: the bytes of its instructions mean the same elsewhere, nothing but checks is inserted into it, and no exception
/// leads from it to a landing pad of its function. `checks`: the accesses that a check stands for.
pub fn is_copyable(input: &PassInput, b: BlockId, checks: &[InsnId]) -> bool {
    let PassInput { image, insns, cfg, .. } = *input;
    let block = &cfg.blocks[b.ix()];
    let last = InsnId(block.stop.0 - 1);
    if !cfg.caught_of(b).is_empty() || insns.next(last) != Some(block.stop) || block.stop.ix() >= insns.len() {
        return false;
    }
    let mut reader = Reader::new(image, insns);
    let mut insn = Instruction::default();
    let mut infos = InstructionInfoFactory::new();
    (block.first.0..block.stop.0).map(InsnId).all(|id| {
        reader.decode(id, &mut insn);
        if id == last {
            return insn.is_jcc_short_or_near();
        }
        let through_rsp = insn.memory_base() == Register::RSP
            && insn.memory_index() == Register::None
            && insn.segment_prefix() == Register::None;
        // String instructions and their like name no operand.
        let has_memory = (0..insn.op_count()).any(|k| insn.op_kind(k) == OpKind::Memory)
            || !infos.info(&insn).used_memory().is_empty();
        let known = !has_memory || insn.mnemonic() == Mnemonic::Lea || through_rsp || checks.binary_search(&id).is_ok();
        let names_rsp = |k| insn.op_kind(k) == OpKind::Register && insn.op_register(k).full_register() == Register::RSP;
        let moves_rsp = insn.is_stack_instruction() || (0..insn.op_count()).any(names_rsp);
        insns.flow(id) == Flow::Next && is_plain(&insn) && known && !moves_rsp
    })
}

/// The copy of a loop, if one pays. `iterations`: those that the tests tell of.
/// `told`: of how many blocks one test tells.
pub fn plan(count: u32, iterations: i64, tables: &[Range], elements: Vec<InsnId>, told: i64) -> Option<Copy> {
    let fits = |times: &u32| iterations % i64::from(*times) == 0 && count * times <= LONGEST;
    let times = TIMES.into_iter().find(fits).or((!elements.is_empty() && count <= LONGEST).then_some(1))?;
    Some(Copy { times, tables: tables.iter().flat_map(|t| tests(t, told)).collect(), elements, private: false })
}

/// The tests of a table: as many from its first byte on as stay inside, and one that ends with the block of its last byte. A block behind the
/// table may be another node's for ever.
fn tests(table: &Range, blocks: i64) -> Vec<AccessStream> {
    let block = contract::BLOCK_BYTES as i32;
    let told = block * (blocks as i32 - 1);
    let (first, last) = (table.lo, table.hi - 1);
    let tags: Vec<u8> =
        (0..).step_by(blocks as usize).take_while(|t| first + block * t + told <= last).map(|t| t as u8).collect();
    let of = |lo: i32, tags: Vec<u8>| AccessStream { key: table.key, lo, store: table.store, tags };
    if tags.is_empty() {
        return vec![of(first, vec![0])];
    }
    vec![of(first, tags), of(last - told, vec![0])]
}

/// The table that an access goes to, in terms of the registers at the head of its loop. `steps`: by how much each register steps.
pub fn table(
    input: &PassInput,
    code: &collect::PassCode,
    first: usize,
    c: usize,
    steps: &[Option<i64>; 16],
) -> Option<Range> {
    let check = &code.checks[c];
    indexed(input, code, first, c, steps, |writer| {
        let bytes = i64::from(check.key.scale) * bound(writer)? + i64::from(check.bytes);
        Some(bytes).filter(|b| *b <= TABLE)
    })
}

/// The access itself without its index, which is narrow.
pub fn anchored(
    input: &PassInput,
    code: &collect::PassCode,
    first: usize,
    c: usize,
    steps: &[Option<i64>; 16],
) -> Option<Range> {
    let bytes = i64::from(code.checks[c].bytes);
    indexed(input, code, first, c, steps, |writer| is_narrow(writer).then_some(bytes))
}

/// The bytes from the first element on, so many as `extent` says of the instruction that wrote the index, of an access whose base is invariant.
fn indexed(
    input: &PassInput,
    code: &collect::PassCode,
    first: usize,
    c: usize,
    steps: &[Option<i64>; 16],
    extent: impl Fn(&Instruction) -> Option<i64>,
) -> Option<Range> {
    let check = &code.checks[c];
    if check.masked {
        return None;
    }
    let AddressKey { base, index, scale } = check.key;
    [(base, index, scale), (index, base, 1)].into_iter().find_map(|(base, index, scale)| {
        // The registers are interchangeable only where nothing is scaled.
        if base == NO_REG || index == NO_REG || check.key.scale != scale {
            return None;
        }
        let bytes = extent(&writer(input, code, first, check.id.ix(), index)?)?;
        let hi = i64::from(check.disp).checked_add(bytes)?;
        let key = AddressKey { base, index: NO_REG, scale: 1 };
        let there = Range { key, lo: check.disp, hi: i32::try_from(hi).ok()?, store: check.store };
        let range = code.steps.range(first..check.id.ix()).rev().try_fold(there, |r, step| r.before(step))?;
        (range.key.base < NO_REG && steps[usize::from(range.key.base)] == Some(0)).then_some(range)
    })
}

/// The last instruction of the loop in front of another one that writes a register, if that is its first operand, whole.
fn writer(input: &PassInput, code: &collect::PassCode, first: usize, at: usize, reg: u8) -> Option<Instruction> {
    let writer = (first..at).rev().find(|&i| code.steps[i].writes(reg))?;
    let insn = input.insns.decode(input.image, InsnId(writer as u32));
    let to = insn.op0_register();
    // A write of 32 bits clears the upper ones.
    let whole = insn.op0_kind() == OpKind::Register && (to.is_gpr32() || to.is_gpr64());
    (whole && to.full_register().number() == usize::from(reg)).then_some(insn)
}

/// The largest value that an instruction leaves in its first operand, a register.
fn bound(insn: &Instruction) -> Option<i64> {
    let to = insn.op0_register();
    match insn.mnemonic() {
        Mnemonic::Movzx if insn.op1_kind() == OpKind::Memory => (insn.memory_size().size() == 1).then_some(255),
        Mnemonic::Movzx => insn.op1_register().is_gpr8().then_some(255),
        Mnemonic::And if insn.op1_kind() != OpKind::Register && insn.op1_kind() != OpKind::Memory => {
            i64::try_from(insn.immediate(1) & if to.is_gpr32() { 0xffff_ffff } else { u64::MAX }).ok()
        }
        Mnemonic::Shr if insn.op1_kind() == OpKind::Immediate8 => {
            let bits = if to.is_gpr32() { 32 } else { 64 };
            let left = bits - (insn.immediate8() & (bits - 1));
            (left < 32).then(|| (1 << left) - 1)
        }
        _ => None,
    }
}

/// Whether it leaves a number of 32 bits in its first operand, with or without a sign.
fn is_narrow(insn: &Instruction) -> bool {
    match insn.mnemonic() {
        Mnemonic::Movsxd | Mnemonic::Movsx | Mnemonic::Movzx => true,
        Mnemonic::Mov => matches!(insn.code(), Code::Mov_r32_rm32 | Code::Mov_rm32_r32),
        Mnemonic::Lea => insn.op0_register().is_gpr32(),
        _ => bound(insn).is_some_and(|most| most <= i64::from(u32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every block that a table touches is tested, and no other one unless the table is small, wherever in its block it begins.
    #[test]
    fn tests_of_tables_tell_of_their_blocks() {
        let key = AddressKey { base: 1, index: NO_REG, scale: 1 };
        for bytes in 1..=TABLE as i32 {
            for at in [0, 1, 31, 62, 63] {
                for told in [2, 4] {
                    let streams = tests(&Range { key, lo: at, hi: at + bytes, store: false }, told);
                    let tags = streams.iter().flat_map(|s| s.tags.iter().map(|&t| s.lo / 64 + i32::from(t)));
                    let tested: BTreeSet<i32> = tags.flat_map(|t| t..t + told as i32).collect();
                    let touched: BTreeSet<i32> = (at / 64..=(at + bytes - 1) / 64).collect();
                    assert!(tested.is_superset(&touched), "{bytes} bytes at {at}");
                    assert!(bytes < 64 * (told as i32 - 1) + 1 || tested == touched, "{bytes} bytes at {at}");
                }
            }
        }
    }

    #[test]
    fn a_block_stands_in_its_copy_as_often_as_pays() {
        let key = AddressKey { base: 1, index: NO_REG, scale: 1 };
        let table = [Range { key, lo: 0, hi: 1024, store: false }];
        let times = |count, iterations, tables: &[Range]| {
            plan(count, iterations, tables, vec![InsnId(0); tables.len()], 4).map(|c| c.times)
        };
        assert_eq!(times(5, 128, &table), Some(4));
        assert_eq!(times(9, 6, &[]), Some(2));
        assert_eq!(times(20, 8, &[]), Some(2));
        assert_eq!(times(30, 8, &[]), None);
        assert_eq!(times(30, 8, &table), Some(1));
        assert_eq!(times(5, 7, &[]), None);
        assert_eq!(times(60, 8, &table), None);
    }
}
