//! A few seeds and every broken variant, as CI's `sim quick` runs more of.

use wasmkeep_sim::{Request, run, run_twice, variants};

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..3 {
        let outcome = run_twice(&Request::plain(seed)).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.records > 0);
    }
}

#[test]
fn every_promise_is_kept_over_a_few_seeds() {
    let mut crashes = 0;
    for seed in 100..125 {
        let outcome = run(&Request::plain(seed)).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        crashes += outcome.crashes;
    }
    assert!(crashes > 0, "some of these seeds must crash");
}

#[test]
fn every_broken_variant_is_noticed_by_the_checker_it_names() {
    for tried in variants::of_shards().unwrap() {
        assert!(tried.is_caught(), "{tried}");
    }
}
