//! The S3 backend against a server that misbehaves, over real sockets.

mod fault_server;

use std::time::{Duration, Instant};

use bytes::Bytes;
use fault_server::{Fault, FaultServer, Ignored};
use wasmkeep_bucket::{
    Bucket, Condition, Failure, Key, ListError, Listing, ListingFault, Nonce, Outcome, Precondition,
    ProbeError, ReadError, UnknownCause, Version, probe, put_settled,
};
use wasmkeep_s3::S3Bucket;

/// Longer than any answer here takes: a test that meets it has found a hang, not a slow machine.
const PATIENT: Duration = Duration::from_secs(60);

/// For the tests in which the server is silent: how long they wait for it.
const SHORT: Duration = Duration::from_millis(300);

fn on_tokio<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn key() -> Key {
    "nodes/a".parse().unwrap()
}

async fn create(bucket: &S3Bucket) -> Outcome {
    bucket.put(&key(), Bytes::from_static(b"body"), &Precondition::Absent).await
}

/// Creates the object of [`key`] and gives its version.
async fn created(bucket: &S3Bucket) -> Version {
    match create(bucket).await {
        Outcome::Written(version) => version,
        other => panic!("{other:?}"),
    }
}

/// The conditional writes of this test: a create, or a replace of an object made before.
async fn conditional(server: &FaultServer, bucket: &S3Bucket, replace: bool) -> Precondition {
    let _ = bucket.delete(&key()).await;
    let condition = match replace {
        true => Precondition::Version(created(bucket).await),
        false => Precondition::Absent,
    };
    server.seen();
    condition
}

// case S1
#[test]
fn a_conflict_is_asked_again_and_not_taken_for_a_lost_race() {
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(PATIENT);
        for replace in [false, true] {
            let condition = conditional(&server, &bucket, replace).await;
            let conflict = Fault::Answer(409, "ConditionalRequestConflict");
            server.next([conflict.clone(), conflict]);
            let outcome = bucket.put(&key(), Bytes::from_static(b"new"), &condition).await;
            assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
            assert_eq!(server.seen().len(), 3);
        }
    });
}

// case S1
#[test]
fn a_conflict_over_an_object_that_changed_is_a_lost_race() {
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(PATIENT);
        let stale = Precondition::Version(Version::new("\"other\"").unwrap());
        created(&bucket).await;
        for condition in [Precondition::Absent, stale] {
            server.next([Fault::Answer(409, "ConditionalRequestConflict")]);
            assert_eq!(bucket.put(&key(), Bytes::new(), &condition).await, Outcome::ConditionFailed);
            // Some stores answer 409 for ever where others answer 412.
            server.next(vec![Fault::Answer(409, "OperationAborted"); 5]);
            assert_eq!(bucket.put(&key(), Bytes::new(), &condition).await, Outcome::ConditionFailed);
        }
    });
}

// case S1
#[test]
fn conflicts_without_end_are_a_passing_failure_and_bounded() {
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(PATIENT);
        server.next(vec![Fault::Answer(409, "ConditionalRequestConflict"); 5]);
        let outcome = create(&bucket).await;
        assert!(matches!(outcome, Outcome::Failed(Failure::Throttled(_))), "{outcome:?}");
        assert_eq!(server.seen().iter().filter(|seen| seen.method == "PUT").count(), 5);
    });
}

// case S2
#[test]
fn a_replace_of_a_missing_object_fails_its_condition_in_both_forms() {
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(PATIENT);
        for status in [404, 412] {
            server.missing_status(status);
            let version = Version::new("\"gone\"").unwrap();
            let outcome = bucket.put(&key(), Bytes::new(), &Precondition::Version(version)).await;
            assert_eq!(outcome, Outcome::ConditionFailed, "{status}");
        }
    });
}

// cases L3 and L5
#[test]
fn only_success_with_a_version_is_a_written_object() {
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(PATIENT);
        for replace in [false, true] {
            for (status, code) in [
                (304, ""),
                (400, "x"),
                (403, "AccessDenied"),
                (404, ""),
                (412, ""),
                (429, ""),
                (500, ""),
                (503, ""),
            ] {
                let condition = conditional(&server, &bucket, replace).await;
                server.next([Fault::Answer(status, code)]);
                let outcome = bucket.put(&key(), Bytes::from_static(b"new"), &condition).await;
                assert!(!matches!(outcome, Outcome::Written(_)), "{status}: {outcome:?}");
                assert_eq!(server.seen().len(), 1, "{status} was sent again");
            }
            let condition = conditional(&server, &bucket, replace).await;
            for status in [200, 201, 204] {
                server.next([Fault::Answer(status, "")]);
                let outcome = bucket.put(&key(), Bytes::from_static(b"new"), &condition).await;
                assert_eq!(outcome, Outcome::Unknown(UnknownCause::NoVersion), "{status}");
            }
        }
    });
}

// case L3: whatever happens to the reply, the write is sent once and its outcome is unknown
#[test]
fn a_write_without_a_reply_is_unknown_and_never_resent_by_the_client() {
    let server = FaultServer::start();
    on_tokio(async {
        for fault in [
            Fault::ApplyAndCut,
            Fault::Cut,
            Fault::ApplyAndSilence,
            Fault::ApplyAndAnswer(500, "InternalError"),
        ] {
            let limit = if matches!(fault, Fault::ApplyAndSilence) { SHORT } else { PATIENT };
            let bucket = server.bucket(limit);
            for replace in [false, true] {
                let condition = conditional(&server, &server.bucket(PATIENT), replace).await;
                server.next([fault.clone()]);
                let outcome = bucket.put(&key(), Bytes::from_static(b"new"), &condition).await;
                assert!(matches!(outcome, Outcome::Unknown(_)), "{fault:?}: {outcome:?}");
                assert_eq!(server.seen().len(), 1, "{fault:?} was sent again");
            }
        }
    });
}

// cases L3 and L4
#[test]
fn a_lost_reply_is_settled_by_our_own_nonce() {
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(PATIENT);
        for fault in [
            Fault::ApplyAndCut,
            Fault::Cut,
            Fault::ApplyAndAnswer(412, "PreconditionFailed"),
            Fault::ApplyAndAnswer(200, ""),
        ] {
            for replace in [false, true] {
                let condition = conditional(&server, &bucket, replace).await;
                let nonce = Nonce::random();
                let record = Bytes::from(format!("lease {nonce}"));
                server.next([fault.clone()]);
                let outcome = put_settled(&bucket, &key(), record.clone(), &condition, &nonce, 2).await;
                let stands = bucket.get(&key(), None).await.unwrap();
                assert_eq!(outcome, Outcome::Written(stands.meta.version.clone()), "{fault:?}");
                assert_eq!(stands.bytes(99).await.unwrap(), record);
            }
        }
    });
}

#[test]
fn a_server_that_is_not_there_has_taken_nothing() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let environment = [
        ("AWS_ENDPOINT", format!("http://{closed}")),
        ("AWS_ALLOW_HTTP", "true".into()),
        ("AWS_ACCESS_KEY_ID", "test".into()),
        ("AWS_SECRET_ACCESS_KEY", "test".into()),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value));
    let bucket = S3Bucket::open("bucket", None, environment, Default::default()).unwrap();
    on_tokio(async {
        let outcome = create(&bucket).await;
        assert!(matches!(outcome, Outcome::Failed(Failure::Unavailable(_))), "{outcome:?}");
        let read = bucket.head(&key()).await;
        assert!(matches!(read, Err(ReadError::Failed(Failure::Unavailable(_)))), "{read:?}");
    });
}

// case S6
#[test]
fn a_server_that_asks_to_slow_down_gets_one_request_a_call() {
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(PATIENT);
        server.next(vec![Fault::Answer(503, "SlowDown"); 5]);
        let outcome = create(&bucket).await;
        assert!(matches!(outcome, Outcome::Failed(Failure::Throttled(_))), "{outcome:?}");
        for throttled in [
            bucket.get(&key(), None).await.err(),
            bucket.head(&key()).await.err(),
            bucket.delete(&key()).await.err().map(ReadError::Failed),
            match Listing::new(&bucket, "").next_page().await {
                Err(ListError::Read(error)) => Some(error),
                other => panic!("{other:?}"),
            },
        ] {
            assert!(matches!(throttled, Some(ReadError::Failed(Failure::Throttled(_)))), "{throttled:?}");
        }
        assert_eq!((server.seen().len(), server.faults_left()), (5, 0));
        created(&bucket).await;
    });
}

// case S6
#[test]
fn silence_ends_every_request() {
    let server = FaultServer::start();
    on_tokio(async {
        created(&server.bucket(PATIENT)).await;
        let bucket = server.bucket(SHORT);
        server.next(vec![Fault::ApplyAndSilence; 4]);
        let silent =
            |error: &Failure| matches!(error, Failure::Unavailable(text) if text.contains("no answer"));
        assert!(matches!(bucket.get(&key(), None).await, Err(ReadError::Failed(error)) if silent(&error)));
        assert!(matches!(bucket.head(&key()).await, Err(ReadError::Failed(error)) if silent(&error)));
        assert!(silent(&bucket.delete(&key()).await.unwrap_err()));
        let page = Listing::new(&bucket, "").next_page().await;
        assert!(matches!(page, Err(ListError::Read(ReadError::Failed(error))) if silent(&error)));
    });
}

// cases S6 and S9
#[test]
fn a_body_that_breaks_off_is_an_error_and_never_a_shorter_object() {
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(SHORT);
        created(&server.bucket(PATIENT)).await;
        for fault in [Fault::CutBody(2), Fault::StallBody(2), Fault::CutBody(0)] {
            server.next([fault.clone()]);
            let object = bucket.get(&key(), None).await.unwrap();
            let read = object.bytes(99).await;
            assert!(matches!(&read, Err(error) if error.passes()), "{fault:?}: {read:?}");
        }
        assert_eq!(bucket.get(&key(), None).await.unwrap().bytes(99).await.unwrap(), "body");
    });
}

// case S7
#[test]
fn uploads_are_signed_plainly_and_carry_no_trailer_or_checksum() {
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(PATIENT);
        let body = Bytes::from(vec![7; 300_000]);
        let outcome = bucket.put(&key(), body.clone(), &Precondition::None).await;
        assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
        let [seen] = &server.seen()[..] else { panic!("not one request") };
        assert_eq!(seen.target, "/bucket/prod/eu/nodes/a");
        assert_eq!(seen.headers["content-length"], "300000");
        assert_eq!(seen.body, body);
        assert!(!seen.headers.keys().any(|name| name.contains("checksum") || name.contains("trailer")));
    });
}

// case S11
#[test]
fn a_version_goes_back_byte_for_byte() {
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(PATIENT);
        for text in ["\"abc\"", "abc", "W/\"abc\"", "\"d41d8-17\"", "*"] {
            let condition = Precondition::Version(Version::new(text).unwrap());
            let _ = bucket.put(&key(), Bytes::new(), &condition).await;
            assert_eq!(server.seen()[0].headers["if-match"], text);
        }
    });
}

// case S4
#[test]
fn pages_that_could_hide_keys_are_errors() {
    let contents = |key: &str| format!("<Contents><Key>prod/eu/{key}</Key><Size>1</Size></Contents>");
    let page = |inner: String| Fault::Xml(format!("<ListBucketResult>{inner}</ListBucketResult>"));
    let more = "<IsTruncated>true</IsTruncated>";
    let token = "<NextContinuationToken>t</NextContinuationToken>";
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(PATIENT);
        for (pages, fault) in [
            (vec![page(contents("h/a") + more)], ListingFault::TruncatedWithoutToken),
            (
                vec![page(contents("h/a") + more + token), page(contents("h/b") + more + token)],
                ListingFault::RepeatedToken,
            ),
            (vec![page(more.to_owned() + token)], ListingFault::EmptyPage),
            (
                vec![page(contents("h/b") + &contents("h/a"))],
                ListingFault::Unordered("h/b".into(), "h/a".into()),
            ),
        ] {
            server.next(pages);
            assert_eq!(Listing::new(&bucket, "h/").all(99).await, Err(ListError::Fault(fault)));
        }
        for garbled in ["", "<html/>", "<ListBucketResult><Contents>"] {
            server.next([Fault::Xml(garbled.to_owned())]);
            let listed = Listing::new(&bucket, "h/").all(99).await;
            assert!(
                matches!(listed, Err(ListError::Read(ReadError::Malformed(_)))),
                "{garbled:?}: {listed:?}"
            );
        }
        // A folder marker or a doubled slash, made by hand in a console, does not hide what is ours.
        server.next([page(contents("h/") + &contents("h/a") + &contents("h/b//c"))]);
        assert_eq!(Listing::new(&bucket, "h/").all(99).await.unwrap().len(), 1);
    });
}

// case S4: page sizes 1, 2 and 1000
#[test]
fn a_listing_over_http_is_complete_at_every_page_size() {
    let server = FaultServer::start();
    on_tokio(async {
        let bucket = server.bucket(PATIENT);
        for n in 0..60 {
            let key = format!("h/{n:03}").parse().unwrap();
            let _ = bucket.put(&key, Bytes::new(), &Precondition::None).await;
        }
        for page_max in [1, 2, 1000] {
            server.seen();
            let listed = Listing::new(&bucket, "h/").page_max(page_max).all(60).await.unwrap();
            assert_eq!(listed.len(), 60);
            assert_eq!(server.seen().len(), 60_usize.div_ceil(page_max));
        }
    });
}

/// The longest time in which nothing else on the thread had a turn while a body of so many bytes was put.
async fn longest_wait_beside(bucket: &S3Bucket, bytes: usize) -> Duration {
    let body = Bytes::from(vec![7; bytes]);
    let key = key();
    let mut put = std::pin::pin!(bucket.put(&key, body, &Precondition::None));
    let mut longest = Duration::ZERO;
    loop {
        let began = Instant::now();
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_millis(1)) => longest = longest.max(began.elapsed()),
            outcome = &mut put => {
                assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
                return longest.max(began.elapsed());
            }
        }
    }
}

// R-BKT-2: hashed on this thread, such a body would hold it for 30 ms and more.
#[test]
fn a_large_body_holds_up_nothing_else_on_the_thread() {
    let server = FaultServer::start();
    let longest = on_tokio(async {
        let bucket = server.bucket(PATIENT);
        let mut longest = Vec::new();
        for _ in 0..5 {
            longest.push(longest_wait_beside(&bucket, 64 << 20).await);
            server.seen();
        }
        longest
    });
    // The machine may hold a thread up, too, but not each time.
    assert!(longest.iter().min() < Some(&Duration::from_millis(15)), "{longest:?}");
}

// R-BKT-1
#[test]
fn the_probe_passes_over_http() {
    let server = FaultServer::start();
    let bucket = server.bucket(PATIENT);
    assert!(on_tokio(probe(&bucket)).is_ok());
    let targets = server.seen();
    assert!(targets.iter().all(|seen| seen.target.starts_with("/bucket/prod/eu/probe/")));
}

// R-BKT-1
#[test]
fn a_server_that_ignores_a_condition_is_caught_by_the_probe_and_by_the_suite() {
    use wasmkeep_bucket::conformance::{Scope, check};
    for (creates, replaces, expected) in
        [(true, false, Condition::CreateOverExisting), (false, true, Condition::ReplaceStale)]
    {
        let server = FaultServer::start();
        server.ignore(Ignored { creates, replaces });
        let bucket = server.bucket(PATIENT);
        assert_eq!(on_tokio(probe(&bucket)).unwrap_err(), ProbeError::Ignored(expected));
        let breaches = on_tokio(check(&bucket, Scope::Everything));
        assert!(!breaches.is_empty(), "{expected:?}");
    }
}
