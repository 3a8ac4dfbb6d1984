//! Finding and reading the program that the user names.
//!
//! Input: a path, or a name that is looked up as a shell does. Output: the file, mapped, with its path and mode.

use crate::base::error::{Error, Result};
use crate::base::memory::MappedFile;
use crate::read::identity::is_named_as_source;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program file, read.
#[derive(Debug)]
pub struct InputFile {
    pub path: PathBuf,
    /// As the user wrote it, for messages.
    pub name: String,
    pub bytes: MappedFile,
    /// Permission bits without set-user-id and the like.
    pub mode: u32,
}

/// Reads the program file `path`.
///
/// # Errors
/// When it does not exist, is not a file, may not be read, or is empty.
pub fn read(path: &Path) -> Result<InputFile> {
    let name = path.display().to_string();
    let metadata = fs::metadata(path).map_err(|e| cannot_read(&name, &e))?;
    if metadata.is_dir() {
        return Err(Error::new(format!("{name}: is a directory")).help("name the program's file"));
    }
    if !metadata.is_file() {
        return Err(Error::new(format!("{name}: is not a regular file")).help("name the program's file"));
    }
    let bytes = File::open(path).and_then(|file| MappedFile::of(&file, &name)).map_err(|e| cannot_read(&name, &e))?;
    if bytes.is_empty() {
        return Err(Error::new(format!("{name}: is empty")));
    }
    if bytes.starts_with(b"#!") {
        let first = bytes[2..].split(|&b| b == b'\n').next().unwrap_or_default();
        let interpreter = String::from_utf8_lossy(first).trim().to_owned();
        return Err(Error::new(format!("{name}: is a script, not an ELF program"))
            .help(format!("name its interpreter: {interpreter} {name}")));
    }
    Ok(InputFile { path: path.to_owned(), name, bytes, mode: metadata.permissions().mode() & 0o777 })
}

fn cannot_read(name: &str, e: &std::io::Error) -> Error {
    match e.kind() {
        ErrorKind::NotFound => Error::new(format!("{name}: no such file")),
        ErrorKind::PermissionDenied => {
            Error::new(format!("{name}: no permission to read it")).help("rewriting needs read permission")
        }
        _ => Error::new(format!("{name}: cannot be read")).because(e),
    }
}

/// The file that a shell would run for `name`: a path if it has a slash, else the first match in PATH.
///
/// # Errors
/// When there is none, or nobody may execute it.
pub fn find_program(name: &OsStr) -> Result<PathBuf> {
    find_in(name, &std::env::var_os("PATH").unwrap_or_default())
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<PathBuf> {
    if name.is_empty() {
        return Err(Error::new("the program's name is empty"));
    }
    if name.as_bytes().contains(&b'/') || [".", ".."].map(OsStr::new).contains(&name) {
        let shown = Path::new(name).display();
        return match fs::metadata(name) {
            Ok(m) if m.is_file() && !is_executable(&m) && !is_named_as_source(Path::new(name)) => {
                Err(Error::new(format!("{shown}: no permission to execute it")).help(format!("chmod +x {shown}")))
            }
            _ => Ok(PathBuf::from(name)),
        };
    }
    let runnable = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && is_executable(&m));
    std::env::split_paths(path).map(|folder| folder.join(name)).find(runnable).ok_or_else(|| {
        let name = name.display();
        let error = Error::new(format!("{name}: no such program in PATH"));
        if Path::new(&name.to_string()).is_file() {
            error.help(format!("write ./{name} for the file in this folder"))
        } else {
            error
        }
    })
}

/// Whether anybody may execute the file.
fn is_executable(metadata: &fs::Metadata) -> bool {
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_input_has_its_own_message() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("empty"), b"").unwrap();
        fs::write(at("script"), b"#!/bin/sh -e\nexit 0\n").unwrap();
        for (path, part) in [
            (at("absent"), "no such file"),
            (at("empty"), "is empty"),
            (folder.path().to_owned(), "is a directory"),
            (PathBuf::from("/dev/null"), "not a regular file"),
            (at("script"), "is a script"),
        ] {
            let error = read(&path).unwrap_err();
            assert!(error.what.contains(part), "{error}");
            assert!(error.what.starts_with(&path.display().to_string()), "{error}");
        }
        assert!(read(&at("script")).unwrap_err().help.unwrap().contains("/bin/sh -e"));
    }

    #[test]
    fn names_are_looked_up_as_a_shell_does() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        fs::create_dir_all(a.join("prog")).unwrap();
        fs::create_dir(&b).unwrap();
        fs::write(a.join("data"), b"x").unwrap();
        for file in ["prog", "data"] {
            fs::write(b.join(file), b"x").unwrap();
            fs::set_permissions(b.join(file), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = std::env::join_paths([&a, &b]).unwrap();
        // A folder and a file without execute permission do not count.
        assert_eq!(find_in("prog".as_ref(), &path).unwrap(), b.join("prog"));
        assert_eq!(find_in("data".as_ref(), &path).unwrap(), b.join("data"));
        for file in ["./x", ".", ".."] {
            assert_eq!(find_in(file.as_ref(), &path).unwrap(), PathBuf::from(file));
        }
        let error = find_in(a.join("data").as_ref(), &path).unwrap_err();
        assert!(error.what.ends_with("/a/data: no permission to execute it"), "{error}");
        assert!(find_in("absent".as_ref(), &path).unwrap_err().what.contains("PATH"));
        assert!(find_in("".as_ref(), &path).is_err());
    }
}
