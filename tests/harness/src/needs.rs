//! What a test may need beyond Rust, a C compiler, the linker, libc's headers and coreutils; and which Debian package brings it.
//!
//! Programs are looked for in `PATH` and nowhere else.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a test did not run; the payload of the unwinding that ends it.
pub struct Skipped {
    why: String,
    /// What is missing can be installed, or allowed.
    pub can_be_mended: bool,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Programs whose Debian package has another name.
const PACKAGES: &[(&str, &[&str])] = &[
    ("binutils", &["addr2line", "ar", "as", "ld", "ld.gold", "nm", "objcopy", "objdump", "readelf", "strip"]),
    ("clang", &["clang", "clang++"]),
    ("findutils", &["find", "xargs"]),
    ("g++", &["c++", "g++"]),
    ("gcc", &["cc", "gcc"]),
    ("gdb", &["gdb", "gdb-add-index"]),
    ("grep", &["grep"]),
    ("iproute2", &["ip"]),
    ("libopenmpi-dev", &["mpicc"]),
    ("linux-perf", &["perf"]),
    ("m4", &["m4"]),
    ("mawk", &["awk"]),
    ("musl-tools", &["musl-gcc"]),
    ("openmpi-bin", &["mpirun"]),
    ("pkgconf", &["pkg-config"]),
    ("procps", &["kill", "pgrep", "ps"]),
    ("sed", &["sed"]),
    ("util-linux", &["mount", "nsenter", "script", "setpriv", "setsid", "taskset", "unshare"]),
];

/// Ends the running test as skipped: `why` follows its name.
pub fn skip(why: impl Into<String>) -> ! {
    // Not a panic: nothing is printed, and the harness tells it from a failure.
    std::panic::resume_unwind(Box::new(Skipped { why: why.into(), can_be_mended: true }))
}

/// The Debian package that has `program`.
pub fn package(program: &str) -> &str {
    PACKAGES.iter().find(|(_, programs)| programs.contains(&program)).map_or(program, |(package, _)| package)
}

/// Where `PATH` has `program`. GCC may have the name `cc` only.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let named = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    named(program).or_else(|| named("cc").filter(|cc| program == "gcc" && is_gcc(cc)))
}

fn is_gcc(cc: &Path) -> bool {
    let said = Command::new(cc).arg("--version").output().map(|o| o.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).contains("Free Software Foundation")
}

/// Skips the running test unless `PATH` has `program`. A program in an absolute place is looked for there.
pub fn need(program: &str) -> PathBuf {
    find(program).unwrap_or_else(|| skip(format!("needs {program} (Debian package {})", package(program))))
}

/// A command of a program from `PATH`; skips the running test if it is not there.
pub fn tool(program: &str) -> Command {
    Command::new(need(program))
}

/// A command of the shell that runs `line`. Skips the running test if one of its commands is a program of `PACKAGES` that
/// is not there.
pub fn shell_command(line: &str) -> Command {
    // The first word of each command.
    let words = line.split([';', '|', '&', '(', '`', '\n']).filter_map(|part| part.split_whitespace().next());
    for word in words.filter(|word| PACKAGES.iter().any(|(_, programs)| programs.contains(word))) {
        need(word);
    }
    let mut sh = tool("sh");
    sh.args(["-ec", line]);
    sh
}

/// The file if it is there; skips the running test otherwise, naming the package.
pub fn need_file(path: impl Into<PathBuf>, package: &str) -> PathBuf {
    let path = path.into();
    if path.exists() { path } else { skip(format!("needs {} (Debian package {package})", path.display())) }
}

/// Skips the running test on a processor without these extensions, by their names in `/proc/cpuinfo`.
pub fn need_cpu<S: AsRef<str>>(wanted: &[S]) {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find_map(|l| l.strip_prefix("flags")).unwrap_or_default();
    let lacking: Vec<&str> =
        wanted.iter().map(AsRef::as_ref).filter(|w| !flags.split_whitespace().any(|flag| flag == *w)).collect();
    if !lacking.is_empty() {
        let why = format!("needs a processor with {}", lacking.join(" "));
        std::panic::resume_unwind(Box::new(Skipped { why, can_be_mended: false }));
    }
}

/// A command that runs a shell's script as the root of a user namespace with mounts of its own, `$0` and `$@` being what the caller appends.
/// Skips the running test where the system does not let the user make one, or where `probe` fails in one.
pub fn in_mount_namespace(probe: &str, script: &str) -> Command {
    let enter = |script: &str| {
        let mut command = tool("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-ec", script]);
        command
    };
    need("mount");
    need_system(enter(probe).output().is_ok_and(|o| o.status.success()), "mount namespaces for users");
    enter(script)
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|l| l.strip_prefix("Uid:")?.split_whitespace().nth(1)?.parse().ok());
    effective == Some(0u32)
}

/// A shell's words that execute its arguments without the privilege to raise hard limits, which nodes would use. Skips the running test
/// where that takes a program that is not there.
pub fn without_raising_limits() -> &'static str {
    if !is_root() {
        return "exec \"$@\"";
    }
    need("setpriv");
    "exec setpriv --bounding-set=-sys_resource \"$@\""
}

/// Sends a signal, by its name, to a process: the shell has `kill` built in.
pub fn send_signal(signal: &str, process: u32) -> bool {
    let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, &process.to_string()]).status();
    sent.is_ok_and(|status| status.success())
}

/// Skips the running test unless `possible`; `what` says what the system, not a package, does not offer.
pub fn need_system(possible: bool, what: &str) {
    if !possible {
        skip(format!("needs a system with {what}"));
    }
}
