//! Faults planted at random into rewritten programs: every changed byte of inserted code is found, or changes nothing.

use super::super::{decode, module::Module, sites, verify};
use crate::options::Options;
use crate::pipeline;
use std::process::Command;

/// A program with stores, loads, flags across accesses, switches, string and vector code.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { int a; long b; char c[20]; double d; struct node *next; };
static int pick(int x, struct node *p) {
    switch (x) {
    case 0: return p->a;
    case 1: return (int)p->b;
    case 2: return p->c[3];
    case 3: p->a++; return 3;
    case 4: return p->next ? p->next->a : 4;
    case 5: return 7;
    case 6: p->b = 3; return 1;
    }
    return 0;
}
__attribute__((noinline)) static unsigned long mix(unsigned long *v, int n) {
    unsigned long h = 0;
    for (int i = 0; i < n; i++) {
        unsigned char carry = __builtin_add_overflow(h, v[i], &h);
        v[i] ^= h;
        h += carry;
    }
    return h;
}
int main(int argc, char **argv) {
    struct node *list = 0;
    for (int i = 0; i < 100; i++) {
        struct node *q = malloc(sizeof *q);
        memset(q, i, sizeof *q);
        q->next = list;
        q->a = i;
        q->d = i * 0.5;
        list = q;
        list->b += pick(i % 8, list);
    }
    unsigned long v[32], total = 0;
    memcpy(v, list, sizeof *list);
    for (struct node *q = list; q; q = q->next) total += q->a * q->b + (long)q->d;
    printf("%lu %lu %d\n", total, mix(v, 8), argc + (argv[0] != 0));
    return 0;
}
"#;

/// A generator of numbers that is the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

fn rewritten(level: &str, count: bool) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::write(dir.path().join("p.c"), SOURCE).expect("write source");
    let out =
        Command::new("cc").current_dir(dir.path()).args([level, "-o", "p", "p.c"]).output().expect("cc is installed");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let bytes = std::fs::read(dir.path().join("p")).expect("read program");
    pipeline::rewrite(&bytes, "p", &Options { count, ..Options::default() }).expect("rewrite").bytes
}

/// File offsets of the bytes of inserted instructions, hot and cold, with the address of the instruction.
fn inserted_bytes(file: &[u8]) -> Vec<(usize, u64)> {
    let m = Module::read(file, "p").expect("read module");
    let text = decode::decode(m.text.data, m.text.va, &[]);
    let cold = decode::decode(m.cold.data, m.cold.va, &[]);
    let cx = sites::Context { text: &text, cold: &cold, check_loads: true, check_stores: true, rodata: &|_| None };
    let sites = sites::find(&cx);
    let offset = |data: &[u8], k: usize| data.as_ptr() as usize - file.as_ptr() as usize + k;
    let mut all = Vec::new();
    for (code, data, map) in [(&text, m.text.data, &sites.inserted), (&cold, m.cold.data, &sites.claimed)] {
        for (k, i) in code.insns.iter().enumerate() {
            if sites::get(map, k) && !i.is_nop() {
                let at = (i.va - code.base) as usize;
                all.extend((at..at + usize::from(i.len)).map(|b| (offset(data, b), i.va)));
            }
        }
    }
    all
}

/// Why a change that the audit accepts changes nothing that matters.
fn harmless(file: &[u8], mutant: &[u8], va: u64) -> Option<&'static str> {
    let insn = |file: &[u8]| {
        let m = Module::read(file, "p").ok()?;
        let s = if va >= m.cold.va { &m.cold } else { &m.text };
        let at = (va - s.va) as usize;
        decode::decode(&s.data[at..(at + 15).min(s.data.len())], va, &[]).insns.first().copied()
    };
    let (a, b) = (insn(file)?, insn(mutant)?);
    if a.len != b.len {
        return None;
    }
    if a.op == 0xff && a.ext == 0 {
        return Some("the count in front of a poll: what it became is an access of its own, to no shared memory");
    }
    let same = a.op == b.op && a.ext == b.ext && a.mem == b.mem && (a.r0, a.r1, a.imm) == (b.r0, b.r1, b.imm);
    if same && a.target == b.target {
        return Some("the same instruction in another encoding");
    }
    // `mov s, base` and `lea s, [base]`, `mov` in both directions, and hints on branches are the same, too.
    if a.flow == b.flow && matches!((a.op, b.op), (0x89 | 0x8b, 0x89 | 0x8b)) && a.r0 == b.r0 && a.r1 == b.r1 {
        return Some("the same move");
    }
    // Two jumps to the same gate-checked place: to repeat the check or to go on to the access is both right.
    if a.op == 0xe9 && b.op == 0xe9 {
        return Some("back to the access instead of to its check");
    }
    None
}

#[test]
fn finds_bytes_changed_at_random_in_rewritten_programs() {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    for (level, count) in [("-O0", false), ("-O2", false), ("-O3", true)] {
        let file = rewritten(level, count);
        let audit = verify(&file, level).expect("audit runs");
        assert!(audit.is_clean(), "{audit}");
        let bytes = inserted_bytes(&file);
        assert!(bytes.len() > 1000, "only {} inserted bytes at {level}", bytes.len());
        let (mut unexplained, mut equal) = (Vec::new(), 0);
        for _ in 0..1500 {
            let (at, va) = bytes[numbers.next(bytes.len())];
            let mut mutant = file.clone();
            mutant[at] = mutant[at].wrapping_add(1 + numbers.next(255) as u8);
            let found = verify(&mutant, level).map_or(true, |a| !a.is_clean());
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
