//! Line-number programs: the header as it was, the rows at new addresses in a new encoding.
//!
//! Input: an old program, a map of addresses. Output: a new program. **Invariant**: it has no rows for old code.
//! Source: DWARF 5 section 6.2.

use crate::base::addresses::Vaddr;
use crate::write::debug::address_map::{AddressMap, DebugSlice};
use gimli::{ColumnType, IncompleteLineProgram, LineRow, constants as c, leb128::write};
use std::ops::Range;

/// What the line-number state machine holds.
struct Registers {
    address: u64,
    file: u64,
    line: u64,
    column: u64,
    is_stmt: bool,
    isa: u64,
}

/// How special opcodes are made.
struct Special {
    base: i64,
    range: i64,
    opcode_base: i64,
}

/// Appends the new program to `out`: one without rows where it has a form that is not understood, for old addresses would be wrong.
/// None: its extent is not known; nothing has been appended.
pub fn rewrite(
    section: &[u8],
    program: IncompleteLineProgram<DebugSlice>,
    map: &dyn AddressMap,
    out: &mut Vec<u8>,
) -> Option<()> {
    let header = program.header().clone();
    // DWARF 2 has nine standard opcodes.
    let plain = header.minimum_instruction_length() == 1
        && header.maximum_operations_per_instruction() <= 1
        && header.opcode_base() > c::DW_LNS_fixed_advance_pc.0
        && header.line_range() != 0;
    let old = header.offset().0;
    let initial = match header.format() {
        gimli::Format::Dwarf32 => 4,
        gimli::Format::Dwarf64 => 12,
    };
    let whole = section.get(old..)?.get(..header.unit_length().checked_add(initial)?)?;
    let header_bytes = whole.len().checked_sub(header.raw_program_buf().len())?;
    let special = Special {
        base: i64::from(header.line_base()),
        range: i64::from(header.line_range()),
        opcode_base: i64::from(header.opcode_base()),
    };
    let start = out.len();
    out.extend_from_slice(&whole[..header_bytes]);
    let rows = out.len();
    if !plain || append_rows(program, map, header.default_is_stmt(), &special, out).is_err() {
        out.truncate(rows);
    }
    let length = (out.len() - start - initial) as u64;
    match header.format() {
        gimli::Format::Dwarf32 => out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes()),
        gimli::Format::Dwarf64 => out[start + 4..start + 12].copy_from_slice(&length.to_le_bytes()),
    }
    Some(())
}

fn append_rows(
    program: IncompleteLineProgram<DebugSlice>,
    map: &dyn AddressMap,
    default_is_stmt: bool,
    special: &Special,
    out: &mut Vec<u8>,
) -> gimli::Result<()> {
    let mut rows = program.rows();
    let mut state: Option<Registers> = None;
    // A sequence that begins outside the module's code describes nothing that was linked.
    let mut dropped = false;
    // The sequence's rows, for copies of its code.
    let mut sequence: Vec<LineRow> = Vec::new();
    while let Some((_, row)) = rows.next_row()? {
        if dropped {
            dropped = !row.end_sequence();
            continue;
        }
        let new = match row.end_sequence() {
            true => map.end(Vaddr(row.address())),
            false => map.begin(Vaddr(row.address())),
        };
        if state.is_none() {
            let Some(Vaddr(address)) = new else {
                dropped = !row.end_sequence();
                continue;
            };
            out.extend([0, 9, c::DW_LNE_set_address.0]);
            out.extend(address.to_le_bytes());
            state = Some(Registers { address, file: 1, line: 1, column: 0, is_stmt: default_is_stmt, isa: 0 });
        }
        sequence.push(*row);
        let registers = state.as_mut().expect("set above");
        let address = new.map_or(registers.address, |a| a.0.max(registers.address));
        if row.end_sequence() {
            advance(out, address - registers.address);
            out.extend([0, 1, c::DW_LNE_end_sequence.0]);
            state = None;
            if let (Some(first), Some(last)) = (sequence.first(), sequence.last()) {
                let range = Vaddr(first.address())..Vaddr(last.address());
                // Breakpoints go into loops, not their copies, and into both versions.
                let copied = map.copied(range.clone());
                append_elsewhere(&sequence, (&copied, Rows::Last), default_is_stmt, special, out);
                append_elsewhere(&sequence, (&map.full(range.clone()), Rows::Every), default_is_stmt, special, out);
                for cold in map.cold(range).chunk_by(|a, b| a.1.end == b.1.start) {
                    append_elsewhere(&sequence, (cold, Rows::NoStatement), default_is_stmt, special, out);
                }
            }
            sequence.clear();
        } else {
            append_row(row, (address, true), registers, special, out);
        }
    }
    Ok(())
}

/// Which rows of a place another place of its code gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    Every,
    Last,
    /// The last one, and not as the beginning of a statement: who steps through the statement goes on there, and nobody stops for it.
    NoStatement,
}

/// Appends a sequence for where else there is what the rows of a sequence describe.
fn append_elsewhere(
    rows: &[LineRow],
    (copied, which): (&[(Vaddr, Range<Vaddr>)], Rows),
    default_is_stmt: bool,
    special: &Special,
    out: &mut Vec<u8>,
) {
    let Some(&Vaddr(start)) = copied.first().map(|c| &c.1.start) else { return };
    out.extend([0, 9, c::DW_LNE_set_address.0]);
    out.extend(start.to_le_bytes());
    let mut registers = Registers { address: start, file: 1, line: 1, column: 0, is_stmt: default_is_stmt, isa: 0 };
    let mut said = None;
    for (old, new) in copied {
        let row = rows.partition_point(|r| r.address() <= old.0).checked_sub(1);
        if let Some(k) = row.filter(|_| row != said) {
            let before =
                rows[..k].iter().rev().take_while(|r| which == Rows::Every && r.address() == rows[k].address()).count();
            for row in &rows[k - before..=k] {
                append_row(row, (new.start.0, which != Rows::NoStatement), &mut registers, special, out);
            }
        }
        said = row;
    }
    let end = copied.last().map_or(start, |c| c.1.end.0);
    advance(out, end - registers.address);
    out.extend([0, 1, c::DW_LNE_end_sequence.0]);
}

/// `begins`: the row may begin a statement, a block or a function's body; else its line alone is taken.
fn append_row(row: &LineRow, (address, begins): (u64, bool), r: &mut Registers, special: &Special, out: &mut Vec<u8>) {
    if row.file_index() != r.file {
        r.file = row.file_index();
        out.push(c::DW_LNS_set_file.0);
        uleb(out, r.file);
    }
    let column = match row.column() {
        ColumnType::LeftEdge => 0,
        ColumnType::Column(n) => n.get(),
    };
    if column != r.column {
        r.column = column;
        out.push(c::DW_LNS_set_column.0);
        uleb(out, column);
    }
    // Later versions' opcodes are not known to a program with fewer.
    let has = |opcode: c::DwLns| special.opcode_base > i64::from(opcode.0);
    if row.isa() != r.isa && has(c::DW_LNS_set_isa) {
        r.isa = row.isa();
        out.push(c::DW_LNS_set_isa.0);
        uleb(out, r.isa);
    }
    if (row.is_stmt() && begins) != r.is_stmt {
        r.is_stmt = !r.is_stmt;
        out.push(c::DW_LNS_negate_stmt.0);
    }
    if row.discriminator() != 0 {
        let mut value = Vec::new();
        uleb(&mut value, row.discriminator());
        out.extend([0, value.len() as u8 + 1, c::DW_LNE_set_discriminator.0]);
        out.extend(value);
    }
    for (set, opcode) in [
        (row.basic_block(), c::DW_LNS_set_basic_block),
        (row.prologue_end(), c::DW_LNS_set_prologue_end),
        (row.epilogue_begin(), c::DW_LNS_set_epilogue_begin),
    ] {
        if set && begins && has(opcode) {
            out.push(opcode.0);
        }
    }
    let line = row.line().map_or(0, |l| l.get());
    let by_line = (line as i64).wrapping_sub(r.line as i64);
    let by_address = address - r.address;
    (r.line, r.address) = (line, address);
    let adjusted = by_line.wrapping_sub(special.base);
    let opcode = |by: u64| {
        let adjusted = Some(adjusted).filter(|line| (0..special.range).contains(line))?;
        let by = i64::try_from(by).ok()?;
        u8::try_from(by.checked_mul(special.range)?.checked_add(adjusted + special.opcode_base)?).ok()
    };
    if let Some(op) = opcode(by_address) {
        return out.push(op);
    }
    advance(out, by_address);
    match opcode(0) {
        Some(op) => out.push(op),
        None => {
            out.push(c::DW_LNS_advance_line.0);
            write::signed(out, by_line).expect("writing to memory cannot fail");
            out.push(c::DW_LNS_copy.0);
        }
    }
}

fn advance(out: &mut Vec<u8>, by: u64) {
    if by != 0 {
        out.push(c::DW_LNS_advance_pc.0);
        uleb(out, by);
    }
}

/// Appends an unsigned LEB128.
pub fn uleb(out: &mut Vec<u8>, value: u64) {
    write::unsigned(out, value).expect("writing to memory cannot fail");
}
