//! The fixed mappings of a node: tag table, context pages, segment.
//!
//! Purpose: put everything of [`blizzard_contract`]'s address space where it belongs, before the program runs. Input: the segment's size, and in a
//! launched run the shared region. Output: mappings. Source: design section 4.
//! **Invariants**: nothing that exists is ever replaced, except parts of the tag table by its own fill; a failure names the range, the
//! reason and the usual remedy in one line.

use crate::kernel::limits;
use crate::kernel::owned::PerProcess;
use crate::kernel::sys::{self, Errno};
use blizzard_contract::{self as contract, CONTEXT_BYTES, RegionHeader};
use blizzard_protocol::ids::NodeId;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Inaccessible bytes on either side of the segment.
pub const GUARD_BYTES: u64 = 2 << 20;

/// The tag table.
pub const TABLE: Range<u64> = contract::TAG_TABLE_BASE..contract::TAG_TABLE_BASE + contract::TAG_TABLE_BYTES;
/// Shared memory with its guards, and what else lies between.
pub const WINDOW: Range<u64> =
    contract::SEGMENT_BASE - GUARD_BYTES..contract::SEGMENT_BASE + contract::SEGMENT_WINDOW_BYTES;
/// The context pages.
pub const CONTEXTS: Range<u64> = contract::CONTEXT_SHARED..contract::CONTEXT_PRIVATE + contract::CONTEXT_BYTES;

pub(crate) const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// A mapping that could not be made.
#[derive(Debug)]
pub struct MapError {
    what: &'static str,
    addr: u64,
    bytes: u64,
    errno: Errno,
}

impl MapError {
    pub(crate) const fn new(what: &'static str, addr: u64, bytes: u64, errno: Errno) -> MapError {
        MapError { what, addr, bytes, errno }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let help = match self.errno.0 {
            libc::EEXIST => "something else is mapped there: run with address-space randomisation off (`setarch -R`)",
            libc::ENOMEM => {
                "raise the limits of address space and data (`ulimit -v unlimited -d unlimited`), \
                 and set vm.overcommit_memory to 0 or 1 if it is 2"
            }
            _ => "a kernel of version 4.17 or later is needed",
        };
        write!(f, "cannot map the {} ({} KiB at {:#x}): {}; {help}", self.what, self.bytes >> 10, self.addr, self.errno)
    }
}

/// Maps a range at a fixed address where nothing may be mapped yet.
///
/// # Safety
/// With a file, its contents may change at any time: only atomics may look at a shared one.
pub(crate) unsafe fn place(
    what: &'static str,
    addr: u64,
    bytes: u64,
    prot: i32,
    flags: i32,
    file: Option<(i32, u64)>,
) -> Result<(), MapError> {
    let (fd, offset) = file.map_or((-1, 0), |(fd, offset)| (fd, offset));
    let error = |errno| MapError { what, addr, bytes, errno };
    limits::make_room(bytes, prot & libc::PROT_WRITE != 0 && flags & libc::MAP_PRIVATE != 0);
    // SAFETY: NOREPLACE: nothing that exists is touched; the file is the caller's promise.
    let got = unsafe { sys::mmap(addr, bytes, prot, flags | libc::MAP_FIXED_NOREPLACE, fd, offset) }.map_err(error)?;
    if got == addr {
        return Ok(());
    }
    // A kernel that does not know the flag takes the address as a hint.
    // SAFETY: the mapping just made; nobody knows it.
    let _ = unsafe { sys::munmap(got, bytes) };
    Err(error(Errno(libc::EEXIST)))
}

/// Keeps a huge sparse range out of core dumps and off huge pages. Advice: a refusal costs speed only.
///
/// # Safety
/// The range is mapped.
unsafe fn advise_sparse(addr: u64, bytes: u64) {
    // SAFETY: neither advice changes contents.
    unsafe {
        let _ = sys::madvise(addr, bytes, libc::MADV_DONTDUMP);
        let _ = sys::madvise(addr, bytes, libc::MADV_NOHUGEPAGE);
    }
}

/// Maps the tag table at `base`, all bytes zero. Nothing of it can be changed: stray stores of the program into the table fault as they would without it. The tags of
/// a segment become changeable with [`repeat_over_tags`].
///
/// # Safety
/// Called once per process.
pub unsafe fn map_tag_table(base: u64) -> Result<(), MapError> {
    // SAFETY: anonymous memory.
    unsafe {
        place("tag table", base, contract::TAG_TABLE_BYTES, libc::PROT_READ, PRIVATE, None)?;
        advise_sparse(base, contract::TAG_TABLE_BYTES);
    }
    Ok(())
}

/// Tags of addresses where the tag table and the context pages lie, in whole pages.
pub const HIDDEN_TAGS: Range<u64> = {
    let from = contract::TAG_TABLE_BASE + (contract::CONTEXT_SHARED >> contract::BLOCK_SHIFT);
    let to =
        contract::TAG_TABLE_BASE + ((contract::TAG_TABLE_BASE + contract::TAG_TABLE_BYTES) >> contract::BLOCK_SHIFT);
    from & !(CONTEXT_BYTES - 1)..to.next_multiple_of(CONTEXT_BYTES)
};

/// Makes [`HIDDEN_TAGS`] unreadable, so that a check whose access leads into the tag table raises a signal.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// [`map_tag_table`] has run. Whoever gets the signal knows what it means.
pub unsafe fn hide_tags_of_tags() -> sys::Result<()> {
    if cfg!(feature = "guard") {
        // The table is where no program's pointers lead.
        return Ok(());
    }
    // SAFETY: part of the tag table; neither the runtime nor the segment has anything where these tags are of.
    unsafe { sys::mprotect(HIDDEN_TAGS.start, HIDDEN_TAGS.end - HIDDEN_TAGS.start, libc::PROT_NONE) }
}

/// Start and end of the tags that can be changed: of the segment, and of the user-managed one.
static CHANGEABLE: PerProcess<[[AtomicU64; 2]; 2]> = PerProcess::new([const { [const { AtomicU64::new(0) }; 2] }; 2]);

/// The rights that a page of the tag table outside [`HIDDEN_TAGS`] has.
pub fn tag_rights(page: u64) -> i32 {
    let changeable =
        CHANGEABLE.iter().any(|[from, to]| (from.load(Ordering::Relaxed)..to.load(Ordering::Relaxed)).contains(&page));
    if changeable { RW } else { libc::PROT_READ }
}

/// Maps the private context page, and anonymous memory or the node's page of the region as the shared one.
///
/// # Safety
/// Called once per process; `region` is the descriptor of the region with that header.
pub unsafe fn map_contexts(region: Option<(i32, &RegionHeader, NodeId)>) -> Result<(), MapError> {
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: anonymous memory; the shared page is used through atomics only.
    unsafe {
        place("private context page", contract::CONTEXT_PRIVATE, CONTEXT_BYTES, RW, private, None)?;
        let what = "shared context page";
        match region {
            None => place(what, contract::CONTEXT_SHARED, CONTEXT_BYTES, RW, private, None),
            Some((fd, header, node)) => {
                let offset = header.contexts_off + node.index() as u64 * CONTEXT_BYTES;
                place(what, contract::CONTEXT_SHARED, CONTEXT_BYTES, RW, libc::MAP_SHARED, Some((fd, offset)))
            }
        }
    }
}

/// Fills the private context page and makes it read-only.
///
/// # Safety
/// [`map_contexts`] has run; called once.
pub unsafe fn fill_private_context(gates: [u64; 7], nodes: u32, node: u32) -> sys::Result<()> {
    // SAFETY: the page is mapped, writable, and the program does not run yet.
    unsafe {
        for (slot, gate) in gates.into_iter().enumerate() {
            (contract::GATE_MISS as *mut u64).add(slot).write(gate);
        }
        (contract::CTX_NODES as *mut u32).write(nodes);
        (contract::CTX_NODE as *mut u32).write(node);
        sys::mprotect(contract::CONTEXT_PRIVATE, CONTEXT_BYTES, libc::PROT_READ)
    }
}

/// From here on blocks can be inaccessible, though there is one node.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// [`fill_private_context`] has run.
pub unsafe fn let_gathers_look() -> sys::Result<()> {
    // SAFETY: the page stays readable, whatever other threads do; nobody else writes to it.
    unsafe {
        sys::mprotect(contract::CONTEXT_PRIVATE, CONTEXT_BYTES, RW)?;
        AtomicU32::from_ptr(contract::CTX_NODES as *mut u32).store(2, Ordering::Relaxed);
        sys::mprotect(contract::CONTEXT_PRIVATE, CONTEXT_BYTES, libc::PROT_READ)
    }
}

/// How much of an arena is shown in core dumps at a time, so that few allocations have to say so.
const SHOWN_BYTES: u64 = 2 << 20;

/// The part of `[from, to)` that [`show_in_dumps`] has not shown yet, where everything below `from` has been; `end`: of the arena.
fn newly_shown(start: u64, from: u64, to: u64, end: u64) -> (u64, u64) {
    let round = |at: u64| {
        let up = at.next_multiple_of(SHOWN_BYTES);
        if up < end { up } else { end }
    };
    (if from > start { round(from) } else { start }, round(to))
}

/// Lets core dumps contain what has been handed out of an arena: the kernel looks at each page of what it dumps, and writes a file of that
/// size, which for the whole segment takes longer than anybody waits. `from`: the limit before.
///
/// # Safety
/// `arena` is the start and end of an arena at `local`, which is mapped.
pub unsafe fn show_in_dumps(local: u64, arena: (u64, u64), from: u64, to: u64) {
    let (from, to) = newly_shown(arena.0, from, to, arena.1);
    if from < to {
        // SAFETY: advice about mapped memory; contents stay.
        let _ = unsafe { sys::madvise(local + (from - arena.0), to - from, libc::MADV_DODUMP) };
    }
}

/// Maps memory of which only touched pages cost anything, between two guards.
///
/// # Safety
/// Called once per process and range.
pub(crate) unsafe fn map_between_guards(
    what: &'static str,
    base: u64,
    bytes: u64,
    rights: i32,
) -> Result<(), MapError> {
    // SAFETY: anonymous memory.
    unsafe {
        place(what, base, bytes, rights, PRIVATE, None)?;
        let _ = sys::madvise(base, bytes, libc::MADV_NOHUGEPAGE);
        for guard in [base - GUARD_BYTES, base + bytes] {
            place("segment's guard", guard, GUARD_BYTES, libc::PROT_NONE, PRIVATE, None)?;
        }
    }
    Ok(())
}

/// A file of bytes [`TAG_INVALID`](contract::TAG_INVALID).
#[derive(Clone, Copy, Debug)]
pub struct InvalidTags {
    pub fd: i32,
    /// Where those bytes begin in it, and how many there are: whole pages.
    pub offset: u64,
    pub bytes: u64,
}

/// Maps so many Invalid tags, and one of private memory, in a place of their own.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The file's bytes are tags that nobody changes.
pub(crate) unsafe fn map_separate_tags(total: u64, fill: InvalidTags) -> Result<u64, MapError> {
    let bytes = total + CONTEXT_BYTES;
    limits::make_room(bytes, true);
    // SAFETY: a new mapping, which the tags then take the place of.
    unsafe {
        let at = sys::mmap(0, bytes, RW, PRIVATE, -1, 0).map_err(|errno| MapError {
            what: "segment's tags",
            addr: 0,
            bytes,
            errno,
        })?;
        repeat(at, total, fill)?;
        Ok(at)
    }
}

/// Maps Invalid tags over part of the tag table again and again.
///
/// # Safety
/// The range is part of the tag table, and no tag of it was used; the file's bytes are tags that nobody changes.
pub(crate) unsafe fn repeat_over_tags(base: u64, total: u64, fill: InvalidTags) -> Result<(), MapError> {
    // SAFETY: passed on from the caller.
    unsafe { repeat(base, total, fill)? };
    if let Some([from, to]) = CHANGEABLE.iter().find(|[_, to]| to.load(Ordering::Relaxed) == 0) {
        from.store(base, Ordering::Relaxed);
        to.store(base + total, Ordering::Relaxed);
    }
    Ok(())
}

/// # Safety
/// Nothing relies on what lies there; the file's bytes are tags that nobody changes.
unsafe fn repeat(base: u64, total: u64, fill: InvalidTags) -> Result<(), MapError> {
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED;
    limits::make_room_for_data(total);
    let mut done = 0;
    while done < total {
        let bytes = fill.bytes.min(total - done);
        let addr = base + done;
        // SAFETY: passed on from the caller. A private mapping: writes stay in this node.
        unsafe { sys::mmap(addr, bytes, RW, flags, fill.fd, fill.offset) }.map_err(|errno| MapError {
            what: "segment's tags",
            addr,
            bytes,
            errno,
        })?;
        done += bytes;
    }
    // SAFETY: mapped just now.
    unsafe { advise_sparse(base, total) };
    Ok(())
}

/// Changes the node number in the private context page.
///
/// # Safety
/// [`fill_private_context`] has run; no other thread exists.
pub unsafe fn change_node(node: u32) -> sys::Result<()> {
    // SAFETY: the page is the runtime's own.
    unsafe {
        sys::mprotect(contract::CONTEXT_PRIVATE, CONTEXT_BYTES, RW)?;
        (contract::CTX_NODE as *mut u32).write(node);
        sys::mprotect(contract::CONTEXT_PRIVATE, CONTEXT_BYTES, libc::PROT_READ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_dumps_show_an_arena_as_it_is_handed_out() {
        const M: u64 = 1 << 20;
        let (start, end) = (64 * M, 64 * M + 5 * M);
        // What one call shows begins where the one before has ended.
        let mut shown = start;
        for (before, limit) in
            [(0, start + 64), (start + 64, start + M), (start + M, start + 3 * M), (start + 3 * M, end)]
        {
            let (from, to) = newly_shown(start, before, limit, end);
            assert!(from == shown && to >= limit && to <= end, "{from:#x} {to:#x}");
            shown = to;
        }
        assert_eq!(shown, end);
    }

    #[test]
    fn an_occupied_address_is_refused_and_left_alone() {
        // SAFETY: fresh memory of the test's own.
        unsafe {
            let taken = sys::mmap(0, 4096, RW, PRIVATE, -1, 0).unwrap();
            (taken as *mut u8).write(9);
            let error = place("thing", taken, 4096, RW, PRIVATE, None).unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot map the thing (4 KiB at {taken:#x}): File exists")), "{error}");
            assert_eq!((taken as *const u8).read(), 9);
            sys::munmap(taken, 4096).unwrap();
        }
    }

    #[test]
    fn too_large_a_mapping_names_the_limits() {
        // SAFETY: fails: no address space of that size exists.
        let error = unsafe { place("thing", 1 << 40, 1 << 62, RW, PRIVATE, None) }.unwrap_err();
        assert!(error.to_string().contains("ulimit -v"), "{error}");
    }
}
