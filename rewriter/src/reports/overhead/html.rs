//! Report and counts -> one self-contained page: ratios as bars, what the functions that pay most execute as stacked bars, and the
//! listing of the hottest loops with their checks marked.
//!
//! Input: the report, the counts. Output: a page.
//!
//! No script, no font, no image from elsewhere: the file can be mailed. **Invariant**: all text from the program is escaped.

use crate::insert::block_table::Site;
use crate::plan::decision::Class;
use crate::reports::overhead::counts::Counted;
use crate::reports::overhead::hot_spots::{Counts, Files, Place};
use crate::reports::overhead::render::{bytes, grouped};
use crate::reports::overhead::report::Report;
use crate::reports::overhead::variants::{Spread, Variant};
use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

/// Loops longer than this are cut.
const LONGEST_LISTING: usize = 200;
/// Loops that are listed.
const LISTED_LOOPS: usize = 5;
/// Width of bars, in pixels.
const WIDTH: f64 = 560.0;

const STYLE: &str = "
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #1b1f24; background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 2em; } h3 { font-size: 1em; margin: 1.5em 0 .3em; }
code, pre, .n { font-family: ui-monospace, monospace; font-size: 13px; }
table { border-collapse: collapse; } th { text-align: left; font-weight: 600; } th, td { padding: 2px 10px 2px 0; vertical-align: top; }
.n { text-align: right; white-space: nowrap; } .dim { color: #68707a; } .note { color: #7a4b00; }
.legend span { display: inline-block; margin-right: 1.2em; } .legend i { display: inline-block; width: 12px; height: 12px; margin-right: 5px; }
.listing td { padding: 0 10px 0 0; } .listing tr.c0 td { background: #fdeceb; } .listing tr.c1 td { background: #fff3e0; }
.listing tr.c2 td { background: #e9f3ec; } .listing tr.c3 td { background: #ece9f8; } .scroll { overflow-x: auto; }
";

/// What a bar is made of: name, colour, and the classes whose insertions it shows.
const PARTS: [(&str, &str, &[Class]); 5] = [
    ("checks of loads", "#d9534f", &[Class::Load]),
    ("checks of stores", "#f0a04b", &[Class::Store]),
    ("checks by range, gathers", "#8a6d3b", &[Class::Range, Class::String, Class::Lanes]),
    ("merged and hoisted checks", "#5b8fb0", &[Class::Apart, Class::Merged, Class::Hoisted, Class::Strip]),
    ("polls and tests of the stack pointer", "#8673b5", &[Class::Poll, Class::StackTest]),
];
const OWN: (&str, &str) = ("the program's own instructions", "#b9c2cb");

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
pub fn page(report: &Report, counted: Option<(&Counted, &Files)>) -> String {
    let mut out = String::new();
    write(&mut out, report, counted).expect("writing to a string cannot fail");
    out
}

fn write(out: &mut String, report: &Report, counted: Option<(&Counted, &Files)>) -> fmt::Result {
    let command =
        std::iter::once(&report.program).chain(&report.args).map(String::as_str).collect::<Vec<_>>().join(" ");
    let command = Text(&command);
    write!(out, "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><title>Overhead of {command}</title>")?;
    writeln!(out, "<style>{STYLE}</style><h1>What checks and polls cost <code>{command}</code></h1>")?;
    timing(out, report)?;
    if let Some(counts) = &report.counts {
        executed(out, counts)?;
        stacked(out, counts)?;
        if let Some((counted, files)) = counted {
            listings(out, counts, counted, files)?;
        }
    }
    for remark in &report.timing.remarks {
        writeln!(out, "<p class=note>Note: {}.</p>", Text(remark))?;
    }
    out.push_str("</html>\n");
    Ok(())
}

/// A bar for each variant's ratio, with a line from its least to its greatest.
fn timing(out: &mut String, report: &Report) -> fmt::Result {
    let t = &report.timing;
    let of = match t.runs {
        1 => "one round".to_owned(),
        runs => format!("median of {runs} rounds, the line shows the spread"),
    };
    writeln!(out, "<h2>Time</h2><p>Processor time relative to the original's; {of}.</p>")?;
    let most = t.variants.iter().map(|v| v.ratio.max).fold(1.0, f64::max);
    let x = |ratio: f64| ratio / most * WIDTH;
    out.push_str(
        "<table><tr><th>form<th class=n>ratio<th><th class=n>seconds<th class=n>new code<th class=n>libraries\n",
    );
    for (v, size) in t.variants.iter().zip(&report.code_bytes) {
        let Spread { median, min, max } = v.ratio;
        let seconds = Spread::of(v.cpu_seconds.iter().copied()).median;
        let colour = if v.variant == Variant::Original { OWN.1 } else { "#5b8fb0" };
        writeln!(
            out,
            "<tr><td>{}<td class=n>{median:.3}<td><svg width=\"{}\" height=\"16\" role=\"img\" aria-label=\"{median:.3}\">\
             <rect y=\"2\" width=\"{:.1}\" height=\"12\" fill=\"{colour}\"/><path d=\"M{:.1} 8H{:.1}\" stroke=\"#1b1f24\"/>\
             <path d=\"M{:.1} 0V16\" stroke=\"#68707a\" stroke-dasharray=\"2 2\"/></svg>\
             <td class=n>{seconds:.4}<td class=n>{}<td class=n>{}",
            v.variant.name(),
            WIDTH + 2.0,
            x(median),
            x(min),
            x(max),
            x(1.0),
            bytes(size.program),
            bytes(size.libraries)
        )?;
    }
    out.push_str("</table>\n");
    Ok(())
}

fn executed(out: &mut String, counts: &Counts) -> fmt::Result {
    writeln!(
        out,
        "<h2>Executed</h2><p>Exact counts, the libraries' included: <b>{}</b> instructions of the program, <b>{}</b> inserted ones; \
         {} accesses of memory, {} checks, {} polls.</p>",
        grouped(counts.instructions),
        grouped(counts.inserted),
        grouped(counts.accesses),
        grouped(counts.checks),
        grouped(counts.polls)
    )?;
    out.push_str("<table><tr><th>what<th class=n>places<th class=n>times<th class=n>inserted instructions\n");
    for (class, e) in &counts.classes {
        let [sites, times, inserted] = [e.sites, e.times, e.inserted].map(grouped);
        writeln!(out, "<tr><td>{}<td class=n>{sites}<td class=n>{times}<td class=n>{inserted}", class.name())?;
    }
    for (name, times) in &counts.runtime {
        writeln!(out, "<tr class=dim><td>runtime: {}<td><td class=n>{}<td>", name.replace('_', " "), grouped(*times))?;
    }
    out.push_str("</table>\n");
    Ok(())
}

fn legend(out: &mut String) -> fmt::Result {
    out.push_str("<p class=legend>");
    for (name, colour) in std::iter::once(OWN).chain(PARTS.iter().map(|p| (p.0, p.1))) {
        write!(out, "<span><i style=\"background:{colour}\"></i>{name}</span>")?;
    }
    out.push_str("</p>\n");
    Ok(())
}

/// One bar per function and per loop: its own instructions, then what was inserted.
fn stacked(out: &mut String, counts: &Counts) -> fmt::Result {
    for (what, places) in [("Functions", &counts.functions), ("Loops", &counts.loops)] {
        writeln!(out, "<h2>{what} that pay most</h2>")?;
        legend(out)?;
        let most = places.iter().map(|p| p.instructions + p.inserted).max().unwrap_or(1) as f64;
        out.push_str("<table><tr><th>name<th>executed instructions<th class=n>total<th class=n>grows\n");
        for p in places {
            let source = p.source.as_deref().unwrap_or("no line known");
            let file = p.file.rsplit('/').next().unwrap_or_default();
            write!(
                out,
                "<tr><td><code>{}</code><br><span class=dim>{}, {} {:#x}</span><td><svg width=\"{WIDTH}\" height=\"20\">",
                Text(&p.name),
                Text(source),
                Text(file),
                p.address
            )?;
            let mut x = 0.0;
            let mut part = |out: &mut String, n: u64, name: &str, colour: &str| {
                let width = n as f64 / most * WIDTH;
                let title = format!("{name}: {}", grouped(n));
                x += width;
                write!(
                    out,
                    "<rect x=\"{:.2}\" width=\"{width:.2}\" height=\"20\" fill=\"{colour}\"><title>{title}</title></rect>",
                    x - width
                )
            };
            part(out, p.instructions, OWN.0, OWN.1)?;
            for (name, colour, classes) in PARTS {
                let inserted = classes.iter().filter_map(|c| p.classes.get(c)).map(|e| e.inserted).sum();
                part(out, inserted, name, colour)?;
            }
            let grows = (p.instructions + p.inserted) as f64 / p.instructions.max(1) as f64;
            writeln!(out, "</svg><td class=n>{}<td class=n>{grows:.2} x", grouped(p.instructions + p.inserted))?;
        }
        out.push_str("</table>\n");
    }
    Ok(())
}

/// The hottest loops, instruction by instruction.
fn listings(out: &mut String, counts: &Counts, counted: &Counted, files: &Files) -> fmt::Result {
    out.push_str("<h2>The hottest loops</h2><p>The program's instructions, how often each was executed, and what was inserted in front of it.</p>\n");
    for place in counts.loops.iter().take(LISTED_LOOPS) {
        let source = place.source.as_deref().unwrap_or("no line known");
        writeln!(out, "<h3><code>{}</code> <span class=dim>{}</span></h3>", Text(&place.name), Text(source))?;
        let symbols = &files[place.module];
        match symbols.code(place.address, place.end) {
            Some(code) => listing(out, place, counted, code)?,
            None => writeln!(out, "<p class=dim>The file's code cannot be read.</p>")?,
        }
    }
    Ok(())
}

fn listing(out: &mut String, place: &Place, counted: &Counted, code: &[u8]) -> fmt::Result {
    let module = &counted.modules[place.module];
    let mut times: BTreeMap<u64, u64> = BTreeMap::new();
    let mut sites: BTreeMap<u64, Vec<Site>> = BTreeMap::new();
    let inside = |at: u64| (place.address..place.end).contains(&at);
    for (block, &count) in module.table.blocks.iter().zip(&module.counts).filter(|(b, _)| inside(b.start)) {
        // A block that was emitted twice has run as often as both.
        *times.entry(block.start).or_default() += count;
        for site in module.table.sites(block) {
            let known = sites.entry(site.at).or_default();
            if !known.contains(site) {
                known.push(*site);
            }
        }
    }
    let mut decoder = Decoder::with_ip(64, code, place.address, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    out.push_str(
        "<div class=scroll><table class=listing><tr><th>address<th class=n>times<th>instruction<th>in front of it\n",
    );
    let mut text = String::new();
    let mut count = 0;
    for (k, insn) in decoder.iter().enumerate() {
        if k == LONGEST_LISTING {
            out.push_str("<tr><td colspan=4 class=dim>… and so on\n");
            break;
        }
        let shown = match times.get(&insn.ip()) {
            Some(&n) => {
                count = n;
                grouped(n)
            }
            None => String::new(),
        };
        text.clear();
        formatter.format(&insn, &mut text);
        let here = sites.get(&insn.ip()).map_or(&[][..], Vec::as_slice);
        let mark = |s: &Site| match s.class {
            Class::Load | Class::String | Class::Range | Class::Lanes => Some(0),
            Class::Store => Some(1),
            Class::Merged | Class::Hoisted => Some(2),
            Class::Poll | Class::Apart | Class::Strip | Class::StackTest => Some(3),
            _ => None,
        };
        let colour = here.iter().filter_map(mark).min().map_or(String::new(), |c| format!(" class=c{c}"));
        let describe = |s: &Site| match s.inserted {
            0 => s.class.name().to_owned(),
            n => format!("{} ({n} instructions)", s.class.name()),
        };
        let inserted = here.iter().map(describe).collect::<Vec<_>>().join("; ");
        let dim = if count == 0 { " class=dim" } else { "" };
        writeln!(
            out,
            "<tr{colour}><td><code>{:x}</code><td class=n>{shown}<td{dim}><code>{}</code><td>{inserted}",
            insn.ip(),
            Text(&text)
        )?;
    }
    out.push_str("</table></div>\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_program_cannot_become_markup() {
        assert_eq!(Text("a<b> & \"c\"").to_string(), "a&lt;b&gt; &amp; &quot;c&quot;");
    }

    #[test]
    fn each_insertion_has_a_place_in_the_bars() {
        for class in Class::ALL {
            let parts = PARTS.iter().filter(|p| p.2.contains(&class)).count();
            assert_eq!(
                parts,
                usize::from(
                    class.is_check()
                        || matches!(
                            class,
                            Class::Merged | Class::Hoisted | Class::Poll | Class::Strip | Class::StackTest
                        )
                )
            );
        }
    }
}
