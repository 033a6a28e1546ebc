//! What is decided once is decided in one place, for production and the simulator alike.

use std::{collections::BTreeSet, fs, path::Path};

/// Who makes a `Keeper`, the state machine of a node's lease: one driver, which the node and the simulator both run.
const DRIVERS: [&str; 1] = ["io/cluster/src/member.rs"];

/// Visits the sources below `folder` that are no tests.
fn sources(folder: &Path, visit: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", "tests", "examples", "benches", ".git"].contains(&&*name) {
                sources(&path, visit);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" {
            visit(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}

// R-LEASE-10
#[test]
fn one_state_machine_decides_about_a_lease_and_only_the_drivers_run_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut drivers = BTreeSet::new();
    let mut writers = Vec::new();
    for folder in ["engine", "io", "shards", "sim", "perf"] {
        sources(&root.join(folder), &mut |path, text| {
            let place = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            if code.contains("Keeper::new(") {
                drivers.insert(place.clone());
            }
            // A live heartbeat made by hand would be a lease nobody decided about.
            if code.contains("state: NodeState::Live") && !place.starts_with("engine/protocol/") {
                writers.push(place);
            }
        });
    }
    assert_eq!(drivers, DRIVERS.map(str::to_owned).into(), "who drives the lease");
    assert!(writers.is_empty(), "{writers:?} write heartbeats of their own");
}
