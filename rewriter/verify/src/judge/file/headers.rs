//! ELF header and program headers, as the kernel and the dynamic loader use them.
//!
//! Input: module, the original file if it is known. Output: findings. What the audit reads it finds through PT_LOAD ([`crate::file::memory`]); here it proves that
//! kernel and loader map the same: each load segment is well formed, alone on its pages and in order; each other header leads to the same bytes by address
//! and by place in the file; the kernel's table and the loader's say the same but for PT_INTERP and PT_PHDR; each segment that the input does not have
//! is the new code, the new tables, the counters of blocks or the runtime. Compared with the input, nothing else differs. Where new segments stand in front of
//! a program, all addresses of the kernel's table are higher by one number, and nothing else fits between them and it.
//!
//! Source: gABI chapters 4 and 5, Linux `load_elf_binary`, glibc `_dl_map_object_from_fd`.

use crate::audit::Audit;
use crate::file::memory::{self, *};
use crate::file::module::Module;
use std::ops::Range;

const PAGE: u64 = 4096;
/// Most bytes of new segments in front of a program.
const FRONT: u64 = 1 << 30;
const PT_TLS: u32 = 7;
const PT_GNU_STACK: u32 = 0x6474_e551;
const PT_BLIZZARD: u32 = blizzard_contract::PT_BLIZZARD;
/// Of the ELF header: what a rewrite may change (entry, both tables, section headers) lies between and behind these.
const KEPT: [Range<usize>; 2] = [0..24, 48..56];

/// Judges them.
pub(crate) fn judge(m: &Module, original: Option<&[u8]>, audit: &mut Audit) {
    let mut j = Judge { m, audit };
    j.elf_header();
    j.loads(&m.raw_kernel);
    j.in_front();
    j.others(&m.kernel);
    j.others(&m.loader);
    j.written(&m.kernel);
    j.written(&m.loader);
    j.tables();
    j.new_segments();
    if let Some(original) = original {
        j.compare(original);
    }
}

struct Judge<'x, 'a> {
    m: &'x Module<'a>,
    audit: &'x mut Audit,
}

fn name(kind: u32) -> String {
    match kind {
        PT_LOAD => "PT_LOAD".into(),
        PT_DYNAMIC => "PT_DYNAMIC".into(),
        PT_INTERP => "PT_INTERP".into(),
        PT_NOTE => "PT_NOTE".into(),
        PT_PHDR => "PT_PHDR".into(),
        PT_TLS => "PT_TLS".into(),
        PT_GNU_EH_FRAME => "PT_GNU_EH_FRAME".into(),
        PT_GNU_STACK => "PT_GNU_STACK".into(),
        PT_GNU_RELRO => "PT_GNU_RELRO".into(),
        PT_GNU_PROPERTY => "PT_GNU_PROPERTY".into(),
        PT_BLIZZARD => "PT_BLIZZARD".into(),
        kind => format!("the header of type {kind:#x}"),
    }
}

/// Load segments that have a part in memory.
fn loads(table: &[Phdr]) -> impl Iterator<Item = &Phdr> {
    table.iter().filter(|p| p.kind == PT_LOAD && p.mem > 0)
}

/// What does not depend on where the tables stand, and who reads them.
fn common(table: &[Phdr]) -> impl Iterator<Item = &Phdr> {
    table.iter().filter(|p| !matches!(p.kind, PT_PHDR | PT_INTERP | PT_NULL))
}

impl Judge<'_, '_> {
    fn open(&mut self, at: u64, why: impl Into<String>) {
        self.audit.finding(at, "program headers".into(), why);
    }

    fn elf_header(&mut self) {
        let h = &self.m.file[..HEADER_BYTES];
        let half = |at: usize| number(&h[at..at + 2]);
        let ident = h[..7] == [0x7f, b'E', b'L', b'F', 2, 1, 1] && matches!(h[7], 0 | 3) && h[8..16] == [0; 8];
        let rest = matches!(half(16), 2 | 3) && half(18) == 62 && h[20..24] == [1, 0, 0, 0] && h[48..52] == [0; 4];
        if !(ident && rest && half(52) == HEADER_BYTES as u64 && half(54) == PHDR_BYTES as u64) {
            self.audit.finding(0, "ELF header".into(), "it is not that of an x86-64 Linux program or library");
        }
    }

    /// The load segments of a table.
    fn loads(&mut self, table: &[Phdr]) {
        for p in loads(table) {
            let at = p.va;
            if p.file > p.mem {
                self.open(at, "a segment has more bytes in the file than in memory");
            }
            if p.off.checked_add(p.file).is_none_or(|end| end > self.m.file.len() as u64) {
                self.open(at, "a segment reaches behind the end of the file");
            }
            if p.va.checked_add(p.mem).is_none_or(|end| end >= 1 << 47) {
                self.open(at, "a segment reaches behind the end of the address space");
            }
            let aligned = p.align <= 1 || p.align.is_power_of_two() && (p.va ^ p.off) & (p.align - 1) == 0;
            if !aligned || p.file > 0 && (p.va ^ p.off) % PAGE != 0 {
                self.open(at, "a segment's place in the file does not suit its address");
            }
            if p.flags & PF_W != 0 && p.flags & PF_X != 0 {
                self.open(at, "writable and executable");
            }
            if p.flags & !(PF_R | PF_W | PF_X) != 0 || p.flags & PF_R == 0 {
                self.open(at, "a segment has flags that nothing here knows, or cannot be read");
            }
        }
        let all: Vec<&Phdr> = loads(table).collect();
        for pair in all.windows(2) {
            if pair[0].va >= pair[1].va {
                self.open(pair[1].va, "load segments do not ascend");
            } else if pair[0].end().next_multiple_of(PAGE) > pair[1].va / PAGE * PAGE {
                self.open(pair[1].va, "two segments share a page");
            }
        }
    }

    /// New segments in front of the program: all of it moves at once, and whoever takes all from its first to its last address for the program is right.
    fn in_front(&mut self) {
        let m = self.m;
        if m.shift == 0 {
            return;
        }
        let new = new_parts(m);
        let (low, high) = (new.first().map_or(0, |p| p.va), new.last().map_or(0, |p| p.end()));
        if m.fixed || m.info.rt_base_va == 0 || m.info.interp_va == 0 {
            self.open(
                low,
                "new segments stand in front of what is no position-independent program with a dynamic loader",
            );
        }
        if low.wrapping_neg() > FRONT {
            self.open(low, "new segments in front of the program take more than 1 GiB");
        }
        let holes = new.windows(2).any(|pair| pair[0].end().next_multiple_of(PAGE) != pair[1].va / PAGE * PAGE);
        let first = loads(&m.kernel).map(|p| p.va).min().unwrap_or(u64::MAX);
        if holes || first >= PAGE || high.checked_next_multiple_of(PAGE) != Some(PAGE.wrapping_neg()) {
            self.open(high, "there is room for something else between new segments and the program behind them");
        }
    }

    /// The headers of a table that map nothing.
    fn others(&mut self, table: &[Phdr]) {
        let singles = [
            PT_PHDR,
            PT_INTERP,
            PT_DYNAMIC,
            PT_TLS,
            PT_GNU_EH_FRAME,
            PT_GNU_STACK,
            PT_GNU_RELRO,
            PT_GNU_PROPERTY,
            PT_BLIZZARD,
        ];
        for kind in singles {
            if table.iter().filter(|p| p.kind == kind).count() > 1 {
                self.open(0, format!("{} is there twice", name(kind)));
            }
        }
        for p in table.iter().filter(|p| !matches!(p.kind, PT_LOAD | PT_NULL | PT_GNU_STACK) && p.file > 0) {
            let load = loads(table).find(|l| l.offset_of(p.va).is_some());
            let inside = load.is_some_and(|l| {
                l.offset_of(p.va) == Some(p.off)
                    && p.file <= l.file - (p.va - l.va)
                    && p.va.checked_add(p.mem).is_some()
            });
            if !inside {
                self.open(p.va, format!("{} leads elsewhere by address than by place in the file", name(p.kind)));
            } else if p.mem < p.file || !(p.align <= 1 || p.align.is_power_of_two()) {
                self.open(p.va, format!("{} contradicts itself", name(p.kind)));
            }
        }
    }

    /// Headers that a rewrite writes anew: nothing in them is left to chance.
    fn written(&mut self, table: &[Phdr]) {
        for p in table {
            let align = match p.kind {
                PT_PHDR | PT_BLIZZARD => 8,
                PT_GNU_EH_FRAME => 4,
                PT_INTERP => 1,
                _ => continue,
            };
            let info = p.kind != PT_BLIZZARD || p.mem == size_of::<blizzard_contract::ModuleInfo>() as u64;
            if (p.flags, p.pa, p.mem, p.align) != (PF_R, p.va, p.file, align) || !info {
                self.open(p.va, format!("{} contradicts itself", name(p.kind)));
            }
        }
    }

    /// Both tables: where they say that they are, and what they say.
    fn tables(&mut self) {
        let m = self.m;
        let (at, count) = (number(&m.file[32..40]), number(&m.file[56..58]));
        let kernel = loads(&m.kernel).find(|l| at.wrapping_sub(l.off) < l.file).map_or(0, |l| l.va + (at - l.off));
        let own = |p: &Phdr, va: u64, count: u64| {
            let bytes = count * PHDR_BYTES as u64;
            (p.va, p.pa, p.file, p.mem) == (va, va, bytes, bytes)
        };
        for (table, va, count) in [(&m.kernel, kernel, count), (&m.loader, m.info.phdr_va, m.info.phdr_count)] {
            if table.iter().any(|p| p.kind == PT_PHDR && !own(p, va, count)) {
                self.open(va, "PT_PHDR does not lead to the table that it stands in");
            }
        }
        if m.info.rt_base_va == 0 && (kernel, count) != (m.info.phdr_va, m.info.phdr_count) {
            self.open(kernel, "the module info of a library names another table than the file's");
        }
        if m.info.rt_base_va != 0 && m.kernel.iter().any(|p| p.kind == PT_INTERP) {
            self.open(kernel, "the kernel would start the dynamic loader before the runtime: PT_INTERP is present");
        }
        // A position-independent program learns from it where it was loaded.
        if m.info.interp_va != 0 && !m.fixed && !m.loader.iter().any(|p| p.kind == PT_PHDR) {
            self.open(m.info.phdr_va, "the table for the dynamic loader has no PT_PHDR");
        }
        let differs = || {
            let (mut a, mut b) = (common(&m.kernel), common(&m.loader));
            loop {
                match (a.next(), b.next()) {
                    (None, None) => return None,
                    (a, b) if a == b => {}
                    (a, b) => return a.or(b),
                }
            }
        };
        if let Some(p) = differs() {
            let why = format!("the kernel's table and the dynamic loader's say different things: {}", name(p.kind));
            self.open(p.va, why);
        }
        if !m.info.phdr_va.is_multiple_of(8) || !at.is_multiple_of(8) {
            self.open(m.info.phdr_va, "a table of program headers is not aligned");
        }
    }

    /// What the input does not have.
    fn new_segments(&mut self) {
        let info = &self.m.info;
        let parts = new_parts(self.m);
        let first = parts.iter().map(|p| p.va).min().unwrap_or(u64::MAX);
        let runtime = |p: &Phdr| info.rt_base_va != 0 && p.va >= info.rt_base_va;
        let whole = |p: &Phdr, flags: u32| p.flags == flags && p.file == p.mem;
        let (mut code, mut tables, mut blocks) = (0, 0, 0);
        let strangers: Vec<u64> = loads(&self.m.kernel)
            .filter(|p| p.va >= first && !runtime(p))
            .filter(|p| {
                if p.va == info.code_va {
                    code += u64::from(whole(p, PF_R | PF_X) && p.mem == info.code_bytes);
                } else if p.va == info.blocks_va {
                    // In front of a program it must be a part of the file, because it is the kernel's first.
                    let zeros = || self.m.bytes_at(p.va, p.file as usize).is_some_and(|b| b.iter().all(|b| *b == 0));
                    let filled = if self.m.shift == 0 { p.file == 0 } else { p.file == p.mem && zeros() };
                    blocks += u64::from(p.flags == PF_R | PF_W && filled && p.mem == info.blocks_bytes);
                } else if p.kind == PT_LOAD && holds_info(self.m, p) {
                    tables += u64::from(whole(p, PF_R));
                } else {
                    return true;
                }
                false
            })
            .map(|p| p.va)
            .collect();
        for va in strangers {
            self.open(va, "a new segment that is neither code nor tables, counters or the runtime");
        }
        if code != 1 {
            self.open(info.code_va, "no executable segment is exactly the new code that the module info names");
        }
        if tables != 1 {
            self.open(info.code_va, "no read-only segment holds the module info");
        }
        if blocks != u64::from(info.blocks_va != 0) {
            self.open(info.blocks_va, "no segment is exactly the counters that the module info names");
        }
        for p in parts.iter().filter(|p| p.align != PAGE || p.pa != p.va || p.va % PAGE != 0 && p.file == 0) {
            self.open(p.va, "a new segment is not aligned to pages");
        }
    }

    /// With the input: the same headers in the same order, but for what a rewrite adds or replaces.
    fn compare(&mut self, original: &[u8]) {
        let Some(theirs) = kernel_table(original) else {
            return self.open(0, "the program headers of the original are not in the file");
        };
        let m = self.m;
        if KEPT.iter().any(|kept| m.file[kept.clone()] != original[kept.clone()]) {
            self.audit.finding(0, "ELF header".into(), "it differs from the original's");
        }
        let new = new_parts(m);
        let kept = |p: &&Phdr| !matches!(p.kind, PT_GNU_EH_FRAME | PT_BLIZZARD) && !new.contains(p);
        let (mut ours, mut were) = (common(&m.loader).filter(kept), common(&theirs).filter(kept));
        loop {
            match (ours.next(), were.next()) {
                (None, None) => break,
                (a, b) if a == b => {}
                (a, b) => {
                    let p = a.or(b).expect("one of them is there");
                    self.open(p.va, format!("{} differs from the original's", name(p.kind)));
                    break;
                }
            }
        }
        if let (Some(new), Some(old)) =
            (new.iter().map(|p| p.va).min(), loads(&theirs).map(|p| p.end()).max().filter(|_| !new.is_empty()))
            && new < old
        {
            self.open(new, "new segments begin inside the original's memory");
        }
        let interp = |file: &[u8], table: &[Phdr]| {
            let p = table.iter().find(|p| p.kind == PT_INTERP)?;
            file.get(p.off as usize..)?.get(..p.file as usize).map(<[u8]>::to_vec)
        };
        if interp(m.file, &m.loader) != interp(original, &theirs) {
            self.open(m.info.interp_va, "PT_INTERP names another dynamic loader than the original's");
        }
        // The old table still stands where it stood.
        let at = number(&original[32..40]) as usize;
        let n = theirs.len() * PHDR_BYTES;
        if m.file.get(at..at + n) != original.get(at..at + n) {
            self.open(0, "the original's table of program headers was overwritten");
        }
    }
}

/// Whether a segment's part in the file holds the module info.
fn holds_info(m: &Module, p: &Phdr) -> bool {
    m.kernel.iter().any(|info| info.kind == PT_BLIZZARD && p.offset_of(info.va).is_some())
}

/// The load segments that a rewrite added.
fn new_parts(m: &Module) -> Vec<Phdr> {
    let info = &m.info;
    let named = |p: &&Phdr| p.va == info.code_va || info.blocks_va != 0 && p.va == info.blocks_va || holds_info(m, p);
    let first = loads(&m.kernel).filter(named).map(|p| p.va).min().unwrap_or(u64::MAX);
    memory::loads_from(&m.kernel, first)
}
