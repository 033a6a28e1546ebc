//! A few clusters and every broken variant of one, as CI's `sim quick` runs more of.

use wasmkeep_sim::{
    cluster::{Request, run, run_twice},
    variants,
};

#[test]
fn a_seed_gives_the_same_cluster_each_time() {
    for seed in 0..2 {
        let outcome = run_twice(&Request::plain(seed)).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.records > 0);
    }
}

#[test]
fn a_promise_that_breaks_beyond_what_is_assumed_says_so() {
    let outside = (0..variants::SEEDS_MAX).find_map(|seed| {
        let outcome = run(&Request::plain(seed)).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        // A wall clock that is an hour off is another assumption.
        outcome.outside.filter(|outside| outside.text.contains("; but the clock of process"))
    });
    assert!(outside.is_some(), "a clock that runs half as fast again breaks a promise");
}

// R-DUR-1, R-REPL-1, R-LEASE-1 to R-LEASE-10, R-OWN-1 to R-OWN-3, R-WAIT-1 to R-WAIT-4, R-FWD-1, R-FWD-2
#[test]
fn every_promise_of_a_cluster_is_kept_over_a_few_seeds() {
    for seed in 100..115 {
        let outcome = run(&Request::plain(seed)).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
    }
}

#[test]
fn every_broken_variant_of_a_cluster_is_noticed_by_the_checker_it_names() {
    for tried in variants::of_clusters().unwrap() {
        assert!(tried.is_caught(), "{tried}");
    }
}
