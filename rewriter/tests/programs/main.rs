//! Programs rewritten as their users would, and the executable `blizzard` as they meet it.
//!
//! One test executable for all of it: each that links the library takes seconds to build.

mod as_they_are;
mod attached;
mod audited;
mod bad_input;
mod bundles;
mod cache;
mod cli;
mod constants;
mod data_words;
mod debug_info;
mod debug_lines;
mod exports;
mod guessed_code;
mod help;
mod hot_paths;
mod jump_tables;
mod launch;
mod made_code;
mod of_the_library;
mod overhead;
mod own_path;
mod padding;
mod perf;
mod rights;
mod runtime_entry;
mod screens;
mod self_rewrite;
mod sources;
mod system_libraries;
mod taken_traps;
mod terminal;
mod unmoved;

use blizzard_test_harness::Test;

fn main() {
    if launch::is_launcher() {
        launch::launcher_process();
    }
    let mut all = Vec::new();
    let mut add = |module: &str, tests: Vec<Test>| all.extend(tests.into_iter().map(|test| test.of(module)));
    add("as_they_are", as_they_are::tests());
    add("attached", attached::tests());
    add("audited", audited::tests());
    add("bad_input", bad_input::tests());
    add("bundles", bundles::tests());
    add("cache", cache::tests());
    add("cli", cli::tests());
    add("constants", constants::tests());
    add("debug_info", debug_info::tests());
    add("debug_lines", debug_lines::tests());
    add("exports", exports::tests());
    add("guessed_code", guessed_code::tests());
    add("help", help::tests());
    add("hot_paths", hot_paths::tests());
    add("jump_tables", jump_tables::tests());
    add("launch", launch::tests());
    add("made_code", made_code::tests());
    add("of_the_library", of_the_library::tests());
    add("overhead", overhead::tests());
    add("self_rewrite", self_rewrite::tests());
    add("own_path", own_path::tests());
    add("padding", padding::tests());
    add("perf", perf::tests());
    add("rights", rights::tests());
    add("runtime_entry", runtime_entry::tests());
    add("screens", screens::tests());
    add("system_libraries", system_libraries::tests());
    add("taken_traps", taken_traps::tests());
    add("terminal", terminal::tests());
    add("unmoved", unmoved::tests());
    add("data_words", data_words::tests());
    blizzard_test_harness::run("blizzard::programs", all);
}
