//! A counting run -> [`ModuleCounts`]s: how often each block of the program and its libraries has run.
//!
//! Input: the program rewritten with `--count-blocks`, and the [`MeasuredJob`]. The run's counters lie in a file without a name that all its
//! processes map ([`blizzard_contract::BlocksHeader`]); behind it the tables of the rewritten files say what the blocks contain.
//! **Invariant**: counts are exact for all code of rewritten files, threads and forked children included. What another program
//! does that is started by `exec` is not counted, as its time is not its parent's doing.

use crate::base::error::{Error, Result};
use crate::insert::block_recorder::SECTION;
use crate::insert::block_table::{BlockTable, CountedBlock};
use crate::launch::options::LaunchOptions;
use crate::launch::region::{NodeReport, RegionFile};
use crate::launch::signals::Signals;
use crate::reports::overhead::process::{Extra, FinishedRun, MeasuredJob};
use blizzard_contract::{BLOCKS_MAGIC, BLOCKS_PAGE_BYTES, BOOT_ENV, BlocksRecord};
use object::{Object, ObjectSection};
use rustix::fs::MemfdFlags;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Room for the counters of all modules, sparse: only what is counted takes memory.
const FILE_BYTES: u64 = 16 << 30;

/// Descriptors that the program's runtime is given have three digits.
const LOWEST_FD: i32 = 200;

/// What was counted in one file.
#[derive(Debug)]
pub struct ModuleCounts {
    /// The file that was rewritten.
    pub original: PathBuf,
    pub table: BlockTable,
    /// How often each block has run.
    pub counts: Vec<u64>,
}

impl ModuleCounts {
    /// Executed instructions.
    pub fn instructions(&self) -> u64 {
        self.table.blocks.iter().zip(&self.counts).map(|(block, times)| u64::from(block.insns) * times).sum()
    }
}

/// A counting run.
#[derive(Debug)]
pub struct Counted {
    pub run: FinishedRun,
    /// The program first, then libraries in the order in which they were loaded.
    pub modules: Vec<ModuleCounts>,
    /// What the runtime has counted.
    pub runtime: NodeReport,
    /// Files that were loaded, but did not count.
    pub missing: Vec<String>,
}

impl Counted {
    /// Instructions that this run has executed and `other` has not, or the other way round.
    pub fn difference(&self, other: &Counted) -> u64 {
        let block = |(block, (a, b)): (&CountedBlock, (&u64, &u64))| a.abs_diff(*b).saturating_mul(block.insns.into());
        let module = |m: &ModuleCounts| match other.modules.iter().find(|o| o.original == m.original) {
            Some(o) => m.table.blocks.iter().zip(m.counts.iter().zip(&o.counts)).map(block).sum(),
            None => m.instructions(),
        };
        let only = other.modules.iter().filter(|o| self.modules.iter().all(|m| m.original != o.original));
        self.modules.iter().map(module).sum::<u64>() + only.map(ModuleCounts::instructions).sum::<u64>()
    }
}

/// Runs `program`, rewritten from `original` so that it counts blocks, and reads the counters.
///
/// # Errors
/// It cannot be started, or what it counted makes no sense.
pub fn count(program: &Path, original: &Path, job: &MeasuredJob, signals: &mut Signals) -> Result<Counted> {
    let failed = |e: std::io::Error| Error::new("cannot set up the counters of basic blocks").because(e);
    let file =
        File::from(rustix::fs::memfd_create("blizzard-blocks", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?);
    let header = [BLOCKS_MAGIC, FILE_BYTES, BLOCKS_PAGE_BYTES].map(u64::to_ne_bytes).concat();
    file.set_len(FILE_BYTES).and_then(|()| file.write_all_at(&header, 0)).map_err(failed)?;
    let region = RegionFile::create(&LaunchOptions::default())?;
    // Numbers of the same length in each run: the strings of the environment lie on the stack, and string functions go other ways
    // for other alignments.
    let high = |fd: BorrowedFd| rustix::io::fcntl_dupfd_cloexec(fd, LOWEST_FD).map_err(|e| failed(e.into()));
    let (region_fd, file_fd) = (high(region.as_fd())?, high(file.as_fd())?);
    let fds = [region_fd.as_raw_fd(), file_fd.as_raw_fd()];
    let boot = format!("fd={},node=0,blocks={}", fds[0], fds[1]);
    let run = job.run(program, signals, &Extra { inherit: &fds, env: Some((BOOT_ENV, boot)), terminal: None })?;
    let (modules, missing) = read(&file, program, original)?;
    Ok(Counted { run, modules, runtime: region.report(0), missing })
}

/// Reads all records. A library that was loaded several times is one module.
fn read(file: &File, program: &Path, original: &Path) -> Result<(Vec<ModuleCounts>, Vec<String>)> {
    let failed = |e: std::io::Error| Error::new("cannot read the counters of basic blocks").because(e);
    let word = |at: u64| -> Result<u64> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).map_err(failed)?;
        Ok(u64::from_ne_bytes(bytes))
    };
    let mut modules: Vec<ModuleCounts> = Vec::new();
    let mut by_path: BTreeMap<PathBuf, usize> = BTreeMap::new();
    let mut missing = Vec::new();
    let (mut at, end) = (BLOCKS_PAGE_BYTES, word(16)?.min(FILE_BYTES));
    while at < end {
        let bytes = word(at)?;
        let mut path = [0u8; BLOCKS_PAGE_BYTES as usize - offset_of!(BlocksRecord, path)];
        file.read_exact_at(&mut path, at + offset_of!(BlocksRecord, path) as u64).map_err(failed)?;
        let path = path.split(|&b| b == 0).next().unwrap_or_default();
        let is_program = path.is_empty() && modules.is_empty();
        let path = if is_program { program.to_owned() } else { PathBuf::from(OsStr::from_bytes(path)) };
        let attached = word(at + offset_of!(BlocksRecord, attached) as u64)? == 1;
        let counters = at + BLOCKS_PAGE_BYTES;
        at = counters.saturating_add(bytes.next_multiple_of(BLOCKS_PAGE_BYTES));
        if !attached || bytes == 0 || at > end {
            missing.push(path.display().to_string());
            continue;
        }
        let mut raw = vec![0; bytes as usize];
        file.read_exact_at(&mut raw, counters).map_err(failed)?;
        let counts = raw.chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().expect("eight bytes")));
        if let Some(&known) = by_path.get(&path) {
            modules[known].counts.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more);
            continue;
        }
        let table = table_of(&path)?;
        if table.blocks.len() != bytes as usize / 8 {
            return Err(Error::new(format!("{}: has not the blocks that were counted", path.display())));
        }
        let file = if is_program { original.to_owned() } else { PathBuf::from(&table.path) };
        by_path.insert(path, modules.len());
        modules.push(ModuleCounts { original: file, counts: counts.collect(), table });
    }
    if modules.is_empty() {
        return Err(Error::new(format!("{}: ended before anything was counted", program.display())));
    }
    Ok((modules, missing))
}

fn table_of(path: &Path) -> Result<BlockTable> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(|e| Error::new(format!("{name}: cannot be read again")).because(e))?;
    let elf = object::File::parse(bytes.as_slice()).map_err(|e| Error::new(format!("{name}: damaged")).because(e))?;
    let section = elf.section_by_name(SECTION).and_then(|s| s.data().ok());
    BlockTable::parse(section.ok_or_else(|| Error::new(format!("{name}: does not count blocks")))?)
}
