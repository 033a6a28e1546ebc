//! A simulated cluster: three to seven nodes that run the shipped machines of `engine/protocol` and the shipped uploads
//! and restores of `io/replica` over one bucket, in virtual time, from one seed.
//!
//! Owns the machines' clocks, the network, the bucket, the faults and the checkers. It owns no rule: a node here
//! carries out what its keeper, its watch, its claims and its waits say, and the checkers judge what came of it in
//! true time, which no node sees.

mod assumptions;
mod bucket;
mod checkers;
mod data;
mod database;
mod faults;
mod flaw;
mod linearizability;
mod network;
mod parameters;
mod process;
mod record;
mod run;
mod stage;
mod time;
mod world;

pub use flaw::Flaw;
pub use parameters::Parameters;
pub use run::{Outcome, Request, run, run_twice};
