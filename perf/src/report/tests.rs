use super::*;
use crate::load::Figures;

fn run(subject: Subject, scenario: Scenario, round: u32, requests: u64, cpu_us: f64) -> Run {
    let figures = Figures {
        requests,
        duration_us: 1_000_000,
        p50_us: 1000,
        p99_us: 2000,
        max_us: 3000,
        errors: 0,
        bad_status: 0,
    };
    let measured = Measured { figures, cpu_us, client_busy: 0.5, load: 1.0, invalid: None };
    Run { ground: Ground::Memory, scenario, subject, round, measured }
}

fn outcome(report: &Report, title: &str) -> Outcome {
    targets().into_iter().find(|target| target.title == title).unwrap().outcome(report)
}

#[test]
fn a_median_is_the_middle_of_the_runs_that_count() {
    assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
    assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
    assert_eq!(median(std::iter::empty()), None);
    let mut report = Report::default();
    for (round, requests) in [(1, 100), (2, 900), (3, 300)] {
        report.runs.push(run(Subject::Workerd, Scenario::HotWrite, round, requests, 1.0));
    }
    let per_second = |report: &Report| {
        report.summary(Ground::Memory, Scenario::HotWrite, Subject::Workerd).map(|of| of.per_second)
    };
    assert_eq!(per_second(&report), Some(300.0));
    report.runs[2].measured.invalid = Some("lost".into());
    assert_eq!(per_second(&report), Some(500.0));
    report.runs.iter_mut().for_each(|run| run.measured.invalid = Some("lost".into()));
    assert_eq!(per_second(&report), None);
}

#[test]
fn a_target_is_reached_at_its_bound_missed_beyond_it_and_open_without_both_sides() {
    let mut report = Report::default();
    let [cpu, rate] = ["CPU per request, one actor, write", "requests/s, one actor, write"];
    assert_eq!(outcome(&report, cpu), Outcome { measured: None, reached: None });
    report.runs.push(run(Subject::Workerd, Scenario::HotWrite, 1, 100, 400.0));
    assert_eq!(outcome(&report, cpu).reached, None);
    report.runs.push(run(Subject::Wasmkeep, Scenario::HotWrite, 1, 600, 80.0));
    assert_eq!(outcome(&report, cpu), Outcome { measured: Some(0.2), reached: Some(true) });
    assert_eq!(outcome(&report, rate), Outcome { measured: Some(6.0), reached: Some(true) });
    report.runs[1].measured.cpu_us = 81.0;
    report.runs[1].measured.figures.requests = 599;
    assert_eq!(outcome(&report, cpu).reached, Some(false));
    assert_eq!(outcome(&report, rate).reached, Some(false));
}

#[test]
fn the_report_shows_ratios_and_why_a_run_does_not_count() {
    let mut report = Report::default();
    report.circumstances.push(("machine", "a small one".into()));
    report.runs.push(run(Subject::Workerd, Scenario::HotRead, 1, 100, 300.0));
    report.runs.push(run(Subject::Wasmkeep, Scenario::HotRead, 1, 400, 30.0));
    let mut lost = run(Subject::Wasmkeep, Scenario::HotWrite, 1, 400, 30.0);
    lost.measured.invalid = Some("3 failed requests".into());
    report.runs.push(lost);
    let small = Footprint {
        touched: 10,
        before: Look { actors: 1, bytes: 10 << 20 },
        fullest: Look { actors: 11, bytes: 20 << 20 },
        peak_bytes: 21 << 20,
        settled: Some(Look { actors: 0, bytes: 11 << 20 }),
    };
    report.footprints.push((Subject::Wasmkeep, small));
    let text = report.markdown();
    for expected in [
        "- machine: a small one",
        "| | ratio | **4.00** | **1.00** | **1.00** | **0.10** |",
        "| CPU per request, one actor, read | at most 0.20 | 0.10 | reached |",
        "| requests/s, one actor, read | at least 6 | 4.00 | **missed** |",
        "| requests/s, one actor, write | at least 6 | — | not measured |",
        "| one actor, write, 32 connections | wasmkeep | — | — | — | — |",
        "| wasmkeep | 10 | 10 MiB (1) | 20 MiB (11) | 21 MiB | 1024.0 KiB | 11 MiB (0) |",
        "no: 3 failed requests |",
    ] {
        assert!(text.contains(expected), "{expected}\nis not in\n{text}");
    }
}
