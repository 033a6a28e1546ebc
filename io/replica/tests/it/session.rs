//! A session hands over what was committed, in order, and never counts what it did not hand over.

use std::{
    cell::{Cell, RefCell},
    future::pending,
    path::PathBuf,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt;
use wasmkeep_protocol::{ActorId, history::Point};
use wasmkeep_replica::{
    BucketSide, Commit, Content, Flags, GivenUp, Guest, Need, Opening, RestoreError, Session, SessionConfig,
    TakeError, Taken, UploadBudget,
};
use wasmkeep_storage::{CommitSink, Config, Database, Inline, Pacer};

use crate::rig::run;

/// A bucket side that notes what it is handed, and does not answer when it is told so.
#[derive(Clone, Default)]
struct Side {
    pushed: Rc<RefCell<Vec<Commit>>>,
    is_full: Rc<Cell<bool>>,
    is_refusing: Rc<Cell<bool>>,
    flags: Arc<Flags>,
    deleted: Rc<RefCell<Vec<Point>>>,
    finished: Rc<Cell<bool>>,
    /// Transactions that were waited for.
    waited: Rc<RefCell<Vec<u64>>>,
}

impl BucketSide for Side {
    fn epoch(&self) -> Option<u64> {
        Some(1)
    }

    fn unix_ms(&self) -> u64 {
        1_800_000_000_000
    }

    async fn take(&self, _: &ActorId) -> Result<Taken, TakeError> {
        Ok(Taken { generation: 1, end: Point::START, uploads: 0, opening: Opening::new().0 })
    }

    async fn rebuild(&self, _: &ActorId, _: PathBuf) -> Result<(Point, u64), RestoreError> {
        unreachable!("there is no history")
    }

    async fn begin(
        &self,
        _: &ActorId,
        _: u64,
        _: Point,
        _: u64,
        _: Option<u64>,
    ) -> Result<Arc<Flags>, GivenUp> {
        Ok(Arc::clone(&self.flags))
    }

    async fn settled(&self, _: &ActorId, _: u64, _: Option<u64>) {}

    async fn push(&self, _: &ActorId, commit: Commit, _: Need) -> Result<(), GivenUp> {
        if self.is_full.get() {
            pending::<()>().await;
        }
        if self.is_refusing.get() {
            return Err(GivenUp::Closed);
        }
        self.pushed.borrow_mut().push(commit);
        Ok(())
    }

    async fn landed(&self, _: &ActorId, txid: u64, _: Need) -> Result<u64, GivenUp> {
        self.waited.borrow_mut().push(txid);
        let last = self.pushed.borrow().last().map_or(0, |commit| commit.to.txid);
        if txid > last {
            // As in the service: nobody would answer.
            pending::<()>().await;
        }
        Ok(last)
    }

    async fn snapshot(&self, _: &ActorId, _: Point, _: Bytes) -> Result<bool, GivenUp> {
        Ok(true)
    }

    async fn finish(&self, _: &ActorId) {
        self.finished.set(true);
    }

    async fn delete(&self, _: &ActorId, to: Point) -> Result<(), GivenUp> {
        self.deleted.borrow_mut().push(to);
        Ok(())
    }
}

struct Open {
    side: Side,
    database: Database,
    session: Rc<Session<Side>>,
    _folder: tempfile::TempDir,
}

async fn open() -> Open {
    open_beside(&UploadBudget::default()).await
}

async fn open_beside(uploads: &UploadBudget) -> Open {
    let folder = tempfile::tempdir().unwrap();
    let storage = Config { quota_bytes: 1 << 24, pacer: Pacer::default(), root: folder.path().to_owned() };
    let side = Side::default();
    let config = SessionConfig {
        offload: Rc::new(Inline),
        storage: &storage,
        is_gated: false,
        booked_ms: Rc::new(|| None),
        upload_budget: uploads.clone(),
    };
    let actor = ActorId { class: "room".parse().unwrap(), name: "lobby".parse().unwrap() };
    let path = folder.path().join("lobby.db");
    let (database, session) = Session::open(&side, config, &actor, &path).await.unwrap();
    Open { side, database, session, _folder: folder }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(3600), work).await.expect("it ends")
}

// R-REPL-1, R-REPL-4
#[test]
fn a_commit_that_was_not_handed_over_ends_the_actor_and_nobody_waits_for_it() {
    run(async {
        for is_dropped in [true, false] {
            let Open { side, database, session, _folder } = open().await;
            database.exec_script("CREATE TABLE t (x)").await.unwrap();
            assert_eq!(session.hand_over(&database, Guest::Idle).await.unwrap(), 1);
            database.exec_script("INSERT INTO t VALUES (1)").await.unwrap();
            if is_dropped {
                side.is_full.set(true);
                assert!(session.hand_over(&database, Guest::Idle).now_or_never().is_none());
                side.is_full.set(false);
            } else {
                side.is_refusing.set(true);
                assert!(session.hand_over(&database, Guest::Idle).await.is_err());
                side.is_refusing.set(false);
            }
            assert_eq!(session.taken().txid, 1, "what was not handed over does not count");
            assert!(!session.stands() && side.flags.ended.load(Ordering::Acquire));
            assert!(!within(session.settle(&database)).await, "it is not in the bucket, and that is said");
            assert_eq!(*side.waited.borrow(), [1], "what was answered before lands first");
        }
    });
}

// R-REPL-1
#[test]
fn a_whole_database_that_was_refused_is_not_taken_for_handed_over() {
    run(async {
        let Open { side, database, session, _folder } = open().await;
        database.exec_script("CREATE TABLE t (x)").await.unwrap();
        side.is_refusing.set(true);
        assert!(session.hand_over(&database, Guest::Idle).await.is_err());
        assert!(session.needs_whole() && !session.stands());
        // It may be there or not: a deletion is recorded.
        session.delete().await.unwrap();
        assert_eq!(*side.deleted.borrow(), [Point { txid: 1, ..Point::START }]);
    });
}

// R-DUR-1
#[test]
fn a_durable_write_is_handed_over_once_and_waited_for() {
    run(async {
        let Open { side, database, session, _folder } = open().await;
        database.exec_script("CREATE TABLE t (x)").await.unwrap();
        within(session.flush(&database)).await.unwrap();
        database.exec_script("INSERT INTO t VALUES (1)").await.unwrap();
        within(session.flush(&database)).await.unwrap();
        within(session.flush(&database)).await.unwrap();
        let pushed = side.pushed.borrow();
        assert!(matches!(
            &**pushed,
            [Commit { content: Content::Whole(_), .. }, Commit { content: Content::Changes(_), .. }]
        ));
        assert_eq!((session.taken(), pushed[1].to.txid), (pushed[1].to, 2));
    });
}

// R-REPL-1
#[test]
fn a_whole_database_has_its_room_from_before_it_is_made_until_it_is_uploaded() {
    run(async {
        let uploads = UploadBudget::default();
        let Open { side, database, session, _folder } = open_beside(&uploads).await;
        database.exec_script("CREATE TABLE t (x)").await.unwrap();
        session.hand_over(&database, Guest::Idle).await.unwrap();
        assert_eq!(uploads.in_use(), database.size_bytes());
        side.pushed.borrow_mut().clear();
        assert_eq!(uploads.in_use(), 0);
    });
}
