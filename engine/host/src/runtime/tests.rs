use super::*;

#[test]
fn ten_thousand_actors_run_without_bounds_checks_and_more_still_start() {
    assert_eq!(reservation(10_000, 128 << 20), 4 << 30);
    assert_eq!(reservation(100_000, 128 << 20), 128 << 20);
    assert_eq!(reservation(100_000, 100_000), 131_072);
}

#[test]
fn settings_that_cannot_work_are_refused_in_a_sentence() {
    let config = |resident_max, memory_bytes_max| RuntimeConfig {
        cache_dir: PathBuf::from("/nonexistent"),
        resident_max,
        memory_bytes_max,
        line_numbers: false,
    };
    for bad in [config(0, 1 << 20), config(2_000_000, 1 << 20), config(1, 0), config(1, (4 << 30) + 1)] {
        assert!(matches!(Runtime::new(&bad), Err(RuntimeError::Setting(_))), "{bad:?}");
    }
}

#[test]
fn a_full_size_pool_can_be_set_up() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = RuntimeConfig {
        cache_dir: folder.path().to_owned(),
        resident_max: wasmkeep_protocol::limits::RESIDENT_MAX,
        memory_bytes_max: wasmkeep_protocol::limits::ACTOR_MEMORY_BYTES,
        line_numbers: false,
    };
    assert!(Runtime::new(&config).is_ok());
}
