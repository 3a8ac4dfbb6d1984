//! The runtime in a rewritten program: that it is a known one, byte for byte, and that the kernel enters it.
//!
//! Input: module, the runtimes that are known: their files, or their names ([`Image::name`]). Output: findings, and the name of the runtime that is there.
//! A runtime's name is the SHA-256 of what the kernel maps of it and where it is entered, its module info left out. The relocations of the
//! runtime are in these bytes: it applies them itself. **Invariant**: nothing of the runtime is believed; a program has a known one, which serves its
//! kind of code, or is refused.
//!
//! Source: `rewriter/DESIGN.md` ("The runtime blob"), `rt/src/start`.

use crate::audit::Audit;
use crate::file::memory::{self, PF_W, PF_X, PT_LOAD};
use crate::file::module::Module;
use blizzard_contract::{self as contract, ModuleInfo, module_flags};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};
use sha2::{Digest, Sha256};

const PAGE: u64 = 4096;
const INFO_BYTES: usize = size_of::<ModuleInfo>();

/// A runtime that programs may have.
#[derive(Clone, Debug)]
pub enum Runtime<'a> {
    /// Its ELF file.
    File {
        file: &'a [u8],
        /// `None`: whoever names it says that it fits.
        serves: Option<Serves>,
    },
    /// Its name, as audits print it.
    Named([u8; 32]),
}

/// The programs that a runtime serves, as their flags say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serves {
    /// Guarded code, or code with tests.
    pub guard: bool,
    /// Runs of more than 64 nodes.
    pub many_nodes: bool,
}

impl Serves {
    /// What the program needs.
    fn needed_by(m: &Module) -> Serves {
        Serves { guard: m.is_guarded(), many_nodes: m.info.flags & module_flags::MANY_NODES != 0 }
    }
}

impl Runtime<'_> {
    /// Whether a program's runtime can be compared with it: a file must be one of a runtime.
    pub fn is_readable(&self) -> bool {
        match self {
            Runtime::File { file, .. } => Image::of_file(file).is_some(),
            Runtime::Named(_) => true,
        }
    }

    /// The name by which audits know it.
    pub fn name(&self) -> Option<[u8; 32]> {
        match self {
            Runtime::File { file, .. } => Image::of_file(file).map(|image| image.name()),
            Runtime::Named(name) => Some(*name),
        }
    }
}

/// A segment, relative to the runtime's first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    at: u64,
    mem: u64,
    flags: u32,
    bytes: Vec<u8>,
}

/// A runtime as the kernel maps it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Image {
    pieces: Vec<Piece>,
    entry: u64,
    /// Where its module info stands; the bytes there are zero.
    info: u64,
}

impl Image {
    /// Of a runtime's file. Pages are mapped whole: breakpoints stand in front of code, zeros elsewhere.
    fn of_file(file: &[u8]) -> Option<Image> {
        let elf = ElfFile64::<Endianness>::parse(file).ok()?;
        let symbol = |name: &str| elf.symbols().find(|s| s.name() == Ok(name)).map(|s| s.address());
        let mut pieces = Vec::new();
        for p in memory::kernel_table(file)?.iter().filter(|p| p.kind == PT_LOAD) {
            let at = p.va / PAGE * PAGE;
            let lead = p.va - at;
            let filler = if p.flags & PF_X != 0 { 0xcc } else { 0 };
            let mut bytes = vec![filler; lead as usize];
            bytes.extend(file.get(p.off as usize..)?.get(..p.file as usize)?);
            pieces.push(Piece { at, mem: lead.checked_add(p.mem)?, flags: p.flags, bytes });
        }
        let (entry, info) = (symbol(contract::RT_ENTRY_SYMBOL)?, symbol(contract::MODULE_INFO_SYMBOL)?);
        let mut image = Image { pieces, entry, info };
        image.slot()?.fill(0);
        Some(image)
    }

    /// Of a rewritten program; the module info must be that of the tables.
    fn of_module(m: &Module) -> Result<Image, String> {
        let base = m.info.rt_base_va;
        let mut pieces = Vec::new();
        for p in memory::loads_from(&m.kernel, base) {
            let bytes = if p.file == 0 { Some(&[][..]) } else { m.bytes_at(p.va, p.file as usize) };
            let bytes = bytes.ok_or("a part of the runtime is not in the file")?.to_vec();
            pieces.push(Piece { at: p.va - base, mem: p.mem, flags: p.flags, bytes });
        }
        let words: Vec<u8> = m.info.words().iter().flat_map(|w| w.to_le_bytes()).collect();
        let find =
            |p: &Piece| p.bytes.windows(INFO_BYTES).step_by(8).position(|w| w == words).map(|k| p.at + 8 * k as u64);
        let info = pieces.iter().filter(|p| p.flags & PF_W != 0).find_map(find);
        let info = info.ok_or("the runtime's own module info is not that of the tables")?;
        let mut image = Image { pieces, entry: m.entry.wrapping_sub(base), info };
        image.slot().ok_or("the runtime's module info is not in the file")?.fill(0);
        Ok(image)
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        let info = self.info;
        let piece = self.pieces.iter_mut().find(|p| info.wrapping_sub(p.at) < p.bytes.len() as u64)?;
        piece.bytes.get_mut((info - piece.at) as usize..)?.get_mut(..INFO_BYTES)
    }

    /// SHA-256 of entry, module info's place, and each piece: place, sizes, flags, bytes. Numbers are eight bytes, little endian.
    fn name(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        [self.entry, self.info].iter().for_each(|n| hash.update(n.to_le_bytes()));
        for p in &self.pieces {
            for n in [p.at, p.mem, p.flags.into(), p.bytes.len() as u64] {
                hash.update(n.to_le_bytes());
            }
            hash.update(&p.bytes);
        }
        hash.finalize().into()
    }

    /// Where another one differs, and how.
    fn difference(&self, other: &Image) -> Option<(u64, &'static str)> {
        for (k, p) in self.pieces.iter().enumerate() {
            let Some(o) = other.pieces.get(k) else { return Some((p.at, "has a segment that the known one has not")) };
            if (p.at, p.mem, p.flags, p.bytes.len()) != (o.at, o.mem, o.flags, o.bytes.len()) {
                return Some((p.at, "has a segment of another place, size or permission than the known one"));
            }
            if let Some(d) = p.bytes.iter().zip(&o.bytes).position(|(a, b)| a != b) {
                return Some((p.at + d as u64, "has other bytes here than the known one"));
            }
        }
        if self.pieces.len() < other.pieces.len() {
            return Some((other.pieces[self.pieces.len()].at, "lacks a segment of the known one"));
        }
        if self.entry != other.entry {
            return Some((self.entry, "is entered here, the known one elsewhere"));
        }
        (self.info != other.info).then_some((self.info, "has its module info here, the known one elsewhere"))
    }
}

/// Judges the runtime. A library has none.
pub(crate) fn judge(m: &Module, known: &[Runtime], audit: &mut Audit) {
    let base = m.info.rt_base_va;
    if base == 0 {
        // Who starts the file itself starts at the new code of its entry point.
        if m.entry != m.info.entry_va {
            audit.finding(m.entry, "e_entry".into(), "is not the entry point that the module info names");
        }
        if Serves::needed_by(m).many_nodes {
            audit.finding(
                m.info.code_va,
                "module info".into(),
                "the flags speak of a runtime for many nodes, and there is none",
            );
        }
        return;
    }
    let mut open = |at: u64, why: String| audit.finding(at, "runtime".into(), why);
    let image = match Image::of_module(m) {
        Ok(image) => image,
        Err(why) => return open(base, why),
    };
    let (mut files, mut names) = (Vec::new(), Vec::new());
    for runtime in known {
        match runtime {
            Runtime::Named(name) => names.push(*name),
            Runtime::File { file, serves } => match Image::of_file(file) {
                Some(known) if serves.is_none_or(|serves| serves == Serves::needed_by(m)) => files.push(known),
                Some(known) if known == image => {
                    return open(base, "the runtime serves other programs than this one, by its flags".into());
                }
                Some(_) => {}
                None => open(base, "the file that a runtime is to be compared with is no runtime".into()),
            },
        }
    }
    let name = image.name();
    if !names.contains(&name) && !files.contains(&image) {
        // The one that differs last: of one with instruments and one without, that of the same kind.
        let differences = files.iter().filter_map(|known| image.difference(known));
        match differences.max_by_key(|d| d.0) {
            Some((at, why)) => open(base.wrapping_add(at), format!("the runtime {why}")),
            None => open(base, "the runtime is none of those that are known by name".into()),
        }
    }
    audit.runtime = Some(name.iter().map(|b| format!("{b:02x}")).collect());
}
