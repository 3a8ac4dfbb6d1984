//! Decodes what stands between hand-written functions that have no frames and jump to computed addresses.
//!
//! Purpose: the cases of a hand-written table (16-bit entries, entries relative to a label) are in nobody's list of addresses. Left undecoded,
//! they would run where they stand, unchecked. Input: what roots and frames have led to. Output: more code; and, where code reads a part of such
//! bytes although they begin like code, an address that is [`crate::decode::insns::Insns::contested`], so that the file is refused.
//!
//! A stretch is what lies between two frames. Where it contains a jump through a register, or through memory at an address that is not constant, all
//! its bytes that decode plausibly are code. A stretch without such a jump has nothing that leads to a byte that no branch names.
//! Source: design section 3.1.

use crate::base::addresses::Vaddr;
use crate::decode::classify::flow_of;
use crate::decode::explore::Explorer;
use crate::decode::insn::Flow;
use crate::decode::marks::Mark;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Of functions.
const ALIGNMENT: u64 = 16;

/// Bytes among which the opcode of an indirect jump is: prefixes, REX, 0xff.
const MAX_OPCODE_AT: usize = 4;

impl Explorer<'_, '_> {
    /// Decodes the gaps of all stretches that jump to computed addresses, until there are no more.
    pub(super) fn sweep_gaps(&mut self) {
        for (from, stop) in self.frameless_stretches() {
            if !self.has_computed_jump(from, stop) {
                continue;
            }
            // What is found may name more, anywhere; a gap that stays is looked at once for each time that something was found.
            while self.sweep_stretch(from, stop) {
                self.take_soft_roots();
            }
        }
    }

    /// `[from, stop)` of what no frame describes, by sections.
    fn frameless_stretches(&self) -> Vec<(Vaddr, Vaddr)> {
        let mut out = Vec::new();
        for map in &self.maps {
            let stop = map.va + map.list.len() as u64;
            let mut from = map.va;
            for f in self.frames.fdes.iter().filter(|f| f.end > map.va && f.start < stop) {
                if from < f.start {
                    out.push((from, f.start));
                }
                from = from.max(f.end);
            }
            if from < stop {
                out.push((from, stop));
            }
        }
        out
    }

    fn has_computed_jump(&mut self, from: Vaddr, stop: Vaddr) -> bool {
        let mut insn = Instruction::default();
        let mut va = from;
        while va < stop {
            let Some(mark) = self.mark(va) else { return false };
            if let Some(len) = mark.len() {
                let candidate = self.image.bytes_at(va, len.min(MAX_OPCODE_AT)).is_some_and(|b| b.contains(&0xff));
                if candidate && self.decode_at(va, &mut insn) && is_computed_jump(&insn) {
                    return true;
                }
            }
            va = va + mark.len().unwrap_or(1) as u64;
        }
        false
    }

    /// Descends into the gaps of a stretch; whether anything was decoded.
    ///
    /// A gap may be as long as its section and hold thousands of functions (a table of stubs that only arithmetic finds), so nothing here asks for its
    /// end for each of them.
    fn sweep_stretch(&mut self, from: Vaddr, stop: Vaddr) -> bool {
        let mut any = false;
        let mut va = from;
        while va < stop {
            match self.mark(va) {
                None => break,
                Some(Mark::UNKNOWN) => match self.code_behind_padding(va, stop) {
                    Some(here) if self.is_read_in_gap(here, stop) => {
                        self.doubtful.push(here);
                        va = self.gap_end(here, stop);
                    }
                    Some(here) => {
                        self.roots.push(here);
                        self.descend_softly(here);
                        any = true;
                        va = here;
                    }
                    None => va = self.gap_end(va, stop),
                },
                Some(mark) => va = va + mark.len().unwrap_or(1) as u64,
            }
        }
        any
    }

    /// The first byte from `va` on, up to `stop`, of which something is known.
    fn gap_end(&self, va: Vaddr, stop: Vaddr) -> Vaddr {
        let Some(s) = self.image.exec_at(va) else { return va };
        let map = &self.maps[s];
        let list = &map.list[(va - map.va) as usize..((stop - map.va) as usize).min(map.list.len())];
        let passed = list.iter().position(|mark| *mark != Mark::UNKNOWN).unwrap_or(list.len());
        #[cfg(test)]
        tests::PASSED.set(tests::PASSED.get() + passed);
        va + passed as u64
    }

    /// Whether the gap that `from` belongs to goes on to `to`, at least.
    fn gap_reaches(&self, from: Vaddr, to: Vaddr) -> bool {
        self.gap_end(from, to) == to
    }

    /// Whether code reads something between `here` and the end of its gap.
    fn is_read_in_gap(&self, here: Vaddr, stop: Vaddr) -> bool {
        let read = self.data_refs.range(here..stop).next();
        read.is_some_and(|&read| self.gap_reaches(here, read + 1))
    }

    /// The first instruction of a gap that is no padding, if code begins there.
    fn code_behind_padding(&mut self, mut va: Vaddr, stop: Vaddr) -> Option<Vaddr> {
        let mut insn = Instruction::default();
        while va < stop && self.is_unknown(va) && self.decode_at(va, &mut insn) {
            // Free Pascal pads with zeros, which read as an instruction that covers the beginning of what follows.
            let aligned = Vaddr((va.0 + 1).next_multiple_of(ALIGNMENT));
            let zeros = self.image.bytes_at(va, (aligned - va) as usize).is_some_and(|b| b.iter().all(|b| *b == 0));
            let next = match insn.mnemonic() {
                Mnemonic::Nop | Mnemonic::Int3 => Vaddr(insn.next_ip()),
                _ if zeros && aligned <= stop && self.gap_reaches(va, aligned) => aligned,
                _ => break,
            };
            if next > stop || !self.gap_reaches(va, next) {
                return None;
            }
            va = next;
        }
        (va < stop && self.is_unknown(va) && self.plausible(va).is_some()).then_some(va)
    }
}

/// A jump whose target is neither in the instruction nor at a constant address.
fn is_computed_jump(insn: &Instruction) -> bool {
    flow_of(insn) == Flow::IndirectJmp
        && (insn.op0_kind() == OpKind::Register
            || !insn.is_ip_rel_memory_operand()
                && (insn.memory_base() != Register::None || insn.memory_index() != Register::None))
}

#[cfg(test)]
mod tests {
    use crate::pipeline::analyse;
    use std::cell::Cell;
    use std::process::Command;

    thread_local! {
        /// Bytes that searches for the end of a gap have passed.
        pub static PASSED: Cell<usize> = const { Cell::new(0) };
    }

    /// libglvnd's stubs: a section of them, which only arithmetic finds, each with a jump to a computed address. The rest of the section was gone
    /// through for each stub, so libGLdispatch's 240 KiB took nine seconds.
    #[test]
    fn many_functions_in_one_gap_are_found_in_one_pass() {
        const STUBS: usize = 4000;
        let folder = tempfile::tempdir().unwrap();
        let source = format!(
            ".globl _start
_start: shl $5, %rdi
 add base(%rip), %rdi
 jmp *%rdi
.section stubs, \"ax\"
.balign 32
first: .rept {STUBS}
 mov table(%rip), %r11
 jmp *8(%r11)
 .balign 32
.endr
.data
base: .quad first
table: .quad 0
"
        );
        std::fs::write(folder.path().join("p.s"), source).unwrap();
        let args = ["-nostdlib", "-static", "-s", "-o", "p", "p.s"];
        assert!(Command::new("cc").current_dir(&folder).args(args).status().unwrap().success());
        let file = std::fs::read(folder.path().join("p")).unwrap();
        PASSED.set(0);
        let a = analyse(&file, "p").unwrap();
        assert!(a.insns.len() >= 2 * STUBS, "{} instructions", a.insns.len());
        assert!(PASSED.get() < 4 * 32 * STUBS, "passed {} bytes", PASSED.get());
    }
}
