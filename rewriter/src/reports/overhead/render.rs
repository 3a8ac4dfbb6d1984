//! Report -> text for people.
//!
//! Input: a [`OverheadReport`]. Output: a table; numbers and sizes in short form.

use crate::reports::overhead::hot_spots::{AllCounts, HotSpot};
use crate::reports::overhead::measure::Timing;
use crate::reports::overhead::report::OverheadReport;
use crate::reports::overhead::variants::{Spread, Variant};
use std::fmt::Write;

/// The report as a table.
pub fn text(report: &OverheadReport) -> String {
    let mut out = String::new();
    let t = &report.timing;
    let command = command_line(std::iter::once(&report.program).chain(&report.args));
    line(&mut out, format_args!("{command}: {}", t.of()));
    line(&mut out, format_args!("noise: {}", t.noise()));
    line(&mut out, format_args!(""));
    line(
        &mut out,
        format_args!(
            "{:<12} {:>10} {:>8}  {:<15} {:>12} {:>12}",
            "", "seconds", "ratio", "  from .. to", "code", "libraries"
        ),
    );
    for (times, size) in t.variants.iter().zip(&report.code_bytes) {
        let seconds = Spread::of(times.cpu_seconds.iter().copied()).median;
        let seconds = seconds_text(seconds, t);
        let name = times.variant.name();
        let r = times.ratio;
        let spread = format!("{:.3} .. {:.3}", r.min, r.max);
        line(
            &mut out,
            format_args!(
                "{name:<12} {seconds:>10} {:>8.3}  {spread:<15} {:>12} {:>12}",
                r.median,
                bytes(size.program),
                bytes(size.libraries)
            ),
        );
    }
    if let Some(counts) = &report.counts {
        line(&mut out, format_args!(""));
        executed(&mut out, report.counts_of, counts);
        for (title, places) in [("functions", &counts.functions), ("loops", &counts.loops)] {
            line(&mut out, format_args!(""));
            most(&mut out, title, places, counts.inserted);
        }
    }
    if !t.remarks.is_empty() {
        line(&mut out, format_args!(""));
    }
    for remark in &t.remarks {
        line(&mut out, format_args!("note: {remark}"));
    }
    out
}

/// Seconds with as many digits, the same for all variants, that the ratios can be had from them.
pub(super) fn seconds_text(seconds: f64, timing: &Timing) -> String {
    let all = timing.variants.iter().map(|v| Spread::of(v.cpu_seconds.iter().copied()).median);
    let digits = if all.fold(f64::INFINITY, f64::min) < 0.1 { 6 } else { 4 };
    format!("{seconds:.digits$}")
}

/// What was executed, by kind.
fn executed(out: &mut String, of: Variant, counts: &AllCounts) {
    let row = |out: &mut String, name: &str, sites: String, times: u64, inserted: String| {
        line(out, format_args!("{name:<32} {sites:>9} {:>18} {inserted:>18}", grouped(times)));
    };
    let title = format!("executed by \"{}\"", of.name());
    line(out, format_args!("{title:<32} {:>9} {:>18} {:>18}", "places", "times", "inserted"));
    row(out, "instructions of the program", String::new(), counts.instructions, grouped(counts.inserted));
    for (class, e) in counts.dearest_first() {
        let inserted = if e.inserted > 0 { grouped(e.inserted) } else { String::new() };
        row(out, &format!("  {}", class.name()), grouped(e.sites), e.times, inserted);
    }
    for (name, times) in counts.of_the_runtime() {
        row(out, &format!("  {name}"), String::new(), times, String::new());
    }
    if let Some(unchecked) = counts.runtime.get("unchecked_code").filter(|&&n| n > 0) {
        line(out, format_args!("  not counted: {unchecked} mappings of code that is not rewritten"));
    }
}

/// Functions or loops, the dearest first.
fn most(out: &mut String, what: &str, places: &[HotSpot], inserted: u64) {
    let title = format!("{what} that pay most");
    line(out, format_args!("{:>6} {:>16} {:>16} {:>8}  {title}", "share", "checks", "polls", "growth"));
    for p in places {
        let share = 100.0 * p.inserted as f64 / inserted.max(1) as f64;
        let file = p.file.rsplit('/').next().unwrap_or_default();
        let source = p.source.as_ref().map_or(String::new(), |s| format!(" ({s})"));
        line(
            out,
            format_args!(
                "{share:>5.1}% {:>16} {:>16} {:>8.2}  {}{source}, {file} {:#x}",
                grouped(p.checks()),
                grouped(p.polls()),
                p.growth(),
                p.name,
                p.address
            ),
        );
    }
}

/// With a comma between thousands.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (k, digit) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments) {
    let before = out.len();
    write!(out, "{text}").expect("writing to a string cannot fail");
    out.truncate(before + out[before..].trim_end().len());
    out.push('\n');
}

/// Words as one types them.
pub fn command_line<'x>(words: impl IntoIterator<Item = &'x String>) -> String {
    words.into_iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ")
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
