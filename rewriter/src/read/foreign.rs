//! Programs of runtimes that rewritten code cannot serve, told by their symbols and sections.
//!
//! Input: the parsed file. Output: an error that says what the program is and why it cannot be rewritten. What is refused
//! here would be rewritten without complaint, and fail when it runs, or be refused without saying what it is:
//!
//! * OCaml's garbage collector looks return addresses up in tables of its own (`caml_frametable`, `frame_descr` in OCaml's
//!   `runtime/caml/stack.h`), which hold addresses of the old code.
//! * V8's garbage collector does the same with its built-in functions (`Isolate::embedded_blob_code`), whose constants stand between
//!   instructions besides. That would be refused, in thousands of places and after a minute.
//! * GHC, Haskell's compiler, puts a table in front of each piece of code, and its runtime finds them by the code's address (GHC's
//!   `InfoTables.h`, "tables next to code"). That would be refused as well, after minutes, or not be noticed.
//! * The kernel ends a restartable sequence (`rseq(2)`) by the addresses that the program gives it, which are those of the old code: it would
//!   not see that one is executed. Its descriptions are in a section of their own (Linux `tools/testing/selftests/rseq/rseq-x86.h`; tcmalloc's as well).
//! * Sanitizers keep their shadow at fixed addresses (AddressSanitizer from 0x7fff8000 on), where the segment and its tags are.
//!
//! The symbols are there in stripped programs, too: OCaml's linker exports them for plug-ins, sanitizers export
//! theirs, or import them from their libraries. GHC's are not: its libraries are known by their names, and a program that contains the runtime by what that
//! prints when it is asked about itself.

use crate::base::error::{Error, Result};
use crate::read::identity::is_pie_flagged;
use goblin::elf::{Elf, Sym, sym};

/// What refers to a sanitizer's runtime calls this first.
const SANITIZERS: [(&str, &str); 4] =
    [("__asan_init", "address"), ("__hwasan_init", "hwaddress"), ("__msan_init", "memory"), ("__tsan_init", "thread")];

/// Where programs describe their restartable sequences.
const SEQUENCES: &str = "__rseq_cs";

/// `v8::internal::Isolate::embedded_blob_code() const`: where the built-in functions are.
const V8_BUILTINS: &str = "_ZNK2v88internal7Isolate18embedded_blob_codeEv";

/// The runtime of GHC begins with this what it prints for `+RTS --info`.
/// Kept with all bits turned, so that this program does not hold it.
const GHC_RUNTIME: [u8; 19] = turned(*b"[(\"GHC RTS\", \"YES\")");
/// So the file names of all libraries that GHC makes begin and go on: `libHSbase-4.15.1.0-ghc9.0.2.so`.
const GHC_LIBRARY: (&str, &str) = ("libHS", "-ghc");

/// # Errors
/// What kind of program it is that cannot be rewritten.
pub(super) fn check(elf: &Elf, data: &[u8], name: &str) -> Result<()> {
    if is_haskell(elf, data) {
        return Err(Error::new(format!("{name}: holds code of Haskell, which cannot be rewritten"))
            .because("GHC's runtime finds tables in front of code by the code's address, and looks return addresses up there")
            .help("leave such a program as it is"));
    }
    let sequences = elf.section_headers.iter().filter(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(SEQUENCES));
    if let Some(first) = sequences.filter(|s| s.sh_size != 0).map(|s| s.sh_addr).min() {
        return Err(Error::new(format!(
            "{name}: has restartable sequences at {first:#x} ({SEQUENCES}), which cannot be rewritten"
        ))
        .because("the kernel looks for the sequence that it interrupts by the addresses of the old code")
        .help("build it without: what uses them (librseq, tcmalloc) has another way for systems without rseq"));
    }
    // The runtimes' own libraries do no harm unless something uses them.
    let library = elf.soname.is_some() && !is_pie_flagged(elf);
    let dynamic = elf.dynsyms.iter().filter_map(|s| Some((elf.dynstrtab.get_at(s.st_name)?, s)));
    let all = elf.syms.iter().filter_map(|s| Some((elf.strtab.get_at(s.st_name)?, s)));
    for (symbol, s) in dynamic.chain(all) {
        if is_ocaml_table(symbol, &s) {
            return Err(Error::new(format!("{name}: holds code of OCaml, which cannot be rewritten"))
                .because("OCaml's garbage collector looks return addresses up in tables of its own (caml_frametable)")
                .help("let ocamlc compile it to bytecode: its interpreter, ocamlrun, can be rewritten"));
        }
        if symbol == V8_BUILTINS && !s.is_import() {
            return Err(Error::new(format!("{name}: holds the JavaScript engine V8, which cannot be rewritten"))
                .because("V8 looks return addresses up in tables of its own (the embedded blob), and generates code")
                .help("leave such a program as it is"));
        }
        let Some((_, kind)) = SANITIZERS.iter().find(|(init, _)| *init == symbol) else { continue };
        if s.is_import() || !library {
            return Err(Error::new(format!("{name}: was built with -fsanitize={kind}, which cannot be rewritten"))
                .because("the sanitizer keeps its shadow memory at addresses that shared memory and its tags need")
                .help("build it without; -fsanitize=undefined is no hindrance"));
        }
    }
    Ok(())
}

/// Made by GHC.
fn is_haskell(elf: &Elf, data: &[u8]) -> bool {
    let is_library = |name: &str| name.starts_with(GHC_LIBRARY.0) && name.contains(GHC_LIBRARY.1);
    let mut libraries = elf.libraries.iter().chain(&elf.soname).map(|path| path.rsplit('/').next().unwrap_or(path));
    if libraries.any(is_library) {
        return true;
    }
    let constants = elf.section_headers.iter().filter(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(".rodata"));
    constants
        .filter_map(|s| s.file_range())
        .filter_map(|range| data.get(range))
        .any(|bytes| contains(bytes, &turned(std::hint::black_box(GHC_RUNTIME))))
}

const fn turned<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    let mut k = 0;
    while k < N {
        bytes[k] = !bytes[k];
        k += 1;
    }
    bytes
}

/// Whether `wanted`, which is not empty, stands in `bytes`.
fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    let (first, last) = (wanted[0], wanted[wanted.len() - 1]);
    let ends = bytes.get(wanted.len() - 1..).unwrap_or(&[]);
    // Two bytes tell nearly all places apart.
    let mut pairs = bytes.iter().zip(ends).enumerate();
    pairs.any(|(at, (&a, &b))| a == first && b == last && bytes[at..at + wanted.len()] == *wanted)
}

/// Each compiled module has a table, and the program a list of all.
fn is_ocaml_table(symbol: &str, s: &Sym) -> bool {
    let table = symbol == "caml_frametable" || symbol.starts_with("caml") && symbol.ends_with("__frametable");
    table && !s.is_import() && s.st_type() != sym::STT_FUNC
}

/// Whether the Go toolchain's linker wrote the file: it leaves a build id with its own name, or its table of functions.
pub(super) fn is_go(elf: &Elf, data: &[u8]) -> bool {
    let named = |s: &goblin::elf::SectionHeader| {
        matches!(elf.shdr_strtab.get_at(s.sh_name), Some(".gopclntab" | ".note.go.buildid" | ".data.rel.ro.gopclntab"))
    };
    let notes = || elf.iter_note_headers(data).into_iter().flatten().flatten();
    elf.section_headers.iter().any(named) || notes().any(|n| n.name.trim_end_matches('\0') == "Go")
}
