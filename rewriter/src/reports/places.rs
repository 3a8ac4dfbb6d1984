//! Places in mapped files -> functions and lines, as the program's author knows them.
//!
//! Input: files as processes map them, and offsets in them. Output: functions, inlined ones included, with file and line.

use crate::read::old_places::OldPlaces;
use crate::read::rewritten;
use crate::reports::overhead::symbols::FileSymbols;
use crate::store::closure::Originals;
use object::{Object, ObjectSection};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What the rewriter appends to a function's name for its other parts, and puts in front of a mangled one.
const PARTS: [&str; 2] = [".full", ".blizzard_cold"];
const COLD: &str = "blizzard_cold.";
/// Prefixes of the functions through which programs call the runtime.
const CLIENTS: [&str; 3] = ["bz_", "blizzard_shm::", "<blizzard_shm::"];

/// A function that is being executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveCall {
    pub function: String,
    /// The name is a function's, not that of a section.
    pub is_function: bool,
    /// `file:line`.
    pub line: Option<String>,
}

impl fmt::Display for ActiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some(line) => write!(f, "{} ({line})", self.function),
            None => f.write_str(&self.function),
        }
    }
}

/// What is executed at a place.
#[derive(Debug, Clone)]
pub struct FoundPlace {
    /// The innermost first; of a function without inlined ones it alone.
    pub calls: Vec<ActiveCall>,
    /// It is code of the program or of a library, at the place where it has been moved to.
    pub is_moved: bool,
    /// The instruction's address in the original, if the function has no name.
    pub in_original: Option<u64>,
}

/// The files that were looked into.
#[derive(Default)]
pub struct OpenedFiles {
    known: HashMap<PathBuf, Option<Known>>,
    originals: Originals,
}

struct Known {
    symbols: FileSymbols,
    /// Parts of the file in memory: offset, address, bytes.
    segments: Vec<(u64, u64, u64)>,
    /// The addresses of code that Blizzard has moved.
    code: Vec<(u64, u64)>,
    /// Read when they are asked for.
    old_places: OnceCell<Option<OldPlaces>>,
    /// The same of the original's symbols, with those of its debug file: they have its addresses.
    original: OnceCell<FileSymbols>,
}

impl Known {
    fn of(path: &Path) -> Option<Known> {
        let bytes = std::fs::read(path).ok()?;
        let elf = object::File::parse(bytes.as_slice()).ok()?;
        let segments = rewritten::parts(&elf);
        // Hot code has several sections.
        let all = rewritten::module_info(&bytes).map_or(0..0, |i| i.code_va..i.code_va.wrapping_add(i.code_bytes));
        let is_cold = |s: &object::Section| s.name() == Ok(".blizzard.cold");
        let moved = elf.sections().filter(|s| all.contains(&s.address()) && !is_cold(s));
        let code = moved.map(|s| (s.address(), s.address() + s.size())).collect();
        let symbols = FileSymbols::of(path);
        Some(Known { symbols, segments, code, old_places: OnceCell::new(), original: OnceCell::new() })
    }

    fn address(&self, offset: u64) -> Option<u64> {
        let inside = |&&(from, _, bytes): &&(u64, u64, u64)| offset.wrapping_sub(from) < bytes;
        self.segments.iter().find(inside).map(|&(from, va, _)| va + (offset - from))
    }

    fn in_original(&self, path: &Path, at: u64) -> Option<u64> {
        self.old_places.get_or_init(|| OldPlaces::of(std::fs::read(path).ok()?)).as_ref()?.find(at)
    }
}

/// The name of the function at `at` by its symbol; and whether it is a function's, not that of a section.
pub fn function_at(symbols: &FileSymbols, at: u64) -> (String, bool) {
    let name = symbols.name(at);
    let name = name.split_once("+0x").map_or(name.as_str(), |(function, _)| function);
    let own = PARTS.iter().fold(name, |name, part| name.strip_suffix(part).unwrap_or(name));
    let function = own
        .strip_prefix(COLD)
        .map_or_else(|| own.to_owned(), |mangled| crate::reports::decisions::demangled(mangled).into_owned());
    (function, !name.starts_with('.') && !name.starts_with("0x"))
}

/// Whether a function is one of those through which programs call the runtime.
pub fn is_client(function: &str) -> bool {
    CLIENTS.iter().any(|prefix| function.starts_with(prefix))
}

impl OpenedFiles {
    /// Functions without a symbol in a rewritten file are named by the file that it was made from.
    pub fn with(originals: &Originals) -> OpenedFiles {
        OpenedFiles { known: HashMap::new(), originals: originals.clone() }
    }

    fn known(&mut self, path: &Path) -> Option<&Known> {
        self.known.entry(path.to_owned()).or_insert_with(|| Known::of(path)).as_ref()
    }

    /// What is executed at `offset` of the file. `is_behind_call`: what is meant is the call in front of it, which may be another line's.
    pub fn calls(&mut self, path: &Path, offset: u64, is_behind_call: bool) -> Option<FoundPlace> {
        let original = self.originals.get(path).cloned();
        let known = self.known(path)?;
        let at = known.address(offset)? - u64::from(is_behind_call);
        let is_moved = known.code.iter().any(|(from, to)| (*from..*to).contains(&at));
        let (mut function, mut is_function) = function_at(&known.symbols, at);
        let mut in_original = if is_moved && !is_function { known.in_original(path, at) } else { None };
        if let (Some(old), Some(original)) = (in_original, original) {
            let symbols = known.original.get_or_init(|| FileSymbols::of(&original));
            if let (found, true) = function_at(symbols, old) {
                (function, is_function, in_original) = (found, true, None);
            }
        }
        let mut calls = known.symbols.inlined(at);
        // The symbol tells versions of a function apart, and names it where there is no debug information.
        let line = calls.pop().and_then(|(_, line)| line);
        let mut calls: Vec<ActiveCall> =
            calls.into_iter().map(|(function, line)| ActiveCall { function, is_function: true, line }).collect();
        calls.push(ActiveCall { function, is_function, line });
        Some(FoundPlace { calls, is_moved, in_original })
    }

    /// The function of the program, with its line, that has called at `offset` of the file: the innermost of those that are inlined there, behind what is inlined of
    /// the client library. None if all is the client library's.
    pub fn caller(&mut self, path: &Path, offset: u64) -> Option<String> {
        let found = self.calls(path, offset, true).filter(|found| found.is_moved)?;
        let behind_client = found.calls.iter().rposition(|call| is_client(&call.function)).map_or(0, |k| k + 1);
        found.calls.get(behind_client).filter(|call| call.is_function).map(ActiveCall::to_string)
    }

    /// The data that lie at `offset` of the file: their name, their bytes, and the distance from their beginning.
    pub fn data(&mut self, path: &Path, offset: u64) -> Option<(String, u64, u64)> {
        let known = self.known(path)?;
        known.symbols.data(known.address(offset)?)
    }
}
