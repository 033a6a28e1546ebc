//! Merging files that follow each other into one. It owns what survives of each field and page, and no policy
//! of when or which.

use crate::{Chain, Checksum, EncodeError, Encoded, Encoder, Header, PageSize, Verified, WalSource};

/// Whether the merged file tracks database checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracking {
    /// As the inputs, which must all track them, follow each other exactly and chain by checksum.
    Keep,
    /// The merged file has none. Inputs may overlap, and may or may not track checksums.
    Drop,
}

/// How to merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactOptions {
    /// Whether the merged file tracks database checksums.
    pub tracking: Tracking,
    /// The largest database the merged file may commit, in pages. Gaps are filled with zeros, so without a
    /// bound a few bytes of input could ask for terabytes.
    pub pages_max: u32,
}

/// Why files do not merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompactError {
    /// There is nothing to merge.
    #[error("no files to merge")]
    Nothing,
    /// The inputs are of databases with different page sizes.
    #[error("pages of {first:?} and of {other:?}")]
    PageSize {
        /// The page size of the first input.
        first: PageSize,
        /// The page size that differs.
        other: PageSize,
    },
    /// The inputs leave out transactions, or are not in order.
    #[error("transactions {min_txid} to {max_txid} do not follow transaction {after}")]
    NotContiguous {
        /// The first transaction of the file that does not fit.
        min_txid: u64,
        /// The last transaction of the file that does not fit.
        max_txid: u64,
        /// The last transaction of the file before it.
        after: u64,
    },
    /// Checksums are to be kept and an input overlaps the one before it, so that nothing links the two.
    #[error("with checksums kept, transactions {min_txid} and on overlap transaction {after}")]
    Overlap {
        /// The first transaction of the file that overlaps.
        min_txid: u64,
        /// The last transaction of the file before it.
        after: u64,
    },
    /// Checksums are to be kept and an input has none.
    #[error("transaction {0} and on has no checksums to keep")]
    Untracked(u64),
    /// An input does not follow the contents the one before it leaves: they are of two histories.
    #[error("a file follows checksum {wanted}, the one before it leaves {found}")]
    Chain {
        /// The pre-apply checksum of the later file.
        wanted: Checksum,
        /// The post-apply checksum of the earlier one.
        found: Checksum,
    },
    /// The merged database is larger than allowed.
    #[error("{pages} pages are more than the {pages_max} allowed")]
    TooLarge {
        /// The pages the last input commits.
        pages: u32,
        /// The most allowed.
        pages_max: u32,
    },
    /// The merged file breaks a rule; a deletion without checksums, for one.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// Merges files given from oldest to newest into the one file that has the same effect.
///
/// Of each page the newest copy stays. A page that was cut off and came back without being written is a page of
/// zeros: its older copy is not used. Commit, timestamp and post-apply checksum are the last file's, the first
/// transaction and pre-apply checksum the first's; the place in the log and the node are dropped.
///
/// Costs 16 bytes of memory for each page of each input, and the output.
pub fn compact(inputs: &[Verified<'_>], options: CompactOptions) -> Result<Encoded, CompactError> {
    let (first, last) = inputs.first().zip(inputs.last()).ok_or(CompactError::Nothing)?;
    for pair in inputs.windows(2) {
        check_pair(&pair[0], &pair[1], options.tracking)?;
    }
    let (pages, pages_max) = (last.header().commit, options.pages_max);
    if pages > pages_max {
        return Err(CompactError::TooLarge { pages, pages_max });
    }
    let chain = match options.tracking {
        Tracking::Drop => Chain::Untracked,
        Tracking::Keep if first.header().is_tracked() => first.header().chain,
        Tracking::Keep => return Err(CompactError::Untracked(first.header().min_txid)),
    };
    let post_apply = last.trailer().post_apply.filter(|_| options.tracking == Tracking::Keep);
    let header = Header {
        min_txid: first.header().min_txid,
        chain,
        wal: WalSource::default(),
        node_id: 0,
        ..*last.header()
    };
    merge(inputs, Encoder::new(header)?, post_apply)
}

fn check_pair(earlier: &Verified<'_>, later: &Verified<'_>, tracking: Tracking) -> Result<(), CompactError> {
    let (before, header) = (earlier.header(), later.header());
    if header.page_size != before.page_size {
        return Err(CompactError::PageSize { first: before.page_size, other: header.page_size });
    }
    let after = before.max_txid;
    let (min_txid, max_txid) = (header.min_txid, header.max_txid);
    if min_txid > after.saturating_add(1) || max_txid <= after {
        return Err(CompactError::NotContiguous { min_txid, max_txid, after });
    }
    let overlaps = min_txid <= after;
    match (tracking, header.chain, earlier.trailer().post_apply) {
        (Tracking::Keep, Chain::Untracked, _) => Err(CompactError::Untracked(min_txid)),
        (Tracking::Keep, ..) if overlaps => Err(CompactError::Overlap { min_txid, after }),
        // Also when checksums are dropped: two histories must not be mixed where it can be known.
        (_, Chain::After(wanted), Some(found)) if !overlaps && wanted != found => {
            Err(CompactError::Chain { wanted, found })
        }
        _ => Ok(()),
    }
}

/// Where the newest copy of a page is: its input, and its place in that input's index.
#[derive(Clone, Copy)]
struct Source {
    pgno: u32,
    /// The number of the input; the first is 0.
    input: usize,
    /// The entry in the index of the input.
    entry: u32,
}

fn merge(
    inputs: &[Verified<'_>],
    mut encoder: Encoder,
    post_apply: Option<Checksum>,
) -> Result<Encoded, CompactError> {
    let Header { page_size, commit, .. } = *encoder.header();
    let (sources, floor) = newest_copies(inputs, commit);
    let zeros = vec![0; page_size.bytes()];
    let mut page = vec![0; page_size.bytes()];
    let mut previous = 0;
    for source in sources {
        fill(&mut encoder, &zeros, previous, source.pgno - 1, floor)?;
        inputs[source.input].expand_at(source.entry as usize, &mut page);
        encoder.page(source.pgno, &page)?;
        previous = source.pgno;
    }
    fill(&mut encoder, &zeros, previous, commit, floor)?;
    Ok(encoder.finish(post_apply)?)
}

/// The newest copy of each page, ascending, and the smallest size the database had after any input.
///
/// A copy counts only when the database was never smaller than its page number from then on.
fn newest_copies(inputs: &[Verified<'_>], commit: u32) -> (Vec<Source>, u32) {
    let mut sources = Vec::new();
    let mut floor = commit;
    for (input, file) in inputs.iter().enumerate().rev() {
        floor = floor.min(file.header().commit);
        let kept = (0u32..).zip(file.index()).take_while(|(_, at)| at.pgno <= floor);
        sources.extend(kept.map(|(entry, at)| Source { pgno: at.pgno, input, entry }));
    }
    // Newest inputs were listed first and the sort is stable, so the first of equals is the newest.
    sources.sort_by_key(|source| source.pgno);
    sources.dedup_by_key(|source| source.pgno);
    (sources, floor)
}

/// Writes zeros for the pages between `previous` and `until` that lie above `floor`: whatever the database held
/// there was cut off, and nothing has been written since.
fn fill(
    encoder: &mut Encoder,
    zeros: &[u8],
    previous: u32,
    until: u32,
    floor: u32,
) -> Result<(), CompactError> {
    let lock_page = encoder.header().page_size.lock_page();
    let settled = previous.max(floor);
    if settled < until {
        for pgno in (settled + 1..=until).filter(|&pgno| pgno != lock_page) {
            encoder.page(pgno, zeros)?;
        }
    }
    Ok(())
}
