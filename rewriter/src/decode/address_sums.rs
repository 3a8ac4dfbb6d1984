//! Addresses of code that a program gets by adding.
//!
//! Purpose: an address that no relocation and no instruction names by itself may be the sum of two things that are named. Two kinds are
//! known: position-independent code of the large model (psABI 3.5, "Large code model") adds numbers of 64 bits to the address of the GOT,
//! which is a label's address and such a number itself; and interpreters written in assembly have tables of the distances of their
//! operations from where their code begins. Input: instructions around those that load such a number or entry. Output: [`Sum`]s.
//!
//! Nothing is proven: instructions are read in the order of their addresses, whatever branches do. A sum is asked for what
//! any address is asked that a `lea` names, before it counts as code.

use crate::base::addresses::Vaddr;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

/// Instructions looked at in front of the one that loads, and behind it.
pub const BACK: usize = 64;
pub const AHEAD: usize = 16;
/// Most addresses that numbers are added to.
pub const MAX_BASES: usize = 8;
/// Most entries of a table of distances.
pub const MAX_ENTRIES: usize = 1 << 12;

/// What was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// An address and a number of 64 bits.
    Address(Vaddr),
    /// An address and an entry of a table.
    Entries(DistanceTable),
}

/// A table of distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistanceTable {
    /// What they are distances from.
    pub from: Vaddr,
    pub at: Vaddr,
    /// Of an entry, in bytes: 2, or 4 with a sign.
    pub width: usize,
}

impl DistanceTable {
    /// Where an entry leads.
    pub fn target(&self, entry: &[u8]) -> Vaddr {
        match *entry {
            [a, b] => self.from + u64::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => self.from + i64::from(i32::from_le_bytes([a, b, c, d])) as u64,
            _ => self.from,
        }
    }
}

/// Whether the instruction with these bytes loads what may be added to an address: a number of 64 bits, no larger than a file (`movabs
/// r, n`), or an entry of a table (`movzx r, word [b + 2*i]`, `movsxd r, dword [b + 4*i]`).
#[inline]
pub fn loads(bytes: &[u8]) -> bool {
    let (wide, rest) = match bytes {
        [rex @ 0x40..=0x4f, rest @ ..] => (rex & 8 != 0, rest),
        _ => (false, bytes),
    };
    // The index may have been multiplied before.
    let indexed = |modrm: u8, sib: u8, scale: u8| modrm < 0xc0 && modrm & 7 == 4 && [0, scale].contains(&(sib >> 6));
    match *rest {
        [0x0f, 0xb7, modrm, sib, ..] => indexed(modrm, sib, 1),
        [0x63, modrm, sib, ..] if wide => indexed(modrm, sib, 2),
        [0xb8..=0xbf, a, b, c, d, e, f, g, h] if wide => {
            i32::try_from(i64::from_le_bytes([a, b, c, d, e, f, g, h])).is_ok()
        }
        _ => false,
    }
}

/// What a register holds.
#[derive(Clone, Copy)]
enum Held {
    Address(Vaddr),
    Number(u64),
    Entry { at: Vaddr, width: usize },
}

/// The sums in a row of instructions. `fixed`: small immediates may be addresses.
pub fn sums(insns: &[Instruction], fixed: bool) -> Vec<Sum> {
    let mut factory = InstructionInfoFactory::new();
    let mut held: [Option<Held>; 16] = [None; 16];
    let mut out = Vec::new();
    for insn in insns {
        let new = result(insn, &held, fixed, &mut out);
        for used in factory.info(insn).used_registers() {
            let reads = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            if !reads && used.register().is_gpr() {
                held[used.register().full_register().number()] = None;
            }
        }
        if new.is_some() {
            held[insn.op0_register().full_register().number()] = new;
        }
    }
    out
}

/// Whether what `load` puts into its register is added to something soon.
pub fn is_added(load: &Instruction, behind: &[Instruction]) -> bool {
    let reg = load.op0_register().full_register();
    behind.iter().any(|insn| {
        let is_it = |r: Register| r.full_register() == reg;
        let parts = match (insn.mnemonic(), insn.op1_kind()) {
            (Mnemonic::Add, OpKind::Register | OpKind::Immediate32to64) => [insn.op0_register(), insn.op1_register()],
            (Mnemonic::Lea, _) => [insn.memory_base(), insn.memory_index()],
            _ => return false,
        };
        parts.into_iter().any(|r| r.is_gpr64() && is_it(r))
    })
}

/// What an instruction leaves in its first operand. A sum is noted.
fn result(insn: &Instruction, held: &[Option<Held>; 16], fixed: bool, out: &mut Vec<Sum>) -> Option<Held> {
    let to = insn.op0_register();
    if insn.op_count() != 2 || insn.op0_kind() != OpKind::Register || !to.is_gpr() {
        return None;
    }
    let get = |reg: Register| if reg.is_gpr64() { held[reg.number()] } else { None };
    let memory = insn.op1_kind() == OpKind::Memory;
    // `[b + i*scale]` or `[i + b]` at i = 0, or `[i*scale + address]`.
    let table = |scale: u32| {
        let (base, index) = (insn.memory_base(), insn.memory_index());
        let address = |reg: Register| match get(reg) {
            Some(Held::Address(b)) => Some(b + insn.memory_displacement64()),
            _ => None,
        };
        match insn.memory_index_scale() {
            s if s == scale && fixed && base == Register::None => Some(Vaddr(insn.memory_displacement64())),
            s if s == scale => address(base),
            1 => address(base).or_else(|| address(index)),
            _ => None,
        }
    };
    match insn.mnemonic() {
        Mnemonic::Lea if insn.is_ip_rel_memory_operand() => Some(Held::Address(Vaddr(insn.ip_rel_memory_address()))),
        Mnemonic::Lea if to.is_gpr64() && insn.memory_index_scale() == 1 => {
            let disp = insn.memory_displacement64();
            match (insn.memory_base(), insn.memory_index()) {
                (base, Register::None) => plus(get(base)?, disp, fixed, out),
                (base, index) => plus(sum(get(base)?, get(index)?, out)?, disp, fixed, out),
            }
        }
        Mnemonic::Add if insn.op1_kind() == OpKind::Register => sum(get(to)?, get(insn.op1_register())?, out),
        Mnemonic::Add if insn.op1_kind() == OpKind::Immediate32to64 || insn.op1_kind() == OpKind::Immediate8to64 => {
            plus(get(to)?, insn.immediate(1), fixed, out)
        }
        Mnemonic::Mov => match insn.op1_kind() {
            OpKind::Register => get(insn.op1_register()),
            OpKind::Immediate64 => Some(Held::Number(insn.immediate(1))),
            OpKind::Immediate32 | OpKind::Immediate32to64 if fixed => Some(Held::Address(Vaddr(insn.immediate(1)))),
            _ => None,
        },
        Mnemonic::Movzx if memory && insn.memory_size().size() == 2 => Some(Held::Entry { at: table(2)?, width: 2 }),
        Mnemonic::Movzx if insn.op1_register().is_gpr16() => {
            held[insn.op1_register().full_register().number()].filter(|h| matches!(h, Held::Entry { width: 2, .. }))
        }
        Mnemonic::Movsxd if memory => Some(Held::Entry { at: table(4)?, width: 4 }),
        _ => None,
    }
}

fn plus(value: Held, number: u64, fixed: bool, out: &mut Vec<Sum>) -> Option<Held> {
    match value {
        Held::Address(a) => Some(Held::Address(a + number)),
        Held::Number(n) => Some(Held::Number(n.wrapping_add(number))),
        Held::Entry { .. } if fixed => sum(value, Held::Address(Vaddr(number)), out),
        Held::Entry { .. } => None,
    }
}

fn sum(a: Held, b: Held, out: &mut Vec<Sum>) -> Option<Held> {
    match (a, b) {
        (Held::Address(a), Held::Number(n)) | (Held::Number(n), Held::Address(a)) => {
            out.push(Sum::Address(a + n));
            Some(Held::Address(a + n))
        }
        (Held::Address(from), Held::Entry { at, width }) | (Held::Entry { at, width }, Held::Address(from)) => {
            out.push(Sum::Entries(DistanceTable { from, at, width }));
            None
        }
        (Held::Number(a), Held::Number(b)) => Some(Held::Number(a.wrapping_add(b))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn decoded(code: &[u8]) -> Vec<Instruction> {
        Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).into_iter().collect()
    }

    #[test]
    fn the_got_is_a_label_and_a_number() {
        // lea rbx, [rip - 7]; movabs r11, 0x2eae; push rbp; add rbx, r11; movabs rax, -0x2f00; lea rcx, [rbx + rax]
        let code = [
            &[0x48, 0x8d, 0x1d, 0xf9, 0xff, 0xff, 0xff, 0x49, 0xbb, 0xae, 0x2e, 0, 0, 0, 0, 0, 0, 0x55][..],
            &[0x4c, 0x01, 0xdb, 0x48, 0xb8, 0x00, 0xd1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x48, 0x8d, 0x0c, 0x03],
        ];
        let code = code.concat();
        let found = [0x1000 + 0x2eae, 0x1000 + 0x2eae - 0x2f00].map(|va| Sum::Address(Vaddr(va)));
        assert_eq!(sums(&decoded(&code), false), found);
        assert!(loads(&code[7..17]));
        assert!(!loads(&[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8]), "no distance in a file");
    }

    #[test]
    fn an_entry_and_an_address_are_a_table() {
        // lea rsi, [rip + 0x100]; lea rdi, [rip + 0x200]; movzx ecx, word [rsi + rdx*2 + 4]; add rcx, rdi
        let code = [
            &[0x48, 0x8d, 0x35, 0x00, 0x01, 0, 0, 0x48, 0x8d, 0x3d, 0x00, 0x02, 0, 0][..],
            &[0x0f, 0xb7, 0x4c, 0x56, 0x04, 0x48, 0x01, 0xf9],
        ];
        let code = code.concat();
        let insns = decoded(&code);
        let table = DistanceTable { from: Vaddr(0x120e), at: Vaddr(0x110b), width: 2 };
        assert_eq!(sums(&insns, false), [Sum::Entries(table)]);
        assert!(loads(&code[14..19]));
        assert!(is_added(&insns[2], &insns[3..]));
        assert!(!is_added(&insns[2], &insns[..2]));
        assert_eq!(table.target(&[0xff, 0xff]), Vaddr(0x120e + 0xffff));
        assert_eq!(DistanceTable { width: 4, ..table }.target(&[0xff; 4]), Vaddr(0x120d));
        // movzx ecx, word [rdx*2 + 0x2000]; add rcx, 0x3000; of a file with fixed addresses
        let fixed = [0x0f, 0xb7, 0x0c, 0x55, 0, 0x20, 0, 0, 0x48, 0x81, 0xc1, 0, 0x30, 0, 0];
        let table = DistanceTable { from: Vaddr(0x3000), at: Vaddr(0x2000), width: 2 };
        assert_eq!(sums(&decoded(&fixed), true), [Sum::Entries(table)]);
        assert_eq!(sums(&decoded(&fixed), false), []);
        assert!(is_added(&decoded(&fixed)[0], &decoded(&fixed)[1..]));
        // A table that is read relative to something that was read: nothing is known.
        assert_eq!(sums(&insns[2..], false), []);
    }
}
