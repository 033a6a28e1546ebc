//! What every part of WasmKeep agrees on: names, hashes, limits, header names. Pure and synchronous.
//!
//! It knows no thread, socket, clock or entropy source; each fact of the product stands here once.

pub mod access;
pub mod alarm;
pub mod call_chain;
pub mod call_signature;
pub mod clock;
pub mod close;
pub mod durability;
pub mod failover;
pub mod forwarding;
pub mod headers;
pub mod history;
pub mod lease;
pub mod limits;
pub mod names;
pub mod object_keys;
pub mod ownership;
pub mod placement;
pub mod records;
pub mod replication;
pub mod store;
pub mod trust;
pub mod view;

pub use names::{ActorClass, ActorId, ActorName, NameError, NodeId, Tenant};
