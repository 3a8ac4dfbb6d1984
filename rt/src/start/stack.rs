//! The initial stack block: argc, argv, envp and the auxiliary vector.
//!
//! Purpose: read the block that the kernel built, and build the one that the dynamic loader or the static program shall see.
//! Input: the stack pointer at process start. Output: the same block without [`contract::BOOT_ENV`] and [`contract::EXE_ENV`], with the auxiliary vector
//! corrected and [`contract::AT_BLIZZARD`] added. Strings are not copied: the pointers keep pointing into the kernel's block, but for that to another name.
//! **Invariant**: reading allocates nothing and writes nothing.
//! Source: psABI 3.4.1 and figure 3.9.

use crate::kernel::elf::{PT_LOAD, Phdr};
use crate::process::process::Boot;
use blizzard_contract as contract;
use core::ffi::{CStr, c_char};

/// Entries that [`InitialStack::rebuild`] adds to the auxiliary vector at most.
const AUX_ADDED: usize = 6;
/// `AT_NULL`, the vector's end.
const AT_NULL: u64 = 0;

/// Where the parts of the kernel's block are.
#[derive(Clone, Copy, Debug)]
pub struct InitialStack {
    argc: usize,
    argv: *const u64,
    envp: *const u64,
    env_count: usize,
    auxv: *const u64,
    /// Pairs, the terminating one not counted.
    aux_count: usize,
}

/// What the block shall say instead.
#[derive(Clone, Copy, Debug)]
pub struct StackEdits {
    pub phdr: u64,
    pub phdr_count: u64,
    pub entry: u64,
    /// Load address of the interpreter, 0 without one.
    pub base: u64,
    /// Value of [`contract::AT_BLIZZARD`].
    pub api: u64,
    /// The path that the program is told it was executed by; 0: the kernel's.
    pub execfn: u64,
    /// The first argument, of a program that has arguments; 0: the kernel's.
    pub name: u64,
    /// Leaves AT_SYSINFO_EHDR out, so that the C library makes system calls instead of entering the vDSO.
    pub hide_vdso: bool,
}

impl InitialStack {
    /// Finds the parts.
    ///
    /// # Safety
    /// `sp` points to an initial stack block that stays in place and unchanged.
    pub unsafe fn parse(sp: *const u64) -> Self {
        // SAFETY: the block has the psABI's form: argc, argv pointers, null, environment pointers, null, pairs up to AT_NULL.
        unsafe {
            let argc = sp.read() as usize;
            let argv = sp.add(1);
            let envp = argv.add(argc + 1);
            let mut env_count = 0;
            while envp.add(env_count).read() != 0 {
                env_count += 1;
            }
            let auxv = envp.add(env_count + 1);
            let mut aux_count = 0;
            while auxv.add(2 * aux_count).read() != AT_NULL {
                aux_count += 1;
            }
            InitialStack { argc, argv, envp, env_count, auxv, aux_count }
        }
    }

    /// Upper bound of the rebuilt block's size in bytes, alignment included.
    pub fn rebuilt_bytes(&self) -> u64 {
        let words = 1 + (self.argc + 1) + (self.env_count + 1) + 2 * (self.aux_count + AUX_ADDED + 1);
        (words as u64 * 8).next_multiple_of(16)
    }

    /// The first argument, by which the program is said to have been called.
    pub fn name(&self) -> Option<&CStr> {
        // SAFETY: counted by `parse`; the kernel stores NUL-terminated strings.
        (self.argc > 0).then(|| unsafe { CStr::from_ptr(self.argv.read() as *const c_char) })
    }

    fn env(&self, index: usize) -> &CStr {
        debug_assert!(index < self.env_count);
        // SAFETY: `parse` counted this entry; the kernel stores NUL-terminated strings.
        unsafe { CStr::from_ptr(self.envp.add(index).read() as *const c_char) }
    }

    /// Whether the process has rights that whoever started it has not (set-user-ID, set-group-ID, file capabilities): then nothing that the
    /// environment says is to be trusted.
    pub fn is_secure(&self) -> bool {
        (0..self.aux_count).any(|i| {
            // SAFETY: counted by `parse`.
            let (key, value) = unsafe { (self.auxv.add(2 * i).read(), self.auxv.add(2 * i + 1).read()) };
            key == libc::AT_SECURE && value != 0
        })
    }

    /// The environment string that names the original's file, if the launcher gave one.
    pub fn exe(&self) -> Option<&'static CStr> {
        let variable = (0..self.env_count).map(|i| self.env(i)).find(|env| is_exe(env))?;
        // SAFETY: the kernel's block stays in place for as long as the process lives.
        Some(unsafe { CStr::from_ptr(variable.as_ptr()) })
    }

    /// First address and bytes of the program, whose `count` program headers stand at `phdrs`.
    pub fn program_span(&self, phdrs: u64, count: u64, bias: u64) -> (u64, u64) {
        // SAFETY: the rewriter wrote the table into the loaded file.
        let phdrs = unsafe { core::slice::from_raw_parts(phdrs as *const Phdr, count as usize) };
        let loads = || phdrs.iter().filter(|p| p.p_type == PT_LOAD);
        // Addresses in front of the program's first are below zero.
        let low = loads().map(|p| p.vaddr as i64).min().unwrap_or(0) as u64;
        let end = loads().map(|p| p.vaddr.wrapping_add(p.memsz) as i64).max().unwrap_or(0) as u64;
        (low.wrapping_add(bias), end.wrapping_sub(low))
    }

    /// What the launcher says about this node; the malformed text on error.
    ///
    /// # Errors
    /// The variable's value when it is not `fd=<number>,node=<number>`.
    pub fn boot(&self) -> Result<Option<Boot>, &str> {
        for i in 0..self.env_count {
            if let Some(value) = boot_value(self.env(i)) {
                let text = core::str::from_utf8(value).unwrap_or("(not text)");
                return parse_boot(text).map(Some).ok_or(text);
            }
        }
        Ok(None)
    }

    /// Writes the new block at `to`.
    ///
    /// # Safety
    /// `to` is 16-byte aligned, has [`InitialStack::rebuilt_bytes`] writable bytes and does not overlap the kernel's block.
    pub unsafe fn rebuild(&self, to: *mut u64, edits: &StackEdits) {
        let mut at = to;
        let mut put = |word: u64| {
            // SAFETY: the caller reserved `rebuilt_bytes`, which bounds the number of words put below.
            unsafe {
                at.write(word);
                at = at.add(1);
            }
        };
        put(self.argc as u64);
        for i in 0..=self.argc {
            // SAFETY: argc pointers and the null behind them.
            let kernels = unsafe { self.argv.add(i).read() };
            put(if i == 0 && self.argc > 0 && edits.name != 0 { edits.name } else { kernels });
        }
        for i in 0..self.env_count {
            if boot_value(self.env(i)).is_none() && !is_exe(self.env(i)) {
                // SAFETY: counted by `parse`.
                put(unsafe { self.envp.add(i).read() });
            }
        }
        put(0);
        let mut wanted: [(u64, u64, bool); AUX_ADDED] = [
            (libc::AT_PHDR, edits.phdr, false),
            (libc::AT_PHENT, PHDR_BYTES, false),
            (libc::AT_PHNUM, edits.phdr_count, false),
            (libc::AT_ENTRY, edits.entry, false),
            (libc::AT_BASE, edits.base, false),
            (contract::AT_BLIZZARD, edits.api, false),
        ];
        for i in 0..self.aux_count {
            // SAFETY: counted by `parse`.
            let (key, mut value) = unsafe { (self.auxv.add(2 * i).read(), self.auxv.add(2 * i + 1).read()) };
            if edits.hide_vdso && matches!(key, AT_SYSINFO_EHDR) {
                continue;
            }
            if key == libc::AT_EXECFN && edits.execfn != 0 {
                value = edits.execfn;
            }
            if let Some(edit) = wanted.iter_mut().find(|edit| edit.0 == key) {
                value = edit.1;
                edit.2 = true;
            }
            put(key);
            put(value);
        }
        for (key, value, done) in wanted {
            if !done {
                put(key);
                put(value);
            }
        }
        put(AT_NULL);
        put(0);
    }
}

/// Whether the program, whose `count` program headers stand at `phdrs`, carries Blizzard's note of that type in its memory.
pub fn has_note(phdrs: u64, count: u64, bias: u64, kind: u32) -> bool {
    // SAFETY: the rewriter wrote the table into the loaded file.
    let phdrs = unsafe { core::slice::from_raw_parts(phdrs as *const Phdr, count as usize) };
    let is_loaded = |p: &&Phdr| {
        let holds = |l: &Phdr| l.vaddr <= p.vaddr && p.filesz <= l.filesz && p.vaddr - l.vaddr <= l.filesz - p.filesz;
        phdrs.iter().any(|l| l.p_type == PT_LOAD && holds(l))
    };
    phdrs.iter().filter(|p| p.p_type == PT_NOTE).filter(is_loaded).any(|p| {
        // SAFETY: part of a segment that is mapped.
        let notes = unsafe { core::slice::from_raw_parts(p.vaddr.wrapping_add(bias) as *const u8, p.filesz as usize) };
        is_among(notes, if p.align == 8 { 8 } else { 4 }, kind)
    })
}

/// Whether the notes, whose parts are aligned so, hold Blizzard's of that type. A damaged one ends them.
fn is_among(mut notes: &[u8], align: usize, kind: u32) -> bool {
    while let Some((header, rest)) = notes.split_first_chunk::<12>() {
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (name, desc) = (word(0) as usize, word(4) as usize);
        let named = rest.get(..name).and_then(|name| name.strip_suffix(b"\0"));
        if word(8) == kind && named == Some(contract::FORK_NOTE_NAME.as_bytes()) {
            return true;
        }
        let next = ((header.len() + name).next_multiple_of(align) + desc).next_multiple_of(align);
        notes = notes.get(next..).unwrap_or_default();
    }
    false
}

/// Segments of notes.
const PT_NOTE: u32 = 4;
/// Address of the vDSO's ELF header.
const AT_SYSINFO_EHDR: u64 = 33;
/// Bytes of one program header (`Elf64_Phdr`).
const PHDR_BYTES: u64 = 56;

/// The value of an environment string when it is [`contract::BOOT_ENV`].
fn boot_value(env: &CStr) -> Option<&[u8]> {
    env.to_bytes().strip_prefix(contract::BOOT_ENV.as_bytes())?.strip_prefix(b"=")
}

/// Whether an environment string is [`contract::EXE_ENV`].
fn is_exe(env: &CStr) -> bool {
    env.to_bytes().strip_prefix(contract::EXE_ENV.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
}

/// Parses `fd=<number>,node=<number>` and, where blocks are counted, `,blocks=<number>`.
fn parse_boot(text: &str) -> Option<Boot> {
    let descriptor = |text: &str| text.parse().ok().filter(|&fd: &i32| fd >= 0);
    let (fd, rest) = text.split_once(',')?;
    let (node, blocks) = match rest.split_once(',') {
        None => (rest, None),
        Some((node, blocks)) => (node, Some(descriptor(blocks.strip_prefix("blocks=")?)?)),
    };
    let fd = descriptor(fd.strip_prefix("fd=")?)?;
    let node = node.strip_prefix("node=")?.parse().ok()?;
    Some(Boot { fd, node, blocks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn notes_are_found_by_name_and_type() {
        let note = |name: &[u8], desc: &[u8], kind: u32, align: usize| {
            let mut bytes: Vec<u8> = [name.len() as u32, desc.len() as u32, kind].map(u32::to_ne_bytes).concat();
            bytes.extend(name);
            bytes.resize(bytes.len().next_multiple_of(align), 0);
            bytes.extend(desc);
            bytes.resize(bytes.len().next_multiple_of(align), 0);
            bytes
        };
        for align in [4, 8] {
            let other = note(b"GNU\0", b"12345", 2, align);
            let all = [other.clone(), note(b"Blizzard\0", b"", 1, align), note(b"Blizzard\0", b"", 2, align)].concat();
            assert!(is_among(&all, align, 1) && is_among(&all, align, 2) && !is_among(&all, align, 3));
            assert!(!is_among(&other, align, 2) && !is_among(&all[..all.len() - 16], align, 2));
        }
        assert!(!is_among(&[0xff; 40], 4, u32::MAX));
    }

    #[test]
    fn notes_outside_memory_are_not_read() {
        let words = [9u32, 0, 2, u32::from_ne_bytes(*b"Bliz"), u32::from_ne_bytes(*b"zard"), 0];
        let (at, bytes) = (words.as_ptr() as u64, size_of_val(&words) as u64);
        let segment = |p_type, vaddr| Phdr { p_type, vaddr, filesz: bytes, memsz: bytes, align: 4, ..Phdr::ZERO };
        let found = |list: &[Phdr]| has_note(list.as_ptr() as u64, list.len() as u64, 0, 2);
        assert!(found(&[segment(PT_LOAD, at), segment(PT_NOTE, at)]));
        assert!(!found(&[segment(PT_LOAD, at), segment(PT_NOTE, 0)]));
        assert!(!found(&[segment(PT_LOAD, at), segment(PT_NOTE, u64::MAX - 8)]));
        assert!(!found(&[segment(PT_NOTE, 0x10)]));
    }

    /// A block with the given strings; the strings and the words must outlive its use.
    struct Block {
        words: Vec<u64>,
        _strings: Vec<CString>,
    }

    fn block(args: &[&str], env: &[&str], aux: &[(u64, u64)]) -> Block {
        let mut strings = Vec::new();
        let mut words = vec![args.len() as u64];
        for list in [args, env] {
            for text in list {
                let text = CString::new(*text).unwrap();
                words.push(text.as_ptr() as u64);
                strings.push(text);
            }
            words.push(0);
        }
        for &(key, value) in aux {
            words.extend([key, value]);
        }
        words.extend([0, 0]);
        Block { words, _strings: strings }
    }

    fn rebuilt(block: &Block, edits: &StackEdits) -> Vec<u64> {
        // SAFETY: `block` has the form of an initial stack and outlives the use; the target is a vector of the size asked for,
        // with a spare word on either side so that an overrun is seen.
        unsafe {
            let initial = InitialStack::parse(block.words.as_ptr());
            let words = initial.rebuilt_bytes() as usize / 8;
            let mut out = vec![0xdead_beef_dead_beefu64; words + 1];
            initial.rebuild(out.as_mut_ptr(), edits);
            assert_eq!(out[words], 0xdead_beef_dead_beef);
            out
        }
    }

    const EDITS: StackEdits = StackEdits {
        phdr: 0x1111,
        phdr_count: 12,
        entry: 0x2222,
        base: 0x3333,
        api: 0x4444,
        execfn: 0,
        name: 0,
        hide_vdso: false,
    };

    fn aux_of(words: &[u64]) -> Vec<(u64, u64)> {
        let mut pairs = Vec::new();
        let mut at = 0;
        while words[at] != 0 {
            pairs.push((words[at], words[at + 1]));
            at += 2;
        }
        pairs
    }

    #[test]
    fn the_boot_variable_is_read_and_removed() {
        let b = block(&["prog", "x"], &["A=1", "BLIZZARD_BOOT=fd=5,node=3", "B=2"], &[(libc::AT_PAGESZ, 4096)]);
        // SAFETY: a well-formed block.
        let initial = unsafe { InitialStack::parse(b.words.as_ptr()) };
        assert_eq!(initial.boot(), Ok(Some(Boot { fd: 5, node: 3, blocks: None })));

        let out = rebuilt(&b, &EDITS);
        assert_eq!(&out[..4], &b.words[..4], "argc and argv stay");
        assert_eq!(out[4..7], [b.words[4], b.words[6], 0], "the variable is gone, the others stay in order");
        assert_eq!(aux_of(&out[7..])[0], (libc::AT_PAGESZ, 4096));
    }

    #[test]
    fn the_first_argument_is_another_where_there_is_one() {
        let named = StackEdits { name: 0x5555, ..EDITS };
        let b = block(&["prog", "x"], &[], &[]);
        assert_eq!(rebuilt(&b, &named)[..4], [2, 0x5555, b.words[2], 0]);
        assert_eq!(rebuilt(&block(&[], &[], &[]), &named)[..3], [0, 0, 0]);
    }

    #[test]
    fn rights_that_the_caller_has_not_are_seen() {
        for (value, secure) in [(0, false), (1, true)] {
            let b = block(&["prog"], &[], &[(libc::AT_PAGESZ, 4096), (libc::AT_SECURE, value)]);
            // SAFETY: a well-formed block.
            assert_eq!(unsafe { InitialStack::parse(b.words.as_ptr()) }.is_secure(), secure);
        }
    }

    #[test]
    fn the_vdso_is_hidden_where_its_stores_would_not_be_checked() {
        let b = block(&[], &[], &[(AT_SYSINFO_EHDR, 0x7000), (libc::AT_PAGESZ, 4096)]);
        assert_eq!(aux_of(&rebuilt(&b, &EDITS)[3..])[0], (AT_SYSINFO_EHDR, 0x7000));
        let hidden = rebuilt(&b, &StackEdits { hide_vdso: true, ..EDITS });
        assert_eq!(aux_of(&hidden[3..])[0], (libc::AT_PAGESZ, 4096));
    }

    #[test]
    fn the_boot_variable_says_where_blocks_are_counted() {
        let b = block(&[], &["BLIZZARD_BOOT=fd=5,node=0,blocks=9"], &[]);
        // SAFETY: a well-formed block.
        let initial = unsafe { InitialStack::parse(b.words.as_ptr()) };
        assert_eq!(initial.boot(), Ok(Some(Boot { fd: 5, node: 0, blocks: Some(9) })));
    }

    #[test]
    fn a_similar_name_is_not_the_boot_variable() {
        let b = block(&[], &["BLIZZARD_BOOTS=fd=5,node=3", "BLIZZARD_BOOT"], &[]);
        // SAFETY: a well-formed block.
        assert_eq!(unsafe { InitialStack::parse(b.words.as_ptr()) }.boot(), Ok(None));
        assert_eq!(rebuilt(&b, &EDITS)[2..5], [b.words[2], b.words[3], 0]);
    }

    #[test]
    fn malformed_boot_variables_are_reported() {
        for text in [
            "",
            "fd=,node=1",
            "fd=-1,node=0",
            "node=1,fd=2",
            "fd=1",
            "fd=1,node=x",
            "fd=1,node=2,",
            "fd=1,node=2,blocks=-1",
        ] {
            let b = block(&[], &[&format!("BLIZZARD_BOOT={text}")], &[]);
            // SAFETY: a well-formed block.
            assert_eq!(unsafe { InitialStack::parse(b.words.as_ptr()) }.boot(), Err(text));
        }
    }

    #[test]
    fn the_auxiliary_vector_is_corrected_in_place_and_completed() {
        let kernel = [
            (AT_SYSINFO_EHDR, 0x7fff_0000),
            (libc::AT_PHDR, 1),
            (libc::AT_PHENT, 56),
            (libc::AT_PHNUM, 2),
            (libc::AT_BASE, 0),
            (libc::AT_ENTRY, 4),
            (libc::AT_RANDOM, 5),
        ];
        let b = block(&["p"], &[], &kernel);
        let aux = aux_of(&rebuilt(&b, &EDITS)[4..]);
        assert_eq!(
            aux,
            [
                (AT_SYSINFO_EHDR, 0x7fff_0000),
                (libc::AT_PHDR, 0x1111),
                (libc::AT_PHENT, 56),
                (libc::AT_PHNUM, 12),
                (libc::AT_BASE, 0x3333),
                (libc::AT_ENTRY, 0x2222),
                (libc::AT_RANDOM, 5),
                (contract::AT_BLIZZARD, 0x4444),
            ]
        );
        let bare = aux_of(&rebuilt(&block(&["p"], &[], &[]), &EDITS)[4..]);
        assert_eq!(bare.len(), AUX_ADDED, "what the kernel left out is added");
    }
}
