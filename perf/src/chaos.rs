//! The parts of the chaos run: nodes that are hurt, clients that keep their own record, and the comparison at the end.

pub mod nodes;
pub mod record;
