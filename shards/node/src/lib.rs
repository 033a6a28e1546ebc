//! One node: executors on cores, the HTTP front, the actors of each shard, the mesh between them.
//!
//! It reads no flag, no environment variable and prints nothing; the command line does.
// These macros wait for whoever reads, and panic when nobody does.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod alarm;
mod cluster;
pub mod config;
mod egress;
pub mod http;
mod lull;
mod metrics;
mod node;
mod peers;
pub mod runtime;
mod shard;
mod socket;
mod state;
mod stream;
mod tcp;
mod tls;

pub use cluster::ClusterError;
pub use config::Config;
pub use node::{Interrupt, Node, NodeError, Raise, Stopped};
pub use wasmkeep_core::StartError as CoreStartError;
