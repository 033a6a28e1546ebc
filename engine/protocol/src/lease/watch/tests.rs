use std::time::Duration;

use expect_test::{Expect, expect};

use super::*;
use crate::{
    records::{NodeState, Shape},
    view::Standing,
};

const WALL_AT_BOOT_MS: u64 = 10_000_000;

fn at(ms: u64) -> Now {
    Now { moment: Moment::after_boot(Duration::from_millis(ms)), wall_ms: WALL_AT_BOOT_MS + ms }
}

fn node(id: &str) -> NodeId {
    id.parse().unwrap()
}

/// One heartbeat in the bucket.
#[derive(Debug, Clone)]
struct Seen {
    node: NodeId,
    version: Version,
    record: Result<NodeRecord, RecordError>,
}

fn seen(id: &str, sequence: u64, written_at_ms: u64, state: NodeState) -> Seen {
    let record = NodeRecord {
        process: Process::from_bits(id.as_bytes()[0].into()),
        sequence,
        nonce: Nonce::from_bits(sequence.into()),
        state,
        written_at_ms,
        ttl: Duration::from_secs(10),
        shape: Shape::NONE,
        presence: Arc::default(),
    };
    Seen { node: node(id), version: Version::new(format!("{id}{sequence}")), record: Ok(record) }
}

/// A live heartbeat written at `ms` by a node whose clock agrees with ours.
fn live(id: &str, sequence: u64, ms: u64) -> Seen {
    seen(id, sequence, WALL_AT_BOOT_MS + ms, NodeState::Live)
}

fn operators_fence(id: &str, sequence: u64, ms: u64) -> Seen {
    let state = NodeState::Fenced { watched: Duration::ZERO, by: None };
    Seen { version: Version::new("operator"), ..seen(id, sequence, WALL_AT_BOOT_MS + ms, state) }
}

/// Node `a` and its watch.
struct Bench {
    watch: Watch,
    own: u64,
    /// The heartbeats read.
    reads: Vec<String>,
}

impl Bench {
    fn new() -> Self {
        Self::started(0)
    }

    fn started(ms: u64) -> Self {
        let identity = Identity { node: node("a"), process: Process::from_bits(b'a'.into()) };
        let mut watch = Watch::new(Timing::default(), identity, at(ms).moment);
        watch.step(at(ms), &mut || Nonce::from_bits(7), WatchInput::Valid);
        Self { watch, own: 0, reads: Vec::new() }
    }

    fn step(&mut self, ms: u64, input: WatchInput) -> Vec<WatchEffect> {
        let mut effects = self.watch.step(at(ms), &mut || Nonce::from_bits(7), input);
        effects.retain(|effect| !matches!(effect, WatchEffect::ViewChanged | WatchEffect::List));
        effects
    }

    /// A listing asked for and answered at `ms`, with our own heartbeat in it, written a moment ago.
    fn list(&mut self, ms: u64, others: &[Seen]) -> Vec<WatchEffect> {
        self.own += 1;
        let own = live("a", self.own, ms);
        let mut effects = self.step(ms, WatchInput::Stands(own.version.clone()));
        effects.extend(self.list_all(ms, &[&[own], others].concat()));
        effects
    }

    /// A listing of these, and the reads it led to.
    fn list_all(&mut self, ms: u64, all: &[Seen]) -> Vec<WatchEffect> {
        let mut effects = self.step(ms, WatchInput::Tick);
        let listed = all.iter().map(|seen| Listed {
            node: seen.node.clone(),
            version: Some(seen.version.clone()),
            size: seen.record.as_ref().map_or(1, |record| record.encode().len() as u64),
        });
        let mut more = self.step(ms, WatchInput::Listed(Some(listed.collect())));
        while let Some(at) = more.iter().position(|effect| matches!(effect, WatchEffect::Read(_))) {
            let WatchEffect::Read(node) = more.remove(at) else { continue };
            self.reads.push(node.to_string());
            let found = all
                .iter()
                .find(|seen| seen.node == node)
                .map_or(Found::Absent, |seen| Found::Object(seen.version.clone(), seen.record.clone()));
            more.extend(self.step(ms, WatchInput::Read(node, found)));
        }
        effects.extend(more);
        effects
    }

    /// Such a listing every period, from `from` up to `until`, as long as nothing happens.
    fn list_quietly(&mut self, from: u64, until: u64, others: &[Seen]) {
        for ms in (from..=until).step_by(3000) {
            assert_eq!(self.list(ms, others), [], "{ms}");
        }
    }

    fn wake(&self, ms: u64) -> Duration {
        self.watch.wake(at(ms)).unwrap().since(at(0).moment)
    }
}

fn shown(effects: &[WatchEffect]) -> String {
    let words = effects.iter().map(|effect| match effect {
        WatchEffect::Fence(node, record, Condition::Unchanged(version)) => {
            let NodeState::Fenced { watched, by } = &record.state else { return format!("{effect:?}") };
            let by = by.as_ref().map_or("nobody", |by| by.as_str());
            let sequence = record.sequence;
            format!("fence {node} {sequence} if still {} watched {watched:?} by {by}", version.as_str())
        }
        WatchEffect::Notice(notice) => notice.to_string(),
        other => format!("{other:?}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(effects: &[WatchEffect], expected: &Expect) {
    expected.assert_eq(&shown(effects));
}

// R-LEASE-4
#[test]
fn a_silent_node_is_fenced_once_this_node_has_watched_its_last_write_for_ttl_and_grace() {
    let mut bench = Bench::new();
    bench.list_quietly(0, 12_000, &[live("b", 4, 0)]);
    assert_eq!(
        bench.wake(12_000),
        Duration::from_secs(15),
        "the fence is due between two listings, at its moment"
    );
    check(&bench.step(14_999, WatchInput::Tick), &expect![""]);
    check(&bench.step(15_000, WatchInput::Tick), &expect!["fence b 4 if still b4 watched 15s by a"]);
    check(&bench.step(15_001, WatchInput::Tick), &expect![""]);
    assert_eq!(bench.watch.view().standing(&node("b"), at(15_001).moment), Standing::Silent);
    bench.step(15_100, WatchInput::Fenced(node("b"), Wrote::Written(Version::new("fence"))));
    assert_eq!(
        bench.watch.view().standing(&node("b"), at(15_100).moment),
        Standing::Gone,
        "at once, without a listing"
    );
    // A listing that began before the fence landed does not bring the node back.
    bench.list(18_000, &[live("b", 4, 0)]);
    assert_eq!(bench.watch.view().standing(&node("b"), at(18_000).moment), Standing::Gone);
}

// R-LEASE-4
#[test]
fn a_node_that_renews_is_never_fenced_and_its_renewal_starts_the_watch_anew() {
    let mut bench = Bench::new();
    for round in 0..40 {
        assert_eq!(bench.list(round * 3000, &[live("b", round, round * 3000)]), []);
    }
    bench.list_quietly(120_000, 126_000, &[live("b", 39, 117_000)]);
    assert_eq!(bench.list(129_000, &[live("b", 40, 128_000)]), [], "it renewed at the last moment");
    assert_eq!(bench.step(133_000, WatchInput::Tick), []);
}

// R-LEASE-4; case L3
#[test]
fn a_fence_that_was_not_written_is_left_until_a_listing_says_what_stands_there() {
    for outcome in [Wrote::Unknown, Wrote::ConditionFailed, Wrote::Failed] {
        let mut bench = Bench::new();
        bench.list_quietly(0, 12_000, &[live("b", 4, 0)]);
        check(&bench.step(15_000, WatchInput::Tick), &expect!["fence b 4 if still b4 watched 15s by a"]);
        check(&bench.step(15_100, WatchInput::Fenced(node("b"), outcome)), &expect![""]);
        check(&bench.step(15_200, WatchInput::Tick), &expect![""]);
        check(&bench.list(18_000, &[live("b", 4, 0)]), &expect!["fence b 4 if still b4 watched 18s by a"]);
        // It landed after all.
        let state = NodeState::Fenced { watched: Duration::from_secs(15), by: Some(node("a")) };
        let stands = Seen { version: Version::new("fence"), ..seen("b", 4, 0, state) };
        bench.step(18_100, WatchInput::Fenced(node("b"), Wrote::ConditionFailed));
        assert_eq!(bench.list(21_000, &[stands]), []);
    }
}

// R-LEASE-5; case L9
#[test]
fn after_an_outage_nobody_is_fenced_before_the_others_had_time_to_renew() {
    let mut bench = Bench::new();
    bench.list_quietly(0, 3000, &[live("b", 4, 0)]);
    bench.step(8000, WatchInput::Lapsed);
    for ms in [6000, 9000, 12_000, 15_000, 30_000, 60_000] {
        bench.step(ms, WatchInput::Tick);
        assert_eq!(bench.step(ms, WatchInput::Listed(None)), []);
    }
    // The bucket is back: our own lease first, then a watch of a third of the ttl and a write timeout.
    assert_eq!(bench.step(63_000, WatchInput::Valid), []);
    bench.list_quietly(63_100, 69_000, &[live("b", 4, 0)]);
    check(&bench.step(69_132, WatchInput::Tick), &expect![""]);
    check(&bench.step(69_134, WatchInput::Tick), &expect!["fence b 4 if still b4 watched 69.134s by a"]);
}

// R-LEASE-5
#[test]
fn nobody_is_fenced_while_our_own_lease_is_invalid_or_listings_fail() {
    let mut bench = Bench::new();
    bench.list_quietly(0, 12_000, &[live("b", 4, 0)]);
    bench.step(14_000, WatchInput::Lapsed);
    check(&bench.step(16_000, WatchInput::Tick), &expect![""]);

    let mut bench = Bench::new();
    bench.list_quietly(0, 6000, &[live("b", 4, 0)]);
    for ms in [9000, 12_000, 15_000] {
        bench.step(ms, WatchInput::Tick);
        bench.step(ms, WatchInput::Listed(None));
    }
    check(&bench.step(16_000, WatchInput::Tick), &expect![""]);
    check(&bench.list(18_000, &[live("b", 4, 0)]), &expect![""]);
    bench.list_quietly(21_000, 24_000, &[live("b", 4, 0)]);
    check(&bench.step(24_034, WatchInput::Tick), &expect!["fence b 4 if still b4 watched 24.034s by a"]);
}

// R-LEASE-9; case L7
#[test]
fn clocks_that_are_an_hour_off_neither_fence_a_live_node_nor_hide_a_dead_one() {
    const HOUR_MS: u64 = 3_600_000;
    let behind = |sequence, ms| seen("b", sequence, WALL_AT_BOOT_MS + ms - HOUR_MS, NodeState::Live);
    let ahead = |sequence, ms| seen("c", sequence, WALL_AT_BOOT_MS + ms + HOUR_MS, NodeState::Live);
    let mut bench = Bench::new();
    check(
        &bench.list(0, &[behind(0, 0), ahead(0, 0)]),
        &expect![
            "the heartbeat of node c is dated 3600 s ahead of this node's clock: one of the two is wrong"
        ],
    );
    for round in 1..20 {
        let ms = round * 3000;
        assert_eq!(bench.list(ms, &[behind(round, ms), ahead(round, ms)]), [], "warned once a minute");
        for id in ["b", "c"] {
            assert_eq!(bench.watch.view().standing(&node(id), at(ms).moment), Standing::Live, "{id}");
        }
    }
    let last = 57_000;
    for ms in [60_000, 63_000, 66_000, 69_000] {
        bench.list(ms, &[behind(19, last), ahead(19, last)]);
    }
    let fences = bench.list(72_000, &[behind(19, last), ahead(19, last)]);
    check(&fences, &expect!["fence b 19 if still b19 watched 15s by a"]);
    bench.step(72_001, WatchInput::Fenced(node("b"), Wrote::Written(Version::new("fence"))));
    // The one dated ahead is left alone until its date is as old as any other's would have to be.
    let due = Duration::from_millis(last + HOUR_MS + 15_000);
    let mut ms = 75_000;
    let fence = loop {
        let fences: Vec<_> = bench.list(ms, &[ahead(19, last)]);
        match fences.into_iter().find(|effect| matches!(effect, WatchEffect::Fence(..))) {
            Some(fence) => break fence,
            None => ms += 3000,
        }
    };
    assert!(
        Duration::from_millis(ms) >= due && Duration::from_millis(ms) < due + Duration::from_secs(3),
        "{fence:?}"
    );
}

// R-LEASE-4, R-LEASE-7
#[test]
fn an_operators_fence_frees_the_actors_once_a_node_has_watched_it() {
    let mut bench = Bench::new();
    bench.list_quietly(0, 3000, &[live("b", 4, 0)]);
    // It replaced the very write this node already watches, so that time counts.
    bench.list_quietly(6000, 12_000, &[operators_fence("b", 4, 0)]);
    assert_eq!(bench.watch.view().standing(&node("b"), at(12_000).moment), Standing::Ending);
    check(&bench.step(15_000, WatchInput::Tick), &expect!["fence b 4 if still operator watched 15s by a"]);
    // It replaced a write this node has never seen, or none at all.
    let mut bench = Bench::new();
    bench.list_quietly(0, 3000, &[live("b", 4, 0)]);
    bench.list_quietly(6000, 18_000, &[operators_fence("b", 5, 5000)]);
    check(
        &bench.list(21_000, &[operators_fence("b", 5, 5000)]),
        &expect!["fence b 5 if still operator watched 15s by a"],
    );
}

// R-LEASE-7
#[test]
fn a_deleted_or_unreadable_heartbeat_frees_nothing_and_is_never_fenced() {
    let mut bench = Bench::new();
    bench.list_quietly(0, 3000, &[live("b", 4, 0)]);
    bench.list_quietly(6000, 60_000, &[]);
    assert_eq!(bench.watch.view().standing(&node("b"), at(60_000).moment), Standing::Absent);
    let strange = Seen { record: Err(RecordError::Format(2)), ..live("b", 5, 0) };
    check(
        &bench.list(63_000, std::slice::from_ref(&strange)),
        &expect!["the heartbeat of node b cannot be read: it has format 2, and this version reads format 1"],
    );
    bench.list_quietly(66_000, 120_000, &[strange]);
    assert_eq!(bench.watch.view().standing(&node("b"), at(120_000).moment), Standing::Silent);
}

#[test]
fn a_listing_that_shows_our_own_heartbeat_as_anothers_is_reported() {
    for own in [Some(operators_fence("a", 4, 0)), Some(Seen { node: node("a"), ..live("b", 1, 0) }), None] {
        let mut bench = Bench::new();
        let all: Vec<Seen> = own.into_iter().collect();
        assert_eq!(bench.list_all(1000, &all), [WatchEffect::OwnHeartbeatChanged]);
        // Before our lease was valid it is the previous process's.
        bench.step(2000, WatchInput::Lapsed);
        assert_eq!(bench.list_all(4000, &all), []);
    }
}

// R-WAIT-1, R-TLS-4
#[test]
fn a_node_leaves_the_view_ten_seconds_after_its_last_write_or_its_listing_if_its_clock_is_wrong() {
    const HOUR_MS: u64 = 3_600_000;
    for (skew, leaves) in [(0, 15_000), (-1, 16_000), (1, 16_000)] {
        let mut bench = Bench::new();
        let dated = |ms: u64| WALL_AT_BOOT_MS + ms + (skew + 1) as u64 * HOUR_MS - HOUR_MS;
        bench.list(0, &[seen("b", 1, dated(0), NodeState::Live)]);
        bench.list(3000, &[seen("b", 2, dated(2000), NodeState::Live)]);
        bench.list(6000, &[seen("b", 3, dated(5000), NodeState::Live)]);
        let view = bench.watch.view();
        let standing = |ms| view.standing(&node("b"), at(ms).moment);
        assert_eq!(standing(leaves - 1), Standing::Live, "{skew} h");
        assert_eq!(standing(leaves), Standing::Silent, "{skew} h");
    }
}

// R-LEASE-9
#[test]
fn a_node_whose_own_clock_is_ahead_of_all_others_says_so_once_a_minute() {
    let dated = |id, sequence, ms: u64, behind_ms: u64| {
        seen(id, sequence, WALL_AT_BOOT_MS + ms - behind_ms, NodeState::Live)
    };
    // One of the others agrees with this clock, or is only as old as its renewals may be.
    for behind_ms in [0, 5_000] {
        let mut bench = Bench::new();
        for round in 0..30 {
            let ms = round * 3000;
            let listed = bench.list(ms, &[dated("b", round, ms, 600_000), dated("c", round, ms, behind_ms)]);
            assert_eq!(listed, [], "{behind_ms}");
        }
    }
    let mut bench = Bench::new();
    let mut said = Vec::new();
    for round in 0..30 {
        let ms = round * 3000;
        for effect in bench.list(ms, &[dated("b", round, ms, 600_000), dated("c", round, ms, 300_000)]) {
            said.push((ms, effect));
        }
    }
    // A renewal of c may be as old as the listing before, and a write's time.
    let by_ms = 300_000 - 3_000 - 2_700;
    let notice = WatchEffect::Notice(Notice::OwnClockAhead { by_ms });
    assert_eq!(said, [(3_000, notice.clone()), (63_000, notice)]);
    // Nodes that were never seen to renew prove nothing: they may be dead.
    let mut bench = Bench::new();
    for ms in [0, 3_000, 6_000] {
        assert_eq!(bench.list(ms, &[dated("b", 0, 0, 600_000)]), []);
    }
}

// R-TLS-4
#[test]
fn a_clock_that_is_behind_hides_a_live_node_from_one_that_starts_for_one_listing() {
    const HOUR_MS: u64 = 3_600_000;
    for (ahead_ms, behind_ms, first) in
        [(0, 1_000, Standing::Live), (0, 2 * HOUR_MS, Standing::Silent), (2 * HOUR_MS, 0, Standing::Live)]
    {
        let mut bench = Bench::started(60_000);
        let mut standing = |sequence, ms: u64| {
            let dated_ms = WALL_AT_BOOT_MS + ms + ahead_ms - behind_ms;
            bench.list(ms, &[seen("b", sequence, dated_ms, NodeState::Live)]);
            bench.watch.view().standing(&node("b"), at(ms).moment)
        };
        assert_eq!(standing(1, 60_000), first, "{behind_ms}");
        assert_eq!(standing(2, 63_000), Standing::Live, "{behind_ms}");
    }
}

/// A live heartbeat as its process renews it: of this shape, counted from none.
fn shaped(shape: u32, seen: Seen) -> Seen {
    let shape = (0..shape).fold(Shape::NONE, |shape, _| shape.next());
    Seen { record: seen.record.map(|record| NodeRecord { shape, ..record }), ..seen }
}

// R-LEASE-4, R-TLS-4
#[test]
fn a_node_that_only_renews_is_read_once_and_stays_in_view_as_long_as_its_writes_say() {
    let mut bench = Bench::new();
    for round in 0..40 {
        let ms = round * 3000;
        assert_eq!(bench.list(ms + 900, &[shaped(1, live("b", round, ms + 250))]), [], "{round}");
    }
    assert_eq!(bench.reads.iter().filter(|read| *read == "b").count(), 1);
    let view = bench.watch.view();
    let standing = |ms| view.standing(&node("b"), at(ms).moment);
    // The last write was at 117.25 s, which its length says to half a second.
    assert_eq!(standing(126_999), Standing::Live);
    assert_eq!(standing(127_250), Standing::Silent);
}

// R-LEASE-4
#[test]
fn what_changes_otherwise_than_by_a_renewal_is_read() {
    let renewed = |shape| shaped(shape, live("b", 5, 3000));
    let fence = || {
        let Ok(record) = renewed(1).record else { unreachable!() };
        let record = record.fence(Duration::from_secs(15), None, Nonce::from_bits(1));
        Seen { version: Version::new("fence"), record: Ok(record), ..renewed(1) }
    };
    for (what, shape, next, ms, read) in [
        ("a renewal", 1, renewed(1), 3000, false),
        ("anything else", 1, renewed(2), 3000, true),
        ("a fence", 1, fence(), 3000, true),
        ("a heartbeat that replaced nothing known", 0, renewed(0), 3000, true),
        ("one whose length says nothing", 1, renewed(0), 3000, true),
        ("a renewal after a pause of our listings", 1, renewed(1), 9000, true),
    ] {
        let mut bench = Bench::new();
        bench.list(0, &[shaped(shape, live("b", 4, 0))]);
        bench.reads.clear();
        bench.list(ms, std::slice::from_ref(&next));
        assert_eq!(bench.reads.contains(&"b".to_owned()), read, "{what}");
        let known = bench.watch.view().peer(&node("b")).map(|peer| peer.version.clone());
        assert_eq!(known, Some(next.version), "{what}");
    }
}

// R-LEASE-4
#[test]
fn a_node_that_falls_silent_is_read_before_it_is_fenced() {
    let mut bench = Bench::new();
    bench.list(0, &[shaped(1, live("b", 4, 0))]);
    let last = shaped(1, live("b", 5, 2000));
    bench.list_quietly(3000, 15_000, std::slice::from_ref(&last));
    assert_eq!(bench.reads.iter().filter(|read| *read == "b").count(), 2, "once when it was new, once later");
    check(&bench.step(18_000, WatchInput::Tick), &expect!["fence b 5 if still b5 watched 15s by a"]);
}

// R-LEASE-9
#[test]
fn a_date_that_runs_ahead_is_noticed_by_the_length_alone() {
    let mut bench = Bench::new();
    let fast =
        |sequence, ms, ahead| shaped(1, seen("b", sequence, WALL_AT_BOOT_MS + ms + ahead, NodeState::Live));
    for (round, ahead) in [(0, 0), (1, 400), (2, 800)] {
        assert_eq!(bench.list(round * 3000, &[fast(round, round * 3000, ahead)]), []);
    }
    check(
        &bench.list(9000, &[fast(3, 9000, 1700)]),
        &expect!["the heartbeat of node b is dated 1 s ahead of this node's clock: one of the two is wrong"],
    );
    assert_eq!(bench.reads.iter().filter(|read| *read == "b").count(), 1);
}

// R-LEASE-8; case S3
#[test]
fn a_heartbeat_in_our_place_that_none_of_our_writes_gave_is_reported_whatever_its_length() {
    let mut bench = Bench::new();
    let own = |version: u64, ms| shaped(1, live("a", version, ms));
    bench.step(0, WatchInput::Stands(own(1, 0).version));
    assert_eq!(bench.list_all(0, &[own(1, 0)]), []);
    // The answer to our own write may come after a listing that shows it.
    assert_eq!(bench.list_all(3000, &[own(2, 3000)]), []);
    bench.step(3100, WatchInput::Stands(own(2, 3000).version));
    assert_eq!(bench.list_all(6000, &[own(3, 6000)]), []);
    assert_eq!(bench.list_all(9000, &[own(4, 9000)]), [WatchEffect::OwnHeartbeatChanged]);
}

#[test]
fn a_look_with_a_read_that_fails_says_nothing_and_waits_for_its_other_reads() {
    let mut bench = Bench::new();
    bench.list(0, &[live("b", 1, 0), live("c", 1, 0)]);
    bench.step(3000, WatchInput::Tick);
    let entry = |id: &str| Listed { node: node(id), version: Some(Version::new("new")), size: 1 };
    let reads = bench.step(3000, WatchInput::Listed(Some(vec![entry("b"), entry("c")])));
    assert_eq!(reads, [WatchEffect::Read(node("c")), WatchEffect::Read(node("b"))]);
    assert_eq!(bench.step(3100, WatchInput::Read(node("b"), Found::Failed)), []);
    assert_eq!(
        bench.wake(3100),
        Duration::from_secs(15),
        "nothing is listed before the other read is answered"
    );
    bench.step(3200, WatchInput::Read(node("c"), Found::Absent));
    assert_eq!(bench.wake(3200), Duration::from_secs(6));
    assert!(bench.watch.view().peer(&node("c")).is_some(), "the look said nothing");
}
