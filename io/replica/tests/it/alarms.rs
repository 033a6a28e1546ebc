//! Alarms in the bucket: the order of the requests an owner sends, what each costs, and what a sweep reads.

use std::time::Duration;

use wasmkeep_bucket::{Bucket, Outcome, Precondition};
use wasmkeep_protocol::{
    ActorId,
    alarm::{Listed, Outlook, Post, Posts, Whose, post_body},
    history::Point,
    limits::ALARM_SWEEP_KEYS_MAX,
    object_keys,
};
use wasmkeep_replica::{Commit, Content, GivenUp, Need, UploadError, overdue, whose};
use wasmkeep_runtime::Runtime;

use crate::{
    rig::{Model, Rig, TestUploader, driven, node, run, subject},
    scripted::{Ask, Fault},
};

const SECOND: Duration = Duration::from_secs(1);

fn post(due_ms: u64, txid: u64) -> Post {
    Post { due_ms, generation: 1, txid, node: node() }
}

fn key(post: &Post) -> String {
    object_keys::alarm(&subject().tenant, &(&subject().actor).into(), post)
}

/// The next commit, in a state whose alarm is at `at_ms`.
fn commit(model: &mut Model, at_ms: Option<u64>) -> Commit {
    let commit = if model.txid == 0 { model.first(1) } else { model.commit(1, 1) };
    Commit { alarm: Outlook::exact(at_ms), ..commit }
}

async fn land(uploader: &TestUploader, model: &mut Model, at_ms: Option<u64>) {
    uploader.push(commit(model, at_ms)).unwrap();
    uploader.landed(model.txid, Need::Durable).await.unwrap();
}

/// What was asked since this was called last: `put`, `list` or `delete` and the key, that of a history file as `file`.
fn asked(rig: &Rig) -> Vec<String> {
    let short = |(ask, key): (Ask, String)| {
        let key = if key.starts_with("actors/") { "file".to_owned() } else { key };
        format!("{ask:?} {key}").to_lowercase()
    };
    rig.bucket.take_asked().into_iter().map(short).collect()
}

async fn keys(rig: &Rig) -> Vec<String> {
    rig.bucket.keys().await.into_iter().filter(|key| key.starts_with("alarms/")).collect()
}

// R-ALM-1, case A1
#[test]
fn an_earlier_alarm_is_listed_before_its_commit_is_sent_and_a_later_one_after_it_landed() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        let uploader = rig.uploader(1, Point::START);
        let [at_50, at_90, at_20] = [post(50, 1), post(90, 3), post(20, 4)].map(|post| key(&post));
        let (put, delete) = (|key: &str| format!("put {key}"), |key: &str| format!("delete {key}"));
        let file = || "put file".to_owned();
        driven(&uploader, async {
            for (at_ms, requests) in [
                (Some(50), vec![put(&at_50), file()]),
                (Some(50), vec![file()]),
                (Some(90), vec![file(), put(&at_90), delete(&at_50)]),
                (Some(20), vec![put(&at_20), file(), delete(&at_90)]),
                (None, vec![file(), delete(&at_20)]),
                (None, vec![file()]),
            ] {
                land(&uploader, &mut model, at_ms).await;
                rig.clock.sleep(60 * SECOND).await;
                assert_eq!(asked(&rig), requests, "{at_ms:?}");
            }
        })
        .await;
        assert_eq!(keys(&rig).await, [""; 0]);
    });
}

// R-ALM-1
#[test]
fn an_actor_that_sets_its_alarm_in_every_event_has_the_index_written_once_a_second() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        let uploader = rig.uploader(1, Point::START);
        driven(&uploader, async {
            for event in 0..300 {
                land(&uploader, &mut model, Some(1_000 + event)).await;
                rig.clock.sleep(SECOND / 100).await;
            }
            rig.clock.sleep(2 * SECOND).await;
        })
        .await;
        let asked = asked(&rig);
        let puts = asked.iter().filter(|asked| asked.starts_with("put alarms/")).count();
        assert!((3..=6).contains(&puts), "{puts}: {asked:?}");
        assert_eq!(keys(&rig).await, [key(&post(1_299, 300))]);
    });
}

// R-ALM-1, R-REPL-2, R-REPL-4
#[test]
fn an_alarm_that_cannot_be_listed_is_an_upload_that_failed() {
    for (fault, seconds) in [(Fault::Refused, 1), (Fault::Broken, 20)] {
        run(async {
            let (rig, mut model) = (Rig::new(), Model::new());
            let uploader = rig.uploader(1, Point::START);
            let broken = move |ask, key: &str| ask == Ask::Put && key.starts_with("alarms/");
            rig.bucket.script(move |ask, key| if broken(ask, key) { fault } else { Fault::None });
            let ended = driven(&uploader, async {
                uploader.push(commit(&mut model, Some(50))).unwrap();
                uploader.landed(model.txid, Need::Durable).await
            })
            .await;
            match fault {
                Fault::Refused => assert!(matches!(ended, Err(GivenUp::Upload(UploadError::Refused { .. })))),
                _ => assert!(matches!(ended, Err(GivenUp::Upload(UploadError::Unacknowledged { .. })))),
            }
            assert!(rig.clock.now() <= seconds * SECOND, "{:?}", rig.clock.now());
            assert_eq!(rig.bucket.keys().await, [""; 0], "no state without its entry");
        });
    }
}

// R-ALM-1
#[test]
fn no_upload_waits_for_the_clearing_up() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        let uploader = rig.uploader(1, Point::START);
        driven(&uploader, async {
            land(&uploader, &mut model, Some(50)).await;
            rig.bucket.script(|ask, key| match (ask, key.starts_with("alarms/")) {
                (Ask::Delete, _) | (Ask::Put, true) => Fault::Late(10 * SECOND),
                _ => Fault::None,
            });
            let began = rig.clock.now();
            for at_ms in [Some(90), Some(95), None, None] {
                land(&uploader, &mut model, at_ms).await;
            }
            assert_eq!(rig.clock.now(), began);
            rig.clock.sleep(60 * SECOND).await;
        })
        .await;
        assert_eq!(keys(&rig).await, [""; 0]);
    });
}

// R-ALM-1, case A5
#[test]
fn a_deleted_actor_leaves_no_alarm() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        let uploader = rig.uploader(1, Point::START);
        driven(&uploader, land(&uploader, &mut model, Some(50))).await;
        let end = model.point();
        // Another owner, which did not put it.
        let posts = Posts::opened(None, node(), 2, end.txid, Some(50));
        let next = rig.uploader_with(posts, end);
        driven(&next, async {
            let to = Point { txid: end.txid + 1, ..Point::START };
            next.push(Commit { to, content: Content::Deleted, alarm: Outlook::exact(None) }).unwrap();
            next.landed(to.txid, Need::Durable).await.unwrap();
            next.close();
        })
        .await;
        assert!(next.clear_up().await);
        assert_eq!(keys(&rig).await, [""; 0]);
        assert!(next.posts().is_empty());
    });
}

// R-ALM-1
#[test]
fn a_sweep_with_nothing_overdue_is_one_request_and_one_with_much_has_an_end() {
    run(async {
        let rig = Rig::new();
        let tenant = subject().tenant;
        let put = async |name: &str, due_ms: u64| {
            let actor = ActorId { class: "room".parse().unwrap(), name: name.parse().unwrap() };
            let text = object_keys::alarm(&tenant, &(&actor).into(), &post(due_ms, 1));
            let body = post_body(&actor).into();
            let put = rig.bucket.memory.put(&text.parse().unwrap(), body, &Precondition::None).await;
            assert!(matches!(put, Outcome::Written(_)));
        };
        for number in 0..1_000 {
            put(&format!("far-{number}"), 10_000 + number).await;
        }
        let listed = overdue(&rig.bucket, &rig.clock, &tenant, None, 9_999).await.unwrap();
        assert_eq!((listed.entries.len(), listed.rest, asked(&rig).len()), (0, None, 1));
        put("b", 8).await;
        put("a", 9).await;
        let listed = overdue(&rig.bucket, &rig.clock, &tenant, None, 9_999).await.unwrap();
        let names = |entries: &[Listed]| -> Vec<String> {
            entries.iter().map(|listed| listed.whose.stem.clone()).collect()
        };
        assert_eq!((names(&listed.entries), asked(&rig).len()), (vec!["b".into(), "a".into()], 1));
        for number in 0..ALARM_SWEEP_KEYS_MAX + 5 {
            put(&format!("n{number:05}"), 100).await;
        }
        let first = overdue(&rig.bucket, &rig.clock, &tenant, None, 9_999).await.unwrap();
        assert_eq!(first.entries.len(), ALARM_SWEEP_KEYS_MAX);
        let rest = overdue(&rig.bucket, &rig.clock, &tenant, first.rest, 9_999).await.unwrap();
        assert_eq!((rest.entries.len(), rest.rest), (7, None), "the next one goes on");
    });
}

// R-ALM-1
#[test]
fn an_actor_whose_name_no_key_has_room_for_is_found_in_the_object() {
    run(async {
        let rig = Rig::new();
        let tenant = subject().tenant;
        let actor = ActorId { class: "room".parse().unwrap(), name: "ä".repeat(128).parse().unwrap() };
        let listed = Listed { whose: Whose::from(&actor), post: post(5, 1) };
        let look = async || whose(&rig.bucket, &rig.clock, &tenant, &listed).await;
        assert_eq!(look().await.unwrap(), None, "gone meanwhile");
        let key = object_keys::alarm(&tenant, &listed.whose, &listed.post).parse().unwrap();
        let put = rig.bucket.memory.put(&key, post_body(&actor).into(), &Precondition::None).await;
        assert!(matches!(put, Outcome::Written(_)));
        assert_eq!(look().await.unwrap(), Some(actor));
        rig.bucket.script(|_, _| Fault::Unavailable);
        assert!(look().await.is_err());
    });
}
