use std::{rc::Rc, time::Duration};

use wasmkeep_protocol::{records::Process, view::Standing};

use super::*;
use crate::kit::{Cable, Clock, run, secs};

/// What a member has told, and when.
type Log = Rc<RefCell<Vec<(Duration, Told)>>>;

struct Node {
    member: Rc<Member<Cable, Clock>>,
    log: Log,
    exit: tokio::task::JoinHandle<Exit>,
}

fn start(clock: &Clock, bucket: &Cable, name: &str, process: u128) -> Node {
    let identity = Identity { node: name.parse().expect("a name"), process: Process::from_bits(process) };
    let presence = Presence { advertise: format!("http://{name}"), ..Presence::default() };
    let member = Member::new(bucket.clone(), clock.clone(), Timing::default(), identity, presence);
    let (member, log) = (Rc::new(member), Log::default());
    let exit = tokio::task::spawn_local({
        let (member, log, clock) = (Rc::clone(&member), Rc::clone(&log), clock.clone());
        async move { member.run(|told| log.borrow_mut().push((clock.0.elapsed(), told))).await }
    });
    Node { member, log, exit }
}

impl Node {
    fn first(&self, wanted: impl Fn(&Told) -> bool) -> Option<Duration> {
        self.log.borrow().iter().find(|(_, told)| wanted(told)).map(|(when, _)| *when)
    }

    fn standing_of(&self, node: &str) -> Standing {
        let view = self.member.watch.borrow().view();
        view.standing(&node.parse().expect("a name"), now(&self.member.runtime).moment)
    }
}

// R-LEASE-8, R-LEASE-1
#[test]
fn a_first_start_watches_its_id_for_fifteen_seconds_and_then_keeps_its_lease() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let node = start(&clock, &bucket, "a", 1);
        secs(14).await;
        assert!(node.member.lease().is_none());
        secs(46).await;
        let valid = node.first(|told| matches!(told, Told::Valid(_))).expect("a lease");
        assert!(valid >= Duration::from_secs(15) && valid < Duration::from_secs(17), "{valid:?}");
        assert!(node.member.lease().is_some());
        assert!(node.first(|told| matches!(told, Told::Lapsed)).is_none());
    });
}

// R-LEASE-6
#[test]
fn a_clean_stop_ends_released() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let node = start(&clock, &bucket, "a", 1);
        let other = start(&clock, &bucket.another(), "b", 2);
        secs(20).await;
        node.member.stop();
        secs(1).await;
        assert!(node.member.lease().is_some(), "events in flight finish under it");
        node.member.actors_closed();
        node.member.records_released();
        assert_eq!(node.exit.await.expect("no panic"), Exit::Stopped { released: true });
        secs(4).await;
        assert_eq!(other.standing_of("a"), Standing::Gone);
    });
}

// R-LEASE-4
#[test]
fn a_process_that_dies_is_fenced_after_fifteen_to_twenty_one_seconds() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let node = start(&clock, &bucket, "a", 1);
        let other = start(&clock, &bucket.another(), "b", 2);
        secs(40).await;
        assert_eq!(other.standing_of("a"), Standing::Live);
        node.exit.abort();
        let died = clock.0.elapsed();
        while other.standing_of("a") != Standing::Gone {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(clock.0.elapsed() < died + Duration::from_secs(22), "never fenced");
        }
        assert!(clock.0.elapsed() - died > Duration::from_secs(11), "{:?}", clock.0.elapsed() - died);
    });
}

// R-LEASE-2, R-LEASE-3, R-LEASE-5, R-LEASE-10
#[test]
fn a_node_cut_off_from_the_bucket_lapses_after_eight_seconds_and_comes_back_with_a_new_epoch() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let node = start(&clock, &bucket, "a", 1);
        secs(20).await;
        let before = node.member.lease().expect("valid").epoch();
        bucket.cut.set(true);
        secs(9).await;
        assert!(node.member.lease().is_none());
        assert!(node.first(|told| matches!(told, Told::Lapsed)).is_some());
        bucket.cut.set(false);
        secs(6).await;
        let after = node.member.lease().expect("valid again").epoch();
        assert!(after > before);
    });
}

// R-LEASE-7
#[test]
fn a_deleted_heartbeat_ends_its_process_at_the_next_write() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let node = start(&clock, &bucket, "a", 1);
        secs(20).await;
        bucket.bucket.delete(&key("nodes/a")).await.expect("deleted");
        let exit = tokio::time::timeout(Duration::from_secs(7), node.exit).await.expect("it ends");
        assert_eq!(exit.expect("no panic"), Exit::Deleted);
    });
}

// R-LEASE-8
#[test]
fn a_second_process_with_the_same_id_is_refused_and_the_first_goes_on() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let first = start(&clock, &bucket, "a", 1);
        secs(20).await;
        let second = start(&clock, &bucket.another(), "a", 2);
        match second.exit.await.expect("no panic") {
            Exit::Refused(refused) => assert_eq!(refused.address, "http://a"),
            other => panic!("{other:?}"),
        }
        secs(20).await;
        assert!(first.member.lease().is_some());
        assert!(first.first(|told| matches!(told, Told::Lapsed)).is_none());
    });
}

// R-LEASE-1
#[test]
fn a_node_among_others_sends_two_requests_for_each_heartbeat() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let cables = [bucket.clone(), bucket.another(), bucket.another()];
        let nodes = ["a", "b", "c"].into_iter().zip(1..).zip(&cables);
        let _nodes: Vec<Node> =
            nodes.map(|((name, process), cable)| start(&clock, cable, name, process)).collect();
        let sent = || cables.each_ref().map(|cable| cable.requests.get());
        secs(40).await;
        let before = sent();
        tokio::time::sleep(Timing::default().period * 100).await;
        let during = sent();
        assert_eq!([0, 1, 2].map(|node| during[node] - before[node]), [200; 3]);
    });
}
