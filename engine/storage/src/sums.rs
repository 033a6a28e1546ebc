//! The checksums of a database's pages, eight bytes each: few of them in memory, all of them in a file beside a
//! database of more than 2 MiB, so that one which was closed well need not be read when it is opened again.
//!
//! The file is believed only if nothing can have changed the database since it was written. It is void from the
//! moment the database is opened until it is closed, so a process that was killed in between leaves a void one. It
//! names this boot of the machine, since after a power loss the disk may have kept the file and lost what the
//! database was given before it. And it names the database file as the system does, with its times, and the last
//! commit in the log: somebody else may have written there meanwhile. The sums have to add up to the database's, too,
//! which costs a 512th of reading it: no file was synced. In all other cases the database is read.
//!
//! Owns that file and the sums. Knows no log and no connection.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use wasmkeep_ltx::{Checksum, PageSize, page_checksum};

use crate::image::{SUMS, beside};

/// Sums read and written together: 4 KiB for 2 MiB of database. A database of no more has no file: it is read in a
/// millisecond.
const CHUNK_SUMS: u32 = 512;

/// Bytes of one sum in the file.
const SUM_BYTES: u64 = 8;

/// What the file begins with when it is not void: `MAGIC`, pages, the database's checksum, the proof.
const HEADER_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"wk-sums1";

/// Where the first chunk is.
const CHUNKS_AT: u64 = 4096;

/// The sums of one open database.
pub(crate) struct Sums {
    page_size: PageSize,
    database_path: PathBuf,
    /// A chunk that is not here is in the file, as it was when it was here last.
    chunks: BTreeMap<u32, Chunk>,
    has_file: bool,
    pages: u32,
    database: Checksum,
}

/// The sums of so many pages in a row; the last chunk may be shorter than the others.
struct Chunk {
    sums: Vec<Checksum>,
    is_changed: bool,
}

fn chunk_of(pgno: u32) -> u32 {
    (pgno - 1) / CHUNK_SUMS
}

fn place_of(pgno: u32) -> usize {
    ((pgno - 1) % CHUNK_SUMS) as usize
}

fn offset_of(chunk: u32) -> u64 {
    CHUNKS_AT + u64::from(chunk) * u64::from(CHUNK_SUMS) * SUM_BYTES
}

impl Sums {
    /// Of a database without pages, at `database_path`.
    pub(crate) fn new(page_size: PageSize, database_path: &Path) -> Self {
        Self {
            page_size,
            database_path: database_path.to_owned(),
            chunks: BTreeMap::new(),
            has_file: false,
            pages: 0,
            database: Checksum::EMPTY,
        }
    }

    /// Those kept when the database was closed, if they can be believed; void from now on. `log` names the last commit
    /// in the log as [`Sums::keep`] was told. Blocking.
    pub(crate) fn kept(page_size: PageSize, database_path: &Path, log: &[u8]) -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open(beside(database_path, SUMS)).ok()?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).ok()?;
        let (magic, rest) = header.split_first_chunk::<8>()?;
        let (pages, database) = (u64_at(rest, 0)?, Checksum::new(u64_at(rest, 8)?).ok()?);
        let pages = u32::try_from(pages).ok()?;
        let is_believed = *magic == MAGIC && u64_at(rest, 16)? == proof(database_path, log, pages, database)?;
        if !is_believed {
            return None;
        }
        file.write_all_at(&[0; MAGIC.len()], 0).ok()?;
        let sums = Self { has_file: true, pages, database, ..Self::new(page_size, database_path) };
        (sums.added_up(&file).ok()? == database).then_some(sums)
    }

    /// The checksum of the whole database as it now stands.
    pub(crate) fn database(&self) -> Checksum {
        self.database
    }

    /// The number of pages, the lock page included.
    pub(crate) fn page_count(&self) -> u32 {
        self.pages
    }

    /// Brings what it takes to change `touched` and to make the database `pages` long. Some 10 µs for each chunk that
    /// is not here.
    pub(crate) fn prepare(&mut self, pages: u32, touched: impl Iterator<Item = u32>) -> io::Result<()> {
        if !self.has_file || self.pages == 0 {
            return Ok(());
        }
        let mut wanted: BTreeSet<u32> = touched.filter(|pgno| *pgno <= self.pages).map(chunk_of).collect();
        if pages > self.pages {
            wanted.insert(chunk_of(self.pages));
        } else if pages < self.pages {
            wanted.extend(chunk_of(pages.max(1))..=chunk_of(self.pages));
        }
        wanted.retain(|chunk| !self.chunks.contains_key(chunk));
        if wanted.is_empty() {
            return Ok(());
        }
        let file = File::open(beside(&self.database_path, SUMS))?;
        for chunk in wanted {
            let read = self.read(&file, chunk)?;
            self.chunks.insert(chunk, read);
        }
        Ok(())
    }

    fn read(&self, file: &File, chunk: u32) -> io::Result<Chunk> {
        let length = (self.pages - chunk * CHUNK_SUMS).min(CHUNK_SUMS) as usize;
        let mut bytes = vec![0; length * SUM_BYTES as usize];
        file.read_exact_at(&mut bytes, offset_of(chunk))?;
        let sums = bytes.chunks_exact(SUM_BYTES as usize).map(|bytes| {
            let number = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            Checksum::new(number).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        });
        Ok(Chunk { sums: sums.collect::<io::Result<_>>()?, is_changed: false })
    }

    /// What the sums in the file add up to.
    fn added_up(&self, file: &File) -> io::Result<Checksum> {
        let chunks = 0..self.pages.div_ceil(CHUNK_SUMS);
        chunks
            .map(|chunk| self.read(file, chunk))
            .try_fold(Checksum::EMPTY, |sum, chunk| Ok(chunk?.sums.into_iter().fold(sum, Checksum::toggled)))
    }

    /// Sets the size of the database in pages, for which it was [prepared](Sums::prepare). Pages cut off are taken
    /// out; new ones count as zeros until [`Sums::set`].
    pub(crate) fn resize(&mut self, pages: u32) {
        while self.pages > pages {
            let chunk = self.chunk(self.pages);
            let cut = chunk.sums.pop().expect("as many as pages");
            let is_empty = chunk.sums.is_empty();
            self.database = self.database.toggled(cut);
            if is_empty {
                self.chunks.remove(&chunk_of(self.pages));
            }
            self.pages -= 1;
        }
        if self.pages == pages {
            return;
        }
        let zeros = vec![0; self.page_size.bytes()];
        for pgno in self.pages + 1..=pages {
            let sum = self.of_page(pgno, &zeros);
            self.pages = pgno;
            let chunk = self.chunk(pgno);
            debug_assert_eq!(chunk.sums.len(), place_of(pgno), "it was not prepared");
            chunk.sums.push(sum);
            self.database = self.database.toggled(sum);
        }
    }

    /// Records new contents of page `pgno`, for which it was [prepared](Sums::prepare).
    pub(crate) fn set(&mut self, pgno: u32, data: &[u8]) {
        let sum = self.of_page(pgno, data);
        let before = std::mem::replace(&mut self.chunk(pgno).sums[place_of(pgno)], sum);
        self.database = self.database.toggled(before).toggled(sum);
    }

    /// The chunk of a page, to be changed; a new one for the first page behind the last.
    fn chunk(&mut self, pgno: u32) -> &mut Chunk {
        let chunk = self
            .chunks
            .entry(chunk_of(pgno))
            .or_insert_with(|| Chunk { sums: Vec::new(), is_changed: false });
        chunk.is_changed = true;
        chunk
    }

    fn of_page(&self, pgno: u32, data: &[u8]) -> Checksum {
        if pgno == self.page_size.lock_page() { Checksum::EMPTY } else { page_checksum(pgno, data) }
    }

    /// Leaves everything in the file, unless that would be one chunk. Blocking. After an error all of it is still
    /// here.
    pub(crate) fn put_away(&mut self) -> io::Result<()> {
        if !self.has_file && self.pages <= CHUNK_SUMS {
            return Ok(());
        }
        let path = beside(&self.database_path, SUMS);
        let is_new = !self.has_file;
        let file = OpenOptions::new().write(true).create(is_new).truncate(is_new).open(path)?;
        for (number, chunk) in self.chunks.iter_mut().filter(|(_, chunk)| chunk.is_changed) {
            let bytes: Vec<u8> = chunk.sums.iter().flat_map(|sum| sum.get().to_le_bytes()).collect();
            file.write_all_at(&bytes, offset_of(*number))?;
            chunk.is_changed = false;
        }
        self.chunks.clear();
        self.has_file = true;
        Ok(())
    }

    /// For a database that has just been closed: makes the file one that is believed as long as nobody writes to the
    /// database, and its log ends with the commit that `log` names. Blocking.
    pub(crate) fn keep(mut self, log: &[u8]) -> io::Result<()> {
        self.put_away()?;
        if !self.has_file {
            return Ok(());
        }
        let Some(proof) = proof(&self.database_path, log, self.pages, self.database) else { return Ok(()) };
        let mut header = MAGIC.to_vec();
        for number in [u64::from(self.pages), self.database.get(), proof] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        OpenOptions::new().write(true).open(beside(&self.database_path, SUMS))?.write_all_at(&header, 0)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// What binds sums to a database file as it is now; `None` when that cannot be told.
fn proof(database_path: &Path, log: &[u8], pages: u32, database: Checksum) -> Option<u64> {
    let found = fs::metadata(database_path).ok()?;
    let mut bound = boot()?.as_bytes().to_vec();
    for number in [
        found.dev(),
        found.ino(),
        found.size(),
        found.mtime().cast_unsigned(),
        found.mtime_nsec().cast_unsigned(),
        found.ctime().cast_unsigned(),
        found.ctime_nsec().cast_unsigned(),
        u64::from(pages),
        database.get(),
    ] {
        bound.extend_from_slice(&number.to_le_bytes());
    }
    bound.extend_from_slice(log);
    Some(page_checksum(pages, &bound).get())
}

/// Which boot of the machine this is, as the kernel calls it.
fn boot() -> Option<&'static str> {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();
    let read = || fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().filter(|id| !id.is_empty());
    BOOT.get_or_init(read).as_deref()
}

#[cfg(test)]
mod tests;
