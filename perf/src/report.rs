//! The report of a side-by-side run, in Markdown: medians, ratios, targets, and every single measurement.

mod targets;

use std::fmt::Write;

use crate::{
    memory::{Footprint, Look},
    scenario::{Ground, Measured, Scenario},
    subject::Subject,
};

pub use targets::{Outcome, Target, targets};

/// One measurement and what it is of.
#[derive(Debug, Clone)]
pub struct Run {
    /// Where the data was.
    pub ground: Ground,
    /// What was asked.
    pub scenario: Scenario,
    /// Whom.
    pub subject: Subject,
    /// In which round, from 1.
    pub round: u32,
    /// What came of it.
    pub measured: Measured,
}

/// A whole run.
#[derive(Debug, Default)]
pub struct Report {
    /// When, on what, of which versions, with which settings: a name and a value each.
    pub circumstances: Vec<(&'static str, String)>,
    /// Every measurement, in the order they were made.
    pub runs: Vec<Run>,
    /// Memory, once for each server.
    pub footprints: Vec<(Subject, Footprint)>,
}

/// The medians of the runs that count.
#[derive(Debug, Clone, Copy)]
pub struct Summary {
    /// Answers per second.
    pub per_second: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// CPU time of the server for each request, in microseconds.
    pub cpu_us: f64,
}

impl Report {
    /// Medians of one scenario for one server; `None` when no run of it counts.
    #[must_use]
    pub fn summary(&self, ground: Ground, scenario: Scenario, subject: Subject) -> Option<Summary> {
        let of = |run: &&Run| (run.ground, run.scenario, run.subject) == (ground, scenario, subject);
        let counted: Vec<&Measured> = self
            .runs
            .iter()
            .filter(of)
            .map(|run| &run.measured)
            .filter(|measured| measured.invalid.is_none())
            .collect();
        let median_of = |value: fn(&Measured) -> f64| median(counted.iter().map(|measured| value(measured)));
        Some(Summary {
            per_second: median_of(|measured| measured.figures.per_second())?,
            p50_us: median_of(|measured| measured.figures.p50_us as f64)?,
            p99_us: median_of(|measured| measured.figures.p99_us as f64)?,
            cpu_us: median_of(|measured| measured.cpu_us)?,
        })
    }

    /// What a server's actors cost in memory.
    #[must_use]
    pub fn footprint(&self, subject: Subject) -> Option<&Footprint> {
        self.footprints.iter().find(|(of, _)| *of == subject).map(|(_, footprint)| footprint)
    }

    /// The whole report.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::from("# Side by side: workerd and wasmkeep\n\n");
        for (name, value) in &self.circumstances {
            line(&mut text, format_args!("- {name}: {value}"));
        }
        self.target_table(&mut text);
        for (ground, title) in [
            (Ground::Memory, "Data in memory (tmpfs), plain writes"),
            (Ground::Disk, "Data on disk, every write synced before it is answered"),
        ] {
            self.ground_table(&mut text, ground, title);
        }
        self.memory_table(&mut text);
        self.raw_table(&mut text);
        text
    }

    fn target_table(&self, text: &mut String) {
        text.push_str("\n## Targets\n\n| target | allowed | measured | |\n|---|---|---|---|\n");
        for target in targets() {
            let outcome = target.outcome(self);
            let measured = outcome.measured.map_or_else(|| "—".to_owned(), |ratio| format!("{ratio:.2}"));
            let row =
                format_args!("| {} | {} | {measured} | {} |", target.title, target.allowed(), outcome.word());
            line(text, row);
        }
        text.push_str("\nEach is wasmkeep's figure divided by workerd's.\n");
    }

    fn ground_table(&self, text: &mut String, ground: Ground, title: &str) {
        line(text, format_args!("\n## {title}\n"));
        text.push_str(
            "| | | requests/s | p50 µs | p99 µs | CPU µs per request |\n|---|---|---|---|---|---|\n",
        );
        for scenario in Scenario::of(ground) {
            let [theirs, ours] =
                [Subject::Workerd, Subject::Wasmkeep].map(|subject| self.summary(ground, *scenario, subject));
            for (name, summary) in [("workerd", theirs), ("wasmkeep", ours)] {
                let figures = match summary {
                    Some(of) => {
                        format!(
                            "{:.0} | {:.0} | {:.0} | {:.1}",
                            of.per_second, of.p50_us, of.p99_us, of.cpu_us
                        )
                    }
                    None => "— | — | — | —".to_owned(),
                };
                line(text, format_args!("| {} | {name} | {figures} |", scenario.title()));
            }
            if let (Some(theirs), Some(ours)) = (theirs, ours) {
                let ratios = [
                    ours.per_second / theirs.per_second,
                    ours.p50_us / theirs.p50_us,
                    ours.p99_us / theirs.p99_us,
                    ours.cpu_us / theirs.cpu_us,
                ]
                .map(|ratio| format!("**{ratio:.2}**"));
                line(text, format_args!("| | ratio | {} |", ratios.join(" | ")));
            }
        }
    }

    fn memory_table(&self, text: &mut String) {
        text.push_str("\n## Memory\n\n");
        text.push_str(
            "Resident memory while many actors are touched once; in brackets, how many are in memory.\n\n",
        );
        text.push_str(
            "| | touched | with one | fullest | peak | per actor in memory | after idle actors left |\n",
        );
        text.push_str("|---|---|---|---|---|---|---|\n");
        for (subject, of) in &self.footprints {
            let row = format_args!(
                "| {subject} | {} | {} | {} | {:.0} MiB | {:.1} KiB | {} |",
                of.touched,
                looked(of.before),
                looked(of.fullest),
                mib(of.peak_bytes),
                of.per_actor() / 1024.0,
                of.settled.map_or_else(|| "—".to_owned(), looked),
            );
            line(text, row);
        }
    }

    fn raw_table(&self, text: &mut String) {
        text.push_str("\n## Every measurement\n\n");
        text.push_str(
            "Client: cores it kept busy, of one; near 1 it is the client that is measured. Load: of the\n",
        );
        text.push_str("machine, the client and the server included. \"no\" under counts says why.\n\n");
        text.push_str("| round | data | | | requests | requests/s | p50 µs | p99 µs | max µs | CPU µs | client | load | counts |\n");
        text.push_str("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
        for run in &self.runs {
            let Measured { figures, cpu_us, client_busy, load, invalid } = &run.measured;
            let counts = invalid.as_ref().map_or_else(|| "yes".to_owned(), |why| format!("no: {why}"));
            let ground = if run.ground == Ground::Memory { "memory" } else { "disk" };
            let row = format_args!(
                "| {} | {ground} | {} | {} | {} | {:.0} | {} | {} | {} | {cpu_us:.1} | {client_busy:.2} | {load:.1} | {counts} |",
                run.round,
                run.scenario.title(),
                run.subject,
                figures.requests,
                figures.per_second(),
                figures.p50_us,
                figures.p99_us,
                figures.max_us,
            );
            line(text, row);
        }
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn looked(look: Look) -> String {
    format!("{:.0} MiB ({})", mib(look.bytes), look.actors)
}

/// The middle value, or the mean of the two middle ones; `None` of nothing.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests;
