//! Applying a file to a database's pages, after checking that it is that database the file follows.
//!
//! It owns the rule that nothing is written before everything has been checked. It does not own how pages are
//! kept: that is [`PageStore`], implemented here for memory only.

use crate::{Chain, Checksum, File, PageSize, Position, Verified, page_checksum};

/// The pages of one database.
pub trait PageStore {
    /// Why a page cannot be read or written.
    type Error: std::error::Error + 'static;

    /// The size of a page.
    fn page_size(&self) -> PageSize;

    /// The number of pages, the lock page included.
    fn page_count(&self) -> u32;

    /// The most pages the store takes. A file is refused before anything is written when it wants more.
    fn pages_max(&self) -> u32;

    /// Reads page `pgno`, from 1 to `page_count`, into `page`.
    fn read_page(&self, pgno: u32, page: &mut [u8]) -> Result<(), Self::Error>;

    /// Overwrites page `pgno`, from 1 to `page_count`.
    fn write_page(&mut self, pgno: u32, page: &[u8]) -> Result<(), Self::Error>;

    /// Sets the number of pages, cutting off at the end or adding zeros there.
    fn resize(&mut self, pages: u32) -> Result<(), Self::Error>;
}

/// Why a file is not applied. Except for [`Store`](ApplyError::Store), nothing has been written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError<E: std::error::Error + 'static> {
    /// The file does not start right after the position, or a snapshot does not reach past it.
    #[error("transactions {min_txid} to {max_txid} do not follow transaction {at}")]
    NotNext {
        /// The file's first transaction.
        min_txid: u64,
        /// The file's last transaction.
        max_txid: u64,
        /// The transaction of the database.
        at: u64,
    },
    /// The file follows a database with other contents, or one of the two does not track checksums.
    #[error("the file follows a database with checksum {wanted:?}, this one has {found:?}")]
    PreApply {
        /// The checksum the file wants, `None` when it tracks none.
        wanted: Option<Checksum>,
        /// The checksum of the position.
        found: Option<Checksum>,
    },
    /// The pages would not have the checksum the file states: the store does not hold what its position says.
    #[error("the database would have checksum {computed}, the file states {stated}")]
    PostApply {
        /// The checksum the pages would have.
        computed: Checksum,
        /// The checksum in the trailer.
        stated: Checksum,
    },
    /// The file is of a database with another page size.
    #[error("pages of {file:?} for a database with pages of {store:?}")]
    PageSize {
        /// The file's page size.
        file: PageSize,
        /// The store's page size.
        store: PageSize,
    },
    /// The database would grow past what the store takes.
    #[error("{pages} pages are more than the {pages_max} allowed")]
    TooLarge {
        /// The pages the file commits.
        pages: u32,
        /// The most the store takes.
        pages_max: u32,
    },
    /// The store failed. When it failed while writing, its contents are of no database and must be dropped.
    #[error("page store: {0}")]
    Store(#[source] E),
}

/// Applies `file` to the database in `store`, which is at position `at`; returns the position after it.
///
/// An incremental file must start at the transaction after `at`, and its pre-apply checksum must be `at`'s:
/// two histories that reached the same transaction with different pages are never mixed. A file and a
/// position of which only one tracks checksums do not fit. A snapshot replaces everything and needs only to
/// reach past `at`. With checksums, the checksum after the file is computed from the pages about to be
/// replaced and compared before the first write.
///
/// Pages that the database grows by and the file does not hold are zeros.
pub fn apply<S: PageStore>(
    file: &Verified<'_>,
    at: &Position,
    store: &mut S,
) -> Result<Position, ApplyError<S::Error>> {
    check_fit(file, at, store)?;
    if let (Chain::After(pre), Some(stated)) = (file.header().chain, file.trailer().post_apply) {
        let computed = checksum_after(file, pre, store).map_err(ApplyError::Store)?;
        if computed != stated {
            return Err(ApplyError::PostApply { computed, stated });
        }
    }
    write(file, store).map_err(ApplyError::Store)?;
    Ok(Position { txid: file.header().max_txid, checksum: file.trailer().post_apply })
}

/// The checksum of all pages in `store`, read one by one.
pub fn database_checksum<S: PageStore>(store: &S) -> Result<Checksum, S::Error> {
    let mut page = vec![0; store.page_size().bytes()];
    let mut sum = Checksum::EMPTY;
    for pgno in 1..=store.page_count() {
        sum = sum.toggled(stored_checksum(store, pgno, &mut page)?);
    }
    Ok(sum)
}

fn check_fit<S: PageStore>(file: &File<'_>, at: &Position, store: &S) -> Result<(), ApplyError<S::Error>> {
    let header = file.header();
    if header.page_size != store.page_size() {
        return Err(ApplyError::PageSize { file: header.page_size, store: store.page_size() });
    }
    if header.commit > store.pages_max() {
        return Err(ApplyError::TooLarge { pages: header.commit, pages_max: store.pages_max() });
    }
    let next = header.is_snapshot() || at.txid.checked_add(1) == Some(header.min_txid);
    if !next || header.max_txid <= at.txid {
        let (min_txid, max_txid) = (header.min_txid, header.max_txid);
        return Err(ApplyError::NotNext { min_txid, max_txid, at: at.txid });
    }
    let wanted = match header.chain {
        _ if header.is_snapshot() => return Ok(()),
        Chain::After(sum) => Some(sum),
        Chain::Snapshot | Chain::Untracked => None,
    };
    if wanted != at.checksum {
        return Err(ApplyError::PreApply { wanted, found: at.checksum });
    }
    Ok(())
}

/// The checksum the database will have: the pages replaced and cut off are taken out, those of the file and
/// the zeros that fill gaps beyond the old end are added.
fn checksum_after<S: PageStore>(file: &Verified<'_>, pre: Checksum, store: &S) -> Result<Checksum, S::Error> {
    let (count, commit) = (store.page_count(), file.header().commit);
    let mut old = vec![0; store.page_size().bytes()];
    let mut sum = pre;
    if commit < count {
        for pgno in commit + 1..=count {
            sum = sum.toggled(stored_checksum(store, pgno, &mut old)?);
        }
    }
    let zeros = vec![0; store.page_size().bytes()];
    let zero_checksum = |pgno| {
        if pgno == store.page_size().lock_page() { Checksum::EMPTY } else { page_checksum(pgno, &zeros) }
    };
    // The last page past the old end that is accounted for.
    let mut grown = count;
    let mut pages = file.pages();
    while let Some((pgno, data)) = pages.next_page() {
        if pgno <= count {
            sum = sum.toggled(stored_checksum(store, pgno, &mut old)?);
        } else {
            sum = (grown + 1..pgno).fold(sum, |sum, gap| sum.toggled(zero_checksum(gap)));
            grown = pgno;
        }
        sum = sum.toggled(page_checksum(pgno, data));
    }
    if grown < commit {
        sum = (grown + 1..=commit).fold(sum, |sum, gap| sum.toggled(zero_checksum(gap)));
    }
    Ok(sum)
}

fn stored_checksum<S: PageStore>(store: &S, pgno: u32, page: &mut [u8]) -> Result<Checksum, S::Error> {
    if pgno == store.page_size().lock_page() {
        return Ok(Checksum::EMPTY);
    }
    store.read_page(pgno, page)?;
    Ok(page_checksum(pgno, page))
}

fn write<S: PageStore>(file: &Verified<'_>, store: &mut S) -> Result<(), S::Error> {
    if file.header().is_snapshot() {
        // What the snapshot does not hold, the lock page, must not survive from before.
        store.resize(0)?;
    }
    store.resize(file.header().commit)?;
    let mut pages = file.pages();
    while let Some((pgno, data)) = pages.next_page() {
        store.write_page(pgno, data)?;
    }
    Ok(())
}

/// A database in memory: one vector, page after page, as it lies in a database file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPages {
    page_size: PageSize,
    pages_max: u32,
    bytes: Vec<u8>,
}

/// The memory for the pages is not to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no memory for {0} pages")]
pub struct MemoryPagesError(pub u32);

impl MemoryPages {
    /// An empty database that grows to `pages_max` pages at most.
    pub fn new(page_size: PageSize, pages_max: u32) -> Self {
        Self { page_size, pages_max, bytes: Vec::new() }
    }

    /// The bytes of the database file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of the database file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn range(&self, pgno: u32) -> std::ops::Range<usize> {
        let start = (pgno as usize - 1) * self.page_size.bytes();
        start..start + self.page_size.bytes()
    }
}

impl PageStore for MemoryPages {
    type Error = MemoryPagesError;

    fn page_size(&self) -> PageSize {
        self.page_size
    }

    fn page_count(&self) -> u32 {
        (self.bytes.len() / self.page_size.bytes()) as u32
    }

    fn pages_max(&self) -> u32 {
        self.pages_max
    }

    fn read_page(&self, pgno: u32, page: &mut [u8]) -> Result<(), MemoryPagesError> {
        page.copy_from_slice(&self.bytes[self.range(pgno)]);
        Ok(())
    }

    fn write_page(&mut self, pgno: u32, page: &[u8]) -> Result<(), MemoryPagesError> {
        let range = self.range(pgno);
        self.bytes[range].copy_from_slice(page);
        Ok(())
    }

    fn resize(&mut self, pages: u32) -> Result<(), MemoryPagesError> {
        let len = pages as usize * self.page_size.bytes();
        let more = len.saturating_sub(self.bytes.len());
        self.bytes.try_reserve_exact(more).map_err(|_| MemoryPagesError(pages))?;
        self.bytes.resize(len, 0);
        Ok(())
    }
}
