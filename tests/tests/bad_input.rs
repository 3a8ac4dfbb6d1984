//! Inputs that are no programs, or damaged ones: each is one clear error, soon, and nothing is written.

use blizzard_test_harness::executable;
use blizzard_test_harness::tool;
use blizzard_tests::compile::{Job, Language, compile};
use blizzard_tests::run::{Ending, Outcome, run};
use blizzard_tests::tool::{self, Mode};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

blizzard_test_harness::tests! {
    truncated_files,
    flipped_bits_in_the_file_header,
    flipped_bits_in_the_program_headers,
    flipped_bits_in_the_section_headers,
    flipped_bits_anywhere,
    foreign_architectures,
    other_classes_and_byte_orders,
    programs_of_32_bits,
    go_programs,
    ocaml_programs,
    programs_with_v8,
    haskell_programs,
    restartable_sequences,
    programs_with_a_sanitizers_shadow,
    instructions_that_move_the_base_of_a_segment,
    code_without_frames_where_every_block_is_named_and_jumps_away,
    files_that_are_no_programs,
    objects_cores_and_other_types,
    directories_devices_and_missing_files,
    a_file_without_read_permission,
    a_file_that_is_rewritten_already,
    outputs_that_cannot_be_written,
    an_existing_output_survives_a_failed_rewrite,
    verify_refuses_programs_that_are_not_rewritten,
}

/// Soon, on a machine that may be busy.
const LIMIT: Duration = Duration::from_secs(60);

/// A good program's bytes, compiled once.
fn program() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = folder();
        let source = dir.path().join("good.c");
        let text = "#include <stdio.h>\nint numbers[100];\nint main(int argc, char **argv) {\n\
                    switch (argc) { case 1: puts(\"a\"); break; case 2: puts(\"b\"); break; case 3: puts(\"c\"); break;\n\
                    case 4: puts(\"d\"); break; case 5: numbers[argc] = 1; break; }\nreturn numbers[argc + 3]; }\n";
        std::fs::write(&source, text).unwrap();
        let output = dir.path().join("good");
        let flags = vec!["-O1".into()];
        let job = Job {
            sources: vec![source],
            language: Language::C,
            compiler: "cc",
            flags,
            libraries: Vec::new(),
            output: &output,
        };
        compile(&job).unwrap();
        std::fs::read(output).unwrap()
    })
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("blizzard-bad-").tempdir().unwrap()
}

fn write(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    executable::write(&path, bytes);
    path
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether `outcome` is one error as users should see it; what is wrong otherwise.
fn one_error(outcome: &Outcome) -> Result<(), String> {
    let stderr = outcome.stderr_text();
    let headlines = stderr.lines().filter(|l| l.starts_with("blizzard: error: ")).count();
    let rest_indented =
        stderr.lines().all(|l| l.starts_with("blizzard: error: ") || l.starts_with("  ") || l.is_empty());
    let good = outcome.ending == Ending::Exit(1)
        && headlines == 1
        && rest_indented
        && !stderr.contains("panicked")
        && outcome.stdout.is_empty();
    if good { Ok(()) } else { Err(format!("not one clear error: {}", outcome.describe())) }
}

/// `rewrite`, and the other commands that read programs, refuse `input`; the folder is left as it was.
fn assert_refused(input: &Path) -> String {
    let dir = folder();
    let output = dir.path().join("out");
    let outcome = tool::rewrite(input, &output, Mode::TESTS).unwrap();
    one_error(&outcome).unwrap_or_else(|e| panic!("rewrite {}: {e}", input.display()));
    assert!(outcome.stderr_text().contains(input.to_str().unwrap()), "{}", outcome.describe());
    assert_eq!(names(dir.path()), [""; 0], "something was written for {}", input.display());
    for arguments in [&["inspect"][..], &["verify"], &["run", "-n", "2", "--"]] {
        let outcome = run(tool::blizzard(arguments).arg(input), "", LIMIT).unwrap();
        one_error(&outcome).unwrap_or_else(|e| panic!("{arguments:?} {}: {e}", input.display()));
    }
    outcome.stderr_text()
}

fn truncated_files() {
    let bytes = program();
    let dir = folder();
    let out = dir.path().join("out");
    let steps = (1..64).chain((64..bytes.len()).step_by(bytes.len() / 150)).chain([bytes.len() - 1]);
    for length in steps {
        let input = write(&dir, "cut", &bytes[..length]);
        let outcome = tool::rewrite(&input, &out, Mode::TESTS).unwrap();
        one_error(&outcome).unwrap_or_else(|e| panic!("cut to {length} of {} bytes: {e}", bytes.len()));
        assert!(outcome.stderr_text().contains("/cut"), "{}", outcome.describe());
        assert_eq!(names(dir.path()), ["cut"], "cut to {length} bytes");
    }
}

/// A generator with a fixed seed (xorshift), so that a failure can be repeated.
struct Random(u64);
impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Flips bits in `range` of the program: a clear error, or a file that is fit to be audited.
fn flip(seed: u64, range: std::ops::Range<usize>, count: usize) -> usize {
    let dir = folder();
    let out = dir.path().join("out");
    let mut random = Random(seed);
    let mut refused = 0;
    for _ in 0..count {
        let mut bytes = program().to_vec();
        let flips: Vec<(usize, u8)> =
            (0..1 + random.below(3)).map(|_| (range.start + random.below(range.len()), 1 << random.below(8))).collect();
        for &(at, bit) in &flips {
            bytes[at] ^= bit;
        }
        let input = write(&dir, "flipped", &bytes);
        let outcome = tool::rewrite(&input, &out, Mode::TESTS).unwrap();
        if outcome.ending == Ending::Exit(0) {
            assert!(!outcome.stderr_text().contains("panicked"));
            std::fs::remove_file(&out).unwrap();
        } else {
            one_error(&outcome).unwrap_or_else(|e| panic!("flips {flips:x?}: {e}"));
            refused += 1;
        }
        assert_eq!(names(dir.path()), ["flipped"], "flips {flips:x?}");
    }
    refused
}

fn flipped_bits_in_the_file_header() {
    assert!(flip(1, 0..64, 150) > 50);
}

fn flipped_bits_in_the_program_headers() {
    assert!(flip(2, 64..64 + 13 * 56, 150) > 10);
}

fn flipped_bits_in_the_section_headers() {
    let bytes = program();
    let at = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    assert!(flip(3, at..bytes.len(), 150) > 0);
}

fn flipped_bits_anywhere() {
    flip(4, 64..program().len(), 200);
}

fn foreign_architectures() {
    let dir = folder();
    // 40 ARM, 62 is x86-64, 183 AArch64, 243 RISC-V, 21 PowerPC, 3 i386
    for machine in [40u16, 183, 243, 21, 3, 0xffff] {
        let mut bytes = program().to_vec();
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        let text = assert_refused(&write(&dir, "foreign", &bytes));
        assert!(text.contains("x86-64"), "{text}");
    }
}

fn other_classes_and_byte_orders() {
    let dir = folder();
    for (at, value, part) in [(4, 1, "32-bit"), (4, 0, "64-bit"), (5, 2, "big-endian"), (5, 0, "x86-64")] {
        let mut bytes = program().to_vec();
        bytes[at] = value;
        let text = assert_refused(&write(&dir, "class", &bytes));
        assert!(text.contains(part), "{text}");
    }
}

/// A program that runs, of the same processor family: with the header, the program headers and the sections that such files have.
fn programs_of_32_bits() {
    let dir = folder();
    let source = write(
        &dir,
        "exits.s",
        b".globl _start\n_start: mov $1, %eax\n mov $3, %ebx\n int $0x80\n.data\nnumber: .long 5\n",
    );
    let (object, program) = (dir.path().join("exits.o"), dir.path().join("exits"));
    assert!(tool("as").arg("--32").arg(&source).arg("-o").arg(&object).status().unwrap().success());
    for (flags, kind) in [(&[][..], 2), (&["-pie", "--no-dynamic-linker"], 3)] {
        let linked = tool("ld").args(["-m", "elf_i386"]).args(flags).arg(&object).arg("-o").arg(&program).status();
        assert!(linked.unwrap().success());
        let bytes = std::fs::read(&program).unwrap();
        // Class, type, machine.
        assert_eq!((bytes[4], bytes[16], bytes[18]), (1, kind, 3));
        // Some kernels start no such program.
        if let Ok(status) = Command::new(&program).status() {
            assert_eq!(status.code(), Some(3));
        }
        let text = assert_refused(&program);
        assert!(text.contains("exits: is a 32-bit program") && text.contains("-m64"), "{text}");
        for arguments in [&["inspect"][..], &["run", "--"]] {
            let outcome = run(tool::blizzard(arguments).arg(&program), "", LIMIT).unwrap();
            assert!(outcome.stderr_text().contains("32-bit"), "{arguments:?}: {}", outcome.describe());
        }
    }
    // x32: 32-bit pointers in a file whose machine is x86-64.
    let linked = tool("as").arg("--x32").arg(&source).arg("-o").arg(&object).status().unwrap().success()
        && tool("ld").args(["-m", "elf32_x86_64"]).arg(&object).arg("-o").arg(&program).status().unwrap().success();
    assert!(linked);
    let text = assert_refused(&program);
    assert!(text.contains("exits: is a 32-bit program"), "{text}");
}

/// A note as the Go toolchain's linker writes it is enough to know its programs by; they are refused as what they are.
fn go_programs() {
    let dir = folder();
    let note = ".section .note.go.buildid, \"a\", @note\n.balign 4\n.long 4, 8, 4\n.asciz \"Go\\0\"\n.ascii \"buildid0\"\n\
                .section .note.GNU-stack, \"\", @progbits\n";
    let source = write(&dir, "note.s", note.as_bytes());
    let main = write(&dir, "main.c", b"int main(void) { return 0; }\n");
    let program = dir.path().join("program");
    assert!(tool("cc").arg(&main).arg(&source).arg("-o").arg(&program).status().unwrap().success());
    assert!(assert_refused(&program).contains("Go program"));
    // Without section headers, by the program header of the notes.
    let mut bytes = std::fs::read(&program).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    assert!(assert_refused(&write(&dir, "bare", &bytes)).contains("Go program"));
}

/// Its collector would find no frame of rewritten code, and crash.
fn ocaml_programs() {
    let dir = folder();
    let table = ".data\n.balign 8\n.globl caml_frametable\ncaml_frametable: .quad 0\n\
                 .section .note.GNU-stack, \"\", @progbits\n";
    let source = write(&dir, "table.s", table.as_bytes());
    let main = write(&dir, "main.c", b"int main(void) { return 0; }\n");
    let program = dir.path().join("program");
    // Exported, as OCaml's linker does it, then stripped.
    let flags = ["-Wl,-E", "-s", "-o"];
    assert!(tool("cc").arg(&main).arg(&source).args(flags).arg(&program).status().unwrap().success());
    assert!(assert_refused(&program).contains("OCaml"));
}

/// Node.js was refused in 3,292 places after more than a minute, none of which said what it is.
fn programs_with_v8() {
    let dir = folder();
    let name = "_ZNK2v88internal7Isolate18embedded_blob_codeEv";
    let text = format!(
        "long blob(void) __asm__(\"{name}\");\nlong blob(void) {{ return 1; }}\nint main(void) {{ return (int)blob(); }}\n"
    );
    let main = write(&dir, "main.c", text.as_bytes());
    let program = dir.path().join("program");
    assert!(tool("cc").arg(&main).args(["-Wl,-E", "-s", "-o"]).arg(&program).status().unwrap().success());
    assert!(assert_refused(&program).contains("V8"));
}

/// Programs of GHC were refused after minutes, or for some instruction that is none.
fn haskell_programs() {
    let dir = folder();
    let program = dir.path().join("program");
    // What the runtime prints for `+RTS --info` begins like this.
    let text =
        "#include <stdio.h>\nint main(void) { return printf(\" [(\\\"GHC RTS\\\", \\\"YES\\\")%d\", 1) == 0; }\n";
    let main = write(&dir, "main.c", text.as_bytes());
    assert!(tool("cc").arg(&main).args(["-s", "-o"]).arg(&program).status().unwrap().success());
    assert!(assert_refused(&program).contains("Haskell"));
    let library = dir.path().join("libHSbase-4.15.1.0-ghc9.0.2.so");
    let plain = write(&dir, "plain.c", b"int main(void) { return 0; }\n");
    assert!(tool("cc").arg("-shared").arg(&plain).arg("-o").arg(&library).status().unwrap().success());
    let needs = tool("cc").arg(&plain).args(["-Wl,--no-as-needed", "-o"]).arg(&program).arg(&library).status();
    assert!(needs.unwrap().success());
    assert!(assert_refused(&program).contains("Haskell"));
}

/// The kernel would not see that one is executed, and would not end it.
fn restartable_sequences() {
    let dir = folder();
    let described =
        b"__attribute__((section(\"__rseq_cs\"), aligned(32))) long described[4];\nint main(void) { return 0; }\n";
    let main = write(&dir, "main.c", described);
    let program = dir.path().join("program");
    assert!(tool("cc").arg(&main).args(["-s", "-o"]).arg(&program).status().unwrap().success());
    assert!(assert_refused(&program).contains("restartable sequences"));
}

/// Their shadow memory and the segment want the same addresses: the sanitizer would say so, but not why.
fn programs_with_a_sanitizers_shadow() {
    let dir = folder();
    let main = write(&dir, "main.c", b"int main(int n, char **a) { return n > 5 ? a[n][0] : n + 1; }\n");
    for kind in ["address", "thread"] {
        for more in [&["-s"][..], &[if kind == "address" { "-static-libasan" } else { "-static-libtsan" }]] {
            let program = dir.path().join("program");
            let flag = format!("-fsanitize={kind}");
            let built = tool("gcc").arg(&main).arg(&flag).args(more).arg("-o").arg(&program).status();
            assert!(built.unwrap().success());
            assert!(assert_refused(&program).contains(&flag));
            std::fs::remove_file(program).unwrap();
        }
    }
    // This one has no shadow.
    let program = dir.path().join("program");
    let built = tool("gcc").arg(&main).args(["-fsanitize=undefined", "-o"]).arg(&program).status();
    assert!(built.unwrap().success());
    let mut rewrite = tool::blizzard(["rewrite", "--no-libraries"]);
    rewrite.arg(&program).arg("-o").arg(dir.path().join("out"));
    run(&mut rewrite, "", LIMIT).unwrap().success().unwrap();
}

/// Checks form an address with a base of zero for %gs, and take accesses through %fs for thread-local ones. So each instruction that moves such a base is named
/// with its address and function; those that read one are none of them.
fn instructions_that_move_the_base_of_a_segment() {
    const MOVE: [(&str, &str); 10] = [
        ("wrfsbase", "wrfsbase %rax"),
        ("wrfsbase_32", "wrfsbase %eax"),
        ("wrgsbase", "wrgsbase %rax"),
        ("lfs", "lfs (%rdi), %eax"),
        ("lgs", "lgs (%rdi), %eax"),
        ("mov_to_fs", "mov %eax, %fs"),
        ("mov_to_gs", "mov %eax, %gs"),
        ("load_of_gs", "mov (%rdi), %gs"),
        ("pop_fs", "push $0\n pop %fs"),
        ("pop_gs", "push $0\n pop %gs"),
    ];
    const READ: [(&str, &str); 5] = [
        ("rdfsbase", "rdfsbase %rax"),
        ("rdgsbase", "rdgsbase %rax"),
        ("mov_from_gs", "mov %gs, %eax"),
        ("push_gs", "push %gs\n pop %rax"),
        ("other_selectors", "mov %ds, %eax\n mov %eax, %ds"),
    ];
    let dir = folder();
    let build = |functions: &[(&str, &str)]| {
        let mut source =
            String::from(".text\n.globl main\n.type main, @function\nmain: xor %eax, %eax\n ret\n.size main, .-main\n");
        for (name, instructions) in functions {
            source += &format!(
                ".globl in_{name}\n.type in_{name}, @function\nin_{name}: .cfi_startproc\n {instructions}\n ret\n.cfi_endproc\n.size in_{name}, .-in_{name}\n"
            );
        }
        source += ".section .note.GNU-stack, \"\", @progbits\n";
        let source = write(&dir, "segments.s", source.as_bytes());
        let program = dir.path().join("program");
        assert!(tool("gcc").arg(&source).arg("-o").arg(&program).status().unwrap().success());
        program
    };
    let out = dir.path().join("out");
    let outcome = tool::rewrite(&build(&MOVE), &out, Mode::TESTS).unwrap();
    one_error(&outcome).unwrap_or_else(|e| panic!("{e}"));
    assert!(!out.exists());
    let text = outcome.stderr_text();
    for (name, _) in MOVE {
        let named = |line: &str| {
            line.trim_start().starts_with("refused: 0x") && line.contains(&format!("(in_{name}+0x"))
                || line.contains(&format!("(in_{name})"))
        };
        let line = text.lines().find(|line| named(line)).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(line.contains("moves the base of %fs or %gs"), "{line}");
    }
    let program = build(&READ);
    let mut rewrite = tool::blizzard(["rewrite", "--no-libraries"]);
    run(rewrite.arg(&program).arg("-o").arg(&out), "", LIMIT).unwrap().success().unwrap();
    run(&mut Command::new(&out), "", LIMIT).unwrap().success().unwrap();
}

/// Compiled Haskell is like this: every block ends with a jump to an address from memory, most are named, none has a frame or is
/// called. Each jump was once looked for in all that it might lead to, which was all of the file.
fn code_without_frames_where_every_block_is_named_and_jumps_away() {
    let dir = folder();
    let mut source = String::from(".globl main\n.text\nmain: xor %eax, %eax\n ret\n");
    for i in 0..60_000 {
        source +=
            &format!("b{i}: lea b{}(%rip), %rbx\n mov %rbx, 8(%rbp)\n add $8, %rbp\n jmp *(%rbp)\n", (i + 7) % 60_000);
    }
    source += ".section .note.GNU-stack, \"\", @progbits\n";
    let source = write(&dir, "jumps.s", source.as_bytes());
    let (program, out) = (dir.path().join("program"), dir.path().join("out"));
    assert!(tool("gcc").arg("-no-pie").arg(&source).arg("-o").arg(&program).status().unwrap().success());
    let mut rewrite = tool::blizzard(["rewrite", "--no-libraries"]);
    rewrite.arg(&program).arg("-o").arg(&out);
    run(&mut rewrite, "", 3 * LIMIT).unwrap().success().unwrap();
    run(&mut Command::new(&out), "", LIMIT).unwrap().success().unwrap();
}

fn files_that_are_no_programs() {
    let dir = folder();
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("newline", b"\n"),
        ("script", b"#!/bin/sh\necho hello\n"),
        ("magic", b"\x7fELF"),
        ("text", b"just some text that is longer than an ELF header, so that only its contents can tell what it is\n"),
        ("archive", b"!<arch>\nfoo.o/          0           0     0     644     4         `\nabcd"),
    ] {
        assert_refused(&write(&dir, name, bytes));
    }
    assert_refused(&write(&dir, "zeros", &[0; 4096]));
}

fn objects_cores_and_other_types() {
    let dir = folder();
    let source = write(&dir, "unit.c", b"int f(int x) { return x + 1; }\n");
    let object = dir.path().join("unit.o");
    assert!(tool("cc").arg("-c").arg(&source).arg("-o").arg(&object).status().unwrap().success());
    assert_refused(&object);
    let archive = dir.path().join("libunit.a");
    assert!(tool("ar").arg("rcs").arg(&archive).arg(&object).status().unwrap().success());
    assert_refused(&archive);
    // 0 none, 1 relocatable, 4 core, others unknown
    for kind in [0u16, 1, 4, 5, 0xfe00, 0xffff] {
        let mut bytes = program().to_vec();
        bytes[16..18].copy_from_slice(&kind.to_le_bytes());
        assert_refused(&write(&dir, "kind", &bytes));
    }
}

fn directories_devices_and_missing_files() {
    let dir = folder();
    for path in [dir.path(), &dir.path().join("missing"), Path::new("/dev/null")] {
        assert_refused(path);
    }
}

fn a_file_without_read_permission() {
    let dir = folder();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let input = write(&dir, "secret", program());
    std::fs::set_permissions(&input, std::fs::Permissions::from_mode(0o111)).unwrap();
    let mut command = if rustix::process::geteuid().is_root() {
        // root reads everything: take a user who does not, and the tool to where that user can start it.
        let copy = dir.path().join("blizzard");
        // By another process: a descriptor of this one could be held by a child of another test when the copy is to be executed.
        assert!(Command::new("cp").arg(tool::path()).arg(&copy).status().unwrap().success());
        let mut command = tool("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
        command
    } else {
        tool::blizzard(["--"; 0])
    };
    let writable = dir.path().join("writable");
    std::fs::create_dir(&writable).unwrap();
    std::fs::set_permissions(&writable, std::fs::Permissions::from_mode(0o777)).unwrap();
    command.env("HOME", &writable).arg("rewrite").arg(&input).arg("-o").arg(writable.join("out"));
    let outcome = run(&mut command, "", LIMIT).unwrap();
    one_error(&outcome).unwrap();
    assert!(outcome.stderr_text().contains("no permission"), "{}", outcome.describe());
    assert!(!writable.join("out").exists());
}

fn a_file_that_is_rewritten_already() {
    let dir = folder();
    let input = write(&dir, "good", program());
    let once = dir.path().join("once");
    tool::rewrite(&input, &once, Mode::TESTS).unwrap().success().unwrap();
    let twice = dir.path().join("twice");
    let outcome = tool::rewrite(&once, &twice, Mode::TESTS).unwrap();
    one_error(&outcome).unwrap();
    assert!(outcome.stderr_text().contains("already"), "{}", outcome.describe());
    assert!(!twice.exists());
}

fn outputs_that_cannot_be_written() {
    let dir = folder();
    let input = write(&dir, "good", program());
    // A name that is not there in a folder that is not there, folders, devices, and the input itself.
    for output in
        ["no/such/folder/out", "", "/proc/out", "/dev/null", "good", "./good"].map(|name| dir.path().join(name))
    {
        let outcome = tool::rewrite(&input, &output, Mode::TESTS).unwrap();
        one_error(&outcome).unwrap_or_else(|e| panic!("{}: {e}", output.display()));
        assert!(outcome.stderr_text().contains(output.to_str().unwrap()), "{}", outcome.describe());
    }
    assert_eq!(names(dir.path()), ["good"]);
    assert_eq!(std::fs::read(input).unwrap(), program());
}

fn an_existing_output_survives_a_failed_rewrite() {
    let dir = folder();
    let input = write(&dir, "bad", b"\x7fELF and so on");
    let output = write(&dir, "out", b"what was there before");
    one_error(&tool::rewrite(&input, &output, Mode::TESTS).unwrap()).unwrap();
    assert_eq!(std::fs::read(&output).unwrap(), b"what was there before");
    assert_eq!(names(dir.path()), ["bad", "out"]);
}

fn verify_refuses_programs_that_are_not_rewritten() {
    let dir = folder();
    let input = write(&dir, "good", program());
    one_error(&tool::verify(&input, None).unwrap()).unwrap();
}
