//! What a caller sees when a node dies: who is suspected, which requests are kept, and how each wait ends.
//!
//! Owns the waits of one node, decided by itself: nothing of it travels to other nodes or into the bucket. It holds
//! no request and no connection, only their numbers, and it takes no actor: it says when to ask for one.

mod places;
mod suspects;
mod waits;

pub use places::Places;
pub use suspects::Suspects;
pub use waits::{End, Kept, Limits, NotKept, Waits, WaitsEffect, WaitsInput};
