//! Where, when and with what was measured.
//!
//! Input: the system's own description. Output: a [`Setting`].

use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a reader needs to judge figures, and to repeat them.
#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    /// The whole command line of `blizzard`.
    pub command_line: String,
    /// Of Blizzard.
    pub version: String,
    /// When measuring began, in UTC.
    pub date: String,
    /// Processor, processors that may be used, kernel, load before the first run.
    pub machine: String,
}

impl Setting {
    /// That of this moment.
    pub fn now(command_line: String, version: String) -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Setting { command_line, version, date: date(seconds), machine: machine() }
    }
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    let processors = match std::thread::available_parallelism().map_or(0, usize::from) {
        1 => "1 processor".to_owned(),
        n => format!("{n} processors"),
    };
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    format!(
        "{model}, {processors}, Linux {}, load {} before",
        kernel.trim(),
        load.split(' ').next().unwrap_or("unknown")
    )
}

/// A time since 1970 as people write it.
fn date(seconds: u64) -> String {
    let (mut days, minutes) = (seconds / 86_400, seconds / 60 % 1440);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 0;
    let length = |month: u64| [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize];
    while days >= length(month) {
        days -= length(month);
        month += 1;
    }
    format!("{year}-{:02}-{:02} {:02}:{:02} UTC", month + 1, days + 1, minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59 UTC"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }
}
