//! Compiled programs, installed files and assembly with every rule keep every row and call site.

use crate::base::addresses::Vaddr;
use crate::read::frames::parse;
use crate::write::frames::build::{FramesReport, build};
use crate::write::frames::tests::compare::{File, NEW_CODE, NEW_TABLES, compare, compile};
use crate::write::frames::tests::maps::{self, Map, Rule};
use object::{Object, ObjectSection};

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
            let frames = build(input, &[&map], &[], 0, Vaddr(NEW_TABLES)).expect("buildable");
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
