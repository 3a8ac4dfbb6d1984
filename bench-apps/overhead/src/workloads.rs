//! The programs: names, how each is built, what it is given.

use crate::{c_compiler, must, sources};
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
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
    match own_programs(folder) {
        Ok(workloads) => list.extend(workloads),
        Err(why) => left_out.push(why),
    }
    text(&at("text"), 8 << 20)?;
    for tool in &TOOLS {
        match find(tool.program) {
            Ok(program) => list.push(tool.workload(program, &at("text"))),
            Err(why) => left_out.push(why),
        }
    }
    match compiler(folder) {
        Ok(workload) => list.push(workload),
        Err(why) => left_out.push(why),
    }
    Ok((list, left_out))
}

/// An installed program. `{}` among its arguments is a text of 8 MiB.
struct Tool {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
}

impl Tool {
    fn workload(&self, program: PathBuf, text: &Path) -> Workload {
        let text = text.to_string_lossy();
        let args: Vec<&str> = self.args.iter().map(|&arg| if arg == "{}" { &*text } else { arg }).collect();
        application(self.name, program, &args)
    }
}

const PYTHON: &str = "
class Node:
    def __init__(self, key): self.key, self.left, self.right = key, None, None
def insert(root, key):
    while True:
        side = 'left' if key < root.key else 'right'
        child = getattr(root, side)
        if child is None: return setattr(root, side, Node(key))
        root = child
words, state, root = {}, 1, Node(500000)
for i in range(60000):
    state = state * 1103515245 + 12345 & 0x7fffffff
    words[f'w{state % 997}'] = words.get(f'w{state % 997}', 0) + i
    insert(root, state % 1000000)
print(sorted(words.items())[:3], sum(x * x for x in range(1000000)) % 997)";
const PERL: &str = "my ($s, %h) = (1); for my $i (1 .. 700000) { $s = ($s * 1103515245 + 12345) & 0x7fffffff; $h{$s % 9973} .= chr(97 + $i % 26) if $i % 3; }
my $n = 0; for (sort { $h{$a} cmp $h{$b} } keys %h) { $n += length if $h{$_} =~ /a[^b]*c/ } print \"$n\\n\";";
const SHELL: &str = "i=0; s=7; t=; while [ $i -lt 90000 ]; do s=$(( (s * 69069 + 1) % 65536 )); case $s in *7*) t=$s${t%??????????};; esac; i=$((i + 1)); done; echo $s $t";
const AWK: &str = "{ for (i = 1; i <= NF; i++) count[$i]++ } END { for (w in count) if (count[w] > most) most = count[w]; print NR, most }";

const TOOLS: [Tool; 13] = [
    Tool { name: "python", program: "python3", args: &["-S", "-c", PYTHON] },
    Tool { name: "perl", program: "perl", args: &["-e", PERL] },
    Tool { name: "bash", program: "bash", args: &["-c", SHELL] },
    Tool { name: "dash", program: "dash", args: &["-c", SHELL] },
    Tool { name: "awk", program: "mawk", args: &[AWK, "{}"] },
    Tool { name: "sed", program: "sed", args: &["-n", "-E", "s/(str|th)[aeiou]([0-9]+)/\\2\\1/g; /77/p", "{}"] },
    Tool { name: "sort", program: "sort", args: &["--parallel=1", "{}"] },
    Tool { name: "gzip", program: "gzip", args: &["-c", "-6", "{}"] },
    Tool { name: "bzip2", program: "bzip2", args: &["-c", "{}"] },
    Tool { name: "zstd", program: "zstd", args: &["-c", "-12", "--single-thread", "-q", "{}"] },
    Tool { name: "grep", program: "grep", args: &["-c", "-E", "(str|th)[aeiou]+7[0-9a-f]* +(th|w)[aeiou]", "{}"] },
    Tool {
        name: "jq",
        program: "jq",
        args: &["-n", "[range(150000) | {a: ., b: (. * 7 % 1001 | tostring)}] | group_by(.b) | map(length) | add"],
    },
    Tool { name: "sha256sum", program: "sha256sum", args: &["{}", "{}", "{}", "{}", "{}", "{}", "{}", "{}"] },
];

/// An interpreter with computed jumps, and what C++ programs do.
fn own_programs(folder: &Path) -> Result<Vec<Workload>, String> {
    let build = |compiler: &str, source: &str, name: &str| {
        let to = folder.join(name);
        must(Command::new(compiler).args(["-O2", "-g"]).arg(sources().join(source)).arg("-o").arg(&to)).map(|_| to)
    };
    let mut list = vec![application("interpreter", build(c_compiler(), "interpreter.c", "interpreter")?, &["2000"])];
    let objects = build("g++", "objects.cpp", "objects")?;
    for (name, what, rounds) in [
        ("maps (C++)", "maps", "250"),
        ("exceptions (C++)", "exceptions", "3500"),
        ("callbacks (C++)", "callbacks", "500"),
    ] {
        list.push(application(name, objects.clone(), &[what, rounds]));
    }
    Ok(list)
}

/// GCC's compiler proper compiles the kernels.
fn compiler(folder: &Path) -> Result<Workload, String> {
    let name = must(Command::new("gcc").arg("-print-prog-name=cc1"))?;
    let program = PathBuf::from(String::from_utf8_lossy(&name).trim());
    if !program.is_file() {
        return Err("cc1 is not installed".into());
    }
    let (source, object) = (folder.join("kernels.i"), folder.join("kernels.s"));
    must(Command::new("gcc").arg("-E").arg(sources().join("kernels.c")).arg("-o").arg(&source))?;
    let args = ["-fpreprocessed", &*source.to_string_lossy(), "-quiet", "-O2", "-o", &*object.to_string_lossy()];
    Ok(application("cc1", program, &args))
}

/// A program without input and without a sanitized form.
pub(crate) fn application(name: &'static str, program: PathBuf, args: &[&str]) -> Workload {
    let args = args.iter().map(OsString::from).collect();
    Workload { name, kind: Kind::Application, program, args, stdin: None, asan: None }
}

fn em3d(folder: &Path, blizzard: &Path) -> Result<Workload, String> {
    let source = sources().join("../../em3d/em3d.c");
    let (cflags, libs) = client(blizzard)?;
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

/// What a compiler needs for Blizzard's own library: its flags, and the linker's.
pub(crate) fn client(blizzard: &Path) -> Result<(Vec<String>, Vec<String>), String> {
    let flags = |what: &str| must(Command::new(blizzard).args(["config", what])).map(|out| words_of(&out));
    Ok((flags("--cflags")?, flags("--libs")?))
}

fn words_of(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).split_whitespace().map(str::to_owned).collect()
}

/// The first program of that name in the PATH that is no script.
fn find(name: &str) -> Result<PathBuf, String> {
    let is_elf = |path: &PathBuf| {
        let mut magic = [0; 4];
        fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"\x7fELF"
    };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(is_elf);
    found.ok_or_else(|| format!("{name} is not installed"))
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
