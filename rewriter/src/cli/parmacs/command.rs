//! `blizzard parmacs`: expands the PARMACS macros in a source file, as m4 does with the file that `blizzard config --m4` names.
//!
//! Input: a file. Output: its expansion on standard output.

use crate::base::error::{Error, Result};
use crate::cli::parmacs::m4;
use crate::cli::shared::print::print_bytes;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Expand the PARMACS macros of a C program; m4 is not needed
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    blizzard parmacs cholesky.C -o cholesky.c\n  \
    cc -O2 cholesky.c $(blizzard config --cflags --libs) -lm -o cholesky\n  \
    blizzard run -n 4 -- ./cholesky -p4")]
pub struct ParmacsCommand {
    /// The source with macros
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The C file [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Leave out the `#line` directives, by which compilers and debuggers name lines of FILE
    #[arg(long)]
    no_lines: bool,
}

impl ParmacsCommand {
    /// Writes the expanded text.
    pub fn execute(self) -> Result<ExitCode> {
        let failed = |what: &str, path: &PathBuf| format!("cannot {what} {}", path.display());
        let text = std::fs::read(&self.file).map_err(|e| Error::new(failed("read", &self.file)).because(e))?;
        let text = m4::expand(&self.file, &text, !self.no_lines)?;
        match &self.output {
            Some(path) => std::fs::write(path, text).map_err(|e| Error::new(failed("write", path)).because(e))?,
            None => print_bytes(&text)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
