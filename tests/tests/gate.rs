//! What a program must not do in a run of several nodes, and what it is told: these programs behave differently there, so they are no
//! cases of the differential harness.

use blizzard_tests::compile::{Job, Language, compile};
use blizzard_tests::run::{Ending, LIMIT, Outcome, run};
use blizzard_tests::tool;
use blizzard_tests::workdir::WorkDir;

/// Compiles `body`, the inside of `main` with `node` and a shared array of 512 longs that node 0 has written last, and runs it on `nodes`
/// nodes.
fn run_on(name: &str, nodes: u32, body: &str) -> Outcome {
    let work = WorkDir::new(&format!("gate::{name}")).unwrap();
    let source = work.path().join("prog.c");
    let text = format!(
        "#define _GNU_SOURCE
        #include \"blizzard.h\"
        #include <errno.h>
        #include <fcntl.h>
        #include <poll.h>
        #include <pthread.h>
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/epoll.h>
        #include <sys/ioctl.h>
        #include <sys/mman.h>
        #include <sys/prctl.h>
        #include <sys/select.h>
        #include <sys/socket.h>
        #include <sys/stat.h>
        #include <sys/syscall.h>
        #include <sys/uio.h>
        #include <sys/un.h>
        #include <sys/wait.h>
        #include <time.h>
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
    let mut command = tool::blizzard(["run", "-n", &nodes.to_string(), "--"]);
    run(command.arg(&program), "", LIMIT).unwrap()
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
    assert_fails(&run_on("thread", 2, body), "node 1: the program starts a second thread");
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
    assert!(stderr.contains("a process forked from a node used shared memory at 0x20000000"), "{stderr}");
    assert!(stderr.contains("bz_barrier was called in a process forked from a node"), "{stderr}");
}

#[test]
fn a_shared_pointer_of_unknown_layout_is_refused_with_the_call() {
    let outcome = run_on("layout", 2, "if (node == 1) munmap((void *)shared, 4096); bz_barrier(); return 0;");
    let text = "node 1: system call 11 (munmap) has a pointer into shared memory (0x20000000";
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

/// Every structure that these calls take lies in memory that the other node wrote last, so that nothing of it is valid here; what they
/// leave there is read by the other node.
#[test]
fn calls_work_on_shared_memory() {
    let body = r#"
        struct area {
            char text[300], copy[300], path[64];
            struct iovec out[2], in[2];
            char in0[100], in1[200];
            struct msghdr send, receive;
            struct iovec send_part, receive_part;
            char received[300], control[64], received_control[64];
            struct mmsghdr many[2];
            struct iovec many_parts[2];
            char many_text[2][80];
            int value; socklen_t length; struct timeval timeout, timeout_back;
            struct pollfd poll[2]; fd_set set; sigset_t mask; struct { void *mask; size_t bytes; } pair;
            struct epoll_event event, events[4];
            int ready; struct winsize size, size_back;
            struct flock lock; struct stat status; struct timespec now, pause; char name[16];
            struct sockaddr_un address, peer; socklen_t address_length;
            int fds[2]; off_t offset; char random[64];
        } *a;
        if (node == 0) bz_publish(1, bz_alloc(sizeof *a));
        a = bz_lookup(1);
        int pipes[2], sockets[2], local[2];
        #define NEED(c) do { if (!(c)) { printf("line %d: %s: errno %d\n", __LINE__, #c, errno); fflush(stdout); exit(1); } } while (0)
        NEED(!pipe(pipes) && !socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) && !pipe(local));
        if (node == 0) {
            for (int i = 0; i < 300; i++) a->text[i] = (char)(i * 7 + 1);
            memcpy(a->path, "/proc/self/comm", 16);
            a->out[0] = (struct iovec){a->text, 100}; a->out[1] = (struct iovec){a->text + 100, 200};
            a->in[0] = (struct iovec){a->in0, 100}; a->in[1] = (struct iovec){a->in1, 200};
            a->send_part = (struct iovec){a->text, 300}; a->receive_part = (struct iovec){a->received, 300};
            a->send.msg_iov = &a->send_part; a->send.msg_iovlen = 1;
            a->receive.msg_iov = &a->receive_part; a->receive.msg_iovlen = 1;
            a->receive.msg_control = a->received_control; a->receive.msg_controllen = sizeof a->received_control;
            for (int i = 0; i < 2; i++) {
                a->many_parts[i] = (struct iovec){a->many_text[i], 80};
                a->many[i].msg_hdr.msg_iov = &a->many_parts[i]; a->many[i].msg_hdr.msg_iovlen = 1;
                a->many_text[i][5] = (char)(40 + i);
            }
            a->length = sizeof a->value; a->timeout.tv_sec = 77;
            a->event.events = EPOLLIN; a->event.data.u64 = 0x1234567890;
            a->size.ws_row = 33; a->size.ws_col = 44;
            a->lock.l_type = F_WRLCK; a->pause.tv_nsec = 1000;
            a->pair.mask = &a->mask; a->pair.bytes = 8;
            a->address.sun_family = AF_UNIX; a->address_length = sizeof a->address;
        }
        bz_barrier();
        if (node == 1) {
            char buffer[300];
            /* Plain buffers, vectors, positions. */
            NEED(syscall(SYS_write, pipes[1], a->text, 300) == 300 && read(pipes[0], buffer, 300) == 300);
            for (int i = 0; i < 300; i++) NEED(buffer[i] == (char)(i * 7 + 1));
            NEED(write(pipes[1], buffer, 300) == 300 && syscall(SYS_read, pipes[0], a->copy, 300) == 300);
            NEED(syscall(SYS_writev, pipes[1], a->out, 2) == 300 && syscall(SYS_readv, pipes[0], a->in, 2) == 300);
            int file = (int)syscall(SYS_openat, AT_FDCWD, a->path, O_RDONLY, 0);
            NEED(file >= 0 && syscall(SYS_fstat, file, &a->status) == 0);
            int memory = (int)syscall(SYS_memfd_create, a->path, 0);
            NEED(memory >= 0 && syscall(SYS_pwrite64, memory, a->text, 300, 8) == 300);
            NEED(syscall(SYS_pipe2, a->fds, 0) == 0 && syscall(SYS_getrandom, a->random, 64, 0) == 64);
            a->offset = 8;
            NEED(syscall(SYS_sendfile, pipes[1], memory, &a->offset, 10) == 10 && read(pipes[0], buffer, 10) == 10);
            NEED(buffer[3] == (char)22);
            /* Messages, with a descriptor in the control part. */
            a->send.msg_control = a->control; a->send.msg_controllen = CMSG_SPACE(sizeof(int));
            struct cmsghdr *c = (struct cmsghdr *)a->control;
            c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof(int));
            *(int *)CMSG_DATA(c) = pipes[1];
            NEED(syscall(SYS_sendmsg, sockets[0], &a->send, 0) == 300);
            NEED(syscall(SYS_recvmsg, sockets[1], &a->receive, 0) == 300);
            int passed = *(int *)CMSG_DATA((struct cmsghdr *)a->received_control);
            NEED(write(passed, "p", 1) == 1 && read(pipes[0], buffer, 1) == 1 && buffer[0] == 'p');
            NEED(syscall(SYS_sendmmsg, sockets[0], a->many, 2, 0) == 2 && a->many[1].msg_len == 80);
            a->many_text[0][5] = a->many_text[1][5] = 0;
            NEED(syscall(SYS_recvmmsg, sockets[1], a->many, 2, 0, 0) == 2);
            /* Options and names of sockets. */
            NEED(syscall(SYS_getsockopt, sockets[0], SOL_SOCKET, SO_TYPE, &a->value, &a->length) == 0);
            NEED(syscall(SYS_setsockopt, sockets[0], SOL_SOCKET, SO_RCVTIMEO, &a->timeout, sizeof a->timeout) == 0);
            a->length = sizeof a->timeout_back;
            NEED(syscall(SYS_getsockopt, sockets[0], SOL_SOCKET, SO_RCVTIMEO, &a->timeout_back, &a->length) == 0);
            int bound = socket(AF_UNIX, SOCK_DGRAM, 0);
            NEED(syscall(SYS_bind, bound, &a->address, sizeof(sa_family_t)) == 0);
            NEED(syscall(SYS_getsockname, bound, &a->peer, &a->address_length) == 0);
            /* Waiting. */
            NEED(write(pipes[1], "abcde", 5) == 5);
            a->poll[0].fd = pipes[0]; a->poll[0].events = POLLIN; a->poll[1].fd = local[0]; a->poll[1].events = POLLIN;
            NEED(syscall(SYS_poll, a->poll, 2, 0) == 1);
            NEED(syscall(SYS_ppoll, a->poll, 2, &a->pause, &a->mask, 8) == 1);
            FD_ZERO(&a->set); FD_SET(pipes[0], &a->set); FD_SET(local[0], &a->set);
            NEED(syscall(SYS_pselect6, 64, &a->set, 0, 0, 0, &a->pair) == 1 && FD_ISSET(pipes[0], &a->set) && !FD_ISSET(local[0], &a->set));
            int epoll = epoll_create1(0);
            NEED(syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, pipes[0], &a->event) == 0);
            NEED(syscall(SYS_epoll_pwait, epoll, a->events, 4, 0, &a->mask, 8) == 1);
            /* Commands. */
            NEED(syscall(SYS_ioctl, pipes[0], FIONREAD, &a->ready) == 0);
            int terminal = posix_openpt(O_RDWR | O_NOCTTY);
            NEED(terminal >= 0 && syscall(SYS_ioctl, terminal, TIOCSWINSZ, &a->size) == 0);
            NEED(syscall(SYS_ioctl, terminal, TIOCGWINSZ, &a->size_back) == 0);
            NEED(syscall(SYS_fcntl, memory, F_GETLK, &a->lock) == 0);
            NEED(syscall(SYS_prctl, PR_GET_NAME, a->name) == 0);
            NEED(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &a->now) == 0);
            NEED(syscall(SYS_nanosleep, &a->pause, 0) == 0);
            /* A pointer that leads nowhere is an error of the call, as ever. */
            NEED(syscall(SYS_readv, pipes[0], 8, 1) == -1 && errno == EFAULT);
            NEED(syscall(SYS_sendmsg, sockets[0], 8, 0) == -1 && errno == EFAULT);
        }
        bz_barrier();
        if (node == 0) {
            for (int i = 0; i < 300; i++) {
                char c = (char)(i * 7 + 1);
                NEED(a->copy[i] == c && a->received[i] == c && (i < 100 ? a->in0[i] : a->in1[i - 100]) == c);
            }
            NEED(S_ISREG(a->status.st_mode) && a->fds[0] > 2 && a->fds[1] > 2 && a->offset == 18);
            int sum = 0;
            for (int i = 0; i < 64; i++) sum |= a->random[i];
            NEED(sum != 0);
            NEED(a->many_text[0][5] == 40 && a->many_text[1][5] == 41 && a->many[0].msg_len == 80);
            NEED(a->value == SOCK_DGRAM && a->timeout_back.tv_sec == 77 && a->length == sizeof a->timeout_back);
            NEED(a->peer.sun_family == AF_UNIX && a->address_length > sizeof(sa_family_t) && a->address_length < 20);
            NEED(a->poll[0].revents == POLLIN && a->poll[1].revents == 0);
            NEED(a->events[0].data.u64 == 0x1234567890 && a->events[0].events == EPOLLIN);
            NEED(a->ready == 5 && a->size_back.ws_row == 33 && a->size_back.ws_col == 44);
            NEED(a->lock.l_type == F_UNLCK && a->name[0] != 0 && (a->now.tv_sec || a->now.tv_nsec));
            puts("all well");
        }
        bz_barrier();
        return 0;"#;
    let outcome = run_on("shared-memory", 2, body).success().unwrap();
    assert_eq!(outcome.stdout_text(), "all well\n", "{}", outcome.describe());
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
        ("unknown", "syscall(1999, 1, shared)", "system call 1999 (unknown) has a pointer into shared memory"),
    ] {
        let outcome = run_on(name, 2, &format!("if (node == 1) {call}; bz_barrier(); return 0;"));
        assert_fails(&outcome, says);
        assert_fails(&outcome, "node 1: system call ");
    }
}
