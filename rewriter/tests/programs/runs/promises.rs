//! `blizzard run --debug-protocols`: accesses against the promise of their memory's protocol.

use crate::sources::{SharedProgram, finished};
use std::fs;

blizzard_test_harness::module! {
    accesses_against_a_promise_end_the_run_with_both_lines,
    what_keeps_the_promise_is_not_reported,
    what_the_option_does_not_go_with_is_refused,
}

const PROGRAM: &str = r#"
#include <blizzard.h>
#include <stdio.h>
#include <string.h>
enum { WORDS = 1024 };
static unsigned me;
static bz_counter_t *told;
static volatile unsigned long all_bytes = WORDS * 8;
static void *of_update(unsigned slot, uint32_t block_bytes) {
    bz_attr_t update = {.block_bytes = block_bytes, .homes = BZ_HOMES_NODE, .node = 0, .protocol = BZ_PROTOCOL_UPDATE};
    if (me == 0) bz_publish(slot, bz_alloc_with(&update, WORDS * 8)); // made
    return bz_lookup(slot);
}
/* Counters flush nothing. */
static void tell(void) { bz_counter_op(told, BZ_ADD, 1, 0); }
static void await(uint64_t times) { while (bz_counter_op(told, BZ_ADD, 0, 0) < times) {} }
__attribute__((noinline)) static void fill(volatile uint64_t *at, uint64_t value) {
    *at = value; // stored
}
__attribute__((noinline)) static uint64_t use(volatile uint64_t *at) {
    return *at; // loaded
}
__attribute__((noinline)) static void fill_bytes(volatile char *at) {
    at[3] = 1; // stored bytes
}
__attribute__((noinline)) static void copy(void *to, const void *from, long bytes) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory"); // copied
}
__attribute__((noinline)) static uint64_t sum(volatile uint64_t *at) {
    uint64_t all = 0;
    for (unsigned w = 0; w < WORDS; w++) all += at[w]; // summed
    return all;
}
static void broken(const char *how, uint64_t *at) {
    uint64_t own[WORDS] = {1};
    volatile uint64_t seen = 0;
    if (me == 0) seen += use(&at[100]) + use(&at[101]);
    if (me == 1) seen += use(&at[100]);
    bz_barrier();
    /* The home stores first, or node 1 does. */
    const int is_first = me == (strcmp(how, "guest") ? 0 : 1);
    if (me < 2 && is_first) {
        if (!strcmp(how, "string")) copy(&at[90], own, 11 * 8);
        else fill(&at[100], 7);
        tell();
    } else if (me < 2) {
        await(1);
        if (!strcmp(how, "store") || !strcmp(how, "guest")) fill_bytes((char *)&at[100]);
        else if (!strcmp(how, "loop")) seen += sum(at);
        else if (!strcmp(how, "library")) memcpy(own, at, all_bytes); // copied by the library
        else seen += use(&at[100]);
        tell();
    }
    await(2);
    bz_barrier();
}
static void kept(uint64_t *at, bz_lock_t *lock) {
    uint64_t own[WORDS] = {1}, sums = 0;
    char *bytes = (char *)at;
    unsigned nodes = bz_nodes();
    uint64_t *coherent = 0;
    if (me == 0) bz_publish(9, bz_alloc(WORDS * 8));
    coherent = bz_lookup(9);
    for (unsigned round = 0; round < 4; round++) {
        /* Each its own words of the same blocks, its own bytes of the same words, and what it has stored itself. */
        for (unsigned w = 0; w < 96; w++) {
            if (w % nodes == me) fill(&at[w], round), sums += use(&at[w]);
            bytes[8 * 100 + 3 * w + me] = round;
        }
        bz_barrier();
        sums += sum(at) + (memcpy(own, at, sizeof own), own[0]);
        bz_barrier();
        /* One after the other. */
        for (unsigned n = 0; n < nodes; n++) {
            __atomic_fetch_add(&at[300], 1, __ATOMIC_SEQ_CST), __atomic_exchange_n(&at[301], me, __ATOMIC_SEQ_CST);
            if (n == me) fill(&at[200], round), n % 2 ? bz_flush() : (bz_lock(lock), bz_unlock(lock)), tell();
            await(round * (nodes + 1) + n + 1);
            sums += use(&at[200]);
            bz_barrier();
        }
        /* Stores of nodes other than the home are seen at once. */
        if (me == nodes - 1) {
            if (me) fill(&at[201], round + 1);
            tell();
        }
        await((round + 1) * (nodes + 1));
        if (use(&at[201]) != (nodes > 1 ? round + 1 : 0)) puts("lost");
        bz_barrier();
        /* Other protocols promise more. */
        coherent[5] = me;
        sums += coherent[5] + use(&coherent[me]);
        /* Memory that is used again belongs to nobody. */
        uint64_t *again = 0;
        bz_attr_t update = {.homes = BZ_HOMES_NODE, .node = 0, .protocol = BZ_PROTOCOL_UPDATE};
        bz_lock(lock);
        again = bz_alloc_with(&update, 64);
        bz_unlock(lock);
        fill(again, me);
        bz_free(again);
    }
    bz_barrier();
    if (me == 0) puts(sums && use(&at[300]) == 4 * nodes * nodes ? "kept" : "lost");
}
int main(int argc, char **argv) {
    me = bz_node();
    if (me == 0) bz_publish(1, bz_counter_new(0)), bz_publish(2, bz_lock_new());
    told = bz_lookup(1);
    bz_lock_t *lock = bz_lookup(2);
    uint64_t *small = of_update(3, 64), *large = of_update(4, 4096);
    if (!strcmp(argv[argc - 1], "kept")) kept(small, lock);
    else broken(argv[argc - 1], argc > 2 ? large : small);
    return 0;
}
"#;

fn accesses_against_a_promise_end_the_run_with_both_lines() {
    let program = SharedProgram::new(PROGRAM.trim_start(), &[]);
    let source = fs::read_to_string(program.folder.path().join("prog.c")).unwrap();
    let place = |function: &str, comment: &str| {
        let line = source.lines().position(|line| line.ends_with(&format!("// {comment}"))).unwrap() + 1;
        format!("{function} (prog.c:{line})")
    };
    let (stored, loaded) = (place("fill", "stored"), place("use", "loaded"));
    let copied = place("copy", "copied");
    // What the node does that meets the store; and where, and where the store is.
    let cases = [
        ("load", 1, "loads", &loaded, &stored),
        ("store", 1, "stores to", &place("fill_bytes", "stored bytes"), &stored),
        ("string", 1, "loads", &loaded, &copied),
        ("loop", 1, "loads", &place("sum", "summed"), &stored),
        ("guest", 0, "stores to", &place("fill_bytes", "stored bytes"), &stored),
        ("library", 1, "loads", &place("broken", "copied by the library"), &stored),
    ];
    let made = place("of_update", "made");
    for (nodes, access) in [("2", "tests"), ("3", "tests"), ("2", "guard"), ("3", "guard")] {
        for (how, node, does, at, storer) in cases {
            let (out, err, status) = program.run(&["-n", nodes, "--access", access, "--debug-protocols"], how);
            assert_eq!((out.as_str(), status), ("", 1), "{how}, {nodes} nodes, {access}: {err}");
            let other = 1 - node;
            let says = [
                format!("blizzard: error: node {node}: it {does} 0x20"),
                format!("which node {other} has stored to and not flushed: memory with the protocol `update` "),
                " bytes into an allocation of up to 8192 bytes at 0x20".to_owned(),
                made.clone(),
                format!("node {other} stored at {storer}\n"),
                format!("{at}\n"),
            ];
            let mut rest = err.as_str();
            for part in &says {
                let found = rest.find(part.as_str());
                rest = &rest[found.unwrap_or_else(|| panic!("{how}, {nodes} nodes, {access}: no {part:?}: {err}"))..];
            }
            assert_eq!(err.matches("error:").count(), 1, "{err}");
        }
    }
}

fn what_keeps_the_promise_is_not_reported() {
    let program = SharedProgram::new(PROGRAM.trim_start(), &[]);
    for (nodes, access) in [("1", "tests"), ("2", "tests"), ("3", "tests"), ("2", "guard"), ("3", "guard")] {
        let seen = program.run(&["-n", nodes, "--access", access, "--debug-protocols"], "kept");
        assert_eq!(seen, ("kept\n".to_owned(), String::new(), 0), "{nodes} nodes, {access}");
    }
    // Nobody looks without the option.
    assert_eq!(program.run(&["-n", "2"], "load"), (String::new(), String::new(), 0));
}

fn what_the_option_does_not_go_with_is_refused() {
    let program = SharedProgram::new(PROGRAM.trim_start(), &[]);
    let (_, err, status) = finished(program.blizzard().args(["rewrite", "prog"]).output().unwrap());
    assert_eq!(status, 0, "{err}");
    for (options, name, status, says) in [
        (&["run", "-n", "2"][..], "./prog.blz", 1, "has been rewritten already, with another choice of passes"),
        (&["run", "--hosts", "a:1,b:1"], "./prog", 2, "the nodes write down what they store in memory of one host"),
        (&["learn", "-n", "2"], "./prog", 1, "such a run learns nothing"),
    ] {
        let mut command = program.blizzard();
        command.args(options).arg("--debug-protocols").args(["--", name, "kept"]);
        let (out, err, ended) = finished(command.output().unwrap());
        assert_eq!((out.as_str(), ended), ("", status), "{err}");
        assert!(err.contains(says), "{err}");
    }
}
