//! The broken variants of every world, each run seed after seed until a checker notices.

use std::{fmt, io};

use rayon::prelude::*;

use crate::{Flaw, ReplicaFlaw, ReplicaRequest, Request, Violation, cluster, run, run_replica};
use crate::{run_replica_twice, run_twice};

/// Seeds within which each must be noticed.
pub const SEEDS_MAX: u64 = 60;

/// What came of one variant.
#[derive(Debug, Clone)]
pub struct Tried {
    /// What the command line calls it.
    pub name: &'static str,
    /// The checkers one of which must notice it.
    pub noticed_by: &'static [&'static str],
    /// The first seed at which something was noticed, and what.
    pub noticed: Option<(u64, Violation)>,
}

impl Tried {
    /// Whether a checker noticed it that it names, before any other did.
    #[must_use]
    pub fn is_caught(&self) -> bool {
        self.noticed.as_ref().is_some_and(|(_, violation)| self.noticed_by.contains(&violation.checker))
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, noticed_by, noticed } = self;
        match noticed {
            Some((seed, violation)) if self.is_caught() => {
                write!(f, "{name} noticed at seed {seed} by {violation}")
            }
            Some((seed, violation)) => write!(f, "{name} met {violation} at seed {seed}, not {noticed_by:?}"),
            None => write!(f, "{name} was not noticed within {SEEDS_MAX} seeds"),
        }
    }
}

/// Those of a shard.
///
/// # Errors
/// What the file system of the scratch folder says.
pub fn of_shards() -> io::Result<Vec<Tried>> {
    each(
        Flaw::ALL,
        |flaw| (flaw.name(), flaw.noticed_by()),
        |flaw, seed| {
            let request = Request { flaw: Some(flaw), ..Request::plain(seed) };
            let outcome = if flaw == Flaw::UsesEntropy { run_twice(&request) } else { run(&request) };
            Ok(outcome?.violation)
        },
    )
}

/// Those of replicas.
///
/// # Errors
/// As [`of_shards`].
pub fn of_replicas() -> io::Result<Vec<Tried>> {
    each(
        ReplicaFlaw::ALL,
        |flaw| (flaw.name(), flaw.noticed_by()),
        |flaw, seed| {
            let request = ReplicaRequest { flaw: Some(flaw), ..ReplicaRequest::plain(seed) };
            let twice = flaw == ReplicaFlaw::UsesEntropy;
            let outcome = if twice { run_replica_twice(&request) } else { run_replica(&request) };
            Ok(outcome?.violation)
        },
    )
}

/// Those of a cluster.
///
/// # Errors
/// As [`of_shards`].
pub fn of_clusters() -> io::Result<Vec<Tried>> {
    each(
        cluster::Flaw::ALL,
        |flaw| (flaw.name(), flaw.noticed_by()),
        |flaw, seed| {
            let request = cluster::Request { flaw: Some(flaw), ..cluster::Request::plain(seed) };
            let twice = flaw == cluster::Flaw::UsesEntropy;
            let outcome = if twice { cluster::run_twice(&request) } else { cluster::run(&request) };
            Ok(outcome?.violation)
        },
    )
}

/// On every core one variant, the next when it was noticed.
fn each<F: Copy + Sync>(
    flaws: &[F],
    names: impl Fn(F) -> (&'static str, &'static [&'static str]) + Sync,
    run: impl Fn(F, u64) -> io::Result<Option<Violation>> + Sync,
) -> io::Result<Vec<Tried>> {
    let tried = flaws.par_iter().with_max_len(1).map(|flaw| {
        let (name, noticed_by) = names(*flaw);
        let noticed = (0..SEEDS_MAX)
            .find_map(|seed| run(*flaw, seed).map(|found| found.map(|found| (seed, found))).transpose());
        Ok(Tried { name, noticed_by, noticed: noticed.transpose()? })
    });
    tried.collect()
}
