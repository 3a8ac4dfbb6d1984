//! The programs: names, how each is built, what it is given.

use crate::{c_compiler, installed, must, sources};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kernels and applications are judged by different figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Kernel,
    Application,
}

/// A program with its input.
#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    pub kind: Kind,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub stdin: Option<PathBuf>,
    /// The same, built with gcc's AddressSanitizer.
    pub asan: Option<PathBuf>,
}

/// Kernels with the rounds that take about a fifth of a second.
pub const KERNELS: [(&str, u32); 11] = [
    ("list", 1000),
    ("tree", 70),
    ("spmv", 6000),
    ("stencil", 2500),
    ("stencil-simd", 6000),
    ("hash", 700),
    ("quicksort", 250),
    ("nbody", 7000),
    ("search", 450),
    ("histogram", 2500),
    ("matmul", 700),
];

/// Compiles the kernels to `to`, with more `flags`.
///
/// # Errors
/// The compiler's.
pub fn build_kernels(to: &Path, flags: &[&str]) -> Result<(), String> {
    let mut gcc = Command::new(c_compiler());
    gcc.args(["-O2", "-g"]).args(flags).arg(sources().join("kernels.c")).arg("-o").arg(to);
    must(&mut gcc).map(drop)
}

/// Everything that can be built here, in `folder`; and why the rest cannot.
///
/// # Errors
/// What should work everywhere does not: compiling the kernels.
pub fn all(folder: &Path, blizzard: &Path) -> Result<(Vec<Workload>, Vec<String>), String> {
    let at = |name: &str| folder.join(name);
    build_kernels(&at("kernels"), &[])?;
    let asan = ["-fsanitize=address"];
    let mut left_out = Vec::new();
    let sanitized = build_kernels(&at("kernels.asan"), &asan).map_err(|e| left_out.push(e)).is_ok();
    let mut list: Vec<Workload> = KERNELS
        .iter()
        .map(|&(name, rounds)| Workload {
            name,
            kind: Kind::Kernel,
            program: at("kernels"),
            args: vec![name.into(), rounds.to_string().into()],
            stdin: None,
            asan: sanitized.then(|| at("kernels.asan")),
        })
        .collect();
    for make in [em3d, sqlite, xz, lua, ripgrep, json, words] {
        match make(folder, blizzard) {
            Ok(workload) => list.push(workload),
            Err(why) => left_out.push(why),
        }
    }
    Ok((list, left_out))
}

fn application(name: &'static str, program: PathBuf, args: &[&str]) -> Workload {
    let args = args.iter().map(OsString::from).collect();
    Workload { name, kind: Kind::Application, program, args, stdin: None, asan: None }
}

fn em3d(folder: &Path, blizzard: &Path) -> Result<Workload, String> {
    let source = sources().join("../../em3d/em3d.c");
    let flags = |what: &str| must(Command::new(blizzard).args(["config", what])).map(|out| words_of(&out));
    let (cflags, libs) = (flags("--cflags")?, flags("--libs")?);
    let compile = |to: &Path, more: &[&str]| {
        must(
            Command::new(c_compiler())
                .args(["-O2", "-g"])
                .args(more)
                .args(&cflags)
                .arg(&source)
                .args(&libs)
                .arg("-o")
                .arg(to),
        )
    };
    let (plain, asan) = (folder.join("em3d"), folder.join("em3d.asan"));
    compile(&plain, &[])?;
    let asan = compile(&asan, &["-fsanitize=address"]).ok().map(|_| asan);
    Ok(Workload { asan, ..application("em3d", plain, &["--iters", "60"]) })
}

fn words_of(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).split_whitespace().map(str::to_owned).collect()
}

fn find(name: &str) -> Result<PathBuf, String> {
    if installed(name) { Ok(PathBuf::from(name)) } else { Err(format!("{name} is not installed")) }
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Inserts, look-ups by index and by range, updates, a join, an ordering, deletes: what SQLite's own speedtest does, in small.
fn sqlite(folder: &Path, _: &Path) -> Result<Workload, String> {
    let script = "
CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, c TEXT);
BEGIN;
INSERT INTO t SELECT value, value * 7919 % 30011, printf('%d bottles', value * 31 % 9973) FROM generate_series(1, 30000);
COMMIT;
CREATE INDEX tb ON t(b);
CREATE INDEX tc ON t(c);
SELECT count(*), avg(b) FROM t WHERE b BETWEEN 1000 AND 20000;
SELECT sum(t.b) FROM generate_series(1, 30000) AS s JOIN t ON t.b = s.value;
SELECT count(*) FROM t WHERE c LIKE '%77 b%';
UPDATE t SET b = b * 2, c = c || '!' WHERE a % 3 = 0;
SELECT c, count(*) AS n FROM t GROUP BY c ORDER BY n DESC, c LIMIT 3;
DELETE FROM t WHERE b % 5 = 0;
SELECT count(*), min(c), max(b) FROM t;
";
    let path = folder.join("speed.sql");
    write(&path, script)?;
    let workload = application("sqlite", find("sqlite3")?, &[":memory:"]);
    Ok(Workload { stdin: Some(path), ..workload })
}

/// Text with the statistics of words: some often, most rarely.
fn text(path: &Path, bytes: usize) -> Result<(), String> {
    let mut state = 88172645463325252u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 20
    };
    let mut out = Vec::with_capacity(bytes + 100);
    while out.len() < bytes {
        let n = next() % 5000 * (next() % 5000) / 5000;
        let vowels = ["a", "e", "i", "o", "u"];
        let end = if next() % 12 == 0 { "\n" } else { " " };
        let word =
            format!("{}{}{:x}{end}", ["str", "pl", "th", "w", "c"][n as usize % 5], vowels[n as usize / 5 % 5], n / 25);
        out.write_all(word.as_bytes()).map_err(|e| e.to_string())?;
    }
    write(path, out)
}

fn xz(folder: &Path, _: &Path) -> Result<Workload, String> {
    let path = folder.join("xz.txt");
    text(&path, 1 << 19)?;
    let name = path.to_string_lossy().into_owned();
    Ok(application("xz", find("xz")?, &["-k", "-c", "-6", &name]))
}

fn lua(_: &Path, _: &Path) -> Result<Workload, String> {
    let script = sources().join("queens.lua").to_string_lossy().into_owned();
    Ok(application("lua", find("lua5.4")?, &[&script, "150"]))
}

fn ripgrep(folder: &Path, _: &Path) -> Result<Workload, String> {
    let path = folder.join("rg.txt");
    text(&path, 96 << 20)?;
    let name = path.to_string_lossy().into_owned();
    Ok(application("ripgrep", find("rg")?, &["-j1", "-c", "str[aeiou]+7[0-9a-f] +th", &name]))
}

fn json(folder: &Path, _: &Path) -> Result<Workload, String> {
    let compile = |to: &Path, more: &[&str]| {
        let source = sources().join("json.cpp");
        must(Command::new("g++").args(["-O2", "-g"]).args(more).arg(source).arg("-o").arg(to))
    };
    let (plain, asan) = (folder.join("json"), folder.join("json.asan"));
    compile(&plain, &[])?;
    let asan = compile(&asan, &["-fsanitize=address"]).ok().map(|_| asan);
    Ok(Workload { asan, ..application("json (C++)", plain, &["60"]) })
}

fn words(folder: &Path, _: &Path) -> Result<Workload, String> {
    let to = folder.join("words");
    let source = sources().join("words.rs");
    must(Command::new("rustc").args(["-O", "-g", "--edition", "2024"]).arg(source).arg("-o").arg(&to))?;
    Ok(application("words (Rust)", to, &["60"]))
}
