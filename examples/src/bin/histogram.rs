//! Counts how often each byte value occurs in a file; all nodes count into one shared histogram.
//!
//! Nodes take pieces of the file from a shared counter, so a fast node takes more. Build and run, in this folder:
//!
//! ```text
//! cargo build --release --bin histogram && blizzard run -n 4 -- ../target/release/histogram ../Cargo.lock
//! ```
//!
//! The answer is the same on any number of nodes, and for the program by itself.

use blizzard_shm as bz;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

const PIECE_BYTES: u64 = 4096;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: histogram FILE");
        return ExitCode::from(2);
    };
    match count(path.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("histogram: {}: {e}", path.display());
            ExitCode::FAILURE
        }
    }
}

fn count(path: &std::path::Path) -> std::io::Result<()> {
    let histogram: bz::Shared<AtomicU64> = bz::share(0, || bz::alloc(256).expect("2 KiB of shared memory"));
    let next_piece: bz::Shared<AtomicU64> = bz::share(1, || bz::alloc(1).expect("a word of shared memory"));
    let file = File::open(path)?;
    let pieces = file.metadata()?.len().div_ceil(PIECE_BYTES);

    // The file is read into private memory: the kernel does not look at tags.
    let mut piece = [0u8; PIECE_BYTES as usize];
    loop {
        let number = bz::fetch_add_u64(&next_piece[0], 1);
        if number >= pieces {
            break;
        }
        let mut filled = 0;
        while filled < piece.len() {
            match file.read_at(&mut piece[filled..], number * PIECE_BYTES + filled as u64)? {
                0 => break,
                n => filled += n,
            }
        }
        for &byte in &piece[..filled] {
            histogram[usize::from(byte)].fetch_add(1, Ordering::Relaxed);
        }
    }
    bz::barrier();

    if bz::node() == 0 {
        let mut counts: Vec<(u64, usize)> =
            (0..256).map(|byte| (histogram[byte].load(Ordering::Relaxed), byte)).filter(|&(n, _)| n > 0).collect();
        counts.sort_by_key(|&(n, byte)| (std::cmp::Reverse(n), byte));
        let total: u64 = counts.iter().map(|&(n, _)| n).sum();
        println!("{total} bytes, {} different; the most frequent:", counts.len());
        for (n, byte) in counts.iter().take(5) {
            println!("  {:<6} {n}", format!("{:?}", char::from(*byte as u8)));
        }
    }
    Ok(())
}
