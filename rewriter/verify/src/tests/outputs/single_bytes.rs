//! Single bytes that `corpus mutate` once changed unseen: each kind stays found.

use crate::file::module::Module;
use crate::mutation::code::decoded;
use crate::sites::site::get;
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::{PLANTED_PROGRAM, compiled};
use crate::tests::fixtures::samples::lanes;
use blizzard::base::options::{AccessMode, Options};
use blizzard::pipeline;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};

/// An original and its output.
struct Pair {
    original: Vec<u8>,
    output: Vec<u8>,
}

impl Pair {
    fn program() -> Pair {
        let original = compiled("cc", "p.c", PLANTED_PROGRAM, &["-O2"]);
        let output = pipeline::rewrite(&original, "p", &Options::tests()).expect("rewrite").bytes;
        Pair { original, output }
    }

    fn offset(&self, va: u64) -> usize {
        let m = Module::read(&self.output, "p").expect("read module");
        m.bytes_at(va, 1).expect("in the file").as_ptr() as usize - self.output.as_ptr() as usize
    }

    /// Asserts that the output is accepted, and that with `new` at `at` a reason has these words.
    fn found(&self, at: usize, new: u8, words: &str) {
        let audit = verify_with(&self.output, "p", Some(&self.original)).expect("audit runs");
        assert!(audit.is_clean(), "{audit}");
        assert_ne!(self.output[at], new, "no change");
        let mut mutant = self.output.clone();
        mutant[at] = new;
        let audit = verify_with(&mutant, "p", Some(&self.original)).expect("audit runs");
        assert!(audit.open.iter().any(|o| o.reason.contains(words)), "not found: {words}\n{audit}");
    }
}

/// The comparison took whatever stood over padding of the input for a part of what the rewriter puts there.
#[test]
fn overwritten_padding_is_traps_and_springboards() {
    let p = Pair::program();
    let m = Module::read(&p.output, "p").expect("read module");
    let text = m.old_code().find(|s| s.name == ".text").expect("old code");
    let at = text.data.as_ptr() as usize - p.output.as_ptr() as usize;
    // Padding of several bytes between functions: a long no-operation of the input, now traps.
    let nop = [0x66, 0x2e, 0x0f, 0x1f, 0x84];
    let within = p.original[at..at + text.data.len()].windows(5).position(|w| w == nop).expect("padding");
    let place = at + within + 2;
    assert_eq!(p.output[place], 0xcc);
    p.found(place, 0xcd, "a byte of padding became neither");
}

/// Only segments were compared: a program that reads its own file would have found another one.
#[test]
fn what_no_segment_maps_stays_as_it_was() {
    let p = Pair::program();
    let elf = ElfFile64::<Endianness>::parse(&p.original[..]).expect("an ELF file");
    let end = elf.elf_program_headers().iter().map(|h| h.p_offset(elf.endian()) + h.p_filesz(elf.endian())).max();
    let at = end.expect("segments") as usize + 5;
    p.found(at, p.output[at] ^ 1, "of the original's file was changed");
}

/// The audit went through all words that PT_GNU_RELRO claims, 2^60 of them after a change of one byte.
#[test]
fn a_protected_part_of_any_size_is_judged_in_time() {
    let original = compiled("cc", "p.c", PLANTED_PROGRAM, &["-O1", "-no-pie"]);
    let output = pipeline::rewrite(&original, "p", &Options::tests()).expect("rewrite").bytes;
    let elf = ElfFile64::<Endianness>::parse(&output[..]).expect("an ELF file");
    let relro = elf.elf_program_headers().iter().find(|h| h.p_type(elf.endian()) == object::elf::PT_GNU_RELRO);
    let at = std::ptr::from_ref(relro.expect("a protected part")) as usize - output.as_ptr() as usize;
    let p = Pair { original, output };
    // The highest byte but one of the size in memory.
    p.found(at + 46, 0x10, "PT_GNU_RELRO");
}

/// Bytes 12 to 15 of a range of a chain mean nothing to today's runtime, and bit 0 of byte 6 asks it to load what is stored.
#[test]
fn a_chain_has_no_hidden_bytes_and_asks_for_one_kind() {
    let p = Pair::program();
    let m = Module::read(&p.output, "p").expect("read module");
    let at = p.offset(m.regions.first().expect("a region").2);
    p.found(at + 12, 1, "is damaged");
    p.found(at + 6, p.output[at + 6] | 3, "what nothing needs");
}

/// A region that reached further acquired ranges where their registers hold something else.
#[test]
fn a_region_ends_with_what_needs_it() {
    let p = Pair::program();
    let m = Module::read(&p.output, "p").expect("read module");
    let at = p.offset(m.info.regions_va);
    let read = decoded(&p.output);
    // Which bytes more reach the program's next instruction, and no other region.
    let more = |k: usize| {
        let end = m.regions[k].1;
        let room = m.regions.get(k + 1).map_or(u64::MAX, |next| next.0) - end;
        let from = read.text.at(end)?;
        let own =
            (from..read.text.insns.len()).find(|&i| !get(&read.sites.inserted, i) && !read.text.insns[i].is_nop())?;
        let more = read.text.insns[own].end() - end;
        let new = p.output[at + 12 * k + 4].checked_add(u8::try_from(more).ok()?)?;
        (more <= room).then_some((at + 12 * k + 4, new))
    };
    let (end, new) = (0..m.regions.len()).find_map(more).expect("a region with room behind it");
    p.found(end, new, "a region acquires here what nothing needs");
}

/// The size was accepted wherever it ended in new code; `dladdr` would have named other functions' addresses by it.
#[test]
fn sizes_of_dynamic_symbols_end_with_their_functions() {
    let original = compiled("cc", "p.c", PLANTED_PROGRAM, &["-O2", "-fPIC", "-shared"]);
    let output = pipeline::rewrite_library(&original, "p", &Options::tests()).expect("rewrite").bytes;
    let p = Pair { original, output };
    let elf = ElfFile64::<Endianness>::parse(&p.output[..]).expect("an ELF file");
    let table = elf.elf_dynamic_symbol_table();
    let text = elf.section_by_name(".blizzard.text").expect("new code");
    let begins = object::ObjectSection::address(&text);
    let symbol = elf.dynamic_symbols().find(|s| s.address() >= begins && s.size() > 4).expect("a moved function");
    let entry = table.symbol(symbol.index()).expect("an entry");
    let at = std::ptr::from_ref(entry) as usize - p.output.as_ptr() as usize + 16;
    p.found(at, p.output[at] - 1, "data of the original was changed");
}

/// The audit looked for the last instruction of a function from its symbol's end on, byte by byte: of a size of 2^63 for ever.
#[test]
fn a_dynamic_symbol_of_any_size_is_judged_in_time() {
    let source = format!(
        "{PLANTED_PROGRAM}\n__asm__(\".globl huge\\n.type huge, @function\\nhuge: mov (%rdi), %eax\\n ret\\n.size huge, 1 << 63\\n\");\n"
    );
    let original = compiled("cc", "p.c", &source, &["-O2", "-fPIC", "-shared"]);
    let output = pipeline::rewrite_library(&original, "p", &Options::tests()).expect("rewrite").bytes;
    let audit = verify_with(&output, "p", Some(&original)).expect("audit runs");
    assert!(audit.is_clean(), "{audit}");
}

/// No new address follows that of the last function of all, and any size was good for it: over cold code, full versions, and beyond the file.
#[test]
fn the_last_function_ends_where_its_version_does() {
    let source = "int last(int *p) { return *p + 1; }";
    let original = compiled("cc", "p.c", source, &["-O2", "-fPIC", "-shared", "-nostartfiles"]);
    for options in [Options::tests(), Options { access: AccessMode::Guard, ..Options::default() }] {
        let output = pipeline::rewrite_library(&original, "p", &options).expect("rewrite").bytes;
        let p = Pair { original: original.clone(), output };
        let m = Module::read(&p.output, "p").expect("module");
        let stop = m.text.va + m.plain_bytes() as u64;
        let elf = ElfFile64::<Endianness>::parse(&p.output[..]).expect("an ELF file");
        let symbol = elf.dynamic_symbols().find(|s| s.name() == Ok("last")).expect("the function");
        assert!((m.text.va..stop).contains(&symbol.address()));
        let entry = elf.elf_dynamic_symbol_table().symbol(symbol.index()).expect("an entry");
        let at = std::ptr::from_ref(entry) as usize - p.output.as_ptr() as usize + 16;
        for size in [stop - symbol.address() + 1, 1 << 40] {
            let mut file = p.output.clone();
            file[at..at + 8].copy_from_slice(&size.to_le_bytes());
            let audit = verify_with(&file, "p", Some(&p.original)).expect("audit runs");
            let found = audit.open.iter().any(|o| o.reason.contains("data of the original was changed"));
            assert!(found, "{size:#x}: {audit}");
        }
    }
}

/// Index, mask and number of lanes were taken from the descriptor without a look at the instruction: the gate would have looked at other addresses.
#[test]
fn a_lane_descriptor_is_its_instructions() {
    let row = ".byte 7, 2, 4, 4, 8, 4, 0, 3, 1, 128, 0, 0";
    lanes().accepted();
    for (other, words) in [
        (".byte 7, 3, 4, 4, 8, 4, 0, 3, 1, 128, 0, 0", "index register"),
        (".byte 7, 2, 4, 4, 4, 4, 0, 3, 1, 128, 0, 0", "number of lanes"),
        (".byte 7, 2, 4, 4, 8, 4, 0, 2, 1, 128, 0, 0", "mask register"),
        (".byte 7, 2, 4, 4, 8, 4, 0, 3, 1, 128, 0, 1", "filler"),
    ] {
        lanes().with(row, other).found(words);
    }
    // Registers from 8 on, in both encodings; indices longer than elements; a scatter.
    for (instruction, access, descriptor) in [
        ("vpgatherdd ymm1, [rdi+ymm10*4+16], ymm11", 1, ".byte 7, 10, 4, 4, 8, 4, 0, 11"),
        ("vgatherqps xmm1, [rdi+ymm2*4+16], xmm3", 1, ".byte 7, 2, 8, 4, 4, 4, 0, 3"),
        ("vpgatherdq ymm1, [rdi+xmm2*8+16], ymm3", 1, ".byte 7, 2, 4, 8, 4, 8, 0, 3"),
        ("vpgatherdd zmm1{k2}, [rdi+zmm21*4+16]", 1, ".byte 7, 21, 4, 4, 16, 4, 1, 2"),
        ("vpscatterqq [rdi+zmm30*8+16]{k7}, zmm3", 2, ".byte 7, 30, 8, 8, 8, 8, 1, 7"),
    ] {
        let p = lanes().with("vpgatherdd ymm1, [rdi+ymm2*4+16], ymm3", instruction);
        p.with(row, &format!("{descriptor}, {access}, 128, 0, 0")).accepted();
    }
}
