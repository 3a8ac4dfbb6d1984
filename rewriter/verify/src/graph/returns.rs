//! Which calls do not come back.
//!
//! Input: module, decoded text, sites. Output: [`Returns`]. A function comes back when from its entry a return, a jump to an
//! unknown place, or a jump to another function that comes back can be reached; a call behind which its function ends does not.
//! What the module imports is known by name: functions whose standards say that they never return. A word that the dynamic loader
//! fills in and then makes read-only (PT_GNU_RELRO) is as good as a direct call.

use crate::decode::decoder::Code;
use crate::decode::effects::Flow;
use crate::decode::insn::{Insn, NO_TARGET, through_constant};
use crate::file::module::Module;
use crate::sites::site::{Sites, get};

/// Bitmap of calls, by instruction, that do not come back.
pub struct Returns(Vec<u64>);

impl Returns {
    /// Follows the calls and jumps of the text. `new_address`: where an address leads, an old or a new one.
    pub fn solve(m: &Module, text: &Code, sites: &Sites, new_address: impl Fn(u64) -> Option<u64>) -> Returns {
        let n = text.insns.len();
        let own = |k: usize| !get(&sites.inserted, k);
        // What a branch leads to, if that is decoded code.
        let led_to = |i: &Insn| match i.flow {
            Flow::CallInd | Flow::JumpInd if through_constant(i) => {
                let slot = i.mem.map(|mem| mem.disp as u64)?;
                let at = m.fixed_slots.binary_search_by_key(&slot, |s| s.0).ok()?;
                text.at(new_address(m.fixed_slots[at].1)?)
            }
            _ if i.target == NO_TARGET => None,
            _ => text.at(i.target),
        };
        let imported = |i: &Insn| {
            through_constant(i)
                && i.mem.is_some_and(|mem| m.never_return_slots.binary_search(&(mem.disp as u64)).is_ok())
        };
        // (target, source) of branches and of calls.
        let (mut branches, mut calls) = (Vec::new(), Vec::new());
        let mut work: Vec<u32> = Vec::new();
        for (k, i) in text.insns.iter().enumerate().filter(|(k, _)| own(*k)) {
            match (i.flow, led_to(i)) {
                (Flow::Ret, _) => work.push(k as u32),
                (Flow::Jump | Flow::Cond | Flow::JumpInd, Some(to)) => branches.push((to as u32, k as u32)),
                (Flow::JumpInd, None) if !imported(i) => work.push(k as u32),
                (Flow::Jump | Flow::Cond, None) => work.push(k as u32),
                (Flow::Call | Flow::CallInd, Some(to)) => calls.push((to as u32, k as u32)),
                _ => {}
            }
        }
        branches.sort_unstable();
        calls.sort_unstable();
        let ends_function = |i: &Insn| {
            let f = m.functions.partition_point(|f| f.0 <= i.va);
            m.functions[..f].last().is_some_and(|f| i.end() == f.1)
        };
        let mut reaches = vec![0u64; n / 64 + 1];
        // Direct calls from which, if the callee comes back, a return can be reached.
        let mut behind = vec![0u64; n / 64 + 1];
        let set = |map: &mut [u64], k: usize| map[k / 64] |= 1 << (k % 64);
        while let Some(k) = work.pop() {
            let k = k as usize;
            if get(&reaches, k) {
                continue;
            }
            set(&mut reaches, k);
            let at = |list: &[(u32, u32)]| list.partition_point(|e| (e.0 as usize) < k);
            let to_k = |list: &'_ [(u32, u32)]| -> Vec<u32> {
                list[at(list)..].iter().take_while(|e| e.0 as usize == k).map(|e| e.1).collect()
            };
            work.extend(to_k(&branches));
            // Those calls come back.
            work.extend(to_k(&calls).into_iter().filter(|&c| get(&behind, c as usize)));
            if k == 0 || text.insns[k - 1].end() != text.insns[k].va {
                continue;
            }
            let p = &text.insns[k - 1];
            let goes_on = sites.goes_on(text, k - 1)
                || match p.flow {
                    Flow::Next | Flow::Cond => true,
                    Flow::Call | Flow::CallInd if ends_function(p) => false,
                    Flow::Call | Flow::CallInd => match led_to(p) {
                        Some(callee) => {
                            set(&mut behind, k - 1);
                            get(&reaches, callee)
                        }
                        None => !imported(p),
                    },
                    Flow::Jump | Flow::JumpInd | Flow::Ret | Flow::Stop => false,
                };
            if goes_on {
                work.push(k as u32 - 1);
            }
        }
        let mut never = vec![0u64; n / 64 + 1];
        for (k, i) in text.insns.iter().enumerate().filter(|(k, _)| own(*k)) {
            let lost = match i.flow {
                Flow::Call | Flow::CallInd => led_to(i).map_or(imported(i), |callee| !get(&reaches, callee)),
                _ => continue,
            };
            if lost || ends_function(i) {
                set(&mut never, k);
            }
        }
        Returns(never)
    }

    /// The call at instruction `k` does not come back.
    pub fn never(&self, k: usize) -> bool {
        get(&self.0, k)
    }
}
