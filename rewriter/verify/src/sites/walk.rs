//! Walking both ways through an inserted sequence: the hot one to the instruction behind it, and the cold stubs to all their ways out.
//!
//! Input: the decoded text and cold code, where a sequence begins. Output: [`Hot`], [`Exit`]s. Both ways are executed symbolically. **Invariant**: what is no
//! inserted code ends the hot way, and is an error in a stub, unless it does there what the guarded instruction does.
//! Source: `rewriter/SEQUENCES.md`, "The check sequences", "Guarded code".

use crate::decode::effects::{Flow, Touch};
use crate::decode::insn::{Insn, Mem, NO_TARGET, PREFIXED};
use crate::sites::gates::Gate;
use crate::sites::site::{Context, Hot};
use crate::sites::symbolic::{Cond, SymbolicState, WalkStep};
use blizzard_contract as contract;

/// Longest inserted sequence and longest cold stub, in instructions.
pub(crate) const LONGEST: usize = 64;

/// One way out of a cold stub.
pub(crate) struct Exit {
    pub(crate) state: SymbolicState,
    /// Address jumped to, and from where.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) gate: Option<Gate>,
    /// Conditions on the way, with the outcome.
    pub(crate) path: Vec<(Cond, bool)>,
    /// Registers that do not hold their values somewhere before the first condition.
    pub(crate) touched: u16,
    /// The instruction that does in the stub what the guarded one does, where the way ends with one; `to` is where it goes on.
    pub(crate) performed: Option<Insn>,
}

/// Whether two instructions do the same, but for a segment's prefix, as far as their records say.
fn does_the_same(a: &Insn, b: &Insn) -> bool {
    let mem = |i: &Insn| i.mem.map(|m| Mem { seg: 0, ..m });
    let what = |i: &Insn| (i.op, i.ext, i.size, i.imm, i.bits & !PREFIXED, i.r0, i.r1, i.r0_bytes);
    a.touch != Touch::None && a.flow == b.flow && what(a) == what(b) && mem(a) == mem(b)
}

/// Follows the fall-through way from `start` until an instruction that is no inserted code. `None` when the
/// way does not pass `probe` or ends in the middle of an undo. `alone`: one test, which is about no access.
pub(crate) fn walk_hot(cx: &Context, start: usize, probe: usize, alone: bool) -> Option<Hot> {
    let text = cx.text;
    let mut state = SymbolicState::new(cx.guard);
    let mut hot = Hot {
        access: start,
        state: SymbolicState::new(cx.guard),
        passed: Vec::new(),
        colds: Vec::new(),
        joins: Vec::new(),
        touched: 0,
    };
    let mut k = start;
    while k < text.insns.len() && k < start + LONGEST {
        let i = &text.insns[k];
        if hot.ends_with_test(alone) && !state.undo_pending() {
            break;
        }
        if k > start && i.va != text.insns[k - 1].end() {
            return None;
        }
        if !hot.passed.is_empty() && !state.undo_pending() {
            hot.joins.push((i.va, hot.passed.len()));
        }
        let mut next = state.clone();
        match next.step(i) {
            WalkStep::Next => {}
            WalkStep::Branch { cc, target } => {
                let cond = state.cond?;
                // Taken on "not zero / not equal" for tags, polls and lanes; on "equal" for the range test; on "clear" for the bit. Tags of guarded code allow
                // what is not zero, or not below a number.
                let expected = match cond {
                    Cond::Tag { .. } if cx.guard => 4,
                    Cond::Level { .. } => 2,
                    Cond::Range { .. } => 4,
                    Cond::Private { .. } => 3,
                    _ => 5,
                };
                if cc != expected {
                    return None;
                }
                let mut cold = state.clone();
                cold.cond = None;
                next.cond = None;
                hot.colds.push((cold, target, cond, i.va));
                hot.passed.push(cond);
            }
            // A test in cold code: behind it the carry flag leads behind the prefix of the access.
            WalkStep::Call(target) if cx.guard && k == probe && cx.cold.contains(target) => {
                let jc = text.insns.get(k + 1).filter(|jc| jc.op == 0x72 && jc.va == i.end())?;
                if jc.target != jc.end() + 1 || !hot.passed.is_empty() {
                    return None;
                }
                hot.colds.push((next, target, Cond::Called, i.va));
                hot.passed.push(Cond::Called);
                // What it leaves changed is judged where it returns.
                state = SymbolicState::new(cx.guard);
                state.clobber_flags(0);
                k += 2;
                break;
            }
            _ => break,
        }
        state = next;
        hot.touched |= state.dirty();
        k += 1;
    }
    if k <= probe || hot.passed.is_empty() || state.fault.is_some() {
        return None;
    }
    // A way that ends inside an undo did not start at the beginning.
    let access = text.insns.get(k)?;
    if !hot.ends_with_test(alone) && access.touch == Touch::None {
        return None;
    }
    if state.rsp() != Some(0) || state.limit.is_some() {
        return None;
    }
    hot.access = k;
    hot.state = state;
    Some(hot)
}

/// Follows a cold stub to all its ways out. `access`: the guarded instruction, where the stub may do itself what it does.
pub(crate) fn walk_cold(
    cx: &Context,
    access: Option<&Insn>,
    state: SymbolicState,
    target: u64,
    used: &mut Vec<usize>,
) -> Result<Vec<Exit>, String> {
    let mut exits: Vec<Exit> = Vec::new();
    let mut work = vec![(state, target, Vec::new(), None::<Gate>)];
    let mut touched = 0;
    while let Some((mut state, va, mut path, mut gate)) = work.pop() {
        let mut k =
            cx.cold.at(va).ok_or_else(|| format!("cold branch to {va:#x}, which begins no cold instruction"))?;
        let mut steps = 0;
        loop {
            let Some(i) = cx.cold.insns.get(k) else { return Err("cold stub runs off the section".into()) };
            steps += 1;
            if steps > LONGEST || exits.len() > 8 || work.len() > 8 {
                return Err(format!("cold stub at {target:#x} has no end"));
            }
            used.push(k);
            if access.is_some_and(|access| does_the_same(access, i)) {
                let on = cx.cold.insns.get(k + 1).filter(|on| on.va == i.end() && on.flow == Flow::Jump);
                let to = match (i.flow, on) {
                    (Flow::JumpInd, _) => NO_TARGET,
                    (_, Some(on)) => on.target,
                    _ => return Err(format!("the stub does not go on behind what it does at {:#x}", i.va)),
                };
                used.extend((to != NO_TARGET).then_some(k + 1));
                exits.push(Exit { state, from: i.va, to, gate, path, touched, performed: Some(*i) });
                break;
            }
            let cond = state.cond;
            let step = state.step(i);
            if path.is_empty() {
                touched |= state.dirty();
            }
            match step {
                WalkStep::Next => {}
                WalkStep::Branch { cc, target: to } => {
                    let Some(cond) = cond else { return Err("unexpected branch in a cold stub".into()) };
                    let taken_means = match (cond, cc) {
                        (Cond::Straddle { .. }, 7) => true,                       // ja: not within one block
                        (Cond::Tag { .. }, 4) => !cx.guard,                       // jz: accessible
                        (Cond::Tag { .. }, 5) => cx.guard,                        // jnz: not accessible
                        (Cond::Poll, 5) if cx.guard => true,                      // jne: rung
                        (Cond::Level { level: 0, .. }, 5) if cx.guard => true,    // jne: shared
                        (Cond::Level { level: 1.., .. }, 2) if cx.guard => false, // jb: not accessible
                        (Cond::Level { level: 0, .. }, 4) if cx.guard => false,   // je: private
                        _ => return Err(format!("unexpected branch at {:#x} in a cold stub", i.va)),
                    };
                    let mut taken = state.clone();
                    if cc == 2 {
                        (taken.carry, state.carry) = (Some(true), Some(false));
                    }
                    taken.cond = None;
                    state.cond = None;
                    let mut taken_path = path.clone();
                    taken_path.push((cond, taken_means));
                    path.push((cond, !taken_means));
                    if cx.cold.contains(to) {
                        work.push((taken, to, taken_path, gate.clone()));
                    } else {
                        exits.push(Exit {
                            state: taken,
                            from: i.va,
                            to,
                            gate: gate.clone(),
                            path: taken_path,
                            touched,
                            performed: None,
                        });
                    }
                }
                WalkStep::Jump(to) => {
                    if cx.cold.contains(to) {
                        work.push((state, to, path, gate));
                    } else {
                        exits.push(Exit { state, from: i.va, to, gate, path, touched, performed: None });
                    }
                    break;
                }
                // Stubs share their tails.
                WalkStep::Call(to) | WalkStep::Return(to) => {
                    state.cond = None;
                    if let Some(fault) = state.fault {
                        return Err(format!("cold stub {fault} at {:#x}", i.va));
                    }
                    if matches!(step, WalkStep::Return(_)) && !cx.cold.contains(to) {
                        exits.push(Exit { state, from: i.va, to, gate, path, touched, performed: None });
                        break;
                    }
                    k = cx.cold.at(to).ok_or_else(|| format!("call or return to {to:#x}, no cold instruction"))?;
                    continue;
                }
                WalkStep::Gate(address) => {
                    if gate.is_some() {
                        return Err(format!("second gate call at {:#x}", i.va));
                    }
                    let lowered = state.rsp().ok_or("rsp lost in a cold stub")?;
                    if lowered > -128 {
                        return Err(format!("gate call at {:#x} inside the red zone", i.va));
                    }
                    let (top, below) = (state.slot(lowered), state.slot(lowered + 8));
                    gate = Some(Gate { at: i.va, address, top, below, lowered, state: state.clone() });
                    state.popped(match address {
                        contract::GATE_MISS => 16,
                        contract::GATE_STRING | contract::GATE_VSIB | contract::GATE_GROUP => 8,
                        contract::GATE_POLL => 0,
                        _ => return Err(format!("call of an unknown gate {address:#x} at {:#x}", i.va)),
                    });
                    (state.cond, state.carry, state.limit) = (None, None, None);
                }
                WalkStep::Stop => return Err(format!("unexpected instruction at {:#x} in a cold stub", i.va)),
            }
            if let Some(fault) = state.fault {
                return Err(format!("cold stub {fault} at {:#x}", i.va));
            }
            k += 1;
        }
    }
    Ok(exits)
}
