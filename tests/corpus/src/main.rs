//! The command `corpus`; everything it does is in [`blizzard_corpus::cli`].

fn main() -> std::process::ExitCode {
    blizzard_corpus::cli::main()
}
