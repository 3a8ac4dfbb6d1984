//! The command `blizzard`; everything it does is in [`blizzard::cli::command`].

fn main() -> std::process::ExitCode {
    blizzard::cli::command::main()
}
