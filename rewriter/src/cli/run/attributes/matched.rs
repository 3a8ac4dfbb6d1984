//! What the rules of a run have matched.
//!
//! Input: what the nodes have counted. Output: allocations and bytes of each rule; the rules that matched none, with the nearest site that
//! has allocated.

use crate::cli::run::attributes::file::{AllocSite, AttributeRule, AttributeRules};
use crate::cli::run::attributes::sites::{CallSites, SourceCall, is_end_of};
use crate::launch::region::Matched;
use crate::launch::stats::RuleStats;

/// What each rule has matched, in the order of the file. Empty if it is not known.
pub fn stats(rules: &AttributeRules, matched: &Matched) -> Vec<RuleStats> {
    let of = |(rule, &[allocations, bytes]): (&AttributeRule, &[u64; 2])| {
        let (site, attributes) = (rule.text.clone(), rule.attributes.clone());
        RuleStats { line: rule.line, site, attributes, allocations, bytes }
    };
    rules.rules.iter().zip(&matched.rules).map(of).collect()
}

/// A line for each rule that has matched no allocation.
pub fn unmatched(rules: &AttributeRules, sites: &CallSites, matched: &Matched) -> Vec<String> {
    let stats = stats(rules, matched);
    let missed = || stats.iter().zip(&rules.rules).filter(|(stats, _)| stats.allocations == 0);
    if missed().next().is_none() {
        return Vec::new();
    }
    let calls: Vec<SourceCall> = matched.sites.iter().filter_map(|&name| sites.call_at(name)).collect();
    let tell = |(_, rule): (&RuleStats, &AttributeRule)| {
        let near = nearest(&rule.site, &calls);
        let near = near.map_or_else(
            || "no other site has allocated either".to_owned(),
            |near| format!("the nearest site that has allocated is {near}"),
        );
        let what = match rule.site {
            AllocSite::Order(_) => "no node has allocated so often".to_owned(),
            _ => format!("no allocation was made there, or other rules decided; {near}"),
        };
        format!("{}:{}: {}: {what}", rules.file, rule.line, rule.text)
    };
    missed().map(tell).collect()
}

/// The call that is most like the site.
fn nearest<'x>(site: &AllocSite, calls: &'x [SourceCall]) -> Option<&'x SourceCall> {
    let likeness = |call: &&SourceCall| {
        let of_name = |name: &str| (1000.0 * strsim::normalized_damerau_levenshtein(name, &call.function)) as u64;
        match (site, &call.line) {
            (AllocSite::Line(file, line), Some((path, there))) if is_end_of(file, path) => {
                u64::MAX - u64::from(line.abs_diff(*there))
            }
            (AllocSite::Function(name), _) => of_name(name),
            _ => 0,
        }
    };
    calls.iter().max_by_key(likeness)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_line_of_the_file_is_nearest() {
        let call = |function: &str, path: &str, line| SourceCall {
            function: function.into(),
            line: Some((path.into(), line)),
        };
        let calls = [call("f", "/x/a.c", 10), call("main", "/x/a.c", 30), call("g", "/x/b.c", 22)];
        assert_eq!(nearest(&AllocSite::Line("a.c".into(), 22), &calls), Some(&calls[1]));
        assert_eq!(nearest(&AllocSite::Function("mian".into()), &calls), Some(&calls[1]));
        assert_eq!(nearest(&AllocSite::Line("a.c".into(), 22), &[]), None);
    }
}
