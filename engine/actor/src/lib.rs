//! The life of one actor: mailbox, activation, turns, alarms, hibernation.
//!
//! Generic over [`Guest`] (what runs the code) and [`World`] (what the executor offers), so the same code
//! runs on a shard and in the simulator. It knows no wasmtime, no HTTP and no clock of its own.

mod actors;
pub mod alarm;
mod guest;
pub mod lifecycle;
pub mod roster;
mod world;

pub use actors::{Actors, panic_text};
pub use guest::{AlarmError, Event, Failure, Guest, InitError, Refusal, TurnEnd};
pub use world::{Happening, Limits, Started, World};
