//! A case: a source file with directives, in every configuration compiled, run, rewritten, run again and compared.
//!
//! Input: `tests/cases/<folder>/<file>`. Output: a test per source file, whose failure text names each
//! configuration that went wrong and what differed.

use crate::compile::{self, Job, Language};
use crate::directives::{Directives, StderrRule};
use crate::run::{Ending, Outcome, run};
use crate::tool::{self, Mode};
use crate::workdir::WorkDir;
use crate::{matrix, normalise};
use blizzard_contract::FEW_NODES;
use blizzard_test_harness::{Failed, Test, needs, passed};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Failures shown in full; the rest of a case's failures are only counted and named.
const SHOWN: usize = 4;

/// One source file with directives.
#[derive(Clone)]
pub struct Case {
    name: String,
    source: PathBuf,
    language: Language,
    directives: Directives,
}

/// Which runs on several nodes a configuration of a case gets. Protocols know nothing of compilers and their flags: one configuration has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeRuns {
    None,
    OneProtocol,
    AllProtocols,
}

/// One way of compiling a case.
struct Config {
    compiler: String,
    flags: Vec<String>,
    /// The `link:` part again, for the name only.
    name: String,
}

/// All cases below `folder` as tests; a source whose directives are wrong becomes a failing one.
pub fn tests(folder: &Path) -> Vec<Test> {
    let mut tests = Vec::new();
    for folder in sorted(folder).into_iter().filter(|f| f.is_dir()) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for source in sorted(&folder) {
            let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let name = if stem == name { name.clone() } else { format!("{name}::{stem}") };
            match Case::read(&source, &name) {
                Ok(Some(case)) => tests.extend(case.tests()),
                Ok(None) => {}
                Err(e) => tests.push(Test::new(name, move || Err(Failed::from(e)))),
            }
        }
    }
    // The longest ones, those of system calls and signals, begin first.
    tests.reverse();
    tests
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    paths
}

impl Case {
    /// Reads the case in `source`; `None` when the file is no case.
    ///
    /// # Errors
    /// The file cannot be read, or a directive is not understood.
    pub fn read(source: &Path, name: &str) -> Result<Option<Case>, String> {
        let Some(language) = Language::of(source) else { return Ok(None) };
        let text = std::fs::read_to_string(source).map_err(|e| format!("{}: {e}", source.display()))?;
        let Some(directives) = Directives::parse(&text, language == Language::Rust)? else { return Ok(None) };
        Ok(Some(Case { name: name.into(), source: source.into(), language, directives }))
    }

    /// One test for the compilers and linkers that are there, and a skipped one for each that is not.
    fn tests(mut self) -> Vec<Test> {
        let program = |compiler: &String| compile::program(compiler, self.language);
        let (present, absent): (Vec<String>, Vec<String>) =
            self.directives.compilers.iter().cloned().partition(|c| needs::find(&program(c)).is_some());
        // `-fuse-ld=NAME` runs ld.NAME.
        let linker =
            |link: &Vec<String>| link.iter().find_map(|f| Some(format!("ld.{}", f.strip_prefix("-fuse-ld=")?)));
        let is_there = |link: &Vec<String>| linker(link).is_none_or(|program| needs::find(&program).is_some());
        let (links, other_links): (Vec<_>, Vec<_>) = self.directives.link.iter().cloned().partition(is_there);
        self.directives.link = links;
        let absent = absent.iter().map(program).chain(other_links.iter().filter_map(linker));
        let skipped = absent.map(|program| {
            Test::new(format!("{} with {program}", self.name), move || {
                needs::need(&program);
                Ok(())
            })
        });
        let mut tests: Vec<Test> = skipped.collect();
        if !present.is_empty() && !self.directives.link.is_empty() {
            self.directives.compilers = present;
            let with = self.configs().iter().map(|config| config.name.as_str()).collect::<Vec<_>>().join(", ");
            let test = Test::new(self.name.clone(), move || {
                needs::need_cpu(&self.directives.needs_cpu);
                self.run().map_err(Failed::from)
            });
            tests.push(test.with(with));
        }
        tests
    }

    /// Runs the case in all its configurations but those that have passed already.
    ///
    /// # Errors
    /// The text of all failures.
    pub fn run(&self) -> Result<(), String> {
        let work = WorkDir::new(&self.name)?;
        let mut failures = Vec::new();
        let key = |config: &Config| format!("{} {}", self.source.display(), config.name);
        let all = self.configs();
        let configs: Vec<&Config> = all.iter().filter(|config| !passed::is_known(&key(config))).collect();
        for (number, config) in configs.iter().enumerate() {
            let before = failures.len();
            // Compilers, flags and links each differ once among these.
            let runs = match number {
                0 if configs.len() == all.len() => NodeRuns::AllProtocols,
                number if number < 2 || number + 1 == configs.len() => NodeRuns::OneProtocol,
                _ => NodeRuns::None,
            };
            self.run_config((number, configs.len()), config, runs, &work, &mut failures);
            if failures.len() == before {
                passed::add(&key(config));
            }
        }
        if failures.is_empty() {
            return Ok(());
        }
        let mut text = format!("{} failures\n", failures.len());
        for (index, (config, what)) in failures.iter().enumerate() {
            let what = if index < SHOWN { what.as_str() } else { what.lines().next().unwrap_or("") };
            let _ = writeln!(text, "[{config}] {what}");
        }
        Err(text)
    }

    fn configs(&self) -> Vec<Config> {
        let d = &self.directives;
        let sizes = [d.compilers.len(), d.flags.len(), d.link.len()];
        let chosen = if d.full_matrix { matrix::full(sizes) } else { matrix::pairs(sizes) };
        let config = |[compiler, flags, link]: [usize; 3]| {
            let compiler = d.compilers[compiler].clone();
            let flags: Vec<String> = d.flags[flags].iter().chain(&d.link[link]).cloned().collect();
            Config { name: format!("{compiler} {}", flags.join(" ")), compiler, flags }
        };
        chosen.into_iter().map(config).collect()
    }

    /// `number`: of the configuration, and how many there are.
    fn run_config(
        &self,
        (number, configs): (usize, usize),
        config: &Config,
        runs: NodeRuns,
        work: &WorkDir,
        failures: &mut Vec<(String, String)>,
    ) {
        let mut fail = |what: &str, e: String| failures.push((format!("{} {what}", config.name), e));
        let prepared = work.sub(&format!("{number}/original")).and_then(|folder| {
            let program = folder.join("prog");
            self.compile(config, &program, false)?;
            Ok((program.clone(), self.run_original(&program)?))
        });
        let (program, originals) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => return fail("original", e),
        };
        if std::env::var_os("BLIZZARD_TESTS_ORIGINALS").is_some() {
            return;
        }
        let several = runs != NodeRuns::None;
        let partial = if several { &Mode::PARTIAL[..] } else { &[] };
        // Checks of loads or of stores alone are inserted by the same code as all checks.
        let rare = Mode::RARE.iter().skip(number).step_by(configs);
        let modes = std::iter::once(&Mode::TESTS).chain(partial).chain(rare);
        for mode in modes {
            let result = work
                .sub(&format!("{number}/{}", mode.name()))
                .and_then(|folder| self.run_mode(&program, &folder.join("prog"), *mode, runs, &originals));
            if let Err(e) = result {
                fail(&mode.name(), e);
            }
        }
        let shared = if several { &self.directives.shared[..] } else { &[] };
        for (which, nodes) in shared.iter().enumerate() {
            let result = work.sub(&format!("{number}/shared")).and_then(|folder| {
                let program = folder.join("prog");
                self.compile(config, &program, true)?;
                let alone = self.run_original(&program)?;
                let output = folder.join("prog.blz");
                rewritten(&program, &output, Mode::TESTS)?;
                self.compare_nodes(&output, *nodes, runs, &alone)?;
                if (number, which) == (0, 0) && !self.directives.tests_only {
                    let output = folder.join("guarded.blz");
                    rewritten(&program, &output, Mode::GUARD)?;
                    let result = self.compare_nodes(&output, *nodes, NodeRuns::OneProtocol, &alone);
                    result.map_err(|e| format!("guarded: {e}"))?;
                }
                Ok(())
            });
            if let Err(e) = result {
                fail(&format!("shared on {nodes} nodes"), e);
            }
        }
    }

    fn compile(&self, config: &Config, output: &Path, shared: bool) -> Result<(), String> {
        let folder = self.source.parent().unwrap_or(Path::new("."));
        let mut sources = vec![self.source.clone()];
        sources.extend(self.directives.with.iter().map(|f| folder.join(f)));
        let mut flags = config.flags.clone();
        let mut libraries = Vec::new();
        if shared {
            flags.push("-DSHARED".into());
        }
        if shared || self.directives.uses_blizzard {
            flags.extend(tool::config("--cflags")?);
            libraries = tool::config("--libs")?;
        }
        if let Some(library) = &self.directives.library {
            let built = self.build_library(config, &folder.join(library), output)?;
            // The rewritten program runs in another folder.
            libraries.push(format!("-Wl,-rpath,{}", built.parent().unwrap_or(Path::new(".")).display()));
            libraries.push(built.display().to_string());
        }
        compile::compile(&Job {
            sources,
            language: self.language,
            compiler: &config.compiler,
            flags,
            libraries,
            output,
        })
    }

    /// Builds a shared library beside `program`.
    fn build_library(&self, config: &Config, source: &Path, program: &Path) -> Result<PathBuf, String> {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy();
        let output = program.with_file_name(format!("lib{stem}.so"));
        let for_programs = ["-pie", "-no-pie", "-s"];
        let mut flags: Vec<String> =
            config.flags.iter().filter(|f| !for_programs.contains(&f.as_str())).cloned().collect();
        flags.extend(["-shared".into(), "-fPIC".into()]);
        compile::compile(&Job {
            sources: vec![source.to_owned()],
            language: self.language,
            compiler: &config.compiler,
            flags,
            libraries: Vec::new(),
            output: &output,
        })?;
        Ok(output)
    }

    fn command(&self, program: &Path, arguments: &[String]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments);
        self.environment(&mut command, program);
        command
    }

    fn environment(&self, command: &mut Command, program: &Path) {
        command.current_dir(program.parent().unwrap_or(Path::new(".")));
        command.env("LC_ALL", "C").env_remove("RUST_BACKTRACE").env_remove("LD_BIND_NOW");
        command.envs(self.directives.env.iter().map(|(name, value)| (name, value)));
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.directives.timeout_s)
    }

    /// The plain program's behaviour, one outcome per `args:` line; it must be what the directives say.
    fn run_original(&self, program: &Path) -> Result<Vec<Outcome>, String> {
        let d = &self.directives;
        let mut outcomes = Vec::new();
        for arguments in &d.args {
            let outcome = run(&mut self.command(program, arguments), &d.stdin, self.limit())?;
            if outcome.ending != d.ending {
                return Err(format!("expected {}, but: {}", d.ending, outcome.describe()));
            }
            if outcome.stdout.is_empty() && d.ending == Ending::Exit(0) {
                return Err("the program prints nothing that could be compared".into());
            }
            check_mentions(&d.stderr, &outcome, "the original")?;
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    /// Rewrites the program, and runs the result, on several nodes, too, as `runs` says.
    fn run_mode(
        &self,
        program: &Path,
        output: &Path,
        mode: Mode,
        runs: NodeRuns,
        originals: &[Outcome],
    ) -> Result<(), String> {
        let d = &self.directives;
        if d.all_checks_only && mode.checks != "all" {
            return Ok(());
        }
        let of_guard = d.refuse_guard.as_ref().filter(|_| mode.access == "guard");
        if d.tests_only && mode.access == "guard" {
            return Ok(());
        }
        if let Some(text) = d.refuse.as_ref().or(of_guard) {
            if mode.checks != "all" {
                return Ok(());
            }
            let outcome = tool::rewrite(program, output, mode)?;
            let refused = outcome.ending == Ending::Exit(1) && outcome.stderr_text().contains(text.as_str());
            return match (refused, output.exists()) {
                (true, false) => Ok(()),
                (true, true) => Err("refused, but an output was written".into()),
                (false, _) => Err(format!("expected a refusal with {text:?}, but: {}", outcome.describe())),
            };
        }
        let most = d.nodes.iter().chain(&d.guarded_nodes).copied().filter(|&nodes| nodes as usize > FEW_NODES).max();
        rewritten(program, output, Mode { nodes: most.unwrap_or(0), ..mode })?;
        for (arguments, original) in d.args.iter().zip(originals) {
            let outcome = run(&mut self.command(output, arguments), &d.stdin, self.limit())?;
            self.compare(&outcome, original, (output, program))?;
        }
        let (nodes, runs) = match mode {
            Mode::TESTS if runs != NodeRuns::None => ([&[1], &d.nodes[..]].concat(), runs),
            Mode::TESTS => (vec![1], runs),
            Mode::GUARD if d.guarded_nodes.is_empty() => {
                (d.nodes.iter().copied().filter(|&nodes| nodes > 1).min().into_iter().collect(), NodeRuns::OneProtocol)
            }
            Mode::GUARD => (d.guarded_nodes.clone(), runs),
            _ => (vec![], runs),
        };
        for nodes in nodes {
            self.compare_nodes(output, nodes, runs, originals).map_err(|e| format!("run -n {nodes}: {e}"))?;
        }
        Ok(())
    }

    /// Runs `output` on several nodes.
    fn compare_nodes(&self, output: &Path, nodes: u32, runs: NodeRuns, originals: &[Outcome]) -> Result<(), String> {
        let shares = self.source.components().any(|part| part.as_os_str() == "shared");
        let protocols = match nodes {
            0 | 1 => &tool::PROTOCOLS[..1],
            _ if runs != NodeRuns::AllProtocols => &tool::PROTOCOLS[..1],
            _ if shares => &tool::PROTOCOLS[..],
            _ => &tool::PROTOCOLS[..tool::OWN_DRIVERS],
        };
        for protocol in protocols {
            self.compare_run(output, nodes, protocol, originals).map_err(|e| format!("{protocol}: {e}"))?;
        }
        Ok(())
    }

    /// Runs `output` under the launcher. Standard error carries the launcher's own lines and is not compared; a node that
    /// dies by a signal is reported by an exit status.
    fn compare_run(&self, output: &Path, nodes: u32, protocol: &str, originals: &[Outcome]) -> Result<(), String> {
        let d = &self.directives;
        for (arguments, original) in d.args.iter().zip(originals) {
            // Programs that share nothing run rightly without checks, too.
            let mut command = tool::blizzard(["run", "--allow-incomplete", "-n", &nodes.to_string()]);
            command.args(["--protocol", protocol, "--"]);
            command.arg(output).args(arguments);
            self.environment(&mut command, output);
            let outcome = run(&mut command, &d.stdin, self.limit())?;
            let same_end = match original.ending {
                Ending::Exit(status) => outcome.ending == Ending::Exit(status),
                Ending::Signal(_) | Ending::TimedOut => !matches!(outcome.ending, Ending::Exit(0) | Ending::TimedOut),
            };
            if !same_end {
                return Err(format!("expected {}, but: {}", original.ending, outcome.describe()));
            }
            same_text("standard output", &original.stdout_text(), &outcome.stdout_text())?;
        }
        Ok(())
    }

    fn compare(&self, outcome: &Outcome, original: &Outcome, paths: (&Path, &Path)) -> Result<(), String> {
        if outcome.ending != original.ending {
            return Err(format!("expected {}, but: {}", original.ending, outcome.describe()));
        }
        same_text("standard output", &original.stdout_text(), &outcome.stdout_text())?;
        if outcome.stdout != original.stdout {
            return Err("standard output differs in bytes that are not text".into());
        }
        if self.directives.stderr == StderrRule::Same {
            let folder = |p: &Path| p.parent().unwrap_or(p).to_string_lossy().into_owned();
            let was = normalise::stderr(&original.stderr_text(), &folder(paths.1));
            let is = normalise::stderr(&outcome.stderr_text(), &folder(paths.0));
            same_text("standard error", &was, &is)?;
        }
        check_mentions(&self.directives.stderr, outcome, "the rewritten program")
    }
}

/// Rewrites `program` to `output`, audits the result and compares it with the program.
fn rewritten(program: &Path, output: &Path, mode: Mode) -> Result<(), String> {
    tool::rewrite(program, output, mode)?.success().map_err(|e| format!("rewrite: {e}"))?;
    tool::verify(output, Some(program))?.success().map_err(|e| format!("verify: {e}"))?;
    Ok(())
}

fn check_mentions(rule: &StderrRule, outcome: &Outcome, who: &str) -> Result<(), String> {
    let StderrRule::Mentions(words) = rule else { return Ok(()) };
    let text = outcome.stderr_text();
    match words.iter().find(|w| !text.contains(w.as_str())) {
        Some(word) => Err(format!("{who}'s standard error does not mention {word:?}: {}", outcome.describe())),
        None => Ok(()),
    }
}

fn same_text(what: &str, expected: &str, found: &str) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let diff = similar::TextDiff::from_lines(expected, found);
    let text = diff.unified_diff().context_radius(2).header("original", "rewritten").to_string();
    let shown: Vec<&str> = text.lines().take(40).collect();
    Err(format!("{what} differs:\n{}", shown.join("\n")))
}
