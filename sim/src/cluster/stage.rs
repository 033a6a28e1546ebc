//! The names of a simulated cluster and the requests made of its records: keys and texts are the shipped ones.

use wasmkeep_protocol::{
    ActorId, NodeId, Tenant,
    alarm::Whose,
    lease::Listed,
    object_keys,
    records::{NodeRecord, OwnerRecord, Process},
    store::{Condition, Version},
    trust::Fingerprint,
};

use wasmkeep_replica::Subject;

use super::{
    bucket::Call,
    record::{ActorNumber, NodeNumber, Pid},
};

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

/// Where the history of an actor is.
pub fn history_folder(number: ActorNumber) -> String {
    object_keys::history_folder(&tenant(), &actor(number))
}

/// Whose data an actor's is.
pub fn subject(number: ActorNumber) -> Subject {
    Subject { tenant: tenant(), actor: actor(number) }
}

/// Where alarms are listed, and which of them are an actor's.
pub fn alarms(number: ActorNumber) -> (String, Whose) {
    (object_keys::alarms_folder(&tenant()), (&actor(number)).into())
}

/// Reads a heartbeat.
pub fn get_node(node: &NodeId) -> Call {
    Call::Get(object_keys::node(node))
}

/// Writes one.
pub fn put_node(node: &NodeId, record: &NodeRecord, condition: Condition) -> Call {
    Call::Put(object_keys::node(node), record.encode(), condition)
}

/// Lists them all.
pub fn list_nodes() -> Call {
    Call::List(object_keys::NODES.into())
}

/// Reads an ownership record.
pub fn get_owner(actor: &ActorId) -> Call {
    Call::Get(object_keys::owner(&tenant(), actor))
}

/// Writes one.
pub fn put_owner(actor: &ActorId, record: &OwnerRecord, condition: Condition) -> Call {
    Call::Put(object_keys::owner(&tenant(), actor), record.encode(), condition)
}

/// A listed heartbeat.
pub fn listed(key: &str, version: Version, size: u64) -> Option<Listed> {
    let node = key.strip_prefix(object_keys::NODES)?.parse().ok()?;
    Some(Listed { node, version: Some(version), size })
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
