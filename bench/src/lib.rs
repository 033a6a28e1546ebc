//! What the benches stand on: the sample components, places for databases, a shard without a network.
//!
//! The measured code is the product's own; only what surrounds it is made here.

mod guests;
mod places;
pub mod shard;

pub use guests::{exchange, identity, runtime, sample, wait};
pub use places::in_memory;
