//! What was measured: medians and quartiles, next to their floors, as a table and as JSON.
//!
//! Input: the results of the measuring programs and the [`BenchPlan`] that they belong to. Output: a [`BenchReport`].
//! **Invariant**: nothing is left out: a figure of the plan that was not measured is an error.

use crate::base::error::{Error, Result};
use crate::cli::bench::plans::{Aim, BenchPlan, Comparison, Wanted};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Where node 0 and node 1 run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BenchPlace {
    Processors([usize; 2]),
    Hosts([String; 2]),
}

impl fmt::Display for BenchPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchPlace::Processors([first, second]) => write!(f, "processors {first} and {second}"),
            BenchPlace::Hosts([first, second]) => write!(f, "hosts {first} and {second}"),
        }
    }
}

/// The `--json` object.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    /// The subcommand's name.
    bench: &'static str,
    /// `processors` or `hosts`.
    #[serde(flatten)]
    place: BenchPlace,
    runs: u32,
    batches: u32,
    comparisons: Vec<Compared>,
    /// How often a node that computes polls, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Steps>,
}

/// A floor and what is compared with it.
#[derive(Debug, Serialize)]
struct Compared {
    floor: Figure,
    figures: Vec<Figure>,
}

/// One measured figure: median, quartiles and tail over all batches.
#[derive(Debug, Clone, Serialize)]
struct Figure {
    name: String,
    median_ns: f64,
    lower_quartile_ns: f64,
    upper_quartile_ns: f64,
    percentile_99_ns: f64,
    /// Median to median.
    ratio_to_floor: f64,
    /// The ratio, or the median, that is aimed at, if there is such a one.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_at_most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ns_at_most: Option<f64>,
    /// What it moves, and how much that is in a second: 10^9 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gigabytes_per_second: Option<f64>,
}

/// The steps of what is measured. Each contains one time stamp.
#[derive(Debug, Serialize)]
struct Steps {
    of: &'static str,
    /// What a time stamp takes.
    stamp_ns: f64,
    /// All steps with all stamps.
    total_ns: f64,
    steps: Vec<StepTime>,
}

#[derive(Debug, Serialize)]
struct StepTime {
    name: &'static str,
    node: &'static str,
    /// Median, the stamp included.
    ns: f64,
}

/// Samples by name, in nanoseconds, unsorted.
#[derive(Debug, Default)]
pub struct Samples(BTreeMap<String, Vec<f64>>);

impl Samples {
    /// Adds the samples of one node's results, which are in cycles.
    ///
    /// # Errors
    /// The text is something else.
    pub fn add(&mut self, text: &str) -> Result<()> {
        let damaged = || Error::new("the measuring program has written something else than results");
        let pairs = text.lines().map(|line| {
            let (name, value) = line.split_once(' ').ok_or_else(damaged)?;
            Ok((name, value.parse::<f64>().map_err(|_| damaged())?))
        });
        let pairs: Vec<(&str, f64)> = pairs.collect::<Result<_>>()?;
        let rate = pairs.iter().find(|(name, _)| *name == "cycles_per_ns").ok_or_else(damaged)?.1;
        for (name, cycles) in pairs.into_iter().filter(|(name, _)| *name != "cycles_per_ns") {
            self.0.entry(name.to_owned()).or_default().push(cycles / rate);
        }
        Ok(())
    }

    fn quantile(&self, key: &str, at: f64) -> Result<f64> {
        let mut sorted = self.0.get(key).cloned().ok_or_else(|| Error::new(format!("{key} was not measured")))?;
        sorted.sort_by(f64::total_cmp);
        Ok(sorted[((sorted.len() - 1) as f64 * at).round() as usize])
    }

    fn median(&self, key: &str) -> Result<f64> {
        self.quantile(key, 0.5)
    }

    fn figure(&self, wanted: &Wanted, floor_ns: f64) -> Result<Figure> {
        let median_ns = self.median(&wanted.key)?;
        let (ratio_at_most, ns_at_most) = match wanted.aim {
            Aim::None => (None, None),
            Aim::Ratio(most) => (Some(most), None),
            Aim::Ns(most) => (None, Some(most)),
        };
        Ok(Figure {
            name: wanted.name.clone(),
            median_ns,
            lower_quartile_ns: self.quantile(&wanted.key, 0.25)?,
            upper_quartile_ns: self.quantile(&wanted.key, 0.75)?,
            percentile_99_ns: self.quantile(&wanted.key, 0.99)?,
            ratio_to_floor: median_ns / floor_ns,
            ratio_at_most,
            ns_at_most,
            bytes: wanted.bytes,
            gigabytes_per_second: wanted.bytes.map(|bytes| bytes as f64 / median_ns),
        })
    }

    fn compare(&self, plan: &Comparison) -> Result<Compared> {
        let floors = plan.floor_keys.iter().map(|key| Ok((self.median(key)?, key)));
        let floors: Vec<(f64, &String)> = floors.collect::<Result<_>>()?;
        let fastest = floors.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let (floor_ns, key) = fastest.ok_or_else(|| Error::new("a figure has no floor"))?;
        let floor = Wanted { key: key.clone(), name: plan.floor_name.clone(), aim: Aim::None, bytes: plan.bytes };
        Ok(Compared {
            floor: self.figure(&floor, floor_ns)?,
            figures: plan.figures.iter().map(|wanted| self.figure(wanted, floor_ns)).collect::<Result<_>>()?,
        })
    }
}

impl BenchReport {
    /// Takes together what `runs` runs of `batches` batches have measured; `stepped` is of runs with instruments.
    ///
    /// # Errors
    /// Something of the plan was not measured.
    pub fn new(
        plan: &BenchPlan,
        (runs, batches): (u32, u32),
        place: BenchPlace,
        samples: &Samples,
        stepped: Option<&Samples>,
    ) -> Result<BenchReport> {
        let steps = match (&plan.steps, stepped) {
            (Some(steps), Some(stepped)) => {
                let all = steps.steps.iter();
                let all = all.map(|&(key, name, node)| Ok(StepTime { name, node, ns: stepped.median(key)? }));
                Some(Steps {
                    of: steps.title,
                    stamp_ns: stepped.median("stamp")?,
                    total_ns: stepped.median("step_total")?,
                    steps: all.collect::<Result<_>>()?,
                })
            }
            _ => None,
        };
        Ok(BenchReport {
            bench: plan.name,
            place,
            runs,
            batches,
            comparisons: plan.comparisons.iter().map(|c| samples.compare(c)).collect::<Result<_>>()?,
            poll_interval_ns: plan.polls.then(|| samples.median("poll_interval")).transpose()?,
            steps,
        })
    }

    /// As a table.
    pub fn in_words(&self) -> String {
        let BenchReport { bench, place, runs, batches, .. } = self;
        let mut text = format!("{bench}: two nodes on {place}; {runs} runs of {batches} batches each\n\n");
        text += &format!("{:<34} {:>10} {:>20} {:>10} {:>9}\n", "", "median", "half lie within", "99 %", "to floor");
        for (at, compared) in self.comparisons.iter().enumerate() {
            if at > 0 {
                text.push('\n');
            }
            for figure in std::iter::once(&compared.floor).chain(&compared.figures) {
                text += &line(figure);
            }
        }
        if let Some(interval) = self.poll_interval_ns {
            text += &format!("\na node that computes polls every {interval:.1} ns (median)\n");
        }
        if let Some(Steps { of, stamp_ns, total_ns, steps }) = &self.steps {
            text += &format!("\n{of}, step by step (medians, runtime with instruments)\n\n");
            for step in steps {
                text += &format!("{:<56} {:<5} {:>7.1} ns\n", step.name, step.node, step.ns);
            }
            text += &format!("{:<56} {:<5} {total_ns:>7.1} ns\n", "all of it, a time stamp for each step included", "");
            text += &format!("{:<56} {:<5} {stamp_ns:>7.1} ns\n", "one time stamp", "");
        }
        text
    }
}

/// A time in the unit that suits it.
fn time(ns: f64) -> String {
    match ns {
        ..10_000.0 => format!("{ns:.1} ns"),
        ..10_000_000.0 => format!("{:.1} us", ns / 1e3),
        _ => format!("{:.1} ms", ns / 1e6),
    }
}

fn line(figure: &Figure) -> String {
    let within = format!("{} - {}", time(figure.lower_quartile_ns), time(figure.upper_quartile_ns));
    let (median, tail) = (time(figure.median_ns), time(figure.percentile_99_ns));
    let mut line = format!("{:<34} {median:>10} {within:>20} {tail:>10} {:>9.2}", figure.name, figure.ratio_to_floor);
    if let Some(rate) = figure.gigabytes_per_second {
        line += &format!("  {rate:.1} GB/s");
    }
    if let Some(most) = figure.ratio_at_most {
        line += &format!("  aim: at most {most:.2}");
    }
    if let Some(most) = figure.ns_at_most {
        line += &format!("  aim: at most {}", time(most));
    }
    line.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bench::plans;

    fn samples(texts: &[&str]) -> Samples {
        let mut samples = Samples::default();
        texts.iter().for_each(|text| samples.add(text).unwrap());
        samples
    }

    fn report(comparison: Comparison, samples: &Samples) -> BenchReport {
        let plan = BenchPlan { comparisons: vec![comparison], ..plans::false_sharing() };
        BenchReport::new(&plan, (1, 2), BenchPlace::Processors([0, 3]), samples, None).unwrap()
    }

    fn comparison(floor_keys: &[&str], key: &str, aim: Aim, bytes: Option<u64>) -> Comparison {
        Comparison {
            floor_keys: floor_keys.iter().map(|key| (*key).to_owned()).collect(),
            floor_name: "floor".into(),
            figures: vec![Wanted { key: key.into(), name: key.into(), aim, bytes }],
            bytes,
        }
    }

    #[test]
    fn results_become_nanoseconds_and_ratios() {
        let samples = samples(&[
            "ping_pong 200.00\nread_miss 900.00\nread_miss 500.00\ncycles_per_ns 2.0\n",
            "read_miss 1000.00\nping_pong 300\ncycles_per_ns 4.0\n",
        ]);
        let report = report(comparison(&["ping_pong"], "read_miss", Aim::Ratio(2.5), None), &samples);
        let Compared { floor, figures } = &report.comparisons[0];
        assert_eq!((floor.median_ns, figures[0].median_ns), (100.0, 250.0));
        assert_eq!((figures[0].ratio_to_floor, figures[0].percentile_99_ns), (2.5, 450.0));
        let text = report.in_words();
        assert!(text.contains("processors 0 and 3") && text.contains("at most 2.50"), "{text}");
        assert!(text.lines().all(|line| line.len() < 120 && line.trim_end() == line), "{text}");
    }

    #[test]
    fn the_faster_way_to_copy_is_the_floor() {
        let samples = samples(&["slow 3000\nfast 1000\nbulk 2000\ncycles_per_ns 1\n"]);
        let report = report(comparison(&["slow", "fast"], "bulk", Aim::None, Some(8000)), &samples);
        let Compared { floor, figures } = &report.comparisons[0];
        assert_eq!((floor.median_ns, floor.gigabytes_per_second), (1000.0, Some(8.0)));
        assert_eq!((figures[0].ratio_to_floor, figures[0].gigabytes_per_second), (2.0, Some(4.0)));
        assert!(report.in_words().contains("4.0 GB/s"));
    }

    #[test]
    fn results_without_their_clock_or_with_other_text_are_refused() {
        for text in ["ping_pong 200\n", "ping_pong\ncycles_per_ns 2\n", "ping_pong x\ncycles_per_ns 2\n"] {
            assert!(Samples::default().add(text).is_err(), "{text}");
        }
        assert!(Samples::default().median("ping_pong").is_err());
    }
}
