use std::{collections::BTreeMap, rc::Rc, time::Duration};

use wasmkeep_bucket::MemoryBucket;
use wasmkeep_protocol::{
    lease::{self, Keeper},
    ownership::Owner,
    records::{Hold, Nonce, Presence, Process},
    store::{Found, Version, Wrote},
    view::Peer,
};

use super::*;
use crate::kit::{Cable, Clock, run, secs};

/// A node whose lease and view the test sets.
#[derive(Debug, Clone, Default)]
struct Set {
    lease: Rc<Cell<Option<ValidLease>>>,
    peers: Rc<RefCell<BTreeMap<wasmkeep_protocol::NodeId, Peer>>>,
}

impl LeaseView for Set {
    fn view(&self) -> Arc<View> {
        Arc::new(View::new(&Timing::default(), self.peers.borrow().clone()))
    }

    fn lease(&self) -> Option<ValidLease> {
        self.lease.get()
    }
}

fn identity(node: &str, process: u128) -> Identity {
    Identity { node: node.parse().expect("a name"), process: Process::from_bits(process) }
}

/// A valid lease of the `epoch`-th time, as only a keeper makes one.
fn lease(epoch: u64) -> ValidLease {
    let at = |seconds| wasmkeep_protocol::clock::Now {
        moment: Moment::after_boot(Duration::from_secs(seconds)),
        wall_ms: seconds * 1000,
    };
    let timing = Timing::default();
    let mut keeper = Keeper::new(timing, identity("a", 1), Presence::default(), at(0).moment);
    let mut time = 0;
    let mut found = Found::Absent;
    loop {
        let mut inputs = vec![lease::Input::Tick];
        while let Some(input) = inputs.pop() {
            for effect in keeper.step(at(time), Nonce::from_bits(u128::from(time)), input) {
                match effect {
                    lease::Effect::Read => inputs.push(lease::Input::Read(found.clone())),
                    lease::Effect::Write(record, _) => {
                        let version = Version::new(time.to_string());
                        found = Found::Object(version.clone(), Ok(record));
                        inputs.push(lease::Input::Wrote(Wrote::Written(version)));
                    }
                    _ => {}
                }
            }
        }
        match keeper.lease(at(time).moment) {
            Some(lease) if lease.epoch() == epoch => return lease,
            // Long enough to lapse, and to be renewed at the next tick.
            Some(_) => time += 60,
            None => time += 1,
        }
        assert!(time < 1000, "no lease");
    }
}

struct Node {
    holds: Rc<OwnershipManager<Cable, Clock, Set>>,
    set: Set,
    bucket: Cable,
}

fn node(clock: &Clock, bucket: &Cable, name: &str, process: u128) -> Node {
    let set = Set::default();
    set.lease.set(Some(lease(1)));
    let tenant = "acme".parse().expect("a tenant");
    let holds = OwnershipManager::new(
        bucket.clone(),
        clock.clone(),
        set.clone(),
        Timing::default(),
        identity(name, process),
        tenant,
    );
    let holds = Rc::new(holds);
    tokio::task::spawn_local({
        let holds = Rc::clone(&holds);
        async move { holds.run().await }
    });
    Node { holds, set, bucket: bucket.clone() }
}

fn actor(name: &str) -> ActorId {
    ActorId { class: "room".parse().expect("a class"), name: name.parse().expect("a name") }
}

async fn record(bucket: &MemoryBucket, name: &str) -> OwnerRecord {
    let object = bucket.get(&key(&format!("owners/acme/room/{name}")), None).await.expect("a record");
    OwnerRecord::decode(&object.bytes(9999).await.expect("whole")).expect("sound")
}

// R-OWN-1, R-RST-1
#[test]
fn what_is_left_behind_is_looked_at_during_the_write_that_takes_and_again_after_a_lost_race() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let (a, b) = (node(&clock, &bucket, "a", 1), node(&clock, &bucket.another(), "b", 2));
        let lobby = actor("lobby");
        bucket.delay.set(Duration::from_secs(1));
        let looks = Cell::new(0);
        let look = || {
            let number = looks.replace(looks.get() + 1);
            async move {
                secs(1).await;
                number
            }
        };
        let began = clock.now();
        assert_eq!(a.holds.take_and_look(&lobby, false, look).await, Ok((1, 0)));
        assert_eq!(clock.now() - began, Duration::from_secs(2), "a read, and a write beside the look");
        // Held: looked at once more.
        assert_eq!(a.holds.take_and_look(&lobby, false, look).await, Ok((1, 1)));
        a.holds.release(&lobby);
        a.holds.all_released().await;
        // Another node's whole turn between the read and the write, which so meets another record.
        looks.set(0);
        let turn = async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            assert_eq!(b.holds.take(&lobby, false).await, Ok(2));
            b.holds.release(&lobby);
            b.holds.all_released().await;
        };
        let (taken, ()) = futures::future::join(a.holds.take_and_look(&lobby, false, look), turn).await;
        assert_eq!((taken, looks.get()), (Ok((3, 1)), 2));
        // Denied: nothing that was looked at counts.
        let denied = b.holds.take_and_look(&lobby, true, look).await;
        assert!(matches!(denied, Err(Denial::Owned(_))), "{denied:?}");
        assert_eq!(looks.get(), 2);
    });
}

// R-OWN-1, R-OWN-2
#[test]
fn an_actor_is_taken_given_up_and_taken_again_with_a_greater_generation() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let (a, b) = (node(&clock, &bucket, "a", 1), node(&clock, &bucket.another(), "b", 2));
        let lobby = actor("lobby");
        assert_eq!(a.holds.take(&lobby, false).await, Ok(1));
        assert_eq!(a.holds.generation(&lobby), Some(1));
        assert_eq!(record(&bucket.bucket, "lobby").await.hold, Hold::Held);
        // Not listed yet: who says that it lives?
        let denied = b.holds.take(&lobby, false).await;
        assert!(matches!(denied, Err(Denial::Owned(Owner::Silent(_)))), "{denied:?}");
        a.holds.release(&lobby);
        a.holds.all_released().await;
        assert_eq!(a.holds.generation(&lobby), None);
        assert_eq!(record(&bucket.bucket, "lobby").await.hold, Hold::Released);
        assert_eq!(b.holds.take(&lobby, false).await, Ok(2));
        assert!(a.holds.claims.borrow().is_empty(), "what is over is forgotten");
    });
}

// R-WS-2
#[test]
fn a_record_tells_who_had_the_actor_last_and_nothing_is_taken() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let (a, b) = (node(&clock, &bucket, "a", 1), node(&clock, &bucket.another(), "b", 2));
        let lobby = actor("lobby");
        let told = |node: Option<&str>| node.map(|node| node.parse().expect("a name"));
        assert_eq!(b.holds.last_holder(&b.bucket, &lobby).await, None);
        assert_eq!(a.holds.take(&lobby, false).await, Ok(1));
        assert_eq!(b.holds.last_holder(&b.bucket, &lobby).await, told(Some("a")));
        a.holds.release(&lobby);
        a.holds.all_released().await;
        assert_eq!(b.holds.last_holder(&b.bucket, &lobby).await, told(Some("a")));
        assert_eq!(b.holds.take(&lobby, false).await, Ok(2));
        assert_eq!(a.holds.last_holder(&a.bucket, &lobby).await, told(Some("b")));
        a.bucket.cut.set(true);
        assert_eq!(a.holds.last_holder(&a.bucket, &lobby).await, None);
    });
}

// R-OWN-1
#[test]
fn an_actor_that_is_held_costs_no_request() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let a = node(&clock, &bucket, "a", 1);
        assert_eq!(a.holds.take(&actor("lobby"), false).await, Ok(1));
        let before = bucket.requests.get();
        for _ in 0..100 {
            assert_eq!(a.holds.take(&actor("lobby"), false).await, Ok(1));
        }
        secs(3600).await;
        assert_eq!(bucket.requests.get(), before);
    });
}

// R-LEASE-3
#[test]
fn after_a_lapse_everything_is_taken_anew() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let a = node(&clock, &bucket, "a", 1);
        assert_eq!(a.holds.take(&actor("lobby"), false).await, Ok(1));
        a.set.lease.set(None);
        assert_eq!(a.holds.generation(&actor("lobby")), None);
        a.holds.lapsed();
        assert_eq!(a.holds.take(&actor("lobby"), false).await, Err(Denial::NoLease));
        a.set.lease.set(Some(lease(2)));
        assert_eq!(a.holds.take(&actor("lobby"), false).await, Ok(2));
    });
}

// R-OWN-1
#[test]
fn an_answer_of_before_a_lapse_is_not_taken_for_one_of_after_it() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let (a, lobby) = (node(&clock, &bucket, "a", 1), actor("lobby"));
        bucket.delay.set(Duration::from_secs(1));
        let before = a.holds.take(&lobby, false);
        let after = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            a.set.lease.set(None);
            a.holds.lapsed();
            tokio::task::yield_now().await;
            a.set.lease.set(Some(lease(2)));
            a.holds.take(&lobby, false).await
        };
        let began = clock.now();
        let both = futures::future::join(before, after);
        let taken = tokio::time::timeout(Duration::from_secs(60), both).await;
        assert_eq!(taken.expect("an answer"), (Err(Denial::NoLease), Ok(1)));
        assert_eq!(clock.now() - began, Duration::from_millis(2500), "its own read, and the write");
    });
}

// R-OWN-1
#[test]
fn a_hold_is_over_the_moment_it_is_given_up() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let (a, lobby) = (node(&clock, &bucket, "a", 1), actor("lobby"));
        assert_eq!(a.holds.take(&lobby, false).await, Ok(1));
        a.holds.release(&lobby);
        assert_eq!((a.holds.generation(&lobby), a.holds.holds(&lobby)), (None, false));
        assert_eq!(a.holds.take(&lobby, false).await, Ok(2));
    });
}

// R-OWN-2
#[test]
fn a_release_that_does_not_land_is_tried_again() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let a = node(&clock, &bucket, "a", 1);
        assert_eq!(a.holds.take(&actor("lobby"), false).await, Ok(1));
        a.bucket.cut.set(true);
        a.holds.release(&actor("lobby"));
        secs(30).await;
        assert_eq!(record(&bucket.bucket, "lobby").await.hold, Hold::Held);
        a.bucket.cut.set(false);
        a.holds.all_released().await;
        assert_eq!(record(&bucket.bucket, "lobby").await.hold, Hold::Released);
    });
}

#[test]
fn a_node_that_takes_no_more_says_so() {
    run(async {
        let (clock, bucket) = (Clock::new(), Cable::new());
        let a = node(&clock, &bucket, "a", 1);
        a.holds.stop_taking();
        assert_eq!(a.holds.take(&actor("lobby"), false).await, Err(Denial::NotTaking));
    });
}
