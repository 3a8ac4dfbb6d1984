//! Which calls may return.
//!
//! Input: instructions, frames, what branches where. Output: [`Returns`].
//!
//! Compilers put unrelated code behind a call of a function that never returns. Following the edge to it would make values
//! that are constant look as if they were not. Only the search for jump tables uses this: the code behind every call is emitted, and
//! liveness assumes that every call returns. Which imported functions never return is known by name ([`blizzard_never_return`]). A word
//! that the dynamic loader fills in and then makes read-only is as good as a direct call.
//!
//! A call behind which its frame ends does not return either: its compiler knew, of whatever module the callee is.
//!
//! An instruction *returns* if a return, or a jump to something unknown, can be reached from it; a call returns if its callee and
//! the instruction behind it do. Solved backwards from the returns, so that mutual recursion comes out right.

use crate::base::addresses::Vaddr;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::{Insns, Sources};
use crate::read::frames::FrameInfo;
use crate::read::image::Image;
use iced_x86::OpKind;

/// Where an indirect jump or call leads that goes through a constant word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leads {
    /// To an imported function that never returns.
    Away,
    To(InsnId),
}

/// The instructions from which a return can be reached.
pub struct Returns {
    reached: Vec<bool>,
    /// Sorted by instruction.
    through_words: Vec<(InsnId, Leads)>,
    /// Ends of frames, sorted.
    ends: Vec<Vaddr>,
}

impl Returns {
    /// Solves for a whole module.
    pub fn solve(image: &Image, insns: &Insns, frames: &FrameInfo, sources: &Sources) -> Returns {
        let n = insns.len();
        let mut ends: Vec<Vaddr> = frames.fdes.iter().map(|f| f.end).collect();
        ends.sort();
        let at_end = |call: InsnId| ends.binary_search(&insns.end(call)).is_ok();
        // (next, overlapping instruction)
        let overlapping = (insns.main..n).map(|i| InsnId(i as u32));
        let mut overlapping: Vec<(InsnId, InsnId)> = overlapping.filter_map(|id| Some((insns.next(id)?, id))).collect();
        overlapping.sort_unstable();
        let indirect = insns.ends().filter(|id| matches!(insns.flow(*id), Flow::IndirectCall | Flow::IndirectJmp));
        let through_words: Vec<_> =
            indirect.filter_map(|id| Some((id, leads_through_word(image, insns, id)?))).collect();
        let mut callers: Vec<(InsnId, InsnId)> = through_words
            .iter()
            .filter_map(|(id, leads)| match leads {
                Leads::To(callee) => Some((*callee, *id)),
                Leads::Away => None,
            })
            .collect();
        callers.sort_unstable();
        // Entered not only by branches and from in front.
        let mut odd = vec![0u64; n.div_ceil(64)];
        for id in callers.iter().chain(&overlapping).map(|entered| entered.0) {
            odd[id.ix() / 64] |= 1 << (id.ix() % 64);
        }
        let mut set = vec![false; n];
        let mut work = Vec::new();
        for id in insns.ends() {
            let leaves = match insns.flow(id) {
                Flow::Ret => true,
                Flow::IndirectJmp => leads(&through_words, id).is_none(),
                Flow::Jmp | Flow::Cond => insns.target(id).is_none(),
                Flow::Next | Flow::Call | Flow::IndirectCall | Flow::Stop => false,
            };
            if leaves {
                work.push(id);
            }
        }
        while let Some(mut id) = work.pop() {
            // Most are entered from the one in front alone.
            while !std::mem::replace(&mut set[id.ix()], true) {
                let mut enter = |p: InsnId| {
                    let next_returns = || !at_end(p) && insns.next(p).is_some_and(|n| set[n.ix()]);
                    let ready = match insns.flow(p) {
                        Flow::Call => insns.target(p).is_none_or(|t| set[t.ix()]) && next_returns(),
                        Flow::IndirectCall => match leads(&through_words, p) {
                            None => next_returns(),
                            Some(Leads::To(t)) => set[t.ix()] && next_returns(),
                            Some(Leads::Away) => false,
                        },
                        _ => true,
                    };
                    if ready && !set[p.ix()] {
                        work.push(p);
                    }
                };
                sources.of(id).for_each(&mut enter);
                if odd[id.ix() / 64] >> (id.ix() % 64) & 1 != 0 {
                    for list in [&callers, &overlapping] {
                        let first = list.partition_point(|entered| entered.0 < id);
                        list[first..].iter().take_while(|entered| entered.0 == id).for_each(|entered| enter(entered.1));
                    }
                }
                let Some(before) = id.0.checked_sub(1).map(InsnId).filter(|&p| insns.next(p) == Some(id)) else {
                    break;
                };
                match insns.flow(before) {
                    Flow::Call | Flow::IndirectCall => {
                        enter(before);
                        break;
                    }
                    Flow::Next | Flow::Cond | Flow::Jmp | Flow::IndirectJmp | Flow::Ret | Flow::Stop => id = before,
                }
            }
        }
        Returns { reached: set, through_words, ends }
    }

    /// Whether control may pass behind `call`; true for anything but a call.
    pub fn call_returns(&self, insns: &Insns, call: InsnId) -> bool {
        let goes_on = || self.ends.binary_search(&insns.end(call)).is_err();
        match insns.flow(call) {
            Flow::Call => insns.target(call).is_none_or(|t| self.reached[t.ix()]) && goes_on(),
            Flow::IndirectCall => match leads(&self.through_words, call) {
                None => goes_on(),
                Some(Leads::To(t)) => self.reached[t.ix()] && goes_on(),
                Some(Leads::Away) => false,
            },
            _ => true,
        }
    }
}

fn leads(through_words: &[(InsnId, Leads)], id: InsnId) -> Option<Leads> {
    through_words.binary_search_by_key(&id, |l| l.0).ok().map(|k| through_words[k].1)
}

fn leads_through_word(image: &Image, insns: &Insns, id: InsnId) -> Option<Leads> {
    let insn = insns.decode(image, id);
    if insn.op0_kind() != OpKind::Memory || !insn.is_ip_rel_memory_operand() {
        return None;
    }
    let word = Vaddr(insn.ip_rel_memory_address());
    if image.noreturn_slots.contains(&word) {
        return Some(Leads::Away);
    }
    let at = image.fixed_slots.binary_search_by_key(&word, |s| s.0).ok()?;
    insns.at(image.fixed_slots[at].1).map(Leads::To)
}
