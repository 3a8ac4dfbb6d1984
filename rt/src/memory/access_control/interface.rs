//! The interface between the runtime and who decides about accesses.
//!
//! Purpose: there are two kinds: tags that inserted code tests; tags, and memory that faults where code has no tests. Mappings, and addresses of bytes, the
//! rest of the runtime has from here alone; what else differs for guarded code has the feature `guard`. Input: the program's addresses of shared memory, changes of tags. Output: mappings, addresses, answers.
//! An address of the program stands for three: that of the program itself; the one by which the runtime reads and writes the byte
//! ([`AccessControl::runtime_address`]); the one that the kernel is given ([`AccessControl::kernel_address`]).
//! **Invariants**
//! * The runtime can read and write mapped shared memory at the runtime's address whatever the tags say; the kernel can at the kernel's.
//! * The runtime's and the kernel's addresses keep distances: what lies behind each other for the program does so for both.
//! * Only the node's own thread changes tags.

use crate::kernel::sys;
use crate::memory::segment::{InvalidTags, MapError};
use blizzard_protocol::tag::Tag;
use core::fmt::Debug;

/// What a fault at an address means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The program's own business.
    NotOurs,
    /// An access to shared memory that was not tested: the runtime has to grant it or carry it out.
    NotTested,
    /// The test of an address of which there is no tag, or an access that strayed into the table.
    TagTable,
    /// The runtime keeps pages there; the program has nothing.
    Unused,
}

/// Who decides. All addresses are the program's, and those of shared memory, where nothing else is said.
pub trait AccessControl: Copy + Debug {
    /// Maps what has to be there before all shared memory. Every access is allowed.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// Called once per process.
    unsafe fn start(&self) -> Result<(), MapError>;

    /// Maps shared memory, between guards. It reads as zeros, only touched pages cost anything, and every access is allowed.
    ///
    /// # Errors
    /// The kernel's; where something is mapped already, nothing is changed.
    ///
    /// # Safety
    /// Called once per process and range, after [`AccessControl::start`].
    unsafe fn map(&self, what: &'static str, base: u64, bytes: u64) -> Result<(), MapError>;

    /// Makes all tags of mapped memory Invalid. From here on they can be changed.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// No tag of the range was used; nobody changes the file's bytes.
    unsafe fn invalidate(&self, base: u64, bytes: u64, tags: InvalidTags) -> Result<(), MapError>;

    /// Gives whole pages back to the kernel: they read as zeros afterwards.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// Nobody needs the contents.
    unsafe fn discard(&self, addr: u64, bytes: u64) -> sys::Result<()>;

    /// Makes memory and tags what they were after [`AccessControl::invalidate`], in a copy of the process that has used them.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// Nobody needs the contents.
    unsafe fn forget(&self, base: u64, bytes: u64) -> sys::Result<()>;

    /// By which address the runtime reads and writes.
    fn runtime_address(&self, addr: u64) -> u64;

    /// Which address the kernel is given.
    fn kernel_address(&self, addr: u64) -> u64;

    /// Where core dumps show the memory: where the program has it.
    fn dumped_address(&self, addr: u64) -> u64 {
        self.kernel_address(addr)
    }

    /// The program's address of what the runtime finds at `at`; of private memory `at` itself.
    fn program_address(&self, at: u64) -> u64;

    /// The tag of the minimum block that holds `addr`, private memory's too; `None` when the byte is no tag: the table was overwritten.
    fn tag(&self, addr: u64) -> Option<Tag>;

    /// Whether that tag allows the access now.
    fn allows(&self, addr: u64, store: bool) -> bool;

    /// Sets the tags of all minimum blocks of the range, which begins and ends with one.
    fn set_tags(&self, addr: u64, bytes: u64, tag: Tag);

    /// What it means that an access of the program to `addr`, which is any address, has raised a signal.
    fn meaning_of_fault(&self, addr: u64) -> Fault;
}
