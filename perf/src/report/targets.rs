//! What the node is to reach, as ratios to workerd on the same machine. The only place with these numbers.

use super::{Report, Summary};
use crate::{
    scenario::{Ground, Scenario},
    subject::Subject,
};

/// One target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// As the report calls it.
    pub title: &'static str,
    bound: Bound,
    figure: Figure,
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

#[derive(Debug, Clone, Copy)]
enum Figure {
    Of(Scenario, fn(&Summary) -> f64),
    MemoryPerActor,
}

/// Where a target stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// The node's figure divided by workerd's; `None` when either is missing.
    pub measured: Option<f64>,
    /// Whether it is within the bound; `None` when it was not measured.
    pub reached: Option<bool>,
}

impl Outcome {
    /// For the table.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.reached {
            Some(true) => "reached",
            Some(false) => "**missed**",
            None => "not measured",
        }
    }
}

/// All of them. They are for data in memory, where neither server waits for a disk.
#[must_use]
pub fn targets() -> Vec<Target> {
    use Bound::{AtLeast, AtMost};
    use Scenario::{FirstAlone, FirstPaced, HotRead, HotWrite};
    let of = |title, scenario, figure: fn(&Summary) -> f64, bound| Target {
        title,
        bound,
        figure: Figure::Of(scenario, figure),
    };
    vec![
        of("CPU per request, one actor, write", HotWrite, |of| of.cpu_us, AtMost(0.2)),
        of("CPU per request, one actor, read", HotRead, |of| of.cpu_us, AtMost(0.2)),
        of("requests/s, one actor, write", HotWrite, |of| of.per_second, AtLeast(6.0)),
        of("requests/s, one actor, read", HotRead, |of| of.per_second, AtLeast(6.0)),
        of("p99, one actor, write", HotWrite, |of| of.p99_us, AtMost(0.2)),
        of("p99, one actor, read", HotRead, |of| of.p99_us, AtMost(0.2)),
        of("p50, first request to a new actor, after rest", FirstPaced, |of| of.p50_us, AtMost(0.25)),
        of(
            "p50, first request to a new actor, one after the other",
            FirstAlone,
            |of| of.p50_us,
            AtMost(0.25),
        ),
        Target { title: "memory per actor in memory", bound: AtMost(0.25), figure: Figure::MemoryPerActor },
    ]
}

impl Target {
    /// The bound, in words.
    #[must_use]
    pub fn allowed(&self) -> String {
        match self.bound {
            Bound::AtMost(ratio) => format!("at most {ratio:.2}"),
            Bound::AtLeast(ratio) => format!("at least {ratio:.0}"),
        }
    }

    /// Where it stands in a report.
    #[must_use]
    pub fn outcome(&self, report: &Report) -> Outcome {
        let measured = self.ratio(report);
        let reached = measured.map(|ratio| match self.bound {
            Bound::AtMost(bound) => ratio <= bound,
            Bound::AtLeast(bound) => ratio >= bound,
        });
        Outcome { measured, reached }
    }

    fn ratio(&self, report: &Report) -> Option<f64> {
        let figure = |subject| match self.figure {
            Figure::Of(scenario, figure) => {
                report.summary(Ground::Memory, scenario, subject).map(|s| figure(&s))
            }
            Figure::MemoryPerActor => report.footprint(subject).map(|footprint| footprint.per_actor()),
        };
        let (ours, theirs) = (figure(Subject::Wasmkeep)?, figure(Subject::Workerd)?);
        // A server that measured nothing is no yardstick.
        (theirs > 0.0).then(|| ours / theirs)
    }
}
