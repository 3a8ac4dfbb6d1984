//! Rewrites files in memory and prints what it took: one line of JSON for each.
//!
//! Seconds are those of the processor, not of the clock, so that a busy machine disturbs them little.
//!
//! `figures [--null] [--no-poll-placement] [--write DIR] FILE...`: `--null` relocates only. The output goes to a file in DIR, or in the folder for temporary files, as
//! that of `blizzard rewrite` does. The hash tells whether a change of the rewriter has changed it.
//!
//! `peak_per_text` is the peak of this process's memory so far, divided by the code of the file at hand: everything that is resident, the
//! rewriter's own code, the runtime inside it and the mapped input included. `own_peak_per_text` leaves out what is mapped from
//! files, which the kernel can take back at any time.

use blizzard::base::memory::{MappedFile, give_back_large_blocks};
use blizzard::base::options::{Checks, Options, Poll};
use blizzard::base::output_file::AtomicFile;
use blizzard::pipeline;
use blizzard::read::elf::identify;
use blizzard::read::image::ProgramKind;
use blizzard::write::file::LibraryRecord;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};

fn main() {
    give_back_large_blocks();
    let mut options = Options::default();
    let mut folder: Option<PathBuf> = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--null" => options = Options { checks: Checks::None, poll: Poll::None, ..options },
            "--no-poll-placement" => options.place_polls = false,
            "--write" => folder = args.next().map(PathBuf::from),
            file => figures(Path::new(file), &options, folder.as_deref()),
        }
    }
}

fn figures(file: &Path, options: &Options, folder: Option<&Path>) {
    let name = file.display().to_string();
    let input = match std::fs::File::open(file).and_then(|file| MappedFile::of(&file, &name)) {
        Ok(input) => input,
        Err(e) => return println!("{}", serde_json::json!({ "file": name, "error": e.to_string() })),
    };
    let kept = folder.map(|folder| folder.join(file.file_name().expect("a file has a name")));
    let temporary = tempfile::tempdir().expect("there is room for temporary files");
    let path = kept.unwrap_or_else(|| temporary.path().join("output"));
    let mut out = AtomicFile::new(&path, 0o755);
    let start = cpu_seconds();
    let report = match identify(&input, &name) {
        Ok(ProgramKind::Library) => pipeline::rewrite_library_to(&input, &name, options, &mut out),
        _ => pipeline::rewrite_program(&input, &name, options, &LibraryRecord::none(), &mut out),
    };
    let seconds = cpu_seconds() - start;
    let [peak, files] = ["VmHWM:", "RssFile:"].map(memory_bytes);
    let written = report.map_err(|e| e.what).and_then(|report| {
        out.finish().map_err(|e| e.to_string())?;
        Ok((report, std::fs::File::open(&path).map_err(|e| e.to_string())?))
    });
    let (report, mut file) = match written {
        Ok(done) => done,
        Err(e) => return println!("{}", serde_json::json!({ "file": name, "error": e })),
    };
    let text = report.text_bytes as f64;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    while let Ok(n @ 1..) = file.read(&mut piece) {
        hash.update(&piece[..n]);
    }
    let hash: String = hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect();
    let line = serde_json::json!({
        "file": name,
        "hash": hash,
        "text_mb_per_second": round(text / 1e6 / seconds),
        "seconds": round(seconds),
        "peak_per_text": round(peak / text),
        "own_peak_per_text": round((peak - files) / text),
        "report": report,
    });
    println!("{line}");
}

fn round(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

/// Processor time of this thread so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

/// A line of this process's status, in bytes.
fn memory_bytes(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok()).map_or(f64::NAN, |kib| kib * 1024.0)
}
