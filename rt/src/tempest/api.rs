//! The functions of `tempest.h`, as the program's client library calls them.
//!
//! Purpose: [`TABLE`], which [`crate::gates::blizzard_h::TABLE`] leads to. Each function checks what it is given and leads to the module of its section. Called
//! with the C calling convention on the program's stack, also from handlers.
//! **Invariant**: nothing unwinds out of here; misuse ends the run with one error line that names the function.

use crate::kernel::entry::aligned;
use crate::memory::access_control::program::runtime_address;
use crate::node::user_handlers::{entered, in_handler};
use crate::process::host::CallHost;
use crate::process::process;
use crate::tempest::bulk::channels::{self, ChannelEnd};
use crate::tempest::bulk::transfer;
use crate::tempest::events;
use crate::tempest::faults::{self, Case, FAULTS};
use crate::tempest::interface;
use crate::tempest::messages::{arrived, sending};
use crate::tempest::owner::{require_function, require_node, require_own_thread, settings};
use crate::tempest::pages::blocks;
use crate::tempest::pages::table::{self, PAGES, Page, is_user};
use crate::tempest::{threads, timers};
use blizzard_contract::tempest::{BlockFaultHandler, PAGE_MODES, PageFaultHandler, PageInfo, SendItem, TempestApi};
use blizzard_protocol::ids::NodeId;
use blizzard_protocol::tag::Tag;

/// The one table of this process.
pub const TABLE: &TempestApi = &TempestApi {
    bytes: size_of::<TempestApi>() as u64,
    start: aligned!(start),
    alloc_and_map: aligned!(alloc_and_map),
    unmap_and_free: aligned!(unmap_and_free),
    remap: aligned!(remap),
    register_page_fault_handler: aligned!(register_page_fault_handler),
    get_page_info: aligned!(get_page_info),
    fault_pc: aligned!(fault_pc),
    get_blk_acc: aligned!(get_blk_acc),
    change_blk_acc: aligned!(change_blk_acc),
    change_blk_acc_and_copy: aligned!(change_blk_acc_and_copy),
    register_blk_acc_fault_handler: aligned!(register_blk_acc_fault_handler),
    send: aligned!(send),
    recv_w: aligned!(recv_w),
    recv_ba: aligned!(recv_ba),
    recv_r: aligned!(recv_r),
    set_channel_src: aligned!(set_channel_src),
    set_channel_dst: aligned!(set_channel_dst),
    is_channel_estd: aligned!(is_channel_estd),
    channel_send: aligned!(channel_send),
    is_channel_ready: aligned!(is_channel_ready),
    reset_channel: aligned!(reset_channel),
    is_channel_reset: aligned!(is_channel_reset),
    destroy_channel_src: aligned!(destroy_channel_src),
    destroy_channel_dst: aligned!(destroy_channel_dst),
    get_channel_user_ptr: aligned!(get_channel_user_ptr),
    set_channel_user_ptr: aligned!(set_channel_user_ptr),
    schedule_timer: aligned!(schedule_timer),
    resume_va: aligned!(resume_va),
    sleep: aligned!(sleep),
    wakeup: aligned!(wakeup),
    atomic_incr: aligned!(atomic_incr),
};

extern "C" fn start() {
    interface::start();
    entered(false);
    process::with_host("tempest.h", |mut host| events::accept_early(&mut host));
}

/// First thing in every function: the thread that may call it, and the state of its registers.
fn enter(function: &str) {
    require_own_thread(function);
    entered(false);
}

extern "C" fn alloc_and_map(pg: u64, mode: u32, acc: u32, home: u32, usr_ptr: u64) -> i32 {
    enter("TPPI_alloc_and_map");
    let Some(tag) = blocks::tag_from_c(acc) else {
        process::fail(format_args!("TPPI_alloc_and_map: {acc} is not a TPPI_BlkAccTag"));
    };
    let Some(page) = Page::new(mode, home, usr_ptr) else {
        process::fail(format_args!("TPPI_alloc_and_map: page mode {mode} is not below {PAGE_MODES}"));
    };
    PAGES.with(|pages| pages.map(pg, page, tag)).into()
}

extern "C" fn unmap_and_free(pg: u64) -> i32 {
    enter("TPPI_unmap_and_free");
    PAGES.with(|pages| pages.unmap(pg)).into()
}

extern "C" fn remap(old_pg: u64, new_pg: u64) -> i32 {
    enter("TPPI_remap");
    PAGES.with(|pages| pages.remap(old_pg, new_pg)).into()
}

extern "C" fn register_page_fault_handler(function: u64) {
    const NAME: &str = "TPPI_register_page_fault_handler";
    enter(NAME);
    let handler = optional_function(NAME, function);
    // SAFETY: entry of the rewritten code of a function that the program gave as a handler of page faults.
    let handler = handler.map(|entry| unsafe { core::mem::transmute::<u64, PageFaultHandler>(entry) });
    FAULTS.with(|faults| faults.set_page_handler(handler));
}

/// The entry of a function that may be null.
fn optional_function(name: &str, function: u64) -> Option<u64> {
    (function != 0).then(|| require_function(name, function))
}

extern "C" fn get_page_info(va: u64, info: *mut PageInfo) -> i32 {
    enter("TPPI_get_page_info");
    if !is_user(va) || !info.is_aligned() {
        return -1;
    }
    let Some(page) = PAGES.with(|pages| pages.get(va)) else { return 0 };
    if !info.is_null() {
        // SAFETY: the program's structure, aligned.
        unsafe { info.write(PageInfo { mode: page.mode.into(), home: page.home, usr_ptr: page.usr_ptr }) };
    }
    1
}

extern "C" fn fault_pc() -> u64 {
    enter("TPPI_fault_pc");
    if in_handler() { faults::access_pc() } else { 0 }
}

extern "C" fn get_blk_acc(va: u64) -> u32 {
    enter("TPPI_get_blk_acc");
    blocks::tag_to_c(blocks::tag(va & ((1 << 47) - 1)).unwrap_or(Tag::Invalid))
}

extern "C" fn change_blk_acc(va: u64, len: i32, change: u32) {
    const NAME: &str = "TPPI_change_blk_acc";
    enter(NAME);
    let change = blocks::require_change(NAME, change);
    blocks::change(NAME, table::require_block(NAME, va, len), change, settings().debug);
}

extern "C" fn change_blk_acc_and_copy(va: u64, len: i32, change: u32, from: u64) {
    const NAME: &str = "TPPI_change_blk_acc_and_copy";
    enter(NAME);
    let change = blocks::require_change(NAME, change);
    if table::is_coherent(from) {
        process::fail(format_args!("{NAME}: {from:#x} is memory of bz_alloc: copy it to private memory first"));
    }
    let spec = table::require_block(NAME, va, len);
    table::require_mapped(NAME, from, spec.bytes);
    // SAFETY: a mapped block, and the program's memory; `copy` of the compiler's kind, since they may overlap.
    unsafe { core::ptr::copy(runtime_address(from), runtime_address(spec.addr), spec.bytes as usize) };
    blocks::change(NAME, spec, change, settings().debug);
}

extern "C" fn register_blk_acc_fault_handler(mode: u32, tag: u32, acc: i32, function: u64) {
    const NAME: &str = "TPPI_register_blk_acc_fault_handler";
    enter(NAME);
    let Some(wanted) = blocks::tag_from_c(tag).filter(|_| (mode as usize) < PAGE_MODES && (acc == 0 || acc == 1))
    else {
        process::fail(format_args!("{NAME}: mode {mode}, tag {tag}, access {acc}: there is no such combination"));
    };
    let Some(case) = Case::of(wanted, acc == 1) else {
        process::fail(format_args!(
            "{NAME}: {} on a block that is {} never faults, so it can have no handler (Tempest 1.2.1, section 3.2.7)",
            if acc == 1 { "a store" } else { "a load" },
            blocks::TAGS[tag as usize].1
        ));
    };
    let handler = optional_function(NAME, function);
    // SAFETY: entry of the rewritten code of a function that the program gave as a handler of block access faults.
    let handler = handler.map(|entry| unsafe { core::mem::transmute::<u64, BlockFaultHandler>(entry) });
    FAULTS.with(|faults| faults.set_block_handler(mode as usize, case, handler));
}

extern "C" fn send(dest: u32, function: u64, items: *const SendItem, count: u32) {
    enter("TPPI_send");
    let items = if count == 0 {
        &[]
    } else if items.is_null() {
        process::fail(format_args!("TPPI_send: a null pointer to {count} items"));
    } else {
        // SAFETY: the client library passes an array of `count` items.
        unsafe { core::slice::from_raw_parts(items, count as usize) }
    };
    process::with_host("TPPI_send", |mut host| sending::send(&mut host, dest, function, items));
}

extern "C" fn recv_w() -> i32 {
    enter("TPPI_recv_W");
    arrived::recv_w()
}

extern "C" fn recv_ba(va: u64, len: i32, change: u32) {
    enter("TPPI_recv_Ba");
    arrived::recv_ba(va, len, change);
}

extern "C" fn recv_r(va: u64, len: i32) {
    enter("TPPI_recv_R");
    arrived::recv_r(va, len);
}

extern "C" fn set_channel_src(dest: u32, callback: u64) -> i32 {
    const NAME: &str = "TPPI_set_channel_src";
    enter(NAME);
    channels::set_source(require_node(NAME, dest), optional_function(NAME, callback).unwrap_or(0))
}

extern "C" fn set_channel_dst(src: u32, channel: i32, buffer: u64, bytes: i32, callback: u64, notify: i32) -> i32 {
    const NAME: &str = "TPPI_set_channel_dst";
    enter(NAME);
    let src = require_node(NAME, src);
    let callback = optional_function(NAME, callback).unwrap_or(0);
    process::with_host(NAME, |mut host| {
        transfer::set_destination(&mut host, src, channel, (buffer, bytes), callback, notify != 0);
    });
    1
}

/// Handles what has arrived, so that a loop around a question to a channel ends even without polls in it.
fn serve(function: &str) {
    if !in_handler() {
        process::with_host(function, |mut host| {
            if let CallHost::Node(node) = &mut host {
                node.serve();
            }
            events::run_events(&mut host, || false);
        });
    }
}

/// A node that knows that its data has arrived, by a barrier, may use its channel again. The destination has told it before; perhaps nothing has looked.
fn heed_arrival(function: &str, dest: NodeId, channel: i32) {
    if channels::is_sending(function, dest, channel) {
        serve(function);
    }
}

/// A question about a channel.
fn question(name: &str, other: u32, answer: impl Fn(NodeId) -> bool) -> i32 {
    enter(name);
    let other = require_node(name, other);
    if !answer(other) {
        serve(name);
    }
    answer(other).into()
}

extern "C" fn is_channel_estd(dest: u32, channel: i32) -> i32 {
    const NAME: &str = "TPPI_is_channel_estd";
    question(NAME, dest, |dest| channels::is_notified(NAME, dest, channel, false))
}

extern "C" fn is_channel_reset(dest: u32, channel: i32) -> i32 {
    const NAME: &str = "TPPI_is_channel_reset";
    question(NAME, dest, |dest| channels::is_notified(NAME, dest, channel, true))
}

extern "C" fn is_channel_ready(src: u32, channel: i32) -> i32 {
    question("TPPI_is_channel_ready", src, |src| channels::is_ready(src, channel))
}

extern "C" fn channel_send(dest: u32, channel: i32, buffer: u64, bytes: i32) {
    const NAME: &str = "TPPI_channel_send";
    enter(NAME);
    let dest = require_node(NAME, dest);
    heed_arrival(NAME, dest, channel);
    process::with_host(NAME, |mut host| transfer::send(&mut host, dest, channel, buffer, bytes));
}

extern "C" fn reset_channel(src: u32, channel: i32, notify: i32) {
    const NAME: &str = "TPPI_reset_channel";
    enter(NAME);
    let src = require_node(NAME, src);
    process::with_host(NAME, |mut host| transfer::reset(&mut host, src, channel, notify != 0));
}

extern "C" fn destroy_channel_src(dest: u32, channel: i32) {
    const NAME: &str = "TPPI_destroy_channel_src";
    enter(NAME);
    let dest = require_node(NAME, dest);
    heed_arrival(NAME, dest, channel);
    channels::destroy(ChannelEnd::Source, dest, channel);
}

extern "C" fn destroy_channel_dst(src: u32, channel: i32) {
    enter("TPPI_destroy_channel_dst");
    channels::destroy(ChannelEnd::Destination, require_node("TPPI_destroy_channel_dst", src), channel);
}

const fn end_of(end: i32) -> ChannelEnd {
    if end == 0 { ChannelEnd::Source } else { ChannelEnd::Destination }
}

extern "C" fn get_channel_user_ptr(other: u32, channel: i32, end: i32) -> u64 {
    let end = end_of(end);
    let name = match end {
        ChannelEnd::Source => "TPPI_get_src_channel_user_ptr",
        ChannelEnd::Destination => "TPPI_get_dst_channel_user_ptr",
    };
    enter(name);
    channels::user_ptr(name, end, require_node(name, other), channel, None)
}

extern "C" fn set_channel_user_ptr(other: u32, channel: i32, end: i32, user_ptr: u64) {
    let end = end_of(end);
    let name = match end {
        ChannelEnd::Source => "TPPI_set_src_channel_user_ptr",
        ChannelEnd::Destination => "TPPI_set_dst_channel_user_ptr",
    };
    enter(name);
    channels::user_ptr(name, end, require_node(name, other), channel, Some(user_ptr));
}

extern "C" fn schedule_timer(ticks: i32, function: u64, user_ptr: u64) {
    const NAME: &str = "TPPI_schedule_timer";
    enter(NAME);
    timers::schedule(ticks, require_function(NAME, function), user_ptr);
}

extern "C" fn resume_va(va: u64, len: i32) {
    enter("TPPI_resume_va");
    threads::resume(va, len);
}

extern "C" fn sleep(sem: *mut i32) {
    enter("TPPI_sleep");
    process::with_host("TPPI_sleep", |mut host| threads::sleep(&mut host, sem));
}

extern "C" fn wakeup(sem: *mut i32) {
    threads::wakeup(sem);
}

extern "C" fn atomic_incr(sem: *mut i32) {
    threads::increment(sem);
}
