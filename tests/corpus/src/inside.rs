//! Runs a command shut in, and says how it ended and what it cost: [`Job`] -> [`Ended`].
//!
//! Two processes of this program stand between the caller and the command:
//!
//! ```text
//! caller -> unshare(1) -> corpus inside (process 1 of its own PID and mount namespaces) -> the command
//! ```
//!
//! **Invariants:** when [`Job::run`] returns, nothing that the command started is left: the kernel ends a PID namespace
//! with its first process, and that one ends with `unshare`. Files in [`Job::replace`] are seen at their own places by
//! everything that the command starts, and by nobody else. Where namespaces are not allowed ([`namespaces`]) there is a
//! process group instead, and nothing can be replaced.
//!
//! Costs are those of the command and of all its descendants that have been waited for.

use nix::mount::{MsFlags, mount};
use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The name of the hidden subcommand.
pub const SUBCOMMAND: &str = "inside";
/// How much longer than the command its supervisor may take.
const GRACE: Duration = Duration::from_secs(10);

/// A command and what it is to be run in.
#[derive(Debug, Clone)]
pub struct Job {
    pub argv: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    /// Files and what stands in their places.
    pub replace: Vec<(PathBuf, PathBuf)>,
    pub limit: Duration,
    /// Set to keep the caller's PID namespace and files as they are.
    pub open: bool,
}

/// How a command ended. Wall time in microseconds, memory in kilobytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub status: Status,
    pub wall_us: u64,
    pub processor: Processor,
    /// The largest resident set of any of its processes.
    pub max_rss_kb: u64,
}

/// Processor time of a whole tree of processes, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Processor {
    /// In the processes' own code.
    pub user: f64,
    /// In the kernel, on their behalf.
    pub system: f64,
}

impl Processor {
    /// The least of each: disturbances only ever add.
    pub fn least(self, other: Self) -> Self {
        Processor { user: self.user.min(other.user), system: self.system.min(other.system) }
    }

    /// User and system together.
    pub fn total(self) -> f64 {
        self.user + self.system
    }
}

/// Exit status, or what stands in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    Exit(i32),
    Signal(i32),
    TimedOut,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Status::Exit(code) => write!(f, "exit status {code}"),
            Status::Signal(number) => write!(f, "signal {number}"),
            Status::TimedOut => f.write_str("stopped at the time limit"),
        }
    }
}

/// What the supervisor is told.
#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    argv: Vec<String>,
    replace: Vec<(PathBuf, PathBuf)>,
    limit_ms: u64,
    namespaced: bool,
    result: PathBuf,
}

impl Job {
    /// Runs it to its end or to its time limit.
    ///
    /// # Errors
    /// It could not be started, or files could not be replaced.
    pub fn run(&self) -> Result<Ended, String> {
        let folder = tempfile::Builder::new().prefix("blizzard-corpus-job-").tempdir().map_err(|e| e.to_string())?;
        let namespaced = !self.open && namespaces();
        if !self.replace.is_empty() && !namespaced {
            return Err("files can be replaced in a mount namespace only".to_owned());
        }
        let text = |s: &OsString| s.to_str().map(str::to_owned).ok_or_else(|| format!("{s:?} is not UTF-8"));
        let orders = Orders {
            argv: self.argv.iter().map(text).collect::<Result<_, _>>()?,
            replace: self.replace.clone(),
            limit_ms: u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX),
            namespaced,
            result: folder.path().join("result"),
        };
        let orders_path = folder.path().join("orders");
        let written = serde_json::to_vec(&orders).map_err(|e| e.to_string())?;
        std::fs::write(&orders_path, written).map_err(|e| e.to_string())?;
        let create = |path: &Path| File::create(path).map_err(|e| format!("{}: {e}", path.display()));
        let mut command = supervisor(namespaced)?;
        command.arg(&orders_path).current_dir(&self.cwd).env_clear().envs(self.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(create(&self.stdout)?).stderr(create(&self.stderr)?).process_group(0);
        let mut child = command.spawn().map_err(|e| format!("cannot start {:?}: {e}", command.get_program()))?;
        let supervisor_ended = wait(&mut child, self.limit + GRACE);
        end_group(&child);
        let _ = child.wait();
        let result = std::fs::read(&orders.result).map_err(|_| {
            let said = std::fs::read_to_string(&self.stderr).unwrap_or_default();
            format!("the supervisor failed ({supervisor_ended:?}): {}", said.lines().last().unwrap_or(""))
        })?;
        serde_json::from_slice::<Result<Ended, String>>(&result).map_err(|e| e.to_string())?
    }
}

fn supervisor(namespaced: bool) -> Result<Command, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    if !namespaced {
        let mut command = Command::new(own);
        command.arg(SUBCOMMAND);
        return Ok(command);
    }
    let mut command = Command::new("unshare");
    command.args(namespace_flags()).arg(own).arg(SUBCOMMAND);
    Ok(command)
}

fn namespace_flags() -> Vec<&'static str> {
    let mut flags = vec!["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];
    if !nix::unistd::geteuid().is_root() {
        flags.push("--map-root-user");
    }
    flags
}

/// Whether this process may make mount and PID namespaces.
pub fn namespaces() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        let probe = "touch a b && mount --bind a b";
        let Ok(folder) = tempfile::tempdir() else { return false };
        let mut command = Command::new("unshare");
        command.args(namespace_flags()).args(["sh", "-c", probe]).current_dir(folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// The supervisor: what `corpus inside ORDERS` does.
///
/// # Errors
/// The orders cannot be read or the result cannot be written.
pub fn supervise(orders: &Path) -> Result<(), String> {
    let text = std::fs::read(orders).map_err(|e| e.to_string())?;
    let orders: Orders = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    let result = execute(&orders);
    let text = serde_json::to_vec(&result).map_err(|e| e.to_string())?;
    std::fs::write(&orders.result, text).map_err(|e| e.to_string())
}

fn execute(orders: &Orders) -> Result<Ended, String> {
    let none = None::<&str>;
    for (place, with) in &orders.replace {
        mount(Some(with), place, none, MsFlags::MS_BIND, none).map_err(|e| format!("{}: {e}", place.display()))?;
    }
    if orders.namespaced {
        // Where a container masks parts of /proc this is not allowed; /proc/self works with the outer one as well.
        let _ = mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none);
    }
    // A crash must not fill the disk.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(|e| e.to_string())?;
    let (program, arguments) = orders.argv.split_first().ok_or("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    let started = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("cannot start {program}: {e}"))?;
    let status = wait(&mut child, Duration::from_millis(orders.limit_ms));
    let wall = started.elapsed();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|e| e.to_string())?;
    end_group(&child);
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    Ok(Ended {
        status,
        wall_us: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
        processor: Processor { user: seconds(usage.user_time()), system: seconds(usage.system_time()) },
        max_rss_kb: usage.max_rss() as u64,
    })
}

fn wait(child: &mut Child, limit: Duration) -> Status {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_micros(100);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return status.code().map_or_else(|| Status::Signal(status.signal().unwrap_or(0)), Status::Exit);
            }
            Ok(None) if Instant::now() < deadline => std::thread::sleep(pause),
            Ok(None) | Err(_) => {
                end_group(child);
                let _ = child.wait();
                return Status::TimedOut;
            }
        }
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}

fn end_group(child: &Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // An error means that the group is empty already.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

/// A command line as a job's argument vector.
pub fn argv<A: AsRef<OsStr>>(parts: impl IntoIterator<Item = A>) -> Vec<OsString> {
    parts.into_iter().map(|part| part.as_ref().to_owned()).collect()
}
