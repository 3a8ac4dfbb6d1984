//! The list of libraries that debuggers read.
//!
//! Purpose: the dynamic loader knows rewritten libraries by the names of the originals. A debugger that believed its list would take the code for the originals'.
//! It finds the list by the section `.dynamic` of the program's file, so the rewriter gives it another section of that name: [`blizzard_debugger_dynamic`]
//! leads to this list, which has the names of the files that are mapped. Input: the modules, as they are mapped. Output: memory that debuggers read.
//!
//! **Invariants**: nothing in the process reads it. An entry is published by its last store, so that whoever stops the process finds a whole list. A library
//! that was unloaded stays in it until another one is mapped there. What there is no room for is missing, and what is mapped
//! while another one is entered.
//! Source: glibc's `link.h` (`r_debug`, `link_map`), gdb's `solib-svr4.c` (`elf_locate_base`, `svr4_read_so_list`), gABI chapter 5 (`DT_DEBUG`).

use crate::kernel::elf::{PT_DYNAMIC, Phdr};
use crate::kernel::owned::PerProcess;
use crate::libraries::modules::MODULES;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

const DT_NULL: u64 = 0;
const DT_DEBUG: u64 = 21;
/// Files that the list has room for, and bytes for their names.
const FILES: usize = 512;
const NAME_BYTES: usize = 1 << 16;
/// Where `r_brk` stands in the dynamic loader's `r_debug`.
const R_BRK: u64 = 16;

/// A dynamic section of two tags. In a data section of its own, so that it has bytes in the file.
#[cfg_attr(feature = "freestanding", unsafe(no_mangle), unsafe(link_section = ".data.blizzard_dynamic"))]
#[allow(non_upper_case_globals)]
#[used]
pub static blizzard_debugger_dynamic: PerProcess<[AtomicU64; 4]> =
    PerProcess::new([AtomicU64::new(DT_DEBUG), AtomicU64::new(0), AtomicU64::new(DT_NULL), AtomicU64::new(0)]);

/// `struct link_map`.
#[repr(C)]
struct Entry {
    bias: AtomicU64,
    name: AtomicU64,
    dynamic: AtomicU64,
    next: AtomicU64,
    previous: AtomicU64,
}

impl Entry {
    const fn empty() -> Entry {
        Entry {
            bias: AtomicU64::new(0),
            name: AtomicU64::new(0),
            dynamic: AtomicU64::new(0),
            next: AtomicU64::new(0),
            previous: AtomicU64::new(0),
        }
    }

    fn address(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }
}

/// `struct r_debug`, and what it leads to.
#[repr(C)]
struct List {
    version: AtomicU64,
    first: AtomicU64,
    /// Where the dynamic loader calls debuggers when it has loaded a library.
    call: AtomicU64,
    /// Consistent, always.
    state: AtomicU64,
    loader: AtomicU64,
    entries: [Entry; FILES],
    used: AtomicUsize,
    names: [AtomicU8; NAME_BYTES],
    named: AtomicUsize,
    /// Where the loader says where its own list is.
    own: AtomicU64,
    writing: AtomicBool,
}

/// The process's.
static LIST: PerProcess<List> = PerProcess::new(List::new());

/// The program, which is the first.
///
/// # Safety
/// The program's headers stand at `phdr`, and it is mapped with this bias.
pub unsafe fn begin(phdr: u64, count: u64, bias: u64) {
    // SAFETY: the caller's.
    let headers = unsafe { core::slice::from_raw_parts(phdr as *const Phdr, count as usize) };
    let Some(dynamic) = headers.iter().find(|p| p.p_type == PT_DYNAMIC) else { return };
    let at = dynamic.vaddr.wrapping_add(bias);
    LIST.add(bias, at, b"");
    for k in 0..dynamic.memsz / 16 {
        // SAFETY: the dynamic section is a part of the program.
        match unsafe { ((at + 16 * k) as *const u64).read_volatile() } {
            DT_DEBUG => return LIST.own.store(at + 16 * k + 8, Ordering::Relaxed),
            DT_NULL => return,
            _ => {}
        }
    }
}

/// A library, or the dynamic loader, that is mapped with this bias. `dynamic`: the link-time address of its dynamic section; `name`: of the file.
pub fn add(bias: u64, dynamic: u64, name: &[u8]) {
    if LIST.used.load(Ordering::Relaxed) > 0 && dynamic != 0 {
        LIST.add(bias, dynamic.wrapping_add(bias), name);
    }
}

impl List {
    const fn new() -> List {
        List {
            version: AtomicU64::new(0),
            first: AtomicU64::new(0),
            call: AtomicU64::new(0),
            state: AtomicU64::new(0),
            loader: AtomicU64::new(0),
            entries: [const { Entry::empty() }; FILES],
            used: AtomicUsize::new(0),
            names: [const { AtomicU8::new(0) }; NAME_BYTES],
            named: AtomicUsize::new(0),
            own: AtomicU64::new(0),
            writing: AtomicBool::new(false),
        }
    }

    fn add(&self, bias: u64, dynamic: u64, name: &[u8]) {
        // Somebody else writes, or this is a handler that has interrupted the write: nobody waits for the sake of debuggers.
        if self.writing.swap(true, Ordering::Acquire) {
            return;
        }
        self.put(bias, dynamic, name);
        self.expect_calls();
        self.writing.store(false, Ordering::Release);
    }

    fn put(&self, bias: u64, dynamic: u64, name: &[u8]) {
        let (used, named) = (self.used.load(Ordering::Relaxed), self.named.load(Ordering::Relaxed));
        let Some(room) = self.names.get(named..named + name.len() + 1) else { return };
        for (to, byte) in room.iter().zip(name) {
            to.store(*byte, Ordering::Relaxed);
        }
        let known = self.entries[..used].iter().position(|entry| entry.bias.load(Ordering::Relaxed) == bias);
        let Some(entry) = self.entries.get(known.unwrap_or(used)) else { return };
        self.named.store(named + room.len(), Ordering::Relaxed);
        entry.bias.store(bias, Ordering::Relaxed);
        entry.dynamic.store(dynamic, Ordering::Relaxed);
        entry.name.store(room.as_ptr() as u64, Ordering::Release);
        if known.is_some() {
            return;
        }
        match used.checked_sub(1).map(|before| &self.entries[before]) {
            Some(before) => {
                entry.previous.store(before.address(), Ordering::Relaxed);
                before.next.store(entry.address(), Ordering::Release);
            }
            None => {
                // Without other namespaces.
                self.version.store(1, Ordering::Relaxed);
                self.first.store(entry.address(), Ordering::Release);
                blizzard_debugger_dynamic[1].store(core::ptr::from_ref(self) as u64, Ordering::Release);
            }
        }
        self.used.store(used + 1, Ordering::Release);
    }

    /// Says where the loader calls debuggers, once it has said so itself: it names the place by its old address.
    fn expect_calls(&self) {
        let own = self.own.load(Ordering::Relaxed);
        if own == 0 || self.call.load(Ordering::Relaxed) != 0 {
            return;
        }
        // SAFETY: the program's dynamic section, where the loader puts the address of its `r_debug`.
        let debug = unsafe { (own as *const u64).read_volatile() };
        if debug != 0 {
            // SAFETY: as above.
            let call = unsafe { ((debug + R_BRK) as *const u64).read_volatile() };
            self.call.store(MODULES.entry(call).unwrap_or(call), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    /// As a debugger reads it: bias, dynamic section, name.
    fn read(list: &List) -> Vec<(u64, u64, String)> {
        let (mut all, mut before) = (Vec::new(), 0);
        let mut at = list.first.load(Ordering::Acquire);
        while at != 0 {
            // SAFETY: entries of the list, which the test owns.
            let entry = unsafe { &*(at as *const Entry) };
            assert_eq!(entry.previous.load(Ordering::Relaxed), before);
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(entry.name.load(Ordering::Relaxed) as *const _) };
            let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
            all.push((word(&entry.bias), word(&entry.dynamic), name.to_str().unwrap().to_owned()));
            (before, at) = (at, word(&entry.next));
        }
        all
    }

    #[test]
    fn files_are_listed_in_the_order_of_their_coming() {
        let list = Box::new(List::new());
        assert_eq!(read(&list), []);
        list.add(0, 0x100, b"");
        list.add(0x5000, 0x5100, b"/lib/one");
        list.add(0x9000, 0x9100, b"/lib/two");
        // In the place of one that is gone.
        list.add(0x5000, 0x5200, b"/lib/three");
        let named = |bias, dynamic, name: &str| (bias, dynamic, name.to_owned());
        assert_eq!(
            read(&list),
            [named(0, 0x100, ""), named(0x5000, 0x5200, "/lib/three"), named(0x9000, 0x9100, "/lib/two")]
        );
    }

    #[test]
    fn what_there_is_no_room_for_is_missing() {
        let list = Box::new(List::new());
        for k in 0..2 * FILES as u64 {
            list.add(k << 12, k, b"/lib/some");
        }
        assert_eq!(read(&list).len(), FILES);
        let list = Box::new(List::new());
        for k in 0..100 {
            list.add(k << 12, k, &[b'x'; 4095]);
        }
        assert_eq!(read(&list).len(), NAME_BYTES / 4096);
    }

    #[test]
    fn the_place_of_the_loaders_calls_is_taken_over() {
        let list = Box::new(List::new());
        let debug: [u64; 3] = [1, 2, 0x7000];
        let own = AtomicU64::new(0);
        list.own.store(own.as_ptr() as u64, Ordering::Relaxed);
        list.add(0, 0x100, b"");
        assert_eq!(list.call.load(Ordering::Relaxed), 0);
        own.store(debug.as_ptr() as u64, Ordering::Relaxed);
        list.add(0x5000, 0x100, b"/lib/one");
        assert_eq!(list.call.load(Ordering::Relaxed), 0x7000);
    }
}
