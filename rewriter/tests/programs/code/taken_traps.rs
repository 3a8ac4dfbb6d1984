//! How many traps rewritten programs take, counted by the runtime: each costs a microsecond or more.

use blizzard_test_harness::tool;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

blizzard_test_harness::module! {
    operations_of_an_interpreter_have_springboards_of_many_jumps,
    a_return_of_a_byte_stays_and_a_springboard_serves_as_a_displacement,
    tables_of_the_large_model_are_recognised,
    exceptions_of_a_fixed_address_program_take_none,
    an_address_that_nobody_foresaw_takes_a_hundred,
    nodes_and_children_write_jumps_of_their_own,
    created_nodes_have_the_jumps_of_node_0_and_their_own,
    a_short_jump_leads_to_a_long_one_where_that_has_no_room,
    a_tracer_changes_no_springboard_and_sees_a_hundred_signals,
    signals_and_registers_are_the_same_while_a_trap_byte_becomes_a_jump,
    long: signals_and_registers_are_the_same_at_jumps_of_all_shapes,
    a_filter_of_system_calls_is_not_provoked,
    jumps_stay_on_pages_of_code,
    the_programs_own_memory_goes_before_jumps,
    a_handler_under_a_tracer_comes_to_trap_bytes,
    no_jump_is_written_where_data_look_like_trap_bytes,
}

const BLIZZARD: &str = env!("CARGO_BIN_EXE_blizzard");

/// Traps of a program built with `flags`, only it rewritten, relocated and with all checks; it must print the same as the original, and pass the audit.
fn traps(compiler: &str, source: &str, flags: &[&str]) -> [u64; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (program, rewritten) = (path("prog"), path("rewritten"));
    std::fs::write(path("prog.c"), source).unwrap();
    let status = tool(compiler).args(flags).arg("-o").arg(&program).arg(path("prog.c")).status().unwrap();
    assert!(status.success(), "{compiler} {flags:?}");
    let plain = Command::new(&program).output().unwrap();
    ["none", "all"].map(|checks| {
        let options = ["--no-libraries", "--checks", checks];
        blizzard(folder.path(), &[&["rewrite", "prog", "-o", "rewritten"], &options[..]].concat());
        blizzard(folder.path(), &["verify", "--original", "prog", "rewritten"]);
        let run = blizzard(folder.path(), &["run", "--stats", "stats", "--", "./rewritten"]);
        assert_eq!((plain.status.code(), &plain.stdout), (run.status.code(), &run.stdout), "{compiler} {flags:?}");
        let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(path("stats")).unwrap()).unwrap();
        std::fs::remove_file(&rewritten).unwrap();
        stats["totals"]["traps"].as_u64().unwrap()
    })
}

fn blizzard(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(BLIZZARD);
    let output =
        command.args(arguments).current_dir(folder).env("BLIZZARD_CACHE", folder.join("cache")).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Frames of a fixed-address program name the personality routine by its old address in the PLT: a trap for each frame that an exception passed, and one
/// more for each that it ended in.
fn exceptions_of_a_fixed_address_program_take_none() {
    let source = r#"
        #include <cstdio>
        struct Guard { int *left; ~Guard() { ++*left; } };
        __attribute__((noinline)) static int deep(int n, int *left) {
            Guard guard{left};
            if (n == 0) throw 5;
            return deep(n - 1, left) + *left;
        }
        int main() {
            int left = 0, caught = 0;
            for (int k = 0; k < 100; k++)
                try { deep(9, &left); } catch (int number) { caught += number; }
            std::printf("%d %d\n", left, caught);
            return left != 1000 || caught != 500;
        }"#;
    for traps in traps("g++", source, &["-x", "c++", "-O2", "-fno-pie", "-no-pie"]) {
        assert!(traps < 100, "{traps} traps in a hundred exceptions");
    }
}

/// An interpreter in assembly whose function holds a label, so that a computed jump may lead to each of its instructions: none of its operations has room for
/// a long jump, and the long instructions are up to 320 bytes away.
fn operations(count: usize) -> String {
    let mut out = String::from(
        "__asm__(\".text\\n.globl interpret\\n.type interpret, @function\\n.balign 16\\ninterpret: .cfi_startproc\\n\"
        \"lea inside(%rip), %rax\\n mov %rax, (%rsi)\\n xor %eax, %eax\\n movzbl (%rdi), %ecx\\n inc %rdi\\n jmp *(%rdx,%rcx,8)\\n\"\n",
    );
    for k in 0..count {
        let step = "movzbl (%rdi), %ecx\\n inc %rdi\\n jmp *(%rdx,%rcx,8)";
        writeln!(out, "\"op{k}: add ${k}, %rax\\n xor %rsi, %rax\\n {step}\\n\"").unwrap();
    }
    out.push_str("\"inside: xor %rsi, %rax\\n ret\\n .rept 60\\n movabs $0x1122334455667788, %rax\\n .endr\\n ret\\n.cfi_endproc\\n\"\n");
    out.push_str("\".data\\n.balign 8\\n.globl table\\ntable:");
    (0..count).for_each(|k| write!(out, " .quad op{k}\\n").unwrap());
    out.push_str(" .quad inside\\n.text\\n\");\n");
    write!(
        out,
        "#include <stdio.h>
        extern long interpret(const unsigned char *, void **, void **);
        extern void *table[];
        int main(void) {{
            unsigned char code[1001];
            for (int i = 0; i < 1000; i++) code[i] = i % {count};
            code[1000] = {count};
            void *label;
            printf(\"%d\\n\", interpret(code, &label, table) != (long)&label);
            return 0;
        }}"
    )
    .unwrap();
    out
}

fn operations_of_an_interpreter_have_springboards_of_many_jumps() {
    // LuaJIT's reads of upvalues: 242,784 traps.
    for kind in ["-pie", "-no-pie"] {
        let flags = ["-O1", "-fno-ipa-ra", kind];
        assert_eq!(traps("gcc", &operations(20), &flags), [0, 0], "{kind}");
    }
}

/// Functions that only data name: one is a `ret` of a byte among zeros, and a word seems to name the second byte of the other.
const PASCAL: &str = r#"
__asm__(".text\n.balign 16\n  .skip 16, 0\n"
        "empty: ret\n  .skip 15, 0\n"
        "before: mov %edi, %eax\n  .rept 8\n  add $3, %eax\n  .endr\n  ret\n  .skip 5, 0\n"
        "pushes: push %rbx\n  push %r12\n  mov %rdi, %rbx\n  lea 1(%rbx), %rax\n  pop %r12\n  pop %rbx\n  ret\n"
        ".data\n.balign 8\n.globl table\ntable: .quad empty, pushes, before, pushes + 1\n.text\n");
#include <stdio.h>
extern long (*volatile table[])(long);
int main(void) {
    long sum = 0;
    for (long i = 0; i < 1000; i++) table[0](i), sum += table[1](i), sum += table[2](i);
    printf("%ld\n", sum);
    return 0;
}
"#;

fn a_return_of_a_byte_stays_and_a_springboard_serves_as_a_displacement() {
    // Free Pascal's compiler: 10,223 traps at an empty function, 73 at one whose second byte a word of data seems to name.
    assert_eq!(traps("gcc", PASCAL, &["-O1", "-fno-pie", "-no-pie"]), [0, 0]);
}

/// Switches whose tables stand at sums of an address and numbers, or hold 64-bit distances.
fn switches() -> String {
    let case = |k: usize| format!("case {k}: sink += {}; a = a * {} + {k}; break;\n", 7 * k, k + 3);
    let cases: String = (0..24).map(case).collect();
    format!(
        "#include <stdio.h>
        volatile long sink;
        __attribute__((noinline)) long one(long x, long a) {{ switch (x) {{ {cases} default: a--; }} return a; }}
        __attribute__((noinline)) long two(long x, long a) {{
            for (int i = 0; i < 6; i++) switch ((x + i) % 24) {{ {cases} }}
            return a;
        }}
        int main(void) {{
            long a = 1;
            for (long i = 0; i < 1000; i++) a = two(i % 13, one(i % 30, a));
            printf(\"%ld %ld\\n\", a, sink);
            return 0;
        }}"
    )
}

fn tables_of_the_large_model_are_recognised() {
    // 16,134 traps.
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        let flags = [level, "-mcmodel=large", "-fpie", "-pie"];
        // At -O0 `main` has no room for a springboard.
        let most = u64::from(level == "-O0");
        assert!(traps("gcc", &switches(), &flags).iter().all(|n| *n <= most), "gcc {level}");
    }
    for level in ["-O1", "-O2"] {
        let flags = [level, "-mcmodel=large", "-fpie", "-pie"];
        assert_eq!(traps("clang", &switches(), &flags), [0, 0], "clang {level}");
    }
}

/// Enters a function at the sum of its address and a number that is known at run time, where there is no room for a springboard: instructions of one, two and two
/// bytes. `behind`: what stands behind another function.
fn entered_in_the_middle(behind: &str) -> String {
    let functions = format!(
        r#"__asm__(".text\n.balign 16\n.globl short_ones\n.type short_ones, @function\nshort_ones: .cfi_startproc\n"
        " lea 256(%rdi), %rax\n push %rbx\n push %r15\n push %r14\n pop %r14\n pop %r15\n pop %rbx\n ret\n"
        ".cfi_endproc\n.size short_ones, .-short_ones\n"
        ".balign 16\n.globl long_one\n.type long_one, @function\nlong_one: .cfi_startproc\n"
        " lea 256(%rdi), %rax\n nopl 256(%rax)\n nop\n ret\n"
        ".cfi_endproc\n.size long_one, .-long_one\n{behind}");"#
    );
    functions
        + r#"
        #include <stdio.h>
        extern long short_ones(long), long_one(long), table[];
        volatile long lea_bytes = 7;
        int main(void) {
            long sum = 0;
            for (long k = 0; k < 1000; k++) {
                sum += ((long (*)(long))((char *)short_ones + lea_bytes))(k) != 5;
                sum += short_ones(k) + long_one(k);
            }
            printf("%d\n", sum != 0);
            return 0;
        }"#
}

fn an_address_that_nobody_foresaw_takes_a_hundred() {
    // LuaJIT's callbacks: 121,000 traps.
    for kind in [&["-fpie", "-pie"], &["-fno-pie", "-no-pie"]] {
        let flags = [&["-O1"][..], kind].concat();
        assert_eq!(traps("gcc", &entered_in_the_middle(""), &flags), [100, 100], "{kind:?}");
    }
}

/// What a run of `nodes` nodes prints, and its statistics. `program`: rewritten.
fn run_on(folder: &Path, nodes: u32, program: &[&str]) -> (String, serde_json::Value) {
    let nodes = nodes.to_string();
    let output = blizzard(folder, &[&["run", "-n", &nodes, "--stats", "stats", "--"], program].concat());
    let stats = serde_json::from_slice(&std::fs::read(folder.join("stats")).unwrap()).unwrap();
    (String::from_utf8(output.stdout).unwrap(), stats)
}

/// Builds `source` and rewrites it into `rewritten`.
fn rewritten(folder: &Path, source: &str, flags: &[&str], options: &[&str]) {
    let _ = std::fs::remove_file(folder.join("rewritten"));
    std::fs::write(folder.join("prog.c"), source).unwrap();
    let built = tool("gcc").args(flags).args(["prog.c", "-o", "prog"]).current_dir(folder).status().unwrap();
    assert!(built.success(), "{flags:?}");
    blizzard(folder, &[&["rewrite", "prog", "-o", "rewritten"], options].concat());
}

fn nodes_and_children_write_jumps_of_their_own() {
    // Jumps were written with one node only, and in the process that had the hundredth hit of all.
    let children = r#"
        if (k == 98) {
            int status = 0;
            pid_t child = fork();
            for (int i = 0; !child && i < 300; i++) sum += ENTER(short_ones)(k) != 5;
            if (!child) _exit(sum);
            waitpid(child, &status, 0);
            sum = status;
            char *arguments[] = {"true", 0};
            child = vfork();
            for (int i = 0; !child && i < 300; i++) ENTER(long_one)(k);
            if (!child) execv("/bin/true", arguments), _exit(1);
            waitpid(child, &status, 0);
            sum += status;
        }"#;
    let source = "#include <sys/wait.h>\n#include <unistd.h>\n".to_owned() + &entered_in_the_middle("");
    let source = source.replace("sum += short_ones(k)", &format!("{children} sum += short_ones(k)"));
    let source = "#define ENTER(f) ((long (*)(long))((char *)f + lea_bytes))\n".to_owned() + &source;
    let folder = tempfile::tempdir().unwrap();
    for flags in [&["-O1", "-fpie", "-pie"][..], &["-O1", "-fno-pie", "-no-pie"]] {
        for access in ["tests", "guard"] {
            rewritten(folder.path(), &source, flags, &["--access", access]);
            for nodes in [1, 2] {
                let (said, stats) = run_on(folder.path(), nodes, &["./rewritten"]);
                assert_eq!(said, "1\n".repeat(nodes as usize), "{flags:?} {access} {nodes}");
                // The child of `fork` takes the hundredth and writes its own jump; its parent takes a hundred more.
                let place = |k: usize| (&stats["trap_places"][k]["hits"], &stats["trap_places"][k]["jump"]);
                let hits = |each: u32| serde_json::Value::from(each * nodes);
                assert_eq!((place(0), place(1)), ((&hits(200), &true.into()), (&hits(100), &true.into())), "{stats}");
            }
        }
    }
}

fn created_nodes_have_the_jumps_of_node_0_and_their_own() {
    let source = entered_in_the_middle("");
    let (functions, _) = source.split_once("#include").unwrap();
    let source = functions.to_owned()
        + r#"
        #include <blizzard.h>
        #include <stdio.h>
        extern char short_ones[], long_one[];
        static uint64_t *shared;
        volatile long lea_bytes = 7;
        static void enter(char *function, long count) {
            for (long k = 0; k < count; k++) ((void (*)(long))(function + lea_bytes))(k), shared[bz_node()]++;
        }
        static void work(void) { enter(short_ones, 1000), enter(long_one, 1000), bz_barrier(); }
        int main(void) {
            shared = bz_alloc(24);
            enter(short_ones, 150);
            bz_create(work), bz_create(work), work(), bz_wait_for_end(2);
            printf("%d %d %d\n", (int)shared[0], (int)shared[1], (int)shared[2]);
            return 0;
        }"#;
    let folder = tempfile::tempdir().unwrap();
    let options = String::from_utf8(blizzard(folder.path(), &["config", "--cflags", "--libs"]).stdout).unwrap();
    let options: Vec<&str> = options.split_whitespace().collect();
    std::fs::write(folder.path().join("prog.c"), source).unwrap();
    let built = tool("gcc").args(["-O1", "prog.c", "-o", "prog"]).args(options).current_dir(&folder).status().unwrap();
    assert!(built.success());
    for access in ["tests", "guard"] {
        blizzard(folder.path(), &["rewrite", "--access", access, "prog", "-o", access]);
        let program = format!("./{access}");
        let run = blizzard(folder.path(), &["run", "--fork", "-n", "3", "--stats", "stats", "--", &program]);
        assert_eq!(String::from_utf8_lossy(&run.stdout), "2150 2000 2000\n", "{access}");
        let stats = std::fs::read(folder.path().join("stats")).unwrap();
        let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
        assert_eq!(stats["totals"]["traps"], 100 + 3 * 100, "{access}: {stats}");
    }
}

/// A fixed-address program: in front of it nothing is, so the distance of a jump must not end in the trap byte of an instruction that begins there.
fn a_short_jump_leads_to_a_long_one_where_that_has_no_room() {
    let flags = ["-O1", "-fno-pie", "-no-pie"];
    let source = entered_in_the_middle("");
    // Instructions of four and one bytes, and then some long ones; or only some of one byte.
    let begins_at_the_fourth = source.replace(
        " push %rbx\\n push %r15\\n push %r14\\n pop %r14\\n pop %r15\\n pop %rbx",
        " nopl 0(%rax)\\n nop\\n nopl 256(%rax)",
    );
    assert_ne!(source, begins_at_the_fourth);
    assert_eq!(traps("gcc", &begins_at_the_fourth, &flags), [100, 100]);
    let short_ones = source.replace(
        "push %r15\\n push %r14\\n pop %r14\\n pop %r15\\n",
        "push %rbp\\n pop %rbp\\n push %rbp\\n pop %rbp\\n",
    );
    // What a short jump would lead to.
    let crowd = "__asm__(\".text\\n.globl crowd\\n.type crowd, @function\\ncrowd: .cfi_startproc\\n .rept 64\\n nop\\n .endr\\n ret\\n.cfi_endproc\\n\");";
    let short_ones = crowd.to_owned() + &short_ones;
    let folder = tempfile::tempdir().unwrap();
    rewritten(folder.path(), &short_ones, &flags, &["--no-libraries"]);
    let (_, stats) = run_on(folder.path(), 1, &["./rewritten"]);
    assert_eq!(
        (&stats["trap_places"][0]["kept"], &stats["totals"]["traps"]),
        (&"room".into(), &1000.into()),
        "{stats}"
    );
}

fn a_tracer_changes_no_springboard_and_sees_a_hundred_signals() {
    let folder = tempfile::tempdir().unwrap();
    let signals = |source: &str, expected: &str| {
        rewritten(folder.path(), source, &["-O1", "-static"], &[]);
        let mut strace = tool("strace");
        let output =
            strace.args(["-qq", "-e", "trace=none", "-o", "log", "./rewritten"]).current_dir(&folder).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
        log.lines().filter(|line| line.contains("--- SIGILL")).count()
    };
    assert_eq!(signals(&entered_in_the_middle(""), "1\n"), 100);
    assert_eq!(signals(PASCAL, "1024000\n"), 0);
}

/// A program that enters a function in its middle with random registers, flags and red zone, by single steps and with a timer's signals. What the function finds
/// must be that. `shape`: the instructions there.
fn entered_step_by_step(shape: &str) -> String {
    format!("#define SHAPE \"{shape}\"\n{}", include_str!("taken_traps/steps.c"))
}

fn steps(shape: &str, flags: &[&str], access: &str, nodes: u32, seed: u32, rounds: u32) {
    let folder = tempfile::tempdir().unwrap();
    rewritten(folder.path(), &entered_step_by_step(shape), &[&["-O1"], flags].concat(), &["--access", access]);
    let (seed, rounds) = (seed.to_string(), rounds.to_string());
    // Where accesses are tested, flags live over no call.
    let flags_too = if access == "guard" { &["flags"][..] } else { &[] };
    let (said, stats) = run_on(folder.path(), nodes, &[&["./rewritten", &seed, &rounds], flags_too].concat());
    let case = format!("{shape} {flags:?} {access} {nodes} {seed}: {stats}");
    assert_eq!(said, "right\n".repeat(nodes as usize), "{case}");
    let [place] = &stats["trap_places"].as_array().unwrap()[..] else { panic!("{case}") };
    assert_eq!((&place["hits"], &place["jump"]), (&(100 * nodes).into(), &true.into()), "{case}");
}

const ONE_TWO_TWO: &str = "push %rbx\\n push %r15\\n pop %r15\\n pop %rbx\\n";
const FOUR_ONE: &str = "nopl 0(%rax)\\n push %rbx\\n pop %rbx\\n nopl 256(%rax)\\n";
const SEVEN: &str = "nopl 256(%rax)\\n";

fn signals_and_registers_are_the_same_while_a_trap_byte_becomes_a_jump() {
    steps(ONE_TWO_TWO, &["-static-pie"], "guard", 2, 1, 200);
    steps(FOUR_ONE, &["-static"], "guard", 1, 2, 200);
    steps(SEVEN, &["-static"], "tests", 2, 3, 130);
}

fn signals_and_registers_are_the_same_at_jumps_of_all_shapes() {
    for seed in 1..=2 {
        for shape in [ONE_TWO_TWO, FOUR_ONE, SEVEN] {
            for flags in ["-static", "-static-pie"] {
                for access in ["tests", "guard"] {
                    for nodes in [1, 2] {
                        steps(shape, &[flags], access, nodes, seed, 300);
                    }
                }
            }
        }
    }
}

fn a_filter_of_system_calls_is_not_provoked() {
    let filter = r#"
        #include <stddef.h>
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        static void forbid(void) {
            struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            };
            struct sock_fprog all = {sizeof code / sizeof *code, code};
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all)) __builtin_trap();
        }"#;
    let source = filter.to_owned() + &entered_in_the_middle("").replace("long sum = 0;", "long sum = 0; forbid();");
    assert_eq!(traps("gcc", &source, &["-O1", "-static"]), [1000, 1000]);
    let folder = tempfile::tempdir().unwrap();
    rewritten(folder.path(), &source, &["-O1", "-static"], &[]);
    let (_, stats) = run_on(folder.path(), 2, &["./rewritten"]);
    assert_eq!((&stats["trap_places"][0]["kept"], &stats["totals"]["traps"]), (&"filter".into(), &2000.into()));
    // One that the process begins with. Those of containers refuse something else, and end nobody.
    rewritten(folder.path(), &entered_in_the_middle(""), &["-O1", "-static"], &[]);
    for (filter, jump) in [(filter.to_owned(), false), (filter.replace("SYS_membarrier", "SYS_mount"), true)] {
        let source = filter
            + "\n#include <unistd.h>\nint main(int c, char **v) { (void)c; forbid(); execv(v[1], v + 1); return 1; }";
        std::fs::write(folder.path().join("before.c"), source).unwrap();
        assert!(tool("gcc").args(["before.c", "-o", "before"]).current_dir(&folder).status().unwrap().success());
        let run = [BLIZZARD, "run", "--stats", "stats", "--", "./rewritten"];
        let output = Command::new("./before").args(run).current_dir(&folder).output().unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"1\n"[..]), "{jump}");
        let stats = std::fs::read(folder.path().join("stats")).unwrap();
        let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
        assert_eq!(stats["trap_places"][0]["jump"], jump, "{stats}");
    }
}

/// A function of four bytes is the last of its page. Behind it are constants, or variables, that a jump of five bytes would take for its own.
fn jumps_stay_on_pages_of_code() {
    let source = |section: &str, store: &str| {
        let lines = format!(
            ".text; .balign 4096; .globl _start; _start: xor %ebx, %ebx; mov $1000, %r12d; 1: mov %ebx, %edi; mov %ebx, %eax
             mov pointer(%rip), %rcx; call *%rcx; mov %eax, %ebx; dec %r12d; jnz 1b; {store}; xor $1000, %ebx; mov %ebx, %edi
             mov $231, %eax; syscall; hlt; .org 4092; .globl f; .type f, @function; f: add $1, %eax; ret; .size f, .-f
             .section {section}; .balign 4096; .byte 0, 2, 3, 4; written: .long 0; .data; pointer: .quad f"
        );
        lines.lines().map(|line| format!("__asm__(\"{}\");\n", line.trim())).collect::<String>()
    };
    let folder = tempfile::tempdir().unwrap();
    let flags = ["-nostdlib", "-static", "-no-pie"];
    for (section, store, layout) in
        [(".rodata", "nop", "separate-code"), (".data", "movl $5, written(%rip)", "noseparate-code")]
    {
        let flags = [&flags[..], &["-z", layout]].concat();
        rewritten(folder.path(), &source(section, store), &flags, &[]);
        for nodes in [1, 2] {
            let (_, stats) = run_on(folder.path(), nodes, &["./rewritten"]);
            assert_eq!(stats["trap_places"][0]["kept"], "room", "{section} {nodes}: {stats}");
        }
    }
}

/// Jumps of a fixed-address program lead to what lies behind it.
fn the_programs_own_memory_goes_before_jumps() {
    let includes = "#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n";
    let memory = r#"
        static int take_memory(void) {
            char *heap = sbrk(64 << 20), *own = (char *)0x10000000;
            if (heap == (void *)-1) return 1;
            memset(heap, 1, 64 << 20);
            sbrk(-(64 << 20));
            int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
            return mmap(own, 0x68000000, PROT_NONE, flags, -1, 0) != own;
        }"#;
    let middle = entered_in_the_middle("")
        .replace("sum += short_ones(k)", "if (k == 500 && take_memory()) return 1; sum += short_ones(k)");
    // Its last byte decides that the jump would lead closely behind the program.
    let close = r#"
        __asm__(".text\n.fill 300, 1, 0\n.globl f\n.type f, @function\nf: add $1, %edi\n ret\n.size f, .-f\n.fill 300, 1, 0\n");
        #include <stdio.h>
        void f(int);
        static void (*volatile pointer[])(int) = {f};
        int main(void) {
            for (int k = 0; k < 1000; k++) {
                if (k == 500 && take_memory()) return 1;
                pointer[0](k);
            }
            puts("1");
            return 0;
        }"#;
    let folder = tempfile::tempdir().unwrap();
    // The jump is taken back where the memory comes.
    for (source, jump, hits) in [(close, false, 1000), (&middle, true, 100 + 499)] {
        let source = ["#define _GNU_SOURCE\n", includes, memory, source].concat();
        rewritten(folder.path(), &source, &["-O1", "-fno-pie", "-no-pie"], &[]);
        for nodes in [1, 2] {
            let (said, stats) = run_on(folder.path(), nodes, &["./rewritten"]);
            let place = &stats["trap_places"][0];
            let shown = (said, &place["jump"], &place["hits"]);
            assert_eq!(shown, ("1\n".repeat(nodes as usize), &jump.into(), &(hits * nodes).into()), "{stats}");
        }
    }
}

/// A signal may come while another trap byte's is handled.
fn a_handler_under_a_tracer_comes_to_trap_bytes() {
    // What lies between them leaves no room for jumps.
    let source = r#"
        __asm__(".text\n f: add $1, %edi\n ret\n .fill 4, 1, 0\n g: add $1, %edi\n ret\n .fill 300, 1, 0\n");
        #include <signal.h>
        #include <stdio.h>
        #include <sys/time.h>
        void f(int), g(int);
        static void (*volatile pointers[])(int) = {f, g};
        static volatile int signals, own;
        static void handler(int signal) { (void)signal; signals++, pointers[1](0); }
        static void illegal(int signal) { (void)signal; own++; }
        int main(void) {
            struct itimerval often = {{0, 200}, {0, 200}};
            signal(SIGALRM, handler);
            for (int again = 0; again < 2; again++, signal(SIGILL, illegal)) {
                setitimer(ITIMER_REAL, &often, 0);
                for (signals = 0; signals < 200;) pointers[0](1);
            }
            printf("%d\n", own);
            return 0;
        }"#;
    let folder = tempfile::tempdir().unwrap();
    rewritten(folder.path(), source, &["-O1", "-fno-pie", "-no-pie", "-static"], &[]);
    let output =
        tool("strace").args(["-qq", "-e", "trace=none", "-o", "log", "./rewritten"]).current_dir(&folder).output();
    assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout), "0\n");
}

fn no_jump_is_written_where_data_look_like_trap_bytes() {
    let source = entered_in_the_middle(".balign 8\\n.globl table\\ntable: .quad -0x3333333333333334, 1\\n.text\\n");
    let source = source.replace("printf(", "sum += table[0] == 7; printf(");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("prog.c"), &source).unwrap();
    let built = tool("gcc").args(["-O1", "prog.c", "-o", "prog"]).current_dir(&folder).status();
    assert!(built.unwrap().success());
    blizzard(folder.path(), &["rewrite", "prog", "-o", "rewritten", "--no-libraries"]);
    let stats = blizzard(folder.path(), &["run", "--stats", "stats", "--", "./rewritten"]);
    assert_eq!(stats.stdout, b"1\n");
    let stats: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("stats")).unwrap()).unwrap();
    let [place] = &stats["trap_places"].as_array().unwrap()[..] else { panic!("{stats}") };
    let shown = (&place["function"], &place["hits"], &place["jump"]);
    assert_eq!(shown, (&"short_ones+0x7".into(), &1000.into(), &false.into()), "{stats}");
    // Who says that jumps may be written there is found out.
    let path = folder.path().join("rewritten");
    let mut file = std::fs::read(&path).unwrap();
    let magic = blizzard_contract::MODULE_MAGIC.to_le_bytes();
    let at = memchr::memmem::find(&file, &[magic, [0x27, 0, 0, 0, 0, 0, 0, 0]].concat()).expect("the module info");
    file[at + 8] |= blizzard_contract::module_flags::JUMPS as u8;
    std::fs::write(&path, file).unwrap();
    let mut verify = Command::new(BLIZZARD);
    let audit = verify.args(["verify", "--original", "prog", "rewritten"]).current_dir(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&audit.stdout).into_owned() + &String::from_utf8_lossy(&audit.stderr);
    assert!(!audit.status.success() && said.contains("looks like a trap byte"), "{said}");
}
