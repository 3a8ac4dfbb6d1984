//! Faults planted outside of the code: program headers, ELF header, notes, module info, runtime, old code.

use crate::file::memory::{self, HEADER_BYTES, PHDR_BYTES, Phdr, number};
use crate::file::module::Module;
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::{PLANTED_PROGRAM, compiled};
use crate::{Inputs, Runtime, verify_against};
use blizzard::base::options::Options;
use blizzard::pipeline;
use blizzard_contract::ModuleInfo;
use std::sync::OnceLock;

/// An original and its output.
struct Pair {
    original: Vec<u8>,
    output: Vec<u8>,
}

/// A dynamic program, a static one at fixed addresses, a library, a program that new segments stand in front of.
fn pairs() -> &'static [Pair] {
    static PAIRS: OnceLock<Vec<Pair>> = OnceLock::new();
    PAIRS.get_or_init(|| {
        let build = |options: &[&str], library: bool| {
            let original = compiled("cc", "p.c", PLANTED_PROGRAM, options);
            let rewrite = if library { pipeline::rewrite_library } else { pipeline::rewrite };
            let output = rewrite(&original, "p", &Options::tests()).expect("rewrite").bytes;
            Pair { original, output }
        };
        vec![
            build(&["-O1", "-g0"], false),
            build(&["-O1", "-no-pie", "-static"], false),
            build(&["-O1", "-shared", "-fPIC", "-DLIBRARY"], true),
            build(&["-O1", "-g0", "-fpie", "-pie", "-mcmodel=medium", "-DLARGE"], false),
        ]
    })
}

/// The reasons why a changed output is refused; none where it is accepted.
fn reasons(p: &Pair, original: bool, change: impl FnOnce(&mut Vec<u8>)) -> Vec<String> {
    let mut file = p.output.clone();
    change(&mut file);
    match verify_with(&file, "p", original.then_some(&p.original[..])) {
        Ok(audit) => audit.open.iter().map(|o| format!("{}: {}", o.place, o.reason)).collect(),
        Err(e) => vec![e.to_string()],
    }
}

fn table_at(file: &[u8]) -> usize {
    number(&file[32..40]) as usize
}

/// Where in the file the header of a kind stands in the kernel's table.
fn header_of(file: &[u8], fits: impl Fn(&Phdr) -> bool) -> Option<usize> {
    let table = memory::kernel_table(file).expect("a table");
    Some(table_at(file) + PHDR_BYTES * table.iter().position(fits)?)
}

/// Where the module info stands in the tables, and in the runtime.
fn infos(file: &[u8]) -> Vec<usize> {
    let m = Module::read(file, "p").expect("module");
    let words: Vec<u8> = m.info.words().iter().flat_map(|w| w.to_le_bytes()).collect();
    file.windows(words.len()).enumerate().filter(|(_, w)| *w == words).map(|(at, _)| at).collect()
}

#[test]
fn outputs_are_accepted_as_they_are() {
    for p in pairs() {
        for original in [false, true] {
            let found = reasons(p, original, |_| {});
            assert!(found.is_empty(), "{found:?}");
        }
    }
}

/// Each byte of the kernel's program headers counts.
#[test]
fn finds_each_changed_byte_of_program_headers() {
    for p in pairs() {
        let count = memory::kernel_table(&p.output).expect("a table").len();
        // Most of the library's, whose audit takes least; of the others some of each header.
        let step = if p.original.len() > 1 << 19 {
            61
        } else if std::ptr::eq(p, &pairs()[2]) {
            3
        } else {
            19
        };
        for k in (0..count * PHDR_BYTES).step_by(step) {
            let at = table_at(&p.output) + k;
            let bit = if k % 2 == 0 { 1 } else { 0x80 };
            let found = reasons(p, true, |f| f[at] ^= bit);
            assert!(!found.is_empty(), "byte {} of header {}, bit {bit:#x}", k % PHDR_BYTES, k / PHDR_BYTES);
        }
    }
}

/// Without the original, what kernel and loader map is still proven: places, sizes, permissions.
#[test]
fn finds_wrong_load_segments_without_the_original() {
    for p in pairs() {
        let code = Module::read(&p.output, "p").expect("module").info.code_bytes;
        let at = header_of(&p.output, |h| h.kind == memory::PT_LOAD && h.mem == code).expect("the code");
        // Flags, offset, address, size in the file, size in memory.
        for field in [4, 8, 9, 16, 17, 32, 33, 40, 41] {
            let found = reasons(p, false, |f| f[at + field] ^= 2);
            assert!(!found.is_empty(), "byte {field} of the code's header");
        }
        let found = reasons(p, false, |f| f[at..at + 4].fill(0));
        assert!(!found.is_empty(), "the code's header is gone");
    }
}

/// All addresses of the kernel's table may be higher than the loader's by one number, and no more: what the kernel maps between new segments and the
/// program, or what it leaves free there, is found.
#[test]
fn finds_segments_elsewhere_in_front_of_a_program() {
    let p = &pairs()[3];
    let m = Module::read(&p.output, "p").expect("module");
    assert!(m.shift > 0 && (m.info.code_va as i64) < 0);
    let table = memory::kernel_table(&p.output).expect("a table");
    let is_new = |h: &Phdr| h.kind == memory::PT_LOAD && h.va < m.shift;
    let move_by = |f: &mut Vec<u8>, moved: &dyn Fn(&Phdr) -> bool, by: u64| {
        for (k, h) in table.iter().enumerate().filter(|(_, h)| h.mem > 0 && moved(h)) {
            let at = table_at(f) + PHDR_BYTES * k;
            for field in [16, 24] {
                f[at + field..at + field + 8].copy_from_slice(&(h.va + by).to_le_bytes());
            }
        }
    };
    // The program a page higher than its new segments expect; everything a page higher, where only the entry point is not.
    for original in [false, true] {
        let found = reasons(p, original, |f| move_by(f, &|h| h.va >= m.shift, 4096));
        assert!(!found.is_empty(), "the program is elsewhere than its new segments expect");
        let found = reasons(p, original, |f| move_by(f, &|_| true, 4096));
        assert!(found.iter().any(|why| why.contains("is entered here")), "{found:?}");
        // In both tables the last segment ends a page earlier: a hole.
        let last = table.iter().rfind(|h| is_new(h)).expect("the runtime's data");
        let sizes: Vec<usize> =
            p.output.windows(8).enumerate().filter(|(_, w)| number(w) == last.mem).map(|(at, _)| at).collect();
        let found = reasons(p, original, |f| {
            sizes.iter().for_each(|&at| f[at..at + 8].copy_from_slice(&(last.mem - 4096).to_le_bytes()))
        });
        assert!(found.iter().any(|why| why.contains("room for something else")), "{found:?}");
    }
}

#[test]
fn finds_each_changed_byte_of_the_elf_header() {
    for p in pairs() {
        // The place and number of section headers are read by nobody who runs the file.
        let step = if p.original.len() > 1 << 19 { 9 } else { 1 };
        for at in (0..40).chain(48..58).step_by(step) {
            let found = reasons(p, true, |f| f[at] ^= 1);
            assert!(!found.is_empty(), "byte {at}");
        }
        assert_eq!(HEADER_BYTES, 64);
    }
}

/// Each bit of each field of the module info, in each copy.
#[test]
fn finds_each_changed_field_of_the_module_info() {
    for p in pairs() {
        let places = infos(&p.output);
        assert!(!places.is_empty());
        for place in places {
            let step = if p.original.len() > 1 << 19 { 13 } else { 1 };
            for field in (0..ModuleInfo::WORDS).step_by(step) {
                for byte in [0, 1, 3] {
                    let at = place + 8 * field + byte;
                    let found = reasons(p, true, |f| f[at] ^= 1);
                    assert!(!found.is_empty(), "byte {byte} of field {field} at {place:#x}");
                }
            }
        }
    }
}

#[test]
fn finds_a_changed_runtime() {
    let p = &pairs()[0];
    let m = Module::read(&p.output, "p").expect("module");
    let runtime = memory::loads_from(&m.kernel, m.info.rt_base_va);
    assert!(runtime.len() >= 3);
    for part in &runtime {
        for step in 1..20 {
            let at = (part.off + part.file * step / 20) as usize;
            let found = reasons(p, false, |f| f[at] ^= 0x10);
            assert!(!found.is_empty(), "byte {at:#x}");
        }
    }
}

#[test]
fn a_runtime_is_known_by_file_or_by_name() {
    let p = &pairs()[0];
    let audit = |runtimes: Vec<Runtime>| {
        verify_against(&p.output, "p", &Inputs { runtimes, ..Inputs::default() }).expect("audit runs")
    };
    let known = |k: usize| Runtime::File { file: blizzard::write::runtime_blob::FILES[k].bytes, serves: None };
    let name = audit(vec![known(0)]);
    assert!(name.is_clean(), "{name}");
    let name = name.runtime.expect("a name");
    let bytes: Vec<u8> = (0..64).step_by(2).map(|k| u8::from_str_radix(&name[k..k + 2], 16).expect("digits")).collect();
    let mut hash: [u8; 32] = bytes.try_into().expect("32 bytes");
    assert!(audit(vec![Runtime::Named(hash)]).is_clean());
    hash[0] ^= 1;
    assert!(!audit(vec![Runtime::Named(hash)]).is_clean());
    assert!(!audit(vec![known(1)]).is_clean(), "another runtime than the one that is there");
    assert!(!audit(Vec::new()).is_clean(), "no runtime is known");
}

/// A note that asks for IBT is followed by the loader: the first indirect jump to old code would end the run.
#[test]
fn finds_marks_that_were_put_back() {
    let original = compiled("cc", "p.c", PLANTED_PROGRAM, &["-O1", "-fcf-protection", "-Wl,-z,ibt,-z,shstk"]);
    let output = pipeline::rewrite(&original, "p", &Options::tests()).expect("rewrite").bytes;
    let p = Pair { original, output };
    let property = [0x02, 0, 0, 0xc0, 4, 0, 0, 0];
    let at = p.output.windows(8).position(|w| w == property).expect("the property") + 8;
    assert_eq!((p.original[at] & 3, p.output[at] & 3), (3, 0));
    for original in [false, true] {
        let found = reasons(&p, original, |f| f[at] |= 1);
        assert!(found.iter().any(|why| why.contains("IBT")), "{found:?}");
    }
}

/// A file without section headers reads the same as one with them: the audit once took its old code for data.
#[test]
fn a_file_without_section_headers_is_audited_whole() {
    let mut original = pairs()[0].original.clone();
    original[40..48].fill(0);
    original[58..64].fill(0);
    let output = pipeline::rewrite(&original, "p", &Options::tests()).expect("rewrite").bytes;
    let audit = verify_with(&output, "p", Some(&original)).expect("audit runs");
    assert!(audit.is_clean(), "{audit}");
    assert!(audit.bytes.is_some_and(|b| b.instructions > 100) && audit.entries > 10, "{audit}");
}
