//! `wasmkeep actor`: an actor's history in the bucket, for the person who has to look at it at night. Nothing here
//! needs a node, and nothing here writes to the bucket.

mod chain;
#[cfg(test)]
mod collecting;
mod export;
mod history;
mod inspect;
mod litestream;
mod pages;
mod point_in_time;
mod reading;
mod verify;

use crate::{args::ActorCommand, exit::Failure};

/// Runs one of the commands.
///
/// # Errors
/// One sentence and the status of the process.
pub fn run(command: ActorCommand) -> Result<(), Failure> {
    match command {
        ActorCommand::Inspect(flags) => inspect::inspect(&flags),
        ActorCommand::Export(flags) => export::export(&flags),
        ActorCommand::Verify(flags) => verify::verify(&flags),
    }
}
