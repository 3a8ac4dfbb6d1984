//! Guarded code: real outputs are accepted, and faults planted into them are found, each for the right reason.
//!
//! All faults are looked for without the original, whose build id would tell of any change of the code.

use super::planted::{Numbers, compiled};
use super::unwinding::THROWS;
use super::verify_with;
use crate::decode::decoder::{self, Code};
use crate::decode::effects::Flow;
use crate::decode::insn::{GS, Insn, Mem, NO_TARGET, NONE, WIDE};
use crate::file::module::Module;
use crate::judge::versions::pairs::{Version, Versions};
use crate::judge::versions::redirects;
use crate::sites::find;
use crate::sites::site::{Context, Kind, Site, Sites, get};
use crate::sites::symbolic::is_tag_test_at_alias;
use blizzard::base::addresses::Vaddr;
use blizzard::base::learnt::{Knowledge, Object};
use blizzard::base::options::{Access, Options};
use blizzard::base::output_file::Sink;
use blizzard::pipeline::{self, Request};
use blizzard::write::file::LibraryRecord;
use blizzard::write::runtime_blob::Blob;
use blizzard_contract::{self as contract, TAG_TABLE_BASE};
use object::{Object as _, ObjectSection as _};

/// Stores, loads, calls and jumps through memory, a switch, computed gotos, strings, an area of more than 64 bytes.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { char c; short s; int i; long l; long (*f)(struct node *); struct node *next; };
static volatile unsigned long big = 1;
__attribute__((noinline)) static long count(struct node *n) { return n->i + n->l; }
__attribute__((noinline)) static long call(struct node *n) { return n->f(n) + n->c; }
__attribute__((noinline)) static void set(struct node *n, long v) { n->c = v; n->s = v; n->i += v; n->l ^= v; }
__attribute__((noinline)) static long pick(struct node *n, int k) {
    switch (k) {
    case 0: return n->c; case 1: return n->s; case 2: return n->i; case 3: return n->l; case 4: return call(n);
    case 5: set(n, k); return 5; case 6: return n->next ? n->next->i : 0;
    }
    return 0;
}
__attribute__((noinline)) static long run(const unsigned char *code, struct node *n) {
    static void *const labels[] = { &&add, &&sub, &&take, &&end };
    long sum = 0;
    goto *labels[*code];
add: sum += n->l; goto *labels[*++code];
sub: sum -= n->i; goto *labels[*++code];
take: n = n->next; goto *labels[*++code];
end: return sum;
}
__attribute__((noinline)) static void save(void *area) { __asm__ volatile("fxsave (%0)" : : "r"(area) : "memory"); }
__attribute__((noinline)) static void fill(char *to, long n) { __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(1) : "memory"); }
__attribute__((noinline)) static unsigned long constant(void) { unsigned long r = 0; if (!big) __asm__ volatile("movabs 0x123456789abc, %0" : "=a"(r)); return r + big; }
static struct node *make(int i, struct node *next) {
    struct node *n = malloc(sizeof *n);
    memset(n, i, sizeof *n);
    n->f = count;
    n->next = next;
    return n;
}
int main(void) {
    struct node *list = 0;
    long sum = 0;
    for (int i = 0; i < 50; i++) list = make(i, list);
    for (struct node *n = list; n; n = n->next) sum += pick(n, n->i % 7 & 7);
    char *area = aligned_alloc(64, 1024);
    save(area);
    fill(area, 9);
    sum += run((const unsigned char *)"\0\1\2\0\3", list) + area[3];
    printf("%ld %lu\n", sum, constant());
    return 0;
}
"#;

struct Subject {
    original: Vec<u8>,
    file: Vec<u8>,
}

/// What the audit sees of it.
struct View<'x> {
    m: &'x Module<'x>,
    cold: &'x Code,
    v: &'x Versions<'x>,
}

impl View<'_> {
    /// Tests of full code, with their accesses.
    fn tests(&self) -> impl Iterator<Item = (&Site, &Insn)> {
        tests_of(&self.v.full)
    }

    /// The program's instructions in full code, with those of plain code.
    fn pairs(&self) -> impl Iterator<Item = (&Insn, &Insn)> {
        let Versions { plain, full, full_of, .. } = self.v;
        let pair = |(a, b): (usize, &u32)| {
            Some((plain.insn(plain.own[a] as usize), full.insn(*full.own.get(*b as usize)? as usize)))
        };
        full_of.iter().enumerate().filter_map(pair)
    }

    /// Where an instruction of full code begins.
    fn begin(&self, i: &Insn) -> u64 {
        let full = &self.v.full;
        full.insn(full.begin(full.code.at(i.va).expect("in full code"))).va
    }
}

fn tests_of<'x>(v: &'x Version) -> impl Iterator<Item = (&'x Site, &'x Insn)> {
    v.sites.list.iter().filter(|s| matches!(s.kind, Kind::Check { .. })).map(|s| (s, v.insn(s.access)))
}

impl Subject {
    fn new(compiler: &str, source: &str, options: &[&str]) -> Subject {
        let name = if compiler == "cc" { "p.c" } else { "p.cc" };
        let original = compiled(compiler, name, source, options);
        Subject::of(original).expect("rewrite")
    }

    fn of(original: Vec<u8>) -> Option<Subject> {
        let options = Options { access: Access::Guard, ..Options::default() };
        let file = pipeline::rewrite(&original, "p", &options).ok()?.bytes;
        Some(Subject { original, file })
    }

    /// Plain code has learnt of every access, or of one in so many bytes of code.
    fn learnt(original: &[u8], one_in: usize) -> Option<Subject> {
        Subject::knowing(original, |k, _| k % one_in == 0)
    }

    /// It has learnt where this says so of the `k`th byte of code.
    fn knowing(original: &[u8], knows: impl Fn(usize, u8) -> bool) -> Option<Subject> {
        let options = Options { access: Access::Guard, ..Options::default() };
        let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(original).ok()?;
        let code = elf.sections().filter(|s| s.kind() == object::SectionKind::Text);
        let (object, mut knowledge) = (Object::of(original), Knowledge::default());
        let bytes = code.flat_map(|s| (s.address()..).zip(s.data().unwrap_or_default().iter().copied()));
        for (_, (at, _)) in bytes.enumerate().filter(|&(k, (_, byte))| knows(k, byte)) {
            knowledge.add(object, "p", Vaddr(at), 1);
        }
        let request = Request { options: &options, learnt: knowledge.of(object) };
        let rewrite =
            |sink: &mut dyn Sink| pipeline::rewrite_program(original, "p", request, &LibraryRecord::none(), sink);
        let done = pipeline::in_memory(rewrite).ok()?;
        assert!(done.report.learnt > 0);
        Some(Subject { original: original.to_vec(), file: done.bytes })
    }

    fn accepted(&self, name: &str) {
        for original in [None, Some(&self.original[..])] {
            let audit = verify_with(&self.file, name, original).expect("audit runs");
            assert!(audit.is_clean(), "{audit}");
        }
    }

    fn view<R>(&self, look: impl FnOnce(&View) -> R) -> R {
        let m = Module::read(&self.file, "p").expect("read module");
        let (plain, full) = m.text.data.split_at(m.plain_bytes());
        let text = decoder::decode(plain, m.text.va, &[]);
        let full = decoder::decode(full, m.text.va + plain.len() as u64, &[]);
        let cold = decoder::decode(m.cold.data, m.cold.va, &[]);
        let rodata = |va| m.bytes_at(va, 16).and_then(|b| b.try_into().ok());
        let sites = |text: &Code| -> Sites {
            let rodata = &rodata;
            find::find(&Context {
                text,
                cold: &cold,
                check_loads: true,
                check_stores: true,
                polls: true,
                guard: true,
                rodata,
            })
        };
        let (mut of_plain, of_full) = (sites(&text), sites(&full));
        redirects::mark(&redirects::admit(&m, &text, &mut super::Audit::default()), &mut of_plain);
        let (plain, full) = (Version::new(&text, &of_plain), Version::new(&full, &of_full));
        let v = Versions::pair(&m, plain, full, &mut super::Audit::default());
        look(&View { m: &m, cold: &cold, v: &v })
    }

    fn offset(&self, va: u64) -> usize {
        let m = Module::read(&self.file, "p").expect("read module");
        let s = m.segments.iter().find(|s| va.wrapping_sub(s.va) < s.file_bytes).expect("in the file");
        (s.file_off + (va - s.va)) as usize
    }

    /// The file with other bytes at some addresses.
    fn with(&self, changes: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut file = self.file.clone();
        for (va, bytes) in changes {
            let at = self.offset(*va);
            file[at..at + bytes.len()].copy_from_slice(bytes);
        }
        file
    }

    fn byte(&self, va: u64) -> u8 {
        self.file[self.offset(va)]
    }

    fn finds(&self, changes: &[(u64, Vec<u8>)], words: &str) {
        assert!(
            changes.iter().any(|(va, new)| self.file[self.offset(*va)..][..new.len()] != new[..]),
            "no change: {words}"
        );
        let reasons = match verify_with(&self.with(changes), "p", None) {
            Ok(audit) => audit.open.iter().map(|o| o.reason.clone()).collect(),
            Err(e) => vec![format!("{e:?}")],
        };
        let hit = reasons.iter().any(|r| words.split('|').any(|w| r.contains(w)));
        assert!(hit, "{words} not found for {changes:x?}: {reasons:?}");
    }

    /// The file with other words of the module info, each by its place from the end: the last ones are those of guarded code.
    fn with_words(&self, changes: &[(usize, u64)]) -> Vec<u8> {
        let mut file = self.file.clone();
        let at = file.windows(8).position(|w| w == contract::MODULE_MAGIC.to_le_bytes()).expect("module info");
        for (back, value) in changes {
            let at = at + 8 * (contract::ModuleInfo::WORDS - back);
            file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        file
    }

    /// Every one of these changes is found, for the reason; and there are some.
    fn finds_each(&self, changes: Vec<(u64, Vec<u8>)>, words: &str) {
        assert!(!changes.is_empty(), "nothing to change: {words}");
        changes.into_iter().for_each(|change| self.finds(&[change], words));
    }
}

fn found(file: &[u8], words: &str) {
    let reasons: Vec<String> = match verify_with(file, "p", None) {
        Ok(audit) => audit.open.iter().map(|o| o.reason.clone()).collect(),
        Err(e) => vec![format!("{e:?}")],
    };
    assert!(reasons.iter().any(|r| words.split('|').any(|w| r.contains(w))), "{words} not found: {reasons:?}");
}

fn subject() -> Subject {
    Subject::new("cc", SOURCE, &["-O2", "-fno-inline"])
}

/// A direct branch that leads elsewhere: its distance.
fn leading(i: &Insn, to: u64) -> Option<(u64, Vec<u8>)> {
    let by = to.wrapping_sub(i.end()) as i64;
    match i.len {
        2 => Some((i.va + 1, vec![i8::try_from(by).ok()? as u8])),
        _ => Some((i.end() - 4, i32::try_from(by).ok()?.to_le_bytes().to_vec())),
    }
}

#[test]
fn accepts_outputs_of_compilers() {
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let s = Subject::new("cc", SOURCE, &[level]);
        s.accepted(level);
        s.view(|view| {
            assert!(view.tests().count() > 20 && view.m.versions().expect("rows").len() > 20, "{level}");
        });
        Subject::new("cc", include_str!("planted_program.c"), &[level, "-no-pie"]).accepted(level);
    }
}

#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn accepts_exceptions() {
    Subject::new("c++", THROWS, &["-O0"]).accepted("-O0");
    let s = Subject::new("c++", THROWS, &["-std=c++14", "-O2"]);
    s.accepted("-O2");
    Subject::learnt(&s.original, 1).expect("rewrite").accepted("learnt");
}

#[test]
fn accepts_outputs_of_the_systems_programs() {
    for name in ["ls", "bash", "perl", "git", "python3.11"] {
        let Ok(original) = std::fs::read(format!("/usr/bin/{name}")) else { continue };
        Subject::of(original).expect("rewrite").accepted(name);
    }
}

#[test]
fn accepts_what_has_learnt() {
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let Subject { original, file } = Subject::new("cc", SOURCE, &[level, "-fno-inline"]);
        for one_in in [1, 2, 7] {
            let s = Subject::learnt(&original, one_in).expect("rewrite");
            s.accepted(level);
            s.view(|view| assert!(tests_of(&view.v.plain).count() > 3));
            if one_in == 1 {
                // Loops that have learnt poll.
                s.view(|view| assert!(view.v.plain.sites.list.iter().any(|s| s.kind == Kind::Poll)));
            }
            assert!(s.file == Subject::learnt(&original, one_in).expect("rewrite").file && s.file != file);
        }
    }
    let planted = compiled("cc", "p.c", include_str!("planted_program.c"), &["-O2", "-no-pie"]);
    Subject::learnt(&planted, 1).expect("rewrite").accepted("fixed addresses");
    for name in ["ls", "bash"] {
        let Ok(original) = std::fs::read(format!("/usr/bin/{name}")) else { continue };
        Subject::learnt(&original, 5).expect("rewrite").accepted(name);
    }
}

#[test]
fn finds_faults_in_tests() {
    let s = subject();
    faults_in_tests(&s, |v| &v.full);
    let learnt = Subject::learnt(&s.original, 1).expect("rewrite");
    faults_in_tests(&learnt, |v| &v.plain);
    faults_in_tests(&learnt, |v| &v.full);
    // Rows of the restart table, which the runtime asks whether plain code is in a test: each byte of its heads.
    let info = learnt.view(|view| view.m.info);
    let heads = (0..info.restart_count.div_ceil(64) * 8).map(|k| info.restart_heads_va + k);
    learnt.finds_each(heads.map(|va| (va, vec![learnt.byte(va).wrapping_add(1)])).collect(), "");
}

/// Where a test has spilled registers, its stub asks whether the access's own block allows it.
#[test]
fn finds_faults_in_tests_of_the_own_block() {
    let source = "__attribute__((noinline)) static long sweep(long *p, long n) {\n\
            long last = 7;\n\
            __asm__ volatile(\"1: mov %%rax, 8(%%rdi)\\n add $8, %%rdi\\n add 16(%%rdi), %%rcx\\n add %%rcx, %%rax\\n xor %%rdx, %%rax\\n\"\n\
                \"add %%r8, %%rax\\n xor %%r9, %%rax\\n add %%r10, %%rax\\n xor %%r11, %%rax\\n dec %%rsi\\n jnz 1b\"\n\
                : \"+D\"(p), \"+S\"(n), \"+a\"(last) : : \"rcx\", \"rdx\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\", \"cc\");\n\
            return last;\n\
        }\n\
        int main(void) { static long a[99]; return (int)sweep(a, 9); }";
    let original = Subject::new("cc", source, &["-O1"]).original;
    let s = Subject::learnt(&original, 1).expect("rewrite");
    s.accepted("as it is");
    let mut changes = vec![];
    s.view(|view| {
        let is_level = |i: &Insn| i.mem.is_some_and(|m| m.disp as u64 == TAG_TABLE_BASE && i.op == 0xf6);
        for version in [&view.v.plain, &view.v.full] {
            for (site, access) in tests_of(version) {
                let hot = &version.code.insns[site.start..site.access];
                let branch = hot.iter().find(|i| i.flow == Flow::Cond).expect("a branch");
                let stub = &view.cold.insns[view.cold.at(branch.target).expect("a stub")..];
                let gate = stub.iter().position(|i| matches!(i.flow, Flow::Call | Flow::CallInd)).expect("a call");
                let Some(own) = stub[..gate].iter().position(is_level) else { continue };
                // In front of it: and, cmp, ja, lea or mov, shr.
                let [test, denied, and, limit, straddles] = [own, own + 1, own - 5, own - 4, own - 3].map(|k| &stub[k]);
                let allowing = s.byte(test.end() - 1);
                changes.push((test.end() - 1, vec![if allowing == 8 { 0xc } else { 0xe }]));
                changes.push((and.end() - 1, vec![31]));
                changes.push((limit.end() - 1, vec![s.byte(limit.end() - 1) + 1]));
                changes.push((straddles.va, vec![0x72]));
                changes.push((denied.va, vec![0x75]));
                // The branch behind the look at the doorbell.
                changes.push((stub[own + 3].va + 1, vec![0]));
                let leaves = stub[own..].iter().find(|i| i.flow == Flow::Jump).expect("a way to the access");
                changes.extend(leading(leaves, access.va + 1));
            }
        }
    });
    assert!(changes.len() >= 4 * 7, "{}", changes.len());
    s.finds_each(changes, "");
}

/// A test that keeps a register in the red zone must be known as such to the runtime, which would begin it again. The scale of no index makes no difference but
/// in the bytes that it looks at.
#[test]
fn finds_tests_that_may_begin_again_where_they_have_changed_what_lives() {
    let learnt = Subject::learnt(&subject().original, 1).expect("rewrite");
    let mut changes = vec![];
    learnt.view(|view| {
        for (site, _) in tests_of(&view.v.plain) {
            let first = view.v.plain.insn(site.start);
            if [0x89, 0x24].map(Some) == [1, 3].map(|k| (first.len == 5).then(|| learnt.byte(first.va + k))) {
                changes.push((first.va + 3, vec![0x64]));
            }
        }
    });
    learnt.finds_each(changes, "may begin again here");
}

/// Where the next block is not accessible, a loop of plain code that has learnt may have no place but its stubs where it sees that a peer has rung. One that looks,
/// and goes on alike, or looks elsewhere, is found.
#[test]
fn finds_stubs_that_do_not_answer_the_doorbell() {
    let s = subject();
    for s in [Subject::learnt(&s.original, 1).expect("rewrite"), s] {
        let (mut branches, mut words) = (vec![], vec![]);
        s.view(|view| {
            let looks = |i: &Insn| {
                i.op == 0x83 && i.mem.is_some_and(|m| m.base == NONE && m.disp as u64 == contract::POLL_WORD)
            };
            for stub in view.cold.insns.windows(4) {
                let [test, _, look, branch] = stub else { continue };
                if test.op == 0xf6 && looks(look) && branch.len == 2 {
                    branches.push((branch.va + 1, vec![0]));
                    words.extend([(look.end() - 1, vec![1]), (look.end() - 5, vec![s.byte(look.end() - 5) ^ 4])]);
                }
            }
        });
        assert!(branches.len() > 2, "{branches:x?}");
        s.finds_each(branches, "without a look at the doorbell|does not prove it");
        s.finds_each(words, "cold stub|does not prove it");
    }
}

/// A load is tested as the store to the same bytes behind it. Without that store, which becomes a load here, the test asks for too much.
#[test]
fn finds_loads_that_are_tested_as_stores_of_nothing() {
    let source = "__attribute__((noinline)) static long add(long *to, long n) { long was = *to; *to = was + n; return was; }\n\
        int main(int argc, char **argv) { static long a[4]; return (int)add(a + argc % 4, argc); }";
    let s = Subject::new("cc", source, &["-O1"]);
    s.accepted("as it is");
    let mut changes = vec![];
    s.view(|view| {
        let is_wide = |i: &&Insn| matches!(i.mem, Some(Mem { base, index: NONE, .. }) if base == 7) && i.op == 0x89;
        for code in [view.v.plain.code, view.v.full.code] {
            let store = code.insns.iter().find(is_wide).expect("a store");
            let opcode = (store.va..store.end()).find(|va| s.byte(*va) == 0x89).expect("its opcode");
            changes.push((opcode, vec![0x8b]));
        }
    });
    s.finds(&changes, "asks for the right to store, and nothing that is certainly executed stores");
}

/// Plants faults into the tests of one version.
fn faults_in_tests(s: &Subject, version: for<'x, 'y> fn(&'y Versions<'x>) -> &'y Version<'x>) {
    let (mut prefixes, mut levels, mut branches, mut other, mut back, mut zero, mut answers) =
        (vec![], vec![], vec![], vec![], vec![], vec![], vec![]);
    let (mut called, mut in_line) = (0, 0);
    s.view(|view| {
        let tested = version(view.v);
        for (site, access) in tests_of(tested) {
            let hot = &tested.code.insns[site.start..site.access];
            let level =
                |i: &&Insn| i.mem.is_some_and(|m| m.disp as u64 == TAG_TABLE_BASE && matches!(i.op, 0x80 | 0xf6));
            let branch = hot.iter().find(|i| i.flow == Flow::Cond).expect("a branch");
            let call = hot.iter().find(|i| i.flow == Flow::Call);
            let stub = &view.cold.insns[view.cold.at(call.unwrap_or(branch).target).expect("a stub")..];
            let test = hot.iter().find(level).or_else(|| stub.iter().find(level)).expect("a test");
            prefixes.push((access.va, vec![0x3e]));
            let weaker = match s.byte(test.end() - 1) {
                8 => 0xc,
                0xc => 0xe,
                other => other / 2,
            };
            levels.push((test.end() - 1, vec![weaker]));
            if access.flow == Flow::Next {
                other.push((access.end() - 1, vec![s.byte(access.end() - 1) ^ 8]));
            }
            // What asks whether the memory is private, and the branch behind it.
            let asks = stub.iter().position(|i| level(&i) && i.va != test.va).expect("a test");
            zero.push((stub[asks].end() - 1, vec![1]));
            match call {
                Some(_) => {
                    called += 1;
                    branches.extend([(branch.va, vec![0x73]), (branch.va + 1, vec![0]), (branch.va + 1, vec![2])]);
                    zero.push((stub[asks + 1].va, vec![s.byte(stub[asks + 1].va) ^ 1]));
                    // The first of each kind is the test's own.
                    for op in [0xf8, 0xf9] {
                        let answer = stub.iter().find(|i| i.op == op).expect("an answer");
                        answers.push((answer.va, vec![op as u8 ^ 1]));
                    }
                }
                None => {
                    in_line += 1;
                    branches.push((branch.va + 1, vec![s.byte(branch.va + 1) ^ 1]));
                    let leaves = stub.iter().find(|i| i.target == access.va + 1).expect("a way for private memory");
                    // To the access with its prefix, to the test, or into the stub.
                    let places = [access.va, tested.insn(site.start).va, branch.target];
                    back.extend(places.iter().filter_map(|&to| leading(leaves, to)));
                }
            }
        }
    });
    assert!(in_line > 0 && called + in_line > 10, "{called} {in_line}");
    s.finds_each(prefixes, "without the prefix|does not prove it");
    // Of what is called, the finding is of the first place where the sequence might begin.
    s.finds_each(levels, "does not prove it|cold stub");
    s.finds_each(branches, "goes to the alias without a test");
    s.finds_each(other, "");
    s.finds_each(zero, "private|does not prove it|cold stub");
    // Tests of plain code are in line.
    if called != 0 {
        s.finds_each(answers, "cold stub");
    }
    s.finds_each(back, "cold stub|does not ask first|does not prove it");
}

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

/// The tag table is mapped at its alias only: without the prefix a test faults. The other prefix does nothing.
#[test]
fn finds_tests_of_tags_elsewhere_than_at_the_alias() {
    let s = subject();
    let (mut hot, mut cold) = (vec![], vec![]);
    s.view(|view| {
        let tests = |code: &Code| -> Vec<(u64, Vec<u8>)> {
            code.insns.iter().filter(|i| is_tag_test_at_alias(i)).map(|i| (i.va, vec![0x3e])).collect()
        };
        (hot, cold) = (tests(view.v.full.code), tests(view.cold));
        assert!(
            !hot.is_empty() && cold.len() > hot.len(),
            "each stub tests a tag, and so do tails, and tests that are called"
        );
    });
    s.finds_each(hot, "no check sequence leads to this test");
    s.finds_each(cold, "unexpected instruction|unexpected branch|does not prove it");
}

#[test]
fn finds_faults_in_redirections() {
    let s = subject();
    let (mut nops, mut gone, mut away, mut led_to, mut sprung, mut run_into) =
        (vec![], vec![], vec![], vec![], vec![], vec![]);
    let (info, rows) = s.view(|view| {
        let rows = view.m.redirects().expect("rows");
        let (plain, full) = (&view.v.plain, &view.v.full);
        let branch = |v: &Version, to: u64| {
            let mut far = v.own.iter().map(|&k| *v.insn(k as usize)).filter(|i| i.len >= 5 && i.target != NO_TARGET);
            let i = far.find(|i| matches!(i.flow, Flow::Jump | Flow::Call | Flow::Cond)).expect("a branch");
            leading(&i, to)
        };
        for &(from, to) in &rows {
            let jump = from - 5;
            nops.extend([(from, vec![0x0f, 0x1f, 0x40, 0]), (from, contract::REDIRECTED.to_vec())]);
            gone.extend([(jump, vec![0xcc; 5]), (jump, vec![0xe8])]);
            let by = |to: u64| (to.wrapping_sub(from) as i32).to_le_bytes().to_vec();
            let other = rows.iter().find(|r| r.1 != to).expect("another function").1;
            away.extend(
                [from, other, to + 1, view.begin(full.insn(*full.own.last().expect("code") as usize))]
                    .map(|to| (jump + 1, by(to))),
            );
            led_to.extend([branch(plain, jump), branch(full, jump)].into_iter().flatten());
            let k = plain.code.at(jump).expect("the jump");
            let before = (0..k).rev().find(|&k| !plain.insn(k).is_nop() && !plain.insn(k).is_int3());
            let before = before.map(|k| plain.insn(k)).filter(|i| i.flow == Flow::Ret && i.len == 1);
            run_into.extend(before.map(|i| (i.va, vec![0x90])));
        }
        for o in view.m.old_code() {
            for k in 0..o.data.len().saturating_sub(5) {
                let va = o.va + k as u64;
                let by = i32::from_le_bytes(o.data[k + 1..k + 5].try_into().expect("four bytes"));
                let to = (va + 5).wrapping_add(by as u64);
                if o.data[k] == 0xe9 && rows.iter().any(|r| r.0 == to) {
                    sprung.push((va + 1, (by - 5).to_le_bytes().to_vec()));
                }
            }
        }
        (view.m.info, rows)
    });
    assert!(rows.len() > 5 && run_into.len() > 2);
    s.finds_each(nops, "begins with no instruction that may be overwritten");
    s.finds_each(gone, "has no jump there in front");
    s.finds_each(away, "has no jump there in front");
    s.finds_each(led_to, "lands between a check and its access|leads elsewhere than");
    s.finds_each(sprung, "leads between a check and its access");
    s.finds_each(run_into, "is reached by what stands in front of it");
    // Row and jump agree, and lead to another function: the first row stands whole in the head of its group.
    let (from, _) = rows[0];
    for &(_, other) in &rows[1..] {
        let offset = (other.wrapping_sub(info.new_base_va) as u32).to_le_bytes().to_vec();
        let jump = (from - 4, (other.wrapping_sub(from) as i32).to_le_bytes().to_vec());
        s.finds(
            &[(info.redirect_heads_va + 4, offset), jump],
            "does not lead to where the function begins in full code",
        );
    }
    // The table.
    let found = |words: &[(usize, u64)], why: &str| found(&s.with_words(words), why);
    found(&[(4, info.redirect_codes_va + 1)], "");
    found(&[(3, info.redirect_code_bytes - 1)], "contradict each other");
    found(&[(3, info.redirect_code_bytes + 1)], "contradict each other");
    found(&[(2, info.redirect_heads_va + 4)], "");
    found(&[(1, info.redirect_count - 1)], "contradict each other");
    found(&[(1, 0), (3, 0)], "has no row for this function");
    let codes = (0..info.redirect_code_bytes).map(|k| info.redirect_codes_va + k);
    s.finds_each(codes.map(|va| (va, vec![s.byte(va).wrapping_add(1)])).collect(), "");
    // The last row removed: its code is the last bytes. The jump, and the nop, then belong to nothing.
    let removed = |bytes: u64| s.with_words(&[(1, info.redirect_count - 1), (3, info.redirect_code_bytes - bytes)]);
    let readable = (1..=16).map(removed).find(|file| Module::read(file, "p").expect("module").redirects().is_some());
    let mut file = readable.expect("a table with a row less");
    self::found(&file, "plain code leads to full code");
    let reasons = verify_with(&file, "p", Some(&s.original)).expect("audit runs").open;
    assert!(reasons.iter().any(|o| o.reason.contains("is not the instruction of the original")), "{reasons:?}");
    let at = s.offset(rows[rows.len() - 1].0);
    file[at - 5..at].fill(0xcc);
    self::found(&file, "has no row for this function");
}

/// The tag table of tested code is elsewhere than that of guarded code: each kind of code has its runtime.
#[test]
fn finds_the_runtime_of_the_other_kind_of_code() {
    let original = compiled("cc", "p.c", "int main(void) { return 0; }", &["-O1"]);
    for (access, other) in [(Access::Guard, Access::Tests), (Access::Tests, Access::Guard)] {
        for runtime in [access, other] {
            let options = Options { access, ..Options::default() };
            let blob = Blob::of(runtime).expect("a runtime");
            let rewrite = |sink: &mut dyn Sink| {
                pipeline::rewrite_with_runtime(&original[..], "p", &options, &LibraryRecord::none(), &blob, sink)
            };
            let file = pipeline::in_memory(rewrite).expect("rewrite").bytes;
            let audit = verify_with(&file, "p", None).expect("audit runs");
            assert_eq!(audit.is_clean(), runtime == access, "{audit}");
            let serves = |o: &super::super::Finding| o.reason.contains("serves the other kind of code");
            assert_eq!(audit.open.iter().any(serves), runtime != access, "{audit}");
        }
    }
}

/// The first byte of an instruction, REX.W, becomes the prefix; the instruction then accesses four bytes at the alias.
#[test]
fn finds_the_prefix_where_nothing_was_tested() {
    let s = subject();
    let (mut plain, mut full, mut alias) = (vec![], vec![], vec![]);
    s.view(|view| {
        let wide = |i: &&Insn| i.mem.is_some() && s.byte(i.va) == 0x48;
        plain.extend(view.v.plain.code.insns.iter().filter(wide).map(|i| (i.va, vec![GS])));
        full.extend(view.v.full.code.insns.iter().filter(wide).map(|i| (i.va, vec![GS])));
        let address = (contract::SEGMENT_BASE + contract::ALIAS_DISTANCE + 0x1234).to_le_bytes().to_vec();
        let named = |i: &&Insn| i.mem.is_some_and(|m| m.disp == 0x1234_5678_9abc);
        let constants = view.v.plain.code.insns.iter().filter(named);
        alias.extend(constants.map(|i| (i.end() - 8, address.clone())));
    });
    assert!(plain.len() > 10 && full.len() > 10);
    s.finds_each(plain, "goes to the alias without a test");
    s.finds_each(full, "goes to the alias without a test|sequence|undo|changed");
    s.finds_each(alias, "of the alias");
}

#[test]
fn finds_versions_that_differ() {
    let s = subject();
    let (mut other, mut middle, mut away, mut calls, mut to_full) = (vec![], vec![], vec![], vec![], vec![]);
    let (mut polls, mut loops, mut heads, mut behind_poll) = (vec![], vec![], vec![], vec![]);
    s.view(|view| {
        let (plain, full) = (&view.v.plain, &view.v.full);
        let inside = (0..full.code.insns.len()).filter(|&k| get(&full.sites.protected, k)).map(|k| full.insn(k).va);
        let inside: Vec<u64> = inside.collect();
        for (p, f) in view.pairs() {
            match p.flow {
                Flow::Next if p.imm != 0 && p.mem.is_none() => other.push((f.end() - 1, vec![s.byte(f.end() - 1) ^ 1])),
                Flow::Jump | Flow::Cond if plain.code.contains(p.target) && full.code.contains(f.target) => {
                    let at = full.own_from(full.code.at(f.target).expect("an instruction"));
                    let own = full.insn(full.own[at] as usize).va;
                    let polled = full.polls(full.code.at(f.target).expect("as above")..full.own[at] as usize) != 0;
                    behind_poll.extend(leading(f, own).filter(|_| polled));
                    if polled && f.target <= f.va {
                        heads.push(own);
                    }
                    middle.extend(inside.iter().find_map(|&va| leading(f, va)));
                    away.extend(leading(f, p.target));
                    to_full.extend(leading(p, f.target));
                    let next = full.own.iter().map(|&k| full.insn(k as usize).va).find(|&va| va > f.target + 32);
                    away.extend(next.and_then(|va| leading(f, va)));
                }
                Flow::Call => {
                    let to = plain.code.at(p.target).map(|k| plain.own[plain.own_from(k)] as usize);
                    let to = to.and_then(|k| view.v.full(k)).map(|k| view.begin(full.insn(k)));
                    calls.extend(to.and_then(|to| leading(f, to)));
                    to_full.extend(to.and_then(|to| leading(p, to)));
                }
                _ => {}
            }
        }
        assert!(plain.sites.list.iter().all(|s| s.kind != Kind::Poll), "a poll in plain code");
        for site in full.sites.list.iter().filter(|s| s.kind == Kind::Poll) {
            let (from, to) = (full.insn(site.start).va, full.insn(site.access).va);
            let list = if heads.contains(&to) { &mut loops } else { &mut polls };
            list.push((from, vec![0x90; (to - from) as usize]));
        }
    });
    s.finds_each(other, "full code that is no instruction|leads to another instruction|what follows it");
    s.finds_each(middle, "leads elsewhere than");
    s.finds_each(away, "leads elsewhere than");
    s.finds_each(calls, "leads elsewhere than");
    s.finds_each(to_full, "plain code leads to full code");
    s.finds_each(loops, "without a poll on the way");
    // Some that the program needs, and guarded code does not: what comes there without one comes from code that exists once.
    s.finds_each(polls, "leads to an unknown place|has no poll in front of it|belongs to no recognised check");
    s.finds_each(behind_poll, "leads elsewhere than");
}

#[test]
fn finds_jump_tables_that_lead_out_of_full_code() {
    let s = Subject::new("cc", SOURCE, &["-O2", "-fno-inline", "-no-pie", "-fno-pie"]);
    let mut entries = vec![];
    s.view(|view| {
        let rodata = view.m.rodata.as_ref().expect("tables");
        let (plain, full) = (&view.v.plain, &view.v.full);
        for (k, word) in rodata.data.chunks_exact(8).enumerate() {
            let to = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            if !full.code.contains(to) {
                continue;
            }
            let va = rodata.va + 8 * k as u64;
            let at = full.landing(to).map(|l| l.at).expect("an instruction");
            let in_plain = plain.insn(plain.own[view.v.plain_of[at] as usize] as usize).va;
            entries.push((va, in_plain.to_le_bytes().to_vec()));
            entries.push((va, (to + 1).to_le_bytes().to_vec()));
        }
    });
    s.finds_each(entries, "jump table in full code");
}

#[test]
fn finds_faults_in_the_version_table() {
    let s = subject();
    let (info, first) = s.view(|view| (view.m.info, view.m.versions().expect("rows")[0]));
    let words = contract::ModuleInfo { ..info }.words();
    let place = |value: u64| words.iter().rposition(|w| *w == value).expect("a word");
    let at = s.file.windows(8).position(|w| w == contract::MODULE_MAGIC.to_le_bytes()).expect("module info");
    let field = |back: usize, value: u64| s.with_words(&[(back, value)]);
    found(&field(9, 0), "full code does not begin in the code");
    found(&field(9, info.full_at + 3), "");
    found(&field(9, info.full_at - 40), "");
    found(&field(9, info.code_bytes + 64), "full code does not begin in the code");
    found(&field(8, info.version_codes_va + 1), "");
    found(&field(7, info.version_code_bytes - 1), "contradict each other");
    found(&field(7, info.version_code_bytes + 1), "contradict each other");
    found(&field(6, info.version_heads_va + 4), "");
    found(&field(5, info.version_count - 1), "contradict each other");
    found(&field(5, 0), "contradict each other|has no row");
    let flags = {
        let mut file = s.file.clone();
        let at = at + 8 * place(info.flags).min(1);
        file[at..at + 8].copy_from_slice(&(info.flags & !contract::module_flags::GUARD).to_le_bytes());
        file
    };
    found(&flags, "the flags do not say so");
    // Rows changed, each code and each head.
    let codes = (0..info.version_code_bytes).map(|k| info.version_codes_va + k);
    let plus = |va: u64, by: u8| (va, vec![s.byte(va).wrapping_add(by)]);
    s.finds_each(codes.clone().map(|va| plus(va, 1)).collect(), "");
    s.finds_each(codes.map(|va| plus(va, 0x10)).collect(), "");
    let heads = info.version_count.div_ceil(64) * 12;
    s.finds_each((0..heads).map(|k| plus(info.version_heads_va + k, 1)).collect(), "");
    assert!(first.0 < first.1);
    // The last row removed: its code is the last byte, or the last two. A row added: where there is room behind the codes.
    for bytes in 1..=2 {
        let file = s.with_words(&[(5, info.version_count - 1), (7, info.version_code_bytes - bytes)]);
        found(&file, "has no row for this access|contradict each other");
    }
    let mut more = s.with_words(&[(5, info.version_count + 1), (7, info.version_code_bytes + 1)]);
    let behind = s.offset(info.version_codes_va + info.version_code_bytes);
    more[behind] = 0x11;
    found(&more, "its row to|needs no test|contradict each other");
}

/// Each byte of the frames' rules, and of their exception tables, of full code.
#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn finds_frames_that_differ() {
    let s = Subject::new("c++", THROWS, &["-std=c++14", "-O2"]);
    let (mut rules, mut ranges) = (vec![], vec![]);
    s.view(|view| {
        let full = &view.v.full.code;
        let bytes = |va: u64, n: usize| view.m.bytes_at(va, n).expect("in the file");
        for f in view.m.frames.list.iter().filter(|f| full.contains(f.from) && f.to - f.from > 16) {
            let n = u32::from_le_bytes(bytes(f.record, 4).try_into().expect("four bytes")) as usize;
            ranges.push((f.record + 8, (f.from.wrapping_sub(f.record + 8) as i32 + 1).to_le_bytes().to_vec()));
            ranges.push((f.record + 12, ((f.to - f.from) as u32 - 16).to_le_bytes().to_vec()));
            let record = bytes(f.record, n + 4);
            // DW_CFA_def_cfa_offset, behind an advance.
            let steps = (18..record.len() - 1).filter(|&k| record[k] == 0x0e && (0x41..0x80).contains(&record[k - 1]));
            rules.extend(steps.map(|k| (f.record + k as u64 + 1, vec![record[k + 1] + 8])));
        }
    });
    s.finds_each(ranges, "");
    s.finds_each(rules, "the frame's rules");
    let pads = s.view(|view| {
        let full = &view.v.full.code;
        let table = view.m.sections.iter().find(|s| s.name == ".gcc_except_table").expect("exception tables");
        let pads = view.m.pads.iter().filter(|p| full.contains(p.from)).count();
        (table.va..table.va + table.data.len() as u64, pads)
    });
    assert!(pads.1 > 3);
    let hits = pads.0.filter(|&va| {
        let change = [(va, vec![s.byte(va).wrapping_add(1)])];
        let audit = verify_with(&s.with(&change), "p", None);
        audit.is_ok_and(|a| a.open.iter().any(|o| o.reason.contains("the landing pad is") && full_at(&s, o.at)))
    });
    assert!(hits.count() >= pads.1 / 2);
}

fn full_at(s: &Subject, va: u64) -> bool {
    s.view(|view| view.v.full.code.contains(va))
}

#[test]
fn finds_springboards_to_full_code() {
    let s = subject();
    let mut changes = vec![];
    s.view(|view| {
        for o in view.m.old_code() {
            for k in 0..o.data.len().saturating_sub(5) {
                let va = o.va + k as u64;
                let by = i32::from_le_bytes(o.data[k + 1..k + 5].try_into().expect("four bytes"));
                let to = (va + 5).wrapping_add(by as u64);
                let plain = &view.v.plain;
                let Some(at) = plain.landing(to).filter(|_| o.data[k] == 0xe9).map(|l| l.at) else { continue };
                if let Some(f) = view.v.full(plain.own[at] as usize) {
                    let to = view.begin(view.v.full.insn(f));
                    changes.push((va + 1, (to.wrapping_sub(va + 5) as i32).to_le_bytes().to_vec()));
                }
            }
        }
    });
    s.finds_each(changes, "leads to no instruction of the new code");
}

/// What is changed at random in full code and in stubs is found, but for what the processor does not ask.
#[test]
fn finds_bytes_changed_at_random() {
    let s = subject();
    let places: Vec<(u64, Insn)> = s.view(|view| {
        let stubs = view.cold.insns.iter();
        let all = view.v.full.code.insns.iter().chain(stubs).filter(|i| !i.is_nop() && !i.is_int3());
        all.flat_map(|i| (i.va..i.end()).map(|va| (va, *i))).collect()
    });
    let mut numbers = Numbers(0x1357_9bdf_0246_8ace);
    // Another encoding of the same instruction: bits of REX that nothing uses, the scale of no index.
    let record = |i: &Insn| {
        let mem = i.mem.map(|m| Mem { scale: if m.index == NONE { 1 } else { m.scale }, ..m });
        let bits = if i.size == 1 { i.bits & !WIDE } else { i.bits };
        // The register field of `setcc` says nothing.
        let ext = if (0x190..=0x19f).contains(&i.op) { 0 } else { i.ext };
        (i.op, ext, mem, i.imm, i.r0, i.r1, bits, i.target, i.len)
    };
    // A poll's stub may repeat the poll.
    let polls: Vec<(u64, u64)> = s.view(|view| {
        let of = |v: &Version| -> Vec<(u64, u64)> {
            let polls = v.sites.list.iter().filter(|s| s.kind == Kind::Poll);
            polls.map(|s| (v.insn(s.access).va, v.insn(s.start).va)).collect()
        };
        [of(&view.v.plain), of(&view.v.full)].concat()
    });
    let mut missed = vec![];
    for _ in 0..1500 {
        let (va, i) = places[numbers.next(places.len())];
        let new = s.byte(va).wrapping_add(1 + numbers.next(255) as u8);
        let file = s.with(&[(va, vec![new])]);
        if verify_with(&file, "p", None).is_ok_and(|a| a.is_clean()) {
            let at = s.offset(i.va);
            let now = decoder::decode(&file[at..at + 15], i.va, &[]).insns.first().copied();
            let repeats = now.is_some_and(|now| now.flow == i.flow && polls.contains(&(i.target, now.target)));
            let same = now.is_some_and(|now| record(&now) == record(&i) && i.target == NO_TARGET);
            // Of lahf and sahf: flags that are dead as the audit finds need not be kept.
            let keeps_flags = matches!(i.op, 0x9e | 0x9f);
            if !same && !repeats && !keeps_flags {
                missed.push(format!("{va:#x}: {:#x} -> {new:#x} of {i:x?}", s.byte(va)));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
