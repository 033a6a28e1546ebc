//! How SQLite is built and set up.

use wasmkeep_storage::{Value, check_sqlite_version, is_memory_counted};

use crate::rig::{Rig, text, wait};

// case R10
#[test]
fn the_linked_sqlite_is_new_enough() {
    check_sqlite_version().unwrap();
}

// case Q10
#[test]
fn sqlite_is_built_as_the_cargo_configuration_says() {
    let rig = Rig::new();
    let options: Vec<_> = rig.rows("PRAGMA compile_options").unwrap().concat();
    for wanted in [
        "THREADSAFE=2",
        "DEFAULT_MEMSTATUS=0",
        "DEFAULT_LOOKASIDE=0,0",
        "DEFAULT_PCACHE_INITSZ=0",
        "DEFAULT_CACHE_SIZE=-1024",
        "MAX_MMAP_SIZE=0",
        "ENABLE_FTS5",
        "ENABLE_MATH_FUNCTIONS",
    ] {
        assert!(options.contains(&text(wanted)), "{wanted} is not among {options:?}");
    }
    for unwanted in ["ENABLE_MEMORY_MANAGEMENT", "ENABLE_LOAD_EXTENSION", "ENABLE_FTS3"] {
        assert!(!options.contains(&text(unwanted)), "{unwanted}");
    }
    assert!(is_memory_counted());
}

#[test]
fn a_connection_is_set_up_for_one_owner() {
    let rig = Rig::new();
    for (pragma, wanted) in [
        ("journal_mode", text("wal")),
        ("locking_mode", text("exclusive")),
        ("synchronous", Value::Integer(0)),
        ("page_size", Value::Integer(4096)),
        ("foreign_keys", Value::Integer(1)),
        ("trusted_schema", Value::Integer(0)),
        ("temp_store", Value::Integer(0)),
        ("cache_size", Value::Integer(-1024)),
    ] {
        assert_eq!(rig.value(&format!("PRAGMA {pragma}")), wanted, "{pragma}");
    }
    assert_eq!(rig.value("SELECT sqlite_compileoption_used('TEMP_STORE=1')"), Value::Integer(1));
}

#[test]
fn an_idle_connection_is_small() {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(k PRIMARY KEY, v); INSERT INTO t VALUES('count', 1)").unwrap();
    for _ in 0..10 {
        rig.exec("UPDATE t SET v = v + 1 WHERE k = 'count'").unwrap();
        rig.value("SELECT v FROM t WHERE k = 'count'");
    }
    wait(rig.db.end_event());
    let busy = rig.db.memory_bytes();
    rig.db.shrink();
    let idle = rig.db.memory_bytes();
    println!("{busy} bytes after use, {idle} bytes idle");
    // 32 KiB of it is the index of the WAL, which SQLite takes whole.
    assert!(idle < 52 << 10, "{idle} bytes idle, {busy} after use");
    assert_eq!(rig.value("SELECT v FROM t WHERE k = 'count'"), Value::Integer(11));
}
