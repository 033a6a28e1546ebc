//! A node's place in its cluster, carried out: its lease, its watch over the others, its ownership of actors, and what it
//! uploads and restores for them.
//!
//! What is decided is decided by the step functions of `protocol`; this crate turns their effects into requests to the
//! bucket and the replies into their inputs. It owns the translation between records and objects, the time limits of
//! those requests, and which stream of uploads belongs to which hold. Knows no thread, no executor and no network: it
//! runs over a `Bucket` and a `Runtime`, in a node as in the simulator.
//!
//! Futures are not `Send`: everything of one node runs on one thread.

mod back_off;
mod heartbeats;
#[cfg(test)]
mod kit;
mod member;
mod ownership;
mod secret;
mod service;
mod snapshot_waits;
mod store;
mod sweeps;

pub use member::{Member, Told};
pub use ownership::{LeaseView, OwnershipManager};
pub use secret::cluster_secret;
pub use service::{ClusterEvent, ClusterService, Existence, LaneBuckets, ServiceConfig};
