//! The parts of the chaos run: nodes that are hurt, the ways between them that are cut, clients that keep their own
//! record, and the comparison at the end.

pub mod alarms;
pub mod clients;
pub mod harm;
pub mod nodes;
pub mod proxy;
pub mod record;
