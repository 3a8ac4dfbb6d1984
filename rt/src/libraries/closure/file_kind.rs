//! What a file is that the dynamic loader opens or maps.
//!
//! Source: ELF gABI chapter 5.

use crate::kernel::elf::{Ehdr, PT_DYNAMIC, PT_LOAD, Phdr};
use crate::kernel::sys;
use blizzard_contract::{self as contract, ModuleInfo};

/// Program headers looked at in a library.
const MAX_PHDRS: usize = 64;

const PAGE_BYTES: u64 = 4096;

/// What the runtime needs to know of a file that the loader opens or maps.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on the stack, and nothing to allocate it with")]
pub enum FileKind {
    /// Not something that the dynamic loader could load here.
    Other,
    /// A shared object, not rewritten.
    Original,
    /// Rewritten: its description, its lowest page's link-time address, its bytes in memory, and the link-time address of its dynamic section.
    Rewritten { info: ModuleInfo, low: u64, bytes: u64, dynamic: u64 },
}

/// How many program headers are read with one call: a start-up reads those of each library several times.
const PHDRS_AT_ONCE: usize = 20;

/// Looks at the file's headers.
pub fn kind_of(fd: i32) -> FileKind {
    // SAFETY: integers only.
    let Some(ehdr) = (unsafe { read_at::<Ehdr>(fd, 0) }) else {
        return FileKind::Other;
    };
    if !ehdr.is_shared_object() {
        return FileKind::Other;
    }
    let (mut low, mut end, mut info, mut dynamic) = (u64::MAX, 0, None, 0);
    let count = usize::from(ehdr.phnum).min(MAX_PHDRS);
    let mut headers = [Phdr::ZERO; PHDRS_AT_ONCE];
    for first in (0..count).step_by(PHDRS_AT_ONCE) {
        let headers = &mut headers[..PHDRS_AT_ONCE.min(count - first)];
        let at = ehdr.phoff.saturating_add((first * size_of::<Phdr>()) as u64);
        // SAFETY: integers only.
        if !unsafe { read_slice_at(fd, headers, at) } {
            return FileKind::Other;
        }
        for p in headers {
            if p.p_type == contract::PT_BLIZZARD {
                // SAFETY: integers only.
                info = unsafe { read_at::<[u64; ModuleInfo::WORDS]>(fd, p.offset) }.map(ModuleInfo::from_words);
            } else if p.p_type == PT_DYNAMIC {
                dynamic = p.vaddr;
            } else if p.p_type == PT_LOAD {
                low = low.min(p.vaddr & !(PAGE_BYTES - 1));
                end = end.max(p.vaddr.saturating_add(p.memsz));
            }
        }
    }
    match info {
        Some(info) if info.magic == contract::MODULE_MAGIC && low < end => {
            FileKind::Rewritten { info, low, bytes: (end - low).next_multiple_of(PAGE_BYTES), dynamic }
        }
        _ => FileKind::Original,
    }
}

/// Reads a structure of integers; `None` when the file ends before it does.
///
/// # Safety
/// Every bit pattern must be a valid `T`.
unsafe fn read_at<T: Copy>(fd: i32, offset: u64) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the storage of `value`, zero-initialised: the caller says every bit pattern is valid.
    let slice = unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr(), 1) };
    // SAFETY: as the caller says.
    let read = unsafe { read_slice_at(fd, slice, offset) };
    // SAFETY: as above.
    read.then(|| unsafe { value.assume_init() })
}

/// Fills structures of integers; false when the file ends before they do.
///
/// # Safety
/// Every bit pattern must be a valid `T`.
unsafe fn read_slice_at<T: Copy>(fd: i32, to: &mut [T], offset: u64) -> bool {
    // SAFETY: the storage of `to`.
    let bytes = unsafe { core::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), size_of_val(to)) };
    sys::pread(fd, bytes, offset) == Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::closure::paths::open;

    #[test]
    fn files_are_told_apart_by_their_headers() {
        let exe = open(c"/proc/self/exe").unwrap();
        assert!(matches!(kind_of(exe.0), FileKind::Original));
        let text = open(c"/proc/self/maps").unwrap();
        assert!(matches!(kind_of(text.0), FileKind::Other));
    }
}
