//! Guarded code learns which accesses touch shared memory: from the first to the third run, on purpose, and from a file.

use blizzard_tests::compile::{Job, Language, compile};
use blizzard_tests::run::{Ending, LIMIT, Outcome, run};
use blizzard_tests::tool;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Functions that are called often and touch shared memory, one that does so in its second half only, and a string instruction.
const SOURCE: &str = r#"
#include <blizzard.h>
#include <stdio.h>
#include <string.h>
struct item { long a; int b; short c; char d[50]; struct item *next; };
enum { ITEMS = 64, ROUNDS = 50 };
__attribute__((noinline)) static void fill(struct item *i, long v) { i->a += v; i->b ^= (int)v; i->c = (short)v; }
__attribute__((noinline)) static long sum(struct item *i) { long s = 0; for (; i; i = i->next) s += i->a + i->b + i->c + i->d[7]; return s; }
__attribute__((noinline)) static void copy(char *to, const char *from, long n) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}
__attribute__((noinline)) static long late(struct item *i, int round) { return round < 10 ? round : i->a; }
__attribute__((noinline)) static long quiet(long *p) { long s = 0; for (int k = 0; k < 100; k++) s += p[k]++; return s; }
int main(void) {
    static long own[100];
    if (bz_node() == 0) {
        struct item *list = 0, *all = bz_alloc(ITEMS * sizeof *all);
        for (int k = 0; k < ITEMS; k++) { all[k].next = list; list = &all[k]; }
        bz_publish(0, all);
        bz_publish(1, list);
    }
    struct item *all = bz_lookup(0), *list = bz_lookup(1), private = { 0 };
    long total = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (unsigned k = bz_node(); k < ITEMS; k += bz_nodes()) {
            fill(&all[k], round + (long)k);
            copy(all[k].d, "0123456789", 10);
            fill(&private, round);
        }
        bz_barrier();
        total += sum(list) + late(list, round) + quiet(own) + private.a % 2;
        bz_barrier();
    }
    if (bz_node() == 0) printf("%ld\n", sum(list) + (total != 0));
    return 0;
}
"#;

/// A program, and a cache of its own.
struct Learner {
    folder: TempDir,
    program: PathBuf,
}

impl Learner {
    fn new(source: &str) -> Learner {
        let folder = tempfile::tempdir().unwrap();
        let (file, program) = (folder.path().join("learner.c"), folder.path().join("learner"));
        fs::write(&file, source).unwrap();
        let mut flags = tool::config("--cflags").unwrap();
        flags.extend(["-O1".into(), "-g".into()]);
        let libraries = tool::config("--libs").unwrap();
        compile(&Job {
            sources: vec![file],
            language: Language::C,
            compiler: "cc",
            flags,
            libraries,
            output: &program,
        })
        .unwrap();
        Learner { folder, program }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn blizzard(&self, words: &[&str]) -> Outcome {
        let mut command = tool::blizzard(words);
        command.env("BLIZZARD_CACHE", self.at("cache"));
        run(&mut command, "", LIMIT).unwrap()
    }

    fn program(&self) -> &str {
        self.program.to_str().unwrap()
    }

    /// Runs it on two nodes; what it prints, and how many faults it took.
    fn run(&self, more: &[&str]) -> (String, u64) {
        let stats = self.at("stats.json");
        let words = ["run", "-n", "2", "--access", "guard", "--no-libraries", "--stats", stats.to_str().unwrap()];
        let outcome = self.blizzard(&[&words, more, &["--", self.program()]].concat()).success().unwrap();
        (outcome.stdout_text(), faults(&stats))
    }
}

fn faults(stats: &Path) -> u64 {
    total(stats, "untested_accesses")
}

fn total(stats: &Path, counter: &str) -> u64 {
    let stats: serde_json::Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
    stats["totals"][counter].as_u64().unwrap()
}

#[test]
fn faults_fall_from_the_first_to_the_third_run() {
    let learner = Learner::new(SOURCE);
    let runs = [learner.run(&[]), learner.run(&[]), learner.run(&[])];
    assert!(runs.iter().all(|run| run.0 == runs[0].0), "{runs:?}");
    let faults = runs.map(|run| run.1);
    assert!(faults[0] > 12, "{faults:?}");
    // `late`, and what a node touched only when it was its own, may be learnt later.
    assert!(faults[1] <= faults[0] / 2 && faults[2] <= faults[0] / 4, "{faults:?}");
    println!("{faults:?}");
    // Nothing is used, and nothing kept.
    let unlearnt = learner.run(&["--no-learn"]);
    assert!(unlearnt.0 == learner.run(&[]).0 && unlearnt.1 > 6, "{unlearnt:?}");
}

/// A function that works with private memory in each of its loops, and now and then with shared memory. It ends when it has computed for two seconds.
const MIXED: &str = r#"
#include <blizzard.h>
#include <stdio.h>
#include <time.h>
enum { WORDS = 4096 };
#define LOOP(n) for (long k = 0; k < WORDS; k++) { own[k] += k * n; if (own[k] % 97 == n) all[16 * n + (k & 7)] ^= own[k]; }
static volatile long own[WORDS];
int main(void) {
    volatile long *all = 0;
    if (bz_node() == 0) all = bz_alloc(16 * 16 * sizeof *all);
    bz_broadcast(0, &all, sizeof all);
    long rounds = 0;
    if (bz_node() == 0)
        for (clock_t end = clock() + 2 * CLOCKS_PER_SEC; clock() < end; rounds++) {
            LOOP(0) LOOP(1) LOOP(2) LOOP(3) LOOP(4) LOOP(5) LOOP(6) LOOP(7)
            LOOP(8) LOOP(9) LOOP(10) LOOP(11) LOOP(12) LOOP(13) LOOP(14) LOOP(15)
        }
    bz_barrier();
    if (bz_node() == 0) printf("%d\n", rounds > 0);
    return 0;
}
"#;

#[test]
fn what_one_function_touches_is_learnt_in_the_first_run() {
    let learner = Learner::new(MIXED);
    // Each loop loads from shared memory and stores there.
    let runs = [learner.run(&[]), learner.run(&[])];
    assert!(runs.iter().all(|run| run.0 == "1\n"), "{runs:?}");
    assert!(runs[0].1 > 14 && runs[1].1 < 8, "{runs:?}");
}

/// Code of many kinds that touches private and shared memory by turns. It lets itself go on in plain code at each poll, as the launcher does now and then.
const BACK: &str = r#"
#include <blizzard.h>
#include <stdio.h>
#include <string.h>
enum { WORDS = 256, ROUNDS = 300 };
struct item { long a; int b; short c; char d[18]; double e; };
static volatile int *bell = (volatile int *)POLL_WORD, *version = (volatile int *)FULL_CODE_WORD;
#define RING (*version = 2, *bell = 1)
static long own[WORDS];
static struct item mine[WORDS];
__attribute__((noinline)) static long chain(struct item *i, long n) {
    long s = 0;
    for (long k = 0; k < n; k++) {
        RING;
        s = s * 31 + i[k].a; i[k].b += (int)s; i[k].c ^= i[k].b;
        i[k].d[k % 18] += (char)i[k].c; own[k] += i[k].d[(k + 1) % 18];
        i[k].e = i[k].e * 0.5 + (double)(s % 1000);
        if (i[k].e > 100.) i[k].a -= own[k]; else i[k].a += 3;
        switch (s & 3) { case 0: i[k].b++; break; case 1: own[k] ^= s; break; case 2: i[k].c--; break; default: i[k].a ^= 7; }
    }
    return s;
}
__attribute__((noinline)) static long strings(char *to, const char *from, long n) {
    long s = 0;
    for (long k = 0; k < n; k++) { RING; memcpy(to + k, from + n - k, 5); s += memcmp(to, from, (unsigned long)k) + to[k]; }
    return s;
}
/// The flags live across an access, and the red zone is in use.
__attribute__((noinline)) static long carry(long *p, long n) {
    unsigned long low = 1, high = 0;
    for (long k = 0; k < n; k++) {
        RING;
        __asm__ volatile("mov %0, -8(%%rsp)\n add (%2), %0\n adc 8(%2), %1\n mov -8(%%rsp), %%rax\n adc %%rax, 16(%2)\n sbb %%rax, %1"
                         : "+r"(low), "+r"(high) : "r"(p + k) : "rax", "memory", "cc");
    }
    return (long)(low ^ high);
}
int main(void) {
    struct item *items = 0;
    long *words = 0, sum = 0;
    char *text = 0;
    static char own_text[2 * WORDS];
    if (bz_node() == 0) { items = bz_alloc(WORDS * sizeof *items); words = bz_alloc((WORDS + 4) * 8); text = bz_alloc(2 * WORDS); }
    bz_broadcast(0, &items, sizeof items); bz_broadcast(0, &words, sizeof words); bz_broadcast(0, &text, sizeof text);
    if (bz_node() == 0) {
        static long own_words[WORDS + 4];
        for (int k = 0; k < 2 * WORDS; k++) own_text[k] = (char)(k * 7);
        for (int r = 0; r < ROUNDS; r++) {
            sum = sum * 5 + chain(r % 3 ? items : mine, WORDS);
            sum = sum * 5 + strings(r % 2 ? text : own_text, r % 5 ? own_text : text, WORDS - 5);
            sum = sum * 5 + carry(r % 4 ? words : own_words, WORDS);
        }
        printf("%ld\n", sum);
    }
    bz_barrier();
    return 0;
}
"#;

#[test]
fn plain_code_goes_on_where_full_code_was() {
    let source = BACK
        .replace("POLL_WORD", &format!("{:#x}", blizzard_contract::POLL_WORD))
        .replace("FULL_CODE_WORD", &format!("{:#x}", blizzard_contract::FULL_CODE_WORD));
    let learner = Learner::new(&source);
    let tested = ["run", "-n", "2", "--access", "tests", "--no-libraries", "--", learner.program()];
    let expected = learner.blizzard(&tested).success().unwrap().stdout_text();
    let mut faults = 0;
    for _ in 0..4 {
        let run = learner.run(&[]);
        assert_eq!(run.0, expected);
        faults += run.1;
    }
    // It has gone back and forth.
    assert!(faults > 1000, "{faults}");
}

/// A function that goes on in full code from its first loop on, and touches shared memory in others.
const LONG: &str = r#"
#include <blizzard.h>
#include <stdio.h>
enum { WORDS = 4096 };
int main(void) {
    volatile long *all = 0;
    if (bz_node() == 0) all = bz_alloc(2 * WORDS * sizeof *all);
    bz_broadcast(0, &all, sizeof all);
    long sum = 0, me = bz_node();
    for (long k = 0; k < WORDS; k++) all[me * WORDS + k] = k;
    bz_barrier();
    for (long k = 0; k < WORDS; k++) sum += all[(1 - me) * WORDS + k];
    bz_barrier();
    for (long k = 0; k < WORDS; k++) all[(1 - me) * WORDS + k] ^= sum;
    bz_barrier();
    if (me == 0) printf("%ld %ld\n", sum, all[5]);
    return 0;
}
"#;

#[test]
fn what_misses_in_full_code_is_learnt_in_the_same_run() {
    let learner = Learner::new(LONG);
    let runs = [learner.run(&[]), learner.run(&[])];
    assert_eq!(runs[0].0, runs[1].0);
    // Without that the second loop is new to the second run, and the third one to the third.
    assert!(runs[0].1 >= 2 && runs[1].1 <= 1, "{runs:?}");
}

/// A word goes from node to node, with the next block accessible and not, and a timer ends a
/// loop: all in loops that have learnt.
const SPIN: &str = r#"
#include <blizzard.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
static volatile int rang;
static void ring(int signal) { (void)signal; rang = 1; }
static void pass(volatile long *word, long me, long nodes, long rounds) {
    for (long r = 0; r < rounds; r++) {
        for (long k = 0; k < nodes; k++) {
            while (*word < r * nodes + k);
            if (k == me) *word = r * nodes + k + 1; else while (*word == r * nodes + k);
        }
    }
}
static void wait(volatile long *word) { while (!rang && *word != -1); }
int main(void) {
    volatile long *word = 0;
    if (bz_node() == 0) word = bz_alloc(8192);
    bz_broadcast(0, &word, sizeof word);
    pass(word, bz_node(), bz_nodes(), 200);
    bz_barrier();
    struct itimerval soon = { { 0, 0 }, { 0, 20000 } };
    signal(SIGALRM, ring);
    setitimer(ITIMER_REAL, &soon, 0);
    wait(word);
    bz_barrier();
    if (bz_node() == 0) printf("%ld\n", *word);
    return 0;
}
"#;

#[test]
fn loops_that_wait_in_learnt_code_are_answered_soon() {
    let learner = Learner::new(SPIN);
    let began = [(); 3].map(|()| {
        let began = std::time::Instant::now();
        assert_eq!(learner.run(&[]).0, "400\n");
        began
    });
    // Milliseconds; it took minutes where requests waited for a moment outside of tests.
    assert!(began[1].elapsed().as_secs() < 60, "{:?}", began[1].elapsed());
}

/// Stores to one word after the other of memory that nobody has used, in a loop that leaves no register free.
const SWEEP: &str = r#"
#include <blizzard.h>
#include <stdio.h>
enum { WORDS = 1 << 14 };
__attribute__((noinline)) static long sweep(int *p, long n) {
    long last = 7;
    __asm__ volatile("mov $3, %%ecx\n mov %%ecx, %%edx\n mov %%ecx, %%r8d\n mov %%ecx, %%r9d\n mov %%ecx, %%r10d\n mov %%ecx, %%r11d\n"
                     "1: movl %%eax, (%%rdi)\n add $4, %%rdi\n add %%rcx, %%rax\n xor %%rdx, %%rax\n add %%r8, %%rax\n"
                     "xor %%r9, %%rax\n add %%r10, %%rax\n xor %%r11, %%rax\n dec %%rsi\n jnz 1b"
                     : "+D"(p), "+S"(n), "+a"(last) : : "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
    return last;
}
int main(void) {
    int *all = 0;
    if (bz_node() == 0) all = bz_alloc(2 * WORDS * sizeof *all);
    bz_broadcast(0, &all, sizeof all);
    long last = sweep(all + bz_node() * WORDS, WORDS);
    bz_barrier();
    if (bz_node() == 0) printf("%d %d\n", all[WORDS - 1] == all[2 * WORDS - 1], last == 0);
    return 0;
}
"#;

#[test]
fn a_sweep_enters_the_gate_once_or_twice_a_block() {
    let learner = Learner::new(SWEEP);
    for _ in 0..3 {
        assert_eq!(learner.run(&[]).0, "1 0\n");
        let count = |counter| total(&learner.at("stats.json"), counter);
        let (misses, others) = (count("write_misses") + count("read_misses"), count("false_misses"));
        // A peer may ring at each miss. A block has sixteen words.
        assert!(misses > 1000 && others < 2 * misses, "{misses} {others}");
    }
}

/// A leaf function that leaves no register free, so that its tests keep one in the red zone, and a peer that asks for a block of what it works on all the time.
const CALLED: &str = r#"
#include <blizzard.h>
#include <stdio.h>
enum { WORDS = 1 << 10, ROUNDS = 2000 };
struct all { int words[WORDS]; volatile int done; };
__attribute__((noinline)) static long sweep(int *p, long n) {
    long last = 7;
    __asm__ volatile("mov $3, %%ecx\n mov %%ecx, %%edx\n mov %%ecx, %%r8d\n mov %%ecx, %%r9d\n mov %%ecx, %%r10d\n mov %%ecx, %%r11d\n"
                     "1: .rept 256\n movl %%eax, (%%rdi)\n add $4, %%rdi\n add %%rcx, %%rax\n xor %%rdx, %%rax\n add %%r8, %%rax\n add %%rbx, %%rax\n"
                     "xor %%r9, %%rax\n add %%r10, %%rax\n xor %%r11, %%rax\n add %%r12, %%rax\n xor %%r13, %%rax\n"
                     "add %%r14, %%rax\n xor %%r15, %%rax\n add -4(%%rdi), %%eax\n .endr\n sub $256, %%rsi\n jnz 1b"
                     : "+D"(p), "+S"(n), "+a"(last) : : "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
    return last;
}
__asm__(".globl fixed\n .type fixed, @function\n fixed: push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov $5, %ebx\n mov $6, %r12d\n mov $7, %r13d\n mov $8, %r14d\n mov $9, %r15d\n call *%rdx\n"
        "lea (%rax, %rbx), %rax\n lea (%rax, %r12), %rax\n lea (%rax, %r13), %rax\n lea (%rax, %r14), %rax\n lea (%rax, %r15), %rax\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n ret\n .size fixed, . - fixed");
long fixed(int *p, long n, long (*f)(int *, long));
int main(void) {
    static int own[WORDS];
    struct all *all = 0;
    if (bz_node() == 0) all = bz_alloc(sizeof *all);
    bz_broadcast(0, &all, sizeof all);
    if (bz_node() == 0) {
        long expected = fixed(own, WORDS, sweep), wrong = 0;
        for (int r = 0; r < ROUNDS; r++) wrong += fixed(all->words, WORDS, sweep) != expected;
        all->done = 1;
        printf("%ld\n", wrong);
    } else {
        for (unsigned k = 0; !all->done; k++) (void)*(volatile int *)&all->words[k * 16 % WORDS];
    }
    bz_barrier();
    return 0;
}
"#;

#[test]
fn an_interrupted_test_keeps_what_it_has_in_the_red_zone() {
    let learner = Learner::new(CALLED);
    // The first run learns. How often the peer has to call by a signal depends on the machine's other work.
    let mut calls = 0;
    for _ in 0..50 {
        assert_eq!(learner.run(&[]).0, "0\n");
        calls += total(&learner.at("stats.json"), "kernel_calls");
        if calls > 500 {
            return;
        }
    }
    panic!("only {calls} signals in 50 runs");
}

#[test]
fn what_was_learnt_is_shown_and_leads_to_equal_files() {
    let learner = Learner::new(SOURCE);
    let (knowledge, other) = (learner.at("k"), learner.at("other"));
    let learn = |file: &Path| {
        let words = ["learn", "-n", "2", "--no-libraries", "-o", file.to_str().unwrap(), "--", learner.program()];
        learner.blizzard(&words).success().unwrap()
    };
    let said = learn(&knowledge).stderr_text();
    assert!(said.contains("learnt: ") && said.contains("functions touch shared memory"), "{said}");
    // The cache and the file say the same.
    let shown = learner.blizzard(&["inspect", "--learnt", learner.program()]).success().unwrap().stdout_text();
    let of_file = format!("--learnt={}", knowledge.display());
    assert_eq!(learner.blizzard(&["inspect", &of_file, learner.program()]).success().unwrap().stdout_text(), shown);
    for word in ["fill", "sum", "copy", "late", "learner.c:"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert!(!shown.contains("quiet"), "{shown}");
    let rewrite = |output: &str, more: &[&str]| {
        let to = learner.at(output);
        let words = ["rewrite", learner.program(), "--access", "guard", "--no-libraries", "-o", to.to_str().unwrap()];
        learner.blizzard(&[&words, more].concat()).success().unwrap();
        fs::read(to).unwrap()
    };
    // Counts do not matter: the second file knows of the same accesses.
    let text = fs::read_to_string(&knowledge).unwrap();
    let more = text.lines().map(|line| match line.split_once(' ') {
        Some((at, faults)) if faults.parse::<u64>().is_ok() && at != "blizzard-learnt" => format!("{at} {faults}0\n"),
        _ => format!("{line}\n"),
    });
    fs::write(&other, more.collect::<String>()).unwrap();
    let learnt = rewrite("learnt", &["--learnt", knowledge.to_str().unwrap()]);
    assert!(learnt == rewrite("again", &["--learnt", other.to_str().unwrap()]));
    assert!(learnt != rewrite("plain", &[]));
    let to = learner.at("learnt");
    let audited = ["verify", to.to_str().unwrap(), "--original", learner.program()];
    learner.blizzard(&audited).success().unwrap();
    // It runs, by itself too, and knows better.
    let stats = learner.at("s");
    let words = ["run", "-n", "2", "--no-libraries", "--stats", stats.to_str().unwrap(), "--", to.to_str().unwrap()];
    let output = learner.blizzard(&words).success().unwrap().stdout_text();
    assert_eq!(output, learner.run(&["--no-learn"]).0);
    assert!(faults(&stats) < 12, "{}", faults(&stats));
}

/// What was known before the run cannot be learnt by it again: the file has that, too.
#[test]
fn a_file_has_what_earlier_runs_have_learnt() {
    let learner = Learner::new(SOURCE);
    for _ in 0..3 {
        learner.run(&[]);
    }
    let (knowledge, to, stats) = (learner.at("k"), learner.at("learnt"), learner.at("s"));
    let file = knowledge.to_str().unwrap();
    // Nobody says on how many nodes: two.
    let said = learner.blizzard(&["learn", "--no-libraries", "-o", file, "--", learner.program()]);
    let said = said.success().unwrap().stderr_text();
    assert!(said.contains("learnt: ") && !said.contains("on one node"), "{said}");
    let shown =
        |option: &str| learner.blizzard(&["inspect", option, learner.program()]).success().unwrap().stdout_text();
    assert_eq!(shown(&format!("--learnt={file}")), shown("--learnt"));
    assert!(shown("--learnt").contains("fill"), "{}", shown("--learnt"));
    // The output is as good as what the cache leads to.
    let to = to.to_str().unwrap();
    let rewrite = ["rewrite", "--access", "guard", "--no-libraries", "--learnt", file, "-o", to, learner.program()];
    learner.blizzard(&rewrite).success().unwrap();
    let words = ["run", "-n", "2", "--no-libraries", "--stats", stats.to_str().unwrap(), "--", to];
    learner.blizzard(&words).success().unwrap();
    assert!(faults(&stats) < 6, "{}", faults(&stats));
    // Once more: nothing is counted twice.
    let before = fs::read_to_string(file).unwrap();
    learner.blizzard(&["learn", "-n", "1", "--no-libraries", "-o", file, "--", learner.program()]).success().unwrap();
    assert_eq!(fs::read_to_string(file).unwrap(), before);
}

#[test]
fn on_one_node_nothing_is_learnt_and_that_is_said() {
    let learner = Learner::new(SOURCE);
    let outcome = learner.blizzard(&["learn", "-n", "1", "--no-libraries", "--", learner.program()]).success().unwrap();
    let said = outcome.stderr_text();
    assert!(said.contains("on one node no access faults") && said.contains("help: use -n 2"), "{said}");
}

#[test]
fn a_wrong_file_is_refused_and_nothing_is_written() {
    let learner = Learner::new(SOURCE);
    let (file, output) = (learner.at("k"), learner.at("out"));
    let refused = |text: &str, more: &[&str], says: &str| {
        fs::write(&file, text).unwrap();
        let learnt = ["--learnt", file.to_str().unwrap(), "--no-libraries", "-o", output.to_str().unwrap()];
        let outcome = learner.blizzard(&[&["rewrite", learner.program()], more, &learnt].concat());
        let said = outcome.stderr_text();
        assert_eq!(outcome.ending, Ending::Exit(2), "{text}: {said}");
        assert!(said.contains(says) && said.matches("error: ").count() == 1, "{text}: {said}");
        assert!(!output.exists());
    };
    let guard = &["--access", "guard"][..];
    refused("", guard, "k:1: ");
    refused("blizzard-learnt 2\n", guard, "k:1: is of another version");
    refused("blizzard-learnt 1\nobject 0011223344556677 p\n1a40 three\n", guard, "k:3: an address and");
    refused("blizzard-learnt 1\nobject 0011223344556677 p\n1a40 3\n", guard, "k:2: 0011223344556677 (p) is neither");
    refused("blizzard-learnt 1\n", &[], "--access guard");
    // An address where nothing can be tested is no error.
    let digits = learner.blizzard(&[
        "learn",
        "-n",
        "2",
        "--no-libraries",
        "-o",
        file.to_str().unwrap(),
        "--",
        learner.program(),
    ]);
    digits.success().unwrap();
    let known = fs::read_to_string(&file).unwrap();
    let object = known.lines().nth(1).unwrap();
    fs::write(&file, format!("blizzard-learnt 1\n{object}\n1 1\n")).unwrap();
    let words = ["rewrite", learner.program(), "--access", "guard", "--no-libraries", "-o", output.to_str().unwrap()];
    let outcome = learner.blizzard(&[&words[..], &["--learnt", file.to_str().unwrap()]].concat()).success().unwrap();
    assert!(outcome.stderr_text().contains("1 of 1 learnt accesses have no test"), "{}", outcome.stderr_text());
}

/// Two runs that end at the same time, and one that is killed: what each has learnt is kept.
#[test]
fn runs_do_not_disturb_each_other() {
    let learner = Learner::new(SOURCE);
    let alone = || learner.blizzard(&["learn", "--no-libraries", "-n", "2", "--", learner.program()]);
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..3).map(|_| scope.spawn(alone)).collect();
        runs.into_iter().for_each(|run| drop(run.join().unwrap().success().unwrap()));
    });
    let shown = learner.blizzard(&["inspect", "--learnt", learner.program()]).success().unwrap().stdout_text();
    assert!(shown.contains("fill") && shown.contains("sum"), "{shown}");
    let dies = Learner::new(
        &SOURCE.replace("bz_node() == 0) printf", "bz_node() == 0) *(volatile int *)8 = 1; if (0) printf"),
    );
    let outcome = dies.blizzard(&["learn", "--no-libraries", "-n", "2", "--", dies.program()]);
    assert!(outcome.ending != Ending::Exit(0));
    let shown = dies.blizzard(&["inspect", "--learnt", dies.program()]).success().unwrap().stdout_text();
    assert!(shown.contains("fill") && shown.contains("sum"), "{shown}");
}

/// A library's accesses, and those of a child, are learnt of as well; a bundle has them.
#[test]
fn libraries_and_children_learn() {
    let source = r#"
#include <blizzard.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static int less(const void *a, const void *b) { long x = *(const long *)a, y = *(const long *)b; return (x > y) - (x < y); }
__attribute__((noinline)) static long of_child(volatile long *p) { return p[3] - p[2]; }
int main(void) {
    if (bz_node() != 0) return bz_barrier(), 0;
    long *all = bz_alloc(1000 * sizeof *all);
    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < 1000; k++) all[k] = (k * 7919 + round) % 1009;
        qsort(all, 1000, sizeof *all, less);
    }
    int status = 0;
    if (fork() == 0) _exit(of_child(all) == 1 ? 3 : 4);
    wait(&status);
    long middle = all[500];
    printf("%ld %d\n", middle, WEXITSTATUS(status));
    bz_barrier();
    return 0;
}
"#;
    let learner = Learner::new(source);
    let file = learner.at("k");
    let words = ["learn", "-n", "2", "-o", file.to_str().unwrap(), "--", learner.program()];
    let first = learner.blizzard(&words).success().unwrap();
    let known = fs::read_to_string(&file).unwrap();
    assert!(known.matches("object ").count() >= 2 && known.contains("libc.so"), "{known}");
    let shown = learner.blizzard(&["inspect", "--learnt", learner.program()]).success().unwrap().stdout_text();
    assert!(shown.contains("of_child"), "{shown}");
    let stats = learner.at("s");
    let more = |program: &str, access: &[&str]| {
        let words = ["run", "-n", "2", "--stats", stats.to_str().unwrap()];
        let outcome = learner.blizzard(&[&words[..], access, &["--", program]].concat()).success().unwrap();
        assert_eq!(outcome.stdout_text(), first.stdout_text());
        faults(&stats)
    };
    let unlearnt = more(learner.program(), &["--access", "guard", "--no-learn"]);
    let learnt = [(); 3].map(|()| more(learner.program(), &["--access", "guard"]));
    assert!(learnt[0] < unlearnt / 10 && learnt[2] < 20, "{learnt:?} {unlearnt}");
    let bundle = learner.at("bundle");
    let words = ["rewrite", learner.program(), "--access", "guard", "--bundle", bundle.to_str().unwrap()];
    learner.blizzard(&[&words[..], &["--learnt", file.to_str().unwrap()]].concat()).success().unwrap();
    let bundled = more(bundle.join("learner").to_str().unwrap(), &["--no-learn"]);
    assert!(bundled < unlearnt / 10, "{bundled} {unlearnt}");
}

/// One node runs guarded code unless an option says what is inserted, or the program takes memory away from itself. What cannot be guarded has tests, and a note
/// says why.
#[test]
fn what_runs_alone_is_guarded() {
    let shared = "#include <blizzard.h>\n#include <stdio.h>\nint main(void) { long *p = bz_alloc(64); p[1] = bz_nodes(); printf(\"%ld\\n\", p[1]); return 0; }";
    let learner = Learner::new(shared);
    let guarded = |learner: &Learner, words: &[&str]| {
        let stats = learner.at("s");
        let run = ["run", "--no-libraries", "--stats", stats.to_str().unwrap()];
        let ended = learner.blizzard(&[&run, words, &["--", learner.program()]].concat()).success().unwrap();
        let stats: serde_json::Value = serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap();
        (stats["options"]["guard"].as_bool().unwrap(), ended.stderr_text())
    };
    for (words, is_guarded) in [
        (&[][..], true),
        (&["-n", "1"], true),
        (&["-n", "2"], false),
        (&["--fork"], false),
        (&["--access", "tests"], false),
        (&["-n", "2", "--access", "guard"], true),
        (&["--checks", "loads"], false),
        (&["--no-merge"], false),
        (&["--count"], false),
    ] {
        assert_eq!(guarded(&learner, words).0, is_guarded, "{words:?}");
    }
    let managed = "#include <blizzard.h>\n#include <tempest.h>\nint main(void) { return TPPI_self_address != 0; }";
    let (is_guarded, said) = guarded(&Learner::new(managed), &[]);
    assert!(!is_guarded && !said.contains("note"), "{said}");
    let gs = "int main(void) { if (__builtin_expect(bz_nodes() == 9, 0)) __asm__ volatile(\"mov %%gs:16, %%rax\" ::: \"rax\"); return 0; }";
    let learner = Learner::new(&format!("#include <blizzard.h>\n{gs}"));
    let (is_guarded, said) = guarded(&learner, &[]);
    assert!(!is_guarded && said.contains("every access is tested") && said.contains("(main+"), "{said}");
    let refused = learner.blizzard(&["run", "--no-libraries", "--access", "guard", "--", learner.program()]);
    assert!(refused.ending == Ending::Exit(1) && refused.stderr_text().contains("an operand with %gs"));
}
