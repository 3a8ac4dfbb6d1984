//! Compiles and assembles the sources of tests, and shows what a process said.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Compiles a program in C, or what the flags say, to `to`; its bytes.
pub fn compile(source: &str, to: &Path, flags: &[&str]) -> Vec<u8> {
    let file = to.with_extension("c");
    std::fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(to).arg(&file).args(flags);
    assert!(cc.status().unwrap().success(), "{cc:?}\n{source}");
    std::fs::read(to).unwrap()
}

/// Assembles instructions in Intel's syntax to a library; its bytes.
pub fn assemble(source: &str, flags: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (file, library) = (folder.path().join("a.s"), folder.path().join("a.so"));
    std::fs::write(&file, format!(".intel_syntax noprefix\n.text\n{source}\n")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-o"]).arg(&library).arg(&file).args(flags);
    assert!(cc.status().unwrap().success(), "{source}");
    std::fs::read(&library).unwrap()
}

/// `blizzard` in a folder, with a cache there.
pub fn blizzard(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blizzard"));
    command.current_dir(folder).env("BLIZZARD_CACHE", folder.join("cache")).stdin(Stdio::null());
    command
}

/// A program in C that shares memory: `prog`, with debug information, in a folder of its own.
pub struct SharedProgram {
    pub folder: TempDir,
}

impl SharedProgram {
    /// Compiles it, as `prog.c`. `flags`: more of them.
    pub fn new(source: &str, flags: &[&str]) -> SharedProgram {
        let program = SharedProgram { folder: tempfile::tempdir().unwrap() };
        std::fs::write(program.folder.path().join("prog.c"), source).unwrap();
        program.compile("prog", flags);
        program
    }

    /// Compiles it once more, under another name.
    pub fn compile(&self, name: &str, flags: &[&str]) {
        let config = |what: &str| finished(self.blizzard().args(["config", what]).output().unwrap()).0;
        let mut cc = Command::new("cc");
        cc.args(["-g", "-O1", "prog.c", "-o", name]).args(flags).args(config("--cflags").split_whitespace());
        cc.args(config("--libs").split_whitespace()).current_dir(self.folder.path());
        assert!(cc.status().unwrap().success());
    }

    /// `blizzard`, where it is.
    pub fn blizzard(&self) -> Command {
        blizzard(self.folder.path())
    }

    /// Runs it with an argument: standard output and error, and the exit status.
    pub fn run(&self, options: &[&str], how: &str) -> (String, String, i32) {
        finished(self.blizzard().arg("run").args(options).args(["--", "./prog", how]).output().unwrap())
    }
}

/// What a process wrote to its standard output and its standard error.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The same apart, and the exit status.
pub fn finished(output: Output) -> (String, String, i32) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().expect("it exits by itself"))
}
