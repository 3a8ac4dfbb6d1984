//! Functions that are known by their new addresses, so that calls from other files and through words of data pass no springboard.
//!
//! Input: what only dynamic symbols and relocated words of data name ([`crate::read::exports`]), the instructions. Output: new values for entries of
//! the dynamic symbol table and for words. **Invariant**: a function, and a label of one, has one address for everybody who asks for it: its new one where
//! each way to ask is a symbol or a word that is changed, else its old one. A symbol's size follows its value, so that `dladdr` finds return addresses.
//! Source: `DESIGN.md`, "Where things go in the output".

use crate::base::addresses::{FileOff, Vaddr};
use crate::base::options::Options;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::decode::reader::Reader;
use crate::decode::skeleton::skeleton;
use crate::graph::computed_targets::Computed;
use crate::plan::checks::Fuel;
use crate::read::exports::{SIZE_AT, SYM_BYTES, VALUE_AT};
use crate::read::image::Image;
use crate::write::new_code::layout::PlacedCode;
use crate::write::output::{Output, Window};
use crate::write::symbols;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

/// Addresses in the file, of eight bytes each, and the instructions that they will lead to.
#[derive(Debug, Default)]
pub struct NewAddresses {
    list: Vec<(FileOff, InsnId)>,
    /// Of the same symbols' sizes, and where the functions are; ascending as the list is.
    sizes: Vec<(FileOff, Vaddr)>,
    /// Functions that have symbols, one or several.
    pub functions: usize,
    /// Functions, and labels of functions, that words name.
    pub words: usize,
}

/// An address that could be a new one, and its places in the two lists of [`crate::read::image::Exports`].
struct Candidate {
    va: Vaddr,
    id: InsnId,
    symbols: std::ops::Range<usize>,
    words: std::ops::Range<usize>,
    named: bool,
}

/// Chooses them. Each address takes some fuel; the labels of a function are chosen together.
pub fn choose(image: &Image, insns: &Insns, computed: &Computed, options: &Options, fuel: &mut Fuel) -> NewAddresses {
    let mut candidates = candidates(image, insns, options);
    if candidates.is_empty() {
        return NewAddresses::default();
    }
    ask_instructions(image, insns, &mut candidates);
    let mut out = NewAddresses::default();
    let is_label = |c: &Candidate| insns.starts.binary_search(&c.id).is_err();
    // Labels of a function stand together.
    let together = |a: &Candidate, b: &Candidate| {
        is_label(a) && is_label(b) && function_of(insns, a.id) == function_of(insns, b.id)
    };
    for group in candidates.chunk_by(together) {
        let fits = |c: &Candidate| {
            let words = !c.words.is_empty();
            !c.named && (!words || !computed.may_reach(c.id) && follows_code(image, insns, c.va))
        };
        let all = group.iter().all(fits) && (!is_label(&group[0]) || are_all(image, insns, group));
        if !all || !fuel.take() {
            continue;
        }
        for c in group {
            out.functions += usize::from(!c.symbols.is_empty());
            out.words += usize::from(!c.words.is_empty());
            let place = |k: u32, part: usize| FileOff(image.exports.at.0 + (k as usize * SYM_BYTES + part) as u64);
            let symbols = || image.exports.list[c.symbols.clone()].iter();
            out.list.extend(symbols().map(|s| (place(s.1, VALUE_AT), c.id)));
            out.sizes.extend(symbols().map(|s| (place(s.1, SIZE_AT), c.va)));
            out.list.extend(image.exports.words[c.words.clone()].iter().map(|w| (w.1, c.id)));
        }
    }
    out.list.sort_unstable_by_key(|e| e.0);
    out.sizes.sort_unstable_by_key(|e| e.0);
    out
}

/// All addresses of instructions that symbols or words name, in so far as the options allow both to be changed; ascending.
fn candidates(image: &Image, insns: &Insns, options: &Options) -> Vec<Candidate> {
    let (symbols, words) = (&image.exports.list, &image.exports.words);
    let mut all: Vec<Vaddr> = symbols.iter().map(|s| s.0).chain(words.iter().map(|w| w.0)).collect();
    all.sort_unstable();
    all.dedup();
    let candidate = |va: Vaddr| {
        let symbols = symbols.partition_point(|s| s.0 < va)..symbols.partition_point(|s| s.0 <= va);
        let words = words.partition_point(|w| w.0 < va)..words.partition_point(|w| w.0 <= va);
        let wanted = (options.exports || symbols.is_empty()) && (options.words || words.is_empty());
        let id = insns.at(va).filter(|id| wanted && id.ix() < insns.main)?;
        Some(Candidate { va, id, symbols, words, named: false })
    };
    all.into_iter().filter_map(candidate).collect()
}

/// Notes which of them instructions name.
fn ask_instructions(image: &Image, insns: &Insns, candidates: &mut [Candidate]) {
    let mut name = |va: Vaddr| {
        if let Ok(k) = candidates.binary_search_by_key(&va, |c| c.va) {
            candidates[k].named = true;
        }
    };
    let mut reader = Reader::new(image, insns);
    let mut insn = Instruction::default();
    for id in (0..insns.len() as u32).map(InsnId) {
        match skeleton(reader.tail(id)) {
            Some(s) if s.ip_relative => {
                let at = usize::from(s.disp32);
                let field = &reader.tail(id)[at..at + 4];
                let distance = i32::from_le_bytes(field.try_into().expect("four bytes"));
                // Direct branches lead to the new code, whatever the function is known by; but a call of what stands behind it
                // pushes that address as if the code wanted to know it.
                let to = insns.end(id) + i64::from(distance) as u64;
                if insns.target(id).is_none() || distance == 0 {
                    name(to);
                }
            }
            Some(_) => {}
            None => {
                reader.decode(id, &mut insn);
                if insn.is_ip_rel_memory_operand() {
                    name(Vaddr(insn.ip_rel_memory_address()));
                }
            }
        }
    }
    image.give_back();
}

/// The place of the function that an instruction belongs to, in the list of functions' starts and one more.
fn function_of(insns: &Insns, id: InsnId) -> usize {
    insns.starts.partition_point(|start| *start <= id)
}

/// Whether the labels of `group` are all that their function has, and something in it jumps to labels.
fn are_all(image: &Image, insns: &Insns, group: &[Candidate]) -> bool {
    let behind = function_of(insns, group[0].id);
    let from = behind.checked_sub(1).map_or(InsnId(0), |k| insns.starts[k]);
    let to = insns.starts.get(behind).map_or(insns.main, |start| start.ix().min(insns.main));
    let Some(last) = to.checked_sub(1).map(|i| InsnId(i as u32)) else { return false };
    // What data name, and what instructions do.
    let within = |vas: &[Vaddr]| {
        vas.partition_point(|va| *va < insns.end(last)) - vas.partition_point(|va| *va <= insns.va(from))
    };
    let first = insns.labels.partition_point(|label| label.at <= from);
    let by_code = insns.labels.get(first).is_some_and(|label| label.at <= last);
    let jumps = (from.ix()..to).any(|i| insns.flow(InsnId(i as u32)) == Flow::IndirectJmp);
    within(&image.code_pointers) == group.len() && !by_code && jumps
}

/// Whether instructions, or what fills up the space in front of an aligned function, end where `va` is. Elsewhere a program may keep data in front of
/// a function, which it finds by the function's address (Haskell's tables, prefix data of LLVM); and a section's start has other names.
fn follows_code(image: &Image, insns: &Insns, va: Vaddr) -> bool {
    let Some(section) = image.exec_at(va).map(|s| &image.exec[s]) else { return false };
    let before = insns.main_before(va).checked_sub(1).map(|i| insns.end(InsnId(i as u32)));
    let Some(end) = before.filter(|end| *end > section.va && *end <= va) else { return false };
    let gap = image.bytes_at(end, (va - end) as usize).unwrap_or(&[]);
    let mut decoder = Decoder::new(64, gap, DecoderOptions::NONE);
    gap.len() as u64 == va - end
        && decoder.iter().all(|i| !i.is_invalid() && matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3))
}

impl NewAddresses {
    /// Places in the file of addresses and sizes, eight bytes each, and what is to stand there.
    fn patches<'x>(
        &'x self,
        image: &'x Image,
        insns: &'x Insns,
        placed: &'x PlacedCode,
    ) -> impl Iterator<Item = (FileOff, u64)> + 'x {
        let size = move |&(at, va): &(FileOff, Vaddr)| {
            let old = image.data.get(at.0 as usize..at.0 as usize + 8).and_then(|b| b.try_into().ok());
            let bytes = old.map_or(0, u64::from_le_bytes);
            let (_, new_bytes) = symbols::moved(insns, placed, va, bytes).filter(|_| bytes > 0)?;
            Some((at, new_bytes))
        };
        self.list.iter().map(|&(at, id)| (at, placed.begin(id).0)).chain(self.sizes.iter().filter_map(size))
    }

    /// Changes a copy of a part of the input, which begins at `from`.
    pub(super) fn write_into(&self, part: &mut [u8], from: FileOff, image: &Image, insns: &Insns, placed: &PlacedCode) {
        for (at, value) in self.patches(image, insns, placed) {
            let to = at.0.checked_sub(from.0).and_then(|at| part.get_mut(at as usize..)?.first_chunk_mut::<8>());
            if let Some(to) = to {
                *to = value.to_le_bytes();
            }
        }
    }
}

/// Writes the new addresses, and sizes, over the old ones in the output's copy of the input.
pub(super) fn write(file: &mut Output, image: &Image, insns: &Insns, placed: &PlacedCode, direct: &NewAddresses) {
    let mut window = Window::up_to(image.data.len() as u64);
    for (at, value) in direct.patches(image, insns, placed) {
        if at.0 + 8 <= image.data.len() as u64 {
            file.patch_through(&mut window, at.0, &value.to_le_bytes());
        }
    }
    file.close(&mut window);
}
