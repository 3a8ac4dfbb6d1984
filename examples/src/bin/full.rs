//! What a program gets when the shared memory is full: an error that it can handle.
//!
//! `cargo build --release -p blizzard-examples --bin full && blizzard run -n 2 --segment-gib 1 -- target/release/full`

use blizzard_shm::{Attributes, Shared, alloc, alloc_on, alloc_with, barrier, node};
use std::sync::atomic::AtomicU64;

/// 2^50 bytes.
const MUCH: usize = 1 << 47;
/// 16 MiB.
const PIECE: usize = 1 << 21;

fn main() {
    if node() == 0 {
        for refused in [
            alloc::<AtomicU64>(MUCH),
            alloc_on::<AtomicU64>(0, MUCH),
            alloc_with::<AtomicU64>(MUCH, Attributes::default()),
        ] {
            println!("{}", refused.map_or_else(|error| error.to_string(), |_| "got it".to_owned()));
        }
        fill();
    }
    barrier();
}

/// Allocates until there is no room, gives one piece back and gets it again.
fn fill() {
    let mut pieces: Vec<Shared<AtomicU64>> = Vec::new();
    let error = loop {
        match alloc(PIECE) {
            Ok(piece) => pieces.push(piece),
            Err(error) => break error,
        }
    };
    let number = if pieces.len() >= 16 { "at least 16" } else { "few" };
    println!("{error} after {number} pieces");
    let last = pieces.pop().expect("a piece");
    let address = last.as_ptr();
    // SAFETY: nobody else knows it.
    unsafe { last.free() };
    let again = alloc::<AtomicU64>(PIECE).map(|piece| piece.as_ptr());
    println!("{}", if again == Ok(address) { "again" } else { "lost" });
}
