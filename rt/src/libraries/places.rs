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
pub struct Place(pub u64);

/// Displays the function at this address and the distance from its start, without the file's name; a [`Place`] if it has no name.
pub struct Function(pub u64);

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = [0u8; LINE_BYTES];
        let mapped = mapping(self.0, &mut line).and_then(|(offset, path)| Some((offset, File::open(path)?)));
        let named = mapped.as_ref().and_then(|(offset, file)| file.symbol(file.address(*offset)?));
        match named {
            Some((symbol, distance)) => write!(f, "{symbol}+{distance:#x}"),
            None => Place(self.0).fmt(f),
        }
    }
}

/// Longest line of `/proc/self/maps` that is understood.
const LINE_BYTES: usize = 4096;

impl fmt::Display for Place {
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
        let text = Place(named_function() + 1).to_string();
        assert!(text.contains("named_function") && text.contains("+0x1 (/"), "{text}");
    }

    #[test]
    fn what_no_file_is_mapped_at_has_an_address() {
        let word = Box::new(0u64);
        let at = &raw const *word as u64;
        assert_eq!(Place(at).to_string(), format!("code at {at:#x}"));
        assert_eq!(Place(0x10).to_string(), "code at 0x10");
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
