//! The deterministic simulator: drives the shipped actor and storage code on one thread, with a virtual clock,
//! from one seed.
//!
//! Owns the executor, the surroundings (clients, faults, crashes) and the checkers. It owns no rule of the
//! product: what it judges is the code that ships, unmodified, over real SQLite. It knows no wasm, no socket
//! and no real clock.

mod alarms;
mod checkers;
pub mod cluster;
mod dice;
mod event;
mod executor;
mod files;
mod flaw;
mod guest;
mod history;
mod inspect;
mod life;
mod output;
mod parameters;
mod replica;
mod run;
mod script;
mod stage;
pub mod variants;
mod world;

pub use flaw::Flaw;
pub use history::Violation;
pub use parameters::Parameters;
pub use replica::{
    ReplicaFlaw, ReplicaOutcome, ReplicaParameters, ReplicaRequest, run_replica, run_replica_twice,
};
pub use run::{Outcome, Request, run, run_twice};
