//! Pages that are fetched block by block from their home: a protocol of a program's own, in Rust, on `blizzard_shm::tempest`.
//!
//! Node 0 fills a page for each node; the others read all of them, and faults fetch what they touch. Then every node sends its sums to node 0
//! through a bulk channel. Prints the sums, which do not depend on the number of nodes that read.
//!
//! `cargo build --release && blizzard run -n 4 target/release/home_pages`

use blizzard_shm as bz;
use bz::tempest::{self as tp, Change, ChannelDestination, ChannelSource, Fault, Message, Page, Semaphore, Tag};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

const PAGES: u32 = 4;
const FETCHED: u32 = 2;
const WORDS: usize = tp::PAGE_BYTES / 4;

static FAULTS: AtomicU32 = AtomicU32::new(0);
static TICKS: AtomicU32 = AtomicU32::new(0);
static TIMER: Semaphore = Semaphore::new();
static CHANNELS: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

/// A page of node 0 is mapped here with nothing in it.
extern "C" fn page_fault(va: *mut c_void, _pc: c_int, is_write: c_int) {
    assert_eq!(is_write, 0);
    let (page, block) = tp::block_of(va);
    assert!(page.map(FETCHED, Tag::Invalid, 0, page.number() as usize));
    page.resume(block);
}

extern "C" fn read_fault(va: *mut c_void, user: *mut c_void, home: c_uint) {
    FAULTS.fetch_add(1, Ordering::Relaxed);
    let (page, block) = tp::block_of(va);
    assert_eq!(user as usize, page.number() as usize);
    page.change(block, Change::InvalidToBusy);
    Message::new().word(page.number() as i32).word(block as i32).send(home, wanted);
}

/// At the home: the answer begins with the two words of the request.
extern "C" fn wanted(src: c_uint, size: c_int) {
    assert_eq!(size, 8);
    let (page, block) = (tp::recv_word(), tp::recv_word());
    let home = Page::new(page as u32);
    Message::new().word(page).word(block).block(home, block as usize, Change::NoTagChange).send(src, arrived);
}

extern "C" fn arrived(_src: c_uint, size: c_int) {
    assert_eq!(size as usize, 8 + tp::BLOCK_BYTES);
    let (page, block) = (Page::new(tp::recv_word() as u32), tp::recv_word() as usize);
    page.recv_block(block, Change::ValidateRo);
    page.resume(block);
}

extern "C" fn tick(user: *mut c_void) {
    TICKS.fetch_add(user as usize as u32, Ordering::Relaxed);
    TIMER.wakeup();
}

extern "C" fn channel(src: c_uint, _size: c_int) {
    let mut number = [0; 2];
    tp::recv_words(&mut number);
    assert_eq!(number[1], -7);
    CHANNELS[src as usize].store(number[0], Ordering::Release);
}

fn main() {
    let (me, nodes) = (tp::self_address(), tp::num_nodes());
    assert_eq!((me, nodes), (bz::node(), bz::nodes()));
    tp::on_page_fault(page_fault);
    tp::on_block_fault(FETCHED, Fault::InvalidRead, read_fault);
    if me == 0 {
        for number in 0..PAGES {
            let page = Page::new(number);
            assert!(page.map(FETCHED, Tag::Writable, 0, number as usize));
            (0..WORDS).for_each(|i| page.set(i, (i as u32).wrapping_mul(2654435761 + number)));
            assert_eq!(page.info(), (FETCHED, 0, number as usize));
            assert!(!page.map(FETCHED, Tag::Writable, 0, 0), "it is mapped already");
        }
    }
    bz::barrier();

    // Reads fault elsewhere: on the page, and on each of its blocks.
    let sum = |page: Page| (0..WORDS).map(|i| page.get::<u32>(i)).fold(0u32, u32::wrapping_add) as i32;
    let sums: Vec<i32> = (0..PAGES)
        .map(|number| {
            let page = Page::new(number);
            assert_eq!(page.is_mapped(), me == 0);
            sum(page)
        })
        .collect();
    let expected = if me == 0 { 0 } else { PAGES * (tp::PAGE_BYTES / tp::BLOCK_BYTES) as u32 };
    assert_eq!(FAULTS.load(Ordering::Relaxed), expected, "one fault for each block of another node");
    assert_eq!(Page::new(1).tag(5), if me == 0 { Tag::Writable } else { Tag::ReadOnly });

    // A timer wakes the program up.
    tp::schedule_timer(500, tick, 3);
    TIMER.sleep();
    assert_eq!(TICKS.load(Ordering::Relaxed), 3);

    // The sums go to node 0 in bulk.
    let source = ChannelSource::new(0, None);
    Message::new().words(&[source.number(), -7]).send(0, channel);
    let mut ends: Vec<ChannelDestination> = Vec::new();
    if me == 0 {
        for from in 0..nodes {
            while CHANNELS[from as usize].load(Ordering::Acquire) < 0 {
                std::thread::yield_now();
            }
            let number = CHANNELS[from as usize].load(Ordering::Acquire);
            ends.push(ChannelDestination::new(from, number, PAGES as usize, None));
        }
    }
    while !source.is_established() {
        std::thread::yield_now();
    }
    source.send(Vec::leak(sums.clone()));
    for end in &mut ends {
        while end.ready().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(end.ready(), Some(&sums[..]), "every node has read the same");
        end.reset();
    }
    while !source.is_reset() {
        std::thread::yield_now();
    }
    source.destroy();
    ends.into_iter().for_each(ChannelDestination::destroy);
    bz::barrier();
    if me == 0 {
        println!("{sums:?}");
    }
}
