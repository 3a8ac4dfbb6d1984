//! Rewrites one ELF file in a process of its own, so that a crash, a hang and the memory used are seen: [`rewrite`].
//!
//! The result of the hidden subcommand `corpus one` goes to standard output as JSON.

use crate::inside::{Job, Status, argv};
use blizzard::base::memory::{MappedFile, give_back_large_blocks};
use blizzard::base::options::{AccessMode, Checks, Options, Poll};
use blizzard::base::output_file::AtomicFile;
use blizzard::pipeline::{self, Report};
use blizzard::read::elf::identify;
use blizzard::read::image::ProgramKind;
use blizzard::reports::audit::verify_with;
use blizzard::write::file::LibraryRecord;
use object::read::elf::{ElfFile64, FileHeader};
use object::{LittleEndian, Object, ObjectSection, SectionKind};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// The name of the hidden subcommand.
pub const SUBCOMMAND: &str = "one";

/// The two ways in which everything is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Variant {
    /// `--checks none --poll none`: relocation alone.
    Null,
    /// `--access tests`: every access is tested.
    Checked,
    /// `--access guard`: two versions of the code.
    Guarded,
}

impl Variant {
    pub const ALL: [Variant; 3] = [Variant::Null, Variant::Checked, Variant::Guarded];

    /// The options of `blizzard rewrite`.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Variant::Null => &["--access", "tests", "--checks", "none", "--poll", "none"],
            Variant::Checked => &["--access", "tests"],
            Variant::Guarded => &["--access", "guard"],
        }
    }

    /// A word for messages and file names.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Null => "null",
            Variant::Checked => "checked",
            Variant::Guarded => "guarded",
        }
    }

    /// The same for the library.
    pub fn options(self) -> Options {
        let tested =
            Options { access: AccessMode::Tests, checks: Checks::All, poll: Poll::Backedge, ..Options::default() };
        match self {
            Variant::Null => Options { checks: Checks::None, poll: Poll::None, ..tested },
            Variant::Checked => tested,
            Variant::Guarded => Options { access: AccessMode::Guard, ..tested },
        }
    }
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fate {
    Rewritten(Figures),
    /// The rewriter's message, and the distinct reasons in it.
    Refused {
        message: String,
        reasons: Vec<String>,
    },
    /// A panic, a signal, or no end.
    Crashed(String),
}

/// Figures of one rewrite.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Bytes of the input's executable sections.
    pub text_bytes: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub checks: u64,
    /// Reading, rewriting, no writing.
    pub seconds: f64,
    pub max_rss_kb: u64,
    /// What the audit could not prove; `None` where there was none.
    #[serde(default)]
    pub open: Option<Open>,
}

/// The audit's open claims.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Open {
    pub claims: usize,
    /// The first, as text.
    pub first: Option<String>,
}

/// Bytes of executable sections; `None` for what is not a 64-bit x86 program or library.
pub fn text_bytes(bytes: &[u8]) -> Option<u64> {
    let elf = ElfFile64::<LittleEndian>::parse(bytes).ok()?;
    let header = elf.elf_header();
    let kind = header.e_type(LittleEndian);
    let loadable = kind == object::elf::ET_EXEC || kind == object::elf::ET_DYN;
    if header.e_machine(LittleEndian) != object::elf::EM_X86_64 || !loadable {
        return None;
    }
    Some(elf.sections().filter(|s| s.kind() == SectionKind::Text).map(|s| s.size()).sum())
}

/// Rewrites `file`, program or library, in a process of its own with a time limit. `audit`: and audits the result; the peak memory is then that
/// of the audit.
pub fn rewrite(file: &Path, variant: Variant, audit: bool, limit: Duration) -> Fate {
    try_rewrite(file, variant, audit, limit).unwrap_or_else(Fate::Crashed)
}

fn try_rewrite(file: &Path, variant: Variant, audit: bool, limit: Duration) -> Result<Fate, String> {
    let folder = tempfile::Builder::new().prefix("blizzard-corpus-one-").tempdir().map_err(|e| e.to_string())?;
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let job = Job {
        argv: argv(
            [own.as_os_str(), SUBCOMMAND.as_ref(), file.as_os_str(), variant.name().as_ref()]
                .into_iter()
                .chain(audit.then_some(OsStr::new("--audit"))),
        ),
        env: vec![("PATH".into(), std::env::var_os("PATH").unwrap_or_default())],
        cwd: folder.path().to_owned(),
        stdout: folder.path().join("stdout"),
        stderr: folder.path().join("stderr"),
        replace: Vec::new(),
        limit,
        open: true,
    };
    let ended = job.run()?;
    let said = std::fs::read_to_string(&job.stderr).unwrap_or_default();
    if ended.status != Status::Exit(0) {
        let panic = said.lines().filter(|l| !l.trim().is_empty()).take(2).collect::<Vec<_>>().join(" ");
        return Ok(Fate::Crashed(format!("{}: {panic}", ended.status)));
    }
    let printed = std::fs::read(&job.stdout).map_err(|e| e.to_string())?;
    let mut fate: Fate = serde_json::from_slice(&printed).map_err(|e| e.to_string())?;
    if let Fate::Rewritten(figures) = &mut fate {
        figures.max_rss_kb = ended.max_rss_kb;
    }
    Ok(fate)
}

/// What `corpus one FILE VARIANT [--audit]` does.
///
/// # Errors
/// The file cannot be read or the result cannot be printed; a refusal is a result.
pub fn execute(file: &Path, variant: Variant, audit: bool) -> Result<(), String> {
    let started = Instant::now();
    let failed = |e: std::io::Error| format!("{}: {e}", file.display());
    // As `blizzard rewrite` does it: the input is mapped, and the output goes to a file.
    give_back_large_blocks();
    let name = file.display().to_string();
    let bytes = File::open(file).and_then(|file| MappedFile::of(&file, &name)).map_err(failed)?;
    let options = variant.options();
    let folder = tempfile::tempdir().map_err(failed)?;
    let path = folder.path().join("output");
    let mut output = AtomicFile::new(&path, 0o700);
    let result = match identify(&bytes, &name) {
        Ok(ProgramKind::Library) => pipeline::rewrite_library_to(&bytes, &name, &options, &mut output),
        _ => pipeline::rewrite_program(&bytes, &name, &options, &LibraryRecord::none(), &mut output),
    };
    if let Some(e) = output.failure() {
        return Err(failed(e));
    }
    let seconds = started.elapsed().as_secs_f64();
    let fate = match result {
        Ok(Report { text_bytes, output_bytes, checks, .. }) => {
            let open = if audit {
                output.finish().map_err(failed)?;
                Some(open_claims(&path, &name, &bytes)?)
            } else {
                None
            };
            let input_bytes = bytes.len() as u64;
            Fate::Rewritten(Figures { text_bytes, input_bytes, output_bytes, checks, seconds, max_rss_kb: 0, open })
        }
        Err(error) => {
            let mut reasons: Vec<_> = error.refusals.iter().map(|r| r.reason.clone()).collect();
            reasons.sort();
            reasons.dedup();
            if reasons.is_empty() {
                let what = error.what.strip_prefix(&format!("{name}: ")).unwrap_or(&error.what);
                reasons.push(error.causes.first().map_or(what.to_owned(), |cause| format!("{what}: {cause}")));
            }
            Fate::Refused { message: error.to_string(), reasons }
        }
    };
    let text = serde_json::to_string(&fate).map_err(|e| e.to_string())?;
    println!("{text}");
    Ok(())
}

/// What the audit of the file at `path` against the input leaves open.
fn open_claims(path: &Path, name: &str, input: &[u8]) -> Result<Open, String> {
    let output = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let audit = verify_with(&output, name, Some(input)).map_err(|e| e.to_string())?;
    let first = audit.open.first().map(|f| format!("{:#x} ({}): {}", f.at, f.place, f.reason));
    Ok(Open { claims: audit.open.len(), first })
}
