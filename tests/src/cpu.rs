//! Which instruction-set extensions this processor has, by their names in `/proc/cpuinfo`.

use std::collections::HashSet;
use std::sync::OnceLock;

/// The names in `wanted` that this processor lacks.
pub fn missing(wanted: &[String]) -> Vec<String> {
    static FLAGS: OnceLock<HashSet<String>> = OnceLock::new();
    let flags = FLAGS.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("flags")).unwrap_or("");
        line.trim_start_matches([' ', '\t', ':']).split_whitespace().map(String::from).collect()
    });
    wanted.iter().filter(|w| !flags.contains(*w)).cloned().collect()
}
