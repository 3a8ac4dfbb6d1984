//! Addresses of a file -> names and source lines, for people.
//!
//! Input: a file. Output: the function and the line of an address.
//!
//! Names come from the file's symbol tables, lines from its DWARF, also where that is in a file of its own that the usual links lead to.

use crate::read::rewritten;
use crate::reports::debug_file::{self, Elf};
use crate::reports::decisions::demangled;
use addr2line::Loader;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use std::path::Path;

/// A named stretch of code.
#[derive(Debug)]
struct Function {
    start: u64,
    /// Unknown where it equals the start.
    end: u64,
    name: String,
}

/// A place as people name it, without folders.
fn named(location: &addr2line::Location<'_>) -> Option<String> {
    let file = Path::new(location.file?).file_name()?.to_str()?;
    Some(format!("{file}:{}", location.line?))
}

/// A C++ function's name without the types of templates and parameters.
pub(crate) fn short(name: &str) -> String {
    let (mut text, mut depth) = (String::new(), 0);
    for c in name.chars() {
        match c {
            '<' | '(' => depth += 1,
            // An arrow, or an operator's name.
            '>' | ')' if depth == 0 => return name.to_owned(),
            '>' | ')' => depth -= 1,
            c if depth == 0 => text.push(c),
            _ => {}
        }
    }
    // Rust's `<T as Trait>::method`, and operators.
    if depth > 0 || text.starts_with("::") || text.ends_with("operator") { name.to_owned() } else { text }
}

/// What is known of one file.
#[derive(Default)]
pub struct FileSymbols {
    functions: Vec<Function>,
    /// Sections that hold code: start, end, name.
    sections: Vec<(u64, u64, String)>,
    lines: Option<Loader>,
    bytes: Vec<u8>,
}

impl FileSymbols {
    /// Reads `path`; what cannot be read is not known.
    pub fn of(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let debug = Elf::parse(bytes.as_slice()).ok().and_then(|elf| debug_file::of(&elf, path));
        let lines = match &debug {
            Some((file, bytes)) => Loader::new_with_sup(file, debug_file::shared_part(file, bytes)).ok(),
            None => Loader::new(path).ok(),
        };
        let mut symbols = FileSymbols { lines, bytes, ..FileSymbols::default() };
        let debug = debug.as_ref().and_then(|(_, bytes)| object::File::parse(bytes.as_slice()).ok());
        let Ok(elf) = object::File::parse(symbols.bytes.as_slice()) else { return symbols };
        for section in elf.sections().filter(|s| s.kind() == SectionKind::Text) {
            let name = section.name().unwrap_or("code").to_owned();
            symbols.sections.push((section.address(), section.address() + section.size(), name));
        }
        for symbol in elf.symbols().chain(elf.dynamic_symbols()).chain(debug.iter().flat_map(|file| file.symbols())) {
            let Ok(name) = symbol.name() else { continue };
            if symbol.kind() == SymbolKind::Text && symbol.is_definition() && !name.is_empty() {
                let start = symbol.address();
                symbols.functions.push(Function { start, end: start + symbol.size(), name: name.to_owned() });
            }
        }
        // Of several names of one function, the shortest is the plainest.
        symbols.functions.sort_by(|a, b| (a.start, a.name.len(), &a.name).cmp(&(b.start, b.name.len(), &b.name)));
        symbols.functions.dedup_by_key(|f| f.start);
        symbols
    }

    /// The function at `at`, with the distance from its start if that is not 0; or the section.
    pub fn name(&self, at: u64) -> String {
        let below = self.functions.partition_point(|f| f.start <= at);
        if let Some(f) = below.checked_sub(1).map(|i| &self.functions[i])
            && (at < f.end || f.end == f.start)
        {
            let name = demangled(&f.name);
            return if at == f.start { name.into_owned() } else { format!("{name}+{:#x}", at - f.start) };
        }
        match self.sections.iter().find(|s| (s.0..s.1).contains(&at)) {
            Some((start, _, name)) => format!("{name}+{:#x}", at - start),
            None => format!("{at:#x}"),
        }
    }

    /// `file:line` of the instruction at `at`.
    pub fn line(&self, at: u64) -> Option<String> {
        named(&self.lines.as_ref()?.find_location(at).ok()??)
    }

    /// The function at `at` with those that are inlined there, the innermost first, each with `file:line`. What debug information says.
    pub fn inlined(&self, at: u64) -> Vec<(String, Option<String>)> {
        self.frames(at, named)
    }

    /// The same, with the path of each file and the line in it.
    pub fn inlined_paths(&self, at: u64) -> Vec<(String, Option<(String, u32)>)> {
        self.frames(at, |location| Some((location.file?.to_owned(), location.line?)))
    }

    fn frames<T>(&self, at: u64, of: impl Fn(&addr2line::Location<'_>) -> Option<T>) -> Vec<(String, Option<T>)> {
        let mut all = Vec::new();
        let Some(mut frames) = self.lines.as_ref().and_then(|lines| lines.find_frames(at).ok()) else { return all };
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.and_then(|name| name.demangle().ok().map(|name| name.into_owned()));
            all.push((function.unwrap_or_else(|| "?".to_owned()), frame.location.as_ref().and_then(&of)));
        }
        all
    }

    /// Where functions and lines begin and end in `[from, to)`, in order.
    pub fn borders(&self, from: u64, to: u64) -> Vec<u64> {
        let functions = self.functions.iter().flat_map(|function| [function.start, function.end]);
        let rows = self.lines.as_ref().and_then(|lines| lines.find_location_range(from, to).ok());
        let lines = rows.into_iter().flatten().flat_map(|(start, bytes, _)| [start, start + bytes]);
        let mut all: Vec<u64> = functions.chain(lines).filter(|at| (from..to).contains(at)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The innermost function that is inlined at both places, and thus around what lies between.
    pub fn inlined_at(&self, from: u64, to: u64) -> Option<String> {
        let [from, to] = [from, to].map(|at| self.inlined(at).into_iter().rev().skip(1).map(|(name, _)| name));
        from.zip(to).take_while(|(a, b)| a == b).last().map(|(name, _)| short(&name))
    }

    /// The data at `at`: name, bytes, and the distance from their beginning.
    pub fn data(&self, at: u64) -> Option<(String, u64, u64)> {
        let elf = object::File::parse(self.bytes.as_slice()).ok()?;
        elf.symbols().chain(elf.dynamic_symbols()).find_map(|symbol| {
            let distance = at.wrapping_sub(symbol.address());
            let is_it = symbol.kind() == SymbolKind::Data && symbol.is_definition() && distance < symbol.size();
            let name = symbol.name().ok().filter(|_| is_it)?;
            Some((demangled(name).into_owned(), symbol.size(), distance))
        })
    }

    /// The bytes of the file that are loaded at `[start, end)`.
    pub fn code(&self, start: u64, end: u64) -> Option<&[u8]> {
        rewritten::loaded(&self.bytes, start, end.checked_sub(start)?)
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn short_names_lose_types_only() {
        for (long, expected) in [
            ("relax", "relax"),
            ("std::map<int, std::less<int> >::find(int const&)", "std::map::find"),
            ("work(int)::{lambda(int)#1}", "work::{lambda#1}"),
            ("<T as Trait>::method", "<T as Trait>::method"),
            ("a::operator<(b)", "a::operator<(b)"),
            ("a::operator->()", "a::operator->()"),
            ("operator<<(int)", "operator<<(int)"),
        ] {
            assert_eq!(short(long), expected);
        }
    }
}
