//! The runtime's entry without the rewriter: the blob is appended to compiled programs whose code stays as it is.
//!
//! Purpose: prove that the runtime gets in first and that the program then starts as if nothing had happened, for every kind of
//! executable: dynamic (PIE and not), static, static-PIE. The appended file has the two program-header tables of DESIGN.md: the
//! kernel's without PT_INTERP, the loader's with PT_PHDR and PT_INTERP.

use crate::sources;
use blizzard::base::addresses::Vaddr;
use blizzard::write::runtime_blob::{Blob, module_info_bytes};
use blizzard_contract::{self as contract, ModuleInfo};
use blizzard_test_harness::executable;
use object::elf::{self, FileHeader64, PT_INTERP, PT_LOAD, PT_PHDR, ProgramFlags, ProgramHeader64, ProgramType};
use object::pod::bytes_of_slice;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian as LE, U32, U64};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

blizzard_test_harness::module! {
    programs_of_every_kind_start_unchanged,
    the_start_needs_no_more_stack_than_the_original,
    programs_start_under_the_limits_that_the_original_needs,
    an_installed_program_starts,
    failures_before_the_program_are_one_clear_line,
    a_trap_byte_is_redirected_and_a_breakpoint_of_the_program_is_not,
    threads_and_dlopen_work_behind_the_entry,
}

const PAGE: u64 = 4096;
const PHDR_BYTES: u64 = 56;

type Phdr = ProgramHeader64<LE>;

/// A program header for a part of the file at `offset` that stands at `vaddr`.
fn program_header(kind: ProgramType, flags: ProgramFlags, [offset, vaddr, filesz, memsz, align]: [u64; 5]) -> Phdr {
    let word = |value| U64::new(LE, value);
    Phdr {
        p_type: U32::new(LE, kind),
        p_flags: U32::new(LE, flags),
        p_offset: word(offset),
        p_vaddr: word(vaddr),
        p_paddr: word(vaddr),
        p_filesz: word(filesz),
        p_memsz: word(memsz),
        p_align: word(align),
    }
}

/// What the linked program shall be told.
#[derive(Default)]
struct Edit {
    /// Replaces the interpreter's path.
    interp: Option<&'static str>,
    /// Overwrites a byte of old code with `int3`, and the trap map with this row: (old, new), link-time addresses.
    trap: Option<(u64, u64)>,
    /// Breaks the module info's magic.
    no_magic: bool,
}

/// Appends the blob to `input` as DESIGN.md lays it out; the code is not relocated.
fn link(input: &[u8], edit: &Edit) -> Vec<u8> {
    let header = FileHeader64::<LE>::parse(input).unwrap();
    let originals: &[Phdr] = header.program_headers(LE, input).unwrap();
    let is = |p: &&Phdr, kind: ProgramType| p.p_type(LE) == kind;
    let mut out = input.to_vec();
    let top = originals.iter().filter(|p| is(p, PT_LOAD)).map(|p| p.p_vaddr(LE) + p.p_memsz(LE)).max().unwrap();
    let ro_va = top.next_multiple_of(PAGE);

    let blob = Blob::embedded().unwrap();
    let count = originals.len() as u64 + 1 + blob.segments.len() as u64 + 1;
    let table_bytes = count * PHDR_BYTES;
    let interp = originals.iter().find(|p| is(p, PT_INTERP)).map(|p| {
        let own = &input[p.p_offset(LE) as usize..(p.p_offset(LE) + p.p_filesz(LE) - 1) as usize];
        let mut path = edit.interp.map_or(own.to_vec(), |path| path.as_bytes().to_vec());
        path.push(0);
        path
    });
    // The read-only segment: kernel table, loader table, trap map, interpreter path.
    let kernel_va = ro_va;
    let loader_va = kernel_va + table_bytes;
    let trap_va = loader_va + table_bytes;
    let interp_va = trap_va + 12;
    let ro_bytes = 2 * table_bytes + 12 + interp.as_ref().map_or(0, Vec::len) as u64;
    let rt_va = (ro_va + ro_bytes).next_multiple_of(PAGE);

    out.resize(out.len().next_multiple_of(PAGE as usize), 0);
    let ro_off = out.len() as u64;
    out.resize((ro_off + (rt_va - ro_va)) as usize, 0);
    let mut new = vec![program_header(PT_LOAD, elf::PF_R, [ro_off, ro_va, ro_bytes, ro_bytes, PAGE])];
    let mut loader: Vec<Phdr> = originals.iter().filter(|p| !is(p, PT_PHDR)).copied().collect();
    let info = ModuleInfo {
        magic: if edit.no_magic { 0x1234 } else { contract::MODULE_MAGIC },
        rt_base_va: rt_va,
        entry_va: header.e_entry(LE),
        phdr_va: loader_va,
        phdr_count: (loader.len() + 2 + blob.segments.len()) as u64,
        interp_va: if interp.is_some() { interp_va } else { 0 },
        trap_heads_va: trap_va,
        trap_count: edit.trap.is_some().into(),
        ..ModuleInfo::ZERO
    };
    let placed = blob.place(Vaddr(rt_va), &module_info_bytes(&info));
    for s in &placed.segments {
        out.resize(out.len().next_multiple_of(PAGE as usize), 0);
        let place = [out.len() as u64, s.va.0, s.bytes.len() as u64, s.mem_bytes, PAGE];
        new.push(program_header(PT_LOAD, ProgramFlags(s.flags), place));
        out.extend(&s.bytes);
    }
    let kernel: Vec<Phdr> =
        originals.iter().filter(|p| !is(p, PT_PHDR) && !is(p, PT_INTERP)).chain(&new).copied().collect();
    let own = [ro_off + table_bytes, loader_va, table_bytes, table_bytes, 8];
    loader.insert(0, program_header(PT_PHDR, elf::PF_R, own));
    loader.extend(&new);
    let mut write = |va: u64, bytes: &[u8]| {
        let at = (va - ro_va + ro_off) as usize;
        out[at..at + bytes.len()].copy_from_slice(bytes);
    };
    write(kernel_va, bytes_of_slice(&kernel));
    write(loader_va, bytes_of_slice(&loader));
    if let Some(path) = &interp {
        write(interp_va, path);
    }
    if let Some((old, to)) = edit.trap {
        write(trap_va, &[old as u32, to as u32, 0].map(u32::to_le_bytes).concat());
        let holds = |p: &&Phdr| is(p, PT_LOAD) && (p.p_vaddr(LE)..p.p_vaddr(LE) + p.p_filesz(LE)).contains(&old);
        let home = originals.iter().find(holds).unwrap();
        out[(old - home.p_vaddr(LE) + home.p_offset(LE)) as usize] = 0xcc;
    }
    out[24..32].copy_from_slice(&placed.entry.0.to_le_bytes());
    out[32..40].copy_from_slice(&ro_off.to_le_bytes());
    out[56..58].copy_from_slice(&(kernel.len() as u16).to_le_bytes());
    out
}

/// A folder with a compiled program in it.
struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    fn compile(source: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        sources::compile(source, &folder.path().join("plain"), flags);
        Program { folder }
    }

    fn plain(&self) -> PathBuf {
        self.folder.path().join("plain")
    }

    fn linked(&self, edit: &Edit) -> PathBuf {
        let out = self.folder.path().join("linked");
        executable::write(&out, &link(&std::fs::read(self.plain()).unwrap(), edit));
        out
    }

    /// Link-time address of a function.
    fn symbol(&self, name: &str) -> u64 {
        use object::{Object, ObjectSymbol};
        let bytes = std::fs::read(self.plain()).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        file.symbols().find(|s| s.name() == Ok(name)).unwrap().address()
    }
}

fn run(path: &Path, args: &[&str]) -> Output {
    Command::new(path).args(args).env("KEPT", "yes").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Prints everything that the start hands over: arguments, environment, constructors, thread-local storage, the auxiliary vector
/// and the list of loaded objects.
const WITNESS: &str = r#"
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
static __thread int tls = 42;
static int constructed;
static char zero[100000];
__attribute__((constructor)) static void construct(void) { constructed = 7; }
static void leave(void) { puts("atexit"); }
static int objects(struct dl_phdr_info *i, size_t n, void *p) {
    (void)n;
    for (int k = 0; k < i->dlpi_phnum; k++)
        if (i->dlpi_phdr[k].p_type == PT_LOAD && i->dlpi_addr + i->dlpi_phdr[k].p_vaddr <= (ElfW(Addr))objects
            && (ElfW(Addr))objects < i->dlpi_addr + i->dlpi_phdr[k].p_vaddr + i->dlpi_phdr[k].p_memsz)
            ++*(int *)p;
    return 0;
}
int main(int argc, char **argv) {
    atexit(leave);
    for (int i = 1; i < argc; i++) printf("arg %s\n", argv[i]);
    printf("kept %s boot %s\n", getenv("KEPT"), getenv("BLIZZARD_BOOT") ? "seen" : "none");
    int zeros = 0, home = 0;
    for (unsigned i = 0; i < sizeof zero; i++) zeros += zero[i] == 0;
    dl_iterate_phdr(objects, &home);
    printf("tls %d constructed %d zeros %d home %d\n", tls, constructed, zeros, home);
    char *heap = malloc(1000000);
    memset(heap, 1, 1000000);
    printf("stack %d\n", (int)((unsigned long)__builtin_frame_address(0) & 15));
    printf("secure %lu pagesize %lu\n", getauxval(AT_SECURE), getauxval(AT_PAGESZ));
    if (argc > 1 && !strcmp(argv[1], "phdr")) {
        ElfW(Phdr) *p = (void *)getauxval(AT_PHDR);
        printf("phdr type %u entry %d\n", p->p_type, getauxval(AT_ENTRY) != 0);
    }
    return 3;
}
"#;

const KINDS: [(&str, &[&str]); 5] = [
    ("pie", &["-O1", "-fPIE", "-pie"]),
    ("fixed", &["-O1", "-fno-pie", "-no-pie"]),
    ("static", &["-O1", "-static", "-fno-pie", "-no-pie"]),
    ("static-pie", &["-O1", "-static-pie", "-fPIE"]),
    ("bind-now", &["-O1", "-fPIE", "-pie", "-Wl,-z,now,-z,relro"]),
];

fn programs_of_every_kind_start_unchanged() {
    for (kind, flags) in KINDS {
        let program = Program::compile(WITNESS, flags);
        let linked = program.linked(&Edit::default());
        for args in [&["one", "two words"][..], &[]] {
            let (plain, ours) = (run(&program.plain(), args), run(&linked, args));
            assert_eq!(text(&ours.stderr), "", "{kind}");
            assert_eq!(text(&ours.stdout), text(&plain.stdout), "{kind}");
            assert!(text(&ours.stdout).contains("tls 42 constructed 7 zeros 100000 home 1\n"), "{kind}");
            assert_eq!(ours.status.code(), Some(3), "{kind}");
        }
        let ours = text(&run(&linked, &["phdr"]).stdout);
        assert!(
            ours.contains("phdr type 6 entry 1\n"),
            "{kind}: the table of the loader comes first in AT_PHDR: {ours}"
        );
    }
}

/// The start took 300 to 400 KiB of the program's stack, and crashed where there was less.
fn the_start_needs_no_more_stack_than_the_original() {
    let on_small_stack = |path: &Path| {
        Command::new("sh").args(["-c", "ulimit -s 64; exec \"$0\" one"]).arg(path).env("KEPT", "yes").output().unwrap()
    };
    for (kind, flags) in KINDS {
        let program = Program::compile(WITNESS, flags);
        let plain = on_small_stack(&program.plain());
        assert_eq!(plain.status.code(), Some(3), "{kind}: {}", text(&plain.stderr));
        let ours = on_small_stack(&program.linked(&Edit::default()));
        assert_eq!((ours.status.code(), text(&ours.stderr)), (Some(3), String::new()), "{kind}: {:?}", ours.status);
        assert_eq!(text(&ours.stdout), text(&plain.stdout), "{kind}");
    }
}

/// The terabytes of the runtime count towards the limits of address space and data, which left no start under any finite one.
fn programs_start_under_the_limits_that_the_original_needs() {
    let limited = |path: &Path| {
        let limits = "ulimit -S -v 2000000; ulimit -S -d 500000; exec \"$0\" one";
        Command::new("sh").args(["-c", limits]).arg(path).env("KEPT", "yes").output().unwrap()
    };
    for (kind, flags) in KINDS {
        let program = Program::compile(WITNESS, flags);
        let (plain, ours) = (limited(&program.plain()), limited(&program.linked(&Edit::default())));
        assert_eq!((ours.status.code(), text(&ours.stderr)), (Some(3), String::new()), "{kind}: {:?}", ours.status);
        assert_eq!(text(&ours.stdout), text(&plain.stdout), "{kind}");
    }
}

/// An installed program that this test did not compile.
fn an_installed_program_starts() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("linked");
    for (path, args) in
        [("/bin/echo", &["a", "b"][..]), ("/bin/ls", &["/proc/self/"]), ("/bin/sh", &["-c", "echo $KEPT"])]
    {
        executable::write(&out, &link(&std::fs::read(path).unwrap(), &Edit::default()));
        let (plain, ours) = (run(Path::new(path), args), run(&out, args));
        assert_eq!((text(&ours.stdout), text(&ours.stderr)), (text(&plain.stdout), text(&plain.stderr)), "{path}");
        assert_eq!(ours.status, plain.status, "{path}");
    }
}

fn failures_before_the_program_are_one_clear_line() {
    let program = Program::compile(WITNESS, &["-O1"]);
    let cases: [(Edit, &str); 4] = [
        (
            Edit { interp: Some("/no/such/loader.so"), ..Edit::default() },
            "cannot open the dynamic loader \"/no/such/loader.so\": No such file",
        ),
        (Edit { interp: Some("/etc/passwd"), ..Edit::default() }, "\"/etc/passwd\": not an ELF file"),
        (Edit { interp: Some("/"), ..Edit::default() }, "\"/\": cannot read it: Is a directory"),
        (Edit { no_magic: true, ..Edit::default() }, "no module description (magic 0x1234)"),
    ];
    for (edit, message) in cases {
        let output = run(&program.linked(&edit), &[]);
        let stderr = text(&output.stderr);
        assert!(stderr.starts_with("blizzard: error: ") && stderr.contains(message), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(output.status.code().is_some_and(|code| code != 0), "{:?}", output.status);
        assert_eq!(text(&output.stdout), "");
    }
}

const TRAPPED: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline, noclone)) int old_code(int x) { __asm__ volatile(""); return x + 1; }
__attribute__((noinline, noclone)) int new_code(int x) { __asm__ volatile(""); return x + 1000; }
int main(int argc, char **argv) {
    (void)argv;
    printf("%d\n", old_code(argc));
    fflush(stdout);
    if (argc > 1) __asm__ volatile("int3");
    return 0;
}
"#;

fn a_trap_byte_is_redirected_and_a_breakpoint_of_the_program_is_not() {
    for flags in [&["-O1", "-fPIE", "-pie"][..], &["-O1", "-fno-pie", "-no-pie"]] {
        let program = Program::compile(TRAPPED, flags);
        let (old, new) = (program.symbol("old_code"), program.symbol("new_code"));
        let linked = program.linked(&Edit { trap: Some((old, new)), ..Edit::default() });
        let output = run(&linked, &[]);
        assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("1001\n", ""));
        assert!(output.status.success());
        let output = run(&linked, &["breakpoint"]);
        assert_eq!(text(&output.stdout), "1002\n");
        const SIGTRAP: i32 = 5;
        assert_eq!(output.status.signal(), Some(SIGTRAP), "{:?}", output.status);
    }
}

const UNWINDS: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <dlfcn.h>
#include <math.h>
static jmp_buf back;
static void *thread(void *p) { *(int *)p += 1; return p; }
int main(void) {
    int value = 1;
    pthread_t t;
    if (pthread_create(&t, 0, thread, &value) || pthread_join(t, 0)) return 1;
    if (!setjmp(back)) longjmp(back, 1);
    void *m = dlopen("libm.so.6", RTLD_NOW);
    double (*f)(double) = m ? (double (*)(double))dlsym(m, "cbrt") : 0;
    printf("%d %g\n", value, f ? f(27.0) : -1.0);
    return 0;
}
"#;

fn threads_and_dlopen_work_behind_the_entry() {
    let program = Program::compile(UNWINDS, &["-O1", "-pthread", "-ldl"]);
    let output = run(&program.linked(&Edit::default()), &[]);
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("2 3\n", ""));
}
