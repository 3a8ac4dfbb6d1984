//! The command `blizzard`; everything it does is in [`blizzard::cli`].

fn main() -> std::process::ExitCode {
    blizzard::cli::command::main()
}
