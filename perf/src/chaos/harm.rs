//! What is done to a cluster, and what has to follow.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};

use super::{
    nodes::{Nodes, Part},
    proxy::Way,
};

/// Longer than a lease and everything after it: the others have the actors of a node that was away for so long.
const FENCED_AFTER: Duration = Duration::from_secs(25);

/// Longer than a lease is served for, and too short for a fence.
const LAPSED_AFTER: Duration = Duration::from_secs(9);

/// How long nodes do not reach each other.
const CUT: Duration = Duration::from_secs(12);

/// Longest time an actor may be away: the takeover at its latest and its restore, with room for a loaded machine.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// Between two looks at something that takes its time.
const LOOK: Duration = Duration::from_millis(100);

/// One kind of harm to a node, or to its ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// Killed with SIGKILL, started again on its disk.
    Kill,
    /// Killed, and its disk wiped.
    KillAndWipe,
    /// Asked to stop with SIGTERM, and started again.
    Terminate,
    /// Frozen with SIGSTOP for longer than its lease, then let go.
    Freeze,
    /// What it sends to the bucket does not arrive, and it is not told; for longer than its lease.
    BucketSilent,
    /// What it sends to the bucket arrives, and no answer does; for longer than its lease.
    BucketDeaf,
    /// Its connections to the bucket are refused until its lease has lapsed.
    BucketRefused,
    /// No node reaches the bucket until all leases have lapsed.
    Outage,
    /// It and the others do not reach each other, and are not told.
    PeersSilent,
    /// It does not reach the others; they do reach it.
    PeersOneWay,
}

/// How long an actor of the node was away, if the node was lost.
pub type Away = Option<Duration>;

impl Harm {
    /// Each kind in turn, kills more often than the others; or kills alone.
    #[must_use]
    pub fn of(turn: usize, kills_only: bool) -> Self {
        match turn % 15 {
            _ if kills_only => {
                if turn.is_multiple_of(2) {
                    Self::Kill
                } else {
                    Self::KillAndWipe
                }
            }
            0 | 5 | 10 => Self::Kill,
            2 | 7 | 12 => Self::KillAndWipe,
            1 => Self::BucketSilent,
            3 => Self::PeersSilent,
            4 | 14 => Self::Freeze,
            6 => Self::BucketDeaf,
            8 => Self::PeersOneWay,
            9 => Self::Terminate,
            11 => Self::Outage,
            _ => Self::BucketRefused,
        }
    }

    /// Does it to `victim` and waits until the cluster is whole again. `path` is of an actor that the victim has.
    ///
    /// # Errors
    /// What has to follow does not.
    pub fn carry_out(self, nodes: &Nodes, victim: usize, path: &str) -> Result<Away> {
        let began = Instant::now();
        let other = (victim + 1) % nodes.count();
        match self {
            Self::Kill | Self::KillAndWipe => {
                nodes.kill(victim, self == Self::KillAndWipe)?;
                let away = served(nodes, other, path)?;
                nodes.revive(victim)?;
                Ok(Some(away))
            }
            Self::Terminate => {
                nodes.terminate(victim)?;
                served(nodes, other, path)?;
                nodes.revive(victim)?;
                Ok(None)
            }
            Self::Freeze => {
                nodes.freeze(victim)?;
                let away = served(nodes, other, path)?;
                thread::sleep(FENCED_AFTER.saturating_sub(began.elapsed()));
                nodes.thaw(victim)?;
                fenced(nodes, victim)?;
                Ok(Some(away))
            }
            Self::BucketSilent | Self::BucketDeaf => {
                let way = if self == Self::BucketSilent { Way::Silent } else { Way::Deaf };
                nodes.hurt(victim);
                nodes.cut(Part::Bucket(victim), way);
                let away = served_by_another(nodes, victim, path)?;
                thread::sleep(FENCED_AFTER.saturating_sub(began.elapsed()));
                nodes.cut(Part::Bucket(victim), Way::Open);
                fenced(nodes, victim)?;
                Ok(Some(away))
            }
            Self::BucketRefused => {
                nodes.cut(Part::Bucket(victim), Way::Refused);
                thread::sleep(LAPSED_AFTER);
                nodes.cut(Part::Bucket(victim), Way::Open);
                survived(nodes, victim, path)
            }
            Self::Outage => {
                nodes.cut(Part::AllBuckets, Way::Refused);
                thread::sleep(LAPSED_AFTER);
                nodes.cut(Part::AllBuckets, Way::Open);
                (0..nodes.count()).try_for_each(|node| survived(nodes, node, path).map(drop))?;
                Ok(None)
            }
            Self::PeersSilent => {
                nodes.cut(Part::Peers(victim), Way::Silent);
                nodes.cut(Part::ToPeers(victim), Way::Silent);
                apart(nodes, victim, path, began)?;
                nodes.cut(Part::Peers(victim), Way::Open);
                nodes.cut(Part::ToPeers(victim), Way::Open);
                survived(nodes, other, path)
            }
            Self::PeersOneWay => {
                nodes.cut(Part::ToPeers(victim), Way::Refused);
                apart(nodes, victim, path, began)?;
                // Those the victim does not reach do reach it.
                served(nodes, other, path)?;
                nodes.cut(Part::ToPeers(victim), Way::Open);
                survived(nodes, victim, path)
            }
        }
    }
}

/// While nodes are cut off from each other each has its actors.
fn apart(nodes: &Nodes, victim: usize, path: &str, began: Instant) -> Result<()> {
    while began.elapsed() < CUT {
        let answer = nodes.ask(victim, "GET", path, b"")?;
        let owner = answer.node.clone();
        ensure!(
            answer.status == 200 && owner.as_deref() == Some(&Nodes::name(victim)),
            "{path} is of {}, which is cut off from the others alone, and was answered {} by {owner:?}: {}",
            Nodes::name(victim),
            answer.status,
            answer.text()
        );
        thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// The victim ends by itself, as one that was fenced does, and is started again.
fn fenced(nodes: &Nodes, victim: usize) -> Result<()> {
    nodes.ended(victim, AWAY_MAX)?;
    nodes.revive(victim)
}

/// The node went on and serves the actor.
fn survived(nodes: &Nodes, node: usize, path: &str) -> Result<Away> {
    served(nodes, node, path)?;
    ensure!(nodes.runs(node)?, "{} ended, and nobody had a reason to fence it", Nodes::name(node));
    Ok(None)
}

/// How long it takes until the node answers for the actor.
fn served(nodes: &Nodes, node: usize, path: &str) -> Result<Duration> {
    wait(nodes, node, path, |_| true)
}

/// How long it takes until another node has the actor of the victim.
fn served_by_another(nodes: &Nodes, victim: usize, path: &str) -> Result<Duration> {
    wait(nodes, (victim + 1) % nodes.count(), path, |node| node != Nodes::name(victim))
}

fn wait(nodes: &Nodes, node: usize, path: &str, by: impl Fn(&str) -> bool) -> Result<Duration> {
    let began = Instant::now();
    while began.elapsed() < AWAY_MAX {
        match nodes.ask(node, "GET", path, b"") {
            Ok(answer) if answer.status == 200 => {
                if by(answer.node.as_deref().unwrap_or_default()) {
                    return Ok(began.elapsed());
                }
            }
            Ok(answer) if matches!(answer.status, 503 | 504) => {}
            Ok(answer) => bail!("{path} was answered {}: {}", answer.status, answer.text()),
            Err(error) => bail!("{}, which was not hurt, did not answer: {error}", Nodes::name(node)),
        }
        thread::sleep(LOOK);
    }
    bail!("{} does not answer for {path} after {AWAY_MAX:?}", Nodes::name(node))
}
