//! What `wasmkeep cluster status` answers, as a table and as JSON.

use std::{collections::BTreeSet, fmt::Write, time::Duration};

use serde::Serialize;
use wasmkeep_protocol::{
    lease::Timing,
    records::{NodeRecord, Presence},
};

use super::warnings::{Warning, warnings};
use crate::{
    cluster::heartbeats::{Heartbeat, Standing},
    say,
};

/// The answer. As JSON it only ever gains fields.
#[derive(Debug, Serialize)]
pub struct Report {
    bucket: String,
    live_within_ms: u64,
    nodes: Vec<Node>,
    summary: Summary,
    warnings: Vec<Warning>,
}

/// One node. What an unreadable heartbeat does not say is null.
#[derive(Debug, Clone, Serialize)]
pub struct Node {
    /// Its id.
    pub id: String,
    /// Whether it counts as live.
    pub live: bool,
    /// Its lease: `live`, `fenced` or `released`, whatever its age.
    pub lease: Option<&'static str>,
    /// Time since its last live write.
    pub age_ms: Option<u64>,
    /// How far that write is dated ahead of this clock, when clocks should not differ so much.
    pub ahead_ms: Option<u64>,
    /// Whether it takes actors.
    pub state: Option<&'static str>,
    /// The WasmKeep it runs.
    pub version: Option<String>,
    /// The app it serves.
    pub app: Option<String>,
    /// Where clients and plain peers reach it.
    pub address: Option<String>,
    /// Where peers reach it over TLS.
    pub cluster_address: Option<String>,
    /// `pinned` or `plain`.
    pub tls: Option<&'static str>,
    /// Why its heartbeat cannot be read.
    pub unreadable: Option<String>,
}

#[derive(Debug, Serialize)]
struct Summary {
    nodes: usize,
    live: usize,
    live_pinned: usize,
    live_plain: usize,
    live_versions: BTreeSet<String>,
}

impl Report {
    /// The answer for these heartbeats.
    pub fn new(bucket: String, heartbeats: &[Heartbeat], timing: &Timing) -> Self {
        let nodes: Vec<Node> = heartbeats.iter().map(|heartbeat| node(heartbeat, timing)).collect();
        let live = || nodes.iter().filter(|node| node.live);
        let with = |tls| live().filter(|node| node.tls == Some(tls)).count();
        let summary = Summary {
            nodes: nodes.len(),
            live: live().count(),
            live_pinned: with(PINNED),
            live_plain: with(PLAIN),
            live_versions: live().filter_map(|node| node.version.clone()).collect(),
        };
        let warnings = warnings(&nodes, timing);
        Self { bucket, live_within_ms: ms(timing.in_view()), nodes, summary, warnings }
    }

    /// Whether any node is live.
    pub fn has_live_node(&self) -> bool {
        self.summary.live > 0
    }

    /// The answer for people.
    pub fn text(&self) -> String {
        let within = say::age(Duration::from_millis(self.live_within_ms));
        let mut text = format!("Cluster {} (live: heartbeat within {within})\n\n", self.bucket);
        if !self.nodes.is_empty() {
            let heads =
                ["NODE", "LIVE", "AGE", "STATE", "VERSION", "APP", "ADDRESS", "CLUSTER ADDRESS", "TLS"];
            text.push_str(&say::table(heads, self.nodes.iter().map(row)));
            text.push('\n');
        }
        // A String takes everything written to it.
        let _ = writeln!(text, "{}", self.summary.text());
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {}", say::plain(&warning.text));
        }
        text
    }
}

impl Summary {
    fn text(&self) -> String {
        let Self { nodes, live, live_pinned, live_plain, live_versions } = self;
        let mut text = format!("{live} of {} live", say::count(*nodes, "node"));
        if *live > 0 {
            let versions: Vec<&str> = live_versions.iter().map(String::as_str).collect();
            let word = if versions.len() == 1 { "version" } else { "versions" };
            let versions = say::plain(&versions.join(", "));
            // A String takes everything written to it.
            let _ = write!(
                text,
                "; TLS: {live_pinned} with a cluster listener, {live_plain} plain; {word}: {versions}"
            );
        }
        text
    }
}

const PINNED: &str = "pinned";
const PLAIN: &str = "plain";

fn node(heartbeat: &Heartbeat, timing: &Timing) -> Node {
    let standing = heartbeat.standing(timing);
    let id = heartbeat.node.to_string();
    let record = match &heartbeat.record {
        Ok(record) => record,
        Err(error) => return unreadable(id, error.to_string()),
    };
    let NodeRecord { presence, .. } = record;
    let Presence { advertise, cluster_advertise, fingerprint, version, app, stopping } = &**presence;
    let lease = match standing {
        Standing::Fenced => "fenced",
        Standing::Released => "released",
        Standing::Live | Standing::Silent | Standing::Unreadable => "live",
    };
    let is_pinned = cluster_advertise.is_some() && fingerprint.is_some();
    Node {
        id,
        live: standing == Standing::Live,
        lease: Some(lease),
        age_ms: Some(ms(heartbeat.age(record))),
        ahead_ms: heartbeat.ahead(timing).map(ms),
        // A node that has its lease takes actors, unless it is about to give it up.
        state: record.is_live().then_some(if *stopping { "stopping" } else { "serving" }),
        version: some(version),
        app: app.clone(),
        address: some(advertise),
        cluster_address: cluster_advertise.clone(),
        tls: Some(if is_pinned { PINNED } else { PLAIN }),
        unreadable: None,
    }
}

fn unreadable(id: String, error: String) -> Node {
    Node {
        id,
        live: false,
        lease: None,
        age_ms: None,
        ahead_ms: None,
        state: None,
        version: None,
        app: None,
        address: None,
        cluster_address: None,
        tls: None,
        unreadable: Some(error),
    }
}

/// A text a heartbeat leaves empty says nothing.
fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn row(node: &Node) -> [String; 9] {
    let live = match (node.live, node.lease) {
        (true, _) => "yes",
        (false, Some("fenced")) => "no (fenced)",
        (false, Some("released")) => "no (released)",
        (false, Some(_)) => "no",
        (false, None) => "no (unreadable)",
    };
    let dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
    let age = node.age_ms.map(|ms| say::age(Duration::from_millis(ms)));
    [
        node.id.clone(),
        live.to_owned(),
        dash(age.as_deref()),
        dash(node.state),
        dash(node.version.as_deref()),
        dash(node.app.as_deref()),
        dash(node.address.as_deref()),
        dash(node.cluster_address.as_deref()),
        dash(node.tls),
    ]
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
