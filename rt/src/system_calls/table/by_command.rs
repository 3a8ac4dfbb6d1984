//! Arguments that mean what the call's command says: `ioctl`, `fcntl`, `prctl`, socket options and the like.
//!
//! Input: an argument of such a call. Output: the visitor has been given the memory behind it; what the kernel is given. What is not listed is unknown, and refused
//! if it leads into the segment; socket options are numbers and structures without pointers but for those named here.
//! Source: as [`crate::system_calls::table::commands`].

use crate::system_calls::table::commands::{ARCH_PRCTLS, PRCTLS, encoded_bytes, find, ioctl};
use crate::system_calls::table::copies::{Fields, Structure};
use crate::system_calls::table::row::Behind::{
    self, Configuration, Counted, Encoded, Filter, Number, Opaque, Read, Str, Written,
};
use crate::system_calls::table::row::{Commands, Layout};
use crate::system_calls::table::visitor::{LookResult, LookStop, Visitor};

/// Options of `prctl` with pointers elsewhere.
const PR_SET_SECCOMP: u64 = 22;
const PR_SET_MM: u64 = 35;
const PR_SCHED_CORE: u64 = 62;
const PR_SET_VMA: u64 = 0x5356_4d41;
const PR_GET_AUXV: u64 = 0x4155_5856;

/// Socket options with an address inside their value.
const SO_ATTACH_FILTER: u64 = 26;
const SO_ATTACH_REUSEPORT_CBPF: u64 = 51;
const SOL_PACKET: u64 = 263;
const PACKET_FANOUT_DATA: u64 = 22;
const TCP_ZEROCOPY_RECEIVE: u64 = 35;
/// What the kernel writes in a `struct ifconf`: the length.
const CONFIGURED: Fields = &[(0, 4)];
/// Bytes of one instruction of a socket filter.
const FILTER_BYTES: u64 = 8;
/// _IOC_WRITE: the kernel reads the argument.
const DIRECTION_WRITE: u32 = 1 << 30;
pub const ARCH_SET_GS: u64 = 0x1001;
pub const ARCH_GET_GS: u64 = 0x1004;
const ARCH_SET_FS: u64 = 0x1002;

impl Visitor<'_> {
    /// Follows argument `i` of a call with commands.
    pub fn by_command(&mut self, i: usize, layout: Layout) -> LookResult<u64> {
        let command = self.command().unwrap_or(0);
        let addr = self.args[i];
        match layout {
            Layout::Listed(list) => self.listed(list, command, addr),
            Layout::Ioctl => self.ioctl(command, addr),
            Layout::Prctl => self.prctl(command, i, addr),
            Layout::ArchPrctl => match command {
                // Thread-local storage is reached without checks.
                ARCH_SET_FS => self.keep_out_for_good(addr),
                // Checks take it for zero.
                ARCH_SET_GS => {
                    if addr == 0 {
                        Ok(addr)
                    } else {
                        Err(LookStop::Kept(addr))
                    }
                }
                option => self.listed(ARCH_PRCTLS, option, addr),
            },
            Layout::SetSockopt => self.set_sockopt(addr),
            Layout::GetSockopt => self.get_sockopt(addr),
            Layout::Fsconfig => Ok(match command {
                // FSCONFIG_SET_STRING, FSCONFIG_SET_PATH, FSCONFIG_SET_PATH_EMPTY; FSCONFIG_SET_BINARY.
                1 | 3 | 4 => self.string(addr),
                2 => self.put(addr, self.int(4), false),
                _ => addr,
            }),
            Layout::LandlockRule => {
                // A path below which a rule holds (packed), or a port.
                let bytes = if self.args[1] == 1 { 12 } else { 16 };
                Ok(self.put(addr, bytes, false))
            }
            _ => unreachable!("the other layouts have no commands"),
        }
    }

    /// What a table has of a command; what it has not must not lead into the segment.
    fn listed(&mut self, commands: &[Commands], command: u64, addr: u64) -> LookResult<u64> {
        match find(commands, command) {
            Some(behind) => self.behind(behind, command, addr),
            None => self.keep_out(addr),
        }
    }

    fn behind(&mut self, behind: Behind, command: u64, addr: u64) -> LookResult<u64> {
        Ok(match behind {
            Number => addr,
            Read(bytes) => self.put(addr, bytes.into(), false),
            Written(bytes) => self.put(addr, bytes.into(), true),
            Encoded => self.put(addr, encoded_bytes(command), true),
            Str => self.string(addr),
            Opaque(bytes) => self.opaque(addr, bytes.into())?,
            Counted { header, at, width, element } => {
                let word = self.word32(addr.wrapping_add(at.into()))?;
                let count = if width == 2 { word & 0xffff } else { word };
                self.put(addr, u64::from(header) + u64::from(count) * u64::from(element), true)
            }
            Configuration => {
                let mut configuration = Structure::at(addr, 16);
                let [bytes, buffer] = self.words::<2>(addr)?;
                self.put(addr, 16, true);
                let kernel = self.put(buffer, (bytes as i32).max(0) as u64, true);
                self.pointer(&mut configuration, 8, buffer, kernel)?;
                self.end_written(&configuration, CONFIGURED, None)
            }
            Filter => self.filter(addr)?,
        })
    }

    fn ioctl(&mut self, command: u64, addr: u64) -> LookResult<u64> {
        match ioctl(command) {
            Some(behind) => self.behind(behind, command, addr),
            None => {
                self.keep_out(addr)?;
                // A structure that the kernel reads may hold pointers.
                let reads = command as u32 & DIRECTION_WRITE != 0;
                let bytes = if reads { encoded_bytes(command) } else { 0 };
                // Where it is not a pointer at all, nothing can be read there, and nothing has to be.
                self.opaque(addr, bytes)
            }
        }
    }

    fn prctl(&mut self, option: u64, i: usize, addr: u64) -> LookResult<u64> {
        let args = *self.args;
        match (option, i) {
            // SECCOMP_MODE_FILTER.
            (PR_SET_SECCOMP, 2) if args[1] == 2 => self.filter(addr),
            (PR_SET_MM, 2) => self.keep_out(addr),
            (PR_SCHED_CORE, 4) => Ok(self.put(addr, 8, true)),
            (PR_SET_VMA, 4) => Ok(self.string(addr)),
            (PR_GET_AUXV, 1) => Ok(self.put(addr, args[2], true)),
            (PR_GET_AUXV, _) => Ok(addr),
            (option, 1) => self.listed(PRCTLS, option, addr),
            (option, _) if find(PRCTLS, option).is_some() => Ok(addr),
            _ => self.keep_out(addr),
        }
    }

    fn set_sockopt(&mut self, addr: u64) -> LookResult<u64> {
        let [_, level, name, ..] = *self.args;
        let kernel = self.put(addr, self.int(4), false);
        match (level, name) {
            (level, SO_ATTACH_FILTER | SO_ATTACH_REUSEPORT_CBPF) if level == libc::SOL_SOCKET as u64 => {
                self.filter(addr)
            }
            (SOL_PACKET, PACKET_FANOUT_DATA) => self.filter(addr),
            _ => Ok(kernel),
        }
    }

    fn get_sockopt(&mut self, addr: u64) -> LookResult<u64> {
        let [_, level, name, ..] = *self.args;
        let at = self.args[4];
        let bytes = if at == 0 { 0 } else { (self.word32(at)? as i32).max(0) as u64 };
        // The length of a filter counts instructions.
        let is_filter = level == libc::SOL_SOCKET as u64 && name == SO_ATTACH_FILTER;
        let kernel = self.put(addr, if is_filter { bytes * FILTER_BYTES } else { bytes }, true);
        if level == libc::IPPROTO_TCP as u64 && name == TCP_ZEROCOPY_RECEIVE {
            // The value starts with the address where pages are to be mapped.
            let [mapping] = self.words::<1>(addr)?;
            self.keep_out(mapping)?;
        }
        Ok(kernel)
    }
}
