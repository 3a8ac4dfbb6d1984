//! Unit tests of the libraries that need more than a C compiler, or that take minutes.
//!
//! Rust's own harness cannot skip a test that has begun. Such a unit test is `#[ignore]`d in its module; this program, which can, runs it in
//! its library's test executable by its full name.

use blizzard_test_harness::needs::{need, need_cpu, need_file};
use blizzard_test_harness::{Test, built};
use std::collections::BTreeSet;
use std::process::Command;

/// Programs that unit tests need.
const NEED: &[(&str, &str)] = &[
    ("cli::shared::compiler::tests::the_flags_keep_clang_from_making_library_calls", "clang"),
    ("cli::shared::debug_file::tests::the_file_is_known_by_its_build_id_or_its_checksum", "objcopy"),
    ("cli::shared::debug_file::tests::programs_that_need_or_name_none_are_told_so", "objcopy"),
    ("write::frames::tests::every_row::cpp_programs_of_every_level_and_code_model_keep_every_row_and_call_site", "g++"),
    ("write::frames::tests::every_row::cpp_programs_of_clang_keep_every_row_and_call_site", "clang++"),
    ("write::frames::tests::damage::a_refusal_names_the_record_and_the_reason", "g++"),
    ("write::frames::tests::damage::damaged_tables_are_errors", "g++"),
    ("write::frames::tests::damage::random_bytes_are_errors", "g++"),
    ("tests::passes::loops_whose_faults_are_caught_run_in_no_copies", "g++"),
];

/// The same of the audit.
const OF_THE_AUDIT: &[(&str, &str)] = &[
    ("tests::guard_access::accepted::accepts_exceptions", "g++"),
    ("tests::guard_access::versions::finds_frames_that_differ", "g++"),
    ("tests::outputs::unwinding::a_wrong_row_for_the_runtime_is_found", "g++"),
    ("tests::outputs::unwinding::a_frame_that_ends_with_a_call_that_does_not_return_is_found", "g++"),
    ("tests::outputs::unwinding::another_common_record_for_the_copy_of_a_loop_is_found", "g++"),
    ("tests::outputs::unwinding::a_frame_that_ends_within_the_copy_of_a_loop_is_found", "g++"),
    ("tests::outputs::unwinding::a_file_without_section_headers_keeps_its_frames", "g++"),
    ("tests::outputs::unwinding::an_lsda_right_behind_the_frames_is_one", "g++"),
    ("tests::outputs::unwinding::finds_every_changed_byte_of_the_frame_tables_that_matters", "g++"),
];

/// Unit tests of the runtime, and the processor's flags that they need.
const NEED_CPU: &[(&str, &[&str])] = &[
    ("gates::gathers::tests::registers_are_read_where_they_are", &["avx2", "xsave"]),
    ("gates::gathers::tests::large_registers_and_masks_are_read_where_they_are", &["avx512f", "xsave"]),
    ("process::vsib::tests::registers_are_found_in_the_xsave_area", &["avx2", "xsave"]),
    ("process::vsib::tests::large_registers_and_masks_are_found_in_the_xsave_area", &["avx512f", "xsave"]),
];

/// Minutes, of the runtime: started by hand, as rt/DESIGN.md says.
const EXPLORATIONS: [&str; 2] = ["tests::explore::tests::more_of_each", "tests::explore::tests::more_of_each_other"];

/// The library in Debian's package libstdc++6.
const LIBSTDCXX: &str = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";

const NEED_LIBSTDCXX: &[&str] = &[
    "write::frames::tests::every_row::an_installed_cpp_library_keeps_every_row_and_call_site",
    "write::frames::tests::every_row::landing_pads_of_an_installed_cpp_library_are_instructions_of_its_text",
];

/// Minutes; the second needs g++.
const OWN_TESTS: &str = "tests::self_rewrite::the_rewritten_rewriter_passes_its_own_tests";
const SYSTEMATIC: &str = "tests::outputs::systematic::finds_every_planted_fault";

/// Started by hand.
const MEASUREMENTS: &[&str] = &[
    "write::frames::tests::every_row::every_installed_file_keeps_every_row_and_call_site",
    "write::frames::tests::every_row::speed_on_large_files",
];

pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("every_ignored_unit_test_is_here", || {
            every_ignored_unit_test_is_here();
            Ok(())
        }),
        Test::new(OWN_TESTS, || {
            run("blizzard", OWN_TESTS);
            Ok(())
        })
        .long(),
        Test::new(SYSTEMATIC, || {
            need("g++");
            run("blizzard_verify", SYSTEMATIC);
            Ok(())
        })
        .long(),
    ];
    for (library, rows) in [("blizzard", NEED), ("blizzard_verify", OF_THE_AUDIT)] {
        for (name, program) in rows {
            tests.push(Test::new(*name, move || {
                need(program);
                run(library, name);
                Ok(())
            }));
        }
    }
    for (name, flags) in NEED_CPU {
        tests.push(Test::new(*name, || {
            need_cpu(flags);
            run("blizzard_rt", name);
            Ok(())
        }));
    }
    for name in NEED_LIBSTDCXX {
        tests.push(Test::new(*name, || {
            need_file(LIBSTDCXX, "libstdc++6");
            run("blizzard", name);
            Ok(())
        }));
    }
    tests
}

fn executable(library: &str) -> Command {
    let mut command = Command::new(built::unit_tests(library).unwrap());
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

fn run(library: &str, name: &str) {
    let output = executable(library).args(["--exact", name, "--ignored", "--nocapture"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn ignored(library: &str) -> BTreeSet<String> {
    let output = executable(library).args(["--list", "--ignored"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// An ignored test that nobody runs would be a test no more.
fn every_ignored_unit_test_is_here() {
    let named = NEED.iter().map(|row| row.0).chain(NEED_LIBSTDCXX.iter().copied());
    let known = named.chain([OWN_TESTS]).chain(MEASUREMENTS.iter().copied());
    assert_eq!(ignored("blizzard"), known.map(str::to_owned).collect());
    let known = OF_THE_AUDIT.iter().map(|row| row.0).chain([SYSTEMATIC]);
    assert_eq!(ignored("blizzard_verify"), known.map(str::to_owned).collect());
    let known = NEED_CPU.iter().map(|row| row.0).chain(EXPLORATIONS);
    assert_eq!(ignored("blizzard_rt"), known.map(str::to_owned).collect());
}
