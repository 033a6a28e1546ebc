//! Listings that are either complete or an error.
//!
//! Owns the check of every page a backend brings. A history that looks shorter than it is would be restored
//! short, so anything that could hide a key ends the listing with a [`ListingFault`].

use std::collections::VecDeque;

use crate::outcome::{ReadError, Version};
use crate::{Bucket, Key};

/// Most keys asked for in one page; S3 gives no more.
pub const PAGE_KEYS_MAX: usize = 1000;

/// One page asked of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// Text every key begins with; may be empty and may end inside a segment.
    pub prefix: String,
    /// Only keys after this one, by bytes.
    pub start_after: Option<Key>,
    /// Where the page before ended, in the backend's own words. It takes the place of `start_after`.
    pub token: Option<String>,
    /// Keys wanted at most, 1 to [`PAGE_KEYS_MAX`].
    pub page_max: usize,
}

/// One page as the store gave it: nothing of it is checked yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The objects, in the store's order.
    pub objects: Vec<PageObject>,
    /// Whether the store says that more follow.
    pub truncated: bool,
    /// Where to go on, when the store said so.
    pub token: Option<String>,
}

/// One object of an unchecked page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageObject {
    /// Its name; may be one that is no [`Key`], when somebody else wrote into the bucket.
    pub name: String,
    /// Bytes of the object.
    pub size: u64,
    /// Last write by the store's clock, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Its version, where the store lists it in a form that can be sent back.
    pub version: Option<Version>,
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub key: Key,
    /// Bytes of the object.
    pub size: u64,
    /// Last write by the store's clock, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Its version, where the store lists it.
    pub version: Option<Version>,
}

/// A page that could hide keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListingFault {
    /// More should follow and the store does not say where.
    #[error("the store cut a listing short and gave no token to go on")]
    TruncatedWithoutToken,
    /// Nothing should follow and the store says where.
    #[error("the store gave a token to go on with a listing it calls complete")]
    TokenWithoutTruncation,
    /// The store leads back to where the listing came from.
    #[error("the store gave the same listing token twice")]
    RepeatedToken,
    /// A page that brings nothing and asks to go on could do so for ever.
    #[error("the store gave an empty page and asked to go on")]
    EmptyPage,
    /// Not in byte order, or a key twice. Going on after such a key would skip others.
    #[error("the store listed {1:?} after {0:?}, which is not byte order")]
    Unordered(String, String),
    /// A key that was not asked for.
    #[error("the store listed {0:?}, which was not asked for")]
    Unasked(String),
    /// More keys than the caller is ready to hold.
    #[error("the listing has more than {0} keys")]
    TooMany(usize),
}

/// Why a listing ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A page could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A page could be read and not be believed.
    #[error(transparent)]
    Fault(#[from] ListingFault),
}

/// A listing in progress, one checked page at a time.
///
/// It ends after at most one page per key: every page but the last has to bring a key greater than all before
/// it. Time is the caller's to bound, between pages.
#[derive(Debug)]
pub struct Listing<'a, B> {
    bucket: &'a B,
    query: ListQuery,
    last: Option<String>,
    done: bool,
    skipped: usize,
}

impl<'a, B: Bucket> Listing<'a, B> {
    /// Lists all keys that begin with `prefix`.
    pub fn new(bucket: &'a B, prefix: &str) -> Self {
        let query =
            ListQuery { prefix: prefix.to_owned(), start_after: None, token: None, page_max: PAGE_KEYS_MAX };
        Self { bucket, query, last: None, done: false, skipped: 0 }
    }

    /// Leaves out `key` and all before it.
    pub fn start_after(mut self, key: Key) -> Self {
        self.last = Some(key.as_str().to_owned());
        self.query.start_after = Some(key);
        self
    }

    /// Asks for `keys` at a time, clamped to 1 and [`PAGE_KEYS_MAX`].
    pub fn page_max(mut self, keys: usize) -> Self {
        self.query.page_max = keys.clamp(1, PAGE_KEYS_MAX);
        self
    }

    /// Objects met so far whose name is no [`Key`]: not ours, so left out.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// The next page, `None` after the last. A page may be empty when all its names were skipped.
    /// After an error the same page can be asked for again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Entry>>, ListError> {
        if self.done {
            return Ok(None);
        }
        let page = self.bucket.list(&self.query).await?;
        self.check_continuation(&page)?;
        self.check_names(&page)?;
        if let Some(object) = page.objects.last() {
            self.last = Some(object.name.clone());
        }
        self.done = !page.truncated;
        self.query.token = page.token;
        let listed = page.objects.len();
        let entries: Vec<Entry> = page.objects.into_iter().filter_map(entry).collect();
        self.skipped += listed - entries.len();
        Ok(Some(entries))
    }

    /// All remaining entries, refused when there are more than `keys_max`.
    pub async fn all(mut self, keys_max: usize) -> Result<VecDeque<Entry>, ListError> {
        let mut entries = VecDeque::new();
        while let Some(page) = self.next_page().await? {
            entries.extend(page);
            if entries.len() > keys_max {
                return Err(ListingFault::TooMany(keys_max).into());
            }
        }
        Ok(entries)
    }

    fn check_continuation(&self, page: &Page) -> Result<(), ListingFault> {
        match (&page.token, page.truncated) {
            (None, true) => Err(ListingFault::TruncatedWithoutToken),
            (Some(_), false) => Err(ListingFault::TokenWithoutTruncation),
            (Some(token), true) if self.query.token.as_ref() == Some(token) => {
                Err(ListingFault::RepeatedToken)
            }
            (Some(_), true) if page.objects.is_empty() => Err(ListingFault::EmptyPage),
            (Some(_), true) | (None, false) => Ok(()),
        }
    }

    fn check_names(&self, page: &Page) -> Result<(), ListingFault> {
        let mut last = self.last.as_deref();
        for object in &page.objects {
            if !object.name.starts_with(&self.query.prefix) {
                return Err(ListingFault::Unasked(object.name.clone()));
            }
            if let Some(before) = last.filter(|before| *before >= object.name.as_str()) {
                return Err(ListingFault::Unordered(before.to_owned(), object.name.clone()));
            }
            last = Some(&object.name);
        }
        Ok(())
    }
}

fn entry(object: PageObject) -> Option<Entry> {
    let key = object.name.parse().ok()?;
    Some(Entry { key, size: object.size, modified_ms: object.modified_ms, version: object.version })
}

#[cfg(test)]
mod tests;
