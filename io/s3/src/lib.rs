//! The bucket in an S3-compatible server, and the opening of whichever bucket a URL names.
//!
//! Owns everything that needs an HTTP client: signing, sending, credentials, and what a server's replies mean.
//!
//! Does not own: the trait and the backends without a network (`wasmkeep-bucket`), when a request is sent again
//! (the callers').

mod bucket;
mod credentials;
mod open;
mod page;
mod reply;
mod settings;
mod transport;

pub use bucket::{OpenS3Error, S3Bucket, S3Limits};
pub use open::{AnyBucket, OpenError, open, open_existing};
