//! The page size of a database and the one page that follows from it: the lock page.

/// SQLite locks bytes from this offset on; the page that holds it never carries data.
const PENDING_BYTE: u32 = 0x4000_0000;

/// A SQLite page size in bytes: a power of two from 512 to 65536.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageSize(u32);

/// The number is not a power of two from 512 to 65536.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("page size {0} is not a power of two from 512 to 65536")]
pub struct InvalidPageSize(pub u32);

impl PageSize {
    /// SQLite's default, 4096 bytes.
    pub const DEFAULT: PageSize = PageSize(4096);

    /// Accepts a power of two from 512 to 65536.
    pub const fn new(bytes: u32) -> Result<Self, InvalidPageSize> {
        if bytes.is_power_of_two() && bytes >= 512 && bytes <= 65536 {
            Ok(Self(bytes))
        } else {
            Err(InvalidPageSize(bytes))
        }
    }

    /// The size in bytes.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// The page that is never stored and never counted in a checksum: it covers SQLite's lock bytes.
    pub const fn lock_page(self) -> u32 {
        PENDING_BYTE / self.0 + 1
    }

    /// The number of pages a whole database of `commit` pages stores: all but the lock page.
    pub const fn stored_pages(self, commit: u32) -> u32 {
        if commit >= self.lock_page() { commit - 1 } else { commit }
    }

    /// The page that follows `pgno` among those that are stored, stepping over the lock page; `None` after the
    /// last number.
    pub(crate) const fn next_stored(self, pgno: u32) -> Option<u32> {
        let step = if pgno == self.lock_page() - 1 { 2 } else { 1 };
        pgno.checked_add(step)
    }
}

impl TryFrom<u32> for PageSize {
    type Error = InvalidPageSize;

    fn try_from(bytes: u32) -> Result<Self, InvalidPageSize> {
        Self::new(bytes)
    }
}

impl From<PageSize> for u32 {
    fn from(size: PageSize) -> u32 {
        size.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_from_512_to_65536_are_page_sizes() {
        let accepted: Vec<u32> = (0..=70_000).filter(|&n| PageSize::new(n).is_ok()).collect();
        assert_eq!(accepted, [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]);
    }

    #[test]
    fn the_lock_page_is_the_one_that_holds_the_byte_at_one_gibibyte() {
        assert_eq!(PageSize::DEFAULT.lock_page(), 262_145);
        assert_eq!(PageSize(65536).lock_page(), 16_385);
        assert_eq!(PageSize::DEFAULT.next_stored(262_144), Some(262_146));
        assert_eq!(PageSize::DEFAULT.stored_pages(262_144), 262_144);
        assert_eq!(PageSize::DEFAULT.stored_pages(262_145), 262_144);
    }
}
