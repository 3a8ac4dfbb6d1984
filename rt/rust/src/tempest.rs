//! The Tempest interface for Rust programs: pages with access tags, handlers, messages, bulk channels, timers.
//!
//! Names are those of the C binding without `TPPI_`, in Rust's manner. `rt/include/tempest.h` states units and errors of each call, and
//! the *execution model*: handlers run on the node's main thread, inside its accesses to user-managed memory, at polls and in
//! calls, one at a time, and must not wait. What a handler must not do, and every misuse, ends the run with a message.
//!
//! What makes this module safe:
//! * user-managed memory is reached through [`Page`], by volatile accesses of plain values, which tolerate change in between; those to pages that are
//!   not mapped fault, and without a handler end the run;
//! * handlers are plain functions, so they share data with the program only through statics, which Rust makes them synchronise; a panic
//!   in one ends the process;
//! * buffers of bulk channels are leaked or `'static`.
//!
//! A program that was not rewritten cannot use this module: its first call ends it. See `examples/src/bin/home_pages.rs`.
//!
//! Source: Tempest 1.2.1, section 3; Reinhardt 1996, A.2.

use crate::Plain;
use std::ffi::{c_int, c_uint, c_void};

mod sys {
    use super::{BlockFaultHandler, Item, MessageHandler, PageFaultHandler};
    use std::ffi::{c_char, c_int, c_uint, c_void};

    unsafe extern "C" {
        pub static TPPI_num_nodes: c_uint;
        pub static TPPI_self_address: c_uint;
        pub static TPPI_segment_base: *mut c_char;
        pub fn TPPI_alloc_and_map(pg: *mut c_void, mode: c_uint, acc: c_uint, home: c_uint, usr: *mut c_void) -> c_int;
        pub fn TPPI_unmap_and_free(pg: *mut c_void) -> c_int;
        pub fn TPPI_register_page_fault_handler(run: Option<PageFaultHandler>);
        pub fn TPPI_get_page_info(va: *mut c_void, info: *mut super::PageInfo) -> c_int;
        pub safe fn TPPI_get_blk_acc(va: *mut c_void) -> c_uint;
        pub fn TPPI_change_blk_acc(va: *mut c_void, len: c_int, change: c_uint);
        pub fn TPPI_change_blk_acc_and_copy(va: *mut c_void, len: c_int, change: c_uint, from: *mut c_void);
        pub fn TPPI_register_blk_acc_fault_handler(
            mode: c_uint,
            tag: c_uint,
            acc: c_int,
            run: Option<BlockFaultHandler>,
        );
        pub fn TPPI_send_items(dest: c_uint, run: MessageHandler, items: *const Item, count: c_uint);
        pub safe fn TPPI_recv_W() -> c_int;
        pub fn TPPI_recv_Ba(va: *mut c_void, len: c_int, change: c_uint);
        pub fn TPPI_recv_R(va: *mut c_void, len: c_int);
        pub safe fn TPPI_set_channel_src(dest: c_uint, run: Option<super::ChannelHandler>) -> c_int;
        pub fn TPPI_set_channel_dst_notify(
            src: c_uint,
            channel: c_int,
            buffer: *mut c_void,
            bytes: c_int,
            run: Option<super::ChannelHandler>,
        ) -> c_int;
        pub safe fn TPPI_is_channel_estd(dest: c_uint, channel: c_int) -> c_int;
        pub fn TPPI_channel_send(dest: c_uint, channel: c_int, buffer: *mut c_void, bytes: c_int);
        pub safe fn TPPI_is_channel_ready(src: c_uint, channel: c_int) -> c_int;
        pub safe fn TPPI_reset_channel_notify(src: c_uint, channel: c_int);
        pub safe fn TPPI_is_channel_reset(dest: c_uint, channel: c_int) -> c_int;
        pub safe fn TPPI_destroy_channel_src(dest: c_uint, channel: c_int);
        pub safe fn TPPI_destroy_channel_dst(src: c_uint, channel: c_int);
        pub safe fn TPPI_schedule_timer(ticks: c_int, run: super::TimerHandler, user: *mut c_void);
        pub safe fn TPPI_resume_va(va: *mut c_void, len: c_int);
        pub fn TPPI_sleep(sem: *mut c_int);
        pub fn TPPI_wakeup(sem: *mut c_int);
    }
}

/// Bytes of a page of user-managed memory (section 3.1.1).
pub const PAGE_BYTES: usize = 4096;
/// Number of page modes (section 3.1.2).
pub const PAGE_MODES: u32 = 64;
/// Bytes of a minimal block (section 3.2.2).
pub const BLOCK_BYTES: usize = 64;
/// Most bytes of a message (section 3.3.4).
pub const MAX_MESSAGE_BYTES: usize = PAGE_BYTES + 256;
/// Pages of the user-managed segment.
pub const SEGMENT_PAGES: u32 = 1 << 22;

/// Called with the source and the bytes of the body; reads all of it with [`recv_word`], [`recv_words`], [`Page::recv_block`].
pub type MessageHandler = extern "C" fn(src: c_uint, size: c_int);
/// Called with the address, the lower half of the program counter, and whether it is a store.
pub type PageFaultHandler = extern "C" fn(va: *mut c_void, pc: c_int, is_write: c_int);
/// Called with the address, and what [`Page::map`] was told: user word and home.
pub type BlockFaultHandler = extern "C" fn(va: *mut c_void, user: *mut c_void, home: c_uint);
/// Called with the node at the other end and the channel.
pub type ChannelHandler = extern "C" fn(node: c_uint, channel: c_int);
/// Called with the word that the timer was scheduled with.
pub type TimerHandler = extern "C" fn(user: *mut c_void);

/// Access tags (section 3.2.1).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    Busy,
    Invalid,
    ReadOnly,
    Writable,
}

/// Tag changes (section 3.2.5).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    ValidateRw,
    UpgradeRw,
    ValidateRo,
    DowngradeRo,
    Invalidate,
    MarkBusy,
    NoTagChange,
    InvalidToBusy,
    BusyToInvalid,
}

/// The five accesses that fault (table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    InvalidRead,
    InvalidWrite,
    BusyRead,
    BusyWrite,
    ReadOnlyWrite,
}

#[repr(C)]
struct PageInfo {
    mode: c_uint,
    home: c_uint,
    user: *mut c_void,
}

/// Number of nodes.
pub fn num_nodes() -> u32 {
    // SAFETY: written before main.
    unsafe { sys::TPPI_num_nodes }
}

/// This node.
pub fn self_address() -> u32 {
    // SAFETY: written before main.
    unsafe { sys::TPPI_self_address }
}

/// A page of the user-managed segment, mapped or not: an access to one that is not mapped is a page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(u32);

impl Page {
    /// Page `number` of the segment, at the same address on all nodes.
    ///
    /// # Panics
    /// If the number is not below [`SEGMENT_PAGES`].
    pub fn new(number: u32) -> Page {
        assert!(number < SEGMENT_PAGES, "the segment has {SEGMENT_PAGES} pages");
        let page = Page(number);
        // Ends a program that was not rewritten, which has no segment.
        page.is_mapped();
        page
    }

    /// The page that holds an address, as fault handlers get it.
    pub fn of(va: *mut c_void) -> Option<Page> {
        let offset = (va as usize).checked_sub(Page(0).base() as usize)?;
        u32::try_from(offset / PAGE_BYTES).ok().filter(|&number| number < SEGMENT_PAGES).map(Page::new)
    }

    pub fn number(self) -> u32 {
        self.0
    }

    fn base(self) -> *mut c_void {
        // SAFETY: a constant of the client library.
        unsafe { sys::TPPI_segment_base }.wrapping_add(self.0 as usize * PAGE_BYTES).cast()
    }

    /// Maps the page, full of zeros (section 3.1.3); false: it is mapped already, or there is no memory.
    ///
    /// # Panics
    /// If `mode` is not below [`PAGE_MODES`].
    pub fn map(self, mode: u32, tag: Tag, home: u32, user: usize) -> bool {
        assert!(mode < PAGE_MODES, "page modes are below {PAGE_MODES}");
        // SAFETY: the arguments are in range; the page's memory is nobody's before.
        unsafe { sys::TPPI_alloc_and_map(self.base(), mode, tag as c_uint, home, user as *mut c_void) == 1 }
    }

    /// Whether the page is mapped.
    pub fn is_mapped(self) -> bool {
        // SAFETY: no structure is asked for.
        unsafe { sys::TPPI_get_page_info(self.base(), std::ptr::null_mut()) == 1 }
    }

    /// Unmaps the page; its contents are lost (section 3.1.3). False: it was not mapped.
    pub fn unmap(self) -> bool {
        // SAFETY: the memory is only used through volatile accesses, which fault from now on.
        unsafe { sys::TPPI_unmap_and_free(self.base()) == 1 }
    }

    fn at<T>(self, index: usize) -> *mut T {
        assert!(index < PAGE_BYTES / size_of::<T>(), "the page has {} elements", PAGE_BYTES / size_of::<T>());
        self.base().cast::<T>().wrapping_add(index)
    }

    fn block(self, block: usize) -> *mut c_void {
        self.at::<[u8; BLOCK_BYTES]>(block).cast()
    }

    /// Element `index` of the page, seen as an array of `T`. May fault.
    ///
    /// # Panics
    /// If the page has no such element.
    pub fn get<T: Plain>(self, index: usize) -> T {
        // SAFETY: inside the segment, aligned; the access faults until the page is mapped; every bit pattern is a `T`; volatile, since handlers change memory in between.
        unsafe { self.at::<T>(index).read_volatile() }
    }

    /// Changes element `index`. May fault.
    ///
    /// # Panics
    /// If the page has no such element.
    pub fn set<T: Plain>(self, index: usize, value: T) {
        // SAFETY: as in `get`.
        unsafe { self.at::<T>(index).write_volatile(value) }
    }

    /// What the page was mapped with: mode, home, user word (section 3.1.5); zeros if it is not mapped.
    pub fn info(self) -> (u32, u32, usize) {
        let mut info = PageInfo { mode: 0, home: 0, user: std::ptr::null_mut() };
        // SAFETY: an aligned structure.
        unsafe { sys::TPPI_get_page_info(self.base(), &raw mut info) };
        (info.mode, info.home, info.user as usize)
    }

    /// The tag of block `block` (section 3.2.4).
    ///
    /// # Panics
    /// If the page has no such block, as all functions of blocks.
    pub fn tag(self, block: usize) -> Tag {
        match sys::TPPI_get_blk_acc(self.block(block)) {
            0 => Tag::Busy,
            1 => Tag::Invalid,
            2 => Tag::ReadOnly,
            _ => Tag::Writable,
        }
    }

    /// Changes the tag of one block (section 3.2.5).
    pub fn change(self, block: usize, change: Change) {
        // SAFETY: a minimal block; one of a page that is not mapped ends the run.
        unsafe { sys::TPPI_change_blk_acc(self.block(block), BLOCK_BYTES as c_int, change as c_uint) }
    }

    /// Copies data into a block and changes its tag (section 3.2.6).
    pub fn change_and_copy(self, block: usize, change: Change, data: &[u8; BLOCK_BYTES]) {
        let from = data.as_ptr().cast_mut().cast();
        // SAFETY: as in `change`; the source is only read.
        unsafe { sys::TPPI_change_blk_acc_and_copy(self.block(block), BLOCK_BYTES as c_int, change as c_uint, from) }
    }

    /// In a message handler: the next bytes into a block, whose tag then changes (section 3.3.3).
    pub fn recv_block(self, block: usize, change: Change) {
        // SAFETY: as in `change`.
        unsafe { sys::TPPI_recv_Ba(self.block(block), BLOCK_BYTES as c_int, change as c_uint) }
    }

    /// Resumes the thread if its suspended access is in the block (section 3.6).
    pub fn resume(self, block: usize) {
        sys::TPPI_resume_va(self.block(block), BLOCK_BYTES as c_int);
    }
}

/// Sets the handler of page faults (section 3.1.4).
pub fn on_page_fault(run: PageFaultHandler) {
    // SAFETY: a function of that type.
    unsafe { sys::TPPI_register_page_fault_handler(Some(run)) }
}

/// Sets the handler of block access faults of one kind on pages of one mode (section 3.2.7).
///
/// # Panics
/// If `mode` is not below [`PAGE_MODES`].
pub fn on_block_fault(mode: u32, fault: Fault, run: BlockFaultHandler) {
    assert!(mode < PAGE_MODES, "page modes are below {PAGE_MODES}");
    let (tag, is_write) = match fault {
        Fault::InvalidRead => (Tag::Invalid, 0),
        Fault::InvalidWrite => (Tag::Invalid, 1),
        Fault::BusyRead => (Tag::Busy, 0),
        Fault::BusyWrite => (Tag::Busy, 1),
        Fault::ReadOnlyWrite => (Tag::ReadOnly, 1),
    };
    // SAFETY: one of the five meaningful combinations, and a function of that type.
    unsafe { sys::TPPI_register_blk_acc_fault_handler(mode, tag as c_uint, is_write, Some(run)) }
}

/// The block that an address is in, as fault handlers get it.
///
/// # Panics
/// If the address is not in user-managed memory.
pub fn block_of(va: *mut c_void) -> (Page, usize) {
    let page = Page::of(va).expect("an address of user-managed memory");
    (page, (va as usize % PAGE_BYTES) / BLOCK_BYTES)
}

/// One item of a message's body (section 3.3.2).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Item {
    kind: c_uint,
    change: c_uint,
    len: c_int,
    pad: c_uint,
    addr: *mut c_void,
}

const NO_ITEM: Item = Item { kind: 0, change: 0, len: 0, pad: 0, addr: std::ptr::null_mut() };

/// A message under construction. Borrows the slices that it will send.
pub struct Message<'a> {
    items: Vec<Item>,
    _regions: std::marker::PhantomData<&'a [i32]>,
}

impl<'a> Message<'a> {
    /// An empty body.
    pub fn new() -> Message<'a> {
        Message { items: Vec::new(), _regions: std::marker::PhantomData }
    }

    /// Adds a word (W).
    pub fn word(mut self, word: i32) -> Self {
        self.items.push(Item { len: word, ..NO_ITEM });
        self
    }

    /// Adds a region (R).
    pub fn words(mut self, words: &'a [i32]) -> Self {
        // Too long a region is refused when it is sent.
        let len = c_int::try_from(size_of_val(words)).unwrap_or(c_int::MAX - 3);
        self.items.push(Item { kind: 2, len, addr: words.as_ptr().cast_mut().cast(), ..NO_ITEM });
        self
    }

    /// Adds the contents of a block, whose tag then changes (Ba).
    pub fn block(mut self, page: Page, block: usize, change: Change) -> Self {
        let (addr, change) = (page.block(block), change as c_uint);
        self.items.push(Item { kind: 1, change, len: BLOCK_BYTES as c_int, addr, ..NO_ITEM });
        self
    }

    /// In a message handler: adds the next bytes of its message (F).
    pub fn forward(mut self, bytes: usize) -> Self {
        self.items.push(Item { kind: 3, len: bytes as c_int, ..NO_ITEM });
        self
    }

    /// Sends the message; `run` is called on node `dest`.
    pub fn send(self, dest: u32, run: MessageHandler) {
        // SAFETY: the items point to user-managed memory and to slices that are still borrowed.
        unsafe { sys::TPPI_send_items(dest, run, self.items.as_ptr(), self.items.len() as c_uint) }
    }
}

impl Default for Message<'_> {
    fn default() -> Self {
        Message::new()
    }
}

/// In a message handler: the next word (section 3.3.3).
pub fn recv_word() -> i32 {
    sys::TPPI_recv_W()
}

/// In a message handler: the next words.
pub fn recv_words(words: &mut [i32]) {
    let len = c_int::try_from(size_of_val(words)).unwrap_or(c_int::MAX - 3);
    // SAFETY: room for as many bytes; more than the message has ends the run before any is written.
    unsafe { sys::TPPI_recv_R(words.as_mut_ptr().cast(), len) }
}

/// The source's end of a bulk channel (section 3.4).
#[derive(Debug)]
pub struct ChannelSource {
    dest: u32,
    channel: c_int,
}

impl ChannelSource {
    /// Makes the end; its number goes to the destination in a message.
    pub fn new(dest: u32, sent: Option<ChannelHandler>) -> ChannelSource {
        ChannelSource { dest, channel: sys::TPPI_set_channel_src(dest, sent) }
    }

    pub fn number(&self) -> i32 {
        self.channel
    }

    /// Whether the destination has made its end.
    pub fn is_established(&self) -> bool {
        sys::TPPI_is_channel_estd(self.dest, self.channel) != 0
    }

    /// Whether the destination has reset its end since the last send.
    pub fn is_reset(&self) -> bool {
        sys::TPPI_is_channel_reset(self.dest, self.channel) != 0
    }

    /// Sends all of the buffer, as many words as the destination expects. The data is taken later, so it must never go away.
    pub fn send(&self, words: &'static [i32]) {
        let bytes = c_int::try_from(size_of_val(words)).unwrap_or(c_int::MAX);
        // SAFETY: the buffer lives for ever and, being shared, does not change.
        unsafe { sys::TPPI_channel_send(self.dest, self.channel, words.as_ptr().cast_mut().cast(), bytes) }
    }

    /// Gives the end up; ends the run if data is still being sent.
    pub fn destroy(self) {
        sys::TPPI_destroy_channel_src(self.dest, self.channel);
    }
}

/// The destination's end of a bulk channel, with its buffer.
#[derive(Debug)]
pub struct ChannelDestination {
    src: u32,
    channel: c_int,
    words: *mut i32,
    len: usize,
}

impl ChannelDestination {
    /// Makes the end for channel `number` of node `src`, with a buffer of `len` words, and tells the source.
    pub fn new(src: u32, number: i32, len: usize, received: Option<ChannelHandler>) -> ChannelDestination {
        let words = Box::leak(vec![0i32; len].into_boxed_slice()).as_mut_ptr();
        let bytes = c_int::try_from(len * size_of::<i32>()).unwrap_or(c_int::MAX);
        // SAFETY: the buffer was leaked, so it stays, and only this value reaches it.
        unsafe { sys::TPPI_set_channel_dst_notify(src, number, words.cast(), bytes, received) };
        ChannelDestination { src, channel: number, words, len }
    }

    /// The data, when all of it is there; it stays until [`ChannelDestination::reset`].
    pub fn ready(&self) -> Option<&[i32]> {
        if sys::TPPI_is_channel_ready(self.src, self.channel) == 0 {
            return None;
        }
        // SAFETY: the whole buffer; the runtime does not write it before `reset`, which needs `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(self.words, self.len) })
    }

    /// Makes the end ready for the next send, and tells the source.
    pub fn reset(&mut self) {
        sys::TPPI_reset_channel_notify(self.src, self.channel);
    }

    /// Gives the end up; ends the run if data is arriving. The buffer's memory is not used again.
    pub fn destroy(self) {
        sys::TPPI_destroy_channel_dst(self.src, self.channel);
    }
}

/// Calls `run(user)` in `microseconds` or later (section 3.5).
pub fn schedule_timer(microseconds: u32, run: TimerHandler, user: usize) {
    sys::TPPI_schedule_timer(c_int::try_from(microseconds).unwrap_or(c_int::MAX), run, user as *mut c_void);
}

/// A semaphore on which the program waits for its handlers (Reinhardt 1996, A.2.6).
#[derive(Debug, Default)]
pub struct Semaphore(std::sync::atomic::AtomicI32);

impl Semaphore {
    pub const fn new() -> Semaphore {
        Semaphore(std::sync::atomic::AtomicI32::new(0))
    }

    /// Increments, and waits while the value is greater than zero; handlers run meanwhile.
    pub fn sleep(&self) {
        // SAFETY: an int in private memory, atomic.
        unsafe { sys::TPPI_sleep(self.0.as_ptr()) }
    }

    /// Decrements: a sleeper whose value becomes zero runs on.
    pub fn wakeup(&self) {
        // SAFETY: as in `sleep`.
        unsafe { sys::TPPI_wakeup(self.0.as_ptr()) }
    }
}
