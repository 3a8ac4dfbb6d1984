//! The result of an audit: counts and findings, printable and serialisable.
//!
//! Input: what the judges report, one thing at a time. Output: [`Audit`], as text and as JSON. **Invariants**: a file is clean if and only if there is no
//! finding, listed or only counted. Each access is counted once: as checked, exempt, covered or not asked for. Maps are in the order of their keys, so
//! equal audits print alike.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// One thing the audit could not accept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub at: u64,
    /// `function+0x12`, or the section's name and offset.
    pub place: String,
    pub reason: String,
}

/// Checked accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    pub loads: u64,
    /// Read-modify-writes included.
    pub stores: u64,
    /// Of both: tested with one tag, or with the tags of two blocks.
    pub one_tag: u64,
    pub two_tags: u64,
    pub strings: u64,
    /// Accesses of more than 64 bytes.
    pub large: u64,
    /// Gathers and scatters.
    pub lanes: u64,
}

/// What is left of the old code in one section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OldCode {
    pub section: String,
    pub bytes: u64,
    pub springboards: u64,
    pub trap_bytes: u64,
    /// Bytes that were not decoded as code and stay as they are.
    pub untouched_bytes: u64,
    pub untouched_runs: u64,
}

/// Where the bytes of the input's executable sections went; only known when the input is there to compare with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByteCounts {
    /// Instructions that were found in the new code.
    pub instructions: u64,
    /// Their bytes that are part of springboards now, and those that are trap bytes.
    pub springboard: u64,
    pub trap: u64,
    /// Bytes between functions that became traps or parts of springboards.
    pub padding: u64,
    /// Bytes kept as they were: data, or code that nothing leads to.
    pub kept: u64,
    pub kept_runs: u64,
}

/// Bytes of the old code that stay as they were, each in one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unmoved {
    /// Zeros, and the bytes of nop and int3.
    pub filler: u64,
    /// Read by instructions with constant addresses.
    pub read: u64,
    /// At or behind an address that code, data or a symbol names, up to the next code that moved.
    pub named: u64,
    /// None of these.
    pub unexplained: u64,
    /// Of the last two, what reads as code, and in how many places.
    pub suspect_bytes: u64,
    pub suspect_places: u64,
    /// The first of these places.
    pub suspects: Vec<SuspectCode>,
}

/// Bytes that were not moved and read as code: if they are, they run unchecked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuspectCode {
    pub at: u64,
    pub bytes: u64,
    pub place: String,
    /// How sure it is: one of 2^`evidence_bits` addresses would look so if the bytes were even.
    pub evidence_bits: u32,
}

/// The comparison of the frame tables of old and new code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FrameCounts {
    /// Frame descriptions.
    pub old: u64,
    pub new: u64,
    /// Instructions whose rules were compared, and calls whose landing pads were.
    pub instructions: u64,
    pub calls: u64,
    /// Places where the original computes the frame address from the instruction's address, as in the PLT.
    pub computed: u64,
    /// Instructions that overlap others, and are described by no frame of the new code.
    pub overlapping: u64,
}

/// Old code addresses that data, symbols or instructions name, and so possible targets of indirect jumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Targets {
    /// Exported functions that are known by their new addresses.
    pub direct: u64,
    /// Functions, and labels of functions, that words of data name by their new addresses.
    pub words: u64,
    /// Led to the new code by a springboard, or by a trap.
    pub springboards: u64,
    pub traps: u64,
    /// No code stands there: it stays as it was.
    pub data: u64,
    /// No instruction begins there: whoever jumps there ends the run.
    pub inside: u64,
}

/// The whole audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Audit {
    pub file: String,
    /// `loads`, `stores`, `polls`, `counting` as the module info says.
    pub requested: Vec<String>,
    pub text_bytes: u64,
    pub cold_bytes: u64,
    pub instructions: u64,
    pub functions: u64,
    pub checked: Checked,
    /// Accesses without a check, by the reason why none is needed.
    pub exempt: BTreeMap<String, u64>,
    /// Accesses without a check of their own, by the reason why another check covers them.
    pub covered: BTreeMap<String, u64>,
    /// Accesses of a kind whose checks were not asked for.
    pub not_requested: u64,
    pub polls: u64,
    /// Tests of a stack pointer that was taken from something else.
    pub stack_tests: u64,
    /// Loops that test tags once for several iterations.
    pub strips: u64,
    /// Of guarded code: instructions that exist twice, and accesses from which a fault leads to full code.
    pub twice: u64,
    pub version_rows: u64,
    /// What the audit had to believe, by reason.
    pub trusted: BTreeMap<String, u64>,
    pub targets: Targets,
    pub trap_entries: u64,
    /// Places of the original that symbols, relocations, frames or entry points name, and that lead to the new code.
    pub entries: u64,
    /// The name of the runtime that the file has; see [`crate::Runtime::Named`].
    pub runtime: Option<String>,
    pub jump_tables: u64,
    /// Of these, those whose end a comparison, a mask or a width in the new code proves, although more would lead to code. Known when compared with the input.
    pub proven_tables: u64,
    /// System calls that pass the gate.
    pub system_calls: u64,
    /// Direct branches to old addresses where no instruction begins: the run ends there.
    pub dead_ends: u64,
    pub old_code: Vec<OldCode>,
    pub unmoved: Unmoved,
    pub frames: Option<FrameCounts>,
    /// The comparison with the input.
    pub bytes: Option<ByteCounts>,
    pub open: Vec<Finding>,
    /// Findings beyond those listed in `open`.
    pub open_not_listed: u64,
}

/// Findings listed one by one; more are only counted.
const LISTED: usize = 10_000;

impl Audit {
    /// Nothing is open: the file may be trusted.
    pub fn is_clean(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn exempt(&mut self, reason: &str) {
        count(&mut self.exempt, reason, 1);
    }

    pub(crate) fn covered(&mut self, reason: &str) {
        count(&mut self.covered, reason, 1);
    }

    pub(crate) fn trust(&mut self, reason: &str, n: u64) {
        if n > 0 {
            count(&mut self.trusted, reason, n);
        }
    }

    /// How many findings there are, listed or not.
    pub fn open_count(&self) -> u64 {
        self.open.len() as u64 + self.open_not_listed
    }

    pub(crate) fn finding(&mut self, at: u64, place: String, reason: impl Into<String>) {
        if self.open.len() < LISTED {
            self.open.push(Finding { at, place, reason: reason.into() });
        } else {
            self.open_not_listed += 1;
        }
    }
}

fn count(map: &mut BTreeMap<String, u64>, key: &str, n: u64) {
    match map.get_mut(key) {
        Some(v) => *v += n,
        None => {
            map.insert(key.to_string(), n);
        }
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.checked;
        let requested = if self.requested.is_empty() { "nothing".to_string() } else { self.requested.join(", ") };
        writeln!(f, "{}: requested: {requested}", self.file)?;
        writeln!(
            f,
            "  new code    {} bytes, {} cold, {} instructions, {} functions",
            self.text_bytes, self.cold_bytes, self.instructions, self.functions
        )?;
        writeln!(
            f,
            "  checked     {} loads, {} stores ({} by one tag, {} by two), {} string, {} large, {} gather/scatter; {} polls; {} loops for several iterations; {} tests of rsp",
            c.loads,
            c.stores,
            c.one_tag,
            c.two_tags,
            c.strings,
            c.large,
            c.lanes,
            self.polls,
            self.strips,
            self.stack_tests
        )?;
        let list =
            |map: &BTreeMap<String, u64>| map.iter().map(|(k, v)| format!("{v} {k}")).collect::<Vec<_>>().join(", ");
        if self.twice > 0 {
            let rows = self.version_rows;
            writeln!(
                f,
                "  versions    {} instructions exist twice; faults at {rows} accesses go on in full code",
                self.twice
            )?;
        }
        writeln!(f, "  exempt      {}", list(&self.exempt))?;
        if !self.covered.is_empty() {
            writeln!(f, "  covered     {}", list(&self.covered))?;
        }
        writeln!(f, "  unrequested {}", self.not_requested)?;
        if !self.trusted.is_empty() {
            writeln!(f, "  trusted     {}", list(&self.trusted))?;
        }
        writeln!(
            f,
            "  trap map    {} entries; {} new jump tables ({} with a proven end); {} gated system calls",
            self.trap_entries, self.jump_tables, self.proven_tables, self.system_calls
        )?;
        let t = &self.targets;
        writeln!(
            f,
            "  targets     {} exported and {} named by words at new addresses, {} by springboard, {} by trap, {} data, {} inside instructions",
            t.direct, t.words, t.springboards, t.traps, t.data, t.inside
        )?;
        if self.dead_ends > 0 {
            writeln!(f, "  dead ends   {} branches of data that was taken for code", self.dead_ends)?;
        }
        if let Some(name) = &self.runtime {
            writeln!(f, "  runtime     sha256 {name}")?;
        }
        for o in &self.old_code {
            writeln!(
                f,
                "  old code    {}: {} springboards, {} trap bytes, {} bytes in {} runs untouched",
                o.section, o.springboards, o.trap_bytes, o.untouched_bytes, o.untouched_runs
            )?;
        }
        let u = &self.unmoved;
        writeln!(
            f,
            "  unmoved     {} bytes of padding, {} read as data, {} named, {} unexplained",
            u.filler, u.read, u.named, u.unexplained
        )?;
        for s in &u.suspects {
            writeln!(
                f,
                "  suspect     {:#x} ({}): {} bytes read as code that did not move ({} bits of evidence)",
                s.at, s.place, s.bytes, s.evidence_bits
            )?;
        }
        if u.suspect_places > u.suspects.len() as u64 {
            writeln!(f, "  suspect     {} more", u.suspect_places - u.suspects.len() as u64)?;
        }
        if let Some(c) = &self.frames {
            writeln!(
                f,
                "  frames      {} old, {} new: rules compared at {} instructions ({} computed, {} overlapping others have none), \
                 landing pads at {} calls",
                c.old, c.new, c.instructions, c.computed, c.overlapping, c.calls
            )?;
        }
        match &self.bytes {
            Some(b) => writeln!(
                f,
                "  original    {} instructions found relocated: {} bytes under springboards, {} under traps; {} bytes of padding \
                 overwritten, {} in {} runs kept as they were; {} places that something names lead to new code",
                b.instructions, b.springboard, b.trap, b.padding, b.kept, b.kept_runs, self.entries
            )?,
            None => writeln!(f, "  original    not compared with (--original)")?,
        }
        for o in &self.open {
            writeln!(f, "  open        {:#x} ({}): {}", o.at, o.place, o.reason)?;
        }
        if self.open_not_listed > 0 {
            writeln!(f, "  open        {} more", self.open_not_listed)?;
        }
        if u.suspect_places > 0 {
            writeln!(
                f,
                "  {} suspect: {} bytes that would run unchecked, should anything lead there",
                u.suspect_places, u.suspect_bytes
            )?;
        }
        write!(f, "  {} open", self.open_count())
    }
}
