//! Report -> text for people.

use super::{Report, Variant};
use std::fmt::Write;

/// The report as a table.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let t = &report.timing;
    let command = std::iter::once(&report.program).chain(&report.args).map(|w| shown(w)).collect::<Vec<_>>().join(" ");
    let place = t.processor.map_or(String::new(), |cpu| format!(", on processor {cpu}"));
    let runs = if t.runs == 1 { "one run of each".to_owned() } else { format!("{} runs of each, in turn", t.runs) };
    line(&mut out, format_args!("{command}: {runs}{place}"));
    line(&mut out, format_args!(""));
    line(
        &mut out,
        format_args!(
            "{:<12} {:>10} {:>8}  {:<15} {:>12} {:>12}",
            "", "seconds", "ratio", "  from .. to", "code", "libraries"
        ),
    );
    for (times, size) in t.variants.iter().zip(&report.code_bytes) {
        let seconds = super::Spread::of(times.cpu_seconds.iter().copied()).median;
        let name = times.variant.name();
        if times.variant == Variant::Original {
            line(&mut out, format_args!("{name:<12} {seconds:>10.4} {:>8}", "1.000"));
            continue;
        }
        let r = times.ratio;
        let spread = format!("{:.3} .. {:.3}", r.min, r.max);
        line(
            &mut out,
            format_args!(
                "{name:<12} {seconds:>10.4} {:>8.3}  {spread:<15} {:>12} {:>12}",
                r.median,
                bytes(size.program),
                bytes(size.libraries)
            ),
        );
    }
    if !t.remarks.is_empty() {
        line(&mut out, format_args!(""));
    }
    for remark in &t.remarks {
        line(&mut out, format_args!("note: {remark}"));
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments) {
    let before = out.len();
    write!(out, "{text}").expect("writing to a string cannot fail");
    out.truncate(before + out[before..].trim_end().len());
    out.push('\n');
}

/// A word of a command line, in quotes if a shell would break it up.
fn shown(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A number of bytes, short.
pub fn bytes(n: u64) -> String {
    match n {
        0 => "-".to_owned(),
        1..10_000 => format!("{n} B"),
        10_000..10_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}
