//! What an idle instance costs. Not among the ordinary tests, which share their process: run it alone with
//! `cargo test -p wasmkeep-host footprint -- --ignored --nocapture`.

use std::fs;

use wasmkeep_actor::{Guest, TurnEnd};

use super::kit::{self, GuestText, block_on, exchange, get};
use crate::{Runtime, RuntimeConfig};

const INSTANCES: usize = 1_000;

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn kib_each(bytes: usize) -> usize {
    bytes / INSTANCES / 1024
}

fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

fn cost(name: &str, wasm: &[u8], resident_kib_max: usize) {
    let folder = tempfile::tempdir().unwrap();
    let config = RuntimeConfig {
        cache_dir: folder.path().to_owned(),
        resident_max: INSTANCES,
        memory_bytes_max: 128 << 20,
        line_numbers: false,
    };
    let runtime = Runtime::new(&config).unwrap();
    let version = runtime.load_actor(wasm).unwrap();
    let make = || block_on(version.instantiate(kit::setting())).unwrap();
    // The first one maps what all share.
    drop(make());
    let (memory, maps) = (resident_bytes(), mappings());
    let mut instances: Vec<_> = (0..INSTANCES).map(|_| make()).collect();
    let fresh = resident_bytes() - memory;
    for instance in &mut instances {
        assert_eq!(block_on(exchange(instance, get("/none"))).0, TurnEnd::Ready);
    }
    let used = resident_bytes() - memory;
    for instance in &mut instances {
        instance.doze();
    }
    let dozing = resident_bytes() - memory;
    let maps = mappings() - maps;
    drop(instances);
    let left = resident_bytes().saturating_sub(memory);
    println!(
        "{name}: {} KiB resident per instance, {} KiB after one event, {} KiB dozing, {} mappings; {} KiB each remain",
        kib_each(fresh),
        kib_each(used),
        kib_each(dozing),
        maps / INSTANCES,
        kib_each(left)
    );
    assert!(kib_each(used) <= resident_kib_max);
    // The limit on a process's mappings (vm.max_map_count) is 65,530 and 10,000 actors must fit.
    assert!(maps / INSTANCES <= 5);
}

#[test]
#[ignore = "it measures the process it runs in"]
fn an_idle_instance_is_small() {
    let mut guest = GuestText::new();
    let text = guest.text("here");
    cost("a small guest", &guest.handle(&format!("(call $say (i32.const 200) {text})")), 48);
}

#[test]
#[ignore = "it measures the process it runs in"]
fn an_idle_counter_is_small() {
    cost("the counter sample", &super::samples::sample("counter"), 64);
}
