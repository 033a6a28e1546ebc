use clap::Parser;

use super::*;
use crate::args::{Cli, Command};

/// What the flags of a node come to.
fn configured(flags: &str) -> Config {
    let line = format!("wasmkeep serve --actor counter=counter.wasm {flags}");
    let Command::Serve(serve) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else {
        panic!("{line}")
    };
    node_config(serve.node, Vec::new(), None).unwrap()
}

fn of_cluster(flags: &str) -> ClusterConfig {
    configured(flags).cluster.unwrap()
}

// R-FLAG-3
#[test]
fn every_flag_of_a_cluster_reaches_the_node() {
    let config = configured(
        "--node-id node-7 --listen 0.0.0.0:8080 --advertise http://10.0.0.11:8080 --bucket s3://acme/prod/eu \
         --cluster-listen 0.0.0.0:7443 --cluster-advertise https://10.0.0.11:7443 --cluster-plaintext accept \
         --failover-wait-secs 7 --history-retention-secs 60 --bucket-cpu 3",
    );
    assert_eq!(config.node_id.as_str(), "node-7");
    let cluster = config.cluster.unwrap();
    assert_eq!(cluster.bucket.to_string(), "s3://acme/prod/eu");
    assert_eq!(cluster.advertise.as_deref(), Some("http://10.0.0.11:8080"));
    let listener = cluster.listener.unwrap();
    assert_eq!(
        (listener.listen.to_string(), &*listener.advertise),
        ("0.0.0.0:7443".to_owned(), "https://10.0.0.11:7443")
    );
    assert_eq!(cluster.plaintext, trust::Plaintext::Accept);
    assert_eq!(cluster.failover_wait, Duration::from_secs(7));
    assert_eq!(cluster.retention, Duration::from_secs(60));
    assert_eq!(cluster.cpu, Some(3));
}

// R-FLAG-3, R-WAIT-1, R-HIST-1
#[test]
fn what_is_not_said_is_as_documented() {
    const NAMED: &str =
        "--node-id a --bucket s3://acme --cluster-listen 0.0.0.0:7443 --cluster-advertise https://a:7443";
    let cluster = of_cluster(NAMED);
    assert_eq!(cluster.advertise, None);
    assert_eq!(cluster.plaintext, trust::Plaintext::Refuse);
    assert_eq!(cluster.failover_wait, Duration::from_secs(25));
    assert_eq!(cluster.retention, Duration::from_secs(3600));
    assert_eq!((cluster.timing, cluster.cpu), (Timing::default(), None));
    assert!(configured("").cluster.is_none());
    // Both zeros mean something.
    let zeros = of_cluster(&format!("{NAMED} --failover-wait-secs 0 --history-retention-secs 0"));
    assert_eq!((zeros.failover_wait, zeros.retention), (Duration::ZERO, Duration::ZERO));
    // A wait that is not given follows from the lease.
    let short = of_cluster(&format!("{NAMED} --lease-ttl-ms 4000"));
    assert_eq!(short.timing, Timing::of_ttl(Duration::from_secs(4)));
    assert_eq!(short.failover_wait, Duration::from_secs(10));
}

// R-FLAG-7
#[test]
fn every_flag_of_the_placement_reaches_the_node() {
    let placement = configured(
        "--shards 2 --cpuset 0-1 --overprovisioned --spin-before-park-us 50 --ring-depth 64 --io-memory-kib 512 \
         --stall-after-ms 7",
    );
    assert_eq!(placement.stall_after, Duration::from_millis(7));
    let placement = placement.placement;
    assert_eq!((placement.shards, placement.pin), (2, false));
    assert_eq!(placement.cpuset.map(|set| set.to_string()).as_deref(), Some("0-1"));
    assert_eq!(placement.spin_before_park, Duration::from_micros(50));
    assert_eq!((placement.ring_depth, placement.io_memory), (64, 512 << 10));
}
