//! Stripped program -> the separate file with its symbols and debug information.
//!
//! Input: the program. Output: files that may be its debug file, and whether one is: it has the same build id, or the checksum that the
//! program's `.gnu_debuglink` gives. Places are those where gdb looks (its manual, "Separate Debug Files"): by build id, then by the link's
//! name next to the program, in `.debug` there, and below the global folder.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where Debian and others put them.
const GLOBAL: &str = "/usr/lib/debug";

/// An ELF file of x86-64.
pub type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// Whether there is debug information in `elf` itself.
pub fn has_its_own(elf: &Elf) -> bool {
    let contents = |s: &object::read::elf::ElfSection64<'_, '_, LittleEndian>| {
        s.kind() != object::SectionKind::UninitializedData && s.size() > 0
    };
    [".debug_info", ".zdebug_info"].iter().any(|name| elf.section_by_name(name).is_some_and(|s| contents(&s)))
}

/// Where the debug file of `program` may be.
pub fn places(elf: &Elf, program: &Path) -> Vec<PathBuf> {
    let global = Path::new(GLOBAL);
    let mut all = Vec::new();
    if let Ok(Some(id)) = elf.build_id() {
        all.extend(by_id(id));
    }
    if let (Ok(Some((name, _))), Ok(program)) = (elf.gnu_debuglink(), program.canonicalize()) {
        let name = OsStr::from_bytes(name);
        let folder = program.parent().unwrap_or(Path::new("/"));
        let below = global.join(folder.strip_prefix("/").unwrap_or(folder));
        all.extend([folder.join(name), folder.join(".debug").join(name), below.join(name)]);
    }
    all
}

/// The global file with this build id.
fn by_id(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|b| format!("{b:02x}")).collect();
    Some(Path::new(GLOBAL).join(format!(".build-id/{first:02x}/{rest}.debug")))
}

/// Why `file` is none of the program's; None: it is.
pub fn belongs(program: &Elf, file: &[u8]) -> Option<String> {
    let debug = match Elf::parse(file) {
        Ok(debug) => debug,
        Err(e) => return Some(e.to_string()),
    };
    let hex = |id: &[u8]| id.iter().map(|b| format!("{b:02x}")).collect::<String>();
    match (program.build_id(), debug.build_id(), program.gnu_debuglink()) {
        (Ok(Some(a)), Ok(Some(b)), _) if a != b => return Some(format!("its build id is {}, not {}", hex(b), hex(a))),
        (Ok(Some(_)), Ok(Some(_)), _) => {}
        (_, _, Ok(Some((_, crc)))) => {
            let found = crc32fast::hash(file);
            if found != crc {
                return Some(format!("its checksum is {found:08x}, not {crc:08x} as .gnu_debuglink says"));
            }
        }
        _ => return Some("the program has no build id and no .gnu_debuglink section to tell by".to_owned()),
    }
    let useful = has_its_own(&debug) || debug.symbols().any(|s| s.is_definition());
    (!useful).then(|| "it holds neither debug information nor symbols".to_owned())
}

/// The debug file of a program without debug information, and its bytes.
pub fn of(elf: &Elf, program: &Path) -> Option<(PathBuf, Vec<u8>)> {
    if has_its_own(elf) {
        return None;
    }
    let readable = |place: PathBuf| place.is_file().then(|| std::fs::read(&place).ok().map(|bytes| (place, bytes)))?;
    places(elf, program).into_iter().filter_map(readable).find(|(_, bytes)| belongs(elf, bytes).is_none())
}

/// The file that holds what several debug files share (`dwz`), which a debug file names.
pub fn shared_part(debug: &Path, bytes: &[u8]) -> Option<PathBuf> {
    let elf = Elf::parse(bytes).ok()?;
    let (name, id) = elf.gnu_debugaltlink().ok()??;
    let beside = debug.parent()?.join(OsStr::from_bytes(name));
    [Some(beside), by_id(id)].into_iter().flatten().find(|path| path.is_file())
}
