//! What an operator should do something about, by the state of all nodes together.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use wasmkeep_protocol::lease::Timing;

use super::report::Node;
use crate::say;

/// One thing to do something about.
#[derive(Debug, Serialize)]
pub struct Warning {
    /// What it is, for scripts.
    pub kind: Kind,
    /// Whom it is about.
    pub nodes: Vec<String>,
    /// One sentence with the next step.
    pub text: String,
}

/// What a warning is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Nobody serves.
    NoLiveNode,
    /// Some live nodes have a cluster listener and some have none.
    MixedTls,
    /// Live nodes run different versions.
    MixedVersions,
    /// A heartbeat is dated ahead of this clock.
    Ahead,
    /// A heartbeat cannot be read.
    Unreadable,
}

/// Everything there is to warn about.
pub fn warnings(nodes: &[Node], timing: &Timing) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if !nodes.iter().any(|node| node.live) {
        let text = "no node is live: requests are answered by nobody".to_owned();
        warnings.push(Warning { kind: Kind::NoLiveNode, nodes: Vec::new(), text });
    }
    warnings.extend(mixed_tls(nodes));
    warnings.extend(mixed_versions(nodes));
    warnings.extend(nodes.iter().filter_map(|node| ahead(node, timing)));
    warnings.extend(nodes.iter().filter_map(unreadable));
    warnings
}

fn mixed_tls(nodes: &[Node]) -> Option<Warning> {
    let with = |tls: &str| -> Vec<String> {
        let live = nodes.iter().filter(|node| node.live && node.tls == Some(tls));
        live.map(|node| node.id.clone()).collect()
    };
    let (pinned, plain) = (with("pinned"), with("plain"));
    if pinned.is_empty() || plain.is_empty() {
        return None;
    }
    let text = format!(
        "plain HTTP and TLS between nodes are mixed: {} without a cluster listener, {} with one; give every node one \
         before any of them runs without --cluster-plaintext accept",
        plain.join(", "),
        pinned.join(", ")
    );
    Some(Warning { kind: Kind::MixedTls, nodes: plain, text })
}

fn mixed_versions(nodes: &[Node]) -> Option<Warning> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.live) {
        versions.entry(node.version.as_deref().unwrap_or("unknown")).or_default().push(&node.id);
    }
    if versions.len() < 2 {
        return None;
    }
    let all: Vec<String> = nodes.iter().filter(|node| node.live).map(|node| node.id.clone()).collect();
    let list: Vec<String> =
        versions.iter().map(|(version, nodes)| format!("{version} on {}", nodes.join(", "))).collect();
    let text = format!(
        "live nodes run different versions of WasmKeep: {}; stop all of them, upgrade, then start all",
        list.join("; ")
    );
    Some(Warning { kind: Kind::MixedVersions, nodes: all, text })
}

/// R-LEASE-9, case L7
fn ahead(node: &Node, timing: &Timing) -> Option<Warning> {
    let id = &node.id;
    let ahead = say::age(Duration::from_millis(node.ahead_ms?));
    let lapse = say::age(timing.lapse(timing.ttl));
    let consequence = match node.lease {
        Some("live") => "while it is, no other node takes its actors when it dies".to_owned(),
        _ => format!("its actors are free {lapse} after that date"),
    };
    let text = format!(
        "the heartbeat of {id} is dated {ahead} ahead of this machine's clock: {consequence}; set right whichever of \
         the two clocks is wrong"
    );
    Some(Warning { kind: Kind::Ahead, nodes: vec![id.clone()], text })
}

fn unreadable(node: &Node) -> Option<Warning> {
    let (id, error) = (&node.id, node.unreadable.as_ref()?);
    let text = format!(
        "nodes/{id} is no heartbeat this version reads: {error}; if nothing rewrites it, wasmkeep cluster forget {id} \
         removes it"
    );
    Some(Warning { kind: Kind::Unreadable, nodes: vec![id.clone()], text })
}
