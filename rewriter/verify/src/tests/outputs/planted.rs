//! Faults planted at random into rewritten programs: every changed byte of inserted code is found, or changes nothing.

use crate::mutation::code::{Decoded, decoded, harmless};
use crate::sites::site;
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::{Numbers, PLANTED_PROGRAM, compiled};
use blizzard::base::options::Options;
use blizzard::pipeline;

fn rewritten(level: &str, count: bool) -> (Vec<u8>, Vec<u8>) {
    let bytes = compiled("cc", "p.c", PLANTED_PROGRAM, &[level]);
    let output = pipeline::rewrite(&bytes, "p", &Options { count, ..Options::tests() }).expect("rewrite").bytes;
    (bytes, output)
}

/// File offsets of the bytes of inserted instructions, hot and cold, with the address of the instruction.
fn inserted_bytes(file: &[u8]) -> Vec<(usize, u64)> {
    let Decoded { m, text, cold, sites } = decoded(file);
    let offset = |data: &[u8], k: usize| data.as_ptr() as usize - file.as_ptr() as usize + k;
    let mut all = Vec::new();
    for (code, data, map) in [(&text, m.text.data, &sites.inserted), (&cold, m.cold.data, &sites.claimed)] {
        for (k, i) in code.insns.iter().enumerate() {
            if site::get(map, k) && !i.is_nop() {
                let at = (i.va - code.base) as usize;
                all.extend((at..at + usize::from(i.len)).map(|b| (offset(data, b), i.va)));
            }
        }
    }
    all
}

#[test]
fn finds_bytes_changed_at_random_in_rewritten_programs() {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    for (level, count) in [("-O0", false), ("-O2", false), ("-O3", true)] {
        let (original, file) = rewritten(level, count);
        let audit = verify_with(&file, level, Some(&original)).expect("audit runs");
        assert!(audit.is_clean(), "{audit}");
        let bytes = inserted_bytes(&file);
        assert!(bytes.len() > 1000, "only {} inserted bytes at {level}", bytes.len());
        let (mut unexplained, mut equal) = (Vec::new(), 0);
        for _ in 0..1500 {
            let (at, va) = bytes[numbers.next(bytes.len())];
            let mut mutant = file.clone();
            mutant[at] = mutant[at].wrapping_add(1 + numbers.next(255) as u8);
            let found = verify_with(&mutant, level, Some(&original)).map_or(true, |a| !a.is_clean());
            if found {
                continue;
            }
            if harmless(&file, &mutant, va).is_some() {
                equal += 1;
            } else {
                unexplained.push(format!("{va:#x}, byte {at:#x}: {:#x} became {:#x}", file[at], mutant[at]));
            }
        }
        assert!(equal < 30, "{level}: {equal} changes that the test takes for harmless");
        assert!(unexplained.is_empty(), "{level}: {} not found:\n{}", unexplained.len(), unexplained.join("\n"));
    }
}
