//! How the runtime gets in first, and how rewritten code gets into it.
//!
//! Purpose: [`start`] runs before the dynamic loader and before any instruction of the program. It starts the node, installs the trap
//! handler, in runs of several nodes arms the system-call gate, loads the interpreter of a dynamic program and rebuilds the
//! initial stack. `gates` are the addresses that rewritten code calls through the private context page.
//! Input: the kernel's initial stack and the [`ModuleInfo`] that the rewriter wrote into the blob. Output: where to jump.
//! **Invariant**: an error before the program runs is one line on file descriptor 2, or at the launcher, and an exit status that is not
//! zero: 127, or the node's own once the node is up.
//! Source: psABI 3.4.1 (initial stack and registers); ELF gABI chapter 5 (program loading); Linux `fs/binfmt_elf.c`.

use crate::gates::alloc_rules;
use crate::gates::blizzard_h;
use crate::gates::entries;
use crate::gates::trap;
use crate::kernel::limits;
use crate::kernel::owned::PerProcess;
use crate::kernel::print;
use crate::kernel::sys;
use crate::kernel::xsave;
use crate::libraries::block_counters;
use crate::libraries::closure::file_kind;
use crate::libraries::closure::file_kind::FileKind;
use crate::libraries::closure::paths;
use crate::libraries::closure::redirect;
use crate::libraries::closure::source;
use crate::libraries::debugger_list;
use crate::libraries::modules;
use crate::libraries::modules::MODULES;
use crate::process::process::{self, Gates};
use crate::process::tags;
use crate::process::trap_bytes::debugged;
use crate::start::loader;
use crate::start::stack::{self, InitialStack};
use crate::system_calls::execution::stubs;
use crate::system_calls::gate::{dispatch, loading, own_file, tempest_thread};
use crate::system_calls::signals::alternate_stack;
use crate::system_calls::signals::{learnt, safe_points, wrapper};
use blizzard_contract::{self as contract, ModuleInfo};
use core::cell::UnsafeCell;
use core::ffi::CStr;

/// What the node of this process is given by the gates.
const GATES: Gates = Gates {
    addresses: entries::addresses,
    safe_point: safe_points::safe_point,
    required: entries::required,
    guard_thread: tempest_thread::activate,
};
/// Exit status of a program that could not be started, as shells use it.
const EXIT_CANNOT_START: i32 = 127;

/// Storage that the rewriter fills in the blob's file image.
#[repr(transparent)]
pub struct InfoCell(UnsafeCell<ModuleInfo>);

// SAFETY: written by the rewriter in the file, only read at run time.
unsafe impl Sync for InfoCell {}

/// The module info. In a data section of its own, so that the all-zero value has bytes in the file.
#[cfg_attr(feature = "freestanding", unsafe(no_mangle), unsafe(link_section = ".data.blizzard_info"))]
#[allow(non_upper_case_globals)]
#[used]
pub static blizzard_module_info: PerProcess<InfoCell> = PerProcess::new(InfoCell(UnsafeCell::new(ModuleInfo::ZERO)));

/// The module info as the rewriter left it.
pub fn module_info() -> ModuleInfo {
    // SAFETY: initialised storage. Volatile, because the value in the file is not the one the compiler saw.
    unsafe { blizzard_module_info.0.get().read_volatile() }
}

/// Bytes to reserve below the kernel's stack block for the rebuilt one.
///
/// # Safety
/// `sp` is the stack pointer at process start.
pub unsafe extern "C" fn stack_bytes(sp: *const u64) -> u64 {
    // SAFETY: passed on from the caller.
    unsafe { InitialStack::parse(sp) }.rebuilt_bytes()
}

/// Starts everything and builds the program's initial stack at `new_sp`; returns the address to jump to.
///
/// # Safety
/// Called once, by the entry point: `old_sp` is the stack pointer at process start, `new_sp` is 16-byte aligned with
/// [`stack_bytes`] free bytes above it, `base` is the address of the blob's ELF header, and relocations are applied.
pub unsafe extern "C" fn start(old_sp: *const u64, new_sp: *mut u64, base: u64) -> u64 {
    let info = module_info();
    if info.magic != contract::MODULE_MAGIC {
        give_up(format_args!(
            "this file's runtime has no module description (magic {:#x}): it is damaged or was never linked into a program",
            info.magic
        ));
    }
    let bias = base.wrapping_sub(info.rt_base_va);
    // SAFETY: passed on from the caller.
    let initial = unsafe { InitialStack::parse(old_sp) };
    let secure = initial.is_secure();
    let boot = match initial.boot() {
        Ok(Some(_)) if secure => give_up(format_args!(
            "this program has rights that whoever starts it has not (set-user-ID, set-group-ID, file capabilities, or a change of security context), so it takes no part in a \
             run that they set up: start it without `blizzard run`"
        )),
        Ok(boot) => boot,
        Err(text) => give_up(format_args!("the environment variable {} is malformed: {text:?}", contract::BOOT_ENV)),
    };
    if let Some(variable) = initial.exe().filter(|_| !secure) {
        own_file::set(variable);
    }
    xsave::init();
    // SAFETY: first and only call, before the program runs.
    unsafe { process::start(boot, GATES) };
    stubs::set_child_entries(entries::child_entries());
    stubs::set_behind_entry(entries::behind_entry());
    tags::enable_counters();
    if let Some(Err(e)) = boot.and_then(|boot| boot.blocks).map(block_counters::start) {
        give_up(format_args!("cannot map the counters of basic blocks: {e}"));
    }
    learnt::start(process::learnt());
    if process::rules().is_some_and(|rules| !alloc_rules::start(rules)) {
        give_up(format_args!("the launcher's rules of allocations are shorter than they say"));
    }
    limits::started(process::nodes());
    // SAFETY: first and only call, before the program runs.
    unsafe {
        if let Err(kind) = source::init(&info, bias, secure) {
            give_up(format_args!("this file says {kind:?} of its libraries, which makes no sense: it is damaged"));
        }
        if let Err(e) = trap::install() {
            give_up(format_args!("cannot install the trap handler: {e}"));
        }
    }
    let mut name = 0;
    if own_file::path().is_none()
        && let Some(original) = redirect::original_elsewhere()
    {
        own_file::set(original);
        if initial.name().is_some_and(redirect::names_own_file) {
            name = own_file::name_for_program();
        }
    }
    if secure && source::is_bundle() {
        give_up(format_args!(
            "this program has rights that whoever starts it has not (set-user-ID, set-group-ID, file capabilities, or a change of security context), so it does not take its \
             libraries from beside its file, which they could link elsewhere: rewrite it without --bundle"
        ));
    }
    let (start, bytes) = initial.program_span(info.phdr_va.wrapping_add(bias), info.phdr_count, bias);
    add_module(&info, bias, start, bytes, b"");
    // SAFETY: the kernel has mapped the program, its headers included.
    unsafe { debugger_list::begin(info.phdr_va.wrapping_add(bias), info.phdr_count, bias) };
    let (interp_base, target) = if info.interp_va == 0 {
        (0, info.entry_va.wrapping_add(bias))
    } else {
        // SAFETY: the rewriter stores a NUL-terminated path there.
        load_interpreter(unsafe { CStr::from_ptr(info.interp_va.wrapping_add(bias) as *const _) })
    };
    let edits = stack::StackEdits {
        phdr: info.phdr_va.wrapping_add(bias),
        phdr_count: info.phdr_count,
        entry: info.entry_va.wrapping_add(bias),
        base: interp_base,
        api: core::ptr::from_ref(blizzard_h::TABLE) as u64,
        execfn: own_file::path().map_or(0, |path| path.as_ptr() as u64),
        name,
        // The kernel's fast calls write where they are told without a look at tags.
        hide_vdso: process::nodes() > 1
            || stack::has_note(info.phdr_va.wrapping_add(bias), info.phdr_count, bias, contract::TEMPEST_NOTE_TYPE),
    };
    // SAFETY: the caller reserved `stack_bytes` at `new_sp`.
    unsafe { initial.rebuild(new_sp, &edits) };
    // SAFETY: `base` is the blob's ELF header.
    unsafe { dispatch::note_text(base) };
    if process::nodes() > 1 {
        // SAFETY: the program has not started and has one thread.
        if let Err(e) = unsafe { dispatch::enable() } {
            give_up(format_args!(
                "cannot intercept system calls (Syscall User Dispatch: {e}); \
                 a run of several nodes needs Linux 5.11 or later, not inside a sandbox that filters prctl"
            ));
        }
    }
    if process::nodes() > 1 || info.interp_va == 0 || source::active() {
        match alternate_stack::prepare() {
            Err(e) if process::nodes() > 1 => give_up(format_args!("cannot make a stack for signals: {e}")),
            // Nobody hears of a stack that is full.
            _ => {}
        }
        // SAFETY: the program has not started.
        if let Err(e) = unsafe { wrapper::stand_before_faults() } {
            give_up(format_args!("cannot install the handler of faults: {e}"));
        }
        debugged::watch();
    }
    target
}

/// Maps the dynamic loader, rewritten if libraries are; returns its base and its entry point.
fn load_interpreter(path: &CStr) -> (u64, u64) {
    if let Err(e) = redirect::find_bundle() {
        give_up(format_args!(
            "cannot find the libraries of this program's bundle: /proc/self/exe, which says where the program is, cannot be read: {e}; is \
             /proc mounted?"
        ));
    }
    let file = match redirect::open_loader(path) {
        Ok(file) => file,
        Err(e) => give_up(format_args!("cannot open the dynamic loader {path:?}: {e}")),
    };
    let loaded = match loader::load(&file) {
        Ok(loaded) => loaded,
        Err(e) => give_up(format_args!("cannot load the dynamic loader {path:?}: {e}")),
    };
    if let FileKind::Rewritten { info, low, bytes, dynamic } = file_kind::kind_of(file.0) {
        paths::path_of(file.0, |path| {
            add_module(&info, loaded.base, loaded.base.wrapping_add(low), bytes, path);
            debugger_list::add(loaded.base, dynamic, path);
        });
        loading::set_loader(path, info.code_va.wrapping_add(loaded.base), info.code_bytes);
    }
    (loaded.base, loaded.entry)
}

/// Registers a module that occupies `bytes` bytes from `start` on.
fn add_module(info: &ModuleInfo, bias: u64, start: u64, bytes: u64, path: &[u8]) {
    // SAFETY: the trap map is part of a loaded file, which stays mapped and unchanged.
    let added = unsafe { MODULES.add(info, bias, start, start.wrapping_add(bytes)) };
    added.unwrap_or_else(|modules::ModulesFull| unreachable!("the first modules fit"));
    // SAFETY: the module has been mapped by the kernel or by the loader's stand-in, all of it.
    if let Err(e) = unsafe { block_counters::add(info, bias, path) } {
        give_up(format_args!("cannot map the counters of basic blocks: {e}"));
    }
}

/// Reports an error from before the program's start and ends the run.
fn give_up(message: core::fmt::Arguments<'_>) -> ! {
    if tags::counters_enabled() {
        // The node is up: it tells its peers and the launcher.
        process::fail(message);
    }
    print::error(message);
    sys::exit_group(EXIT_CANNOT_START)
}
