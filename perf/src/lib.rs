//! What the programs of this folder share: starting servers, driving them over HTTP, watching their processes.
//!
//! Measures whole processes from outside, the way a client and an operator see them. What happens inside one
//! process is measured in `bench/`.

pub mod bucket;
pub mod chaos;
pub mod cluster;
pub mod figure;
pub mod http;
pub mod load;
pub mod machine;
pub mod memory;
mod output;
pub mod process;
pub mod report;
pub mod scenario;
pub mod server;
pub mod soak;
pub mod subject;
