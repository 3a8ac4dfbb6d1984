//! What kind of file this is, by its headers alone.
//!
//! Input: bytes, or parsed headers. Output: a [`ProgramKind`], or an error that says in one line what the file is that cannot be rewritten.
//! Source: System V gABI chapter 4.

use crate::base::error::{Error, Result};
use crate::read::image::ProgramKind;
use goblin::elf::{Elf, program_header as ph};
use std::ffi::OsStr;
use std::path::Path;

pub(super) fn has_dynamic(elf: &Elf) -> bool {
    elf.program_headers.iter().any(|p| p.p_type == ph::PT_DYNAMIC)
}

pub(super) fn kind_of(elf: &Elf) -> ProgramKind {
    let pie = elf.header.e_type == goblin::elf::header::ET_DYN;
    let interp = elf.interpreter.is_some();
    let library = pie && !is_pie_flagged(elf) && (!interp && has_dynamic(elf) || elf.soname.is_some());
    match (library, interp) {
        (true, _) => ProgramKind::Library,
        (false, true) => ProgramKind::Dynamic,
        (false, false) => ProgramKind::Static,
    }
}

/// Whether a file has the name of source code of C, C++ or Rust.
pub fn is_named_as_source(path: &Path) -> bool {
    path.extension().and_then(OsStr::to_str).is_some_and(|end| ["c", "cc", "cpp", "cxx", "C", "rs"].contains(&end))
}

/// Says in one line what a file is that cannot be rewritten.
pub(super) fn check_identity(data: &[u8], name: &str) -> Result<()> {
    let no = |what: &str, help: &str| Err(Error::new(format!("{name}: {what}")).help(help));
    const WANT: &str = "give an x86-64 Linux executable";
    if data.is_empty() {
        return no("the file is empty", WANT);
    }
    if data.starts_with(b"#!") {
        return no(
            "is a script, not an ELF program",
            "give the interpreter's path as the program, and the script as its argument",
        );
    }
    if data.starts_with(b"!<arch>") {
        return no("is a static library, not a program", "link it into a program first");
    }
    if !data.starts_with(b"\x7fELF") && is_named_as_source(Path::new(name)) {
        return no("is source code, not a program", "compile it, and name the program");
    }
    if !data.starts_with(b"\x7fELF") {
        return no("is not an ELF file", WANT);
    }
    if data.len() < 64 {
        return no("the ELF header is cut off", "check that the file is complete");
    }
    if data[4] != 2 {
        return no("is a 32-bit program; only 64-bit ones are supported", "build it with -m64");
    }
    if data[5] != 1 {
        return no("is a big-endian program; only x86-64 is supported", WANT);
    }
    let half = |at: usize| u16::from_le_bytes([data[at], data[at + 1]]);
    if half(18) != goblin::elf::header::EM_X86_64 {
        let arch = goblin::elf::header::machine_to_str(half(18));
        return no(&format!("is for another processor ({arch}); only x86-64 is supported"), WANT);
    }
    match half(16) {
        goblin::elf::header::ET_EXEC | goblin::elf::header::ET_DYN => Ok(()),
        goblin::elf::header::ET_REL => no("is a relocatable object file, not a program", "link it first"),
        goblin::elf::header::ET_CORE => no("is a core dump, not a program", "give the program that dumped it"),
        other => no(&format!("has the unknown ELF type {other}"), WANT),
    }
}

pub(super) fn is_pie_flagged(elf: &Elf) -> bool {
    elf.dynamic.as_ref().is_some_and(|d| d.info.flags_1 & goblin::elf::dynamic::DF_1_PIE != 0)
}
