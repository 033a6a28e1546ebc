//! The checksums of a database's pages while the files of a history are followed: enough to prove that each leads
//! where it says, without the database. 8 bytes of memory a page.

use wasmkeep_ltx::{Checksum, PageChecksums, PageSize, Verified};

use super::pages::pages_max;

/// The database after the files followed so far.
#[derive(Debug)]
pub struct Chain {
    sums: PageChecksums,
    page_size: PageSize,
}

/// Why a file does not follow the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfitting {
    /// Another page size.
    #[error("its pages are of another size than those before it")]
    PageSize,
    /// A database larger than any actor's.
    #[error("it is of a database of {0} pages, more than any actor has")]
    TooLarge(u32),
    /// The pages are not those it was made for.
    #[error("it leads to checksum {computed} and says {stated:?}")]
    Leads {
        /// Where it leads.
        computed: Checksum,
        /// Where it says it leads.
        stated: Option<Checksum>,
    },
}

impl Chain {
    /// Begins with a file that holds a whole database.
    ///
    /// # Errors
    /// The database is too large.
    pub fn begin(base: &Verified<'_>) -> Result<Self, Unfitting> {
        let page_size = base.header().page_size;
        let mut chain = Self { sums: PageChecksums::new(page_size), page_size };
        chain.follow(base)?;
        Ok(chain)
    }

    /// Goes on with the next changes.
    ///
    /// # Errors
    /// They do not follow; the chain is of no use any more.
    pub fn follow(&mut self, changes: &Verified<'_>) -> Result<(), Unfitting> {
        let header = changes.header();
        if header.page_size != self.page_size {
            return Err(Unfitting::PageSize);
        }
        if header.commit > pages_max(header.page_size) {
            return Err(Unfitting::TooLarge(header.commit));
        }
        self.sums.resize(header.commit);
        let mut pages = changes.pages();
        while let Some((pgno, page)) = pages.next_page() {
            self.sums.set(pgno, page);
        }
        let (computed, stated) = (self.sums.database(), changes.trailer().post_apply);
        if stated == Some(computed) { Ok(()) } else { Err(Unfitting::Leads { computed, stated }) }
    }
}
