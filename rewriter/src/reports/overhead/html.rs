//! Report and counts -> one self-contained page: ratios as bars, what the functions that pay most execute as stacked bars, and the
//! listing of the hottest loops with their checks marked.
//!
//! Input: the report, the counts. Output: a page.
//!
//! No script, no font, no image from elsewhere: the file can be mailed. Words and figures are those of [`crate::reports::overhead::render`].
//! On a narrow screen each row of a table becomes a block, and each figure has its column's name in front of it. **Invariant**: all text from
//! the program is escaped.

use crate::insert::block_table::CountedSite;
use crate::plan::decision::DecisionClass;
use crate::reports::overhead::counts::Counted;
use crate::reports::overhead::hot_spots::{AllCounts, HotSpot, ModuleFiles};
use crate::reports::overhead::render::{bytes, command_line, grouped, seconds_text};
use crate::reports::overhead::report::OverheadReport;
use crate::reports::overhead::variants::{Spread, Variant};
use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

/// Loops longer than this are cut.
const LONGEST_LISTING: usize = 200;
/// Loops that are listed.
const LISTED_LOOPS: usize = 5;

const STYLE: &str = "
:root { color-scheme: light dark; --text: #1b1f24; --dim: #5c646e; --back: #fff; --line: #d8dde3; --note: #7a4b00; --note-back: #fff6e5;
--own: #b9c2cb; --p0: #d5553a; --p1: #e69f2e; --p2: #8a6d3b; --p3: #3f86b5; --p4: #8673b5; --bar: #3f86b5; }
@media (prefers-color-scheme: dark) { :root { --text: #e3e7ec; --dim: #9aa4af; --back: #15191e; --line: #343b44; --note: #f0c674;
--note-back: #2b2416; --own: #5b6570; --p0: #e2694f; --p1: #e0a23f; --p2: #b08d54; --p3: #5aa0d0; --p4: #a08fd0; --bar: #5aa0d0; } }
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1200px; margin: 1.5em auto; padding: 0 1em; color: var(--text); background: var(--back); }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin: 2em 0 .3em; } h3 { font-size: 1em; margin: 1.5em 0 .3em; }
h1, h3, code, dd, .note { overflow-wrap: anywhere; }
code, .n { font-family: ui-monospace, monospace; font-size: 13px; } h1 code { font-size: 1em; }
.dim { color: var(--dim); } .note { color: var(--note); background: var(--note-back); padding: .4em .7em; border-radius: 4px; margin: .5em 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 1em; margin: 1em 0; } dt { color: var(--dim); } dd { margin: 0; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; font-weight: 600; border-bottom: 1px solid var(--line); }
th, td { padding: 3px 12px 3px 0; vertical-align: top; } .n { text-align: right; white-space: nowrap; } th.n { font: inherit; font-weight: 600; }
th:last-child, td:last-child { padding-right: 0; } .bar { width: 20%; min-width: 140px; } svg { display: block; width: 100%; height: 16px; overflow: visible; }
.legend span { display: inline-block; margin-right: 1.2em; } .legend i { display: inline-block; width: 12px; height: 12px; margin-right: 5px; }
.name code { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; }
.counts { width: auto; } .listing { width: auto; } @media (min-width: 761px) { .listing td:nth-child(3) { white-space: nowrap; } }
.listing td { padding-top: 0; padding-bottom: 0; } .listing td:first-child, .listing th:first-child { padding-left: 8px; border-left: 4px solid transparent; }
@media (max-width: 760px) { thead { display: none; } table, .counts, .listing { display: block; width: 100%; } tbody { display: block; }
tr { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 14px; padding: 6px 0; border-bottom: 1px solid var(--line); } td { padding: 0; } .n { text-align: left; }
td[data-is]::before { content: attr(data-is) ' '; color: var(--dim); font: 13px system-ui, sans-serif; } td:empty { display: none; }
.name, .bar { flex-basis: 100%; } .name { order: -2; } .name code { display: block; } .bar { order: -1; padding: 3px 0; }
.listing tr { padding: 2px 0; } .listing td:first-child { min-width: 6em; } .listing .why { flex-basis: 100%; padding-left: 12px; } }
";

/// What a bar is made of: name, colour's variable, and the classes whose insertions it shows.
const PARTS: [(&str, &str, &[DecisionClass]); 5] = [
    ("checks of loads", "--p0", &[DecisionClass::Load]),
    ("checks of stores", "--p1", &[DecisionClass::Store]),
    ("checks by range, gathers", "--p2", &[DecisionClass::Range, DecisionClass::String, DecisionClass::Lanes]),
    (
        "merged and hoisted checks",
        "--p3",
        &[DecisionClass::Apart, DecisionClass::Merged, DecisionClass::Hoisted, DecisionClass::Strip],
    ),
    ("polls and tests of the stack pointer", "--p4", &[DecisionClass::Poll, DecisionClass::StackTest]),
];
const OWN: (&str, &str) = ("the program's own instructions", "--own");

/// Text in HTML.
struct Text<'x>(&'x str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// The page.
pub fn page(report: &OverheadReport, counted: Option<(&Counted, &ModuleFiles)>) -> String {
    let mut out = String::new();
    write(&mut out, report, counted).expect("writing to a string cannot fail");
    out
}

fn write(out: &mut String, report: &OverheadReport, counted: Option<(&Counted, &ModuleFiles)>) -> fmt::Result {
    let command = command_line(std::iter::once(&report.program).chain(&report.args));
    let command = Text(&command);
    write!(
        out,
        "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Overhead of {command}</title>"
    )?;
    writeln!(out, "<style>{STYLE}</style><h1>What checks and polls cost <code>{command}</code></h1>")?;
    let timing = &report.timing;
    writeln!(out, "<p class=note>Noise: {}.</p>", Text(&timing.noise()))?;
    for remark in &timing.remarks {
        writeln!(out, "<p class=note>Note: {}.</p>", Text(remark))?;
    }
    let setting = &report.setting;
    out.push_str("<dl>");
    for (what, text) in [
        ("command", &setting.command_line),
        ("runs", &timing.of()),
        ("date", &setting.date),
        ("machine", &setting.machine),
        ("Blizzard", &setting.version),
    ] {
        writeln!(out, "<dt>{what}<dd>{}", Text(text))?;
    }
    out.push_str("</dl>\n");
    times(out, report)?;
    if let Some(counts) = &report.counts {
        stacked(out, counts)?;
        executed(out, report.counts_of, counts)?;
        if let Some((counted, files)) = counted {
            listings(out, counts, counted, files)?;
        }
    }
    out.push_str("</html>\n");
    Ok(())
}

/// The beginning of a table. A column's name with `#` in front is one of figures.
fn table(out: &mut String, class: &str, columns: &[&str]) -> fmt::Result {
    write!(out, "<table class=\"{class}\"><thead><tr>")?;
    for name in columns {
        match name.strip_prefix('#') {
            Some(name) => write!(out, "<th class=n>{name}")?,
            None => write!(out, "<th>{name}")?,
        }
    }
    out.push_str("<tbody>\n");
    Ok(())
}

/// A figure below the column `name`.
fn figure(out: &mut String, name: &str, text: impl Display) -> fmt::Result {
    write!(out, "<td class=n data-is=\"{name}\">{text}")
}

/// A bar for each variant's ratio, with a line from its least to its greatest.
fn times(out: &mut String, report: &OverheadReport) -> fmt::Result {
    let t = &report.timing;
    writeln!(
        out,
        "<h2>Time</h2><p>Seconds are processor time{}. The ratio is to the original's seconds{}. The dashed line is the original.</p>",
        if t.runs > 1 { ", the median of all runs" } else { "" },
        if t.runs > 1 {
            "; from .. to, and the line, are the ratios within single rounds, and those of the original to its median"
        } else {
            ""
        }
    )?;
    let most = t.variants.iter().map(|v| v.ratio.max).fold(1.0, f64::max);
    let x = |ratio: f64| ratio / most * 100.0;
    table(out, "", &["variant", "#seconds", "#ratio", "#from .. to", "", "#code", "#libraries"])?;
    for (v, size) in t.variants.iter().zip(&report.code_bytes) {
        let Spread { median, min, max } = v.ratio;
        let seconds = Spread::of(v.cpu_seconds.iter().copied()).median;
        let colour = if v.variant == Variant::Original { OWN.1 } else { "--bar" };
        write!(out, "<tr><td class=name>{}", v.variant.name())?;
        figure(out, "seconds", seconds_text(seconds, t))?;
        figure(out, "ratio", format_args!("<b>{median:.3}</b>"))?;
        figure(out, "from .. to", format_args!("{min:.3} .. {max:.3}"))?;
        write!(
            out,
            "<td class=bar><svg viewBox=\"0 0 100 16\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{median:.3}\">\
             <rect y=\"2\" width=\"{:.2}\" height=\"12\" style=\"fill:var({colour})\"/><path d=\"M{:.2} 8H{:.2}\" style=\"stroke:var(--text)\" \
             stroke-width=\"2\" vector-effect=\"non-scaling-stroke\"/><path d=\"M{:.2} 0V16\" style=\"stroke:var(--dim)\" stroke-dasharray=\"2 2\" \
             vector-effect=\"non-scaling-stroke\"/></svg>",
            x(median),
            x(min),
            x(max),
            x(1.0),
        )?;
        figure(out, "code", bytes(size.program))?;
        figure(out, "libraries", bytes(size.libraries))?;
        out.push('\n');
    }
    out.push_str("</table>\n");
    Ok(())
}

fn executed(out: &mut String, of: Variant, counts: &AllCounts) -> fmt::Result {
    writeln!(
        out,
        "<h2>Executed</h2><p>Exact counts of one run of the form <i>{}</i>, libraries included: <b>{}</b> instructions of the program, \
         <b>{}</b> inserted; {} accesses of memory, {} checks, {} polls.</p>",
        of.name(),
        grouped(counts.instructions),
        grouped(counts.inserted),
        grouped(counts.accesses),
        grouped(counts.checks),
        grouped(counts.polls)
    )?;
    table(out, "counts", &["what", "#places", "#times", "#inserted"])?;
    for (class, e) in counts.dearest_first() {
        write!(out, "<tr><td class=name>{}", class.name())?;
        figure(out, "places", grouped(e.sites))?;
        figure(out, "times", grouped(e.times))?;
        figure(out, "inserted", grouped(e.inserted))?;
        out.push('\n');
    }
    for (name, times) in counts.of_the_runtime() {
        write!(out, "<tr class=dim><td class=name>{name}<td>")?;
        figure(out, "times", grouped(times))?;
        out.push_str("<td>\n");
    }
    out.push_str("</table>\n");
    Ok(())
}

fn legend(out: &mut String) -> fmt::Result {
    out.push_str("<p class=legend>");
    for (name, colour) in std::iter::once(OWN).chain(PARTS.iter().map(|p| (p.0, p.1))) {
        write!(out, "<span><i style=\"background:var({colour})\"></i>{name}</span>")?;
    }
    out.push_str("</p>\n");
    Ok(())
}

/// One bar per function and per loop: its own instructions, then what was inserted.
fn stacked(out: &mut String, counts: &AllCounts) -> fmt::Result {
    for (what, places) in [("Functions", &counts.functions), ("Loops", &counts.loops)] {
        writeln!(out, "<h2>{what} that pay most</h2>")?;
        if what == "Functions" {
            writeln!(
                out,
                "<p>Sorted by cost: the share of all {} inserted instructions that were executed. Bars are executed instructions; growth is \
                 all of them to the program's own.</p>",
                grouped(counts.inserted)
            )?;
            legend(out)?;
        }
        let most = places.iter().map(|p| p.instructions + p.inserted).max().unwrap_or(1) as f64;
        table(out, "", &["#share", "#inserted", "#checks", "#polls", "#growth", "executed instructions", "name"])?;
        for p in places {
            out.push_str("<tr>");
            figure(
                out,
                "share",
                format_args!("<b>{:.1}%</b>", 100.0 * p.inserted as f64 / counts.inserted.max(1) as f64),
            )?;
            for (name, n) in [("inserted", p.inserted), ("checks", p.checks()), ("polls", p.polls())] {
                figure(out, name, grouped(n))?;
            }
            figure(out, "growth", format_args!("{:.2}", p.growth()))?;
            bar(out, p, most)?;
            let source = p.source.as_ref().map_or(String::new(), |source| format!("{source}, "));
            let file = p.file.rsplit('/').next().unwrap_or_default();
            let (name, source) = (Text(&p.name), Text(&source));
            writeln!(
                out,
                "<td class=name><code title=\"{name}\">{name}</code><span class=dim>{source}{} {:#x}</span>",
                Text(file),
                p.address
            )?;
        }
        out.push_str("</table>\n");
    }
    Ok(())
}

/// What a place executes, as a part of the `most` that one executes.
fn bar(out: &mut String, place: &HotSpot, most: f64) -> fmt::Result {
    out.push_str("<td class=bar><svg viewBox=\"0 0 100 16\" preserveAspectRatio=\"none\">");
    let mut x = 0.0;
    let inserted =
        |classes: &[DecisionClass]| classes.iter().filter_map(|c| place.classes.get(c)).map(|e| e.inserted).sum();
    let parts = PARTS.iter().map(|(name, colour, classes)| (*name, *colour, inserted(classes)));
    for (name, colour, n) in std::iter::once((OWN.0, OWN.1, place.instructions)).chain(parts).filter(|part| part.2 > 0)
    {
        let width = n as f64 / most * 100.0;
        write!(
            out,
            "<rect x=\"{x:.2}\" width=\"{width:.2}\" height=\"16\" style=\"fill:var({colour})\"><title>{name}: {}</title></rect>",
            grouped(n)
        )?;
        x += width;
    }
    out.push_str("</svg>");
    Ok(())
}

/// The hottest loops, instruction by instruction.
fn listings(out: &mut String, counts: &AllCounts, counted: &Counted, files: &ModuleFiles) -> fmt::Result {
    out.push_str("<h2>The hottest loops</h2><p>The program's instructions, how often each was executed, and what was inserted in front of it.</p>\n");
    for place in counts.loops.iter().take(LISTED_LOOPS) {
        let source = place.source.as_deref().unwrap_or_default();
        writeln!(out, "<h3><code>{}</code> <span class=dim>{}</span></h3>", Text(&place.name), Text(source))?;
        let symbols = &files[place.module];
        match symbols.code(place.address, place.end) {
            Some(code) => listing(out, place, counted, code)?,
            None => writeln!(out, "<p class=dim>The file's code cannot be read.</p>")?,
        }
    }
    Ok(())
}

fn listing(out: &mut String, place: &HotSpot, counted: &Counted, code: &[u8]) -> fmt::Result {
    let module = &counted.modules[place.module];
    let mut times: BTreeMap<u64, u64> = BTreeMap::new();
    let mut sites: BTreeMap<u64, Vec<CountedSite>> = BTreeMap::new();
    let inside = |at: u64| (place.address..place.end).contains(&at);
    for (block, &count) in module.table.blocks.iter().zip(&module.counts).filter(|(b, _)| inside(b.start)) {
        // A block that was emitted twice has run as often as both. One without instructions of the program is what was inserted around it.
        if block.insns > 0 {
            *times.entry(block.start).or_default() += count;
        }
        for site in module.table.sites(block) {
            let known = sites.entry(site.at).or_default();
            if !known.contains(site) {
                known.push(*site);
            }
        }
    }
    let mut decoder = Decoder::with_ip(64, code, place.address, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_branch_leading_zeros(false);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    table(out, "listing", &["address", "#times", "instruction", "inserted in front of it"])?;
    let mut text = String::new();
    let mut count = 0;
    for (k, insn) in decoder.iter().enumerate() {
        if k == LONGEST_LISTING {
            out.push_str("<tr><td colspan=4 class=dim>… and so on\n");
            break;
        }
        let known = times.get(&insn.ip());
        count = known.copied().unwrap_or(count);
        text.clear();
        formatter.format(&insn, &mut text);
        let here = sites.get(&insn.ip()).map_or(&[][..], Vec::as_slice);
        // The colours of the bars.
        let part = |s: &CountedSite| PARTS.iter().position(|(_, _, classes)| classes.contains(&s.class));
        let colour =
            here.iter().filter_map(part).min().map_or("transparent".to_owned(), |k| format!("var({})", PARTS[k].1));
        let describe = |s: &CountedSite| match s.inserted {
            0 => s.class.name().to_owned(),
            n => format!("{} ({n} instructions)", s.class.name()),
        };
        let inserted = here.iter().map(describe).collect::<Vec<_>>().join("; ");
        let dim = if count == 0 { " class=dim" } else { "" };
        write!(out, "<tr><td style=\"border-color:{colour}\"><code>{:x}</code>", insn.ip())?;
        figure(out, "times", known.map_or(String::new(), |&n| grouped(n)))?;
        writeln!(out, "<td{dim}><code>{}</code><td class=why>{inserted}", Text(&text))?;
    }
    out.push_str("</table>\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_program_cannot_become_markup() {
        assert_eq!(Text("a<b> & \"c\"").to_string(), "a&lt;b&gt; &amp; &quot;c&quot;");
    }

    /// Names of more than two lines were cut off, which only a mouse shows in full.
    #[test]
    fn names_are_whole_on_a_narrow_screen() {
        let (wide, narrow) = STYLE.split_once("@media (max-width: 760px)").unwrap();
        assert!(wide.contains("-webkit-line-clamp: 2") && narrow.contains(".name code { display: block; }"));
    }

    /// Instructions stood on one line each whatever its length, and 420 pixels cut them off.
    #[test]
    fn only_numbers_keep_to_one_line_on_a_narrow_screen() {
        let (before, wide) = STYLE.split_once("@media (min-width: 761px) {").unwrap();
        // That block has one rule.
        let (_, behind) = wide.split_once("} }").unwrap();
        let narrow = format!("{before}{behind}");
        let rules = narrow.split('}').filter(|rule| rule.contains("nowrap"));
        let selectors: Vec<&str> = rules.map(|rule| rule.split('{').next().unwrap().trim()).collect();
        assert_eq!(selectors, [".n"]);
        assert!(narrow.contains("code, dd, .note { overflow-wrap: anywhere; }"));
    }

    #[test]
    fn each_insertion_has_a_place_in_the_bars() {
        for class in DecisionClass::ALL {
            let parts = PARTS.iter().filter(|p| p.2.contains(&class)).count();
            assert_eq!(
                parts,
                usize::from(
                    class.is_check()
                        || matches!(
                            class,
                            DecisionClass::Merged
                                | DecisionClass::Hoisted
                                | DecisionClass::Poll
                                | DecisionClass::Strip
                                | DecisionClass::StackTest
                        )
                )
            );
        }
    }
}
