//! Single changed bytes in the frame tables of real outputs: each is found, or no unwinder and no personality routine sees it.
//!
//! Of `.eh_frame_hdr`, type tables and action tables the audit knew nothing once: a table out of order, an exception of another type,
//! a filter list with another end passed. The places are chosen by a seed. The table that the test prints (`--nocapture`)
//! says for each program and part how many were changed, found, and harmless for which reason.

use crate::Audit;
use crate::Unwinding;
use crate::decode::decoder;
use crate::decode::effects::Flow;
use crate::file::eh_frame_hdr::{HEAD_BYTES, ROW_BYTES};
use crate::file::frames::Fde;
use crate::file::module::Module;
use crate::judge::old_code::original::Original;
use crate::judge::old_code::springboards;
use crate::judge::unwinding::cfi;
use crate::sites::{find, site};
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::{Numbers, compiled};
use blizzard::base::options::Options;
use blizzard::pipeline;
use std::collections::BTreeMap;
use std::ops::Range;

/// Everything that an exception table can say.
pub const THROWS: &str = r#"
#include <cstdio>
#include <stdexcept>
#include <string>
struct Own { int n; Own(int k = 9) : n(k) {} virtual ~Own() {} };
struct Other : Own { };
struct Noisy { const char *s; ~Noisy() { std::puts(s); } };
static volatile int zero;
__attribute__((noinline, cold)) static void rare(int i) { Noisy n{"rare"}; if (i > 5) throw Own{i}; std::puts("no"); }
__attribute__((noinline)) static void thrower(int i) {
    Noisy a{"thrower"};
    switch (i) {
    case 0: throw i;
    case 1: throw "text";
    case 2: throw std::runtime_error("error");
    case 3: throw Own{3};
    case 4: throw Other{};
    case 5: throw 2.5;
    default: if (__builtin_expect(i > 5, 0)) rare(i);
    }
}
#if __cplusplus < 201703L
__attribute__((noinline)) static void limited(int i) throw(int, Own) { Noisy b{"limited"}; thrower(i); }
__attribute__((noinline)) static void closed(int i) throw() { if (i == 7) thrower(3 + zero * i); }
#else
static void limited(int i) { thrower(i); }
static void closed(int i) noexcept { if (i < 0) thrower(i); }
#endif
__attribute__((noinline)) static int nested(int i) {
    try {
        Noisy c{"nested"};
        try { if (i & 1) limited(i == 3 ? 3 : 0); else thrower(i); }
        catch (const char *s) { std::puts(s); throw; }
        catch (Other &) { std::puts("other"); throw Own{9}; }
    }
    catch (int n) { return n; }
    catch (Own &o) { return o.n; }
    catch (std::exception &e) { std::puts(e.what()); return 2; }
    catch (...) { std::puts("any"); return 1; }
    return 0;
}
int main() {
    int sum = 0;
    for (int i = 0; i < 9; i++) { sum += nested(i); closed(zero); }
    std::printf("%d\n", sum);
}
"#;

/// A fault that becomes an exception, in a loop: the call sites hold instructions that are no calls.
const FAULTS: &str = r#"
#include <csignal>
#include <cstdio>
#include <cstring>
struct Noisy { ~Noisy() { std::puts("left"); } };
static void handler(int) { throw 1; }
__attribute__((noinline)) static int sum(volatile int *p, int n) {
    Noisy noisy;
    int s = 0;
    try { for (int i = 0; i < n; i++) s += p[i]; }
    catch (int i) { return -i; }
    return s;
}
int main() {
    struct sigaction a;
    std::memset(&a, 0, sizeof a);
    a.sa_handler = handler;
    a.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &a, nullptr);
    int some[4] = {1, 2, 3, 4};
    std::printf("%d %d\n", sum(some, 4), sum(nullptr, 4));
}
"#;

const PANICS: &str = r#"
struct Noisy(&'static str);
impl Drop for Noisy { fn drop(&mut self) { println!("{}", self.0); } }
#[inline(never)]
fn inner(i: usize) -> usize { let _a = Noisy("inner"); let list = [1, 2, 3]; list[i] }
fn main() {
    for i in 0..6 {
        let done = std::panic::catch_unwind(|| { let _b = Noisy("outer"); inner(i) });
        println!("{:?}", done.ok());
    }
}
"#;

/// A program, and what the audit knows of its output before it looks at the frames.
struct Subject {
    name: &'static str,
    original: Vec<u8>,
    output: Vec<u8>,
    /// Places to change in each part of the frame tables.
    each: usize,
}

impl Subject {
    fn new(name: &'static str, original: Vec<u8>, library: bool, each: usize) -> Subject {
        let options = Options::tests();
        let done = match library {
            true => pipeline::rewrite_library(&original, name, &options),
            false => pipeline::rewrite(&original, name, &options),
        };
        Subject { name, original, output: done.expect("rewrite").bytes, each }
    }
}

/// The audit's look at the frames of files that differ from an output in these alone.
struct Frames<'s> {
    text: decoder::Code,
    cold: decoder::Code,
    sites: site::Sites,
    pairs: Vec<(u64, u64)>,
    original: Original<'s>,
}

impl<'s> Frames<'s> {
    fn of(s: &'s Subject) -> Frames<'s> {
        let m = Module::read(&s.output, s.name).expect("read module");
        let text = decoder::decode(m.text.data, m.text.va, &[]);
        let cold = decoder::decode(m.cold.data, m.cold.va, &[]);
        let rodata = |va| m.bytes_at(va, 16).and_then(|b| b.try_into().ok());
        let cx = site::Context {
            text: &text,
            cold: &cold,
            check_loads: true,
            check_stores: true,
            polls: true,
            guard: false,
            rodata: &rodata,
        };
        let sites = find::find(&cx);
        let old = springboards::scan(&m, &text, None, &mut Audit::default());
        let mut pairs: Vec<(u64, u64)> = old.all(&m).collect();
        pairs.sort_unstable();
        pairs.dedup_by_key(|p| p.0);
        let original = Original::read(&s.original, s.name).expect("read original");
        Frames { text, cold, sites, pairs, original }
    }

    fn finds(&self, file: &[u8]) -> Option<String> {
        let Ok(m) = Module::read(file, "mutant") else { return Some("no module".into()) };
        let mut audit = Audit::default();
        cfi::compare(&m, (&self.text, &self.cold), &self.sites, &self.pairs, Some(&self.original), &mut audit);
        audit.open.first().map(|f| f.reason.clone())
    }
}

fn rust(source: &str) -> Vec<u8> {
    compiled("rustc", "p.rs", source, &["--edition=2021", "-O", "-Cprefer-dynamic", "-Cpanic=unwind"])
}

#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn finds_every_changed_byte_of_the_frame_tables_that_matters() {
    let cpp = |flags: &[&str]| compiled("c++", "p.cpp", THROWS, flags);
    let faults = &["-O2", "-fnon-call-exceptions", "-fasynchronous-unwind-tables"][..];
    let subjects = [
        Subject::new("c++ -O2", cpp(&["-O2", "-std=c++14", "-w"]), false, 300),
        Subject::new("c++ -O0 fixed", cpp(&["-O0", "-std=c++14", "-w", "-no-pie", "-fno-pie"]), false, 300),
        Subject::new("c++ -O1 library", cpp(&["-O1", "-std=c++17", "-w", "-fPIC", "-shared"]), true, 200),
        Subject::new("c++ static", cpp(&["-O2", "-std=c++14", "-w", "-static"]), false, 25),
        Subject::new("c++ static PIE", cpp(&["-O2", "-std=c++17", "-w", "-static-pie"]), false, 25),
        Subject::new("c++ faults", compiled("c++", "p.cpp", FAULTS, faults), false, 200),
        Subject::new("rust", rust(PANICS), false, 200),
    ];
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let (mut missed, mut changed, mut found) = (Vec::new(), 0, 0);
    for s in &subjects {
        let audit = verify_with(&s.output, s.name, Some(&s.original)).expect("audit runs");
        assert!(audit.is_clean(), "{audit}");
        let frames = Frames::of(s);
        assert_eq!(frames.finds(&s.output), None, "{}", s.name);
        let unwinding = Unwinding::of(&s.output).expect("a rewritten file");
        let parts: Vec<Range<usize>> = unwinding.parts();
        assert!(parts.len() >= 4, "{}: {parts:?}", s.name);
        for part in parts {
            // Places in one part do not depend on the lengths of others: each runtime has another number of frames.
            let mut numbers = Numbers(numbers.next(usize::MAX) as u64 | 1);
            let (mut own_found, mut harmless) = (0, BTreeMap::new());
            let all: Vec<usize> = match part.len() <= s.each {
                true => part.clone().collect(),
                false => (0..s.each).map(|_| part.start + numbers.next(part.len())).collect(),
            };
            for &at in &all {
                let mut mutant = s.output.clone();
                mutant[at] ^= 1 + numbers.next(255) as u8;
                // Here the audit knows no instructions that begin under springboards: what it does not find so, the whole audit may.
                let found_so = frames.finds(&mutant).is_some();
                let why = if found_so { None } else { unwinding.harmless(&mutant, at) };
                let whole = || verify_with(&mutant, s.name, Some(&s.original)).map_or(true, |audit| !audit.is_clean());
                if found_so || why.is_none() && whole() {
                    own_found += 1;
                } else if let Some(why) = why {
                    *harmless.entry(why).or_insert(0) += 1;
                } else {
                    let (was, is) = (s.output[at], mutant[at]);
                    missed.push(format!("{}: {was:#04x} became {is:#04x} at {at:#x} in {part:x?}", s.name));
                }
            }
            println!("{:16} {part:x?}: {} changed, {own_found} found, {harmless:?}", s.name, all.len());
            (changed, found) = (changed + all.len(), found + own_found);
        }
    }
    println!("{changed} changed, {found} found");
    assert!(missed.is_empty(), "{} of {changed} not found:\n{}", missed.len(), missed.join("\n"));
    assert!(found * 10 >= changed * 6, "only {found} of {changed} found: too much is taken for harmless");
}

/// The LSDA of the last frame can stand right behind the terminator: a look for pointers into the own record that goes on behind it takes it for none.
#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn an_lsda_right_behind_the_frames_is_one() {
    let file = compiled("c++", "p.cpp", crate::tests::outputs::systematic::EXCEPTIONS, &["-O1", "-fPIC", "-shared"]);
    let s = Subject::new("p", file, true, 0);
    let original = Original::read(&s.original, s.name).expect("read original");
    let old = original.frames(Default::default()).expect("its frames");
    let last = old.list.iter().max_by_key(|f| f.record).expect("frames");
    let m = Module::read(&s.output, s.name).expect("read module");
    assert!(last.lsda.is_some(), "the last frame has exception tables");
    assert_eq!(
        old.list.iter().filter(|f| f.lsda.is_some()).count(),
        m.frames.list.iter().filter(|f| f.lsda.is_some()).count()
    );
}

/// The rewriter knew `.eh_frame` by its section header alone: without section headers the output had no frames, and every exception ended the program.
#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn a_file_without_section_headers_keeps_its_frames() {
    let mut file = compiled("c++", "p.cpp", THROWS, &["-O2", "-std=c++14", "-w"]);
    // e_shoff; e_shnum and e_shstrndx.
    file[40..48].fill(0);
    file[60..64].fill(0);
    let s = Subject::new("no sections", file, false, 0);
    let m = Module::read(&s.output, s.name).expect("read module");
    assert!(m.frames.list.iter().any(|f| f.lsda.is_some()), "{:?}", m.frames_problem);
    let audit = verify_with(&s.output, s.name, Some(&s.original)).expect("audit runs");
    let of_frames = audit.open.iter().find(|f| f.reason.contains("no frame describes"));
    assert_eq!(of_frames, None);
    assert!(audit.frames.is_some_and(|f| f.calls > 10), "{audit}");
}

/// Calls that do not come back, with what stops the program if they do after all right behind them; and a loop that has a copy.
const ENDS: &str = r#"
#include <cstdlib>
#include <cstring>
struct Noisy { int *p; ~Noisy() { *p += 1; } };
__attribute__((noinline)) extern "C" int counts(const char *p, int *table, const char *end) {
    do ++table[(unsigned char)*p]; while (++p != end);
    return table['a'];
}
__attribute__((noinline, noreturn)) static void gives_up(int *p) { Noisy n{p}; std::exit(*p == 0); }
__attribute__((noinline)) static int may_throw(int *p) { if (*p == 77) throw 1; return *p; }
int main(int n, char **v) {
    static int table[256];
    int sum = counts(v[0], table, v[0] + std::strlen(v[0]));
    try { sum += may_throw(&n); } catch (int) { return 2; }
    if (sum == 12345) return 3;
    gives_up(table);
}
"#;

/// The search table leads to the runtime's frames, and where a row of theirs is another, the audit and the judge of changed bytes see it.
#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn a_wrong_row_for_the_runtime_is_found() {
    let s = Subject::new("rows", compiled("c++", "p.cpp", ENDS, &["-O2"]), false, 0);
    let frames = Frames::of(&s);
    let unwinding = Unwinding::of(&s.output).expect("a rewritten file");
    let m = Module::read(&s.output, s.name).expect("read module");
    let runtime = m.runtime_frames().expect("the runtime has frames").list;
    assert!(runtime.len() > 100, "{} frames", runtime.len());
    let index = m.index.as_ref().expect("a search table");
    let table = offset(&m, &s.output, index.va);
    for f in runtime.iter().step_by(97).chain(runtime.last()) {
        let k = index.rows.iter().position(|r| *r == (f.from, f.record)).expect("a row for each");
        let row = table + HEAD_BYTES + ROW_BYTES * k;
        // Code and record of the row in front; code that begins elsewhere.
        let before = &s.output[row - ROW_BYTES..row];
        for (at, other) in [(0, &before[..4]), (4, &before[4..]), (0, &(word(&s.output, row) + 1).to_le_bytes()[..])] {
            let mut mutant = s.output.clone();
            mutant[row + at..row + at + 4].copy_from_slice(other);
            let why = frames.finds(&mutant).expect("found");
            assert!(why.starts_with("it leads to"), "{why}");
            assert_eq!(unwinding.harmless(&mutant, row + at), None);
        }
    }
}

/// Where the byte at `va` stands in the file that `m` was read from.
fn offset(m: &Module, file: &[u8], va: u64) -> usize {
    m.bytes_at(va, 1).expect("in the file").as_ptr() as usize - file.as_ptr() as usize
}

fn word(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"))
}

/// Who interrupts the program where it stops behind such a call looks for a frame there. One that ended with the call passed.
#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn a_frame_that_ends_with_a_call_that_does_not_return_is_found() {
    let s = Subject::new("ends", compiled("c++", "p.cpp", ENDS, &["-O2"]), false, 0);
    let frames = Frames::of(&s);
    let m = Module::read(&s.output, s.name).expect("read module");
    let (mut shortened, mut missed) = (0, Vec::new());
    for f in &m.frames.list {
        // What stops the program stands last in the frame, behind a call.
        let last = frames.text.insns.iter().rposition(|i| i.end() == f.to && i.flow == Flow::Stop);
        let Some((k, call)) = last.and_then(|k| Some((k, frames.text.insns.get(k.checked_sub(1)?)?))) else { continue };
        if !matches!(call.flow, Flow::Call | Flow::CallInd) {
            continue;
        }
        let range = offset(&m, &s.output, f.record) + 12;
        let bytes = word(&s.output, range);
        assert_eq!(u64::from(bytes), f.to - f.from, "the record's range is where it is looked for");
        let mut mutant = s.output.clone();
        let shorter = bytes - u32::from(frames.text.insns[k].len);
        mutant[range..range + 4].copy_from_slice(&shorter.to_le_bytes());
        shortened += 1;
        if frames.finds(&mutant).is_none() {
            missed.push(f.from);
        }
    }
    assert!(shortened > 0, "no call at a frame's end");
    assert!(missed.is_empty(), "not found: {missed:x?}");
}

/// A record of a loop's copy that names a common record with another personality is found: nothing is called in a copy, but the personality would be. It passed.
#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn another_common_record_for_the_copy_of_a_loop_is_found() {
    let s = Subject::new("copies", compiled("c++", "p.cpp", ENDS, &["-O2"]), false, 0);
    let frames = Frames::of(&s);
    let m = Module::read(&s.output, s.name).expect("read module");
    let common = |f: &Fde| {
        let at = offset(&m, &s.output, f.record) + 4;
        (f.record + 4 - u64::from(word(&s.output, at)), at)
    };
    let all: BTreeMap<u64, String> = m.frames.list.iter().map(|f| (common(f).0, format!("{:?}", f.kind))).collect();
    let (mut changed, mut missed) = (0, Vec::new());
    for f in m.frames.list.iter().filter(|f| frames.cold.contains(f.from)) {
        let (own, at) = common(f);
        let with_another = |kind: &str| *kind != all[&own] && !kind.starts_with("(None");
        for (&other, kind) in all.iter().filter(|(_, kind)| with_another(kind)) {
            let mut mutant = s.output.clone();
            mutant[at..at + 4].copy_from_slice(&((f.record + 4).wrapping_sub(other) as u32).to_le_bytes());
            changed += 1;
            if frames.finds(&mutant).is_none() {
                missed.push(format!("{:x}: {kind} in place of {}", f.from, all[&own]));
            }
        }
    }
    assert!(changed > 0, "no copy of a loop, or one common record: {all:?}");
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// The last instruction of a loop's copy may be an inserted jump, for which no rule asks. A frame that ended in front of it passed.
#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn a_frame_that_ends_within_the_copy_of_a_loop_is_found() {
    let s = Subject::new("short", compiled("c++", "p.cpp", ENDS, &["-O2"]), false, 0);
    let frames = Frames::of(&s);
    let m = Module::read(&s.output, s.name).expect("read module");
    let (mut shortened, mut missed) = (0, Vec::new());
    for f in m.frames.list.iter().filter(|f| frames.cold.contains(f.from)) {
        let range = offset(&m, &s.output, f.record) + 12;
        let bytes = word(&s.output, range);
        assert_eq!(u64::from(bytes), f.to - f.from, "the record's range is where it is looked for");
        for fewer in 1..=16 {
            let mut mutant = s.output.clone();
            mutant[range..range + 4].copy_from_slice(&(bytes - fewer).to_le_bytes());
            shortened += 1;
            if frames.finds(&mutant).is_none() {
                missed.push((f.from, fewer));
            }
        }
    }
    assert!(shortened > 0, "no copy of a loop");
    assert!(missed.is_empty(), "not found: {missed:x?}");
}
