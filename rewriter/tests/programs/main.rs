//! Programs rewritten as their users would, and the executable `blizzard` as they meet it.
//!
//! One test executable for all of it: each that links the library takes seconds to build.

mod as_they_are;
mod attached;
mod attributes;
mod audited;
mod bad_input;
mod bundles;
mod cache;
mod cli;
mod constants;
mod crash;
mod data_words;
mod debug_info;
mod debug_lines;
mod debugger;
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
mod projects;
mod promises;
mod rights;
mod runtime_entry;
mod screens;
mod self_rewrite;
mod sources;
mod sstripped;
mod stuck;
mod system_libraries;
mod taken_traps;
mod terminal;
mod unmoved;

fn main() {
    if launch::is_launcher() {
        launch::launcher_process();
    }
    let all = [
        as_they_are::tests(),
        attached::tests(),
        attributes::tests(),
        audited::tests(),
        bad_input::tests(),
        bundles::tests(),
        cache::tests(),
        cli::tests(),
        constants::tests(),
        debug_info::tests(),
        debug_lines::tests(),
        debugger::tests(),
        exports::tests(),
        guessed_code::tests(),
        help::tests(),
        hot_paths::tests(),
        jump_tables::tests(),
        launch::tests(),
        made_code::tests(),
        of_the_library::tests(),
        overhead::tests(),
        self_rewrite::tests(),
        own_path::tests(),
        padding::tests(),
        perf::tests(),
        projects::tests(),
        promises::tests(),
        rights::tests(),
        runtime_entry::tests(),
        screens::tests(),
        crash::tests(),
        sstripped::tests(),
        stuck::tests(),
        system_libraries::tests(),
        taken_traps::tests(),
        terminal::tests(),
        unmoved::tests(),
        data_words::tests(),
    ];
    blizzard_test_harness::run("blizzard::programs", all.into_iter().flatten().collect());
}
