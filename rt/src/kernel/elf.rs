//! The headers of ELF files, as they lie in a file and in memory.
//!
//! Input: bytes at the offsets that the headers name. Output: their fields; nothing is checked but by [`Ehdr::is_shared_object`].
//! Source: ELF gABI, chapters 4 and 5.

pub const PT_LOAD: u32 = 1;
pub const PT_DYNAMIC: u32 = 2;
pub const PF_X: u32 = 1;
pub const PF_W: u32 = 2;
pub const PF_R: u32 = 4;
pub const ET_DYN: u16 = 3;
pub const EM_X86_64: u16 = 62;

/// `Elf64_Ehdr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ehdr {
    pub ident: [u8; 16],
    pub e_type: u16,
    pub machine: u16,
    pub version: u32,
    pub entry: u64,
    pub phoff: u64,
    pub shoff: u64,
    pub flags: u32,
    pub ehsize: u16,
    pub phentsize: u16,
    pub phnum: u16,
    pub shentsize: u16,
    pub shnum: u16,
    pub shstrndx: u16,
}

impl Ehdr {
    /// Whether the dynamic loader could load the file: 64 bits, little endian, x86-64, ET_DYN.
    pub fn is_shared_object(&self) -> bool {
        &self.ident[..6] == b"\x7fELF\x02\x01"
            && self.machine == EM_X86_64
            && self.e_type == ET_DYN
            && self.phentsize as usize == size_of::<Phdr>()
    }
}

/// `Elf64_Phdr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Phdr {
    pub p_type: u32,
    pub flags: u32,
    pub offset: u64,
    pub vaddr: u64,
    pub paddr: u64,
    pub filesz: u64,
    pub memsz: u64,
    pub align: u64,
}

impl Phdr {
    /// Of type PT_NULL.
    pub const ZERO: Phdr = Phdr { p_type: 0, flags: 0, offset: 0, vaddr: 0, paddr: 0, filesz: 0, memsz: 0, align: 0 };
}
