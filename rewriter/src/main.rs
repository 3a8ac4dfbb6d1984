//! The executable `blizzard`. Everything it does is in the library.

fn main() -> std::process::ExitCode {
    blizzard::cli::command::main(env!("BLIZZARD_BUILT_FROM"))
}
