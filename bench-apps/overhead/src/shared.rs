//! What programs cost whose data are all shared memory.
//!
//! Input: the kernels with `bz_alloc` in place of `calloc`, and programs written for Blizzard. Output: [`Row`]s. Each form of a program is run in turn: as it was built,
//! where `bz_alloc` is the C library's; with a test of every access; guarded, which has learnt nothing; guarded, after it has learnt. On one node nobody takes
//! memory away, and nothing faults. On two nodes each runs the kernel with arrays of its own, of which it is the home, beside the other: all that is paid there is for tests.

use crate::workloads::{self, KERNELS, Kind, Workload, application};
use crate::{c_compiler, must, sources};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is measured besides the original.
pub const FORMS: [&str; 5] =
    ["tests", "guarded", "two nodes: tests", "two nodes: guarded, first run", "two nodes: guarded, learnt"];
/// What learns that often knows what a program does.
const RUNS_TO_LEARN: usize = 4;

/// Processor time, the least of some runs.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    /// Seconds of the original.
    pub original: f64,
    /// In multiples of as many originals at once; none: the program shares its work among nodes.
    pub forms: Vec<f64>,
    /// Accesses that were learnt.
    pub sites: usize,
}

/// The programs, built in `folder`.
///
/// # Errors
/// A compiler's.
pub fn programs(folder: &Path, blizzard: &Path) -> Result<Vec<Workload>, String> {
    let kernels = folder.join("kernels.shared");
    let (cflags, libs) = workloads::client(blizzard)?;
    let build = |to: &Path, source: &Path, more: &[&str]| {
        let mut compiler = Command::new(c_compiler());
        compiler.args(["-O2", "-g"]).args(more).args(&cflags).arg(source).args(&libs).arg("-o").arg(to);
        must(&mut compiler).map(drop)
    };
    build(&kernels, &sources().join("kernels.c"), &["-DSHARED"])?;
    let kernel = |&(name, rounds): &(&'static str, u32)| Workload {
        kind: Kind::Kernel,
        ..application(name, kernels.clone(), &[name, &rounds.to_string()])
    };
    let mut list: Vec<Workload> = KERNELS.iter().map(kernel).collect();
    let em3d = folder.join("em3d.shared");
    build(&em3d, &sources().join("../../em3d/em3d.c"), &[])?;
    list.push(application("em3d", em3d, &["--iters", "60"]));
    // The example's 400 steps take milliseconds.
    let text = std::fs::read_to_string(sources().join("../../../examples/heat.c")).map_err(|e| e.to_string())?;
    let (source, heat) = (folder.join("heat.c"), folder.join("heat"));
    std::fs::write(&source, text.replace("#define STEPS 400\n", "#define STEPS 20000\n")).map_err(|e| e.to_string())?;
    build(&heat, &source, &[])?;
    list.push(application("heat", heat, &[]));
    Ok(list)
}

/// Runs one in all forms, `runs` times each.
///
/// # Errors
/// It cannot be rewritten, fails, or prints something else in one of its forms.
pub fn measure(w: &Workload, runs: u32, folder: &Path, blizzard: &Path) -> Result<Row, String> {
    let at = |form: &str| folder.join(format!("{}.{form}", w.name));
    let cache = folder.join("cache");
    let command = |args: &[&str]| {
        let mut command = Command::new(blizzard);
        command.env("BLIZZARD_CACHE", &cache).args(args).stdin(Stdio::null());
        command
    };
    let rewrite = |form: &str, args: &[&str]| {
        let to = at(form);
        must(command(&["rewrite"]).args(args).arg(&w.program).arg("-o").arg(&to)).map(|_| to)
    };
    let tests = rewrite("tests", &["--access", "tests"])?;
    let guarded = rewrite("guarded", &["--access", "guard"])?;
    let alone = |program: &PathBuf| {
        let mut command = Command::new(program);
        command.args(&w.args).env("BLIZZARD_CACHE", &cache).stdin(Stdio::null());
        command
    };
    let launched = |program: &PathBuf| {
        let mut command = command(&["run", "--no-learn", "-n", "2", "--"]);
        command.arg(program).args(&w.args);
        command
    };
    let mut sites = 0;
    // The processes of each form, and the form that it is compared with.
    let mut forms = vec![(vec![alone(&w.program)], 0), (vec![alone(&tests)], 0), (vec![alone(&guarded)], 0)];
    if w.kind == Kind::Kernel {
        let knowledge = at("knowledge");
        for _ in 0..RUNS_TO_LEARN {
            let mut learn = command(&["learn", "-n", "2", "-o"]);
            must(learn.arg(&knowledge).arg("--").arg(&w.program).args(&w.args))?;
        }
        let text = std::fs::read_to_string(&knowledge).map_err(|e| e.to_string())?;
        let is_site = |line: &&str| !line.starts_with("object ") && !line.starts_with("blizzard");
        sites = text.lines().filter(is_site).count();
        let learnt = rewrite("learnt", &["--access", "guard", "--learnt", &knowledge.to_string_lossy()])?;
        forms.push((vec![alone(&w.program), alone(&w.program)], 3));
        forms.extend([tests, guarded, learnt].iter().map(|program| (vec![launched(program)], 3)));
    }
    let mut seconds = vec![f64::MAX; forms.len()];
    let mut printed = Vec::new();
    for _ in 0..runs {
        for ((processes, _), least) in forms.iter_mut().zip(&mut seconds) {
            let (lines, time) = run(processes)?;
            *least = least.min(time);
            printed.push(lines);
        }
    }
    if let Some(other) = printed.iter().find(|lines| **lines != printed[0]) {
        return Err(format!("a form prints {other:?} for {:?}", printed[0]));
    }
    let compared = forms.iter().enumerate().filter(|(k, (_, with))| k != with);
    Ok(Row {
        name: w.name,
        original: seconds[0],
        forms: compared.map(|(k, (_, with))| seconds[k] / seconds[*with]).collect(),
        sites,
    })
}

/// Runs them at once. The different lines that they print, and their processor time.
fn run(processes: &mut [Command]) -> Result<(Vec<String>, f64), String> {
    let before = of_children();
    let mut children = Vec::new();
    for command in processes {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        children.push(child.map_err(|e| format!("{}: {e}", command.get_program().display()))?);
    }
    let mut lines = Vec::new();
    for child in children {
        let output = child.wait_with_output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        lines.extend(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned));
    }
    lines.sort_unstable();
    lines.dedup();
    Ok((lines, of_children() - before))
}

/// Processor time of all children that have ended.
fn of_children() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one, and all zeros are one, too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
