//! Decides for each instruction, and runs the passes over the list of checks, in their order.
//!
//! Input: facts and graph ([`PassInput`]). Output: [`CheckPlan`]. Why a pass runs where it does: the table of [`crate::plan`].

use crate::base::options::{AccessMode, Poll};
use crate::plan::checks::{CheckPlan, Fuel, PassCounts, PassInput, Polls};
use crate::plan::{across, ahead, collect, covered, decide, merge, polls, strips};

/// Runs all passes.
pub fn run(input: &PassInput) -> CheckPlan {
    let options = input.options;
    let mut fuel = Fuel(options.fuel);
    let mut counts = PassCounts::default();
    let polls =
        if options.poll == Poll::Backedge { polls::place(input, &mut fuel, &mut counts) } else { Polls::default() };
    let mut decisions = decide::decide(input);
    input.image.give_back();
    let checks = options.checks.loads() || options.checks.stores();
    // Full versions are entered anywhere, so each access has a test of its own. Plain code that has learnt has copies of loops (`strips::of_guarded`).
    if options.access == AccessMode::Guard && options.merge && options.checks.loads() && options.checks.stores() {
        let code = collect::collect(input, &decisions, &polls);
        merge::stored_later(input.cfg, &code).into_iter().for_each(|id| decisions.ask_to_store(id));
    }
    let apart = !checks || options.access == AccessMode::Guard;
    if apart || !options.merge && !options.across && !options.strips {
        return CheckPlan { decisions, polls, counts, fuel, ..CheckPlan::default() };
    }
    let mut code = collect::collect(input, &decisions, &polls);
    input.image.give_back();
    let strips = if options.strips { strips::run(input, &mut code, &mut fuel) } else { Vec::new() };
    if options.merge {
        counts.merged = merge::run(input.cfg, &mut code, &mut fuel);
    }
    if options.across {
        let widened = if options.ahead { ahead::run(input.cfg, &mut code) } else { Vec::new() };
        let briefs = across::Briefs::of(input.cfg, &code);
        counts.dominated = across::run(input.cfg, &mut code, &briefs, &mut fuel);
        if !widened.is_empty() {
            counts.widened = ahead::narrow(input.cfg, &mut code, &widened);
            // One whose own accesses are known was kept for what turned out to be of no use.
            counts.dominated += across::run(input.cfg, &mut code, &briefs, &mut fuel);
        }
    }
    let plan = covered::run(input.cfg, code, strips, counts, &mut decisions);
    CheckPlan { decisions, polls, fuel, ..plan }
}
