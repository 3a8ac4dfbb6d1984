//! Where tables stand in a rewritten file.
//!
//! Input: module, sites. Output: [`Places`], as offsets in the file.

use crate::file::module::Module;
use crate::sites::site::Sites;
use blizzard_contract as contract;
use blizzard_contract::restarts::Restarts;
use blizzard_contract::trap_map::TrapMap;
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::ops::Range;

/// Where tables stand in the file.
pub struct Places {
    /// What segments map.
    pub(super) segments: Vec<Range<usize>>,
    /// Codes and heads of the trap map and the restart table.
    pub(super) rows: Vec<Range<usize>>,
    /// The same of the version table and the table of redirections.
    pub(super) versions: Vec<Range<usize>>,
    /// Of the module info: addresses of tables without rows.
    pub(super) no_rows: Vec<usize>,
    /// Of the module info: the byte of the flags that says that jumps may be written.
    pub(super) flags: usize,
    /// What stands in front of a library's program headers and has their form.
    pub(super) spare_headers: Range<usize>,
    /// Where chains of ranges begin.
    pub(super) chains: Vec<usize>,
    /// Address of an offset that holds chains, and that offset.
    pub(super) chains_va: (u64, usize),
    /// Where the dynamic symbols begin, and their longer copy.
    pub(super) dynsym: [usize; 2],
    pub(super) claims: Range<usize>,
    pub(super) regions: Range<usize>,
}

impl Places {
    pub fn of(m: &Module, sites: &Sites) -> Places {
        let range = |off: u64, bytes: u64| off as usize..off.saturating_add(bytes) as usize;
        let at = |va: u64, bytes: u64| {
            let found = m.bytes_at(va, usize::try_from(bytes).ok()?)?;
            let at = found.as_ptr() as usize - m.file.as_ptr() as usize;
            Some(at..at + found.len())
        };
        let section = |name: &str| {
            let data = m.sections.iter().find(|s| s.name == name).map_or(m.file, |s| s.data);
            data.as_ptr() as usize - m.file.as_ptr() as usize
        };
        let i = &m.info;
        let heads = |groups: usize, bytes: usize| (groups * bytes) as u64;
        let groups = |rows: u64| heads(TrapMap::groups(rows as usize), size_of::<contract::TrapHead>());
        let restart_heads = heads(Restarts::groups(i.restart_count as usize), size_of::<contract::RestartHead>());
        let rows = [
            at(i.trap_codes_va, i.trap_code_bytes),
            at(i.trap_heads_va, groups(i.trap_count)),
            at(i.restart_codes_va, i.restart_code_bytes),
            at(i.restart_heads_va, restart_heads),
        ];
        let versions = [
            at(i.version_codes_va, i.version_code_bytes),
            at(i.version_heads_va, groups(i.version_count)),
            at(i.redirect_codes_va, i.redirect_code_bytes),
            at(i.redirect_heads_va, groups(i.redirect_count)),
        ];
        let info =
            at(section_va(m, contract::INFO_SECTION), size_of::<contract::ModuleInfo>() as u64).unwrap_or_default();
        let fields: &[(usize, u64)] = &[
            (offset_of!(contract::ModuleInfo, claims_va), i.claim_count),
            (offset_of!(contract::ModuleInfo, regions_va), i.region_count),
        ];
        let empty = fields.iter().filter(|f| f.1 == 0 && !info.is_empty());
        let no_rows = empty.flat_map(|f| info.start + f.0..info.start + f.0 + 8).collect();
        let named = m.regions.iter().map(|r| r.2).chain(sites.list.iter().filter_map(|site| site.chain));
        let chains: BTreeSet<usize> = named.filter_map(|va| at(va, 16)).map(|bytes| bytes.start).collect();
        Places {
            no_rows,
            flags: info.start + offset_of!(contract::ModuleInfo, flags),
            chains: chains.into_iter().collect(),
            chains_va: m
                .sections
                .iter()
                .find(|s| s.name == ".blizzard.rodata")
                .map_or((0, 0), |s| (s.va, section(&s.name))),
            spare_headers: spare_headers(m, at(i.phdr_va, 56 * i.phdr_count).unwrap_or_default()),
            segments: m.segments.iter().map(|s| range(s.file_off, s.file_bytes)).collect(),
            rows: rows.into_iter().flatten().collect(),
            versions: versions.into_iter().flatten().collect(),
            dynsym: [".dynsym", ".blizzard.dynsym"].map(section),
            claims: at(i.claims_va, 12 * i.claim_count).unwrap_or_default(),
            regions: at(i.regions_va, 12 * i.region_count).unwrap_or_default(),
        }
    }

    pub(super) fn is_mapped(&self, at: usize) -> bool {
        self.segments.iter().any(|r| r.contains(&at))
    }
}

fn section_va(m: &Module, name: &str) -> u64 {
    m.sections.iter().find(|s| s.name == name).map_or(0, |s| s.va)
}

/// The bytes in front of `named`, which both the ELF header and the module info name, that are program headers as well.
fn spare_headers(m: &Module, named: Range<usize>) -> Range<usize> {
    const HEADER: usize = 56;
    let number = |at: usize| m.file.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b));
    if number(32) as usize != named.start || named.is_empty() {
        return 0..0;
    }
    // A header is one where the same stands in the table that is named: type and flags, place, address.
    let is_named = |at: usize| {
        let all = named.clone().step_by(HEADER);
        all.into_iter().any(|n| [0, 8, 16].iter().all(|k| number(n + k) == number(at + k)))
    };
    let fronts = (1..=named.len() / HEADER).map(|k| named.start.saturating_sub(HEADER * k));
    named.start - HEADER * fronts.take_while(|at| is_named(*at)).count()..named.start
}
