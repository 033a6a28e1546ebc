use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::*;
use crate::{
    records::{NodeRecord, NodeState, Nonce, Presence, Process, Shape},
    store::Version,
    view::Peer,
};

const DUE_MS: u64 = 1_000_000;
/// A lease period plus grace.
const PATIENCE_MS: u64 = 15_000;
const EVERY_MS: u64 = 10_000;

fn node(id: &str) -> NodeId {
    id.parse().unwrap()
}

fn at(seconds: u64) -> Moment {
    Moment::after_boot(Duration::from_secs(seconds))
}

/// A view of nodes that each wrote last at second 100.
fn view(nodes: &[(&str, NodeState)]) -> View {
    let peers = nodes.iter().map(|(id, state)| {
        let record = NodeRecord {
            process: Process::from_bits(1),
            sequence: 1,
            nonce: Nonce::from_bits(1),
            state: state.clone(),
            written_at_ms: 0,
            ttl: Duration::from_secs(10),
            shape: Shape::NONE,
            presence: Arc::new(Presence::default()),
        };
        (node(id), Peer { version: Version::new("v"), record: Ok(Arc::new(record)), written: at(100) })
    });
    View::new(&Timing::default(), peers.collect::<BTreeMap<_, _>>())
}

fn listed(name: &str, due_ms: u64, by: &str) -> Listed {
    Listed {
        whose: Whose { class: "c".parse().unwrap(), stem: name.to_owned() },
        post: Post { due_ms, generation: 1, txid: 1, node: node(by) },
    }
}

/// A node of a cluster in which `nodes` stand so.
struct Cluster {
    view: View,
    timing: Timing,
}

impl Cluster {
    fn new(nodes: &[(&str, NodeState)]) -> Self {
        Self { view: view(nodes), timing: Timing::default() }
    }

    fn turn(&self, me: &str, listed: &Listed) -> u64 {
        turn_ms(self.keeping(&node(me), 101, 0), listed)
    }

    fn keeping<'a>(&'a self, me: &'a NodeId, second: u64, now_ms: u64) -> Keeping<'a> {
        Keeping { me, view: &self.view, timing: &self.timing, now: at(second), now_ms }
    }
}

// R-ALM-1
#[test]
fn a_listing_is_due_when_a_node_has_gone_since_the_view_before() {
    let released = || ("b", NodeState::Released);
    let watched =
        |seconds| ("c", NodeState::Fenced { watched: Duration::from_secs(seconds), by: Some(node("a")) });
    let mut sweep = Sweep::default();
    for (nodes, left) in [
        // Who had gone before this node knew of it is found by its first sweep.
        (vec![released()], false),
        (vec![released(), ("c", NodeState::Live)], false),
        (vec![released(), watched(0)], false),
        (vec![released(), watched(15)], true),
        (vec![released(), watched(15)], false),
        // It is back, and stops.
        (vec![("b", NodeState::Live), watched(15)], false),
        (vec![released(), watched(15)], true),
    ] {
        assert_eq!(sweep.somebody_left(&view(&nodes)), left, "{nodes:?}");
    }
}

fn names(sweep: &mut Sweep, now_ms: u64) -> Vec<String> {
    std::iter::from_fn(|| sweep.next(now_ms)).map(|due| due.listed.whose.stem).collect()
}

// R-ALM-1
#[test]
fn the_node_that_put_an_alarm_goes_first_and_the_others_each_at_a_time_of_its_own() {
    let live = ["a", "b", "c", "d"].map(|id| (id, NodeState::Live));
    let cluster = Cluster::new(&live);
    for name in ["x", "y", "z", "w"] {
        let listed = listed(name, DUE_MS, "a");
        assert_eq!(cluster.turn("a", &listed), DUE_MS + PATIENCE_MS);
        let mut turns = ["b", "c", "d"].map(|me| cluster.turn(me, &listed));
        turns.sort_unstable();
        assert_eq!(turns, [1, 2, 3].map(|turn| DUE_MS + PATIENCE_MS + turn * EVERY_MS));
    }
    let first =
        |name: &str| ["b", "c", "d"].into_iter().min_by_key(|me| cluster.turn(me, &listed(name, 1, "a")));
    let firsts: BTreeSet<_> = (0..50).map(|n| first(&format!("n{n}"))).collect();
    assert_eq!(firsts.len(), 3, "each actor has an order of its own");
}

// R-ALM-1
#[test]
fn an_alarm_of_a_node_that_holds_nothing_any_more_is_taken_when_it_is_due() {
    let gone = NodeState::Fenced { watched: Duration::from_secs(15), by: None };
    let ending = NodeState::Fenced { watched: Duration::ZERO, by: None };
    for (state, patience) in [(NodeState::Released, 0), (gone, 0), (ending, PATIENCE_MS)] {
        let cluster = Cluster::new(&[("a", state), ("b", NodeState::Live), ("c", NodeState::Live)]);
        let mut turns = ["b", "c"].map(|me| cluster.turn(me, &listed("x", DUE_MS, "a")));
        turns.sort_unstable();
        assert_eq!(turns, [DUE_MS + patience, DUE_MS + patience + EVERY_MS]);
    }
    let cluster = Cluster::new(&[("b", NodeState::Live)]);
    assert_eq!(
        cluster.turn("b", &listed("x", DUE_MS, "a")),
        DUE_MS + PATIENCE_MS,
        "no heartbeat frees nothing"
    );
}

// R-ALM-1
#[test]
fn a_sweep_gives_out_what_is_due_in_order_and_each_actor_once() {
    let (cluster, me) = (Cluster::new(&[("a", NodeState::Live)]), node("a"));
    let mut sweep = Sweep::default();
    let now_ms = DUE_MS + PATIENCE_MS;
    let keeping = cluster.keeping(&me, 101, now_ms);
    let all = [("late", DUE_MS), ("early", 5), ("soon", DUE_MS + EVERY_MS), ("far", DUE_MS + EVERY_MS + 1)];
    sweep.begin();
    all.iter().for_each(|(name, due_ms)| sweep.listed(keeping, listed(name, *due_ms, "a")));
    sweep.ended();
    assert_eq!(names(&mut sweep, now_ms), ["early", "late"]);
    assert_eq!(sweep.next_ms(), Some(now_ms + EVERY_MS));
    sweep.begin();
    all.iter().for_each(|(name, due_ms)| sweep.listed(keeping, listed(name, *due_ms, "a")));
    assert_eq!(names(&mut sweep, now_ms), [""; 0], "they are being looked at");
    sweep.looked(&listed("late", 0, "a").whose, Outcome::Looked, at(101));
    sweep.listed(keeping, listed("late", DUE_MS, "a"));
    assert_eq!(names(&mut sweep, now_ms + EVERY_MS), ["late", "soon"]);
}

// R-ALM-1
#[test]
fn a_look_that_came_to_nothing_is_repeated_after_longer_and_longer_waits() {
    let (cluster, me) = (Cluster::new(&[("a", NodeState::Live)]), node("a"));
    let mut sweep = Sweep::default();
    let (mut second, now_ms) = (101, DUE_MS + PATIENCE_MS);
    let look = |sweep: &mut Sweep, second: u64| {
        sweep.begin();
        sweep.listed(cluster.keeping(&me, second, now_ms), listed("x", DUE_MS, "a"));
        sweep.ended();
        names(sweep, now_ms)
    };
    for wait in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        assert_eq!(look(&mut sweep, second), ["x"]);
        sweep.looked(&listed("x", 0, "a").whose, Outcome::NotNow, at(second));
        second += wait;
        assert_eq!(look(&mut sweep, second - 1), [""; 0], "{wait}");
    }
    sweep.begin();
    sweep.ended();
    assert_eq!(look(&mut sweep, second - 1), ["x"], "one that was gone begins anew");
}

// R-ALM-1
#[test]
fn only_so_many_are_looked_at_together() {
    let (cluster, me) = (Cluster::new(&[("a", NodeState::Live)]), node("a"));
    let mut sweep = Sweep::default();
    let now_ms = DUE_MS + PATIENCE_MS;
    for n in 0..100 {
        sweep.listed(cluster.keeping(&me, 101, now_ms), listed(&format!("n{n}"), DUE_MS, "a"));
    }
    assert_eq!(names(&mut sweep, now_ms).len(), ALARM_SWEEP_AT_ONCE);
    assert_eq!(sweep.next_ms(), None);
    sweep.looked(&listed("n0", 0, "a").whose, Outcome::Looked, at(101));
    assert_eq!(names(&mut sweep, now_ms).len(), 1);
}
