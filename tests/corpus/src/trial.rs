//! One program, original and rewritten: [`Program`] -> [`Row`].
//!
//! The workload runs [`Plan::repeats`] times in each form, in turns, each time in a fresh folder at the same path. Every
//! run is compared with the first run of the original; an original that differs from itself makes the entry *unstable*,
//! which is a fault of the list. A form's cost is the least of its runs ([`Processor::least`]).

use crate::compare::{self, Behaviour};
use crate::inside::{Ended, Job, Processor, Status, argv, namespaces};
use crate::list::{self, Program};
use crate::one::{self, Fate, Figures, Variant};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How programs are tried.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Holds inputs, the cache of rewritten files, and the folder that the workloads run in.
    pub folder: PathBuf,
    /// The rewriter under test.
    pub blizzard: PathBuf,
    pub repeats: usize,
    /// Where outputs of failed runs are kept.
    pub keep: Option<PathBuf>,
    /// Run the originals alone: tries the list, not the rewriter.
    pub originals_only: bool,
    /// Count traps, with strace, in a run of their own.
    pub traps: bool,
}

/// What became of one program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    pub kind: String,
    pub version: String,
    pub outcome: Outcome,
    /// Of the null rewrite; sums over the entry's files.
    pub null: Option<Figures>,
    pub checked: Option<Figures>,
    #[serde(default)]
    pub guarded: Option<Figures>,
    /// What the workload cost in each form.
    pub original_cost: Option<Processor>,
    pub null_cost: Option<Processor>,
    pub checked_cost: Option<Processor>,
    #[serde(default)]
    pub guarded_cost: Option<Processor>,
    /// Trap bytes hit by the null rewrite's workload.
    pub traps: Option<u64>,
}

/// What a trap costs, and a quarter more (`rt/MEASUREMENTS.md`), and what part of the null rewrite's time traps may take.
const TRAP_SECONDS: f64 = 2.5e-6;
const TRAP_SHARE: f64 = 0.01;

impl Row {
    /// What part of the null rewrite's processor time traps take.
    pub fn trap_share(&self) -> Option<f64> {
        let cost = self.null_cost?;
        Some(self.traps? as f64 * TRAP_SECONDS / (cost.user + cost.system).max(TRAP_SECONDS))
    }

    /// Whether they take too much.
    fn judge_traps(&self) -> Result<(), Outcome> {
        match (self.traps, self.trap_share()) {
            (Some(traps), Some(share)) if share > TRAP_SHARE => {
                Err(Outcome::Failed(format!("null: {traps} trap bytes are hit, {:.1} % of its time", share * 100.0)))
            }
            _ => Ok(()),
        }
    }
}

/// The verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Passed,
    Failed(String),
    /// The rewriter says that it cannot do it, and why.
    Refused(String),
    /// Not installed, or not possible on this machine.
    Missing(String),
    /// The original does not behave the same twice.
    Unstable(String),
}

impl Outcome {
    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed(_) => "FAILED",
            Outcome::Refused(_) => "refused",
            Outcome::Missing(_) => "missing",
            Outcome::Unstable(_) => "UNSTABLE",
        }
    }

    /// What else there is to say.
    pub fn reason(&self) -> &str {
        match self {
            Outcome::Passed => "",
            Outcome::Failed(text) | Outcome::Refused(text) | Outcome::Missing(text) | Outcome::Unstable(text) => text,
        }
    }
}

/// A form of the program: its files and what stands in their places.
struct Form {
    name: &'static str,
    replace: Vec<(PathBuf, PathBuf)>,
    cost: Option<Processor>,
}

impl Plan {
    /// Where the inputs are.
    pub fn inputs(&self) -> PathBuf {
        self.folder.join("in")
    }

    /// Tries one program.
    pub fn try_program(&self, program: &Program) -> Row {
        let mut row = Row {
            name: program.name.clone(),
            kind: program.kind.clone(),
            version: program.installed_version(),
            outcome: Outcome::Passed,
            null: None,
            checked: None,
            guarded: None,
            original_cost: None,
            null_cost: None,
            checked_cost: None,
            guarded_cost: None,
            traps: None,
        };
        row.outcome = match self.attempt(program, &mut row) {
            Ok(()) => Outcome::Passed,
            Err(outcome) => outcome,
        };
        let _ = fs::remove_dir_all(self.folder.join("new"));
        row
    }

    fn attempt(&self, program: &Program, row: &mut Row) -> Result<(), Outcome> {
        let files = program.locate().map_err(Outcome::Missing)?;
        if !namespaces() && (program.in_place || !files.iter().all(|f| list::is_in_path(f))) {
            return Err(Outcome::Missing("needs mount namespaces, which are not allowed here".to_owned()));
        }
        let mut forms = vec![Form { name: "original", replace: Vec::new(), cost: None }];
        let variants: &[Variant] = if self.originals_only { &[] } else { &Variant::ALL };
        for &variant in variants {
            let figures = self.figures(&files, variant)?;
            match variant {
                Variant::Null => row.null = Some(figures),
                Variant::Checked => row.checked = Some(figures),
                Variant::Guarded => row.guarded = Some(figures),
            }
            let replace = self.rewrite(&files, variant)?;
            forms.push(Form { name: variant.name(), replace, cost: None });
        }
        let mut first = None;
        for _ in 0..self.repeats.max(1) {
            for form in &mut forms {
                let (behaviour, ended) = self.run(program, form).map_err(Outcome::Failed)?;
                form.cost = Some(form.cost.map_or(ended.processor, |cost| cost.least(ended.processor)));
                let Some(expected) = &first else {
                    let ok = behaviour.status == Status::Exit(0);
                    let text = || behaviour_text(&behaviour);
                    first = if ok { Some(behaviour) } else { return Err(Outcome::Unstable(text())) };
                    continue;
                };
                if let Some(difference) = Behaviour::difference(expected, &behaviour) {
                    self.keep(program, form.name, expected, &behaviour);
                    let text = format!("{}: {difference}", form.name);
                    return Err(match form.name {
                        "original" => Outcome::Unstable(text),
                        _ => Outcome::Failed(text),
                    });
                }
            }
        }
        [row.original_cost, row.null_cost, row.checked_cost, row.guarded_cost] =
            [0, 1, 2, 3].map(|k: usize| forms.get(k).and_then(|f| f.cost));
        if let Some(null) = forms.get(1).filter(|_| self.traps) {
            row.traps = self.count_traps(program, null);
        }
        row.judge_traps()
    }

    /// Rewrites the files alone, without libraries, for the table.
    fn figures(&self, files: &[PathBuf], variant: Variant) -> Result<Figures, Outcome> {
        let mut sum = Figures::default();
        for file in files {
            match one::rewrite(file, variant, false, Duration::from_secs(300)) {
                Fate::Rewritten(f) => {
                    sum.text_bytes += f.text_bytes;
                    sum.input_bytes += f.input_bytes;
                    sum.output_bytes += f.output_bytes;
                    sum.checks += f.checks;
                    sum.seconds += f.seconds;
                    sum.max_rss_kb = sum.max_rss_kb.max(f.max_rss_kb);
                }
                Fate::Refused { reasons, .. } => return Err(Outcome::Refused(reasons.join("; "))),
                Fate::Crashed(text) => return Err(Outcome::Failed(format!("the rewriter: {text}"))),
            }
        }
        Ok(sum)
    }

    /// Rewrites the files with the command that users have.
    fn rewrite(&self, files: &[PathBuf], variant: Variant) -> Result<Vec<(PathBuf, PathBuf)>, Outcome> {
        let folder = self.folder.join("new").join(variant.name());
        let error = |e: std::io::Error| Outcome::Failed(format!("{}: {e}", folder.display()));
        fs::create_dir_all(&folder).map_err(error)?;
        let mut out = Vec::new();
        for file in files {
            let new = folder.join(file.file_name().unwrap_or_default());
            let mut command = argv([self.blizzard.as_os_str(), "rewrite".as_ref(), file.as_os_str(), "-o".as_ref()]);
            command.push(new.clone().into());
            command.extend(variant.arguments().iter().map(OsString::from));
            let job = Job {
                argv: command,
                env: self.environment(None),
                cwd: folder.clone(),
                stdout: self.folder.join("stdout"),
                stderr: self.folder.join("stderr"),
                replace: Vec::new(),
                limit: Duration::from_secs(600),
                open: true,
            };
            let ended = job.run().map_err(Outcome::Failed)?;
            let said = fs::read_to_string(&job.stderr).unwrap_or_default();
            let line = said.lines().next().unwrap_or("").to_owned();
            match ended.status {
                Status::Exit(0) => out.push((file.clone(), new)),
                Status::Exit(1) => return Err(Outcome::Refused(format!("{}: {line}", variant.name()))),
                status => return Err(Outcome::Failed(format!("the rewriter ({}): {status} {line}", variant.name()))),
            }
        }
        Ok(out)
    }

    fn environment(&self, bin: Option<&Path>) -> Vec<(OsString, OsString)> {
        let mut path = OsString::new();
        if let Some(bin) = bin {
            path.push(bin);
            path.push(":");
        }
        path.push(std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
        let pair = |name: &str, value: OsString| (OsString::from(name), value);
        let mut all = vec![
            pair("PATH", path),
            pair("HOME", self.folder.join("work").into()),
            pair("IN", self.inputs().into()),
            pair("TMPDIR", self.folder.join("tmp").into()),
            pair("BLIZZARD_CACHE", self.folder.join("cache").into()),
            pair("LC_ALL", "C.UTF-8".into()),
            pair("TZ", "UTC".into()),
            pair("SOURCE_DATE_EPOCH", "1700000000".into()),
        ];
        // Where the Rust toolchain is, if it is not at the place that HOME would say.
        for name in ["RUSTUP_HOME", "CARGO_HOME"] {
            let home = std::env::var_os("HOME").map(PathBuf::from);
            let usual = home.map(|h| h.join(format!(".{}", name.trim_end_matches("_HOME").to_lowercase())));
            if let Some(value) = std::env::var_os(name).or(usual.map(OsString::from)) {
                all.push(pair(name, value));
            }
        }
        all
    }

    /// A fresh working folder with the entry's setup done in it.
    fn prepare(&self, program: &Program) -> Result<PathBuf, String> {
        let work = self.folder.join("work");
        for folder in [&work, &self.folder.join("tmp")] {
            let _ = fs::remove_dir_all(folder);
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        if !program.setup.trim().is_empty() {
            let ended = self.job(program, &program.setup, &[], &[])?.run()?;
            if ended.status != Status::Exit(0) {
                let said = fs::read_to_string(self.folder.join("stderr")).unwrap_or_default();
                return Err(format!("setup: {} {}", ended.status, said.lines().last().unwrap_or("")));
            }
        }
        Ok(work)
    }

    fn job(
        &self,
        program: &Program,
        script: &str,
        replace: &[(PathBuf, PathBuf)],
        prefix: &[&str],
    ) -> Result<Job, String> {
        let mut env = self.environment(None);
        let mut in_place = replace.to_vec();
        if !namespaces() && !replace.is_empty() {
            // By name, in front of the originals.
            let bin = replace[0].1.parent().ok_or("no folder")?;
            env = self.environment(Some(bin));
            in_place.clear();
        }
        let mut command = argv(prefix);
        command.extend(argv(["sh", "-eu", "-c", script]));
        Ok(Job {
            argv: command,
            env,
            cwd: self.folder.join("work"),
            stdout: self.folder.join("stdout"),
            stderr: self.folder.join("stderr"),
            replace: in_place,
            limit: Duration::from_secs(program.limit),
            open: false,
        })
    }

    fn run(&self, program: &Program, form: &Form) -> Result<(Behaviour, Ended), String> {
        let work = self.prepare(program)?;
        let job = self.job(program, &program.run, &form.replace, &[])?;
        let ended = job.run()?;
        let rules = program.expressions()?;
        let read = |path: &Path| fs::read(path).map_err(|e| e.to_string());
        let behaviour = Behaviour {
            status: ended.status,
            stdout: compare::normalise(read(&job.stdout)?, &rules),
            stderr: compare::normalise(read(&job.stderr)?, &rules),
            files: compare::tree(&work, &program.ignore).map_err(|e| e.to_string())?,
        };
        Ok((behaviour, ended))
    }

    /// Trap bytes hit, seen as signals by strace; `None` where there is no strace or the run differs under it. Where a tracer watches from the start, the runtime
    /// has put an instruction that does not exist in their place.
    fn count_traps(&self, program: &Program, form: &Form) -> Option<u64> {
        self.prepare(program).ok()?;
        let log = self.folder.join("strace");
        let prefix = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=pivot_root", "-o", log.to_str()?];
        let mut job = self.job(program, &program.run, &form.replace, &prefix).ok()?;
        job.limit *= 2;
        let ended = job.run().ok()?;
        let text = fs::read(&log).ok()?;
        let _ = fs::remove_file(&log);
        let text = String::from_utf8_lossy(&text);
        const KINDS: [&str; 2] =
            ["--- SIGTRAP {si_signo=SIGTRAP, si_code=SI_KERNEL", "--- SIGILL {si_signo=SIGILL, si_code=ILL_ILLOPN"];
        let traps = text.lines().filter(|line| KINDS.iter().any(|kind| line.contains(kind)));
        (ended.status == Status::Exit(0)).then(|| traps.count() as u64)
    }

    fn keep(&self, program: &Program, form: &str, expected: &Behaviour, found: &Behaviour) {
        let Some(keep) = &self.keep else { return };
        for (who, behaviour) in [("expected", expected), (form, found)] {
            let folder = keep.join(format!("{}.{who}", program.name));
            let _ = fs::create_dir_all(&folder);
            let _ = fs::write(folder.join("stdout"), &behaviour.stdout);
            let _ = fs::write(folder.join("stderr"), &behaviour.stderr);
            for (path, node) in behaviour.files.iter().filter(|(_, node)| node.kind == "file") {
                let path = folder.join("files").join(path);
                let _ = path.parent().map(fs::create_dir_all);
                let _ = fs::write(path, &node.bytes);
            }
        }
    }
}

fn behaviour_text(behaviour: &Behaviour) -> String {
    let said = String::from_utf8_lossy(&behaviour.stderr);
    format!("the original: {} {}", behaviour.status, said.lines().last().unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_spends_more_than_one_percent_in_traps_fails() {
        let row = |traps| Row {
            name: "p".to_owned(),
            kind: "k".to_owned(),
            version: "1".to_owned(),
            outcome: Outcome::Passed,
            null: None,
            checked: None,
            guarded: None,
            original_cost: None,
            null_cost: Some(Processor { user: 0.3, system: 0.1 }),
            checked_cost: None,
            guarded_cost: None,
            traps,
        };
        assert_eq!(row(None).judge_traps(), Ok(()));
        assert_eq!(row(Some(1_500)).judge_traps(), Ok(()));
        assert!(matches!(row(Some(3_200)).judge_traps(), Err(Outcome::Failed(why)) if why.contains("2.0 %")));
    }
}
