//! A few seeds of the replicated world and every broken variant of it, as CI's `sim quick` runs more of.

use wasmkeep_sim::{ReplicaRequest, run_replica, run_replica_twice, variants};

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..3 {
        let outcome = run_replica_twice(&ReplicaRequest::plain(seed)).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.records > 0);
    }
}

// R-DUR-1, R-RST-1, R-HIST-1, R-BKT-3, cases L2, R2, R5, R6
#[test]
fn every_promise_is_kept_over_a_few_seeds() {
    let (mut crashes, mut units) = (0, 0);
    for seed in 1_000..1_020 {
        let outcome = run_replica(&ReplicaRequest::plain(seed)).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        crashes += outcome.crashes;
        units += outcome.units;
    }
    assert!(crashes > 0 && units > 0, "some of these seeds must crash and write");
}

#[test]
fn every_broken_variant_is_noticed_by_the_checker_it_names() {
    for tried in variants::of_replicas().unwrap() {
        assert!(tried.is_caught(), "{tried}");
    }
}
