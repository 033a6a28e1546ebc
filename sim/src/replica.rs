//! The second simulated world: actors whose data lives in a bucket that fails, and the nodes that hold them in
//! turn.
//!
//! Owns the bucket's faults, the holds that follow each other (each ended by hibernation, a crash or a lost
//! lease) and the checkers of what replication promises. What it drives is the code that ships: `storage` over
//! real SQLite files, `ltx`, `replica`, and the plans of `protocol`.

mod bucket;
mod checkers;
mod flaw;
mod hold;
pub(crate) mod local;
mod parameters;
mod record;
mod run;
mod runtime;
mod world;

pub use flaw::ReplicaFlaw;
pub use parameters::ReplicaParameters;
pub use run::{ReplicaOutcome, ReplicaRequest, run_replica, run_replica_twice};
