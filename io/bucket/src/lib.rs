//! The bucket: the one store every node of a cluster shares.
//!
//! Owns the [`Bucket`] trait, what each request can come to ([`Outcome`], [`ReadError`], [`Failure`]), the
//! backends that need no network (a directory, memory), the check of every listing page, the start probe and the
//! conformance suite that all backends pass.
//!
//! Does not own: the backend that speaks to a server (`wasmkeep-s3`, so that this crate links no HTTP client),
//! what the objects mean and how their keys are spelt (the protocol's), when a request is sent
//! again and which request goes first (the callers'). A request made here goes out once; the only resend
//! inside is that of a write the store answered with 409, which it did not apply.

mod file;
mod key;
mod listing;
mod memory;
mod nonce;
mod object;
mod outcome;
mod probe;
mod settle;
mod url;

pub mod conformance;

use std::ops::Range;

use bytes::Bytes;

pub use file::{FileBucket, OpenFileError};
pub use key::{KEY_BYTES_MAX, Key, KeyError};
pub use listing::{Entry, ListError, ListQuery, Listing, ListingFault, PAGE_KEYS_MAX, Page, PageObject};
pub use memory::MemoryBucket;
pub use nonce::Nonce;
pub use object::{Body, Meta, Object};
pub use outcome::{Failure, Outcome, Precondition, ReadError, UnknownCause, Version, VersionError};
pub use probe::{Condition, ConditionsHold, ProbeError, probe};
pub use settle::{Settled, put_settled, settle};
pub use url::{BucketUrl, BucketUrlError};

/// A store of whole objects with conditional writes.
///
/// Every implementation promises the same, and [`conformance`] checks it: a write is atomic and durable once
/// it answered [`Outcome::Written`]; of several writes on one condition at most one is written; a read that
/// begins after a write answered sees that write or a later one; a listing is in byte order.
///
/// Futures are not `Send`: all callers run on one thread. Dropping the future of a write leaves its outcome
/// unknown, exactly as [`Outcome::Unknown`] does.
#[allow(async_fn_in_trait)] // No `Send` bound is wanted: the bucket core and the simulator are single-threaded.
pub trait Bucket {
    /// Reads an object, or the bytes of `range` (half open, not empty, clipped at the object's end).
    ///
    /// The body arrives as a stream, so that a caller sees a silent store while it is silent.
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError>;

    /// Reads an object's version, size and time without its body.
    async fn head(&self, key: &Key) -> Result<Meta, ReadError>;

    /// Writes a whole object if `condition` holds. Never sent twice, except after a 409, which applied nothing.
    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome;

    /// Removes an object; one that is not there counts as removed.
    ///
    /// After [`Failure::Unavailable`] the removal may have happened, or may still happen.
    async fn delete(&self, key: &Key) -> Result<(), Failure>;

    /// Reads one page of a listing, unchecked. Callers use [`Listing`], which refuses a page that could hide keys.
    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError>;
}

/// Runs one future to its end on a runtime of its own.
#[cfg(test)]
fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime needs no more than memory and a few descriptors").block_on(work)
}
