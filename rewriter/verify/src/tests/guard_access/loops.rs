//! Copies of loops, whose tests stand in front: accepted, and with faults planted.

use crate::decode::effects::Flow;
use crate::decode::insn::{GS, NONE};
use crate::sites::symbolic::is_tag_test_at_alias;
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::compiled;
use crate::tests::guard_access::subject::Subject;

/// Loops of one block: what they access advances by constants, stays, or is an element of a table.
const LOOPS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static double smooth(double *to, const double *from, long n) {
    for (long i = 1; i < n - 1; i++) to[i] = 0.25 * (from[i - 1] + from[i + 1]) + 0.5 * from[i];
    return to[n / 2];
}
static int down(int *a, long n) { int sum = 0; for (long i = n - 1; i >= 0; i--) sum += a[i]; return sum; }
static void add(int *a, long n) { for (long i = 0; i < n; i++) a[i] += 3; }
static void histogram(const unsigned char *from, unsigned *count, long n) { for (long i = 0; i < n; i++) count[from[i]]++; }
int main(int argc, char **argv) {
    long n = 1000;
    double *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
    int *a = calloc(n, sizeof *a);
    unsigned *count = calloc(256, sizeof *count);
    add(a, n);
    histogram((unsigned char *)a, count, n);
    printf("%g %d %u\n", smooth(x, y, n), down(a, n), count[3]);
    return 0;
}
"#;

/// A string instruction that has not been learnt may fault in a loop whose store has been.
#[test]
fn loops_with_string_instructions_have_no_copies() {
    const LODSB: u8 = 0xac;
    let source = r#"
        #include <stdio.h>
        int main(int argc, char **argv) {
            static char to[100];
            const char *from = "of a hundred bytes or fewer, which are not all zero at the end, as one might think of these here, too";
            long k = 0, n = 90 + argc;
            __asm__ volatile("1: lodsb\n mov %%al, (%2,%1)\n inc %1\n cmp %3, %1\n jne 1b"
                             : "+S"(from), "+r"(k) : "r"(to), "r"(n) : "rax", "memory", "cc");
            return puts(to) < 0;
        }"#;
    let original = compiled("cc", "p.c", source, &["-O2"]);
    Subject::knowing(&original, |_, byte| byte != LODSB).expect("rewrite").accepted("lodsb");
}

/// Loops of plain code that has learnt lead into copies in which nothing is tested.
#[test]
fn judges_copies_of_loops() {
    for level in ["-O1", "-O3"] {
        Subject::learnt(&compiled("cc", "p.c", LOOPS, &[level]), 1).expect("rewrite").accepted(level);
    }
    let options = ["-O2", "-fno-inline", "-fno-tree-vectorize", "-fno-tree-loop-distribute-patterns"];
    let s = Subject::learnt(&compiled("cc", "p.c", LOOPS, &options), 1).expect("rewrite");
    s.accepted("-O2");
    let (mut prefixes, mut levels, mut further, mut branches, mut limits) = (vec![], vec![], vec![], vec![], vec![]);
    let mut strips = 0;
    s.view(|view| {
        for strip in view.v.plain.sites.list.iter().filter_map(|site| site.strip.as_deref()) {
            strips += 1;
            let copy = strip.copy.as_ref().expect("a copy");
            let copied = copy.blocks.iter().flat_map(|b| &view.cold.insns[b.clone()]);
            prefixes.extend(copied.filter(|i| i.mem.is_some_and(|m| m.seg == GS)).map(|i| (i.va, vec![0x3e])));
            let tests = view.v.plain.insn(strip.inner + 1).target;
            let tests = view.cold.at(tests).expect("tests")..copy.head;
            let mut tested = None;
            for i in &view.cold.insns[tests] {
                if is_tag_test_at_alias(i) {
                    let weaker = if i.imm as u8 == 0x80 { 0x40 } else { 0x30 };
                    levels.push((i.end() - 1, vec![weaker]));
                    further.push((i.end() - 5, vec![s.byte(i.end() - 5) + 1]));
                    tested = Some(i.end());
                } else if i.flow == Flow::Cond && tested == Some(i.va) {
                    // Not taken where it is.
                    branches.push((i.va + 1, vec![s.byte(i.va + 1) ^ 1]));
                } else if let (0x8d, Some(m)) = (i.op, i.mem)
                    && i.end() - i.va == 7
                    && (m.base, m.index) == (strip.counter, NONE)
                    && m.disp.unsigned_abs() > 127
                {
                    limits.push((i.va + 3, (2 * m.disp as i32).to_le_bytes().to_vec()));
                }
            }
        }
    });
    assert!(strips >= 4, "{strips}");
    s.finds_each(prefixes, "not an instruction of the loop");
    s.finds_each(levels, "neither checked nor tested|unexpected branch");
    s.finds_each(branches, "unexpected branch");
    let found = |change: &(u64, Vec<u8>)| {
        let audit = verify_with(&s.with(std::slice::from_ref(change)), "p", None).expect("audit runs");
        !audit.is_clean()
    };
    // The test that ends with a table may go on behind it, as the one in front reaches to a block before its end.
    let not_found = further.iter().filter(|change| !found(change)).count();
    assert!(further.len() > 10 && not_found <= 1, "{not_found} of {}", further.len());
    // What differs from the limit of the loop's own way is found.
    assert!(limits.len() >= strips && limits.iter().all(found), "{limits:x?}");
}
