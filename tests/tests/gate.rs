//! What a program must not do in a run of several nodes, and what it is told: these programs behave differently there, so they are no
//! cases of the differential harness.

use blizzard_tests::compile::{Job, Language, compile};
use blizzard_tests::run::{Ending, LIMIT, Outcome, run};
use blizzard_tests::tool;
use blizzard_tests::workdir::WorkDir;

/// Compiles `body`, the inside of `main` with `node` and a shared array of 512 longs that node 0 has written last, and runs it on `nodes`
/// nodes.
fn run_on(name: &str, nodes: u32, body: &str) -> Outcome {
    run_in(&[], name, nodes, body)
}

/// The same, with more options of `blizzard run`.
fn run_in(options: &[&str], name: &str, nodes: u32, body: &str) -> Outcome {
    let work = WorkDir::new(&format!("gate::{name}")).unwrap();
    let source = work.path().join("prog.c");
    let text = format!(
        "#define _GNU_SOURCE
        #include \"blizzard.h\"
        #include <errno.h>
        #include <pthread.h>
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <sys/syscall.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static void *nothing(void *p) {{ return p; }}
        int main(void) {{
            unsigned node = bz_node();
            volatile long *shared;
            if (node == 0) {{ shared = bz_alloc(512 * sizeof(long)); bz_publish(0, (void *)shared); }}
            else shared = bz_lookup(0);
            bz_barrier();
            if (node == 0) for (int i = 0; i < 512; i++) shared[i] = i;
            bz_barrier();
            (void)nothing;
            {body}
        }}"
    );
    std::fs::write(&source, text).unwrap();
    let program = work.path().join("prog");
    let job = Job {
        sources: vec![source],
        language: Language::C,
        compiler: "gcc",
        flags: [vec!["-O1".into()], tool::config("--cflags").unwrap()].concat(),
        libraries: tool::config("--libs").unwrap(),
        output: &program,
    };
    compile(&job).unwrap();
    let mut command = tool::blizzard(["run", "-n", &nodes.to_string()]);
    run(command.args(options).arg("--").arg(&program), "", LIMIT).unwrap()
}

fn assert_fails(outcome: &Outcome, text: &str) {
    assert!(matches!(outcome.ending, Ending::Exit(status) if status != 0), "{}", outcome.describe());
    assert!(outcome.stderr_text().contains(text), "{}", outcome.describe());
}

#[test]
fn a_second_thread_is_refused_on_several_nodes_and_works_on_one() {
    let body = "pthread_t t;
        if (node == 1 || bz_nodes() == 1) {
            if (pthread_create(&t, 0, nothing, 0) || pthread_join(t, 0)) return 3;
            puts(\"joined\");
        }
        bz_barrier();
        return 0;";
    let several = run_on("thread", 2, body);
    assert_fails(&several, "node 1: the program starts a second thread, started by main+0x");
    assert_fails(&several, "in a run of several nodes each node has one thread\n  help: let the nodes share the work");
    let one = run_on("thread-alone", 1, body).success().unwrap();
    assert_eq!(one.stdout_text(), "joined\n");
}

/// A forked child has what was valid in its node, and is told when it uses something else; the run goes on.
#[test]
fn a_forked_child_has_only_the_blocks_that_its_node_had() {
    let outcome = run_on(
        "fork",
        2,
        "int status = 0;
        if (node == 1) {
            long sum = shared[0];           /* now this block is valid here */
            fflush(0);
            if (fork() == 0) { _exit(shared[1] == 1 && sum == 0 ? 21 : 22); }
            wait(&status);
            printf(\"valid %d\\n\", WEXITSTATUS(status));
            fflush(0);
            if (fork() == 0) { _exit((int)shared[500] + 30); }
            wait(&status);
            printf(\"invalid %d\\n\", WEXITSTATUS(status));
            fflush(0);
            if (fork() == 0) { bz_barrier(); _exit(30); }
            wait(&status);
            printf(\"call %d\\n\", WEXITSTATUS(status));
            printf(\"parent %ld\\n\", shared[500]);
        }
        bz_barrier();
        return 0;",
    );
    let outcome = outcome.success().unwrap();
    assert_eq!(outcome.stdout_text(), "valid 21\ninvalid 1\ncall 1\nparent 500\n", "{}", outcome.describe());
    let stderr = outcome.stderr_text();
    assert!(stderr.contains("a process forked from a node used shared memory at 0x20"), "{stderr}");
    assert!(stderr.contains("bz_barrier was called in a process forked from a node"), "{stderr}");
}

#[test]
fn a_shared_pointer_of_unknown_layout_is_refused_with_the_call() {
    let outcome = run_on("layout", 2, "if (node == 1) munmap((void *)shared, 4096); bz_barrier(); return 0;");
    let text = "node 1: system call 11 (munmap) has a pointer into shared memory (0x20";
    assert_fails(&outcome, text);
}

/// A futex in shared memory: a waiter looks again instead of sleeping for ever, whoever changes the word.
#[test]
fn a_futex_word_in_shared_memory_is_seen_to_change() {
    let outcome = run_on(
        "futex",
        2,
        "volatile int *word = (volatile int *)&shared[100];
        if (node == 0) { *word = 7; }
        bz_barrier();
        if (node == 1) {
            while (*word == 7) syscall(SYS_futex, word, 0 /* FUTEX_WAIT */, 7, (void *)0);
            printf(\"changed to %d\\n\", *word);
        } else {
            usleep(20000);
            *word = 8;
            syscall(SYS_futex, word, 1 /* FUTEX_WAKE */, 1);
        }
        bz_barrier();
        return 0;",
    );
    assert_eq!(outcome.success().unwrap().stdout_text(), "changed to 8\n");
}

/// The exit status of a node passes through the gate.
#[test]
fn exit_statuses_pass() {
    let outcome = run_on("exit", 2, "bz_barrier(); return node == 1 ? 5 : 0;");
    assert_eq!(outcome.ending, Ending::Exit(5), "{}", outcome.describe());
}

/// A new program's arguments, the longest beyond what a path may have: only its first 4096 bytes were once made readable. The node
/// itself executes it, which ends the run, since it has not taken its leave.
#[test]
fn arguments_of_a_new_program_are_read_from_shared_memory() {
    let body = r#"
        struct program { char path[16], name[8], option[8], script[40], value[20000]; char *argv[6], *envp[2]; } *p;
        if (node == 0) bz_publish(1, bz_alloc(sizeof *p));
        p = bz_lookup(1);
        if (node == 0) {
            memcpy(p->path, "/bin/sh", 8); memcpy(p->name, "sh", 3); memcpy(p->option, "-c", 3);
            memcpy(p->script, "echo ${#1}; echo $1 | tail -c 6", 32);
            for (int i = 0; i < 19990; i++) p->value[i] = 'x';
            memcpy(p->value + 19985, "hello", 6);
            char *argv[] = { p->name, p->option, p->script, p->name, p->value, 0 };
            for (int i = 0; i < 6; i++) p->argv[i] = argv[i];
        }
        bz_barrier();
        if (node == 1) {
            syscall(SYS_execve, p->path, p->argv, p->envp);
            printf("errno %d\n", errno);
        }
        bz_barrier();
        return 0;"#;
    let outcome = run_on("arguments", 2, body);
    assert_eq!(outcome.stdout_text(), "19990\nhello\n", "{}", outcome.describe());
    assert_fails(&outcome, "node 1 ended without taking its leave");
}

/// Pointers that the gate cannot prepare, each with what it is told.
#[test]
fn pointers_that_cannot_be_prepared_are_named() {
    for (name, call, says) in [
        (
            "ioctl",
            "syscall(SYS_ioctl, 0, 0x40105399, shared)",
            "(ioctl), command 0x40105399, has a pointer into shared memory",
        ),
        ("robust", "syscall(SYS_set_robust_list, shared, 24)", "(set_robust_list) has a pointer into shared memory"),
        (
            "stack",
            "{ stack_t s = { .ss_sp = (void *)shared, .ss_size = 4096 }; sigaltstack(&s, 0); }",
            "(sigaltstack) has a pointer",
        ),
    ] {
        let outcome = run_on(name, 2, &format!("if (node == 1) {call}; bz_barrier(); return 0;"));
        assert_fails(&outcome, says);
        assert_fails(&outcome, "node 1: system call ");
    }
}

/// Of a call that the table does not have nobody knows what the kernel would touch. A peer that wants all the time to be answered makes no call be told twice.
#[test]
fn a_call_of_unknown_number_gets_no_shared_memory() {
    let body = "if (node == 1) {
            long wrong = 0;
            for (int i = 0; i < 100; i++) wrong += syscall(1999, 1, shared) != -1 || errno != EFAULT;
            printf(\"%ld\\n\", wrong);
            shared[511] = 1;
        } else while (shared[511] != 1) shared[8 * (shared[0]++ % 60)]++;
        bz_barrier(); return 0;";
    let says = "system call 1999 (unknown) has a pointer into shared memory";
    assert_fails(&run_in(&["--access", "tests"], "unknown-tests", 2, body), says);
    let outcome = run_in(&["--access", "guard"], "unknown-guard", 2, body);
    let said = outcome.stderr_text();
    let lines: Vec<_> = said.lines().filter(|line| line.contains(says)).collect();
    assert!(lines.len() == 100 && lines.iter().all(|line| line.contains("main+0x")), "{}", outcome.describe());
    assert_eq!(outcome.success().unwrap().stdout_text(), "0\n");
}

/// Guarded code goes on where the kernel itself would say that it cannot read what is there.
#[test]
fn guarded_calls_of_unknown_form_get_efault_and_a_line() {
    let body = "if (node == 1) {
            static char buffer[64];
            unsigned long here[2] = { (unsigned long)buffer, 8 }, there[2] = { (unsigned long)shared, 8 };
            unsigned long attribute[8] = { 0, (unsigned long)shared }, block[8] = { 0, 0, 0, (unsigned long)shared, 8 }, *blocks[1] = { block };
            int wrong = 0;
            #define REFUSED(call) (errno = 0, wrong += (call) != -1 || errno != EFAULT)
            REFUSED(syscall(SYS_ioctl, 0, 0x40105399, shared));
            REFUSED(syscall(SYS_prctl, 4711, shared, 0, 0, 0));
            REFUSED(syscall(SYS_fcntl, 0, 4711, shared));
            REFUSED(syscall(SYS_process_vm_readv, getpid(), here, 1, there, 1, 0));
            REFUSED(syscall(SYS_bpf, 0, attribute, sizeof attribute));
            REFUSED(syscall(SYS_mincore, shared, 4096, buffer));
            REFUSED(syscall(SYS_mlock, shared, 4096));
            REFUSED(syscall(SYS_io_submit, 0, 1, blocks));
            pid_t child = vfork();
            if (child == 0) { REFUSED(syscall(SYS_ioctl, 0, 0x40105399, shared)); _exit(0); }
            waitpid(child, 0, 0);
            printf(\"%d\\n\", wrong);
        }
        bz_barrier(); return 0;";
    let outcome = run_in(&["--access", "guard"], "forms-guard", 2, body).success().unwrap();
    assert_eq!(outcome.stdout_text(), "0\n", "{}", outcome.describe());
    let said = outcome.stderr_text();
    let calls = ["ioctl", "prctl", "fcntl", "process_vm_readv", "bpf", "mincore", "mlock", "io_submit", "ioctl"];
    let lines: Vec<_> = said.lines().filter(|line| line.contains("it gets EFAULT")).collect();
    assert_eq!(lines.len(), calls.len(), "{said}");
    for (line, call) in lines.into_iter().zip(calls) {
        assert!(line.contains(&format!("({call})")) && line.contains("main+0x"), "{call}: {line}");
    }
}

/// What the kernel takes without a look ends the run of guarded code, too.
#[test]
fn guarded_calls_that_keep_shared_memory_end_the_run() {
    for (name, call) in [
        ("set_robust_list", "syscall(SYS_set_robust_list, shared, 24)"),
        ("set_tid_address", "syscall(SYS_set_tid_address, shared)"),
        ("mremap", "syscall(SYS_mremap, shared, 4096, 8192, MREMAP_MAYMOVE)"),
        ("sigaltstack", "{ stack_t s = { .ss_sp = (void *)shared, .ss_size = 4096 }; sigaltstack(&s, 0); }"),
    ] {
        let body = format!("if (node == 1) {call}; bz_barrier(); return 0;");
        let outcome = run_in(&["--access", "guard"], &format!("kept-{name}"), 2, &body);
        assert_fails(&outcome, &format!("({name}) has a pointer into shared memory"));
    }
}

/// A loop that does nothing but call the runtime, about memory of its own.
#[test]
fn others_are_answered_in_a_loop_of_calls() {
    for access in ["tests", "guard"] {
        let outcome = run_in(
            &["--access", access, "--peer-timeout", "8"],
            "loop-of-calls",
            2,
            "uint64_t *word = (uint64_t *)&shared[0];
            if (node == 0) { while (bz_fetch_add_u64(word, 0) == 0) {} puts(\"seen\"); }
            else { usleep(50000); shared[0] = 1; }
            bz_barrier();
            return 0;",
        );
        assert_eq!(outcome.success().unwrap().stdout_text(), "seen\n", "{access}");
    }
}
