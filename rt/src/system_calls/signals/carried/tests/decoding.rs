//! The decoder says what iced says.
//!
//! [`the_table_is_that_of_iced`] also makes the table: `UPDATE=1 cargo test -p blizzard-rt the_table_is_that_of_iced`.

use crate::system_calls::signals::carried::decode::{self, AddressOperand, CarriedAccess, NONE};
use crate::system_calls::signals::carried::forms::{ANY_PREFIX, ANY_REG, FormKey, LEGACY, SIZES, Size, word};
use crate::system_calls::signals::carried::refused::CarryRefused;
use crate::system_calls::signals::carried::table::TABLE;
use crate::system_calls::signals::carried::tests::specimens::{self, PLAIN, Shape, Specimen, directions};
use iced_x86::{Code, Instruction, Mnemonic, Register};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What a test takes for the bytes of an `xsave`.
const STATE: u64 = 2440;

/// What the decoder refuses, or knows without the table.
pub fn refused(insn: &Instruction) -> Option<CarryRefused> {
    use Mnemonic as M;
    let selector = |n| matches!(insn.op_register(n), Register::FS | Register::GS);
    Some(match insn.mnemonic() {
        M::Movdir64b | M::Enqcmd | M::Enqcmds => CarryRefused::Implicit64,
        M::Sgdt | M::Sidt | M::Sldt | M::Str | M::Smsw => CarryRefused::SystemRegister,
        M::Lss | M::Lfs | M::Lgs => CarryRefused::SegmentRegister,
        M::Mov if selector(0) => CarryRefused::SegmentRegister,
        M::Call | M::Jmp if insn.is_call_far_indirect() || insn.is_jmp_far_indirect() => CarryRefused::FarTransfer,
        M::Tileloadd | M::Tileloaddt1 | M::Tilestored => CarryRefused::Tile,
        _ => return None,
    })
}

pub fn bytes_of(insn: &Instruction) -> Option<u64> {
    use Mnemonic as M;
    let state = matches!(
        insn.mnemonic(),
        M::Xsave | M::Xsave64 | M::Xsavec | M::Xsavec64 | M::Xsaveopt | M::Xsaveopt64 | M::Xrstor | M::Xrstor64
    );
    if state { None } else { Some(insn.memory_size().size() as u64) }
}

/// The parts of a table's line that do not tell forms apart.
type Info = (usize, bool, bool, bool, u8);

fn make_table() -> Vec<u32> {
    let mut forms: BTreeMap<FormKey, Vec<(Specimen, Instruction)>> = BTreeMap::new();
    for (specimen, insn) in specimens::all() {
        if refused(&insn).is_none() && !insn.is_vsib() {
            // Without an escape byte prefixes make no other instruction.
            let prefix =
                if specimen.key.encoding == LEGACY && specimen.key.map == 0 { ANY_PREFIX } else { specimen.key.prefix };
            forms.entry(FormKey { prefix, ..specimen.key }).or_default().push((specimen, insn));
        }
    }
    let mut infos: BTreeMap<FormKey, Info> = forms.into_iter().map(|(key, of)| (key, info(&of))).collect();
    // Where the prefix, or ModRM.reg, tells nothing, one line does.
    for any_reg in [true, false] {
        let groups: BTreeSet<FormKey> = infos
            .keys()
            .map(|key| if any_reg { FormKey { reg: 0, ..*key } } else { FormKey { prefix: 0, ..*key } })
            .collect();
        for group in groups {
            let members: Vec<FormKey> = if any_reg {
                (0..8).map(|reg| FormKey { reg, ..group }).collect()
            } else {
                (0..4).map(|prefix| FormKey { prefix, ..group }).collect()
            };
            let of: Vec<Option<&Info>> = members.iter().map(|key| infos.get(key)).collect();
            if let Some(first) = of[0].copied()
                && of.iter().all(|info| *info == Some(&first))
            {
                members.iter().for_each(|key| _ = infos.remove(key));
                infos.insert(
                    if any_reg { FormKey { reg: ANY_REG, ..group } } else { FormKey { prefix: ANY_PREFIX, ..group } },
                    first,
                );
            }
        }
    }
    infos
        .into_iter()
        .map(|(key, (size, load, store, masked, immediate))| word(key, size as u32, load, store, masked, immediate))
        .collect()
}

fn info(of: &[(Specimen, Instruction)]) -> Info {
    let (first, insn) = &of[0];
    let unmasked = of.iter().find(|(specimen, _)| specimen.mask == 0).map_or(*insn, |(_, insn)| *insn);
    let (load, store, masked) = directions(&unmasked);
    let fits = |size: &Size| of.iter().all(|(s, insn)| size.bytes(s.widths, STATE) == bytes_of(insn).unwrap_or(STATE));
    let observed = || of.iter().map(|(s, insn)| (s.widths, bytes_of(insn), insn.code())).collect::<Vec<_>>();
    let size = SIZES.iter().position(fits).unwrap_or_else(|| panic!("{:?}: no size for {:?}", first.key, observed()));
    let behind = |(s, insn): &(Specimen, Instruction)| insn.len() - (s.bytes(PLAIN, 0).len() - 8);
    let immediates: BTreeSet<usize> = of.iter().map(behind).collect();
    let immediate = match immediates.iter().copied().collect::<Vec<_>>()[..] {
        [0] => 0,
        [1] => 1,
        [2, 4] | [2] | [4] => 2,
        ref other => panic!("{:?}: immediates of {other:?} bytes", first.key),
    };
    for (specimen, insn) in of {
        let (l, s, m) = directions(insn);
        assert_eq!((l, s), (load, store), "{specimen:?}");
        assert_eq!(m, masked || insn.has_op_mask(), "{specimen:?}");
    }
    (size, load, store, masked, immediate)
}

#[test]
fn the_table_is_that_of_iced() {
    let made = make_table();
    if std::env::var_os("UPDATE").is_some() {
        let mut text = String::from(
            "//! A word for each form of instruction with a memory operand, in ascending order. [`crate::system_calls::signals::carried::forms`] says what it means.\n//!\n\
             //! Made by the test `the_table_is_that_of_iced`, which says how.\n\n#[rustfmt::skip]\n",
        );
        writeln!(text, "pub const TABLE: [u32; {}] = [", made.len()).unwrap();
        for line in made.chunks(12) {
            let words: Vec<String> = line.iter().map(|word| format!("{word:#010x}")).collect();
            writeln!(text, "    {},", words.join(", ")).unwrap();
        }
        text.push_str("];\n");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/system_calls/signals/carried/table.rs");
        std::fs::write(path, text).unwrap();
        return;
    }
    assert!(made == TABLE, "run it with UPDATE=1");
}

/// Operands in all the ways they are written, with all registers.
fn shapes() -> Vec<Shape> {
    let mut out = Vec::new();
    for base in (0..16).map(Some).chain([None]) {
        for index in [None, Some(0), Some(5), Some(12), Some(13)] {
            for (disp_bytes, disp) in [(0, 0), (1, -3), (1, 0x70), (4, -0x1234_5678)] {
                out.push(Shape { base, index, scale: (base.unwrap_or(2) & 3), disp_bytes, disp });
            }
        }
    }
    out
}

fn register(number: u8) -> Register {
    [
        Register::RAX,
        Register::RCX,
        Register::RDX,
        Register::RBX,
        Register::RSP,
        Register::RBP,
        Register::RSI,
        Register::RDI,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
        Register::None,
    ][usize::from(number)]
}

fn is_operand(operand: AddressOperand, insn: &Instruction) {
    // A scale of nothing means nothing.
    let scale = |index, scale| if index == Register::None { 1 } else { scale };
    let of = (register(operand.base), register(operand.index), scale(register(operand.index), operand.scale.into()));
    let index = insn.memory_index();
    assert_eq!(of, (insn.memory_base(), index, scale(index, insn.memory_index_scale())), "{insn}");
    let pop = if insn.code() == Code::Pop_rm64 || insn.code() == Code::Pop_rm16 {
        insn.memory_size().size() as i64
    } else {
        0
    };
    let rsp = if operand.base == 4 { pop } else { 0 };
    assert_eq!(operand.disp - rsp, insn.memory_displacement64() as i64, "{insn}");
}

fn without_index(mut insn: Instruction) -> Instruction {
    insn.set_memory_index(Register::None);
    insn
}

fn agree(specimen: &Specimen, shape: Shape) {
    let bytes = specimen.bytes(shape, 0);
    let insn = specimens::decode(&bytes);
    // Lanes whose index is their destination.
    if insn.is_invalid() && insn.code() == Code::INVALID {
        return;
    }
    let ours = decode::decode(&bytes, STATE);
    if let Some(why) = refused(&insn) {
        assert_eq!(ours.map(|_| ()), Err(why), "{insn} {bytes:x?}");
        return;
    }
    let ours = ours.unwrap_or_else(|why| panic!("{insn} {bytes:x?}: {why}"));
    assert_eq!(ours.len, insn.len(), "{insn} {bytes:x?}");
    for end in 0..insn.len() {
        assert_eq!(decode::decode(&bytes[..end], STATE).err(), Some(CarryRefused::Truncated), "{insn} {end}");
    }
    match ours.access {
        CarriedAccess::Plain(plain)
        | CarriedAccess::Table(plain)
        | CarriedAccess::Call(plain)
        | CarriedAccess::BitString { word: plain, .. } => {
            is_operand(plain.operand, &insn);
            assert_eq!((plain.load, plain.store, plain.masked), directions(&insn), "{insn}");
            assert_eq!(plain.bytes, bytes_of(&insn).unwrap_or(STATE), "{insn}");
        }
        CarriedAccess::Lanes(lanes) => {
            assert!(insn.is_vsib(), "{insn}");
            is_operand(
                AddressOperand { base: lanes.base, index: NONE, scale: lanes.scale, disp: lanes.disp.into() },
                &without_index(insn),
            );
            assert_eq!(u32::from(lanes.scale), insn.memory_index_scale());
            assert_eq!(usize::from(lanes.index), insn.memory_index().number());
            assert_eq!(usize::from(lanes.elem_bytes), insn.memory_size().size());
        }
        CarriedAccess::String(_) => panic!("{insn}"),
    }
}

#[test]
fn length_operand_and_access_are_those_of_iced() {
    let (specimens, shapes) = (specimens::all(), shapes());
    let mut seen = BTreeSet::new();
    for (n, (specimen, insn)) in specimens.iter().enumerate() {
        // Each form with some operands, a few forms with all.
        let all = n % 499 == 0;
        for shape in shapes.iter().skip(n % 17).step_by(if all { 1 } else { 41 }) {
            agree(specimen, *shape);
        }
        seen.insert(insn.code());
    }
    assert!(seen.len() > 1500, "{}", seen.len());
}
