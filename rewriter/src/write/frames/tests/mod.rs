//! Tests over real files, over random layouts, and over damaged tables.

mod damage;
mod maps;
mod oracle;

use crate::base::addresses::Vaddr;
use crate::read::eh_frame::{FrameInput, Section};
use crate::read::frames::parse;
use crate::write::frames::build::{FramesReport, NewFrames, build};
use crate::write::frames::pieces::CodeMap;
use crate::write::frames::tests::maps::{Map, Rule};
use crate::write::frames::tests::oracle::{Action, Row, Table, Verdict};
use gimli::Pointer;
use object::{Object, ObjectSection};
use std::path::Path;

impl NewFrames {
    /// Address behind the last section.
    fn end(&self) -> Vaddr {
        let all = [&self.eh_frame_hdr, &self.eh_frame, &self.gcc_except_table];
        all.iter().map(|(at, bytes)| *at + bytes.len() as u64).max().expect("three sections")
    }
}

/// A file of this machine, as the frames code sees it.
struct File {
    bytes: Vec<u8>,
}

impl File {
    fn open(path: impl AsRef<Path>) -> Option<File> {
        Some(File { bytes: std::fs::read(path).ok()? })
    }

    /// Runs `f` over the file's frames.
    fn with<T>(&self, f: impl FnOnce(&FrameInput, &object::File) -> T) -> T {
        let elf = object::File::parse(&*self.bytes).expect("an ELF file");
        let sections: Vec<(u64, &[u8])> =
            elf.sections().filter(|s| s.address() != 0).filter_map(|s| Some((s.address(), s.data().ok()?))).collect();
        let tail = |a: Vaddr| {
            let (at, data) = sections.iter().find(|(at, d)| *at <= a.0 && a.0 < at + d.len() as u64)?;
            Some(&data[(a.0 - at) as usize..])
        };
        let section = |name| elf.section_by_name(name);
        let eh_frame = section(".eh_frame").expect("frames");
        let input = FrameInput {
            eh_frame: Section { at: Vaddr(eh_frame.address()), bytes: eh_frame.data().expect("frames") },
            tail: &tail,
            text: section(".text").map(|s| Vaddr(s.address())),
            got: section(".got").map(|s| Vaddr(s.address())),
        };
        f(&input, &elf)
    }
}

const NEW_CODE: u64 = 0x4000_0000;
const NEW_TABLES: u64 = 0x5000_0000;

/// How many things a comparison compared.
#[derive(Debug, Default)]
struct Compared {
    instructions: usize,
    landings: usize,
    catches: usize,
    specifications: usize,
    plt: usize,
    split: usize,
    signal: usize,
    lowered: usize,
}

/// Rewrites the file's frames by `rule` and compares, at every instruction, what unwinders and personalities see.
fn compare(file: &File, rule: Rule) -> Compared {
    file.with(|input, _| {
        let info = parse(input).expect("readable");
        let code = maps::instructions(input, &info);
        let mut map = Map::new(&code, NEW_CODE, &rule);
        if matches!(rule, Rule::Stretch) {
            map.spill();
        }
        let frames = build(input, &[&map], &[], Vaddr(NEW_TABLES)).expect("buildable");
        let mut compared = Compared { split: frames.report.split, ..Compared::default() };

        let old_bases = input.bases();
        let new_bases = gimli::BaseAddresses::default().set_eh_frame(frames.eh_frame.0.0);
        let backed = |from: u64, to: u64| (input.tail)(Vaddr(from)).is_some_and(|b| b.len() as u64 >= to - from);
        let old = Table::read(input.eh_frame.bytes, &old_bases, backed);
        let new = Table::read(&frames.eh_frame.1, &new_bases, |_, _| true);
        let entries = oracle::check_header(
            (frames.eh_frame_hdr.0.0, &frames.eh_frame_hdr.1),
            (frames.eh_frame.0.0, &frames.eh_frame.1),
        );
        assert_eq!(entries, frames.report.fdes_written);
        assert_eq!(frames.eh_frame.1.last_chunk(), Some(&[0u8; 4]), "the terminator");

        let lsdas = &frames.gcc_except_table;
        let memory = |a: u64| match a.checked_sub(lsdas.0.0).and_then(|o| lsdas.1.get(o as usize..)) {
            Some(bytes) => bytes,
            None => (input.tail)(Vaddr(a)).expect("data"),
        };
        let mut verdicts = Verdicts { memory: &memory, old: None, new: None };
        for &(at, begin, end) in &map.places {
            let Some((old_row, old_context)) = old.at(at) else { continue };
            compared.instructions += 1;
            let meant = if is_plt(old_row) { plt_row(old_row, at) } else { old_row.clone() };
            compared.plt += usize::from(is_plt(old_row));
            let points = if !map.moves.is_empty() && Map::spills(at) {
                compared.lowered += 1;
                maps::SPILL.iter().copied().zip([begin, begin + 1, end - 1]).collect()
            } else {
                vec![(0, begin), (0, end - 1)]
            };
            for (lower_by, new_at) in points {
                let Some((row, context)) = new.at(new_at) else {
                    panic!("no row at {new_at:#x} for {at:#x}");
                };
                assert_eq!(*row, lowered(&meant, lower_by), "{at:#x} {new_at:#x}");
                if old_context.signal {
                    // A signal handler returns to the old address.
                    assert_eq!(new.at(at).map(|(row, context)| (row, context.signal)), Some((old_row, true)));
                    compared.signal += 1;
                }
                // A routine that has moved is named at its new place.
                let meant = old_context.personality.map(|p| match p {
                    Pointer::Direct(va) => {
                        let moved = map.places.binary_search_by_key(&va, |place| place.0);
                        Pointer::Direct(moved.map_or(va, |k| map.places[k].1))
                    }
                    slot => slot,
                });
                assert_eq!(context.personality, meant, "{at:#x}");
                assert_eq!(context.signal, old_context.signal, "{at:#x}");
                assert_eq!(context.lsda.is_some(), old_context.lsda.is_some(), "{at:#x}");
                let (Some(old_lsda), Some(new_lsda)) = (old_context.lsda, context.lsda) else { continue };
                let was = verdicts.at((old_lsda, old_context.function), at, true);
                let is = verdicts.at((new_lsda, context.function), new_at, false);
                compare_verdicts(was, is, &map, &mut compared);
            }
        }
        compared
    })
}

/// The LSDAs read last: neighbouring instructions share them.
struct Verdicts<'a> {
    memory: &'a dyn Fn(u64) -> &'a [u8],
    old: Option<((u64, u64), oracle::Lsda<'a>)>,
    new: Option<((u64, u64), oracle::Lsda<'a>)>,
}

impl Verdicts<'_> {
    fn at(&mut self, key: (u64, u64), address: u64, old: bool) -> Verdict {
        let slot = if old { &mut self.old } else { &mut self.new };
        if slot.as_ref().is_none_or(|s| s.0 != key) {
            *slot = Some((key, oracle::Lsda::read(key.0, key.1, self.memory)));
        }
        slot.as_ref().expect("just set").1.verdict(address)
    }
}

fn compare_verdicts(was: Verdict, is: Verdict, map: &Map, compared: &mut Compared) {
    let Verdict::Lands { pad, actions } = was else { return assert_eq!(was, is) };
    let expected = map.begin(Vaddr(pad)).expect("a relocated pad").0;
    for action in &actions {
        match action {
            Action::Catch(_) => compared.catches += 1,
            Action::Specification(_) => compared.specifications += 1,
            Action::Cleanup => {}
        }
    }
    compared.landings += 1;
    assert_eq!(Verdict::Lands { pad: expected, actions }, is);
}

/// The row of inserted code that lowered rsp: other where its rules depend on rsp.
fn lowered(row: &Row, lower_by: u32) -> Row {
    let offset = row.cfa.strip_prefix("RegisterAndOffset { register: Register(7), offset: ");
    let cfa = match offset.and_then(|o| o.strip_suffix(" }")) {
        Some(offset) => rsp_plus(offset.parse::<i64>().expect("an offset") + i64::from(lower_by)),
        None => lowered_expression(&row.cfa, lower_by),
    };
    let registers = row.registers.iter().map(|(r, rule)| (*r, lowered_expression(rule, lower_by))).collect();
    Row { cfa, registers, ..row.clone() }
}

/// Adds to each `DW_OP_breg7` (0x77) that begins an expression; those of the tests have one there or none.
fn lowered_expression(rule: &str, lower_by: u32) -> String {
    let Some((before, rest)) = rule.split_once("[77, ") else { return rule.to_owned() };
    let bytes: Vec<u8> =
        rest.trim_end_matches(']').split(", ").map(|b| u8::from_str_radix(b, 16).expect("a byte")).collect();
    let used = bytes.iter().position(|b| b & 0x80 == 0).expect("an end") + 1;
    let offset = gimli::leb128::read::signed(&mut gimli::EndianSlice::new(&bytes[..used], gimli::LittleEndian));
    let mut offset = offset.expect("an offset") + i64::from(lower_by);
    let mut out = vec![0x77];
    loop {
        let byte = (offset & 0x7f) as u8;
        offset >>= 7;
        let last = offset == 0 && byte & 0x40 == 0 || offset == -1 && byte & 0x40 != 0;
        out.push(if last { byte } else { byte | 0x80 });
        if last {
            break;
        }
    }
    out.extend(&bytes[used..]);
    format!("{before}{out:x?}")
}

fn rsp_plus(offset: i64) -> String {
    format!("{:?}", gimli::CfaRule::<usize>::RegisterAndOffset { register: gimli::Register(7), offset })
}

/// Whether the CFA is the PLT's expression.
fn is_plt(row: &Row) -> bool {
    row.cfa.starts_with("[77, 8, 80, 0, 3f, 1a, ")
}

/// The row that the PLT's expression means at `at`.
fn plt_row(old: &Row, at: u64) -> Row {
    let threshold = u64::from_str_radix(&old.cfa[23..25], 16).expect("a literal") - 0x30;
    let offset = if at & 15 >= threshold { 16 } else { 8 };
    Row { cfa: rsp_plus(offset), ..old.clone() }
}

const LIBSTDCXX: &str = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";

#[test]
#[ignore = "needs libstdc++: run by tests/of_the_library.rs"]
fn landing_pads_of_an_installed_cpp_library_are_instructions_of_its_text() {
    let file = File::open(LIBSTDCXX).expect("libstdc++ is there");
    file.with(|input, elf| {
        let info = parse(input).expect("readable");
        let text = elf.section_by_name(".text").expect("text");
        let range = text.address()..text.address() + text.size();
        assert!(info.fdes.len() > 4000, "{}", info.fdes.len());
        let pads = info.landing_pads();
        assert!(pads.len() > 1000, "{}", pads.len());
        assert!(pads.iter().all(|p| range.contains(&p.0)));
        assert!(info.fdes.iter().all(|f| f.lsda.is_none() || f.personality.is_some()));
    });
}

#[test]
#[ignore = "needs libstdc++: run by tests/of_the_library.rs"]
fn an_installed_cpp_library_keeps_every_row_and_call_site() {
    let file = File::open(LIBSTDCXX).expect("libstdc++ is there");
    for rule in [Rule::Shift, Rule::Stretch, Rule::Scatter(0x1234_5678_9abc)] {
        let (scattered, spills) = (matches!(rule, Rule::Scatter(_)), matches!(rule, Rule::Stretch));
        let compared = compare(&file, rule);
        assert!(compared.instructions > 100_000, "{compared:?}");
        assert!(compared.landings > 1000 && compared.catches > 1000, "{compared:?}");
        assert!(compared.plt > 1000, "{compared:?}");
        assert_eq!(compared.split > 1000, scattered, "{compared:?}");
        assert_eq!(compared.lowered > 50_000, spills, "{compared:?}");
    }
}

/// Compiles `source` and opens the result.
fn compile(compiler: &str, arguments: &[&str], source: &str) -> File {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/write/frames/tests").join(source);
    let done = std::process::Command::new(compiler).args(arguments).arg("-o").arg(&out).arg(source).output();
    let done = done.expect("the compiler starts");
    assert!(done.status.success(), "{compiler} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    File::open(out).expect("the compiler has written it")
}

#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn cpp_programs_of_every_level_and_code_model_keep_every_row_and_call_site() {
    cpp_programs_keep_every_row_and_call_site("g++");
}

#[test]
#[ignore = "needs clang++: run by tests/of_the_library.rs"]
fn cpp_programs_of_clang_keep_every_row_and_call_site() {
    cpp_programs_keep_every_row_and_call_site("clang++");
}

fn cpp_programs_keep_every_row_and_call_site(compiler: &str) {
    let levels = ["-O0", "-O1", "-O2", "-O3", "-Os"];
    let models: [&[&str]; 5] = [
        &["-fPIE", "-pie"],
        // Types in four absolute bytes.
        &["-fno-pie", "-no-pie"],
        // Types in eight absolute bytes; eight-byte pointers to frames.
        &["-fno-pie", "-no-pie", "-mcmodel=large"],
        &["-fPIE", "-pie", "-mcmodel=large"],
        // No exception specifications.
        &["-std=c++17"],
    ];
    for (i, level) in levels.iter().enumerate() {
        for (j, model) in models.iter().enumerate() {
            let mut arguments = vec!["-w", "-std=c++14", level];
            arguments.extend(model.iter());
            let file = compile(compiler, &arguments, "throws.cpp");
            let rule = match (i + j) % 3 {
                0 => Rule::Shift,
                1 => Rule::Stretch,
                _ => Rule::Scatter((i * 10 + j) as u64 + 77),
            };
            let compared = compare(&file, rule);
            let what = format!("{compiler} {arguments:?}: {compared:?}");
            assert!(compared.instructions > 400 && compared.landings > 30 && compared.catches > 20, "{what}");
            assert!(compared.specifications > 0 || j == 4, "{what}");
        }
    }
}

#[test]
fn assembly_with_every_rule_keeps_every_row_and_call_site() {
    for rule in [Rule::Shift, Rule::Stretch, Rule::Scatter(5), Rule::Scatter(7)] {
        let file = compile("cc", &["-nostdlib", "-shared"], "exotic.s");
        let compared = compare(&file, rule);
        assert!(compared.instructions > 70_000 && compared.landings > 1, "{compared:?}");
        assert!(compared.signal > 0, "{compared:?}");
    }
}

#[test]
fn a_rust_program_keeps_every_row_and_call_site() {
    let file = compile("rustc", &["-O", "--edition=2024"], "panics.rs");
    for rule in [Rule::Stretch, Rule::Scatter(99)] {
        let compared = compare(&file, rule);
        assert!(compared.instructions > 20_000 && compared.landings > 1000, "{compared:?}");
    }
}

#[test]
#[ignore = "a measurement: run with --release"]
fn speed_on_large_files() {
    for path in [LIBSTDCXX, "/usr/lib/gcc/x86_64-linux-gnu/12/cc1", "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus"] {
        let Some(file) = File::open(path) else { continue };
        file.with(|input, _| {
            let start = std::time::Instant::now();
            let info = parse(input).expect("readable");
            let parsed = start.elapsed();
            let mut map = Map::new(&maps::instructions(input, &info), NEW_CODE, &Rule::Stretch);
            map.in_order = Some(true);
            let start = std::time::Instant::now();
            let frames = build(input, &[&map], &[], Vaddr(NEW_TABLES)).expect("buildable");
            let built = start.elapsed();
            assert!(frames.report.fdes_written > 1000);
            println!(
                "{path}: parse {parsed:?}, build {built:?}, {:?}",
                FramesReport { dropped: Vec::new(), ..frames.report }
            );
            println!("  {:.2} M rows/s", frames.report.rows as f64 / built.as_secs_f64() / 1e6);
        });
    }
}

#[test]
#[ignore = "minutes: every ELF file of this machine; run with --release"]
fn every_installed_file_keeps_every_row_and_call_site() {
    let mut total = 0;
    let folders = ["/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu", "/usr/lib/gcc/x86_64-linux-gnu/12"];
    for entry in folders.iter().filter_map(|f| std::fs::read_dir(f).ok()).flatten().flatten() {
        if entry.file_type().is_ok_and(|t| !t.is_file()) {
            continue;
        }
        let Some(file) = File::open(entry.path()) else { continue };
        let Ok(elf) = object::File::parse(&*file.bytes) else { continue };
        let loaded = elf.kind() == object::ObjectKind::Dynamic || elf.kind() == object::ObjectKind::Executable;
        let frames = elf.section_by_name(".eh_frame").is_some_and(|s| s.size() > 8);
        if !loaded || !frames || elf.architecture() != object::Architecture::X86_64 {
            continue;
        }
        let compared = compare(&file, Rule::Stretch);
        println!("{}: {compared:?}", entry.path().display());
        total += compared.instructions;
    }
    assert!(total > 1_000_000, "{total}");
}
