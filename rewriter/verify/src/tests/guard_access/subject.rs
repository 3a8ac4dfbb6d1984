//! Outputs of guarded code, what the audit sees of them, and changes in them.
//!
//! All faults are looked for without the original, whose build id would tell of any change of the code.

use crate::decode::decoder::{self, Code};
use crate::decode::insn::Insn;
use crate::file::module::Module;
use crate::judge::versions::pairs::{Version, Versions};
use crate::judge::versions::redirects;
use crate::sites::find;
use crate::sites::site::{Context, Site, SiteKind, Sites};
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::compiled;
use blizzard::base::addresses::Vaddr;
use blizzard::base::learnt::{Knowledge, Object};
use blizzard::base::options::{AccessMode, Options};
use blizzard::base::output_file::OutputSink;
use blizzard::pipeline::{self, Request};
use blizzard::write::file::LibraryRecord;
use blizzard_contract::{self as contract};
use object::{Object as _, ObjectSection as _};

/// Stores, loads, calls and jumps through memory, a switch, computed gotos, strings, an area of more than 64 bytes.
pub const SOURCE: &str = r#"
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

pub struct Subject {
    pub original: Vec<u8>,
    pub file: Vec<u8>,
}

/// What the audit sees of it.
pub struct View<'x> {
    pub m: &'x Module<'x>,
    pub cold: &'x Code,
    pub v: &'x Versions<'x>,
}

impl View<'_> {
    /// Tests of full code, with their accesses.
    pub fn tests(&self) -> impl Iterator<Item = (&Site, &Insn)> {
        tests_of(&self.v.full)
    }

    /// The program's instructions in full code, with those of plain code.
    pub fn pairs(&self) -> impl Iterator<Item = (&Insn, &Insn)> {
        let Versions { plain, full, full_of, .. } = self.v;
        let pair = |(a, b): (usize, &u32)| {
            Some((plain.insn(plain.own[a] as usize), full.insn(*full.own.get(*b as usize)? as usize)))
        };
        full_of.iter().enumerate().filter_map(pair)
    }

    /// Where an instruction of full code begins.
    pub fn begin(&self, i: &Insn) -> u64 {
        let full = &self.v.full;
        full.insn(full.begin(full.code.at(i.va).expect("in full code"))).va
    }
}

pub fn tests_of<'x>(v: &'x Version) -> impl Iterator<Item = (&'x Site, &'x Insn)> {
    v.sites.list.iter().filter(|s| matches!(s.kind, SiteKind::Check { .. })).map(|s| (s, v.insn(s.access)))
}

impl Subject {
    pub fn new(compiler: &str, source: &str, options: &[&str]) -> Subject {
        let name = if compiler == "cc" { "p.c" } else { "p.cc" };
        let original = compiled(compiler, name, source, options);
        Subject::of(original).expect("rewrite")
    }

    pub fn of(original: Vec<u8>) -> Option<Subject> {
        let options = Options { access: AccessMode::Guard, ..Options::default() };
        let file = pipeline::rewrite(&original, "p", &options).ok()?.bytes;
        Some(Subject { original, file })
    }

    /// Plain code has learnt of every access, or of one in so many bytes of code.
    pub fn learnt(original: &[u8], one_in: usize) -> Option<Subject> {
        Subject::knowing(original, |k, _| k % one_in == 0)
    }

    /// It has learnt where this says so of the `k`th byte of code.
    pub fn knowing(original: &[u8], knows: impl Fn(usize, u8) -> bool) -> Option<Subject> {
        let options = Options { access: AccessMode::Guard, ..Options::default() };
        let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(original).ok()?;
        let code = elf.sections().filter(|s| s.kind() == object::SectionKind::Text);
        let (object, mut knowledge) = (Object::of(original), Knowledge::default());
        let bytes = code.flat_map(|s| (s.address()..).zip(s.data().unwrap_or_default().iter().copied()));
        for (_, (at, _)) in bytes.enumerate().filter(|&(k, (_, byte))| knows(k, byte)) {
            knowledge.add(object, "p", Vaddr(at), 1);
        }
        let request = Request { options: &options, learnt: knowledge.of(object) };
        let rewrite =
            |sink: &mut dyn OutputSink| pipeline::rewrite_program(original, "p", request, &LibraryRecord::none(), sink);
        let done = pipeline::in_memory(rewrite).ok()?;
        assert!(done.report.learnt > 0);
        Some(Subject { original: original.to_vec(), file: done.bytes })
    }

    pub fn accepted(&self, name: &str) {
        for original in [None, Some(&self.original[..])] {
            let audit = verify_with(&self.file, name, original).expect("audit runs");
            assert!(audit.is_clean(), "{audit}");
        }
    }

    pub fn view<R>(&self, look: impl FnOnce(&View) -> R) -> R {
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
        redirects::mark(&redirects::admit(&m, &text, &mut crate::Audit::default()), &mut of_plain);
        let (plain, full) = (Version::new(&text, &of_plain), Version::new(&full, &of_full));
        let v = Versions::pair(&m, plain, full, &mut crate::Audit::default());
        look(&View { m: &m, cold: &cold, v: &v })
    }

    pub fn offset(&self, va: u64) -> usize {
        let m = Module::read(&self.file, "p").expect("read module");
        let s = m.segments.iter().find(|s| va.wrapping_sub(s.va) < s.file_bytes).expect("in the file");
        (s.file_off + (va - s.va)) as usize
    }

    /// The file with other bytes at some addresses.
    pub fn with(&self, changes: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut file = self.file.clone();
        for (va, bytes) in changes {
            let at = self.offset(*va);
            file[at..at + bytes.len()].copy_from_slice(bytes);
        }
        file
    }

    pub fn byte(&self, va: u64) -> u8 {
        self.file[self.offset(va)]
    }

    pub fn finds(&self, changes: &[(u64, Vec<u8>)], words: &str) {
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
    pub fn with_words(&self, changes: &[(usize, u64)]) -> Vec<u8> {
        let mut file = self.file.clone();
        let at = file.windows(8).position(|w| w == contract::MODULE_MAGIC.to_le_bytes()).expect("module info");
        for (back, value) in changes {
            let at = at + 8 * (contract::ModuleInfo::WORDS - back);
            file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        file
    }

    /// Every one of these changes is found, for the reason; and there are some.
    pub fn finds_each(&self, changes: Vec<(u64, Vec<u8>)>, words: &str) {
        assert!(!changes.is_empty(), "nothing to change: {words}");
        changes.into_iter().for_each(|change| self.finds(&[change], words));
    }
}

pub fn found(file: &[u8], words: &str) {
    let reasons: Vec<String> = match verify_with(file, "p", None) {
        Ok(audit) => audit.open.iter().map(|o| o.reason.clone()).collect(),
        Err(e) => vec![format!("{e:?}")],
    };
    assert!(reasons.iter().any(|r| words.split('|').any(|w| r.contains(w))), "{words} not found: {reasons:?}");
}

pub fn subject() -> Subject {
    Subject::new("cc", SOURCE, &["-O2", "-fno-inline"])
}

/// A direct branch that leads elsewhere: its distance.
pub fn leading(i: &Insn, to: u64) -> Option<(u64, Vec<u8>)> {
    let by = to.wrapping_sub(i.end()) as i64;
    match i.len {
        2 => Some((i.va + 1, vec![i8::try_from(by).ok()? as u8])),
        _ => Some((i.end() - 4, i32::try_from(by).ok()?.to_le_bytes().to_vec())),
    }
}
