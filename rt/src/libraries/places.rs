//! The name of a place in the program's code, for error lines.
//!
//! Purpose: who reads an error wants a function's name. Input: an address. Output: `function+0x12 (file)`, by the symbols of the file that is mapped there; the
//! file and the address in it where it has none; else the address. The rewriter gives functions symbols at their new addresses.
//! **Invariants**: allocates nothing and believes nothing: whatever of the file does not make sense counts as missing. Called when the run ends anyway.
//! Source: proc(5), `/proc/PID/maps`; System V ABI, chapter 4 (sections, symbols).

use crate::kernel::sys;
use core::ffi::CStr;
use core::fmt;

/// Displays the place at this address.
pub struct CodePlace(pub u64);

/// Displays the function at this address and the distance from its start, without the file's name. If it has no name: the address in the original, where that
/// is known, else a [`CodePlace`].
pub struct FunctionPlace {
    pub at: u64,
    /// The original's path, and where the same code would be if it were in the place of this file.
    pub original: Option<(&'static CStr, u64)>,
}

impl fmt::Display for FunctionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = [0u8; LINE_BYTES];
        let mapped = mapping(self.at, &mut line).and_then(|(offset, path)| Some((offset, File::open(path)?)));
        let va = mapped.as_ref().and_then(|(offset, file)| file.address(*offset));
        let named = mapped.as_ref().zip(va).and_then(|((_, file), va)| file.symbol(va));
        let original = self.original.and_then(|(path, at)| Some((path.to_str().ok()?, at)));
        match (named, va.zip(original)) {
            (Some((symbol, distance)), _) => write!(f, "{symbol}+{distance:#x}"),
            (None, Some((va, (path, old)))) => {
                write!(f, "code at {:#x} of {path}", va.wrapping_add(old).wrapping_sub(self.at))
            }
            (None, None) => CodePlace(self.at).fmt(f),
        }
    }
}

/// Whether the function at this address is one of a language's standard library that has been linked into the program, by its name.
pub fn is_of_standard_library(at: u64) -> bool {
    let mut line = [0u8; LINE_BYTES];
    let mapped = mapping(at, &mut line).and_then(|(offset, path)| Some((offset, File::open(path)?)));
    let named = mapped.as_ref().and_then(|(offset, file)| file.symbol(file.address(*offset)?));
    named.is_some_and(|(symbol, _)| is_standard(symbol))
}

/// Rust's crates of the standard library.
const CRATES: [&str; 3] = ["std", "core", "alloc"];

/// Whether a mangled name is of namespace `std`, or of one of the crates. Sources: Itanium C++ ABI 5.1, Rust RFC 2603; what Rust mangles in the older way ends with a hash.
fn is_standard(symbol: &str) -> bool {
    if let Some(path) = symbol.strip_prefix("_R") {
        return root_of(path).is_some_and(|name| CRATES.contains(&name));
    }
    let Some(name) = symbol.strip_prefix("_ZN") else { return symbol.starts_with("_ZSt") };
    let is_hash = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let rust = name.strip_suffix('E').and_then(|text| text.rsplit_once("17h")).filter(|(_, hash)| is_hash(hash));
    let Some((path, _)) = rust else {
        let name = name.trim_start_matches(['K', 'V', 'r', 'R', 'O']);
        return name.starts_with("St") || name.starts_with("9__gnu_cxx");
    };
    let first = path.trim_start_matches(|c: char| c.is_ascii_digit());
    // Of an implementation the first type counts.
    let first = first.trim_start_matches("_$LT$").trim_start_matches("$RF$").trim_start_matches("mut$u20$");
    CRATES.iter().any(|name| {
        first.strip_prefix(name).is_some_and(|rest| rest.starts_with(|c: char| c == '.' || c.is_ascii_digit()))
    })
}

/// The crate that a path begins with, as RFC 2603 writes it.
fn root_of(path: &str) -> Option<&str> {
    let mut rest = path;
    loop {
        let tag = rest.chars().next()?;
        rest = &rest[tag.len_utf8()..];
        // `s…_` tells things of the same name apart.
        let plain = |text: &'_ str| match text.strip_prefix('s').and_then(|text| text.split_once('_')) {
            Some((_, rest)) => text.len() - rest.len(),
            None => 0,
        };
        match tag {
            'C' => {
                let name = &rest[plain(rest)..];
                let digits = name.bytes().take_while(u8::is_ascii_digit).count();
                let bytes: usize = name[..digits].parse().ok()?;
                return name[digits..].trim_start_matches('_').get(..bytes);
            }
            'N' => rest = rest.get(1..)?,
            'M' | 'X' => rest = &rest[plain(rest)..],
            'I' | 'Y' => {}
            _ => return None,
        }
    }
}

/// Longest line of `/proc/self/maps` that is understood.
const LINE_BYTES: usize = 4096;

impl fmt::Display for CodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.0;
        let mut line = [0u8; LINE_BYTES];
        let Some((offset, path)) = mapping(at, &mut line) else { return write!(f, "code at {at:#x}") };
        let name = path.to_str().unwrap_or("a file whose name is no text");
        let Some(file) = File::open(path) else { return write!(f, "code at {at:#x} ({name})") };
        let Some(va) = file.address(offset) else { return write!(f, "code at {at:#x} ({name})") };
        match file.symbol(va) {
            Some((symbol, distance)) => write!(f, "{symbol}+{distance:#x} ({name})"),
            None => write!(f, "code at {va:#x} of {name}"),
        }
    }
}

/// What is mapped at `at`: the offset in the file, and the file's path, in `line`.
fn mapping(at: u64, line: &mut [u8; LINE_BYTES]) -> Option<(u64, &CStr)> {
    let maps = sys::open(c"/proc/self/maps", libc::O_RDONLY | libc::O_CLOEXEC).ok()?;
    let (mut known, mut found) = (0, None);
    while found.is_none() {
        let got = sys::read(maps, &mut line[known..]).unwrap_or(0);
        let end = known + got;
        let mut from = 0;
        while let Some(newline) = line[from..end].iter().position(|b| *b == b'\n') {
            if let Some((offset, path)) = parse(&line[from..from + newline], at) {
                found = Some((offset, from + path, from + newline));
                break;
            }
            from += newline + 1;
        }
        if found.is_none() {
            line.copy_within(from..end, 0);
            known = end - from;
            if got == 0 || known == line.len() {
                break;
            }
        }
    }
    let _ = sys::close(maps);
    let (offset, from, newline) = found?;
    line[newline] = 0;
    Some((offset, CStr::from_bytes_with_nul(&line[from..=newline]).ok()?))
}

/// `start-end rights offset device inode path`: the offset in the file of `at`, and where the path begins, if it lies there.
fn parse(line: &[u8], at: u64) -> Option<(u64, usize)> {
    let line = core::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    let offset = number(words.nth(1)?)?;
    let path = line.find('/')?;
    (start..end).contains(&at).then(|| (offset + (at - start), path))
}

/// A file's bytes.
struct File(&'static [u8]);

impl File {
    /// Maps it, for ever.
    fn open(path: &CStr) -> Option<File> {
        let fd = sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC).ok()?;
        let bytes = sys::fstat(fd).ok().map_or(0, |s| s.st_size.max(0) as u64);
        // SAFETY: new memory that nobody else knows.
        let at = unsafe { sys::mmap(0, bytes, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) };
        let _ = sys::close(fd);
        // SAFETY: mapped, readable, and never unmapped. A file that is cut short meanwhile ends a run that ends anyway.
        at.ok().map(|at| File(unsafe { core::slice::from_raw_parts(at as *const u8, bytes as usize) }))
    }

    fn number(&self, at: u64, bytes: usize) -> Option<u64> {
        let from = usize::try_from(at).ok()?;
        let field = self.0.get(from..from.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    /// The link-time address of what stands at `offset`.
    fn address(&self, offset: u64) -> Option<u64> {
        const PT_LOAD: u64 = 1;
        let (table, size, count) = (self.number(32, 8)?, self.number(54, 2)?, self.number(56, 2)?);
        (0..count).find_map(|k| {
            let header = table.checked_add(k * size)?;
            let from = self.number(header.checked_add(8)?, 8)?;
            let va = self.number(header.checked_add(16)?, 8)?;
            let bytes = self.number(header.checked_add(32)?, 8)?;
            let inside = offset.checked_sub(from).filter(|d| *d < bytes)?;
            (self.number(header, 4)? == PT_LOAD).then(|| va.wrapping_add(inside))
        })
    }

    /// The function at `va` by the full table of symbols, or by that of the dynamic ones, and how far into it that is.
    fn symbol(&self, va: u64) -> Option<(&str, u64)> {
        const SHT_SYMTAB: u64 = 2;
        const SHT_DYNSYM: u64 = 11;
        let (table, size, count) = (self.number(40, 8)?, self.number(58, 2)?, self.number(60, 2)?);
        let field = |k: u64, at: u64, bytes| self.number(table.checked_add(k * size)?.checked_add(at)?, bytes);
        [SHT_SYMTAB, SHT_DYNSYM].into_iter().find_map(|kind| {
            let k = (0..count).find(|&k| field(k, 4, 4) == Some(kind))?;
            let (symbols, bytes, names) = (field(k, 24, 8)?, field(k, 32, 8)?, field(k, 40, 4)?);
            let names = field(names, 24, 8)?;
            self.function(va, symbols, bytes / SYMBOL_BYTES, names)
        })
    }

    /// The function at `va` among the `count` symbols at `symbols`.
    fn function(&self, va: u64, symbols: u64, count: u64, names: u64) -> Option<(&str, u64)> {
        const STT_FUNC: u64 = 2;
        (0..count).find_map(|k| {
            let symbol = symbols.checked_add(k.checked_mul(SYMBOL_BYTES)?)?;
            let from = self.number(symbol.checked_add(8)?, 8)?;
            let bytes = self.number(symbol.checked_add(16)?, 8)?;
            let inside = va.checked_sub(from).filter(|d| *d < bytes)?;
            let kind = self.number(symbol.checked_add(4)?, 1)? & 15;
            let name = usize::try_from(names.checked_add(self.number(symbol, 4)?)?).ok()?;
            let name = CStr::from_bytes_until_nul(self.0.get(name..)?).ok()?.to_str().ok()?;
            (kind == STT_FUNC).then_some((name, inside))
        })
    }
}

/// Bytes of an `Elf64_Sym`.
const SYMBOL_BYTES: u64 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn named_function() -> u64 {
        named_function as *const () as u64
    }

    #[test]
    fn code_has_its_functions_name() {
        let text = CodePlace(named_function() + 1).to_string();
        assert!(text.contains("named_function") && text.contains("+0x1 (/"), "{text}");
    }

    #[test]
    fn code_without_a_name_is_the_originals() {
        let word = Box::new(0u64);
        let nameless = FunctionPlace { at: &raw const *word as u64, original: Some((c"/prog", 0x10)) };
        assert!(nameless.to_string().starts_with("code at 0x"), "{nameless}");
        let at = named_function() + 1;
        let named = FunctionPlace { at, original: Some((c"/prog", 0x10)) }.to_string();
        assert!(named.contains("named_function") && !named.contains("/prog"), "{named}");
    }

    #[test]
    fn functions_of_standard_libraries_are_told_by_their_names() {
        for name in [
            "_ZN3std6thread7Builder16spawn_unchecked_17h0123456789abcdefE",
            "_ZN4core3ops8function6FnOnce40call_once$u7b$$u7b$vtable.shim$u7d$$u7d$17h0123456789abcdefE",
            "_ZN91_$LT$std..panicking..begin_panic..Payload$LT$A$GT$$u20$as$u20$core..panic..PanicPayload$GT$3get17h0123456789abcdefE",
            "_RNvNtNtCs5QkbKbbbnvp_3std3sys6thread3new",
            "_RINvNtCs5QkbKbbbnvp_3std6thread5spawnNCNvCsg1hrNyQ6o5i_4prog4work0uEB2_",
            "_RNvXs_NtCs5QkbKbbbnvp_5alloc5boxedINtB4_3BoxuENtB6_3Any3foo",
            "_ZNSt6threadC2IRFvvEJEvEEOT_DpOT0_",
            "_ZNKSt6thread8joinableEv",
            "_ZSt13__invoke_implIvPFvvEJEET_St14__invoke_otherOT0_DpOT1_",
        ] {
            assert!(is_standard(name), "{name}");
        }
        for name in [
            "main",
            "_ZN4prog4work17h0123456789abcdefE",
            "_ZN4prog3std4work17h0123456789abcdefE",
            "_ZN5corea4work17h0123456789abcdefE",
            "_ZN57_$LT$prog..Work$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE",
            // Namespaces of C++.
            "_ZN4core4workEv",
            "_ZN5alloc4work1hEv",
            "_Z4workSt6vectorIiSaIiEE",
            "_RNvCsg1hrNyQ6o5i_4prog4work",
            "_RNvXCsg1hrNyQ6o5i_4progNtB2_4WorkNtNtCs5QkbKbbbnvp_4core3ops4Drop4drop",
            "_R",
            "_RNvCs5",
        ] {
            assert!(!is_standard(name), "{name}");
        }
    }

    #[test]
    fn what_no_file_is_mapped_at_has_an_address() {
        let word = Box::new(0u64);
        let at = &raw const *word as u64;
        assert_eq!(CodePlace(at).to_string(), format!("code at {at:#x}"));
        assert_eq!(CodePlace(0x10).to_string(), "code at 0x10");
    }

    #[test]
    fn a_line_of_maps_is_read() {
        let line = b"55d0c0000000-55d0c0004000 r-xp 00002000 fe:00 1234                       /a folder/with spaces";
        assert_eq!(parse(line, 0x55d0_c000_0010), Some((0x2010, line.iter().position(|b| *b == b'/').unwrap())));
        assert_eq!(parse(line, 0x55d0_c000_4000), None);
        assert_eq!(parse(b"7fff0000-7fff1000 rw-p 00000000 00:00 0 [stack]", 0x7fff_0000), None);
        assert_eq!(parse(b"nonsense", 0), None);
    }
}
