//! Damaged files. Input: bytes from a fuzzer. Output: none; the target fails by a panic, by not ending, or by memory beyond the
//! limit that the caller has set (libFuzzer's `-rss_limit_mb`, RLIMIT_AS in the smoke run).

use blizzard::base::options::{Checks, Options, Poll};
use blizzard::pipeline;
use blizzard::read::elf;
use blizzard::read::image::ProgramKind;

/// Files above this size teach the fuzzer nothing that smaller ones do not.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// Any bytes as the input of a rewrite: rewritten or refused, both ways of rewriting.
pub fn rewrite(data: &[u8]) {
    if data.len() > MAX_FILE_BYTES {
        return;
    }
    let null = Options { checks: Checks::None, poll: Poll::None, ..Options::default() };
    let library = elf::read(data, "fuzzed").is_ok_and(|image| image.kind == ProgramKind::Library);
    for options in [null, Options::default()] {
        // Refusing is right for most inputs; which are refused is not this target's question.
        let _ = if library {
            pipeline::rewrite_library(data, "fuzzed", &options)
        } else {
            pipeline::rewrite(data, "fuzzed", &options)
        };
    }
}

/// A number below `below`: SplitMix64.
pub fn random(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % below as u64) as usize
}

/// Damages a file: `next` gives random numbers below its argument. Headers and tables, which the loader believes, are hit
/// more often than code.
pub fn damage(bytes: &mut Vec<u8>, mut next: impl FnMut(usize) -> usize) {
    const NASTY: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX];
    for _ in 0..1 + next(6) {
        if bytes.len() < 128 {
            return;
        }
        let at = match next(4) {
            0 => next(bytes.len().min(1024)),
            1 => bytes.len() - 1 - next(bytes.len().min(3000)),
            _ => next(bytes.len()),
        };
        match next(8) {
            0 => bytes.truncate(at.max(64)),
            1..=3 => {
                let width = [1, 2, 4, 8][next(4)];
                let value = NASTY[next(8)].to_le_bytes();
                let stop = (at + width).min(bytes.len());
                bytes[at..stop].copy_from_slice(&value[..stop - at]);
            }
            _ => bytes[at] = next(256) as u8,
        }
    }
}
