//! `wasmkeep cluster`: the nodes of a cluster by what the bucket says of them. Nothing here needs a node to answer.

mod fence;
mod forget;
mod heartbeats;
mod status;

use crate::{args::ClusterCommand, exit::Failure};

/// Runs one of the commands.
///
/// # Errors
/// One sentence and the status of the process.
pub fn run(command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Status(flags) => status::status(&flags),
        ClusterCommand::Fence(flags) => fence::fence(&flags),
        ClusterCommand::Forget(flags) => forget::forget(&flags),
    }
}
