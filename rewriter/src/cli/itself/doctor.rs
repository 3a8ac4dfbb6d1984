//! `blizzard doctor`: whether this machine has what runs need, and what it costs to do without.
//!
//! Input: the machine. Output: a line for each thing; the exit status is 1 if runs cannot work. **Invariant**: nothing is changed, and nothing is left behind.

use crate::base::error::{Result, plain};
use crate::base::limits;
use crate::cli::shared::compiler::Compiler;
use crate::cli::shared::print::print;
use crate::launch::options::LaunchOptions;
use crate::launch::region::RegionFile;
use crate::launch::sys;
use crate::store::cache::Cache;
use blizzard_contract::MAX_NODES;
use clap::Args;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Address space that a node maps: the tag table and the shared segment, hardly any of it used.
const MAPPED_BYTES: u64 = 2_700 << 30;
/// What rewritten libraries of one program take, about.
const LIBRARIES_MIB: u64 = 50;
/// Linux releases from which on the kernel tells a runtime of system calls (Syscall User Dispatch).
const KERNEL: (u32, u32) = (5, 11);

/// Check what this machine has of what runs need, and say what is missing
///
/// The exit status is 1 if a program could not be run on several nodes here. A note is no failure: it says what works less well.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    blizzard doctor")]
pub struct DoctorCommand {}

/// How well something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Something works less well.
    Note,
    /// Runs cannot work.
    Bad,
}

/// One line.
#[derive(Debug)]
struct Finding {
    verdict: Verdict,
    what: &'static str,
    /// What there is, and what that means.
    text: String,
}

fn good(what: &'static str, text: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Good, what, text: text.into() }
}

fn note(what: &'static str, text: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Note, what, text: text.into() }
}

fn bad(what: &'static str, text: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Bad, what, text: text.into() }
}

impl DoctorCommand {
    /// Looks at everything.
    pub fn execute(self) -> Result<ExitCode> {
        let mut all = vec![processors(), memory(), kernel(), shared_memory(), randomisation(), cache()];
        all.extend(limits());
        all.push(overcommit(&setting("vm/overcommit_memory")));
        all.push(lowest_address(&setting("vm/mmap_min_addr")));
        all.push(tracing(&setting("kernel/yama/ptrace_scope")));
        all.push(core_files(&setting("kernel/core_pattern"), getrlimit(Resource::Core).maximum));
        all.push(compiler());
        all.push(tool("gdb", "debugging rewritten programs: `blizzard config --gdb`"));
        all.push(tool("perf", "profiles of rewritten programs; `blizzard overhead` needs it not"));
        let width = all.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
        let mut text = String::new();
        for Finding { verdict, what, text: says } in &all {
            let mark = match verdict {
                Verdict::Good => "ok  ",
                Verdict::Note => "note",
                Verdict::Bad => "BAD ",
            };
            text += &format!("{mark}  {what:<width$}  {says}\n");
        }
        let count = |wanted: Verdict| all.iter().filter(|finding| finding.verdict == wanted).count();
        text += &match (count(Verdict::Bad), count(Verdict::Note)) {
            (0, 0) => "nothing is missing\n".to_owned(),
            (0, notes) => format!("runs work here; notes: {notes}\n"),
            (broken, _) => format!("runs do not work here: {broken} of {} checks failed\n", all.len()),
        };
        print(&plain(&text))?;
        Ok(if count(Verdict::Bad) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// A setting of the kernel; empty if there is none of that name.
fn setting(name: &str) -> String {
    fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap_or_default().trim().to_owned()
}

fn processors() -> Finding {
    match std::thread::available_parallelism().map_or(1, |n| n.get()) {
        1 => note("processors", "1: several nodes take turns, so runs are correct and slow"),
        n => good("processors", format!("{n}; more nodes than that share them")),
    }
}

fn memory() -> Finding {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    let mib = kib >> 10;
    if mib < 512 {
        return note("memory", format!("{mib} MiB are free: rewriting a large library needs some hundred MiB"));
    }
    good("memory", format!("{mib} MiB are free"))
}

/// `major.minor` of a release's name.
fn release(name: &str) -> Option<(u32, u32)> {
    let mut parts = name.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel() -> Finding {
    let uname = rustix::system::uname();
    let name = uname.release().to_string_lossy();
    match release(&name) {
        Some(found) if found < KERNEL => bad(
            "kernel",
            format!(
                "Linux {name}: several nodes need {}.{} (Syscall User Dispatch); one node works",
                KERNEL.0, KERNEL.1
            ),
        ),
        _ => good("kernel", format!("Linux {name}")),
    }
}

fn shared_memory() -> Finding {
    match RegionFile::create(&LaunchOptions { nodes: 2, ..LaunchOptions::default() }) {
        Ok(_) => good("shared memory", "a file in memory, without a name and without a size limit of its own"),
        Err(e) => bad("shared memory", e.to_string().replace("\n  ", "; ")),
    }
}

fn randomisation() -> Finding {
    match sys::disable_randomisation() {
        Ok(()) => good("addresses", "randomisation can be turned off for nodes"),
        Err(e) => note(
            "addresses",
            format!("randomisation stays on ({e}): pointers to functions and private data differ between nodes"),
        ),
    }
}

fn cache() -> Finding {
    let root = match Cache::of_user() {
        Ok(cache) => cache.root().to_owned(),
        Err(e) => return bad("cache", e.to_string().replace("\n  ", "; ")),
    };
    let there = root.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let shown = root.display();
    match statvfs(there) {
        Ok(system) if system.f_flag.contains(StatVfsMountFlags::NOEXEC) => bad(
            "cache",
            format!("{shown} is on a file system that executes nothing: set BLIZZARD_CACHE to another folder"),
        ),
        Ok(_) if access(there, Access::WRITE_OK | Access::EXEC_OK).is_err() => {
            bad("cache", format!("{shown} cannot be written to: set BLIZZARD_CACHE to a folder of your own"))
        }
        Ok(system) => room_in_cache(&root, there == root, system.f_bavail.saturating_mul(system.f_frsize) >> 20),
        Err(e) => bad("cache", format!("{shown}: {e}")),
    }
}

/// `is_there`: the folder exists, so that programs that are in it run.
fn room_in_cache(root: &Path, is_there: bool, mib: u64) -> Finding {
    let text = format!("{}: {mib} MiB are free", root.display());
    let and_needed = format!("{text}; rewritten libraries of one program take about {LIBRARIES_MIB}");
    match mib {
        0..LIBRARIES_MIB if !is_there => bad("cache", format!("{and_needed}: set BLIZZARD_CACHE to another folder")),
        0..1024 => note("cache", and_needed),
        _ => good("cache", text),
    }
}

/// What the shell's `ulimit` says. Soft limits are the program's own affair.
fn limits() -> Vec<Finding> {
    let hard = |resource| getrlimit(resource).maximum;
    let mut all = Vec::new();
    for (resource, what, option) in [(Resource::As, "address space", 'v'), (Resource::Data, "data", 'd')] {
        all.push(match hard(resource) {
            Some(most) if most < MAPPED_BYTES => bad(
                what,
                format!("hard limit {most} bytes: nodes map up to 2.6 TiB, hardly used (`ulimit -H{option}`)"),
            ),
            _ => good(what, "no hard limit"),
        });
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    all.push(match files {
        0..256 => {
            note("open files", format!("{files}: the launcher needs two for each node and some more (`ulimit -n`)"))
        }
        _ => good("open files", format!("enough for {} nodes", limits::nodes_with(files).min(MAX_NODES as u64))),
    });
    let size = getrlimit(Resource::Fsize).current;
    all.push(match size {
        Some(most) if most < 64 << 20 => {
            bad("file size", format!("{most} bytes: the memory that nodes share is larger (`ulimit -f`)"))
        }
        _ => good("file size", "enough"),
    });
    all
}

fn overcommit(value: &str) -> Finding {
    match value {
        "2" => bad(
            "overcommit",
            "vm.overcommit_memory is 2: mappings that are hardly used count in full; 0 or 1 is needed",
        ),
        _ => good("overcommit", format!("vm.overcommit_memory is {value}")),
    }
}

fn lowest_address(value: &str) -> Finding {
    match value.parse::<u64>() {
        Ok(bytes) if bytes > 1 << 20 => note(
            "lowest address",
            format!("vm.mmap_min_addr is {bytes}: programs linked for lower addresses do not start"),
        ),
        _ => good("lowest address", format!("vm.mmap_min_addr is {value}")),
    }
}

fn tracing(scope: &str) -> Finding {
    match scope {
        "2" | "3" => note(
            "tracing",
            format!(
                "kernel.yama.ptrace_scope is {scope}: no debugger attaches, bulk data goes through messages, and a deadlock is told without lines"
            ),
        ),
        "1" => good("tracing", "kernel.yama.ptrace_scope is 1: gdb starts programs, and attaches as root"),
        _ => good("tracing", "allowed"),
    }
}

/// `most`: the hard limit, in bytes; none if there is none.
fn core_files(pattern: &str, most: Option<u64>) -> Finding {
    const WITHOUT: &str = "a node that dies still says where";
    match (pattern, most) {
        (_, Some(0)) => note(
            "core files",
            format!("the hard limit is 0 (`ulimit -H -c`): `blizzard run --core` is refused; {WITHOUT}"),
        ),
        ("", _) => note("core files", format!("kernel.core_pattern is empty: the kernel writes none; {WITHOUT}")),
        (pipe, _) if pipe.starts_with('|') => note(
            "core files",
            format!(
                "kernel.core_pattern hands them to a program ({pipe}): `blizzard run --core` cannot say where they are"
            ),
        ),
        (name, Some(bytes)) => note(
            "core files",
            format!("the hard limit is {bytes} bytes: larger ones are cut; `blizzard run --core` makes \"{name}\""),
        ),
        (name, None) => good("core files", format!("`blizzard run --core` makes \"{name}\" where a node dies")),
    }
}

fn compiler() -> Finding {
    match Compiler::find(None) {
        Ok(Some(compiler)) => {
            let mut command = compiler.command();
            let version = first_line(command.arg("--version")).unwrap_or_default();
            good("C compiler", format!("{}: {version}", compiler.name()))
        }
        Ok(None) => {
            note("C compiler", "none: programs that exist run, new ones cannot be built, nor the demonstration")
        }
        Err(e) => note("C compiler", e.to_string()),
    }
}

fn tool(name: &'static str, for_what: &str) -> Finding {
    match first_line(Command::new(name).arg("--version")) {
        Some(version) => good(name, version),
        None => note(name, format!("not there: {for_what}")),
    }
}

/// The first line of what a program says of itself.
fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
    output.status.success().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_keep_runs_from_working_are_bad() {
        for value in ["0", "1"] {
            assert_eq!(overcommit(value).verdict, Verdict::Good);
        }
        assert_eq!(overcommit("2").verdict, Verdict::Bad);
        assert_eq!(tracing("").verdict, Verdict::Good);
        assert_eq!(tracing("3").verdict, Verdict::Note);
        let core = |pattern, most, part: &str| {
            let Finding { verdict, text, .. } = core_files(pattern, most);
            assert!(text.contains(part), "{text}");
            verdict
        };
        assert_eq!(core("core.%p", None, "makes \"core.%p\""), Verdict::Good);
        assert_eq!(core("core.%p", Some(4096), "4096 bytes"), Verdict::Note);
        assert_eq!(core("core.%p", Some(0), "--core` is refused"), Verdict::Note);
        assert_eq!(core("|/bin/apport %p", None, "cannot say where"), Verdict::Note);
        assert_eq!(core("", None, "writes none"), Verdict::Note);
        assert_eq!(lowest_address("65536").verdict, Verdict::Good);
        assert_eq!(lowest_address("4194304").verdict, Verdict::Note);
    }

    #[test]
    fn a_cache_that_cannot_be_begun_is_bad() {
        let verdict = |is_there, mib| room_in_cache(Path::new("/full"), is_there, mib).verdict;
        assert_eq!(verdict(false, 0), Verdict::Bad);
        assert_eq!(verdict(true, 0), Verdict::Note, "what is in it runs");
        assert_eq!(verdict(false, LIBRARIES_MIB), Verdict::Note);
        assert_eq!(verdict(false, 1024), Verdict::Good);
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(release("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!(release("5.10"), Some((5, 10)));
        assert!(release("5.10.1").unwrap() < KERNEL && release("5.11-rc1").unwrap() >= KERNEL);
        assert_eq!(release("nonsense"), None);
    }
}
