//! Programs that make code of their own: they run on several nodes; with `--access tests` they are marked on one node, and refused on several.

use crate::sources::{blizzard, compile, finished};
use std::path::Path;

blizzard_test_harness::module! {
    a_program_that_makes_code_is_refused_on_several_nodes_of_tested_code,
}

/// `mov eax, 42; ret`, in memory that becomes executable as the argument says.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
/* Pages of the program's own file. */
static unsigned char data[2 * 4096] __attribute__((aligned(4096)));

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int rwx = PROT_READ | PROT_WRITE | PROT_EXEC;
    void *at = MAP_FAILED;
    if (strcmp(how, "mmap") == 0) {
        at = mmap(0, 4096, rwx, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    } else if (strcmp(how, "mprotect") == 0 || strcmp(how, "pkey") == 0) {
        at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (how[0] == 'm' ? mprotect(at, 4096, rwx) : pkey_mprotect(at, 4096, rwx, -1)) return 2;
    } else if (strcmp(how, "own-data") == 0) {
        at = data;
        if (mprotect(at, sizeof data, rwx)) return 2;
    } else if (strcmp(how, "memfd") == 0) {
        int fd = memfd_create("code", 0);
        if (fd < 0 || write(fd, code, sizeof code) != sizeof code) return 2;
        at = mmap(0, 4096, rwx, MAP_PRIVATE, fd, 0);
    } else if (strcmp(how, "shmat") == 0) {
        int id = shmget(IPC_PRIVATE, 4096, 0700);
        if (id < 0) return 2;
        at = shmat(id, 0, SHM_EXEC);
        shmctl(id, IPC_RMID, 0);
    } else {
        puts("none");
        return 0;
    }
    if (at == MAP_FAILED) return 2;
    memcpy(at, code, sizeof code);
    printf("%d\n", ((int (*)(void))at)());
    return 0;
}
"#;

fn run(folder: &Path, options: &[&str], how: &str) -> (String, String, i32) {
    finished(blizzard(folder).arg("run").args(options).args(["--", "./makes", how]).output().unwrap())
}

fn a_program_that_makes_code_is_refused_on_several_nodes_of_tested_code() {
    let folder = tempfile::tempdir().unwrap();
    compile(SOURCE, &folder.path().join("makes"), &["-O1"]);

    for how in ["mmap", "mprotect", "pkey", "own-data", "shmat", "memfd"] {
        for nodes in ["1", "2"] {
            let (said, noted, status) = run(folder.path(), &["-q", "--access", "guard", "-n", nodes], how);
            assert_eq!(
                (said.as_str(), noted.as_str(), status),
                ("42\n".repeat(nodes.parse().unwrap()).as_str(), "", 0),
                "{how}: {noted}"
            );
        }

        let (said, noted, status) = run(folder.path(), &["--access", "tests"], how);
        assert_eq!((said.as_str(), status), ("42\n", 0), "{how}: {noted}");
        assert_eq!(noted.lines().count(), 1, "{how}: {noted}");
        assert!(noted.contains("generates code") && noted.contains("--access guard"), "{how}: {noted}");

        let (said, refused, status) = run(folder.path(), &["-n", "2"], how);
        assert_eq!((said.as_str(), status), ("", 1), "{how}: {refused}");
        let named = if how == "memfd" { "maps code from a file that is no library" } else { "generates code" };
        assert!(refused.contains(named) && refused.contains("one node only"), "{how}: {refused}");
    }

    for options in [&[][..], &["-q", "-n", "2"]] {
        let (_, noted, status) = run(folder.path(), options, "none");
        assert_eq!((noted.as_str(), status), ("", 0));
    }
    // Nothing is checked in it, so there is nothing to mark.
    let (_, noted, _) = run(folder.path(), &["--checks", "none", "--poll", "none"], "mmap");
    assert_eq!(noted, "");
}
