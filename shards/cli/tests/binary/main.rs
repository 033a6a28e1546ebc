//! The binary as its users meet it: real nodes in processes of their own, and the operator's commands.
//!
//! One program, so that it is linked once and the tests that wait do so beside those that work.

mod actor;
mod alarms;
mod browser;
mod bucket_alarms;
mod bucket_faults;
#[path = "../buckets/mod.rs"]
mod buckets;
mod calls;
mod cluster;
mod deletion;
mod developing;
#[path = "../../../../io/s3/tests/fault_server/mod.rs"]
mod fault_server;
mod flags;
mod forwarding;
mod gate;
mod holds;
mod interrupting;
mod javascript;
mod new_actors;
mod nodes;
mod outbound;
mod output;
mod replication;
mod requests;
mod s3;
mod serving;
mod starting;
mod stopping;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod websockets;
