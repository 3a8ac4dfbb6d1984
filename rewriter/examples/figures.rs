//! Rewrites files in memory and prints what it took: one line of JSON for each.
//!
//! Seconds are those of the processor, not of the clock, so that a busy machine disturbs them little.
//!
//! `figures [--null] [--write DIR] FILE...`: `--null` relocates only. The hash tells whether a change of the rewriter has changed its output;
//! `peak_per_text` is the peak resident memory of this process so far, divided by the code of the file at hand.

use blizzard::options::{Checks, Options, Poll};
use blizzard::pipeline::{self, Rewritten};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

fn main() {
    let mut options = Options::default();
    let mut folder: Option<PathBuf> = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--null" => options = Options { checks: Checks::None, poll: Poll::None, ..options },
            "--write" => folder = args.next().map(PathBuf::from),
            file => figures(Path::new(file), &options, folder.as_deref()),
        }
    }
}

fn figures(file: &Path, options: &Options, folder: Option<&Path>) {
    let name = file.display().to_string();
    let input = match std::fs::read(file) {
        Ok(input) => input,
        Err(e) => return println!("{}", serde_json::json!({ "file": name, "error": e.to_string() })),
    };
    let start = cpu_seconds();
    let rewritten = pipeline::rewrite(&input, &name, options).or_else(|e| match e.what.contains("shared library") {
        true => pipeline::rewrite_library(&input, &name, options),
        false => Err(e),
    });
    let seconds = cpu_seconds() - start;
    let Rewritten { bytes, report } = match rewritten {
        Ok(r) => r,
        Err(e) => return println!("{}", serde_json::json!({ "file": name, "error": e.what })),
    };
    if let Some(folder) = folder {
        let out = folder.join(file.file_name().expect("a file has a name"));
        if let Err(e) = std::fs::write(&out, &bytes) {
            eprintln!("{}: {e}", out.display());
        }
    }
    let text = report.text_bytes as f64;
    let hash: String = Sha256::digest(&bytes).iter().take(8).map(|b| format!("{b:02x}")).collect();
    let line = serde_json::json!({
        "file": name,
        "hash": hash,
        "text_mb_per_second": round(text / 1e6 / seconds),
        "seconds": round(seconds),
        "peak_per_text": round(peak_bytes() / text),
        "output_bytes": bytes.len(),
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

/// Peak resident memory of this process.
fn peak_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok()).map_or(f64::NAN, |kib| kib * 1024.0)
}
