//! The one door to an actor's database.
//!
//! Keeps track of where the connection is: on the shard, or away with a thread that does work which blocks.
//! Statements wait for it to come home.

use std::{
    cell::{Cell, RefCell},
    fmt,
    path::PathBuf,
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, channel::oneshot, future::Shared};
use send_wrapper::SendWrapper;
use wasmkeep_protocol::limits::ACTOR_STORAGE_BYTES;

use crate::{
    capture::Capture,
    checkpoint,
    connection::Connection,
    cursor::{self, Cursor},
    disk::Durability,
    error::{Error, OpenError},
    execute::{self, Ask},
    limits::CHECKPOINT_FRAMES,
    offload::{Offload, offloaded},
    pace::Pacer,
    run::Running,
    sink::CommitSink,
    template::Template,
    value::{Changes, ResultSet, Value},
};

mod opening;

/// How databases are opened.
#[derive(Debug, Clone)]
pub struct Config {
    /// Size one database may reach, in bytes; rounded down to whole pages.
    pub quota_bytes: u64,
    /// When a running statement gives its core back.
    pub pacer: Pacer,
    /// The folder the databases are in. A durable write also syncs the entries of the folders between it and
    /// the file; a database outside of it has its own folder synced only.
    pub root: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Self { quota_bytes: ACTOR_STORAGE_BYTES, pacer: Pacer::default(), root: PathBuf::new() }
    }
}

/// What [`Database::end_event`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventEnd {
    /// A transaction was open and was rolled back.
    pub rolled_back: bool,
    /// The guest asked for the actor to be forgotten.
    pub delete: bool,
}

/// One actor's open database.
///
/// All methods take `&self`; it is used as an `Rc` on one thread. Until it is in one it may move to another
/// thread, so it can be opened elsewhere. Dropping it closes it without a sync: nothing that was durable is
/// lost, the next open reads the WAL.
pub struct Database {
    pub(crate) connection: Arc<Connection>,
    durability: Arc<Durability>,
    /// Set while the connection is away; resolves when it is home again, for everyone who waits.
    away: RefCell<Option<Shared<oneshot::Receiver<()>>>>,
    /// Set from the beginning of the first opening until somebody asked what became of it.
    opening: RefCell<Option<Outcome<Result<opening::Found, OpenError>>>>,
    delete: Cell<bool>,
    /// The version whose `on-init` has run, once it was read.
    pub(crate) version: RefCell<Option<Option<String>>>,
    /// What it was made of, until its first event has ended.
    pub(crate) like: RefCell<Option<Arc<Template>>>,
    /// The actor's name, when its file does not tell it.
    pub(crate) name: Option<String>,
    /// `on-alarm` runs.
    pub(crate) in_alarm: Cell<bool>,
    /// The alarm was written, or may have been, since this was last asked.
    pub(crate) alarm_touched: Cell<bool>,
    /// Commits that are being kept track of, for a copy elsewhere.
    pub(crate) capture: RefCell<Option<Capture>>,
    /// Taken and given on the shard only; the wrapper holds it to that while the database is opened elsewhere.
    sink: RefCell<Option<SendWrapper<Rc<dyn CommitSink>>>>,
}

/// What work on another thread came to, once it did.
type Outcome<T> = Arc<Mutex<Option<T>>>;

fn taken<T>(outcome: &Outcome<T>) -> Option<T> {
    outcome.lock().expect("held for an assignment only").take()
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("path", &self.connection.path()).finish_non_exhaustive()
    }
}

impl Database {
    /// Runs one statement to its end; rows it returns are dropped. Outside a transaction it commits at once.
    ///
    /// # Errors
    /// [`Error::Refused`] when the text is not exactly one statement, the parameters do not match, or it asks
    /// for what is not available; else what SQLite says.
    pub async fn exec(&self, sql: &str, params: Vec<Value>) -> Result<Changes, Error> {
        self.run(move |connection| execute::exec(connection, sql, &params, Ask::Plain)).await
    }

    /// As [`Database::exec`], and returns once everything committed so far is on stable storage.
    ///
    /// # Errors
    /// Inside a transaction anything but COMMIT is refused before it runs. [`Error::NotDurable`]: it stands
    /// locally, and the database takes nothing more ([`Database::is_poisoned`]).
    pub async fn exec_durable(
        &self,
        offload: &dyn Offload,
        sql: &str,
        params: Vec<Value>,
    ) -> Result<Changes, Error> {
        let changes =
            self.run(move |connection| execute::exec(connection, sql, &params, Ask::Durable)).await?;
        self.make_durable(offload).await?;
        Ok(changes)
    }

    /// Where what is committed is durable from now on, in place of this machine's disk.
    pub fn set_sink(&self, sink: Rc<dyn CommitSink>) {
        *self.sink.borrow_mut() = Some(SendWrapper::new(sink));
    }

    /// Makes everything committed so far durable: by the sink if there is one, else on stable storage.
    async fn make_durable(&self, offload: &dyn Offload) -> Result<(), Error> {
        let sink = self.sink.borrow().as_ref().map(|sink| Rc::clone(sink));
        match sink {
            Some(sink) => sink.flush(self).await,
            None => self.sync(offload).await,
        }
    }

    /// Puts everything committed so far on stable storage, off the shard.
    ///
    /// # Errors
    /// [`Error::NotDurable`], and the database takes nothing more.
    pub async fn sync(&self, offload: &dyn Offload) -> Result<(), Error> {
        let durability = Arc::clone(&self.durability);
        match offloaded(offload, move || durability.sync()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(Error::NotDurable(error.to_string())),
            None => {
                self.durability.poison();
                Err(Error::NotDurable("the sync was given up by the thread pool".to_owned()))
            }
        }
    }

    /// All rows of one statement.
    ///
    /// # Errors
    /// As [`Database::exec`]; [`Error::Refused`] for more than 10,000 rows or 16 MiB.
    pub async fn query(&self, sql: &str, params: Vec<Value>) -> Result<ResultSet, Error> {
        self.run(move |connection| execute::query(connection, sql, &params)).await
    }

    /// Opens a cursor over one statement that reads. It ends with the event.
    ///
    /// # Errors
    /// As [`Database::exec`]; [`Error::Refused`] for a statement that writes, and for one cursor too many.
    pub async fn open_cursor(self: &Rc<Self>, sql: &str, params: Vec<Value>) -> Result<Cursor, Error> {
        let (id, columns) = self.run(move |connection| cursor::open(connection, sql, params)).await?;
        Ok(Cursor::new(Rc::downgrade(self), id, columns))
    }

    /// Closes one cursor, if its event has not done so.
    pub(crate) fn close_cursor(&self, id: u64) {
        if !self.is_away() && !self.connection.is_busy.get() {
            cursor::close(&self.connection, id);
        }
    }

    /// Runs several statements without parameters, stopping at the first error.
    ///
    /// # Errors
    /// As [`Database::exec`]. Earlier statements stand unless the script holds them in a transaction.
    pub async fn exec_script(&self, sql: &str) -> Result<(), Error> {
        self.run(move |connection| execute::script(connection, sql)).await
    }

    /// Runs a job on the statement's own stack, once the connection is home.
    pub(crate) async fn run<'a, R: 'a>(
        &'a self,
        job: impl FnOnce(&'a Connection) -> Result<R, Error> + 'a,
    ) -> Result<R, Error> {
        self.home().await;
        self.check()?;
        Running::new(&self.connection, job)?.await
    }

    /// Waits until no thread does blocking work with the connection.
    pub async fn home(&self) {
        while self.is_away() {
            let back = self.away.borrow().clone();
            if let Some(back) = back {
                // A sender that is dropped came to its end too.
                let _ = back.await;
            }
        }
    }

    /// Whether a statement runs or another thread works with the connection: what is asked of it now is refused.
    pub fn is_busy(&self) -> bool {
        self.is_away() || self.connection.is_busy.get()
    }

    /// Whether the connection is with another thread.
    fn is_away(&self) -> bool {
        let mut away = self.away.borrow_mut();
        if let Some(back) = away.as_ref()
            && back.clone().now_or_never().is_some()
        {
            *away = None;
        }
        away.is_some()
    }

    /// The connection for a short call on the shard.
    pub(crate) fn here(&self) -> Result<&Connection, Error> {
        self.check()?;
        if self.is_away() || self.connection.is_busy.get() {
            return Err(Error::refused("the database is busy with other work of this actor"));
        }
        Ok(&self.connection)
    }

    fn check(&self) -> Result<(), Error> {
        if self.is_poisoned() {
            return Err(Error::NotDurable(
                "an earlier sync failed: what this database holds is not what the disk holds".to_owned(),
            ));
        }
        if !self.is_away() && !self.connection.is_open() {
            return Err(Error::refused("the database is closed while its actor is idle"));
        }
        Ok(())
    }

    /// Whether a sync failed. The owner must give this database up: nothing more is taken.
    pub fn is_poisoned(&self) -> bool {
        self.durability.is_poisoned()
    }

    /// Whether a statement found the file damaged, or could not read it. The owner must give this database up: what is
    /// at its path is not trusted, and looked at as a whole before it is used again where there is a copy elsewhere.
    pub fn is_damaged(&self) -> bool {
        self.connection.is_damaged.get()
    }

    /// Ends the statement that is running, if any, with [`Error::Interrupted`] at its next progress check.
    pub fn interrupt(&self) {
        if self.connection.is_busy.get() {
            self.connection.hooks.cancel.set(true);
        }
    }

    /// Size of the database in bytes, with what the open transaction added; 0 while the connection is away.
    pub fn size_bytes(&self) -> u64 {
        self.here().map_or(0, Connection::size_bytes)
    }

    /// Memory SQLite holds for this database, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.connection.account.used()
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        !self.is_away() && self.connection.is_open() && self.connection.in_transaction()
    }

    /// Whether a write was committed since this was last asked. It may say so where nothing changed, never
    /// the other way round.
    pub fn take_committed(&self) -> bool {
        self.connection.hooks.committed.replace(false)
    }

    /// Time spent running SQL since this was last asked.
    pub fn take_sql_time(&self) -> Duration {
        self.connection.sql_time.take()
    }

    /// Ends an event: closes the cursors it left open and rolls back the transaction it left open.
    ///
    /// An event that is cut may leave the connection with another thread: a snapshot reads the files while a
    /// transaction is open. So this waits for it first, or the transaction would be open still in the next event.
    pub async fn end_event(&self) -> EventEnd {
        self.home().await;
        let delete = self.delete.take();
        if self.connection.is_busy.get() || !self.connection.is_open() {
            // Closed only outside a transaction.
            return EventEnd { rolled_back: false, delete };
        }
        let connection = &self.connection;
        if connection.was_full.replace(false)
            && let Err(code) = connection.set_reserve(false)
        {
            tracing::warn!(code, path = ?connection.path(), "setting the size limit back failed");
        }
        cursor::close_all(connection);
        if let Some(template) = self.like.take() {
            connection.with_kept(|texts| template.was_asked(texts));
        }
        let rolled_back = connection.in_transaction();
        if rolled_back {
            connection.in_init.set(false);
            if let Err(error) = connection.host_run(c"ROLLBACK") {
                tracing::warn!(%error, path = ?connection.path(), "rolling back at the end of an event failed");
            }
        }
        EventEnd { rolled_back, delete }
    }

    /// Records that the guest wants the actor forgotten; [`Database::end_event`] reports it.
    pub fn delete_self(&self) {
        self.delete.set(true);
    }

    /// Gives back the memory an idle actor does not need: kept statements and pages that can be read again.
    pub fn shrink(&self) {
        if let Ok(connection) = self.here() {
            connection.shrink();
        }
    }

    /// Whether the WAL has grown enough for a checkpoint. Worth asking after each commit, not only at the end
    /// of an event: a long event writes without bound.
    pub fn checkpoint_due(&self) -> bool {
        self.here().is_ok_and(|connection| connection.is_wal_long(CHECKPOINT_FRAMES))
    }

    /// Moves the WAL's content into the database file, off the shard, after which the next commits are written over
    /// the WAL from its beginning. The WAL is synced before and the file after, so what was durable stays so.
    ///
    /// # Errors
    /// [`Error::Refused`] while a transaction or a cursor is open; else what SQLite says, and the WAL keeps
    /// what it has. A failed sync poisons the database.
    pub async fn checkpoint(&self, offload: &dyn Offload) -> Result<(), Error> {
        self.read_commits().await?;
        self.elsewhere(offload, "the checkpoint", checkpoint::run).await
    }

    /// Moves the WAL into the database file where that is due and nothing is open that stands against it. For a
    /// place where a write has just been committed and more may follow in the same event.
    ///
    /// # Errors
    /// As [`Database::checkpoint`].
    pub async fn keep_wal_short(&self, offload: &dyn Offload) -> Result<(), Error> {
        if self.checkpoint_due() && !self.is_in_use()? { self.checkpoint(offload).await } else { Ok(()) }
    }

    /// Whether a transaction or a cursor is open.
    fn is_in_use(&self) -> Result<bool, Error> {
        let connection = self.here()?;
        Ok(connection.in_transaction() || !connection.cursors.borrow().is_empty())
    }

    /// Does blocking `work` with the connection on another thread; statements wait until it is home again.
    pub(crate) async fn elsewhere<T: Send + 'static>(
        &self,
        offload: &dyn Offload,
        what: &str,
        work: impl FnOnce(&Connection, &Durability) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.home().await;
        if self.is_in_use()? {
            return Err(Error::refused(format!("{what} has to wait: a transaction or a cursor is open")));
        }
        self.beside(offload, what, work).await
    }

    /// As [`Database::elsewhere`], for work that reads the files and not the connection: nothing that is open stands
    /// against it.
    pub(crate) async fn beside<T: Send + 'static>(
        &self,
        offload: &dyn Offload,
        what: &str,
        work: impl FnOnce(&Connection, &Durability) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.home().await;
        self.here()?;
        let outcome = self.lend(offload, work);
        self.home().await;
        taken(&outcome)
            .unwrap_or_else(|| Err(Error::refused(format!("{what} was given up by the thread pool"))))
    }

    /// Lends the connection to another thread for `work`, whose result is there once the connection is home; none is
    /// when the work was dropped.
    fn lend<T: Send + 'static>(
        &self,
        offload: &dyn Offload,
        work: impl FnOnce(&Connection, &Durability) -> T + Send + 'static,
    ) -> Outcome<T> {
        let outcome = Arc::new(Mutex::new(None));
        let (leaving, back) = oneshot::channel();
        *self.away.borrow_mut() = Some(back.shared());
        let (connection, durability) = (Arc::clone(&self.connection), Arc::clone(&self.durability));
        let result = Arc::clone(&outcome);
        offload.offload(Box::new(move || {
            let done = work(&connection, &durability);
            *result.lock().expect("held for an assignment only") = Some(done);
            drop(connection);
            let _ = leaving.send(());
        }));
        outcome
    }

    /// Closes a database whose files are to be removed, off the shard: nothing is completed or synced.
    pub async fn discard(self, offload: &dyn Offload) {
        self.home().await;
        let Self { connection, .. } = self;
        if offloaded(offload, move || connection.close()).await.is_none() {
            tracing::warn!("closing a database was given up by the thread pool");
        }
    }

    /// Closes the database off the shard. Its file is whole then without the WAL beside it, unless the disk refuses. Where
    /// a [sink](Database::set_sink) has the durable copy, nothing is synced and the file may need its WAL.
    pub async fn close(self, offload: &dyn Offload) {
        self.home().await;
        // What the last commits changed has to be known before the log is emptied.
        let all_read = self.read_commits().await.is_ok();
        let Self { connection, durability, capture, sink, .. } = self;
        let capture = capture.into_inner().filter(|_| all_read && !connection.is_damaged.get());
        let is_elsewhere = sink.into_inner().is_some();
        let work = move || {
            let log = match is_elsewhere {
                true => checkpoint::before_close(&connection, &durability),
                false => checkpoint::complete(&connection, &durability),
            };
            connection.close();
            if let Some(mut capture) = capture {
                capture.closed(log);
                capture.keep(connection.path());
            }
        };
        if offloaded(offload, work).await.is_none() {
            tracing::warn!("closing a database was given up by the thread pool");
        }
    }
}
