//! A database in a folder of its own, and an executor that counts.

use std::{
    cell::RefCell,
    future::Future,
    path::{Path, PathBuf},
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use tempfile::TempDir;
use wasmkeep_storage::{Changes, Config, Database, Error, Inline, Offload, OpenError, Pacer, Value};

/// Polls a future to its end; the number of polls it took.
pub(crate) fn polled<F: Future>(future: F) -> (F::Output, usize) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut polls = 0;
    loop {
        polls += 1;
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return (output, polls);
        }
    }
}

/// Polls a future to its end.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    polled(future).0
}

/// Keeps jobs until they are asked for, or drops them.
#[derive(Default)]
pub(crate) struct Held(pub(crate) RefCell<Vec<Box<dyn FnOnce() + Send>>>);

impl Held {
    /// Runs them on a thread.
    pub(crate) fn release(&self) {
        for job in self.0.take() {
            thread::spawn(job).join().unwrap();
        }
    }
}

impl Offload for Held {
    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.borrow_mut().push(job);
    }
}

/// Opens what was closed a moment ago. A test beside this one that starts a program has a copy of every descriptor from
/// its fork to its exec, and the lock lasts as long as the last of them.
fn open_again(path: &Path, config: &Config) -> Database {
    for _ in 0..500 {
        match Database::open(path, config) {
            Err(OpenError::Locked { .. }) => thread::sleep(Duration::from_millis(10)),
            opened => return opened.unwrap(),
        }
    }
    panic!("{path:?} is locked for good");
}

/// A folder that holds one database, which is open.
pub(crate) struct Rig {
    pub(crate) folder: TempDir,
    pub(crate) config: Config,
    pub(crate) db: Rc<Database>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = Rc::new(Database::open(&folder.path().join("shop/cart.db"), &config).unwrap());
        Self { folder, config, db }
    }

    /// Statements are never suspended.
    pub(crate) fn unpaced() -> Self {
        Self::with(Config { pacer: Pacer::checks(u32::MAX), ..Config::default() })
    }

    pub(crate) fn quota(bytes: u64) -> Self {
        Self::with(Config { quota_bytes: bytes, ..Config::default() })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("shop/cart.db")
    }

    /// Closes the database and opens it again.
    pub(crate) fn reopen(self) -> Self {
        let Self { folder, config, db } = self;
        wait(Rc::try_unwrap(db).unwrap().close(&Inline));
        let db = Rc::new(open_again(&folder.path().join("shop/cart.db"), &config));
        Self { folder, config, db }
    }

    /// A copy of the files as they are now, opened: what a process would find after this one is killed.
    pub(crate) fn after_a_kill(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("shop")).unwrap();
        for entry in std::fs::read_dir(self.folder.path().join("shop")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.path().join("shop").join(entry.file_name())).unwrap();
        }
        let db = Rc::new(Database::open(&folder.path().join("shop/cart.db"), &self.config).unwrap());
        Self { folder, config: self.config.clone(), db }
    }

    pub(crate) fn exec(&self, sql: &str) -> Result<Changes, Error> {
        wait(self.db.exec(sql, vec![]))
    }

    pub(crate) fn exec_with(&self, sql: &str, params: Vec<Value>) -> Result<Changes, Error> {
        wait(self.db.exec(sql, params))
    }

    pub(crate) fn durable(&self, sql: &str) -> Result<Changes, Error> {
        wait(self.db.exec_durable(&Inline, sql, vec![]))
    }

    pub(crate) fn script(&self, sql: &str) -> Result<(), Error> {
        wait(self.db.exec_script(sql))
    }

    pub(crate) fn rows(&self, sql: &str) -> Result<Vec<Vec<Value>>, Error> {
        wait(self.db.query(sql, vec![])).map(|result| result.rows)
    }

    /// The one value of a one-row, one-column result.
    pub(crate) fn value(&self, sql: &str) -> Value {
        let mut rows = self.rows(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!((rows.len(), rows.first().map(Vec::len)), (1, Some(1)), "{sql}");
        rows.remove(0).remove(0)
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        match self.value(sql) {
            Value::Integer(number) => number,
            other => panic!("{sql}: {other:?}"),
        }
    }

    /// Whether SQLite finds nothing wrong with the file.
    pub(crate) fn is_sound(&self) -> bool {
        self.value("PRAGMA integrity_check") == text("ok")
    }
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// The sentence of a refusal.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Refused(sentence)) => sentence,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// SQLite's extended code of an error.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> i32 {
    match result {
        Err(Error::Sqlite(error)) => error.extended_code,
        other => panic!("expected an error of SQLite, got {other:?}"),
    }
}
