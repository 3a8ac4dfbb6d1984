//! What a rewritten file tells the runtime and the audit: its [`ModuleInfo`], and the tables that this leads to.
//!
//! Written by the rewriter (`write::file`), read by the runtime (`modules`) and by the audit. Nothing here executes.
//! Source: gABI, "Program Header" (the range of types for operating systems).

/// First bytes of [`ModuleInfo`] ("BLZMODI5").
pub const MODULE_MAGIC: u64 = u64::from_le_bytes(*b"BLZMODI5");
/// Name of the symbol in the runtime blob whose storage the rewriter fills with a [`ModuleInfo`].
pub const MODULE_INFO_SYMBOL: &str = "blizzard_module_info";
/// Symbol of the runtime's dynamic section for debuggers, of [`DEBUGGER_DYNAMIC_BYTES`]: it leads to a list of the files that are mapped.
pub const DEBUGGER_DYNAMIC_SYMBOL: &str = "blizzard_debugger_dynamic";
pub const DEBUGGER_DYNAMIC_BYTES: u64 = 32;
/// Name of the runtime blob's entry point.
pub const RT_ENTRY_SYMBOL: &str = "_start";
/// Name of the output section that marks a rewritten file (its contents: a copy of the [`ModuleInfo`]).
pub const INFO_SECTION: &str = ".blizzard.info";

/// Type of the program header that leads to a rewritten file's [`ModuleInfo`], so that the runtime finds it without section
/// headers: `p_vaddr` and `p_offset` are its address and its place in the file. In the range reserved for operating systems; loaders
/// ignore what they do not know.
pub const PT_BLIZZARD: u32 = 0x6b7a_6c62;

/// Defines [`ModuleInfo`] with the conversions that both sides of the contract use, from one list of fields.
macro_rules! module_info {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What the rewriter tells the runtime about a rewritten file. All `*_va` are link-time virtual addresses of the
        /// output file; the runtime adds the load bias (for the program, the runtime's own run-time address minus `rt_base_va`).
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct ModuleInfo {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl ModuleInfo {
            /// Number of 64-bit words.
            pub const WORDS: usize = [$(stringify!($name)),*].len();
            /// Every field zero.
            pub const ZERO: Self = ModuleInfo { $($name: 0),* };

            /// The fields in order, as they stand in files (little endian each).
            pub const fn words(&self) -> [u64; Self::WORDS] {
                [$(self.$name),*]
            }

            /// The inverse of [`ModuleInfo::words`].
            pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
                let [$($name),*] = words;
                ModuleInfo { $($name),* }
            }
        }
    };
}

module_info! {
    /// [`MODULE_MAGIC`].
    magic,
    /// [`module_flags`].
    flags,
    /// Link-time address of the runtime blob's first byte (its ELF header); 0 in a library, which has none.
    rt_base_va,
    /// New address of the program's own entry point: becomes AT_ENTRY.
    entry_va,
    /// Program headers as the dynamic loader and libgcc shall see them: become AT_PHDR, AT_PHNUM.
    phdr_va,
    phdr_count,
    /// NUL-terminated path of the dynamic loader, 0 for a static program.
    interp_va,
    /// Trap map ([`crate::trap_map`]): the codes of its rows, one [`TrapHead`] for each group of them, and how many rows it has.
    trap_codes_va,
    trap_code_bytes,
    trap_heads_va,
    trap_count,
    /// Subtracted from an old address to form [`TrapEntry::old`], and from a new one to form [`TrapEntry::new`].
    old_base_va,
    new_base_va,
    /// New code, hot and cold: `[code_va, code_va + code_bytes)`.
    code_va,
    code_bytes,
    /// Where the program's rewritten libraries are: NUL-terminated strings as [`closure_strings`] describes them; 0: the libraries are
    /// not rewritten.
    closure_va,
    closure_bytes,
    /// How often each basic block has run: u64s, in pages of their own that nothing else shares; 0: blocks are not counted.
    blocks_va,
    blocks_bytes,
    /// `claim_count` entries of [`Claim`], sorted by `access`: accesses that other checks cover.
    claims_va,
    claim_count,
    /// `region_count` entries of [`CodeRegion`], sorted, without overlaps.
    regions_va,
    region_count,
    /// Restart table ([`crate::restarts`]): the codes of its rows, one [`RestartHead`] for each group of them, and how many rows it has.
    restart_codes_va,
    restart_code_bytes,
    restart_heads_va,
    restart_count,
    /// Where the full versions of functions begin in the hot code, relative to [`ModuleInfo::new_base_va`]; 0: accesses are tested, there is one version.
    full_at,
    /// From plain code to full code: a table of the form of [`crate::trap_map`], with a row for each access that full code tests. Rows lead from the access to
    /// where the same instruction begins with its test, both relative to [`ModuleInfo::new_base_va`].
    version_codes_va,
    version_code_bytes,
    version_heads_va,
    version_count,
    /// Functions of plain code that may be entered in their full versions: a table of the same form, from where they begin (with [`REDIRECTABLE`]) to where their
    /// full versions do.
    redirect_codes_va,
    redirect_code_bytes,
    redirect_heads_va,
    redirect_count,
}

impl ModuleInfo {
    /// Tells the files of a process apart, of which hardly two agree in every word; not 0.
    pub const fn number(&self) -> u32 {
        let (words, mut hash, mut k) = (self.words(), 0u64, 0);
        while k < words.len() {
            hash = (hash.rotate_left(5) ^ words[k]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            k += 1;
        }
        (hash >> 32) as u32 | 1
    }
}

/// First bytes of a function of plain code that may be entered in its full version: a `nop`. Five bytes in front of it stands a jump to that.
pub const REDIRECTABLE: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// What the runtime puts in their place: `jmp` to what stands in front.
pub const REDIRECTED: [u8; 2] = [0xeb, 0xf9];

/// Name of the output section that holds [`Claim`]s and [`CodeRegion`]s.
pub const CLAIMS_SECTION: &str = ".blizzard.claims";

/// Why an access has no check of its own. Addresses are relative to [`ModuleInfo::new_base_va`]. For audits; nothing at run time uses it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The access.
    pub access: u32,
    /// The access whose check covers this one, too; [`Claim::SEVERAL`]: on each way here another one.
    pub cover: u32,
    /// [`claim_reason`].
    pub reason: u32,
}

impl Claim {
    /// See [`Claim::cover`].
    pub const SEVERAL: u32 = u32::MAX;
}

/// Values of [`Claim::reason`].
pub mod claim_reason {
    /// The check of an access in the same basic block was made wide enough for both.
    pub const MERGED: u32 = 1;
    /// Checks on every way here have tested what is accessed.
    pub const DOMINATED: u32 = 2;
    /// The tests at the head of the loop, for this and the next iterations.
    pub const STRIP: u32 = 3;
}

/// A stretch of new code in which the program relies on checks that lie behind it: whoever continues there without having come from
/// them (a return from a signal handler, a jump that a trap byte redirects) must make these ranges accessible first, or go on elsewhere. Who continues at an
/// access with a check of its own goes back to that check first ([`crate::restarts`]).
/// Addresses are relative to [`ModuleInfo::new_base_va`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRegion {
    pub start: u32,
    pub end: u32,
    /// Where the chain of [`GroupRange`](super::GroupRange)s stands; with [`CodeRegion::MOVED`], where to go on.
    pub group: u32,
}

impl CodeRegion {
    /// In [`CodeRegion::group`]: what follows is no chain but the address of the same instruction in code that may be continued anywhere (the
    /// stretch is part of a copy that tests made on the way there allow to do without checks). Its own region, if any, holds there.
    pub const MOVED: u32 = 1 << 31;
}

/// The strings at [`ModuleInfo::closure_va`], one after the other.
///
/// * `bundle`, FOLDER: rewritten libraries lie in FOLDER, relative to the folder of the program's file, under the names of the
///   originals' files. There is nothing else to load.
/// * `cache`, FOLDER, ROOT, KEY, TOOL, ORIGINAL: FOLDER holds an entry for each rewritten file, named by `closure::entry_name` of the runtime;
///   for what is missing, `TOOL cache add --root ROOT --key KEY FILE` makes it.
///   ORIGINAL is empty, or [`EXE_ENV`](crate::EXE_ENV)`=PATH`: the file that the program was rewritten from. Its folder is the program's own place.
pub mod closure_strings {
    pub const BUNDLE: &str = "bundle";
    pub const CACHE: &str = "cache";
}

/// Bits of [`ModuleInfo::flags`].
pub mod module_flags {
    pub const CHECK_LOADS: u64 = 1;
    pub const CHECK_STORES: u64 = 2;
    pub const POLLS: u64 = 4;
    /// The checks count themselves.
    pub const COUNTING: u64 = 8;
    /// Basic blocks count how often they run.
    pub const BLOCKS: u64 = 16;
    /// Loops may test for several iterations: they share [`LIMIT_UP`](crate::LIMIT_UP) and [`LIMIT_DOWN`](crate::LIMIT_DOWN), so only one thread may depend on tags.
    pub const STRIPS: u64 = 32;
    /// Guarded code: only full versions test, and shared memory is reached by its alias.
    pub const GUARD: u64 = 64;
    /// Behind old instructions stand no data that look like trap bytes: the runtime may write jumps there.
    pub const JUMPS: u64 = 128;
    /// The runtime is the one for more than [`FEW_NODES`](crate::FEW_NODES) nodes.
    pub const MANY_NODES: u64 = 256;
}

/// Most jumps of a springboard: short ones, each to the next, and a long one to the new code.
pub const SPRINGBOARD_JUMPS: usize = 8;

/// One row of the trap map: an instruction's old address and the address where its new code, checks included, begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrapEntry {
    pub old: u32,
    pub new: u32,
}

/// The first row of a group of the trap map, and where the codes of the others begin among those of the map.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrapHead {
    pub old: u32,
    pub new: u32,
    pub at: u32,
}

/// Where the check of the first row of a group of the restart table begins, relative to [`ModuleInfo::new_base_va`], and where the group's codes begin among those of
/// the table.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartHead {
    pub check: u32,
    pub at: u32,
}

const _: () = {
    assert!(size_of::<Claim>() == 12 && size_of::<CodeRegion>() == 12);
    assert!(size_of::<TrapHead>() == 12 && size_of::<RestartHead>() == 8);
    assert!(size_of::<ModuleInfo>() == 8 * ModuleInfo::WORDS);
};
