//! What a jump table is: where it stands, what its entries are, where they lead.
//!
//! Input: what [`crate::graph::table_search`] recognises. Output: the targets of its jump, and the words of the new table. **Invariant**: `own` entries are the
//! table's; what stands behind them is another's, and no jump reads it.

use crate::base::addresses::Vaddr;
use crate::decode::insn::InsnId;

/// What the entries of a table hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// 32-bit signed offsets from an address.
    Offset32 { from: Vaddr },
    /// The same of 64 bits.
    Offset64 { from: Vaddr },
    /// 64-bit addresses.
    Address64,
}

impl Entries {
    /// Bytes of an entry.
    pub fn width(self) -> usize {
        if matches!(self, Entries::Offset32 { .. }) { 4 } else { 8 }
    }

    /// The address where an entry leads.
    pub(super) fn target(self, entry: &[u8]) -> Vaddr {
        let long = || u64::from_le_bytes(entry.try_into().expect("eight bytes"));
        match self {
            Entries::Offset32 { from } => {
                from + i64::from(i32::from_le_bytes(entry.try_into().expect("four bytes"))) as u64
            }
            Entries::Offset64 { from } => from + long(),
            Entries::Address64 => Vaddr(long()),
        }
    }

    /// The bytes of an entry that leads to `to`.
    pub fn write(self, to: Vaddr, out: &mut Vec<u8>) {
        match self {
            Entries::Offset32 { from } => out.extend(((to - from) as i64 as i32).to_le_bytes()),
            Entries::Offset64 { from } => out.extend((to - from).to_le_bytes()),
            Entries::Address64 => out.extend(to.0.to_le_bytes()),
        }
    }

    /// Whether entries are offsets from `va`.
    fn are_from(self, va: Vaddr) -> bool {
        matches!(self, Entries::Offset32 { from } | Entries::Offset64 { from } if from == va)
    }
}

/// Where an entry leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Insn(InsnId),
    /// An address in a section with code, where no instruction is known to begin: the new entry leads there, too.
    Old(Vaddr),
}

impl Goal {
    pub(super) fn insn(&self) -> Option<InsnId> {
        match self {
            Goal::Insn(id) => Some(*id),
            Goal::Old(_) => None,
        }
    }
}

/// A recognised jump table.
#[derive(Clone, Debug)]
pub struct JumpTable {
    pub jump: InsnId,
    /// The instruction that reads the table: its displacement is changed so that it reads the new one.
    pub load: InsnId,
    pub at: Vaddr,
    pub entries: Entries,
    pub targets: Vec<Goal>,
    /// How many of them are this table's: behind them begins another table, which is read relative to another address. No jump reads further; the new
    /// table sends one that did to the old address.
    pub own: usize,
}

impl JumpTable {
    /// The instructions that the jump leads to.
    pub fn own_targets(&self) -> impl Iterator<Item = InsnId> {
        self.targets[..self.own].iter().filter_map(Goal::insn)
    }

    /// The instructions that what stands behind the table's end would lead to.
    pub fn surplus(&self) -> impl Iterator<Item = InsnId> {
        self.surplus_words().iter().filter_map(Goal::insn)
    }

    pub(super) fn surplus_words(&self) -> &[Goal] {
        &self.targets[self.own..]
    }

    /// The targets, those of the jump in other code: `there` says where an instruction is.
    pub fn targets_in(&self, there: impl Fn(InsnId) -> InsnId) -> Vec<Goal> {
        let goal = |(i, goal): (usize, &Goal)| match *goal {
            Goal::Insn(id) if i < self.own => Goal::Insn(there(id)),
            goal => goal,
        };
        self.targets.iter().enumerate().map(goal).collect()
    }

    /// What the entries of the new table lead to: `new` says where an instruction has got to, `old` where it was.
    pub fn words(&self, new: impl Fn(InsnId) -> Vaddr, old: impl Fn(InsnId) -> Vaddr) -> Vec<Vaddr> {
        let word = |(i, goal): (usize, &Goal)| match *goal {
            Goal::Insn(id) if i < self.own => new(id),
            Goal::Insn(id) => old(id),
            Goal::Old(va) => va,
        };
        self.targets.iter().enumerate().map(word).collect()
    }
}

/// The starts of tables whose entries are relative to them; sorted.
pub(super) fn relative_starts(tables: &[JumpTable]) -> Vec<Vaddr> {
    let start = |t: &JumpTable| t.entries.are_from(t.at).then_some(t.at);
    let mut starts: Vec<_> = tables.iter().filter_map(start).collect();
    starts.sort();
    starts.dedup();
    starts
}

/// How many entries stand in front of the next table. One word cannot be an offset from two addresses and mean code both times.
pub(super) fn own_entries(t: &JumpTable, starts: &[Vaddr]) -> usize {
    if !t.entries.are_from(t.at) {
        return t.targets.len();
    }
    let width = t.entries.width() as u64;
    let behind = starts.partition_point(|s| *s <= t.at);
    let next = starts[behind..].iter().find(|s| (**s - t.at).is_multiple_of(width));
    next.map_or(t.targets.len(), |s| t.targets.len().min(((*s - t.at) / width) as usize))
}

/// Most entries of a table.
pub(super) const MAX_ENTRIES: usize = 1 << 16;
