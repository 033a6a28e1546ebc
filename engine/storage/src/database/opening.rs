//! Opening a database, and closing it for a while: where its connection comes from and goes.

use std::{
    cell::{Cell, RefCell},
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Config, Database, taken};
use crate::{
    checkpoint, connection::Connection, disk::Durability, error::OpenError, image, offload::Offload, settings,
};

/// What was at the path of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Database,
    /// No file: there is a new one now.
    Nothing,
}

/// Opens a file that may not be there. Blocking.
fn open_first(connection: &Connection) -> Result<Found, OpenError> {
    let path = connection.path();
    let is_new = image::ensure(path).map_err(|source| OpenError::of_file(path, source))?;
    connection.open(is_new)?;
    Ok(if is_new { Found::Nothing } else { Found::Database })
}

/// Nothing of a database that is about to be opened at `path` is known to be durable.
fn durability(path: PathBuf, config: &Config) -> Durability {
    let folders = match path.strip_prefix(&config.root) {
        Ok(below) if !config.root.as_os_str().is_empty() => below.components().count(),
        _ => 1,
    };
    Durability::new(path, folders)
}

impl Database {
    /// Opens the database at `path`, making it and its folder if there is none. Blocking: not for a shard.
    ///
    /// # Errors
    /// The files are left as they were found.
    pub fn open(path: &Path, config: &Config) -> Result<Self, OpenError> {
        let database = Self::closed(path, config)?;
        database.learn_of(open_first(&database.connection)?);
        Ok(database)
    }

    /// Makes the database at `path`, where nothing of its name is, with what `wal` holds. Blocking: not for a shard.
    pub(crate) fn open_new(path: &Path, wal: Option<&[u8]>, config: &Config) -> Result<Self, OpenError> {
        let database = Self::closed(path, config)?;
        let write = |wal| fs::write(image::beside(path, "-wal"), wal);
        let made = image::create_alone(path).and_then(|()| wal.map_or(Ok(()), write));
        made.map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        database.connection.open(wal.is_none())?;
        database.learn_of(if wal.is_none() { Found::Nothing } else { Found::Database });
        Ok(database)
    }

    /// As [`Database::open`], on a thread of `offload`.
    ///
    /// # Errors
    /// As there; [`OpenError::GivenUp`] when the work was dropped.
    pub async fn open_on(offload: &dyn Offload, path: &Path, config: &Config) -> Result<Self, OpenError> {
        let database = Self::begin_open(offload, path, config)?;
        database.opened().await?;
        Ok(database)
    }

    /// As [`Database::open_on`], without waiting: statements wait until it is open, and [`Database::opened`] says
    /// whether it could be.
    ///
    /// # Errors
    /// What can be told without looking at the files.
    pub fn begin_open(offload: &dyn Offload, path: &Path, config: &Config) -> Result<Self, OpenError> {
        let database = Self::closed(path, config)?;
        let outcome = database.lend(offload, |connection, _| open_first(connection));
        *database.opening.borrow_mut() = Some(outcome);
        Ok(database)
    }

    /// Waits until a database that is being opened is open. An error is told once.
    ///
    /// # Errors
    /// As [`Database::open_on`]; nothing but closing can be done with the database then.
    pub async fn opened(&self) -> Result<(), OpenError> {
        self.home().await;
        let Some(outcome) = self.opening.take() else { return Ok(()) };
        self.learn_of(taken(&outcome).unwrap_or(Err(OpenError::GivenUp))?);
        Ok(())
    }

    /// A database whose file has not been looked at.
    fn closed(path: &Path, config: &Config) -> Result<Self, OpenError> {
        settings::start()?;
        let path =
            std::path::absolute(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let connection = Connection::closed(&path, config.quota_bytes, &config.pacer);
        Ok(Self {
            connection: Arc::new(connection),
            durability: Arc::new(durability(path, config)),
            away: RefCell::new(None),
            opening: RefCell::new(None),
            delete: Cell::new(false),
            version: RefCell::new(None),
            like: RefCell::new(None),
            name: None,
            in_alarm: Cell::new(false),
            alarm_touched: Cell::new(false),
            capture: RefCell::new(None),
            sink: RefCell::new(None),
        })
    }

    /// Its files, which are open and which `rename` moves, are to be at `path`, where nothing of it is durable yet.
    /// After an error it is where it was, if `rename` sees to that.
    pub(crate) fn relocate(
        &mut self,
        path: &Path,
        config: &Config,
        rename: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let connection = Arc::get_mut(&mut self.connection).ok_or(ErrorKind::ResourceBusy)?;
        connection.relocate(path, rename)?;
        self.durability = Arc::new(durability(path.to_owned(), config));
        Ok(())
    }

    /// Where its file is.
    pub fn path(&self) -> &Path {
        self.connection.path()
    }

    /// It was opened; a new one holds nothing.
    fn learn_of(&self, found: Found) {
        *self.version.borrow_mut() = (found == Found::Nothing).then_some(None);
    }

    /// For an actor that has been idle for a moment: closes the file and gives back everything SQLite holds, until
    /// [`Database::wake`]. A connection that holds what no file does (temporary tables, a pragma that was set) stays
    /// open and only [shrinks](Database::shrink). Says whether the database is closed now.
    pub async fn doze(&self, offload: &dyn Offload) -> bool {
        if self.read_commits().await.is_err() {
            return self.is_dozing();
        }
        if self.here().is_ok_and(|connection| connection.hooks.is_personal.get()) {
            self.shrink();
            return false;
        }
        let close = |connection: &Connection, durability: &Durability| {
            let log = checkpoint::before_close(connection, durability);
            connection.close();
            Ok(log)
        };
        // What stands against it, an open transaction or a thread pool that gives up, leaves the database open.
        let Ok(log) = self.elsewhere(offload, "closing", close).await else { return self.is_dozing() };
        if let Some(capture) = &mut *self.capture.borrow_mut() {
            capture.closed(log);
        }
        true
    }

    /// Whether the file is closed until [`Database::wake`].
    pub fn is_dozing(&self) -> bool {
        !self.is_away() && !self.connection.is_open()
    }

    /// Opens the file again after [`Database::doze`].
    ///
    /// # Errors
    /// As [`Database::open`], and the database dozes on.
    pub async fn wake(&self, offload: &dyn Offload) -> Result<(), OpenError> {
        self.home().await;
        if self.connection.is_open() {
            return Ok(());
        }
        let outcome = self.lend(offload, |connection, _| connection.open(false));
        self.home().await;
        taken(&outcome).unwrap_or(Err(OpenError::GivenUp))
    }
}
