//! CRC-64/GO-ISO checksums of pages, databases and files, and their rolling update.
//!
//! A database checksum is the XOR of its page checksums, so a change costs only the changed pages. It owns no
//! page data.

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};

use crate::PageSize;

/// Set in every stored checksum, so that none is ever zero: zero means "no checksum".
const FLAG: u64 = 1 << 63;

/// A checksum as it is stored: bit 63 is always set.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum(u64);

/// The number lacks bit 63, so it is not a stored checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("checksum {0:016x} lacks its top bit")]
pub struct MissingFlag(pub u64);

impl Checksum {
    /// The checksum of a database without pages.
    pub const EMPTY: Checksum = Checksum(FLAG);

    /// Accepts a number with bit 63 set.
    pub const fn new(stored: u64) -> Result<Self, MissingFlag> {
        if stored & FLAG == 0 { Err(MissingFlag(stored)) } else { Ok(Self(stored)) }
    }

    /// The stored number, bit 63 set.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Adds a page's checksum to a database checksum, or takes it out again: the operation is its own inverse.
    ///
    /// A changed page is taken out with its old checksum and added with its new one.
    #[must_use]
    pub const fn toggled(self, page: Checksum) -> Checksum {
        Checksum((self.0 ^ page.0) | FLAG)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The checksum of one page: over its number as four big-endian bytes and its data.
pub fn page_checksum(pgno: u32, data: &[u8]) -> Checksum {
    let mut crc = Crc::new();
    crc.update(&pgno.to_be_bytes());
    crc.update(data);
    crc.checksum()
}

/// A CRC-64/GO-ISO in progress.
#[derive(Clone)]
pub(crate) struct Crc(Digest);

impl Crc {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64GoIso))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn checksum(&self) -> Checksum {
        Checksum(self.0.finalize() | FLAG)
    }
}

/// The checksums of all pages of one database, and their XOR kept up to date: what a writer needs to state
/// pre- and post-apply checksums without reading old pages.
///
/// Costs 8 bytes of memory a page (2 KiB per MiB of database at 4 KiB pages).
#[derive(Debug, Clone)]
pub struct PageChecksums {
    page_size: PageSize,
    /// Entry `n` belongs to page `n + 1`; the lock page's entry is `EMPTY`, which XORs as nothing.
    pages: Vec<Checksum>,
    database: Checksum,
}

impl PageChecksums {
    /// The checksums of a database without pages.
    pub fn new(page_size: PageSize) -> Self {
        Self { page_size, pages: Vec::new(), database: Checksum::EMPTY }
    }

    /// The checksum of the whole database as it now stands.
    pub fn database(&self) -> Checksum {
        self.database
    }

    /// The number of pages, the lock page included.
    pub fn page_count(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Sets the size of the database in pages. Pages cut off are taken out; new ones count as zeros until
    /// [`set`](Self::set).
    pub fn resize(&mut self, pages: u32) {
        while self.page_count() > pages {
            let cut = self.pages.pop().expect("the count is above zero");
            self.database = self.database.toggled(cut);
        }
        if self.page_count() == pages {
            return;
        }
        let zeros = vec![0; self.page_size.bytes()];
        for pgno in self.page_count() + 1..=pages {
            let sum = self.of_page(pgno, &zeros);
            self.pages.push(sum);
            self.database = self.database.toggled(sum);
        }
    }

    /// Records new contents of page `pgno`. The lock page is ignored.
    ///
    /// # Panics
    /// When `pgno` is 0 or above [`page_count`](Self::page_count): the caller resizes first.
    pub fn set(&mut self, pgno: u32, data: &[u8]) {
        let sum = self.of_page(pgno, data);
        let slot = &mut self.pages[pgno as usize - 1];
        self.database = self.database.toggled(*slot).toggled(sum);
        *slot = sum;
    }

    fn of_page(&self, pgno: u32, data: &[u8]) -> Checksum {
        if pgno == self.page_size.lock_page() { Checksum::EMPTY } else { page_checksum(pgno, data) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_checksum_is_crc_64_go_iso() {
        let mut crc = Crc::new();
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(crc.checksum().get(), 0xb909_56c7_75a4_1001);
    }

    #[test]
    fn a_number_without_the_top_bit_is_not_a_checksum() {
        assert_eq!(Checksum::new(5), Err(MissingFlag(5)));
        assert_eq!(Checksum::new(FLAG | 5).map(Checksum::get), Ok(FLAG | 5));
    }

    #[test]
    fn the_lock_page_never_counts() {
        let size = PageSize::new(65536).expect("a page size");
        // As if every page before it had been set: hashing a gibibyte would add nothing.
        let pages = vec![Checksum::EMPTY; size.lock_page() as usize - 1];
        let mut sums = PageChecksums { page_size: size, pages, database: Checksum(FLAG | 5) };
        sums.resize(size.lock_page());
        sums.set(size.lock_page(), &[1; 65536]);
        assert_eq!(sums.database(), Checksum(FLAG | 5));
        sums.resize(size.lock_page() + 1);
        assert_ne!(sums.database(), Checksum(FLAG | 5));
    }

    proptest! {
        #[test]
        fn the_fast_crc_equals_the_table_driven_one(bytes in prop::collection::vec(any::<u8>(), 0..9000), cut in any::<prop::sample::Index>()) {
            let cut = cut.index(bytes.len() + 1);
            let mut crc = Crc::new();
            crc.update(&bytes[..cut]);
            crc.update(&bytes[cut..]);
            let slow = crc::Crc::<u64>::new(&crc::CRC_64_GO_ISO).checksum(&bytes);
            prop_assert_eq!(crc.checksum().get(), slow | FLAG);
        }

        #[test]
        fn the_rolling_checksum_equals_one_computed_from_scratch(
            steps in prop::collection::vec((1u32..20, prop::collection::vec((0u32..20, any::<u8>()), 0..6)), 1..12),
        ) {
            let size = PageSize::new(512).expect("a page size");
            let mut sums = PageChecksums::new(size);
            let mut model: Vec<Vec<u8>> = Vec::new();
            for (pages, writes) in steps {
                sums.resize(pages);
                model.resize(pages as usize, vec![0; 512]);
                for (at, byte) in writes {
                    let pgno = at % pages + 1;
                    model[pgno as usize - 1] = vec![byte; 512];
                    sums.set(pgno, &model[pgno as usize - 1]);
                }
                let scratch = (1..).zip(&model).fold(Checksum::EMPTY, |sum, (pgno, page)| sum.toggled(page_checksum(pgno, page)));
                prop_assert_eq!(sums.database(), scratch);
            }
        }
    }
}
