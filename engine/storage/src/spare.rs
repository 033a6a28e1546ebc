//! Databases made before anybody asks for one: opened and set up under a name of their own, and renamed to where they
//! belong once an actor is new. Owns the order of the renames; how many there are and when is not its business.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
    sync::Arc,
};

use crate::{
    database::{Config, Database},
    error::OpenError,
    image::{beside, remove, unlink},
    template::Template,
};

/// A database, open, that is no actor's: an empty one, or as `on-init` leaves it.
#[derive(Debug)]
pub struct Spare(Box<Database>);

/// A spare that did not take its place.
#[derive(Debug)]
pub struct Unplaced {
    /// As it was, unless the error is of a file system that does not take a rename back.
    pub spare: Spare,
    /// [`ErrorKind::AlreadyExists`]: there is a database.
    pub error: io::Error,
}

impl Spare {
    /// Makes one at `path`, where nothing of its name is. Blocking: not for a shard.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn make(path: &Path, config: &Config) -> Result<Self, OpenError> {
        Database::open_new(path, None, config).map(|database| Self(Box::new(database)))
    }

    /// As [`Spare::make`], with what `template` holds in it, and what actors ask first compiled.
    ///
    /// # Errors
    /// As there.
    pub fn make_like(template: &Arc<Template>, path: &Path, config: &Config) -> Result<Self, OpenError> {
        let database = Database::open_new(path, Some(template.wal()), config)?;
        template.learn(&database)?;
        template.prepare(&database);
        *database.like.borrow_mut() = Some(Arc::clone(template));
        Ok(Self(Box::new(database)))
    }

    /// For `on-init` to run in, so that a [`Template`] can be made of it.
    #[must_use]
    pub fn into_database(self) -> Database {
        *self.0
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Makes it the database at `path`, which is absolute and of the same file system, where there is none and its
    /// folder is there. What is left there of an earlier database of the name is gone afterwards. Two renames and no
    /// sync: a shard may do it.
    ///
    /// # Errors
    /// There is a database at `path`, or the file system refuses. [`Database::open`] makes what is missing.
    pub fn place(self, path: &Path, config: &Config) -> Result<Database, Unplaced> {
        let Self(mut database) = self;
        match database.relocate(path, config, |from| rename(from, path)) {
            Ok(()) => Ok(*database),
            Err(error) => Err(Unplaced { spare: Self(database), error }),
        }
    }

    /// Closes it and removes its files. Blocking.
    ///
    /// # Errors
    /// What the file system says.
    pub fn discard(self) -> io::Result<()> {
        let path = self.0.path().to_owned();
        drop(self);
        remove(&path)
    }
}

/// The WAL goes first. With the database there before its own WAL, a crash between the two would leave it beside the
/// WAL of an earlier database of the name, and that would be replayed into it; a WAL alone belongs to nothing, and
/// whoever makes a database there clears it away.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(to) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Ok(_) => return Err(ErrorKind::AlreadyExists.into()),
        Err(error) => return Err(error),
    }
    // A journal would be rolled back into the database by its next opening.
    unlink(&beside(to, "-journal"))?;
    let (own_wal, wal) = (beside(from, "-wal"), beside(to, "-wal"));
    fs::rename(&own_wal, &wal)?;
    fs::rename(from, to).inspect_err(|_| {
        // Should this fail too, the spare is of no use: its WAL is not where its next opening looks.
        let _ = fs::rename(&wal, &own_wal);
    })
}
