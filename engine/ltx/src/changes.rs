//! Pages that transactions changed, in memory until they become a file. It owns how later changes cover earlier
//! ones, and knows nothing of where pages come from or when a file is made of them.

use std::collections::BTreeMap;

use crate::{Chain, Checksum, EncodeError, Encoded, Encoder, Header, PageSize, WalSource};

/// The pages one or more transactions changed, the newest copy of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    page_size: PageSize,
    pages: BTreeMap<u32, Box<[u8]>>,
    /// Size of the database afterwards, in pages.
    commit: u32,
    /// The smallest size after any of the transactions: pages above it that are not here became zeros.
    floor: u32,
    before: Checksum,
    after: Checksum,
}

/// The changes do not follow the others: they are of other contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the changes follow checksum {wanted}, those before them lead to {found}")]
pub struct NotNext {
    /// The checksum the later changes follow.
    pub wanted: Checksum,
    /// The checksum the earlier ones lead to.
    pub found: Checksum,
}

impl Changes {
    /// Changes that lead from a database with checksum `before` to one of `commit` pages with checksum `after`.
    /// Pages above `commit` are left out.
    pub fn new(
        page_size: PageSize,
        mut pages: BTreeMap<u32, Box<[u8]>>,
        commit: u32,
        before: Checksum,
        after: Checksum,
    ) -> Self {
        pages.retain(|pgno, _| *pgno <= commit);
        Self { page_size, pages, commit, floor: commit, before, after }
    }

    /// The checksum of the database they lead from.
    pub fn before(&self) -> Checksum {
        self.before
    }

    /// The checksum of the database they lead to.
    pub fn after(&self) -> Checksum {
        self.after
    }

    /// Bytes of page data.
    pub fn bytes(&self) -> u64 {
        self.pages.len() as u64 * self.page_size.bytes() as u64
    }

    /// Adds changes that were made right after these.
    ///
    /// # Errors
    /// [`NotNext`], and nothing is added.
    pub fn append(&mut self, later: Self) -> Result<(), NotNext> {
        if later.before != self.after {
            return Err(NotNext { wanted: later.before, found: self.after });
        }
        if later.floor < self.commit {
            self.pages.retain(|pgno, _| *pgno <= later.floor);
        }
        self.pages.extend(later.pages);
        self.floor = self.floor.min(later.floor);
        (self.commit, self.after) = (later.commit, later.after);
        Ok(())
    }

    /// The file of these changes as transactions `min_txid` to `max_txid`.
    ///
    /// # Errors
    /// [`EncodeError`] for an impossible range; also when `min_txid` is 1 and a page is missing.
    pub fn encode(&self, min_txid: u64, max_txid: u64, timestamp_ms: i64) -> Result<Encoded, EncodeError> {
        let chain = if min_txid == 1 { Chain::Snapshot } else { Chain::After(self.before) };
        let mut encoder = Encoder::new(Header {
            page_size: self.page_size,
            commit: self.commit,
            min_txid,
            max_txid,
            timestamp_ms,
            chain,
            wal: WalSource::default(),
            node_id: 0,
        })?;
        let lock_page = self.page_size.lock_page();
        let zeros = vec![0; self.page_size.bytes()];
        // Up to the floor only what was written; above it every page.
        let written = self.pages.range(..=self.floor).map(|(pgno, page)| (*pgno, &**page));
        let above = (self.floor..self.commit).map(|below| {
            let pgno = below + 1;
            (pgno, self.pages.get(&pgno).map_or(&*zeros, |page| &**page))
        });
        for (pgno, page) in written.chain(above).filter(|(pgno, _)| *pgno != lock_page) {
            encoder.page(pgno, page)?;
        }
        encoder.finish(Some(self.after))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{File, MemoryPages, PageChecksums, PageStore, Position, apply};

    fn size() -> PageSize {
        PageSize::new(512).expect("a page size")
    }

    #[test]
    fn changes_of_another_history_are_refused_and_nothing_is_added() {
        let sum = |n: u64| Checksum::new(1 << 63 | n).expect("a checksum");
        let mut one = Changes::new(size(), BTreeMap::new(), 1, sum(1), sum(2));
        let kept = one.clone();
        let other = Changes::new(size(), BTreeMap::new(), 1, sum(3), sum(4));
        assert_eq!(one.append(other), Err(NotNext { wanted: sum(3), found: sum(2) }));
        assert_eq!(one, kept);
    }

    proptest! {
        /// Any split of a run of transactions into files gives the same pages as one file each.
        #[test]
        fn merged_changes_do_what_the_single_ones_do(
            steps in prop::collection::vec((1u32..12, prop::collection::vec((any::<u32>(), any::<u8>()), 0..5), any::<bool>()), 1..12),
        ) {
            let mut store = MemoryPages::new(size(), 100);
            store.resize(1).expect("memory");
            let mut sums = PageChecksums::new(size());
            sums.resize(1);
            let mut model = vec![vec![0u8; 512]];
            let mut at = Position { txid: 1, checksum: Some(sums.database()) };
            let mut pending: Option<Changes> = None;
            let mut txid = 1;
            for (commit, writes, flushes) in steps {
                let before = sums.database();
                sums.resize(commit);
                model.resize(commit as usize, vec![0; 512]);
                let mut pages = BTreeMap::new();
                for (at, byte) in writes {
                    let pgno = at % commit + 1;
                    model[pgno as usize - 1] = vec![byte; 512];
                    sums.set(pgno, &model[pgno as usize - 1]);
                    pages.insert(pgno, vec![byte; 512].into_boxed_slice());
                }
                let one = Changes::new(size(), pages, commit, before, sums.database());
                txid += 1;
                match &mut pending {
                    Some(earlier) => earlier.append(one).expect("the next"),
                    None => pending = Some(one),
                }
                if flushes {
                    let bytes = pending.take().expect("some").encode(at.txid + 1, txid, 0).expect("a file").bytes;
                    let file = File::parse(&bytes).expect("a file").verify().expect("sound");
                    at = apply(&file, &at, &mut store).expect("it follows");
                    prop_assert_eq!(store.as_bytes(), model.concat());
                }
            }
        }
    }
}
