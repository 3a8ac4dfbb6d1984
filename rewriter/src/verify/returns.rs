//! Which calls do not come back.
//!
//! Input: module, decoded text, sites. Output: [`Returns`]. A function comes back when from its entry a return, a jump to an
//! unknown place, or a jump to another function that comes back can be reached; a call behind which its function ends does not.
//! What the module imports is known by name: functions whose standards say that they never return (C11 7.22.4, POSIX, LSB,
//! Itanium C++ ABI).

use super::decode::{Code, Insn, NO_TARGET};
use super::effects::Flow;
use super::module::Module;
use super::sites::{Sites, get};
use super::tables::through_constant;

/// Imported functions that never return.
const NEVER: &[&str] = &[
    "_Exit",
    "_Unwind_Resume",
    "_ZSt9terminatev",
    "__assert",
    "__assert_fail",
    "__assert_perror_fail",
    "__chk_fail",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_rethrow",
    "__cxa_throw",
    "__cxa_throw_bad_array_new_length",
    "__fortify_fail",
    "__libc_fatal",
    "__libc_start_main",
    "__longjmp_chk",
    "__stack_chk_fail",
    "_exit",
    "_longjmp",
    "abort",
    "err",
    "errx",
    "exit",
    "longjmp",
    "pthread_exit",
    "quick_exit",
    "siglongjmp",
    "svc_exit",
    "thrd_exit",
    "verr",
    "verrx",
];

/// Whether a function of this name never returns.
pub fn never_returns(name: &str) -> bool {
    NEVER.binary_search(&name).is_ok() || (name.starts_with("_ZSt") && name.contains("__throw_"))
}

/// Bitmap of calls, by instruction, that do not come back.
pub struct Returns(Vec<u64>);

impl Returns {
    /// Follows the calls and jumps of the text.
    pub fn solve(m: &Module, text: &Code, sites: &Sites) -> Returns {
        let n = text.insns.len();
        let own = |k: usize| !get(&sites.inserted, k);
        let imported = |i: &Insn| {
            through_constant(i)
                && i.mem.is_some_and(|mem| m.never_return_slots.binary_search(&(mem.disp as u64)).is_ok())
        };
        // (target, source) of branches and of calls.
        let (mut branches, mut calls) = (Vec::new(), Vec::new());
        let mut work: Vec<u32> = Vec::new();
        for (k, i) in text.insns.iter().enumerate().filter(|(k, _)| own(*k)) {
            let to = if i.target == NO_TARGET { None } else { text.at(i.target) };
            match (i.flow, to) {
                (Flow::Ret, _) => work.push(k as u32),
                (Flow::JumpInd, _) if !imported(i) => work.push(k as u32),
                (Flow::Jump | Flow::Cond, None) => work.push(k as u32),
                (Flow::Jump | Flow::Cond, Some(to)) => branches.push((to as u32, k as u32)),
                (Flow::Call, Some(to)) => calls.push((to as u32, k as u32)),
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
            let goes_on = !own(k - 1)
                || match p.flow {
                    Flow::Next | Flow::Cond => true,
                    Flow::Call | Flow::CallInd if ends_function(p) => false,
                    Flow::Call => match text.at(p.target) {
                        Some(callee) => {
                            set(&mut behind, k - 1);
                            get(&reaches, callee)
                        }
                        None => true,
                    },
                    Flow::CallInd => !imported(p),
                    Flow::Jump | Flow::JumpInd | Flow::Ret | Flow::Stop => false,
                };
            if goes_on {
                work.push(k as u32 - 1);
            }
        }
        let mut never = vec![0u64; n / 64 + 1];
        for (k, i) in text.insns.iter().enumerate().filter(|(k, _)| own(*k)) {
            let lost = match i.flow {
                Flow::Call => text.at(i.target).is_some_and(|callee| !get(&reaches, callee)),
                Flow::CallInd => imported(i),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_for_the_search() {
        assert!(NEVER.is_sorted());
        assert!(never_returns("abort") && never_returns("_ZSt20__throw_length_errorPKc"));
        assert!(!never_returns("fork") && !never_returns("_ZSt4cout"));
    }
}
