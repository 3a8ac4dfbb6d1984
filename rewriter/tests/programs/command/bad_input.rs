//! What is wrong with files and folders while `blizzard` works: one clear error, exit status 1, and nothing is left behind.

use blizzard_test_harness::executable;
use blizzard_test_harness::{needs, tool};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

blizzard_test_harness::module! {
    an_input_that_is_truncated_meanwhile_is_one_error,
    an_input_that_is_written_to_meanwhile_is_one_error,
    an_interrupted_rewrite_leaves_nothing,
    an_interrupted_command_leaves_no_temporary_folder,
    an_interrupted_compiler_leaves_no_temporary_files,
    errors_that_nobody_reads_have_their_exit_status,
    pipes_are_refused_and_not_waited_for,
    source_code_is_no_program,
    a_sparse_file_is_refused_at_once,
    a_missing_library_is_named_with_where_it_was_looked_for,
    a_full_disk_is_one_error_and_nothing_is_left,
    a_folder_that_cannot_be_written_to_is_one_error,
    a_cache_or_bundle_that_is_a_file_is_one_error,
}

/// The rewrite succeeded, and the dynamic loader said it at each start.
fn a_missing_library_is_named_with_where_it_was_looked_for() {
    let bench = Bench::new();
    fs::write(bench.at("lib.c"), "int gone(void) { return 0; }\n").unwrap();
    fs::write(bench.at("needs.c"), "int gone(void);\nint main(void) { return gone(); }\n").unwrap();
    for args in [
        &["-shared", "-fPIC", "-Wl,-soname,libgone.so.7", "lib.c", "-o", "libgone.so"][..],
        &["needs.c", "./libgone.so", "-Wl,-rpath,$ORIGIN/there", "-o", "needs"],
    ] {
        assert!(tool("cc").current_dir(&bench.folder).args(args).status().unwrap().success());
    }
    let output = bench.command(&["rewrite", "needs", "-o", "out"]).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.starts_with("blizzard: error: needs: libgone.so.7: cannot open shared object file"), "{err}");
    assert!(err.contains("/there, ") && err.contains("/etc/ld.so.cache") && err.contains("help: "), "{err}");
    assert!(!bench.at("out").exists());
    fs::create_dir(bench.at("there")).unwrap();
    fs::rename(bench.at("libgone.so"), bench.at("there/libgone.so.7")).unwrap();
    for options in [&["needs", "-o", "out"][..], &["needs", "-o", "out", "--no-libraries"]] {
        let output = bench.command(&[&["rewrite"], options].concat()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // A library's library, by the folders of the environment; an empty name is the current one.
    fs::write(bench.at("uses.c"), "int mid(void);\nint main(void) { return mid(); }\n").unwrap();
    fs::write(bench.at("mid.c"), "int gone(void);\nint mid(void) { return gone(); }\n").unwrap();
    fs::create_dir(bench.at("other")).unwrap();
    for args in [
        &["-shared", "-fPIC", "mid.c", "there/libgone.so.7", "-o", "other/libmid.so"][..],
        &["uses.c", "-Lother", "-lmid", "-Wl,-rpath-link,there", "-o", "uses"],
    ] {
        assert!(tool("cc").current_dir(&bench.folder).args(args).status().unwrap().success());
    }
    let rewritten = |folders: &str| {
        let mut rewrite = bench.command(&["rewrite", "uses", "-o", "out"]);
        let output = rewrite.env("LD_LIBRARY_PATH", folders).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (is_rewritten, err) = rewritten("other");
    assert!(!is_rewritten && err.contains("libgone.so.7, which libmid.so needs: cannot open"), "{err}");
    fs::rename(bench.at("other/libmid.so"), bench.at("libmid.so")).unwrap();
    let (is_rewritten, err) = rewritten(":/nowhere");
    assert!(!is_rewritten && err.contains("libgone.so.7, which libmid.so needs: cannot open"), "{err}");
    let (is_rewritten, err) = rewritten("there:");
    assert!(is_rewritten, "{err}");
    fs::remove_dir_all(bench.at("there")).unwrap();
    assert!(bench.command(&["rewrite", "needs", "-o", "out", "--no-libraries"]).status().unwrap().success());
}

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench { folder: tempfile::tempdir().unwrap() };
        fs::write(bench.at("p.c"), "#include <stdio.h>\nint main(void) { return puts(\"x\") < 0; }\n").unwrap();
        let made = tool("cc").current_dir(&bench.folder).args(["-O1", "p.c", "-o", "prog"]).status();
        assert!(made.unwrap().success());
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        // Tests may be run where signals are ignored (`nohup`, in the background): not so the program that they send some to.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_blizzard")]);
        command.args(args).current_dir(&self.folder).env("BLIZZARD_CACHE", self.at("cache")).stdin(Stdio::null());
        command
    }

    /// What a shell in a mount namespace of its own prints.
    fn in_namespace(&self, script: &str) -> String {
        let mut command = needs::in_mount_namespace("mount -t tmpfs -o size=1m none /mnt", script);
        command.current_dir(&self.folder).env("BLIZZARD_CACHE", self.at("cache")).stdin(Stdio::null());
        let out = command.env("B", env!("CARGO_BIN_EXE_blizzard")).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
    }

    /// Everything in the folder but the cache.
    fn contents(&self) -> Vec<(String, u64)> {
        let entries = fs::read_dir(&self.folder).unwrap().map(|e| e.unwrap());
        let mut all: Vec<_> =
            entries.map(|e| (e.file_name().into_string().unwrap(), e.metadata().unwrap().len())).collect();
        all.retain(|e| e.0 != "cache");
        all.sort();
        all
    }
}

/// Asserts that a command failed with one error, in which all `parts` occur.
fn one_error(out: &Output, parts: &[&str]) {
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{err}");
    one_message(&err, parts);
}

fn one_message(err: &str, parts: &[&str]) {
    assert!(err.contains("blizzard: error: "), "{err}");
    assert_eq!(err.matches("error:").count(), 1, "{err}");
    assert!(!err.contains("panicked"), "{err}");
    for part in parts {
        assert!(err.contains(part), "{part}: {err}");
    }
}

/// A file on which the rewriter works for a while: itself.
fn large(bench: &Bench) -> PathBuf {
    let path = bench.at("large");
    fs::copy(env!("CARGO_BIN_EXE_blizzard"), &path).unwrap();
    path
}

/// Waits until the process has mapped the file, or ended.
fn until_mapped(child: &mut Child, path: &Path) {
    let name = path.canonicalize().unwrap();
    let maps = format!("/proc/{}/maps", child.id());
    while child.try_wait().unwrap().is_none() {
        if fs::read_to_string(&maps).is_ok_and(|text| text.contains(name.to_str().unwrap())) {
            return;
        }
        std::thread::yield_now();
    }
}

/// Waits until the process has opened a file in `folder` to write to, or ended.
fn until_writing(child: &mut Child, folder: &Path) {
    let folder = folder.canonicalize().unwrap();
    let open = format!("/proc/{}/fd", child.id());
    while child.try_wait().unwrap().is_none() {
        let files = fs::read_dir(&open).into_iter().flatten().flatten();
        let mut links = files.filter_map(|e| fs::read_link(e.path()).ok());
        // Without a name, it is shown as `#inode (deleted)`; else under its temporary one.
        let unfinished = |link: &PathBuf| {
            let name = link.file_name().unwrap_or_default().to_string_lossy().into_owned();
            link.parent() == Some(&folder) && (name.starts_with('#') || name.starts_with('.'))
        };
        if links.any(|link| unfinished(&link)) {
            return;
        }
        std::thread::yield_now();
    }
}

/// Starts a rewrite of a large file, and harms it as soon as it is mapped, and as soon as the output is written.
fn harmed(harm: impl Fn(&Path)) {
    let bench = Bench::new();
    let input = large(&bench);
    let whole = fs::read(&input).unwrap();
    fs::create_dir(bench.at("out")).unwrap();
    for late in [false, true] {
        // The rewriter may be faster once; not always.
        let met = (0..20).any(|_| {
            fs::write(&input, &whole).unwrap();
            let mut command = bench.command(&["rewrite", "large", "-o", "out/large", "--no-libraries"]);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            match late {
                false => until_mapped(&mut child, &input),
                true => until_writing(&mut child, &bench.at("out")),
            }
            harm(&input);
            let out = child.wait_with_output().unwrap();
            let left = fs::read_dir(bench.at("out")).unwrap().count();
            if out.status.success() {
                fs::remove_file(bench.at("out/large")).unwrap();
                return false;
            }
            one_error(&out, &["large: has changed while it was read", "help: try again"]);
            assert_eq!(left, 0);
            true
        });
        assert!(met, "late: {late}");
    }
}

fn an_input_that_is_truncated_meanwhile_is_one_error() {
    // Reading behind its new end ended the rewriter by a signal, and a temporary file was left.
    for left in [0, 64, 5000, 1 << 20] {
        harmed(|path| OpenOptions::new().write(true).open(path).and_then(|f| f.set_len(left)).unwrap());
    }
}

fn an_input_that_is_written_to_meanwhile_is_one_error() {
    harmed(|path| OpenOptions::new().append(true).open(path).and_then(|mut f| f.write_all(b"x")).unwrap());
}

fn an_interrupted_rewrite_leaves_nothing() {
    let bench = Bench::new();
    large(&bench);
    fs::create_dir(bench.at("out")).unwrap();
    for signal in ["INT", "TERM", "KILL"] {
        let met = (0..20).any(|_| {
            let mut child = bench.command(&["rewrite", "large", "-o", "out/large", "--no-libraries"]).spawn().unwrap();
            until_writing(&mut child, &bench.at("out"));
            // The child is this process's until it is waited for, so the number is no other's.
            needs::send_signal(signal, child.id());
            let status = child.wait().unwrap();
            let left: Vec<_> = fs::read_dir(bench.at("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
            if status.success() {
                fs::remove_file(bench.at("out/large")).unwrap();
                return false;
            }
            assert!(status.signal().is_some(), "{status}");
            assert_eq!(left.len(), 0, "{signal}: {left:?}");
            true
        });
        assert!(met, "{signal}");
    }
}

/// `stress` and `bench` left their temporary folders.
fn an_interrupted_command_leaves_no_temporary_folder() {
    let bench = Bench::new();
    let scratch = bench.at("scratch");
    fs::create_dir(&scratch).unwrap();
    let folders = || fs::read_dir(&scratch).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
    for (args, signal) in [
        (&["stress", "-n", "3", "--seconds", "60"][..], "INT"),
        (&["stress", "-n", "2", "--seconds", "60"], "TERM"),
        (&["bench", "miss"], "HUP"),
        (&["bench", "miss", "--instructions"], "TERM"),
        (&["demo"], "TERM"),
    ] {
        let mut command = bench.command(args);
        let mut child = command.env("TMPDIR", &scratch).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while folders().is_empty() {
            assert!(child.try_wait().unwrap().is_none(), "{args:?} ended by itself");
            std::thread::yield_now();
        }
        // The signals are listened to from right behind that moment on: until then the process just dies.
        let name = folders()[0].clone();
        while fs::read_dir(scratch.join(&name)).map_or(true, |mut files| files.next().is_none()) {
            assert!(child.try_wait().unwrap().is_none(), "{args:?} ended by itself");
            std::thread::yield_now();
        }
        needs::send_signal(signal, child.id());
        let status = child.wait().unwrap();
        assert!(status.code().is_some_and(|code| code > 128), "{args:?}: {status}");
        assert_eq!(folders(), [""; 0], "{args:?}");
    }
}

/// The compiler that `demo` starts went on alone, and its temporary files were left.
fn an_interrupted_compiler_leaves_no_temporary_files() {
    let bench = Bench::new();
    let scratch = bench.at("scratch");
    fs::create_dir(&scratch).unwrap();
    let slow = "#!/bin/sh\ncase \"$*\" in *-std=c11*) touch \"$TMPDIR/cc.s\" started; exec sleep 60;; *) exec cc \"$@\";; esac\n";
    executable::write(&bench.at("slow-cc"), slow.as_bytes());
    let mut command = bench.command(&["demo"]);
    command.env("TMPDIR", &scratch).env("CC", bench.at("slow-cc")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    while !bench.at("started").exists() {
        assert!(child.try_wait().unwrap().is_none(), "ended by itself");
        std::thread::yield_now();
    }
    needs::send_signal("TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    let left: Vec<_> = fs::read_dir(&scratch).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, [""; 0]);
}

/// Who has gone away from standard error too gets the same exit status; it was that of a panic.
fn errors_that_nobody_reads_have_their_exit_status() {
    let bench = Bench::new();
    for (args, code) in [(&["rewrite"][..], 2), (&["inspect", "nothing"], 1), (&["run", "--", "./nothing"], 1)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = bench.command(args).stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

fn pipes_are_refused_and_not_waited_for() {
    let bench = Bench::new();
    assert!(Command::new("mkfifo").current_dir(&bench.folder).arg("pipe").status().unwrap().success());
    let before = bench.contents();
    for args in [
        &["rewrite", "pipe", "-o", "out"][..],
        &["rewrite", "prog", "-o", "pipe"],
        &["rewrite", "prog", "-o", "out", "--debug-file=pipe"],
        &["run", "--", "./pipe"],
        &["verify", "pipe"],
        &["verify", "prog", "--original", "pipe"],
        &["inspect", "pipe"],
        &["overhead", "./pipe"],
    ] {
        one_error(&bench.command(args).output().unwrap(), &["pipe: is not a regular file"]);
    }
    assert_eq!(bench.contents(), before);
}

fn source_code_is_no_program() {
    let bench = Bench::new();
    fs::write(bench.at("main.c"), "int main(void) { return 0; }\n").unwrap();
    let mut command = bench.command(&["run", "./main.c"]);
    one_error(&command.output().unwrap(), &["./main.c: is source code, not a program", "help: compile it"]);
}

fn a_sparse_file_is_refused_at_once() {
    let bench = Bench::new();
    fs::copy(bench.at("prog"), bench.at("long")).unwrap();
    for (name, part) in [("zeros", "is not an ELF file"), ("long", "MiB are needed")] {
        let file = OpenOptions::new().create(true).append(true).open(bench.at(name)).unwrap();
        needs::need_system(file.set_len(8 << 40).is_ok(), "files of 8 TiB");
        let before = bench.contents();
        one_error(&bench.command(&["rewrite", name, "-o", "out", "--no-libraries"]).output().unwrap(), &[part]);
        assert_eq!(bench.contents(), before);
    }
}

fn a_full_disk_is_one_error_and_nothing_is_left() {
    let bench = Bench::new();
    // Room for a part of the output.
    for (command, name) in [
        ("$B rewrite prog -o full/out --no-libraries", "full/out"),
        ("$B rewrite prog --bundle full/bundle", "full/bundle"),
        ("BLIZZARD_CACHE=full/cache $B run -- ./prog", "cache folder"),
        ("BLIZZARD_CACHE=full/cache $B run --no-libraries -- ./prog", "cache folder"),
    ] {
        let script = format!(
            "mkdir -p full; mount -t tmpfs -o size=64k none full; if {command}; then echo succeeded; else echo status $?; fi; \
             for f in full/* full/*/* full/.[!.]*; do if [ -f \"$f\" ]; then echo left: $f; fi; done"
        );
        let text = bench.in_namespace(&script);
        one_message(&text, &["status 1", "No space left on device", name]);
        assert!(!text.contains("left: "), "{text}");
    }
}

fn a_folder_that_cannot_be_written_to_is_one_error() {
    let bench = Bench::new();
    for (command, part) in [
        ("$B rewrite prog -o fixed/out --no-libraries", "cannot write fixed/out"),
        ("$B rewrite prog --bundle fixed/bundle", "fixed/bundle"),
        ("$B rewrite prog --bundle fixed", "fixed"),
        ("BLIZZARD_CACHE=fixed/cache $B run -- ./prog", "set BLIZZARD_CACHE to a folder that can be written to"),
        ("BLIZZARD_CACHE=fixed/cache $B rewrite prog -o out", "set BLIZZARD_CACHE to a folder that can be written to"),
        ("$B run --stats fixed/stats -- ./prog", "fixed/stats"),
    ] {
        let script = format!(
            "mkdir -p fixed; mount -t tmpfs -o ro none fixed; if {command}; then echo succeeded; else echo status $?; fi"
        );
        let text = bench.in_namespace(&script);
        one_message(&text, &["status 1", "Read-only file system", part]);
        assert!(!bench.at("out").exists());
    }
}

fn a_cache_or_bundle_that_is_a_file_is_one_error() {
    let bench = Bench::new();
    File::create(bench.at("file")).unwrap();
    let before = bench.contents();
    one_error(&bench.command(&["rewrite", "prog", "--bundle", "file"]).output().unwrap(), &["file"]);
    for args in
        [&["run", "--", "./prog"][..], &["rewrite", "prog", "-o", "out"], &["cache", "list"], &["cache", "clean"]]
    {
        let out = bench.command(args).env("BLIZZARD_CACHE", bench.at("file")).output().unwrap();
        one_error(&out, &["cache folder", "file"]);
    }
    assert_eq!(bench.contents(), before);
}
