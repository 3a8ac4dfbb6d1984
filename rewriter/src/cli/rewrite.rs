//! `blizzard rewrite`: one program in, the rewritten one out.
//!
//! Input: a program, options, where the output goes. Output: the file, whole or not at all, and its libraries in the cache or in a bundle.
//! **Invariant**: the input is never overwritten.

use crate::base::error::{Error, Result};
use crate::base::learnt::{Knowledge, LearntSites, Object};
use crate::base::messages;
use crate::base::options::{AccessMode, Options};
use crate::base::output_file::AtomicFile;
use crate::cli::shared::arguments::{ProgramFile, RewriteOptions, node_count};
use crate::cli::shared::libraries::{self, LibraryOptions};
use crate::cli::shared::{debug_file, input, input::InputFile};
use crate::pipeline::{self, Report, Request};
use crate::read::rewritten;
use crate::reports::learnt;
use crate::store::closure::ClosureSource;
use crate::store::library_search::expect_libraries;
use blizzard_contract::FEW_NODES;
use clap::Args;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Rewrite a program: checks, polls and the runtime go in
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard rewrite ./em3d && ./em3d.blz    # one node, no launcher\n  \
    blizzard rewrite ./em3d --bundle em3d.dir    # with its libraries\n  \
    blizzard rewrite ./em3d -o em3d.null --checks none --poll none")]
pub struct RewriteCommand {
    #[command(flatten)]
    input: ProgramFile,
    /// Where to put the rewritten program; its rewritten libraries stay in the cache [default: PROG.blz, beside it]
    #[arg(short, long, value_name = "OUT", conflicts_with = "bundle")]
    output: Option<PathBuf>,
    /// Make a folder with the rewritten program and its libraries, to be run on another machine
    #[arg(long, value_name = "DIR", conflicts_with = "no_libraries")]
    bundle: Option<PathBuf>,
    /// A library that the program opens at run time, for the bundle
    #[arg(long, value_name = "FILE", requires = "bundle")]
    add: Vec<PathBuf>,
    /// Give the output the debug information of a stripped program: from FILE, or from where debuggers look for it
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    debug_file: Option<Option<PathBuf>>,
    /// With --access guard: test the accesses that runs have learnt of, as FILE lists them (`blizzard learn -o FILE`)
    #[arg(long, value_name = "FILE")]
    learnt: Option<PathBuf>,
    /// The most nodes that the output is to run on
    #[arg(short, long, alias = "np", value_name = "NODES", default_value_t = FEW_NODES as u32, value_parser = node_count)]
    nodes: u32,
    #[command(flatten)]
    options: RewriteOptions,
    #[command(flatten)]
    libraries: LibraryOptions,
}

impl RewriteCommand {
    /// Writes the output file, whole or not at all.
    pub fn execute(self) -> Result<ExitCode> {
        if self.output.as_deref().is_some_and(|output| output == "-") {
            return Err(Error::new("-o -: a rewritten program is a file, and does not go to standard output")
                .help("-o FILE; -o ./- for a file of that name"));
        }
        let input = input::read(&self.input.program)?;
        let output = match (&self.output, &self.bundle) {
            (Some(output), _) => output.clone(),
            (None, Some(folder)) => folder.join(input.path.file_name().unwrap_or_default()),
            (None, None) => beside(&input.path),
        };
        refuse_output(&output, &input.path)?;
        if rewritten::rewritten_with(&input.bytes).is_some() {
            return Err(Error::new(format!("{}: has been rewritten already", input.name))
                .help("rewrite the original program, or run this one as it is"));
        }
        if !self.libraries.no_libraries {
            expect_libraries(&input.path)?;
        }
        let debug = self.debug_file.as_ref().map(|asked| debug_file::find(&input, asked.as_deref())).transpose()?;
        let asked = self.options.for_nodes(self.nodes).options();
        let learnt = match self.learnt.as_deref().map(|path| known(path, &input, &self.add, asked)).transpose() {
            Ok(learnt) => learnt.unwrap_or_default(),
            Err(misuse) => {
                messages::error(&misuse.to_string());
                return Ok(ExitCode::from(2));
            }
        };
        let (options, source) = match &self.bundle {
            None => {
                let (options, source) = self.libraries.fitted_to(&input.bytes, asked, &learnt)?;
                (options, source.of_original(&input.path))
            }
            Some(_) => {
                (rewritten::fitting(&input.bytes, asked), ClosureSource::Bundle(libraries::BUNDLE_FOLDER.to_owned()))
            }
        };
        // The program first: what is wrong with it is said before its libraries are rewritten.
        // Whoever may read the program may run the output.
        let mode = input.mode | ((input.mode & 0o444) >> 2);
        let failed = |e: std::io::Error| Error::new(format!("cannot write {}", output.display())).because(e);
        let mut file = AtomicFile::new(&output, mode);
        if self.bundle.is_some() {
            file = file.in_new_folder(0o777);
        }
        let sites = if learnt.is_empty() { LearntSites::NONE } else { learnt.of(Object::of(&input.bytes)) };
        let request = Request { options: &options, learnt: sites };
        let rewritten = match &debug {
            None => pipeline::rewrite_program(&input.bytes, &input.name, request, &source.record(), &mut file),
            Some(debug) => pipeline::rewrite_with_debug_file(
                &input.bytes,
                &debug.bytes,
                &input.name,
                request,
                &source.record(),
                &mut file,
            ),
        };
        for read in [Some(&input), debug.as_ref()].into_iter().flatten() {
            read.bytes.expect_unchanged(&read.name)?;
        }
        file.failure().map_or(Ok(()), |e| Err(failed(e)))?;
        let report = rewritten?;
        match &self.bundle {
            None => drop(libraries::prepare(&input.path, &source)?),
            Some(folder) => libraries::bundle(&input.path, &self.add, folder, &options, &learnt)?,
        }
        file.finish().map_err(failed)?;
        if self.output.is_none() && self.bundle.is_none() {
            messages::note(&format!("the rewritten program is {}", output.display()));
        }
        say_what_was_done(&report, &input.name, &output, &request);
        Ok(ExitCode::SUCCESS)
    }
}

/// What the user should know of the output.
fn say_what_was_done(report: &Report, name: &str, output: &Path, request: &Request) {
    messages::detail(&format!("{}: {} checks and {} polls inserted", output.display(), report.checks, report.polls));
    if report.learnt_untested > 0 {
        messages::note(&format!(
            "{}: {} of {} learnt accesses have no test: no access of a tested class stands there, or it is a call",
            name,
            report.learnt_untested,
            request.learnt.len()
        ));
    }
    if report.suspect_places > 0 && request.options.inserts() {
        let places = if report.suspect_places == 1 { "place" } else { "places" };
        messages::warning(&format!(
            "{}: {} bytes in {} {places} read as code, but nothing was found to lead there: they were not moved, \
             and would run unchecked (`blizzard verify` lists them)",
            name, report.suspect_bytes, report.suspect_places
        ));
    }
}

/// `PROG.blz`.
fn beside(program: &Path) -> PathBuf {
    let mut name = program.file_name().unwrap_or_default().to_owned();
    name.push(".blz");
    program.with_file_name(name)
}

/// What the file says, if it speaks of this program, or of what goes with it.
///
/// # Errors
/// It cannot be read, says nothing that can be understood, or speaks of other programs.
fn known(path: &Path, input: &InputFile, added: &[PathBuf], options: Options) -> Result<Knowledge> {
    if options.access != AccessMode::Guard {
        return Err(Error::new("--learnt is for --access guard: other code tests every access"));
    }
    let failed = |e: std::io::Error| Error::new(format!("{}: cannot be read", path.display())).because(e);
    let text = fs::read(path).map_err(failed)?;
    let known = Knowledge::parse(&String::from_utf8_lossy(&text), path)?;
    let first = known.all().next().map(|(object, sites)| format!("{object} ({})", sites.name));
    let of_program = known.all().any(|(object, _)| object == Object::of(&input.bytes));
    let mut others = learnt::files(&input.path)?;
    for path in added {
        others.extend(learnt::files(path)?);
    }
    match first {
        Some(first) if !of_program && !known.all().any(|(object, _)| others.contains_key(&object)) => {
            Err(Error::new(format!("{}:2: {first} is neither {} nor one of its libraries", path.display(), input.name))
                .help("let this program learn: blizzard learn -o FILE -- PROG"))
        }
        _ => Ok(known),
    }
}

/// Refuses outputs that would destroy something: the input itself, and what is not a regular file.
fn refuse_output(output: &Path, input: &Path) -> Result<()> {
    let Ok(found) = fs::metadata(output) else { return Ok(()) };
    let error = |text: &str| Err(Error::new(format!("{}: {text}", output.display())));
    if found.is_dir() {
        return error("is a directory").map_err(|e| e.help("give the output a file name: -o DIR/NAME"));
    }
    if !found.is_file() {
        return error("is not a regular file, and will not be replaced by one");
    }
    let source =
        fs::metadata(input).map_err(|e| Error::new(format!("{}: cannot be read", input.display())).because(e))?;
    if (found.dev(), found.ino()) == (source.dev(), source.ino()) {
        return error("the output would replace the input").map_err(|e| e.help("give the output another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_is_not_replaced_under_any_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("prog"), b"x").unwrap();
        std::os::unix::fs::symlink(at("prog"), at("symlink")).unwrap();
        fs::hard_link(at("prog"), at("hardlink")).unwrap();
        for name in ["prog", "symlink", "hardlink", "./prog"] {
            let error = refuse_output(&at(name), &at("prog")).unwrap_err();
            assert!(error.what.contains("replace the input"), "{name}: {error}");
        }
        assert!(refuse_output(&at("new"), &at("prog")).is_ok());
        assert!(refuse_output(Path::new("/dev/null"), &at("prog")).unwrap_err().what.contains("regular"));
        assert!(refuse_output(folder.path(), &at("prog")).unwrap_err().what.contains("directory"));
    }
}
