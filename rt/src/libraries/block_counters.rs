//! Counting of basic blocks.
//!
//! Purpose: in a rewrite that counts blocks, each module has pages of counters ([`ModuleInfo::blocks_va`]); here they become a part of the
//! launcher's file, so that the counts of all threads and forked children add up, and stay when the process ends. Input: that file's
//! descriptor; each module when it is registered; the loader's mappings. Output: shared pages in place of the module's own.
//! **Invariants**: no descriptor stays open: the file is mapped once, and parts of the mapping are duplicated (mremap(2), `old_size` 0). A
//! library's pages are replaced when the dynamic loader has mapped them, before any of its code runs; until then they are pending.
//! Source: the contract ([`BlocksHeader`]); glibc `elf/dl-map-segments.h` and musl `ldso/dynlink.c`: memory behind a segment's file part is an
//! anonymous mapping at a fixed address.

use crate::kernel::limits;
use crate::kernel::owned::PerProcess;
use crate::kernel::sys::{self, Errno, Result};
use blizzard_contract::{self as contract, BLOCKS_PAGE_BYTES, BlocksHeader, BlocksRecord, ModuleInfo};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

/// Libraries that can be in the course of being mapped: loaders map one after the other.
const MAX_PENDING: usize = 16;

/// The file's mapping; 0: blocks are not counted.
static BASE: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));
static TOTAL: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));

/// Counters that are not mapped yet: where they will be (0: free), and the record's offset in the file.
static PENDING: PerProcess<[[AtomicU64; 2]; MAX_PENDING]> =
    PerProcess::new([const { [const { AtomicU64::new(0) }; 2] }; MAX_PENDING]);

/// Maps the launcher's file and closes `fd`.
///
/// # Errors
/// The kernel's; EINVAL for a file that does not begin as it should.
pub fn start(fd: i32) -> Result<()> {
    let total = sys::fstat(fd)?.st_size as u64;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    limits::make_room(total, false);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { sys::mmap(0, total, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) }?;
    sys::close(fd)?;
    // SAFETY: the mapping that was just made begins with a header, or with zeroes.
    let magic = unsafe { (base as *const u64).read() };
    if magic != contract::BLOCKS_MAGIC {
        return Err(Errno(libc::EINVAL));
    }
    TOTAL.store(total, Ordering::Relaxed);
    BASE.store(base, Ordering::Release);
    Ok(())
}

/// Sets a record up for a module; its offset in the file. `None` when nothing is counted.
fn record(info: &ModuleInfo, path: &[u8]) -> Result<Option<u64>> {
    let base = BASE.load(Ordering::Acquire);
    if base == 0 || info.blocks_va == 0 {
        return Ok(None);
    }
    let bytes = BLOCKS_PAGE_BYTES + info.blocks_bytes.next_multiple_of(BLOCKS_PAGE_BYTES);
    // SAFETY: inside the mapping, aligned, and only used atomically by the processes of the run.
    let next = unsafe { AtomicU64::from_ptr((base + offset_of!(BlocksHeader, next) as u64) as *mut u64) };
    let at = next.fetch_add(bytes, Ordering::Relaxed);
    if at.checked_add(bytes).is_none_or(|end| end > TOTAL.load(Ordering::Relaxed)) {
        return Err(Errno(libc::ENOSPC));
    }
    let to = (base + at) as *mut BlocksRecord;
    // SAFETY: this part of the file is this module's alone, and zero.
    unsafe {
        (&raw mut (*to).bytes).write(info.blocks_bytes);
        let len = path.len().min(size_of_val(&(*to).path) - 1);
        core::ptr::copy_nonoverlapping(path.as_ptr(), (&raw mut (*to).path).cast(), len);
    }
    Ok(Some(at))
}

/// Puts the counters of the record at `at` in place of the `bytes` at `to`.
///
/// # Safety
/// The pages at `to` are a loaded module's counters.
unsafe fn attach(at: u64, to: u64, bytes: u64) -> Result<()> {
    let from = BASE.load(Ordering::Acquire) + at;
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    let bytes = bytes.next_multiple_of(BLOCKS_PAGE_BYTES);
    // SAFETY: the caller's. An old size of 0 leaves the old mapping as it is.
    unsafe {
        sys::call(libc::SYS_mremap, [from + BLOCKS_PAGE_BYTES, 0, bytes, flags, to, 0])?;
        AtomicU64::from_ptr((from + offset_of!(BlocksRecord, attached) as u64) as *mut u64).store(1, Ordering::Release);
    }
    Ok(())
}

/// Lets a module that is mapped completely count from now on.
///
/// # Errors
/// The kernel's; ENOSPC when the file is full.
///
/// # Safety
/// `info` describes a module that is loaded with `bias`.
pub unsafe fn add(info: &ModuleInfo, bias: u64, path: &[u8]) -> Result<()> {
    match record(info, path)? {
        // SAFETY: the caller's.
        Some(at) => unsafe { attach(at, info.blocks_va.wrapping_add(bias), info.blocks_bytes) },
        None => Ok(()),
    }
}

/// Lets a library count as soon as the dynamic loader has mapped its counters.
///
/// # Errors
/// ENOSPC when the file is full, or when libraries are mapped that never are complete.
pub fn expect(info: &ModuleInfo, bias: u64, path: &[u8]) -> Result<()> {
    let Some(at) = record(info, path)? else { return Ok(()) };
    let to = info.blocks_va.wrapping_add(bias);
    for slot in PENDING.iter() {
        if slot[0].compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            slot[1].store(at, Ordering::Relaxed);
            slot[0].store(to, Ordering::Release);
            return Ok(());
        }
    }
    Err(Errno(libc::ENOSPC))
}

/// Whether an anonymous mapping at a fixed address may be what [`expect`] waits for.
pub fn pending(to: u64) -> bool {
    BASE.load(Ordering::Relaxed) != 0 && PENDING.iter().any(|slot| slot[0].load(Ordering::Acquire) == to)
}

/// The `bytes` at `to` have been mapped: a library's counters.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// They are what [`pending`] was asked for.
pub unsafe fn mapped(to: u64, bytes: u64) -> Result<()> {
    let found = PENDING.iter().find(|slot| slot[0].load(Ordering::Acquire) == to);
    let Some(slot) = found else { return Ok(()) };
    let at = slot[1].load(Ordering::Relaxed);
    slot[0].store(0, Ordering::Release);
    // SAFETY: the caller's.
    unsafe { attach(at, to, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn counters_become_a_part_of_the_file() {
        let path = std::env::temp_dir().join(format!("blizzard-blocks-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(16 * BLOCKS_PAGE_BYTES).unwrap();
        let header = [contract::BLOCKS_MAGIC, 16 * BLOCKS_PAGE_BYTES, BLOCKS_PAGE_BYTES];
        file.write_all_at(&header.map(u64::to_le_bytes).concat(), 0).unwrap();
        start(file.try_clone().unwrap().into_raw_fd()).unwrap();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory.
        let own = unsafe { sys::mmap(0, 8192, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }.unwrap();
        let info = ModuleInfo { blocks_va: 0x4000, blocks_bytes: 4104, ..ModuleInfo::ZERO };
        expect(&info, own - 0x4000, b"/lib/x.so").unwrap();
        assert!(pending(own) && !pending(own + 4096));
        // SAFETY: the memory above stands for a library's counters.
        unsafe {
            mapped(own, 8192).unwrap();
            *(own as *mut u64) = 7;
            *((own + 4096) as *mut u64) = 9;
        }
        assert!(!pending(own));
        let word = |at: u64| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, at).unwrap();
            u64::from_le_bytes(bytes)
        };
        let at = BLOCKS_PAGE_BYTES;
        assert_eq!([word(at), word(at + 8), word(2 * at), word(3 * at)], [4104, 1, 7, 9]);
        assert_eq!(word(16), 4 * at);
        let mut name = [0; 10];
        file.read_exact_at(&mut name, at + 16).unwrap();
        assert_eq!(&name, b"/lib/x.so\0");
        // The file has room for sixteen pages.
        let large = ModuleInfo { blocks_bytes: 13 * 4096, ..info };
        assert_eq!(expect(&large, 0, b"").unwrap_err(), Errno(libc::ENOSPC));
    }
}
