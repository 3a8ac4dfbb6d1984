//! A debugger's line to gdbserver: a port of this host that no other host reaches.
//!
//! gdbserver listens on all addresses, whatever host it is told, and whoever reaches it controls the process. So it gets a pseudo-terminal, and bytes go from
//! there to a port of the loopback and back. Input: a port. Output: the name of the pseudo-terminal; one debugger is let in, as by `--once`. What it says is
//! made to fit rewritten programs ([`packets`](crate::launch::gdb::packets)).
//! Source: pty(7), termios(3); gdbserver takes a character device for a serial line.

use crate::base::error::{Error, Result};
use crate::launch::gdb::packets::DebuggerPackets;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;

/// More than a packet of gdb's.
const BUFFER_BYTES: usize = 16 << 10;
/// What ends the input of a terminal.
const END: u8 = 4;

/// The line.
#[derive(Debug)]
pub struct GdbLine {
    listener: TcpListener,
    terminal: File,
    /// Of the end for gdbserver.
    pub name: OsString,
}

impl GdbLine {
    /// Listens.
    ///
    /// # Errors
    /// The port is somebody else's, or there are no pseudo-terminals.
    pub fn open(port: u16) -> Result<GdbLine> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|e| {
            Error::new(format!("--gdb-server {port}: cannot listen on this port")).because(e).help("take another port")
        })?;
        let (terminal, name) = terminal().map_err(|e| {
            Error::new("--gdb-server: cannot make a pseudo-terminal for gdbserver").because(std::io::Error::from(e))
        })?;
        Ok(GdbLine { listener, terminal, name })
    }

    /// Passes on what a debugger and the gdbserver with this number say to each other, until one of them hangs up.
    ///
    /// # Errors
    /// The kernel gives no more threads.
    pub fn forward(self, server: u32) -> Result<()> {
        let work = move || {
            let GdbLine { listener, mut terminal, .. } = self;
            let debugger = loop {
                match listener.accept() {
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    accepted => break accepted,
                }
            };
            drop(listener);
            let Ok((mut debugger, _)) = debugger else { return };
            // Packets are short, and each waits for an answer.
            let _ = debugger.set_nodelay(true);
            if pass_on(&mut debugger, &mut terminal, DebuggerPackets::new(server)).is_ok() {
                let _ = hang_up(&mut terminal);
                // gdbserver reads what there is, whenever it does.
                std::mem::forget(terminal);
            }
        };
        let started = std::thread::Builder::new().spawn(work);
        started.map(drop).map_err(|e| Error::new("--gdb-server: cannot start a thread").because(e))
    }
}

/// A pseudo-terminal that changes no bytes: the end for who forwards, and the name of the other.
fn terminal() -> rustix::io::Result<(File, OsString)> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    let mut modes = tcgetattr(&terminal)?;
    modes.make_raw();
    tcsetattr(&terminal, OptionalActions::Now, &modes)?;
    let name = ptsname(&terminal, Vec::new())?;
    Ok((File::from(terminal), OsStr::from_bytes(name.as_bytes()).to_owned()))
}

/// Until the debugger hangs up; an error: gdbserver has.
fn pass_on(debugger: &mut TcpStream, terminal: &mut File, mut packets: DebuggerPackets) -> std::io::Result<()> {
    let mut bytes = vec![0; BUFFER_BYTES];
    loop {
        let mut ends = [PollFd::new(debugger, PollFlags::IN), PollFd::new(terminal, PollFlags::IN)];
        match poll(&mut ends, None) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        let [from_debugger, from_terminal] = [&ends[0], &ends[1]].map(|end| !end.revents().is_empty());
        if from_terminal {
            let read = terminal.read(&mut bytes)?;
            if debugger.write_all(&bytes[..read]).is_err() {
                return Ok(());
            }
        }
        if from_debugger {
            match debugger.read(&mut bytes) {
                Ok(0) | Err(_) => return Ok(()),
                Ok(read) => terminal.write_all(&packets.pass(&bytes[..read]))?,
            }
        }
    }
}

/// The line's end as that of a file. That of a pseudo-terminal would be an error, which gdbserver does not expect.
fn hang_up(terminal: &mut File) -> std::io::Result<()> {
    let mut modes = tcgetattr(&*terminal)?;
    modes.local_modes |= LocalModes::ICANON;
    modes.special_codes[SpecialCodeIndex::VEOF] = END;
    tcsetattr(&*terminal, OptionalActions::Now, &modes)?;
    // The first ends what gdbserver has not read yet, if there is something.
    terminal.write_all(&[END, END])
}
