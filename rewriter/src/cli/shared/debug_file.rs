//! Finding the separate file with a stripped program's symbols and debug information.
//!
//! Input: the program, and perhaps the file that the user names. Output: the file, read, which is certain to be the program's.

use crate::base::error::{Error, Result};
use crate::cli::shared::input::{self, InputFile};
use crate::reports::debug_file::{Elf, belongs, has_its_own, places};
use std::path::Path;

/// The debug file of `program`; `asked`: what the user says; None: where debuggers look.
///
/// # Errors
/// There is none, it is of another program, or the program needs none.
pub fn find(program: &InputFile, asked: Option<&Path>) -> Result<InputFile> {
    let name = &program.name;
    let elf =
        Elf::parse(&*program.bytes).map_err(|e| Error::new(format!("{name}: is not an ELF program")).because(e))?;
    if has_its_own(&elf) {
        return Err(Error::new(format!("{name}: has debug information of its own")).help("leave --debug-file out"));
    }
    if let Some(asked) = asked {
        let file = input::read(asked)?;
        return match belongs(&elf, &file.bytes) {
            None => Ok(file),
            Some(why) => Err(Error::new(format!("{}: is no debug file of {name}", file.name)).because(why)),
        };
    }
    let places = places(&elf, &program.path);
    for place in places.iter().filter(|place| place.is_file()) {
        let file = input::read(place)?;
        if belongs(&elf, &file.bytes).is_none() {
            return Ok(file);
        }
    }
    let looked: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
    let looked = if looked.is_empty() {
        "it has no build id and no .gnu_debuglink section".to_owned()
    } else {
        format!("looked for {}", looked.join(", "))
    };
    Err(Error::new(format!("{name}: its debug file is not found"))
        .because(looked)
        .help("install its package of debug symbols (NAME-dbgsym), or name the file: --debug-file=FILE"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reports::overhead::symbols::FileSymbols;
    use object::{Object, ObjectSymbol};
    use std::fs;
    use std::process::Command;

    /// A stripped program with its debug file, and one of another program.
    fn files(build_id: &str) -> (tempfile::TempDir, InputFile) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("p.c"), "int main(int argc, char **argv) { return argc > 3; }\n").unwrap();
        let line = format!(
            "cc -g p.c -Wl,--build-id={build_id} -o full; cc -g -O2 p.c -Wl,--build-id={build_id} -o other
             for p in full other; do objcopy --only-keep-debug $p $p.debug; done
             strip -o prog full; objcopy --add-gnu-debuglink=full.debug prog; strip -o bare -R .note.gnu.build-id full"
        );
        let made = Command::new("sh").current_dir(&folder).args(["-ec", &line]).status();
        assert!(made.unwrap().success());
        let program = input::read(&folder.path().join("prog")).unwrap();
        (folder, program)
    }

    #[test]
    #[ignore = "needs objcopy: run by tests/of_the_library.rs"]
    fn the_file_is_known_by_its_build_id_or_its_checksum() {
        for build_id in ["sha1", "none"] {
            let (folder, program) = files(build_id);
            let at = |name: &str| folder.path().join(name);
            let found = find(&program, None).unwrap();
            assert_eq!(found.path.file_name(), at("full.debug").file_name());
            let main = {
                let elf = Elf::parse(&*found.bytes).unwrap();
                elf.symbols().find(|s| s.name() == Ok("main")).unwrap().address()
            };
            let symbols = FileSymbols::of(&program.path);
            assert_eq!((symbols.name(main).as_str(), symbols.line(main).as_deref()), ("main", Some("p.c:1")));
            assert!(find(&program, Some(&at("full.debug"))).is_ok());
            let why = if build_id == "sha1" { "its build id is" } else { "its checksum is" };
            let error = find(&program, Some(&at("other.debug"))).unwrap_err();
            assert!(error.what.contains("no debug file of") && error.causes[0].contains(why), "{error}");
            // One that has taken the right one's place is passed by.
            fs::copy(at("other.debug"), at("full.debug")).unwrap();
            let error = find(&program, None).unwrap_err();
            assert!(error.what.contains("not found") && error.help.unwrap().contains("--debug-file="));
            fs::create_dir(at(".debug")).unwrap();
            let mut objcopy = Command::new("objcopy");
            objcopy.current_dir(&folder).args(["--only-keep-debug", "full", ".debug/full.debug"]);
            assert!(objcopy.status().unwrap().success());
            let found = find(&program, None).unwrap();
            assert!(found.path.ends_with(".debug/full.debug"));
        }
    }

    #[test]
    #[ignore = "needs objcopy: run by tests/of_the_library.rs"]
    fn programs_that_need_or_name_none_are_told_so() {
        let (folder, program) = files("sha1");
        let full = input::read(&folder.path().join("full")).unwrap();
        assert!(find(&full, None).unwrap_err().what.contains("of its own"));
        // Stripped of all that names one.
        let bare = input::read(&folder.path().join("bare")).unwrap();
        assert!(find(&bare, None).unwrap_err().causes[0].contains("no build id"));
        let error = find(&program, Some(&folder.path().join("prog"))).unwrap_err();
        assert!(error.causes[0].contains("neither"), "{error}");
    }
}
