//! Every access of the text is checked, exempt, not requested, or a finding.
//!
//! Input: sites, graph, the accesses that other checks cover ([`crate::judge::code::covered`]); of guarded code plain code, with the sites of both versions, and
//! its version table. Output: counts by class, findings.
//! **Invariant**: each instruction of the text with a data access is in one class.

use crate::audit::Audit;
use crate::decode::effects::Touch;
use crate::decode::insn::{Insn, STACK};
use crate::facts::exempt::{ExemptClass, classify};
use crate::facts::stack::Stack;
use crate::file::module::Module;
use crate::graph::blocks::Graph;
use crate::judge::code::covered::Covered;
use crate::judge::code::stack_tests;
use crate::judge::versions::rows::Needed;
use crate::sites::site::{Context, Site, SiteKind, Sites};
use foldhash::HashMap;

/// Every access of the text is checked, exempt, not requested, or a finding.
pub(crate) fn accesses(
    m: &Module,
    cx: &Context,
    sites: &Sites,
    g: &Graph,
    covered: &Covered,
    mut versions: Option<Needed>,
    audit: &mut Audit,
) {
    let text = cx.text;
    let stack = Stack::new(g, text, sites);
    // In guarded code a stack in shared memory faults.
    if versions.is_none() && (cx.check_loads || cx.check_stores) {
        stack_tests::demand(m, text, sites, g, &stack, audit);
    }
    let about_one = |s: &&Site| s.kind.is_about_access();
    let guarded: HashMap<usize, &Site> =
        sites.list.iter().filter(|s| s.problem.is_none()).filter(about_one).map(|s| (s.access, s)).collect();
    let refused: HashMap<usize, ()> =
        sites.list.iter().filter(|s| s.problem.is_some()).map(|s| (s.access, ())).collect();
    audit.strips = sites.list.iter().filter(|s| s.problem.is_none() && s.kind == SiteKind::Strip).count() as u64;
    audit.polls = sites.list.iter().filter(|s| s.problem.is_none() && s.kind == SiteKind::Poll).count() as u64;
    audit.stack_tests =
        sites.list.iter().filter(|s| s.problem.is_none() && s.kind == SiteKind::StackTest).count() as u64;
    for b in 0..g.starts.len() {
        stack.each(g, text, sites, b, |k, derived| {
            let i = &text.insns[k];
            if i.has(STACK) {
                audit.exempt("implicit-stack");
            }
            if i.touch == Touch::None {
                if i.mem.is_some() {
                    audit.exempt("no-access");
                }
                return;
            }
            if let Some(site) = guarded.get(&k) {
                checked(audit, site, i);
                versions.as_mut().into_iter().for_each(|needed| needed.tested(m, k, audit));
                return;
            }
            if refused.contains_key(&k) {
                return;
            }
            match classify(cx, i, derived) {
                ExemptClass::Open(_) if covered.contains_key(&k) => audit.covered(covered[&k]),
                ExemptClass::Open(_) if versions.as_mut().is_some_and(|needed| needed.untested(m, k, audit)) => {
                    audit.covered("faults");
                }
                ExemptClass::Exempt(why) => audit.exempt(why),
                ExemptClass::NotRequested => audit.not_requested += 1,
                ExemptClass::Open(why) => audit.finding(i.va, m.place(i.va), why),
            }
        });
    }
    if let Some(needed) = versions {
        needed.rest(m, audit);
    }
}

fn checked(audit: &mut Audit, site: &Site, i: &Insn) {
    let c = &mut audit.checked;
    match site.kind {
        SiteKind::String => c.strings += 1,
        SiteKind::Large => c.large += 1,
        SiteKind::Lanes => c.lanes += 1,
        SiteKind::Poll | SiteKind::Strip | SiteKind::StackTest => {}
        SiteKind::Check { straddle } => {
            let writes = match i.touch {
                Touch::Mem(a) => a.writes(),
                _ => true,
            };
            *(if writes { &mut c.stores } else { &mut c.loads }) += 1;
            *(if straddle { &mut c.two_tags } else { &mut c.one_tag }) += 1;
        }
    }
}
