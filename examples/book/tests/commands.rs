//! Each command of the book is run, and prints what the book says.
//!
//! Input: the chapters. A block ```` ```c,file=NAME ```` is a file. A block ```` ```console ```` is what somebody types behind `$ `, and what
//! comes of it on both streams: a line `...` stands for any lines, `[..]` for any text of a line. With `console,numbers=any` numbers and the
//! width of columns may differ. All commands of a chapter run in one folder, in order.
//! One that fails is followed by `$ echo $?`. What a chapter's commands need besides a bare machine skips that chapter: programs that commands
//! begin with, and those of lines `<!-- needs NAME -->`.

use blizzard_test_harness::{need, shell_command, tool as program};
use blizzard_tests::tool;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Stdio;

blizzard_test_harness::tests! {
    every_chapter_is_in_the_summary,
    chapter: [
        "start", "first", "languages", "checked", "running", "debugging", "measuring", "false-sharing", "tempest", "parmacs", "limits",
        "how",
    ],
}

/// What ends a command's output in that of the shell, with its status behind it; and a file's text.
const END: &str = "\u{1e}";
const END_OF_FILE: &str = "end of the file";

/// A block of a chapter.
#[derive(Debug)]
enum Block {
    File { name: String, text: String },
    Session(Vec<Typed>),
}

/// One command, and the lines that the book shows of its output.
#[derive(Debug)]
struct Typed {
    command: String,
    output: Vec<String>,
    any_numbers: bool,
}

fn chapters() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/chapters"))
}

fn every_chapter_is_in_the_summary() {
    let summary = fs::read_to_string(chapters().join("SUMMARY.md")).unwrap();
    for file in fs::read_dir(chapters()).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(name == "SUMMARY.md" || summary.contains(&format!("({name})")), "{name}");
    }
}

fn chapter(name: &str) {
    let text = fs::read_to_string(chapters().join(name).with_extension("md")).unwrap();
    for program in text.lines().filter_map(|line| line.strip_prefix("<!-- needs ")?.strip_suffix(" -->")) {
        need(program);
    }
    let blocks = blocks(&text);
    let folder = tempfile::tempdir().unwrap();
    let mut script = "exec 2>&1\n(exit 0)\n".to_owned();
    let mut typed = Vec::new();
    for block in &blocks {
        match block {
            Block::File { name, text } => {
                // Written when its turn comes: it may replace one of that name, in a folder that a command makes.
                writeln!(script, "cat > {name} <<'{END_OF_FILE}'\n{text}{END_OF_FILE}").unwrap();
            }
            Block::Session(session) => {
                for one in session {
                    writeln!(script, "if (exit ${{status:-0}})\n{}\nthen status=0; else status=$?; fi", one.command)
                        .unwrap();
                    writeln!(script, "printf '{END}%s\\n' \"$status\"").unwrap();
                    typed.push(one);
                }
            }
        }
    }
    let commands: Vec<&str> = typed.iter().map(|one| one.command.as_str()).collect();
    drop(shell_command(&commands.join("\n")));
    let output = run(folder.path(), &script);
    let mut rest = output.as_str();
    for (at, one) in typed.iter().enumerate() {
        let (said, behind) =
            rest.split_once(END).unwrap_or_else(|| panic!("$ {}\nended the shell: {rest}", one.command));
        let (status, behind) = behind.split_once('\n').unwrap();
        rest = behind;
        let comparable = |line: &str| if one.any_numbers { without_numbers(line) } else { line.to_owned() };
        let lines: Vec<String> = said.lines().map(comparable).collect();
        let expected: Vec<String> = one.output.iter().map(|line| comparable(line)).collect();
        assert!(
            alike(&expected, &lines),
            "$ {}\nis to print\n{}\nand prints\n{said}",
            one.command,
            one.output.join("\n")
        );
        let is_shown = typed.get(at + 1).is_some_and(|next| next.command == "echo $?");
        assert!(status == "0" || is_shown, "$ {}\nhas status {status}: {said}", one.command);
    }
}

/// The files and sessions of a chapter.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if let Some((_, name)) = kind.split_once(",file=") {
            blocks.push(Block::File { name: name.to_owned(), text: inside.join("\n") + "\n" });
        } else if let "console" | "console,numbers=any" = kind {
            blocks.push(Block::Session(session(&inside, kind != "console")));
        } else {
            assert!(kind == "text", "a block of kind {kind:?} is neither a file, nor a session, nor text");
        }
    }
    assert!(blocks.iter().any(|block| matches!(block, Block::Session(_))), "no command");
    blocks
}

fn session(lines: &[&str], any_numbers: bool) -> Vec<Typed> {
    let mut session: Vec<Typed> = Vec::new();
    for line in lines {
        if let Some(command) = line.strip_prefix("$ ") {
            session.push(Typed { command: command.to_owned(), output: Vec::new(), any_numbers });
        } else {
            session.last_mut().expect("a session begins with a command").output.push((*line).to_owned());
        }
    }
    session
}

/// The line with `#` for each number, and one space for several.
fn without_numbers(line: &str) -> String {
    let mut shown = String::new();
    let mut is_number = false;
    for c in line.chars() {
        // A number begins with a digit, and may be hexadecimal, have a fraction, or commas.
        is_number = c.is_ascii_digit() || is_number && (c.is_ascii_hexdigit() || "x,.".contains(c));
        let c = if is_number { '#' } else { c };
        if !("# ".contains(c) && shown.ends_with(c)) {
            shown.push(c);
        }
    }
    shown
}

/// Whether `lines` are what `expected` says.
fn alike(expected: &[String], lines: &[String]) -> bool {
    match (expected.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((any, rest)), _) if any == "..." => (0..=lines.len()).any(|left_out| alike(rest, &lines[left_out..])),
        (Some((pattern, rest)), Some((line, behind))) => line_is_alike(pattern, line) && alike(rest, behind),
        _ => false,
    }
}

fn line_is_alike(pattern: &str, line: &str) -> bool {
    match pattern.split_once("[..]") {
        None => pattern == line,
        Some((begin, rest)) => line.strip_prefix(begin).is_some_and(|line| {
            line.char_indices().map(|(at, _)| at).chain([line.len()]).any(|at| line_is_alike(rest, &line[at..]))
        }),
    }
}

/// Both streams of the shell, with `blizzard` in its PATH and an own cache.
fn run(folder: &Path, script: &str) -> String {
    let mut shell = program("sh");
    shell.args(["-c", script]);
    // Nothing of the build that this test is part of.
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("CARGO_") && name_text != "CARGO_HOME" || ["RUSTFLAGS", "CC"].contains(&&*name_text) {
            shell.env_remove(name);
        }
    }
    let own = tool::path().parent().unwrap().to_owned();
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&usual))).unwrap();
    let output = shell
        .current_dir(folder)
        .env("PATH", path)
        .env("BLIZZARD_CACHE", folder.join(".cache"))
        .stdin(Stdio::null())
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}
