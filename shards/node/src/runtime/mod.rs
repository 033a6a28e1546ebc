//! What a shard runs on: cores, executors, the ticker that keeps them fair, and the ways work leaves a shard.
//!
//! Owns: which core a shard sits on, the checks before anything starts, the executors' start and end, the
//! preemption tick and the stall detector, coarse timers, the queues between shards, the threads for blocking
//! work. Does not own: what a shard does (actors, sockets, routing), nor reading flags.
//!
//! One rule comes from the executor itself: it may park although tasks are runnable when its own preemption
//! timer expires before the first task of a pass has run. So every executor has one default queue, its timer is
//! set to an hour, and [`ticker`] takes the timer's place.

pub mod mesh;
pub mod offload;
pub mod placement;
pub mod preflight;
pub mod pulse;
pub mod sleeper;
mod start;
pub mod ticker;
pub mod watchdog;
mod wheel;

pub use mesh::{Endpoint, SendError, mesh};
pub use offload::{OffloadPool, Panicked};
pub use placement::{CpuSet, Placement, PlacementError};
pub use preflight::{PreflightError, preflight};
pub use pulse::{Beat, Label, Pulse};
pub use sleeper::{Elapsed, Sleep, Sleeper};
pub use start::{ShardContext, ShardFailed, Shards, StartError, start};
pub use ticker::Hooks;
pub use watchdog::{Frozen, Watch};
