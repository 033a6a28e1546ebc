//! What `on-init` of a version leaves in an empty database, kept so that others of the class can begin with it.
//!
//! Owns what has to hold in the database for that. Whether the code asked for anything that differs from actor to actor,
//! whoever ran it knows.

use std::{
    fmt, fs, io,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    connection::Connection,
    database::Database,
    error::{Error, OpenError},
    image::{self, beside},
    offload::Offload,
    wal,
};

/// A WAL that is longer is not kept in memory.
const WAL_BYTES_MAX: u64 = 256 << 10;

/// Statements that are compiled ahead in a database made of a template, at most.
const FIRST_MAX: usize = 4;

/// Texts of more bytes are not: their compilation could not be interrupted.
const FIRST_BYTES_MAX: usize = 4 << 10;

/// What a database that `on-init` ran in has more than an empty one: its WAL. A database made of it is what the actor's
/// own would be after its `on-init`, also for a crash: the file is as all begin, and the WAL says what was written.
pub struct Template {
    version: String,
    frames: u32,
    wal: Vec<u8>,
    first: Mutex<First>,
}

/// What actors ask of their database in their first event.
#[derive(Default)]
struct First {
    /// Asked by two that came one after the other.
    known: Vec<Box<str>>,
    /// What the last one asked besides.
    last: Vec<Box<str>>,
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Template {
    /// Of a database that was empty and in which `on-init` has run and was committed. `None`: its SQL spoke of time or
    /// chance, so it may come out otherwise for another actor; or there is too much of it. The files stay.
    ///
    /// # Errors
    /// What SQLite and the file system say.
    pub async fn of(database: Database, offload: &dyn Offload) -> Result<Option<Self>, Error> {
        let Some(version) = database.init_version()? else { return Ok(None) };
        let read = |connection: &Connection, _: &_| Ok(read(connection));
        let wal = database.elsewhere(offload, "reading what on-init left", read).await?;
        let wal =
            wal.map_err(|error| Error::refused(format!("what on-init left cannot be read: {error}")))?;
        Ok(wal.map(|(frames, wal)| Self { version, frames, wal, first: Mutex::default() }))
    }

    pub(crate) fn wal(&self) -> &[u8] {
        &self.wal
    }

    /// An actor's first event ended, of which `texts` are left.
    pub(crate) fn was_asked<'a>(&self, texts: impl Iterator<Item = &'a str>) {
        let mut first = self.first();
        let First { known, last } = &mut *first;
        if known.len() == FIRST_MAX {
            return;
        }
        let is_new = |text: &&str| text.len() <= FIRST_BYTES_MAX && !known.iter().any(|it| **it == **text);
        let asked: Vec<Box<str>> = texts.filter(is_new).take(FIRST_MAX).map(Box::from).collect();
        let again = asked.iter().filter(|text| last.contains(text));
        known.extend(again.take(FIRST_MAX - known.len()).cloned().collect::<Vec<_>>());
        *last = asked;
    }

    /// Compiles in `database` what actors ask first.
    pub(crate) fn prepare(&self, database: &Database) {
        let known = self.first().known.clone();
        if let Ok(connection) = database.here() {
            known.iter().for_each(|sql| connection.prepare_ahead(sql));
        }
    }

    fn first(&self) -> MutexGuard<'_, First> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that `database`, which was just made of it, took over the whole of it: SQLite found each frame sound.
    pub(crate) fn learn(&self, database: &Database) -> Result<(), OpenError> {
        let damaged = |message: String| OpenError::Damaged { path: database.path().to_owned(), message };
        let connection = database.here().map_err(|error| damaged(error.to_string()))?;
        let (found, wanted) = (connection.wal_frames(), self.frames);
        if found != Some(wanted) {
            return Err(damaged(format!("{found:?} of {wanted} frames were taken over")));
        }
        // The row that says so is in them.
        connection.has_rows.set(true);
        *database.version.borrow_mut() = Some(Some(self.version.clone()));
        Ok(())
    }
}

/// The frames of the WAL and the WAL, if that is all there is and another connection would come to the same.
fn read(connection: &Connection) -> io::Result<Option<(u32, Vec<u8>)>> {
    let hooks = &connection.hooks;
    let Some(frames) = connection.wal_frames() else { return Ok(None) };
    let log = beside(connection.path(), "-wal");
    let is_same = !hooks.depends_on_moment.get() && !hooks.is_personal.get();
    if !is_same || !is_all(connection.path(), &log)? {
        return Ok(None);
    }
    let mut content = fs::read(&log)?;
    content.truncate(wal::offset_of(frames) as usize);
    Ok(Some((frames, content)))
}

/// Nothing of the WAL has been moved into the file.
fn is_all(path: &Path, wal: &Path) -> io::Result<bool> {
    Ok(fs::metadata(wal)?.len() <= WAL_BYTES_MAX && image::is_blank(path)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::executor::block_on;

    use super::*;
    use crate::{Config, Inline, Spare};

    fn template(folder: &Path) -> Arc<Template> {
        let database = Spare::make(&folder.join("0.db"), &Config::default()).unwrap().into_database();
        database.begin_init().unwrap();
        block_on(database.exec_script("CREATE TABLE line(id INTEGER PRIMARY KEY, n)")).unwrap();
        database.commit_init("v1").unwrap();
        Arc::new(block_on(Template::of(database, &Inline)).unwrap().unwrap())
    }

    /// An actor made of the template asks this in its first event; says what was compiled before.
    fn ask(template: &Arc<Template>, path: &Path, texts: &[&str]) -> Vec<String> {
        let database = Spare::make_like(template, path, &Config::default()).unwrap().into_database();
        let kept = || {
            let mut kept = Vec::new();
            database.here().unwrap().with_kept(|texts| kept.extend(texts.map(str::to_owned)));
            kept
        };
        let compiled = kept();
        for text in texts {
            block_on(database.exec(text, Vec::new())).unwrap();
        }
        block_on(database.end_event());
        block_on(database.exec("DELETE FROM line", Vec::new())).unwrap();
        block_on(database.end_event());
        compiled
    }

    #[test]
    fn what_two_actors_in_a_row_ask_first_is_compiled_ahead_for_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let template = template(folder.path());
        let mut number = 0;
        let mut ask = |texts: &[&str]| {
            number += 1;
            ask(&template, &folder.path().join(format!("{number}.db")), texts)
        };
        let (insert, read) = ("INSERT INTO line(n) VALUES(1)", "SELECT n FROM line");
        let (table, of_table) = ("CREATE TEMP TABLE own(n)", "INSERT INTO own VALUES(1)");
        assert_eq!(ask(&[insert, read, table, of_table, "PRAGMA user_version"]), [""; 0]);
        assert_eq!(ask(&["SELECT 1", read, table, of_table, "PRAGMA user_version"]), [""; 0]);
        assert_eq!(ask(&[insert]), [read]);
        assert_eq!(ask(&[insert, read]), [read]);
        assert_eq!(ask(&[insert, read]), [read, insert]);
    }

    #[test]
    fn no_more_than_a_few_are_compiled_ahead() {
        let folder = tempfile::tempdir().unwrap();
        let template = template(folder.path());
        let long = format!("SELECT '{}'", "x".repeat(FIRST_BYTES_MAX));
        let short = (0..3 * FIRST_MAX).map(|n| format!("SELECT {n}"));
        let texts: Vec<String> = std::iter::once(long.clone()).chain(short).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found = [1, 2, 3].map(|n| ask(&template, &folder.path().join(format!("{n}.db")), &texts));
        assert!(!found.concat().contains(&long));
        assert_eq!(found.map(|found| found.len()), [0, 0, FIRST_MAX]);
    }
}
