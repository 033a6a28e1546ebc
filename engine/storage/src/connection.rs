//! One open connection: its handle, its statements, and SQLite's answers turned into errors.
//!
//! A connection is used by one thread at a time. That is the shard's, except while work that blocks has been
//! handed off (`Database` keeps track of that).

use std::{
    cell::{Cell, RefCell},
    ffi::{CStr, c_int},
    io,
    path::Path,
    ptr,
    time::Duration,
};

use rusqlite::ffi;
use wasmkeep_protocol::limits::PAGE_BYTES;

use crate::{
    cursor::{self, Cursors},
    disk,
    error::{Error, OpenError, SqliteError, is_damage, is_unreadable},
    hooks::Hooks,
    limits::{MEMORY_BYTES_MAX, RESERVE_PAGES, STATEMENTS_CACHED_MAX},
    memory::{self, Account},
    pace::Pacer,
    settings,
    statement::{Statement, skip_blanks},
    wal::OpenFile,
};

/// A statement kept for the next call with the same text.
struct Kept {
    sql: Box<str>,
    statement: Statement,
    used_at: u32,
}

/// Statements kept, and a clock of their uses.
#[derive(Default)]
struct Cache {
    kept: Vec<Kept>,
    now: u32,
}

/// An open connection. Fields drop in order: statements before the handle.
pub(crate) struct Connection {
    cache: RefCell<Cache>,
    pub(crate) cursors: RefCell<Cursors>,
    handle: Handle,
    // Boxed: SQLite holds its address.
    pub(crate) hooks: Box<Hooks>,
    pub(crate) account: Account,
    /// A job runs or is suspended.
    pub(crate) is_busy: Cell<bool>,
    /// `on-init` runs, within the platform's transaction.
    pub(crate) in_init: Cell<bool>,
    pub(crate) sql_time: Cell<Duration>,
    quota_pages: u32,
    /// The quota was met since the last event ended: deletes may use the reserve.
    pub(crate) was_full: Cell<bool>,
    /// A call found that the file is damaged or cannot be read. For good: whoever has it opens it anew.
    pub(crate) is_damaged: Cell<bool>,
    /// The table of the platform's own rows is known to be there.
    pub(crate) has_rows: Cell<bool>,
    path: Box<Path>,
}

// SAFETY: SQLite is built for one thread at a time per connection, and `Database` lets only one thread at a
// time use it; nothing in it is bound to a thread.
unsafe impl Send for Connection {}
// SAFETY: shared only to move it to a thread that does blocking work and back, see `Database`.
unsafe impl Sync for Connection {}

/// The handle, closed when dropped; null while the connection is closed.
struct Handle(Cell<*mut ffi::sqlite3>);

impl Handle {
    fn close(&self) {
        // SAFETY: the statements are gone: they are dropped before. Should one be left (a leaked future), SQLite
        // refuses to close: a leak and nothing worse.
        unsafe { ffi::sqlite3_close(self.0.replace(ptr::null_mut())) };
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.silence();
    }
}

impl Connection {
    /// A connection to the file at `path`, not opened.
    pub(crate) fn closed(path: &Path, quota_bytes: u64, pacer: &Pacer) -> Self {
        let connection = Self {
            cache: RefCell::default(),
            cursors: RefCell::default(),
            handle: Handle(Cell::new(ptr::null_mut())),
            hooks: Box::new(Hooks::new(pacer.make())),
            account: Account::default(),
            is_busy: Cell::new(false),
            in_init: Cell::new(false),
            sql_time: Cell::default(),
            quota_pages: settings::quota_pages(quota_bytes),
            was_full: Cell::new(false),
            is_damaged: Cell::new(false),
            has_rows: Cell::new(false),
            path: path.into(),
        };
        // SAFETY: the hooks are boxed, and dropped after the handle and after anything that enters the account.
        unsafe { connection.account.pace_by(&connection.hooks) };
        connection
    }

    /// Opens the file, which exists, and sets the connection up; `is_new`: as it was just made. Blocking. After an
    /// error it is closed still.
    pub(crate) fn open(&self, is_new: bool) -> Result<(), OpenError> {
        self.account.take_arena();
        let opened = self.host(|| {
            let (handle, code) = settings::open_handle(&self.path);
            self.handle.0.set(handle);
            if code != ffi::SQLITE_OK {
                return Err(self.open_error(code));
            }
            // SAFETY: the hooks are boxed, and dropped after the handle.
            unsafe { self.hooks.install(handle) };
            settings::apply(self, is_new)
        });
        match opened {
            Ok(()) => self.has_rows.set(is_new),
            Err(_) => self.close(),
        }
        opened
    }

    /// Closes the file and gives back all that SQLite holds, until [`Connection::open`]. No statement may be
    /// under way.
    pub(crate) fn close(&self) {
        self.host(|| {
            *self.cache.borrow_mut() = Cache::default();
            cursor::close_all(self);
            self.silence();
            self.handle.close();
        });
        self.account.give_arena();
        self.hooks.forget_connection();
        self.has_rows.set(false);
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.raw().is_null()
    }

    /// Takes the callbacks away: a leaked future can leave their state referred to.
    fn silence(&self) {
        if !self.is_open() {
            return;
        }
        // SAFETY: plain calls on an open connection.
        unsafe {
            ffi::sqlite3_progress_handler(self.raw(), 0, None, ptr::null_mut());
            ffi::sqlite3_commit_hook(self.raw(), None, ptr::null_mut());
            ffi::sqlite3_trace_v2(self.raw(), 0, None, ptr::null_mut());
            ffi::sqlite3_set_authorizer(self.raw(), None, ptr::null_mut());
        }
    }

    pub(crate) fn raw(&self) -> *mut ffi::sqlite3 {
        self.handle.0.get()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its files, which are open, are moved to `path` by `rename`.
    pub(crate) fn relocate(
        &mut self,
        path: &Path,
        rename: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let wal =
            OpenFile::wal(self).map_err(|code| io::Error::other(format!("no WAL: SQLite says {code}")))?;
        rename(&self.path)?;
        self.path = path.into();
        wal.relocated(path);
        Ok(())
    }

    /// Runs the platform's own SQL: nothing is refused and nothing suspends.
    pub(crate) fn host<T>(&self, work: impl FnOnce() -> T) -> T {
        let _paid = memory::enter(&self.account, usize::MAX);
        let before = self.hooks.host.replace(true);
        let result = work();
        self.hooks.host.set(before);
        result
    }

    /// Runs one host statement without parameters, to its end; the first column of its first row.
    pub(crate) fn host_text(&self, sql: &CStr) -> Result<Option<String>, c_int> {
        self.host(|| {
            let mut raw = ptr::null_mut();
            // SAFETY: the statement is made, stepped, read and finalized here.
            unsafe {
                let code =
                    ffi::sqlite3_prepare_v2(self.raw(), sql.as_ptr(), -1, &raw mut raw, ptr::null_mut());
                if code != ffi::SQLITE_OK {
                    return Err(code);
                }
                let mut text = None;
                let mut code = ffi::sqlite3_step(raw);
                while code == ffi::SQLITE_ROW {
                    let column = ffi::sqlite3_column_text(raw, 0);
                    if text.is_none() && !column.is_null() {
                        text = Some(CStr::from_ptr(column.cast()).to_string_lossy().into_owned());
                    }
                    code = ffi::sqlite3_step(raw);
                }
                ffi::sqlite3_finalize(raw);
                if code == ffi::SQLITE_DONE { Ok(text) } else { Err(code) }
            }
        })
    }

    /// As [`Connection::host_text`], for a statement that only acts.
    pub(crate) fn host_run(&self, sql: &CStr) -> Result<(), Error> {
        self.host_text(sql).map(drop).map_err(|code| self.error(code))
    }

    /// Whether the database surely takes less than half of its quota, the open transaction included: each of its
    /// pages is in a file or in memory.
    pub(crate) fn is_far_from_full(&self) -> bool {
        let bytes = |file: Result<OpenFile, c_int>| file.and_then(OpenFile::bytes);
        let (Ok(database), Ok(wal)) = (bytes(OpenFile::database(self)), bytes(OpenFile::wal(self))) else {
            return false;
        };
        let held = self.account.used() as u64;
        database + wal + held < u64::from(self.quota_pages) * u64::from(PAGE_BYTES) / 2
    }

    /// Lets the database grow into the reserve, or back to the quota alone.
    pub(crate) fn set_reserve(&self, open: bool) -> Result<(), c_int> {
        let pages = self.quota_pages + if open { RESERVE_PAGES } else { 0 };
        let sql = std::ffi::CString::new(format!("PRAGMA max_page_count={pages}")).expect("digits");
        self.host_text(&sql).map(drop)
    }

    /// The only statement of `sql`, kept from an earlier call or compiled now.
    pub(crate) fn take(&self, sql: &str) -> Result<Statement, Error> {
        self.hooks.refusal.take();
        {
            let mut cache = self.cache.borrow_mut();
            if let Some(at) = cache.kept.iter().position(|kept| *kept.sql == *sql) {
                return Ok(cache.kept.swap_remove(at).statement);
            }
        }
        let prepared = Statement::prepare(self, sql)?;
        let Some(statement) = prepared.statement else {
            return Err(Error::refused("there is no statement in the SQL text"));
        };
        if !skip_blanks(&sql[prepared.used..]).is_empty() {
            return Err(Error::refused("more than one statement in the SQL text: use a script"));
        }
        Ok(statement)
    }

    /// Keeps a statement that has been reset.
    pub(crate) fn keep(&self, sql: &str, statement: Statement) {
        let mut cache = self.cache.borrow_mut();
        cache.now = cache.now.wrapping_add(1);
        let used_at = cache.now;
        if cache.kept.len() >= STATEMENTS_CACHED_MAX {
            let now = cache.now;
            let oldest = cache.kept.iter().enumerate().max_by_key(|(_, kept)| now.wrapping_sub(kept.used_at));
            if let Some((at, _)) = oldest {
                cache.kept.swap_remove(at);
            }
        }
        cache.kept.push(Kept { sql: sql.into(), statement, used_at });
    }

    /// Compiles a statement that will be asked for, if it can be and belongs to no database in particular.
    pub(crate) fn prepare_ahead(&self, sql: &str) {
        let _paid = memory::enter(&self.account, usize::MAX);
        let prepared = self.take(sql);
        let is_personal = self.hooks.is_personal.replace(false);
        if let Ok(statement) = prepared
            && !is_personal
        {
            self.keep(sql, statement);
        }
    }

    /// The texts of kept statements that only read and write rows.
    pub(crate) fn with_kept(&self, look: impl FnOnce(&mut dyn Iterator<Item = &str>)) {
        let cache = self.cache.borrow();
        let rows_only = cache.kept.iter().filter(|kept| kept.statement.is_of_rows(&kept.sql));
        look(&mut rows_only.map(|kept| &*kept.sql));
    }

    /// Forgets kept statements and gives back the pages that can be read again.
    pub(crate) fn shrink(&self) {
        let _paid = memory::enter(&self.account, usize::MAX);
        *self.cache.borrow_mut() = Cache::default();
        // SAFETY: plain call on an open connection.
        unsafe { ffi::sqlite3_db_release_memory(self.raw()) };
    }

    pub(crate) fn in_transaction(&self) -> bool {
        // SAFETY: plain call on an open connection.
        unsafe { ffi::sqlite3_get_autocommit(self.raw()) == 0 }
    }

    /// Size of the database in bytes, what the open transaction added included.
    pub(crate) fn size_bytes(&self) -> u64 {
        let pages = self.host_text(c"PRAGMA page_count").ok().flatten();
        pages.and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * u64::from(PAGE_BYTES)
    }

    /// Frames in the WAL; `None` while a statement holds them.
    pub(crate) fn wal_frames(&self) -> Option<u32> {
        let (mut frames, mut moved) = (-1, -1);
        let main = c"main".as_ptr();
        let mode = ffi::SQLITE_CHECKPOINT_NOOP;
        // SAFETY: the out parameters live here; this mode only looks.
        let code = unsafe {
            ffi::sqlite3_wal_checkpoint_v2(self.raw(), main, mode, &raw mut frames, &raw mut moved)
        };
        if code == ffi::SQLITE_OK { u32::try_from(frames).ok() } else { None }
    }

    /// Whether the WAL has so many frames. Asks SQLite only after a commit: what did not grow is as short as it was.
    pub(crate) fn is_wal_long(&self, frames: u32) -> bool {
        if !self.hooks.wal_grew.get() {
            return false;
        }
        let Some(found) = self.wal_frames() else { return false };
        let is_long = found >= frames;
        self.hooks.wal_grew.set(is_long);
        is_long
    }

    fn message(&self) -> String {
        if self.raw().is_null() {
            return "the path holds a NUL character".to_owned();
        }
        // SAFETY: SQLite's message is a C string that lives until the next call on the connection.
        unsafe { CStr::from_ptr(ffi::sqlite3_errmsg(self.raw())) }.to_string_lossy().into_owned()
    }

    /// The error of the call that just answered `code`.
    #[cold]
    pub(crate) fn error(&self, code: c_int) -> Error {
        let refusal = self.hooks.refusal.take();
        self.note_damage(code);
        match (code & 0xff, refusal) {
            (ffi::SQLITE_AUTH | ffi::SQLITE_ERROR | ffi::SQLITE_INTERRUPT, Some(sentence)) => {
                return Error::Refused(sentence);
            }
            (ffi::SQLITE_INTERRUPT, None) => return Error::Interrupted,
            (ffi::SQLITE_AUTH | ffi::SQLITE_ERROR | ffi::SQLITE_NOMEM, None) if self.hooks.cancel.get() => {
                return Error::Interrupted;
            }
            (ffi::SQLITE_NOMEM, _) => return no_memory(),
            (ffi::SQLITE_FULL, _) if !disk::is_full(&self.path) => {
                self.was_full.set(true);
                return Error::Full;
            }
            _ => {}
        }
        let message = self.message();
        let message = match code & 0xff {
            ffi::SQLITE_FULL => "the node's disk is full".to_owned(),
            _ if is_damage(code) => format!("the actor's database file is damaged ({message})"),
            _ => message,
        };
        // SAFETY: plain call on an open connection.
        let offset = unsafe { ffi::sqlite3_error_offset(self.raw()) };
        Error::Sqlite(SqliteError { extended_code: code, message, sql_offset: u32::try_from(offset).ok() })
    }

    /// Remembers that `code` says the file is damaged or cannot be read, if it does.
    pub(crate) fn note_damage(&self, code: c_int) {
        if is_damage(code) || is_unreadable(code) {
            self.is_damaged.set(true);
        }
    }

    #[cold]
    pub(crate) fn open_error(&self, code: c_int) -> OpenError {
        let (path, message) = (self.path.to_path_buf(), self.message());
        match code & 0xff {
            _ if is_damage(code) => OpenError::Damaged { path, message },
            ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => OpenError::Locked { path },
            _ => OpenError::Sqlite { path, extended_code: code, message },
        }
    }
}

/// SQLite found no memory: an actor's statements have a limit.
#[cold]
pub(crate) fn no_memory() -> Error {
    Error::Sqlite(SqliteError {
        extended_code: ffi::SQLITE_NOMEM,
        message: format!("the statement needs more memory than an actor may use ({MEMORY_BYTES_MAX} bytes)"),
        sql_offset: None,
    })
}
