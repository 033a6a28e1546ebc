use std::rc::Rc;

use bytes::Bytes;
use wasmkeep_bucket::{Key, MemoryBucket, Precondition};
use wasmkeep_protocol::{
    alarm::Outlook,
    history::HistoryFile,
    ownership::Denial,
    records::{Hold as Held_, OwnerRecord, Process},
};
use wasmkeep_replica::{Content, TakeError};

use super::*;
use crate::kit::{Cable, Clock, run, secs};

type Log = Rc<RefCell<Vec<ClusterEvent>>>;

struct Node {
    service: Rc<ClusterService<Cable, Clock>>,
    log: Log,
    bucket: Cable,
    /// Its way to the bucket for listings and deletes of its passes.
    housekeeping: Cable,
}

/// A node of its own way to the same bucket, with a lease.
async fn node(bucket: &Cable, name: &str, process: u128) -> Node {
    let (clock, bucket, housekeeping, lease) =
        (Clock::new(), bucket.another(), bucket.another(), bucket.another());
    let log = Log::default();
    let config = ServiceConfig {
        identity: Identity { node: name.parse().unwrap(), process: Process::from_bits(process) },
        presence: Presence { advertise: format!("http://{name}"), ..Presence::default() },
        tenant: "acme".parse().unwrap(),
        timing: Timing::default(),
        retention: Duration::from_secs(3600),
        pages_max: 1000,
    };
    let buckets = LaneBuckets {
        lease,
        durable: bucket.clone(),
        upload: bucket.clone(),
        restore: bucket.clone(),
        housekeeping: housekeeping.clone(),
    };
    let heard = Rc::clone(&log);
    let service = ClusterService::new(buckets, clock, config, move |event| heard.borrow_mut().push(event));
    let living = Rc::clone(&service);
    tokio::task::spawn_local(async move { living.live().await });
    while service.lease().is_none() {
        secs(1).await;
    }
    Node { service, log, bucket, housekeeping }
}

fn actor(name: &str) -> ActorId {
    ActorId { class: "room".parse().unwrap(), name: name.parse().unwrap() }
}

fn point(txid: u64) -> Point {
    Point { txid, checksum: 1 << 63 | txid }
}

fn deleted(txid: u64) -> Point {
    Point { txid, ..Point::START }
}

async fn owner(bucket: &MemoryBucket, name: &str) -> Option<OwnerRecord> {
    let key: Key = format!("owners/acme/room/{name}").parse().unwrap();
    let object = bucket.get(&key, None).await.ok()?;
    OwnerRecord::decode(&object.bytes(9999).await.unwrap()).ok()
}

async fn is_released(bucket: &MemoryBucket, name: &str) -> bool {
    owner(bucket, name).await.is_some_and(|record| record.hold == Held_::Released)
}

impl Node {
    async fn open(&self, actor: &ActorId) -> Result<Arc<Flags>, GivenUp> {
        let taken = self.service.take(actor).await.expect("nobody else has it");
        let begun = self.service.begin(actor, taken.generation, taken.end, taken.uploads, None);
        if begun.is_ok() {
            taken.opening.begun();
        }
        begun
    }

    async fn write(&self, actor: &ActorId, txid: u64) -> Result<u64, GivenUp> {
        let content = Content::Whole(Bytes::from_static(b"a snapshot"));
        let commit = Commit { to: point(txid), content, alarm: Outlook::exact(None) };
        self.service.push(actor, commit)?;
        self.service.landed(actor, txid, Need::Durable).await
    }

    async fn history(&self, name: &str) -> Vec<String> {
        let folder = object_keys::history_folder(&"acme".parse().unwrap(), &actor(name));
        let listed = wasmkeep_bucket::Listing::new(&*self.bucket.bucket, &folder).all(1000).await.unwrap();
        listed.into_iter().map(|entry| entry.key.to_string()).collect()
    }

    /// Passes that ended early, and objects deleted.
    fn passes(&self) -> (usize, u64) {
        let (mut failures, mut objects) = (0, 0);
        for event in &*self.log.borrow() {
            if let ClusterEvent::Collected { deleted, failed } = event {
                (failures, objects) = (failures + usize::from(*failed), objects + deleted);
            }
        }
        (failures, objects)
    }
}

// R-DEL-1, R-OWN-1
#[test]
fn an_actor_that_comes_back_while_its_history_is_erased_keeps_its_hold() {
    run(async {
        let a = node(&Cable::new(), "a", 1).await;
        let lobby = actor("lobby");
        a.open(&lobby).await.unwrap();
        assert_eq!(a.write(&lobby, 1).await, Ok(1));
        a.housekeeping.delay.set(Duration::from_secs(2));
        a.service.delete(&lobby, deleted(2)).await.unwrap();
        // Taken before the erasure has ended, and begun after it.
        let taken = a.service.take(&lobby).await.unwrap();
        secs(30).await;
        assert_eq!(a.history("lobby").await.len(), 1, "the record of the deletion");
        let flags = a.service.begin(&lobby, taken.generation, taken.end, taken.uploads, None).unwrap();
        taken.opening.begun();
        assert_eq!(a.service.generation(&lobby), Some(taken.generation));
        secs(30).await;
        assert_eq!(a.service.generation(&lobby), Some(taken.generation));
        assert!(!flags.ended.load(Ordering::Acquire));
        assert_eq!(a.write(&lobby, 3).await, Ok(3));
        // And without anybody who comes, it is given up.
        a.service.delete(&lobby, deleted(4)).await.unwrap();
        secs(30).await;
        assert!(is_released(&a.bucket.bucket, "lobby").await);
    });
}

// R-OWN-1
#[test]
fn nothing_begins_under_a_hold_that_has_ended() {
    run(async {
        let a = node(&Cable::new(), "a", 1).await;
        let lobby = actor("lobby");
        let taken = a.service.take(&lobby).await.unwrap();
        a.service.ownership.release(&lobby);
        let begin = |generation| a.service.begin(&lobby, generation, Point::START, 0, None).map(drop);
        assert_eq!(begin(taken.generation), Err(GivenUp::NotHeld));
        // Taken anew by somebody else of this node: another hold.
        let again = a.service.take(&lobby).await.unwrap();
        assert_eq!(begin(taken.generation), Err(GivenUp::NotHeld));
        assert_eq!(begin(again.generation), Ok(()));
    });
}

// R-LEASE-2, R-OWN-1
#[test]
fn every_end_of_a_hold_ends_its_actor() {
    run(async {
        for end in ["finish", "delete", "lapse", "stop"] {
            let a = node(&Cable::new(), "a", 1).await;
            let lobby = actor("lobby");
            let flags = a.open(&lobby).await.unwrap();
            a.write(&lobby, 1).await.unwrap();
            assert!(!flags.ended.load(Ordering::Acquire));
            match end {
                "finish" => a.service.finish(&lobby),
                "delete" => a.service.delete(&lobby, deleted(2)).await.unwrap(),
                "lapse" => a.service.told(Told::Lapsed),
                _ => {
                    a.service.stop();
                    a.service.closed().await;
                }
            }
            assert!(flags.ended.load(Ordering::Acquire), "{end}");
            assert_eq!(a.write(&lobby, 3).await, Err(GivenUp::Closed), "{end}");
        }
    });
}

// R-OWN-1
#[test]
fn what_is_taken_and_not_begun_is_given_up() {
    run(async {
        let bucket = Cable::new();
        let (a, b) = (node(&bucket, "a", 1).await, node(&bucket, "b", 2).await);
        let lobby = actor("lobby");
        // Dropped in the middle of being opened, as by one that could not be.
        drop(a.service.take(&lobby).await.unwrap());
        secs(1).await;
        assert!(is_released(&bucket.bucket, "lobby").await);
        let taken = b.service.take(&lobby).await.expect("another node may try");
        // Begun for somebody who left before it was told.
        b.service.begin(&lobby, taken.generation, taken.end, taken.uploads, None).unwrap();
        drop(taken);
        secs(1).await;
        assert!(is_released(&bucket.bucket, "lobby").await);
        assert!(b.service.streams.borrow().is_empty());
        // Claimed for a request that never came to the actor.
        assert!(a.service.claim(&lobby, false).await.is_ok());
        secs(4).await;
        assert!(!is_released(&bucket.bucket, "lobby").await);
        secs(3).await;
        assert!(is_released(&bucket.bucket, "lobby").await);
        // Or that was refused.
        assert!(a.service.claim(&lobby, false).await.is_ok());
        a.service.unused(&lobby);
        secs(1).await;
        assert!(is_released(&bucket.bucket, "lobby").await);
        assert!(a.service.claimed.borrow().is_empty() && a.service.openings.borrow().is_empty());
        // One that is being opened is not given up, however long that takes and whoever leaves.
        let (one, other) = (a.service.take(&lobby).await.unwrap(), a.service.take(&lobby).await.unwrap());
        drop(one);
        assert!(a.service.claim(&lobby, false).await.is_ok());
        secs(60).await;
        assert!(a.service.begin(&lobby, other.generation, other.end, other.uploads, None).is_ok());
        other.opening.begun();
        secs(60).await;
        assert!(!is_released(&bucket.bucket, "lobby").await);
    });
}

// R-OWN-1, R-RST-2
#[test]
fn a_history_that_cannot_be_listed_leaves_the_actor_to_others() {
    run(async {
        let bucket = Cable::new();
        let a = node(&bucket, "a", 1).await;
        let broken: Key = format!(
            "{}{}",
            object_keys::history_folder(&"acme".parse().unwrap(), &actor("lobby")),
            HistoryFile::changes(1, point(7), point(8))
        )
        .parse()
        .unwrap();
        let put = bucket.bucket.put(&broken, Bytes::new(), &Precondition::None).await;
        assert!(matches!(put, wasmkeep_bucket::Outcome::Written(_)));
        assert!(matches!(a.service.take(&actor("lobby")).await, Err(TakeError::History(_))));
        secs(1).await;
        assert!(is_released(&bucket.bucket, "lobby").await);
    });
}

// R-OWN-1
#[test]
fn an_actor_that_nobody_can_open_costs_a_bounded_number_of_writes() {
    run(async {
        let bucket = Cable::new();
        let (a, b) = (node(&bucket, "a", 1).await, node(&bucket, "b", 2).await);
        let lobby = actor("lobby");
        let began = tokio::time::Instant::now();
        let (mut tries, before) = (0, a.bucket.puts.get() + b.bucket.puts.get());
        while began.elapsed() < Duration::from_secs(30) {
            for node in [&a, &b] {
                if let Ok(taken) = node.service.take(&lobby).await {
                    tries += 1;
                    drop(taken);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let puts = a.bucket.puts.get() + b.bucket.puts.get() - before;
        assert!((20..=80).contains(&tries), "{tries}");
        assert!(puts <= 2 * tries, "{puts} writes for {tries} tries");
    });
}

// R-ACC-1
#[test]
fn asking_whether_an_actor_exists_leaves_nothing_behind() {
    run(async {
        let bucket = Cable::new();
        let (a, b) = (node(&bucket, "a", 1).await, node(&bucket, "b", 2).await);
        for number in 0..50 {
            let name = format!("no{number}");
            assert_eq!(a.service.existence(&actor(&name)).await, Ok(Existence::Not));
            assert!(owner(&bucket.bucket, &name).await.is_none());
        }
        assert!(a.service.claimed.borrow().is_empty() && a.service.looked.borrow().is_empty());
        let lobby = actor("lobby");
        b.open(&lobby).await.unwrap();
        secs(10).await;
        assert_eq!(b.service.existence(&lobby).await, Ok(Existence::Sure), "it is open");
        assert_eq!(a.service.existence(&lobby).await, Ok(Existence::Elsewhere), "it has written nothing");
        b.write(&lobby, 1).await.unwrap();
        assert_eq!(a.service.existence(&lobby).await, Ok(Existence::Sure));
        b.service.delete(&lobby, deleted(2)).await.unwrap();
        secs(10).await;
        assert_eq!(a.service.existence(&lobby).await, Ok(Existence::Not));
        a.bucket.cut.set(true);
        assert!(a.service.existence(&lobby).await.is_err());
    });
}

// R-DEL-1
#[test]
fn an_erasure_is_tried_again_and_its_failures_are_counted() {
    run(async {
        let a = node(&Cable::new(), "a", 1).await;
        let lobby = actor("lobby");
        a.open(&lobby).await.unwrap();
        for txid in 1..=3 {
            a.write(&lobby, txid).await.unwrap();
        }
        a.housekeeping.refused_deletes.set(2);
        a.service.delete(&lobby, deleted(4)).await.unwrap();
        secs(20).await;
        assert_eq!(a.history("lobby").await.len(), 1);
        assert_eq!(a.passes(), (2, 3));
        assert!(is_released(&a.bucket.bucket, "lobby").await);
        // It does not go on for ever.
        a.open(&lobby).await.unwrap();
        a.write(&lobby, 5).await.unwrap();
        a.housekeeping.refused_deletes.set(usize::MAX);
        a.service.delete(&lobby, deleted(6)).await.unwrap();
        secs(120).await;
        assert_eq!(a.passes().0, 2 + 5);
        assert!(is_released(&a.bucket.bucket, "lobby").await);
    });
}

// R-HIST-1
#[test]
fn one_pass_over_a_history_is_under_way_at_a_time_and_so_many_on_a_node() {
    run(async {
        let a = node(&Cable::new(), "a", 1).await;
        let actors: Vec<_> = (0..20).map(|number| actor(&format!("r{number}"))).collect();
        for actor in &actors {
            a.open(actor).await.unwrap();
            a.write(actor, 1).await.unwrap();
        }
        a.housekeeping.delay.set(Duration::from_secs(1));
        for actor in &actors {
            for _ in 0..10 {
                let snapshot = a.service.snapshot(actor, point(1), Bytes::from_static(b"a snapshot"));
                assert_eq!(snapshot.await, Ok(true));
            }
        }
        let passes = || {
            let log = a.log.borrow();
            log.iter().filter(|event| matches!(event, ClusterEvent::Collected { .. })).count()
        };
        // Each is a list, of which nothing follows.
        tokio::time::sleep(Duration::from_millis(500)).await;
        for ended in [0, 4, 8, 12, 16, 20, 20, 20] {
            assert_eq!(passes(), ended);
            secs(1).await;
        }
    });
}

// R-OWN-1
#[test]
fn a_node_that_takes_nothing_leaves_nothing_behind() {
    run(async {
        let a = node(&Cable::new(), "a", 1).await;
        a.service.stop();
        let denied = a.service.take(&actor("lobby")).await;
        assert!(matches!(denied, Err(TakeError::Denied(Denial::NotTaking))));
        secs(1).await;
        assert!(a.service.openings.borrow().is_empty());
        assert!(owner(&a.bucket.bucket, "lobby").await.is_none());
    });
}

// R-REPL-1
#[test]
fn a_transaction_that_was_never_handed_over_is_not_waited_for() {
    run(async {
        let a = node(&Cable::new(), "a", 1).await;
        let lobby = actor("lobby");
        a.open(&lobby).await.unwrap();
        a.write(&lobby, 1).await.unwrap();
        let landed = a.service.landed(&lobby, 2, Need::Replicated);
        let landed = tokio::time::timeout(Duration::from_secs(3600), landed).await.expect("it ends");
        assert_eq!(landed, Err(GivenUp::NotTaken { txid: 2, taken: 1 }));
    });
}
