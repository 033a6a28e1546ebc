//! The bucket core: the one thread of a node that talks to its bucket (R-BKT-2).
//!
//! Owns the thread, its Tokio runtime, the lanes by which work reaches it and the order in which requests
//! leave it. Does not own what the requests mean: leases, uploads and restores are jobs that others hand in.
//! No shard ever waits for a reply on its own core, and no actor's outbound request runs here.

mod gate;
#[cfg(test)]
mod kit;
mod lane;
mod laned;
mod runtime;
mod start;
mod thread;

pub use lane::Lane;
pub use laned::Laned;
pub use runtime::BucketThreadRuntime;
pub use start::{ProveError, prove};
pub use thread::{BucketCore, CoreConfig, Gone, StartError};
