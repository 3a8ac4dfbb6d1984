//! Programs rewritten as their users would, and the executable `blizzard` as they meet it.
//!
//! One test executable for all of it: each that links the library takes seconds to build.

mod code;
mod command;
mod debugging;
mod files;
mod libraries;
mod of_the_library;
mod runs;
mod sources;

fn main() {
    if runs::launch::is_launcher() {
        runs::launch::launcher_process();
    }
    let all = [
        libraries::as_they_are::tests(),
        files::attached::tests(),
        runs::attributes::tests(),
        code::audited::tests(),
        command::bad_input::tests(),
        libraries::bundles::tests(),
        libraries::cache::tests(),
        command::cli::tests(),
        code::constants::tests(),
        debugging::debug_info::tests(),
        debugging::debug_lines::tests(),
        debugging::debugger::tests(),
        files::exports::tests(),
        code::guessed_code::tests(),
        command::help::tests(),
        code::hot_paths::tests(),
        code::jump_tables::tests(),
        runs::hints::tests(),
        runs::interpreters::tests(),
        runs::launch::tests(),
        runs::made_code::tests(),
        of_the_library::tests(),
        command::overhead::tests(),
        files::self_rewrite::tests(),
        libraries::own_path::tests(),
        code::padding::tests(),
        debugging::perf::tests(),
        command::projects::tests(),
        runs::promises::tests(),
        runs::rights::tests(),
        files::runtime_entry::tests(),
        code::screens::tests(),
        debugging::crash::tests(),
        files::sstripped::tests(),
        runs::stuck::tests(),
        libraries::system_libraries::tests(),
        code::taken_traps::tests(),
        command::terminal::tests(),
        code::unmoved::tests(),
        files::data_words::tests(),
    ];
    blizzard_test_harness::run("blizzard::programs", all.into_iter().flatten().collect());
}
