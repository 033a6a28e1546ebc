//! What the promises rest on. Where a run goes beyond it, a promise may break, and then the report says which
//! assumption did not hold.

use std::collections::BTreeMap;

use super::record::Record;

/// How far wall clocks may be off, in milliseconds.
pub const SKEW_MS: u64 = 1_000;

/// How much a machine's clock of time since boot may run too fast or too slow, in parts of a million.
const DRIFT_PPM: u64 = 2_000;

/// Something that is taken for granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Assumption {
    /// Wall clocks are right to a second. Without it nothing unsafe happens; nodes may see each other late.
    WallClocks,
    /// The clocks of time since boot run as fast as time does. Leases are measured by them.
    BootClocks,
}

/// Which of them a run has broken, and how.
#[derive(Debug, Default)]
pub struct Assumptions(BTreeMap<Assumption, String>);

impl Assumptions {
    /// Takes the next record.
    pub fn see(&mut self, record: &Record) {
        let (pid, skew_ms, drift_ppm) = match record {
            Record::Started { pid, skew_ms, drift_ppm, .. } => (pid, *skew_ms, *drift_ppm),
            Record::ClockSet { pid, skew_ms } => (pid, *skew_ms, 0),
            _ => return,
        };
        if skew_ms.unsigned_abs() > SKEW_MS {
            let text = format!("the wall clock of process {pid} is {skew_ms} ms off");
            self.0.entry(Assumption::WallClocks).or_insert(text);
        }
        if drift_ppm.unsigned_abs() > DRIFT_PPM {
            let percent = drift_ppm as f64 / 10_000.0;
            let text = format!("the clock of process {pid} runs {percent:+.1} % fast");
            self.0.entry(Assumption::BootClocks).or_insert(text);
        }
    }

    /// The first of `rests_on` that does not hold.
    pub fn broken(&self, rests_on: &[Assumption]) -> Option<&str> {
        rests_on.iter().find_map(|assumption| self.0.get(assumption)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(skew_ms: i64, drift_ppm: i64) -> Record {
        Record::Started { pid: 1, node: 0, skew_ms, drift_ppm }
    }

    #[test]
    fn what_goes_beyond_an_assumption_breaks_that_one_alone() {
        for (record, wall, boot) in [
            (started(1_000, -2_000), false, false),
            (started(-1_001, 0), true, false),
            (started(0, 2_001), false, true),
            (Record::ClockSet { pid: 1, skew_ms: 3_600_000 }, true, false),
            (Record::Calm, false, false),
        ] {
            let mut assumptions = Assumptions::default();
            assumptions.see(&record);
            assert_eq!(assumptions.broken(&[Assumption::WallClocks]).is_some(), wall, "{record:?}");
            assert_eq!(assumptions.broken(&[Assumption::BootClocks]).is_some(), boot, "{record:?}");
            assert_eq!(assumptions.broken(&[]), None);
        }
    }
}
