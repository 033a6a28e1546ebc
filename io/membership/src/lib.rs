//! A node's place in its cluster, carried out: its own lease, its watch over the others, its holds of actors.
//!
//! What is decided is decided by the step functions of `protocol`; this crate turns their effects into requests
//! to the bucket and the replies into their inputs. It owns the translation between records and objects, the
//! time limits of those requests and nothing else. Knows no actor's data, no thread and no network.
//!
//! Futures are not `Send`: everything runs on the bucket core, over a `Bucket` and a `Runtime`.

mod heartbeats;
mod holds;
#[cfg(test)]
mod kit;
mod member;
mod secret;
mod store;

pub use holds::{Holds, Standing};
pub use member::{Member, Told};
pub use secret::cluster_secret;
