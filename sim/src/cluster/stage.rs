//! The names of a simulated cluster and the requests made of its records: keys and texts are the shipped ones.

use wasmkeep_bucket::Key;
use wasmkeep_protocol::{
    ActorId, NodeId, Tenant, alarm::Whose, object_keys, records::Process, trust::Fingerprint,
};

use super::record::{ActorNumber, NodeNumber, Pid};

/// A name that the simulator makes; it keeps to the rules.
fn named<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().expect("the simulator's names are names")
}

/// Whose the actors are.
pub fn tenant() -> Tenant {
    named("acme")
}

/// The node id with this number.
pub fn node(number: NodeNumber) -> NodeId {
    named(&format!("n{number}"))
}

/// The number of a node id of ours.
pub fn node_number(node: &NodeId) -> NodeNumber {
    node.as_str()[1..].parse().expect("the simulator's node ids end in a number")
}

/// The actor with this number.
pub fn actor(number: ActorNumber) -> ActorId {
    ActorId { class: named("room"), name: named(&format!("a{number}")) }
}

/// The number of an actor of ours.
pub fn actor_number(actor: &ActorId) -> ActorNumber {
    actor.name.as_str()[1..].parse().expect("the simulator's actors end in a number")
}

/// Which process a record names; `None` for the one an operator makes up for a fence.
pub fn pid(process: Process) -> Option<Pid> {
    Pid::from_str_radix(process.to_string().trim_start_matches('0'), 16).ok()
}

/// Of the certificate this process made at its start.
pub fn fingerprint(pid: Pid) -> Fingerprint {
    Fingerprint::of(&pid.to_be_bytes())
}

/// Where alarms are listed, and which of them are an actor's.
pub fn alarms(number: ActorNumber) -> (String, Whose) {
    (object_keys::alarms_folder(&tenant()), (&actor(number)).into())
}

/// A key of ours.
fn key(text: &str) -> Key {
    named(text)
}

/// The key of a heartbeat.
pub fn heartbeat(node: &NodeId) -> Key {
    key(&object_keys::node(node))
}

/// Whose heartbeat a key is.
pub fn node_of_key(key: &str) -> Option<NodeNumber> {
    let node: NodeId = key.strip_prefix(object_keys::NODES)?.parse().ok()?;
    Some(node_number(&node))
}

/// Whose ownership record a key is.
pub fn actor_of_key(key: &str) -> Option<ActorNumber> {
    let name = key.strip_prefix("owners/acme/room/a")?;
    name.parse().ok()
}
