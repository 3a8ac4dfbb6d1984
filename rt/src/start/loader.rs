//! Loads the dynamic loader, as the kernel would have.
//!
//! Purpose: map the interpreter's load segments at an address of the kernel's choice. Input: its open file. Output: its base and
//! entry point. The whole span is reserved first, so that no later mapping lands in a gap between segments.
//! **Invariant**: on error everything mapped here is unmapped.
//! Source: ELF gABI chapter 5; Linux `fs/binfmt_elf.c`, `load_elf_interp`.

use crate::kernel::elf::{EM_X86_64, ET_DYN, Ehdr, PF_R, PF_W, PF_X, PT_LOAD, Phdr};
use crate::kernel::sys::{self, Errno};
use crate::libraries::closure::Fd;
use core::fmt;

const PAGE_BYTES: u64 = 4096;
/// Program headers accepted at most; the loaders in use have about ten.
const MAX_PHDRS: usize = 64;
/// Bytes of address space accepted at most.
const MAX_SPAN_BYTES: u64 = 1 << 32;

/// A loaded interpreter.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// Address where virtual address 0 of the file ended up: AT_BASE.
    pub base: u64,
    pub entry: u64,
}

/// Why the interpreter could not be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadError {
    Read(Errno),
    Truncated,
    NotElf,
    NotForThisMachine,
    NotPositionIndependent,
    BadSegments,
    Map(Errno),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Read(e) => write!(f, "cannot read it: {e}"),
            LoadError::Truncated => f.write_str("the file is truncated"),
            LoadError::NotElf => f.write_str("not an ELF file"),
            LoadError::NotForThisMachine => f.write_str("not a 64-bit x86-64 file"),
            LoadError::NotPositionIndependent => f.write_str("not a position-independent file (ET_DYN)"),
            LoadError::BadSegments => f.write_str("its program headers make no sense"),
            LoadError::Map(e) => write!(f, "cannot map it: {e}"),
        }
    }
}

/// An open file to read from.
struct File<'x>(&'x Fd);

impl File<'_> {
    fn read_exact(&self, mut buf: &mut [u8], mut offset: u64) -> Result<(), LoadError> {
        while !buf.is_empty() {
            match sys::pread(self.0.0, buf, offset) {
                Ok(0) => return Err(LoadError::Truncated),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(Errno(libc::EINTR)) => {}
                Err(e) => return Err(LoadError::Read(e)),
            }
        }
        Ok(())
    }

    /// Reads structures of plain integers.
    ///
    /// # Safety
    /// Every bit pattern must be a valid `T`.
    unsafe fn read_slice<T: Copy>(&self, to: &mut [T], offset: u64) -> Result<(), LoadError> {
        // SAFETY: the storage of `to`.
        let bytes = unsafe { core::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), size_of_val(to)) };
        self.read_exact(bytes, offset)
    }

    /// Reads a structure of plain integers.
    ///
    /// # Safety
    /// Every bit pattern must be a valid `T`.
    unsafe fn read_struct<T: Copy>(&self, offset: u64) -> Result<T, LoadError> {
        let mut value = core::mem::MaybeUninit::<T>::zeroed();
        // SAFETY: the storage of `value`, zero-initialised.
        let bytes = unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
        self.read_exact(bytes, offset)?;
        // SAFETY: the caller says every bit pattern is valid.
        Ok(unsafe { value.assume_init() })
    }
}

fn page_down(addr: u64) -> u64 {
    addr & !(PAGE_BYTES - 1)
}

fn page_up(addr: u64) -> u64 {
    page_down(addr + PAGE_BYTES - 1)
}

/// Maps the interpreter in the open file `fd`.
///
/// # Errors
/// What is wrong with the file, or why it cannot be mapped.
pub fn load(fd: &Fd) -> Result<Loaded, LoadError> {
    let file = File(fd);
    // SAFETY: integers only.
    let ehdr: Ehdr = unsafe { file.read_struct(0) }?;
    if &ehdr.ident[..4] != b"\x7fELF" {
        return Err(LoadError::NotElf);
    }
    // EI_CLASS 2: 64 bits; EI_DATA 1: little endian.
    if ehdr.ident[4] != 2 || ehdr.ident[5] != 1 || ehdr.machine != EM_X86_64 {
        return Err(LoadError::NotForThisMachine);
    }
    if ehdr.e_type != ET_DYN {
        return Err(LoadError::NotPositionIndependent);
    }
    let count = ehdr.phnum as usize;
    if count == 0 || count > MAX_PHDRS || ehdr.phentsize as usize != size_of::<Phdr>() {
        return Err(LoadError::BadSegments);
    }
    let mut phdrs = [Phdr::ZERO; MAX_PHDRS];
    // SAFETY: integers only.
    unsafe { file.read_slice(&mut phdrs[..count], ehdr.phoff) }?;
    let loads = || phdrs[..count].iter().filter(|p| p.p_type == PT_LOAD);
    let span = span_of(loads())?;
    let file_bytes = sys::fstat(fd.0).map_err(LoadError::Read)?.st_size as u64;
    if loads().any(|p| p.offset.checked_add(p.filesz).is_none_or(|end| end > file_bytes)) {
        return Err(LoadError::Truncated);
    }
    // Reserve the span, with room to align it.
    let slack = span.align - PAGE_BYTES;
    let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let got = unsafe { sys::mmap(0, span.bytes + slack, libc::PROT_NONE, reserve, -1, 0) }.map_err(LoadError::Map)?;
    let start = got.next_multiple_of(span.align);
    // SAFETY: parts of the reservation that nobody uses.
    unsafe {
        if start > got {
            let _ = sys::munmap(got, start - got);
        }
        let tail = got + slack - start;
        if tail > 0 {
            let _ = sys::munmap(start + span.bytes, tail);
        }
    }
    let base = start.wrapping_sub(span.low);
    for p in loads() {
        if let Err(e) = map_segment(fd.0, base, p) {
            // SAFETY: our own reservation, not handed out yet.
            let _ = unsafe { sys::munmap(start, span.bytes) };
            return Err(LoadError::Map(e));
        }
    }
    Ok(Loaded { base, entry: base.wrapping_add(ehdr.entry) })
}

struct Span {
    /// Lowest address, page aligned.
    low: u64,
    bytes: u64,
    align: u64,
}

/// The address range of all load segments; refuses what could overflow or overlap later.
fn span_of<'a>(loads: impl Iterator<Item = &'a Phdr>) -> Result<Span, LoadError> {
    let (mut low, mut end, mut align) = (None, 0u64, PAGE_BYTES);
    for p in loads {
        let last = p.vaddr.checked_add(p.memsz).filter(|&last| last <= MAX_SPAN_BYTES).ok_or(LoadError::BadSegments)?;
        let congruent = p.vaddr % PAGE_BYTES == p.offset % PAGE_BYTES;
        // Ascending and disjoint, as the gABI requires.
        if p.filesz > p.memsz || !congruent || page_down(p.vaddr) < page_up(end) && low.is_some() {
            return Err(LoadError::BadSegments);
        }
        if p.align.is_power_of_two() && p.align <= MAX_SPAN_BYTES {
            align = align.max(p.align);
        }
        low.get_or_insert(page_down(p.vaddr));
        end = last;
    }
    let low = low.ok_or(LoadError::BadSegments)?;
    if page_up(end) == low {
        return Err(LoadError::BadSegments);
    }
    Ok(Span { low, bytes: page_up(end) - low, align })
}

/// Maps one load segment: file pages, the zeroed rest of the last one, anonymous pages behind.
fn map_segment(fd: i32, base: u64, p: &Phdr) -> Result<(), Errno> {
    let mut prot = 0;
    for (flag, bit) in [(PF_R, libc::PROT_READ), (PF_W, libc::PROT_WRITE), (PF_X, libc::PROT_EXEC)] {
        if p.flags & flag != 0 {
            prot |= bit;
        }
    }
    let first = base + page_down(p.vaddr);
    let file_end = base + p.vaddr + p.filesz;
    let mem_end = base + p.vaddr + p.memsz;
    if p.filesz > 0 {
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        // SAFETY: inside the caller's own reservation.
        unsafe { sys::mmap(first, page_up(file_end) - first, prot, flags, fd, page_down(p.offset)) }?;
    }
    if mem_end > file_end {
        let anonymous = if p.filesz > 0 { page_up(file_end) } else { first };
        if p.filesz > 0 && prot & libc::PROT_WRITE != 0 {
            // SAFETY: the rest of the last file page, mapped privately and writable just now.
            unsafe { core::ptr::write_bytes(file_end as *mut u8, 0, (anonymous - file_end) as usize) };
        }
        if page_up(mem_end) > anonymous {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: inside the caller's own reservation.
            unsafe { sys::mmap(anonymous, page_up(mem_end) - anonymous, prot, flags, -1, 0) }?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn phdr(vaddr: u64, offset: u64, filesz: u64, memsz: u64) -> Phdr {
        Phdr { p_type: PT_LOAD, flags: PF_R | PF_W, offset, vaddr, paddr: 0, filesz, memsz, align: 4096 }
    }

    fn open(path: &str) -> Fd {
        use std::os::fd::IntoRawFd;
        Fd(std::fs::File::open(path).unwrap().into_raw_fd())
    }

    /// A file of the given bytes whose path is valid while the value lives.
    struct TempFile(std::path::PathBuf);

    impl TempFile {
        fn new(name: &str, bytes: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("blizzard-loader-{}-{name}", std::process::id()));
            std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
            TempFile(path)
        }

        fn open(&self) -> Fd {
            open(self.0.to_str().unwrap())
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn elf(phdrs: &[Phdr], total: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; total.max(64 + 56 * phdrs.len())];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..18].copy_from_slice(&ET_DYN.to_le_bytes());
        bytes[18..20].copy_from_slice(&EM_X86_64.to_le_bytes());
        bytes[24..32].copy_from_slice(&0x1010u64.to_le_bytes());
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&(phdrs.len() as u16).to_le_bytes());
        for (i, p) in phdrs.iter().enumerate() {
            let at = 64 + 56 * i;
            bytes[at..at + 4].copy_from_slice(&p.p_type.to_le_bytes());
            bytes[at + 4..at + 8].copy_from_slice(&p.flags.to_le_bytes());
            for (k, word) in [p.offset, p.vaddr, p.paddr, p.filesz, p.memsz, p.align].into_iter().enumerate() {
                bytes[at + 8 + 8 * k..at + 16 + 8 * k].copy_from_slice(&word.to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn segments_land_where_they_belong_and_bss_is_zero() {
        // The second segment's file bytes go on behind its end: the kernel maps the whole page, so the rest must be zeroed.
        let mut bytes = elf(&[phdr(0, 0, 0x1000, 0x1000), phdr(0x5100, 0x1100, 0x40, 0x3000)], 0x2000);
        for b in &mut bytes[0x1000..0x2000] {
            *b = 0xab;
        }
        let file = TempFile::new("good", &bytes);
        let loaded = load(&file.open()).unwrap();
        assert_eq!(loaded.entry, loaded.base + 0x1010);
        // SAFETY: the mapping that `load` just made.
        unsafe {
            assert_eq!(std::slice::from_raw_parts(loaded.base as *const u8, 4), b"\x7fELF");
            let data = std::slice::from_raw_parts((loaded.base + 0x5100) as *const u8, 0x3000);
            assert!(data[..0x40].iter().all(|&b| b == 0xab));
            assert!(data[0x40..].iter().all(|&b| b == 0));
            sys::munmap(loaded.base, 0x9000).unwrap();
        }
    }

    #[test]
    fn large_alignment_is_honoured() {
        let mut p = phdr(0, 0, 0x100, 0x100);
        p.align = 0x20_0000;
        let file = TempFile::new("align", &elf(&[p], 0x1000));
        let loaded = load(&file.open()).unwrap();
        assert_eq!(loaded.base % 0x20_0000, 0);
        // SAFETY: the mapping that `load` just made.
        unsafe { sys::munmap(loaded.base, 0x1000).unwrap() };
    }

    #[test]
    fn bad_files_are_refused() {
        assert_eq!(load(&open("/")).unwrap_err(), LoadError::Read(Errno(libc::EISDIR)));
        let cases: [(&str, Vec<u8>, LoadError); 7] = [
            ("empty", vec![], LoadError::Truncated),
            ("text", vec![b'#'; 100], LoadError::NotElf),
            ("no-segments", elf(&[], 0x100), LoadError::BadSegments),
            ("short", elf(&[phdr(0, 0, 0x2000, 0x2000)], 0x1000), LoadError::Truncated),
            ("overlap", elf(&[phdr(0, 0, 0x100, 0x1100), phdr(0x1000, 0, 1, 1)], 0x1000), LoadError::BadSegments),
            ("offset", elf(&[phdr(0x10, 0, 0x100, 0x100)], 0x1000), LoadError::BadSegments),
            ("huge", elf(&[phdr(u64::MAX - 4096, 4095, 1, u64::MAX)], 0x2000), LoadError::BadSegments),
        ];
        for (name, bytes, error) in cases {
            let file = TempFile::new(name, &bytes);
            assert_eq!(load(&file.open()).unwrap_err(), error, "{name}");
        }
        let mut machine = elf(&[phdr(0, 0, 1, 1)], 0x100);
        machine[18] = 40;
        assert_eq!(load(&TempFile::new("arm", &machine).open()).unwrap_err(), LoadError::NotForThisMachine);
        let mut fixed = elf(&[phdr(0, 0, 1, 1)], 0x100);
        fixed[16] = 2;
        assert_eq!(load(&TempFile::new("fixed", &fixed).open()).unwrap_err(), LoadError::NotPositionIndependent);
    }
}
