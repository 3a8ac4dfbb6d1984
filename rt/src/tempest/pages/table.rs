//! Virtual memory management of the user-managed segment (Tempest 1.2.1, section 3.1).
//!
//! Purpose: which pages are mapped, and what the program has said of each. Input: calls of the program. Output: pages whose tags are set,
//! and their data.
//! The address range is reserved once and for all; a page that the program has not mapped has Invalid tags and no memory, so that every
//! access to it enters the runtime. **Invariants**: only mapped pages have memory; unmapping gives it back and leaves zeros;
//! the number of mapped pages stays below the run's limit.

use crate::kernel::own_memory::{KernelTable, Zeroed};
use crate::kernel::owned::PerNode;
use crate::kernel::print;
use crate::kernel::sys;
use crate::memory::access_control::interface::AccessControl;
use crate::memory::access_control::program::{self, PROGRAM};
use crate::process::process;
use crate::tempest::owner::TURN;
use crate::tempest::pages::blocks::{self, BlockSpec};
use blizzard_contract::tempest::{PAGE_BYTES, PAGE_MODES, PAGE_SHIFT};
use blizzard_contract::{BLOCK_BYTES, USER_BASE, USER_BYTES};
use blizzard_protocol::tag::Tag;

/// Whether `addr` lies in the user-managed segment.
pub const fn is_user(addr: u64) -> bool {
    addr.wrapping_sub(USER_BASE) < USER_BYTES
}

/// What the program has said of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub usr_ptr: u64,
    pub home: u32,
    pub mode: u16,
    mapped: u16,
}

// SAFETY: integers; zero is a page that is not mapped.
unsafe impl Zeroed for Page {}

/// The page table.
pub struct PageTable {
    table: KernelTable<Page>,
    mapped: u64,
    limit: u64,
    /// A line has said that there is no room.
    said: bool,
}

const fn number(addr: u64) -> u64 {
    (addr - USER_BASE) >> PAGE_SHIFT
}

const fn is_page(addr: u64) -> bool {
    is_user(addr) && addr.is_multiple_of(PAGE_BYTES)
}

impl PageTable {
    /// No page is mapped; at most `limit` can be. The segment has been mapped.
    pub fn new(limit: u64) -> sys::Result<PageTable> {
        Ok(PageTable { table: KernelTable::new(USER_BYTES >> PAGE_SHIFT)?, mapped: 0, limit, said: false })
    }

    /// The mapped page that holds `addr`.
    pub fn get(&self, addr: u64) -> Option<Page> {
        if !is_user(addr) {
            return None;
        }
        let page = self.table.get(number(addr));
        (page.mapped != 0).then_some(page)
    }

    /// The first address of `[addr, addr + bytes)` that is not on a mapped page.
    pub fn first_unmapped(&self, addr: u64, bytes: u64) -> Option<u64> {
        let mut at = addr;
        let end = addr.saturating_add(bytes);
        while at < end {
            if self.get(at).is_none() {
                return Some(at);
            }
            at = (at | (PAGE_BYTES - 1)) + 1;
        }
        None
    }

    /// Maps a page of zeros; false when it cannot be (section 3.1.3).
    pub fn map(&mut self, addr: u64, page: Page, tag: Tag) -> bool {
        if !is_page(addr) || self.get(addr).is_some() || usize::from(page.mode) >= PAGE_MODES {
            return false;
        }
        if self.mapped >= self.limit || !populate(addr) {
            self.say_no_room("TPPI_alloc_and_map");
            return false;
        }
        self.table.set(number(addr), Page { mapped: 1, ..page });
        self.mapped += 1;
        blocks::set_tags(addr, PAGE_BYTES, tag);
        true
    }

    /// Says once why a page cannot be mapped that could be with more room: who replaces pages goes on with the answer, others fail somewhere else.
    fn say_no_room(&mut self, function: &str) {
        if core::mem::replace(&mut self.said, true) {
            return;
        }
        let PageTable { mapped, limit, .. } = *self;
        let free = limit.saturating_sub(mapped) * PAGE_BYTES;
        if mapped >= limit {
            print::warning(format_args!(
                "{function}: no room for a page of {PAGE_BYTES} bytes: {free} bytes are free of the {limit} pages that a node may map; `blizzard run \
                 --tempest-pages` allows more (said once)"
            ));
        } else {
            print::warning(format_args!(
                "{function}: no room for a page of {PAGE_BYTES} bytes: the machine's or the process's memory is exhausted, with {free} bytes free of what \
                 a node may map (said once)"
            ));
        }
    }

    /// Unmaps a page; false when it is none.
    pub fn unmap(&mut self, addr: u64) -> bool {
        if !is_page(addr) || self.get(addr).is_none() {
            return false;
        }
        blocks::set_tags(addr, PAGE_BYTES, Tag::Invalid);
        discard(addr);
        self.table.set(number(addr), Page::default());
        self.mapped -= 1;
        true
    }

    /// Moves a page with everything that belongs to it; false when it cannot be.
    pub fn remap(&mut self, from: u64, to: u64) -> bool {
        let Some(page) = self.get(from).filter(|_| is_page(from)) else { return false };
        if !is_page(to) || self.get(to).is_some() {
            return false;
        }
        if !populate(to) {
            self.say_no_room("TPPI_remap");
            return false;
        }
        // The data moves by a copy: nobody can tell, and the kernel's records of the segment stay one piece.
        // SAFETY: two different pages, both populated.
        unsafe { blocks::copy(from, to, PAGE_BYTES) };
        for offset in (0..PAGE_BYTES).step_by(BLOCK_BYTES as usize) {
            blocks::set_tags(to + offset, BLOCK_BYTES, blocks::tag(from + offset).unwrap_or(Tag::Invalid));
        }
        self.table.set(number(to), page);
        blocks::set_tags(from, PAGE_BYTES, Tag::Invalid);
        discard(from);
        self.table.set(number(from), Page::default());
        true
    }
}

/// Gives a page memory now, so that its lack is an answer and not a signal.
fn populate(addr: u64) -> bool {
    // SAFETY: the segment's own memory; contents stay.
    match unsafe { sys::madvise(program::kernel_address(addr), PAGE_BYTES, libc::MADV_POPULATE_WRITE) } {
        // Kernels before 5.14 do not know the advice; the memory comes with the first access then.
        Ok(()) | Err(sys::Errno(libc::EINVAL)) => true,
        Err(_) => false,
    }
}

fn discard(addr: u64) {
    // SAFETY: the program has unmapped the page. The advice cannot fail on the segment's own memory.
    let _ = unsafe { PROGRAM.discard(addr, PAGE_BYTES) };
}

impl Page {
    /// A page as [`PageTable::map`] takes it; `None` when the mode is none.
    pub fn new(mode: u32, home: u32, usr_ptr: u64) -> Option<Page> {
        ((mode as usize) < PAGE_MODES).then_some(Page { usr_ptr, home, mode: mode as u16, mapped: 0 })
    }
}

/// The node's page table.
pub static PAGES: PerNode<PageTable> = PerNode::new(&TURN);

/// Makes the table.
///
/// # Errors
/// The kernel's, when it gives no address space.
pub fn start(limit: u64) -> sys::Result<()> {
    PAGES.init(PageTable::new(limit)?);
    Ok(())
}

/// The block of a call of `function`, or the end of the run.
pub fn require_block(function: &str, va: u64, len: i32) -> BlockSpec {
    let Some(block) = BlockSpec::new(va, len) else {
        process::fail(format_args!(
            "{function}: a block of {len} bytes: the length must be a power of two and at least {BLOCK_BYTES}"
        ));
    };
    if let Some(hole) = PAGES.with(|pages| pages.first_unmapped(block.addr, block.bytes)) {
        process::fail(format_args!(
            "{function}: the block {:#x}..{:#x} is not on mapped user-managed pages: {hole:#x} is not",
            block.addr,
            block.addr + block.bytes
        ));
    }
    block
}

/// Ends the run if some page of `[addr, addr + bytes)` is user-managed and not mapped, or the pointer is null.
pub fn require_mapped(function: &str, addr: u64, bytes: u64) {
    let last = addr.saturating_add(bytes.saturating_sub(1));
    if bytes != 0 && addr == 0 {
        process::fail(format_args!("{function}: a null pointer to {bytes} bytes"));
    }
    if bytes != 0
        && (is_user(addr) || is_user(last))
        && let Some(hole) = PAGES.with(|pages| pages.first_unmapped(addr, bytes))
    {
        process::fail(format_args!("{function}: {hole:#x} is not on a mapped user-managed page"));
    }
}

/// Whether the built-in protocol keeps the memory at `addr`.
pub fn is_coherent(addr: u64) -> bool {
    program::in_segment(addr) && !is_user(addr)
}
