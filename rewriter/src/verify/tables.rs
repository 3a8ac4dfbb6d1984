//! The new jump tables and the jumps that use them, found in the output alone.
//!
//! Input: module, decoded text, sites. Output: [`Tables`]. A jump's table is read by an instruction near it, whose operand is
//! a constant address of `.blizzard.rodata`, or a register plus a displacement where the register holds an address that
//! the same function forms with `lea`. Entries are absolute, or relative to an address the function forms.
//! Over-approximation is safe here: a surplus target only makes the dataflow more careful.

use super::decode::{Code, Insn, NONE, RIP};
use super::effects::{Access, Flow, Touch};
use super::module::Module;
use super::sites::{Sites, get};
use std::cell::Cell;
use std::collections::HashMap;

/// Most instructions between the read of a table and its jump.
const NEAR: usize = 24;

/// One jump table.
#[derive(Clone, Debug)]
pub struct Table {
    pub va: u64,
    pub targets: Vec<u64>,
}

/// All tables, and the jumps through them.
#[derive(Debug, Default)]
pub struct Tables {
    pub list: Vec<Table>,
    /// Tables by the index of the jump.
    pub by_jump: HashMap<usize, Vec<usize>>,
}

/// How entries are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Relative(u64),
    Absolute,
}

/// A read that may be one of a table.
struct Candidate {
    insn: usize,
    va: u64,
    form: Form,
}

/// Finds them.
pub fn find(m: &Module, text: &Code, sites: &Sites) -> Tables {
    let mut tables = Tables::default();
    let Some(ro) = &m.rodata else { return tables };
    let trap_map = m.info.trap_map_va..m.info.trap_map_va + m.info.trap_count * 8;
    let inside = |va: u64| va.wrapping_sub(ro.va) < ro.data.len() as u64 && !trap_map.contains(&va);
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut jumps: Vec<(usize, usize, usize)> = Vec::new();
    for range in functions(m, text) {
        let skip = |k: usize| get(&sites.inserted, k);
        let here: Vec<usize> = range
            .clone()
            .filter(|&k| !skip(k) && text.insns[k].flow == Flow::JumpInd && !through_constant(&text.insns[k]))
            .collect();
        if here.is_empty() {
            continue;
        }
        let formed: Vec<(usize, u8, u64)> = range
            .clone()
            .filter(|&k| !skip(k))
            .filter_map(|k| formed_address(&text.insns[k]).map(|(r, va)| (k, r, va)))
            .collect();
        let first = candidates.len();
        for k in range.clone().filter(|&k| !skip(k)) {
            reads_of(k, text, &formed, &inside, ro.data, ro.va, &mut candidates);
        }
        jumps.extend(here.iter().map(|&j| (j, first, candidates.len())));
    }
    let mut starts: Vec<u64> = candidates.iter().map(|c| c.va).collect();
    starts.sort_unstable();
    starts.dedup();
    let mut known: HashMap<(u64, Form), usize> = HashMap::new();
    let mut number: Vec<usize> = Vec::with_capacity(candidates.len());
    for c in &candidates {
        number.push(*known.entry((c.va, c.form)).or_insert_with(|| {
            let next = starts.partition_point(|&s| s <= c.va);
            let mut limit = starts.get(next).copied().unwrap_or(ro.va + ro.data.len() as u64);
            if c.va < trap_map.start {
                limit = limit.min(trap_map.start);
            }
            let data = &ro.data[(c.va - ro.va) as usize..(limit - ro.va) as usize];
            tables.list.push(Table {
                va: c.va,
                targets: entries(data, c.form).take_while(|&t| text.at(t).is_some()).collect(),
            });
            tables.list.len() - 1
        }));
    }
    for (jump, from, to) in jumps {
        let all = &candidates[from..to];
        let near = |k: usize| all.iter().filter(move |c| c.insn == k).count() > 0;
        let read = (jump.saturating_sub(NEAR)..=jump).rev().find(|&k| near(k));
        let used: Vec<usize> = (from..to)
            .filter(|&c| read.is_none_or(|k| candidates[c].insn == k))
            .map(|c| number[c])
            .filter(|&t| !tables.list[t].targets.is_empty())
            .collect();
        if !used.is_empty() {
            tables.by_jump.insert(jump, used);
        }
    }
    tables
}

/// A jump through the GOT or a PLT entry.
pub fn through_constant(i: &Insn) -> bool {
    i.mem.is_some_and(|m| m.index == NONE && matches!(m.base, NONE | RIP))
}

/// Instruction ranges of the functions.
fn functions(m: &Module, text: &Code) -> Vec<std::ops::Range<usize>> {
    let ranges: Vec<(u64, u64)> = if m.functions.is_empty() {
        m.symbols.iter().filter(|s| s.bytes > 0).map(|s| (s.va, s.va + s.bytes)).collect()
    } else {
        m.functions.clone()
    };
    ranges.iter().map(|r| text.lower_bound(r.0)..text.lower_bound(r.1)).filter(|r| !r.is_empty()).collect()
}

/// A register and the constant address an instruction puts into it.
fn formed_address(i: &Insn) -> Option<(u8, u64)> {
    match (&i.mem, i.op) {
        (Some(m), 0x8d) if m.base == RIP => Some((i.r0, m.disp as u64)),
        (None, 0xb8..=0xbf | 0xc7) if i.imm > 0xffff => Some((i.r0, i.imm as u64)),
        _ => None,
    }
}

fn entries(data: &[u8], form: Form) -> Box<dyn Iterator<Item = u64> + '_> {
    let word = |c: &[u8]| u64::from(u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    match form {
        Form::Relative(base) => {
            Box::new(data.chunks_exact(4).map(move |c| base.wrapping_add(word(c) as u32 as i32 as u64)))
        }
        Form::Absolute => Box::new(data.chunks_exact(8).map(move |c| word(c) | word(&c[4..]) << 32)),
    }
}

/// Adds the tables that an instruction may read.
fn reads_of(
    k: usize,
    text: &Code,
    formed: &[(usize, u8, u64)],
    inside: &impl Fn(u64) -> bool,
    data: &[u8],
    data_va: u64,
    out: &mut Vec<Candidate>,
) {
    let i = &text.insns[k];
    let Some(m) = &i.mem else { return };
    if i.touch != Touch::Mem(Access::Load) || m.seg != 0 || !matches!(i.size, 4 | 8) || m.base == RIP {
        return;
    }
    // How many entries from `va` on lead to instructions.
    let fits = |va: u64, form: Form| match inside(va) {
        true => entries(&data[(va - data_va) as usize..], form).take(256).take_while(|&t| text.at(t).is_some()).count(),
        false => 0,
    };
    let best: Cell<Option<(usize, u64, Form)>> = Cell::new(None);
    let consider = |va: u64, form: Form| {
        let n = fits(va, form);
        if n > best.get().map_or(0, |b| b.0) {
            best.set(Some((n, va, form)));
        }
    };
    if m.base == NONE || m.index == NONE {
        // A constant in the displacement; an unscaled index may stand where the base would.
        let va = m.disp as u64;
        match i.size {
            8 => consider(va, Form::Absolute),
            _ => std::iter::once(va).chain(formed.iter().map(|f| f.2)).for_each(|b| consider(va, Form::Relative(b))),
        }
    }
    if m.base != NONE && best.get().is_none() {
        // The last address formed in one of the operand's registers before the read, then behind it, then the best of all.
        // Entries are nearly always relative to the same address: other bases are tried only when that fits nowhere.
        let of_operand = |f: &&(usize, u8, u64)| f.1 == m.base || (m.scale == 1 && f.1 == m.index);
        let before = formed.iter().rev().filter(|f| f.0 < k).filter(of_operand);
        let after = formed.iter().filter(|f| f.0 > k).filter(of_operand);
        let one_by_one = before.chain(after).map(|f| (std::slice::from_ref(f), &[][..]));
        for (addresses, bases) in one_by_one.chain([(formed, &[][..]), (formed, formed)]) {
            for f in addresses {
                let va = f.2.wrapping_add(m.disp as u64);
                if i.size == 8 {
                    consider(va, Form::Absolute);
                } else if inside(va) {
                    let own = [f.2, va];
                    own.into_iter().chain(bases.iter().map(|b| b.2)).for_each(|b| consider(va, Form::Relative(b)));
                }
            }
            if best.get().is_some() {
                break;
            }
        }
    }
    if let Some((_, va, form)) = best.get() {
        out.push(Candidate { insn: k, va, form });
    }
}
