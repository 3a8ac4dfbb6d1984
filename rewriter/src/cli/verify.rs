//! `blizzard verify`: the independent audit of a rewritten file.
//!
//! Input: the file, and if given its original. Output: what is open, as text or JSON; the exit status is 1 if anything is.

use crate::base::error::{Error, Result};
use crate::base::messages;
use crate::cli::shared::arguments::ProgramFile;
use crate::cli::shared::input;
use crate::cli::shared::print::print;
use crate::reports::audit;
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Audit a rewritten program or library: is every access checked, or proven private?
///
/// The audit derives everything from the file. The exit status is 1 if anything is not proven (`open`), or if the file cannot be audited; 2
/// after a misuse of the command line. Lines with `suspect` name bytes that read as code but were not moved. They do not count as open,
/// because nothing was found to lead there.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    blizzard rewrite ./em3d -o e.blz && blizzard verify e.blz --original ./em3d")]
pub struct VerifyCommand {
    #[command(flatten)]
    input: ProgramFile,
    /// Compare with the file that was rewritten: every instruction, jump table and frame, and where each byte went
    #[arg(long, value_name = "FILE")]
    original: Option<PathBuf>,
    /// Expect this runtime, not those that this `blizzard` puts into programs; may be given more than once. FILE is the runtime's ELF file, or a
    /// text file that begins with its SHA-256, as audits print it (`runtime     sha256 ...`)
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(known_runtime))]
    runtime: Vec<Known>,
    /// Print the audit as JSON
    #[arg(long)]
    json: bool,
}

impl VerifyCommand {
    /// Prints the audit.
    pub fn execute(self) -> Result<ExitCode> {
        let input = input::read(&self.input.program)?;
        let original = self.original.as_deref().map(input::read).transpose()?;
        let runtimes = match &self.runtime[..] {
            [] => audit::runtimes(),
            named => named.iter().map(Known::as_runtime).collect(),
        };
        let inputs = audit::Inputs {
            original: original.as_ref().map(|o| &o.bytes[..]),
            original_name: original.as_ref().map(|o| o.name.as_str()),
            runtimes,
        };
        let audit = audit::verify_against(&input.bytes, &input.name, &inputs);
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
        if let Some(original) = original.as_ref().filter(|_| audit.open_count() > audit.instructions / 2) {
            let (name, file) = (&original.name, &input.name);
            messages::warning(&format!(
                "hardly anything in {file} came from {name}: is that the file that was rewritten?"
            ));
        }
        Ok(if audit.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// A runtime that `--runtime` names. What is none is a misuse of the option: nothing is audited.
#[derive(Debug, Clone)]
enum Known {
    File(Arc<[u8]>),
    Named([u8; 32]),
}

impl Known {
    fn as_runtime(&self) -> audit::Runtime<'_> {
        match self {
            Known::File(bytes) => audit::Runtime::File { file: bytes, serves: None },
            Known::Named(hash) => audit::Runtime::Named(*hash),
        }
    }
}

/// A runtime by its file, or by its name in a text file.
fn known_runtime(path: PathBuf) -> Result<Known> {
    let read = input::read(&path)?;
    let bytes = &read.bytes[..];
    if bytes.starts_with(b"\x7fELF") {
        let is_runtime = audit::Runtime::File { file: bytes, serves: None }.is_readable();
        return is_runtime.then(|| Known::File(bytes.into())).ok_or_else(|| {
            Error::new(format!("{}: is an ELF file, but no runtime", read.name))
                .help("name the file of a runtime, or a text file with its SHA-256")
        });
    }
    let digits = bytes.split(u8::is_ascii_whitespace).find(|word| !word.is_empty()).unwrap_or(&[]);
    let pair = |k: usize| u8::from_str_radix(std::str::from_utf8(&digits[k..k + 2]).ok()?, 16).ok();
    let hash = if digits.len() == 64 { (0..64).step_by(2).map(pair).collect::<Option<Vec<u8>>>() } else { None };
    let hash = hash.and_then(|hash| <[u8; 32]>::try_from(hash).ok());
    hash.map(Known::Named).ok_or_else(|| {
        Error::new(format!("{}: neither a runtime's ELF file nor the SHA-256 of one", read.name))
            .help("audits print it in the line `runtime     sha256 ...`")
    })
}
