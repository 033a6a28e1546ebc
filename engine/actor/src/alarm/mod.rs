//! The alarms of one shard's actors: when each wants attention, the index that survives a restart, and the loop
//! that hands due ones to their actors.
//!
//! What an alarm is and what follows an attempt is decided in [`wasmkeep_protocol::alarm`]; the truth is in the
//! actors' databases. The book here may be early and must never be late: an entry that is early costs a look at
//! the database, a late or missing one would cost the alarm.

mod book;
mod keep;
mod schedule;

pub use book::{Book, Journal};
pub use keep::{Target, keep};
pub use schedule::Schedule;

#[cfg(test)]
mod tests;
