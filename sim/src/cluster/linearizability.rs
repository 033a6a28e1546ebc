//! Whether the calls made to one object could have happened one after another, each at some instant between its
//! beginning and its answer. A call without an answer may have happened at any instant after its beginning, or never.
//!
//! Knows no cluster. For a counter and for a register there are ways to decide that without trying orders, in little
//! more time than it takes to sort the calls; whatever a run did, there is a verdict.

pub mod counter;
pub mod register;
#[cfg(test)]
mod search;
#[cfg(test)]
mod tests;
