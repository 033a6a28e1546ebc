//! What commits changed, read from the write-ahead log right after them, with a checksum of the whole database
//! that is kept up to date.
//!
//! SQLite's hooks would lose commits (a writing statement that is reset early calls none), so the log itself is
//! the source: whatever counts for SQLite's own recovery counts here. Several commits read together are one set
//! of changes. Nothing is read after a checkpoint that was not read before it: [`Database::checkpoint`] and the
//! close take what is left first.
//!
//! The checksum is of what a reader sees: for each page the last committed frame, else the database file. So a
//! file that is opened again is recognised by its checksum alone. In WAL mode SQLite writes every page a
//! transaction touched, those it does not care about any more included.
//!
//! The checksum of a database that was closed well is taken from the file its [`Sums`] left, not from the pages. Should
//! the two differ all the same (a disk that changes what it has), the next snapshot shows it, and the database is read
//! when it is opened next.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::c_int,
    future::poll_fn,
    path::Path,
    task::Poll,
};

use rusqlite::ffi;
use wasmkeep_ltx::{Chain, Changes, Checksum, EncodeError, Encoded, Encoder, Header, PageSize, WalSource};
use wasmkeep_protocol::limits::PAGE_BYTES;

use crate::{
    checkpoint,
    connection::Connection,
    database::Database,
    error::{Error, SqliteError},
    offload::Offload,
    sums::Sums,
    wal::{self, OpenFile, Place},
};

/// Frames read between two chances for others on the core: about 100 µs.
const FRAMES_PER_TURN: usize = 32;

/// What is known of the commits of one open database.
pub(crate) struct Capture {
    /// Behind the last commit that was read; `None` while there is no log.
    place: Option<Place>,
    sums: Sums,
    /// Nothing speaks against the sums: they may be kept.
    is_sound: bool,
    /// Read before a checkpoint, not asked for yet.
    pending: Option<Changes>,
    /// Scans accepted so far.
    reads: u64,
}

fn page_size() -> PageSize {
    PageSize::new(PAGE_BYTES).expect("the platform's page size is one of SQLite's")
}

/// Both files of a database as a reader between transactions sees them.
struct View {
    database: OpenFile,
    wal: OpenFile,
    /// The last committed frame of each page in the log.
    frames: HashMap<u32, u32>,
}

impl View {
    /// The state after the first `committed` frames of the log.
    fn new(connection: &Connection, committed: u32) -> Result<Self, c_int> {
        let (database, wal) = (OpenFile::database(connection)?, OpenFile::wal(connection)?);
        let mut frames = HashMap::new();
        for frame in 0..committed {
            frames.insert(wal::page_number(wal, frame)?, frame);
        }
        Ok(Self { database, wal, frames })
    }

    fn read(&self, pgno: u32, page: &mut [u8]) -> Result<(), c_int> {
        match self.frames.get(&pgno) {
            Some(frame) => wal::read_page(self.wal, *frame, page)?,
            None => self.database.read(page, u64::from(pgno - 1) * u64::from(PAGE_BYTES))?,
        };
        Ok(())
    }
}

impl Capture {
    /// Reads the whole database, unless its sums were kept when it was closed. Blocking.
    fn begin(connection: &Connection) -> Result<Self, Error> {
        let wal = OpenFile::wal(connection).map_err(unreadable)?;
        let (place, commit) = last_commit(wal).map_err(unreadable)?;
        let pages = match commit {
            Some(pages) => pages,
            None => (connection.size_bytes() / u64::from(PAGE_BYTES)) as u32,
        };
        let kept = Sums::kept(page_size(), connection.path(), &name(place));
        let sums = match kept.filter(|kept| kept.page_count() == pages) {
            Some(kept) => kept,
            None => read_all(connection, place, pages).map_err(unreadable)?,
        };
        Ok(Self { place, sums, is_sound: true, pending: None, reads: 0 })
    }

    /// The database's file was closed, and this became of its log, all of which had been read.
    pub(crate) fn closed(&mut self, log: checkpoint::Fate) {
        match log {
            checkpoint::Fate::Untouched => {}
            checkpoint::Fate::Emptied => self.place = None,
            checkpoint::Fate::Unknown => self.is_sound = false,
        }
    }

    /// Leaves the sums of a closed database for its next opening. Blocking.
    pub(crate) fn keep(self, path: &Path) {
        if self.is_sound
            && let Err(error) = self.sums.keep(&name(self.place))
        {
            tracing::warn!(%error, ?path, "the sums of a database's pages could not be kept; its next opening reads it");
        }
    }

    /// Takes what a finished scan found.
    fn accept(&mut self, scan: Scan) -> Result<(), Error> {
        let Some(commit) = scan.commit else {
            self.reads += 1;
            self.place = scan.committed_at;
            return Ok(());
        };
        let mut pages = scan.committed;
        pages.retain(|pgno, _| *pgno <= commit);
        if let Err(error) = self.sums.prepare(commit, pages.keys().copied()) {
            self.is_sound = false;
            tracing::warn!(%error, "the sums of a database's pages could not be read");
            return Err(unreadable(ffi::SQLITE_IOERR_READ));
        }
        self.reads += 1;
        self.place = scan.committed_at;
        let before = self.sums.database();
        self.sums.resize(commit);
        for (pgno, page) in &pages {
            self.sums.set(*pgno, page);
        }
        let changes = Changes::new(page_size(), pages, commit, before, self.sums.database());
        match &mut self.pending {
            None => self.pending = Some(changes),
            // They follow each other by construction: one checksum leads to the next.
            Some(earlier) => earlier.append(changes).expect("changes of one database, in order"),
        }
        Ok(())
    }
}

/// What [`Sums`] know the last commit by.
fn name(place: Option<Place>) -> Vec<u8> {
    place.map_or_else(Vec::new, Place::to_bytes)
}

/// The sums of a database of `pages` pages whose last commit in the log is at `place`.
fn read_all(connection: &Connection, place: Option<Place>, pages: u32) -> Result<Sums, c_int> {
    let view = View::new(connection, place.map_or(0, |place| place.frames()))?;
    let mut sums = Sums::new(page_size(), connection.path());
    sums.resize(pages);
    let mut page = vec![0; PAGE_BYTES as usize];
    for pgno in 1..=pages {
        view.read(pgno, &mut page)?;
        sums.set(pgno, &page);
    }
    if let Err(error) = sums.put_away() {
        // They stay in memory.
        tracing::warn!(%error, path = ?connection.path(), "the sums of a database's pages could not be put away");
    }
    Ok(sums)
}

/// Where the last commit in the log ends, and the size of the database there in pages.
fn last_commit(wal: OpenFile) -> Result<(Option<Place>, Option<u32>), c_int> {
    let Some(mut place) = Place::start(wal)? else { return Ok((None, None)) };
    let mut found = (Some(place), None);
    let mut space = wal::frame_space();
    while let Some(frame) = place.next(wal, &mut space)? {
        if let Some(pages) = frame.commit {
            found = (Some(place), Some(pages));
        }
    }
    Ok(found)
}

/// The way through the log from the last commit known, some frames at a time.
struct Scan {
    wal: OpenFile,
    place: Option<Place>,
    space: Vec<u8>,
    /// Pages of a transaction whose end has not been read.
    open: BTreeMap<u32, Box<[u8]>>,
    committed: BTreeMap<u32, Box<[u8]>>,
    committed_at: Option<Place>,
    commit: Option<u32>,
}

impl Scan {
    fn new(connection: &Connection, known: Option<Place>) -> Result<Self, c_int> {
        let wal = OpenFile::wal(connection)?;
        let place = Place::renewed(known, wal)?;
        Ok(Self {
            wal,
            place,
            space: wal::frame_space(),
            open: BTreeMap::new(),
            committed: BTreeMap::new(),
            committed_at: place,
            commit: None,
        })
    }

    /// Reads at most `frames`; whether there may be more.
    fn step(&mut self, frames: usize) -> Result<bool, c_int> {
        let Some(place) = &mut self.place else { return Ok(false) };
        for _ in 0..frames {
            let Some(frame) = place.next(self.wal, &mut self.space)? else { return Ok(false) };
            self.open.insert(frame.pgno, frame.page.into());
            if let Some(pages) = frame.commit {
                // What an earlier commit cut off and a later one brought back was read as it is seen now.
                self.committed.append(&mut self.open);
                (self.commit, self.committed_at) = (Some(pages), Some(*place));
            }
        }
        Ok(true)
    }
}

impl Database {
    /// Starts to keep track of what commits change; the checksum of the database as it is. Off the shard; reads all of
    /// the database unless it was closed well. Everything committed from here on is given out by
    /// [`Database::take_changes`] once.
    ///
    /// # Errors
    /// What SQLite says of the files; [`Error::Refused`] while a transaction or a cursor is open.
    pub async fn begin_capture(&self, offload: &dyn Offload) -> Result<Checksum, Error> {
        let capture =
            self.elsewhere(offload, "reading the database", |connection, _| Capture::begin(connection));
        let capture = capture.await?;
        let checksum = capture.sums.database();
        *self.capture.borrow_mut() = Some(capture);
        Ok(checksum)
    }

    /// What was committed since this was last asked; `None` for nothing, and before [`Database::begin_capture`].
    /// A transaction that is still open is no part of it. Gives the core back every 100 µs.
    ///
    /// # Errors
    /// What SQLite says of reading its files; what was not read is given out later.
    pub async fn take_changes(&self) -> Result<Option<Changes>, Error> {
        self.read_commits().await?;
        Ok(self.capture.borrow_mut().as_mut().and_then(|capture| capture.pending.take()))
    }

    /// The checksum of the database after all changes given out and read so far.
    pub fn checksum(&self) -> Option<Checksum> {
        self.capture.borrow().as_ref().map(|capture| capture.sums.database())
    }

    /// Reads what was committed and keeps it.
    pub(crate) async fn read_commits(&self) -> Result<(), Error> {
        self.home().await;
        if self.is_dozing() {
            // All of it was read before the file was closed.
            return Ok(());
        }
        'again: loop {
            let known = match &*self.capture.borrow() {
                Some(capture) => (capture.place, capture.reads),
                None => return Ok(()),
            };
            let connection = self.here()?;
            let unread = |code| unreadable_by(connection, code);
            let mut scan = Scan::new(connection, known.0).map_err(unread)?;
            while scan.step(FRAMES_PER_TURN).map_err(unread)? {
                give_way().await;
                self.here()?;
                // Another read ended meanwhile, and a checkpoint may have followed it: what this one has is old.
                if self.capture.borrow().as_ref().is_none_or(|capture| capture.reads != known.1) {
                    continue 'again;
                }
            }
            return match &mut *self.capture.borrow_mut() {
                Some(capture) => capture.accept(scan),
                None => Ok(()),
            };
        }
    }

    /// The whole database as a snapshot file of transaction `txid`, made off the shard. It holds exactly what
    /// the changes given out so far lead to, so they must have been taken; a transaction or a cursor that is open
    /// does not matter, since the files are read and not the connection.
    ///
    /// # Errors
    /// [`Error::Refused`] when changes wait to be taken, and without [`Database::begin_capture`]; else what SQLite
    /// says.
    pub async fn snapshot(
        &self,
        offload: &dyn Offload,
        txid: u64,
        timestamp_ms: i64,
    ) -> Result<Encoded, Error> {
        self.read_commits().await?;
        let (sums, place) = match &*self.capture.borrow() {
            Some(Capture { pending: None, sums, place, .. }) => {
                ((sums.page_count(), sums.database()), *place)
            }
            Some(_) => return Err(Error::refused("changes wait to be taken before a snapshot")),
            None => {
                return Err(Error::refused("no snapshot of a database whose changes are not kept track of"));
            }
        };
        let made = self.beside(offload, "making a snapshot", move |connection, _| {
            let header = Header {
                page_size: page_size(),
                commit: sums.0,
                min_txid: 1,
                max_txid: txid,
                timestamp_ms,
                chain: Chain::Snapshot,
                wal: WalSource::default(),
                node_id: 0,
            };
            Ok(encode(connection, place, header, sums.1))
        });
        made.await?.map_err(|not_made| match not_made {
            NotMade::Unread(code) => unreadable_by(&self.connection, code),
            NotMade::Wrong(error) => {
                if matches!(error, EncodeError::PostApply { .. })
                    && let Some(capture) = &mut *self.capture.borrow_mut()
                {
                    capture.is_sound = false;
                }
                Error::refused(format!("the snapshot cannot be made: {error}"))
            }
        })
    }
}

/// Why there is no snapshot.
enum NotMade {
    Unread(c_int),
    Wrong(EncodeError),
}

/// The state after the commit at `place`, which has the checksum `sum`.
fn encode(
    connection: &Connection,
    place: Option<Place>,
    header: Header,
    sum: Checksum,
) -> Result<Encoded, NotMade> {
    let view = View::new(connection, place.map_or(0, |place| place.frames())).map_err(NotMade::Unread)?;
    let mut encoder = Encoder::new(header).map_err(NotMade::Wrong)?;
    let mut page = vec![0; PAGE_BYTES as usize];
    for pgno in (1..=header.commit).filter(|pgno| *pgno != header.page_size.lock_page()) {
        view.read(pgno, &mut page).map_err(NotMade::Unread)?;
        encoder.page(pgno, &page).map_err(NotMade::Wrong)?;
    }
    encoder.finish(Some(sum)).map_err(NotMade::Wrong)
}

/// Lets others on the core have a turn.
async fn give_way() {
    let mut gave = false;
    poll_fn(|context| {
        if std::mem::replace(&mut gave, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cold]
fn unreadable_by(connection: &Connection, code: c_int) -> Error {
    connection.note_damage(code);
    unreadable(code)
}

#[cold]
fn unreadable(code: c_int) -> Error {
    let message = "the database's files could not be read".to_owned();
    Error::Sqlite(SqliteError { extended_code: code, message, sql_offset: None })
}
