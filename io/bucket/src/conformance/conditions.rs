//! Promises about conditional writes.

use bytes::Bytes;
use futures::future::join_all;

use super::{Breach, Run, promise};
use crate::outcome::{Outcome, Precondition, Version};
use crate::{Bucket, Key, Nonce};

pub(super) async fn create<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let key = run.key("create")?;
        run.written(&key, "first", &Precondition::Absent).await?;
        run.refused(&key, &Precondition::Absent, Some("first")).await?;
        run.bucket.delete(&key).await.map_err(|error| error.to_string())?;
        run.written(&key, "again", &Precondition::Absent).await.map(|_| ())
    };
    promise("a create is applied where there is no object and refused where there is one", kept.await)
}

pub(super) async fn replace<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let key = run.key("replace")?;
        let first = run.written(&key, "first", &Precondition::None).await?;
        let second = run.written(&key, "second", &Precondition::Version(first.clone())).await?;
        run.refused(&key, &Precondition::Version(first.clone()), Some("second")).await?;
        run.written(&key, "third", &Precondition::Version(second.clone())).await?;
        run.refused(&key, &Precondition::Version(second), Some("third")).await?;
        // The version a read reports is as good as the one the write reported.
        let read = run.bucket.head(&key).await.map_err(|error| error.to_string())?.version;
        run.written(&key, "fourth", &Precondition::Version(read)).await.map(|_| ())
    };
    promise("a replace is applied to the version it names and refused on any other", kept.await)
}

// case S2
pub(super) async fn replace_missing<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let key = run.key("missing")?;
        let version = run.written(&key, "first", &Precondition::Absent).await?;
        run.bucket.delete(&key).await.map_err(|error| error.to_string())?;
        run.refused(&key, &Precondition::Version(version.clone()), None).await?;
        run.written(&key, "other", &Precondition::Absent).await?;
        run.refused(&key, &Precondition::Version(version), Some("other")).await
    };
    promise("a replace of an object that is gone is refused and makes none", kept.await)
}

pub(super) async fn equal_bodies<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let key = run.key("nonces")?;
        let record = || format!("{{\"state\":\"live\",\"nonce\":\"{}\"}}", Nonce::random());
        let first = run.written(&key, &record(), &Precondition::Absent).await?;
        let second = run.written(&key, &record(), &Precondition::None).await?;
        match first == second {
            true => Err(format!("both are {first}")),
            false => Ok(()),
        }
    };
    promise("two records that differ in nothing but their nonce have different versions", kept.await)
}

/// What a series of races came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RaceReport {
    /// Races that were run, creates and replaces together.
    pub races: usize,
    /// Races with exactly one winner, whose record was there afterwards.
    pub one_winner: usize,
    /// Losers that were told neither that they won nor that their condition failed: harmless where the race
    /// has its one winner, and a sign of a server in trouble when there are many.
    pub unclear: usize,
    /// What went wrong in the races without one winner.
    pub faults: Vec<String>,
}

/// Runs `rounds` races of creates and as many of replaces, every handle in `writers` sending one write at the
/// same moment. Each race has to have exactly one winner, and the winner's record has to stand.
pub async fn races<B: Bucket>(writers: &[B], rounds: usize) -> RaceReport {
    let mut report = RaceReport::default();
    let Some(reader) = writers.first() else { return report };
    let run = Run { bucket: reader, root: format!("conformance/races-{}", Nonce::random()) };
    for round in 0..rounds {
        let key = run.key(&format!("{round:06}"));
        let mut condition = Ok(Precondition::Absent);
        for _ in ["create", "replace"] {
            report.races += 1;
            let raced = match (&key, &condition) {
                (Ok(key), Ok(condition)) => race(&run, writers, key, condition, &mut report.unclear).await,
                (Err(fault), _) | (_, Err(fault)) => Err(fault.clone()),
            };
            match &raced {
                Ok(_) => report.one_winner += 1,
                Err(fault) => report.faults.push(format!("round {round}: {fault}")),
            }
            condition = raced.map(Precondition::Version);
        }
    }
    if let Err(fault) = run.clean().await {
        report.faults.push(fault);
    }
    report
}

async fn race<B: Bucket>(
    run: &Run<'_, B>,
    writers: &[B],
    key: &Key,
    condition: &Precondition,
    unclear: &mut usize,
) -> Result<Version, String> {
    let bodies: Vec<String> = writers.iter().map(|_| format!("record {}", Nonce::random())).collect();
    let sends = writers
        .iter()
        .zip(&bodies)
        .map(|(writer, body)| writer.put(key, Bytes::from(body.clone()), condition));
    let outcomes = join_all(sends).await;
    let clear = |outcome: &&Outcome| matches!(outcome, Outcome::Written(_) | Outcome::ConditionFailed);
    *unclear += outcomes.len() - outcomes.iter().filter(clear).count();
    let mut winners = outcomes.iter().zip(&bodies).filter_map(|(outcome, body)| match outcome {
        Outcome::Written(version) => Some((version.clone(), body)),
        _ => None,
    });
    match (winners.next(), winners.next()) {
        (Some((version, body)), None) => run.stands(key, Some(body)).await.map(|()| version),
        _ => Err(format!("{condition:?} gave {outcomes:?}")),
    }
}
