//! `wasmkeep demo`: the sample actors on this machine, and what to try with them.

use std::{path::Path, sync::Arc};

use wasmkeep_node::config::{ClassConfig, ComponentConfig};
use wasmkeep_protocol::{access::Rule, durability::Durability};

use crate::{
    args::Demo,
    exit::{Failure, Status},
    logs,
    serve::{component, node_config, run, start},
    signals,
};

/// The sample classes, each from a file of its name.
const SAMPLES: [&str; 4] = ["chat", "counter", "notes", "sql"];

/// The stateless sample.
const SITE: &str = "site.wasm";

/// Serves the samples until the process is told to stop.
///
/// # Errors
/// One sentence and the status of the process.
pub fn demo(flags: Demo) -> Result<(), Failure> {
    let mut classes = Vec::new();
    for class in SAMPLES {
        let component = sample(&flags.samples, &format!("{class}.wasm"))?;
        let class = class.parse().map_err(|error| Failure::new(Status::Internal, error))?;
        classes.push(ClassConfig { class, component, access: Rule::Open, durability: Durability::default() });
    }
    let stateless = sample(&flags.samples, SITE)?;
    let config = node_config(flags.node, classes, Some(stateless))?;
    let told = signals::take()?;
    let node = start(config, &told)?;
    logs::announce(invitation(&node.address().to_string()));
    run(node, &told)
}

fn sample(folder: &Path, file: &str) -> Result<ComponentConfig, Failure> {
    let path = folder.join(file);
    if !path.exists() {
        let sentence = format!(
            "there is no {path:?}: build the samples with scripts/build-guests, or name their folder with --samples"
        );
        return Err(Failure::new(Status::Component, sentence));
    }
    component(&path, Arc::default())
}

fn invitation(address: &str) -> String {
    format!(
        r#"
WasmKeep serves the sample actors on http://{address}. In another terminal:

  curl -X POST http://{address}/actor/counter/alice           # 1, then 2, 3, ...
  curl http://{address}/actor/counter/alice                   # the number, kept in alice's own SQLite
  curl -X POST http://{address}/actor/counter/alice/durable   # returns once it is on disk
  curl -X POST http://{address}/actor/notes/me/notes -d '{{"title":"Milk","body":"two litres","tags":["shop"]}}'
  curl "http://{address}/actor/notes/me/notes?q=litres"       # full-text search
  curl http://{address}/_wasmkeep/metrics

In a browser, in two tabs: http://{address}/chat?name=alice and http://{address}/chat?name=bob

Ctrl-C stops it; what the actors keep stays in the data directory."#
    )
}
