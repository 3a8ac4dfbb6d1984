//! System calls by which code comes into the process.
//!
//! Purpose: the dynamic loader gets rewritten files in place of originals, also after the program has given up the rights to open them; rewritten
//! files are registered when they are mapped; code that is not rewritten is not run unseen. Input: a call and where it comes from. Output: its result, if it has been made here.
//! **Invariants**
//! * Only opens that come from the dynamic loader's own code are redirected: a program that reads a library as a file sees the file. Where loader
//!   and C library are one file (musl), its opens count when they are those that load libraries: read-only, close-on-exec.
//! * In a run of several nodes of tested code, executable memory that comes from no rewritten file ends the run: its accesses are not checked. With
//!   one node nothing is inaccessible, and it is counted; of the first such library a line is said. In guarded code accesses of such memory
//!   fault; a library that is not rewritten ends a run of several nodes all the same, because its system calls are not seen.
//! * Every `mmap` and `open` comes through here, also of threads with the smallest stacks: what needs room for a path is in a function of its own.
//!
//! Source: design section 2 (closure); glibc `elf/dl-load.c` and musl `ldso/dynlink.c` for the order of the calls.

use crate::kernel::owned::PerProcess;
use crate::kernel::print;
use crate::kernel::sys::{self, Errno};
use crate::libraries::block_counters;
use crate::libraries::closure::file_kind;
use crate::libraries::closure::file_kind::FileKind;
use crate::libraries::closure::opened_by_libc;
use crate::libraries::closure::paths;
use crate::libraries::closure::paths::Fd;
use crate::libraries::closure::redirect;
use crate::libraries::closure::source;
use crate::libraries::debugger_list;
use crate::libraries::modules::{MODULES, ModulesFull};
use crate::memory::access_control::program::{self, UNTESTED_FAULTS, runtime_address};
use crate::process::process;
use crate::process::tags;
use crate::process::trap_bytes::debugged;
use crate::process::trap_bytes::hot_traps;
use crate::system_calls::execution::call::Call;
use crate::system_calls::table::visitor::keep_pages_out;
use crate::tempest::owner;
use blizzard_contract::{Counter, ModuleInfo};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE_BYTES: u64 = 4096;
/// New code of the dynamic loader: start and end.
static LOADER: PerProcess<[AtomicU64; 2]> = PerProcess::new([AtomicU64::new(0), AtomicU64::new(0)]);
/// The loader is the C library, too.
static LOADER_IS_LIBC: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));

/// Tells where the dynamic loader's new code is.
pub fn set_loader(path: &CStr, code: u64, bytes: u64) {
    let name = path.to_bytes().rsplit(|&b| b == b'/').next().unwrap_or_default();
    LOADER_IS_LIBC.store(name.starts_with(b"ld-musl"), Ordering::Relaxed);
    LOADER[0].store(code, Ordering::Relaxed);
    LOADER[1].store(code.wrapping_add(bytes), Ordering::Relaxed);
}

fn from_loader(rip: u64, flags: i32) -> bool {
    let read_only = flags & libc::O_ACCMODE == libc::O_RDONLY;
    let loads = read_only && (!LOADER_IS_LIBC.load(Ordering::Relaxed) || flags & libc::O_CLOEXEC != 0);
    loads && is_loader(rip)
}

/// Whether a call comes from the dynamic loader's code.
pub fn is_loader(rip: u64) -> bool {
    (LOADER[0].load(Ordering::Relaxed)..LOADER[1].load(Ordering::Relaxed)).contains(&rip)
}

/// Whether there is one.
pub fn has_loader() -> bool {
    LOADER[1].load(Ordering::Relaxed) != 0
}

/// Opens what the loader asks for, and gives it the rewritten form of a library; `None`: another asks. `path`: the argument with the path; flags follow.
///
/// # Safety
/// The program's call, which may be made.
pub unsafe fn open(call: &Call, path: u8) -> Option<i64> {
    let path = usize::from(path);
    // SAFETY: passed on from the caller.
    (source::active() && from_loader(call.rip, call.args[path + 1] as i32))
        .then(|| unsafe { open_for_loader(call, call.args[path]) })
}

/// # Safety
/// The call may be made, and its path is at `path`.
#[inline(never)]
unsafe fn open_for_loader(call: &Call, path: u64) -> i64 {
    // SAFETY: the caller's.
    if let Some(found) = redirect::in_bundle(unsafe { CStr::from_ptr(runtime_address(path).cast()) }) {
        return found.map_or_else(|Errno(e)| -i64::from(e), |fd| i64::from(fd.keep()));
    }
    // SAFETY: the caller's.
    let fd = unsafe { sys::raw(call.nr, call.kernel_arguments()) };
    if fd < 0 {
        return fd;
    }
    let found = redirect::redirect(Fd(fd as i32));
    if found.is_ok() {
        // SAFETY: the caller's.
        opened_by_libc::note_opened(unsafe { CStr::from_ptr(runtime_address(path).cast()) });
    }
    found.map_or_else(|Errno(e)| -i64::from(e), |fd| i64::from(fd.keep()))
}

/// Makes an `mmap` by which code comes in, and registers a rewritten file; `None`: it is the kernel's call.
///
/// # Safety
/// The program's call, which may be made.
pub unsafe fn map_code(call: &Call) -> Option<i64> {
    let args = &call.args;
    let [_, _, prot, flags, _, offset] = *args;
    let executable = prot & libc::PROT_EXEC as u64 != 0;
    let fixed = flags & libc::MAP_FIXED as u64 != 0;
    if fixed
        && let Err(at) = keep_pages_out(args[0], args[1])
        && !program::in_segment(at)
    {
        process::fail(format_args!("mmap (MAP_FIXED) would replace pages that the runtime needs at {at:#x}"));
    }
    if fixed {
        hot_traps::leave(args[0], args[1]);
    }
    if flags & libc::MAP_ANONYMOUS as u64 != 0 {
        if executable {
            generated();
        }
        // SAFETY: the caller's; these are the counters of a library that the loader maps.
        return (fixed && block_counters::pending(args[0])).then(|| unsafe { map_counters(args) });
    }
    if offset != 0 && !executable {
        return None;
    }
    // SAFETY: passed on from the caller.
    Some(unsafe { map(args, offset == 0, executable) })
}

/// Pages become read-only. The loader makes them so in libraries that are mapped, all of them.
pub fn has_loaded(call: &Call) {
    if is_loader(call.rip) {
        debugged::catch_up();
    }
}

/// Pages become executable.
pub fn allow_code(call: &Call) {
    // Text relocations: the loader makes a module's code writable and executable again.
    if !(is_loader(call.rip) && MODULES.covers(call.args[0])) {
        generated();
    }
}

/// Maps a library's counters of basic blocks, in the launcher's file.
///
/// # Safety
/// The call may be made, and [`block_counters::pending`] knows the address.
#[inline(never)]
unsafe fn map_counters(args: &[u64; 6]) -> i64 {
    // SAFETY: the caller's.
    let at = unsafe { sys::raw(libc::SYS_mmap, *args) };
    if at >= 0 {
        // SAFETY: just mapped.
        or_stop(unsafe { block_counters::mapped(args[0], args[1]) });
    }
    at
}

fn or_stop(done: sys::Result<()>) {
    if let Err(e) = done {
        process::fail(format_args!("cannot count a library's basic blocks: {e}"));
    }
}

/// A library is mapped. Apart from the calls that map anything else, whose stacks may have no room for a path.
#[inline(never)]
fn tell_debuggers(fd: i32, bias: u64, dynamic: u64) {
    paths::path_of(fd, |path| debugger_list::add(bias, dynamic, path));
}

/// Maps a file, and registers a rewritten one. `first`: from its beginning on.
///
/// # Safety
/// The call may be made.
#[inline(never)]
unsafe fn map(args: &[u64; 6], first: bool, executable: bool) -> i64 {
    let kind = file_kind::kind_of(args[4] as i32);
    if executable && !matches!(kind, FileKind::Rewritten { .. }) {
        // Whoever left the libraries as they are has been told.
        let other = matches!(kind, FileKind::Other);
        if process::nodes() > 1 && source::active() && !tags::detached() && !(other && UNTESTED_FAULTS) {
            refuse_original(args[4] as i32, kind);
        }
        if other {
            tags::count(Counter::GeneratedCode);
        }
        if !(other && UNTESTED_FAULTS) {
            tags::count(Counter::UncheckedCode);
        }
        if matches!(kind, FileKind::Original) && source::active() && MODULES.check() {
            warn_of_original(args[4] as i32);
        }
    }
    // SAFETY: the caller's.
    let at = unsafe { sys::raw(libc::SYS_mmap, *args) };
    // The loader maps the whole span of a file at once, first. A program that maps a file to read it maps another length; taken for a
    // module, it would displace those that lie behind it.
    let spans = |bytes: u64| args[1].next_multiple_of(PAGE_BYTES) == bytes;
    if let (FileKind::Rewritten { info, low, bytes, dynamic }, true, 0..) = (kind, first, at)
        && spans(bytes)
    {
        let start = at as u64;
        // SAFETY: the loader maps the rest of the file behind before it runs any of it.
        let added = unsafe { MODULES.add(&info, start.wrapping_sub(low), start, start.wrapping_add(bytes)) };
        if let Err(ModulesFull) = added {
            process::fail(format_args!(
                "the program loads more than {} libraries",
                crate::libraries::modules::MAX_MODULES
            ));
        }
        tell_debuggers(args[4] as i32, start.wrapping_sub(low), dynamic);
        owner::require_own_limits();
        if info.blocks_va != 0 {
            expect_counters(args[4] as i32, &info, start.wrapping_sub(low));
        }
    }
    at
}

/// The program maps a file's code as it is, where that would break the others' view of the memory.
#[inline(never)]
fn refuse_original(fd: i32, kind: FileKind) -> ! {
    paths::path_of(fd, |path| {
        let what = match kind {
            FileKind::Other => "maps code from a file that is no library",
            _ => "itself loads a library, and not the dynamic loader",
        };
        process::fail(format_args!(
            "the program {what} ({}): that is not rewritten, and its accesses and system calls are not seen, so the program can run on one node only",
            path.escape_ascii()
        ))
    })
}

/// The program loads a library by itself, as a statically linked one does.
#[inline(never)]
fn warn_of_original(fd: i32) {
    static TOLD: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));
    if !TOLD.swap(true, Ordering::Relaxed) {
        paths::path_of(fd, |path| {
            print::warning(format_args!(
                "{} is not rewritten, because the program itself loads it and not the dynamic loader: its accesses are not checked, nor those \
                 of libraries that follow it",
                path.escape_ascii()
            ));
        });
    }
}

/// Prepares for the mapping of a library's counters of basic blocks.
#[inline(never)]
fn expect_counters(fd: i32, info: &ModuleInfo, bias: u64) {
    or_stop(paths::path_of(fd, |path| block_counters::expect(info, bias, path)));
}

/// The program makes code of its own.
fn generated() {
    if UNTESTED_FAULTS {
        return tags::count(Counter::GeneratedCode);
    }
    if process::nodes() > 1 && !tags::detached() {
        process::fail(format_args!(
            "the program generates code (executable memory that comes from no file): its accesses cannot be checked, \
             so it can run on one node only; with `--access guard` it can run on several"
        ));
    }
    tags::count(Counter::UncheckedCode);
    tags::count(Counter::GeneratedCode);
}
