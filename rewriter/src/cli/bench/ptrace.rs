//! A process that is executed step by step: the calls of ptrace(2) that [`lockstep`](crate::cli::bench) and tests need.
//!
//! Input: a command that [`traced_by_parent`] has prepared, and that this process has started. Output: [`Traced`].
//! **Invariants**: the thread that has started the process makes all calls; the process ends with the [`Traced`], and with this process.
//! Source: ptrace(2).

#![allow(unsafe_code)]

use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

pub type TracedRegisters = libc::user_regs_struct;

/// The number that stands for a system call among signals, with PTRACE_O_TRACESYSGOOD.
const SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;

/// Why a traced process does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceStop {
    /// It is stopped, and this signal waits for it: SIGTRAP after a step.
    Signal(i32),
    /// It enters or leaves a system call.
    SystemCall,
    Ended(ExitStatus),
}

/// A child that is traced by this thread.
#[derive(Debug)]
pub struct Traced {
    child: Child,
    memory: File,
    has_ended: bool,
}

/// Makes the process that `command` starts one that is traced by its parent.
pub fn traced_by_parent(command: &mut Command) {
    // SAFETY: the hook calls ptrace(PTRACE_TRACEME), which takes nothing else and is async-signal-safe; it allocates nothing and takes no lock, as
    // `pre_exec` demands.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}

impl Traced {
    /// The started child, stopped in front of its first instruction.
    ///
    /// # Errors
    /// The kernel does not let this process trace it, or it has ended already.
    pub fn new(mut child: Child) -> io::Result<Traced> {
        match prepare(child.id() as libc::pid_t) {
            Ok(memory) => Ok(Traced { child, memory, has_ended: false }),
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(e)
            }
        }
    }

    fn pid(&self) -> libc::pid_t {
        self.child.id() as libc::pid_t
    }

    /// Lets it run, with a signal or 0, until something stops it, a system call at the latest.
    ///
    /// # Errors
    /// It is not stopped, or is no more.
    pub fn run(&mut self, signal: i32) -> io::Result<TraceStop> {
        // SAFETY: the call takes numbers.
        let done = unsafe { libc::ptrace(libc::PTRACE_SYSCALL, self.pid(), 0, libc::c_long::from(signal)) };
        if done == -1 { Err(io::Error::last_os_error()) } else { self.wait() }
    }

    /// Executes one instruction, after taking the signal if it is not 0. Of a repeated string instruction: one repetition.
    ///
    /// # Errors
    /// As [`Traced::run`].
    pub fn step(&mut self, signal: i32) -> io::Result<TraceStop> {
        // SAFETY: the call takes numbers.
        let done = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid(), 0, libc::c_long::from(signal)) };
        if done == -1 { Err(io::Error::last_os_error()) } else { self.wait() }
    }

    /// Sleeps until it stops.
    fn wait(&mut self) -> io::Result<TraceStop> {
        let stop = wait_for(self.pid())?;
        self.has_ended = matches!(stop, TraceStop::Ended(_));
        Ok(stop)
    }

    /// The registers of the stopped process.
    ///
    /// # Errors
    /// It is not stopped, or is no more.
    pub fn registers(&self) -> io::Result<TracedRegisters> {
        let mut registers = std::mem::MaybeUninit::<TracedRegisters>::uninit();
        // SAFETY: the kernel fills the structure, which is as large as it wants, unless the call fails.
        unsafe {
            match libc::ptrace(libc::PTRACE_GETREGS, self.pid(), 0, registers.as_mut_ptr()) {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(registers.assume_init()),
            }
        }
    }

    /// Gives the stopped process other registers.
    ///
    /// # Errors
    /// As [`Traced::registers`].
    pub fn set_registers(&mut self, registers: &TracedRegisters) -> io::Result<()> {
        // SAFETY: the kernel reads the structure, which is alive during the call.
        let done = unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid(), 0, &raw const *registers) };
        if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Bytes of its memory from `at` on: as many as are mapped, up to the length of `bytes`; how many.
    ///
    /// # Errors
    /// None are mapped.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.memory.read_at(bytes, at)
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // A process that has been waited for has no number any more.
        if !self.has_ended {
            let _ = self.child.kill();
        }
        // A step that nobody has waited for is reported before the end.
        while !self.has_ended && self.wait().is_ok() {}
    }
}

fn wait_for(pid: libc::pid_t) -> io::Result<TraceStop> {
    let (_, status) = retry_on_intr(|| waitpid(Pid::from_raw(pid), WaitOptions::empty()))?
        .expect("only a call that does not wait finds nothing");
    let status = ExitStatus::from_raw(status.as_raw());
    Ok(match status.stopped_signal() {
        Some(SYSTEM_CALL) => TraceStop::SystemCall,
        Some(signal) => TraceStop::Signal(signal),
        None => TraceStop::Ended(status),
    })
}

/// Waits until the child executes its program; its memory.
fn prepare(pid: libc::pid_t) -> io::Result<File> {
    match wait_for(pid)? {
        TraceStop::Signal(libc::SIGTRAP) => {}
        stop => return Err(io::Error::other(format!("it does not stop where it should: {stop:?}"))),
    }
    let options = libc::c_long::from(libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD);
    // SAFETY: the call takes numbers.
    let done = unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options) };
    if done == -1 {
        return Err(io::Error::last_os_error());
    }
    File::open(format!("/proc/{pid}/mem"))
}
