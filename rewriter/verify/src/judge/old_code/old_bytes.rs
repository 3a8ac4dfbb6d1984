//! Every byte of old code: it belongs to an instruction, and is a trap or a springboard now; or it is padding; or it is as it was.

use crate::audit::{Audit, ByteCounts};
use crate::decode::decoder::{self};
use crate::decode::insn::NO_TARGET;
use crate::judge::old_code::comparison::OriginalComparison;
use crate::judge::old_code::springboards::Old;
use blizzard_contract as contract;

const TRAP: u8 = 0xcc;
impl OriginalComparison<'_, '_> {
    /// Every old byte.
    pub(super) fn bytes(&self, old: &Old, list: &[(u64, u64)], audit: &mut Audit) {
        let mut counts = ByteCounts::default();
        for s in &self.original.exec {
            let Some(now) = self.m.bytes_at(s.va, s.data.len()) else {
                audit.finding(s.va, s.name.clone(), "the section is not in the output");
                continue;
            };
            let n = s.data.len();
            let (mut code, mut board) = (vec![false; n], vec![false; n]);
            let end = s.va + n as u64;
            let within =
                |list: &[(u64, u64)]| list.partition_point(|p| p.0 < s.va)..list.partition_point(|p| p.0 < end);
            for &(va, _) in &list[within(list)] {
                let at = (va - s.va) as usize;
                let len = self.insns.get(&va).map_or(1, |i| usize::from(i.len));
                code[at..(at + len).min(n)].fill(true);
                counts.instructions += 1;
            }
            for &(va, bytes) in &old.pieces[within(&old.pieces)] {
                let at = (va - s.va) as usize;
                board[at..(at + bytes as usize).min(n)].fill(true);
            }
            if self.m.info.flags & contract::module_flags::JUMPS != 0
                && let Some(va) = mixed(s.va, now, &code, &board, &list[within(list)])
            {
                let why = "a byte of data looks like a trap byte right behind an instruction, where the runtime may write a jump";
                audit.finding(va, self.m.place(va), why);
            }
            let mut k = 0;
            while k < n {
                let from = k;
                let gone = |k: usize| board[k] || now[k] == TRAP;
                if code[k] {
                    while k < n && code[k] {
                        counts.springboard += u64::from(board[k]);
                        counts.trap += u64::from(!board[k] && now[k] == TRAP);
                        if !gone(k) {
                            let va = s.va + k as u64;
                            audit.finding(va, self.m.place(va), "a byte of a relocated instruction is still there");
                        }
                        k += 1;
                    }
                    continue;
                }
                if now[k] == s.data[k] && !board[k] {
                    while k < n && !code[k] && !board[k] && now[k] == s.data[k] {
                        k += 1;
                    }
                    counts.kept += (k - from) as u64;
                    counts.kept_runs += 1;
                    continue;
                }
                while k < n && !code[k] && (board[k] || now[k] != s.data[k] || now[k] == TRAP) {
                    k += 1;
                }
                counts.padding += (k - from) as u64;
                if let Some(other) = (from..k).find(|&k| !gone(k)) {
                    let va = s.va + other as u64;
                    let why = "a byte of padding became neither a trap byte nor a part of a springboard";
                    audit.finding(va, self.m.place(va), why);
                }
                // What stands behind the last instruction up to the end of the run must be padding, as a whole.
                if !is_padding(&s.data[from..k], s.va + from as u64) {
                    let va = s.va + from as u64;
                    let why = format!("{} bytes that belong to no relocated instruction were overwritten", k - from);
                    audit.finding(va, self.m.place(va), why);
                }
            }
        }
        audit.bytes = Some(counts);
    }
}

/// Where a byte stands that looks like a trap byte and may be one of data, so near behind the beginning of an instruction that a `jmp rel32` there would have it.
/// `code`: bytes of instructions, `board`: those of springboards; `begins`: where instructions begin, ascending. What looks like trap bytes up to the next code, or
/// up to the next multiple of eight, is padding.
fn mixed(from: u64, now: &[u8], code: &[bool], board: &[bool], begins: &[(u64, u64)]) -> Option<u64> {
    begins.iter().find_map(|&(va, _)| {
        let at = (va - from) as usize;
        let is_trap = |k: &usize| now[*k] == TRAP && !board[*k];
        // Behind other bytes than trap bytes nothing is written.
        let end = (at..(at + 5).min(now.len())).find(|k| !is_trap(k) || !code[*k])?;
        if !is_trap(&end) {
            return None;
        }
        let padding_ends = (end..now.len()).find(|k| code[*k] || !is_trap(k)).unwrap_or(now.len());
        let at_code = padding_ends == now.len() || code[padding_ends] || board[padding_ends];
        let certain = ((from + end as u64).next_multiple_of(8) - from) as usize;
        (!at_code && certain < padding_ends.min(at + 5)).then_some(from + certain as u64)
    })
}
/// Bytes that decode as no-operations and breakpoints.
fn is_padding(bytes: &[u8], va: u64) -> bool {
    let code = decoder::decode(bytes, va, &[]);
    code.undecoded.is_empty()
        && code.insns.iter().all(|i| i.is_nop() || i.is_int3())
        && code.insns.last().is_none_or(|i| i.end() == va + bytes.len() as u64 && i.target == NO_TARGET)
}
