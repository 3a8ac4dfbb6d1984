//! The restart table: each access with a check of its own leads back to the beginning of that check, and nothing else leads anywhere.
//!
//! Input: the table, sites of all versions in their order. Output: findings. Whoever continues at an access without having come from its check goes where the table says; an access that
//! is missing would be made unchecked, one that led elsewhere would go on in the middle of something.
//! Source: `rewriter/SEQUENCES.md`, "Restarts".

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::file::module::Module;
use crate::sites::site::Sites;
use blizzard_contract::restarts::can_begin_again;

/// Compares the table with the sites.
pub(crate) fn compare(m: &Module, code: &[(&Code, &Sites)], audit: &mut Audit) {
    let Some(rows) = m.restarts() else {
        audit.finding(m.text.va, m.place(m.text.va), "the restart table is not in the file, or contradicts itself");
        return;
    };
    let va = |text: &Code, k: usize| text.insns.get(k).map_or(0, |i| i.va);
    let mut expected = code
        .iter()
        .flat_map(|&(text, sites)| {
            let guarded = sites.list.iter().filter(|s| s.kind.is_about_access());
            guarded.map(move |s| (va(text, s.start), va(text, s.access)))
        })
        .peekable();
    let mut rows = rows.into_iter().peekable();
    loop {
        let (at, why) = match (rows.peek(), expected.peek()) {
            (None, None) => return,
            (Some(row), Some(site)) if row == site => {
                rows.next();
                expected.next();
                continue;
            }
            (Some(&(check, access)), site) if site.is_none_or(|site| access <= site.1) => {
                if site.is_some_and(|site| access == site.1) {
                    expected.next();
                }
                rows.next();
                (
                    access,
                    format!("the restart table leads from here to {check:#x}, which is not where a check of it begins"),
                )
            }
            (_, Some(&(_, access))) => {
                expected.next();
                (access, "whoever continues at this access is not led back to its check".to_string())
            }
            (Some(_), None) => unreachable!("the case before takes it"),
        };
        audit.finding(at, m.place(at), why);
    }
}

/// The runtime lets a test of plain code that a signal interrupts begin again where its bytes say that it may. So far it has changed then only what it may leave
/// changed.
pub(crate) fn begin_again(m: &Module, plain: &Code, sites: &Sites, audit: &mut Audit) {
    for s in sites.list.iter().filter(|s| s.kind.is_about_access() && s.problem.is_none()) {
        let (mut registers, mut flags) = (0, 0);
        let begin = plain.insns[s.start].va;
        for i in &plain.insns[s.start..s.access] {
            let done = m.bytes_at(begin, (i.va - begin) as usize);
            if (registers & !s.dirty != 0 || flags & !s.dirty_flags != 0) && done.is_none_or(can_begin_again) {
                audit.finding(i.va, m.place(i.va), "the test may begin again here, where it has changed what lives");
            }
            registers |= i.fx.writes;
            flags |= i.fx.flag_kills;
        }
    }
}
