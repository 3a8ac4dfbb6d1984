//! `blizzard verify`: the independent audit of a rewritten file.

use super::{ProgramFile, input, print};
use crate::error::{Error, Result};
use crate::verify;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Audit a rewritten program or library: is every access checked, or proven private?
///
/// The audit shares no code with the rewriter. The exit status is 1 if anything is open. Lines with `suspect` name what was not moved though it reads as
/// code; that is not open, because nothing was found to lead there.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    blizzard rewrite ./em3d -o e.blz && blizzard verify e.blz --original ./em3d")]
pub struct VerifyCommand {
    #[command(flatten)]
    input: ProgramFile,
    /// Compare with the file that was rewritten: every instruction, jump table and frame, and where each byte went
    #[arg(long, value_name = "FILE")]
    original: Option<PathBuf>,
    /// Print the audit as JSON
    #[arg(long)]
    json: bool,
}

impl VerifyCommand {
    /// Prints the audit.
    pub fn execute(self) -> Result<ExitCode> {
        let input = input::read(&self.input.program)?;
        let original = self.original.as_deref().map(input::read).transpose()?;
        let audit = verify::verify_with(&input.bytes, &input.name, original.as_ref().map(|o| &o.bytes[..]));
        for read in [Some(&input), original.as_ref()].into_iter().flatten() {
            read.bytes.expect_unchanged(&read.name)?;
        }
        let audit = audit?;
        if self.json {
            let json = serde_json::to_string_pretty(&audit)
                .map_err(|e| Error::new("cannot write the audit as JSON").because(e))?;
            print(&format!("{json}\n"))?;
        } else {
            print(&format!("{}\n", audit.to_string().trim_end()))?;
        }
        Ok(if audit.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
