//! The index of the node's alarms on disk, so that a start knows them without opening every database.
//!
//! Owns the files below `alarms/`: reading them at start, one log for each shard from then on, and the look through
//! all databases when the index cannot be trusted. Knows neither when an alarm is due nor how it runs.
//!
//! Neither the index nor an ordinary commit is synced, so the end of the *process* loses nothing of either. The end
//! of the *machine* may lose the one and keep the other. Therefore the index names the boot it was written in: in
//! another one, or when it is damaged or missing, every database is looked at once, in the background.

mod index;
mod open;
mod scan;

use wasmkeep_protocol::{ActorId, alarm::Wake};

pub(crate) use index::Index;
pub(crate) use open::{Mark, open};
pub(crate) use scan::{Found, scan};

/// What one shard begins with.
pub(crate) struct ShardAlarms {
    pub(crate) index: Index,
    pub(crate) known: Vec<(ActorId, Wake)>,
    /// What the look through the databases finds, if there is one.
    pub(crate) found: Option<flume::Receiver<Found>>,
}

#[cfg(test)]
mod tests;
