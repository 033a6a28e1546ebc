//! A simulated cluster: three to seven nodes that run the shipped service of `io/cluster` and the shipped sessions of
//! `io/replica` over one bucket, in virtual time, from one seed.
//!
//! Owns the machines' clocks, the network, the bucket, the faults, the routing of requests and the checkers. It owns no
//! rule of a lease, a hold or an upload; the checkers judge what came of it in true time, which no node sees.

mod assumptions;
mod bucket;
mod checkers;
mod database;
mod faults;
mod flaw;
mod linearizability;
mod network;
mod node;
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
