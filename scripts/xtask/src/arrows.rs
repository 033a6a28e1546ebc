//! The arrows between crates: who may use whom, and which outside crates some must never reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// The crates of ours that each crate may use, tests and benches included.
const MAY_USE: &[(&str, &[&str])] = &[
    ("wasmkeep-protocol", &[]),
    ("wasmkeep-ltx", &[]),
    ("wasmkeep-storage", &["wasmkeep-protocol", "wasmkeep-ltx"]),
    ("wasmkeep-actor", &["wasmkeep-protocol", "wasmkeep-storage"]),
    ("wasmkeep-host", &["wasmkeep-protocol", "wasmkeep-storage", "wasmkeep-actor"]),
    ("wasmkeep-sdk", &[]),
    ("wasmkeep-bucket", &[]),
    ("wasmkeep-s3", &["wasmkeep-bucket"]),
    ("wasmkeep-runtime", &[]),
    ("wasmkeep-cluster", &["wasmkeep-bucket", "wasmkeep-replica", "wasmkeep-runtime", "wasmkeep-protocol"]),
    // The replica for its tests only.
    (
        "wasmkeep-core",
        &[
            "wasmkeep-bucket",
            "wasmkeep-s3",
            "wasmkeep-runtime",
            "wasmkeep-replica",
            "wasmkeep-ltx",
            "wasmkeep-protocol",
        ],
    ),
    (
        "wasmkeep-replica",
        &["wasmkeep-protocol", "wasmkeep-ltx", "wasmkeep-storage", "wasmkeep-bucket", "wasmkeep-runtime"],
    ),
    (
        "wasmkeep-node",
        &[
            "wasmkeep-protocol",
            "wasmkeep-storage",
            "wasmkeep-actor",
            "wasmkeep-host",
            "wasmkeep-bucket",
            "wasmkeep-core",
            "wasmkeep-cluster",
            "wasmkeep-replica",
            "wasmkeep-s3",
            "wasmkeep-runtime",
        ],
    ),
    (
        "wasmkeep-cli",
        &["wasmkeep-protocol", "wasmkeep-ltx", "wasmkeep-bucket", "wasmkeep-s3", "wasmkeep-node"],
    ),
    (
        "wasmkeep-sim",
        &[
            "wasmkeep-protocol",
            "wasmkeep-ltx",
            "wasmkeep-storage",
            "wasmkeep-actor",
            "wasmkeep-bucket",
            "wasmkeep-cluster",
            "wasmkeep-replica",
            "wasmkeep-runtime",
        ],
    ),
    (
        "wasmkeep-bench",
        &[
            "wasmkeep-protocol",
            "wasmkeep-ltx",
            "wasmkeep-storage",
            "wasmkeep-actor",
            "wasmkeep-host",
            "wasmkeep-node",
        ],
    ),
    ("wasmkeep-perf", &[]),
    ("wasmkeep-xtask", &[]),
];

/// What a crate must not reach, directly or through others: executors, wasm and the network stay out of what
/// decides, and of the simulator.
const MUST_NOT_REACH: &[(&str, &[&str])] = &[
    ("wasmkeep-protocol", &["glommio", "tokio", "wasmtime", "rusqlite", "hyper", "reqwest"]),
    ("wasmkeep-ltx", &["glommio", "tokio", "wasmtime", "rusqlite", "hyper", "reqwest"]),
    ("wasmkeep-storage", &["glommio", "tokio", "wasmtime", "hyper", "reqwest"]),
    ("wasmkeep-actor", &["glommio", "tokio", "wasmtime", "hyper", "reqwest"]),
    ("wasmkeep-host", &["glommio", "reqwest"]),
    ("wasmkeep-bucket", &["glommio", "hyper", "reqwest", "object_store"]),
    ("wasmkeep-replica", &["glommio", "wasmtime", "hyper", "reqwest", "object_store"]),
    ("wasmkeep-cluster", &["glommio", "wasmtime", "hyper", "reqwest", "object_store"]),
    ("wasmkeep-sim", &["glommio", "wasmtime", "hyper", "reqwest", "object_store"]),
];

/// What a crate has to use, or it stands for something else than what ships.
const MUST_USE: &[(&str, &[&str])] =
    &[("wasmkeep-sim", &["wasmkeep-cluster", "wasmkeep-replica", "wasmkeep-actor"])];

/// Fails with every arrow that should not be there.
pub fn check() -> Result<()> {
    let metadata = MetadataCommand::new().exec().context("cargo metadata failed")?;
    let mut wrong = forbidden_uses(&metadata);
    wrong.extend(forbidden_reaches(&metadata)?);
    wrong.extend(missing_uses(&metadata));
    if wrong.is_empty() {
        writeln!(io::stdout(), "every crate uses only what it may")?;
        return Ok(());
    }
    bail!("{}", wrong.join("\n"));
}

fn forbidden_uses(metadata: &Metadata) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in metadata.workspace_packages() {
        let Some(may_use) = allowed.get(package.name.as_str()) else {
            wrong.push(format!("{} is not in the list of crates: add it with what it may use", package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|used| used.name.starts_with("wasmkeep-")) {
            if !may_use.contains(&dependency.name.as_str()) {
                wrong.push(format!("{} must not use {}", package.name, dependency.name));
            }
        }
    }
    wrong
}

fn missing_uses(metadata: &Metadata) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in metadata.workspace_packages() {
        let must_use = MUST_USE.iter().filter(|(name, _)| *name == package.name.as_str());
        for needed in must_use.flat_map(|(_, needed)| *needed) {
            let is_used = package
                .dependencies
                .iter()
                .any(|used| used.name == *needed && used.kind == DependencyKind::Normal);
            if !is_used {
                wrong.push(format!("{} has to use {needed}", package.name));
            }
        }
    }
    wrong
}

fn forbidden_reaches(metadata: &Metadata) -> Result<Vec<String>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata resolved nothing")?;
    let names: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
    let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let mut wrong = Vec::new();
    for &(from, forbidden) in MUST_NOT_REACH {
        let package = metadata.workspace_packages().into_iter().find(|package| package.name == from);
        let package = package.with_context(|| format!("there is no crate {from}"))?;
        let mut seen = BTreeSet::new();
        let mut open = vec![&package.id];
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let Some(node) = nodes.get(id) else { continue };
            for dependency in &node.deps {
                // Tests may use what the crate may not.
                if dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal) {
                    open.push(&dependency.pkg);
                }
            }
        }
        let reached = seen.iter().filter_map(|id| names.get(id)).filter(|name| forbidden.contains(name));
        wrong.extend(reached.map(|name| format!("{from} must not reach {name}")));
    }
    Ok(wrong)
}
