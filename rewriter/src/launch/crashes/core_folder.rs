//! What gdb needs for a core file, in a folder beside it.
//!
//! Input: a core file. Output: a folder with the rewritten files that were mapped, and commands for gdb. The cache may be cleaned then. The original program has other
//! addresses, and the dynamic loader's names are those of the original libraries: so gdb looks for libraries in this folder alone.
//! Source: Linux `fs/binfmt_elf.c` (NT_FILE); gdb's manual, "Commands to Specify Files".

use crate::base::error::{Error, Result};
use crate::base::memory::MappedFile;
use crate::read::rewritten;
use goblin::elf::Elf;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name of the commands.
const COMMANDS: &str = "gdb";
/// Bytes of a word of the note.
const WORD: usize = 8;

/// Makes the folder for `core`, which `program` has left: `CORE.files`; the commands in it.
///
/// # Errors
/// The core file cannot be read, or the folder cannot be written to.
pub fn make(core: &Path, program: &Path) -> Result<PathBuf> {
    let failed = |e: std::io::Error| Error::new(format!("cannot keep what {} needs", core.display())).because(e);
    let mapped = MappedFile::of(&File::open(core).map_err(failed)?, &core.display().to_string()).map_err(failed)?;
    let mut folder = core.as_os_str().to_owned();
    folder.push(".files");
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder).map_err(failed)?;
    for path in mapped_files(&mapped).unwrap_or_default().into_iter().chain([program.to_owned()]) {
        let Some(names) = names_of(&path) else { continue };
        for name in names {
            keep(&path, &folder.join(name)).map_err(failed)?;
        }
    }
    let commands = folder.join(COMMANDS);
    let program = folder.join(program.file_name().unwrap_or_default());
    fs::write(&commands, text(&folder, &program, core)).map_err(failed)?;
    Ok(commands)
}

/// The commands. gdb reads no quotes but in `file`.
fn text(folder: &Path, program: &Path, core: &Path) -> String {
    let (folder, core) = (folder.display(), core.display());
    let program = program.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    format!("set sysroot {folder}\nset solib-search-path {folder}\nfile \"{program}\"\ncore-file {core}\n")
}

/// The files that the note NT_FILE of a core file names.
fn mapped_files(core: &[u8]) -> Option<BTreeSet<PathBuf>> {
    let header = FileHeader64::<LE>::parse(core).ok()?;
    for segment in header.program_headers(LE, core).ok()? {
        let Ok(Some(mut notes)) = segment.notes(LE, core) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.n_type(LE) == elf::NT_FILE {
                return named_in(note.desc());
            }
        }
    }
    None
}

/// Count and page size, three words for each mapping, and the names, each with a zero behind it.
fn named_in(note: &[u8]) -> Option<BTreeSet<PathBuf>> {
    let count = usize::try_from(u64::from_le_bytes(*note.first_chunk()?)).ok()?;
    let names = note.get(count.checked_mul(3)?.checked_add(2)?.checked_mul(WORD)?..)?;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Some(names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
}

/// Names under which the dynamic loader may know a rewritten file; none: it is another file.
fn names_of(path: &Path) -> Option<BTreeSet<OsString>> {
    // The program may have mapped a device, or more than there is memory.
    let file = path.is_file().then(|| File::open(path).ok())??;
    let file = MappedFile::of(&file, &path.display().to_string()).ok().filter(|file| rewritten::is_rewritten(file))?;
    let soname = Elf::parse(&file).ok().and_then(|elf| elf.soname.map(OsString::from));
    Some(soname.into_iter().chain(path.file_name().map(OsStr::to_owned)).collect())
}

/// Another name of the file, or a copy where the file system is another one.
fn keep(file: &Path, to: &Path) -> std::io::Result<()> {
    match fs::remove_file(to) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fs::hard_link(file, to).or_else(|_| fs::copy(file, to).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_files_once() {
        let words = |all: &[u64]| all.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let note = [words(&[2, 4096, 1, 2, 0, 2, 3, 1]), b"/a/prog\0/a/prog\0".to_vec()].concat();
        assert_eq!(named_in(&note), Some(BTreeSet::from(["/a/prog".into()])));
        assert_eq!(named_in(&note[..40]), None);
        assert_eq!(named_in(&words(&[u64::MAX, 4096])), None);
    }

    #[test]
    fn commands_name_what_is_in_the_folder() {
        let text = text(Path::new("/a b/core.files"), Path::new("/a b/core.files/p\"q"), Path::new("/a b/core"));
        let expected = "set sysroot /a b/core.files\nset solib-search-path /a b/core.files\n\
                        file \"/a b/core.files/p\\\"q\"\ncore-file /a b/core\n";
        assert_eq!(text, expected);
    }
}
