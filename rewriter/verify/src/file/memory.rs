//! What the kernel maps of a file: its program headers, and the bytes that they lead to.
//!
//! Input: a table of program headers as it stands in the file. Output: [`Phdr`]s, and bytes by address. **Invariant**: nothing here asks section
//! headers, which neither the kernel nor the dynamic loader reads. Source: gABI chapter 5 ("Program Header"), Linux `load_elf_binary`.

/// Bytes of an `Elf64_Phdr`.
pub const PHDR_BYTES: usize = 56;
/// Bytes of an `Elf64_Ehdr`.
pub const HEADER_BYTES: usize = 64;

pub const PT_NULL: u32 = 0;
pub const PT_LOAD: u32 = 1;
pub const PT_DYNAMIC: u32 = 2;
pub const PT_INTERP: u32 = 3;
pub const PT_NOTE: u32 = 4;
pub const PT_PHDR: u32 = 6;
pub const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub const PT_GNU_RELRO: u32 = 0x6474_e552;
pub const PT_GNU_PROPERTY: u32 = 0x6474_e553;
pub const PF_X: u32 = 1;
pub const PF_W: u32 = 2;
pub const PF_R: u32 = 4;

/// A program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phdr {
    pub kind: u32,
    pub flags: u32,
    pub off: u64,
    pub va: u64,
    pub pa: u64,
    pub file: u64,
    pub mem: u64,
    pub align: u64,
}

impl Phdr {
    /// Behind its last byte in memory.
    pub fn end(&self) -> u64 {
        self.va.saturating_add(self.mem)
    }

    /// Where a byte of its file part stands in the file.
    pub fn offset_of(&self, va: u64) -> Option<u64> {
        let inside = va.wrapping_sub(self.va);
        (inside < self.file).then(|| self.off.checked_add(inside)).flatten()
    }
}

/// A number, little endian.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))
}

/// The entries of a table.
pub fn phdrs(table: &[u8]) -> Vec<Phdr> {
    let row = |c: &[u8]| {
        let word = |at: usize| number(&c[at..at + 8]);
        Phdr {
            kind: number(&c[..4]) as u32,
            flags: number(&c[4..8]) as u32,
            off: word(8),
            va: word(16),
            pa: word(24),
            file: word(32),
            mem: word(40),
            align: word(48),
        }
    };
    table.chunks_exact(PHDR_BYTES).map(row).collect()
}

/// The table that an ELF header leads to; `None` where it is not in the file.
pub fn kernel_table(file: &[u8]) -> Option<Vec<Phdr>> {
    let header = file.get(..HEADER_BYTES)?;
    let (at, count) = (usize::try_from(number(&header[32..40])).ok()?, number(&header[56..58]) as usize);
    Some(phdrs(file.get(at..at.checked_add(count * PHDR_BYTES)?)?))
}

/// How much higher than the dynamic loader's the addresses of the kernel's table are. They are of a program whose new segments stand in front of it:
/// for the loader, and everywhere else in the file, these have addresses below zero, modulo 2^64, where the kernel takes none. `code_va`: the new code's address for
/// the loader. New code is the first code in the kernel's table then.
pub fn shift(kernel: &[Phdr], code_va: u64) -> u64 {
    let code = kernel.iter().find(|p| p.kind == PT_LOAD && p.flags & PF_X != 0);
    code.filter(|_| (code_va as i64) < 0).map_or(0, |code| code.va.wrapping_sub(code_va))
}

/// The kernel's table with the loader's addresses: those of new segments, which are the highest numbers, last.
pub fn unshifted(kernel: &[Phdr], shift: u64) -> Vec<Phdr> {
    let lower = |p: &Phdr| match p.mem {
        0 => *p,
        _ => Phdr { va: p.va.wrapping_sub(shift), pa: p.pa.wrapping_sub(shift), ..*p },
    };
    let mut table: Vec<Phdr> = kernel.iter().map(lower).collect();
    let is_load = |p: &Phdr| p.kind == PT_LOAD;
    if let (Some(first), Some(last)) = (table.iter().position(is_load), table.iter().rposition(is_load)) {
        let new = table[first..=last].iter().take_while(|p| is_load(p) && (p.va as i64) < 0).count();
        table[first..=last].rotate_left(new);
    }
    table
}

/// `n` bytes of the file that are mapped at `va`, all by one PT_LOAD.
pub fn bytes_at<'a>(file: &'a [u8], loads: &[Phdr], va: u64, n: usize) -> Option<&'a [u8]> {
    let load = loads.iter().find(|p| p.kind == PT_LOAD && va.wrapping_sub(p.va) < p.file)?;
    let inside = va - load.va;
    (n as u64 <= load.file - inside).then_some(())?;
    let at = usize::try_from(load.off.checked_add(inside)?).ok()?;
    file.get(at..at.checked_add(n)?)
}

/// The load segments from an address on.
pub fn loads_from(table: &[Phdr], va: u64) -> Vec<Phdr> {
    table.iter().filter(|p| p.kind == PT_LOAD && p.mem > 0 && p.va >= va).copied().collect()
}
