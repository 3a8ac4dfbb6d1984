//! `blizzard run` on a terminal, under a shell with job control: Ctrl-C, Ctrl-Z and `fg`, input, a hang-up.
//!
//! The tests type into a pseudo-terminal whose other end is a new session's controlling terminal, and read what appears there.

use blizzard_test_harness::tool;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

blizzard_test_harness::module! {
    ctrl_c_ends_everything,
    ctrl_z_stops_the_nodes_and_fg_continues_them,
    output_comes_under_tostop_and_input_reaches_node_0,
    a_hang_up_ends_everything,
    a_killed_job_leaves_nothing,
}

/// Starts a daemon that has left its session, says both process numbers, then reads one line and waits for ever.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    int fds[2], daemon = 0;
    char line[100];
    if (pipe(fds)) return 2;
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            daemon = getpid();
            if (write(fds[1], &daemon, sizeof daemon) != sizeof daemon) _exit(2);
            for (;;) pause();
        }
        _exit(0);
    }
    if (read(fds[0], &daemon, sizeof daemon) != sizeof daemon) return 2;
    printf("processes %d %d.\n", (int)getpid(), daemon);
    fflush(stdout);
    if (fgets(line, sizeof line, stdin)) { printf("input %s", line); fflush(stdout); }
    for (;;) pause();
}
"#;

/// A shell on a terminal of its own, in a folder with the program.
struct Terminal {
    master: Option<File>,
    shell: Child,
    shown: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
    _folder: TempDir,
}

/// Waits until `condition` gives something; the tests' only use of time, and only as an upper limit.
fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Terminal {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("prog.c");
        fs::write(&source, PROGRAM).unwrap();
        let compiled = tool("cc").arg("-O1").arg(&source).arg("-o").arg(folder.path().join("prog")).status();
        assert!(compiled.unwrap().success(), "the tests need a C compiler");

        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let noctty = rustix::fs::OFlags::NOCTTY.bits() as i32;
        let slave = OpenOptions::new().read(true).write(true).custom_flags(noctty).open(path).unwrap();
        let end = || slave.as_fd().try_clone_to_owned().unwrap();
        // Tests that run in the background or under nohup have inherited ignored signals, which a shell would keep.
        // `setsid -c`: a new session with standard input as its terminal.
        blizzard_test_harness::need("setsid");
        let mut shell = Command::new("env");
        shell
            .args(["--default-signal", "setsid", "-c", "sh", "-i"])
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .current_dir(folder.path());
        shell.env("BLIZZARD", env!("CARGO_BIN_EXE_blizzard")).env("BLIZZARD_CACHE", folder.path().join("cache"));
        let shell = shell.env("PS1", "shell> ").env_remove("ENV").spawn().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut from, to) = (File::from(master.try_clone().unwrap()), Arc::clone(&shown));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends with an error when the last user of the terminal has closed it.
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        let terminal =
            Terminal { master: Some(File::from(master)), shell, shown, reader: Some(reader), _folder: folder };
        terminal.wait_for("shell> ");
        terminal
    }

    /// Types, and forgets what was shown before.
    fn types(&mut self, keys: &str) {
        self.shown.lock().unwrap().clear();
        self.master.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    fn wait_for(&self, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.shown().contains(text) {
            assert!(Instant::now() < deadline, "no {text:?} in {:?}", self.shown());
            std::thread::sleep(Duration::from_millis(5));
        }
        self.shown()
    }

    /// Starts the program; the process numbers of its nodes and daemons.
    fn run(&mut self, nodes: usize) -> Vec<String> {
        self.types(&format!("$BLIZZARD run -n {nodes} -- ./prog\n"));
        eventually("every node says its process numbers", || {
            let shown = self.shown();
            let lines = shown.split("processes ").skip(1).filter_map(|rest| rest.split_once('.'));
            let numbers: Vec<String> =
                lines.flat_map(|(pids, _)| pids.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
            (numbers.len() == 2 * nodes).then_some(numbers)
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A shell that is still there is waiting for input; the end of its terminal ends it.
        self.master = None;
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        if let Some(reader) = self.reader.take()
            && !std::thread::panicking()
        {
            let _ = reader.join();
        }
    }
}

/// The letter of the process's state; none if it is gone, or only waits to be noticed by its parent.
fn state(pid: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')?..].chars().nth(2).filter(|&state| state != 'Z')
}

fn all_gone(pids: &[String]) {
    for pid in pids {
        assert_eq!(state(pid), None, "process {pid} is left");
    }
}

fn ctrl_c_ends_everything() {
    for nodes in [1, 2] {
        let mut terminal = Terminal::new();
        let pids = terminal.run(nodes);
        terminal.types("\x03");
        terminal.wait_for("shell> ");
        all_gone(&pids);
        terminal.types("echo status=$?\n");
        terminal.wait_for("status=130");
    }
}

fn ctrl_z_stops_the_nodes_and_fg_continues_them() {
    for nodes in [1, 2] {
        let mut terminal = Terminal::new();
        let pids = terminal.run(nodes);
        terminal.types("\x1a");
        terminal.wait_for("shell> ");
        let nodes: Vec<&String> = pids.iter().step_by(2).collect();
        eventually("the nodes are stopped", || nodes.iter().all(|pid| state(pid) == Some('T')).then_some(()));
        terminal.types("fg\n");
        eventually("the nodes continue", || nodes.iter().all(|pid| state(pid) == Some('S')).then_some(()));
        // The terminal is the program's again.
        terminal.types("hello\n");
        terminal.wait_for("input hello");
        terminal.types("\x03");
        terminal.wait_for("shell> ");
        all_gone(&pids);
    }
}

/// The supervisor writes the nodes' output and is not in the terminal's foreground; `stty tostop` stops such writers.
fn output_comes_under_tostop_and_input_reaches_node_0() {
    let mut terminal = Terminal::new();
    terminal.types("stty tostop\n");
    terminal.wait_for("shell> ");
    let pids = terminal.run(2);
    terminal.types("some words\n");
    terminal.wait_for("input some words");
    terminal.types("\x1c");
    terminal.wait_for("shell> ");
    all_gone(&pids);
    terminal.types("echo status=$?\n");
    terminal.wait_for("status=131");
}

fn a_hang_up_ends_everything() {
    let mut terminal = Terminal::new();
    let pids = terminal.run(2);
    // The reader holds the terminal too: the shell's death is the hang-up, as it is the session's leader.
    terminal.shell.kill().unwrap();
    terminal.shell.wait().unwrap();
    for pid in &pids {
        eventually("all ends with the session", || state(pid).is_none().then_some(()));
    }
}

fn a_killed_job_leaves_nothing() {
    let mut terminal = Terminal::new();
    let pids = terminal.run(2);
    terminal.types("\x1a");
    terminal.wait_for("shell> ");
    // Stopped, too.
    terminal.types("kill -9 %1\n");
    terminal.wait_for("shell> ");
    for pid in &pids {
        eventually("all ends with the job", || state(pid).is_none().then_some(()));
    }
}
