//! Counts of blocks -> what was executed, by kind, and the functions and loops that pay most.
//!
//! Input: counts of a run. Output: [`AllCounts`].
//!
//! Cost is counted in inserted instructions that were executed: exact, repeatable, and the same on every machine.

use crate::insert::block_table::CountedSite;
use crate::plan::decision::DecisionClass;
use crate::reports::overhead::counts::{Counted, ModuleCounts};
use crate::reports::overhead::symbols::FileSymbols;
use blizzard_contract::{COUNTER_NAMES, Counter};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// How many functions and loops are listed.
pub const LISTED: usize = 10;

/// What the runtime counts and is of interest on one node.
const RUNTIME: [Counter; 9] = [
    Counter::ReadMisses,
    Counter::WriteMisses,
    Counter::FalseMisses,
    Counter::PollsTaken,
    Counter::StringCalls,
    Counter::VsibCalls,
    Counter::Traps,
    Counter::Syscalls,
    Counter::UncheckedCode,
];

/// Executed accesses, checks and polls of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Executed {
    /// Places in the code that were executed at all.
    pub sites: u64,
    pub times: u64,
    /// Inserted instructions that were executed for them.
    pub inserted: u64,
}

impl Executed {
    fn add(&mut self, times: u64, inserted: u32) {
        self.sites += u64::from(times > 0);
        self.times += times;
        self.inserted += times * u64::from(inserted);
    }
}

/// By kind.
pub type ByClass = BTreeMap<DecisionClass, Executed>;

/// A stretch of code and what it pays.
#[derive(Debug, Clone, Serialize)]
pub struct HotSpot {
    pub name: String,
    /// The file that was rewritten.
    pub file: String,
    /// In that file.
    pub address: u64,
    pub end: u64,
    /// Where there is debug information.
    pub source: Option<String>,
    /// How often it was entered at its beginning.
    pub entered: u64,
    /// Executed instructions of the program.
    pub instructions: u64,
    /// Executed instructions that were inserted.
    pub inserted: u64,
    pub classes: ByClass,
    /// Index of the module.
    #[serde(skip)]
    pub module: usize,
}

impl HotSpot {
    /// Executed checks.
    pub fn checks(&self) -> u64 {
        self.classes.iter().filter(|(class, _)| class.is_check()).map(|(_, e)| e.times).sum()
    }

    /// Executed instructions relative to the program's own.
    pub fn growth(&self) -> f64 {
        (self.instructions + self.inserted) as f64 / self.instructions.max(1) as f64
    }

    /// Executed polls.
    pub fn polls(&self) -> u64 {
        self.classes.get(&DecisionClass::Poll).map_or(0, |e| e.times)
    }
}

/// Sums of one file.
#[derive(Debug, Clone, Serialize)]
pub struct File {
    pub file: String,
    pub instructions: u64,
    pub inserted: u64,
    pub accesses: u64,
    pub checks: u64,
    pub polls: u64,
}

/// Everything that was counted.
#[derive(Debug, Clone, Serialize)]
pub struct AllCounts {
    /// Executed instructions of the program and its libraries.
    pub instructions: u64,
    /// Executed instructions that were inserted for checks and polls.
    pub inserted: u64,
    pub blocks: u64,
    /// Executed accesses of memory.
    pub accesses: u64,
    pub checks: u64,
    pub polls: u64,
    pub classes: ByClass,
    /// What the runtime counted.
    pub runtime: BTreeMap<&'static str, u64>,
    pub files: Vec<File>,
    pub functions: Vec<HotSpot>,
    pub loops: Vec<HotSpot>,
}

impl AllCounts {
    /// The classes, what costs most first.
    pub fn dearest_first(&self) -> Vec<(DecisionClass, Executed)> {
        let mut all: Vec<_> = self.classes.iter().map(|(&class, &executed)| (class, executed)).collect();
        all.sort_by_key(|(_, e)| std::cmp::Reverse((e.inserted, e.times)));
        all
    }

    /// What the runtime counted that costs time, in the words of people.
    pub fn of_the_runtime(&self) -> [(&'static str, u64); 6] {
        let count = |name: &str| self.runtime.get(name).copied().unwrap_or(0);
        [
            ("misses (cold)", count("read_misses") + count("write_misses")),
            ("straddles and false misses", count("false_misses")),
            ("polls taken", count("polls_taken")),
            ("gathers and strings by runtime", count("vsib_calls") + count("string_calls")),
            ("traps", count("traps")),
            ("system calls", count("syscalls")),
        ]
    }

    /// Instructions, inserted ones, accesses, checks and polls so far.
    fn sums(&self) -> [u64; 5] {
        let of =
            |is: fn(DecisionClass) -> bool| self.classes.iter().filter(|(c, _)| is(**c)).map(|(_, e)| e.times).sum();
        [
            self.instructions,
            self.inserted,
            of(DecisionClass::is_access),
            of(DecisionClass::is_check),
            of(|c| c == DecisionClass::Poll),
        ]
    }
}

/// Files and their symbols, by module.
pub type ModuleFiles = Vec<FileSymbols>;

/// Adds everything up.
pub fn counts(counted: &Counted) -> (AllCounts, ModuleFiles) {
    let files: ModuleFiles = counted.modules.iter().map(|m| FileSymbols::of(&m.original)).collect();
    let mut all = AllCounts {
        instructions: 0,
        inserted: 0,
        blocks: 0,
        accesses: 0,
        checks: 0,
        polls: 0,
        classes: ByClass::new(),
        runtime: RUNTIME.iter().map(|&c| (COUNTER_NAMES[c as usize], counted.runtime.counters[c as usize])).collect(),
        files: Vec::new(),
        functions: Vec::new(),
        loops: Vec::new(),
    };
    let (mut functions, mut loops) = (HashMap::new(), HashMap::new());
    for (k, module) in counted.modules.iter().enumerate() {
        let before = all.sums();
        add_module(k, module, &mut all, &mut functions, &mut loops);
        let file = module.original.display().to_string();
        let [instructions, inserted, accesses, checks, polls] = std::array::from_fn(|i| all.sums()[i] - before[i]);
        all.files.push(File { file, instructions, inserted, accesses, checks, polls });
    }
    [_, _, all.accesses, all.checks, all.polls] = all.sums();
    all.functions = highest(functions, &files, false);
    all.loops = highest(loops, &files, true);
    (all, files)
}

type Places = HashMap<(usize, u64), HotSpot>;

fn add_module(number: usize, module: &ModuleCounts, all: &mut AllCounts, functions: &mut Places, loops: &mut Places) {
    let table = &module.table;
    let bounds = |at: u64| {
        let next = table.functions.partition_point(|&start| start <= at);
        let start = next.checked_sub(1).map_or(0, |i| table.functions[i]);
        (start, table.functions.get(next).copied().unwrap_or(u64::MAX))
    };
    for (block, &times) in table.blocks.iter().zip(&module.counts) {
        if times == 0 {
            continue;
        }
        let (start, stop) = bounds(block.start);
        // Of the loops around the block, the innermost; what ends in another function is no loop.
        let around = table.loops.iter().take_while(|l| l.0 <= block.start).skip_while(|l| l.0 < start);
        let inner = around.filter(|l| block.start < l.1 && l.1 <= stop).min_by_key(|l| l.1 - l.0).copied();
        let place = |from: u64, to: u64| HotSpot {
            name: String::new(),
            file: module.original.display().to_string(),
            address: from,
            end: to,
            source: None,
            entered: 0,
            instructions: 0,
            inserted: 0,
            classes: ByClass::new(),
            module: number,
        };
        let function = functions.entry((number, start)).or_insert_with(|| place(start, start));
        function.end = function.end.max(block.end);
        add_block(function, table.sites(block), block.start, block.insns, times);
        if let Some((head, end)) = inner {
            let at = loops.entry((number, head)).or_insert_with(|| place(head, end));
            add_block(at, table.sites(block), block.start, block.insns, times);
        }
        all.blocks += times;
        all.instructions += times * u64::from(block.insns);
        for site in table.sites(block) {
            all.classes.entry(site.class).or_default().add(times, site.inserted);
            all.inserted += times * u64::from(site.inserted);
        }
    }
}

fn add_block(place: &mut HotSpot, sites: &[CountedSite], start: u64, insns: u32, times: u64) {
    place.instructions += times * u64::from(insns);
    if start == place.address && insns > 0 {
        place.entered += times;
    }
    for site in sites {
        place.classes.entry(site.class).or_default().add(times, site.inserted);
        place.inserted += times * u64::from(site.inserted);
    }
}

/// The places with the most inserted instructions, named.
fn highest(places: Places, files: &ModuleFiles, loops: bool) -> Vec<HotSpot> {
    let mut list: Vec<HotSpot> = places.into_values().filter(|p| p.inserted > 0).collect();
    list.sort_by_key(|p| (std::cmp::Reverse(p.inserted), p.module, p.address));
    list.truncate(LISTED);
    for place in &mut list {
        let symbols = &files[place.module];
        place.name = symbols.name(place.address);
        if let (true, Some(inlined)) = (loops, symbols.inlined_at(place.address, place.end - 1)) {
            place.name += &format!(" (inlined: {inlined})");
        }
        place.source = symbols.line(place.address);
        if let (true, Some(first), Some(last)) = (loops, &place.source, symbols.line(place.end - 1)) {
            // Lines of one file are a range.
            if let (Some((a, from)), Some((b, to))) = (first.rsplit_once(':'), last.rsplit_once(':'))
                && let (true, Ok(from), Ok(to)) = (a == b, from.parse::<u32>(), to.parse::<u32>())
                && from != to
            {
                place.source = Some(format!("{a}:{}-{}", from.min(to), from.max(to)));
            }
        }
    }
    list
}
