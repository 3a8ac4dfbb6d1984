//! The memory of a process of this run, as it stands while the process waits.
//!
//! Input: a process. Output: what is mapped where, and the bytes there. Source: proc(5), `/proc/PID/maps`, `/proc/PID/mem`.

use rustix::process::Pid;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A part of a process's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// As `rwxp`.
    pub rights: String,
    /// Of its first byte in the file.
    pub offset: u64,
    /// Of the file, or what the kernel calls it.
    pub name: String,
}

impl Mapping {
    /// A line of `/proc/PID/maps`.
    fn of(line: &str) -> Option<Mapping> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let rights = words.next()?.to_owned();
        let offset = number(words.next()?)?;
        let name = words.nth(2).unwrap_or_default().trim_start().to_owned();
        Some(Mapping { start: number(start)?, end: number(end)?, rights, offset, name })
    }

    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    pub fn is_code(&self) -> bool {
        self.rights.contains('x')
    }

    pub fn is_file(&self) -> bool {
        self.name.starts_with('/')
    }
}

/// The memory.
#[derive(Debug)]
pub struct ProcessMemory {
    /// By ascending address.
    pub mappings: Vec<Mapping>,
    bytes: File,
}

impl ProcessMemory {
    /// None: the kernel does not let it be looked at.
    pub fn of(pid: Pid) -> Option<ProcessMemory> {
        let pid = pid.as_raw_nonzero();
        let maps = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
        let mappings = String::from_utf8_lossy(&maps).lines().filter_map(Mapping::of).collect();
        Some(ProcessMemory { mappings, bytes: File::open(format!("/proc/{pid}/mem")).ok()? })
    }

    /// What `address` lies in.
    pub fn mapping(&self, address: u64) -> Option<&Mapping> {
        let at = self.mappings.partition_point(|m| m.end <= address);
        self.mappings.get(at).filter(|m| m.contains(address))
    }

    /// The file whose code is mapped at `address`, and the place in it.
    pub fn file_at(&self, address: u64) -> Option<(PathBuf, u64)> {
        let m = self.mapping(address).filter(|m| m.is_code() && m.is_file())?;
        Some((PathBuf::from(&m.name), address - m.start + m.offset))
    }

    /// Fills `bytes` from `address` on.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        self.bytes.read_exact_at(bytes, address).ok()
    }

    /// Whether that stands from `address` on.
    pub fn reads<const N: usize>(&self, address: u64, expected: &[u8; N]) -> bool {
        let mut bytes = [0; N];
        self.read(address, &mut bytes).is_some() && bytes == *expected
    }

    /// The word at `address`.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Some(u64::from_ne_bytes(word))
    }

    /// The words of so many bytes.
    pub fn words(&self, address: u64, bytes: u64) -> Option<Vec<u64>> {
        let mut all = vec![0; bytes as usize];
        self.read(address, &mut all)?;
        Some(all.chunks_exact(8).map(|b| u64::from_ne_bytes(b.try_into().expect("eight bytes"))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_read() {
        let line = "55d0c0000000-55d0c0004000 r-xp 00002000 fe:00 1234                       /a folder/x y";
        let m = Mapping::of(line).unwrap();
        assert_eq!((m.start, m.end, m.offset), (0x55d0_c000_0000, 0x55d0_c000_4000, 0x2000));
        assert!(m.is_code() && m.is_file());
        assert_eq!(m.name, "/a folder/x y");
        let stack = Mapping::of("7ffc0000-7ffd0000 rw-p 00000000 00:00 0      [stack]").unwrap();
        assert!(!stack.is_code() && !stack.is_file());
        assert_eq!(stack.name, "[stack]");
        assert!(Mapping::of("nonsense").is_none());
    }

    #[test]
    fn the_own_memory_is_read() {
        let word = 0x1122_3344_5566_7788_u64;
        let memory = ProcessMemory::of(rustix::process::getpid()).unwrap();
        let at = &raw const word as u64;
        assert_eq!(memory.word(at), Some(word));
        assert!(memory.mapping(at).unwrap().rights.starts_with("rw"));
        assert!(memory.mapping(8).is_none() && memory.word(8).is_none());
    }
}
